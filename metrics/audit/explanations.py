"""Hypotheses about a run: changed facts that also reproduce its figures.

If the figures are not reproduced, another value of a fact may be the reason. If they are, a fact is
proven only if no other value gives the same. A wrong fact shifts every printed figure against its
prediction by one factor, the same for all lines. So a hypothesis (another length, era, peak, a
factor of 1000, …) is that factor, and reproduces a run if the interval of every line contains the
factor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np

from ..core.arrays import BoolArray, FloatArray
from ..core.intervals import FLOAT_TOLERANCE
from ..formula.model_shapes import ModelShape, ShapeError, buildable_models, find_model
from ..formula.simplified_model import SimplifiedModel
from ..utilization.formula_inputs import SHAPE_FACTS
from .era_lookup import ERAS_BY_NAME
from .formula_checks import (
    FLOPS_FIGURES,
    MFU_FIGURES,
    TFLOPS_FIGURES,
    FigureLines,
    FormulaCheck,
    FormulaFacts,
    LineBounds,
    era_flops,
    era_peak,
    tflops_factor,
)
from .formula_era import Era

COMMON_LENGTHS: Final = tuple(sorted({n << k for n in (64, 96) for k in range(15)} | {1472, 2560}))
"""Sequence lengths in common use [tokens]."""

COUNT_ERROR_FACTORS: Final = (
    1 / 16,
    1 / 8,
    1 / 4,
    1 / 3,
    1 / 2,
    2 / 3,
    3 / 2,
    2.0,
    3.0,
    4.0,
    8.0,
    16.0,
)
"""Factors by which a count of devices or sequences may be wrong."""

UNIT_ERRORS: Final = {
    1000.0: "the logged value is 1,000 times too high",
    0.001: "the logged value is 1,000 times too low",
    2.0: "the logged value is doubled",
    0.5: "the logged value is halved",
    4 / 3: "activation checkpointing counted (x 4/3)",
    3 / 4: "activation checkpointing not counted (x 3/4)",
}

MAX_PROOF_ROUNDING: Final = 0.01
"""Largest rounding, as a share of the value, of a figure that can prove a fact."""


class Hypothesis(NamedTuple):
    """A possible change, as the factor on every prediction.

    fact: name of the changed fact, or `unit`; value: its new value; text: for people
    factors: by column, the hypothesis's prediction over the current one; 1 for other columns
    """

    fact: str
    text: str
    factors: Mapping[str, float]
    value: float | str | None = None

    def differs(self) -> bool:
        """Return whether any prediction changes."""
        return any(abs(factor - 1) > FLOAT_TOLERANCE for factor in self.factors.values())

    def reproduces(self, checks: Sequence[FormulaCheck]) -> bool:
        """Return whether every line of every column is reproduced."""
        return all(i.ratio.all_contain(self.factors.get(i.column, 1.0)) for i in checks)

    def off_centre(self, checks: Sequence[FormulaCheck]) -> float:
        """Return the relative distance from the middle of the allowed intervals."""
        pairs = ((self.factors.get(i.column, 1.0), i.ratio.middle) for i in checks)
        return round(sum(abs(factor / middle - 1) for factor, middle in pairs if middle > 0), 12)


ComparedColumns = tuple[tuple[str, frozenset[str]], ...]
"""Compared columns, with the facts that their predictions read."""

MAX_CACHED_CONFIGURATIONS: Final = 256
"""Number of configurations whose hypotheses are cached: runs of one configuration share them and
differ only in printed figures.
"""


def list_hypotheses(
    era: Era, formula_facts: FormulaFacts, checks: Sequence[FormulaCheck], eras: Sequence[Era]
) -> tuple[Hypothesis, ...]:
    """Return other values of every fact as hypotheses, the likeliest kinds first.

    Only hypotheses that change a prediction; but other eras also if they predict the same.

    eras: the framework's, the likeliest first
    """
    peaks = tuple(era_peak(one, formula_facts) for one in (era, *eras))
    names = tuple(one.name for one in eras)
    return _hypotheses(era.name, _undated(formula_facts), _compared_columns(checks), names, peaks)


def _undated(formula_facts: FormulaFacts) -> FormulaFacts:
    """Return the formula's inputs without fields that vary within a configuration.

    The day is left out: it only decides peaks, which are passed separately.
    """
    unsaid = frozenset[Any]()
    return formula_facts._replace(day=None, version=None, stated_facts=unsaid, logged_values=unsaid)


def _compared_columns(checks: Sequence[FormulaCheck]) -> ComparedColumns:
    return tuple((identity.column, identity.depends_on) for identity in checks)


@lru_cache(maxsize=MAX_CACHED_CONFIGURATIONS)
def _hypotheses(
    name: str,
    formula_facts: FormulaFacts,
    compared: ComparedColumns,
    names: tuple[str, ...],
    peaks: tuple[float | None, ...],
) -> tuple[Hypothesis, ...]:
    """Compute `list_hypotheses` of a run without its day; peaks: divisor of every era."""
    era, eras = ERAS_BY_NAME[name], [ERAS_BY_NAME[each] for each in names]
    peak = dict(zip((name, *names), peaks, strict=True))
    base = _predicted(era, formula_facts, compared, peak[name])
    every = []
    for case in alternatives(era, formula_facts, eras):
        dated = case.formula_facts.device is not None
        divisor = peak[case.era.name] if dated else era_peak(case.era, case.formula_facts)
        factors = _factors(
            base, _predicted(case.era, case.formula_facts, compared, divisor), compared
        )
        if factors is not None:
            hypothesis = Hypothesis(case.fact, case.text, factors, case.value)
            if hypothesis.differs() or _another_era(era, case.era):
                every.append(hypothesis)
    columns = [column for column, _ in compared if column in FLOPS_FIGURES]
    if columns:
        for factor, text in (*UNIT_ERRORS.items(), *_gpu_count_errors(formula_facts)):
            every.append(Hypothesis("unit", text, dict.fromkeys(columns, factor)))
    return tuple(every)


def hypothesis_from_case(
    case: ChangedFact, era: Era, formula_facts: FormulaFacts, checks: Sequence[FormulaCheck]
) -> Hypothesis | None:
    """Return a case as factors on the predictions; None if a prediction is missing."""
    compared = _compared_columns(checks)
    base, changed = (
        _predicted(e, k, compared, era_peak(e, k))
        for e, k in ((era, formula_facts), (case.era, case.formula_facts))
    )
    factors = _factors(base, changed, compared)
    return None if factors is None else Hypothesis(case.fact, case.text, factors, case.value)


def _another_era(era: Era, other: Era) -> bool:
    """Return whether the other era is a different one of the main line.

    If both predict the same, either may have printed.
    """
    return other is not era and not other.fork


class ChangedFact(NamedTuple):
    """A run with one changed fact: the era and the formula's inputs after the change."""

    fact: str
    text: str
    era: Era
    formula_facts: FormulaFacts

    @property
    def value(self) -> float | str | None:
        """Value of the changed fact."""
        facts = self.formula_facts
        values: dict[str, float | str | None] = {
            "logged_formula": self.era.name,
            "recompute": facts.recompute,
            "logged_peak_flops": facts.peak,
            "seq_len": facts.T,
            "gpus": facts.gpus,
            "global_batch_size": facts.batch,
            "micro_batch_size": facts.micro_batch,
            "context_parallel": facts.sharing,
            "model": None if facts.shape is None else facts.shape.name,
        }
        return values[self.fact]


