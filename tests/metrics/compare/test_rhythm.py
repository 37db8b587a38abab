"""Rhythm of a job: a run is overdue from the first night without it, and not before."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.metrics.compare.rhythm import MAX_SILENCE, end_of_night, has_ended, overdue

FIRST = datetime(2026, 10, 1, 2)  # a Thursday
DAY = timedelta(days=1)
MINUTES = st.floats(0, 45).map(lambda minutes: timedelta(minutes=minutes))


def nightly(nights: int, skipped: frozenset[int] = frozenset()) -> list[datetime]:
    return [FIRST + n * DAY for n in range(nights) if n not in skipped]


def at_report(night: int) -> datetime:
    """Half past five of that night, counted from 0."""
    return FIRST + night * DAY + timedelta(hours=3.5)


@given(st.integers(3, 60), st.data())
def test_a_daily_job_is_overdue_on_the_first_night_without_it(nights, data):
    starts = [start + data.draw(MINUTES) for start in nightly(nights)]
    assert overdue(starts, at_report(nights - 1)) is None
    silence = overdue(starts, at_report(nights))
    assert silence is not None
    assert (silence.last, silence.days) == (starts[-1], 1)


@given(st.integers(6, 60), st.data())
def test_one_missed_night_does_not_change_the_rhythm(nights, data):
    skipped = data.draw(st.integers(1, nights - 2))
    starts = nightly(nights, frozenset({skipped}))
    assert overdue(starts, at_report(nights - 1)) is None
    late = [overdue(starts, at_report(nights + more)) for more in (0, 1)]
    assert any(late)  # at once, or a day later on the weekday of the pause


@given(st.integers(2, 20), st.integers(0, 6))
def test_a_pause_of_every_weekend_is_usual(weeks, day):
    starts = [start for start in nightly(7 * weeks + day) if start.weekday() < 5]
    for night in range(14, 7 * weeks + day):
        ran = [start for start in starts if start <= at_report(night)]
        assert overdue(ran, at_report(night)) is None


@given(st.lists(st.integers(0, 40), min_size=1, max_size=40), st.data())
def test_order_and_several_runs_in_a_night_change_nothing(nights, data):
    starts = [FIRST + n * DAY for n in nights]
    again = [start + timedelta(minutes=5) for start in starts]
    now = at_report(data.draw(st.integers(0, 60)))
    one, two = overdue(starts, now), overdue(data.draw(st.permutations([*again, *starts])), now)
    assert (one is None) == (two is None)
    assert one is None or two is None or one.usual == two.usual


@pytest.mark.parametrize("nights", [0, 1, 2])
def test_fewer_than_three_nights_are_no_rhythm(nights):
    assert overdue(nightly(nights), at_report(nights + 1)) is None


def test_a_job_ends_when_it_is_silent_for_longer_than_it_ran():
    for nights, ends in ((3, 3), (10, 9), (300, MAX_SILENCE.days)):
        starts = nightly(nights)
        assert not has_ended(starts, starts[-1] + ends * DAY)
        assert has_ended(starts, starts[-1] + ends * DAY + timedelta(minutes=1))


def test_a_start_in_the_future_hides_no_silence():
    starts = [*nightly(20), FIRST + 4_000 * DAY]
    silence = overdue(starts, at_report(22))
    assert silence is not None
    assert silence.days == 3


def test_a_clock_before_all_runs_judges_nothing():
    assert overdue(nightly(20), FIRST - 10 * DAY) is None


def test_logs_of_an_earlier_night_are_judged_by_its_end():
    newest = FIRST + 30 * DAY
    end = datetime(2026, 10, 31, 11, 59, 59)
    assert end_of_night(newest + 60 * DAY, newest) == end
    assert end_of_night(newest + timedelta(hours=4), newest) == newest + timedelta(hours=4)
    assert end_of_night(newest - 9 * DAY, newest) == newest - 9 * DAY
    assert end_of_night(newest + 60 * DAY, None) == newest + 60 * DAY
