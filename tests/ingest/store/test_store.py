"""The parts are the truth, a batch is there whole or not at all, and readers only read."""

from __future__ import annotations

import multiprocessing
import os
import re
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from fairmfu.ingest.core.errors import StoreError
from fairmfu.ingest.core.schema import TABLES
from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.ingest.pipeline import ingest_run
from fairmfu.ingest.pipeline.messages import KNOWN_COPY, OTHER_RUN
from fairmfu.ingest.store import catalogue, changeset, lock, parquet_parts
from fairmfu.ingest.store import store as store_module
from fairmfu.ingest.store.store import KnownFolders, Store
from fairmfu.metrics.throughput.resolved_facts import resolve_facts
from tests.support.effort import THOROUGH
from tests.support.error_kinds import of_kind
from tests.support.prepared import emptied, prepare
from tests.support.shared_databases import own_readers


def state(store: Store) -> dict[str, pl.DataFrame]:
    """All tables; the order of facts within a run counts, their numbers do not."""
    with store._reading() as con:
        tables = {
            name: con.sql(f"from {name} order by {store_module.TABLE_ORDER[name]}").pl()
            for name in TABLES
        }
    tables["facts"] = tables["facts"].drop("sequence")
    return tables


def assert_same(store: Store, before: dict[str, pl.DataFrame]) -> None:
    for name, frame in state(store).items():
        assert_frame_equal(frame, before[name])


def held(store: Store) -> dict[str, dict[str, str]]:
    """By name of the run, the facts that hold and that its log does not state."""
    facts = resolve_facts(store.table("facts")).join(store.table("runs"), on="run_id")
    outside = facts.filter(pl.col("origin").str.contains("^(flag|sidecar|companion)"))
    found: dict[str, dict[str, str]] = {name: {} for name in store.table("runs")["name"]}
    for run, name, value in outside.select("name_right", "name", "value").iter_rows():
        found[run][name] = value
    return found


@pytest.fixture
def log(logs: Path, titan: Callable[..., str]) -> Path:
    path = logs / "a.log"
    path.write_text(titan() + "step: 4  loss: 1.0  memory: lots\n" + "validate step: 4\nother\n")
    return path


@pytest.fixture
def tmp_path(one_place: Path) -> Path:
    return emptied(one_place)


@pytest.fixture
def full(tmp_path: Path, store: Store, log: Path, ingest: Callable[..., object]) -> Store:
    """A store that holds `log`."""
    prepare(tmp_path, "full", lambda: ingest(log))
    return Store(store.path)


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


@pytest.mark.parametrize("steps", [5, 3], ids=["grown", "changed"])
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
    for text in (titan(3), first):
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
    assert full.give_facts({run: facts_from_flags(["gpus=8"])}) == 1
    assert full.give_facts({run: facts_from_flags(["gpus=16", "seq_len=4096"])}) == 2
    before = state(full)
    assert held(full) == {"a": {"gpus": "16", "seq_len": "4096"}}
    full.rebuild()
    assert_same(full, before)


def test_a_fact_given_back_to_its_first_value_holds(full: Store) -> None:
    (run,) = full.table("runs")["run_id"]
    for value in (8, 16, 8):
        full.give_facts({run: facts_from_flags([f"gpus={value}"])})
    assert held(full) == {"a": {"gpus": "8"}}


def test_a_fact_given_twice_is_stored_once(full: Store) -> None:
    (run,) = full.table("runs")["run_id"]
    assert [full.give_facts({run: facts_from_flags(["gpus=8"])}) for _ in range(2)] == [1, 0]


def test_facts_given_with_a_known_log_are_added(
    full: Store, log: Path, ingest: Callable[..., object]
) -> None:
    ingest(log, flag_facts=facts_from_flags(["gpus=8"]))
    assert resolve_facts(full.table("facts")).filter(name="gpus", origin="flag").height == 1


