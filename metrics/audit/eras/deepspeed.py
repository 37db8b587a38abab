"""DeepSpeed and its users: Megatron-DeepSpeed's forks, GPT-NeoX, DeepSpeed-Chat.

    TFLOPs = F x tokens / (t x GPUs x 1e12)        t: time of a step

F follows one of four lines of descent: equation 3 of arXiv:2104.04473 (`paper`), which knows one
model (plain feed-forward of 4d, as many key/value heads as heads, recomputed), Microsoft's count of
2024 by matmuls (`by_matmuls`), Megatron-LM's (`megatron_lm`), and parameters (`parameters_*`). The
vocabulary is the padded one; attention is never halved for causality; most count recomputed
forwards as work. The engine itself counts no tokens and no FLOPs: its speed figures are in samples.

Letters as in metrics/formula/flops.py, r for 3 or, recomputing, 4 forwards.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from functools import partial
from typing import Final

from ...formula.model_shapes import Attention, LayerGroup
from ...formula.simplified_model import SimplifiedModel, full_attention
from ..formula_era import Era, FormulaStage, dated_era
from ..messages import ERA_WITHOUT_EXPERTS

# --- our count, part by part ----------------------------------------------------------------

NO_HEAD: Final = "lm_head not counted"
HEAD_OPERATORS: Final = ("lm_head", "embedding projections")
FFN_OPERATORS: Final = ("ffn", "router", "routed experts", "shared experts", "shared gate")


def _sum(model: SimplifiedModel, **parts: float) -> float:
    """Return FLOPs per token of full training with A = T: ours, some parts replaced.

    parts: projections, core, feed_forward, head
    """
    ours = {"projections": 0.0, "core": 0.0, "feed_forward": 0.0, "head": 0.0}
    for op in model.full_attention_operators():
        if op.name.endswith("core attention"):
            part = "core"
        elif op.name.endswith(FFN_OPERATORS):
            part = "feed_forward"
        else:
            part = "head" if op.name in HEAD_OPERATORS else "projections"
        ours[part] += op.training
    return sum((ours | parts).values())


def padded_vocab(model: SimplifiedModel) -> int:
    """Return the rows of the lm_head, unused ones included."""
    return model.padded_vocab or model.V


def expert_width(model: SimplifiedModel) -> int:
    """Return `ffn_hidden_size`: the width of an expert, if the model has any."""
    return model.moe.expert.width if model.moe else model.f


# --- forwards that count --------------------------------------------------------------------

Forwards = Callable[[SimplifiedModel], float]


def model_forwards(_: SimplifiedModel) -> int:
    """Return 3: recomputed forwards do not count."""
    return 3


def recomputed_forwards(model: SimplifiedModel) -> int:
    """Return 4 if layers are recomputed, else 3."""
    return model.r


def any_recomputed_forwards(model: SimplifiedModel) -> int:
    """Return 4 if anything is recomputed, even core attention alone."""
    return 4 if model.recompute == "selective" else model.r


def forwards_with_adapters(model: SimplifiedModel) -> float:
    """Return r; under LoRA of rank k, less 1 - 2k/d."""
    return model.r - (0 if model.lora_rank is None else 1 - 2 * model.lora_rank / model.d)


# --- equation 3 of arXiv:2104.04473 ---------------------------------------------------------


def paper(
    model: SimplifiedModel, forwards: Forwards = recomputed_forwards, coefficient: int = 24
) -> float:
    """Return c r L d d (1 + T/6d + V/16Ld), V padded [FLOP per token]."""
    d, layers = model.d, model.L
    block = coefficient * forwards(model) * layers * d * d
    return block * (1 + model.T / (6 * d) + padded_vocab(model) / (16 * layers * d))


def paper_without_logits(model: SimplifiedModel) -> float:
    """Return 24 r L d d (1 + T/6d) [FLOP per token].

    The code adds V/16Ld to the FLOPs of a whole step instead of the factor: less than one FLOP.
    """
    return 24 * model.r * model.L * model.d**2 * (1 + model.T / (6 * model.d))


def glu_coefficient(model: SimplifiedModel) -> int:
    """Return 32 instead of 24 for a gated feed-forward.

    8 more for the gate, but as a factor on all terms.
    """
    return 32 if model.matrices == 3 else 24  # noqa: PLR2004 - matrices of a gated block


def _own_core(model: SimplifiedModel) -> int:
    return 12 * model.L * model.d * model.T


def _d_wide(model: SimplifiedModel) -> dict[str, float]:
    """Return parts with query, key, value, output and heads as wide as the model."""
    return {"core": _own_core(model), "projections": 24 * model.L * model.d**2}


def _one_expert(model: SimplifiedModel) -> float:
    block = 6 * model.matrices * model.L * model.d * expert_width(model)
    return _sum(model, **_d_wide(model), feed_forward=block)


def _plain_parts(model: SimplifiedModel) -> dict[str, float]:
    """Return parts with one plain feed-forward block of 4d in each layer."""
    return _d_wide(model) | {"feed_forward": 48 * model.L * model.d**2}


def _plain(model: SimplifiedModel) -> float:
    return _sum(model, **_plain_parts(model))


def _padded_head(model: SimplifiedModel) -> int:
    return 6 * model.d * padded_vocab(model)


def _gated_parts(model: SimplifiedModel) -> dict[str, float]:
    """Return parts with the block of 4d and its gate, if the model has one."""
    more = (glu_coefficient(model) - 24) / 24
    parts = _plain_parts(model)
    layers = 24 * 3 * model.L * model.d**2
    return parts | {"feed_forward": parts["feed_forward"] + more * layers}


def _coefficient_parts(model: SimplifiedModel) -> dict[str, float]:
    """Return parts with a gated block's coefficient on all terms, also core attention."""
    return _gated_parts(model) | {"core": _own_core(model) * glu_coefficient(model) / 24}


