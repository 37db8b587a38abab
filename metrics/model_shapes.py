"""Model shapes: the dimensions that the formula needs, and that count a model's parameters.

A shape comes from one of four places, never from a guess:

    known(name)                a model that people call by name, or a framework's own flavour
    from_hugging_face(config)  a Hugging Face config.json, by its model_type
    from_megatron(arguments)   the arguments header of Megatron-DeepSpeed
    from_torchtitan(flavour)   torchtitan's `Building … with …ModelArgs(…)`, or its flavour alone

Errors:

    ShapeError (ValueError)
    └── UnknownModelError      `known` has no model of this name
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, Literal

from ingest.errors import FairmfuError

__all__ = [
    "Attention",
    "Config",
    "FeedForward",
    "LayerGroup",
    "LinearAttention",
    "MixtureOfExperts",
    "ModelShape",
    "ShapeError",
    "UnknownModelError",
    "Weight",
    "adapted",
    "from_hugging_face",
    "from_megatron",
    "from_torchtitan",
    "known",
    "known_models",
    "text_config",
    "with_params_total",
]


class ShapeError(FairmfuError, ValueError):
    """A configuration that does not give a shape."""


class UnknownModelError(ShapeError):
    """No known model has this name.

    name: as it was given
    nearest: known names that look like it, nearest first
    """

    def __init__(self, name: str, nearest: list[str]) -> None:
        self.name = name
        self.nearest = nearest
        hint = f" Nearest known: {', '.join(nearest)}." if nearest else ""
        super().__init__(
            f"No known model is called {name!r}, and a model's dimensions are never guessed from"
            f" its name.{hint} Give its config, model_config=PATH/config.json, or one of the names"
            " that `fairmfu models` lists, model=NAME."
        )


# --- the shape ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Weight:
    """One kind of weight matrix of a layer.

    name: as Hugging Face's Llama and DeepSeek name the projection
    copies: how many of them the layer holds (experts)
    per_token: by how many of them one token is multiplied (experts per token)
    """

    name: str
    rows: int
    columns: int
    copies: int = 1
    per_token: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Softmax attention of one layer: MHA, GQA and MQA, or MLA where `kv_lora_rank` is set.

    heads, kv_heads: query heads; key/value heads (MLA: as many as query heads)
    qk_head_dim, v_head_dim: width of one head of query and key, and of value; MLA: nope + rope
    window: keys that a query sees, itself included; None: no window
    chunk: tokens of the chunks that attention stays inside of; None: no chunks
    kv_lora_rank, q_lora_rank, rope_head_dim: MLA; no q_lora_rank: one full query projection
    fused: query, key and value are one weight (counts for adapters only)
    gated: the query projection also makes a gate on the output (Qwen3-Next)
    qkv_bias, output_bias: biases of the projections
    qk_norm: RMSNorm of query and key, `head`: one weight per head width, `all`: over all heads
    sinks: one learned score per head
    """

    heads: int
    kv_heads: int
    qk_head_dim: int
    v_head_dim: int
    window: int | None = None
    chunk: int | None = None
    causal: bool = True
    kv_lora_rank: int | None = None
    q_lora_rank: int | None = None
    rope_head_dim: int = 0
    fused: bool = False
    gated: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: Literal["none", "head", "all"] = "none"
    sinks: bool = False

    def weights(self, hidden: int) -> tuple[Weight, ...]:
        """Weight matrices of a layer whose input is `hidden` wide."""
        query, key = self._query_width(), self.kv_heads * self.qk_head_dim
        value = self.kv_heads * self.v_head_dim
        output = Weight("o_proj", self.heads * self.v_head_dim, hidden)
        if self.kv_lora_rank is not None:
            return (*self._latent_weights(hidden, self.kv_lora_rank), output)
        if self.fused:
            return Weight("qkv_proj", hidden, query + key + value), output
        return (
            Weight("q_proj", hidden, query),
            Weight("k_proj", hidden, key),
            Weight("v_proj", hidden, value),
            output,
        )

    def _query_width(self) -> int:
        """Outputs of the query projection, the gate among them."""
        return self.heads * (self.qk_head_dim + (self.v_head_dim if self.gated else 0))

    def _latent_weights(self, hidden: int, rank: int) -> Iterator[Weight]:
        query = self.heads * self.qk_head_dim
        if self.q_lora_rank is None:
            yield Weight("q_proj", hidden, query)
        else:
            yield Weight("q_a_proj", hidden, self.q_lora_rank)
            yield Weight("q_b_proj", self.q_lora_rank, query)
        nope = self.qk_head_dim - self.rope_head_dim
        yield Weight("kv_a_proj_with_mqa", hidden, rank + self.rope_head_dim)
        yield Weight("kv_b_proj", rank, self.heads * (nope + self.v_head_dim))

    def vector_params(self, hidden: int) -> int:
        """Parameters outside the matrices: biases, norms of query and key, sinks."""
        return self.bias_params(hidden) + self.norm_params() + self.sink_params()

    def bias_params(self, hidden: int) -> int:
        """Parameters of the projections' biases."""
        output = hidden if self.output_bias else 0
        return output + (self._qkv_bias_params() if self.qkv_bias else 0)

    def sink_params(self) -> int:
        """Parameters of the sinks."""
        return self.heads if self.sinks else 0

    def _qkv_bias_params(self) -> int:
        if self.kv_lora_rank is not None:
            return (self.q_lora_rank or 0) + self.kv_lora_rank + self.rope_head_dim
        key_value = self.kv_heads * (self.qk_head_dim + self.v_head_dim)
        return self._query_width() + key_value

    def norm_params(self) -> int:
        """Parameters of the norms of query and key, and of MLA's latent vectors."""
        latent = (self.kv_lora_rank or 0) + (self.q_lora_rank or 0)
        per_head = {"none": 0, "head": 2, "all": self.heads + self.kv_heads}[self.qk_norm]
        return latent + per_head * self.qk_head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearAttention:
    """Attention through a recurrent state: Gated DeltaNet, or KDA where `gate_rank` is set.

    Each value head keeps a state of key_head_dim x value_head_dim; queries, keys and values pass a
    short convolution first (Gated DeltaNet, arXiv:2412.06464; Kimi Linear, arXiv:2510.26692).

    conv_kernel: tokens that the convolution spans
    gate_rank: KDA's rank of the decay per channel and of the output gate; None: Gated DeltaNet's
        full output gate, and one decay per head
    fused: query, key, value and gate are one weight, as in Qwen3-Next (counts for adapters only)
    """

    key_heads: int
    value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int
    gate_rank: int | None = None
    fused: bool = False

    @property
    def key_width(self) -> int:
        """All key heads together."""
        return self.key_heads * self.key_head_dim

    @property
    def value_width(self) -> int:
        """All value heads together."""
        return self.value_heads * self.value_head_dim

    def weights(self, hidden: int) -> Iterator[Weight]:
        """Weight matrices of a layer; the convolution's kernel is one, of `conv_kernel` rows."""
        key, value = self.key_width, self.value_width
        if self.gate_rank is None:
            yield from self._delta_weights(hidden)
        else:
            yield from self._kimi_weights(hidden, self.gate_rank)
        yield Weight("conv1d", self.conv_kernel, 2 * key + value)
        yield Weight("out_proj" if self.gate_rank is None else "o_proj", value, hidden)

    def _delta_weights(self, hidden: int) -> Iterator[Weight]:
        key, value, heads = self.key_width, self.value_width, self.value_heads
        if self.fused:
            yield Weight("in_proj_qkvz", hidden, 2 * key + 2 * value)
            yield Weight("in_proj_ba", hidden, 2 * heads)
        else:
            yield Weight("in_proj_qkv", hidden, 2 * key + value)
            yield Weight("in_proj_z", hidden, value)
            yield Weight("in_proj_b", hidden, heads)
            yield Weight("in_proj_a", hidden, heads)

    def _kimi_weights(self, hidden: int, rank: int) -> Iterator[Weight]:
        key, value = self.key_width, self.value_width
        yield Weight("q_proj", hidden, key)
        yield Weight("k_proj", hidden, key)
        yield Weight("v_proj", hidden, value)
        yield Weight("b_proj", hidden, self.value_heads)
        for name, width in (("f", key), ("g", value)):
            yield Weight(f"{name}_a_proj", hidden, rank)
            yield Weight(f"{name}_b_proj", rank, width)

    def vector_params(self, hidden: int) -> int:  # noqa: ARG002 (as Attention's)
        """Parameters outside the matrices: decay, its bias, and the norm before the output."""
        decays = self.value_heads if self.gate_rank is None else self.key_width
        return self.value_heads + decays + self.value_head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForward:
    """A feed-forward block: gated (SwiGLU, GeGLU: three matrices) or plain (two).

    fused: gate and up are one weight (counts for adapters only)
    """

    width: int
    gated: bool = True
    bias: bool = False
    fused: bool = False

    def weights(self, hidden: int, copies: int = 1, per_token: int = 1) -> Iterator[Weight]:
        """Weight matrices of `copies` such blocks."""
        if self.gated and self.fused:
            yield Weight("gate_up_proj", hidden, 2 * self.width, copies, per_token)
        elif self.gated:
            yield Weight("gate_proj", hidden, self.width, copies, per_token)
        if not (self.gated and self.fused):
            yield Weight("up_proj", hidden, self.width, copies, per_token)
        yield Weight("down_proj", self.width, hidden, copies, per_token)

    def bias_params(self, hidden: int) -> int:
        """Parameters of the biases of one block."""
        return ((2 if self.gated else 1) * self.width + hidden) if self.bias else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureOfExperts:
    """Routed experts with their router, and experts that every token passes.

    expert: one routed expert
    shared: all shared experts together, as one block of their summed width
    shared_gates: outputs of the gate over the shared block; 0: it has none
    """

    experts: int
    experts_per_token: int
    expert: FeedForward
    router_bias: bool = False
    shared: FeedForward | None = None
    shared_gates: int = 0

    def __post_init__(self) -> None:
        if self.experts_per_token > self.experts:
            raise ShapeError(
                f"A token cannot pass {self.experts_per_token:,} of {self.experts:,} experts."
            )

    def weights(self, hidden: int) -> Iterator[Weight]:
        """Weight matrices of a layer."""
        yield Weight("router", hidden, self.experts)
        yield from self.expert.weights(hidden, self.experts, self.experts_per_token)
        if self.shared is not None:
            yield from self.shared.weights(hidden)
        if self.shared_gates:
            yield Weight("shared_gate", hidden, self.shared_gates)

    def bias_params(self, hidden: int, experts: int) -> int:
        """Parameters of the biases, of this many of the routed experts."""
        shared = self.shared.bias_params(hidden) if self.shared else 0
        router = self.experts if self.router_bias else 0
        return experts * self.expert.bias_params(hidden) + shared + router


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """Layers that are equal in shape; they need not be neighbours.

    ffn, moe: one of them, or both where a dense block runs beside the experts
    """

    count: int
    attention: Attention | LinearAttention
    ffn: FeedForward | None = None
    moe: MixtureOfExperts | None = None

    def __post_init__(self) -> None:
        if self.ffn is None and self.moe is None:
            raise ShapeError("A layer needs a feed-forward block: give ffn, moe or both.")

    def weights(self, hidden: int) -> Iterator[Weight]:
        """Weight matrices of one of the layers."""
        yield from self.attention.weights(hidden)
        if self.ffn is not None:
            yield from self.ffn.weights(hidden)
        if self.moe is not None:
            yield from self.moe.weights(hidden)

    def vector_params(self, hidden: int, *, active: bool = False) -> int:
        """Parameters of one layer outside its matrices and layer norms."""
        params = self.attention.vector_params(hidden)
        if self.ffn is not None:
            params += self.ffn.bias_params(hidden)
        if self.moe is not None:
            moe = self.moe
            params += moe.bias_params(hidden, moe.experts_per_token if active else moe.experts)
        return params

    def feed_forwards(self) -> Iterator[tuple[str, FeedForward, int]]:
        """(operator, block, how many of them a token passes)."""
        if self.ffn is not None:
            yield "ffn", self.ffn, 1
        if self.moe is not None:
            yield "routed experts", self.moe.expert, self.moe.experts_per_token
            if self.moe.shared is not None:
                yield "shared experts", self.moe.shared, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Dimensions of a decoder, without its vision tower.

    vocab_size: unpadded, as the model's config has it
    tied_embeddings: lm_head and embedding table are one weight
    layers: groups of equal layers, in order of first appearance
    norm, norms_per_layer: kind of the norms of hidden width (`layer` has a bias), and their number
    final_norm, embedding_norm: a norm before lm_head, one after the embedding
    embedding_size: width of the table where it is not the hidden size (two projections more)
    positions: rows of a learned position table
    head_bias: lm_head has a bias
    mtp_modules: multi-token prediction modules, each a layer of the last group; a configuration
        names them, but only the run knows whether they are trained: `replace(shape, mtp_modules=1)`
    """

    name: str
    hidden_size: int
    vocab_size: int
    tied_embeddings: bool
    layers: tuple[LayerGroup, ...]
    norm: Literal["rms", "layer"] = "rms"
    norms_per_layer: int = 2
    final_norm: bool = True
    embedding_norm: bool = False
    embedding_size: int | None = None
    positions: int = 0
    head_bias: bool = False
    mtp_modules: int = 0

    @property
    def layer_count(self) -> int:
        """Number of layers, without multi-token prediction."""
        return sum(group.count for group in self.layers)

    @property
    def has_linear_attention(self) -> bool:
        """Whether a layer's cost depends on its kernel, so that it is an estimate."""
        return any(isinstance(group.attention, LinearAttention) for group in self.layers)

    @property
    def params_total(self) -> int:
        """All trained parameters, norms and biases included, a tied table once."""
        return self._params(active=False)

    @property
    def params_active(self) -> int:
        """`params_total` without the routed experts that a token does not pass."""
        return self._params(active=True)

    @property
    def params_embedding(self) -> int:
        """Look-up tables, tokens and positions; where tied, the token table is lm_head too."""
        width = self.embedding_size or self.hidden_size
        return self.vocab_size * width + self.positions * self.hidden_size

    @property
    def params_matmul(self) -> int:
        """N: weights that multiply one token.

        Forward FLOPs are 2N plus core attention and the states of linear attention.
        """
        hidden, table = self.hidden_size, self.embedding_size or self.hidden_size
        layers = sum(
            count * weight.rows * weight.columns * weight.per_token
            for count, group in self.blocks()
            for weight in group.weights(hidden)
        )
        heads = table * self.vocab_size + self.mtp_modules * hidden * self.vocab_size
        return layers + heads + self._projections() + self.mtp_modules * 2 * hidden * hidden

    def adapted_weights(self, targets: Sequence[str]) -> tuple[tuple[int, Weight], ...]:
        """(layers, weight) of each kind of weight that LoRA targets name.

        `all-linear` is every projection of attention and feed-forward blocks, not the router, the
        gates and lm_head; `every-linear` is lm_head too. Names of other code bases are understood
        (w1, wqkv, c_attn, fc1, …). Raises ShapeError for a name that no weight of this model has,
        and for `every-linear` of experts, which no module of this kind holds.
        """
        weights = [
            (group.count, weight)
            for group in self.layers
            for weight in group.weights(self.hidden_size)
            if weight.name not in _NOT_ADAPTED
        ]
        if tuple(targets) == ("all-linear",):
            return tuple(weights)
        head = Weight("lm_head", self.hidden_size, self.vocab_size)
        every = [*weights, (1, head)]
        if tuple(targets) != ("every-linear",):
            return adapted(every, targets, self.name)
        if any(group.moe for group in self.layers):
            raise ShapeError(
                f"{self.name} has experts, and whether they are trained beside the adapters is not "
                "said: give lora_targets."
            )
        return tuple(every)

    def blocks(self) -> Iterator[tuple[int, LayerGroup]]:
        """(count, kind of layer) of the model, then of multi-token prediction."""
        for group in self.layers:
            yield group.count, group
        if self.mtp_modules:
            yield self.mtp_modules, self.layers[-1]

    def _projections(self) -> int:
        return 0 if self.embedding_size is None else 2 * self.embedding_size * self.hidden_size

    def _params(self, *, active: bool) -> int:
        hidden = self.hidden_size
        norm = hidden if self.norm == "rms" else 2 * hidden
        params = self.params_embedding + self._projections()
        if not self.tied_embeddings:
            params += self.vocab_size * (self.embedding_size or hidden)
        params += self.vocab_size * self.head_bias
        params += norm * (self.final_norm + self.embedding_norm)
        params += self.mtp_modules * (2 * hidden * hidden + 3 * norm)
        for count, group in self.blocks():
            matrices = sum(
                weight.rows * weight.columns * (weight.per_token if active else weight.copies)
                for weight in group.weights(hidden)
            )
            vectors = group.vector_params(hidden, active=active) + self.norms_per_layer * norm
            params += count * (matrices + vectors)
        return params


