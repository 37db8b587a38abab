"""Lines that no pattern knows, counted by their kind: those alike but for their numbers are one."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import polars as pl

MOST_KINDS: Final = 20
"""Kinds of a source that are told, the commonest first."""
REMEMBERED: Final = 50 * MOST_KINDS
"""Kinds that are counted: the first of a source."""
BEGINNING: Final = 160
LENGTH: Final = 60
"""Characters of a kind, made of the BEGINNING of a line: each number is one of them."""
EXAMPLE: Final = 200
NUMBERS: Final = r"[\d.:]+"
_NUMBERS: Final = re.compile(NUMBERS)


def kind_of(text: str) -> str:
    """The kind of a line."""
    return _NUMBERS.sub("#", text[:BEGINNING])[:LENGTH]


def kinds_of(texts: pl.Series) -> pl.Series:
    """The kinds of many lines."""
    return texts.str.slice(0, BEGINNING).str.replace_all(NUMBERS, "#").str.slice(0, LENGTH)


class Kinds:
    """How many lines of each kind a source has, with an example."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[str, Any]] = {}

    def add(self, kind: str, count: int, number: int, text: Callable[[], str]) -> None:
        """So many more of a kind; number, text: of the first of them."""
        found = self._kinds.get(kind)
        if found is not None:
            found["count"] += count
        elif len(self._kinds) < REMEMBERED:
            self._kinds[kind] = {"count": count, "line": number, "example": text()[:EXAMPLE]}

    def commonest(self) -> list[dict[str, Any]]:
        """Number of lines, the first one and its text of the commonest kinds."""
        kinds = sorted(self._kinds.values(), key=lambda kind: -kind["count"])
        return kinds[:MOST_KINDS]
