"""Runs in words: outcome, confidence in the rate, lost time."""

from __future__ import annotations

from typing import Final

from fairmfu.metrics.core.run_table import MetricsRow, TimeLost, not_null

from .tabular import percent

MIN_RANK_STEPS: Final = 20
"""Fewest steps of all ranks for a meaningful share of the slowest rank."""


def outcome_sentence(row: MetricsRow) -> str:
    """Return the outcome of a launch, its predecessor, repeated steps and rank spread."""
    text, outcome = row["outcome_text"], row["outcome"] or ""
    said = f' ("{text[:MAX_OUTCOME_TEXT]}")' if text and outcome != "completed" else ""
    parts = [f"Outcome: {OUTCOME_LABELS.get(outcome, 'unknown')}{said}"]
    if row["continues"]:
        parts.append(f"continues run {row['continues']}")
    if row["repeated_steps"]:
        parts.append(f"{row['repeated_steps']:,} of its logged steps were trained again later")
    if row["rank_spread"] is not None:
        parts.append(_ranks(row))
    if row["bound"] == "data":
        share = whole_percent(not_null(row["data_share"]))
        parts.append(f"data-bound: {share} of a step is waiting for data")
    return "; ".join(parts) + "."


def _ranks(row: MetricsRow) -> str:
    ranks, steps = not_null(row["ranks"]), row["rank_steps"]
    text = f"{ranks} ranks print, {percent(not_null(row['rank_spread']))} apart in step time"
    if row["slowest_rank"] is None or not_null(steps) < MIN_RANK_STEPS:
        return text
    share, chance = whole_percent(not_null(row["slowest_share"])), whole_percent(1 / ranks)
    return (
        f"{text}, rank {row['slowest_rank']} the slowest in {share} of {steps:,} "
        f"steps (by chance {chance})"
    )


OUTCOME_LABELS: Final = {
    "completed": "completed",
    "out_of_memory": "out of memory",
    "crashed": "crashed",
    "killed": "killed",
    "nan_loss": "the loss is not a number",
    "incomplete": "the log stops without saying why",
}
MAX_OUTCOME_TEXT: Final = 160

END_TO_END: Final = {
    "stamp from start": "from the start of training, time by stamps",
    "clock from start": "from the start of training, time by the clock that its lines print",
    "stamp and first line": "from the start of training: the first line's own time, then stamps",
    "runtime": "over the run time that the log prints",
    "printed samples/s": "by the samples/s of the log's last line, start-up included",
    "stamp": "from the first line of a step on, time by stamps",
}


def end_to_end_words(row: MetricsRow) -> str:
    """Return the scope of the end-to-end rate."""
    basis = row["end_to_end_basis"] or ""
    kind, from_start, _ = basis.partition(" from start")
    since = "the start of training" if from_start else "the first line of a step on"
    return END_TO_END.get(basis, f"from {since}, time by {kind}")


def confidence_text(row: MetricsRow) -> str:
    """Return how many windows the interval comes from, or why there is none."""
    if row["no_interval"] is not None:
        return f"no interval: {row['no_interval']}"
    if row["effective_windows"] is None:
        return ""
    windows, effective = f"{row['windows']:,}", f"{row['effective_windows']:,.0f}"
    if windows == effective:
        return f"of {windows} windows"
    return f"of {windows} windows, as good as {effective} independent"


def goodput_words(row: MetricsRow) -> str:
    """Return the scope of the goodput: one launch, or a chain of launches."""
    count = row["goodput_launches"]
    chain = f", {count:,} launches up to this one" if count and count > 1 else ""
    lost = ""
    if row["lost_to_restarts_s"]:
        lost = f"; {seconds_text(row['lost_to_restarts_s'])} lost to restarts"
    share = "" if row["goodput_share"] is None else f"{percent(row['goodput_share'])} of steady; "
    return f"{share}tokens that count over all of the wall time{chain}{lost}"


def time_spent(row: MetricsRow) -> list[TimeLost]:
    """Return the wall time by cause: windows, seconds and share.

    Steady training comes first.
    """
    lost = row["time_lost"] or []
    if row["wall_s"] is None or not lost:
        return []
    share = 1 - sum(each["share"] for each in lost)
    seconds = share * row["wall_s"]
    steady: TimeLost = {
        "cause": "steady training",
        "windows": None,
        "seconds": seconds,
        "share": share,
    }
    return [steady, *lost]


def time_rows(row: MetricsRow) -> list[dict[str, str]]:
    """Return the rows of `time_spent` as texts."""
    return [
        {
            "cause": each["cause"],
            "windows": f"{each['windows']:,}" if each["windows"] else "",
            "time": seconds_text(each["seconds"]),
            "share": percent(each["share"]),
        }
        for each in time_spent(row)
    ]


def whole_percent(share: float) -> str:
    """Return 0.254 as 25 %."""
    return f"{100 * share:.0f} %"


MINUTE: Final = 60.0
HOUR: Final = 3600.0


def seconds_text(seconds: float) -> str:
    """Return a time in its usual unit: 8.41 s, 12.3 min, 31.0 h."""
    if seconds >= HOUR:
        return f"{seconds / HOUR:,.1f} h"
    if seconds >= MINUTE:
        return f"{seconds / MINUTE:.1f} min"
    return f"{seconds:.3g} s"
