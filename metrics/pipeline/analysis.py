"""Everything that is computed of the runs of a store: `analyse`, and what it finds, `Analysis`.

Each step has a module of its own; here they are called in order, and what came of them becomes one
row per run. Frames in, frames out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import Any, Final, Literal, TypeVar, cast

import numpy as np
import polars as pl

from fairmfu.ingest.core.schema import FLOAT, TEXT, RunRow, reading_changes_since, run_rows

from ..audit import audit as logged
from ..audit import sanity_checks
from ..audit.audit import Audit
from ..audit.bridge import Bridge, build_bridges, token_count_factor
from ..audit.fact_suggestions import Proposal, propose_facts
from ..audit.formula_checks import FigureLines, FormulaFacts, formula_facts_of
from ..audit.other_tools import compare_other_formulas
from ..core.impossible_values import refuse_impossible
from ..core.run_arrays import RunArrays
from ..core.run_table import (
    FAULT,
    METRICS,
    NOT_RANKED,
    OUTDATED_READING,
    MetricsRow,
    metrics_row,
    metrics_rows,
    value_of,
    with_cross_run_warnings,
)
from ..formula.accelerators import Accelerator
from ..formula.flops import FORMULA_VERSION
from ..runs import same_run
from ..runs.goodput import goodput
from ..runs.resume_chains import link_resumes
from ..throughput import rank_skew, resolved_facts, throughput, warmup, windows
from ..throughput.closing_figures import closing_figures
from ..throughput.end_to_end import launch_clocks
from ..throughput.token_counts import COUNT_MISMATCH
from ..utilization.formula_inputs import (
    UtilizationResult,
    count_adapter_params,
    find_shape,
    formula_inputs,
    integer_fact,
    is_inferred,
    text_fact,
)
from ..utilization.utilization import operator_table, score_utilization
from .bulkhead import compute_apart

Tables = Mapping[str, pl.DataFrame]
Result = TypeVar("Result")

INFERABLE_FACTS: Final = (
    "precision",
    "trainable",
    "packed",
    "document_mask",
    "gpus",
    "recompute",
)
"""Facts that may follow from the framework or the numbers instead of being said; then marked."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """All that is computed of a store.

    metrics: one row per run, columns of METRICS
    isolated_metrics: the same without what depends on other runs (`beside_others`)
    windows: one row per logged step, of metrics.throughput.warmup.mark_warm_up_and_stalls
    events: of each run, of metrics.runs.source_merging.merge_sources: each once, however many
    sources tell of it held: the facts that hold, of metrics.throughput.resolved_facts.resolve_facts
    audits: by run_id what came of reproducing the log's own figures known: by run_id what
    frameworks' own formulas read of the facts printed: by run_id the lines with figures of the
    log's own, of metrics.audit.audit.lines_by_source ranks: of
    metrics.throughput.rank_skew.measure_ranks united: which sources are one launch, of
    metrics.runs.same_run.merge_launches, without the tables resumed: which launches go on from
    which, of metrics.runs.resume_chains.link_resumes
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

    def with_errors(
        self, errors: Mapping[str, str], failed: Sequence[tuple[RunRow, Sequence[str]]]
    ) -> Analysis:
        """With a row of no figures for each run that failed.

        errors: by run_id why; failed: of each the row of `runs`, and the paths of its sources.
        """
        if not errors:
            return self
        rows = [_failed_row(run, paths, errors[run["run_id"]]) for run, paths in failed]
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

    def present(
        self, metrics: pl.DataFrame, say: Callable[[Analysis, pl.DataFrame], Result]
    ) -> Result:
        """Say something of some runs; one of which saying it raises has failed.

        metrics: rows of `metrics`; say: gets an analysis, and some of them.
        """
        ids = metrics["run_id"].to_list()

        def say_of(some: Sequence[str]) -> Result:
            chosen = pl.col("run_id").is_in(list(some))
            return say(self, metrics if len(some) == metrics.height else metrics.filter(chosen))

        done = compute_apart(ids, say_of)
        if not done.errors:
            return done.result
        paths = dict(metrics.select("run_id", "sources").iter_rows())
        members = self.merged_launches.members
        failed = self.with_errors(
            done.errors, [(members[run_id][0], paths[run_id]) for run_id in done.errors]
        )
        order = pl.DataFrame({"run_id": ids}, schema={"run_id": TEXT})
        rows = order.join(failed.metrics, on="run_id", how="left", maintain_order="left")
        return say(failed, rows.select(metrics.columns))

    def facts(self, run_id: str) -> dict[str, dict[str, Any]]:
        """The held facts of one run, by name."""
        mine = self.resolved_facts.filter(pl.col("run_id") == run_id)
        return {fact["name"]: fact for fact in mine.iter_rows(named=True)}

    def operators(self, run_id: str) -> pl.DataFrame:
        """The formula of one run, a row per operator: `operator_table`."""
        row = metrics_row(self.metrics, run_id)
        return operator_table(self.facts(run_id), row)

    def bridges(self, run_id: str) -> list[Bridge]:
        """Bridges from each figure that the log of a run prints to ours.

        See metrics.audit.bridge.build_bridges.
        """
        row = metrics_row(self.metrics, run_id)
        known, audit = self.formula_facts[run_id], self.audits[run_id]
        return build_bridges(row, self.facts(run_id), known, audit, self._rate(row, known, audit))

    def _rate(self, row: MetricsRow, formula_facts: FormulaFacts, audit: Audit) -> float | None:
        """The rate behind the medians of a run's figures: printed, or by the same lines' times."""
        if row["logged_tgs"] is not None:
            return row["logged_tgs"]
        lines = self.logged_lines.get(row["run_id"])
        if lines is None or row["time_basis"] is None:
            return None
        mine = RunArrays(self.windows.filter(pl.col("run_id") == row["run_id"]))
        counted = windows.steady_windows(mine, row["time_basis"])
        steady = mine["step"][windows.lines_of_windows(mine, row["time_basis"], counted).indices]
        return logged.median_device_rate(lines, formula_facts, audit, steady)

    def proposals(self, run_id: str) -> list[Proposal]:
        """Facts that would reproduce what the log of a run prints; fact_suggestions.proposals."""
        return propose_facts(self.logged_lines.get(run_id), self.formula_facts[run_id])

    def other_tools(self) -> dict[str, pl.DataFrame]:
        """What other tools' formulas make of each model and length: label to a table.

        Columns of metrics.audit.other_tools.ToolComparison, for full training; recomputation is
        work where a tool counts it and the model's first run recomputes. A formula that lacks an
        input is null.
        """
        found: dict[str, pl.DataFrame] = {}
        ranked = self.metrics.filter(pl.col("flops_per_token").is_not_null())
        for row in metrics_rows(ranked):
            label = f"{row['model']}, {row['seq_len']:,} tokens"
            if label in found:
                continue
            run = formula_inputs(self.facts(row["run_id"]), row, UtilizationResult())
            if run is None:
                continue
            again: Literal["none", "full"] = "full" if row["recompute"] == "full" else "none"
            rows = compare_other_formulas(run.shape, run.seq_len, recompute=again)
            found[label] = pl.DataFrame([asdict(other) for other in rows], schema=OTHER_TOOL_SCHEMA)
        return found


