"""Bytes to numbered lines, in bounded memory: text, compressed, pipe, event file.

Only a newline ends a line; carriage returns stay (progress bars put records after them). Exception:
carriage returns split a first line without an end, or longer than MAX_LINE_BYTES. So a log of the
old Macintosh, or one that went through `tr`, has its lines. A thread reads large or compressed
files some chunks ahead of the consumer: it decompresses, hashes, and finds the newlines.
"""

from __future__ import annotations

import hashlib
import io
import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from queue import Empty, Queue
from threading import Event, Thread
from typing import IO, Any, Final, NamedTuple, Self

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from ..core.arrays import Ints, find_byte
from ..core.errors import explain_read_error
from ..core.messages import UNREADABLE_FILE
from ..core.paths import as_remote
from ..core.progress import note_part
from .envelopes import (
    ByteStream,
    KeepsEnvelope,
    LineTags,
    UnwrappedStream,
    detect_envelopes,
    detect_json_texts,
    keeps_none,
)
from .line_text import decode_line
from .messages import (
    BINARY_FILE,
    DAMAGED_FILE,
    EMPTY_FILE,
    EVENT_FILE_WITHOUT_VALUES,
    OVERPACKED_FILE,
    PACKED_FILE,
)
from .tfevents import EventValues, TagSampler, is_event_file, read_event_values

NEWLINE: Final = ord("\n")
READ_BLOCK_BYTES: Final = 4 * 1024 * 1024
BYTES_BEFORE_BLOCK: Final = 64
BYTES_AFTER_BLOCK: Final = BYTES_BEFORE_BLOCK + 4_000
"""Bytes around a block, so that reads at its ends stay inside (see line_block)."""
MAX_CHUNKS_AHEAD: Final = 2
"""Decompressed chunks that wait for the consumer."""
MAX_NESTED_TEXTS: Final = 2
"""Nested JSON texts around a log."""
MAX_PEEK_BYTES: Final = 4 * READ_BLOCK_BYTES
"""Bytes of a file kept from peeking, so that they are not read twice."""
MAX_PEEK_VALUE_BYTES: Final = 32 * 1024 * 1024
"""Bytes of values kept from peeking into an event file, to its end: a million values take 28 MB."""
MAX_LINE_BYTES: Final = 256 * 1024
"""Longer lines are cut to this; the longest line seen in a real log has 123,793 characters."""

ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
GZIP_MAGIC: Final = b"\x1f\x8b"
GZIP_WINDOW_BITS: Final = 31
"""For ISA-L, as for zlib: header and checksum of gzip, and the largest window."""
GzipError: Final[type[Exception]] = isal_zlib.error  # type: ignore[assignment] # a wrong stub
ARCHIVE_MAGICS: Final[dict[bytes, tuple[str, str]]] = {
    b"\xfd7zX": ("file compressed by xz", "unxz FILE"),
    b"BZh": ("file compressed by bzip2", "bunzip2 FILE"),
    b"PK\x03\x04": ("zip archive", "unzip FILE"),
    b"\x04\x22\x4d\x18": ("file compressed by lz4", "unlz4 FILE"),
}
"""First bytes of archives and files of other compressors: kind of file, command to unpack."""
MAX_UNPACKED_RATIO: Final = 500
MIN_BOUNDED_BYTES: Final = 64 * 1024 * 1024
"""Largest content of a compressed file: this, or so many times its packed size. Logs pack 5 to 50
times; gzip packs equal bytes 1,030 times.
"""
GZIP_READ_BYTES: Final = 256 * 1024
STDIN_PATH: Final = Path("-")
CONTROL_BYTES: Final = bytes(byte for byte in range(27) if not 9 <= byte <= 13)  # noqa: PLR2004
"""Characters rare in a log: tabs, newlines and escapes of colours are not among them."""


class NumberedLine(NamedTuple):
    """A line of a source.

    cut: the line was longer than `MAX_LINE_BYTES`. ended: a newline follows; the last line of a
    file that was being written has none, and may be incomplete.
    """

    number: int
    text: str
    cut: bool
    ended: bool = True


class _Bytes(NamedTuple):
    """Fields of a chunk."""

    number: int
    data: bytes
    cut: bool = False
    ended: bool = True


