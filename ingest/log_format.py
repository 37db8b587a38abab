"""The vocabulary of a log format: frozen data, no code but what lines cannot say.

A format says how its lines look, which schema column or fact each printed value is, in which
unit, and which statement of the framework prints it. `ingest.parse` does the reading.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

GIB: Final = 1024.0**3
MIB: Final = 1024.0**2
PERCENT: Final = 0.01
MS: Final = 0.001

Target = str | tuple[str, float]
"""A schema column, or (column, factor to the column's unit)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLine:
    """A line that reports a training step.

    `anchor` is a literal of every such line. Named groups of `regex` are keys of `columns`; the
    group `pairs`, where there is one, is cut into further keys and values by `pair`. With
    `may_continue` the rest may stand on the next line (wrapped by a mailer or a split flush).
    """

    anchor: str
    regex: str
    columns: Mapping[str, Target]
    example: str
    printed_by: str
    pair: str | None = None
    may_continue: bool = False
    composed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FactLine:
    """A line that states facts: named groups are facts, `constants` hold when it is there.

    With `inferred` the line does not say the fact itself; the text says why it follows.
    """

    anchor: str
    regex: str
    example: str
    printed_by: str
    constants: Mapping[str, str] = field(default_factory=dict)
    factors: Mapping[str, float] = field(default_factory=dict)
    read: Callable[[Mapping[str, str]], Mapping[str, str]] | None = None
    inferred: str | None = None
    composed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLine:
    """A line that marks an event; groups `step` and `seconds` are read where they match."""

    anchor: str
    regex: str
    kind: str
    example: str
    printed_by: str
    composed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Facts that stand on several lines, from a line with `start` to one that matches `end`.

    `read` gets the lines between them, cleaned, and gives facts; it never raises on bad text.
    """

    start: str
    end: str
    read: Callable[[Sequence[str]], Mapping[str, str]]
    example: Sequence[str]
    printed_by: str
    most_lines: int = 2000
    include_end: bool = False
    include_start: bool = False


Complete = Callable[[dict[str, Any], Mapping[str, str]], None]
"""Completes a row of `steps` in place, given all printed fields as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFormat:
    """One log format of one framework, over the versions that print it."""

    name: str
    framework: str
    versions: str
    signature: str
    steps: Sequence[StepLine]
    looks_like_step: str
    evidence: Sequence[str]
    facts: Sequence[FactLine] = ()
    implies: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # fact: (value, why)
    events: Sequence[EventLine] = ()
    blocks: Sequence[Block] = ()
    launch: str | None = None
    noise: str | None = None
    clock: str | None = None
    complete: Complete | None = None
    yields: bool = False  # a companion wherever another format is primary
    step_unit: str = "optimizer_step"
    elapsed_covers: str | None = None
    elapsed_excludes_data: bool = False
    rate_covers: str | None = None
    rate_excludes_data: bool = False
