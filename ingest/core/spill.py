"""Rows waiting to be stored: a few in memory, more on disk.

Spilled rows go into an unnamed file. The system frees an unnamed file when the process ends,
however it ends, so a killed process leaves no file to clean up. A thread writes while reading goes
on.
"""

from __future__ import annotations

import io
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import IO, Final, Literal, Protocol, Self

import polars as pl

from .messages import SPOOL_FAILED

MAX_HELD_BYTES: Final = 2 * 1024 * 1024
"""Bytes of rows that wait in memory (about 12,000 steps); as many may be on their way to the disk.
"""
CHUNK_ROWS: Final = 32_768
"""Rows that are read, written and processed together."""


class Spool:
    """Frames put aside and read again, in any order and any number of times."""

    def __init__(self, folder: Path | None = None, max_held_bytes: float | None = None) -> None:
        """Set up an empty spool.

        folder: of the file, created when needed; by default the system's temporary folder.
        max_held_bytes: bytes that may wait in memory, MAX_HELD_BYTES by default.
        """
        self._folder = folder
        self._most = MAX_HELD_BYTES if max_held_bytes is None else max_held_bytes
        self._file: IO[bytes] | None = None
        self._end = 0
        self._held: list[weakref.ref[SpooledFrame]] = []
        self._bytes = 0
        self._thread: ThreadPoolExecutor | None = None
        self._on_their_way: list[tuple[SpooledFrame, Future[tuple[int, int]]]] = []
        self._one_at_a_time = Lock()
        self._last: tuple[int, pl.DataFrame] | None = None

    def keep(self, frame: pl.DataFrame) -> SpooledFrame:
        """Put a frame aside; dropping the returned piece drops the frame.

        Raises StoreError on a full disk; rows that did not fit stay in memory.
        """
        piece = SpooledFrame(self, frame.columns, frame.height, frame)
        self._held.append(weakref.ref(piece))
        self._bytes += piece.bytes
        if self._bytes > self._most:
            self._relieve()
        return piece

    def rows(self, frame: pl.DataFrame) -> StreamedRows:
        """Put the rows of a table aside, in chunks."""
        pieces = [self.keep(part) for part in frame.iter_slices(CHUNK_ROWS)]
        schema = frame.schema
        return StreamedRows(schema, frame.height, lambda: (piece.read() for piece in pieces))

    def _relieve(self) -> None:
        """Write all rows in memory to the disk if they exceed the limit."""
        waiting = [piece for held in self._held if (piece := held()) is not None]
        self._held = [weakref.ref(piece) for piece in waiting]
        self._bytes = sum(piece.bytes for piece in waiting)
        if self._bytes <= self._most:
            return
        self.settle()
        self._thread = self._thread or ThreadPoolExecutor(1, "spool")
        for piece in waiting:
            self._on_their_way.append((piece, self._thread.submit(self.write, piece.read())))
        self._held, self._bytes = [], 0

    def settle(self) -> None:
        """Wait for writes to the disk. Raises StoreError on a full disk."""
        on_their_way, self._on_their_way = self._on_their_way, []
        for piece, written in on_their_way:
            piece.set_location(*written.result())

    def take(self, packed_frame: PackedFrame) -> SpooledFrame:
        """Put aside a frame packed by another process. Raises StoreError as `keep`."""
        piece = SpooledFrame(self, packed_frame.columns, packed_frame.height)
        piece.set_location(*self._append(memoryview(packed_frame.data)))
        return piece

    def write(self, frame: pl.DataFrame) -> tuple[int, int]:
        """Write a frame to the file; return its offset and length [bytes]."""
        return self._append(_packed(frame).getbuffer())

    def _append(self, rest: memoryview) -> tuple[int, int]:
        """Append bytes to the file; return their offset and length."""
        length = rest.nbytes
        try:
            with self._one_at_a_time:
                file, offset = self._opened(), self._end
                file.seek(offset)
                while rest:
                    rest = rest[file.write(rest) :]
                self._end += length
        except OSError as error:
            folder = self._folder or tempfile.gettempdir()
            raise SPOOL_FAILED(folder=folder, why=error.strerror or error) from error
        return offset, length

    def read(self, offset: int, length: int, columns: Sequence[str] | None) -> pl.DataFrame:
        """Read a frame that `write` wrote; columns: only these.

        The last frame stays in memory: logs that share a frame are read one after the other, and a
        slice keeps its whole frame in memory anyway.
        """
        if columns is None and self._last is not None and self._last[0] == offset:
            return self._last[1]
        with self._one_at_a_time:
            file = self._opened()
            file.seek(offset)
            packed = io.BytesIO(file.read(length))
        if columns is not None:
            return pl.read_parquet(packed, columns=list(columns))
        self._last = offset, pl.read_parquet(packed)
        return self._last[1]

    def _opened(self) -> IO[bytes]:
        if self._file is None:
            if self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115
            weakref.finalize(self, self._file.close)
        return self._file


@dataclass(frozen=True, slots=True)
class PackedFrame:
    """A frame in the file format of a spool, for the spool of another process."""

    columns: list[str]
    height: int
    data: bytes

    @classmethod
    def of(cls, frame: pl.DataFrame) -> Self:
        """Pack a frame for `Spool.take`."""
        return cls(frame.columns, frame.height, _packed(frame).getvalue())


def _packed(frame: pl.DataFrame) -> io.BytesIO:
    packed = io.BytesIO()
    frame.write_parquet(packed, compression=_worth(frame), statistics=False)
    return packed


