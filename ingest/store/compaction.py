"""Merges of small parts, so that the cost of a write follows the new rows.

Each batch writes a part per table. MERGE_FAN_IN parts of one table and tier become one part of the
next tier. A row is rewritten once per tier, log_FAN(batches) times in all, and a table has at most
MERGE_FAN_IN parts per tier. A merge drops replaced rows. The remaining rows keep the number of
their batch, so a rebuild from merged parts gives the same catalogue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, groupby
from typing import Final

import polars as pl

from .catalogue import METRICS_TABLE
from .changeset import BESIDE_TABLE, GIVEN_TABLE
from .local_backend import StoreBackend
from .parquet_parts import ParquetPart, damaged_part_error
from .part_checks import read_checked_rows

MERGE_FAN_IN: Final = 16
"""Number of parts of one tier that become one part."""
MAX_MERGE_ROWS: Final = 2_000_000
"""Row limit of one merge, which needs all rows in memory: about 1.7 GB for steps."""

RUN_TABLES: Final = frozenset({"runs", "facts", "steps", "events"})
SOURCE_TABLES: Final = frozenset({"sources", "unread"})
LATEST_ONLY_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    BESIDE_TABLE: ("sha256",),
    GIVEN_TABLE: ("run_id", "name"),
    METRICS_TABLE: ("run_id", "formula"),
}
"""Tables where only rows of the newest batch count, per value of these key columns."""


def due_merges(parts: Iterable[ParquetPart]) -> list[list[ParquetPart]]:
    """Return the groups of parts to merge now, at most one per table.

    A tier is full with MERGE_FAN_IN parts. The oldest MERGE_FAN_IN parts of a table's first full
    tier are merged, or as many of these as have MAX_MERGE_ROWS in total. Parts above half of
    MAX_MERGE_ROWS stay unmerged. One group per table, because a batch writes one merged part per
    table.
    """
    groups: dict[str, list[ParquetPart]] = {}
    small = (part for part in parts if part.rows <= MAX_MERGE_ROWS // 2)
    for (table, _), group in groupby(sorted(small, key=_place), key=_tier):
        tier = list(group)
        if len(tier) >= MERGE_FAN_IN:
            groups.setdefault(table, _at_once(tier[:MERGE_FAN_IN]))
    return [*groups.values()]


def _at_once(tier: Sequence[ParquetPart]) -> list[ParquetPart]:
    rows = accumulate(part.rows for part in tier)
    return [part for part, so_far in zip(tier, rows, strict=True) if so_far <= MAX_MERGE_ROWS]


def full_merges(parts: Iterable[ParquetPart]) -> list[list[ParquetPart]]:
    """Return all parts of each table that has several."""
    by_table = groupby(sorted(parts, key=_place), key=_table)
    return [group for _, parts_ in by_table if len(group := list(parts_)) > 1]


def merge_live_rows(
    backend: StoreBackend, parts: Sequence[ParquetPart], live_keys: Mapping[str, pl.DataFrame]
) -> pl.DataFrame:
    """Return the current rows of parts of one table, in batch order.

    live_keys: the catalogue's `runs` (run_id, batch) and `sources` (sha256, batch).
    Raises StoreError with the path of a damaged part.
    """
    table = parts[0].table_name
    frame = concat_rows(backend, parts)
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


def concat_rows(backend: StoreBackend, parts: Sequence[ParquetPart]) -> pl.DataFrame:
    """Return the rows of parts of one table, after `part_checks.check_part` of each.

    Raises StoreError with the path of a damaged part, or if the columns of the parts differ in
    type.
    """
    frames = [read_checked_rows(backend, part) for part in parts]
    try:
        return pl.concat(frames, how="diagonal_relaxed")
    except pl.exceptions.PolarsError as error:
        raise damaged_part_error(backend, parts[-1].path) from error


def latest_rows(frame: pl.DataFrame, key_columns: Sequence[str]) -> pl.DataFrame:
    """Return the rows of the newest batch, per value of `key_columns`."""
    return frame.filter(pl.col("batch") == pl.col("batch").max().over(key_columns))


def _place(part: ParquetPart) -> tuple[str, int, int, str]:
    return part.table_name, part.tier, part.first_batch, part.path


def _tier(part: ParquetPart) -> tuple[str, int]:
    return part.table_name, part.tier


def _table(part: ParquetPart) -> str:
    return part.table_name
