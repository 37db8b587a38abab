"""Vision-language models known by name, against the published parameter counts."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

import pytest

from fairmfu.ingest.core.data_files import read_data_file
from fairmfu.metrics.formula import vision
from fairmfu.metrics.formula.flops import forward_flops_per_token
from fairmfu.metrics.formula.model_shapes import (
    UnknownModelError,
    buildable_models,
    find_config,
    find_model,
    models,
    vision_model_names,
)
from fairmfu.metrics.pipeline.calculator import answer, ask
from tests.support.each_case import each_case
from tests.support.folders import TESTS

PARAMETERS: Final = {
    "internvl2-1b": 938_158_976,
    "internvl2-26b": 25_514_186_112,
    "internvl2-2b": 2_205_754_368,
    "internvl2-8b": 8_075_365_376,
    "internvl2.5-1b": 938_193_024,
    "internvl2.5-26b": 25_514_186_112,
    "internvl2.5-2b": 2_205_754_368,
    "internvl2.5-38b": 38_388_164_992,
    "internvl2.5-4b": 3_712_637_952,
    "internvl2.5-78b": 78_408_318_336,
    "internvl2.5-8b": 8_075_365_376,
    "internvl3-14b": 15_117_256_704,
    "internvl3-1b": 938_193_024,
    "internvl3-2b": 2_088_957_440,
    "internvl3-38b": 38_388_164_992,
    "internvl3-78b": 78_408_318_336,
    "internvl3-8b": 7_944_373_760,
    "internvl3.5-14b": 15_119_523_840,
    "internvl3.5-1b": 1_060_897_792,
    "internvl3.5-2b": 2_348_347_392,
    "internvl3.5-38b": 38_390_405_504,
    "internvl3.5-4b": 4_732_489_216,
    "internvl3.5-8b": 8_528_318_464,
    "llava-1.5-13b": 13_351_494_656,
    "llava-1.5-7b": 7_063_427_072,
    "qwen2-vl-2b": 2_208_985_600,
    "qwen2-vl-72b": 73_405_560_320,
    "qwen2-vl-7b": 8_291_375_616,
    "qwen2.5-vl-32b": 33_452_718_336,
    "qwen2.5-vl-3b": 3_754_622_976,
    "qwen2.5-vl-72b": 73_410_777_344,
    "qwen2.5-vl-7b": 8_292_166_656,
    "qwen3-vl-235b-a22b": 235_670_022_896,
    "qwen3-vl-2b": 2_127_532_032,
    "qwen3-vl-30b-a3b": 31_070_754_032,
    "qwen3-vl-32b": 33_357_390_064,
    "qwen3-vl-4b": 4_437_815_808,
    "qwen3-vl-8b": 8_767_123_696,
}
"""Parameters of tower, projector and language model, as Hugging Face counts them in the weights.

