"""A Ray cluster of two nodes: the same store and night, whatever becomes of its workers."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from fairmfu.ingest.core.errors import ClusterError, StoreError, UnreadableSourceError
from fairmfu.ingest.core.spill import Spool
from fairmfu.ingest.detect.detection import BUILT_IN_CHOICE
from fairmfu.ingest.extract.engine_api import ReadEngine, TaskResult
from fairmfu.ingest.extract.table_batches import LogGroup
from fairmfu.ingest.pipeline.ingest_run import Outcome, ingest_paths
from fairmfu.ingest.store.local_backend import StoreBackend
from fairmfu.ingest.store.parquet_parts import STAGED_TIER, ParquetPart
from fairmfu.ingest.store.staged_parts import StagedPart
from fairmfu.ingest.store.store import Store
from fairmfu.ingest.workers import ray_engine
from fairmfu.ingest.workers.local_engine import LocalEngine
from fairmfu.metrics.pipeline import partitions
from fairmfu.reports.nightly.night_report import Night
from fairmfu.reports.nightly.nightly import NightlyOrder, nightly
from fairmfu.reports.store.metrics_store import METRICS_TABLE
from tests.support.alike import expect_alike, put_logs
from tests.support.effort import thorough_only
from tests.support.folders import ROOT
from tests.support.log_lines import KINDS, write_log
from tests.support.object_server import served
from tests.support.ray_nodes import Nodes, nodes

SAMPLES: Final = sorted((ROOT / "sample_logs").rglob("*.log"))
STATE: Final = ((), BUILT_IN_CHOICE)


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[Nodes]:
    with nodes(2) as made:
        yield made


@pytest.fixture(scope="module")
def engine(two_nodes: Nodes) -> Iterator[ray_engine.RayEngine]:
    with ray_engine.RayEngine(two_nodes.address) as opened:
        yield opened


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Logs, a copy, a compressed one, and files that fail each in its way."""
    return put_logs(tmp_path / "logs")


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """Logs of 300 KB, of all formats by turns."""
    folder = tmp_path / "many"
    folder.mkdir()
    for number in range(20):
        kind = KINDS[number % len(KINDS)]
        write_log(folder / f"{number:02}.log", kind, 300_000, seed=number, at_once=200)
    return folder


def read(paths: list[Path], store: Path, engine: ReadEngine) -> tuple[list[Outcome], Store]:
    told = ingest_paths(paths, Store(store), engine=engine)
    return [one._replace(cost="") for one in told], Store(store)


@pytest.mark.usefixtures("logs")
def test_a_store_is_the_same_whoever_has_read_its_logs(
    tmp_path: Path, engine: ReadEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "MAX_RAY_TASK_FILES", 3)
    monkeypatch.chdir(tmp_path)  # paths are relative to the driver's folder
    paths = [Path("logs"), Path("missing"), *SAMPLES[:2], Path("logs/cc_none.log")]
    told, store = read(paths, tmp_path / "one", LocalEngine())
    same, other = read(paths, tmp_path / "two", engine)
    assert same == told
    assert {one.status for one in told} == {"read", "known", "passed", "failed"}
    expect_alike(store, other)
    again, _ = read(paths, tmp_path / "two", engine)
    # Files that were written a moment before are opened again: known, if reading was quick.
    assert {one.status for one in again} - {"known"} == {"unchanged", "passed", "failed"}


def test_workers_write_the_parts(
    many: Path, tmp_path: Path, engine: ReadEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "MAX_RAY_TASK_BYTES", 1_000_000)
    _, store = read([many], tmp_path / "one", LocalEngine(2))
    _, other = read([many], tmp_path / "two", engine)
    expect_alike(store, other)
    steps = [part for part in other.held().live if part.table_name == "steps"]
    assert len(steps) > 3
    assert {part.tier for part in steps} == {STAGED_TIER}
    assert other.stray_files() == []
    other.compact()
    expect_alike(store, other)


# -- what is lost -----------------------------------------------------------------------------


def workers(task: bytes = b"ray::_read") -> list[int]:
    """Processes of the cluster that read logs now, or have another task."""
    found = []
    for folder in Path("/proc").iterdir():
        with suppress(OSError):
            if folder.name.isdigit() and task in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


