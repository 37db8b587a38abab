"""Files that tell of one launch are one run, on evidence; others stay apart."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from fairmfu.ingest.core.schema import READING_CHANGES, TABLES, frame_schema
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.runs.messages import MAY_BE_SAME_LAUNCH
from fairmfu.metrics.runs.same_run import (
    NODES_MAY_FIT,
    SEVERAL_STREAMS_FIT,
    STREAMS_MAY_FIT,
    _moment,
    find_candidates,
    find_source_links,
    merge_launches,
)
from tests.support.effort import THOROUGH

START = datetime(2026, 11, 20, 10, 0, 0)
Rows = list[dict[str, Any]]
READ = {"unread_lines": 0, "reading": len(READING_CHANGES)}


def table(name: str, rows: Rows) -> pl.DataFrame:
    schema = frame_schema(name)
    return pl.DataFrame([{c: row.get(c) for c in schema} for row in rows], schema=schema)


def tables(*sources: dict[str, Rows]) -> dict[str, pl.DataFrame]:
    return {name: table(name, [r for s in sources for r in s.get(name, [])]) for name in TABLES}


def source(name: str, steps: Rows, *, facts: int = 0, **run: Any) -> dict[str, Rows]:
    about = {
        "run_id": name,
        "sha256": f"hash of {name}",
        "name": name,
        "launch": 1,
        "framework": "xtuner",
        "log_format": "xtuner",
        "step_unit": "optimizer_step",
        "elapsed_covers": "step",
        "elapsed_excludes_data": False,
        "rate_excludes_data": False,
        "evidence": ["elapsed"],
        "utc": False,
        "outcome": "incomplete",
        "synthetic": False,
        **run,
    }
    return {
        "runs": [about],
        "sources": [{"sha256": about["sha256"], "path": f"logs/{name}"} | READ],
        "steps": [{"run_id": name, "line": i, **row} for i, row in enumerate(steps, 10)],
        "facts": [
            {"run_id": name, "name": "zero_stage", "value": "2", "origin": f"log:{i}", "line": i}
            for i in range(facts)
        ],
    }


def measured(seed: int, count: int = 20, digits: int = 10) -> Rows:
    """Steps with losses that do not depend on the seed and times that do."""
    times = 2 + 0.1 * np.random.default_rng(seed).standard_normal(count)
    stamps = START + np.cumsum(times) * timedelta(seconds=1)
    return [
        {
            "step": i,
            "loss": round(8 / i + 1 / 7, digits),
            "elapsed_s": round(float(times[i - 1]), digits),
            "logged_at": stamps[i - 1].replace(microsecond=0),
        }
        for i in range(1, count + 1)
    ]


def without(rows: Rows, *names: str) -> Rows:
    return [{k: v for k, v in row.items() if k not in names} for row in rows]


def groups(*sources: dict[str, Rows]) -> list[list[str]]:
    members = merge_launches(tables(*sources)).members
    return sorted(sorted(row["run_id"] for row in rows) for rows in members.values())


def test_a_launch_told_twice_is_one_run() -> None:
    console = source("console", measured(1, digits=4), facts=3)
    scalars = source("scalars", without(measured(1), "logged_at"), log_format="xtuner-scalars")
    united = merge_launches(tables(console, scalars))
    assert [row["name"] for row in united.members["console"]] == ["console", "scalars"]
    assert united.tables["runs"].height == 1
    assert united.tables["steps"].height == 20


def test_a_lead_that_says_no_rank_has_each_step_once() -> None:
    ranked = [row | {"rank": "0"} for row in without(measured(1), "elapsed_s")]
    console = source("console", ranked[:15], evidence=["stamp"])
    scalars = source("scalars", measured(1), facts=3, log_format="xtuner-scalars")
    united = merge_launches(tables(console, scalars))
    assert list(united.members) == ["scalars"]
    assert united.tables["steps"]["step"].to_list() == [*range(1, 21)]


def happened(name: str, line: int, kind: str, **more: Any) -> dict[str, Any]:
    return {"run_id": name, "line": line, "kind": kind, "text": kind} | more


@pytest.mark.parametrize("facts", [0, 3])
@pytest.mark.parametrize("names", ["az", "za"])
def test_what_happens_beside_steps_is_seen_whichever_source_leads(names: str, facts: int) -> None:
    """An event file tells of no checkpoint, and its lines are others than the console's."""
    scalars, console = names
    exact = source(scalars, without(measured(1), "logged_at"), facts=facts, log_format="scalars")
    lines = [row | {"line": 100 + 10 * row["step"]} for row in measured(1)]
    told = source(console, lines, evidence=["stamp"])
    exact["events"] = [happened(scalars, 25, "evaluation")]
    told["events"] = [
        happened(console, 205, "checkpoint"),
        happened(console, 255, "evaluation"),
        happened(console, 310, "end"),
        happened(console, 311, "error"),
    ]
    both = analyse(tables(told, exact))
    (lead,) = both.metrics["run_id"]
    assert lead == (scalars if facts else "a")
    fell = both.windows.filter(pl.col("events").list.len() > 0).select("step", "events").rows()
    assert fell == [(11, ["checkpoint"]), (16, ["evaluation"])]
    assert both.events["run_id"].unique().to_list() == [lead]
    if lead == scalars:
        assert both.events.select("line", "kind", "text").rows() == [
            (20, "checkpoint", f"checkpoint (line 205 of {console})"),
            (25, "evaluation", "evaluation"),
            (30, "end", f"end (line 310 of {console})"),
            (30, "error", f"error (line 311 of {console})"),
        ]
    else:
        assert both.events["text"].to_list() == ["checkpoint", "evaluation", "end", "error"]


def test_what_ended_each_rank_is_told() -> None:
    """The lead's own error may be of a rank that waited for another one."""
    ranks = [source(name, [row | {"rank": name} for row in measured(1)]) for name in "01"]
    for one, why in zip(ranks, ("NCCL timeout", "out of memory"), strict=True):
        name = one["runs"][0]["run_id"]
        one["events"] = [happened(name, 40, "error", text=why), happened(name, 35, "gc", text="gc")]
    both = analyse(tables(*ranks))
    assert both.metrics.height == 1
    assert both.events["text"].to_list() == [
        "out of memory (line 40 of 1)",
        "gc",
        "NCCL timeout",
    ]


