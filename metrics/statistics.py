"""Intervals for rates: a ratio of sums, resampled in blocks because neighbours are alike."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

RESAMPLES: Final = 2_000
CONFIDENCE: Final = 0.95
FEWEST_WINDOWS: Final = 4
SEED: Final = 20_260_821
"""Fixed, so that a page made twice from one store is the same page."""


def ratio_interval(
    tokens: NDArray[np.float64], seconds: NDArray[np.float64]
) -> tuple[float, float] | None:
    """95 % interval of sum(tokens) / sum(seconds) by moving-block bootstrap.

    tokens, seconds: one entry per window, in order of time. Blocks are n^(1/3) windows long
    (Künsch 1989; Hall, Horowitz and Jing 1995). None for fewer than `FEWEST_WINDOWS` windows.
    Clocks of whole seconds have windows of no time; samples of nothing else have no ratio.
    """
    n = len(tokens)
    if n < FEWEST_WINDOWS:
        return None
    length = max(1, round(n ** (1 / 3)))
    starts = n - length + 1
    sums = np.cumsum(np.vstack([np.zeros(2), np.column_stack([tokens, seconds])]), axis=0)
    block_sums = sums[length:] - sums[:starts]
    blocks = -(-n // length)
    picks = np.random.default_rng(SEED).integers(0, starts, size=(RESAMPLES, blocks))
    totals = block_sums[picks].sum(axis=1)
    tail = (1 - CONFIDENCE) / 2
    timed = totals[totals[:, 1] > 0]
    if not len(timed):
        return None
    low, high = np.quantile(timed[:, 0] / timed[:, 1], [tail, 1 - tail])
    return float(low), float(high)
