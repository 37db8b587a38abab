"""Torchtitan's nested model configs, one `layer` or a list of `layers`, give the known shapes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.metrics.formula.flops import flops_per_token, operators
from fairmfu.metrics.formula.model_shapes import ModelShape, ShapeError, find_model, from_torchtitan


def linear(rows: int, columns: int, **more: object) -> dict[str, Any]:
    return {"in_features": rows, "out_features": columns, "bias": False, **more}


def block(dim: int, width: int) -> dict[str, Any]:
    """Return a feed-forward config as since 2026-04-03."""
    return {"w1": linear(dim, width), "w2": linear(width, dim), "w3": linear(dim, width)}


def config(**more: Any) -> dict[str, Any]:
    return {"tok_embeddings": {}, "norm": {"eps": 1e-5}, "rope": {"theta": 5e5}, **more}


LLAMA_3_8B = config(
    dim=4096,
    n_layers=32,
    vocab_size=128256,
    layer={
        "attention": {"n_heads": 32, "n_kv_heads": 8, "head_dim": None, "attn_backend": "sdpa"},
        "feed_forward": {"hidden_dim": 14336},
        "moe": None,
        "depth_init": True,
    },
)
QWEN3_30B = config(
    dim=2048,
    n_layers=48,
    vocab_size=151936,
    enable_weight_tying=False,
    layer={
        "moe_enabled": True,
        "attention": {"n_heads": 32, "n_kv_heads": 4, "head_dim": 128, "q_norm": {}, "k_norm": {}},
        "feed_forward": {"hidden_dim": 6144},
        "moe": {"num_experts": 128, "num_shared_experts": 0, "top_k": 8, "hidden_dim": 768},
    },
)
DEEPSEEK_16B = config(
    dim=2048,
    n_layers=27,
    vocab_size=102400,
    layer={
        "n_dense_layers": 1,
        "attention": {
            "n_heads": 16,
            "q_lora_rank": 0,
            "kv_lora_rank": 512,
            "mscale": 0.7,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
        },
        "feed_forward": {"hidden_dim": 10944},
        "moe": {"num_experts": 64, "num_shared_experts": 2, "top_k": 6, "hidden_dim": 1408},
    },
)
GPT_OSS_20B = config(
    dim=2880,
    n_layers=24,
    vocab_size=201088,
    layer={
        "attention": {"n_heads": 64, "n_kv_heads": 8, "head_dim": 64, "sliding_window_size": 128},
        "feed_forward": None,
        "moe": {
            "num_experts": 32,
            "num_shared_experts": 0,
            "top_k": 4,
            "hidden_dim": 2880,
            "gate_bias": True,
        },
    },
)
LLAMA_4_16E = config(
    dim=5120,
    n_layers=48,
    vocab_size=202048,
    layer={
        "every_n_layers_nope": 4,
        "interleave_moe_layer_step": 1,
        "fixed_attn_block_size": 8192,
        "attention": {"n_heads": 40, "n_kv_heads": 8, "attn_backend": "flex", "use_rope": True},
        "feed_forward": {"hidden_dim": 16384},
        "moe": {"num_experts": 16, "num_shared_experts": 1, "top_k": 1, "hidden_dim": 8192},
    },
)
KNOWN = {
    "llama-3-8b": LLAMA_3_8B,
    "qwen3-30b-a3b": QWEN3_30B,
    "deepseek-v2-lite": DEEPSEEK_16B,
    "gpt-oss-20b": GPT_OSS_20B,
    "llama-4-scout": LLAMA_4_16E,
}


def matmuls(shape: ModelShape, length: int = 4096) -> float:
    return flops_per_token(operators(shape, length))


@pytest.mark.parametrize("name", KNOWN)
def test_a_config_of_one_layer_is_the_model_known_by_name(name: str) -> None:
    shape, known = from_torchtitan("some 1B", KNOWN[name]), find_model(name)

    assert matmuls(shape) == matmuls(known)
    assert matmuls(shape, 16384) == matmuls(known, 16384)
    assert shape.params_total == known.params_total


@given(st.data())
def test_equal_layers_may_be_counted_or_repeated(data: st.DataObject) -> None:
    layers = [LLAMA_3_8B["layer"], LLAMA_3_8B["layer"] | {"feed_forward": block(4096, 512)}]
    order = data.draw(st.lists(st.integers(0, 1), min_size=1, max_size=12))
    counts = data.draw(st.lists(st.integers(1, 3), min_size=len(order), max_size=len(order)))
    base = {key: value for key, value in LLAMA_3_8B.items() if key not in ("layer", "n_layers")}
    short = [layers[i] | {"count": n} for i, n in zip(order, counts, strict=True)]
    long = [layers[i] for i, n in zip(order, counts, strict=True) for _ in range(n)]

    assert from_torchtitan("x 1B", base | {"layers": short}) == from_torchtitan(
        "x 1B", base | {"layers": long}
    )


def test_a_list_of_layers_says_each_layers_own_modules() -> None:
    """Since 2026-04-03 a layer has experts where it has a `moe`, and its widths are Linears'."""
    attention = DEEPSEEK_16B["layer"]["attention"] | {"wq": linear(2048, 3072), "wo": linear(1, 1)}
    dense = {"attention": attention, "feed_forward": block(2048, 10944), "moe": None}
    moe = {
        "num_experts": 64,
        "experts": {"dim": 2048, "hidden_dim": 1408, "num_experts": 64, "token_dispatcher": {}},
        "router": {"num_experts": 64, "top_k": 6, "gate": linear(2048, 64)},
        "shared_experts": block(2048, 2816),
    }
    sparse = {"attention": attention, "feed_forward": None, "moe": moe}
    base = {key: value for key, value in DEEPSEEK_16B.items() if key not in ("layer", "n_layers")}
    shape = from_torchtitan("x", base | {"layers": [dense, sparse | {"count": 26}]})

    assert shape == from_torchtitan("x", DEEPSEEK_16B)


