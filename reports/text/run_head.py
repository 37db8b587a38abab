"""First lines about a run: diagnosis, logged figure, doubts and missing facts.

`explain` and the run's part of the page show the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from fairmfu.metrics.audit.audit_results import Bridge
from fairmfu.metrics.core.messages import by_gravity
from fairmfu.metrics.core.run_table import MetricsRow

from .tabular import Formatter, count, decimal, percent

FIGURES: Final[dict[str, tuple[str, Formatter, str]]] = {
    "logged_mfu": ("MFU", percent, " (exact attention)"),
    "logged_tflops": ("TFLOP/s", decimal, " (exact attention)"),
    "logged_tgs": ("TGS", count, ""),
}
"""Name, formatter and convention of each logged figure that is led to ours."""
MIN_VISIBLE_CHANGE: Final = 5e-4


def logged_lines(bridges: Sequence[Bridge]) -> list[str]:
    """Return the line of the logged figure beside ours, with the largest reason.

    No line if no logged figure is led to ours.
    """
    if not bridges:
        return []
    bridge = bridges[0]
    name, form, _ = FIGURES[bridge.figure]
    told = f"Logged {name}: {form(bridge.logged)} (median), ours {form(bridge.ours)}"
    if not bridge.explained:
        return [f"{told}; the gap is not explained."]
    largest = max(bridge.factors, key=lambda one: abs(math.log(one.factor)), default=None)
    if largest is None or abs(largest.factor - 1) < MIN_VISIBLE_CHANGE:
        return [f"{told}."]
    large = [f for f in bridge.factors if abs(math.log(f.factor)) >= MIN_VISIBLE_CHANGE]
    head = "Largest of several reasons" if len(large) > 1 else "Reason"
    if min(f.factor for f in large) < 1 < max(f.factor for f in large):
        head += ", which partly cancel out"
    return [f"{told}. {head}: {largest.text} (x {format_factor(largest.factor)})."]


def format_factor(factor: float) -> str:
    """Return a factor with four decimals; with six if four would show 1."""
    return f"{factor:.4f}" if abs(factor - 1) >= MIN_VISIBLE_CHANGE else f"{factor:.6f}"


def doubts_and_notes(row: MetricsRow) -> tuple[list[str], list[str]]:
    """Return the warnings that may change a figure, the gravest first, and the others."""
    graver, others = by_gravity(row["warnings"] or [])
    doubted = row["doubts"] or []
    doubts = [f"Doubt: {each}" for each in others if each in doubted]
    notes = [f"Note: {each}" for each in others if each not in doubted]
    return [*graver, *doubts], notes


def missing_sentence(row: MetricsRow, facts: Sequence[str]) -> str:
    """Return what a run's log lacks, and for which figures; empty without facts.

    facts: those that would complete the run; `missing` of the run comes first
    """
    lacks = ", ".join(row["missing"] or facts)
    return f"{_asked_for(row)}the log lacks {lacks}." if lacks and facts else ""


def _asked_for(row: MetricsRow) -> str:
    """Return what the missing facts of a run are for, as the beginning of a sentence."""
    if row["tgs"] is None:
        return "No TGS and no MFU: "
    return "No MFU: " if row["mfu"] is None else "Some comparisons are left out: "