@pytest.mark.parametrize(("said", "falls_into"), [(7, 8), (None, 5), (4, 5), (9, 8), (12, 8)])
def test_an_event_of_a_source_with_fewer_lines_falls_by_its_own_step(
    said: int | None, falls_into: int
) -> None:
    """Between the console's lines of steps 4 and 8 the event file has four."""
    exact = source("scalars", without(measured(1), "logged_at"), facts=3, log_format="scalars")
    few = [row | {"line": 10 * row["step"]} for row in measured(1)[3::4]]
    told = source("console", few, evidence=["stamp"])
    told["events"] = [happened("console", 45, "checkpoint", step=said)]
    both = analyse(tables(told, exact))
    assert both.metrics["members"].to_list() == [["scalars", "console"]]
    fell = both.windows.filter(pl.col("events").list.len() > 0)["step"].to_list()
    assert fell == [falls_into]


@pytest.mark.parametrize(("said", "falls_into"), [(None, [17]), (20, []), (19, [20])])
def test_an_event_behind_the_last_line_of_its_source(
    said: int | None, falls_into: list[int]
) -> None:
    exact = source("scalars", without(measured(1), "logged_at"), facts=3, log_format="scalars")
    told = source("console", measured(1)[:16], evidence=["stamp"])
    told["events"] = [happened("console", 99, "checkpoint", step=said)]
    both = analyse(tables(told, exact))
    fell = both.windows.filter(pl.col("events").list.len() > 0)["step"].to_list()
    assert fell == falls_into
    assert both.events.height == 1


def saving(each: int, said: int | None = None) -> list[dict[str, Rows]]:
    """A console of 200 steps that saves for 4 s behind each so many, and a lead of every tenth.

    said: the step that it says, less that behind which it saves
    """
    rows, late = [], timedelta()
    for row in without(measured(1, 200), "elapsed_s"):
        late += timedelta(seconds=4) * (row["step"] > 1 and row["step"] % each == 1)
        rows.append(row | {"logged_at": row["logged_at"] + late, "line": 10 * row["step"]})
    told = source("console", rows, evidence=["stamp"])
    told["events"] = [
        happened("console", 10 * step + 5, "checkpoint", step=None if said is None else step + said)
        for step in range(each, 200, each)
    ]
    tenth = without(rows[9::10], "logged_at", "line")
    return [fed(told), fed(source("lead", tenth, facts=3, log_format="scalars", evidence=[]))]


@pytest.mark.parametrize(
    ("each", "said"),
    [*product([10, 15, 20], [None, 0, 1, -1])]
    if THOROUGH
    else [(10, None), (20, 0), (15, 1), (10, -1)],
)
def test_a_lead_of_few_lines_costs_no_windows_beside_a_checkpoint(
    each: int, said: int | None
) -> None:
    """All ten steps up to its next line were left out; with a checkpoint for each, all steps."""
    told, lead = saving(each, said)
    both = analyse(tables(told, lead))
    assert both.metrics["members"].to_list() == [["lead", "console"]]
    fell = both.windows.filter(pl.col("events").list.len() > 0)["step"].to_list()
    assert fell == [*range(each + 1, 200, each)]
    alone = analyse(tables(told))
    assert both.metrics["windows"].to_list() == alone.metrics["windows"].to_list()
    assert both.metrics["tgs"].to_list() == alone.metrics["tgs"].to_list()


@pytest.mark.parametrize(
    ("said", "falls_into"),
    [(None, range(21, 31)), (24, [25]), (20, [21]), (30, [30]), (12, range(21, 31))],
)
def test_an_event_of_a_lead_of_few_lines_falls_by_the_step_that_it_says(
    said: int | None, falls_into: Sequence[int]
) -> None:
    told, lead = saving(200)
    lead["events"] = [happened("lead", 12, "evaluation", step=said)]
    both = analyse(tables(told, lead))
    fell = both.windows.filter(pl.col("events").list.len() > 0)["step"].to_list()
    assert fell == [*falls_into]


def test_what_happens_before_the_first_line_falls_into_the_first_window() -> None:
    told, lead = saving(200)
    told["events"] = [happened("console", 3, "evaluation")]
    both = analyse(tables(told, lead))
    fell = both.windows.filter(pl.col("events").list.len() > 0)["step"].to_list()
    assert fell == [1]


@pytest.mark.parametrize(
    ("order", "in_the_rate"),
    [
        (["evaluation", "checkpoint"], ["checkpoint"]),
        (["checkpoint", "evaluation"], []),
        (["checkpoint", "evaluation", "checkpoint"], ["checkpoint"]),
    ],
)
def test_what_another_source_tells_of_one_step_keeps_its_order(
    order: list[str], in_the_rate: list[str]
) -> None:
    """A rate that starts anew behind an evaluation holds the checkpoint that comes after it."""
    rated = {"evidence": ["rate", "stamp"], "rate_covers": "interval"}
    rows = [row | {"logged_tgs": 500.0} for row in without(measured(1), "elapsed_s")]
    lead = source("lead", rows, facts=3, log_format="scalars", **rated)
    lines = [row | {"line": 10 * row["step"]} for row in measured(1)]
    told = source("console", lines, evidence=["stamp"])
    anew = {"evaluation": '{"restarts": "rate"}'}
    told["events"] = [
        happened("console", 100 + i, kind, step=10, extra=anew.get(kind))
        for i, kind in enumerate(order, 1)
    ]
    both = analyse(tables(lead, told))
    assert both.metrics["members"].to_list() == [["lead", "console"]]
    (window,) = both.windows.filter(pl.col("events").list.len() > 0).iter_rows(named=True)
    assert window["step"] == 11
    assert sorted(window["events"]) == ["checkpoint", "evaluation"]
    assert window["rate_events"] == in_the_rate


@pytest.mark.parametrize("nothing", [-1.0, -64.0])
def test_a_pipeline_stage_without_loss_is_of_the_same_launch(nothing: float) -> None:
    """Torchtitan's ranks of other stages than the last print a constant below zero."""
    steps = [{**row, "rank": "4", "grad_norm": 1 / row["step"]} for row in measured(1)]
    others = [{**row, "rank": "0", "loss": nothing} for row in steps]
    assert groups(source("last", steps), source("first", others)) == [["first", "last"]]


def test_a_log_that_its_file_holds_twice_is_one_run() -> None:
    sources = [source(name, measured(1), launch=i + 1) for i, name in enumerate("abc")]
    sources += [source("later", measured(2), launch=4)]
    for one in sources:
        one["runs"][0]["sha256"] = one["sources"][0]["sha256"] = "the file's"
    assert groups(*sources) == [["a", "b", "c"], ["later"]]


