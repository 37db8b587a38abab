"""Start lines and failures of the open launch.

A start line after the end of a launch begins another launch. Frameworks print several start lines,
and errors may be caught. So a start line after an error begins a launch only if the same rank has
printed such a line before in the launch. After the report of a launcher, which waits for all of its
ranks, any start line begins a launch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import polars as pl

from .outcomes import FAILURE_EVENT_KINDS, LAUNCHER_KILL, LAUNCHER_SUMMARY
from .row_chunks import Row, RowBatch


class StartMark(NamedTuple):
    """Words of a start line, and the rank that printed them."""

    rank: str | None
    words: str


@dataclass(slots=True)
class StartWatch:
    """Start lines of the open launch, and how it ended since its last step.

    last_failure: line of the last failure, or of the end of a training without steps; 0 without
    """

    marks: set[StartMark] = field(default_factory=set)
    last_failure: int = 0
    _is_over: bool = False

    def note_events(self, events: RowBatch) -> None:
        """Note failures among events."""
        for event in _failures(events):
            self.last_failure = event["line"]
            self._is_over = self._is_over or _is_final(event)

    def note_end(self, number: int) -> None:
        """Note that training ended at a line, without a step."""
        self.last_failure, self._is_over = number, True

    def note_step(self) -> None:
        """Forget failures: training went on."""
        self.last_failure, self._is_over = 0, False

    def note_start(self, mark: StartMark) -> None:
        """Note a start line of the open launch.

        Errors before its first start line are of the job script, unless a launch is over.
        """
        if not (self.marks or self._is_over):
            self.last_failure = 0
        self.marks.add(mark)

    def is_other_launch(self, mark: StartMark) -> bool:
        """Return whether a start line belongs to another launch than the lines before."""
        return self._is_over or (self.last_failure > 0 and mark in self.marks)


def _failures(events: RowBatch) -> Iterator[Row]:
    if not isinstance(events, pl.DataFrame):
        return (event for event in events if event["kind"] in FAILURE_EVENT_KINDS)
    is_failure = events["kind"].is_in(FAILURE_EVENT_KINDS)
    return events.filter(is_failure).iter_rows(named=True) if is_failure.any() else iter(())


def _is_final(failure: Row) -> bool:
    """Return whether no rank goes on after a failure."""
    text = failure["text"]
    is_kill = failure["kind"] == "killed" and not LAUNCHER_KILL.search(text)
    return is_kill or LAUNCHER_SUMMARY.search(text) is not None
