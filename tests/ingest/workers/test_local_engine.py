"""Logs read by other processes: the same store, whatever becomes of these processes."""

from __future__ import annotations

import gzip
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import wait
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from fairmfu.ingest.core.errors import StoreError
from fairmfu.ingest.core.schema import READING_COSTS
from fairmfu.ingest.core.spill import PackedFrame, Spool, SpooledFrame, collect_rows
from fairmfu.ingest.decode import line_reader
from fairmfu.ingest.decode.line_reader import Chunk
from fairmfu.ingest.detect import detection
from fairmfu.ingest.detect.detection import BUILT_IN_CHOICE, FormatChoice
from fairmfu.ingest.detect.messages import SEVERAL_FORMATS
from fairmfu.ingest.detect.user_formats import load_user_format
from fairmfu.ingest.extract import engine_api
from fairmfu.ingest.extract.discovery import FileWalk, LogFile
from fairmfu.ingest.extract.engine_api import PendingPlan
from fairmfu.ingest.formats.megatron.console import MEGATRON_DEEPSPEED
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.pipeline.ingest_run import Outcome, ingest_paths
from fairmfu.ingest.store.store import Store
from fairmfu.ingest.vector.block_plan import BlockPlan
from fairmfu.ingest.workers import local_engine
from fairmfu.ingest.workers.local_engine import LocalEngine, LocalSession
from fairmfu.ingest.workers.shared_memory import SharedSlots
from tests.support.alike import put_logs
from tests.support.effort import THOROUGH
from tests.support.folders import ROOT
from tests.support.log_lines import BY_NAME, KINDS, Kind, write_log

SAMPLES = sorted((ROOT / "sample_logs").rglob("*.log"))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are started for the first file, and get few at a time."""
    monkeypatch.setattr(local_engine, "MIN_BYTES_FOR_PROCESSES", 0)
    monkeypatch.setattr(local_engine, "MAX_LOCAL_TASK_FILES", 3)
    monkeypatch.setattr(local_engine, "AHEAD_BYTES_PER_PROCESS", 100_000)


def read(paths: list[Path], store: Path, processes: int) -> tuple[list[Outcome], Store]:
    told = ingest_paths(paths, Store(store), engine=LocalEngine(processes))
    return [one._replace(cost="") for one in told], Store(store)


def test_a_store_is_the_same_whoever_has_read_its_logs(
    some: Path, alone: tuple[list[Outcome], Store], tmp_path: Path
) -> None:
    told, store = alone
    same, other = read(given_of(some), tmp_path / "two", 2)
    assert same == told
    assert {one.status for one in told} == {"read", "known", "passed", "failed"}
    for name in ("runs", "steps", "facts", "events", "unread"):
        assert other.table(name).equals(store.table(name)), name
    sources = [s.table("sources").drop("read_at", *READING_COSTS) for s in (store, other)]
    assert sources[0].equals(sources[1])


def test_what_other_processes_get_comes_whole() -> None:
    own = [
        load_user_format(path).log_format
        for path in (ROOT / "tests" / "own_formats").glob("*.toml")
    ]
    tried = FormatChoice((*BUILT_IN_FORMATS, *own))
    again: FormatChoice = pickle.loads(pickle.dumps(tried))  # noqa: S301 - ours
    assert [f.name for f in again.formats] == [f.name for f in tried.formats]
    error = SEVERAL_FORMATS(path="a.log", count=2, lines="")
    again_error = pickle.loads(pickle.dumps(error))  # noqa: S301 - ours
    assert (str(again_error), again_error.kind) == (str(error), "several-formats")
    assert again_error.recognised


def found(paths: list[Path]) -> list[LogFile]:
    walk = FileWalk(BUILT_IN_CHOICE.formats, ())
    return [one for path in paths for one in walk.of(path)]


def offered(pool: LocalSession, paths: list[Path]) -> Iterator[LogFile]:
    return pool.before(found(paths), lambda one: (Path(one.path), ()))


@pytest.fixture(scope="module")
def shared() -> Iterator[LocalSession]:
    """A session of tests that leave nothing in it: its process takes a second to start."""
    with LocalSession(2, ((), BUILT_IN_CHOICE)) as pool:
        yield pool


def test_a_process_that_dies_leaves_its_files_to_who_asks() -> None:
    with LocalSession(2, ((), BUILT_IN_CHOICE)) as pool:
        first, *rest = offered(pool, SAMPLES[:4])
        assert pool.take(first, ()) is not None
        for pid in list(pool._pool._processes):  # type: ignore[union-attr]
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.5)
        more = list(offered(pool, SAMPLES[4:]))
        assert [pool.take(one, ()) for one in more] == [None] * len(more)
        assert rest


def test_what_was_handed_over_and_is_not_whole_is_read_by_who_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lost(*_: object) -> bytes:
        raise OSError("0 of 1 bytes")

    monkeypatch.setattr(SharedSlots, "get", lost)
    with LocalSession(2, ((), BUILT_IN_CHOICE)) as pool:
        files = list(offered(pool, SAMPLES[:4]))
        taken = [pool.take(one, ()) for one in files]
        given = list(pool._owed)
    assert len(given) >= 1
    assert sum(tables is None for tables in taken) >= len(given)


def test_a_disk_that_was_full_for_a_moment_costs_no_other_file(
    shared: LocalSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one task has read is not taken for that of another that has its place by then."""
    take, tries = Spool.take, iter([True])

    def full(spool: Spool, packed: PackedFrame) -> SpooledFrame:
        if next(tries, False):
            raise StoreError("no room")
        return take(spool, packed)

    monkeypatch.setattr(Spool, "take", full)
    told: list[str] = []
    for one in offered(shared, SAMPLES[:12]):
        try:
            tables = shared.take(one, ())
        except StoreError:
            told.append("full")
        else:
            assert tables is None or collect_rows(tables["sources"])["path"].to_list() == [one.path]
            told.append("left" if tables is None else "read")
        shared.forget(one)
    assert told.count("full") == 1
    assert told.count("read") >= 3