@contextmanager
def beside(act: Callable[[], bool]) -> Iterator[list[bool]]:
    """Have something done again and again until that is over; what it said."""
    done, said = threading.Event(), list[bool]()

    def run() -> None:
        while not done.is_set():
            said.append(act())
            time.sleep(0.02)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield said
    finally:
        done.set()
        thread.join()


def test_workers_that_are_killed_lose_nothing(
    many: Path, tmp_path: Path, engine: ReadEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "MAX_RAY_TASK_BYTES", 1_000_000)
    left = 4

    def kill() -> bool:
        nonlocal left
        pids = workers() if left else []
        for pid in pids[:1]:
            time.sleep(0.05 * left)  # at another step each time
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                left -= 1
        return bool(pids)

    _, store = read([many], tmp_path / "one", LocalEngine(2))
    with beside(kill):
        outcomes, other = read([many], tmp_path / "two", engine)
    assert left < 4
    assert {one.status for one in outcomes} == {"read"}
    expect_alike(store, other)


SMALL_TASKS: Final = """
from fairmfu.cli import main
from fairmfu.ingest.workers import ray_engine
from fairmfu.metrics.pipeline import partitions
ray_engine.MAX_RAY_TASK_BYTES = 1_000_000
partitions.MAX_PARTITION_RUNS = 3
main()
"""


def fairmfu(*words: str | Path) -> list[str]:
    return [sys.executable, "-c", SMALL_TASKS, *map(str, words)]


@thorough_only
def test_a_node_that_is_lost_loses_nothing(many: Path, tmp_path: Path) -> None:
    _, store = read([many], tmp_path / "one", LocalEngine(2))
    with nodes(2) as made:
        lost = False

        def lose() -> bool:
            nonlocal lost
            if not lost and len(workers()) > 1:
                made.lose()
                lost = True
            return lost

        where = ("--engine", "ray", "--ray-address", made.address)
        command = fairmfu("ingest", many, "--store", tmp_path / "two", *where)
        with beside(lose) as said:
            told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    assert said[-1], "the node was not lost while it read"
    assert (told.returncode, told.stdout) == (0, ""), told.stderr
    assert "Ray: 2 nodes, 2 cores" in told.stderr
    expect_alike(store, Store(tmp_path / "two"))


def deadly(order: ray_engine.RayJob, files: list[Any]) -> Any:
    """As ray_engine._read, but for a file that kills its worker."""
    import os  # noqa: PLC0415 - it is sent without what stands around it

    if any(path.name == "deadly.log" for path, _ in files):
        os._exit(9)
    return ray_engine._read(order, files)


@thorough_only
def test_a_file_that_kills_workers_is_told_and_the_others_are_read(
    tmp_path: Path, engine: ReadEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadly.__module__ = "__main__"  # so that it is sent, and not looked for there
    monkeypatch.setattr(ray_engine, "_read", deadly)
    monkeypatch.setattr(ray_engine, "MAX_TASK_RETRIES", 1)
    for number, sample in enumerate(SAMPLES[:3]):
        shutil.copy(sample, tmp_path / f"{number}.log")
    shutil.copy(SAMPLES[3], tmp_path / "deadly.log")
    outcomes, store = read([tmp_path], tmp_path / "store", engine)
    told = {one.path.name: one for one in outcomes}
    assert [one.status for one in outcomes].count("read") == 3
    assert told["deadly.log"].status == "failed"
    assert "the worker that read it was lost 2 times" in told["deadly.log"].message
    assert store.table("sources").height == 3


@thorough_only
def test_two_drivers_at_once_store_each_log_once(
    many: Path, tmp_path: Path, two_nodes: Nodes
) -> None:
    _, store = read([many], tmp_path / "one", LocalEngine(2))
    logs = sorted(many.iterdir())
    where = ("--store", tmp_path / "two", "--engine", "ray", "--ray-address", two_nodes.address)
    commands = [fairmfu("ingest", *some, *where) for some in (logs[:14], logs[6:])]
    drivers = [subprocess.Popen(one, cwd=ROOT, stderr=subprocess.PIPE) for one in commands]  # noqa: S603
    errors = [driver.communicate()[1] for driver in drivers]
    assert [driver.returncode for driver in drivers] == [0, 0], errors
    expect_alike(store, Store(tmp_path / "two"))


# -- what is wrong with a cluster -------------------------------------------------------------


def order(store: Path, **changes: Any) -> ray_engine.RayJob:
    return ray_engine.RayJob(
        STATE, StoreBackend(store), ray_engine.Driver(ROOT, **changes), "0123abcd"
    )


def test_another_version_on_a_node_ends_the_command(tmp_path: Path) -> None:
    found = ray_engine._read(order(tmp_path, program="0.0.7"), [(SAMPLES[0], ())])
    assert isinstance(found, ClusterError)
    assert "the driver 0.0.7. Fix: install the same version on all nodes" in str(found)


def test_a_log_that_a_node_does_not_see_is_told(tmp_path: Path) -> None:
    files = [(SAMPLES[0], ()), (tmp_path / "here_only.log", ())]
    found = ray_engine._read(order(tmp_path), files)
    assert isinstance(found, TaskResult)
    _, error = found.each(Spool())
    assert isinstance(error, UnreadableSourceError)
    assert "a file system that all nodes share" in str(error)


def test_a_store_that_is_not_shared_ends_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "FILE_SYNC_TIMEOUT_S", 0)
    path = f"parts/steps/{0:08x}-{0:032x}.parquet"
    part = ParquetPart("steps", path, 0, 0, STAGED_TIER, 1, 1, "")
    read = TaskResult(
        LogGroup({"steps": [StagedPart(StoreBackend(tmp_path), part)]}, [{"steps": 1}]), {}
    )
    with pytest.raises(ClusterError, match="a file system that all nodes share"):
        ray_engine._look_for(read)


