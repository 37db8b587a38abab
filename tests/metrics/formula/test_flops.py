"""The formula: worked by hand, held by its laws and by published figures."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.metrics.formula.flops import (
    Operator,
    Trainable,
    adapter_params,
    attended_pairs,
    flops_per_token,
    forward_flops_per_token,
    hardware_flops_bounds,
    hardware_operators,
    hfu_unknown_reason,
    ideal_seconds_per_token,
    inference_operators,
    operators,
)
from fairmfu.metrics.formula.model_shapes import (
    Attention,
    FeedForward,
    LayerGroup,
    LinearAttention,
    MixtureOfExperts,
    ModelShape,
    ShapeError,
    Weight,
    buildable_models,
    find_model,
    from_hugging_face,
)
from fairmfu.metrics.formula.model_shapes.shape import grouped_query
from fairmfu.metrics.formula.terms import Dtype, InferencePhase, Pass
from tests.support.each_case import each_case
from tests.support.error_kinds import of_kind
from tests.support.folders import TESTS

if TYPE_CHECKING:
    from collections.abc import Sequence

GOLDEN = TESTS / "golden" / "flop_counter"
LLAMA = find_model("llama-3-8b")
PEAKS: dict[Dtype, float] = {"bf16": 989.4e12, "fp8": 1978.9e12}


def training(name: str, seq_len: int, **options: object) -> float:
    return flops_per_token(operators(find_model(name), seq_len, **options))  # type: ignore[arg-type]


def by_name(shape: ModelShape, seq_len: int, **options: object) -> dict[str, Operator]:
    return {op.name: op for op in operators(shape, seq_len, **options)}  # type: ignore[arg-type]


def inferred(shape: ModelShape, context: int, phase: InferencePhase) -> float:
    return forward_flops_per_token(inference_operators(shape, context, phase))


# --- by hand --------------------------------------------------------------------------------


def test_llama_3_8b_at_8192_by_hand() -> None:
    ops = by_name(LLAMA, 8192)
    projections = 2 * 4096 * (32 * 128 + 8 * 128 + 8 * 128) + 2 * 32 * 128 * 4096
    assert ops["query/key/value/output projections"].forward == 32 * projections
    assert ops["core attention"].forward == 32 * 2 * 32 * (128 + 128) * (8192 + 1) / 2
    assert ops["ffn"].forward == 32 * 6 * 4096 * 14336
    assert ops["lm_head"].forward == 2 * 4096 * 128256
    assert list(ops) == ["query/key/value/output projections", "core attention", "ffn", "lm_head"]
    assert {op.layers for op in ops.values()} == {32, 1}


def test_llama_3_8b_at_8192_in_both_conventions() -> None:
    assert training("llama-3-8b", 8192) == 51_471_187_968
    assert training("llama-3-8b", 8192, attention="full") == 57_912_852_480


def test_torchtitan_counts_the_norms_too() -> None:
    norms = (2 * 32 + 1) * 4096
    assert training("llama-3-8b", 8192, attention="full") + 6 * norms == 57_914_449_920


def test_multi_head_latent_attention_by_hand() -> None:
    d, heads, nope, rope, v, c, r = 7168, 128, 128, 64, 128, 512, 1536
    query = 2 * d * r + 2 * r * heads * (nope + rope)
    key_value = 2 * d * (c + rope) + 2 * c * heads * (nope + v)
    ops = by_name(find_model("deepseek-v3"), 4096)
    projections = ops["query/key/value/output projections"].forward
    assert projections == 61 * (query + key_value + 2 * heads * v * d)
    assert ops["core attention"].forward == 61 * 2 * heads * (nope + rope + v) * 4097 / 2


def test_mixture_of_experts_by_hand() -> None:
    ops = by_name(find_model("qwen1.5-moe-a2.7b"), 4096)
    assert ops["router"].forward == 24 * 2 * 2048 * 60
    assert ops["routed experts"].forward == 24 * 4 * 6 * 2048 * 1408
    assert ops["shared experts"].forward == 24 * 6 * 2048 * 5632
    assert ops["shared gate"].forward == 24 * 2 * 2048
    assert "ffn" not in ops


def test_first_dense_layers_have_their_own_operator() -> None:
    ops = by_name(find_model("deepseek-v3"), 4096)
    assert (ops["ffn"].layers, ops["routed experts"].layers) == (3, 58)
    assert ops["ffn"].forward == 3 * 6 * 7168 * 18432


def test_a_table_narrower_than_the_model_costs_two_projections() -> None:
    ops = by_name(find_model("opt-350m"), 2048)
    assert ops["embedding projections"].forward == 2 * 2 * 512 * 1024
    assert ops["lm_head"].forward == 2 * 512 * 50272


def test_plain_feed_forward_is_two_thirds_of_a_gated_one() -> None:
    assert by_name(find_model("gpt2"), 1024)["ffn"].forward == 12 * 4 * 768 * 3072


DELTA = LinearAttention(
    key_heads=16, value_heads=32, key_head_dim=128, value_head_dim=128, conv_kernel=4, fused=True
)
KIMI = LinearAttention(
    key_heads=32,
    value_heads=32,
    key_head_dim=128,
    value_head_dim=128,
    conv_kernel=4,
    gate_rank=128,
)


def with_linear_attention(linear: LinearAttention) -> ModelShape:
    """A Llama 3 whose layers but eight have this instead of softmax attention."""
    group = LLAMA.layers[0]
    return replace(
        LLAMA, layers=(replace(group, count=24, attention=linear), replace(group, count=8))
    )


def test_gated_deltanet_by_hand() -> None:
    ops = by_name(with_linear_attention(DELTA), 8192)
    key, value = 16 * 128, 32 * 128
    weights = 4096 * (2 * key + 2 * value + 2 * 32) + value * 4096
    assert ops["linear attention projections"].forward == 24 * 2 * weights
    assert ops["linear attention convolution"].forward == 24 * 2 * 4 * (2 * key + value)
    assert ops["linear attention state"].forward == 24 * 6 * 32 * 128 * 128
    assert ops["core attention"].forward == 8 * 2 * 32 * 256 * 4096.5
    assert [op.name for op in ops.values() if op.estimate] == ["linear attention state"]


def test_kimi_delta_attention_by_hand() -> None:
    ops = by_name(with_linear_attention(KIMI), 8192)
    gates = 2 * (4096 * 128 + 128 * 4096)
    weights = 3 * 4096 * 4096 + 4096 * 32 + gates + 4096 * 4096
    assert ops["linear attention projections"].forward == 24 * 2 * weights
    assert ops["linear attention state"].forward == 24 * 6 * 32 * 128 * 128


def test_linear_attention_does_not_grow_with_the_length() -> None:
    shape = replace(LLAMA, layers=(replace(LLAMA.layers[0], attention=DELTA),))
    assert operators(shape, 100) == operators(shape, 10_000)
    assert operators(shape, 100) == operators(shape, 100, attention="full")


def test_an_output_gate_is_one_projection_more() -> None:
    group = LLAMA.layers[0]
    assert isinstance(group.attention, Attention)
    gated = replace(LLAMA, layers=(replace(group, attention=replace(group.attention, gated=True)),))
    more = forward_flops_per_token(operators(gated, 64)) - forward_flops_per_token(
        operators(LLAMA, 64)
    )
    assert more == 32 * 2 * 4096 * 4096
    assert gated.params_total - LLAMA.params_total == 32 * 4096 * 4096


def test_lora_beside_linear_attention() -> None:
    """Targets are the names of the code: out_proj is DeltaNet's, o_proj softmax attention's."""
    shape = with_linear_attention(DELTA)

    def adapter_flops(*targets: str) -> float:
        trainable = Trainable(kind="lora", lora_rank=1, lora_targets=targets)
        return operators(shape, 64, trainable=trainable)[-1].forward

    assert adapter_flops("out_proj") == 24 * 2 * (4096 + 4096)
    assert adapter_flops("o_proj") == 8 * 2 * (4096 + 4096)
    with pytest.raises(ShapeError, match="conv1d"):
        adapter_flops("conv1d")


def test_adapters_have_a_rank_times_both_sides_of_each_matrix() -> None:
    """Rank 16 on the queries and values of Llama 3 8B: 6.8 million, as PEFT prints."""
    two = Trainable(kind="lora", lora_rank=16, lora_targets=("q_proj", "v_proj"))
    assert adapter_params(LLAMA, two) == 32 * 16 * ((4096 + 4096) + (4096 + 1024)) == 6_815_744
    assert adapter_params(LLAMA, Trainable()) == 0
    mixtral = find_model("mixtral-8x7b")  # each expert has its own, of which a token passes two
    gates = Trainable(kind="lora", lora_rank=1, lora_targets=("w1",))
    assert adapter_params(mixtral, gates) == 32 * 8 * (4096 + 14336)
    assert operators(mixtral, 64, trainable=gates)[-1].forward == 32 * 2 * 2 * (4096 + 14336)


# --- attended pairs -------------------------------------------------------------------------


def brute_force(
    seq_len: int, window: int | None, chunk: int | None, documents: Sequence[int] | None
) -> float:
    """Count the mask's ones, query by query."""
    owner = [i for i, length in enumerate(documents or [seq_len]) for _ in range(length)]
    start = [owner.index(document) for document in owner]

    def allowed(query: int, key: int) -> bool:
        return (
            key <= query
            and owner[key] == owner[query]
            and (window is None or query - key < window)
            and (chunk is None or (query - start[query]) // chunk == (key - start[query]) // chunk)
        )

    pairs = sum(allowed(q, k) for q in range(len(owner)) for k in range(len(owner)))
    return pairs / len(owner)


@given(
    documents=st.lists(st.integers(1, 12), min_size=1, max_size=4),
    window=st.none() | st.integers(1, 14),
    chunk=st.none() | st.integers(1, 14),
)
def test_attended_pairs_are_the_ones_of_the_mask(
    documents: list[int], window: int | None, chunk: int | None
) -> None:
    total = sum(documents)
    counted = attended_pairs(total, window=window, chunk=chunk, documents=documents)
    assert counted == brute_force(total, window, chunk, documents)


@given(
    documents=st.lists(st.integers(1, 30), min_size=1, max_size=3),
    blocks=st.integers(1, 4),
    block=st.integers(1, 6),
)
def test_whole_blocks_of_keys_are_the_ones_of_the_mask(
    documents: list[int], blocks: int, block: int
) -> None:
    """The query's own block, which it sees up to itself, and the best of those before it."""

    def seen(query: int) -> int:
        before = min(query // block, blocks - 1)
        return before * block + query % block + 1

    total = sum(documents)
    counted = attended_pairs(total, window=blocks * block, block=block, documents=documents)
    assert counted == sum(seen(query) for n in documents for query in range(n)) / total


@given(
    seq_len=st.integers(1, 60),
    window=st.integers(1, 20),
    rate=st.integers(1, 9),
    top_k=st.none() | st.integers(1, 5),
)
def test_compressed_keys_are_the_whole_ones_before_a_query(
    seq_len: int, window: int, rate: int, top_k: int | None
) -> None:
    attention = replace(
        grouped_query(2, 1, 8),
        window=window,
        compression=rate,
        top_k=top_k,
        indexer=(Weight("weights_proj", 16, 2),),
        score_width=3,
    )
    shape = replace(LLAMA, layers=(replace(LLAMA.layers[0], count=1, attention=attention),))
    ops = {op.name: op.forward for op in operators(shape, seq_len)}
    entries = [(query + 1) // rate for query in range(seq_len)]
    chosen = [n if top_k is None else min(n, top_k) for n in entries]
    local = [min(query + 1, window) for query in range(seq_len)]
    pairs = (sum(local) + sum(chosen)) / seq_len
    assert ops["core attention"] == pytest.approx(2 * 2 * 16 * pairs)
    assert ops["indexer scores"] == pytest.approx(2 * 3 * sum(entries) / seq_len)
    decode = {op.name: op.forward for op in inference_operators(shape, seq_len, "decode")}
    assert decode["core attention"] == 2 * 2 * 16 * (local[-1] + chosen[-1])


@given(seq_len=st.integers(1, 300), top_k=st.integers(1, 400))
def test_sparse_attention_pays_for_the_keys_it_keeps(seq_len: int, top_k: int) -> None:
    """And its indexer for all keys, without a gradient."""
    sparse = find_model_of_type("glm_moe_dsa", top_k)
    ops = {op.name: op for op in operators(sparse, seq_len)}
    dense = {op.name: op for op in operators(sparse, seq_len, attention="full")}
    kept = attended_pairs(seq_len, window=top_k)
    assert ops["core attention"].forward * seq_len == pytest.approx(
        dense["core attention"].forward * kept
    )
    assert ops["indexer scores"].backward == ops["indexer projections"].backward == 0
    assert ops["indexer scores"].forward * seq_len == pytest.approx(
        dense["indexer scores"].forward * (seq_len + 1) / 2
    )


def find_model_of_type(model_type: str, top_k: int) -> ModelShape:
    config = json.loads((GOLDEN / "type_configs.json").read_text())[model_type]
    config |= {"index_topk": top_k, "num_hidden_layers": 4}
    lists = ("indexer_types", "layer_types", "mlp_layer_types")
    return from_hugging_face({k: v for k, v in config.items() if k not in lists})


def test_attended_pairs_by_hand() -> None:
    assert attended_pairs(8192) == 4096.5
    assert attended_pairs(8192, causal=False) == 8192
    assert attended_pairs(4096, window=1024) == (1024 * 1025 / 2 + 3072 * 1024) / 4096
    assert attended_pairs(8, documents=[5, 3]) == (15 + 6) / 8
    assert attended_pairs(8, documents=[5, 3], causal=False) == (25 + 9) / 8
    assert attended_pairs(10, chunk=4) == (10 + 10 + 3) / 10


@given(seq_len=st.integers(1, 5000), more=st.integers(0, 100))
def test_a_window_or_chunk_of_the_whole_sequence_is_causal(seq_len: int, more: int) -> None:
    assert attended_pairs(seq_len, window=seq_len + more) == attended_pairs(seq_len)
    assert attended_pairs(seq_len, chunk=seq_len + more) == attended_pairs(seq_len)
    assert attended_pairs(seq_len, documents=[seq_len]) == attended_pairs(seq_len)


@pytest.mark.parametrize(
    ("seq_len", "options", "kind"),
    [
        (0, {}, "impossible-lengths"),
        (8, {"window": 0}, "impossible-lengths"),
        (8, {"documents": []}, "impossible-lengths"),
        (8, {"documents": [9]}, "document-too-long"),
        (8, {"window": 4, "causal": False}, "window-not-causal"),
    ],
)
def test_impossible_lengths_are_errors(seq_len: int, options: dict[str, int], kind: str) -> None:
    with pytest.raises(ValueError, check=of_kind(kind)):
        attended_pairs(seq_len, **options)  # type: ignore[arg-type]


def test_known_documents_replace_full_causal_layers_only() -> None:
    gemma = find_model("gemma-2-9b")  # 21 layers with a window of 4096, 21 without
    attended = attended_pairs(8192, documents=[6000, 2192])
    per_pair = 21 * 2 * 16 * (256 + 256)
    windowed = attended_pairs(8192, window=4096)
    core = by_name(gemma, 8192, attended=attended)["core attention"].forward
    assert core == pytest.approx(per_pair * (attended + min(attended, windowed)))
    short = attended_pairs(8192, documents=[100] * 81 + [92])
    core = by_name(gemma, 8192, attended=short)["core attention"].forward
    assert core == pytest.approx(2 * per_pair * short)
    full = by_name(gemma, 8192, attended=short, attention="full")["core attention"].forward
    assert full == 2 * per_pair * 8192


def test_windows_count_in_the_exact_convention_only() -> None:
    gemma = find_model("gemma-3-27b")  # 52 of its 62 layers see 1024 keys
    windows = attended_pairs(8192, window=1024)
    core = by_name(gemma, 8192)["core attention"].forward
    assert core == pytest.approx(2 * 32 * 256 * (10 * 4096.5 + 52 * windows))
    assert by_name(gemma, 8192, attention="full")["core attention"].forward == (
        2 * 32 * 256 * 62 * 8192
    )


@pytest.mark.parametrize("attended", [0.0, -1.0, 8192.5])
def test_attended_pairs_outside_the_sequence_are_an_error(attended: float) -> None:
    with pytest.raises(ValueError, check=of_kind("attended-out-of-range")):
        operators(LLAMA, 8192, attended=attended)


# --- inference ------------------------------------------------------------------------------


def test_prefill_is_a_forward() -> None:
    for shape in (LLAMA, find_model("gemma-3-27b"), find_model("deepseek-v3")):
        expected = forward_flops_per_token(operators(shape, 4096))
        assert inferred(shape, 4096, "prefill") == expected
    assert {op.backward for op in inference_operators(LLAMA, 4096, "prefill")} == {0}


def test_decode_by_hand() -> None:
    core = 32 * 2 * 32 * 256 * 5000
    assert inferred(LLAMA, 5000, "decode") == 2 * LLAMA.params_matmul + core


def test_decode_sees_the_window_or_its_chunk() -> None:
    gemma = find_model("gemma-2-9b")
    core = {op.name: op for op in inference_operators(gemma, 6000, "decode")}["core attention"]
    assert core.forward == 21 * 2 * 16 * 512 * (6000 + 4096)
    group = LLAMA.layers[0]
    assert isinstance(group.attention, Attention)
    chunked = replace(
        LLAMA, layers=(replace(group, attention=replace(group.attention, chunk=1000)),)
    )
    for context, seen in ((999, 999), (1000, 1000), (1001, 1), (5500, 500)):
        ops = {op.name: op for op in inference_operators(chunked, context, "decode")}
        assert ops["core attention"].forward == 32 * 2 * 32 * 256 * seen


def test_inference_leaves_multi_token_prediction_out() -> None:
    deepseek = find_model("deepseek-v3")
    with_mtp = replace(deepseek, mtp_modules=1)
    for phase in ("prefill", "decode"):
        assert inference_operators(with_mtp, 512, phase) == inference_operators(
            deepseek, 512, phase
        )


@pytest.mark.parametrize(
    ("context", "phase", "kind"),
    [
        (0, "decode", "impossible-lengths"),
        (0, "prefill", "impossible-lengths"),
        (8, "x", "unknown-phase"),
    ],
)
def test_impossible_inference(context: int, phase: str, kind: str) -> None:
    with pytest.raises(ValueError, check=of_kind(kind)):
        inferred(LLAMA, context, phase)  # type: ignore[arg-type]


# --- laws -----------------------------------------------------------------------------------


@st.composite
def model_shapes(draw: st.DrawFn) -> ModelShape:
    """Any small decoder: GQA or MLA, windows, dense and sparse layers."""
    size = st.integers(1, 40)
    groups = []
    for _ in range(draw(st.integers(1, 3))):
        latent = draw(st.booleans())
        groups_of, kv_heads, width, rope = draw(size), draw(size), draw(size), draw(size)
        heads = groups_of * kv_heads
        attention = Attention(
            heads=heads,
            kv_heads=heads if latent else kv_heads,
            qk_head_dim=width + rope if latent else width,
            v_head_dim=draw(size),
            window=draw(st.none() | st.integers(1, 300)),
            kv_lora_rank=draw(size) if latent else None,
            q_lora_rank=draw(st.none() | size) if latent else None,
            rope_head_dim=rope if latent else 0,
            gated=False if latent else draw(st.booleans()),
        )
        ffn = FeedForward(width=draw(size), gated=draw(st.booleans()), fused=draw(st.booleans()))
        experts = draw(size)
        moe = MixtureOfExperts(
            experts=experts,
            experts_per_token=draw(st.integers(1, experts)),
            expert=ffn,
            shared=draw(st.none() | st.just(ffn)),
            shared_gates=draw(st.integers(0, 2)),
        )
        sparse = draw(st.booleans())
        groups.append(
            LayerGroup(
                count=draw(size),
                attention=attention,
                ffn=None if sparse else ffn,
                moe=moe if sparse else None,
            )
        )
    return ModelShape(
        name="drawn",
        hidden_size=draw(size),
        vocab_size=draw(size),
        tied_embeddings=draw(st.booleans()),
        layers=tuple(groups),
        mtp_modules=draw(st.integers(0, 2)),
    )


@given(shape=model_shapes(), seq_len=st.integers(1, 500))
def test_forward_is_two_per_weight_plus_core_attention(shape: ModelShape, seq_len: int) -> None:
    ops = operators(shape, seq_len)
    core = sum(op.forward for op in ops if op.name.endswith("core attention"))
    assert forward_flops_per_token(ops) - core == pytest.approx(2 * shape.params_matmul)


@each_case("shape", buildable_models(), ids=lambda shape: shape.name)
def test_forward_is_two_per_weight_in_every_known_model(shape: ModelShape) -> None:
    ops = operators(shape, 4096)
    weightless = ("core attention", "linear attention state")
    core = sum(op.forward for op in ops if op.name in weightless)
    assert forward_flops_per_token(ops) - core == 2 * shape.params_matmul


@given(shape=model_shapes(), seq_len=st.integers(1, 500), times=st.integers(2, 5))
def test_linear_in_layers(shape: ModelShape, seq_len: int, times: int) -> None:
    layers = tuple(replace(group, count=times * group.count) for group in shape.layers)
    once = by_name(shape, seq_len)
    more = by_name(replace(shape, layers=layers), seq_len)
    for name, op in once.items():
        factor = 1 if name == "lm_head" or name.startswith("mtp") else times
        assert more[name].forward == pytest.approx(factor * op.forward)


@given(shape=model_shapes(), seq_len=st.integers(1, 500))
def test_exact_is_at_most_full(shape: ModelShape, seq_len: int) -> None:
    exact = flops_per_token(operators(shape, seq_len))
    assert exact <= flops_per_token(operators(shape, seq_len, attention="full"))


@st.composite
def linear_shapes(draw: st.DrawFn) -> ModelShape:
    """Any small decoder some of whose layers have linear attention."""
    shape = draw(model_shapes())
    size = st.integers(1, 40)
    linear = LinearAttention(
        key_heads=draw(size),
        value_heads=draw(size),
        key_head_dim=draw(size),
        value_head_dim=draw(size),
        conv_kernel=draw(size),
        gate_rank=draw(st.none() | size),
        fused=draw(st.booleans()),
    )
    return replace(shape, layers=(replace(shape.layers[0], attention=linear), *shape.layers))


@given(shape=linear_shapes(), seq_len=st.integers(1, 500))
def test_laws_hold_with_linear_attention(shape: ModelShape, seq_len: int) -> None:
    ops = operators(shape, seq_len)
    weightless = ("core attention", "linear attention state")
    weights = sum(op.forward for op in ops if not op.name.endswith(weightless))
    assert weights == pytest.approx(2 * shape.params_matmul)
    assert flops_per_token(ops) == pytest.approx(3 * forward_flops_per_token(ops))
    assert flops_per_token(ops) <= flops_per_token(operators(shape, seq_len, attention="full"))


@given(shape=model_shapes() | linear_shapes(), context=st.integers(1, 500))
def test_decoding_the_last_token_costs_at_least_the_prompts_mean(
    shape: ModelShape, context: int
) -> None:
    prefill = inferred(shape, context, "prefill")
    assert prefill <= inferred(shape, context, "decode") * (1 + 1e-12)


@given(shape=model_shapes() | linear_shapes(), seq_len=st.integers(1, 500))
def test_what_is_upstream_of_all_training_runs_forward_only(
    shape: ModelShape, seq_len: int
) -> None:
    upstream = operators(shape, seq_len, trainable=Trainable(kind="upstream"))
    assert flops_per_token(upstream) == forward_flops_per_token(operators(shape, seq_len))
    frozen = flops_per_token(operators(shape, seq_len, trainable=Trainable(kind="frozen")))
    trained = flops_per_token(operators(shape, seq_len))
    assert flops_per_token(upstream) < frozen < trained


@given(
    shape=model_shapes(),
    seq_len=st.integers(1, 500),
    tgs=st.floats(1e-3, 1e9),
    gpus=st.integers(1, 10_000),
    factor=st.sampled_from([2, 4, 8]),
)
def test_mfu_is_ideal_over_actual_time(
    shape: ModelShape, seq_len: int, tgs: float, gpus: int, factor: int
) -> None:
    """MFU * actual time = ideal time, and twice the GPUs with twice the tokens change nothing."""
    ops = operators(shape, seq_len)
    ideal = ideal_seconds_per_token(ops, lambda *_: "bf16", PEAKS)
    mfu = tgs * flops_per_token(ops) / PEAKS["bf16"]
    assert mfu * (1 / tgs) == pytest.approx(ideal)
    tokens, seconds = tgs * gpus * 60, 60
    more = (factor * tokens) / (seconds * factor * gpus)
    assert more * ideal == tokens / (seconds * gpus) * ideal


@given(shape=model_shapes(), data=st.data())
def test_the_weighted_mfu_lies_between_conservative_and_bf16(
    shape: ModelShape, data: st.DataObject
) -> None:
    """FP8 in some operators: mfu_conservative <= mfu <= mfu_bf16, and so in some passes only."""
    ops = operators(shape, 256)
    low = data.draw(st.sets(st.sampled_from([op.name for op in ops])))
    kept: Pass = data.draw(st.sampled_from(["forward", "input_gradient", "weight_gradient"]))

    def recipe(op: Operator, step: Pass) -> Dtype:
        return "fp8" if op.name in low and step != kept else "bf16"

    conservative = ideal_seconds_per_token(ops, lambda *_: "fp8", PEAKS)
    weighted = ideal_seconds_per_token(ops, recipe, PEAKS)
    in_bf16 = ideal_seconds_per_token(ops, lambda *_: "bf16", PEAKS)
    assert conservative * (1 - 1e-12) <= weighted <= in_bf16 * (1 + 1e-12)


@given(shape=model_shapes(), seq_len=st.integers(1, 500))
def test_full_training_is_three_forwards(shape: ModelShape, seq_len: int) -> None:
    ops = operators(shape, seq_len)
    assert flops_per_token(ops) == pytest.approx(3 * forward_flops_per_token(ops))


@each_case("shape", buildable_models(), ids=lambda shape: shape.name)
def test_lora_lies_between_frozen_and_full(shape: ModelShape) -> None:
    lora = Trainable(kind="lora", lora_rank=8, lora_targets=("all-linear",))
    frozen, adapted, full = (
        flops_per_token(operators(shape, 1024, trainable=trainable))
        for trainable in (Trainable(kind="frozen"), lora, Trainable())
    )
    assert frozen < adapted < full


# --- LoRA -----------------------------------------------------------------------------------


def adapters(name: str, *targets: str) -> float:
    trainable = Trainable(kind="lora", lora_rank=1, lora_targets=targets)
    return operators(find_model(name), 512, trainable=trainable)[-1].forward


def test_lora_targets_by_the_names_of_each_code_base() -> None:
    every = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    assert adapters("llama-3-8b", *every) == adapters("llama-3-8b", "all-linear")
    fused = ("wqkv", "wo", "w1", "w2", "w3")
    assert adapters("internlm2-7b", *fused) == adapters("internlm2-7b", "all-linear")
    assert adapters("gpt2", "c_attn", "c_proj", "c_fc") == adapters("gpt2", "all-linear")
    assert adapters("internlm2-7b", "wqkv") == 2 * 32 * (4096 + (32 + 8 + 8) * 128)


def test_lora_on_experts_counts_the_experts_that_a_token_passes() -> None:
    assert adapters("mixtral-8x7b", "w2") == 2 * 32 * 2 * (14336 + 4096)


def test_a_projection_that_the_model_lacks_is_an_error() -> None:
    names = "down_proj, gate_proj, k_proj, lm_head"
    with pytest.raises(ShapeError, check=of_kind("unknown-lora-target", "'wqkv'", names)):
        adapters("llama-3-8b", "wqkv")


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"kind": "lora", "lora_targets": ("q_proj",)}, "lora-rank-missing"),
        ({"kind": "lora", "lora_rank": 0, "lora_targets": ("q_proj",)}, "lora-rank-missing"),
        ({"kind": "lora", "lora_rank": 8}, "lora-targets-missing"),
        ({"lora_rank": 8}, "lora-not-trained"),
        ({"kind": "frozen", "lora_targets": ("q_proj",)}, "lora-not-trained"),
    ],
)
def test_contradictions_about_what_is_trained(options: dict[str, object], kind: str) -> None:
    with pytest.raises(ValueError, check=of_kind(kind)):
        Trainable(**options)  # type: ignore[arg-type]


