"""The clock of a launch and its end-to-end rate: each basis, and what keeps one from counting."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.metrics.core.run_arrays import RunArrays
from fairmfu.metrics.throughput.end_to_end import (
    has_wrong_token_count,
    launch_clocks,
    line_interval,
    min_stamp_span,
    rate_of_last_line,
    tokens_trained,
)
from fairmfu.metrics.throughput.windows import build_windows
from tests.metrics.throughput.test_throughput import at, facts, frame, rates, run, steps

FACTS = facts(gpus=1, global_batch_size=1, seq_len=100, log_interval=10)
"""100 tokens a step on the one GPU, a line each ten steps."""
FINE = 0.25
"""Stamps with fractions of a second."""


def lines(first: int, last: int, every: float = 10.0, **columns: Any) -> pl.DataFrame:
    """A line each ten steps, stamped; `every` seconds apart, the first at that of its step."""
    return steps(
        *(
            {"line": 10 * n, "step": 10 * n, "logged_at": at(FINE + every * n)} | columns
            for n in range(first, last + 1)
        )
    )


def clock(table: pl.DataFrame, *events: dict, given: pl.DataFrame = FACTS, **about: Any) -> dict:
    of = run(**{"evidence": ["stamp"]} | about)
    happened = frame("events", *({"run_id": "r"} | event for event in events))
    spans = build_windows(table, of, given, happened)
    return launch_clocks(of, spans, given, happened).row(0, named=True)


def ended(table: pl.DataFrame, *events: dict, **about: Any) -> tuple[str | None, float | None]:
    """The basis of the end-to-end rate, and the seconds that it has 100 tokens of a step over."""
    row = rates(table, run(**{"evidence": ["stamp"]} | about), FACTS, *events)
    return row["end_to_end_basis"], row["tgs_end_to_end"]


START = {"line": 1, "kind": "train_start", "logged_at": at(FINE - 20)}
END = {"line": 9999, "kind": "end"}


# --- the basis ---------------------------------------------------------------------------------


def test_from_the_start_of_training_to_the_last_stamped_line() -> None:
    """20 s of start-up before 200 steps of 1 s."""
    assert ended(lines(1, 20), START) == ("stamp from start", pytest.approx(20_000 / 220))


def test_a_run_time_before_the_end_is_a_start() -> None:
    """The end's stamp less the run time that it prints: 230 - 240 = -10."""
    end = END | {"logged_at": at(FINE + 230), "seconds": 240.0}
    assert ended(lines(1, 20), end) == ("stamp from start", pytest.approx(20_000 / 210))
    late = end | {"seconds": 40.0}  # it began behind the first line: of a part of the steps
    assert ended(lines(1, 20), late)[0] != "stamp from start"


def test_the_first_lines_own_time_and_stamps_behind_it() -> None:
    table = lines(1, 20, elapsed_s=1.5)
    about = {"elapsed_covers": "interval"}
    assert ended(table, **about) == ("stamp and first line", pytest.approx(20_000 / (190 + 15)))
    # Of a line that times a single step of its ten it is not known.
    assert ended(table, elapsed_covers="step") == ("stamp", pytest.approx(100))


@pytest.mark.parametrize(
    ("printed", "covers"),
    [({"elapsed_s": 2.0}, "elapsed_covers"), ({"logged_tgs": 50.0}, "rate_covers")],
)
def test_a_first_line_is_a_mean_since_the_start_where_no_interval_is_said(
    printed: dict, covers: str
) -> None:
    """100 tokens of each of ten steps at 50 a second, or 2 s each: 20 s."""
    known = facts(gpus=1, global_batch_size=1, seq_len=100)
    about = {covers: "interval"}
    row = rates(lines(1, 20, **printed), run(evidence=["stamp"], **about), known)
    found = row["end_to_end_basis"], row["tgs_end_to_end"]
    assert found == ("stamp and first line", pytest.approx(20_000 / (190 + 20)))
    other = {covers: "step"}
    row = rates(lines(1, 20, **printed), run(evidence=["stamp"], **other), known)
    assert row["end_to_end_basis"] == "stamp"


