"""Texts and steps from a log's figure to ours, as the page shows and draws them.

Plain text and frames; writers of HTML must escape the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from fairmfu.metrics.audit.audit_results import Audit, Bridge, Factor
from fairmfu.metrics.core.run_table import MetricsRow, value_of

from .run_explained import not_compared_reason
from .run_head import MIN_VISIBLE_CHANGE, format_factor
from .tabular import count_noun

__all__ = [
    "BRIDGE_SCHEMA",
    "FIGURE_UNITS",
    "STEP_FACTOR",
    "STEP_LOGGED",
    "STEP_OURS",
    "STEP_UNEXPLAINED",
    "Unit",
    "audit_verdict",
    "bridge_frame",
    "claim_sentence",
    "factor_reasons",
    "figure_text",
    "format_factor",
    "no_bridge_reason",
    "proof_sentences",
    "unexplained_bounds",
    "value_text",
]

STEP_LOGGED, STEP_FACTOR, STEP_UNEXPLAINED, STEP_OURS = "logged", "named", "unexplained", "ours"
"""Kinds of steps, in the order of a bridge."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Unit of a figure.

    name: of the figure; text: its unit, after a value; axis: format on an axis (d3)
    """

    name: str
    text: str
    axis: str


FIGURE_UNITS: Final = {
    "logged_mfu": Unit("MFU", "MFU", "~%"),
    "logged_tflops": Unit("TFLOP/s", "TFLOP/s per GPU", ",.4~r"),
    "logged_tgs": Unit("TGS", "tokens/s/GPU", ",.4~r"),
}

MIN_WHOLE_FIGURE: Final = 100
"""Figures from which on no decimals are needed."""
MIN_WHOLE_PRECISE_FIGURE: Final = 10_000
"""Figures from which on five significant digits need no decimals."""
MAX_NAMED_FACTORS: Final = 4
"""Most factors named in a sentence."""


def value_text(figure: str, value: float, *, precise: bool = False) -> str:
    """Return a figure without its unit; precise: show a step of a thousandth."""
    if figure == "logged_mfu":
        percent, digits = 100 * value, 2 if precise else 1
        return f"{percent:.{digits}f} %" if percent >= 1 else f"{percent:.{digits + 1}g} %"
    if figure == "logged_tgs" or value >= (
        MIN_WHOLE_PRECISE_FIGURE if precise else MIN_WHOLE_FIGURE
    ):
        return f"{value:,.0f}"
    return f"{value:#,.5g}" if precise else f"{value:.3g}"


def figure_text(figure: str, value: float) -> str:
    """Return a figure with its unit."""
    return f"{value_text(figure, value)} {FIGURE_UNITS[figure].text}"


# --- steps --------------------------------------------------------------------------------

BRIDGE_SCHEMA: Final = pl.Schema(
    {
        "kind": pl.String,
        "what": pl.String,
        "factor": pl.Float64,
        "before": pl.Float64,
        "after": pl.Float64,
        "low": pl.Float64,
        "high": pl.Float64,
        "bounds": pl.String,
    }
)


def bridge_frame(bridge: Bridge) -> pl.DataFrame:
    """Return the steps from the log's figure to ours; `unexplained` is second to last.

    kind: one of four; factor: multiplies the figure; before, after: the figure, in its unit; low,
        high: bounds of the unexplained step's end, from the print's rounding; bounds: these in
        words
    """
    rows: list[dict[str, Any]] = [
        {"kind": STEP_LOGGED, "what": "logged (median)", "after": bridge.logged}
    ]
    value = bridge.logged
    for factor in bridge.factors:
        rows.append(
            {"kind": STEP_FACTOR, "what": factor.text, "factor": factor.factor, "before": value}
        )
        value *= factor.factor
        rows[-1]["after"] = value
    convention = "" if bridge.figure == "logged_tgs" else " (exact attention)"
    rows += [
        {
            "kind": STEP_UNEXPLAINED,
            "what": "rounding of the logged figure" if bridge.explained else "unexplained",
            "factor": 1 / bridge.unexplained,
            "before": value,
            "after": bridge.ours,
            "low": value / bridge.high,
            "high": value / bridge.low if bridge.low > 0 else None,
            "bounds": unexplained_bounds(bridge),
        },
        {"kind": STEP_OURS, "what": f"ours{convention}", "after": bridge.ours},
    ]
    return pl.DataFrame(rows, schema=BRIDGE_SCHEMA)


def unexplained_bounds(bridge: Bridge) -> str:
    """Return the bounds of the unexplained factor, from the print's rounding."""
    least = format_factor(1 / bridge.high)
    if bridge.low <= 0:
        return f"x {least} or more"
    most = format_factor(1 / bridge.low)
    return f"x {least} to {most}" if least != most else f"x {least}"


# --- words --------------------------------------------------------------------------------


def audit_verdict(audit: Audit) -> tuple[str, str]:
    """Return whether a log's claim is reproduced, in a word, then in a sentence."""
    if audit.era is None or audit.reproduced is None:
        return "not compared", f"{_why(audit)}."
    if audit.reproduced:
        return "reproduced", f"{audit.era.name} reproduces every digit {_lines(audit)}."
    told = f"{audit.era.name} reproduces it only {_lines(audit)}. {_nearest(audit)}"
    return "not reproduced", told


