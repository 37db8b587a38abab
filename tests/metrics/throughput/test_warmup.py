"""Warm-up, stalls and what the time went to, on windows that one can work out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.metrics.core.arrays import FloatArray
from fairmfu.metrics.core.intervals import rate_interval
from fairmfu.metrics.throughput.messages import COUNTED_STALLS, FEW_WINDOWS, LATE_START
from fairmfu.metrics.throughput.warmup import (
    stall_excess,
    usual_seconds,
    variance_of_mean,
    warm_up_length,
)
from tests.metrics.throughput.test_throughput import at, facts, rates, run, steps

FACTS = facts(gpus=1, global_batch_size=1, seq_len=100)
"""100 tokens a step on the one GPU."""


def counted(*seconds: float) -> tuple[FloatArray, FloatArray]:
    return np.array(seconds), np.full(len(seconds), 100.0)


def test_warm_up_ends_where_the_pace_falls() -> None:
    wobble = [1.0, 1.01, 0.99, 1.005, 0.995] * 4
    assert warm_up_length(np.array([1.5, 1.3, 1.2, *wobble])) == 3
    assert warm_up_length(np.array(wobble)) == 0


@pytest.mark.parametrize(("excess", "windows"), [(0.002, 0), (0.03, 30)])
def test_a_start_that_is_hardly_slower_is_no_warm_up(excess: float, windows: int) -> None:
    """Steady times show 0.2 % of 30 windows without a doubt, but no run warms up by that."""
    pace = 1.0 + 1e-4 * (np.arange(200) % 3)
    pace[:30] *= 1 + excess
    assert warm_up_length(pace) == windows


def test_a_stall_is_no_warm_up_and_a_slow_half_is_speed() -> None:
    wobble = [1.0, 1.01, 0.99, 1.005, 0.995] * 6
    lone = [*wobble[:4], 3.0, *wobble[5:]]
    assert warm_up_length(np.array(lone)) == 0
    halves = np.array([1.2 * w for w in wobble] + wobble)
    assert warm_up_length(halves) <= len(halves) / 3


def test_of_a_few_windows_the_first_that_stand_apart_are_warm_up() -> None:
    assert warm_up_length(np.array([2.0, 1.0, 1.0, 1.0])) == 1
    assert warm_up_length(np.array([1.6, 1.3, 1.0, 1.01, 0.99, 1.0])) == 2
    assert warm_up_length(np.array([1.1, 1.0, 1.0, 1.0])) == 0  # no more than steps may differ
    assert warm_up_length(np.array([2.0, 1.0, 1.5, 1.0])) == 0  # as others do
    assert warm_up_length(np.array([2.0, 1.0, 1.0])) == 0  # two others tell no scatter
    assert warm_up_length(np.array([2.0, 2.0, 1.0, 1.0, 1.0])) == 0  # more than a third is speed


@given(st.lists(st.floats(0.1, 100.0), max_size=80))
def test_warm_up_is_at_most_a_third_and_knows_no_unit(pace: list[float]) -> None:
    found = warm_up_length(np.array(pace))
    assert 0 <= found <= len(pace) / 3
    assert warm_up_length(np.array(pace) * 2.0**10) == found


def test_a_stall_is_what_stands_above_its_surroundings() -> None:
    steady = [1.0, 1.01, 0.99] * 10
    excess = stall_excess(*counted(*steady, 4.0, *steady))
    assert np.flatnonzero(excess).tolist() == [30]
    assert excess[30] == pytest.approx(3.0)
    # A change of level is none: its surroundings change with it.
    assert not stall_excess(*counted(*steady, *(2 * s for s in steady))).any()


def test_clocks_of_whole_seconds_make_no_stalls() -> None:
    """Steps of 0.7 s: differences of 0 and 1 s."""
    seconds = np.diff(np.floor(np.arange(61) * 0.7))
    assert not stall_excess(*counted(*seconds), 1.0).any()


def test_the_interval_holds_the_rate_and_a_rounded_print_widens_it() -> None:
    tokens = np.full(40, 100.0)
    exact = rate_interval(tokens, np.full(40, 1.5), np.zeros(40)).estimate
    assert exact is not None
    assert exact.low == exact.value == exact.high == pytest.approx(100 / 1.5)
    rounded = rate_interval(
        tokens, np.full(40, 1.5), np.zeros(40), 0.05 / 1.5
    ).estimate  # 1.45 to 1.55
    assert rounded is not None
    assert (rounded.low, rounded.high) == pytest.approx((100 / 1.55, 100 / 1.45))


def test_an_interval_over_windows_of_no_time_is_finite_or_none() -> None:
    found = rate_interval(np.full(40, 10.0), np.array([0.0] * 39 + [5.0]), np.zeros(40))
    assert found.estimate is None or 0 < found.estimate.low <= found.estimate.high < np.inf
    nothing = rate_interval(np.full(40, 10.0), np.zeros(40), np.zeros(40))
    assert nothing.no_interval_reason == "no time passes between the windows"


def timeline(*seconds: float) -> pl.DataFrame:
    """A line a step, stamped; the first at 0 s."""
    ends = np.concatenate([[0.0], np.cumsum(seconds)])
    rows = (
        {"line": 10 * (i + 1), "step": i + 1, "logged_at": at(end)} for i, end in enumerate(ends)
    )
    return steps(*rows)


def lost(table: pl.DataFrame, *events: dict, **about: object) -> dict[str, tuple[int, float]]:
    row = rates(table, run(evidence=["stamp"], **about), FACTS, *events)
    return {x["cause"]: (x["windows"], round(x["seconds"], 3)) for x in row["time_lost"]}


STEADY = [1.0, 1.01, 0.99] * 10


def test_each_cause_has_its_windows_and_its_seconds() -> None:
    seconds = [1.4, *STEADY, 31.0, *STEADY, 6.0, *STEADY, 9.0, *STEADY]
    places = np.flatnonzero(np.array(seconds) > 5) + 2  # the step whose line ends the window
    events = (
        {"line": 10 * int(places[0]) - 5, "kind": "checkpoint"},
        {"line": 10 * int(places[1]) - 5, "kind": "gc"},
    )
    found = lost(timeline(*seconds), *events, started_at=at(-21.0))
    assert found == {
        "checkpoint": (1, 30.0),
        "start-up": (1, 20.0),
        "unexplained": (1, 8.0),
        "garbage collection": (1, 5.0),
        "warm-up": (1, 0.4),
    }


def test_the_shares_are_of_the_wall_time() -> None:
    table = timeline(*STEADY, 11.0, *STEADY)
    row = rates(table, run(evidence=["stamp"], started_at=at(-30.0)), FACTS)
    assert row["wall_s"] == pytest.approx(30 + 30 + 11 + 30)
    assert sum(x["share"] for x in row["time_lost"]) == pytest.approx((29 + 10) / 101)


def test_the_steps_of_the_first_line_are_time_of_the_launch() -> None:
    """DeepSpeed prints at each tenth step, stamps alone: there is none before the first line."""
    rows = ({"line": n, "step": 10 * n, "logged_at": at(10.0 * n)} for n in range(1, 21))
    about = run(evidence=["stamp"], elapsed_covers="interval")
    row = rates(steps(*rows), about, FACTS.with_columns(log_interval=pl.lit(10, pl.Int64)))
    assert row["wall_s"] == pytest.approx(200.0)


def test_waiting_for_data_is_told_by_the_line_itself() -> None:
    table = timeline(*STEADY, 5.0, *STEADY)
    data = np.where(np.arange(table.height) == 31, 4.0, 0.05)
    waited = table.with_columns(data_s=pl.Series(data), elapsed_s=pl.lit(1.0))
    assert lost(waited) == {"data loading": (1, 4.0)}


def test_a_rhythm_of_stalls_is_named() -> None:
    seconds = [*STEADY[:9], *([5.0, *STEADY[:19]] * 5)]
    found = lost(timeline(*seconds))
    assert list(found) == ["unexplained, every 20 steps"]


def test_a_rate_of_unknown_tokens_has_no_seconds() -> None:
    table = steps(*({"step": i, "logged_tgs": 100.0} for i in range(1, 40)))
    row = rates(table, run(evidence=["rate"], rate_covers="interval"), facts(gpus=1))
    assert (row["wall_s"], row["time_lost"]) == (None, [])


def test_steps_of_unknown_tokens_lose_time_too() -> None:
    stamped = timeline(*STEADY, 11.0, *STEADY).with_columns(logged_tgs=pl.lit(100.0))
    row = rates(stamped, run(evidence=["rate"], rate_covers="interval"), facts(gpus=1))
    assert [(x["cause"], x["seconds"]) for x in row["time_lost"]] == [
        ("unexplained", pytest.approx(10.0))
    ]


def test_a_collection_of_a_blink_explains_no_stall() -> None:
    """torchtitan collects every 50 steps and prints 0.07 s; the window is 8 s longer."""
    blink = {"line": 315, "kind": "gc", "seconds": 0.07}
    assert lost(timeline(*STEADY, 9.0, *STEADY), blink) == {"unexplained": (1, 8.0)}
    long = blink | {"seconds": 7.5}
    assert lost(timeline(*STEADY, 9.0, *STEADY), long) == {"garbage collection": (1, 8.0)}


def test_lines_of_several_micro_steps_lose_time_though_an_optimizer_step_ends_them() -> None:
    """Legacy XTuner: a line every 10 micro-steps, an optimizer step every 2, or with each."""
    table = timeline(*STEADY, 9.0, *STEADY).with_columns(step=10 * pl.col("step"))
    for accumulation in (1, 2):
        given = facts(
            gpus=1, micro_batch_size=1, seq_len=100, packed=True, gradient_accumulation=accumulation
        )
        about = run(evidence=["stamp"], step_unit="micro_step")
        row = rates(table, about, given)
        assert [x["cause"] for x in row["time_lost"]] == ["unexplained"]


WOBBLE = [1.0, 1.01, 0.99, 1.005, 0.995]


def test_a_slower_start_longer_than_a_third_is_left_whole() -> None:
    """Half of it cut away would leave a rate that is neither that of the start nor of the end."""
    assert warm_up_length(np.array([1.2 * w for w in WOBBLE * 24] + WOBBLE * 24)) == 0
    assert warm_up_length(np.array(WOBBLE * 48) * np.linspace(1.05, 1.0, 240)) == 0  # a trend


def test_stalls_that_follow_each_other_are_no_warm_up() -> None:
    pace = np.array(WOBBLE * 40)
    pace[[12, 13, 30, 31]] = 1.5
    assert warm_up_length(pace) == 0
    pace[:3] = 1.3
    assert warm_up_length(pace) == 3


def test_times_of_single_steps_among_ten_are_no_wall_time() -> None:
    """Legacy XTuner prints every tenth micro-step's own time."""
    table = steps(*({"step": 10 * i, "elapsed_s": 1.0} for i in range(1, 40)))
    row = rates(table, run(elapsed_covers="step"), FACTS)
    assert row["tgs"] == pytest.approx(100)
    assert (row["wall_s"], row["time_lost"]) == (None, [])


