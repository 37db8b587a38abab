"""Where another run begins by its pace: its time gap and its speed tell it, neither alone does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.launches.launch import Launch
from fairmfu.ingest.launches.pace_breaks import pace_breaks
from tests.support.launches_by_hand import launch_of

MIDNIGHT = datetime(2026, 1, 2)
STEPS_A_LINE = 10
GAP_S = 10_000.0


def rows(
    *parts: tuple[int, float], gaps: Sequence[float] = (), own: str = "elapsed_s"
) -> Iterator[dict[str, Any]]:
    """Lines of several runs, one behind the other; steps and lines count on.

    parts: of each how many lines, and the seconds of a step; gaps: seconds from the last line of
    one to the first of the next; own: how a line tells its own speed, "" where it does not
    """
    at, line = 0.0, 0
    for place, (count, pace) in enumerate(parts):
        for number in range(count):
            first = number == 0 and place > 0
            at += (gaps[place - 1] if gaps else GAP_S) if first else pace * STEPS_A_LINE
            line += 1
            says = {"elapsed_s": pace * STEPS_A_LINE, "logged_tgs": 1000 / pace, "": None}[own]
            yield {
                "line": 2 * line,
                "step": STEPS_A_LINE * line,
                "since_start_s": at,
                **({own: says} if own else {}),
            }


def breaks(*parts: tuple[int, float], **how: Any) -> list[int]:
    return pace_breaks(launch_of(rows(*parts, **how)))


@pytest.mark.parametrize("own", ["elapsed_s", "logged_tgs", ""])
@pytest.mark.parametrize("pace", [0.5, 2.0])
def test_a_gap_with_another_speed_behind_it_is_another_run(own: str, pace: float) -> None:
    """Whether the second run is faster or slower; the line is that of its first step."""
    assert breaks((8, 1.0), (8, pace), own=own) == [18]


@pytest.mark.parametrize("own", ["elapsed_s", "logged_tgs", ""])
def test_an_evaluation_is_no_other_run(own: str) -> None:
    """A gap alone: before and behind it a step takes as long."""
    assert breaks((8, 1.0), (8, 1.0), own=own) == []


def test_a_run_that_slows_down_is_one_run() -> None:
    """Another speed alone: the time between the lines is that of their steps."""
    assert breaks((8, 1.0), (8, 2.0), gaps=[20.0]) == []


@pytest.mark.parametrize(("gap", "found"), [(90.0, []), (90.000001, [18])])
@pytest.mark.parametrize("clock", ["since_start_s", "logged_at"])
def test_the_gap_is_three_times_that_of_its_steps_and_thirty_seconds_longer(
    gap: float, found: list[int], clock: str
) -> None:
    """Ten steps of the slower side, 2 s each: 3 x 20 s + 30 s; a stamp has microseconds."""
    for parts in (((8, 1.0), (8, 2.0)), ((8, 2.0), (8, 1.0))):
        lines = list(rows(*parts, gaps=[gap]))
        for row in lines if clock == "logged_at" else ():
            row["logged_at"] = MIDNIGHT + timedelta(seconds=row.pop("since_start_s"))
        assert pace_breaks(launch_of(lines)) == found


@pytest.mark.parametrize("own", ["elapsed_s", "logged_tgs"])
@pytest.mark.parametrize("unit", [1, 2000])
def test_what_lines_say_of_their_speed_wins_over_the_time_between_them(own: str, unit: int) -> None:
    """The second part waits for data: the run is as fast as before; a rate may be below 1."""
    says = {"elapsed_s": 10.0, "logged_tgs": 1000 / unit}[own]
    lines = [row | {own: says} for row in rows((8, 1.0), (8, 2.0), own="")]
    assert pace_breaks(launch_of(lines)) == []
    slower = [row | {own: says * (1 + (row["step"] > 80))} for row in lines]
    assert pace_breaks(launch_of(slower)) == [18]


def test_lines_of_every_step_tell_it_too() -> None:
    lines = [row | {"step": row["step"] // STEPS_A_LINE} for row in rows((8, 1.0), (8, 2.0))]
    assert pace_breaks(launch_of(lines)) == [18]


def test_a_pace_is_that_of_a_step_however_many_a_line_has() -> None:
    """Ten and twenty steps by turns, always of one second, but for a gap: no other speed."""
    step = at = 0
    lines = []
    for number in range(1, 17):
        step += 20 if number % 2 else 10
        at += 10_000 if number == 9 else (20 if number % 2 else 10)
        lines.append({"line": number, "step": step, "since_start_s": float(at)})
    assert pace_breaks(launch_of(lines)) == []
    later = [
        row | {"since_start_s": row["since_start_s"] + row["step"] * (row["line"] > 8)}
        for row in lines
    ]
    assert pace_breaks(launch_of(later)) == [9]


def test_many_steps_between_two_lines_take_their_time() -> None:
    """Steps 80 and 1080, 1,000 s apart: that is the pace, whatever comes behind."""
    later = [
        row | {"step": row["step"] + 990 * (row["step"] > 80)}
        for row in rows((8, 1.0), (8, 2.0), gaps=[1000.0])
    ]
    assert pace_breaks(launch_of(later)) == []


@pytest.mark.parametrize(
    ("change", "found"), [(1.04, []), (1.06, [18]), (1 / 1.04, []), (1 / 1.06, [18])]
)
def test_speeds_differ_by_five_percent_at_least(change: float, found: list[int]) -> None:
    assert breaks((8, 1.0), (8, change)) == found


def test_five_percent_themselves_are_no_other_speed() -> None:
    """10 s and 10.5 s."""
    assert breaks((8, 1.0), (8, 1.05)) == breaks((8, 1.05), (8, 1.0)) == []


@pytest.mark.parametrize(
    ("before", "behind", "found"), [(3, 4, [8]), (2, 5, []), (2, 9, []), (3, 3, []), (9, 3, [])]
)
def test_three_lines_on_either_side_tell_the_speed(
    before: int, behind: int, found: list[int]
) -> None:
    """The first line behind a gap may warm up, so four are needed there."""
    assert breaks((before, 1.0), (behind, 2.0)) == found


def test_the_line_that_warms_up_does_not_count() -> None:
    """The first of the second run says 1 s, as those before the gap do."""
    lines = list(rows((8, 1.0), (8, 2.0)))
    lines[8] |= {"elapsed_s": 10.0}
    assert pace_breaks(launch_of(lines)) == [18]


@pytest.mark.parametrize(
    ("place", "own", "found"),
    [
        (11, 20.0, []),
        (10, 20.0, [40]),
        (18, 20.0, []),
        (20, 10.0, []),
        (27, 10.0, []),
        (28, 10.0, [40]),
    ],
)
def test_eight_lines_on_either_side_tell_the_speed(
    place: int, own: float, found: list[int]
) -> None:
    """One of them as fast as the other side denies it; the gap is behind the 19th line."""
    lines = list(rows((19, 1.0), (19, 2.0)))
    lines[place]["elapsed_s"] = own
    assert pace_breaks(launch_of(lines)) == found


def test_each_of_three_runs_begins_with_its_own_line() -> None:
    """The third, of 1.5 s, is held against the second, of 2 s, and not against the first, too."""
    assert breaks((8, 1.0), (7, 2.0), (8, 1.5)) == [18, 32]


def test_the_first_of_two_copies_of_a_step_counts() -> None:
    """Of two ranks: line 3 repeats the step of line 2."""
    lines = [
        row | {"line": row["line"] + late} for row in rows((8, 1.0), (8, 2.0)) for late in (0, 1)
    ]
    assert pace_breaks(launch_of(lines)) == [18]


def test_stamps_tell_it_as_clocks_do() -> None:
    """And where a line has no stamp the clocks do; where one lacks both, nothing does."""
    lines = list(rows((8, 1.0), (8, 2.0)))
    stamped = [
        row | {"logged_at": MIDNIGHT + timedelta(seconds=row["since_start_s"])} for row in lines
    ]
    bare = [{**row, "since_start_s": None} for row in stamped]
    assert pace_breaks(launch_of(stamped)) == [18]
    assert pace_breaks(launch_of(bare)) == [18]
    stamped[3]["logged_at"] = None
    assert pace_breaks(launch_of(stamped)) == [18]
    bare[3]["logged_at"] = None
    assert pace_breaks(launch_of(bare)) == []


def test_stamps_win_over_clocks() -> None:
    """A clock of the first line alone: by it there is a gap, by the stamps there is none."""
    lines = [
        row | {"logged_at": MIDNIGHT + timedelta(seconds=10 * at)}
        for at, row in enumerate(rows((8, 1.0), (8, 2.0)))
    ]
    assert pace_breaks(launch_of(lines)) == []


def test_steps_that_go_back_are_left_to_the_start_of_launches() -> None:
    lines = list(rows((8, 1.0), (8, 2.0)))
    lines[0]["step"] = 35
    assert pace_breaks(launch_of(lines)) == []


def test_a_rate_of_nought_tells_no_speed() -> None:
    """Then the time between the lines does, as where no rate is printed."""
    lines = list(rows((8, 1.0), (8, 2.0), own="logged_tgs"))
    lines[2]["logged_tgs"] = 0.0
    assert pace_breaks(launch_of(lines)) == [18]


def test_no_rows_have_no_breaks() -> None:
    assert pace_breaks(Launch(1)) == []


@given(
    pace=st.floats(0.01, 100),
    counts=st.tuples(st.integers(4, 20), st.integers(4, 20)),
    change=st.floats(1.1, 50),
    order=st.sampled_from([1, -1]),
)
def test_runs_of_any_length_are_parted_at_the_same_place(
    pace: float, counts: tuple[int, int], change: float, order: int
) -> None:
    """However fast: a gap far beyond three times the steps' time, a tenth of speed at least."""
    paces = (pace, pace * change)[::order]
    gap = 4 * max(paces) * STEPS_A_LINE + 40
    found = breaks((counts[0], paces[0]), (counts[1], paces[1]), gaps=[gap])
    assert found == [2 * (counts[0] + 1)]
