"""What the regexes of a format read of one line, whatever was read before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple


class Step(NamedTuple):
    """What the regexes read of a step line.

    form: its StepLine; printed: the names of its fields; row: all that it says.
    """

    form: Any
    printed: frozenset[str]
    row: dict[str, Any]


class Other(NamedTuple):
    """A line that no pattern knows; kind: as what it is counted."""

    kind: str


class Aside(NamedTuple):
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


class Idle(NamedTuple):
    """A line that is known, and states nothing."""


Row = Step | Aside
"""What can be read of many lines at once."""
Reading = Row | Idle | Other | None
"""None where the line is none of them, or where what it is depends on those before it."""
Read = Callable[[bytes], Reading]