def test_the_finest_print_of_each_column_is_taken_and_every_source_is_named() -> None:
    console = source("console", measured(1, digits=4), facts=3)
    scalars = source("scalars", without(measured(1), "logged_at"), log_format="xtuner-scalars")
    both = tables(console, scalars)
    steps = merge_launches(both).tables["steps"]
    assert steps["loss"].to_list() == [row["loss"] for row in measured(1)]
    assert steps["elapsed_s"].to_list() == [row["elapsed_s"] for row in measured(1)]
    assert steps["logged_at"].null_count() == 0
    (run,) = analyse(both).metrics.iter_rows(named=True)
    assert run["sources"] == ["logs/console", "logs/scalars"]
    assert run["members"] == ["console", "scalars"]


def test_two_deterministic_launches_with_their_own_times_stay_apart() -> None:
    one = source("one", without(measured(1, digits=4), "logged_at"))
    two = source("two", without(measured(2, digits=4), "logged_at"))
    assert groups(one, two) == [["one"], ["two"]]


def test_a_launch_a_day_later_stays_apart_though_its_figures_are_coarse() -> None:
    rows = measured(1, digits=1)
    later = [{**row, "logged_at": row["logged_at"] + timedelta(days=1)} for row in rows]
    one = source("one", rows, started_at=START)
    two = source("two", later, started_at=START + timedelta(days=1))
    assert groups(one, two) == [["one"], ["two"]]


def test_a_differing_loss_keeps_files_apart_though_their_times_agree() -> None:
    other = [{**row, "loss": row["loss"] + 0.01} for row in measured(1)]
    assert groups(source("one", measured(1)), source("two", other)) == [["one"], ["two"]]


def test_stamps_of_another_zone_are_compared_by_how_they_advance() -> None:
    times = np.cumsum(2 + np.random.default_rng(3).standard_normal(40) ** 2)
    rows = [{"step": i, "logged_at": START + timedelta(seconds=t)} for i, t in enumerate(times, 1)]
    away = [{**row, "logged_at": row["logged_at"] + timedelta(hours=8)} for row in rows]
    other = [
        {"step": r["step"], "logged_at": START + timedelta(hours=8, seconds=2 * r["step"])}
        for r in rows
    ]
    console = source("console", rows)
    assert groups(console, source("events", away, utc=True)) == [["console", "events"]]
    assert groups(console, source("events", other, utc=True)) == [["console"], ["events"]]


@pytest.mark.parametrize("hour", [15, 23])
def test_stamps_of_another_zone_may_lie_behind_new_year(hour: int) -> None:
    times = np.cumsum(2 + np.random.default_rng(3).standard_normal(40) ** 2)
    start = datetime(2026, 12, 31, hour, 59)
    rows = [
        {"step": i, "loss": 8 / i + 1 / 7, "logged_at": start + timedelta(seconds=float(t))}
        for i, t in enumerate(times, 1)
    ]
    away = [{**row, "logged_at": row["logged_at"] + timedelta(hours=8)} for row in rows]
    both = source("console", away), source("events", rows, utc=True)
    assert groups(*both) == [["console", "events"]]


def test_ranks_in_files_of_their_own_are_one_run() -> None:
    def rank(number: int, seed: int) -> dict[str, Rows]:
        rows = [
            {**row, "rank": str(number), "elapsed_s": row["elapsed_s"] + seed / 1000}
            for row in measured(1)
        ]
        return source(f"rank{number}", rows)

    sources = [rank(0, 0), rank(1, 3), rank(2, 5)]
    assert groups(*sources) == [["rank0", "rank1", "rank2"]]
    (run,) = analyse(tables(*sources)).metrics.iter_rows(named=True)
    assert run["ranks"] == 3
    assert run["rank_spread"] == pytest.approx(0.005 / 2, rel=0.1)


def node(name: str, delays: np.ndarray, seed: int) -> dict[str, Rows]:
    """The log of rank 0 of a node: its own rate, and stamps after the given delays."""
    own = np.random.default_rng(seed)
    moments = np.cumsum(2 + delays) + 0.002 * own.random(len(delays))
    rows = [
        {
            "step": i,
            "rank": "0",
            "loss": round(8 / i + 1 / 7, 4),
            "logged_tgs": float(round(5000 + own.normal(0, 5))),
            "logged_at": START + timedelta(milliseconds=round(1000 * float(at))),
        }
        for i, at in enumerate(moments, 1)
    ]
    return source(name, rows, evidence=["rate"], rate_covers="interval", started_at=START)


def test_the_logs_of_two_nodes_are_one_run() -> None:
    common = np.random.default_rng(1).exponential(0.1, 40)
    assert groups(node("one", common, 2), node("two", common, 3)) == [["one", "two"]]


def test_two_launches_side_by_side_that_do_not_wait_for_each_other_stay_apart() -> None:
    for seed in range(20 if THOROUGH else 8):
        first, second = np.random.default_rng(seed).exponential(0.05, (2, 20))
        found = groups(node("one", first, 100 + seed), node("two", second, 200 + seed))
        assert found == [["one"], ["two"]]


@pytest.mark.parametrize("shared", ["drift", "collections", "checkpoints", "warm-up"])
def test_what_two_launches_share_by_their_settings_makes_them_no_nodes(shared: str) -> None:
    """They begin in one second and have the same losses, as the jobs of an array may."""
    at = np.arange(60)
    common = {
        "drift": 0.2 * np.sin(at / 20),
        "collections": 0.3 * (at % 5 == 0),
        "checkpoints": 6.0 * (at % 20 == 19),
        "warm-up": 3.0 * np.exp(-at / 3),
    }[shared]
    for seed in range(20 if THOROUGH else 8):
        first, second = np.random.default_rng(seed).normal(0, 0.02, (2, 60))
        second -= second.mean() - first.mean()
        found = groups(node("one", common + first, seed), node("two", common + second, seed + 99))
        assert found == [["one"], ["two"]]


