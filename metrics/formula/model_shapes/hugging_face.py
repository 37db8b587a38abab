"""Model shapes from Hugging Face configs, by model_type."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Final, Literal

from .. import messages
from ..messages import ShapeError
from .config import Config
from .decoder import check_activation, check_layers, latent_attention, read_decoder
from .decoder_types import DECODERS
from .layer_changes import refuse
from .other_kinds import other_kind
from .shape import (
    Attention,
    FeedForward,
    LayerGroup,
    LinearAttention,
    Mixer,
    MixtureOfExperts,
    ModelShape,
    grouped_layers,
    grouped_query,
    head_width,
    windowed_layers,
)


def from_hugging_face(config: Mapping[str, object]) -> ModelShape:
    """Return the shape of a Hugging Face `config.json`; its text model if multimodal.

    For the tower of a multimodal model, see `metrics.formula.vision.from_hugging_face`.

    Raises ShapeError for an unknown model_type, for a missing or malformed key, and for a key that
    changes FLOPs but is not read for this model_type. Also where `architectures` names a class
    without lm_head, and for a model with another part besides text and vision.
    """
    if headless := [one for one in _architectures(config) if NO_LM_HEAD_CLASS.search(one)]:
        raise messages.OTHER_HEAD(architecture=headless[0])
    if kind := other_kind(config):
        raise messages.NO_DECODER(model=config.get("model_type"), kind_of_model=kind)
    inner = text_config(config)
    if inner is not config:
        if parts := other_parts(config):
            name = config.get("_name_or_path") or config.get("model_type")
            raise messages.OTHER_PART(model=name, part=parts[0])
        return from_hugging_face(inner)
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        raise messages.UNKNOWN_MODEL_TYPE(model_type=model_type, hint="")
    given = Config(config, f"The {model_type} config")
    shape = _reader(model_type)(given)
    _refuse_unread(given)
    _refuse_contradictions(given, shape)
    name = config.get("_name_or_path")
    return replace(shape, name=str(name) if name else shape.name)


def model_types() -> tuple[str, ...]:
    """Return every model_type with a reader, sorted."""
    return tuple(sorted({*DECODERS, *_HUGGING_FACE}))


def _reader(model_type: str) -> Callable[[Config], ModelShape]:
    if model_type in DECODERS:
        return lambda config: read_decoder(config, DECODERS[model_type])
    if model_type in _HUGGING_FACE:
        return _HUGGING_FACE[model_type]
    nearest = difflib.get_close_matches(model_type, model_types(), n=3)
    hint = f" Nearest known: {', '.join(nearest)}." if nearest else ""
    raise messages.UNKNOWN_MODEL_TYPE(model_type=model_type, hint=hint)


def _refuse_contradictions(config: Config, shape: ModelShape) -> None:
    """Raise ShapeError where the config's class or activation has other layers.

    A class of another known model_type is fine where that type's reader returns the same work.
    """
    model_type = str(config.values.get("model_type"))
    for name in _architectures(config.values):
        other = _types_by_class().get(_class_stem(name))
        if other in (None, model_type) or _class_stem(name) == _folded_type(model_type):
            continue
        if model_type in DECODERS and name in DECODERS[model_type].classes:
            continue
        if not _is_same_work(config, str(other), shape):
            raise messages.CLASS_CONTRADICTS(source=config.source, architecture=name, other=other)
    blocks = [block for group in shape.layers for _, block, _ in group.feed_forwards()]
    if blocks:
        others = DECODERS[model_type].activations if model_type in DECODERS else ()
        check_activation(config, gated=blocks[0].gated, others=others)


def _is_same_work(config: Config, model_type: str, shape: ModelShape) -> bool:
    try:
        other = _reader(model_type)(Config(config.values, config.source))
    except ShapeError:
        return False
    return _work(other) == _work(shape)


def _work(shape: ModelShape) -> Counter[tuple[object, ...]]:
    """Count the layers of a model by their matrices and the keys that a query sees."""
    work: Counter[tuple[object, ...]] = Counter()
    for group in shape.layers:
        masks = [
            (at.heads, at.qk_head_dim, at.v_head_dim, at.most_keys, at.chunk)
            for at in group.mixers
            if isinstance(at, Attention)
        ]
        weights = tuple(group.weights(shape.hidden_size))
        work[tuple((w.rows, w.columns, w.per_token) for w in weights), *masks] += (
            group.count * group.passes
        )
    return work


@cache
def _types_by_class() -> Mapping[str, str]:
    """Index the known model types by the stem of their class, in lower case."""
    return {_folded_type(name): name for name in model_types()}


def _folded_type(model_type: str) -> str:
    return re.sub(r"[_-]|_?text(_model)?$", "", model_type.lower())


def _class_stem(name: str) -> str:
    return re.sub(r"(?:For[A-Z]\w*|LMHeadModel|Text|Model)$", "", name).lower()


SHAPE_KEYS: Final = frozenset(
    {
        "H_cycles", "L_cycles", "add_cross_attention", "altup_num_inputs", "attention_chunk_size",
        "attn_layer_indices", "attn_layer_period", "attn_res_block_size", "attn_type_list",
        "block_configs", "cla_share_factor", "compress_rates", "cross_attention_layers",
        "decoder_sparse_step", "draft_vocab_size", "first_k_dense_replace",
        "full_attention_interval", "gated_norm_rank", "hc_count", "hc_mult",
        "hidden_size_per_layer_input", "hybrid_layer_pattern", "hybrid_override_pattern",
        "index_topk", "indexer_budget", "indexer_n_heads", "interleave_moe_layer_step",
        "is_causal", "is_moe", "kv_lora_rank", "laurel_rank", "layer_group_size", "layer_types",
        "layers_block_type", "linear_attn_config", "linear_num_value_heads", "loop_num_passes",
        "lru_width", "mamba_d_conv", "mamba_d_state", "mamba_n_heads", "mamba_num_heads",
        "mla_use_output_gate", "mlp_layer_types", "mlp_only_layers", "moe_intermediate_size",
        "moe_k", "moe_latent_size", "moe_layer_freq", "moe_layer_interval", "moe_layers",
        "moe_num_experts", "moe_num_shared_experts", "moe_topk", "n_mamba_heads",
        "n_recurrent_loops", "n_routed_experts", "n_shared_experts",
        "num_attention_heads_per_layer", "num_dense_layers", "num_experts", "num_kv_shared_layers",
        "num_layers_per_stack", "num_local_experts", "num_mem_blocks", "num_shared_experts",
        "o_lora_rank", "per_layer_config", "ple_layer_ids", "routed_expert_hidden_size",
        "router_hidden_size", "shared_expert_intermediate_size", "shared_intermediate_size",
        "sliding_window", "sliding_window_pattern", "sparse_attention_config", "sparse_config",
        "ssm_cfg", "ssm_state_size", "state_size", "swa_head_dim", "swa_num_attention_heads",
        "swa_num_key_value_heads", "use_bidirectional_attention", "zero_expert_num",
    }
)  # fmt: skip
"""Keys that change FLOPs wherever a model's code reads them: windows and chunks, experts and the
layers with experts, latent, linear and sparse attention, layers that share or skip parts."""

_STEPS: Final = frozenset(
    {"decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_freq", "moe_layer_interval"}
)
"""Keys of SHAPE_KEYS where 1 means every layer: no layer differs from the rest."""

_SAME_COUNT: Final = (
    frozenset({"moe_num_experts", "n_routed_experts", "num_experts", "num_local_experts"}),
    frozenset({"n_shared_experts", "num_shared_experts"}),
)
"""Names of the same count: classes of transformers use several (`attribute_map`)."""


def _refuse_unread(config: Config) -> None:
    """Raise ShapeError for an unread key of SHAPE_KEYS, unless its value means "none"."""
    values = dict(config.values)
    if values.get("use_sliding_window") is False:
        values.pop("sliding_window", None)
    for key in sorted(SHAPE_KEYS & values.keys() - config.read_keys):
        if not _none_of_it(config, key, values[key]):
            raise messages.SHAPE_KEY_UNREAD(
                source=config.source, key=key, value=str(values[key])[:60]
            )


def _none_of_it(config: Config, key: str, value: object) -> bool:
    """Return whether the model is the same without this unread key."""
    if key == "is_causal":  # false: every decoder of transformers attends both ways
        return value is not False
    if not value or (key in _STEPS and value == 1):
        return True
    if isinstance(value, list):
        return set(map(str, value)) == {"full_attention"}
    said = {name for names in _SAME_COUNT if key in names for name in names & config.read_keys}
    return any(config.values.get(name) == value for name in said)


NO_LM_HEAD_CLASS: Final = re.compile(
    r"(?:Classification|RewardModel|QuestionAnswering|MultipleChoice)$"
)
"""Endings of transformers classes without lm_head: a reward model is a classifier."""


def _architectures(config: Mapping[str, object]) -> list[str]:
    named = config.get("architectures")
    return [str(one) for one in named] if isinstance(named, list) else []


def text_config(config: Mapping[str, object]) -> Mapping[str, object]:
    """Return the text model's part of a config; the config itself for a text model.

    A nested config is saved without its class's defaults (transformers, to_diff_dict), so missing
    keys get these defaults. Tied embeddings may be set at either level.
    """
    for nested in ("text_config", "llm_config"):
        inner = config.get(nested)
        if isinstance(inner, Mapping):
            given = {"_name_or_path": config.get("_name_or_path"), **inner}
            if config.get("tie_word_embeddings") is True:
                given["tie_word_embeddings"] = True
            return {**_NESTED_DEFAULTS.get(str(inner.get("model_type")), {}), **given}
    return config


def other_parts(config: Mapping[str, object]) -> list[str]:
    """Return the keys of other models inside a model, such as audio or speech, sorted.

    Text model and vision tower are not included, nor is a config of parts of the text model.
    """
    own = ("text_config", "llm_config", "vision_config")
    return sorted(
        key
        for key, value in config.items()
        if isinstance(value, Mapping) and key.endswith("_config") and key not in own
        if value.get("model_type") or key == "audio_config"
    )


def _gqa(config: Config, *, width: int | None = None, kv_heads: int | None = None) -> Attention:
    """Return the attention of a Llama-like config.

    width, kv_heads: defaults of the model_type, if any
    """
    heads = config.number("num_attention_heads")
    width = config.optional("head_dim") or width or head_width(config.number("hidden_size"), heads)
    return grouped_query(heads, config.number("num_key_value_heads", default=kv_heads), width)


def _decoder(config: Config, layers: tuple[LayerGroup, ...], *, tied: bool = False) -> ModelShape:
    """Return a decoder with RMSNorm before attention and feed-forward block."""
    return ModelShape(
        name=str(config.values.get("model_type")),
        hidden_size=config.number("hidden_size"),
        vocab_size=config.number("vocab_size"),
        tied_embeddings=config.flag("tie_word_embeddings", default=tied),
        layers=layers,
    )


def _layer_kinds(
    config: Config, default: Callable[[int], str], *known: str, key: str = "layer_types"
) -> list[str]:
    """Return each layer's kind of attention: `layer_types`, or the class's default.

    key: `mlp_layer_types` for the kind of feed-forward block
    """
    count = config.number("num_hidden_layers")
    types = [str(kind) for kind in config.items(key)]
    if not types:
        return [default(layer) for layer in range(count)]
    check_layers(config, key, types, allowed=known, count=count)
    return types


def _windows(
    config: Config, default: Callable[[int], bool], window: int | None
) -> list[int | None]:
    """Return the window of each layer, from `layer_types` or else from `default`."""
    types = _layer_kinds(
        config,
        lambda layer: "sliding_attention" if default(layer) else "full_attention",
        "full_attention",
        "sliding_attention",
    )
    if config.items("layer_types") and "sliding_attention" in types and window is None:
        raise messages.SHAPE_KEY_MISSING(source=config.source, keys="'sliding_window'")
    return [window if kind == "sliding_attention" else None for kind in types]


def _ffn(config: Config, *keys: str, bias: bool = False, fused: bool = False) -> FeedForward:
    width = config.number(*(keys or ("intermediate_size",)))
    return FeedForward(width=width, bias=bias, fused=fused)


def _every_layer(config: Config, attention: Attention, ffn: FeedForward) -> tuple[LayerGroup, ...]:
    return (LayerGroup(count=config.number("num_hidden_layers"), attention=attention, ffn=ffn),)


def _llama(config: Config) -> ModelShape:
    bias = config.flag("attention_bias", default=False)
    attention = _gqa(config, kv_heads=config.number("num_attention_heads"))
    attention = replace(attention, qkv_bias=bias, output_bias=bias)
    ffn = _ffn(config, bias=config.flag("mlp_bias", default=False))
    return _decoder(config, _every_layer(config, attention, ffn))


def _mistral(config: Config) -> ModelShape:
    window = config.optional("sliding_window")
    if "sliding_window" not in config.values:
        window = 4096
    attention = replace(_gqa(config, kv_heads=8), window=window)
    return _decoder(config, _every_layer(config, attention, _ffn(config)))


def _mixtral(config: Config) -> ModelShape:
    attention = replace(_gqa(config, kv_heads=8), window=config.optional("sliding_window"))
    experts = MixtureOfExperts(
        experts=config.number("num_local_experts"),
        experts_per_token=config.number("num_experts_per_tok"),
        expert=_ffn(config),
    )
    count = config.number("num_hidden_layers")
    return _decoder(config, (LayerGroup(count=count, attention=attention, moe=experts),))


def _qwen_windows(config: Config) -> list[int | None]:
    """Return Qwen's windows: only if switched on, from layer `max_window_layers` up."""
    if not config.flag("use_sliding_window", default=False):
        config.read_keys.update({"sliding_window", "layer_types"})  # ignored without the switch
        return [None] * config.number("num_hidden_layers")
    first = config.number("max_window_layers", default=28)
    return _windows(config, lambda layer: layer >= first, config.number("sliding_window"))


