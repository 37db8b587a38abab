"""Reproduce the figures that a log prints, by its framework's formula at the time.

A run is reproduced if every printed figure of every line follows to the last digit. Reproduction
proves a fact if no other usual value of the fact reproduces the run too. If a run is not
reproduced, the audit names a changed fact with which all lines follow, if any; both figures stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from math import ceil, floor
from typing import Any, Final

import numpy as np
import polars as pl

from ..core.arrays import FloatArray
from ..core.messages import Effect, Message
from ..formula.terms import Recompute
from . import messages, solved_lengths
from .audit_results import Audit
from .era_lookup import eras_of_format
from .explanations import (
    alternatives,
    best_hypothesis,
    contradicts_log,
    hypothesis_from_case,
    list_hypotheses,
    matching_models,
    mean_rate_note,
    other_readings,
    proven_facts,
    scales_differently,
)
from .formula_checks import (
    FLOPS_FIGURES,
    MFU_FIGURES,
    TFLOPS_FIGURES,
    FigureLines,
    FormulaCheck,
    FormulaFacts,
    LineBounds,
    check_formulas,
    device_rate,
    era_flops,
    era_peak,
    implied_flops,
    needs_gpu_count,
    read_figures,
    tflops_factor,
)
from .formula_era import Era
from .logged_figures import LOGGED_FIGURES, figure_lines, lines_by_run


def eras_of(formula_facts: FormulaFacts, lines: FigureLines | None = None) -> list[Era]:
    """Return the eras that may have printed a run, the likeliest first.

    A given `logged_formula` leaves only that era. Order: most required columns, main line before
    forks, the logged release, printed decimals, then the date of the first stamp. No sign is
    certain: a checkout of the main line names the last release, and an old checkout prints a new
    date. Nothing but figures identifies a fork.

    lines: from `lines_by_source`; without lines, printed columns and decimals decide nothing
    """
    eras = list(eras_of_format(formula_facts.log_format))
    if formula_facts.era is not None:
        eras = [era for era in eras if formula_facts.era == era.name]
    if lines is not None:
        eras = [era for era in eras if lines.printing(*era.required_columns).height]
    return sorted(
        eras, key=lambda era: (-len(era.required_columns), *_unlikely(era, formula_facts, lines))
    )


def _eras_regardless(formula_facts: FormulaFacts, lines: FigureLines) -> list[Era]:
    """Return the eras, the likeliest first, ignoring a given `logged_formula`."""
    return eras_of(formula_facts._replace(era=None), lines)


def _unlikely(
    era: Era, formula_facts: FormulaFacts, lines: FigureLines | None
) -> tuple[bool, bool, int, bool, int]:
    released, dated = formula_facts.version in era.versions, _dated(era, formula_facts)
    misfit = 0 if lines is None else _misfit(era, lines)
    return era.fork, not released, misfit, not dated, _days_off(era, formula_facts.day)


def _misfit(era: Era, lines: FigureLines) -> int:
    """Count the decimals by which a run's columns differ from an era's, in all."""
    there = {c: n for c, n in era.decimals.items() if c in lines.digits}
    return sum(abs(int(lines.digits[column].decimals) - n) for column, n in there.items())


def _released(era: Era, formula_facts: FormulaFacts) -> bool:
    return formula_facts.era == era.name or formula_facts.version in era.versions


def _dated(era: Era, formula_facts: FormulaFacts) -> bool:
    return formula_facts.day is not None and era.covers(formula_facts.day)


def _days_off(era: Era, day: date | None) -> int:
    if day is None:  # the newest is the likeliest
        return (date.max - (era.since or date.min)).days
    ends = [abs((day - end).days) for end in (era.since, era.until) if end is not None]
    return min(ends, default=0)


def lines_by_source(
    steps: pl.DataFrame, events: pl.DataFrame | None = None
) -> dict[str, FigureLines]:
    """Return the lines with a figure of the framework's own, of all ranks, by run_id.

    steps, events: as in ingest.core.schema, every source by itself: the figures of one source do
        not follow from the times of another source of the same launch
    """
    return {
        run_id: read_figures(frame)
        for run_id, frame in lines_by_run(figure_lines(steps, events)).items()
    }


def finest_source(sources: Sequence[tuple[str, FigureLines]]) -> tuple[str, FigureLines] | None:
    """Return the source of a launch whose main figure has the most digits.

    sources: (log format, lines); the first wins a tie, so the lead source does
    """
    return max(sources, key=lambda told: _fineness(told[1]), default=None)


def _fineness(lines: FigureLines) -> tuple[int, int]:
    """Return a sort key: figures of FLOPs before others, then by number of digits."""
    if (main := main_figure(lines)) is None:  # of infinite values alone
        return -len(LOGGED_FIGURES), 0
    return -LOGGED_FIGURES.index(main), int(lines.digits[main].significant)


def with_length(formula_facts: FormulaFacts, lines: FigureLines | None) -> FormulaFacts:
    """Return the facts with the sequence length, if all lines print the same one."""
    if lines is None:
        return formula_facts
    lengths = np.unique(lines.printed_values("sequence_length"))
    return (
        formula_facts._replace(line_length=int(lengths[0])) if len(lengths) == 1 else formula_facts
    )


def audit(lines: FigureLines | None, formula_facts: FormulaFacts) -> Audit:
    """Compare a run's printed figures with its framework's formulas.

    lines: from `lines_by_source`; None for a run without figures
    """
    if lines is None:
        return Audit()
    eras = eras_of(formula_facts, lines)
    if not eras:
        return Audit(not_compared_reason=_no_era(formula_facts))
    tried = [_best_attempt(lines, era, [*_policies(era, formula_facts)]) for era in eras]
    best = _best(tried)
    if formula_facts.padded_vocabs and not _all(best.checks):
        padded = [formula_facts._replace(padded_vocab=V) for V in formula_facts.padded_vocabs]
        retried = [
            _best_attempt(lines, era, [p for one in padded for p in _policies(era, one)])
            for era in eras
        ]
        if _score(_best(retried).checks) > _score(best.checks):
            tried, best = retried, _best(retried)
    if either := _either_lengths(best, tried) or _either_policies(
        lines, best, tried, formula_facts
    ):
        return Audit(era=best.era, not_compared_reason=either)
    given, formula_facts = formula_facts, best.formula_facts
    first, length = tried[0], _length_hypothesis(best, tried[0], tried[0].formula_facts)
    released = _released(first.era, formula_facts)
    # an old checkout prints a new date; its log states the right length
    stated = "seq_len" in formula_facts.stated_facts
    if length is None or (stated and not released):
        result = _audit_by_era(lines, best, given)
        if inferred := _inferred_policy(lines, best, tried, given):
            fitting = {name: text for name, text in result.fitting.items() if name not in inferred}
            result = replace(result, inferred=inferred, fitting=fitting)
        return result
    if released or best.era.fork or _dated(first.era, formula_facts):
        result = _audit_by_era(lines, first, given)
        hypothesis = result.hypothesis or length
        return replace(result, hypothesis=f"{hypothesis}, or by the formula of {best.era.name},")
    why = f"either {length}, or the formula of {best.era.name}: the log tells no release, no date"
    return Audit(
        era=best.era,
        not_compared_reason=f"{' and '.join(_flops_columns(best))} not compared: {why}",
    )


def _no_era(formula_facts: FormulaFacts) -> str:
    names = [era.name for era in eras_of_format(formula_facts.log_format)]
    if formula_facts.era is None or not names:
        return f"no own formula is known of {formula_facts.log_format}"
    return (
        f"{formula_facts.era} is no formula of {formula_facts.log_format}, "
        f"which has: {', '.join(names)}"
    )


def _best(tried: Sequence[_Attempt]) -> _Attempt:
    """Return the likeliest of the attempts that reproduce most.

    Reproducing all lines of all columns counts first, then the number of reproduced columns.
    """
    return max((t for t in tried if t.checks), key=lambda t: _score(t.checks), default=tried[0])


def _score(checks: Sequence[FormulaCheck]) -> tuple[bool, int]:
    """Return (all lines of all columns are reproduced, number of reproduced columns)."""
    whole = [identity.reproduced == identity.lines for identity in checks]
    return bool(whole) and all(whole), sum(whole)


def _audit_by_era(lines: FigureLines, best: _Attempt, given: FormulaFacts) -> Audit:
    """Return the audit of a run by the era that most likely printed the figures.

    best: the era and its checks; given: the run's facts, nothing filled in
    """
    out = _predicted(lines, best)
    if not best.checks:
        return out
    out = replace(out, **_compared(lines, best))
    if best.solved:
        whole = _all(best.checks)
        proven = _proven_by_lengths(lines, best.era, best.formula_facts) if whole else ()
        return replace(out, proven=proven)
    if _all(best.checks):
        return replace(out, **_confirmed(lines, best, given))
    return replace(out, **_suspected(lines, best, given))


def _predicted(lines: FigureLines, best: _Attempt) -> Audit:
    """Return the audit without its comparison: the formula's values and the lines."""
    era, formula_facts = best.era, best.formula_facts
    low, high = implied_flops(lines, era, formula_facts)
    return Audit(
        era=era,
        lines_by_column={check.column: (check.lines, check.reproduced) for check in best.checks},
        flops_per_token=era_flops(era, formula_facts.simplified_model()),
        flops_low=low,
        flops_high=high,
        peak_flops=era_peak(era, formula_facts),
        unit=tflops_factor(era, formula_facts),
        not_compared_reason=_why(lines, era, formula_facts, best.checks),
        formula_facts=formula_facts,
    )