@pytest.mark.parametrize("seconds", [0.5, 1.5, 2.5])
def test_whole_seconds_that_alternate_alike_make_two_launches_no_nodes(seconds: float) -> None:
    for seed in range(10 if THOROUGH else 4):
        chance = np.random.default_rng(seed)
        sources = []
        for name in ("one", "two"):
            at = 0.2 * chance.random() + np.cumsum(seconds + 0.01 * chance.standard_normal(200))
            made = node(name, np.zeros(200), seed + len(name))
            for row, moment in zip(made["steps"], at, strict=True):
                row["logged_at"] = START + timedelta(seconds=int(moment))
                row["logged_tgs"] = float(round(5000 + chance.normal(0, 5)))
            sources.append(made)
        assert groups(*sources) == [["one"], ["two"]]


def test_rank_0_of_two_launches_at_once_stays_apart() -> None:
    def rank(name: str, number: int, seed: int) -> dict[str, Rows]:
        return source(name, [{**row, "rank": str(number)} for row in measured(seed)])

    found = groups(rank("a", 0, 1), rank("b", 0, 2))
    assert found == [["a"], ["b"]]


def tracked(folder: str, number: int, seed: int) -> dict[str, Rows]:
    """What a rank writes without stamps into a folder of its own; its times are its own too."""
    rows = without(measured(seed, digits=7), "logged_at")
    own = [{**row, "elapsed_s": row["elapsed_s"] + number / 1e3} for row in rows]
    one = source(f"{folder}-{number}", [{**row, "rank": str(number)} for row in own])
    one["sources"][0]["path"] = f"{folder}/rank{number}/tracker.jsonl"
    return one


def test_ranks_without_stamps_are_one_launch_where_their_folders_stand_side_by_side() -> None:
    sources = [tracked(folder, n, seed) for seed, folder in enumerate("ab") for n in range(12)]
    united = merge_launches(tables(*sources))
    assert [{row["name"][0] for row in rows} for rows in united.members.values()] == [{"a"}, {"b"}]
    assert united.doubts == {}


def test_ranks_without_stamps_elsewhere_stay_apart_and_are_said() -> None:
    assert groups(tracked("a", 0, 1), tracked("b", 1, 1)) == [["a-0"], ["b-1"]]
    assert groups(tracked("a", 0, 1), tracked("b", 0, 2)) == [["a-0"], ["b-0"]]
    united = merge_launches(tables(tracked("a", 0, 1), tracked("b", 1, 1), tracked("c", 1, 2)))
    assert len(united.members) == 3
    assert [len(said) for said in united.doubts.values()] == [2, 1, 1]
    slow = tracked("a", 1, 1)
    for row in slow["steps"]:
        row["elapsed_s"] *= 1.5  # no rank that the other waits for at each step
    united = merge_launches(tables(tracked("a", 0, 1), slow))
    assert (len(united.members), united.doubts) == (2, {})


def state(name: str, rows: Rows) -> dict[str, Rows]:
    """A file that prints no time."""
    return source(name, without(rows, "logged_at", "elapsed_s"), log_format="trainer-state")


def test_losses_alone_decide_where_one_source_prints_no_time_and_only_one_fits() -> None:
    console = source("console", measured(1))
    assert groups(console, state("state", measured(1))) == [["console", "state"]]


def test_two_that_fit_by_their_losses_alone_are_left_apart_and_said() -> None:
    sources = [source("one", measured(1)), source("two", measured(2)), state("s", measured(1))]
    united = merge_launches(tables(*sources))
    assert len(united.members) == 3
    assert united.doubts["s"][0].kind == MAY_BE_SAME_LAUNCH.identifier


def test_the_state_of_a_resumed_run_does_not_make_one_launch_of_its_two() -> None:
    """It has the losses of both, and the run time that the second one prints at its end."""
    first, second = (
        source(name, measured(seed, 40)) for name, seed in (("first", 1), ("second", 2))
    )
    first["steps"], second["steps"] = first["steps"][:24], second["steps"][19:]
    whole = state("state", measured(1, 40))
    for one in (second, whole):
        name = one["runs"][0]["run_id"]
        end = {"run_id": name, "line": 90, "kind": "end", "seconds": 608.1234, "text": ""}
        one["events"] = [end]
    assert groups(first, second, whole) == [["first"], ["second", "state"]]
    assert groups(first, whole) == [["first", "state"]]


SAVED = "out/checkpoint-{}/trainer_state.json"


def test_what_a_training_saves_with_its_checkpoints_is_one_run() -> None:
    first, second = (state(SAVED.format(n), measured(1, n)) for n in (1, 12))
    end, console = state("out/trainer_state.json", measured(1)), source("console", measured(1))
    united = merge_launches(tables(first, second, end, console))
    assert [len(rows) for rows in united.members.values()] == [4]
    assert united.tables["steps"].height == 20
    assert united.doubts == {}


def test_checkpoints_of_another_folder_or_training_stay_apart() -> None:
    end = state("out/trainer_state.json", measured(1))
    other = [row | {"loss": row["loss"] * 1.5} for row in measured(1, 12)]
    further = [row | {"step": row["step"] + 12} for row in measured(1, 12)]
    for name, rows in (
        ("again/checkpoint-12/trainer_state.json", measured(1, 12)),
        ("out/checkpoint-12/old/trainer_state.json", measured(1, 12)),
        (SAVED.format(12), other),
        (SAVED.format(24), further),
    ):
        assert len(groups(end, state(name, rows))) == 2, name


def test_of_several_that_fit_by_their_losses_alone_those_of_one_folder_are_one() -> None:
    def events(name: str, seed: int) -> dict[str, Rows]:
        return source(name, measured(seed), log_format="events")

    one, two = state("one/state.json", measured(1)), state("two/state.json", measured(1))
    apart = [one, events("one/runs/a", 2), two, events("two/runs/a", 3)]
    assert groups(*apart) == [["one/runs/a", "one/state.json"], ["two/runs/a", "two/state.json"]]
    assert merge_launches(tables(*apart)).doubts == {}
    other = merge_launches(tables(*apart, events("runs/a", 4)))  # which is of none of them
    assert sorted(map(len, other.members.values())) == [1, 2, 2]
    again = merge_launches(
        tables(*apart, events("one/runs/b", 4))
    )  # either may be of the state beside them
    assert len(again.members) == 4
    assert len(again.doubts["one/state.json"]) == 2