class Chunk(_Bytes):
    """Lines of a source: whole lines with their newlines, or a single line.

    A line that is cut (see NumberedLine), or without a newline, is a chunk of its own.
    """

    room: pa.Buffer | None = None
    """Buffer of the bytes, which begin at BYTES_BEFORE_BLOCK; None without a buffer."""

    @property
    def is_whole(self) -> bool:
        """True if the chunk has whole lines, which can be read together."""
        return self.ended and not self.cut

    @property
    def view(self) -> bytes | memoryview:
        """The bytes, without a copy."""
        return self.data

    @cached_property
    def newlines(self) -> Ints:
        """Offsets of the newlines."""
        return find_byte(np.frombuffer(self.data, np.uint8), NEWLINE)

    @property
    def height(self) -> int:
        """Number of lines."""
        return len(self.newlines) if self.is_whole else 1

    def first(self, count: int) -> Chunk:
        """Return the first `count` of several lines."""
        return Chunk(self.number, self.data[: int(self.newlines[count - 1]) + 1])

    def lines(self) -> Iterator[NumberedLine]:
        """Yield the lines as text."""
        if not self.is_whole:
            yield NumberedLine(self.number, decode_line(self.data), self.cut, self.ended)
            return
        for number, raw in enumerate(self.data[:-1].split(b"\n"), self.number):
            long = len(raw) > MAX_LINE_BYTES
            yield NumberedLine(number, decode_line(raw[:MAX_LINE_BYTES]), long)


