"""Bytes to numbered lines: bounded memory, compressed files, pipes, event files, nothing lost.

A line ends at a newline only; carriage returns stay (progress bars put records behind them).
Invalid UTF-8 becomes U+FFFD, NUL bytes go (real logs hold runs of them inside records), and
no-break spaces of web copies become spaces.
"""

from __future__ import annotations

import gzip
import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, NamedTuple, Protocol

import numpy as np
import polars as pl
import pyarrow as pa

from ingest.errors import UnreadableSourceError
from ingest.event_files import event_lines, is_event_file

BLOCK_BYTES: Final = 2 * 1024 * 1024
LONGEST_LINE_BYTES: Final = 256 * 1024
"""Longer lines are cut to this; the longest line seen in a real log has 123,793 characters."""

ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
GZIP_MAGIC: Final = b"\x1f\x8b"
STDIN: Final = Path("-")


class NumberedLine(NamedTuple):
    """One line of a source.

    cut: it was longer than `LONGEST_LINE_BYTES`. ended: a newline stands behind it; the last line
    of a file that was being written has none, and may lack more.
    """

    number: int
    text: str
    cut: bool
    ended: bool = True


class Chunk(NamedTuple):
    """Lines of a source: bytes of whole lines, each with its newline, or of one line alone.

    A line stands alone that is cut (see NumberedLine), or that no newline ends.
    """

    number: int
    data: bytes
    cut: bool = False
    ended: bool = True

    def lines(self) -> Iterator[NumberedLine]:
        """Each of them as text."""
        if self.cut or not self.ended:
            yield NumberedLine(self.number, text_of(self.data), self.cut, self.ended)
            return
        for number, raw in enumerate(self.data[:-1].split(b"\n"), self.number):
            long = len(raw) > LONGEST_LINE_BYTES
            yield NumberedLine(number, text_of(raw[:LONGEST_LINE_BYTES]), long)


def text_of(raw: bytes) -> str:
    """The text of a line's bytes."""
    text = raw.decode("utf-8", "replace").replace("\0", "").replace("\xa0", " ")
    return text.rstrip("\r")


class Source:
    """One file read once: numbered lines, its size and content hash when the lines are spent."""

    def __init__(self, path: Path) -> None:
        """`path` may be `-` for standard input."""
        self.path = path
        self.bytes = 0
        self.sha256 = ""
        self._kept: list[Chunk] | None = None

    def keep(self) -> None:
        """Read it now, to give its lines as often as they are asked for. Raises as `chunks`."""
        self._kept = list(self.chunks())

    def lines(self) -> Iterator[NumberedLine]:
        """Each line of the file, from 1. Raises UnreadableSourceError as `chunks` does."""
        for chunk in self.chunks():
            yield from chunk.lines()

    def chunks(self) -> Iterator[Chunk]:
        """The lines of the file, many at once; of an event file its values.

        Raises UnreadableSourceError where the file is missing, empty, binary or breaks off.
        """
        if self._kept is not None:
            yield from self._kept
            return
        if self.holds_events():
            yield from self._events()
            return
        chunk = None
        with self._open() as stream:
            try:
                for chunk in _whole_lines(stream):
                    yield chunk
            except (EOFError, gzip.BadGzipFile, pa.ArrowException, OSError) as error:
                read = chunk.number + (chunk.data.count(b"\n") or 1) - 1 if chunk else 0
                raise UnreadableSourceError(
                    f"{self.path}: broken off or damaged after line {read:,} ({error}). "
                    "Nothing of it was stored; copy the file again or decompress what is left."
                ) from error
        if chunk is None:
            raise UnreadableSourceError(f"{self.path}: the file is empty. Nothing to read.")

    def holds_events(self) -> bool:
        """Whether it is an event file, whose values are its lines."""
        if self.path == STDIN:
            return False
        with _open_file(self.path) as raw:
            return is_event_file(raw.read(64))

    def _events(self) -> Iterator[Chunk]:
        """Values of an event file as lines; the file's own format, so it is not hashed here.

        Raises UnreadableSourceError where it holds none.
        """
        number = 1
        for texts in event_lines(self.path):
            for chunk in _as_chunks(number, texts):
                yield chunk
                number += chunk.data.count(b"\n") or 1
        self.bytes, self.sha256 = self.path.stat().st_size, content_hash(self.path)
        if number == 1:
            raise UnreadableSourceError(f"{self.path}: an event file without values.")

    @contextmanager
    def _open(self) -> Iterator[_Readable]:
        if self.path == STDIN:
            yield _HashingStream(sys.stdin.buffer, self)
            return
        with _open_file(self.path) as raw:
            magic = raw.read(4)
            raw.seek(0)
            hashed = _HashingStream(raw, self)
            _refuse_binary(self.path, magic, raw)
            if magic.startswith(GZIP_MAGIC):
                yield gzip.GzipFile(fileobj=hashed, mode="rb")  # type: ignore[call-overload]
            elif magic == ZSTD_MAGIC:
                yield pa.CompressedInputStream(pa.PythonFile(hashed, mode="r"), "zstd")
            else:
                yield hashed