def contradicts_log(fact: str, value: float | str | None, formula_facts: FormulaFacts) -> bool:
    """Return whether a log states only other values of a fact.

    Then no text may name the value. A model by another name counts as another model, unless its
    shape is the same or its parameters match the log's count.
    """
    if fact == "seq_len" and formula_facts.line_length is not None:
        return value != formula_facts.line_length
    if fact == "model":
        return _another_model(str(value), formula_facts)
    stated = {said for name, said in formula_facts.logged_values if name == fact}
    return bool(stated) and not any(_same_value(said, value) for said in stated)


def _same_value(stated: str, value: float | str | None) -> bool:
    try:
        return value is not None and float(stated) == float(value)
    except ValueError:
        return stated == value


def _another_model(name: str, formula_facts: FormulaFacts) -> bool:
    shape = find_model(name)
    if formula_facts.params is not None:
        return formula_facts.params not in (
            shape.params_total,
            shape.params_total - shape.params_embedding,
        )
    stated = [said for fact, said in formula_facts.logged_values if fact in SHAPE_FACTS]
    return bool(stated) and not any(_same_shape(said, shape) for said in stated)


def _same_shape(stated: str, shape: ModelShape) -> bool:
    try:
        return replace(find_model(stated), name="") == replace(shape, name="")
    except ShapeError:
        return False