_NOT_ADAPTED = ("router", "shared_gate", "conv1d")

_WEIGHT_NAMES: Mapping[str, tuple[str, ...]] = {
    "wqkv": ("qkv_proj",),  # InternLM2
    "query_key_value": ("qkv_proj",),  # BLOOM, Falcon
    "c_attn": ("qkv_proj",),  # GPT-2
    "wq": ("q_proj",),  # Torchtitan, with those below
    "wk": ("k_proj",),
    "wv": ("v_proj",),
    "wo": ("o_proj",),
    "out_proj": ("o_proj",),  # OPT
    "dense": ("o_proj",),
    "c_proj": ("o_proj", "down_proj"),  # GPT-2 calls both so
    "w1": ("gate_proj",),  # InternLM2, Mixtral
    "w2": ("down_proj",),
    "w3": ("up_proj",),
    "c_fc": ("up_proj",),
    "fc1": ("up_proj",),
    "fc2": ("down_proj",),
    "dense_h_to_4h": ("up_proj",),
    "dense_4h_to_h": ("down_proj",),
    "output": ("lm_head",),  # Torchtitan, InternLM2
}


def adapted(
    weights: Sequence[tuple[int, Weight]], targets: Sequence[str], model: str
) -> tuple[tuple[int, Weight], ...]:
    """Those of (layers, weight) that LoRA targets name; `all-linear`: all of them.

    Raises ShapeError, naming the model, for a target that none of them has.
    """
    if tuple(targets) == ("all-linear",):
        return tuple(weights)
    present = {weight.name for _, weight in weights}
    wanted: set[str] = set()
    for target in targets:
        meant = {target} if target in present else set(_WEIGHT_NAMES.get(target, (target,)))
        if present.isdisjoint(meant):
            raise ShapeError(
                f"{model} has no projection {target!r} for LoRA to adapt;"
                f" it has {', '.join(sorted(present))}: correct lora_targets."
            )
        wanted |= meant
    return tuple((count, weight) for count, weight in weights if weight.name in wanted)