# --- HFU ------------------------------------------------------------------------------------


def test_without_recomputation_hardware_does_the_model_flops() -> None:
    model = flops_per_token(operators(LLAMA, 8192))
    assert hardware_flops_bounds(LLAMA, 8192, "none") == (model, model)


def test_full_recomputation_is_every_layer_once_more() -> None:
    forward = {op.name: op.forward for op in operators(LLAMA, 8192)}
    low, high = hardware_flops_bounds(LLAMA, 8192, "full")
    assert high == 4 * sum(forward.values()) - forward["lm_head"]
    assert low == high - 32 * 2 * 4096 * 14336


def test_selective_recomputation_is_core_attention_once_more() -> None:
    ops = by_name(LLAMA, 8192)
    expected = flops_per_token(ops.values()) + ops["core attention"].forward
    assert hardware_flops_bounds(LLAMA, 8192, "selective") == (expected, expected)


@pytest.mark.parametrize(
    ("policy", "why"), [(None, "is unknown. Fix: give recompute="), ("op", "closed form")]
)
def test_an_unknown_policy_gives_no_hfu_but_a_reason(policy: str | None, why: str) -> None:
    assert hardware_flops_bounds(LLAMA, 8192, policy) == (None, None)
    assert why in str(hfu_unknown_reason(policy))
    assert hfu_unknown_reason("full") is None


