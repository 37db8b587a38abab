"""Where the wall time of a launch went, by each kind of clock, worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.metrics.core.run_words import SAVED_OR_EVALUATED
from tests.metrics.throughput.test_throughput import at, facts, rates, run, steps

FACTS = facts(gpus=1, global_batch_size=1, seq_len=100, log_interval=10)
"""100 tokens a step on the one GPU, a line each ten steps."""

STEADY = [10.0, 10.1, 9.9] * 10


def causes(row: dict) -> dict[str, tuple[int, float]]:
    return {x["cause"]: (x["windows"], round(x["seconds"], 3)) for x in row["time_lost"]}


def by_bar(*seconds: float, runtime_s: float | None = None, **about: object) -> dict:
    """A progress bar's clock, a line each ten steps; seconds: from line to line."""
    ends = np.cumsum(seconds).tolist()
    table = steps(*({"step": 10 * n, "since_start_s": end} for n, end in enumerate(ends, 1)))
    end = {"line": 9999, "kind": "end", "seconds": runtime_s}
    return rates(table, run(evidence=["clock"], **about), FACTS, *([end] if runtime_s else []))


def by_time(*seconds: float, events: Sequence[dict] = (), **about: object) -> dict:
    """Printed times of a step, each the mean of ten; seconds: of ten steps."""
    rows = ({"line": 10 * n, "step": 10 * n, "elapsed_s": s / 10} for n, s in enumerate(seconds, 1))
    return rates(steps(*rows), run(elapsed_covers="interval", **about), FACTS, *events)


def test_a_bars_clock_began_with_training() -> None:
    """25.1 s up to the line of step 10, ten steps of which take 10 s: 15 s are start-up."""
    row = by_bar(25.0, *STEADY)
    assert causes(row) == {"start-up": (1, 15.0)}
    assert row["wall_s"] == pytest.approx(25 + 300)
    assert row["time_lost"][0]["share"] == pytest.approx(15 / 325)


def test_a_run_time_behind_the_bars_last_line_is_after_the_last_step() -> None:
    row = by_bar(25.0, *STEADY, runtime_s=345.0)
    assert causes(row) == {"after the last step": (0, 20.0), "start-up": (1, 15.0)}
    assert row["wall_s"] == pytest.approx(345)
    # One that ends before the clock does tells nothing.
    assert causes(by_bar(25.0, *STEADY, runtime_s=320.0)) == {"start-up": (1, 15.0)}


def test_steps_and_evaluations_after_the_last_line_are_what_they_are() -> None:
    """Of 20 s after the line of step 310, steps 311 to 315 take 5 s, and an evaluation 8 s."""
    ends = np.cumsum([10.0, *STEADY]).tolist()
    table = steps(*({"step": 10 * n, "since_start_s": end} for n, end in enumerate(ends, 1)))
    evaluated = {"line": 9998, "kind": "evaluation", "step": 315, "seconds": 8.0}
    end = {"line": 9999, "kind": "end", "step": 315, "seconds": 330.0}
    about = run(evidence=["clock"], outcome="completed")
    row = rates(table, about, FACTS, evaluated, evaluated | {"line": 9997}, end)
    assert causes(row) == {"after the last step": (0, 7.0), "evaluation": (0, 8.0)}
    assert row["wall_s"] == pytest.approx(330)
    # Not more than there is: what was printed counts before what is usual.
    row = rates(table, about, FACTS, evaluated, end | {"seconds": 319.0})
    assert causes(row) == {"evaluation": (0, 8.0)}


def test_steps_after_the_last_printed_time_are_not_outside_the_steps() -> None:
    end = {"line": 9999, "kind": "end", "step": 315, "seconds": 326.0}
    evaluated = {"line": 9998, "kind": "evaluation", "seconds": 8.0}
    row = by_time(10.0, *STEADY, events=[evaluated, end])
    lost = {"evaluation": (0, 8.0), "outside the steps, cause unknown": (0, 3.0)}
    assert causes(row) == lost


def test_rounding_is_no_lost_time() -> None:
    end = {"line": 9999, "kind": "end", "seconds": 310.0 * (1 + 1e-13)}
    assert causes(by_time(10.0, *STEADY, events=[end])) == {}


@pytest.mark.parametrize(
    ("outcome", "after_s", "lost_s"),
    [
        ("incomplete", 9.0, 0.0),
        ("incomplete", 19.0, 0.0),
        ("incomplete", 25.0, 15.0),
        ("nan_loss", 9.0, 0.0),
        ("crashed", 9.0, 9.0),
        ("completed", 9.0, 9.0),
    ],
)
def test_a_cut_log_trains_on_up_to_its_next_line(
    outcome: str, after_s: float, lost_s: float
) -> None:
    """A line each 10 s: only when the next one is long overdue has training stopped."""
    rows = ({"step": 10 * n, "logged_at": at(10.0 * n)} for n in range(1, 32))
    later = {"line": 9999, "kind": "gc", "logged_at": at(310 + after_s)}
    about = run(evidence=["stamp"], outcome=outcome)
    row = rates(steps(*rows), about, FACTS, later)
    assert causes(row) == ({"after the last step": (0, lost_s)} if lost_s else {})
    assert row["wall_s"] == pytest.approx(310 + lost_s)


