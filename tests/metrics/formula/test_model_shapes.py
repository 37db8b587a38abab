"""Shapes: exact parameter counts, and never a guess."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import hypothesis
import pytest
from click.testing import CliRunner
from hypothesis import strategies as st

from fairmfu.cli import main
from fairmfu.ingest.core.data_files import read_data_file
from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.metrics.formula.flops import (
    Trainable,
    adapter_params,
    forward_flops_per_token,
    operators,
)
from fairmfu.metrics.formula.model_shapes import (
    Attention,
    Config,
    FeedForward,
    LayerGroup,
    ModelShape,
    ShapeError,
    UnknownModelError,
    buildable_models,
    find_model,
    from_hugging_face,
    from_megatron,
    from_torchtitan,
    hugging_face,
    model_names,
    models,
    vision_model_names,
    with_params_total,
)
from fairmfu.metrics.formula.model_shapes.decoder_types import DECODERS
from fairmfu.metrics.pipeline.analysis import analyse
from tests.metrics.formula.test_flop_counter import written_out
from tests.support.bad_rows import assert_commands_work
from tests.support.each_case import each_case
from tests.support.error_kinds import of_kind
from tests.support.folders import TESTS

COUNTED: Final = TESTS / "golden" / "flop_counter"

# Parameters as transformers 5.23.0 builds the published configs, and as torchtitan prints them in
# its `size:` lines (debug models): norms and biases included, a tied table once.
PARAMETERS = {
    "bloom-176b": 176_247_271_424,
    "bloom-560m": 559_214_592,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_404_352,
    "deepseek-v3-debugmodel": 33_014_016,
    "falcon-7b": 6_921_720_704,
    "gemma-2-27b": 27_227_128_320,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-3-1b": 999_885_952,
    "gemma-3-27b": 27_009_346_304,
    "gpt-neox-20b": 20_554_567_680,
    "gpt-oss-120b": 116_829_156_672,
    "gpt-oss-20b": 20_914_757_184,
    "gpt2": 124_439_808,
    "gpt2-large": 774_030_080,
    "gpt2-medium": 354_823_168,
    "gpt2-xl": 1_557_611_200,
    "internlm2-1.8b": 1_889_110_016,
    "internlm2-20b": 19_861_149_696,
    "internlm2-7b": 7_737_708_544,
    "internlm2.5-7b": 7_737_708_544,
    "internlm3-8b": 8_804_241_408,
    "kimi-k2": 1_026_408_209_408,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-2-7b": 6_738_415_616,
    "llama-3-70b": 70_553_706_496,
    "llama-3-8b": 8_030_261_248,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.3-70b": 70_553_706_496,
    "llama-4-maverick": 400_711_848_960,
    "llama-4-scout": 107_769_861_120,
    "llama-7b": 6_738_415_616,
    "llama-13b": 13_015_864_320,
    "llama3-debugmodel": 6_163_712,
    "mistral-7b": 7_241_732_096,
    "mistral-7b-v0.2": 7_241_732_096,
    "mistral-7b-v0.3": 7_248_023_552,
    "mixtral-8x22b": 140_620_634_112,
    "mixtral-8x22b-instruct-v0.1": 140_630_071_296,
    "mixtral-8x7b": 46_702_792_704,
    "olmo-2-13b": 13_716_198_400,
    "olmo-2-1b": 1_484_916_736,
    "olmo-2-32b": 32_234_279_936,
    "olmo-2-7b": 7_298_617_344,
    "olmo-3-7b": 7_298_011_136,
    "olmoe-1b-7b": 6_919_161_856,
    "opt-1.3b": 1_315_758_080,
    "opt-13b": 12_853_473_280,
    "opt-350m": 331_196_416,
    "opt-6.7b": 6_658_473_984,
    "phi-2": 2_779_683_840,
    "phi-3-mini-128k": 3_821_079_552,
    "phi-3-mini-4k": 3_821_079_552,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "qwen2-0.5b": 494_032_768,
    "qwen2-1.5b": 1_543_714_304,
    "qwen2-72b": 72_706_203_648,
    "qwen2-7b": 7_615_616_512,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-14b": 14_768_307_200,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-32b": 32_762_123_264,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-debugmodel": 31_987_968,
    "qwen3-debugmodel-moe": 315_758_848,
    "qwen3-next-80b-a3b": 79_674_391_296,
    "seed-oss-36b": 36_151_104_512,
    "smollm3-3b": 3_075_098_624,
    "yi-34b": 34_388_917_248,
    "yi-6b": 6_061_035_520,
}

# No exact count is published; the names' own, and GPT-3's 174.6B (PaLM, arXiv:2204.02311).
BILLIONS = {
    "gemma-3-12b": 11.77,  # 12.2 with its vision tower of 0.42
    "gemma-3-4b": 3.88,
    "glm-4.5-air": 106.9,
    "gpt3-175b": 174.6,
    "internlm-7b": 7.32,
}


def config_of(name: str) -> dict[str, Any]:
    """The Hugging Face config of a model that is known by name."""
    return models._config(models._known()[name])


TEXT_MODELS: Final = sorted({*model_names()} - {*vision_model_names()})


def test_every_known_model_has_its_count_here() -> None:
    assert set(TEXT_MODELS) == set(PARAMETERS) | set(BILLIONS)


@each_case("name", TEXT_MODELS)
def test_each_model_builds_and_counts(name: str) -> None:
    shape = find_model(name)
    assert shape.name == name
    if name in PARAMETERS:
        assert shape.params_total == PARAMETERS[name]
    else:
        assert shape.params_total / 1e9 == pytest.approx(BILLIONS[name], rel=2e-3)


ROWS: Final = read_data_file(models.__package__, "models.toml")["model"]
TEXTS: Final = {"name", "source", "model_type"}
KEYS: Final = TEXTS | {"names", "dimensions", "null", "config"}


def row_names(row: dict[str, Any]) -> list[str]:
    return [row["name"], *row.get("names", ())]


NEVER_READ: Final = {"llama-4-scout": {"intermediate_size_mlp"}}
"""Keys of which nothing depends for this model: it has no dense layer."""


@each_case("row", ROWS, ids=lambda row: str(row.get("name")))
def test_each_row_of_the_models_can_be_taken(row: dict[str, Any]) -> None:
    assert row.keys() >= TEXTS
    assert row.keys() <= KEYS
    assert all(isinstance(row[key], str) and row[key].strip() for key in TEXTS)
    named, others = row_names(row), [one for one in ROWS if one is not row]
    assert [models._folded(name) for name in named] == named
    assert len(set(named)) == len(named)
    taken = {name for other in others for name in row_names(other)}
    assert taken & {*named} == set(), "another model has the name too"
    numbers = [*row.get("dimensions", ()), *row.get("config", {}).values()]
    assert all(isinstance(number, int) and 0 <= number < 1e6 for number in numbers)
    config = Config(models._config(row), row["name"])
    hugging_face._HUGGING_FACE[row["model_type"]](config)
    unread = {*row.get("config", ()), *row.get("null", ())} - config.read_keys
    assert unread == NEVER_READ.get(row["name"], set())


@pytest.mark.usefixtures("unbuilt")
def test_a_bad_model_fails_only_what_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = {"name": "bad-1b", "model_type": "llama", "dimensions": [2048, 16]}
    monkeypatch.setattr(models, "_known", dict(models._known() | {"bad-1b": bad}).copy)
    assert_commands_work(tmp_path)
    assert "bad-1b" not in {shape.name for shape in buildable_models()}
    with pytest.raises(ValueError, match="shorter"):
        find_model("bad-1b")
    assert CliRunner().invoke(main, ["models"]).exit_code == 1


# Printed by torchtitan (`Total parameter count: … active N`), and as the papers name them.
@pytest.mark.parametrize(
    ("name", "active", "tolerance"),
    [
        ("deepseek-v3-debugmodel", 28_098_816, 0),
        ("qwen3-debugmodel-moe", 51_517_696, 0),
        ("mixtral-8x7b", 12.9e9, 0.01),
        ("deepseek-v3", 37e9, 0.02),
        ("qwen3-235b-a22b", 22e9, 0.02),
        ("llama-3-8b", 8_030_261_248, 0),
    ],
)
def test_active_parameters(name: str, active: float, tolerance: float) -> None:
    assert find_model(name).params_active == pytest.approx(active, rel=tolerance, abs=0)


def test_tables_and_products_of_llama_3_8b() -> None:
    shape = find_model("llama-3-8b")
    assert shape.params_embedding == 128256 * 4096
    norms = (2 * 32 + 1) * 4096
    assert shape.params_matmul == shape.params_total - shape.params_embedding - norms
    assert shape.layer_count == 32


# --- names ----------------------------------------------------------------------------------


@each_case(
    ("said", "name"),
    [
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
        ("/x/models/Meta-Llama-3-8B-Instruct/", "llama-3-8b"),
        ("llama3 8B", "llama-3-8b"),
        ("llama3 8B_flex", "llama-3-8b"),
        ("Llama-3-8B", "llama-3-8b"),
        ("Llama-2-7B", "llama-2-7b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
        ("llama3 405B", "llama-3.1-405b"),
        ("llama3 1B", "llama-3.2-1b"),
        ("llama3 debugmodel", "llama3-debugmodel"),
        ("meta-llama/Llama-3.2-3B-Instruct", "llama-3.2-3b"),
        ("internlm/internlm2-chat-7b", "internlm2-7b"),
        ("internlm/internlm2-chat-1_8b", "internlm2-1.8b"),
        ("internlm/internlm2-chat-1_8b-sft", "internlm2-1.8b"),
        ("internlm/internlm2_5-7b-chat", "internlm2.5-7b"),
        ("Qwen/Qwen1.5-MoE-A2.7B-Chat", "qwen1.5-moe-a2.7b"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"),
        ("qwen3 30B-A3B", "qwen3-30b-a3b"),
        ("graph_trainer/deepseek_v3 debugmodel", "deepseek-v3-debugmodel"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama-4-scout"),
        ("llama4 17bx16e", "llama-4-scout"),
        ("llama4 17bx16e_irope", "llama-4-scout"),
        ("llama4 17bx128e", "llama-4-maverick"),
        ("deepseek_v3 16B", "deepseek-v2-lite"),
        ("deepseek_v3 671B", "deepseek-v3"),
        ("deepseek-ai/DeepSeek-V2-Lite-Chat", "deepseek-v2-lite"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
        ("microsoft/Phi-3-mini-4k-instruct", "phi-3-mini-4k"),
        ("google/gemma-3-27b-it", "gemma-3-27b"),
        ("allenai/OLMo-2-1124-7B", "olmo-2-7b"),
        ("bigscience/bloom", "bloom-176b"),
        ("facebook/opt-1.3b", "opt-1.3b"),
        ("C:\\models\\Yi-34B-Chat", "yi-34b"),
        ("/h/hub/models--Qwen--Qwen2.5-7B-Instruct/snapshots/a09a35458c", "qwen2.5-7b"),
    ],
)
def test_names(said: str, name: str) -> None:
    assert find_model(said).name == name


@pytest.mark.parametrize(
    "said",
    ["Llama-3", "llama", "8B", "Llama-3-8B-262k", "llama-4-8b", "qwen2.5", "my-llama-3-8b", ""],
)
def test_a_name_is_never_guessed(said: str) -> None:
    with pytest.raises(UnknownModelError, check=of_kind("unknown-model")) as error:
        find_model(said)
    assert error.value.name == said


def test_the_error_names_what_is_near() -> None:
    with pytest.raises(UnknownModelError) as error:
        find_model("Llama-3-9B")
    assert "llama-3-8b" in error.value.nearest
    assert "Nearest known: llama-3" in str(error.value)


@pytest.mark.parametrize(
    ("said", "nearest"),
    [
        ("lama-3-9b", "llama-3-8b"),
        ("internlm2-8b", "internlm2-7b"),
        ("internlm4-8b", None),
        ("gpt5-7b", None),
    ],
)
def test_a_hint_names_no_other_series(said: str, nearest: str | None) -> None:
    with pytest.raises(UnknownModelError) as error:
        find_model(said)
    assert (nearest in error.value.nearest) if nearest else not error.value.nearest


# --- layers ---------------------------------------------------------------------------------


def windows(shape: ModelShape) -> dict[int | None, int]:
    return {group.attention.window: group.count for group in shape.layers}


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize(
    "name", ["Qwen2ForSequenceClassification", "InternLM2ForRewardModel", "Qwen2ForCausalLM"]
)
def test_a_class_without_lm_head_is_refused(name: str, *, wrapped: bool) -> None:
    """A reward model's lm_head would be 30 % of the FLOPs of the smallest Qwen2."""
    config = {"model_type": "llama", **LLAMA_SIZES}
    config = {"model_type": "x", "text_config": config} if wrapped else config
    shape = from_hugging_face(config)
    if name.endswith("CausalLM"):
        assert from_hugging_face(config | {"architectures": [name]}) == shape
    else:
        with pytest.raises(ShapeError, check=of_kind("other-head", name)):
            from_hugging_face(config | {"architectures": [name]})


