"""FLOPs per token of the same model by other tools' formulas, as in their code.

Twenty formulas; five count recomputation as work, so a model has 25 answers. No formula here
enters a figure of ours: they show why figures of two tools may not be compared. All are for full
training of an unpacked sequence. Letters as in metrics/formula/flops.py, with r for the forwards
counted by a tool: 3, or 4 if recomputation is on and counts as work.

Every formula simplifies the model as its tool does: most know a single kind of layer and a head
width of d // H, whatever the model. A shape cannot express, so the formulas leave out: vocabularies
padded to the tensor-parallel size (Megatron and its kin), and lengths other than T.

tests/metrics/audit/test_other_tools.py compares them with an independent table of 23 formulas by 11
models.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from ..formula.flops import Trainable, adapter_params, flops_per_token, operators
from ..formula.model_shapes import ModelShape, ShapeError
from ..formula.simplified_model import SimplifiedModel, full_attention
from .eras import deepspeed
from .eras.torchtitan import own_heads as torchtitan
from .eras.xtuner import halved as xtuner
from .messages import TOOLS_WITHOUT_POLICY

__all__ = ["OTHER_FORMULAS", "OtherFormula", "ToolComparison", "compare_other_formulas"]


# --- per operator ---------------------------------------------------------------------------


def megatron_lm(model: SimplifiedModel) -> float:
    """Return 6 (projections + experts + head) + 6H(q+v) T/2 [FLOP per token].

    Without router and shared gate. Megatron-LM also counts as products the norms of MLA (q and
    key/value ranks) and of MTP (3d).
    """
    skipped = ("router", "shared gate")
    counted = [op for op in model.full_attention_operators() if not op.name.endswith(skipped)]
    core = sum(op.training for op in counted if op.name.endswith("core attention"))
    return flops_per_token(counted) - core / 2 + 6 * _megatron_norms(model)


def _megatron_norms(model: SimplifiedModel) -> int:
    mtp = model.shape.mtp_modules
    groups = [*model.attention, (mtp, model.attention[-1][1])]
    ranks = sum(count * ((a.q_lora_rank or 0) + (a.kv_lora_rank or 0)) for count, a in groups)
    return ranks + mtp * 3 * model.d


def megatron_bridge(model: SimplifiedModel) -> float:
    """Return Megatron-LM's count with windows: W - W(W-1)/2T pairs in their layers."""
    outside = 0.0
    for count, a in model.attention:
        if a.kv_lora_rank is None and a.window is not None and a.window < model.T:
            inside = a.window - a.window * (a.window - 1) / (2 * model.T)
            outside += count * 6 * a.heads * (a.qk_head_dim + a.v_head_dim) * (model.T / 2 - inside)
    return megatron_lm(model) - outside


def megatron_bridge_lora(model: SimplifiedModel) -> float:
    """Return 4Ld(2d + 2dG/H + 3f) + 4dV + 12LdT, for LoRA [FLOP per token]."""
    d = model.d
    layer = 2 * d + 2 * d * model.G / model.H + 3 * model.f
    return 4 * model.L * d * layer + 4 * d * model.V + 12 * model.L * d * model.T


def verl(model: SimplifiedModel) -> float:
    """Return 6 (N_matmul + dV) + 3 sum H(q+v) min(T, W) [FLOP per token].

    Windows count only if layers differ in them (Gemma 3, gpt-oss), and then half of every window;
    verl's Qwen2 MoE (the one with a shared gate) has no shared experts.
    """
    gated = any(group.moe and group.moe.shared_gates for group in model.shape.layers)
    skipped = ("core attention", *(("shared experts", "shared gate") if gated else ()))
    linear = sum(
        op.training for op in model.full_attention_operators() if not op.name.endswith(skipped)
    )
    return linear + 6 * model.d * model.V + _verl_core(model)


def _verl_core(model: SimplifiedModel) -> int:
    mixed = len({a.window for _, a in model.attention}) > 1
    total = 0
    for count, a in model.attention:
        length = min(model.T, a.window) if mixed and a.window else model.T
        total += 3 * count * a.heads * (a.qk_head_dim + a.v_head_dim) * length
    return total


# --- one kind of layer ----------------------------------------------------------------------


def internevo(model: SimplifiedModel) -> float:
    """Return r L ((8 + 4m) dd + 4dT) + 6dV [FLOP per token].

    m = f/d, times 3/2 if gated.
    """
    d = model.d
    m = model.f / d * model.matrices / 2
    return model.r * model.L * ((8 + 4 * m) * d * d + 4 * d * model.T) + 6 * d * model.V


