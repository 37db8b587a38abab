"""Parameters by module add up to the model's; what is not counted, and the cache, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fairmfu.metrics.formula.flops import operators
from fairmfu.metrics.formula.model_shapes import (
    ModelShape,
    buildable_models,
    find_model,
    from_hugging_face,
)
from fairmfu.metrics.formula.parameter_counts import (
    PARAMETER_GROWTH,
    Module,
    kv_cache_bytes_per_token,
    modules,
    uncounted,
)
from tests.support.each_case import each_case
from tests.support.error_kinds import of_kind

DELTA = from_hugging_face(
    {
        "model_type": "qwen3_next",
        "hidden_size": 256,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "vocab_size": 1000,
        "linear_num_key_heads": 4,
        "linear_num_value_heads": 8,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 48,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 64,
    }
)
BIASED = from_hugging_face(
    {
        "model_type": "phi",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 256,
        "vocab_size": 100,
    }
)
SHAPES = (
    *buildable_models(),
    DELTA,
    BIASED,
    replace(find_model("deepseek-v3"), name="deepseek-v3 with mtp", mtp_modules=1),
    replace(DELTA, name="qwen3_next with mtp", mtp_modules=2),
)


def by_name(shape: ModelShape) -> dict[str, Module]:
    return {module.name: module for module in modules(shape)}


@each_case("shape", SHAPES, ids=lambda shape: shape.name)
@each_case("column", ["params_total", "params_active", "params_matmul", "params_embedding"])
def test_modules_add_up_to_the_model(shape: ModelShape, column: str) -> None:
    assert sum(getattr(module, column) for module in modules(shape)) == getattr(shape, column)


@each_case("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_operator_with_weights_is_a_module(shape: ModelShape) -> None:
    rows = by_name(shape)
    for op in operators(shape, 4096):
        name = op.name
        if name.endswith("core attention"):
            continue
        assert rows[name].layers == op.layers or name == "embedding projections"
        assert op.estimate or op.forward == 2 * rows[name].params_matmul


def test_modules_of_llama_by_hand() -> None:
    rows = by_name(find_model("llama-3-8b"))
    assert rows["embedding"].params_embedding == 128256 * 4096
    assert rows["ffn"].params_total == 32 * 3 * 4096 * 14336
    assert rows["layer norms"].params_total == 32 * 2 * 4096
    assert rows["lm_head"].params_total == rows["lm_head"].params_matmul == 128256 * 4096
    assert {row.biases for row in rows.values()} == {0}


def test_biases_by_hand() -> None:
    rows = by_name(find_model("qwen2.5-7b"))
    assert rows["query/key/value/output projections"].biases == 28 * (28 + 4 + 4) * 128
    assert by_name(BIASED)["lm_head"].biases == 100
    experts = by_name(find_model("gpt-oss-20b"))["routed experts"]
    assert experts.biases == 24 * 32 * (2 * 2880 + 2880)
    assert experts.params_active * 8 == experts.params_total  # 4 of 32


def test_a_tied_head_is_used_but_owned_by_the_embedding() -> None:
    head = by_name(find_model("qwen3-0.6b"))["lm_head"]
    assert (head.params_total, head.params_matmul) == (0, 151936 * 1024)


@each_case("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_module_has_its_order_of_growth(shape: ModelShape) -> None:
    assert all(module.growth in PARAMETER_GROWTH.values() for module in modules(shape))


def test_windows_grow_with_the_window() -> None:
    rows = by_name(find_model("gemma-2-9b"))
    assert rows["core attention"].growth == "O(T·d)"
    assert rows["core attention in windows"].growth == "O(W·d)"
    assert rows["core attention"].layers == rows["core attention in windows"].layers == 21


# --- what is not counted --------------------------------------------------------------------


def estimates(shape: ModelShape, seq_len: int) -> dict[str, float]:
    return {part.name: part.forward for part in uncounted(shape, seq_len)}


def test_uncounted_work_of_llama_by_hand() -> None:
    parts = estimates(find_model("llama-3-8b"), 8192)
    assert parts["attention softmax"] == 5 * 32 * 32 * 4096.5
    assert parts["router and loss softmax"] == 5 * 128256
    assert parts["norms"] == 4 * 4096 * (2 * 32 + 1)
    assert parts["activations"] == 32 * 5 * 14336
    assert parts["rotary"] == 3 * 32 * (32 + 8) * 128
    assert parts["residuals and biases"] == 32 * 2 * 4096
    assert parts["embedding look-up"] == parts["linear attention gates"] == 0


def test_uncounted_work_of_other_kinds() -> None:
    gpt2, deepseek = (
        estimates(find_model("gpt2"), 1024),
        estimates(find_model("deepseek-v2-lite"), 4096),
    )
    assert gpt2["rotary"] == 0
    assert gpt2["embedding look-up"] == 768
    assert gpt2["norms"] == 7 * 768 * (2 * 12 + 1)
    assert gpt2["activations"] == 12 * 4 * 3072
    assert gpt2["residuals and biases"] == 12 * (2 * 768 + 3 * 768 + 768 + 3072 + 768)
    assert deepseek["rotary"] == 3 * 27 * (16 + 1) * 64
    assert deepseek["norms"] == 4 * (2048 * (2 * 27 + 1) + 27 * 512)
    assert deepseek["router and loss softmax"] == 5 * (26 * 64 + 102400)
    assert deepseek["activations"] == 5 * (10944 + 26 * (6 + 2) * 1408)
    assert estimates(DELTA, 64)["linear attention gates"] == 3 * 8 * 32 * 48
    attention, experts = (64 + 8 + 8) * 64 + 2880, 4 * (2 * 2880 + 2880) + 32  # and the router's
    gpt_oss = estimates(find_model("gpt-oss-20b"), 64)
    assert gpt_oss["residuals and biases"] == 24 * (2 * 2880 + attention + experts)
    assert estimates(BIASED, 64)["residuals and biases"] == 2 * (6 * 64 + 256 + 64) + 100


@each_case("shape", SHAPES, ids=lambda shape: shape.name)
def test_what_is_not_counted_is_small(shape: ModelShape) -> None:
    """Below 1 % of the FLOPs that count, in models of more than a billion parameters."""
    share = sum(part.share for part in uncounted(shape, 4096))
    assert 0 < share < (0.01 if shape.params_matmul > 1e9 else 0.2)


# --- cache ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("llama-3-8b", 32 * 2 * 8 * 128),
        ("llama-2-7b", 32 * 2 * 32 * 128),
        ("falcon-7b", 32 * 2 * 64),
        ("deepseek-v3", 61 * (512 + 64)),  # 70 kB in BF16 (arXiv:2505.09343, table 1)
    ],
)
def test_cache_of_a_token(name: str, values: int) -> None:
    assert kv_cache_bytes_per_token(find_model(name), bytes_per_value=2) == 2 * values


def test_the_state_of_linear_attention_does_not_grow() -> None:
    assert kv_cache_bytes_per_token(DELTA, bytes_per_value=1) == 2 * 2 * 64


def test_a_cache_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, check=of_kind("impossible-value-size")):
        kv_cache_bytes_per_token(DELTA, bytes_per_value=0)
