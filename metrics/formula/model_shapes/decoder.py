"""Decoders as data: one record for each model_type, and the reader of all of them.

A record says which parts a layer has and which keys of config.json hold their sizes; the reader
goes through the layers one by one, so that each may differ (`layer_types`, `mlp_layer_types`,
`per_layer_config`). The keys are Llama's unless `names` renames them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final, Literal, cast

from fairmfu.ingest.core.data_files import read_data_file

from .. import messages
from .config import Config
from .shape import (
    Attention,
    FeedForward,
    LayerGroup,
    Mixer,
    MixtureOfExperts,
    ModelShape,
    Weight,
    counted_layers,
    head_width,
)

Switch = bool | str
"""Yes, no, or the key of the config that says so; an absent key is no."""

Sizes = tuple[str | int, ...]
"""Numbers of parameters: numbers, or keys of the config that hold them."""

MixerReader = Callable[[Config], Mixer | None]
ConfigChange = Callable[[Config], Config]
LayerChange = Callable[[Config, LayerGroup], LayerGroup]
ModelChange = Callable[[Config, ModelShape], ModelShape]


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Experts of a model_type, by the keys of their sizes.

    count, chosen: keys of the number of experts, and of those that a token passes
    width: key of their width
    shared_count: key of the number of shared experts, each as wide as a routed one
    shared_width: key of the width of all shared experts together; with `shared_count`, of one
    shared_gate: a gate of one output over the shared block
    gated, bias, fused: as `FeedForward`
    router_bias: the router has a bias, or a parameter for each expert that balances the load
    named_layers: the config names the layers with experts: without any of these keys, it is
        incomplete
    beside_dense: the dense block runs beside the experts in the same layer
    vectors: more parameters outside the matrices
    """

    count: str = "num_experts"
    chosen: str = "num_experts_per_tok"
    width: str = "moe_intermediate_size"
    shared_count: str | None = None
    shared_width: str | None = None
    shared_gate: bool = False
    gated: bool = True
    bias: bool = False
    fused: bool = True
    router_bias: bool = False
    named_layers: bool = False
    beside_dense: bool = False
    vectors: Sizes = ()

    @property
    def keys(self) -> set[str]:
        """Keys of the sizes, which a config also has where no layer has experts."""
        keys = (self.count, self.chosen, self.width, self.shared_count, self.shared_width)
        return {key for key in keys if key is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """Decoder of a model_type: attention, feed-forward blocks and norms.

    classes: classes of other model types that its configs name
    names: keys of this model_type → Llama's keys; defaults: values of absent keys
    ignored: keys that its code does not use
    required: keys of lists by layer that the config has to have
    latent: multi-head latent attention
    indexer: sparse attention with an indexer, in layers of kind `indexed_attention`
    window_keys: keys of windowed layers → the keys of other layers that they replace
    window_kv_times: key and value heads of windowed layers for one of other layers
    gate: output gate of its own projection: one output per head, or as wide as the values
    sinks: one learned score per head; `sliding`: in layers of kind `sliding_attention` alone
    kinds: names of layer kinds of this model_type → the usual names
    mixers: readers of the mixers of layer kinds other than attention
    windowed: layers of kind `sliding_attention` have the window `sliding_window`; `all`: every
        layer has, if the key is set
    full_every: key, and default, of the distance of full layers where `layer_types` is absent
    per_layer: keys of lists with a value for each layer → the key of the layer's value
    feed_forward: layers have a feed-forward block
    gated, ffn_bias, ffn_fused: as `FeedForward`
    ffn_times: width of the block in hidden sizes, or the key of it, where no width is given
    activations: values of hidden_act besides the usual ones for such blocks
    position_offset: rows of a learned position table beyond max_position_embeddings; None: no table
    attention_vectors, layer_vectors, model_vectors: more parameters outside the matrices
    change_config: completes the config, where a rename of keys is not enough
    change_layer: completes a layer; its config also has `layer_index` and `layer_kind`
    change_model: completes the model
    """

    classes: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, object] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    latent: bool = False
    indexer: bool = False
    window_keys: Mapping[str, str] = field(default_factory=dict)
    window_kv_times: int = 1
    fused: bool = False
    qkv_bias: Switch = "attention_bias"
    output_bias: Switch = "attention_bias"
    qk_norm: Literal["none", "head", "all"] = "none"
    gate: Literal["none", "head", "width"] = "none"
    sinks: bool | Literal["sliding"] = False
    kinds: Mapping[str, str] = field(default_factory=dict)
    mixers: Mapping[str, MixerReader] = field(default_factory=dict)
    windowed: bool | Literal["all"] = False
    full_every: tuple[str, int] | None = None
    per_layer: Mapping[str, str] = field(default_factory=dict)
    feed_forward: bool = True
    gated: bool = True
    ffn_bias: Switch = False
    ffn_fused: bool = False
    ffn_times: int | str | None = None
    activations: tuple[str, ...] = ()
    experts: Experts | None = None
    norm: Literal["rms", "layer"] = "rms"
    norms_per_layer: int = 2
    final_norm: bool = True
    embedding_norm: bool = False
    tied: bool = False
    head_bias: Switch = False
    position_offset: int | None = None
    attention_vectors: Sizes = ()
    layer_vectors: Sizes = ()
    model_vectors: Sizes = ()
    change_config: ConfigChange | None = None
    change_layer: LayerChange | None = None
    change_model: ModelChange | None = None