def test_steps_of_a_checkpoint_after_a_cut_log_have_been_trained() -> None:
    """Step 315 is saved 7 s after the line of step 310: 5 s of steps, and 2 s to the next line."""
    rows = ({"step": 10 * n, "logged_at": at(10.0 * n)} for n in range(1, 32))
    saved = {"line": 9999, "kind": "checkpoint", "step": 315, "logged_at": at(317)}
    about = run(evidence=["stamp"], outcome="incomplete")
    row = rates(steps(*rows), about, FACTS, saved)
    assert row["wall_s"] == pytest.approx(315)
    assert causes(row) == {}


@pytest.mark.parametrize(
    ("event", "data_s", "first_s", "cause"),
    [
        ("checkpoint", 2.0, 31.0, "checkpoint"),
        (None, 2.0, 31.0, "data loading"),
        (None, 0.0, 31.0, "unexplained"),
        (None, 0.0, 12.0, None),
        ("load", 0.0, 31.0, "start-up"),
    ],
)
def test_the_first_line_of_an_excerpt_has_its_own_cause(
    event: str | None, data_s: float, first_s: float, cause: str | None
) -> None:
    """The log begins at step 1,510, whose line of ten steps takes 21 s more than the others."""
    rows = [
        {"line": 10 * n, "step": 1_500 + 10 * n, "elapsed_s": s / 10, "data_s": data_s * (n == 1)}
        for n, s in enumerate([first_s, *STEADY], 1)
    ]
    before = [{"line": 1, "kind": event}] if event else []
    row = rates(steps(*rows), run(elapsed_covers="last_10"), FACTS, *before)
    assert causes(row) == ({cause: (1, 21.0)} if cause else {})
    assert row["wall_s"] == pytest.approx(300 + first_s)


@pytest.mark.parametrize(
    ("kinds", "cause"),
    [
        (["checkpoint"], SAVED_OR_EVALUATED),
        (["checkpoint", "evaluation"], "checkpoint and evaluation"),
        (["evaluation"], "evaluation"),
    ],
)
def test_a_checkpoint_beside_a_silent_evaluation_has_not_all_the_time(
    kinds: list[str], cause: str
) -> None:
    seconds = [10.0, 10.0, 45.0, *STEADY]
    rows = [{"line": 10 * n, "step": 10 * n, "elapsed_s": s / 10} for n, s in enumerate(seconds, 1)]
    events = [{"line": 25, "kind": kind} for kind in kinds]
    about = run(elapsed_covers="last_10", quirks=["wait_has_pauses"])
    assert causes(rates(steps(*rows), about, FACTS, *events)) == {cause: (1, 35.0)}


def test_a_rate_without_a_first_one_has_the_time_beside_it() -> None:
    """The line of step 10 has its time alone, and the later ones a rate too."""
    rows = (
        {"step": 10 * n, "elapsed_s": s / 10, "logged_tgs": None if n == 1 else 1_000 / s}
        for n, s in enumerate([31.0, *STEADY], 1)
    )
    about = run(evidence=["rate"], rate_covers="interval", elapsed_covers="interval")
    row = rates(steps(*rows), about, FACTS)
    assert causes(row) == {"start-up": (1, 21.0)}
    assert row["wall_s"] == pytest.approx(331)


@pytest.mark.parametrize("first", [20, 3_200])
def test_an_excerpt_has_lost_no_time_before_its_first_line(first: int) -> None:
    """The clock and the run time are of the whole training, whose earlier lines are not there."""
    ends = [3_000.0, *(3_000 + np.cumsum(STEADY))]
    rows = ({"step": first + 10 * n, "since_start_s": end} for n, end in enumerate(ends))
    end = {"line": 9999, "kind": "end", "seconds": 3_320.0}
    row = rates(steps(*rows), run(evidence=["clock"]), FACTS, end)
    assert causes(row) == {"after the last step": (0, 20.0)}
    assert row["wall_s"] == pytest.approx(300 + 20, abs=11)  # and the first line's own steps


def test_a_printed_time_of_the_first_steps_holds_start_up() -> None:
    row = by_time(31.0, *STEADY)
    assert causes(row) == {"start-up": (1, 21.0)}
    assert (row["wall_s"], row["wall_basis"]) == (pytest.approx(331), "elapsed")


