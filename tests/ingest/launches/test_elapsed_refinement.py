"""Whole seconds since the start, refined by a mean that is printed beside them, where it agrees."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.formats.spec import FinerClock
from fairmfu.ingest.launches.elapsed_refinement import is_finer, refine_elapsed
from tests.support.one_log import tables_of

BY_STEPS = FinerClock(
    clock="elapsed", steps_per_s="speed(it/s)", s_per_step="speed(s/it)", early=0.5, late=1.0
)
BY_TOKENS = FinerClock(clock="elapsed", tokens_per_s="throughput", early=0, late=1)
SCHEMA = {
    "step": pl.Int64(),
    "consumed_tokens": pl.Float64(),
    "since_start_s": pl.Float64(),
    "extra": pl.String(),
}


def refined(clock: FinerClock, printed_s: float | None, says: dict[str, str], **row: Any) -> Any:
    """The seconds of a row; says: what it prints beside its columns."""
    extra = {"elapsed": "1m"} | says
    each = {"since_start_s": printed_s, "extra": json.dumps(extra), **row}
    frame = pl.DataFrame([each], schema=SCHEMA)
    return refine_elapsed(clock, frame)["since_start_s"][0]


@pytest.mark.parametrize(
    ("per_step", "seconds"),
    [
        ("6.05", 60.5),  # 10 steps
        ("5.95", 59.5),  # half a second early: the printed seconds were rounded
        ("6.1", 61.0),  # a second late: they were cut
        ("5.94", 60.0),  # of another clock
        ("6.11", 60.0),
        ("much", 60.0),
    ],
)
def test_seconds_of_a_step_times_steps_are_the_time(per_step: str, seconds: float) -> None:
    assert refined(BY_STEPS, 60.0, {"speed(s/it)": per_step}, step=10) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("rate", "seconds"), [("10.0", 60.0), ("9.9", 600 / 9.9), ("10.05", 600 / 10.05), ("9.8", 60.0)]
)
def test_steps_over_steps_a_second_are_the_time(rate: str, seconds: float) -> None:
    """600 steps at 9.9 a second: 60.6 s; at 9.8 it is 61.2 s, which is not 60 s."""
    assert refined(BY_STEPS, 60.0, {"speed(it/s)": rate}, step=600) == pytest.approx(seconds)


def test_the_rate_wins_where_both_are_printed() -> None:
    both = {"speed(it/s)": "0.165", "speed(s/it)": "6.05"}
    assert refined(BY_STEPS, 60.0, both, step=10) == pytest.approx(10 / 0.165)


@pytest.mark.parametrize(
    ("printed_s", "seconds"),
    [
        (60.0, 60.5),  # ceil(59.5 / 12.1) = 5 steps of its own
        (61.0, 60.5),  # rounded up
        (48.0, 48.4),  # 4 steps
        (50.0, 50.0),  # between 4 and 5 steps: of another clock
    ],
)
def test_a_resumed_process_counts_its_own_steps(printed_s: float, seconds: float) -> None:
    """Step 1000 of a process that was resumed: 12.1 s a step would be over three hours."""
    found = refined(BY_STEPS, printed_s, {"speed(s/it)": "12.1"}, step=1000)
    assert found == pytest.approx(seconds)


@pytest.mark.parametrize("per_step", ["1.49", "1.5"])
def test_steps_that_are_as_short_as_the_doubt_tell_no_own_count(per_step: str) -> None:
    """Up to 1.5 s a step, some whole number of steps always fits."""
    for printed_s in (60.0, 61.0, 62.0):
        assert refined(BY_STEPS, printed_s, {"speed(s/it)": per_step}, step=1000) == printed_s


def test_steps_longer_than_the_doubt_tell_it() -> None:
    """ceil(59.5 / 1.51) = 40 steps."""
    found = refined(BY_STEPS, 60.0, {"speed(s/it)": "1.51"}, step=1000)
    assert found == pytest.approx(60.4)


@pytest.mark.parametrize(
    ("rate", "seconds"),
    [("1000", 60.0), ("990", 60000 / 990), ("1010", 60.0), ("983", 60.0), ("984", 60000 / 984)],
)
def test_tokens_over_tokens_a_second_are_the_time(rate: str, seconds: float) -> None:
    """60,000 tokens: never before the printed seconds, which are cut, and a second behind."""
    found = refined(BY_TOKENS, 60.0, {"throughput": rate}, consumed_tokens=60_000.0, step=7)
    assert found == pytest.approx(seconds)


def test_seconds_stay_where_something_is_missing() -> None:
    assert refined(BY_STEPS, 60.0, {}, step=10) == 60.0
    assert refined(BY_STEPS, None, {"speed(s/it)": "6.05"}, step=10) is None
    assert refined(BY_TOKENS, 60.0, {"throughput": "990"}, step=10) == 60.0


def test_seconds_stay_where_the_clock_is_not_printed() -> None:
    """Then they are of something else."""
    frame = pl.DataFrame(
        [{"step": 10, "since_start_s": 60.0, "extra": '{"speed(s/it)": "6.05"}'}], schema=SCHEMA
    )
    assert refine_elapsed(BY_STEPS, frame)["since_start_s"].to_list() == [60.0]


@pytest.mark.parametrize("missing", ["step", "since_start_s", "extra"])
def test_rows_may_lack_columns(missing: str) -> None:
    row = {"step": 10, "since_start_s": 60.0, "extra": '{"elapsed": "1m", "speed(s/it)": "6.05"}'}
    frame = pl.DataFrame([row]).drop(missing)
    assert refine_elapsed(BY_STEPS, frame).equals(frame)
    assert refine_elapsed(BY_TOKENS, pl.DataFrame([row])).equals(pl.DataFrame([row]))


@given(
    step=st.integers(1, 10_000),
    of_process=st.integers(1, 10_000),
    eighths=st.integers(13, 8000),
    printed=st.sampled_from([int, round]),
)
def test_a_step_longer_than_the_doubt_always_tells_the_time(
    step: int, of_process: int, eighths: int, printed: Callable[[float], int]
) -> None:
    """Of 1.5 s to 1,000 s, whichever step the process began with; the seconds cut or rounded."""
    each = eighths / 8
    found = refined(
        BY_STEPS, float(printed(of_process * each)), {"speed(s/it)": repr(each)}, step=step
    )
    assert found == of_process * each


def lines_of(speeds: Iterable[tuple[int, str]], key: str = "speed(s/it)") -> pl.DataFrame:
    """Return rows with these steps and printed means, and the whole seconds that follow."""
    rows = [
        {
            "step": step,
            "since_start_s": float(int(step * float(speed))),
            "extra": json.dumps({"elapsed": "1m", key: speed}),
        }
        for step, speed in speeds
    ]
    return pl.DataFrame(rows, schema=SCHEMA)


@pytest.mark.parametrize(
    ("last", "speed", "is_fine"),
    [
        (300, "1.877", True),  # 0.15 s
        (1_100, "1.877", False),  # 0.55 s of 1.9 s a step
        (1_100, "1.877001", True),
        (90_000, "9.999999", True),
    ],
)
def test_a_mean_needs_digits_for_its_step(last: int, speed: str, *, is_fine: bool) -> None:
    """The error of its last digit grows with the step, and a step stays as long."""
    rows = lines_of((step, speed) for step in range(10, last + 1, 1 if last < 2_000 else 10))
    assert is_finer(BY_STEPS, [rows]) == is_fine
    assert is_finer(BY_STEPS, [rows[:50], rows[:0], rows[50:]]) == is_fine


def test_a_mean_of_few_digits_is_fine_for_long_windows() -> None:
    """0.4 s of 800 s between two lines."""
    rows = lines_of((step, "10.01") for step in (80,))
    assert is_finer(BY_STEPS, [rows])
    assert not is_finer(BY_STEPS, [rows.with_columns(extra=pl.lit('{"elapsed": "1m"}'))])
    assert not is_finer(BY_STEPS, [])


def test_a_number_that_is_round_by_chance_has_the_digits_of_the_others() -> None:
    speeds = ["1.877013", "1.8771", "1.877", "1.877026"]
    assert is_finer(BY_STEPS, [lines_of(zip(range(2_000, 2_004), speeds, strict=True))])
    assert not is_finer(BY_STEPS, [lines_of((step, "1.877") for step in range(2_000, 2_004))])


@pytest.mark.parametrize(("digits", "whole"), [(4, True), (7, False)])
def test_no_clock_goes_back(tmp_path: Path, digits: int, *, whole: bool) -> None:
    """Steps of 1.9 s, with the mean in four digits as of Transformers 5, and in seven."""
    lines = [
        f"{{'loss': '1.5', 'learning_rate': '1e-05', 'global_step/max_steps': '{step}/1500', "
        f"'elapsed_time': '{int(1.9 * step + 3) // 60}m {int(1.9 * step + 3) % 60}s', "
        f"'train_speed(s/it)': '{(1.9 * step + 3) / step:.{digits}g}'}}"
        for step in range(1, 1_501)
    ]
    log = tmp_path / "run.log"
    log.write_text("\n".join(["***** Running training *****", *lines, ""]))
    clock = tables_of(log)["steps"]["since_start_s"]
    assert (clock == clock.round()).all() == whole
    assert clock.diff().min() >= (1.0 if whole else 1.89)
    assert clock[-1] == pytest.approx(2_853, abs=0.01)
