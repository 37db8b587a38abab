"""How sure a rate is: intervals of ratios of sums over windows that resemble their neighbours.

A run's time per token is taken apart into its pace and its stalls (windows far above their
surroundings), because the two are uncertain in different ways:

    pace     autocorrelated. Its long-run variance is the mean square of the series' projections on
             the first B cosines, and the interval takes Student's t of B degrees of freedom
             (equal-weighted cosines: Müller 2004, Phillips 2005; Lazarus, Lewis, Stock and Watson
             2018, "HAR inference"). No model of the dependence is assumed.
    stalls   rare and of any size. Their sum is a compound Poisson variable: a gamma interval of
             (sum of excess)^2 / (sum of excess^2) events, with Jeffreys' half an event.

The distances of both to their bounds are joined in quadrature (MOVER; Zou and Donner 2008), as are
those of the two runs of a ratio. A moving-block bootstrap, which this replaces, covered 89 % where
95 were claimed (200 windows, autocorrelation 0.6); tests/metrics/core/test_interval_coverage.py
holds what this covers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, hypot, log, sqrt
from typing import Final

import numpy as np
import polars as pl

from . import quantiles
from .arrays import FloatArray

CONFIDENCE: Final = 0.95
DETECTABLE_HALF_WIDTHS: Final = 5 / 3
"""A difference of so many half-widths of its interval is found in 90 % of pairs of runs, of short
runs with much autocorrelation in 70 %."""

MIN_QUANTILE_WINDOWS: Final = 8
"""Windows that quantiles need. With fewer, 95 % intervals cover the truth in less than 92 %
(autocorrelation 0.6)."""
MIN_INTERVAL_WINDOWS: Final = MIN_QUANTILE_WINDOWS + 1
"""Windows that an interval needs: of 8 none could be taken for warm-up (MIN_SETTLED_WINDOWS of
warmup), and where 8 are left behind one, more may be warm-up too."""
SHORT_SERIES_WIDENING: Final = 2.0
"""Intervals of n windows are wider by this over n: of few, the scatter is told too small."""
MAX_AUTOCORRELATION: Final = 0.6
SURE_STANDARD_ERRORS: Final = 4.0
DRIFT_AUTOCORRELATION: Final = 0.9
"""An autocorrelation that is surely, by so many standard errors, above the first has no interval,
nor has one above the last: 95 % intervals of such series cover the truth in too few runs."""
MIN_REPEATS: Final = 3
"""Repeats that an interval between runs needs."""

FLOAT_TOLERANCE: Final = 1e-9
"""Relative difference that comes from computing with floats alone."""

WINDOWS_PER_COSINE: Final = 10
EFFECTIVE_WINDOWS_PER_COSINE: Final = 4
MAX_COSINES: Final = 8
MIN_COSINES: Final = 2
"""Few cosines see only slow swings, as they have to, and pay with a wider Student's t."""

MAD_TO_SIGMA: Final = 1.4826
"""Standard deviation of a normal distribution over its median absolute deviation."""
MIDDLE_80_TO_SIGMA: Final = 2.563
"""Width of the middle 80 % of a normal distribution, in standard deviations."""

UPPER_PROBABILITY: Final = (1 + CONFIDENCE) / 2
LOWER_PROBABILITY: Final = 1 - UPPER_PROBABILITY


@dataclass(frozen=True, slots=True)
class Estimate:
    """A positive figure with its 95 % interval, which need not be symmetrical."""

    value: float
    low: float
    high: float

    @property
    def lower_log_distance(self) -> float:
        """Distance to the lower bound on the log scale."""
        return log(self.value / self.low)

    @property
    def upper_log_distance(self) -> float:
        """Distance to the upper bound on the log scale."""
        return log(self.high / self.value)


@dataclass(frozen=True, slots=True)
class RateInterval:
    """A rate of one run: `estimate`, or None and `no_interval_reason` in words.

    effective_windows: how many independent windows would say as much of the pace; autocorrelation:
    of neighbouring windows; None of fewer than three windows.
    """

    estimate: Estimate | None
    effective_windows: float | None
    autocorrelation: float | None
    no_interval_reason: str | None = None


