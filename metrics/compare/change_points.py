"""Changes of level in a series, detected as every new point arrives.

The change-point model of Hawkins, Qiu and Kang 2003 ("The changepoint model for statistical process
control", J. Quality Technology 35). At every new point, consider all splits of the points since the
last change, and test the split whose two means differ most in standard errors against a bound.
After a change the search restarts. No level and no size of change is set beforehand. The
differences from the paper exist because single runs may land on bad nodes and neighbouring nights
are alike:

    alone     a point that agrees with no neighbour has no say: a change needs two points
    spread    of the last points about their levels, across earlier changes, clipped; Student's t
              of its degrees of freedom, so that few points claim little
    alike     neighbours that resemble each other make means less sure, by their autocorrelation
    stray     the points after a change must be nearer to their own level: all of few, most of many

The bound is a quantile of Student's t, the same at every point. The rate of false alarms over a
year and the delay of detection are counted by simulation (tests/tools/changes_table.py,
docs/statistics.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from math import exp, sqrt
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ..core import quantiles
from ..core.arrays import BoolArray, FloatArray
from ..core.intervals import (
    FLOAT_TOLERANCE,
    MAD_TO_SIGMA,
    UPPER_PROBABILITY,
    Estimate,
    autocorrelation,
    robust_spread,
)
from ..throughput.warmup import MAD_EFFICIENCY, variance_of_mean

FALSE_SPLIT_CHANCE: Final = 3e-7
"""Chance that one split of a steady series passes the bound. A year of nights tests thousands of
splits, most of them much alike; the resulting rate of false alarms is counted by simulation.
"""
MIN_POINTS: Final = 10
"""Fewest points to look for changes: fewer do not show the scatter of runs."""
MIN_POINTS_PER_SIDE: Final = 2
"""Fewest points before a change and after, not counting points that are alone."""
MAX_LEVEL_POINTS: Final = 200
"""Number of the latest points of a level to search for a change; at most half come after."""
MAX_SPREAD_POINTS: Final = 100
"""Number of the latest points whose scatter is the spread."""
MIN_RELATIVE_SPREAD: Final = 0.001
"""Smallest relative spread; runs that print the same rounded rate are no more certain than this."""
MAX_LEVEL_SPREADS: Final = 4.0
"""Number of spreads beyond which a point is far from a level, and its distance is clipped."""
MAX_AGREEING_SPREADS: Final = MAX_LEVEL_SPREADS * sqrt(2)
"""Number of spreads within which two points agree: MAX_LEVEL_SPREADS standard deviations of their
difference.
"""
MAX_STRAY_SHARE: Final = 0.4
"""Largest share of the points after a change, not counting one, that may be nearer to the level
before.
"""
MIN_CANDIDATE_ERRORS: Final = 4.0
"""Fewest standard errors, by a quick spread, to examine a split closely."""
MAX_SQUARED_ERROR_DROP: Final = 4.0
"""Largest drop of the squared standard errors at which a split is nearly as likely as the best."""
SETTLING_POINTS: Final = 3
"""Number of later points until it is settled whether a point is alone."""
MIN_RARE_SHARE: Final = 0.02
"""Share of runs that may be far off without a change, even if none was seen yet."""
MAX_RARE_CHANCE: Final = 1e-4
"""Chance that all runs since a change are such rare runs, up to which they are a change."""
FALSE_SHIFT_CHANCE: Final = 0.001
"""Chance that a level equal to its baseline seems off. A baseline is one draw, and stays."""


@dataclass(frozen=True, slots=True)
class ChangeTest:
    """Strictness of the tests of one series.

    split_chance: FALSE_SPLIT_CHANCE; shift_chance: FALSE_SHIFT_CHANCE; both are shares of a budget
        where several figures of one run are tested
    min_spread: MIN_RELATIVE_SPREAD; figures that are equal from run to run have no other scatter
    alarm_sign: 1 if rises are alarms, -1 for falls; an alarm has more runs than rare ones explain
        (MAX_RARE_CHANCE). 0: runs far off differ from each other, as on bad nodes
    """

    split_chance: float = FALSE_SPLIT_CHANCE
    shift_chance: float = FALSE_SHIFT_CHANCE
    min_spread: float = MIN_RELATIVE_SPREAD
    alarm_sign: int = 0


RATE_TEST: Final = ChangeTest()
"""Test of a series of rates."""


@dataclass(frozen=True, slots=True)
class Change:
    """Change of level; all fields are indices into the series.

    first: the first point after the change; confirmed_at: the point that confirmed the change
    earliest, latest: range of other first points, nearly as likely
    """

    first: int
    confirmed_at: int
    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class BaselineShift:
    """Level that is clearly off its baseline; fields are indices into the series.

    first: the first point of the level; confirmed_at: the point since which the shift has been
        certain
    """

    first: int
    confirmed_at: int


@dataclass(frozen=True, slots=True)
class SeriesLevels:
    """Levels of a series, on the log scale.

    lone_points: points that are alone and have no say
    spread: from run to run; None for fewer than MIN_POINTS points
    degrees_of_freedom: of the spread
    autocorrelation: of neighbours, at least 0
    means, counts: at every point the mean, and the number of points, of the level as known then
    quick_spreads: at every point a quick estimate of the spread
    test: the strictness used
    """

    values: FloatArray
    changes: tuple[Change, ...]
    lone_points: BoolArray
    spread: float | None = None
    degrees_of_freedom: float = 0.0
    autocorrelation: float = 0.0
    means: FloatArray = field(default_factory=lambda: np.empty(0))
    counts: FloatArray = field(default_factory=lambda: np.empty(0))
    quick_spreads: FloatArray = field(default_factory=lambda: np.empty(0))
    test: ChangeTest = RATE_TEST

    @property
    def starts(self) -> list[int]:
        """Index of the first point of each level."""
        return [0, *(change.first for change in self.changes)]

    def segments(self) -> list[slice]:
        """Return the points of each level as slices."""
        return [slice(*ends) for ends in pairwise([*self.starts, len(self.values)])]

    def level(self, segment: slice) -> float:
        """Return the mean of the points that are not alone; the median if all are."""
        said = self.values[segment][~self.lone_points[segment]]
        return float(said.mean()) if len(said) else float(np.median(self.values[segment]))

    def rate(self, segment: slice) -> Estimate | None:
        """Return the rate of a level with its 95 % interval; None without a spread."""
        if self.spread is None:
            return None
        return self._estimate(self.level(segment), self._variance(segment))

    def ratio(self, change: int) -> Estimate:
        """Return the rate after a change over the rate before, with its 95 % interval.

        Uses all points of both levels. change: its index in `changes`
        """
        before, after = self.segments()[change : change + 2]
        apart = self.level(after) - self.level(before)
        return self._estimate(apart, self._variance(before) + self._variance(after))

    def ratio_to_baseline(self, baseline: float) -> Estimate | None:
        """Return the last level's rate over a baseline; None without a spread.

        baseline: logarithm of one run's rate
        """
        if self.spread is None:
            return None
        last = self.segments()[-1]
        return self._estimate(self.level(last) - baseline, self._variance(last) + 1)

    def outliers(self) -> BoolArray:
        """Return the points that are alone and far from their level.

        No points without a spread.
        """
        far = np.zeros(len(self.values), bool)
        if self.spread is not None:
            for segment in self.segments():
                apart = np.abs(self.values[segment] - self.level(segment))
                far[segment] = apart > MAX_LEVEL_SPREADS * self.spread
        return far & self.lone_points

    def shift_from_baseline(
        self, baseline: float, since: int, threshold: float = 0.0
    ) -> BaselineShift | None:
        """Return since when the level is clearly off its baseline; None if not off now.

        At most `shift_chance` of the baselines seem off by chance. After a confirmed change to the
        same side, which is no chance, the level's 95 % interval suffices.

        baseline: logarithm of one run's rate; since: the first point to test; threshold: smallest
            relative size that matters
        """
        if self.spread is None:
            return None
        apart = self.means - baseline
        freedom = MAD_EFFICIENCY * np.minimum(np.arange(len(apart)), MAX_SPREAD_POINTS)
        quantile = np.where(
            self._changed(np.sign(apart), since), UPPER_PROBABILITY, 1 - self.test.shift_chance / 2
        )
        bound = quantiles.student_t_quantiles(np.maximum(freedom, 1.0), quantile)
        sure = np.abs(apart) > bound * self.quick_spreads * np.sqrt(
            1 + 1 / np.maximum(self.counts, 1)
        )
        sure &= (np.abs(np.expm1(apart)) >= threshold) & (self.counts >= MIN_POINTS_PER_SIDE)
        sure[: max(since, MIN_POINTS - 1)] = False
        holds = sure & (np.sign(apart) == np.sign(apart[-1]))
        if not holds[-1]:
            return None
        found = int(np.flatnonzero(~holds)[-1]) + 1
        known = [change.first for change in self.changes if change.confirmed_at <= found]
        return BaselineShift(min(found, max(since, known[-1] if known else 0)), found)

    def _changed(self, side: FloatArray, since: int) -> BoolArray:
        """Return the points whose last change, if confirmed since then, was to their side.

        side: sign of each point's distance from the baseline
        """
        changed = np.zeros(len(side), bool)
        for change in self.changes:
            if change.first >= since:
                to = self.means[change.confirmed_at] - self.means[change.first - 1]
                changed[change.confirmed_at :] = side[change.confirmed_at :] == np.sign(to)
        return changed

    def _variance(self, segment: slice) -> float:
        """Return the variance of the mean of a level, in units of the squared spread."""
        said = np.count_nonzero(~self.lone_points[segment])
        return _variance(self.autocorrelation, max(1, int(said)))

    def _estimate(self, middle: float, variance: float) -> Estimate:
        """Return the rate with its interval, from logarithm and variance."""
        spread = self.spread or 0.0
        half = (
            quantiles.student_t_quantile(self.degrees_of_freedom, UPPER_PROBABILITY)
            * spread
            * sqrt(variance)
        )
        return Estimate(exp(middle), exp(middle - half), exp(middle + half))


def find_levels(log_rates: FloatArray, test: ChangeTest = RATE_TEST) -> SeriesLevels:
    """Return the levels of a series; log_rates: logarithms of rates, in order of time.

    The changes among the first n points depend on these points alone: later points only add
    changes.
    """
    if len(log_rates) < MIN_POINTS:
        return SeriesLevels(log_rates, (), np.zeros(len(log_rates), bool), test=test)
    seen = _Seen(log_rates, test)
    changes: list[Change] = []
    before = np.empty(0)
    start, point, end = 0, MIN_POINTS - 1, len(log_rates)
    while (change := seen.next_change(start, point, before)) is not None:
        changes.append(change)
        before = _with(before, seen.said(start, change.first, change.confirmed_at))
        start, point = change.first, change.confirmed_at + 1
    rest = _with(before, seen.said(start, end, end - 1))
    alone = ~seen.settled(end - 1)
    spread, degrees_of_freedom, autocorrelation = _scatter(rest, test.min_spread)
    means, counts = seen.known_levels(changes)
    return SeriesLevels(
        values=log_rates,
        changes=tuple(changes),
        lone_points=alone,
        spread=spread,
        degrees_of_freedom=degrees_of_freedom,
        autocorrelation=autocorrelation,
        means=means,
        counts=counts,
        quick_spreads=seen.quick,
        test=test,
    )


def _with(before: FloatArray, values: FloatArray) -> FloatArray:
    """Append a level's distances from its mean to earlier ones; keep the latest."""
    return np.concatenate([before, values - values.mean() if len(values) else values])[
        -MAX_SPREAD_POINTS:
    ]


