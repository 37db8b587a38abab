"""Throughput x FLOPs / peaks: MFU and HFU of each run, or the name of what is missing.

    MFU = ideal time per token / actual time per token
        = TGS x sum over operators of F_o / P(dtype_o)

What a framework says of itself never enters. Frames in, frames out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal, cast

import numpy as np
import polars as pl

from ingest.schema import FLOAT, INT, TEXT
from metrics import flops, impossible, inputs, launches, logged, ranks, steady, throughput, windows
from metrics.accelerators import Accelerator
from metrics.columns import Columns
from metrics.end_to_end import clock
from metrics.flops import FORMULA, Operator, Recompute
from metrics.formula_inputs import (
    DOCUMENTS,
    PADDED,
    Hardware,
    Inputs,
    Score,
    attended_pairs,
    attention_pattern,
    canonical_name,
    dtypes_of,
    formula_inputs,
    hardware_of,
    integer_of,
    is_inferred,
    text_of,
    trained_weights,
    work_key,
)
from metrics.goodput import goodput
from metrics.identities import Known, Lines, known_of
from metrics.logged import Audit
from metrics.others import against_others
from metrics.precision import DtypeOf
from metrics.proposals import Proposal, proposals
from metrics.reconcile import Bridge, bridges, counted_otherwise
from metrics.resumes import resumes
from metrics.table import METRICS, NOT_RANKED, beside_others
from metrics.tokens import COUNTED_OTHERWISE

IMPOSSIBLE: Final = 1.0
"""A utilisation above this is shown as `implied`, never published."""

ASSUMED: Final = ("precision", "trainable", "packed", "document_mask", "gpus")
"""Facts that may follow from the framework or the numbers instead of being said; then marked."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """All that is computed of a store.

    metrics: one row per run, columns of METRICS; windows: metrics.steady.mark; held:
    metrics.inputs.holding; audits: by run_id, what came of reproducing its own figures;
    known: by run_id, what own formulas read of its facts; printed: metrics.logged.printed.
    ranks: metrics.ranks.of_ranks. alone: `metrics` before `beside_others`; united:
    metrics.launches.unite, without the tables; resumed: metrics.resumes.resumes.
    """

    metrics: pl.DataFrame
    windows: pl.DataFrame
    held: pl.DataFrame
    audits: Mapping[str, Audit]
    known: Mapping[str, Known]
    printed: Mapping[str, Lines]
    ranks: pl.DataFrame
    alone: pl.DataFrame
    united: launches.United
    resumed: pl.DataFrame

    def facts(self, run_id: str) -> dict[str, dict[str, Any]]:
        """The held facts of one run, by name."""
        mine = self.held.filter(pl.col("run_id") == run_id)
        return {fact["name"]: fact for fact in mine.iter_rows(named=True)}

    def operators(self, run_id: str) -> pl.DataFrame:
        """The formula of one run, a row per operator: `operator_table`."""
        row = self.metrics.row(by_predicate=pl.col("run_id") == run_id, named=True)
        return operator_table(self.facts(run_id), row)

    def bridges(self, run_id: str) -> list[Bridge]:
        """From each figure that the log of a run prints to ours; metrics.reconcile.bridges."""
        row = self.metrics.row(by_predicate=pl.col("run_id") == run_id, named=True)
        known, audit = self.known[run_id], self.audits[run_id]
        return bridges(row, self.facts(run_id), known, audit, self._rate(row, known, audit))

    def _rate(self, row: Mapping[str, Any], known: Known, audit: Audit) -> float | None:
        """The rate behind the medians of a run's figures: printed, or by the same lines' times."""
        if row["logged_tgs"] is not None:
            return float(row["logged_tgs"])
        lines = self.printed.get(row["run_id"])
        if lines is None or row["time_basis"] is None:
            return None
        mine = Columns(self.windows.filter(pl.col("run_id") == row["run_id"]))
        steady = mine["step"][windows.clean_of(mine, row["time_basis"]).at]
        return logged.rate_over(lines, known, audit, steady)

    def proposals(self, run_id: str) -> list[Proposal]:
        """Facts that would reproduce what the log of a run prints; metrics.proposals.proposals."""
        return proposals(self.printed.get(run_id), self.known[run_id])

    def others(self) -> dict[str, pl.DataFrame]:
        """What other tools' formulas make of each model and length: label to a table.

        Columns of metrics.others.Comparison, for full training; recomputation is work where a tool
        counts it and the model's first run recomputes. A formula that lacks an input is null.
        """
        found: dict[str, pl.DataFrame] = {}
        ranked = self.metrics.filter(pl.col("flops_per_token").is_not_null())
        for row in ranked.iter_rows(named=True):
            label = f"{row['model']}, {row['seq_len']:,} tokens"
            if label in found:
                continue
            run = formula_inputs(self.facts(row["run_id"]), row, Score())
            if run is None:
                continue
            again: Literal["none", "full"] = "full" if row["recompute"] == "full" else "none"
            rows = against_others(run.shape, run.seq_len, recompute=again)
            found[label] = pl.DataFrame([asdict(other) for other in rows], schema=OTHERS)
        return found


OTHERS: Final = pl.Schema(
    {"name": TEXT, "flops_per_token": FLOAT, "ratio_to_ours": FLOAT, "why": TEXT}
)


def analyse(tables: Mapping[str, pl.DataFrame], overlay: Sequence[Accelerator] = ()) -> Analysis:
    """Everything of the tables `runs`, `facts`, `steps`, `events` and `sources` of ingest.schema.

    tables: of `read_logs`, or of `Store.tables`. overlay: a user's accelerators, which go before
    the table's (metrics.accelerators.load_overlay).

    `metrics` has a row per run, sorted by name: tgs, tgs_low, tgs_high [tokens/s/GPU, its 95 %
    interval], tokens_per_second [tokens/s, all GPUs], mfu (exact attention), mfu_full_attention
    [fraction], flops_per_token [FLOP/token], wall_s [s], logged_* as the log claims; a value
    that cannot be known is null, and `missing` says what for. `windows` has a row per logged step:
    its tokens and its time [s] by each evidence. Nothing is raised for what a log lacks.

    >>> analyse(read_logs("titan.log")).metrics.select("name", "tgs", "mfu", "missing")
    """
    single, united = tables, launches.unite(tables)
    tables = united.tables
    held = inputs.holding(tables["facts"])
    facts = inputs.typed(held)
    runs = tables["runs"]
    spans = windows.windows(tables["steps"], runs, facts, tables["events"])
    spans = steady.mark(spans, runs)
    clocks = clock(runs, spans, facts, single["events"], united.members)
    rates = throughput.summarise(spans, runs.join(clocks, on="run_id", how="left"), facts)
    of_run = rates.rows_by_key("run_id", named=True, unique=True, include_key=True)
    differ = inputs.disagreements(tables["facts"]).rows_by_key("run_id", named=True)
    about = held.rows_by_key("run_id", named=True, include_key=True)
    sources = tables["sources"].rows_by_key("sha256", named=True, unique=True, include_key=True)
    links = resumes(runs, spans, facts, clocks)
    good = goodput(runs, spans, links, clocks, rates)
    linked = links.join(good, on="run_id").rows_by_key("run_id", named=True, unique=True)
    each_rank = ranks.of_ranks(tables["steps"], spans)
    apart = ranks.compare_ranks(tables["steps"], each_rank)
    of_ranks = apart.rows_by_key("run_id", named=True, unique=True)
    each_printed = logged.printed(single["steps"], single["events"])
    formats = dict(single["runs"].select("run_id", "log_format").iter_rows())
    odd = impossible.found(single["steps"], single["runs"])
    printed: dict[str, Lines] = {}
    audits: dict[str, Audit] = {}
    known: dict[str, Known] = {}
    rows = []
    for run in runs.iter_rows(named=True):
        run_id = run["run_id"]
        known_facts = {row["name"]: row for row in about.get(run_id, [])}
        warnings = [
            *(row["warning"] for row in differ.get(run_id, [])),
            *united.doubts.get(run_id, []),
            *(one for m in united.members[run_id] for one in odd.get(m["run_id"], [])),
        ]
        scored = score(known_facts, of_run[run_id], overlay)
        members = united.members[run_id]
        told_by = [sources[sha256] for sha256 in dict.fromkeys(row["sha256"] for row in members)]
        row = _row(run, of_run[run_id], known_facts, scored, warnings, told_by)
        row |= {"members": [member["run_id"] for member in members]}
        each = (member["run_id"] for member in members)
        told = logged.finest([(formats[m], each_printed[m]) for m in each if m in each_printed])
        if told is not None:
            run_as_told, printed[run_id] = run | {"log_format": told[0]}, told[1]
        known[run_id] = logged.with_length(
            known_of(run if told is None else run_as_told, known_facts), printed.get(run_id)
        )
        audits[run_id] = audited = logged.audit(printed.get(run_id), known[run_id])
        row |= _audited(audited)
        row |= _outside_of_steps(row, printed.get(run_id))
        row["warnings"] += logged.doubt(audited, known[run_id]) + _other_tokens(row)
        row["warnings"] += logged.out_of_time(audited, known[run_id])
        row |= {"bound": ranks.bound(row["data_share"])}
        rows.append(row | linked.get(run_id, {}) | of_ranks.get(run_id, {}))
    alone = pl.DataFrame(rows, schema=METRICS, strict=False).sort("name", "run_id")
    metrics = beside_others(alone)
    united = replace(united, tables={})
    return Analysis(metrics, spans, held, audits, known, printed, each_rank, alone, united, links)


def run_metrics(tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """One row per run: what `fairmfu runs` shows."""
    return analyse(tables).metrics


UNREAD: Final = 0.1
FEW_UNREAD: Final = 2
"""Of the lines that look like steps, what may be unread: beyond, the rest may be of start-up."""


def _row(  # noqa: PLR0913, PLR0917 - one row from its parts
    run: dict[str, Any],
    rates: dict[str, Any],
    facts: dict[str, dict[str, Any]],
    scored: Score,
    differ: list[str],
    sources: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    warnings = [*rates["throughput_warnings"], *scored.warnings, *differ]
    if unread := sum(source["unread_lines"] for source in sources):
        read = sum(source["step_lines"] for source in sources)
        many = unread > FEW_UNREAD and unread > UNREAD * (read + unread)
        words = f"lines that look like steps and could not be read: {unread}"
        warnings.append(f"{words} of {read + unread}{NOT_RANKED}" if many else words)
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
    values: dict[str, Any] = {name: text_of(facts, name) for name in plain}
    values |= {name: integer_of(facts, name) for name in ("seq_len", *inputs.SETUP)}
    values["inferred"] = sorted(
        name for name in ASSUMED if name in facts and is_inferred(facts[name])
    )
    if "precision" in scored.missing:
        values["precision"] = None  # what the log says contradicts what follows from the framework
    values |= {name: rates[name] for name in throughput.SUMMARY if name in METRICS}
    values |= {
        name: run[name]
        for name in (
            *("run_id", "name", "framework", "log_format", "synthetic", "launch"),
            *("outcome", "outcome_text", "started_at", "step_unit", "rate_excludes_data"),
        )
    }
    missing = list(dict.fromkeys([*rates["throughput_missing"], *scored.missing]))
    return (
        values
        | {
            "model": text_of(facts, "model"),
            "formula": FORMULA,
            "missing": missing,
            "warnings": warnings,
            "sources": [source["path"] for source in sources],
        }
        | {name: value for name, value in scored.values.items() if value is not None}
    )


def _other_tokens(row: Mapping[str, Any]) -> list[str]:
    """That our rate and the printed ones cannot count the same tokens."""
    times = counted_otherwise(row)
    if times == 1 or any(COUNTED_OTHERWISE in warning for warning in row["warnings"]):
        return []
    return [
        f"TGS is {times:.2f}x what the log's own rates say, more than other steps explain: tokens "
        f"per step are {COUNTED_OTHERWISE} (micro_batch_size, seq_len, gpus, context_parallel?)"
        f"{NOT_RANKED}"
    ]


def _outside_of_steps(row: Mapping[str, Any], lines: Lines | None) -> dict[str, float]:
    """Medians of figures that no step line prints, over all lines that do (DeepSpeed-Chat)."""
    wanted = [name for name in ("logged_tflops", "logged_mfu") if row[name] is None]
    there = [name for name in wanted if lines is not None and name in lines.digits]
    return {name: float(np.median(lines.some(name))) for name in there if lines is not None}


def _audited(audit: Audit) -> dict[str, Any]:
    """The columns of METRICS that an audit fills."""
    return {
        "logged_formula": audit.era.name if audit.by_column and audit.era else None,
        "logged_reproduced": audit.reproduced,
        "logged_lines": audit.lines,
        "logged_lines_reproduced": audit.reproduced_lines,
        "logged_unexplained": audit.unexplained,
        "logged_flops_per_token": audit.flops_per_token,
        "logged_peak": audit.peak_flops,
        "logged_unit": audit.unit,
        "logged_flops_low": audit.low,
        "logged_flops_high": audit.high,
        "logged_hypothesis": audit.hypothesis,
        "logged_not_compared": audit.why or None,
        "logged_lengths": list(audit.solved),
        "proven": list(audit.proven),
    }


def score(
    facts: Mapping[str, Mapping[str, Any]],
    rates: Mapping[str, Any],
    overlay: Sequence[Accelerator] = (),
) -> Score:
    """MFU and its kin of one run from its held facts (by name) and its rates."""
    out = Score()
    run = formula_inputs(facts, rates, out)
    hardware = hardware_of(facts, overlay, out)
    if run is None:
        return out
    exact, full = run.operators(), run.operators("full")
    out.values |= {
        "model": canonical_name(run.shape),
        "params_total": run.shape.params_total,
        "work": work_key(run),
        "attention_pattern": attention_pattern(run),
        "attended_pairs": attended_pairs(run),
        "trained": trained_weights(run.trainable),
    }
    if run.lengths_unknown != PADDED:
        out.values["flops_per_token_full_attention"] = flops.flops_per_token(full)
    if run.lengths_unknown is None:
        out.values["flops_per_token"] = flops.flops_per_token(exact)
    else:
        out.missing.append("attended_pairs")
    if hardware is None or rates["tgs"] is None:
        return out
    try:
        _utilisations(run, hardware, facts, rates["tgs"], out)
    except ValueError as error:
        out.missing.append("peak_flops")
        out.warnings.append(str(error))
    return out


OPERATORS: Final = pl.Schema(
    {
        "operator": TEXT,
        "layers": INT,
        "dtype": TEXT,
        "forward_flops_per_token": FLOAT,
        "flops_per_token": FLOAT,
        "flops_per_token_full_attention": FLOAT,
        "share": FLOAT,
    }
)


def operator_table(
    facts: Mapping[str, Mapping[str, Any]], rates: Mapping[str, Any]
) -> pl.DataFrame:
    """The formula of one run, a row per operator; empty where an input is missing.

    facts: held facts by name (rows of metrics.inputs.holding); rates: a row of
    metrics.throughput.summarise or of `run_metrics`. Columns of OPERATORS; `flops_per_token` is
    forward and backward under exact attention, `share` is of their sum.
    """
    out = Score()
    run = formula_inputs(facts, rates, out)
    if run is None:
        return OPERATORS.to_frame()
    dtypes = dtypes_of(facts, out)
    exact, full = run.operators(), run.operators("full")
    total = flops.flops_per_token(exact)
    rows = [
        {
            "operator": op.name,
            "layers": op.layers,
            "dtype": dtypes[0](op, "forward") if dtypes else None,
            "forward_flops_per_token": op.forward,
            "flops_per_token": op.training,
            "flops_per_token_full_attention": whole.training,
            "share": op.training / total,
        }
        for op, whole in zip(exact, full, strict=True)
    ]
    return pl.DataFrame(rows, schema=OPERATORS)


def _utilisations(
    run: Inputs,
    hardware: Hardware,
    facts: Mapping[str, Mapping[str, Any]],
    tgs: float,
    out: Score,
) -> None:
    """MFU under each convention and HFU; raises ValueError where a format has no peak."""
    exact, full = run.operators(), run.operators("full")

    def mfu(ops: tuple[Operator, ...], of: DtypeOf = hardware.dtype_of) -> float:
        return tgs * flops.ideal_seconds_per_token(ops, of, hardware.peaks)

    values: dict[str, float | None] = {
        "mfu": mfu(exact),
        "mfu_full_attention": mfu(full),
    }
    if hardware.fastest in ("fp8", "fp4"):
        values["mfu_conservative"] = mfu(exact, lambda *_: hardware.fastest)
    if "bf16" in hardware.peaks:
        values["mfu_bf16"] = mfu(exact, lambda *_: "bf16")
        values["mfu_bf16_full_attention"] = mfu(full, lambda *_: "bf16")
    recompute = _hfu_policy(text_of(facts, "recompute"))
    if recompute is not None and flops.hardware_unknown(recompute, run.shape) is None:
        low, high = flops.hardware_operators(
            run.shape, run.seq_len, recompute, trainable=run.trainable, attended=run.attended
        )
        values |= {"hfu_low": mfu(low), "hfu_high": mfu(high)}
    out.values["peak_flops"] = flops.flops_per_token(exact) * tgs / (values["mfu"] or 1.0)
    if run.lengths_unknown is not None:
        bounds = f"at most {values['mfu']:.1%}"
        if run.fewest is not None:
            least = mfu(replace(run, attended=run.fewest).operators())
            bounds = f"{least:.1%} (all as long as the mean) to {values['mfu']:.1%}"
        out.warnings.append(run.lengths_unknown.format(bounds=bounds))
        whole = ("mfu_full_attention", "mfu_bf16_full_attention")
        known = whole if run.lengths_unknown == DOCUMENTS else ()
        values = {"mfu": None, **{name: values.get(name) for name in known}}
    shown = _possible(values, facts, out)
    out.values |= {name: value for name, value in shown.items() if value is not None}


def _possible(
    values: dict[str, float | None], facts: Mapping[str, Mapping[str, Any]], out: Score
) -> dict[str, float | None]:
    """Above 100 % nothing is published: the figure becomes `implied`, with its likely cause."""
    mfu = values["mfu"]
    if mfu is None or mfu <= IMPOSSIBLE:
        above = _above(values, out)
        if mfu is not None and mfu > PLAUSIBLE[1] and "mfu_full_attention" not in above:
            out.warnings.append(
                f"MFU of {mfu:.0%} is more than training is known to reach: {WRONG}"
            )
        return {name: value for name, value in values.items() if name not in above}
    likely = [why for why, factor in _unit_errors(facts) if _plausible(mfu / factor)]
    causes = f"likely {' or '.join(likely)}" if likely else "no usual unit error explains it"
    out.warnings.append(f"MFU would be {mfu:.0%}, which is impossible: {causes}; else {WRONG}")
    return {"implied": mfu}


def _above(values: Mapping[str, float | None], out: Score) -> list[str]:
    """Figures above 100 % of a run whose MFU is possible; their causes go to the warnings."""
    bf16 = ("mfu_bf16", "mfu_bf16_full_attention")
    shares = {name: values.get(name) or 0.0 for name in ("mfu_full_attention", *bf16)}
    above = {name: share for name, share in shares.items() if share > IMPOSSIBLE}
    if "mfu_full_attention" in above:
        out.warnings.append(
            f"MFU (full attention) would be {above['mfu_full_attention']:.0%}, so it is not shown: "
            f"it counts work that windows or document masks leave out; else {WRONG}"
        )
    if "mfu_bf16" in above or list(above) == ["mfu_bf16_full_attention"]:
        convention = "BF16 peak" if "mfu_bf16" in above else "full attention, BF16 peak"
        out.warnings.append(
            f"MFU ({convention}) would be {next(above[n] for n in bf16 if n in above):.0%}: the "
            "run's own number format has a higher peak, so it is not shown"
        )
    return list(above)


PLAUSIBLE: Final = (0.02, 0.8)
"""MFU that real training reaches."""
WRONG: Final = "a wrong accelerator, model or seq_len"


def _plausible(mfu: float) -> bool:
    return PLAUSIBLE[0] <= mfu <= PLAUSIBLE[1]


def _unit_errors(facts: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, float]]:
    """Usual factors by which a rate is too high, with what they are."""
    known = (
        ("a rate of all GPUs taken for one (x world size)", integer_of(facts, "gpus")),
        ("accumulation counted twice", integer_of(facts, "gradient_accumulation")),
        ("sequence-parallel ranks counted apart", integer_of(facts, "context_parallel")),
        ("model-parallel ranks counted apart", integer_of(facts, "tensor_parallel")),
        ("milliseconds taken for seconds (x 1000)", 1000),
        ("recomputation counted (x 4/3)", 4 / 3),
        ("half a device's peak (x 2)", 2),
    )
    return [(why, float(factor)) for why, factor in known if factor is not None and factor > 1]


def _hfu_policy(recompute: str | None) -> Recompute | None:
    named = {"none": "none", "full": "full", "selective_attention": "selective"}
    return cast("Recompute | None", named.get(recompute or ""))