def test_a_fast_first_line_is_no_start_up_and_takes_its_usual_time() -> None:
    row = by_time(6.0, *STEADY)
    assert causes(row) == {}
    assert row["wall_s"] == pytest.approx(310)


def test_a_run_time_longer_than_all_step_times_is_between_them() -> None:
    end = {"line": 9999, "kind": "end", "seconds": 400.0}
    row = by_time(31.0, *STEADY, events=[end])
    assert (row["wall_s"], row["wall_basis"]) == (pytest.approx(400), "runtime")
    assert causes(row) == {
        "outside the steps, cause unknown": (0, 69.0),
        "start-up": (1, 21.0),
    }
    assert sum(x["share"] for x in row["time_lost"]) == pytest.approx(90 / 400)
    # A shorter one, as of the last of several processes, does not shorten what was timed.
    row = by_time(31.0, *STEADY, events=[end | {"seconds": 300.0}])
    assert row["wall_s"] == pytest.approx(331)
    assert causes(row) == {"start-up": (1, 21.0)}


def test_a_window_of_a_checkpoint_and_an_evaluation_is_of_both() -> None:
    events = [
        {"line": 155, "kind": "evaluation"},
        {"line": 156, "kind": "checkpoint"},
        {"line": 215, "kind": "evaluation"},
    ]
    seconds = [10.0] * 31
    seconds[15], seconds[21] = 50.0, 30.0
    assert causes(by_time(*seconds, events=events)) == {
        "checkpoint and evaluation": (1, 40.0),
        "evaluation": (1, 20.0),
    }


def test_a_window_of_an_evaluation_counts_though_it_does_not_stand_out() -> None:
    """What the log says comes first: 0.2 s of an evaluation are no stall."""
    seconds = [10.0, *[10.0] * 30]
    seconds[15] = 10.2
    row = by_time(*seconds, events=[{"line": 155, "kind": "evaluation"}])
    assert causes(row) == {"evaluation": (1, 0.2)}
    # A restart takes no time by itself.
    assert not causes(by_time(*seconds, events=[{"line": 155, "kind": "restart"}]))


@pytest.mark.parametrize("slow_from", [10, 30])
def test_slower_steps_lose_time_against_the_faster_speed(slow_from: int) -> None:
    """Fast for 10 or 30 of 40 windows, so that TGS is of the slower or of the faster speed."""
    seconds = np.array([10.0, *STEADY, *STEADY[:11]])
    seconds[slow_from + 1 :] *= 1.25
    row = by_time(*seconds)
    slower = 41 - slow_from
    windows, lost_s = causes(row)["extra time of slower steps"]
    assert windows == slower
    assert lost_s == pytest.approx(2.5 * slower, abs=1)
    fast, slow = row["levels"]
    assert fast["gpu_hours_lost"] is None
    assert slow["gpu_hours_lost"] * 3600 == pytest.approx(lost_s, abs=1e-3)


def test_a_slow_beginning_loses_time_against_the_speed_of_the_rate() -> None:
    seconds = np.array([10.0, *STEADY, *STEADY])
    seconds[:26] *= 1.25  # more than a third is no warm-up
    row = by_time(*seconds)
    windows, lost_s = causes(row)["extra time of slower steps"]
    assert (windows, lost_s) == (25, pytest.approx(25 * 2.5, abs=1))
    assert row["levels"][0]["gpu_hours_lost"] * 3600 == pytest.approx(lost_s, abs=1e-3)
    assert row["levels"][1]["gpu_hours_lost"] is None


@pytest.mark.parametrize(("slow_from", "cause"), [(20, "unexplained"), (46, None)])
def test_a_stall_in_slower_steps_counts_once(slow_from: int, cause: str | None) -> None:
    """At the speed of the rate it is a stall, at another speed time of the slower steps."""
    seconds = np.array([10.0, *STEADY, *STEADY])
    seconds[slow_from:] *= 1.25
    calm = causes(by_time(*seconds))
    seconds[55] += 8
    stalled = causes(by_time(*seconds))
    assert stalled.get("unexplained", (0, 0.0))[1] == pytest.approx(8 if cause else 0, abs=0.4)
    slower, lost = (each["extra time of slower steps"][1] for each in (calm, stalled))
    assert lost - slower == pytest.approx(0 if cause else 8, abs=2)


def test_a_stall_among_few_windows_is_lost_time() -> None:
    """Of five windows of 10 to 20 s, one of 240 s is part of their scatter."""
    row = by_time(10.0, 10.1, 9.9, 20.0, 10.0, 240.0)
    assert causes(row) == {"unexplained": (1, 227.5)}  # the others: 12.5 s on the average
    (slowest,) = row["slowest_steps"]
    assert (slowest["from_step"], slowest["to_step"]) == (51, 60)
    assert row["tgs"] < row["tgs_without_spikes"]


