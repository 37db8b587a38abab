"""Answer of the calculator as text: operators, parameters, rates and time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from fairmfu.metrics.pipeline.calculator import Question

from .tabular import Formatter, count, percent, printable, ratio, render_frame, wrapped

Columns = dict[str, tuple[str, Formatter]]

OPERATORS: Final[Columns] = {
    "name": ("operator", str),
    "layers": ("layers", str),
    "forward_flops_per_token": ("forward FLOPs/token", count),
    "flops_per_token": ("training FLOPs/token", count),
    "share": ("share", percent),
}
MODULES: Final[Columns] = {
    "name": ("module", str),
    "layers": ("layers", str),
    "params_total": ("parameters", count),
    "params_active": ("active", count),
    "params_matmul": ("in matmuls", count),
    "biases": ("biases", count),
    "growth": ("FLOPs/token grow as", str),
}
DROPPABLE_MODULE_COLUMNS: Final = ("biases", "params_active", "params_matmul")
"""Columns that a narrow terminal omits, in this order."""
UNCOUNTED: Final[Columns] = {
    "name": ("not counted", str),
    "forward": ("forward FLOPs/token", count),
    "share": ("share of counted", percent),
    "rule": ("estimated as", str),
}
OTHER_TOOL_COLUMNS: Final[Columns] = {
    "name": ("formula", str),
    "flops_per_token": ("FLOPs/token", count),
    "ratio_to_ours": ("/ ours", ratio),
    "why": ("difference from ours", str),
}


def show_answer(answer: Mapping[str, Any], output: str) -> str:
    """Return the answer of metrics.pipeline.calculator, for a terminal or as JSON."""
    if output == "json":
        return json.dumps(answer, indent=2, allow_nan=False)
    parts = [
        wrapped(_head(answer)),
        _table(_marked(answer["operators"]), OPERATORS),
        _totals(answer),
        _table(answer["modules"], MODULES),
        _table(answer["uncounted"], UNCOUNTED),
        _speed(answer),
    ]
    return "\n\n".join(part for part in parts if part)


def show_other_tools(question: Question, rows: Sequence[Mapping[str, Any]], output: str) -> str:
    """Return other tools' formulas beside ours."""
    if output == "json":
        whole = {"model": question.shape.name, "seq_len": question.seq_len, "others": list(rows)}
        return json.dumps(whole, indent=2, allow_nan=False)
    head = (
        f"{printable(question.shape.name)}, {question.seq_len:,} tokens, full training, "
        f"recompute {question.recompute or 'none'}: FLOPs/token by other formulas"
    )
    return f"{wrapped(head)}\n\n{_table(rows, OTHER_TOOL_COLUMNS)}"


def _table(rows: Sequence[Mapping[str, Any]], columns: Columns) -> str:
    if not rows:
        return ""
    frame = pl.DataFrame([dict(row) for row in rows], infer_schema_length=None)
    shown = {name: column for name, column in columns.items() if name in frame.columns}
    return render_frame(
        frame, "table", shown, droppable=DROPPABLE_MODULE_COLUMNS, complete_output="json"
    )


def _head(answer: Mapping[str, Any]) -> str:
    what = {"train": "training", "prefill": "inference, prefill", "decode": "inference, decode"}
    active = ""
    if answer["params_active"] != answer["params_total"]:
        active = f", {answer['params_active']:,} active"
    return (
        f"{printable(answer['model'])}, {answer['seq_len']:,} tokens, {what[answer['phase']]}; "
        f"{answer['params_total']:,} parameters{active}; formula {answer['formula']}"
    )


def _marked(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the operators, those that are estimates marked in their names."""
    mark = {True: " (estimate)", False: ""}
    return [{**row, "name": row["name"] + mark[row["estimate"]]} for row in rows]


def _totals(answer: Mapping[str, Any]) -> str:
    lines = [f"forward    {answer['forward_flops_per_token']:,.0f} FLOPs/token"]
    if answer["phase"] == "train":
        lines += [
            f"training   {answer['flops_per_token']:,.0f} FLOPs/token, exact attention",
            f"           {answer['flops_per_token_full_attention']:,.0f} with full attention",
        ]
        if answer["hardware_flops_per_token"]:
            low, high = answer["hardware_flops_per_token"]
            lines.append(f"executed   {low:,.0f} to {high:,.0f} with activation checkpointing")
        lines += [_rule(rule) for rule in answer["rules"]]
    cache = answer["kv_cache_bytes_per_token"]
    lines.append(f"KV cache   {cache:,.0f} bytes per token of context")
    return "\n".join(lines)


def _rule(rule: Mapping[str, Any]) -> str:
    line = f"{rule['rule']:<30} {rule['flops_per_token']:>16,.0f}"
    if rule["exact"] is None:
        return line
    return f"{line}, {rule['flops_per_token'] / rule['exact']:.3f}x the exact {rule['exact']:,.0f}"


def _speed(answer: Mapping[str, Any]) -> str:
    if "accelerator" not in answer:
        return ""
    lines = [
        f"{answer['accelerator']}: {answer['peak_flops'] / 1e12:,.1f} TFLOP/s dense in "
        f"{answer['precision']}, {answer['tgs_at_peak']:,.0f} tokens/s/GPU at its peak"
    ]
    if "tgs" in answer:
        lines.append(
            f"{answer['tgs']:,.1f} tokens/s/GPU is {percent(answer['mfu'])} MFU (exact attention)"
        )
        if answer["mfu"] > 1:
            lines.append(
                "Impossible: above 100 % MFU. Check the rate, the GPU and the sequence length."
            )
    if "training_seconds" in answer:
        lines.append(
            f"{answer['tokens']:,.0f} tokens on {answer['gpus']:,} GPUs: "
            f"{answer['training_days']:,.1f} days, {answer['gpu_hours']:,.0f} GPU-hours, "
            f"{answer['training_flops']:.3g} FLOPs"
        )
    return "\n".join(lines)
