"""Score of one run: its row of METRICS, and checks of the log's own figures."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import isfinite
from typing import Any, Final, NamedTuple, cast

from fairmfu.ingest.core.schema import RunRow, reading_changes_since

from ..audit import audit as logged
from ..audit.audit_results import Audit, inferred_facts
from ..audit.bridge import token_count_factor
from ..audit.formula_checks import FigureLines, FormulaFacts, formula_facts_of
from ..core.arrays import median_of
from ..core.messages import Effect, Message, doubts_of
from ..core.run_messages import OUTDATED_READING
from ..core.run_table import METRICS, LevelPhase, MetricsRow, SpeedLevel, value_of
from ..core.run_words import LOG_LINE
from ..diagnosis.phases import PhaseTable
from ..formula.accelerators import Accelerator
from ..formula.terms import FORMULA_VERSION
from ..throughput import rank_skew, resolved_facts, throughput
from ..throughput.messages import COUNTS_APART, EVIDENCE_MISCOUNTED
from ..utilization.energy import energy_of_run
from ..utilization.formula_inputs import UtilizationResult, integer_fact, is_inferred, text_fact
from ..utilization.utilization import score_utilization
from . import messages
from .measured_runs import MeasuredRuns

FactsByName = Mapping[str, Mapping[str, Any]]

INFERABLE_FACTS: Final = (
    "precision",
    "trainable",
    "packed",
    "document_mask",
    "gpus",
    "recompute",
)
"""Facts that may be inferred from the framework or the figures; `inferred` lists these."""
MAX_UNREAD_SHARE: Final = 0.1
MAX_UNREAD_LINES: Final = 2
"""Largest share, and number, of unread step-like lines. Above both limits the lines that were read
may all be of start-up.
"""


TEXT_FACTS: Final = (
    *("framework_version", "accelerator", "precision", "recompute", "trainable", "quantization"),
    *("compile", "torch", "cuda", "nccl", "driver", "commit", "packed", "attention", "offload"),
)
"""Facts that become columns of METRICS unchanged."""
RUN_COLUMNS: Final = (
    *("run_id", "name", "framework", "log_format", "synthetic", "launch", "outcome"),
    *("outcome_text", "started_at", "step_unit", "rate_excludes_data"),
)
"""Columns of `runs` that are columns of METRICS."""


class ScoredRun(NamedTuple):
    """Scored run. row: of METRICS; inferred: facts that follow from logged figures."""

    row: dict[str, Any]
    audit: Audit
    formula_facts: FormulaFacts
    lines: FigureLines | None
    inferred: list[dict[str, Any]]


def score_run(run: RunRow, measured: MeasuredRuns, overlay: Sequence[Accelerator]) -> ScoredRun:
    """Score one run. Raises ArithmeticError if a figure is not finite."""
    run_id, rates = run["run_id"], measured.rate_of_run[run["run_id"]]
    facts = {row["name"]: row for row in measured.facts_by_run.get(run_id, [])}
    doubts = measured.doubts_of_sources(run_id, facts)
    lines, formula_facts = _own_figures(run, measured, facts)
    audit = logged.audit(lines, formula_facts)
    inferred = inferred_facts(run_id, audit)
    facts |= {row["name"]: row for row in inferred}
    scored = score_utilization(facts, rates, overlay)
    sources = measured.sources_of(run)
    row = _row(run, rates, facts, scored)
    row["sources"] = [source["path"] for source in sources]
    row["members"] = [member["run_id"] for member in measured.members(run)]
    ranks = measured.ranks_of_run.get(run_id, {})
    row["ranks"] = ranks.get("ranks")
    run_messages: list[Message] = [
        *map(Message.from_row, rates["throughput_warnings"] or []),
        *scored.warnings,
        *doubts,
        *_of_unread_lines(sources),
        *_of_reading(sources),
    ]
    _set_audit(row, audit)
    _set_outside_of_steps(row, lines)
    run_messages += [
        *logged.reproduction_warnings(audit, formula_facts),
        *_other_tokens(row, run_messages),
        *logged.era_date_warnings(audit, formula_facts),
    ]
    run_messages += _set_energy(row, run, measured, facts)
    _split_messages(row, run_messages)
    _set_phases(row, measured.phases(run))
    row["levels"] = _with_phases(row, run, measured)
    row["bound"] = rank_skew.bottleneck(row["data_share"])
    row["slow_ranks"] = measured.slow_ranks.get(run_id)
    whole = {**row, **measured.chain_of_run.get(run_id, {}), **ranks}
    _check_finite(whole)
    return ScoredRun(whole, audit, audit.formula_facts or formula_facts, lines, inferred)


def _set_energy(
    row: MetricsRow, run: RunRow, measured: MeasuredRuns, facts: FactsByName
) -> list[Message]:
    """Fill the columns on energy; return doubts about it."""
    if row["tgs"] is None:
        return []
    windows = measured.windows_of_run[run["run_id"]]
    energy, doubt = energy_of_run(windows, run["evidence"] or (), facts)
    for name, value in energy.items():
        row[name] = value  # type: ignore[literal-required]
    return [] if doubt is None else [doubt]


def _set_phases(row: MetricsRow, table: PhaseTable) -> None:
    """Fill the columns on phases of a step; null if the log times no phase."""
    if not table.rows:
        return
    row["phases"], row["phase_step_s"] = table.rows, table.step_s
    row["phase_notes"] = [str(note) for note in table.notes]
    row["phase_note_kinds"] = [note.kind for note in table.notes]


def _with_phases(row: MetricsRow, run: RunRow, measured: MeasuredRuns) -> list[SpeedLevel] | None:
    """Return the levels of a run's speed with the phases of their steps."""
    if not (row["levels"] and row["phases"]):
        return row["levels"]
    found: list[SpeedLevel] = []
    for number, level in enumerate(row["levels"]):
        phases: list[LevelPhase] = [
            {"phase": each["phase"], "seconds": each["seconds"]}
            for each in measured.phases(run, number).rows
            if each["share_of"] == "step" and each["seconds"] is not None
        ]
        found.append({**level, "phases": phases or None})
    return found