def rate_interval(
    tokens: FloatArray, seconds: FloatArray, stall_seconds: FloatArray, rounding_share: float = 0.0
) -> RateInterval:
    """sum(tokens) / sum(seconds) with its interval.

    tokens, seconds: one entry per window, in order of time; excess [s]: what of `seconds` is a
    stall, 0 in other windows; rounding_share: half a unit of the print's last digit as a fraction,
    which counts in full where windows differ by less than it.
    """
    n = len(tokens)
    if n < MIN_INTERVAL_WINDOWS:
        return RateInterval(
            None,
            None,
            None,
            f"{n} window{'s' * (n != 1)}: an interval needs {MIN_INTERVAL_WINDOWS}",
        )
    whole = float(tokens.sum())
    base = seconds - stall_seconds
    pace = float(base.sum()) / whole
    if not pace > 0:
        return RateInterval(None, None, None, "no time between the windows")
    spread = (base - pace * tokens) / (whole / n)
    alike = autocorrelation(spread, FLOAT_TOLERANCE * pace)
    effective = n * min(1.0, (1 - alike) / (1 + alike))
    unsure = SURE_STANDARD_ERRORS * sqrt((1 - MAX_AUTOCORRELATION**2) / n)
    if alike > min(DRIFT_AUTOCORRELATION, MAX_AUTOCORRELATION + unsure):
        why = f"the windows drift (autocorrelation {alike:.2f}): noise can't be told from it"
        return RateInterval(None, effective, alike, why)
    error = _long_run_error(spread, effective)
    fewer, more = _stalls(stall_seconds / whole)
    middle = float(seconds.sum()) / whole
    rounding = rounding_share * middle if _coarse(spread, rounding_share * pace) else 0.0
    fast = middle - hypot(error, fewer) - rounding
    slow = middle + hypot(error, more) + rounding
    if fast <= 0:
        return RateInterval(None, effective, alike, "windows differ by more than the rate itself")
    return RateInterval(Estimate(1 / middle, 1 / slow, 1 / fast), effective, alike)


def robust_spread(values: FloatArray) -> float:
    """Standard deviation by the median distance from the median, which outliers leave alone."""
    if not len(values):
        return 0.0
    return MAD_TO_SIGMA * float(np.median(np.abs(values - np.median(values))))


def spread_of_most(deviations: FloatArray) -> float:
    """Standard deviation without a say of outliers, of values that may alternate.

    By the median distance from 0, or by what lies within the middle 80 % where that is wider: of
    micro-steps, or of values that are mostly printed alike, the median distance may be 0.
    """
    low, high = np.quantile(deviations, [0.1, 0.9])
    by_median = MAD_TO_SIGMA * float(np.median(np.abs(deviations)))
    return max(by_median, float(high - low) / MIDDLE_80_TO_SIGMA)


@dataclass(frozen=True, slots=True)
class RobustSummary:
    """How the windows of one run are spread, each with the same say: rates in tokens/s.

    median, p5, p95: of the windows' rates, between neighbours by their distance; mad: the median
    distance from the median; trimmed: tokens over seconds of the windows from p5 to p95
    """

    median: float
    p5: float
    p95: float
    mad: float
    trimmed: float


def robust_summary(tokens: FloatArray, seconds: FloatArray) -> RobustSummary | None:
    """What outliers leave alone; None of too few windows, or where one took no time.

    tokens, seconds: one entry per window, in any order. Takes the room of four such arrays: of
    many runs, one after the other.
    """
    if len(seconds) < MIN_QUANTILE_WINDOWS or not (seconds > 0).all():
        return None
    rates = tokens / seconds
    places = _ordered(rates)
    p5, median, p95 = (
        _quantile(places, share) for share in (TRIMMED_TAIL_SHARE, 0.5, 1 - TRIMMED_TAIL_SHARE)
    )
    middle = (p5 <= rates) & (rates <= p95)
    trimmed = float(tokens[middle].sum()) / float(seconds[middle].sum())
    return RobustSummary(median, p5, p95, _median_distance(places, median), trimmed)


TRIMMED_TAIL_SHARE: Final = 0.05
"""The share of the windows on either side that a trimmed rate leaves out."""


def _ordered(values: FloatArray) -> FloatArray:
    """Values in order, of one or more, as np.sort has them.

    Floats without a sign stand in the order of their bits, and Polars sorts whole numbers about as
    fast everywhere; np.sort takes more than three times as long on AMD's Zen 4 (by its AVX-512).
    """
    bits = values.view(np.int64)
    if bits.min() < 0:
        return np.sort(values)
    return pl.Series(bits).sort(multithreaded=False).to_numpy().view(np.float64)


