"""What other tools count: against a table of 23 formulas by 11 models that was made apart.

golden/framework_ratio.tsv: FLOPs per token over ours, three decimals. Its maker took two things
otherwise than the code of the tools, or our shapes, have them; both are written out here:

    Gemma 3 with a window of 4096, transformers' default, where the model has 1024. It changes
    what we count, and verl, which the table takes without windows though its code has Gemma 3's.
    accelerate with the factor d in its projections, which its code forgets, and with the model's
    own head width, where its code has d // H.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from typing import Literal

import pytest

from fairmfu.metrics.audit import other_tools
from fairmfu.metrics.audit.eras import deepspeed
from fairmfu.metrics.audit.other_tools import OTHER_FORMULAS, compare_other_formulas
from fairmfu.metrics.formula.flops import flops_per_token, operators
from fairmfu.metrics.formula.model_shapes import (
    Attention,
    LayerGroup,
    LinearAttention,
    ModelShape,
    buildable_models,
    find_model,
)
from fairmfu.metrics.formula.simplified_model import SimplifiedModel
from tests.support.each_case import each_case
from tests.support.error_kinds import of_kind
from tests.support.folders import TESTS

GOLDEN = TESTS / "golden" / "framework_ratio.tsv"
HALF_A_DIGIT = 0.0005
BY_NAME = {other.name: other for other in OTHER_FORMULAS}

Recompute = Literal["none", "full"]
Cell = tuple[str, Recompute, str, int, float]


def cells() -> list[Cell]:
    """(formula, recompute, model, tokens of a sequence, printed value)."""
    with GOLDEN.open(newline="") as file:
        header, *table = csv.reader(file, delimiter="\t")
    found: list[Cell] = []
    for name, recompute, *values in table:
        for column, value in zip(header[2:], values, strict=True):
            model, length = column.split("@")
            policy: Recompute = "full" if recompute == "full" else "none"
            found.append((name, policy, model, int(length), float(value)))
    return found


OURS = [cell for cell in cells() if cell[0].startswith("ours")]
THEIRS = [cell for cell in cells() if not cell[0].startswith("ours")]


def with_windows(shape: ModelShape, window: int | None) -> ModelShape:
    """The shape with every window that it has replaced."""
    return replace(shape, layers=tuple(with_window(group, window) for group in shape.layers))


def with_window(group: LayerGroup, window: int | None) -> LayerGroup:
    attention = group.attention
    if not isinstance(attention, Attention) or attention.window is None:
        return group
    return replace(group, attention=replace(attention, window=window))


def shape_of_the_table(model: str) -> ModelShape:
    shape = find_model(model)
    return with_windows(shape, 4096) if model == "gemma-3-27b" else shape


def repaired_accelerate(seen: SimplifiedModel) -> float:
    """With the factor d, and the model's own head width."""
    width = seen.attention[0][1].qk_head_dim
    heads = 12 * seen.d * width * (seen.H + seen.G)
    return seen.L * (18 * seen.d * seen.f + heads + 12 * seen.H * width * seen.T)


def flops_of_the_table(name: str, seen: SimplifiedModel) -> float:
    if name == "accelerate nd_parallel example":
        return repaired_accelerate(seen)
    if name == "verl flops_counter" and seen.shape.name == "gemma-3-27b":
        return other_tools.verl(seen._replace(shape=with_windows(seen.shape, None)))
    return BY_NAME[name].flops(seen)


def seen(model: str, seq_len: int, recompute: Recompute = "none") -> SimplifiedModel:
    shape = shape_of_the_table(model)
    return SimplifiedModel(shape=shape, T=seq_len, recompute=recompute, intermediate_size=None)


def label(cell: Cell) -> str:
    return f"{cell[0]}-{cell[1]}-{cell[2]}@{cell[3]}"


def test_the_table_has_23_formulas_by_11_models() -> None:
    assert len(OURS) == 11
    assert len({cell[:2] for cell in THEIRS}) == 23
    assert len(THEIRS) == 23 * 11
    bridge = {name for name in BY_NAME if name.startswith("Megatron-Bridge")}
    assert {cell[0] for cell in THEIRS} == set(BY_NAME) - bridge  # tested against its code below


@pytest.mark.parametrize("cell", OURS, ids=label)
def test_ours(cell: Cell) -> None:
    _, _, model, seq_len, giga = cell
    ours = flops_per_token(operators(shape_of_the_table(model), seq_len))
    assert ours / 1e9 == pytest.approx(giga, abs=HALF_A_DIGIT)


