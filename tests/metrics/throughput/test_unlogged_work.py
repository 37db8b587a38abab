"""Evaluations and checkpoints whose lines a log has lost, on windows of known truth."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.metrics.core.arrays import FloatArray
from fairmfu.metrics.core.run_arrays import RunArrays
from fairmfu.metrics.core.run_words import BETWEEN_STEPS
from fairmfu.metrics.throughput import messages
from fairmfu.metrics.throughput.unlogged_work import (
    UNLOGGED_WORK,
    find_period,
    share_above,
    stall_cause,
    usual_wait,
    windows_apart,
)
from tests.metrics.throughput.test_throughput import facts, of_kinds, rates, run, steps
from tests.support.effort import THOROUGH
from tests.support.simulated import Simulation

FACTS = facts(gpus=1, global_batch_size=1, seq_len=100, log_interval=10)


def logged(
    pace: FloatArray, *events: dict, data: FloatArray | None = None, **about: object
) -> dict:
    """The rates of a run with these seconds per step, a line each ten."""
    waits = np.zeros(len(pace)) if data is None else data
    table = steps(
        *(
            {"line": 2 * i, "step": 10 * i, "elapsed_s": s, "data_s": w}
            for i, (s, w) in enumerate(zip(pace, waits, strict=True), 1)
        )
    )
    return rates(table, run(elapsed_covers="interval", **about), FACTS, *events)


def noisy(windows: int, seed: int = 1, spread: float = 0.01) -> FloatArray:
    return 1 + spread * np.random.default_rng(seed).standard_normal(windows)


def with_work(pace: FloatArray, first: int, every: int, more: float) -> FloatArray:
    out = pace.copy()
    out[first::every] += more
    return out


def told(row: dict) -> list[str]:
    return of_kinds(row, messages.UNLOGGED_WORK, messages.LATE_START)


@pytest.mark.parametrize("more", [0.6, 3.0, 33.0])
def test_evaluations_on_a_period_are_left_out_and_told(more: float) -> None:
    pace = noisy(120)
    row = logged(with_work(pace, 12, 12, more))
    clean = np.delete(pace, [0, *range(12, 120, 12)])
    assert row["tgs"] == pytest.approx(100 / clean.mean())
    (text,) = told(row)
    assert text.startswith("Not ranked: TGS leaves out 9 of 119 windows every 120 steps (")
    assert row["tgs_without_spikes"] == row["tgs"]
    assert row["tgs_with_spikes"] == pytest.approx(100 / with_work(pace, 12, 12, more)[1:].mean())
    assert messages.UNLOGGED_WORK.identifier in row["warning_kinds"]
    assert UNLOGGED_WORK in row["excluded_causes"]
    (cause,) = [x for x in row["time_lost"] if x["cause"].startswith("unexplained")]
    assert cause["cause"] == "unexplained, every 120 steps"
    assert cause["seconds"] == pytest.approx(9 * 10 * more, rel=0.05)


def test_the_same_rate_with_the_lines_and_without() -> None:
    pace = with_work(noisy(120), 12, 12, 4.0)
    lines = ({"line": 2 * i + 1, "kind": "evaluation"} for i in range(12, 120, 12))
    whole, bare = logged(pace, *lines), logged(pace)
    assert bare["tgs"] == pytest.approx(whole["tgs"], rel=1e-12)
    assert (bare["tgs_low"], bare["tgs_high"]) == (whole["tgs_low"], whole["tgs_high"])
    assert not told(whole)
    assert "evaluation" in whole["excluded_causes"]


def test_single_windows_far_above_all_others_are_left_out() -> None:
    pace = noisy(60)
    pace[[20, 47]] = 12.0, 9.0
    row = logged(pace)
    assert row["tgs"] == pytest.approx(100 / np.delete(pace, [0, 20, 47]).mean())
    assert told(row)[0].startswith("Not ranked: TGS leaves out 2 of 59 windows (")


def test_end_to_end_holds_them_as_before() -> None:
    pace = with_work(noisy(120), 12, 12, 4.0)
    assert logged(pace)["tgs_end_to_end"] == pytest.approx(100 / pace.mean())


def episode(pace: FloatArray) -> FloatArray:
    return np.where(np.abs(np.arange(len(pace)) - 70) < 4, 5 * pace, pace)


def bimodal(pace: FloatArray) -> FloatArray:
    return np.where(np.random.default_rng(3).random(len(pace)) < 0.3, 3 * pace, pace)


def alternating(pace: FloatArray) -> FloatArray:
    return np.where(np.arange(len(pace)) % 4 == 0, 5 * pace, pace)


def drift(pace: FloatArray) -> FloatArray:
    return pace * np.linspace(1, 2.5, len(pace))


def collections(pace: FloatArray) -> FloatArray:
    return with_work(pace, 5, 5, 0.07)


def heavy_tail(pace: FloatArray) -> FloatArray:
    return pace * np.random.default_rng(4).lognormal(0, 0.5, len(pace))


@pytest.mark.parametrize("slower", [episode, bimodal, alternating, drift, collections, heavy_tail])
def test_real_slowness_stays_in(slower: Callable[[FloatArray], FloatArray]) -> None:
    for seed in range(20 if THOROUGH else 3):
        pace = slower(noisy(120, seed))
        row = logged(pace)
        assert not told(row), slower.__name__
        warm = int(row["steady_from"] // 10)
        assert row["tgs"] == pytest.approx(100 / pace[warm:].mean())


def test_what_the_log_explains_stays_in() -> None:
    """A wait for data that its own line prints is how fast the run is."""
    pace, waits = noisy(60), np.full(60, 0.01)
    pace[[20, 40]], waits[[20, 40]] = 20.0, 19.0
    assert not told(logged(pace, data=waits))
    pace[30] = 20.0
    assert told(logged(pace, data=waits))[0].startswith(
        "Not ranked: TGS leaves out 1 of 59 windows ("
    )


def test_slow_micro_steps_may_be_the_optimizer_s() -> None:
    """Where it is not known how many are accumulated."""
    pace = with_work(noisy(120), 11, 12, 3.0)
    table = steps(*({"step": 10 * i, "elapsed_s": s} for i, s in enumerate(pace, 1)))
    known = {"gpus": 1, "micro_batch_size": 1, "seq_len": 100, "packed": True}
    about = run(elapsed_covers="interval", step_unit="micro_step")
    assert not told(rates(table, about, facts(**known)))
    assert told(rates(table, about, facts(**known, gradient_accumulation=1)))


@given(
    st.lists(st.floats(0.5, 2.0), min_size=1, max_size=60),
    st.lists(st.floats(10.0, 1000.0), max_size=5),
)
def test_windows_apart_are_the_largest_and_know_no_order(
    low: Sequence[float], high: Sequence[float]
) -> None:
    above = np.array([*low, *high])
    found = windows_apart(above, 2.0, len(above) // 2)
    assert np.all(above[found] >= 2.0)
    rest = np.delete(above, found)
    if len(found):
        assert above[found].min() >= 3 * rest.max()
    backwards = windows_apart(above[::-1], 2.0, len(above) // 2)
    assert sorted(above[::-1][backwards]) == sorted(above[found])


def test_stalls_at_random_have_no_period() -> None:
    """One run in a hundred may be given one."""
    random = np.random.default_rng(5)
    false, runs = 0, 2000 if THOROUGH else 200
    for _ in range(runs):
        ends = 10.0 * np.arange(1, 241)
        false += find_period(ends, np.full(240, 10.0), random.random(240) < 0.05) is not None
    assert false <= 0.015 * runs


def test_a_period_is_found_among_stalls_without_one_and_lost_lines() -> None:
    random = np.random.default_rng(6)
    for _ in range(50):
        at = np.arange(400)
        stalled = (at % 20 == 7) | (random.random(400) < 0.02)
        kept = random.random(400) < 0.95
        found = find_period(10.0 * at[kept], np.full(kept.sum(), 10.0), stalled[kept])
        assert found is not None
        assert found.period == 200
        assert (found.hits == (at[kept] % 20 == 7)).all()


@pytest.mark.parametrize("stalls", [0.0, 0.02] if THOROUGH else [0.02])
@pytest.mark.parametrize("more", [1.5, 10.0])
def test_intervals_cover_the_truth_of_runs_with_unlogged_evaluations(
    stalls: float, more: float
) -> None:
    law = Simulation(
        windows=320, autocorrelation=0.6, stalls=stalls, warm_up=6, checkpoint_every=40
    )
    runs = 300 if THOROUGH else 80
    found = law.draw(runs, seed=16, checkpoint_s=more, logged=False)
    assert (found["windows"] <= 319 - 7).mean() >= 0.99  # type: ignore[operator]
    cover = found.select(pl.lit(law.tgs).is_between("tgs_low", "tgs_high").mean()).item()
    assert abs(cover - 0.95) <= 3 * (0.95 * 0.05 / runs) ** 0.5


# --- the bounds ------------------------------------------------------------------------------


def test_what_is_above_is_a_share_of_the_usual() -> None:
    above = share_above(np.array([10.0, 20.0, 5.0, 7.0]), np.array([10.0, 8.0, 10.0, 0.0]))
    assert above.tolist() == [0.0, 1.5, 0.0, 0.0]


@pytest.mark.parametrize(
    ("above", "most", "apart"),
    [
        ([0.1, 2.0, 0.1], 1, [1]),
        ([0.1, 1.99, 0.1], 1, []),
        ([1.0, 3.0, 0.0], 1, [1]),  # three times as far as the next
        ([1.0, 2.99, 0.0], 1, []),
        ([0.1, 9.0, 0.1, 8.0, 0.1], 2, [1, 3]),
        ([0.1, 9.0, 0.1, 8.0, 0.1], 1, []),  # more than so many
        ([0.1, 90.0, 0.1, 8.0, 0.1], 1, [1]),
        ([9.0, 9.0], 2, []),  # nothing is left to stand apart from
        ([9.0, 0.0], 0, []),
    ],
)
def test_windows_apart_are_far_above_all_others(
    above: list[float], most: int, apart: list[int]
) -> None:
    assert windows_apart(np.array(above), 2.0, most).tolist() == apart


def period_of(stalled: Sequence[int], windows: int = 60) -> int | None:
    """The period of stalls among windows of ten steps, by place; the first ends at step 10."""
    mask = np.isin(np.arange(windows), stalled)
    found = find_period(10.0 * np.arange(1, windows + 1), np.full(windows, 10.0), mask)
    if found is not None:
        assert not (found.hits & ~mask).any()
    return None if found is None else found.period


@pytest.mark.parametrize(
    ("stalled", "period"),
    [
        ([], None),
        ([9], None),
        ([9, 19], None),  # any two make a period
        ([9, 19, 29], None),  # three of six
        ([9, 19, 29, 39, 49, 59], 100),
        ([9, 19, 39, 49, 59], 100),  # five of six
        ([9, 19, 49, 59], None),  # four of six are less than seven tenths
        ([9, 19, 29, 39, 49, 59, 13], 100),
        ([9, 16, 19, 26, 29, 33, 39, 41, 49, 52, 59], 100),  # one between each two
    ],
)
def test_a_period_is_hit_by_most_of_its_multiples(stalled: list[int], period: int | None) -> None:
    assert period_of(stalled) == period


@pytest.mark.parametrize(
    ("span", "period"), [(100, 1050), (10, 15), (10, 35), (50, 75), (100, 250), (7, 21), (1, 40)]
)
@pytest.mark.parametrize("first", [0, 3, 17])
def test_a_period_between_two_distances_is_told_as_it_is(
    span: int, period: int, first: int
) -> None:
    """1,050 steps in windows of 100 are 1,000 and 1,100 apart by turns."""
    ends = span * np.arange(1, 40 * period // span)
    stalled = (ends - first) // period > (ends - span - first) // period
    found = find_period(ends.astype(float), np.full(len(ends), float(span)), stalled)
    assert found is not None
    assert found.period == period
    assert (found.hits == stalled).all()


def cause(
    lost_s: float,
    *events: str,
    gc_s: float = 0.0,
    waits: float = 0.0,
    quirks: Sequence[str] = (),
) -> str | None:
    """Of the third of five windows of ten steps, whose lines wait 0.1 s for the data of each."""
    frame = pl.DataFrame(
        {
            "first": [True, False, False, False, False],
            "gc_s": [0.0, 0.0, gc_s, 0.0, 0.0],
            "data_s": [9.0, 0.1, 0.1 + waits, 0.1, None],
            "new_step": [None, 10, 10, 10, 10],
            "quirks": [list(quirks)] * 5,
        },
        schema_overrides={"quirks": pl.List(pl.String)},
    )
    run = RunArrays(frame)
    return stall_cause(run, 2, events, lost_s, usual_wait(run))


def test_the_cause_of_a_stall_is_what_makes_up_half_of_it() -> None:
    assert cause(10.0) is None
    assert cause(10.0, waits=0.5) is None
    assert cause(10.0, waits=0.51) == "data loading"
    assert cause(10.0, "gc", gc_s=5.0) is None
    assert cause(10.0, "gc", gc_s=5.1) == "garbage collection"
    assert cause(10.0, "gc", gc_s=1.0, waits=0.6) == "data loading"


def test_a_wait_that_has_all_pauses_is_not_called_data_loading() -> None:
    quirks = ["wait_has_pauses"]
    assert cause(10.0, waits=0.51, quirks=quirks) == BETWEEN_STEPS
    assert cause(10.0, "load", waits=0.51, quirks=quirks) == "loading"
    assert cause(10.0, waits=0.1, quirks=quirks) is None


def test_each_format_of_mmengine_has_pauses_in_its_wait() -> None:
    having = {known.name for known in BUILT_IN_FORMATS if "wait_has_pauses" in known.quirks}
    assert having == {"xtuner", "xtuner-scalars", "xtuner-tensorboard"}


def test_a_restart_explains_a_stall_before_all_else() -> None:
    assert cause(10.0, "gc", "restart", gc_s=9.0, waits=0.9) == "restart"
    assert cause(10.0, "load") == "loading"
    assert cause(10.0, "compile", "load") == "loading"
    assert cause(10.0, "compile") == "compilation"
    assert cause(10.0, "checkpoint") is None


@pytest.mark.parametrize(
    ("windows", "slow", "left_out"),
    [
        (10, (5,), 1),  # nine behind the first
        (9, (5,), 0),
        (60, (20, 21), 0),  # one behind the other is an episode
        (60, (20, 22), 2),
        (33, (5, 12, 27), 3),
        (33, (5, 12, 17, 22, 27), 0),  # more than an eighth of 32
    ],
)
def test_so_few_windows_and_so_many_stalls_are_left_out(
    windows: int, slow: tuple[int, ...], left_out: int
) -> None:
    pace = noisy(windows, spread=0.001)
    pace[[*slow]] = 9.0
    row = logged(pace)
    assert len(told(row)) == bool(left_out)
    assert row["windows"] == windows - 1 - left_out