def streams(
    out: str, err: str, *, runtime: float | None = 3600.4, seconds: float = 3600.0, steps: int = 40
) -> list[dict[str, Rows]]:
    """The Trainer's dicts as one job prints them to its output, its bars as it does to errors."""
    run = {"log_format": "hf-trainer", "framework": "transformers", "evidence": ["clock"]}
    dicts = [{"step": n, "loss": round(8 / n + 1 / 7, 10)} for n in range(2, 41, 2)]
    bars = [{"step": n, "since_start_s": round(n / steps * seconds)} for n in range(1, steps + 1)]
    one, other = source(out, dicts, facts=2, **run), source(err, bars, **run)
    if runtime is not None:
        one["events"] = [{"run_id": out, "kind": "end", "seconds": runtime, "line": 99}]
    planned = {"name": "total_steps", "value": str(steps), "origin": "log:1", "line": 1}
    other["facts"] = [{"run_id": err, **planned}]
    return [one, other]


@pytest.mark.parametrize(
    ("out", "err"),
    [
        ("train-17.out", "train-17.err"),
        ("stdout.log", "stderr.log"),
        ("job/a_out.txt", "job/a_err.txt"),
        ("job.o17", "job.e17"),
    ],
)
def test_the_dicts_of_a_jobs_output_and_the_bars_of_its_errors_are_one_run(
    out: str, err: str
) -> None:
    """The one had no times, the other no losses."""
    united = merge_launches(tables(*streams(out, err)))
    assert {row["name"] for row in united.members.popitem()[1]} == {out, err}
    steps = united.tables["steps"].sort("step")
    assert steps["since_start_s"].to_list() == [90.0 * n for n in range(1, 41)]
    assert steps.filter(pl.col("loss").is_not_null())["step"].to_list() == [*range(2, 41, 2)]


@pytest.mark.parametrize(
    "apart",
    [
        streams("a.out", "a.err", seconds=3597.0),
        streams("a.out", "a.err", steps=50),
        streams("x/a.out", "y/a.err"),
        streams("a.out", "b.err"),
        streams("a.out", "a.err", runtime=None),
    ],
)
def test_streams_that_end_otherwise_or_say_no_end_or_of_other_names_stay_apart(
    apart: list[dict[str, Rows]],
) -> None:
    assert len(groups(*apart)) == 2


@pytest.mark.parametrize(
    "doubted", [streams("a.out", "b.err"), streams("a.out", "a.err", runtime=None)]
)
def test_streams_that_may_be_of_one_job_say_so(doubted: list[dict[str, Rows]]) -> None:
    doubts = merge_launches(tables(*doubted)).doubts
    said = MAY_BE_SAME_LAUNCH.identifier
    assert [name for name in doubts if doubts[name][0].kind == said] == [
        row["name"] for one in doubted for row in one["runs"]
    ]
    assert all(STREAMS_MAY_FIT in words for whole in doubts.values() for words in whole)


def test_a_stream_with_two_launches_that_end_alike_is_left_apart_and_said() -> None:
    first, second = streams("a.out", "a.err"), streams("b.out", "b.err", runtime=3600.9)
    for one, path in zip((*first, *second), ("j.out", "j.err") * 2, strict=True):
        one["sources"] = [{**one["sources"][0], "path": f"logs/{path}"}]
    united = merge_launches(tables(*first, *second))
    assert len(united.members) == 4
    assert all(SEVERAL_STREAMS_FIT in said for whole in united.doubts.values() for said in whole)
    assert set(united.doubts) == set(united.members)


def test_streams_are_one_run_with_what_the_losses_are_one_with() -> None:
    one, other = streams("a.out", "a.err")
    rows = without(one["steps"], "run_id")
    kept = source("state", rows, log_format="trainer-state", framework="transformers")
    assert groups(one, other, kept) == [["a.err", "a.out", "state"]]


def test_of_two_clocks_of_a_launch_the_finer_is_taken() -> None:
    one, other = streams("a.out", "a.err")
    for row in one["steps"]:
        row["since_start_s"] = row["step"] * 90.01
    steps = merge_launches(tables(one, other)).tables["steps"].sort("step")
    assert steps.drop_nulls("since_start_s")["since_start_s"].to_list() == [
        pytest.approx(n * 90.01) for n in range(2, 41, 2)
    ]


def test_a_file_that_the_console_names_is_its_own() -> None:
    console = source("console", without(measured(1), "elapsed_s", "logged_at"))
    named = {"kind": "output", "extra": '{"file": "out/spans.jsonl"}', "text": ""}
    console["events"] = [{"run_id": "console", "line": 1} | named]
    spans = source("spans.jsonl", without(measured(1), "loss", "logged_at"))
    assert groups(console, spans) == [["console", "spans.jsonl"]]


def every_tenth(rows: Rows) -> Rows:
    """A console that prints the mean of ten steps."""
    return [
        {**row, "elapsed_s": sum(before["elapsed_s"] for before in rows[i - 9 : i + 1]) / 10}
        for i, row in enumerate(rows)
        if row["step"] % 10 == 0
    ]


def fed(made: dict[str, Rows]) -> dict[str, Rows]:
    """With the facts that a rate needs."""
    given = {"gpus": "2", "seq_len": "128", "global_batch_size": "8", "packed": "true"}
    made["facts"] += [
        {"run_id": made["runs"][0]["run_id"], "name": name, "value": value, "origin": "log:1"}
        | {"sequence": place, "line": 1}
        for place, (name, value) in enumerate(given.items())
    ]
    return made


def test_a_source_of_every_step_does_not_cut_the_windows_of_the_times() -> None:
    rows = measured(1, count=100)
    rows[0]["elapsed_s"] = 300.0  # start-up
    console = fed(source("console", every_tenth(rows), elapsed_covers="interval"))
    losses = state("losses", rows)
    (alone,) = analyse(tables(console)).metrics.iter_rows(named=True)
    (both,) = analyse(tables(console, losses)).metrics.iter_rows(named=True)
    assert both["members"] == ["console", "losses"]
    assert alone["windows"] == both["windows"] == 9
    assert both["tgs"] == alone["tgs"] == pytest.approx(8 * 128 / 2 / 2, rel=0.02)


def test_a_step_time_without_data_loading_stays_behind_the_stamps() -> None:
    console = fed(
        source("console", without(measured(1), "elapsed_s"), evidence=["elapsed", "stamp"])
    )
    rows = [{**row, "elapsed_s": row["elapsed_s"] / 2} for row in measured(1)]
    about = {"evidence": ["stamp", "elapsed"], "elapsed_excludes_data": True}
    events = source("events", rows, log_format="events", **about)
    (run,) = analyse(tables(console, events)).metrics.iter_rows(named=True)
    assert run["members"] == ["console", "events"]
    assert run["time_basis"] == "stamp"
    assert run["tgs"] == pytest.approx(8 * 128 / 2 / 2, rel=0.05)


