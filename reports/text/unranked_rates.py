"""Ratio of the rates of runs without a TGS, with their facts.

The ratio is no verdict: with unknown tokens a step may be other work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final, cast

from fairmfu.metrics.compare.comparability import PairVerdict
from fairmfu.metrics.compare.comparison_row import STATED_BY_SOME, ComparisonRow
from fairmfu.metrics.compare.repeated_runs import SpeedRatio, comparison_sides, speed_ratio
from fairmfu.metrics.core.run_table import not_null
from fairmfu.metrics.core.run_words import timed_word

from .claims_text import join_words
from .run_narrative import step_seconds
from .tabular import decimal

ALIKE: Final = "No other fact that both logs state differs."
SAMPLES_UNKNOWN: Final = "the samples of a step are unknown"


def has_step_ratio(run: ComparisonRow, other_run: ComparisonRow) -> bool:
    """Return whether steps of two runs may be compared, without their tokens.

    Seconds per step compare only logs of one format; samples/s any. Known models have to be equal.
    """
    both = (run, other_run)
    if any(row["tgs"] or not row["seconds_per_step"] for row in both):
        return False
    models = {row["work"] or row["model"] for row in both} - {None}
    if len(models) > 1 or run["synthetic"] != other_run["synthetic"]:
        return False
    same_lines = (
        run["log_format"] == other_run["log_format"] and len(set(map(timed_word, both))) == 1
    )
    return same_lines or all(row["samples_per_second"] for row in both)


def step_ratio(fast: ComparisonRow, slow: ComparisonRow) -> SpeedRatio:
    """Return the ratio of samples/s over all GPUs, or else of steps per second."""
    sides = [comparison_sides([_rated(row, _by_samples(fast, slow))])[0] for row in (fast, slow)]
    return speed_ratio(*sides)


def _by_samples(*rows: ComparisonRow) -> bool:
    return all(row["samples_per_second"] for row in rows)


def _rated(row: ComparisonRow, by_samples: bool) -> ComparisonRow:  # noqa: FBT001 - of a pair
    """Return a row whose rate is that of its steps, with their interval."""
    seconds = not_null(row["seconds_per_step"])
    rate = not_null(row["samples_per_second"]) if by_samples else 1 / seconds
    low, high = row["seconds_per_step_low"], row["seconds_per_step_high"]
    rates: dict[str, Any] = {
        "ranked_rate": rate,
        "ranked_low": high and rate * seconds / high,
        "ranked_high": low and rate * seconds / low,
        "setup": None,
    }
    return cast(ComparisonRow, {**row, **rates})


def rate_unit(*rows: ComparisonRow) -> str:
    """Return the unit of the rates that `step_ratio` compares."""
    return "samples/s over all GPUs" if _by_samples(*rows) else "steps/s"


def rate_words(fast: ComparisonRow, slow: ComparisonRow) -> str:
    """Return the rates of two runs, or the times of their steps."""
    if _by_samples(fast, slow):
        rates = [decimal(not_null(row["samples_per_second"])) for row in (fast, slow)]
        return f"{rates[0]} against {rates[1]}"
    times = [step_seconds(not_null(row["seconds_per_step"])) for row in (fast, slow)]
    return f"{times[0]} a step against {times[1]}; {SAMPLES_UNKNOWN}"


def ratios_to_fastest(rows: Sequence[ComparisonRow]) -> list[str]:
    """Return sentences on runs of one format and model, against the fastest."""
    alike = defaultdict[tuple[object, ...], list[ComparisonRow]](list)
    for row in rows:
        if has_step_ratio(row, row):
            alike[row["log_format"], row["work"] or row["model"]].append(row)
    several = sorted((of for of in alike.values() if len(of) > 1), key=len, reverse=True)
    return [_to_fastest(of) for of in several[:MAX_SENTENCES]]


MAX_SENTENCES: Final = 3
MAX_NAMED: Final = 8
"""Runs named against the fastest."""


def _to_fastest(rows: Sequence[ComparisonRow]) -> str:
    by_samples = _by_samples(*rows)
    speeds = {row["run_id"]: not_null(_rated(row, by_samples)["ranked_rate"]) for row in rows}
    first, *others = sorted(rows, key=lambda row: -speeds[row["run_id"]])
    told = [
        f"{row['label']} {speeds[row['run_id']] / speeds[first['run_id']]:.3f}x"
        for row in others[:MAX_NAMED]
    ]
    more = [f"{len(others) - MAX_NAMED} more"] if len(others) > MAX_NAMED else []
    basis = rate_unit(*rows) if by_samples else f"steps/s ({SAMPLES_UNKNOWN})"
    return (
        f"By {basis}, against {first['label']}: {', '.join([*told, *more])}. No winner is claimed: "
        f"the work of a step may differ. For two runs with their facts: fairmfu compare RUN RUN."
    )


def facts_of_pair(run: ComparisonRow, other_run: ComparisonRow, pair: PairVerdict) -> list[str]:
    """Return sentences on different facts, missing facts and reasons, in this order."""
    context = [words for words in pair.context if not words.startswith(STATED_BY_SOME)]
    differ = [*dict.fromkeys((*pair.differences, *context))]
    missing = [*dict.fromkeys([*(run["missing"] or ()), *(other_run["missing"] or ())])]
    notes = [f"Facts that differ: {'; '.join(differ)}." if differ else ALIKE]
    if missing:
        notes.append(f"Missing facts: {', '.join(missing)}. Fix: fairmfu set RUN NAME=VALUE.")
    return [*notes, f"Reasons: {_reasons((run, other_run))}."]


def _reasons(rows: Sequence[ComparisonRow]) -> str:
    """Return the reasons why runs have no rank, each once with its runs."""
    by_reason = defaultdict[str, list[str]](list)
    for row in rows:
        for reason in row["not_ranked"]:
            by_reason[reason.removesuffix(".")].append(str(row["label"]))
    return "; ".join(f"{join_words(names)}: {reason}" for reason, names in by_reason.items())