def test_given_facts_stay_when_the_file_grows(
    full: Store, log: Path, titan: Callable[..., str], ingest: Callable[..., object]
) -> None:
    (run,) = full.table("runs")["run_id"]
    full.give_facts({run: facts_from_flags(["gpus=8"])})
    log.write_text(log.read_text() + titan(5))
    ingest(log)
    assert full.table("runs")["run_id"].to_list() == [run]
    assert resolve_facts(full.table("facts")).filter(name="gpus")["value"].to_list() == ["8"]
    before = state(full)
    full.rebuild()
    assert_same(full, before)


def test_facts_of_ingest_stay_when_the_file_grows(
    store: Store, log: Path, titan: Callable[..., str], ingest: Callable[..., object]
) -> None:
    ingest(log, flag_facts=facts_from_flags(["recompute=none"]))
    log.write_text(log.read_text() + titan(5))
    ingest(log)
    assert held(store) == {"a": {"recompute": "none"}}
    before = state(store)
    store.rebuild()
    assert_same(store, before)


def test_facts_stay_with_a_launch_that_got_its_first_step(
    store: Store, logs: Path, titan: Callable[..., str], ingest: Callable[..., object]
) -> None:
    """Its id comes from its first step, which it had not when the facts were given."""
    log, starting = (
        logs / "a.log",
        "Building device mesh with parallelism: dp_shard=4, cp=1, tp=1, ep=1\n",
    )
    log.write_text(starting + titan() + starting)
    ingest(log)
    *_, second = store.table("runs")["run_id"]
    store.give_facts({second: facts_from_flags(["recompute=none"])})
    log.write_text(log.read_text() + titan(4, loss=9.0))
    ingest(log)
    assert store.table("sources").height == 1
    assert store.table("runs").height == 2
    (run,) = store.table("facts").filter(origin="flag")["run_id"]
    assert run == store.table("runs")["run_id"][1] != second


def test_a_fact_given_by_hand_is_taken_back(full: Store) -> None:
    (run,) = full.table("runs")["run_id"]
    before = state(full)
    full.give_facts({run: facts_from_flags(["gpus=8", "seq_len=64"])})
    assert full.give_facts({run: facts_from_flags(["gpus="], allow_removal=True)}) == 1
    assert held(full) == {"a": {"seq_len": "64"}}
    full.rebuild()
    assert held(full) == {"a": {"seq_len": "64"}}
    back = facts_from_flags(["gpus=", "seq_len="], allow_removal=True)
    assert [full.give_facts({run: back}) for _ in range(2)] == [1, 0]
    assert_same(full, before)


def test_a_fact_given_anew_does_not_disagree_with_itself(full: Store) -> None:
    (run,) = full.table("runs")["run_id"]
    for value in (8, 16):
        full.give_facts({run: facts_from_flags([f"gpus={value}"])})
    assert full.table("facts").filter(name="gpus", origin="flag")["value"].to_list() == ["16"]


# -- facts from beside the log -------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (None, {}),
        ("seq_len = 64\n", {"seq_len": "64"}),
        ("gpus = 4\n", {"gpus": "4"}),
        ("seq_len = 64\ngpus = 4\n", {"seq_len": "64", "gpus": "4"}),
    ],
    ids=["gone", "less", "changed", "same"],
)
def test_what_stands_beside_the_log_is_taken_as_a_whole(
    text: str | None, facts: dict[str, str], store: Store, log: Path, ingest: Callable[..., list]
) -> None:
    sidecar = log.with_name("facts.toml")
    sidecar.write_text("seq_len = 64\ngpus = 4\n")
    (log.with_name("ds_config.json")).write_text('{"train_batch_size": 36}')
    ingest(log, flag_facts=facts_from_flags(["recompute=none"]))
    sidecar.write_text(text) if text else sidecar.unlink()
    (log.with_name("ds_config.json")).unlink()
    assert [outcome.status for outcome in ingest(log)] == ["known"]
    assert held(store) == {"a": {"recompute": "none", **facts}}
    before, parts = state(store), len(list(store.path.rglob("*.parquet")))
    assert [outcome.status for outcome in ingest(log)] == ["known"]
    assert_same(store, before)
    store.rebuild()
    assert_same(store, before)
    assert len(list(store.path.rglob("*.parquet"))) == parts