def of_each_interval(*rates_logged: float, printed: Sequence[int]) -> dict:
    """TGS over the steps since the line before, at the steps that are printed."""
    lines = zip(printed, rates_logged, strict=True)
    table = steps(*({"step": step, "logged_tgs": rate} for step, rate in lines))
    about = run(evidence=["rate"], rate_covers="interval")
    return rates(table, about, FACTS.with_columns(log_interval=pl.lit(10, pl.Int64)))


@pytest.mark.parametrize("opening", [800.0, 1200.0])
def test_what_completes_the_interval_of_step_1_is_warm_up(opening: float) -> None:
    """Torchtitan prints step 1, then 10: XTuner's first line is of both."""
    row = of_each_interval(100.0, opening, 1000.0, 1000.0, 1000.0, printed=(1, 10, 20, 30, 40))
    assert row["tgs"] == pytest.approx(1000.0)
    assert row["steady_from"] == 10
    assert not row["throughput_warnings"]


def test_it_counts_where_it_is_all_that_there_is() -> None:
    assert of_each_interval(100.0, 800.0, printed=(1, 10))["tgs"] == pytest.approx(800.0)


def test_a_line_far_behind_step_1_is_of_an_interval_of_its_own() -> None:
    """An excerpt that leaves lines out."""
    row = of_each_interval(100.0, 800.0, 1000.0, 1000.0, printed=(1, 100, 110, 120))
    assert row["tgs"] == pytest.approx(30 / (10 / 800 + 20 / 1000))


