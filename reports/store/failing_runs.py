"""Runs of a store that fail to compute, for `fairmfu doctor`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import polars as pl

from fairmfu.ingest.core.errors import FairmfuError, describe_fault
from fairmfu.ingest.core.faults import FAULTS
from fairmfu.ingest.store.doctor import REBUILD_HINT, Finding
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.formula.accelerators import Accelerator

from .metrics_store import update_metrics

READ_AGAIN: Final = "Read its log again with: fairmfu ingest --again; or remove it: fairmfu remove"


def failing_runs(store: Store, overlay: Sequence[Accelerator] = ()) -> Iterator[Finding]:
    """Yield the runs that fail to compute, and what stops all of them.

    Computes every run as `fairmfu runs` would, and stores nothing.
    """
    try:
        runs = store.table("runs")["run_id"].to_list()
        metrics = update_metrics(store, overlay, runs).metrics
    except FairmfuError as error:
        what, _, remedy = str(error).partition(". Fix: ")
        yield Finding(is_harmful=True, what=what, remedy=remedy or REBUILD_HINT)
        return
    except FAULTS as error:
        what = f"{store.path}: no run can be computed: {describe_fault(error)}"
        yield Finding(is_harmful=True, what=what, remedy=REBUILD_HINT)
        return
    failed = metrics.filter(pl.col("error").is_not_null())
    for name, run_id, why in failed.select("name", "run_id", "error").iter_rows():
        what = f"{store.path}: the run {name} [{run_id}] cannot be computed: {why}"
        yield Finding(is_harmful=True, what=what.removesuffix("."), remedy=READ_AGAIN)