def test_the_first_lines_rate_is_over_its_own_tokens() -> None:
    """100 tokens of each of its steps at 50 a second, and more in later lines."""
    table = lines(1, 20, logged_tgs=50.0).with_columns(
        consumed_tokens=pl.Series([1000.0, *(1000.0 + 3000.0 * n for n in range(1, 20))])
    )
    about = run(evidence=["stamp"], rate_covers="interval")
    row = rates(table, about, facts(gpus=1, global_batch_size=1, seq_len=100))
    assert row["end_to_end_basis"] == "stamp and first line"
    assert row["tgs_end_to_end"] == pytest.approx((1000 + 19 * 3000) / (190 + 20))


def test_a_first_line_of_less_than_a_second_counts() -> None:
    table = lines(1, 20, elapsed_s=0.05)
    found = ended(table, elapsed_covers="interval")
    assert found == ("stamp and first line", pytest.approx(20_000 / 190.5))


def test_a_single_line_has_no_end_to_end_rate_by_stamps() -> None:
    assert ended(lines(1, 1), START) == (None, None)


def counting(first: float, *, gpus: int = 1, before: float = 0.0) -> pl.DataFrame:
    """Lines with a counter of tokens: `first` of the first ten steps, then 1000 of each ten."""
    table = lines(1, 20).with_columns(
        consumed_tokens=pl.Series([gpus * (before + first + 1000.0 * n) for n in range(20)])
    )
    return table.with_columns(logged_at=pl.lit(None, pl.Datetime), elapsed_s=pl.lit(1.0))


@pytest.mark.parametrize("gpus", [1, 4])
def test_a_counter_tells_the_tokens_of_the_first_line(gpus: int) -> None:
    about = run(evidence=["elapsed"], elapsed_covers="interval")
    end = END | {"seconds": 250.0}
    row = rates(counting(1500.0, gpus=gpus), about, facts(gpus=gpus, log_interval=10), end)
    assert row["end_to_end_basis"] == "runtime"
    assert row["tgs_end_to_end"] == pytest.approx((1500 + 19 * 1000) / 250)


def test_a_counter_far_ahead_at_the_first_line_is_of_an_earlier_launch() -> None:
    assert clock(counting(1000.0))["trained_from"] == 0
    assert clock(counting(1000.0, before=50_000.0))["trained_from"] is None
    # By half as much again as it has grown by; what is 0 is no value of it.
    assert clock(counting(1000.0, before=490.0))["trained_from"] == 0
    assert clock(counting(1000.0, before=510.0))["trained_from"] is None
    late = counting(1000.0, before=50_000.0).with_columns(
        consumed_tokens=pl.when(pl.col("step") > 10).then("consumed_tokens").otherwise(0.0)
    )
    assert clock(late)["trained_from"] is None


def test_a_run_time_is_of_all_steps() -> None:
    table = lines(1, 20).with_columns(logged_at=pl.lit(None, pl.Datetime), elapsed_s=pl.lit(1.0))
    about = {"evidence": ["elapsed"], "elapsed_covers": "interval"}
    end = END | {"seconds": 250.0}
    assert ended(table, end, **about) == ("runtime", pytest.approx(20_000 / 250))
    assert ended(table, **about) == ("elapsed from start", pytest.approx(100))
    later = table.with_columns(step=pl.col("step") + 500)
    assert ended(later, end, **about) == ("elapsed", pytest.approx(100))


def test_an_excerpt_is_of_the_steps_behind_its_first_line() -> None:
    assert ended(lines(31, 50)) == ("stamp", pytest.approx(100))
    assert ended(lines(31, 50), START) == ("stamp", pytest.approx(100))  # from an unknown step


@pytest.mark.parametrize(
    ("every", "basis"), [(2.0, "elapsed from start"), (3.0, "stamp and first line")]
)
def test_whole_seconds_count_from_fifty_of_them_on(every: float, basis: str) -> None:
    """19 stretches of 2 s are 38 s, by stamps that may be off by one: 2.6 %."""
    whole = lines(1, 20, every=every, elapsed_s=every / 10).with_columns(
        logged_at=pl.col("logged_at").dt.truncate("1s")
    )
    about = {"evidence": ["elapsed"], "elapsed_covers": "interval"}
    assert ended(whole, **about)[0] == basis
    fine = lines(1, 20, every=every, elapsed_s=every / 10)
    assert ended(fine, **about)[0] == "stamp and first line"