class _Readable(Protocol):
    def read(self, size: int = ..., /) -> bytes: ...


def _open_file(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise UnreadableSourceError(f"{path}: {error.strerror or error}.") from error


class _HashingStream:
    """Passes bytes on and keeps the running hash and size in its source."""

    closed = False

    def __init__(self, raw: IO[bytes], source: Source) -> None:
        self._raw, self._source, self._hash = raw, source, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        block = self._raw.read(size)
        self._hash.update(block)
        self._source.bytes += len(block)
        if not block:
            self._source.sha256 = self._hash.hexdigest()
        return block

    def close(self) -> None:
        """The opener closes the raw file."""


def _refuse_binary(path: Path, magic: bytes, raw: IO[bytes]) -> None:
    if magic.startswith(GZIP_MAGIC) or magic == ZSTD_MAGIC:
        return
    head = raw.read(4096).replace(b"\0", b"")  # a file cut while it is written begins with NULs
    raw.seek(0)
    odd = sum(byte < 9 or 13 < byte < 27 for byte in head)  # noqa: PLR2004 - control characters
    if head and odd > len(head) // 4:
        raise UnreadableSourceError(
            f"{path}: binary data, not a log "
            f"({odd} control characters in the first {len(head)} bytes). "
            "Give the console log or the framework's own log file."
        )


def _whole_lines(stream: _Readable) -> Iterator[Chunk]:
    """Lines as they come; holds one block and one cut line at most."""
    number, rest, cut = 1, b"", False
    while block := stream.read(BLOCK_BYTES):
        if cut:  # the line that was cut keeps its beginning; what follows its newline is new
            _, newline, block = block.partition(b"\n")
            if not newline:
                continue
            yield Chunk(number, rest, cut=True)
            number, rest, cut = number + 1, b"", False
        end = block.rfind(b"\n") + 1
        if end:
            data = rest + block[:end]
            yield Chunk(number, data)
            number, rest = number + data.count(b"\n"), b""
        rest += block[end:]
        if len(rest) > LONGEST_LINE_BYTES:
            rest, cut = rest[:LONGEST_LINE_BYTES], True
    if rest or cut:
        yield Chunk(number, rest, cut, ended=False)


def _as_chunks(number: int, texts: pl.Series) -> Iterator[Chunk]:
    """Lines that are none of a file; one that is too long stands alone, so that it is not cut."""
    long = np.flatnonzero((texts.str.len_bytes() > LONGEST_LINE_BYTES).to_numpy()).tolist()
    for first, last in zip([0, *(at + 1 for at in long)], [*long, len(texts)], strict=True):
        if first < last:
            lines = texts[first:last].str.join("\n").item().encode()
            yield Chunk(number + first, lines + b"\n")
        if last < len(texts):
            yield Chunk(number + last, texts[last].encode(), ended=False)


def content_hash(path: Path) -> str:
    """SHA-256 of the file as it is (not decompressed). Raises UnreadableSourceError, OSError."""
    with _open_file(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]