def _compared(lines: FigureLines, best: _Attempt) -> dict[str, Any]:
    """Return the fields of an Audit that compare printed figures with the formula."""
    first = best.checks[0]
    ratio = first.ratio
    return {
        **figure_rounding(best.lines.with_decimals_of(best.era), best.formula_facts),
        "reproduced": _all(best.checks) if main_figure(lines) == first.column else None,
        "unexplained": _within(ratio.middle, ratio.intersection),
        "unexplained_low": ratio.intersection[0],
        "unexplained_high": ratio.intersection[1],
        "solved_lengths": best.solved,
    }


def _confirmed(lines: FigureLines, best: _Attempt, given: FormulaFacts) -> dict[str, Any]:
    """Return `proven` and `fitting` of a run whose lines are all reproduced."""
    era, formula_facts = best.era, best.formula_facts
    eras = _eras_regardless(formula_facts, lines)
    others = list_hypotheses(era, formula_facts, best.checks, eras)
    facts, fitting = proven_facts(others, best.checks, formula_facts)
    if readings := other_readings(era, formula_facts, best.checks, eras):
        fitting.setdefault("seq_len", readings[0])
    if given.recompute is None and era.counts_recompute:
        fitting["recompute"] = "recompute=none, full or selective_attention"
    facts = tuple(fact for fact in facts if fact not in fitting)
    flops = implied_flops(lines, era, formula_facts)
    return {"proven": _proven(facts, era, formula_facts, flops), "fitting": fitting}


