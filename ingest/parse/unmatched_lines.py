"""Lines that no pattern knows, counted by their kind: those alike but for their numbers are one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from ..core.arrays import Ints, copy_to_arrow, integers_of, take_values, text_array

MAX_REPORTED_KINDS: Final = 20
"""Kinds of a source that are told, the commonest first."""
MAX_COUNTED_KINDS: Final = 50 * MAX_REPORTED_KINDS
"""Kinds that are counted: the first of a source."""
MAX_KIND_SOURCE_CHARS: Final = 160
MAX_KIND_CHARS: Final = 60
"""Characters of a kind, made of the MAX_KIND_SOURCE_CHARS of a line: each number is one of them."""
MAX_EXAMPLE_CHARS: Final = 200
MAX_EXAMPLE_BYTES: Final = 2000
"""The most bytes of an example that are kept until it is cleaned."""
NEW_KIND: Final = -1
MAX_SINGLY_KINDED_LINES: Final = 200
"""Lines whose kinds are told one by one in the time of a few calls of numpy and Polars."""
_NUMBERS: Final = re.compile(r"[0-9.:]+")
NUMBER_SIGN: Final = ord("#")
NUMBER_MARK: Final = 0xFF
"""Stands for a byte of a number: none of UTF-8 is this."""
_MARKED: Final = bytes(NUMBER_MARK if chr(byte) in "0123456789.:" else byte for byte in range(256))


def line_kind(text: str) -> str:
    """The kind of a line."""
    return _NUMBERS.sub("#", text[:MAX_KIND_SOURCE_CHARS])[:MAX_KIND_CHARS]


def line_kinds(texts: pl.Series) -> pl.Series:
    """The kinds of many lines: their bytes but for all of a number behind its first one."""
    if len(texts) <= MAX_SINGLY_KINDED_LINES:
        return pl.Series([line_kind(text) for text in texts], dtype=pl.String)
    cut = texts.str.slice(0, MAX_KIND_SOURCE_CHARS).to_arrow().cast(pa.large_string())
    starts = np.frombuffer(cut.buffers()[1], np.int64)[: len(cut) + 1]
    marked = bytes(cut.buffers()[2] or b"").translate(_MARKED)  # half the time of numpy's own
    data = np.frombuffer(marked, np.uint8)[: starts[-1]]
    numbers = data == NUMBER_MARK
    more = numbers[1:] & numbers[:-1]
    more[starts[(starts > 0) & (starts < len(data))] - 1] = False  # a line begins there
    kept = np.ones(len(data), bool)
    kept[1:] = ~more
    shorter = data[kept]
    shorter -= (shorter == NUMBER_MARK).view(np.uint8) * np.uint8(
        NUMBER_MARK - NUMBER_SIGN
    )  # ten times as fast as a mask
    ends = starts - np.searchsorted(np.flatnonzero(more) + 1, starts)
    kinds = pa.LargeStringArray.from_buffers(len(cut), copy_to_arrow(ends), copy_to_arrow(shorter))
    return pl.Series(kinds).str.slice(0, MAX_KIND_CHARS)


class KindCounts(NamedTuple):
    """Lines of several kinds, none of them twice; of some there may be no line.

    counts, lines: of each kind how many lines, and the number of the first. texts: gives the texts
    of lines, or their bytes: most examples are never shown, and so not cleaned.
    """

    kinds: pa.StringArray
    counts: Ints
    lines: Ints
    texts: Callable[[Ints], Iterable[str | bytes]]


class UnmatchedKinds:
    """How many lines of each kind a source has, with an example."""

    def __init__(self, clean_line: Callable[[bytes], str]) -> None:
        """clean_line: the text of a line's bytes."""
        self._clean = clean_line
        self._slots: dict[str, int] = {}
        self._known = text_array(())
        self._counts = np.zeros(MAX_COUNTED_KINDS, np.int64)
        self._firsts: list[tuple[int, str | bytes]] = []
        self._waiting: KindCounts | None = None
        self._had_some = False

    def add(self, kind: str, count: int, line: int, text: str) -> None:
        """So many more of a kind, the first of them at that line."""
        self._settle()
        slot = self._slots.get(kind)
        if slot is None:
            if len(self._slots) == MAX_COUNTED_KINDS:
                return
            slot = self._slots[kind] = len(self._slots)
            self._firsts.append((line, self._kept(text)))
        self._counts[slot] += count

    def add_many(self, several: KindCounts) -> None:
        """Add lines of several kinds.

        Where kinds and texts are those of the call before, they are further lines of a block.
        """
        before, (kinds, counts, lines, texts) = self._waiting, several
        if before is not None and before.kinds is kinds and before.texts == texts:  # of a block
            lines = np.where(before.counts, before.lines, lines)
            self._waiting = before._replace(counts=before.counts + counts, lines=lines)
            return
        self._settle()
        self._waiting = several
        if self._had_some:  # so that no block is kept for what it says
            self._settle()
        self._had_some = True

    def _settle(self) -> None:
        """Count what waits: of a source only its first block, of which a small one has no more."""
        if self._waiting is None:
            return
        kinds, counts, lines, texts = self._waiting
        new, begin = self._new(self._waiting), len(self._slots)
        if len(new):
            end, firsts = begin + len(new), lines[new]
            self._counts[begin:end] = counts[new]
            self._slots |= zip(take_values(kinds, new).to_pylist(), range(begin, end), strict=True)
            self._firsts += zip(firsts.tolist(), map(self._kept, texts(firsts)), strict=True)
        self._waiting = None

    def _new(self, several: KindCounts) -> Ints:
        """Count the lines of known kinds; which of the others are new, in the order of lines."""
        kinds, counts, lines, _ = several
        there = np.flatnonzero(counts)
        if not self._slots:
            return np.asarray(there[np.argsort(lines[there])][:MAX_COUNTED_KINDS])
        if len(self._known) != len(self._slots):
            self._known = text_array(self._slots)
        slots = integers_of(pc.index_in(take_values(kinds, there), self._known), NEW_KIND)
        known = slots != NEW_KIND
        self._counts[slots[known]] += counts[there[known]]
        new = there[~known]
        return np.asarray(new[np.argsort(lines[new])][: MAX_COUNTED_KINDS - len(self._slots)])

    def commonest(self) -> list[dict[str, Any]]:
        """Number of lines, the first one and its text of the commonest kinds; asked at the end."""
        begin, firsts = len(self._slots), np.empty(0, np.int64)
        counts = self._counts[:begin]
        if self._waiting is not None:
            new = self._new(self._waiting)
            counts, firsts = np.append(counts, self._waiting.counts[new]), self._waiting.lines[new]
        slots = np.argsort(-counts, kind="stable")[:MAX_REPORTED_KINDS]
        told = dict(enumerate(self._firsts))
        late = slots[slots >= begin]
        if self._waiting is not None and len(late):
            lines = firsts[late - begin]
            texts = self._waiting.texts(lines)
            told |= zip(late.tolist(), zip(lines.tolist(), texts, strict=True), strict=True)
        return [
            {"count": int(counts[slot]), "line": line, "example": self._told(first)}
            for slot, (line, first) in ((slot, told[slot]) for slot in slots.tolist())
        ]

    def _kept(self, first: str | bytes) -> str | bytes:
        return first if len(first) <= MAX_EXAMPLE_BYTES else self._told(first)

    def _told(self, first: str | bytes) -> str:
        return (self._clean(first) if isinstance(first, bytes) else first)[:MAX_EXAMPLE_CHARS]
