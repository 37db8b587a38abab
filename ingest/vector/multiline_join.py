"""Blocks of lines with text added from neighbours: `join` for many lines at once.

With this, the block reader (ingest.vector.block_parser) reads such formats too. Bytes that
`decode_line` would change are rewritten first. Blocks with very long lines are passed line by line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Final, Self

from ..decode.line_reader import MAX_LINE_BYTES, Chunk, NumberedLine, count_newlines
from ..decode.line_text import NORMALIZED_CHARS, decode_line
from ..formats.spec import AddText, LineAddition

_ODD: Final = {char.encode()[:2] for char in NORMALIZED_CHARS}  # two bytes are sought soonest
REWRITTEN_BYTES: Final = (b"\0", b"\r\n", *sorted(_ODD))
"""Bytes of lines that `decode_line` may change, apart from invalid UTF-8; the first two are ASCII.
"""
MAX_JOINED_LINE_BYTES: Final = MAX_LINE_BYTES // 4
"""Longest line for which neither additions nor decoding may exceed the limit of a line."""


class _Lines(Chunk):
    """Lines to read one by one."""

    numbered: list[NumberedLine]

    @classmethod
    def of(cls, numbered: list[NumberedLine]) -> Self:
        """Return a chunk of lines, at least one."""
        chunk = cls(numbered[0].number, b"", cut=True)
        chunk.numbered = numbered
        return chunk

    def lines(self) -> Iterator[NumberedLine]:
        """Return the lines."""
        return iter(self.numbered)


def join_chunks(addition: LineAddition, chunks: Iterable[Chunk]) -> tuple[bool, Iterator[Chunk]]:
    """Return whether lines wait for an addition, and the chunks with additions.

    Chunks stay unchanged with fewer than two such lines, if the first such line has a tag, or if
    only `join` can read the file.
    """
    chunks, before, above = iter(chunks), list[Chunk](), ""
    for chunk in chunks:
        before.append(chunk)
        if _holds_line(chunk, addition.to):
            if addition.tags and addition.tags.match(_first_with(chunk, addition.to)):
                break
            later = list[Chunk]()
            if not _has_second(chunk, chunks, later, addition.to):
                return False, chain(before, later)
            texts = chain([above], _looked_at(chunk, chunks, later, addition.to))
            if (adds := addition.make_add_text(texts)) is None:
                return False, chain(before, later, chunks)
            return True, _Rejoiner(addition, adds).all(chain(before, later, chunks))
        above = _last_line(chunk) or above
    return False, chain(before, chunks)


def _has_second(first: Chunk, chunks: Iterable[Chunk], kept: list[Chunk], text: str) -> bool:
    """Return whether a second line contains the text; `kept` gets later chunks.

    first: the chunk with the first such line
    """
    if sum(islice((1 for line in _texts(first) if text in line), 2)) > 1:
        return True
    for chunk in chunks:
        kept.append(chunk)
        if _holds_line(chunk, text):
            return True
    return False


def _first_with(chunk: Chunk, text: str) -> str:
    """Return the first line of a chunk that contains a text, or ""."""
    return next((line.text for line in chunk.lines() if text in line.text), "")


def _looked_at(
    first: Chunk, chunks: Iterable[Chunk], kept: list[Chunk], text: str
) -> Iterator[str]:
    """Yield lines from before the first with a text on.

    kept: later chunks already read; gets those read now
    """
    data = _as_text(first.data)
    if not first.is_whole or _has_long(data):
        yield from _texts(first)
    else:
        begin = data.rfind(b"\n", 0, data.find(text.encode())) + 1
        yield _last_text(data, begin)
        yield from _texts(Chunk(first.number, data[begin:]))
    for chunk in tuple(kept):
        yield from _texts(chunk)
    for chunk in chunks:
        kept.append(chunk)
        yield from _texts(chunk)


def _texts(chunk: Chunk) -> Iterator[str]:
    """Yield the texts of a chunk's lines, decoded on demand: usually few are used."""
    if not chunk.is_whole:
        yield from (line.text for line in chunk.lines())
        return
    begin, data = 0, chunk.data
    while begin < len(data):
        end = data.find(b"\n", min(begin + MAX_JOINED_LINE_BYTES, len(data) - 1)) + 1
        yield from (line.text for line in Chunk(chunk.number, data[begin:end]).lines())
        begin = end


