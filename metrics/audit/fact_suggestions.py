"""Propose model, length and formula that would print the figures of a log.

A log with TFLOP/s and tokens/s (or MFU and a known peak) fixes the FLOPs per token of its formula
to within the print's rounding. Few models, lengths and eras match. Proposals are never applied:
several may fit, and a fork may count something else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, floor
from typing import Final

from ..formula.model_shapes import buildable_models
from ..formula.terms import Recompute
from .audit import eras_of
from .explanations import COMMON_LENGTHS
from .formula_checks import FigureLines, FormulaFacts, era_flops, implied_flops
from .formula_era import Era

__all__ = ["Proposal", "propose_facts"]

MAX_ODD_LENGTH_RANGE: Final = 1.0
"""Widest range [tokens] of an odd length to propose: the figures must fix it to one token."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """Facts that reproduce every line of a run.

    era: name of the framework's formula; seq_len [tokens]; flops_per_token: by that formula
    recompute: only if that formula counts it; peak_flops: only if the peak was searched for
    """

    model: str
    seq_len: int
    era: str
    flops_per_token: float
    recompute: str | None = None
    peak_flops: float | None = None

    @property
    def settings(self) -> str:
        """Arguments for `fairmfu set`."""
        recompute = f" recompute={self.recompute}" if self.recompute else ""
        return f'model="{self.model}" seq_len={self.seq_len}{recompute}'


def propose_facts(lines: FigureLines | None, formula_facts: FormulaFacts) -> list[Proposal]:
    """Return facts that reproduce every line; facts that the run has are kept.

    lines: of metrics.audit.audit.lines_by_source. The likeliest era comes first. Of eras with the
        same count for a model only the likeliest is proposed, and forks only if no formula of the
        main line fits.
    """
    if lines is None:
        return []
    found: dict[tuple[str, int, str | None, float | None], Proposal] = {}
    for era in eras_of(formula_facts, lines):
        if era.fork and found:  # forks only if nothing else fits
            break
        for peak, low, high in _fingerprints(lines, era, formula_facts):
            for proposal in _of_era(era, formula_facts, low, high):
                key = (proposal.model, proposal.seq_len, proposal.recompute, peak)
                found.setdefault(key, replace(proposal, peak_flops=peak))
    return list(found.values())


def _fingerprints(
    lines: FigureLines, era: Era, formula_facts: FormulaFacts
) -> Iterator[tuple[float | None, float, float]]:
    """Yield (peak tried or None, lowest, highest FLOPs per token)."""
    low, high = implied_flops(lines, era, formula_facts)
    if low is not None and high is not None:
        yield None, low, high
        return
    for peak in sorted(set(era.peak_values)):
        low, high = implied_flops(lines, era, formula_facts._replace(peak=peak))
        if low is not None and high is not None:
            yield peak, low, high


def _of_era(era: Era, formula_facts: FormulaFacts, low: float, high: float) -> Iterator[Proposal]:
    shapes = (formula_facts.shape,) if formula_facts.shape else buildable_models()
    ask = era.counts_recompute and formula_facts.recompute is None
    policies: tuple[Recompute | None, ...] = ("none", "full") if ask else (formula_facts.recompute,)
    for shape, policy in product(shapes, policies):
        like = formula_facts._replace(shape=shape, recompute=policy)
        for length in _lengths(era, like, low, high, odd=formula_facts.shape is not None):
            flops = era_flops(era, like.simplified_model(length))
            if flops is not None and low <= flops <= high:
                found = Proposal(shape.name, length, era.name, flops)
                yield replace(found, recompute=policy) if ask else found


def _lengths(
    era: Era, formula_facts: FormulaFacts, low: float, high: float, *, odd: bool
) -> list[int]:
    """Return lengths that may give these FLOPs: usual ones, else one exact odd length."""
    length = formula_facts.line_length or formula_facts.T
    if length is not None:
        return [length]
    short, long = COMMON_LENGTHS[0], COMMON_LENGTHS[-1]
    at = [era_flops(era, formula_facts.simplified_model(length)) for length in (short, long)]
    if at[0] is None or at[1] is None or not at[0] <= high or not low <= at[1]:
        return []
    usual = [
        n
        for n in COMMON_LENGTHS
        if _between(era_flops(era, formula_facts.simplified_model(n)), low, high)
    ]
    if usual or not odd:
        return usual
    slope = (at[1] - at[0]) / (long - short)
    first, last = ((flops - at[0]) / slope + short for flops in (low, high))
    return (
        [ceil(first)] if last - first < MAX_ODD_LENGTH_RANGE and ceil(first) == floor(last) else []
    )


def _between(flops: float | None, low: float, high: float) -> bool:
    return flops is not None and low <= flops <= high
