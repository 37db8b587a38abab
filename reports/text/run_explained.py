"""Text of one run: its course, the formula with its numbers, logged figures."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, Literal

import polars as pl

from fairmfu.ingest.core.schema import FACT_NAMES
from fairmfu.metrics.audit.audit_results import Audit, Bridge
from fairmfu.metrics.compare.missing_rate import explain_missing_rate
from fairmfu.metrics.core.run_selection import choose_one
from fairmfu.metrics.core.run_table import METRICS, MetricsRow, metrics_rows, not_null, value_of
from fairmfu.metrics.core.run_words import EVIDENCE_LABELS, GIVEN_PEAK, START_UP
from fairmfu.metrics.pipeline.reported_runs import ReportedRuns
from fairmfu.metrics.utilization.utilization import operator_table

from .claims_text import join_words
from .diagnosis import diagnosis
from .inside_run import levels_table, ranks_table, slowest_table
from .missing_facts import completing_command, missing_facts, with_own_name
from .run_head import (
    FIGURES,
    doubts_and_notes,
    format_factor,
    logged_lines,
    missing_sentence,
)
from .run_narrative import (
    TOKEN_BASES,
    confidence_text,
    end_to_end_words,
    goodput_words,
    phase_rows,
    seconds_text,
    step_seconds,
    step_time,
    time_rows,
    time_spent,
    undisturbed_steps,
)
from .runs_table import Columns, unique_names
from .tabular import (
    GIB,
    count,
    count_noun,
    decimal,
    join_values,
    percent,
    printable,
    ratio,
    records,
    render_frame,
    wrapped,
)

if TYPE_CHECKING:
    from fairmfu.metrics.audit.fact_suggestions import Proposal
    from fairmfu.metrics.pipeline.analysis import Analysis

OPERATOR_COLUMNS: Final[Columns] = {
    "operator": ("operator", str),
    "layers": ("layers", str),
    "dtype": ("precision", str),
    "forward_flops_per_token": ("forward\nFLOPs/token", count),
    "flops_per_token": ("training\nFLOPs/token", count),
    "share": ("share", percent),
}

DROPPABLE_OPERATOR_COLUMNS: Final = ("forward_flops_per_token", "layers")
"""Columns that a narrow terminal omits, in this order."""

FACT_COLUMNS: Final[Columns] = {
    "name": ("fact", str),
    "value": ("value", str),
    "origin": ("origin", str),
}

UNUSED_ORIGIN: Final = "not used (see the warnings); {}"
"""Origin of a fact that is known but counts as missing, such as a doubtful precision."""

MAX_VALUE_TEXT: Final = 60


def explain(
    analysis: Analysis | ReportedRuns,
    run: str,
    *,
    output: Literal["table", "json"] = "table",
    propose: bool = False,
) -> str:
    """Explain a run: its course, the formula with its numbers, and the log's figure.

    analysis: with `propose` an Analysis; else kept results do (metrics.pipeline.reported_runs)
    run: a name or an id, as for `choose`. output: text, or JSON. propose: name models and lengths
        that would reproduce the logged figures.

    The text says units: tokens/s/GPU, FLOPs/token, TFLOP/s, shares in %. The same as data:
    `Analysis.operators`, `bridges`, `facts` and `proposals` of the run's id.

    Raises RunNameError if no run has this name, or several have the name.

    >>> print(explain(analysis, "titan-8b"))
    """
    chosen = choose_one(analysis.metrics, run)["run_id"]
    label = unique_names(analysis.metrics)[chosen]

    def tell(analysis: Analysis | ReportedRuns, metrics: pl.DataFrame) -> str:
        return "".join(
            _explained(analysis, row, output, label, propose=propose)
            for row in metrics_rows(metrics)
        )

    return analysis.present(analysis.metrics.filter(pl.col("run_id") == chosen), tell)


def _explained(
    analysis: Analysis | ReportedRuns,
    row: MetricsRow,
    output: Literal["table", "json"],
    label: str,
    *,
    propose: bool,
) -> str:
    """Return the text of `explain` for a run.

    label: its unique name
    """
    run_id = row["run_id"]
    operators = operator_table(analysis.facts(run_id), row)
    bridges = analysis.bridges_of([run_id])[run_id]
    found = analysis.proposals(run_id) if propose and not isinstance(analysis, ReportedRuns) else []
    held = analysis.resolved_facts.filter(pl.col("run_id") == run_id).drop("run_id")
    if output == "json":
        whole = _as_data(row, operators, held, bridges)
        whole |= {"proposals": [asdict(proposal) for proposal in found]} if propose else {}
        return json.dumps(whole, indent=2, allow_nan=False, default=str)
    row = with_own_name(row, label)
    doubts, notes = (list(map(printable, each)) for each in doubts_and_notes(row))
    parts = [
        _title(row),
        "\n".join(wrapped(printable(line)) for line in (*diagnosis(row), *logged_lines(bridges))),
        *doubts,
        _missing(row, completing_command(row, label)),
        levels_table(row),
        _phases(row),
        slowest_table(row),
        ranks_table(row),
        _time(row),
        _formula(row),
        _operators(operators),
        _claims(row),
        _audit(row, analysis.audits[run_id]),
        *map(bridge_text, bridges),
        _proposed(found, row) if propose else "",
        _facts(held, row["missing"]),
        *notes,
        f"Source: {printable(join_values(row['sources']))}",
    ]
    return "\n\n".join(part for part in parts if part)


def _as_data(
    row: MetricsRow, operators: pl.DataFrame, held: pl.DataFrame, bridges: Sequence[Bridge]
) -> dict[str, Any]:
    """Return what `explain` says of a run, for programs."""
    return {
        "run": {key: value_of(row, key) for key in METRICS},
        "operators": records(operators),
        "facts": records(held),
        "diagnosis": diagnosis(row),
        "bridges": [asdict(bridge) for bridge in bridges],
    }


def _title(row: MetricsRow) -> str:
    made_up = " [synthetic]" if row["synthetic"] else ""
    return f"{printable(str(row['name']))} ({row['run_id']}, {row['log_format']}){made_up}"


def _facts(held: pl.DataFrame, missing: Sequence[str]) -> str:
    """Return the table of a run's facts. missing: names of facts that no figure uses."""
    unused = pl.col("name").is_in(missing)
    origin = pl.when(unused).then(pl.format(UNUSED_ORIGIN, "origin")).otherwise("origin")
    short = held.with_columns(
        pl.col("value").map_elements(_cut, return_dtype=pl.String), origin.alias("origin")
    )
    return "Facts\n" + render_frame(short, "table", FACT_COLUMNS)