def _median_distance(ordered: FloatArray, middle: float) -> float:
    """The median distance of ordered values from one of them, or from a place between two.

    The k nearest values are neighbours, so the k-th distance is the least of what k neighbours
    reach to: no second sort.
    """
    n = len(ordered)

    def reach(k: int) -> float:
        return float(np.maximum(middle - ordered[: n - k + 1], ordered[k - 1 :] - middle).min())

    low, high = reach((n + 1) // 2), reach(n // 2 + 1)
    return low + (high - low) / 2


def _quantile(ordered: FloatArray, share: float) -> float:
    """The quantile of ordered values; between two neighbours in proportion."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    low, high = float(ordered[below]), float(ordered[above])
    return low + (high - low) * (place - below)


def autocorrelation(series: FloatArray, tolerance: float = 0.0) -> float:
    """Correlation of neighbours, with the bias of a short series taken out; 0 where all is equal.

    Marriott and Pope 1954 for the bias, -(1 + 3 r) / n. nothing: what differs by no more is equal.
    """
    series = series - series.mean()
    scatter = float(series @ series)
    if scatter <= len(series) * tolerance**2:
        return 0.0
    raw = float(series[1:] @ series[:-1]) / scatter
    return float(np.clip(raw + (1 + 3 * raw) / len(series), -0.99, 0.99))


def _long_run_error(series: FloatArray, effective: float) -> float:
    """Half the width of the interval of the mean of `series`."""
    n = len(series)
    room = int(min(n / WINDOWS_PER_COSINE, effective / EFFECTIVE_WINDOWS_PER_COSINE))
    cosines = max(MIN_COSINES, min(MAX_COSINES, room))
    projected = _cosines(n, cosines) @ (series - series.mean())
    error = sqrt(float(np.mean(projected**2)) / n)
    return (
        quantiles.student_t_quantile(cosines, UPPER_PROBABILITY)
        * error
        * (1 + SHORT_SERIES_WIDENING / n)
    )


@lru_cache(maxsize=8)
def _cosines(n: int, count: int) -> FloatArray:
    """The first `count` cosines over n points, each of length 1 and of mean 0."""
    place = (np.arange(n) + 0.5) / n
    angles = np.pi * np.arange(1, count + 1)[:, None] * place
    return np.asarray(np.sqrt(2 / n) * np.cos(angles))


def _stalls(excess: FloatArray) -> tuple[float, float]:
    """Distance of the sum of the excess to its lower and its upper bound; 0 where none is."""
    sum_, squares = float(excess.sum()), float(excess @ excess)
    if sum_ <= 0:
        return 0.0, 0.0
    events, size = sum_**2 / squares, squares / sum_
    low, high = (
        size * quantiles.gamma_quantile(events + 0.5, q)
        for q in (LOWER_PROBABILITY, UPPER_PROBABILITY)
    )
    return max(0.0, sum_ - low), max(0.0, high - sum_)


def _coarse(spread: FloatArray, unit: float) -> bool:
    """Whether windows differ by less than the print resolves, so that roundings don't average."""
    return float(np.std(spread)) < unit


def estimate_ratio(numerator: Estimate, denominator: Estimate) -> Estimate:
    """one / other of two independent runs: distances in quadrature on the log scale (MOVER)."""
    value = numerator.value / denominator.value
    down, up = (
        hypot(numerator.lower_log_distance, denominator.upper_log_distance),
        hypot(numerator.upper_log_distance, denominator.lower_log_distance),
    )
    return Estimate(value, value * exp(-down), value * exp(up))


def smallest_difference(numerator: Estimate, denominator: Estimate) -> float:
    """Smallest difference of two rates that such intervals mostly find, as a fraction.

    0.02: runs that are 2 % apart would have been told apart in 90 of 100 such pairs.
    """
    between = estimate_ratio(numerator, denominator)
    return (
        exp(max(between.lower_log_distance, between.upper_log_distance) * DETECTABLE_HALF_WIDTHS)
        - 1
    )


def mean_over_runs(
    rates: Sequence[float], run_estimates: Sequence[Estimate] = ()
) -> Estimate | None:
    """Geometric mean of repeated runs, with the interval that their scatter gives.

    It holds what differs from run to run, such as nodes, which no interval of one run does.
    Student's t on the log scale; None for fewer than three runs. own: the runs with intervals of
    their own; repeats that happen to agree are no surer than these make their mean.
    """
    if len(rates) < MIN_REPEATS:
        return None
    logs = np.log(np.asarray(rates, np.float64))
    middle = float(logs.mean())
    half = (
        quantiles.student_t_quantile(len(rates) - 1, UPPER_PROBABILITY)
        * float(logs.std(ddof=1))
        / sqrt(len(rates))
    )
    least = sum(max(one.lower_log_distance, one.upper_log_distance) ** 2 for one in run_estimates)
    half = max(half, sqrt(least) / len(run_estimates) if run_estimates else 0.0)
    return Estimate(exp(middle), exp(middle - half), exp(middle + half))
