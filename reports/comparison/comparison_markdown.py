"""Comparison of runs as Markdown, for a pull request and a job summary.

Blank lines around every table and list: GitHub renders them without, Python-Markdown does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

import polars as pl

from fairmfu.metrics.compare.comparability import head_differences
from fairmfu.metrics.compare.comparison_row import ComparisonRow
from fairmfu.metrics.core.run_table import value_of

from ..text.claims_text import differences_text
from ..text.markdown import MARKDOWN_STYLE
from ..text.run_narrative import BAD_OUTCOMES, OUTCOME_LABELS
from ..text.summary import comparison_frames, unranked_pair
from ..text.tabular import GIB, count, decimal, percent, render_frame, signed_percent
from ..text.verdict import Verdict, group_verdict, no_ranking_reason, pair_verdict, ranked_groups
from .speed_change import (
    FASTER,
    GATE_PASSED,
    GATE_UNDECIDED,
    SAME,
    SLOWER,
    UNKNOWN,
    GateResult,
    SpeedChange,
)

RED, YELLOW, GREEN, WHITE = (
    "\N{LARGE RED CIRCLE}",
    "\N{LARGE YELLOW CIRCLE}",
    "\N{LARGE GREEN CIRCLE}",
    "\N{MEDIUM WHITE CIRCLE}",
)
SIGNS: Final = {SLOWER: RED, FASTER: GREEN, SAME: WHITE, UNKNOWN: YELLOW}
"""Sign of a direction without a gate."""

HEADING_STYLE: Final = replace(
    MARKDOWN_STYLE, name=lambda row: MARKDOWN_STYLE.plain(str(row["label"])), strong=str
)
"""Style of a heading, which is bold as a whole."""

FIGURES: Final[Sequence[tuple[str, str, Callable[[Any], str]]]] = (
    ("tgs", "tokens/s/GPU", count),
    ("tgs_end_to_end", "tokens/s/GPU, end to end", count),
    ("seconds_per_step", "seconds per step", "{:.4g}".format),
    ("mfu", "MFU, exact attention", percent),
    ("peak_memory_bytes", "peak memory, GiB", lambda size: f"{size / GIB:.1f}"),
    ("loss_at_equal_tokens", "loss at equal tokens", "{:#.4g}".format),
    ("logged_tflops", "logged TFLOP/s", decimal),
    ("logged_mfu", "logged MFU", percent),
)
"""Rows of the table of a head and its base: column of metrics, label, formatter."""

NO_RATIO: Final = ("loss_at_equal_tokens", "logged_tflops", "logged_mfu")
"""Names of FIGURES without a relative change: logs print by their own formulas."""


def comparison_markdown(ranked: pl.DataFrame, rows: Sequence[ComparisonRow]) -> str:
    """Return each group with its verdict, tables and notes, then runs without a rank.

    ranked, rows: of reports.comparison.comparison.Comparison
    """
    frames = comparison_frames(ranked, rows, "markdown")
    two = unranked_pair(rows, MARKDOWN_STYLE)
    parts = [] if two is None else [two.says, _notes(two)]
    for group in ranked_groups(rows):
        label = str(group[0]["group"])
        made_up = " (synthetic)" if any(row["synthetic"] for row in group) else ""
        found = group_verdict(group, MARKDOWN_STYLE)
        parts += [f"### {MARKDOWN_STYLE.plain(label)}{made_up}", f"{found.sentence}"]
        parts += [*frames.pop(label, ()), _notes(found, _all_differences(group))]
    if not parts:
        parts.append(" ".join(no_ranking_reason(rows)))
    for tables in frames.values():
        parts += ["### Not ranked", *tables]
    return "\n\n".join(filter(None, parts))


def _all_differences(group: Sequence[ComparisonRow]) -> str:
    differs = group[0]["differs"]
    return MARKDOWN_STYLE.plain(differences_text(differs)) if differs else ""


def change_heading(change: SpeedChange, result: GateResult | None = None) -> str:
    """Return the heading of a change, and the result of a gate below it."""
    said = "" if result is None else f"\n\n{result.sentence} Exit code {result.code}."
    return f"### {_sign(change, result)} {change.sentence(HEADING_STYLE)}{said}"


def change_markdown(change: SpeedChange, result: GateResult | None = None) -> str:
    """Return the change from base to head, direction first.

    result: of the gate, as of `speed_change.gate` with MARKDOWN_STYLE; None without a gate
    """
    found = _verdict(change)
    parts = [
        change_heading(change, result),
        found.says if change.gap is None and result is None else "",
        *_alarms(change),
        _figures(change),
        _differences(change),
        "Notes:",
        _notes(found),
        _group(change),
    ]
    return "\n\n".join(filter(None, parts))


def _sign(change: SpeedChange, result: GateResult | None) -> str:
    """Return red for a failure, yellow for a doubt or an allowed slow-down."""
    if result is None or result.code == GATE_PASSED:
        allowed = result is not None and change.direction == SLOWER
        return RED if change.head_failed else YELLOW if allowed else SIGNS[change.direction]
    return YELLOW if result.code == GATE_UNDECIDED else RED


def _alarms(change: SpeedChange) -> list[str]:
    """Return failures, different losses and doubts about a rate, as a list."""
    both = (change.base, change.head)
    found = []
    for row in both:
        name = MARKDOWN_STYLE.name(row)
        if row["outcome"] in BAD_OUTCOMES:
            line = MARKDOWN_STYLE.plain(row["outcome_text"] or OUTCOME_LABELS[row["outcome"]])
            found.append(f"{name} failed: {line}")
        found += [f"Doubt about {name}: {MARKDOWN_STYLE.plain(words)}" for words in row["doubts"]]
    if any(row["same_loss"] is False for row in both):
        found.insert(0, "**Their losses differ**, so they may not have trained the same way.")
    return ["\n".join(f"- {words}" for words in found)] if found else []


def _figures(change: SpeedChange) -> str:
    """Return the figures of both runs and their relative change, as a table."""
    head, base = change.head, change.base
    rows = []
    for name, label, text in FIGURES:
        values = [value_of(row, name) for row in (base, head)]
        if values == [None, None]:
            continue
        old, new = values
        known = change.gap is not None and old and new and name not in NO_RATIO
        cells = [None if value is None else text(value) for value in values]
        rows.append((label, *cells, signed_percent(new / old) if known else None))
    columns = ["figure", "base", "head", "change"]
    frame = pl.DataFrame(rows, schema=dict.fromkeys(columns, pl.String()), orient="row")
    names = {"base": f"base: {base['label']}", "head": f"head: {head['label']}"}
    shown = [name for name in columns if frame[name].null_count() < frame.height]
    return render_frame(frame, "markdown", {name: (names.get(name, name), str) for name in shown})


def _differences(change: SpeedChange) -> str:
    found = head_differences(change.base, change.head)
    if not found:
        return "What differs: nothing that the logs state."
    return "\n".join(
        ["What differs, base to head:", "", *(f"- {MARKDOWN_STYLE.plain(one)}" for one in found)]
    )


def _verdict(change: SpeedChange) -> Verdict:
    if change.gap is None:
        return pair_verdict(change.base, change.head, MARKDOWN_STYLE)
    fastest = sorted((change.base, change.head), key=lambda row: row["rank"] or 0)
    return group_verdict(fastest, MARKDOWN_STYLE)


def _notes(verdict: Verdict, *more: str) -> str:
    return "\n".join(f"- {note}" for note in (*verdict.notes, *more) if note)


def _group(change: SpeedChange) -> str:
    """Return what the two runs have in common, and the formula."""
    made_up: Iterable[str] = {" (synthetic)"} if change.head["synthetic"] else ()
    same = MARKDOWN_STYLE.plain(str(change.head["group"])) if change.gap is not None else ""
    formula = f"Formula {MARKDOWN_STYLE.plain(str(change.head['formula']))}."
    return f"Both: {same}{''.join(made_up)}. {formula}" if same else formula
