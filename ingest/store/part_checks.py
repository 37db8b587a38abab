"""Checks of a part before its rows are merged or enter a catalogue.

A part counts only with the bytes that its record lists, and with the columns of its table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import polars as pl

from ..core.schema import LATER_COLUMNS, TABLES, frame_schema
from .changeset import BESIDE_SCHEMA, BESIDE_TABLE, GIVEN_TABLE, REMOVED_SCHEMA, REMOVED_TABLE
from .local_backend import StoreBackend, sha256_of_file
from .parquet_parts import (
    METADATA_PREFIX,
    STAGED_TIER,
    ParquetPart,
    check_schema_version,
    damaged_part_error,
    read_rows_with_batch,
)

UNREADABLE: Final = (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""Errors of a read of a damaged part."""

PART_COLUMNS: Final[Mapping[str, pl.Schema]] = {
    **{table: frame_schema(table) for table in TABLES},
    BESIDE_TABLE: BESIDE_SCHEMA,
    GIVEN_TABLE: frame_schema("facts"),
    REMOVED_TABLE: REMOVED_SCHEMA,
    "metrics": pl.Schema({"run_id": pl.String, "formula": pl.String, "as_of": pl.Int64}),
}
"""Columns that each table's parts must have; parts of other tables may have any."""
_FACT_TABLES: Final = (BESIDE_TABLE, GIVEN_TABLE)


def check_part(backend: StoreBackend, part: ParquetPart) -> None:
    """Raise StoreError if a part is gone, changed, or of another schema or table."""
    try:
        with backend.open(part.path) as file:
            marks = pl.read_parquet_metadata(file)
            file.seek(0)
            columns = pl.read_parquet_schema(file)
            file.seek(0)
            is_same = sha256_of_file(file) == part.sha256
    except UNREADABLE as error:
        raise damaged_part_error(backend, part.path, error) from error
    check_schema_version(backend, part.path, marks)
    if (
        not is_same
        or marks.get(f"{METADATA_PREFIX}table", part.table_name) != part.table_name
        or not _has_columns(part, columns)
    ):
        raise damaged_part_error(backend, part.path)


def read_checked_rows(backend: StoreBackend, part: ParquetPart) -> pl.DataFrame:
    """Return the rows of a part with their batch, after `check_part`.

    Raises StoreError also if a row belongs to a batch outside the part's range.
    """
    check_part(backend, part)
    rows = read_rows_with_batch(backend, part)
    batches = rows["batch"]
    is_of_part = batches.is_between(part.first_batch, part.last_batch).all(ignore_nulls=False)
    if rows.height != part.rows or not is_of_part:
        raise damaged_part_error(backend, part.path)
    return rows


def _has_columns(part: ParquetPart, columns: Mapping[str, pl.DataType]) -> bool:
    """Return whether a part has the columns of its table; later ones may be missing."""
    wanted = dict(PART_COLUMNS.get(part.table_name, {}))
    if part.tier != STAGED_TIER:
        wanted["batch"] = pl.Int64()
    later = LATER_COLUMNS.get("facts" if part.table_name in _FACT_TABLES else part.table_name, ())
    return all(
        columns[name] == dtype if name in columns else name in later
        for name, dtype in wanted.items()
    )
