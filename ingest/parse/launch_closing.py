"""Conclusions from a complete launch: steps of counters, units, corrections.

A launch is closed when the next launch begins, or the log ends. Inferred values become facts with
their reason, or warnings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import chain, takewhile
from typing import Any, Final

import polars as pl

from ..core.numbers import parse_integer, parse_optional
from ..formats.spec import LogFormat
from ..launches.elapsed_refinement import CLOCK_COLUMNS, is_finer, refine_elapsed
from ..launches.launch import Launch
from ..launches.micro_steps import find_unstated_micro_steps
from ..launches.step_alignment import (
    align_steps,
    has_only_counted_steps,
    has_only_unprinted_steps,
    place_counted_rows,
    steps_before_first_line,
    steps_between_lines,
    steps_between_lines_by_epochs,
)
from .line_matcher import event_row, fact_row


class MissingTextsError(Exception):
    """Missing texts of rows that became events: read the source again, with texts."""


class LaunchCloser:
    """Closer of the launches of a source, by the rules of the formats."""

    def __init__(
        self, primary: LogFormat, companions: Sequence[LogFormat], *, keep_texts: bool
    ) -> None:
        """Store the formats.

        keep_texts: True if rows that may become events have their texts
        """
        self._primary, self._keep_texts = primary, keep_texts
        self._formats = (primary, *companions)

    def close(self, launch: Launch) -> int:
        """Settle a launch, and return the number of rows that became events.

        Raises MissingTextsError.
        """
        batch_is_known = self._finish_by_formats(launch)
        moved = self._place_rows(launch, batch_is_known=batch_is_known)
        self._correct_misprints(launch)
        launch.events.settle()
        launch.started_at = _first_stamp(launch)
        launch.rows.settle()
        return moved

    def _finish_by_formats(self, launch: Launch) -> bool:
        """Apply the formats' own conclusions; return whether the batch size is known."""
        is_known = True
        for finish in {f.finish: None for f in self._formats if f.finish}:
            conclusions = finish(launch)
            if conclusions.unsure is not None:
                is_known = False
                _state_batch_unknown(launch, conclusions.unsure)
            if conclusions.factors is not None:
                _correct(launch, conclusions.factors, conclusions.why)
        return is_known

    def _place_rows(self, launch: Launch, *, batch_is_known: bool) -> int:
        """Convert the rows to training steps; return the number of rows without a step.

        Rows without a step become events.
        """
        accumulation = parse_optional(parse_integer, launch.last_value("gradient_accumulation"))
        launch.forget()
        clock = self._primary.finer_clock
        if clock is not None and is_finer(clock, launch.rows.frames(*CLOCK_COLUMNS)):
            launch.rows.transform(partial(refine_elapsed, clock))
        moved = 0
        if any(form.counts for form in launch.rows.forms()):
            if batch_is_known:
                _regroup_micro_steps(launch, stops_once=self._stops_timer_once(launch))
            aligned = align_steps(launch.rows, accumulation or 0)
            launch.rows, launch.step_unit = aligned.rows, aligned.step_unit
            moved = self._keep_as_events(launch, aligned.unplaced)
        launch.rows = place_counted_rows(launch.rows, launch.interval) or launch.rows
        if not _space_counted_rows(launch):
            _place_first_counted_row(launch)
        return moved

    def _stops_timer_once(self, launch: Launch) -> bool:
        """Return whether the trainer stops the engine's timer once a step."""
        names = (name for f in self._formats for name in f.timer_stopped_once_with)
        return any(launch.last_value(name) is not None for name in names)

    def _keep_as_events(self, launch: Launch, rows: Sequence[Mapping[str, Any]]) -> int:
        """Make events of rows whose step cannot be known; return their number.

        Raises MissingTextsError.
        """
        if not self._keep_texts and any(row.get("text") is None for row in rows):
            raise MissingTextsError
        for row in rows:
            launch.events.append(_timer_event(row))
        return len(rows)

    def _correct_misprints(self, launch: Launch) -> None:
        """Correct columns misprinted by certain versions of the framework."""
        version = launch.last_value("framework_version") or ""
        for misprint in self._primary.misprints:
            if launch.rows and re.match(misprint.versions, version):
                _correct(launch, misprint.factors, misprint.why)


def _space_counted_rows(launch: Launch) -> bool:
    """Multiply the steps of rows counted line by line, where the interval is known.

    Return whether it is: the epochs then grow from the start, so no step is missing before.
    """
    if (steps := steps_between_lines(launch.rows, launch.events.of_kinds(["end"]))) is not None:
        _stretch(launch, steps, "the steps at the end over the lines that were printed")
        return True
    if (steps := _steps_by_epochs(launch)) is not None:
        _stretch(launch, steps, "the epochs, in steps of the data set, over the lines")
        return True
    if has_only_counted_steps(launch.rows):
        _state_steps_counted(launch)
    return False


