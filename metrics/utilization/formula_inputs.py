"""Inputs of the formula for one run, from its facts; or the missing facts.

`formula_inputs` gives shape, length, trained weights and attended pairs; `find_hardware` gives
precisions and peaks. Facts that are not certain are missing, never assumed.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, NamedTuple

from fairmfu.ingest.core.schema import FACT_BOUNDS

from ..core.messages import Message, MessageKind
from ..core.run_words import GIVEN_PEAK
from ..formula import accelerators, flops, vision
from ..formula.accelerators import Accelerator, UnknownAcceleratorError
from ..formula.flops import Operator, Trainable, adapter_params
from ..formula.messages import OTHER_PARAMETER_COUNT, OTHER_PART
from ..formula.model_shapes import (
    Attention,
    ImpossibleShapeError,
    LayerGroup,
    LinearAttention,
    Mixer,
    ModelShape,
    ShapeError,
    UnknownModelError,
    buildable_models,
    check_rank_params,
    find_model,
    from_hugging_face,
    from_megatron,
    from_torchtitan,
    other_parts,
    vision_model_names,
    with_params_total,
)
from ..formula.precision import BELOW_16_BITS, DtypeOf, logged_quantization, operator_formats
from ..formula.terms import AttentionConvention, Dtype, Recompute
from ..formula.vision import VisionTower
from ..throughput import resolved_facts
from . import messages
from .image_work import ImageWork, image_work, trained_parts

SHAPE_FACTS: Final = ("model_config", "megatron_arguments", "torchtitan_arguments", "model")


@dataclass(slots=True)
class UtilizationResult:
    """Utilization of one run; figures are fractions, FLOPs are per token."""

    values: dict[str, Any] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    warnings: list[Message] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FormulaInputs:
    """Inputs of the formula for one run.

    attended_pairs: pairs per token, if not the pairs of a single sequence
    lengths_unknown_reason: why the pairs are not known: DOCUMENT_LENGTHS_UNKNOWN,
        PADDED_LENGTHS_UNKNOWN or PADDING_UNKNOWN. Then `attended_pairs` (default: the pairs of one
        sequence) is the upper bound
    min_attended_pairs: lower bound of such unknown pairs, if known
    images: work of the vision tower, if the model has one. `trainable` is of the language model
    """

    shape: ModelShape
    seq_len: int
    trainable: Trainable
    attended_pairs: float | None
    lengths_unknown_reason: MessageKind | None
    min_attended_pairs: float | None = None
    images: ImageWork | None = None

    @property
    def is_work_known(self) -> bool:
        """True if the FLOPs per token are known, those of a vision tower included."""
        return self.are_images_known and self.lengths_unknown_reason is None

    @property
    def are_images_known(self) -> bool:
        """True if the FLOPs of the vision tower are known, or there is no tower."""
        return self.images is None or self.images.is_known

    @property
    def tower(self) -> VisionTower | None:
        """Vision tower of the model, if it has one."""
        return None if self.images is None else self.images.tower

    @property
    def params_total(self) -> int:
        """All parameters, those of a vision tower included."""
        return self.shape.params_total + (0 if self.tower is None else self.tower.params_total)

    def operators(self, convention: AttentionConvention = "exact") -> tuple[Operator, ...]:
        """Return the operators under one attention convention, the tower's first."""
        tower = () if self.images is None else self.images.operators()
        return (*tower, *self.language_operators(convention))

    def language_operators(self, convention: AttentionConvention = "exact") -> tuple[Operator, ...]:
        """Return the operators of the language model alone."""
        return flops.operators(
            self.shape,
            self.seq_len,
            attention=convention,
            trainable=self.trainable,
            attended=self.attended_pairs,
        )


@dataclass(frozen=True, slots=True)
class Hardware:
    """Precision of each operator, the fastest precision, and the dense peaks."""

    dtype_of: DtypeOf
    fastest_dtype: Dtype
    peaks: Mapping[Dtype, float]


def find_hardware(
    facts: Mapping[str, Mapping[str, Any]],
    overlay: Sequence[Accelerator],
    result: UtilizationResult,
) -> Hardware | None:
    """Return precisions and peaks; None with `result.missing` filled."""
    dtypes = operator_dtypes(facts, result)
    peaks = _peaks(facts, dtypes, overlay, result)
    if dtypes is None or peaks is None:
        return None
    dtype_of, fastest = dtypes
    return Hardware(dtype_of=dtype_of, fastest_dtype=fastest, peaks=peaks)


