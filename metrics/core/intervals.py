"""Confidence intervals of rates: ratios of sums over autocorrelated windows.

A run's time per token is split into its pace and its stalls (windows far above their
surroundings), because the two are uncertain in different ways:

    pace     autocorrelated. Its long-run variance is the mean square of the series' projections on
             the first B cosines, and the interval uses Student's t with B degrees of freedom
             (equal-weighted cosines: Müller 2004, Phillips 2005; Lazarus, Lewis, Stock and Watson
             2018, "HAR inference"). No model of the dependence is assumed.
    stalls   rare and of any size. Their sum is a compound Poisson variable: a gamma interval of
             (sum of excess)^2 / (sum of excess^2) events, with Jeffreys' half an event.

The distances of both to their bounds are combined in quadrature (MOVER; Zou and Donner 2008). The
intervals of two runs are combined in the same way for a ratio, by the degrees of freedom of both
(Welch-Satterthwaite): two runs know their common scatter better than one. A moving-block bootstrap,
used earlier, covered 89 % instead of 95 % (200 windows, autocorrelation 0.6).
tests/metrics/core/test_interval_coverage.py checks the coverage of this method.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, hypot, inf, log, sqrt
from typing import Final

import numpy as np
import polars as pl

from . import quantiles
from .arrays import FloatArray, median_of, quantile_of_ordered

CONFIDENCE: Final = 0.95
DETECTABLE_HALF_WIDTHS: Final = 5 / 3
"""Detectable difference, in half-widths of its interval: found in 90 % of pairs of runs, and in
70 % of pairs of short runs with strong autocorrelation."""

MIN_QUANTILE_WINDOWS: Final = 8
"""Windows needed for quantiles. With fewer, 95 % intervals cover the truth in less than 92 % of
runs (autocorrelation 0.6)."""
MIN_INTERVAL_WINDOWS: Final = MIN_QUANTILE_WINDOWS + 1
"""Windows needed for an interval. Of 8 windows, none could be dropped as warm-up
(MIN_SETTLED_WINDOWS of warmup). Where 8 windows remain after dropping one, more of them may be
warm-up too."""
SHORT_SERIES_WIDENING: Final = 2.0
"""Relative widening of an interval, divided by the number of windows: few windows underestimate the
scatter."""
MAX_AUTOCORRELATION: Final = 0.6
SURE_STANDARD_ERRORS: Final = 4.0
DRIFT_AUTOCORRELATION: Final = 0.9
"""Limits of the autocorrelation. A run gets no interval with more than MAX_AUTOCORRELATION, by
SURE_STANDARD_ERRORS standard errors, nor with more than DRIFT_AUTOCORRELATION: 95 % intervals of
such series cover the truth in too few runs."""
MIN_REPEATS: Final = 3
"""Repeated runs needed for an interval between runs."""
LEAST_STANDARD_ERRORS: Final = 1.28
"""Least half-width of repeated runs, in standard errors of their windows: their 80 % interval. Runs
that agree by chance are not exact. With the 95 % interval, all intervals of runs that do not
scatter would be too wide: they would cover the truth in 99 %."""

FLOAT_TOLERANCE: Final = 1e-9
"""Relative difference explained by floating-point arithmetic alone."""

WINDOWS_PER_COSINE: Final = 10
EFFECTIVE_WINDOWS_PER_COSINE: Final = 4
MAX_COSINES: Final = 8
MIN_COSINES: Final = 2
"""Limits on the number of cosines. Few cosines measure only slow swings, as intended; the price
is a wider Student's t."""

MAD_TO_SIGMA: Final = 1.4826
"""Standard deviation of a normal distribution, divided by its median absolute deviation."""
MIDDLE_80_TO_SIGMA: Final = 2.563
"""Width of the middle 80 % of a normal distribution, in standard deviations."""

UPPER_PROBABILITY: Final = (1 + CONFIDENCE) / 2
LOWER_PROBABILITY: Final = 1 - UPPER_PROBABILITY


@dataclass(frozen=True, slots=True)
class Estimate:
    """Positive figure with its 95 % interval, not necessarily symmetrical.

    freedom: degrees of freedom of the scatter behind the interval; inf if not few, or unknown
    """

    value: float
    low: float
    high: float
    freedom: float = inf

    @property
    def lower_log_distance(self) -> float:
        """Return the distance to the lower bound on the log scale."""
        return log(self.value / self.low)

    @property
    def upper_log_distance(self) -> float:
        """Return the distance to the upper bound on the log scale."""
        return log(self.high / self.value)

    @property
    def log_error(self) -> float:
        """Return the standard error on the log scale, by the wider side."""
        return _error_of(max(self.lower_log_distance, self.upper_log_distance), self.freedom)


