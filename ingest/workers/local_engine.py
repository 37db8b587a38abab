"""Files, and blocks of large files, read by other processes before it is their turn.

Each sends back the whole tables of a file, so large files are not given to them: of these they plan
blocks (ingest.vector.block_plan). Small files are read several at a time, which is quicker, also
where there is no other process.
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
"""The largest file that is read ahead, in bytes."""
MAX_LOCAL_TASK_BYTES: Final = 8 * 1024 * 1024
MAX_LOCAL_TASK_FILES: Final = 128
"""Small files are read together up to so many bytes, or so many files."""
TASKS_AHEAD_PER_PROCESS: Final = 2
"""Tasks that wait for each other process; this one does those that are left."""
AHEAD_BYTES_PER_PROCESS: Final = 32 * 1024 * 1024
"""Bytes of files that are read before their turn, for each process, this one included."""
MAX_WAITING_FILES: Final = 1_000
"""The most files that are looked at before their turn."""
MIN_BYTES_FOR_PROCESSES: Final = 24 * 1024 * 1024
"""Bytes that are to be read before other processes are started: each takes a second to start."""

MIN_FILE_BYTES_TO_PLAN: Final = 128 * 1024 * 1024
"""The same in one large file, of which others only plan the blocks."""

CORES_OF_INGEST: Final = 2
"""Cores that ingesting a large file keeps busy by itself: mostly one, and the threads that read
ahead and write. Where a machine has no more, a second process that plans makes it slower."""

POLARS_THREADS_VARIABLE: Final = "POLARS_MAX_THREADS"

MAX_DEFAULT_PROCESSES: Final = 8
"""The most that are started where nobody says how many: others use the machine too."""


@dataclass(slots=True, eq=False)
class _Task:
    """Files that one process reads one after the other."""

    files: list[ReadRequest] = field(default_factory=list)
    bytes: int = 0
    result: Future[TaskResult] | _Handed[TaskResult] | None = None
    read: list[LogTables | Exception] | None = None


def default_process_count() -> int:
    """How many processes read where nobody says how many: one for each core."""
    return min(_cores(), MAX_DEFAULT_PROCESSES)


def _cores() -> int:
    """How many cores this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return cores or 1


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """An engine: `count` processes of this machine read, one of which is this one.

    More are started with `spawn`, as multiprocessing has it: a script that asks for them needs its
    `if __name__ == "__main__"`.
    """

    count: int = 1

    def reading(self, options: ReadOptions, _: StoreBackend, spool: Spool) -> LocalSession:
        """For one ingest."""
        return LocalSession(self.count, options, spool)

    def each(
        self, work: Callable[[WorkItem], WorkResult], items: Sequence[WorkItem]
    ) -> Iterable[WorkResult]:
        """Each piece by this process, one after the other: Polars keeps all cores busy."""
        return map(work, items)