@pytest.mark.parametrize(("silent", "basis"), [(0, True), (1, True), (2, False)])
def test_a_clock_that_leaves_out_a_twentieth_is_of_all(silent: int, *, basis: bool) -> None:
    """Of 200 steps the last 10 without a clock, or the last 20."""
    table = steps(
        *(
            {"step": 10 * n, "since_start_s": 20.0 + 10 * n if n <= 20 - silent else None}
            for n in range(1, 21)
        )
    )
    found, rate = ended(table, evidence=["clock"])
    assert (found == "clock from start") == basis
    if basis:
        timed = 200 - 10 * silent
        assert rate == pytest.approx(100 * timed / (20 + timed))


def test_rates_of_wrong_tokens_are_held_against_nothing() -> None:
    """The printed rate is four times what the stamps make of the tokens that were given."""
    table = lines(1, 20, logged_tgs=400.0)
    about = {"evidence": ["rate"], "rate_covers": "interval"}
    basis, rate = ended(table, START, **about)
    assert (basis, rate) == ("rate from start", pytest.approx(400.0))
    right = lines(1, 20, logged_tgs=100.0)
    assert ended(right, START, **about)[0] == "stamp from start"


@pytest.mark.parametrize("rate", [200.0, 50.0])
@pytest.mark.parametrize(("wrong", "told"), [(9, False), (10, True)])
def test_most_stamps_have_to_contradict_the_rate(rate: float, wrong: int, *, told: bool) -> None:
    """19 windows behind the first line, of which so many say twice as much, or half."""
    table = lines(1, 20).with_columns(
        logged_tgs=pl.when(pl.col("step") > 200 - 10 * wrong).then(rate).otherwise(100.0)
    )
    about = run(evidence=["rate"], rate_covers="interval")
    windows = RunArrays(build_windows(table, about, FACTS, frame("events")))
    assert has_wrong_token_count(windows, "rate") == told
    assert not has_wrong_token_count(windows, "stamp")
    assert not has_wrong_token_count(windows, None)


def test_a_last_line_gives_a_rate_only_with_all_that_it_needs() -> None:
    known = {"gpus": 4, "sample_length": 1024}
    printed = {"end_samples_per_second": 8.0}
    found = rate_of_last_line(printed, known)
    assert found == {"tgs_end_to_end": 2048.0, "end_to_end_basis": "printed samples/s"}
    for name in known:
        assert rate_of_last_line(printed, known | {name: None}) == {}
    assert rate_of_last_line({"end_samples_per_second": None}, known) == {}


# --- the clock ---------------------------------------------------------------------------------


def test_a_clock_has_each_moment_and_what_lies_between() -> None:
    events = (
        {"line": 2, "kind": "load", "logged_at": at(FINE - 30)},
        START,
        END | {"logged_at": at(FINE + 207), "seconds": 225.0},
    )
    row = clock(lines(1, 20), *events, started_at=at(FINE - 60))
    assert row["launched_at"] == at(FINE - 60)
    assert row["trained_at"] == at(FINE - 20)
    assert row["first_step_at"] == at(FINE + 10)
    assert row["last_step_at"] == at(FINE + 200)
    assert row["ended_at"] == at(FINE + 207)
    assert (row["trained_from"], row["trained_to"]) == (0, 200)
    assert (row["wall_s"], row["after_s"], row["runtime_s"]) == (267.0, 7.0, 225.0)
    assert row["step_s"] == pytest.approx(1.0)
    assert row["startup_s"] == pytest.approx(60.0)  # 70 s up to step 10, of 1 s each
    assert clock(lines(1, 20, every=0.5))["step_s"] == pytest.approx(0.05)
    slow = clock(lines(1, 20, every=20.0), START)
    assert slow["startup_s"] == pytest.approx(20.0)  # 40 s up to step 10, of 2 s each


def test_stamps_of_ranks_may_cross_by_two_seconds() -> None:
    table = lines(1, 20)
    crossed = [
        table.with_columns(
            logged_at=pl.when(pl.col("step") == 100)
            .then(pl.col("logged_at") - pl.duration(seconds=seconds))
            .otherwise("logged_at")
        )
        for seconds in (12, 13)  # ten seconds behind the line before, less two or three
    ]
    assert [clock(one)["launched_at"] is not None for one in crossed] == [True, False]
    header = START | {"logged_at": at(FINE + 12)}
    assert clock(table, header)["trained_at"] == at(FINE + 10)
    assert clock(table, header | {"logged_at": at(FINE + 12.5)})["launched_at"] is None


