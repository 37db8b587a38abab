"""The closed formula against PyTorch's FlopCounterMode: not one FLOP of difference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from metrics.flops import (
    Trainable,
    flops_per_token,
    forward_flops_per_token,
    hardware_flops_bounds,
    operators,
)
from metrics.model_shapes import ModelShape, from_hugging_face, known

GOLDEN = Path(__file__).parent / "golden" / "flop_counter"
TOKENS = 2 * 512  # of every backward and LoRA case


def golden(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text())


CONFIGS: dict[str, dict[str, object]] = golden("configs")
FORWARD = golden("forward")
BACKWARD = golden("backward")
LORA = golden("lora")


def label(case: dict[str, Any]) -> str:
    keys = ("model", "case", "batch", "seq_len", "input_gradients")
    words = [str(case[key]) for key in keys if key in case]
    return "-".join([*words, *case.get("targets", ())])


def shapes(model: str) -> list[ModelShape]:
    """The same model by its config and by its name."""
    return [from_hugging_face(CONFIGS[model]), known(model)]


def test_every_model_was_counted_at_three_shapes() -> None:
    assert len(CONFIGS) == 23
    assert len(FORWARD) == 69
    assert {case["model"] for case in FORWARD} == set(CONFIGS)


@pytest.mark.parametrize("case", FORWARD, ids=label)
def test_forward(case: dict[str, Any]) -> None:
    tokens = case["batch"] * case["seq_len"]
    for shape in shapes(case["model"]):
        ops = operators(shape, case["seq_len"], attention="full")
        core = sum(op.forward for op in ops if op.name == "core attention")
        assert forward_flops_per_token(ops) * tokens - case["flops"] == 0
        assert core * tokens - case["core_attention"] == 0


@pytest.mark.parametrize("case", FORWARD, ids=label)
def test_forward_over_the_pairs_of_the_mask(case: dict[str, Any]) -> None:
    tokens = case["batch"] * case["seq_len"]
    shape = from_hugging_face(CONFIGS[case["model"]])
    counted = forward_flops_per_token(operators(shape, case["seq_len"])) * tokens
    assert abs(counted - case["exact"]) < 1  # a window's A is no binary fraction


@pytest.mark.parametrize("case", FORWARD, ids=label)
def test_parameters(case: dict[str, Any]) -> None:
    assert from_hugging_face(CONFIGS[case["model"]]).params_total == case["parameters"]


def counted(model: str, trainable: Trainable) -> tuple[float, float]:
    """Forward and backward FLOPs of the 2 x 512 tokens."""
    ops = operators(known(model), 512, attention="full", trainable=trainable)
    forward = forward_flops_per_token(ops)
    return forward * TOKENS, (flops_per_token(ops) - forward) * TOKENS


KEPT = [case for case in BACKWARD if case["case"] != "checkpoint"]
RECOMPUTED = [case for case in BACKWARD if case["case"] == "checkpoint"]


@pytest.mark.parametrize("case", KEPT, ids=label)
def test_backward(case: dict[str, Any]) -> None:
    forward, backward = counted(case["model"], Trainable(kind=case["case"]))
    assert forward - case["forward"] == 0
    assert backward - case["backward"] == 0


@pytest.mark.parametrize("case", RECOMPUTED, ids=label)
def test_checkpointed_layers_lie_within_the_bounds_of_hfu(case: dict[str, Any]) -> None:
    shape, executed = known(case["model"]), case["forward"] + case["backward"]
    full_minus_exact = (
        flops_per_token(operators(shape, 512, attention="full"))
        - flops_per_token(operators(shape, 512))
    ) * (4 / 3)  # four forwards of core attention: two backward, one recomputed
    low, high = (
        bound + full_minus_exact for bound in hardware_flops_bounds(shape, 512, "full") if bound
    )
    assert low * TOKENS <= executed <= high * TOKENS
    if case["model"] in ("llama-3.1-8b", "qwen3-0.6b"):
        assert executed == low * TOKENS
    elif case["model"] != "deepseek-v3":  # there, what routes experts recomputes their output
        assert executed == high * TOKENS


def without_input_gradients(case: dict[str, Any], shape: ModelShape) -> int:
    """What is not executed where embeddings need no gradient, per 2 x 512 tokens.

    The first layer's input gradients of query, key and value with those of their adapters, and,
    where no key is trained, the gradient of the keys themselves.
    """
    attention, hidden = shape.layers[0].attention, shape.hidden_size
    inputs = [w for w in attention.weights(hidden) if w.rows == hidden and w.name != "o_proj"]
    skipped = sum(2 * w.rows * w.columns for w in inputs)
    skipped += sum(2 * w.rows * case["rank"] for w in inputs if w.name in case["targets"])
    if "k_proj" in {w.name for w in inputs} - set(case["targets"]):
        skipped += 2 * 512 * attention.heads * attention.qk_head_dim
    return skipped * TOKENS


@pytest.mark.parametrize("case", LORA, ids=label)
def test_lora(case: dict[str, Any]) -> None:
    trainable = Trainable(kind="lora", lora_rank=case["rank"], lora_targets=tuple(case["targets"]))
    shape = known(case["model"])
    forward, backward = counted(case["model"], trainable)
    if not case["input_gradients"]:
        backward -= without_input_gradients(case, shape)
    assert forward - case["forward"] == 0
    assert backward - case["backward"] == 0
    adapters = operators(shape, 512, trainable=trainable)[-1]
    assert adapters.forward == 2 * case["adapter_parameters"]


@pytest.mark.parametrize("model", CONFIGS)
def test_live(model: str) -> None:
    torch = pytest.importorskip("torch", reason="counts again where torch is installed")
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    from torch.utils.flop_counter import FlopCounterMode  # noqa: PLC0415

    config = transformers.AutoConfig.for_model(**CONFIGS[model])
    experts = {"experts_implementation": "batched_mm"} if "expert" in str(CONFIGS[model]) else {}
    with torch.device("meta"):
        network = transformers.AutoModelForCausalLM.from_config(
            config, attn_implementation="eager", **experts
        )
        ids = torch.zeros(2, 512, dtype=torch.long)
        mask: Any = torch.zeros(2, 1, 512, 512)
    kinds = set(getattr(config, "layer_types", None) or ())
    if len(kinds) > 1:
        mask = dict.fromkeys(kinds, mask)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network(input_ids=ids, attention_mask=mask, use_cache=False)
    shape = from_hugging_face(CONFIGS[model])
    expected = forward_flops_per_token(operators(shape, 512, attention="full")) * TOKENS
    assert counter.get_total_flops() == expected
    assert sum(weight.numel() for weight in network.parameters()) == shape.params_total