OTHER_TOOL_SCHEMA: Final = pl.Schema(
    {"name": TEXT, "flops_per_token": FLOAT, "ratio_to_ours": FLOAT, "why": TEXT}
)


def analyse(tables: Tables, overlay: Sequence[Accelerator] = ()) -> Analysis:
    """Everything of the tables `runs`, `facts`, `steps`, `events` and `sources` of schema.

    tables: of `read_logs`, or of `Store.tables`. overlay: a user's accelerators, which go before
    the table's (metrics.formula.accelerators.load_overlay).

    `metrics` has a row per run, sorted by name: tgs, tgs_low, tgs_high [tokens/s/GPU, its 95 %
    interval], tokens_per_second [tokens/s, all GPUs], mfu (exact attention), mfu_full_attention
    [fraction], flops_per_token [FLOP/token], wall_s [s], logged_* as the log claims; a value
    that cannot be known is null, and `missing` says what for. `windows` has a row per logged step:
    its tokens and its time [s] by each evidence. Nothing is raised for what a log lacks. A run
    whose computing raises has that as its `error`, and no figures; all others are as without it.

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
    """The tables without what is of other runs alone."""
    runs = tables["runs"]
    if len(run_ids) == runs.height:
        return tables
    mine = pl.col("run_id").is_in(list(run_ids))
    of_source = pl.col("sha256").is_in(runs.filter(mine)["sha256"].implode())
    return {
        name: table.filter(mine if "run_id" in table.columns else of_source)
        for name, table in tables.items()
    }


def _analyse(tables: Tables, overlay: Sequence[Accelerator]) -> Analysis:
    """The analysis of all runs of the tables; raises whatever goes wrong with one."""
    possible = refuse_impossible(tables)
    single = possible.tables
    united = same_run.merge_launches(single)
    tables = united.tables
    held = resolved_facts.resolve_facts(tables["facts"])
    facts = resolved_facts.typed_facts(held)
    runs = tables["runs"]
    spans = windows.build_windows(tables["steps"], runs, facts, tables["events"])
    spans = warmup.mark_warm_up_and_stalls(spans, runs)
    clocks = launch_clocks(runs, spans, facts, single["events"], united.members)
    about = held.rows_by_key("run_id", named=True, include_key=True)
    stated = resolved_facts.logged_values(tables["facts"])
    ends = closing_figures(
        runs,
        tables["steps"],
        tables["events"],
        lambda run_id: _flos_params(about.get(run_id, [])),
        [run_id for run_id, said in stated.items() if "global_batch_size" in dict(said)],
    )
    clocked = runs.join(clocks, on="run_id", how="left").join(ends, on="run_id", how="left")
    rates = throughput.summarise(spans, clocked, facts)
    of_run = {row["run_id"]: row for row in throughput.rate_summaries(rates)}
    differ = resolved_facts.conflicting_facts(tables["facts"]).rows_by_key("run_id", named=True)
    sources = tables["sources"].rows_by_key("sha256", named=True, unique=True, include_key=True)
    links = link_resumes(runs, spans, facts, clocks)
    good = goodput(runs, spans, links, clocks, rates)
    linked = links.join(good, on="run_id").rows_by_key("run_id", named=True, unique=True)
    each_rank = rank_skew.measure_ranks(tables["steps"], spans)
    of_ranks = rank_skew.compare_ranks(tables["steps"], each_rank).rows_by_key(
        "run_id", named=True, unique=True
    )
    each_printed = logged.lines_by_source(single["steps"], single["events"])
    odd = sanity_checks.sanity_warnings(single["steps"], single["runs"])
    printed: dict[str, FigureLines] = {}
    audits: dict[str, Audit] = {}
    known: dict[str, FormulaFacts] = {}
    rows, inferred = [], list[dict[str, Any]]()
    for run in run_rows(runs):
        run_id, members = run["run_id"], united.members[run["run_id"]]
        known_facts = {row["name"]: row for row in about.get(run_id, [])}
        of_lines = possible.warnings, {} if "mixed_writers" in known_facts else odd  # it says all
        warnings = [
            *(row["warning"] for row in differ.get(run_id, [])),
            *united.doubts.get(run_id, []),
            *(one for told in of_lines for m in members for one in told.get(m["run_id"], [])),
        ]
        lines, known[run_id] = _own_figures(
            run, members, known_facts, each_printed, stated.get(run_id, ())
        )
        audits[run_id] = audited = logged.audit(lines, known[run_id])
        inferred += (follows := _follow_from_figures(run_id, audited))
        known_facts |= {row["name"]: row for row in follows}
        scored = score_utilization(known_facts, of_run[run_id], overlay)
        told_by = [sources[sha256] for sha256 in dict.fromkeys(row["sha256"] for row in members)]
        row = _row(
            run,
            of_run[run_id],
            members=members,
            sources=told_by,
            facts=known_facts,
            scored=scored,
            further=warnings,
        )
        if lines is not None:
            printed[run_id] = lines
        _set_audit(row, audited)
        _set_outside_of_steps(row, lines)
        row["warnings"] += [
            *logged.reproduction_warnings(audited, known[run_id]),
            *_other_tokens(row),
            *logged.era_date_warnings(audited, known[run_id]),
        ]
        row["bound"] = rank_skew.bottleneck(row["data_share"])
        rows.append({**row, **linked.get(run_id, {}), **of_ranks.get(run_id, {})})
        _check_finite(rows[-1])
    alone = pl.DataFrame(rows, schema=METRICS, strict=False).sort("name", "run_id")
    return Analysis(
        metrics=with_cross_run_warnings(alone),
        windows=spans,
        events=tables["events"],
        resolved_facts=pl.concat([held, pl.DataFrame(inferred, schema=held.schema)]),
        audits=audits,
        formula_facts={name: audits[name].formula_facts or said for name, said in known.items()},
        logged_lines=printed,
        rank_times=each_rank,
        isolated_metrics=alone,
        merged_launches=replace(united, tables={}),
        resume_links=links,
    )


def _flos_params(held: Sequence[dict[str, Any]]) -> int | None:
    """Parameters whose FLOPs the Hugging Face Trainer counts; None where the model is not known."""
    facts = {row["name"]: row for row in held}
    shape, _ = find_shape(facts)
    if shape is None:
        return None
    adapters = count_adapter_params(facts, shape) or 0
    return shape.params_total - shape.params_embedding + adapters


def _failed_row(run: RunRow, paths: Sequence[str], error: str) -> MetricsRow:
    """The row of a run that could not be computed: what it is, and why it has no figures."""
    columns = (
        *("run_id", "name", "framework", "log_format", "synthetic", "launch", "outcome"),
        *("outcome_text", "started_at", "step_unit", "rate_excludes_data"),
    )
    row = (
        dict.fromkeys(METRICS)
        | {name: value_of(run, name) for name in columns}
        | {name: [] for name in ("inferred", "proven", "missing")}
        | {"steps": 0, "formula": FORMULA_VERSION, "error": error}
        | {name: [f"{FAULT}{error}{NOT_RANKED}"] for name in ("warnings", "doubts")}
        | {"sources": list(paths), "members": [run["run_id"]]}
    )
    return cast(MetricsRow, row)


MAX_UNREAD_SHARE: Final = 0.1
MAX_UNREAD_LINES: Final = 2
"""The share, and the number, of lines that look like steps that may be unread: where more are,
those that were read may all be of start-up."""


def _row(  # noqa: PLR0913 - one row from its parts
    run: RunRow,
    rates: throughput.RateSummary,
    *,
    members: Sequence[RunRow],
    sources: Sequence[Mapping[str, Any]],
    facts: Mapping[str, Mapping[str, Any]],
    scored: UtilizationResult,
    further: Sequence[str],
) -> MetricsRow:
    warnings = [*(rates["throughput_warnings"] or []), *scored.warnings, *further]
    if unread := sum(source["unread_lines"] for source in sources):
        read = sum(source["step_lines"] for source in sources)
        many = unread > MAX_UNREAD_LINES and unread > MAX_UNREAD_SHARE * (read + unread)
        words = f"lines of steps or facts that are cut off or damaged, and were not read: {unread}"
        warnings.append(f"{words} of {read + unread}{NOT_RANKED}" if many else words)
    warnings += _of_reading(sources)
    plain = (
        "framework_version",
        "accelerator",
        "precision",
        "recompute",
        "trainable",
        "quantization",
        "compile",
        "torch",
        "packed",
        "attention",
    )
    values: dict[str, Any] = {name: text_fact(facts, name) for name in plain}
    values |= {name: integer_fact(facts, name) for name in ("seq_len", *resolved_facts.SETUP_FACTS)}
    values["inferred"] = sorted(
        name for name in INFERABLE_FACTS if name in facts and is_inferred(facts[name])
    )
    if "precision" in scored.missing:  # what the log says contradicts what was inferred
        values["precision"] = None
        values["inferred"] = [name for name in values["inferred"] if name != "precision"]
    values |= {name: value_of(rates, name) for name in throughput.SUMMARY if name in METRICS}
    values |= {
        name: value_of(run, name)
        for name in (
            *("run_id", "name", "framework", "log_format", "synthetic", "launch"),
            *("outcome", "outcome_text", "started_at", "step_unit", "rate_excludes_data"),
        )
    }
    missing = list(dict.fromkeys([*(rates["throughput_missing"] or []), *scored.missing]))
    row = (
        dict.fromkeys(METRICS)
        | values
        | {
            "model": text_fact(facts, "model"),
            "formula": FORMULA_VERSION,
            "missing": missing,
            "warnings": warnings,
            "sources": [source["path"] for source in sources],
            "members": [member["run_id"] for member in members],
        }
        | {name: value for name, value in scored.values.items() if value is not None}
    )
    return cast(MetricsRow, row)


def _check_finite(row: Mapping[str, Any]) -> None:
    """Raises ArithmeticError on a figure that is no number: no reader can do with one."""
    for name, value in row.items():
        if isinstance(value, float) and not isfinite(value):
            raise ArithmeticError(f"{name} is {value}")


def _of_reading(sources: Sequence[Mapping[str, Any]]) -> list[str]:
    """A warning where today's readers read a run's sources otherwise than they are stored.

    What was read wrongly is not to win over anything, nor to lose; not even among its like.
    """
    columns = ("reading", "log_format", "companions")
    since = [
        what for one in sources for what in reading_changes_since(*map(one.__getitem__, columns))
    ]
    return [f"{outdated_reading_warning(since)}{NOT_RANKED}"] if since else []


def outdated_reading_warning(reading_changes: Iterable[str]) -> str:
    """Warning text: the sources of a run are read differently now.

    reading_changes: each change of that.
    """
    return f"{OUTDATED_READING}{'; '.join(dict.fromkeys(reading_changes))}, so figures may be wrong"


def _own_figures(
    run: RunRow,
    members: Sequence[RunRow],
    facts: dict[str, dict[str, Any]],
    printed: Mapping[str, FigureLines],
    logged_values: Iterable[tuple[str, str]],
) -> tuple[FigureLines | None, FormulaFacts]:
    """What a run prints of its own speed, and what its own formula reads of its facts.

    Of several sources, by the one that prints it finest. printed:
    metrics.audit.audit.lines_by_source, by the run_id of each source; logged_values: names and
    values of the facts that its log states.
    """
    told = [
        (member["log_format"], printed[member["run_id"]])
        for member in members
        if member["run_id"] in printed
    ]
    log_format, lines = logged.finest_source(told) or (run["log_format"], None)
    return lines, logged.with_length(
        formula_facts_of(run | {"log_format": log_format}, facts, logged_values), lines
    )


def _follow_from_figures(run_id: str, audited: Audit) -> list[dict[str, Any]]:
    """Facts that nothing says and the log's own figures leave one value of, as rows of facts."""
    origin = "inferred: by no other do the log's own figures come out"
    return [
        {
            "run_id": run_id,
            "name": name,
            "value": value,
            "origin": origin,
            "line": None,
            "text": None,
        }
        for name, value in audited.inferred.items()
    ]


