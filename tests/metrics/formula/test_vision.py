"""Vision towers against PyTorch's FlopCounterMode, and by hand."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.metrics.formula.flops import (
    Trainable,
    flops_per_token,
    forward_flops_per_token,
    operators,
)
from fairmfu.metrics.formula.model_shapes import ShapeError
from fairmfu.metrics.formula.model_shapes import from_hugging_face as language_model
from fairmfu.metrics.formula.vision import (
    TrainedParts,
    VisionTower,
    from_hugging_face,
    per_token,
    tower_operators,
)
from tests.support.error_kinds import of_kind
from tests.support.folders import TESTS

CASES: dict[str, Any] = json.loads((TESTS / "golden" / "flop_counter" / "vision.json").read_text())
FROZEN = Trainable(kind="frozen")
ONLY_TOWER = TrainedParts(projector=FROZEN, language_model=FROZEN)
ONLY_PROJECTOR = TrainedParts(tower=FROZEN, language_model=FROZEN)


def tower_of(case: dict[str, Any]) -> VisionTower:
    tower = from_hugging_face(case["config"])
    assert tower is not None
    return tower


def forward(tower: VisionTower, grids: Any) -> float:
    return forward_flops_per_token(tower_operators(tower, grids))


def backward(tower: VisionTower, grids: Any, parts: TrainedParts | None = None) -> float:
    ops = tower_operators(tower, grids, trained_parts=parts)
    return flops_per_token(ops) - forward_flops_per_token(ops)


# --- the counter ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_forward(name: str) -> None:
    case = CASES[name]
    tower = tower_of(case)
    executed = replace(tower, depth=tower.depth + tower.unused_layers)
    assert forward(executed, case["grids"]) - case["forward"] == 0
    if tower.unused_layers:  # LLaVA: the code runs the last layer, the model does not need it
        assert forward(tower, case["grids"]) < case["forward"]


@pytest.mark.parametrize("name", CASES)
def test_backward(name: str) -> None:
    case = CASES[name]
    assert backward(tower_of(case), case["grids"]) - case["backward"] == 0


TRAINED_IN_PARTS = [name for name, case in CASES.items() if "backward_tower" in case]


@pytest.mark.parametrize("name", TRAINED_IN_PARTS)
def test_backward_of_a_tower_before_a_frozen_projector(name: str) -> None:
    case = CASES[name]
    assert backward(tower_of(case), case["grids"], ONLY_TOWER) - case["backward_tower"] == 0


@pytest.mark.parametrize("name", TRAINED_IN_PARTS)
def test_backward_of_a_projector_after_a_frozen_tower(name: str) -> None:
    """Ours counts the gradient of the tower's output, which only a trained norm before it needs."""
    case = CASES[name]
    tower = tower_of(case)
    first = [p.weights[0] for p in tower.projectors if not p.norm_params]
    skipped = sum(2 * w.rows * w.columns for w in first) * tower.tokens(case["grids"])
    counted = backward(tower, case["grids"], ONLY_PROJECTOR)
    assert counted - skipped - case["backward_projector"] == 0


@pytest.mark.parametrize("name", CASES)
def test_parameters(name: str) -> None:
    config, parameters = CASES[name]["config"], CASES[name]["parameters"]
    text = language_model(config).params_total if "text_config" in config else 0
    assert tower_of(CASES[name]).params_total + text == parameters


@pytest.mark.parametrize(
    ("name", "flops"),
    [
        ("CLIP-L/14@336", 763_836_432_384),
        ("SigLIP-so400m@896", 5_460_392_411_136),
        ("Qwen3-VL tower", 1_042_808_832),
        ("Qwen2-VL tower", 1_045_757_952),
        ("Qwen2.5-VL tower", 1_123_614_720),
    ],
)
def test_the_five_towers_as_they_were_counted_first(name: str, flops: int) -> None:
    case = CASES[name]
    assert forward(tower_of(case), case["grids"]) == case["forward"] == flops


# --- by hand --------------------------------------------------------------------------------

