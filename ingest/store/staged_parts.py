"""Parts that are written before there is a batch, by workers; the batch that lists them has them.

The name of such a part follows from its rows and the job, so that whoever does a task again writes
the same file, and rows count once. What no batch took is deleted by a writer a day later.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Final

import polars as pl

from ..core.errors import StoreError
from ..core.spill import ChainedRows, SlicedRows, StreamedRows, TableRows, chain_rows
from .local_backend import StoreBackend
from .parquet_parts import (
    PARTS_FOLDER,
    ROW_GROUP_ROWS,
    STAGED_FILE_PATH,
    STAGED_TIER,
    ParquetPart,
    damaged_part_error,
    split_rows,
    write_parquet,
)

MAX_STAGED_ROWS: Final = 2**18
"""The most rows of one part: whoever takes some of its rows, but not all, reads it again."""
STAGED_PART_LIFETIME_S: Final = 24 * 3600
"""How long a driver may take to list what its workers wrote, by the time of its writing [s]."""


@dataclass(frozen=True, slots=True, eq=False)
class StagedPart:
    """Such a part: rows of several logs that wait (spool.Waiting)."""

    shelf: StoreBackend
    part: ParquetPart

    @property
    def height(self) -> int:
        """How many rows it has."""
        return self.part.rows

    def is_visible(self) -> bool:
        """Whether this machine sees what another may have written."""
        return self.shelf.size(self.part.path) == self.part.bytes

    def assign_to_batch(self, batch: int) -> ParquetPart:
        """The part of the batch that takes it. Raises StoreError where it is gone."""
        if not self.is_visible():
            raise StoreError(
                f"{self.shelf.at(self.part.path)}: a worker wrote this part, and it is gone before "
                "it was taken. Run it again: nothing of its logs was stored."
            )
        return replace(self.part, first_batch=batch, last_batch=batch)

    def slices(self, first: int, height: int) -> Iterator[pl.DataFrame]:
        """So many of its rows. Raises StoreError where it is gone or damaged."""
        try:
            with self.shelf.open(self.part.path) as part:
                rows = pl.read_parquet(part, n_rows=first + height)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise damaged_part_error(self.shelf, self.part.path, error) from error
        yield from rows[first:].iter_slices(ROW_GROUP_ROWS)


def write_staged_parts(
    backend: StoreBackend, job_id: str, table: str, rows: TableRows
) -> list[StagedPart]:
    """Rows of one table that a batch to come may take; none of no rows.

    job_id: one word for all parts that one driver may take.
    """
    if isinstance(rows, pl.DataFrame):
        rows = StreamedRows(rows.schema, rows.height, rows.iter_slices)
    written = []
    for some in split_rows(rows, MAX_STAGED_ROWS):
        aside = backend.aside(f"{PARTS_FOLDER}/{table}/{job_id}-{token_hex(8)}.parquet")
        size, sha256 = write_parquet(aside, some, {"table": table})
        path = f"{PARTS_FOLDER}/{table}/{job_id}-{sha256[:32]}.parquet"
        backend.put(aside, path)
        part = ParquetPart(
            table_name=table,
            path=path,
            first_batch=0,
            last_batch=0,
            tier=STAGED_TIER,
            rows=some.height,
            bytes=size,
            sha256=sha256,
        )
        written.append(StagedPart(backend, part))
    return written


def split_off_staged_parts(rows: TableRows) -> tuple[list[StagedPart], TableRows | None]:
    """Parts of which all rows are among these, and the rows that are left, if any."""
    tables = rows.tables if isinstance(rows, ChainedRows) else [rows]
    heights = Counter[StagedPart]()
    for one in tables:
        if isinstance(one, SlicedRows) and isinstance(one.piece, StagedPart):
            heights[one.piece] += one.height
    every = [piece for piece, height in heights.items() if height == piece.height]
    left = [one for one in tables if not isinstance(one, SlicedRows) or one.piece not in every]
    return every, chain_rows(left) if left else None


def may_still_be_listed(backend: StoreBackend, path: str) -> bool:
    """Whether a file of parts may be one that a driver is about to list."""
    at = backend.modified_at(path) if backend.shared or STAGED_FILE_PATH.fullmatch(path) else None
    return at is not None and abs(time.time() - at) < STAGED_PART_LIFETIME_S