def _paper_path(
    forwards: Forwards = recomputed_forwards,
    *,
    trained: Forwards | None = None,
    glu: bool = False,
    logits: bool = True,
) -> tuple[FormulaStage, ...]:
    """Return the path from our count to `paper`.

    forwards: counted if every weight is trained; trained: counted in the end
    """
    last, parts = trained or forwards, _coefficient_parts if glu else _plain_parts

    def without_head(seen: SimplifiedModel) -> float:
        return _sum(seen, **parts(seen), head=0)

    def counted(seen: SimplifiedModel, times: float) -> float:
        return without_head(seen) * times / 3 + (_padded_head(seen) if logits else 0)

    def closed(seen: SimplifiedModel) -> float:
        coefficient = glu_coefficient(seen) if glu else 24
        return paper(seen, last, coefficient) if logits else paper_without_logits(seen)

    gate = (
        FormulaStage("ffn", lambda seen: _sum(seen, **_gated_parts(seen))),
        FormulaStage("attention", lambda seen: _sum(seen, **parts(seen))),
    )
    return (
        FormulaStage("attention", full_attention),
        FormulaStage("head_size", lambda seen: _sum(seen, core=_own_core(seen))),
        FormulaStage("kv_heads", lambda seen: _sum(seen, **_d_wide(seen))),
        FormulaStage("experts", _one_expert),
        FormulaStage("ffn", _plain),
        *(gate if glu else ()),
        *(_head_stages(parts) if logits else (FormulaStage("lm_head", without_head, NO_HEAD),)),
        FormulaStage("recompute", lambda seen: counted(seen, forwards(seen))),
        *((FormulaStage("trained", lambda seen: counted(seen, last(seen))),) if trained else ()),
        FormulaStage("lm_head", closed),
    )


def _head_stages(
    parts: Callable[[SimplifiedModel], dict[str, float]],
) -> tuple[FormulaStage, FormulaStage]:
    """Return the stages to an lm_head of its own width, and to the padded one."""

    def with_head(seen: SimplifiedModel, head: float) -> float:
        return _sum(seen, **parts(seen) | {"head": head})

    return (
        FormulaStage("lm_head", lambda seen: with_head(seen, 6 * seen.d * seen.V)),
        FormulaStage("vocabulary", lambda seen: with_head(seen, _padded_head(seen))),
    )


# --- Microsoft's count by matmuls -----------------------------------------------------------


