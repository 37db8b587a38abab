"""The formula alone: FLOPs, rates and time from model, length and accelerator.

No log is needed. Rates are tokens per second per GPU (TGS), times seconds, FLOPs per token.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from ..audit.other_tools import compare_other_formulas
from ..formula import accelerators, flops, vision
from ..formula.accelerators import Accelerator
from ..formula.flops import FORMULA_VERSION, Dtype, Operator, Trainable
from ..formula.model_shapes import ModelShape, find_model, from_hugging_face
from ..formula.parameter_counts import kv_cache_bytes_per_token, modules, uncounted
from ..formula.precision import operator_formats
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

_SCALES: Final[Mapping[str, float]] = {"": 1, "K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Inputs of the formula for one model.

    tower, images: vision tower; height and width [pixels] of all images of a sequence.
    seq_len: tokens of a sequence, image tokens included.
    tgs [tokens/s/GPU], mfu [fraction]: the speed; give at most one of them.
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
    gpus: int | None = None
    tgs: float | None = None
    mfu: float | None = None
    tokens: float | None = None
    overlay: Sequence[Accelerator] = ()

    def __post_init__(self) -> None:
        if self.tgs is not None and self.mfu is not None:
            raise messages.TWO_SPEEDS()  # noqa: RSE102 - a kind
        if (self.tgs is not None or self.mfu is not None) and self.accelerator is None:
            raise messages.SPEED_WITHOUT_PEAK()  # noqa: RSE102 - a kind
        if self.tokens is not None and (self.gpus is None or (self.tgs or self.mfu) is None):
            raise messages.TIME_WITHOUT_SPEED()  # noqa: RSE102 - a kind
        if self.tower is None and self.images:
            raise messages.NO_VISION_TOWER(model=self.shape.name)
        if self.tower is not None and not self.images:
            raise messages.IMAGES_MISSING(model=self.shape.name)
        if self.tower is not None and (self.phase != "train" or self.trainable or self.recompute):
            raise messages.IMAGES_WITHOUT_FULL_TRAINING()  # noqa: RSE102 - a kind
        if self.phase != "train" and (self.tgs or self.mfu or self.tokens or self.trainable):
            raise messages.INFERENCE_WITH_RATE()  # noqa: RSE102 - a kind
        if self.phase != "train" and self.shape.mtp_modules:
            raise messages.INFERENCE_WITH_MTP()  # noqa: RSE102 - a kind


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
    accelerator: str | None = None,
    gpus: int | None = None,
    tgs: float | None = None,
    mfu: float | None = None,
    tokens: str | float | None = None,
    overlay: Sequence[Accelerator] = (),
) -> Question:
    """Return a question to the formula, for `answer` and `compare_with_other_tools`.

    model: a name listed by `fairmfu models`, or a Hugging Face config as a mapping.
    seq_len: of one sequence, or of the context [tokens].
    images: per sequence, "HEIGHTxWIDTH" [pixels], for vision models.
    precision: fp32, tf32, fp16, bf16, fp8, fp8+lm_head, mxfp8 or nvfp4.
    trainable: full, lora or frozen. lora_targets: all-linear, or projections separated by commas.
    mtp_modules: number of multi-token prediction modules trained with the model.
    recompute: none, full or selective, for executed FLOPs.
    accelerator: name of the GPU, for rates. overlay: your accelerators, which override the table's.
    tgs [tokens/s/GPU], mfu [fraction]: give one of them to get the other.
    tokens: training tokens, "1T" or 1e12; with gpus, to get the training time.

    Raises UnknownModelError, ShapeError for a config that the formula does not cover, and
    ValueError for contradicting arguments.

    >>> answer(ask("llama3-8b", 8192, accelerator="h100", tgs=6400))["mfu"]
    """
    targets = tuple((lora_targets or "").replace(",", " ").split())
    trained = Trainable(kind=trainable, lora_rank=lora_rank, lora_targets=targets)
    config = None if isinstance(model, str) else model
    shape = find_model(model) if isinstance(model, str) else from_hugging_face(model)
    return Question(
        shape=replace(shape, mtp_modules=mtp_modules),
        seq_len=seq_len,
        tower=None if config is None else vision.from_hugging_face(config),
        images=tuple(map(parse_image_size, images)),
        phase=phase,
        trainable=None if trained == Trainable() else trained,
        recompute=recompute,
        precision=precision,
        accelerator=accelerator,
        gpus=gpus,
        tgs=tgs,
        mfu=mfu,
        tokens=parse_amount(tokens) if isinstance(tokens, str) else tokens,
        overlay=overlay,
    )


def parse_amount(text: str) -> float:
    """Parse an amount: `1T`, `300B`, `15e12` or `2000`. Raises ValueError."""
    match = re.fullmatch(r"([\d.]+(?:[eE][+-]?\d+)?)\s*([KMBT]?)", text.strip())
    if match is None:
        raise messages.NOT_AN_AMOUNT(text=text)
    return float(match[1]) * _SCALES[match[2]]


def parse_image_size(text: str) -> tuple[int, int]:
    """Parse `448x672` as height and width [pixels]. Raises ValueError."""
    match = re.fullmatch(r"(\d{1,6})x(\d{1,6})", text.strip())
    if match is None:
        raise messages.NOT_AN_IMAGE_SIZE(text=text)
    return int(match[1]), int(match[2])


def answer(question: Question) -> dict[str, Any]:
    """Return all results by name; results that were not asked for are absent.

    Parameter counts; `*flops_per_token` [FLOP/token]: forward, of training with exact and with full
    attention, executed with recomputation (low, high); rows of `operators`, `modules`, `uncounted`,
    `rules`; kv_cache_bytes_per_token [bytes]. With an accelerator also peak_flops [FLOP/s, dense]
    and tgs_at_peak [tokens/s/GPU], with a speed tgs [tokens/s/GPU] and mfu [fraction, exact
    attention], with tokens and GPUs training_seconds [s], training_days [days], gpu_hours
    [GPU-hours], training_flops [FLOPs].

    Raises UnknownAcceleratorError, ShapeError for images or LoRA targets that the model does not
    have, and ValueError for a precision without a peak.

    >>> answer(ask("llama3-8b", 8192))["flops_per_token"]
    """
    q = question
    ops = _operators(q)
    seeing = q.tower.params_total if q.tower else 0
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
        "uncounted": [_row(part) for part in uncounted(q.shape, q.seq_len)],
        "kv_cache_bytes_per_token": kv_cache_bytes_per_token(
            q.shape, bytes_per_value=BYTES_PER_VALUE[operator_formats(q.precision)[1]]
        ),
    }
    if q.phase == "train":
        out |= _training(q, ops)
    return out


def _operators(q: Question) -> tuple[Operator, ...]:
    if q.phase == "train":
        return (*_seen(q), *flops.operators(q.shape, q.seq_len, trainable=q.trainable))
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
    low, high = flops.hardware_flops_bounds(q.shape, q.seq_len, q.recompute, trainable=q.trainable)
    _, all_again = flops.hardware_flops_bounds(q.shape, q.seq_len, "full", trainable=q.trainable)
    exact_counts = (flops.forward_flops_per_token(ops), exact, None if q.tower else all_again)
    rules = [
        {"rule": rule, "flops_per_token": n * q.shape.params_matmul, "exact": counted}
        for (rule, n), counted in zip(RULES_OF_THUMB.items(), exact_counts, strict=True)
    ]
    out: dict[str, Any] = {
        "flops_per_token": exact,
        "flops_per_token_full_attention": flops.flops_per_token(full),
        "hardware_flops_per_token": None if low is None else [low, high],
        "rules": rules,
    }
    return out | (_speed(q, ops) if q.accelerator else {})


def _speed(q: Question, ops: tuple[Operator, ...]) -> dict[str, Any]:
    """Return rates, utilisation and times from the ideal time per token."""
    device = accelerators.find_accelerator(q.accelerator or "", q.overlay)
    dtype_of, fastest = operator_formats(q.precision)
    ideal = flops.ideal_seconds_per_token(ops, dtype_of, device.peaks)
    out: dict[str, Any] = {
        "accelerator": device.name,
        "precision": q.precision,
        "peak_flops": device.peaks[fastest],
        "tgs_at_peak": 1 / ideal,
    }
    tgs = q.tgs if q.mfu is None else q.mfu / ideal
    if tgs is None:
        return out
    out |= {"tgs": tgs, "mfu": tgs * ideal}
    if q.tokens is not None and q.gpus is not None:
        seconds = q.tokens / (tgs * q.gpus)
        out |= {
            "tokens": q.tokens,
            "gpus": q.gpus,
            "training_seconds": seconds,
            "training_days": seconds / 86_400,
            "gpu_hours": seconds * q.gpus / 3600,
            "training_flops": q.tokens * flops.flops_per_token(ops),
        }
    return out


def compare_with_other_tools(q: Question) -> list[dict[str, Any]]:
    """Return other tools' formulas for full training of this model, as ratios to ours."""
    recompute: Literal["none", "full"] = "full" if q.recompute == "full" else "none"
    return [_row(row) for row in compare_other_formulas(q.shape, q.seq_len, recompute=recompute)]
