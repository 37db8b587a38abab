"""Lines that no pattern knows, counted by their kind: those alike but for their numbers are one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

MOST_KINDS: Final = 20
"""Kinds of a source that are told, the commonest first."""
REMEMBERED: Final = 50 * MOST_KINDS
"""Kinds that are counted: the first of a source."""
BEGINNING: Final = 160
LENGTH: Final = 60
"""Characters of a kind, made of the BEGINNING of a line: each number is one of them."""
EXAMPLE: Final = 200
_NUMBERS: Final = re.compile(r"[0-9.:]+")
HASH: Final = ord("#")
MARK: Final = 0xFF
"""Stands for a byte of a number: none of UTF-8 is this."""
_MARKED: Final = bytes(MARK if chr(byte) in "0123456789.:" else byte for byte in range(256))


def kind_of(text: str) -> str:
    """The kind of a line."""
    return _NUMBERS.sub("#", text[:BEGINNING])[:LENGTH]


def kinds_of(texts: pl.Series) -> pl.Series:
    """The kinds of many lines: their bytes but for all of a number behind its first one."""
    cut = texts.str.slice(0, BEGINNING).to_arrow().cast(pa.large_string())
    if not len(cut):
        return pl.Series(dtype=pl.String)
    starts = np.frombuffer(cut.buffers()[1], np.int64)[: len(cut) + 1]
    marked = bytes(cut.buffers()[2] or b"").translate(_MARKED)  # half the time of numpy's own
    data = np.frombuffer(marked, np.uint8)[: starts[-1]]
    numbers = data == MARK
    more = numbers[1:] & numbers[:-1]
    more[starts[(starts > 0) & (starts < len(data))] - 1] = False  # a line begins there
    kept = np.ones(len(data), bool)
    kept[1:] = ~more
    shorter = data[kept]
    shorter -= (shorter == MARK).view(np.uint8) * np.uint8(
        MARK - HASH
    )  # ten times as fast as a mask
    ends = starts - np.searchsorted(np.flatnonzero(more) + 1, starts)
    kinds = pa.LargeStringArray.from_buffers(len(cut), pa.py_buffer(ends), pa.py_buffer(shorter))
    return pl.Series(kinds).str.slice(0, LENGTH)


class Kinds:
    """How many lines of each kind a source has, with an example."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[str, Any]] = {}

    def add(self, kinds: Iterable[tuple[str, int, int]], text: Callable[[int], str]) -> None:
        """So many more of kinds, each with the number of its first line; text: of that line."""
        for kind, count, number in kinds:
            found = self._kinds.get(kind)
            if found is not None:
                found["count"] += count
            elif len(self._kinds) < REMEMBERED:
                example = text(number)[:EXAMPLE]
                self._kinds[kind] = {"count": count, "line": number, "example": example}

    def commonest(self) -> list[dict[str, Any]]:
        """Number of lines, the first one and its text of the commonest kinds."""
        kinds = sorted(self._kinds.values(), key=lambda kind: -kind["count"])
        return kinds[:MOST_KINDS]
