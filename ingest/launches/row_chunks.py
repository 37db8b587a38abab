"""Rows of a launch: those that were read line by line, and those of many lines at once.

Both stand in the order in which they came, and go where a spool keeps them as they become many. Who
asks for a row gets a mapping; who needs all of a column gets it piece by piece.
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
"""Rows as they are handed on."""
SPARSE_COLUMNS: Final = ("rank", "logged_at", "extra", "epoch", "since_start_s")
"""Columns of rows of many lines at once that are null in most formats, and take time as others."""
MAPPING_ROW_WEIGHT: Final = 4
"""A mapping takes as much memory as so many rows of a frame."""
ROW_WEIGHT_BYTES: Final = 256
"""Twice what a row of numbers takes; one with a long text weighs as much as several of them."""
MAX_WAITING_FRAMES: Final = 4
"""That wait as they came; of more, each is of few rows."""


@dataclass(frozen=True, slots=True)
class ChunkSlice:
    """Some of the rows of a piece."""

    piece: SpooledFrame
    first: int
    height: int

    def read(self, columns: Iterable[str]) -> pl.DataFrame:
        """These columns of the share's rows, as Piece.read."""
        frame = self.piece.read(columns)
        return frame if self.height == frame.height else frame.slice(self.first, self.height)


class RowChunks(Sequence[Row]):
    """Rows in their order; `append` one, or `extend` by a frame."""

    COLUMN_TYPES: ClassVar[Mapping[str, pl.DataType]]
    """The columns that they may have; each has a `line`."""

    def __init__(self, spool: Spool | None = None) -> None:
        """spool: where they are put aside."""
        self._spool = spool or Spool()
        self._pieces: list[ChunkSlice] = []
        self._waiting: list[RowBatch] = []
        self._loose = 0
        self._names = self.COLUMN_TYPES
        self._count = 0
        self._put = 0

    def append(self, row: Row) -> None:
        """One more row."""
        if not self._waiting or isinstance(self._waiting[-1], pl.DataFrame):
            self._waiting.append([])
        last = self._waiting[-1]
        assert isinstance(last, list)  # noqa: S101 - it was made so
        last.append(row)
        self._more(1, MAPPING_ROW_WEIGHT)

    def extend(self, frame: pl.DataFrame) -> None:
        """All rows of a frame: columns of KEPT that they fill."""
        weight = max(frame.height, int(frame.estimated_size()) // ROW_WEIGHT_BYTES)
        waits = self._loose + weight < spill.CHUNK_ROWS
        self._waiting.append(
            _copied(frame) if waits and len(self._waiting) >= MAX_WAITING_FRAMES else frame
        )
        self._more(frame.height, weight)

    @property
    def weight(self) -> int:
        """What they take in memory, or would where they are put aside, in rows of a frame."""
        return self._put + self._loose

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        return self.behind(0)

    def behind(self, count: int) -> Iterator[Row]:
        """The rows behind the first so many."""
        return chain.from_iterable(map(self._rows, self._parts_behind(count)))

    def _parts_behind(self, count: int) -> list[RowBatch | ChunkSlice]:
        """The parts behind the first `count` rows, as they are kept."""
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
        """These columns of all rows, by default those that some are said to have, in pieces."""
        self._fold()
        return map(partial(self._frame, names), self._pieces)

    def frames_reversed(self, *names: str) -> Iterator[pl.DataFrame]:
        """These columns, the last piece first; rows within a piece in their order."""
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
        """Put aside what has come since the last piece."""
        spool_waiting_rows([self])

    def waiting_rows(self) -> list[RowBatch]:
        """What has come since the last piece."""
        return self._waiting if self._loose else []

    def keep(self, frame: pl.DataFrame) -> SpooledFrame:
        """Put a frame aside where the rows are."""
        return self._spool.keep(frame)

    def kept(self, chunk_slice: ChunkSlice, _: pl.DataFrame) -> None:
        """All that waited is there now; the frame: of the piece."""
        self._pieces.append(chunk_slice)
        self._waiting, self._loose, self._put = [], 0, self._count

    def _read(self, piece: ChunkSlice, names: Iterable[str]) -> pl.DataFrame:
        return piece.read({"line": None, **dict.fromkeys(names)})  # every row has a line

    def _rows(self, part: RowBatch | ChunkSlice) -> Iterator[Row]:
        """Each row of a part as the parser makes it of one line."""
        if isinstance(part, list):
            return iter(part)
        frame = part if isinstance(part, pl.DataFrame) else self._read(part, self._names)
        return self._mappings(frame)

    def _mappings(self, frame: pl.DataFrame) -> Iterator[Row]:
        """Each row of a frame, with all columns."""
        return select_filled(frame, self._names, self.COLUMN_TYPES).iter_rows(named=True)


def spool_waiting_rows(row_chunks: Iterable[RowChunks]) -> None:
    """What has come to each since its last piece, as one frame: of it each has its own rows."""
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
    """Rows and frames in their order, as one frame."""
    own = [row for part in parts if isinstance(part, list) for row in part]
    frames = [part for part in parts if isinstance(part, pl.DataFrame)]
    if own:
        frames = [frame_of_rows(own, schema, filled_only=True), *frames]
    joined = _said(pl.concat(frames, how="diagonal", rechunk=True))
    order = _order(parts, len(own))
    return joined if (np.diff(order) == 1).all() else take_rows(joined, order)


def _order(parts: Iterable[RowBatch], behind: int) -> Ints:
    """Places of the rows of parts where own rows stand before those of frames, so many."""
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
    """The frame, copied to memory of Polars' own.

    Its columns are numpy's and Arrow's, which lie among the large arrays of the block that they are
    of. Where they stay, the C library cannot give the room of these to the next block: up to a
    third of the memory that a log with few steps took.
    """
    every = take_rows(frame, np.arange(frame.height))
    return every.with_columns(pl.col(pl.String) + "")


def _said(frame: pl.DataFrame) -> pl.DataFrame:
    """A frame without those of SPARSE_COLUMNS that no row says."""
    there = [name for name in SPARSE_COLUMNS if name in frame.columns]
    return frame.drop([name for name in there if frame[name].null_count() == frame.height])


def select_filled(
    frame: pl.DataFrame, names: Iterable[str], schema: Mapping[str, pl.DataType]
) -> pl.DataFrame:
    """These columns of a frame; one that it does not have is null."""
    wanted = list(names)
    if frame.columns == wanted:
        return frame
    missing = [name for name in wanted if name not in frame.columns]
    empty = [_nothing(n, schema[n]).new_from_index(0, frame.height) for n in missing]
    return frame.hstack(empty)[wanted]


@cache
def _nothing(name: str, kind: pl.DataType) -> pl.Series:
    """One null; to make it takes longer than to repeat it."""
    return pl.Series(name, [None], kind)


def with_line_numbers(rows: RowBatch, lines: Ints) -> RowBatch:
    """The rows with these as their lines."""
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
    """Rows as a frame of that schema; what they lack is null, or with `filled_only` left out."""
    said = set[str]().union(*rows)
    return pl.DataFrame(
        [  # as columns: of a dict and a schema each would be made three times
            pl.Series(name, [row.get(name) for row in rows], kind)
            if name in said
            else _nothing(name, kind).new_from_index(0, len(rows))
            for name, kind in schema.items()
            if name in said or not filled_only
        ]
    )
