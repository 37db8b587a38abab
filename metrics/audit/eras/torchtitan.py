"""Torchtitan: `get_*nparams_and_flops` and `get_peak_flops`, commit by commit.

    tflops = F x tps / 1e12        mfu = F x tps / peak        tps: tokens of one device, unrounded

F is of the whole sequence T, also under context parallelism; never halved for causality, and
document masks are ignored. Parameters are counted from the module tree, so norms and biases count
as products. Recomputation never counts. Commits are of pytorch/torchtitan.
"""

from __future__ import annotations

from datetime import date
from functools import partial
from typing import Final

from ...formula.model_shapes import Attention
from ...formula.simplified_model import SimplifiedModel, full_attention
from ..formula_era import Era, FormulaStage, PeakRow, dated_era

TORCHTITAN_DECIMALS: Final = {"logged_tgs": 0, "logged_tflops": 2, "logged_mfu": 4}
FALLBACK_PEAK: Final = 312e12
"""The A100's peak, used for a device missing from the table; silently until 2024-10-18."""


# --- FLOPs per token ------------------------------------------------------------------------


def own_heads(model: SimplifiedModel) -> float:
    """Return 6 (N_active - embedding) + 6 sum H(q+v) T, with the model's head widths."""
    return 6 * _counted_params(model) + _core(model)


def d_by_heads(model: SimplifiedModel) -> float:
    """Return our products with 12 L H (d // H) T as the core attention."""
    return full_attention(model) - _core(model) + _core_by_hidden(model)


def dense(model: SimplifiedModel) -> float:
    """Return 6 (N_active - embedding) + 12 L H (d // H) T."""
    return 6 * _counted_params(model) + _core_by_hidden(model)


def with_embedding(model: SimplifiedModel) -> float:
    """Return 6 N + 12 L H (d // H) T."""
    return dense(model) + 6 * _untied_table(model)


def all_experts(model: SimplifiedModel) -> float:
    """Return 6 (N - embedding) + 12 L H (d // H) T: the dense form for all models."""
    idle = model.shape.params_total - model.shape.params_active
    return dense(model) + 6 * idle


def without_tied_head(model: SimplifiedModel) -> float:
    """Return 6 (N - table) + 6 sum H(q+v) T.

    A tied table was counted once and subtracted.
    """
    return own_heads(model) - (6 * model.token_table if model.shape.tied_embeddings else 0)


def windowed_attention(model: SimplifiedModel) -> float:
    """Return 6 (N_active - embedding) + 6 sum H(q+v) min(T, window or chunk)."""
    return own_heads(model) - _core(model) + _windowed_core(model)


def hugging_face_backend(model: SimplifiedModel) -> float:
    """Return 6 N + 6 L H q T: half of the attention, all experts, with the embedding."""
    halved = sum(6 * n * a.heads * a.qk_head_dim for n, a in model.attention) * model.T
    return 6 * model.shape.params_total + halved


def hugging_face_backend_without_table(model: SimplifiedModel) -> float:
    """Return 6 (N - table) + 6 L H q T, for an embedding that is a child of the model."""
    return hugging_face_backend(model) - 6 * model.token_table


def _counted_params(model: SimplifiedModel) -> int:
    """Return the counted parameters: active ones and LoRA adapters, no untied table."""
    return model.shape.params_active + model.adapters - _untied_table(model)


def _untied_table(model: SimplifiedModel) -> int:
    """Return the embedding's parameters; 0 if tied, as the table is then the lm_head."""
    return 0 if model.shape.tied_embeddings else model.token_table


def _core(model: SimplifiedModel) -> float:
    return sum(
        op.training for op in model.full_attention_operators() if op.name.endswith("core attention")
    )


def _core_by_hidden(model: SimplifiedModel) -> int:
    return 12 * model.L * model.H * model.q * model.T


