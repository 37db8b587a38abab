"""Lines to which those beside them add something, as blocks of lines: `join` of many lines at once.

What reads blocks (ingest.vector.block_parser) reads such a format's too, then. Bytes that a line's
text does not have as they are are rewritten first; a block with very long lines is given line by
line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final, Self

from ..decode.line_reader import MAX_LINE_BYTES, Chunk, NumberedLine, count_newlines
from ..decode.line_text import NORMALIZED_CHARS, decode_line
from ..formats.spec import AddText, LineAddition

_ODD: Final = {char.encode()[:2] for char in NORMALIZED_CHARS}  # two bytes are sought soonest
REWRITTEN_BYTES: Final = (b"\0", b"\r\n", *sorted(_ODD))
"""Bytes of lines that `decode_line` may change, but for those that are no UTF-8; two are ASCII."""
MAX_JOINED_LINE_BYTES: Final = MAX_LINE_BYTES // 4
"""Bytes of a line of which what is added, or decoded otherwise, might make one too long."""


class _Lines(Chunk):
    """Lines that are to be read one by one."""

    each: list[NumberedLine]

    @classmethod
    def of(cls, each: list[NumberedLine]) -> Self:
        """At least one."""
        chunk = cls(each[0].number, b"", cut=True)
        chunk.each = each
        return chunk

    def lines(self) -> Iterator[NumberedLine]:
        """Each of them."""
        return iter(self.each)


def join_chunks(addition: LineAddition, chunks: Iterable[Chunk]) -> tuple[bool, Iterator[Chunk]]:
    """Whether any line waits for what is added, and the lines with it; else as they are.

    As they are, too, where the first of these has a tag.
    """
    chunks, before, above = iter(chunks), list[Chunk](), ""
    for chunk in chunks:
        before.append(chunk)
        if _holds_line(chunk, addition.to):
            if addition.tags and addition.tags.match(_first_with(chunk, addition.to)):
                break
            texts = chain([above], _looked_at(chunk, chunks, before, addition.to))
            adds = addition.make_add_text(texts)
            return True, _Rejoiner(addition, adds).all(chain(before, chunks))
        above = _last_line(chunk) or above
    return False, chain(before, chunks)


def _first_with(chunk: Chunk, text: str) -> str:
    """Its first line that holds a text, which one does."""
    return next((line.text for line in chunk.lines() if text in line.text), "")


def _looked_at(
    first: Chunk, chunks: Iterable[Chunk], kept: list[Chunk], text: str
) -> Iterator[str]:
    """The lines of a chunk from before the first with a text on, and of others, which are kept."""
    data = _as_text(first.data)
    if not first.is_whole or _has_long(data):
        yield from _texts(first)
    else:
        begin = data.rfind(b"\n", 0, data.find(text.encode())) + 1
        yield _last_text(data, begin)
        yield from _texts(Chunk(first.number, data[begin:]))
    for chunk in chunks:
        kept.append(chunk)
        yield from _texts(chunk)


def _texts(chunk: Chunk) -> Iterator[str]:
    """The texts of its lines, one by one: mostly only the first few are asked for."""
    if not chunk.is_whole:
        yield from (line.text for line in chunk.lines())
        return
    begin, data = 0, chunk.data
    while begin < len(data):
        end = data.find(b"\n", min(begin + MAX_JOINED_LINE_BYTES, len(data) - 1)) + 1
        yield from (line.text for line in Chunk(chunk.number, data[begin:end]).lines())
        begin = end


def _last_line(chunk: Chunk) -> str:
    """The last text that is not blank."""
    if not chunk.is_whole or _has_long(chunk.data):
        return next((x.text for x in reversed(list(chunk.lines())) if x.text.strip()), "")
    data = _as_text(chunk.data)
    return _last_text(data, len(data))


def _holds_line(chunk: Chunk, text: str) -> bool:
    """Whether a line holds the text, as far as it is kept."""
    if text.encode() not in _as_text(chunk.data):
        return False
    return not _has_long(chunk.data) or any(text in line.text for line in chunk.lines())


def _as_text(data: bytes) -> bytes:
    """Lines whose bytes are those of their texts."""
    if not any(_holds(data, odd) for odd in REWRITTEN_BYTES[: 2 if data.isascii() else None]):
        return data
    return b"\n".join(decode_line(line).encode() for line in data.split(b"\n"))


def _holds(data: bytes, part: bytes) -> bool:
    """Whether it is in `data`; a byte that is not there at all is found out ten times as soon."""
    return all(byte in data for byte in set(part)) and part in data


def _is_blank(data: bytes) -> bool:
    """Whether no line of `data` is a text; mostly the first one tells."""
    parts = (data[: data.find(b"\n") + 1], data)
    return not any(part.decode("utf-8", "replace").strip() for part in parts)


def _last_text(data: bytes, end: int) -> str:
    """The last line before `end` that is not blank."""
    text = ""
    while end > 0 and not text.strip():
        begin = data.rfind(b"\n", 0, end - 1) + 1
        text, end = data[begin : end - 1].decode("utf-8", "replace"), begin
    return text if text.strip() else ""


def _first_text(data: bytes, begin: int) -> str:
    """The first line from `begin` on that is not blank."""
    text = ""
    while begin < len(data) and not text.strip():
        end = data.find(b"\n", begin)
        text, begin = data[begin:end].decode("utf-8", "replace"), end + 1
    return text if text.strip() else ""


def _has_long(data: bytes) -> bool:
    """Return whether a line of `data` is longer than MAX_JOINED_LINE_BYTES.

    Of lines that are not, few are looked at.
    """
    begin = 0
    while begin + MAX_JOINED_LINE_BYTES < len(data):
        begin = data.rfind(b"\n", begin, begin + MAX_JOINED_LINE_BYTES + 1) + 1
        if not begin:
            return True
    return False


class _Rejoiner:
    """Rewrites the lines of one source.

    rest: those that may yet be added to, and blank ones. above: the last line before them that is
    not blank.
    """

    def __init__(self, addition: LineAddition, adds: AddText) -> None:
        self.addition, self.adds = addition, adds
        self.to, self.told_by = addition.to.encode(), addition.told_by.encode()
        self.rest: list[NumberedLine] = []
        self.above = ""
        self.renames = False

    def all(self, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
        """The lines of chunks."""
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
        each: list[NumberedLine] = []
        for line in lines:
            text = self._renamed(line.text.encode()).decode()
            if self.rest and text.strip():
                each += self._settled(text)
            now = line._replace(text=text)
            if self.rest or self.addition.to in text:
                self.rest.append(now)
            else:
                each.append(now)
                self.above = text if text.strip() else self.above
        if each:
            yield _Lines.of(each)

    def _settled(self, below: str) -> list[NumberedLine]:
        """Lines that wait, by the next one that is not blank: none of them waits any more."""
        first, *blank = self.rest
        added = self._added(self.above, first.text, below)
        self.rest, self.above = [], first.text
        return [first._replace(text=first.text + added), *blank]

    def _block(self, chunk: Chunk) -> Iterator[Chunk]:
        """A chunk of lines that are none of them long, with those that waited for it."""
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
            told = self._with_added(data, end) if adds else data[:end]
            self.above = _last_text(data, end) or self.above
            yield Chunk(number, told)

    def _as_it_is(self, chunk: Chunk) -> Iterator[Chunk]:
        """As `_block`, of a chunk that adds nothing and is not blank: it is not copied."""
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
        """Where the last line begins if what is added to it is still to come, else the end."""
        at = data.rfind(self.to)
        behind = data.find(b"\n", at) + 1
        waits = at >= 0 and _is_blank(data[behind:])
        return data.rfind(b"\n", 0, at) + 1 if waits else len(data)

    def _with_added(self, data: bytes, end: int) -> bytes:
        """The lines up to `end` with what is added to each; some lines stand behind it."""
        parts, done, at = list[bytes](), 0, data.find(self.to, 0, end)
        while at >= 0:
            begin, stop = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
            above = _last_text(data, begin) or self.above
            text = data[begin:stop].decode("utf-8", "replace")
            if added := self._added(above, text, _first_text(data, stop + 1)):
                parts += [data[done:stop], added.encode()]
                done = stop
            at = data.find(self.to, stop, end)
        return b"".join([*parts, data[done:end]])

    def _added(self, above: str, text: str, below: str) -> str:
        told = self.addition.told_by in above or self.addition.told_by in below
        return self.adds(above, text, below) if told else ""

    def _renamed(self, data: bytes) -> bytes:
        """Lines with what is renamed in them, behind a line that says so."""
        if self.addition.renames is None:
            return data
        marks, old, new = self.addition.renames
        begin = 0
        if not self.renames:
            found = [mark.encode() for mark in marks if _holds(data, mark.encode())]
            if not found:
                return data
            begin = data.rfind(b"\n", 0, min(map(data.find, found))) + 1
            self.renames = True
        return data[:begin] + data[begin:].replace(old.encode(), new.encode())
