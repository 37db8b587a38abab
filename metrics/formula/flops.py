"""Model FLOPs per token, operator by operator: THE formula, version `fairmfu-1`.

Matmuls only; one multiply-add is 2 FLOPs; no recomputation counts. Forward, per token:

    query/key/value/output projections   2d(Hq + Gq + Gv) + 2Hvd
      the same under MLA                 query 2dHq, or 2dr + 2rHq with a query rank r
                                         key/value 2d(c + rope) + 2cH(nope + v); output 2Hvd
      an output gate (Qwen3-Next)        2dHv more
    core attention                       2H(q + v) A
    indexer projections, scores          2 per weight, 2H_i(d_i + 1) A for H_i heads of width d_i
    linear attention projections         2 per weight, convolution likewise
    linear attention state               6 d_k d_v per value head: an estimate
    state space, convolution             2 per weight; state 6 per element: an estimate
    other projections                    2 per weight
    ffn                                  gated 6df, plain 4df
    router                               2dE
    routed experts                       k times the FFN of the experts' width
    shared experts, shared gate          the FFN of their width, 2d
    lm_head                              2dV, tied or not; the embedding look-up is no matmul
    mtp module                           projection 2(2d)d, one layer, a second lm_head
    embedding projections                2ed on the way in, 2de on the way out (a table of width e)

    d  hidden size            H  query heads              G  key/value heads
    q  head width of QK       v  head width of V          f  FFN width
    c  key/value rank of MLA  rope, nope  the two parts of q under MLA
    E  experts                k  experts per token        V  vocabulary, unpadded
    T  sequence length        A  attended pairs per token, see `attended_pairs`
    d_k, d_v  head widths of linear attention

Sparse attention with top k keys: A as for a window of k. A layer that a token passes several
times counts as often.

Backward: a trained weight 2x its forward (input and weight gradient), a frozen weight that a
gradient passes 1x, a weight upstream of everything trained 0x; core attention and states 2x where
a gradient passes, else 0x. So full training is 3x forward.

Vision towers are in metrics/formula/vision.py, with the same operators.

Not counted: norms, softmax, activations, rotary, embeddings, optimizer, communication.
Sources: PaLM, arXiv:2204.02311, appendix B, and Korthikanti et al., arXiv:2205.05198, made exact
per operator. tests/metrics/formula/test_flop_counter.py compares with PyTorch's FlopCounterMode.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from . import messages
from .model_shapes import (
    Attention,
    FeedForward,
    LayerGroup,
    LinearAttention,
    MixtureOfExperts,
    ModelShape,
    StateMixer,
    Weight,
)
from .terms import AttentionConvention, Dtype, InferencePhase, Pass, Recompute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

CONVOLUTION = "convolution"
"""Operator of short convolutions outside linear attention. Their kernels also compute outputs that
are cut off, a few tokens of a sequence, so the count is an estimate."""

FORWARD_ONLY = "forward-only "
"""Start of the names of operators that pass no gradient in looped models (HRM-Text)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trainable:
    """Trained weights of a model or a part (`metrics.formula.vision.TrainedParts`).

    kind: `full`: every weight. `lora`: adapters only. `frozen`: no weight, but a gradient passes
        through (LLaVA's first stage: only the projector upstream is trained). `upstream`: no
        weight, and nothing upstream is trained either, so the part runs forward only
    lora_rank: rank of the adapters; required with `lora`
    lora_targets: ("all-linear",), every projection of attention and FFN, but not router, gates
        and lm_head; ("every-linear",), lm_head too; or names of projections in the model's
        code: q_proj, w1, wqkv, … Routed experts are adapted where their
        names are meant, as many as a token passes.

    Raises ValueError where the three contradict each other.
    """

    kind: Literal["full", "lora", "frozen", "upstream"] = "full"
    lora_rank: int | None = None
    lora_targets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind == "lora":
            self._check_adapters()
        elif self.lora_rank is not None or self.lora_targets:
            raise messages.LORA_NOT_TRAINED(trainable=self.kind)

    def _check_adapters(self) -> None:
        if self.lora_rank is None or self.lora_rank < 1:
            raise messages.LORA_RANK_MISSING(rank=self.lora_rank)
        if not self.lora_targets:
            raise messages.LORA_TARGETS_MISSING()  # noqa: RSE102 - a kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """Kind of matmul in a model, summed over all its layers [FLOP per token].

    In a vision tower, FLOP per set of images until `metrics.formula.vision.per_token`.

    layers: number of layers with this operator
    forward, backward: of one token, one forward and its backward
    recomputed: forward that runs once more in the backward pass; 0 except for HFU
    estimate: the count depends on a kernel (linear attention), so the number is not exact
    """

    name: str
    layers: int
    forward: float
    backward: float
    recomputed: float = 0.0
    estimate: bool = False

    @property
    def training(self) -> float:
        """Return forward plus backward [FLOP per token], without recomputation."""
        return self.forward + self.backward

    def flops_of(self, matmul_kind: Pass) -> float:
        """Return the FLOPs per token of one pass.

        A backward up to 1x the forward is the input gradient, the rest is the weight gradient. Core
        attention has no weight; there the backward is split half and half.
        """
        if matmul_kind == "forward":
            return self.forward + self.recomputed
        input_gradient = min(self.forward, self.backward)
        return input_gradient if matmul_kind == "input_gradient" else self.backward - input_gradient


# --- attended pairs -------------------------------------------------------------------------


def attended_pairs(  # noqa: PLR0913 (the parts of a mask)
    seq_len: int,
    *,
    window: int | None = None,
    chunk: int | None = None,
    block: int | None = None,
    causal: bool = True,
    documents: Sequence[int] | None = None,
) -> float:
    """Return A: query-key pairs that the mask lets through, per token.

    seq_len: tokens of one sequence, or of one pack
    window: most keys that a query sees, itself included
    chunk: attention stays inside consecutive chunks of this many tokens
    block: the window is kept in whole blocks of this many keys, the query's own among them
    documents: lengths of a pack's documents where a mask separates them (with several packs: all
        of them in one list); without lengths, the whole sequence is one document

    Causal (T+1)/2; window (W(W+1)/2 + (T-W)W)/T; documents sum n(n+1)/2 / sum n; else T.
    Raises ValueError for a length below 1, a document longer than `seq_len`, or a window or
    chunk without a causal mask.
    """
    lengths = [seq_len] if documents is None else list(documents)
    _check_lengths(seq_len, lengths, [size for size in (window, chunk) if size is not None])
    if not causal and (window is not None or chunk is not None):
        raise messages.WINDOW_NOT_CAUSAL()  # noqa: RSE102 - a kind
    if not causal:
        return sum(n * n for n in lengths) / sum(lengths)
    if window is not None and block is not None:
        return sum(_block_pairs(n, window, block) for n in lengths) / sum(lengths)
    return sum(_chunked_pairs(n, window, chunk) for n in lengths) / sum(lengths)


def _check_lengths(seq_len: int, lengths: list[int], sizes: list[int]) -> None:
    if not lengths or min(seq_len, *lengths, *sizes) < 1:
        raise messages.IMPOSSIBLE_LENGTHS(seq_len=seq_len, documents=lengths, sizes=sizes)
    if max(lengths) > seq_len:
        raise messages.DOCUMENT_TOO_LONG(longest=max(lengths), seq_len=seq_len)


def _chunked_pairs(n: int, window: int | None, chunk: int | None) -> int:
    if chunk is None:
        return _causal_pairs(n, window)
    chunks, rest = divmod(n, chunk)
    return chunks * _causal_pairs(chunk, window) + _causal_pairs(rest, window)


def _block_pairs(n: int, window: int, block: int) -> int:
    """Return the pairs of queries that keep whole blocks of keys."""
    if n <= window:
        return _causal_pairs(n, None)
    blocks, rest = divmod(n - window, block)
    kept = window - block
    own = blocks * (block * (block + 1) // 2) + rest * (rest + 1) // 2
    return _causal_pairs(window, None) + kept * (n - window) + own


def _causal_pairs(n: int, window: int | None) -> int:
    W = n if window is None else min(window, n)
    return W * (W + 1) // 2 + (n - W) * W


def _compressed_per_token(attention: Attention, lengths: Sequence[int]) -> float:
    return sum(n * compressed_keys(attention, n) for n in lengths) / sum(lengths)


def compressed_keys(attention: Attention, T: int, *, full: bool = False) -> float:
    """Return the compressed keys that a query sees, per token.

    Each stands for `compression` whole tokens before the query's end; at most `top_k` are chosen.
    full: all keys of the sequence, as an eager kernel multiplies them
    """
    rate = attention.compression
    if rate is None:
        return 0
    entries = T // rate
    if full:
        return entries
    most = entries if attention.top_k is None else min(attention.top_k, entries)
    last = T % rate + 1  # queries that see every entry
    seen = rate * sum(min(entry, most) for entry in range(1, entries)) + last * most
    return seen / T if entries else 0


_Pairs: TypeAlias = "Callable[[Attention], float]"
"""Returns A of a kind of attention."""


# --- forward, one layer ---------------------------------------------------------------------


def _products(weights: Iterable[Weight]) -> int:
    """Return the products of one token with weights [FLOP per token]."""
    return sum(2 * weight.rows * weight.columns * weight.per_token for weight in weights)


def _split(name: str, weights: Iterable[Weight]) -> Iterator[tuple[str, float]]:
    """Yield the products of weights, and of kernels over neighbouring tokens."""
    matrices = list(weights)
    kernels = [weight for weight in matrices if weight.name == "conv1d"]
    if len(kernels) < len(matrices):
        yield name, _products(weight for weight in matrices if weight.name != "conv1d")
    if kernels:
        yield CONVOLUTION, _products(kernels)


def projections(d: int, attention: Attention) -> int:
    """Return the projections of a layer's attention [FLOP per token].

    Query, key, value and output; MLA as in DeepSeek-V2, arXiv:2405.04434; with gates, without the
    indexer.
    """
    return _products(attention.weights(d)) - _products(attention.indexer)


def core_attention(attention: Attention, A: float) -> float:
    """Return the scores and the weighted sum of one layer [FLOP per token].

    A: attended pairs per token
    """
    H, q, v = attention.heads, attention.qk_head_dim, attention.v_head_dim
    return 2 * (H * (q + v) + attention.wide_values) * A


def _attention(d: int, attention: Attention, A_of: _Pairs) -> Iterator[tuple[str, float]]:
    weights = (weight for weight in attention.weights(d) if weight not in attention.indexer)
    yield from _split("query/key/value/output projections", weights)
    if attention.indexer:
        yield "indexer projections", _products(attention.indexer)
        yield "indexer scores", 2 * attention.score_width * _scored_keys(attention, A_of)
    yield "core attention", core_attention(attention, A_of(attention))


def state_flops(mixer: LinearAttention | StateMixer) -> int:
    """Estimate one layer's state in recurrent form [FLOP per token].

    Three products with the state: the read and the write of the delta rule, and the query. Together
    6 d_k d_v per value head, and 6 per element of any other state. (Megatron counts 8.) A chunked
    kernel does more work, not counted here.
    """
    return 6 * mixer.state_size


def convolution_name(mixer: LinearAttention | StateMixer) -> str:
    """Return the name of the operator of a mixer's kernel over neighbouring tokens."""
    return mixer.kind if mixer.kind == "convolution" else f"{mixer.kind} convolution"