def _windowed_core(model: SimplifiedModel) -> int:
    total = 0
    for group in model.shape.layers:
        a = group.attention
        if isinstance(a, Attention):
            length = min(model.T, a.window or model.T, a.chunk or model.T)
            total += 6 * group.count * a.heads * (a.qk_head_dim + a.v_head_dim) * length
    return total


# --- the peak -------------------------------------------------------------------------------


def _day(text: str) -> date:
    return date.fromisoformat(text)


def _row(part: str, teraflops: float, since: str, until: str | None = None) -> PeakRow:
    end = None if until is None else _day(until)
    return PeakRow(name_part=part, flops=teraflops * 1e12, since=_day(since), until=end)


PEAK_ROWS: Final[tuple[PeakRow, ...]] = (
    _row("A100", 312, "2024-03-20"),
    _row("A6000", 154.85, "2026-04-08"),
    _row("H100 NVL", 1979, "2024-03-20", "2024-08-22"),  # with sparsity
    _row("H100 NVL", 835, "2024-08-22"),
    _row("H100 PCIe", 756, "2024-03-20"),
    _row("H100", 989, "2024-03-20"),
    _row("H200", 989, "2024-10-18"),
    _row("H20", 148, "2026-02-01"),
    _row("GB200", 2500, "2026-02-28"),
    _row("GB300", 2500, "2026-02-28"),
    _row("B300", 2250, "2026-04-08"),
    _row("B200", 4500, "2025-05-15", "2025-07-14"),  # twice the dense peak
    _row("B200", 2250, "2025-07-14"),
    _row("MI355X", 2500, "2025-10-17"),
    _row("MI350X", 2300, "2026-09-18"),
    _row("MI300X", 1300, "2025-03-03"),
    _row("MI325X", 1300, "2025-03-03"),
    _row("MI250", 362, "2025-03-03", "2025-03-04"),
    _row("MI250X", 191.5, "2025-03-04"),
    _row("Data Center GPU Max 1550", 298.1888, "2025-03-25"),  # 512 x 448 units x 1300 MHz
    _row("l40s", 362, "2025-05-19"),  # never matches: the driver says "NVIDIA L40S"
    _row("TPU v4", 275, "2026-07-22"),
    _row("TPU v5e", 197, "2026-07-22"),
    _row("TPU v5p", 459, "2026-07-22"),
    _row("TPU v6e", 918, "2026-07-22"),
)
"""Rows of get_peak_flops in its order; the first row whose `name_part` occurs in the device name
decides. For an H100, get_peak_flops uses the name that `lspci` prints if available; else the
driver's, as here.
"""


def device_peak(device: str, day: date | None) -> float:
    """Return the result of get_peak_flops for a device on a day [FLOP/s].

    day: None for the last commit
    """
    for row in PEAK_ROWS:
        stood = row.until is None if day is None else row.since <= day < (row.until or date.max)
        if stood and row.name_part in device:
            return row.flops
    return FALLBACK_PEAK


# --- the eras -------------------------------------------------------------------------------

_ATTENTION: Final = FormulaStage("attention", full_attention)
_HEADS: Final = FormulaStage("head_size", d_by_heads)


def _era(name: str, since: str, until: str | None, **more: object) -> partial[Era]:
    known: dict[str, object] = {
        "log_formats": ("torchtitan", "torchtitan-tensorboard"),
        "repo": "pytorch/torchtitan",
        "path": "torchtitan/models/utils.py",
        "decimals": TORCHTITAN_DECIMALS,
        "peaks": device_peak,
        "peak_values": (FALLBACK_PEAK, *(row.flops for row in PEAK_ROWS)),
    }
    name = f"torchtitan-{name}"
    return partial(dated_era, name=name, since=since, until=until, **(known | more))