@each_case("cell", THEIRS, ids=label)
def test_theirs(cell: Cell) -> None:
    name, recompute, model, seq_len, ratio = cell
    case = seen(model, seq_len, recompute)
    ours = flops_per_token(operators(case.shape, seq_len))
    assert flops_of_the_table(name, case) / ours == pytest.approx(ratio, abs=HALF_A_DIGIT)


def test_gemma_has_its_own_window_outside_the_table() -> None:
    ours = flops_per_token(operators(find_model("gemma-3-27b"), 8192))
    assert ours / 1e9 == pytest.approx(166.515, abs=HALF_A_DIGIT)


# --- figures that the tools themselves print ------------------------------------------------


@pytest.mark.parametrize(
    ("model", "seq_len", "flops"),
    [
        ("llama3-8b", 8192, 57_914_449_920),
        ("llama3-70b", 8192, 481_442_709_504),
        ("llama3-405b", 262_144, 8_916_502_806_528),
        ("gpt-oss-20b", 4096, 26_481_681_792),
        ("gpt-oss-120b", 4096, 38_044_854_144),
        ("qwen3-30b-a3b", 8192, 37_578_559_488),
    ],
)
def test_torchtitan_to_the_flop(model: str, seq_len: int, flops: int) -> None:
    """From its logs, and from its pull request #4300, before the change."""
    assert other_tools.torchtitan(seen(model, seq_len)) == flops


@pytest.mark.parametrize(
    ("model", "seq_len", "tgs", "tflops"),
    [("llama3-8b", 4096, 4755.8, 331.6), ("mixtral-8x7b", 2048, 1787.2, 116.5)],
)
def test_xtuner_logs(model: str, seq_len: int, tgs: float, tflops: float) -> None:
    """Medians of two public logs, recomputing: tokens/s and TFLOPS of one device."""
    counted = other_tools.xtuner(seen(model, seq_len, "full"))
    assert counted * tgs / 1e12 == pytest.approx(tflops, abs=0.05)


# --- by hand --------------------------------------------------------------------------------