def test_only_what_stands_beside_the_stored_path_counts(
    store: Store, log: Path, ingest: Callable[..., list]
) -> None:
    log.with_name("facts.toml").write_text("gpus = 4\n")
    ingest(log)
    folder = log.with_name("elsewhere")
    folder.mkdir()
    (folder / "facts.toml").write_text("gpus = 9\nseq_len = 64\n")
    copy = Path(shutil.copy(log, folder / "b.log"))
    (outcome,) = ingest(copy, flag_facts=facts_from_flags(["recompute=none"]))
    assert outcome.message == KNOWN_COPY.words(stored=log)
    assert held(store) == {"a": {"gpus": "4", "recompute": "none"}}
    assert [outcome.message for outcome in ingest(log)] == ["known already"]


# -- files of one path, and files that begin alike -----------------------------------------


def test_a_path_that_holds_another_run_keeps_the_earlier_one(
    full: Store, log: Path, titan: Callable[..., str], ingest: Callable[..., list]
) -> None:
    full.give_facts({run: facts_from_flags(["gpus=8"]) for run in full.table("runs")["run_id"]})
    messages = []
    for steps in (3, 5):  # Tuesday's, and then more of it
        log.write_text(titan(steps, loss=9.0))
        messages += [outcome.message for outcome in ingest(log)]
    assert messages == [OTHER_RUN.words(path=log), ""]
    assert full.table("sources")["path"].to_list() == [str(log)] * 2
    steps = full.table("steps").group_by("run_id").len()["len"]
    assert sorted(steps) == [3, 5]
    assert full.table("facts").filter(origin="flag").height == 1
    before = state(full)
    full.rebuild()
    assert_same(full, before)


def test_a_path_that_holds_part_of_the_earlier_runs_keeps_them(
    store: Store, logs: Path, titan: Callable[..., str], ingest: Callable[..., list]
) -> None:
    log, monday, tuesday = logs / "a.log", titan(), titan(4, loss=9.0).replace("-01-02", "-01-03")
    log.write_text(monday + tuesday)
    ingest(log)
    for text in (tuesday, tuesday + tuesday.replace("-01-03", "-01-04")):
        log.write_text(text)
        ingest(log)
    assert store.table("sources").height == 2
    assert store.table("runs")["run_id"].n_unique() == store.table("runs").height == 4


@pytest.fixture
def alike(logs: Path, titan: Callable[..., str]) -> tuple[Path, Path]:
    """Two logs that begin alike."""
    paths = logs / "a.log", logs / "b.log"
    for path, steps in zip(paths, (3, 5), strict=True):
        path.write_text(titan(steps))
    return paths


def test_writers_of_logs_that_begin_alike_do_not_meet(
    alike: tuple[Path, Path], store: Store
) -> None:
    both = [read_log_tables(path) for path in alike]  # each read while the store was empty
    for tables in both:
        store.add([tables])
    assert store.table("runs")["run_id"].n_unique() == 2
    assert sorted(store.table("steps").group_by("run_id").len()["len"]) == [3, 5]
    for tables in both:
        (remark,) = store.add([tables])
        assert (remark.kind, remark.known_as) == ("known", remark.path)
    store.rebuild()
    assert store.table("runs").height == 2


def test_a_folder_with_content_of_another_path_is_not_remembered(
    log: Path, store: Store, titan: Callable[..., str]
) -> None:
    """Another process stored the same content meanwhile."""
    folders = {name: log.parent / name for name in ("own", "copies")}
    for name, steps in (("own", 3), ("copies", 5)):
        folders[name].mkdir()
        (folders[name] / "a.log").write_text(titan(steps))
    shutil.copy(folders["copies"] / "a.log", log)
    store.add([read_log_tables(log)])
    listed = {str(folder): "signature" for folder in folders.values()}
    read = [read_log_tables(folder / "a.log") for folder in folders.values()]
    (remark,) = store.add(read, folders=KnownFolders(listed, store.folders().state))
    assert remark.kind == "known"
    assert list(store.folders().listed) == [str(folders["own"])]