def _other_tokens(row: MetricsRow) -> list[str]:
    """A warning where our rate and the printed ones can't be of the same tokens."""
    times = token_count_factor(row)
    if times == 1 or any(COUNT_MISMATCH in warning for warning in row["warnings"]):
        return []
    return [
        f"TGS is {times:.2f}x what the log's own rates say, more than other steps explain: tokens "
        f"per step are {COUNT_MISMATCH} (micro_batch_size, seq_len, gpus, context_parallel?)"
        f"{NOT_RANKED}"
    ]


def _set_outside_of_steps(row: MetricsRow, lines: FigureLines | None) -> None:
    """Fill medians of figures that no step line prints, over all lines that do (DeepSpeed-Chat)."""
    if row["logged_tflops"] is None:
        row["logged_tflops"] = _printed_median(lines, "logged_tflops")
    if row["logged_mfu"] is None:
        row["logged_mfu"] = _printed_median(lines, "logged_mfu")


def _printed_median(lines: FigureLines | None, column: str) -> float | None:
    if lines is None or column not in lines.digits:
        return None
    return float(np.median(lines.printed_values(column)))


def _set_audit(row: MetricsRow, audit: Audit) -> None:
    """Fill the columns of METRICS that an audit gives."""
    row["logged_formula"] = audit.era.name if audit.lines_by_column and audit.era else None
    row["logged_reproduced"] = audit.reproduced
    row["logged_lines"] = audit.lines
    row["logged_lines_reproduced"] = audit.reproduced_lines
    row["logged_unexplained"] = audit.unexplained
    row["logged_flops_per_token"] = audit.flops_per_token
    row["logged_peak"] = audit.peak_flops
    row["logged_unit"] = audit.unit
    row["logged_flops_low"] = audit.flops_low
    row["logged_flops_high"] = audit.flops_high
    row["logged_hypothesis"] = audit.hypothesis
    row["logged_not_compared"] = audit.not_compared_reason or None
    row["logged_lengths"] = list(audit.solved_lengths)
    row["proven"] = list(audit.proven)
