"""Of a launch that several sources tell of, each column is the best that one of them has."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import polars as pl
import pytest

from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.runs.same_run import MergedLaunches, merge_launches

from .test_same_run import START, Rows, fed, happened, measured, source, tables, without


def merged(*sources: dict[str, Rows]) -> MergedLaunches:
    """Of one launch alone."""
    found = merge_launches(tables(*sources))
    assert len(found.members) == 1
    return found


def clocked(decimals: int, every: int = 1) -> Rows:
    """Losses, and seconds since the start of so many decimals."""
    return [
        {"step": n, "loss": round(8 / n + 1 / 7, 10), "since_start_s": round(n * 90.123, decimals)}
        for n in range(1, 41)
        if n % every == 0
    ]


def test_steps_that_the_finer_clock_lacks_have_the_other_formats() -> None:
    console = source("console", clocked(3, every=5), facts=3)
    scalars = source("scalars", clocked(0), log_format="scalars")
    steps = merged(console, scalars).tables["steps"].sort("step")
    expected = [round(n * 90.123, 3 if n % 5 == 0 else 0) for n in range(1, 41)]
    assert steps["since_start_s"].to_list() == expected


@pytest.mark.parametrize(("decimals", "known"), [(2, 40), (1, 8), (0, 8)])
def test_of_one_format_only_clocks_that_are_about_as_fine_are_mixed(
    decimals: int, known: int
) -> None:
    """A coarser one would go back and forth against the finer; it lacks a decimal by chance."""
    fine, coarse = source("a", clocked(3, every=5), facts=3), source("b", clocked(decimals))
    named = {"line": 1, "kind": "output", "text": "", "extra": '{"file": "b"}'}
    fine["events"] = [{"run_id": "a"} | named]
    steps = merged(fine, coarse).tables["steps"]
    assert steps["since_start_s"].count() == known


def from_zero(rows: Rows) -> Rows:
    return [row | {"step": row["step"] - 1} for row in rows]


def test_what_happens_before_the_first_line_is_before_step_0() -> None:
    lead = source("lead", without(from_zero(measured(1)), "logged_at"), facts=3, log_format="s")
    told = source("console", from_zero(measured(1)), evidence=["stamp"])
    told["events"] = [happened("console", 3, "evaluation"), happened("console", 11, "gc")]
    found = merged(lead, told)
    assert list(found.members) == ["lead"]
    first, second = found.tables["steps"].sort("step")["line"].head(2)
    assert found.tables["events"].select("kind", "line").rows() == [
        ("evaluation", first),
        ("gc", second),
    ]


def test_an_evaluation_before_the_first_step_is_told_once() -> None:
    lead, twin = (source(name, from_zero(measured(1))) for name in ("lead", "twin"))
    for made in (lead, twin):
        made["events"] = [happened(made["runs"][0]["run_id"], 3, "evaluation")]
    assert merged(lead, twin).tables["events"].height == 1


def every(rows: Rows, many: int) -> Rows:
    return [row for row in rows if row["step"] % many == 0]


def test_steps_are_those_of_the_source_that_gives_their_times() -> None:
    """Others would cut its windows, and with them the first one, which holds start-up."""
    console = source("console", every(measured(1), 5), facts=3)
    losses = without(measured(1), "logged_at", "elapsed_s")
    state = source("state", losses, log_format="trainer-state", evidence=[])
    assert merged(console, state).tables["steps"]["step"].to_list() == [5, 10, 15, 20]
    other = source("other", losses, log_format="events", facts=3, evidence=[])
    unsaid = merged(other, state)  # no source has times: all steps, of all
    assert unsaid.tables["steps"]["step"].to_list() == [*range(1, 21)]


def test_columns_that_make_sense_together_are_of_one_format() -> None:
    """The rate and the MFU of the format with more steps, though the other has more digits."""
    times = without(measured(1), "logged_at")
    console = [row | {"logged_tgs": 500.0 + row["step"], "logged_mfu": 0.4} for row in times]
    fine = [row | {"logged_tgs": 500.1234 + row["step"], "logged_mfu": 0.41234} for row in times]
    some = without(times[:5], "elapsed_s")
    found = merged(
        source("console", console, facts=3, rate_covers="interval"),
        source("fine", [*fine[5:], *some], log_format="events", rate_covers="step"),
    )
    steps = found.tables["steps"].sort("step")
    assert steps["logged_tgs"].to_list() == [500.0 + n for n in range(1, 21)]
    assert steps["logged_mfu"].to_list() == [0.4] * 20
    assert found.tables["runs"]["rate_covers"].to_list() == ["interval"]
    both = merged(
        source("console", console, facts=3, rate_covers="interval"),
        source("fine", fine, log_format="events", rate_covers="step"),
    )  # of as many steps the one of more digits, and what its rate means
    steps = both.tables["steps"].sort("step")
    assert steps["logged_mfu"].to_list() == [0.41234] * 20
    assert both.tables["runs"]["rate_covers"].to_list() == ["step"]


@pytest.mark.parametrize("shift_s", [-1.0, 1.0])
def test_a_launch_began_with_the_first_source_of_the_leads_clock(shift_s: float) -> None:
    lead = source("lead", measured(1), facts=3, started_at=START)
    other_zone = source(
        "utc",
        without(measured(1), "logged_at"),
        log_format="utc",
        utc=True,
        started_at=START - timedelta(hours=8),
    )
    twin = source(
        "twin", measured(1), log_format="t", started_at=START + timedelta(seconds=shift_s)
    )
    (row,) = merged(lead, twin, other_zone).tables["runs"].iter_rows(named=True)
    assert row["started_at"] == START + timedelta(seconds=min(0.0, shift_s))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("killed", "out_of_memory", "out_of_memory"),
        ("out_of_memory", "completed", "completed"),
        ("incomplete", "crashed", "crashed"),
        ("crashed", "killed", "crashed"),  # of others the lead's
        ("incomplete", "incomplete", "incomplete"),
    ],
)
def test_of_outcomes_at_one_step_what_is_sure_goes_first(
    first: str, second: str, expected: str
) -> None:
    lead = source("lead", measured(1), facts=3, outcome=first, outcome_text=first)
    twin = source("twin", measured(1), outcome=second, outcome_text=second)
    (row,) = merged(lead, twin).tables["runs"].iter_rows(named=True)
    assert (row["outcome"], row["outcome_text"]) == (expected, expected)


def test_the_outcome_is_that_of_the_source_that_comes_furthest() -> None:
    lead = source("lead", measured(1)[:15], facts=3, outcome="completed")
    twin = source("twin", measured(1), outcome="crashed")
    assert merged(lead, twin).tables["runs"]["outcome"].to_list() == ["crashed"]


def test_the_framework_is_the_engine_where_a_source_is_its_own() -> None:
    below = {"framework": "transformers", "engine_below": "deepspeed"}
    lead = source("lead", measured(1), facts=3, **below)
    engine = source("engine", measured(1), log_format="ds", framework="deepspeed")
    assert merged(lead, engine).tables["runs"]["framework"].to_list() == ["deepspeed"]
    leading = source("engine", measured(1), log_format="ds", framework="deepspeed", facts=3)
    behind = source("trainer", measured(1), **below)
    assert merged(leading, behind).tables["runs"]["framework"].to_list() == ["deepspeed"]
    console = source("console", measured(1), log_format="c", **below)
    assert merged(lead, console).tables["runs"]["framework"].to_list() == ["transformers"]


def with_evaluations(name: str, *lines: int, says: bool, **run: Any) -> dict[str, Rows]:
    """Steps at lines 10, 11, …, and evaluations that stand in front of some of them."""
    made = source(name, measured(1), **run)
    made["events"] = [
        happened(name, line, "evaluation", step=line - 10 if says else None) for line in lines
    ]
    return made


def test_what_two_sources_tell_of_one_step_is_told_once() -> None:
    lead = with_evaluations("lead", 15, says=True, facts=3)
    twin = with_evaluations("twin", 15, 20, says=False, log_format="t")
    texts = merged(lead, twin).tables["events"]["text"].to_list()
    assert texts == ["evaluation", "evaluation (line 20 of twin)"]
    failed = [with_evaluations("lead", says=True, facts=3), with_evaluations("twin", says=True)]
    for one in failed:
        one["events"] = [happened(one["runs"][0]["run_id"], 15, "error")]
    texts = merged(*failed).tables["events"]["text"].to_list()
    assert texts == ["error", "error (line 15 of twin)"]  # each rank ends by itself


def test_one_source_may_tell_of_one_step_twice() -> None:
    lead = with_evaluations("lead", 15, 15, says=True, facts=3)
    assert merged(lead, with_evaluations("twin", says=True)).tables["events"].height == 2


def test_a_step_without_a_rank_is_the_lowest_ranks() -> None:
    """As numbers: 2 is before 10. The lead's own ranks go before those of others."""
    ranks = [row | {"rank": rank} for row in measured(1) for rank in ("10", "2")]
    told = source("told", ranks, facts=3)
    plain = source("plain", without(measured(1), "elapsed_s", "logged_at"), log_format="p")
    for row in plain["steps"]:
        row["learning_rate"] = 1e-4
    steps = merged(told, plain).tables["steps"]
    assert steps.filter(pl.col("learning_rate").is_not_null())["rank"].unique().to_list() == ["2"]
    assert steps.height == 40
    others = [row | {"rank": "1"} for row in measured(1)]
    steps = merged(told, plain, source("other", others)).tables["steps"]
    assert steps.filter(pl.col("learning_rate").is_not_null())["rank"].unique().to_list() == ["2"]
    assert steps.height == 60