def test_ids_that_cannot_be_told_apart_name_both_files(
    alike: tuple[Path, Path], store: Store, monkeypatch: pytest.MonkeyPatch, titan: Callable
) -> None:
    monkeypatch.setattr(changeset, "_short", lambda _: "abcdef")
    third = alike[0].with_name("c.log")
    third.write_text(titan(7))
    with pytest.raises(
        StoreError, match=rf"{third} and {alike[0]}: ", check=of_kind("run-id-taken")
    ):
        ingest_run.ingest_paths([*alike, third], store)


def test_a_second_copy_that_grows_keeps_its_id_and_what_was_given(
    alike: tuple[Path, Path], store: Store, titan: Callable[..., str], ingest: Callable[..., list]
) -> None:
    ingest(*alike)
    ids = store.table("runs")["run_id"].to_list()
    store.give_facts({ids[1]: facts_from_flags(["gpus=8"])})
    for path, steps in zip(alike, (7, 9), strict=True):
        path.write_text(titan(steps))
        ingest(path)
    assert store.table("runs")["run_id"].to_list() == ids
    assert held(store) == {"a": {}, "b": {"gpus": "8"}}


def test_a_file_that_grew_into_a_known_one_is_dropped_for_it(
    alike: tuple[Path, Path], store: Store, ingest: Callable[..., list]
) -> None:
    a, b = alike
    ingest(*alike)
    first, _ = store.table("runs")["run_id"]
    store.give_facts({first: facts_from_flags(["gpus=8"])})
    a.write_text(b.read_text())
    (outcome,) = ingest(a)
    assert outcome.message == KNOWN_COPY.words(stored=b)
    assert store.table("sources")["path"].to_list() == [str(b)]
    assert held(store) == {"b": {"gpus": "8"}}
    before = state(store)
    store.rebuild()
    assert_same(store, before)


def test_a_file_that_became_another_known_one_keeps_its_earlier_run(
    full: Store, log: Path, titan: Callable[..., str], ingest: Callable[..., list]
) -> None:
    other = log.with_name("b.log")
    other.write_text(titan(4, loss=9.0))
    ingest(other)
    log.write_text(other.read_text())
    (outcome,) = ingest(log)
    assert outcome.message.endswith(
        f"same content as {other}, whose facts apply; the earlier run of {log} is kept"
    )
    assert full.table("runs")["name"].to_list() == ["a", "b"]


def test_two_logs_that_change_places_lose_nothing(
    alike: tuple[Path, Path], store: Store, ingest: Callable[..., list]
) -> None:
    a, b = alike
    ingest(*alike)
    before = store.known_sources()
    first, second = a.read_text(), b.read_text()
    a.write_text(second)
    b.write_text(first)
    ingest(*alike)
    assert store.known_sources() == before


def test_a_backup_of_what_a_log_was_is_read_when_the_log_grows(
    full: Store, log: Path, titan: Callable[..., str], ingest: Callable[..., list]
) -> None:
    (run,) = full.table("runs")["run_id"]
    backup = Path(shutil.copy(log, log.with_name("b.log")))
    assert [outcome.status for outcome in ingest(log, backup)] == ["known", "known"]
    log.write_text(titan(9))
    assert [outcome.status for outcome in ingest(log, backup)] == ["read", "read"]
    assert full.table("runs")["name"].to_list() == ["a", "b"]
    assert full.table("runs")["run_id"][0] == run