def _steps_by_epochs(launch: Launch) -> int | None:
    names = ("total_samples", "global_batch_size")
    samples, batch = (parse_optional(parse_integer, launch.last_value(name)) for name in names)
    if not samples or not batch:
        return None
    return steps_between_lines_by_epochs(launch.rows, samples, batch)


def _stretch(launch: Launch, steps: int, known_by: str) -> None:
    """Multiply the steps of counted rows by the interval, and state the interval."""
    launch.rows.transform(partial(_times_all, {"step": steps}))
    line = launch.rows[-1]["line"]
    why = f"inferred: {known_by} (log:{line})"
    launch.facts.append(fact_row(line, "log_interval", str(steps), why, launch.last_step_text))


def _state_steps_counted(launch: Launch) -> None:
    line = launch.rows[0]["line"]
    why = f"inferred: no step line prints its step, and nothing else proves it (log:{line})"
    launch.facts.append(fact_row(line, "steps_counted", "true", why, launch.first_step_text))


def _place_first_counted_row(launch: Launch) -> None:
    """Add the steps before the first counted row, or state that they are unknown."""
    if not has_only_unprinted_steps(launch.rows):
        return
    before = steps_before_first_line(launch.rows)
    if before is not None and before > 0:
        launch.rows.transform(partial(_add_steps, before))
    elif before is None and not _shows_start(launch):
        line = launch.rows[0]["line"]
        why = (
            f"inferred: no step line prints its step, and no start precedes the first (log:{line})"
        )
        launch.facts.append(fact_row(line, "start_missing", "true", why, launch.first_step_text))


def _shows_start(launch: Launch) -> bool:
    """Return whether lines before the first step belong to the start of a process."""
    first = launch.rows.first_line or 0
    facts = any(fact["line"] is not None and fact["line"] < first for fact in launch.stated)
    events = launch.events.of_kinds(STARTING_EVENT_KINDS)
    return launch.begun or facts or any(event["line"] < first for event in events)


STARTING_EVENT_KINDS: Final = ("setup", "engine_start", "train_start", "restart")
"""Events of the start of a process."""


def _add_steps(steps: int, frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col("step") + steps) if "step" in frame.columns else frame


def _state_batch_unknown(launch: Launch, unsure: str) -> None:
    line = next(f["line"] for f in reversed(launch.stated) if f["name"] == "global_batch_size")
    why = f"inferred: configurations before its steps (log:{line})"
    launch.facts.append(fact_row(line, "batch_changes", unsure, why, ""))


def _regroup_micro_steps(launch: Launch, *, stops_once: bool) -> None:
    """Correct consumed samples where the timer shows other micro-steps than stated."""
    stated = (f["value"] for f in launch.stated if f["name"] == "gradient_accumulation")
    counts = [n for value in stated if (n := parse_optional(parse_integer, value))]
    batch = parse_optional(parse_integer, launch.last_value("global_batch_size")) or 0
    found = find_unstated_micro_steps(launch.rows, counts, timer_stops_once=stops_once)
    if found is None:
        return
    change = found.make_correction(batch)
    if change is not None:
        launch.rows.transform(change)
    why = f"inferred: its micro-steps over its steps (log:{found.line})"
    launch.facts.append(fact_row(found.line, "batch_changes", found.text, why, ""))


def _correct(launch: Launch, factors: Mapping[str, float], why: str) -> None:
    """Multiply columns of all rows, and add a warning."""
    launch.rows.transform(partial(_times_all, factors))
    line = launch.rows[0]["line"]
    launch.events.append(event_row(line, "warning", why, {}))


def _times_all(factors: Mapping[str, float], frame: pl.DataFrame) -> pl.DataFrame:
    present = {name: factor for name, factor in factors.items() if name in frame.columns}
    return frame.with_columns(pl.col(name) * factor for name, factor in present.items())


def _timer_event(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return an event for a counter's line whose training step is unknown."""
    fields = {"count": row["step"], **json.loads(row["extra"] or "{}")}
    if row.get("logged_samples_per_second") is not None:
        fields["samples_per_second"] = row["logged_samples_per_second"]
    return event_row(row["line"], "timers", row["text"], fields) | {"logged_at": row["logged_at"]}


def _first_stamp(launch: Launch) -> datetime | None:
    """Return the first stamp of a launch, in line order."""
    first = launch.rows.first_line
    early = takewhile(lambda event: first is None or event["line"] < first, launch.events)
    stamps = chain([launch.first_stamp], (e["logged_at"] for e in early), [launch.started_at])
    return next((stamp for stamp in stamps if stamp is not None), None)
