"""Ranks that the others waited for, in jobs of known truth."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.metrics.core.run_table import metrics_rows, not_null
from fairmfu.metrics.diagnosis.rank_times import times_of_runs
from fairmfu.metrics.diagnosis.slow_ranks import JudgedRanks, LateRanks, judge_ranks
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.reports.text.diagnosis import diagnosis
from tests.support.rank_times import STEP_S, Job

SIZES = pytest.mark.parametrize("ranks", [16, 64, 512])
SYNCED = pytest.mark.parametrize("synced", [True, False])


def judged(job: Job) -> JudgedRanks:
    return judge_ranks(*job.tables())["r"]


def late(job: Job) -> list[LateRanks]:
    return judged(job).late


def only(job: Job) -> LateRanks:
    (found,) = late(job)
    return found


def names(ranks: Iterable[int]) -> tuple[str, ...]:
    return tuple(map(str, sorted(ranks)))


# -- late data -------------------------------------------------------------------------------


@SIZES
@SYNCED
def test_ranks_that_stall_in_data_are_named_and_not_those_that_wait(
    ranks: int, *, synced: bool
) -> None:
    first = ranks // 2
    stall = {first + i: 40 - 0.3 * i for i in range(4)}
    job = Job(ranks, steps=60, synced=synced, late_data=dict.fromkeys((20, 40, 50), stall))
    (row,) = judged(job).rows(None, {})
    assert row["ranks"] == f"{first} to {first + 3}"
    assert (row["rank_count"], row["kind"], row["shared"], row["lasting"]) == (
        4,
        "data",
        False,
        False,
    )
    assert row["node"] == str(first // 8)
    assert (row["steps"], row["first_steps"]) == (3, [20, 40, 50])
    assert row["seconds"] == pytest.approx(120, abs=0.1)
    assert row["longest_s"] == pytest.approx(40, abs=0.1)
    assert row["gpu_hours_lost"] == pytest.approx(120 * ranks / 3600, rel=1e-3)
    assert row["share"] == pytest.approx(120 / (120 + 59 * STEP_S), rel=0.02)


GROUPS = st.integers(2, 40).flatmap(
    lambda ranks: st.tuples(
        st.just(ranks),
        st.dictionaries(
            st.integers(2, 60),
            st.sets(st.integers(0, ranks - 1), min_size=1, max_size=max(1, ranks // 2)),
            min_size=1,
            max_size=6,
        ),
    )
)


@settings(deadline=None, max_examples=40)
@given(
    planted=GROUPS,
    synced=st.booleans(),
    seed=st.integers(0, 99),
    noise=st.floats(0.004, 0.02),
    chance=st.randoms(use_true_random=False),
)
def test_planted_groups_are_found_exactly(
    planted: tuple[int, dict[int, set[int]]],
    *,
    synced: bool,
    seed: int,
    noise: float,
    chance: random.Random,
) -> None:
    ranks, groups = planted
    waits = {
        step: {rank: chance.uniform(3.0, 4.0) for rank in group} for step, group in groups.items()
    }
    job = Job(ranks, steps=60, synced=synced, seed=seed, noise=noise, late_data=waits)
    expected: dict[tuple[str, ...], set[int]] = {}
    for step, group in groups.items():
        expected.setdefault(names(group), set()).add(step)
    found = late(job)
    assert {each.ranks: set(each.steps) for each in found} == expected
    assert {(each.kind, each.shared, each.lasting) for each in found} == {("data", False, False)}
    costs = {
        group: sum(max(waits[step].values()) for step in steps) for group, steps in expected.items()
    }
    assert {each.ranks: each.seconds for each in found} == pytest.approx(costs, abs=0.1)


@SYNCED
def test_a_node_with_a_slow_loader_is_late_in_most_steps(*, synced: bool) -> None:
    """Seconds 0.4 to 0.6 in every step, and once 30 s."""
    waits = {
        step: {r: 0.4 + 0.2 * (r * step % 3) / 2 for r in range(8, 16)} for step in range(1, 121)
    }
    waits[60] = {9: 30.0}
    node, once = sorted(late(Job(late_data=waits, synced=synced)), key=lambda each: each.steps[0])
    assert (node.ranks, node.lasting, len(node.steps)) == (names(range(8, 16)), True, 119)
    assert node.seconds == pytest.approx(119 * 0.55, rel=0.1)
    assert (once.ranks, once.steps, once.lasting) == (("9",), (60,), False)


def test_without_the_late_ranks_all_would_wait_for_the_next() -> None:
    """Rank 3 waits for 40 s, and rank 5 for 15 s in the same step."""
    found = only(Job(late_data={30: {3: 40.0, 5: 15.0}}))
    assert (found.ranks, found.seconds) == (("3",), pytest.approx(25, abs=0.01))


@SIZES
@SYNCED
def test_a_stall_of_all_ranks_has_no_culprit(ranks: int, *, synced: bool) -> None:
    chance = np.random.default_rng(3)
    waits = {step: dict(enumerate(chance.uniform(10, 30, ranks))) for step in (20, 40)}
    found = only(Job(ranks, steps=60, synced=synced, late_data=waits))
    assert (found.shared, found.kind, found.steps) == (True, "data", (20, 40))
    assert len(found.ranks) == ranks
    assert JudgedRanks(found.ranks, [found]).rows(None, {})[0]["node"] is None


def test_exactly_half_of_the_ranks_may_be_late() -> None:
    found = only(Job(late_data={50: dict.fromkeys(range(8, 16), 20.0)}))
    assert (found.ranks, found.shared) == (names(range(8, 16)), False)


# -- healthy jobs ----------------------------------------------------------------------------


@SIZES
@SYNCED
@pytest.mark.parametrize("noise", [0.004, 0.02])
def test_a_healthy_job_has_no_late_rank(ranks: int, noise: float, *, synced: bool) -> None:
    job = Job(ranks, 60, synced, noise=noise)
    assert late(job) == []
    assert late(replace(job, noise=0.004, rank_noise=noise)) == []


@settings(deadline=None, max_examples=40)
@given(
    ranks=st.integers(2, 64),
    synced=st.booleans(),
    noise=st.floats(0.004, 0.02),
    rank_noise=st.floats(0, 0.02),
    seed=st.integers(0),
)
def test_noise_is_no_finding(
    *, ranks: int, synced: bool, noise: float, rank_noise: float, seed: int
) -> None:
    assert late(Job(ranks, 80, synced, noise=noise, rank_noise=rank_noise, seed=seed)) == []


# -- slow computing --------------------------------------------------------------------------


@SIZES
@pytest.mark.parametrize("rank_noise", [0.0, 0.01])
def test_a_slow_gpu_shows_where_waits_are_not_timed(ranks: int, rank_noise: float) -> None:
    """Its time is the long one; what it costs is beyond the next slowest of each step."""
    found = only(Job(ranks, synced=False, slower={3: 0.05}, rank_noise=rank_noise))
    assert (found.ranks, found.kind, found.lasting) == (("3",), "compute", True)
    if not rank_noise:
        assert found.seconds == pytest.approx(119 * 0.05 * STEP_S, rel=0.15)


@SIZES
def test_a_slow_gpu_is_hidden_where_all_times_hold_the_waits(ranks: int) -> None:
    """All ranks print the same time, so a name would be a guess."""
    assert late(Job(ranks, slower={3: 0.05})) == []


def test_a_slow_node_is_one_group() -> None:
    slower = dict.fromkeys(range(24, 32), 0.05)
    assert only(Job(64, synced=False, slower=slower)).ranks == names(range(24, 32))


def test_long_steps_of_some_ranks_are_theirs_where_waits_are_not_timed() -> None:
    planted = {50: {2: 1.0, 3: 1.1}, 70: {2: 5.0, 3: 5.0}}
    found = only(Job(late_compute=planted, synced=False))
    assert (found.ranks, found.steps, found.kind) == (("2", "3"), (50, 70), "compute")
    assert found.seconds == pytest.approx(6.1, abs=0.1)


@pytest.mark.parametrize("planted", [{"all_slower": {50: 1.0}}, {"late_compute": {50: {2: 2.0}}}])
def test_a_step_that_is_long_on_all_ranks_names_none(planted: dict[str, Any]) -> None:
    found = only(Job(**planted))
    assert (found.kind, found.shared, found.steps) == ("compute", True, (50,))
    assert len(found.ranks) == 16


def test_a_long_step_is_found_without_any_tokens() -> None:
    steps, runs, windows = Job(all_slower={50: 1.0}).tables()
    unknown = steps.with_columns(rank_tokens=pl.lit(None, pl.Float64))
    (found,) = judge_ranks(unknown, runs, windows)["r"].late
    assert (found.kind, found.steps) == ("compute", (50,))


def test_a_checkpoint_or_warm_up_is_no_slow_step() -> None:
    steps, runs, windows = Job(all_slower={2: 3.0, 50: 1.0}).tables()
    known = windows.with_columns(disturbed=pl.col("step") == 50, warming=pl.col("step") < 5)
    assert judge_ranks(steps, runs, known)["r"].late == []


# -- work ------------------------------------------------------------------------------------


@SYNCED
@pytest.mark.parametrize("kind", ["each step", "one rank"])
def test_ranks_with_more_tokens_are_rightly_slower(kind: str, *, synced: bool) -> None:
    chance = np.random.default_rng(5)
    uneven = 1 + 0.3 * chance.random((120, 16))
    work = uneven if kind == "each step" else 1 + 0.3 * (np.arange(16) == 5)
    assert late(Job(work=np.asarray(work), synced=synced)) == []


def test_a_slow_gpu_is_found_among_uneven_tokens() -> None:
    work = 1 + 0.3 * np.random.default_rng(5).random((120, 16))
    found = only(Job(work=work, synced=False, slower={3: 0.08}))
    assert (found.ranks, found.kind) == (("3",), "compute")


def test_a_growing_batch_is_no_slow_step() -> None:
    assert late(Job(work=np.linspace(1, 4, 120)[:, None])) == []


def test_the_work_of_a_slow_step_names_a_rank() -> None:
    """One rank's pack holds one long document, another's step has twice the tokens."""
    work = np.ones((120, 16))
    work[69, 8:12] = 2.0
    job = Job(late_compute={50: {6: 2.0}}, attention={50: {6: 0.8}}, work=work)
    documents, tokens = sorted(late(job), key=lambda each: each.steps)
    assert (documents.ranks, documents.kind, documents.steps) == (("6",), "documents", (50,))
    assert (tokens.ranks, tokens.kind, tokens.steps) == (names(range(8, 12)), "tokens", (70,))


# -- tables ----------------------------------------------------------------------------------


def test_one_rank_or_no_times_are_not_judged() -> None:
    steps, runs, windows = Job(late_data={20: {3: 40.0}}).tables()
    assert judge_ranks(steps.filter(rank="0"), runs, windows) == {}
    untimed = steps.with_columns(elapsed_s=None, logged_tgs=None)
    assert (
        judge_ranks(
            untimed.cast({"elapsed_s": pl.Float64, "logged_tgs": pl.Float64}), runs, windows
        )
        == {}
    )
    assert judge_ranks(steps.filter(pl.col("step") < 4), runs, windows) == {}


def test_a_rate_with_tokens_is_a_time() -> None:
    steps, runs, windows = Job(late_data={20: {3: 40.0}}).tables()
    rates = steps.with_columns(elapsed_s=pl.lit(None, pl.Float64))
    assert judge_ranks(rates, runs, windows)["r"].late[0].ranks == ("3",)


def test_time_that_includes_data_is_split() -> None:
    steps, runs, windows = Job(late_data={20: {3: 40.0}}).tables()
    whole = steps.with_columns(pl.col("elapsed_s") + pl.col("data_s"))
    within = runs.with_columns(elapsed_excludes_data=False)
    assert (
        judge_ranks(whole, within, windows)["r"].late == judge_ranks(steps, runs, windows)["r"].late
    )


def test_a_mean_over_several_steps_costs_all_of_them() -> None:
    steps, runs, windows = Job(late_data={20: {3: 4.0}}).tables()
    sparse = windows.with_columns(pl.col("step") * 10, elapsed_span=10.0)
    (found,) = judge_ranks(steps.with_columns(pl.col("step") * 10), runs, sparse)["r"].late
    assert (found.steps, found.seconds) == ((200,), pytest.approx(40, abs=0.1))


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(2, 60)), max_size=150), st.integers(0, 99))
def test_missing_lines_change_nothing(missing: list[tuple[int, int]], seed: int) -> None:
    """Lines of ranks that do not stall may be cut off, up to half of a step's."""
    planted = {30: {8: 9.0, 9: 9.0}}
    steps, runs, windows = Job(20, 60, seed=seed, late_data=planted).tables()
    lost = pl.DataFrame(
        {"rank": [str(rank) for rank, _ in missing], "step": [step for _, step in missing]},
        schema={"rank": pl.String, "step": pl.Int64},
    )
    (found,) = judge_ranks(steps.join(lost, on=["rank", "step"], how="anti"), runs, windows)[
        "r"
    ].late
    assert (found.ranks, found.steps) == (("8", "9"), (30,))