def _qwen2(config: Config) -> ModelShape:
    attention = replace(_gqa(config), qkv_bias=True)
    return _decoder(config, windowed_layers(attention, _qwen_windows(config), _ffn(config)))


def _qwen3_attention(config: Config, *, width: int | None = None) -> Attention:
    bias = config.flag("attention_bias", default=False)
    attention = _gqa(config, width=width)
    return replace(attention, qkv_bias=bias, output_bias=bias, qk_norm="head")


def _qwen3(config: Config) -> ModelShape:
    attention = _qwen3_attention(config, width=128)
    return _decoder(config, windowed_layers(attention, _qwen_windows(config), _ffn(config)))


def _windowed_mixers(config: Config, attention: Attention) -> list[Mixer]:
    return [replace(attention, window=window) for window in _qwen_windows(config)]


def _qwen_sparse(
    config: Config, mixers: Sequence[Mixer], experts: MixtureOfExperts
) -> tuple[LayerGroup, ...]:
    """Return layers with experts in every `decoder_sparse_step`-th layer.

    Layers in `mlp_only_layers` stay dense.
    """
    step = config.number("decoder_sparse_step", default=1)
    dense = config.layer_numbers("mlp_only_layers")
    sparse = [(i + 1) % step == 0 and i not in dense for i in range(len(mixers))]
    ffn = None if all(sparse) else _ffn(config)
    return grouped_layers(
        (mixer, None, experts) if has_experts else (mixer, ffn, None)
        for mixer, has_experts in zip(mixers, sparse, strict=True)
    )