LLAMA_SIZES: Final = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 1000,
}


def test_windows_are_per_layer() -> None:
    assert windows(find_model("gemma-3-27b")) == {1024: 52, None: 10}
    assert windows(find_model("gemma-2-9b")) == {4096: 21, None: 21}
    assert windows(find_model("gpt-oss-20b")) == {128: 12, None: 12}
    assert windows(find_model("mistral-7b")) == {4096: 32}
    assert windows(find_model("mistral-7b-v0.3")) == {None: 32}
    assert windows(find_model("qwen2.5-7b")) == {None: 28}


def test_chunks_are_per_layer() -> None:
    chunks: Counter[int | None] = Counter()
    for group in find_model("llama-4-maverick").layers:
        chunks[group.attention.chunk] += group.count
    assert chunks == {8192: 36, None: 12}


def test_linear_attention_is_per_layer() -> None:
    shape = find_model("qwen3-next-80b-a3b")
    kinds = {type(group.attention).__name__: group.count for group in shape.layers}
    assert kinds == {"LinearAttention": 36, "Attention": 12}
    assert shape.has_linear_attention
    assert not find_model("qwen3-30b-a3b").has_linear_attention
    assert shape.params_active == pytest.approx(3e9, rel=0.3)


def sparse_layers(shape: ModelShape) -> dict[bool, int]:
    return {group.moe is not None: group.count for group in shape.layers}


