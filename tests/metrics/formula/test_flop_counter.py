"""The closed formula against PyTorch's FlopCounterMode: not one FLOP of difference."""

from __future__ import annotations

import importlib
import json
from contextlib import suppress
from functools import cache
from typing import Any

import pytest

from fairmfu.metrics.formula.flops import (
    Operator,
    Trainable,
    ffn,
    flops_per_token,
    forward_flops_per_token,
    hardware_flops_bounds,
    operators,
)
from fairmfu.metrics.formula.model_shapes import (
    ModelShape,
    ShapeError,
    find_model,
    from_hugging_face,
    model_types,
    text_config,
)
from tests.support.each_case import each_case
from tests.support.folders import TESTS

GOLDEN = TESTS / "golden" / "flop_counter"
TOKENS = 2 * 512  # of every backward and LoRA case


def golden(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text())


CONFIGS: dict[str, dict[str, Any]] = golden("configs")
MORE: dict[str, dict[str, Any]] = golden("more_configs")
MORE_FORWARD = golden("more_forward")
LINEAR_CONFIGS: dict[str, dict[str, Any]] = golden("linear_configs")
LINEAR = golden("linear_forward")
FORWARD = golden("forward")
TYPE_FORWARD: dict[str, dict[str, Any]] = golden("type_forward")
BACKWARD = golden("backward")
LORA = golden("lora")