def read_decoder(config: Config, decoder: Decoder) -> ModelShape:
    """Return the shape of a config of this kind of decoder.

    Raises ShapeError for a missing or malformed key.
    """
    config = common_config(config, decoder)
    shape = read_model(config, decoder, tuple(layer_groups(config, decoder)))
    return decoder.change_model(config, shape) if decoder.change_model else shape


def common_config(config: Config, decoder: Decoder) -> Config:
    """Return the config with Llama's names of the keys, and with its class's defaults."""
    config.read_keys.update(decoder.names, decoder.ignored)
    defaults = _class_defaults().get(str(config.values.get("model_type")), {})
    values = {**defaults, **config.values}
    given = {key: value for key, value in values.items() if value is not None}
    renamed = {decoder.names.get(key, key): value for key, value in given.items()}
    for key in decoder.required:
        if key not in given:
            raise messages.SHAPE_KEY_MISSING(source=config.source, keys=repr(key))
    config = config.with_values({**decoder.defaults, **renamed})
    return decoder.change_config(config) if decoder.change_config else config


@cache
def _class_defaults() -> Mapping[str, Mapping[str, object]]:
    """Return the defaults of absent keys by model_type; null is no absence."""
    defaults = read_data_file(__package__, "decoder_defaults.toml")
    return cast("Mapping[str, Mapping[str, object]]", defaults)


def read_model(config: Config, decoder: Decoder, layers: Sequence[LayerGroup]) -> ModelShape:
    """Return the model around these layers."""
    offset = decoder.position_offset
    positions = 0 if offset is None else config.number("max_position_embeddings") + offset
    return ModelShape(
        name=str(config.values.get("model_type")),
        hidden_size=config.number("hidden_size"),
        vocab_size=config.number("vocab_size"),
        tied_embeddings=config.flag("tie_word_embeddings", default=decoder.tied),
        layers=counted_layers(layers),
        norm=decoder.norm,
        norms_per_layer=decoder.norms_per_layer,
        final_norm=decoder.final_norm,
        embedding_norm=decoder.embedding_norm,
        positions=positions,
        head_bias=switch(config, decoder.head_bias),
        extra_params=size(config, decoder.model_vectors),
    )


def layer_groups(config: Config, decoder: Decoder) -> Iterator[LayerGroup]:
    """Yield the layers, one group each."""
    kinds = mixer_kinds(config, decoder)
    sparse = [False] * len(kinds)
    if decoder.experts:
        sparse = sparse_layers(config, len(kinds), named=decoder.experts.named_layers)
        config.read_keys.update(decoder.experts.keys)
    for index, kind in enumerate(kinds):
        layer = config_of_layer(config, decoder, index)
        layer = layer.with_values({**layer.values, "layer_index": index, "layer_kind": kind})
        mixer = read_mixer(layer, decoder, kind)
        group = read_layer(layer, decoder, mixer, has_experts=sparse[index])
        yield decoder.change_layer(layer, group) if decoder.change_layer else group


def read_layer(
    config: Config, decoder: Decoder, mixer: Mixer | None, *, has_experts: bool
) -> LayerGroup:
    """Return one layer with this mixer."""
    experts = decoder.experts
    beside = experts is not None and experts.beside_dense
    dense = decoder.feed_forward and (beside or not has_experts)
    return LayerGroup(
        count=1,
        attention=mixer,
        ffn=read_ffn(config, decoder) if dense else None,
        moe=read_experts(config, experts) if has_experts and experts else None,
        extra_params=size(config, decoder.layer_vectors),
    )


