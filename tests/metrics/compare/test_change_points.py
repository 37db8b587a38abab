"""Changes of level: series by hand, laws, and simulated nights of which the truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fairmfu.metrics.compare.change_points import MIN_POINTS, MIN_RELATIVE_SPREAD, find_levels
from fairmfu.metrics.core import quantiles
from fairmfu.metrics.throughput.warmup import MAD_EFFICIENCY
from tests.support.series import Array, Nights

WOBBLE = np.array([0.0, 4.0, -3.0, 1.0, -5.0, 2.0, 5.0, -2.0, -1.0, 3.0]) / 1000
"""Ten nights within half a percent."""


def nights(*sizes: float) -> Array:
    """Two times WOBBLE, then one point of each size, all on the log scale."""
    return np.concatenate([WOBBLE, WOBBLE, np.array(sizes)])


def firsts(values: Array) -> list[int]:
    return [change.first for change in find_levels(values).changes]


@pytest.mark.parametrize("size", [-0.10, -0.05, 0.05, 0.10])
def test_two_points_that_agree_are_a_change_and_one_is_an_outlier(size: float) -> None:
    alone = find_levels(nights(size))
    assert alone.changes == ()
    assert np.flatnonzero(alone.outliers()).tolist() == [20]
    found = find_levels(nights(size, size + 0.003))
    assert [(c.first, c.confirmed_at, c.earliest, c.latest) for c in found.changes] == [
        (20, 21, 20, 20)
    ]
    assert not found.outliers().any()
    assert found.ratio(0).value == pytest.approx(np.exp(size + 0.0015 - WOBBLE.mean()))


def test_two_bad_nodes_that_have_nothing_in_common_are_no_change() -> None:
    found = find_levels(nights(-0.08, -0.25, *WOBBLE))
    assert found.changes == ()
    assert np.flatnonzero(found.outliers()).tolist() == [20, 21]


def test_bad_nodes_apart_are_no_change_though_they_agree() -> None:
    assert firsts(nights(-0.1, 0.0, -0.1, 0.0, *WOBBLE)) == []


def test_a_bad_node_on_a_new_level_delays_nothing_and_has_no_say() -> None:
    found = find_levels(nights(-0.05, -0.35, -0.05))
    assert [(c.first, c.confirmed_at) for c in found.changes] == [(20, 22)]
    assert found.level(slice(20, 23)) == pytest.approx(-0.05)


def test_a_level_that_scatters_more_than_before_is_found_all_the_same() -> None:
    later = Nights(nights=30, spread=0.05, bad_nodes=0).draw(np.random.default_rng(1)) - 0.1
    changes = find_levels(np.concatenate([WOBBLE, WOBBLE, later])).changes
    assert changes[0].first <= 22
    assert changes[0].confirmed_at <= 27


def test_there_and_back_are_two_changes() -> None:
    assert firsts(nights(*(WOBBLE - 0.03), *WOBBLE)) == [20, 30]


def test_equal_rates_never_alarm_over_their_last_digit() -> None:
    digit = MIN_RELATIVE_SPREAD / 4
    assert firsts(np.array([0.0] * 30 + [digit] * 30 + [0.0] * 30)) == []
    assert find_levels(np.zeros(30)).spread == MIN_RELATIVE_SPREAD


def test_few_points_tell_nothing() -> None:
    found = find_levels(np.array([0.0] * 4 + [0.5] * (MIN_POINTS - 5)))
    assert (found.changes, found.spread, found.rate(slice(0, 9))) == ((), None, None)
    assert not found.outliers().any()
    assert find_levels(np.empty(0)).changes == ()


def test_a_small_change_may_begin_near_by() -> None:
    (change,) = find_levels(nights(*WOBBLE, *(WOBBLE - 0.012), *(WOBBLE - 0.012))).changes
    assert change.earliest <= 30 <= change.latest
    assert change.latest - change.earliest < 10


def test_a_level_is_off_its_baseline_from_the_point_that_made_it_sure() -> None:
    found = find_levels(nights(-0.05, -0.05, -0.05))
    off = found.shift_from_baseline(0.0, since=5)
    assert off is not None
    assert (off.first, off.confirmed_at) == (20, 21)
    assert found.shift_from_baseline(0.0, since=5, threshold=0.06) is None
    assert found.shift_from_baseline(-0.05, since=5) is None  # pinned as it is now
    assert (
        find_levels(nights(-0.05, -0.05, *([0.0] * 5))).shift_from_baseline(0.0, since=5) is None
    )  # back again


def test_a_baseline_holds_behind_a_change_that_is_confirmed() -> None:
    """Two weeks at 0.66 %, a drop of 7 %, and the last run before it pinned: no chance any more."""
    found = 0
    for seed in range(20):
        noise = 0.0066 * np.random.default_rng(seed).standard_normal(16)
        values = noise + np.array([0.0] * 13 + [-0.07] * 3)
        if not (now := find_levels(values)).changes:
            continue
        found += 1
        off = now.shift_from_baseline(float(values[12]), since=13)
        assert off is not None, seed
        assert off.first == 13
        assert now.shift_from_baseline(float(values[14]), since=15) is None  # pinned behind it
    assert found >= 12


def test_a_drift_below_the_baseline_is_told_once_it_is_sure() -> None:
    law = Nights(drift=-0.05, nights=200)
    values = law.draw(np.random.default_rng(2))
    found = find_levels(values)
    off = found.shift_from_baseline(0.0, since=0)
    assert off is not None
    assert 20 < off.confirmed_at < 200
    before = find_levels(values[: off.confirmed_at])
    assert before.shift_from_baseline(0.0, since=0) is None
    at_once = find_levels(values[: off.confirmed_at + 1]).shift_from_baseline(0.0, since=0)
    assert at_once is not None
    assert at_once.confirmed_at == off.confirmed_at


# --- by hand: nights that alternate, d above and d below a level ------------------------------

D = 0.01
"""Each step is 2 D, so the quick spread is 2 D x 1.4826 / sqrt(2) = 2.0967 D."""


def alternating(level: float, count: int, d: float = D) -> Array:
    return np.asarray(level + d * (-1.0) ** np.arange(count))


@pytest.mark.parametrize(("spreads", "is_change"), [(5.6, True), (5.7, False)])
def test_two_points_agree_within_four_deviations_of_their_difference(
    spreads: float, *, is_change: bool
) -> None:
    """4 x sqrt(2) = 5.66 quick spreads."""
    apart = spreads * 2 * D * 1.4826 / 2**0.5
    found = find_levels(np.concatenate([alternating(0.0, 20), [-1.0, -1.0 - apart]]))
    assert bool(found.changes) is is_change
    assert found.lone_points[20:].tolist() == [not is_change] * 2


@pytest.mark.parametrize(
    "sizes",
    [
        (-0.1, 0.0, -0.1, 0.25),  # the night between agrees with the one before all
        (-0.1, -0.3, -0.1, -0.3),  # each agrees with the next but one, across one that does so
    ],
)
def test_nights_agree_across_a_lone_one_only(sizes: tuple[float, ...]) -> None:
    assert find_levels(nights(*sizes)).lone_points[20:].all()


def test_nights_agree_across_one_that_is_alone() -> None:
    found = find_levels(nights(-0.1, -0.3, -0.1))
    assert found.lone_points[20:].tolist() == [False, True, False]
    assert not find_levels(nights(-0.1)).lone_points[:20].any()


def test_the_quick_spread_is_by_the_median_of_the_last_hundred_steps() -> None:
    """Of steps D, 2 D, 3 D, …: a difference of two nights varies twice as much as a night."""
    steps = D * np.arange(1, 150)
    quick = find_levels(np.concatenate([[0.0], np.cumsum(steps)])).quick_spreads
    for night in (9, 10, 11, 99, 100, 101, 149):
        median = np.median(steps[max(0, night - 100) : night])
        assert quick[night] == pytest.approx(median * 1.4826 / 2**0.5)
    assert quick[:9].tolist() == [quick[9]] * 9


def test_intervals_of_levels_by_hand() -> None:
    """Of 30 nights D from two levels: squares over 28, Student's t of 28 degrees of freedom."""
    found = find_levels(np.concatenate([alternating(0.0, 20), alternating(-0.5, 10)]))
    spread, t = D * (30 / 28) ** 0.5, 2.048407
    assert (found.spread, found.degrees_of_freedom) == (pytest.approx(spread), 28)
    assert found.autocorrelation == 0  # neighbours are unlike: that makes no mean surer
    one, rate = found.ratio(0), found.rate(slice(20, 30))
    to_baseline = found.ratio_to_baseline(-0.4)
    assert rate is not None
    assert to_baseline is not None
    for estimate, middle, variance in (
        (rate, -0.5, 1 / 10),
        (one, -0.5, 1 / 20 + 1 / 10),
        (to_baseline, -0.1, 1 / 10 + 1),  # one run, as unsure as any
    ):
        half = t * spread * variance**0.5
        assert np.log([estimate.value, estimate.low, estimate.high]) == pytest.approx(
            [middle, middle - half, middle + half], rel=1e-5
        )