def by_matmuls(model: SimplifiedModel, *, top_k: bool = True) -> float:
    """Return 2r (L (s dd + 2 H (d // H) T + m d f k) + dV), V padded [FLOP per token].

    s: 1 + 2 // (H // G) + 1, for query, key with value, and output. m: matrices of a feed-forward
        block; f is the experts' width if there are any; k is 1 without `top_k`. Recomputing core
        attention alone adds its forward.
    """
    layers = _sum(model, **_matmul_parts(model, top_k=top_k), head=0)
    if model.recompute == "selective":
        return layers + _matmul_core(model) / 3 + _padded_head(model)
    return (layers + _padded_head(model)) * model.r / 3


def _matmul_core(model: SimplifiedModel) -> int:
    return 12 * model.L * model.H * model.q * model.T


def _matmul_heads(model: SimplifiedModel) -> dict[str, float]:
    """Return parts with key and value 2 // (H // G) times the query's width.

    Zero from three query heads per group on.
    """
    squares = 1 + 2 // (model.H // model.G) + 1
    return {"core": _matmul_core(model), "projections": 6 * squares * model.L * model.d**2}


def _matmul_parts(model: SimplifiedModel, *, top_k: bool) -> dict[str, float]:
    k = model.moe.experts_per_token if model.moe and top_k else 1
    block = 6 * model.matrices * model.L * model.d * expert_width(model) * k
    return _matmul_heads(model) | {"feed_forward": block}


def _matmul_path(*, top_k: bool) -> tuple[FormulaStage, ...]:
    """Return the path from our count to `by_matmuls`, with experts in every layer."""

    def parts(seen: SimplifiedModel) -> dict[str, float]:
        return _matmul_parts(seen, top_k=top_k)

    def with_head(seen: SimplifiedModel) -> float:
        return _sum(seen, **parts(seen), head=_padded_head(seen))

    def recomputed(seen: SimplifiedModel) -> float:
        if seen.recompute == "selective":
            return with_head(seen) + _matmul_core(seen) / 3
        return _sum(seen, **parts(seen), head=0) * seen.r / 3 + _padded_head(seen)

    return (
        FormulaStage("attention", full_attention),
        FormulaStage("head_size", lambda seen: _sum(seen, core=_matmul_core(seen))),
        FormulaStage("kv_heads", lambda seen: _sum(seen, **_matmul_heads(seen))),
        FormulaStage("experts", lambda seen: _sum(seen, **parts(seen))),
        FormulaStage("vocabulary", with_head),
        FormulaStage("recompute", recomputed),
        FormulaStage("lm_head", lambda seen: by_matmuls(seen, top_k=top_k)),
    )


# --- Megatron-LM's of 2024, as Argonne's fork has it ----------------------------------------


def megatron_lm(model: SimplifiedModel) -> float:
    """Return 12 L d d (1 + G/H + T/d + c k f/d + V/2Ld), V padded [FLOP per token].

    c = 3/2 if gated, else 1. Recomputed forwards do not count.
    """
    d, layers = model.d, model.L
    k = model.moe.experts_per_token if model.moe else 1
    block = model.matrices / 2 * k * expert_width(model) / d
    head = padded_vocab(model) / (2 * layers * d)
    return 12 * layers * d * d * (1 + model.G / model.H + model.T / d + block + head)


def _lm_heads(model: SimplifiedModel) -> dict[str, float]:
    wide = 12 * model.L * model.d**2 * (1 + model.G / model.H)
    return {"core": _own_core(model), "projections": wide}


def _lm_parts(model: SimplifiedModel) -> dict[str, float]:
    return _lm_heads(model) | {"feed_forward": _matmul_parts(model, top_k=True)["feed_forward"]}


_MEGATRON_LM: Final = (
    FormulaStage("attention", full_attention),
    FormulaStage("head_size", lambda seen: _sum(seen, **_lm_heads(seen))),
    FormulaStage("experts", lambda seen: _sum(seen, **_lm_parts(seen))),
    FormulaStage("vocabulary", megatron_lm),
)


# --- by parameters --------------------------------------------------------------------------


