"""Which launch continues which, where steps, time or losses lie just within, or just beyond."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from fairmfu.metrics.runs.resume_chains import MAX_DAYS_AWAY, MAX_LOSS_SPREADS

from .test_same_run import START, Rows, course, happened, linked, without

HOUR = timedelta(hours=1)


def continued(first: dict[str, Rows], second: dict[str, Rows]) -> bool:
    return linked(first, second)["second"][0] == "first"


def thinned(made: dict[str, Rows], every: int) -> dict[str, Rows]:
    """Only the lines of every so many steps."""
    made["steps"] = [row for row in made["steps"] if row["step"] % every == 0]
    return made


def later(first: int, last: int = 90, **run: Any) -> dict[str, Rows]:
    return course("second", first, last, START + HOUR, **run)


@pytest.mark.parametrize(("begin", "is_resume"), [(1, False), (2, True), (51, True), (52, False)])
def test_a_resume_begins_behind_the_first_step_and_misses_none(
    begin: int, *, is_resume: bool
) -> None:
    assert continued(course("first", 1, 50, START), later(begin)) is is_resume


@pytest.mark.parametrize(("begin", "is_resume"), [(60, True), (65, False), (70, False)])
def test_of_lines_at_each_tenth_step_one_interval_may_lie_between(
    begin: int, *, is_resume: bool
) -> None:
    first = thinned(course("first", 10, 50, START), 10)
    assert continued(first, thinned(later(begin), 5 if begin % 10 else 10)) is is_resume


def test_a_launch_that_trained_from_its_first_step_continues_nothing() -> None:
    """Its lines are of each tenth step, so that step 10 is its first; the course is the same."""
    first, second = course("first", 1, 50, START), later(2)
    assert not continued(first, thinned(later(10), 10))
    for step, is_resume in ((1, False), (2, True)):
        second["events"] = [happened("second", 5, "train_start", step=step)]
        assert continued(first, second) is is_resume


@pytest.mark.parametrize(("after_s", "is_resume"), [(-2.0, True), (-2.5, False), (0.0, True)])
def test_a_resume_begins_when_the_other_has_ended_but_for_crossing_stamps(
    after_s: float, *, is_resume: bool
) -> None:
    """The first one's last step, the 50th, is stamped 50 s behind its start."""
    begin = START + timedelta(seconds=50 + after_s - 41)
    assert continued(course("first", 1, 50, START), course("second", 41, 90, begin)) is is_resume


@pytest.mark.parametrize(("more_s", "is_resume"), [(0.0, True), (0.5, False)])
def test_a_resume_in_another_file_begins_within_ninety_days(
    more_s: float, *, is_resume: bool
) -> None:
    """Of one file, the order of its launches says enough."""
    first = course("first", 1, 50, START)
    begin = START + MAX_DAYS_AWAY + timedelta(seconds=50 + more_s - 41)
    assert continued(first, course("second", 41, 90, begin)) is is_resume
    of_one_file = [
        course("first", 1, 50, START, sha256="file", launch=1),
        course("second", 51, 90, begin, sha256="file", launch=2),
    ]
    assert continued(*of_one_file)


@pytest.mark.parametrize("fact", ["model", "seq_len", "global_batch_size", "total_steps"])
def test_other_work_is_not_continued_and_unknown_work_may_be(fact: str) -> None:
    def say(made: dict[str, Rows], value: str) -> dict[str, Rows]:
        run_id = made["runs"][0]["run_id"]
        known = [row for row in made["facts"] if row["name"] != fact]
        row = {"run_id": run_id, "name": fact, "value": value, "origin": "log:1", "sequence": 1}
        made["facts"] = [*known, row]
        return made

    first = say(course("first", 1, 50, START), "8")
    assert not continued(first, say(later(41), "9"))
    assert continued(first, say(later(41), "8"))
    unsaid = later(41)
    if fact != "model":  # of which the model alone is known
        assert continued(first, unsaid)