def _worth(frame: pl.DataFrame) -> Literal["lz4", "uncompressed"]:
    """Return the compression of a frame on disk.

    lz4 halves the size of numbers and doubles their time. It shrinks texts to a fifth at no cost in
    time.
    """
    texts = sum(column.estimated_size() for column in frame.select(pl.col(pl.String)))
    return "lz4" if 2 * texts > frame.estimated_size() else "uncompressed"


class SpooledFrame:
    """A frame put aside in a spool."""

    def __init__(
        self, spool: Spool, columns: list[str], height: int, frame: pl.DataFrame | None = None
    ) -> None:
        """Set up a piece of a spool. frame: its rows, until they are on disk."""
        self.columns = columns
        self.height = height
        self.bytes = 0 if frame is None else int(frame.estimated_size())
        self._spool = spool
        self._frame = frame
        self._at = (0, 0)

    def read(self, columns: Iterable[str] | None = None) -> pl.DataFrame:
        """Return the frame.

        columns: only these, of which the frame must have at least one.
        """
        wanted = None if columns is None else [c for c in columns if c in self.columns]
        if self._frame is not None:
            return self._frame if wanted is None else self._frame[:, wanted]
        return self._spool.read(*self._at, wanted)

    def slices(self, first: int, height: int) -> Iterator[pl.DataFrame]:
        """Yield a slice of the rows."""
        yield self.read().slice(first, height)

    def set_location(self, offset: int, length: int) -> None:
        """Record the position on disk, and drop the frame from memory."""
        self._at, self._frame = (offset, length), None


class StreamedRows:
    """Rows of a table, read piece by piece, any number of times."""

    def __init__(
        self,
        schema: Mapping[str, pl.DataType],
        height: int,
        frames: Callable[[], Iterator[pl.DataFrame]],
    ) -> None:
        """Set up rows.

        frames: reads the frames, all of that schema, from the beginning; height: rows.
        """
        self.schema = schema if isinstance(schema, pl.Schema) else pl.Schema(schema)
        self.height = height
        self.frames = frames

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return self.schema.names()

    def with_columns(self, *exprs: pl.Expr, **named: pl.Expr) -> StreamedRows:
        """Return the rows with added columns.

        An expression may use only values of its own row.
        """
        schema = pl.DataFrame(schema=self.schema).with_columns(*exprs, **named).schema
        before = self.frames
        return StreamedRows(
            schema, self.height, lambda: (f.with_columns(*exprs, **named) for f in before())
        )

    def whole(self) -> pl.DataFrame:
        """Return all rows in memory."""
        return pl.concat([pl.DataFrame(schema=self.schema), *self.frames()])


TableRows = pl.DataFrame | StreamedRows
LogTables = Mapping[str, TableRows]
"""All tables of one log; tables that may be long are read piece by piece."""


class SliceableRows(Protocol):
    """Rows of a table, of several logs, on disk or in memory."""

    def slices(self, first: int, height: int) -> Iterator[pl.DataFrame]:
        """Yield a slice of the rows."""


class SlicedRows(StreamedRows):
    """A slice of such rows."""

    def __init__(self, source: SliceableRows, schema: pl.Schema, first: int, height: int) -> None:
        super().__init__(schema, height, self._frames)
        self.piece, self.first = source, first

    def _frames(self) -> Iterator[pl.DataFrame]:
        if self.height:
            yield from self.piece.slices(self.first, self.height)


class ChainedRows(StreamedRows):
    """Rows of tables of one schema, one table after the other."""

    def __init__(self, tables: Sequence[TableRows]) -> None:
        self.tables = tables
        height = sum(table.height for table in tables)
        super().__init__(tables[0].schema, height, self._frames)

    def _frames(self) -> Iterator[pl.DataFrame]:
        return chain.from_iterable(iterate_frames(table) for table in self.tables)


def chain_rows(tables: Iterable[TableRows]) -> TableRows:
    """Return the rows of tables of one schema, one table after the other.

    Tables in memory become one table in memory.
    """
    joined = list(_joined(_flat(tables)))
    if len(joined) == 1:
        return joined[0]
    in_memory = [table for table in joined if isinstance(table, pl.DataFrame)]
    return pl.concat(in_memory) if len(in_memory) == len(joined) else ChainedRows(joined)


def _flat(tables: Iterable[TableRows]) -> Iterator[TableRows]:
    """Yield the tables, with the parts of a chain for the chain."""
    for table in tables:
        if isinstance(table, ChainedRows):
            yield from table.tables
        else:
            yield table


def _joined(tables: Iterable[TableRows]) -> Iterator[TableRows]:
    """Yield the tables in order, with adjacent slices of one piece merged."""
    last: TableRows | None = None
    for table in tables:
        if (
            isinstance(table, SlicedRows)
            and isinstance(last, SlicedRows)
            and table.piece is last.piece
            and table.first == last.first + last.height
        ):
            last = SlicedRows(last.piece, last.schema, last.first, last.height + table.height)
            continue
        if last is not None:
            yield last
        last = table
    if last is not None:
        yield last


def collect_rows(table: TableRows) -> pl.DataFrame:
    """Return all rows of a table in memory."""
    return table.whole() if isinstance(table, StreamedRows) else table


def iterate_frames(table: TableRows) -> Iterator[pl.DataFrame]:
    """Iterate over the frames of a table."""
    return table.frames() if isinstance(table, StreamedRows) else iter([table])