def of_linears(*, width: int, bias: bool = False) -> dict[str, Any]:
    """Return Llama 3 8B with one config for wk and wv. width: of their outputs"""
    more = {"bias": bias}
    linears = {"wq": linear(4096, 4096, **more), "wkv": linear(4096, width, **more)}
    attention = LLAMA_3_8B["layer"]["attention"] | linears | {"wo": linear(4096, 4096)}
    return LLAMA_3_8B | {"layer": LLAMA_3_8B["layer"] | {"attention": attention}}


def test_keys_and_values_may_share_one_config() -> None:
    """Of 2026-04: `wkv` builds wk and wv; later both are inside `qkv_linear`."""
    assert from_torchtitan("x", of_linears(width=8 * 128)) == from_torchtitan("x", LLAMA_3_8B)
    with_bias = from_torchtitan("x", of_linears(width=8 * 128, bias=True))
    assert with_bias.params_total == find_model("llama3-8b").params_total + 32 * (32 + 16) * 128


def test_a_config_as_wide_as_keys_and_values_together_is_refused() -> None:
    with pytest.raises(ShapeError, match="does not cover wkv"):
        from_torchtitan("x", of_linears(width=2 * 8 * 128))


def test_a_window_is_in_the_layers_that_say_so() -> None:
    layer = GPT_OSS_20B["layer"]
    base = {key: value for key, value in GPT_OSS_20B.items() if key not in ("layer", "n_layers")}
    pair = [layer | {"use_sliding_attention": True}, layer | {"use_sliding_attention": False}]

    assert matmuls(from_torchtitan("x", base | {"layers": pair * 12})) == matmuls(
        find_model("gpt-oss-20b")
    )


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"vision_encoder": {"dim": 1024}}, "vision_encoder"),
        ({"layer": LLAMA_3_8B["layer"] | {"linear_attention": {"heads": 4}}}, "linear_attention"),
        ({"layer": {"feed_forward": {"hidden_dim": 1}}}, "attention"),
        ({"layers": [LLAMA_3_8B["layer"]]}, "n_layers"),
        ({"layers": "32 layers"}, "layers"),
        ({"dim": 2**40}, "dim"),
    ],
)
def test_an_unknown_or_impossible_part_is_refused_by_name(
    change: dict[str, Any], named: str
) -> None:
    with pytest.raises(ShapeError, match=named):
        from_torchtitan("x 8B", LLAMA_3_8B | change)


def test_llama_4_without_layers_that_differ_is_unclear() -> None:
    layer = {**LLAMA_4_16E["layer"], "every_n_layers_nope": None}

    with pytest.raises(ShapeError, match="inside blocks"):
        from_torchtitan("x", LLAMA_4_16E | {"layer": layer})