def _missing(row: MetricsRow, command: str | None) -> str:
    """Return the facts that a run lacks, and the command that gives them, if it helps."""
    if command is None:
        return ""
    return f"{missing_sentence(row, missing_facts(row))}\nFix: {command}"


def _cut(value: str) -> str:
    """Return the beginning of a long value, with a sign that there is more."""
    return value if len(value) <= MAX_VALUE_TEXT else f"{value[: MAX_VALUE_TEXT - 1]}…"


def _operators(operators: pl.DataFrame) -> str:
    """Render the operators, those that are estimates marked in their names."""
    if not operators.height:
        return ""
    marked = pl.when("estimate").then(pl.format("{} (estimate)", "operator")).otherwise("operator")
    named = operators.with_columns(marked.alias("operator"))
    return render_frame(
        named, "table", OPERATOR_COLUMNS, DROPPABLE_OPERATOR_COLUMNS, complete_output="json"
    )


def _formula(row: MetricsRow) -> str:
    """Return MFU = TGS x F / P with this run's numbers, and the meaning of each."""
    lines = _tgs_lines(row)
    if row["tgs"] is None:
        return "\n".join(lines)
    if row["flops_per_token"] is not None:
        lines.append(_flops_line(row))
    if row["peak_flops"] is not None:
        lines.append(f"P      {row['peak_flops'] / 1e12:,.1f} TFLOP/s dense, {_device(row)}")
    if row["mfu"] is not None:
        lines.append(
            f"MFU  = TGS x F / P = {row['tgs']:,.1f} x {row['flops_per_token']:,.0f} / "
            f"{row['peak_flops']:.4g} = {percent(row['mfu'])} ({_attention(row)})"
        )
    lines += _language_model_lines(row)
    lines += _hfu_lines(row)
    formula = "" if row["flops_source"] else f"\n       formula {row['formula']}"
    return printable("\n".join(lines)) + formula


