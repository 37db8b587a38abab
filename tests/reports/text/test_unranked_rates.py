"""Ratio of the rates of runs without a TGS, before the reasons for no rank."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.reports.text.summary import verdict_sentences
from tests.metrics.compare.test_studies import rows_of


def steps(seconds: float, samples: float | None = None, **facts: Any) -> dict[str, Any]:
    """Facts of a run with times of steps, known to 1 %, and no tokens."""
    return {
        "tgs": None,
        "tgs_low": None,
        "tgs_high": None,
        "flops_per_token": None,
        "model": None,
        "work": None,
        "seconds_per_step": seconds,
        "seconds_per_step_low": seconds * 0.99,
        "seconds_per_step_high": seconds * 1.01,
        "samples_per_second": samples,
        "missing": ["seq_len", "gpus"],
    } | facts


@given(seconds=st.floats(0.1, 1e3), ratio=st.floats(1.1, 20), swap=st.booleans())
def test_the_ratio_is_that_of_the_times_whatever_the_order(
    seconds: float, ratio: float, *, swap: bool
) -> None:
    runs = [steps(seconds), steps(seconds * ratio)]
    (said,) = verdict_sentences(rows_of(*(reversed(runs) if swap else runs)))
    fast = "r1" if swap else "r0"
    match = re.match(rf"{fast} has ([\d.]+)x \(([\d.]+) to ([\d.]+)\) the steps/s of r\d: ", said)
    assert match, said
    told, low, high = map(float, match.groups())
    assert told == pytest.approx(ratio, abs=0.006)
    assert low < ratio < high
    assert "samples of a step are unknown" in said


def test_facts_follow_in_order_differences_missing_reasons() -> None:
    (said,) = verdict_sentences(
        rows_of(steps(5.0, 0.8, precision="bf16"), steps(4.0, 1.0, precision="fp16"))
    )
    assert said.startswith("r1 has 1.25x (")
    assert "the samples/s over all GPUs of r0: 1 against 0.8" in said
    places = [
        said.index(words)
        for words in (
            "no winner is claimed",
            "Facts that differ: precision",
            "Missing facts: seq_len, gpus",
            "Reasons: ",
        )
    ]
    assert places == sorted(places)


@pytest.mark.parametrize(
    "other",
    [
        {"model": "llama-3-8b", "work": "a"},
        {"synthetic": True},
        {"log_format": "deepspeed"},
        {"seconds_per_step": None},
    ],
)
def test_steps_of_other_work_have_no_ratio(other: dict[str, Any]) -> None:
    named = {"model": "llama-2-7b", "work": "b"} if "work" in other else {}
    (said,) = verdict_sentences(rows_of(steps(5.0, **named), steps(4.0, **other)))
    assert "the steps/s of" not in said


def test_several_runs_stand_against_the_fastest() -> None:
    said, reason = verdict_sentences(rows_of(steps(4.0), steps(5.0), steps(8.0)))
    assert "against r0: r1 0.800x, r2 0.500x" in said
    assert reason.startswith("No run can be ranked yet")


def test_times_without_an_interval_have_a_ratio_without_one() -> None:
    unknown = {"seconds_per_step_low": None, "seconds_per_step_high": None}
    (said,) = verdict_sentences(rows_of(steps(4.0), steps(5.0, **unknown)))
    assert said.startswith("r0 has 1.25x the steps/s of r1: 4 s a step against 5 s;")
