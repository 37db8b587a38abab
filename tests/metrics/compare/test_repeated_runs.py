"""Repeats of one setup: letters, sides, their MFU, and how surely they differ."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.metrics.compare.repeated_runs import (
    SpeedRatio,
    comparison_sides,
    setup_letters,
    speed_ratio,
)


def run(tgs: float, half: float | None = 0.01, **changes: Any) -> Any:
    """A row of one setup; `half`: of its own interval on the log scale."""
    row: dict[str, Any] = {
        "tgs": tgs,
        "ranked_rate": tgs,
        "setup": "A",
        "chain": f"run of {tgs}",
        "interval_freedom": None,
        "mfu": tgs / 15_000,
    }
    low, high = (None, None) if half is None else (tgs * math.exp(-half), tgs * math.exp(half))
    return row | {"ranked_low": low, "ranked_high": high, "no_interval": None} | changes


def test_letters_go_on_behind_z() -> None:
    rows: list[Any] = [{"n": i // 2} for i in range(2 * 54)]
    letters = setup_letters(rows, lambda row: str(row["n"]))  # type: ignore[typeddict-item]
    assert letters[:4] == ["A", "A", "B", "B"]
    assert [letters[2 * i] for i in (25, 26, 27, 51, 52)] == ["Z", "A2", "B2", "Z2", "A3"]


@pytest.mark.parametrize(
    ("low", "high", "tied"),
    [
        (0.9, 1.1, True),
        (1.0, 1.1, True),  # 1 is inside
        (0.9, 1.0, True),
        (1.01, 1.1, False),
        (0.9, 0.99, False),
        (None, 1.1, None),
        (0.9, None, None),
    ],
)
def test_a_ratio_whose_interval_holds_one_is_a_tie(
    low: float | None, high: float | None, *, tied: bool | None
) -> None:
    assert SpeedRatio(1.0, low, high).is_tied is tied


def test_three_starts_are_one_side_and_two_are_two() -> None:
    of_two = comparison_sides([run(6000.0), run(6100.0)])
    assert [(side.rate, side.repeats, side.has_run_interval) for side in of_two] == [
        (6100.0, 2, False),
        (6000.0, 2, False),
    ]
    (side,) = comparison_sides([run(6000.0), run(6100.0), run(5900.0)])
    assert (side.repeats, side.has_run_interval) == (3, True)
    assert side.rate == pytest.approx((6000 * 6100 * 5900) ** (1 / 3))
    assert [row["tgs"] for row in side.rows] == [6100.0, 6000.0, 5900.0]
    # On the log scale, Student's t of two degrees of freedom: 4.3027 x s / sqrt(3).
    logs = [math.log(x) for x in (6000, 6100, 5900)]
    mean = sum(logs) / 3
    s = math.sqrt(sum((x - mean) ** 2 for x in logs) / 2)
    assert side.estimate is not None
    assert math.log(side.estimate.high / side.rate) == pytest.approx(4.30265 * s / math.sqrt(3))


def test_launches_of_one_start_count_once() -> None:
    """A start that broke off four times has one say, its mean on the log scale."""
    resumed = [run(5000.0 + i, chain="first") for i in range(4)]
    (side,) = comparison_sides([*resumed, run(6000.0), run(6100.0)])
    assert side.repeats == 3
    first = math.exp(sum(math.log(5000 + i) for i in range(4)) / 4)
    assert side.rate == pytest.approx((first * 6000 * 6100) ** (1 / 3))


def test_the_mfu_of_a_side_is_at_its_rate() -> None:
    (side,) = comparison_sides([run(6000.0), run(6100.0), run(5900.0)])
    assert side.mfu == pytest.approx(side.rate / 15_000)
    (side,) = comparison_sides([run(6000.0), run(6100.0, mfu=None), run(5900.0)])
    assert side.mfu is None


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        (run(6000.0, None), run(5000.0), "too few windows"),
        (run(6000.0), run(5000.0, None, no_interval="3 windows"), "3 windows"),
        (run(6000.0, None, no_interval="3 windows"), run(5000.0, None), "3 windows"),
    ],
)
def test_a_side_without_an_interval_says_why(first: Any, second: Any, why: str) -> None:
    one, other = comparison_sides([first, second])
    ratio = speed_ratio(one, other)
    assert ratio.ratio == pytest.approx(1.2)
    assert (ratio.low, ratio.high, ratio.smallest_difference) == (None, None, None)
    assert (ratio.is_tied, ratio.no_interval_reason) == (None, why)


@given(st.floats(1e-4, 0.5), st.floats(1e-4, 0.5), st.floats(0.5, 2.0))
@settings(max_examples=30)
def test_a_ratio_is_the_other_one_turned_round(one: float, other: float, times: float) -> None:
    """Distances in quadrature on the log scale, as of independent runs."""
    a, b = run(6000.0, one), run(6000.0 * times, other, setup="B")
    sides = {side.rows[0]["setup"]: side for side in comparison_sides([a, b])}
    ratio, turned = speed_ratio(sides["A"], sides["B"]), speed_ratio(sides["B"], sides["A"])
    assert ratio.low is not None
    assert turned.high is not None
    assert ratio.ratio == pytest.approx(1 / times)
    assert ratio.low == pytest.approx(1 / turned.high)
    assert math.log(ratio.ratio / ratio.low) == pytest.approx(math.hypot(one, other))
    assert ratio.no_interval_reason is None
