"""Solve the sequence length of every line from its figures.

    F = tflops x 1e12 / tokens_per_sec        T = (F - F(0)) / (F(1) - F(0))

for a formula affine in T, if the facts give no single length. If samples are not packed, a formula
that reads the current batch uses another length on every line. The figures determine the length if
printed so finely that every line leaves a single whole number of tokens and hardly any range around
it. Such numbers must be unlikely to come out by accident, since a wrong formula or model leaves any
number, whole or not.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Final

import numpy as np

from ..core.arrays import FloatArray
from ..core.intervals import FLOAT_TOLERANCE
from .formula_checks import (
    FigureLines,
    FormulaFacts,
    LineBounds,
    device_rate_behind,
    era_flops,
    tflops_factor,
)
from .formula_era import Era

__all__ = ["solve_lengths"]

MAX_LENGTH_RANGE: Final = 0.05
"""Widest range of lengths that a line's rounding may leave, in tokens."""

MAX_ACCIDENT_CHANCE: Final = 1e-4
"""Largest chance that whole numbers come out by accident: the product, over all different lengths,
of the share of a token that is left open.
"""

AFFINE_TEST_LENGTHS: Final = (1024, 2048, 65536)
"""Lengths for testing whether a formula is a straight line."""


def solve_lengths(
    figures: FigureLines, era: Era, formula_facts: FormulaFacts
) -> FigureLines | None:
    """Return the lines with `sequence_length` solved from TFLOP/s and tokens/s.

    None if the length is known, if a line leaves its length open, or if the lengths may be an
    accident.
    """
    if formula_facts.T is not None or len(figures.printed_values("sequence_length")):
        return None
    line, lines = (
        _affine(era, formula_facts),
        figures.with_decimals_of(era).printing("logged_tflops", "logged_tgs"),
    )
    if line is None or not 0 < len(figures.printed_values("logged_tflops")) == lines.height:
        return None
    rate = device_rate_behind("logged_tflops", lines, formula_facts)
    if rate is None:
        return None
    flops = (
        lines.interval("logged_tflops").scaled(1e12 / tflops_factor(era, formula_facts)) / rate[0]
    )
    tokens = LineBounds((flops.low - line[0]) / line[1], (flops.high - line[0]) / line[1])
    whole = np.rint((tokens.low + tokens.high) / 2)
    if not _certain(tokens, whole, formula_facts.max_length):
        return None
    lengths = np.full(figures.height, np.nan)
    lengths[np.isfinite(figures.columns["logged_tflops"])] = whole
    return replace(figures, columns={**figures.columns, "sequence_length": lengths})


def _affine(era: Era, formula_facts: FormulaFacts) -> tuple[float, float] | None:
    """Return F(0) and the slope of F [FLOPs per token, per token of length].

    None if F is not affine in T.
    """
    first, second, third = (
        era_flops(era, formula_facts.simplified_model(length)) for length in AFFINE_TEST_LENGTHS
    )
    if first is None or second is None or third is None or second <= first:
        return None
    slope = (third - first) / (AFFINE_TEST_LENGTHS[2] - AFFINE_TEST_LENGTHS[0])
    between = first + slope * (AFFINE_TEST_LENGTHS[1] - AFFINE_TEST_LENGTHS[0])
    return (
        (first - slope * AFFINE_TEST_LENGTHS[0], slope)
        if abs(between / second - 1) < FLOAT_TOLERANCE
        else None
    )


def _certain(tokens: LineBounds, whole: FloatArray, longest: int | None) -> bool:
    """Return whether every line leaves one whole number of tokens, hardly by accident."""
    width = tokens.high - tokens.low
    possible = (whole >= 1) & (whole <= (longest or np.inf))
    held = (tokens.low <= whole) & (whole <= tokens.high) & (width <= MAX_LENGTH_RANGE)
    narrowest = {length: width[whole == length].min() for length in np.unique(whole)}
    return bool((held & possible).all()) and prod(narrowest.values()) <= MAX_ACCIDENT_CHANCE