def test_nights_that_are_like_their_neighbours_make_a_level_less_sure() -> None:
    """The mean of n values that correlate by a^k at distance k varies by mean(a^|i - j|)."""
    found = find_levels(np.repeat(alternating(0.0, 10), 4))
    assert 0.3 < found.autocorrelation < 0.9
    rate = found.rate(slice(0, 40))
    assert rate is not None
    assert found.spread is not None
    places = np.arange(40)
    variance = float(np.mean(found.autocorrelation ** np.abs(places[:, None] - places)))
    half = 2.024394 * found.spread * variance**0.5  # Student's t of 38
    assert np.log(rate.high / rate.value) == pytest.approx(half, rel=1e-5)


def test_the_spread_is_that_of_the_last_hundred_nights() -> None:
    found = find_levels(np.concatenate([alternating(0.0, 150, 2 * D), alternating(0.0, 100)]))
    assert found.changes == ()
    assert found.spread == pytest.approx(D * (100 / 98) ** 0.5, rel=1e-9)


@pytest.mark.parametrize(("far", "is_clipped"), [(6.0, False), (6.5, True), (10.0, True)])
def test_a_night_far_out_widens_the_spread_by_no_more_than_four_spreads(
    far: float, *, is_clipped: bool
) -> None:
    """It agrees with a neighbour, so it has a say; the median distance of the 20 is D."""
    values = np.append(-alternating(0.0, 19), far * D)
    found = find_levels(values)
    assert not found.lone_points.any()
    rest, widest = values - values.mean(), 4 * 1.4826 * D
    assert bool(rest[-1] > widest) is is_clipped
    squares = rest[:-1] @ rest[:-1] + min(rest[-1], widest) ** 2
    assert found.spread == pytest.approx((squares / 18) ** 0.5)


