"""Small parts into larger ones, so that the cost of a night follows what is new.

Each batch writes a part per table. Where MERGE_FAN_IN parts of one table are of one tier, they
become one part of the next: a row is written again once per tier, so log_FAN(batches) times in all,
and a table of n batches has at most MERGE_FAN_IN parts per tier. Rows that hold no longer are left
out. Rows keep the number of the batch that wrote them, and a rebuild from merged parts comes to the
same end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, groupby
from typing import Final

import polars as pl

from .catalogue import METRICS_TABLE
from .changeset import BESIDE_TABLE, GIVEN_TABLE
from .local_backend import StoreBackend
from .parquet_parts import ParquetPart, read_rows_with_batch

MERGE_FAN_IN: Final = 16
"""Parts of one tier that are merged."""
MAX_MERGE_ROWS: Final = 2_000_000
"""The most rows of one merge, which holds them in memory: 1.7 GB or so where they are steps."""

RUN_TABLES: Final = frozenset({"runs", "facts", "steps", "events"})
SOURCE_TABLES: Final = frozenset({"sources", "unread"})
LATEST_ONLY_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    BESIDE_TABLE: ("sha256",),
    GIVEN_TABLE: ("run_id", "name"),
    METRICS_TABLE: ("run_id", "formula"),
}
"""Tables of which only the newest batch's rows hold, for each value of these columns."""


def due_merges(parts: Iterable[ParquetPart]) -> list[list[ParquetPart]]:
    """Groups of parts that are to be merged, at most one for each table.

    A tier is full with MERGE_FAN_IN parts. Of the first full tier of a table its MERGE_FAN_IN
    oldest parts are merged, or the oldest that hold MAX_MERGE_ROWS together; parts of more than
    half of that are large enough as they are. One group a table, for a batch has one part of it.
    """
    found: dict[str, list[ParquetPart]] = {}
    small = (part for part in parts if part.rows <= MAX_MERGE_ROWS // 2)
    for (table, _), group in groupby(sorted(small, key=_place), key=_tier):
        tier = list(group)
        if len(tier) >= MERGE_FAN_IN:
            found.setdefault(table, _at_once(tier[:MERGE_FAN_IN]))
    return [*found.values()]


def _at_once(tier: Sequence[ParquetPart]) -> list[ParquetPart]:
    rows = accumulate(part.rows for part in tier)
    return [part for part, so_far in zip(tier, rows, strict=True) if so_far <= MAX_MERGE_ROWS]


def full_merges(parts: Iterable[ParquetPart]) -> list[list[ParquetPart]]:
    """All parts, table by table, where a table has several."""
    by_table = groupby(sorted(parts, key=_place), key=_table)
    return [group for _, parts_ in by_table if len(group := list(parts_)) > 1]


def merge_live_rows(
    backend: StoreBackend, parts: Sequence[ParquetPart], live_keys: Mapping[str, pl.DataFrame]
) -> pl.DataFrame:
    """The rows of parts of one table that hold, in the order of their batches.

    live_keys: `runs` with run_id and batch, `sources` with sha256 and batch, as the catalogue has
    them. Raises StoreError that names a part that is damaged.
    """
    table = parts[0].table_name
    frame = pl.concat(
        [read_rows_with_batch(backend, part) for part in parts], how="diagonal_relaxed"
    )
    if table in RUN_TABLES:
        frame = frame.join(
            live_keys["runs"], on=["run_id", "batch"], how="semi", maintain_order="left"
        )
    elif table in SOURCE_TABLES:
        on = ["sha256", "batch"]
        frame = frame.join(live_keys["sources"], on=on, how="semi", maintain_order="left")
    elif table in LATEST_ONLY_KEYS:
        frame = latest_rows(frame, LATEST_ONLY_KEYS[table])
    return frame.sort("batch", maintain_order=True)


def latest_rows(frame: pl.DataFrame, key_columns: Sequence[str]) -> pl.DataFrame:
    """The rows of the newest batch, of each of `key_columns`."""
    return frame.filter(pl.col("batch") == pl.col("batch").max().over(key_columns))


def _place(part: ParquetPart) -> tuple[str, int, int, str]:
    return part.table_name, part.tier, part.first_batch, part.path


def _tier(part: ParquetPart) -> tuple[str, int]:
    return part.table_name, part.tier


def _table(part: ParquetPart) -> str:
    return part.table_name
