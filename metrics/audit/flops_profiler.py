"""FLOPS figures of DeepSpeed's flops profiler, from its FLOPs and latencies.

    fwd FLOPS_FIGURE = fwd flops / fwd latency          bwd FLOPS_FIGURE = b fwd flops / bwd latency
    FLOPS_FIGURE = (1 + b) fwd flops / (fwd + bwd + step latency)      b = 2 + recompute_fwd_factor
    samples/second = batch of a micro-step x world size / iter latency

All are of one micro-step: with gradient accumulation the work of one is divided by the time of all,
and samples count model-parallel ranks separately. So the figures prove nothing but their own
printing. deepspeedai/DeepSpeed, deepspeed/profiling/flops_profiler/profiler.py, edaa7221.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import polars as pl

FLOPS_FIGURE: Final = "logged_profiler_flops"
SAMPLES_FIGURE: Final = "logged_profiler_samples_per_second"
PROFILER_DECIMALS: Final = 2
"""Decimals of every number that the profiler prints, in its unit."""

PROFILE_SCHEMA: Final = pl.Schema(
    {
        "run_id": pl.String(),
        "line": pl.Int64(),
        FLOPS_FIGURE: pl.Float64(),
        SAMPLES_FIGURE: pl.Float64(),
        "profiler_low": pl.Float64(),
        "profiler_high": pl.Float64(),
    }
)
"""FLOPS in their printed unit (GFLOPS, …), with the bounds of their inputs in the same unit;
samples per second with the bounds of one sample's rate.
"""

UNIT_PREFIXES: Final = {
    "T": 1e12,
    "G": 1e9,
    "M": 1e6,
    "K": 1e3,
    "k": 1e3,
    "": 1.0,
    "m": 1e-3,
    "u": 1e-6,
}
NUMBER_PATTERN: Final = re.compile(r"(\d+(?:\.\d*)?(?:e[-+]?\d+)?) *([TGMKkmu]?)(?:FLOPS|s)?\s*$")
RATE_PATTERN: Final = re.compile(
    r"(?:\S+ )?FLOPS per GPU = (?:(\d+(?:\.\d*)?) \* )?fwd flops per GPU / "
    r"\(?(fwd|bwd|fwd\+bwd|iter) latency\)?$"
)


class _Printed(NamedTuple):
    """A number in its unit, and its rounding bounds in FLOP or s."""

    value: float
    unit: float
    low: float
    high: float


def read_profiles(events: pl.DataFrame) -> pl.DataFrame:
    """Return the figures of all profiles, one per row, as PROFILE_SCHEMA.

    events: as in ingest.core.schema
    """
    found = events.filter(pl.col("kind") == "profiler", pl.col("extra").is_not_null())
    rows = [
        {"run_id": run_id, "line": line} | figure
        for run_id, line, extra in found.select("run_id", "line", "extra").iter_rows()
        for figure in _figures(json.loads(extra))
    ]
    return pl.DataFrame(rows, schema=PROFILE_SCHEMA)


def _figures(fields: Mapping[str, str]) -> Iterator[dict[str, float]]:
    """Yield figures with printed positive latencies: timers of some accelerators fail."""
    flops = _read(fields.get("fwd flops per GPU", ""))
    for name, text in fields.items():
        match, printed = RATE_PATTERN.match(name), _read(text)
        if match is None or printed is None or flops is None:
            continue
        times = [_read(fields.get(f"{part} latency", "")) for part in match[2].split("+")]
        seconds = [time for time in times if time is not None]
        if len(seconds) < len(times):
            continue
        work = float(match[1] or 1) / printed.unit
        low, high = sum(t.low for t in seconds), sum(t.high for t in seconds)
        bounds = {"profiler_low": work * flops.low / high, "profiler_high": work * flops.high / low}
        yield {FLOPS_FIGURE: printed.value} | bounds
    rate, step = _read(fields.get("samples/second", "")), _read(fields.get("iter latency", ""))
    if rate is not None and step is not None:
        bounds = {"profiler_low": 1 / step.high, "profiler_high": 1 / step.low}
        yield {SAMPLES_FIGURE: rate.value} | bounds


def _read(text: str) -> _Printed | None:
    match = NUMBER_PATTERN.match(text)
    if match is None or float(match[1]) <= 0:
        return None
    value, unit = float(match[1]), UNIT_PREFIXES[match[2]]
    half = 0.5 * 10.0**-PROFILER_DECIMALS
    return _Printed(value, unit, max(value - half, half) * unit, (value + half) * unit)