def _scored_keys(attention: Attention, A_of: _Pairs) -> float:
    """Return the keys that an indexer scores, per token: all that it may choose of."""
    every = A_of(replace(attention, top_k=None))
    if attention.compression is None:
        return every
    return every - A_of(replace(attention, top_k=None, compression=None))


def _stateful(d: int, mixer: LinearAttention | StateMixer) -> Iterator[tuple[str, float]]:
    """Yield the operators of a mixer with a state; one without a state is exact."""
    weights = list(mixer.weights(d))
    yield f"{mixer.kind} projections", _products(w for w in weights if w.name != "conv1d")
    if any(w.name == "conv1d" for w in weights):
        yield convolution_name(mixer), _products(w for w in weights if w.name == "conv1d")
    if mixer.state_size:
        yield f"{mixer.kind} state", state_flops(mixer)


def ffn(d: int, feed_forward: FeedForward) -> int:
    """Return the work of a feed-forward block [FLOP per token]."""
    f = feed_forward.width
    return feed_forward.copies * (6 * d * f if feed_forward.gated else 4 * d * f)


def _experts(d: int, moe: MixtureOfExperts) -> Iterator[tuple[str, float]]:
    yield "router", _products(moe.router_weights(d))
    yield moe.name, moe.experts_per_token * ffn(moe.expert_input or d, moe.expert)
    if moe.shared is not None:
        yield "shared experts", ffn(d, moe.shared)
    if moe.shared_gates:
        yield "shared gate", 2 * d * moe.shared_gates
    if moe.extra:
        yield "other projections", _products(moe.extra)


