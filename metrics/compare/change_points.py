"""Where the level of a series changes, told as each new point arrives.

The change-point model of Hawkins, Qiu and Kang 2003 ("The changepoint model for statistical process
control", J. Quality Technology 35): at each new point, of all splits of the points since the last
change, the one whose two means differ most in standard errors, against a bound; behind a change
all begins anew. No level and no size of change is set beforehand. What differs from theirs, for
single runs land on bad nodes and neighbouring nights are alike:

    alone     a point that no neighbour agrees with has no say: a change needs two points
    spread    of the last points about their levels, across earlier changes, clipped; Student's t
              of its degrees of freedom, so that few points claim little
    alike     neighbours that resemble each other make means less sure, by their autocorrelation
    stray     of few points behind a change all, of many most, lie nearer to its level

The bound is a quantile of Student's t, the same at each point; how often it alarms by chance over
a year, and how soon it finds what is there, is counted by simulation (tests/tools/changes_table.py,
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
    MAD_TO_SIGMA,
    UPPER_PROBABILITY,
    Estimate,
    autocorrelation,
    robust_spread,
)
from ..throughput.warmup import MAD_EFFICIENCY, variance_of_mean

FALSE_SPLIT_CHANCE: Final = 3e-7
"""Chance that one split of a steady series passes the bound. A year of nights asks of thousands,
most of them much like another; what comes of that is counted by simulation."""
MIN_POINTS: Final = 10
"""Points from which on changes are looked for: fewer do not tell how runs scatter."""
MIN_POINTS_PER_SIDE: Final = 2
"""Points before a change and behind it, at least, that do not stand alone."""
MAX_LEVEL_POINTS: Final = 200
"""Latest points of a level in which a change is looked for, half of them at most behind it."""
MAX_SPREAD_POINTS: Final = 100
"""Latest points whose scatter is the spread."""
MIN_RELATIVE_SPREAD: Final = 0.001
"""Relative; runs that print the same rounded rate are no surer than this."""
MAX_LEVEL_SPREADS: Final = 4.0
"""Spreads beyond which a point is far from a level, and at which its distance is clipped."""
MAX_AGREEING_SPREADS: Final = MAX_LEVEL_SPREADS * sqrt(2)
"""Spreads within which two points agree: so many standard deviations of their difference."""
MAX_STRAY_SHARE: Final = 0.4
"""The share of the points behind a change, one left out, that may lie nearer to the level
before."""
MIN_CANDIDATE_ERRORS: Final = 4.0
"""Standard errors, by a quick spread, from which a split is looked at closely."""
MAX_SQUARED_ERROR_DROP: Final = 4.0
"""A split is nearly as likely where its squared standard errors are less by up to this."""
SETTLING_POINTS: Final = 3
"""Later points by which it is known whether a point stands alone."""
FALSE_SHIFT_CHANCE: Final = 0.001
"""Chance that a level that is its baseline's seems off it. A baseline is one draw, and stays."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of level, by places in the series.

    first: the first point behind it; confirmed_at: the point whose arrival made it sure; earliest,
    latest: where it may begin as well, nearly as likely
    """

    first: int
    confirmed_at: int
    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class BaselineShift:
    """A level that is surely not its baseline's.

    first: the first point of the level; confirmed_at: the point since whose arrival it has been
    sure
    """

    first: int
    confirmed_at: int


@dataclass(frozen=True, slots=True)
class SeriesLevels:
    """The levels of a series, on the log scale.

    lone_points: points that have no say
    spread: from run to run; None of fewer than MIN_POINTS points; degrees_of_freedom: its degrees
    of freedom autocorrelation: autocorrelation of neighbours, at least 0 means, counts: at each
    point the mean, and the number of points, of the level as known then quick_spreads: at each
    point a quick spread
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

    @property
    def starts(self) -> list[int]:
        """The first point of each level."""
        return [0, *(change.first for change in self.changes)]

    def segments(self) -> list[slice]:
        """The points of each level."""
        return [slice(*ends) for ends in pairwise([*self.starts, len(self.values)])]

    def level(self, segment: slice) -> float:
        """Mean of the points that have a say; where none has, the median."""
        said = self.values[segment][~self.lone_points[segment]]
        return float(said.mean()) if len(said) else float(np.median(self.values[segment]))

    def rate(self, segment: slice) -> Estimate | None:
        """The rate of a level with its 95 % interval; None where the spread is not known."""
        if self.spread is None:
            return None
        return self._estimate(self.level(segment), self._variance(segment))

    def ratio(self, change: int) -> Estimate:
        """Rate behind a change over the rate before it, by all points of both levels."""
        before, after = self.segments()[change : change + 2]
        apart = self.level(after) - self.level(before)
        return self._estimate(apart, self._variance(before) + self._variance(after))

    def ratio_to_baseline(self, baseline: float) -> Estimate | None:
        """The last level's rate over one run's; baseline: logarithm of its rate."""
        if self.spread is None:
            return None
        last = self.segments()[-1]
        return self._estimate(self.level(last) - baseline, self._variance(last) + 1)

    def outliers(self) -> BoolArray:
        """Points that stand alone and far from their level; none where the spread is not known."""
        far = np.zeros(len(self.values), bool)
        if self.spread is not None:
            for segment in self.segments():
                apart = np.abs(self.values[segment] - self.level(segment))
                far[segment] = apart > MAX_LEVEL_SPREADS * self.spread
        return far & self.lone_points

    def shift_from_baseline(
        self, baseline: float, since: int, threshold: float = 0.0
    ) -> BaselineShift | None:
        """Since when the level is surely off its baseline; None where it is not, as of now.

        Off by chance in FALSE_SHIFT_CHANCE of the baselines at most; behind a confirmed change to
        that side, which is no chance, where the level's 95 % interval leaves the baseline out.

        baseline: logarithm of one run's rate; since: the first point that is asked; threshold:
        relative size from which it matters
        """
        if self.spread is None:
            return None
        apart = self.means - baseline
        freedom = MAD_EFFICIENCY * np.minimum(np.arange(len(apart)), MAX_SPREAD_POINTS)
        quantile = np.where(
            self._changed(np.sign(apart), since), UPPER_PROBABILITY, 1 - FALSE_SHIFT_CHANCE / 2
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
        """At which points the last change that was confirmed since is one to their side."""
        changed = np.zeros(len(side), bool)
        for change in self.changes:
            if change.first >= since:
                to = self.means[change.confirmed_at] - self.means[change.first - 1]
                changed[change.confirmed_at :] = side[change.confirmed_at :] == np.sign(to)
        return changed

    def _variance(self, segment: slice) -> float:
        """The variance of the mean of a level, in units of the spread squared."""
        said = np.count_nonzero(~self.lone_points[segment])
        return _variance(self.autocorrelation, max(1, int(said)))

    def _estimate(self, middle: float, variance: float) -> Estimate:
        """With the interval of a known spread."""
        spread = self.spread or 0.0
        half = (
            quantiles.student_t_quantile(self.degrees_of_freedom, UPPER_PROBABILITY)
            * spread
            * sqrt(variance)
        )
        return Estimate(exp(middle), exp(middle - half), exp(middle + half))


def find_levels(log_rates: FloatArray) -> SeriesLevels:
    """The levels of a series; log_rates: logarithms of rates, in order of time.

    The changes found of the first n points are what these alone give: later points add to them.
    """
    if len(log_rates) < MIN_POINTS:
        return SeriesLevels(log_rates, (), np.zeros(len(log_rates), bool))
    seen = _Seen(log_rates)
    found: list[Change] = []
    before = np.empty(0)
    start, at, end = 0, MIN_POINTS - 1, len(log_rates)
    while (change := seen.next_change(start, at, before)) is not None:
        found.append(change)
        before = _with(before, seen.said(start, change.first, change.confirmed_at))
        start, at = change.first, change.confirmed_at + 1
    rest = _with(before, seen.said(start, end, end - 1))
    alone = ~seen.settled(end - 1)
    spread, degrees_of_freedom, autocorrelation = _scatter(rest)
    means, counts = seen.known_levels(found)
    return SeriesLevels(
        values=log_rates,
        changes=tuple(found),
        lone_points=alone,
        spread=spread,
        degrees_of_freedom=degrees_of_freedom,
        autocorrelation=autocorrelation,
        means=means,
        counts=counts,
        quick_spreads=seen.quick,
    )


def _with(before: FloatArray, said: FloatArray) -> FloatArray:
    """Distances from their levels of the latest points: of earlier levels, then of this one."""
    return np.concatenate([before, said - said.mean() if len(said) else said])[-MAX_SPREAD_POINTS:]


class _Seen:
    """A series as it stood at each of its points."""

    def __init__(self, values: FloatArray) -> None:
        self.values = values
        self.quick = _quick_spreads(values)
        self.company = _company(values, self.quick)
        self.counts, self.sums = self._cumulated()

    def settled(self, at: int) -> BoolArray:
        """Which points have a say, as far as was known at point `at`."""
        out = self.company[SETTLING_POINTS, : at + 1].copy()
        for later in range(min(SETTLING_POINTS, at + 1)):
            out[at - later] = self.company[later, at - later]
        return out

    def said(self, start: int, end: int, at: int) -> FloatArray:
        """Values from start up to end that have a say at point `at`."""
        return self.values[start:end][self.settled(at)[start:end]]

    def _cumulated(self) -> tuple[FloatArray, FloatArray]:
        """For each point the number and the sum of the last 1, 2, … values that have a say."""
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
        """At each point the mean and the number of the values of its level, as then known."""
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

    def next_change(self, start: int, at: int, before: FloatArray) -> Change | None:
        """The first change that point `at` or a later one makes sure, of the level since start."""
        chunk = 64
        for low in range(at, len(self.values), chunk):
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
        """How far the means before and behind a split differ, for each point and number behind it.

        In standard errors of values whose spread is 1; 0 where a side has too few points.
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

    def _surely(self, start: int, first: int, at: int, before: FloatArray) -> float | None:
        """The spread, where a split is more than chance; else None."""
        start = max(start, at + 1 - MAX_LEVEL_POINTS)
        one, two = self.said(start, first, at), self.said(first, at + 1, at)
        low, high = float(one.mean()), float(two.mean())
        shift = high - low
        stray = np.count_nonzero((two - low) / shift < 1 / 2)
        if stray > MAX_STRAY_SHARE * (len(two) - 1):
            return None
        rest = np.concatenate([before, one - low, two - high])[-MAX_SPREAD_POINTS:]
        spread, freedom, alike = _scatter(rest)
        error = spread * sqrt(_variance(alike, len(one), len(two)))
        return spread if abs(shift) > _bound(freedom) * error else None


def _scatter(rest: FloatArray) -> tuple[float, float, float]:
    """Spread of the distances from their levels, its degrees of freedom, their autocorrelation."""
    widest = MAX_LEVEL_SPREADS * max(robust_spread(rest), MIN_RELATIVE_SPREAD)
    near = np.clip(rest, -widest, widest)
    freedom = max(1, len(near) - 2)
    spread = max(sqrt(float(near @ near) / freedom), MIN_RELATIVE_SPREAD)
    return spread, freedom, max(0.0, autocorrelation(near)) if len(near) else 0.0


@lru_cache(maxsize=1024)
def _bound(freedom: float) -> float:
    return quantiles.student_t_quantile(freedom, 1 - FALSE_SPLIT_CHANCE / 2)


def _variance(alike: float, *points: int) -> float:
    """The variance of a difference of means of so many points each, or of one, of spread 1."""
    return float(variance_of_mean(np.array(points, float), alike).sum())


def _quick_spreads(values: FloatArray) -> FloatArray:
    """At each point the spread by the steps from point to point, which no change of level widens.

    The first points take that of point MIN_POINTS.
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
    spreads = np.maximum(
        np.concatenate([[0.0], middle]) * (MAD_TO_SIGMA / sqrt(2)), MIN_RELATIVE_SPREAD
    )
    spreads[: MIN_POINTS - 1] = spreads[MIN_POINTS - 1]
    return np.asarray(spreads)


def _company(values: FloatArray, spreads: FloatArray) -> BoolArray:
    """Whether each point agrees with a neighbour: by 0, 1, … later points; the last row by all.

    A neighbour is the next point, or the next but one where the point between stands alone.
    """
    one, two = (_agree(values, spreads, apart) for apart in (1, 2))
    rows = []
    for later in range(SETTLING_POINTS + 1):

        def known(agrees: BoolArray, ahead: int, later: int = later) -> BoolArray:
            """What is known of the point so far ahead, or behind, by then."""
            return _shifted(agrees, ahead) if ahead <= later else np.zeros_like(agrees)

        before_alone = ~(known(one, -1) | known(two, -1) | known(one, 0) | known(two, 1))
        after_alone = ~(known(one, 1) | known(two, 1) | known(one, 2) | known(two, 3))
        over_one = (known(two, 0) & before_alone) | (known(two, 2) & after_alone)
        rows.append(known(one, 0) | known(one, 1) | over_one)
    return np.array(rows)


def _agree(values: FloatArray, spreads: FloatArray, apart: int) -> BoolArray:
    """Whether a point agrees with the one `apart` before it; the first have none."""
    near = np.zeros(len(values), bool)
    near[apart:] = (
        np.abs(values[apart:] - values[:-apart]) <= MAX_AGREEING_SPREADS * spreads[apart:]
    )
    return near


def _shifted(flags: BoolArray, by: int) -> BoolArray:
    """flags[i + by], False beyond the ends."""
    out = np.zeros_like(flags)
    if by >= 0:
        out[: len(flags) - by] = flags[by:]
    else:
        out[-by:] = flags[:by]
    return out