def _suspected(lines: FigureLines, best: _Attempt, given: FormulaFacts) -> dict[str, Any]:
    """Return `hypothesis` and `suspect` of a run with lines that are not reproduced."""
    era, formula_facts = best.era, best.formula_facts
    eras = _eras_regardless(formula_facts, lines)
    for candidate in _policies(era, formula_facts._replace(recompute=given.recompute)):
        read = _read_by(lines, era, candidate)
        others = list_hypotheses(era, candidate, read.checks, eras)
        text, fact = best_hypothesis(others, read.checks, candidate)
        if text is not None:
            return {"hypothesis": text, "suspect": fact}
    return {"hypothesis": mean_rate_note(lines.with_decimals_of(era), formula_facts)}


def _proven(
    facts: Sequence[str],
    era: Era,
    formula_facts: FormulaFacts,
    flops: tuple[float | None, float | None],
) -> tuple[str, ...]:
    """Return the facts that stay proven even if both model and length may be wrong."""
    doubted = set()
    if formula_facts.line_length not in (
        None,
        formula_facts.T,
    ):  # the lines prove their own length, not the fact
        doubted.add("seq_len")
    low, high = flops
    if {"model", "seq_len"} & set(facts) and low is not None and high is not None:
        plain = read = matching_models(era, formula_facts, low, high)
        if formula_facts.params is None:
            read = matching_models(era, formula_facts, low, high, however_read=True)
        doubted |= {"model"} if len({shape for shape, _ in read}) > 1 else set()
        doubted |= {"seq_len"} if len({length for _, length in plain}) > 1 else set()
    return tuple(fact for fact in facts if fact not in doubted)