def parameters(model: SimplifiedModel) -> int:
    """Return P: parameters of all ranks of one model, with copies of the norms.

    The vocabulary is padded.
    """
    tables = 1 if model.shape.tied_embeddings else 2
    rows = (padded_vocab(model) - model.V) * (model.shape.embedding_size or model.d) * tables
    return model.shape.params_total + rows + (model.tensor_parallel - 1) * _copied(model)


def _norm(model: SimplifiedModel) -> int:
    return model.d * (1 if model.shape.norm == "rms" else 2)


def _copied(model: SimplifiedModel) -> int:
    """Return parameters that tensor parallelism copies: norms, positions, some biases."""
    shape, norm = model.shape, _norm(model)
    norms = model.L * shape.norms_per_layer + shape.final_norm + shape.embedding_norm
    biases = sum(group.count * _output_biases(group) for group in shape.layers)
    return norm * norms + model.d * (biases + shape.positions)


def _output_biases(group: LayerGroup) -> int:
    attention = isinstance(group.attention, Attention) and group.attention.output_bias
    return int(attention) + int(group.ffn is not None and group.ffn.bias)


def _tables(model: SimplifiedModel) -> int:
    """Return parameters of the look-ups alone; a tied table belongs to the lm_head."""
    positions = model.shape.positions * model.d * model.tensor_parallel
    return positions + (0 if model.shape.tied_embeddings else padded_vocab(model) * model.d)


def _non_embedding(model: SimplifiedModel) -> int:
    """Return P without tables and lm_head, as if all stages were the last one.

    The last stage has the final norm but not the embedding's norm. If the last stage has fewer
    layers than the others, the code counted fewer than the model has; this function does not follow
    that.
    """
    whole = parameters(model) - _tables(model) - padded_vocab(model) * model.d
    stages, shape = model.pipeline_parallel, model.shape
    norms = (stages - 1) * shape.final_norm - (stages > 1) * shape.embedding_norm
    return whole + norms * model.tensor_parallel * _norm(model)


def _dense(model: SimplifiedModel) -> SimplifiedModel:
    if model.moe is not None:
        raise ERA_WITHOUT_EXPERTS()  # noqa: RSE102 - a kind
    return model


def parameters_and_attention(model: SimplifiedModel) -> int:
    """Return 6P + 60 L d T [FLOP per token].

    P with the embedding, and five times the attention.
    """
    return 6 * parameters(_dense(model)) + 60 * model.L * model.d * model.T


def eight_parameters(model: SimplifiedModel) -> int:
    """Return 8P: with the embedding, always recomputed; no attention [FLOP per token]."""
    return 8 * parameters(_dense(model))


def non_embedding_parameters(model: SimplifiedModel) -> int:
    """Return 2r P, P without embeddings [FLOP per token].

    Neither attention nor lm_head count.
    """
    return 2 * model.r * _non_embedding(_dense(model))


def trainer_parameters(model: SimplifiedModel) -> int:
    """Return 6 (N - every nn.Embedding), all experts; no attention [FLOP per token].

    A tied lm_head is an nn.Embedding's weight and is subtracted too.
    """
    return 6 * (model.shape.params_total - model.shape.params_embedding)


def _core(model: SimplifiedModel) -> float:
    return full_attention(model) - _sum(model, core=0)


_PARAMETERS_AND_ATTENTION: Final = (
    FormulaStage("attention", full_attention),
    FormulaStage("vocabulary", lambda seen: _sum(seen, head=_padded_head(seen))),
    FormulaStage("norms", lambda seen: 6 * (parameters(seen) - _tables(seen)) + _core(seen)),
    FormulaStage("embedding", lambda seen: 6 * parameters(seen) + _core(seen)),
    FormulaStage("attention", parameters_and_attention),
)
_EIGHT_PARAMETERS: Final = (
    FormulaStage("attention", lambda seen: _sum(seen, core=0)),
    FormulaStage("vocabulary", lambda seen: _sum(seen, core=0, head=_padded_head(seen))),
    FormulaStage("norms", lambda seen: 6 * (parameters(seen) - _tables(seen))),
    FormulaStage("embedding", lambda seen: 6 * parameters(seen)),
    FormulaStage("recompute", eight_parameters),
)
_NON_EMBEDDING: Final = (
    FormulaStage("attention", lambda seen: _sum(seen, core=0)),
    FormulaStage("lm_head", lambda seen: _sum(seen, core=0, head=0), NO_HEAD),
    FormulaStage("norms", lambda seen: 6 * _non_embedding(seen)),
    FormulaStage("recompute", non_embedding_parameters),
)


