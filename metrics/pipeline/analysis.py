"""Analysis of all runs of a store: `analyse`, and the result `Analysis`.

Every step has a module; here the steps are called in order, and become one row per run. Frames in,
frames out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, TypeVar, cast

import polars as pl

from fairmfu.ingest.core.progress import note_progress
from fairmfu.ingest.core.schema import FLOAT, TEXT, RunRow, run_rows

from ..audit import audit as logged
from ..audit.audit_results import Audit, Bridge
from ..audit.bridge import build_bridges
from ..audit.fact_suggestions import Proposal, propose_facts
from ..audit.formula_checks import FigureLines, FormulaFacts, formula_facts_of
from ..audit.other_tools import compare_other_formulas
from ..compare.loss_parity import loss_lines
from ..core.run_arrays import RunArrays
from ..core.run_messages import ANALYSIS_FAILED
from ..core.run_table import (
    METRICS,
    MetricsRow,
    metrics_row,
    metrics_rows,
    value_of,
    with_cross_run_warnings,
)
from ..formula.accelerators import Accelerator
from ..formula.terms import FORMULA_VERSION
from ..runs import same_run
from ..throughput import windows
from ..utilization.formula_inputs import (
    UtilizationResult,
    formula_inputs,
)
from ..utilization.utilization import operator_table
from .bulkhead import compute_apart, present_apart
from .measured_runs import MeasuredRuns
from .run_scoring import RUN_COLUMNS, ScoredRun, score_run

Tables = Mapping[str, pl.DataFrame]
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Analysis:
    """All results for a store.

    metrics: one row per run, columns of METRICS
    windows: one row per logged step, of throughput.warmup.mark_warm_up_and_stalls
    events: per run, without duplicates from several sources
    resolved_facts: facts that apply, of throughput.resolved_facts.resolve_facts
    audits: checks of the log's own figures, by run_id
    formula_facts: inputs of the frameworks' own formulas, by run_id
    logged_lines: lines with the log's own figures, by run_id
    rank_times: of throughput.rank_skew.measure_ranks
    isolated_metrics: `metrics` without columns that depend on other runs
    merged_launches: sources merged into one launch, of runs.same_run, without the tables
    resume_links: launches that continue one another, of runs.resume_chains.link_resumes
    overlay: your accelerators
    """

    metrics: pl.DataFrame
    windows: pl.DataFrame
    events: pl.DataFrame
    resolved_facts: pl.DataFrame
    audits: Mapping[str, Audit]
    formula_facts: Mapping[str, FormulaFacts]
    logged_lines: Mapping[str, FigureLines]
    rank_times: pl.DataFrame
    isolated_metrics: pl.DataFrame
    merged_launches: same_run.MergedLaunches
    resume_links: pl.DataFrame
    overlay: Sequence[Accelerator] = ()

    def with_errors(
        self, errors: Mapping[str, str], failed: Sequence[tuple[RunRow, Sequence[str]]]
    ) -> Analysis:
        """Return the analysis with a row without figures per failed run.

        errors: messages by run_id. failed: the row of `runs` and the source paths per failed run.
        """
        if not errors:
            return self
        rows = [failed_row(run, paths, errors[run["run_id"]]) for run, paths in failed]
        more = pl.DataFrame(rows, schema=METRICS, strict=False)
        other = ~pl.col("run_id").is_in(list(errors))
        metrics, alone = (
            pl.concat([frame.filter(other), more]).sort("name", "run_id")
            for frame in (self.metrics, self.isolated_metrics)
        )
        by_id = {run["run_id"]: run for run, _ in failed}
        members = {run_id: [run] for run_id, run in by_id.items()} | self.merged_launches.members
        return replace(
            self,
            metrics=metrics,
            isolated_metrics=alone,
            windows=self.windows.filter(other),
            events=self.events.filter(other),
            resolved_facts=self.resolved_facts.filter(other),
            rank_times=self.rank_times.filter(other),
            audits={**self.audits, **dict.fromkeys(by_id, Audit())},
            formula_facts={
                **self.formula_facts,
                **{run_id: formula_facts_of(run, {}) for run_id, run in by_id.items()},
            },
            logged_lines={
                run_id: lines for run_id, lines in self.logged_lines.items() if run_id not in errors
            },
            merged_launches=replace(self.merged_launches, members=members),
        )

    @property
    def loss_lines(self) -> pl.DataFrame:
        """Lines with a loss: metrics.compare.loss_parity.loss_lines."""
        return loss_lines(self.windows)

    def with_metrics(self, metrics: pl.DataFrame) -> Analysis:
        """Return the results with some rows of `metrics`."""
        return replace(self, metrics=metrics)

    def present(
        self, metrics: pl.DataFrame, say: Callable[[Analysis, pl.DataFrame], Result]
    ) -> Result:
        """Return `say` of these runs; runs for which it raises become failed runs.

        metrics: rows of `metrics`. say: receives an analysis and some of these rows.
        """
        return present_apart(self, metrics, say)

    def without(self, errors: Mapping[str, str]) -> Analysis:
        """Return the analysis with failed runs; errors: messages by run_id."""
        paths = dict(self.metrics.select("run_id", "sources").iter_rows())
        members = self.merged_launches.members
        return self.with_errors(errors, [(members[run][0], paths[run]) for run in errors])

    def facts_of_runs(self, run_ids: Sequence[str]) -> pl.DataFrame:
        """Return `resolved_facts` of some runs."""
        return self.resolved_facts.filter(pl.col("run_id").is_in(list(run_ids)))

    def facts(self, run_id: str) -> dict[str, dict[str, Any]]:
        """Return the facts of a run, by name."""
        of_run = self.facts_of_runs([run_id])
        return {fact["name"]: fact for fact in of_run.iter_rows(named=True)}

    def operators(self, run_id: str) -> pl.DataFrame:
        """Return the formula of a run, a row per operator: `operator_table`."""
        row = metrics_row(self.metrics, run_id)
        return operator_table(self.facts(run_id), row)

    def bridges(self, run_id: str) -> list[Bridge]:
        """Return the bridges from all figures printed by a run's log to ours.

        See metrics.audit.bridge.build_bridges.
        """
        return self.bridges_of([run_id])[run_id]

    def bridges_of(self, run_ids: Sequence[str]) -> dict[str, list[Bridge]]:
        """Return the bridges of runs, by run_id."""
        chosen = pl.col("run_id").is_in(list(run_ids))
        rows = metrics_rows(self.metrics.filter(chosen))
        unstated = [row["run_id"] for row in rows if row["logged_tgs"] is None]
        windows = self.windows.filter(pl.col("run_id").is_in(unstated))
        windows_of = RunArrays(windows).by_run()
        facts = self.resolved_facts.filter(chosen).rows_by_key(
            "run_id", named=True, include_key=True
        )
        found: dict[str, list[Bridge]] = {}
        for row in rows:
            run_id = row["run_id"]
            formula_facts, audit = self.formula_facts[run_id], self.audits[run_id]
            rate = self._rate(row, formula_facts, audit, windows_of.get(run_id))
            by_name = {fact["name"]: fact for fact in facts.get(run_id, [])}
            found[run_id] = build_bridges(row, by_name, formula_facts, audit, rate)
        return found

    def _rate(
        self,
        row: MetricsRow,
        formula_facts: FormulaFacts,
        audit: Audit,
        windows_of_run: RunArrays | None,
    ) -> float | None:
        """Return the rate for a run's median figures: printed, else from the lines' times."""
        if row["logged_tgs"] is not None:
            return row["logged_tgs"]
        lines = self.logged_lines.get(row["run_id"])
        if lines is None or row["time_basis"] is None or windows_of_run is None:
            return None
        counted = windows.steady_windows(windows_of_run, row["time_basis"])
        steady = windows_of_run["step"][
            windows.lines_of_windows(windows_of_run, row["time_basis"], counted).indices
        ]
        return logged.median_device_rate(lines, formula_facts, audit, steady)

    def curves(self, run_ids: Sequence[str]) -> pl.DataFrame:
        """Return the curves of runs: metrics.pipeline.kept_curves.curve_rows."""
        from .kept_curves import curves_of  # noqa: PLC0415 - for reports of many runs

        return curves_of(self, run_ids)

    def proposals(self, run_id: str) -> list[Proposal]:
        """Return facts to reproduce the run's printed figures: `propose_facts`."""
        return propose_facts(self.logged_lines.get(run_id), self.formula_facts[run_id])

    def other_tools(self, most: int | None = None) -> dict[str, pl.DataFrame]:
        """Return other tools' FLOPs for models and sequence lengths, by label.

        Columns of metrics.audit.other_tools.ToolComparison, for full training. Recomputation counts
        if the tool counts recomputation and the model's first run recomputes. A formula with a
        missing input is null. most: models with a length; None for all.
        """
        return compare_tools(self.metrics, self.facts_of_runs, most)