def _error_of(distance: float, freedom: float) -> float:
    """Return the standard error of which a distance is the 95 % interval."""
    return distance / quantiles.expanded_student_t_quantile(freedom, UPPER_PROBABILITY)


@dataclass(frozen=True, slots=True)
class RateInterval:
    """Rate of one run: `estimate`, or None and `no_interval_reason` in words.

    effective_windows: effective sample size of the pace, in windows; autocorrelation: of
    neighbouring windows. Both are None with fewer than MIN_INTERVAL_WINDOWS windows or no time
    outside stalls.
    """

    estimate: Estimate | None
    effective_windows: float | None
    autocorrelation: float | None
    no_interval_reason: str | None = None


def rate_interval(
    tokens: FloatArray, seconds: FloatArray, stall_seconds: FloatArray, rounding_share: float = 0.0
) -> RateInterval:
    """Return sum(tokens) / sum(seconds) with its interval.

    tokens, seconds: one entry per window, in order of time
    stall_seconds: stalled part of `seconds` [s], 0 in windows without a stall
    rounding_share: half a unit of the print's last digit, as a fraction of the value. The interval
        is widened by all of it where windows differ by less.
    """
    n = len(tokens)
    if n < MIN_INTERVAL_WINDOWS:
        return RateInterval(
            None,
            None,
            None,
            f"{n} timed window{'s' * (n != 1)}, {MIN_INTERVAL_WINDOWS} needed",
        )
    whole = float(tokens.sum())
    base = seconds - stall_seconds
    pace = float(base.sum()) / whole
    if not pace > 0:
        return RateInterval(None, None, None, "no time passes between the windows")
    spread = (base - pace * tokens) / (whole / n)
    alike = autocorrelation(spread, FLOAT_TOLERANCE * pace)
    effective = n * min(1.0, (1 - alike) / (1 + alike))
    unsure = SURE_STANDARD_ERRORS * sqrt((1 - MAX_AUTOCORRELATION**2) / n)
    if alike > min(DRIFT_AUTOCORRELATION, MAX_AUTOCORRELATION + unsure):
        why = f"speed drifts during the run (autocorrelation {alike:.2f})"
        return RateInterval(None, effective, alike, why)
    cosines = _cosine_count(n, effective)
    error = _long_run_error(spread, cosines)
    fewer, more = stall_distances(stall_seconds / whole)
    middle = float(seconds.sum()) / whole
    rounding = rounding_share * middle if _coarse(spread, rounding_share * pace) else 0.0
    fast = middle - hypot(error, fewer) - rounding
    slow = middle + hypot(error, more) + rounding
    if fast <= 0:
        return RateInterval(None, effective, alike, "windows differ by more than the rate itself")
    freedom = _freedom(cosines, error, max(slow - middle, middle - fast))
    return RateInterval(Estimate(1 / middle, 1 / slow, 1 / fast, freedom), effective, alike)


def _freedom(cosines: int, error: float, distance: float) -> float:
    """Return the degrees of freedom of a distance (Satterthwaite).

    error: the part of the distance that a number of cosines measured. The rest, of stalls and
        rounding, counts as normally distributed.
    """
    return inf if error <= 0 else cosines * (distance / error) ** 4


def robust_spread(values: FloatArray) -> float:
    """Return the standard deviation from the median absolute deviation; 0 if empty.

    Outliers do not change the result.
    """
    if not len(values):
        return 0.0
    return MAD_TO_SIGMA * median_of(np.abs(values - median_of(values)))


def spread_of_most(deviations: FloatArray) -> float:
    """Return the standard deviation without outliers, of values that may alternate.

    The larger of two estimates: the median distance from 0, and the width of the middle 80 %. The
    median distance may be 0 for micro-steps, or where most values are printed alike.

    deviations: values around 0
    """
    ordered = np.sort(deviations)
    low, high = (quantile_of_ordered(ordered, share) for share in (0.1, 0.9))
    by_median = MAD_TO_SIGMA * median_of(np.abs(deviations))
    return max(by_median, (high - low) / MIDDLE_80_TO_SIGMA)