def test_linear_attention_has_no_hfu_but_a_reason() -> None:
    shape = with_linear_attention(DELTA)
    for policy in ("none", "full", "selective", None):
        assert hardware_flops_bounds(shape, 8192, policy) == (None, None)
        assert "linear attention, whose kernel decides" in str(hfu_unknown_reason(policy, shape))
    assert hfu_unknown_reason("full", LLAMA) is None
    with pytest.raises(ValueError, check=of_kind("no-hfu", "linear attention")):
        hardware_operators(shape, 8192, "none")


@given(shape=model_shapes(), seq_len=st.integers(1, 500))
def test_bounds_of_hfu_are_in_order(shape: ModelShape, seq_len: int) -> None:
    model = flops_per_token(operators(shape, seq_len))
    low, high = hardware_flops_bounds(shape, seq_len, "full")
    assert low is not None
    assert high is not None
    assert model <= low <= high <= 4 / 3 * model * (1 + 1e-12)
    for op in hardware_operators(shape, seq_len, "full")[0]:
        assert 0 <= op.recomputed <= op.forward


# --- ideal time -----------------------------------------------------------------------------


def test_with_one_format_ideal_time_is_flops_over_peak() -> None:
    ops = operators(LLAMA, 8192)
    seconds = ideal_seconds_per_token(ops, dict.fromkeys((op.name for op in ops), "bf16"), PEAKS)
    assert seconds == pytest.approx(flops_per_token(ops) / 989.4e12, rel=1e-15)


