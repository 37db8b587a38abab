"""A Ray cluster as an engine: its workers read files, and compute metrics.

A task is a piece of work, some small files, or a large one. Of files its worker writes what may be
long as parts of the store, which hold for nobody yet, and sends back the rest with the names of
these parts. The driver asks for each file in its order and stores batches of them, as it does for
logs that it read itself, so all that is decided is decided in one place. A task that is done again,
since its worker or node was lost, writes the same files.

Logs and store are to be at the same paths on all nodes: on a shared file system.
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
    StoreError,
    UnreadableSourceError,
    explain_write_error,
    reading_error,
)
from ..core.faults import FAULTS
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

MAX_RAY_TASK_BYTES: Final = 32 * 1024 * 1024
MAX_RAY_TASK_FILES: Final = 256
"""One task reads files up to so many bytes, or so many files."""
MIN_RAY_BYTES_TO_PLAN: Final = 128 * 1024 * 1024
"""Bytes of a file from which on idle workers plan its blocks."""
MAX_TASKS_PER_CORE: Final = 3
"""Tasks for each core of the cluster that were begun, and not all taken."""
MAX_TASK_RETRIES: Final = 3
"""Times that a task is done again whose worker or node was lost."""
CONNECT_TIMEOUT_S: Final = 10.0
"""How long a cluster may take to answer at all [s]."""
CORE_COUNT_INTERVAL_S: Final = 5.0
IDLE_COUNT_INTERVAL_S: Final = 0.5
"""How often the cores of the cluster, and the idle ones, are counted: nodes come and go."""
PROGRESS_INTERVAL_S: Final = 30.0
"""How often it is told how far the files are read."""
FILE_SYNC_TIMEOUT_S: Final = 10.0
"""How long a shared file system may take to show what another node wrote."""
WORKER_ENVIRONMENT: Final = {"POLARS_MAX_THREADS": "1"}
"""The environment of workers: each has one core."""

Notify = Callable[[str], None]


class RayEngine:
    """An engine: the workers of a Ray cluster read. A context that lets go of the cluster."""

    def __init__(self, address: str | None = None, notify: Notify = lambda _: None) -> None:
        """address: as ray.init takes it. says: gets sentences about the cluster.

        Without an address RAY_ADDRESS, the cluster that runs on this machine, or else one that is
        started here.
        """
        self._address = address
        self._says = notify
        self._held = ExitStack()

    def __enter__(self) -> Self:
        """Raises ClusterError where there is no such cluster."""
        with ExitStack() as held:
            held.enter_context(redirect_stdout(sys.stderr))  # Ray tells of lost nodes there
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
            raise ClusterError(
                f"Ray: no cluster at {address or 'this machine'} ({error}). Start one with: ray "
                "start --head; or give the address of another with --ray-address."
            ) from error

    def reading(self, options: ReadOptions, backend: StoreBackend, spool: Spool) -> RaySession:
        """For one ingest."""
        order = RayJob(options, backend.absolute(), Driver(), token_hex(4))
        return RaySession(order, spool, self._says)

    def each(
        self, work: Callable[[WorkItem], WorkResult], items: Sequence[WorkItem]
    ) -> Iterator[WorkResult]:
        """What comes of each piece, in their order. Raises ClusterError, and what the work raises.

        At most MAX_TASKS_PER_CORE pieces a core are begun, and not taken. Those that are begun when
        one fails are left to end: Ray ends the driver whose cancelling meets a task's answer
        (github.com/ray-project/ray, pull request 54798).
        """
        sent = ray.put((Driver(), work))
        begun = deque[ObjectRef[Any]]()
        counted = _Counted()
        left, said = iter(items), monotonic()
        for done in range(len(items)):
            more = MAX_TASKS_PER_CORE * counted.cores() - len(begun)
            begun += (
                _remote(_do, MAX_TASK_RETRIES).remote(sent, one) for one in islice(left, more)
            )
            yield _result(begun[0])
            begun.popleft()
            if monotonic() - said > PROGRESS_INTERVAL_S:
                self._says(f"Ray: {done + 1:,} of {len(items):,} pieces of work done")
                said = monotonic()


def _look_at(address: str | None) -> None:
    """See that somebody listens: Ray itself waits for minutes. Raises OSError."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), CONNECT_TIMEOUT_S).close()


def count_cluster_cores() -> int:
    """How many the cluster has now."""
    found: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return int(found.get("CPU", 0))


class _Counted:
    """How many cores the cluster has, as of some seconds ago; at least one."""

    def __init__(self) -> None:
        self._cores, self._at = 0, -math.inf

    def cores(self) -> int:
        """Counted anew every CORE_COUNT_INTERVAL_S, as nodes come and go."""
        if monotonic() - self._at > CORE_COUNT_INTERVAL_S:
            self._cores, self._at = max(count_cluster_cores(), 1), monotonic()
        return self._cores


