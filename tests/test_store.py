"""The parts are the truth, a batch is there whole or not at all, and readers only read."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from ingest import intake
from ingest import store as store_module
from ingest.errors import StoreError
from ingest.facts import from_flags
from ingest.schema import TABLES
from ingest.store import Store
from metrics.inputs import holding


def state(store: Store) -> dict[str, pl.DataFrame]:
    """All tables; the order of facts within a run counts, their numbers do not."""
    with store._reading() as con:
        tables = {
            name: con.sql(f"from {name} order by {store_module.ORDER[name]}").pl()
            for name in TABLES
        }
    tables["facts"] = tables["facts"].drop("sequence")
    return tables


def assert_same(store: Store, before: dict[str, pl.DataFrame]) -> None:
    for name, frame in state(store).items():
        assert_frame_equal(frame, before[name])


@pytest.fixture
def log(logs: Path, titan: Callable[..., str]) -> Path:
    path = logs / "a.log"
    path.write_text(titan() + "step: 4  loss: 1.0  memory: lots\n" + "validate step: 4\nother\n")
    return path


@pytest.fixture
def full(store: Store, log: Path, ingest: Callable[..., object]) -> Store:
    """A store that holds `log`."""
    ingest(log)
    return store


def test_a_stored_log_fills_every_table(full: Store) -> None:
    heights = {name: full.table(name).height for name in TABLES}
    assert heights.pop("facts") > 0
    assert heights == {"sources": 1, "runs": 1, "steps": 3, "events": 1, "unread": 1}


def test_ingesting_twice_is_ingesting_once(
    full: Store, log: Path, ingest: Callable[..., list]
) -> None:
    before = state(full)
    parts = sorted(full.path.rglob("*.parquet"))
    assert [outcome.status for outcome in ingest(log)] == ["known"]
    assert_same(full, before)
    assert sorted(full.path.rglob("*.parquet")) == parts


def test_a_copy_of_a_known_log_is_known(
    full: Store, log: Path, ingest: Callable[..., list]
) -> None:
    before = state(full)
    copy = shutil.copy(log, log.with_name("copy.log"))
    assert [outcome.status for outcome in ingest(Path(copy), log)] == ["known", "known"]
    assert_same(full, before)


@pytest.mark.parametrize("steps", [5, 2], ids=["grown", "changed"])
def test_a_file_that_changed_replaces_its_rows(
    steps: int,
    full: Store,
    log: Path,
    titan: Callable[..., str],
    ingest: Callable[..., object],
) -> None:
    log.write_text(titan(steps))
    ingest(log)
    assert full.table("steps")["step"].to_list() == list(range(1, steps + 1))
    assert full.table("sources").height == full.table("runs").height == 1
    assert full.table("unread").is_empty()


def test_a_file_that_goes_back_to_earlier_content_is_read_again(
    full: Store, log: Path, titan: Callable[..., str], ingest: Callable[..., object]
) -> None:
    before, first = state(full), log.read_text()
    for text in (titan(9), first):
        log.write_text(text)
        ingest(log)
        full.rebuild()
    assert_same(full, before)


def test_files_of_other_paths_stay(
    full: Store, log: Path, titan: Callable[..., str], ingest: Callable[..., object]
) -> None:
    other = log.with_name("b.log")
    other.write_text(titan(4, loss=9.0))
    ingest(other)
    log.write_text(titan(5))
    ingest(log)
    assert full.table("runs")["name"].to_list() == ["a", "b"]
    assert full.table("steps").height == 9


def test_facts_given_later_hold_and_survive_a_rebuild(full: Store) -> None:
    (run,) = full.table("runs")["run_id"]
    assert full.give({run: from_flags(["gpus=8"])}) == 1
    assert full.give({run: from_flags(["gpus=16", "seq_len=4096"])}) == 2
    before = state(full)
    held = dict(holding(full.table("facts")).select("name", "value").iter_rows())
    assert (held["gpus"], held["seq_len"]) == ("16", "4096")
    full.rebuild()
    assert_same(full, before)


def test_a_fact_given_back_to_its_first_value_holds(full: Store) -> None:
    (run,) = full.table("runs")["run_id"]
    for value in (8, 16, 8):
        full.give({run: from_flags([f"gpus={value}"])})
    held = holding(full.table("facts")).filter(name="gpus")
    assert held["value"].to_list() == ["8"]


def test_a_fact_given_twice_is_stored_once(full: Store) -> None:
    (run,) = full.table("runs")["run_id"]
    assert [full.give({run: from_flags(["gpus=8"])}) for _ in range(2)] == [1, 0]


def test_facts_given_with_a_known_log_are_added(
    full: Store, log: Path, ingest: Callable[..., object]
) -> None:
    ingest(log, extra=from_flags(["gpus=8"]))
    assert holding(full.table("facts")).filter(name="gpus", origin="flag").height == 1


def test_given_facts_stay_when_the_file_grows(
    full: Store, log: Path, titan: Callable[..., str], ingest: Callable[..., object]
) -> None:
    (run,) = full.table("runs")["run_id"]
    full.give({run: from_flags(["gpus=8"])})
    log.write_text(log.read_text() + titan(5))
    ingest(log)
    assert full.table("runs")["run_id"].to_list() == [run]
    assert holding(full.table("facts")).filter(name="gpus")["value"].to_list() == ["8"]
    before = state(full)
    full.rebuild()
    assert_same(full, before)


def test_facts_of_a_run_that_is_gone_go_with_it(
    full: Store, log: Path, titan: Callable[..., str], ingest: Callable[..., object]
) -> None:
    full.give({run: from_flags(["gpus=8"]) for run in full.table("runs")["run_id"]})
    log.write_text(titan(loss=9.0))
    ingest(log)
    assert set(full.table("facts")["run_id"]) == set(full.table("runs")["run_id"])
    assert holding(full.table("facts")).filter(name="gpus").is_empty()


def test_a_rebuild_gives_equal_tables(
    full: Store, log: Path, titan: Callable[..., str], ingest: Callable[..., object]
) -> None:
    log.write_text(titan(6))
    ingest(log)
    before = state(full)
    (full.path / store_module.CATALOGUE).unlink()
    full.rebuild()
    assert_same(full, before)


def test_a_lost_catalogue_says_how_to_make_it_anew(
    full: Store, log: Path, titan: Callable[..., str], ingest: Callable[..., object]
) -> None:
    before = state(full)
    (full.path / store_module.CATALOGUE).unlink()
    log.write_text(titan(6))
    for use in (lambda: full.table("runs"), lambda: full.query("select 1"), lambda: ingest(log)):
        with pytest.raises(StoreError, match="fairmfu rebuild"):
            use()
    full.rebuild()
    assert_same(full, before)


def test_a_damaged_catalogue_says_how_to_make_it_anew(full: Store) -> None:
    before = state(full)
    (full.path / store_module.CATALOGUE).write_bytes(b"no database" * 999)
    with pytest.raises(StoreError, match="fairmfu rebuild"):
        full.table("runs")
    full.rebuild()
    assert_same(full, before)


def test_a_store_that_is_not_there_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nowhere: no store here.*fairmfu ingest"):
        Store(tmp_path / "nowhere").table("runs")
    assert not (tmp_path / "nowhere").exists()


def test_a_query_is_answered(full: Store) -> None:
    rows = full.query("select name, count(*) n from runs join steps using (run_id) group by all")
    assert rows.rows() == [("a", 3)]
    frame = pl.DataFrame({"name": ["a"], "mfu": [0.5]})
    assert full.query("select mfu from m join runs using (name)", {"m": frame}).rows() == [(0.5,)]


@pytest.fixture(scope="module")
def queried(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """One store for all the queries that may not change it."""
    folder = tmp_path_factory.mktemp("queried")
    (folder / "a.log").write_text("step:  1  loss:  5.0  memory:  1.5GiB(3.00%)  tps: 100\n")
    store = Store(folder / "store")
    intake.ingest([folder / "a.log"], store)
    return store


@pytest.mark.parametrize(
    "sql",
    [
        "copy runs to '{out}'",
        "copy (select 1) to '{out}' (format parquet)",
        "attach '{out}' as other",
        "insert into runs by name select * from runs",
        "delete from facts",
        "drop table runs",
        "create table mine as select 1",
        "set enable_external_access = true",
        "pragma database_list",
        "install httpfs",
        "select 1; select 2",
        "select 1; drop table runs",
        "select * from read_csv('/etc/passwd')",
        "select * from read_text('/etc/passwd')",
        "select * from glob('/etc/*')",
        "from '/etc/passwd'",
        "with x as (insert into runs by name select * from runs returning 1) from x",
        "select * from nothing_there",
        "selct 1",
        "",
    ],
)
def test_a_query_only_reads_the_store(sql: str, queried: Store) -> None:
    folder = queried.path.parent
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(StoreError):
        queried.query(sql.format(out=folder / "out"))
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_second_writer_waits_and_then_names_the_holder(
    full: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "LOCK_PATIENCE_S", 0.2)
    with full._writing():
        began = time.monotonic()
        with pytest.raises(StoreError, match=rf"process {os.getpid()} is writing"):
            Store(full.path).rebuild()
        assert time.monotonic() - began >= 0.2
        assert full.table("runs").height == 1
    Store(full.path).rebuild()


def _write(path: Path, log: Path) -> None:
    intake.ingest([log], Store(path))


def test_writers_of_several_processes_lose_nothing(
    store: Store, logs: Path, titan: Callable[..., str]
) -> None:
    spawn = multiprocessing.get_context("spawn")
    writers = []
    for number in range(2):
        log = logs / f"{number}.log"
        log.write_text(titan(3, loss=5.0 + number))
        writers.append(spawn.Process(target=_write, args=(store.path, log)))
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert store.table("runs")["name"].to_list() == ["0", "1"]
    assert store.table("steps").height == 6


class CrashError(RuntimeError):
    pass


def crash(*_: object) -> None:
    raise CrashError


@pytest.fixture
def break_off(ingest: Callable[..., list], monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Ingest a log and crash where the store calls its method of that name."""

    def run(log: Path, method: str, broken: Callable[..., object] = crash) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Store, method, broken)
            with pytest.raises(CrashError):
                ingest(log)

    return run


