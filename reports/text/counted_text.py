"""Count of a model by FlopCounterMode as text: operators and totals."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import polars as pl

from .calculator_text import OPERATORS
from .tabular import printable, render_frame, wrapped

__all__ = ["show_counted"]

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
        wrapped(_head(answer)),
        _table(answer),
        _totals(answer),
        wrapped(ESTIMATE_NOTE) if estimates else "",
        wrapped(_idle(answer)),
        wrapped(
            "To give these operators to a run: add --format json > operators.json, then "
            "fairmfu set RUN operators=operators.json"
        ),
    ]
    return "\n\n".join(part for part in parts if part)


def _head(answer: Mapping[str, Any]) -> str:
    both = " of source and target" if answer["tokens"] != answer["seq_len"] else ""
    return (
        f"{printable(answer['model'])} ({printable(answer['class'])}), {answer['tokens']:,} "
        f"tokens{both}, training; {answer['params_total']:,} parameters; counted by "
        f"{answer['counted_by']}"
    )


def _table(answer: Mapping[str, Any]) -> str:
    mark = {True: " (estimate)", False: ""}
    rows = [{**row, "name": f"{row['name']}{mark[row['estimate']]}"} for row in answer["operators"]]
    if not rows:
        return ""
    return render_frame(
        pl.DataFrame(rows, infer_schema_length=None), "table", OPERATORS, complete_output="json"
    )


def _totals(answer: Mapping[str, Any]) -> str:
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
