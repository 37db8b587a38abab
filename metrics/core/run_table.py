"""One row per run: the columns of its metrics, and what a row says beside those of other runs.

Apart from what computes them, so that kept metrics are shown without its imports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from fairmfu.ingest.core.schema import BOOL, FLOAT, INT, TEXT, TEXT_LIST, TIMESTAMP

NOT_RANKED: Final = ": not ranked"
"""How a warning ends that keeps its run out of every ranking."""

OUTDATED_READING: Final = (
    "read by an earlier fairmfu (to read it anew: fairmfu ingest --again). Since then "
)
"""How the warning begins of a run whose sources today's readers read otherwise."""

TIME_LOST_STRUCT: Final = pl.Struct(
    {"cause": pl.String, "windows": pl.Int64, "seconds": pl.Float64, "share": pl.Float64}
)

RATE_COLUMNS: Final = {
    "tgs": FLOAT,
    "tgs_low": FLOAT,
    "tgs_high": FLOAT,
    "tgs_slots": FLOAT,
    "tgs_median": FLOAT,
    "tgs_p5": FLOAT,
    "tgs_p95": FLOAT,
    "tgs_mad": FLOAT,
    "tgs_trimmed": FLOAT,
    "tgs_end_to_end": FLOAT,
}
"""Tokens per second per GPU: steady, with its interval and spread, and end to end."""

RATE_BASIS_COLUMNS: Final = {
    "token_basis": TEXT,
    "time_basis": TEXT,
    "end_to_end_basis": TEXT,
    "excluded_share": FLOAT,
    "excluded_causes": TEXT_LIST,
    "data_share": FLOAT,
    "windows": INT,
    "effective_windows": FLOAT,
    "no_interval": TEXT,
    "steady_from": INT,
    "wall_s": FLOAT,
    "time_lost": pl.List(TIME_LOST_STRUCT),
    "evidence_gap": FLOAT,
    "evidence_windows": INT,
    "evidence_cause": TEXT,
    "token_gap": FLOAT,
    "token_counts": TEXT_LIST,
}
"""What the rates of a run are of: tokens, times, windows, and what was held against them."""

METRICS: Final = pl.Schema(
    {
        "run_id": TEXT,
        "name": TEXT,
        "framework": TEXT,
        "log_format": TEXT,
        "framework_version": TEXT,
        "synthetic": BOOL,
        "model": TEXT,
        "accelerator": TEXT,
        "device": TEXT,
        "gpus": INT,
        "seq_len": INT,
        "global_batch_size": INT,
        "micro_batch_size": INT,
        "gradient_accumulation": INT,
        "replicas": INT,
        "replica_groups": INT,
        "tensor_parallel": INT,
        "pipeline_parallel": INT,
        "context_parallel": INT,
        "expert_parallel": INT,
        "zero_stage": INT,
        "compile": TEXT,
        "torch": TEXT,
        "packed": TEXT,
        "attention": TEXT,
        "quantization": TEXT,
        "inferred": TEXT_LIST,
        "precision": TEXT,
        "recompute": TEXT,
        "trainable": TEXT,
        "step_unit": TEXT,
        "rate_excludes_data": BOOL,
        "steps": INT,
        "tokens_per_second": FLOAT,
        **RATE_COLUMNS,
        "mfu": FLOAT,
        "mfu_full_attention": FLOAT,
        "mfu_conservative": FLOAT,
        "mfu_bf16": FLOAT,
        "mfu_bf16_full_attention": FLOAT,
        "hfu_low": FLOAT,
        "hfu_high": FLOAT,
        "implied": FLOAT,
        "params_total": INT,
        "work": TEXT,
        "attention_pattern": TEXT,
        "attended_pairs": FLOAT,
        "trained": TEXT,
        "flops_per_token": FLOAT,
        "flops_per_token_full_attention": FLOAT,
        "peak_flops": FLOAT,
        "peak_source": TEXT,
        **RATE_BASIS_COLUMNS,
        "tokens_per_gpu_step": FLOAT,
        "attention_ratio": FLOAT,
        "sequence_length": FLOAT,
        "formula": TEXT,
        "logged_tgs": FLOAT,
        "logged_tflops": FLOAT,
        "logged_mfu": FLOAT,
        "logged_tgs_total": FLOAT,
        "logged_formula": TEXT,
        "logged_reproduced": BOOL,
        "logged_lines": INT,
        "logged_lines_reproduced": INT,
        "logged_unexplained": FLOAT,
        "logged_flops_per_token": FLOAT,
        "logged_peak": FLOAT,
        "logged_unit": FLOAT,
        "logged_flops_low": FLOAT,
        "logged_flops_high": FLOAT,
        "logged_hypothesis": TEXT,
        "logged_not_compared": TEXT,
        "logged_lengths": pl.List(INT),
        "proven": TEXT_LIST,
        "missing": TEXT_LIST,
        "warnings": TEXT_LIST,
        "sources": TEXT_LIST,
        "members": TEXT_LIST,
        "launch": INT,
        "started_at": TIMESTAMP,
        "outcome": TEXT,
        "outcome_text": TEXT,
        "continues": TEXT,
        "repeated_steps": INT,
        "goodput": FLOAT,
        "goodput_share": FLOAT,
        "goodput_launches": INT,
        "lost_to_restarts_s": FLOAT,
        "ranks": INT,
        "rank_steps": INT,
        "rank_spread": FLOAT,
        "slowest_rank": TEXT,
        "slowest_share": FLOAT,
        "bound": TEXT,
    }
)