@pytest.mark.parametrize(("times", "is_change"), [(0.99, False), (1.01, True)])
def test_two_nights_are_a_change_from_so_many_standard_errors_on(
    times: float, *, is_change: bool
) -> None:
    """Chance of 3e-7, of both sides, by Student's t of 22 - 2 degrees of freedom."""
    bound, apart = 7.5185, 0.003
    squares = 20 * WOBBLE.var() + 2 * apart**2
    error = (squares / 20) ** 0.5 * (1 / 20 + 1 / 2) ** 0.5
    size = times * bound * error - WOBBLE.mean()
    found = find_levels(nights(-size + apart, -size - apart))
    assert bool(found.changes) is is_change


@pytest.mark.parametrize(("times", "is_off"), [(0.99, False), (1.01, True)])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_baseline_is_off_by_a_chance_of_one_in_a_thousand(
    times: float, sign: int, *, is_off: bool
) -> None:
    """20 nights whose mean is 0, and a baseline that is one more night of the same spread."""
    quick = 2 * D * 1.4826 / 2**0.5
    bound = quantiles.student_t_quantile(MAD_EFFICIENCY * 19, 1 - 0.001 / 2)
    baseline = sign * times * bound * quick * (1 + 1 / 20) ** 0.5
    off = find_levels(alternating(0.0, 20)).shift_from_baseline(baseline, since=0)
    assert (off is not None) is is_off
    if off is not None:
        assert (off.first, off.confirmed_at) == (0, 19)


@pytest.mark.parametrize(("since", "first", "sure"), [(0, 0, 9), (9, 9, 9), (12, 12, 12)])
def test_a_baseline_is_asked_from_ten_nights_on_and_behind_its_own(
    since: int, first: int, sure: int
) -> None:
    off = find_levels(alternating(-1.0, 20)).shift_from_baseline(0.0, since=since)
    assert off is not None
    assert (off.first, off.confirmed_at) == (first, sure)


def test_a_shift_matters_from_the_threshold_on() -> None:
    """A level 10 % below its baseline: exp(ln 0.9) - 1 = -0.1."""
    found = find_levels(alternating(np.log(0.9), 20, 0.001))
    assert found.shift_from_baseline(0.0, since=0, threshold=0.099) is not None
    assert found.shift_from_baseline(0.0, since=0, threshold=0.101) is None


def test_ten_points_have_a_spread() -> None:
    assert find_levels(alternating(0.0, 9)).spread is None
    assert find_levels(alternating(0.0, 10)).spread == pytest.approx(D * (10 / 8) ** 0.5)


def test_the_level_of_lone_points_is_their_median() -> None:
    found = find_levels(nights(-0.08, -0.25, 0.4, *WOBBLE))
    assert found.lone_points[20:23].all()
    assert found.level(slice(20, 23)) == pytest.approx(-0.08)
    assert found.level(slice(18, 21)) == pytest.approx(WOBBLE[8:].mean())  # it has no say


def test_a_lone_night_near_a_level_that_swings_is_no_outlier() -> None:
    """A slow swing: neighbours are alike, the level is wide. Lone by its neighbours alone."""
    values = np.sin(np.arange(60) * 2 * np.pi / 20)
    values[40] = 2.0
    found = find_levels(values)
    assert found.changes == ()
    assert found.lone_points[40]
    assert not found.outliers().any()
    values[40] = 4.0
    assert np.flatnonzero(find_levels(values).outliers()).tolist() == [40]


