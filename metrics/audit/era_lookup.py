"""Eras of all frameworks by name and by log format, each built on first use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache, partial
from typing import Final

from .eras.all_rows import era_rows
from .formula_era import Era


@cache
def _era_rows() -> Mapping[str, partial[Era]]:
    """Index the rows of every framework by name, in order of framework and date."""
    return {row.keywords["name"]: row for row in era_rows()}


@cache
def _era(name: str) -> Era:
    """Build one era, once."""
    return _era_rows()[name]()


class _ErasByName(Mapping[str, Era]):
    """Every era by name, built on first use."""

    def __getitem__(self, name: str) -> Era:
        return _era(name)

    def __contains__(self, name: object) -> bool:
        return name in _era_rows()

    def __iter__(self) -> Iterator[str]:
        return iter(_era_rows())

    def __len__(self) -> int:
        return len(_era_rows())


ERAS_BY_NAME: Final[Mapping[str, Era]] = _ErasByName()


def all_eras() -> tuple[Era, ...]:
    """Return every era of every framework, by framework and date."""
    return tuple(ERAS_BY_NAME.values())


@cache
def eras_of_format(log_format: str) -> tuple[Era, ...]:
    """Return the eras of one log format, by framework and date; build no other."""
    rows = _era_rows().items()
    return tuple(_era(name) for name, row in rows if log_format in row.keywords["log_formats"])