def _flops_line(row: MetricsRow) -> str:
    """Return FLOPs per token, with their source where they are given."""
    exact, full = row["flops_per_token"], row["flops_per_token_full_attention"]
    whole = "" if full is None else f"; {full:,.0f} with full attention"
    if row["flops_source"] is None:
        return f"F      {exact:,.0f} FLOPs/token, exact attention{whole}"
    return f"F      {exact:,.0f} FLOPs/token{whole}; {row['flops_source']}"


def _attention(row: MetricsRow) -> str:
    """Return the convention of an MFU, or that its FLOPs are given."""
    if row["flops_source"] is not None:
        return "by given FLOPs, not by the formula"
    return f"exact attention); {_full(row['mfu_full_attention'])} (full attention"


def _language_model_lines(row: MetricsRow) -> list[str]:
    """Return the line of MFU without the vision tower, if the model has one."""
    alone = row["mfu_language_model"]
    if alone is None:
        return []
    if row["mfu"] is None:
        return [f"MFU    unknown with the vision tower; {percent(alone)} without it (never ranked)"]
    return [f"       MFU counts the vision tower; {percent(alone)} without it"]


def _tgs_lines(row: MetricsRow) -> list[str]:
    """Return TGS with its scope and interval, then the other rates."""
    whole = row["tgs_end_to_end"]
    ends = [] if whole is None else [f"       {whole:,.1f} end to end, {end_to_end_words(row)}"]
    if row["tgs"] is None:
        reason, lacks = explain_missing_rate(row)
        told = f"TGS    unknown: {'the log lacks ' + ', '.join(lacks) if lacks else reason}"
        return [told, *ends, *_step_lines(row)]
    windows = count_noun(not_null(row["windows"]), "window")
    goodput = row["goodput"]
    useful = [] if goodput is None else [f"       {goodput:,.1f} goodput, {goodput_words(row)}"]
    return [
        f"TGS    {row['tgs']:,.1f} tokens/s/GPU  steady, {windows}, "
        f"timed by {EVIDENCE_LABELS[not_null(row['time_basis'])]}{_with_data(row)}; "
        f"{TOKEN_BASES[not_null(row['token_basis'])]}",
        f"       {_interval(row)}",
        f"       not in TGS: {_left_out(row)}",
        "       a window: from one step line to the next",
        *_spike_lines(row),
        *ends,
        *useful,
        *_step_lines(row),
        *_energy_lines(row),
    ]


def _with_data(row: MetricsRow) -> str:
    """Return that our time has data loading, and the framework's has not."""
    is_added = row["time_basis"] == "elapsed" and row["rate_excludes_data"]
    return ", with data loading" if is_added else ""


def _energy_lines(row: MetricsRow) -> list[str]:
    """Return the line of energy per token with its origin; no line if unknown."""
    joules, watts = row["joules_per_token"], row["power_w"]
    if joules is None or watts is None:
        return []
    return [
        f"       {joules:.3g} J per token, {decimal(not_null(row['kwh_per_billion_tokens']))} kWh "
        f"per 1 billion tokens, {watts:,.0f} W a GPU: GPUs alone, by {row['energy_source']}"
    ]


def _hfu_lines(row: MetricsRow) -> list[str]:
    """Return the line of HFU, and that without the vision tower, if the model has one."""
    whole = _bounds(row["hfu_low"], row["hfu_high"])
    alone = _bounds(row["hfu_language_model_low"], row["hfu_language_model_high"])
    if whole is None:
        unknown = f"HFU    unknown with the vision tower; {alone} without it"
        return [] if alone is None else [unknown]
    differ = " (range: implementations differ in what they recompute)" if " to " in whole else ""
    line = f"HFU    {whole}{differ}, recompute {row['recompute']}"
    tower = f"       HFU counts the vision tower; {alone} without it"
    return [line] if alone is None else [line, tower]


def _bounds(low: float | None, high: float | None) -> str | None:
    """Return a range in percent, one figure if its ends are alike; None if unknown."""
    if low is None or high is None:
        return None
    return " to ".join(dict.fromkeys(map(percent, (low, high))))


def _spike_lines(row: MetricsRow) -> list[str]:
    """Return the line of TGS with and without slow windows of unknown cause, if any."""
    slower, faster = row["tgs_with_spikes"], row["tgs_without_spikes"]
    if slower is None or faster is None:
        return []
    less = percent(1 - slower / faster)
    return [
        f"       {faster:,.1f} without slow time of unknown cause, which lowers it by {less} to "
        f"{slower:,.1f}"
    ]


