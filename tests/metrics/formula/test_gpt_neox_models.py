"""The model that GPT-NeoX's arguments describe, against the parameters that its logs count."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest

from fairmfu.ingest.parse.record_sink import ParsedSource
from fairmfu.metrics.formula.model_shapes import ShapeError, from_megatron
from tests.support.error_kinds import of_kind

Parse = Callable[..., ParsedSource]

PYTHIA = {
    "attention_config": "['flash', 'flash']",
    "hidden_size": "512",
    "max_position_embeddings": "2048",
    "no_weight_tying": "True",
    "num_attention_heads": "8",
    "num_layers": "6",
    "pos_emb": "rotary",
    "activation": "gelu",
    "mlp_type": "regular",
    "use_bias_in_attn_linear": "True",
}
LLAMA = PYTHIA | {
    "activation": "silu",
    "hidden_size": "4096",
    "mlp_type": "llama",
    "norm": "rmsnorm",
    "num_attention_heads": "32",
    "num_layers": "32",
    "use_bias_in_attn_linear": "False",
}


def facts(parse: Parse, arguments: Mapping[str, str]) -> dict[str, str]:
    lines = [f"  {k} {'.' * (32 - len(k))} {v}....updated" for k, v in sorted(arguments.items())]
    parsed = parse("gpt-neox", ["--- arguments ---", *lines, "--- end of arguments ---"])
    return {fact["name"]: fact["value"] for fact in parsed.launches[0].facts}


@pytest.mark.parametrize(
    ("arguments", "padded", "tensor_parallel", "logged"),
    [
        (PYTHIA, 50_304, 1, 70_426_624),
        (
            PYTHIA | {"hidden_size": "768", "num_layers": "12", "num_attention_heads": "12"},
            50_304,
            1,
            162_322_944,
        ),
        (LLAMA, 32_016, 2, 6_738_812_928),
    ],
    ids=["pythia-70m", "pythia-160m", "codellama-7b"],
)
def test_the_shape_has_the_parameters_that_the_log_counts(
    arguments: Mapping[str, str], padded: int, tensor_parallel: int, logged: int, parse: Parse
) -> None:
    """`> total params` counts the padded vocabulary, and norms on every tensor-parallel rank."""
    shape = from_megatron(json.loads(facts(parse, arguments)["megatron_arguments"]), padded)
    norms = (2 * int(arguments["num_layers"]) + 1) * int(arguments["hidden_size"])
    assert shape.params_total + (tensor_parallel - 1) * norms == logged


@pytest.mark.parametrize(
    "other",
    [
        {"attention_config": "['mamba', 'flash']"},
        {"attention_config": "['local', 'global']"},
        {"activation": "swiglu"},
        {"moe_num_experts": "8"},
        {"norm": "scalenorm"},
        {"mlp_type": "llama"},
        {"use_bias_in_mlp": "False"},
        {"intermediate_size": "3000"},
        {"train_impl": "dpo"},
        {"soft_prompt_tuning": "{'enabled': True}"},
        {"num_layers": "6 6"},
    ],
    ids=str,
)
def test_a_model_that_megatrons_names_cannot_say_is_left_to_the_user(
    other: Mapping[str, str], parse: Parse
) -> None:
    assert "megatron_arguments" in facts(parse, PYTHIA)
    assert "megatron_arguments" not in facts(parse, PYTHIA | other)


def test_a_llama_may_have_its_own_width_and_fewer_key_value_heads(parse: Parse) -> None:
    said = facts(parse, LLAMA | {"intermediate_size": "14336", "num_kv_heads": "8"})
    shape = from_megatron(json.loads(said["megatron_arguments"]), 32_000)
    assert shape.params_total == 7_241_732_096  # Mistral 7B


def test_a_sliding_window_is_not_counted_as_whole_attention(parse: Parse) -> None:
    said = facts(parse, LLAMA | {"sliding_window_width": "4096"})
    with pytest.raises(ShapeError, check=of_kind("uncovered-argument", "window_size '4096'")):
        from_megatron(json.loads(said["megatron_arguments"]), 32_000)


def test_what_leaves_a_figure_open_states_no_fact(parse: Parse) -> None:
    curriculum = {"seq_length": "2048", "curriculum_learning": "{'enabled': True}"}
    assert "seq_len" not in facts(parse, curriculum)
    assert facts(parse, curriculum | {"curriculum_learning": "None"})["seq_len"] == "2048"
    fp8 = {"precision": "bfloat16", "te_layernorm_mlp": "True"}
    assert facts(parse, fp8)["quantization"] == "Transformer Engine: te_layernorm_mlp"
    how = {"te_fp8_wgrad": "True", "intermediate_size": "14336", "create_moe_param_group": "True"}
    plain = facts(parse, fp8 | how | {"te_layernorm_mlp": "False"})
    assert (plain["precision"], plain.get("quantization")) == ("bf16", None)
    assert facts(parse, {"pack_impl": "unpacked"})["packed"] == "false"


@pytest.mark.parametrize("hidden", ["1" + "0" * 400, "9" * 5000])
def test_a_width_beyond_all_bounds_states_no_model(hidden: str, parse: Parse) -> None:
    assert "megatron_arguments" not in facts(parse, LLAMA | {"hidden_size": hidden})
