"""Doubts about slow windows: each sentence, its numbers, and where there is none."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.metrics.core.messages import as_sentence
from fairmfu.metrics.core.run_arrays import RunArrays
from fairmfu.metrics.throughput import outlier_warnings
from fairmfu.metrics.throughput.outlier_warnings import (
    find_spikes,
    late_start_warning,
    spike_columns,
    spikes_warning,
)
from fairmfu.metrics.throughput.unlogged_work import LOWER_LEVEL_QUANTILE, upper_level
from fairmfu.metrics.throughput.windows import steady_windows

START = datetime(2026, 1, 1)


def windows(
    seconds: Sequence[float],
    *,
    tokens: Sequence[float] | float | None = 10.0,
    steps: Sequence[int] | None = None,
    step_unit: str = "optimizer_step",
    gradient_accumulation: int | None = 1,
    **places: Collection[int],
) -> RunArrays:
    """Windows of ten steps, by their seconds; tokens: of a step; places: of windows that are so."""
    number = len(seconds)
    last = [10 * n for n in range(1, number + 1)] if steps is None else list(steps)
    marks = {
        name: [at in places.get(name, ()) for at in range(number)]
        for name in ("warming", "unlogged", "off_level")
    }
    frame = pl.DataFrame(
        {
            "step": last,
            "new_step": [None, *np.diff(last).tolist()],
            "first": [at == 0 for at in range(number)],
            "elapsed_span": [last[0], *np.diff(last).tolist()],
            "elapsed_time": [float(s) for s in seconds],
            "stamp_span": [None, *np.diff(last).tolist()],
            "stamp_time": [None, *(float(s) for s in seconds[1:])],
            "logged_at": [START + timedelta(seconds=float(s)) for s in np.cumsum(seconds)],
            "tokens_per_gpu": tokens if isinstance(tokens, Sequence) else [tokens] * number,
            "stall_s": [0.5 * (at in places.get("stalled", ())) for at in range(number)],
            "events": [["restart"] * (at in places.get("restarted", ())) for at in range(number)],
            "gc_s": [0.0] * number,
            "data_s": [1.9 * (at in places.get("waiting", ())) for at in range(number)],
            "smeared": [False] * number,
            "disturbed": [False] * number,
            "quirks": [[]] * number,
            "step_unit": [step_unit] * number,
            "gradient_accumulation": [gradient_accumulation] * number,
            **marks,
        },
        schema_overrides={
            "tokens_per_gpu": pl.Float64,
            "events": pl.List(pl.String),
            "quirks": pl.List(pl.String),
        },
    )
    return RunArrays(frame)


def unlogged(run: RunArrays) -> str | None:
    spikes = find_spikes(run, "elapsed")
    assert spikes is None or not spikes.counted
    told = spikes_warning(spikes)
    return None if told is None else as_sentence(told)


def late(run: RunArrays) -> str | None:
    return late_start_warning(run, steady_windows(run, "elapsed"), "elapsed")


def counted(run: RunArrays, evidence: str = "elapsed") -> str | None:
    spikes = find_spikes(run, evidence)
    assert spikes is None or spikes.counted
    told = spikes_warning(spikes)
    return None if told is None else as_sentence(told)


LEFT_OUT = "TGS leaves out "
PROBABLY = "probably unlogged evaluations or checkpoints. With them, TGS is {} lower. Fix: "
PROBABLY += "if you removed lines from the log, ingest the original"


def test_windows_left_out_are_counted_beside_those_that_stay() -> None:
    """Two of 30 s beside nine of 10 s: 60 s of 150 s; the start is neither."""
    told = unlogged(windows([99, 10, 10, 30, *[10] * 5, 30, 10, 10], unlogged=(3, 9)))
    assert (
        told == f"{LEFT_OUT}2 of 11 windows (3x as slow as the rest, 40.0% of the measured time), "
        f"{PROBABLY.format('26.7%')}"
    )


def test_one_window_left_out_is_one() -> None:
    told = unlogged(windows([99, 10, 10, 50, 10, 10], unlogged=(3,)))
    assert (
        told == f"{LEFT_OUT}1 of 5 windows (5x as slow as the rest, 55.6% of the measured time), "
        f"{PROBABLY.format('44.4%')}"
    )


def test_windows_left_out_on_a_period_say_it() -> None:
    at = range(5, 31, 5)
    told = unlogged(windows([40 if n in at else 10 for n in range(31)], unlogged=at))
    assert told is not None
    assert told.startswith(
        f"{LEFT_OUT}6 of 30 windows every 50 steps (4x as slow as the rest, 50.0% of "
    )


def test_nothing_left_out_is_no_sentence() -> None:
    assert counted(windows([99, 10, 10, 10, 10])) is None
    assert late(windows([99, 10, 10, 50, 10])) is None


@pytest.mark.parametrize(
    ("seconds", "times"), [(30, "1.5x"), (188, "9.4x"), (190, "10x"), (246, "12x"), (2468, "123x")]
)
def test_tenths_are_said_of_small_ratios(seconds: float, times: str) -> None:
    told = unlogged(windows([99, 20, 20, seconds, 20], tokens=1.0, unlogged=(3,)))
    assert told is not None
    assert f"({times} as slow as the rest, " in told


def test_a_ratio_is_by_token_where_both_sides_have_tokens() -> None:
    """40 s for twice the tokens are twice the usual pace, not four times."""
    told = unlogged(windows([99, 10, 40, 10, 10], tokens=[1, 1, 2, 1, 1.0], unlogged=(2,)))
    assert told is not None
    assert "(2x as slow as the rest, " in told
    told = unlogged(windows([99, 10, 40, 10, 10], tokens=[1, 1, 0, 1, 1.0], unlogged=(2,)))
    assert told is not None
    assert "(4x as slow as the rest, " in told


@given(st.floats(0.05, 0.4), st.floats(0.3, 0.99), st.integers(3, 20))
def test_steps_of_few_tokens_at_the_usual_time_are_no_stall(
    few: float, seconds: float, at: int
) -> None:
    """A window of short samples is slow per token, and takes no longer than others."""
    every, sizes = [1.0] * 24, [10.0] * 24
    every[at], sizes[at] = max(seconds, 4 * few), 10.0 * few
    run = windows(every, tokens=sizes, stalled=[at])
    assert (counted(run) is None) == (every[at] <= 1.0)


def test_others_that_mostly_take_no_second_are_told_by_their_mean() -> None:
    """Stamps of whole seconds: 0 or 1 s, the mean of ten of them is 0.3 s."""
    told = unlogged(windows([99, *[0, 0, 1, 0, 0, 1, 0, 0, 1, 0], 30], unlogged=(11,)))
    assert told is not None
    assert "(100x as slow as the rest, " in told


def test_a_slow_start_of_few_windows_is_told() -> None:
    told = late(windows([99, 16, 10, 10, 10], warming=(1,)))
    assert told == (
        f"{LEFT_OUT}the first of 4 windows after start-up: 1.6x as slow as the rest, probably "
        "still warm-up. Fix: train longer, or log more often"
    )
    told = late(windows([99, 16, 16, *[10] * 6], warming=(1, 2)))
    assert told is not None
    assert told.startswith(f"{LEFT_OUT}the first 2 of 8 windows after start-up: 1.6x as slow ")


def test_nine_windows_behind_the_start_tell_by_themselves() -> None:
    assert late(windows([99, 16, *[10] * 7], warming=(1,))) is not None
    assert late(windows([99, 16, *[10] * 8], warming=(1,))) is None


def test_what_completes_the_interval_of_step_1_is_no_slow_start() -> None:
    """Step 1 has a line of its own, then step 10: that window is start-up as step 1 is."""
    steps = [1, 10, 20, 30, 40]
    assert late(windows([99, 16, 10, 10, 10], steps=steps, warming=(1,))) is None
    told = late(windows([99, 16, 16, 10, 10], steps=steps, warming=(1, 2)))
    assert told is not None
    assert told.startswith(f"{LEFT_OUT}the first of 3 windows")


@pytest.mark.parametrize(
    ("steps", "named"),
    [
        ([30], "at step 30"),
        ([30, 1000], "at steps 30, 1,000"),
        ([*range(5)], "at steps 0, 1, 2 and 2 more"),
    ],
)
def test_a_few_steps_are_named(steps: list[int], named: str) -> None:
    assert outlier_warnings._places(steps) == named


def test_a_window_that_counts_says_what_it_costs() -> None:
    """Nine of 10 s and one of 30 s: 100 steps in 120 s, in 100 s without it: 1 - 100 / 120."""
    told = counted(windows([99, *[10] * 4, 30, *[10] * 5], stalled=(5,)))
    assert told == (
        "Slow time lowers TGS by 16.7%: 1 of the 10 windows in TGS (at step 60), 25.0% of the "
        "measured time, is 3x as slow as the rest. The log gives no reason for it; it may be a "
        "stall, an evaluation or a checkpoint. Fix: look at the log, the nodes and other jobs at "
        "these steps; if you removed lines from the log, ingest the original"
    )
    told = counted(windows([99, *[10] * 4, 30, 30, *[10] * 4], stalled=(5, 6)))
    assert told is not None
    assert told.startswith(
        "Slow time lowers TGS by 28.6%: 2 of the 10 windows in TGS (at steps 60, 70), 42.9% of the "
        "measured time, are 3x as slow as the rest."
    )


def test_a_hundredth_of_tgs_is_not_told() -> None:
    """More tokens a second without it: 1 - 99 x 10 / (98 x 10 + x) of 99 windows."""
    assert counted(windows([99, *[10] * 98, 19.9], stalled=(99,))) is None
    assert counted(windows([99, *[10] * 98, 20.2], stalled=(99,))) is not None


def test_what_the_log_explains_is_not_told() -> None:
    slow = [99, *[10] * 4, 30, *[10] * 5]
    assert counted(windows(slow, stalled=(5,), restarted=(5,))) is None
    assert counted(windows(slow, stalled=(5,), waiting=(5,))) is None


def test_where_stalls_are_marked_these_alone_count() -> None:
    told = counted(windows([99, *[10] * 4, 30, 10, 10, 16, 10, 10], stalled=(5,)))
    assert told is not None
    assert "of the measured time, is 3x as slow as the rest" in told


def test_a_share_of_no_time_is_not_told() -> None:
    assert counted(windows([99, 0, 0, 0, 0, 30], stalled=(5,))) is None


@pytest.mark.parametrize(("seconds", "told"), [(12, False), (13, True), (12.5, True)])
def test_stamps_of_whole_seconds_tell_no_two_seconds(seconds: float, *, told: bool) -> None:
    """Each end may be off by one, so that 12 s may be 10; half a second shows a finer clock."""
    run = windows([99, 10, 10, 10, 10, seconds])
    assert (counted(run, "stamp") is not None) == told
    assert counted(run) is not None  # a printed time is what it says


def test_windows_of_a_single_token_are_told_by_token() -> None:
    """As where a rate of unknown tokens counts each step as one."""
    told = unlogged(windows([99, 10, 40, 10], tokens=[0.1, 0.1, 0.2, 0.1], unlogged=(2,)))
    assert told is not None
    assert "(2x as slow as the rest, " in told


def test_a_window_without_tokens_has_no_say_in_the_usual_pace() -> None:
    tokens = [1, 1, 1, 1, 1, 0, 0, 0, 0, 1.0]
    told = counted(windows([99, 10, 10, 10, 10, 1, 1, 1, 1, 16], tokens=tokens))
    assert told is not None
    assert "of the measured time, is 1.6x as slow as the rest" in told


def test_windows_without_tokens_have_no_rate_to_lower() -> None:
    slow = [99, *[10] * 4, 30, *[10] * 5]
    assert counted(windows(slow, tokens=None, stalled=(5,))) is None
    assert counted(windows(slow, tokens=0.0, stalled=(5,))) is None


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        ([99, 10, 10, 10, 16], True),
        ([99, 10, 10, 16], False),  # two others tell no scatter
        ([99, 10, 10, 10, 11.9], False),  # no fifth above the usual
        ([99, 10, 10, 10, 12], True),
        ([99, 10, 10, 16, 16], False),  # half of them are speed
        ([99, *[10] * 6, 16, 16], True),
        ([99, *[10] * 5, 16, 16], False),
    ],
)
def test_of_a_few_windows_those_that_stand_apart_are_told(
    seconds: list[float], *, told: bool
) -> None:
    """No stall is marked, for too few windows tell how much windows scatter."""
    assert (counted(windows(seconds)) is not None) == told


@settings(max_examples=30)
@given(
    st.integers(1, 3),
    st.floats(1.3, 50),
    st.floats(0.01, 100),
    st.floats(1.0, 1e6),
)
def test_tgs_without_the_told_windows_is_higher_by_the_share_told(
    number: int, times: float, pace: float, tokens: float
) -> None:
    """In no unit of time or tokens; the order does not matter either."""
    seconds = [99 * pace, *[10 * pace] * 12, *[10 * pace * times] * number]
    text = counted(windows(seconds, tokens=tokens, stalled=range(13, 13 + number)))
    lower = 1 - (12 + number) / (12 + number * times)
    assert text is not None
    (said,) = re.findall(r"^Slow time lowers TGS by ([\d.]+)%", text)
    assert float(said) == pytest.approx(100 * lower, abs=0.0501)  # 18.75 % is 18.7 or 18.8


@pytest.mark.parametrize(
    ("seconds", "marks", "effect"),
    [
        ([99, *[10] * 9, 50], {"unlogged": (10,)}, "unranked"),
        ([99, *[10] * 700, 50], {"unlogged": (701,)}, "doubt"),  # 0.6 % of TGS
        ([99, *[10] * 9, 31], {"stalled": (10,)}, "unranked"),
        ([99, *[10] * 9, 29], {"stalled": (10,)}, "doubt"),  # less than three times the others
        ([99, *[10] * 9, 31, 31], {"stalled": (10, 11)}, "doubt"),  # more than an eighth
        ([99, *[10] * 700, 50], {"stalled": (701,)}, None),
    ],
)
def test_a_large_effect_of_an_unknown_cause_costs_the_rank(
    seconds: list[float], marks: dict[str, tuple[int, ...]], effect: str | None
) -> None:
    run = windows(seconds, **marks)
    spikes = find_spikes(run, "elapsed")
    told = spikes_warning(spikes)
    assert (None if told is None else told.effect) == effect


@settings(max_examples=30)
@given(st.integers(1, 3), st.floats(3.2, 50), st.sampled_from(["unlogged", "stalled"]))
def test_tgs_with_and_without_slow_windows_is_of_all_windows_and_of_the_others(
    number: int, times: float, mark: str
) -> None:
    """The same two figures, whether TGS leaves the windows out or not."""
    seconds = [99, *[10] * 30, *[10 * times] * number]
    at = tuple(range(31, 31 + number))
    run = windows(seconds, **{mark: at})
    rates = spike_columns(find_spikes(run, "elapsed"))
    assert rates["tgs_without_spikes"] == pytest.approx(10)
    every = 10 * 10 * (30 + number) / (300 + 10 * times * number)
    assert rates["tgs_with_spikes"] == pytest.approx(every)


# -- work in so many windows that it is no exception ---------------------------------------------


@settings(max_examples=40)
@given(
    period=st.sampled_from([15, 20, 25, 30, 40, 60]),
    work_s=st.floats(2.5, 30),
    lines=st.integers(24, 80),
    seed=st.integers(0, 2**16),
)
def test_work_on_a_period_in_many_windows_is_told_with_its_cost(
    period: int, work_s: float, lines: int, seed: int
) -> None:
    """Steps of 1 s with 1 % of noise, a line each ten, an evaluation each `period` steps."""
    draw = np.random.default_rng(seed)
    ends = np.arange(10, 10 * lines + 1, 10)
    held = ends // period - (ends - 10) // period
    seconds = 10 * draw.normal(1, 0.01, lines) + work_s * held
    told = counted(windows(seconds.tolist()))
    assert told is not None
    (lower,) = re.findall(r"^Slow time lowers TGS by ([\d.]+)%", told)
    true = 1 - 10 * (lines - 1) / seconds[1:].sum()
    assert float(lower) / 100 == pytest.approx(true, abs=0.01)


@settings(max_examples=40)
@given(
    share=st.floats(0.1, 0.6),
    ratio=st.floats(1.2, 3),
    lines=st.integers(24, 80),
    seed=st.integers(0, 2**16),
)
def test_two_paces_in_a_random_order_are_no_work_on_a_period(
    share: float, ratio: float, lines: int, seed: int
) -> None:
    """Long and short documents: at most one in twenty such runs is told of, by chance."""
    told = 0
    for at in range(20):
        draw = np.random.default_rng((seed, at))
        slow = draw.random(lines) < share
        seconds = 10 * draw.normal(1, 0.01, lines) * np.where(slow, ratio, 1)
        steps = (10 * np.arange(1, lines + 1)).astype(float)
        usual = np.full(lines, np.quantile(seconds, LOWER_LEVEL_QUANTILE))
        told += bool(upper_level(steps, np.full(lines, 10.0), seconds, usual).any())
    assert told <= 1


@pytest.mark.parametrize(
    "seconds",
    [
        [*[10] * 20, *[14] * 20],  # slower from the middle on
        [*[14] * 20, *[10] * 20],
        np.linspace(10, 15, 40),
        [10 + n % 3 * 0.1 for n in range(40)],  # less than a step's time
        [10] * 40,
    ],
)
def test_other_courses_are_no_work_on_a_period(seconds: Sequence[float]) -> None:
    number = len(seconds)
    steps, spans = 10.0 * np.arange(1, number + 1), np.full(number, 10.0)
    usual = np.full(number, np.quantile(seconds, LOWER_LEVEL_QUANTILE))
    assert not upper_level(steps, spans, np.array(seconds, float), usual).any()


def test_micro_steps_of_an_unknown_accumulation_may_be_training() -> None:
    seconds = [40, *[10, 10, 14] * 12]
    run = windows(seconds, step_unit="micro_step", gradient_accumulation=None)
    assert counted(run) is None
    assert counted(windows(seconds)) is not None
