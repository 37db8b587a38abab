"""Model shapes from the arguments printed by Megatron-DeepSpeed and torchtitan."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from .. import messages
from .megatron_header import check_arguments
from .models import find_model
from .printed_arguments import PrintedArguments
from .shape import (
    Attention,
    FeedForward,
    LayerGroup,
    MixtureOfExperts,
    ModelShape,
    check_dimension,
    grouped_layers,
    grouped_query,
    head_width,
)
from .torchtitan_layers import from_layers

# --- Megatron-DeepSpeed's arguments header --------------------------------------------------


def from_megatron(arguments: Mapping[str, str], vocab_size: int | None = None) -> ModelShape:
    """Return the shape of a decoder from Megatron-DeepSpeed's `arguments` header.

    An absent argument means that the version is older than the argument. Then the old behaviour
    applies: biases, LayerNorm, tied embeddings, learned positions, no gated FFN, one key/value head
    per head, no experts.

    arguments: values as printed, by name
    vocab_size: unpadded vocabulary. Required where the header has none, as without --vocab-size;
        the log prints ` > padded vocab (size: 50257)`.

    Raises ShapeError for missing or malformed arguments, and for an incomplete header
    (megatron_header).
    """
    printed = PrintedArguments(arguments, "The arguments header")
    check_arguments(arguments)
    for key, absent in MEGATRON_SUPPORTED_VALUES.items():
        if (value := printed.get(key)) is not None and re.match(absent, value) is None:
            raise messages.UNCOVERED_ARGUMENT(source=printed.source, key=key, value=value)
    hidden, count = printed.number("hidden_size"), printed.number("num_layers")
    vocabulary = vocab_size if vocab_size is not None else printed.optional("vocab_size")
    if vocabulary is None:
        raise messages.VOCABULARY_PADDED()  # noqa: RSE102 - a kind
    if vocabulary < 1:
        raise messages.SHAPE_KEY_TOO_SMALL(
            source=printed.source, key="vocab_size", value=vocabulary
        )
    rms = (printed.get("normalization") or "layernorm").lower() == "rmsnorm"
    return ModelShape(
        name=f"megatron-{count}x{hidden}",
        hidden_size=hidden,
        vocab_size=vocabulary,
        tied_embeddings=not printed.flag("untie_embeddings_and_output_weights", default=False),
        layers=_megatron_layers(printed, hidden, count),
        norm="rms" if rms else "layer",
        mtp_modules=printed.optional("mtp_num_layers") or 0,
        embedding_norm=printed.flag("embed_layernorm", default=False),
        positions=_megatron_positions(printed),
    )


MEGATRON_SUPPORTED_VALUES: Final = {
    "multi_latent_attention": "False$",
    "window_size": r"None$|\(-1, -1\)$",
    "kd": "False$",
    "retro_add_retriever": "False$",
    "num_experts_switch": "None$",
    "tokenizer_type": "(?!BertWordPiece)",
    "spec": r"None$|\['local'\]$",
    "is_hybrid_model": "False$",
    "hybrid_override_pattern": "None$",
    "hybrid_layer_pattern": "None$",
    "hybrid_attention_ratio": r"0(?:\.0+)?$",
    "hybrid_mlp_ratio": r"0(?:\.0+)?$",
    "experimental_attention_variant": "None$",
    "linear_attention_type": "None$",
    "attention_output_gate": "False$",
    "heterogeneous_layers_config_path": "None$",
    "moe_latent_size": "None$",
}
"""Arguments that this reader supports only with some values, and a pattern of these values. BERT
and T5 attend both ways. From `spec` on, arguments of NVIDIA's Megatron-LM: Mamba, gated delta
nets, sparse attention, layers of several widths (megatron/training/arguments.py and
training.py@001b00c)."""


def _megatron_positions(printed: PrintedArguments) -> int:
    """Return the rows of the position table: none with rotary or ALiBi."""
    kind = printed.get("position_embedding_type") or "absolute"
    learned = kind.rsplit(".", maxsplit=1)[-1] in ("absolute", "learned_absolute")
    if learned and printed.flag("add_position_embedding", default=True):
        return printed.number("max_position_embeddings")
    return 0


def _megatron_layers(printed: PrintedArguments, hidden: int, count: int) -> tuple[LayerGroup, ...]:
    heads = printed.number("num_attention_heads")
    bias = printed.flag("add_bias_linear", default=True)
    width = printed.optional("kv_channels") or head_width(hidden, heads)
    grouped = printed.flag("group_query_attention", default=False)
    groups = printed.number("num_query_groups") if grouped else heads
    attention = replace(
        grouped_query(heads, printed.number("num_key_value_heads", default=groups), width),
        fused=True,
        qkv_bias=bias,
        output_bias=bias,
    )
    gated = printed.flag("swiglu", default=False) or printed.get("glu_activation") is not None
    ffn = FeedForward(
        width=printed.number("ffn_hidden_size", default=4 * hidden),
        gated=gated,
        bias=bias,
        fused=gated,
    )
    experts = _megatron_experts(printed, count)
    return grouped_layers(
        (attention, ffn, None) if n == 1 else (attention, None, _megatron_moe(printed, n, ffn))
        for n in experts
    )


def _megatron_experts(printed: PrintedArguments, count: int) -> list[int]:
    """Return the number of experts of each layer, 1 for a dense layer.

    Follows Megatron-DeepSpeed's get_num_experts_per_layer.
    """
    value = printed.get("num_experts") or "1"
    if not re.fullmatch(r"\[?\s*\d+(\s*,\s*\d+)*\s*\]?", value):
        raise messages.SHAPE_KEY_MALFORMED(
            source=printed.source, key="num_experts", value=value, wanted="like '[64]'"
        )
    per_block = [int(number) for number in re.findall(r"\d+", value)]
    if per_block == [1]:
        return [1] * count
    interval = printed.number("expert_interval")
    blocks = per_block * (count // interval) if len(per_block) == 1 else per_block
    if len(blocks) != count // interval:
        raise messages.EXPERTS_DO_NOT_FIT(
            source=printed.source, experts=value, layers=count, interval=interval
        )
    layers = range(1, count + 1)
    return [1 if layer % interval else blocks[(layer - 1) // interval] for layer in layers]


def _megatron_moe(printed: PrintedArguments, experts: int, ffn: FeedForward) -> MixtureOfExperts:
    kind = printed.get("mlp_type") or "standard"
    if kind != "standard":
        raise messages.UNCOVERED_ARGUMENT(source=printed.source, key="mlp_type", value=kind)
    return MixtureOfExperts(experts=experts, experts_per_token=printed.number("topk"), expert=ffn)


# --- torchtitan -----------------------------------------------------------------------------


def from_torchtitan(flavour: str, model_args: Mapping[str, Any] | None = None) -> ModelShape:
    """Return the shape of a torchtitan model: from arguments, else by flavour name.

    flavour: as in `Model llama3 8B size: …`
    model_args: of `Building llama3 8B with TransformerModelArgs(dim=4096, …)`, values as printed;
        or nested by `layer` or `layers` since 2026-02-23 (torchtitan_layers); absent since
        2026-04-20 (torchtitan #3030)

    A flavour's vocabulary may be the tokenizer's: compare `params_total` with the `size:` line, or
    see `with_params_total`. Raises UnknownModelError for an unknown flavour, and ShapeError for
    arguments of a model other than llama, llama4, qwen3, deepseek_v3, gpt_oss.
    """
    if model_args is None:
        return find_model(flavour)
    printed = PrintedArguments(model_args, f"The arguments of {flavour!r}")
    if "layer" in model_args or "layers" in model_args:
        return from_layers(flavour, model_args, printed.source)
    reader = next((read for read, fits in _TITAN_READERS if fits(model_args)), None)
    if reader is None:
        raise messages.UNKNOWN_ARCHITECTURE(source=printed.source)
    return reader(flavour, printed)


def _titan_shape(
    name: str, printed: PrintedArguments, layers: tuple[LayerGroup, ...], *, tied: bool = False
) -> ModelShape:
    return ModelShape(
        name=name,
        hidden_size=printed.number("dim"),
        vocab_size=printed.number("vocab_size"),
        tied_embeddings=tied,
        layers=layers,
    )


def _titan_llama(name: str, printed: PrintedArguments) -> ModelShape:
    dim = printed.number("dim")
    if printed.flag("moe_enabled", default=False):
        key = "interleave_moe_layer_step"
        raise messages.SHAPE_KEY_MISSING(source=printed.source, keys=repr(key))
    norm = (printed.get("norm_type") or "rmsnorm").strip("'")
    if norm not in ("rmsnorm", "fused_rmsnorm"):
        raise messages.UNCOVERED_ARGUMENT(source=printed.source, key="norm_type", value=norm)
    layers = LayerGroup(
        count=printed.number("n_layers"),
        attention=_llama_attention(dim, printed),
        ffn=FeedForward(width=_llama_ffn_width(dim, printed)),
    )
    return _titan_shape(name, printed, (layers,))


def _llama_attention(dim: int, printed: PrintedArguments) -> Attention:
    heads = printed.number("n_heads")
    return grouped_query(heads, printed.number("n_kv_heads", default=heads), head_width(dim, heads))


def _titan_llama4(name: str, printed: PrintedArguments) -> ModelShape:
    """Return a Llama 4 shape, with experts in every n-th layer.

    The experts of a token together have the width of a dense layer. With layers without rotary
    embedding in between, the other layers attend inside blocks
    (torchtitan/models/llama4/model/model.py@018740b TransformerBlock).
    """
    dim, attention = printed.number("dim"), _llama_attention(printed.number("dim"), printed)
    whole, moe = FeedForward(width=_llama_ffn_width(dim, printed)), _llama4_experts(dim, printed)
    step = printed.number("interleave_moe_layer_step") if moe else 0
    full, blocks = _llama4_blocks(printed), None
    if full:
        blocks = replace(attention, chunk=printed.number("fixed_attn_block_size"))
    layers = grouped_layers(
        (
            blocks if blocks and layer % full else attention,
            *((None, moe) if step and not (layer + 1) % step else (whole, None)),
        )
        for layer in range(printed.number("n_layers"))
    )
    return _titan_shape(name, printed, layers)


def _llama4_blocks(printed: PrintedArguments) -> int:
    """Return n, where every n-th layer attends to all tokens; 0 where all layers do."""
    nope = printed.optional("every_n_layers_nope") or 0
    flex = printed.flag("use_flex_attn", default=False) or printed.get("attn_type") == "flex"
    if flex != bool(nope):
        raise messages.BLOCKS_UNCLEAR(source=printed.source, flex=flex, nope=nope or None)
    return nope


def _llama4_experts(dim: int, printed: PrintedArguments) -> MixtureOfExperts | None:
    """Return routed and shared experts.

    Reads the arguments of 2025-04 (`use_shared_expert`) and later.
    """
    if not printed.flag("moe_enabled", default=True):
        return None
    if not printed.flag("use_token_choice", default=True):
        raise messages.UNCOVERED_ARGUMENT(
            source=printed.source, key="use_token_choice", value=False
        )
    top_k = printed.number("top_k")
    shared = printed.optional("num_shared_experts")
    if shared is None:
        shared = int(printed.flag("use_shared_expert", default=True))
    scaled = printed.flag("auto_scale_hidden_dim", default=True)
    width = _llama_ffn_width(dim, printed, top_k + shared if scaled else 1)
    return MixtureOfExperts(
        experts=printed.number("num_experts"),
        experts_per_token=top_k,
        expert=FeedForward(width=width),
        shared=FeedForward(width=shared * width) if shared else None,
    )


def _llama_ffn_width(dim: int, printed: PrintedArguments, shares: int = 1) -> int:
    """Return Llama's FFN width: two thirds of 4d, times the multiplier, rounded up.

    Follows torchtitan's FeedForward.

    shares: number of experts that share the width
    """
    width = int(2 * (4 * dim) / 3)
    multiplier = printed.get("ffn_dim_multiplier")
    if multiplier is not None:
        try:
            width = int(float(multiplier) * width)
        except (ValueError, OverflowError):
            raise messages.SHAPE_KEY_MALFORMED(
                source=printed.source,
                key="ffn_dim_multiplier",
                value=multiplier,
                wanted="a number",
            ) from None
        width = check_dimension(printed.source, "ffn_dim_multiplier", width)
    multiple = printed.number("multiple_of")
    return multiple * -(-(width // shares) // multiple)


def _titan_moe(printed: PrintedArguments) -> MixtureOfExperts:
    """Return experts from `moe_args=MoEArgs(…)`, or from flat arguments until 2025-08."""
    inner = dict(re.findall(r"\"?(\w+)\"?\s*[=:]\s*([^,(){}]+)", printed.get("moe_args") or ""))
    args = PrintedArguments({**printed.values, **inner}, printed.source)
    old = "n_routed_experts" in printed.values
    shared = args.optional("n_shared_experts" if old else "num_shared_experts") or 0
    width = args.number("moe_inter_dim")
    return MixtureOfExperts(
        experts=args.number("n_routed_experts" if old else "num_experts"),
        experts_per_token=args.number("n_activated_experts" if old else "top_k"),
        expert=FeedForward(width=width),
        shared=FeedForward(width=shared * width) if shared else None,
    )


def _titan_qwen3(name: str, printed: PrintedArguments) -> ModelShape:
    attention = grouped_query(
        printed.number("n_heads"),
        printed.number("n_kv_heads"),
        printed.number("head_dim"),
        qk_norm="head" if printed.flag("qk_norm", default=True) else "none",
    )
    moe = _titan_moe(printed) if printed.flag("moe_enabled", default=False) else None
    ffn = None if moe else FeedForward(width=printed.number("hidden_dim"))
    layers = LayerGroup(count=printed.number("n_layers"), attention=attention, ffn=ffn, moe=moe)
    tied = printed.flag("enable_weight_tying", default=False)
    return _titan_shape(name, printed, (layers,), tied=tied)


def _titan_gpt_oss(name: str, printed: PrintedArguments) -> ModelShape:
    """Return gpt-oss: a window in every second layer, from the first on.

    Follows torchtitan's GptOssModel.
    """
    attention = replace(
        grouped_query(
            printed.number("n_heads"), printed.number("n_kv_heads"), printed.number("head_dim")
        ),
        qkv_bias=True,
        output_bias=True,
        sinks=True,
    )
    moe = _titan_moe(printed)
    layer = LayerGroup(
        count=printed.number("n_layers") // 2,
        attention=attention,
        moe=replace(moe, expert=replace(moe.expert, bias=True, fused=True), router_bias=True),
    )
    windowed = replace(
        layer,
        count=printed.number("n_layers") - layer.count,
        attention=replace(attention, window=printed.number("sliding_window_size")),
    )
    return _titan_shape(name, printed, (windowed, layer))


def _titan_deepseek(name: str, printed: PrintedArguments) -> ModelShape:
    heads, rope = printed.number("n_heads"), printed.number("qk_rope_head_dim")
    attention = Attention(
        heads=heads,
        kv_heads=heads,
        qk_head_dim=printed.number("qk_nope_head_dim") + rope,
        v_head_dim=printed.number("v_head_dim"),
        kv_lora_rank=printed.number("kv_lora_rank"),
        q_lora_rank=printed.optional("q_lora_rank") or None,  # torchtitan prints 0 for none
        rope_head_dim=rope,
    )
    dense = printed.optional("n_dense_layers") or 0
    groups = [
        LayerGroup(
            count=printed.number("n_layers") - dense, attention=attention, moe=_titan_moe(printed)
        )
    ]
    if dense:
        ffn = FeedForward(width=printed.number("inter_dim"))
        groups.insert(0, LayerGroup(count=dense, attention=attention, ffn=ffn))
    return _titan_shape(name, printed, tuple(groups))


_TITAN_READERS: Final[
    Sequence[
        tuple[Callable[[str, PrintedArguments], ModelShape], Callable[[Mapping[str, Any]], bool]]
    ]
] = (
    (_titan_deepseek, lambda args: "kv_lora_rank" in args),
    (_titan_qwen3, lambda args: args.keys() >= {"qk_norm", "head_dim"}),
    (_titan_gpt_oss, lambda args: args.keys() >= {"sliding_window_size", "moe_args"}),
    (_titan_llama4, lambda args: "interleave_moe_layer_step" in args),
    (_titan_llama, lambda args: "multiple_of" in args and "moe_args" not in args),
)
"""Readers of flat arguments, and the keys that only their model has; the first that fits reads."""