def test_experts_are_per_layer() -> None:
    assert sparse_layers(find_model("deepseek-v3")) == {False: 3, True: 58}
    assert sparse_layers(find_model("glm-4.5-air")) == {False: 1, True: 45}
    assert sparse_layers(find_model("mixtral-8x7b")) == {True: 32}


def test_a_layer_needs_a_mixer_or_a_feed_forward_block() -> None:
    with pytest.raises(ShapeError, check=of_kind("empty-layer")):
        LayerGroup(count=1)


# --- refusals -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"model_type": "bert"}, "bert is an encoder, and"),
        ({"model_type": "xlm-roberta"}, "is an encoder, and"),
        ({"model_type": "t5"}, "is an encoder-decoder"),
        ({"model_type": "new", "is_encoder_decoder": True}, "new is an encoder-decoder"),
        ({"model_type": "vit"}, "is a vision model"),
        ({"model_type": "new", "architectures": ["NewForMaskedLM"]}, "is an encoder"),
        ({"model_type": "wav2vec2"}, "is an audio model"),
        ({"model_type": "blt"}, "blt groups bytes into patches"),
    ],
)
def test_a_model_that_is_no_decoder_is_said_to_be_what_it_is(
    config: dict[str, object], kind: str
) -> None:
    with pytest.raises(ShapeError, check=of_kind("no-decoder", kind)):
        from_hugging_face(config)


def test_a_vision_classifier_has_another_head() -> None:
    config = {"model_type": "new", "architectures": ["NewForImageClassification"]}
    with pytest.raises(ShapeError, check=of_kind("other-head", "NewForImageClassification")):
        from_hugging_face(config)


def test_an_unknown_type_is_never_sent_to_another_reader() -> None:
    with pytest.raises(ShapeError, check=of_kind("unknown-model-type", "arcee")) as refusal:
        from_hugging_face({"model_type": "arcees", **LLAMA_SIZES})
    assert "llama" not in str(refusal.value)


@pytest.mark.parametrize(
    ("change", "kind", "part"),
    [
        ({"architectures": ["ArceeForCausalLM"]}, "class-contradicts-type", "ArceeForCausalLM"),
        ({"architectures": ["MixtralForCausalLM"]}, "class-contradicts-type", "MixtralForCausalLM"),
        ({"hidden_act": "relu2"}, "activation-contradicts-type", "'hidden_act' = relu2"),
        ({"hidden_act": "xielu"}, "activation-contradicts-type", "gated"),
        ({"n_recurrent_loops": 2}, "shape-key-unread", "'n_recurrent_loops' = 2"),
        ({"hc_mult": 4}, "shape-key-unread", "'hc_mult' = 4"),
        ({"per_layer_config": {"1": {"head_dim": 8}}}, "shape-key-unread", "'per_layer_config'"),
    ],
)
def test_a_config_that_contradicts_its_reader_is_refused_by_name(
    change: dict[str, object], kind: str, part: str
) -> None:
    llama = {"model_type": "llama", **LLAMA_SIZES, "architectures": ["LlamaForCausalLM"]}
    assert from_hugging_face({**llama, "hidden_act": "silu"}).layer_count
    with pytest.raises(ShapeError, check=of_kind(kind, part)):
        from_hugging_face({**llama, **change})


def test_a_plain_reader_refuses_a_gated_activation() -> None:
    arcee = {"model_type": "arcee", **LLAMA_SIZES}
    assert from_hugging_face({**arcee, "hidden_act": "relu2"}).layer_count
    with pytest.raises(ShapeError, check=of_kind("activation-contradicts-type", "plain")):
        from_hugging_face({**arcee, "hidden_act": "swiglu"})


@pytest.mark.parametrize(
    ("model_type", "change", "kind", "part"),
    [
        ("longcat_flash", {"zero_expert_num": 7}, "uneven-routing", "over 7 empty experts"),
        (
            "zaya",
            {"first_k_dense_replace": 1, "intermediate_size": 8},
            *("layer-part-missing", "experts"),
        ),
        ("mpt", {"attn_config": {"attn_type": "other"}}, "uncovered-variant", "= other"),
        ("mpt", {"attn_config": {"qk_ln": True}}, "uncovered-variant", "'qk_ln' = true"),
        ("mpt", {"no_bias": False}, "uncovered-variant", "'no_bias' = false"),
        ("deepseek_v4", {"compress_rates": {}}, "shape-key-missing", "'compress_rates'"),
        ("gemma4_text", {"per_layer_config": 3}, "shape-key-malformed", "is 3, not"),
        ("gemma4_text", {"per_layer_config": {"0": 3}}, "shape-key-malformed", "config.0' is 3"),
        (
            "gemma4_text",
            {"use_bidirectional_attention": "all"},
            *("uncovered-variant", "'use_bidirectional_attention' = all"),
        ),
    ],
)
def test_a_variant_that_its_type_lacks_is_refused_by_name(
    model_type: str, change: dict[str, object], kind: str, part: str
) -> None:
    config = written_out(json.loads((COUNTED / "type_configs.json").read_text())[model_type])
    with pytest.raises(ShapeError, check=of_kind(kind, part)):
        from_hugging_face({**config, **change})


def test_a_class_of_another_type_with_equal_layers_is_fine() -> None:
    llama = {"model_type": "llama", **LLAMA_SIZES}
    assert from_hugging_face({**llama, "architectures": ["IQuestCoderForCausalLM"]}).layer_count
    assert from_hugging_face({**llama, "architectures": ["UnheardOfForCausalLM"]}).layer_count


def test_a_jamba_of_two_experts_has_a_router_and_both() -> None:
    config = written_out(json.loads((COUNTED / "type_configs.json").read_text())["jamba"])
    params = [
        from_hugging_face({**config, "num_experts": count}).params_total for count in (1, 2, 3)
    ]
    assert params[0] < params[1] < params[2]


@pytest.mark.parametrize("key", ["intermediate_size", "block_ff_dim"])
def test_a_size_that_is_none_is_named_by_its_own_key(key: str) -> None:
    config = Config({key: 0}, "config.json")
    with pytest.raises(ShapeError, check=of_kind("shape-key-too-small", f"'{key}' must be 1")):
        config.number("intermediate_size", "block_ff_dim")