def _last_line(chunk: Chunk) -> str:
    """Return the last text of a chunk that is not blank."""
    if not chunk.is_whole or _has_long(chunk.data):
        return next((x.text for x in reversed(list(chunk.lines())) if x.text.strip()), "")
    data = _as_text(chunk.data)
    return _last_text(data, len(data))


def _holds_line(chunk: Chunk, text: str) -> bool:
    """Return whether a line contains the text, within the kept bytes."""
    if text.encode() not in _as_text(chunk.data):
        return False
    return not _has_long(chunk.data) or any(text in line.text for line in chunk.lines())


def _as_text(data: bytes) -> bytes:
    """Return lines with the bytes of their decoded texts."""
    if not any(_holds(data, odd) for odd in REWRITTEN_BYTES[: 2 if data.isascii() else None]):
        return data
    return b"\n".join(decode_line(line).encode() for line in data.split(b"\n"))


def _holds(data: bytes, part: bytes) -> bool:
    """Return whether `part` is in `data`; absent bytes are found ten times as fast."""
    return all(byte in data for byte in set(part)) and part in data


def _is_blank(data: bytes) -> bool:
    """Return whether all lines of `data` are blank; usually the first line decides."""
    parts = (data[: data.find(b"\n") + 1], data)
    return not any(part.decode("utf-8", "replace").strip() for part in parts)


def _last_text(data: bytes, end: int) -> str:
    """Return the last line before `end` that is not blank."""
    text = ""
    while end > 0 and not text.strip():
        begin = data.rfind(b"\n", 0, end - 1) + 1
        text, end = data[begin : end - 1].decode("utf-8", "replace"), begin
    return text if text.strip() else ""


def _first_text(data: bytes, begin: int) -> str:
    """Return the first line from `begin` on that is not blank."""
    text = ""
    while begin < len(data) and not text.strip():
        end = data.find(b"\n", begin)
        text, begin = data[begin:end].decode("utf-8", "replace"), end + 1
    return text if text.strip() else ""


def _has_long(data: bytes) -> bool:
    """Return whether a line of `data` is longer than MAX_JOINED_LINE_BYTES.

    Short lines are skipped without a look at every newline.
    """
    begin = 0
    while begin + MAX_JOINED_LINE_BYTES < len(data):
        begin = data.rfind(b"\n", begin, begin + MAX_JOINED_LINE_BYTES + 1) + 1
        if not begin:
            return True
    return False


