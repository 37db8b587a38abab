"""Parts, batches and merges: the rows that hold follow from the parts, however they were merged."""

from __future__ import annotations

import errno
import os
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import IO

import polars as pl
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from polars.testing import assert_frame_equal

from fairmfu.cli import main
from fairmfu.ingest.core.errors import StoreError
from fairmfu.ingest.core.schema import TABLES
from fairmfu.ingest.core.spill import StreamedRows
from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.ingest.pipeline import ingest_run
from fairmfu.ingest.store import catalogue, compaction, parquet_parts, transactions
from fairmfu.ingest.store import store as store_module
from fairmfu.ingest.store.doctor import examine_store
from fairmfu.ingest.store.local_backend import StoreBackend
from fairmfu.ingest.store.store import Store
from tests.support.effort import THOROUGH
from tests.support.error_kinds import of_kind
from tests.support.prepared import emptied, prepare


def state(store: Store) -> dict[str, pl.DataFrame]:
    """All tables without what depends on the clock or on the numbers of batches."""
    tables = store.tables()
    tables["sources"] = tables["sources"].drop("read_at")
    tables["facts"] = tables["facts"].drop("sequence")
    return tables


def assert_same(one: dict[str, pl.DataFrame], other: dict[str, pl.DataFrame]) -> None:
    assert one.keys() == other.keys()
    for name, frame in one.items():
        assert_frame_equal(frame, other[name])


def outdated(store: Store) -> list[str]:
    return store.outdated_runs()[0]


def live_files(store: Store) -> int:
    with store._connected() as con:
        return len(catalogue.live_parts(con))


class Life:
    """What a store meets in its life, at random: the same for the same seed."""

    def __init__(self, folder: Path, seed: int, titan: Callable[..., str]) -> None:
        self.random = random.Random(seed)  # noqa: S311 - a simulation
        self.folder, self.titan = folder, titan
        self.lengths: dict[str, int] = {}

    def step(self, stores: list[Store]) -> None:
        name = self.random.choice("abcd")
        path = self.folder / f"{name}.log"
        what = self.random.choice(["grow", "grow", "new", "beside", "give", "take", "remove"])
        if what in ("grow", "new"):
            same = what == "grow" and name in self.lengths
            length = self.lengths.get(name, 2) + self.random.randint(1, 3) if same else 3
            loss = 5.0 + ord(name) + (0 if same else self.random.randint(0, 2))
            self.lengths[name] = length
            path.write_text(self.titan(length, loss=loss))
        if what == "beside":
            beside = self.folder / f"{name}.log.facts.toml"
            beside.write_text(self.random.choice(["", "gpus = 4\n", "gpus = 8\nseq_len = 64\n"]))
        for store in stores:
            if what in ("grow", "new", "beside") and path.exists():
                ingest_run.ingest_paths([path], store)
        if not stores[0].known_sources():
            return
        run = self.random.choice(stores[0].table("runs")["run_id"].to_list() or [""])
        given = self.random.choice(["gpus=2", "gpus=16", "recompute=full"])
        for store in stores:
            if what == "give":
                store.give_facts({run: facts_from_flags([given])})
            if what == "take":
                store.give_facts({run: facts_from_flags(["gpus="], allow_removal=True)})
            if what == "remove":
                store.remove([run])


