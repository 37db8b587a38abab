"""Engine of local processes that read small files and plan large ones ahead.

A process returns all rows of a file, so large files are not given to processes; processes plan
their blocks (ingest.vector.block_plan). Small files are read in groups, faster even in a single
process.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import count
from multiprocessing import get_context, parent_process
from typing import Any, Final, Generic, Self, TypeVar

from ..core.errors import FairmfuError
from ..core.spill import LogTables, Spool
from ..decode.line_reader import Chunk
from ..extract.discovery import LogFile
from ..extract.engine_api import (
    PlannerKey,
    ReadOptions,
    ReadRequest,
    TaskResult,
    WorkItem,
    WorkResult,
    chunks_with_plans,
    expanded_size,
    make_planner,
    planner_key,
)
from ..extract.log_tables import MAX_SMALL_BYTES, read_log_files
from ..extract.table_batches import LogGroup, LogRows
from ..formats.launch_view import Fact
from ..store.local_backend import StoreBackend
from ..vector.block_parser import without_plans
from ..vector.block_plan import BlockPlan, BlockPlanner
from .shared_memory import SharedSlots

MAX_FILE_BYTES: Final = 32 * 1024 * 1024
"""Size limit of files read ahead [bytes]."""
MAX_LOCAL_TASK_BYTES: Final = 8 * 1024 * 1024
MAX_LOCAL_TASK_FILES: Final = 128
"""Limits of one task of small files: bytes and files."""
TASKS_AHEAD_PER_PROCESS: Final = 2
"""Waiting tasks per other process; the main process reads the remaining tasks."""
AHEAD_BYTES_PER_PROCESS: Final = 32 * 1024 * 1024
"""Limit of file bytes read ahead, per process including the main one."""
MAX_WAITING_FILES: Final = 1_000
"""Limit of files discovered ahead of their turn."""
MIN_BYTES_FOR_PROCESSES: Final = 96 * 1024 * 1024
"""Bytes to read before other processes are started. A start costs a second of processor time, and
one process reads this many bytes in three: fewer bytes save less time than the start costs.
"""

MIN_FILE_BYTES_TO_PLAN: Final = 128 * 1024 * 1024
"""Size of a single file before other processes are started to plan its blocks [bytes]."""

CORES_OF_INGEST: Final = 2
"""Cores kept busy by the ingest of a large file: mostly one, plus the threads for reading ahead and
writing. On a machine without more cores, another planning process slows the ingest down.
"""

POLARS_THREADS_VARIABLE: Final = "POLARS_MAX_THREADS"

MAX_DEFAULT_PROCESSES: Final = 8
"""Default limit of processes: others use the machine too."""


@dataclass(slots=True, eq=False)
class _Task:
    """Files that one process reads in order."""

    files: list[ReadRequest] = field(default_factory=list)
    bytes: int = 0
    result: Future[TaskResult] | _Handed[TaskResult] | None = None
    read: list[LogTables | Exception] | None = None


def default_process_count() -> int:
    """Return the default number of reader processes: one per core, within a limit."""
    return min(_cores(), MAX_DEFAULT_PROCESSES)


def _cores() -> int:
    """Return the number of cores available to this process."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return cores or 1


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Engine of `count` processes on this machine, including the current process.

    Others are started with multiprocessing's `spawn`, so a calling script needs
    `if __name__ == "__main__"`.
    """

    count: int = 1

    def reading(self, options: ReadOptions, _: StoreBackend, spool: Spool) -> LocalSession:
        """Return a session for one ingest."""
        return LocalSession(self.count, options, spool)

    def each(
        self, work: Callable[[WorkItem], WorkResult], items: Sequence[WorkItem]
    ) -> Iterable[WorkResult]:
        """Do the work in this process, item by item: Polars keeps all cores busy."""
        return map(work, items)


class LocalSession:
    """Reader of offered files; a context that shuts down the processes."""

    can_store_now = True

    def __init__(self, processes: int, options: ReadOptions, spool: Spool | None = None) -> None:
        """Prepare a session; start no process yet.

        processes: number of readers, including this process. spool: for rows that wait.
        """
        self._others = processes - 1
        self._spool = spool or Spool()
        self._state = options
        self._pool: ProcessPoolExecutor | None = None
        self._gathered = _Task()
        self._left = deque[_Task]()
        self._offered: dict[str, tuple[_Task, int]] = {}
        self._total = self._waiting = 0
        self._ready = Future[int]()
        self._given: list[_Handed[TaskResult] | Future[TaskResult]] = []
        self._lent: dict[int, Future[int | bytes]] = {}
        self._owed = set[int]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def before(
        self, files: Iterable[LogFile], make_request: Callable[[LogFile], ReadRequest | None]
    ) -> Iterator[LogFile]:
        """Yield the files in order, some time after they were offered to the readers.

        make_request: returns None for a file not to be read.
        """
        waiting = deque[LogFile]()
        for log_file in files:
            waiting.append(log_file)
            if (request := make_request(log_file)) is not None:
                self._offer(log_file, request)
            most = max((self._others + 1) * AHEAD_BYTES_PER_PROCESS, MIN_BYTES_FOR_PROCESSES)
            while waiting and (len(waiting) > MAX_WAITING_FILES or self._waiting > most):
                yield waiting.popleft()
        self._submit()
        yield from waiting

    def take(self, log_file: LogFile, facts: Sequence[Fact]) -> LogTables | None:
        """Return a file's tables, None if not read ahead. Raises FairmfuError, OSError."""
        task, index = self._offered.get(log_file.path, (None, 0))
        if task is None or task.files[index][1] != facts:
            return None
        if task is self._gathered:
            self._submit()
        self._work(task)
        if task.read is None:
            if task.result is None:
                return None
            try:
                task.read = task.result.result().each(self._spool)
            except BrokenProcessPool:  # killed: the caller reads the file, and sees why
                return None
            task.result = None  # frees its slot
        read = task.read[index]
        if isinstance(read, Exception):
            raise read
        return read

    def forget(self, log_file: LogFile) -> None:
        """Release everything read of a file whose turn is over."""
        if self._offered.pop(log_file.path, None) is not None:
            self._waiting -= expanded_size(log_file)

    def planned(
        self, log_file: LogFile, planner: BlockPlanner, chunks: Iterable[Chunk]
    ) -> Iterator[tuple[Chunk, BlockPlan | None]]:
        """Yield the chunks of a file in order, with plans made by other processes."""
        others = min(self._others, _cores() - CORES_OF_INGEST)
        if others < 1:
            return without_plans(planner, chunks)
        if expanded_size(log_file) >= MIN_FILE_BYTES_TO_PLAN:
            self._start()
        # an aborted file may have left finished plans
        self._lent = {slot: made for slot, made in self._lent.items() if not made.done()}
        return chunks_with_plans(planner, chunks, partial(self._submit_block, planner), others)

    def _submit_block(
        self, planner: BlockPlanner, chunk: Chunk
    ) -> _Handed[BlockPlan | None] | None:
        """Ask another process to plan a block; return None to plan the block here.

        Returns None while the processes start: waiting would cost as much as several blocks.
        """
        if self._pool is None or not self._ready.done():
            return None
        slot = self._free()
        if not self._handover.put(slot, chunk.view):
            return None
        with _one_thread(), suppress(BrokenProcessPool):
            names, size = planner_key(planner), len(chunk.view)
            made = self._lent[slot] = self._pool.submit(_plan, names, chunk.number, slot, size)
            return _Handed(made, partial(self._planned, slot))
        return None

    def _planned(self, slot: int) -> BlockPlan | None:
        """Return the plan in a slot, and free the slot; None if the process was lost."""
        with suppress(BrokenProcessPool, OSError):
            plan: BlockPlan = self._unpacked(slot, self._lent.pop(slot))
            return plan
        return None

    def _free(self) -> int:
        """Return a free slot."""
        return next(slot for slot in count() if slot not in {*self._lent, *self._owed})

    def _unpacked(self, slot: int, made: Future[int | bytes]) -> Any:  # noqa: ANN401
        """Return the result from a slot, or sent directly because of its size.

        Raises BrokenProcessPool, OSError if the result was lost.
        """
        answer = made.result()
        packed = self._handover.get(slot, answer) if isinstance(answer, int) else answer
        return pickle.loads(packed)  # noqa: S301 - bytes of our own processes

    def _start(self) -> None:
        if self._pool is None:
            self._handover = SharedSlots()
            self._pool = ProcessPoolExecutor(
                self._others,
                mp_context=get_context("spawn"),
                initializer=_begin,
                initargs=(self._state, self._handover),
            )
            with _one_thread():
                self._ready = self._pool.submit(os.getpid)

    def _offer(self, log_file: LogFile, request: ReadRequest) -> None:
        size = expanded_size(log_file)
        if size > MAX_FILE_BYTES or log_file.path in self._offered:
            return
        alone = size > MAX_SMALL_BYTES
        if alone:
            self._submit()
        self._offered[log_file.path] = self._gathered, len(self._gathered.files)
        self._gathered.files.append(request)
        self._gathered.bytes += size
        self._total += size
        self._waiting += size
        if (
            alone
            or self._gathered.bytes >= MAX_LOCAL_TASK_BYTES
            or len(self._gathered.files) >= MAX_LOCAL_TASK_FILES
        ):
            self._submit()

    def _submit(self) -> None:
        """Queue the gathered files as a task."""
        task, self._gathered = self._gathered, _Task()
        if self._others and self._total >= MIN_BYTES_FOR_PROCESSES:
            self._start()
        if task.files:
            self._left.append(task)
        self._give_out()

    def _give_out(self) -> None:
        """Give queued tasks to other processes with little to do.

        They get the last tasks. The first tasks are needed first, perhaps before the processes have
        started, and are then read here.
        """
        self._given = [result for result in self._given if not result.done()]
        most = TASKS_AHEAD_PER_PROCESS * self._others
        while self._pool is not None and self._left and len(self._given) < most:
            task = self._left.pop()
            task.result = self._give(task.files)
            self._given.append(task.result)

    def _work(self, wanted: _Task) -> None:
        """Read the wanted task if still queued, else others until the result is there.

        A task of a single file is not read here: the caller reads the file.
        """
        if wanted in self._left:
            self._left.remove(wanted)
            self._give_out()
            if len(wanted.files) > 1:
                wanted.result = self._read(wanted.files)
        while wanted.result is not None and not wanted.result.done():
            task = next((queued for queued in self._left if len(queued.files) > 1), None)
            if task is None:
                return
            self._left.remove(task)
            task.result = self._read(task.files)
            self._give_out()

    def _give(self, files: Sequence[ReadRequest]) -> _Handed[TaskResult] | Future[TaskResult]:
        """Give files to another process, and return the future result."""
        assert self._pool is not None  # noqa: S101 - checked by the caller
        slot = self._free()
        try:
            with _one_thread():
                made = self._pool.submit(_read, files, slot)
        except BrokenProcessPool as error:
            broken = Future[TaskResult]()
            broken.set_exception(error)
            return broken
        handed = _Handed(made, partial(self._received, slot, made))
        self._owed.add(slot)  # until the result is dropped: copies share it
        weakref.finalize(handed, self._owed.discard, slot)
        return handed

    def _received(self, slot: int, made: Future[int | bytes]) -> TaskResult:
        """Return the result of another process. Raises BrokenProcessPool if lost."""
        made.result()  # outside the try: errors of files stay as they are
        try:
            read: TaskResult = self._unpacked(slot, made)
        except OSError as error:
            raise BrokenProcessPool from error
        return read

    def _read(self, files: Sequence[ReadRequest]) -> Future[TaskResult]:
        """Read files in this process."""
        result = Future[TaskResult]()
        try:
            result.set_result(_read_all(files, self._state, LogGroup.of))
        except (FairmfuError, OSError) as error:
            result.set_exception(error)
        return result


