"""The sentence: who is faster, by how much, how sure, and what the logs said instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from metrics.fairness import ratio_interval

SAME: Final = 0.005
"""Rates that differ by less, with overlapping intervals, are called equal."""

MOST_NAMED: Final = 3


def verdicts(comparison: pl.DataFrame) -> list[str]:
    """One text per group of like-for-like runs, in the order of `metrics.fairness.compare`."""
    ranked = comparison.filter(pl.col("group").is_not_null())
    groups = ranked.group_by("group", maintain_order=True)
    return [_verdict(str(group), rows.to_dicts()) for (group,), rows in groups]


def _verdict(group: str, rows: list[dict[str, Any]]) -> str:
    best = rows[0]
    made_up = " (synthetic)" if any(row["synthetic"] for row in rows) else ""
    head = f"{group}{made_up}: "
    if len(rows) == 1:
        return f"{head}{best['name']} alone, {best['tgs']:,.0f} tokens/s/GPU{_mfu(best)}."
    spread = 1 - rows[-1]["tgs"] / best["tgs"]
    if spread < SAME and all(row["tied_with_best"] for row in rows):
        return head + _equal(rows, spread)
    tied = [row for row in rows if row["tied_with_best"]]
    if len(tied) > 1:
        return head + _not_told_apart(rows, tied)
    second = rows[1]
    return (
        f"{head}{best['name']} is fastest with {best['tgs']:,.0f} tokens/s/GPU{_mfu(best)}, "
        f"{best['tgs'] / second['tgs']:.2f}x {second['name']}{_sureness(best, second)}."
    )


def _equal(rows: list[dict[str, Any]], spread: float) -> str:
    """The point of the tool: one speed, and logs that print several."""
    text = (
        f"all {len(rows)} runs are equally fast, {rows[0]['tgs']:,.0f} tokens/s/GPU"
        f"{_mfu(rows[0])}, within {_tiny(spread)}"
    )
    claims = sorted({round(row["logged_tflops"]) for row in rows if row["logged_tflops"]})
    if len(claims) > 1:
        printed = " and ".join(f"{claim:,}" for claim in claims)
        text += f"; their logs print {printed} TFLOP/s per GPU"
    return f"{text}."


def _not_told_apart(rows: list[dict[str, Any]], tied: list[dict[str, Any]]) -> str:
    names = [row["name"] for row in tied[:MOST_NAMED]]
    more = f" and {len(tied) - MOST_NAMED} more" if len(tied) > MOST_NAMED else ""
    text = (
        f"{' and '.join(names)}{more} cannot be told apart "
        f"(95 % intervals overlap; {tied[-1]['tgs']:,.0f} to {tied[0]['tgs']:,.0f} tokens/s/GPU)"
    )
    slower = [row for row in rows if not row["tied_with_best"]]
    if slower:
        text += f"; the next, {slower[0]['name']}, has {slower[0]['relative_tgs']:.0%} of the best"
    return f"{text}."


def _sureness(best: dict[str, Any], second: dict[str, Any]) -> str:
    interval = ratio_interval(best, second)
    if interval is None:
        return " (too few windows for an interval)"
    return f" (95 % interval {interval[0]:.2f}x to {interval[1]:.2f}x)"


def _mfu(row: dict[str, Any]) -> str:
    return "" if row["mfu"] is None else f" (MFU {row['mfu']:.1%}, exact attention)"


def _tiny(spread: float) -> str:
    return f"{spread:.2%}" if spread >= 0.0001 else "0.01%"  # noqa: PLR2004 - two decimals


def how_it_went(row: Mapping[str, Any]) -> str:
    """How a launch ended, what it continues, what was trained again and how its ranks differ."""
    quoted = row["outcome_text"] and row["outcome"] != "completed"
    said = f' ("{row["outcome_text"][:MOST_QUOTED]}")' if quoted else ""
    parts = [f"Outcome: {ENDED.get(row['outcome'], 'unknown')}{said}"]
    if row["continues"]:
        parts.append(f"continues run {row['continues']}")
    if row["repeated_steps"]:
        parts.append(f"{row['repeated_steps']:,} of its logged steps were trained again later")
    if row["rank_spread"] is not None:
        parts.append(f"{row['ranks']} ranks print, {row['rank_spread']:.1%} apart in step time")
    return "; ".join(parts) + "."


ENDED: Final = {
    "completed": "completed",
    "out_of_memory": "out of memory",
    "crashed": "crashed",
    "killed": "killed",
    "nan_loss": "the loss is not a number",
    "incomplete": "the log stops without saying why",
}
MOST_QUOTED: Final = 160
