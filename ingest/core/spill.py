"""Rows that wait until they are stored: in memory while they are few, behind that on the disk.

What goes to the disk goes into a file without a name: the system takes it back when its process
ends, however that is, so nobody has to look for what a killed one left. A thread takes it there,
while more is read.
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

from .errors import StoreError

MAX_HELD_BYTES: Final = 2 * 1024 * 1024
"""The most bytes of rows that wait in memory (12,000 steps or so); as many may be on their way."""
CHUNK_ROWS: Final = 32_768
"""Rows that are read, written and looked at together."""


class Spool:
    """Frames that are put aside and read again, in any order and as often as they are asked for."""

    def __init__(self, folder: Path | None = None, max_held_bytes: float | None = None) -> None:
        """folder: where the file is, made when it is needed; by default that of the system.

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
        """Put a frame aside; it is forgotten with the piece.

        Raises StoreError on a disk that is full; what it has no room for stays in memory.
        """
        piece = SpooledFrame(self, frame.columns, frame.height, frame)
        self._held.append(weakref.ref(piece))
        self._bytes += piece.bytes
        if self._bytes > self._most:
            self._relieve()
        return piece

    def rows(self, frame: pl.DataFrame) -> StreamedRows:
        """Put the rows of a table aside."""
        pieces = [self.keep(part) for part in frame.iter_slices(CHUNK_ROWS)]
        schema = frame.schema
        return StreamedRows(schema, frame.height, lambda: (piece.read() for piece in pieces))

    def _relieve(self) -> None:
        """Have the disk hold what still waits in memory, if that is still too much."""
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
        """Wait for what goes to the disk. Raises StoreError where it is full."""
        on_their_way, self._on_their_way = self._on_their_way, []
        for piece, written in on_their_way:
            piece.set_location(*written.result())

    def take(self, packed_frame: PackedFrame) -> SpooledFrame:
        """Put a frame aside that another process has packed. Raises StoreError as `keep`."""
        piece = SpooledFrame(self, packed_frame.columns, packed_frame.height)
        piece.set_location(*self._append(memoryview(packed_frame.data)))
        return piece

    def write(self, frame: pl.DataFrame) -> tuple[int, int]:
        """Where the file has the frame from now on: its place and length [bytes]."""
        return self._append(_packed(frame).getbuffer())

    def _append(self, rest: memoryview) -> tuple[int, int]:
        """Where the file has these bytes from now on."""
        length = rest.nbytes
        try:
            with self._one_at_a_time:
                file, place = self._opened(), self._end
                file.seek(place)
                while rest:
                    rest = rest[file.write(rest) :]
                self._end += length
        except OSError as error:
            raise StoreError(
                f"{self._folder or tempfile.gettempdir()}: no room for rows that wait to be stored "
                f"({error.strerror or error}). Free some space and run it again."
            ) from error
        return place, length

    def read(self, offset: int, length: int, columns: Sequence[str] | None) -> pl.DataFrame:
        """What `write` has written; columns: these alone.

        The frame that was read last is at hand: those of many logs that are cut from one are asked
        for one behind the other, and each holds the memory of all that it is cut from.
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
    """A frame as the file of a spool has it, for the spool of another process."""

    columns: list[str]
    height: int
    data: bytes

    @classmethod
    def of(cls, frame: pl.DataFrame) -> Self:
        """What `Spool.take` puts aside as `Spool.keep` does the frame."""
        return cls(frame.columns, frame.height, _packed(frame).getvalue())


def _packed(frame: pl.DataFrame) -> io.BytesIO:
    packed = io.BytesIO()
    frame.write_parquet(packed, compression=_worth(frame), statistics=False)
    return packed


def _worth(frame: pl.DataFrame) -> Literal["lz4", "uncompressed"]:
    """The compression of a frame on the disk: numbers take half the room by it, and twice the time.

    Texts take a fifth, and as long.
    """
    texts = sum(column.estimated_size() for column in frame.select(pl.col(pl.String)))
    return "lz4" if 2 * texts > frame.estimated_size() else "uncompressed"


class SpooledFrame:
    """A frame that was put aside."""

    def __init__(
        self, spool: Spool, columns: list[str], height: int, frame: pl.DataFrame | None = None
    ) -> None:
        """frame: as long as no disk holds it."""
        self.columns = columns
        self.height = height
        self.bytes = 0 if frame is None else int(frame.estimated_size())
        self._spool = spool
        self._frame = frame
        self._at = (0, 0)

    def read(self, columns: Iterable[str] | None = None) -> pl.DataFrame:
        """The frame; columns: those of these that it has, which are to be one at least."""
        wanted = None if columns is None else [c for c in columns if c in self.columns]
        if self._frame is not None:
            return self._frame if wanted is None else self._frame[:, wanted]
        return self._spool.read(*self._at, wanted)

    def slices(self, first: int, height: int) -> Iterator[pl.DataFrame]:
        """So many of its rows."""
        yield self.read().slice(first, height)

    def set_location(self, offset: int, length: int) -> None:
        """The disk holds it."""
        self._at, self._frame = (offset, length), None


class StreamedRows:
    """Rows of a table that are read piece by piece, as often as they are asked for."""

    def __init__(
        self,
        schema: Mapping[str, pl.DataType],
        height: int,
        frames: Callable[[], Iterator[pl.DataFrame]],
    ) -> None:
        """frames: reads them from the beginning, each of that schema; height: their rows."""
        self.schema = schema if isinstance(schema, pl.Schema) else pl.Schema(schema)
        self.height = height
        self.frames = frames

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return self.schema.names()

    def with_columns(self, *exprs: pl.Expr, **named: pl.Expr) -> StreamedRows:
        """The rows with these columns, each of which follows from its row alone."""
        schema = pl.DataFrame(schema=self.schema).with_columns(*exprs, **named).schema
        before = self.frames
        return StreamedRows(
            schema, self.height, lambda: (f.with_columns(*exprs, **named) for f in before())
        )

    def whole(self) -> pl.DataFrame:
        """All rows in memory."""
        return pl.concat([pl.DataFrame(schema=self.schema), *self.frames()])


TableRows = pl.DataFrame | StreamedRows
LogTables = Mapping[str, TableRows]
"""All tables of one log; those that may be long are read piece by piece."""


class SliceableRows(Protocol):
    """Rows of one table that wait somewhere, of several logs."""

    def slices(self, first: int, height: int) -> Iterator[pl.DataFrame]:
        """So many of them."""


class SlicedRows(StreamedRows):
    """Some of the rows that wait together."""

    def __init__(self, source: SliceableRows, schema: pl.Schema, first: int, height: int) -> None:
        super().__init__(schema, height, self._frames)
        self.piece, self.first = source, first

    def _frames(self) -> Iterator[pl.DataFrame]:
        if self.height:
            yield from self.piece.slices(self.first, self.height)


class ChainedRows(StreamedRows):
    """The rows of tables of one schema, one behind the other."""

    def __init__(self, tables: Sequence[TableRows]) -> None:
        self.tables = tables
        height = sum(table.height for table in tables)
        super().__init__(tables[0].schema, height, self._frames)

    def _frames(self) -> Iterator[pl.DataFrame]:
        return chain.from_iterable(iterate_frames(table) for table in self.tables)


def chain_rows(tables: Iterable[TableRows]) -> TableRows:
    """The rows of tables of one schema, one behind the other; what is in memory is so together."""
    joined = list(_joined(_flat(tables)))
    if len(joined) == 1:
        return joined[0]
    in_memory = [table for table in joined if isinstance(table, pl.DataFrame)]
    return pl.concat(in_memory) if len(in_memory) == len(joined) else ChainedRows(joined)


def _flat(tables: Iterable[TableRows]) -> Iterator[TableRows]:
    """The tables without chains: the parts of one in its place."""
    for table in tables:
        if isinstance(table, ChainedRows):
            yield from table.tables
        else:
            yield table


def _joined(tables: Iterable[TableRows]) -> Iterator[TableRows]:
    """The rows in their order; tables that wait behind one another become one."""
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
    """All rows of a table in memory."""
    return table.whole() if isinstance(table, StreamedRows) else table


def iterate_frames(table: TableRows) -> Iterator[pl.DataFrame]:
    """The rows of a table, piece by piece."""
    return table.frames() if isinstance(table, StreamedRows) else iter([table])
