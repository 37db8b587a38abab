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
from ..core.run_words import COMPUTE_PHASES

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
        return rf'"{key}": "?(-?[0-9.]+(?:[eE][-+]?[0-9]+)?)"?[,}}]'


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
        printed = _printed(tables, runs["run_id"], timers)
        if printed.is_empty():
            continue
        by_step = (
            printed.with_columns(run_id=pl.col("run_id").replace(lead_of))
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
    tables: Mapping[str, pl.DataFrame], run_ids: pl.Series, timers: tuple[Timer, ...]
) -> pl.DataFrame:
    """Return run_id, line, step, timer (its index) and seconds of every print.

    A run's later groups of timers are not read if an earlier one times computation.
    """
    ids = pl.col("run_id").is_in(run_ids.implode())
    steps, texts, keys = _lines(tables, ids)
    frames: list[pl.DataFrame] = []
    for group in dict.fromkeys(timer.group for timer in timers):
        members = {i: timer for i, timer in enumerate(timers) if timer.group == group}
        of_keys = {i: timer.key_regex for i, timer in members.items()}
        of_texts = {i: timer.text for i, timer in members.items() if timer.text is not None}
        only_keys = {i: regex for i, regex in of_keys.items() if i not in of_texts}
        lines = [*_values(texts, of_texts, timers), *_values(keys, only_keys, timers)]
        found = _values(steps, of_keys, timers)
        if lines:
            found.append(_with_steps(pl.concat(lines), tables["steps"].filter(ids), timers))
        if not found:
            continue
        frames.append(_measured(pl.concat(found), timers))
        compute = [i for i, timer in members.items() if timer.phase in COMPUTE_PHASES]
        done = frames[-1].filter(pl.col("timer").is_in(compute))["run_id"].unique()
        others = ~pl.col("run_id").is_in(done.implode())
        steps, texts, keys = (part.filter(others) for part in (steps, texts, keys))
    return pl.concat(frames) if frames else pl.DataFrame()


def _lines(
    tables: Mapping[str, pl.DataFrame], ids: pl.Expr
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return the fields of step lines, the texts of `timers` events, and their fields.

    Columns are run_id, line, text, the text's `shape` without digits, and step for step lines.
    """
    steps = tables["steps"].filter(ids, pl.col("extra").is_not_null())
    events = tables["events"].filter(ids, pl.col("kind") == "timers")
    text = pl.col("text")
    whole = pl.when(text.str.len_chars() < MAX_EVENT_TEXT).then(text + " ").otherwise(text)
    shape = text.str.replace_all(r"[0-9][0-9.]*", "0").cast(pl.Categorical)
    return (
        steps.select("run_id", "line", "step", text="extra").with_columns(shape=shape),
        events.select("run_id", "line", text=whole).with_columns(shape=shape),
        events.select("run_id", "line", text="extra").drop_nulls().with_columns(shape=shape),
    )


def _values(
    lines: pl.DataFrame, regexes: Mapping[int, str], timers: tuple[Timer, ...]
) -> list[pl.DataFrame]:
    """Return the values of the timers in some lines, a frame per timer.

    Columns are those of lines without text and shape, with timer and seconds. Lines that are equal
    but for their digits are searched once. regexes: by index of the timer
    """
    if lines.is_empty() or not regexes:
        return []
    shapes = lines.select("shape").unique().with_columns(text=pl.col("shape").cast(pl.String))
    named = {timers[i].timer: regex for i, regex in regexes.items()}
    found = []
    for i, regex in regexes.items():
        beside = timers[i].beside
        has = pl.col("text").str.contains(regex)
        if beside is not None:
            has &= pl.col("text").str.contains(named[beside])
        having = shapes.filter(has)["shape"]
        if having.is_empty():
            continue
        printed = pl.col("text").str.extract(regex).cast(pl.Float64, strict=False)
        found.append(
            lines.filter(pl.col("shape").is_in(having.implode()))
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
