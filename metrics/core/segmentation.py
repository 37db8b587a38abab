"""Levels and drifts of a noisy series whose neighbours resemble each other.

Three models of a series compete: one level, several levels, and one straight line. Each is a
first-order autoregressive process, AR(1), around its mean: without the dependence, a few like
values would pass for a level (Romano, Rigaill, Runge and Fearnhead 2022, "Detecting abrupt changes
in the presence of local fluctuations and autocorrelated noise", JASA 117). The levels are the
optimal partition (Killick, Fearnhead and Eckley 2012, "Optimal detection of changepoints with a
linear computational cost", JASA 107). Neighbouring levels that their own noise explains are
joined afterwards, because one part of a series may be noisier than another.

`make slowdowns` counts false findings and the accuracy of places (docs/statistics.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import hypot, log, sqrt
from typing import Final

import numpy as np

from .arrays import FloatArray, IntArray, median_of
from .intervals import UPPER_PROBABILITY, spread_of_most
from .quantiles import student_t_quantile

MIN_LEVEL_POINTS: Final = 5
"""Fewest points of a level."""
MIN_POINTS: Final = 2 * MIN_LEVEL_POINTS
"""Fewest points to look for levels or a drift. Healthy series of so few have no more findings than
those of 20 (docs/statistics.md)."""
MIN_NOISE_POINTS: Final = 10
"""Fewest points of a level for a noise of its own."""
MIN_NOISE_RATIO: Final = 2.0
"""Least ratio of a level's own noise to that of the series; below, it is the same noise."""
PENALTY_PER_LOG_POINT: Final = 3.5
"""Cost of one more level, in units of the logarithm of the number of points: a level has a place
and a mean, and the noise is estimated too."""
MAX_AUTOCORRELATION: Final = 0.9
"""Largest autocorrelation of neighbours; beyond, a series is nearly a random walk."""
CLIPPED_SPREADS: Final = 4.0
"""Differences of neighbours are clipped at this many spreads, so that a change is no noise."""
MAX_POINTS: Final = 1_000
"""Longer series are searched in means of neighbours first, then placed point by point."""
SURE_OF_NONE: Final = 0.4
"""Share of the cost of a level that the best single stretch must save, or none is looked for."""
LENGTH_STEP: Final = 1.3
"""Ratio of the lengths of stretches that are tried."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Noise of a series around its mean.

    autocorrelation: of neighbours, 0 to MAX_AUTOCORRELATION
    innovation: standard deviation of what is new in each point
    """

    autocorrelation: float
    innovation: float

    def at_least(self, innovation: float) -> Noise:
        """Return the noise with at least so much innovation."""
        return self if self.innovation >= innovation else replace(self, innovation=innovation)

    @property
    def long_run(self) -> float:
        """Standard error of the mean of many neighbours, times the root of their number."""
        return self.innovation / (1 - self.autocorrelation)

    def standard_error(self, points: int) -> float:
        """Return the standard error of the mean of so many neighbours."""
        alike = self.autocorrelation
        near = 2 * alike * (1 - alike**points) / (1 - alike**2)
        return self.long_run * sqrt(points - near) / points


@dataclass(frozen=True, slots=True)
class Level:
    """Neighbouring points with one mean.

    first, last: indices of its points
    """

    first: int
    last: int
    mean: float
    standard_error: float


@dataclass(frozen=True, slots=True)
class Drift:
    """Straight line through all points.

    start, end: values at the first point and at the last
    standard_error: of end - start
    """

    start: float
    end: float
    standard_error: float


@dataclass(frozen=True, slots=True)
class Segmentation:
    """Levels of a series in order, at least one; `drift` instead of several levels."""

    levels: tuple[Level, ...]
    drift: Drift | None = None


