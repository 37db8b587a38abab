"""Simulated runs of known truth: do 95 % intervals cover it, and is what was planted found?

A share of 1,000 runs is sure to 0.7 %, of 400 to 1.1 %; seeds are fixed. The corners of each grid
in every run; all of it, of 1,000 runs each, by `make thorough`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import polars as pl
import pytest

from fairmfu.metrics.core.intervals import (
    Estimate,
    RateInterval,
    RepeatedRates,
    estimate_ratio,
    mean_over_runs,
    rate_interval,
    ratio_of_repeats,
    smallest_difference,
)
from fairmfu.metrics.throughput.warmup import warm_up_length
from tests.support.effort import THOROUGH
from tests.support.simulated import INTERVAL, SETUP_S, Simulation, restarted

RUNS = 1000 if THOROUGH else 400


def known(found: Sequence[RateInterval]) -> list[Estimate]:
    return [rate.estimate for rate in found if rate.estimate is not None]


def covered(found: Sequence[Estimate], truth: float) -> float:
    return float(np.mean([e.low <= truth <= e.high for e in found]))


@pytest.mark.parametrize(
    ("windows", "autocorrelation", "stalls"),
    [*product([210, 400, 1000], [0.0, 0.3, 0.6], [0.0, 0.05])]
    if THOROUGH
    else [(210, 0.0, 0.0), (210, 0.6, 0.05), (1000, 0.6, 0.0)],
)
def test_intervals_cover_the_truth_in_95_of_100_runs(
    windows: int, autocorrelation: float, stalls: float
) -> None:
    law = Simulation(windows=windows, autocorrelation=autocorrelation, stalls=stalls, warm_up=6)
    found = known(law.estimates(RUNS, seed=6))
    assert len(found) == RUNS
    assert 0.93 <= covered(found, law.tgs) <= 0.97


def test_the_lines_of_eventful_runs_give_intervals_that_cover_as_well() -> None:
    """From the steps table on, with all that the others leave out."""
    law = Simulation(
        windows=260,
        autocorrelation=0.6,
        stalls=0.05,
        warm_up=6,
        checkpoint_every=40,
        lost_lines=0.03,
    )
    runs = RUNS if THOROUGH else 100
    found = law.draw(runs, seed=6)
    assert found["windows"].min() >= 200  # type: ignore[operator]
    assert found["no_interval"].is_null().all()
    cover = found.select(pl.lit(law.tgs).is_between("tgs_low", "tgs_high").mean()).item()
    assert abs(cover - 0.95) <= (0.02 if THOROUGH else 0.035)  # three standard errors
    lost = found.select("run_id", "wall_s", "time_lost").explode("time_lost").unnest("time_lost")
    saved = lost.filter(pl.col("cause") == "checkpoint")
    assert saved.height == runs  # 6 of them, less the lines that are lost, each of 3 windows' time
    assert saved["seconds"].median() == pytest.approx(6 * 3 * INTERVAL * 0.97, rel=0.05)


def test_restarts_cost_goodput_and_leave_each_launch_its_interval() -> None:
    """A crash, an hour's wait, and 20 windows again: both launches warm up."""
    law = Simulation(windows=120, autocorrelation=0.6, warm_up=6, noise=0.02)
    runs = 200 if THOROUGH else 100
    found = restarted(law, runs=runs, seed=15, repeated=20, gap_s=3600.0)
    later = found.filter(pl.col("continues").is_not_null())
    assert later.height == runs
    repeated = found["repeated_steps"].sum()
    assert (repeated, later["goodput_launches"].unique().item()) == (20 * runs, 2)
    assert (later["goodput"] / later["truth"] - 1).abs().max() < 1e-6  # type: ignore[operator]
    cover = found.select(pl.lit(law.tgs).is_between("tgs_low", "tgs_high").mean()).item()
    assert 0.92 <= cover <= 0.98
    # Behind the 100th window of the first launch: 20 windows, the hour, the later start-up.
    again = 20 * INTERVAL * law.step_s + 3600 + SETUP_S
    assert later["lost_to_restarts_s"].median() == pytest.approx(again, rel=0.05)