def test_places_of_what_nobody_asked_for_are_free_again(shared: LocalSession) -> None:
    """Of copies only the first one is read."""
    for one in offered(shared, SAMPLES[:12]):
        shared.forget(one)
    assert shared._owed
    while shared._given:
        wait([one.future for one in shared._given if isinstance(one, local_engine._Handed)])
        shared._give_out()
    assert not shared._left
    assert shared._owed == set()


def test_what_was_read_with_other_facts_is_not_taken(shared: LocalSession) -> None:
    fact = {"name": "gpus", "value": "8", "origin": "config", "line": None, "text": None}
    (one,) = offered(shared, SAMPLES[:1])
    assert shared.take(one, [fact]) is None
    assert shared.take(one, ()) is not None
    shared.forget(one)
    assert shared.take(one, ()) is None


SLEEPER = """
import sys, time
from pathlib import Path
from typing import Final
from fairmfu.ingest.workers import local_engine
from fairmfu.ingest.detect.detection import BUILT_IN_CHOICE
from fairmfu.ingest.extract.discovery import FileWalk
local_engine.MIN_BYTES_FOR_PROCESSES = 0
pool = local_engine.LocalSession(2, ((), BUILT_IN_CHOICE))
found = FileWalk(BUILT_IN_CHOICE.formats, ()).of(Path(sys.argv[1]))
files = list(pool.before(found, lambda one: (Path(one.path), ())))
assert pool.take(files[0], ()) is not None
print(*pool._pool._processes, flush=True)
time.sleep(600)
"""