@given(shape=model_shapes(), data=st.data())
def test_mixed_formats_lie_between_the_pure_ones(shape: ModelShape, data: st.DataObject) -> None:
    ops = operators(shape, 256)
    either = st.sampled_from(["bf16", "fp8"])
    mixed: dict[str, Dtype] = {op.name: data.draw(either) for op in ops}
    slow, fast = flops_per_token(ops) / PEAKS["bf16"], flops_per_token(ops) / PEAKS["fp8"]
    seconds = ideal_seconds_per_token(ops, mixed, PEAKS)
    assert fast * (1 - 1e-12) <= seconds <= slow * (1 + 1e-12)


def test_a_pass_may_have_its_own_format() -> None:
    """FP8 linears whose weight gradient stays in BF16: a third of their work."""

    def recipe(op: Operator, step: Pass) -> Dtype:
        return "fp8" if op.name == "ffn" and step != "weight_gradient" else "bf16"

    ffn = by_name(LLAMA, 8192)["ffn"]
    seconds = ideal_seconds_per_token([ffn], recipe, PEAKS)
    assert seconds == pytest.approx(ffn.forward * (2 / 1978.9e12 + 1 / 989.4e12))


def test_recomputed_work_runs_in_the_format_of_the_forward() -> None:
    low, high = hardware_operators(LLAMA, 8192, "full")
    formats: dict[str, Dtype] = dict.fromkeys((op.name for op in high), "bf16")
    bounds = hardware_flops_bounds(LLAMA, 8192, "full")
    for ops, flops in zip((low, high), bounds, strict=True):
        assert flops is not None
        assert ideal_seconds_per_token(ops, formats, PEAKS) == pytest.approx(flops / 989.4e12)