def test_a_wrong_number_of_parameters_for_arcee_is_no_more_taken() -> None:
    """With the type llama it counted 5.5 billion parameters of 4.0."""
    config = {"hidden_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 32}
    config |= {"intermediate_size": 18432, "vocab_size": 32000, "hidden_act": "relu2"}
    shape = from_hugging_face({"model_type": "arcee", **config})
    assert shape.params_total == 4_022_766_080
    with pytest.raises(ShapeError, check=of_kind("activation-contradicts-type", "relu2")):
        from_hugging_face({"model_type": "llama", **config})


# --- keys of published configs ---------------------------------------------------------------

MAMBA_2: Final = {"mamba_d_conv": 4, "mamba_d_head": 64, "mamba_expand": 2, "mamba_n_groups": 1}
HEADS: Final = {"num_attention_heads": 32, "num_key_value_heads": 8}
PUBLISHED: Final[dict[str, tuple[dict[str, object], float]]] = {
    "Nemotron-H-8B": (
        {
            "model_type": "nemotron_h",
            "hidden_size": 4096,
            "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
            "mamba_num_heads": 128,
            "mamba_head_dim": 64,
            "n_groups": 8,
            "ssm_state_size": 128,
            "conv_kernel": 4,
            **HEADS,
            "attention_head_dim": 128,
            "intermediate_size": 21504,
            "mlp_hidden_act": "relu2",
            "vocab_size": 131072,
            "architectures": ["NemotronHForCausalLM"],
        },
        8.1,
    ),
    "Bamba-9B": (
        {
            "model_type": "bamba",
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "attn_layer_indices": [9, 18, 27],
            **HEADS,
            **MAMBA_2,
            "mamba_n_heads": 128,
            "mamba_d_state": 128,
            "intermediate_size": 14336,
            "vocab_size": 128256,
        },
        9.78,
    ),
    "Granite-4.0-H-Small": (
        {
            "model_type": "granitemoehybrid",
            "hidden_size": 4096,
            "num_hidden_layers": 40,
            "layer_types": (["mamba"] * 5 + ["attention"] + ["mamba"] * 4) * 4,
            **HEADS,
            **MAMBA_2,
            "mamba_n_heads": 128,
            "mamba_d_state": 128,
            "intermediate_size": 768,
            "shared_intermediate_size": 1536,
            "num_local_experts": 72,
            "num_experts_per_tok": 10,
            "vocab_size": 100352,
            "tie_word_embeddings": True,
        },
        32.2,
    ),
    "LFM2-1.2B": (
        {
            "model_type": "lfm2",
            "hidden_size": 2048,
            "num_hidden_layers": 16,
            "full_attn_idxs": [2, 5, 8, 10, 12, 14],
            **HEADS,
            "block_ff_dim": 12288,
            "block_multiple_of": 256,
            "block_ffn_dim_multiplier": 1.0,
            "conv_L_cache": 3,
            "vocab_size": 65536,
            "tie_embedding": True,
        },
        1.17,
    ),
    "MiniMax-M2": (
        {
            "model_type": "minimax_m2",
            "hidden_size": 3072,
            "num_hidden_layers": 62,
            "num_attention_heads": 48,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "intermediate_size": 1536,
            "num_local_experts": 256,
            "num_experts_per_tok": 8,
            "attn_type_list": [1] * 62,
            "shared_intermediate_size": 0,
            "vocab_size": 200064,
        },
        228.7,
    ),
}
"""Configs with the keys that transformers 5 renames, and billions of parameters as published."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_keys_of_published_configs_are_read(name: str) -> None:
    config, billions = PUBLISHED[name]
    assert from_hugging_face(config).params_total == pytest.approx(billions * 1e9, rel=0.005)


# --- records of decoders --------------------------------------------------------------------


@pytest.mark.parametrize("model_type", sorted(DECODERS))
def test_every_key_of_a_record_is_a_name(model_type: str) -> None:
    decoder = DECODERS[model_type]
    keys = [*decoder.names, *decoder.names.values(), *decoder.per_layer, *decoder.window_keys]
    assert all(re.fullmatch(r"\w+", key) for key in keys)
    renamed_twice = set(decoder.names) & set(decoder.names.values())
    assert not renamed_twice or model_type == "minimax_m3_vl_text"  # both its blocks have a width


@hypothesis.given(layers=st.integers(1, 12), loops=st.integers(1, 4))
def test_a_loop_multiplies_work_and_no_parameters(layers: int, loops: int) -> None:
    sizes = {**LLAMA_SIZES, "num_hidden_layers": layers + 2, "sliding_window": 4}
    dory = {"model_type": "dory", **sizes, "n_input_layers": 1, "n_output_layers": 1}
    dory["layer_types"] = ["full_attention"] * (layers + 2)
    once, looped = (from_hugging_face({**dory, "n_recurrent_loops": times}) for times in (1, loops))
    assert looped.params_total == once.params_total
    more = forward_flops_per_token(operators(looped, 8)) - forward_flops_per_token(
        operators(once, 8)
    )
    lora = Trainable(kind="lora", lora_rank=4, lora_targets=("all-linear",))
    adapters = [operators(shape, 8, trainable=lora)[-1].forward for shape in (once, looped)]
    assert adapters[1] * (layers + 2) == adapters[0] * (layers * loops + 2)
    assert adapter_params(looped, lora) == adapter_params(once, lora)
    one = from_hugging_face({**dory, "n_recurrent_loops": 2})
    each = forward_flops_per_token(operators(one, 8)) - forward_flops_per_token(operators(once, 8))
    assert more == (loops - 1) * each


# --- Hugging Face ---------------------------------------------------------------------------

QWEN3_MOE: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "hidden_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "intermediate_size": 96,
    "vocab_size": 100,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "decoder_sparse_step": 2,
    "mlp_only_layers": [5],
    "tie_word_embeddings": False,
}


def test_every_second_layer_with_experts_but_one() -> None:
    assert sparse_layers(from_hugging_face(QWEN3_MOE)) == {False: 4, True: 2}


def test_windows_of_qwen_need_to_be_switched_on() -> None:
    dense = {key: value for key, value in QWEN3_MOE.items() if key in LLAMA_SIZES}
    config = {**dense, "model_type": "qwen3", "sliding_window": 16, "max_window_layers": 4}
    assert windows(from_hugging_face(config)) == {None: 6}
    assert windows(from_hugging_face({**config, "use_sliding_window": True})) == {None: 4, 16: 2}


@pytest.mark.parametrize(
    ("keys", "window"),
    [
        ({}, None),
        ({"use_sliding_window": False, "sliding_window": 16}, None),
        ({"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 4}, 16),
        ({"use_sliding_window": True}, 4096),
        ({"use_sliding_window": True, "sliding_window": None}, None),
    ],
)
def test_qwen3_with_experts_has_its_window_in_every_layer(
    keys: dict[str, Any], window: int | None
) -> None:
    """Its code in transformers has one mask for all layers, and no `max_window_layers`."""
    config = {"model_type": "qwen3_moe", "hidden_size": 64, "num_hidden_layers": 6}
    config |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    config |= {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    config |= {"intermediate_size": 96, "vocab_size": 100}
    assert windows(from_hugging_face(config | keys)) == {window: 6}


def test_layer_types_stand_above_the_pattern() -> None:
    config = {
        **config_of("gemma-2-2b"),
        "num_hidden_layers": 3,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
    }
    assert windows(from_hugging_face(config)) == {None: 2, 4096: 1}
    config["layer_types"] = ["linear_attention"] * 3
    with pytest.raises(ShapeError, check=of_kind("unknown-layer-kind", "linear_attention")):
        from_hugging_face(config)


NEXT: dict[str, Any] = {
    **QWEN3_MOE,
    "model_type": "qwen3_next",
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "shared_expert_intermediate_size": 48,
}


def test_every_fourth_layer_of_qwen3_next_or_as_it_says() -> None:
    def kinds(**change: Any) -> list[str]:
        shape = from_hugging_face({**NEXT, **change})
        return [f"{type(g.attention).__name__} {g.count}" for g in shape.layers]

    assert kinds() == ["LinearAttention 5", "Attention 1"]
    assert kinds(full_attention_interval=2) == ["LinearAttention 3", "Attention 3"]
    types = ["full_attention"] * 4 + ["linear_attention"] * 2
    assert kinds(layer_types=types) == ["Attention 4", "LinearAttention 2"]
    with pytest.raises(ShapeError, check=of_kind("unknown-layer-kind", "sliding_attention")):
        kinds(layer_types=["sliding_attention"] * 6)


KIMI: dict[str, Any] = {
    "model_type": "kimi_linear",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "vocab_size": 100,
    "q_lora_rank": None,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "num_experts": 8,
    "num_experts_per_token": 2,
    "num_shared_experts": 1,
    "moe_intermediate_size": 32,
    "first_k_dense_replace": 1,
    "linear_attn_config": {
        "full_attn_layers": [4],
        "kda_layers": [1, 2, 3],
        "head_dim": 16,
        "num_heads": 4,
        "short_conv_kernel_size": 4,
    },
}


def test_layers_of_kimi_linear_are_counted_from_one() -> None:
    shape = from_hugging_face(KIMI)
    assert [(g.count, g.moe is not None) for g in shape.layers] == [
        (1, False),
        (2, True),
        (1, True),
    ]
    latent = shape.layers[-1].attention
    assert isinstance(latent, Attention)
    assert latent.kv_lora_rank == 16
    with pytest.raises(ShapeError, check=of_kind("shape-key-missing", "linear_attn_config")):
        from_hugging_face({**KIMI, "linear_attn_config": None})


def test_layers_of_kimi_linear_as_transformers_saves_them() -> None:
    saved = {
        "layer_types": ["linear_attention"] * 3 + ["full_attention"],
        "mlp_layer_types": ["dense"] + ["sparse"] * 3,
    }
    assert from_hugging_face(KIMI | saved) == from_hugging_face(KIMI)
    saved["layer_types"] = ["full_attention"] * 4
    saved["mlp_layer_types"] = ["dense", "dense", "sparse", "sparse"]
    (dense, sparse) = from_hugging_face(KIMI | saved).layers
    assert (dense.count, dense.moe) == (2, None)
    assert isinstance(sparse.attention, Attention)
    with pytest.raises(ShapeError, check=of_kind("unknown-layer-kind", ": moe.")):
        from_hugging_face(KIMI | {"mlp_layer_types": ["moe"] * 4})


def test_what_kimi_k3_has_beyond_kimi_linear_is_refused() -> None:
    """Its experts are as wide as half of the model, and its attention has gates of its own."""
    for key, value in (
        ("routed_expert_hidden_size", 32),
        ("mla_use_output_gate", True),
        ("attn_res_block_size", 12),
        ("linear_attn_config", KIMI["linear_attn_config"] | {"use_full_rank_gate": True}),
    ):
        with pytest.raises(ShapeError, match=r"routed_|mla_use_|attn_res|use_full_rank_gate"):
            from_hugging_face(KIMI | {key: value})


def test_llama4_with_experts_in_every_second_layer() -> None:
    shape = find_model("llama-4-maverick")
    assert sparse_layers_counted(shape) == {False: 24, True: 24}


def test_llama4_says_which_layers() -> None:
    config = {
        **config_of("llama-4-maverick"),
        "num_hidden_layers": 4,
        "moe_layers": [1],
        "no_rope_layers": [1, 0, 0, 0],
    }
    shape = from_hugging_face(config)
    assert sparse_layers_counted(shape) == {False: 3, True: 1}
    assert [g.attention.chunk for g in shape.layers] == [8192, None, None]
    with pytest.raises(ShapeError, check=of_kind("layer-count-differs", "'no_rope_layers'")):
        from_hugging_face({**config, "num_hidden_layers": 5})


def sparse_layers_counted(shape: ModelShape) -> Counter[bool]:
    counts: Counter[bool] = Counter()
    for group in shape.layers:
        counts[group.moe is not None] += group.count
    return counts


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": "phi", "qk_layernorm": True},
        {"model_type": "stablelm", "qk_layernorm": True},
        {"model_type": "smollm3", "use_sliding_window": True},
    ],
)
def test_a_variant_that_the_shape_has_no_place_for(change: dict[str, object]) -> None:
    with pytest.raises(ShapeError, check=of_kind("uncovered-variant", repr([*change][-1]))):
        from_hugging_face({**QWEN3_MOE, **change})


@pytest.mark.parametrize(
    ("key", "other", "without"),
    [
        ("num_local_experts", 8, None),  # a Llama of experts
        ("kv_lora_rank", 512, None),
        ("sliding_window", 4096, None),
        ("layer_types", ["full_attention", "sliding_attention"], ["full_attention"] * 2),
        ("block_configs", [{"attention": {"no_op": True}}], []),  # Nemotron's heterogeneous layers
        ("num_kv_shared_layers", 1, 0),
        ("index_topk", 2048, None),  # DeepSeek-V3.2's sparse attention
        ("use_bidirectional_attention", True, False),  # EmbeddingGemma
        ("is_causal", False, True),  # transformers 5 lets it attend both ways
        ("is_causal", False, None),
        ("draft_vocab_size", 32_000, None),  # a draft of EAGLE-3
        ("moe_layer_freq", 2, 1),
        ("hybrid_override_pattern", "M-M*-", ""),
    ],
)
def test_a_key_that_changes_flops_and_is_not_read_is_refused(
    key: str, other: object, without: object
) -> None:
    config = {"model_type": "llama", **LLAMA_SIZES}
    assert from_hugging_face(config | {key: without}) == from_hugging_face(config)
    for given in (config | {key: other}, {"text_config": config | {key: other}}):
        with pytest.raises(ShapeError, check=of_kind("shape-key-unread", f"config: {key!r}")):
            from_hugging_face(given)


def test_a_window_that_is_switched_off_is_none() -> None:
    config = {"model_type": "llama", **LLAMA_SIZES}
    off = {"sliding_window": 4096, "use_sliding_window": False}
    assert from_hugging_face(config | off) == from_hugging_face(config)


@pytest.mark.parametrize(
    ("model", "read", "other"),
    [
        ("deepseek-v3", "n_routed_experts", "num_local_experts"),
        ("glm-4.5-air", "n_routed_experts", "num_experts"),
        ("gpt-oss-20b", "num_local_experts", "num_experts"),
        ("deepseek-v3", "n_shared_experts", "num_shared_experts"),
    ],
)
def test_a_count_may_be_said_by_another_name_too(model: str, read: str, other: str) -> None:
    """transformers keeps both where a configuration has been given both."""
    config = json.loads((COUNTED / "configs.json").read_text())[model]
    assert from_hugging_face(config | {other: config[read]}) == from_hugging_face(config)
    with pytest.raises(ShapeError, check=of_kind("shape-key-unread", repr(other))):
        from_hugging_face(config | {other: config[read] + 1})


def test_what_a_model_type_reads_is_not_refused() -> None:
    for file in ("configs", "more_configs", "linear_configs"):
        for config in json.loads((COUNTED / f"{file}.json").read_text()).values():
            assert from_hugging_face(config).params_total > 0


def test_deepseek_says_how_many_experts_every_token_passes() -> None:
    """An omission is 1 or 2 to transformers and none to DeepSeek's own code."""
    config = config_of("deepseek-v2-lite")
    del config["n_shared_experts"]
    with pytest.raises(ShapeError, check=of_kind("shape-key-omitted", "'n_shared_experts'")):
        from_hugging_face(config)
    moe = from_hugging_face(config | {"n_shared_experts": None}).layers[-1].moe
    assert moe is not None
    assert moe.shared is None


def test_heads_of_qwen3_with_experts_share_the_hidden_size_unless_it_says_their_width() -> None:
    config = {key: value for key, value in QWEN3_MOE.items() if key != "head_dim"}
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    assert {g.attention.qk_head_dim for g in from_hugging_face(config).layers} == {hidden // heads}


@pytest.mark.parametrize(
    ("key", "part"),
    [
        ("audio_config", {"d_model": 1280}),
        ("encoder_config", {"model_type": "granite_speech_encoder"}),
        ("acoustic_tokenizer_encoder_config", {"model_type": "vibevoice_acoustic_tokenizer"}),
    ],
)
def test_a_part_beside_text_and_vision_is_refused(key: str, part: dict[str, object]) -> None:
    config = {"model_type": "x", "text_config": {"model_type": "llama", **LLAMA_SIZES}}
    with pytest.raises(ShapeError, check=of_kind("other-part", f"x has a part {key!r}")):
        from_hugging_face(config | {key: part})
    assert from_hugging_face(config | {"quantization_config": {"bits": 4}, key: None}).layers


def test_the_text_model_of_a_multimodal_config() -> None:
    text = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    }
    config = {"model_type": "gemma3", "_name_or_path": "google/gemma-3-4b-it", "text_config": text}
    shape = from_hugging_face(config)
    assert shape.name == "google/gemma-3-4b-it"
    assert shape.layers == find_model("gemma-3-4b").layers
    assert shape.vocab_size == 262208  # as gemma3_text has it where the config is silent


@pytest.mark.parametrize(
    ("change", "kind", "part"),
    [
        ({"model_type": "mixtrall"}, "unknown-model-type", "Nearest known: mixtral"),
        ({"model_type": None}, "unknown-model-type", "None"),
        ({"hidden_size": None}, "shape-key-missing", "The qwen3_moe config: 'hidden_size'"),
        ({"num_key_value_heads": None}, "shape-key-missing", "'num_key_value_heads'"),
        ({"num_experts": None}, "shape-key-missing", "'num_experts' or 'num_local_experts'"),
        ({"vocab_size": "100"}, "shape-key-malformed", "'vocab_size' is '100'"),
        ({"vocab_size": True}, "shape-key-malformed", "'vocab_size' is True"),
        ({"vocab_size": 0}, "shape-key-too-small", "'vocab_size'"),
        ({"tie_word_embeddings": "no"}, "shape-key-malformed", "is 'no'"),
        ({"mlp_only_layers": 3}, "shape-key-malformed", "'mlp_only_layers' is 3"),
    ],
)
def test_a_config_that_gives_no_shape(change: dict[str, object], kind: str, part: str) -> None:
    config = {key: value for key, value in {**QWEN3_MOE, **change}.items() if value is not None}
    with pytest.raises(ShapeError, check=of_kind(kind, part)):
        from_hugging_face(config)


def test_an_absent_query_rank_is_not_a_null_one() -> None:
    config = config_of("deepseek-v2-lite")
    del config["q_lora_rank"]
    with pytest.raises(ShapeError, check=of_kind("shape-key-omitted", "'q_lora_rank'")):
        from_hugging_face(config)


# --- Megatron-DeepSpeed ---------------------------------------------------------------------

GPT = {
    "num_layers": "24",
    "hidden_size": "1024",
    "ffn_hidden_size": "4096",
    "num_attention_heads": "16",
    "num_key_value_heads": "16",
    "kv_channels": "64",
    "max_position_embeddings": "1024",
    "add_position_embedding": "True",
    "add_bias_linear": "True",
    "normalization": "layernorm",
    "swiglu": "False",
    "num_experts": "[1]",
    "topk": "1",
    "expert_interval": "2",
    "untie_embeddings_and_output_weights": "False",
    "vocab_size": "None",
}
QWEN_7B = {
    "num_layers": "28",
    "hidden_size": "3584",
    "ffn_hidden_size": "18944",
    "num_attention_heads": "28",
    "num_key_value_heads": "4",
    "kv_channels": "128",
    "max_position_embeddings": "2048",
    "add_position_embedding": "False",
    "use_rotary_position_embeddings": "True",
    "add_bias_linear": "False",
    "normalization": "rmsnorm",
    "swiglu": "True",
    "num_experts": "[1]",
    "topk": "1",
    "expert_interval": "2",
    "untie_embeddings_and_output_weights": "True",
    "vocab_size": "None",
}


def test_a_gpt_of_megatron_is_gpt2() -> None:
    shape = from_megatron(GPT, vocab_size=50257)
    assert shape.params_total == find_model("gpt2-medium").params_total
    assert shape.layers == find_model("gpt2-medium").layers


def test_a_qwen_of_megatron_lacks_the_biases_only() -> None:
    qwen = find_model("qwen2.5-7b")
    shape = from_megatron(QWEN_7B, vocab_size=152064)
    biases = 28 * (28 + 4 + 4) * 128
    assert shape.params_total == qwen.params_total - biases
    assert shape.params_matmul == qwen.params_matmul


def test_query_groups_of_megatron_lm_are_key_value_heads() -> None:
    deepspeeds = {"num_key_value_heads", "topk", "expert_interval"}
    said = {key: value for key, value in QWEN_7B.items() if key not in deepspeeds}
    grouped = said | {"group_query_attention": "True", "num_query_groups": "4"}
    expected = from_megatron(QWEN_7B, vocab_size=152064)
    assert from_megatron(grouped, vocab_size=152064).layers == expected.layers
    ungrouped = said | {"group_query_attention": "False", "num_query_groups": "1"}  # its default
    single = from_megatron(ungrouped, vocab_size=152064)
    assert single.layers[0].attention.kv_heads == single.layers[0].attention.heads


def test_megatron_lm_trains_as_many_modules_ahead_as_its_header_says() -> None:
    alone = from_megatron(QWEN_7B | {"mtp_num_layers": "None"}, vocab_size=152064)
    ahead = from_megatron(QWEN_7B | {"mtp_num_layers": "2"}, vocab_size=152064)
    assert alone == from_megatron(QWEN_7B, vocab_size=152064)
    assert ahead == replace(alone, mtp_modules=2)


@pytest.mark.parametrize(
    ("key", "usual", "other"),
    [
        ("multi_latent_attention", "False", "True"),
        ("window_size", "None", "(1023, 0)"),
        ("tokenizer_type", "GPT2BPETokenizer", "BertWordPieceLowerCase"),
        ("kd", "False", "True"),
        ("retro_add_retriever", "False", "True"),
        ("num_experts_switch", "None", "8"),
        ("spec", "None", "['megatron.core.models.mamba.mamba_layer_specs', 'mamba_stack_spec']"),
        ("hybrid_override_pattern", "None", "M-M-M*-"),
        ("hybrid_attention_ratio", "0.0", "0.08"),
        ("experimental_attention_variant", "None", "dsa"),
        ("attention_output_gate", "False", "True"),
        ("heterogeneous_layers_config_path", "None", "config.json"),
    ],
)
def test_a_header_of_another_kind_of_model_gives_none(key: str, usual: str, other: str) -> None:
    assert from_megatron(GPT | {key: usual}, 50257) == from_megatron(GPT, 50257)
    with pytest.raises(ShapeError, check=of_kind("uncovered-argument", f"{key} ")):
        from_megatron(GPT | {key: other}, 50257)


def test_an_old_header_means_what_its_version_did() -> None:
    """2021: no ffn_hidden_size, no key/value heads, no normalization, always tied."""
    keys = ("num_layers", "hidden_size", "num_attention_heads", "max_position_embeddings")
    old = {key: GPT[key] for key in keys}
    assert from_megatron(old, vocab_size=50257) == from_megatron(GPT, vocab_size=50257)


def test_gated_blocks_of_bigscience() -> None:
    shape = from_megatron({**GPT, "glu_activation": "geglu"}, vocab_size=50257)
    assert shape.layers[0].ffn == FeedForward(width=4096, gated=True, bias=True, fused=True)


@pytest.mark.parametrize("experts", ["[8]", "8", "[ 8 ]"])
def test_experts_of_megatron(experts: str) -> None:
    shape = from_megatron({**GPT, "num_experts": experts, "topk": "2"}, vocab_size=50257)
    assert sparse_layers(shape) == {False: 12, True: 12}
    moe = shape.layers[1].moe
    assert moe is not None
    assert (moe.experts, moe.experts_per_token) == (8, 2)


def test_a_pyramid_of_experts() -> None:
    pyramid = {**GPT, "num_experts": "[4, 4, 8, 16]", "expert_interval": "6"}
    shape = from_megatron(pyramid, vocab_size=50257)
    counts = {group.moe.experts: group.count for group in shape.layers if group.moe}
    assert counts == {4: 2, 8: 1, 16: 1}


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        ("PositionEmbeddingType.absolute", 1024),
        ("PositionEmbeddingType.alibi", 0),
        ("PositionEmbeddingType.rotary", 0),
        ("rope", 0),
    ],
)
def test_positions_of_megatron(kind: str, rows: int) -> None:
    shape = from_megatron({**GPT, "position_embedding_type": kind}, vocab_size=50257)
    assert shape.positions == rows


