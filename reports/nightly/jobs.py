"""Jobs: the runs that people know by one name, whether a run has a rate or not.

A series is the measured part of a job. A run that crashed before it had a rate is in no series, and
belongs to the job by its facts or by the path of its log.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

import polars as pl

from fairmfu.ingest.core.schema import INT, TEXT, TIMESTAMP

Row = Mapping[str, Any]

JOB_SCHEMA: Final = pl.Schema(
    {
        "run_id": TEXT,
        "name": TEXT,
        "job": TEXT,
        "series": TEXT,
        "framework": TEXT,
        "at": TIMESTAMP,
        "path": TEXT,
        "place": TEXT,
        "outcome": TEXT,
        "outcome_text": TEXT,
        "step_lines": INT,
        "last_step": INT,
        "last_at": TIMESTAMP,
    }
)
"""A row per run.

job: its name for people; series: null if the job has none; at: start, on the clock of this machine;
place: what the logs of one job share (ingest.extract.run_names.job_place)
step_lines: null if the steps were not looked up, as of runs that completed
last_step, last_at: of the last step line
"""

MAX_KEPT_RUNS: Final = 100
"""Newest runs of a job that show its rhythm, beside the first one."""

MAX_NAMING_RUNS: Final = 10
"""Newest runs of a series that name its job."""


def jobs_of_runs(runs: pl.DataFrame, points: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Return the job of every run, columns of JOB_SCHEMA; MAX_KEPT_RUNS of each job.

    runs: the columns of JOB_SCHEMA but `job` and `series`, `path_name`
        (ingest.extract.run_names.job_name), `synthetic` and the columns `by`
    points: of metrics.compare.history; by: columns that runs of one series share
    """
    series_of = dict(points.select("run_id", "series").iter_rows())
    names = dict.fromkeys((*JOB_SCHEMA, "path_name", "synthetic", *by))
    used = runs.select(name for name in names if name not in {"job", "series"})
    rows = used.sort("at", "run_id", nulls_last=False).rows(named=True)
    facts, places = _by_facts(rows, series_of, by), _by_place(rows, series_of)
    for row in rows:
        if row["run_id"] not in series_of:
            near = places.get(row["place"], [])
            known = _only(facts.get(_facts(row, by), []))
            one = known or _only(_compatible(row, near, facts, by))
            if one is not None:
                series_of[row["run_id"]] = one
    named = _series_names(rows, series_of)
    taken = set(named.values())
    found = [
        {**row, "series": series_of.get(row["run_id"]), "job": _job(row, series_of, named, taken)}
        for row in rows
    ]
    several = pl.DataFrame(found, schema=JOB_SCHEMA, strict=False)
    place = pl.int_range(pl.len()).over(pl.coalesce("series", "job", "run_id"))
    left = pl.len().over(pl.coalesce("series", "job", "run_id")) - place
    return several.filter((place == 0) | (left <= MAX_KEPT_RUNS))


def _job(
    row: Row, series_of: Mapping[str, str], names: Mapping[str, str], taken: set[str]
) -> str | None:
    """Return the name of a run's job; null if a series has only its facts for a name."""
    series = series_of.get(row["run_id"])
    if series is not None:
        return names.get(series)
    name: str = row["path_name"]
    return name if name and name not in taken else str(row["name"])


def _facts(row: Row, by: Sequence[str]) -> tuple[Any, ...] | None:
    values = tuple(row[name] for name in (*by, "synthetic"))
    return None if None in values else values


def _by_facts(
    rows: Sequence[Row], series_of: Mapping[str, str], by: Sequence[str]
) -> dict[tuple[Any, ...] | None, list[str]]:
    """Return the series by their facts: several of jobs that take turns."""
    found: dict[tuple[Any, ...] | None, dict[str, None]] = defaultdict(dict)
    for row in rows:
        if (series := series_of.get(row["run_id"])) is not None:
            found[_facts(row, by)][series] = None
    found.pop(None, None)
    return {facts: list(several) for facts, several in found.items()}


def _by_place(rows: Sequence[Row], series_of: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for row in rows:
        if (series := series_of.get(row["run_id"])) is not None and row["place"]:
            found[row["place"]][series] = None
    return {place: list(several) for place, several in found.items()}


def _compatible(
    row: Row, series: Sequence[str], facts: Mapping[Any, Sequence[str]], by: Sequence[str]
) -> list[str]:
    """Return the series that agree with the known facts of a run; all if none does."""
    own = [row[name] for name in (*by, "synthetic")]
    fits = [
        name
        for values, names in facts.items()
        for name in names
        if name in series and all(a is None or a == b for a, b in zip(own, values, strict=True))
    ]
    return fits or list(series)


def _only(series: Sequence[str]) -> str | None:
    return series[0] if len(series) == 1 else None


def _series_names(rows: Sequence[Row], series_of: Mapping[str, str]) -> dict[str, str]:
    """Return the name that most newest runs of a series have, and no other series.

    If a job changed its facts, the newest of its series has the name.
    """
    lately: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if (series := series_of.get(row["run_id"])) is not None:
            lately[series].append(row)
    named: dict[str, list[str]] = defaultdict(list)
    for series, runs in lately.items():
        recent = [row["path_name"] for row in runs[-MAX_NAMING_RUNS:]]
        ((name, count),) = Counter(recent).most_common(1)
        if name and 2 * count > len(recent):
            named[name].append(series)
    owners: dict[str, str] = {}
    for name, several in named.items():
        ordered = sorted(several, key=lambda series: _span(lately[series]))
        if all(succeeds(lately[new], lately[old]) for old, new in pairwise(ordered)):
            owners[ordered[-1]] = name
    return owners


def succeeds(new: Sequence[Row], old: Sequence[Row]) -> bool:
    """Return whether runs continue the job of other runs; both oldest first.

    Both are of one place, and the new ones began after the last old one.
    """
    place = new[0]["place"]
    return bool(place) and place == old[-1]["place"] and _span(new)[0] > _span(old)[1]


def _span(rows: Sequence[Row]) -> tuple[datetime, datetime]:
    """Return the first and the last start; the year 1 if no start is known."""
    starts = [row["at"] for row in rows if row["at"] is not None] or [NO_START]
    return min(starts), max(starts)


NO_START: Final = datetime(1, 1, 1)  # noqa: DTZ001 - on the clock of the runs
