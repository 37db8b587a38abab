"""Small parts into larger ones, so that the cost of a night follows what is new.

Each batch writes a part per table. Where FAN parts of one table are of one tier, they become one
part of the next: a row is written again once per tier, so log_FAN(batches) times in all, and a
table of n batches has at most FAN parts per tier. Rows that hold no longer are left out. Rows keep
the number of the batch that wrote them, and a rebuild from merged parts comes to the same end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, groupby
from typing import Final

import polars as pl

from .catalogue import SCORED
from .changeset import BESIDE, GIVEN
from .local_backend import Shelf
from .parquet_parts import Part, rows_of

FAN: Final = 16
"""Parts of one tier that are merged."""
MOST_ROWS: Final = 2_000_000
"""The most rows of one merge, which holds them in memory: 1.7 GB or so where they are steps."""

BY_RUN: Final = frozenset({"runs", "facts", "steps", "events"})
BY_SOURCE: Final = frozenset({"sources", "unread"})
NEWEST: Final[Mapping[str, tuple[str, ...]]] = {
    BESIDE: ("sha256",),
    GIVEN: ("run_id", "name"),
    SCORED: ("run_id", "formula"),
}
"""Tables of which only the newest batch's rows hold, for each value of these columns."""


def due(parts: Iterable[Part]) -> list[list[Part]]:
    """Groups of parts that are to be merged, at most one for each table.

    A tier is full with FAN parts. Of the first full tier of a table its FAN oldest parts are
    merged, or the oldest that hold MOST_ROWS together; parts of more than half of that are large
    enough as they are. One group a table, for a batch has one part of it.
    """
    found: dict[str, list[Part]] = {}
    small = (part for part in parts if part.rows <= MOST_ROWS // 2)
    for (table, _), group in groupby(sorted(small, key=_place), key=_tier):
        tier = list(group)
        if len(tier) >= FAN:
            found.setdefault(table, _at_once(tier[:FAN]))
    return [*found.values()]


def _at_once(tier: Sequence[Part]) -> list[Part]:
    rows = accumulate(part.rows for part in tier)
    return [part for part, so_far in zip(tier, rows, strict=True) if so_far <= MOST_ROWS]


def all_of(parts: Iterable[Part]) -> list[list[Part]]:
    """All parts, table by table, where a table has several."""
    by_table = groupby(sorted(parts, key=_place), key=_table)
    return [group for _, parts_ in by_table if len(group := list(parts_)) > 1]


def merged(shelf: Shelf, parts: Sequence[Part], live: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """The rows of parts of one table that hold, in the order of their batches.

    live: `runs` with run_id and batch, `sources` with sha256 and batch, as the catalogue has them.
    Raises StoreError that names a part that is damaged.
    """
    table = parts[0].table_name
    frame = pl.concat([rows_of(shelf, part) for part in parts], how="diagonal_relaxed")
    if table in BY_RUN:
        frame = frame.join(live["runs"], on=["run_id", "batch"], how="semi", maintain_order="left")
    elif table in BY_SOURCE:
        on = ["sha256", "batch"]
        frame = frame.join(live["sources"], on=on, how="semi", maintain_order="left")
    elif table in NEWEST:
        frame = newest(frame, NEWEST[table])
    return frame.sort("batch", maintain_order=True)


def newest(frame: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """The rows of the newest batch, of each of `by`."""
    return frame.filter(pl.col("batch") == pl.col("batch").max().over(by))


def _place(part: Part) -> tuple[str, int, int, str]:
    return part.table_name, part.tier, part.first_batch, part.path


def _tier(part: Part) -> tuple[str, int]:
    return part.table_name, part.tier


def _table(part: Part) -> str:
    return part.table_name