class _Seen:
    """Series as known at each of its points."""

    def __init__(self, values: FloatArray, test: ChangeTest) -> None:
        self.values, self.test = values, test
        self.quick = _quick_spreads(values, test.min_spread)
        self.company = _company(values, self.quick)
        self.counts, self.sums = self._cumulated()

    def settled(self, point: int) -> BoolArray:
        """Return the points that have a say, as known at `point`."""
        out = self.company[SETTLING_POINTS, : point + 1].copy()
        for later in range(min(SETTLING_POINTS, point + 1)):
            out[point - later] = self.company[later, point - later]
        return out

    def said(self, start: int, end: int, point: int) -> FloatArray:
        """Return the values from start up to end that have a say, as known at `point`."""
        return self.values[start:end][self.settled(point)[start:end]]

    def _cumulated(self) -> tuple[FloatArray, FloatArray]:
        """Return per point the number and sum of the last 1, 2, … values that have a say."""
        n = len(self.values)
        most = min(n, MAX_LEVEL_POINTS)
        pad = np.zeros(most - 1, bool)
        said = sliding_window_view(
            np.concatenate([pad, self.company[SETTLING_POINTS]]), most
        ).copy()
        for later in range(min(SETTLING_POINTS, most)):
            said[later:, most - 1 - later] = self.company[later, : n - later]
        values = sliding_window_view(np.concatenate([pad.astype(float), self.values]), most)
        counts = np.cumsum(said[:, ::-1], axis=1, dtype=float)
        return counts, np.cumsum(np.where(said, values, 0.0)[:, ::-1], axis=1)

    def known_levels(self, changes: Sequence[Change]) -> tuple[FloatArray, FloatArray]:
        """Return per point the mean and number of values of its level, as known then."""
        n = len(self.values)
        starts = np.zeros(n, int)
        for change in changes:
            starts[change.confirmed_at :] = change.first
        says = self.company[SETTLING_POINTS].astype(float)
        counted, summed = (
            np.concatenate([[0.0], np.cumsum(x)]) for x in (says, says * self.values)
        )
        counts, sums = counted[1:] - counted[starts], summed[1:] - summed[starts]
        for later in range(SETTLING_POINTS):
            points = np.arange(later, n) - later
            more = self.company[later, points].astype(float) - says[points]
            more[points < starts[later:]] = 0.0
            counts[later:] += more
            sums[later:] += more * self.values[points]
        return sums / np.maximum(counts, 1.0), counts

    def next_change(self, start: int, start_point: int, before: FloatArray) -> Change | None:
        """Return the first change of the level since `start` that a point confirms.

        start_point: the first point to test
        """
        chunk = 64
        for low in range(start_point, len(self.values), chunk):
            rows = np.arange(low, min(low + chunk, len(self.values)))
            errors = self._splits(start, rows)
            best = np.argmax(errors, axis=1)
            most = errors[np.arange(len(rows)), best]
            for i in np.flatnonzero(most > MIN_CANDIDATE_ERRORS * self.quick[rows]):
                point, first = int(rows[i]), int(rows[i] - best[i])
                spread = self._surely(start, first, point, before)
                if spread is not None:
                    near = errors[i] ** 2 > most[i] ** 2 - MAX_SQUARED_ERROR_DROP * spread**2
                    places = point - np.flatnonzero(near)
                    return Change(first, point, int(places.min()), int(places.max()))
        return None

    def _splits(self, start: int, rows: NDArray[np.int_]) -> FloatArray:
        """Return the distance of the means before and after a split, per row and split.

        In standard errors of values with spread 1; 0 if a side has too few points.
        """
        counts, sums = self.counts[rows], self.sums[rows]
        whole = np.minimum(rows - start, counts.shape[1] - 1)[:, None]
        total, all_ = (np.take_along_axis(x, whole, axis=1) for x in (counts, sums))
        left = total - counts
        usable = (counts >= MIN_POINTS_PER_SIDE) & (left >= MIN_POINTS_PER_SIDE)
        usable[:, MAX_LEVEL_POINTS // 2 :] = False  # else the window's first points would be a side
        usable &= np.diff(counts, axis=1, prepend=0.0) > 0  # a change begins at one that has a say
        behind, ahead = np.where(usable, counts, 1.0), np.where(usable, left, 1.0)
        apart = np.abs(sums / behind - (all_ - sums) / ahead)
        return np.where(usable, apart / np.sqrt(1 / behind + 1 / ahead), 0.0)

    def _surely(self, start: int, first: int, point: int, before: FloatArray) -> float | None:
        """Return the spread if a split is more than chance, else None."""
        start = max(start, point + 1 - MAX_LEVEL_POINTS)
        before_split, after_split = (
            self.said(start, first, point),
            self.said(first, point + 1, point),
        )
        low, high = float(before_split.mean()), float(after_split.mean())
        shift = high - low
        stray = np.count_nonzero((after_split - low) / shift < 1 / 2)
        if stray > MAX_STRAY_SHARE * (len(after_split) - 1):
            return None
        rare = (self.values[start:first] - low) / shift > 1 / 2
        if shift * self.test.alarm_sign > 0 and _may_be_rare(rare, len(after_split)):
            return None
        rest = np.concatenate([before, before_split - low, after_split - high])[-MAX_SPREAD_POINTS:]
        spread, freedom, alike = _scatter(rest, self.test.min_spread)
        error = spread * sqrt(_variance(alike, len(before_split), len(after_split)))
        return spread if abs(shift) > _bound(freedom, self.test.split_chance) * error else None


def _may_be_rare(rare: BoolArray, since: int) -> bool:
    """Return whether runs since a split may be rare runs, like some before it.

    rare: per run before the split, whether it is as far off; since: number of runs since
    """
    share = (np.count_nonzero(rare) + 1 / 2) / (len(rare) + 1)
    return bool(max(share, MIN_RARE_SHARE) ** since > MAX_RARE_CHANCE)


def _scatter(rest: FloatArray, min_spread: float) -> tuple[float, float, float]:
    """Return (spread, degrees of freedom, autocorrelation) of distances from levels."""
    widest = MAX_LEVEL_SPREADS * max(robust_spread(rest), min_spread)
    near = np.clip(rest, -widest, widest)
    freedom = max(1, len(near) - 2)
    spread = max(sqrt(float(near @ near) / freedom), min_spread)
    return spread, freedom, max(0.0, autocorrelation(near, FLOAT_TOLERANCE)) if len(near) else 0.0


@lru_cache(maxsize=1024)
def _bound(freedom: float, split_chance: float) -> float:
    return quantiles.student_t_quantile(freedom, 1 - split_chance / 2)


def _variance(alike: float, *points: int) -> float:
    """Return the variance of a mean, or of a difference of means, of spread 1.

    points: number of points of every mean
    """
    return float(variance_of_mean(np.array(points, float), alike).sum())


def _quick_spreads(values: FloatArray, min_spread: float) -> FloatArray:
    """Return per point the spread of steps between points, which level changes spare.

    The first points get the value of point MIN_POINTS.
    """
    steps = np.abs(np.diff(values))
    most = min(len(steps), MAX_SPREAD_POINTS)
    padded = np.concatenate([np.full(most - 1, np.inf), steps])
    ordered = np.sort(sliding_window_view(padded, most), axis=1)
    known = np.minimum(np.arange(1, len(steps) + 1), most)
    middle = (
        ordered[np.arange(len(steps)), (known - 1) // 2]
        + ordered[np.arange(len(steps)), known // 2]
    ) / 2
    spreads = np.maximum(np.concatenate([[0.0], middle]) * (MAD_TO_SIGMA / sqrt(2)), min_spread)
    spreads[: MIN_POINTS - 1] = spreads[MIN_POINTS - 1]
    return np.asarray(spreads)


def _company(values: FloatArray, spreads: FloatArray) -> BoolArray:
    """Return whether a point agrees with a neighbour, after 0, 1, … later points.

    A row per number of later points; the last row uses all. A neighbour is the next point, or the
    next but one if the point between is alone.
    """
    one, two = (_agree(values, spreads, apart) for apart in (1, 2))
    rows = []
    for later in range(SETTLING_POINTS + 1):

        def known(agrees: BoolArray, ahead: int, later: int = later) -> BoolArray:
            """Return the flags of the point `ahead` places later, False if not yet known."""
            return _shifted(agrees, ahead) if ahead <= later else np.zeros_like(agrees)

        before_alone = ~(known(one, -1) | known(two, -1) | known(one, 0) | known(two, 1))
        after_alone = ~(known(one, 1) | known(two, 1) | known(one, 2) | known(two, 3))
        over_one = (known(two, 0) & before_alone) | (known(two, 2) & after_alone)
        rows.append(known(one, 0) | known(one, 1) | over_one)
    return np.array(rows)


def _agree(values: FloatArray, spreads: FloatArray, apart: int) -> BoolArray:
    """Return whether a point agrees with the one `apart` before; False if none is."""
    near = np.zeros(len(values), bool)
    near[apart:] = (
        np.abs(values[apart:] - values[:-apart]) <= MAX_AGREEING_SPREADS * spreads[apart:]
    )
    return near


def _shifted(flags: BoolArray, by: int) -> BoolArray:
    """Return flags[i + by], False beyond the ends."""
    out = np.zeros_like(flags)
    if by >= 0:
        out[: len(flags) - by] = flags[by:]
    else:
        out[-by:] = flags[:by]
    return out