@dataclass(frozen=True, slots=True)
class Driver:
    """Who gives work to a cluster. folder: that paths are relative to; program: the version."""

    folder: Path = field(default_factory=Path.cwd)
    program: str = field(default_factory=lambda: version("fairmfu"))

    def join(self) -> None:
        """Have this worker do as the driver would. Raises ClusterError where it cannot."""
        if (mine := version("fairmfu")) != self.program:
            raise ClusterError(
                f"Ray: {socket.gethostname()} has fairmfu {mine}, the driver {self.program}. "
                "Install the same on all nodes."
            )
        pa.set_cpu_count(1)
        with suppress(OSError):  # who gives absolute paths can do without
            os.chdir(self.folder)


@dataclass(frozen=True, slots=True)
class RayJob:
    """What all tasks of an ingest are to do alike; job: as for unbatched.write_unbatched."""

    state: ReadOptions
    shelf: StoreBackend
    driver: Driver
    job: str


@dataclass(slots=True, eq=False)
class _Task:
    """Files that one worker reads one after the other; left: of those that were not yet taken."""

    files: list[ReadRequest] = field(default_factory=list)
    bytes: int = 0
    left: int = 0
    result: ObjectRef[TaskResult | FairmfuError] | None = None
    read: list[LogTables | Exception] | None = None


class RaySession:
    """Has the files of one ingest read; fanout.Reading."""

    def __init__(self, job: RayJob, spool: Spool, notify: Notify) -> None:
        self._spool, self._says = spool, notify
        self._sent: ObjectRef[RayJob] = ray.put(job)
        self._gathered = _Task()
        self._offered: dict[str, tuple[_Task, int]] = {}
        self._begun = 0  # tasks that were begun, and not all taken
        self._taken: _Task | None = None
        self._counted = _Counted()
        self._files, self._said = 0, monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._offered.clear()  # what is begun is left to end, as by `each`

    @property
    def can_store_now(self) -> bool:
        """Not while files of a task are left: its parts would have to be taken apart."""
        return self._taken is None or not self._taken.left

    def before(
        self, files: Iterable[LogFile], make_request: Callable[[LogFile], ReadRequest | None]
    ) -> Iterator[LogFile]:
        """Yield the files in their order, some time after they were offered.

        make_request: returns None to leave a file alone.
        """
        waiting = deque[LogFile]()
        for found in files:
            waiting.append(found)
            if (given := make_request(found)) is not None and found.path not in self._offered:
                self._offer(found, given)
            while waiting and self._begun > MAX_TASKS_PER_CORE * self._counted.cores():
                yield waiting.popleft()
        self._begin()
        yield from waiting

    def take(self, log_file: LogFile, facts: Sequence[Fact]) -> LogTables | None:
        """What a file holds; None where it was not read. Raises FairmfuError, OSError."""
        task, place = self._offered.get(log_file.path, (None, 0))
        if task is None or task.files[place][1] != facts:
            return None
        if task is self._gathered:
            self._begin()
        task.read = task.read or self._read(task)
        read = task.read[place]
        if isinstance(read, Exception):
            raise read
        return read

    def forget(self, log_file: LogFile) -> None:
        """The file had its turn: nothing of it is kept any more."""
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
                f"Ray: {self._files:,} files read; {self._begun:,} tasks begun, "
                f"{self._counted.cores():,} cores"
            )
            self._said = monotonic()

    def planned(
        self, _: LogFile, planner: BlockPlanner, chunks: Iterable[Chunk]
    ) -> Iterator[tuple[Chunk, None]]:
        """What the driver reads itself it reads alone."""
        return without_plans(planner, chunks)

    def _offer(self, found: LogFile, given: ReadRequest) -> None:
        size = expanded_size(found)
        if self._gathered.files and self._gathered.bytes + size > MAX_RAY_TASK_BYTES:
            self._begin()
        task = self._gathered
        self._offered[found.path] = task, len(task.files)
        task.files.append(given)
        task.bytes += size
        task.left += 1
        if task.bytes >= MAX_RAY_TASK_BYTES or len(task.files) >= MAX_RAY_TASK_FILES:
            self._begin()

    def _begin(self) -> None:
        """Have the files that were gathered read."""
        task, self._gathered = self._gathered, _Task()
        if task.files:
            task.result = _given(self._sent, task.files)
            self._begun += 1

    def _read(self, task: _Task) -> list[LogTables | Exception]:
        """What a task's files hold, in their order. Raises ClusterError.

        Where its workers were lost again and again, each file is read by itself: one of them may be
        what they are lost by.
        """
        assert task.result is not None  # noqa: S101 - it was begun
        try:
            read = ray.get(task.result)
        except RayTaskError as error:
            raise error.as_instanceof_cause() from error  # type: ignore[no-untyped-call]
        except RayError as error:
            if len(task.files) == 1:
                return [_lost(task.files[0][0], error)]
            count = f"{len(task.files):,}"
            self._says(
                f"Ray: workers were lost {MAX_TASK_RETRIES + 1} times over the same {count} files"
            )
            alone = [_Task([one], result=_given(self._sent, [one])) for one in task.files]
            return [read for one in alone for read in self._read(one)]
        if isinstance(read, ClusterError):
            raise read
        if isinstance(read, FairmfuError):
            return [read] * len(task.files)
        _look_for(read)
        return read.each(self._spool)


