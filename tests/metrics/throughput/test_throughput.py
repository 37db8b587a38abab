"""Windows and rates on a few rows that one can work out by hand."""

from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest

from fairmfu.ingest.core.schema import frame_schema
from fairmfu.ingest.store.run_quirks import with_quirks
from fairmfu.metrics.compare.missing_rate import explain_missing_rate
from fairmfu.metrics.core.messages import NOT_RANKED, Message, MessageKind, as_clause
from fairmfu.metrics.throughput import messages
from fairmfu.metrics.throughput.end_to_end import launch_clocks
from fairmfu.metrics.throughput.resolved_facts import (
    NONSTANDARD_OBJECTIVES,
    resolve_facts,
    typed_facts,
)
from fairmfu.metrics.throughput.throughput import summarise
from fairmfu.metrics.throughput.warmup import mark_warm_up_and_stalls
from fairmfu.metrics.throughput.windows import build_windows, fold_ranks, steady_window_rows
from tests.support.kinds import of_kind

NO_CLEAN_WINDOW = messages.NO_CLEAN_WINDOW()
NO_OPTIMIZER_STEP = messages.NO_OPTIMIZER_STEP()
NO_TIMES = messages.NO_TIMES()
NO_TOKENS = messages.NO_TOKENS()
ONLY_LAST_LINE = messages.ONLY_LAST_LINE(rate=" (8 samples/s)")

START = datetime(2026, 1, 1)


def frame(table: str, *rows: dict) -> pl.DataFrame:
    schema = frame_schema(table)
    made = pl.DataFrame([{n: row.get(n) for n in schema} for row in rows], schema=schema)
    return with_quirks(made) if table == "runs" else made


def run(**about: object) -> pl.DataFrame:
    base = {"run_id": "r", "name": "r", "step_unit": "optimizer_step", "evidence": ["elapsed"]}
    flags = {"elapsed_excludes_data": False, "rate_excludes_data": False, "synthetic": False}
    return frame("runs", base | flags | about)


def facts(**values: object) -> pl.DataFrame:
    rows = [
        {"run_id": "r", "name": name, "value": str(value), "origin": "flag", "sequence": i}
        for i, (name, value) in enumerate(values.items())
    ]
    return typed_facts(resolve_facts(frame("facts", *rows)))


def steps(*rows: dict) -> pl.DataFrame:
    return frame("steps", *({"run_id": "r", "line": i + 1} | row for i, row in enumerate(rows)))


def rates(all_steps: pl.DataFrame, about: pl.DataFrame, given: pl.DataFrame, *events: dict) -> dict:
    happened = frame("events", *({"run_id": "r"} | event for event in events))
    marked = mark_warm_up_and_stalls(build_windows(all_steps, about, given, happened), about)
    clocks = launch_clocks(about, marked, given, happened)
    row = summarise(marked, about.join(clocks, on="run_id"), given).row(0, named=True)
    found = [Message.from_row(message) for message in row["throughput_warnings"]]
    kinds = [message.kind for message in found]
    return row | {"throughput_warnings": [*map(str, found)], "warning_kinds": kinds}


def of_kinds(row: dict, *kinds: MessageKind) -> list[str]:
    """The warnings of some kinds among those of `rates`."""
    return of_kind(row | {"warnings": row["throughput_warnings"]}, *kinds)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def test_a_rate_is_a_ratio_of_sums_and_not_a_mean_of_rates() -> None:
    both = steps(
        {"step": 10, "elapsed_s": 9.0},
        {"step": 20, "elapsed_s": 1.0},
        {"step": 30, "elapsed_s": 3.0},
    )
    given = facts(gpus=2, global_batch_size=4, seq_len=100)
    row = rates(both, run(elapsed_covers="interval"), given)
    # 200 tokens a GPU and step: 2 x 10 x 200 / (10 x 1 + 10 x 3), not (200 + 66.7) / 2.
    assert row["tgs"] == pytest.approx(100.0)
    assert row["tokens_per_second"] == pytest.approx(200.0)


def test_a_torchtitan_window_at_step_10_holds_nine_steps() -> None:
    logged = steps(
        {"step": 1, "logged_tgs": 10.0},
        {"step": 10, "logged_tgs": 100.0},
        {"step": 20, "logged_tgs": 50.0},
    )
    about = run(evidence=["rate"], rate_covers="interval")
    spans = build_windows(logged, about, facts(gpus=1), frame("events"))
    assert spans["rate_span"].to_list() == [1, 9, 10]


def test_a_mean_over_ten_of_a_gap_of_fifty_speaks_of_ten_steps() -> None:
    logged = steps({"step": 50, "elapsed_s": 1.0}, {"step": 100, "elapsed_s": 2.0})
    about = run(elapsed_covers="last_10", step_unit="micro_step")
    given = facts(micro_batch_size=1, seq_len=10, packed="true")
    spans = build_windows(logged, about, given, frame("events"))
    assert spans["elapsed_span"].to_list() == [10, 10]
    assert rates(logged, about, given)["tgs"] == pytest.approx(5.0)


def test_data_loading_is_added_back_where_the_time_leaves_it_out() -> None:
    logged = steps(
        {"step": 1, "elapsed_s": 1.0, "data_s": 0.0, "rank_tokens": 30.0},
        {"step": 2, "elapsed_s": 2.0, "data_s": 1.0, "rank_tokens": 30.0},
    )
    about = run(elapsed_covers="step", elapsed_excludes_data=True)
    assert rates(logged, about, facts(gpus=1))["tgs"] == pytest.approx(10.0)


@pytest.mark.parametrize("objective", ["preference", "reinforcement"])
def test_samples_of_another_objective_are_no_sequences(objective: str) -> None:
    logged = steps(*({"step": n, "elapsed_s": 1.0} for n in range(1, 11)))
    given = {"gpus": 1, "global_batch_size": 4, "seq_len": 100, "packed": "true"}
    about = run(elapsed_covers="step")
    row = rates(logged, about, facts(**given, objective=objective))
    assert (row["tgs"], row["throughput_missing"]) == (None, ["tokens_per_step"])
    counted = facts(**given, objective=objective, tokens_per_step=300)
    assert rates(logged, about, counted)["tgs"] == 300
    assert row["throughput_warnings"] == [NONSTANDARD_OBJECTIVES[objective]()]
    assert rates(logged, about, facts(**given, objective="language_modeling"))["tgs"] == 400
    counted = logged.with_columns(rank_tokens=pl.lit(300.0))
    row = rates(counted, about, facts(**given, objective=objective))
    assert row["tgs"] == 300
    assert row["throughput_warnings"] == [NONSTANDARD_OBJECTIVES[objective]("unranked")]