@pytest.fixture(params=[0, 1], ids=["first", "later"])
def lost(
    request: pytest.FixtureRequest,
    log: Path,
    break_off: Callable[..., None],
    ingest: Callable[..., list],
) -> Path:
    """A log whose parts were written and not registered: the store's first, or one more."""
    if request.param:
        ingest(log)
    path = log.with_name("lost.log")
    path.write_text(log.read_text().replace("loss:  4", "loss:  3"))
    break_off(path, "_register")
    return path


def test_a_crash_before_the_catalogue_leaves_the_old_state(
    lost: Path, store: Store, log: Path, ingest: Callable[..., list]
) -> None:
    assert str(lost) not in store.known_sources().values()
    assert next(iter(ingest(lost, log))).status == "read"
    assert store.table("runs")["name"].to_list() == ["a", "lost"]
    assert store.table("steps").height == 6


def test_a_rebuild_after_a_crash_gives_the_old_state_or_the_new(lost: Path, store: Store) -> None:
    known = len(store.known_sources())
    store.rebuild()
    runs = store.table("runs").height
    assert lost.exists()
    assert known <= runs <= known + 1
    assert store.table("steps").height == 3 * runs


def test_a_rebuild_knows_nothing_of_a_batch_that_was_made_anew(
    lost: Path, store: Store, log: Path, ingest: Callable[..., list]
) -> None:
    lost.write_text(log.read_text().replace("loss:  4", "loss:  2"))
    ingest(lost, log)
    before = state(store)
    store.rebuild()
    assert_same(store, before)


