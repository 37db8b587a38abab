"""Which names before lines are of one job: by losses, else by stamps, else by the names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from itertools import permutations
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.launches.launch import Launch
from fairmfu.ingest.launches.tagged_jobs import are_one_job as are_one_job_together
from fairmfu.ingest.launches.tagged_jobs import job_names, may_hold_several_jobs
from tests.support.launches_by_hand import launch_of

MIDNIGHT = datetime(2026, 1, 2)


def rows(
    *losses: float | None,
    first_step: int = 1,
    rank: str | None = None,
    late_s: float | None = None,
) -> Iterator[dict[str, Any]]:
    """A line of each step, ten seconds a step; late_s: of its stamps, None without them."""
    for step, loss in enumerate(losses, first_step):
        at = None if late_s is None else MIDNIGHT + timedelta(seconds=10 * step + late_s)
        yield {"line": step, "step": step, "loss": loss, "rank": rank, "logged_at": at}


def jobs(**names: Mapping[str, Any] | list[Any]) -> list[list[str]]:
    """Each name's launch; lines that print nothing are an empty one."""
    return job_names({name: [launch_of(each, 1)] for name, each in names.items()})  # type: ignore[arg-type]


def are_one_job(one: Iterator[Any], other: Iterator[Any]) -> bool:
    found = jobs(a=list(one), b=list(other))
    assert found in ([["a", "b"]], [["a"], ["b"]])
    return len(found) == 1


LOSSES = [5.0 - n / 10 for n in range(10)]


def test_the_same_losses_are_of_one_job() -> None:
    assert are_one_job(rows(*LOSSES), rows(*LOSSES))
    assert not are_one_job(rows(*LOSSES), rows(*(loss + 0.5 for loss in LOSSES)))


@pytest.mark.parametrize(("apart", "one"), [(0.0059, True), (0.0061, False)])
def test_losses_are_the_same_within_their_printed_digits(apart: float, one: bool) -> None:  # noqa: FBT001
    """Of a loss of 5: 0.001 x (1 + 5)."""
    assert are_one_job(rows(*[5.0] * 10), rows(*[5.0 + apart] * 10)) == one


def test_losses_of_nought_are_the_same_up_to_a_thousandth() -> None:
    assert are_one_job(rows(*[0.0] * 10), rows(*[0.001] * 10))
    assert not are_one_job(rows(*[0.0] * 10), rows(*[0.0011] * 10))


@pytest.mark.parametrize(("damaged", "one"), [(1, True), (2, False)])
def test_nine_of_ten_steps_have_to_agree(damaged: int, one: bool) -> None:  # noqa: FBT001
    other = [9.0] * damaged + LOSSES[damaged:]
    assert are_one_job(rows(*LOSSES), rows(*other)) == one


def test_a_stage_without_the_loss_tells_by_its_stamps() -> None:
    """It prints -1, which is no loss: neither the same nor another one."""
    stage = [-1.0] * 10
    assert are_one_job(rows(*LOSSES, late_s=0), rows(*stage, late_s=0.5))
    assert not are_one_job(rows(*LOSSES), rows(*stage))
    assert not are_one_job(rows(*stage), rows(*stage))


@pytest.mark.parametrize(
    ("late_s", "one"), [(2.0, True), (-2.0, True), (2.000001, False), (-2.1, False)]
)
def test_ranks_stamp_a_step_two_seconds_apart_at_most(late_s: float, one: bool) -> None:  # noqa: FBT001
    none = [None] * 10
    assert are_one_job(rows(*none, late_s=0), rows(*none, late_s=late_s)) == one


def test_losses_of_two_ranks_may_differ_where_their_stamps_agree() -> None:
    """Each prints that of its own batch; one rank has one loss."""
    other = [loss + 0.5 for loss in LOSSES]
    stamped = rows(*LOSSES, rank="0", late_s=0)
    assert are_one_job(stamped, rows(*other, rank="1", late_s=0.1))
    assert not are_one_job(rows(*LOSSES, rank="0", late_s=0), rows(*other, rank="0", late_s=0.1))
    assert not are_one_job(rows(*LOSSES, rank="0"), rows(*other, rank="1"))
    assert not are_one_job(rows(*LOSSES, rank="0", late_s=0), rows(*other, rank="1", late_s=5))


@pytest.mark.parametrize(("late_s", "one"), [(60.0, True), (61.0, False)])
def test_the_same_losses_a_minute_later_are_of_a_second_start(late_s: float, one: bool) -> None:  # noqa: FBT001
    """With the same seed it prints the same."""
    assert are_one_job(rows(*LOSSES, late_s=0), rows(*LOSSES, late_s=late_s)) == one


@pytest.mark.parametrize(("late", "one"), [(1, True), (2, False)])
def test_one_of_ten_stamps_may_be_late(late: int, one: bool) -> None:  # noqa: FBT001
    other = list(rows(*LOSSES, late_s=0))
    for row in other[:late]:
        row["logged_at"] += timedelta(hours=1)
    assert are_one_job(rows(*LOSSES, late_s=0), iter(other)) == one
    for row in other:
        row["loss"] = None
    assert are_one_job(rows(*LOSSES, late_s=0), iter(other)) == one  # by the stamps alone


