"""Context-free readings of a single line by the regexes of a format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class StepReading(NamedTuple):
    """Reading of a step line.

    form: its StepLine
    printed: the names of its fields
    row: all columns
    """

    form: Any
    printed: frozenset[str]
    row: dict[str, Any]


class UnmatchedReading(NamedTuple):
    """Line without a matching pattern. kind: for the count."""

    kind: str


class EventReading(NamedTuple):
    """Line with an event and no other statement.

    row: of the event, without line and text
    companion: True for a step of a companion
    """

    row: dict[str, Any]
    companion: bool

    @property
    def form(self) -> bool:
        """Key that separates events with the same columns: the companion flag."""
        return self.companion

    @property
    def printed(self) -> frozenset[str]:
        """Always empty: the row has all fields."""
        return frozenset()


class KnownReading(NamedTuple):
    """Known line without statements."""


RowReading = StepReading | EventReading
"""Readings available for many lines at once."""
LineReading = RowReading | KnownReading | UnmatchedReading | None
"""None for other lines, or if the reading depends on earlier lines."""
ReadLine = Callable[[bytes], LineReading]
