"""Values of printed timers, by step: from step lines and from `timers` events.

A format's data say which printed timers measure a phase (column `runs.phase_timers`), so nothing
here knows a framework. Only runs whose log prints such timers cost time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import polars as pl

from ..core.arrays import FloatArray

COMPUTE_PHASES: Final = ("forward", "backward", "forward_backward")
"""Phases that take time in every step: 0 means that a timer was not running."""

MAX_EVENT_TEXT: Final = 500
"""Characters of an event's text; a longer line is cut, maybe within a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """A timer of a format, as in ingest.formats.spec.PhaseTimer."""

    timer: str
    phase: str
    text: str | None
    factor: float
    group: str
    part_of: str | None
    beside: str | None
    covers: str
    pipelined_covers: str | None
    after_step: bool
    caveat: str | None

    @property
    def key_regex(self) -> str:
        """Regex of the timer in a JSON of fields; group 1 is the value."""
        key = re.escape(self.timer).replace("\\ ", " ")
        return rf'"{key}": "?(-?[\d.]+(?:[eE][-+]?\d+)?)"?[,}}]'


@lru_cache(maxsize=64)
def timers_of_format(phase_timers: str) -> tuple[Timer, ...]:
    """Return the timers of a value of runs.phase_timers."""
    return tuple(Timer(**fields) for fields in json.loads(phase_timers))


@dataclass(frozen=True, slots=True)
class Reading:
    """Values of a timer in a run: the mean over lines and ranks, by step.

    steps: ascending. seconds: as printed, of the span that the timer covers
    """

    timer: Timer
    steps: FloatArray
    seconds: FloatArray


def timer_readings(
    tables: Mapping[str, pl.DataFrame], lead_of: Mapping[str, str]
) -> dict[str, list[Reading]]:
    """Return the readings of all timers, by run_id, in the format's order of timers.

    tables: of the sources, before they were merged
    lead_of: run_id of the merged run of each source
    """
    declared = tables["runs"].filter(pl.col("phase_timers").is_not_null())
    found: dict[str, list[Reading]] = {}
    for (phase_timers,), runs in declared.group_by("phase_timers", maintain_order=True):
        timers = timers_of_format(str(phase_timers))
        ids = pl.col("run_id").is_in(runs["run_id"].implode())
        printed = _printed(tables, ids, timers)
        if printed.is_empty():
            continue
        by_step = (
            _measured(printed, timers)
            .with_columns(run_id=pl.col("run_id").replace(lead_of))
            .group_by("run_id", "timer", "step")
            .agg(pl.col("seconds").mean())
            .sort("run_id", "timer", "step")
        )
        for (run_id, index), rows in by_step.group_by("run_id", "timer", maintain_order=True):
            reading = Reading(
                timers[int(str(index))],
                rows["step"].to_numpy().astype(np.float64),
                rows["seconds"].to_numpy(),
            )
            found.setdefault(str(run_id), []).append(reading)
    return found


def _printed(
    tables: Mapping[str, pl.DataFrame], ids: pl.Expr, timers: tuple[Timer, ...]
) -> pl.DataFrame:
    """Return run_id, line, step, timer (its index) and seconds of every print."""
    steps = tables["steps"].filter(ids)
    own = steps.filter(pl.col("extra").is_not_null()).select("run_id", "line", "step", text="extra")
    frames = _values(own, {i: timer.key_regex for i, timer in enumerate(timers)}, timers)
    events = tables["events"].filter(ids, pl.col("kind") == "timers")
    if events.is_empty():
        return pl.concat(frames) if frames else pl.DataFrame()
    whole = pl.when(pl.col("text").str.len_chars() < MAX_EVENT_TEXT)
    texts = events.select("run_id", "line", text=whole.then(pl.col("text") + " ").otherwise("text"))
    keys = events.select("run_id", "line", text="extra").drop_nulls("text")
    lines = [
        *_values(texts, {i: t.text for i, t in enumerate(timers) if t.text is not None}, timers),
        *_values(keys, {i: t.key_regex for i, t in enumerate(timers) if t.text is None}, timers),
    ]
    if lines:
        frames.append(_with_steps(pl.concat(lines), steps, timers))
    return pl.concat(frames) if frames else pl.DataFrame()


def _values(
    lines: pl.DataFrame, regexes: Mapping[int, str], timers: tuple[Timer, ...]
) -> list[pl.DataFrame]:
    """Return the values of the timers in some lines, a frame per timer.

    Columns are those of lines without the text, timer and seconds. Lines that are equal but for
    their digits are searched once. regexes: by index of the timer
    """
    if lines.is_empty() or not regexes:
        return []
    lines = lines.with_columns(shape=pl.col("text").str.replace_all(r"\d[\d.]*", "0"))
    shapes = lines.select("shape").unique()
    named = {(timers[i].group, timers[i].timer): regex for i, regex in regexes.items()}
    found = []
    for i, regex in regexes.items():
        group, beside = timers[i].group, timers[i].beside
        has = pl.col("shape").str.contains(regex)
        if beside is not None:
            has &= pl.col("shape").str.contains(named[group, beside])
        having = shapes.filter(has)
        if having.is_empty():
            continue
        printed = pl.col("text").str.extract(regex).cast(pl.Float64, strict=False)
        found.append(
            lines.join(having, on="shape", how="semi", maintain_order="left")
            .with_columns(timer=pl.lit(i, pl.Int64), seconds=printed * timers[i].factor)
            .drop("text", "shape")
        )
    return found


def _with_steps(
    printed: pl.DataFrame, steps: pl.DataFrame, timers: tuple[Timer, ...]
) -> pl.DataFrame:
    """Add the step of each print: of the next step line, or of the line before.

    A timer printed after the line of its step is of that step only the first time.
    """
    lines = steps.select("run_id", "line", "step").sort("line")
    printed = printed.sort("line", maintain_order=True)
    later = printed.join_asof(
        lines, on="line", by="run_id", strategy="forward", check_sortedness=False
    )
    before = printed.join_asof(
        lines, on="line", by="run_id", allow_exact_matches=False, check_sortedness=False
    )
    first = pl.struct(later["run_id"], later["timer"], before["step"]).is_first_distinct()
    after_step = [i for i, timer in enumerate(timers) if timer.after_step]
    own = pl.col("timer").is_in(after_step) & first & pl.col("before").is_not_null()
    return (
        later.with_columns(before=before["step"])
        .with_columns(step=pl.when(own).then("before").otherwise("step"))
        .select("run_id", "line", "step", "timer", "seconds")
        .drop_nulls("step")
    )


def _measured(printed: pl.DataFrame, timers: tuple[Timer, ...]) -> pl.DataFrame:
    """Drop lines whose timers were not running or failed.

    Such a line has a negative time, or 0 for forward or backward.
    """
    compute = [i for i, timer in enumerate(timers) if timer.phase in COMPUTE_PHASES]
    seconds = pl.col("seconds")
    bad = seconds.is_null() | (seconds < 0) | (pl.col("timer").is_in(compute) & (seconds == 0))
    return printed.filter(~bad.any().over("run_id", "line"))
