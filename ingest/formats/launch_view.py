"""View of a launch for a format's functions: rows, events and facts.

The launch itself is in a room above (ingest.launches.launch). Functions of `LogFormat.finish` and
`LogFormat.infer_sizes` get these Protocols.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import polars as pl

from ..core.numbers import parse_size

Fact = dict[str, Any]
"""A row of `facts` without its run."""

MAX_BATCH_RATIO: Final = 1.5
"""Limit of the timer's batch, as a multiple of the configured one: the timer's rate excludes
waiting.
"""


class RowsView(Protocol):
    """Step rows in order."""

    def __len__(self) -> int:
        """Return the number of rows."""

    @property
    def first_line(self) -> int | None:
        """Line of the first row."""

    @property
    def last_line(self) -> int:
        """Last line of a row; 0 without rows."""

    def forms(self) -> list[Any]:
        """Return the StepLines of the rows."""

    def frames(self, *names: str) -> Iterator[pl.DataFrame]:
        """Yield these columns of all rows, in pieces."""

    def by_step(self, *names: str) -> Iterator[pl.DataFrame]:
        """Yield rows ordered by step, then line; a step is never split between frames."""


class EventsView(Protocol):
    """Events in the order of their lines."""

    def of_kinds(self, kinds: Collection[str], after_line: int = 0) -> Iterator[Mapping[str, Any]]:
        """Yield events of some kinds, on lines after `after_line`."""


class LaunchView(Protocol):
    """Single start of a training process; a function may change its facts in place."""

    facts: list[Fact]
    companion_facts: list[Fact]

    @property
    def rows(self) -> RowsView:
        """Steps of the launch."""

    @property
    def events(self) -> EventsView:
        """Events of the launch."""

    @property
    def stated(self) -> list[Fact]:
        """Facts of the primary format; a companion's facts fill gaps."""

    def last_value(self, name: str) -> str | None:
        """Return the last value of a fact so far."""

    def samples_per_step(self, accumulation: int) -> float | None:
        """Return the samples of a step by the engine's timer.

        accumulation: micro-steps of a step. None if unknown; at most MAX_BATCH_RATIO times the
        configured batch.
        """


class Finished(NamedTuple):
    """Result of a format's `finish` for a whole launch, whose facts may have changed.

    unsure: why the batch of a step is unknown. factors: convert columns of the rows to their unit;
    why: the reason for the factors, a sentence for the reader.
    """

    unsure: str | None = None
    factors: Mapping[str, float] | None = None
    why: str = ""


FinishLaunch = Callable[[LaunchView], Finished]
"""Settles facts that need the whole launch: which facts are right, and how rows count."""

InferSizes = Callable[[Sequence[LaunchView]], Sequence[Sequence[Fact]]]
"""Returns facts per launch that follow from its numbers; their origin begins with `inferred: `."""


def stated_size(launch: LaunchView, name: str) -> int | None:
    """Return the last value of a fact of a launch, if it is a size."""
    return parse_size(launch.last_value(name) or "")