def find_levels(
    values: FloatArray, least: float = 0.0, min_innovation: float = 0.0
) -> Segmentation:
    """Return the levels of a series, or its drift.

    values: finite, one a point, in order of time; of fewer than MIN_POINTS, there is one level
    least: smallest difference of neighbouring levels, and smallest drift
    min_innovation: least noise of a value, such as its rounding, which few values may show
    """
    n = len(values)
    if n < MIN_POINTS:
        noise = Noise(0.0, float(values.std(ddof=1)) if n > 1 else 0.0)
        return Segmentation((_level(values, 0, n, noise),))
    noise = estimate_noise(np.diff(values)).at_least(min_innovation)
    whole, values = values, _without_lone(values, noise)
    one = Segmentation((_level(values, 0, n, noise),))
    if not noise.innovation or _is_level(values, noise):
        return one
    starts = _starts(values, noise)
    around = estimate_noise(np.diff(values - _means(values, starts))).at_least(min_innovation)
    if len(starts) > 1 and around.innovation:  # again, with the noise around the levels
        noise, starts = around, _starts(values, around)
    line = _line(values, noise)
    if _line_cost(values, line, noise) + _penalty(n) < _levels_cost(values, starts, noise):
        drifts = abs(line.end - line.start) >= least
        return Segmentation(one.levels, line if drifts else None)
    return Segmentation(tuple(_joined(whole, values, starts, noise, least)))


def levels_from(
    values: FloatArray, starts: Sequence[int], min_innovation: float = 0.0
) -> list[Level]:
    """Return the levels that begin at these points, with errors by their noise.

    values, min_innovation: as in `find_levels`; starts: ascending from 0
    """
    around = estimate_noise(np.diff(values - _means(values, starts))).at_least(min_innovation)
    calm, spans = _without_lone(values, around), pairwise([*starts, len(values)])
    levels = (_level(values, *span, _own_noise(values, span, around)) for span in spans)
    return [replace(level, standard_error=_own_error(calm, level)) for level in levels]


def change_error(level: Level, after: Level) -> float:
    """Return half of the 95 % interval of the difference of two levels' means."""
    points = after.last - level.first + 1
    wide = student_t_quantile(points - 2, UPPER_PROBABILITY)
    return wide * hypot(level.standard_error, after.standard_error)


def _own_error(calm: FloatArray, level: Level) -> float:
    """Return the standard error of a level's mean, at least by its own points.

    The noise of neighbours does not show slow swings inside a level.

    calm: the series without lone points
    """
    own = calm[level.first : level.last + 1]
    return max(level.standard_error, float(own.std(ddof=1)) / sqrt(len(own)))


