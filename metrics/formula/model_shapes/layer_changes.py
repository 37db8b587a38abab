"""Parts of layers and models that few model types have, beyond a record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from .. import messages
from ..messages import ShapeError
from .config import Config
from .shape import (
    Attention,
    FeedForward,
    LayerGroup,
    MixtureOfExperts,
    ModelShape,
    Weight,
)
from .state_mixers import mamba2


def attention_of(group: LayerGroup) -> Attention:
    """Return the attention of a layer; raise ShapeError without one."""
    if not isinstance(group.attention, Attention):
        raise messages.LAYER_PART_MISSING(part="attention")
    return group.attention


def with_attention(group: LayerGroup, **changes: Any) -> LayerGroup:  # noqa: ANN401 (fields of Attention)
    """Return the layer with other values of its attention."""
    return replace(group, attention=replace(attention_of(group), **changes))


def refuse(config: Config, *keys: str) -> None:
    """Raise ShapeError if a variant outside the formula is switched on."""
    for key in keys:
        if config.flag(key, default=False):
            raise _uncovered(config, key, "true")


def _uncovered(config: Config, key: str, value: str) -> ShapeError:
    return messages.UNCOVERED_VARIANT(source=config.source, key=key, value=value)


# --- attention ------------------------------------------------------------------------------


def differential_attention(_: Config, group: LayerGroup) -> LayerGroup:
    """Differential Transformer: each head weighs values of double width.

    Source: arXiv:2410.05258.
    Its code computes the scores anew for each half of the values.
    """
    attention = attention_of(group)
    wide = attention.heads * (attention.qk_head_dim + attention.v_head_dim)
    return with_attention(group, wide_values=wide, extra_params=4 * attention.qk_head_dim)


def doge_layer(config: Config, group: LayerGroup) -> LayerGroup:
    """Doge: a dynamic mask made from the values, and scaled residuals."""
    refuse(config, "is_moe")
    config.read_keys.update({"num_experts", "num_experts_per_tok"})  # unused without is_moe
    attention = attention_of(group)
    values = attention.kv_heads * attention.v_head_dim
    dynamic = Weight("dt_proj", values, attention.kv_heads)
    scaled = replace(group, extra_params=2 * config.number("hidden_size"))
    return with_attention(scaled, extra=(dynamic,), extra_params=attention.kv_heads)


def axk2_layer(config: Config, group: LayerGroup) -> LayerGroup:
    """A.X K2: query and gate from two latents, and norms with a gate."""
    hidden, rank = config.number("hidden_size"), config.number("gated_norm_rank")
    gated_norm = (Weight("norm_fc1", hidden, rank), Weight("norm_fc2", rank, hidden))
    norms = gated_norm if group.moe is None else gated_norm * 2
    return replace(with_attention(group, gated=True, q_latents=2), extra=norms)


def dots3_layer(config: Config, group: LayerGroup) -> LayerGroup:
    """dots3: a norm of the rotary key."""
    attention = attention_of(group)
    rope = config.number("qk_rope_head_dim")
    return with_attention(group, extra_params=attention.extra_params + rope)


def persimmon_layer(config: Config, group: LayerGroup) -> LayerGroup:
    """Persimmon: LayerNorms of query and key, if switched on."""
    if not config.flag("qk_layernorm", default=True):
        return group
    return with_attention(group, extra_params=4 * attention_of(group).qk_head_dim)


def compressed_attention(config: Config, group: LayerGroup) -> LayerGroup:
    """DeepSeek-V4: a window, and entries that each stand for several tokens.

    One key that is the value too, a low-rank output projection in groups, hyper-connections.
    """
    hidden, heads = config.number("hidden_size"), config.number("num_attention_heads")
    width, rank = config.number("head_dim"), config.number("q_lora_rank")
    groups, output_rank = config.number("o_groups"), config.number("o_lora_rank")
    attention = Attention(
        heads=heads,
        kv_heads=1,
        qk_head_dim=width,
        v_head_dim=width,
        window=config.number("sliding_window"),
        sinks=True,
        projections=(
            Weight("q_a_proj", hidden, rank),
            Weight("q_b_proj", rank, heads * width),
            Weight("kv_proj", hidden, width),
            Weight("o_a_proj", heads * width // groups, groups * output_rank),
            Weight("o_b_proj", groups * output_rank, hidden),
        ),
        extra_params=rank + width,
    )
    attention = _with_compressor(config, attention)
    extra, params = hyper_connections(config, 2 + config.number("hc_mult"), scales=3, mixed=True)
    return replace(group, attention=attention, extra=extra, extra_params=params)


def _with_compressor(config: Config, attention: Attention) -> Attention:
    kind = str(config.values["layer_kind"])
    if kind == "sliding_attention":
        return attention
    rates = config.values.get("compress_rates")
    config.read_keys.add("compress_rates")
    rate = rates.get(kind) if isinstance(rates, dict) else None
    if not isinstance(rate, int) or rate < 1:
        raise messages.SHAPE_KEY_MISSING(source=config.source, keys=f"{kind!r} in 'compress_rates'")
    hidden, width = config.number("hidden_size"), attention.qk_head_dim
    if kind == "heavily_compressed_attention":
        entry = (Weight("compressor_kv", hidden, width), Weight("compressor_gate", hidden, width))
        params = attention.extra_params + rate * width + width
        return replace(attention, extra=entry, compression=rate, extra_params=params)
    heads, narrow = config.number("index_n_heads"), config.number("index_head_dim")
    rank = config.number("q_lora_rank")
    return replace(
        attention,
        compression=rate,
        top_k=config.number("index_topk"),
        extra=(
            Weight("compressor_kv", hidden, 2 * width),
            Weight("compressor_gate", hidden, 2 * width),
        ),
        indexer=(
            Weight("indexer_kv", hidden, 2 * narrow),
            Weight("indexer_gate", hidden, 2 * narrow),
            Weight("indexer_q_b", rank, heads * narrow),
            Weight("weights_proj", hidden, heads),
        ),
        score_width=heads * narrow,
        extra_params=attention.extra_params + (2 * rate + 1) * (width + narrow),
    )


def hyper_connections(
    config: Config, outputs: int, *, scales: int, mixed: bool
) -> tuple[tuple[Weight, ...], int]:
    """Return weights and parameters of a layer's hyper-connections.

    outputs: outputs of their gate for each stream
    scales: learned scales of each gate
    mixed: the streams are mixed by a matrix, a product for each channel
    """
    hidden, streams = config.number("hidden_size"), config.number("hc_mult")
    gate = Weight("hyper_connection", streams * hidden, streams * outputs)
    mix = Weight("stream_mix", streams, streams, copies=0, per_token=hidden)
    weights = (gate, mix) if mixed else (gate,)
    return weights * 2, 2 * (streams * outputs + scales)


def hyper_connected_head(config: Config, shape: ModelShape) -> ModelShape:
    """Join the streams before lm_head by a gate of one output each."""
    streams = config.number("hc_mult")
    gate = Weight("hyper_connection", streams * shape.hidden_size, streams)
    return replace(shape, extra=(gate,), extra_params=streams + 1)


def hy_v4_layer(config: Config, group: LayerGroup) -> LayerGroup:
    """Hunyuan V4: hyper-connections around both blocks."""
    extra, params = hyper_connections(config, 2, scales=2, mixed=False)
    return replace(group, extra=extra, extra_params=params)


# --- Gemma 3n and 4 -------------------------------------------------------------------------


def shared_keys(config: Config, group: LayerGroup) -> LayerGroup:
    """Take keys and values from an earlier layer in the last layers."""
    shared = config.optional("num_kv_shared_layers") or 0
    index = config.optional("layer_index") or 0
    own = index < config.number("num_hidden_layers") - shared
    return group if own else with_attention(group, own_keys=False)


def per_layer_inputs(config: Config, group: LayerGroup) -> LayerGroup:
    """Add an input of its own to a layer: a gate, a projection and a norm."""
    width = config.optional("hidden_size_per_layer_input")
    if not width:
        return group
    hidden = config.number("hidden_size")
    gate = Weight("per_layer_input_gate", hidden, width)
    more = (gate, Weight("per_layer_projection", width, hidden))
    return replace(group, extra=(*group.extra, *more), extra_params=group.extra_params + hidden)


def per_layer_tables(config: Config, shape: ModelShape) -> ModelShape:
    """Add the table and the projection that make the inputs of each layer."""
    width = config.optional("hidden_size_per_layer_input")
    if not width:
        return shape
    all_layers = config.number("num_hidden_layers") * width
    projection = Weight("per_layer_model_projection", shape.hidden_size, all_layers)
    return replace(
        shape,
        extra=(*shape.extra, projection),
        extra_params=shape.extra_params + width,
        extra_embedding=config.number("vocab_size_per_layer_input") * all_layers,
    )


def gemma3n_layer(config: Config, group: LayerGroup) -> LayerGroup:
    """Gemma 3n: AltUp over several streams, LAuReL, inputs of each layer."""
    hidden, streams = config.number("hidden_size"), config.number("altup_num_inputs")
    rank = config.number("laurel_rank")
    config.read_keys.update({"altup_num_inputs"})
    altup = (
        Weight("modality_router", hidden, streams, per_token=2),
        Weight("prediction_coefs", streams, streams * streams),
        Weight("correction_coefs", streams, streams),
        Weight("stream_mix", streams, streams, copies=0, per_token=hidden),
    )
    laurel = (Weight("linear_left", hidden, rank), Weight("linear_right", rank, hidden))
    more = replace(group, extra=(*altup, *laurel), extra_params=group.extra_params + 3 * hidden)
    return per_layer_inputs(config, shared_keys(config, more))


def gemma3n_model(config: Config, shape: ModelShape) -> ModelShape:
    """Gemma 3n: projections to the streams of AltUp and back."""
    streams, hidden = config.number("altup_num_inputs"), shape.hidden_size
    altup = Weight("altup_projections", hidden, hidden, 2 * (streams - 1), 2 * (streams - 1))
    return per_layer_tables(config, replace(shape, extra=(altup,)))


def gemma4_layer(config: Config, group: LayerGroup) -> LayerGroup:
    """Gemma 4: keys as values, shared keys, wider blocks, experts."""
    full = config.values["layer_kind"] == "full_attention"
    if config.flag("attention_k_eq_v", default=False) and full:
        group = with_attention(group, own_values=False)
    group = shared_keys(config, group)
    wide = config.flag("use_double_wide_mlp", default=False)
    if wide and group.ffn is not None and not attention_of(group).own_keys:
        group = replace(group, ffn=replace(group.ffn, width=2 * group.ffn.width))
    if group.moe is not None:
        hidden = config.number("hidden_size")
        group = replace(group, extra_params=group.extra_params + 3 * hidden)
    return per_layer_inputs(config, group)


def gemma4_config(config: Config) -> Config:
    """Return Gemma 4's config without bidirectional attention."""
    config.read_keys.add("use_bidirectional_attention")
    if config.values.get("use_bidirectional_attention") == "all":
        raise _uncovered(config, "use_bidirectional_attention", "all")
    if config.values.get("per_layer_config") is None:
        config = _with_full_heads(config)
    experts = config.flag("enable_moe_block", default=False)
    return config if experts else without_experts(config)


