"""Tables of one fact by another: rates, MFU, memory and outcomes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from fairmfu.metrics.compare.comparability import COLUMN_LABELS
from fairmfu.metrics.compare.comparison_row import ComparisonRow
from fairmfu.metrics.compare.studies import (
    FACTS,
    known_value,
    rate_of,
    settings_of,
    value_words,
)
from fairmfu.metrics.core.run_table import value_of

from ..text.claims_text import join_words
from ..text.run_narrative import BAD_OUTCOMES, OUTCOME_LABELS
from ..text.runs_table import Columns
from ..text.tabular import GIB, count, percent, render_frame

MATRIX_FACTS: Final = ("model", *FACTS)
"""Facts that can be the rows or the columns of a matrix."""

_TYPES: Final[Mapping[str, Any]] = {
    "row": pl.String,
    "column": pl.String,
    "tgs": pl.Float64,
    "samples_per_second": pl.Float64,
    "mfu": pl.Float64,
    "peak_memory_bytes": pl.Float64,
    "outcome": pl.String,
    "settings": pl.Int64,
    "runs": pl.List(pl.String),
    "run_ids": pl.List(pl.String),
}
MATRIX_SCHEMA: Final = pl.Schema(_TYPES)


def matrix_frame(rows: Sequence[ComparisonRow], by_row: str, by_column: str) -> pl.DataFrame:
    """Return a row per cell, columns of MATRIX_SCHEMA, in the order of the values.

    by_row, by_column: names of MATRIX_FACTS
    tgs [tokens/s/GPU], samples_per_second, mfu [share], peak_memory_bytes: of the fastest setting
    settings: settings in the cell that differ in other facts; runs, run_ids: the fastest first
    """
    cells: dict[tuple[object, object], list[ComparisonRow]] = defaultdict(list)
    for run in rows:
        cells[known_value(run, by_row), known_value(run, by_column)].append(run)
    order = sorted(cells, key=lambda cell: tuple(map(_order, cell)))
    return pl.DataFrame([_cell(*cell, cells[cell]) for cell in order], schema=MATRIX_SCHEMA)


def _order(value: object) -> tuple[int, float, str]:
    """Return numbers in their order, then words, then what is not stated."""
    if isinstance(value, int | float):
        return 0, float(value), ""
    return (2 if value is None else 1), 0.0, str(value)


def _cell(row: object, column: object, runs: Sequence[ComparisonRow]) -> dict[str, Any]:
    found = sorted(settings_of(runs), key=rate_of, reverse=True)
    best = found[0]
    bad = [run["outcome"] for run in runs if run["outcome"] in BAD_OUTCOMES]
    ordered = [run for setting in found for run in setting.rows]
    return {
        "row": value_words(row),
        "column": value_words(column),
        "tgs": best.tgs,
        "samples_per_second": best.samples_per_second,
        "mfu": best.mfu,
        "peak_memory_bytes": best.most("peak_memory_bytes"),
        "outcome": OUTCOME_LABELS[bad[0] or ""] if bad else None,
        "settings": len(found),
        "runs": [run["label"] for run in ordered],
        "run_ids": [run["run_id"] for run in ordered],
    }


def matrix_json(rows: Sequence[ComparisonRow], by_row: str, by_column: str) -> dict[str, Any]:
    """Return the matrix of the page: headings, and cells with their words and runs."""
    cells = matrix_frame(rows, by_row, by_column)
    return {
        "rows": COLUMN_LABELS.get(by_row, by_row),
        "columns": COLUMN_LABELS.get(by_column, by_column),
        "headings": cells["column"].unique(maintain_order=True).to_list(),
        "lines": cells["row"].unique(maintain_order=True).to_list(),
        "cells": [cell | {"says": _words(cell)} for cell in cells.iter_rows(named=True)],
        "notes": _notes(rows, cells, {by_row, by_column}),
    }


def matrix_text(
    rows: Sequence[ComparisonRow], by_row: str, by_column: str, output: str = "table"
) -> str:
    """Return the matrix with its notes; JSON and CSV have a row per cell."""
    cells = matrix_frame(rows, by_row, by_column)
    if output in ("json", "csv"):
        joined = pl.col("runs", "run_ids").list.join("; ")
        shown = cells.with_columns(joined) if output == "csv" else cells
        return render_frame(shown, output)
    columns = cells["column"].unique(maintain_order=True).to_list()
    known = {(cell["row"], cell["column"]): cell for cell in cells.iter_rows(named=True)}
    label = COLUMN_LABELS.get(by_row, by_row)
    body = [
        {label: row} | {column: _words(known.get((row, column))) for column in columns}
        for row in cells["row"].unique(maintain_order=True)
    ]
    headings: Columns = {label: (label, str)} | {name: (str(name), str) for name in columns}
    title = f"{label} by {COLUMN_LABELS.get(by_column, by_column)}"
    table = render_frame(pl.DataFrame(body), output, headings)
    notes = "\n".join(f"- {note}" for note in _notes(rows, cells, {by_row, by_column}))
    return f"{title}\n\n{table}\n\n{notes}"


def _words(cell: Mapping[str, Any] | None) -> str:
    """Return rate, MFU and memory of a cell, or its outcome; empty if no run is there."""
    if cell is None:
        return ""
    figures = (
        ("tgs", count),
        ("samples_per_second", lambda rate: f"{count(rate)} samples/s"),
        ("mfu", percent),
        ("peak_memory_bytes", lambda memory: f"{memory / GIB:.1f} GiB"),
    )
    told = [how(cell[name]) for name, how in figures if cell[name] is not None]
    if cell["tgs"] is None and cell["samples_per_second"] is None:
        return str(cell["outcome"] or "no rate")
    more = f" (best of {cell['settings']})" if cell["settings"] > 1 else ""
    return f"{', '.join(told)}{more}"


NEVER_MIXED: Final = ("model", "device", "seq_len", "framework")
"""Facts that make the rates of two cells another question."""


def _notes(rows: Sequence[ComparisonRow], cells: pl.DataFrame, shown: set[str]) -> list[str]:
    notes = ["Cells: TGS in tokens/s/GPU, MFU with exact attention, peak memory."]
    if cells["settings"].max() != 1:
        notes.append(
            "A cell with 'best of N' has the fastest of N settings, which differ in other facts."
        )
    mixed = [
        f"{COLUMN_LABELS.get(name, name)} ({len(values)})"
        for name in NEVER_MIXED
        if name not in shown and len(values := {value_of(row, name) for row in rows} - {None}) > 1
    ]
    if mixed:
        notes.insert(
            0,
            f"Do not compare cells: these runs differ in {join_words(mixed)} too. Fix: name runs "
            "that share them, or choose them with --where.",
        )
    return notes