@dataclass(frozen=True, slots=True)
class RobustSummary:
    """Distribution of one run's windows, all weighted equally; rates in tokens/s.

    median, p5, p95: quantiles of the windows' rates, interpolated linearly; mad: median distance
    from the median; trimmed: tokens over seconds of the windows from p5 to p95
    """

    median: float
    p5: float
    p95: float
    mad: float
    trimmed: float


def robust_summary(tokens: FloatArray, seconds: FloatArray) -> RobustSummary | None:
    """Return the summary that outliers leave unchanged.

    None with too few windows, or with a window of no time. Memory: four arrays of this size, so
    summarise many runs one after the other.

    tokens, seconds: one entry per window, in any order
    """
    if len(seconds) < MIN_QUANTILE_WINDOWS or not (seconds > 0).all():
        return None
    rates = tokens / seconds
    places = _ordered(rates)
    p5, median, p95 = (
        quantile_of_ordered(places, share)
        for share in (TRIMMED_TAIL_SHARE, 0.5, 1 - TRIMMED_TAIL_SHARE)
    )
    middle = (p5 <= rates) & (rates <= p95)
    trimmed = float(tokens[middle].sum()) / float(seconds[middle].sum())
    return RobustSummary(median, p5, p95, _median_distance(places, median), trimmed)


TRIMMED_TAIL_SHARE: Final = 0.05
"""Share of the windows dropped at either end for the trimmed rate."""


def _ordered(values: FloatArray) -> FloatArray:
    """Return the values as np.sort orders them; at least one value.

    Non-negative floats sort like their bits, and Polars sorts whole numbers about equally fast on
    every CPU. np.sort takes more than three times as long on AMD's Zen 4, with AVX-512.
    """
    bits = values.view(np.int64)
    if bits.min() < 0:
        return np.sort(values)
    return pl.Series(bits).sort(multithreaded=False).to_numpy().view(np.float64)