def _gated_shared_experts(config: Config) -> MixtureOfExperts:
    return MixtureOfExperts(
        experts=config.number("num_experts"),
        experts_per_token=config.number("num_experts_per_tok"),
        expert=_ffn(config, "moe_intermediate_size"),
        shared=_ffn(config, "shared_expert_intermediate_size"),
        shared_gates=1,
    )


def _qwen2_moe(config: Config) -> ModelShape:
    attention = replace(_gqa(config), qkv_bias=config.flag("qkv_bias", default=True))
    mixers = _windowed_mixers(config, attention)
    return _decoder(config, _qwen_sparse(config, mixers, _gated_shared_experts(config)))


def _qwen3_moe(config: Config) -> ModelShape:
    """Qwen3 with experts: its window, where switched on, is in every layer.

    The code knows neither `layer_types` nor `max_window_layers`.
    """
    config.read_keys.update({"sliding_window", "layer_types", "max_window_layers"})
    window = None
    if config.flag("use_sliding_window", default=False):
        values = {"sliding_window": 4096, **config.values}
        window = config.with_values(values).optional("sliding_window")
    experts = MixtureOfExperts(
        experts=config.number("num_experts", "num_local_experts"),
        experts_per_token=config.number("num_experts_per_tok"),
        expert=_ffn(config, "moe_intermediate_size"),
    )
    attention = replace(_qwen3_attention(config), window=window)
    mixers = [attention] * config.number("num_hidden_layers")
    return _decoder(config, _qwen_sparse(config, mixers, experts))