@dataclass(frozen=True, slots=True)
class _Attempt:
    """Attempt to reproduce a run by one era; lines: with solved lengths, if any."""

    era: Era
    formula_facts: FormulaFacts
    lines: FigureLines
    checks: list[FormulaCheck]
    solved: tuple[int, ...] = ()
    policies: tuple[str | None, ...] = ()

    @property
    def figures(self) -> frozenset[str]:
        """Columns that were compared."""
        return frozenset(one.column for one in self.checks)


def _best_attempt(lines: FigureLines, era: Era, readings: Sequence[FormulaFacts]) -> _Attempt:
    """Return the first reading with which an era reproduces most.

    readings: a run's facts, the unstated ones filled in differently in every reading
    """
    attempts = [_read_by(lines, era, one) for one in readings]
    if len(attempts) == 1:
        return attempts[0]
    most = max(_score(one.checks) for one in attempts)
    fitting = [one for one in attempts if _score(one.checks) == most]
    policies = tuple(dict.fromkeys(one.formula_facts.recompute for one in fitting if most[0]))
    return replace(fitting[0], policies=policies)


def _read_by(lines: FigureLines, era: Era, formula_facts: FormulaFacts) -> _Attempt:
    solved = solved_lengths.solve_lengths(lines, era, formula_facts)
    lengths = (
        () if solved is None else tuple(int(n) for n in solved.printed_values("sequence_length"))
    )
    used = solved or lines
    return _Attempt(era, formula_facts, used, check_formulas(used, era, formula_facts), lengths)


def _policies(era: Era, formula_facts: FormulaFacts) -> Iterator[FormulaFacts]:
    """Yield the facts with every possible recompute policy, if the formula reads it."""
    fixed = formula_facts.recompute is not None or not era.counts_recompute
    if fixed or formula_facts.T is None:  # lengths are solved for a single formula
        yield formula_facts
        return
    for policy in RECOMPUTE_POLICIES:
        yield formula_facts._replace(recompute=policy)


RECOMPUTE_POLICIES: Final[tuple[Recompute, ...]] = ("none", "full", "selective")


def _fitting_policies(
    lines: FigureLines, best: _Attempt, tried: Sequence[_Attempt], given: FormulaFacts
) -> list[tuple[Era, frozenset[str | None]]]:
    """Return the eras that reproduce as much as the best, with the policies that fit.

    Only the best era if the log's release or date identifies the era.
    """
    if given.recompute is not None or given.T is None or not _all(best.checks):
        return []
    identified = _released(best.era, given) or _dated(best.era, given)
    finest = _misfit(best.era, lines)
    others = [
        t
        for t in tried
        if t.figures >= best.figures and not t.era.fork and _misfit(t.era, lines) <= finest
    ]
    fitting = [best] if identified else [best, *others]
    open_ = frozenset[str | None](RECOMPUTE_POLICIES)  # for an era that ignores recomputation
    return [
        (t.era, frozenset(t.policies) if t.era.counts_recompute else open_)
        for t in fitting
        if _all(t.checks)
    ]