@pytest.mark.parametrize(
    ("windows", "autocorrelation"),
    [*product([10, 12, 20, 40, 80], [0.0, 0.3, 0.6])]
    if THOROUGH
    else [(10, 0.6), (20, 0.0), (80, 0.6)],
)
def test_intervals_of_short_runs_cover_it_too(windows: int, autocorrelation: float) -> None:
    """The first window is start-up. A tenth at most may say that it is too little to tell."""
    law = Simulation(windows=windows, autocorrelation=autocorrelation)
    runs = 1000  # as of fewer the share is not sure enough
    found = known(law.estimates(runs, seed=7))
    assert len(found) > 0.9 * runs
    assert 0.915 <= covered(found, law.tgs) <= 0.975


@pytest.mark.parametrize("warm_up", [1, 2, 4])
def test_short_runs_that_warm_up_have_a_true_interval_or_none(warm_up: int) -> None:
    """Of 8 windows none can be found slower than what follows: 8 of 9 runs had a false one."""
    for windows in range(warm_up + 4, 16, 1 if THOROUGH else 4):
        law = Simulation(windows=windows, warm_up=warm_up)
        found = known(law.estimates(RUNS, seed=7))
        missed = sum(not one.low <= law.tgs <= one.high for one in found)
        assert missed <= 0.1 * RUNS, windows


def test_few_independent_windows_make_an_interval_wide_and_not_wrong() -> None:
    """As good as one or two: Student's t of two degrees of freedom pays for it."""
    law = Simulation(windows=10, autocorrelation=0.6)
    found = [rate for rate in law.estimates(4 * RUNS, seed=7) if rate.estimate is not None]
    few = [
        rate
        for rate in found
        if rate.effective_windows is not None and rate.effective_windows < 1.5
    ]
    assert len(few) > 0.1 * len(found)
    assert covered(known(few), law.tgs) >= 0.97
    wide, all_ = (np.median([e.high / e.low - 1 for e in known(of)]) for of in (few, found))
    assert wide > 1.5 * all_


def test_too_few_windows_and_a_drift_have_no_interval_and_say_why() -> None:
    (few,) = Simulation(windows=9).estimates(1, seed=8)
    assert few.estimate is None
    assert few.no_interval_reason == "8 timed windows, 9 needed"
    drifts = Simulation(autocorrelation=0.99, noise=0.05).estimates(100, seed=8)
    silent = [rate.no_interval_reason for rate in drifts if rate.estimate is None]
    assert len(silent) > 80
    assert all(why is not None and "drift" in why for why in silent)


@pytest.mark.parametrize("printed", [604, 1217, 2000])
def test_windows_that_all_print_one_rate_do_not_drift(printed: int) -> None:
    """Floats leave 1e-16 of a difference, the same in each window or nearly."""
    tokens = np.full(99, 2000.0)
    found = rate_interval(tokens, tokens / printed, np.zeros(99), 0.5 / printed)
    assert found.no_interval_reason is None
    assert found.estimate is not None
    assert found.estimate.low == pytest.approx(printed - 0.5, abs=1e-3)
    assert found.estimate.high == pytest.approx(printed + 0.5, abs=1e-3)


@pytest.mark.parametrize(
    ("planted", "autocorrelation", "stalls"),
    [*product([0, 1, 4, 12], [0.0, 0.6], [0.0, 0.02])]
    if THOROUGH
    else [(1, 0.0, 0.02), (1, 0.6, 0.0), (12, 0.6, 0.02)],
)
def test_the_end_of_the_warm_up_is_found(
    planted: int, autocorrelation: float, stalls: float
) -> None:
    law = Simulation(autocorrelation=autocorrelation, stalls=stalls, warm_up=planted)
    paces = law.paces(RUNS, np.random.default_rng(9))
    found = np.array([warm_up_length(pace[1:]) for pace in paces])
    assert np.mean(np.abs(found - planted) <= 1) >= 0.95