def _layer(d: int, layer: LayerGroup, A_of: _Pairs) -> Iterator[tuple[str, float]]:
    """Yield the operators of one pass of a layer: name, forward FLOPs per token."""
    for mixer in layer.mixers:
        if isinstance(mixer, Attention):
            yield from _attention(d, mixer, A_of)
        else:
            yield from _stateful(d, mixer)
    if layer.ffn is not None:
        yield "ffn", ffn(d, layer.ffn)
    if layer.moe is not None:
        yield from _experts(d, layer.moe)
    yield from _split("other projections", layer.extra)


# --- forward, the model ---------------------------------------------------------------------


def _attended(
    attention: Attention,
    T: int,
    convention: AttentionConvention,
    attended: float | None,
    documents: Sequence[int] | None,
) -> float:
    """Return A of one layer; `attended` and `documents` as in `operators`."""
    if convention == "full":
        return T + compressed_keys(attention, T, full=True)
    masked = attended_pairs(
        T,
        window=attention.most_keys,
        chunk=attention.chunk,
        block=attention.key_block,
        causal=attention.causal,
        documents=documents,
    ) + _compressed_per_token(attention, documents or [T])
    if attended is None:
        return masked
    local = attention.most_keys is not None or attention.chunk is not None
    return min(attended, masked) if local or not attention.causal else attended


