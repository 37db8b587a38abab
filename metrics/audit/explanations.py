"""What else may be true of a run: facts by which its own figures come out too.

Where they do not come out, another value of a fact may be the reason; where they do, a fact is
proven only if no other value of it gives the same. A wrong fact shifts every printed figure against
its prediction by one factor, the same for all lines. So a hypothesis (another length, era, peak, a
factor of 1000, …) is that factor, and it reproduces a run where the interval of every line holds
it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Final, NamedTuple

import numpy as np

from ..core.arrays import Array
from ..formula.model_shapes import ModelShape, buildable_models
from ..formula.simplified_model import Seen
from .formula_checks import (
    BY_FLOPS,
    BY_NAME,
    MFUS,
    TFLOPS,
    Identity,
    Interval,
    Known,
    Lines,
    flops_of,
    peak_of,
    unit_of,
)
from .formula_era import Era

LENGTHS: Final = tuple(sorted({n << k for n in (64, 96) for k in range(15)} | {1472, 2560}))
"""Lengths that people train with [tokens]."""

TIMES: Final = (1 / 16, 1 / 8, 1 / 4, 1 / 3, 1 / 2, 2 / 3, 3 / 2, 2.0, 3.0, 4.0, 8.0, 16.0)
"""Factors by which a count of devices or sequences may be wrong."""

UNITS: Final = {
    1000.0: "the print is a thousand times too many",
    0.001: "the print is a thousandth",
    2.0: "the print is twice as much",
    0.5: "the print is half",
    4 / 3: "recomputation counted (x 4/3)",
    3 / 4: "recomputation not counted (x 3/4)",
}

PROOF: Final = 0.01
"""A print that leaves open a larger share of its value than this proves nothing."""

SAME: Final = 1e-9
"""Two predictions that differ by a smaller share than this are the same."""


class Hypothesis(NamedTuple):
    """What else may be true, as the factor by which it changes each prediction.

    fact: name of the fact that it changes, or `unit`; text: for people
    factors: by column what the hypothesis predicts over what is predicted now; 1 of other columns
    """

    fact: str
    text: str
    factors: Mapping[str, float]

    def differs(self) -> bool:
        """Whether it predicts anything else at all."""
        return any(abs(factor - 1) > SAME for factor in self.factors.values())

    def reproduces(self, found: Sequence[Identity]) -> bool:
        """Whether every line of every column comes out."""
        return all(i.ratio.every_holds(self.factors.get(i.column, 1.0)) for i in found)

    def off_centre(self, found: Sequence[Identity]) -> float:
        """How far it is from the middle of what the print allows, over all columns."""
        pairs = ((self.factors.get(i.column, 1.0), i.ratio.middle) for i in found)
        return round(sum(abs(factor / middle - 1) for factor, middle in pairs if middle > 0), 12)


Told = tuple[tuple[str, frozenset[str]], ...]
"""The columns that were compared, each with the facts that its prediction reads."""

CONFIGURATIONS: Final = 256
"""Configurations whose hypotheses are kept: runs of one share them, and differ in what they
print."""


def hypotheses(
    era: Era, known: Known, found: Sequence[Identity], eras: Sequence[Era]
) -> tuple[Hypothesis, ...]:
    """What each fact might be instead, the likeliest kinds first.

    Only what predicts something else; but other eras also where they predict the same. eras: the
    framework's, the likeliest first
    """
    peaks = tuple(peak_of(one, known) for one in (era, *eras))
    names = tuple(one.name for one in eras)
    return _hypotheses(era.name, _undated(known), _told(found), names, peaks)


def _undated(known: Known) -> Known:
    """What a prediction reads of a run, without what runs of one configuration differ in.

    The day is left out: it decides nothing but peaks, which are given apart.
    """
    return known._replace(day=None, version=None, said=frozenset())


def _told(found: Sequence[Identity]) -> Told:
    return tuple((identity.column, identity.depends) for identity in found)


@lru_cache(maxsize=CONFIGURATIONS)
def _hypotheses(
    name: str,
    known: Known,
    told: Told,
    names: tuple[str, ...],
    peaks: tuple[float | None, ...],
) -> tuple[Hypothesis, ...]:
    """`hypotheses` of a run without its day; peaks: what each of the eras divides by."""
    era, eras = BY_NAME[name], [BY_NAME[each] for each in names]
    peak = dict(zip((name, *names), peaks, strict=True))
    mine = _predicted(era, known, told, peak[name])
    every = []
    for case in alternatives(era, known, eras):
        dated = case.known.device is not None
        divisor = peak[case.era.name] if dated else peak_of(case.era, case.known)
        factors = _factors(mine, _predicted(case.era, case.known, told, divisor), told)
        if factors is not None:
            hypothesis = Hypothesis(case.fact, case.text, factors)
            if hypothesis.differs() or _another_era(era, case.era):
                every.append(hypothesis)
    columns = [column for column, _ in told if column in BY_FLOPS]
    if columns:
        for factor, text in (*UNITS.items(), *_world(known)):
            every.append(Hypothesis("unit", text, dict.fromkeys(columns, factor)))
    return tuple(every)


def hypothesis_of(
    case: Case, era: Era, known: Known, found: Sequence[Identity]
) -> Hypothesis | None:
    """A case as what it changes of the predictions; None where one of the two predicts nothing."""
    told = _told(found)
    mine, theirs = (
        _predicted(e, k, told, peak_of(e, k)) for e, k in ((era, known), (case.era, case.known))
    )
    factors = _factors(mine, theirs, told)
    return None if factors is None else Hypothesis(case.fact, case.text, factors)


def _another_era(one: Era, other: Era) -> bool:
    """Whether it is one more of the main line: if it predicts the same, either may have printed."""
    return other is not one and not other.fork


class Case(NamedTuple):
    """A run with one fact changed: the era and all that is known, as they would be then."""

    fact: str
    text: str
    era: Era
    known: Known


def alternatives(era: Era, known: Known, eras: Sequence[Era]) -> Iterator[Case]:
    """Cases of one changed fact each; at last of two, another era that sees the length otherwise.

    First an era that was given by hand, for no other was tried. Then what only the print depends
    on: whether it counts recomputation, and its peak. Then the run's own facts; those with fewer
    values come first, being less likely to fit by chance.
    """
    others = [Case("logged_formula", f"the formula of {e.name}", e, known) for e in eras]
    if known.era is not None:
        yield from others
    if era.counts_recompute:
        yield Case("recompute", "recompute=none", era, known._replace(recompute="none"))
        yield Case("recompute", "recompute=full", era, known._replace(recompute="full"))
    for flops in sorted(set(era.peak_values)):
        text = f"a peak of {flops / 1e12:,g} TFLOP/s"
        yield Case("logged_peak_flops", text, era, known._replace(peak=flops, device=None))
    for length in LENGTHS:
        changed = known._replace(T=length, length=None)
        yield Case("seq_len", f"seq_len={length:,}", era, changed)
    if known.era is None:
        yield from others
    yield from _counted_otherwise(era, known)
    for shape in buildable_models():
        other_model = known._replace(shape=shape, intermediate_size=None)
        yield Case("model", f"model={shape.name}", era, other_model)
    for other in eras:
        if known.era is None and sees_length_otherwise(era, other, known):
            for length in LENGTHS:
                text = f"seq_len={length:,} by the formula of {other.name}"
                yield Case("seq_len", text, other, known._replace(T=length))


def sees_length_otherwise(one: Era, other: Era, known: Known) -> bool:
    """Whether a longer sequence adds other FLOPs by the other formula than by the one.

    Then the other may give for another length what the one gives for the known length.
    """
    at = [[flops_of(era, known.seen(T)) for T in LENGTHS[:2]] for era in (one, other)]
    slopes = [b - a for a, b in at if a is not None and b is not None]
    distinct = len(slopes) == len(at) and abs(slopes[0] - slopes[1]) > SAME * abs(slopes[0])
    return distinct and not other.fork


def _counted_otherwise(era: Era, known: Known) -> Iterator[Case]:
    """Other numbers of devices and sequences."""
    for times in TIMES:
        if known.gpus and (other := known.gpus * times).is_integer():
            yield Case("gpus", f"gpus={other:,.0f}", era, known._replace(gpus=int(other)))
        if known.batch and (other := known.batch * times).is_integer():
            text = f"global_batch_size={other:,.0f}"
            yield Case("global_batch_size", text, era, known._replace(batch=int(other)))
        if known.micro_batch and (other := known.micro_batch * times).is_integer():
            text = f"micro_batch_size={other:,.0f}"
            yield Case("micro_batch_size", text, era, known._replace(micro_batch=int(other)))
        if (other := known.sharing * times).is_integer():
            text = f"context_parallel={other:,.0f}"
            yield Case("context_parallel", text, era, known._replace(sharing=int(other)))


def _world(known: Known) -> Iterator[tuple[float, str]]:
    """Factors of figures that were divided by the number of GPUs once too often, or not at all."""
    if known.gpus is not None and known.gpus > 1:
        yield float(known.gpus), f"the sum over {known.gpus} GPUs, not one's"
        yield 1 / known.gpus, f"divided by the {known.gpus} GPUs twice"


class _Predicted(NamedTuple):
    """What predictions are made of; flops: by column, of those that are of FLOPs."""

    known: Known
    flops: Mapping[str, float | None]
    unit: float
    peak: float | None


def _predicted(era: Era, known: Known, told: Told, peak: float | None) -> _Predicted:
    seen = known.seen()
    flops = {column: flops_of(era, seen, column) for column, _ in told if column in BY_FLOPS}
    return _Predicted(known, flops, unit_of(era, known), peak)


def _factors(one: _Predicted, other: _Predicted, told: Told) -> dict[str, float] | None:
    """Column to predicted by `other` over predicted by `one`; None where one predicts nothing."""
    factors = {}
    for column, depends in told:
        factor = _counts(one.known, other.known, depends)
        if column in BY_FLOPS:
            mine, theirs = one.flops[column], other.flops[column]
            if not mine or theirs is None:
                return None
            factor *= theirs / mine
        if column in TFLOPS:
            factor *= other.unit / one.unit
        if column in MFUS:
            if other.peak is None or one.peak is None:
                return None
            factor *= one.peak / other.peak
        factors[column] = factor
    return factors


def _counts(one: Known, other: Known, depends: frozenset[str]) -> float:
    """How many times larger a rate from the step's time becomes by other counts."""
    factor = 1.0
    for fact, mine, theirs in (
        ("seq_len", one.T, other.T),
        ("global_batch_size", one.batch, other.batch),
        ("gpus", other.gpus, one.gpus),
        ("micro_batch_size", one.micro_batch, other.micro_batch),
        ("context_parallel", other.sharing, one.sharing),
    ):
        if fact in depends and mine and theirs:
            factor *= theirs / mine
    return factor


