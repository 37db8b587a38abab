"""Lead from the figure that a log prints to ours, one named factor at a time.

    logged  x  factor  x  factor  x ...  =  ours

The factors are ratios of whole counts: every stage of the framework's own formula
(metrics/audit/formula_era.py) over the stage before, then what is trained, the counting of tokens
and time, and the peak. Their product is the total, exactly. A remainder that the framework's
formula does not reproduce is shown as `unexplained`, with the bounds of the print's last digit, and
is never spread over the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any, Final

from ..core.intervals import FLOAT_TOLERANCE
from ..core.run_table import MetricsRow, not_null, value_of
from ..formula.flops import flops_per_token, operators
from ..formula.model_shapes import ShapeError
from ..throughput.token_counts import MAX_RANK_TOKEN_RATIO
from ..utilization.formula_inputs import FormulaInputs, UtilizationResult, formula_inputs
from .audit_results import Audit, Bridge, Factor
from .formula_checks import FormulaFacts, era_flops
from .formula_era import Era, cause_text


def build_bridges(
    row: MetricsRow,
    facts: Mapping[str, Mapping[str, Any]],
    formula_facts: FormulaFacts,
    audit: Audit,
    rate: float | None,
) -> list[Bridge]:
    """Return the bridges of one run: for its figures of FLOPs, else for its TGS.

    row: of metrics.core.run_table.METRICS; facts: accepted facts by name; rate: median tokens/s of
        one device over the lines of its figures. Empty if ours is unknown, or if the lines have
        several lengths, so that no single count of FLOPs applies.
    """
    if row["tgs"] is None or not _is_positive(rate) or audit.lengths:
        return []
    return list(_all(row, facts, formula_facts, audit, not_null(rate)))


def _is_positive(figure: float | None) -> bool:
    """Return whether a figure is positive: a counter that was set back prints others."""
    return figure is not None and figure > 0


def _all(
    row: MetricsRow,
    facts: Mapping[str, Mapping[str, Any]],
    formula_facts: FormulaFacts,
    audit: Audit,
    rate: float,
) -> Iterator[Bridge]:
    run = formula_inputs(facts, row, UtilizationResult())
    of_rate, left = _rates(row, rate)
    rate *= left
    by_formula = row["flops_source"] is None
    if run is not None and by_formula and row["flops_per_token"] is not None:
        ours = row["flops_per_token"]
        if _is_positive(row["logged_mfu"]) and row["mfu"] and _compared("logged_mfu", audit):
            counted = _counts(run, formula_facts, audit.era, "logged_mfu")
            theirs = prod(1 / f.factor for f in counted) * ours
            own_peak = not_null(row["peak_flops"])
            divisor = audit.peak_flops or own_peak
            peak = _factor("peak", divisor / own_peak, _peaks(divisor, own_peak))
            factors = (*counted, *peak, *of_rate)
            predicted = theirs * rate / divisor
            yield _bridge("logged_mfu", row["mfu"], factors, predicted, row, audit)
        if _is_positive(row["logged_tflops"]) and _compared("logged_tflops", audit):
            counted = _counts(run, formula_facts, audit.era, "logged_tflops")
            theirs = prod(1 / f.factor for f in counted) * ours
            unit = _factor("unit", 1 / audit.unit)
            predicted = theirs * rate * audit.unit / 1e12
            factors = (*unit, *counted, *of_rate)
            now = not_null(row["tgs"]) * ours / 1e12
            yield _bridge("logged_tflops", now, factors, predicted, row, audit)
    of_flops = row["logged_tflops"] or row["logged_mfu"]
    if _is_positive(row["logged_tgs"]) and not (of_flops and by_formula):
        yield _bridge("logged_tgs", not_null(row["tgs"]), of_rate, rate, row, audit)


def _compared(figure: str, audit: Audit) -> bool:
    """Return whether the framework's formula covers the figure; else no bridge exists."""
    return figure in audit.lines_by_column


def _rates(row: MetricsRow, median: float) -> tuple[tuple[Factor, ...], float]:
    """Return the factors from the median printed rate to ours, and the rest."""
    timed, left = _timed(row), token_count_factor(row)
    text = MICRO_STEP_TEXT if row["step_unit"] == "micro_step" else ""
    factors = (
        *_factor("data", timed),
        *_factor("window", not_null(row["tgs"]) / median / timed / left, text),
    )
    return factors, left