# --- layers ---------------------------------------------------------------------------------


def config_of_layer(config: Config, decoder: Decoder, index: int) -> Config:
    """Return the config of one layer, from `per_layer_config` and lists by layer."""
    config.read_keys.add("per_layer_config")
    layers = config.values.get("per_layer_config") or {}
    if not isinstance(layers, Mapping):
        raise messages.SHAPE_KEY_MALFORMED(
            source=config.source, key="per_layer_config", value=layers, wanted="a mapping"
        )
    values: object = next(
        (v for key, v in layers.items() if str(key).isdigit() and int(key) == index), {}
    )
    if not isinstance(values, Mapping):
        raise messages.SHAPE_KEY_MALFORMED(
            source=config.source,
            key=f"per_layer_config.{index}",
            value=values,
            wanted="a mapping",
        )
    config.read_keys.update(decoder.per_layer)
    lists = {
        key: items[index]
        for listed, key in decoder.per_layer.items()
        if isinstance(items := config.values.get(listed), list) and len(items) > index
    }
    return config.with_values({**config.values, **lists, **values}) if lists or values else config


_PATTERN_KEYS: Final = {"sliding_window_pattern", "full_attention_interval", "layer_group_size"}
"""Keys of a pattern that `layer_types` writes out."""

_STATE_KEYS: Final = {"linear_num_value_heads", "mamba_d_state", "mamba_num_heads"}
"""Sizes of mixers that no layer may have."""

_ATTENTIONS: Final = {
    "full_attention",
    "attention",
    "sliding_attention",
    "indexed_attention",
    "minimax_m3_sparse",
}


def mixer_kinds(config: Config, decoder: Decoder) -> list[str]:
    """Return the kind of mixer of each layer: `layer_types`, or a pattern."""
    count = config.number("num_hidden_layers")
    kinds = [decoder.kinds.get(str(kind), str(kind)) for kind in config.items("layer_types")]
    if not kinds:
        return _kinds_by_pattern(config, decoder, count)
    config.read_keys.update(_PATTERN_KEYS)
    if decoder.mixers:
        config.read_keys.update(_STATE_KEYS)
    allowed = {*_ATTENTIONS, *decoder.mixers}
    check_layers(config, "layer_types", kinds, allowed=allowed, count=count)
    return kinds


def check_layers(
    config: Config, key: str, kinds: Sequence[str], *, allowed: Collection[str], count: int
) -> None:
    """Raise ShapeError for an unknown kind of layer, or a wrong number of layers."""
    if unknown := sorted(set(kinds) - set(allowed)):
        raise messages.UNKNOWN_LAYER_KIND(source=config.source, key=key, kinds=", ".join(unknown))
    if len(kinds) != count:
        raise messages.LAYER_COUNT_DIFFERS(
            source=config.source, key=key, entries=len(kinds), layers=count
        )


def _kinds_by_pattern(config: Config, decoder: Decoder, count: int) -> list[str]:
    if decoder.indexer and not decoder.windowed:
        return ["indexed_attention"] * count
    hybrid = bool(decoder.mixers) and "full_attention" not in decoder.mixers
    window = decoder.windowed is True and config.optional("sliding_window") is not None
    if hybrid or (window and decoder.full_every is None):
        raise messages.SHAPE_KEY_MISSING(source=config.source, keys="'layer_types'")
    if decoder.full_every is None or not window:
        return ["full_attention"] * count
    key, default = decoder.full_every
    step = config.number(key, default=default)
    return [
        "sliding_attention" if (layer + 1) % step else "full_attention" for layer in range(count)
    ]


_SPARSE_KEYS: Final = (
    *("mlp_layer_types", "first_k_dense_replace", "mlp_only_layers", "moe_layer_freq"),
    "decoder_sparse_step",
)