def with_params_total(shape: ModelShape, params_total: int) -> ModelShape:
    """The same shape with the vocabulary that makes `params_total` come out.

    torchtitan took the vocabulary from the tokenizer until 2025-07-22, so one flavour has several;
    its `size: … total parameters` line tells which. The vocabulary is then inferred, not known.
    Raises ShapeError where no vocabulary gives that total: then it is another model.
    """
    per_word = (shape.embedding_size or shape.hidden_size) * (1 if shape.tied_embeddings else 2)
    words, rest = divmod(params_total - shape.params_total, per_word)
    if rest or shape.vocab_size + words < 1:
        raise ShapeError(
            f"{shape.name} has {shape.params_total:,} parameters and no vocabulary makes them"
            f" {params_total:,}: it is not the model of this run. --set model_config=PATH"
        )
    return replace(shape, vocab_size=shape.vocab_size + words)


# --- building shapes ------------------------------------------------------------------------

_Mixer = Attention | LinearAttention
_Layer = tuple[_Mixer, FeedForward | None, MixtureOfExperts | None]


def _grouped(layers: Iterable[_Layer]) -> tuple[LayerGroup, ...]:
    """Equal layers counted, in order of first appearance."""
    return tuple(
        LayerGroup(count=count, attention=attention, ffn=ffn, moe=moe)
        for (attention, ffn, moe), count in Counter(layers).items()
    )


def _windowed(
    attention: Attention, windows: Sequence[int | None], ffn: FeedForward
) -> tuple[LayerGroup, ...]:
    """Dense layers that differ in their window only."""
    return tuple(
        LayerGroup(count=count, attention=replace(attention, window=window), ffn=ffn)
        for window, count in Counter(windows).items()
    )


def _heads(
    heads: int, kv_heads: int, width: int, *, qk_norm: Literal["none", "head", "all"] = "none"
) -> Attention:
    """Grouped-query attention with one head width, without biases."""
    return Attention(
        heads=heads, kv_heads=kv_heads, qk_head_dim=width, v_head_dim=width, qk_norm=qk_norm
    )


# --- Hugging Face config.json ---------------------------------------------------------------


_LAYERS = frozenset({"num_hidden_layers", "num_layers", "n_layers", "n_layer"})
_MOST_LAYERS = 100_000
_LARGEST = 2**40
"""Of any dimension, so that FLOPs are a float: far beyond what a model has."""


def _possible(source: str, key: str, value: int) -> int:
    """A dimension that a model can have. Raises ShapeError."""
    if abs(value) > (_MOST_LAYERS if key in _LAYERS else _LARGEST):
        raise ShapeError(f"{source}: {key!r} is larger than that of any model.")
    return value


@dataclass(frozen=True, slots=True)
class Config:
    """Reads a configuration; a key that is missing or of the wrong kind is a ShapeError.

    A default stands only where transformers documents one for this model_type (5.23.0, its
    configuration classes), and means what transformers does: absent and null are the same.
    """

    values: Mapping[str, object]
    source: str

    def number(self, *keys: str, default: int | None = None) -> int:
        """The first of `keys` that is there, a whole number of at least 1."""
        value = self.optional(*keys)
        if value is None:
            value = default
        if value is None:
            raise ShapeError(
                f"{self.source} has no {' or '.join(repr(key) for key in keys)}, which the model's"
                " shape needs: complete the configuration, --set model_config=PATH/config.json"
            )
        if value < 1:
            raise ShapeError(f"{self.source}: {keys[0]!r} must be 1 or more, not {value}.")
        return _possible(self.source, keys[0], value)

    def optional(self, *keys: str) -> int | None:
        """The first of `keys` that is there and not null; else None."""
        for key in keys:
            value = self.values.get(key)
            if isinstance(value, bool) or not isinstance(value, int | None):
                raise ShapeError(f"{self.source}: {key!r} is {value!r}, not a whole number.")
            if value is not None:
                return _possible(self.source, key, value)
        return None

    def flag(self, key: str, *, default: bool) -> bool:
        """A true or false of the configuration."""
        value = self.values.get(key)
        if not isinstance(value, bool | None):
            raise ShapeError(f"{self.source}: {key!r} is {value!r}, neither true nor false.")
        return default if value is None else value

    def choice(self, key: str, *choices: str, default: str) -> str:
        """One of `choices`; where the key is absent, the default."""
        value = self.values.get(key) or default
        if value not in choices:
            raise ShapeError(f"{self.source}: {key!r} is {value!r}, none of {', '.join(choices)}.")
        return str(value)

    def items(self, key: str) -> list[object]:
        """A list of the configuration; empty where it is absent."""
        value = self.values.get(key) or []
        if not isinstance(value, list | tuple):
            raise ShapeError(f"{self.source}: {key!r} is {value!r}, not a list.")
        return list(value)

    def places(self, key: str) -> set[int]:
        """A list of layers, by their numbers; empty where it is absent."""
        places = self.items(key)
        for place in places:
            if isinstance(place, bool) or not isinstance(place, int):
                raise ShapeError(f"{self.source}: {key!r} holds {place!r}, not a whole number.")
        return {place for place in places if isinstance(place, int)}


def from_hugging_face(config: Mapping[str, object]) -> ModelShape:
    """Shape of a Hugging Face `config.json`, its text model where it is a multimodal one.

    The tower of such a model is `metrics.vision.from_hugging_face` of the same config.
    Raises ShapeError for an unknown model_type, and for a key that is missing or malformed.
    """
    inner = text_config(config)
    if inner is not config:
        return from_hugging_face(inner)
    model_type = config.get("model_type")
    reader = _HUGGING_FACE.get(str(model_type))
    if reader is None:
        raise ShapeError(
            f"model_type {model_type!r} is not known (known: {', '.join(sorted(_HUGGING_FACE))})."
            " A decoder of the llama kind can be given as model_type 'llama' with hidden_size,"
            " num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim,"
            " intermediate_size, vocab_size and tie_word_embeddings."
        )
    shape = reader(Config(config, f"the {model_type} config"))
    name = config.get("_name_or_path")
    return replace(shape, name=str(name) if name else shape.name)


