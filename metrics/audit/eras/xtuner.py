"""XTuner: ThroughputHook of the legacy engine by release; v1 counts tokens alone.

    tflops = F B S / 1e12 t        tokens_per_sec = B S / t        B S: tokens of one GPU

of one micro-step: t is the time of the micro-step; B and S are the shape of its batch, S divided by
the ranks that share a sequence. So F is tflops over tokens_per_sec, whatever the time. If samples
are not packed, S is the length of the longest sample in the batch and differs by line. Text prints
4 decimals, vis_data all.

The hook treats any model as a Llama with as many key as query heads and one gated feed-forward
block of intermediate_size: 8dd for the projections, 6df for the block, heads of d / H. Recomputed
layers count as work, lm_head never twice. LoRA, packed documents and images change nothing. Commits
are of InternLM/xtuner; `packaged` means the day of the hook's file in the wheel.

DeepLink-org/AIChipBenchmark's copy (llm/Deepseek/throughput_hook.py, 8174338f2) has 0.1.16's F, and
prints gbs_tokens_per_sec, of an optimizer step, in place of tokens_per_sec. gbs_tokens_per_sec is
no rate of its line and is not compared. The tflops are compared if the line's time is of one step
(log_processor's window_size=1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date
from functools import partial
from typing import Final

from ...formula.simplified_model import SimplifiedModel
from ..formula_era import Era, FormulaStage

HOOK_PATH: Final = "xtuner/engine/hooks/throughput_hook.py"
LEGACY_FORMATS: Final = ("xtuner", "xtuner-scalars", "xtuner-tensorboard")
LEGACY_DECIMALS: Final = {"logged_tgs": 4, "logged_tflops": 4, "elapsed_s": 4}


# --- FLOPs per token ------------------------------------------------------------------------


def parameters(model: SimplifiedModel) -> float:
    """Return 2r N, N all parameters [FLOP per token]."""
    return 2 * model.r * model.shape.params_total


def square(model: SimplifiedModel) -> float:
    """Return r L (8dd + 6df + 4dT) + 6dV [FLOP per token]."""
    return _closed(model, 4 * model.d * model.T)


def halved(model: SimplifiedModel) -> float:
    """Return r L (8dd + 6df + 4dT/2) + 6dV [FLOP per token]."""
    return _closed(model, 2 * model.d * model.T)


def _closed(model: SimplifiedModel, attention: int) -> float:
    d = model.d
    layer = 8 * d * d + 6 * d * model.f + attention
    return model.r * model.L * layer + 6 * d * model.V


# --- from ours to there ---------------------------------------------------------------------

PART_CAUSES: Final = ("head_size", "kv_heads", "ffn", "experts", "mtp", "lm_head")
"""Causes for parts of the model that the hook counts differently, in the order of the path."""

PART_BY_OPERATOR: Final = {
    "core attention": "head_size",
    "linear attention state": "head_size",
    "ffn": "ffn",
    "routed experts": "experts",
    "shared experts": "experts",
    "router": "experts",
    "shared gate": "experts",
    "lm_head": "lm_head",
    "embedding projections": "lm_head",
}
"""Operator to its part; any other operator is a projection of attention."""


def _path(share: float) -> tuple[FormulaStage, ...]:
    """Return the path from our count to the closed form at a share of T x T pairs.

    A stage swaps one part of the model, on top of the parts before.
    """
    swaps = [
        FormulaStage(part, _swapped(PART_CAUSES[: n + 1], share))
        for n, part in enumerate(PART_CAUSES)
    ]
    closed = halved if share < 1 else square
    return (
        FormulaStage("attention", _swapped((), share)),
        *swaps,
        FormulaStage("recompute", closed),
    )


def _swapped(parts: Sequence[str], share: float) -> Callable[[SimplifiedModel], float]:
    """Return our count at a share of T x T pairs, some parts replaced by the hook's."""

    def flops(seen: SimplifiedModel) -> float:
        return sum((_ours(seen, share) | {p: _theirs(seen, share, p) for p in parts}).values())

    return flops


def _ours(model: SimplifiedModel, share: float) -> dict[str, float]:
    """Return our operators by part, at this share of T x T pairs."""
    found = dict.fromkeys(PART_CAUSES, 0.0)
    for operator in model.full_attention_operators():
        mtp = operator.name.startswith("mtp ")
        part = "mtp" if mtp else PART_BY_OPERATOR.get(operator.name, "kv_heads")
        halves = operator.name.endswith("core attention")
        found[part] += operator.training * (share if halves else 1.0)
    return found