def alternatives(
    era: Era, formula_facts: FormulaFacts, eras: Sequence[Era]
) -> Iterator[ChangedFact]:
    """Yield cases of one changed fact; last, cases of two: another era and length.

    First an era that was given by hand, as no other was tried. Then facts that only the printed
    figure depends on: counted recomputation and the peak. Then the run's own facts. Facts with
    fewer values come first, since they are less likely to fit by chance.
    """
    others = [
        ChangedFact("logged_formula", f"the formula of {e.name}", e, formula_facts) for e in eras
    ]
    if formula_facts.era is not None:
        yield from others
    if era.counts_recompute:
        yield ChangedFact(
            "recompute", "recompute=none", era, formula_facts._replace(recompute="none")
        )
        yield ChangedFact(
            "recompute", "recompute=full", era, formula_facts._replace(recompute="full")
        )
    for flops in sorted(set(era.peak_values)):
        text = f"a peak of {flops / 1e12:,g} TFLOP/s"
        yield ChangedFact(
            "logged_peak_flops", text, era, formula_facts._replace(peak=flops, device=None)
        )
    for length in COMMON_LENGTHS:
        changed = formula_facts._replace(T=length, line_length=None)
        yield ChangedFact("seq_len", f"seq_len={length:,}", era, changed)
    if formula_facts.era is None:
        yield from others
    yield from _other_counts(era, formula_facts)
    for shape in buildable_models():
        other_model = formula_facts._replace(shape=shape, intermediate_size=None)
        yield ChangedFact("model", f"model={shape.name}", era, other_model)
    for other in eras:
        open_ = formula_facts.era is None and not other.fork
        if open_ and scales_differently(era, other, formula_facts):
            for length in COMMON_LENGTHS:
                text = f"seq_len={length:,} by the formula of {other.name}"
                yield ChangedFact("seq_len", text, other, formula_facts._replace(T=length))


def scales_differently(era: Era, other_era: Era, formula_facts: FormulaFacts) -> bool:
    """Return whether FLOPs grow with length at another rate by the other formula.

    Then the other formula may give for another length the FLOPs of this formula for the stated
    length.
    """
    at = [
        [era_flops(era, formula_facts.simplified_model(T)) for T in COMMON_LENGTHS[:2]]
        for era in (era, other_era)
    ]
    slopes = [b - a for a, b in at if a is not None and b is not None]
    return len(slopes) == len(at) and abs(slopes[0] - slopes[1]) > FLOAT_TOLERANCE * abs(slopes[0])


def _other_counts(era: Era, formula_facts: FormulaFacts) -> Iterator[ChangedFact]:
    """Yield cases with other numbers of devices and sequences."""
    for times in COUNT_ERROR_FACTORS:
        if formula_facts.gpus and (other := formula_facts.gpus * times).is_integer():
            yield ChangedFact(
                "gpus", f"gpus={other:,.0f}", era, formula_facts._replace(gpus=int(other))
            )
        if formula_facts.batch and (other := formula_facts.batch * times).is_integer():
            text = f"global_batch_size={other:,.0f}"
            yield ChangedFact(
                "global_batch_size", text, era, formula_facts._replace(batch=int(other))
            )
        if formula_facts.micro_batch and (other := formula_facts.micro_batch * times).is_integer():
            text = f"micro_batch_size={other:,.0f}"
            yield ChangedFact(
                "micro_batch_size", text, era, formula_facts._replace(micro_batch=int(other))
            )
        if (other := formula_facts.sharing * times).is_integer():
            text = f"context_parallel={other:,.0f}"
            yield ChangedFact(
                "context_parallel", text, era, formula_facts._replace(sharing=int(other))
            )


