"""Who reads the files of an ingest, and computes metrics: words that engines share.

    ingest.workers.local_engine      processes of this machine; what they read comes back to the one
    that began ingest.workers.ray_engine    Ray, on any number of machines; they write parts, and
    only tell of them

Whoever ingests asks for each file in its order, and gets what it would have read itself: an engine
only sees to it that it has been read by then. All that decides what is stored is decided there, so
that a store is the same whoever has read its logs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, Self, TypeVar

from ..core.spill import LogTables, Spool
from ..decode.line_reader import Chunk
from ..detect.detection import Tried
from ..facts.facts import Fact
from ..parse.format_watch import Watch
from ..parse.parser import Parser
from ..store.local_backend import Shelf
from ..vector.block_plan import Plan, plan_by
from .discovery import PACKED, Found
from .table_batches import Group, Log

EXPANDED: Final = 10
"""Times that a compressed log grows."""

BLOCKS_AHEAD: Final = 2
"""Blocks of a file that wait for each other process; with so many waiting the next is planned
here."""
MOST_BLOCKS: Final = 2 * BLOCKS_AHEAD
"""The same, counting blocks that are planned and not yet in their turn."""

Given = tuple[Path, Sequence[Fact]]
"""A file with the facts that its path gives."""
Names = tuple[Watch | None, str, tuple[str, ...], bool]
"""What is watched for in a file, the names of its format and its companions, and `quoting`."""
State = tuple[tuple[Fact, ...], Tried]
"""What holds for all files: facts that hold before all, and the formats that they may have."""


class Reading(Protocol):
    """The files of one ingest, read before their turn; a context that lets go of who reads."""

    def __enter__(self) -> object: ...

    def __exit__(self, *_: object) -> None: ...

    def before(
        self, files: Iterable[Found], offer: Callable[[Found], Given | None]
    ) -> Iterator[Found]:
        """The files in their order, some time after they were offered; offer: None to leave one."""

    def take(self, found: Found, facts: Sequence[Fact]) -> LogTables | None:
        """What a file holds; None where it was not read. Raises FairmfuError, OSError."""

    def forget(self, found: Found) -> None:
        """The file had its turn: nothing of it need be kept."""

    def planned(
        self, found: Found, parser: Parser, chunks: Iterable[Chunk]
    ) -> Iterator[tuple[Chunk, Plan | None]]:
        """The chunks of a file that is read here, each with its plan if another process made it."""

    @property
    def between(self) -> bool:
        """Whether what was taken may be stored now, and what is left of it be read by itself."""


Piece = TypeVar("Piece")
Done = TypeVar("Done")


class Engine(Protocol):
    """Begins to read, and has pieces of work done."""

    def reading(self, state: State, shelf: Shelf, spool: Spool, /) -> Reading:
        """For one ingest. shelf: of the store; spool: where rows wait that were read."""

    def each(self, work: Callable[[Piece], Done], pieces: Sequence[Piece], /) -> Iterable[Done]:
        """What comes of each piece, in their order. work: it and its pieces can be pickled.

        Raises what the work raises.
        """


@dataclass(frozen=True, slots=True)
class Read:
    """What became of the files of a task: by their places the errors; all others are the group."""

    group: Group
    errors: Mapping[int, Exception]

    @classmethod
    def of(
        cls, found: Sequence[Log | Exception], grouped: Callable[[Sequence[Log]], Group]
    ) -> Self:
        """What was found in each, and how those that could be read become a group."""
        errors = {place: one for place, one in enumerate(found) if isinstance(one, Exception)}
        return cls(grouped([one for one in found if not isinstance(one, Exception)]), errors)

    def each(self, spool: Spool) -> list[LogTables | Exception]:
        """What each of them holds, or why it could not be read."""
        logs = iter(self.group.logs(spool))
        count = len(self.group.heights) + len(self.errors)
        return [self.errors.get(place) or next(logs) for place in range(count)]


def size_of(found: Found) -> int:
    """How large a file is when it is read, compressed ones expanded, as an estimate [bytes]."""
    return found.size * (EXPANDED if found.path.endswith(PACKED) else 1)


# -- blocks of a large file ------------------------------------------------------------------


class Coming(Protocol):
    """A plan that another process makes."""

    def done(self) -> bool:
        """Whether nobody has to be waited for."""

    def result(self) -> Plan | None:
        """The plan; None where its process was lost."""


def in_turn(
    parser: Parser,
    chunks: Iterable[Chunk],
    submit: Callable[[Chunk], Coming | None],
    others: int,
) -> Iterator[tuple[Chunk, Plan | None]]:
    """Chunks in their order, each with its plan if one was made before its turn.

    submit: has another process plan it, or None; others: so many of these are there. Where all have
    enough to do, it is planned here.
    """
    waiting = deque[tuple[Chunk, Coming | Plan | None]]()
    for chunk in chunks:
        busy = sum(not _there(plan) for _, plan in waiting)
        here = chunk.is_whole and busy and busy >= BLOCKS_AHEAD * others
        plan = plan_by(parser, chunk) if here else submit(chunk) if chunk.is_whole else None
        waiting.append((chunk, plan))
        while waiting and (_there(waiting[0][1]) or len(waiting) > MOST_BLOCKS * others):
            yield _planned(*waiting.popleft())
    for chunk, plan in waiting:
        yield _planned(chunk, plan)


def parser_of(names: Names, tried: Tried) -> Parser:
    """A parser for blocks of files of these formats."""
    formats = {one.name: one for one in tried.formats}
    watch, primary, companions, quoting = names
    also = [formats[name] for name in companions]
    return Parser(formats[primary], also, watch=watch, quoting=quoting)


def names_of(parser: Parser) -> Names:
    """What `parser_of` makes a like parser by, in another process."""
    companions = tuple(f.name for f in parser.companions)
    return parser.patterns.watch, parser.primary.name, companions, parser.quoting


def _there(plan: Coming | Plan | None) -> bool:
    """Whether nobody has to be waited for."""
    return plan is None or isinstance(plan, Plan) or plan.done()


def _planned(chunk: Chunk, plan: Coming | Plan | None) -> tuple[Chunk, Plan | None]:
    """The chunk with its plan."""
    return chunk, plan if plan is None or isinstance(plan, Plan) else plan.result()
