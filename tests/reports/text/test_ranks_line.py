"""The line on slow ranks among the first lines on a run."""

from __future__ import annotations

from typing import Any

import pytest

from fairmfu.metrics.core.run_table import METRICS
from fairmfu.reports.text.diagnosis import diagnosis


def late(ranks: str = "8 to 11", **values: object) -> dict[str, Any]:
    return {
        "ranks": ranks,
        "rank_count": 4,
        "node": "1",
        "kind": "data",
        "shared": False,
        "lasting": False,
        "steps": 3,
        "first_steps": [60, 120, 180],
        "seconds": 120.0,
        "longest_s": 40.0,
        "gpu_hours_lost": 120 * 16 / 3600,
        "share": 0.23,
    } | values


def ranks_line(*slow: dict[str, Any], **values: object) -> str:
    """Return the line on ranks; empty if there is none."""
    row: Any = dict.fromkeys(METRICS) | {"ranks": 16, "slow_ranks": list(slow)} | values
    return next((line for line in diagnosis(row) if line.startswith("Ranks: ")), "")


def test_late_ranks_are_named_with_steps_and_cost() -> None:
    assert ranks_line(late()) == (
        "Ranks: 8 to 11 (node 1) waited for data in steps 60, 120 and 180, 40 s a step: "
        "0.53 GPU-hours of all 16 GPUs lost."
    )
    assert ranks_line() == ""


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"steps": 1, "first_steps": [1060]}, "waited for data in step 1,060, "),
        ({"steps": 9, "first_steps": list(range(9))}, "in 9 steps (0, 1, 2, 3, …), 13.3 s a step"),
        ({"lasting": True, "steps": 199}, "waited for data in most steps, 0.603 s a step"),
        ({"kind": "compute"}, "8 to 11 (node 1) computed longer in "),
        ({"kind": "documents"}, "had the longest documents in "),
        ({"kind": "tokens"}, "had the most tokens in "),
        ({"node": "0 and 3"}, "8 to 11 (nodes 0 and 3) waited"),
        ({"node": None}, "Ranks: 8 to 11 waited"),
        ({"ranks": "1, " * 40, "rank_count": 40}, "Ranks: 40 ranks (node 1) waited"),
    ],
)
def test_steps_cause_and_node_are_in_words(values: dict[str, Any], text: str) -> None:
    assert text in ranks_line(late(**values))


def test_the_most_expensive_groups_are_named() -> None:
    line = ranks_line(late("1"), late("2"), late("3"), late("4"))
    assert "1 (node 1) waited" in line
    assert "3 (node 1)" not in line
    assert line.endswith("; 2 more groups (1.1 GPU-hours).")


def test_steps_that_are_late_on_all_ranks_have_no_culprit() -> None:
    every = {"shared": True, "rank_count": 16, "node": None}
    assert ranks_line(late(**every)) == (
        "Ranks: all 16 waited for data at once in steps 60, 120 and 180, 40 s a step: shared "
        "storage or network."
    )
    assert "12 of 16 waited for data at once" in ranks_line(late(**every | {"rank_count": 12}))
    slow = late(**every | {"kind": "compute"})
    assert ranks_line(slow) == (
        "Ranks: all 16 were slow at once in steps 60, 120 and 180, so their times name no rank."
    )
    assert "at once" not in ranks_line(late(), slow)
    assert ranks_line(late(**every | {"share": 0.01})) == ""


@pytest.mark.parametrize(
    ("values", "said"),
    [({}, True), ({"gpus": 1}, False), ({"ranks": 16}, False), ({"time_lost": []}, False)],
)
def test_one_rank_cannot_name_the_late_one(values: dict[str, Any], *, said: bool) -> None:
    lost = [{"cause": "data loading", "windows": 3, "seconds": 120.0, "share": 0.2}]
    facts = {"slow_ranks": None, "ranks": None, "gpus": 16, "time_lost": lost} | values
    expected = "Ranks: cannot be named, because the log has the steps of only one rank."
    assert ranks_line(**facts) == (expected if said else "")