def _either_policies(
    lines: FigureLines, best: _Attempt, tried: Sequence[_Attempt], given: FormulaFacts
) -> str:
    """Say that eras need different recompute policies for a run; empty if they agree."""
    fitting = _fitting_policies(lines, best, tried, given)
    if not fitting or frozenset.intersection(*(policies for _, policies in fitting)):
        return ""
    era_by_policies = {policies: era.name for era, policies in reversed(fitting)}
    cases = [
        f"recompute={'/'.join(sorted(map(str, each)))} by {era}"
        for each, era in era_by_policies.items()
    ]
    return f"{' and '.join(_flops_columns(best))} not compared: either {' or '.join(cases)}"


def _inferred_policy(
    lines: FigureLines, best: _Attempt, tried: Sequence[_Attempt], given: FormulaFacts
) -> dict[str, str]:
    """Return the only recompute policy that reproduces the figures, as a fact, if any."""
    fitting = _fitting_policies(lines, best, tried, given)
    policies = frozenset[str | None]().union(*(each for _, each in fitting))
    if len(policies) != 1 or not _flops_columns(best) or not best.era.counts_recompute:
        return {}
    (policy,) = policies
    return {} if policy is None else {"recompute": RECOMPUTE_NAMES.get(policy, policy)}


RECOMPUTE_NAMES: Final[Mapping[str, str]] = {"selective": "selective_attention"}
"""The fact's names of policies, if these differ."""


def _length_hypothesis(best: _Attempt, first: _Attempt, formula_facts: FormulaFacts) -> str | None:
    """Return text on a length with which the likeliest formula reproduces a run.

    Asked for a run that only a less likely formula reproduces with the stated length: a formula
    that counts half of the attended pairs gives for one length the FLOPs that another gives for
    half of that length. None if no length fits.
    """
    if not first.checks or not scales_differently(first.era, best.era, formula_facts):
        return None
    every = alternatives(first.era, formula_facts, ())
    cases = (c for c in every if c.fact == "seq_len" and c.era is first.era)
    for case in (c for c in cases if c.formula_facts.T != formula_facts.T):
        if contradicts_log(case.fact, case.value, formula_facts):
            continue
        other = hypothesis_from_case(case, first.era, formula_facts, first.checks)
        if other is not None and other.reproduces(first.checks):
            return case.text
    return None


def _either_lengths(best: _Attempt, tried: Sequence[_Attempt]) -> str:
    """Say that eras of the main line solve different lengths; empty if they do not."""
    era_by_lengths = {
        t.solved: t.era.name for t in tried if t.solved and _all(t.checks) and not t.era.fork
    }
    if not best.solved or len(era_by_lengths) < 2:  # noqa: PLR2004 - one and another
        return ""
    cases = [f"{_some(each)} by {era}" for each, era in era_by_lengths.items()]
    columns = " and ".join(_flops_columns(best))
    return f"{columns} not compared: lines have lengths of their own, " + " or ".join(cases)


def _flops_columns(tried: _Attempt) -> list[str]:
    return [identity.column for identity in tried.checks if identity.column in FLOPS_FIGURES]


def _some(numbers: Sequence[int]) -> str:
    shown = ", ".join(f"{n:,}" for n in numbers[:MAX_SHOWN_LENGTHS])
    return shown if len(numbers) <= MAX_SHOWN_LENGTHS else f"{shown}, ..."


MAX_SHOWN_LENGTHS: Final = 3