def _qwen3_vl_moe(config: Config) -> ModelShape:
    """Text model of Qwen3-VL with experts: tied by default."""
    return _qwen3_moe(config.with_values({"tie_word_embeddings": True, **config.values}))


def _delta_mixers(config: Config, *, fused: bool) -> list[Mixer]:
    """Return the mixers of Qwen3-Next and Qwen3.5, layer by layer.

    Gated DeltaNet, with gated attention in every fourth layer.
    """
    interval = config.number("full_attention_interval", default=4)
    kinds = _layer_kinds(
        config,
        lambda i: "linear_attention" if (i + 1) % interval else "full_attention",
        "linear_attention",
        "full_attention",
    )
    bias = config.flag("attention_bias", default=False)
    attention = replace(
        _gqa(config, width=256), gated=True, qkv_bias=bias, output_bias=bias, qk_norm="head"
    )
    linear = LinearAttention(
        key_heads=config.number("linear_num_key_heads", default=16),
        value_heads=config.number("linear_num_value_heads", default=32),
        key_head_dim=config.number("linear_key_head_dim", default=128),
        value_head_dim=config.number("linear_value_head_dim", default=128),
        conv_kernel=config.number("linear_conv_kernel_dim", default=4),
        fused=fused,
    )
    return [linear if kind == "linear_attention" else attention for kind in kinds]


def _qwen3_next(config: Config) -> ModelShape:
    mixers = _delta_mixers(config, fused=True)
    return _decoder(config, _qwen_sparse(config, mixers, _gated_shared_experts(config)))


def _qwen3_5(config: Config) -> ModelShape:
    mixers, ffn = _delta_mixers(config, fused=False), _ffn(config)
    return _decoder(config, grouped_layers((mixer, ffn, None) for mixer in mixers))


def _qwen3_5_moe(config: Config) -> ModelShape:
    mixers, experts = _delta_mixers(config, fused=False), _gated_shared_experts(config)
    return _decoder(config, grouped_layers((mixer, None, experts) for mixer in mixers))


def _internlm(config: Config) -> ModelShape:
    bias = config.flag("bias", default=True)
    attention = _gqa(config, kv_heads=config.number("num_attention_heads"))
    attention = replace(attention, qkv_bias=bias, output_bias=bias)
    return _decoder(config, _every_layer(config, attention, _ffn(config)))


def _internlm2(config: Config) -> ModelShape:
    bias = config.flag("bias", default=True)
    attention = _gqa(config, kv_heads=config.number("num_attention_heads"))
    attention = replace(attention, fused=True, qkv_bias=bias, output_bias=bias)
    return _decoder(config, _every_layer(config, attention, _ffn(config)))


def _internlm3(config: Config) -> ModelShape:
    bias = config.flag("bias", default=False)
    attention = replace(
        _gqa(config), qkv_bias=config.flag("qkv_bias", default=False), output_bias=bias
    )
    return _decoder(config, _every_layer(config, attention, _ffn(config, bias=bias)))