def formula_inputs(
    facts: Mapping[str, Mapping[str, Any]], rates: Mapping[str, Any], result: UtilizationResult
) -> FormulaInputs | None:
    """Return the inputs of the formula; None with `result.missing` filled.

    Some problems fill only `result.warnings`: an objective or dropped tokens outside the formula.
    """
    logged_images = _logged_images(rates)
    model = _model(facts, result, images_logged=logged_images is not None)
    shape = None if model is None else model.shape
    seq_len = integer_fact(facts, "seq_len")
    trainable = _trainable(facts, shape, result)
    if seq_len is None and rates.get("sequence_length") is None:
        result.missing.append("seq_len")
    if (other_work := _other_work_warning(facts)) is not None:
        result.warnings.append(other_work)
        return None
    if model is None or shape is None or "seq_len" in result.missing or trainable is None:
        return None
    length = mean_length(seq_len, rates, result)
    if length is None:
        return None
    attended, unknown_reason = run_attention(facts, rates, length)
    if attended is not None and not 1 <= attended <= length:
        result.missing.append("attended_pairs")
        result.warnings.append(messages.ATTENDED_PAIRS_IMPOSSIBLE(length=length, attended=attended))
        return None
    mean = (
        _mean_of_padded(facts, rates) if unknown_reason == messages.PADDED_LENGTHS_UNKNOWN else None
    )
    run = FormulaInputs(
        shape=shape,
        seq_len=length,
        trainable=trainable,
        attended_pairs=attended,
        lengths_unknown_reason=unknown_reason,
        min_attended_pairs=None if mean is None else (mean + 1) / 2,  # all as long as the mean
    )
    bounds = rates.get("document_pairs")
    if bounds is not None and attended in bounds:
        run = _between(run, *bounds)
    return run if logged_images is None else _seeing(run, model.tower, logged_images, facts, result)


