"""Levels and drifts of series whose truth is known. `make slowdowns` counts with many more."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.metrics.core.arrays import FloatArray
from fairmfu.metrics.core.segmentation import (
    MIN_LEVEL_POINTS,
    MIN_POINTS,
    Noise,
    change_error,
    estimate_noise,
    find_levels,
    fit_drift,
    levels_from,
)
from tests.support.effort import THOROUGH
from tests.support.simulated_series import autoregressive

LEAST = 0.02
TRIES = 200 if THOROUGH else 15
SEEDS = st.integers(0, 2**32 - 1)


def series(seed: int, points: int, noise: float = 0.005, alike: float = 0.0) -> FloatArray:
    return autoregressive(points, noise, alike, np.random.default_rng(seed))


def starts(values: FloatArray) -> list[int]:
    return [level.first for level in find_levels(values, LEAST).levels[1:]]


@pytest.mark.parametrize("alike", [0.0, 0.3, 0.6])
def test_a_healthy_series_has_one_level(alike: float) -> None:
    for seed in range(TRIES):
        found = find_levels(series(seed, 60 + 11 * seed % 240, alike=alike), LEAST)
        assert (len(found.levels), found.drift) == (1, None), seed


@pytest.mark.parametrize("alike", [0.0, 0.3, 0.6])
def test_a_shift_of_3_percent_is_placed_within_2_points(alike: float) -> None:
    """The goal is 95 of 100; autocorrelation of 0.6 hides one of 200."""
    missed = []
    for seed in range(TRIES):
        values = series(seed, 120, alike=alike)
        begins = 15 + 7 * seed % 90
        values[begins:] += 0.03
        found = starts(values)
        if len(found) != 1 or abs(found[0] - begins) > 2:
            missed.append(seed)
    assert len(missed) <= TRIES // 100, missed


def test_an_episode_has_a_beginning_and_an_end() -> None:
    for seed in range(TRIES):
        values = series(seed, 150)
        begins = 20 + 5 * seed % 100
        values[begins : begins + 12] += 0.05
        first, last = starts(values)
        assert abs(first - begins) <= 2, seed
        assert abs(last - begins - 12) <= 2, seed


def test_a_drift_is_no_staircase() -> None:
    for seed in range(TRIES):
        values = series(seed, 100, noise=0.01) + np.linspace(0, 0.2, 100)
        found = find_levels(values, LEAST)
        assert len(found.levels) == 1
        assert found.drift is not None
        size, error = found.drift.end - found.drift.start, found.drift.standard_error
        assert abs(size - 0.2) < 5 * error
        assert fit_drift(values).end == pytest.approx(found.drift.end, abs=error)


def test_changes_below_the_least_are_none() -> None:
    values = series(1, 200, noise=0.0005)
    values[100:] += 0.019
    assert starts(values) == []
    values[100:] += 0.004
    assert starts(values) == [100]
    drifting = series(1, 200, noise=0.0005) + np.linspace(0, 0.019, 200)
    assert find_levels(drifting, LEAST).drift is None


@pytest.mark.parametrize("apart", [0.04, 0.3, 3.0])
def test_single_points_far_away_are_no_level(apart: float) -> None:
    values = series(1, 100)
    values[[20, 23, 50, 51, 90]] += apart
    assert starts(values) == []


def test_a_noisier_part_is_one_level() -> None:
    """Half of a real run is twenty times as noisy as the other."""
    values = np.concatenate([series(1, 500, noise=0.002), 0.25 + series(2, 400, noise=0.08)])
    assert starts(values) == pytest.approx([500], abs=2)


def test_alternating_and_skewed_noise_have_one_level() -> None:
    draw = np.random.default_rng(3)
    for _ in range(TRIES):
        assert starts(np.where(draw.random(120) < 0.3, 1.0, 0.0) + series(1, 120)) == []
        assert starts(draw.standard_t(3, 120) * 0.005) == []
        assert starts(np.log1p(draw.exponential(0.02, 120))) == []
        assert starts(np.round(draw.normal(0, 0.02, 120), 2)) == []


def test_a_long_series_is_placed_point_by_point() -> None:
    values = series(1, 5_003)
    values[1_234:4_321] += 0.03
    assert starts(values) == pytest.approx([1_234, 4_321], abs=2)


@pytest.mark.parametrize("points", [1, 2, MIN_POINTS - 1])
def test_few_points_are_one_level(points: int) -> None:
    values = np.arange(points, dtype=np.float64)
    (level,) = find_levels(values).levels
    assert (level.first, level.last, level.mean) == (0, points - 1, values.mean())


def test_a_series_without_noise_has_its_levels() -> None:
    with np.errstate(all="raise"):
        assert starts(np.zeros(50)) == []
        assert starts(np.repeat([0.0, 0.1], [30, 20])) == [30]
        assert starts(np.repeat([0.0, 0.1, 0.0], [30, 20, 25])) == [30, 50]
        assert starts(np.linspace(0.0, 0.1, 50)) == []


@given(SEEDS, st.integers(MIN_POINTS, 150), st.sampled_from([0.0, 0.5]), st.floats(-5, 5))
def test_levels_cover_the_series_and_move_with_it(
    seed: int, points: int, alike: float, by: float
) -> None:
    values = series(seed, points, 0.02, alike)
    values[points // 3 : points // 2] += 0.2
    found = find_levels(values, LEAST)
    firsts, lasts = zip(*((level.first, level.last) for level in found.levels), strict=True)
    assert (firsts[0], lasts[-1]) == (0, points - 1)
    assert [last + 1 for last in lasts[:-1]] == list(firsts[1:])
    assert all(level.last - level.first + 1 >= MIN_LEVEL_POINTS for level in found.levels)
    moved = find_levels(values + by, LEAST)
    assert [level.first for level in moved.levels] == list(firsts)
    scaled = find_levels(values * 4, LEAST * 4)
    assert [level.first for level in scaled.levels] == list(firsts)


@pytest.mark.parametrize("alike", [0.0, 0.3, 0.6])
def test_the_noise_of_a_long_series_is_estimated(alike: float) -> None:
    values = series(5, 4_000, 0.01, alike)
    noise = estimate_noise(np.diff(values))
    assert noise.autocorrelation == pytest.approx(alike, abs=0.1)
    assert noise.innovation == pytest.approx(0.01 * np.sqrt(1 - alike**2), rel=0.1)


@pytest.mark.parametrize(("alike", "points"), [(0.0, 5), (0.6, 5), (0.6, 100), (0.9, 12)])
def test_the_standard_error_is_the_scatter_of_means(alike: float, points: int) -> None:
    means = [series(seed, points, 1.0, alike).mean() for seed in range(2_000)]
    noise = Noise(alike, np.sqrt(1 - alike**2))
    assert noise.standard_error(points) == pytest.approx(np.std(means), rel=0.05)
    assert noise.standard_error(100_000) == pytest.approx(noise.long_run / np.sqrt(1e5), rel=1e-3)


@pytest.mark.parametrize("alike", [0.0, 0.3, 0.6])
@pytest.mark.parametrize("begins", [7, 40])
def test_the_interval_of_a_change_holds_it_and_never_none(alike: float, begins: int) -> None:
    """Of changes that are found, 95 % intervals may miss one in twenty."""
    missed, found = 0, 0
    for seed in range(10 * TRIES):
        values = series(seed, 150, 0.01, alike)
        values[begins:] += 0.06
        begun = starts(values)
        if len(begun) != 1:
            continue
        before, after = levels_from(values, [0, *begun])
        size, half = after.mean - before.mean, change_error(before, after)
        found, missed = found + 1, missed + (abs(size - 0.06) > half)
        assert size > half
    assert found > 9 * TRIES
    assert missed <= 0.07 * found


def test_a_level_that_swings_far_is_no_change() -> None:
    """Seven points around 2 %, from -3 % to 7 %, among points that differ by 1 %."""
    values = series(1, 100, noise=0.01)
    values[:7] = [-0.02, 0.05, 0.055, -0.03, 0.05, -0.02, 0.055]
    assert starts(values) == []
    values[:7] = [0.05, 0.051, 0.049, 0.05, 0.052, 0.048, 0.05]
    assert starts(values) == [7]


@pytest.mark.parametrize("alike", [0.0, 0.6, 0.95])
def test_a_long_series_has_levels_too(alike: float) -> None:
    """More than MAX_POINTS are searched in means, of which one level may be left."""
    for seed in range(TRIES):
        values = series(seed, 1_001 + 337 * seed, alike=alike)
        values[:8] += 0.05  # a short stretch, which the means hide
        levels = find_levels(values, LEAST).levels
        assert (levels[0].first, levels[-1].last) == (0, len(values) - 1)
