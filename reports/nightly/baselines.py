"""Baselines: runs whose TGS is compared with the level of their series.

Pinned baselines are in the store, others are named in fairmfu.toml. The messages about baselines of
`fairmfu baseline`, `fairmfu remove` and the nightly are here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Final

import polars as pl

from fairmfu.ingest.core.schema import FLOAT, TEXT, TIMESTAMP
from fairmfu.ingest.facts.config_file import CONFIG_NAME
from fairmfu.ingest.store.store import Store
from fairmfu.ingest.store.transactions import utc_now
from fairmfu.metrics.core.run_messages import RunNameError
from fairmfu.metrics.core.run_selection import choose, choose_one

from .messages import BASELINE_WITHOUT_RUN, BASELINE_WITHOUT_TGS

BASELINES: Final = "baselines"
"""Name of the table of pinned runs in the store."""

BASELINE_SCHEMA: Final = pl.Schema({"run_id": TEXT, "name": TEXT, "at": TIMESTAMP, "tgs": FLOAT})

REMOVE_COMMAND: Final = "fairmfu baseline remove"
SET_COMMAND: Final = "fairmfu baseline set RUN"


def pin(store: Store, runs: pl.DataFrame) -> None:
    """Compare the level of each series with these runs from now on.

    runs: of metrics. Raises BaselineError, and pins none, if one has no TGS.
    """
    without = runs.filter(pl.col("tgs").is_null())
    for name, missing in without.select("name", "missing").iter_rows():
        lacks = f" ({', '.join(missing)} missing)" if missing else ""
        raise BASELINE_WITHOUT_TGS(name=name, missing=lacks)
    rows = runs.select("run_id", "name", pl.lit(utc_now()).alias("at"), "tgs")
    store.keep(BASELINES, rows.cast(BASELINE_SCHEMA))


def unpin(store: Store, runs: pl.DataFrame) -> None:
    """Remove baselines; runs: of `pinned`."""
    store.keep(BASELINES, runs.with_columns(tgs=pl.lit(None, FLOAT), at=pl.lit(utc_now())))


def pinned(store: Store) -> pl.DataFrame:
    """Return the pinned runs, columns of BASELINE_SCHEMA, in the order of pinning."""
    rows = store.kept(BASELINES, latest_by=("run_id",))
    if rows.is_empty():
        return BASELINE_SCHEMA.to_frame()
    return rows.select(BASELINE_SCHEMA.names()).filter(pl.col("tgs").is_not_null()).sort("at")


def night_baselines(
    store: Store, baseline_names: Sequence[str], metrics: pl.DataFrame
) -> pl.DataFrame:
    """Return the baselines of a night: pinned runs, then those of `baseline_names`.

    The latter take precedence.

    baseline_names: names or ids in the configuration; metrics: of all runs. Raises BaselineError if
        a baseline has no run with a TGS: a gate that checks nothing looks closed.
    """
    rows, wrong = pinned(store), []
    gone = list(_without_rate(store, rows, metrics))
    for name in baseline_names:
        try:
            run = choose_one(metrics, name)
        except RunNameError as error:
            wrong.append(str(error))
            continue
        if run["tgs"] is None:
            wrong.append(f"{run['name']} has no TGS. Fix: name another run")
            continue
        row = {"run_id": run["run_id"], "name": run["name"], "at": utc_now(), "tgs": run["tgs"]}
        rows = pl.concat([rows, pl.DataFrame([row], schema=BASELINE_SCHEMA)])
    found = ((f"{CONFIG_NAME}, [[baselines]]", wrong), (f"{store.path}, baselines", gone))
    problems = [
        "\n  ".join((f"{where}: no run to compare a series with.", *why))
        for where, why in found
        if why
    ]
    if problems:
        raise BASELINE_WITHOUT_RUN(problems="\n".join(problems))
    return rows


def _without_rate(store: Store, rows: pl.DataFrame, metrics: pl.DataFrame) -> Iterator[str]:
    """Yield why pinned runs are no baseline: they were removed, or lost their TGS.

    A run that is now part of a launch with another lead is not reported.
    """
    stored = set(store.runs_changed_since(-1))
    rates = dict(metrics.select("run_id", "tgs").iter_rows())
    for run_id, name in rows.select("run_id", "name").iter_rows():
        if run_id not in stored or rates.get(run_id, 0.0) is None:
            why = "has no TGS" if run_id in stored else "is no longer in the store"
            yield f"{name} ({run_id}) {why}. Fix: {_replace_commands(run_id)}."


def _replace_commands(run_id: str) -> str:
    """Return the commands that replace a baseline."""
    return f"{SET_COMMAND} for another run, and {REMOVE_COMMAND} {run_id}"


def removal_notices(
    store: Store,
    stored_runs: pl.DataFrame,
    removed_ids: Collection[str],
    baseline_names: Sequence[str],
) -> Iterator[str]:
    """Yield which removed runs are baselines, with the consequences.

    stored_runs: the table of runs with these; removed_ids: their ids; baseline_names: as of
        `night_baselines`
    """
    ends = "the next nightly fails (exit 1) unless it reads the log again"
    rows = pinned(store).filter(pl.col("run_id").is_in(list(removed_ids)))
    for run_id, name in rows.select("run_id", "name").iter_rows():
        yield f"{name} ({run_id}) is a baseline: {ends}. Fix: {_replace_commands(run_id)}."
    for name in baseline_names:
        with suppress(RunNameError):
            if set(choose(stored_runs, name)["run_id"]) <= set(removed_ids):
                yield f"{CONFIG_NAME} names {name} as a baseline: {ends}. Fix: name another run."