def text_config(config: Mapping[str, object]) -> Mapping[str, object]:
    """The text model's part of a config; the config itself where it is one of a text model.

    A nested part is saved without what equals its class's defaults (transformers, to_diff_dict), so
    that those stand in for what it lacks. Tied embeddings may be said at either level.
    """
    for nested in ("text_config", "llm_config"):
        inner = config.get(nested)
        if isinstance(inner, Mapping):
            given = {"_name_or_path": config.get("_name_or_path"), **inner}
            if config.get("tie_word_embeddings") is True:
                given["tie_word_embeddings"] = True
            return {**_NESTED_DEFAULTS.get(str(inner.get("model_type")), {}), **given}
    return config


def _gqa(config: Config, *, width: int | None = None, kv_heads: int | None = None) -> Attention:
    """Heads of a Llama-like config; `width`, `kv_heads`: defaults of the model_type, if any."""
    heads = config.number("num_attention_heads")
    width = config.number("head_dim", default=width or config.number("hidden_size") // heads)
    return _heads(heads, config.number("num_key_value_heads", default=kv_heads), width)


def _decoder(config: Config, layers: tuple[LayerGroup, ...], *, tied: bool = False) -> ModelShape:
    """A decoder with RMSNorm before attention and feed-forward block."""
    return ModelShape(
        name=str(config.values.get("model_type")),
        hidden_size=config.number("hidden_size"),
        vocab_size=config.number("vocab_size"),
        tied_embeddings=config.flag("tie_word_embeddings", default=tied),
        layers=layers,
    )


def _layer_kinds(config: Config, default: Callable[[int], str], *known: str) -> list[str]:
    """Kind of attention of each layer: `layer_types`, or as the model's class has it by default."""
    count = config.number("num_hidden_layers")
    types = [str(kind) for kind in config.items("layer_types")]
    if not types:
        return [default(layer) for layer in range(count)]
    unknown = sorted(set(types) - set(known))
    if unknown or len(types) != count:
        raise ShapeError(
            f"{config.source}: layer_types holds {len(types)} layers of {count}, and kinds that"
            f" this formula does not have: {', '.join(unknown) or 'none'}."
        )
    return types


def _windows(
    config: Config, default: Callable[[int], bool], window: int | None
) -> list[int | None]:
    """Window of each layer, from `layer_types` or, without them, where `default` says so."""
    types = _layer_kinds(
        config,
        lambda layer: "sliding_attention" if default(layer) else "full_attention",
        "full_attention",
        "sliding_attention",
    )
    if config.items("layer_types") and "sliding_attention" in types and window is None:
        raise ShapeError(f"{config.source}: layer_types needs 'sliding_window', which is missing.")
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
    """Qwen: windows only where switched on, and then from layer `max_window_layers` up."""
    if not config.flag("use_sliding_window", default=False):
        return [None] * config.number("num_hidden_layers")
    first = config.number("max_window_layers", default=28)
    return _windows(config, lambda layer: layer >= first, config.number("sliding_window"))


def _qwen2(config: Config) -> ModelShape:
    attention = replace(_gqa(config), qkv_bias=True)
    return _decoder(config, _windowed(attention, _qwen_windows(config), _ffn(config)))


def _qwen3_attention(config: Config) -> Attention:
    bias = config.flag("attention_bias", default=False)
    attention = _gqa(config, width=128)
    return replace(attention, qkv_bias=bias, output_bias=bias, qk_norm="head")


def _qwen3(config: Config) -> ModelShape:
    attention = _qwen3_attention(config)
    return _decoder(config, _windowed(attention, _qwen_windows(config), _ffn(config)))


def _windowed_mixers(config: Config, attention: Attention) -> list[_Mixer]:
    return [replace(attention, window=window) for window in _qwen_windows(config)]


def _qwen_sparse(
    config: Config, mixers: Sequence[_Mixer], experts: MixtureOfExperts
) -> tuple[LayerGroup, ...]:
    """Every `decoder_sparse_step`-th layer has experts, but those in `mlp_only_layers`."""
    step = config.number("decoder_sparse_step", default=1)
    dense = config.places("mlp_only_layers")
    sparse = [(i + 1) % step == 0 and i not in dense for i in range(len(mixers))]
    ffn = None if all(sparse) else _ffn(config)
    return _grouped(
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
    experts = MixtureOfExperts(
        experts=config.number("num_experts", "num_local_experts"),
        experts_per_token=config.number("num_experts_per_tok"),
        expert=_ffn(config, "moe_intermediate_size"),
    )
    mixers = _windowed_mixers(config, _qwen3_attention(config))
    return _decoder(config, _qwen_sparse(config, mixers, experts))


def _qwen3_vl_moe(config: Config) -> ModelShape:
    """The text model of Qwen3-VL with experts: no default head width, tied unless it says not."""
    heads, hidden = config.number("num_attention_heads"), config.number("hidden_size")
    values = {"head_dim": hidden // heads, "tie_word_embeddings": True, **config.values}
    return _qwen3_moe(Config(values, config.source))


def _delta_mixers(config: Config, *, fused: bool) -> list[_Mixer]:
    """Layers of Qwen3-Next and Qwen3.5: Gated DeltaNet, every fourth with gated attention."""
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
    return _decoder(config, _grouped((mixer, ffn, None) for mixer in mixers))


def _qwen3_5_moe(config: Config) -> ModelShape:
    mixers, experts = _delta_mixers(config, fused=False), _gated_shared_experts(config)
    return _decoder(config, _grouped((mixer, None, experts) for mixer in mixers))


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
    """Dense layers first, then every `moe_layer_freq`-th with experts (DeepSeek, GLM)."""
    step = config.number("moe_layer_freq", default=1)
    dense = config.optional("first_k_dense_replace")
    if dense is None:
        raise ShapeError(f"{config.source} has no 'first_k_dense_replace', which it needs.")
    count = config.number("num_hidden_layers")
    sparse = [i >= dense and i % step == 0 for i in range(count)]
    ffn = None if all(sparse) else _ffn(config)
    return _grouped(
        (attention, None, experts) if has_experts else (attention, ffn, None)
        for has_experts in sparse
    )


def _shared_experts(config: Config) -> MixtureOfExperts:
    width = config.number("moe_intermediate_size")
    shared = config.optional("n_shared_experts") or 0
    return MixtureOfExperts(
        experts=config.number("n_routed_experts"),
        experts_per_token=config.number("num_experts_per_tok"),
        expert=FeedForward(width=width),
        shared=FeedForward(width=shared * width) if shared else None,
    )


def _deepseek(config: Config) -> ModelShape:
    """DeepSeek-V2 and V3; num_nextn_predict_layers is a checkpoint's, not a run's: not used."""
    layers = _leading_dense(config, _latent_attention(config), _shared_experts(config))
    return _decoder(config, layers)


def _latent_attention(config: Config) -> Attention:
    heads, rope = config.number("num_attention_heads"), config.number("qk_rope_head_dim")
    bias = config.flag("attention_bias", default=False)
    return Attention(
        heads=heads,
        kv_heads=heads,
        qk_head_dim=config.number("qk_nope_head_dim") + rope,
        v_head_dim=config.number("v_head_dim"),
        kv_lora_rank=config.number("kv_lora_rank"),
        q_lora_rank=_query_rank(config),
        rope_head_dim=rope,
        qkv_bias=bias,
        output_bias=bias,
    )


def _query_rank(config: Config) -> int | None:
    """A null q_lora_rank is a full query projection (V2-Lite); an absent one is an omission."""
    if "q_lora_rank" not in config.values:
        raise ShapeError(
            f"{config.source} has no 'q_lora_rank', which it needs: a number, or null for a full"
            " query projection."
        )
    return config.optional("q_lora_rank")


def _kimi_linear(config: Config) -> ModelShape:
    """Kimi Linear: KDA layers, and MLA where `full_attn_layers` (counted from 1) says so."""
    names = {
        "num_experts": "n_routed_experts",
        "num_experts_per_token": "num_experts_per_tok",
        "num_shared_experts": "n_shared_experts",
    }
    values = Config({names.get(k, k): v for k, v in config.values.items()}, config.source)
    layers = config.values.get("linear_attn_config")
    if not isinstance(layers, Mapping):
        raise ShapeError(f"{config.source} has no 'linear_attn_config', which it needs.")
    linear = Config(layers, f"linear_attn_config of {config.source}")
    full, width = linear.places("full_attn_layers"), linear.number("head_dim")
    heads = linear.number("num_heads")
    delta = LinearAttention(
        key_heads=heads,
        value_heads=heads,
        key_head_dim=width,
        value_head_dim=width,
        conv_kernel=linear.number("short_conv_kernel_size"),
        gate_rank=width,
    )
    latent, experts = _latent_attention(values), _shared_experts(values)
    dense, ffn = values.number("first_k_dense_replace"), _ffn(values)
    return _decoder(
        values,
        _grouped(
            (latent if i + 1 in full else delta, *((ffn, None) if i < dense else (None, experts)))
            for i in range(values.number("num_hidden_layers"))
        ),
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
        config, _grouped((replace(attention, window=w), None, experts) for w in windows)
    )


def _gemma(config: Config) -> ModelShape:
    attention = _gqa(config, width=256)
    return _decoder(config, _every_layer(config, attention, _ffn(config)), tied=True)


def _gemma2(config: Config) -> ModelShape:
    window = config.number("sliding_window", default=4096)
    windows = _windows(config, lambda layer: layer % 2 == 0, window)
    layers = _windowed(_gqa(config, width=256), windows, _ffn(config))
    return replace(_decoder(config, layers, tied=True), norms_per_layer=4)


def _gemma3(config: Config) -> ModelShape:
    """Gemma 3's text model; its published configs leave out what is the class's default."""
    defaults = {"num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262208}
    values = Config({**defaults, **config.values}, config.source)
    pattern = values.number("sliding_window_pattern", default=6)
    window = values.number("sliding_window", default=4096)
    windows = _windows(values, lambda layer: (layer + 1) % pattern != 0, window)
    attention = replace(_gqa(values, width=256), qk_norm="head")
    layers = _windowed(attention, windows, _ffn(values))
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
    return _decoder(config, _windowed(attention, windows, _ffn(config)))


def _cohere(config: Config) -> ModelShape:
    attention = _gqa(config, kv_heads=config.number("num_attention_heads"))
    bias = config.flag("attention_bias", default=False)
    norm: Literal["none", "all"] = "all" if config.flag("use_qk_norm", default=False) else "none"
    attention = replace(attention, qkv_bias=bias, output_bias=bias, qk_norm=norm)
    shape = _decoder(config, _every_layer(config, attention, _ffn(config)), tied=True)
    return replace(shape, norms_per_layer=1)  # attention and feed-forward block stand side by side


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
    """Windows, where switched on, stand in the layers without rotary embedding."""
    if config.flag("use_sliding_window", default=False):
        raise ShapeError(f"{config.source}: 'use_sliding_window' is not in this formula.")
    values = {"tie_word_embeddings": True, "num_key_value_heads": 4, **config.values}
    return _llama(Config(values, config.source))


def _llama4(config: Config) -> ModelShape:
    """Llama 4's text model: three of four layers attend inside chunks."""
    rotary = config.items("no_rope_layers")  # 1 where a layer has rotary embedding
    if rotary and len(rotary) != config.number("num_hidden_layers"):
        raise ShapeError(
            f"{config.source}: 'no_rope_layers' has {len(rotary)} entries, not one each."
        )
    interval = config.number("no_rope_layer_interval", default=4)
    kinds = _layer_kinds(
        config,
        lambda i: (
            "chunked_attention"
            if (rotary[i] if rotary else (i + 1) % interval)
            else "full_attention"
        ),
        "chunked_attention",
        "full_attention",
    )
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
        _grouped(
            (
                chunked if kind == "chunked_attention" else attention,
                *((None, experts) if i in sparse else (ffn, None)),
            )
            for i, kind in enumerate(kinds)
        ),
    )


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
    """A decoder of the GPT-2 kind: LayerNorm, plain feed-forward blocks, tied embeddings."""
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
        _heads(heads, kv_heads or heads, hidden // heads), qkv_bias=bias, output_bias=bias
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


def _without(config: Config, key: str) -> None:
    """Raises ShapeError where a variant is switched on that the shape has no place for."""
    if config.flag(key, default=False):
        raise ShapeError(f"{config.source}: {key!r} is true, which is not in this formula.")


def _phi(config: Config) -> ModelShape:
    """Phi 1 and 2: attention and feed-forward block side by side after one norm."""
    _without(config, "qk_layernorm")
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
    _without(config, "qk_layernorm")
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
    "seed_oss": _seed_oss,
    "smollm3": _smollm3,
    "stablelm": _stablelm,
    "starcoder2": _starcoder2,
}

# Defaults of nested configurations (transformers 5.23.0), in the order of `_DIMENSIONS`.
_DIMENSIONS = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
)
_NESTED_DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "llama": dict(zip(_DIMENSIONS, (4096, 32, 32, 32, 11008, 32000), strict=True)),
    "qwen2_vl_text": dict(zip(_DIMENSIONS, (8192, 80, 64, 8, 29568, 152064), strict=True)),
    "qwen2_5_vl_text": dict(zip(_DIMENSIONS, (8192, 80, 64, 8, 29568, 152064), strict=True)),
    "qwen3_vl_text": dict(zip(_DIMENSIONS, (4096, 32, 32, 32, 22016, 151936), strict=True)),
}


# --- Megatron-DeepSpeed's arguments header --------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Printed:
    """Arguments as a framework printed them: 'None', 'True', '4096', '[64]'."""

    values: Mapping[str, str]
    source: str

    def get(self, key: str) -> str | None:
        value = self.values.get(key)
        return None if value is None or value.strip() in ("None", "null", "") else value.strip()

    def optional(self, key: str) -> int | None:
        value = self.get(key)
        if value is None:
            return None
        try:
            return int(value)
        except ValueError:
            raise ShapeError(f"{self.source}: {key!r} is {value!r}, not a whole number.") from None

    def number(self, key: str, default: int | None = None) -> int:
        value = self.optional(key)
        value = default if value is None else value
        if value is None or value < 1:
            raise ShapeError(
                f"{self.source}: {key!r} is {value}, but the model's shape needs it:"
                " --set model_config=PATH/config.json or --set model=NAME"
            )
        return _possible(self.source, key, value)

    def flag(self, key: str, *, default: bool) -> bool:
        value = self.get(key)
        if value not in (None, "True", "False", "true", "false"):
            raise ShapeError(f"{self.source}: {key!r} is {value!r}, neither True nor False.")
        return default if value is None else value in ("True", "true")


def from_megatron(arguments: Mapping[str, str], vocab_size: int | None = None) -> ModelShape:
    """Shape of a decoder from Megatron-DeepSpeed's `arguments` header, values as printed.

    vocab_size: unpadded vocabulary; required where the header has none, as it does unless
        --vocab-size was given: ` > padded vocab (size: 50257)` prints it.

    An argument that is absent is one that this version does not have yet, and then means what the
    version did: biases, LayerNorm, tied embeddings, learned positions, no gated FFN, one key/value
    head per head, no experts. Raises ShapeError for what is missing or malformed.
    """
    printed = _Printed(arguments, "the arguments header")
    for key, absent in MEGATRON_WITHOUT.items():
        if (said := printed.get(key)) is not None and re.match(absent, said) is None:
            raise ShapeError(
                f"{printed.source}: {key} {said!r} is not read: --set model_config=PATH/config.json"
            )
    hidden, count = printed.number("hidden_size"), printed.number("num_layers")
    vocabulary = vocab_size if vocab_size is not None else printed.optional("vocab_size")
    if vocabulary is None:
        raise ShapeError(
            "the arguments header has no vocab_size, and the padded one is not the model's:"
            " --set vocab_size=… (` > padded vocab (size: N)` in the same log is it)"
        )
    if vocabulary < 1:
        raise ShapeError(f"the arguments header: 'vocab_size' must be 1 or more, not {vocabulary}.")
    rms = (printed.get("normalization") or "layernorm").lower() == "rmsnorm"
    return ModelShape(
        name=f"megatron-{count}x{hidden}",
        hidden_size=hidden,
        vocab_size=vocabulary,
        tied_embeddings=not printed.flag("untie_embeddings_and_output_weights", default=False),
        layers=_megatron_layers(printed, hidden, count),
        norm="rms" if rms else "layer",
        embedding_norm=printed.flag("embed_layernorm", default=False),
        positions=_megatron_positions(printed),
    )


MEGATRON_WITHOUT: Final = {
    "multi_latent_attention": "False$",
    "window_size": r"None$|\(-1, -1\)$",
    "kd": "False$",
    "retro_add_retriever": "False$",
    "num_experts_switch": "None$",
    "tokenizer_type": "(?!BertWordPiece)",
}
"""Arguments with which a model is another than is read here, and what they are without it; BERT
and T5 attend both ways."""


def _megatron_positions(printed: _Printed) -> int:
    """Rows of the position table: none with rotary or ALiBi."""
    kind = printed.get("position_embedding_type") or "absolute"
    learned = kind.rsplit(".", maxsplit=1)[-1] in ("absolute", "learned_absolute")
    if learned and printed.flag("add_position_embedding", default=True):
        return printed.number("max_position_embeddings")
    return 0


def _megatron_layers(printed: _Printed, hidden: int, count: int) -> tuple[LayerGroup, ...]:
    heads = printed.number("num_attention_heads")
    bias = printed.flag("add_bias_linear", default=True)
    width = printed.number("kv_channels", default=hidden // heads)
    grouped = printed.flag("group_query_attention", default=False)
    groups = printed.number("num_query_groups") if grouped else heads
    attention = replace(
        _heads(heads, printed.number("num_key_value_heads", default=groups), width),
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
    return _grouped(
        (attention, ffn, None) if n == 1 else (attention, None, _megatron_moe(printed, n, ffn))
        for n in experts
    )


def _megatron_experts(printed: _Printed, count: int) -> list[int]:
    """Experts of each layer, 1 for a dense one (Megatron-DeepSpeed get_num_experts_per_layer)."""
    value = printed.get("num_experts") or "1"
    if not re.fullmatch(r"\[?\s*\d+(\s*,\s*\d+)*\s*\]?", value):
        raise ShapeError(f"{printed.source}: 'num_experts' is {value!r}, not like '[64]'.")
    per_block = [int(number) for number in re.findall(r"\d+", value)]
    if per_block == [1]:
        return [1] * count
    interval = printed.number("expert_interval")
    blocks = per_block * (count // interval) if len(per_block) == 1 else per_block
    if len(blocks) != count // interval:
        raise ShapeError(
            f"{printed.source}: num_experts {value} does not fit {count} layers with an"
            f" expert_interval of {interval}."
        )
    layers = range(1, count + 1)
    return [1 if layer % interval else blocks[(layer - 1) // interval] for layer in layers]


def _megatron_moe(printed: _Printed, experts: int, ffn: FeedForward) -> MixtureOfExperts:
    kind = printed.get("mlp_type") or "standard"
    if kind != "standard":
        raise ShapeError(
            f"{printed.source}: mlp_type {kind!r} is not in the formula, only 'standard' experts:"
            " --set model_config=PATH/config.json"
        )
    return MixtureOfExperts(experts=experts, experts_per_token=printed.number("topk"), expert=ffn)


# --- torchtitan -----------------------------------------------------------------------------


def from_torchtitan(flavour: str, model_args: Mapping[str, str] | None = None) -> ModelShape:
    """Shape of a torchtitan model: from its printed arguments, else by its flavour's name.

    flavour: as in `Model llama3 8B size: …`
    model_args: of `Building llama3 8B with TransformerModelArgs(dim=4096, …)`, values as printed;
        absent since 2026-04-20 (torchtitan #3030)

    A flavour's vocabulary may be the tokenizer's: compare `params_total` with the `size:` line, or
    see `with_params_total`. Raises UnknownModelError for a flavour that is not known and ShapeError
    for arguments of a model that is none of llama, qwen3, deepseek_v3.
    """
    if model_args is None:
        return known(flavour)
    printed = _Printed(model_args, f"torchtitan's arguments of {flavour!r}")
    if "kv_lora_rank" in model_args:
        return _titan_deepseek(flavour, printed)
    if "qk_norm" in model_args and "head_dim" in model_args:
        return _titan_qwen3(flavour, printed)
    if "multiple_of" in model_args and "moe_args" not in model_args:
        return _titan_llama(flavour, printed)
    raise ShapeError(
        f"{printed.source} are none of llama's (multiple_of), qwen3's (qk_norm, head_dim) or"
        " deepseek_v3's (kv_lora_rank): --set model_config=PATH/config.json"
    )


def _titan_shape(
    name: str, printed: _Printed, layers: tuple[LayerGroup, ...], *, tied: bool = False
) -> ModelShape:
    return ModelShape(
        name=name,
        hidden_size=printed.number("dim"),
        vocab_size=printed.number("vocab_size"),
        tied_embeddings=tied,
        layers=layers,
    )


def _titan_llama(name: str, printed: _Printed) -> ModelShape:
    dim, heads = printed.number("dim"), printed.number("n_heads")
    if printed.flag("moe_enabled", default=False):
        raise ShapeError(f"{printed.source}: moe_enabled=True is llama4, which is not read here.")
    if (printed.get("norm_type") or "rmsnorm").strip("'") not in ("rmsnorm", "fused_rmsnorm"):
        raise ShapeError(f"{printed.source}: norm_type {printed.get('norm_type')} is not RMSNorm.")
    layers = LayerGroup(
        count=printed.number("n_layers"),
        attention=_heads(heads, printed.number("n_kv_heads", default=heads), dim // heads),
        ffn=FeedForward(width=_llama_ffn_width(dim, printed)),
    )
    return _titan_shape(name, printed, (layers,))


def _llama_ffn_width(dim: int, printed: _Printed) -> int:
    """Llama's rule: two thirds of 4d, times the multiplier, rounded up (torchtitan FeedForward)."""
    width = int(2 * (4 * dim) / 3)
    multiplier = printed.get("ffn_dim_multiplier")
    if multiplier is not None:
        try:
            width = int(float(multiplier) * width)
        except (ValueError, OverflowError):
            raise ShapeError(
                f"{printed.source}: ffn_dim_multiplier is {multiplier!r}, not a number."
            ) from None
        width = _possible(printed.source, "ffn_dim_multiplier", width)
    multiple = printed.number("multiple_of")
    return multiple * -(-width // multiple)


def _titan_moe(printed: _Printed) -> MixtureOfExperts:
    """Experts from `moe_args=MoEArgs(…)`, or from the flat arguments before 2025-08."""
    inner = dict(re.findall(r"\"?(\w+)\"?\s*[=:]\s*([^,(){}]+)", printed.get("moe_args") or ""))
    args = _Printed({**printed.values, **inner}, printed.source)
    old = "n_routed_experts" in printed.values
    shared = args.optional("n_shared_experts" if old else "num_shared_experts") or 0
    width = args.number("moe_inter_dim")
    return MixtureOfExperts(
        experts=args.number("n_routed_experts" if old else "num_experts"),
        experts_per_token=args.number("n_activated_experts" if old else "top_k"),
        expert=FeedForward(width=width),
        shared=FeedForward(width=shared * width) if shared else None,
    )


def _titan_qwen3(name: str, printed: _Printed) -> ModelShape:
    attention = _heads(
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


def _titan_deepseek(name: str, printed: _Printed) -> ModelShape:
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


# --- known models ---------------------------------------------------------------------------

_SUFFIXES = (
    "-instruct", "-chat", "-base", "-hf", "-sft", "-it", "-pt",
    "-flex", "-varlen", "-flex-attn", "-varlen-attn",
)  # fmt: skip
"""What a name may end in without a change of shape; the last four are torchtitan's."""


def known(name: str) -> ModelShape:
    """Shape of a model that is known by name.

    Case, blanks and `_`, an organisation or folders before the name, `Meta-`, and endings such as
    -instruct, -chat, -hf do not matter; all the rest must be exact. Raises UnknownModelError.
    """
    wanted = _normalised(name)
    if wanted not in _KNOWN:
        raise UnknownModelError(name, difflib.get_close_matches(wanted, _KNOWN, n=3))
    return _KNOWN[wanted]


@cache
def known_models() -> tuple[ModelShape, ...]:
    """Every known model once, by name."""
    return tuple(shape for name, shape in sorted(_KNOWN.items()) if name == shape.name)


def _normalised(name: str) -> str:
    cached = re.search(r"models--(?:.*--)?([^/\\]+)", name)  # Hugging Face's cache folder
    last = cached.group(1) if cached else re.split(r"[/\\]", name.strip().rstrip("/\\"))[-1]
    folded = re.sub(r"[\s_]+", "-", last.strip().lower()).removeprefix("meta-")
    while shorter := next((folded[: -len(s)] for s in _SUFFIXES if folded.endswith(s)), None):
        folded = shorter
    return folded


def _config(model_type: str, *dimensions: int, **more: object) -> dict[str, object]:
    """A Hugging Face config in one line: `_DIMENSIONS` in the order in which people quote them."""
    return {"model_type": model_type, **dict(zip(_DIMENSIONS, dimensions, strict=True)), **more}


def _mla(
    q_rank: int | None, experts: int, per_token: int, width: int, **more: int
) -> dict[str, object]:
    """What DeepSeek-V2 and V3 have beyond `_config`."""
    return {
        "q_lora_rank": q_rank,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_routed_experts": experts,
        "num_experts_per_tok": per_token,
        "moe_intermediate_size": width,
        **more,
    }


def _qwen_moe(experts: int, per_token: int, width: int) -> dict[str, object]:
    return {
        "num_experts": experts,
        "num_experts_per_tok": per_token,
        "moe_intermediate_size": width,
    }


def _mixtral_moe(experts: int, per_token: int) -> dict[str, object]:
    return {"num_local_experts": experts, "num_experts_per_tok": per_token}


def _gpt2_config(hidden: int, layers: int, heads: int, positions: int = 1024) -> dict[str, object]:
    return {
        "model_type": "gpt2",
        "n_embd": hidden,
        "n_layer": layers,
        "n_head": heads,
        "n_positions": positions,
        "vocab_size": 50257,
    }


def _opt_config(hidden: int, layers: int, heads: int, **more: object) -> dict[str, object]:
    return {
        "model_type": "opt",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "ffn_dim": 4 * hidden,
        "vocab_size": 50272,
        "max_position_embeddings": 2048,
        **more,
    }


def _bloom_config(hidden: int, layers: int, heads: int) -> dict[str, object]:
    return {
        "model_type": "bloom",
        "hidden_size": hidden,
        "n_layer": layers,
        "n_head": heads,
        "vocab_size": 250880,
    }


# Names, the first is the canonical one -> config: hidden, layers, heads, key/value heads, FFN,
# vocabulary. Each is its publisher's config.json (torchtitan's debug models: its flavour at
# v0.2.2); tests/test_model_shapes.py holds the parameter counts against the published ones.
_LLAMA_LIKE: Mapping[str, dict[str, object]] = {
    "llama-7b": _config("llama", 4096, 32, 32, 32, 11008, 32000),
    "llama-13b": _config("llama", 5120, 40, 40, 40, 13824, 32000),
    "llama-2-7b llama2-7b": _config("llama", 4096, 32, 32, 32, 11008, 32000),
    "llama-2-13b llama2-13b": _config("llama", 5120, 40, 40, 40, 13824, 32000),
    "llama-2-70b llama2-70b": _config("llama", 8192, 80, 64, 8, 28672, 32000),
    "llama-3-8b llama3-8b": _config("llama", 4096, 32, 32, 8, 14336, 128256),
    "llama-3-70b llama3-70b": _config("llama", 8192, 80, 64, 8, 28672, 128256),
    "llama-3.1-8b llama3.1-8b": _config("llama", 4096, 32, 32, 8, 14336, 128256),
    "llama-3.1-70b llama3.1-70b": _config("llama", 8192, 80, 64, 8, 28672, 128256),
    "llama-3.1-405b llama3.1-405b llama-3-405b llama3-405b": _config(
        "llama", 16384, 126, 128, 8, 53248, 128256
    ),
    "llama-3.2-1b llama3.2-1b llama3-1b": _config(
        "llama", 2048, 16, 32, 8, 8192, 128256, tie_word_embeddings=True
    ),
    "llama-3.2-3b llama3.2-3b llama3-3b": _config(
        "llama", 3072, 28, 24, 8, 8192, 128256, head_dim=128, tie_word_embeddings=True
    ),
    "llama-3.3-70b llama3.3-70b": _config("llama", 8192, 80, 64, 8, 28672, 128256),
    "llama3-debugmodel": _config("llama", 256, 6, 16, 16, 768, 2048),
    "yi-6b": _config("llama", 4096, 32, 32, 4, 11008, 64000),
    "yi-34b": _config("llama", 7168, 60, 56, 8, 20480, 64000),
    "internlm-7b": _config("internlm", 4096, 32, 32, 32, 11008, 103168, bias=True),
    "internlm2-1.8b internlm2-1-8b internlm2-chat-1.8b internlm2-chat-1-8b": _config(
        "internlm2", 2048, 24, 16, 8, 8192, 92544, bias=False
    ),
    "internlm2-7b internlm2-chat-7b": _config(
        "internlm2", 4096, 32, 32, 8, 14336, 92544, bias=False
    ),
    "internlm2-20b internlm2-chat-20b": _config(
        "internlm2", 6144, 48, 48, 8, 16384, 92544, bias=False
    ),
    "internlm2.5-7b internlm2-5-7b": _config(
        "internlm2", 4096, 32, 32, 8, 14336, 92544, bias=False
    ),
    "internlm3-8b": _config("internlm3", 4096, 48, 32, 2, 10240, 128512, head_dim=128),
    "mistral-7b mistral-7b-v0.1 mistral-7b-instruct-v0.1": _config(
        "mistral", 4096, 32, 32, 8, 14336, 32000, sliding_window=4096
    ),
    "mistral-7b-v0.2 mistral-7b-instruct-v0.2": _config(
        "mistral", 4096, 32, 32, 8, 14336, 32000, sliding_window=None
    ),
    "mistral-7b-v0.3 mistral-7b-instruct-v0.3": _config(
        "mistral", 4096, 32, 32, 8, 14336, 32768, sliding_window=None
    ),
    "qwen2-0.5b": _config("qwen2", 896, 24, 14, 2, 4864, 151936, tie_word_embeddings=True),
    "qwen2-1.5b": _config("qwen2", 1536, 28, 12, 2, 8960, 151936, tie_word_embeddings=True),
    "qwen2-7b": _config("qwen2", 3584, 28, 28, 4, 18944, 152064),
    "qwen2-72b": _config("qwen2", 8192, 80, 64, 8, 29568, 152064),
    "qwen2.5-0.5b": _config("qwen2", 896, 24, 14, 2, 4864, 151936, tie_word_embeddings=True),
    "qwen2.5-1.5b": _config("qwen2", 1536, 28, 12, 2, 8960, 151936, tie_word_embeddings=True),
    "qwen2.5-3b": _config("qwen2", 2048, 36, 16, 2, 11008, 151936, tie_word_embeddings=True),
    "qwen2.5-7b": _config("qwen2", 3584, 28, 28, 4, 18944, 152064),
    "qwen2.5-14b": _config("qwen2", 5120, 48, 40, 8, 13824, 152064),
    "qwen2.5-32b": _config("qwen2", 5120, 64, 40, 8, 27648, 152064),
    "qwen2.5-72b": _config("qwen2", 8192, 80, 64, 8, 29568, 152064),
    "qwen3-0.6b": _config("qwen3", 1024, 28, 16, 8, 3072, 151936, tie_word_embeddings=True),
    "qwen3-1.7b": _config("qwen3", 2048, 28, 16, 8, 6144, 151936, tie_word_embeddings=True),
    "qwen3-4b qwen3-4b-instruct-2507": _config(
        "qwen3", 2560, 36, 32, 8, 9728, 151936, tie_word_embeddings=True
    ),
    "qwen3-8b": _config("qwen3", 4096, 36, 32, 8, 12288, 151936),
    "qwen3-14b": _config("qwen3", 5120, 40, 40, 8, 17408, 151936),
    "qwen3-32b": _config("qwen3", 5120, 64, 64, 8, 25600, 151936),
    "qwen3-debugmodel": _config("qwen3", 256, 8, 16, 8, 3072, 2048, tie_word_embeddings=True),
    "olmo-2-1b olmo2-1b olmo-2-0425-1b": _config("olmo2", 2048, 16, 16, 16, 8192, 100352),
    "olmo-2-7b olmo2-7b olmo-2-1124-7b": _config("olmo2", 4096, 32, 32, 32, 11008, 100352),
    "olmo-2-13b olmo2-13b olmo-2-1124-13b": _config("olmo2", 5120, 40, 40, 40, 13824, 100352),
    "olmo-2-32b olmo2-32b olmo-2-0325-32b": _config("olmo2", 5120, 64, 40, 8, 27648, 100352),
    "olmo-3-7b olmo3-7b olmo-3-1025-7b": _config(
        "olmo3", 4096, 32, 32, 32, 11008, 100278, sliding_window=4096
    ),
    "smollm3-3b": _config("smollm3", 2048, 36, 16, 4, 11008, 128256, tie_word_embeddings=True),
    "seed-oss-36b": _config("seed_oss", 5120, 64, 80, 8, 27648, 155136, head_dim=128),
    "phi-3-mini-4k phi-3-mini": _config("phi3", 3072, 32, 32, 32, 8192, 32064, sliding_window=2047),
    "phi-3-mini-128k": _config("phi3", 3072, 32, 32, 32, 8192, 32064, sliding_window=262144),
}

_SPARSE: Mapping[str, dict[str, object]] = {
    "mixtral-8x7b mixtral-8x7b-v0.1 mixtral-8x7b-instruct-v0.1": _config(
        "mixtral", 4096, 32, 32, 8, 14336, 32000, **_mixtral_moe(8, 2)
    ),
    "mixtral-8x22b mixtral-8x22b-v0.1": _config(
        "mixtral", 6144, 56, 48, 8, 16384, 32000, **_mixtral_moe(8, 2)
    ),
    "mixtral-8x22b-instruct-v0.1": _config(
        "mixtral", 6144, 56, 48, 8, 16384, 32768, **_mixtral_moe(8, 2)
    ),
    "qwen1.5-moe-a2.7b": _config(
        "qwen2_moe", 2048, 24, 16, 16, 5632, 151936,
        shared_expert_intermediate_size=5632, **_qwen_moe(60, 4, 1408),
    ),
    "qwen3-30b-a3b qwen3-30b-a3b-instruct-2507": _config(
        "qwen3_moe", 2048, 48, 32, 4, 6144, 151936, head_dim=128, **_qwen_moe(128, 8, 768)
    ),
    "qwen3-235b-a22b qwen3-235b-a22b-instruct-2507": _config(
        "qwen3_moe", 4096, 94, 64, 4, 12288, 151936, head_dim=128, **_qwen_moe(128, 8, 1536)
    ),
    "qwen3-debugmodel-moe": _config(
        "qwen3_moe", 256, 8, 16, 8, 3072, 2048, head_dim=128, **_qwen_moe(64, 8, 768)
    ),
    "olmoe-1b-7b olmoe-1b-7b-0924": _config(
        "olmoe", 2048, 16, 16, 16, 1024, 50304, num_experts=64, num_experts_per_tok=8
    ),
    "deepseek-v2-lite deepseek-v3-16b": _config(
        "deepseek_v2", 2048, 27, 16, 16, 10944, 102400,
        **_mla(None, 64, 6, 1408, first_k_dense_replace=1, n_shared_experts=2),
    ),
    "deepseek-v2 deepseek-v3-236b": _config(
        "deepseek_v2", 5120, 60, 128, 128, 12288, 102400,
        **_mla(1536, 160, 6, 1536, first_k_dense_replace=1, n_shared_experts=2),
    ),
    "deepseek-v3 deepseek-v3-671b deepseek-v3-0324 deepseek-r1": _config(
        "deepseek_v3", 7168, 61, 128, 128, 18432, 129280,
        **_mla(1536, 256, 8, 2048, first_k_dense_replace=3, n_shared_experts=1),
    ),
    "deepseek-v3-debugmodel": _config(
        "deepseek_v3", 256, 6, 16, 16, 1024, 2048,
        **_mla(None, 8, 3, 256, first_k_dense_replace=1, n_shared_experts=2),
    ),
    "kimi-k2 kimi-k2-0905": _config(
        "kimi_k2", 7168, 61, 64, 64, 18432, 163840,
        **_mla(1536, 384, 8, 2048, first_k_dense_replace=1, n_shared_experts=1),
    ),
    "llama-4-maverick llama-4-maverick-17b-128e": _config(
        "llama4_text", 5120, 48, 40, 8, 8192, 202048,
        intermediate_size_mlp=16384, interleave_moe_layer_step=2, attention_chunk_size=8192,
        **_mixtral_moe(128, 1),
    ),
    "qwen3-next-80b-a3b": _config(
        "qwen3_next", 2048, 48, 16, 2, 5120, 151936,
        shared_expert_intermediate_size=512, **_qwen_moe(512, 10, 512),
    ),
    "gpt-oss-20b": _config(
        "gpt_oss", 2880, 24, 64, 8, 2880, 201088,
        head_dim=64, sliding_window=128, **_mixtral_moe(32, 4),
    ),
    "gpt-oss-120b": _config(
        "gpt_oss", 2880, 36, 64, 8, 2880, 201088,
        head_dim=64, sliding_window=128, **_mixtral_moe(128, 4),
    ),
    "glm-4.5-air": _config(
        "glm4_moe", 4096, 46, 96, 8, 10944, 151552,
        head_dim=128, attention_bias=True, use_qk_norm=False, n_routed_experts=128,
        n_shared_experts=1, num_experts_per_tok=8, moe_intermediate_size=1408,
        first_k_dense_replace=1,
    ),
}  # fmt: skip

_GEMMA: Mapping[str, dict[str, object]] = {
    "gemma-2-2b gemma2-2b": _config("gemma2", 2304, 26, 8, 4, 9216, 256000, sliding_window=4096),
    "gemma-2-9b gemma2-9b": _config("gemma2", 3584, 42, 16, 8, 14336, 256000, sliding_window=4096),
    "gemma-2-27b gemma2-27b": _config(
        "gemma2", 4608, 46, 32, 16, 36864, 256000, head_dim=128, sliding_window=4096
    ),
    "gemma-3-1b gemma3-1b": _config(
        "gemma3_text", 1152, 26, 4, 1, 6912, 262144, sliding_window=512
    ),
    "gemma-3-4b gemma3-4b": _config(
        "gemma3_text", 2560, 34, 8, 4, 10240, 262208, sliding_window=1024
    ),
    "gemma-3-12b gemma3-12b": _config(
        "gemma3_text", 3840, 48, 16, 8, 15360, 262208, sliding_window=1024
    ),
    "gemma-3-27b gemma3-27b": _config(
        "gemma3_text", 5376, 62, 32, 16, 21504, 262208, head_dim=128, sliding_window=1024
    ),
}

_GPT_LIKE: Mapping[str, dict[str, object]] = {
    "gpt2 gpt-2 gpt2-small": _gpt2_config(768, 12, 12),
    "gpt2-medium": _gpt2_config(1024, 24, 16),
    "gpt2-large": _gpt2_config(1280, 36, 20),
    "gpt2-xl": _gpt2_config(1600, 48, 25),
    "gpt3-175b gpt-3-175b": _gpt2_config(12288, 96, 96, positions=2048),
    "phi-2": _config("phi", 2560, 32, 32, 32, 10240, 51200),
    "gpt-neox-20b": _config("gpt_neox", 6144, 44, 64, 64, 24576, 50432),
    "opt-350m": _opt_config(1024, 24, 16, word_embed_proj_dim=512, do_layer_norm_before=False),
    "opt-1.3b": _opt_config(2048, 24, 32),
    "opt-6.7b": _opt_config(4096, 32, 32),
    "opt-13b": _opt_config(5120, 40, 40),
    "bloom-560m": _bloom_config(1024, 24, 16),
    "bloom-176b bloom": _bloom_config(14336, 70, 112),
    "falcon-7b": {
        "model_type": "falcon",
        "hidden_size": 4544,
        "num_hidden_layers": 32,
        "num_attention_heads": 71,
        "vocab_size": 65024,
        "multi_query": True,
        "parallel_attn": True,
        "bias": False,
    },
}


def _shapes() -> Iterator[tuple[str, ModelShape]]:
    for table in (_LLAMA_LIKE, _SPARSE, _GEMMA, _GPT_LIKE):
        for names, config in table.items():
            canonical, *aliases = names.split()
            shape = replace(from_hugging_face(config), name=canonical)
            for name in (canonical, *aliases):
                yield name, shape


_KNOWN: Mapping[str, ModelShape] = dict(_shapes())