def test_names_that_share_no_step_are_of_two_jobs() -> None:
    assert not are_one_job(rows(*LOSSES, late_s=0), rows(*LOSSES, first_step=11, late_s=0))


def test_the_first_print_of_a_step_counts() -> None:
    """A resumed launch repeats steps 1 and 2 with other losses."""
    twice = launch_of(rows(*LOSSES))
    again = launch_of(rows(9.0, 9.0))
    found = job_names({"a": [twice, again], "b": [launch_of(rows(*LOSSES))]})
    assert found == [["a", "b"]]


def test_a_job_is_joined_by_any_two_of_its_names() -> None:
    """a and b share no step, but each shares some with c; d is another job."""
    early, late = LOSSES[:5], LOSSES[5:]
    every = {
        "a": list(rows(*early)),
        "b": list(rows(*late, first_step=6)),
        "c": list(rows(*LOSSES)),
        "d": list(rows(*(loss + 1 for loss in LOSSES))),
    }
    for order in permutations(every):
        found = jobs(**{name: every[name] for name in order})
        assert sorted(map(sorted, found)) == [["a", "b", "c"], ["d"]]
        assert [names[0] for names in found] == list(
            dict.fromkeys(next(n for n in order if n in names) for names in found)
        )


def test_a_name_without_steps_is_of_the_names_most_like_it() -> None:
    other = [loss + 1 for loss in LOSSES]
    found = jobs(
        **{
            "alpha-1": [],
            "beta-0": list(rows(*other)),
            "alpha-0": list(rows(*LOSSES)),
            "beta-1": [],
        }
    )
    assert found == [["beta-0", "beta-1"], ["alpha-1", "alpha-0"]]


def test_without_any_step_there_is_no_job() -> None:
    assert jobs(a=[], b=[]) == []


# -- whether there may be several at all -------------------------------------------------------


@pytest.mark.parametrize(
    ("losses", "several"),
    [
        ((5.0, 5.0), False),
        ((5.0, 5.0059), False),
        ((5.0, 5.0061), True),
        ((5.0061, 5.0), True),
        ((5.0, -1.0), False),  # a stage that has no loss
        ((0.0, 0.001), False),
        ((0.0, 0.0011), True),  # a loss may be 0
        ((5.0, None), False),
    ],
)
def test_two_losses_of_one_step_may_be_of_two_jobs(
    losses: tuple[float, float | None],
    several: bool,  # noqa: FBT001
) -> None:
    """A step of a loss of 5 may be printed 0.001 x (1 + 5) apart."""
    each = [{"line": n, "step": 7, "loss": loss} for n, loss in enumerate(losses, 1)]
    assert may_hold_several_jobs([launch_of(each)]) == several
    for row, rank in zip(each, "01", strict=True):
        row["rank"] = rank
    assert not may_hold_several_jobs([launch_of(each)])  # each rank has its own loss


def test_two_launches_with_steps_may_be_two_jobs() -> None:
    one, other = launch_of(rows(5.0)), launch_of(rows(5.0, first_step=2))
    assert may_hold_several_jobs([one, other])
    assert not may_hold_several_jobs([one, Launch(5)])
    assert not may_hold_several_jobs([Launch(1)])


@given(
    losses=st.lists(st.floats(0, 20), min_size=1, max_size=12),
    cuts=st.lists(st.integers(0, 12), min_size=2, max_size=4),
)
def test_names_of_one_run_that_overlap_are_one_job(losses: list[float], cuts: list[int]) -> None:
    """Each name has the steps from some step on: all have the last one."""
    every = list(rows(*losses))
    names = {f"n{at}": every[min(cut, len(every) - 1) :] for at, cut in enumerate(cuts)}
    assert jobs(**names) == [list(names)]


@given(
    shifts=st.lists(st.sampled_from([0.0, 0.0, 2.0]), min_size=1, max_size=4),
    counts=st.lists(st.integers(0, 8), min_size=4, max_size=4),
    draw=st.randoms(use_true_random=False),
)
def test_lines_read_together_tell_what_lines_read_by_name_do(
    shifts: list[float], counts: list[int], draw: Random
) -> None:
    """Names whose losses are as much higher are of one job; their lines come in any order."""
    every = {
        f"n{at}": list(rows(*(loss + shift for loss in LOSSES[: counts[at]])))
        for at, shift in enumerate(shifts)
    }
    turns = [name for name, each in every.items() for _ in each]
    draw.shuffle(turns)
    left = {name: iter(each) for name, each in every.items()}
    mixed = [next(left[name]) | {"line": line} for line, name in enumerate(turns, 1)]
    owners = np.array([int(name[1:]) + 1 for name in turns], np.int64)
    told = len(jobs(**every)) == 1
    assert are_one_job_together([launch_of(mixed, 1)], owners) == told
