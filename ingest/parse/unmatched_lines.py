"""Lines without a matching pattern, counted by kind: the text without numbers."""

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
"""Kinds reported per source, the most common first."""
MAX_COUNTED_KINDS: Final = 50 * MAX_REPORTED_KINDS
"""Kinds counted per source, the first ones."""
MAX_KIND_SOURCE_CHARS: Final = 160
MAX_KIND_CHARS: Final = 60
"""Length of a kind, made from MAX_KIND_SOURCE_CHARS of a line: a number counts as one character."""
MAX_EXAMPLE_CHARS: Final = 200
MAX_EXAMPLE_BYTES: Final = 2000
"""Maximum number of bytes of an example kept until cleaning."""
NEW_KIND: Final = -1
MAX_SINGLY_KINDED_LINES: Final = 200
"""Below this, computing kinds line by line is as fast as a few calls of numpy and Polars."""
_NUMBERS: Final = re.compile(r"[0-9.:]+")
NUMBER_SIGN: Final = ord("#")
NUMBER_MARK: Final = 0xFF
"""Replaces bytes of numbers: 0xFF never occurs in UTF-8."""
_MARKED: Final = bytes(NUMBER_MARK if chr(byte) in "0123456789.:" else byte for byte in range(256))


def line_kind(text: str) -> str:
    """Return the kind of a line."""
    return _NUMBERS.sub("#", text[:MAX_KIND_SOURCE_CHARS])[:MAX_KIND_CHARS]


def line_kinds(texts: pl.Series) -> pl.Series:
    """Return the kinds of many lines: their text with a `#` for every number."""
    if len(texts) <= MAX_SINGLY_KINDED_LINES:
        return pl.Series([line_kind(text) for text in texts], dtype=pl.String)
    cut = texts.str.slice(0, MAX_KIND_SOURCE_CHARS).to_arrow().cast(pa.large_string())
    starts = np.frombuffer(cut.buffers()[1], np.int64)[: len(cut) + 1]
    marked = bytes(cut.buffers()[2] or b"").translate(_MARKED)  # twice as fast as with numpy
    data = np.frombuffer(marked, np.uint8)[: starts[-1]]
    numbers = data == NUMBER_MARK
    more = numbers[1:] & numbers[:-1]
    more[starts[(starts > 0) & (starts < len(data))] - 1] = False  # a line begins here
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
    """Counts of lines by kind; kinds are distinct, some without lines.

    counts: lines of each kind
    lines: number of the first line of each kind
    texts: returns the texts of lines, or their bytes: most examples are never shown, so cleaning
        waits
    """

    kinds: pa.StringArray
    counts: Ints
    lines: Ints
    texts: Callable[[Ints], Iterable[str | bytes]]


class UnmatchedKinds:
    """Line counts of every kind in a source, with an example."""

    def __init__(self, clean_line: Callable[[bytes], str]) -> None:
        """Begin without lines. clean_line: returns the text of a line's bytes."""
        self._clean = clean_line
        self._slots: dict[str, int] = {}
        self._known = text_array(())
        self._counts = np.zeros(MAX_COUNTED_KINDS, np.int64)
        self._firsts: list[tuple[int, str | bytes]] = []
        self._waiting: KindCounts | None = None
        self._had_some = False

    def add(self, kind: str, count: int, line: int, text: str) -> None:
        """Add `count` lines of a kind. line, text: of the first."""
        self._settle()
        slot = self._slots.get(kind)
        if slot is None:
            if len(self._slots) == MAX_COUNTED_KINDS:
                return
            slot = self._slots[kind] = len(self._slots)
            self._firsts.append((line, self._kept_example(text)))
        self._counts[slot] += count

    def add_many(self, several: KindCounts) -> None:
        """Add lines of several kinds.

        Equal kinds and texts as in the last call mean further lines of the same block.
        """
        before, (kinds, counts, lines, texts) = self._waiting, several
        if before is not None and before.kinds is kinds and before.texts == texts:  # same block
            lines = np.where(before.counts, before.lines, lines)
            self._waiting = before._replace(counts=before.counts + counts, lines=lines)
            return
        self._settle()
        self._waiting = several
        if self._had_some:  # do not keep later blocks in memory for their texts
            self._settle()
        self._had_some = True

    def _settle(self) -> None:
        """Count the waiting kinds.

        Only the first block of a source waits, because a small source has no other.
        """
        if self._waiting is None:
            return
        kinds, counts, lines, texts = self._waiting
        new, begin = self._new(self._waiting), len(self._slots)
        if len(new):
            end, firsts = begin + len(new), lines[new]
            self._counts[begin:end] = counts[new]
            self._slots |= zip(take_values(kinds, new).to_pylist(), range(begin, end), strict=True)
            self._firsts += zip(
                firsts.tolist(), map(self._kept_example, texts(firsts)), strict=True
            )
        self._waiting = None

    def _new(self, several: KindCounts) -> Ints:
        """Count the lines of known kinds; return the indices of new kinds in line order."""
        kinds, counts, lines, _ = several
        present = np.flatnonzero(counts)
        if not self._slots:
            return np.asarray(present[np.argsort(lines[present])][:MAX_COUNTED_KINDS])
        if len(self._known) != len(self._slots):
            self._known = text_array(self._slots)
        slots = integers_of(pc.index_in(take_values(kinds, present), self._known), NEW_KIND)
        known = slots != NEW_KIND
        self._counts[slots[known]] += counts[present[known]]
        new = present[~known]
        return np.asarray(new[np.argsort(lines[new])][: MAX_COUNTED_KINDS - len(self._slots)])

    def commonest(self) -> list[dict[str, Any]]:
        """Return the most common kinds with count, first line and text of the first line.

        Call once, at the end.
        """
        begin, firsts = len(self._slots), np.empty(0, np.int64)
        counts = self._counts[:begin]
        if self._waiting is not None:
            new = self._new(self._waiting)
            counts, firsts = np.append(counts, self._waiting.counts[new]), self._waiting.lines[new]
        slots = np.argsort(-counts, kind="stable")[:MAX_REPORTED_KINDS]
        examples = dict(enumerate(self._firsts))
        late = slots[slots >= begin]
        if self._waiting is not None and len(late):
            lines = firsts[late - begin]
            texts = self._waiting.texts(lines)
            examples |= zip(late.tolist(), zip(lines.tolist(), texts, strict=True), strict=True)
        return [
            {"count": int(counts[slot]), "line": line, "example": self._example(first)}
            for slot, (line, first) in ((slot, examples[slot]) for slot in slots.tolist())
        ]

    def _kept_example(self, first: str | bytes) -> str | bytes:
        return first if len(first) <= MAX_EXAMPLE_BYTES else self._example(first)

    def _example(self, first: str | bytes) -> str:
        return (self._clean(first) if isinstance(first, bytes) else first)[:MAX_EXAMPLE_CHARS]