class _Roomy(Chunk):
    """Lines of a block of a large file, in the buffer that they were read into."""

    @classmethod
    def of(cls, number: int, room: pa.Buffer, newlines: Ints) -> Self:
        """Return a chunk of a buffer. number: of the first line; newlines: offsets."""
        chunk = cls(number, b"")
        chunk.room, chunk.newlines = room, newlines
        return chunk

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the buffer: Python would own its copy (see arrays.copy_to_arrow)."""
        return Chunk, (self.number, self.data)

    @property
    def view(self) -> memoryview:
        assert self.room is not None  # noqa: S101 - it was made with one
        return memoryview(self.room)[
            BYTES_BEFORE_BLOCK : BYTES_BEFORE_BLOCK + int(self.newlines[-1]) + 1
        ]

    def first(self, count: int) -> Chunk:
        """Return the first `count` of several lines, in the same buffer."""
        assert self.room is not None  # noqa: S101 - it was made with one
        return _Roomy.of(self.number, self.room, self.newlines[:count])

    @cached_property
    def data(self) -> bytes:
        """A copy of the bytes."""
        return bytes(self.view)


class ValueChunk(Chunk):
    """Values of an event file, written as lines only on demand."""

    values: EventValues

    @classmethod
    def of(cls, first_number: int, values: EventValues) -> Self:
        """Return a chunk of values. first_number: line number of the first value."""
        chunk = cls(first_number, b"")
        chunk.values = values
        return chunk

    @cached_property
    def data(self) -> bytes:
        """Lines of the values, with newlines."""
        text: str = self.values.texts.str.join("\n").item()
        return text.encode() + b"\n"

    def parts(self, sampler: TagSampler) -> Iterator[Chunk]:
        """Yield the parts with the sampled values."""
        for part in sampler.of(self.values):
            yield ValueChunk.of(self.number + part.start, self.values[part])

    def lines(self) -> Iterator[NumberedLine]:
        """Yield the lines; a line that is too long is not cut, but marked as not ended."""
        for number, text in enumerate(self.values.texts, self.number):
            short = len(text) <= MAX_LINE_BYTES  # texts are ASCII
            yield NumberedLine(number, decode_line(text.encode()), cut=False, ended=short)


class Source:
    """A file, read once: numbered lines.

    At the end also their count, the size and the hash. tags: origins of the lines, if a log
    collector names them. Use a source as a context: leaving closes the file, even if lines are
    unread.
    """

    def __init__(self, path: Path, *, keeps_envelope: KeepsEnvelope = keeps_none) -> None:
        """Set up a source. `path`: `-` for standard input. keeps_envelope: see envelopes."""
        self.path, self._keeps = path, keeps_envelope
        self.newest_first = False
        self.tags = LineTags()
        self.bytes = self.height = 0
        self.sha256 = ""
        self.hashing = True
        self._reading: Generator[Chunk] | None = None
        self._peeked: list[Chunk] | None = []
        self._begins: bytes | None = None
        self._kept: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self._reading is not None:
            self._reading.close()
        if self._kept is not None:
            self._kept.close()
        self._reading, self._peeked, self._kept = None, [], None

    def peek(self) -> Iterator[Chunk]:
        """Yield chunks to look at; `lines` and `chunks` begin at the first one again.

        For an event file, only the sampled values.
        """
        self._reading = self._begun()
        return self._peeking(self._reading)

    def _peeking(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Yield chunks, and keep them up to a limit."""
        seen, sampler = 0, TagSampler()
        for chunk in chunks:
            parts: Iterable[Chunk] = (chunk,)
            if isinstance(chunk, ValueChunk):
                seen, most = seen + chunk.values.bytes, MAX_PEEK_VALUE_BYTES
                parts = chunk.parts(sampler)
            else:
                seen, most = seen + len(chunk.view), MAX_PEEK_BYTES
            if self._peeked is not None and (self.path == STDIN_PATH or seen <= most):
                self._peeked.append(chunk)
            else:  # the whole file is read again, and hashed then
                self._peeked, self.hashing = None, False
            yield from parts

    def lines(self) -> Iterator[NumberedLine]:
        """Yield all lines of the file, from 1.

        Raises UnreadableSourceError as `chunks` does.
        """
        for chunk in self.chunks():
            yield from chunk.lines()

    def chunks(self) -> Iterator[Chunk]:
        """Yield the lines of the file, many at once; of an event file the values.

        Raises UnreadableSourceError if the file is missing, empty or broken off, and
        UnknownFormatError if it is binary, or an event file without values.
        """
        if self._reading is None or self._peeked is None:  # None: too much to keep
            self.close()
            self._reading = self._begun()
        while self._peeked:
            yield self._peeked.pop(0)
        yield from self._reading
        self._reading = None

    def _begun(self) -> Generator[Chunk]:
        """Open the file and return its chunks; reading ahead starts now."""
        reading = self._read()
        next(reading)
        return reading  # type: ignore[return-value]

    def _read(self) -> Generator[Chunk | None]:
        """Yield None once the file is open, then its chunks."""
        self.bytes, self.height, self.sha256, self.hashing = 0, 0, "", True
        if self.is_event_file():
            yield None
            yield from self._events()
            return
        empty, read_bytes = True, 0
        with self._open() as chunks:
            yield None
            for chunk in chunks:
                empty = False
                note_part(read_bytes := read_bytes + len(chunk.view))
                self.height += chunk.height
                yield chunk
                del chunk  # frees the memory before the next chunk is made
        if empty:
            raise EMPTY_FILE(path=self.path)

    def is_rereadable(self) -> bool:
        """Return whether the lines can be read again: not from a pipe or an event file."""
        return self.path != STDIN_PATH and self.path.is_file() and not self.is_event_file()

    def is_event_file(self) -> bool:
        """Return whether the file is an event file, with values as lines."""
        return self.path != STDIN_PATH and is_event_file(self._head())

    def is_text(self) -> bool:
        """Return whether the lines are the file's bytes: neither compressed nor values."""
        packed = self._head().startswith((GZIP_MAGIC, ZSTD_MAGIC))
        return not packed and not self.is_event_file()

    def _head(self) -> bytes:
        """Return the first bytes of the file, read once."""
        if self._begins is None:
            with self._file() as raw:
                self._begins = raw.read(64)
        return self._begins

    def _events(self) -> Iterator[Chunk]:
        """Yield the values of an event file.

        Hashes the file apart, as another library reads it. Raises UnknownFormatError without
        values: the run ended before its first step.
        """
        for values in read_event_values(self.path):
            if len(values):
                yield ValueChunk.of(self.height + 1, values)
            self.height += len(values)
        self.bytes, self.sha256 = self.path.stat().st_size, hash_content(self.path)
        if not self.height:
            raise EVENT_FILE_WITHOUT_VALUES(path=self.path)

    @contextmanager
    def _open(self) -> Iterator[Iterable[Chunk]]:
        if self.path == STDIN_PATH:
            yield self._whole_lines(_HashingStream(sys.stdin.buffer, self))
            return
        with self._file() as raw:
            magic = raw.read(4)
            raw.seek(0)
            hashed = _HashingStream(raw, self)
            _refuse_binary(self.path, magic, raw)
            if magic.startswith(GZIP_MAGIC):
                with _Ahead(self._whole_lines(_Unpacked(_Gunzipped(hashed), self))) as ahead:
                    yield ahead
            elif magic == ZSTD_MAGIC:
                packed = pa.PythonFile(hashed, mode="r")
                stream = pa.CompressedInputStream(packed, "zstd")
                with _Ahead(self._whole_lines(_Unpacked(stream, self))) as ahead:
                    yield ahead
            elif as_remote(self.path) or os.fstat(raw.fileno()).st_size > MAX_PEEK_BYTES:
                with _Ahead(self._whole_lines(hashed)) as ahead:
                    yield ahead
            else:
                yield self._whole_lines(hashed)

    def _whole_lines(self, stream: ByteStream) -> Iterator[Chunk]:
        return _whole_lines(stream, self.path, self._unwrapped)

    def _unwrapped(self, stream: ByteStream, first: bytes) -> tuple[ByteStream, bytes]:
        """Return a stream and its first block without the lines' envelopes."""
        for _ in range(MAX_NESTED_TEXTS):
            if (texts := detect_json_texts(first)) is None or self._keeps(texts, [first]):
                break
            inside = UnwrappedStream(stream, [texts])
            stream, first = inside, inside.given(first) or inside.read()
        unwraps, self.newest_first = detect_envelopes(first, self._keeps)
        if not unwraps:
            return stream, first
        unwrapped = UnwrappedStream(stream, unwraps)
        self.tags = unwrapped.tags
        return unwrapped, unwrapped.given(first)

    @contextmanager
    def _file(self) -> Iterator[IO[bytes]]:
        """Open the file at its beginning.

        A remote object stays open, for a single request.
        """
        if as_remote(self.path) is None:
            with _open_file(self.path) as raw:
                yield raw
            return
        self._kept = self._kept or _open_file(self.path)
        self._kept.seek(0)
        yield self._kept