CLIP = {
    "model_type": "clip_vision_model",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "image_size": 336,
    "patch_size": 14,
}
VICUNA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "intermediate_size": 11008,
    "vocab_size": 32064,
}
LLAVA = {"model_type": "llava", "vision_config": CLIP, "text_config": VICUNA}
QWEN25 = {
    "model_type": "qwen2_5_vl",
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "vision_config": {
        "depth": 32,
        "hidden_size": 1280,
        "intermediate_size": 3420,
        "num_heads": 16,
        "in_chans": 3,
        "out_hidden_size": 3584,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "window_size": 112,
        "fullatt_block_indexes": [7, 15, 23, 31],
    },
}


def towers(config: dict[str, Any]) -> VisionTower:
    tower = from_hugging_face(config)
    assert tower is not None
    return tower


VIT = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_channels": 3,
    "image_size": 224,
}
QWEN = {
    "depth": 32,
    "num_heads": 16,
    "in_channels": 3,
    "patch_size": 14,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
}
UNSAID = {
    "clip_vision_model": {**VIT, "patch_size": 32},
    "siglip_vision_model": {**VIT, "patch_size": 16},
    "internvl_vision": {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "num_channels": 3,
        "image_size": [448, 448],
        "patch_size": [14, 14],
        "norm_type": "layer_norm",
        "attention_bias": False,
        "use_qk_norm": False,
        "use_mean_pooling": True,
    },
    "qwen2_vl": {**QWEN, "embed_dim": 1280, "hidden_size": 3584, "mlp_ratio": 4},
    "qwen2_5_vl": {
        **QWEN,
        "hidden_size": 3584,
        "intermediate_size": 3420,
        "window_size": 112,
        "out_hidden_size": 3584,
        "fullatt_block_indexes": [7, 15, 23, 31],
    },
    "qwen3_vl": {
        **QWEN,
        "depth": 27,
        "patch_size": 16,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_position_embeddings": 2304,
        "out_hidden_size": 3584,
        "deepstack_visual_indexes": [8, 16, 24],
    },
}
"""What configurations of transformers mean where they say nothing: their classes' own defaults."""


@pytest.mark.parametrize(("kind", "means"), UNSAID.items())
def test_what_a_vision_config_leaves_out_is_its_classs_default(
    kind: str, means: dict[str, Any]
) -> None:
    """Of everything, of nothing but one key, and of one key alone."""
    outer = "llava" if kind in {"clip_vision_model", "siglip_vision_model"} else kind
    model = {**QWEN25, "model_type": outer.replace("_vision", "")}

    def tower(said: dict[str, Any]) -> VisionTower:
        return towers(model | {"text_config": VICUNA, "vision_config": {"model_type": kind} | said})

    whole = tower(means)
    assert tower({}) == whole
    for key, value in means.items():
        assert tower({key: value}) == whole
        assert tower({k: v for k, v in means.items() if k != key}) == whole


def images(tower: VisionTower, count: int) -> tuple[Any, ...]:
    """Grids of so many images of the tower's own size."""
    assert tower.grid is not None
    return ((1, *tower.grid),) * count


def by_name(tower: VisionTower, grids: Any, parts: TrainedParts | None = None) -> dict[str, Any]:
    return {op.name: op for op in tower_operators(tower, grids, trained_parts=parts)}


def test_llava_by_hand() -> None:
    tower = towers(LLAVA)
    ops = by_name(tower, images(tower, 1))
    d, tokens, layers = 1024, 24 * 24 + 1, 23  # the last but one of 24
    assert ops["vision patch embedding"].forward == 2 * 576 * 3 * 14**2 * d
    projections = ops["vision query/key/value/output projections"]
    assert projections.forward == layers * 8 * tokens * d**2
    assert ops["vision core attention"].forward == layers * 4 * d * tokens**2
    assert ops["vision ffn"].forward == layers * 4 * tokens * d * 4096
    assert ops["vision projector"].forward == 2 * 576 * (1024 * 4096 + 4096**2)
    assert tower.tokens(images(tower, 3)) == 3 * 576


def test_windows_of_qwen_by_hand() -> None:
    """A grid of 20 x 12 patches: windows of 8 x 8, and what is left at the edges."""
    tower = towers(QWEN25)
    inside = (8**2 + 8**2 + 4**2) * (8**2 + 4**2)
    core = by_name(tower, [(1, 20, 12)])["vision core attention"].forward
    assert core == 4 * 1280 * (4 * 240**2 + 28 * inside)
    assert tower.tokens([(1, 20, 12)]) == 60