VALUE = st.none() | st.sampled_from([0.0, 1e-9, 0.5, 1.0, 2.0, 40.0, 1e6])
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "rank": st.sampled_from(["0", "1", "2", "10", "1:0", "host"]),
            "step": st.integers(1, 14),
            "elapsed_s": VALUE,
            "data_s": VALUE,
            "rank_tokens": VALUE,
            "attention_ratio": VALUE,
            "logged_tgs": VALUE,
        }
    ),
    max_size=90,
)


@pytest.mark.filterwarnings("error")
@settings(deadline=None, max_examples=40)
@given(rows=ROWS, excludes=st.booleans())
def test_any_values_give_finite_costs(rows: list[dict[str, Any]], *, excludes: bool) -> None:
    """Numpy's warnings are errors in the analysis."""
    steps, runs, windows = Job(ranks=2, steps=14).tables()
    mixed = pl.DataFrame([{"run_id": "r"} | row for row in rows], schema=steps.schema)
    about = runs.with_columns(elapsed_excludes_data=excludes)
    for _, times in times_of_runs(mixed, about, windows):
        assert not (times.data > times.wall).any()
    for ranks in judge_ranks(mixed, about, windows).values():
        for row in ranks.rows(None, {}):
            assert 0 < row["longest_s"] <= row["seconds"] < float("inf")
            assert 0 < row["share"] <= 1
            assert 0 < row["rank_count"] <= len(ranks.ranks)
            assert row["first_steps"] == sorted(row["first_steps"])


