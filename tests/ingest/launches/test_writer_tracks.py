"""Writers that take turns in one file: told apart by their clocks, joined, or left as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.launches import writer_tracks
from fairmfu.ingest.launches.launch import Launch
from fairmfu.ingest.launches.writer_tracks import MIXED_FACT, find_turns, join_launches
from tests.support.launches_by_hand import launch_of

MIDNIGHT = datetime(2026, 1, 2)

Row = dict[str, Any]


def writer(
    name: str, count: int, pace: float, begins: float, first_step: int = 1, **same: Any
) -> list[Row]:
    """Lines of a writer, one a step; begins: when its first one is printed, s."""
    return [
        {"who": name, "step": first_step + n, "at": begins + pace * n, **same} for n in range(count)
    ]


def merged(*writers: Sequence[Row], clock: str = "since_start_s") -> list[Row]:
    """Lines of all writers as they are printed; clock: the column that tells when, "" of none."""
    lines = sorted((row for each in writers for row in each), key=lambda row: row["at"])
    return [
        {"line": number, **row, **({clock: _moment(row["at"], clock)} if clock else {})}
        for number, row in enumerate(lines, 1)
    ]


def _moment(at: float, clock: str) -> float | datetime:
    return MIDNIGHT + timedelta(seconds=at) if clock == "logged_at" else at


def cut(lines: Iterable[Row]) -> list[Launch]:
    """Launches as steps that go back part them: none has a line that starts it."""
    parts: list[list[Row]] = []
    for row in lines:
        if not parts or row["step"] < parts[-1][-1]["step"]:
            parts.append([])
        parts[-1].append({name: of for name, of in row.items() if name not in ("who", "at")})
    return [launch_of(part) for part in parts]


def tracks(lines: Sequence[Row]) -> list[list[int]] | None:
    """The lines of each writer; none where they can't be told apart, None where all is well."""
    launches = cut(lines)
    turns = list(find_turns(launches))
    if not turns:
        return None
    (found,) = turns
    assert found.launches == slice(0, len(launches))
    return [its.tolist() for its in found.writers]


def truth(lines: Sequence[Row]) -> list[list[int]]:
    names = dict.fromkeys(row["who"] for row in lines)
    return [[row["line"] for row in lines if row["who"] == name] for name in names]


@pytest.mark.parametrize("clock", ["since_start_s", "logged_at"])
@pytest.mark.parametrize("pace", [3.0, 10.0, 35.0])
def test_two_writers_are_told_apart_by_their_clocks(clock: str, pace: float) -> None:
    """Of another pace each, or of the same at other steps."""
    lines = merged(writer("a", 12, 10.0, 10.0, 101), writer("b", 12, pace, 14.0, 1), clock=clock)
    assert tracks(lines) == truth(lines)


def test_three_writers_are_told_apart() -> None:
    lines = merged(
        writer("a", 12, 10.0, 10.0, 501),
        writer("b", 12, 11.0, 14.0, 201),
        writer("c", 9, 13.0, 17.0),
    )
    assert tracks(lines) == truth(lines)


def test_a_writer_that_pauses_keeps_its_lines() -> None:
    """It evaluates for an hour after its sixth step; the other one goes on."""
    late = [
        row | {"at": row["at"] + 3600 * (row["step"] > 6)} for row in writer("b", 12, 10.0, 14.0)
    ]
    lines = merged(writer("a", 400, 10.0, 10.0, 101), late)
    assert tracks(lines) == truth(lines)


@pytest.mark.parametrize(("starts", "found"), [(1, True), (2, False)])
def test_two_launches_are_a_run_and_its_resume(starts: int, found: bool) -> None:  # noqa: FBT001
    """Three without a start, from which writers may take turns; one of them has a start."""
    lines = merged(writer("a", 12, 10.0, 10.0, 101), writer("b", 2, 60.0, 14.0))
    launches = cut(lines)
    assert len(launches) == 3
    launches[starts].first_line -= starts - 1
    assert bool(list(find_turns(launches))) == found


def test_a_line_that_starts_a_launch_ends_the_turns_before_it() -> None:
    """And those behind it are found by themselves."""
    lines = merged(writer("a", 8, 10.0, 10.0, 101), writer("b", 8, 13.0, 14.0))
    again = [{**row, "line": row["line"] + 50} for row in lines]
    first, second = cut(lines), cut(again)
    second[0].first_line -= 1
    found = list(find_turns([*first, *second]))
    assert [turns.launches for turns in found] == [
        slice(0, len(first)),
        slice(len(first), len(first) + len(second)),
    ]
    assert [its.tolist() for its in found[1].writers] == truth(again)


def test_resumes_one_behind_the_other_are_no_turns() -> None:
    """Each launch is one writer: steps go back, and so does the clock."""
    parts = [writer(name, 10, 10.0, 10.0, first) for name, first in (("a", 1), ("b", 5), ("c", 3))]
    lines = [row | {"since_start_s": row["at"]} for part in parts for row in part]
    numbered = [{"line": number, **row} for number, row in enumerate(lines, 1)]
    assert tracks(numbered) is None