def _step_lines(row: MetricsRow) -> list[str]:
    """Return the line of the rates that need no tokens; no line if unknown."""
    seconds, samples = row["seconds_per_step"], row["samples_per_second"]
    batch = row["samples_per_update"]
    tokens, memory = row["tokens_per_update"], row["peak_memory_bytes"]
    told = [
        *([step_time(row)] if seconds is not None else []),
        *([f"{decimal(samples)} samples/s over all GPUs"] if samples is not None else []),
        *([f"{batch:,.0f} samples per optimizer update"] if batch is not None else []),
        *([f"{tokens:,.0f} tokens per optimizer update"] if tokens is not None else []),
        *([f"peak memory {memory / GIB:.1f} GiB"] if memory is not None else []),
    ]
    return [f"       {', '.join(told)}"] if told else []


def _device(row: MetricsRow) -> str:
    """Return the device's name in the peak table, with the run's name if different.

    A peak that a user gave is named as such.
    """
    device, logged = row["device"], row["accelerator"]
    name = str(logged or device) if device in (None, logged) else f"{device} ({logged})"
    if not (row["peak_source"] or "").startswith(GIVEN_PEAK):
        return name
    return "as given" if device is None else f"as given for {name}"


def _full(mfu: float | None) -> str:
    return "above 100 %" if mfu is None else percent(mfu)


def _interval(row: MetricsRow) -> str:
    low, high = row["tgs_low"], row["tgs_high"]
    if low is None or high is None:
        return confidence_text(row)
    bounds = f"{count(low)} to {count(high)}"
    return f"95 % interval {bounds}, from {confidence_text(row)}"


LENGTH_UNKNOWN: Final = "duration not in the log"


def _left_out(row: MetricsRow) -> str:
    causes, share = join_words(row["excluded_causes"] or ["nothing"]), row["excluded_share"]
    if share is None:
        # the first line has no time of its own: only the wall time can be split
        is_shown = any(each["cause"] == START_UP for each in time_spent(row))
        told = "duration: see the wall time above" if is_shown else LENGTH_UNKNOWN
        return f"{causes} ({told})"
    if not share:
        return causes
    alternatives = join_words(row["excluded_causes"] or [], "or")
    return (
        f"{percent(share)} of the logged time. A window that contains {alternatives} is left out "
        "completely"
    )


TIME_COLUMNS: Final[Columns] = {
    "cause": ("where time went", str),
    "windows": ("windows", str),
    "time": ("time", str),
    "share": ("share", str),
}


def _time(row: MetricsRow) -> str:
    """Return the wall time of the launch by cause."""
    rows = time_rows(row)
    if not rows:
        return ""
    is_sum = row["wall_basis"] in ("elapsed", "rate")
    basis = " (the logged times of steps, added up)" if is_sum else ""
    head = (
        f"Wall time {seconds_text(not_null(row['wall_s']))}{basis}, split into the time of "
        f"{undisturbed_steps(row)}, and the time lost to each cause"
    )
    return f"{head}\n" + render_frame(pl.DataFrame(rows), "table", TIME_COLUMNS)


PHASE_COLUMNS: Final[Columns] = {
    "phase": ("phase", str),
    "seconds": ("per step", str),
    "share": ("share", str),
    "windows": ("windows", str),
    "source": ("from", str),
}


def _phases(row: MetricsRow) -> str:
    """Return the phases of a step, and what a reader must know of their timers."""
    rows = phase_rows(row)
    if not rows:
        return ""
    step = row["phase_step_s"]
    several = max((phase["windows"] or 0 for phase in row["phases"] or []), default=0) > 1
    kind = "the typical step (a median)" if several else "a single step"
    typical = f": {step_seconds(step)}, {kind}" if step else ""
    head = f"Where a step's time goes{typical}"
    table = render_frame(pl.DataFrame(rows), "table", PHASE_COLUMNS)
    return "\n".join([head, table, *(wrapped(f"- {note}") for note in row["phase_notes"] or [])])


