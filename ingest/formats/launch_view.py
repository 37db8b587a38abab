"""What a format's functions see of a launch that is read: its rows, events and facts.

The launch itself is of a room above (ingest.launches.launch). Functions of `LogFormat.finish` and
`LogFormat.infer_sizes` get it as these Protocols.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import polars as pl

from ..core.numbers import parse_size

Fact = dict[str, Any]
"""A row of `facts` without its run."""

MAX_BATCH_RATIO: Final = 1.5
"""How many times the configured batch the timer's may seem: its rate leaves waiting out."""


class RowsView(Protocol):
    """Step rows in their order."""

    def __len__(self) -> int:
        """How many rows there are."""

    @property
    def first_line(self) -> int | None:
        """The line of the first row."""

    @property
    def last_line(self) -> int:
        """The last line of a row; 0 where there is none."""

    def forms(self) -> list[Any]:
        """The StepLines of the rows."""

    def frames(self, *names: str) -> Iterator[pl.DataFrame]:
        """These columns of all rows, in pieces."""

    def by_step(self, *names: str) -> Iterator[pl.DataFrame]:
        """Rows in the order of their steps, then of their lines; those of a step in one frame."""


class EventsView(Protocol):
    """Events in the order of their lines."""

    def of_kinds(self, kinds: Collection[str], after_line: int = 0) -> Iterator[Mapping[str, Any]]:
        """Events of some kinds, of lines behind `after_line`."""


class LaunchView(Protocol):
    """One start of a training process; its facts may be changed in place."""

    facts: list[Fact]
    companion_facts: list[Fact]

    @property
    def rows(self) -> RowsView:
        """Its steps."""

    @property
    def events(self) -> EventsView:
        """Its events."""

    @property
    def stated(self) -> list[Fact]:
        """Facts of the primary format; those of a companion only where it says nothing."""

    def last_value(self, name: str) -> str | None:
        """The value of a fact that holds so far."""

    def samples_per_step(self, accumulation: int) -> float | None:
        """Samples of a step by the engine's timer, where each step has so many micro-steps.

        None where it does not tell; else at most MAX_BATCH_RATIO times what was configured.
        """


class Finished(NamedTuple):
    """What a format's `finish` finds of a whole launch, whose facts it may have changed.

    unsure: why it is not known which batch a step had. factors: what brings columns of the rows to
    their unit; why: of these, a sentence for the reader.
    """

    unsure: str | None = None
    factors: Mapping[str, float] | None = None
    why: str = ""


FinishLaunch = Callable[[LaunchView], Finished]
"""Settles what only a whole launch tells: which of its facts hold, and how its rows count."""

InferSizes = Callable[[Sequence[LaunchView]], Sequence[Sequence[Fact]]]
"""For each launch the facts that follow from its numbers; their origin begins with `inferred: `."""


def stated_size(launch: LaunchView, name: str) -> int | None:
    """The last value of a fact of a launch, where it is a size."""
    return parse_size(launch.last_value(name) or "")