def test_a_start_on_the_first_steps_own_line_is_not_before_it() -> None:
    opening = START | {"line": 10, "logged_at": at(FINE + 10)}
    assert clock(lines(1, 20), opening)["trained_at"] is None
    assert clock(lines(1, 20), opening | {"line": 9})["trained_at"] == at(FINE + 10)
    behind = END | {"line": 200, "logged_at": at(FINE + 230), "seconds": 240.0}
    assert clock(lines(1, 20), behind)["trained_at"] is None
    assert clock(lines(1, 20), behind | {"line": 201})["trained_at"] == at(FINE - 10)


def test_lines_around_steps_without_stamps_tell_the_run_time() -> None:
    bare = lines(1, 20).with_columns(logged_at=pl.lit(None, pl.Datetime))
    end = END | {"logged_at": at(FINE + 230)}
    row = clock(bare, START, end)
    assert (row["launched_at"], row["ended_at"]) == (at(FINE - 20), at(FINE + 230))
    assert (row["runtime_s"], row["wall_s"]) == (250.0, 250.0)
    assert clock(bare, START)["runtime_s"] is None
    assert clock(bare, START)["launched_at"] == at(FINE - 20)
    # A shutdown is no end of training.
    other = END | {"kind": "checkpoint", "logged_at": at(FINE + 230)}
    row = clock(bare, START, other)
    assert (row["runtime_s"], row["wall_s"]) == (None, 250.0)
    # An end before the start is of another clock.
    assert clock(bare, START, END | {"logged_at": at(FINE - 21)})["ended_at"] is None


@pytest.mark.parametrize(("seconds", "known"), [(49, None), (50, 50.0)])
def test_a_run_time_between_whole_seconds_needs_fifty(seconds: int, known: float | None) -> None:
    bare = lines(1, 20).with_columns(logged_at=pl.lit(None, pl.Datetime))
    row = clock(bare, START | {"logged_at": at(0)}, END | {"logged_at": at(seconds)})
    assert row["runtime_s"] == known


def test_stamps_are_as_exact_as_the_finer_of_two() -> None:
    whole, fine = datetime(2026, 1, 1), datetime(2026, 1, 1, 0, 0, 0, 1)
    assert min_stamp_span(whole, whole) == 50.0
    assert min_stamp_span(whole, None) == min_stamp_span(None, whole) == 50.0
    assert min_stamp_span(whole, fine) == min_stamp_span(fine, whole) == 0.0
    assert min_stamp_span(None, None) == 0.0


@pytest.mark.parametrize(
    ("first", "events", "start"),
    [
        (1, [], 0),
        (2, [], None),  # the line of step 10 is lost, or a checkpoint was loaded
        (2, [{"line": 1, "kind": "train_start", "step": 11}], 10),
        (2, [{"line": 1, "kind": "train_start", "step": 21}], None),  # behind the first line
        (2, [{"line": 1, "kind": "train_start", "step": 20}], 19),
        (2, [{"line": 1, "kind": "load", "step": 10}], 10),
        (2, [{"line": 1, "kind": "load", "step": 9}], None),  # more than an interval before
        (2, [{"line": 1, "kind": "load", "step": 20}], None),
        (1, [{"line": 1, "kind": "load", "step": 4}], 4),
        (1, [{"line": 1, "kind": "load", "step": 0}], 0),
        (50, [{"line": 1, "kind": "load", "step": 497}], 497),
    ],
)
def test_training_went_on_from_the_step_that_the_log_tells(
    first: int, events: list[dict], start: int | None
) -> None:
    assert clock(lines(first, first + 9), *events)["trained_from"] == start


@pytest.mark.parametrize(
    ("since", "start"), [(1.0, 500), (1.01, 500), (1.02, None), (0.0, None), (0.5, 500)]
)
def test_a_clock_that_is_the_first_lines_own_time_began_before_its_steps(
    since: float, start: int | None
) -> None:
    """The line of step 501 times that step alone: 1 s."""
    rows = ({"step": 500 + n, "since_start_s": since + n - 1, "elapsed_s": 1.0} for n in (1, 2, 3))
    about = {"evidence": ["clock"], "elapsed_covers": "step"}
    assert clock(steps(*rows), **about)["trained_from"] == start