def _leading_dense(
    config: Config, attention: Attention, experts: MixtureOfExperts
) -> tuple[LayerGroup, ...]:
    """Return dense layers, then layers with experts (DeepSeek, GLM).

    After the first dense layers, every `moe_layer_freq`-th layer has experts.
    """
    step = config.number("moe_layer_freq", default=1)
    dense = config.optional("first_k_dense_replace")
    if dense is None:
        raise messages.SHAPE_KEY_MISSING(source=config.source, keys="'first_k_dense_replace'")
    count = config.number("num_hidden_layers")
    sparse = [i >= dense and i % step == 0 for i in range(count)]
    ffn = None if all(sparse) else _ffn(config)
    return grouped_layers(
        (attention, None, experts) if has_experts else (attention, ffn, None)
        for has_experts in sparse
    )


def _shared_experts(config: Config) -> MixtureOfExperts:
    """Return the experts of DeepSeek and its relatives.

    The number of shared experts must be given: without the key, transformers and DeepSeek's own
    code assume different numbers.
    """
    if "n_shared_experts" not in config.values:
        raise messages.SHAPE_KEY_OMITTED(
            source=config.source, key="n_shared_experts", meaning="none"
        )
    width = config.number("moe_intermediate_size")
    shared = config.optional("n_shared_experts") or 0
    return MixtureOfExperts(
        experts=config.number("n_routed_experts"),
        experts_per_token=config.number("num_experts_per_tok"),
        expert=FeedForward(width=width),
        shared=FeedForward(width=shared * width) if shared else None,
    )


def _deepseek(config: Config) -> ModelShape:
    """DeepSeek-V2 and V3.

    num_nextn_predict_layers is not used: it describes a checkpoint, not a run.
    """
    layers = _leading_dense(config, _latent_attention(config), _shared_experts(config))
    return _decoder(config, layers)


def _latent_attention(config: Config) -> Attention:
    bias = config.flag("attention_bias", default=False)
    return replace(
        latent_attention(config),
        q_lora_rank=_query_rank(config),
        qkv_bias=bias,
        output_bias=bias,
    )


def _query_rank(config: Config) -> int | None:
    """Return the query rank; None for a full query projection (V2-Lite).

    A null q_lora_rank means a full projection; an absent key is an omission.
    """
    if "q_lora_rank" not in config.values:
        raise messages.SHAPE_KEY_OMITTED(
            source=config.source, key="q_lora_rank", meaning="a full query projection"
        )
    return config.optional("q_lora_rank")


def _kimi_linear(config: Config) -> ModelShape:
    """Kimi Linear: KDA layers, and MLA in `full_attn_layers` (counted from 1).

    transformers saves the kinds of layers in addition to the published keys.
    """
    values = config.with_values({_KIMI_NAMES.get(k, k): v for k, v in config.values.items()})
    config.read_keys.update(_KIMI_NAMES, {"linear_attn_config"})
    linear = _linear_attention_config(config)
    delta, full = _delta_attention(linear), linear.layer_numbers("full_attn_layers")
    latent, experts = _latent_attention(values), _shared_experts(values)
    dense, ffn = values.optional("first_k_dense_replace") or 0, _ffn(values)
    mixers = _layer_kinds(
        values,
        lambda i: "full_attention" if i + 1 in full else "linear_attention",
        *("full_attention", "linear_attention"),
    )
    blocks = _layer_kinds(
        values,
        lambda i: "dense" if i < dense else "sparse",
        *("dense", "sparse"),
        key="mlp_layer_types",
    )
    return _decoder(
        values,
        grouped_layers(
            (
                latent if mixer == "full_attention" else delta,
                *((ffn, None) if block == "dense" else (None, experts)),
            )
            for mixer, block in zip(mixers, blocks, strict=True)
        ),
    )


_KIMI_NAMES: Final = {
    "num_experts": "n_routed_experts",
    "num_experts_per_token": "num_experts_per_tok",
    "num_shared_experts": "n_shared_experts",
}
"""Keys of Kimi Linear's configuration, and their names in DeepSeek's."""


_LINEAR_NAMES: Final = {
    "linear_num_heads": "num_heads",
    "linear_head_dim": "head_dim",
    "linear_conv_kernel_dim": "short_conv_kernel_size",
}
"""Keys of transformers, and those of the published `linear_attn_config`."""


def _linear_attention_config(config: Config) -> Config:
    layers = config.values.get("linear_attn_config")
    if layers is None and config.items("layer_types"):
        layers = {name: config.values.get(key) for key, name in _LINEAR_NAMES.items()}
    if not isinstance(layers, Mapping):
        raise messages.SHAPE_KEY_MISSING(source=config.source, keys="'linear_attn_config'")
    return Config(layers, f"linear_attn_config of {config.source}")


def _delta_attention(linear: Config) -> LinearAttention:
    """Return KDA: as many key heads as value heads, one width, a gate of that rank."""
    refuse(linear, "use_full_rank_gate")
    heads, width = linear.number("num_heads"), linear.number("head_dim")
    return LinearAttention(
        key_heads=heads,
        value_heads=heads,
        key_head_dim=width,
        value_head_dim=width,
        conv_kernel=linear.number("short_conv_kernel_size"),
        gate_rank=width,
    )


