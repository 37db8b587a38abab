"""The formula alone: FLOPs, rates and time from model, length and accelerator.

No log is needed. Rates are tokens per second per GPU (TGS), times seconds, FLOPs per token.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple, TypedDict, Unpack, cast

from ..audit.other_tools import compare_other_formulas
from ..formula import accelerators, flops, vision
from ..formula.accelerators import Accelerator
from ..formula.flops import Operator, Trainable
from ..formula.model_shapes import ModelShape, find_model, from_hugging_face
from ..formula.parameter_counts import (
    Uncounted,
    kv_cache_bytes_per_token,
    modules,
    uncounted,
)
from ..formula.precision import BELOW_16_BITS, DtypeOf, operator_formats
from ..formula.terms import FORMULA_VERSION, Dtype, Recompute
from ..formula.vision import VisionTower
from . import messages

Phase = Literal["train", "prefill", "decode"]

RULES_OF_THUMB: Final[Mapping[str, float]] = {
    "2N (forward)": 2.0,
    "6N (training)": 6.0,
    "8N (full checkpointing)": 8.0,
}
"""Rules of thumb, with N matmul weights per token (arXiv:2001.08361)."""

BYTES_PER_VALUE: Final[Mapping[Dtype, float]] = {
    "fp32": 4,
    "tf32": 4,
    "fp16": 2,
    "bf16": 2,
    "fp8": 1,
    "fp4": 0.5,
}
"""Bytes per value."""

SPEEDS: Final = ("tgs", "mfu", "hfu", "tflops")
"""Fields of Question that give the speed of a training."""

_SCALES: Final[Mapping[str, float]] = {"": 1, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Inputs of the formula for one model.

    tower, images: vision tower; height and width [pixels] of all images of a sequence.
    seq_len: tokens of a sequence, image tokens included; documents: lengths of its documents, if
        attention stops between them. batch: sequences whose keys and values are cached.
    tgs [tokens/s/GPU], mfu [fraction], hfu [fraction], tflops [TFLOP/s]: the speed; give at most
        one of them. hfu includes recomputation; tflops does not.
    tokens: tokens of a training run; with a speed and gpus, for the training time.
    """

    shape: ModelShape
    seq_len: int
    tower: VisionTower | None = None
    images: tuple[tuple[int, int], ...] = ()
    phase: Phase = "train"
    trainable: Trainable | None = None
    recompute: str | None = None
    precision: str = "bf16"
    accelerator: str | None = None
    peak_flops: float | None = None
    gpus: int | None = None
    tgs: float | None = None
    mfu: float | None = None
    hfu: float | None = None
    tflops: float | None = None
    tokens: float | None = None
    documents: tuple[int, ...] | None = None
    batch: int = 1
    overlay: Sequence[Accelerator] = ()

    @property
    def speeds(self) -> list[str]:
        """Names of the given speeds."""
        return [name for name in SPEEDS if getattr(self, name) is not None]

    def __post_init__(self) -> None:
        self._check_speeds()
        self._check_parts()

    def _check_speeds(self) -> None:
        """Raise for speeds without their peak or inputs."""
        if len(self.speeds) > 1:
            options = " and ".join(f"--{name}" for name in self.speeds)
            raise messages.TWO_SPEEDS(options=options)
        has_peak = self.accelerator is not None or self.peak_flops is not None
        if self.accelerator is not None and self.peak_flops is not None:
            raise messages.TWO_PEAKS()  # noqa: RSE102 - a kind
        if self.speeds and not has_peak:
            raise messages.SPEED_WITHOUT_PEAK()  # noqa: RSE102 - a kind
        if self.hfu is not None and flops.hfu_unknown_reason(self.recompute, self.shape):
            raise messages.HFU_WITHOUT_RECOMPUTE()  # noqa: RSE102 - a kind
        if self.tokens is not None and (self.gpus is None or not self.speeds):
            raise messages.TIME_WITHOUT_SPEED()  # noqa: RSE102 - a kind

    def _check_parts(self) -> None:
        """Raise for parts of the model without their input or phase."""
        if self.tower is None and self.images:
            raise messages.NO_VISION_TOWER(model=self.shape.name)
        if self.tower is not None and not self.images:
            raise messages.IMAGES_MISSING(model=self.shape.name)
        if self.tower is not None and (self.phase != "train" or self.trainable):
            raise messages.IMAGES_WITHOUT_FULL_TRAINING()  # noqa: RSE102 - a kind
        if self.phase != "train" and (self.speeds or self.tokens or self.trainable):
            raise messages.INFERENCE_WITH_RATE()  # noqa: RSE102 - a kind
        if self.phase != "train" and self.documents:
            raise messages.INFERENCE_WITH_DOCUMENTS()  # noqa: RSE102 - a kind
        if self.phase != "train" and self.shape.mtp_modules:
            raise messages.INFERENCE_WITH_MTP()  # noqa: RSE102 - a kind