def with_cross_run_warnings(metrics: pl.DataFrame) -> pl.DataFrame:
    """Rows of METRICS with the warnings that take the rows of other runs.

    These are `formula_change_warnings`. All else of a row follows from its own launch and
    those that it continues.
    """
    told = metrics.filter(pl.col("logged_flops_low").is_not_null()).select(FORMULA_CHANGE_COLUMNS)
    found = formula_change_warnings(told.to_dicts())
    warning = pl.col("run_id").replace_strict(found, default=None, return_dtype=TEXT)
    more = pl.concat_list("warnings", warning)
    return metrics.with_columns(
        warnings=pl.when(warning.is_not_null()).then(more).otherwise("warnings")
    )


FORMULA_CHANGE_COLUMNS: Final = (
    *("run_id", "name", "started_at", "framework", "model", "seq_len", "recompute"),
    *("logged_flops_low", "logged_flops_high", "logged_reproduced", "logged_formula"),
)


def formula_change_warnings(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Runs whose print implies other FLOPs than that of an earlier run of the same work, and how.

    rows: of METRICS, the columns of FORMULA_CHANGE_COLUMNS, in any order. The same
    framework, model, length and recomputation, so that the formula has changed between the two, or
    one of them is not what it says.
    """
    found: dict[str, str] = {}
    before: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    dated = [row for row in rows if row["started_at"] is not None]
    for row in sorted(dated, key=lambda row: (row["started_at"], row["name"], row["run_id"])):
        key = tuple(row[name] for name in ("framework", "model", "seq_len", "recompute"))
        low, high = row["logged_flops_low"], row["logged_flops_high"]
        if None in key[:3] or low is None or low > high:
            continue
        other, before[key] = before.get(key), row
        if other is None or _one_formula(row, other):
            continue
        if high < other["logged_flops_low"] or low > other["logged_flops_high"]:
            found[row["run_id"]] = (
                f"its print implies {(low + high) / 2:,.0f} FLOPs per token, that of "
                f"{other['name']}, the same model and length, "
                f"{(other['logged_flops_low'] + other['logged_flops_high']) / 2:,.0f}: "
                "the own formula changed between them, or one is not what it says"
            )
    return found


def _one_formula(row: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether one formula gives both prints, so that their facts tell why they differ."""
    both = row["logged_reproduced"] and other["logged_reproduced"]
    return bool(both) and row["logged_formula"] == other["logged_formula"]