def _forward(shape: ModelShape, A_of: _Pairs) -> Iterator[tuple[str, int, float]]:
    """Yield (name, layers, forward FLOPs per token of all layers), group by group."""
    d, e, V = shape.hidden_size, shape.embedding_size, shape.vocab_size
    for group in shape.layers:
        for name, flops in _layer(d, group, A_of):
            blind = group.passes_without_gradient
            yield name, group.count, group.count * (group.passes - blind) * flops
            if blind:
                yield f"{FORWARD_ONLY}{name}", group.count, group.count * blind * flops
    if shape.extra:
        yield "other projections", 1, _products(shape.extra)
    if e is not None:
        yield "embedding projections", 1, 2 * e * d + 2 * d * e
    yield "lm_head", 1, 2 * (d if e is None else e) * V
    if shape.mtp_modules:
        yield from _mtp(shape, A_of)


def _mtp(shape: ModelShape, A_of: _Pairs) -> Iterator[tuple[str, int, float]]:
    """Yield the operators of multi-token prediction, like `_forward`.

    Every module has the last kind of layer (DeepSeek-V3, arXiv:2412.19437).
    """
    d, V, modules = shape.hidden_size, shape.vocab_size, shape.mtp_modules
    yield "mtp projection", modules, modules * 2 * (2 * d) * d
    for name, flops in _layer(d, shape.layers[-1], A_of):
        yield f"mtp {name}", modules, modules * flops
    yield "mtp lm_head", modules, modules * 2 * d * V


