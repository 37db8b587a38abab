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
from ..detect.detection import FormatChoice
from ..formats.launch_view import Fact
from ..parse.line_matcher import line_matcher
from ..store.local_backend import StoreBackend
from ..vector.block_plan import BlockPlan, BlockPlanner
from ..vector.format_watch import FormatWatch
from .discovery import COMPRESSED_SUFFIXES, LogFile
from .table_batches import LogGroup, LogRows

EXPANSION_FACTOR: Final = 10
"""Times that a compressed log grows."""

BLOCKS_AHEAD_PER_PROCESS: Final = 2
"""Blocks of a file that wait for each other process; with so many waiting the next is planned
here."""
MAX_BLOCKS_PER_PROCESS: Final = 2 * BLOCKS_AHEAD_PER_PROCESS
"""The same, counting blocks that are planned and not yet in their turn."""

ReadRequest = tuple[Path, Sequence[Fact]]
"""A file with the facts that its path gives."""
PlannerKey = tuple[FormatWatch | None, str, tuple[str, ...], bool]
"""What is watched for in a file, the names of its format and its companions, and `keep_texts`."""
ReadOptions = tuple[tuple[Fact, ...], FormatChoice]
"""What holds for all files: facts that hold before all, and the formats that they may have."""


class ReadSession(Protocol):
    """The files of one ingest, read before their turn; a context that lets go of who reads."""

    def __enter__(self) -> object: ...

    def __exit__(self, *_: object) -> None: ...

    def before(
        self, files: Iterable[LogFile], make_request: Callable[[LogFile], ReadRequest | None]
    ) -> Iterator[LogFile]:
        """Yield the files in their order, some time after they were offered.

        make_request: returns None to leave a file alone.
        """

    def take(self, log_file: LogFile, facts: Sequence[Fact]) -> LogTables | None:
        """What a file holds; None where it was not read. Raises FairmfuError, OSError."""

    def forget(self, log_file: LogFile) -> None:
        """The file had its turn: nothing of it need be kept."""

    def planned(
        self, log_file: LogFile, planner: BlockPlanner, chunks: Iterable[Chunk]
    ) -> Iterator[tuple[Chunk, BlockPlan | None]]:
        """The chunks of a file that is read here, each with its plan if another process made it."""

    @property
    def can_store_now(self) -> bool:
        """Whether what was taken may be stored now, and what is left of it be read by itself."""


WorkItem = TypeVar("WorkItem")
WorkResult = TypeVar("WorkResult")


class ReadEngine(Protocol):
    """Begins to read, and has pieces of work done."""

    def reading(self, options: ReadOptions, backend: StoreBackend, spool: Spool, /) -> ReadSession:
        """For one ingest. shelf: of the store; spool: where rows wait that were read."""

    def each(
        self, work: Callable[[WorkItem], WorkResult], items: Sequence[WorkItem], /
    ) -> Iterable[WorkResult]:
        """What comes of each piece, in their order. work: it and its pieces can be pickled.

        Raises what the work raises.
        """


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What became of the files of a task: by their places the errors; all others are the group."""

    group: LogGroup
    errors: Mapping[int, Exception]

    @classmethod
    def of(
        cls,
        outcomes: Sequence[LogRows | Exception],
        make_group: Callable[[Sequence[LogRows]], LogGroup],
    ) -> Self:
        """What was found in each, and how those that could be read become a group."""
        errors = {place: one for place, one in enumerate(outcomes) if isinstance(one, Exception)}
        return cls(make_group([one for one in outcomes if not isinstance(one, Exception)]), errors)

    def each(self, spool: Spool) -> list[LogTables | Exception]:
        """What each of them holds, or why it could not be read."""
        logs = iter(self.group.logs(spool))
        count = len(self.group.heights) + len(self.errors)
        return [self.errors.get(place) or next(logs) for place in range(count)]


def expanded_size(log_file: LogFile) -> int:
    """How large a file is when it is read, compressed ones expanded, as an estimate [bytes]."""
    return log_file.size * (EXPANSION_FACTOR if log_file.path.endswith(COMPRESSED_SUFFIXES) else 1)


# -- blocks of a large file ------------------------------------------------------------------


class PendingPlan(Protocol):
    """A plan that another process makes."""

    def done(self) -> bool:
        """Whether nobody has to be waited for."""

    def result(self) -> BlockPlan | None:
        """The plan; None where its process was lost."""


def chunks_with_plans(
    planner: BlockPlanner,
    chunks: Iterable[Chunk],
    submit: Callable[[Chunk], PendingPlan | None],
    process_count: int,
) -> Iterator[tuple[Chunk, BlockPlan | None]]:
    """Chunks in their order, each with its plan if one was made before its turn.

    submit: has another process plan it, or None; process_count: so many of these are there. Where
    all have enough to do, it is planned here.
    """
    waiting = deque[tuple[Chunk, PendingPlan | BlockPlan | None]]()
    for chunk in chunks:
        busy = sum(not _there(plan) for _, plan in waiting)
        here = chunk.is_whole and busy and busy >= BLOCKS_AHEAD_PER_PROCESS * process_count
        plan = planner.plan_chunk(chunk) if here else submit(chunk) if chunk.is_whole else None
        waiting.append((chunk, plan))
        while waiting and (
            _there(waiting[0][1]) or len(waiting) > MAX_BLOCKS_PER_PROCESS * process_count
        ):
            yield _planned(*waiting.popleft())
    for chunk, plan in waiting:
        yield _planned(chunk, plan)


def planner_key(planner: BlockPlanner) -> PlannerKey:
    """Return by what `make_planner` makes a like planner in another process."""
    matcher = planner.matcher
    companions = tuple(f.name for f in matcher.companions)
    return planner.watch, matcher.primary.name, companions, planner.keep_texts


def make_planner(key: PlannerKey, format_choice: FormatChoice) -> BlockPlanner:
    """Return a planner for blocks of files of these formats."""
    formats = {one.name: one for one in format_choice.formats}
    watch, primary, companions, keep_texts = key
    matcher = line_matcher(formats[primary], tuple(formats[name] for name in companions))
    return BlockPlanner(matcher, watch, keep_texts=keep_texts)


def _there(plan: PendingPlan | BlockPlan | None) -> bool:
    """Whether nobody has to be waited for."""
    return plan is None or isinstance(plan, BlockPlan) or plan.done()


def _planned(chunk: Chunk, plan: PendingPlan | BlockPlan | None) -> tuple[Chunk, BlockPlan | None]:
    """The chunk with its plan."""
    return chunk, plan if plan is None or isinstance(plan, BlockPlan) else plan.result()