def _with_full_heads(config: Config) -> Config:
    """Return the config with the heads of full layers by layer."""
    heads: dict[str, object] = {"head_dim": config.number("global_head_dim", default=512)}
    kv_heads = config.optional("num_global_key_value_heads")
    if kv_heads is not None and config.flag("attention_k_eq_v", default=False):
        heads["num_key_value_heads"] = kv_heads
    full = [i for i, kind in enumerate(config.items("layer_types")) if kind == "full_attention"]
    return config.with_values({**config.values, "per_layer_config": {str(i): heads for i in full}})


def without_experts(config: Config) -> Config:
    """Return the config of a model whose layers have no experts."""
    count = config.number("num_hidden_layers")
    return config.with_values({**config.values, "mlp_layer_types": ["dense"] * count})


# --- hybrids --------------------------------------------------------------------------------


def layer_kinds(config: Config, kinds: list[str]) -> Config:
    """Return the config with the kind of mixer of each layer, if it has none."""
    if config.items("layer_types"):
        return config
    return config.with_values({**config.values, "layer_types": kinds})


def minimax_config(config: Config) -> Config:
    """MiniMax: published configs number the kinds of layers, 1 for full attention."""
    types = config.items("attn_type_list")
    if not types:
        return config
    return layer_kinds(
        config, ["full_attention" if kind == 1 else "linear_attention" for kind in types]
    )


