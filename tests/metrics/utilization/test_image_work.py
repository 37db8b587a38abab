"""Vision towers of runs: composed logs of XTuner v1, read back, against the images."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairmfu.metrics.compare.comparability import rank_runs
from fairmfu.metrics.core.run_table import MetricsRow, metrics_rows
from fairmfu.metrics.formula import vision
from fairmfu.metrics.formula.flops import flops_per_token, forward_flops_per_token, operators
from fairmfu.metrics.formula.model_shapes import find_config, find_model, from_hugging_face
from fairmfu.metrics.formula.vision import Grid, VisionTower
from fairmfu.metrics.pipeline.analysis import Analysis, analyse
from fairmfu.metrics.pipeline.missing_facts import find_needs
from fairmfu.metrics.utilization.messages import (
    IMAGE_FIGURES_IMPOSSIBLE,
    IMAGE_SIZES_BOUNDED,
    IMAGE_SIZES_UNKNOWN,
    IMAGES_WITHOUT_TOWER,
    MORE_IMAGES_THAN_TOKENS,
    NO_WHOLE_IMAGES,
    TRAINED_PARTS_UNKNOWN,
    VIDEO_FRAMES_UNKNOWN,
    VIDEOS_POSSIBLE,
)
from tests.support.folders import TESTS
from tests.support.kinds import of_kind
from tests.support.one_log import tables_of
from tests.support.xtuner_v1_log import (
    INTERNVL3_5_4B,
    QWEN3_VL_4B,
    Pack,
    config_lines,
    step_line,
    write_log,
)

LENGTH: Final = 8192
FACTS: Final[Mapping[str, object]] = {"accelerator": "h100", "seq_len": LENGTH, "gpus": 8}
STILLS: Final[Mapping[str, object]] = {**FACTS, "videos": False}
IMAGE: Final = st.tuples(st.integers(1, 30), st.integers(1, 30)).map(lambda g: (g[0] * 2, g[1] * 2))
"""Patches of a still image in height and width: 2 x 2 of them are merged."""
TOWER_OF_QWEN: Final = vision.find_tower("qwen3-vl-4b")
TOWER_OF_INTERNVL: Final = vision.find_tower("internvl3.5-4b")

Images = Sequence[tuple[int, int]]
FEW: Final = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
"""Each example reads a whole log."""


def pack_of(images: Images, text: int, per_sample: int = 2) -> Pack:
    """A pack of samples with some images each, and as many tokens of text as fit."""
    counts = [h * w for h, w in images]
    samples = [counts[n : n + per_sample] for n in range(0, len(counts), per_sample)]
    left = LENGTH - sum(counts) // 4
    tokens = [sum(sample) // 4 for sample in samples] or [0]
    tokens[-1] += max(1, min(text, left))
    return Pack(samples, tokens)


def fitting(images: Images) -> Images:
    """The first images that a pack has room for."""
    kept: list[tuple[int, int]] = []
    for h, w in images:
        if sum(a * b for a, b in kept) + h * w < 4 * LENGTH:
            kept.append((h, w))
    return kept


def analysed(log: Path, facts: Mapping[str, object] = STILLS) -> Analysis:
    return analyse(tables_of(log, facts))


def row_of(log: Path, facts: Mapping[str, object] = STILLS) -> MetricsRow:
    (row,) = metrics_rows(analysed(log, facts).metrics)
    return row


def flops_of_images(tower: VisionTower | None, grids: Sequence[Grid]) -> float:
    assert tower is not None
    return flops_per_token(vision.tower_operators(tower, grids))


# --- metamorphic ----------------------------------------------------------------------------

steps_of_one_pack = st.lists(st.lists(IMAGE, max_size=12).map(fitting), min_size=2, max_size=6)


@FEW
@given(steps_of_one_pack, st.integers(500, 4000), st.integers(1, 3), st.sampled_from([1, 2, 4]))
def test_images_printed_and_read_back_have_their_flops(
    tmp_path: Path, steps: list[Images], text: int, per_sample: int, sharing: int
) -> None:
    """FLOPs of drawn images, one pack a step: within the rounding of the print.

    A ratio is within 5e-9 + 2^-22 of itself. So the attention is within that share of the squared
    patches; every other operator is exact.
    """
    packs = [pack_of(images, text - text % sharing, per_sample) for images in steps]
    packs = [
        Pack(pack.images, [*pack.tokens[:-1], pack.tokens[-1] + -sum(pack.tokens) % sharing])
        for pack in packs
    ]
    log = write_log(
        tmp_path / "rank0.log",
        [[pack] for pack in packs],
        LENGTH,
        model=QWEN3_VL_4B,
        sharing=sharing,
    )
    found = operators_of(log)
    counted = list(zip(steps, packs, strict=True))[1:]  # the first window has the start-up
    tokens = sum(sum(pack.tokens) for _, pack in counted)
    grids = [(1, h, w) for images, _ in counted for h, w in images]
    assert TOWER_OF_QWEN is not None
    true = flops_of_images(TOWER_OF_QWEN, grids) / tokens
    seen = sum(value for name, value in found.items() if name.startswith("vision"))
    allowed = (
        sum((5e-9 + 2.0**-22) * sum(h * w for h, w in images) ** 2 for images, _ in counted)
        / tokens
    )
    per_pair = 3 * 4 * 1024 * TOWER_OF_QWEN.depth
    assert abs(seen - true) <= allowed * per_pair + 1e-9 * true
    exact = vision.tower_operators(TOWER_OF_QWEN, grids)
    for op in exact:
        if op.name != "vision core attention":
            assert found[op.name] == pytest.approx(op.training / tokens, rel=1e-12)


def operators_of(log: Path) -> dict[str, float]:
    """Training FLOPs per token by operator, which add up to the run's."""
    run = analysed(log)
    (row,) = metrics_rows(run.metrics)
    table = run.operators(row["run_id"])
    assert table["flops_per_token"].sum() == pytest.approx(row["flops_per_token"], rel=1e-12)
    return dict(table.select("operator", "flops_per_token").iter_rows())