def _logged_images(rates: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the sums over a run's images; None if its log counts no images."""
    counts: Mapping[str, Any] | None = rates.get("image_counts")
    return None if counts is None or counts["tokens"] is None else counts


def _seeing(
    run: FormulaInputs,
    tower: VisionTower | None,
    counts: Mapping[str, Any],
    facts: Mapping[str, Mapping[str, Any]],
    result: UtilizationResult,
) -> FormulaInputs | None:
    """Return the run with the work of its images; None with `result.missing` filled."""
    if tower is None:
        if not counts["tokens"]:
            return run
        result.missing.append("model_config" if "model_config" in facts else "model")
        result.warnings.append(messages.IMAGES_WITHOUT_TOWER(model=run.shape.name))
        return None
    parts = trained_parts(run.trainable, text_fact(facts, "frozen_parts"))
    if parts is None:
        result.missing.append("frozen_parts")
        result.warnings.append(messages.TRAINED_PARTS_UNKNOWN())
        return None
    run = replace(run, trainable=parts.trainable_of("language model"))
    work = image_work(
        tower,
        parts,
        counts,
        language=run.language_operators(),
        videos=bool_fact(facts, "videos"),
    )
    if work.contradiction is not None:
        result.warnings.append(work.contradiction)
    return replace(run, images=work)


def _other_work_warning(facts: Mapping[str, Mapping[str, Any]]) -> Message | None:
    """Warn of a run whose steps do other work than the formula counts."""
    if bool_fact(facts, "token_dropping"):
        return messages.TOKEN_DROPPING()
    objective = text_fact(facts, "objective")
    if objective in resolved_facts.NONSTANDARD_OBJECTIVES:
        return messages.OTHER_OBJECTIVE(objective=objective)
    return None


def _between(run: FormulaInputs, low: float, high: float) -> FormulaInputs:
    """Return the run with pairs between two bounds, marked if its FLOPs are in doubt.

    Close bounds give their mean. Otherwise the run gets PADDING_UNKNOWN and the lower bound.
    """
    least, most = (
        flops.flops_per_token(replace(run, attended_pairs=pairs).operators())
        for pairs in (low, high)
    )
    if most <= least * (1 + MAX_PADDING_DOUBT):
        return replace(run, attended_pairs=(low + high) / 2)
    return replace(run, lengths_unknown_reason=messages.PADDING_UNKNOWN, min_attended_pairs=low)


def mean_length(
    given: int | None, rates: Mapping[str, Any], result: UtilizationResult
) -> int | None:
    """Return the mean length over the tokens, where lines print one (a curriculum)."""
    logged = rates.get("sequence_length")
    if logged is None or round(logged) == given:
        return given
    if round(logged) < 1:
        result.missing.append("seq_len")
        result.warnings.append(messages.NO_MEAN_LENGTH(logged=logged))
        return None
    if given is not None:
        result.warnings.append(messages.MEAN_LENGTH_USED(said=given, logged=logged))
    return round(float(logged))


def find_shape(facts: Mapping[str, Mapping[str, Any]]) -> tuple[ModelShape | None, str]:
    """Return the shape from a run's facts; without a shape, the reason."""
    out = UtilizationResult()
    model = _model(facts, out)
    return (
        (None, "; ".join(out.warnings) or "no model is given")
        if model is None
        else (model.shape, "")
    )


def unknown_name_errors(
    fact_values: Mapping[str, str], overlay: Sequence[Accelerator] = ()
) -> list[str]:
    """Return an error for each unknown model or accelerator among some facts.

    A name is not checked if another fact replaces it.

    fact_values: values by name; overlay: accelerators searched before the table
    """
    found = []
    if "model" in fact_values and not set(SHAPE_FACTS) & fact_values.keys() - {"model"}:
        try:
            find_model(fact_values["model"])
        except UnknownModelError as error:
            found.append(str(error))
    if "accelerator" in fact_values and "peak_flops" not in fact_values:
        try:
            accelerators.find_accelerator(fact_values["accelerator"], overlay)
        except UnknownAcceleratorError as error:
            found.append(str(error))
    return found


def accelerator_match_note(
    fact_values: Mapping[str, str], overlay: Sequence[Accelerator] = ()
) -> str | None:
    """Describe the accelerator that another name matches; None if the same or unknown.

    A plain H100 matches the SXM card: owners of another card must see this. The note of a peak
    that is not certain follows.
    """
    name = fact_values.get("accelerator", "")
    try:
        device = accelerators.find_accelerator(name, overlay)
    except UnknownAcceleratorError:
        return None
    doubt = device.note.rstrip(".") if device.confidence != "high" else ""
    if accelerators.normalise_name(name) == accelerators.normalise_name(device.name):
        return f"{device.name}: {doubt}" if doubt else None
    peak = device.peaks.get("bf16")
    dense = "" if peak is None else f", {peak / 1e12:,g} TFLOP/s dense in bf16"
    return f"{name} is treated as {device.name}{dense}{'. ' if doubt else ''}{doubt}"


class _Model(NamedTuple):
    """Language model of a run, and its vision tower, if it has one."""

    shape: ModelShape
    tower: VisionTower | None


def _model(
    facts: Mapping[str, Mapping[str, Any]],
    result: UtilizationResult,
    *,
    images_logged: bool = False,
) -> _Model | None:
    """Return the model from the fact of the best origin.

    The shape is checked against the logged parameter count. A vision tower is refused, unless the
    log counts the images.
    """
    given = [name for name in SHAPE_FACTS if name in facts]
    if not given:
        result.missing.append("model")
        return None
    given.sort(key=lambda name: (_rank(facts[name]), SHAPE_FACTS.index(name)))
    best = given[0]
    try:
        best = _describing(given, facts, result)
        shape, tower = _build(best, facts)
        if tower is not None and not images_logged:
            raise messages.VISION_TOWER(model=shape.name)
        if shape.params_total > FACT_BOUNDS["parameters"].highest:
            raise messages.TOO_MANY_PARAMETERS(total=shape.params_total)
        if best != given[0]:
            _hold_against(str(facts[given[0]]["value"]), shape)
        modules = _mtp_modules(shape, facts)
        if modules is None:
            result.missing.append("mtp_modules")
            result.warnings.append(messages.MTP_MODULES_UNKNOWN())
            return None
        shape = replace(shape, mtp_modules=modules)
        return _Model(
            _checked(shape, facts, result, 0 if tower is None else tower.params_total), tower
        )
    except ShapeError as error:
        result.missing.append("model_config")
        damaged = isinstance(error, ImpossibleShapeError)
        text = _with_place(str(error), _where(facts[best])) if damaged else str(error)
        result.warnings.append(messages.SHAPE_UNKNOWN(error=_for_stored_run(text)))
        return None


def _for_stored_run(error: str) -> str:
    """Return an error with the command that gives the missing fact to a stored run."""
    return error.replace(" Fix: give ", " Fix: fairmfu set RUN ")


def _with_place(error: str, origin: str) -> str:
    """Return an error with the origin of the fact before its remedy."""
    reason, fix, remedy = error.partition(" Fix: ")
    return f"{reason.rstrip('.')} ({origin}).{fix}{remedy}"


def _where(fact: Mapping[str, Any]) -> str:
    """Return the origin of a fact, with its line if logged."""
    origin, line = str(fact["origin"]), fact.get("line")
    return origin if line is None or str(line) in origin else f"{origin}, line {line:,}"


def _describing(
    given: Sequence[str], facts: Mapping[str, Mapping[str, Any]], result: UtilizationResult
) -> str:
    """Return the first fact that gives a shape.

    An unknown name in a log, such as a path, gives none: then the next fact counts, from a file
    beside the log. A name given by a user is never skipped.

    given: facts in order of precedence, at least one
    """
    best, *others = given
    name, origin = (str(facts[best][key]) for key in ("value", "origin"))
    if best == "model" and others and not re.match(resolved_facts.USER_ORIGIN_PATTERN, origin):
        try:
            find_model(name)
        except UnknownModelError:
            source = str(facts[others[0]]["origin"]).removeprefix("companion:")
            own = _own_name(others[0], facts)
            called = f", which calls it {own!r}" if own else ""
            result.warnings.append(
                messages.UNKNOWN_LOGGED_MODEL(name=name, source=source, own=called)
            )
            return others[0]
    return best


def _own_name(fact: str, facts: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the model name in a config, possibly the base model's."""
    if fact != "model_config":
        return ""
    return str(json.loads(str(facts[fact]["value"])).get("_name_or_path") or "")


def _hold_against(name: str, shape: ModelShape) -> None:
    """Raise ShapeError if a shape's size contradicts the model's name (`my-72b`)."""
    last = re.split(r"[/\\]", name.rstrip("/\\"))[-1]
    sizes = [
        float(match["size"]) * float(match["experts"] or 1) * SIZE_UNITS[match["unit"].lower()]
        for match in MODEL_SIZE_PATTERN.finditer(last)
    ]
    if sizes and not any(
        1 / MAX_SIZE_RATIO <= size / shape.params_total <= MAX_SIZE_RATIO for size in sizes
    ):
        raise messages.CONFIG_OF_OTHER_SIZE(name=name, billions=shape.params_total / 1e9)


MODEL_SIZE_PATTERN: Final = re.compile(
    r"(?<![A-Za-z\d.])(?:(?P<experts>\d+)x)?(?P<size>\d+(?:\.\d+)?)(?P<unit>[bBmM])(?![A-Za-z\d])"
)
SIZE_UNITS: Final = {"b": 1e9, "m": 1e6}
MAX_SIZE_RATIO: Final = 2
"""Largest ratio of a name's size to the shape's: names are rounded, and experts share weights (8x7B
has 46.7 billion)."""


def _mtp_modules(shape: ModelShape, facts: Mapping[str, Mapping[str, Any]]) -> int | None:
    """Return the number of trained multi-token prediction modules; None if not known."""
    modules = integer_fact(facts, "mtp_modules")
    if modules is not None:
        return modules
    return None if bool_fact(facts, "mtp_trained") and not shape.mtp_modules else shape.mtp_modules


def work_key(run: FormulaInputs) -> str:
    """Return a key of the trained model: its layers and widths.

    Left out are names; the vocabulary, padded or cropped by frameworks by less than 1 %; windows,
    see `attention_pattern`; and multi-token prediction, see `describe_trainable`. A vision tower
    is part of the model.
    """
    layers = replace(_same_work(run.shape), vocab_size=1)
    text = str(replace(layers, layers=tuple(map(_unmasked, layers.layers))))
    text += "" if run.images is None else str(replace(run.images.tower, name=""))
    for default in _LATER_DEFAULTS:
        text = text.replace(f", {default}", "")
    return hashlib.sha256(text.encode()).hexdigest()[:12]


_LATER_DEFAULTS: Final = (
    *("compression=None", "top_k=None", "key_block=None", "indexer=()", "score_width=0"),
    *("q_latents=1", "wide_values=0", "own_keys=True", "own_values=True", "projections=()"),
    *("extra=()", "extra_params=0", "extra_embedding=0", "beside=None", "passes=1"),
    *("passes_without_gradient=0", "shared=False", "copies=1", "expert_input=None"),
    *("even=False", "router=()"),
)
"""Fields that shapes got after keys were first stored, at their defaults: the old keys stay."""


def _unmasked(group: LayerGroup) -> LayerGroup:
    if not isinstance(group.attention, Attention):
        return group
    every_key = replace(group.attention, window=None, chunk=None, top_k=None, causal=True)
    return replace(group, attention=every_key)


def attention_pattern(run: FormulaInputs) -> str:
    """Describe the keys that a query sees.

    A window or chunk as long as the sequence counts as none.
    """
    layers = [(g.count, g.attention) for g in run.shape.layers]
    seen = [(count, a) for count, a in layers if isinstance(a, Attention)]
    whole = sum(count for count, _ in layers)
    words = ["causal" if all(a.causal for _, a in seen) else "not causal"]
    for name, field_name in (("window", "window"), ("chunk", "chunk"), ("selection", "top_k")):
        lengths = [(count, getattr(a, field_name)) for count, a in seen]
        short = [(n, length) for n, length in lengths if length and length < run.seq_len]
        for length in sorted({length for _, length in short}):
            among = sum(n for n, other in short if other == length)
            words.append(f"{name} of {length:,} in {among} of {whole} layers")
    pairs = run_attended_pairs(run)
    if run.lengths_unknown_reason == messages.PADDED_LENGTHS_UNKNOWN:
        words.append("over padded samples")
    elif pairs is None or pairs < MIN_WHOLE_PACK_SHARE * (run.seq_len + 1) / 2:
        words.append("stops at document borders")
    return ", ".join(words)


MIN_WHOLE_PACK_SHARE: Final = 0.99
"""Least share of a whole sequence's pairs from which documents count as long as their pack."""


def describe_trainable(run: FormulaInputs) -> str:
    """Describe the trained weights: rank and targets of adapters, MTP modules."""
    trainable, modules = run.trainable, run.shape.mtp_modules
    words: str = trainable.kind
    if words == "lora":
        words += f" of rank {trainable.lora_rank} on {', '.join(sorted(trainable.lora_targets))}"
    if run.images is not None and (frozen := run.images.frozen_parts):
        words += f", frozen {' and '.join(frozen)}"
    return f"{words} with {modules} MTP module{'' if modules == 1 else 's'}" if modules else words


def run_attended_pairs(run: FormulaInputs) -> float | None:
    """Return pairs per token of a layer without window; None if lengths are unknown."""
    if run.lengths_unknown_reason is not None:
        return None
    return (run.seq_len + 1) / 2 if run.attended_pairs is None else run.attended_pairs


def canonical_model_name(shape: ModelShape, tower: VisionTower | None = None) -> str:
    """Return the known name of a model, if a framework uses another; else its own."""
    return _names_by_work().get(_work_of(shape, tower), shape.name)


@cache
def _names_by_work() -> Mapping[_Model, str]:
    """Return the known names by shape and tower; of several, the first."""
    names = {_work_of(model): model.name for model in reversed(buildable_models())}
    for name in reversed(vision_model_names()):
        with suppress(Exception):  # an invalid row, as buildable_models skips it
            names[_work_of(find_model(name), vision.find_tower(name))] = name
    return names


def _work_of(shape: ModelShape, tower: VisionTower | None = None) -> _Model:
    return _Model(_same_work(shape), None if tower is None else replace(tower, name=""))


def _same_work(shape: ModelShape) -> ModelShape:
    """Return the shape without its name, fused matmuls and MTP modules."""
    layers = tuple(
        replace(
            group,
            attention=_split(group.attention),
            ffn=None if group.ffn is None else replace(group.ffn, fused=False),
        )
        for group in shape.layers
    )
    return replace(shape, name="", layers=layers, mtp_modules=0)


def _split(mixer: Mixer | None) -> Mixer | None:
    """Return the mixer with one weight for each projection."""
    return replace(mixer, fused=False) if isinstance(mixer, Attention | LinearAttention) else mixer


def _build(name: str, facts: Mapping[str, Mapping[str, Any]]) -> _Model:
    value = str(facts[name]["value"])
    if name == "model_config":
        return _of_config(json.loads(value))
    if name == "megatron_arguments":
        return _Model(_of_header(json.loads(value), facts), None)
    if name == "torchtitan_arguments":
        flavour = text_fact(facts, "model") or name.removesuffix("_arguments")
        return _Model(from_torchtitan(flavour, json.loads(value)), None)
    return _Model(find_model(value), vision.find_tower(value))


def _of_header(arguments: Mapping[str, str], facts: Mapping[str, Mapping[str, Any]]) -> ModelShape:
    """Return the model of an arguments header, checked against a rank's logged count."""
    shape = from_megatron(arguments, integer_fact(facts, "vocab_size"))
    degrees = (integer_fact(facts, name) for name in ("tensor_parallel", "pipeline_parallel"))
    tensor, pipeline = (degree or 1 for degree in degrees)
    if (printed := text_fact(facts, "rank_params")) is not None:
        vocabulary = integer_fact(facts, "padded_vocab_size") or shape.vocab_size
        check_rank_params(shape, printed, tensor, pipeline, vocabulary)
    return shape


def _of_config(config: Mapping[str, object]) -> _Model:
    """Return language model and vision tower of a config.

    Raises ShapeError for a model with an audio tower or another part.
    """
    shape = from_hugging_face(config)
    if config.get("audio_config") is not None:
        raise messages.AUDIO_TOWER(model=shape.name)
    if parts := other_parts(config):
        raise OTHER_PART(model=shape.name, part=parts[0])
    tower = vision.from_hugging_face(config)
    if tower is None:
        return _Model(shape, None)
    whole = str(config.get("_name_or_path") or config.get("model_type"))  # not of the text alone
    return _Model(replace(shape, name=whole), tower)


def _checked(
    shape: ModelShape,
    facts: Mapping[str, Mapping[str, Any]],
    result: UtilizationResult,
    of_tower: int = 0,
) -> ModelShape:
    """Return the shape, checked against the logged parameter count, if any.

    A vocabulary of TOKENIZER_VOCAB_SIZES may explain a difference.

    of_tower: parameters of the vision tower
    """
    logged = integer_fact(facts, "params_total")
    logged = None if logged is None else logged - of_tower
    own = (
        shape.params_total,
        shape.params_total - shape.params_embedding,  # tied weights counted once, then subtracted
    )
    if logged is None or logged in own:
        return shape
    adapters = count_adapter_params(facts, shape)
    if adapters is None:  # the logged count includes them
        return shape
    logged -= adapters
    if logged in own:
        return shape
    try:
        fitted = with_params_total(shape, logged)
    except ShapeError as other_model:
        raise OTHER_PARAMETER_COUNT(
            model=shape.name, own=shape.params_total, logged=logged, alike=_as_many(logged)
        ) from other_model
    if fitted.vocab_size not in TOKENIZER_VOCAB_SIZES:
        raise messages.NO_COMMON_VOCABULARY(
            model=shape.name, own=shape.params_total, logged=logged, alike=_as_many(logged)
        )
    result.warnings.append(
        messages.VOCABULARY_INFERRED(
            logged=logged, shape=shape.name, total=shape.params_total, words=fitted.vocab_size
        )
    )
    return replace(fitted, name=f"{shape.name} with a vocabulary of {fitted.vocab_size:,}")


def count_adapter_params(facts: Mapping[str, Mapping[str, Any]], shape: ModelShape) -> int | None:
    """Return the parameters of LoRA's adapters; 0 without LoRA, None if not known."""
    if text_fact(facts, "trainable") != "lora":
        return 0
    trained = _trainable(facts, shape, UtilizationResult())
    with suppress(ShapeError):  # unknown targets, already reported
        return None if trained is None else adapter_params(shape, trained)
    return None


def _as_many(params_total: int) -> str:
    """Suggest known models with this many parameters."""
    names = [shape.name for shape in buildable_models() if shape.params_total == params_total]
    return f", or model={' or '.join(names)} (same number of parameters)" if names else ""


TOKENIZER_VOCAB_SIZES: Final = frozenset(
    {2000, 2048, 2256, 32_000, 32_064, 32_768, 50_257, 50_304, 100_277, 100_352, 102_400}
    | {128_256, 128_815, 129_280, 151_643, 151_646, 151_936, 152_064, 201_088, 202_048}
)
"""Vocabularies of the tokenizers in Torchtitan's recipes, which set the vocabulary from the
tokenizer."""


def is_inferred(fact: Mapping[str, Any]) -> bool:
    """Return whether a fact is inferred from the framework or from numbers."""
    return str(fact["origin"]).startswith("inferred")


def _rank(fact: Mapping[str, Any]) -> int:
    kind = str(fact["origin"]).split(":")[0]
    return resolved_facts.ORIGIN_PRECEDENCE.index(kind)


def _trainable(
    facts: Mapping[str, Mapping[str, Any]], shape: ModelShape | None, result: UtilizationResult
) -> Trainable | None:
    kind = text_fact(facts, "trainable")
    if kind is None:
        result.missing.append("trainable")
        return None
    if kind != "lora":
        return Trainable(kind="frozen" if kind == "frozen" else "full")
    rank, targets = integer_fact(facts, "lora_rank"), text_fact(facts, "lora_targets")
    if rank is None or targets is None:
        result.missing += [n for n in ("lora_rank", "lora_targets") if n not in facts]
        return None
    names = tuple(name.strip() for name in targets.split(","))
    try:
        if shape is not None:
            shape.adapted_weights(names)
    except ShapeError as error:
        result.missing.append("lora_targets")
        result.warnings.append(messages.SHAPE_UNKNOWN(error=error))
        return None
    return Trainable(kind="lora", lora_rank=rank, lora_targets=names)


def run_attention(
    facts: Mapping[str, Mapping[str, Any]], rates: Mapping[str, Any], seq_len: int
) -> tuple[float | None, MessageKind | None]:
    """Return attended pairs per token if logged or given, and the reason if unknown.

    With two bounds (metrics.throughput.document_pairs), the upper bound.
    """
    if (pairs := text_fact(facts, "attended_pairs")) is not None:
        return float(pairs), None
    if rates.get("document_pairs") is not None:
        return rates["document_pairs"][1], None
    if rates.get("attention_ratio") is not None and rates.get("attended_pairs") is not None:
        return rates["attended_pairs"], None  # a row of metrics has the result of the bounds
    flavour = text_fact(facts, "model") or ""
    masked = (
        text_fact(facts, "document_mask") or str(bool(DOCUMENT_MASKED_FLAVOUR.search(flavour)))
    ).lower()
    if masked == "true":
        return None, messages.DOCUMENT_LENGTHS_UNKNOWN
    if not _padded_to_unknown(facts, rates, seq_len):
        return None, None
    pairs_of_spread = _pairs_of_spread(facts, rates)
    return pairs_of_spread, None if pairs_of_spread else messages.PADDED_LENGTHS_UNKNOWN


def _pairs_of_spread(
    facts: Mapping[str, Mapping[str, Any]], rates: Mapping[str, Any]
) -> float | None:
    """Return the pairs per token of unpacked samples.

    They follow from mean and deviation of the samples' lengths: the pairs of a sample are
    n (n + 1) / 2. Padding is not counted, neither in tokens nor in pairs. Unknown where a sample
    has several sequences, whose own lengths may differ.
    """
    mean, deviation = (
        number_fact(facts, name) for name in ("mean_sample_length", "sample_length_deviation")
    )
    unpadded = rates.get("token_basis") in UNPADDED_BASES
    several = (integer_fact(facts, "sequences_per_sample") or 1) > 1
    if mean is None or deviation is None or several or not unpadded:
        return None
    return (deviation**2 + mean**2) / (2 * mean) + 0.5


UNPADDED_BASES: Final = ("non_padding", "given")
"""Token bases whose tokens leave out the padding of samples."""


def _padded_to_unknown(
    facts: Mapping[str, Mapping[str, Any]], rates: Mapping[str, Any], seq_len: int
) -> bool:
    """Return whether counted samples are padded to the longest of their batch.

    False if a printed length, or a mean near seq_len, shows their length. Tokens by a mean
    are of such samples too, unless they are said to be packed.
    """
    packed = bool_fact(facts, "packed")
    padded = packed is False or (packed is None and rates.get("token_basis") == "given")
    if not padded or rates.get("tgs") is None or rates.get("sequence_length") is not None:
        return False
    mean = _mean_of_padded(facts, rates)
    return mean is None or mean < MIN_WHOLE_PACK_SHARE * seq_len


def _mean_of_padded(
    facts: Mapping[str, Mapping[str, Any]], rates: Mapping[str, Any]
) -> float | None:
    """Return the mean tokens of a sequence: as given, else as counted.

    Padding is included if it counts as tokens.
    """
    sequences = integer_fact(facts, "sequences_per_sample") or 1
    if (given := number_fact(facts, "mean_sample_length")) is not None:
        return given / sequences
    gpus, samples = integer_fact(facts, "gpus"), integer_fact(facts, "global_batch_size")
    tokens = rates.get("tokens_per_gpu_step")
    if gpus is None or samples is None or tokens is None:
        return None
    return float(tokens * gpus / samples / sequences)


MAX_PADDING_DOUBT: Final = 0.005
"""Largest relative difference of FLOPs, between two ways to spread padding, that counts as
known."""
DOCUMENT_MASKED_FLAVOUR: Final = re.compile(r"[-_](?:flex|varlen)(?:[-_]attn)?$|^llama4 17bx")
"""Flavours of Torchtitan whose attention stops at document borders. For llama4, since its arguments
are no longer printed (models/llama4/__init__.py@1b230bb, block_causal); before, the arguments show
this."""


def operator_dtypes(
    facts: Mapping[str, Mapping[str, Any]], result: UtilizationResult
) -> tuple[DtypeOf, Dtype] | None:
    """Return the precision of each operator, and the fastest of them.

    None with `result.missing` filled.
    """
    fact = facts.get("precision", {"value": "", "origin": "inferred"})
    precision = str(fact["value"])
    by_hand = re.match(resolved_facts.USER_ORIGIN_PATTERN, str(fact["origin"])) is not None
    texts = {name: str(facts[name]["value"]) for name in facts}
    if (told := logged_quantization(texts)) is not None:
        said, left = told
        if not by_hand:
            result.missing.append("precision")
            none = "" if "quantized" in facts else NONE_CONVERTED
            result.warnings.append(
                messages.QUANTIZED_WEIGHTS(said=said, choice=_precision_choice(left), none=none)
            )
            return None
        if precision not in left:
            result.warnings.append(
                messages.PRECISION_AGAINST_LOG(
                    precision=precision, said=said, choice=_precision_choice(left)
                )
            )
    if not precision:
        result.missing.append("precision")
        return None
    if precision == "fp32" and not by_hand:
        result.missing.append("precision")
        result.warnings.append(messages.TF32_UNKNOWN())
        return None
    return operator_formats(precision)


NONE_CONVERTED: Final = ", or bf16 if no layer was converted"
"""For a line on layers to be converted: a filter may leave none. Torchtitan then prints an MFU
beside the line, and only then, since 2026-05."""


def _precision_choice(fits: Collection[str]) -> str:
    """Suggest the precisions that a log still allows."""
    named = {"fp8": "fp8 (lm_head in bf16)", "fp8+lm_head": "fp8+lm_head (lm_head in fp8 too)"}
    choice = ", ".join(named.get(one, one) for one in BELOW_16_BITS if one in fits)
    return f"fairmfu set RUN precision=P, with P one of: {choice}"


def _peaks(
    facts: Mapping[str, Mapping[str, Any]],
    dtypes: tuple[DtypeOf, Dtype] | None,
    overlay: Sequence[Accelerator],
    result: UtilizationResult,
) -> Mapping[Dtype, float] | None:
    """Return the accelerator's dense peaks by precision, from a user or the table.

    Sets `device`, one name for all spellings of frameworks, and `peak_source`, the source of the
    peaks of the run's precisions. A given peak changes MFU, and names no accelerator.
    """
    name = text_fact(facts, "accelerator")
    result.values["device"] = _device_name(name, overlay)
    if (given := facts.get("peak_flops")) is not None and dtypes is not None:
        peak = float(given["value"])
        result.values["peak_source"] = (
            f"{GIVEN_PEAK}, dense {dtypes[1]} {peak / 1e12:,g} TFLOP/s ({given['origin']})"
        )
        result.warnings += _other_peak(name, dtypes[1], peak, overlay)
        return {dtypes[1]: peak}
    if name is None:
        result.missing.append("accelerator")
        return None
    try:
        device = accelerators.find_accelerator(name, overlay)
    except accelerators.UnknownAcceleratorError as error:
        result.missing.append("peak_flops")
        result.warnings.append(messages.ACCELERATOR_UNKNOWN(error=_for_stored_run(str(error))))
        return None
    if dtypes is not None:
        formats: list[Dtype] = [dtypes[1]]
        if dtypes[1] in BELOW_16_BITS.values():
            formats.append("bf16")  # some operators stay in BF16, see metrics.formula.precision
        result.values["peak_source"] = accelerators.peak_source(device, formats)
    return device.peaks


def _device_name(name: str | None, overlay: Sequence[Accelerator]) -> str | None:
    """Return the name of an accelerator in the table; an unknown name as it is."""
    try:
        return accelerators.find_accelerator(name or "", overlay).name
    except accelerators.UnknownAcceleratorError:
        return name


def _other_peak(
    name: str | None, dtype: Dtype, given: float, overlay: Sequence[Accelerator]
) -> list[Message]:
    """Warn of a given peak other than the accelerator's.

    Such a peak may include sparsity, or belong to another card.
    """
    try:
        device = accelerators.find_accelerator(name or "", overlay)
    except accelerators.UnknownAcceleratorError:
        return []
    known = device.peaks.get(dtype)
    if known is None or abs(given / known - 1) <= MAX_PEAK_DIFFERENCE:
        return []
    message = messages.OTHER_PEAK(
        given=given / 1e12,
        ratio=given / known,
        precision=dtype,
        accelerator=device.name,
        known=known / 1e12,
    )
    return [message]


MAX_PEAK_DIFFERENCE: Final = 0.02
"""Largest relative rounding of a peak typed by a user: 312 for 311.9, 990 for 989.4."""


def text_fact(facts: Mapping[str, Mapping[str, Any]], name: str) -> str | None:
    """Return the value of a resolved fact as text; None if absent."""
    return str(facts[name]["value"]) if name in facts else None


def bool_fact(facts: Mapping[str, Mapping[str, Any]], name: str) -> bool | None:
    """Return the value of a resolved fact as a boolean; None if not true or false."""
    return {"true": True, "false": False}.get((text_fact(facts, name) or "").lower())


def recompute_fact(facts: Mapping[str, Mapping[str, Any]]) -> Recompute | None:
    """Return a run's activation checkpointing; None if not known or not countable."""
    return _RECOMPUTED.get(text_fact(facts, "recompute") or "")


_RECOMPUTED: Final[dict[str, Recompute]] = {
    "none": "none",
    "full": "full",
    "selective_attention": "selective",
}


def integer_fact(facts: Mapping[str, Mapping[str, Any]], name: str) -> int | None:
    """Return the value of a resolved fact as a whole number, truncated.

    None if no number, or too large for a table's column.
    """
    value = number_fact(facts, name)
    return None if value is None or abs(value) >= 2**63 else int(value)


def number_fact(facts: Mapping[str, Mapping[str, Any]], name: str) -> float | None:
    """Return the value of a resolved fact as a finite number; None if no such number."""
    try:
        value = float(text_fact(facts, name) or "nan")
    except ValueError:
        return None
    return value if math.isfinite(value) else None
