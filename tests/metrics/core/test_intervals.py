"""How the windows of a run are spread: against numpy's own functions, and in the metrics."""

from __future__ import annotations

from math import exp, log, sqrt
from statistics import geometric_mean, stdev

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from fairmfu.metrics.core.arrays import FloatArray
from fairmfu.metrics.core.intervals import (
    MIN_QUANTILE_WINDOWS,
    MIN_REPEATS,
    mean_over_runs,
    robust_summary,
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