def test_a_store_that_cannot_be_written_to_is_told(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    found = ray_engine._read(order(tmp_path / "store"), [(SAMPLES[0], ())])
    assert isinstance(found, Exception)
    assert "cannot be written to" in str(found)


def test_what_ends_the_command_is_no_fault_of_a_file(tmp_path: Path) -> None:
    class Broken(LocalEngine):
        def reading(self, *given: Any) -> Any:
            reading = super().reading(*given)
            reading.take = self.take
            return reading

        def take(self, *_: Any) -> None:
            raise ClusterError("no node is left")

    with pytest.raises(ClusterError, match="no node is left"):
        read(SAMPLES[:2], tmp_path, Broken())


# -- metrics ----------------------------------------------------------------------------------


def night(logs: Path, folder: Path, engine: ReadEngine) -> tuple[Night, pl.DataFrame]:
    """A first night of these logs, and what is kept of their metrics."""
    store = Store(folder / "store")
    told, _ = nightly(NightlyOrder(sources=[logs], store=store, out=folder / "out", engine=engine))
    kept = store.kept(METRICS_TABLE, latest_by=("run_id",)).drop("as_of").sort("run_id")
    return told, kept.select(sorted(kept.columns))


def expect_same_night(one: tuple[Night, pl.DataFrame], other: tuple[Night, pl.DataFrame]) -> None:
    assert_frame_equal(one[1], other[1], check_exact=True)
    assert_frame_equal(one[0].tonight, other[0].tonight, check_exact=True)
    assert one[0].comparison == other[0].comparison
    assert one[0].runs_page == other[0].runs_page == "runs.html"


def test_metrics_are_the_same_whoever_computes_them(
    tmp_path: Path, engine: ReadEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of one launch come into two partitions, and are one all the same."""
    logs, monitored = tmp_path / "logs", SAMPLES[1].parent
    for folder in (monitored.parent, ROOT / "sample_logs/synthetic", ROOT / "sample_logs/h200"):
        shutil.copytree(folder, logs / folder.name)
    twin = logs / "zzz_twin" / "again.log"
    twin.parent.mkdir()
    twin.write_text(f"a line before\n{(monitored / 'run.log').read_text()}")
    alone = night(logs, tmp_path / "one", LocalEngine())
    monkeypatch.setattr(partitions, "MAX_PARTITION_RUNS", 2)
    tasks: list[tuple[str, int]] = []

    def each(work: Any, pieces: Any) -> Any:
        tasks.append((work.func.__name__, len(pieces)))
        return ray_engine.RayEngine.each(engine, work, pieces)  # type: ignore[arg-type]

    monkeypatch.setattr(engine, "each", each)
    apart = night(logs, tmp_path / "two", engine)
    assert [name for name, _ in tasks[:3]] == ["_alone", "_across", "_alone"]
    assert tasks[0][1] > 5
    # The console, the copy of it with one line more, and two companions.
    assert apart[0].tonight["members"].list.len().max() == 4
    expect_same_night(alone, apart)


@thorough_only
def test_workers_that_are_killed_lose_no_metrics(
    logs: Path, tmp_path: Path, engine: ReadEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = night(logs, tmp_path / "one", LocalEngine())
    monkeypatch.setattr(partitions, "MAX_PARTITION_RUNS", 2)
    left = 2

    def kill() -> bool:
        nonlocal left
        for pid in workers(b"ray::_do")[:left]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                left -= 1
        return left < 2

    with beside(kill):
        apart = night(logs, tmp_path / "two", engine)
    assert left < 2
    expect_same_night(alone, apart)


@thorough_only
def test_a_night_of_logs_and_a_store_at_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRMFU_CACHE", str(tmp_path / "cache"))
    logs = tmp_path / "logs"
    logs.mkdir()
    for number, sample in enumerate(SAMPLES[:5]):
        shutil.copy(sample, logs / f"{number}.log")
    with served(tmp_path / "none") as buckets:  # the nodes see the environment of then
        bucket = buckets()
        bucket.put_all(logs, "logs")
        _, kept = night(bucket.at("logs"), tmp_path / "one", LocalEngine())
        with nodes(2) as made:
            where = ("--engine", "ray", "--ray-address", made.address)
            stored = ("--store", f"{bucket.url}/store", "--out", tmp_path / "out")
            command = fairmfu("nightly", f"{bucket.url}/logs", *stored, *where)
            told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
        assert told.returncode == 0, told.stderr
        assert (tmp_path / "out" / "runs.html").exists()
        store = Store(bucket.at("store"))
        here = Store(tmp_path / "one" / "store")
        for table in ("steps", "events", "runs"):
            assert store.table(table).equals(here.table(table)), table
        there = store.kept(METRICS_TABLE, latest_by=("run_id",)).sort("run_id").select(kept.columns)
        assert_frame_equal(kept, there, check_exact=True)


def test_work_that_cannot_be_done_is_told(
    engine: ReadEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "MAX_TASK_RETRIES", 0)

    def work(number: int) -> int:
        if number == 2:
            raise StoreError("a part is gone")
        if number == 3:
            os._exit(9)
        return 10 * number

    assert list(engine.each(work, [4, 5, 6, 7])) == [40, 50, 60, 70]
    with pytest.raises(StoreError, match="a part is gone"):
        list(engine.each(work, [1, 2]))
    with pytest.raises(ClusterError, match="was lost 1 times"):
        list(engine.each(work, [1, 3]))


@thorough_only
def test_an_error_is_told_whatever_other_pieces_do_meanwhile(engine: ReadEngine) -> None:
    """Ray ended this process where a piece was cancelled at the moment of its answer."""

    def work(number: int) -> int:
        if number == 2:
            raise StoreError("a part is gone")
        return number

    for _ in range(1_000):
        with pytest.raises(StoreError, match="a part is gone"):
            list(engine.each(work, [2, 1, 3, 4]))


# -- large files ------------------------------------------------------------------------------


@thorough_only
@pytest.mark.usefixtures("engine")
def test_blocks_of_a_large_file_are_planned_by_idle_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_engine, "MIN_RAY_BYTES_TO_PLAN", 0)
    log = tmp_path / "run.log"
    write_log(log, KINDS[0], 12_000_000)
    plans, result = [], ray_engine._Planned.result

    def kept(planned: ray_engine._Planned) -> Any:
        plans.append(result(planned))
        return plans[-1]

    monkeypatch.setattr(ray_engine._Planned, "result", kept)
    (tables,) = ray_engine._read(order(tmp_path / "two"), [(log, ())]).each(Spool())  # type: ignore[union-attr]
    assert not isinstance(tables, Exception)
    assert any(plan is not None for plan in plans)
    _, store = read([log], tmp_path / "one", LocalEngine())
    other = Store(tmp_path / "two")
    other.add([tables])
    expect_alike(store, other)


# -- the command ------------------------------------------------------------------------------


def test_a_cluster_that_is_not_there_is_told(tmp_path: Path) -> None:
    where = ("--engine", "ray", "--ray-address", "127.0.0.1:1")
    command = fairmfu("ingest", SAMPLES[0], "--store", tmp_path, *where)
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    assert told.returncode == 1
    assert "Error: Ray: no cluster at 127.0.0.1:1" in told.stderr
    assert "Traceback" not in told.stderr