def _glm4_moe(config: Config) -> ModelShape:
    attention = replace(
        _gqa(config),
        qkv_bias=config.flag("attention_bias", default=False),
        qk_norm="head" if config.flag("use_qk_norm", default=False) else "none",
    )
    return _decoder(config, _leading_dense(config, attention, _shared_experts(config)))


def _gpt_oss(config: Config) -> ModelShape:
    bias = config.flag("attention_bias", default=True)
    attention = replace(_gqa(config, width=64), qkv_bias=bias, output_bias=bias, sinks=True)
    experts = MixtureOfExperts(
        experts=config.number("num_local_experts"),
        experts_per_token=config.number("num_experts_per_tok", "experts_per_token"),
        expert=_ffn(config, bias=True, fused=True),
        router_bias=True,
    )
    windows = _windows(config, lambda layer: layer % 2 == 0, config.number("sliding_window"))
    return _decoder(
        config, grouped_layers((replace(attention, window=w), None, experts) for w in windows)
    )


def _gemma(config: Config) -> ModelShape:
    attention = _gqa(config, width=256)
    return _decoder(config, _every_layer(config, attention, _ffn(config)), tied=True)


def _gemma2(config: Config) -> ModelShape:
    window = config.number("sliding_window", default=4096)
    windows = _windows(config, lambda layer: layer % 2 == 0, window)
    layers = windowed_layers(_gqa(config, width=256), windows, _ffn(config))
    return replace(_decoder(config, layers, tied=True), norms_per_layer=4)