@pytest.mark.parametrize(("second", "gpus"), [((2, 3), ["4"]), ((2,), ["3"]), ((5, 6), [])])
def test_each_node_prints_its_ranks_and_the_launch_has_the_gpus_of_all(
    second: tuple[int, ...], gpus: list[str]
) -> None:
    """It had those of the first log."""

    def stderr(name: str, ranks: tuple[int, ...]) -> dict[str, Rows]:
        figures = without(measured(1), "elapsed_s")
        rows = [
            row | {"rank": str(rank), "elapsed_s": 2 + rank / 100 + row["step"] / 1000}
            for row in figures
            for rank in ranks
        ]
        return source(name, rows, framework="xtuner", log_format="xtuner-v1")

    first = stderr("node0", (0, 1))
    fact = {"run_id": "node0", "name": "gpus", "value": "2", "sequence": 0}
    first["facts"] += [fact | {"origin": "inferred: 2 ranks print step lines"}]
    united = merged(first, stderr("node1", second))
    assert united.tables["runs"].height == 1
    facts = united.tables["facts"].filter(name="gpus")
    assert facts["value"].to_list() == gpus
    assert facts["origin"].to_list() == [f"inferred: {n} ranks print step lines" for n in gpus]


def test_facts_of_other_sources_say_where_they_stand() -> None:
    lead, twin = source("lead", measured(1), facts=2), source("twin", measured(1))
    origins = ("log:7", "flag", "log, inferred")
    twin["facts"] = [
        {"run_id": "twin", "name": "zero_stage", "value": "1", "origin": origin, "sequence": n}
        for n, origin in enumerate(origins)
    ]
    facts = merged(lead, twin).tables["facts"]
    assert facts["origin"].to_list() == ["log:7 of twin", "flag", "log, inferred", "log:0", "log:1"]
    assert facts["sequence"].to_list() == [0, 1, 2, 3, 4]


def test_runs_beside_a_merged_one_stay_as_they_are() -> None:
    lead, twin = source("lead", measured(1), facts=2), source("twin", measured(1))
    alone = fed(source("alone", measured(9)))
    alone["events"] = [happened("alone", 15, "evaluation")]
    found = merge_launches(tables(lead, twin, alone))
    assert sorted(found.members) == ["alone", "lead"]
    for name in ("runs", "steps", "events", "facts"):
        mine = pl.col("run_id") == "alone"
        before = tables(alone)[name].drop("sequence", strict=False)
        assert found.tables[name].filter(mine).drop("sequence", strict=False).equals(before), name
    both = analyse(tables(lead, twin, alone)).metrics.filter(pl.col("run_id") == "alone")
    assert both["tgs"].to_list() == analyse(tables(alone)).metrics["tgs"].to_list()
