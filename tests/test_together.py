"""Logs that become tables together have the same tables as alone."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from ingest import spool as spools
from ingest import together
from ingest.intake import read_log, read_source
from ingest.plan import LOG_TABLES
from ingest.spool import Spool, chained, whole
from ingest.together import Batch, Cut, LogTables, neighbours_joined

SAMPLES = sorted((Path(__file__).parents[1] / "sample_logs").rglob("*.log"))


def batch(paths: list[Path]) -> list[LogTables]:
    spool = Spool()
    out = Batch(spool)
    for path in paths:
        out.add(read_log(path, spool))
    return out.tables()


def expect_alike(found: list[LogTables], paths: list[Path]) -> None:
    for path, tables in zip(paths, found, strict=True):
        alone = read_source(path)
        assert set(tables) == set(alone) == set(LOG_TABLES)
        for name, table in tables.items():
            assert whole(table).equals(alone[name]), (path.name, name)
            assert whole(table).schema == alone[name].schema, (path.name, name)


@pytest.mark.parametrize("held_bytes", [0, spools.HELD_BYTES])
def test_each_log_gets_its_own_rows(held_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "HELD_BYTES", held_bytes)
    expect_alike(batch(SAMPLES), SAMPLES)


@pytest.mark.parametrize(("logs", "rows"), [(3, 32_768), (64, 40), (64, 400)])
def test_logs_keep_their_order_however_many_are_together(
    logs: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(together, "MOST_LOGS", logs)
    monkeypatch.setattr(together, "PIECE_ROWS", rows)
    expect_alike(batch(SAMPLES), SAMPLES)


def test_neighbours_are_read_together_and_in_their_order() -> None:
    tables = [log["steps"] for log in batch(SAMPLES)]
    joined = neighbours_joined(tables)
    assert len(joined) == 1
    assert isinstance(joined[0], Cut)
    assert whole(joined[0]).equals(whole(chained(tables)))


def test_what_stood_between_is_left_out() -> None:
    tables = [log["steps"] for log in batch(SAMPLES)]
    assert all(table.height for table in tables[:3])
    some = [tables[0], tables[2], tables[1]]
    joined = neighbours_joined(some)
    assert len(joined) == len(some)
    expected = pl.concat([whole(table) for table in some])
    assert whole(chained(joined)).equals(expected)
