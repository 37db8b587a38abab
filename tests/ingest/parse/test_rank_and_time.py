"""What stands at the head of a line: its rank by a launcher's tag, and its time stamp."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.parse.rank_and_time import parse_rank, parse_stamp
from tests.support.each_case import each_case

MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(2285, 12, 31))


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        ("[rank0]: loss", "0"),
        ("[rank12]:loss", "12"),
        ("[default3]:loss", "3"),
        ("[trainer2|1]: loss", "2"),
        ("3: loss", "3"),
        ("3:loss", None),
        ("[1,5]<stdout>:loss", "5"),
        ("[1,5]<stderr>:loss", "5"),
        ("1: [rank0]: loss", "1:0"),
        ("[rank0]:[rank0]: loss", "0"),  # torchrun's may come twice
        ("  [rank7]: loss", "7"),
        ("[XTuner][RANK 4][2026-11-20 15:49:49] x", "4"),
        ("2: [XTuner][RANK 4][2026-11-20 15:49:49] x", "4"),  # the global rank says all
        ("[20260306 10:15:16][rank-7/8][INFO ] x", "7"),
        ("[20260306 10:15:16][user][module][10.0.0.1][rank-7/8][INFO ] x", "7"),
        ("50%|#####     | 5/10[rank1]: loss", "1"),  # behind a bar without a newline
        ("loss of [rank1] is", None),
        ("loss", None),
        ("", None),
    ],
)
def test_the_rank_is_that_of_the_launchers_tag(text: str, rank: str | None) -> None:
    assert parse_rank(text) == rank


@each_case(
    ("text", "moment"),
    [
        ("2026-11-20 15:34:16", datetime(2026, 11, 20, 15, 34, 16)),
        ("2026-11-20 15:34", datetime(2026, 11, 20, 15, 34)),  # to the minute
        ("2026/11/20 15:34:16", datetime(2026, 11, 20, 15, 34, 16)),
        ("2026-11-20 15:34:16,7", datetime(2026, 11, 20, 15, 34, 16, 700_000)),
        ("2026-11-20 15:34:16,731", datetime(2026, 11, 20, 15, 34, 16, 731_000)),
        ("2026-11-20T15:34:16.000731", datetime(2026, 11, 20, 15, 34, 16, 731)),
        ("2026-11-20T15:34:16.123456789", datetime(2026, 11, 20, 15, 34, 16, 123_456)),
        ("20260306 10:15:16", datetime(2026, 3, 6, 10, 15, 16)),
        ("05/04 15:24:10", datetime(2000, 5, 4, 15, 24, 10)),
        ("02/29 15:24:10", datetime(2000, 2, 29, 15, 24, 10)),  # of a leap year, perhaps
        ("02/30 15:24:10", None),
        ("2026-02-29 15:24:10", None),
        ("2026-11-20 24:00:00", None),
        ("2026-11-20 15:34:60", None),
        ("1969-12-31 23:59:59", None),
        ("1970-01-01 00:00:00", datetime(1970, 1, 1)),
        ("2970-01-01 00:00:00", datetime(2970, 1, 1)),
        ("2971-01-01 00:00:00", None),  # damaged
        ("99999999999999-01-01 00:00:00", None),
        ("1795188384", datetime(2026, 11, 20, 15, 26, 24)),
        ("1795188384.5", datetime(2026, 11, 20, 15, 26, 24, 500_000)),
        ("1795188384123", datetime(2026, 11, 20, 15, 26, 24, 123_000)),
        ("1795188384123456", datetime(2026, 11, 20, 15, 26, 24, 123_456)),
        ("17951883841", None),
        ("179518838", None),
        ("", None),
        ("no stamp", None),
    ],
)
def test_a_stamp_is_a_moment_or_none(text: str, moment: datetime | None) -> None:
    assert parse_stamp(text) == (
        pytest.approx(moment, abs=timedelta(microseconds=1)) if moment else None
    )


@each_case("part", range(7))
@each_case("digits", [9, 10, 11, 19, 20, 400])
def test_a_number_as_long_as_no_date_has_makes_no_moment(part: int, digits: int) -> None:
    """However large: it raises nothing. Of a fraction only six digits count."""
    parts = ["2026", "11", "20", "15", "34", "16", "5"]
    parts[part] = "9" * digits
    text = "{}-{}-{} {}:{}:{},{}".format(*parts)
    expected = datetime(2026, 11, 20, 15, 34, 16, 999_999) if part == 6 else None
    assert parse_stamp(text) == expected


@given(moment=MOMENTS)
def test_a_moment_that_is_printed_comes_back(moment: datetime) -> None:
    whole = moment.replace(microsecond=0)
    milliseconds = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    assert parse_stamp(f"{moment:%Y-%m-%d %H:%M:%S.%f}") == moment
    assert parse_stamp(f"{whole:%Y/%m/%d %H:%M:%S}") == whole
    assert parse_stamp(f"{whole:%Y%m%d %H:%M:%S}") == whole
    assert (
        parse_stamp(f"{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03}") == milliseconds
    )


@given(moment=st.datetimes(datetime(2001, 9, 10), datetime(2285, 12, 31)))
def test_a_count_from_the_epoch_is_of_its_unit(moment: datetime) -> None:
    """Of ten digits seconds, of thirteen milliseconds, of sixteen microseconds."""
    seconds = int(moment.replace(tzinfo=UTC).timestamp())
    whole = moment.replace(microsecond=0)
    for count in (seconds, seconds * 1000, seconds * 10**6):
        assert parse_stamp(str(count)) == whole
