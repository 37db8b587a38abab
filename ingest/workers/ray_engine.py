"""Engine of a Ray cluster, whose workers read files and compute metrics.

A task is a piece of work, a group of small files, or a large file. A worker writes long tables as
parts of the store, in no batch yet, and returns the other rows with the names of these parts. The
driver asks for files in order and stores batches, as when reading alone, so all decisions are made
in one process. A task repeated after the loss of a worker or node writes the same files.

Logs and store must have the same paths on all nodes: use a shared file system.
"""

from __future__ import annotations

import logging
import math
import os
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, redirect_stdout, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from secrets import token_hex
from time import monotonic, sleep
from typing import Any, Final, Self

import polars as pl
import pyarrow as pa
import ray
from ray import ObjectRef
from ray.exceptions import RayError, RayTaskError

from ..core.errors import (
    ClusterError,
    FairmfuError,
    UnreadableSourceError,
    explain_write_error,
)
from ..core.faults import FAULTS, reading_error
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
from ..extract.log_tables import read_log, read_log_files
from ..extract.table_batches import LogGroup, LogRows
from ..formats.launch_view import Fact
from ..store.local_backend import StoreBackend
from ..store.staged_parts import StagedPart
from ..vector.block_parser import without_plans
from ..vector.block_plan import BlockPlan, BlockPlanner
from .messages import (
    LOG_NOT_SHARED,
    NO_CLUSTER,
    NODE_NOT_WRITABLE,
    READER_LOST,
    STORE_NOT_SHARED,
    VERSIONS_DIFFER,
    WORKER_LOST,
)

MAX_RAY_TASK_BYTES: Final = 32 * 1024 * 1024
MAX_RAY_TASK_FILES: Final = 256
"""Limits of one task: bytes and files."""
MIN_RAY_BYTES_TO_PLAN: Final = 128 * 1024 * 1024
"""Size of a file before idle workers plan its blocks [bytes]."""
MAX_TASKS_PER_CORE: Final = 3
"""Limit of unfinished tasks per core of the cluster."""
MAX_TASK_RETRIES: Final = 3
"""Retries of a task whose worker or node was lost."""
CONNECT_TIMEOUT_S: Final = 10.0
"""Time for a cluster to accept a connection [s]."""
CORE_COUNT_INTERVAL_S: Final = 5.0
IDLE_COUNT_INTERVAL_S: Final = 0.5
"""Intervals for counting the cores of the cluster, and the idle ones [s]: nodes come and go."""
PROGRESS_INTERVAL_S: Final = 30.0
"""Interval of progress messages [s]."""
FILE_SYNC_TIMEOUT_S: Final = 10.0
"""Time for a shared file system to show files written by another node [s]."""
WORKER_ENVIRONMENT: Final = {"POLARS_MAX_THREADS": "1"}
"""Environment of workers with one core."""

Notify = Callable[[str], None]


class RayEngine:
    """Engine of a Ray cluster's workers; a context that disconnects at the end."""

    def __init__(self, address: str | None = None, notify: Notify = lambda _: None) -> None:
        """Prepare a connection.

        address: as for ray.init; by default RAY_ADDRESS, a cluster running on this machine, or a
        new one started here. notify: receives sentences about the cluster.
        """
        self._address = address
        self._says = notify
        self._held = ExitStack()

    def __enter__(self) -> Self:
        """Connect to the cluster. Raises ClusterError if there is none."""
        with ExitStack() as held:
            held.enter_context(redirect_stdout(sys.stderr))  # Ray prints lost nodes to stdout
            if not ray.is_initialized():
                self._connect()
                held.callback(ray.shutdown)
            nodes = sum(bool(node["Alive"]) for node in ray.nodes())  # type: ignore[no-untyped-call]
            self._says(
                f"Ray: {nodes:,} node{'' if nodes == 1 else 's'}, {count_cluster_cores():,} cores"
            )
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def _connect(self) -> None:
        address = self._address or os.environ.get("RAY_ADDRESS")
        try:
            _look_at(address)
            ray.init(self._address, log_to_driver=False, logging_level=logging.ERROR)
        except (RayError, OSError, RuntimeError, ValueError) as error:
            raise NO_CLUSTER(address=address or "this machine", error=error) from error

    def reading(self, options: ReadOptions, backend: StoreBackend, spool: Spool) -> RaySession:
        """Return a session for one ingest."""
        order = RayJob(options, backend.absolute(), Driver(), token_hex(4))
        return RaySession(order, spool, self._says)

    def each(
        self, work: Callable[[WorkItem], WorkResult], items: Sequence[WorkItem]
    ) -> Iterator[WorkResult]:
        """Yield the results of the items, in order.

        Raises ClusterError, and the work's errors.

        At most MAX_TASKS_PER_CORE items per core are in progress. After an error they run to their
        end: Ray kills a driver if a cancellation meets the task's answer
        (github.com/ray-project/ray, pull request 54798).
        """
        sent = ray.put((Driver(), work))
        begun = deque[ObjectRef[Any]]()
        counted = _Counted()
        remaining, reported_at = iter(items), monotonic()
        for done in range(len(items)):
            more = MAX_TASKS_PER_CORE * counted.cores() - len(begun)
            begun += (
                _remote(_do, MAX_TASK_RETRIES).remote(sent, item)
                for item in islice(remaining, more)
            )
            yield _result(begun[0])
            begun.popleft()
            if monotonic() - reported_at > PROGRESS_INTERVAL_S:
                self._says(f"Ray: {done + 1:,} of {len(items):,} tasks done")
                reported_at = monotonic()


