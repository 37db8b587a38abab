"""Parameters by module, FLOPs outside the formula, and the key/value cache.

modules(shape)                    parameters of each module, biases and norms included
uncounted(shape, T)               estimated FLOPs per token outside the formula
kv_cache_bytes_per_token(shape)   keys and values of a token, averaged over a context
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

from . import messages
from .flops import (
    attended_pairs,
    cached_keys,
    convolution_name,
    forward_flops_per_token,
    inference_operators,
    operators,
)
from .model_shapes import (
    Attention,
    LayerGroup,
    LinearAttention,
    Mixer,
    MixtureOfExperts,
    ModelShape,
    StateMixer,
    Weight,
)
from .terms import InferencePhase

__all__ = [
    "Module",
    "Uncounted",
    "kv_cache_bytes_per_token",
    "modules",
    "uncounted",
]


# --- parameters of each module --------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """Kind of module, summed over all its layers; named as its operator, if any.

    params_total: all parameters; the sum over modules is ModelShape.params_total
    params_active: without routed experts that a token does not pass
    params_matmul: weights that one token is multiplied by, including weights of another module
        (a tied lm_head, the lm_head of multi-token prediction)
    params_embedding: look-up tables
    biases: biases among params_total
    growth: order of its forward FLOPs per token: T length, W window, d width (heads and f grow with
        d), k experts per token, E experts, V vocabulary. For a whole sequence, multiply by T.
    """

    name: str
    layers: int
    params_total: int = 0
    params_active: int = 0
    params_matmul: int = 0
    params_embedding: int = 0
    biases: int = 0
    growth: str = ""


PARAMETER_GROWTH: Final[Mapping[str, str]] = {
    "embedding": "O(1)",
    "position table": "O(d)",
    "other tables": "O(1)",
    "embedding norm": "O(d)",
    "embedding projections": "O(d²)",
    "query/key/value/output projections": "O(d²)",
    "query/key norms": "O(d)",
    "attention sinks": "O(d)",
    "core attention": "O(T·d)",
    "core attention in windows": "O(W·d)",
    "linear attention projections": "O(d²)",
    "linear attention convolution": "O(d)",
    "linear attention state": "O(d)",
    "state space projections": "O(d²)",
    "state space convolution": "O(d)",
    "state space state": "O(d)",
    "convolution projections": "O(d²)",
    "convolution": "O(d)",
    "convolution state": "O(d)",
    "indexer projections": "O(d²)",
    "indexer scores": "O(T)",
    "other attention parameters": "O(d)",
    "other projections": "O(d²)",
    "ffn": "O(d²)",
    "router": "O(E·d)",
    "routed experts": "O(k·d²)",
    "evenly routed experts": "O(k·d²)",
    "shared experts": "O(d²)",
    "shared gate": "O(d)",
    "layer norms": "O(d)",
    "final norm": "O(d)",
    "lm_head": "O(V·d)",
    "mtp projection": "O(d²)",
    "mtp norms": "O(d)",
}
"""Order of growth by module; multi-token prediction modules grow like their namesakes."""


def modules(shape: ModelShape) -> tuple[Module, ...]:
    """Return every kind of module of the model, in the order of the forward pass.

    params_total, params_active, params_matmul and params_embedding add up to ModelShape's.
    """
    rows: dict[str, Module] = {}
    for row in _rows(shape):
        seen = rows.get(row.name)
        rows[row.name] = row if seen is None else _added(seen, row)
    return tuple(rows.values())


def _added(a: Module, b: Module) -> Module:
    names = [field.name for field in fields(Module) if field.type == "int"]
    sums = {name: getattr(a, name) + getattr(b, name) for name in names}
    return Module(name=a.name, growth=a.growth, **sums)


def _rows(shape: ModelShape) -> Iterator[Module]:
    d, modules_ahead = shape.hidden_size, shape.mtp_modules
    norm = d if shape.norm == "rms" else 2 * d
    yield from _input_rows(shape, norm)
    for group in shape.layers:
        for row in _layer_rows(group, d, norm * shape.norms_per_layer):
            yield replace(row, params_matmul=group.passes * row.params_matmul)
    if shape.extra or shape.extra_params:
        yield _row("other projections", 1, shape.extra, vectors=shape.extra_params)
    if shape.final_norm:
        yield _row("final norm", 1, vectors=norm)
    yield _lm_head(shape)
    if modules_ahead:
        yield _row("mtp projection", modules_ahead, [Weight("", 2 * d, d)])
        yield _row("mtp norms", modules_ahead, vectors=3 * norm)
        last = replace(shape.layers[-1], count=modules_ahead)
        for row in _layer_rows(last, d, norm * shape.norms_per_layer):
            yield replace(row, name=f"mtp {row.name}")
        yield Module(
            name="mtp lm_head",
            layers=modules_ahead,
            params_matmul=modules_ahead * d * shape.vocab_size,
            growth=PARAMETER_GROWTH["lm_head"],
        )


def _input_rows(shape: ModelShape, norm: int) -> Iterator[Module]:
    d, width = shape.hidden_size, shape.embedding_size or shape.hidden_size
    yield _table("embedding", shape.vocab_size * width)
    if shape.positions:
        yield _table("position table", shape.positions * d)
    if shape.extra_embedding:
        yield _table("other tables", shape.extra_embedding)
    if shape.embedding_norm:
        yield _row("embedding norm", 1, vectors=norm)
    if shape.embedding_size is not None:
        yield _row("embedding projections", 2, [Weight("", width, d)])


def _table(name: str, params: int) -> Module:
    return Module(
        name=name,
        layers=1,
        params_total=params,
        params_active=params,
        params_embedding=params,
        growth=PARAMETER_GROWTH[name],
    )


def _lm_head(shape: ModelShape) -> Module:
    """Return the lm_head module.

    A tied weight multiplies tokens here, but its parameters belong to the embedding.
    """
    weights = shape.vocab_size * (shape.embedding_size or shape.hidden_size)
    bias = shape.vocab_size if shape.head_bias else 0
    head_params = bias if shape.tied_embeddings else weights + bias
    return Module(
        name="lm_head",
        layers=1,
        params_total=head_params,
        params_active=head_params,
        params_matmul=weights,
        biases=bias,
        growth=PARAMETER_GROWTH["lm_head"],
    )


def _layer_rows(group: LayerGroup, d: int, norms: int) -> Iterator[Module]:
    for mixer in group.mixers:
        if isinstance(mixer, Attention):
            yield from _attention_rows(mixer, group.count, d)
        else:
            yield from _state_rows(mixer, group.count, d)
    if group.ffn is not None:
        bias = group.ffn.bias_params(d)
        yield _row("ffn", group.count, group.ffn.weights(d), biases=bias)
    if group.moe is not None:
        yield from _expert_rows(group.moe, group.count, d)
    if group.extra or group.extra_params:
        yield _row("other projections", group.count, group.extra, vectors=group.extra_params)
    if norms:
        yield _row("layer norms", group.count, vectors=norms)


def _attention_rows(attention: Attention, count: int, d: int) -> Iterator[Module]:
    bias = attention.bias_params(d)
    weights = [w for w in attention.weights(d) if w not in attention.indexer]
    yield _row("query/key/value/output projections", count, weights, biases=bias)
    if attention.indexer:
        yield _row("indexer projections", count, attention.indexer)
        yield _row("indexer scores", count)
    if params := attention.norm_params():
        yield _row("query/key norms", count, vectors=params)
    if attention.extra_params:
        yield _row("other attention parameters", count, vectors=attention.extra_params)
    if params := attention.sink_params():
        yield _row("attention sinks", count, vectors=params)
    local = attention.window is not None or attention.chunk is not None
    yield _row("core attention in windows" if local else "core attention", count)


def _state_rows(mixer: LinearAttention | StateMixer, count: int, d: int) -> Iterator[Module]:
    weights = list(mixer.weights(d))
    kernels = [w for w in weights if w.name == "conv1d"]
    yield _row(f"{mixer.kind} projections", count, (w for w in weights if w.name != "conv1d"))
    if kernels:
        yield _row(convolution_name(mixer), count, kernels)
    yield _row(f"{mixer.kind} state", count, vectors=mixer.vector_params(d))


def _expert_rows(moe: MixtureOfExperts, count: int, d: int) -> Iterator[Module]:
    k, bias = moe.experts_per_token, moe.expert.bias_params(moe.expert_input or d)
    width = moe.expert_input or d
    routed = moe.expert.weights(width, moe.experts, k)
    yield _row("router", count, moe.router_weights(d), biases=moe.experts if moe.router_bias else 0)
    yield _row(moe.name, count, routed, biases=moe.experts * bias, active_biases=k * bias)
    if moe.shared is not None:
        shared = moe.shared.bias_params(d)
        yield _row("shared experts", count, moe.shared.weights(d), biases=shared)
    if moe.shared_gates:
        yield _row("shared gate", count, [Weight("", d, moe.shared_gates)])
    if moe.extra or moe.extra_params:
        yield _row("other projections", count, moe.extra, vectors=moe.extra_params)


def _row(  # noqa: PLR0913 (what a module can consist of)
    name: str,
    layers: int,
    weights: Iterable[Weight] = (),
    *,
    biases: int = 0,
    active_biases: int | None = None,
    vectors: int = 0,
) -> Module:
    """Return a module of `layers` layers.

    weights, biases, vectors: matrices, biases and other parameters of one layer
    """
    matrices = tuple(weights)
    held = sum(w.rows * w.columns * w.copies for w in matrices)
    used = sum(w.rows * w.columns * w.active for w in matrices)
    multiplied = sum(w.rows * w.columns * w.per_token for w in matrices)
    active = biases if active_biases is None else active_biases
    return Module(
        name=name,
        layers=layers,
        params_total=layers * (held + biases + vectors),
        params_active=layers * (used + active + vectors),
        params_matmul=layers * multiplied,
        biases=layers * biases,
        growth=PARAMETER_GROWTH[name],
    )


# --- arithmetic outside the formula ---------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncounted:
    """Estimate of arithmetic other than matmuls [FLOP per token, forward].

    share: relative to the forward FLOPs of the formula; the share of the time is larger, because
        these operators wait for memory
    rule: rule of the estimate; an exponential, a root or a division counts as 1
    """

    name: str
    forward: float
    share: float
    rule: str


def uncounted(
    shape: ModelShape,
    seq_len: int,
    *,
    phase: InferencePhase | None = None,
    documents: Sequence[int] | None = None,
) -> tuple[Uncounted, ...]:
    """Estimate the work of one forward outside its matmuls [FLOP per token].

    seq_len: tokens of one sequence, or of the context
    phase: of inference; default training
    documents: as in `operators`
    """
    if phase is None:
        ops = operators(shape, seq_len, documents=documents)
    else:
        ops = inference_operators(shape, seq_len, phase)
        shape = replace(shape, mtp_modules=0)
    counted = forward_flops_per_token(ops)

    def pairs(attention: Attention) -> float:
        if phase == "decode":
            return cached_keys(attention, seq_len)
        return attended_pairs(
            seq_len, window=attention.most_keys, chunk=attention.chunk, documents=documents
        )

    estimates = (
        ("attention softmax", _softmax(shape, pairs), "5 per score: max, minus, exp, sum, divide"),
        ("router and loss softmax", _small_softmax(shape), "5 per expert and word"),
        ("norms", _norms(shape), "RMSNorm 4, LayerNorm 7 per element"),
        ("activations", _activations(shape), "4 per element (SiLU), 5 with a gate"),
        ("rotary", _rotary(shape), "3 per turned element of queries and keys; none with a table"),
        ("residuals and biases", _additions(shape), "1 per element"),
        ("linear attention gates", _gates(shape), "1 per element of the state: its decay"),
        ("embedding look-up", _look_up(shape), "none; 1 per element where positions are added"),
    )
    return tuple(
        Uncounted(name=name, forward=flops, share=flops / counted, rule=rule)
        for name, flops, rule in estimates
    )


def _of_layers(shape: ModelShape, per_layer: Callable[[LayerGroup], float]) -> float:
    """Return the sum over all layers, multi-token prediction included."""
    return sum(count * group.passes * per_layer(group) for count, group in shape.blocks())


def _softmax(shape: ModelShape, pairs: Callable[[Attention], float]) -> float:
    def scores(group: LayerGroup) -> float:
        return sum(at.heads * pairs(at) for at in _attentions(group))

    return 5 * _of_layers(shape, scores)


def _attentions(group: LayerGroup) -> list[Attention]:
    return [mixer for mixer in group.mixers if isinstance(mixer, Attention)]


def _small_softmax(shape: ModelShape) -> float:
    experts = _of_layers(shape, lambda group: group.moe.experts if group.moe else 0)
    return 5 * (experts + (1 + shape.mtp_modules) * shape.vocab_size)


def _norms(shape: ModelShape) -> float:
    d, flops = shape.hidden_size, 4 if shape.norm == "rms" else 7
    outside = shape.final_norm + shape.embedding_norm + 3 * shape.mtp_modules
    inside = _of_layers(shape, lambda group: sum(map(_normed, group.mixers)))
    layers = _of_layers(shape, lambda _: shape.norms_per_layer)
    return flops * d * (outside + layers) + 4 * inside


def _normed(attention: Mixer) -> int:
    """Return the number of elements normalised inside a mixer."""
    if isinstance(attention, LinearAttention):
        return attention.value_width
    if not isinstance(attention, Attention):
        return 0
    latent = (attention.kv_lora_rank or 0) + (attention.q_lora_rank or 0)
    heads = 0 if attention.qk_norm == "none" else attention.heads + attention.kv_heads
    return latent + heads * attention.qk_head_dim


def _activations(shape: ModelShape) -> float:
    return _of_layers(
        shape,
        lambda group: sum(
            times * block.width * (5 if block.gated else 4)
            for _, block, times in group.feed_forwards()
        ),
    )


def _rotary(shape: ModelShape) -> float:
    def turned(group: LayerGroup) -> int:
        return sum(
            (at.heads + at.kv_heads) * at.qk_head_dim
            if at.kv_lora_rank is None
            else (at.heads + 1) * at.rope_head_dim
            for at in _attentions(group)
        )

    return 0 if shape.positions else 3 * _of_layers(shape, turned)


def _additions(shape: ModelShape) -> float:
    """Return the additions: two residuals per layer, and the biases of a token's path."""
    d = shape.hidden_size

    def layer(group: LayerGroup) -> int:
        moe = group.moe
        return (
            2 * d
            + sum(at.bias_params(d) for at in _attentions(group))
            + (group.ffn.bias_params(d) if group.ffn else 0)
            + (moe.bias_params(d, moe.experts_per_token) if moe else 0)
        )

    return _of_layers(shape, layer) + (shape.vocab_size if shape.head_bias else 0)


