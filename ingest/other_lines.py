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
_OF_NUMBERS: Final = np.isin(np.arange(256), np.frombuffer(b"0123456789.:", np.uint8))


def kind_of(text: str) -> str:
    """The kind of a line."""
    return _NUMBERS.sub("#", text[:BEGINNING])[:LENGTH]


def kinds_of(texts: pl.Series) -> pl.Series:
    """The kinds of many lines: their bytes but for all of a number behind its first one."""
    cut = texts.str.slice(0, BEGINNING).to_arrow().cast(pa.large_string())
    if not len(cut):
        return pl.Series(dtype=pl.String)
    starts = np.frombuffer(cut.buffers()[1], np.int64)[: len(cut) + 1]
    data = np.frombuffer(cut.buffers()[2] or b"", np.uint8)[: starts[-1]]
    numbers = _OF_NUMBERS[data]
    first = np.ones(len(data), bool)
    first[1:] = ~numbers[:-1]
    first[starts[:-1][starts[:-1] < len(data)]] = True
    kept = first | ~numbers
    dropped = np.flatnonzero(~kept)
    buffers = [
        None,
        pa.py_buffer(starts - np.searchsorted(dropped, starts)),
        pa.py_buffer(np.where(numbers, HASH, data)[kept]),
    ]
    kinds = pa.LargeStringArray.from_buffers(len(cut), *buffers[1:])
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