def test_a_ratio_covers_the_truth_and_one_percent_is_found_where_it_can_be() -> None:
    """Equal runs are told apart in 5 of 100 pairs, runs 1 % apart where that could be seen."""
    one = known(Simulation(autocorrelation=0.3).estimates(RUNS, seed=10))
    for step_s, truth in ((1.0, 1.0), (1.01, 1.01)):
        slower = Simulation(autocorrelation=0.3, step_s=step_s)
        other = known(slower.estimates(RUNS, seed=11))
        ratios = [estimate_ratio(a, b) for a, b in zip(one, other, strict=True)]
        assert 0.93 <= covered(ratios, truth) <= 0.98  # 0.95 within 3 standard errors
        apart = np.array([not r.low <= 1 <= r.high for r in ratios])
        if truth == 1:
            assert apart.mean() <= 0.07
            continue
        could = [
            smallest_difference(estimate_ratio(a, b)) <= 0.01
            for a, b in zip(one, other, strict=True)
        ]
        assert np.mean(could) > 0.5
        assert apart[could].mean() >= 0.8


def test_what_is_smaller_than_the_smallest_difference_is_mostly_not_found() -> None:
    """It is the one that is found in most pairs, not a guarantee."""
    law = Simulation(windows=60, autocorrelation=0.6, noise=0.05)
    one = known(law.estimates(RUNS, seed=12))
    least = float(np.median([smallest_difference(estimate_ratio(a, a)) for a in one]))
    for times, low, high in ((1.0, 0.70, 0.95), (0.25, 0.0, 0.25)):
        step_s = 1 + times * least
        slower = Simulation(windows=60, autocorrelation=0.6, noise=0.05, step_s=step_s)
        other = known(slower.estimates(RUNS, seed=13))
        apart = [not r.low <= 1 <= r.high for r in map(estimate_ratio, one, other)]
        assert low <= np.mean(apart) <= high


@pytest.mark.parametrize("repeats", [3, 5, 10])
def test_an_interval_over_runs_holds_what_differs_between_them(repeats: int) -> None:
    """Nodes that differ by 2 %: the interval of one run is blind to it, that of repeats is not."""
    random = np.random.default_rng(14)
    rates = 6000 * np.exp(0.02 * random.standard_normal((RUNS, repeats)))
    found = [mean_over_runs(list(row)) for row in rates]
    assert 0.93 <= covered([e for e in found if e is not None], 6000) <= 0.97
    assert mean_over_runs([6000.0, 6100.0]) is None


@pytest.mark.parametrize(("ours", "theirs"), [(3, 3), (5, 5), (3, 10), (10, 3)])
@pytest.mark.parametrize("noisier", [1.0, 3.0])
def test_a_ratio_of_repeats_covers_the_truth(ours: int, theirs: int, noisier: float) -> None:
    """Runs that scatter by 1 %, of the other setting by up to three times as much.

    Welch's t holds the truth in 93.1 to 96.6 % of 200,000 such pairs.
    """
    random = np.random.default_rng(15)
    one = 6300 * np.exp(0.01 * random.standard_normal((RUNS, ours)))
    two = 6000 * np.exp(0.01 * noisier * random.standard_normal((RUNS, theirs)))
    found = [
        ratio_of_repeats(RepeatedRates(tuple(a)), RepeatedRates(tuple(b)))
        for a, b in zip(one, two, strict=True)
    ]
    assert 0.91 <= covered(found, 1.05) <= 0.985


def test_repeats_that_agree_are_no_surer_than_their_own_intervals_make_them() -> None:
    """Half a percent each: 80 % of means are within 1.28 / 1.96 of that over the root of three."""
    alike = mean_over_runs([7000.0] * 3, [Estimate(7000.0, 6965.0, 7035.0)] * 3)
    assert alike is not None
    assert alike.high / alike.value - 1 == pytest.approx(1.28 / 1.96 * 0.005 / 3**0.5, rel=0.01)
    other = mean_over_runs([7010.0] * 3, [Estimate(7010.0, 6975.0, 7045.0)] * 3)
    assert other is not None
    between = estimate_ratio(other, alike)
    assert between.low < 1 < between.high