def _claims(row: MetricsRow) -> str:
    """Return the logged figures beside ours; they never enter the formula."""
    lines, by = [], " (by given FLOPs)" if row["flops_source"] else " (exact attention)"
    for name, ours, form, convention in (
        ("logged_tgs", row["tgs"], count, ""),
        ("logged_tflops", _tflops(row), decimal, by),
        ("logged_mfu", row["mfu_full_attention"], percent, " (full attention)"),
    ):
        figure = value_of(row, name)
        if figure is not None:
            total = row["logged_tgs_total"] if name == "logged_tgs" else None
            if total is not None:
                beside = f", {ratio(total / ours)} ours ({form(ours)})" if ours else ""
                told = f"average {form(total)} over the steady windows{beside}; "
                told += f"median {form(figure)}"
            else:
                told = form(figure)
                if ours:
                    told += f"; ours {form(ours)}{convention}; logged / ours {ratio(figure / ours)}"
            lines.append(f"  {name} {told}")
    lines += _samples_claim(row)
    use = "our TGS is from the logged rate: the log gives no other"
    if row["time_basis"] != "rate":
        use = "not used in our formula"
    head = f"Logged figures (over the steady windows, medians unless stated; {use})"
    return "\n".join([head, *lines]) if lines else ""


def _samples_claim(row: MetricsRow) -> list[str]:
    """Return the samples/s of all ranks that the log prints, beside ours."""
    printed = {
        "": row["logged_samples_per_second"],
        " (mean since the start)": row["logged_samples_running"],
    }
    told = [f"{figure:,.4g}{of}" for of, figure in printed.items() if figure]
    if not told:
        return []
    ours = ""
    if row["tgs"] and row["gpus"] and row["seq_len"] and row["token_basis"] in ("slots", "packed"):
        ours = f"; ours {row['tgs'] * row['gpus'] / row['seq_len']:,.4g} (TGS x GPUs / seq_len)"
    elif row["samples_per_second"] is not None:
        ours = f"; ours {row['samples_per_second']:,.4g} (global batch / time of a steady step)"
    return [f"  logged samples/s {', '.join(told)}{ours}"]


FORMULA_LETTERS: Final = {
    "r": "3 (4 with activation checkpointing)",
    "T": "sequence length",
    "L": "layers",
    "d": "hidden size",
    "H": "query heads",
    "q": "head width of queries and keys",
    "v": "head width of values",
    "f": "FFN width",
    "m": "matrices of the FFN, 2 or 3",
    "G": "key/value heads",
    "k": "experts per token",
    "V": "vocabulary",
    "N": "parameters",
    "N_active": "parameters that a token uses",
    "P": "parameters",
}
"""Letters of the frameworks' formulas, as in metrics.formula.flops."""

MAX_JOINED_LETTERS: Final = 2
"""Most letters of a product without blanks, such as Ld."""


def _legend(formula: str) -> str:
    """Return a line with the letters of a formula; empty without letters."""
    letters: set[str] = set()
    for word in re.findall(r"\b\d*([A-Za-z_]+)\b", formula):
        is_product = len(word) <= MAX_JOINED_LETTERS and set(word) <= set(FORMULA_LETTERS)
        letters |= {word} | (set(word) if is_product else set())
    known = [f"{letter} = {of}" for letter, of in FORMULA_LETTERS.items() if letter in letters]
    return f"  {', '.join(known)}\n" if known else ""


def _proven(names: Sequence[str]) -> str:
    """Return the facts that reproduced figures confirm, the formula last."""
    told = ["this formula" if name == "logged_formula" else name for name in names]
    return join_words(sorted(told, key="this formula".__eq__))


def _audit(row: MetricsRow, audit: Audit) -> str:
    """Return whether the framework's formula gives the logged figures, and the proofs."""
    if audit.era is None or (not audit.lines_by_column and not audit.not_compared_reason):
        return printable(not_compared_reason(audit)) if audit.not_compared_reason else ""
    era, lines = audit.era, audit.lines
    source = "/".join(part for part in (era.repo, era.path) if part)
    head = f"Framework's formula: {era.formula}\n{_legend(era.formula)}"
    head += f"  {era.name}, {source}@{era.commit}"
    if audit.reproduced is None:
        told = not_compared_reason(audit)
    elif audit.reproduced:
        counted = "the only line" if lines == 1 else f"all {lines:,} lines"
        told = f"reproduced: {counted}, to the last logged digit"
        told += (
            f", with a sequence length per line: {_lengths(lengths)}"
            if (lengths := row["logged_lengths"])
            else ""
        )
        told += (
            f"; this confirms {_proven(audit.proven)}"
            if audit.proven
            else "; this confirms no fact, as other values fit too"
        )
        told += f"; fits {fits}" if (fits := audit.fitting_text) else ""
    else:
        told = f"not reproduced: only {audit.reproduced_lines:,} of {lines:,} lines"
        told += f"; nearest hypothesis: {audit.hypothesis}" if audit.hypothesis else ""
    implied = ""
    if (
        row["logged_flops_low"] is not None
        and audit.flops_low is not None
        and audit.flops_high is not None
    ):
        implied = (
            f"\n  the logged figures imply {audit.flops_low:,.0f} to {audit.flops_high:,.0f} "
            "FLOPs/token (range: rounding)"
        )
        if audit.flops_low > audit.flops_high:
            implied = "\n  the logged figures imply different FLOPs/token from line to line"
    return printable(head) + f"\n  {printable(told)}" + implied