def _active(model: SimplifiedModel) -> int:
    return 6 * (model.shape.params_active - model.shape.params_embedding)


_TRAINER: Final = (
    FormulaStage("attention", lambda seen: _sum(seen, core=0)),
    FormulaStage(
        "lm_head",
        lambda seen: _sum(seen, core=0, **({"head": 0} if seen.shape.tied_embeddings else {})),
    ),
    FormulaStage("norms", _active),
    FormulaStage("experts", trainer_parameters),
)


# --- the eras -------------------------------------------------------------------------------

DECIMALS_IN_MS: Final = {
    "elapsed_s": 4,
    "logged_samples_per_second": 3,
    "logged_tgs": 3,
    "logged_tflops": 2,
    "logged_lm_tflops": 2,
}
DECIMALS_IN_SECONDS: Final = DECIMALS_IN_MS | {"elapsed_s": 2}
STEP_TIME_FIGURES: Final = ("logged_tgs", "logged_samples_per_second")
PAPER_EQUATION: Final = "24 r L d d (1 + T/6d + V/16Ld), V padded"
MATMUL_EQUATION: Final = (
    "2 r (L ((1 + 2 // (H // G) + 1) d d + 2 H (d // H) T + m d f) + d V), V padded"
)
MEGATRON_LM_EQUATION: Final = (
    "12 L d d (1 + G/H + T/d + c k f/d + V/2Ld), c = 3/2 where gated, V padded"
)
NON_EMBEDDING_EQUATION: Final = "2 r P, P without embeddings and lm_head"


def _era(
    log_format: str, name: str, since: str | None, until: str | None, **more: object
) -> partial[Era]:
    formats = {"log_formats": (log_format,)}
    return partial(dated_era, name=name, since=since, until=until, **(formats | more))


def _megatron(month: str, since: str | None, until: str | None, **more: object) -> partial[Era]:
    known: dict[str, object] = {
        "repo": "deepspeedai/Megatron-DeepSpeed",
        "path": "megatron/utils.py",
        "decimals": DECIMALS_IN_MS,
        "derived_columns": STEP_TIME_FIGURES,
        "counts_recompute": True,
    }
    return _era("megatron-deepspeed", f"megatron-deepspeed-{month}", since, until, **known | more)


def _bigscience(month: str, since: str | None, until: str | None, **more: object) -> partial[Era]:
    known: dict[str, object] = {
        "repo": "bigscience-workshop/Megatron-DeepSpeed",
        "path": "megatron/training.py",
        "decimals": DECIMALS_IN_SECONDS,
        "derived_columns": STEP_TIME_FIGURES,
        "counts_recompute": True,
    }
    return _era("megatron-deepspeed", f"bigscience-{month}", since, until, **known | more)


def _argonne(month: str, since: str | None, **more: object) -> partial[Era]:
    """Return an era of a fork with undated commits: its figures identify the fork."""
    known: dict[str, object] = {
        "repo": "argonne-lcf/Megatron-DeepSpeed",
        "path": "megatron/utils.py",
        "commit": "b8413d98",
        "decimals": DECIMALS_IN_MS,
        "derived_columns": STEP_TIME_FIGURES,
        "fork": True,
    }
    return _era("megatron-deepspeed", f"argonne-{month}", since, None, **known | more)


def _neox(month: str, since: str | None, until: str | None, **more: object) -> partial[Era]:
    percents = {"logged_mfu": 4, "logged_hfu": 4}
    known: dict[str, object] = {
        "log_formats": ("gpt-neox", "gpt-neox-tensorboard"),
        "repo": "EleutherAI/gpt-neox",
        "path": "megatron/logging.py",
        "decimals": DECIMALS_IN_MS | percents | {"logged_tflops": 1},
        "derived_columns": STEP_TIME_FIGURES,
    }
    return _era("gpt-neox", f"gpt-neox-{month}", since, until, **known | more)