def test_a_launch_without_steps_is_no_turn() -> None:
    lines = merged(writer("a", 8, 10.0, 10.0, 101), writer("b", 8, 13.0, 14.0))
    assert list(find_turns([Launch(1), Launch(2), Launch(3)])) == []
    launches = cut(lines)
    (found,) = find_turns([Launch(1), *launches])
    assert [its.tolist() for its in found.writers] == truth(lines)
    assert found.launches == slice(0, len(launches) + 1)


@pytest.mark.parametrize(("shift", "apart"), [(2.0, False), (2.5, True)])
def test_writers_that_wait_for_each_other_are_ranks_of_one_job(
    shift: float,
    apart: bool,  # noqa: FBT001
) -> None:
    """Both print steps 1 to 8 on, the second 45 s later; only for its last one by more."""
    slow = writer("b", 8, 10.0, 55.0)
    slow[-1]["at"] += shift
    lines = merged(writer("a", 12, 10.0, 10.0), slow)
    assert tracks(lines) == (truth(lines) if apart else [])


@pytest.mark.parametrize(("shared", "apart"), [(2, True), (3, False)])
def test_three_shared_steps_tell_that_writers_wait(shared: int, apart: bool) -> None:  # noqa: FBT001
    first = 95 + shared  # of six: the last ones are 101 and so on, as the other one's first
    lines = merged(
        writer("a", 6, 10.0, 10.0, 101), writer("b", 6, 10.0, 14.0, first), clock="logged_at"
    )
    assert tracks(lines) == (truth(lines) if apart else None)


@pytest.mark.parametrize(("count", "apart"), [(4, True), (3, False)])
def test_writers_have_three_lines_each_on_average(count: int, apart: bool) -> None:  # noqa: FBT001
    """Two and `count` of them, over two."""
    lines = merged(writer("a", count, 10.0, 10.0, 101), writer("b", 2, 10.0, 14.0))
    assert tracks(lines) == (truth(lines) if apart else None)


@pytest.mark.parametrize(("count", "apart"), [(2, True), (1, False)])
def test_a_line_alone_shows_no_pace(count: int, apart: bool) -> None:  # noqa: FBT001
    """As a damaged line whose step goes back; MIN_TURNS launches, all others of one writer."""
    lines = merged(writer("a", 12, 10.0, 10.0, 101), writer("b", count, 10.0, 44.0))
    assert tracks(lines) == (truth(lines) if apart else None)


@pytest.mark.parametrize(("odd", "apart"), [(3, True), (4, False)])
def test_seven_of_ten_lines_keep_the_pace_of_their_writer(odd: int, apart: bool) -> None:  # noqa: FBT001
    """Ten gaps of 10 s of the second, but for some of 50 s."""
    at = 14.0
    slow = writer("b", 11, 10.0, 14.0)
    for number, row in enumerate(slow):
        at += (50.0 if number <= odd else 10.0) if number else 0.0
        row["at"] = at
    lines = merged(writer("a", 60, 10.0, 10.0, 101), slow)
    assert tracks(lines) == (truth(lines) if apart else None)


@pytest.mark.parametrize(
    ("loss", "late_s", "found"),
    [
        (3.0, 0.5, [[1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17], [3, 6, 9, 12, 15, 18]]),
        (3.003, 2.0, [[1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17], [3, 6, 9, 12, 15, 18]]),
        (3.005, 0.5, []),  # another loss
        (3.0, 2.5, []),  # too late for a rank of the same job
    ],
)
def test_a_rank_that_repeats_a_step_is_of_its_writer(
    loss: float, late_s: float, found: list[list[int]]
) -> None:
    """Of a loss of 3: within 0.001 x (1 + 3), and two seconds; others are writers in step."""
    first = writer("a", 6, 10.0, 10.0, 101, loss=3.0)
    again = [row | {"at": row["at"] + late_s, "loss": loss} for row in first]
    lines = merged(first, again, writer("b", 6, 10.0, 14.0, loss=4.0), clock="logged_at")
    assert tracks(lines) == (found or None)


@pytest.mark.parametrize(
    ("says", "of_a", "of_b"),
    [("logged_tgs", 0.8, 0.4), ("logged_tgs", 4e3, 2e3), ("peak_memory_bytes", 1e9, 2e9)],
)
def test_what_lines_say_of_themselves_decides_where_steps_fit_both(
    says: str, of_a: float, of_b: float
) -> None:
    """Step 101 is one behind step 100 of the other, and two behind step 99 of its own writer.

    Nothing is known of their paces yet: lines of both come each 10 s, two of each by turns.
    """
    a = [{"who": "a", "step": 100 + 2 * n, "at": 10.0 * n, says: of_a} for n in range(12)]
    b = [
        {"who": "b", "step": 99 + 2 * n, "at": 10.0 * n + (-1) ** n, says: of_b} for n in range(12)
    ]
    lines = merged(a, b, clock="logged_at")
    assert tracks(lines) == truth(lines)


