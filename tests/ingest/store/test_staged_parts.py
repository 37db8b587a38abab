"""Parts that workers write before a batch takes them: rows count once, whoever wrote them."""

from __future__ import annotations

import os
import time
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from fairmfu.ingest.core.errors import StoreError
from fairmfu.ingest.core.spill import LogTables, Spool, collect_rows
from fairmfu.ingest.extract.log_tables import read_log_files
from fairmfu.ingest.extract.table_batches import LogGroup, LogRows
from fairmfu.ingest.store import doctor, parquet_parts, staged_parts
from fairmfu.ingest.store.changeset import LOG_TABLES
from fairmfu.ingest.store.local_backend import StoreBackend
from fairmfu.ingest.store.parquet_parts import STAGED_TIER
from fairmfu.ingest.store.staged_parts import StagedPart
from fairmfu.ingest.store.store import Store
from tests.support import alike
from tests.support.alike import expect_alike
from tests.support.effort import THOROUGH

SAMPLES = alike.SAMPLES if THOROUGH else alike.SAMPLES[::6]
LONGEST = max(alike.SAMPLES, key=lambda path: path.stat().st_size)
FEW = SAMPLES[:3]
JOB = "0123abcd"


def logs(paths: list[Path]) -> list[LogRows]:
    states = [(path, path.stat().st_mtime_ns, path.stat().st_size) for path in paths]
    return list(_logs(*states))


@cache
def _logs(*states: tuple[Path, int, int]) -> list[LogRows]:
    """Rows of logs as they are; nobody changes them."""
    found = read_log_files([(path, ()) for path, *_ in states], Spool())
    assert not any(isinstance(one, Exception) for one in found)
    return [one for one in found if isinstance(one, LogRows)]


def written(paths: list[Path], store: Path) -> list[LogTables]:
    return LogGroup.written(logs(paths), StoreBackend(store), JOB).logs(Spool())


def in_memory(paths: list[Path]) -> list[LogTables]:
    return LogGroup.of(logs(paths)).logs(Spool())


def steps_of(store: Path) -> list[parquet_parts.ParquetPart]:
    return [part for part in Store(store).held().live if part.table_name == "steps"]


@pytest.mark.parametrize("rows", [7, staged_parts.MAX_STAGED_ROWS])
@pytest.mark.parametrize("paths", [SAMPLES, SAMPLES[:1]], ids=["several", "one"])
def test_each_log_gets_its_own_rows(
    paths: list[Path], rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_parts, "MAX_STAGED_ROWS", rows)
    for found, expected in zip(written(paths, tmp_path), in_memory(paths), strict=True):
        for name in LOG_TABLES:
            assert collect_rows(found[name]).equals(collect_rows(expected[name])), name
            assert collect_rows(found[name]).schema == collect_rows(expected[name]).schema


def test_parts_of_which_all_rows_are_stored_are_taken_as_they_are(tmp_path: Path) -> None:
    tables = written(SAMPLES, tmp_path / "a")
    before = {path.name for path in (tmp_path / "a/parts/steps").iterdir()}
    Store(tmp_path / "a").add(tables)
    Store(tmp_path / "b").add(in_memory(SAMPLES))
    assert {Path(part.path).name for part in steps_of(tmp_path / "a")} == before
    assert [(part.tier, part.first_batch) for part in steps_of(tmp_path / "a")] == [
        (STAGED_TIER, 1)
    ]
    expect_alike(Store(tmp_path / "a"), Store(tmp_path / "b"))


@pytest.mark.parametrize("rows", [7, staged_parts.MAX_STAGED_ROWS])
def test_of_others_the_rows_that_are_stored_are_written_again(
    rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staged_parts, "MAX_STAGED_ROWS", rows)
    some = [place for place in range(len(SAMPLES)) if place % 3]
    tables, expected = written(SAMPLES, tmp_path / "a"), in_memory(SAMPLES)
    Store(tmp_path / "a").add([tables[place] for place in some])
    Store(tmp_path / "b").add([expected[place] for place in some])
    expect_alike(Store(tmp_path / "a"), Store(tmp_path / "b"))