_OVER_THE_ENGINE: Final = {
    "logged_samples_per_second": "DeepSpeed does not print the time that it divides by"
}


def _engine(version: str, **more: object) -> partial[Era]:
    known: dict[str, object] = {
        "repo": "deepspeedai/DeepSpeed",
        "path": "deepspeed/runtime/pipe/engine.py",
        "formula": "samples/s = batch / time of a step; only the pipeline engine prints the time",
        "decimals": {"elapsed_s": 3, "logged_samples_per_second": 3},
        "derived_columns": STEP_TIME_FIGURES,
        "not_compared": _OVER_THE_ENGINE,
    }
    known["log_formats"] = ("deepspeed", "deepspeed-timers")
    return _era("deepspeed", f"deepspeed-{version}", None, None, **known | more)


ERA_ROWS: Final[tuple[partial[Era], ...]] = (
    _megatron(
        "2022-07",
        "2022-07-11",
        "2022-08-08",
        commit="62bc4562",
        formula=PAPER_EQUATION,
        stages=_paper_path(any_recomputed_forwards),
    ),
    _megatron(
        "2022-08",
        "2022-08-08",
        "2022-12-12",
        commit="7041c862",
        formula=f"{PAPER_EQUATION}; T as configured, also where a curriculum's steps are shorter",
        stages=_paper_path(any_recomputed_forwards),
        configured_length=True,
    ),
    _megatron(
        "2022-12",
        "2022-12-12",
        "2024-08-19",
        commit="5e8d5784",
        formula=PAPER_EQUATION,
        stages=_paper_path(any_recomputed_forwards),
    ),
    _megatron(
        "2024-08",
        "2024-08-19",
        "2024-10-18",
        commit="b7b2d5ef",
        formula=MATMUL_EQUATION,
        stages=_matmul_path(top_k=False),
    ),
    _megatron(
        "2024-10",
        "2024-10-18",
        None,
        commit="6acc370a",
        formula=MATMUL_EQUATION.replace("m d f", "m d f k"),
        stages=_matmul_path(top_k=True),
    ),
    _bigscience(
        "2021-05",
        None,
        "2021-06-11",
        commit="f52dbd04",
        formula="8 P, P with embeddings; always full checkpointing; time of the whole log interval",
        decimals=DECIMALS_IN_MS,
        stages=_EIGHT_PARAMETERS,
        whole_interval=True,
        counts_recompute=False,
    ),
    _bigscience(
        "2021-12",
        "2021-12-06",
        "2022-01-05",
        commit="e53fd737",
        formula=f"{NON_EMBEDDING_EQUATION}; a thousand times too many, samples/s a thousandth",
        decimals=DECIMALS_IN_MS,
        stages=_NON_EMBEDDING,
        unit=lambda _: 1000.0,
        sample_scales={"logged_samples_per_second": 0.001},
    ),
    _bigscience(
        "2022-01",
        "2022-01-05",
        "2022-01-27",
        commit="d1143a7e",
        formula=f"{NON_EMBEDDING_EQUATION}; samples/s a thousandth",
        decimals=DECIMALS_IN_MS,
        stages=_NON_EMBEDDING,
        sample_scales={"logged_samples_per_second": 0.001},
    ),
    _bigscience(
        "2022-01-seconds",
        "2022-01-27",
        "2022-02-21",
        commit="4c2aea04",
        formula=NON_EMBEDDING_EQUATION,
        stages=_NON_EMBEDDING,
    ),
    _bigscience(
        "2022-02",
        "2022-02-21",
        "2022-06-05",
        commit="ae6277f5",
        formula=PAPER_EQUATION,
        stages=_paper_path(),
    ),
    _bigscience(
        "2022-06",
        "2022-06-05",
        None,
        commit="e23393fb",
        formula=f"{PAPER_EQUATION}; 32 for 24 where the feed-forward is gated",
        stages=_paper_path(glu=True),
    ),
    _argonne(
        "2024-06",
        "2024-06-19",
        formula=f"[DS]: {PAPER_EQUATION}; [LM]: {MEGATRON_LM_EQUATION}",
        stages=_paper_path(any_recomputed_forwards),
        figure_stages={"logged_lm_tflops": _MEGATRON_LM},
        required_columns=("logged_lm_tflops",),
        counts_recompute=True,
    ),
    _argonne(
        "2024-matmuls",
        "2024-06-19",
        formula=(
            f"[DS]: {MATMUL_EQUATION.replace('m d f', 'm d f k')}; [LM]: {MEGATRON_LM_EQUATION}"
        ),
        stages=_matmul_path(top_k=True),
        figure_stages={"logged_lm_tflops": _MEGATRON_LM},
        required_columns=("logged_lm_tflops",),
        counts_recompute=True,
    ),
    _argonne("2025", None, formula=MEGATRON_LM_EQUATION, stages=_MEGATRON_LM),
    _neox(
        "2021",
        None,
        "2023-09-27",
        commit="5f364017^",
        formula="6 P + 60 L d T, P with embeddings",
        path="megatron/utils.py",
        stages=_PARAMETERS_AND_ATTENTION,
    ),
    _neox(
        "2023-09",
        "2023-09-27",
        "2023-12-06",
        commit="5f364017",
        formula="24 r L d d (1 + T/6d), without the lm_head term",
        stages=_paper_path(logits=False),
        counts_recompute=True,
    ),
    _neox(
        "2023-12",
        "2023-12-06",
        None,
        commit="050f560e",
        formula=f"{PAPER_EQUATION}; MFU (since 2024-12-19, 29080c3a) with r = 3",
        stages=_paper_path(),
        figure_stages={"logged_mfu": _paper_path(model_forwards), "logged_hfu": _paper_path()},
        counts_recompute=True,
    ),
    partial(
        Era,
        name="deepspeed-chat-2023-08",
        log_formats=("deepspeed-chat", "deepspeed"),
        since=date(2023, 8, 22),
        until=None,
        repo="deepspeedai/DeepSpeedExamples",
        path="applications/DeepSpeed-Chat/dschat/utils/perf.py",
        commit="45b4b715",
        formula=f"{PAPER_EQUATION.replace(', V padded', '')}; divided once more by the world size; "
        "under LoRA of rank R, r becomes r - (1 - 2R/d)",
        stages=_paper_path(trained=forwards_with_adapters),
        decimals={
            "elapsed_s": 2,
            "logged_tflops": 2,
            "logged_device_samples_per_second": 2,
        },
        derived_columns=("logged_device_samples_per_second",),
        required_columns=("logged_device_samples_per_second",),
        not_compared=_OVER_THE_ENGINE,
        unit=lambda gpus: 1 / gpus,
        counts_recompute=True,
    ),
    partial(
        Era,
        name="deepspeed-chat-step3",
        log_formats=("deepspeed-chat-rlhf",),
        since=date(2023, 8, 22),
        until=None,
        repo="deepspeedai/DeepSpeedExamples",
        path="applications/DeepSpeed-Chat/dschat/utils/perf.py",
        commit="45b4b715",
        formula="as step 1, for generation by one model plus training two",
        not_compared={
            "logged_tflops": "an iteration generates and trains two models, and a run has one"
        },
    ),
    _engine("engine", commit="edaa7221"),
    _engine(
        "0.3.0",
        commit="v0.3.0",
        versions=("0.3.0",),
        formula="samples/s = batch / time of all steps since the last line",
        whole_interval=True,
    ),
    _engine(
        "0.6.2",
        commit="v0.6.2",
        versions=("0.6.2", "0.6.3"),
        formula="samples/s = batch / time of a step in ms",
        decimals={"elapsed_s": 6, "logged_samples_per_second": 0},
    ),
    _era(
        "hf-trainer-state",
        "hf-trainer",
        None,
        None,
        repo="huggingface/transformers",
        path="src/transformers/modeling_utils.py",
        commit="v5.23.0",
        formula="total_flos = 6 x tokens x P, P without embeddings; tokens of all ranks, padded",
        figure_stages={"logged_total_flops": _TRAINER},
        log_formats=("hf-trainer-state", "ms-swift"),
    ),
)
"""Eras as rows: `keywords` contains name and log formats, a call builds the era."""