def bamba_config(config: Config) -> Config:
    """Bamba: attention in `attn_layer_indices`, Mamba-2 in the rest."""
    full = config.layer_numbers("attn_layer_indices")
    count = config.number("num_hidden_layers")
    kinds = ["full_attention" if i in full else "linear_attention" for i in range(count)]
    return layer_kinds(config, kinds)


def jamba_config(config: Config) -> Config:
    """Jamba: attention and experts in layers of a period."""
    count = config.number("num_hidden_layers")
    period, offset = config.number("attn_layer_period"), config.optional("attn_layer_offset")
    kinds = ["full_attention" if i % period == offset else "mamba" for i in range(count)]
    step, first = config.number("expert_layer_period"), config.optional("expert_layer_offset")
    sparse = config.number("num_experts") > 1
    blocks = ["sparse" if sparse and i % step == first else "dense" for i in range(count)]
    return layer_kinds(
        config.with_values({**config.values, "mlp_layer_types": blocks, "mamba_norms": True}), kinds
    )


def mamba_beside(config: Config, group: LayerGroup) -> LayerGroup:
    """Falcon-H1: Mamba-2 beside attention in each layer."""
    norm = config.flag("mamba_rms_norm", default=False)
    return replace(group, beside=mamba2(config.with_values({**config.values, "mamba_norm": norm})))