@pytest.mark.parametrize(
    ("spreads", "is_resume"), [(MAX_LOSS_SPREADS - 0.1, True), (MAX_LOSS_SPREADS + 0.1, False)]
)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_first_loss_lies_where_the_other_had_come_to(
    sign: int, spreads: float, *, is_resume: bool
) -> None:
    """Losses of the first alternate between 3.0 and 3.2: a median of 3.1, spread over 0.2."""
    first, second = course("first", 1, 50, START), later(41)
    first["steps"] = [row | {"loss": 3.0 + 0.2 * (row["step"] % 2)} for row in first["steps"]]
    second["steps"] = [row | {"loss": 3.1 + sign * spreads * 0.2} for row in second["steps"]]
    assert continued(first, second) is is_resume


def test_only_the_losses_near_its_first_step_count() -> None:
    """Of the first the losses are 91 to 10 up to step 10, then about 2, and 50 from step 61 on."""
    first, second = course("first", 1, 100, START), later(41)
    for row in first["steps"]:
        step = row["step"]
        row["loss"] = 100.0 - 9 * step if step < 11 else 2.0 + step / 1000 if step < 61 else 50.0
    for loss, is_resume in ((10.0, False), (2.04, True), (50.0, False)):
        second["steps"] = [row | {"loss": loss} for row in second["steps"]]
        assert continued(first, second) is is_resume


def test_without_losses_another_file_continues_nothing() -> None:
    first, second = course("first", 1, 50, START), later(41)
    for made in (first, second):
        bare = made | {"steps": without(made["steps"], "loss")}
        pair = (bare, second) if made is first else (first, bare)
        assert not continued(*pair)


def test_of_two_that_fit_the_one_that_ended_last_is_continued() -> None:
    first, second = course("first", 1, 50, START), later(41)
    between = course("between", 1, 45, START + HOUR / 2)
    assert linked(first, between, second)["second"][0] == "between"
    together = course("between", 1, 50, START)  # of another seed
    together["steps"] = [row | {"loss": row["loss"] + 0.01} for row in together["steps"]]
    found = linked(first, together, second)  # they ended together: either may be it
    assert found["second"][0] is None
    assert found["first"][1] == found["between"][1] == 0


def test_repeated_steps_are_those_of_the_resume_that_goes_back_furthest() -> None:
    """Steps 31 to 50 were trained again by one, 41 to 50 by the other."""
    far = course("far", 31, 34, START + HOUR)
    found = linked(course("first", 1, 50, START), far, course("near", 41, 90, START + 2 * HOUR))
    assert (found["far"][0], found["near"][0]) == ("first", "first")
    assert found["first"] == (None, 20)


def test_of_one_file_the_launch_before_is_continued_without_losses() -> None:
    launches = [
        course(name, begin, end, START, sha256="file", launch=number)
        for number, (name, begin, end) in enumerate([("a", 1, 50), ("b", 31, 60), ("c", 51, 90)], 1)
    ]
    for made in launches:
        made["steps"] = without(made["steps"], "logged_at", "loss")
        made["sources"] = []
    for made, name in zip(launches[1:], "bc", strict=True):
        made["events"] = [happened(name, 5, "load")]
    launches[0]["sources"] = [{"sha256": "file", "path": "logs/file", "unread_lines": 0}]
    found = linked(*launches)
    assert {name: before for name, (before, _) in found.items()} == {"a": None, "b": "a", "c": "b"}
    assert {name: again for name, (_, again) in found.items()} == {"a": 20, "b": 10, "c": 0}


@pytest.mark.parametrize(
    ("begin", "event", "is_resume"),
    [
        (41, None, False),  # the next experiment of a page
        (50, None, False),
        (51, None, True),
        (41, happened("second", 5, "load"), True),
        (41, happened("second", 5, "load", step=40), True),
        (41, happened("second", 5, "train_start", step=41), True),
        (41, happened("second", 5, "train_start"), False),
    ],
)
def test_in_one_file_a_launch_that_goes_back_says_that_it_resumed(
    begin: int, event: Mapping[str, Any] | None, *, is_resume: bool
) -> None:
    first = course("first", 1, 50, START, sha256="file", launch=1)
    second = later(begin, sha256="file", launch=2)
    second["events"] = [] if event is None else [event]
    assert continued(first, second) is is_resume
