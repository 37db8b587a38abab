"""Runs by what people call them."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

import polars as pl

from fairmfu.ingest.core.errors import FairmfuError

from .run_table import MetricsRow, metrics_rows

MAX_NAMED_RUNS: Final = 3
"""Runs that an error names."""


class RunNameError(FairmfuError, LookupError):
    """No run has this name, or several have it where one is asked for."""


def choose(table: pl.DataFrame, *names: str, noun: str = "run") -> pl.DataFrame:
    """The rows of some runs, in the order of the names; all rows without any.

    table: any with `run_id` and `name`: Analysis.metrics, reports.current_metrics, the table
    `runs`; its columns and units stay. names: ids, beginnings of ids, names, or ids of other
    sources of the same launch. noun: what the rows are, also the command that lists them.

    Raises RunNameError with the nearest names where there is none.

    >>> choose(analysis.metrics, "titan-8b", "xtuner-8b")
    """
    if not names:
        return table
    ids, known = table["run_id"].to_list(), table["name"].to_list()
    told = table["members"].to_list() if "members" in table.columns else [[run] for run in ids]
    keep: list[int] = []
    for name in names:
        found = [i for i, (a, b) in enumerate(zip(ids, known, strict=True)) if name in (a, b)]
        found = found or [
            i for i, of in enumerate(told) if any(name and m.startswith(name) for m in of)
        ]
        if not found:
            raise _unknown(name, known, noun)
        keep += found
    return table[list(dict.fromkeys(keep))]


def _unknown(name: str, known: list[str], noun: str) -> RunNameError:
    begun = [one for one in known if name and one.startswith(name)]
    near = list(
        dict.fromkeys([*begun, *get_close_matches(name, known, n=MAX_NAMED_RUNS, cutoff=0.4)])
    )
    hint = f" Nearest: {', '.join(near[:MAX_NAMED_RUNS])}." if near else ""
    if not near and 0 < len(set(known)) <= MAX_NAMED_RUNS:
        there = "There is" if len(set(known)) == 1 else "There are"
        hint = f" {there}: {', '.join(dict.fromkeys(known))}."
    see = "fairmfu runs" if noun == "run" else f"fairmfu {noun} list"
    return RunNameError(f"No {noun} is called {name!r}.{hint} See: {see}")


def choose_one(table: pl.DataFrame, name: str) -> MetricsRow:
    """The row of the one run of this name, as `choose` takes it. Raises RunNameError."""
    found = choose(table, name)
    if found.height > 1:
        ids = ", ".join(found["run_id"])
        raise RunNameError(f"{found.height} runs are called {name!r}; give an id: {ids}")
    return metrics_rows(found)[0]
