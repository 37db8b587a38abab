"""Bytes to numbered lines: bounded memory, compressed files, pipes, event files, nothing lost.

A line ends at a newline only; carriage returns stay (progress bars put records behind them). But a
first line without an end, or of more than MAX_LINE_BYTES, is as many lines as they part it in:
so a log of the old Macintosh, or one that went through `tr`, has its lines.
What is large or compressed is read by a thread, some chunks ahead of who asks: it decompresses,
hashes, and finds the newlines.
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
from ..core.errors import UnknownFormatError, UnreadableSourceError, explain_read_error
from ..core.paths import as_remote
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
from .tfevents import EventValues, TagSampler, is_event_file, read_event_values

NEWLINE: Final = ord("\n")
READ_BLOCK_BYTES: Final = 4 * 1024 * 1024
BYTES_BEFORE_BLOCK: Final = 64
BYTES_AFTER_BLOCK: Final = BYTES_BEFORE_BLOCK + 4_000
"""Bytes around a block, so that what is read at its ends stays inside (see line_block)."""
MAX_CHUNKS_AHEAD: Final = 2
"""Decompressed, that wait for who reads."""
MAX_NESTED_TEXTS: Final = 2
"""Texts of JSON, one within another, that a log may stand in."""
MAX_PEEK_BYTES: Final = 4 * READ_BLOCK_BYTES
"""Of a file that is looked at before it is read: as much is not read twice."""
MAX_PEEK_VALUE_BYTES: Final = 32 * 1024 * 1024
"""The same of an event file, which is looked at to its end: a million values take 28 MB."""
MAX_LINE_BYTES: Final = 256 * 1024
"""Longer lines are cut to this; the longest line seen in a real log has 123,793 characters."""

ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
GZIP_MAGIC: Final = b"\x1f\x8b"
GZIP_WINDOW_BITS: Final = 31
"""To ISA-L, as to zlib: a header and a checksum as gzip has them, and the largest window."""
GzipError: Final[type[Exception]] = isal_zlib.error  # type: ignore[assignment] # its stub errs
ARCHIVE_MAGICS: Final[dict[bytes, tuple[str, str]]] = {
    b"\xfd7zX": ("file compressed by xz", "unxz FILE"),
    b"BZh": ("file compressed by bzip2", "bunzip2 FILE"),
    b"PK\x03\x04": ("zip archive", "unzip FILE"),
    b"\x04\x22\x4d\x18": ("file compressed by lz4", "unlz4 FILE"),
}
"""How files begin that other programs packed, what they are, and how they are unpacked."""
GZIP_READ_BYTES: Final = 256 * 1024
STDIN_PATH: Final = Path("-")
CONTROL_BYTES: Final = bytes(byte for byte in range(27) if not 9 <= byte <= 13)  # noqa: PLR2004
"""Characters of which a log has few: not tabs, newlines, nor what colours it."""


class NumberedLine(NamedTuple):
    """One line of a source.

    cut: it was longer than `MAX_LINE_BYTES`. ended: a newline stands behind it; the last line
    of a file that was being written has none, and may lack more.
    """

    number: int
    text: str
    cut: bool
    ended: bool = True


class _Bytes(NamedTuple):
    """What a chunk is made of."""

    number: int
    data: bytes
    cut: bool = False
    ended: bool = True


class Chunk(_Bytes):
    """Lines of a source: bytes of whole lines, each with its newline, or of one line alone.

    A line stands alone that is cut (see NumberedLine), or that no newline ends.
    """

    room: pa.Buffer | None = None
    """Where its bytes are, BYTES_BEFORE_BLOCK behind its beginning, if they are."""

    @property
    def is_whole(self) -> bool:
        """Whether it is of whole lines, which can be read together."""
        return self.ended and not self.cut

    @property
    def view(self) -> bytes | memoryview:
        """Its bytes, without a copy."""
        return self.data

    @cached_property
    def newlines(self) -> Ints:
        """Where they stand."""
        return find_byte(np.frombuffer(self.data, np.uint8), NEWLINE)

    @property
    def height(self) -> int:
        """How many they are."""
        return len(self.newlines) if self.is_whole else 1

    def first(self, count: int) -> Chunk:
        """The first of them, so many of several, where they are."""
        return Chunk(self.number, self.data[: int(self.newlines[count - 1]) + 1])

    def lines(self) -> Iterator[NumberedLine]:
        """Each of them as text."""
        if not self.is_whole:
            yield NumberedLine(self.number, decode_line(self.data), self.cut, self.ended)
            return
        for number, raw in enumerate(self.data[:-1].split(b"\n"), self.number):
            long = len(raw) > MAX_LINE_BYTES
            yield NumberedLine(number, decode_line(raw[:MAX_LINE_BYTES]), long)


class _Roomy(Chunk):
    """Lines of a block of a large file, where they were read to."""

    @classmethod
    def of(cls, number: int, room: pa.Buffer, newlines: Ints) -> Self:
        """number: of the first of them; newlines: theirs."""
        chunk = cls(number, b"")
        chunk.room, chunk.newlines = room, newlines
        return chunk

    def __reduce__(self) -> tuple[Any, ...]:
        """Elsewhere it has no room: that would be memory of Python's (see arrays.owned)."""
        return Chunk, (self.number, self.data)

    @property
    def view(self) -> memoryview:
        assert self.room is not None  # noqa: S101 - it was made with one
        return memoryview(self.room)[
            BYTES_BEFORE_BLOCK : BYTES_BEFORE_BLOCK + int(self.newlines[-1]) + 1
        ]

    def first(self, count: int) -> Chunk:
        """The first of them, so many of several, where they are."""
        assert self.room is not None  # noqa: S101 - it was made with one
        return _Roomy.of(self.number, self.room, self.newlines[:count])

    @cached_property
    def data(self) -> bytes:
        """A copy."""
        return bytes(self.view)