class SpeedInputs(TypedDict, total=False):
    """Inputs of `ask` that Question takes as they are."""

    accelerator: str | None
    peak_flops: float | None
    gpus: int | None
    tgs: float | None
    mfu: float | None
    hfu: float | None
    tflops: float | None
    batch: int
    overlay: Sequence[Accelerator]


def ask(  # noqa: PLR0913 - inputs of the question
    model: str | Mapping[str, object],
    seq_len: int,
    *,
    images: Sequence[str] = (),
    phase: Phase = "train",
    precision: str = "bf16",
    trainable: Literal["full", "lora", "frozen"] = "full",
    lora_rank: int | None = None,
    lora_targets: str | None = None,
    mtp_modules: int = 0,
    recompute: str | None = None,
    tokens: str | float | None = None,
    documents: str | Sequence[int] | None = None,
    **speed: Unpack[SpeedInputs],
) -> Question:
    """Return a question to the formula, for `answer` and `compare_with_other_tools`.

    model: a name listed by `fairmfu models`, or a Hugging Face config as a mapping.
    seq_len: of one sequence, or of the context [tokens].
    images: per sequence, "HEIGHTxWIDTH" [pixels], for vision models.
    precision: fp32, tf32, fp16, bf16, fp8, fp8+lm_head, mxfp8 or nvfp4.
    trainable: full, lora or frozen. lora_targets: all-linear, or projections separated by commas.
    mtp_modules: number of multi-token prediction modules trained with the model.
    recompute: none, full or selective, for executed FLOPs.
    accelerator: name of the GPU, for rates; or peak_flops, its dense peak in this precision
        [FLOP/s]. overlay: your accelerators, which override the table's.
    tgs [tokens/s/GPU], mfu, hfu [fraction], tflops (TFLOP/s): give one to get the others.
    tokens: training tokens, "1T" or 1e12; with gpus, to get the training time.
    documents: lengths of the documents of a pack [tokens], "4x1024,4096" or numbers.
    batch: sequences in the key/value cache.

    Raises UnknownModelError, ShapeError for a config that the formula does not cover, and
    ValueError for contradicting arguments.

    >>> answer(ask("llama3-8b", 8192, accelerator="h100", tgs=6400))["mfu"]
    """
    targets = tuple((lora_targets or "").replace(",", " ").split())
    trained = Trainable(kind=trainable, lora_rank=lora_rank, lora_targets=targets)
    if isinstance(model, str):
        shape, tower = find_model(model), vision.find_tower(model)
    else:
        shape, tower = from_hugging_face(model), vision.from_hugging_face(model)
    return Question(
        shape=replace(shape, mtp_modules=mtp_modules),
        seq_len=seq_len,
        tower=tower,
        images=tuple(map(parse_image_size, images)),
        phase=phase,
        trainable=None if trained == Trainable() else trained,
        recompute=recompute,
        precision=precision,
        tokens=parse_amount(tokens) if isinstance(tokens, str) else tokens,
        documents=_lengths(documents),
        **speed,
    )


def parse_amount(text: str) -> float:
    """Parse an amount: `1T`, `300B`, `15e12` or `2000`. Raises ValueError."""
    match = re.fullmatch(r"([\d.]+(?:[eE][+-]?\d+)?)\s*([KMBT]?)", text.strip())
    if match is None:
        raise messages.NOT_AN_AMOUNT(text=text)
    return float(match[1]) * _SCALES[match[2]]


def _lengths(documents: str | Sequence[int] | None) -> tuple[int, ...] | None:
    if documents is None:
        return None
    return parse_lengths(documents) if isinstance(documents, str) else tuple(documents)


def parse_lengths(text: str) -> tuple[int, ...]:
    """Parse `4x1024,4096` as lengths of documents [tokens]. Raises ValueError."""
    lengths: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(?:(\d{1,6})x)?(\d{1,12})", part.strip())
        if match is None:
            raise messages.NOT_A_LENGTH(text=part.strip())
        lengths += [int(match[2])] * int(match[1] or 1)
    return tuple(lengths)


