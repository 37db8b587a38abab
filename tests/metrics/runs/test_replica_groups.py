"""Torchtitan with TorchFT: each replica group is a job with a log; its figures are of its GPUs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest

from fairmfu.ingest.core.schema import TABLES, frame_schema
from fairmfu.ingest.facts import facts as given
from fairmfu.ingest.formats.torchtitan.job_config import job_config_facts
from fairmfu.metrics.compare.comparability import rank_runs
from fairmfu.metrics.core.messages import NOT_RANKED, as_clause
from fairmfu.metrics.pipeline.analysis import Analysis, analyse
from fairmfu.metrics.runs import messages
from fairmfu.metrics.runs.replica_groups import (
    GroupedLaunch,
    group_warnings,
    grouped_launches,
    groups_by_source,
    with_group_facts,
)

STEPS = 100
STEP_S = 2.0
TOKENS = 8192
"""Of a step on one GPU."""

TPS = TOKENS / STEP_S
FLOPS = 57_914_449_920
"""Per token, as Torchtitan counts them."""

DEVICE = "CUDA capacity: NVIDIA H100 80GB HBM3 with 79.11GiB memory"


def log(group: int, *, shard: int = 4, of: int = 2, own_losses: bool = False) -> list[str]:
    """The lines of one group, each step with the manager's, every tenth with Torchtitan's.

    Groups wait for each other at each step; by themselves they add some ms to a line.
    """
    shared, own = np.random.default_rng(9), np.random.default_rng(group)
    lines = list[str]()

    def say(moment: datetime, text: str, name: str = "root") -> None:
        stamp = f"{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03}"
        lines.append(f"[rank0]:[titan] {stamp} - {name} - INFO - {text}")

    now = last = datetime(2025, 7, 16, 13, 40)
    manager = f"[torchtitan_ft_{group}:0b57c1de-8a4e-4c5b-9d5e-2f6f5f1f7a1{group}/0 - step "
    for text in (
        f"Building 1-D device mesh with ['dp_shard'], [{shard}]",
        DEVICE,
        "Model llama3 8B size: 8,030,261,248 total parameters",
        "Applied FSDP to the model",
        f"Trainer is initialized with local batch size 1, global batch size {shard * of}, gradient "
        f"accumulation steps 1, sequence length {TOKENS}, total steps {STEPS} (warmup 20)",
        "Training starts at step 1",
    ):
        say(now, text)
    say(
        now,
        f"{manager}0] reconfiguring for quorum_id=1 store_prefixed_addr='n:1'",
        "torchft.manager",
    )
    for step in range(1, STEPS + 1):
        now += timedelta(seconds=STEP_S + shared.normal(0, 0.01))
        commit = "should_commit=True enough_replicas=True, errored=None"
        say(now, f"{manager}{step - 1}] {commit}", "torchft.manager")
        if step == 1 or not step % 10:
            printed = now + timedelta(milliseconds=own.uniform(1, 6))
            tps = (
                TOKENS
                * (step if step == 1 else 9 if step == 10 else 10)
                / ((printed - last).total_seconds())
            )
            loss = 12 - step / 20 + (own if own_losses else shared).normal(0, 0.01)
            norm = 2 + shared.random()
            say(
                printed,
                f"step: {step:2}  loss: {loss:7.4f}  grad_norm: {norm:7.4f}  memory: 42.16GiB"
                f"(53.29%)  tps: {tps:,.0f}  tflops: {tps * FLOPS / 1e12:.2f}  "
                f"mfu: {100 * tps * FLOPS / 989e12:.2f}%",
            )
            last = printed
    say(now + timedelta(seconds=3), "Training completed")
    return lines


Read = Callable[..., Analysis]


@pytest.fixture
def read(ingest: Any, store: Any, logs: Any) -> Read:
    """What is computed of logs with these lines."""

    def analysed(*texts: Sequence[str], flags: Sequence[str] = ()) -> Analysis:
        for number, lines in enumerate(texts):
            (logs / f"job_{number}.log").write_text("".join(f"{line}\n" for line in lines))
        ingest(logs, flag_facts=given.facts_from_flags(list(flags)))
        return analyse({name: store.table(name) for name in TABLES})

    return analysed


def reasons(found: Analysis) -> list[list[str]]:
    """Why each run is not ranked."""
    return rank_runs(found.metrics)["not_ranked"].to_list()


def kinds(found: Analysis) -> list[list[str]]:
    """Identifiers of the warnings of each run."""
    return found.metrics["warning_kinds"].to_list()


def assert_number_unknown(found: Analysis) -> None:
    """Hold that a run is not ranked, as the number of its groups is unknown."""
    (row,) = found.metrics.iter_rows(named=True)
    said = dict(zip(row["warning_kinds"], row["warnings"], strict=True))
    missing = said[messages.GROUPS_MISSING.identifier]
    assert re.search(r"\(logs here: [01]; groups in all: unknown\)", missing)
    assert missing.startswith(NOT_RANKED)
    assert as_clause(missing) in reasons(found)[0]


def test_groups_are_one_run_of_all_their_gpus(read: Read) -> None:
    found = read(log(0), log(1))
    row = found.metrics.row(0, named=True)
    assert found.metrics.height == 1
    assert (row["gpus"], row["global_batch_size"], row["replicas"]) == (8, 8, 2)
    assert row["tgs"] == pytest.approx(TPS, rel=0.005)
    assert row["tokens_per_second"] == pytest.approx(8 * row["tgs"])
    assert row["tokens_per_gpu_step"] == TOKENS
    assert row["warnings"] == []
    assert reasons(found) == [[]]
    assert row["ranks"] == 2
    assert found.facts(row["run_id"])["gpus"]["origin"] == "log, of replica groups 0, 1 together"


def hsdp() -> list[str]:
    """The lines of one job, a day later, whose mesh is of as many replicas and shards."""
    mesh = "Building 2-D device mesh with ['dp_replicate', 'dp_shard'], [2, 4]"
    lines = [line for line in log(0) if "torchft" not in line]
    lines[0] = lines[0].partition("Building")[0] + mesh
    return [
        line.replace("2025-07-16", "2025-07-17").replace("loss:  ", "loss: 1") for line in lines
    ]


def test_groups_are_no_repeat_of_one_job_of_as_many_replicas(read: Read) -> None:
    """What TorchFT costs is what is compared: both were taken for one setup, tried twice."""
    known = ["framework_version=0.2.0", "recompute=none", "packed=true"]
    found = read(log(0), log(1), hsdp(), flags=known)
    assert found.metrics.sort("replica_groups")["replica_groups"].to_list() == [None, 2]
    assert found.metrics.select("gpus", "replicas", "global_batch_size").unique().height == 1
    ranked = rank_runs(found.metrics)
    assert ranked["group"].n_unique() == 1
    assert sorted(ranked["setup"]) == ["A", "B"]


def test_a_group_alone_is_of_its_own_gpus_and_not_ranked(read: Read) -> None:
    """Its log has the batch of all: tokens of a step were twice those that its GPUs trained."""
    found = read(log(1))
    row = found.metrics.row(0, named=True)
    assert (row["gpus"], row["global_batch_size"]) == (4, 4)
    assert row["tgs"] == pytest.approx(TPS, rel=0.005)
    assert row["tokens_per_gpu_step"] == TOKENS
    (why,) = reasons(found)
    assert "(logs here: 1; groups in all: 2)" in why[0]
    assert kinds(found) == [[messages.GROUPS_MISSING.identifier]]


def test_a_group_that_trains_alone_is_all_of_them(read: Read) -> None:
    found = read(log(0, of=1))
    assert found.metrics.row(0, named=True)["gpus"] == 4
    assert reasons(found) == [[]]


def test_how_many_groups_there_are_can_be_unknown(read: Read) -> None:
    headless = [line for line in log(0) if "Trainer is initialized" not in line]
    found = read(headless, flags=[f"seq_len={TOKENS}"])
    row = found.metrics.row(0, named=True)
    assert row["tgs"] == pytest.approx(TPS, rel=0.005)
    assert_number_unknown(found)


@pytest.mark.parametrize("size", ["0", "1" * 5000, "3"])
def test_batches_that_no_groups_share_say_nothing_of_their_number(size: str, read: Read) -> None:
    odd = [line.replace("local batch size 1,", f"local batch size {size},") for line in log(0)]
    assert_number_unknown(read(odd))


def test_a_log_without_a_header_says_its_group_alone(read: Read) -> None:
    bare = [line for line in log(1) if "root" not in line or " step: " in line]
    assert_number_unknown(read(bare, flags=["gpus=4"]))


def test_a_config_beside_two_logs_does_not_make_them_one_group(read: Read, logs: Any) -> None:
    """It is that of the group which wrote it; what a log says of itself goes before it."""
    both = {"enable": True, "group_size": 2, "replica_id": 0}
    config = {"training": {}, "optimizer": {}, "fault_tolerance": both}
    (logs / "config.json").write_text(json.dumps(config))
    found = read(log(0), log(1))
    assert found.metrics["gpus"].to_list() == [8]
    assert reasons(found) == [[]]


def test_groups_that_keep_losses_of_their_own_stay_apart(read: Read) -> None:
    """As those of DiLoCo do between two exchanges of weights."""
    found = read(log(0, own_losses=True), log(1, own_losses=True))
    assert found.metrics["gpus"].to_list() == [4, 4]
    missing = re.findall(r"logs here: (\d+); groups in all: (\d+)\)", str(reasons(found)))
    assert sorted(missing) == [("0", "2"), ("1", "2")]


def test_groups_in_one_log_cannot_be_told_apart(read: Read) -> None:
    both = sorted([*log(0), *log(1)], key=lambda line: line[15:39])
    found = read(both)
    row = found.metrics.row(0, named=True)
    assert (row["gpus"], row["tokens_per_second"]) == (None, None)
    assert as_clause(messages.GROUPS_IN_ONE_LOG(groups="0, 1")) in reasons(found)[0]


def test_a_group_that_was_away_keeps_the_run_out_of_the_ranking(read: Read) -> None:
    dead = [line for line in log(1) if " step: 40 " not in line and " step: 50 " not in line]
    found = read(log(0), dead)
    assert found.metrics["gpus"].to_list() == [8]
    assert "(group 1 lacks 2 of 10)" in str(reasons(found))


def test_a_log_may_end_a_line_earlier_than_the_others(read: Read) -> None:
    found = read(log(0), [line for line in log(1) if f"step: {STEPS} " not in line])
    assert reasons(found) == [[]]


def test_groups_of_unlike_size_are_not_ranked(read: Read) -> None:
    """The mean of their rates is not that of their GPUs."""
    found = read(log(0), log(1, shard=8, of=1))
    assert found.metrics["gpus"].to_list() == [12]
    assert as_clause(messages.GROUPS_UNEQUAL()) in reasons(found)[0]


def test_gpus_given_by_hand_are_those_of_the_run(read: Read) -> None:
    found = read(log(0), log(1), flags=["gpus=8"])
    assert found.metrics["gpus"].to_list() == [8]


@pytest.mark.parametrize(
    ("config", "facts"),
    [
        (
            {"enable": True, "group_size": 2, "replica_id": 0},
            {"replica_groups": "2", "replica_group": "0"},
        ),
        ({"enable": True, "group_size": 0, "replica_id": 1}, {"replica_group": "1"}),
        ({"enable": True, "group_size": "2", "replica_id": None}, {}),
        ({"enable": False, "group_size": 2, "replica_id": 1}, {}),
    ],
)
def test_the_job_config_says_the_group(config: dict[str, Any], facts: dict[str, str]) -> None:
    assert job_config_facts({"fault_tolerance": config}) == facts


# -- the rules, on facts alone -----------------------------------------------------------------


def stated(*rows: tuple[str, str, object, str]) -> pl.DataFrame:
    """Run, name, value and origin of each fact."""
    made = [
        {"run_id": run, "name": name, "value": str(value), "origin": origin, "sequence": place}
        for place, (run, name, value, origin) in enumerate(rows)
    ]
    schema = frame_schema("facts")
    return pl.DataFrame([{c: row.get(c) for c in schema} for row in made], schema=schema)


def of_groups(*groups: int, count: int | None, gpus: Sequence[int | None] = ()) -> pl.DataFrame:
    """Facts of sources r0, r1, …: each of a group, with its GPUs and a batch of 12 of all."""
    rows: list[tuple[str, str, object, str]] = []
    for place, group in enumerate(groups):
        run = f"r{place}"
        rows += [(run, "replica_group", group, "log:1"), (run, "global_batch_size", 12, "log:2")]
        if count is not None:
            rows.append((run, "replica_groups", count, "log:3"))
        if place < len(gpus) and gpus[place] is not None:
            rows.append((run, "gpus", gpus[place], "log:4"))
    return stated(*rows)


def launched(facts: pl.DataFrame) -> list[GroupedLaunch]:
    """All sources as one launch, led by r0."""
    ids = facts["run_id"].unique(maintain_order=True)
    return grouped_launches(groups_by_source(facts), facts, {"r0": [{"run_id": i} for i in ids]})


def facts_of(facts: pl.DataFrame) -> dict[str, str]:
    """What the launch's facts are then; pooled as if they were all the lead's."""
    pooled = facts.with_columns(run_id=pl.lit("r0")).unique(["name"], maintain_order=True)
    return dict(with_group_facts(facts, pooled, launched(facts)).select("name", "value").rows())


def test_the_groups_of_a_launch_are_in_order_and_of_their_first_source() -> None:
    (found,) = launched(of_groups(2, 0, 2, count=3))
    assert (found.groups, found.sources, found.groups_in_one_log) == ([0, 2], ["r1", "r0"], [])
    assert (found.group_count, found.is_incomplete) == (3, True)
    assert not launched(of_groups(1, 0, count=2))[0].is_incomplete
    assert launched(of_groups(1, 0, count=None))[0].is_incomplete
    assert launched(stated(("r0", "gpus", 8, "log:1"))) == []


def test_a_group_that_the_log_says_goes_before_one_of_a_config() -> None:
    facts = stated(("r0", "replica_group", 1, "log:3"), ("r0", "replica_group", 0, "companion"))
    assert groups_by_source(facts) == {"r0": [1]}
    both = stated(*(("r0", "replica_group", n, f"log:{n}") for n in (1, 0, 1)))
    assert groups_by_source(both) == {"r0": [0, 1]}


@pytest.mark.parametrize(
    ("groups", "count", "batch"),
    [((0, 1), 3, "8"), ((0,), 3, "4"), ((0, 1), 2, "12"), ((0, 1, 2), 5, None), ((0,), None, "12")],
)
def test_the_batch_is_the_share_of_the_groups_that_are_told_of(
    groups: Sequence[int], count: int | None, batch: str | None
) -> None:
    """Of 12 in equal shares; three of five groups would have 7.2."""
    assert facts_of(of_groups(*groups, count=count)).get("global_batch_size") == batch


def test_gpus_of_groups_are_summed_where_all_are_known() -> None:
    assert facts_of(of_groups(0, 1, count=2, gpus=(4, 8)))["gpus"] == "12"
    assert "gpus" not in facts_of(of_groups(0, 1, count=2, gpus=(4, None)))
    alone = facts_of(of_groups(1, count=2, gpus=(4,)))
    assert (alone["gpus"], alone["replica_group"]) == ("4", "1")
    assert "replica_group" not in facts_of(of_groups(0, 1, count=2, gpus=(4, 4)))
    by_hand = of_groups(0, 1, count=2, gpus=(4, 4)).with_columns(
        origin=pl.when(pl.col("name") == "gpus").then(pl.lit("flag")).otherwise("origin")
    )
    assert facts_of(by_hand)["gpus"] == "4"


def test_steps_before_the_last_that_a_group_lacks_are_counted() -> None:
    facts = of_groups(0, 1, count=2, gpus=(4, 4))
    rows = [("0", step) for step in (1, 2, 3, 4)] + [("1", step) for step in (1, 3)]
    steps = pl.DataFrame(
        [{"run_id": "r0", "step": step, "rank": f"{group}/0"} for group, step in rows]
    )
    (words,) = group_warnings(steps, facts, launched(facts))["r0"]
    assert words.kind == messages.GROUPS_LACK_STEPS.identifier
    assert "(group 1 lacks 1 of 3)" in words
    whole = steps.filter(pl.col("step") != 2)
    assert group_warnings(whole, facts, launched(facts)) == {}
    unlike = of_groups(0, 1, count=3, gpus=(4, 8))
    reasons_ = group_warnings(whole, unlike, launched(unlike))["r0"]
    assert ["; groups in all: 3)" in words for words in reasons_] == [True, False]
    kinds_ = [messages.GROUPS_MISSING.identifier, messages.GROUPS_UNEQUAL.identifier]
    assert [words.kind for words in reasons_] == kinds_
