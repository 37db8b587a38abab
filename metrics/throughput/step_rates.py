"""Rates that need no token count: seconds per step, samples per second.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, floor, isclose
from typing import Any, Final

import numpy as np

from ..core.arrays import FloatArray
from ..core.intervals import rate_interval
from ..core.memory_growth import memory_changes
from ..core.print_precision import digits_of
from ..core.run_arrays import RunArrays, total
from ..core.run_table import MemoryChange, StepRateColumns
from ..core.run_words import GROWTH, SECONDS_PER_HOUR
from .windows import choose_evidence, count_steps, evidence_rounding, steady_windows

MAX_CLOCK_ERROR: Final = 0.05
"""Largest error of a time without an interval, from the print's last digits: 1 of 20 seconds."""
MAX_BATCH_SPREAD: Final = 0.01
"""Largest relative spread of the tokens per step of a run with one batch size."""


def step_rates(
    windows: RunArrays, preferred: Sequence[str], facts: Mapping[str, Any]
) -> StepRateColumns:
    """Return the rates of the steady steps, with the interval of the time per step.

    A step is a logged step: an optimizer step, or a micro-step (`step_unit`). Samples and tokens
    are of all GPUs. Unknown values are None. A rate of unknown tokens times no step, nor do counted
    lines of an unknown number of steps.

    windows: of one run, marked
    preferred: kinds of time evidence, the best first
    facts: known facts of the run, by name
    """
    memory = windows["peak_memory_bytes"]
    columns: StepRateColumns = {
        "seconds_per_step": None,
        "seconds_per_step_low": None,
        "seconds_per_step_high": None,
        "samples_per_second": None,
        "samples_per_update": None,
        "tokens_per_update": _tokens_per_update(windows, facts),
        "peak_memory_bytes": None if np.isnan(memory).all() else float(np.nanmax(memory)),
        "memory_slope": None,
        "memory_changes": memory_changes(windows),
    }
    counted, has_tokens = count_steps(windows), windows.has_any("tokens_per_gpu")
    evidence = choose_evidence(counted, [e for e in preferred if e != "rate" or has_tokens])
    steps = facts.get("log_interval") if facts.get("steps_counted") else 1
    if evidence is None or steps is None:
        return columns
    steady = steady_windows(counted, evidence)
    spans = counted[f"{evidence}_span"][steady.indices] * steps
    seconds = total(steady.seconds) / total(spans)
    stalls = counted["stall_s"][steady.indices]
    coarse = evidence_rounding(counted, steady, evidence)
    columns["seconds_per_step"] = seconds
    if (sure := rate_interval(spans, steady.seconds, stalls, coarse).estimate) is not None:
        columns["seconds_per_step_low"] = 1 / sure.high
        columns["seconds_per_step_high"] = 1 / sure.low
    elif coarse > MAX_CLOCK_ERROR:  # few ticks of a clock are a range, whatever their scatter
        columns["seconds_per_step_low"] = max(0.0, seconds * (1 - coarse))
        columns["seconds_per_step_high"] = seconds * (1 + coarse)
    columns["memory_slope"] = _memory_slope(columns["memory_changes"], seconds)
    every = _steps_per_update(windows)
    batch = _samples_per_update(windows, facts, columns["tokens_per_update"])
    columns["samples_per_update"] = batch
    if seconds > 0 and batch is not None and every is not None:
        columns["samples_per_second"] = batch / every / seconds
    return columns


def _memory_slope(changes: Sequence[MemoryChange] | None, seconds: float) -> float | None:
    """Return the growth of the peak memory in bytes an hour; None if unknown.

    seconds: per step
    """
    if changes is None or not seconds:
        return None
    for change in changes:
        if change["kind"] == GROWTH:
            hours = (change["to_step"] - change["from_step"]) * seconds / SECONDS_PER_HOUR
            return (change["bytes_after"] - change["bytes_before"]) / hours
    return 0.0


def _samples_per_update(
    windows: RunArrays, facts: Mapping[str, Any], tokens: float | None
) -> float | None:
    """Return the samples of an optimizer update over all GPUs; None if they vary.

    They are printed with the steps, stated for the run, or follow from rates and times. If lines
    and run disagree, the tokens decide: a batch may ramp up to the stated size, and a fork of
    Megatron-DeepSpeed prints the batch of one replica.

    tokens: of an update, with padding
    """
    if not _has_one_size(_slots(windows)):
        return None
    printed, stated = windows["samples"][windows["samples"] > 0], facts.get("global_batch_size")
    if not len(printed):
        return _logged_batch(windows) if stated is None else float(stated)
    if not _has_one_size(printed):
        return None
    length = (facts.get("seq_len") or 0) * (facts.get("sequences_per_sample") or 1)
    fits = tokens is not None and isclose(tokens, printed[-1] * length)
    return float(printed[-1] if stated is None or fits else stated)


def _logged_batch(windows: RunArrays) -> float | None:
    """Return the only batch by which all logged step times give the logged samples/s.

    Both are rounded; None unless a single whole number fits every line.
    """
    rates, times = windows["logged_samples_per_second"], windows["elapsed_s"]
    both = (rates > 0) & (times > 0)
    if windows.value("step_unit") == "micro_step" or not both.any():
        return None
    rates, times = rates[both], times[both]
    off_rate, off_time = (digits_of(of).last_places(of) / 2 for of in (rates, times))
    low = float(((rates - off_rate) * (times - off_time)).max())
    high = float(((rates + off_rate) * (times + off_time)).min())
    batch = ceil(low)
    return float(batch) if batch > 0 and batch == floor(high) else None


def _tokens_per_update(windows: RunArrays, facts: Mapping[str, Any]) -> float | None:
    """Return the tokens of an optimizer update with padding; None if they vary."""
    slots, gpus, every = _slots(windows), facts.get("gpus"), _steps_per_update(windows)
    if not len(slots) or gpus is None or every is None or not _has_one_size(slots):
        return None
    return float(slots.mean() * gpus * every)


def _steps_per_update(windows: RunArrays) -> int | None:
    """Return the logged steps per optimizer update; None if unknown."""
    if windows.value("step_unit") != "micro_step":
        return 1
    every = windows.value("gradient_accumulation")
    return None if every is None else int(every)


def _slots(windows: RunArrays) -> FloatArray:
    """Return the known tokens per step of one GPU: with padding where that is known."""
    slots, tokens = windows["slots_per_gpu"], windows["tokens_per_gpu"]
    sizes = np.where(np.isnan(slots), tokens, slots)
    return sizes[~np.isnan(sizes)]


def _has_one_size(sizes: FloatArray) -> bool:
    return not len(sizes) or bool(np.ptp(sizes) <= MAX_BATCH_SPREAD * sizes.max())
