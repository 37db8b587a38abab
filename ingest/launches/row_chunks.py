"""Rows of a launch: some read line by line, others many lines at once.

All keep their order of arrival, and move to a spool when they become many. A single row is read as
a mapping, a whole column piece by piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from typing import Any, ClassVar, Final, overload

import numpy as np
import polars as pl

from ..core import spill
from ..core.arrays import Ints, take_rows
from ..core.spill import Spool, SpooledFrame

Row = dict[str, Any]
RowBatch = list[Row] | pl.DataFrame
"""Rows in the form in which readers pass them on."""
SPARSE_COLUMNS: Final = ("rank", "logged_at", "extra", "epoch", "since_start_s")
"""Columns that are null in most formats, but cost as much time as others."""
MAPPING_ROW_WEIGHT: Final = 4
"""Memory of a mapping, in rows of a frame."""
ROW_WEIGHT_BYTES: Final = 256
"""Twice the size of a row of numbers; a row with a long text weighs as much as several."""
MAX_WAITING_FRAMES: Final = 4
"""Frames that wait uncopied; further ones are small and copied."""


@dataclass(frozen=True, slots=True)
class ChunkSlice:
    """Some of the rows of a piece."""

    piece: SpooledFrame
    first: int
    height: int

    def read(self, columns: Iterable[str]) -> pl.DataFrame:
        """Return these columns of the slice, as SpooledFrame.read."""
        frame = self.piece.read(columns)
        return frame if self.height == frame.height else frame.slice(self.first, self.height)


class RowChunks(Sequence[Row]):
    """Rows in their order; `append` a mapping, or `extend` by a frame."""

    COLUMN_TYPES: ClassVar[Mapping[str, pl.DataType]]
    """Columns that rows may have; every row has a `line`."""

    def __init__(self, spool: Spool | None = None) -> None:
        """Begin without rows. spool: storage of the pieces."""
        self._spool = spool or Spool()
        self._pieces: list[ChunkSlice] = []
        self._waiting: list[RowBatch] = []
        self._loose = 0
        self._names = self.COLUMN_TYPES
        self._count = 0
        self._put = 0

    def append(self, row: Row) -> None:
        """Append a row."""
        if not self._waiting or isinstance(self._waiting[-1], pl.DataFrame):
            self._waiting.append([])
        last = self._waiting[-1]
        assert isinstance(last, list)  # noqa: S101 - it was made so
        last.append(row)
        self._more(1, MAPPING_ROW_WEIGHT)

    def extend(self, frame: pl.DataFrame) -> None:
        """Append all rows of a frame, with any of COLUMN_TYPES."""
        weight = max(frame.height, int(frame.estimated_size()) // ROW_WEIGHT_BYTES)
        waits = self._loose + weight < spill.CHUNK_ROWS
        self._waiting.append(
            _copied(frame) if waits and len(self._waiting) >= MAX_WAITING_FRAMES else frame
        )
        self._more(frame.height, weight)

    @property
    def weight(self) -> int:
        """Memory of all rows as if none were spooled, in rows of a frame."""
        return self._put + self._loose

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        return self.behind(0)

    def behind(self, count: int) -> Iterator[Row]:
        """Yield the rows after the first `count`."""
        return chain.from_iterable(map(self._rows, self._parts_behind(count)))

    def _parts_behind(self, count: int) -> list[RowBatch | ChunkSlice]:
        """Return the parts after the first `count` rows, as they are stored."""
        parts: list[RowBatch | ChunkSlice] = []
        begins = self._count
        for part in chain(reversed(self._waiting), reversed(self._pieces)):
            if begins <= count:
                break
            parts.append(part)
            begins -= len(part) if isinstance(part, list) else part.height
        if parts and begins < count:
            skipped, first = count - begins, parts.pop()
            kept = self._read(first, self._names) if isinstance(first, ChunkSlice) else first
            parts.append(kept[skipped:])
        return parts[::-1]

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return list(self)[index]
        if not -self._count <= index < self._count:
            raise IndexError(index)
        return next(self.behind(index % self._count))

    def frames(self, *names: str) -> Iterator[pl.DataFrame]:
        """Yield these columns of all rows, piece by piece; by default all columns."""
        self._fold()
        return map(partial(self._frame, names), self._pieces)

    def frames_reversed(self, *names: str) -> Iterator[pl.DataFrame]:
        """Yield these columns, last piece first; rows keep their order within a piece."""
        self._fold()
        return map(partial(self._frame, names), reversed(self._pieces))

    def _frame(self, names: Sequence[str], piece: ChunkSlice) -> pl.DataFrame:
        frame = self._read(piece, names or self._names)
        return select_filled(frame, names, self.COLUMN_TYPES) if names else frame

    def _more(self, count: int, weight: int) -> None:
        self._count += count
        self._loose += weight
        if self._loose >= spill.CHUNK_ROWS:
            self._fold()

    def _fold(self) -> None:
        """Spool the rows since the last piece."""
        spool_waiting_rows([self])

    def waiting_rows(self) -> list[RowBatch]:
        """Return the rows since the last piece."""
        return self._waiting if self._loose else []

    def keep(self, frame: pl.DataFrame) -> SpooledFrame:
        """Spool a frame where the rows are."""
        return self._spool.keep(frame)

    def kept(self, chunk_slice: ChunkSlice, _: pl.DataFrame) -> None:
        """Record the piece that now contains all waiting rows."""
        self._pieces.append(chunk_slice)
        self._waiting, self._loose, self._put = [], 0, self._count

    def _read(self, piece: ChunkSlice, names: Iterable[str]) -> pl.DataFrame:
        return piece.read({"line": None, **dict.fromkeys(names)})  # every row has a line

    def _rows(self, part: RowBatch | ChunkSlice) -> Iterator[Row]:
        """Yield the rows of a part as the parser makes them from single lines."""
        if isinstance(part, list):
            return iter(part)
        frame = part if isinstance(part, pl.DataFrame) else self._read(part, self._names)
        return self._mappings(frame)

    def _mappings(self, frame: pl.DataFrame) -> Iterator[Row]:
        """Yield the rows of a frame, with all columns."""
        return select_filled(frame, self._names, self.COLUMN_TYPES).iter_rows(named=True)


def spool_waiting_rows(row_chunks: Iterable[RowChunks]) -> None:
    """Spool all waiting rows as one frame, of which every `RowChunks` keeps its slice."""
    waiting = [(rows, parts) for rows in row_chunks if (parts := rows.waiting_rows())]
    if not waiting:
        return
    first_rows, _ = waiting[0]
    frame = _joined([part for _, parts in waiting for part in parts], first_rows.COLUMN_TYPES)
    piece, first = first_rows.keep(frame), 0
    for rows, parts in waiting:
        height = sum(map(len, parts))
        rows.kept(ChunkSlice(piece, first, height), frame)
        first += height


def _joined(parts: Sequence[RowBatch], schema: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """Return rows and frames as one frame, in their order."""
    mappings = [row for part in parts if isinstance(part, list) for row in part]
    frames = [part for part in parts if isinstance(part, pl.DataFrame)]
    if mappings:
        frames = [frame_of_rows(mappings, schema, filled_only=True), *frames]
    joined = _without_null_columns(pl.concat(frames, how="diagonal", rechunk=True))
    order = _order(parts, len(mappings))
    return joined if (np.diff(order) == 1).all() else take_rows(joined, order)


def _order(parts: Iterable[RowBatch], behind: int) -> Ints:
    """Return indices that restore the order of parts.

    behind: number of mappings, which precede the rows of frames
    """
    places, next_own, next_framed = [], 0, behind
    for part in parts:
        if isinstance(part, list):
            places.append(np.arange(next_own, next_own + len(part)))
            next_own += len(part)
        else:
            places.append(np.arange(next_framed, next_framed + part.height))
            next_framed += part.height
    return np.concatenate(places)


def _copied(frame: pl.DataFrame) -> pl.DataFrame:
    """Copy a frame into Polars' own memory.

    Its columns are views of numpy's and Arrow's memory, next to the large arrays of their block. As
    long as such views exist, the C library cannot reuse that memory for the next block. For a log
    with few steps, this cost up to a third of the memory.
    """
    every = take_rows(frame, np.arange(frame.height))
    return every.with_columns(pl.col(pl.String) + "")


def _without_null_columns(frame: pl.DataFrame) -> pl.DataFrame:
    """Drop the columns of SPARSE_COLUMNS that are all null."""
    sparse = [name for name in SPARSE_COLUMNS if name in frame.columns]
    return frame.drop([name for name in sparse if frame[name].null_count() == frame.height])


def select_filled(
    frame: pl.DataFrame, names: Iterable[str], schema: Mapping[str, pl.DataType]
) -> pl.DataFrame:
    """Return columns of a frame; missing columns are null."""
    wanted = list(names)
    if frame.columns == wanted:
        return frame
    missing = [name for name in wanted if name not in frame.columns]
    empty = [_nothing(n, schema[n]).new_from_index(0, frame.height) for n in missing]
    return frame.hstack(empty)[wanted]


@cache
def _nothing(name: str, kind: pl.DataType) -> pl.Series:
    """Return a cached null: creating one is slower than repeating it."""
    return pl.Series(name, [None], kind)


def with_line_numbers(rows: RowBatch, lines: Ints) -> RowBatch:
    """Return the rows with new line numbers."""
    if isinstance(rows, pl.DataFrame):
        line = pl.Series("line", lines, pl.Int64)
        return rows.with_columns(line) if "line" in rows.columns else rows.hstack([line])
    return [row | {"line": line} for row, line in zip(rows, lines.tolist(), strict=True)]


def frame_of_rows(
    rows: Sequence[Mapping[str, Any]],
    schema: Mapping[str, pl.DataType],
    *,
    filled_only: bool = False,
) -> pl.DataFrame:
    """Return rows as a frame of the schema; missing values are null.

    filled_only: leave out columns that no row has
    """
    filled = set[str]().union(*rows)
    return pl.DataFrame(
        [  # as series: from a dict and a schema, Polars would build columns three times
            pl.Series(name, [row.get(name) for row in rows], kind)
            if name in filled
            else _nothing(name, kind).new_from_index(0, len(rows))
            for name, kind in schema.items()
            if name in filled or not filled_only
        ]
    )