def parse_image_size(text: str) -> tuple[int, int]:
    """Parse `448x672` as height and width [pixels]. Raises ValueError."""
    match = re.fullmatch(r"(\d{1,6})x(\d{1,6})", text.strip())
    if match is None:
        raise messages.NOT_AN_IMAGE_SIZE(text=text)
    return int(match[1]), int(match[2])


def answer(question: Question) -> dict[str, Any]:
    """Return all results by name; results that were not asked for are absent.

    Parameter counts; trainable; documents if given; `*flops_per_token` [FLOP/token]: forward, of
    training with exact and with full attention, executed with recomputation (low, high); rows of
    `operators`, `modules`, `uncounted`, `rules`; kv_cache_bytes_per_token [bytes] averaged over the
    context, kv_cache_bytes [bytes] of the batch. With an accelerator also peak_flops [FLOP/s,
    dense], peak_source and tgs_at_peak [tokens/s/GPU], with a speed tgs [tokens/s/GPU], mfu
    [fraction], tflops (TFLOP/s) by exact attention and hfu [fraction] as low, high, with an HFU
    tgs_range [tokens/s/GPU]; with tokens and GPUs training_seconds [s], training_days [days],
    gpu_hours [GPU-hours], training_flops [FLOPs].

    Raises UnknownAcceleratorError, ShapeError for images or LoRA targets that the model does not
    have, and ValueError for a precision without a peak.

    >>> answer(ask("llama3-8b", 8192))["flops_per_token"]
    """
    q = question
    ops = _operators(q)
    seeing = q.tower.params_total if q.tower else 0
    cached = kv_cache_bytes_per_token(
        q.shape,
        bytes_per_value=BYTES_PER_VALUE[operator_formats(q.precision)[1]],
        context_len=q.seq_len,
    )
    out: dict[str, Any] = {
        "model": q.shape.name,
        "seq_len": q.seq_len,
        "phase": q.phase,
        "formula": FORMULA_VERSION,
        "params_total": q.shape.params_total + seeing,
        "params_active": q.shape.params_active + seeing,
        "params_matmul": q.shape.params_matmul,
        "params_embedding": q.shape.params_embedding,
        "forward_flops_per_token": flops.forward_flops_per_token(ops),
        "operators": _rows(ops, training=q.phase == "train"),
        "modules": [_row(module) for module in modules(q.shape)],
        "uncounted": [_row(part) for part in _uncounted(q)],
        "kv_cache_bytes_per_token": cached,
        "kv_cache_bytes": cached * q.seq_len * q.batch,
        "batch": q.batch,
    }
    if q.phase == "train":
        out |= _training(q, ops)
    return out


def _uncounted(q: Question) -> tuple[Uncounted, ...]:
    phase = None if q.phase == "train" else q.phase
    return uncounted(q.shape, q.seq_len, phase=phase, documents=q.documents)


def _operators(q: Question) -> tuple[Operator, ...]:
    if q.phase == "train":
        text = flops.operators(q.shape, q.seq_len, trainable=q.trainable, documents=q.documents)
        return (*_seen(q), *text)
    return flops.inference_operators(q.shape, q.seq_len, q.phase)


def _seen(q: Question) -> tuple[Operator, ...]:
    """Return the vision tower's operators, per token of the sequence."""
    if q.tower is None:
        return ()
    grids = [q.tower.grid_of(height, width) for height, width in q.images]
    return vision.per_token(vision.tower_operators(q.tower, grids), q.seq_len)


def _rows(ops: tuple[Operator, ...], *, training: bool) -> list[dict[str, Any]]:
    total = flops.flops_per_token(ops) if training else flops.forward_flops_per_token(ops)
    return [
        {
            "name": op.name,
            "layers": op.layers,
            "forward_flops_per_token": op.forward,
            "share": (op.training if training else op.forward) / total,
            "estimate": op.estimate,
        }
        | ({"flops_per_token": op.training} if training else {})
        for op in ops
    ]


def _row(item: Any) -> dict[str, Any]:  # noqa: ANN401 - any of the frozen rows
    return {name: getattr(item, name) for name in item.__dataclass_fields__}