def test_logs_of_one_part_may_come_in_any_order_and_batch(tmp_path: Path) -> None:
    tables, expected = written(SAMPLES, tmp_path / "a"), in_memory(SAMPLES)
    half = len(SAMPLES) // 2
    for store, found in (("a", tables), ("b", expected)):
        Store(tmp_path / store).add(found[half:])
        Store(tmp_path / store).add(found[:half][::-1])
    expect_alike(Store(tmp_path / "a"), Store(tmp_path / "b"))


def test_tables_of_one_run_have_its_rows_alone(tmp_path: Path) -> None:
    store = Store(tmp_path / "a")
    for path in FEW:  # a part and a batch each
        store.add(written([path], store.path))
    for run in store.table("runs")["run_id"]:
        steps = store.table("steps")
        assert store.table("steps", [run]).equals(steps.filter(pl.col("run_id") == run))


def test_a_merge_and_a_rebuild_come_to_the_same(tmp_path: Path) -> None:
    store, other = Store(tmp_path / "a"), Store(tmp_path / "b")
    for path in FEW:
        store.add(written([path], store.path))
        other.add(in_memory([path]))
    expect_alike(store, other)
    store.rebuild()
    expect_alike(store, other)
    store.compact()
    assert [part.tier for part in steps_of(store.path)] == [0]
    store.rebuild()
    expect_alike(store, other)


def test_a_log_that_grew_hides_what_a_worker_wrote_of_it(tmp_path: Path) -> None:
    log, lines = tmp_path / "run.log", LONGEST.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[: len(lines) * 3 // 4]))
    store, other = Store(tmp_path / "a"), Store(tmp_path / "b")
    store.add(written([log], store.path))
    other.add(in_memory([log]))
    log.write_bytes(b"".join(lines))
    store.add(written([log], store.path))
    other.add(in_memory([log]))
    expect_alike(store, other)
    assert store.table("sources").height == 1


def test_a_task_that_is_done_again_writes_the_same_file(tmp_path: Path) -> None:
    once, again = (
        LogGroup.written(logs(SAMPLES), StoreBackend(tmp_path), JOB).tables["steps"]
        for _ in range(2)
    )
    (first,), (second,) = once, again
    assert isinstance(first, StagedPart)
    assert isinstance(second, StagedPart)
    assert first.part == second.part
    assert [path.name for path in (tmp_path / "parts/steps").iterdir()] == [
        Path(first.part.path).name
    ]


def test_what_no_driver_took_is_deleted_a_day_later(tmp_path: Path) -> None:
    store = Store(tmp_path / "a")
    store.add(in_memory(SAMPLES[:1]))
    (table,) = written(SAMPLES[1:2], store.path)
    (left,) = (path for path in store.stray_files() if path.startswith("parts/steps/"))
    store.compact()
    assert store.shelf.size(left)  # its driver may be about to
    store.add([table])
    assert left not in store.stray_files()
    written(SAMPLES[2:3], store.path)
    (left,) = store.stray_files()
    os.utime(store.path / left, times=(time.time() - staged_parts.STAGED_PART_LIFETIME_S - 10,) * 2)
    (finding,) = doctor.examine_store(store)
    assert not finding.is_harmful
    store.compact()
    assert store.shelf.size(left) is None


def test_a_part_that_is_gone_is_told_and_the_store_stays_as_it_was(tmp_path: Path) -> None:
    store = Store(tmp_path / "a")
    store.add(in_memory(SAMPLES[:1]))
    before = store.table("steps")
    tables = written(SAMPLES[1:3], store.path)
    for path in store.stray_files():
        store.shelf.delete(path)
    with pytest.raises(StoreError, match="gone"):
        store.add(tables)
    assert store.table("steps").equals(before)
    assert store.held().live