@pytest.mark.parametrize(
    ("change", "kind", "part"),
    [
        ({"hidden_size": "None"}, "shape-key-missing", "'hidden_size'"),
        ({"hidden_size": "0"}, "shape-key-too-small", "'hidden_size'"),
        ({"hidden_size": "1024_ = _build_tokenizer(args)"}, "shape-key-malformed", "(args)'"),
        ({"swiglu": "maybe"}, "shape-key-malformed", "'maybe'"),
        ({"num_experts": "[a]"}, "shape-key-malformed", "'[a]'"),
        ({"num_experts": "[4, 8]"}, "experts-do-not-fit", "24 layers"),
        ({"num_experts": "8", "mlp_type": "residual"}, "uncovered-argument", "'residual'"),
        ({"num_experts": "8", "topk": "None"}, "shape-key-missing", "'topk'"),
    ],
)
def test_a_header_that_gives_no_shape(change: dict[str, str], kind: str, part: str) -> None:
    with pytest.raises(ShapeError, check=of_kind(kind, part)):
        from_megatron({**GPT, **change}, vocab_size=50257)


def test_the_padded_vocabulary_is_not_taken_for_the_models() -> None:
    with pytest.raises(ShapeError, check=of_kind("vocabulary-padded")):
        from_megatron({**GPT, "padded_vocab_size": "50432"})
    assert from_megatron({**GPT, "vocab_size": "50257"}).vocab_size == 50257