def _summed(terms: Iterable[tuple[str, int, float]]) -> Iterator[tuple[str, int, float]]:
    """Sum the terms by name, in the order of first appearance."""
    sums: dict[str, tuple[int, float]] = {}
    for name, layers, flops in terms:
        seen, total = sums.get(name, (0, 0.0))
        sums[name] = (seen + layers, total + flops)
    return ((name, layers, flops) for name, (layers, flops) in sums.items())


# --- forward and backward -------------------------------------------------------------------


def operators(  # noqa: PLR0913 - inputs of the formula
    shape: ModelShape,
    seq_len: int,
    *,
    attention: AttentionConvention = "exact",
    trainable: Trainable | None = None,
    attended: float | None = None,
    documents: Sequence[int] | None = None,
) -> tuple[Operator, ...]:
    """Return every operator of the model once, in the order of the forward pass.

    seq_len: T, tokens of one sequence or pack
    attention: `exact`, the headline; `full`, A = T, for comparison with published figures
    trainable: default everything
    attended: A, where the lengths of the packed documents are known (`attended_pairs` of them).
        Replaces A of the full causal layers. A layer with a window or chunk takes the smaller
        of `attended` and its own A over one sequence: exact where every document is shorter than
        the window or none ends inside it, else an upper bound. `full` ignores `attended`.
    documents: lengths of the packed documents, where a mask separates them: A of every layer is
        then exact. Give either `attended` or these

    Raises ValueError for a length below 1, an `attended` outside (0, T], or LoRA targets missing
    from this model.
    """
    if attended is not None and not 0 < attended <= seq_len:
        raise messages.ATTENDED_OUT_OF_RANGE(seq_len=seq_len, attended=attended)
    trained = trainable or Trainable()
    terms = _summed(
        _forward(shape, lambda at: _attended(at, seq_len, attention, attended, documents))
    )
    base = (make_operator(name, layers, flops, trained) for name, layers, flops in terms)
    if trained.kind != "lora":
        return tuple(base)
    forward = adapter_flops(shape.adapted_weights(trained.lora_targets), trained)
    adapters = make_operator("lora adapters", shape.layer_count, forward, Trainable())
    return (*base, adapters)


def make_operator(name: str, layers: int, forward: float, trainable: Trainable) -> Operator:
    """Return the operator with its backward.

    2x the forward for trained weights and for core attention and states, 1x for frozen weights with
    a gradient passing, 0x upstream of everything trained and for the indexer of sparse attention,
    whose choice of keys passes no gradient.
    """
    weightless = name.endswith(("core attention", " state"))
    times = 2 if trainable.kind == "full" or weightless else 1
    if trainable.kind == "upstream" or "indexer" in name or name.startswith(FORWARD_ONLY):
        times = 0
    return Operator(
        name=name,
        layers=layers,
        forward=forward,
        backward=times * forward,
        estimate=_is_estimate(name),
    )


def _is_estimate(name: str) -> bool:
    bare = name.removeprefix(FORWARD_ONLY).removeprefix("mtp ")
    return bare in (CONVOLUTION, "evenly routed experts") or bare.endswith(" state")


def adapter_flops(weights: Iterable[tuple[int, Weight]], trainable: Trainable) -> int:
    """Return the work of LoRA's adapters: 2r(in + out) per weight [FLOP per token].

    Source: arXiv:2106.09685.

    weights: adapted weights as (layers, weight)
    """
    r = trainable.lora_rank or 0
    return sum(
        layers * weight.per_token * 2 * r * (weight.rows + weight.columns)
        for layers, weight in weights
    )


def adapter_params(shape: ModelShape, trainable: Trainable) -> int:
    """Return the parameters of LoRA's adapters: r(in + out) per matrix; 0 if no LoRA.

    Raises ShapeError for targets missing from the model.
    """
    r = trainable.lora_rank or 0
    return sum(
        layers * weight.copies * r * (weight.rows + weight.columns)
        for layers, weight in (shape.adapted_weights(trainable.lora_targets) if r else ())
    )