class ValueChunk(Chunk):
    """Values of an event file; they are written as lines where those are asked for."""

    values: EventValues

    @classmethod
    def of(cls, first_number: int, values: EventValues) -> Self:
        """first_number: of the first of them."""
        chunk = cls(first_number, b"")
        chunk.values = values
        return chunk

    @cached_property
    def data(self) -> bytes:
        """Their lines, each with its newline."""
        text: str = self.values.texts.str.join("\n").item()
        return text.encode() + b"\n"

    def parts(self, sampler: TagSampler) -> Iterator[Chunk]:
        """Those of them that tell what the file is."""
        for part in sampler.of(self.values):
            yield ValueChunk.of(self.number + part.start, self.values[part])

    def lines(self) -> Iterator[NumberedLine]:
        """Each of them; one that is too long for a line is not cut."""
        for number, text in enumerate(self.values.texts, self.number):
            short = len(text) <= MAX_LINE_BYTES  # they are ASCII
            yield NumberedLine(number, decode_line(text.encode()), cut=False, ended=short)


class Source:
    """One file read once: numbered lines; how many, its size and content hash when they are spent.

    tags: whose each line is, where a collector of logs says so.

    A context that lets the file go, also where its lines were not read to the end.
    """

    def __init__(self, path: Path, *, keeps_envelope: KeepsEnvelope = keeps_none) -> None:
        """`path` may be `-` for standard input. keeps: which wrappings stay (envelopes)."""
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
        """Let the file go."""
        if self._reading is not None:
            self._reading.close()
        if self._kept is not None:
            self._kept.close()
        self._reading, self._peeked, self._kept = None, [], None

    def peek(self) -> Iterator[Chunk]:
        """Chunks to be looked at before `lines` or `chunks`, which begin at the first one again.

        Of an event file only those values that tell what it is.
        """
        self._reading = self._begun()
        return self._looked_at(self._reading)

    def _looked_at(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Chunks that are kept, as long as they are not too many."""
        seen, telling = 0, TagSampler()
        for chunk in chunks:
            parts: Iterable[Chunk] = (chunk,)
            if isinstance(chunk, ValueChunk):
                seen, most = seen + chunk.values.bytes, MAX_PEEK_VALUE_BYTES
                parts = chunk.parts(telling)
            else:
                seen, most = seen + len(chunk.view), MAX_PEEK_BYTES
            if self._peeked is not None and (self.path == STDIN_PATH or seen <= most):
                self._peeked.append(chunk)
            else:  # all of it is read again, and hashed then
                self._peeked, self.hashing = None, False
            yield from parts

    def lines(self) -> Iterator[NumberedLine]:
        """Each line of the file, from 1. Raises UnreadableSourceError as `chunks` does."""
        for chunk in self.chunks():
            yield from chunk.lines()

    def chunks(self) -> Iterator[Chunk]:
        """The lines of the file, many at once; of an event file its values.

        Raises UnreadableSourceError where the file is missing, empty or breaks off, and
        UnknownFormatError where it is binary, or an event file without values.
        """
        if self._reading is None or self._peeked is None:  # or that was too much to be kept
            self.close()
            self._reading = self._begun()
        while self._peeked:
            yield self._peeked.pop(0)
        yield from self._reading
        self._reading = None

    def _begun(self) -> Generator[Chunk]:
        """Its chunks, of a file that is open: one that is read ahead is read from now on."""
        reading = self._read()
        next(reading)
        return reading  # type: ignore[return-value]

    def _read(self) -> Generator[Chunk | None]:
        """None once the file is open, then its chunks."""
        self.bytes, self.height, self.sha256, self.hashing = 0, 0, "", True
        if self.is_event_file():
            yield None
            yield from self._events()
            return
        empty = True
        with self._open() as chunks:
            yield None
            for chunk in chunks:
                empty = False
                self.height += chunk.height
                yield chunk
                del chunk  # so that it goes before the next one is made
        if empty:
            raise UnreadableSourceError(f"{self.path}: the file is empty. Nothing to read.")

    def is_rereadable(self) -> bool:
        """Whether its lines can be read again: a pipe's cannot, an event file's are values."""
        return self.path != STDIN_PATH and self.path.is_file() and not self.is_event_file()

    def is_event_file(self) -> bool:
        """Whether it is an event file, whose values are its lines."""
        return self.path != STDIN_PATH and is_event_file(self._head())

    def is_text(self) -> bool:
        """Whether its lines are its bytes, neither compressed nor values."""
        packed = self._head().startswith((GZIP_MAGIC, ZSTD_MAGIC))
        return not packed and not self.is_event_file()

    def _head(self) -> bytes:
        """How the file begins; it is asked for once."""
        if self._begins is None:
            with self._file() as raw:
                self._begins = raw.read(64)
        return self._begins

    def _events(self) -> Iterator[Chunk]:
        """Values of an event file as lines; the file's own format, so it is not hashed here.

        Raises UnknownFormatError where it holds none: of a run that ended before its first step.
        """
        for values in read_event_values(self.path):
            if len(values):
                yield ValueChunk.of(self.height + 1, values)
            self.height += len(values)
        self.bytes, self.sha256 = self.path.stat().st_size, hash_content(self.path)
        if not self.height:
            without = f"{self.path}: an event file without values."
            raise UnknownFormatError(without, recognised=False)

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
                with _Ahead(self._whole_lines(_Gunzipped(hashed))) as ahead:
                    yield ahead
            elif magic == ZSTD_MAGIC:
                packed = pa.PythonFile(hashed, mode="r")
                stream = pa.CompressedInputStream(packed, "zstd")
                with _Ahead(self._whole_lines(stream)) as ahead:
                    yield ahead
            elif as_remote(self.path) or os.fstat(raw.fileno()).st_size > MAX_PEEK_BYTES:
                with _Ahead(self._whole_lines(hashed)) as ahead:
                    yield ahead
            else:
                yield self._whole_lines(hashed)

    def _whole_lines(self, stream: ByteStream) -> Iterator[Chunk]:
        return _whole_lines(stream, self.path, self._unwrapped)

    def _unwrapped(self, stream: ByteStream, first: bytes) -> tuple[ByteStream, bytes]:
        """A stream and its first block without what is around the lines."""
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
        """The file from its beginning on; an object stays open, so that it is asked for once."""
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
        raise UnreadableSourceError(f"{path}: {explain_read_error(error)}") from error


class _HashingStream:
    """Passes bytes on and keeps the running hash and size in its source."""

    closed = False

    def __init__(self, raw: IO[bytes], source: Source) -> None:
        self._raw, self._source, self._hash = raw, source, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        block = self._raw.read(size)
        self._passed(block)
        return block

    def readinto(self, room: memoryview) -> int:
        """As much as there is room for, less at the end: how much."""
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


class _Gunzipped:
    """The content of a gzip file: of its members one after another, perhaps with zeros behind them.

    By large blocks: the gzip module takes 8 KiB at a time, and each time waits for its turn where
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
        """So many bytes, fewer at the end. Raises EOFError, Damaged behind what is whole."""
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
        """What some of the packed bytes hold, up to so many; none at the end."""
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
    """Chunks that a thread reads, some ahead of who asks."""

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
            while True:  # so that it does not wait for room any more
                self._waiting.get_nowait()
        self._thread.join()

    def _each(self) -> Iterator[Chunk]:
        """Those that were read. Raises as reading does."""
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
        raise UnreadableSourceError(f"{path}: a {what}, not a log. Unpack it first: {command}")
    head = raw.read(4096).replace(b"\0", b"")  # a file cut while it is written begins with NULs
    raw.seek(0)
    odd = len(head) - len(head.translate(None, CONTROL_BYTES))
    if head and odd > len(head) // 4:
        raise UnknownFormatError(
            f"{path}: binary data, not a log "
            f"({odd} control characters in the first {len(head)} bytes). "
            "Give the console log or the framework's own log file.",
            recognised=False,
        )


def _whole_lines(
    stream: ByteStream,
    path: Path,
    unwrapped: Callable[[ByteStream, bytes], tuple[ByteStream, bytes]] = lambda *given: given,
) -> Iterator[Chunk]:
    """Lines as they come; holds one block and one cut line at most. Raises as `_block` does.

    unwrapped: the stream and its first block, as they are to be read.
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
        if cut:  # the line that was cut keeps its beginning; what follows its newline is new
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
        del block  # which takes as much memory as its lines, while these are read
        if len(rest) > MAX_LINE_BYTES:
            rest, cut = rest[:MAX_LINE_BYTES], True
        if chunk is not None:
            number += len(chunk.newlines)
            yield chunk
            del chunk
    if rest or cut:
        yield Chunk(number, rest, cut, ended=False)


def _first_block(stream: ByteStream, path: Path) -> tuple[ByteStream, bytes]:
    """What gives the next blocks, and the first, with newlines where returns part the first line.

    It goes on until it is known whether they do. Raises as `_block` does.
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
        """Whether that is still to come."""

    def read(self, size: int = READ_BLOCK_BYTES, /) -> bytes:
        block = self._stream.read(size)
        return self.parted(block) if self.parting else block

    def parted(self, block: bytes) -> bytes:
        """The same bytes as lines."""
        first, newline, behind = block.partition(b"\n")
        self.parting = not newline
        return first.replace(b"\r", b"\n") + newline + behind


def _large(stream: ByteStream, path: Path, number: int, rest: bytes) -> tuple[Chunk | None, bytes]:
    """The next lines of a large file, read to where they are looked at, and what is behind them.

    None, and what was read, where no line ends. rest: of the block before. Raises as `_block` does.
    """
    room, begin = (
        pa.allocate_buffer(BYTES_BEFORE_BLOCK + len(rest) + READ_BLOCK_BYTES + BYTES_AFTER_BLOCK),
        BYTES_BEFORE_BLOCK + len(rest),
    )
    every = np.frombuffer(room, np.uint8)
    every[:BYTES_BEFORE_BLOCK], every[BYTES_BEFORE_BLOCK:begin] = 0, np.frombuffer(rest, np.uint8)
    with _telling(path, number - 1):
        read = _into(stream, memoryview(room)[begin : begin + READ_BLOCK_BYTES])
    found = find_byte(every[begin : begin + read], NEWLINE) + len(rest)
    if not len(found):
        return None, every[begin : begin + read].tobytes()
    end = BYTES_BEFORE_BLOCK + int(found[-1]) + 1
    left = every[end : begin + read].tobytes()
    every[end : end + BYTES_AFTER_BLOCK] = 0
    return _Roomy.of(number, room, found), left


def _block(stream: ByteStream, path: Path, read: int) -> bytes:
    """The next block of a stream; read: lines before it, which the error tells.

    Raises UnreadableSourceError where it breaks off or is damaged.
    """
    with _telling(path, read):
        return stream.read(READ_BLOCK_BYTES)


def _into(stream: ByteStream, room: memoryview) -> int:
    """As much of a stream as there is room for, less at its end: how much."""
    if isinstance(stream, _HashingStream):
        return stream.readinto(room)
    return _copied(stream.read(len(room)), room)


def _copied(block: bytes, room: memoryview) -> int:
    """The bytes at the beginning of the room: how many."""
    if block:
        np.frombuffer(room, np.uint8)[: len(block)] = np.frombuffer(block, np.uint8)
    return len(block)


@contextmanager
def _telling(path: Path, read: int) -> Iterator[None]:
    """Raises UnreadableSourceError for what reading raises; read: lines before it."""
    try:
        yield
    except (EOFError, GzipError, pa.ArrowException, OSError) as error:
        raise UnreadableSourceError(
            f"{path}: broken off or damaged after line {read:,} ({error}). "
            "Nothing of it was stored; copy the file again or decompress what is left."
        ) from error


def count_newlines(data: bytes) -> int:
    """How many there are; a fifth of the time of bytes.count, which stops at each."""
    return int(np.count_nonzero(np.frombuffer(data, np.uint8) == NEWLINE))


def hash_content(path: Path, size: int | None = None) -> str:
    """SHA-256 of the file as it is (not decompressed), or of its first bytes.

    Raises UnreadableSourceError, OSError.
    """
    with _open_file(path) as stream:
        if size is not None:
            digest = hashlib.sha256()
            while size and (data := stream.read(min(size, READ_BLOCK_BYTES))):
                digest.update(data)
                size -= len(data)
            return digest.hexdigest()
        return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]