# --- torchtitan -----------------------------------------------------------------------------

LLAMA_8B = {
    "dim": "4096",
    "n_layers": "32",
    "n_heads": "32",
    "n_kv_heads": "8",
    "vocab_size": "128256",
    "multiple_of": "1024",
    "ffn_dim_multiplier": "1.3",
    "norm_eps": "1e-05",
}
DEEPSEEK_16B = {
    "vocab_size": "102400",
    "dim": "2048",
    "inter_dim": "10944",
    "moe_inter_dim": "1408",
    "n_layers": "27",
    "n_dense_layers": "1",
    "n_heads": "16",
    "moe_args": "MoEArgs(num_experts=64, num_shared_experts=2, score_func='softmax', top_k=6)",
    "q_lora_rank": "0",
    "kv_lora_rank": "512",
    "qk_nope_head_dim": "128",
    "qk_rope_head_dim": "64",
    "v_head_dim": "128",
}


def test_printed_arguments_of_llama() -> None:
    shape = from_torchtitan("llama3 8B", LLAMA_8B)
    assert shape.params_total == 8_030_261_248
    assert shape.layers == find_model("llama-3-8b").layers


@pytest.mark.parametrize(
    ("change", "size"),
    [
        ({"dim": "8192", "n_layers": "80", "n_heads": "64", "multiple_of": "4096"}, 70_553_706_496),
        (
            {
                "dim": "16384",
                "n_layers": "126",
                "n_heads": "128",
                "multiple_of": "4096",
                "ffn_dim_multiplier": "1.2",
            },
            405_853_388_800,
        ),
        # sizes that torchtitan printed: its debug model of 2024-03, and six layers of a Llama 2
        (
            {
                "dim": "256",
                "n_layers": "2",
                "n_heads": "16",
                "n_kv_heads": "None",
                "vocab_size": "32000",
                "multiple_of": "256",
                "ffn_dim_multiplier": "None",
                "norm_type": "'rmsnorm'",
            },
            18_089_216,
        ),
        (
            {
                "n_layers": "6",
                "n_kv_heads": "null",
                "vocab_size": "32000",
                "multiple_of": "256",
                "ffn_dim_multiplier": "null",
            },
            1_476_448_256,
        ),
    ],
)
def test_sizes_of_llama(change: dict[str, str], size: int) -> None:
    assert from_torchtitan("llama3", {**LLAMA_8B, **change}).params_total == size