def test_a_rebuild_gives_equal_tables(
    full: Store, log: Path, titan: Callable[..., str], ingest: Callable[..., object]
) -> None:
    log.write_text(titan(6))
    ingest(log)
    before = state(full)
    (full.path / store_module.CATALOGUE_NAME).unlink()
    full.rebuild()
    assert_same(full, before)


def test_a_lost_catalogue_says_how_to_make_it_anew(
    full: Store, log: Path, titan: Callable[..., str], ingest: Callable[..., object]
) -> None:
    before = state(full)
    (full.path / store_module.CATALOGUE_NAME).unlink()
    log.write_text(titan(6))
    for use in (lambda: full.table("runs"), lambda: full.query("select 1"), lambda: ingest(log)):
        with pytest.raises(StoreError, match="fairmfu rebuild"):
            use()
    full.rebuild()
    assert_same(full, before)


def test_a_damaged_catalogue_says_how_to_make_it_anew(full: Store) -> None:
    before = state(full)
    (full.path / store_module.CATALOGUE_NAME).write_bytes(b"no database" * 999)
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
def queried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One store for all the queries that may not change it, with a database of its own."""
    folder = tmp_path_factory.mktemp("queried")
    (folder / "a.log").write_text("step:  1  loss:  5.0  memory:  1.5GiB(3.00%)  tps: 100\n")
    store = Store(folder / "store")
    ingest_run.ingest_paths([folder / "a.log"], store)
    with own_readers():
        yield store


ONE_SELECT = "query takes one SELECT statement: a store is read-only here."
NO_FILE = "query reads only the tables of the store, and no other file or address."
STATEMENTS = [
    *("copy runs to '{out}'", "copy (select 1) to '{out}'", "copy runs from '/etc/passwd'"),
    "copy (select 1) to '{out}' (format parquet)",
    "copy (select 1) to '{store}/parts/steps/x.parquet'",
    *("attach '{out}'", "attach '{out}' as other", "detach stored", "use memory"),
    *("export database '{out}'", "import database '/etc'"),
    *("insert into runs by name select * from runs", "update runs set name = 'x'"),
    *("delete from facts", "drop table runs", "alter table runs add column x int"),
    *("create table mine as select 1", "create view mine as select 1", "create secret (type s3)"),
    *("set enable_external_access = true", "set threads = 1", "reset allowed_paths"),
    *("pragma database_list", "call pragma_version()", "checkpoint", "vacuum", "begin"),
    *("install httpfs", "load httpfs", "load '{out}'", "prepare mine as select 1"),
    *("select 1; select 2", "select 1; drop table runs", ""),
]
FUNCTIONS = [
    *("read_csv('/etc/passwd')", "read_csv('https://example.org/a.csv')"),
    *("read_text('/etc/passwd')", "read_text('{store}/parts/steps/../../../a.log')"),
    *("read_blob('{store}/../a.log')", "read_json('/etc/passwd')", "sniff_csv('/etc/passwd')"),
    *("read_parquet('s3://bucket/a.parquet')", "parquet_metadata('/etc/passwd')"),
    "glob('/etc/*')",
]


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        *((sql, ONE_SELECT) for sql in STATEMENTS),
        *((f"from {function}", NO_FILE) for function in FUNCTIONS),
        ("select * from enable_logging()", "the configuration has been locked"),
        ("from '/etc/passwd'", "Table with name /etc/passwd does not exist"),
        ("from query('copy (select 1) to ''{out}''')", "Expected a single SELECT statement"),
        ("with x as (insert into runs select * from runs returning 1) from x", "query: "),
        ("select * from nothing_there", "Table with name nothing_there does not exist"),
        ("selct 1", "syntax error"),
    ],
)
def test_a_query_only_reads_the_store(sql: str, said: str, queried: Store) -> None:
    folder = queried.path.parent
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(StoreError, match=re.escape(said)):
        queried.query(sql.format(out=folder / "out", store=queried.path.absolute()))
    assert before == {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_second_writer_waits_and_then_names_the_holder(
    full: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "DEFAULT_PATIENCE_S", 0.2)
    with full._writing():
        began = time.monotonic()
        with pytest.raises(StoreError, match=rf"process {os.getpid()} \(.*\) is writing"):
            Store(full.path).rebuild()
        assert time.monotonic() - began >= 0.2
        assert full.table("runs").height == 1
    Store(full.path).rebuild()


def _write(path: Path, log: Path) -> None:
    ingest_run.ingest_paths([log], Store(path))


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
    """Ingest a log and crash where the store calls that."""

    def run(log: Path, of: object, name: str, broken: Callable[..., object] = crash) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(of, name, broken)
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
    break_off(path, catalogue, "apply_batch")
    return path


def test_a_crash_before_the_catalogue_loses_nothing(
    lost: Path, store: Store, log: Path, ingest: Callable[..., list]
) -> None:
    assert str(lost) not in store.known_sources().values()
    assert next(iter(ingest(lost, log))).status == "known"  # by then: it was read before the lock
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
    write, written = parquet_parts.write_part, []

    def write_some(*arguments: object) -> object:
        written.append(arguments)
        return write(*arguments) if len(written) < 4 else crash()

    break_off(log, parquet_parts, "write_part", write_some)
    assert len(written) == 4
    full.rebuild()
    assert_same(full, before)


@pytest.mark.parametrize("of", [parquet_parts, store_module], ids=["part", "catalogue"])
def test_a_file_has_its_name_only_when_it_is_whole(
    of: ModuleType,
    full: Store,
    log: Path,
    titan: Callable[..., str],
    break_off: Callable[..., None],
) -> None:
    """A crash before the file is on the disk leaves every name as it was."""

    def named() -> dict[Path, bytes]:
        files = (path for path in full.path.rglob("*") if path.suffix in (".parquet", ".duckdb"))
        return {path: path.read_bytes() for path in files}

    before, parts = named(), sum(path.suffix == ".parquet" for path in named())
    log.write_text(titan(7))
    break_off(log, of, "sync_to_disk")
    after = named()
    assert {path: after[path] for path in before} == before
    assert len(after) - len(before) == 0 if of is parquet_parts else len(after) > parts + 1


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
    ingest_run.ingest_paths([log], store)
    store.rebuild()
    assert store.table("steps").height == 3


@pytest.mark.parametrize("name", ["[1]", "what?", "a*"])
def test_a_store_whose_name_is_a_pattern_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(StoreError, check=of_kind("store-path-pattern")):
        Store(tmp_path / name / "store")


def test_a_catalogue_that_found_no_room_takes_no_ones_place(
    store: Store, logs: Path, titan: Callable[..., str]
) -> None:
    """The system itself refuses to write more of any file, also what DuckDB writes at the end."""
    (logs / "a.log").write_text(titan(3))
    (logs / "b.log").write_text(titan(3, loss=7.0))
    ingest_run.ingest_paths([logs / "a.log"], store)
    before, size = store.tables(), (store.path / "catalogue.duckdb").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for share in (0.1, 0.3, 0.5, 0.7, 0.9, 0.99) if THOROUGH else (0.1, 0.5, 0.99):
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(size * share), hard))
        try:
            with pytest.raises(StoreError, check=of_kind("write-failed")):
                Store(store.path).rebuild()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        for name, frame in store.tables().items():
            assert_frame_equal(frame, before[name])
    ingest_run.ingest_paths([logs / "b.log"], store)
    assert store.table("runs").height == 2


def test_an_error_amid_the_rows_is_one_of_the_database() -> None:
    sql = "select (case when i > 150_000 then 'q' else '1' end)::int as n from range(200_000) t(i)"
    with duckdb.connect() as con:
        assert catalogue.fetch_frame(con, f"from ({sql} limit 9)")["n"].to_list() == [1] * 9
        with pytest.raises(duckdb.Error, match=r"^Conversion Error: Could not convert string 'q'"):
            catalogue.fetch_frame(con, sql)