def test_seconds_since_the_start_are_of_the_rank_that_tells_most() -> None:
    """Another one began later; where it is silent the first one's would be 9 s more."""
    clocks = {"0": {1: 19.0, 2: 29.0, 3: 39.0}, "1": {1: 10.0, 3: 30.0}}
    logged = steps(
        *(
            {"step": step, "rank": rank, "since_start_s": since}
            for rank, clock in clocks.items()
            for step, since in clock.items()
        )
    )
    assert fold_ranks(logged)["since_start_s"].to_list() == [19.0, 29.0, 39.0]


def test_ranks_share_a_step_and_the_slowest_counts() -> None:
    logged = steps(
        {"step": 1, "rank": "0", "elapsed_s": 9.0, "rank_tokens": 10.0},
        {"step": 2, "rank": "0", "elapsed_s": 1.0, "rank_tokens": 10.0},
        {"step": 2, "rank": "1", "elapsed_s": 2.0, "rank_tokens": 30.0},
    )
    assert fold_ranks(logged)["step"].to_list() == [1, 2]
    row = rates(logged, run(elapsed_covers="step"), facts(gpus=2))
    assert row["tgs"] == pytest.approx(20 / 2.0)
    assert row["token_basis"] == "non_padding"  # noqa: S105


@pytest.mark.parametrize(
    ("rank", "again", "warned"), [(None, 1.5, True), (None, 1.0, False), ("1", 1.5, False)]
)
def test_copies_of_no_named_rank_have_one_time(
    rank: str | None, again: float, *, warned: bool
) -> None:
    """Without a header, steps that were trained again from a checkpoint look like copies."""
    rows = [{"step": n, "elapsed_s": 1.0, "loss": 1.0 / n} for n in range(1, 11)]
    rows += [{"step": n, "elapsed_s": again, "loss": 1.0 / n, "rank": rank} for n in range(6, 11)]
    row = rates(
        steps(*rows), run(elapsed_covers="step"), facts(gpus=1, global_batch_size=4, seq_len=100)
    )
    assert row["steps"] == 10
    said = messages.STEPS_PRINTED_TWICE(copies=5, seconds=2.5)
    assert of_kinds(row, messages.STEPS_PRINTED_TWICE) == [said] * warned


def test_a_window_has_the_most_memory_that_a_rank_prints() -> None:
    logged = steps(
        {"step": 1, "rank": "0", "elapsed_s": 1.0, "peak_memory_bytes": 8e9},
        {"step": 1, "rank": "1", "elapsed_s": 1.0, "peak_memory_bytes": 9e9},
        {"step": 2, "rank": "0", "elapsed_s": 1.0, "peak_memory_bytes": 7e9},
        {"step": 3, "rank": "0", "elapsed_s": 1.0},
    )
    about = run(elapsed_covers="step")
    marked = mark_warm_up_and_stalls(build_windows(logged, about, facts(), frame("events")), about)
    assert marked["peak_memory_bytes"].to_list() == [9e9, 7e9, None]


def test_windows_that_a_checkpoint_fell_into_are_left_out_and_named() -> None:
    logged = steps(
        {"step": 1, "elapsed_s": 9.0},
        {"step": 2, "elapsed_s": 1.0},
        {"line": 10, "step": 3, "elapsed_s": 9.0},
        {"line": 11, "step": 4, "elapsed_s": 1.0},
    )
    given = facts(gpus=1, global_batch_size=1, seq_len=10)
    row = rates(logged, run(elapsed_covers="interval"), given, {"line": 5, "kind": "checkpoint"})
    assert row["tgs"] == pytest.approx(10.0)
    assert row["excluded_causes"] == ["start-up", "checkpoint"]
    assert row["excluded_share"] == pytest.approx(18 / 20)
    assert row["tgs_end_to_end"] == pytest.approx(40 / 20)


def test_a_mean_longer_than_the_stamps_allow_holds_an_evaluation_of_before() -> None:
    """XTuner 0.1.13: 60 s of chat before the line of step 30, and within the time of step 31."""
    all_steps = steps(
        {"step": 10, "elapsed_s": 1.5, "logged_at": at(15)},
        {"step": 20, "elapsed_s": 1.0, "logged_at": at(25)},
        {"step": 30, "elapsed_s": 1.0, "logged_at": at(95)},
        {"step": 40, "elapsed_s": 7.0, "logged_at": at(105)},
        {"step": 50, "elapsed_s": 1.0, "logged_at": at(115)},
    )
    about = run(step_unit="micro_step", elapsed_covers="last_10", evidence=["elapsed", "stamp"])
    given = facts(seq_len=100, micro_batch_size=1, packed=True)
    row = rates(all_steps, about, given, {"line": 3, "kind": "evaluation"})
    assert (row["tgs"], row["windows"]) == (100.0, 2)


ANEW = {"kind": "evaluation", "extra": '{"restarts": "rate"}'}
"""An evaluation behind which the printed rate starts anew."""


def test_an_evaluation_does_not_spoil_a_rate_that_starts_anew_after_it() -> None:
    logged = steps(
        {"step": 1, "logged_tgs": 1.0},
        {"line": 9, "step": 10, "logged_tgs": 100.0},
    )
    about = run(evidence=["rate"], rate_covers="interval")
    row = rates(logged, about, facts(gpus=1), ANEW | {"line": 5, "step": 1})
    assert row["tgs"] == pytest.approx(100.0)
    assert row["throughput_warnings"] == [
        "TGS is from a single window (9 steps). Fix: train longer, or log more often"
    ]


def test_an_evaluation_spoils_a_rate_that_goes_on_over_it() -> None:
    printed = {1: 1.0, 10: 100.0, 20: 50.0, 30: 100.0, 40: 100.0}
    logged = steps(*({"line": n, "step": n, "logged_tgs": tgs} for n, tgs in printed.items()))
    about = run(evidence=["rate"], rate_covers="interval")
    row = rates(logged, about, facts(gpus=1), {"line": 15, "kind": "evaluation"})
    assert (row["tgs"], row["windows"]) == (pytest.approx(100.0), 2)
    assert row["excluded_causes"] == ["start-up", "warm-up", "evaluation"]


def test_a_checkpoint_before_a_rate_starts_anew_is_not_in_it() -> None:
    """Torchtitan saves, then validates; what is saved behind the validation is in the rate."""
    printed = {1: 1.0, 10: 100.0, 20: 100.0, 30: 50.0, 40: 100.0}
    logged = steps(*({"line": n, "step": n, "logged_tgs": tgs} for n, tgs in printed.items()))
    about = run(evidence=["rate"], rate_covers="interval")
    happened = [
        {"line": 11, "kind": "checkpoint"},
        ANEW | {"line": 12, "step": 10},
        ANEW | {"line": 22, "step": 20},
        {"line": 23, "kind": "checkpoint"},
    ]
    row = rates(logged, about, facts(gpus=1), *happened)
    assert (row["tgs"], row["windows"]) == (pytest.approx(100.0), 2)
    assert row["excluded_causes"] == ["start-up", "warm-up", "checkpoint"]


