"""Model shapes from Torchtitan's nested model config.

Printed from 2026-02-23 to 2026-04-20: a tree of module configs. Until 2026-04-03 (torchtitan
#2785) one `layer` describes all layers, and the model's code decides which of them have experts or
a window. Since then `layers` lists every layer, and each has the configs of its own modules alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from .. import messages
from .printed_arguments import PrintedArguments
from .shape import (
    Attention,
    FeedForward,
    LayerGroup,
    MixtureOfExperts,
    ModelShape,
    counted_layers,
    grouped_query,
    head_width,
)

MODEL_KEYS: Final = (
    *("dim", "n_layers", "vocab_size", "layer", "layers", "enable_weight_tying"),
    *("tok_embeddings", "norm", "norm_eps", "rope", "output", "max_seq_len", "param_init"),
    "init_std",
)
LAYER_KEYS: Final = (
    *("attention", "feed_forward", "moe", "attention_norm", "ffn_norm", "norm_eps"),
    *("depth_init", "param_init", "count", "moe_enabled", "n_dense_layers"),
    *("interleave_moe_layer_step", "every_n_layers_nope", "fixed_attn_block_size"),
    "use_sliding_attention",
)
ATTENTION_KEYS: Final = (
    *("n_heads", "n_kv_heads", "head_dim", "dim", "bias", "qk_norm", "q_norm", "k_norm"),
    *("norm_eps", "use_rope", "rope_backend", "attn_backend", "attn_mask_type", "mask_type"),
    *("param_init", "inner_attention", "qkv_linear", "wo", "sliding_window_size"),
    *("q_lora_rank", "kv_lora_rank", "kv_norm", "qk_nope_head_dim", "qk_rope_head_dim"),
    *("v_head_dim", "mscale", "rope_factor", "rope_max_seq_len", "rope_original_seq_len", "wq"),
    *("wkv", "wq_a", "wq_b", "wkv_a", "wkv_b"),
)
"""Keys of the released models, 2026-02-23 to 2026-04-20. Another key that is set may be a module
with matmuls of its own, so it is refused by name. `wkv` is the config of two modules, wk and wv;
before `qkv_linear` the attention had it and `wq` itself (models/common/attention.py).
"""

LayerConfigs = Sequence[Mapping[str, Any]]


def from_layers(flavour: str, config: Mapping[str, Any], source: str) -> ModelShape:
    """Return the shape of a nested model config.

    source: start of error messages

    Raises ShapeError for a missing or malformed dimension, and for an unknown key.
    """
    printed = PrintedArguments(config, source)
    _refuse_unknown(printed, MODEL_KEYS)
    layers = _layers(printed)
    blocks = _has_blocks(layers, source)
    return ModelShape(
        name=flavour,
        hidden_size=printed.number("dim"),
        vocab_size=printed.number("vocab_size"),
        tied_embeddings=printed.flag("enable_weight_tying", default=False),
        layers=counted_layers(
            _group(index, PrintedArguments(layer, source), printed, blocks=blocks)
            for index, layer in enumerate(layers)
        ),
    )


def _refuse_unknown(printed: PrintedArguments, known_keys: Sequence[str]) -> None:
    for key, value in printed.values.items():
        if key not in known_keys and value not in (None, False, 0, "", [], {}):
            raise messages.UNCOVERED_ARGUMENT(source=printed.source, key=key, value=str(value)[:60])


def _layers(printed: PrintedArguments) -> LayerConfigs:
    """Return the config of each layer, in order; equal ones may have a `count`."""
    listed = printed.values.get("layers")
    if listed is None:
        return [_mapping(printed, "layer")] * printed.number("n_layers")
    if not isinstance(listed, list) or not all(isinstance(layer, dict) for layer in listed):
        raise messages.SHAPE_KEY_MALFORMED(
            source=printed.source, key="layers", value=str(listed)[:60], wanted="a list of layers"
        )
    counts = [PrintedArguments(layer, printed.source).number("count", 1) for layer in listed]
    whole = PrintedArguments({"n_layers": sum(counts)}, printed.source).number("n_layers")
    stated = printed.number("n_layers", whole)
    if stated != whole:
        raise messages.SHAPE_KEY_MALFORMED(
            source=printed.source, key="n_layers", value=stated, wanted=f"{whole} as listed"
        )
    return [layer for layer, n in zip(listed, counts, strict=True) for _ in range(n)]


def _mapping(printed: PrintedArguments, key: str) -> Mapping[str, Any]:
    """Return a nested config; raise ShapeError if there is none."""
    value = printed.values.get(key)
    if not isinstance(value, dict):
        raise messages.SHAPE_KEY_MISSING(source=printed.source, keys=repr(key))
    return value


def _nested(printed: PrintedArguments, *keys: str) -> PrintedArguments | None:
    """Return the config under a path of keys; None if there is none."""
    values: Any = printed.values
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return PrintedArguments(values, printed.source) if isinstance(values, dict) else None


def _required(printed: PrintedArguments, key: str) -> PrintedArguments:
    return PrintedArguments(_mapping(printed, key), printed.source)


def _has_bias(printed: PrintedArguments | None) -> bool:
    return printed is not None and printed.flag("bias", default=False)


# --- layers -----------------------------------------------------------------------------------


def _group(
    index: int, layer: PrintedArguments, model: PrintedArguments, *, blocks: bool
) -> LayerGroup:
    """Return one layer.

    blocks: layers with rotary embedding attend inside blocks
    """
    _refuse_unknown(layer, LAYER_KEYS)
    is_listed = "layers" in model.values
    attention = _attention(_required(layer, "attention"), model.number("dim"))
    if attention.window and not (
        layer.flag("use_sliding_attention", default=False) if is_listed else index % 2 == 0
    ):
        attention = replace(attention, window=None)
    if blocks and _has_rope(index, layer):
        attention = replace(attention, chunk=layer.number("fixed_attn_block_size"))
    if _has_experts(index, layer, is_listed=is_listed):
        return LayerGroup(count=1, attention=attention, moe=_experts(layer))
    return LayerGroup(
        count=1, attention=attention, ffn=_feed_forward(_required(layer, "feed_forward"))
    )


def _has_experts(index: int, layer: PrintedArguments, *, is_listed: bool) -> bool:
    """Return whether a layer routes its tokens.

    is_listed: the layer has no configs but its own. Otherwise the model's code decides
        (torchtitan/models/*/model.py@e57032d).
    """
    if _nested(layer, "moe") is None:
        return False
    if is_listed or _nested(layer, "feed_forward") is None:
        return True
    if "n_dense_layers" in layer.values:
        return index >= (layer.optional("n_dense_layers") or 0)
    if "interleave_moe_layer_step" in layer.values:
        return (index + 1) % layer.number("interleave_moe_layer_step") == 0
    if "moe_enabled" in layer.values:
        return layer.flag("moe_enabled", default=False)
    raise messages.UNKNOWN_ARCHITECTURE(source=layer.source)


def _has_blocks(layers: LayerConfigs, source: str) -> bool:
    """Return whether layers with rotary embedding attend inside blocks (Llama 4).

    Blocks need FlexAttention; without it, versions differ.
    """
    if not any("fixed_attn_block_size" in layer for layer in layers):
        return False
    printed = [PrintedArguments(layer, source) for layer in layers]
    mixed = not all(_has_rope(index, layer) for index, layer in enumerate(printed))
    flex = all(map(_uses_flex, printed))
    if flex != mixed:
        raise messages.BLOCKS_UNCLEAR(source=source, flex=flex, nope=mixed or None)
    return mixed


def _has_rope(index: int, layer: PrintedArguments) -> bool:
    """Return whether a layer has rotary embedding.

    All but every n-th have it, or those whose config says so.
    """
    every = layer.optional("every_n_layers_nope")
    if every:
        return index % every != 0
    return _required(layer, "attention").flag("use_rope", default=True)


def _uses_flex(layer: PrintedArguments) -> bool:
    attention = _required(layer, "attention")
    inner = _nested(attention, "inner_attention")
    return attention.get("attn_backend") == "flex" or (
        inner is not None and "kernel_options" in inner.values
    )


# --- modules ----------------------------------------------------------------------------------


def _attention(printed: PrintedArguments, dim: int) -> Attention:
    _refuse_unknown(printed, ATTENTION_KEYS)
    heads = printed.number("n_heads")
    if printed.get("kv_lora_rank") is not None:
        return _latent_attention(heads, printed)
    windowed = printed.get("sliding_window_size") is not None  # gpt-oss alone
    linear = _nested(printed, "qkv_linear") or printed
    qkv = _nested(linear, "wq") or _nested(linear, "wqkv")
    norm = printed.get("qk_norm") or printed.get("q_norm")
    attention = grouped_query(
        heads,
        printed.number("n_kv_heads", default=heads),
        printed.optional("head_dim") or head_width(dim, heads),
        qk_norm="none" if norm in (None, "False") else "head",
    )
    _check_key_value(linear, attention)
    bias = windowed or printed.flag("bias", default=False)
    return replace(
        attention,
        qkv_bias=bias or _has_bias(qkv),
        output_bias=bias or _has_bias(_nested(printed, "wo")),
        fused=_nested(linear, "wqkv") is not None,
        sinks=windowed,
        window=printed.number("sliding_window_size") if windowed else None,
    )


def _check_key_value(linear: PrintedArguments, attention: Attention) -> None:
    """Refuse a wkv that is not as wide as the keys, so perhaps one module for both."""
    shared = _nested(linear, "wkv")
    width = attention.kv_heads * attention.qk_head_dim
    if shared is not None and shared.number("out_features", width) != width:
        raise messages.UNCOVERED_ARGUMENT(
            source=linear.source, key="wkv", value=str(shared.values)[:60]
        )


def _latent_attention(heads: int, printed: PrintedArguments) -> Attention:
    rope = printed.number("qk_rope_head_dim")
    return Attention(
        heads=heads,
        kv_heads=heads,
        qk_head_dim=printed.number("qk_nope_head_dim") + rope,
        v_head_dim=printed.number("v_head_dim"),
        kv_lora_rank=printed.number("kv_lora_rank"),
        q_lora_rank=printed.optional("q_lora_rank") or None,  # 0 for none
        rope_head_dim=rope,
    )


def _feed_forward(printed: PrintedArguments) -> FeedForward:
    first = _nested(printed, "w1")
    width = first.number("out_features") if first else printed.number("hidden_dim")
    return FeedForward(width=width, bias=_has_bias(first or printed))


def _experts(layer: PrintedArguments) -> MixtureOfExperts:
    """Return the routed and the shared experts of a layer.

    gpt-oss alone has biases in its experts, and gate and up in one weight.
    """
    moe = _required(layer, "moe")
    experts, router = _nested(moe, "experts") or moe, _nested(moe, "router") or moe
    width = experts.number("hidden_dim")
    gpt_oss = _required(layer, "attention").get("sliding_window_size") is not None
    return MixtureOfExperts(
        experts=moe.number("num_experts"),
        experts_per_token=router.number("top_k"),
        expert=FeedForward(width=width, bias=gpt_oss, fused=gpt_oss),
        router_bias=moe.flag("gate_bias", default=gpt_oss) or _has_bias(_nested(router, "gate")),
        shared=next(_shared_experts(moe, width), None),
    )


def _shared_experts(moe: PrintedArguments, width: int) -> Iterator[FeedForward]:
    if (block := _nested(moe, "shared_experts")) is not None:
        yield _feed_forward(block)
    elif count := moe.optional("num_shared_experts"):
        yield FeedForward(width=count * width)
