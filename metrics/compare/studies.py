"""Studies: runs of one model that differ in facts, and the effect of each fact.

A ranking asks which framework is faster. A study asks what a change of facts does: one knob,
several knobs, the number of GPUs, the accelerator, a new version, or nothing at all (repeats).
Runs of one log format with equal facts are a `Setting`; a `Study` sets each setting beside a
baseline. Its ratios are of the rate per GPU, and no winner is claimed: the work may differ, as
with another precision.

Facts that follow from others are not counted as differences: the global batch grows with the GPUs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import geometric_mean
from typing import Any, Final, Literal, cast

from ..core.intervals import Estimate
from ..core.messages import by_gravity
from ..core.run_table import not_null, value_of
from ..formula.accelerators import accelerator_names
from ..utilization.messages import QUANTIZED_WEIGHTS
from .comparability import TOKEN_UNIT, format_value, plain_value, setup_key, token_group
from .comparison_row import ComparisonRow
from .repeated_runs import (
    ComparisonSide,
    SpeedRatio,
    comparison_sides,
    setup_letters,
    speed_ratio,
)

StudyKind = Literal["repeats", "change", "knobs", "scale", "accelerators"]

DEVICE, GPUS, FRAMEWORK = "device", "gpus", "framework"
BATCH: Final = ("samples_per_update", "micro_batch_size", "gradient_accumulation")
LAYOUT: Final = (
    *("replicas", "replica_groups", "tensor_parallel", "pipeline_parallel", "context_parallel"),
    *("expert_parallel", "zero_stage", "offload"),
)
KNOBS: Final = (
    *("precision", "recompute", "compile", "attention", "attention_pattern", "trained", "packed"),
    *("seq_len", *BATCH, *LAYOUT),
)
SOFTWARE: Final = ("framework_version", "torch", "cuda", "nccl", "driver", "commit")
"""Facts that a log states or not by its version, so only known values differ."""
FACTS: Final = (DEVICE, GPUS, FRAMEWORK, *KNOBS, *SOFTWARE)
"""Facts by which runs of one log format are told apart. One format may have several engines."""

ASKED_AS: Final = {
    "accelerator": DEVICE,
    "trainable": "trained",
    "global_batch_size": "samples_per_update",
    "version": "framework_version",
}
"""Other names by which a person asks for one of FACTS."""

FOLLOWS: Final[Mapping[str, tuple[str, ...]]] = {
    "samples_per_update": ("micro_batch_size", "gradient_accumulation", GPUS, *LAYOUT),
    "replicas": (GPUS, "tensor_parallel", "pipeline_parallel", "context_parallel"),
    "attention_pattern": ("packed",),
    "framework_version": (FRAMEWORK,),
    "commit": ("framework_version", FRAMEWORK),
}
"""Facts that follow from others: no difference of their own where one of those differs."""

PLAIN_VALUES: Final = {None, "no", "none", "bf16", 1, 0}
"""Values of a setting that nobody has tuned; a baseline has most of them."""

MAX_CHANGES: Final = 3
"""Most facts that may change at once in a study that nobody asked for."""


@dataclass(frozen=True, slots=True)
class Change:
    """Fact with another value than in another setting. None: not stated."""

    name: str
    before: object
    after: object


@dataclass(frozen=True, slots=True)
class Setting:
    """Runs of one log format with equal facts.

    values: of FACTS; rows: its runs, those with a rate first, the fastest first
    side: their rate, pooled, of one GPU if their number is known; None if no run has one
    """

    values: Mapping[str, object]
    rows: tuple[ComparisonRow, ...]
    side: ComparisonSide | None

    @property
    def first(self) -> ComparisonRow:
        """Run that stands for the setting."""
        return self.rows[0]

    @property
    def tgs(self) -> float | None:
        """Pooled rate in tokens/s/GPU; None without tokens."""
        return self.side.rate if self.side is not None and self.first["tgs"] is not None else None

    @property
    def samples_per_second(self) -> float | None:
        """Pooled rate in samples/s of all GPUs, where tokens are unknown."""
        if self.side is None or self.first["tgs"] is not None:
            return None
        return self.side.rate * (self.first["gpus"] or 1)

    @property
    def mfu(self) -> float | None:
        """MFU at the pooled rate, exact attention."""
        return None if self.side is None else self.side.mfu

    @property
    def rated(self) -> tuple[ComparisonRow, ...]:
        """Runs that give the pooled rate; without a rate, all."""
        return self.rows if self.side is None else self.side.rows

    def pooled(self, name: str) -> float | None:
        """Return the geometric mean of a figure over `rated`, as the pooled rate is one.

        None if a run lacks the figure.
        """
        values = [value_of(row, name) for row in self.rated]
        return geometric_mean(values) if values and all(values) else None

    def common(self, name: str) -> Any:  # noqa: ANN401 - any column
        """Return the value that all of `rated` have in common; None where they differ."""
        values = {value_of(row, name) for row in self.rated}
        return values.pop() if len(values) == 1 else None

    def most(self, name: str) -> float | None:
        """Return the largest figure of `rated`; None if a run lacks it."""
        values = [value_of(row, name) for row in self.rated]
        return None if not values or None in values else max(values)


@dataclass(frozen=True, slots=True)
class Effect:
    """Setting beside the baseline of its study.

    changes: from the baseline; empty for the baseline itself
    ratio: of the rates per GPU, to the baseline; None without a rate, or of another unit
    step: a setting that differs in one fact only and is nearer to the baseline, if there is one
    step_change, step_ratio: that fact, and the ratio to that setting
    """

    setting: Setting
    changes: tuple[Change, ...]
    ratio: SpeedRatio | None
    step: Setting | None = None
    step_change: Change | None = None
    step_ratio: SpeedRatio | None = None


@dataclass(frozen=True, slots=True)
class Study:
    """Settings that answer one question.

    kind: the question; by: the facts that differ, in the order of FACTS
    effects: the baseline first; by a number (GPUs, batch) where that is the question
    """

    kind: StudyKind
    by: tuple[str, ...]
    baseline: Setting
    effects: tuple[Effect, ...]

    @property
    def run_ids(self) -> set[str]:
        """Ids of all its runs."""
        return {row["run_id"] for effect in self.effects for row in effect.setting.rows}

    @property
    def is_sure(self) -> bool:
        """True if some effect of one fact has an interval, or the runs are repeats."""
        single = (e for e in self.effects if len(e.changes) == 1 or e.step is not None)
        ratios = (e.step_ratio if e.step is not None else e.ratio for e in single)
        return self.kind == "repeats" or any(r is not None and r.low is not None for r in ratios)

    @property
    def confounded(self) -> tuple[Effect, ...]:
        """Effects of several facts, which no step between settings separates."""
        several = (effect for effect in self.effects if len(effect.changes) > 1)
        return tuple(effect for effect in several if effect.step is None)


def find_studies(
    rows: Sequence[ComparisonRow],
    by: str | None = None,
    baseline: str | None = None,
    *,
    chosen: bool = False,
) -> list[Study]:
    """Return the studies among runs: sure effects first, then by number of runs.

    rows: metrics.compare.comparability.rank_runs with all metrics, also of runs without a rate
    by: the fact of which to show the effect, one of FACTS; None: whatever differs
    baseline: the run_id of the run to compare with; None: the plainest setting of each study
    chosen: a person named the runs, so those whose logs name no model are taken as runs of one
        model
    """
    families: dict[Hashable, list[ComparisonRow]] = defaultdict(list)
    for row in rows:
        if (key := _family(row, unnamed=chosen)) is not None:
            families[key].append(row)
    settings = [_settings_of_model(family) for family in families.values()]
    if by is None:
        found = [study for family in settings for study in _of_family(family, baseline)]
    else:
        found = [study for family in settings for study in _by_fact(family, by, baseline)]
        alone = (_confounded(family, by, baseline) for family in settings if not found)
        found += [study for study in alone if study is not None]
    if baseline is not None:
        found = [study for study in found if baseline in study.run_ids]
    return sorted(found, key=lambda study: (not study.is_sure, -len(study.run_ids)))


def _family(row: ComparisonRow, *, unnamed: bool) -> Hashable | None:
    """Return what the runs of a study share; None if the model is unknown.

    unnamed: unknown models are one model
    """
    model = row["work"] or row["model"]
    return (model, row["log_format"], row["synthetic"]) if model or unnamed else None


# --- settings -----------------------------------------------------------------------------


def settings_of(rows: Iterable[ComparisonRow]) -> list[Setting]:
    """Return the runs of each model by equal facts.

    A run of an unknown model is alone.
    """
    by_model: dict[Hashable, list[ComparisonRow]] = defaultdict(list)
    for row in rows:
        model = _family(row, unnamed=False)
        by_model[row["run_id"] if model is None else model].append(row)
    return [setting for of in by_model.values() for setting in _settings_of_model(of)]


def _settings_of_model(rows: Sequence[ComparisonRow]) -> list[Setting]:
    """Return the runs of one model by equal facts.

    Of one precision with several recipes, such as rowwise and tensorwise, each is a setting.
    """
    several = len({_recipe(row) for row in rows} - {None}) > 1
    by_values: dict[tuple[object, ...], list[ComparisonRow]] = defaultdict(list)
    for row in rows:
        by_values[tuple(_value(row, name, recipes=several) for name in FACTS)].append(row)
    return [
        Setting(dict(zip(FACTS, values, strict=True)), *_pooled(of))
        for values, of in by_values.items()
    ]


def _value(row: ComparisonRow, name: str, *, recipes: bool) -> object:
    """Return the value of a fact.

    recipes: a precision has the recipe that the log states
    """
    value = plain_value(value_of(row, name))
    if name != "precision":
        return value
    recipe = _recipe(row)
    if value is None:
        return _formats_family(row, recipe)
    return value if recipe is None or not recipes else f"{value} ({recipe})"


def known_value(row: ComparisonRow, name: str) -> object:
    """Return the value of a fact, or its part that a log states: fp8, of any recipe."""
    return _value(row, name, recipes=False)


def _formats_family(row: ComparisonRow, recipe: str | None) -> str | None:
    """Return the family of an unknown precision below 16 bits; None if unknown."""
    line = row["quantization"]
    if line is None:
        is_quantized = QUANTIZED_WEIGHTS.identifier in (row["warning_kinds"] or ())
        return BELOW_16_BITS if is_quantized else None
    found = (name for name, words in FAMILIES.items() if re.search(words, line))
    family = next(found, BELOW_16_BITS)
    return f"{family}, recipe not stated" if recipe is None else f"{family} ({recipe})"


FAMILIES: Final[Mapping[str, str]] = {
    "fp4": r"(?i)(?:nv|mx)?fp4|float4",
    "fp8": r"(?i)float8|fp8|\bmx(?![a-z\d])",
}
"""Words of a quantization line that name a family of number formats."""


def _recipe(row: ComparisonRow) -> str | None:
    """Return the recipe of a quantized run as its log names it; None if it names none."""
    match = RECIPE.search(row["quantization"] or "")
    return match and (match[1] or match[0])


RECIPE: Final = re.compile(r"(?i)\brecipe\W{1,3}(\w+)|\b(?:tensor|row|block|tile|channel)wise\b")


BELOW_16_BITS: Final = "below 16 bits"
"""Precision of a run whose log says that weights are quantized, and not to which format."""


def _pooled(
    rows: Sequence[ComparisonRow],
) -> tuple[tuple[ComparisonRow, ...], ComparisonSide | None]:
    """Return the runs in order, and their rate.

    Two repeats, and runs with a setting that no log states (comparability.setup_key), have the
    widest of their intervals: the noise between runs is unknown.
    """
    sure = [row for row in rows if _has_sure_rate(row)]
    others = tuple(row for row in rows if row not in sure)
    rated = [*map(_per_gpu, sure)]
    units = {row["ranked_unit"] for row in rated}
    if len(units) != 1:
        return tuple(rows), None
    letters = setup_letters(rated, setup_key)
    alike = [row | {"setup": letter} for row, letter in zip(rated, letters, strict=True)]
    sides = comparison_sides(alike)
    ordered = (*sorted(rated, key=lambda row: -not_null(row["ranked_rate"])), *others)
    if len(sides) == 1:
        return ordered, sides[0]
    rate = geometric_mean([side.rate for side in sides])
    known = [side.estimate for side in sides if side.estimate is not None]
    estimate = None
    if len(known) == len(sides):
        estimate = Estimate(rate, min(each.low for each in known), max(each.high for each in known))
    why = next((side.no_interval_reason for side in sides if side.estimate is None), None)
    return ordered, ComparisonSide(tuple(alike), 1, rate, estimate, why)


def _per_gpu(row: ComparisonRow) -> ComparisonRow:
    """Return a row with its samples/s of one GPU, if the number of GPUs is known."""
    gpus = row["gpus"]
    if row["ranked_unit"] == TOKEN_UNIT or not gpus:
        return row
    rates = {name: value_of(row, name) for name in ("ranked_rate", "ranked_low", "ranked_high")}
    of_one = {name: rate and rate / gpus for name, rate in rates.items()}
    return cast(ComparisonRow, {**row, **of_one})


def _has_sure_rate(row: ComparisonRow) -> bool:
    """Return whether the rate holds; unknown facts keep a run out of a ranking only."""
    graver, _ = by_gravity(row["warnings"])
    return row["ranked_rate"] is not None and not graver and row["implied"] is None


def changes_between(before: Setting, after: Setting) -> tuple[Change, ...]:
    """Return the facts that differ, without those that follow from others."""
    differ = {
        name
        for name in FACTS
        if before.values[name] != after.values[name] and not _untold(name, before, after)
    }
    own = [
        name for name in FACTS if name in differ and not differ.intersection(FOLLOWS.get(name, ()))
    ]
    return tuple(Change(name, before.values[name], after.values[name]) for name in own)


def _untold(name: str, *settings: Setting) -> bool:
    """Return whether a fact cannot be compared, because one log is silent.

    An engine with ZeRO prints its stage, so a silent log of it may be of a run without it. Two
    names may be of one accelerator.
    """
    if name == DEVICE and may_be_one(*(str(setting.values[DEVICE]) for setting in settings)):
        return True
    one_engine = len({setting.values[FRAMEWORK] for setting in settings}) == 1
    silent = any(setting.values[name] is None for setting in settings)
    unsaid = name in (*SOFTWARE, *LAYOUT, DEVICE, GPUS) and not (
        name == "zero_stage" and one_engine
    )
    return silent and unsaid


def may_be_one(*names: str) -> bool:
    """Return whether two of several names may be of one accelerator.

    One name has all words of the other, as `Xeon Processor @ 2.50GHz` those of `Xeon Processor`.
    Rows of the peak table are different accelerators.
    """
    tabled = {*accelerator_names()}
    words = {name: set(name.lower().split()) for name in names}
    return any(
        words[name] < words[other] and not {name, other} <= tabled
        for name in words
        for other in words
    )


def partly_stated(settings: Iterable[Setting]) -> list[str]:
    """Return the facts that some settings state, others do not, and no change has.

    A plain value, such as one stage of a pipeline, is what a silent log means.
    """
    settings = [*settings]
    values = {name: {setting.values[name] for setting in settings} for name in FACTS}
    return [n for n, v in values.items() if not v <= PLAIN_VALUES and _untold(n, *settings)]


# --- questions ----------------------------------------------------------------------------


def _of_family(settings: Sequence[Setting], baseline: str | None) -> list[Study]:
    offers = _fastest_of_each(settings)
    studies = [
        *_each(offers, "accelerators", lambda setting: _kept(setting, SAME_OFFER), baseline),
        *_each(settings, "scale", _without(GPUS, *BATCH, *LAYOUT), baseline),
        *_each(settings, "knobs", lambda setting: _kept(setting, (DEVICE, GPUS)), baseline),
    ]
    repeats = [one for one in settings if one.side is not None and one.side.has_run_interval]
    alone = [one for one in repeats if not any(_holds(study, one) for study in studies)]
    return [*studies, *(Study("repeats", (), one, (Effect(one, (), None),)) for one in alone)]


SAME_OFFER: Final = ("precision", "seq_len", "attention_pattern", "trained", "packed")
"""Facts that runs on two accelerators share; batch and layout are what each of them allows."""


def _fastest_of_each(settings: Iterable[Setting]) -> list[Setting]:
    """Return the fastest setting of each accelerator, by SAME_OFFER."""
    best: dict[Hashable, Setting] = {}
    for setting in settings:
        if setting.side is not None and setting.values[DEVICE] is not None:
            key = _kept(setting, (DEVICE, *SAME_OFFER))
            best[key] = max(best.get(key, setting), setting, key=rate_of)
    return list(best.values())


def _holds(study: Study, setting: Setting) -> bool:
    return any(effect.setting is setting for effect in study.effects)


def _without(*names: str) -> Callable[[Setting], Hashable]:
    kept = tuple(name for name in FACTS if name not in names)
    return lambda setting: _kept(setting, kept)


def _kept(setting: Setting, names: Sequence[str]) -> Hashable:
    return tuple(setting.values[name] for name in names)


def _each(
    settings: Sequence[Setting],
    kind: StudyKind,
    shared: Callable[[Setting], Hashable],
    baseline: str | None,
) -> list[Study]:
    """Return a study of each set of settings that share facts."""
    by_shared: dict[Hashable, list[Setting]] = defaultdict(list)
    for setting in settings:
        by_shared[shared(setting)].append(setting)
    found = (_study(kind, alike, baseline) for alike in by_shared.values() if len(alike) > 1)
    return [study for study in found if study is not None]


def _by_fact(settings: Sequence[Setting], by: str, baseline: str | None) -> list[Study]:
    """Return the studies of settings that differ in one fact alone."""
    follow = [name for name, causes in FOLLOWS.items() if by in causes]
    found = _each(settings, KIND_OF_FACT.get(by, "knobs"), _without(by, *follow), baseline)
    return [study for study in found if by in study.by]


def _confounded(settings: Sequence[Setting], by: str, baseline: str | None) -> Study | None:
    """Return the study of all settings that state a fact, whatever else differs."""
    told = [setting for setting in settings if setting.values[by] is not None]
    if len({setting.values[by] for setting in told}) < 2:  # noqa: PLR2004 - a difference
        return None
    return _study(KIND_OF_FACT.get(by, "knobs"), told, baseline, wanted=True)


KIND_OF_FACT: Final[Mapping[str, StudyKind]] = {DEVICE: "accelerators", GPUS: "scale"}


def _study(
    kind: StudyKind, settings: Sequence[Setting], baseline: str | None, *, wanted: bool = False
) -> Study | None:
    """Return a study; None without two rates, or without a difference.

    wanted: settings with many changes are shown too
    """
    rated = [setting for setting in settings if setting.side is not None]
    if not rated:
        return None
    base = _baseline(kind, settings, rated, baseline)
    effects = [_effect(setting, base) for setting in settings]
    by = [name for name in FACTS if any(c.name == name for e in effects for c in e.changes)]
    if not by or (kind in CLASS_FACT and CLASS_FACT[kind] not in by):
        return None
    if kind == "knobs" and set(by) <= set(SOFTWARE):
        kind = "change"
    told = _with_steps(effects)
    if not wanted:
        told = [each for each in told if len(each.changes) <= MAX_CHANGES or each.step is not None]
    if all(each.ratio is None for each in told):
        return None
    return Study(kind, tuple(by), base, tuple(sorted(told, key=_order(kind, by, base))))


CLASS_FACT: Final = {kind: fact for fact, kind in KIND_OF_FACT.items()}
"""Fact that must differ in a study of a kind."""


def _baseline(
    kind: StudyKind, settings: Sequence[Setting], rated: Sequence[Setting], wanted: str | None
) -> Setting:
    named = [one for one in settings if any(row["run_id"] == wanted for row in one.rows)]
    if named:
        return named[0]
    if kind == "scale":
        return min(rated, key=lambda one: (number(one.values[GPUS]), rate_of(one)))
    if kind == "accelerators":
        return min(rated, key=rate_of)
    differ = [name for name in KNOBS if len({one.values[name] for one in settings}) > 1]
    return min(rated, key=lambda one: (_tuned(one, differ), _smallest(one), rate_of(one)))


def _tuned(setting: Setting, differ: Sequence[str]) -> int:
    """Return how many of some facts are not plain in a setting."""
    values = [setting.values[name] for name in differ]
    return sum(not (isinstance(v, int | float) or v in PLAIN_VALUES) for v in values)


def _smallest(setting: Setting) -> tuple[float, ...]:
    own = [name for name in ("seq_len", *BATCH, *LAYOUT) if name not in FOLLOWS]
    return tuple(number(setting.values[name]) for name in own)


def number(value: object) -> float:
    """Return a number of a fact; 0 for other values."""
    return float(value) if isinstance(value, int | float) else 0.0


def rate_of(setting: Setting) -> float:
    """Return the pooled rate of a setting; 0 without one."""
    return 0.0 if setting.side is None else setting.side.rate


def _effect(setting: Setting, base: Setting) -> Effect:
    return Effect(setting, changes_between(base, setting), ratio_of(setting, base))


def ratio_of(setting: Setting, base: Setting) -> SpeedRatio | None:
    """Return the ratio of rates of one unit, per GPU and of tokens counted alike.

    A sample of another length, or a pack of samples, is other work.
    """
    own, other = setting.side, base.side
    if setting is base or own is None or other is None or own.unit != other.unit:
        return None
    unlike = (n for n in ("packed", "seq_len") if setting.values[n] != base.values[n])
    unknown = None in (setting.values[GPUS], base.values[GPUS])
    if own.unit != TOKEN_UNIT and (unknown or any(unlike)):
        return None
    bases = {token_group(side.rows[0]) for side in (own, other)}
    return None if len(bases) > 1 else speed_ratio(own, other)


def _with_steps(effects: Sequence[Effect]) -> list[Effect]:
    """Add the step to each effect of several facts, if there is one."""
    facts = {change.name for effect in effects for change in effect.changes}
    rated = [effect for effect in effects if effect.setting.side is not None]
    unsaid = {n for n in FACTS if any(effect.setting.values[n] is None for effect in rated)}
    alike: dict[Hashable, list[Effect]] = defaultdict(list)
    for name in facts:
        for effect in rated:
            alike[name, _apart_from({name, *unsaid}, effect.setting)].append(effect)

    def with_step(effect: Effect) -> Effect:
        several = effect.changes if len(effect.changes) > 1 else ()
        near = [
            (other.setting, changes[0])
            for change in several
            for other in alike[change.name, _apart_from({change.name, *unsaid}, effect.setting)]
            if len(other.changes) < len(effect.changes)
            and len(changes := changes_between(other.setting, effect.setting)) == 1
        ]
        if not near:
            return effect
        step, change = max(near, key=lambda one: rate_of(one[0]))
        ratio = ratio_of(effect.setting, step)
        return replace(effect, step=step, step_change=change, step_ratio=ratio)

    return [with_step(effect) for effect in effects]


def _apart_from(names: set[str], setting: Setting) -> Hashable:
    """Return the facts of a setting but for some, and for those that follow from them."""
    follow = {other for other, causes in FOLLOWS.items() if names.intersection(causes)}
    return tuple(v for n, v in setting.values.items() if n not in names | follow)


def _order(
    kind: StudyKind, by: Sequence[str], base: Setting
) -> Callable[[Effect], tuple[float, ...]]:
    """Return the order of a table: by a number, else by changes and rate."""
    axis = GPUS if kind == "scale" else by[0]
    numeric = len(by) == 1 or kind == "scale"

    def place(effect: Effect) -> tuple[float, ...]:
        value = effect.setting.values[axis]
        if numeric and isinstance(value, int | float) and not isinstance(value, bool):
            return (float(value), -rate_of(effect.setting))
        return (
            float(effect.setting is not base),
            float(len(effect.changes)),
            -rate_of(effect.setting),
        )

    return place


# --- words ---------------------------------------------------------------------------------


def value_words(value: object) -> str:
    """Return the value of a fact, or that the log does not state it."""
    return "not stated" if value is None else format_value(value)
