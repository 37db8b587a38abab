"""Interfaces of engines, which read files of an ingest and compute metrics.

    ingest.workers.local_engine    processes of this machine; rows return to the main process
    ingest.workers.ray_engine      Ray, on any number of machines; workers write parts and return
                                   only references

The ingest asks for files in order, and gets the same rows as from its own reading; an engine only
reads ahead. All decisions about stored rows are made by the ingest, so a store is the same for
every engine.
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
"""Estimated expansion of a compressed log."""

BLOCKS_AHEAD_PER_PROCESS: Final = 2
"""Waiting blocks per other process; beyond this, the main process plans the next block."""
MAX_BLOCKS_PER_PROCESS: Final = 2 * BLOCKS_AHEAD_PER_PROCESS
"""Waiting blocks per other process, including planned ones; beyond this, wait for the first."""

ReadRequest = tuple[Path, Sequence[Fact]]
"""File, and facts from its path."""
PlannerKey = tuple[FormatWatch | None, str, tuple[str, ...], bool]
"""Format watch, names of the format and its companions, and `keep_texts`."""
ReadOptions = tuple[tuple[Fact, ...], FormatChoice]
"""Options for all files: facts that override others, and the choice of formats."""


class ReadSession(Protocol):
    """Files of one ingest, read ahead; a context that releases the readers."""

    def __enter__(self) -> object: ...

    def __exit__(self, *_: object) -> None: ...

    def before(
        self, files: Iterable[LogFile], make_request: Callable[[LogFile], ReadRequest | None]
    ) -> Iterator[LogFile]:
        """Yield the files in order, some time after they were offered to the readers.

        make_request: returns None for a file not to be read.
        """

    def take(self, log_file: LogFile, facts: Sequence[Fact]) -> LogTables | None:
        """Return a file's tables, None if not read ahead. Raises FairmfuError, OSError."""

    def forget(self, log_file: LogFile) -> None:
        """Release everything read of a file whose turn is over."""

    def planned(
        self, log_file: LogFile, planner: BlockPlanner, chunks: Iterable[Chunk]
    ) -> Iterator[tuple[Chunk, BlockPlan | None]]:
        """Yield the chunks of a file read here, with plans made by other processes."""

    @property
    def can_store_now(self) -> bool:
        """True if the rows taken so far can be stored without splitting a task's parts."""


WorkItem = TypeVar("WorkItem")
WorkResult = TypeVar("WorkResult")


class ReadEngine(Protocol):
    """Starts reading ahead, and runs pieces of work."""

    def reading(self, options: ReadOptions, backend: StoreBackend, spool: Spool, /) -> ReadSession:
        """Return a session for one ingest.

        backend: of the store. spool: for rows that wait.
        """

    def each(
        self, work: Callable[[WorkItem], WorkResult], items: Sequence[WorkItem], /
    ) -> Iterable[WorkResult]:
        """Return the results of the items, in order; work and items must be picklable.

        Raises the exceptions of the work.
        """


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Result of a task: errors by file index, and the group of all other files."""

    group: LogGroup
    errors: Mapping[int, Exception]

    @classmethod
    def of(
        cls,
        outcomes: Sequence[LogRows | Exception],
        make_group: Callable[[Sequence[LogRows]], LogGroup],
    ) -> Self:
        """Return the result of files from rows or errors; make_group: groups the rows."""
        errors = {
            i: outcome for i, outcome in enumerate(outcomes) if isinstance(outcome, Exception)
        }
        logs = [outcome for outcome in outcomes if not isinstance(outcome, Exception)]
        return cls(make_group(logs), errors)

    def each(self, spool: Spool) -> list[LogTables | Exception]:
        """Return the tables or the error of every file."""
        logs = iter(self.group.logs(spool))
        count = len(self.group.heights) + len(self.errors)
        return [self.errors.get(index) or next(logs) for index in range(count)]


def expanded_size(log_file: LogFile) -> int:
    """Return the estimated size of a file after decompression [bytes]."""
    return log_file.size * (EXPANSION_FACTOR if log_file.path.endswith(COMPRESSED_SUFFIXES) else 1)


# -- blocks of a large file ------------------------------------------------------------------


class PendingPlan(Protocol):
    """Plan in the making by another process."""

    def done(self) -> bool:
        """Return whether the result is available without waiting."""

    def result(self) -> BlockPlan | None:
        """Return the plan, None if its process was lost."""


def chunks_with_plans(
    planner: BlockPlanner,
    chunks: Iterable[Chunk],
    submit: Callable[[Chunk], PendingPlan | None],
    process_count: int,
) -> Iterator[tuple[Chunk, BlockPlan | None]]:
    """Yield chunks in order, with their plan if made in time.

    submit: asks another process for the plan of a chunk; may return None.
    process_count: number of these processes. While all are busy, the next chunk is planned here.
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
    """Return the key for `make_planner` to make an equal planner elsewhere."""
    matcher = planner.matcher
    companions = tuple(f.name for f in matcher.companions)
    return planner.watch, matcher.primary.name, companions, planner.keep_texts


def make_planner(key: PlannerKey, format_choice: FormatChoice) -> BlockPlanner:
    """Return a planner for blocks of files of these formats."""
    formats = {log_format.name: log_format for log_format in format_choice.formats}
    watch, primary, companions, keep_texts = key
    matcher = line_matcher(formats[primary], tuple(formats[name] for name in companions))
    return BlockPlanner(matcher, watch, keep_texts=keep_texts)


def _there(plan: PendingPlan | BlockPlan | None) -> bool:
    """Return whether the plan is available without waiting."""
    return plan is None or isinstance(plan, BlockPlan) or plan.done()


def _planned(chunk: Chunk, plan: PendingPlan | BlockPlan | None) -> tuple[Chunk, BlockPlan | None]:
    """Return the chunk with its plan."""
    return chunk, plan if plan is None or isinstance(plan, BlockPlan) else plan.result()