def test_a_rate_that_starts_anew_between_two_lines_is_of_the_steps_behind_that() -> None:
    """A line each 10 steps, validation each 15: of steps 11 to 20 the line's rate has 16 to 20."""
    printed = {1: 1.0, 10: 100.0, 20: 50.0, 30: 100.0, 40: 100.0}
    logged = steps(*({"line": n, "step": n, "logged_tgs": tgs} for n, tgs in printed.items()))
    about = run(evidence=["rate"], rate_covers="interval")
    evaluated = [ANEW | {"line": n, "step": n} for n in (1, 15, 30)]
    given = facts(gpus=1, global_batch_size=1, seq_len=100)
    row = rates(logged, about, given, *evaluated)
    # 5, 10 and 10 steps in 10 s each; the line of step 10 is start-up
    assert row["tgs"] == pytest.approx(25 * 100 / 30)
    told, few = row["throughput_warnings"]
    assert told == messages.RATE_SKIPS_STEPS(untimed=5, whole=30)
    assert few.startswith("TGS is from only 3 windows (25 steps) and may be off by 86%")


def test_an_evaluation_spoils_a_rate_of_the_step_time_that_holds_it() -> None:
    """Megatron: tokens over elapsed time, that of an evaluation too; here without a batch size."""
    times = {10: 2.0, 20: 2.0, 30: 4.0, 40: 2.0}
    logged = steps(
        *({"step": n, "elapsed_s": s, "logged_tgs": 200.0 / s, "line": n} for n, s in times.items())
    )
    about = run(evidence=["elapsed", "rate"], elapsed_covers="interval", rate_covers="interval")
    row = rates(logged, about, facts(gpus=1), {"line": 21, "kind": "evaluation"})
    assert (row["time_basis"], row["windows"]) == ("rate", 2)
    assert row["tgs"] == pytest.approx(100.0)
    assert "evaluation" in row["excluded_causes"]


def test_stamps_that_contradict_the_logged_rate_keep_a_run_from_being_ranked() -> None:
    rows = [{"step": s, "logged_tgs": 100.0, "logged_at": at(s * 2.0)} for s in (1, 10, 20, 30)]
    about = run(evidence=["rate", "stamp"], rate_covers="interval")
    given = facts(gpus=1, micro_batch_size=1, gradient_accumulation=1, seq_len=100)
    row = rates(steps(*rows), about, given)
    assert row["evidence_gap"] == pytest.approx(-0.5)
    assert any(warning.startswith(NOT_RANKED) for warning in row["throughput_warnings"])


@pytest.mark.parametrize(("parts", "tgs"), [(1, 8.33), (50, 8.02)], ids=["coarse", "fine"])
def test_a_rate_of_one_digit_gives_way_to_finer_stamps(parts: int, tgs: float) -> None:
    """As of a pipeline over many GPUs: `tps: 8` may be 7.5 or 8.5."""
    printed = float(round(8.02 * parts))
    rows = [{"step": s, "logged_tgs": printed, "logged_at": at(s * 12.0)} for s in (1, 10, 20, 30)]
    about = run(evidence=["rate", "stamp"], rate_covers="interval", log_format="torchtitan")
    given = facts(gpus=1, micro_batch_size=1, gradient_accumulation=1, seq_len=100 * parts)
    row = rates(steps(*rows), about, given)
    assert row["time_basis"] == ("stamp" if parts == 1 else "rate")
    assert row["tgs"] == pytest.approx(tgs * parts, rel=1e-3)
    alone = rates(steps(*rows), about, facts(gpus=1))
    assert (alone["time_basis"], alone["tgs"]) == ("rate", pytest.approx(printed))
    coarse = messages.COARSE_TIMES(off=0.0625, evidence="the logged rate", unit="numbers")
    assert "6.2%" in coarse
    assert of_kinds(alone, messages.COARSE_TIMES) == [coarse] * (parts == 1)
    assert not of_kinds(row, messages.COARSE_TIMES)


def test_an_interval_holds_what_coarse_prints_leave_open() -> None:
    rows = [{"step": 10 * s, "logged_tgs": 8.0} for s in range(1, 12)]
    about = run(evidence=["rate"], rate_covers="interval", log_format="torchtitan")
    row = rates(steps(*rows), about, facts(gpus=1))
    assert (row["tgs_low"], row["tgs_high"]) == pytest.approx((7.53, 8.53), abs=0.01)
    assert not row["throughput_warnings"]


@pytest.mark.parametrize(("every", "off"), [(4, 0.083), (60, None)])
def test_whole_seconds_of_few_windows_say_what_they_leave_open(
    every: int, off: float | None
) -> None:
    rows = [{"step": s, "logged_at": at(s * every)} for s in range(1, 5)]
    given = facts(gpus=1, global_batch_size=1, seq_len=100)
    row = rates(steps(*rows), run(evidence=["stamp"]), given)
    told = off and [messages.COARSE_TIMES(off=off, evidence="time stamps", unit="seconds")]
    assert row["throughput_warnings"] == (told or [])


