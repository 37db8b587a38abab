"""Missing facts of a store's runs, kept with their metrics.

They are computed when somebody asks for them, and again only for runs whose metrics were computed
again since: such a row of metrics has no answer yet.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

import polars as pl

from fairmfu.ingest.core.errors import StoreError
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.core.run_table import MetricsRow
from fairmfu.metrics.formula.accelerators import Accelerator
from fairmfu.metrics.pipeline.metrics_cache import KEPT_SCHEMA, LARGE_COLUMNS
from fairmfu.metrics.pipeline.run_needs import (
    AskedFacts,
    RunNeeds,
    lacks_facts,
    members_of,
    need_rows,
    needs_of,
    rows_of,
)

from .metrics_store import METRICS_TABLE, MetricsState, current_state, kept_rows


def current_needs(
    store: Store, overlay: Sequence[Accelerator] = (), run_ids: Collection[str] | None = None
) -> list[RunNeeds]:
    """Return all facts that each run without an MFU needs: `missing_facts.find_needs`.

    run_ids: of some runs, or of their sources; default all
    """
    state = current_state(store, overlay)
    rows = need_rows(state.metrics)
    return needs_of(rows, asked_facts(store, state, rows_of(rows, run_ids), overlay))


def asked_facts(
    store: Store,
    state: MetricsState,
    rows: Sequence[MetricsRow],
    overlay: Sequence[Accelerator] = (),
) -> dict[str, AskedFacts]:
    """Return the facts that these runs ask for, by run_id of each run that lacks some.

    New answers are kept under the same conditions as metrics (`metrics_store.current_metrics`).
    """
    kept = _kept_answers(state.kept)
    lacking = [row for row in rows if lacks_facts(row)]
    new = [row for row in lacking if row["run_id"] not in kept]
    fresh: Mapping[str, AskedFacts] = {}
    if new:
        from fairmfu.metrics.pipeline.missing_facts import ask_facts  # noqa: PLC0415 - imports much

        members = sorted({member for row in new for member in members_of(row)})
        fresh = ask_facts(new, store.tables(members), overlay)
        if not state.outdated:
            with suppress(StoreError):
                answered = _with_answers(_whole_rows(store, state), fresh)
                store.without_waiting().keep(METRICS_TABLE, answered, state.as_of)
    answers = {**kept, **fresh}
    return {row["run_id"]: answers[row["run_id"]] for row in lacking}


def _whole_rows(store: Store, state: MetricsState) -> pl.DataFrame:
    """Return the kept rows of a state with all columns: a row is kept whole."""
    read = kept_rows(store, LARGE_COLUMNS).select("run_id", *LARGE_COLUMNS)
    rows = state.kept.join(read, on="run_id", how="left", suffix="_read")
    whole = (pl.coalesce(name, f"{name}_read") for name in LARGE_COLUMNS)
    return rows.with_columns(whole).match_to_schema(KEPT_SCHEMA, extra_columns="ignore")


def _kept_answers(kept: pl.DataFrame) -> dict[str, AskedFacts]:
    rows = kept.filter(pl.col("needs").is_not_null(), pl.col("run_id") == pl.col("lead"))
    return dict(rows.select("run_id", "needs").iter_rows())


def _with_answers(kept: pl.DataFrame, answers: Mapping[str, AskedFacts]) -> pl.DataFrame:
    """Return the rows of these runs, with their answers."""
    needs = pl.DataFrame(
        {"run_id": [*answers], "needs": [*answers.values()]},
        schema={"run_id": KEPT_SCHEMA["run_id"], "needs": KEPT_SCHEMA["needs"]},
    )
    return kept.drop("needs").join(needs, on="run_id").match_to_schema(KEPT_SCHEMA)