def proven(others: Sequence[Hypothesis], found: Sequence[Identity]) -> tuple[str, ...]:
    """Facts that the log's own figures prove: no other value that was tried reproduces every line.

    Only where the print is fine enough. A count of which every figure knows no more than a product
    with counts that are not proven is not proven either: two of them may be wrong together.
    """
    kinds = dict.fromkeys(h.fact for h in others if h.fact != "unit")
    still_open = {h.fact for h in others if h.reproduces(found)}
    fine = {kind for kind in kinds if any(_fine(i) for i in found if _speaks_of(i, kind))}
    fine |= {"logged_peak_flops"}  # few peaks exist, and all of them were tried
    told = [kind for kind in kinds if kind not in still_open and kind in fine]
    single = _single(told, found)
    return tuple(kind for kind in told if kind not in COUNTS or kind in single)


COUNTS: Final = ("seq_len", "global_batch_size", "gpus", "micro_batch_size", "context_parallel")
"""Facts of which the tokens of a step on one device are a product."""


def _fine(identity: Identity) -> bool:
    low, high = identity.ratio.common
    return high - low <= PROOF


def _speaks_of(identity: Identity, fact: str) -> bool:
    """Whether a figure depends on a fact: by its FLOPs, or by the tokens of a step."""
    by_flops = identity.column in BY_FLOPS
    return fact in identity.depends or (by_flops and (fact not in COUNTS or fact == "seq_len"))


