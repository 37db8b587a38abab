"""A log's figure and ours, in words and in steps: what the page says of an audit and draws of it.

Plain text and frames; whoever writes HTML escapes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from fairmfu.ingest.core.schema import FACT_NAMES
from fairmfu.metrics.audit.audit import Audit
from fairmfu.metrics.audit.bridge import Bridge, Factor

from .summary import VISIBLE, times
from .verdict import counted

__all__ = [
    "LOGGED",
    "NAMED",
    "OURS",
    "STEPS",
    "UNEXPLAINED",
    "UNITS",
    "Unit",
    "bounds",
    "figure_text",
    "no_bridge",
    "proof",
    "reasons",
    "sentence",
    "steps",
    "times",
    "value_text",
    "verdict",
]

Row = Mapping[str, Any]

LOGGED, NAMED, UNEXPLAINED, OURS = "logged", "named", "unexplained", "ours"
"""Kinds of steps, in the order in which they stand in a bridge."""


@dataclass(frozen=True, slots=True)
class Unit:
    """name: of the figure; text: its unit, behind a value; axis: how an axis writes it (d3)."""

    name: str
    text: str
    axis: str


UNITS: Final = {
    "logged_mfu": Unit("MFU", "MFU", "~%"),
    "logged_tflops": Unit("TFLOP/s", "TFLOP/s per GPU", ",.4~r"),
    "logged_tgs": Unit("TGS", "tokens/s/GPU", ",.4~r"),
}

WHOLE: Final = 100
"""From here on a figure needs no decimals."""
FIVE_DIGITS: Final = 10_000
"""From here on five significant figures need none."""
MOST_NAMED: Final = 4
"""Factors that a sentence names."""


def value_text(figure: str, value: float, *, finely: bool = False) -> str:
    """A figure without its unit; finely, so that a step of a thousandth shows."""
    if figure == "logged_mfu":
        percent, digits = 100 * value, 2 if finely else 1
        return f"{percent:.{digits}f} %" if percent >= 1 else f"{percent:.{digits + 1}g} %"
    if figure == "logged_tgs" or value >= (FIVE_DIGITS if finely else WHOLE):
        return f"{value:,.0f}"
    return f"{value:#,.5g}" if finely else f"{value:.3g}"


def figure_text(figure: str, value: float) -> str:
    """A figure with its unit."""
    return f"{value_text(figure, value)} {UNITS[figure].text}"


# --- steps --------------------------------------------------------------------------------

STEPS: Final = pl.Schema(
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


def steps(bridge: Bridge) -> pl.DataFrame:
    """From the log's figure to ours, a row per step; `unexplained` is the last but one, always.

    kind: of the four; factor: by which the step multiplies; before, after: the figure, in its unit;
    low, high: where the print's rounding lets the unexplained step end, and bounds that in words
    """
    rows: list[dict[str, Any]] = [
        {"kind": LOGGED, "what": "what the log printed (median)", "after": bridge.logged}
    ]
    value = bridge.logged
    for factor in bridge.factors:
        rows.append({"kind": NAMED, "what": factor.text, "factor": factor.factor, "before": value})
        value *= factor.factor
        rows[-1]["after"] = value
    convention = "" if bridge.figure == "logged_tgs" else " (exact attention)"
    rows += [
        {
            "kind": UNEXPLAINED,
            "what": "unexplained" + (": the print's rounding" if bridge.explained else ""),
            "factor": 1 / bridge.unexplained,
            "before": value,
            "after": bridge.ours,
            "low": value / bridge.high,
            "high": value / bridge.low if bridge.low > 0 else None,
            "bounds": bounds(bridge),
        },
        {"kind": OURS, "what": f"ours{convention}", "after": bridge.ours},
    ]
    return pl.DataFrame(rows, schema=STEPS)


def bounds(bridge: Bridge) -> str:
    """Between which factors the unexplained step lies, by the rounding of the print."""
    least = times(1 / bridge.high)
    if bridge.low <= 0:
        return f"x {least} or more"
    most = times(1 / bridge.low)
    return f"x {least} to {most}" if least != most else f"x {least}"


# --- words --------------------------------------------------------------------------------


def verdict(audit: Audit) -> tuple[str, str]:
    """In a word or two whether a log's claim is reproduced, and in a sentence what that means."""
    if audit.era is None or audit.reproduced is None:
        return "not compared", f"{_why(audit)}."
    if audit.reproduced:
        return "reproduced", f"{audit.era.name} gives this, digit by digit, {_lines(audit)}."
    told = f"{audit.era.name} gives this {_lines(audit)}. {_nearest(audit)}"
    return "not reproduced", told


def sentence(row: Row, audit: Audit, bridges: Sequence[Bridge]) -> str:
    """What the log prints, by what formula, what it is by the one formula, and why."""
    said = _said(row, audit, bridges)
    if not said:
        return "The log prints no MFU, TFLOP/s or TGS of its own in a steady window."
    claim = f"The log prints {said}"
    if audit.era is None or audit.reproduced is None:
        claim += ", which could not be compared with a formula of its own"
    elif audit.reproduced:
        claim += f" by {audit.era.name} (its own formula, reproduced {_lines(audit)})"
    else:
        claim += f"; {audit.era.name}, its likeliest own formula, gives that {_lines(audit)}"
    return f"{claim}; {_ours(row, audit, bridges)}."


