"""What the regexes of a format read of one line, whatever was read before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class StepReading(NamedTuple):
    """What the regexes read of a step line.

    form: its StepLine; printed: the names of its fields; row: all that it says.
    """

    form: Any
    printed: frozenset[str]
    row: dict[str, Any]


class UnmatchedReading(NamedTuple):
    """A line that no pattern knows; kind: as what it is counted."""

    kind: str


class EventReading(NamedTuple):
    """A line that says an event, and nothing of the lines around it.

    row: of the event, but for its line and text; companion: whether it is a step of a companion.
    """

    row: dict[str, Any]
    companion: bool

    @property
    def form(self) -> bool:
        """What makes it another one than those of the same columns."""
        return self.companion

    @property
    def printed(self) -> frozenset[str]:
        """The row says it."""
        return frozenset()


class KnownReading(NamedTuple):
    """A line that is known, and states nothing."""


RowReading = StepReading | EventReading
"""What can be read of many lines at once."""
LineReading = RowReading | KnownReading | UnmatchedReading | None
"""None where the line is none of them, or where what it is depends on those before it."""
ReadLine = Callable[[bytes], LineReading]