def test_processes_end_with_the_one_that_started_them() -> None:
    command = [sys.executable, "-c", SLEEPER, str(SAMPLES[0])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as parent:  # noqa: S603
        assert parent.stdout is not None
        children = [int(pid) for pid in parent.stdout.readline().split()]
        parent.kill()
    assert children
    deadline = time.monotonic() + 30
    while any(map(alive, children)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(alive, children))


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.fixture
def by_blocks(monkeypatch: pytest.MonkeyPatch) -> list[BlockPlan | None]:
    """Each file counts as a large one; the plans that came of its blocks."""
    plans: list[BlockPlan | None] = []
    start, planned = LocalSession._start, engine_api._planned

    def started(pool: LocalSession) -> None:
        start(pool)
        pool._ready.result()  # small files would be read before

    def kept(chunk: Chunk, plan: PendingPlan | BlockPlan | None) -> tuple[Chunk, BlockPlan | None]:
        plans.append(planned(chunk, plan)[1])
        return chunk, plans[-1]

    monkeypatch.setattr(local_engine, "MAX_FILE_BYTES", -1)
    monkeypatch.setattr(local_engine, "MIN_FILE_BYTES_TO_PLAN", 0)
    monkeypatch.setattr(local_engine, "_cores", lambda: 8)
    monkeypatch.setattr(line_reader, "READ_BLOCK_BYTES", 3_001)
    monkeypatch.setattr(detection, "MIN_BEGINNING_BYTES", 3_000)
    monkeypatch.setattr(LocalSession, "_start", started)
    monkeypatch.setattr(engine_api, "_planned", kept)
    return plans


@pytest.fixture(scope="module")
def some(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs, a copy, a compressed one, and files that fail each in its way; nobody changes them."""
    folder = put_logs(tmp_path_factory.mktemp("some") / "logs")
    for other in (folder / "h100", folder / "h200", *(folder / "genuine").glob("*-*")):
        if other.name not in ("torchtitan-0.2.2", "xtuner-0.1.11"):
            shutil.rmtree(other)
    return folder


def given_of(some: Path) -> list[Path]:
    """Paths of the folder, of what is not there, and of what it holds already."""
    return [some, some.parent / "missing", *SAMPLES[:2], some / "cc_none.log"]


@pytest.fixture(scope="module")
def alone(some: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Outcome], Store]:
    """What one process tells of them, and the store it made."""
    return read(given_of(some), tmp_path_factory.mktemp("alone") / "store", 1)


def same_tables(one: Store, other: Store) -> bool:
    names = ("runs", "steps", "facts", "events", "unread")
    return all(one.table(name).equals(other.table(name)) for name in names)


def test_blocks_that_others_have_planned_come_to_the_same(
    some: Path,
    alone: tuple[list[Outcome], Store],
    tmp_path: Path,
    by_blocks: list[BlockPlan | None],
) -> None:
    told, store = alone
    assert not any(by_blocks)
    same, other = read(given_of(some), tmp_path / "two", 2)
    assert same == told
    assert same_tables(store, other)
    assert sum(plan is not None for plan in by_blocks) > len(told) > 10


def test_of_two_cores_none_is_left_for_the_blocks_of_others(
    some: Path,
    alone: tuple[list[Outcome], Store],
    tmp_path: Path,
    by_blocks: list[BlockPlan | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_engine, "_cores", lambda: 2)
    told, store = alone
    same, other = read(given_of(some), tmp_path / "two", 2)
    assert same == told
    assert same_tables(store, other)
    assert not any(by_blocks)


def test_a_log_that_turns_out_to_be_a_trainers_is_begun_again(
    tmp_path: Path, by_blocks: list[BlockPlan | None]
) -> None:
    kind, log = BY_NAME["deepspeed"], tmp_path / "run.log"
    write_log(log, kind, 60_000, at_once=100)
    log.write_text(f"{log.read_text()}{MEGATRON_DEEPSPEED.steps[0].example}\n")
    told, store = read([log], tmp_path / "one", 1)
    by_blocks.clear()
    same, other = read([log], tmp_path / "two", 2)
    assert same == told
    assert same_tables(store, other)
    assert store.table("runs")["log_format"].to_list() == [MEGATRON_DEEPSPEED.name]
    assert len(by_blocks) > 2 * log.stat().st_size // 3_001 - 4  # some are read ahead
    assert by_blocks[-2] is not None


def test_blocks_of_a_process_that_dies_are_planned_by_who_asks(
    tmp_path: Path, by_blocks: list[BlockPlan | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = max(SAMPLES, key=lambda path: path.stat().st_size)
    _, store = read([log], tmp_path / "one", 1)
    by_blocks.clear()
    kept = engine_api._planned

    def killing(
        chunk: Chunk, plan: PendingPlan | BlockPlan | None
    ) -> tuple[Chunk, BlockPlan | None]:
        found = kept(chunk, plan)
        if len(by_blocks) == 1:
            for child in multiprocessing.active_children():
                child.kill()
                child.join()
        return found

    monkeypatch.setattr(engine_api, "_planned", killing)
    _, other = read([log], tmp_path / "two", 2)
    assert same_tables(store, other)
    assert by_blocks[0] is not None
    assert by_blocks[-1] is None


def test_blocks_and_plans_that_have_no_room_come_to_the_same(
    some: Path,
    alone: tuple[list[Outcome], Store],
    tmp_path: Path,
    by_blocks: list[BlockPlan | None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told, store = alone
    for room in (0, 3_100):  # of no block; of blocks, but of few plans
        by_blocks.clear()
        monkeypatch.setattr(local_engine, "SharedSlots", partial(SharedSlots, room))
        same, other = read(given_of(some), tmp_path / f"of{room}", 2)
        assert same == told
        assert same_tables(store, other)
        assert any(by_blocks) == bool(room)


@pytest.mark.parametrize("in_memory", [True, False])
def test_what_is_handed_over_is_whole(*, in_memory: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not in_memory:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    handover = SharedSlots(1_000)
    assert [handover.put(place, bytes([place]) * 1_000) for place in range(4)] == [True] * 4
    assert handover.put(1, b"less")
    assert not handover.put(2, bytes(1_001))
    assert (handover.get(1, 4), handover.get(1, 5)) == (b"less", b"less\1")
    assert handover.get(2, 1_000) == b"\2" * 1_000
    with pytest.raises(OSError, match="0 of 1 bytes"):
        handover.get(4, 1)


def test_a_file_that_breaks_off_leaves_room_for_the_next(
    tmp_path: Path, by_blocks: list[BlockPlan | None]
) -> None:
    whole = max(SAMPLES, key=lambda path: path.stat().st_size)
    packed = gzip.compress(whole.read_bytes())
    for number in range(4):
        (tmp_path / f"a{number}.log.gz").write_bytes(packed[: -400 - number])
    shutil.copy(whole, tmp_path / "b.log")
    told, store = read([tmp_path], tmp_path / "one", 1)
    assert [one.status for one in told] == ["failed"] * 4 + ["read"]
    by_blocks.clear()
    same, other = read([tmp_path], tmp_path / "two", 2)
    assert same == told
    assert same_tables(store, other)
    assert by_blocks[-1] is not None


SENT: Final = """
import sys
from multiprocessing.reduction import ForkingPickler
from fairmfu.ingest.vector.block_plan import BlockPlanner
from fairmfu.ingest.parse.line_matcher import line_matcher
from fairmfu.ingest.detect.detection import BUILT_IN_CHOICE
from fairmfu.ingest.vector.line_block import LineBlock
form = next(one for one in BUILT_IN_CHOICE.formats if one.name == sys.argv[1])
planner = BlockPlanner(line_matcher(form, ()))
rows = 0
with open(sys.argv[2], "rb") as log:
    while lines := b"".join(log.readlines(1_000_000)):
        plan = planner.plan(LineBlock(1, lines))
        rows += plan.frame.height
        ForkingPickler.dumps(plan)
print(rows)
"""


@pytest.mark.parametrize("kind", KINDS if THOROUGH else KINDS[:1], ids=lambda kind: kind.log_format)
def test_plans_of_a_large_log_can_be_sent(kind: Kind, tmp_path: Path) -> None:
    """Polars' own pickling waits for its threads with Python's lock: see arrays.owned."""
    rows = write_log(tmp_path / "run.log", kind, 8_000_000 if THOROUGH else 4_000_000)
    command = [sys.executable, "-c", SENT, kind.log_format, tmp_path / "run.log"]
    alone = {**os.environ, "POLARS_MAX_THREADS": "1"}
    told = subprocess.check_output(command, cwd=ROOT, env=alone, timeout=60)  # noqa: S603
    assert 0 < int(told) <= rows