def _look_at(address: str | None) -> None:
    """Check that a server listens, because Ray waits for minutes. Raises OSError."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), CONNECT_TIMEOUT_S).close()


def count_cluster_cores() -> int:
    """Return the current number of cores of the cluster."""
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return int(resources.get("CPU", 0))


class _Counted:
    """Number of the cluster's cores, at least one; some seconds old."""

    def __init__(self) -> None:
        self._cores, self._at = 0, -math.inf

    def cores(self) -> int:
        """Return the cores, counted again every CORE_COUNT_INTERVAL_S."""
        if monotonic() - self._at > CORE_COUNT_INTERVAL_S:
            self._cores, self._at = max(count_cluster_cores(), 1), monotonic()
        return self._cores


@dataclass(frozen=True, slots=True)
class Driver:
    """Process that gives work to a cluster.

    folder: base of relative paths. program: version of fairmfu.
    """

    folder: Path = field(default_factory=Path.cwd)
    program: str = field(default_factory=lambda: version("fairmfu"))

    def join(self) -> None:
        """Make this worker act as the driver. Raises ClusterError on another version."""
        if (installed := version("fairmfu")) != self.program:
            raise VERSIONS_DIFFER(
                host=socket.gethostname(), installed=installed, driver=self.program
            )
        pa.set_cpu_count(1)
        with suppress(OSError):  # not needed for absolute paths
            os.chdir(self.folder)


@dataclass(frozen=True, slots=True)
class RayJob:
    """Settings of all tasks of one ingest; job: as `job_id` of write_staged_parts."""

    state: ReadOptions
    shelf: StoreBackend
    driver: Driver
    job: str


@dataclass(slots=True, eq=False)
class _Task:
    """Files that one worker reads in order; left: number of files not yet taken."""

    files: list[ReadRequest] = field(default_factory=list)
    bytes: int = 0
    left: int = 0
    result: ObjectRef[TaskResult | FairmfuError] | None = None
    read: list[LogTables | Exception] | None = None