COMPUTING: Final = "Computing runs"
"""Work that a terminal shows."""

MAX_TRIED_RUNS: Final = 3
"""Runs of a model and sequence length, of which one gives the shape to other tools."""
OTHER_TOOL_SCHEMA: Final = pl.Schema(
    {"name": TEXT, "flops_per_token": FLOAT, "ratio_to_ours": FLOAT, "why": TEXT}
)


def compare_tools(
    metrics: pl.DataFrame,
    facts_of: Callable[[Sequence[str]], pl.DataFrame],
    most: int | None = None,
) -> dict[str, pl.DataFrame]:
    """Return Analysis.other_tools; facts_of: returns the resolved facts of some runs."""
    tables: dict[str, pl.DataFrame] = {}
    ranked = metrics.filter(pl.col("flops_per_token").is_not_null())
    tried = ranked.group_by("model", "seq_len", maintain_order=True).head(MAX_TRIED_RUNS)
    facts = facts_of(tried["run_id"].to_list()).rows_by_key("run_id", named=True, include_key=True)
    for row in metrics_rows(tried):
        label = f"{row['model']}, {row['seq_len']:,} tokens"
        if label in tables or len(tables) == most:
            continue
        by_name = {fact["name"]: fact for fact in facts.get(row["run_id"], ())}
        run = formula_inputs(by_name, row, UtilizationResult())
        if run is None or run.tower is not None:  # no other tool's formula has a tower
            continue
        recompute: Literal["none", "full"] = "full" if row["recompute"] == "full" else "none"
        rows = compare_other_formulas(run.shape, run.seq_len, recompute=recompute)
        tables[label] = pl.DataFrame([asdict(other) for other in rows], schema=OTHER_TOOL_SCHEMA)
    return tables