def _training(q: Question, ops: tuple[Operator, ...]) -> dict[str, Any]:
    exact = flops.flops_per_token(ops)
    text = flops.operators(q.shape, q.seq_len, attention="full", trainable=q.trainable)
    full = (*_seen(q), *text)
    low, high = _executed(q, q.recompute)
    _, all_again = _executed(q, "full")
    exact_counts = (flops.forward_flops_per_token(ops), exact, None if q.tower else all_again)
    rules = [
        {"rule": rule, "flops_per_token": n * q.shape.params_matmul, "exact": counted}
        for (rule, n), counted in zip(RULES_OF_THUMB.items(), exact_counts, strict=True)
    ]
    out: dict[str, Any] = {
        "trainable": q.trainable.kind if q.trainable else "full",
        **({"documents": list(q.documents)} if q.documents else {}),
        "flops_per_token": exact,
        "flops_per_token_full_attention": flops.flops_per_token(full),
        "hardware_flops_per_token": None if low is None else [low, high],
        **_executed_by_language_model(q),
        "rules": rules,
    }
    return out | (_speed(q, ops) if q.accelerator or q.peak_flops else {})


def _executed(q: Question, recompute: str | None) -> tuple[float | None, float | None]:
    """Return the bounds of executed FLOPs per token, a vision tower included."""
    low, high = flops.hardware_flops_bounds(
        q.shape, q.seq_len, recompute, trainable=q.trainable, documents=q.documents
    )
    if low is None or high is None:
        return None, None
    least, most = vision.with_recomputation(_seen(q), cast("Recompute", recompute))
    return low + flops.executed_flops(least), high + flops.executed_flops(most)


def _executed_by_language_model(q: Question) -> dict[str, Any]:
    """Return the bounds without the vision tower, if there is one and they are known."""
    if q.tower is None or flops.hfu_unknown_reason(q.recompute, q.shape):
        return {}
    low, high = flops.hardware_flops_bounds(q.shape, q.seq_len, q.recompute, documents=q.documents)
    return {"hardware_flops_per_token_language_model": [low, high]}


def _speed(q: Question, ops: tuple[Operator, ...]) -> dict[str, Any]:
    """Return rates, utilisation and times from the ideal time per token."""
    dtype_of, fastest = operator_formats(q.precision)
    device = _device(q, fastest)
    try:
        ideal = flops.ideal_seconds_per_token(ops, dtype_of, device.peaks)
    except ValueError as error:
        raise accelerators.explain_missing_peak(error, q.accelerator, q.overlay) from error
    formats: list[Dtype] = [fastest]
    if fastest in BELOW_16_BITS.values():
        formats.append("bf16")
    out: dict[str, Any] = {
        "accelerator": device.name,
        "precision": q.precision,
        "peak_flops": device.peaks[fastest],
        "peak_source": accelerators.peak_source(device, formats),
        "tgs_at_peak": 1 / ideal,
    }
    executed = _executed_seconds(q, dtype_of, device)
    tgs = _tgs(q, ideal, executed, flops.flops_per_token(ops))
    if tgs is None:
        return out
    out |= {
        "tgs": tgs,
        "mfu": tgs * ideal,
        "tflops": tgs * flops.flops_per_token(ops) / 1e12,
        "hfu": None if executed is None else [tgs * seconds for seconds in executed],
    }
    if q.tower is not None and executed is not None:
        alone = _executed_seconds(replace(q, tower=None, images=()), dtype_of, device)
        out["hfu_language_model"] = [tgs * seconds for seconds in alone or ()]
    if q.hfu is not None and executed is not None:
        out["tgs_range"] = [q.hfu / executed[1], q.hfu / executed[0]]
    return out | _time(q, tgs, flops.flops_per_token(ops))


def _time(q: Question, tgs: float, flops_per_token: float) -> dict[str, Any]:
    """Return the time and the FLOPs of the tokens in question, if any."""
    if q.tokens is None or q.gpus is None:
        return {}
    seconds = q.tokens / (tgs * q.gpus)
    return {
        "tokens": q.tokens,
        "gpus": q.gpus,
        "training_seconds": seconds,
        "training_days": seconds / 86_400,
        "gpu_hours": seconds * q.gpus / 3600,
        "training_flops": q.tokens * flops_per_token,
    }


def _device(q: Question, fastest: Dtype) -> Accelerator:
    """Return the accelerator, or one with the given peak only."""
    if q.peak_flops is None:
        return accelerators.find_accelerator(q.accelerator or "", q.overlay)
    peaks: dict[Dtype, float] = {fastest: q.peak_flops}
    return Accelerator(
        name="GPU", unit="GPU", peaks=peaks, source="--peak-flops", confidence="high"
    )


