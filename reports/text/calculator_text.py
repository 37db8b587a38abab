"""Answer of the calculator as text: operators, parameters, rates and time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from fairmfu.metrics.pipeline.calculator import Question, parse_printed, rates_of

from .tabular import (
    GIB,
    Formatter,
    count,
    decimal,
    percent,
    printable,
    ratio,
    render_frame,
    wrapped,
)

Columns = dict[str, tuple[str, Formatter]]


def _match(matches: object) -> str:
    return "matches" if matches else "-"


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
    "tflops": ("TFLOP/s", decimal),
    "mfu": ("MFU", percent),
    "matches_printed": ("printed", _match),
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


def show_other_tools(
    question: Question,
    answer: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    output: str,
    printed: str | None = None,
) -> str:
    """Return other tools' formulas beside ours.

    answer, rows: of metrics.pipeline.calculator, the answer and the other tools
    printed: the log's figure, which the rows were compared with
    """
    ours = _ours(answer, printed)
    if output == "json":
        whole = {
            "model": question.shape.name,
            "seq_len": question.seq_len,
            "phase": question.phase,
            "trainable": _trained(question),
            "ours": ours,
            "others": list(rows),
        }
        return json.dumps(whole, indent=2, allow_nan=False)
    head = (
        f"{printable(question.shape.name)}, {question.seq_len:,} tokens, {_work(question)}, "
        f"recompute {question.recompute or 'none'}: FLOPs/token by other formulas"
    )
    parts = [
        wrapped(head),
        "" if printed is None else wrapped(_matched(printed, ours, rows)),
        _others_note(question),
        f"ours: {ours['flops_per_token']:,.0f} FLOPs/token, exact attention",
        _speed(answer),
        _table(rows, OTHER_TOOL_COLUMNS),
    ]
    return "\n\n".join(part for part in parts if part)


def _work(question: Question) -> str:
    if question.phase != "train":
        return f"inference, {question.phase}"
    return {"full": "full training", "lora": "LoRA", "frozen": "frozen weights"}.get(
        _trained(question), _trained(question)
    )


def _trained(question: Question) -> str:
    return question.trainable.kind if question.trainable else "full"


def _others_note(question: Question) -> str:
    """Return what the other formulas count, if it is not what was asked."""
    if question.phase != "train":
        return "Other formulas count training: here a third of it, their forward."
    if _trained(question) != "full" or question.documents:
        return wrapped(
            "Other formulas count full training of one unpacked sequence, unless the last column "
            "tells otherwise; only ours counts what was asked."
        )
    return ""


def _ours(answer: Mapping[str, Any], printed: str | None) -> dict[str, Any]:
    """Return our count and rates, and whether they match the printed figure."""
    training = answer["phase"] == "train"
    flops = answer["flops_per_token" if training else "forward_flops_per_token"]
    names = ("accelerator", "precision", "peak_flops", "tgs", "tflops", "mfu", "hfu")
    times = ("tokens", "gpus", "training_days", "gpu_hours")
    ours = {"flops_per_token": flops} | {
        name: answer[name] for name in (*names, *times) if name in answer
    }
    if printed is not None:
        ours["matches_printed"] = rates_of(flops, answer, parse_printed(printed))["matches_printed"]
    return ours


def _matched(printed: str, ours: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Say which formula gives a printed figure, or which is nearest."""
    every = [{"name": "ours, exact attention", **ours}, *rows]
    names = [str(row["name"]) for row in every if row["matches_printed"]]
    if names:
        return f"{printed} is the figure of: {'; '.join(names)}."
    figure = parse_printed(printed)
    known = [row for row in every if row[figure.kind]]
    nearest = min(known, key=lambda row: abs(row[figure.kind] / figure.value - 1))
    return (
        f"No formula gives {printed}. Nearest: {nearest['name']}, "
        f"{nearest[figure.kind] / figure.value:.3f}x. Check the speed, the sequence length and the "
        "peak; with activation checkpointing, add --recompute full."
    )


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
        if bounds := answer.get("hardware_flops_per_token_language_model"):
            low, high = bounds
            lines.append(f"           {low:,.0f} to {high:,.0f} without the vision tower")
        lines += [_rule(rule) for rule in answer["rules"]]
    lines.append(
        f"KV cache   {answer['kv_cache_bytes_per_token']:,.0f} bytes per token of context, "
        f"{answer['kv_cache_bytes'] / GIB:,.2f} GiB for a batch of {answer['batch']:,}"
    )
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
        f"{answer['precision']}, {answer['tgs_at_peak']:,.0f} tokens/s/GPU at its peak",
        wrapped(answer["peak_source"].partition("; ")[2]),
    ]
    if "tgs" in answer:
        lines.append(
            f"{answer['tgs']:,.1f} tokens/s/GPU is {percent(answer['mfu'])} MFU and "
            f"{answer['tflops']:,.1f} TFLOP/s (exact attention)"
        )
        if answer["hfu"]:
            bounds = dict.fromkeys(map(percent, answer["hfu"]))
            lines.append(f"{' to '.join(bounds)} HFU, with activation checkpointing")
        if alone := answer.get("hfu_language_model"):
            bounds = dict.fromkeys(map(percent, alone))
            lines.append(f"{' to '.join(bounds)} HFU without the vision tower")
        if "tgs_range" in answer:
            low, high = answer["tgs_range"]
            lines.append(f"That HFU is {low:,.1f} to {high:,.1f} tokens/s/GPU; the least is used")
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


# --- counts of FlopCounterMode --------------------------------------------------------------

ESTIMATE_NOTE: Final = (
    "An estimate depends on data or on code: attention with an unknown mask or chosen keys counts "
    "more pairs than needed, a state is counted as transformers' reference kernel computes it, and "
    "all experts count where its code multiplies all of them."
)


def show_counted(answer: Mapping[str, Any], output: str) -> str:
    """Return the answer of metrics.pipeline.counted_answer, for a terminal or as JSON."""
    if output == "json":
        return json.dumps(answer, indent=2, allow_nan=False)
    estimates = any(row["estimate"] for row in answer["operators"])
    parts = [
        wrapped(_counted_head(answer)),
        _table(_marked(answer["operators"]), OPERATORS),
        _counted_totals(answer),
        wrapped(ESTIMATE_NOTE) if estimates else "",
        wrapped(_idle(answer)),
        wrapped(
            "To give these operators to a run: add --format json > operators.json, then "
            "fairmfu set RUN operators=operators.json"
        ),
    ]
    return "\n\n".join(part for part in parts if part)


def _counted_head(answer: Mapping[str, Any]) -> str:
    both = " of source and target" if answer["tokens"] != answer["seq_len"] else ""
    return (
        f"{printable(answer['model'])} ({printable(answer['class'])}), {answer['tokens']:,} "
        f"tokens{both}, training; {answer['params_total']:,} parameters; counted by "
        f"{answer['counted_by']}"
    )


def _counted_totals(answer: Mapping[str, Any]) -> str:
    return (
        f"forward    {answer['forward_flops_per_token']:,.0f} FLOPs/token\n"
        f"training   {answer['flops_per_token']:,.0f} FLOPs/token, exact attention\n"
        f"           {answer['flops_per_token_full_attention']:,.0f} with full attention"
    )


def _idle(answer: Mapping[str, Any]) -> str:
    if not answer["idle"]:
        return ""
    parts = ", ".join(printable(part) for part in answer["idle"])
    return f"Not counted, because text alone does not reach them: {parts}."