def _gpu_count_errors(formula_facts: FormulaFacts) -> Iterator[tuple[float, str]]:
    """Yield factors of figures divided by the number of GPUs once too often, or never."""
    if formula_facts.gpus is not None and formula_facts.gpus > 1:
        yield float(formula_facts.gpus), f"the sum over {formula_facts.gpus} GPUs, not one's"
        yield 1 / formula_facts.gpus, f"divided by the {formula_facts.gpus} GPUs twice"


class _Predicted(NamedTuple):
    """Inputs of predictions; flops: by column, for figures of FLOPs."""

    formula_facts: FormulaFacts
    flops: Mapping[str, float | None]
    unit: float
    peak: float | None


def _predicted(
    era: Era, formula_facts: FormulaFacts, compared: ComparedColumns, peak: float | None
) -> _Predicted:
    seen = formula_facts.simplified_model()
    flops = {
        column: era_flops(era, seen, column) for column, _ in compared if column in FLOPS_FIGURES
    }
    return _Predicted(formula_facts, flops, tflops_factor(era, formula_facts), peak)


def _factors(
    base: _Predicted, changed: _Predicted, compared: ComparedColumns
) -> dict[str, float] | None:
    """Return by column the changed prediction over the base; None if one is missing."""
    factors = {}
    for column, depends in compared:
        factor = _counts(base.formula_facts, changed.formula_facts, depends)
        if column in FLOPS_FIGURES:
            base_flops, changed_flops = base.flops[column], changed.flops[column]
            if not base_flops or changed_flops is None:
                return None
            factor *= changed_flops / base_flops
        if column in TFLOPS_FIGURES:
            factor *= changed.unit / base.unit
        if column in MFU_FIGURES:
            if changed.peak is None or base.peak is None:
                return None
            factor *= base.peak / changed.peak
        factors[column] = factor
    return factors


def _counts(base: FormulaFacts, changed: FormulaFacts, depends: frozenset[str]) -> float:
    """Return the factor on a rate from the step's time when counts change."""
    factor = 1.0
    for fact, mine, theirs in (
        ("seq_len", base.T, changed.T),
        ("global_batch_size", base.batch, changed.batch),
        ("gpus", changed.gpus, base.gpus),
        ("micro_batch_size", base.micro_batch, changed.micro_batch),
        ("context_parallel", changed.sharing, base.sharing),
    ):
        if fact in depends and mine and theirs:
            factor *= theirs / mine
    return factor