def test_a_crash_between_two_parts_is_never_half_a_log(
    full: Store, log: Path, titan: Callable[..., str], break_off: Callable[..., None]
) -> None:
    before = state(full)
    log.write_text(titan(7))
    write, written = Store._write_part, []

    def write_some(*arguments: object) -> object:
        written.append(arguments)
        return write(*arguments) if len(written) < 4 else crash()

    break_off(log, "_write_part", write_some)
    assert len(written) == 4
    full.rebuild()
    assert_same(full, before)


def test_a_part_that_is_gone_is_named(full: Store) -> None:
    part = next(full.path.rglob("steps/*.parquet"))
    part.unlink()
    with pytest.raises(StoreError, match=part.name):
        full.rebuild()


def test_a_part_of_another_schema_is_refused_by_name(full: Store) -> None:
    part = next(full.path.rglob("steps/*.parquet"))
    pl.read_parquet(part).write_parquet(part, metadata={"fairmfu.schema": "0"})
    with pytest.raises(StoreError, match=rf"{part.name}: written with schema 0"):
        full.rebuild()


def test_a_store_may_have_an_odd_name(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store(Path("it's a 100% ü") / "store")
    intake.ingest([log], store)
    store.rebuild()
    assert store.table("steps").height == 3


@pytest.mark.parametrize("name", ["[1]", "what?", "a*"])
def test_a_store_whose_name_is_a_pattern_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="may not hold"):
        Store(tmp_path / name / "store")
