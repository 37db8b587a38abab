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

from .claims_text import join_words
from .tabular import Formatter, count, count_noun, decimal, percent

FIGURES: Final[dict[str, tuple[str, Formatter, str]]] = {
    "logged_mfu": ("MFU", percent, " (exact attention)"),
    "logged_tflops": ("TFLOP/s", decimal, " (exact attention)"),
    "logged_tgs": ("TGS", count, ""),
}
"""Name, formatter and convention of each logged figure that is led to ours."""
MIN_VISIBLE_CHANGE: Final = 5e-4
MAX_NAMED_REASONS: Final = 2
"""Most reasons for a gap in the first lines; the table has all."""


def logged_lines(bridges: Sequence[Bridge]) -> list[str]:
    """Return the line of the logged figure beside ours, with the largest reasons.

    No line if no logged figure is led to ours. A remainder is named only if it is visible, also
    where the last digits of the log are not reproduced.
    """
    if not bridges:
        return []
    bridge = bridges[0]
    name, form, _ = FIGURES[bridge.figure]
    told = f"Logged {name}: {form(bridge.logged)} (median), ours {form(bridge.ours)}"
    large = sorted(
        (one for one in bridge.factors if abs(math.log(one.factor)) >= MIN_VISIBLE_CHANGE),
        key=lambda one: -abs(math.log(one.factor)),
    )
    reasons = [f"{one.text} (x {format_factor(one.factor)})" for one in large[:MAX_NAMED_REASONS]]
    if len(large) > MAX_NAMED_REASONS:
        reasons.append(count_noun(len(large) - MAX_NAMED_REASONS, "smaller one"))
    left = 1 / bridge.unexplained
    is_left = not bridge.explained and abs(math.log(left)) >= MIN_VISIBLE_CHANGE
    if not reasons:
        return [f"{told}; the gap is not explained." if is_left else f"{told}."]
    head = "Reasons" if len(reasons) > 1 else "Reason"
    rest = f" The rest is not explained (x {format_factor(left)})." if is_left else ""
    return [f"{told}. {head}: {join_words(reasons)}.{rest}"]


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