@pytest.mark.parametrize(
    ("events", "about", "end"),
    [
        ([], {}, 100),
        ([{"line": 9998, "kind": "checkpoint", "step": 109}], {}, 109),
        ([{"line": 9998, "kind": "checkpoint", "step": 110}], {}, 100),  # of another run
        ([END | {"step": 150}], {}, 150),
        ([END | {"step": 90}], {}, 100),
        ([], {"outcome": "completed"}, 104),
        ([], {"outcome": "crashed"}, 100),
    ],
)
def test_training_went_on_to_the_step_that_the_log_tells(
    events: list[dict], about: dict[str, Any], end: int
) -> None:
    planned = facts(gpus=1, global_batch_size=1, seq_len=100, log_interval=10, total_steps=104)
    assert clock(lines(1, 10), *events, given=planned, **about)["trained_to"] == end


def test_a_completed_launch_that_lacks_lines_without_stamps_counts_them_wrongly() -> None:
    bare = lines(1, 10).with_columns(logged_at=pl.lit(None, pl.Datetime))
    for total, end in ((109, 109), (110, None)):
        planned = FACTS.with_columns(total_steps=pl.lit(total, pl.Int64))
        found = clock(bare, given=planned, outcome="completed")
        assert found["trained_to"] == end, total
        assert clock(lines(1, 10), given=planned, outcome="completed")["trained_to"] in (100, 109)


@pytest.mark.parametrize(
    ("said", "own"),
    [
        ({}, True),
        ({"train_steps_per_second": 1.0}, True),  # 200 steps in 200 s
        ({"train_steps_per_second": 0.955}, True),  # 191: what rounding leaves
        ({"train_steps_per_second": 0.5}, False),  # the last 100 alone
        ({"train_loss": 2.0}, True),
        ({"train_loss": 1.0}, False),  # half of what the lines sum to
        ({"train_loss": 1.95}, True),
        ({"train_loss": "true", "train_steps_per_second": "-"}, True),  # a damaged print
    ],
)
def test_a_run_time_of_fewer_steps_than_the_lines_is_not_theirs(said: dict, *, own: bool) -> None:
    extra = "{" + ", ".join(f'"{name}": "{value}"' for name, value in said.items()) + "}"
    end = END | {"seconds": 200.0, "step": 200, "extra": extra}
    row = clock(lines(1, 20, loss=2.0), end)
    assert (row["runtime_s"] is not None) == own


@pytest.mark.parametrize(("loss", "own"), [(0.02, False), (0.008, True)])
def test_a_mean_loss_that_rounds_to_little_tells_nothing(loss: float, *, own: bool) -> None:
    """It has four decimals."""
    end = END | {"seconds": 200.0, "step": 200, "extra": f'{{"train_loss": "{loss / 2}"}}'}
    assert (clock(lines(1, 20, loss=loss), end)["runtime_s"] is not None) == own


def test_an_interval_is_what_the_log_says_or_its_lines_show() -> None:
    def of(table: pl.DataFrame, given: pl.DataFrame) -> int:
        windows = build_windows(table, run(evidence=["stamp"]), given, frame("events"))
        return line_interval(RunArrays(windows))

    unsaid = facts(gpus=1, global_batch_size=1, seq_len=100)
    assert of(lines(1, 9), unsaid) == 10
    assert of(lines(1, 9), unsaid.with_columns(log_interval=pl.lit(5, pl.Int64))) == 5
    assert of(lines(1, 1), unsaid) == 1


@settings(max_examples=20)
@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(0, 400), st.integers(0, 400)
)
def test_each_step_has_the_tokens_that_its_line_says(
    gaps: list[int], start: int, length: int
) -> None:
    """Whatever the borders; steps behind the last line have those of that line."""
    ends = np.cumsum(gaps).tolist()
    table = pl.DataFrame({"step": ends, "tokens_per_gpu": [10.0 + n for n in ends]}).with_columns(
        pl.lit(None, pl.Float64).alias(name)
        for name in ("gpus", "consumed_tokens", "consumed_non_padding", "non_padding_count")
    )
    found = tokens_trained(RunArrays(table), start, start + length)
    lasts = (
        next((n for n in ends if n >= step), ends[-1])
        for step in range(start + 1, start + length + 1)
    )
    assert found is not None
    assert found.count == sum(10.0 + n for n in lasts)