def _single(told: Sequence[str], found: Sequence[Identity]) -> set[str]:
    """Counts that some figure depends on alone, or besides on counts that are found so."""
    single: set[str] = set()
    for _ in COUNTS:
        for identity in found:
            mine = {fact for fact in COUNTS if fact in told and _speaks_of(identity, fact)}
            unknown = {fact for fact in identity.depends if fact in COUNTS} - single
            if _fine(identity) and len(unknown | mine - single) == 1:
                single |= mine
    return single


def pairs_of(era: Era, known: Known, low: float, high: float) -> set[tuple[ModelShape, int]]:
    """(shape without its name, length) of all models that give FLOPs per token within the bounds.

    The given model, and all known ones; but where the log counts its parameters, the given one was
    held against that count, and is the only one.
    """
    usual = {*LENGTHS, known.T or LENGTHS[0]}
    lengths = (known.length,) if known.length else tuple(sorted(usual))
    tables = []
    if known.params is None:  # the log's own count was held against the given shape
        tables.append((_nameless(), _flops_of_each(era, known, buildable_models(), lengths)))
    if known.shape is not None:
        alone = (replace(known.shape, name=""),)
        tables.append((alone, _flops_of_each(era, known, (known.shape,), lengths)))
    found = set()
    for shapes, flops in tables:
        near = (flops[:, :1] <= high) & (flops[:, 1:2] >= low)
        within = near & (low <= flops[:, 2:]) & (flops[:, 2:] <= high)
        found |= {(shapes[row], lengths[column]) for row, column in np.argwhere(within)}
    return found


