"""Figures of a run as tests write them: what it prints, and what is known of it."""

from __future__ import annotations

from typing import Any

import polars as pl

from fairmfu.metrics.audit.formula_checks import FigureLines, FormulaFacts, read_figures
from fairmfu.metrics.formula.model_shapes import find_model

LLAMA = find_model("llama3-8b")


def known(**changes: Any) -> FormulaFacts:
    """An 8B Llama of 4,096 tokens on 8 GPUs, 16 sequences a step."""
    facts: dict[str, Any] = {
        "log_format": "torchtitan",
        "shape": LLAMA,
        "T": 4096,
        "recompute": "none",
        "intermediate_size": None,
        "padded_vocab": None,
        "gpus": 8,
        "batch": 16,
        "peak": None,
        "device": None,
        "day": None,
        "era": None,
        "version": None,
    }
    return FormulaFacts(**facts | changes)


def lines(**columns: list[float] | list[float | None]) -> FigureLines:
    """Lines that print so much of each column."""
    return read_figures(pl.DataFrame(columns))
