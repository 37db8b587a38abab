"""Lines with figures of a framework's own: step lines, and events with figures.

Figures without a column in ingest.core.schema are in `extra`, as JSON. Here they become columns, so
that a figure is audited wherever a log prints the figure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from ..core.extra_figures import possible_figure
from . import flops_profiler

PER_GPU_FIGURES: Final = ("logged_tflops", "logged_mfu", "logged_tgs")
"""Figures of one GPU, in order of preference for the comparison."""

SAMPLES_FIGURE: Final = "logged_samples_per_second"
"""Figure of all GPUs, for the comparison of runs whose tokens are unknown."""

LOGGED_FIGURES: Final = (
    *PER_GPU_FIGURES,
    SAMPLES_FIGURE,
    "logged_lm_tflops",
    "logged_hfu",
    "logged_total_flops",
    "logged_device_samples_per_second",
    flops_profiler.FLOPS_FIGURE,
    flops_profiler.SAMPLES_FIGURE,
)
"""Columns with claims: of schema's steps, then of `extra` (Megatron-LM's TFLOP/s beside
Microsoft's, HFU as a fraction, FLOPs since the start, samples/s of one device), then of
DeepSpeed's flops profiler.
"""

FIXED_DECIMALS: Final = dict.fromkeys(LOGGED_FIGURES[-2:], flops_profiler.PROFILER_DECIMALS)
"""Decimals of figures that every version prints alike."""

PERCENT: Final = 0.01
STEP_COLUMNS: Final = ("elapsed_s", "samples", "sequence_length", "consumed_tokens", "logged_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureSource:
    """A kind of line that prints figures without a column.

    event: kind of the events with figures in `extra`; None: `extra` of steps
    keys: key of `extra` to (column, factor to its unit); every such line has the first key
    belongs_to_step: the event follows the line of its step and refers to that step's time and
        samples
    """

    event: str | None
    keys: Mapping[str, tuple[str, float]]
    belongs_to_step: bool = False


FIGURE_SOURCES: Final = (
    FigureSource(
        event=None,
        keys={
            "[LM]-TFLOPs": ("logged_lm_tflops", 1.0),
            "[LM]TFLOPs": ("logged_lm_tflops", 1.0),
            "HFU": ("logged_hfu", PERCENT),
            "device_samples_per_second": ("logged_device_samples_per_second", 1.0),
        },
    ),
    FigureSource(
        event="timers",
        keys={"billion_parameters": ("billion_parameters", 1.0), "tflops": ("logged_tflops", 1.0)},
        belongs_to_step=True,
    ),
    FigureSource(
        event="engine_step",
        keys={
            "device_samples_per_second": ("logged_device_samples_per_second", 1.0),
            "tflops": ("logged_tflops", 1.0),
            "elapsed": ("elapsed_s", 1.0),
            "batch": ("device_samples", 1.0),
            "length": ("sequence_length", 1.0),
        },
    ),
    FigureSource(
        event="end", keys={"total_flos": ("logged_total_flops", 1.0)}, belongs_to_step=True
    ),
)
"""Bigscience of 2021 (timers), DeepSpeed-Chat under the engine, the Hugging Face Trainer's end."""


def figure_lines(steps: pl.DataFrame, events: pl.DataFrame | None = None) -> pl.DataFrame:
    """Return the lines of all runs that print one of LOGGED_FIGURES, in their order.

    steps, events: as in ingest.core.schema. The result has columns of steps, LOGGED_FIGURES, and
        `device_samples` [sequences of one device's micro-step].
    """
    of_steps = _with_keys(steps, next(c for c in FIGURE_SOURCES if c.event is None).keys)
    of_events = [] if events is None else list(_of_events(events, steps))
    lines = pl.concat([of_steps, *of_events], how="diagonal_relaxed")
    missing = [c for c in (*LOGGED_FIGURES, "device_samples") if c not in lines.columns]
    lines = lines.with_columns(
        *(pl.lit(None, pl.Float64).alias(c) for c in missing),
        pl.col("sequence_length").cast(pl.Int64),
    )
    some = pl.any_horizontal(pl.col(LOGGED_FIGURES).is_not_null())
    return lines.filter(some).sort("run_id", "line", maintain_order=True)


def _of_events(events: pl.DataFrame, steps: pl.DataFrame) -> Iterator[pl.DataFrame]:
    kinds = events["kind"].unique().to_list()
    for claim in FIGURE_SOURCES:
        if claim.event not in kinds:
            continue
        key = next(iter(claim.keys))
        holds = pl.col("extra").fill_null("").str.contains(f'"{key}": ', literal=True)
        found = events.filter(pl.col("kind") == claim.event, holds)
        if found.height:
            lines = found.select("run_id", "line", "step", "extra")
            if claim.belongs_to_step:
                lines = _beside_their_step(lines, steps)
            yield _with_keys(lines, claim.keys).drop("billion_parameters", strict=False)
    yield flops_profiler.read_profiles(events)


def _beside_their_step(lines: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Add the step's columns to events, from the last step line before the event.

    Null if the event names another step than that line.
    """
    of = steps.select("run_id", "line", pl.col("step").alias("of"), *STEP_COLUMNS).sort("line")
    lines = lines.sort("line").join_asof(of, on="line", by="run_id", check_sortedness=False)
    own = pl.col("step").is_null() | (pl.col("step") == pl.col("of"))
    taken = [pl.when(own).then(pl.col(c)).alias(c) for c in STEP_COLUMNS]
    return lines.with_columns(*taken).drop("of")


def _with_keys(lines: pl.DataFrame, keys: Mapping[str, tuple[str, float]]) -> pl.DataFrame:
    """Add columns for keys of `extra`, if any line has them; `54.97%` counts as 54.97."""
    said = pl.col("extra").fill_null("")
    has = [said.str.contains(f'"{key}": ', literal=True).any().alias(key) for key in keys]
    there = [key for key, found in lines.select(has).row(0, named=True).items() if found]
    if not there:
        return lines
    fields = pl.col("extra").str.json_decode(pl.Struct(dict.fromkeys(there, pl.String)))
    found: dict[str, list[pl.Expr]] = {}
    for key in there:
        column, factor = keys[key]
        number = fields.struct.field(key).str.strip_chars(" %").cast(pl.Float64, strict=False)
        found.setdefault(column, []).append(possible_figure(number) * factor)
    return lines.with_columns(
        pl.coalesce(spellings).alias(column) for column, spellings in found.items()
    )


def lines_by_run(lines: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Return the lines by run_id."""
    parts = lines.partition_by("run_id", as_dict=True, maintain_order=True)
    return {str(run_id): frame for (run_id,), frame in parts.items()}
