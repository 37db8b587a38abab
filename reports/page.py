"""One offline HTML page of a store: who is faster, by how much, how sure, and why the logs disagree.

`render` returns the page; nothing is fetched, now or when it is read: its content policy forbids
the network and runs only the scripts whose hashes it names. Every text that came from a log goes
through `esc`, or into JSON with each '<' escaped. No clock and no random id: the same frames give
the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, hypot, log
from typing import Any, Final

import polars as pl
import vl_convert

from ingest.schema import FACT_NAMES
from metrics.fairness import LABELS, MAY_DIFFER, SAME_WORK
from metrics.flops import FORMULA
from reports import charts
from reports.theme import ACCENT, FRAMEWORK_COLOURS, STYLE

Row = Mapping[str, Any]

EQUAL_WITHIN: Final = 0.02
"""Runs whose intervals overlap and whose TGS differ by less are called equal."""
NAMED: Final = 3
"""Runs that a sentence names before it points to the table."""
LONG: Final = 160
"""Characters of a fact's value before it is folded."""
MOST_UNREAD: Final = 20
"""Lines per source that the page quotes; the store has all of them."""

UNSURE: Final = (
    "The interval covers the windows of these very runs. It says nothing of another night or node."
)


def render(  # noqa: PLR0913 - the frames of one store
    *,
    title: str,
    metrics: pl.DataFrame,
    comparison: pl.DataFrame,
    windows: pl.DataFrame,
    facts_held: pl.DataFrame,
    operators: Mapping[str, pl.DataFrame],
    sources: pl.DataFrame,
    unread: pl.DataFrame,
    version: str,
) -> str:
    """The page as HTML text.

    metrics: metrics.utilization.run_metrics; comparison: metrics.fairness.compare of it; windows:
    metrics.throughput.windows; facts_held: metrics.inputs.holding; operators: by run_id,
    metrics.utilization.operator_table; sources, unread: as in ingest.schema.
    """
    about = {row["run_id"]: row for row in metrics.iter_rows(named=True)}
    names = charts.labels(metrics)
    rows = [about[row["run_id"]] | row for row in comparison.iter_rows(named=True)]
    rows = [row | {"label": names[row["run_id"]]} for row in rows]
    body = [
        _header(title, metrics, sources, version),
        _first_screen(rows),
        *_comparison_charts(metrics, comparison),
        _apart([row for row in rows if row["rank"] is None]),
        _runs(rows, metrics, windows, facts_held, operators),
        _sources(sources, unread),
        METHOD,
    ]
    return _document(title, body)


# --- words and numbers --------------------------------------------------------------------

DASH: Final = "\N{EN DASH}"


def esc(text: object) -> str:
    """Text as HTML shows it, in an element or a quoted attribute."""
    return html.escape(str(text), quote=True)


def _number(value: float | None, digits: int = 0, unit: str = "") -> str:
    return DASH if value is None else f"{value:,.{digits}f}{unit}"


def _percent(value: float | None) -> str:
    return DASH if value is None else f"{value:.1%}".replace("%", " %")


def _significant(value: float | None) -> str:
    """Three or more figures, whatever the size."""
    if value is None:
        return DASH
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _range(low: float | None, high: float | None, text: Callable[[float | None], str]) -> str:
    return "" if low is None or high is None else f"{text(low)}{DASH}{text(high)}"


def _listed(words: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def _count(n: int, noun: str) -> str:
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


def _synthetic(row: Row) -> str:
    return ' <span class="tag">synthetic</span>' if row["synthetic"] else ""


def _name(row: Row) -> str:
    """A run's name with its framework's colour; synthetic runs say so."""
    colour = FRAMEWORK_COLOURS.get(row["framework"], ACCENT)
    name = row["label"].removesuffix(" (synthetic)")
    return (
        f'<span class="dot" style="background:{colour}"></span>'
        f'<span class="name">{esc(name)}</span>{_synthetic(row)}'
    )