def test_printed_arguments_of_deepseek() -> None:
    shape = from_torchtitan("deepseek_v3 16B", DEEPSEEK_16B)
    assert shape.params_total == 15_706_484_224
    assert shape.layers == find_model("deepseek_v3 16B").layers


def test_printed_arguments_of_experts_as_json() -> None:
    """Torchtitan 0.2.1 and 0.2.2 print them within the others', and by them its own figures."""
    log = TESTS / "variants" / "torchtitan" / "model_json_experts.txt"
    row = analyse(read_log_tables(log)).metrics.row(0, named=True)
    norms = 212_633_088 - row["flops_per_token_full_attention"]
    assert norms == 6 * 6 * (2 * 256 + 512) + 6 * 256
    assert row["logged_reproduced"] is True


def test_printed_arguments_of_gpt_oss() -> None:
    """Sizes that Torchtitan 0.2.2 printed, or has of its models on the meta device."""
    debug = {
        "vocab_size": "201088",
        "dim": "256",
        "moe_inter_dim": "2880",
        "n_layers": "4",
        "moe_args": "MoEArgs",
        "num_experts": "8",
        "num_shared_experts": "0",
        "top_k": "4",
        "head_dim": "64",
        "n_heads": "64",
        "n_kv_heads": "8",
        "sliding_window_size": "128",
    }
    assert from_torchtitan("gpt_oss debugmodel", debug).params_total == 183_397_920
    whole = {**debug, "dim": "2880", "n_layers": "24", "num_experts": "32"}
    shape = from_torchtitan("gpt_oss 20b", whole)
    assert shape.params_total == 20_914_757_184
    assert shape.layers == find_model("gpt-oss-20b").layers