def test_frozen_weights_have_no_weight_gradient() -> None:
    frozen = by_name(LLAMA, 8192, trainable=Trainable(kind="frozen"))
    assert frozen["ffn"].flops_of("weight_gradient") == 0
    assert frozen["ffn"].flops_of("input_gradient") == frozen["ffn"].forward


def test_an_operator_without_format_or_a_format_without_peak_is_an_error() -> None:
    ops = operators(LLAMA, 8192)
    with pytest.raises(ValueError, check=of_kind("operator-without-precision", "'query")):
        ideal_seconds_per_token(ops, {"ffn": "bf16"}, PEAKS)
    with pytest.raises(ValueError, check=of_kind("no-peak", "fp16 peak for query", "for bf16")):
        ideal_seconds_per_token(ops, lambda *_: "fp16", PEAKS)


# --- published figures ----------------------------------------------------------------------

# GFLOPs per token of training. Exact, and full attention as a ratio to it: the study behind
# `mfu_full_attention`, to the digits that it prints.
CONVENTIONS = [
    ("llama-3.1-8b", 2048, 46.639, 1.035),
    ("llama-3.1-8b", 8192, 51.471, 1.125),
    ("llama-3.1-8b", 32768, 70.799, 1.364),
    ("llama-2-7b", 4096, 42.864, 1.075),
    ("qwen3-0.6b", 4096, 4.986, 1.283),
    ("qwen2.5-7b", 4096, 44.889, 1.055),
    ("qwen3-32b", 4096, 204.789, 1.063),
    ("mixtral-8x7b", 4096, 79.714, 1.040),
    ("qwen3-30b-a3b", 4096, 23.083, 1.209),
    ("deepseek-v3", 4096, 250.457, 1.123),
]