def test_the_outcome_is_that_of_the_source_that_says_it() -> None:
    console = source("console", measured(1), facts=2)
    twin = source("twin", measured(1), outcome="crashed", outcome_text="RuntimeError")
    (run,) = merge_launches(tables(console, twin)).tables["runs"].iter_rows(named=True)
    assert (run["name"], run["outcome"]) == ("console", "crashed")


def test_facts_are_pooled_and_the_leads_hold() -> None:
    def said(run: str, value: str) -> Rows:
        row = {"run_id": run, "name": "gpus", "value": value, "origin": "log:7", "sequence": 0}
        return [row | {"line": 7}]

    console = source("console", measured(1), facts=3)
    console["facts"] += said("console", "8")
    twin = source("twin", measured(1))
    twin["facts"] += said("twin", "4")
    united = merge_launches(tables(console, twin))
    gpus = united.tables["facts"].filter(name="gpus").sort("sequence")
    assert gpus["value"].to_list() == ["4", "8"]
    assert gpus["origin"].to_list() == ["log:7 of twin", "log:7"]


def test_launches_united_together_are_as_each_united_alone() -> None:
    def told(number: int) -> list[dict[str, Rows]]:
        rows = measured(number)
        for row in rows:
            row["logged_at"] += timedelta(hours=number)
            row["loss"] += number
        ranked = [{**row, "rank": "0"} for row in rows]
        console = without(ranked, "elapsed_s")[number % 2 : 15]
        scalars = {"log_format": "xtuner-scalars", "elapsed_covers": "interval"}
        events = {"log_format": "xtuner-tensorboard", "evidence": ["stamp"] * (number % 3)}
        return [
            source(f"console{number}", console, facts=number % 3, evidence=["stamp"]),
            source(f"scalars{number}", rows, **scalars),
            source(f"events{number}", without(rows, "loss"), **events),
        ]

    together = merge_launches(tables(*(one for number in range(9) for one in told(number))))
    alone = [merge_launches(tables(*told(number))) for number in range(9)]
    assert together.members == {k: v for one in alone for k, v in one.members.items()}
    assert {len(rows) for rows in together.members.values()} == {3}
    for name, keys in (("runs", ["run_id"]), ("steps", ["run_id", "step"])):
        apart = pl.concat([one.tables[name] for one in alone])
        assert_frame_equal(together.tables[name].sort(keys), apart.sort(keys), check_exact=True)


def test_losses_of_four_significant_digits_contradict_none_that_are_finer() -> None:
    exact = [{**row, "loss": 12 / row["step"]} for row in measured(1)]
    short = [{**row, "loss": float(f"{row['loss']:.4g}")} for row in exact]
    found = groups(source("one", exact), source("two", short, log_format="console"))
    assert found == [["one", "two"]]


def test_a_learning_rate_printed_with_an_exponent_contradicts_nothing() -> None:
    exact = [{**row, "learning_rate": 1e-3 / 7 ** row["step"]} for row in measured(1, 12)]
    short = [{**row, "learning_rate": float(f"{row['learning_rate']:.4e}")} for row in exact]
    assert len(groups(source("one", exact), source("two", short, log_format="console"))) == 1


def test_the_durations_that_two_sources_print_are_evidence_of_time() -> None:
    def ended(name: str, seconds: float, **run: Any) -> dict[str, Rows]:
        made = source(name, without(measured(1), "elapsed_s", "logged_at"), **run)
        event = {"run_id": name, "line": 90, "kind": "end", "seconds": seconds, "text": ""}
        return made | {"events": [event]}

    console, state = ended("a", 1021.2666), ended("b", 1021.27, log_format="state")
    assert groups(console, state, ended("c", 998.3, log_format="state")) == [["a", "b"], ["c"]]


# -- resumes -------------------------------------------------------------------------------


def course(name: str, first: int, last: int, start: datetime, **run: Any) -> dict[str, Rows]:
    rows = [
        {"step": i, "loss": 8 / i, "elapsed_s": 1.0, "logged_at": start + timedelta(seconds=i)}
        for i in range(first, last + 1)
    ]
    made = source(name, rows, started_at=start, **run)
    made["facts"].append(
        {"run_id": name, "name": "model", "value": "llama", "origin": "log:1", "sequence": 9}
    )
    return made


def linked(*sources: dict[str, Rows]) -> dict[str, tuple[str | None, int]]:
    metrics = analyse(tables(*sources)).metrics
    rows = metrics.select("run_id", "continues", "repeated_steps").iter_rows()
    return {run: (before, again) for run, before, again in rows}


def test_a_resume_continues_the_launch_before_and_marks_its_repeated_steps() -> None:
    later = START + timedelta(hours=1)
    found = linked(course("first", 1, 50, START), course("second", 41, 90, later))
    assert found == {"first": (None, 10), "second": ("first", 0)}


def test_a_resume_in_the_same_file_needs_no_stamps() -> None:
    one = course("a", 1, 50, START, sha256="file")
    two = course("b", 51, 90, START, sha256="file", launch=2)
    two["sources"] = []
    one["sources"][0]["sha256"] = "file"
    for made in (one, two):
        made["steps"] = without(made["steps"], "logged_at")
    assert linked(one, two) == {"a": (None, 0), "b": ("a", 0)}


@pytest.mark.parametrize(
    "second",
    [
        course("second", 1, 90, START + timedelta(hours=1)),
        course("second", 60, 90, START + timedelta(hours=1)),
        course("second", 41, 90, START - timedelta(seconds=20)),
        course("second", 41, 90, START + timedelta(hours=1), framework="torchtitan"),
    ],
    ids=["from the start", "beyond its end", "at the same time", "another framework"],
)
def test_what_is_no_resume_is_not_linked(second: dict[str, Rows]) -> None:
    found = linked(course("first", 1, 50, START), second)
    assert {before for before, _ in found.values()} == {None}


def test_a_resume_of_another_work_is_not_linked() -> None:
    second = course("second", 41, 90, START + timedelta(hours=1))
    second["facts"][-1]["value"] = "qwen"
    assert linked(course("first", 1, 50, START), second)["second"] == (None, 0)


def test_a_loss_off_the_course_is_another_training() -> None:
    second = course("second", 41, 90, START + timedelta(hours=1))
    second["steps"] = [{**row, "loss": row["loss"] + 5} for row in second["steps"]]
    assert linked(course("first", 1, 50, START), second)["second"] == (None, 0)