# --- laws ---------------------------------------------------------------------------------

SERIES = st.builds(
    lambda seed, at, size, bad, more: np.concatenate(
        [
            Nights(nights=60, bad_nodes=bad, planted={at: size}).draw(np.random.default_rng(seed)),
            more,
        ]
    ),
    st.integers(0, 2**16),
    st.integers(5, 55),
    st.sampled_from([-0.1, -0.03, 0.01, 0.05]),
    st.sampled_from([0.0, 0.1, 0.4]),
    arrays(np.float64, st.integers(0, 12), elements=st.floats(-0.5, 0.5)),
)


@given(SERIES, st.floats(-20, 20))
@settings(max_examples=50)
def test_the_unit_does_not_matter(values: Array, by: float) -> None:
    assert find_levels(values + by).changes == find_levels(values).changes


@given(SERIES)
@settings(max_examples=50)
def test_the_mirrored_series_changes_where_the_series_does(values: Array) -> None:
    one, other = find_levels(values), find_levels(-values)
    assert one.changes == other.changes
    for i in range(len(one.changes)):
        assert one.ratio(i).value == pytest.approx(1 / other.ratio(i).value)


@given(SERIES, st.integers(0, 72))
@settings(max_examples=50)
def test_later_points_take_nothing_back(values: Array, until: int) -> None:
    then = find_levels(values[:until])
    known = [change for change in find_levels(values).changes if change.confirmed_at < until]
    assert list(then.changes) == known
    whole = find_levels(values)
    if then.spread is not None:
        n = len(then.values)
        assert then.means == pytest.approx(whole.means[:n])
        level = then.level(then.segments()[-1])
        if (~then.lone_points[then.segments()[-1]]).any():
            assert then.means[-1] == pytest.approx(level, abs=1e-12)


@given(arrays(np.float64, st.integers(0, 60), elements=st.floats(-30, 30)))
def test_any_series_has_levels(values: Array) -> None:
    found = find_levels(values)
    assert [part.start for part in found.segments()] == [0, *(c.first for c in found.changes)]
    for change in found.changes:
        assert 2 <= change.first < change.confirmed_at
        assert change.earliest <= change.first <= change.latest < change.confirmed_at


# --- what is promised: at a spread of 0.5 %, with 1 % of runs on bad nodes ---------------------


@pytest.mark.parametrize(("per_night", "years"), [(1, 200), (4, 40)])
def test_at_most_one_false_alarm_in_ten_years_of_a_series(per_night: int, years: int) -> None:
    law = Nights(per_night=per_night)
    alarms = sum(len(find_levels(values).changes) for values in law.series(years, seed=20))
    assert alarms <= years / 10


@pytest.mark.parametrize("per_night", [1, 4])
@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(
    ("size", "within", "share"), [(0.10, 3, 1.0), (0.05, 3, 1.0), (0.02, 10, 1.0), (0.01, 20, 0.8)]
)
def test_changes_are_found_in_time(
    size: float, within: int, share: float, sign: int, per_night: int
) -> None:
    """After 40 nights. Two bad nodes within three nights (1 in 3,000) would take a night more."""
    law = Nights(nights=40 + within, per_night=per_night, planted={40: sign * size})
    begins = 40 * per_night
    drawn = list(law.series(60, seed=21))
    found = [
        [c for c in find_levels(values).changes if c.confirmed_at >= begins] for values in drawn
    ]
    assert np.mean([len(changes) > 0 for changes in found]) >= share
    apart = [abs(changes[0].first - begins) for changes in found if changes]
    assert np.mean(np.array(apart) <= (1 if size >= 0.02 else 12)) >= 0.9


def test_intervals_of_a_ratio_hold_it() -> None:
    """95 % are claimed; a change that is only just found seems larger than it is."""
    held = []
    for values in Nights(nights=120, planted={60: -0.03}).series(300, seed=22):
        found = find_levels(values)
        if len(found.changes) == 1:
            ratio = found.ratio(0)
            held.append(ratio.low <= 0.97 <= ratio.high)
    assert len(held) > 280
    assert 0.92 <= np.mean(held) <= 0.985


def test_a_steady_level_is_hardly_ever_off_a_baseline_that_is_one_of_its_runs() -> None:
    """A chance of 1 in 1,000 each night, of which the nights of one series have one draw."""
    off = 0
    for i, values in enumerate(Nights(nights=150, bad_nodes=0).series(300, seed=23)):
        found = find_levels(values)
        off += found.shift_from_baseline(float(values[i % 50]), since=i % 50 + 1) is not None
    assert off <= 2