def test_the_cheapest_of_many_groups_are_one() -> None:
    planted = {step: {step % 40: 3.0 + step / 100} for step in range(2, 37)}
    found = late(Job(40, 60, late_data=planted))
    assert len(found) == 21
    assert sum(len(each.steps) for each in found) == 35
    assert [each.seconds for each in found] == sorted((e.seconds for e in found), reverse=True)


# -- what XTuner's script finds ---------------------------------------------------------------


def marked(steps: pl.DataFrame) -> dict[int, str | None]:
    """Return the steps that .dev_scripts/analyze_train_logs.py of XTuner marks.

    Their median rate is below 0.7 of the run's after step 1. If some rank waits for data for longer
    than 1 s and 10 usual waits, its value is the longest waiting rank.
    """
    later = steps.filter(pl.col("step") > 1)
    of_step = later.group_by("step").agg(
        rate=pl.col("logged_tgs").median(),
        wait=pl.col("data_s").median(),
        most=pl.col("data_s").max(),
        rank=pl.col("rank").sort_by("data_s").last(),
    )
    usual = of_step.select(pl.col("rate", "wait").median()).row(0, named=True)
    slow = of_step.filter(pl.col("rate") < 0.7 * usual["rate"])
    limit = max(1.0, 10 * usual["wait"])
    return {
        row["step"]: row["rank"] if row["most"] > limit else None
        for row in slow.iter_rows(named=True)
    }