def proven_facts(
    hypotheses: Sequence[Hypothesis], checks: Sequence[FormulaCheck], formula_facts: FormulaFacts
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return (proven facts, text of a fitting alternative by fact).

    A fact is proven if no other tried value reproduces every line, and if the figures are fine
    enough. A count is not proven if every figure depends on its product with other unproven counts:
    two of them may be wrong together.
    """
    kinds = dict.fromkeys(h.fact for h in hypotheses if h.fact != "unit")
    fitting = [h for h in hypotheses if h.reproduces(checks)]
    still_open = {h.fact for h in fitting}
    others = (h for h in reversed(fitting) if not contradicts_log(h.fact, h.value, formula_facts))
    texts = {h.fact: h.text for h in others if h.fact != "unit"}
    fine = {kind for kind in kinds if any(_fine(i) for i in checks if _depends_on(i, kind))}
    fine |= {"logged_peak_flops"}  # few peaks exist, and all of them were tried
    closed = [kind for kind in kinds if kind not in still_open and kind in fine]
    single = _separable_counts(closed, checks)
    proven = tuple(kind for kind in closed if kind not in TOKEN_FACTOR_FACTS or kind in single)
    return proven, texts


TOKEN_FACTOR_FACTS: Final = (
    "seq_len",
    "global_batch_size",
    "gpus",
    "micro_batch_size",
    "context_parallel",
)
"""Facts whose product is the number of tokens of a step on one device."""


def _fine(identity: FormulaCheck) -> bool:
    low, high = identity.ratio.intersection
    return high - low <= MAX_PROOF_ROUNDING


def _depends_on(identity: FormulaCheck, fact: str) -> bool:
    """Return whether a figure depends on a fact: by its FLOPs, or by a step's tokens."""
    by_flops = identity.column in FLOPS_FIGURES
    return fact in identity.depends_on or (
        by_flops and (fact not in TOKEN_FACTOR_FACTS or fact == "seq_len")
    )


def _separable_counts(closed: Sequence[str], checks: Sequence[FormulaCheck]) -> set[str]:
    """Return counts that a figure depends on alone, or together with counts so proven."""
    single: set[str] = set()
    for _ in TOKEN_FACTOR_FACTS:
        for identity in checks:
            counts = {
                fact
                for fact in TOKEN_FACTOR_FACTS
                if fact in closed and _depends_on(identity, fact)
            }
            unknown = {fact for fact in identity.depends_on if fact in TOKEN_FACTOR_FACTS} - single
            if _fine(identity) and len(unknown | counts - single) == 1:
                single |= counts
    return single


ATTENTION_READINGS: Final = {
    1.0: "",
    0.5: "half of its attention (causal)",
    2.0: "twice its attention",
}
EMBEDDING_READINGS: Final = {0: "", -1: "the embedding left out", 1: "the embedding counted"}
"""Other readings of a formula: its attention times a factor, its products less or plus an
embedding's parameters; in words.
"""


def other_readings(
    era: Era, formula_facts: FormulaFacts, checks: Sequence[FormulaCheck], eras: Sequence[Era]
) -> list[str]:
    """Return other lengths that reproduce every line, with the formula of any era.

    By the formula as written, or read so that attention is halved or doubled, or the embedding left
    out or added. For a log that states its lengths, only those: no reading may contradict the log.
    """
    main = next((one for one in checks if one.column in (*TFLOPS_FIGURES, *MFU_FIGURES)), None)
    lengths = [T for T in _possible_lengths(formula_facts) if T != formula_facts.T]
    undated = _undated(formula_facts)._replace(line_length=None)
    mine = era_flops(era, undated.simplified_model(), main.column) if main else None
    if main is None or not lengths or not mine:
        return []
    names = tuple(dict.fromkeys(one.name for one in (era, *eras)))
    flops = _flops_by_reading(names, undated, tuple(lengths), main.column)
    factors = flops / mine * _divided(main.column, era, names, formula_facts)
    found = []
    for place in np.argwhere(_within(factors, main, undated, lengths)):
        e, n, s, t = place.tolist()
        case = undated._replace(T=lengths[n])
        factor = float(factors[e, n, s, t])
        others = (one for one in checks if one.column not in FLOPS_FIGURES)
        counts = all(
            one.ratio.all_contain(_counts(undated, case, one.depends_on)) for one in others
        )
        if counts and factor > 0:
            words = (*ATTENTION_READINGS.values(),)[s], (*EMBEDDING_READINGS.values(),)[t]
            how = " and ".join(word for word in words if word)
            by = f" by the formula of {names[e]}" if names[e] != era.name else ""
            found.append(f"seq_len={lengths[n]:,}{by}{f' with {how}' if how else ''}")
    return found


def _within(
    factors: FloatArray, main: FormulaCheck, formula_facts: FormulaFacts, lengths: Sequence[int]
) -> BoolArray:
    """Return which factors are in the interval of every line.

    factors: [eras, lengths, attention, embedding], times the effect of the length on the rate
    """
    low, high = main.ratio.intersection
    counts = [_counts(formula_facts, formula_facts._replace(T=T), main.depends_on) for T in lengths]
    whole = factors * np.array(counts)[None, :, None, None]
    held: BoolArray = (low <= whole) & (whole <= high)
    return held


def _divided(
    column: str, era: Era, names: Sequence[str], formula_facts: FormulaFacts
) -> FloatArray:
    """Return the eras' factor from FLOPs to a printed figure, relative to one era's."""

    def scale(other_era: Era) -> float:
        if column in TFLOPS_FIGURES:
            return tflops_factor(other_era, formula_facts)
        return 1 / (era_peak(other_era, formula_facts) or float("nan"))

    scales = [scale(ERAS_BY_NAME[name]) for name in names]
    return (np.array(scales) / scale(era))[:, None, None, None]


def _possible_lengths(formula_facts: FormulaFacts) -> list[int]:
    """Return the lengths that a log states, else usual ones with half and twice T."""
    stated = {said for name, said in formula_facts.logged_values if name == "seq_len"}
    if formula_facts.line_length is not None:
        return [formula_facts.line_length]
    if stated:
        return sorted({int(float(said)) for said in stated if _is_length(said)})
    mine = formula_facts.T or 0
    return sorted({*COMMON_LENGTHS, *((mine // 2, 2 * mine) if mine > 1 else ())})


def _is_length(stated: str) -> bool:
    try:
        return 1 <= float(stated) < MAX_LENGTH
    except ValueError:
        return False


MAX_LENGTH: Final = 2.0**53


@lru_cache(maxsize=MAX_CACHED_CONFIGURATIONS)
def _flops_by_reading(
    names: tuple[str, ...], formula_facts: FormulaFacts, lengths: tuple[int, ...], column: str
) -> FloatArray:
    """Return FLOPs per token [eras, lengths, attention, embedding].

    NaN if an era counts none.
    """
    at = (1, 2, *lengths)
    each = [
        [era_flops(ERAS_BY_NAME[name], formula_facts.simplified_model(T), column) for T in at]
        for name in names
    ]
    flops = np.array(each, np.float64)
    linear = (2 * flops[:, 0] - flops[:, 1])[:, None]  # at 0 tokens, if affine
    attention = flops[:, 2:] - linear
    model = formula_facts.simplified_model(1)
    table = 0 if model is None else 6 * model.token_table
    shares, tables = np.array([*ATTENTION_READINGS]), np.array([*EMBEDDING_READINGS])
    read: FloatArray = (
        linear[:, :, None, None]
        + attention[:, :, None, None] * shares[None, None, :, None]
        + table * tables[None, None, None, :]
    )
    return read


def matching_models(
    era: Era, formula_facts: FormulaFacts, low: float, high: float, *, however_read: bool = False
) -> set[tuple[ModelShape, int]]:
    """Return (nameless shape, length) of all models with FLOPs within the bounds.

    The given model and all built-in models. If the log counts its parameters, only the given model,
    which was checked against that count.

    low, high: FLOPs per token; however_read: also read formulas as `other_readings` does
    """
    usual = {*COMMON_LENGTHS, formula_facts.T or COMMON_LENGTHS[0]}
    lengths = (formula_facts.line_length,) if formula_facts.line_length else tuple(sorted(usual))
    tables = []
    if formula_facts.params is None:  # else the given shape was checked against the log's count
        tables.append(
            (_nameless(), _flops_of_each(era, formula_facts, buildable_models(), lengths))
        )
    if formula_facts.shape is not None:
        alone = (replace(formula_facts.shape, name=""),)
        tables.append((alone, _flops_of_each(era, formula_facts, (formula_facts.shape,), lengths)))
    found = set()
    stated = set(_possible_lengths(formula_facts))
    for shapes, flops in tables:
        for within in _readings_within(shapes, flops, lengths, stated, (low, high)):
            found |= {(shapes[row], lengths[column]) for row, column in np.argwhere(within)}
            if not however_read:
                break
    return found


def _readings_within(
    shapes: Sequence[ModelShape],
    flops: FloatArray,
    lengths: Sequence[int],
    stated: Collection[int],
    bounds: tuple[float, float],
) -> Iterator[BoolArray]:
    """Yield by reading which models [rows] and lengths give FLOPs within bounds.

    First the formula as written, for all lengths; then other readings, for lengths that do not
    contradict the log.
    """
    low, high = bounds
    slope = (flops[:, 1:2] - flops[:, :1]) / (COMMON_LENGTHS[-1] - COMMON_LENGTHS[0])
    linear = flops[:, :1] - slope * COMMON_LENGTHS[0]
    tables = np.array([[6.0 * s.vocab_size * (s.embedding_size or s.hidden_size)] for s in shapes])
    possible = np.isin(lengths, [*stated])
    for share, count in product(ATTENTION_READINGS, EMBEDDING_READINGS):
        read = linear + (flops[:, 2:] - linear) * share + tables * count
        plain = share == 1 and count == 0
        yield (low <= read) & (read <= high) & (plain | possible)


def _flops_of_each(
    era: Era, formula_facts: FormulaFacts, shapes: tuple[ModelShape, ...], lengths: tuple[int, ...]
) -> FloatArray:
    """Return FLOPs per token, a row per shape.

    At the ends of COMMON_LENGTHS, then at `lengths`; NaN if the era counts none.
    """
    like = formula_facts._replace(shape=shapes[0]).simplified_model(COMMON_LENGTHS[0])
    assert like is not None  # noqa: S101 - it has a shape and a length
    return _flops_at(era.name, like, shapes, lengths)


@lru_cache(maxsize=MAX_CACHED_CONFIGURATIONS)
def _flops_at(
    era: str, like: SimplifiedModel, shapes: tuple[ModelShape, ...], lengths: tuple[int, ...]
) -> FloatArray:
    """Compute `_flops_of_each`, cached for runs with the same formula inputs.

    like: one of the models as the run's formulas read it
    """
    at = (COMMON_LENGTHS[0], COMMON_LENGTHS[-1], *lengths)
    rows = [
        [era_flops(ERAS_BY_NAME[era], like._replace(shape=shape, T=length)) for length in at]
        for shape in shapes
    ]
    return np.array(rows, np.float64)


@cache
def _nameless() -> tuple[ModelShape, ...]:
    return tuple(replace(shape, name="") for shape in buildable_models())


def mean_rate_note(lines: FigureLines, formula_facts: FormulaFacts) -> str | None:
    """Say that TFLOP/s are a mean over several steps and tokens/s are not; else None.

    Such TFLOP/s do not match the tokens/s, but nearly match the printed mean of the steps' times,
    whatever the model. The averaged steps are not printed, so no formula can be checked exactly.
    """
    both = lines.printing("logged_tflops", "logged_tgs", "elapsed_s")
    if formula_facts.own_time or both.height < MIN_MEAN_LINES:
        return None
    tflops = both.interval("logged_tflops")
    by_mean = _spread(tflops.scaled(both.columns["elapsed_s"]))
    by_last = _spread(tflops / both.interval("logged_tgs"))
    if by_mean > MAX_MEAN_DEVIATION or by_last < MIN_LAST_RATE_RATIO * by_mean:
        return None
    return (
        "tflops a mean over several steps (log_processor.mean_pattern), tokens_per_sec the last "
        f"one's alone: tflops follow the mean of the times within {by_mean:.1%}, tokens_per_sec "
        f"within {by_last:.1%}; so they cannot be compared exactly"
    )


def _spread(ratio: LineBounds) -> float:
    """Return the distance of the worst line's middle from the median, relative."""
    return float(np.abs((ratio.low + ratio.high) / 2 / ratio.middle - 1).max())


MIN_MEAN_LINES: Final = 3
MAX_MEAN_DEVIATION: Final = 0.01
MIN_LAST_RATE_RATIO: Final = 3.0
"""Limits of `mean_rate_note`: fewest lines, largest distance between the mean of rates and the mean
of times as a fraction, and how many times worse the last step's rate must fit.
"""


def best_hypothesis(
    hypotheses: Sequence[Hypothesis], checks: Sequence[FormulaCheck], formula_facts: FormulaFacts
) -> tuple[str | None, str | None]:
    """Return (text, fact) of the best hypothesis that reproduces every line.

    None of the log's stated facts may be contradicted. The first kind wins, and within the kind the
    hypothesis nearest to the middle of the allowed interval. (None, None) if none fits: a miss
    beyond the last digits refutes a hypothesis, however close.
    """
    fitting = (h for h in hypotheses if h.reproduces(checks))
    whole = [h for h in fitting if not contradicts_log(h.fact, h.value, formula_facts)]
    if whole:
        kind = [h for h in whole if h.fact == whole[0].fact]
        central = min(kind, key=lambda h: h.off_centre(checks))
        return central.text, central.fact
    return None, None