def short_run(*paces: float) -> dict:
    """TGS of lines that print the rate of each step; the first is start-up."""
    lines = enumerate((20.0, *paces), 1)
    table = steps(*({"step": step, "logged_tgs": 1000 / pace} for step, pace in lines))
    return rates(table, run(evidence=["rate"], rate_covers="step"), FACTS)


def test_a_short_run_leaves_its_compile_step_out_and_says_so() -> None:
    row = short_run(1.625, 1.0, 0.998, 0.999, 1.001)
    assert row["tgs"] == pytest.approx(1000, rel=2e-3)
    assert row["throughput_warnings"] == [LATE_START(first="the first", whole=5, times="1.6x")]
    assert "warm-up" in row["excluded_causes"]


def test_a_slow_window_elsewhere_in_a_short_run_counts_with_a_doubt() -> None:
    row = short_run(1.0, 1.625, 0.998, 0.999, 1.001)
    assert row["tgs"] == pytest.approx(1000 * 5 / 5.623)
    assert row["throughput_warnings"] == [
        COUNTED_STALLS(
            windows="1 of the 5 windows in TGS (at step 3), 28.9% of the measured time, "
            "is 1.6x as slow as the rest",
            less=0.111,
        )
    ]
    scattered = short_run(1.0, 1.3, 0.9, 1.1, 1.2)
    assert scattered["warning_kinds"] == [FEW_WINDOWS.identifier]


