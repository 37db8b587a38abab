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
    InferencePhase,
    attended_pairs,
    cached_keys,
    forward_flops_per_token,
    inference_operators,
    operators,
)
from .model_shapes import (
    Attention,
    LayerGroup,
    LinearAttention,
    MixtureOfExperts,
    ModelShape,
    Weight,
)

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
    "ffn": "O(d²)",
    "router": "O(E·d)",
    "routed experts": "O(k·d²)",
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
        yield from _layer_rows(group, d, norm * shape.norms_per_layer)
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
    if isinstance(group.attention, LinearAttention):
        yield from _linear_rows(group.attention, group.count, d)
    else:
        yield from _attention_rows(group.attention, group.count, d)
    if group.ffn is not None:
        bias = group.ffn.bias_params(d)
        yield _row("ffn", group.count, group.ffn.weights(d), biases=bias)
    if group.moe is not None:
        yield from _expert_rows(group.moe, group.count, d)
    if norms:
        yield _row("layer norms", group.count, vectors=norms)


def _attention_rows(attention: Attention, count: int, d: int) -> Iterator[Module]:
    bias = attention.bias_params(d)
    yield _row("query/key/value/output projections", count, attention.weights(d), biases=bias)
    if params := attention.norm_params():
        yield _row("query/key norms", count, vectors=params)
    if params := attention.sink_params():
        yield _row("attention sinks", count, vectors=params)
    local = attention.window is not None or attention.chunk is not None
    yield _row("core attention in windows" if local else "core attention", count)


def _linear_rows(attention: LinearAttention, count: int, d: int) -> Iterator[Module]:
    weights = list(attention.weights(d))
    yield _row("linear attention projections", count, (w for w in weights if w.name != "conv1d"))
    yield _row("linear attention convolution", count, (w for w in weights if w.name == "conv1d"))
    yield _row("linear attention state", count, vectors=attention.vector_params(d))


def _expert_rows(moe: MixtureOfExperts, count: int, d: int) -> Iterator[Module]:
    k, bias = moe.experts_per_token, moe.expert.bias_params(d)
    routed = moe.expert.weights(d, moe.experts, k)
    yield _row(
        "router", count, [Weight("", d, moe.experts)], biases=moe.experts if moe.router_bias else 0
    )
    yield _row("routed experts", count, routed, biases=moe.experts * bias, active_biases=k * bias)
    if moe.shared is not None:
        shared = moe.shared.bias_params(d)
        yield _row("shared experts", count, moe.shared.weights(d), biases=shared)
    if moe.shared_gates:
        yield _row("shared gate", count, [Weight("", d, moe.shared_gates)])


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
    used = sum(w.rows * w.columns * w.per_token for w in matrices)
    active = biases if active_biases is None else active_biases
    return Module(
        name=name,
        layers=layers,
        params_total=layers * (held + biases + vectors),
        params_active=layers * (used + active + vectors),
        params_matmul=layers * used,
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
            seq_len, window=attention.window, chunk=attention.chunk, documents=documents
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
    return sum(count * per_layer(group) for count, group in shape.blocks())


def _softmax(shape: ModelShape, pairs: Callable[[Attention], float]) -> float:
    def scores(group: LayerGroup) -> float:
        at = group.attention
        return 0 if isinstance(at, LinearAttention) else at.heads * pairs(at)

    return 5 * _of_layers(shape, scores)


def _small_softmax(shape: ModelShape) -> float:
    experts = _of_layers(shape, lambda group: group.moe.experts if group.moe else 0)
    return 5 * (experts + (1 + shape.mtp_modules) * shape.vocab_size)


def _norms(shape: ModelShape) -> float:
    d, flops = shape.hidden_size, 4 if shape.norm == "rms" else 7
    outside = shape.final_norm + shape.embedding_norm + 3 * shape.mtp_modules
    inside = _of_layers(shape, lambda group: _normed(group.attention))
    layers = _of_layers(shape, lambda _: shape.norms_per_layer)
    return flops * d * (outside + layers) + 4 * inside


def _normed(attention: Attention | LinearAttention) -> int:
    """Return the number of elements normalised inside a layer's attention."""
    if isinstance(attention, LinearAttention):
        return attention.value_width
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
        at = group.attention
        if isinstance(at, LinearAttention):
            return 0
        if at.kv_lora_rank is not None:
            return (at.heads + 1) * at.rope_head_dim
        return (at.heads + at.kv_heads) * at.qk_head_dim

    return 0 if shape.positions else 3 * _of_layers(shape, turned)


def _additions(shape: ModelShape) -> float:
    """Return the additions: two residuals per layer, and the biases of a token's path."""
    d = shape.hidden_size

    def layer(group: LayerGroup) -> int:
        at, moe = group.attention, group.moe
        return (
            2 * d
            + (0 if isinstance(at, LinearAttention) else at.bias_params(d))
            + (group.ffn.bias_params(d) if group.ffn else 0)
            + (moe.bias_params(d, moe.experts_per_token) if moe else 0)
        )

    return _of_layers(shape, layer) + (shape.vocab_size if shape.head_bias else 0)


def _gates(shape: ModelShape) -> float:
    def state(group: LayerGroup) -> int:
        at = group.attention
        return at.value_width * at.key_head_dim if isinstance(at, LinearAttention) else 0

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
        group.count * _cached_values(group.attention) * _cached_tokens(group.attention, context_len)
        for group in shape.layers
    )
    return values * bytes_per_value / context_len


def _cached_tokens(attention: Attention | LinearAttention, context_len: int) -> int:
    if isinstance(attention, LinearAttention):
        return 0
    limits = (attention.window, attention.chunk)
    return min([context_len, *(limit for limit in limits if limit is not None)])


def _cached_values(attention: Attention | LinearAttention) -> int:
    if isinstance(attention, LinearAttention):
        return 0
    if attention.kv_lora_rank is not None:
        return attention.kv_lora_rank + attention.rope_head_dim
    return attention.kv_heads * (attention.qk_head_dim + attention.v_head_dim)