def sparse_layers(config: Config, count: int, *, named: bool) -> list[bool]:
    """Return whether each layer has experts.

    By `mlp_layer_types`; or after `first_k_dense_replace`, in every `moe_layer_freq`-th layer; or
    in every `decoder_sparse_step`-th without `mlp_only_layers`. If the config has to name the
    layers with experts, one of these keys must be there.
    """
    if named and all(config.values.get(key) is None for key in _SPARSE_KEYS):
        keys = "'mlp_layer_types' or 'first_k_dense_replace'"
        raise messages.SHAPE_KEY_MISSING(source=config.source, keys=keys)
    dense = config.layer_numbers("mlp_only_layers")
    first = config.optional("first_k_dense_replace") or 0
    freq = config.number("moe_layer_freq", default=1)
    step = config.number("decoder_sparse_step", default=1)
    kinds = config.items("mlp_layer_types")
    if not kinds:
        return [
            i >= first and i % freq == 0 and (i + 1) % step == 0 and i not in dense
            for i in range(count)
        ]
    allowed = {"dense", "sparse", "moe", "hash_moe"}
    check_layers(config, "mlp_layer_types", list(map(str, kinds)), allowed=allowed, count=count)
    return [kind != "dense" for kind in kinds]


SparseReader = Callable[[Config, Attention], Attention]


def read_mixer(config: Config, decoder: Decoder, kind: str) -> Mixer | None:
    """Return the mixer of a layer of this kind."""
    if kind in decoder.mixers:
        return decoder.mixers[kind](config)
    if "sliding" in kind:
        config = _windowed_config(config, decoder)
    attention = read_attention(config, decoder, kind)
    if kind in SPARSE:
        return SPARSE[kind](config, attention)
    window = _window(config, decoder, kind)
    return attention if window is None else replace(attention, window=window)


def _windowed_config(config: Config, decoder: Decoder) -> Config:
    """Return the config of a layer with a window, with its own heads, if any."""
    config.read_keys.update(decoder.window_keys)
    own = {
        key: config.values[listed]
        for listed, key in decoder.window_keys.items()
        if config.values.get(listed) is not None
    }
    if decoder.window_kv_times > 1:
        own["num_key_value_heads"] = decoder.window_kv_times * config.number("num_key_value_heads")
    return config.with_values({**config.values, **own}) if own else config


def _window(config: Config, decoder: Decoder, kind: str) -> int | None:
    if not decoder.windowed:
        return None
    window = config.optional("sliding_window")
    if decoder.windowed == "all":
        return window
    if kind == "sliding_attention" and window is None:
        raise messages.SHAPE_KEY_MISSING(source=config.source, keys="'sliding_window'")
    return window if kind == "sliding_attention" else None


# --- attention ------------------------------------------------------------------------------


def read_attention(config: Config, decoder: Decoder, kind: str = "full_attention") -> Attention:
    """Return the attention of a layer, without its window."""
    attention = latent_attention(config) if decoder.latent else _grouped_query(config)
    gate = {
        "none": 0,
        "head": attention.heads,
        "width": attention.heads * attention.v_head_dim,
    }[decoder.gate]
    hidden = config.number("hidden_size")
    return replace(
        attention,
        fused=decoder.fused,
        qkv_bias=switch(config, decoder.qkv_bias),
        output_bias=switch(config, decoder.output_bias),
        qk_norm=decoder.qk_norm,
        sinks=decoder.sinks is True or (decoder.sinks == "sliding" and "sliding" in kind),
        extra=(Weight("attention_gate", hidden, gate),) if gate else (),
        extra_params=size(config, decoder.attention_vectors),
    )


def _grouped_query(config: Config) -> Attention:
    heads = config.number("num_attention_heads")
    width = config.optional("head_dim") or head_width(config.number("hidden_size"), heads)
    return Attention(
        heads=heads,
        kv_heads=config.number("num_key_value_heads", default=heads),
        qk_head_dim=width,
        v_head_dim=config.optional("v_head_dim") or width,
    )


def latent_attention(config: Config) -> Attention:
    """Return the multi-head latent attention (MLA) of a model, without biases."""
    heads, rope = config.number("num_attention_heads"), config.number("qk_rope_head_dim")
    return Attention(
        heads=heads,
        kv_heads=heads,
        qk_head_dim=config.number("qk_nope_head_dim") + rope,
        v_head_dim=config.number("v_head_dim"),
        kv_lora_rank=config.number("kv_lora_rank"),
        q_lora_rank=config.optional("q_lora_rank"),
        rope_head_dim=rope,
    )