def _proven_by_lengths(
    lines: FigureLines, era: Era, formula_facts: FormulaFacts
) -> tuple[str, ...]:
    """Return the facts of which no other value leaves whole lengths."""
    every = alternatives(era, formula_facts, _eras_regardless(formula_facts, lines))
    cases = [c for c in every if c.fact in LENGTH_FACTS]
    flops = era_flops(era, formula_facts.simplified_model(1))
    others = [
        c
        for c in cases
        if era_flops(c.era, c.formula_facts.simplified_model(1)) != flops or c.era is not era
    ]
    still = {
        c.fact
        for c in others
        if solved_lengths.solve_lengths(lines, c.era, c.formula_facts) is not None
    }
    return tuple(fact for fact in dict.fromkeys(c.fact for c in others) if fact not in still)


LENGTH_FACTS: Final = ("recompute", "logged_formula", "model")
"""Facts that change the lengths implied by the lines."""


FOUNDATION_FACTS: Final = ("model", "seq_len", "gpus", "global_batch_size")
"""Facts that our figures depend on. If a given value contradicts the printed figures, the run is
not ranked.
"""


def reproduction_warnings(audit: Audit, formula_facts: FormulaFacts) -> list[Message]:
    """Return a warning if the log's figures are not reproduced.

    The run is not ranked if another value of a fact given by hand reproduces all lines. A fact that
    the log states is believed: a fork may then print by another formula.
    """
    if audit.reproduced is not False or audit.era is None:
        return []
    any_policy = formula_facts.recompute is None and audit.era.counts_recompute
    hint = ""
    effect: Effect | None = None
    if audit.suspect is not None:
        hint = f". With {audit.hypothesis} it reproduces all"
        stated = audit.suspect in formula_facts.stated_facts
        effect = "unranked" if audit.suspect in FOUNDATION_FACTS and not stated else None
    elif audit.hypothesis:
        hint = f" (nearest: {audit.hypothesis})"
    message = messages.FIGURES_DO_NOT_FOLLOW(
        effect,
        policy=ANY_POLICY if any_policy else "",
        reproduced=audit.reproduced_lines,
        lines=audit.lines,
        era=audit.era.name,
        hint=hint,
    )
    return [message]


ANY_POLICY: Final = " under any recompute"


def _within(middle: float, bounds: tuple[float, float]) -> float:
    """Return the median, clamped to the bounds of all lines if these leave anything."""
    low, high = bounds
    return min(max(middle, low), high) if low <= high else middle


def era_date_warnings(audit: Audit, formula_facts: FormulaFacts) -> list[Message]:
    """Return a warning if the formula that reproduces a run is not of its log's date."""
    era, day = audit.era, formula_facts.day
    if not audit.reproduced or era is None or day is None or formula_facts.era is not None:
        return []
    if replace(era, fork=False).covers(day) or formula_facts.version in era.versions:
        return []
    span = " to ".join("?" if end is None else str(end) for end in (era.since, era.until))
    return [messages.FORMULA_OF_ANOTHER_DATE(era=era.name, span=span, day=day)]


def figure_rounding(lines: FigureLines, formula_facts: FormulaFacts) -> dict[str, Any]:
    """Return `rate`, `rate_rounding`, `rounding` and `lengths` of an Audit."""
    printed_by = {c: lines.printing(c) for c in LOGGED_FIGURES}
    halves = {c: of.interval(c).half_width for c, of in printed_by.items() if of.height}
    main = printed_by[next(iter(halves))]
    rate = device_rate(main, formula_facts)
    lengths = tuple(int(n) for n in np.unique(main.printed_values("sequence_length")))
    fields: dict[str, Any] = {"rounding": halves, "lengths": lengths if len(lengths) > 1 else ()}
    if rate is not None and rate[0].middle > 0:
        fields |= {"rate": rate[0].middle, "rate_rounding": rate[0].half_width / rate[0].middle}
    return fields


def median_device_rate(
    lines: FigureLines, formula_facts: FormulaFacts, audit: Audit, steps: FloatArray
) -> float | None:
    """Return the median tokens/s of one device over lines of `steps` with TFLOP/s.

    Without such lines, the median over all lines of the audit.

    steps: step numbers
    """
    printed = lines.printing("logged_tflops")
    printed = printed.select(np.isin(printed.columns["step"], steps))
    rate = device_rate(printed, formula_facts) if printed.height else None
    return audit.rate if rate is None else rate[0].middle