def llama_factory(model: SimplifiedModel) -> float:
    """Return 3 (L (6df + 4dd + 4ddG/H + 4dT) + 2dV) [FLOP per token].

    dV instead of 2dV if the embedding is tied.
    """
    d = model.d
    head = d * model.V * (1 if model.shape.tied_embeddings else 2)
    projections = 4 * d * d + 2 * (2 * d * d * model.G // model.H)
    return 3 * (model.L * (6 * d * model.f + projections + 4 * d * model.T) + head)


def nanotron(model: SimplifiedModel) -> float:
    """Return 3 (L (4dHq + 4dGq + 4HqT + 6df) + 2dV) [FLOP per token]."""
    d, width = model.d, model.H * model.q
    layer = 4 * d * width + 4 * d * model.G * model.q + 4 * width * model.T + 6 * d * model.f
    return 3 * (model.L * layer + 2 * d * model.V)


def levanter(model: SimplifiedModel) -> float:
    """Return 3 (L (4dd + 4dGd/H + ffn + 4dT + 3HT) + 2dV) [FLOP per token].

    3HT: the mask. ffn: 6df, or k experts and the router; shared experts are an argument that
        levanter's conversion of a Hugging Face config leaves at 0.
    """
    d, moe = model.d, model.moe
    f, k, router = (
        (moe.expert.width, moe.experts_per_token, 2 * d * moe.experts) if moe else (model.f, 1, 0)
    )
    projections = 4 * d * d + 4 * d * model.G * (d / model.H)
    attention = (4 * d + 3 * model.H) * model.T
    layer = projections + attention + 2 * model.matrices * d * f * k + router
    return 3 * (model.L * layer + 2 * d * model.V)


def accelerate(model: SimplifiedModel) -> float:
    """Return L (18df + 12q(H + G) + 12HqT), without lm_head [FLOP per token].

    The projections' 12q(H + G) lacks the factor d, so they hardly count.
    """
    heads = 12 * model.q * (model.H + model.G)
    return model.L * (18 * model.d * model.f + heads + 12 * model.H * model.q * model.T)


# --- all parameters -------------------------------------------------------------------------


def colossal_parameters(model: SimplifiedModel) -> float:
    """Return 2r N, N with embeddings and all experts; no attention [FLOP per token]."""
    return 2 * model.r * model.shape.params_total


def nanogpt(model: SimplifiedModel) -> float:
    """Return 6N + 12LHqT, N with token embeddings, without positions [FLOP per token]."""
    positions = model.shape.positions * model.d
    return 6 * (model.shape.params_total - positions) + 12 * model.L * model.H * model.q * model.T


def litgpt(model: SimplifiedModel) -> float:
    """Return 3 (2N + 4LdT), N all parameters [FLOP per token]."""
    return 3 * (2 * model.shape.params_total + 4 * model.L * model.d * model.T)


def six_n(model: SimplifiedModel) -> float:
    """Return 6N, N all parameters [FLOP per token]."""
    return 6 * model.shape.params_total


def six_n_active(model: SimplifiedModel) -> float:
    """Return 6N, N the weights that multiply one token, with lm_head [FLOP per token]."""
    return 6 * model.shape.params_matmul


# --- the list -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherFormula:
    """Formula of another tool.

    name: of the tool, with its function if the tool has several formulas
    repo, path, commit: of the code that was read; empty for a rule without code
    why: difference from our formula
    counts_recompute: counts recomputed forwards as work, so `recompute` changes the figure
    flops: FLOPs per token of full training
    """

    name: str
    why: str
    flops: Callable[[SimplifiedModel], float]
    repo: str = ""
    path: str = ""
    commit: str = ""
    counts_recompute: bool = False


OTHER_FORMULAS: tuple[OtherFormula, ...] = (
    OtherFormula(
        name="full attention, per operator",
        why="every query meets every key: causal mask and windows ignored (PaLM, appendix B)",
        flops=full_attention,
    ),
    OtherFormula(
        name="Megatron-LM num_floating_point_operations",
        repo="NVIDIA/Megatron-LM",
        path="megatron/training/training.py",
        commit="001b00c2734d8f0fad096fe48a382fedf755d321",
        why="no router; half of T x T in every layer, windows ignored (full T x T before"
        " 2025-03-06, 8873b55d6a); vocabulary padded in its runs",
        flops=megatron_lm,
    ),
    OtherFormula(
        name="Megatron-Bridge num_floating_point_operations",
        repo="NVIDIA-NeMo/Megatron-Bridge",
        path="src/megatron/bridge/training/utils/flop_utils.py",
        commit="0494433be0f526f59f7ad56bec005279af32c375",
        why="no router; T/2 instead of (T+1)/2 pairs, windows counted; LoRA counts as full"
        " training; vocabulary padded in its runs",
        flops=megatron_bridge,
    ),
    OtherFormula(
        name="Megatron-Bridge, LoRA",
        repo="NVIDIA-NeMo/Megatron-Bridge",
        path="src/megatron/bridge/training/utils/flop_utils.py",
        commit="0494433be0f526f59f7ad56bec005279af32c375",
        why="two passes of each weight, no adapters, full attention of each document; its code"
        " uses it for LoRA of Llama 3 70B on packed SQuAD alone, here for any model",
        flops=megatron_bridge_lora,
    ),
    OtherFormula(
        name="torchtitan get_*_nparams_and_flops",
        repo="pytorch/torchtitan",
        path="torchtitan/models/utils.py",
        commit="b5bcd76c6",
        why="full attention, windows ignored (until #4300, after this commit); norms and biases"
        " count as matmuls",
        flops=torchtitan,
    ),
    OtherFormula(
        name="verl flops_counter",
        repo="verl-project/verl",
        path="verl/utils/flops_counter.py",
        commit="34ae9879b6d7d6088b927d01306740929205cc29",
        why="the embedding look-up counts as a second lm_head; half of a window's pairs; a"
        " model_type that it does not list counts 0, here its formula all the same",
        flops=verl,
    ),
    OtherFormula(
        name="xtuner 0.1/0.2 ThroughputHook",
        repo="InternLM/xtuner",
        path="xtuner/engine/hooks/throughput_hook.py",
        commit="b934f462095c1e750229de35367c50ae36caa786",
        why="counts activation checkpointing as work; ignores grouped-query attention; one gated"
        " FFN of intermediate_size, whatever the experts",
        flops=xtuner,
        counts_recompute=True,
    ),
    OtherFormula(
        name="InternEvo get_megatron_flops",
        repo="InternLM/InternEvo",
        path="internlm/utils/common.py",
        commit="ded6398d528cfbb27d8ca6e2fb101120523ad133",
        why="counts activation checkpointing as work; full attention; ignores grouped-query"
        " attention and experts",
        flops=internevo,
        counts_recompute=True,
    ),
    OtherFormula(
        name="Megatron-DeepSpeed throughput_calculator",
        repo="deepspeedai/Megatron-DeepSpeed",
        path="megatron/utils.py",
        commit="4efb479d5317ce9b86096b9d8e3e8030b0b5263b",
        why="counts activation checkpointing as work, lm_head too; full attention; 2 // (H // G)"
        " drops key and value if more than two heads share them; experts in every layer, no shared"
        " ones, no router",
        flops=deepspeed.by_matmuls,
        counts_recompute=True,
    ),
    OtherFormula(
        name="Colossal-AI flop_megatron / gpt-neox",
        repo="hpcaitech/ColossalAI",
        path="examples/language/performance_evaluator.py",
        commit="01ee32a75ebd4d5ad93665090dffc9a0d9fc8cf0",
        why="counts activation checkpointing as work; full attention; every FFN is plain and 4d"
        " wide; three quarters of the lm_head without checkpointing",
        flops=deepspeed.paper,
        counts_recompute=True,
    ),
    OtherFormula(
        name="Colossal-AI 'TFLOPS per GPU'",
        repo="hpcaitech/ColossalAI",
        path="examples/language/performance_evaluator.py",
        commit="01ee32a75ebd4d5ad93665090dffc9a0d9fc8cf0",
        why="counts activation checkpointing as work; no attention; all experts, and the embedding"
        " look-up",
        flops=colossal_parameters,
        counts_recompute=True,
    ),
    OtherFormula(
        name="HF Trainer total_flos",
        repo="huggingface/transformers",
        path="src/transformers/modeling_utils.py",
        commit="v5.23.0",
        why="no attention; all experts; a tied lm_head is left out with the embedding",
        flops=deepspeed.trainer_parameters,
    ),
    OtherFormula(
        name="nanoGPT/picotron 6N+12LHQT",
        repo="karpathy/nanoGPT",
        path="model.py",
        commit="04a1d697ddc57aadb2edbe95816bf86c6b8918b0",
        why="full attention of d // H wide heads; all experts, and the embedding look-up",
        flops=nanogpt,
    ),
    OtherFormula(
        name="LLaMA-Factory cal_mfu",
        repo="hiyouga/LLaMA-Factory",
        path="scripts/stat_utils/cal_mfu.py",
        commit="1fee69f874195d227f9f478198a9e890bf5962ca",
        why="full attention of d // H wide heads; half of a tied lm_head; one gated FFN of"
        " intermediate_size, whatever the experts",
        flops=llama_factory,
    ),
    OtherFormula(
        name="nanotron get_flops",
        repo="huggingface/nanotron",
        path="src/nanotron/models/llama.py",
        commit="03b83fc825418ac4f22d2fcea41514cdba6cedb9",
        why="full attention of d // H wide heads; one gated FFN of intermediate_size, whatever the"
        " experts",
        flops=nanotron,
    ),
    OtherFormula(
        name="levanter lm_flops_per_token x3",
        repo="stanford-crfm/levanter",
        path="src/levanter/utils/flop_utils.py",
        commit="03c45fecdf5b15f738017693efbe8bca5ec667fe",
        why="full attention of d / H wide heads, and the mask's 3HT; experts in every layer",
        flops=levanter,
    ),
    OtherFormula(
        name="accelerate nd_parallel example",
        repo="huggingface/accelerate",
        path="examples/torch_native_parallelism/utils.py",
        commit="19d422eb1b0cbe75b6426dbd99c65417e22289cd",
        why="no lm_head; a factor d is missing in the projections; full attention of d // H wide"
        " heads; one gated FFN of intermediate_size, whatever the experts",
        flops=accelerate,
    ),
    OtherFormula(
        name="litgpt estimate_flops",
        repo="Lightning-AI/litgpt",
        path="litgpt/utils.py",
        commit="d49df2089a7b8c6c84d562b1e6293a6c16530392",
        why="full attention, d wide; all experts, and the embedding look-up",
        flops=litgpt,
    ),
    OtherFormula(
        name="6N (all parameters)",
        why="no attention; all experts, and the embedding look-up (arXiv:2001.08361)",
        flops=six_n,
    ),
    OtherFormula(
        name="6N_active (non-embedding)",
        why="no attention",
        flops=six_n_active,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolComparison:
    """Result of a formula for a model.

    flops_per_token: of full training, by the tool's count; None if an input is unknown
    ratio_to_ours: over our exact count
    why: difference from our formula, or the unknown input
    """

    name: str
    flops_per_token: float | None
    ratio_to_ours: float | None
    why: str


def compare_other_formulas(
    shape: ModelShape,
    seq_len: int,
    *,
    recompute: Literal["none", "full"],
    trainable: Trainable | None = None,
    ours: float | None = None,
) -> list[ToolComparison]:
    """Return every formula of `OTHER_FORMULAS` for this model, in their order.

    seq_len: tokens of one unpacked sequence
    trainable: for the tools that count adapters; ours: our count, default full training
    recompute: full if every layer is recomputed, which some tools count as work

    A tool that reads `intermediate_size` of the model's config.json has no figure for a wholly
    sparse model that is not known by name.

    Raises ValueError for another policy of recomputation, or a length below 1.
    """
    if recompute not in ("none", "full"):
        raise TOOLS_WITHOUT_POLICY(policy=recompute)
    trained = trainable or Trainable()
    if ours is None:
        ours = flops_per_token(operators(shape, seq_len, trainable=trained))
    seen = SimplifiedModel(
        shape=shape,
        T=seq_len,
        recompute=recompute,
        intermediate_size=None,
        lora_rank=trained.lora_rank,
        adapters=adapter_params(shape, trained),
    )
    return [_compared(other, seen, ours) for other in OTHER_FORMULAS]


def _compared(other: OtherFormula, model: SimplifiedModel, ours: float) -> ToolComparison:
    try:
        theirs = float(other.flops(model))
    except ShapeError as unknown:
        return ToolComparison(
            name=other.name, flops_per_token=None, ratio_to_ours=None, why=str(unknown)
        )
    return ToolComparison(
        name=other.name, flops_per_token=theirs, ratio_to_ours=theirs / ours, why=other.why
    )