def test_published_sizes() -> None:
    """Qwen2.5-VL's tower: 0.67 B (arXiv:2502.13923); CLIP-L/14@336 of LLaVA 1.5: 303.5 M."""
    assert towers(QWEN25).params_total == 676_550_144
    assert towers(LLAVA).params_tower == 303_507_456
    assert towers(LLAVA).params_total - towers(LLAVA).params_tower == 20_979_712


def test_internvit_of_both_code_bases() -> None:
    """InternViT-300M-448px: 304.01 M parameters on its card."""
    theirs = {
        "model_type": "internvl_chat",
        "downsample_ratio": 0.5,
        "select_layer": -1,
        "llm_config": VICUNA,
        "vision_config": {
            "model_type": "intern_vit_6b",
            "qkv_bias": True,
            "norm_type": "layer_norm",
        },
    }
    tower = towers(theirs)
    assert tower.params_tower == 304_012_288
    native = towers(
        {
            "model_type": "internvl",
            "text_config": VICUNA,
            "vision_config": {"model_type": "internvl_vision", "attention_bias": True},
        }
    )
    assert native.params_total == tower.params_total
    assert forward(native, images(native, 12)) == forward(tower, images(tower, 12))
    assert tower.tokens(images(tower, 12)) == 12 * 256


# --- laws -----------------------------------------------------------------------------------

SIDES = st.integers(1, 20).map(lambda n: 2 * n)
GRIDS = st.lists(st.tuples(st.integers(1, 3), SIDES, SIDES), min_size=1, max_size=4)
ANY = st.sampled_from(
    [towers(QWEN25), towers({**QWEN25, "vision_config": {"model_type": "qwen3_vl"}})]
)


@given(tower=ANY, grids=GRIDS)
def test_images_do_not_see_each_other(tower: VisionTower, grids: Any) -> None:
    together = forward(tower, grids)
    frames = [(1, h, w) for t, h, w in grids for _ in range(t)]
    assert together == sum(forward(tower, [grid]) for grid in frames)


@given(tower=ANY, grids=GRIDS)
def test_training_is_three_forwards(tower: VisionTower, grids: Any) -> None:
    assert backward(tower, grids) == 2 * forward(tower, grids)


@given(grids=GRIDS)
def test_windows_are_at_most_full_attention(grids: Any) -> None:
    tower = towers(QWEN25)
    assert forward(tower, grids) <= forward(replace(tower, window=None), grids)


@given(grids=GRIDS, tokens=st.integers(1, 10**6))
def test_per_token_is_the_set_over_the_tokens(grids: Any, tokens: int) -> None:
    ops = tower_operators(towers(QWEN25), grids)
    assert flops_per_token(per_token(ops, tokens)) * tokens == pytest.approx(flops_per_token(ops))


# --- what is trained ------------------------------------------------------------------------


def test_parts_in_llavas_first_stage() -> None:
    """Only the projector: the tower 1x, the projector 3x, the language model 2x."""
    tower = towers(LLAVA)
    for name, op in by_name(tower, images(tower, 1), ONLY_PROJECTOR).items():
        assert op.training == (3 if name == "vision projector" else 1) * op.forward
    assert ONLY_PROJECTOR.trainable_of("language model").kind == "frozen"


def test_parts_in_llavas_second_stage() -> None:
    """A frozen tower before everything trained."""
    parts = TrainedParts(tower=FROZEN)
    tower = towers(LLAVA)
    ops = by_name(tower, images(tower, 1), parts)
    assert ops["vision core attention"].backward == 0
    assert ops["vision projector"].backward == 2 * ops["vision projector"].forward
    assert parts.trainable_of("language model").kind == "full"


def test_a_language_model_alone_leaves_what_is_before_it_at_its_forward() -> None:
    parts = TrainedParts(tower=FROZEN, projector=FROZEN)
    tower = towers(QWEN25)
    assert backward(tower, [(1, 4, 4)], parts) == 0
    assert flops_per_token(tower_operators(tower, [(1, 4, 4)], trained_parts=parts)) > 0


