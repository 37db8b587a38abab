"""Table of docs/statistics.md: the coverage of the interval of a knob's effect.

make effects
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from fairmfu.metrics.compare.studies import find_studies
from fairmfu.metrics.core.intervals import Estimate
from tests.metrics.compare.test_studies import rows_of
from tests.support.simulated import Simulation

EFFECT = 1.034
PAIRS = 1000
BETWEEN = (0.0, 0.002, 0.01)
"""Relative scatter between runs of one setting, as a standard deviation."""
REPEATS = (1, 3, 5)


def main() -> None:
    """Print the table."""
    print("| runs of each setting | " + " | ".join(f"runs scatter by {b:.1%}" for b in BETWEEN))
    print("| --- " * (1 + len(BETWEEN)) + "|")
    for repeats in REPEATS:
        cells = [f"{coverage(repeats, between):.1%}" for between in BETWEEN]
        print(f"| {repeats} | " + " | ".join(cells) + " |")


def coverage(repeats: int, between: float, pairs: int = PAIRS) -> float:
    """Return the share of intervals of an effect that hold it."""
    law = Simulation(windows=41, autocorrelation=0.3)
    runs = iter(_runs(law, 2 * pairs * repeats, between))
    hits = []
    for _ in range(pairs):
        plain = [_row(next(runs), 1.0) for _ in range(repeats)]
        tuned = [_row(next(runs), EFFECT) | {"precision": "fp8"} for _ in range(repeats)]
        (study,) = find_studies(rows_of(*plain, *tuned))
        ratio = study.effects[1].ratio
        if ratio is not None and ratio.low is not None and ratio.high is not None:
            hits.append(ratio.low <= EFFECT <= ratio.high)
    return float(np.mean(hits))


def _runs(law: Simulation, count: int, between: float) -> Iterator[Estimate]:
    """Yield the rates of runs, each of a pace of its own."""
    found = [one.estimate for one in law.estimates(2 * count, seed=5)]
    known: Sequence[Estimate] = [one for one in found if one is not None][:count]
    pace = np.exp(np.random.default_rng(7).normal(0, between, count)) if between else np.ones(count)
    for one, own in zip(known, pace, strict=True):
        yield Estimate(own * one.value, own * one.low, own * one.high, one.freedom)


def _row(run: Estimate, effect: float) -> dict[str, float]:
    return {
        "tgs": effect * run.value,
        "tgs_low": effect * run.low,
        "tgs_high": effect * run.high,
        "interval_freedom": run.freedom,
    }


if __name__ == "__main__":
    main()
