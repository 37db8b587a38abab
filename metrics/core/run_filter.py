"""Filter and sort a table of runs by its columns.

Filters are SQL conditions, evaluated by Polars. They see the columns of one table: subqueries are
refused, because Polars' SQL reads files in them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

import polars as pl

from .run_messages import (
    FILTER_FAILED,
    SUBQUERY_IN_FILTER,
    UNKNOWN_COLUMN,
)

MAX_NAMED_COLUMNS: Final = 3
"""Most columns that an error names."""

QUOTED_TEXT: Final = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*\"""")
OTHER_QUOTING: Final = re.compile(r"\w''|[$`#\\]|--|/\*")
"""Quoting and comments that QUOTED_TEXT does not know, such as E'...' and $$...$$."""

REFUSED_WORD: Final = re.compile(r"(?i)(?<!distinct )\b(select|from|unnest|values|table)\b")
"""Beginning of a subquery, or a function that changes the number of rows."""


def filter_runs(table: pl.DataFrame, condition: str | None) -> pl.DataFrame:
    """Return the rows that fulfil an SQL condition on their columns.

    condition: None for all rows. An unknown value fulfils no condition, as in SQL. The order stays.

    Raises RunFilterError for a condition with an unknown column, a fault or a subquery.

    >>> filter_runs(analysis.metrics, "outcome = 'completed' and gpus >= 8")
    """
    if condition is None:
        return table
    if refused := REFUSED_WORD.search(_without_texts(condition)):
        raise SUBQUERY_IN_FILTER(word=refused[0])
    try:
        parsed = pl.sql_expr(condition)
        for name in parsed.meta.root_names():
            _check_column(name, table.columns, f" A text has single quotes: {_quoted(name)}.")
        if parsed.meta.has_multiple_outputs():
            raise FILTER_FAILED(condition=condition, error="it is several conditions")
        return table.filter(parsed)
    except pl.exceptions.PolarsError as error:
        raise FILTER_FAILED(condition=condition, error=_first_sentence(error)) from error


def sort_runs(table: pl.DataFrame, column: str) -> pl.DataFrame:
    """Return the rows sorted by a column, unknown values last.

    column: with a leading `-` the largest first. Equal rows keep their order.

    Raises RunFilterError for an unknown column.

    >>> sort_runs(analysis.metrics, "-tgs")
    """
    name = column.removeprefix("-")
    _check_column(name, table.columns)
    return table.sort(name, descending=column.startswith("-"), nulls_last=True, maintain_order=True)


def _without_texts(condition: str) -> str:
    """Return a condition without quoted texts; with them if its quoting is unusual."""
    code = QUOTED_TEXT.sub("''", condition)
    unusual = OTHER_QUOTING.search(code) or "\\'" in condition
    return condition if unusual else code


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _check_column(name: str, columns: Sequence[str], hint: str = "") -> None:
    """Raise RunFilterError for an unknown column, with the nearest ones.

    hint: sentence after them
    """
    if name not in columns:
        near = get_close_matches(name.lower(), columns, n=MAX_NAMED_COLUMNS, cutoff=0.6)
        nearest = f" Nearest: {', '.join(near)}." if near else ""
        raise UNKNOWN_COLUMN(name=name, hint=nearest + hint)


def _first_sentence(error: Exception) -> str:
    """Return the first line of Polars' message, without its advice for programs."""
    return str(error).split("\n", 1)[0].partition(" (create native python")[0].rstrip(".")
