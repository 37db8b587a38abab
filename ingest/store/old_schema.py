"""Stores of earlier schemas, read for the first writer that meets them, which brings them up.

Schema 2 kept a part for each source and table, in
parts/<table>/<source>-<sequence>-<kind>.parquet; its batches were the parts of a sequence that
parts/batch/all-<sequence>-batch.parquet lists, replayed in order of the sequence:

    log        the rows of one source, in place of those that the same source had
    beside     all facts from beside one source, in place of the earlier ones
    given      facts by hand; without a value, one is taken back
    removed    sources that are no more
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import polars as pl

from ..core.errors import StoreError
from ..core.schema import frame_schema
from .changeset import BESIDE, BESIDE_SCHEMA, GIVEN, LOG_TABLES, REMOVED, Tables, removed
from .local_backend import Shelf
from .parquet_parts import MARK, PARTS, RECORD, read_part

READABLE: Final = "2"
RECORDS: Final = "all-*-batch.parquet"


@dataclass(frozen=True, slots=True)
class _Part:
    path: Path
    table: str
    owner: str
    kind: str


def found(store: Path) -> list[Path]:
    """The records of an earlier schema, in their order; none in a store of this one."""
    return sorted((store / PARTS / RECORD).glob(RECORDS))


def batches(store: Path) -> Iterator[Tables]:
    """What each batch of an earlier schema changed, in the tables of ingest.store.changeset.

    Raises StoreError on a part that is gone, damaged or of a schema that is not known.
    """
    runs_of: dict[str, list[str]] = {}
    for record in found(store):
        paths = [store / path for path in _read(record)["path"]]
        read_at = datetime.fromtimestamp(record.stat().st_mtime, UTC).replace(tzinfo=None)
        yield _tables([_part(path) for path in paths], read_at, runs_of)


def _read(path: Path) -> pl.DataFrame:
    return read_part(Shelf(path.parent), path.name)


def _part(path: Path) -> _Part:
    try:
        marks = pl.read_parquet_metadata(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise StoreError(
            f"{path}: this part is gone or damaged, so the store cannot be brought up to date. "
            "Ingest the logs again into a new --store."
        ) from error
    if marks.get(f"{MARK}schema") != READABLE:
        raise StoreError(
            f"{path}: written with schema {marks.get(f'{MARK}schema')}, which this program does "
            "not read. Use the version of fairmfu that wrote it, or ingest the logs again into a "
            "new --store."
        )
    return _Part(
        path,
        marks[f"{MARK}table"],
        marks[f"{MARK}owner"],
        marks[f"{MARK}kind"],
    )


def _tables(parts: Sequence[_Part], read_at: datetime, runs_of: dict[str, list[str]]) -> Tables:
    """runs_of: by sha256, the runs of the sources of earlier batches; kept up to date."""
    tables: dict[str, list[pl.DataFrame]] = {}
    gone: list[str] = []
    for part in parts:
        frame = _read(part.path)
        if part.kind == REMOVED:
            gone += frame["sha256"].to_list()
        elif part.kind == BESIDE:
            tables.setdefault(BESIDE, []).append(_beside(frame, part.owner))
        elif part.kind == GIVEN:
            tables.setdefault(GIVEN, []).append(_like(frame, frame_schema("facts")))
        elif part.table in LOG_TABLES:
            tables.setdefault(part.table, []).append(_like(frame, frame_schema(part.table)))
    found = {table: pl.concat(frames) for table, frames in tables.items()}
    if gone:
        staying = found["runs"]["run_id"].to_list() if "runs" in found else ()
        found[REMOVED] = removed({s: runs_of.get(s, ()) for s in gone}, staying)
    if "sources" in found:
        dated = pl.lit(read_at, pl.Datetime("us")).alias("read_at")
        found["sources"] = found["sources"].with_columns(dated)
        for sha256, run in found["runs"].select("sha256", "run_id").iter_rows():
            runs_of.setdefault(sha256, []).append(run)
    return found


def _beside(facts: pl.DataFrame, owner: str) -> pl.DataFrame:
    if facts.is_empty():
        return pl.DataFrame([{"sha256": owner}], schema=BESIDE_SCHEMA)
    return _like(facts.with_columns(sha256=pl.lit(owner)), BESIDE_SCHEMA)


def _like(frame: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    """With the columns of today; one that there was not yet is null."""
    there = frame.columns
    return frame.select(
        (pl.col(name) if name in there else pl.lit(None)).cast(dtype).alias(name)
        for name, dtype in schema.items()
    )