def _given(
    order: ObjectRef[RayJob], files: Sequence[ReadRequest]
) -> ObjectRef[TaskResult | FairmfuError]:
    """What a worker reads."""
    result: ObjectRef[TaskResult | FairmfuError] = _remote(_read, MAX_TASK_RETRIES).remote(
        order, files
    )
    return result


@cache
def _remote(function: Callable[..., Any], retries: int) -> Any:  # noqa: ANN401 - Ray's
    """A function as a task of one core."""
    env = {"env_vars": WORKER_ENVIRONMENT}
    return ray.remote(num_cpus=1, max_retries=retries, runtime_env=env)(function)


def _look_for(read: TaskResult) -> None:
    """See that its parts are here. Raises ClusterError where they stay away."""
    tables = read.group.tables.values()
    written = [part for table in tables for part in table if isinstance(part, StagedPart)]
    until = monotonic() + FILE_SYNC_TIMEOUT_S
    while missing := [part for part in written if not part.is_visible()]:
        if monotonic() > until:
            raise ClusterError(
                f"{missing[0].shelf.at(missing[0].part.path)}: a worker wrote this part, and it is "
                "not seen here. The store has to be on a file system that all nodes of the cluster "
                "share."
            )
        sleep(0.1)


def _result(done: ObjectRef[Any]) -> Any:  # noqa: ANN401 - what the work gives
    """What came of a piece of work. Raises ClusterError, and what the work raised."""
    try:
        result = ray.get(done)
    except RayTaskError as error:
        raise error.as_instanceof_cause() from error  # type: ignore[no-untyped-call]
    except RayError as error:
        raise ClusterError(
            f"Ray: the worker of a piece of work was lost {MAX_TASK_RETRIES + 1} times "
            f"({_why(error)}). What was stored before is whole. Give workers more memory, "
            "or use --engine local."
        ) from error
    if isinstance(result, FairmfuError):
        raise result
    return result


def _why(error: RayError) -> str:
    return str(error).partition("\n")[0].removesuffix(".")


def _lost(path: Path, error: RayError) -> UnreadableSourceError:
    return UnreadableSourceError(
        f"{path}: the worker that read it was lost {MAX_TASK_RETRIES + 1} times ({_why(error)}). "
        "Nothing of it was stored; read it alone with --engine local, "
        "and see how much memory it takes."
    )


# --- in the workers ---------------------------------------------------------------------------


def _read(order: RayJob, files: Sequence[ReadRequest]) -> TaskResult | FairmfuError:
    """Read some files, and write those rows that may be many; or why that cannot be done."""
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
        return StoreError(f"{order.shelf}: {why} (on {host}). {todo}")


def _do(
    sent: tuple[Driver, Callable[[WorkItem], WorkResult]], piece: WorkItem
) -> WorkResult | FairmfuError:
    """What comes of a piece of work, or why it cannot be done."""
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
    return UnreadableSourceError(
        f"{path}: not there on {host}, a node of the cluster. Logs have to be on a file system "
        "that all nodes share, or are read with --engine local."
    )


def _planned(
    order: RayJob, planner: BlockPlanner, chunks: Iterable[Chunk]
) -> Iterator[tuple[Chunk, BlockPlan | None]]:
    """Blocks of a large file, planned by workers that have nothing else to do."""
    idle = _Idle(ray.put(order), planner)
    return chunks_with_plans(planner, chunks, idle.submit, count_cluster_cores() - 1)


class _Idle:
    """Workers that have nothing to do, as long as there are some."""

    def __init__(self, order: ObjectRef[RayJob], planner: BlockPlanner) -> None:
        self._order, self._planner = order, planner
        self._there, self._counted = False, 0.0

    def submit(self, chunk: Chunk) -> _Planned | None:
        """Have an idle worker plan a block; None where there is none."""
        if monotonic() - self._counted > IDLE_COUNT_INTERVAL_S:
            free: dict[str, float] = ray.available_resources()  # type: ignore[no-untyped-call]
            self._there = free.get("CPU", 0) >= 1
            self._counted = monotonic()
        if not self._there:
            return None
        return _Planned(_remote(_plan, 0).remote(self._order, planner_key(self._planner), chunk))


@dataclass(frozen=True, slots=True)
class _Planned:
    """A plan that another worker makes."""

    plan: ObjectRef[BlockPlan]

    def done(self) -> bool:
        """Whether nobody has to be waited for."""
        ready, _ = ray.wait([self.plan], timeout=0)
        return bool(ready)

    def result(self) -> BlockPlan | None:
        """The plan; None where the worker was lost: then whoever asks makes it."""
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