@pytest.mark.parametrize(("name", "seq_len", "gigaflops", "full_over_exact"), CONVENTIONS)
def test_both_conventions(
    name: str, seq_len: int, gigaflops: float, full_over_exact: float
) -> None:
    exact = training(name, seq_len)
    assert exact / 1e9 == pytest.approx(gigaflops, abs=0.0005)
    assert training(name, seq_len, attention="full") / exact == pytest.approx(
        full_over_exact, abs=0.0005
    )


def half_attention_without_router(name: str, seq_len: int, mtp_modules: int = 0) -> float:
    """Megatron's convention: A = T/2, the router not counted."""
    shape = replace(find_model(name), mtp_modules=mtp_modules)
    ops = operators(shape, seq_len, attended=seq_len / 2)
    return sum(op.training for op in ops if not op.name.endswith("router")) / 1e9


# NVIDIA-NeMo/Megatron-Bridge docs/performance-summary: TFLOP/s/GPU over tokens/s/GPU, both
# rounded to whole numbers; the tolerance is what that leaves open.
@pytest.mark.parametrize(
    ("name", "seq_len", "mtp_modules", "teraflops", "tokens"),
    [
        ("llama-3.1-405b", 8192, 0, 2646, 1048),
        ("qwen3-30b-a3b", 4096, 0, 203, 8826),
        ("qwen3-235b-a22b", 4096, 0, 1335, 9015),
        ("deepseek-v3", 4096, 1, 1648, 6338),
    ],
)
def test_megatron_bridge(
    name: str, seq_len: int, mtp_modules: int, teraflops: int, tokens: int
) -> None:
    ours = half_attention_without_router(name, seq_len, mtp_modules)
    lowest, highest = (teraflops - 0.5) / (tokens + 0.5), (teraflops + 0.5) / (tokens - 0.5)
    assert lowest * 1e3 <= ours <= highest * 1e3