def consoles(*names: str, seconds: Sequence[float] = (3600.1, 3600.4)) -> list[dict[str, Rows]]:
    """The Trainer's dicts as each node of a job prints them to a file of its own, unstamped."""
    run = {"log_format": "hf-trainer", "framework": "transformers", "evidence": ["clock"]}
    out = []
    for name, whole in zip(names, seconds, strict=True):
        rows = [
            {"step": n, "loss": round(8 / n + 1 / 7, 10), "since_start_s": round(n / 40 * whole)}
            for n in range(2, 41, 2)
        ]
        ended = {"run_id": name, "kind": "end", "seconds": whole, "line": 99}
        out.append(source(name, rows, **run) | {"events": [ended]})
    return out


@pytest.mark.parametrize(
    ("names", "seconds", "doubted"),
    [
        (("node0.log", "node1.log"), (3600.1, 3600.4), True),
        (("worker-1/train.log", "worker-2/train.log"), (3600.1, 3600.4), True),
        (("node0.log", "node1.log"), (3600.1, 3604.0), False),
        (("node0/a.log", "node1/b.log"), (3600.1, 3600.4), False),
        (("seed0.log", "seed1.log"), (3600.1, 3600.4), False),
    ],
)
def test_what_may_be_two_nodes_of_one_job_says_so(
    names: Sequence[str], seconds: Sequence[float], *, doubted: bool
) -> None:
    """They were two runs of one setup, without a word."""
    united = merge_launches(tables(*consoles(*names, seconds=seconds)))
    assert len(united.members) == 2
    assert set(united.doubts) == (set(names) if doubted else set())
    assert all(NODES_MAY_FIT in said for whole in united.doubts.values() for said in whole)


# -- evidence just within its bounds, and just beyond ------------------------------------------


def stamped(seed: int = 3, **shift: float) -> Rows:
    """Losses and stamps to the microsecond; shift: as for `timedelta`."""
    times = np.cumsum(2 + np.random.default_rng(seed).standard_normal(40) ** 2)
    return [
        {
            "step": i,
            "loss": round(8 / i + 1 / 7, 4),
            "logged_at": START + timedelta(**shift, seconds=t),
        }
        for i, t in enumerate(times.tolist(), 1)
    ]


@pytest.mark.parametrize(("late_s", "one"), [(0.5, True), (1.9, True), (2.1, False), (-2.1, False)])
def test_stamps_of_one_zone_may_be_two_seconds_apart(late_s: float, *, one: bool) -> None:
    late = [row | {"logged_at": row["logged_at"] + timedelta(seconds=late_s)} for row in stamped()]
    found = groups(source("a", stamped()), source("b", late, log_format="events"))
    assert (len(found) == 1) is one


def test_two_moments_are_evidence_by_the_chance_of_the_day_that_brings_them_as_near() -> None:
    """Of all times of a day at which another launch may run, 2**-b have b bits or more."""
    same_zone: Any = SimpleNamespace(run={"utc": False})
    stamps, unit = np.array([10.25, 20.5]), 0.01
    found = [
        _moment(same_zone, same_zone, stamps, stamps + late)
        for late in np.arange(-3, 3, unit) + unit / 2
    ]
    for bits in (14.5, 15.0, 16.0):
        share = sum(each is not None and each >= bits for each in found) * unit / 86_400
        assert share == pytest.approx(2**-bits, rel=0.02)


@pytest.mark.parametrize(
    ("minutes", "one"),
    [(60 * 14, True), (-60 * 14, True), (60 * 14 + 15, False), (345, True), (340, False)],
)
def test_zones_are_quarters_of_an_hour_and_at_most_fourteen_hours(
    minutes: int, *, one: bool
) -> None:
    away = source("b", stamped(minutes=minutes), log_format="events", utc=True)
    assert (len(groups(source("a", stamped()), away)) == 1) is one


@pytest.mark.parametrize(("late", "one"), [(1, True), (2, False)])
def test_of_ten_stamps_one_may_be_written_late(late: int, *, one: bool) -> None:
    """Of 40 stamps in another zone, without losses; a late one spoils two of the 39 advances."""
    rows = without(stamped(hours=8), "loss")
    for row in rows[5 : 5 + 6 * late : 6]:
        row["logged_at"] += timedelta(seconds=1.5)
    console = source("a", without(stamped(), "loss"))
    found = groups(console, source("b", rows, log_format="events", utc=True))
    assert (len(found) == 1) is one


@pytest.mark.parametrize(("slower", "one"), [(1.028, True), (1.032, False)])
def test_ranks_that_wait_for_each_other_take_about_as_long(slower: float, *, one: bool) -> None:
    first, second = tracked("a", 0, 1), tracked("a", 1, 1)
    for mine, its in zip(first["steps"], second["steps"], strict=True):
        its["elapsed_s"] = mine["elapsed_s"] * slower
    assert (len(groups(first, second)) == 1) is one
    for its in second["steps"]:  # what it waits for data counts too
        its["data_s"] = its["elapsed_s"] * (1 / slower - 1)
    assert len(groups(first, second)) == 1


def test_ranks_of_other_steps_or_of_one_step_are_not_one_launch() -> None:
    first, second = tracked("a", 0, 1), tracked("a", 1, 1)
    for at in (0, 19):
        assert len(groups(first, second | {"steps": second["steps"][at : at + 1]})) == 2
    assert len(groups(first, second | {"steps": second["steps"][-2:]})) == 2  # too few losses
    other = [row | {"loss": row["loss"] + 0.1} for row in second["steps"]]
    assert len(groups(first, second | {"steps": other})) == 2


@pytest.mark.parametrize(("count", "one"), [(1, False), (2, True)])
def test_two_stamps_at_one_time_make_one_launch_of_two_ranks(count: int, *, one: bool) -> None:
    first, second = (
        source(rank, [row | {"rank": rank} for row in measured(1, count)]) for rank in "01"
    )
    assert (len(groups(first, second)) == 1) is one


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e5])
def test_what_an_event_file_rounds_to_32_bits_contradicts_nothing(scale: float) -> None:
    """Printed as doubles, such figures have many digits that are not the console's."""
    exact = [row | {"loss": row["loss"] * scale} for row in without(measured(1), "logged_at")]
    rounded = [
        row | {name: float(np.float32(row[name])) for name in ("loss", "elapsed_s")}
        for row in exact
    ]
    assert groups(source("a", exact), source("b", rounded, log_format="e")) == [["a", "b"]]


