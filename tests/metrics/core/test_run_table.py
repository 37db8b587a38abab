"""The typed rows: they give the schemas their columns; mypy reads misspelt_keys.py as well."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TypedDict

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.ingest.core.schema import RUN_COLUMNS, RunRow, frame_schema, row_dtypes
from fairmfu.metrics.compare.comparability import COMPARISON
from fairmfu.metrics.compare.history import CHANGE_SCHEMA, POINT_SCHEMA, SERIES_SCHEMA
from fairmfu.metrics.core.messages import NOT_RANKED
from fairmfu.metrics.core.run_table import (
    METRICS,
    MetricsRow,
    formula_change_warnings,
    metrics_row,
    metrics_rows,
    not_null,
    short_doubt,
    value_of,
    with_cross_run_warnings,
)
from fairmfu.metrics.throughput.throughput import SUMMARY

METRICS_COLUMNS = """
String: run_id name framework log_format framework_version
Boolean: synthetic
String: model accelerator device
Int64: gpus seq_len global_batch_size micro_batch_size gradient_accumulation replicas
Int64: replica_groups tensor_parallel pipeline_parallel context_parallel expert_parallel
Int64: zero_stage
String: offload compile torch cuda nccl driver commit packed attention quantization
List(String): inferred
String: precision recompute trainable step_unit
Boolean: rate_excludes_data
Int64: steps
Float64: tokens_per_second tgs tgs_low tgs_high tgs_slots tgs_median tgs_p5 tgs_p95 tgs_mad
Float64: tgs_trimmed tgs_with_spikes tgs_without_spikes tgs_end_to_end
Float64: seconds_per_step seconds_per_step_low seconds_per_step_high samples_per_second
Float64: samples_per_update tokens_per_update peak_memory_bytes memory_slope
List(MemoryChange): memory_changes
Float64: joules_per_token kwh_per_billion_tokens power_w
String: energy_source
Float64: startup_s memory_growth
List(LossAtCount): losses
Float64: mfu mfu_language_model mfu_full_attention mfu_conservative mfu_bf16
Float64: mfu_bf16_full_attention hfu_low hfu_high
Float64: hfu_language_model_low hfu_language_model_high implied
Int64: params_total
String: work attention_pattern
Float64: attended_pairs
String: trained
Float64: flops_per_token flops_per_token_full_attention
String: flops_source
Float64: peak_flops
String: peak_source token_basis time_basis end_to_end_basis
Float64: excluded_share
List(String): excluded_causes
Float64: data_share
Int64: windows
Float64: effective_windows interval_freedom
String: no_interval
Int64: steady_from
Float64: wall_s
String: wall_basis
List(TimeLost): time_lost
List(SlowStep): slowest_steps
List(SpeedLevel): levels
Float64: drift drift_low drift_high
List(PauseLevel): pauses
Float64: evidence_gap
Int64: evidence_windows
String: evidence_cause
Float64: token_gap
List(String): token_counts
Float64: tokens_per_gpu_step attention_ratio
ImageCounts: image_counts
Float64: sequence_length
String: formula
Float64: logged_tgs logged_tflops logged_mfu logged_tgs_total
Float64: logged_samples_per_second logged_samples_running
String: logged_formula
Boolean: logged_reproduced
Int64: logged_lines logged_lines_reproduced
Float64: logged_unexplained logged_flops_per_token logged_peak logged_unit logged_flops_low
Float64: logged_flops_high
String: logged_hypothesis logged_not_compared
List(Int64): logged_lengths
List(String): proven
String: error
List(String): missing warnings warning_kinds doubts sources members
Int64: launch
Datetime(us): started_at
String: outcome outcome_text
Int64: last_step total_steps
String: continues
Int64: repeated_steps
Float64: goodput goodput_share
Int64: goodput_launches
Float64: lost_to_restarts_s
Int64: ranks rank_steps
Float64: rank_spread
String: slowest_rank
Float64: slowest_share
List(SlowRanks): slow_ranks
String: bound
List(PhaseTime): phases
Float64: phase_step_s
List(String): phase_notes phase_note_kinds
"""
SUMMARY_COLUMNS = """
String: run_id
Int64: steps first_step last_step
Float64: tgs tgs_low tgs_high tgs_slots tgs_median tgs_p5 tgs_p95 tgs_mad tgs_trimmed
Float64: tgs_with_spikes tgs_without_spikes tgs_end_to_end
Float64: seconds_per_step seconds_per_step_low seconds_per_step_high samples_per_second
Float64: samples_per_update tokens_per_update peak_memory_bytes memory_slope
List(MemoryChange): memory_changes
Float64: startup_s memory_growth
List(LossAtCount): losses
Float64: tokens_per_second tokens_per_gpu_step
String: token_basis time_basis end_to_end_basis
Float64: excluded_share
List(String): excluded_causes
Float64: data_share
Int64: windows
Float64: effective_windows interval_freedom
String: no_interval
Int64: steady_from
Float64: wall_s
String: wall_basis
List(TimeLost): time_lost
List(SlowStep): slowest_steps
List(SpeedLevel): levels
Float64: drift drift_low drift_high
List(PauseLevel): pauses
Float64: evidence_gap
Int64: evidence_windows
String: evidence_cause
Float64: token_gap
List(String): token_counts
Float64: logged_tgs logged_tflops logged_mfu logged_tgs_total
Float64: logged_samples_per_second logged_samples_running attention_ratio
List(Float64): document_pairs
ImageCounts: image_counts
Float64: sequence_length
List(String): throughput_missing
List(Message): throughput_warnings
"""
COMPARISON_COLUMNS = """
String: group
Int64: rank
String: run_id name framework setup
Int64: repeats
String: chain
Float64: tgs tgs_low tgs_high ranked_rate ranked_low ranked_high
String: ranked_unit no_interval
Float64: relative_tgs relative_low relative_high seconds_per_step samples_per_second
Float64: samples_per_update tokens_per_update peak_memory_bytes smallest_difference
Boolean: tied_with_best
Float64: tgs_end_to_end mfu mfu_full_attention logged_tgs logged_tflops logged_mfu
Int64: logged_rank
String: logged_by
Float64: tflops flops_per_token
String: flops_source
Float64: equal_flops tgs_at_equal_flops gpu_hours_per_billion_tokens
Float64: gpu_hours_per_billion_tokens_end_to_end
Float64: kwh_per_billion_tokens joules_per_token
String: energy_source
String: price_per_gpu_hour
Float64: cost_per_billion_tokens cost_per_billion_tokens_end_to_end equal_tokens
Float64: loss_at_equal_tokens loss_spread
Boolean: same_loss
String: no_loss
List(String): differs
String: nearest_group
List(String): nearest_differs not_ranked doubts
Boolean: synthetic
"""
RUNS_COLUMNS = """
String: run_id sha256 name
Int64: launch
String: framework log_format
Int64: first_line last_line
Datetime(us): started_at
Boolean: utc
String: outcome
Int64: outcome_line
String: outcome_text step_unit elapsed_covers
Boolean: elapsed_excludes_data
String: rate_covers
Boolean: rate_excludes_data
List(String): evidence
Boolean: synthetic
List(String): quirks
String: engine_below times_elsewhere phase_timers
"""
POINT_COLUMNS = """
String: series run_id name
Datetime(us): at
Boolean: dated
Float64: tgs tgs_low tgs_high mfu mfu_full_attention
String: formula peaks outcome
Boolean: synthetic
List(String): marks
Int64: segment
Float64: level
Boolean: outlier
"""
CHANGE_COLUMNS = """
String: series against kind
Datetime(us): at
String: run_id last_before
Datetime(us): found_at
String: found_by
Float64: before after ratio ratio_low ratio_high
Int64: points_after
List(String): causes
Boolean: counts
"""
SERIES_COLUMNS = """
String: series framework model
Int64: gpus points nights
Datetime(us): first_at last_at
Float64: level level_low level_high spread mfu
String: last_run
Float64: last_tgs last_ratio
Boolean: suspect
List(String): formulas peaks setups
String: baseline_run
Float64: baseline_tgs against_baseline against_low against_high
String: state
"""

DTYPES = {
    "String": pl.String(),
    "Int64": pl.Int64(),
    "Float64": pl.Float64(),
    "Boolean": pl.Boolean(),
    "Datetime(us)": pl.Datetime("us"),
    "List(String)": pl.List(pl.String),
    "List(Int64)": pl.List(pl.Int64),
    "List(Float64)": pl.List(pl.Float64),
    "List(Message)": pl.List(
        pl.Struct({"text": pl.String, "kind": pl.String, "effect": pl.String})
    ),
    "List(SpeedLevel)": pl.List(
        pl.Struct(
            dict.fromkeys(("from_step", "to_step", "windows"), pl.Int64)
            | dict.fromkeys(("seconds", "seconds_per_step"), pl.Float64)
            | dict.fromkeys(("tgs", "tgs_low", "tgs_high"), pl.Float64)
            | {"ranked": pl.Boolean}
            | dict.fromkeys(("change", "change_low", "change_high"), pl.Float64)
            | {"gpu_hours_lost": pl.Float64, "events": pl.List(pl.String)}
            | {"phases": pl.List(pl.Struct({"phase": pl.String, "seconds": pl.Float64}))}
        )
    ),
    "List(LossAtCount)": pl.List(
        pl.Struct({"unit": pl.String, "count": pl.Int64, "loss": pl.Float64})
    ),
    "List(PauseLevel)": pl.List(
        pl.Struct(
            dict.fromkeys(("from_step", "to_step"), pl.Int64)
            | dict.fromkeys(("seconds_per_step", "share"), pl.Float64)
        )
    ),
    "ImageCounts": pl.Struct(
        dict.fromkeys(("tokens", "squares_low", "squares_high", "squares_packed"), pl.Float64)
        | dict.fromkeys(("multiple", "contradictions"), pl.Int64)
    ),
    "List(MemoryChange)": pl.List(
        pl.Struct(
            {"kind": pl.String}
            | dict.fromkeys(("from_step", "to_step"), pl.Int64)
            | dict.fromkeys(("bytes_before", "bytes_after"), pl.Float64)
        )
    ),
    "List(SlowRanks)": pl.List(
        pl.Struct(
            {"ranks": pl.String, "rank_count": pl.Int64, "node": pl.String, "kind": pl.String}
            | dict.fromkeys(("shared", "lasting"), pl.Boolean)
            | {"steps": pl.Int64, "first_steps": pl.List(pl.Int64)}
            | dict.fromkeys(("seconds", "longest_s", "gpu_hours_lost", "share"), pl.Float64)
        )
    ),
    "List(SlowStep)": pl.List(
        pl.Struct(
            dict.fromkeys(("from_step", "to_step"), pl.Int64)
            | dict.fromkeys(("seconds", "lost_s"), pl.Float64)
            | {"cause": pl.String}
        )
    ),
    "List(TimeLost)": pl.List(
        pl.Struct(
            {"cause": pl.String, "windows": pl.Int64, "seconds": pl.Float64, "share": pl.Float64}
        )
    ),
    "List(PhaseTime)": pl.List(
        pl.Struct(
            {
                "phase": pl.String,
                "seconds": pl.Float64,
                "share": pl.Float64,
                "share_of": pl.String,
                "windows": pl.Int64,
                "source": pl.String,
            }
        )
    ),
}


def listed(text: str) -> list[tuple[str, pl.DataType]]:
    """Return names and dtypes of lines `DTYPE: NAME NAME …`, in their order."""
    lines = (line.split(": ") for line in text.strip().splitlines())
    return [(name, DTYPES[dtype]) for dtype, names in lines for name in names.split()]


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        pytest.param(METRICS, METRICS_COLUMNS, id="METRICS"),
        pytest.param(SUMMARY, SUMMARY_COLUMNS, id="SUMMARY"),
        pytest.param(COMPARISON, COMPARISON_COLUMNS, id="COMPARISON"),
        pytest.param(frame_schema("runs"), RUNS_COLUMNS, id="runs"),
        pytest.param(POINT_SCHEMA, POINT_COLUMNS, id="POINT_SCHEMA"),
        pytest.param(CHANGE_SCHEMA, CHANGE_COLUMNS, id="CHANGE_SCHEMA"),
        pytest.param(SERIES_SCHEMA, SERIES_COLUMNS, id="SERIES_SCHEMA"),
    ],
)
def test_columns_keep_their_names_dtypes_and_order(
    schema: Mapping[str, pl.DataType], text: str
) -> None:
    assert list(schema.items()) == listed(text)
    assert [str(dtype) for dtype in schema.values()] == [str(dtype) for _, dtype in listed(text)]


def test_a_column_of_runs_has_its_unit_and_meaning() -> None:
    assert {name: column.unit for name, column in RUN_COLUMNS.items() if column.unit} == {
        "first_line": "line",
        "last_line": "line",
        "outcome_line": "line",
    }
    assert RUN_COLUMNS["launch"].meaning == "number of the launch within its source, from 1"
    assert all(column.meaning for column in RUN_COLUMNS.values())
    assert list(RunRow.__annotations__) == list(RUN_COLUMNS)


def test_a_type_without_a_dtype_is_refused() -> None:
    class Odd(TypedDict):
        place: complex

    with pytest.raises(KeyError):
        row_dtypes(Odd)


def test_rows_come_from_a_frame_of_metrics() -> None:
    frame = METRICS.to_frame().clear(2).with_columns(run_id=pl.Series(["a", "b"]))
    assert [row["run_id"] for row in metrics_rows(frame)] == ["a", "b"]
    row = metrics_row(frame, "b")
    assert row["run_id"] == value_of(row, "run_id") == not_null(row["run_id"]) == "b"
    assert list(row) == METRICS.names()
    with pytest.raises(ValueError, match="null"):
        not_null(row["tgs"])


# -- a print that implies other FLOPs than that of an earlier run of the same work ---------------

DAYS = {name: datetime(2026, 3, day) for day, name in enumerate("abc", 1)}
FLOPS = {"a": (100.0, 110.0), "b": (130.0, 140.0), "c": (135.0, 145.0)}


def printed(**of_run: dict[str, object]) -> list[MetricsRow]:
    """Runs of one work on following days, with the FLOPs per token that their prints imply."""
    return metrics_rows(
        pl.DataFrame(
            [
                {
                    "run_id": name,
                    "name": f"{name}.log",
                    "started_at": DAYS[name],
                    "framework": "torchtitan",
                    "model": "llama3-8b",
                    "seq_len": 8192,
                    "logged_flops_low": FLOPS[name][0],
                    "logged_flops_high": FLOPS[name][1],
                    "logged_reproduced": False,
                }
                | other
                for name, other in of_run.items()
            ],
        ).match_to_schema(METRICS, missing_columns="insert", extra_columns="raise")
    )


def test_the_later_run_says_that_its_print_implies_other_flops() -> None:
    rows = printed(a={}, b={}, c={})
    found = formula_change_warnings(rows)
    assert found == formula_change_warnings(rows[::-1])
    assert list(found) == ["b"]  # c overlaps with b, the last before it
    assert "imply 135 FLOPs per token, and those of a.log" in found["b"]
    assert "length, 105:" in found["b"]


@settings(max_examples=30)
@given(st.tuples(*[st.tuples(st.integers(1, 9), st.integers(1, 9))] * 2))
def test_prints_differ_where_no_flops_agree_with_both(
    ranges: tuple[tuple[int, int], tuple[int, int]],
) -> None:
    bounds = [{"logged_flops_low": float(a), "logged_flops_high": float(b)} for a, b in ranges]
    within = [set(range(a, b + 1)) for a, b in ranges]
    found = formula_change_warnings(printed(a=bounds[0], b=bounds[1]))
    assert bool(found) == (all(within) and not within[0] & within[1])


@pytest.mark.parametrize(
    ("earlier", "later", "differ"),
    [
        ({}, {}, True),
        ({"recompute": "full"}, {"recompute": "full"}, True),
        ({"recompute": "full"}, {}, False),
        ({"model": None}, {"model": None}, False),
        ({"seq_len": None}, {"seq_len": None}, False),
        ({"seq_len": 4096}, {}, False),
        ({"framework": "xtuner"}, {}, False),
        ({"started_at": None}, {}, False),
        ({}, {"started_at": None}, False),
        ({"started_at": DAYS["c"]}, {}, True),  # then a is the later one
        # One formula that gives both prints tells why they differ.
        ({"logged_reproduced": True}, {"logged_reproduced": True}, False),
        ({"logged_reproduced": True}, {}, True),
        ({}, {"logged_reproduced": True}, True),
        ({"logged_reproduced": True, "logged_formula": "x"}, {"logged_reproduced": True}, True),
    ],
)
def test_only_prints_of_the_same_work_are_held_against_each_other(
    earlier: dict[str, object], later: dict[str, object], *, differ: bool
) -> None:
    found = formula_change_warnings(printed(a=earlier, b=later))
    assert list(found) == (["a" if earlier.get("started_at") else "b"] if differ else [])


def test_a_warning_of_other_runs_is_added_with_its_kind() -> None:
    a = {"warnings": ["no doubt"], "warning_kinds": ["one"], "doubts": []}
    b = {"warnings": ["odd", "bad"], "warning_kinds": ["two", "three"], "doubts": ["bad"]}
    table = with_cross_run_warnings(pl.DataFrame(printed(a=a, b=b), schema=METRICS))
    assert table["warnings"].to_list()[0] == ["no doubt"]
    assert table["warnings"].to_list()[1][:2] == ["odd", "bad"]
    assert "imply 135 FLOPs" in table["warnings"].to_list()[1][2]
    assert table["warning_kinds"].to_list() == [["one"], ["two", "three", "formula-changed"]]
    assert table["doubts"].to_list() == [[], ["bad"]]


@pytest.mark.parametrize(
    ("doubt", "short"),
    [
        ("X" * 44, "X" * 44),
        ("X" * 45, "X" * 43 + "…"),
        (f"{'X' * 24}, y: z", "X" * 24),
        (f"{'X' * 23}, y: z", f"{'X' * 23}, y"),
        (f"{'X' * 24}. Fix: y", "X" * 24),
        (f"{'X' * 42} {'y' * 9}", f"{'X' * 42}…"),  # no blank before the dots
        (f"{NOT_RANKED}{'x' * 24}. Fix: y", f"X{'x' * 23}"),
    ],
)
def test_a_doubt_is_cut_at_a_clause(doubt: str, short: str) -> None:
    assert short_doubt([doubt]) == short


def test_the_doubt_that_costs_the_rank_is_shown() -> None:
    assert short_doubt([]) is None
    assert short_doubt(["One.", "Two."]) == "One"
    assert short_doubt(["One.", f"{NOT_RANKED}two.", f"{NOT_RANKED}three."]) == "Two"
