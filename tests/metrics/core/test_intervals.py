"""How the windows of a run are spread: against numpy's own functions, and in the metrics."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import exp, isinf, log, sqrt
from statistics import NormalDist, geometric_mean, stdev

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.fft import dct
from scipy.stats import gamma, t

from fairmfu.metrics.core.arrays import FloatArray
from fairmfu.metrics.core.intervals import (
    LEAST_STANDARD_ERRORS,
    MIN_QUANTILE_WINDOWS,
    MIN_REPEATS,
    Estimate,
    autocorrelation,
    estimate_ratio,
    mean_over_runs,
    rate_interval,
    robust_spread,
    robust_summary,
    smallest_difference,
)
from tests.metrics.throughput.test_throughput import at, facts, rates, run, steps

windows_of_runs = st.lists(
    st.tuples(st.floats(1.0, 1e6), st.floats(1e-3, 1e3)), min_size=MIN_QUANTILE_WINDOWS, max_size=60
)


@given(windows_of_runs)
def test_it_is_what_numpy_says(rows: list[tuple[float, float]]) -> None:
    tokens, seconds = (np.array(column) for column in zip(*rows, strict=True))
    found = robust_summary(tokens, seconds)
    of = tokens / seconds
    p5, median, p95 = np.quantile(of, [0.05, 0.5, 0.95])
    assert found is not None
    assert (found.p5, found.median, found.p95) == pytest.approx((p5, median, p95), rel=1e-12)
    away = np.median(np.abs(of - median))
    assert found.mad == pytest.approx(away, rel=1e-9, abs=1e-12 * of.max())
    assert of.min() <= found.p5 <= found.median <= found.p95 <= of.max()
    assert of.min() * (1 - 1e-12) <= found.trimmed <= of.max() * (1 + 1e-12)


@given(st.lists(st.floats(-1e6, 1e6), min_size=MIN_QUANTILE_WINDOWS, max_size=60))
def test_quantiles_are_in_order_whatever_the_sign(tokens: list[float]) -> None:
    """Bits of floats without a sign stand in their order, those with one the other way around."""
    of = np.array(tokens)
    found = robust_summary(of, np.ones(len(tokens)))
    assert found is not None
    told = (found.p5, found.median, found.p95)
    assert told == pytest.approx(np.quantile(of, [0.05, 0.5, 0.95]), rel=1e-12, abs=1e-9)


def even(count: int) -> tuple[FloatArray, FloatArray]:
    return np.full(count, 100.0), np.ones(count)


def test_outliers_move_nothing_but_the_plain_rate() -> None:
    tokens, seconds = even(100)
    seconds[[3, 50]] = 1000.0
    found = robust_summary(tokens, seconds)
    assert found is not None
    assert (found.median, found.p5, found.p95, found.mad, found.trimmed) == (100, 100, 100, 0, 100)


def test_too_few_windows_or_one_without_time_have_none() -> None:
    assert robust_summary(*even(MIN_QUANTILE_WINDOWS - 1)) is None
    tokens, seconds = even(20)
    seconds[7] = 0.0
    assert robust_summary(tokens, seconds) is None


def test_a_run_has_the_spread_of_its_steady_windows() -> None:
    """101 windows behind the first, of 1.00 to 2.00 s: 100 tokens each."""
    times = [1 + n / 100 for n in range(101)]
    shuffled = np.random.default_rng(3).permutation(times)
    logged = steps(
        {"step": 1, "elapsed_s": 60.0},
        *({"step": n, "elapsed_s": float(s)} for n, s in enumerate(shuffled, 2)),
    )
    row = rates(logged, run(elapsed_covers="step"), facts(gpus=1, global_batch_size=1, seq_len=100))
    assert row["windows"] == 101
    assert row["tgs_median"] == pytest.approx(100 / 1.5)
    assert row["tgs_p5"] == pytest.approx(100 / 1.95)
    assert row["tgs_p95"] == pytest.approx(100 / 1.05)
    middle = times[5:96]
    assert row["tgs_trimmed"] == pytest.approx(100 * len(middle) / sum(middle))


def test_stamps_of_whole_seconds_tell_no_spread_of_short_windows() -> None:
    logged = steps(*({"step": n, "logged_at": at(5 * n)} for n in range(1, 40)))
    given = facts(gpus=1, global_batch_size=1, seq_len=100)
    row = rates(logged, run(evidence=["stamp"]), given)
    assert row["tgs"] == pytest.approx(20.0)
    assert row["tgs_median"] is None
    slow = steps(*({"step": n, "logged_at": at(500 * n)} for n in range(1, 40)))
    assert rates(slow, run(evidence=["stamp"]), given)["tgs_median"] == pytest.approx(0.2)


@given(st.lists(st.floats(100.0, 100_000.0), min_size=MIN_REPEATS, max_size=9))
def test_repeats_have_students_interval_of_their_logarithms(repeats: list[float]) -> None:
    """By the standard library's n - 1 standard deviation and SciPy's t: as a textbook has it."""
    found = mean_over_runs(repeats)
    logs = [log(rate) for rate in repeats]
    half = t.ppf(0.975, len(logs) - 1) * stdev(logs) / sqrt(len(logs))
    assert found is not None
    assert found.value == pytest.approx(geometric_mean(repeats))
    assert (found.low, found.high) == pytest.approx(
        (found.value * exp(-half), found.value * exp(half))
    )
    assert mean_over_runs(repeats[: MIN_REPEATS - 1]) is None


def test_repeats_are_no_surer_than_their_own_intervals_make_their_mean() -> None:
    """Three that agree, each 0.2 up or 0.1 down on the log scale: 80 % of sqrt(3 x 0.2^2) / 3."""
    own = [Estimate(100.0, 100 * exp(-0.1), 100 * exp(0.2))] * 3
    found = mean_over_runs([100.0] * 3, own)
    assert found is not None
    least = LEAST_STANDARD_ERRORS / NormalDist().inv_cdf(0.975) / sqrt(3)
    assert log(found.high / 100) == pytest.approx(0.2 * least)
    assert log(100 / found.low) == pytest.approx(0.2 * least)
    down = [Estimate(100.0, 100 * exp(-0.3), 100 * exp(0.2))] * 3
    found = mean_over_runs([100.0] * 3, down)
    assert found is not None
    assert log(found.high / 100) == pytest.approx(0.3 * least)
    few = [replace(one, freedom=2.0) for one in down]
    found = mean_over_runs([100.0] * 3, few)
    assert found is not None
    assert log(found.high / 100) == pytest.approx(
        0.3 * LEAST_STANDARD_ERRORS / t.ppf(0.975, 2) / sqrt(3), rel=0.008
    )
    apart = [100.0, 120.0, 80.0]
    assert mean_over_runs(apart, own[:1] * 3) == mean_over_runs(apart)  # these differ by more


@given(
    st.lists(st.tuples(st.floats(0.001, 0.5), st.floats(2, 40)), min_size=2, max_size=2),
)
def test_a_ratio_has_the_interval_of_welch(sides: list[tuple[float, float]]) -> None:
    """Of errors d / t(f): the textbook's degrees of freedom, SciPy's t, turned round or not."""
    one, other = (Estimate(100.0, 100 * exp(-d), 100 * exp(d), f) for d, f in sides)
    errors = [d / t.ppf(0.975, f) for d, f in sides]
    variance = sum(error**2 for error in errors)
    freedom = variance**2 / sum(e**4 / f for e, (_, f) in zip(errors, sides, strict=True))
    half = t.ppf(0.975, freedom) * sqrt(variance)
    for between in (estimate_ratio(one, other), estimate_ratio(other, one)):
        assert between.value == pytest.approx(1)
        assert log(between.high) == pytest.approx(half, rel=0.016)
        assert log(between.low) == pytest.approx(-half, rel=0.016)


def test_a_ratio_of_unknown_freedom_is_in_quadrature() -> None:
    one = Estimate(100.0, 100 * exp(-0.3), 100 * exp(0.4))
    between = estimate_ratio(one, one)
    assert log(between.high) == pytest.approx(0.5)
    sure = Estimate(1.0, 1.0, 1.0)
    assert estimate_ratio(sure, sure) == sure


def test_the_freedom_of_a_rate_is_that_of_its_cosines_unless_stalls_widen_it() -> None:
    random = np.random.default_rng(3)
    tokens, seconds = np.full(200, 1000.0), random.normal(1.0, 0.01, 200)
    plain = rate_interval(tokens, seconds, np.zeros(200)).estimate
    assert plain is not None
    assert plain.freedom == pytest.approx(8, rel=0.02)
    stalls = np.zeros(200)
    stalls[50] = 1.0
    stalled = rate_interval(tokens, seconds + stalls, stalls).estimate
    assert stalled is not None
    assert stalled.freedom > 1000
    alike = rate_interval(tokens, np.ones(200), np.zeros(200), 0.001).estimate
    assert alike is not None
    assert isinf(alike.freedom)


# --- one run's rate ------------------------------------------------------------------------


def of_seconds(*seconds: float, stalls: FloatArray | None = None) -> tuple[float, float, float]:
    """The rate of windows of 100 tokens with its bounds."""
    found = rate_interval(
        np.full(len(seconds), 100.0),
        np.array(seconds),
        np.zeros(len(seconds)) if stalls is None else stalls,
    ).estimate
    assert found is not None
    return found.value, found.low, found.high


def noise(number: int, seed: int = 1) -> FloatArray:
    return 1 + 0.01 * np.random.default_rng(seed).standard_normal(number)


@pytest.mark.parametrize(("number", "cosines"), [(9, 2), (29, 2), (30, 3), (52, 5), (200, 8)])
def test_an_interval_is_of_projections_on_cosines(number: int, cosines: int) -> None:
    """By SciPy's cosine transform: a cosine for each ten windows, from two to eight."""
    seconds = noise(number)
    if number == 30:
        seconds[1::2] -= 0.01  # neighbours that go against each other are as many as they are
    projected = dct(seconds, type=2, norm="ortho")[1 : cosines + 1]
    error = sqrt(float(np.mean(projected**2)) / number)
    half = t.ppf(0.975, cosines) * error * (1 + 2 / number)
    value, low, high = of_seconds(*seconds)
    assert value == pytest.approx(100 / seconds.mean())
    assert (100 / high, 100 / low) == pytest.approx(
        (seconds.mean() - half, seconds.mean() + half), rel=1e-9
    )