def test_deepseek_v3_of_isca_2025() -> None:
    """arXiv:2505.09343 table 4: 432 TFLOP/s with full, 385 with half attention, no router."""
    tokens_per_second = 272.80e9 / 86400 / 2048
    full = sum(
        op.training
        for op in operators(find_model("deepseek-v3"), 4096, attention="full")
        if op.name != "router"
    )
    half = half_attention_without_router("deepseek-v3", 4096)
    assert full * tokens_per_second / 1e12 == pytest.approx(432.47, abs=0.01)
    assert half * tokens_per_second / 1e3 == pytest.approx(385.13, abs=0.01)


# Korthikanti et al., arXiv:2205.05198, table 5: seconds per iteration and MFU in percent, full
# attention, on A100s. The time is printed to 0.1 s or 0.01 s, the MFU to 0.1: both tolerances.
@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "batch", "gpus", "seconds", "half_digit", "mfu"),
    [
        (48, 6144, 64, 4, 8, 1.1, 0.05, 41.5),
        (96, 12288, 96, 64, 64, 13.75, 0.005, 51.4),
        (105, 20480, 128, 280, 280, 37.83, 0.005, 56.0),
        (128, 25600, 160, 512, 512, 71.49, 0.005, 56.3),
    ],
)
def test_korthikanti_table_5(  # noqa: PLR0913, PLR0917
    layers: int,
    hidden: int,
    heads: int,
    batch: int,
    gpus: int,
    seconds: float,
    half_digit: float,
    mfu: float,
) -> None:
    gpt = find_model("gpt3-175b")
    width = hidden // heads
    attention = replace(
        gpt.layers[0].attention, heads=heads, kv_heads=heads, qk_head_dim=width, v_head_dim=width
    )
    ffn = FeedForward(width=4 * hidden, gated=False)
    shape = replace(
        gpt,
        hidden_size=hidden,
        vocab_size=51200,
        layers=(LayerGroup(count=layers, attention=attention, ffn=ffn),),
    )
    flops = flops_per_token(operators(shape, 2048, attention="full")) * batch * 2048
    slowest, fastest = (
        100 * flops / (time * gpus * 312e12)
        for time in (seconds + half_digit, seconds - half_digit)
    )
    assert slowest - 0.06 <= mfu <= fastest + 0.06


def test_palm_540b() -> None:
    """PaLM, arXiv:2204.02311, section 4: 46.2 % with attention, 6N + 12 LHQT.

    The paper's N counts parallel SwiGLU blocks with one key/value head and a tied table.
    """
    attention = Attention(heads=48, kv_heads=1, qk_head_dim=256, v_head_dim=256)
    group = LayerGroup(count=118, attention=attention, ffn=FeedForward(width=4 * 18432))
    shape = ModelShape(
        name="palm-540b",
        hidden_size=18432,
        vocab_size=256000,
        tied_embeddings=True,
        layers=(group,),
    )
    assert shape.params_matmul / 1e9 == pytest.approx(540.35, abs=0.01)
    full = flops_per_token(operators(shape, 2048, attention="full"))
    assert 238.3e3 * full / (6144 * 275e12) == pytest.approx(0.462, abs=0.0005)