def _median_distance(ordered: FloatArray, middle: float) -> float:
    """Return the median distance of ordered values from `middle`.

    The k nearest values are neighbours. So the k-th smallest distance is the minimum, over all
    groups of k neighbours, of the largest distance in the group: no second sort.

    middle: one of the values, or a value between two of them
    """
    n = len(ordered)

    def reach(k: int) -> float:
        return float(np.maximum(middle - ordered[: n - k + 1], ordered[k - 1 :] - middle).min())

    low, high = reach((n + 1) // 2), reach(n // 2 + 1)
    return low + (high - low) / 2


def autocorrelation(series: FloatArray, tolerance: float = 0.0) -> float:
    """Return the correlation of neighbouring values, corrected for short series.

    The bias is -(1 + 3 r) / n (Marriott and Pope 1954).

    tolerance: series with a standard deviation up to this count as constant, with a correlation of
    0
    """
    series = series - series.mean()
    scatter = float(series @ series)
    if scatter <= len(series) * tolerance**2:
        return 0.0
    raw = float(series[1:] @ series[:-1]) / scatter
    return float(np.clip(raw + (1 + 3 * raw) / len(series), -0.99, 0.99))


def _cosine_count(n: int, effective: float) -> int:
    """Return the number of cosines for n windows with this effective sample size."""
    room = int(min(n / WINDOWS_PER_COSINE, effective / EFFECTIVE_WINDOWS_PER_COSINE))
    return max(MIN_COSINES, min(MAX_COSINES, room))


def _long_run_error(series: FloatArray, cosines: int) -> float:
    """Return half the width of the interval of the mean of `series`."""
    n = len(series)
    projected = _cosines(n, cosines) @ (series - series.mean())
    error = sqrt(float(np.mean(projected**2)) / n)
    return (
        quantiles.student_t_quantile(cosines, UPPER_PROBABILITY)
        * error
        * (1 + SHORT_SERIES_WIDENING / n)
    )


@lru_cache(maxsize=8)
def _cosines(n: int, count: int) -> FloatArray:
    """Return the first `count` cosines over n points, each of length 1 and mean 0."""
    place = (np.arange(n) + 0.5) / n
    angles = np.pi * np.arange(1, count + 1)[:, None] * place
    return np.asarray(np.sqrt(2 / n) * np.cos(angles))


def stall_distances(excess: FloatArray) -> tuple[float, float]:
    """Return the distances from the total excess to its lower and upper bound.

    Both are 0 without any excess.

    excess: of each window
    """
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
    """Return whether windows differ by less than the print resolves.

    Rounding errors of such windows do not average out.
    """
    return float(np.std(spread)) < unit


def estimate_ratio(numerator: Estimate, denominator: Estimate) -> Estimate:
    """Return the ratio of two independent runs, with its interval.

    The distances are combined in quadrature on the log scale (MOVER), by the freedom of both.
    """
    value = numerator.value / denominator.value
    freedoms = (numerator.freedom, denominator.freedom)
    down = _joined((numerator.lower_log_distance, denominator.upper_log_distance), freedoms)
    up = _joined((numerator.upper_log_distance, denominator.lower_log_distance), freedoms)
    return Estimate(value, value * exp(-down), value * exp(up))


def _joined(distances: Sequence[float], freedoms: Sequence[float]) -> float:
    """Return the distance of a sum of independent figures (Welch-Satterthwaite)."""
    errors = [_error_of(*part) for part in zip(distances, freedoms, strict=True)]
    variance = sum(error**2 for error in errors)
    spread = sum(error**4 / freedom for error, freedom in zip(errors, freedoms, strict=True))
    freedom = variance**2 / spread if spread > 0 else inf
    return quantiles.expanded_student_t_quantile(freedom, UPPER_PROBABILITY) * sqrt(variance)


def smallest_difference(between: Estimate) -> float:
    """Return the smallest difference of two rates that such an interval mostly finds.

    between: the ratio of the rates. A fraction: 0.02 means that runs 2 % apart would be told apart
        in 90 of 100 such pairs.
    """
    widest = max(between.lower_log_distance, between.upper_log_distance)
    return exp(widest * DETECTABLE_HALF_WIDTHS) - 1


def mean_over_runs(
    rates: Sequence[float], run_estimates: Sequence[Estimate] = ()
) -> Estimate | None:
    """Return the geometric mean of repeated runs, with an interval from their scatter.

    The interval uses Student's t on the log scale. Unlike the interval of one run, the scatter
    includes differences between runs, such as their nodes. None with fewer than MIN_REPEATS runs.

    run_estimates: the rates with the intervals of single runs. They set the least width, so repeats
        that happen to agree are not exact (LEAST_STANDARD_ERRORS).
    """
    if len(rates) < MIN_REPEATS:
        return None
    logs = np.log(np.asarray(rates, np.float64))
    middle = float(logs.mean())
    half = (
        quantiles.student_t_bound(len(rates) - 1, UPPER_PROBABILITY)
        * float(logs.std(ddof=1))
        / sqrt(len(rates))
    )
    half = max(half, LEAST_STANDARD_ERRORS * _error_of_mean(run_estimates))
    return Estimate(exp(middle), exp(middle - half), exp(middle + half))


def _error_of_mean(run_estimates: Sequence[Estimate]) -> float:
    """Return the standard error of a mean of these runs, on the log scale."""
    squares = sum(one.log_error**2 for one in run_estimates)
    return sqrt(squares) / len(run_estimates) if run_estimates else 0.0


@dataclass(frozen=True, slots=True)
class RepeatedRates:
    """Rates of repeated runs, and the intervals of the single runs."""

    rates: tuple[float, ...]
    run_estimates: tuple[Estimate, ...] = ()


def ratio_of_repeats(numerator: RepeatedRates, denominator: RepeatedRates) -> Estimate:
    """Return the ratio of two geometric means of repeated runs, with its interval.

    Welch's t on the log scale, with the degrees of freedom of Satterthwaite. The intervals of the
    single runs set the least width, as in `mean_over_runs`. Both need MIN_REPEATS runs.
    """
    logs = [np.log(np.asarray(side.rates, np.float64)) for side in (numerator, denominator)]
    middle = float(logs[0].mean() - logs[1].mean())
    errors = [float(one.var(ddof=1)) / len(one) for one in logs]
    parts = [error**2 / (len(one) - 1) for error, one in zip(errors, logs, strict=True)]
    half = 0.0
    if sum(parts):
        freedom = sum(errors) ** 2 / sum(parts)
        half = quantiles.student_t_bound(freedom, UPPER_PROBABILITY) * sqrt(sum(errors))
    errors = [_error_of_mean(side.run_estimates) for side in (numerator, denominator)]
    half = max(half, LEAST_STANDARD_ERRORS * hypot(*errors))
    return Estimate(exp(middle), exp(middle - half), exp(middle + half))