def _without_lone(values: FloatArray, noise: Noise) -> FloatArray:
    """Clip values that stand apart from most of their neighbours: these are no level."""
    around = np.pad(values, MIN_LEVEL_POINTS // 2, mode="edge")
    middle = np.median(np.lib.stride_tricks.sliding_window_view(around, MIN_LEVEL_POINTS), axis=1)
    limit = CLIPPED_SPREADS * noise.innovation / sqrt(1 - noise.autocorrelation**2)
    return np.clip(values, middle - limit, middle + limit)


def _is_level(values: FloatArray, noise: Noise) -> bool:
    """Return whether no stretch of a series differs much from the rest."""
    n = len(values)
    new = values[1:] - noise.autocorrelation * values[:-1]
    sums = np.concatenate([[0.0], np.cumsum(new - new.mean())])
    most, length = 0.0, float(MIN_LEVEL_POINTS)
    while length <= n / 2:
        size = round(length)
        apart = float(np.abs(sums[size:] - sums[:-size]).max())
        most = max(most, apart**2 / (size * (1 - size / n)))
        length = max(length * LENGTH_STEP, length + 1)
    return most < SURE_OF_NONE * _penalty(n) * noise.innovation**2


def _joined(
    values: FloatArray, calm: FloatArray, starts: list[int], noise: Noise, least: float
) -> list[Level]:
    """Return the levels after joining neighbours, the least different first.

    Neighbours are joined if they differ by less than `least`, or if the interval of their
    difference includes none. If one of them is noisier than the series, they are joined unless they
    differ by more than that noise explains.

    calm: the values without lone points
    """
    bounds = [*starts, len(values)]
    while True:
        spans = list(pairwise(bounds))
        levels = [_level(values, *span, _own_noise(values, span, noise)) for span in spans]
        unsure = [replace(level, standard_error=_own_error(calm, level)) for level in levels]
        limits = (
            max(least, _explained(*pair, noise), change_error(*unsure[at - 1 : at + 1]))
            for at, pair in enumerate(pairwise(levels), 1)
        )
        sizes = (abs(after.mean - level.mean) for level, after in pairwise(levels))
        weak = [
            (size, at)
            for at, (size, limit) in enumerate(zip(sizes, limits, strict=True), 1)
            if size < limit
        ]
        if not weak:
            return levels
        del bounds[min(weak)[1]]


def _explained(level: Level, after: Level, noise: Noise) -> float:
    """Return the largest difference of levels that noise of one explains."""
    counts = [of.last - of.first + 1 for of in (level, after)]
    ratios = [
        of.standard_error / noise.standard_error(count)
        for of, count in zip((level, after), counts, strict=True)
    ]
    if max(ratios) < MIN_NOISE_RATIO:
        return 0.0
    alone = max(ratios) * noise.long_run
    return sqrt(_penalty(level.last + after.last) / 2) * alone * sqrt(sum(1 / n for n in counts))


def _own_noise(values: FloatArray, span: tuple[int, int], noise: Noise) -> Noise:
    """Return the noise of one level: of the series, or its own if that is far larger."""
    if span[1] - span[0] < MIN_NOISE_POINTS:
        return noise
    own = estimate_noise(np.diff(values[slice(*span)]), noise.autocorrelation)
    return own if own.innovation > MIN_NOISE_RATIO * noise.innovation else noise


def estimate_noise(differences: FloatArray, autocorrelation: float | None = None) -> Noise:
    """Return the noise of a series from the differences of its neighbours.

    Of an AR(1) process with autocorrelation r, neighbouring differences have the correlation
    -(1 - r) / 2. Differences hardly see levels, whose changes are clipped.

    autocorrelation: if known
    """
    centred = differences - median_of(differences)
    spread = spread_of_most(centred) or float(np.std(centred))
    if not spread:
        return Noise(0.0, 0.0)
    clipped = np.clip(centred, -CLIPPED_SPREADS * spread, CLIPPED_SPREADS * spread)
    clipped -= clipped.mean()  # the median of rounded differences is one of two neighbours
    variance = float(np.mean(clipped**2))
    alike = autocorrelation
    if alike is None:
        together = float(np.mean(clipped[1:] * clipped[:-1]))
        unsure = 1 / sqrt(len(differences))
        alike = min(max(1 + 2 * together / variance + unsure, 0.0), MAX_AUTOCORRELATION)
    return Noise(alike, sqrt(variance / 2 / (1 - alike) * (1 - alike**2)))


def _penalty(points: int) -> float:
    return PENALTY_PER_LOG_POINT * log(points)


def _level(values: FloatArray, start: int, end: int, noise: Noise) -> Level:
    mean = float(values[start:end].mean())
    return Level(start, end - 1, mean, noise.standard_error(end - start))


def _means(values: FloatArray, starts: Sequence[int]) -> FloatArray:
    """Return the mean of each point's level."""
    counts = np.diff([*starts, len(values)])
    means: FloatArray = np.repeat(np.add.reduceat(values, starts) / counts, counts)
    return means


def _starts(values: FloatArray, noise: Noise) -> list[int]:
    """Return the first index of each level; of a long series, in two steps."""
    size = -(-len(values) // MAX_POINTS)
    if size == 1:
        return _partition(values, noise)
    whole = len(values) // size * size
    blocks = values[:whole].reshape(-1, size).mean(axis=1)
    coarse = _partition(blocks, estimate_noise(np.diff(blocks)))
    starts = [0]
    for block, after in pairwise([*coarse[1:], len(blocks)]):
        part = values[starts[-1] : after * size]
        starts.append(starts[-1] + _best_split(part, noise, block * size - starts[-1], 2 * size))
    return starts


def _best_split(values: FloatArray, noise: Noise, near: int, reach: int) -> int:
    """Return the likeliest first index of the second of two levels.

    It is at most `reach` from `near`.
    """
    low, high = max(MIN_LEVEL_POINTS, near - reach), min(len(values), near + reach)
    starts = range(low, max(high, low + 1))
    costs = [_levels_cost(values, [0, start], noise) for start in starts]
    return low + int(np.argmin(costs))


def _partition(values: FloatArray, noise: Noise) -> list[int]:
    """Return the first index of each level of the partition with the least cost.

    `best[end]` is the cost of the points before `end`; `previous[end]` the start of their last
    level. A start that is worse than another by more than a level's cost is never tried again.
    """
    n, penalty = len(values), _penalty(len(values))
    costs = _LevelCosts(values, noise)
    previous: IntArray = np.zeros(n + 1, dtype=np.int64)
    best, means = np.full(n + 1, np.inf), np.zeros(n + 1)
    best[0] = -penalty
    starts = costs.from_start(0, 0.0, -penalty)
    for end in range(MIN_LEVEL_POINTS, n + 1):
        cost, mean = costs.of(starts, end)
        cost += starts[BEST]
        index = int(cost.argmin())
        best[end], means[end] = cost[index] + penalty, mean[index]
        previous[end] = starts[START, index]
        starts = starts[:, cost <= best[end] + penalty]
        begun = end + 1 - MIN_LEVEL_POINTS
        if begun >= MIN_LEVEL_POINTS:
            new = costs.from_start(begun, float(means[begun]), float(best[begun]))
            starts = np.concatenate([starts, new], axis=1)
    found, end = [], n
    while end > 0:
        end = int(previous[end])
        found.append(end)
    return found[::-1]


START, BEST, PRODUCT, SQUARE, PRECISION = range(5)
"""Rows of `_LevelCosts.from_start`: the first index, the cost of the points before it, and what the
start gives to the sums of a level."""


class _LevelCosts:
    """Twice the negative log likelihood of levels, up to a constant.

    The innovations of a level with mean m are x_i - r x_(i-1) - (1 - r) m. Its first point follows
    the last one of the level before, which was that far from its own mean.
    """

    def __init__(self, values: FloatArray, noise: Noise) -> None:
        self._values, self._noise = values, noise
        self._new = np.zeros(len(values))
        self._new[1:] = values[1:] - noise.autocorrelation * values[:-1]
        self._sums = np.concatenate([[0.0], np.cumsum(self._new)])
        self._squares = np.concatenate([[0.0], np.cumsum(self._new**2)])

    def from_start(self, start: int, mean: float, best: float = 0.0) -> FloatArray:
        """Return the column of a level's start, for `of`.

        mean: of the level that ends there; best: cost of the points before
        """
        alike = self._noise.autocorrelation
        share = 1 - alike
        weight, first = 1 - alike**2, float(self._values[start])
        if start:
            weight, first = 1.0, first - alike * (float(self._values[start - 1]) - mean)
        product = weight * first - share * float(self._sums[start + 1])
        square = weight * first**2 - float(self._squares[start + 1])
        precision = weight - (start + 1) * share**2
        return np.array([[start], [best], [product], [square], [precision]])

    def of(self, starts: FloatArray, end: int) -> tuple[FloatArray, FloatArray]:
        """Return the cost and the mean of levels from each start to before `end`.

        starts: a column of `from_start` for each
        """
        share = 1 - self._noise.autocorrelation
        product = share * self._sums[end] + starts[PRODUCT]
        mean = product / (end * share**2 + starts[PRECISION])
        square = self._squares[end] + starts[SQUARE]
        return (square - product * mean) / self._noise.innovation**2, mean


def _levels_cost(values: FloatArray, starts: list[int], noise: Noise) -> float:
    """Return the cost of these levels, with the penalty for each but one."""
    costs, mean, cost = _LevelCosts(values, noise), 0.0, 0.0
    for start, end in pairwise([*starts, len(values)]):
        (level,), (mean,) = costs.of(costs.from_start(start, mean), end)
        cost += level
    return cost + _penalty(len(values)) * (len(starts) - 1)


def _whitened(values: FloatArray, noise: Noise) -> FloatArray:
    """Return the innovations of a series around 0, all of one variance."""
    alike = noise.autocorrelation
    new = np.append(sqrt(1 - alike**2) * values[:1], values[1:] - alike * values[:-1])
    return new / noise.innovation


def _line_design(points: int, noise: Noise) -> FloatArray:
    time = np.linspace(0.0, 1.0, points)
    return np.column_stack([_whitened(np.ones(points), noise), _whitened(time, noise)])


def fit_drift(values: FloatArray) -> Drift:
    """Return the straight line through all points of a series, as in `find_levels`."""
    return _line(values, estimate_noise(np.diff(values)))


def _line(values: FloatArray, noise: Noise) -> Drift:
    design = _line_design(len(values), noise)
    start, slope = np.linalg.lstsq(design, _whitened(values, noise), rcond=None)[0]
    error = sqrt(np.linalg.inv(design.T @ design)[1, 1])
    return Drift(float(start), float(start + slope), error)


def _line_cost(values: FloatArray, line: Drift, noise: Noise) -> float:
    off = values - np.linspace(line.start, line.end, len(values))
    return float((_whitened(off, noise) ** 2).sum())
