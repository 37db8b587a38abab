"""One run told by two sources gives the same figures as told by one, however it is split."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.runs.source_merging import _overlap

from .test_same_run import START, Rows, fed, happened, source, tables

STEPS = 120
PAUSE_S = {"evaluation": 30.0, "checkpoint": 12.0}
FIGURES = (
    *("tgs", "tgs_low", "tgs_high", "tgs_end_to_end", "end_to_end_basis", "windows", "steps"),
    *("excluded_share", "excluded_causes", "outcome", "started_at", "time_basis", "wall_s"),
)


def whole(pauses: dict[int, str]) -> tuple[Rows, list[dict[str, Any]]]:
    """Steps of 2 s, and the events that stand behind some of them."""
    rng = np.random.default_rng(7)
    now, rows, events = 0.0, [], []
    for step in range(1, STEPS + 1):
        now += 2 + 0.02 * rng.standard_normal() + PAUSE_S.get(pauses.get(step - 1, ""), 0.0)
        rows.append(
            {
                "step": step,
                "line": 10 * step,
                "loss": round(8 / step + 1 / 7, 10),
                "logged_at": START + timedelta(seconds=round(now, 3)),
                "since_start_s": round(now, 3),
            }
        )
        if step in pauses:
            events.append({"line": 10 * step + 5, "kind": pauses[step], "at": step})
    return rows, events


def told(
    name: str, rows: Rows, events: list[dict[str, Any]], *, says_step: bool, **run: Any
) -> dict[str, Rows]:
    made = fed(source(name, rows, evidence=["stamp"], started_at=rows[0]["logged_at"], **run))
    made["events"] = [
        happened(name, event["line"], event["kind"], step=event["at"] if says_step else None)
        for event in events
    ]
    return made


def figures(*sources: dict[str, Rows]) -> dict[str, Any]:
    (row,) = analyse(tables(*sources)).metrics.select(FIGURES).to_dicts()
    return row


@pytest.mark.parametrize("seed", range(16))
def test_a_run_split_over_two_sources_has_the_figures_of_the_whole(seed: int) -> None:
    """The first ends at `cut`, the other begins at `begin`; each event is in one of them or both.

    Of two formats the stamps of one alone are taken, so a few windows at the border may lack.
    """
    rng = np.random.default_rng(seed)
    places = rng.choice(np.arange(5, STEPS - 1), rng.integers(1, 9), replace=False)
    pauses = {int(step): str(rng.choice(sorted(PAUSE_S))) for step in places}
    cut, begin = int(rng.integers(40, STEPS + 1)), int(rng.integers(1, 20))
    one_format = bool(rng.integers(2))
    rows, events = whole(pauses)
    share = {step: rng.choice(["first", "second", "both"]) for step in pauses}
    first = [
        e for e in events if e["at"] < begin or (share[e["at"]] != "second" and e["at"] <= cut)
    ]
    second = [
        e for e in events if e["at"] > cut or (share[e["at"]] != "first" and e["at"] >= begin)
    ]

    def some(name: str, mine: Rows, its: list[dict[str, Any]], **run: Any) -> dict[str, Rows]:
        ended = {"outcome": "completed"} if mine[-1]["step"] == STEPS else {}
        facts, says_step = int(rng.integers(4)), bool(rng.integers(2))
        return told(name, mine, its, says_step=says_step, facts=facts, **ended, **run)

    names = rng.permutation(["a", "b"]).tolist()
    alone = figures(told("whole", rows, events, says_step=True, outcome="completed"))
    both = figures(
        some(names[0], rows[:cut], first),
        some(names[1], rows[begin - 1 :], second, log_format="xtuner" if one_format else "scalars"),
    )
    if not one_format:
        assert both["tgs"] == pytest.approx(alone["tgs"], rel=2e-3)
        assert both["outcome"] == alone["outcome"]
        return
    for name, value in alone.items():
        close = pytest.approx(value, rel=1e-9) if isinstance(value, float) else value
        assert both[name] == close, name


def test_an_outcome_at_the_last_step_counts_before_one_in_the_middle() -> None:
    rows, _ = whole({})
    early = told("a", rows[:60], [], says_step=True, facts=3, outcome="crashed", outcome_text="x")
    late = told("b", rows, [], says_step=True, outcome="completed")
    assert figures(early, late)["outcome"] == "completed"
    memory = told("a", rows, [], says_step=True, facts=3, outcome="killed")
    assert (
        figures(memory, told("b", rows, [], says_step=True, outcome="out_of_memory"))["outcome"]
        == "out_of_memory"
    )


@given(
    known=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), max_size=8),
    spans=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 5)), min_size=1, max_size=8),
)
def test_spans_overlap_where_they_share_a_step(
    known: list[tuple[int, int]], spans: list[tuple[int, int]]
) -> None:
    def ends(pairs: list[tuple[int, int]]) -> np.ndarray:
        return np.array([[a, a + more] for a, more in pairs], np.int64).reshape(-1, 2).T

    expected = [any(a <= x + more and x <= a + longer for x, more in known) for a, longer in spans]
    assert _overlap(ends(known), ends(spans)).tolist() == expected
