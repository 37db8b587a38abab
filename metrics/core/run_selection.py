"""Select runs by name or id."""

from __future__ import annotations

from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import polars as pl

from .run_messages import RUN_NAME_SHARED, UNKNOWN_RUN, RunNameError
from .run_table import MetricsRow, metrics_rows

MAX_NAMED_RUNS: Final = 3
"""Most runs that an error names."""


def choose(table: pl.DataFrame, *names: str, noun: str = "run") -> pl.DataFrame:
    """Return the rows of some runs, in the order of the names; all rows without names.

    table: any with `run_id` and `name`: Analysis.metrics, reports.current_metrics, the table
    `runs`; its columns and units stay. names: ids, beginnings of ids, names, ids of other
    sources of the same launch, paths of logs (column `sources`), or patterns of names (`titan-*`).
    noun: what the rows are, also the command that lists them.

    Raises RunNameError with the nearest names where no run matches.

    >>> choose(analysis.metrics, "titan-8b", "xtuner-8b")
    """
    if not names:
        return table
    ids, run_names = table["run_id"].to_list(), table["name"].to_list()
    members = table["members"].to_list() if "members" in table.columns else [[run] for run in ids]
    keep: list[int] = []
    for name in names:
        rows = [i for i, (a, b) in enumerate(zip(ids, run_names, strict=True)) if name in (a, b)]
        rows = rows or [
            i for i, of in enumerate(members) if any(name and m.startswith(name) for m in of)
        ]
        if not rows and "sources" in table.columns:
            path = str(Path(name).absolute())
            rows = [i for i, of in enumerate(table["sources"]) if path in of]
        rows = rows or [i for i, run in enumerate(run_names) if _fits(run, name)]
        if not rows:
            raise _unknown(name, run_names, noun)
        keep += rows
    return table[list(dict.fromkeys(keep))]


def _fits(run_name: str, pattern: str) -> bool:
    return not _WILDCARDS.isdisjoint(pattern) and fnmatchcase(run_name, pattern)


_WILDCARDS: Final = frozenset("*?[")


def _unknown(name: str, run_names: list[str], noun: str) -> RunNameError:
    begun = [run_name for run_name in run_names if name and run_name.startswith(name)]
    near = list(
        dict.fromkeys([*begun, *get_close_matches(name, run_names, n=MAX_NAMED_RUNS, cutoff=0.4)])
    )
    hint = f" Nearest: {', '.join(near[:MAX_NAMED_RUNS])}." if near else ""
    if not near and 0 < len(set(run_names)) <= MAX_NAMED_RUNS:
        there = "There is" if len(set(run_names)) == 1 else "There are"
        hint = f" {there}: {', '.join(dict.fromkeys(run_names))}."
    see = "fairmfu runs" if noun == "run" else f"fairmfu {noun} list"
    return UNKNOWN_RUN(noun=noun, name=name, hint=hint, command=see)


def choose_one(table: pl.DataFrame, name: str) -> MetricsRow:
    """Return the row of the one run that `choose` finds.

    Raises RunNameError if `choose` finds none or several.
    """
    found = choose(table, name)
    if found.height > 1:
        ids = ", ".join(found["run_id"])
        raise RUN_NAME_SHARED(count=found.height, name=name, ids=ids)
    return metrics_rows(found)[0]