@pytest.mark.parametrize("says", ["elapsed_s", "logged_tgs", "peak_memory_bytes"])
@pytest.mark.parametrize("odd", [0.0, -1.0, float("nan"), float("inf"), None])
def test_a_line_that_says_nothing_of_itself_is_of_its_writer_all_the_same(
    says: str, odd: float | None
) -> None:
    """A rate of 0, as a line on which nothing was measured prints it."""
    a = [row | {says: odd if row["step"] in {104, 105} else 1.0} for row in PAIR[0]]
    b = [row | {says: odd if row["step"] in {1, 4} else 2.0} for row in PAIR[1]]
    lines = merged(a, b)
    assert tracks(lines) == truth(lines)


PAIR = (writer("a", 12, 10.0, 10.0, 101), writer("b", 12, 10.0, 14.0))


# -- writers that nothing tells apart ----------------------------------------------------------


def in_turns(rounds: int, of_a: int, of_b: int, says: str = "peak_memory_bytes") -> list[Row]:
    """Two writers without a clock, some lines each by turns; says: of which each has its own."""
    a = writer("a", rounds * of_a, 1.0, 0.0, 101, **{says: 100.0})
    b = writer("b", rounds * of_b, 1.0, 0.0, 1, **{says: 200.0})
    for number, row in enumerate(a):
        row["at"] = number // of_a * 100 + number % of_a
    for number, row in enumerate(b):
        row["at"] = number // of_b * 100 + 50 + number % of_b
    return merged(a, b, clock="")


@pytest.mark.parametrize("says", ["elapsed_s", "logged_tgs", "peak_memory_bytes"])
@pytest.mark.parametrize(
    ("rounds", "of_a", "of_b", "joined"),
    [
        (10, 1, 1, True),
        (9, 1, 1, False),  # 18 lines of two writers: a page may quote so few
        (4, 2, 3, True),  # 20 lines in five launches
        (4, 3, 3, False),  # 24 lines in five launches: turns are long
    ],
)
def test_short_turns_of_long_writers_without_a_clock_are_joined(
    rounds: int,
    of_a: int,
    of_b: int,
    joined: bool,  # noqa: FBT001
    says: str,
) -> None:
    """Ten lines of each writer, and four of each turn at most, on average."""
    assert tracks(in_turns(rounds, of_a, of_b, says)) == ([] if joined else None)


def test_too_many_rows_are_left_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = merged(writer("a", 12, 10.0, 10.0, 101), writer("b", 12, 13.0, 14.0))
    monkeypatch.setattr(writer_tracks, "MAX_FOLLOWED_ROWS", 24)
    assert tracks(lines) == truth(lines)
    monkeypatch.setattr(writer_tracks, "MAX_FOLLOWED_ROWS", 23)
    assert tracks(lines) is None


def event(line: int) -> Row:
    return {"line": line, "kind": "checkpoint", "text": f"line {line}", "logged_at": None}


def test_joined_launches_are_one_that_says_so() -> None:
    launches = cut(in_turns(4, 2, 3))
    for number, launch in enumerate(launches):
        launch.events.append(event(launch.last_line))
        launch.facts.append({"name": "seq_len", "value": str(number)})
        launch.last_step_text = f"text {number}"
    joined = join_launches(launches)
    assert [row["line"] for row in joined.rows] == [*range(1, 21)]
    assert [one["line"] for one in joined.events] == [launch.last_line for launch in launches]
    assert (joined.first_line, joined.last_line, joined.last_step_text) == (1, 20, "text 4")
    first, told = joined.facts
    assert first["value"] == "0"
    assert (told["name"], told["line"]) == (MIXED_FACT, 1)
    assert told["value"].startswith("The 20 step lines come from several runs in turn, ")
    assert told["origin"] == "inferred: steps go back 4 times without a start"


@given(
    counts=st.tuples(*[st.integers(3, 25)] * 2),
    paces=st.tuples(*[st.floats(1, 60)] * 2),
    begins=st.floats(0, 30),
    first_step=st.integers(1, 300),
)
def test_each_line_is_of_one_writer_whose_steps_and_clock_rise(
    counts: tuple[int, int], paces: tuple[float, float], begins: float, first_step: int
) -> None:
    """Whoever they are: where writers are told apart, none is led through a line of the past."""
    lines = merged(
        writer("a", counts[0], paces[0], 5.0, first_step), writer("b", counts[1], paces[1], begins)
    )
    found = tracks(lines)
    if not found:
        return
    assert sorted(line for its in found for line in its) == [*range(1, len(lines) + 1)]
    for one, other in _neighbours(found):
        assert lines[one - 1]["step"] < lines[other - 1]["step"]
        assert lines[one - 1]["at"] <= lines[other - 1]["at"]


def _neighbours(found: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
    for its in found:
        yield from pairwise(its)