_HUGGING_FACE_STAGES: Final = (
    _ATTENTION,
    FormulaStage("norms", own_heads),
    FormulaStage("attention", lambda seen: own_heads(seen) - _core(seen) / 2),
    FormulaStage("experts", lambda seen: hugging_face_backend(seen) - 6 * _untied_table(seen)),
)
"""Stages up to the table, which one of the backend's versions counts."""

ERA_ROWS: Final[tuple[partial[Era], ...]] = (
    _era(
        "2024-03",
        "2024-03-20",
        "2024-05-01",
        path="torchtitan/utils.py",
        commit="e5d1b8915",
        formula="6 N + 12 L H (d // H) T, N with the embedding",
        stages=(
            _ATTENTION,
            _HEADS,
            FormulaStage("norms", dense),
            FormulaStage("embedding", with_embedding),
        ),
    ),
    _era(
        "2024-05",
        "2024-05-01",
        "2025-10-29",
        path="torchtitan/utils.py",
        commit="0c6ca903f",
        versions=("0.1.0", "0.2.0"),
        formula="6 (N_active - embedding) + 12 L H (d // H) T",
        stages=(_ATTENTION, _HEADS, FormulaStage("norms", dense)),
    ),
    _era(
        "2025-08-qwen3",
        "2025-08-18",
        "2025-09-12",
        path="torchtitan/models/qwen3/model/args.py",
        commit="d240be0cf^",
        fork=True,
        formula="6 (N - embedding) + 12 L H (d // H) T, N with all experts (Qwen3 MoE)",
        stages=(
            _ATTENTION,
            _HEADS,
            FormulaStage("norms", dense),
            FormulaStage("experts", all_experts),
        ),
    ),
    _era(
        "2025-10",
        "2025-10-29",
        "2026-01-26",
        commit="5a090f21e",
        versions=("0.2.1",),
        formula="6 (N_active - embedding) + 6 sum H(q+v) T",
        stages=(_ATTENTION, FormulaStage("norms", own_heads)),
    ),
    _era(
        "2026-01",
        "2026-01-26",
        "2026-05-08",
        commit="d12ff2fc1",
        versions=("0.2.2",),
        formula="6 (N_active - embedding) + 6 sum H(q+v) T; a tied lm_head is subtracted too",
        stages=(
            _ATTENTION,
            FormulaStage("norms", own_heads),
            FormulaStage("lm_head", without_tied_head),
        ),
    ),
    _era(
        "2026-05",
        "2026-05-08",
        "2026-08-25",
        commit="4ed3c5363",
        versions=("0.3.0",),
        formula="6 (N_active - embedding) + 6 sum H(q+v) T; since fd712e814, only softmax layers",
        stages=(_ATTENTION, FormulaStage("norms", own_heads)),
    ),
    _era(
        "2026-08",
        "2026-08-25",
        None,
        commit="#4300",
        formula="6 (N_active - embedding) + 6 sum H(q+v) min(T, window)",
        stages=(
            _ATTENTION,
            FormulaStage("norms", own_heads),
            FormulaStage("attention", windowed_attention),
        ),
    ),
    _era(
        "hf-backend",
        "2025-11-20",
        "2026-08-25",
        path="torchtitan/models/transformers_modeling_backend",
        commit="#4300^",
        fork=True,
        formula="6 N + 6 L H q T: half of the attention, all experts, the embedding",
        stages=(
            *_HUGGING_FACE_STAGES,
            FormulaStage("embedding", hugging_face_backend),
        ),
    ),
    _era(
        "hf-backend-own-embedding",
        "2025-11-20",
        "2026-08-25",
        path="torchtitan/models/transformers_modeling_backend",
        commit="#4300^",
        fork=True,
        formula="6 (N - embedding) + 6 L H q T: half of the attention, all experts; a tied lm_head"
        " goes with the embedding",
        stages=(
            *_HUGGING_FACE_STAGES,
            FormulaStage("lm_head", hugging_face_backend_without_table),
        ),
    ),
)
"""Eras as rows: `keywords` contains name and log formats, a call builds the era."""