def forward_flops_per_token(ops: Iterable[Operator]) -> float:
    """Return F of one forward [FLOP per token]."""
    return sum(op.forward for op in ops)


def flops_per_token(ops: Iterable[Operator]) -> float:
    """Return F of training, forward + backward [FLOP per token]: the numerator of MFU."""
    return sum(op.training for op in ops)


# --- inference ------------------------------------------------------------------------------


def inference_operators(
    shape: ModelShape, context_len: int, phase: InferencePhase
) -> tuple[Operator, ...]:
    """Return every operator of inference with a key/value cache: forward, per token.

    prefill: the forward of a prompt of `context_len` tokens, with logits of all tokens (an engine
        that computes only the last token's logits saves nearly all of lm_head). A is causal, as in
        training
    decode: one more token, which sees `context_len` keys, itself included, or its window or chunk

    MLA is counted with decompressed keys and values, 2H(q + v) a pair; kernels that attend over the
    latent vector execute 2H(2c + rope). Multi-token prediction is not included.
    Raises ValueError for a length below 1 or another phase.
    """
    if phase not in ("prefill", "decode"):
        raise messages.UNKNOWN_PHASE(phase=phase)
    served, forward_only = replace(shape, mtp_modules=0), Trainable(kind="upstream")
    if phase == "prefill":
        return operators(served, context_len, trainable=forward_only)
    _check_lengths(context_len, [context_len], [])
    terms = _summed(_forward(served, lambda attention: cached_keys(attention, context_len)))
    return tuple(make_operator(*term, forward_only) for term in terms)


def cached_keys(attention: Attention, context_len: int) -> int:
    """Return the number of keys that the last of `context_len` tokens sees."""
    seen = context_len
    if attention.chunk is not None:
        seen = (context_len - 1) % attention.chunk + 1
    most = attention.most_keys
    seen = seen if most is None else min(seen, most)
    if attention.compression is None:
        return seen
    entries = context_len // attention.compression
    return seen + (entries if attention.top_k is None else min(entries, attention.top_k))


# --- what the hardware executes -------------------------------------------------------------


_POLICIES: Mapping[str | None, Recompute] = {
    "none": "none",
    "full": "full",
    "selective": "selective",
}


def hfu_unknown_reason(recompute: str | None, shape: ModelShape | None = None) -> str | None:
    """Return the reason why this policy or shape has no HFU; None if HFU is defined."""
    if shape is not None and shape.has_linear_attention:
        kinds = " and ".join(shape.state_kinds)
        return f"{shape.name} has {kinds}, whose kernel decides what is executed"
    if recompute in _POLICIES:
        return None
    if recompute is None:
        return "activation checkpointing is unknown. Fix: give recompute=none, full or selective"
    return f"no closed form for recompute={recompute!r}: its executed FLOPs are unknown"


def hardware_operators(  # noqa: PLR0913 - inputs of the formula
    shape: ModelShape,
    seq_len: int,
    recompute: Recompute,
    *,
    trainable: Trainable | None = None,
    attended: float | None = None,
    documents: Sequence[int] | None = None,
) -> tuple[tuple[Operator, ...], tuple[Operator, ...]]:
    """Return the operators with recomputation, for the bounds of HFU: lower, upper.

    Exact attention. none: both as `operators`. selective: core attention once more. full: the upper
    bound adds another forward of each layer, without lm_head. The lower bound omits each block's
    last product, because PyTorch's non-reentrant checkpointing stops just before. Flash attention's
    own recomputation of the scores is not counted, as in PaLM.

    Raises ValueError for a shape with linear attention, which has no HFU (`hfu_unknown_reason`).
    """
    if reason := hfu_unknown_reason(recompute, shape):
        raise messages.NO_HFU(reason=reason)
    ops = operators(shape, seq_len, trainable=trainable, attended=attended, documents=documents)
    high = tuple(replace(op, recomputed=_recomputed(op, recompute)) for op in ops)
    if recompute != "full":
        return high, high
    last = dict(_last_products(shape))
    low = (replace(op, recomputed=op.recomputed - last.get(op.name, 0.0)) for op in high)
    return tuple(low), high