def analyse(tables: Tables, overlay: Sequence[Accelerator] = ()) -> Analysis:
    """Compute all metrics from `runs`, `facts`, `steps`, `events` and `sources`.

    tables: of `read_logs`, or of `Store.tables`.
    overlay: your accelerators; they override the built-in table
    (metrics.formula.accelerators.load_overlay).

    `metrics` has a row per run, sorted by name: tgs, tgs_low, tgs_high [tokens/s/GPU, 95 %
    interval], tokens_per_second [tokens/s, all GPUs], mfu (exact attention), mfu_full_attention
    [fraction], flops_per_token [FLOP/token], wall_s [s], logged_* as printed. An unknown value is
    null, and `missing` names the facts needed. `windows` has a row per logged step: tokens, and
    time [s] from every source of evidence. Missing facts raise no error. If a run cannot be
    computed, `error` gives the reason and its figures are null; other runs are not affected.

    >>> analyse(read_logs("titan.log")).metrics.select("name", "tgs", "mfu", "missing")
    """
    done = compute_apart(
        tables["runs"]["run_id"].to_list(),
        lambda run_ids: _analyse(tables_of_runs(tables, run_ids), overlay),
    )
    path = dict(tables["sources"].select("sha256", "path").iter_rows())
    runs = run_rows(tables["runs"].filter(pl.col("run_id").is_in(list(done.errors))))
    return done.result.with_errors(done.errors, [(run, [path[run["sha256"]]]) for run in runs])


def tables_of_runs(tables: Tables, run_ids: Collection[str]) -> Tables:
    """Return the tables without rows of other runs."""
    runs = tables["runs"]
    if len(run_ids) == runs.height:
        return tables
    of_runs = pl.col("run_id").is_in(list(run_ids))
    of_source = pl.col("sha256").is_in(runs.filter(of_runs)["sha256"].implode())
    return {
        name: table.filter(of_runs if "run_id" in table.columns else of_source)
        for name, table in tables.items()
    }


def _analyse(tables: Tables, overlay: Sequence[Accelerator]) -> Analysis:
    """Analyse all runs of the tables, and raise any error."""
    note_progress(COMPUTING, 0, tables["runs"].height, "runs")
    measured = MeasuredRuns(tables)
    runs = run_rows(measured.tables["runs"])
    scored = dict[str, ScoredRun]()
    for count, run in enumerate(runs):
        note_progress(COMPUTING, count, len(runs), "runs")
        scored[run["run_id"]] = score_run(run, measured, overlay)
    rows = [scored_run.row for scored_run in scored.values()]
    inferred = [fact for scored_run in scored.values() for fact in scored_run.inferred]
    alone = pl.DataFrame(rows, schema=METRICS, strict=False).sort("name", "run_id")
    held = measured.held_facts
    return Analysis(
        metrics=with_cross_run_warnings(alone),
        windows=measured.windows,
        events=measured.tables["events"],
        resolved_facts=pl.concat([held, pl.DataFrame(inferred, schema=held.schema)]),
        audits={run_id: scored_run.audit for run_id, scored_run in scored.items()},
        formula_facts={run_id: scored_run.formula_facts for run_id, scored_run in scored.items()},
        logged_lines={
            run_id: scored_run.lines
            for run_id, scored_run in scored.items()
            if scored_run.lines is not None
        },
        rank_times=measured.rank_times,
        isolated_metrics=alone,
        merged_launches=replace(measured.merged, tables={}),
        resume_links=measured.resume_links,
        overlay=overlay,
    )


def failed_row(run: RunRow | MetricsRow, paths: Sequence[str], error: str) -> MetricsRow:
    """Return the row of a failed run: identity, and the error instead of figures."""
    message = ANALYSIS_FAILED(error=error)
    row = (
        dict.fromkeys(METRICS)
        | {name: value_of(run, name) for name in RUN_COLUMNS}
        | {name: [] for name in ("inferred", "proven", "missing")}
        | {"steps": 0, "formula": FORMULA_VERSION, "error": error}
        | {name: [str(message)] for name in ("warnings", "doubts")}
        | {"warning_kinds": [message.kind]}
        | {"sources": list(paths), "members": [run["run_id"]]}
    )
    return cast(MetricsRow, row)