def _open_file(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise UNREADABLE_FILE(path=path, why=explain_read_error(error)) from error


class _HashingStream:
    """Pass bytes on, and update the hash and size of the source."""

    closed = False

    def __init__(self, raw: IO[bytes], source: Source) -> None:
        self._raw, self._source, self._hash = raw, source, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        block = self._raw.read(size)
        self._passed(block)
        return block

    def readinto(self, room: memoryview) -> int:
        """Fill the buffer, except at the end; return the number of bytes."""
        if not isinstance(self._raw, io.BufferedIOBase):
            return _copied(self.read(len(room)), room)
        size = self._raw.readinto(room)
        self._passed(room[:size])
        return size

    def _passed(self, block: bytes | memoryview) -> None:
        self._source.bytes += len(block)
        if self._source.hashing and block:
            self._hash.update(block)
        elif self._source.hashing:
            self._source.sha256 = self._hash.hexdigest()

    def close(self) -> None:
        """The opener closes the raw file."""


class _Unpacked:
    """Decompressed content, until it is far larger than a log of the packed size."""

    def __init__(self, stream: ByteStream, source: Source) -> None:
        self._stream, self._source, self._bytes = stream, source, 0

    def read(self, size: int = READ_BLOCK_BYTES, /) -> bytes:
        """Return `size` bytes, fewer at the end. Raises UnreadableSourceError."""
        block = self._stream.read(size)
        self._bytes += len(block)
        most = max(MIN_BOUNDED_BYTES, MAX_UNPACKED_RATIO * self._source.bytes)
        if self._bytes > most:
            raise OVERPACKED_FILE(path=self._source.path, ratio=MAX_UNPACKED_RATIO)
        return block


class _Gunzipped:
    """Content of a gzip file: all members in order; zeros after them are ignored.

    Reads large blocks: the gzip module takes 8 KiB at a time, and waits for the GIL every time if
    another thread reads.
    """

    def __init__(self, packed: ByteStream) -> None:
        self._packed, self._waiting, self._member = (
            packed,
            b"",
            isal_zlib.decompressobj(GZIP_WINDOW_BITS),
        )
        self._error: Exception | None = None

    def read(self, size: int = READ_BLOCK_BYTES, /) -> bytes:
        """Return `size` bytes, fewer at the end.

        Raises EOFError, GzipError or OSError after the last readable bytes.
        """
        if self._error is not None:
            raise self._error
        pieces: list[bytes] = []
        missing = size
        while missing:
            try:
                piece = self._piece(missing)
            except (EOFError, GzipError, OSError) as error:
                if not pieces:
                    raise
                self._error, piece = error, b""
            if not piece:
                break
            pieces.append(piece)
            missing -= len(piece)
        return b"".join(pieces)

    def _piece(self, size: int) -> bytes:
        """Return the content of some packed bytes, at most `size`; empty at the end."""
        block = b""
        while not block:
            self._waiting = self._waiting or self._packed.read(GZIP_READ_BYTES)
            ended = not self._waiting
            if self._member.eof:
                self._waiting = self._waiting.lstrip(b"\0")
                if ended:
                    break
                if not self._waiting:
                    continue
                self._member = isal_zlib.decompressobj(GZIP_WINDOW_BITS)
            block = self._member.decompress(self._waiting, size)
            self._waiting = self._member.unconsumed_tail or self._member.unused_data
            if ended and not block and not self._member.eof:
                raise EOFError("Compressed file ended before the end-of-stream marker was reached")
        return block


class _Ahead:
    """Chunks that a thread reads some ahead of the consumer."""

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._chunks = chunks
        self._waiting: Queue[Chunk | Exception | None] = Queue(MAX_CHUNKS_AHEAD)
        self._unwanted = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Iterator[Chunk]:
        self._thread.start()
        return self._each()

    def __exit__(self, *_: object) -> None:
        self._unwanted.set()
        with suppress(Empty):
            while True:  # the thread may be waiting for room
                self._waiting.get_nowait()
        self._thread.join()

    def _each(self) -> Iterator[Chunk]:
        """Yield the chunks. Raises as reading does."""
        while (chunk := self._waiting.get()) is not None:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk
            del chunk

    def _run(self) -> None:
        try:
            for chunk in self._chunks:
                self._waiting.put(chunk)
                del chunk
                if self._unwanted.is_set():
                    return
        except Exception as error:  # noqa: BLE001 - `_each` raises it
            self._waiting.put(error)
        self._waiting.put(None)


def _refuse_binary(path: Path, magic: bytes, raw: IO[bytes]) -> None:
    if magic.startswith(GZIP_MAGIC) or magic == ZSTD_MAGIC:
        return
    if (packed := next((by for by in ARCHIVE_MAGICS if magic.startswith(by)), None)) is not None:
        what, command = ARCHIVE_MAGICS[packed]
        raise PACKED_FILE(path=path, what=what, command=command)
    head = raw.read(4096).replace(b"\0", b"")  # a file cut while it is written begins with NULs
    raw.seek(0)
    odd = len(head) - len(head.translate(None, CONTROL_BYTES))
    if head and odd > len(head) // 4:
        raise BINARY_FILE(path=path, odd=odd, size=len(head))


def _whole_lines(
    stream: ByteStream,
    path: Path,
    unwrapped: Callable[[ByteStream, bytes], tuple[ByteStream, bytes]] = lambda *given: given,
) -> Iterator[Chunk]:
    """Yield lines as chunks, with one block and one cut line in memory at most.

    unwrapped: replaces the stream and its first block. Raises as `_block` does.
    """
    number, rest, cut, large = 1, b"", False, False
    chunk: Chunk | None
    stream, first = unwrapped(*_first_block(stream, path))
    while True:
        if large and not cut:
            chunk, block = _large(stream, path, number, rest)
        else:
            chunk, block, first = None, first or _block(stream, path, number - 1), b""
            large = len(block) >= READ_BLOCK_BYTES
        if chunk is None and not block:
            break
        if cut:  # a cut line keeps its beginning; the next line follows its newline
            _, newline, block = block.partition(b"\n")
            if not newline:
                continue
            yield Chunk(number, rest, cut=True)
            number, rest, cut = number + 1, b"", False
        if chunk is None:
            end = block.rfind(b"\n") + 1
            data = b"".join((rest, memoryview(block)[:end]))
            chunk, rest = (Chunk(number, data), block[end:]) if end else (None, rest + block)
            del data
        else:
            rest = block
        del block  # takes as much memory as its lines
        if len(rest) > MAX_LINE_BYTES:
            rest, cut = rest[:MAX_LINE_BYTES], True
        if chunk is not None:
            number += len(chunk.newlines)
            yield chunk
            del chunk
    if rest or cut:
        yield Chunk(number, rest, cut, ended=False)


def _first_block(stream: ByteStream, path: Path) -> tuple[ByteStream, bytes]:
    """Return the stream and its first block; split an endless first line at returns.

    Reads on until a newline ends the first line, or until the line exceeds MAX_LINE_BYTES. Raises
    as `_block` does.
    """
    block = more = _block(stream, path, 0)
    while more and len(block) <= MAX_LINE_BYTES and b"\n" not in block:
        block += (more := _block(stream, path, 0))
    if 0 <= block.find(b"\n") <= MAX_LINE_BYTES:
        return stream, block
    returned = _Returned(stream)
    block = returned.parted(block)
    return returned if returned.parting else stream, block


class _Returned:
    """A stream with newlines for carriage returns, up to its first newline."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self.parting = True
        """True until the first newline."""

    def read(self, size: int = READ_BLOCK_BYTES, /) -> bytes:
        block = self._stream.read(size)
        return self.parted(block) if self.parting else block

    def parted(self, block: bytes) -> bytes:
        """Return the bytes split into lines."""
        first, newline, behind = block.partition(b"\n")
        self.parting = not newline
        return first.replace(b"\r", b"\n") + newline + behind


def _large(stream: ByteStream, path: Path, number: int, rest: bytes) -> tuple[Chunk | None, bytes]:
    """Read the next lines of a large file into a buffer; return them and the rest.

    (None, bytes) if no line ends. rest: of the previous block. Raises as `_block` does.
    """
    room, begin = (
        pa.allocate_buffer(BYTES_BEFORE_BLOCK + len(rest) + READ_BLOCK_BYTES + BYTES_AFTER_BLOCK),
        BYTES_BEFORE_BLOCK + len(rest),
    )
    every = np.frombuffer(room, np.uint8)
    every[:BYTES_BEFORE_BLOCK], every[BYTES_BEFORE_BLOCK:begin] = 0, np.frombuffer(rest, np.uint8)
    with _read_errors(path, number - 1):
        read = _into(stream, memoryview(room)[begin : begin + READ_BLOCK_BYTES])
    newlines = find_byte(every[begin : begin + read], NEWLINE) + len(rest)
    if not len(newlines):
        return None, every[begin : begin + read].tobytes()
    end = BYTES_BEFORE_BLOCK + int(newlines[-1]) + 1
    left = every[end : begin + read].tobytes()
    every[end : end + BYTES_AFTER_BLOCK] = 0
    return _Roomy.of(number, room, newlines), left


def _block(stream: ByteStream, path: Path, read: int) -> bytes:
    """Return the next block of a stream. read: number of lines before, for the error.

    Raises UnreadableSourceError if the stream breaks off or is damaged.
    """
    with _read_errors(path, read):
        return stream.read(READ_BLOCK_BYTES)


def _into(stream: ByteStream, room: memoryview) -> int:
    """Fill the buffer from a stream, except at its end; return the number of bytes."""
    if isinstance(stream, _HashingStream):
        return stream.readinto(room)
    return _copied(stream.read(len(room)), room)


def _copied(block: bytes, room: memoryview) -> int:
    """Copy the bytes to the start of the buffer; return their number."""
    if block:
        np.frombuffer(room, np.uint8)[: len(block)] = np.frombuffer(block, np.uint8)
    return len(block)


@contextmanager
def _read_errors(path: Path, read: int) -> Iterator[None]:
    """Turn errors of reading into UnreadableSourceError. read: number of lines before."""
    try:
        yield
    except (EOFError, GzipError, pa.ArrowException, OSError) as error:
        raise DAMAGED_FILE(path=path, lines=read, error=error) from error


def count_newlines(data: bytes) -> int:
    """Count the newlines, in a fifth of the time of bytes.count."""
    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == NEWLINE))


def hash_content(path: Path, size: int | None = None) -> str:
    """Return the SHA-256 of the file as stored, not decompressed.

    size: bytes to hash from the start, by default all. Raises UnreadableSourceError, OSError.
    """
    with _open_file(path) as stream:
        if size is not None:
            digest = hashlib.sha256()
            while size and (data := stream.read(min(size, READ_BLOCK_BYTES))):
                digest.update(data)
                size -= len(data)
            return digest.hexdigest()
        return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]