def proof(audit: Audit) -> list[str]:
    """What the audit proved, or what would explain the print, or why it could not be compared."""
    if audit.reproduced is None:
        return [f"Not compared: {_why(audit)}."] if audit.era or audit.why else []
    if not audit.reproduced:
        told = [f"Not reproduced. {_nearest(audit)}"]
    elif audit.proven:
        facts = ", ".join(PROVEN.get(name, name) for name in audit.proven)
        told = [f"Proven by the print: {facts}. No other usual value would have printed the same."]
    else:
        told = ["Proven by the print: nothing. Other usual values would have printed the same."]
    return told + ([f"Left out: {_why(audit)}."] if audit.why else [])


PROVEN: Final = {
    "logged_peak_flops": "the peak that it divides by",
    "logged_formula": "the version of the formula",
}
"""Facts whose names say little outside of a command line."""

COLUMNS: Final = {figure: unit.name for figure, unit in UNITS.items()} | {
    "logged_samples_per_second": "samples/s",
    "logged_lm_tflops": "TFLOP/s by Megatron-LM's formula",
    "logged_hfu": "HFU",
    "logged_total_flops": "FLOPs since the start",
    "logged_device_samples_per_second": "samples/s of one device",
    "logged_profiler_flops": "the flops profiler's FLOPS",
    "logged_profiler_samples_per_second": "the flops profiler's samples/s",
}
"""Every column of metrics.audit.logged_figures' FIGURES, for people."""


def _said(row: Row, audit: Audit, bridges: Sequence[Bridge]) -> str:
    """The figure that is spoken of; where none is of a steady window, what was compared."""
    if bridges:
        return figure_text(bridges[0].figure, bridges[0].logged)
    figure = next((name for name in UNITS if row[name] is not None), None)
    if figure is not None:
        return figure_text(figure, row[figure])
    return " and ".join(COLUMNS[name] for name in audit.by_column)


def _ours(row: Row, audit: Audit, bridges: Sequence[Bridge]) -> str:
    if not bridges:
        return no_bridge(row, audit)
    bridge = bridges[0]
    why = reasons(bridge)
    by = "ours is" if bridge.figure == "logged_tgs" else "by the one formula it is"
    ours = f"{by} {value_text(bridge.figure, bridge.ours)}"
    return ours + (f", because of {'; '.join(why)}" if why else "")


def reasons(bridge: Bridge) -> list[str]:
    """The factors that show, the largest first; how many do not; what is left."""
    seen = sorted(filter(_shows, bridge.factors), key=lambda f: -max(f.factor, 1 / f.factor))
    told = [f"{factor.text} (x {times(factor.factor)})" for factor in seen[:MOST_NAMED]]
    rest = len(bridge.factors) - len(told)
    if rest:
        within = "" if len(seen) > MOST_NAMED else f" within {VISIBLE:.2%}".replace("%", " %")
        told.append(f"{counted(rest, 'more factor')}{within}")
    left = 1 / bridge.unexplained
    if not bridge.explained:
        told.append(f"what stays unexplained (x {times(left)})")
    elif abs(left - 1) >= VISIBLE:
        told.append(f"the print's rounding (x {times(left)})")
    return told


def _shows(factor: Factor) -> bool:
    return abs(factor.factor - 1) >= VISIBLE


def no_bridge(row: Row, audit: Audit) -> str:
    """Why nothing leads from the log's figure to ours."""
    if not any(name in audit.by_column or row[name] is not None for name in UNITS):
        return "it counts neither FLOPs nor tokens, so nothing leads from it to ours"
    if audit.lengths:
        return "its lines are of several lengths, so no one count of FLOPs leads from it to ours"
    if row["tgs"] is None:
        return "it has no steady window to be compared over"
    if row["missing"]:
        return f"what it is by the one formula is not known: missing {', '.join(row['missing'])}"
    if audit.era is None:
        return "nothing leads from it to ours: no formula of its own is known"
    return "nothing leads from it to ours: the rate behind it is not known"


def _why(audit: Audit) -> str:
    """Why a run, or some column of it, was not compared."""
    why = audit.why or "what it prints follows from nothing else that it prints"
    for column in sorted(COLUMNS, key=len, reverse=True):
        why = why.replace(column, COLUMNS[column])
    columns, found, reason = why.partition(" not compared: ")
    if not found:
        return why
    wanted = set(reason.split(", ")) <= set(FACT_NAMES)
    return f"{columns}, for want of {reason}" if wanted else f"{columns}: {reason}"


def _nearest(audit: Audit) -> str:
    if audit.hypothesis is None:
        return "No other usual value, version or unit gives what it prints."
    whole = ", by which every line comes out" if audit.suspect else ""
    return f"Nearest hypothesis{whole}: {audit.hypothesis}."


def _lines(audit: Audit) -> str:
    return f"in {audit.reproduced_lines:,} of {audit.lines:,} lines"