@pytest.mark.parametrize(("steps", "one"), [(39, True), (40, True), (41, True), (42, False)])
def test_the_bars_of_a_job_end_before_its_dicts_would_print_again(steps: int, *, one: bool) -> None:
    """The dicts end at step 40, two steps after the line before; the bars have the same end."""
    assert (len(groups(*streams("a.out", "a.err", steps=steps))) == 1) is (one and steps >= 40)


@pytest.mark.parametrize(("off_s", "one"), [(-1.4, True), (-1.6, False), (1.4, True), (1.6, False)])
def test_a_bar_of_whole_seconds_ends_with_the_run_time(off_s: float, *, one: bool) -> None:
    found = groups(*streams("a.out", "a.err", runtime=3600.0 + off_s))
    assert (len(found) == 1) is one


@pytest.mark.parametrize(("seconds", "doubted"), [(3601.5, True), (3601.7, False)])
def test_nodes_end_within_a_second_and_a_half(seconds: float, *, doubted: bool) -> None:
    nodes = consoles("node0.log", "node1.log", seconds=(3600.1, seconds))
    assert bool(merge_launches(tables(*nodes)).doubts) is doubted


def test_the_whole_run_time_decides_as_far_as_it_is_printed() -> None:
    """1021.27 may be 1021.2666, 1021.3 may be, 1021.2 may not."""

    def ended(name: str, seconds: float) -> dict[str, Rows]:
        made = source(name, without(measured(1), "elapsed_s", "logged_at"), log_format=name)
        event = {"run_id": name, "line": 90, "kind": "end", "seconds": seconds, "text": ""}
        return made | {"events": [event]}

    exact = ended("a", 1021.2666)
    for seconds, one in ((1021.27, True), (1021.3, True), (1021.2, False), (1021.28, False)):
        assert (len(groups(exact, ended("b", seconds))) == 1) is one, seconds


def test_one_common_step_is_enough_only_of_a_launch_that_has_no_other() -> None:
    console = source("console", measured(1, 20))
    for rows, one in ((measured(1, 20)[19:], False), (measured(1, 20)[15:], True)):
        found = groups(console, source("twin", rows, log_format="scalars"))
        assert (len(found) == 1) is one


def test_twins_need_times_and_losses_that_are_sharp() -> None:
    """Losses of one digit and times of whole seconds agree by chance, or at least may."""
    blunt = [
        row | {"loss": round(row["loss"]), "elapsed_s": round(row["elapsed_s"])}
        for row in without(measured(1), "logged_at")
    ]
    exact = without(measured(1), "logged_at")
    assert len(groups(source("a", exact), source("b", blunt, log_format="scalars"))) == 2
    two = source("b", exact[:2], log_format="scalars")
    assert len(groups(source("a", exact), two)) == 1  # ten digits of two times


def test_a_doubt_is_said_of_both_and_once_for_each_other() -> None:
    one, two = source("one", measured(1)), source("two", measured(2))
    united = merge_launches(tables(one, two, state("s", measured(1))))
    said = {
        name: [words.split(": ")[0] for words in doubts] for name, doubts in united.doubts.items()
    }
    assert said == {
        "s": [f"This may be the same launch as {name}" for name in ("one", "two")],
        "one": ["This may be the same launch as s"],
        "two": ["This may be the same launch as s"],
    }
    linked_to = {name: sorted(others) for name, others in united.linked_sources.items()}
    assert linked_to == {"s": ["one", "two"], "one": ["s"], "two": ["s"]}


# -- some runs against the others --------------------------------------------------------------


def several() -> dict[str, dict[str, Rows]]:
    """Sources of some launches: told twice, of two ranks, in doubt, undated, and days apart."""
    dated = {"started_at": START}
    days = 4 * timedelta(days=1)
    far = [row | {"logged_at": row["logged_at"] + days} for row in measured(5)]
    ranks = [
        source(name, [row | {"rank": name[-1], "loss": row["loss"] + 1} for row in measured(7)])
        for name in ("rank0", "rank1")
    ]
    made = [
        source("console", measured(1, digits=4), facts=3, **dated),
        source("scalars", without(measured(1)[:15], "logged_at"), log_format="s", **dated),
        state("state", measured(1)),
        source("other", measured(2), **dated),
        source("far", far, started_at=START + days),
        source("units", measured(1), step_unit="micro_step", **dated),
        *ranks,
    ]
    return {one["runs"][0]["run_id"]: one for one in made}


def test_some_runs_against_the_others_find_what_all_at_once_do() -> None:
    """Candidates may be more than are linked, never fewer; not those of other days or units."""
    whole = tables(*several().values())
    united = merge_launches(whole)
    linked_to = {name: sorted(others) for name, others in united.linked_sources.items()}
    assert linked_to["rank0"] == ["rank1"]
    assert "scalars" in linked_to["console"]
    met = {}
    for name in several():
        pairs = find_source_links(whole, [name])
        assert all(name in pair for pair in pairs)
        others = sorted(one for pair in pairs for one in pair if one != name)
        assert others == linked_to.get(name, [])
        steps = whole["steps"].filter(pl.col("run_id") == name)
        met[name] = find_candidates(whole["runs"], united.last_steps, steps, [name])
        assert set(others) <= set(met[name])
        assert name not in met[name]
    assert met["far"] == ["state"]  # which has no date
    assert met["units"] == []
    assert "far" not in met["console"]
    assert "console" in met["scalars"]  # whose last step stands inside the other's


def test_candidates_are_those_whose_last_step_the_other_may_have() -> None:
    """The last steps are all that is kept of the others."""
    long, short = source("long", measured(1)), source("short", measured(1)[:12], log_format="s")
    whole = tables(long, short)
    ends = merge_launches(whole).last_steps
    for name, other in (("long", "short"), ("short", "long")):
        steps = whole["steps"].filter(pl.col("run_id") == name)
        assert find_candidates(whole["runs"], ends, steps, [name]) == [other]
    behind = source("behind", [row | {"step": row["step"] + 20} for row in measured(1)])
    whole = tables(long, behind)
    ends = merge_launches(whole).last_steps
    steps = whole["steps"].filter(pl.col("run_id") == "behind")
    assert find_candidates(whole["runs"], ends, steps, ["behind"]) == []