No published count was at hand for the models of COMPOSED. Their towers and their text models are
those of models with one."""

COMPOSED: Final = {
    *("internvl2-1b", "internvl3-2b", "internvl3-8b", "internvl3-14b", "llava-1.5-13b"),
    *(name for name in PARAMETERS if name.startswith("internvl3.5")),
}


def test_every_vision_model_has_its_count_here() -> None:
    assert set(vision_model_names()) == set(PARAMETERS)


@each_case("name", vision_model_names())
def test_each_vision_model_has_its_published_parameters(name: str) -> None:
    shape, tower = find_model(name), vision.find_tower(name)
    assert shape.name == name
    assert tower is not None
    assert shape.params_total + tower.params_total == PARAMETERS[name]


NAMED: Final[dict[str, Any]] = json.loads(
    (TESTS / "golden" / "flop_counter" / "vision_named.json").read_text()
)


@each_case("name", NAMED)
def test_the_flop_counter_counts_the_same_for_full_size_towers(name: str) -> None:
    """0 FLOPs off. LLaVA: the code runs the last layer, the model does not read it."""
    tower = vision.find_tower(name)
    assert tower is not None
    executed = replace(tower, depth=tower.depth + tower.unused_layers)
    ops = vision.tower_operators(executed, NAMED[name]["grids"])
    assert forward_flops_per_token(ops) - NAMED[name]["forward"] == 0
    assert tower.params_total == NAMED[name]["parameters"]


def test_composed_models_say_so() -> None:
    rows = read_data_file(models.__package__, "vision_models.toml")["model"]
    assert {row["name"] for row in rows if row["source"].startswith("tower as ")} == COMPOSED


@each_case("name", vision_model_names())
def test_the_tower_is_that_of_the_config(name: str) -> None:
    by_name, by_config = vision.find_tower(name), vision.from_hugging_face(find_config(name))
    assert by_name is not None
    assert by_config is not None
    assert by_name.weights() == by_config.weights()
    assert by_name.name == f"the vision tower of {name}"


@each_case(
    ("said", "name"),
    [
        ("Qwen/Qwen2.5-VL-7B-Instruct", "qwen2.5-vl-7b"),
        ("/models/Qwen3-VL-30B-A3B-Thinking/", "qwen3-vl-30b-a3b"),
        ("OpenGVLab/InternVL2_5-8B", "internvl2.5-8b"),
        ("OpenGVLab/InternVL3_5-4B-Instruct", "internvl3.5-4b"),
        ("OpenGVLab/InternVL3-8B-hf", "internvl3-8b"),
        ("llava-hf/llava-1.5-7b-hf", "llava-1.5-7b"),
    ],
)
def test_publishers_spellings(said: str, name: str) -> None:
    assert find_model(said).name == name


@pytest.mark.parametrize("said", ["InternVL2-40B", "Qwen3-VL-9B", "InternVL4-8B", "llava-1.6-7b"])
def test_other_sizes_are_refused(said: str) -> None:
    with pytest.raises(UnknownModelError):
        find_model(said)


def test_models_of_text_have_no_tower_and_vision_models_explain_no_figures() -> None:
    """A log's figures are explained by models of text, which have the same layers."""
    named = {shape.name for shape in buildable_models()}
    assert named & set(vision_model_names()) == set()
    assert vision.find_tower("qwen3-8b") is None


KEYS: Final = {"name", "names", "source", "model_type", "text_type", "tower", "dimensions"}


def test_each_row_and_each_tower_is_used() -> None:
    table: dict[str, Any] = read_data_file(models.__package__, "vision_models.toml")
    rows = table["model"]
    assert all(row.keys() <= KEYS | {"vision", "config"} for row in rows)
    assert {row["tower"] for row in rows} == set(table["towers"])
    names = [name for row in rows for name in (row["name"], *row.get("names", ()))]
    assert len(names) == len({*names} - {*models._known()})
    assert [models._folded(name) for name in names] == names


@pytest.mark.parametrize(
    ("name", "images", "tokens"),
    [
        ("qwen2.5-vl-7b", ("448x672", "896x448"), (32 * 48 + 64 * 32) // 4),
        ("qwen3-vl-8b", ("512x512",), 32 * 32 // 4),
        ("internvl3-8b", ("448x448", "448x448"), 512),
        ("llava-1.5-7b", ("336x336",), 576),
    ],
)
def test_a_name_gives_the_flops_of_its_images(
    name: str, images: tuple[str, ...], tokens: int
) -> None:
    """By name and by config: language model and tower, per token of the sequence."""
    found = answer(ask(name, 4096, images=images))
    config = find_config(name)
    assert found["flops_per_token"] == answer(ask(config, 4096, images=images))["flops_per_token"]
    text = answer(ask(config["text_config"], 4096))["flops_per_token"]
    tower = vision.find_tower(name)
    assert tower is not None
    grids = [tower.grid_of(*map(int, size.split("x"))) for size in images]
    assert tower.tokens(grids) == tokens
    seen = sum(op.training for op in vision.tower_operators(tower, grids))
    assert found["flops_per_token"] == pytest.approx(text + seen / 4096, rel=1e-12)
    assert found["params_total"] == PARAMETERS[name]