def _executed_seconds(
    q: Question, dtype_of: DtypeOf, device: Accelerator
) -> tuple[float, float] | None:
    """Return bounds of the ideal time of executed work [s per token], if known."""
    if flops.hfu_unknown_reason(q.recompute, q.shape):
        return None
    policy = cast("Recompute", q.recompute)
    bounds = flops.hardware_operators(
        q.shape, q.seq_len, policy, trainable=q.trainable, documents=q.documents
    )
    seen = vision.with_recomputation(_seen(q), policy)
    seconds = [
        flops.ideal_seconds_per_token((*images, *text), dtype_of, device.peaks)
        for images, text in zip(seen, bounds, strict=True)
    ]
    return seconds[0], seconds[1]


def _tgs(
    q: Question, ideal: float, executed: tuple[float, float] | None, flops_per_token: float
) -> float | None:
    """Return the speed in tokens/s/GPU; of an HFU, the lower bound."""
    if q.hfu is not None and executed is not None:
        return q.hfu / executed[1]
    if q.tflops is not None:
        return q.tflops * 1e12 / flops_per_token
    return q.tgs if q.mfu is None else q.mfu / ideal


def compare_with_other_tools(q: Question, printed: str | None = None) -> list[dict[str, Any]]:
    """Return other tools' formulas for this model, as ratios to ours.

    All formulas count training; in inference, their forward is a third. With a speed, each has its
    tflops [TFLOP/s] and mfu [fraction of the accelerator's peak].

    printed: figure of a log, as `418.2` or `41.3%`; then `matches_printed` marks the formulas that
        give it within its rounding, and MAX_RATE_ROUNDING of the speed's

    Raises ValueError for a printed figure without a speed.
    """
    rows = [*_others(q)]
    figure = None if printed is None else parse_printed(printed)
    if not q.speeds:
        if figure is not None:
            raise messages.PRINTED_WITHOUT_SPEED()  # noqa: RSE102 - a kind
        return rows
    speed = _speed(q, _operators(q))
    return [row | rates_of(row["flops_per_token"], speed, figure) for row in rows]


def _others(q: Question) -> Iterator[dict[str, Any]]:
    inference = q.phase != "train"
    recompute: Literal["none", "full"] = (
        "full" if q.recompute == "full" and not inference else "none"
    )
    rows = compare_other_formulas(q.shape, q.seq_len, recompute=recompute, trainable=q.trainable)
    ops = _operators(q)
    ours = flops.forward_flops_per_token(ops) if inference else flops.flops_per_token(ops)
    for row in rows:
        theirs = row.flops_per_token
        if theirs is not None and inference:
            theirs /= 3
        ratio = None if theirs is None else theirs / ours
        yield _row(row) | {"flops_per_token": theirs, "ratio_to_ours": ratio}


class PrintedFigure(NamedTuple):
    """Figure of a log: kind, value, and half a unit of its last digit."""

    kind: Literal["tflops", "mfu"]
    value: float
    rounding: float


MAX_PRINTED_RATIO: Final = 1.2
"""Largest figure that is an MFU as a fraction, if no unit tells; a larger one is in TFLOP/s."""

MAX_RATE_ROUNDING: Final = 5e-4
"""Relative rounding of the speed that a printed figure is compared at."""


def parse_printed(text: str) -> PrintedFigure:
    """Parse `418.2`, `418.2 TFLOP/s`, `41.3%` or `0.413`. Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.(\d+))?)\s*(%|tf[a-z]*(?:/s)?)?", text.strip().lower())
    if match is None or not float(match[1]):
        raise messages.NOT_A_PRINTED_FIGURE(text=text)
    value, rounding = float(match[1]), 0.5 * 10.0 ** -len(match[2] or "")
    if match[3] == "%":
        return PrintedFigure("mfu", value / 100, rounding / 100)
    ratio = not match[3] and value <= MAX_PRINTED_RATIO
    return PrintedFigure("mfu" if ratio else "tflops", value, rounding)


def rates_of(
    flops_per_token: float | None, speed: Mapping[str, Any], figure: PrintedFigure | None
) -> dict[str, Any]:
    """Return TFLOP/s and MFU of a count, compared with a printed figure.

    speed: tgs [tokens/s/GPU] and peak_flops [FLOP/s]
    """
    if flops_per_token is None:
        rates: dict[str, Any] = {"tflops": None, "mfu": None}
    else:
        per_second = speed["tgs"] * flops_per_token
        rates = {"tflops": per_second / 1e12, "mfu": per_second / speed["peak_flops"]}
    if figure is None:
        return rates
    value = rates[figure.kind]
    tolerance = figure.rounding + MAX_RATE_ROUNDING * figure.value
    return rates | {"matches_printed": value is not None and abs(value - figure.value) <= tolerance}
