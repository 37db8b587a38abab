"""What else may be true of a run whose figures do not come out, or would come out all the same.

A wrong fact shifts every printed figure against its prediction by one factor, the same for all
lines. So a hypothesis (another length, era, peak, a factor of 1000, …) is that factor, and it
reproduces a run where the interval of every line holds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from metrics.era import Era
from metrics.identities import ERAS, Identity, Known, flops_of, peak_of
from metrics.model_shapes import known_models

LENGTHS: Final = tuple(sorted({n << k for n in (64, 96) for k in range(15)} | {1472, 2560}))
"""Lengths that people train with [tokens]."""

TIMES: Final = (1 / 16, 1 / 8, 1 / 4, 1 / 3, 1 / 2, 2 / 3, 3 / 2, 2.0, 3.0, 4.0, 8.0, 16.0)
"""By what a count of devices or sequences may be off."""

UNITS: Final = {
    1000.0: "the print is a thousand times too many",
    0.001: "the print is a thousandth",
    2.0: "the print is twice as much",
    0.5: "the print is half",
    4 / 3: "recomputation counted (x 4/3)",
    3 / 4: "recomputation not counted (x 3/4)",
}

BY_FLOPS: Final = ("logged_tflops", "logged_mfu")
"""Columns that a formula of FLOPs predicts."""

PROOF: Final = 0.01
"""A print that leaves more than this open proves nothing."""

SAME: Final = 1e-9
"""Two predictions that differ by less are one."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """What else may be true, as the factor by which it changes each prediction.

    fact: name of the fact that it changes, or `unit`; text: for people
    factors: column to predicted by the hypothesis over predicted now; 1 where it is not named
    """

    fact: str
    text: str
    factors: Mapping[str, float]

    def differs(self) -> bool:
        """Whether it predicts anything else at all."""
        return any(abs(factor - 1) > SAME for factor in self.factors.values())

    def reproduces(self, found: Sequence[Identity]) -> bool:
        """Whether every line of every column comes out."""
        return all(bool(i.ratio.holds(self.factors.get(i.column, 1.0)).all()) for i in found)

    def distance(self, found: Sequence[Identity]) -> float:
        """How far the worst column is off, as a logarithm."""
        worst = 0.0
        for identity in found:
            factor, middle = self.factors.get(identity.column, 1.0), identity.ratio.middle
            if not identity.ratio.holds(factor).all() and middle > 0:
                worst = max(worst, abs(float(np.log(middle / factor))))
        return worst


AS_IT_IS: Final = Hypothesis("", "as it is", {})


def hypotheses(era: Era, known: Known, found: Sequence[Identity]) -> Iterator[Hypothesis]:
    """What else one fact may be, the likeliest kinds first; of equals only other eras."""
    for fact, text, other, changed in _others(era, known):
        factors = _factors((era, known), (other, changed), found)
        hypothesis = None if factors is None else Hypothesis(fact, text, factors)
        if hypothesis is not None and (hypothesis.differs() or _another_era(era, other)):
            yield hypothesis
    columns = [identity.column for identity in found if identity.column in BY_FLOPS]
    if columns:
        for factor, text in (*UNITS.items(), *_world(known)):
            yield Hypothesis("unit", text, dict.fromkeys(columns, factor))


def _another_era(one: Era, other: Era) -> bool:
    """Of the main line; where both predict the same, nothing proves which of them printed."""
    return other is not one and not other.fork


def _others(era: Era, known: Known) -> Iterator[tuple[str, str, Era, Known]]:
    """(fact, text, era, what is known) of each other case, one fact changed."""
    for length in LENGTHS:
        yield "seq_len", f"seq_len={length:,}", era, replace(known, T=length)
    if era.counts_recompute:
        yield "recompute", "recompute=none", era, replace(known, recompute="none")
        yield "recompute", "recompute=full", era, replace(known, recompute="full")
    for own in ERAS:
        if known.log_format in own.log_formats:
            yield "logged_formula", f"the formula of {own.name}", own, known
    for flops in sorted(set(era.peak_values)):
        text = f"a peak of {flops / 1e12:,g} TFLOP/s"
        yield "logged_peak_flops", text, era, replace(known, peak=flops, device=None)
    for times in TIMES:
        if known.gpus and (other := known.gpus * times).is_integer():
            yield "gpus", f"gpus={other:,.0f}", era, replace(known, gpus=int(other))
        if known.batch and (other := known.batch * times).is_integer():
            text = f"global_batch_size={other:,.0f}"
            yield "global_batch_size", text, era, replace(known, batch=int(other))
    for shape in known_models():
        other_model = replace(known, shape=shape, intermediate_size=None)
        yield "model", f"model={shape.name}", era, other_model


def _world(known: Known) -> Iterator[tuple[float, str]]:
    """Too many or too few divisions by the world size."""
    if known.gpus is not None and known.gpus > 1:
        yield float(known.gpus), f"the sum over {known.gpus} GPUs, not one's"
        yield 1 / known.gpus, f"divided by the {known.gpus} GPUs twice"


def _factors(
    one: tuple[Era, Known], other: tuple[Era, Known], found: Sequence[Identity]
) -> dict[str, float] | None:
    """Column to predicted by `other` over predicted by `one`; None where one predicts nothing."""
    factors = {}
    for identity in found:
        factor = _counts(one[1], other[1], identity.depends)
        if identity.column in BY_FLOPS:
            mine, theirs = (flops_of(era, known.seen()) for era, known in (one, other))
            if not mine or theirs is None:
                return None
            factor *= theirs / mine
        if identity.column == "logged_tflops":
            factor *= other[0].unit_of(other[1].gpus) / one[0].unit_of(one[1].gpus)
        if identity.column == "logged_mfu":
            divisor, mine = peak_of(*other), peak_of(*one)
            if divisor is None or mine is None:
                return None
            factor *= mine / divisor
        factors[identity.column] = factor
    return factors


def _counts(one: Known, other: Known, depends: frozenset[str]) -> float:
    """By how much a rate from the step's time grows with the counts it is made of."""
    factor = 1.0
    for fact, mine, theirs in (
        ("seq_len", one.T, other.T),
        ("global_batch_size", one.batch, other.batch),
        ("gpus", other.gpus, one.gpus),
    ):
        if fact in depends and mine and theirs:
            factor *= theirs / mine
    return factor


def proven(others: Sequence[Hypothesis], found: Sequence[Identity]) -> tuple[str, ...]:
    """Facts of which nothing else that was tried reproduces every line.

    None where the print is too coarse: what lies within a percent is then open too.
    """
    if not any(high - low <= PROOF for low, high in (i.ratio.common for i in found)):
        return ()
    kinds = dict.fromkeys(h.fact for h in others if h.fact != "unit")
    still_open = {h.fact for h in others if h.reproduces(found)}
    return tuple(kind for kind in kinds if kind not in still_open)


def nearest(
    others: Sequence[Hypothesis], found: Sequence[Identity]
) -> tuple[str | None, str | None]:
    """(text, fact) of the first that reproduces every line.

    Where none does, the text of the one that comes nearest and how near, and no fact.
    """
    whole = next((h for h in others if h.reproduces(found)), None)
    if whole is not None:
        return whole.text, whole.fact
    best = min(others, key=lambda h: h.distance(found), default=AS_IT_IS)
    if best.distance(found) >= AS_IT_IS.distance(found):
        return None, None
    return f"{best.text}, nearly: within {np.expm1(best.distance(found)):.1%}", None