class _Rejoiner:
    """Joiner of the lines of a source with added text.

    rest: a line that may still get an addition, followed by blank lines
    above: the last line before `rest` that is not blank
    """

    def __init__(self, addition: LineAddition, adds: AddText) -> None:
        self.addition, self.adds = addition, adds
        self.to, self.told_by = addition.to.encode(), addition.told_by.encode()
        self.rest: list[NumberedLine] = []
        self.above = ""
        self.renames = False

    def all(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """Yield the chunks with additions."""
        for chunk in chunks:
            if (
                not chunk.is_whole
                or _has_long(chunk.data)
                or any(len(x.text) > MAX_JOINED_LINE_BYTES for x in self.rest)
            ):
                yield from self._one_by_one(chunk.lines())
            else:
                yield from self._block(chunk)
        if self.rest:
            yield _Lines.of(self._settled(""))

    def _one_by_one(self, lines: Iterable[NumberedLine]) -> Iterator[Chunk]:
        settled: list[NumberedLine] = []
        for line in lines:
            text = self._renamed(line.text.encode()).decode()
            if self.rest and text.strip():
                settled += self._settled(text)
            renamed = line._replace(text=text)
            if self.rest or self.addition.to in text:
                self.rest.append(renamed)
            else:
                settled.append(renamed)
                self.above = text if text.strip() else self.above
        if settled:
            yield _Lines.of(settled)

    def _settled(self, below: str) -> list[NumberedLine]:
        """Return the waiting lines, with the addition determined by the next text.

        below: the next text
        """
        first, *blank = self.rest
        added = self._added(self.above, first.text, below)
        self.rest, self.above = [], first.text
        return [first._replace(text=first.text + added), *blank]

    def _block(self, chunk: Chunk) -> Iterator[Chunk]:
        """Yield a chunk of short lines with additions, after the lines that waited."""
        data, number = self._renamed(_as_text(chunk.data)), chunk.number
        adds = _holds(data, self.told_by) or self.addition.told_by in self.above
        if not adds and data is chunk.data and not _is_blank(data):
            yield from self._as_it_is(chunk)
            return
        if self.rest:
            number = self.rest[0].number
            data = b"".join(line.text.encode() + b"\n" for line in self.rest) + data
            self.rest = []
        end = self._waiting(data)
        if rest := data[end:]:
            self.rest = list(
                Chunk(number + count_newlines(data) - count_newlines(rest), rest).lines()
            )
        if end:
            joined = self._with_added(data, end) if adds else data[:end]
            self.above = _last_text(data, end) or self.above
            yield Chunk(number, joined)

    def _as_it_is(self, chunk: Chunk) -> Iterator[Chunk]:
        """Yield a chunk without copying: it adds nothing and is not blank."""
        waiting = self._waiting(chunk.data)
        if self.rest:
            yield _Lines.of(self.rest)
            self.above = self.rest[0].text
        self.above = _last_text(chunk.data, waiting) or self.above
        rest = chunk.data[waiting:]
        count = len(chunk.newlines) - count_newlines(rest)
        self.rest = list(Chunk(chunk.number + count, rest).lines()) if rest else []
        if count:
            yield chunk.first(count)

    def _waiting(self, data: bytes) -> int:
        """Return the begin of the last line if an addition may still come, else the end."""
        begin = data.rfind(self.to)
        next_line = data.find(b"\n", begin) + 1
        waits = begin >= 0 and _is_blank(data[next_line:])
        return data.rfind(b"\n", 0, begin) + 1 if waits else len(data)

    def _with_added(self, data: bytes, end: int) -> bytes:
        """Return the lines up to `end` with their additions; `data` continues after `end`."""
        parts, done, found = list[bytes](), 0, data.find(self.to, 0, end)
        while found >= 0:
            begin, stop = data.rfind(b"\n", 0, found) + 1, data.find(b"\n", found)
            above = _last_text(data, begin) or self.above
            text = data[begin:stop].decode("utf-8", "replace")
            if added := self._added(above, text, _first_text(data, stop + 1)):
                parts += [data[done:stop], added.encode()]
                done = stop
            found = data.find(self.to, stop, end)
        return b"".join([*parts, data[done:end]])

    def _added(self, above: str, text: str, below: str) -> str:
        is_near = self.addition.told_by in above or self.addition.told_by in below
        return self.adds(above, text, below) if is_near else ""

    def _renamed(self, data: bytes) -> bytes:
        """Return lines with renamed text, from the line that announces the renaming on."""
        if self.addition.renames is None:
            return data
        marks, old, new = self.addition.renames
        begin = 0
        if not self.renames:
            present = [mark.encode() for mark in marks if _holds(data, mark.encode())]
            if not present:
                return data
            begin = data.rfind(b"\n", 0, min(map(data.find, present))) + 1
            self.renames = True
        return data[:begin] + data[begin:].replace(old.encode(), new.encode())