def test_stalls_are_as_sure_as_their_number() -> None:
    """Four of 10 s among 100 windows of 1 s: Jeffreys' interval of four events."""
    excess = np.zeros(100)
    excess[[10, 35, 60, 85]] = 10.0
    value, low, high = of_seconds(*(1 + excess), stalls=excess)
    few, many = (10 * gamma.ppf(q, 4.5) for q in (0.025, 0.975))
    assert value == pytest.approx(10_000 / 140)
    assert (low, high) == pytest.approx((10_000 / (100 + many), 10_000 / (100 + few)))


def test_one_large_stall_among_small_ones_is_hardly_more_than_one() -> None:
    """(20 + 1 + 1)^2 / (400 + 1 + 1) = 1.204 events of 402 / 22 s."""
    excess = np.zeros(50)
    excess[[10, 20, 30]] = 20.0, 1.0, 1.0
    _, low, high = of_seconds(*(1 + excess), stalls=excess)
    few, many = (402 / 22 * gamma.ppf(q, 22**2 / 402 + 0.5) for q in (0.025, 0.975))
    assert (low, high) == pytest.approx((5000 / (50 + many), 5000 / (50 + few)))


@settings(max_examples=25)
@given(st.integers(9, 60), st.floats(1e-6, 1e6), st.floats(1e-3, 1e9), st.integers(0, 99))
def test_an_interval_knows_no_unit(number: int, of_time: float, of_text: float, seed: int) -> None:
    seconds, stalls = noise(number, seed), np.zeros(number)
    stalls[number // 2] = 3.0
    tokens = np.full(number, 100.0)
    one = rate_interval(tokens, seconds + stalls, stalls)
    other = rate_interval(of_text * tokens, of_time * (seconds + stalls), of_time * stalls)
    assert one.estimate is not None
    assert other.estimate is not None
    ratio = of_text / of_time
    assert (other.estimate.low, other.estimate.value, other.estimate.high) == pytest.approx(
        (ratio * one.estimate.low, ratio * one.estimate.value, ratio * one.estimate.high), rel=1e-6
    )
    assert other.effective_windows == pytest.approx(one.effective_windows)


def test_a_print_too_coarse_for_its_windows_counts_in_full() -> None:
    """Windows of 1.00 s that scatter by 0.01: a print to 0.1 s is coarser, one to 0.001 is not."""
    seconds = noise(60)
    tokens, none = np.full(60, 100.0), np.zeros(60)
    exact = rate_interval(tokens, seconds, none).estimate
    fine = rate_interval(tokens, seconds, none, 0.0005).estimate
    coarse = rate_interval(tokens, seconds, none, 0.05).estimate
    assert exact is not None
    assert coarse is not None
    assert fine == exact
    left = 0.05 * float(seconds.mean())
    assert 100 / coarse.low == pytest.approx(100 / exact.low + left)
    assert 100 / coarse.high == pytest.approx(100 / exact.high - left)


@pytest.mark.parametrize(
    ("number", "why"),
    [(1, "1 timed window"), (8, "8 timed windows"), (0, "0 timed windows"), (9, None)],
)
def test_nine_windows_have_an_interval(number: int, why: str | None) -> None:
    found = rate_interval(np.full(number, 100.0), noise(number), np.zeros(number))
    assert (found.estimate is None) == (why is not None)
    told = found.no_interval_reason
    assert told == (why and f"{why}, 9 needed")


def test_windows_that_drift_have_none() -> None:
    slower = np.linspace(1, 2, 400)
    found = rate_interval(np.full(400, 100.0), slower, np.zeros(400))
    assert found.estimate is None
    assert found.no_interval_reason is not None
    assert found.no_interval_reason.startswith("speed drifts during the run (autocorrelation 0.99)")
    assert found.effective_windows == pytest.approx(400 * 0.01 / 1.99)


@pytest.mark.parametrize(("number", "most"), [(400, 0.76), (144, 0.6 + 3.2 / 12), (40, 0.9)])
def test_the_more_windows_the_surer_that_they_drift(number: int, most: float) -> None:
    """Above 0.6 by four standard errors, 0.8 / sqrt(n) each; above 0.9 of any number."""
    random, seen = np.random.default_rng(7), set()
    for alike in most + np.linspace(-0.2, 0.1, 40):
        series = random.standard_normal(number)
        for n in range(1, number):
            series[n] += alike * series[n - 1]
        found = rate_interval(np.full(number, 100.0), 1 + 0.001 * series, np.zeros(number))
        assert found.autocorrelation is not None
        drifts = found.autocorrelation > most
        assert (found.estimate is None) == drifts
        seen.add(drifts)
    assert seen == {False, True}


def test_windows_that_alternate_are_as_many_as_they_are() -> None:
    seconds = np.where(np.arange(40) % 2, 1.1, 0.9)
    found = rate_interval(np.full(40, 100.0), seconds, np.zeros(40))
    assert found.effective_windows == 40
    assert found.autocorrelation is not None
    assert found.autocorrelation < -0.9


@given(st.lists(st.floats(-100, 100), min_size=3, max_size=40))
def test_autocorrelation_is_that_of_neighbours_without_its_bias(values: list[float]) -> None:
    series = np.array(values)
    away = [v - sum(values) / len(values) for v in values]
    found = autocorrelation(series, 1e-6)
    squares = sum(a * a for a in away)
    if squares > len(values) * 1.01e-12:
        raw = sum(a * b for a, b in pairwise(away)) / squares
        unbiased = raw + (1 + 3 * raw) / len(values)
        assert found == pytest.approx(max(-0.99, min(0.99, unbiased)), abs=1e-6)
    elif squares < len(values) * 0.99e-12:
        assert found == 0.0
    assert autocorrelation(np.full(9, 3.0)) == 0.0
    assert autocorrelation(np.array([0.1, -0.1] * 10)) < -0.9  # small, but not equal


def test_a_ratio_of_two_runs_joins_their_distances() -> None:
    """3 and 4 hundredths on the log scale are 5: down is the one's low and the other's high."""
    one = Estimate(200.0, 200 * exp(-0.03), 200 * exp(0.12))
    other = Estimate(100.0, 100 * exp(-0.05), 100 * exp(0.04))
    found = estimate_ratio(one, other)
    assert found.value == 2.0
    assert log(2 / found.low) == pytest.approx(0.05)
    assert log(found.high / 2) == pytest.approx(0.13)
    back = estimate_ratio(other, one)
    assert (back.low, back.high) == pytest.approx((1 / found.high, 1 / found.low))


def test_a_difference_of_five_thirds_of_an_interval_is_found() -> None:
    exact, wide = Estimate(1.0, 1.0, 1.0), Estimate(1.0, exp(-0.06), exp(0.03))
    assert smallest_difference(estimate_ratio(wide, exact)) == pytest.approx(exp(0.1) - 1)
    assert smallest_difference(estimate_ratio(exact, wide)) == pytest.approx(exp(0.1) - 1)
    assert smallest_difference(estimate_ratio(exact, exact)) == 0.0


def test_a_robust_spread_is_the_median_distance_as_a_standard_deviation() -> None:
    assert robust_spread(np.array([1.0, 2.0, 4.0, 8.0, 1000.0])) == pytest.approx(1.4826 * 3)
    assert robust_spread(np.array([])) == 0.0
    normal = np.random.default_rng(2).standard_normal(20_000)
    assert robust_spread(normal) == pytest.approx(1.0, abs=0.03)