def _timed(row: MetricsRow) -> float:
    """Return the share of the steps' time that printed rates divide by.

    The tokens are the same as ours: XTuner v1 prints tokens without padding (`tgs`) beside those
    with it (`seqlen_tgs`).
    """
    waits = (row["data_share"] or 0.0) if row["rate_excludes_data"] else 0.0
    return 1.0 - waits if waits < 1 else 1.0  # a share of 1 or more says nothing


def token_count_factor(row: MetricsRow) -> float:
    """Return our rate over the log's total, if sampling cannot explain it; else 1.

    row: of metrics.core.run_table.METRICS. The printed rates may be a sample of the steps of our
        rate. A sample may be off by some, never by a half: beyond that, the two count different
        tokens. Of several ranks, most may wait for a late one's data within their timed steps, so
        their rates may include the wait.
    """
    logged = row["logged_tgs_total"]
    if logged is None or logged <= 0 or not row["tgs"]:
        return 1.0
    ratio, timed = row["tgs"] / logged, _timed(row)
    possible = (timed, 1.0) if (row["ranks"] or 1) > 1 else (timed,)
    if any(1 / MAX_RANK_TOKEN_RATIO < ratio / each < MAX_RANK_TOKEN_RATIO for each in possible):
        return 1.0
    return ratio / timed


MICRO_STEP_TEXT: Final = (
    "the logged value is a median of micro-steps, ours is total tokens / total time"
)


def _bridge(  # noqa: PLR0913, PLR0917 - its parts
    figure: str,
    ours: float,
    factors: Sequence[Factor],
    predicted: float,
    row: MetricsRow,
    audit: Audit,
) -> Bridge:
    logged: float = value_of(row, figure)
    unexplained = logged / predicted
    rounding = audit.rounding.get(figure, 0.0) / logged
    if figure != "logged_tgs":
        rounding += audit.rate_rounding
    low, high = unexplained * (1 - rounding), unexplained * (1 + rounding)
    return Bridge(
        figure=figure,
        logged=logged,
        ours=ours,
        factors=tuple(factors),
        unexplained=unexplained,
        low=low,
        high=high,
        explained=low <= 1.0 <= high and audit.reproduced is not False,
    )


def _factor(cause: str, factor: float, text: str = "") -> tuple[Factor, ...]:
    """Return the factor in a tuple, or an empty tuple if it is 1."""
    if abs(factor - 1) <= FLOAT_TOLERANCE:
        return ()
    return (Factor(cause, text or cause_text(cause, factor), factor),)


def _peaks(divisor: float, own_peak: float) -> str:
    return f"its peak {divisor / 1e12:,.4g} TFLOP/s, dense {own_peak / 1e12:,.4g}"


# --- FLOPs per token ------------------------------------------------------------------------


def _counts(
    run: FormulaInputs, formula_facts: FormulaFacts, era: Era | None, column: str = "logged_tflops"
) -> tuple[Factor, ...]:
    """Return the factors from the framework's FLOPs per token to ours, in this order.

    Each factor is of a count that has all factors before it. Empty for an unknown era.
    """
    seen = formula_facts.simplified_model()
    if era is None or seen is None or era_flops(era, seen, column) is None:
        return ()
    whole = flops_per_token(operators(run.shape, run.seq_len, attended=run.attended_pairs))
    one_sequence = flops_per_token(
        operators(run.shape, formula_facts.line_length or formula_facts.T or run.seq_len)
    )
    path = [
        ("", flops_per_token(run.operators())),
        ("trained", whole),
        ("attention", one_sequence),
    ]
    stages = era.stages_of(column)
    texts = {stage.cause: stage.text for stage in stages if stage.text}
    try:
        path += [(stage.cause, float(stage.flops(seen))) for stage in stages]
    except ShapeError:  # the causes in between cannot be separated for this model
        path.append(("experts", float(era.flops(seen, column))))
    factors: dict[str, float] = {}
    for (_, before), (cause, after) in pairwise(path):
        factors[cause] = factors.get(cause, 1.0) * before / after
    return tuple(
        f
        for cause, by in reversed(factors.items())
        for f in _factor(cause, by, texts.get(cause, ""))
    )
