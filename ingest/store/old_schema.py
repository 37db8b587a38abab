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
from .changeset import (
    BESIDE_SCHEMA,
    BESIDE_TABLE,
    GIVEN_TABLE,
    LOG_TABLES,
    REMOVED_TABLE,
    Tables,
    removed_sources_frame,
)
from .local_backend import StoreBackend
from .parquet_parts import METADATA_PREFIX, PARTS_FOLDER, RECORD_TABLE, read_part

READABLE_SCHEMA_VERSION: Final = "2"
OLD_RECORD_GLOB: Final = "all-*-batch.parquet"


@dataclass(frozen=True, slots=True)
class _Part:
    path: Path
    table: str
    owner: str
    kind: str


def find_old_records(store: Path) -> list[Path]:
    """The records of an earlier schema, in their order; none in a store of this one."""
    return sorted((store / PARTS_FOLDER / RECORD_TABLE).glob(OLD_RECORD_GLOB))


def read_old_batches(store: Path) -> Iterator[Tables]:
    """What each batch of an earlier schema changed, in the tables of ingest.store.changeset.

    Raises StoreError on a part that is gone, damaged or of a schema that is not known.
    """
    runs_of: dict[str, list[str]] = {}
    for record in find_old_records(store):
        paths = [store / path for path in _read(record)["path"]]
        read_at = datetime.fromtimestamp(record.stat().st_mtime, UTC).replace(tzinfo=None)
        yield _tables([_part(path) for path in paths], read_at, runs_of)


def _read(path: Path) -> pl.DataFrame:
    return read_part(StoreBackend(path.parent), path.name)


def _part(path: Path) -> _Part:
    try:
        marks = pl.read_parquet_metadata(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise StoreError(
            f"{path}: this part is gone or damaged, so the store cannot be brought up to date. "
            "Ingest the logs again into a new --store."
        ) from error
    if marks.get(f"{METADATA_PREFIX}schema") != READABLE_SCHEMA_VERSION:
        raise StoreError(
            f"{path}: written with schema {marks.get(f'{METADATA_PREFIX}schema')}, which this "
            "program does not read. Use the version of fairmfu that wrote it, or ingest the logs "
            "again into a new --store."
        )
    return _Part(
        path,
        marks[f"{METADATA_PREFIX}table"],
        marks[f"{METADATA_PREFIX}owner"],
        marks[f"{METADATA_PREFIX}kind"],
    )


def _tables(parts: Sequence[_Part], read_at: datetime, runs_of: dict[str, list[str]]) -> Tables:
    """runs_of: by sha256, the runs of the sources of earlier batches; kept up to date."""
    tables: dict[str, list[pl.DataFrame]] = {}
    gone: list[str] = []
    for part in parts:
        frame = _read(part.path)
        if part.kind == REMOVED_TABLE:
            gone += frame["sha256"].to_list()
        elif part.kind == BESIDE_TABLE:
            tables.setdefault(BESIDE_TABLE, []).append(_beside(frame, part.owner))
        elif part.kind == GIVEN_TABLE:
            tables.setdefault(GIVEN_TABLE, []).append(_like(frame, frame_schema("facts")))
        elif part.table in LOG_TABLES:
            tables.setdefault(part.table, []).append(_like(frame, frame_schema(part.table)))
    found = {table: pl.concat(frames) for table, frames in tables.items()}
    if gone:
        staying = found["runs"]["run_id"].to_list() if "runs" in found else ()
        found[REMOVED_TABLE] = removed_sources_frame({s: runs_of.get(s, ()) for s in gone}, staying)
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
