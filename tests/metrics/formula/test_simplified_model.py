"""A model as tools see it that know one kind of layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fairmfu.metrics.formula.flops import flops_per_token, operators
from fairmfu.metrics.formula.model_shapes import ShapeError, find_model
from fairmfu.metrics.formula.simplified_model import SimplifiedModel, full_attention
from tests.support.error_kinds import of_kind


def seen(name: str, recompute: Any = "none", width: int | None = None) -> SimplifiedModel:
    return SimplifiedModel(
        shape=find_model(name), T=4096, recompute=recompute, intermediate_size=width
    )


@pytest.mark.parametrize(("recompute", "forwards"), [("none", 3), ("selective", 3), ("full", 4)])
def test_only_full_recomputation_is_a_fourth_forward(recompute: str, forwards: int) -> None:
    assert seen("llama3-8b", recompute).r == forwards


def test_a_tool_that_counts_recomputation_has_to_know_it() -> None:
    with pytest.raises(ShapeError, check=of_kind("tool-needs-recompute")):
        _ = seen("llama3-8b", None).r


def test_the_letters_of_llama_3_8b() -> None:
    model = seen("llama3-8b")
    assert (model.d, model.L, model.H, model.G, model.q) == (4096, 32, 32, 8, 128)
    assert (model.V, model.f, model.matrices, model.moe) == (128_256, 14_336, 3, None)
    assert model.token_table == 128_256 * 4096
    assert [count for count, _ in model.attention] == [32]


def test_the_head_width_is_the_share_of_the_hidden_size_whatever_the_model_has() -> None:
    """Qwen3-0.6B: 1,024 over 16 heads, which are 128 wide."""
    model = seen("qwen3-0.6b")
    assert model.q == 64
    assert model.attention[0][1].qk_head_dim == 128


def test_a_plain_block_has_two_matrices() -> None:
    assert seen("gpt2").matrices == 2
    assert seen("mixtral-8x7b").matrices == 3


def test_the_width_is_that_of_the_config_then_of_a_dense_layer() -> None:
    assert seen("llama3-8b", width=999).f == 999
    sparse = seen("mixtral-8x7b")
    assert sparse.f == 14_336
    assert sparse.moe is not None
    assert sparse.moe.experts == 8
    assert seen("deepseek-v3").f == 18_432  # of its first three layers, which are dense
    unknown = sparse._replace(shape=replace(sparse.shape, name="mine"))
    with pytest.raises(ShapeError, check=of_kind("tool-needs-config")):
        _ = unknown.f


def test_a_table_may_be_narrower_than_the_model() -> None:
    """OPT-350m: 50,272 words of 512 numbers, in a model 1,024 wide."""
    model = seen("opt-350m")
    assert (model.d, model.token_table) == (1024, model.V * 512)


def test_linear_attention_is_none_that_they_know() -> None:
    with pytest.raises(ShapeError, check=of_kind("tool-without-linear-attention")):
        _ = seen("qwen3-next-80b-a3b").attention


def test_full_attention_is_of_the_whole_length() -> None:
    """12 x 32 x 4,096 FLOPs for each attended pair: T instead of (T + 1) / 2 of them."""
    shape = find_model("llama3-8b")
    exact = flops_per_token(operators(shape, 4096))
    assert full_attention(seen("llama3-8b")) - exact == 12 * 32 * 4096 * (4096 - 2048.5)
