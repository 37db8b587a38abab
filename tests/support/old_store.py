"""The store that an earlier version wrote, for tests of what reads it.

Frozen: nothing here follows the program.
"""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any, Final

import polars as pl

from tests.support.folders import TESTS

STORES: Final = TESTS / "old_stores"


def genuine(to: Path) -> Path:
    """Copy to `to` the store that the program wrote when schema 3 was new: facts quote no line."""
    shutil.copytree(STORES / "schema-3", to)
    packed = to / "catalogue.duckdb.gz"
    (to / "catalogue.duckdb").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    return to


def said_by_genuine() -> dict[str, list[dict[str, Any]]]:
    """By table, the rows that the program of then read in `genuine`; times are texts."""
    text = (STORES / "schema-3.json").read_text(encoding="utf-8")
    tables: dict[str, list[dict[str, Any]]] = json.loads(text)
    return tables


def as_told(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Rows in the form of `said_by_genuine`."""
    rows = frame.rows(named=True)
    said: list[dict[str, Any]] = json.loads(json.dumps(rows, default=lambda at: at.isoformat()))
    return said