class RaySession:
    """Read session of one ingest's files on the cluster; an engine_api.ReadSession."""

    def __init__(self, job: RayJob, spool: Spool, notify: Notify) -> None:
        self._spool, self._says = spool, notify
        self._sent: ObjectRef[RayJob] = ray.put(job)
        self._gathered = _Task()
        self._offered: dict[str, tuple[_Task, int]] = {}
        self._begun = 0  # tasks with files not yet taken
        self._taken: _Task | None = None
        self._counted = _Counted()
        self._files, self._said = 0, monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._offered.clear()  # running tasks run to their end, as in `each`

    @property
    def can_store_now(self) -> bool:
        """True unless files of a task remain: its parts cannot be split between batches."""
        return self._taken is None or not self._taken.left

    def before(
        self, files: Iterable[LogFile], make_request: Callable[[LogFile], ReadRequest | None]
    ) -> Iterator[LogFile]:
        """Yield the files in order, some time after they were offered to the workers.

        make_request: returns None for a file not to be read.
        """
        waiting = deque[LogFile]()
        for log_file in files:
            waiting.append(log_file)
            if (
                request := make_request(log_file)
            ) is not None and log_file.path not in self._offered:
                self._offer(log_file, request)
            while waiting and self._begun > MAX_TASKS_PER_CORE * self._counted.cores():
                yield waiting.popleft()
        self._begin()
        yield from waiting

    def take(self, log_file: LogFile, facts: Sequence[Fact]) -> LogTables | None:
        """Return a file's tables, None if not read ahead. Raises FairmfuError, OSError."""
        task, index = self._offered.get(log_file.path, (None, 0))
        if task is None or task.files[index][1] != facts:
            return None
        if task is self._gathered:
            self._begin()
        task.read = task.read or self._read(task)
        read = task.read[index]
        if isinstance(read, Exception):
            raise read
        return read

    def forget(self, log_file: LogFile) -> None:
        """Release everything read of a file whose turn is over."""
        task, _place = self._offered.pop(log_file.path, (None, 0))
        if task is None:
            return
        task.left -= 1
        self._taken, self._files = task, self._files + 1
        if not task.left:
            self._begun -= 1
            task.read = task.result = None
        if monotonic() - self._said > PROGRESS_INTERVAL_S:
            self._says(
                f"Ray: {self._files:,} files read; {self._begun:,} tasks in progress, "
                f"{self._counted.cores():,} cores"
            )
            self._said = monotonic()

    def planned(
        self, _: LogFile, planner: BlockPlanner, chunks: Iterable[Chunk]
    ) -> Iterator[tuple[Chunk, None]]:
        """Yield the chunks without plans: files read by the driver use no workers."""
        return without_plans(planner, chunks)

    def _offer(self, log_file: LogFile, request: ReadRequest) -> None:
        size = expanded_size(log_file)
        if self._gathered.files and self._gathered.bytes + size > MAX_RAY_TASK_BYTES:
            self._begin()
        task = self._gathered
        self._offered[log_file.path] = task, len(task.files)
        task.files.append(request)
        task.bytes += size
        task.left += 1
        if task.bytes >= MAX_RAY_TASK_BYTES or len(task.files) >= MAX_RAY_TASK_FILES:
            self._begin()

    def _begin(self) -> None:
        """Start a task for the gathered files."""
        task, self._gathered = self._gathered, _Task()
        if task.files:
            task.result = _given(self._sent, task.files)
            self._begun += 1

    def _read(self, task: _Task) -> list[LogTables | Exception]:
        """Return the tables or errors of a task's files, in order. Raises ClusterError.

        After repeated loss of workers every file gets a separate task, because any of the files may
        be the cause.
        """
        assert task.result is not None  # noqa: S101 - the task was started
        try:
            read = ray.get(task.result)
        except RayTaskError as error:
            raise error.as_instanceof_cause() from error  # type: ignore[no-untyped-call]
        except RayError as error:
            if len(task.files) == 1:
                return [_lost(task.files[0][0], error)]
            count = f"{len(task.files):,}"
            self._says(
                f"Ray: workers were lost {MAX_TASK_RETRIES + 1} times on the same {count} files"
            )
            alone = [_Task([file], result=_given(self._sent, [file])) for file in task.files]
            return [read for file_task in alone for read in self._read(file_task)]
        if isinstance(read, ClusterError):
            raise read
        if isinstance(read, FairmfuError):
            return [read] * len(task.files)
        _look_for(read)
        return read.each(self._spool)


def _given(
    order: ObjectRef[RayJob], files: Sequence[ReadRequest]
) -> ObjectRef[TaskResult | FairmfuError]:
    """Start a task that reads files."""
    result: ObjectRef[TaskResult | FairmfuError] = _remote(_read, MAX_TASK_RETRIES).remote(
        order, files
    )
    return result


@cache
def _remote(function: Callable[..., Any], retries: int) -> Any:  # noqa: ANN401 - Ray's
    """Return a function as a Ray task of one core."""
    env = {"env_vars": WORKER_ENVIRONMENT}
    return ray.remote(num_cpus=1, max_retries=retries, runtime_env=env)(function)


def _look_for(read: TaskResult) -> None:
    """Wait for the parts written by a task. Raises ClusterError if they do not appear."""
    tables = read.group.tables.values()
    written = [part for table in tables for part in table if isinstance(part, StagedPart)]
    deadline = monotonic() + FILE_SYNC_TIMEOUT_S
    while missing := [part for part in written if not part.is_visible()]:
        if monotonic() > deadline:
            raise STORE_NOT_SHARED(path=missing[0].shelf.at(missing[0].part.path))
        sleep(0.1)


