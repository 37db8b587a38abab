"""What else may be true of a run whose figures do not come out, or would come out all the same.

A wrong fact shifts every printed figure against its prediction by one factor, the same for all
lines. So a hypothesis (another length, era, peak, a factor of 1000, …) is that factor, and it
reproduces a run where the interval of every line holds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Final, NamedTuple

import numpy as np

from metrics.digits import Array
from metrics.era import Era
from metrics.identities import (
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
from metrics.model_shapes import ModelShape, known_models
from metrics.seen import Seen

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

PROOF: Final = 0.01
"""A print that leaves more than this open proves nothing."""

SAME: Final = 1e-9
"""Two predictions that differ by less are one."""


class Hypothesis(NamedTuple):
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
        return all(i.ratio.every_holds(self.factors.get(i.column, 1.0)) for i in found)

    def off_centre(self, found: Sequence[Identity]) -> float:
        """How far it is from the middle of what the print allows, over all columns."""
        pairs = ((self.factors.get(i.column, 1.0), i.ratio.middle) for i in found)
        return round(sum(abs(factor / middle - 1) for factor, middle in pairs if middle > 0), 12)


Told = tuple[tuple[str, frozenset[str]], ...]
"""The columns that were compared, each with the facts that its prediction reads."""

CONFIGURATIONS: Final = 256
"""Kinds of runs whose hypotheses are held: those of one configuration differ in what they print."""


def hypotheses(
    era: Era, known: Known, found: Sequence[Identity], eras: Sequence[Era]
) -> tuple[Hypothesis, ...]:
    """What else one fact may be, the likeliest kinds first; of equals only other eras.

    eras: the framework's, the likeliest first
    """
    peaks = tuple(peak_of(one, known) for one in (era, *eras))
    names = tuple(one.name for one in eras)
    return _hypotheses(era.name, _undated(known), _told(found), names, peaks)


def _undated(known: Known) -> Known:
    """What a run has in common with others of its configuration, as far as a prediction reads it.

    Of the day only the peaks are.
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
    """Of the main line; where both predict the same, nothing proves which of them printed."""
    return other is not one and not other.fork


class Case(NamedTuple):
    """A run of which one fact is otherwise; known, and the era, as they would be then."""

    fact: str
    text: str
    era: Era
    known: Known


def alternatives(era: Era, known: Known, eras: Sequence[Era]) -> Iterator[Case]:
    """Each other case, one fact changed; last, eras that see the length otherwise, and that.

    An era that was given by hand is in doubt first: no other was tried. Then what only the print
    stands on, what it counts and its peak; then the run's own facts, those with fewer values
    first, which are less likely to fit by chance.
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
    for shape in known_models():
        other_model = known._replace(shape=shape, intermediate_size=None)
        yield Case("model", f"model={shape.name}", era, other_model)
    for other in eras:
        if known.era is None and sees_length_otherwise(era, other, known):
            for length in LENGTHS:
                text = f"seq_len={length:,} by the formula of {other.name}"
                yield Case("seq_len", text, other, known._replace(T=length))


def sees_length_otherwise(one: Era, other: Era, known: Known) -> bool:
    """Whether a token more adds other FLOPs, so that another length may give the same."""
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
    """Too many or too few divisions by the world size."""
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
    """By how much a rate from the step's time grows with the counts it is made of."""
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
    """Facts of which nothing else that was tried reproduces every line.

    Only where the print is fine enough, and where no figure knows a count but as a product with
    others that nothing else proves: then two of them may be wrong together.
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
    """Counts that some figure knows alone, or beside such as others know."""
    single: set[str] = set()
    for _ in COUNTS:
        for identity in found:
            mine = {fact for fact in COUNTS if fact in told and _speaks_of(identity, fact)}
            unknown = {fact for fact in identity.depends if fact in COUNTS} - single
            if _fine(identity) and len(unknown | mine - single) == 1:
                single |= mine
    return single


def pairs_of(era: Era, known: Known, low: float, high: float) -> set[tuple[ModelShape, int]]:
    """(shape without its name, length) of known models that give FLOPs per token within bounds.

    The given one among them; of the parameters that the log counts, where it counts them.
    """
    usual = {*LENGTHS, known.T or LENGTHS[0]}
    lengths = (known.length,) if known.length else tuple(sorted(usual))
    tables = []
    if known.params is None:  # the log's own count was held against the given shape
        tables.append((_nameless(), _flops_of_each(era, known, known_models(), lengths)))
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
    """`_flops_of_each`; like: one of the models as the run's own formulas read it.

    So runs share it that differ in what no formula reads, as in their GPUs.
    """
    at = (LENGTHS[0], LENGTHS[-1], *lengths)
    rows = [
        [flops_of(BY_NAME[era], like._replace(shape=shape, T=length)) for length in at]
        for shape in shapes
    ]
    return np.array(rows, np.float64)


@cache
def _nameless() -> tuple[ModelShape, ...]:
    return tuple(replace(shape, name="") for shape in known_models())


def mean_of_rates(lines: Lines, known: Known) -> str | None:
    """That TFLOP/s are a mean of several steps' rates, and tokens/s the last one's, if it fits.

    Such lines follow no tokens/s, but, nearly, the printed mean of the steps' times, whatever the
    model. Without the mean's own steps nothing more can be said of them.
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
"""From how many lines on; how near to the mean of the times a mean of rates comes; how much worse
the last rate fits."""


def what_would(
    others: Sequence[Hypothesis], found: Sequence[Identity], inexact: str | None = None
) -> tuple[str | None, str | None]:
    """(text, fact) of the first kind that reproduces every line, and of that the most central.

    Where none does, `inexact` and no fact: one that misses by more than last digits explain is
    refuted, however near it comes.
    """
    whole = [h for h in others if h.reproduces(found)]
    if whole:
        kind = [h for h in whole if h.fact == whole[0].fact]
        central = min(kind, key=lambda h: h.off_centre(found))
        return central.text, central.fact
    return inexact, None