def test_accelerate_as_its_code_has_it() -> None:
    d, f, L, H, G, T = 4096, 14336, 32, 32, 8, 8192  # noqa: N806
    assert other_tools.accelerate(seen("llama3-8b", T)) == L * (
        18 * d * f + 12 * (d // H) * (H + G) + 12 * d * T
    )


def test_verl_counts_half_of_a_window() -> None:
    shape, T = find_model("gemma-3-27b"), 8192  # noqa: N806
    windowed = seen("gemma-3-27b", T)._replace(shape=shape)
    without = windowed._replace(shape=with_windows(shape, None))
    local = sum(count for count, attention in windowed.attention if attention.window)
    assert local == 52
    pairs = other_tools.verl(without) - other_tools.verl(windowed)
    assert pairs == 3 * local * 32 * (128 + 128) * (T - 1024)


def test_megatron_counts_multi_token_prediction_with_its_norms() -> None:
    shape = replace(find_model("deepseek-v3"), mtp_modules=1)
    ops = operators(shape, 4096, attention="full")
    products = sum(
        op.training / (2 if op.name.endswith("core attention") else 1)
        for op in ops
        if not op.name.endswith("router")
    )
    counted = other_tools.megatron_lm(seen("deepseek-v3", 4096)._replace(shape=shape))
    assert counted == products + 6 * (62 * (1536 + 512) + 3 * 7168)


def test_plain_feed_forwards_have_two_matrices_where_the_tool_asks() -> None:
    d, L, T, V = 768, 12, 1024, 50257  # noqa: N806
    case = seen("gpt2", T)
    assert other_tools.internevo(case) == 3 * L * (24 * d * d + 4 * d * T) + 6 * d * V
    assert deepspeed.by_matmuls(case) == 6 * (L * (12 * d * d + 2 * d * T) + d * V)
    assert other_tools.xtuner(case) == 3 * L * (32 * d * d + 2 * d * T) + 6 * d * V


def test_positions_are_embeddings_to_some_and_parameters_to_others() -> None:
    case = seen("gpt2", 1024)
    assert other_tools.litgpt(case) - other_tools.nanogpt(case) == 6 * 1024 * 768
    assert deepspeed.trainer_parameters(case) == 6 * (124_439_808 - (50257 + 1024) * 768)


# --- the list -------------------------------------------------------------------------------


def test_against_others_is_a_row_per_formula_with_its_ratio() -> None:
    shape = find_model("llama-3.1-8b")
    ours = flops_per_token(operators(shape, 8192))
    found = compare_other_formulas(shape, 8192, recompute="none")
    assert [row.name for row in found] == [other.name for other in OTHER_FORMULAS]
    for row in found:
        assert row.flops_per_token is not None
        assert row.ratio_to_ours == pytest.approx(row.flops_per_token / ours)
        assert row.why


def test_recomputation_changes_those_that_count_it_and_no_other() -> None:
    shape = find_model("llama-3.1-8b")
    none, full = (
        compare_other_formulas(shape, 8192, recompute=policy) for policy in ("none", "full")
    )
    changed = {a.name for a, b in zip(none, full, strict=True) if a != b}
    assert changed == {other.name for other in OTHER_FORMULAS if other.counts_recompute}
    assert len(OTHER_FORMULAS) + len(changed) == 25


SOFTMAX = [
    shape
    for shape in buildable_models()
    if all(isinstance(group.attention, Attention) for group in shape.layers)
]


@each_case("shape", SOFTMAX, ids=lambda shape: shape.name)
def test_every_known_softmax_model_has_every_row(shape: ModelShape) -> None:
    found = compare_other_formulas(shape, 4096, recompute="full")
    assert all(row.flops_per_token and row.flops_per_token > 0 for row in found)


def test_a_sparse_model_of_no_known_name_needs_its_config() -> None:
    shape = replace(find_model("qwen3-30b-a3b"), name="qwen3_moe")
    found = {row.name: row for row in compare_other_formulas(shape, 4096, recompute="none")}
    missing = {name for name, row in found.items() if row.flops_per_token is None}
    assert missing == {
        "xtuner 0.1/0.2 ThroughputHook",
        "InternEvo get_megatron_flops",
        "Megatron-Bridge, LoRA",
        "LLaMA-Factory cal_mfu",
        "nanotron get_flops",
        "accelerate nd_parallel example",
    }
    assert all("intermediate_size" in found[name].why for name in missing)
    given = SimplifiedModel(shape=shape, T=4096, recompute="none", intermediate_size=6144)
    for row in compare_other_formulas(find_model("qwen3-30b-a3b"), 4096, recompute="none"):
        assert BY_NAME[row.name].flops(given) == row.flops_per_token


def test_linear_attention_is_missing_where_a_tool_has_it_not() -> None:
    llama = find_model("llama-3.1-8b")
    linear = LinearAttention(
        key_heads=16, value_heads=32, key_head_dim=128, value_head_dim=128, conv_kernel=4
    )
    layers = (replace(llama.layers[0], count=24, attention=linear), *llama.layers)
    found = compare_other_formulas(replace(llama, layers=layers), 8192, recompute="none")
    missing = [row for row in found if row.flops_per_token is None]
    assert 0 < len(missing) < len(found)
    assert all("linear attention" in row.why for row in missing)


def test_megatron_bridge_counts_windows_exactly_but_for_the_diagonal() -> None:
    """W(W+1)/2 + (T-W)W pairs of a window, T/2 of a full layer instead of (T+1)/2."""
    shape = find_model("gemma-3-27b")
    case = SimplifiedModel(shape=shape, T=8192, recompute="none", intermediate_size=None)
    full_layers, width = 10, 32 * 2 * 128
    missing = full_layers * 6 * width * 0.5
    exact = flops_per_token(operators(shape, 8192))
    assert other_tools.megatron_bridge(case) == pytest.approx(exact - missing, rel=1e-12)
    short = case._replace(T=1024)
    assert other_tools.megatron_bridge(short) == other_tools.megatron_lm(short)


def test_megatron_bridge_counts_two_passes_of_lora() -> None:
    """Its code: frozen FLOPs times 2/3, with the squares of the lengths in full."""
    case = SimplifiedModel(
        shape=find_model("llama-3-70b"), T=4096, recompute="none", intermediate_size=None
    )
    layers, hs, ffn_hs, vocab = 80, 8192, 28672, 128256
    frozen = layers * hs**2 * (12 + 12 * 8 / 64 + 18 * ffn_hs / hs + 6 * vocab / (layers * hs))
    theirs = frozen * 2 / 3 + layers * hs**2 * 12 * 4096 / hs
    assert other_tools.megatron_bridge_lora(case) == pytest.approx(theirs)


def test_another_policy_is_an_error() -> None:
    with pytest.raises(ValueError, check=of_kind("tools-without-policy", "selective")):
        compare_other_formulas(find_model("llama-3.1-8b"), 8192, recompute="selective")  # type: ignore[arg-type]


def test_code_is_named_to_the_commit() -> None:
    for other in OTHER_FORMULAS:
        assert bool(other.repo) == bool(other.path) == bool(other.commit)