def _split_messages(row: MetricsRow, run_messages: Sequence[Message]) -> None:
    """Fill `warnings`, `warning_kinds` and `doubts`."""
    row["warnings"] = [str(message) for message in run_messages]
    row["warning_kinds"] = [message.kind for message in run_messages]
    row["doubts"] = [str(message) for message in doubts_of(run_messages)]


def _row(
    run: RunRow,
    rates: throughput.RateSummary,
    facts: FactsByName,
    scored: UtilizationResult,
) -> MetricsRow:
    """Return a row without sources, warnings and logged figures."""
    row: dict[str, Any] = dict.fromkeys(METRICS)
    row |= {name: text_fact(facts, name) for name in TEXT_FACTS} | {"packed": _packing(facts)}
    row |= {
        name: integer_fact(facts, name)
        for name in ("seq_len", "total_steps", *resolved_facts.SETUP_FACTS)
    }
    inferred = {name for name in INFERABLE_FACTS if name in facts and is_inferred(facts[name])}
    if "precision" in scored.missing:  # the log contradicts the inferred value
        row["precision"] = None
        inferred -= {"precision"}
    row |= {name: value_of(rates, name) for name in throughput.SUMMARY if name in METRICS}
    row |= {name: value_of(run, name) for name in RUN_COLUMNS}
    if "steps_counted" in facts:
        row["step_unit"] = LOG_LINE
    row |= {
        "model": text_fact(facts, "model"),
        "formula": FORMULA_VERSION,
        "inferred": sorted(inferred),
        "missing": list(dict.fromkeys([*_rate_facts(row, rates, inferred), *scored.missing])),
    }
    row |= {name: value for name, value in scored.values.items() if value is not None}
    return cast(MetricsRow, row)


def _packing(facts: FactsByName) -> str | None:
    """Return the packing of samples: true, false, or partly for packs of any length.

    A pack that need not be full has padding, as a sample has, but more documents.
    """
    packed = text_fact(facts, "packed")
    is_partly = packed == "false" and text_fact(facts, "document_mask") == "true"
    return "partly" if is_partly else packed