def test_two_lines_in_one_second_lose_no_tokens() -> None:
    rows = [{"step": s, "logged_at": at(s // 2)} for s in range(1, 9)]
    row = rates(
        steps(*rows), run(evidence=["stamp"]), facts(gpus=1, global_batch_size=1, seq_len=10)
    )
    assert row["tgs"] == pytest.approx(70 / 4)


def test_batch_ramp_up_counts_the_consumed_samples() -> None:
    rows = [
        {"step": 10, "elapsed_s": 1.0, "consumed_samples": 20, "samples": 2},
        {"step": 20, "elapsed_s": 1.0, "consumed_samples": 50, "samples": 4},
    ]
    row = rates(steps(*rows), run(elapsed_covers="interval"), facts(gpus=1, seq_len=10))
    assert row["tgs"] == pytest.approx(300 / 10)


def test_a_ramp_up_has_no_more_slots_than_its_samples() -> None:
    """The batch size that the header gives is where the ramp-up ends."""
    rows = [
        {"step": 10, "elapsed_s": 1.0, "consumed_samples": 20, "samples": 2},
        {"step": 20, "elapsed_s": 1.0, "consumed_samples": 50, "samples": 4},
    ]
    given = facts(gpus=1, seq_len=10, global_batch_size=256)
    row = rates(steps(*rows), run(elapsed_covers="interval"), given)
    assert row["tgs_slots"] == row["tgs"] == pytest.approx(300 / 10)


def test_model_parallel_ranks_share_their_tokens() -> None:
    rows = [{"step": 1, "elapsed_s": 1.0}, {"step": 2, "elapsed_s": 1.0}]
    given = facts(
        micro_batch_size=4,
        gradient_accumulation=1,
        seq_len=100,
        tensor_parallel=2,
        pipeline_parallel=2,
        context_parallel=1,
    )
    row = rates(steps(*rows), run(elapsed_covers="interval"), given)
    assert row["tgs"] == pytest.approx(100.0)


def test_unknown_tokens_give_no_tgs_and_name_what_is_missing() -> None:
    rows = [{"step": 1, "elapsed_s": 1.0}, {"step": 2, "elapsed_s": 1.0}]
    row = rates(steps(*rows), run(elapsed_covers="interval"), facts(zero_stage=1))
    assert row["tgs"] is None
    assert row["throughput_missing"] == ["seq_len", "gpus", "global_batch_size"]


@pytest.mark.parametrize(
    ("printed", "missing"),
    [
        ({"samples": 128}, ["seq_len", "gpus"]),
        ({"consumed_samples": 128}, ["seq_len", "gpus"]),
        ({"logged_samples_per_second": 128.0}, ["seq_len", "gpus"]),
        ({"sequence_length": 2048}, ["gpus", "global_batch_size"]),
        ({"consumed_samples": 128, "sequence_length": 2048}, ["gpus"]),
        ({"consumed_tokens": 262144}, ["gpus"]),
        ({"step_tokens": 262144}, ["gpus"]),
    ],
)
def test_what_every_line_prints_is_not_asked_for(printed: dict, missing: list[str]) -> None:
    rows = [{"step": n, "elapsed_s": 1.0} | printed for n in (1, 2)]
    for name in ("consumed_samples", "consumed_tokens"):
        rows[1] |= {name: 2 * printed[name]} if name in printed else {}
    row = rates(steps(*rows), run(elapsed_covers="interval"), facts(zero_stage=1))
    assert (row["tgs"], row["throughput_missing"]) == (None, missing)


def test_a_printed_total_beside_tokens_without_padding_counts_no_slots() -> None:
    """XTuner v1's total is the sum of these; rank_slots and batch sizes count slots."""
    rows = [
        {"step": n, "elapsed_s": 1.0, "rank_tokens": 950, "consumed_tokens": 950 * n}
        for n in range(1, 4)
    ]
    row = rates(steps(*rows), run(elapsed_covers="step"), facts(gpus=1))
    assert (row["tgs"], row["tgs_slots"]) == (950.0, None)
    slots = [{**one, "rank_slots": 1000} for one in rows]
    row = rates(steps(*slots), run(elapsed_covers="step"), facts(gpus=1))
    assert (row["tgs"], row["tgs_slots"]) == (950.0, 1000.0)


def test_one_line_is_no_rate() -> None:
    row = rates(steps({"step": 1, "logged_tgs": 5.0}), run(evidence=["rate"]), facts(gpus=1))
    assert row["tgs"] is None
    assert row["throughput_warnings"] == [messages.SINGLE_STEP()]


def test_the_line_of_step_1_makes_no_interval_a_step_shorter() -> None:
    rows = [{"step": step, "logged_tgs": 5.0} for step in (1, 100, 200, 296)]
    about = run(evidence=["rate"], rate_covers="interval")
    spans = build_windows(steps(*rows), about, facts(), frame("events"))
    assert spans["rate_span"].to_list() == [1, 99, 100, 96]


@pytest.mark.parametrize("bad", [0.0, float("nan"), float("inf")])
def test_impossible_times_are_no_windows(bad: float) -> None:
    rows = [{"step": s, "elapsed_s": bad if s == 3 else 1.0} for s in (1, 2, 3, 4)]
    given = facts(gpus=1, global_batch_size=1, seq_len=10)
    spans = build_windows(steps(*rows), run(elapsed_covers="interval"), given, frame("events"))
    assert steady_window_rows(spans, "elapsed")["step"].to_list() == [2, 4]


def test_a_clock_since_the_start_gives_windows_by_its_differences() -> None:
    timed = steps(
        {"step": 10, "since_start_s": 95.0},
        {"step": 20, "since_start_s": 105.0},
        {"step": 30, "since_start_s": 105.0},  # whole seconds: nothing is lost
        {"step": 40, "since_start_s": 125.0},
        {"step": 50, "since_start_s": 185.0},
    )
    given = facts(gpus=2, global_batch_size=4, seq_len=100)
    evaluated = {"line": 5, "kind": "evaluation"}
    row = rates(timed, run(evidence=["clock"]), given, evaluated)
    # 200 tokens a GPU and step, 30 steps in 30 s; the last window holds an evaluation.
    assert row["tgs"] == pytest.approx(200.0)
    assert row["time_basis"] == "clock"
    assert row["tgs_end_to_end"] == pytest.approx(50 * 200 / 185)


def test_a_clock_at_some_lines_alone_spans_the_others() -> None:
    """As of the Trainer's dicts where a bar stands behind some: 200 tokens a step, 1 s each."""
    timed = steps(
        {"step": 10},
        {"step": 20, "since_start_s": 50.0},
        {"step": 30},
        {"step": 40},
        {"step": 50, "since_start_s": 80.0},
        {"step": 60},
        {"step": 70, "since_start_s": 190.0},
        {"step": 73},
    )
    given = facts(gpus=2, global_batch_size=4, seq_len=100)
    evaluated = {"line": 6, "kind": "evaluation"}  # before a line that has no time
    row = rates(timed, run(evidence=["clock"]), given, evaluated)
    assert (row["tgs"], row["steps"], row["windows"]) == (pytest.approx(200.0), 8, 1)
    assert row["tgs_end_to_end"] == pytest.approx(70 * 200 / 190)
    assert row["wall_s"] == pytest.approx(190)
    lost = {cause["cause"]: cause["seconds"] for cause in row["time_lost"]}
    assert lost == {"start-up": pytest.approx(30), "evaluation": pytest.approx(90)}


def test_padded_samples_give_no_tgs_from_batch_sizes() -> None:
    timed = steps({"step": 1, "since_start_s": 1.0}, {"step": 2, "since_start_s": 2.0})
    given = facts(gpus=2, global_batch_size=4, seq_len=100, packed="false")
    row = rates(timed, run(evidence=["clock"]), given)
    assert (row["tgs"], row["throughput_missing"]) == (None, ["packed"])


def test_padded_samples_give_no_tokens() -> None:
    rows = ({"step": n, "logged_at": at(n), "logged_samples_per_second": 4.0} for n in (1, 2, 3))
    about = run(evidence=["stamp", "rate"], rate_covers="step")
    given = facts(gpus=1, global_batch_size=4, seq_len=100, packed="false")
    row = rates(steps(*rows), about, given)
    assert row["tgs"] is None
    first, *others = row["throughput_warnings"]
    assert first == messages.PADDED_TOKENS_UNKNOWN()
    assert not [text for text in others if "TGS" in text]  # they are of samples/s


def test_a_step_time_without_data_loading_is_not_ranked() -> None:
    about = run(elapsed_covers="step", elapsed_excludes_data=True)
    given = facts(gpus=1, global_batch_size=4, seq_len=100)
    for data, warned in ({}, True), ({"data_s": 0.0}, False):
        rows = ({"step": n, "elapsed_s": 1.0} | data for n in (1, 2, 3))
        told = of_kinds(rates(steps(*rows), about, given), messages.TIMES_WITHOUT_DATA)
        upper = f"{NOT_RANKED}TGS is an upper bound: the logged step time leaves out data loading"
        assert [text.startswith(upper) for text in told] == [True] * warned


def test_a_rate_without_data_loading_and_nothing_beside_it_is_not_ranked() -> None:
    rows = [{"step": n, "logged_tgs": 100.0} for n in (1, 2, 3)]
    for short in (True, False):
        about = run(evidence=["rate"], rate_covers="step", rate_excludes_data=short)
        told = of_kinds(rates(steps(*rows), about, facts(gpus=1)), messages.TIMES_WITHOUT_DATA)
        upper = f"{NOT_RANKED}TGS is an upper bound: the logged rate leaves out data loading"
        assert [text.startswith(upper) for text in told] == [True] * short


def test_steps_without_a_token_have_no_rate() -> None:
    rows = [{"step": n, "elapsed_s": 1.0, "rank_tokens": 0.0} for n in (1, 2, 3)]
    row = rates(steps(*rows), run(elapsed_covers="step"), facts(gpus=1))
    assert (row["tgs"], row["throughput_warnings"]) == (None, [NO_TOKENS])


@pytest.mark.parametrize(("slow", "warned"), [(30, True), (10, False)])
def test_a_warm_up_of_most_of_the_time_may_be_speed(slow: int, *, warned: bool) -> None:
    draw = np.random.default_rng(5)
    times = [(3.0 if n < slow else 1.0) * draw.normal(1, 0.005) for n in range(100)]
    rows = ({"step": n + 1, "elapsed_s": seconds} for n, seconds in enumerate(times))
    given = facts(gpus=1, global_batch_size=1, seq_len=100)
    row = rates(steps(*rows), run(elapsed_covers="step"), given)
    assert row["tgs"] == pytest.approx(100, rel=0.01)
    assert bool(of_kinds(row, messages.LONG_WARM_UP)) is warned


@pytest.mark.parametrize(("times", "warned"), [(2.0, True), (1.0, False)])
def test_steps_that_take_longer_than_the_run_are_not_ranked(times: float, *, warned: bool) -> None:
    rows = ({"step": n, "elapsed_s": times, "logged_at": at(n)} for n in range(1, 81))
    given = facts(gpus=1, global_batch_size=1, seq_len=100)
    about = run(elapsed_covers="step")
    assert bool(of_kinds(rates(steps(*rows), about, given), messages.END_TO_END_FASTER)) is warned


@pytest.mark.parametrize(
    ("times", "effect"), [(1.005, None), (1.03, "doubt"), (1.1, "unranked"), (0.9, None)]
)
def test_a_small_excess_of_end_to_end_is_a_doubt(times: float, effect: str | None) -> None:
    """Step times that are longer than the time between stamps, within 0.1 % of each other."""
    noise = 1 + 0.001 * np.random.default_rng(1).standard_normal(81)
    rows = ({"step": n, "elapsed_s": times * noise[n], "logged_at": at(n)} for n in range(1, 81))
    row = rates(
        steps(*rows), run(elapsed_covers="step"), facts(gpus=1, global_batch_size=1, seq_len=100)
    )
    found = of_kinds(row, messages.END_TO_END_FASTER)
    assert bool(found) == (effect is not None)
    assert any(text.startswith(NOT_RANKED) for text in found) == (effect == "unranked")


def test_a_fast_first_step_is_no_contradiction() -> None:
    """Steady leaves it out, end to end has it, and both are of the same prints."""
    rows = ({"step": n, "elapsed_s": 0.2 if n == 1 else 1.0} for n in range(1, 8))
    about = run(elapsed_covers="step")
    row = rates(steps(*rows), about, facts(gpus=1, global_batch_size=1, seq_len=100))
    assert (row["tgs"], row["end_to_end_basis"]) == (100.0, "elapsed from start")
    assert row["tgs_end_to_end"] == pytest.approx(700 / 6.2)
    assert not row["throughput_warnings"]


@pytest.mark.parametrize(("times", "warned"), [(2.0, True), (1.0, False)])
def test_a_step_time_longer_than_the_stamps_on_most_lines_is_told(
    times: float, *, warned: bool
) -> None:
    """mmengine: means over ten steps, a line each ten; the stamps are used then."""
    rows = ({"step": 10 * n, "elapsed_s": times, "logged_at": at(10 * n)} for n in range(1, 21))
    about = run(evidence=["elapsed", "stamp"], elapsed_covers="last_10", step_unit="micro_step")
    given = facts(gpus=1, micro_batch_size=1, seq_len=100, packed="true")
    row = rates(steps(*rows), about, given)
    assert row["tgs"] == pytest.approx(100.0)
    assert bool(of_kinds(row, messages.TIMES_ABOVE_STAMPS)) is warned


@pytest.mark.parametrize(
    ("log_format", "accumulated", "tgs"),
    [
        ("hf-trainer", None, None),
        ("hf-trainer", 2, 200.0),
        ("torchtitan", None, 100.0),  # it says so, since it can
    ],
)
def test_what_a_step_accumulates_is_known_or_there_are_no_tokens(
    log_format: str, accumulated: int | None, tgs: float | None
) -> None:
    rows = ({"step": n, "elapsed_s": 1.0} for n in (1, 2, 3))
    given = facts(gpus=2, micro_batch_size=1, seq_len=100)
    given = given.with_columns(gradient_accumulation=pl.lit(accumulated, pl.Int64))
    row = rates(steps(*rows), run(elapsed_covers="step", log_format=log_format), given)
    assert row["tgs"] == tgs


def micro_steps(count: int, every: int, interval: int = 1, update_s: float = 5.0) -> dict:
    """Rates of a run whose micro-steps take 1 s and whose optimizer's take `update_s`."""
    times = [update_s if n % every == 0 else 1.0 for n in range(1, count + 1)]
    ends = range(interval, count + 1, interval)
    means = ({"step": n, "elapsed_s": sum(times[n - interval : n]) / interval} for n in ends)
    about = run(step_unit="micro_step", elapsed_covers="interval")
    given = facts(gpus=1, micro_batch_size=1, seq_len=12, packed="true")
    return rates(steps(*means), about, given.with_columns(gradient_accumulation=every))


def test_micro_steps_without_an_optimizer_step_give_no_rate() -> None:
    row = micro_steps(60, 64, interval=10)
    assert (row["tgs"], row["throughput_warnings"]) == (None, [NO_OPTIMIZER_STEP])
    assert explain_missing_rate(row | {"warnings": [NO_OPTIMIZER_STEP], "missing": []}) == (
        as_clause(NO_OPTIMIZER_STEP),
        [],
    )


@pytest.mark.parametrize(
    ("counts", "update_s", "much"),
    [
        ((90, 64, 10), 5.0, "high by some 1.2%"),  # 1 of 80 / 64
        ((90, 64, 10), 1.01, ""),
        ((80, 64, 10), 5.0, ""),  # 1 of 70 / 64
        ((64, 4, 1), 5.0, ""),  # 16 of 63 / 4
        ((64, 4, 1), 21.0, "low by some 1.3%"),
        ((4, 2, 1), 5.0, "low by some 18.2%"),  # 2 of 3 / 2
        ((5, 2, 1), 5.0, ""),  # 2 of 4 / 2
        ((320, 2, 10), 5.0, ""),
        ((40, 1, 1), 5.0, ""),
    ],
)
def test_optimizer_steps_have_their_share_or_the_run_is_not_ranked(
    counts: tuple[int, int, int], update_s: float, much: str
) -> None:
    """Or their number does not matter: it is held against what one of them takes."""
    told = of_kinds(micro_steps(*counts, update_s), messages.UNFAIR_OPTIMIZER_STEPS)
    too_much = f"{NOT_RANKED}TGS is too {much}"
    assert [text.rpartition(": ")[0] for text in told] == [too_much] * bool(much)


def twenties(every: int, update_s: float, wrong: float = 1.0) -> dict:
    """Lines each 20 micro-steps of 1 s, the last of each `every` longer; a mean over the last 10.

    wrong: what that is multiplied by
    """
    ends = np.cumsum([1.0 + (update_s if n % every == 0 else 0.0) for n in range(1, 201)])
    rows = [
        {
            "step": n,
            "elapsed_s": wrong * float(ends[n - 1] - ends[n - 11]) / 10,
            "logged_tgs": 100 / float(ends[n - 1] - ends[n - 2]),
            "logged_at": at(int(ends[n - 1])),
        }
        for n in range(20, 201, 20)
    ]
    about = run(
        step_unit="micro_step",
        elapsed_covers="last_10",
        rate_covers="step",
        evidence=["elapsed", "stamp", "rate"],
    )
    given = facts(seq_len=100, micro_batch_size=1, packed=True, gradient_accumulation=every)
    return rates(steps(*rows), about, given)


def test_means_that_miss_the_share_of_optimizer_steps_give_way_to_stamps() -> None:
    """Of steps 11 to 20, 31 to 40, … three in ten end an accumulation of four: 12, 16 and 20."""
    row = twenties(every=4, update_s=0.6)
    assert row["time_basis"] == "stamp"
    assert row["tgs"] == pytest.approx(100 / 1.15, rel=0.005)
    assert not [text for text in row["throughput_warnings"] if NOT_RANKED in text]
    (told,) = (text for text in row["throughput_warnings"] if "logged step time" in text)
    assert "27 of 90 micro-steps by the logged step time and 45 of 180 micro-steps by" in told


def test_means_that_hold_their_share_of_optimizer_steps_stay() -> None:
    row = twenties(every=5, update_s=0.6)
    assert (row["time_basis"], row["tgs"]) == ("elapsed", pytest.approx(100 / 1.12))


def test_what_optimizer_steps_cannot_take_is_not_put_down_to_them() -> None:
    """Three in ten for one in four make times a fifth longer at most: 1.4 times is more."""
    (told,) = (
        text
        for text in twenties(every=4, update_s=0.6, wrong=1.4)["throughput_warnings"]
        if "logged step time" in text
    )
    assert told.startswith(NOT_RANKED)


def test_ranks_out_of_step_take_the_slowest_rank_s_time_on_the_whole() -> None:
    """Each tiles its own clock: 14 and 10 s in turn, in opposite phase."""
    rows = [
        {"rank": rank, "step": step, "elapsed_s": 14.0 if (step + i) % 2 else 10.0}
        | {"rank_tokens": 4000.0}
        for step in range(1, 21)
        for i, rank in enumerate(("1", "0"))
    ]
    row = rates(steps(*rows), run(elapsed_covers="step"), facts(gpus=2))
    assert row["tgs"] == pytest.approx(4000 * 19 / 230)  # 9 steps of 10 s, 10 of 14


def test_a_rank_that_waits_where_another_computes_changes_nothing() -> None:
    """Ranks in step differ in how they divide a step, or by noise; a few lines may be lost."""
    random = np.random.default_rng(2)
    rows = []
    for step in range(1, 101):
        for rank, wait in (("0", 0.0), ("1", 5.0 if step % 10 == 0 else 0.0)):
            noise = 0.002 * random.standard_normal()
            time = {"elapsed_s": 6.0 - wait + noise if step % 10 == 0 else 1.0, "data_s": wait}
            rows.append({"rank": rank, "step": step, "rank_tokens": 4000.0} | time)
    about = run(elapsed_covers="step", elapsed_excludes_data=True)
    for lost in ((), (3, 44)):
        kept = [row for i, row in enumerate(rows) if i not in lost]
        row = rates(steps(*kept), about, facts(gpus=2))
        assert row["tgs"] == pytest.approx(4000 * 99 / (89 + 10 * 6), rel=1e-3)


# --- what a log says itself ------------------------------------------------------------------


EACH_STEP = run(elapsed_covers="step", rate_covers="step")
HUNDRED = facts(gpus=1, global_batch_size=1, seq_len=100)


def test_logged_rates_are_a_median_and_a_ratio_of_sums() -> None:
    """Of the steady windows; a rate below 1 is one, and one that is none is left out."""
    printed = (9.0, 0.5, 0.25, 0.25, 0.5, 0.5, float("inf"), 0.0)
    logged = steps(
        *({"step": n, "elapsed_s": 1.0, "logged_tgs": r} for n, r in enumerate(printed, 1))
    )
    row = rates(logged, EACH_STEP, HUNDRED)
    assert row["logged_tgs"] == 0.375  # the middle of 0, 0.25, 0.25, 0.5, 0.5 and 0.5
    assert row["logged_tgs_total"] == pytest.approx(5 / (3 / 0.5 + 2 / 0.25))


@pytest.mark.parametrize(
    ("tokens", "mean"), [((900.0, 100.0, 300.0), 0.5), ((None,) * 3, 0.4), ((9.0, 0.0, 0.0), None)]
)
def test_an_attention_ratio_is_weighed_by_the_tokens(
    tokens: tuple[float | None, ...], mean: float | None
) -> None:
    """The first line left out; where no tokens are known each step weighs as much."""
    logged = steps(
        *(
            {"step": n, "elapsed_s": 1.0, "rank_tokens": t, "attention_ratio": a}
            for n, (t, a) in enumerate(zip(tokens, (1.0, 0.2, 0.6), strict=True), 1)
        )
    )
    row = rates(logged, EACH_STEP, facts(gpus=1))
    assert row["attention_ratio"] == (None if mean is None else pytest.approx(mean))


@pytest.mark.parametrize(("excluded", "share"), [(False, 0.25), (True, 0.2)])
@pytest.mark.parametrize("covers", ["step", "interval"])
def test_waiting_for_data_is_a_share_of_the_time_with_it(
    covers: str, share: float, *, excluded: bool
) -> None:
    rows = [{"step": 10 * n, "elapsed_s": 1.0, "data_s": 0.25} for n in range(1, 6)]
    rows[0]["data_s"] = 0.75
    about = run(elapsed_covers=covers, elapsed_excludes_data=excluded)
    assert rates(steps(*rows), about, HUNDRED)["data_share"] == pytest.approx(share)
    assert rates(steps(*rows), about, facts(gpus=1))["data_share"] == pytest.approx(share)
    bare = [row | {"data_s": None} for row in rows]
    assert rates(steps(*bare), about, HUNDRED)["data_share"] is None


def test_slots_have_a_rate_of_their_own_where_each_window_tells_them() -> None:
    rows = [
        {"step": n, "elapsed_s": s, "rank_tokens": 90.0, "rank_slots": 100.0}
        for n, s in enumerate((9.0, 1.0, 1.0, 2.0), 1)
    ]
    row = rates(steps(*rows), EACH_STEP, facts(gpus=4))
    assert (row["tgs"], row["tgs_slots"]) == pytest.approx((270 / 4, 300 / 4))
    assert row["tokens_per_second"] == pytest.approx(270.0)
    assert row["tokens_per_gpu_step"] == 90.0
    rows[2]["rank_slots"] = None
    assert rates(steps(*rows), EACH_STEP, facts(gpus=4))["tgs_slots"] is None


@pytest.mark.parametrize(("every", "told"), [(99, False), (101, True)])
def test_stamps_tell_a_spread_where_a_second_is_a_hundredth(every: int, *, told: bool) -> None:
    rows = [{"step": n, "logged_at": at(every * n)} for n in range(1, 12)]
    row = rates(steps(*rows), run(evidence=["stamp"]), HUNDRED)
    assert (row["tgs_median"] is not None) is told


PACES = [9.0, 1.5, 1.375, *[1.0, 1.0625, 0.9375, 1.03125] * 6, 3.0, *[1.0, 1.0625, 0.9375] * 5]


def paced(unit: float, evidence: str) -> dict:
    """Rates of a run with a start-up, a warm-up and a stall; unit: of its times, s."""
    clock = np.cumsum(PACES) * unit
    logged = steps(
        *(
            {"step": n, "elapsed_s": pace * unit, "data_s": pace * unit / 8, "rank_tokens": 100.0}
            | {"logged_tgs": 100 / (pace * unit), "since_start_s": since, "rank_slots": 125.0}
            for n, (pace, since) in enumerate(zip(PACES, clock.tolist(), strict=True), 1)
        )
    )
    about = run(evidence=[evidence], elapsed_covers="step", rate_covers="step")
    return rates(logged, about, facts(gpus=1))


@pytest.mark.parametrize("unit", [2.0**-12, 2.0**12])
@pytest.mark.parametrize("evidence", ["elapsed", "rate", "clock"])
def test_a_run_as_many_times_as_slow_has_as_much_smaller_a_rate(evidence: str, unit: float) -> None:
    """And is else the same: steps may take less than a millisecond, or an hour."""
    one, other = paced(1.0, evidence), paced(unit, evidence)
    inverse = [name for name in one if name.startswith("tgs") or name == "tokens_per_second"]
    inverse += ["logged_tgs", "logged_tgs_total"]
    for name in inverse:
        expected = one[name] and one[name] / unit
        same = isinstance(expected, (str, type(None)))
        assert other[name] == (one[name] if same else pytest.approx(expected)), name
    assert other["wall_s"] == pytest.approx(one["wall_s"] * unit)
    assert [x["cause"] for x in other["time_lost"]] == [x["cause"] for x in one["time_lost"]]
    shares = [[x["share"] for x in row["time_lost"]] for row in (one, other)]
    assert shares[1] == pytest.approx(shares[0])
    alike = ("windows", "steady_from", "excluded_causes", "evidence_windows", "no_interval")
    for name in (*alike, "end_to_end_basis", "throughput_warnings", "token_basis"):
        assert other.get(name) == one.get(name), name
    for name in ("data_share", "excluded_share", "effective_windows", "token_gap", "evidence_gap"):
        assert other.get(name) == pytest.approx(one.get(name)), name
    assert one["excluded_causes"][:2] == ["start-up", "warm-up"]


# --- doubts ----------------------------------------------------------------------------------


def printed_micro_steps(reach: int | None, accumulation: int | None) -> dict[str, str]:
    """Warnings, by kind, of lines each ten micro-steps, whose times are means over some of them."""
    rows = [{"step": 10 * n, "elapsed_s": 1.0} for n in range(1, 12)]
    known: dict[str, object] = {"micro_batch_size": 1, "seq_len": 100, "packed": True}
    known |= {} if reach is None else {"average_window": reach}
    known |= {} if accumulation is None else {"gradient_accumulation": accumulation}
    about = run(elapsed_covers="last_10", step_unit="micro_step")
    row = rates(steps(*rows), about, facts(**known))
    return dict(zip(row["warning_kinds"], row["throughput_warnings"], strict=True))


def test_micro_steps_that_stand_for_all_have_a_known_accumulation_or_a_doubt() -> None:
    """Nine of ten may stand for all."""
    unknown, unknown_reach = messages.ACCUMULATION_UNKNOWN, messages.AVERAGE_WINDOW_UNKNOWN
    assert printed_micro_steps(10, None) == printed_micro_steps(9, None) == {}
    assert printed_micro_steps(8, None) == {unknown.identifier: unknown(timed=80, passed=100)}
    assert printed_micro_steps(8, 1) == {}
    assert not {unknown.identifier, unknown_reach.identifier} & printed_micro_steps(8, 8).keys()
    for accumulation in (None, 10):
        doubt = unknown_reach(timed=100, passed=100)
        assert printed_micro_steps(None, accumulation) == {unknown_reach.identifier: doubt}
    assert printed_micro_steps(None, 1) == {}


def evaluated(aligned: int, between: int, before: float, *, noise: float = 0.0) -> list[str]:
    """Warnings of a run of 1 s a step, evaluated for 30 s behind some lines or between two.

    Each second window holds an evaluation, the first `between` of them behind five steps of
    `before` s each, the next `aligned` ones at once behind the line; noise: evaluations take so
    much less, as long, and so much more.
    """
    rows, events, clock = [], [], 0.0
    for n in range(1, 2 * (aligned + between) + 4):
        held = n > 1 and n % 2 == 0 and n // 2 <= aligned + between
        apart = held and n // 2 <= between
        start = 10 * (n - 1)
        if held:
            event = {"line": 10 * n - 5, "step": start + 5 * apart} | ANEW
            events.append(event)
        spent = 5 * before + 5 if apart else 10.0
        clock += spent + (30.0 + noise * ((n // 2 - 1) % 3 - 1) if held else 0.0)
        rows.append({"line": 10 * n, "step": 10 * n, "logged_at": at(clock), "logged_tgs": 8192.0})
    about = run(evidence=["rate", "stamp"], rate_covers="interval", elapsed_covers="step")
    known = facts(gpus=1, seq_len=8192, global_batch_size=1, log_interval=10)
    row = rates(steps(*rows), about, known, *events)
    return of_kinds(row, messages.RATE_SKIPS_STEPS, messages.SKIPPED_STEPS_DIFFER)


def test_steps_before_an_evaluation_between_two_lines_are_told() -> None:
    doubt = messages.RATE_SKIPS_STEPS(untimed=15, whole=140)
    assert evaluated(3, 3, before=1.0) == [doubt]
    assert evaluated(3, 0, before=1.0) == []


@pytest.mark.parametrize(
    ("before", "said"), [(2.0, "they took 15.0 s more than"), (0.5, "they took 7.5 s less than")]
)
def test_steps_in_no_rate_that_take_another_time_cost_the_rank(before: float, said: str) -> None:
    """Five of 1 s more are in each of three windows, where three others hold an evaluation alone.

    Two of either tell nothing, nor do evaluations that vary by more.
    """
    (doubt,) = evaluated(3, 3, before)
    assert said in doubt
    assert doubt.startswith(f"{NOT_RANKED}TGS leaves out 15 of 140 steps ")
    for few in ((2, 3), (3, 2)):
        (doubt,) = evaluated(*few, before)
        assert not doubt.startswith(NOT_RANKED)
    (doubt,) = evaluated(3, 3, before, noise=20.0)
    assert not doubt.startswith(NOT_RANKED)


def test_windows_under_a_profiler_count_with_a_doubt() -> None:
    rows = [{"line": 10 * n, "step": n, "elapsed_s": 1.0} for n in range(1, 7)]
    seen = {"kind": "profiler", "step": 6, "line": 61, "extra": '{"profiled": "steps"}'}
    row = rates(steps(*rows), EACH_STEP, HUNDRED, seen)
    assert row["throughput_warnings"][0] == messages.PROFILED_WINDOWS(held=4, whole=5)


# --- no rate ---------------------------------------------------------------------------------


def test_no_clean_window_is_the_reason_whatever_facts_are_missing() -> None:
    rows = [{"line": 10 * n, "step": n, "elapsed_s": 1.0} for n in (1, 2)]
    saved = {"line": 15, "kind": "checkpoint"}
    row = rates(steps(*rows), EACH_STEP, facts(), saved)
    assert row["throughput_warnings"] == [NO_CLEAN_WINDOW]
    assert "seq_len" in row["throughput_missing"]  # counts end to end
    timed = rates(steps(*rows), EACH_STEP, facts())
    assert NO_CLEAN_WINDOW not in timed["throughput_warnings"]


def test_a_run_without_a_clean_window_says_why() -> None:
    rows = [{"line": 10 * n, "step": n, "elapsed_s": 1.0} for n in (1, 2)]
    saved = {"line": 15, "kind": "checkpoint"}
    assert rates(steps(*rows), EACH_STEP, HUNDRED, saved)["throughput_warnings"] == [
        NO_CLEAN_WINDOW
    ]
    bare = [row | {"elapsed_s": None} for row in rows]
    assert rates(steps(*bare), EACH_STEP, HUNDRED)["throughput_warnings"] == [NO_TIMES]
    elsewhere = run(elapsed_covers="step", quirks=[], times_elsewhere="see the console")
    below = run(elapsed_covers="step", quirks=[], engine_below="nova-engine")
    assert rates(steps(*bare), elsewhere, HUNDRED)["throughput_warnings"] == [
        messages.NO_TIMES_HERE(elsewhere="see the console")
    ]
    stamps = [
        {"kind": "engine_step", "line": 10 * n - 1, "step": 9 * n, "logged_at": at(n)}
        for n in (1, 2)
    ]
    for about, engine in [(elsewhere, "and that engine's format"), (below, "nova-engine")]:
        (said,) = rates(steps(*bare), about, HUNDRED, *stamps)["throughput_warnings"]
        assert said == messages.ONLY_ENGINE_TIMES(engine=engine)
    ended = {"kind": "end", "line": 99, "seconds": 50.0}
    assert rates(steps(*bare), elsewhere, HUNDRED, ended)["throughput_warnings"] == [
        messages.ONLY_TOTAL_TIME(rate="", elsewhere="see the console")
    ]


def test_the_last_line_gives_a_rate_only_where_nothing_else_does() -> None:
    """8 samples of 100 tokens a second, as it prints them; an excerpt has no start."""
    about = run(elapsed_covers="step").with_columns(end_samples_per_second=pl.lit(8.0))
    ended = {"kind": "end", "line": 99, "seconds": 50.0}
    excerpt = steps(*({"step": n} for n in (501, 502, 503)))
    row = rates(excerpt, about, HUNDRED, ended)
    found = row["tgs"], row["tgs_end_to_end"], row["end_to_end_basis"]
    assert found == (None, 800.0, "printed samples/s")
    assert rates(excerpt, about, HUNDRED)["tgs_end_to_end"] is None  # no run time
    whole = steps(*({"step": n} for n in (1, 2, 3)))
    row = rates(whole, about, HUNDRED, ended)
    assert (row["tgs_end_to_end"], row["end_to_end_basis"]) == (300 / 50, "runtime")
    alone = rates(steps(), about, HUNDRED)
    assert (alone["tgs_end_to_end"], alone["throughput_warnings"]) == (800.0, [ONLY_LAST_LINE])
    assert rates(steps(), about, facts(seq_len=100))["throughput_missing"] == ["gpus", "packed"]


@pytest.mark.parametrize(
    ("row", "said", "lacks"),
    [
        ({"missing": ["seq_len", "gpus"]}, "missing seq_len, gpus", ["seq_len", "gpus"]),
        ({"missing": ["gpus", "model"]}, "missing gpus", ["gpus"]),
        ({"missing": ["model", "gpus"], "warnings": ["a", "b"]}, "a", []),
        ({"missing": ["gpus"], "warnings": ["a", NO_TOKENS]}, "all steps count 0 tokens", []),
        ({"missing": ["gpus"], "warnings": ["a", "b"], "steps": 0}, "a", []),
        ({"missing": ["gpus"], "steps": 1}, "missing gpus", ["gpus"]),
        ({}, "", []),
    ],
)
def test_a_missing_rate_is_explained_by_what_no_fact_mends_or_by_the_facts(
    row: dict, said: str, lacks: list[str]
) -> None:
    kinds = [getattr(warning, "kind", "other") for warning in row.get("warnings", [])]
    known = {"warnings": None, "missing": None, "steps": 5, "warning_kinds": kinds}
    assert explain_missing_rate(known | row) == (said, lacks)