def not_compared_reason(audit: Audit) -> str:
    """Return why logged figures were not compared, with missing facts called missing."""
    reasons = (
        audit.not_compared_reason
        or "the log prints only one figure, so its formula cannot be checked"
    )
    return "; ".join(map(_with_missing, reasons.split("; ")))


def _with_missing(reason: str) -> str:
    columns, separator, facts = reason.partition(" not compared: ")
    names = facts.split(", ")
    if not separator or not set(names) <= set(FACT_NAMES):
        return reason
    unknown = ["model shape" if name == "model" else name for name in names]
    return f"{columns}{separator}missing {', '.join(unknown)}"


def _lengths(lengths: Sequence[int]) -> str:
    """Return the shortest and the longest of the lines' lengths [tokens]."""
    return f"{min(lengths):,} to {max(lengths):,} tokens"


def bridge_text(bridge: Bridge) -> str:
    """Return the steps from the log's figure to ours, one factor per line."""
    name, form, convention = FIGURES[bridge.figure]
    rows = [(form(bridge.logged), f"logged {name} (median)")]
    rows += [(f"x {format_factor(f.factor)}", f.text) for f in bridge.factors]
    high = format_factor(1 / bridge.low) if bridge.low > 0 else "any"
    bounds = f"{format_factor(1 / bridge.high)} to {high} possible"
    left = "the rest: rounding of the logged figure" if bridge.explained else "unexplained"
    rows.append((f"x {format_factor(1 / bridge.unexplained)}", f"{left} ({bounds})"))
    rows.append((form(bridge.ours), f"ours{convention}"))
    lines = [f"  {figure:>10}  {text}" for figure, text in rows]
    return "\n".join([f"From logged {name} to ours", *lines])


MAX_PROPOSALS: Final = 20


def _proposed(proposals: Sequence[Proposal], row: MetricsRow) -> str:
    """Return facts that reproduce every line, as a command if there is no choice."""
    if row["logged_reproduced"] and row["flops_per_token"] is not None:
        return "Proposals: not needed. The known facts reproduce every line."
    if row["logged_flops_low"] is None and not proposals:
        return "Proposals: none. The log prints no figure that depends on the model."
    if not proposals:
        return (
            "Proposals: none. No known model with a common sequence length reproduces the logged "
            "figures."
        )
    heads: Columns = {
        "model": ("model", str),
        "seq_len": ("sequence length", str),
        "recompute": ("recompute", str),
        "peak_flops": ("peak", lambda flops: f"{flops / 1e12:,g} TFLOP/s"),
        "flops_per_token": ("FLOPs/token", count),
        "era": ("framework's formula", str),
    }
    table = render_frame(
        pl.DataFrame([asdict(p) for p in proposals[:MAX_PROPOSALS]]), "table", heads
    )
    more = (
        f"\n... and {len(proposals) - MAX_PROPOSALS:,} more"
        if len(proposals) > MAX_PROPOSALS
        else ""
    )
    hint = "The logged figures fit all of these. Choose by what you know of the run, then:\n"
    recompute = " recompute=..." if any(p.recompute for p in proposals) else ""
    take = f"fairmfu set {row['run_id']} model=... seq_len=...{recompute}"
    if len(proposals) == 1 and row["model"] is None:
        hint, take = "Accept with: ", f"fairmfu set {row['run_id']} {proposals[0].settings}"
    return f"Proposals: facts that reproduce every line\n{table}{more}\n{printable(hint + take)}"


def _tflops(row: MetricsRow) -> float | None:
    if row["tgs"] is None or row["flops_per_token"] is None:
        return None
    return float(row["tgs"] * row["flops_per_token"] / 1e12)