@FEW
@given(
    st.lists(
        st.lists(st.lists(IMAGE, max_size=8).map(fitting), min_size=2, max_size=4),
        min_size=3,
        max_size=5,
    )
)
def test_of_several_packs_the_images_lie_between_the_bounds(
    tmp_path: Path, steps: list[list[Images]]
) -> None:
    packs = [[pack_of(images, 2000) for images in of_step] for of_step in steps]
    counts = row_of(write_log(tmp_path / "r.log", packs, LENGTH, model=QWEN3_VL_4B))["image_counts"]
    assert counts is not None
    tokens = sum(sum(pack.tokens) for of_step in packs[1:] for pack in of_step)
    patches = [h * w for of_step in steps[1:] for images in of_step for h, w in images]
    assert counts["tokens"] == pytest.approx(sum(patches) / tokens, rel=1e-12)
    squares = sum(n * n for n in patches) / tokens
    low, high, packed = (counts[f"squares_{end}"] for end in ("low", "high", "packed"))
    assert low is not None
    assert high is not None
    assert packed is not None
    assert low <= squares * (1 + 1e-12)
    assert squares <= min(high, packed * 4) * (1 + 1e-12)


@FEW
@given(
    st.lists(
        st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=4), min_size=1, max_size=3),
        min_size=2,
        max_size=5,
    )
)
def test_tiles_are_exact_whatever_the_packs(tmp_path: Path, steps: list[list[list[int]]]) -> None:
    """Tiles have one size, so that neither ratio nor packs matter."""
    packs = [
        [Pack([[256 * n] for n in tiles], [256 * n + 10 for n in tiles]) for tiles in of_step]
        for of_step in steps
    ]
    row = row_of(write_log(tmp_path / "r.log", packs, LENGTH, model=INTERNVL3_5_4B))
    tokens = sum(sum(pack.tokens) for of_step in packs[1:] for pack in of_step)
    tiles = sum(sum(of_pack) for of_step in steps[1:] for of_pack in of_step)
    seen = flops_of_images(TOWER_OF_INTERNVL, [(1, 32, 32)] * tiles) / tokens
    text = find_model("qwen3-4b")
    alone = flops_per_token(operators(text, LENGTH, attended=row["attended_pairs"]))
    assert row["flops_per_token"] == pytest.approx(seen + alone, rel=1e-12)
    assert row["mfu"] is not None
    assert row["mfu_language_model"] == pytest.approx(row["mfu"] * alone / (seen + alone), rel=1e-9)