def main_figure(lines: FigureLines) -> str | None:
    """Return the column that decides an audit: the first of LOGGED_FIGURES printed."""
    return next((c for c in LOGGED_FIGURES if c in lines.digits), None)


def _all(checks: Sequence[FormulaCheck]) -> bool:
    return all(identity.reproduced == identity.lines for identity in checks)


def _why(
    lines: FigureLines, era: Era, formula_facts: FormulaFacts, checks: Sequence[FormulaCheck]
) -> str:
    """Return which printed columns could not be compared, and the missing facts."""
    compared = {identity.column for identity in checks}
    printed = [c for c in LOGGED_FIGURES if c in lines.digits and c not in compared]
    if len(formula_facts.averaged) == 1:
        by_flops = [c for c in printed if c in FLOPS_FIGURES]
        return (
            f"{' and '.join(by_flops)} not compared: {MEAN_AGAINST_LAST_RATE}" if by_flops else ""
        )
    unsaid = {c: _batch_of_lines(c, lines, era) for c in printed}
    reasons = [
        f"{c} not compared: {unsaid[c] or era.not_compared[c]}"
        for c in printed
        if c in era.not_compared
    ]
    by_flops = [c for c in printed if c in FLOPS_FIGURES and c not in era.not_compared]
    if by_flops:
        said = formula_facts.why_no_shape or f"{era.name} does not know this model"
        lacks = ", ".join(_lacking(by_flops, lines, era, formula_facts)) or said
        reasons.insert(0, f"{' and '.join(by_flops)} not compared: {lacks}")
    return "; ".join(reasons)


def _batch_of_lines(column: str, figures: FigureLines, era: Era) -> str:
    """Say that samples/s lack only the batch, with the batch that step times imply."""
    lines = figures.with_decimals_of(era).printing(column)
    if column != "logged_samples_per_second" or column not in era.derived_columns:
        return ""
    if not lines.all_print("elapsed_s"):
        return ""
    rate, time = lines.interval(column), lines.interval("elapsed_s")
    low, high = LineBounds(rate.low * time.low, rate.high * time.high).intersection
    batch = ceil(low) if low > 0 and ceil(low) == floor(high) else None
    return "global_batch_size" + (f", which is {batch:,} by their times" if batch else "")


MEAN_AGAINST_LAST_RATE: Final = (
    "of two rates one is a mean over several steps, the other the last one's"
)
LINE_LENGTHS: Final = "the length of each line (samples are not packed)"


def _lacking(
    columns: Sequence[str], lines: FigureLines, era: Era, formula_facts: FormulaFacts
) -> list[str]:
    """Return the names of the facts that figures of FLOPs lack."""
    length = LINE_LENGTHS if formula_facts.max_length else "seq_len"
    unneeded = columns == ["logged_total_flops"] or lines.printing(columns[0]).all_print(
        "sequence_length"
    )
    lacks = [
        name
        for name, value in (
            ("model", formula_facts.shape),
            (length, 0 if unneeded else formula_facts.T),
            ("recompute", formula_facts.recompute if era.counts_recompute else ""),
            (
                "accelerator",
                era_peak(era, formula_facts) if set(columns) <= set(MFU_FIGURES) else 0.0,
            ),
        )
        if value is None
    ]
    of = lines.with_decimals_of(era).printing(columns[0])
    if columns == ["logged_total_flops"]:
        return lacks if of.all_print("consumed_tokens") else [*lacks, "tokens since the start"]
    if needs_gpu_count(era, formula_facts) and set(columns) & set(TFLOPS_FIGURES):
        lacks.append("gpus")
    if device_rate(of, formula_facts) is None:
        lacks += [
            n
            for n, v in (("gpus", formula_facts.gpus), ("global_batch_size", formula_facts.batch))
            if not v
        ]
    return lacks
