"""Actions after a run: each has a reason in the log, and the largest gain comes first."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.core.schema import OUTCOMES, PHASES
from fairmfu.metrics.core.run_table import METRICS, MetricsRow
from fairmfu.metrics.diagnosis.next_steps import MAX_STEPS, PLACES, next_steps


def row(**values: object) -> MetricsRow:
    empty: Any = dict.fromkeys(METRICS) | {"outcome": "completed"} | values
    known: MetricsRow = empty
    return known


def kinds(**values: object) -> list[str]:
    return [step.kind.removeprefix("next-") for step in next_steps(row(**values))]


def lost(cause: str, share: float) -> dict[str, Any]:
    return {"cause": cause, "windows": 3, "seconds": 100 * share, "share": share}


def phase(name: str, share: float) -> dict[str, Any]:
    source = {"windows": 9, "source": name, "share_of": "step"}
    return {"phase": name, "seconds": share, "share": share, **source}


def level(first: int, last: int, seconds: float, **phases: float) -> dict[str, Any]:
    timed = [{"phase": name, "seconds": of} for name, of in phases.items()]
    return {
        "from_step": first,
        "to_step": last,
        "seconds_per_step": seconds,
        "phases": timed or None,
    }


def late(kind: str, share: float, **values: object) -> dict[str, Any]:
    whole = {"ranks": "3", "rank_count": 1, "node": None, "shared": False}
    return {**whole, "kind": kind, "share": share, **values}


def test_a_run_without_a_finding_has_no_advice() -> None:
    assert next_steps(row()) == []
    assert kinds(levels=[], tgs=100.0, seconds_per_step=1.0, windows=99, wall_s=990.0) == []


@pytest.mark.parametrize(
    ("facts", "levers"),
    [
        (
            {"micro_batch_size": 8},
            "halve micro_batch_size (8) and double gradient_accumulation, or turn on activation "
            "checkpointing (the log does not say if it is on)",
        ),
        (
            {"micro_batch_size": 1, "recompute": "selective", "zero_stage": 1},
            "checkpoint all activations (recompute is selective), or raise the ZeRO stage (1)",
        ),
        ({"recompute": "full", "zero_stage": 3}, "shard the model over more GPUs"),
    ],
)
def test_memory_that_does_not_suffice_has_levers_by_its_facts(
    facts: dict[str, Any], levers: str
) -> None:
    assert next_steps(row(outcome="out_of_memory", **facts)) == [f"To fit into memory, {levers}."]


@pytest.mark.parametrize(
    ("outcome", "text", "kind"),
    [
        ("crashed", "NCCL error: remote process exited or there was a network error", "first-rank"),
        ("crashed", "Connection reset by peer", "first-rank"),
        ("killed", "*** STEP 1809577.0 ON r6i5n1 CANCELLED AT 2021-05-23 ***", "ask-slurm"),
        ("killed", "*** JOB 7 ON n1 CANCELLED AT 2021-05-23 DUE TO TIME LIMIT ***", "time-limit"),
    ],
)
def test_a_failure_has_its_next_place_to_look(outcome: str, text: str, kind: str) -> None:
    (found,) = kinds(outcome=outcome, outcome_text=text)
    assert found.endswith(kind)


def test_a_run_that_ended_early_is_not_told_to_train_longer() -> None:
    short = {"seconds_per_step": 1.0, "windows": 4, "wall_s": 20.0}
    assert len(next_steps(row(outcome="completed", **short))) == 1
    for outcome in ("crashed", "incomplete"):
        told = next_steps(row(outcome=outcome, last_step=5, total_steps=10, **short))
        assert not [words for words in told if words.startswith("Too short")]


def test_a_log_without_a_known_step_stopped_at_no_step() -> None:
    """It said that the run stopped at step 0."""
    known = row(outcome="incomplete", total_steps=290, last_step=22)
    assert next_steps(known)[0].startswith("The log ends at step 22 of 290:")
    unknown = row(outcome="incomplete", total_steps=290, last_step=None)
    assert next_steps(unknown)[0].endswith("shows how many of 290 steps were trained.")
    assert kinds(outcome="incomplete", total_steps=290, last_step=290) == []


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [("crashed", "find-crash"), ("nan_loss", "find-nan"), ("out_of_memory", "fit-memory")],
)
def test_the_first_step_after_a_failure_is_about_it(outcome: str, kind: str) -> None:
    """A run that crashed was told to save checkpoints less often."""
    slow = {"time_lost": [lost("checkpoint", 0.7), lost("evaluation", 0.2)]}
    found = kinds(outcome=outcome, outcome_text="KeyError: 'labels'", **slow)
    assert found == [kind, "save-less", "evaluate-less"]
    assert kinds(outcome="killed", outcome_text="SIGTERM") == []


@given(stages=st.integers(2, 64), micro=st.integers(1, 256), tensor=st.integers(1, 8))
def test_a_bubble_is_the_same_from_the_batch_as_from_the_accumulation(
    stages: int, micro: int, tensor: int
) -> None:
    waits = {"pipeline_parallel": stages, "phases": [phase("pipeline", 0.3)]}
    (told,) = next_steps(row(gradient_accumulation=micro, **waits))
    batch = {"global_batch_size": 2 * 3 * micro, "micro_batch_size": 2}
    gpus = {"tensor_parallel": tensor, "gpus": 3 * tensor * stages}
    assert next_steps(row(**batch, **gpus, **waits)) == [told]
    idle = round(100 * (stages - 1) / (micro + stages - 1))
    assert f"idle for {idle:.0f} %" in told


def test_a_pipeline_that_hardly_waits_has_no_advice() -> None:
    waits = {"pipeline_parallel": 4, "gradient_accumulation": 8}
    assert kinds(phases=[phase("pipeline", 0.1), phase("collectives", 0.05)], **waits) == []
    assert kinds(phases=[phase("pipeline", 0.1), phase("collectives", 0.15)], **waits) == [
        "pipeline-bubble"
    ]


@given(data=st.floats(0.11, 0.9), evaluation=st.floats(0.05, 0.9), saved=st.floats(0.05, 0.9))
def test_the_largest_gain_comes_first(data: float, evaluation: float, saved: float) -> None:
    found = kinds(
        bound="data",
        data_share=data,
        time_lost=[lost("evaluation", evaluation), lost("checkpoint", saved)],
    )
    gains = {"load-faster": data, "evaluate-less": evaluation, "save-less": saved}
    assert found == sorted(gains, key=lambda kind: -gains[kind])


def test_the_place_of_a_slower_speed_is_its_phase() -> None:
    before = {"forward": 0.1, "backward": 0.2, "data": 0.1, "rest": 0.1}
    for name, more in (("data", 0.3), ("rest", 0.3), ("forward", 0.3)):
        after = before | {name: before[name] + more}
        levels = [level(1, 50, 0.5, **before), level(51, 99, 0.8, **after)]
        (told,) = next_steps(row(levels=levels, wall_s=90.0, windows=99))
        assert PLACES[name] in told
        assert "in steps 51 to 99" in told
    (told,) = next_steps(row(levels=[level(1, 50, 0.5), level(51, 99, 0.8)], wall_s=90.0))
    assert told.endswith(". Turn on phase timers to see the cause.")
    assert kinds(levels=[level(1, 50, 0.8), level(51, 99, 0.5)], wall_s=90.0) == []


def test_every_phase_of_a_step_has_a_place() -> None:
    assert set(PLACES) == set(PHASES) - {"checkpoint", "evaluation"}


def test_data_is_loaded_faster_on_the_ranks_that_are_late_with_it() -> None:
    waits = {"bound": "data", "data_share": 0.4}
    assert kinds(**waits, slow_ranks=[late("data", 0.3)]) == ["check-ranks"]
    assert kinds(**waits, slow_ranks=[late("data", 0.3, shared=True)]) == ["load-faster"]


def test_the_longest_pause_between_steps_is_named() -> None:
    pauses = [
        {"from_step": first, "to_step": first + 89, "seconds_per_step": share, "share": share}
        for first, share in ((260, 0.1), (520, 0.2))
    ]
    (told,) = next_steps(row(pauses=pauses))
    assert told.startswith("Look at what runs between the steps 520 to 609, outside")


def test_late_ranks_are_checked_and_unequal_ones_balanced() -> None:
    slow = [late("compute", 0.2, node="n7"), late("tokens", 0.1), late("data", 0.3, shared=True)]
    told = next_steps(row(slow_ranks=slow))
    assert [step.kind for step in told] == ["next-check-ranks", "next-balance-ranks"]
    assert "GPU clocks and temperature of rank 3 (node n7)" in told[0]


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "outcome": st.sampled_from(sorted(OUTCOMES)),
            "outcome_text": st.text(max_size=30),
            "drift": st.floats(-0.9, 0.9),
            "data_share": st.floats(0, 1),
            "bound": st.sampled_from(["data", "compute"]),
            "memory_changes": st.just([{"kind": "growth"}]),
            "slow_ranks": st.lists(
                st.builds(late, st.sampled_from(["data", "compute", "tokens"]), st.floats(0, 1)),
                max_size=3,
            ),
            "windows": st.integers(1, 20),
            "wall_s": st.floats(0.1, 1e6),
            "seconds_per_step": st.floats(0.001, 10),
        },
    )
)
def test_there_are_few_actions_each_once(values: dict[str, Any]) -> None:
    found = next_steps(row(**values))
    assert len(found) <= MAX_STEPS
    assert all(step.effect == "note" and step.endswith(".") for step in found)
