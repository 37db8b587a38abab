"""Shape of a decoder, and building blocks for the readers of configurations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from .. import messages


@dataclass(frozen=True, slots=True)
class Weight:
    """Kind of weight matrix in a layer.

    name: the projection's name in Hugging Face's Llama and DeepSeek
    copies: number of such matrices in the layer (experts)
    per_token: number of such matrices that multiply one token (experts per token)
    """

    name: str
    rows: int
    columns: int
    copies: int = 1
    per_token: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Softmax attention of one layer: MHA, GQA and MQA, or MLA with `kv_lora_rank`.

    heads, kv_heads: query heads; key/value heads (MLA: as many as query heads)
    qk_head_dim, v_head_dim: width of one head of query and key, and of value; MLA: nope + rope
    window: keys that a query sees, itself included; None: no window
    chunk: attention stays inside chunks of this many tokens; None: no chunks
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

    def __post_init__(self) -> None:
        """Raise ImpossibleShapeError for impossible heads or lengths."""
        lengths = {"window": self.window, "chunk": self.chunk}
        widths = {"key and value heads": self.kv_heads, "head width": self.qk_head_dim}
        for name, size in (lengths | widths | {"width of a value": self.v_head_dim}).items():
            if size is not None and size < 1:
                raise messages.IMPOSSIBLE_ATTENTION_SIZE(name=name, size=size)
        if self.heads < 1 or self.heads % self.kv_heads:
            raise messages.HEADS_INDIVISIBLE(heads=self.heads, kv_heads=self.kv_heads)

    def weights(self, hidden: int) -> tuple[Weight, ...]:
        """Return the weight matrices of a layer with inputs of width `hidden`."""
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
        """Return the number of outputs of the query projection, gate included."""
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
        """Return the parameters outside the matrices: biases, query and key norms, sinks."""
        return self.bias_params(hidden) + self.norm_params() + self.sink_params()

    def bias_params(self, hidden: int) -> int:
        """Return the parameters of the projections' biases."""
        output = hidden if self.output_bias else 0
        return output + (self._qkv_bias_params() if self.qkv_bias else 0)

    def sink_params(self) -> int:
        """Return the parameters of the sinks."""
        return self.heads if self.sinks else 0

    def _qkv_bias_params(self) -> int:
        if self.kv_lora_rank is not None:
            return (self.q_lora_rank or 0) + self.kv_lora_rank + self.rope_head_dim
        key_value = self.kv_heads * (self.qk_head_dim + self.v_head_dim)
        return self._query_width() + key_value

    def norm_params(self) -> int:
        """Return the parameters of the query and key norms, and of MLA's latent norms."""
        latent = (self.kv_lora_rank or 0) + (self.q_lora_rank or 0)
        per_head = {"none": 0, "head": 2, "all": self.heads + self.kv_heads}[self.qk_norm]
        return latent + per_head * self.qk_head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearAttention:
    """Attention through a recurrent state: Gated DeltaNet, or KDA with `gate_rank`.

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
        """Width of all key heads together."""
        return self.key_heads * self.key_head_dim

    @property
    def value_width(self) -> int:
        """Width of all value heads together."""
        return self.value_heads * self.value_head_dim

    def weights(self, hidden: int) -> Iterator[Weight]:
        """Yield the weight matrices of a layer, with the convolution's kernel.

        The kernel counts as a matrix with `conv_kernel` rows.
        """
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
        """Return the parameters outside the matrices: decay with bias, and output norm."""
        decays = self.value_heads if self.gate_rank is None else self.key_width
        return self.value_heads + decays + self.value_head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForward:
    """Feed-forward block: gated (SwiGLU, GeGLU: three matrices) or plain (two).

    fused: gate and up are one weight (counts for adapters only)
    """

    width: int
    gated: bool = True
    bias: bool = False
    fused: bool = False

    def weights(self, hidden: int, copies: int = 1, per_token: int = 1) -> Iterator[Weight]:
        """Yield the weight matrices of `copies` such blocks."""
        if self.gated and self.fused:
            yield Weight("gate_up_proj", hidden, 2 * self.width, copies, per_token)
        elif self.gated:
            yield Weight("gate_proj", hidden, self.width, copies, per_token)
        if not (self.gated and self.fused):
            yield Weight("up_proj", hidden, self.width, copies, per_token)
        yield Weight("down_proj", self.width, hidden, copies, per_token)

    def bias_params(self, hidden: int) -> int:
        """Return the parameters of the biases of one block."""
        return ((2 if self.gated else 1) * self.width + hidden) if self.bias else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtureOfExperts:
    """Routed experts with their router, and shared experts that every token passes.

    expert: one routed expert
    shared: all shared experts together, as one block of their summed width
    shared_gates: outputs of the gate over the shared block; 0: no gate
    """

    experts: int
    experts_per_token: int
    expert: FeedForward
    router_bias: bool = False
    shared: FeedForward | None = None
    shared_gates: int = 0

    def __post_init__(self) -> None:
        if self.experts_per_token > self.experts:
            raise messages.TOO_FEW_EXPERTS(
                experts_per_token=self.experts_per_token, experts=self.experts
            )

    def weights(self, hidden: int) -> Iterator[Weight]:
        """Yield the weight matrices of a layer."""
        yield Weight("router", hidden, self.experts)
        yield from self.expert.weights(hidden, self.experts, self.experts_per_token)
        if self.shared is not None:
            yield from self.shared.weights(hidden)
        if self.shared_gates:
            yield Weight("shared_gate", hidden, self.shared_gates)

    def bias_params(self, hidden: int, experts: int) -> int:
        """Return the parameters of the biases, with this many of the routed experts."""
        shared = self.shared.bias_params(hidden) if self.shared else 0
        router = self.experts if self.router_bias else 0
        return experts * self.expert.bias_params(hidden) + shared + router


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """Layers of equal shape, not necessarily neighbours.

    ffn, moe: one of them, or both where a dense block runs beside the experts
    """

    count: int
    attention: Attention | LinearAttention
    ffn: FeedForward | None = None
    moe: MixtureOfExperts | None = None

    def __post_init__(self) -> None:
        if self.ffn is None and self.moe is None:
            raise messages.NO_FEED_FORWARD()  # noqa: RSE102 - a kind

    def weights(self, hidden: int) -> Iterator[Weight]:
        """Yield the weight matrices of one of the layers."""
        yield from self.attention.weights(hidden)
        if self.ffn is not None:
            yield from self.ffn.weights(hidden)
        if self.moe is not None:
            yield from self.moe.weights(hidden)

    def vector_params(self, hidden: int, *, active: bool = False) -> int:
        """Return the parameters of one layer outside its matrices and layer norms.

        active: without the routed experts that a token does not pass
        """
        params = self.attention.vector_params(hidden)
        if self.ffn is not None:
            params += self.ffn.bias_params(hidden)
        if self.moe is not None:
            moe = self.moe
            params += moe.bias_params(hidden, moe.experts_per_token if active else moe.experts)
        return params

    def feed_forwards(self) -> Iterator[tuple[str, FeedForward, int]]:
        """Yield (operator, block, number of such blocks that a token passes)."""
        if self.ffn is not None:
            yield "ffn", self.ffn, 1
        if self.moe is not None:
            yield "routed experts", self.moe.expert, self.moe.experts_per_token
            if self.moe.shared is not None:
                yield "shared experts", self.moe.shared, 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """Dimensions of a decoder, without its vision tower.

    vocab_size: unpadded, as in the model's config
    tied_embeddings: lm_head and embedding table are one weight
    layers: groups of equal layers, in order of first appearance
    norm, norms_per_layer: kind of the norms of hidden width (`layer` has a bias), and their number
    final_norm, embedding_norm: a norm before lm_head, a norm after the embedding
    embedding_size: width of the table if not the hidden size (two more projections)
    positions: rows of a learned position table
    head_bias: lm_head has a bias
    mtp_modules: multi-token prediction modules, each a layer of the last group. A configuration
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
        """True if a layer's cost depends on its kernel and is thus an estimate."""
        return any(isinstance(group.attention, LinearAttention) for group in self.layers)

    @property
    def params_total(self) -> int:
        """All parameters, norms and biases included, a tied table once."""
        return self._params(active=False)

    @property
    def params_active(self) -> int:
        """`params_total` without the routed experts that a token does not pass."""
        return self._params(active=True)

    @property
    def params_embedding(self) -> int:
        """Parameters of the token and position tables; a tied token table is lm_head too."""
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
        """Return (layers, weight) of each kind of weight named by LoRA targets.

        `all-linear` is every projection of attention and feed-forward blocks, not the router, the
        gates and lm_head; `every-linear` is lm_head too. Names of other code bases are understood
        (w1, wqkv, c_attn, fc1, …).

        Raises ShapeError for a name that no weight of this model has, and for `every-linear` of a
        model with experts: their weights are in no linear module.
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
            return targeted_weights(every, targets, self.name)
        if any(group.moe for group in self.layers):
            raise messages.LORA_EXPERTS_UNKNOWN(model=self.name)
        return tuple(every)

    def blocks(self) -> Iterator[tuple[int, LayerGroup]]:
        """Yield (count, kind of layer) of the model, then of multi-token prediction."""
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
    "c_proj": ("o_proj", "down_proj"),  # GPT-2's name of both
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


def targeted_weights(
    weights: Sequence[tuple[int, Weight]], targets: Sequence[str], model: str
) -> tuple[tuple[int, Weight], ...]:
    """Return the (layers, weight) named by LoRA targets; `all-linear`: all of them.

    Raises ShapeError, naming the model, for a target that matches no weight.
    """
    if tuple(targets) == ("all-linear",):
        return tuple(weights)
    present = {weight.name for _, weight in weights}
    wanted: set[str] = set()
    for target in targets:
        meant = {target} if target in present else set(_WEIGHT_NAMES.get(target, (target,)))
        if present.isdisjoint(meant):
            raise messages.UNKNOWN_LORA_TARGET(
                model=model, target=target, names=", ".join(sorted(present))
            )
        wanted |= meant
    return tuple((count, weight) for count, weight in weights if weight.name in wanted)


def with_params_total(shape: ModelShape, params_total: int) -> ModelShape:
    """Return the same shape with the vocabulary that gives `params_total`.

    torchtitan used the tokenizer's vocabulary until 2025-07-22, so one flavour has several; the
    `size: … total parameters` line shows the total. The vocabulary is then inferred, not known.

    Raises ShapeError where no vocabulary gives this total: then the model is another one.
    """
    per_word = (shape.embedding_size or shape.hidden_size) * (1 if shape.tied_embeddings else 2)
    words, rest = divmod(params_total - shape.params_total, per_word)
    if rest or shape.vocab_size + words < 1:
        raise messages.OTHER_PARAMETER_COUNT(
            model=shape.name, own=shape.params_total, logged=params_total, alike=""
        )
    return replace(shape, vocab_size=shape.vocab_size + words)


# --- building shapes ------------------------------------------------------------------------

Mixer = Attention | LinearAttention
Layer = tuple[Mixer, FeedForward | None, MixtureOfExperts | None]


def grouped_layers(layers: Iterable[Layer]) -> tuple[LayerGroup, ...]:
    """Count equal layers, in order of first appearance."""
    return tuple(
        LayerGroup(count=count, attention=attention, ffn=ffn, moe=moe)
        for (attention, ffn, moe), count in Counter(layers).items()
    )


def windowed_layers(
    attention: Attention, windows: Sequence[int | None], ffn: FeedForward
) -> tuple[LayerGroup, ...]:
    """Return groups of dense layers that differ only in their window."""
    return tuple(
        LayerGroup(count=count, attention=replace(attention, window=window), ffn=ffn)
        for window, count in Counter(windows).items()
    )


def head_width(hidden: int, heads: int) -> int:
    """Return the width of a head where heads share the hidden size.

    Raises ShapeError where the hidden size is no multiple of the heads.
    """
    if hidden % heads:
        raise messages.HIDDEN_SIZE_INDIVISIBLE(heads=heads, hidden=hidden)
    return hidden // heads


def grouped_query(
    heads: int, kv_heads: int, width: int, *, qk_norm: Literal["none", "head", "all"] = "none"
) -> Attention:
    """Return grouped-query attention with one head width, without biases."""
    return Attention(
        heads=heads, kv_heads=kv_heads, qk_head_dim=width, v_head_dim=width, qk_norm=qk_norm
    )


_LAYERS = frozenset({"num_hidden_layers", "num_layers", "n_layers", "n_layer"})
_MOST_LAYERS = 100_000
_LARGEST = 2**28
"""Largest dimension, far beyond any model's."""


def check_dimension(source: str, key: str, value: int) -> int:
    """Return a dimension unchanged if a model can have it.

    Raises ImpossibleShapeError.
    """
    most = _MOST_LAYERS if key in _LAYERS else _LARGEST
    if not 0 <= value <= most:
        raise messages.IMPOSSIBLE_DIMENSION(source=source, key=key, value=value, most=most)
    return value