def test_lora_on_a_tower() -> None:
    lora = Trainable(kind="lora", lora_rank=8, lora_targets=("all-linear",))
    parts = TrainedParts(tower=lora, projector=FROZEN, language_model=FROZEN)
    tower = towers(LLAVA)
    ops = by_name(tower, images(tower, 1), parts)
    adapters = ops["vision lora adapters"]
    assert adapters.forward == 577 * 23 * 2 * 8 * (4 * 2 * 1024 + 2 * (1024 + 4096))
    assert adapters.backward == 2 * adapters.forward
    assert ops["vision patch embedding"].backward == 0
    assert ops["vision ffn"].backward == ops["vision ffn"].forward
    assert ops["vision core attention"].backward == 2 * ops["vision core attention"].forward
    assert ops["vision projector"].backward == ops["vision projector"].forward


def test_nothing_trained_is_inference() -> None:
    with pytest.raises(ValueError, check=of_kind("nothing-trained")):
        TrainedParts(tower=FROZEN, projector=FROZEN, language_model=FROZEN)
    with pytest.raises(ValueError, check=of_kind("projector-with-lora")):
        TrainedParts(projector=Trainable(kind="lora", lora_rank=8, lora_targets=("all-linear",)))


def test_a_step_of_text_and_images_adds_up() -> None:
    shape, tower = language_model(QWEN25), towers(QWEN25)
    images = per_token(tower_operators(tower, [(1, 36, 36), (1, 64, 48)]), 4096)
    together = (*images, *operators(shape, 4096))
    assert flops_per_token(together) == flops_per_token(images) + flops_per_token(
        operators(shape, 4096)
    )
    with pytest.raises(ValueError, check=of_kind("no-tokens-in-step")):
        per_token(images, 0)


# --- configs and grids ----------------------------------------------------------------------


def test_the_text_model_beside_the_tower() -> None:
    assert language_model(QWEN25).params_total == 7_615_616_512
    assert language_model(LLAVA).params_total == 6_738_939_904
    assert from_hugging_face(VICUNA) is None


def test_a_nested_part_means_its_class_where_it_is_silent() -> None:
    """LLaVA 1.5's published config has no dimensions of the language model."""
    silent = {"model_type": "llama", "vocab_size": 32064}
    assert language_model({**LLAVA, "text_config": silent}).layers == language_model(LLAVA).layers
    with pytest.raises(ShapeError, check=of_kind("shape-key-missing", "'num_attention_heads'")):
        language_model(silent)


def test_tied_embeddings_may_be_said_outside() -> None:
    assert not language_model(LLAVA).tied_embeddings
    assert language_model({**LLAVA, "tie_word_embeddings": True}).tied_embeddings


def test_pixels_to_grid() -> None:
    tower = towers(QWEN25)
    assert tower.grid_of(1008, 672) == (1, 72, 48)
    assert towers(LLAVA).grid_of(336, 336) == (1, 24, 24)
    with pytest.raises(ShapeError, check=of_kind("image-size-indivisible", "28")):
        tower.grid_of(1000, 672)
    with pytest.raises(ShapeError, check=of_kind("impossible-grid", "(24, 24)")):
        towers(LLAVA).grid_of(224, 224)
    with pytest.raises(ShapeError, check=of_kind("impossible-grid", "multiples of 2")):
        tower_operators(tower, [(1, 3, 4)])


NO_SQUARE: Final = ("uncovered-vision-key", "[14, 16]")
NO_NUMBER: Final = ("shape-key-malformed", "'1024'")


@pytest.mark.parametrize(
    ("config", "kind", "part"),
    [
        ({**LLAVA, "vision_config": {"model_type": "swin"}}, "unknown-tower", "'swin'"),
        ({**LLAVA, "model_type": "blip"}, "unknown-projector", "'blip'"),
        ({**LLAVA, "vision_feature_layer": [-2, -5]}, "uncovered-vision-key", "[-2, -5]"),
        (
            {**LLAVA, "vision_feature_layer": 25},
            "uncovered-vision-key",
            "one layer, -25 to 24",
        ),
        ({**LLAVA, "vision_feature_select_strategy": "full"}, "shape-key-malformed", "'full'"),
        ({**LLAVA, "vision_config": {**CLIP, "patch_size": [14, 16]}}, *NO_SQUARE),
        ({**LLAVA, "vision_config": {**CLIP, "hidden_size": "1024"}}, *NO_NUMBER),
        (
            {**QWEN25, "vision_config": {**QWEN25["vision_config"], "window_size": 14}},
            "window-below-patch",
            "'window_size'",
        ),
        (
            {**LLAVA, "model_type": "gemma3", "mm_tokens_per_image": 49},
            "tokens-do-not-tile",
            "24 x 24 patches",
        ),
        (
            {
                "model_type": "internvl",
                "text_config": VICUNA,
                "vision_config": {"model_type": "internvl_vision"},
                "downsample_ratio": 0.25,
            },
            "uncovered-vision-key",
            "'downsample_ratio'",
        ),
        (
            {
                "model_type": "internvl_chat",
                "llm_config": VICUNA,
                "vision_config": {"model_type": "intern_vit_6b"},
                "select_layer": -4,
            },
            "uncovered-vision-key",
            "'select_layer' is -4",
        ),
    ],
)
def test_a_config_that_gives_no_tower(config: dict[str, Any], kind: str, part: str) -> None:
    with pytest.raises(ShapeError, check=of_kind(kind, part)):
        from_hugging_face(config)