def _result(done: ObjectRef[Any]) -> Any:  # noqa: ANN401 - what the work gives
    """Return the result of an item. Raises ClusterError, and the work's errors."""
    try:
        result = ray.get(done)
    except RayTaskError as error:
        raise error.as_instanceof_cause() from error  # type: ignore[no-untyped-call]
    except RayError as error:
        raise WORKER_LOST(times=MAX_TASK_RETRIES + 1, error=_why(error)) from error
    if isinstance(result, FairmfuError):
        raise result
    return result


def _why(error: RayError) -> str:
    return str(error).partition("\n")[0].removesuffix(".")


def _lost(path: Path, error: RayError) -> UnreadableSourceError:
    return READER_LOST(path=path, times=MAX_TASK_RETRIES + 1, error=_why(error))


# --- in the workers ---------------------------------------------------------------------------


def _read(order: RayJob, files: Sequence[ReadRequest]) -> TaskResult | FairmfuError:
    """Read files in a worker and write long tables; return an error as a value."""
    try:
        order.driver.join()
    except ClusterError as error:
        return error
    host = socket.gethostname()
    found = [
        _not_here(path, host) if isinstance(one, Exception) and not path.exists() else one
        for (path, _), one in zip(files, _logs(order, files), strict=True)
    ]
    try:
        return TaskResult.of(
            found, partial(LogGroup.written, backend=order.shelf, job_id=order.job)
        )
    except (OSError, pl.exceptions.ComputeError) as error:
        why, todo = explain_write_error(error, "--store")
        return NODE_NOT_WRITABLE(store=order.shelf, why=why, host=host, remedy=todo)


def _do(
    sent: tuple[Driver, Callable[[WorkItem], WorkResult]], piece: WorkItem
) -> WorkResult | FairmfuError:
    """Do one item of work in a worker; return a FairmfuError as a value."""
    driver, work = sent
    try:
        driver.join()
        return work(piece)
    except FairmfuError as error:
        return error


def _logs(order: RayJob, files: Sequence[ReadRequest]) -> list[LogRows | Exception]:
    extra, tried = order.state
    (path, facts), spool = files[0], Spool()
    planned = partial(_planned, order)
    try:
        if len(files) > 1 or path.stat().st_size < MIN_RAY_BYTES_TO_PLAN:
            return read_log_files(files, spool, flag_facts=extra, format_choice=tried)
        return [
            read_log(
                path,
                spool,
                path_facts=facts,
                flag_facts=extra,
                format_choice=tried,
                plan_chunks=planned,
            )
        ]
    except FAULTS as error:
        return [reading_error(path, error)]


def _not_here(path: Path, host: str) -> UnreadableSourceError:
    return LOG_NOT_SHARED(path=path, host=host)


def _planned(
    order: RayJob, planner: BlockPlanner, chunks: Iterable[Chunk]
) -> Iterator[tuple[Chunk, BlockPlan | None]]:
    """Yield blocks of a large file, with plans made by idle workers."""
    idle = _Idle(ray.put(order), planner)
    return chunks_with_plans(planner, chunks, idle.submit, count_cluster_cores() - 1)


class _Idle:
    """Idle workers of the cluster, if any."""

    def __init__(self, order: ObjectRef[RayJob], planner: BlockPlanner) -> None:
        self._order, self._planner = order, planner
        self._there, self._counted = False, 0.0

    def submit(self, chunk: Chunk) -> _Planned | None:
        """Ask an idle worker to plan a block; return None if all are busy."""
        if monotonic() - self._counted > IDLE_COUNT_INTERVAL_S:
            free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
            self._there = free.get("CPU", 0) >= 1
            self._counted = monotonic()
        if not self._there:
            return None
        return _Planned(_remote(_plan, 0).remote(self._order, planner_key(self._planner), chunk))


@dataclass(frozen=True, slots=True)
class _Planned:
    """Plan in the making by another worker."""

    plan: ObjectRef[BlockPlan]

    def done(self) -> bool:
        """Return whether the result is available without waiting."""
        ready, _ = ray.wait([self.plan], timeout=0)
        return bool(ready)

    def result(self) -> BlockPlan | None:
        """Return the plan, None if the worker was lost; the caller then plans the block."""
        with suppress(RayError):
            plan: BlockPlan = ray.get(self.plan)
            return plan
        return None


_planners: dict[tuple[str, PlannerKey], BlockPlanner] = {}


def _plan(order: RayJob, names: PlannerKey, chunk: Chunk) -> BlockPlan:
    key = order.job, names
    if key not in _planners:
        _planners[key] = make_planner(names, order.state[1])
    return _planners[key].plan_chunk(chunk)
