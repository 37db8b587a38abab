"""The course of one run in words: ranks, data, end to end, and what the time went to."""

from __future__ import annotations

from typing import Any

import pytest

from fairmfu.metrics.core.run_table import METRICS
from fairmfu.metrics.core.run_words import SLOWER_SPEED
from fairmfu.reports.text.run_narrative import (
    confidence_text,
    end_to_end_words,
    goodput_words,
    outcome_sentence,
    phase_rows,
    seconds_text,
    time_rows,
)


def row(**values: object) -> dict[str, Any]:
    return dict.fromkeys(METRICS) | {"outcome": "completed"} | values


@pytest.mark.parametrize(
    ("last", "planned", "lines", "words"),
    [
        (30, 35, 4, ""),  # a line each 10 steps: steps 31 to 35 print none
        (30, 40, 4, " at step 30, before the planned 40"),
        (1, 3, 1, ""),
        (3, 3, 3, ""),
        (2, 3, 2, " at step 2, before the planned 3"),
    ],
)
def test_an_early_end_is_told_if_a_line_is_missing(
    last: int, planned: int, lines: int, words: str
) -> None:
    ended = row(last_step=last, total_steps=planned, steps=lines)
    assert outcome_sentence(ended) == f"Outcome: completed{words}."


def test_ranks_are_told() -> None:
    told = outcome_sentence(
        row(
            ranks=8,
            rank_spread=0.061,
            slowest_rank="5",
            slowest_share=0.93,
            rank_steps=400,
        )
    )
    assert told == (
        "Outcome: completed; step times of 8 logged ranks differ by 6.1 %, and rank 5 is slowest "
        "in 93 % of 400 steps (12 % by chance)."
    )


def test_a_rank_that_is_slowest_by_chance_is_not_named() -> None:
    equal = row(ranks=2, rank_spread=0.02, slowest_rank="1", slowest_share=12 / 20, rank_steps=20)
    assert outcome_sentence(equal) == (
        "Outcome: completed; step times of 2 logged ranks differ by 2.0 %."
    )


def test_few_steps_say_nothing_of_a_rank() -> None:
    few = row(ranks=2, rank_spread=0.02, slowest_rank="1", slowest_share=1.0, rank_steps=3)
    assert outcome_sentence(few) == (
        "Outcome: completed; step times of 2 logged ranks differ by 2.0 %."
    )


def test_an_interval_says_what_it_comes_from_or_why_there_is_none() -> None:
    assert confidence_text(row(windows=49, effective_windows=34.2)) == (
        "49 windows (effective sample size 34)"
    )
    assert confidence_text(row(windows=3, no_interval="3 windows, 9 needed")) == (
        "no interval: 3 windows, 9 needed"
    )


@pytest.mark.parametrize(
    ("basis", "words"),
    [
        ("stamp from start", "from the start of training, timed by time stamps"),
        ("runtime", "over the logged run time"),
        ("elapsed", "from the first step line, timed by the logged step time"),
        ("elapsed from start", "from the start of training, timed by the logged step time"),
    ],
)
def test_end_to_end_says_what_it_covers(basis: str, words: str) -> None:
    assert end_to_end_words(row(end_to_end_basis=basis)) == words


def test_goodput_of_a_chain_names_its_launches_and_what_was_lost() -> None:
    told = row(goodput=70.0, goodput_share=0.7, goodput_launches=3, lost_to_restarts_s=5400.0)
    assert goodput_words(told) == (
        "70.0 % of steady; useful tokens / the whole wall time over 3 launches up to this one; "
        "1.5 h lost to restarts"
    )


def test_goodput_of_a_run_with_slow_time_names_the_rate_that_it_is_a_share_of() -> None:
    told = row(goodput=70.0, goodput_share=0.7, tgs=75.0, tgs_without_spikes=100.0)
    assert goodput_words(told) == (
        "70.0 % of the rate without slow time of unknown cause; useful tokens / the whole wall time"
    )
    left_out = told | {"tgs": 100.0}
    assert goodput_words(left_out).startswith("70.0 % of steady; ")


def test_time_rows_are_all_of_the_wall_time() -> None:
    lost = [
        {"cause": "start-up", "windows": 1, "seconds": 30.0, "share": 0.15},
        {"cause": "evaluation", "windows": 2, "seconds": 10.0, "share": 0.05},
    ]
    found = time_rows(row(wall_s=200.0, time_lost=lost))
    assert [(r["cause"], r["windows"], r["time"], r["share"]) for r in found] == [
        ("all steps at their usual speed", "", "2.7 min", "80.0 %"),
        ("start-up", "1", "30 s", "15.0 %"),
        ("evaluation", "2", "10 s", "5.0 %"),
    ]
    assert time_rows(row()) == []


@pytest.mark.parametrize(
    ("slower", "speed"), [(50, "their usual speed"), (51, "the fastest speed before them")]
)
def test_a_speed_of_few_steps_is_not_the_usual_one(slower: int, speed: str) -> None:
    """Of 100 windows, `slower` lost time against the faster ones before them."""
    lost = [
        {"cause": SLOWER_SPEED, "windows": slower, "seconds": 20.0, "share": 0.1},
    ]
    levels = [{"windows": 100 - slower}, {"windows": slower}]
    (steady, _) = time_rows(row(wall_s=200.0, time_lost=lost, levels=levels))
    assert steady["cause"] == f"all steps at {speed}"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.7621, "0.762 s"), (59.0, "59 s"), (90, "1.5 min"), (36_000, "10.0 h")]
)
def test_a_time_has_its_unit(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


PHASES = [
    {"phase": "data", "seconds": 0.00125, "share": 0.01, "share_of": "step"},
    {"phase": "forward_backward", "seconds": 12.5432, "share": 1.2, "share_of": "step"},
    {"phase": "rest", "seconds": None, "share": None, "share_of": "step"},
    {"phase": "evaluation", "seconds": 0.5, "share": 0.05, "share_of": "wall"},
]


def test_phases_are_rows_of_text() -> None:
    phases = [{**each, "windows": 1200, "source": "fwd"} for each in PHASES]
    rows = phase_rows(row(phases=phases))
    assert [(r["phase"], r["seconds"], r["share"]) for r in rows] == [
        ("data", "1.25 ms", "1.0 %"),
        ("forward and backward", "12.54 s", "120.0 %"),
        ("rest", "unknown", "unknown"),
        ("evaluation, averaged over all steps", "500 ms", "5.0 % of wall time"),
    ]
    assert rows[0]["windows"] == "1,200"
    assert phase_rows(row(phases=None)) == []