TaskOutput = TypeVar("TaskOutput")


@dataclass(frozen=True, slots=True, weakref_slot=True)
class _Handed(Generic[TaskOutput]):
    """Packed result in the making by another process."""

    future: Future[int | bytes]
    result: Callable[[], TaskOutput]

    def done(self) -> bool:
        return self.future.done()


def _read_all(
    files: Sequence[ReadRequest],
    state: ReadOptions,
    make_group: Callable[[Sequence[LogRows]], LogGroup],
) -> TaskResult:
    extra, tried = state
    return TaskResult.of(
        read_log_files(files, Spool(), flag_facts=extra, format_choice=tried), make_group
    )


# --- in the other processes -------------------------------------------------------------------

_state: list[ReadOptions] = []
_handover: list[SharedSlots] = []


def _begin(state: ReadOptions, handover: SharedSlots) -> None:
    """Prepare a reader process, and end with the parent, even if the parent is killed."""
    gc.freeze()  # imported objects live as long as the process
    _state.append(state)
    _handover.append(handover)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    parent = parent_process()
    assert parent is not None  # noqa: S101 - child processes have one

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _read(files: Sequence[ReadRequest], slot: int) -> int | bytes:
    """Read files, and put the packed result into a slot."""
    return _handed(slot, _read_all(files, _state[0], LogGroup.packed))


def _plan(names: PlannerKey, number: int, slot: int, size: int) -> int | bytes:
    """Plan the block in a slot, and put the packed plan into the same slot."""
    chunk = Chunk(number, _handover[0].get(slot, size))
    return _handed(slot, _planner(names).plan_chunk(chunk))


def _handed(slot: int, made: BlockPlan | TaskResult) -> int | bytes:
    """Put a packed result into a slot and return its size, or the bytes if too large."""
    packed = pickle.dumps(made, pickle.HIGHEST_PROTOCOL)
    return len(packed) if _handover[0].put(slot, packed) else packed


@cache
def _planner(names: PlannerKey) -> BlockPlanner:
    """Return the planner for all blocks of these formats."""
    return make_planner(names, _state[0][1])


@contextmanager
def _one_thread() -> Iterator[None]:
    """Give one Polars thread to processes started in this context."""
    before = os.environ.get(POLARS_THREADS_VARIABLE)
    os.environ[POLARS_THREADS_VARIABLE] = "1"
    try:
        yield
    finally:
        os.environ.pop(POLARS_THREADS_VARIABLE)
        if before is not None:
            os.environ[POLARS_THREADS_VARIABLE] = before