def _theirs(model: SimplifiedModel, share: float, part: str) -> float:
    """Return the hook's count of a part, without recomputation."""
    d, dense = model.d, sum(g.count for g in model.shape.layers if g.ffn is not None)
    match part:
        case "head_size":
            return 12 * model.L * d * model.T * share
        case "kv_heads":
            return 24 * model.L * d * d
        case "ffn":
            return 18 * dense * d * model.f if dense else 0.0
        case "experts":
            return 18 * (model.L - dense) * d * model.f if dense < model.L else 0.0
        case "lm_head":
            return 6 * d * model.V
        case _:
            return 0.0


def _idle(model: SimplifiedModel) -> int:
    """Return parameters of the experts that a token does not pass."""
    return model.shape.params_total - model.shape.params_active


def _looked_up(model: SimplifiedModel) -> int:
    """Return parameters that multiply nothing: positions, and an untied embedding."""
    table = 0 if model.shape.tied_embeddings else model.token_table
    return model.shape.positions * model.d + table


# --- the eras -------------------------------------------------------------------------------


def _hook(name: str, commit: str, formula: str, **more: object) -> partial[Era]:
    known: dict[str, object] = {
        "log_formats": LEGACY_FORMATS,
        "since": None,
        "until": None,
        "repo": "InternLM/xtuner",
        "path": HOOK_PATH,
        "decimals": LEGACY_DECIMALS,
        "counts_recompute": True,
        "batch_lengths": True,
    }
    name = f"xtuner-{name}"
    return partial(Era, name=name, commit=commit, formula=formula, **(known | more))  # type: ignore[arg-type]


FIRST_WHEEL_DATE: Final = date(2023, 12, 11)
"""Date of 0.1.10's wheel."""

HALVED_SINCE: Final = date(2024, 3, 29)
"""Date of #527."""


ERA_ROWS: Final[tuple[partial[Era], ...]] = (
    _hook(
        "2023-11",
        "90491b265",
        "2 r N over the ranks that share the model; in no release",
        fork=True,
        since=date(2023, 11, 1),
        until=FIRST_WHEEL_DATE,
        stages=(
            FormulaStage("attention", lambda seen: 6 * seen.shape.params_matmul),
            FormulaStage("experts", lambda seen: 6 * (seen.shape.params_matmul + _idle(seen))),
            FormulaStage("norms", lambda seen: 6 * (seen.shape.params_total - _looked_up(seen))),
            FormulaStage("embedding", lambda seen: 6 * seen.shape.params_total),
            FormulaStage("recompute", parameters),
        ),
    ),
    _hook(
        "0.1.10",
        "v0.1.10",
        "r L (8dd + 6df + 4dT) + 6dV; the line shows the iteration before its own",
        since=FIRST_WHEEL_DATE,
        versions=("0.1.10", "0.1.11", "0.1.12", "0.1.13"),
        stages=_path(1.0),
    ),
    _hook(
        "0.1.14",
        "v0.1.14",
        "r L (8dd + 6df + 4dT) + 6dV",
        until=HALVED_SINCE,
        versions=("0.1.14", "0.1.15"),
        stages=_path(1.0),
        derived_columns=("logged_tgs",),
    ),
    _hook(
        "0.1.16",
        "520ce9996",
        "r L (8dd + 6df + 4dT/2) + 6dV; since 0.1.18 (376188af5, #555) divided by the"
        " sequence-parallel ranks",
        since=HALVED_SINCE,
        versions=(*(f"0.1.{n}" for n in range(16, 24)), "0.2.0rc0", "0.2.0"),
        stages=_path(0.5),
        derived_columns=("logged_tgs",),
    ),
    partial(
        Era,
        name="xtuner-v1",
        log_formats=("xtuner-v1", "xtuner-v1-tracker", "xtuner-v1-tensorboard"),
        since=date(2025, 7, 21),
        until=None,
        repo="InternLM/xtuner",
        path="xtuner/v1/train/trainer.py",
        commit="42fcade0f",
        formula="no FLOPs; tgs = text_tokens / time of this step on this rank",
        decimals={"elapsed_s": 4},
        derived_columns=("logged_tgs",),
    ),
)
"""Eras as rows: `keywords` contains name and log formats, a call builds the era."""