def with_indexer(config: Config, attention: Attention) -> Attention:
    """Return attention whose indexer keeps the best keys (DeepSeek-V3.2)."""
    attention = replace(attention, top_k=config.number("index_topk"))
    if config.choice("indexer_type", "full", "shared", default="full") == "shared":
        return attention  # the keys that an earlier layer chose
    heads, width = config.number("index_n_heads"), config.number("index_head_dim")
    hidden = config.number("hidden_size")
    return replace(
        attention,
        indexer=(
            Weight("wq_b", attention.q_lora_rank or hidden, heads * width),
            Weight("wk", hidden, width),
            Weight("weights_proj", hidden, heads),
        ),
        score_width=heads * (width + 1),
        extra_params=attention.extra_params + 2 * width,  # LayerNorm of the keys
    )


def block_sparse(config: Config, attention: Attention) -> Attention:
    """Return attention whose indexer keeps the best blocks of keys (MiniMax-M3)."""
    heads, width = config.number("index_n_heads"), config.number("index_head_dim")
    hidden, block = config.number("hidden_size"), config.number("index_block_size")
    return replace(
        attention,
        top_k=config.number("index_topk_blocks") * block,
        key_block=block,
        indexer=(Weight("q_proj", hidden, heads * width), Weight("k_proj", hidden, width)),
        score_width=heads * width,
        extra_params=attention.extra_params + 2 * width,
    )


SPARSE: Final[Mapping[str, SparseReader]] = {
    "indexed_attention": with_indexer,
    "minimax_m3_sparse": block_sparse,
}
"""Readers of sparse attention by layer kind."""


# --- feed-forward blocks --------------------------------------------------------------------

_PLAIN_ACTIVATIONS: Final = {"relu2", "relu_squared", "squared_relu", "xielu"}
_ACTIVATION_KEYS: Final = ("hidden_act", "hidden_activation", "mlp_hidden_act")


def check_activation(config: Config, *, gated: bool, others: Sequence[str] = ()) -> None:
    """Raise ShapeError for an activation of another kind of feed-forward block.

    Squared ReLU and xIELU belong to plain blocks, names with glu to gated ones.

    others: activations that this model_type has all the same
    """
    for key in _ACTIVATION_KEYS:
        given = config.values.get(key)
        value = str(given)
        if given is None or value in others:
            continue
        if value in _PLAIN_ACTIVATIONS if gated else "glu" in value:
            block = "gated" if gated else "plain"
            raise messages.ACTIVATION_CONTRADICTS(
                source=config.source, key=key, value=value[:40], block=block
            )


def read_ffn(config: Config, decoder: Decoder) -> FeedForward:
    """Return the dense feed-forward block."""
    return FeedForward(
        width=_ffn_width(config, decoder),
        gated=decoder.gated,
        bias=switch(config, decoder.ffn_bias),
        fused=decoder.ffn_fused,
    )


def _ffn_width(config: Config, decoder: Decoder) -> int:
    times = decoder.ffn_times
    if times is None:
        return config.number("intermediate_size")
    if isinstance(times, str):
        times = config.number(times)
    return config.number("intermediate_size", default=times * config.number("hidden_size"))


def read_experts(config: Config, experts: Experts) -> MixtureOfExperts:
    """Return the routed and shared experts of a layer."""
    expert = FeedForward(
        width=config.number(experts.width),
        gated=experts.gated,
        bias=experts.bias,
        fused=experts.fused,
    )
    return MixtureOfExperts(
        experts=config.number(experts.count),
        experts_per_token=config.number(experts.chosen),
        expert=expert,
        router_bias=experts.router_bias,
        shared=_shared(config, experts, expert),
        shared_gates=int(experts.shared_gate),
        extra_params=size(config, experts.vectors),
    )


def _shared(config: Config, experts: Experts, expert: FeedForward) -> FeedForward | None:
    if experts.shared_width is None and experts.shared_count is None:
        return None
    count, width = 1, expert.width
    if experts.shared_count is not None:
        count = config.optional(experts.shared_count) or 0
    if experts.shared_width is not None:
        width = config.optional(experts.shared_width) or 0
    width *= count
    return replace(expert, width=width, fused=False) if width else None


# --- values ---------------------------------------------------------------------------------


def switch(config: Config, value: Switch) -> bool:
    """Return a switch of a record: as fixed, or as the config's key says."""
    return value if isinstance(value, bool) else config.flag(value, default=False)


def size(config: Config, sizes: Sizes) -> int:
    """Return the sum of numbers and of the config's numbers."""
    return sum(s if isinstance(s, int) else config.number(s) for s in sizes)