class LocalSession:
    """Reads files that are offered to it; a context that lets its processes go."""

    can_store_now = True

    def __init__(self, processes: int, options: ReadOptions, spool: Spool | None = None) -> None:
        """processes: how many read; one is this one. spool: where rows wait that were read."""
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
        """Yield the files in their order, some time after they were offered.

        make_request: returns None to leave a file alone.
        """
        waiting = deque[LogFile]()
        for found in files:
            waiting.append(found)
            if (given := make_request(found)) is not None:
                self._offer(found, given)
            most = (self._others + 1) * AHEAD_BYTES_PER_PROCESS
            while waiting and (len(waiting) > MAX_WAITING_FILES or self._waiting > most):
                yield waiting.popleft()
        self._submit()
        yield from waiting

    def take(self, log_file: LogFile, facts: Sequence[Fact]) -> LogTables | None:
        """What a file holds; None where it was not read. Raises FairmfuError, OSError."""
        task, place = self._offered.get(log_file.path, (None, 0))
        if task is None or task.files[place][1] != facts:
            return None
        if task is self._gathered:
            self._submit()
        self._work(task)
        if task.read is None:
            if task.result is None:
                return None
            try:
                task.read = task.result.result().each(self._spool)
            except BrokenProcessPool:  # one was killed: who asks reads it, and sees what is wrong
                return None
            task.result = None  # its place is free again
        read = task.read[place]
        if isinstance(read, Exception):
            raise read
        return read

    def forget(self, log_file: LogFile) -> None:
        """The file had its turn: nothing of it is kept any more."""
        if self._offered.pop(log_file.path, None) is not None:
            self._waiting -= expanded_size(log_file)

    def planned(
        self, log_file: LogFile, planner: BlockPlanner, chunks: Iterable[Chunk]
    ) -> Iterator[tuple[Chunk, BlockPlan | None]]:
        """The chunks of a file in their order, each with its plan if another process made it."""
        others = min(self._others, _cores() - CORES_OF_INGEST)
        if others < 1:
            return without_plans(planner, chunks)
        if expanded_size(log_file) >= MIN_FILE_BYTES_TO_PLAN:
            self._start()
        # a file that could not be read to its end may have left some
        self._lent = {place: made for place, made in self._lent.items() if not made.done()}
        return chunks_with_plans(planner, chunks, partial(self._submit_block, planner), others)

    def _submit_block(
        self, planner: BlockPlanner, chunk: Chunk
    ) -> _Handed[BlockPlan | None] | None:
        """Have another process plan a block; None where it is planned here.

        While the processes still start nobody is asked: that takes as long as some blocks.
        """
        if self._pool is None or not self._ready.done():
            return None
        place = self._free()
        if not self._handover.put(place, chunk.view):
            return None
        with _one_thread(), suppress(BrokenProcessPool):
            names, size = planner_key(planner), len(chunk.view)
            made = self._lent[place] = self._pool.submit(_plan, names, chunk.number, place, size)
            return _Handed(made, partial(self._planned, place))
        return None

    def _planned(self, place: int) -> BlockPlan | None:
        """The plan of the block in that place, which is then free again; None where it was lost."""
        with suppress(BrokenProcessPool, OSError):
            plan: BlockPlan = self._unpacked(place, self._lent.pop(place))
            return plan
        return None

    def _free(self) -> int:
        """A place of the handover."""
        return next(place for place in count() if place not in {*self._lent, *self._owed})

    def _unpacked(self, place: int, made: Future[int | bytes]) -> Any:  # noqa: ANN401
        """What another process has made and put there, or had no room for.

        Raises BrokenProcessPool, OSError where it was lost.
        """
        found = made.result()
        packed = self._handover.get(place, found) if isinstance(found, int) else found
        return pickle.loads(packed)  # noqa: S301 - ours

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

    def _offer(self, found: LogFile, given: ReadRequest) -> None:
        size = expanded_size(found)
        if size > MAX_FILE_BYTES or found.path in self._offered:
            return
        alone = size > MAX_SMALL_BYTES
        if alone:
            self._submit()
        self._offered[found.path] = self._gathered, len(self._gathered.files)
        self._gathered.files.append(given)
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
        """Have the files that were gathered read."""
        task, self._gathered = self._gathered, _Task()
        if self._others and self._total >= MIN_BYTES_FOR_PROCESSES:
            self._start()
        if task.files:
            self._left.append(task)
        self._give_out()

    def _give_out(self) -> None:
        """Give other processes tasks that are left, as long as they have little to do.

        They get the last tasks: the first are wanted first, perhaps before the processes have
        started, and are then read here.
        """
        self._given = [one for one in self._given if not one.done()]
        most = TASKS_AHEAD_PER_PROCESS * self._others
        while self._pool is not None and self._left and len(self._given) < most:
            task = self._left.pop()
            task.result = self._give(task.files)
            self._given.append(task.result)

    def _work(self, wanted: _Task) -> None:
        """Read a wanted task here if nobody has begun it, else other tasks until it has been read.

        A task of a single file is not read here: whoever wants that file reads it then.
        """
        if wanted in self._left:
            self._left.remove(wanted)
            self._give_out()
            if len(wanted.files) > 1:
                wanted.result = self._read(wanted.files)
        while wanted.result is not None and not wanted.result.done():
            task = next((one for one in self._left if len(one.files) > 1), None)
            if task is None:
                return
            self._left.remove(task)
            task.result = self._read(task.files)
            self._give_out()

    def _give(self, files: Sequence[ReadRequest]) -> _Handed[TaskResult] | Future[TaskResult]:
        """What another process reads."""
        assert self._pool is not None  # noqa: S101 - who asks has seen to it
        place = self._free()
        try:
            with _one_thread():
                made = self._pool.submit(_read, files, place)
        except BrokenProcessPool as error:
            broken = Future[TaskResult]()
            broken.set_exception(error)
            return broken
        handed = _Handed(made, partial(self._received, place, made))
        self._owed.add(place)  # until nobody asks for it any more: its files may be copies
        weakref.finalize(handed, self._owed.discard, place)
        return handed

    def _received(self, place: int, made: Future[int | bytes]) -> TaskResult:
        """What another process has read. Raises BrokenProcessPool where it was lost."""
        made.result()  # the errors of files are its own
        try:
            read: TaskResult = self._unpacked(place, made)
        except OSError as error:
            raise BrokenProcessPool from error
        return read

    def _read(self, files: Sequence[ReadRequest]) -> Future[TaskResult]:
        """What is read here."""
        result = Future[TaskResult]()
        try:
            result.set_result(_read_all(files, self._state, LogGroup.of))
        except (FairmfuError, OSError) as error:
            result.set_exception(error)
        return result