def _gates(shape: ModelShape) -> float:
    def state(group: LayerGroup) -> int:
        return sum(mixer.state_size for mixer in group.mixers if not isinstance(mixer, Attention))

    return _of_layers(shape, state)


def _look_up(shape: ModelShape) -> float:
    return shape.hidden_size if shape.positions else 0


# --- the key/value cache of inference -------------------------------------------------------


def kv_cache_bytes_per_token(
    shape: ModelShape, *, bytes_per_value: float, context_len: int = 1
) -> float:
    """Return the size of the keys and values of a context, per token of it [bytes].

    bytes_per_value: 2 in BF16, 1 in FP8
    context_len: tokens of the context; 1 gives what a single token adds in all layers

    MLA caches the latent vector and the rotary key, c + rope. A layer with a window or chunks
    caches no more than the tokens of one, and linear attention a state of fixed size, which is not
    included. Raises ValueError for zero or negative bytes or tokens.
    """
    if bytes_per_value <= 0:
        raise messages.IMPOSSIBLE_VALUE_SIZE(bytes_per_value=bytes_per_value)
    if context_len < 1:
        raise messages.IMPOSSIBLE_CONTEXT(context_len=context_len)
    values = sum(
        group.count * group.passes * _cached_values(mixer) * _cached_tokens(mixer, context_len)
        for group in shape.layers
        for mixer in group.mixers
    )
    return values * bytes_per_value / context_len


def _cached_tokens(mixer: Mixer, context_len: int) -> int:
    if not isinstance(mixer, Attention):
        return 0
    limits = (mixer.window, mixer.chunk)
    return min([context_len, *(limit for limit in limits if limit is not None)])


def _cached_values(attention: Mixer) -> int:
    if not isinstance(attention, Attention) or not attention.own_keys:
        return 0
    if attention.kv_lora_rank is not None:
        return attention.kv_lora_rank + attention.rope_head_dim
    return attention.kv_heads * (attention.qk_head_dim + attention.v_head_dim)