def test_printed_arguments_of_deepseek_before_moe_args() -> None:
    flat = {"n_routed_experts": "64", "n_shared_experts": "2", "n_activated_experts": "6"}
    args = {key: value for key, value in DEEPSEEK_16B.items() if key != "moe_args"}
    shape = from_torchtitan("deepseek_v3 16B", {**args, **flat, "vocab_size": "128815"})
    assert shape.params_total == 15_814_680_064


def test_printed_arguments_of_qwen3() -> None:
    args = {
        "vocab_size": "2048",
        "head_dim": "128",
        "dim": "256",
        "n_layers": "8",
        "n_heads": "16",
        "n_kv_heads": "8",
        "qk_norm": "True",
        "hidden_dim": "3072",
        "enable_weight_tying": "True",
    }
    assert from_torchtitan("qwen3 debugmodel", args).params_total == 31_987_968
    sparse = {
        "moe_enabled": "true",
        "moe_inter_dim": "768",
        "moe_args": '{"num_experts": 64, "num_shared_experts": 0, "top_k": 8}',
        "enable_weight_tying": "false",
    }
    assert from_torchtitan("qwen3 debugmodel_moe", {**args, **sparse}).params_total == 315_758_848


def test_a_flavour_without_arguments_is_known_or_an_error() -> None:
    assert from_torchtitan("qwen3 14B").params_total == 14_768_307_200
    with pytest.raises(UnknownModelError):
        from_torchtitan("ouro 1.4B")


LLAMA4_128E = {
    "dim": "5120",
    "n_layers": "48",
    "n_heads": "40",
    "n_kv_heads": "8",
    "vocab_size": "202048",
    "multiple_of": "2048",
    "ffn_dim_multiplier": "1.2",
    "auto_scale_hidden_dim": "True",
    "use_flex_attn": "True",
    "every_n_layers_nope": "4",
    "fixed_attn_block_size": "8192",
    "interleave_moe_layer_step": "2",
    "num_experts": "128",
    "top_k": "1",
}
"""`17bx128e_irope` of torchtitan's registry: Maverick."""


@pytest.mark.parametrize(
    "experts",
    [
        {"moe_enabled": "True", "use_shared_expert": "True"},  # 2025-04
        {"moe_args": "MoEArgs", "num_shared_experts": "1"},
    ],
)
def test_torchtitans_arguments_of_llama4_are_maverick(experts: dict[str, str]) -> None:
    shape = from_torchtitan("llama4 17bx128e_irope", LLAMA4_128E | experts)
    maverick = find_model("llama-4-maverick")
    assert find_model("llama4 17bx128e") == maverick
    assert shape.params_total == maverick.params_total
    assert shape.params_active == maverick.params_active
    for seq_len in (8192, 32_768):  # one block, and four of which a quarter of the layers sees all
        own, theirs = (
            sum(one.forward for one in operators(of, seq_len)) for of in (shape, maverick)
        )
        assert own == pytest.approx(theirs)


def test_torchtitans_llama4_without_blocks_or_experts() -> None:
    whole = {"every_n_layers_nope": "None", "use_flex_attn": "False"}
    shape = from_torchtitan("llama4 17bx128e", LLAMA4_128E | whole)
    assert {layer.attention.chunk for layer in shape.layers} == {None}
    dense = from_torchtitan("llama4", LLAMA4_128E | whole | {"moe_enabled": "False"})
    assert (dense.layers[0].ffn, dense.layers[0].moe) == (FeedForward(width=16_384), None)
    with pytest.raises(ShapeError, check=of_kind("blocks-unclear")):
        from_torchtitan("llama4", LLAMA4_128E | {"every_n_layers_nope": "None"})


def test_arguments_of_another_model_are_an_error() -> None:
    with pytest.raises(ShapeError, check=of_kind("unknown-architecture", "'llama4 17bx16e'")):
        from_torchtitan("llama4 17bx16e", {**LLAMA_8B, "moe_args": "MoEArgs(num_experts=16)"})


def test_a_printed_size_tells_the_vocabulary() -> None:
    """The debug model of 2025-06 had the vocabulary of its tokenizer."""
    shape = with_params_total(find_model("llama3 debugmodel"), 6_270_208)
    assert shape.vocab_size == 2256
    assert shape.params_total == 6_270_208
    assert with_params_total(find_model("llama-3-8b"), 8_030_261_248) == find_model("llama-3-8b")
    with pytest.raises(ShapeError, check=of_kind("other-parameter-count")):
        with_params_total(find_model("llama-3-8b"), 8_030_261_249)