def _recomputed(op: Operator, recompute: Recompute) -> float:
    """Return an upper bound of an operator's recomputation [FLOP per token]."""
    if recompute == "selective":
        return op.forward if op.name.endswith("core attention") else 0.0
    outside = op.name.endswith("lm_head") or op.name == "embedding projections"
    return 0.0 if recompute == "none" or outside else op.forward


def _last_products(shape: ModelShape) -> Iterator[tuple[str, float]]:
    """Return the down projections by operator [FLOP per token].

    The down projection is one of three products of a gated FFN, and one of two of a plain FFN.
    """
    d = shape.hidden_size
    blocks = [("", group.count, group) for group in shape.layers]
    if shape.mtp_modules:
        blocks.append(("mtp ", shape.mtp_modules, shape.layers[-1]))
    terms = []
    for prefix, count, group in blocks:
        for name, feed_forward, k in group.feed_forwards():
            width = d if group.moe is None or name != group.moe.name else group.moe.expert_input
            products = k * feed_forward.copies * 2 * feed_forward.width * (width or d)
            flops = float(count * group.passes * products)
            terms.append((prefix + name, count, flops))
    return ((name, flops) for name, _, flops in _summed(terms))


def hardware_flops_bounds(
    shape: ModelShape,
    seq_len: int,
    recompute: str | None,
    *,
    trainable: Trainable | None = None,
    documents: Sequence[int] | None = None,
) -> tuple[float | None, float | None]:
    """Return the numerators of `hfu_low` and `hfu_high` [FLOP per token].

    (None, None) without a closed form; `hfu_unknown_reason` gives the reason.
    """
    policy = _POLICIES.get(recompute)
    if policy is None or shape.has_linear_attention:
        return None, None
    low, high = hardware_operators(shape, seq_len, policy, trainable=trainable, documents=documents)
    return executed_flops(low), executed_flops(high)


def executed_flops(ops: Iterable[Operator]) -> float:
    """Return the executed FLOPs per token, with recomputation."""
    return sum(op.training + op.recomputed for op in ops)


# --- ideal time -----------------------------------------------------------------------------


def ideal_seconds_per_token(
    ops: Iterable[Operator],
    dtype_of: Mapping[str, Dtype] | Callable[[Operator, Pass], Dtype],
    peaks: Mapping[Dtype, float],
) -> float:
    """Return the seconds per token of an accelerator at peak: sum of F_o / P(dtype_o).

    dtype_of: precision by operator name, or a function of operator and pass for recipes with
        one pass in another precision (FP8 with the weight gradient in BF16)
    peaks: dense FLOP/s of one accelerator, by precision

    Raises ValueError where an operator has no precision, or a precision no peak.
    """
    lookup = dtype_of if callable(dtype_of) else _by_name(dtype_of)
    steps: tuple[Pass, ...] = ("forward", "input_gradient", "weight_gradient")
    return sum(
        op.flops_of(step) / _peak(lookup(op, step), peaks, op) for op in ops for step in steps
    )


def _by_name(dtypes: Mapping[str, Dtype]) -> Callable[[Operator, Pass], Dtype]:
    def lookup(op: Operator, _: Pass) -> Dtype:
        if op.name not in dtypes:
            raise messages.OPERATOR_WITHOUT_PRECISION(operator=op.name, operators=", ".join(dtypes))
        return dtypes[op.name]

    return lookup


def _peak(dtype: Dtype, peaks: Mapping[Dtype, float], op: Operator) -> float:
    if not peaks.get(dtype):
        raise messages.NO_PEAK(
            precision=dtype, operator=op.name, known=", ".join(peaks) or "nothing"
        )
    return peaks[dtype]
