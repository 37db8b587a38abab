"""Counts by FlopCounterMode: 0 FLOPs from the formula, over the pairs of the model's own mask.

Without torch and transformers (`pip install '.[count]'`), tests named `counted` are skipped.
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fairmfu.cli import main
from fairmfu.ingest.core.operator_list import operator_list
from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.metrics.formula import counted_models
from fairmfu.metrics.formula.counted_models import MAX_COUNTED_LENGTH, CountedModel, count_model
from fairmfu.metrics.formula.flops import forward_flops_per_token, operators
from fairmfu.metrics.formula.messages import CountError
from fairmfu.metrics.formula.model_shapes import ShapeError, from_hugging_face
from tests.metrics.formula.test_flop_counter import (
    CONFIGS,
    DELAYED,
    MORE,
    TOKENS,
    TYPE_FORWARD,
    TYPES,
    has_state,
    is_kernel,
)

HAS_TORCH = find_spec("torch") is not None and find_spec("transformers") is not None
needs_torch = pytest.mark.skipif(
    not HAS_TORCH, reason="torch and transformers count here: pip install '.[count]'"
)
quietly = pytest.mark.filterwarnings("default")

PARTS = {"qwen2-vl-7b", "qwen2.5-vl-7b", "qwen3-vl-8b", "qwen3-vl-30b-a3b", "emu3", "mllama"}
"""Text parts of other models: transformers builds none of them with an lm_head."""
ELSEWHERE = {"kimi-k2", "cohere_compass_text"}
"""Models with code of their own, or a config that its code does not read."""
ALL_EXPERTS = ("llama-4-scout", "llama-4-maverick")
"""Models whose code multiplies all experts."""
SLOW = {"rwkv", "zamba"}
"""Models that run token by token."""
NAMED = {
    name: config
    for name, config in (CONFIGS | MORE).items()
    if name not in PARTS | ELSEWHERE | {*ALL_EXPERTS}
}
COUNTED = [
    name for name in TYPES if "flops" in TYPE_FORWARD[name] and name not in PARTS | ELSEWHERE
]
STATELESS = [name for name in COUNTED if not has_state(name)]
STATEFUL = [name for name in COUNTED if has_state(name) and name not in SLOW]
WEIGHTLESS = ("core attention", "products of activations", "convolution")


def products(counted: CountedModel, kind: str = "forward") -> float:
    """FLOPs per token of a count, convolutions apart."""
    return sum(getattr(op, kind) for op in counted.operators if op.name != "convolution")


def ours(config: dict[str, Any], seq_len: int, attention: Any = "exact") -> float:
    """The same by the formula."""
    every = operators(from_hugging_face(config), seq_len, attention=attention)
    return forward_flops_per_token(op for op in every if not is_kernel(op))


def is_exact(counted: CountedModel) -> bool:
    return not any(op.estimate for op in counted.operators if op.name != "convolution")


@needs_torch
@quietly
@pytest.mark.parametrize("seq_len", [512, 4096])
@pytest.mark.parametrize("model", NAMED)
def test_counted_models_are_exact_over_the_pairs_of_their_masks(model: str, seq_len: int) -> None:
    config = NAMED[model]
    counted = count_model(config, seq_len)
    assert is_exact(counted)
    assert products(counted, "full_attention") - ours(config, seq_len, "full") == 0
    assert abs(products(counted) - ours(config, seq_len)) * seq_len < 1  # A is no binary fraction
    assert counted.params_total == from_hugging_face(config).params_total


@needs_torch
@quietly
@pytest.mark.parametrize("name", STATELESS)
def test_counted_types_are_exact_or_an_upper_bound_marked_as_such(name: str) -> None:
    counted = count_model(TYPES[name], 512)
    delayed = DELAYED.get(name, 0) / TOKENS
    assert products(counted, "full_attention") - ours(TYPES[name], 512, "full") == delayed
    difference = (products(counted) - ours(TYPES[name], 512) - delayed) * 512
    assert abs(difference) < 1 if is_exact(counted) else difference > -1


@needs_torch
@quietly
@pytest.mark.parametrize("name", STATEFUL)
def test_counted_states_are_estimates_and_the_weights_are_exact(name: str) -> None:
    counted = count_model(TYPES[name], 512)
    weights = sum(op.forward for op in counted.operators if op.name not in WEIGHTLESS)
    theirs = operators(from_hugging_face(TYPES[name]), 512)
    known = [op for op in theirs if op.name != "core attention" and not is_kernel(op)]
    assert weights == sum(op.forward for op in known if not op.estimate)


@needs_torch
@quietly
@pytest.mark.parametrize("model", ALL_EXPERTS)
def test_counted_experts_that_a_token_does_not_need_are_marked(model: str) -> None:
    counted = count_model(MORE[model], 64)
    assert [op.name for op in counted.operators if op.estimate] == ["feed_forward.experts"]


ENCODERS = {
    "roberta": {"model_type": "roberta", "num_hidden_layers": 2},
    "bart": {"model_type": "bart", "encoder_layers": 2, "decoder_layers": 2},
    "t5": {"model_type": "t5", "num_layers": 2},
}


@needs_torch
@quietly
@pytest.mark.parametrize("name", ENCODERS)
def test_counted_types_that_the_formula_refuses(name: str) -> None:
    """The refusal names the count as the way out."""
    with pytest.raises(ShapeError, match="--count"):
        from_hugging_face(ENCODERS[name])
    counted = count_model(ENCODERS[name], 64)
    attention = sum(op.layers for op in counted.operators if op.name == "core attention")
    assert counted.tokens == (64 if name == "roberta" else 128)
    assert attention == (2 if name == "roberta" else 6)  # of encoder, decoder, and between them
    assert counted.params_total > 0


@needs_torch
@quietly
def test_counted_operators_become_a_fact_with_versions(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(ENCODERS["roberta"]))
    done = CliRunner().invoke(
        main, ["flops", str(config), "--seq-len", "64", "--count", "--format", "json"]
    )
    assert done.exit_code == 0, done.output
    listed = operator_list(done.stdout)
    assert listed.counted_by.startswith("torch ")
    (fact,) = facts_from_flags([f"operators={json.dumps(json.loads(done.stdout))}"])
    assert fact["origin"] == f"flag: counted by {listed.counted_by}"
    assert operator_list(fact["value"]) == listed


@needs_torch
@quietly
def test_counted_configs_run_no_code_of_their_own() -> None:
    hostile = ENCODERS["roberta"] | {
        "auto_map": {"AutoModelForMaskedLM": "elsewhere/model--modeling.Own"},
        "attn_implementation": "kernels-community/flash-attn",
        "_attn_implementation": "kernels-community/flash-attn",
        "quantization_config": {"quant_method": "bitsandbytes"},
    }
    assert count_model(hostile, 64) == count_model(ENCODERS["roberta"], 64)


@needs_torch
@quietly
def test_a_type_of_no_transformers_is_refused_with_a_way_out() -> None:
    with pytest.raises(CountError, match=r"own_model.*Fix: install a later transformers, or give"):
        count_model({"model_type": "own_model"}, 64)


@needs_torch
@quietly
@pytest.mark.parametrize(
    "broken",
    [{"num_hidden_layers": "many"}, {"hidden_size": 0}, {"hidden_act": "own"}, {"vocab_size": -1}],
    ids=str,
)
def test_a_broken_config_is_not_counted(broken: dict[str, Any]) -> None:
    with pytest.raises(CountError, match=r"cannot count roberta without data.*Fix: correct"):
        count_model(ENCODERS["roberta"] | broken, 64)


# --- without torch --------------------------------------------------------------------------


def test_without_torch_a_count_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(counted_models, "find_spec", lambda _: None)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(ENCODERS["roberta"]))
    done = CliRunner().invoke(main, ["flops", str(config), "--seq-len", "64", "--count"])
    assert done.exit_code == 1
    assert "Fix: install it in your clone of fairmfu" in done.stderr
    assert "'.[count]'" in done.stderr


@pytest.mark.parametrize(
    "config",
    [
        {"num_hidden_layers": 10**6},
        {"text_config": {"num_experts": 10**7}},
        {"vocab_size": 10**12},
        {"layer_types": [10**12]},
    ],
    ids=str,
)
def test_a_config_beyond_any_model_is_not_built(config: dict[str, Any]) -> None:
    with pytest.raises(CountError, match="Too large to count"):
        count_model({"model_type": "llama", **config}, 64)


def test_a_sequence_beyond_any_run_is_not_counted() -> None:
    with pytest.raises(CountError, match="tokens; at most"):
        count_model({"model_type": "llama"}, MAX_COUNTED_LENGTH + 1)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["llama3-8b"], "needs the path of a config.json"),
        (["CONFIG", "--tgs", "5"], "cannot take --tgs"),
        (["CONFIG", "--documents", "4x16"], "cannot take --documents"),
        (["CONFIG", "--trainable", "lora"], "cannot take --trainable lora"),
    ],
)
def test_an_option_of_the_formula_is_refused(words: list[str], says: str, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(ENCODERS["roberta"]))
    given = [str(config) if word == "CONFIG" else word for word in words]
    done = CliRunner().invoke(main, ["flops", *given, "--seq-len", "64", "--count"])
    assert done.exit_code == 2
    assert says in " ".join(done.stderr.split())