def _flops_of_each(
    era: Era, known: Known, shapes: tuple[ModelShape, ...], lengths: tuple[int, ...]
) -> Array:
    """FLOPs per token of each shape, a row each: at the ends of LENGTHS, then at `lengths`.

    NaN where the era counts none.
    """
    like = known._replace(shape=shapes[0]).seen(LENGTHS[0])
    assert like is not None  # noqa: S101 - it has a shape and a length
    return _flops_at(era.name, like, shapes, lengths)


@lru_cache(maxsize=CONFIGURATIONS)
def _flops_at(
    era: str, like: Seen, shapes: tuple[ModelShape, ...], lengths: tuple[int, ...]
) -> Array:
    """`_flops_of_each`, kept for runs that differ in nothing that a formula reads.

    like: one of the models as the run's own formulas read it
    """
    at = (LENGTHS[0], LENGTHS[-1], *lengths)
    rows = [
        [flops_of(BY_NAME[era], like._replace(shape=shape, T=length)) for length in at]
        for shape in shapes
    ]
    return np.array(rows, np.float64)


@cache
def _nameless() -> tuple[ModelShape, ...]:
    return tuple(replace(shape, name="") for shape in buildable_models())


def mean_of_rates(lines: Lines, known: Known) -> str | None:
    """In words, that TFLOP/s are a mean over several steps, and tokens/s the last one's; else None.

    Such TFLOP/s do not go with the tokens/s, but nearly with the printed mean of the steps' times,
    whatever the model is. As the steps of the mean are not printed, they can't be held against any
    formula exactly.
    """
    both = lines.of("logged_tflops", "logged_tgs", "elapsed_s")
    if known.own_time or both.height < SOME_LINES:
        return None
    tflops = both.interval("logged_tflops")
    by_mean = _spread(tflops.times(both.columns["elapsed_s"]))
    by_last = _spread(tflops / both.interval("logged_tgs"))
    if by_mean > MEANS or by_last < OFTEN * by_mean:
        return None
    return (
        "tflops a mean over several steps (log_processor.mean_pattern), tokens_per_sec the last "
        f"one's alone: tflops follow the mean of the times within {by_mean:.1%}, tokens_per_sec "
        f"within {by_last:.1%}; so they cannot be compared exactly"
    )


def _spread(ratio: Interval) -> float:
    """How far the worst line's middle is from the median."""
    return float(np.abs((ratio.low + ratio.high) / 2 / ratio.middle - 1).max())


SOME_LINES: Final = 3
MEANS: Final = 0.01
OFTEN: Final = 3.0
"""For `mean_of_rates`: from how many lines on it is asked, how near a mean of rates comes to the
mean of the times, as a fraction, and how many times worse the last step's rate fits."""


def what_would(
    others: Sequence[Hypothesis], found: Sequence[Identity], inexact: str | None = None
) -> tuple[str | None, str | None]:
    """(text, fact) of the hypothesis that reproduces every line.

    Of several those of the first kind, and of these the one nearest to the middle of what the
    prints allow. Without any (`inexact`, None): a hypothesis that misses by more than last digits
    explain is refuted, however near it comes.
    """
    whole = [h for h in others if h.reproduces(found)]
    if whole:
        kind = [h for h in whole if h.fact == whole[0].fact]
        central = min(kind, key=lambda h: h.off_centre(found))
        return central.text, central.fact
    return inexact, None
