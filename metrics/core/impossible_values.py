"""Remove impossible values from the tables before anything is computed.

The store keeps every value as printed. Here, facts and figures of steps and events outside the
bounds of ingest.core.schema are removed from the tables, with a warning that names the line. All
metrics are then computed as if the log had not printed the removed values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import polars as pl

from fairmfu.ingest.core.schema import (
    EVENT_BOUNDS,
    EVENT_COLUMNS,
    FACT_NAMES,
    INFINITE_COLUMNS,
    STEP_BOUNDS,
    STEP_COLUMNS,
    Bounds,
    Column,
    fact_problem,
)

from .messages import Message
from .run_messages import IMPOSSIBLE_VALUE

Tables = Mapping[str, pl.DataFrame]

_CHECKED_FACTS: Final = [
    name for name, known in FACT_NAMES.items() if known.kind not in ("json", "text")
] + [name for name, known in FACT_NAMES.items() if known.choices]


@dataclass(frozen=True, slots=True)
class PossibleTables:
    """Tables without impossible values; warnings: the removed values, by run_id."""

    tables: dict[str, pl.DataFrame]
    warnings: dict[str, list[Message]]


def refuse_impossible(tables: Tables) -> PossibleTables:
    """Remove impossible values from `facts`, `steps` and `events`.

    An impossible value becomes null. An impossible fact is dropped, and so is a row with an
    impossible step number.

    tables: as in ingest.core.schema; all other tables are returned unchanged
    """
    warnings: dict[str, list[Message]] = {}
    facts, about_facts = possible_facts(tables["facts"])
    steps, about_steps = _possible_rows(tables["steps"], STEP_BOUNDS, STEP_COLUMNS)
    events, about_events = _possible_rows(tables["events"], EVENT_BOUNDS, EVENT_COLUMNS)
    for run_id, message in (*about_facts, *about_steps, *about_events):
        warnings.setdefault(run_id, []).append(message)
    return PossibleTables({**tables, "facts": facts, "steps": steps, "events": events}, warnings)


Warnings = list[tuple[str, Message]]


def possible_facts(facts: pl.DataFrame) -> tuple[pl.DataFrame, Warnings]:
    """Return the possible facts, and a warning for every impossible one."""
    checked = pl.col("name").is_in(_CHECKED_FACTS)
    values = facts.select("name", "value").filter(checked).unique()
    problems = [
        (name, value, why)
        for name, value in values.iter_rows()
        if (why := fact_problem(name, value or "")) is not None
    ]
    if not problems:
        return facts, []
    schema = {"name": pl.String, "value": pl.String, "why": pl.String}
    found = pl.DataFrame(problems, schema=schema, orient="row")
    keys = ["name", "value"]
    refused = facts.join(found, on=keys, how="inner", maintain_order="left", nulls_equal=True)
    said = refused.select("run_id", "why", "origin", "line").unique(maintain_order=True)
    warnings = [
        (run_id, IMPOSSIBLE_VALUE(why=why, where=_place(origin, line)))
        for run_id, why, origin, line in said.iter_rows()
    ]
    return facts.join(found, on=keys, how="anti", maintain_order="left", nulls_equal=True), warnings


def _place(origin: str, line: int | None) -> str:
    return origin if line is None or str(line) in origin else f"{origin}, line {line:,}"


def _possible_rows(
    rows: pl.DataFrame, bounds: Mapping[str, Bounds], columns: Mapping[str, Column]
) -> tuple[pl.DataFrame, Warnings]:
    """Return the rows without impossible values, and the warnings.

    NaN stays, and so does an infinity in columns of INFINITE_COLUMNS.
    """
    printed = [name for name in bounds if rows[name].null_count() < rows.height]
    if not printed:
        return rows, []
    ends = (
        end.alias(f"{name} {place}")
        for name in printed
        for place, end in enumerate(_extremes(pl.col(name)))
    )
    extremes = rows.lazy().select(ends).collect().row(0, named=True)
    found = {name: [extremes[f"{name} {place}"] for place in range(3)] for name in printed}
    odd = [
        name
        for name, values in found.items()
        if any(value is not None and value not in bounds[name] for value in values)
    ]
    if not odd:
        return rows, []
    warnings = [words for name in odd for words in _refused(rows, name, bounds[name], columns)]
    possible = {name: _fits(name, bounds[name]).fill_null(value=True) for name in odd}
    possible |= {name: fits | ~_is_told(name, columns) for name, fits in possible.items()}
    kept = rows.filter(possible["step"]) if "step" in odd else rows
    return kept.with_columns(
        pl.when(fits).then(pl.col(name)) for name, fits in possible.items() if name != "step"
    ), warnings


def _extremes(value: pl.Expr) -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    """Return the maximum, the minimum and the smallest nonzero magnitude.

    Infinities count.
    """
    return value.max(), value.min(), value.abs().filter(value != 0).min()


def _is_told(name: str, columns: Mapping[str, Column]) -> pl.Expr:
    """Return whether a value is checked against its bounds.

    NaN is not checked, nor is an infinity in columns of INFINITE_COLUMNS.
    """
    value = pl.col(name)
    if not columns[name].dtype.is_float():
        return value.is_not_null()
    return value.is_finite() if name in INFINITE_COLUMNS else value.is_not_nan()


def _fits(name: str, bound: Bounds) -> pl.Expr:
    value = pl.col(name).cast(pl.Float64)
    tiny = (value != 0) & (value.abs() < bound.smallest)
    return value.is_between(bound.lowest, bound.highest) & ~tiny


def _refused(
    rows: pl.DataFrame, name: str, bound: Bounds, columns: Mapping[str, Column]
) -> Iterator[tuple[str, Message]]:
    """Yield one warning for every run with an impossible value in this column."""
    unit = columns[name].unit
    refused = (
        rows.lazy()
        .filter(_is_told(name, columns), ~_fits(name, bound))
        .group_by("run_id", maintain_order=True)
        .agg(pl.col("line").first(), pl.col(name).first(), pl.len().alias("lines"))
        .collect()
    )
    for run_id, line, first, lines in refused.iter_rows():
        where = f"line {line:,}" if lines == 1 else f"{lines:,} lines, first at line {line:,}"
        value = f"{name}={first:g}" + (f" [{unit}]" if unit else "")
        why = f"{value} is impossible: {bound.why_not(first)}"
        yield run_id, IMPOSSIBLE_VALUE(why=why, where=where)