@given(st.integers(1, 30), st.floats(0.0, 0.95))
def test_a_mean_of_values_alike_varies_as_all_their_pairs_do(number: int, alike: float) -> None:
    apart = np.abs(np.subtract.outer(np.arange(number), np.arange(number)))
    (found,) = variance_of_mean(np.array([float(number)]), alike)
    assert found == pytest.approx(float((alike**apart).sum()) / number**2, rel=1e-6)


def test_the_usual_time_is_that_of_the_51_windows_around() -> None:
    """26 of 51 are at the new pace from the first window of it on."""
    seconds, tokens = counted(*[1.0] * 60, *[2.0] * 60)
    assert usual_seconds(seconds, tokens).tolist() == [1.0] * 60 + [2.0] * 60
    tokens[10], tokens[70] = 200.0, 0.0  # twice the tokens take twice the time, none take none
    usual = usual_seconds(seconds, tokens)
    assert (usual[10], usual[70]) == (2.0, 0.0)


def test_where_most_windows_take_no_time_the_mean_is_usual() -> None:
    seconds, tokens = counted(*[0.0, 0.0, 1.0] * 10)
    assert usual_seconds(seconds, tokens) == pytest.approx(np.full(30, 1 / 3))


def test_a_stall_is_a_twentieth_and_six_spreads_above() -> None:
    alike = [1.0] * 20
    assert not stall_excess(*counted(*alike, 1.0499, *alike)).any()
    assert stall_excess(*counted(*alike, 1.0501, *alike))[20] == pytest.approx(0.0501)
    # Of the distances the median is 0.02: a spread of 0.0297, six of which are 0.178.
    wide = [0.98, 1.0, 1.02, 1.02, 0.98] * 8
    assert not stall_excess(*counted(*wide, 1.17, *wide)).any()
    assert stall_excess(*counted(*wide, 1.19, *wide))[40] > 0.1


def test_a_clock_that_may_be_off_hides_twice_that() -> None:
    alike = [1.0] * 20
    assert not stall_excess(*counted(*alike, 3.0, *alike), 1.0).any()
    assert stall_excess(*counted(*alike, 3.1, *alike), 1.0)[20] == pytest.approx(2.1)
    assert not stall_excess(np.ones(9), np.zeros(9)).any()  # no tokens, no pace