def _rate_facts(
    row: Mapping[str, Any], rates: throughput.RateSummary, inferred: Collection[str]
) -> list[str]:
    """Return the facts that a rate lacks.

    If a user or the log says that samples are padded, only their mean length gives tokens.
    """
    is_padded = row["packed"] in ("false", "partly") and "packed" not in inferred
    instead = {"packed": "mean_sample_length"} if is_padded else {}
    return [instead.get(name, name) for name in rates["throughput_missing"] or ()]


def _of_unread_lines(sources: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return a warning about unread lines; with many of them the run is not ranked."""
    unread = sum(source["unread_lines"] for source in sources)
    if not unread:
        return []
    every = unread + sum(source["step_lines"] for source in sources)
    many = unread > MAX_UNREAD_LINES and unread > MAX_UNREAD_SHARE * every
    if many:
        return [messages.MANY_UNREAD_LINES(unread=unread, every=every)]
    return [messages.UNREAD_LINES(unread=unread)]


def _check_finite(row: Mapping[str, Any]) -> None:
    """Raise ArithmeticError for a figure that is not finite: readers cannot use it."""
    for name, value in row.items():
        if isinstance(value, float) and not isfinite(value):
            raise ArithmeticError(f"{name} is {value}")


def _of_reading(sources: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return a warning if today's readers read a run's sources differently.

    Wrong rows must neither win nor lose a comparison, even among runs read alike.
    """
    columns = ("reading", "log_format", "companions")
    since = [
        what
        for source in sources
        for what in reading_changes_since(*map(source.__getitem__, columns))
    ]
    return [outdated_reading(since)] if since else []


def outdated_reading(reading_changes: Iterable[str], effect: Effect | None = None) -> Message:
    """Return the message that today's parsing of a run's sources differs.

    reading_changes: descriptions of the changes, the oldest first; the newest are named
    """
    told = [*dict.fromkeys(reading_changes)]
    more = len(told) - MAX_NAMED_CHANGES
    named = [*told[-MAX_NAMED_CHANGES:], *([f"and {more} more"] if more > 0 else [])]
    return OUTDATED_READING(effect, changes="; ".join(named))


MAX_NAMED_CHANGES: Final = 2
"""Most changes of parsing that a message names: a store of a year ago has dozens."""


def _own_figures(
    run: RunRow, measured: MeasuredRuns, facts: dict[str, dict[str, Any]]
) -> tuple[FigureLines | None, FormulaFacts]:
    """Return the speed figures that a run prints, and the facts for its own formula.

    If several sources print figures, the finest digits win.
    """
    figures = [
        (member["log_format"], measured.printed_lines[member["run_id"]])
        for member in measured.members(run)
        if member["run_id"] in measured.printed_lines
    ]
    log_format, lines = logged.finest_source(figures) or (run["log_format"], None)
    stated = measured.stated.get(run["run_id"], ())
    formula_facts = formula_facts_of(run | {"log_format": log_format}, facts, stated)
    return lines, logged.with_length(formula_facts, lines)


MISCOUNTED: Final = frozenset({COUNTS_APART.identifier, EVIDENCE_MISCOUNTED.identifier})
"""Kinds of messages that already say that tokens are miscounted."""


def _other_tokens(row: MetricsRow, run_messages: Sequence[Message]) -> list[Message]:
    """Return a warning if our rate and the printed rates must count different tokens."""
    times = token_count_factor(row)
    if times == 1 or any(message.kind in MISCOUNTED for message in run_messages):
        return []
    return [messages.RATE_AGAINST_LOG(times=times)]


def _set_outside_of_steps(row: MetricsRow, lines: FigureLines | None) -> None:
    """Fill medians of figures printed outside step lines (DeepSpeed-Chat)."""
    if row["logged_tflops"] is None:
        row["logged_tflops"] = _printed_median(lines, "logged_tflops")
    if row["logged_mfu"] is None:
        row["logged_mfu"] = _printed_median(lines, "logged_mfu")


def _printed_median(lines: FigureLines | None, column: str) -> float | None:
    if lines is None or column not in lines.digits:
        return None
    return median_of(lines.printed_values(column))


def _set_audit(row: MetricsRow, audit: Audit) -> None:
    """Fill the columns of METRICS that come from an audit."""
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
