"""Select runs by name, id, path or folder."""

from __future__ import annotations

import os.path
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cached_property
from glob import escape
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
    `runs`; its columns and units stay. names: ids, names, names with their id as tables show them,
    paths of logs and folders of logs (column `sources`), beginnings of ids, also of other sources
    of the same launch, or patterns of names or paths (`titan-*`). Their order here decides: an
    exact name or id wins. noun: what the rows are, also the command that lists them.

    Raises RunNameError with the nearest names where no run matches.

    >>> choose(analysis.metrics, "titan-8b", "xtuner-8b")
    """
    if not names:
        return table
    search = _RunSearch.of(table)
    keep: list[int] = []
    for name in names:
        rows = search.find(name)
        if not rows:
            raise _unknown(name, search, noun)
        keep += rows
    return table[list(dict.fromkeys(keep))]


def with_sources(runs: pl.DataFrame, sources: pl.DataFrame) -> pl.DataFrame:
    """Return the table `runs` with the column `sources`, so that `choose` takes paths.

    sources: the table of that name
    """
    paths = sources.select("sha256", sources=pl.concat_list("path"))
    return runs.join(paths, on="sha256", how="left", maintain_order="left")


@dataclass(frozen=True)
class _RunSearch:
    """Columns of a table by which runs are found: a value per row.

    members: ids of all sources of a launch. sources: paths of its logs
    """

    ids: list[str]
    names: list[str]
    members: list[list[str]]
    sources: list[list[str] | None]

    @classmethod
    def of(cls, table: pl.DataFrame) -> _RunSearch:
        ids = table["run_id"].to_list()
        members = table["members"].to_list() if "members" in table.columns else [[i] for i in ids]
        sources = table["sources"].to_list() if "sources" in table.columns else [[] for _ in ids]
        return cls(ids, table["name"].to_list(), members, sources)

    @cached_property
    def paths(self) -> list[list[str]]:
        """Paths of the logs, without `..`."""
        return [[_whole_path(path) for path in of or ()] for of in self.sources]

    def find(self, word: str) -> list[int]:
        """Return the rows that a word chooses, by the first way that finds any."""
        if not word:
            return []
        ways = (self._exact, self._in_path, self._begun, self._alike)
        return next(filter(None, (way(word) for way in ways)), [])

    def _exact(self, word: str) -> list[int]:
        rows = enumerate(zip(self.ids, self.names, strict=True))
        return [i for i, (run, name) in rows if word in (run, name, f"{name} [{run}]")]

    def _in_path(self, word: str) -> list[int]:
        path = _whole_path(word)
        folder = f"{path.rstrip('/')}/"
        return _rows_with(self.paths, lambda of: of == path or of.startswith(folder))

    def _begun(self, word: str) -> list[int]:
        return _rows_with(self.members, lambda run: run.startswith(word))

    def _alike(self, word: str) -> list[int]:
        if _WILDCARDS.isdisjoint(word):
            return []
        rows = [i for i, name in enumerate(self.names) if fnmatchcase(name, word)]
        pattern = word if "://" in word else _whole_path(str(Path(escape(str(Path.cwd())), word)))
        return rows or _rows_with(self.paths, lambda of: fnmatchcase(of, pattern))


def _rows_with(values: Iterable[Iterable[str]], fits: Callable[[str], bool]) -> list[int]:
    return [i for i, of in enumerate(values) if any(map(fits, of))]


def _whole_path(path: str) -> str:
    """Return an absolute path without `..`; an address in an object store stays."""
    return path if "://" in path else os.path.normpath(Path(path).absolute())


_WILDCARDS: Final = frozenset("*?[")


def _unknown(name: str, search: _RunSearch, noun: str) -> RunNameError:
    run_names = search.names
    begun = [run_name for run_name in run_names if name and run_name.startswith(name)]
    near = list(
        dict.fromkeys([*begun, *get_close_matches(name, run_names, n=MAX_NAMED_RUNS, cutoff=0.4)])
    )
    hint = f" Nearest: {', '.join(near[:MAX_NAMED_RUNS])}." if near else ""
    if not near and 0 < len(set(run_names)) <= MAX_NAMED_RUNS:
        there = "There is" if len(set(run_names)) == 1 else "There are"
        hint = f" {there}: {', '.join(dict.fromkeys(run_names))}."
    if any(search.paths) and Path(name).exists():
        hint = " This path exists, but no stored run has a log there."
    see = "fairmfu runs" if noun == "run" else f"fairmfu {noun} list"
    return UNKNOWN_RUN(noun=noun, name=name, hint=hint, command=see)


def choose_one(table: pl.DataFrame, name: str) -> MetricsRow:
    """Return the row of the one run that `choose` finds.

    Raises RunNameError if `choose` finds none or several.
    """
    found = choose(table, name)
    if found.height > 1:
        ids = ", ".join(found["run_id"][:MAX_NAMED_RUNS])
        ids += " or another" if found.height > MAX_NAMED_RUNS else ""
        raise RUN_NAME_SHARED(count=found.height, name=name, ids=ids)
    return metrics_rows(found)[0]
