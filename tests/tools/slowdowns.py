"""Slow-downs planted in simulated runs, and findings in healthy ones.

    python -m tests.tools.slowdowns [--runs N]

Prints two tables of docs/statistics.md: runs of 60 to 300 windows, and short runs. Noise is a share
of the time per token.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import numpy as np

from fairmfu.metrics.core.arrays import FloatArray
from fairmfu.metrics.core.segmentation import Segmentation, find_levels
from fairmfu.metrics.throughput.speed_levels import MIN_CHANGE
from tests.support.simulated_series import autoregressive

NOISES = (0.005, 0.01)
AUTOCORRELATIONS = (0.0, 0.3, 0.6)
SHIFT = 0.03
EPISODE = 0.05
EPISODE_WINDOWS = 12
DRIFT = 0.1
MARGIN = 10
"""Windows before and after what is planted, at least."""
SHORT_WINDOWS = ((10, 11), (12, 14), (15, 19), (20, 24))
SHORT_NOISES = (0.003, 0.01, 0.03)
SHORT_AUTOCORRELATIONS = (0.0, 0.3, 0.6, 0.9)
SHORT_SHIFT = 0.2
NEAR = 2
"""Windows between a planted change and the one found, at most."""

Planted = Callable[[FloatArray, np.random.Generator], bool]


def _found(values: FloatArray) -> Segmentation:
    return find_levels(values, MIN_CHANGE)


def _starts(values: FloatArray) -> list[int]:
    return [level.first for level in _found(values).levels[1:]]


def healthy(values: FloatArray, _: np.random.Generator) -> bool:
    """Return whether anything is found where nothing is."""
    found = _found(values)
    return len(found.levels) > 1 or found.drift is not None


def shift(values: FloatArray, random: np.random.Generator) -> bool:
    """Return whether a lasting change is found at its place, and nothing else."""
    at = int(random.integers(MARGIN, len(values) - MARGIN))
    values[at:] += SHIFT
    starts = _starts(values)
    return len(starts) == 1 and abs(starts[0] - at) <= NEAR


def episode(values: FloatArray, random: np.random.Generator) -> bool:
    """Return whether a slow episode is found with its beginning and end."""
    at = int(random.integers(MARGIN, len(values) - MARGIN - EPISODE_WINDOWS))
    values[at : at + EPISODE_WINDOWS] += EPISODE
    starts = _starts(values)
    ends = (at, at + EPISODE_WINDOWS)
    return len(starts) == len(ends) and max(np.abs(np.subtract(starts, ends))) <= NEAR


def drift(values: FloatArray, _: np.random.Generator) -> bool:
    """Return whether a drift over the whole run is found."""
    return _found(values + np.linspace(0, DRIFT, len(values))).drift is not None


def halfway(values: FloatArray, _: np.random.Generator) -> bool:
    """Return whether a large change halfway is found at its place, and nothing else."""
    at = len(values) // 2
    values[at:] += SHORT_SHIFT
    starts = _starts(values)
    return len(starts) == 1 and abs(starts[0] - at) <= NEAR


def short_rows(runs: int) -> Iterator[str]:
    """Yield the rows of the table of short runs: two shares for each noise."""
    for fewest, most in SHORT_WINDOWS:
        for alike in SHORT_AUTOCORRELATIONS:
            cells = []
            for noise in SHORT_NOISES:
                for planted in (healthy, halfway):
                    random = np.random.default_rng(1)
                    drawn = (
                        autoregressive(int(random.integers(fewest, most + 1)), noise, alike, random)
                        for _ in range(runs)
                    )
                    share = sum(planted(values, random) for values in drawn) / runs
                    cells.append(f"{100 * share:.1f} %")
            yield f"| {fewest} to {most} | {alike:g} | {' | '.join(cells)} |"


def rows(runs: int) -> Iterator[str]:
    """Yield the rows of the table."""
    for noise in NOISES:
        for alike in AUTOCORRELATIONS:
            shares = []
            for planted in (healthy, shift, episode, drift):
                random = np.random.default_rng(1)
                drawn = (
                    autoregressive(int(random.integers(60, 300)), noise, alike, random)
                    for _ in range(runs)
                )
                shares.append(sum(planted(values, random) for values in drawn) / runs)
            cells = " | ".join(f"{100 * share:.1f} %" for share in shares)
            yield f"| {100 * noise:g} % | {alike:g} | {cells} |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400)
    given = parser.parse_args()
    print(
        "| noise | autocorrelation | healthy | change of 3 % | 12 windows of 5 % | drift of 10 % |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for row in rows(given.runs):
        print(row, flush=True)
    shares = " | ".join(f"healthy, {100 * noise:g} % | change" for noise in SHORT_NOISES)
    print(f"\n| windows | autocorrelation | {shares} |")
    print("| --- " * (2 + 2 * len(SHORT_NOISES)) + "|")
    for row in short_rows(given.runs):
        print(row, flush=True)


if __name__ == "__main__":
    main()