def written_out(value: Any) -> Any:
    """A config of type_configs.json with its shortened lists: runs of values, or a cycle."""
    if isinstance(value, list):
        return [written_out(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "runs" in value:
        return [item for item, count in value["runs"] for _ in range(count)]
    if "cycle" in value:
        cycle = value["cycle"]
        return [cycle[i % len(cycle)] for i in range(value["length"])]
    return {key: written_out(item) for key, item in value.items()}


TYPES: dict[str, dict[str, Any]] = {
    name: written_out(config) for name, config in golden("type_configs").items()
}


def label(case: dict[str, Any]) -> str:
    keys = ("model", "case", "batch", "seq_len", "input_gradients")
    words = [str(case[key]) for key in keys if key in case]
    return "-".join([*words, *case.get("targets", ())])


def shapes(model: str) -> list[ModelShape]:
    """The same model by its config and by its name."""
    return [from_hugging_face(CONFIGS[model]), find_model(model)]


def test_every_model_was_counted_at_three_shapes() -> None:
    assert len(CONFIGS) == 23
    assert len(FORWARD) == 69
    assert {case["model"] for case in FORWARD} == set(CONFIGS)


@each_case("case", FORWARD, ids=label)
def test_forward(case: dict[str, Any]) -> None:
    tokens = case["batch"] * case["seq_len"]
    for shape in shapes(case["model"]):
        ops = operators(shape, case["seq_len"], attention="full")
        core = sum(op.forward for op in ops if op.name == "core attention")
        assert forward_flops_per_token(ops) * tokens - case["flops"] == 0
        assert core * tokens - case["core_attention"] == 0


@each_case("case", FORWARD, ids=label)
def test_forward_over_the_pairs_of_the_mask(case: dict[str, Any]) -> None:
    tokens = case["batch"] * case["seq_len"]
    shape = from_hugging_face(CONFIGS[case["model"]])
    counted = forward_flops_per_token(operators(shape, case["seq_len"])) * tokens
    assert abs(counted - case["exact"]) < 1  # a window's A is no binary fraction


@each_case("case", FORWARD, ids=label)
def test_parameters(case: dict[str, Any]) -> None:
    assert from_hugging_face(CONFIGS[case["model"]]).params_total == case["parameters"]


def counted(model: str, trainable: Trainable) -> tuple[float, float]:
    """Forward and backward FLOPs of the 2 x 512 tokens."""
    ops = operators(find_model(model), 512, attention="full", trainable=trainable)
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
    shape, executed = find_model(case["model"]), case["forward"] + case["backward"]
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
    shape = find_model(case["model"])
    forward, backward = counted(case["model"], trainable)
    if not case["input_gradients"]:
        backward -= without_input_gradients(case, shape)
    assert forward - case["forward"] == 0
    assert backward - case["backward"] == 0
    adapters = operators(shape, 512, trainable=trainable)[-1]
    assert adapters.forward == 2 * case["adapter_parameters"]


# --- other architectures --------------------------------------------------------------------


def test_every_model_type_was_counted() -> None:
    """All but two whose code is not part of transformers: their layers are Llama's."""
    configs = [*CONFIGS.values(), *MORE.values(), *LINEAR_CONFIGS.values(), *TYPES.values()]
    counted_types = {text_config(config)["model_type"] for config in configs}
    flat = {"qwen2_vl", "qwen2_5_vl"}  # the same keys, with `_text` where they are nested
    same = {"gpt-sw3"}  # its configs are of type gpt2
    assert set(model_types()) - counted_types - flat - same == {"internlm", "internlm2"}
    assert (
        len({c["model_type"] for c in MORE.values()} - {c["model_type"] for c in configs[:23]}) > 10
    )


@pytest.mark.parametrize("model_type", ["internlm", "internlm2"])
def test_internlm_is_a_llama(model_type: str) -> None:
    llama = CONFIGS["llama-3.1-8b"]
    shape = from_hugging_face({**llama, "model_type": model_type, "bias": False})
    assert shape.params_total == from_hugging_face(llama).params_total
    ops, expected = (operators(s, 512) for s in (shape, from_hugging_face(llama)))
    assert ops == expected


def executed(config: dict[str, Any], seq_len: int) -> float:
    """Forward FLOPs per token as transformers' code runs them.

    Its Llama 4 multiplies every token by all experts and zeroes what was not routed.
    """
    shape = from_hugging_face(config)
    flops = forward_flops_per_token(operators(shape, seq_len, attention="full"))
    if config["model_type"] == "llama4_text":
        for group in shape.layers:
            if group.moe is not None:
                idle = group.moe.experts - group.moe.experts_per_token
                flops += group.count * idle * ffn(shape.hidden_size, group.moe.expert)
    return flops


@pytest.mark.parametrize("model", MORE)
def test_forward_of_other_architectures(model: str) -> None:
    assert executed(MORE[model], 512) * TOKENS - MORE_FORWARD[model]["flops"] == 0


@pytest.mark.parametrize("model", MORE)
def test_parameters_of_other_architectures(model: str) -> None:
    assert from_hugging_face(MORE[model]).params_total == MORE_FORWARD[model]["parameters"]


# --- every type of transformers 5.24 --------------------------------------------------------

COUNTED_TYPES = [name for name, case in TYPE_FORWARD.items() if "flops" in case]
MOST_PADDING = 6 / 512  # LFM3's kernel of 7 tokens
DELAYED = {"zaya": 40 * 2 * 2048 * 128 * 2}
"""FLOPs of one more token, for values of the token before: 40 layers, 2 sequences."""


def type_operators(name: str) -> list[Operator]:
    shape = from_hugging_face(TYPES[name])
    return list(operators(shape, 512, attention="full"))


def is_kernel(op: Operator) -> bool:
    return op.name.endswith("convolution")


@cache
def has_state(name: str) -> bool:
    return from_hugging_face(TYPES[name]).has_linear_attention


@pytest.mark.parametrize("name", [name for name in COUNTED_TYPES if not has_state(name)])
def test_every_type_without_a_state_is_exact(name: str) -> None:
    """Convolutions apart: their kernels also compute outputs that are cut off."""
    ops, case = type_operators(name), TYPE_FORWARD[name]
    ours = sum(op.forward for op in ops if not is_kernel(op)) * TOKENS
    kernels = sum(op.forward for op in ops if is_kernel(op)) * TOKENS
    padded = case["by_operator"].get("convolution", 0)
    if not padded and kernels:  # a kernel that the counter does not know
        kernels = 0
    assert ours - (case["flops"] - padded) == -DELAYED.get(name, 0)
    assert kernels <= padded <= kernels * (1 + MOST_PADDING)
    assert [op.name for op in ops if op.estimate] == ["convolution"] * any(map(is_kernel, ops))


WEIGHT_PRODUCTS = ("mm", "addmm", "baddbmm")


@pytest.mark.parametrize("name", [name for name in COUNTED_TYPES if has_state(name)])
def test_the_weights_of_every_type_with_a_state_are_exact(name: str) -> None:
    """The state is an estimate: the chunked kernels of transformers do more work."""
    ops, case = type_operators(name), TYPE_FORWARD[name]["by_operator"]
    batched = ("core attention", "routed experts")
    weights = [op for op in ops if op.name not in batched and not is_kernel(op) and not op.estimate]
    products = sum(case.get(kind, 0) for kind in WEIGHT_PRODUCTS)
    batches = sum(op.forward for op in ops if op.name in batched) * TOKENS
    if name == "recurrent_gemma":  # its gates are in blocks
        assert "baddbmm" in case
    assert sum(op.forward for op in weights) * TOKENS == products
    assert batches <= case.get("bmm", 0)
    assert any(op.estimate and op.name.endswith(" state") for op in ops)


@pytest.mark.parametrize("name", [n for n, case in TYPE_FORWARD.items() if "parameters" in case])
def test_parameters_of_every_type(name: str) -> None:
    assert from_hugging_face(TYPES[name]).params_total == TYPE_FORWARD[name]["parameters"]


LAYER_LISTS = ("layer_types", "layers_block_type", "mlp_layer_types", "per_layer_config")
LAYER_LISTS += ("num_attention_heads_per_layer", "indexer_types")


@pytest.mark.parametrize("key", LAYER_LISTS)
def test_without_a_list_of_layers_no_type_counts_other_layers(key: str) -> None:
    """A default of the type's code is fine; any other count is refused.

    Variants of a default config (names with an ending) would get the default back.
    """
    checked = 0
    for name, config in TYPES.items():
        if key in config and name == config["model_type"]:
            checked += 1
            kept = {other: value for other, value in config.items() if other != key}
            with suppress(ShapeError):
                assert from_hugging_face(kept) == from_hugging_face(config), name
    assert checked


VARIANTS = {"dots1", "hunyuan_v1_dense", "hunyuan_v1_moe", "lfm2_moe", "ministral", "nemotron"}
"""Types whose code can't build the default config; another one is counted."""
DEFAULTS = [name for name, config in TYPES.items() if name == config["model_type"]]


@pytest.mark.parametrize("name", sorted(set(DEFAULTS) - VARIANTS))
def test_without_a_key_no_type_counts_another_shape(name: str) -> None:
    """An absent key has its default or is missed; switches of a norm or a bias apart."""
    config = TYPES[name]
    expected = operators(from_hugging_face(config), 5000)
    for key in config.keys() - {"model_type"}:
        with suppress(ShapeError):
            shape = from_hugging_face({other: v for other, v in config.items() if other != key})
            assert operators(shape, 5000) == expected, key


ODD_VALUES = (None, -1, 0, 1.5, "x", True, [], {}, [1, "x", None], {"0": 1}, 10**30)


@pytest.mark.parametrize("name", DEFAULTS)
def test_an_odd_value_of_a_key_is_refused_by_name_or_fine(name: str) -> None:
    config = TYPES[name]
    for index, key in enumerate(sorted(config.keys() - {"model_type"})):
        value = ODD_VALUES[(index + len(name)) % len(ODD_VALUES)]
        with suppress(ShapeError):
            operators(from_hugging_face({**config, key: value}), 64)


# --- linear attention -----------------------------------------------------------------------

LINEAR_CASES = [(model, seq_len) for model in LINEAR for seq_len in (64, 128, 256)]


def linear_operators(model: str, seq_len: int) -> dict[str, Operator]:
    shape = from_hugging_face(LINEAR_CONFIGS[model])
    return {op.name: op for op in operators(shape, seq_len, attention="full")}


@pytest.mark.parametrize(("model", "seq_len"), LINEAR_CASES)
def test_weights_beside_linear_attention_are_exact(model: str, seq_len: int) -> None:
    """Plain matmuls: all weights but the routed experts', which run as batches."""
    ops, case = linear_operators(model, seq_len), LINEAR[model][str(seq_len)]
    other = ("core attention", "routed experts", "linear attention convolution")
    weights = sum(op.forward for op in ops.values() if op.name not in other and not op.estimate)
    assert weights * seq_len - case["mm"] == 0


@pytest.mark.parametrize(("model", "seq_len"), LINEAR_CASES)
def test_the_convolution_is_exact_but_for_its_padding(model: str, seq_len: int) -> None:
    """transformers also computes the 3 outputs after the end, which it cuts off."""
    per_token = linear_operators(model, seq_len)["linear attention convolution"].forward
    assert per_token * (seq_len + 3) == LINEAR[model][str(seq_len)]["convolution"]


@pytest.mark.parametrize(("model", "seq_len"), LINEAR_CASES)
def test_the_state_is_an_estimate_below_the_chunked_kernel(model: str, seq_len: int) -> None:
    ops, case = linear_operators(model, seq_len), LINEAR[model][str(seq_len)]
    state = ops["linear attention state"]
    batched = ops["core attention"].forward
    batched += ops["routed experts"].forward if "routed experts" in ops else 0
    kernel = case["bmm"] - batched * seq_len
    assert 0 < state.forward * seq_len < kernel
    assert [op.name for op in ops.values() if op.estimate] == ["linear attention state"]


@pytest.mark.parametrize("model", LINEAR)
def test_parameters_with_linear_attention(model: str) -> None:
    shape = from_hugging_face(LINEAR_CONFIGS[model])
    assert shape.params_total == LINEAR[model]["parameters"]


def test_closed_parts_of_qwen3_next() -> None:
    """As a study of the same model published them: weights and softmax layers, convolution."""
    for seq_len, closed in ((64, 249_430_016), (128, 507_248_640), (256, 1_048_051_712)):
        ops = linear_operators("qwen3-next (scaled)", seq_len)
        convolution = ops["linear attention convolution"].forward
        state = ops["linear attention state"].forward
        everything = sum(op.forward for op in ops.values())
        assert (everything - convolution - state) * seq_len == closed
        assert convolution == 786_432 / 64
        assert state == 3 * 6 * 8 * 32 * 32  # Megatron counts 8 for our 6


# --- counted again --------------------------------------------------------------------------

TEXT_MODELS = {
    "qwen2_vl_text": "Qwen2VLTextModel",
    "qwen2_5_vl_text": "Qwen2_5_VLTextModel",
    "qwen3_vl_text": "Qwen3VLTextModel",
    "qwen3_vl_moe_text": "Qwen3VLMoeTextModel",
}
TWO_DIMENSIONAL_MASK = ("bloom", "opt")


def network(config: dict[str, Any], device: str) -> Any:
    """The model without weights; of a multimodal one, its text model, which has no lm_head."""
    torch = pytest.importorskip("torch", reason="counts again where torch is installed")
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    kind = config["model_type"]
    same_code = "deepseek_v3" if kind == "kimi_k2" else kind
    parsed = transformers.AutoConfig.for_model(**{**config, "model_type": same_code})
    sparse = "expert" in str(config) and kind != "llama4_text"
    options = {"attn_implementation": "eager"}
    options |= {"experts_implementation": "batched_mm"} if sparse else {}
    with torch.device(device):
        if kind not in TEXT_MODELS:
            return transformers.AutoModelForCausalLM.from_config(parsed, **options)
        family = kind.removesuffix("_text")
        code = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
        return getattr(code, TEXT_MODELS[kind])._from_config(parsed, **options)


def live(config: dict[str, Any]) -> tuple[int, int]:
    """Forward FLOPs of 2 x 512 tokens, and parameters."""
    net = network(config, "meta")
    import torch  # noqa: PLC0415
    from torch.utils.flop_counter import FlopCounterMode  # noqa: PLC0415

    kind = config["model_type"]
    ids = torch.zeros(2, 512, dtype=torch.long, device="meta")
    plain = kind in TWO_DIMENSIONAL_MASK
    mask: Any = torch.ones(2, 512) if plain else torch.zeros(2, 1, 512, 512)
    mask = mask.to("meta")
    kinds = set(getattr(net.config, "layer_types", None) or ())
    if len(kinds) > 1:
        mask = dict.fromkeys(kinds, mask)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        net(input_ids=ids, attention_mask=mask, use_cache=False)
    flops = counter.get_total_flops()
    parameters = sum(weight.numel() for weight in net.parameters())
    if kind in TEXT_MODELS:
        head = net.config.hidden_size * net.config.vocab_size
        flops += 2 * TOKENS * head
        parameters += 0 if config.get("tie_word_embeddings") else head
    return flops, parameters


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("model", [*CONFIGS, *MORE])
def test_live(model: str) -> None:
    config = CONFIGS.get(model) or MORE[model]
    flops, parameters = live(config)
    assert flops == executed(config, 512) * TOKENS
    assert parameters == from_hugging_face(config).params_total
    if model in MORE:
        assert {"flops": flops, "parameters": parameters} == MORE_FORWARD[model]


def live_linear(config: dict[str, Any], seq_len: int) -> dict[str, int]:
    """Forward FLOPs of 1 x seq_len tokens by kind of product, on the CPU."""
    net = network(config, "cpu")
    import torch  # noqa: PLC0415
    from torch.utils.flop_counter import FlopCounterMode  # noqa: PLC0415

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        net(input_ids=torch.zeros(1, seq_len, dtype=torch.long), use_cache=False)
    counts = {
        str(op).removeprefix("aten."): n for op, n in counter.get_flop_counts()["Global"].items()
    }
    return {kind: counts[kind] for kind in ("mm", "convolution", "bmm")}


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("model", LINEAR_CONFIGS)
def test_live_linear_attention(model: str) -> None:
    config = LINEAR_CONFIGS[model]
    for seq_len in (64, 128, 256):
        assert live_linear(config, seq_len) == LINEAR[model][str(seq_len)]
    parameters = sum(weight.numel() for weight in network(config, "meta").parameters())
    assert parameters == LINEAR[model]["parameters"]