def _gemma3(config: Config) -> ModelShape:
    """Text model of Gemma 3; its published configs leave out the class's defaults."""
    defaults = {"num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262208}
    values = config.with_values({**defaults, **config.values})
    pattern = values.number("sliding_window_pattern", default=6)
    window = values.number("sliding_window", default=4096)
    windows = _windows(values, lambda layer: (layer + 1) % pattern != 0, window)
    attention = replace(_gqa(values, width=256), qk_norm="head")
    layers = windowed_layers(attention, windows, _ffn(values))
    return replace(_decoder(values, layers, tied=True), norms_per_layer=4)


def _olmo2(config: Config) -> ModelShape:
    attention = _gqa(config, kv_heads=config.number("num_attention_heads"))
    attention = replace(attention, qk_norm="all")
    return _decoder(config, _every_layer(config, attention, _ffn(config)))


def _olmo(config: Config) -> ModelShape:
    """The first OLMo: its norms have no parameters."""
    return replace(_llama(config), norms_per_layer=0, final_norm=False)


def _olmo3(config: Config) -> ModelShape:
    attention = _gqa(config, kv_heads=config.number("num_attention_heads"))
    bias = config.flag("attention_bias", default=False)
    attention = replace(attention, qk_norm="all", qkv_bias=bias, output_bias=bias)
    window = config.number("sliding_window", default=4096)
    windows = _windows(config, lambda layer: (layer + 1) % 4 != 0, window)
    return _decoder(config, windowed_layers(attention, windows, _ffn(config)))


def _cohere(config: Config) -> ModelShape:
    attention = _gqa(config, kv_heads=config.number("num_attention_heads"))
    bias = config.flag("attention_bias", default=False)
    norm: Literal["none", "all"] = "all" if config.flag("use_qk_norm", default=False) else "none"
    attention = replace(attention, qkv_bias=bias, output_bias=bias, qk_norm=norm)
    shape = _decoder(config, _every_layer(config, attention, _ffn(config)), tied=True)
    return replace(shape, norms_per_layer=1)  # attention and feed-forward block run in parallel


def _glm4(config: Config) -> ModelShape:
    bias = config.flag("attention_bias", default=True)
    attention = replace(_gqa(config, width=128), qkv_bias=bias)
    layers = _every_layer(config, attention, _ffn(config, fused=True))
    return replace(_decoder(config, layers), norms_per_layer=4)


def _seed_oss(config: Config) -> ModelShape:
    attention = replace(
        _gqa(config, width=128),
        qkv_bias=config.flag("attention_bias", default=True),
        output_bias=config.flag("attention_out_bias", default=False),
    )
    ffn = _ffn(config, bias=config.flag("mlp_bias", default=False))
    return _decoder(config, _every_layer(config, attention, ffn))


def _smollm3(config: Config) -> ModelShape:
    """SmolLM3; refuses windows.

    Windows, where switched on, are in the layers without rotary embedding.
    """
    refuse(config, "use_sliding_window")
    values = {"tie_word_embeddings": True, "num_key_value_heads": 4, **config.values}
    return _llama(config.with_values(values))


def _llama4(config: Config) -> ModelShape:
    """Text model of Llama 4: three of four layers attend inside chunks."""
    kinds = _chunked_layers(config)
    bias = config.flag("attention_bias", default=False)
    attention = replace(_gqa(config, width=128), qkv_bias=bias, output_bias=bias)
    chunked = replace(attention, chunk=config.number("attention_chunk_size", default=8192))
    expert = _ffn(config)
    experts = MixtureOfExperts(
        experts=config.number("num_local_experts"),
        experts_per_token=config.number("num_experts_per_tok", default=1),
        expert=replace(expert, fused=True),
        shared=expert,
    )
    step = config.number("interleave_moe_layer_step", default=1)
    sparse = config.items("moe_layers")
    if config.values.get("moe_layers") is None:
        sparse = list(range(step - 1, len(kinds), step))
    ffn = None if len(sparse) == len(kinds) else _ffn(config, "intermediate_size_mlp")
    return _decoder(
        config,
        grouped_layers(
            (
                chunked if kind == "chunked_attention" else attention,
                *((None, experts) if i in sparse else (ffn, None)),
            )
            for i, kind in enumerate(kinds)
        ),
    )


def _chunked_layers(config: Config) -> list[str]:
    """Return the kind of attention of each layer: chunked if rotary, else full."""
    rotary = config.items("no_rope_layers")  # 1 where a layer has one
    count = config.number("num_hidden_layers")
    if rotary and len(rotary) != count:
        raise messages.LAYER_COUNT_DIFFERS(
            source=config.source, key="no_rope_layers", entries=len(rotary), layers=count
        )
    interval = config.number("no_rope_layer_interval", default=4)

    def by_default(layer: int) -> str:
        is_rotary = rotary[layer] if rotary else (layer + 1) % interval
        return "chunked_attention" if is_rotary else "full_attention"

    return _layer_kinds(config, by_default, "chunked_attention", "full_attention")


def _olmoe(config: Config) -> ModelShape:
    attention = _gqa(config, kv_heads=config.number("num_attention_heads"))
    experts = MixtureOfExperts(
        experts=config.number("num_experts"),
        experts_per_token=config.number("num_experts_per_tok"),
        expert=_ffn(config),
    )
    layers = LayerGroup(
        count=config.number("num_hidden_layers"),
        attention=replace(attention, qk_norm="all"),
        moe=experts,
    )
    return _decoder(config, (layers,))


def _phi3(config: Config) -> ModelShape:
    attention = _gqa(config, kv_heads=config.number("num_attention_heads"))
    attention = replace(attention, fused=True, window=config.optional("sliding_window"))
    return _decoder(config, _every_layer(config, attention, _ffn(config, fused=True)))


def _plain(
    config: Config, attention: Attention, ffn: FeedForward, *, count: int, hidden: int
) -> ModelShape:
    """Return a GPT-2-like decoder.

    LayerNorm, plain feed-forward blocks, tied embeddings.
    """
    return ModelShape(
        name=str(config.values.get("model_type")),
        hidden_size=hidden,
        vocab_size=config.number("vocab_size"),
        tied_embeddings=config.flag("tie_word_embeddings", default=True),
        layers=(LayerGroup(count=count, attention=attention, ffn=ffn),),
        norm="layer",
    )


def _biased(heads: int, hidden: int, *, kv_heads: int | None = None, bias: bool) -> Attention:
    return replace(
        grouped_query(heads, kv_heads or heads, head_width(hidden, heads)),
        qkv_bias=bias,
        output_bias=bias,
    )


def _gpt2(config: Config) -> ModelShape:
    hidden = config.number("n_embd", "hidden_size")
    width = config.number("n_inner", default=4 * hidden)
    shape = _plain(
        config,
        replace(_biased(config.number("n_head"), hidden, bias=True), fused=True),
        FeedForward(width=width, gated=False, bias=True),
        count=config.number("n_layer"),
        hidden=hidden,
    )
    return replace(shape, positions=config.number("n_positions"))


def _bloom(config: Config) -> ModelShape:
    hidden = config.number("hidden_size", "n_embed")
    heads = config.number("n_head", "num_attention_heads")
    shape = _plain(
        config,
        replace(_biased(heads, hidden, bias=True), fused=True),
        FeedForward(width=4 * hidden, gated=False, bias=True),
        count=config.number("n_layer", "num_hidden_layers"),
        hidden=hidden,
    )
    return replace(shape, embedding_norm=True)


def _opt(config: Config) -> ModelShape:
    hidden, table = config.number("hidden_size"), config.optional("word_embed_proj_dim")
    bias = config.flag("enable_bias", default=True)
    shape = _plain(
        config,
        _biased(config.number("num_attention_heads"), hidden, bias=bias),
        FeedForward(width=config.number("ffn_dim"), gated=False, bias=bias),
        count=config.number("num_hidden_layers"),
        hidden=hidden,
    )
    return replace(
        shape,
        positions=config.number("max_position_embeddings") + 2,  # OPT's table starts at row 2
        embedding_size=None if table in (None, hidden) else table,
        final_norm=config.flag("do_layer_norm_before", default=True),
    )


def _falcon(config: Config) -> ModelShape:
    hidden, heads = config.number("hidden_size"), config.number("num_attention_heads", "n_head")
    new = config.flag("new_decoder_architecture", default=False)
    multi_query = config.flag("multi_query", default=True)
    kv_heads = config.number("num_kv_heads") if new else 1 if multi_query else heads
    bias = config.flag("bias", default=False)
    width = config.number("ffn_hidden_size", default=4 * hidden)
    shape = _plain(
        config,
        replace(_biased(heads, hidden, kv_heads=kv_heads, bias=bias), fused=True),
        FeedForward(width=width, gated=False, bias=bias),
        count=config.number("num_hidden_layers", "n_layer"),
        hidden=hidden,
    )
    one_norm = config.flag("parallel_attn", default=True) and not new
    if new and config.optional("num_ln_in_parallel_attn") == 1:
        one_norm = True
    return replace(shape, norms_per_layer=1 if one_norm else 2)


def _phi(config: Config) -> ModelShape:
    """Phi 1 and 2: attention and feed-forward block in parallel after one norm."""
    refuse(config, "qk_layernorm")
    heads, hidden = config.number("num_attention_heads"), config.number("hidden_size")
    kv_heads = config.number("num_key_value_heads", default=heads)
    shape = _plain(
        config,
        _biased(heads, hidden, kv_heads=kv_heads, bias=True),
        FeedForward(width=config.number("intermediate_size"), gated=False, bias=True),
        count=config.number("num_hidden_layers"),
        hidden=hidden,
    )
    tied = config.flag("tie_word_embeddings", default=False)
    return replace(shape, norms_per_layer=1, head_bias=True, tied_embeddings=tied)


def _gpt_neox(config: Config) -> ModelShape:
    heads, hidden = config.number("num_attention_heads"), config.number("hidden_size")
    bias = config.flag("attention_bias", default=True)
    shape = _plain(
        config,
        replace(_biased(heads, hidden, bias=bias), fused=True),
        FeedForward(width=config.number("intermediate_size"), gated=False, bias=True),
        count=config.number("num_hidden_layers"),
        hidden=hidden,
    )
    return replace(shape, tied_embeddings=config.flag("tie_word_embeddings", default=False))


def _starcoder2(config: Config) -> ModelShape:
    heads, hidden = config.number("num_attention_heads"), config.number("hidden_size")
    bias = config.flag("use_bias", default=True)
    attention = _biased(heads, hidden, kv_heads=config.number("num_key_value_heads"), bias=bias)
    return _plain(
        config,
        replace(attention, window=config.optional("sliding_window")),
        FeedForward(width=config.number("intermediate_size"), gated=False, bias=bias),
        count=config.number("num_hidden_layers"),
        hidden=hidden,
    )


def _stablelm(config: Config) -> ModelShape:
    refuse(config, "qk_layernorm")
    attention = replace(_gqa(config), qkv_bias=config.flag("use_qkv_bias", default=False))
    shape = _decoder(config, _every_layer(config, attention, _ffn(config)))
    parallel = config.flag("use_parallel_residual", default=False)
    return replace(shape, norm="layer", norms_per_layer=1 if parallel else 2)


_HUGGING_FACE: Mapping[str, Callable[[Config], ModelShape]] = {
    "bloom": _bloom,
    "cohere": _cohere,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "falcon": _falcon,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "glm4": _glm4,
    "glm4_moe": _glm4_moe,
    "gpt2": _gpt2,
    "gpt-sw3": _gpt2,
    "gpt_neox": _gpt_neox,
    "gpt_oss": _gpt_oss,
    "granite": _llama,
    "internlm": _internlm,
    "internlm2": _internlm2,
    "internlm3": _internlm3,
    "kimi_k2": _deepseek,
    "kimi_linear": _kimi_linear,
    "llama": _llama,
    "llama4_text": _llama4,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "olmo": _olmo,
    "olmo2": _olmo2,
    "olmo3": _olmo3,
    "olmoe": _olmoe,
    "opt": _opt,
    "phi": _phi,
    "phi3": _phi3,
    "qwen2": _qwen2,
    "qwen2_5_vl": _qwen2,  # flat, as published: text keys beside vision_config
    "qwen2_5_vl_text": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen2_vl": _qwen2,
    "qwen2_vl_text": _qwen2,
    "qwen3": _qwen3,
    "qwen3_5_moe_text": _qwen3_5_moe,
    "qwen3_5_text": _qwen3_5,
    "qwen3_moe": _qwen3_moe,
    "qwen3_next": _qwen3_next,
    "qwen3_vl_moe_text": _qwen3_vl_moe,
    "qwen3_vl_text": _qwen3,
    "sarvam_moe": _glm4_moe,
    "seed_oss": _seed_oss,
    "smollm3": _smollm3,
    "stablelm": _stablelm,
    "starcoder2": _starcoder2,
}

# Defaults of nested configurations (transformers 5.23.0), in the order of `CONFIG_DIMENSIONS`.
CONFIG_DIMENSIONS = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
)
_NESTED_DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "llama": dict(zip(CONFIG_DIMENSIONS, (4096, 32, 32, 32, 11008, 32000), strict=True)),
    "qwen2_vl_text": dict(zip(CONFIG_DIMENSIONS, (8192, 80, 64, 8, 29568, 152064), strict=True)),
    "qwen2_5_vl_text": dict(zip(CONFIG_DIMENSIONS, (8192, 80, 64, 8, 29568, 152064), strict=True)),
    "qwen3_vl_text": dict(zip(CONFIG_DIMENSIONS, (4096, 32, 32, 32, 22016, 151936), strict=True)),
}