@pytest.mark.parametrize("seed", range(8 if THOROUGH else 1))
def test_merges_and_rebuilds_change_no_row(
    seed: int,
    tmp_path: Path,
    logs: Path,
    titan: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain, merged = Store(tmp_path / "plain"), Store(tmp_path / "merged")
    life, never = Life(logs, seed, titan), 1_000_000
    for _ in range(12 if THOROUGH else 7):
        before = random.Random.getstate(life.random), dict(life.lengths)
        for fan, store in ((never, plain), (2, merged)):
            monkeypatch.setattr(compaction, "MERGE_FAN_IN", fan)
            life.random.setstate(before[0])
            life.lengths = dict(before[1])
            life.step([store])
        if plain.known_sources():
            assert_same(state(merged), state(plain))
            assert outdated(merged) == outdated(plain)
            assert [one for one in examine_store(merged) if one.is_harmful] == []
    for store in (merged, plain):
        found, stale = state(store), outdated(store)
        store.rebuild()
        assert_same(state(store), found)
        assert outdated(store) == stale
    merged.compact()
    assert_same(state(merged), state(plain))
    merged.rebuild()
    assert_same(state(merged), state(plain))
    assert live_files(merged) <= 9 < live_files(plain)


@pytest.fixture
def tmp_path(one_place: Path) -> Path:
    return emptied(one_place)


@pytest.fixture
def full(tmp_path: Path, store: Store, logs: Path, titan: Callable[..., str]) -> Store:
    """A store of three batches."""

    def make() -> None:
        for number in range(3):
            path = logs / f"{number}.log"
            path.write_text(titan(3 + number, loss=4.0 + number))
            ingest_run.ingest_paths([path], store)

    prepare(tmp_path, "full", make)
    return Store(store.path)


def a_year(first: int, nightly: int) -> tuple[list[parquet_parts.ParquetPart], list[int]]:
    """The parts of one table after 365 nights of so many rows, and the rows of each merge."""
    live: list[parquet_parts.ParquetPart] = []
    merged: list[int] = []
    for night in range(1, 366):
        rows = first if night == 1 else nightly
        live.append(
            parquet_parts.ParquetPart("steps", f"steps/{night}", night, night, 0, rows, 1, "")
        )
        while groups := compaction.due_merges(live):
            for group in groups:
                live = [part for part in live if part not in group]
                rows, tier = sum(p.rows for p in group), group[0].tier + 1
                since, last = group[0].first_batch, group[-1].last_batch
                live.append(
                    parquet_parts.ParquetPart(
                        "steps", f"m{night}-{tier}", since, last, tier, rows, 1, ""
                    )
                )
                merged.append(rows)
        assert len(live) < 64
        small = [part.tier for part in live if part.rows <= compaction.MAX_MERGE_ROWS // 2]
        assert max(Counter(small).values(), default=0) < compaction.MERGE_FAN_IN
    assert sum(part.rows for part in live) == first + 364 * nightly
    return live, merged


def test_of_a_table_one_group_is_merged_at_once() -> None:
    """Each is one part of a batch: a cluster's batch fills several tiers at a time."""
    live = [
        parquet_parts.ParquetPart(table, f"{table}/{tier}/{place}", place, place, tier, 10, 1, "")
        for table in ("steps", "events")
        for tier in (parquet_parts.STAGED_TIER, 0, 1)
        for place in range(3 * compaction.MERGE_FAN_IN)
    ]
    merges = 0
    while groups := compaction.due_merges(live):
        tables = [group[0].table_name for group in groups]
        assert len(set(tables)) == len(tables)
        for group in groups:
            live = [part for part in live if part not in group]
            path, tier = f"merged/{merges}", group[0].tier + 1
            live.append(parquet_parts.ParquetPart(group[0].table_name, path, 0, 0, tier, 10, 1, ""))
            merges += 1
    assert merges > 6


def test_the_parts_of_a_year_of_batches_stay_few() -> None:
    """365 nights of eight parts: at most FAN of each tier, and each row written three times."""
    live, merged = a_year(20, 20)
    assert len(live) < 2 * compaction.MERGE_FAN_IN
    assert sum(merged) < 2 * 365 * 20


@pytest.mark.parametrize(("first", "nightly"), [(100_000, 100_000), (36_000_000, 30_000)])
def test_no_merge_takes_more_than_a_machine_has(first: int, nightly: int) -> None:
    """20 runs a night of 5,000 steps each; and a first night that brought years."""
    _, merged = a_year(first, nightly)
    assert max(merged) <= compaction.MAX_MERGE_ROWS
    assert sum(merged) < 2 * 365 * nightly


def test_some_runs_alone(full: Store) -> None:
    runs = full.table("runs")
    wanted = runs.filter(pl.col("name") != "1")
    for name in TABLES:
        some = full.table(name, wanted["run_id"].to_list())
        by = "run_id" if "run_id" in some.columns else "sha256"
        assert_frame_equal(some, full.table(name).filter(pl.col(by).is_in(wanted[by].to_list())))
        assert full.table(name, []).is_empty()
    assert_frame_equal(full.tables(wanted["run_id"].to_list())["runs"], wanted)


def test_what_is_kept_says_which_runs_have_changed_since(full: Store, logs: Path) -> None:
    runs = full.table("runs")["run_id"].to_list()
    stale, as_of = full.outdated_runs()
    assert stale == sorted(runs)
    full.keep("metrics", pl.DataFrame({"run_id": runs, "tgs": [1.0, 2.0, 3.0]}), as_of)
    assert outdated(full) == []
    full.give_facts({runs[1]: facts_from_flags(["gpus=8"])})
    assert outdated(full) == [runs[1]]
    full.keep("metrics", pl.DataFrame({"run_id": [runs[1]], "tgs": [9.0]}), full.outdated_runs()[1])
    assert outdated(full) == []
    (logs / "2.log.facts.toml").write_text("gpus = 4\n")
    ingest_run.ingest_paths([logs / "2.log"], full)
    assert outdated(full) == [runs[2]]
    assert full.kept("metrics")["tgs"].to_list() == [1.0, 2.0, 3.0, 9.0]


def test_a_fact_that_came_while_metrics_were_computed_is_not_lost(full: Store) -> None:
    (run, *_) = full.table("runs")["run_id"]
    _, as_of = full.outdated_runs()
    full.give_facts({run: facts_from_flags(["gpus=8"])})  # by another process
    full.keep("metrics", full.table("runs").select("run_id"), as_of)
    assert outdated(full) == [run]


def test_metrics_of_an_earlier_state_do_not_take_the_place_of_later_ones(full: Store) -> None:
    """As where a rescore of an hour ends after a nightly that began later."""
    runs = full.table("runs")["run_id"].to_list()
    _, before = full.outdated_runs()
    full.give_facts({runs[0]: facts_from_flags(["gpus=8"])})
    _, after = full.outdated_runs()
    full.keep("metrics", pl.DataFrame({"run_id": runs[:2], "tgs": [2.0, 2.0]}), after)
    full.keep("metrics", pl.DataFrame({"run_id": runs, "tgs": [1.0, 1.0, 1.0]}), before)
    newest = full.kept("metrics", latest_by=("run_id",))
    assert dict(newest.select("run_id", "tgs").iter_rows()) == dict(
        zip(runs, [2.0, 2.0, 1.0], strict=True)
    )
    assert outdated(full) == []


def test_a_reader_of_before_a_merge_still_finds_its_parts(full: Store) -> None:
    before = state(full)
    with full._reading() as con:
        full.compact()
        assert con.sql("select count(*) from steps").fetchall() == [(12,)]
    assert_same(state(full), before)


def test_readers_of_one_process_do_not_meet(full: Store, logs: Path) -> None:
    with full._reading() as one, full._reading(("steps",)) as other:
        for con in (one, other):
            assert con.sql("select count(*) from steps").fetchall() == [(12,)]
        (logs / "1.log").unlink()
        run = full.table("runs").filter(name="1")["run_id"][0]
        full.remove([run])
        assert full.table("steps").height == 8
        assert one.sql("select count(*) from steps").fetchall() == [(12,)]


def test_merged_parts_go_when_their_time_is_over(
    full: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = state(full)
    full.compact()
    there = len(list(full.path.rglob("*.parquet")))
    monkeypatch.setattr(transactions, "MERGED_PART_GRACE", timedelta(0))
    full.compact()
    assert len(list(full.path.rglob("*.parquet"))) == live_files(full) + 1 < there
    full.rebuild()
    assert_same(state(full), before)


def test_what_a_killed_writer_left_goes_with_the_next_batch(full: Store) -> None:
    folder = full.path / "parts" / "steps"
    left = [folder / "00000009.parquet", folder / "00000009.writing"]
    for path in left:
        path.write_bytes(b"half")
    (full.path / "catalogue.duckdb.77.writing").write_bytes(b"half")
    (run, *_) = full.table("runs")["run_id"]
    full.give_facts({run: facts_from_flags(["gpus=8"])})
    assert [path for path in full.path.rglob("*") if path in left or ".77." in path.name] == []
    assert full.table("steps").height == 12


def test_a_removed_run_goes_with_its_file_and_may_come_back(full: Store, logs: Path) -> None:
    run = full.table("runs").filter(name="1")["run_id"][0]
    full.give_facts({run: facts_from_flags(["gpus=8"])})
    assert full.remove([run]) == {str(logs / "1.log"): [run]}
    assert full.table("runs")["name"].to_list() == ["0", "2"]
    assert full.table("facts").filter(run_id=run).is_empty()
    full.rebuild()
    assert full.table("runs")["name"].to_list() == ["0", "2"]
    assert [one.status for one in ingest_run.ingest_paths([logs / "1.log"], full)] == ["read"]
    assert full.table("facts").filter(run_id=run, origin="flag").is_empty()


def assert_a_rebuild_changes_nothing(store: Store) -> None:
    before = state(store)
    assert examine_store(store) == []
    store.rebuild()
    assert_same(state(store), before)


@pytest.fixture
def merged_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "MERGED_PART_GRACE", timedelta(0))


@pytest.mark.usefixtures("merged_at_once")
class TestARebuildFromMergedParts:
    @pytest.fixture
    def grown(self, store: Store, logs: Path, titan: Callable[..., str]) -> Callable[[int], str]:
        """The log of that many steps is ingested; its run's id."""

        def ingest(steps: int) -> str:
            path = logs / "a.log"
            path.write_text(titan(steps))
            ingest_run.ingest_paths([path], store)
            (run,) = store.table("runs")["run_id"]
            return str(run)

        return ingest

    @staticmethod
    def merge(store: Store) -> None:
        for _ in range(2):  # what the first one merges, the second one deletes
            store.compact()

    def test_keeps_what_was_given_by_hand_before_the_log_grew_twice(
        self, store: Store, grown: Callable[[int], str]
    ) -> None:
        run = grown(3)
        store.give_facts({run: facts_from_flags(["gpus=8"])})
        grown(4)
        grown(5)
        self.merge(store)
        assert_a_rebuild_changes_nothing(store)
        assert store.table("facts").filter(name="gpus")["value"].to_list() == ["8"]

    def test_forgets_what_stood_beside_a_log_before_it_grew(
        self, store: Store, logs: Path, grown: Callable[[int], str]
    ) -> None:
        beside = logs / "a.log.facts.toml"
        beside.write_text("gpus = 4\n")
        grown(3)
        beside.unlink()
        grown(4)
        self.merge(store)
        assert_a_rebuild_changes_nothing(store)
        assert store.table("facts").filter(name="gpus").is_empty()

    def test_forgets_what_stood_beside_a_removed_log(self, full: Store, logs: Path) -> None:
        (logs / "1.log.facts.toml").write_text("gpus = 4\n")
        ingest_run.ingest_paths([logs / "1.log"], full)
        full.remove(full.table("runs").filter(name="1")["run_id"].to_list())
        self.merge(full)
        assert_a_rebuild_changes_nothing(full)


@pytest.mark.usefixtures("merged_at_once")
def test_a_catalogue_from_a_backup_costs_no_batch(full: Store) -> None:
    """The records between it and the parts are gone, so it cannot catch up."""
    older = (full.path / store_module.CATALOGUE_NAME).read_bytes()
    run = full.table("runs")["run_id"][0]
    for number in range(2):
        full.give_facts({run: facts_from_flags([f"gpus={8 + number}"])})
        full.compact()
    before = state(full)
    (full.path / store_module.CATALOGUE_NAME).write_bytes(older)
    with pytest.raises(StoreError, check=of_kind("outdated-catalogue")):
        full.remove([run])
    (found,) = examine_store(full)
    assert found.is_harmful
    assert "older than the parts" in found.what
    full.rebuild()
    assert_same(state(full), before)


def test_a_damaged_part_is_named_when_it_is_merged(full: Store) -> None:
    part = next(full.path.rglob("steps/*.parquet"))
    part.write_bytes(b"PAR1" + b"x" * 99 + b"PAR1")
    with pytest.raises(StoreError, match=part.name):
        full.compact()
    with pytest.raises(StoreError, match=rf"{part.name}.*fairmfu doctor"):
        full.table("steps")


@pytest.mark.parametrize("share", [0.2, 0.4, 0.6, 0.8, 0.99])
def test_a_catalogue_that_is_damaged_in_part_is_never_a_riddle(share: float, full: Store) -> None:
    """Whatever block of it is needed and cannot be read, it is said, with what to do."""
    path = full.path / store_module.CATALOGUE_NAME
    with path.open("r+b") as stream:
        stream.truncate(int(path.stat().st_size * share))
    calls: list[Callable[[], object]] = [
        full.tables,
        full.known_sources,
        full.outdated_runs,
        full.compact,
        lambda: full.query("from runs"),
    ]
    said = []
    for call in calls:
        with suppress(StoreError):
            call()
            continue  # nothing of that block was needed
        said.append(call)
    assert said
    (found,) = (one for one in examine_store(full) if one.is_harmful)
    assert found.remedy == "Rebuild it with: fairmfu rebuild"
    full.rebuild()
    assert full.table("steps").height == 12


def test_a_part_whose_rows_are_damaged_is_told(full: Store) -> None:
    part = next(full.path.rglob("steps/*.parquet"))
    content = bytearray(part.read_bytes())
    content[40:400] = bytes(byte ^ 255 for byte in content[40:400])
    part.write_bytes(content)
    with pytest.raises(StoreError, match=rf"{part.name}.*fairmfu doctor"):
        full.table("steps")


def test_a_store_of_a_later_schema_is_not_written_to(full: Store) -> None:
    with full._new_catalogue(from_old=True) as writer:
        writer.connection.execute("update held.about set schema_version = '99'")
        writer.changed = True
    with pytest.raises(StoreError, match="schema 99", check=of_kind("other-schema")):
        full.compact()


# -- doctor ----------------------------------------------------------------------------------


def test_a_store_that_is_well(full: Store) -> None:
    assert examine_store(full) == []


def test_what_is_wrong_is_named(full: Store) -> None:
    steps = sorted(full.path.rglob("steps/*.parquet"))
    steps[0].unlink()
    content = bytearray(steps[1].read_bytes())
    content[len(content) // 2] ^= 1
    steps[1].write_bytes(content)
    gone, flipped = examine_store(full)
    assert gone.is_harmful
    assert gone.what == f"{steps[0]}: the part is gone, with 3 rows"
    assert flipped.what == (
        f"{steps[1]}: the part differs from what was written (4 rows; checksum)"
    )


def test_a_part_that_may_not_be_read_is_said_in_one_line(
    full: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(shelf: StoreBackend, path: str) -> IO[bytes]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), shelf.at(path))

    monkeypatch.setattr(StoreBackend, "open", refuse)
    done = CliRunner().invoke(main, ["doctor", "--store", str(full.path)])
    assert done.exit_code == 1
    assert done.stderr.startswith(f"Error: {full.path}/parts/")
    assert done.stderr.endswith(
        ".parquet: Permission denied. Fix: get read permission; ls -ld shows the owner\n"
    )


def test_what_goes_by_itself_is_explained(full: Store) -> None:
    left = full.path / "parts" / "steps" / "00000099.parquet"
    left.write_bytes(b"half")
    (one,) = examine_store(full)
    assert not one.is_harmful
    assert one.what == f"{left}: left by an interrupted write; no rows are missing"
    left.unlink()
    full.compact()
    merged = examine_store(full)
    assert len(merged) == 15  # three batches of four tables, and their records
    assert {one.remedy for one in merged} == {"The next write deletes it"}
    assert not any(one.is_harmful for one in merged)


def test_a_catalogue_that_is_not_of_its_parts_is_told(full: Store) -> None:
    older = (full.path / store_module.CATALOGUE_NAME).read_bytes()
    (run, *_) = full.table("runs")["run_id"]
    full.give_facts({run: facts_from_flags(["gpus=8"])})
    newer = (full.path / store_module.CATALOGUE_NAME).read_bytes()
    (full.path / store_module.CATALOGUE_NAME).write_bytes(older)
    assert [(one.is_harmful, one.remedy) for one in examine_store(full)] == [
        (False, "The next write lists it")
    ]
    (full.path / store_module.CATALOGUE_NAME).write_bytes(newer)
    with full._new_catalogue(from_old=True) as writer:
        writer.connection.execute("delete from held.facts where name = 'gpus'")
        writer.changed = True
    (found,) = examine_store(full)
    assert found.is_harmful
    assert found.what.startswith(
        f"{full.path}: the catalogue's facts differ from those of the parts"
    )
    assert found.remedy.endswith("fairmfu rebuild")
    full.rebuild()
    assert examine_store(full) == []


def test_records_that_are_gone_are_told_and_no_part_is_deleted(full: Store, logs: Path) -> None:
    for record in (full.path / "parts" / "batch").iterdir():
        record.unlink()
    (full.path / store_module.CATALOGUE_NAME).unlink()
    steps = sorted(full.path.rglob("steps/*.parquet"))
    for use in (full.rebuild, lambda: ingest_run.ingest_paths([logs / "0.log"], full)):
        with pytest.raises(StoreError):
            use()
    with pytest.raises(StoreError, check=of_kind("records-lost")):
        full.rebuild()
    assert sorted(full.path.rglob("steps/*.parquet")) == steps


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_a_rebuild_without_the_record_of_a_batch_is_refused(full: Store, batch: int) -> None:
    """It left out the runs of that batch, and `doctor` advised it."""
    found = state(full)
    record = full.path / parquet_parts.record_path(batch)
    text = record.read_bytes()
    record.unlink()
    with pytest.raises(StoreError, match=record.name, check=of_kind("record-lost")):
        full.rebuild()
    said = examine_store(full)
    assert any(record.name in finding.what for finding in said)
    assert not any("fairmfu rebuild" in finding.remedy for finding in said)
    if batch == 3:
        record.write_bytes(text)
    else:
        full.compact()  # records all parts that the catalogue has
    full.rebuild()
    assert_same(state(full), found)


def test_a_store_that_is_not_there_is_not_made_by_what_mends_one(tmp_path: Path) -> None:
    store = Store(tmp_path / "mistyped")
    for mend in (store.rebuild, store.compact):
        with pytest.raises(StoreError, match="no store here"):
            mend()
    assert not store.path.exists()


def test_a_store_is_not_made_anew_from_a_part_that_is_not_what_was_written(
    store: Store, logs: Path, titan: Callable[..., str]
) -> None:
    """A changed bit of a value is no damage that a reader of Parquet sees."""
    (logs / "run.log").write_text(titan())
    ingest_run.ingest_paths([logs / "run.log"], store)
    found = state(store)
    (part,) = (store.path / "parts" / "facts").glob("*.parquet")
    marks = pl.read_parquet_metadata(part)
    rows = pl.read_parquet(part).with_columns(value=pl.lit("9"))
    rows.write_parquet(part, metadata={k: v for k, v in marks.items() if k.startswith("fairmfu")})
    with pytest.raises(StoreError, match=r"facts/00000001\.parquet: this part is gone or damaged"):
        store.rebuild()
    assert_same(state(store), found)


def test_a_record_of_a_batch_that_is_none_is_told(
    store: Store, logs: Path, titan: Callable[..., str]
) -> None:
    (logs / "run.log").write_text(titan())
    ingest_run.ingest_paths([logs / "run.log"], store)
    (record,) = (store.path / "parts" / "batch").glob("*.parquet")
    marks = pl.read_parquet_metadata(record)
    rows = pl.read_parquet(record).rename({"rows": "raws"})
    rows.write_parquet(record, metadata={k: v for k, v in marks.items() if k.startswith("fairmfu")})
    with pytest.raises(StoreError, match=r"batch/00000001\.parquet: this part is gone or damaged"):
        store.rebuild()


@pytest.mark.parametrize("wide", [10, 1_000])
def test_as_many_rows_are_a_group_as_their_texts_allow(tmp_path: Path, wide: int) -> None:
    frame = pl.DataFrame({"number": range(150_000)}).with_columns(
        text=pl.lit("x" * wide) + pl.col("number").cast(pl.String)
    )
    some = [frame.clear(), *frame.iter_slices(1_000)]
    path = tmp_path / "rows.parquet"
    parquet_parts.write_parquet(
        path, StreamedRows(frame.schema, frame.height, lambda: iter(some)), {"table": "events"}
    )
    held = pq.ParquetFile(path)
    groups = [held.metadata.row_group(at).num_rows for at in range(held.num_row_groups)]
    longest = max(groups) * (wide + len("149999"))
    assert max(groups) <= parquet_parts.ROW_GROUP_ROWS
    assert longest <= 1.1 * parquet_parts.ROW_GROUP_TEXT_BYTES
    assert (
        max(groups) == parquet_parts.ROW_GROUP_ROWS
        or longest > 0.8 * parquet_parts.ROW_GROUP_TEXT_BYTES
    )
    assert_frame_equal(pl.read_parquet(path), frame)