@settings(deadline=None, max_examples=25)
@given(
    waits=st.dictionaries(
        st.integers(2, 60),
        st.dictionaries(st.integers(0, 15), st.floats(0.1, 50), max_size=16),
        max_size=6,
    ),
    slower=st.dictionaries(st.integers(2, 60), st.floats(0.1, 3), max_size=6),
    seed=st.integers(0, 99),
)
def test_each_step_and_rank_of_xtuner_s_script_is_found(
    waits: dict[int, dict[int, float]], slower: dict[int, float], seed: int
) -> None:
    job = Job(steps=60, late_data=waits, all_slower=slower, seed=seed)
    found = late(job)
    for step, rank in marked(job.tables()[0]).items():
        causes = [each for each in found if step in each.steps]
        assert causes, step
        if rank is not None:
            assert any(rank in each.ranks and each.kind == "data" for each in causes), (step, rank)


# -- a log -----------------------------------------------------------------------------------

LINE = (
    "[XTuner][RANK {rank}][2026-11-02 09:{minute:02}:{second:02}][INFO] Epoch 1 Step {step}/60 "
    "data_time: {data:.4f} lr: 5.000000e-04 time: {time:.4f} text_tokens: 65000 img_tokens: 0.0 "
    "total_consumed_tokens: {total} reduced_llm_loss: {loss:.8f}, max_memory: 41.23 GB "
    "reserved_memory: 45.00 GB grad_norm: 1.234 tgs: {tgs:.1f} e2e_tgs: 31000.0"
)