TaskOutput = TypeVar("TaskOutput")


@dataclass(frozen=True, slots=True, weakref_slot=True)
class _Handed(Generic[TaskOutput]):
    """What another process makes and packs."""

    future: Future[int | bytes]
    result: Callable[[], TaskOutput]

    def done(self) -> bool:
        return self.future.done()


def _read_all(
    files: Sequence[ReadRequest],
    state: ReadOptions,
    grouped: Callable[[Sequence[LogRows]], LogGroup],
) -> TaskResult:
    extra, tried = state
    return TaskResult.of(
        read_log_files(files, Spool(), flag_facts=extra, format_choice=tried), grouped
    )


# --- in the other processes -------------------------------------------------------------------

_state: list[ReadOptions] = []
_handover: list[SharedSlots] = []


def _begin(state: ReadOptions, handover: SharedSlots) -> None:
    """Take what holds for all files; end with the process that began it, even if that is killed."""
    gc.freeze()  # nothing of what was imported goes before it ends
    _state.append(state)
    _handover.append(handover)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who began it sees to that
    parent = parent_process()
    assert parent is not None  # noqa: S101 - it has one

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _read(files: Sequence[ReadRequest], place: int) -> int | bytes:
    """Read files; what was found is in that place then."""
    return _handed(place, _read_all(files, _state[0], LogGroup.packed))


def _plan(names: PlannerKey, number: int, place: int, size: int) -> int | bytes:
    """Plan the block in that place; the plan is there then."""
    chunk = Chunk(number, _handover[0].get(place, size))
    return _handed(place, _planner(names).plan_chunk(chunk))


def _handed(place: int, made: BlockPlan | TaskResult) -> int | bytes:
    """Its size, packed, in that place, or where there is no room for it, it itself."""
    packed = pickle.dumps(made, pickle.HIGHEST_PROTOCOL)
    return len(packed) if _handover[0].put(place, packed) else packed


@cache
def _planner(names: PlannerKey) -> BlockPlanner:
    """One for all blocks."""
    return make_planner(names, _state[0][1])


@contextmanager
def _one_thread() -> Iterator[None]:
    """Processes that start meanwhile use one thread of Polars each."""
    before = os.environ.get(POLARS_THREADS_VARIABLE)
    os.environ[POLARS_THREADS_VARIABLE] = "1"
    try:
        yield
    finally:
        os.environ.pop(POLARS_THREADS_VARIABLE)
        if before is not None:
            os.environ[POLARS_THREADS_VARIABLE] = before
