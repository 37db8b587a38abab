"""Parts that workers write before the driver starts their batch.

The name of a staged part follows from its rows and the job. A worker that repeats a task writes
the same file, so rows count once. A writer deletes unlisted staged parts after a day.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from secrets import token_hex
from typing import Final

import polars as pl

from ..core.spill import ChainedRows, SlicedRows, StreamedRows, TableRows, chain_rows
from .local_backend import StoreBackend
from .messages import STAGED_PART_LOST
from .parquet_parts import (
    ROW_GROUP_ROWS,
    STAGED_TIER,
    ParquetPart,
    damaged_part_error,
    split_rows,
    write_parquet,
)
from .part_paths import PARTS_FOLDER, STAGED_FILE_PATH

MAX_STAGED_ROWS: Final = 2**18
"""Row limit of one staged part: a batch that needs only some of the rows reads the whole part."""
STAGED_PART_LIFETIME_S: Final = 24 * 3600
"""Age at which an unlisted staged part may be deleted [s]: the driver's time to list the part."""


@dataclass(frozen=True, slots=True, eq=False)
class StagedPart:
    """Staged rows of several logs, as `core.spill.SlicedRows` reads them."""

    shelf: StoreBackend
    part: ParquetPart

    @property
    def height(self) -> int:
        """Number of rows."""
        return self.part.rows

    def is_visible(self) -> bool:
        """Return whether this machine already sees the whole file."""
        return self.shelf.size(self.part.path) == self.part.bytes

    def assign_to_batch(self, batch: int) -> ParquetPart:
        """Return the part with its batch number. Raises StoreError if the file is gone."""
        if not self.is_visible():
            raise STAGED_PART_LOST(path=self.shelf.at(self.part.path))
        return replace(self.part, first_batch=batch, last_batch=batch)

    def slices(self, first: int, height: int) -> Iterator[pl.DataFrame]:
        """Yield `height` rows from row `first` on.

        Raises StoreError if the file is gone or damaged.
        """
        try:
            with self.shelf.open(self.part.path) as part:
                rows = pl.read_parquet(part, n_rows=first + height)
        except (OSError, pl.exceptions.PolarsError) as error:
            raise damaged_part_error(self.shelf, self.part.path, error) from error
        yield from rows[first:].iter_slices(ROW_GROUP_ROWS)


def write_staged_parts(
    backend: StoreBackend, job_id: str, table: str, rows: TableRows
) -> list[StagedPart]:
    """Write rows of a table as staged parts; none for no rows.

    job_id: one word, shared by all parts for the same driver.
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
    """Split off the staged parts whose rows are all included.

    Returns these parts and the remaining rows, None if no rows remain.
    """
    tables = rows.tables if isinstance(rows, ChainedRows) else [rows]
    heights = Counter[StagedPart]()
    for table in tables:
        if isinstance(table, SlicedRows) and isinstance(table.piece, StagedPart):
            heights[table.piece] += table.height
    complete = [piece for piece, height in heights.items() if height == piece.height]
    remaining = [
        table
        for table in tables
        if not isinstance(table, SlicedRows) or table.piece not in complete
    ]
    return complete, chain_rows(remaining) if remaining else None


def may_still_be_listed(backend: StoreBackend, path: str) -> bool:
    """Return whether a driver may still list this file of the parts folder."""
    at = backend.modified_at(path) if backend.shared or STAGED_FILE_PATH.fullmatch(path) else None
    return at is not None and abs(time.time() - at) < STAGED_PART_LIFETIME_S