def log_of(job: Job) -> str:
    """Return a log of XTuner v1 with the lines of all ranks."""
    steps, _, _ = job.tables()
    lines, seconds = [], 0.0
    for row in steps.iter_rows(named=True):
        step, time, data = row["step"], row["elapsed_s"], row["data_s"]
        seconds += (time + data) / job.ranks
        more = {"total": step * 65_000 * job.ranks, "loss": 8 - step / 40, "tgs": 65_000 / time}
        minute, second = divmod(int(seconds), 60)
        lines.append(
            LINE.format(
                rank=row["rank"],
                step=step,
                time=time,
                data=data,
                minute=minute,
                second=second,
                **more,
            )
        )
    return "\n".join(lines) + "\n"


def test_a_log_of_all_ranks_names_the_late_node(logs: Path) -> None:
    """Ranks 8 to 11 of two nodes stall for 40 s in two steps: 80 s of 16 GPUs."""
    stall = {rank: 40 - 0.3 * (rank - 8) for rank in range(8, 12)}
    log = logs / "stderr.log"
    log.write_text(log_of(Job(steps=60, noise=0.004, late_data={20: stall, 40: stall})))
    (row,) = metrics_rows(analyse(read_log_tables(log)).metrics)
    (found,) = not_null(row["slow_ranks"])
    assert (found["ranks"], found["node"], found["first_steps"]) == ("8 to 11", "1", [20, 40])
    told = diagnosis(row)
    assert (
        "Ranks: 8 to 11 (node 1) waited for data in steps 20 and 40, 40 s a step: 0.36 GPU-hours "
        "of all 16 GPUs lost."
    ) in told
    assert (
        "Next: Check data loading and storage of ranks 8 to 11 (node 1): all other ranks wait for "
        "them."
    ) in told


def test_waits_for_a_late_rank_are_no_doubt_about_the_tokens(logs: Path) -> None:
    """The others' rates include the wait, and data loading must not be taken off them again."""
    log = logs / "stderr.log"
    stall = dict.fromkeys(range(8, 12), 40.0)
    log.write_text(log_of(Job(steps=60, late_data=dict.fromkeys((20, 40, 50), stall))))
    (row,) = metrics_rows(analyse(read_log_tables(log)).metrics)
    assert not_null(row["data_share"]) > 0.4
    assert row["doubts"] == []


def test_a_log_of_one_rank_says_nothing_of_ranks(logs: Path) -> None:
    log = logs / "stderr.log"
    log.write_text(log_of(Job(ranks=1, steps=60)))
    (row,) = metrics_rows(analyse(read_log_tables(log)).metrics)
    assert row["slow_ranks"] is None