def lfm2_config(config: Config) -> Config:
    """LFM2: width of the block rounded up from two thirds, as its code does."""
    width = config.number("intermediate_size", "block_ff_dim")
    if config.flag("block_auto_adjust_ff_dim", default=True):
        width = 2 * width // 3
        step = config.number("block_multiple_of", default=256)
        if config.values.get("block_ffn_dim_multiplier") is not None:
            width = int(config.ratio("block_ffn_dim_multiplier") * width)
        width = step * -(-width // step)
    full = config.layer_numbers("full_attn_idxs")
    count = config.number("num_hidden_layers")
    kinds = ["full_attention" if i in full else "conv" for i in range(count)]
    return layer_kinds(config.with_values({**config.values, "intermediate_size": width}), kinds)


def lfm3_layer(config: Config, group: LayerGroup) -> LayerGroup:
    """LFM3: two more norms, and a gate of each head, where switched on."""
    hidden = config.number("hidden_size")
    if config.flag("use_sandwich_norm", default=False):
        group = replace(group, extra_params=2 * hidden)
    gated = config.flag("use_attention_gate", default=False)
    if gated and isinstance(group.attention, Attention):
        gate = Weight("g_proj", hidden, group.attention.heads)
        group = with_attention(group, extra=(gate,))
    return group


def nemotron_h_config(config: Config) -> Config:
    """Nemotron-H: each layer is one mixer or one feed-forward block."""
    letters = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
    config.read_keys.update({"hybrid_override_pattern"})
    pattern = config.values.get("hybrid_override_pattern")
    kinds = [letters.get(letter, letter) for letter in str(pattern)] if pattern else []
    kinds = [str(kind) for kind in config.items("layer_types")] or kinds
    if not kinds:
        raise messages.SHAPE_KEY_MISSING(source=config.source, keys="'layers_block_type'")
    blocks = ["sparse" if kind == "moe" else "dense" for kind in kinds]
    return config.with_values(
        {
            **config.values,
            "layer_types": kinds,
            "num_hidden_layers": len(kinds),
            "mlp_layer_types": blocks,
        }
    )


def nemotron_h_layer(config: Config, group: LayerGroup) -> LayerGroup:
    """Keep the one part of a layer of Nemotron-H."""
    kind = config.values["layer_kind"]
    if kind in ("linear_attention", "full_attention"):
        return replace(group, ffn=None, moe=None)
    if group.moe is None:
        return replace(group, attention=None)
    return replace(group, attention=None, moe=latent_experts(config, group.moe))


def latent_experts(config: Config, moe: MixtureOfExperts) -> MixtureOfExperts:
    """Return experts on a latent width, between two projections."""
    latent = config.optional("moe_latent_size")
    if latent is None:
        return moe
    hidden = config.number("hidden_size")
    bias = latent + hidden if config.flag("mlp_bias", default=False) else 0
    down = Weight("fc1_latent_proj", hidden, latent)
    return replace(
        moe,
        expert_input=latent,
        extra=(down, Weight("fc2_latent_proj", latent, hidden)),
        extra_params=moe.extra_params + bias,
    )


# --- loops ----------------------------------------------------------------------------------


def dory_config(config: Config) -> Config:
    """Dory: published configs list attention and feed-forward block as two layers."""
    kinds = config.items("layer_types")
    if "mlp" not in kinds:
        return config
    halves = {
        key: config.number(key) // 2
        for key in ("num_hidden_layers", "n_input_layers", "n_output_layers", "n_recurrent_layers")
        if config.values.get(key) is not None
    }
    return config.with_values({**config.values, **halves, "layer_types": kinds[::2]})


def dory_layer(config: Config, group: LayerGroup) -> LayerGroup:
    """Dory: the middle layers run several times; scales in place of norms."""
    first = config.number("n_input_layers")
    count = config.optional("n_recurrent_layers")
    if count is None:
        count = config.number("num_hidden_layers") - first - config.number("n_output_layers")
    looped = first <= (config.optional("layer_index") or 0) < first + count
    attention = attention_of(group)
    scales = attention.extra_params + 2 * attention.heads * attention.qk_head_dim
    return replace(
        with_attention(group, extra_params=scales),
        extra_params=2 * config.number("hidden_size") + 2 * config.number("intermediate_size"),
        passes=config.number("n_recurrent_loops") if looped else 1,
    )


def hrm_model(config: Config, shape: ModelShape) -> ModelShape:
    """HRM-Text: a low stack that runs in each cycle, and a high stack after it.

    Only the last `L_bp_cycles` of the low stack pass a gradient.
    """
    high, low = config.number("H_cycles"), config.number("L_cycles")
    trained = [n if isinstance(n, int) else 1 for n in config.items("L_bp_cycles")]
    trained = [1] * (high - len(trained)) + trained
    without = sum(low - min(n, low) for n in trained[:high])
    stack = replace(shape.layers[0], count=config.number("num_layers_per_stack"))
    return replace(
        shape,
        layers=(
            replace(stack, passes=high * low, passes_without_gradient=without),
            replace(stack, passes=high),
        ),
    )


# --- feed-forward blocks --------------------------------------------------------------------


def ernie_config(config: Config) -> Config:
    """ERNIE 4.5: experts between two layers, in every `moe_layer_interval`-th."""
    count = config.number("num_hidden_layers")
    first = config.optional("moe_layer_start_index") or 0
    last = config.optional("moe_layer_end_index")
    last = count - 1 if last in (None, -1) else last
    step = config.number("moe_layer_interval", default=1)
    blocks = [
        "sparse" if (i + 1) % step == 0 and first <= i <= (last or 0) else "dense"
        for i in range(count)
    ]
    return config.with_values({**config.values, "mlp_layer_types": blocks})


def longcat_layer(config: Config, group: LayerGroup) -> LayerGroup:
    """LongCat-Flash: two attentions and two dense blocks, and empty experts.

    How many of a token's experts are empty depends on the routing, which the training keeps even:
    the count takes their share of all experts, as an estimate.
    """
    ffn = None if group.ffn is None else replace(group.ffn, copies=2)
    moe, empty = group.moe, config.optional("zero_expert_num") or 0
    if moe is not None and empty:
        chosen, rest = divmod(moe.experts_per_token * moe.experts, moe.experts + empty)
        if rest:
            raise messages.UNEVEN_ROUTING(source=config.source, empty=empty)
        router = (Weight("router", config.number("hidden_size"), moe.experts + empty),)
        moe = replace(moe, experts_per_token=chosen, router=router, even=True)
    hidden = config.number("hidden_size")
    return replace(group, beside=group.attention, ffn=ffn, moe=moe, extra_params=2 * hidden)


def attention_experts(config: Config, group: LayerGroup) -> LayerGroup:
    """JetMoE: queries and outputs of routed experts, shared keys and values."""
    hidden, kv_heads = config.number("hidden_size"), config.number("num_key_value_heads")
    experts, chosen = config.number("num_local_experts"), config.number("num_experts_per_tok")
    head = config.number("kv_channels")
    width = kv_heads * head
    attention = Attention(
        heads=kv_heads * chosen,
        kv_heads=kv_heads,
        qk_head_dim=head,
        v_head_dim=head,
        projections=(
            Weight("input_linear", hidden, width, copies=experts, per_token=chosen),
            Weight("output_linear", width, hidden, copies=experts, per_token=chosen),
            Weight("kv_proj", hidden, 2 * width),
            Weight("router", hidden, experts),
        ),
        extra_params=hidden,
    )
    return replace(group, attention=attention)


def without_images(config: Config, group: LayerGroup) -> LayerGroup:
    """Llama 3.2 Vision: layers that attend to an image run with one only."""
    if config.optional("layer_index") not in config.layer_numbers("cross_attention_layers"):
        return group
    gated = with_attention(group, qk_norm="head", extra_params=2)
    return replace(gated, passes=0)


def granite_config(config: Config) -> Config:
    """Granite 4: a shared block alone where there are no experts."""
    if config.optional("num_local_experts"):
        return config
    config.read_keys.update({"num_experts_per_tok"})
    width = config.number("shared_intermediate_size")
    return without_experts(config.with_values({**config.values, "intermediate_size": width}))


def modernbert_model(_: Config, shape: ModelShape) -> ModelShape:
    """ModernBERT decoder: a dense layer and a norm before lm_head."""
    hidden = shape.hidden_size
    extra = (Weight("head_dense", hidden, hidden),)
    return replace(shape, extra=extra)


# --- other names and switches ---------------------------------------------------------------


def bigcode_config(config: Config) -> Config:
    """GPT-BigCode: one key and value head, or as many as query heads."""
    multi_query = config.flag("multi_query", default=True)
    heads = 1 if multi_query else config.number("num_attention_heads")
    return config.with_values({**config.values, "num_key_value_heads": heads})


def neo_config(config: Config) -> Config:
    """GPT-Neo: global and local layers, from one of two keys."""
    names = {"global": "full_attention", "local": "sliding_attention"}
    config.read_keys.add("attention_types")
    layers = config.items("attention_layers") or _repeated(config.items("attention_types"))
    kinds = [names.get(str(kind), str(kind)) for kind in layers]
    return layer_kinds(config, kinds)


def _repeated(types: list[object]) -> list[object]:
    layers: list[object] = []
    for entry in types:
        if isinstance(entry, list) and len(entry) == 2 and isinstance(entry[1], int):  # noqa: PLR2004
            layers += list(entry[0]) * entry[1]
    return layers


def mpt_config(config: Config) -> Config:
    """MPT: multi-head attention without biases."""
    attention = config.values.get("attn_config")
    attention = attention if isinstance(attention, dict) else {}
    kind = attention.get("attn_type", "multihead_attention")
    if kind != "multihead_attention":
        raise _uncovered(config, "attn_type", str(kind)[:40])
    if attention.get("qk_ln"):
        raise _uncovered(config, "qk_ln", "true")
    if not config.flag("no_bias", default=True):
        raise _uncovered(config, "no_bias", "false")
    return config


def moshi_config(config: Config) -> Config:
    """Moshi: gate and up projection are one of width `ffn_dim`."""
    width = config.number("ffn_dim") // 2
    return config.with_values({**config.values, "intermediate_size": width})


def dbrx_config(config: Config) -> Config:
    """DBRX: sizes of attention and experts in configs of their own."""
    parts: dict[str, object] = {}
    for name in ("attn_config", "ffn_config"):
        part = config.values.get(name)
        if not isinstance(part, dict):
            raise messages.SHAPE_KEY_MISSING(source=config.source, keys=repr(name))
        parts |= part
    names = ("ffn_hidden_size", "moe_num_experts", "moe_top_k")
    sizes = {name: parts[name] for name in names if name in parts}
    heads = {"num_key_value_heads": parts.get("kv_n_heads", 1)}
    return config.with_values({**config.values, **sizes, **heads})


def hyperclovax_layer(config: Config, group: LayerGroup) -> LayerGroup:
    """HyperCLOVA X: two norms more, if switched on."""
    norms = 2 if config.flag("use_post_norm", default=False) else 0
    return replace(group, extra_params=norms * config.number("hidden_size"))


def head_norm_switch(config: Config, group: LayerGroup) -> LayerGroup:
    """Norm query and key only where the config says so."""
    normed = config.flag("use_qk_norm", default=False)
    return group if normed else with_attention(group, qk_norm="none")


# --- recurrent and shared blocks ------------------------------------------------------------


def recurrent_gemma_config(config: Config) -> Config:
    """RecurrentGemma: kinds of layers in repeats, halved width of the block."""
    names = {"recurrent": "recurrent", "attention": "sliding_attention"}
    block = [str(kind) for kind in config.items("block_types")] or ["recurrent"] * 2 + ["attention"]
    count = config.number("num_hidden_layers")
    kinds = [names.get(block[i % len(block)], block[i % len(block)]) for i in range(count)]
    width = config.number("intermediate_size") // 2
    return layer_kinds(config.with_values({**config.values, "intermediate_size": width}), kinds)


def rwkv_layer(config: Config, group: LayerGroup) -> LayerGroup:
    """RWKV: a gate over the block, and mixes with the token before."""
    hidden = config.number("hidden_size")
    first = 2 * hidden if config.optional("layer_index") == 0 else 0
    gate = Weight("receptance", hidden, hidden)
    return replace(group, extra=(gate,), extra_params=2 * hidden + first)


def rwkv_config(config: Config) -> Config:
    """RWKV: a block of four hidden sizes, where no width is given."""
    width = config.number("intermediate_size", default=4 * config.number("hidden_size"))
    return config.with_values({**config.values, "intermediate_size": width})


def xlstm_config(config: Config) -> Config:
    """XLSTM: widths are factors of the hidden size, rounded up."""
    hidden = config.number("hidden_size", "embedding_dim")

    def width(key: str, step: int) -> int:
        exact = int(hidden * config.ratio(key))
        return step * -(-exact // step)

    step = config.number("ffn_round_up_to_multiple_of", default=64)
    # The reference rounds keys and values up to multiples of 64 as well.
    sizes = {
        "qk_dim": width("qk_dim_factor", 64),
        "v_dim": width("v_dim_factor", 64),
        "intermediate_size": width("ffn_proj_factor", step),
        "hidden_size": hidden,
    }
    return config.with_values({**config.values, **sizes})


def zamba_config(config: Config) -> Config:
    """Zamba: Mamba layers, some of them after a shared block (`hybrid`)."""
    kinds = config.items("layer_types")
    if not kinds:
        raise messages.SHAPE_KEY_MISSING(source=config.source, keys="'layers_block_type'")
    return config


def zamba_layer(config: Config, group: LayerGroup) -> LayerGroup:
    """Zamba: a projection of the shared block's output, with adapters."""
    if config.values["layer_kind"] != "hybrid":
        return group
    hidden = config.number("hidden_size")
    extra = [Weight("linear", hidden, hidden)]
    if (rank := config.optional("adapter_rank")) is not None:
        width = 2 * config.number("intermediate_size")
        extra += [Weight("ffn_adapter_a", hidden, rank), Weight("ffn_adapter_b", rank, width)]
        if config.flag("use_shared_attention_adapter", default=False):
            both = 2 * hidden
            extra += 3 * [Weight("adapter_a", both, rank), Weight("adapter_b", rank, both)]
    return replace(group, extra=tuple(extra))


def zamba_model(config: Config, shape: ModelShape) -> ModelShape:
    """Zamba: blocks that hybrid layers run in turn."""
    hidden, heads = config.number("hidden_size"), config.number("num_attention_heads")
    kv_heads = config.number("num_key_value_heads", default=heads)
    head = 2 * hidden // heads
    config.read_keys.update({"attention_hidden_size", "attention_head_dim", "head_dim"})
    attention = Attention(
        heads=heads,
        kv_heads=kv_heads,
        qk_head_dim=head,
        v_head_dim=head,
        projections=(
            Weight("q_proj", 2 * hidden, heads * head),
            Weight("k_proj", 2 * hidden, kv_heads * head),
            Weight("v_proj", 2 * hidden, kv_heads * head),
            Weight("o_proj", heads * head, hidden),
        ),
    )
    bias = config.flag("add_bias_linear", default=False)
    ffn = FeedForward(width=config.number("intermediate_size"), bias=bias, fused=True)
    hybrids = sum(str(kind) == "hybrid" for kind in config.items("layer_types"))
    blocks = config.number("num_mem_blocks", default=1)
    shared = tuple(
        LayerGroup(
            count=1,
            attention=attention,
            ffn=ffn,
            extra_params=2 * hidden,  # with the layer norm below, a norm of twice the hidden size
            passes=passes,
            shared=True,
        )
        for block in range(blocks)
        if (passes := len(range(block, hybrids, blocks)))
    )
    return replace(shape, layers=(*shape.layers, *shared))


# --- attention residuals and short convolutions (Inkling, ZAYA) -----------------------------


def inkling_layer(config: Config, group: LayerGroup) -> LayerGroup:
    """Inkling: relative positions, and short convolutions in four places."""
    hidden, kernel = config.number("hidden_size"), config.number("conv_kernel_size")
    attention = attention_of(group)
    convolutions = _short_convolutions(config, attention)
    relative = _relative_positions(config, attention)
    group = with_attention(group, extra=(*relative, *convolutions))
    return replace(group, extra=2 * (Weight("conv1d", kernel, hidden),))


def inkling_experts(config: Config, group: LayerGroup) -> LayerGroup:
    """Inkling: shared experts have outputs of the router too, and blocks a scale each."""
    group = inkling_layer(config, group)
    if group.moe is None:
        return replace(group, extra_params=group.extra_params + 1)
    shared, hidden = config.optional("n_shared_experts") or 0, config.number("hidden_size")
    router = (Weight("router", hidden, group.moe.experts + shared),)
    return replace(group, moe=replace(group.moe, router=router, extra_params=1))


def _short_convolutions(config: Config, attention: Attention) -> tuple[Weight, ...]:
    kernel = config.number("conv_kernel_size")
    width = attention.kv_heads * attention.qk_head_dim
    return 2 * (Weight("conv1d", kernel, width),)


def _relative_positions(config: Config, attention: Attention) -> tuple[Weight, Weight]:
    hidden, narrow = config.number("hidden_size"), config.number("d_rel")
    extent = attention.window or config.number("rel_extent")
    config.read_keys.add("rel_extent")
    return (
        Weight("r_proj", hidden, attention.heads * narrow),
        Weight("relative_positions", narrow, extent, per_token=attention.heads),
    )


def inkling2_layer(config: Config, group: LayerGroup) -> LayerGroup:
    """Inkling 2: attention over earlier blocks of layers, gates and sinks.

    Full layers have a norm and a mix of blocks for each of query, key and value, and a convolution
    whose kernel comes from the input.
    """
    hidden, index = config.number("hidden_size"), config.optional("layer_index") or 0
    attention, full = attention_of(group), config.values["layer_kind"] == "full_attention"
    kernel, heads, narrow = (
        config.number("conv_kernel_size"),
        attention.heads,
        config.number("d_rel"),
    )
    width = attention.kv_heads * attention.qk_head_dim
    gates = (
        Weight("o_gate_proj", hidden, heads * attention.v_head_dim),
        Weight("sink_proj", hidden, heads),
        *_relative_positions(config, attention),
    )
    dynamic = 2 * (Weight("weight_proj", hidden, kernel * attention.kv_heads),)
    mixes = dynamic if full else _short_convolutions(config, attention)
    static = 2 * kernel * width + 2 * hidden if full else 0
    group = with_attention(
        group,
        extra=(*gates, *mixes),
        extra_params=heads * (attention.qk_head_dim + narrow) + static,
    )
    return replace(
        group,
        extra=(
            *_block_queries(config, index, 3 if full else 1),
            *2 * (Weight("conv1d", kernel, hidden),),
        ),
    )


def _block_queries(config: Config, index: int, queries: int) -> tuple[Weight, ...]:
    """Return the queries over earlier blocks before attention and before the experts."""
    hidden, size = config.number("hidden_size"), config.number("n_layers_per_attn_res_block")
    before = Weight("block_query", hidden, queries, per_token=2 * (-(-index // size) + 1))
    inside = Weight("block_query", hidden, 1, per_token=2 * (index // size + 2))
    return (before, inside) if index else (inside,)


def inkling2_model(config: Config, shape: ModelShape) -> ModelShape:
    """Inkling 2: attention over all blocks, and an unpadded lm_head."""
    hidden, size = config.number("hidden_size"), config.number("n_layers_per_attn_res_block")
    sources = -(-config.number("num_hidden_layers") // size) + 1
    query = Weight("block_query", hidden, 1, per_token=2 * sources)
    unpadded = config.optional("unpadded_vocab_size") or shape.vocab_size
    padding = (shape.vocab_size - unpadded) * hidden
    return replace(
        shape, vocab_size=unpadded, extra=(query,), extra_embedding=padding, embedding_norm=True
    )


def inkling2_loop_layer(config: Config, group: LayerGroup) -> LayerGroup:
    """Inkling 2 Loop: the middle layers run several times."""
    first, last = config.number("loop_layer_index_start"), config.number("loop_layer_index_end")
    looped = first <= (config.optional("layer_index") or 0) < last
    group = inkling2_layer(config, group)
    return replace(group, passes=config.number("loop_num_passes")) if looped else group


def inkling2_loop_model(config: Config, shape: ModelShape) -> ModelShape:
    """Inkling 2 Loop: gated messages from one pass to the next."""
    shape = inkling2_model(config, shape)
    hidden, rank = shape.hidden_size, config.number("loop_gate_rank")
    first, last = config.number("loop_layer_index_start"), config.number("loop_layer_index_end")
    inputs, again = 4 * (last - first), config.number("loop_num_passes") - 1
    size = config.number("n_layers_per_attn_res_block")
    sources = sum(layer % size == 0 for layer in range(first, last))
    gate = {"copies": inputs, "per_token": inputs * again}
    return replace(
        shape,
        extra=(
            *shape.extra,
            Weight(
                "message_query", hidden, 1, copies=inputs, per_token=2 * sources * inputs * again
            ),
            Weight("message_down", 2 * hidden, rank, **gate),
            Weight("message_forget", rank, hidden, **gate),
            Weight("message_gate", rank, hidden, **gate),
        ),
    )


def zaya_layer(config: Config, group: LayerGroup) -> LayerGroup:
    """ZAYA: convolutions over query and key, and a router of several layers."""
    hidden, router = config.number("hidden_size"), config.number("router_hidden_size")
    attention = attention_of(group)
    heads, head = attention.heads + attention.kv_heads, attention.qk_head_dim
    channels = heads * head
    mixes = (
        Weight("conv1d", config.number("cca_time0"), channels),
        Weight("conv1d", config.number("cca_time1") * head, channels),
    )
    if group.moe is None:
        raise messages.LAYER_PART_MISSING(part="experts")
    routes = (
        Weight("router", hidden, router),
        Weight("router", router, router),
        Weight("router", router, router),
        Weight("router", router, group.moe.experts + 1),
    )
    states = 5 if config.optional("layer_index") else 4
    moe = replace(group.moe, router=routes, extra_params=states * router)
    group = with_attention(group, extra=mixes, extra_params=2 * channels + attention.kv_heads)
    return replace(group, moe=moe, extra_params=8 * hidden)