def claim_sentence(row: MetricsRow, audit: Audit, bridges: Sequence[Bridge]) -> str:
    """Return the logged figure with its formula, ours, and the reasons for the gap."""
    said = _logged_figure(row, audit, bridges)
    if not said:
        return "The log prints no MFU, TFLOP/s or TGS in a steady window."
    claim = f"The log prints {said}"
    if audit.era is None or audit.reproduced is None:
        claim += ", not compared with a formula of the framework"
    elif audit.reproduced:
        claim += f" by {audit.era.name} (the framework's formula, reproduced {_lines(audit)})"
    else:
        claim += f"; {audit.era.name}, its most likely formula, reproduces it {_lines(audit)}"
    return f"{claim}; {_ours(row, audit, bridges)}."


def proof_sentences(audit: Audit) -> list[str]:
    """Return the audit's proofs, or the hypothesis, or why nothing was compared."""
    if audit.reproduced is None:
        return [f"Not compared: {_why(audit)}."] if audit.era or audit.not_compared_reason else []
    if not audit.reproduced:
        told = [f"Not reproduced. {_nearest(audit)}"]
    elif audit.proven:
        facts = ", ".join(PROVEN_LABELS.get(name, name) for name in audit.proven)
        told = [f"Confirmed by the logged figures: {facts}. No other common value reproduces them."]
    else:
        told = ["Confirmed by the logged figures: nothing. Other common values reproduce them."]
    if audit.reproduced and (fits := audit.fitting_text):
        told.append(f"Not confirmed, because other values fit too: {fits}.")
    return told + ([f"Not compared: {_why(audit)}."] if audit.not_compared_reason else [])


PROVEN_LABELS: Final = {
    "logged_peak_flops": "its peak FLOP/s",
    "logged_formula": "formula version",
}
"""Labels of facts whose names mean little outside of a command line."""

COLUMN_LABELS: Final = {figure: unit.name for figure, unit in FIGURE_UNITS.items()} | {
    "logged_samples_per_second": "samples/s",
    "logged_lm_tflops": "TFLOP/s by Megatron-LM's formula",
    "logged_hfu": "HFU",
    "logged_total_flops": "FLOPs since the start",
    "logged_device_samples_per_second": "samples/s of one GPU",
    "logged_profiler_flops": "the flops profiler's FLOPS",
    "logged_profiler_samples_per_second": "the flops profiler's samples/s",
}
"""Labels of every column of metrics.audit.logged_figures.LOGGED_FIGURES."""


def _logged_figure(row: MetricsRow, audit: Audit, bridges: Sequence[Bridge]) -> str:
    """Return the logged figure; if no steady window has one, the compared columns."""
    if bridges:
        return figure_text(bridges[0].figure, bridges[0].logged)
    figure = next((name for name in FIGURE_UNITS if value_of(row, name) is not None), None)
    if figure is not None:
        return figure_text(figure, value_of(row, figure))
    return " and ".join(COLUMN_LABELS[name] for name in audit.lines_by_column)


def _ours(row: MetricsRow, audit: Audit, bridges: Sequence[Bridge]) -> str:
    if not bridges:
        return no_bridge_reason(row, audit)
    bridge = bridges[0]
    why = factor_reasons(bridge)
    ours = f"ours is {value_text(bridge.figure, bridge.ours)}"
    return ours + (f". Reasons: {'; '.join(why)}" if why else "")


def factor_reasons(bridge: Bridge) -> list[str]:
    """Return the visible factors, the largest first, a count of others, and the rest."""
    seen = sorted(filter(_shows, bridge.factors), key=lambda f: -max(f.factor, 1 / f.factor))
    told = [
        f"{factor.text} (x {format_factor(factor.factor)})" for factor in seen[:MAX_NAMED_FACTORS]
    ]
    rest = len(bridge.factors) - len(told)
    if rest:
        each = "" if rest == 1 else ", each"
        within = (
            ""
            if len(seen) > MAX_NAMED_FACTORS
            else f"{each} below {MIN_VISIBLE_CHANGE:.2%}".replace("%", " %")
        )
        told.append(f"{count_noun(rest, 'more factor' if told else 'factor')}{within}")
    left = 1 / bridge.unexplained
    if not bridge.explained:
        told.append(f"unexplained (x {format_factor(left)})")
    elif abs(left - 1) >= MIN_VISIBLE_CHANGE:
        told.append(f"rounding of the logged figure (x {format_factor(left)})")
    return told


def _shows(factor: Factor) -> bool:
    return abs(factor.factor - 1) >= MIN_VISIBLE_CHANGE


def no_bridge_reason(row: MetricsRow, audit: Audit) -> str:
    """Return why nothing leads from the log's figure to ours."""
    if not any(
        name in audit.lines_by_column or value_of(row, name) is not None for name in FIGURE_UNITS
    ):
        return "not comparable with ours: it counts neither FLOPs nor tokens"
    if audit.lengths:
        return "not comparable with ours: sequence lengths, and so FLOPs per token, vary by line"
    if row["tgs"] is None:
        return "not comparable with ours: our TGS is unknown"
    if row["missing"]:
        return f"our figure is unknown: missing {', '.join(row['missing'])}"
    if audit.era is None:
        return "not comparable with ours: the formula of the framework is unknown"
    return "not comparable with ours: the rate that it uses is unknown"


def _why(audit: Audit) -> str:
    """Return why a run, or some column of it, was not compared."""
    why = not_compared_reason(audit)
    for column in sorted(COLUMN_LABELS, key=len, reverse=True):
        why = why.replace(column, COLUMN_LABELS[column])
    return why.replace(" not compared: ", ": ")


def _nearest(audit: Audit) -> str:
    if audit.hypothesis is None:
        return "No other common value, version or unit reproduces it."
    whole = " (reproduces every line)" if audit.suspect else ""
    return f"Nearest hypothesis{whole}: {audit.hypothesis}."


def _lines(audit: Audit) -> str:
    return f"in {audit.reproduced_lines:,} of {audit.lines:,} lines"