# --- counted again --------------------------------------------------------------------------

TOWERS = {
    "clip_vision_model": "clip:CLIPVisionModel",
    "siglip_vision_model": "siglip:SiglipVisionModel",
    "qwen2_vl_vision": "qwen2_vl:Qwen2VisionTransformerPretrainedModel",
    "qwen2_5_vl_vision": "qwen2_5_vl:Qwen2_5_VisionTransformerPretrainedModel",
    "qwen3_vl_vision": "qwen3_vl:Qwen3VLVisionModel",
}


def network(config: dict[str, Any], device: str) -> Any:
    """The tower, or the whole multimodal model."""
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    torch = pytest.importorskip("torch", reason="counts again where torch is installed")
    parsed = transformers.AutoConfig.for_model(**config)
    with torch.device(device):
        if config["model_type"] not in TOWERS:
            return transformers.AutoModelForImageTextToText.from_config(
                parsed, attn_implementation="eager"
            )
        module, name = TOWERS[config["model_type"]].split(":")
        code = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
        return getattr(code, name)._from_config(parsed, attn_implementation="eager")


def features(net: Any, pixels: Any, grids: Any) -> Any:
    """Sum of all that the tower gives to the language model."""
    import torch  # noqa: PLC0415

    run = net.model.get_image_features if hasattr(net, "lm_head") else net
    sizes = {} if grids is None else {"image_grid_thw": torch.tensor(grids)}
    if run is net and grids is not None:
        sizes = {"grid_thw": sizes["image_grid_thw"]}
    out = run(pixels, **sizes)

    def total(value: Any) -> Any:
        return value.sum() if torch.is_tensor(value) else sum(total(v) for v in value)

    fixed_tower = run is net and grids is None
    result = total(out.last_hidden_state if fixed_tower else out.pooler_output)
    deep = getattr(out, "deepstack_features", None)
    return result if not deep else result + total(deep)


def counts(case: dict[str, Any], *, frozen: str | None = None) -> tuple[int, int, int]:
    """Forward, backward and parameters; `frozen`: the tower or the projector."""
    torch = pytest.importorskip("torch", reason="counts again where torch is installed")
    from torch.utils.flop_counter import FlopCounterMode  # noqa: PLC0415

    tower = tower_of(case)
    device = "meta" if case["config"]["model_type"] in TOWERS and tower.grid else "cpu"
    net = network(case["config"], device)
    for name, weight in net.named_parameters():
        last = any(part in name for part in ("merger", "projector"))
        weight.requires_grad_(frozen is None or last != (frozen == "projector"))
    patches = sum(t * h * w for t, h, w in case["grids"])
    side = tower.patch_side * (tower.grid or (0, 0))[0]
    size = (patches, tower.patch) if tower.grid is None else (len(case["grids"]), 3, side, side)
    pixels = torch.zeros(*size, device=device, requires_grad=frozen != "tower")
    grids = None if tower.grid else case["grids"]
    with FlopCounterMode(display=False) as counter:
        result = features(net, pixels, grids)
        forward_flops = counter.get_total_flops()
        result.backward()
        backward_flops = counter.get_total_flops() - forward_flops
    return forward_flops, backward_flops, sum(w.numel() for w in net.parameters())


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", CASES)
def test_live(name: str) -> None:
    case = CASES[name]
    assert counts(case) == (case["forward"], case["backward"], case["parameters"])
    if "backward_tower" in case:
        assert counts(case, frozen="projector")[1] == case["backward_tower"]
        assert counts(case, frozen="tower")[1] == case["backward_projector"]
