"""Only names that fairmfu gives to files are read, written or deleted in a store."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.core.errors import StoreError
from fairmfu.ingest.store.local_backend import StoreBackend
from fairmfu.ingest.store.part_paths import is_part_path, part_path
from fairmfu.ingest.store.store import Store
from tests.support.error_kinds import of_kind
from tests.support.shared_databases import own_readers

TABLES = st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True)
ACTS: dict[str, Callable[[StoreBackend, str], object]] = {
    "open": lambda shelf, path: shelf.open(path).close(),
    "readable": lambda shelf, path: shelf.readable(path),
    "delete": lambda shelf, path: shelf.delete(path),
    "size": lambda shelf, path: shelf.size(path),
    "modified_at": lambda shelf, path: shelf.modified_at(path),
    "aside": lambda shelf, path: shelf.aside(path),
    "put": lambda shelf, path: shelf.put(shelf.home / "new", path),
}
PART = "parts/steps/00000001.parquet"


@given(TABLES, st.integers(0, 10**12 - 1), st.integers(0, 10**9 - 1))
def test_what_the_program_writes_is_a_name_of_a_part(table: str, batch: int, place: int) -> None:
    path = part_path(table, batch, place)
    assert is_part_path(path, table)
    assert not is_part_path(path, f"{table}x")
    assert not is_part_path(f"/{path}")
    assert not is_part_path(f"{path}\n")


@given(st.text("ab./0123456789-_parquetwritingsteps\\\n~", max_size=60) | st.text())
def test_a_name_of_a_part_leads_nowhere_else(path: str) -> None:
    if is_part_path(path):
        assert path.count("/") == 2
        assert ".." not in path
        assert path.startswith("parts/")


@given(st.integers(0, len(PART) - 1), st.sampled_from("./\\ \n*A\u0661"))
def test_a_changed_character_is_no_name_of_a_part(place: int, character: str) -> None:
    changed = PART[:place] + character + PART[place + 1 :]
    assert changed == PART or not is_part_path(changed)


@pytest.fixture
def shelf(tmp_path: Path) -> StoreBackend:
    (tmp_path / "store" / "parts" / "steps").mkdir(parents=True)
    (tmp_path / "store" / "new").write_text("new")
    (tmp_path / "00000001.parquet").write_text("mine")
    (tmp_path / "00000001.writing").write_text("mine")
    return StoreBackend(tmp_path / "store")


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize(
    "path", ["../00000001.parquet", "parts/../../00000001.parquet", "/etc/passwd", "writer.lock"]
)
def test_no_act_takes_another_path(shelf: StoreBackend, act: str, path: str) -> None:
    with pytest.raises(StoreError, check=of_kind("foreign-path")):
        ACTS[act](shelf, path)
    assert (shelf.home.parent / "00000001.parquet").read_text() == "mine"


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("linked", ["parts", "parts/steps"])
def test_no_act_follows_a_linked_folder(shelf: StoreBackend, act: str, linked: str) -> None:
    outside = shelf.home.parent
    (outside / "steps").mkdir()
    (outside / "steps" / "00000001.parquet").write_text("mine")
    (shelf.home / "parts" / "steps").rmdir()
    if linked == "parts":
        (shelf.home / "parts").rmdir()
    (shelf.home / linked).symlink_to(outside)
    with pytest.raises(StoreError, check=of_kind("linked-part")):
        ACTS[act](shelf, PART)
    with pytest.raises(StoreError, check=of_kind("linked-part")):
        shelf.listed("parts/steps")
    for path in ("00000001.parquet", "00000001.writing", "steps/00000001.parquet"):
        assert (outside / path).read_text() == "mine"


def test_a_link_is_neither_read_nor_written_through(shelf: StoreBackend) -> None:
    mine = shelf.home.parent / "00000001.parquet"
    part = shelf.home / PART
    part.symlink_to(mine)
    with pytest.raises(StoreError, check=of_kind("linked-part")):
        shelf.open(PART)
    part.with_suffix(".writing").symlink_to(mine)
    aside = shelf.aside(PART)
    aside.write_text("new")
    assert mine.read_text() == "mine"
    shelf.put(aside, PART)
    assert part.read_text() == "new"
    shelf.delete(PART)
    assert mine.read_text() == "mine"


@pytest.mark.parametrize(
    "statement",
    [
        "from read_text('/etc/hostname')",
        "copy (select 1) to 'escaped.csv'",
        "attach 'escaped.duckdb'",
        "set enable_external_access = true",
        "install httpfs",
    ],
)
def test_the_writer_reaches_only_its_catalogue(tmp_path: Path, statement: str) -> None:
    with own_readers():
        connection = Store(tmp_path / "store")._locked_down_writer()
        with pytest.raises(duckdb.Error):
            connection.execute(statement)
