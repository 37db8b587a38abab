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
from ..core.spill import Chained, Cut, Streamed, Table, chained
from .local_backend import Shelf
from .parquet_parts import AHEAD, GROUP_ROWS, PARTS, UNBATCHED, Part, damaged, portions, write

MOST_ROWS: Final = 2**18
"""The most rows of one part: whoever takes some of its rows, but not all, reads it again."""
YOUNG_S: Final = 24 * 3600
"""How long a driver may take to list what its workers wrote, by the time of its writing [s]."""


@dataclass(frozen=True, slots=True, eq=False)
class Unbatched:
    """Such a part: rows of several logs that wait (spool.Waiting)."""

    shelf: Shelf
    part: Part

    @property
    def height(self) -> int:
        """How many rows it has."""
        return self.part.rows

    def is_here(self) -> bool:
        """Whether this machine sees what another may have written."""
        return self.shelf.size(self.part.path) == self.part.bytes

    def of_batch(self, batch: int) -> Part:
        """The part of the batch that takes it. Raises StoreError where it is gone."""
        if not self.is_here():
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
            raise damaged(self.shelf, self.part.path, error) from error
        yield from rows[first:].iter_slices(GROUP_ROWS)


def write_unbatched(shelf: Shelf, job: str, table: str, rows: Table) -> list[Unbatched]:
    """Rows of one table that a batch to come may take; none of no rows.

    job: one word for all parts that one driver may take.
    """
    if isinstance(rows, pl.DataFrame):
        rows = Streamed(rows.schema, rows.height, rows.iter_slices)
    written = []
    for some in portions(rows, MOST_ROWS):
        aside = shelf.aside(f"{PARTS}/{table}/{job}-{token_hex(8)}.parquet")
        size, sha256 = write(aside, some, {"table": table})
        path = f"{PARTS}/{table}/{job}-{sha256[:32]}.parquet"
        shelf.put(aside, path)
        part = Part(table, path, 0, 0, UNBATCHED, some.height, size, sha256)
        written.append(Unbatched(shelf, part))
    return written


def taken(rows: Table) -> tuple[list[Unbatched], Table | None]:
    """Parts of which all rows are among these, and the rows that are left, if any."""
    tables = rows.tables if isinstance(rows, Chained) else [rows]
    heights = Counter[Unbatched]()
    for one in tables:
        if isinstance(one, Cut) and isinstance(one.piece, Unbatched):
            heights[one.piece] += one.height
    every = [piece for piece, height in heights.items() if height == piece.height]
    left = [one for one in tables if not isinstance(one, Cut) or one.piece not in every]
    return every, chained(left) if left else None


def young(shelf: Shelf, path: str) -> bool:
    """Whether a file of parts may be one that a driver is about to list."""
    at = shelf.written_at(path) if shelf.shared or AHEAD.fullmatch(path) else None
    return at is not None and abs(time.time() - at) < YOUNG_S