def test_windows_that_scatter_have_lost_no_time() -> None:
    assert causes(by_time(10.0, 10.5, 9.9, 11.0, 10.0, 11.5)) == {}


def test_one_speed_has_no_slower_steps() -> None:
    assert causes(by_time(10.0, *STEADY)) == {}


def test_stalls_on_a_period_and_others_are_two_causes() -> None:
    """A stall each 150 steps, and one between."""
    seconds = [9.0, *STEADY, *STEADY, *STEADY, *STEADY]
    seconds[4::15] = [40.0] * 8
    seconds[32] = 25.0
    assert causes(by_time(*seconds)) == {
        "unexplained, every 150 steps": (8, pytest.approx(240.0, rel=0.02)),
        "unexplained": (1, pytest.approx(15.0, rel=0.05)),
    }


def test_the_largest_cause_comes_first() -> None:
    seconds = [10.0, *STEADY]
    seconds[15], seconds[21] = 30.0, 50.0
    events = [{"line": 155, "kind": "evaluation"}, {"line": 215, "kind": "checkpoint"}]
    assert list(causes(by_time(*seconds, events=events))) == ["checkpoint", "evaluation"]


@pytest.mark.parametrize(("lost_lines", "told"), [(0, True), (6, True), (7, True), (8, False)])
def test_printed_times_are_wall_time_where_they_are_of_most_steps(
    lost_lines: int, *, told: bool
) -> None:
    """A mean of ten steps: 28 of 35 stretches are four fifths, and 28 of 36 less."""
    printed, rows = list(range(1, 30)), []
    for n in printed:
        gap = sum(1 for lost in range(lost_lines) if n > 3 * lost + 2)
        rows.append({"step": 10 * (n + gap), "elapsed_s": 1.0})
    row = rates(steps(*rows), run(elapsed_covers="interval"), FACTS)
    assert (row["wall_s"] is not None) == told


def test_a_first_line_of_unknown_tokens_has_the_usual_ones() -> None:
    """Resumed behind step 100; the line of step 110 alone does not print its tokens."""
    table = steps(
        *(
            {"step": 100 + 10 * n, "elapsed_s": 1.0, "rank_tokens": 100.0 if n > 1 else None}
            for n in range(1, 32)
        )
    )
    start = {"line": 0, "kind": "train_start", "step": 101}
    row = rates(table, run(elapsed_covers="interval"), facts(gpus=1, log_interval=10), start)
    assert row["wall_s"] == pytest.approx(310)
    assert not row["time_lost"]


def test_lines_before_and_behind_a_clock_take_no_wall_time_from_it() -> None:
    """Of 40 lines those of the steps 80 to 300 have a bar's clock: most, but not four fifths."""
    table = steps(
        *(
            {"step": 10 * n, "since_start_s": 10.0 * n if 8 <= n <= 30 else None}
            for n in range(1, 41)
        )
    )
    row = rates(table, run(evidence=["clock"]), FACTS)
    assert row["wall_s"] == pytest.approx(300)
    assert not row["time_lost"]


def test_an_optimizers_micro_step_is_no_loss() -> None:
    """Each fourth micro-step holds the optimizer's step: 3 s more, as training does."""
    ends = np.cumsum([4.0 if n % 4 == 0 else 1.0 for n in range(1, 81)]).tolist()
    table = steps(*({"step": n, "logged_at": at(end)} for n, end in enumerate(ends, 1)))
    known = facts(gpus=1, micro_batch_size=1, seq_len=100, packed=True, gradient_accumulation=4)
    about = run(evidence=["stamp"], step_unit="micro_step")
    assert not causes(rates(table, about, known))
    late = table.with_columns(
        logged_at=pl.when(pl.col("step") >= 42)
        .then(pl.col("logged_at") + pl.duration(seconds=20))
        .otherwise("logged_at")
    )
    (found,) = rates(late, about, known)["time_lost"]
    assert (found["cause"], found["windows"]) == ("unexplained", 1)


@settings(max_examples=12)
@given(
    st.floats(0.1, 1000.0),
    st.integers(1, 20),
    st.floats(0.0, 500.0),
    st.floats(5.0, 500.0),
)
def test_what_is_lost_and_what_is_steady_are_the_wall_time(
    pace: float, stalled: int, start: float, stall: float
) -> None:
    """31 windows at the same pace, a start and a stall: nothing else is lost, in any unit."""
    seconds = [10 * pace] * 31
    seconds[0] += start * pace
    seconds[5 + stalled] += stall * pace
    row = by_time(*seconds)
    lost = sum(x["seconds"] for x in row["time_lost"])
    assert lost == pytest.approx((start + stall) * pace, rel=1e-6, abs=1e-6)
    assert row["wall_s"] - lost == pytest.approx(310 * pace, rel=1e-6)
