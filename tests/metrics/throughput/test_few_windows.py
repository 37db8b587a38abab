"""Rates of few windows, and of lines that time a part of the steps between them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from fairmfu.metrics.core.messages import NOT_RANKED
from tests.metrics.throughput.test_throughput import at, facts, rates, run, steps

FACTS = facts(gpus=1, global_batch_size=1, seq_len=100, log_interval=10)
LONGER_LOG = " Fix: train longer, or log more often"
WHOLE_LOG = " Fix: if you removed lines from the log, ingest the original"


def of_rates(*paces: float) -> list[str]:
    """Warnings of lines that print the rate of ten steps each; the first is start-up."""
    lines = enumerate((20.0, *paces), 1)
    table = steps(*({"step": 10 * i, "logged_tgs": 1000 / pace} for i, pace in lines))
    row = rates(table, run(evidence=["rate"], rate_covers="interval"), FACTS)
    return row["throughput_warnings"]


def test_a_single_window_has_no_scatter() -> None:
    assert of_rates(1.0) == [f"TGS is from a single window (10 steps).{LONGER_LOG}"]


@pytest.mark.parametrize("second", [1.0, 1.5])
def test_two_windows_may_agree_by_chance(second: float) -> None:
    (told,) = of_rates(1.0, second)
    assert told == f"TGS is from only 2 windows (20 steps).{LONGER_LOG}"


def test_windows_that_agree_need_no_word() -> None:
    assert not of_rates(1.0, 1.001, 1.002)
    assert not of_rates(1.0, 1.01, 0.99, 1.005)


def test_windows_that_differ_say_by_how_much_the_rate_may_be_off() -> None:
    (told,) = of_rates(1.0, 1.1, 0.9, 1.05, 0.95)
    sigma = np.std([1.0, 1.1, 0.9, 1.05, 0.95], ddof=1)
    assert 2.776 * sigma / np.sqrt(5) == pytest.approx(0.098, abs=1e-3)
    assert told == (
        f"TGS is from only 5 windows (50 steps) and may be off by 10%, as they differ.{LONGER_LOG}"
    )


def test_an_interval_says_it_better() -> None:
    assert not of_rates(*[1.0, 1.1, 0.9] * 4)


def means_of_ten(slow: float, *, kept: Sequence[int], stamped: bool = True) -> list[str]:
    """Warnings of lines that print the mean of the last ten steps, some lines lost.

    slow: how long steps take whose line is lost; those of other lines take 1 s
    """
    printed = [70 * i in kept for i in range(1, 10)]
    rows, now = [], 0.0
    for ten in range(1, 64):
        here = ten % 7 == 0 and printed[ten // 7 - 1]
        now += 10 * (1.0 if here else slow)
        if here:
            moment = {"logged_at": at(now)} if stamped else {}
            rows.append({"step": 10 * ten, "elapsed_s": 1.0} | moment)
    row = rates(steps(*rows), run(elapsed_covers="interval"), FACTS)
    return row["throughput_warnings"]


def test_means_of_ten_steps_are_no_time_of_seventy() -> None:
    """Each seventh line: by the stamps the steps between are slower."""
    told = means_of_ten(2.0, kept=(70, 140, 210))[-1]
    assert told == (
        f"{NOT_RANKED}TGS is from only 2 windows (20 of 140 steps); by time stamps, all of these "
        f"steps ran at {70 / 130 - 1:+.1%}.{WHOLE_LOG}"
    )


def test_stamps_bear_out_some_windows_that_time_a_part() -> None:
    assert not means_of_ten(1.0, kept=(70, 140, 210, 280))
    assert means_of_ten(1.0, kept=(70, 140)) == [
        f"{NOT_RANKED}TGS is from a single window (10 of 70 steps).{WHOLE_LOG}"
    ]
    assert not means_of_ten(1.0, kept=(70, 140, 210, 280), stamped=False)


def test_stamps_within_two_hundredths_and_a_second_are_no_contradiction() -> None:
    """143.6 s for 140 steps of 1 s are 2.5 % off; a second of these is 0.7 %."""
    (near,) = means_of_ten(1.03, kept=(70, 140, 210))
    assert near == f"{NOT_RANKED}TGS is from only 2 windows (20 of 140 steps).{WHOLE_LOG}"
    (far,) = means_of_ten(1.04, kept=(70, 140, 210))
    assert f"by time stamps, all of these steps ran at {140 / 144.8 - 1:+.1%}." in far


def gapped(*paces: float, gaps: Sequence[int]) -> list[str]:
    """Warnings of lines that print the mean of the last ten steps, so many steps apart."""
    ends = np.cumsum([10, *gaps]).tolist()
    table = steps(*({"step": n, "elapsed_s": p} for n, p in zip(ends, (20.0, *paces), strict=True)))
    return rates(table, run(elapsed_covers="interval"), FACTS)["throughput_warnings"]


def test_four_fifths_of_the_steps_are_most_of_them() -> None:
    """40 of 50 steps are all that a reader asks for; 40 of 60 are a sample, and may be ranked."""
    apart = (1.0, 1.1, 0.9, 1.05)
    (most,) = gapped(*apart, gaps=[10, 10, 10, 20])
    assert most.startswith("TGS is from only 4 windows (40 steps) and may be off by")
    assert most.endswith(LONGER_LOG)
    (few,) = gapped(*apart, gaps=[10, 10, 20, 20])
    assert few.startswith("TGS is from only 4 windows (40 of 60 steps) and may be off by")
    assert few.endswith(WHOLE_LOG)


def test_a_sample_may_be_off_by_less_than_the_whole() -> None:
    """Half-widths of 3.2 %: 3.182 x 0.02 / sqrt(4)."""
    apart = (1 + 0.02 * np.array([-0.5, -0.5, -0.5, 1.5])).tolist()
    assert np.std(apart, ddof=1) == pytest.approx(0.02)
    assert not gapped(*apart, gaps=[10, 10, 10, 10])
    (told,) = gapped(*apart, gaps=[20, 20, 20, 20])
    assert "(40 of 80 steps) and may be off by 3%" in told


def test_stamps_of_one_second_contradict_nothing() -> None:
    rows = ({"step": 20 * n, "elapsed_s": 1.0, "logged_at": at(0.5)} for n in range(1, 6))
    assert not rates(steps(*rows), run(elapsed_covers="interval"), FACTS)["throughput_warnings"]


def test_a_single_step_is_one() -> None:
    table = steps(*({"step": n, "elapsed_s": 1.0} for n in (1, 2)))
    row = rates(table, run(elapsed_covers="step"), facts(gpus=1, global_batch_size=1, seq_len=100))
    (told,) = row["throughput_warnings"]
    assert told == f"TGS is from a single window (1 step).{LONGER_LOG}"