# --- the counter ----------------------------------------------------------------------------

COUNTED: Final[dict[str, Any]] = json.loads(
    (TESTS / "golden" / "flop_counter" / "vision.json").read_text()
)
OF_WHOLE_MODELS: Final = ("InternVL", "Qwen3-VL", "Qwen3-VL-MoE", "Qwen3.5")


@pytest.mark.parametrize("name", OF_WHOLE_MODELS)
def test_the_flops_of_a_log_are_those_of_the_flop_counter(name: str, tmp_path: Path) -> None:
    """Towers that PyTorch counted, on the still images that it counted: 0 FLOPs off."""
    case = COUNTED[name]
    tower = vision.from_hugging_face(case["config"])
    assert tower is not None
    frames = [(1, h, w) for t, h, w in case["grids"] for _ in range(t)]
    unit = 4 if tower.grid else 1
    pack = Pack([[h * w // unit] for _, h, w in frames], [100, *[200] * (len(frames) - 1)])
    log = write_log(tmp_path / "r.log", [[pack]] * 5, LENGTH, model=None)
    facts = {**STILLS, "model_config": json.dumps(case["config"]), "precision": "bf16"}
    table = analyse(tables_of(log, {**facts, "trainable": "full"}))
    found = table.operators(table.metrics["run_id"][0]).to_dicts()
    forward = sum(
        op["forward_flops_per_token"] for op in found if op["operator"].startswith("vision")
    )
    assert round(forward * sum(pack.tokens)) - case["forward"] == 0
    assert forward_flops_per_token(vision.tower_operators(tower, frames)) == case["forward"]


# --- doubts ---------------------------------------------------------------------------------

ONE_PACK: Final = Pack([[1024, 2048], [512]], [3000, 1500])


def log_of(folder: Path, packs: Sequence[Pack] = (ONE_PACK,), **more: Any) -> Path:
    return write_log(folder / "r.log", [packs] * 12, LENGTH, **({"model": QWEN3_VL_4B} | more))


def test_a_run_shows_both_figures(tmp_path: Path) -> None:
    row = row_of(log_of(tmp_path))
    assert row["model"] == "qwen3-vl-4b"
    assert row["params_total"] == 4_437_815_808
    assert row["mfu"] is not None
    assert row["mfu_language_model"] is not None
    assert 0 < row["mfu_language_model"] < row["mfu"]
    assert row["mfu_language_model"] < row["hfu_language_model_low"] < row["hfu_low"]
    assert row["hfu_language_model_high"] < row["hfu_high"] < row["mfu"] * 4 / 3
    assert row["missing"] == []


def test_a_run_without_images_counts_no_tower(tmp_path: Path) -> None:
    row = row_of(log_of(tmp_path, [Pack([], [3000])]), FACTS)
    text = find_model("qwen3-4b")
    alone = operators(text, LENGTH, attended=row["attended_pairs"])
    assert row["flops_per_token"] == pytest.approx(flops_per_token(alone), rel=1e-12)
    assert row["mfu"] == row["mfu_language_model"]
    assert not of_kind(row, VIDEOS_POSSIBLE)


@pytest.mark.parametrize("policy", ["none", "full", "selective_attention"])
def test_a_frozen_tower_runs_once_whatever_is_recomputed(policy: str, tmp_path: Path) -> None:
    """It has no backward pass, so HFU adds the same with both bounds."""
    facts = {**FACTS, "frozen_parts": "vision,projector", "recompute": policy}
    row = row_of(log_of(tmp_path), facts)
    alone = row["hfu_language_model_low"], row["hfu_language_model_high"]
    added = row["mfu"] - row["mfu_language_model"]
    assert [row["hfu_low"], row["hfu_high"]] == pytest.approx([hfu + added for hfu in alone])


def test_without_images_both_figures_are_alike(tmp_path: Path) -> None:
    row = row_of(log_of(tmp_path, [Pack([], [3000])]), FACTS)
    assert row["hfu_low"] == row["hfu_language_model_low"]


def test_another_tower_is_another_model(tmp_path: Path) -> None:
    """A run with a tower never ranks with its language model alone."""
    seeing = row_of(log_of(tmp_path, [Pack([], [3000])]))
    text = row_of(log_of(tmp_path, [Pack([], [3000])], model=QWEN3_VL_4B["text_config"]), FACTS)
    assert text["work"] != seeing["work"]


@pytest.mark.parametrize(("videos", "known"), [(None, True), (False, True), (True, False)])
def test_videos_are_in_doubt_unless_said(
    tmp_path: Path, *, videos: bool | None, known: bool
) -> None:
    log = log_of(tmp_path, [Pack([[8192], [8192]], [2048, 2048])])
    row = row_of(log, FACTS if videos is None else {**FACTS, "videos": videos})
    assert (row["mfu"] is not None) == known
    assert len(of_kind(row, VIDEOS_POSSIBLE)) == (videos is None)
    assert len(of_kind(row, VIDEO_FRAMES_UNKNOWN)) == (videos is True)
    assert row["mfu_language_model"] is not None


def test_unknown_sizes_leave_a_lower_bound(tmp_path: Path) -> None:
    """Before variant Q, the ratio may be of samples: it is not used."""
    row = row_of(log_of(tmp_path, variant="P"))
    assert row["mfu"] is None
    assert row["flops_per_token"] is None
    (words,) = of_kind(row, IMAGE_SIZES_UNKNOWN)
    assert "MFU is at least" in words
    exact = row_of(log_of(tmp_path))["mfu"]
    assert exact is not None
    assert float(words.split("at least ")[1].split("%")[0]) / 100 <= exact + 5e-4


def test_runs_rank_by_the_flops_of_both(tmp_path: Path) -> None:
    """Like for like: the same model with its tower, the same FLOPs with its images."""

    def table(name: str, packs: Sequence[Pack], facts: Any = STILLS, **more: Any) -> pl.DataFrame:
        (tmp_path / name).mkdir()
        log = log_of(tmp_path / name, packs, **more)
        return analysed(log.rename(log.with_stem(name)), facts).metrics

    few, many, none = [Pack([[256]], [4000])], [Pack([[4096]], [4000])], [Pack([], [4000])]
    text = {**FACTS, "trainable": "full", "model": "qwen3-4b"}
    tables = [table("few", few), table("again", few), table("many", many)]
    tables += [table("old", few, variant="P")]
    tables += [table("text", none, text, model=QWEN3_VL_4B["text_config"])]
    ranked = rank_runs(pl.concat(tables))
    by_name = {row["name"]: row["group"] for row in ranked.iter_rows(named=True)}
    assert by_name["few"] == by_name["again"]
    assert len({by_name[name] for name in ("few", "many", "text", "old")}) == 4
    assert by_name["old"] is None
    (reason,) = ranked.filter(pl.col("name") == "old")["not_ranked"].to_list()
    assert reason == ["unknown FLOPs per token: those of the vision tower"]


def test_image_tokens_of_another_unit_are_not_read(tmp_path: Path) -> None:
    """Without a ratio on the line, img_tokens are older, and of Qwen's towers no patches."""
    log = log_of(tmp_path)
    text = re.sub(r", img_efficient_attn_ratio: [\d.]+", "", log.read_text())
    log.write_text(text)
    row = row_of(log)
    assert row["mfu"] is None
    assert row["mfu_language_model"] is None
    assert row["image_counts"] is None
    assert any("does not count the patches" in words for words in row["warnings"])


def test_the_images_of_all_ranks_add_up(tmp_path: Path) -> None:
    """A mean of ratios is no ratio of means: each rank's squares count."""
    of_ranks = [[Pack([[4096], [64]], [3000, 500])], [Pack([[256]], [4000])]]
    lines = [
        step_line(step, packs, LENGTH, rank=rank)
        for step in range(1, 13)
        for rank, packs in enumerate(of_ranks)
    ]
    log = tmp_path / "stderr.log"
    log.write_text("\n".join([*config_lines(QWEN3_VL_4B), *lines]) + "\n")
    counts = row_of(log, {**STILLS, "gpus": 2})["image_counts"]
    assert counts is not None
    assert counts["tokens"] == pytest.approx((4096 + 64 + 256) / 7500)
    squares = (4096**2 + 64**2 + 256**2) / 7500
    assert counts["squares_low"] == pytest.approx(squares, rel=1e-6)
    assert counts["squares_high"] == pytest.approx(squares, rel=1e-6)


def test_several_packs_may_leave_bounds(tmp_path: Path) -> None:
    packs = [Pack([[16384]], [5000]), Pack([[64]], [5000])]
    row = row_of(log_of(tmp_path, packs))
    assert row["mfu"] is None
    (words,) = of_kind(row, IMAGE_SIZES_BOUNDED)
    low, high = (float(part.split("%")[0]) for part in words.split("MFU is ")[1].split(" to "))
    assert low < high


def test_tiles_need_no_ratio(tmp_path: Path) -> None:
    tiles = [Pack([[256 * 3], [256]], [1000, 500])]
    new, old = (
        row_of(log_of(tmp_path, tiles, model=INTERNVL3_5_4B, variant=variant)) for variant in "QP"
    )
    assert new["mfu"] is not None
    assert old["mfu"] == pytest.approx(new["mfu"], rel=1e-12)


def test_frozen_parts_run_forward_only(tmp_path: Path) -> None:
    """A frozen tower costs a third, and a frozen projector on top of it a third."""

    def seen(**freezes: bool) -> float:
        found = operators_of(log_of(tmp_path, model=QWEN3_VL_4B | freezes))
        return sum(flops for name, flops in found.items() if name.startswith("vision"))

    assert seen(freeze_vision=True, freeze_projector=True) == pytest.approx(seen() / 3)
    row = row_of(log_of(tmp_path, model=QWEN3_VL_4B | {"freeze_vision": True}))
    assert row["trained"] == "full, frozen vision tower"
    assert row["trainable"] == "full"


def test_adapters_need_frozen_parts(tmp_path: Path) -> None:
    log = log_of(tmp_path, model=None)
    config = json.dumps(find_config("qwen3-vl-4b"))
    lora = {"trainable": "lora", "lora_rank": 8, "lora_targets": "q_proj", "precision": "bf16"}
    facts = {**STILLS, **lora, "model_config": config}
    row = row_of(log, facts)
    assert row["missing"] == ["frozen_parts"]
    assert of_kind(row, TRAINED_PARTS_UNKNOWN)
    assert row_of(log, {**facts, "frozen_parts": "vision, projector"})["mfu"] is not None


@pytest.mark.parametrize("flops", [None, 5e10])
def test_unknown_sizes_leave_the_mfu_to_given_flops(tmp_path: Path, flops: float | None) -> None:
    facts = STILLS if flops is None else {**STILLS, "flops_per_token": flops, "precision": "bf16"}
    run = analysed(log_of(tmp_path, variant="P"), facts)
    (row,) = metrics_rows(run.metrics)
    assert row["flops_per_token"] == flops
    assert row["flops_per_token_full_attention"] is None
    assert (row["mfu"] is None) == (flops is None)
    assert run.operators(row["run_id"]).is_empty() == (flops is None)
    assert row["params_total"] == 4_437_815_808
    assert "other-flops" not in (row["warning_kinds"] or ())


def test_a_text_model_of_a_log_with_images_is_refused(tmp_path: Path) -> None:
    log = log_of(tmp_path, model=None)
    text = {"model": "qwen3-4b", "trainable": "full", "precision": "bf16"}
    row = row_of(log, {**FACTS, **text})
    assert (row["mfu"], row["missing"]) == (None, ["model"])
    assert of_kind(row, IMAGES_WITHOUT_TOWER)


def test_a_known_name_brings_its_tower(tmp_path: Path) -> None:
    named = {"model": "Qwen/Qwen3-VL-4B-Instruct", "trainable": "full", "precision": "bf16"}
    row = row_of(log_of(tmp_path, model=None), {**STILLS, **named})
    printed = row_of(log_of(tmp_path))
    assert row["flops_per_token"] == printed["flops_per_token"]
    assert row["work"] == printed["work"]


def test_no_fact_is_asked_for_where_none_helps(tmp_path: Path) -> None:
    """Sizes leave the MFU open: the reason has no bounds that stand-ins gave."""
    tables = tables_of(log_of(tmp_path, variant="P"), {})
    (needs,) = find_needs(tables)
    assert needs.gain is None
    assert needs.reason == IMAGE_SIZES_UNKNOWN.when
    (needs,) = find_needs(tables_of(log_of(tmp_path, model=None), FACTS))
    assert needs.gain == "mfu"
    assert "model" in needs.facts
    assert "model_config" not in needs.facts


# --- contradictions -------------------------------------------------------------------------


@pytest.mark.parametrize("ratio", ["1.50000000", "0.00000001"])
def test_figures_of_no_images_are_told(tmp_path: Path, ratio: str) -> None:
    """A sum of squares is at most the square of the sum, and at least the sum."""
    log = log_of(tmp_path)
    lines = log.read_text().splitlines()
    (true,) = {line.split("img_efficient_attn_ratio: ")[1].split()[0] for line in lines[-3:]}
    log.write_text("\n".join(line.replace(f"ratio: {true}", f"ratio: {ratio}") for line in lines))
    row = row_of(log)
    assert row["mfu"] is None
    assert of_kind(row, IMAGE_FIGURES_IMPOSSIBLE)
    assert row["mfu_language_model"] is not None


def test_more_images_than_tokens_are_told(tmp_path: Path) -> None:
    row = row_of(log_of(tmp_path, [Pack([[4096]], [1000])]))
    assert row["mfu"] is None
    assert of_kind(row, MORE_IMAGES_THAN_TOKENS)


def test_a_run_of_images_alone_contradicts_nothing(tmp_path: Path) -> None:
    row = row_of(log_of(tmp_path, [Pack([[4 * 997], [4 * 1003]], [997, 1003])]))
    assert row["mfu"] is not None


def test_images_of_another_tower_are_told(tmp_path: Path) -> None:
    row = row_of(log_of(tmp_path, [Pack([[1026]], [1000])]))
    assert row["mfu"] is None
    assert of_kind(row, NO_WHOLE_IMAGES)


def test_a_printed_model_is_that_of_its_name() -> None:
    """XTuner's own config and Hugging Face's give the same shapes."""
    for printed, name in ((QWEN3_VL_4B, "qwen3-vl-4b"), (INTERNVL3_5_4B, "internvl3.5-4b")):
        from fairmfu.ingest.formats.xtuner import v1  # noqa: PLC0415 - its private reader

        config = v1._with_tower(printed)
        tower, known = vision.from_hugging_face(config), vision.find_tower(name)
        assert tower is not None
        assert known is not None
        assert tower.params_total == known.params_total
        grids = [(1, 32, 32)]
        assert vision.tower_operators(tower, grids) == vision.tower_operators(known, grids)
        text = from_hugging_face(config)
        assert operators(text, 64) == operators(find_model(name), 64)


def test_a_printed_model_with_other_widths_is_not_read() -> None:
    from fairmfu.ingest.formats.xtuner import v1  # noqa: PLC0415 - its private reader

    other = QWEN3_VL_4B | {"projector_config": {"vision_hidden_size": 1024}}
    assert v1._with_tower(other) == {}
    assert v1._with_tower(QWEN3_VL_4B | {"vision_config": {"hidden_size": 1024}}) == {}
