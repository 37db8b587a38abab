"""Which runs stand side by side, and which never do."""

from typing import Any

import polars as pl
import pytest

from fairmfu.metrics.compare import cost
from fairmfu.metrics.compare.comparability import (
    COMPARISON,
    compare_pair,
    format_value,
    rank_runs,
)
from fairmfu.metrics.compare.repeated_runs import comparison_sides, first_launches, speed_ratio
from fairmfu.metrics.core.messages import NOT_RANKED
from fairmfu.metrics.core.run_table import METRICS, metrics_rows
from fairmfu.reports.text.verdict import join_comparison
from tests.support.error_kinds import of_kind

RUN: dict[str, Any] = {
    "framework": "torchtitan",
    "model": "llama-3-8b",
    "seq_len": 8192,
    "precision": "bf16",
    "trainable": "full",
    "recompute": "full",
    "accelerator": "NVIDIA H100 80GB HBM3",
    "device": "NVIDIA H100 SXM",
    "gpus": 8,
    "token_basis": "packed",
    "work": "layers of llama",
    "attention_pattern": "causal",
    "trained": "full",
    "peak_flops": 989.4e12,
    "tokens_per_gpu_step": 16_384.0,
    "framework_version": "0.2.2",
    "synthetic": False,
    "flops_per_token": 5.1e10,
    "params_total": 8_030_261_248,
    "tgs": 6000.0,
    "tgs_low": 5900.0,
    "tgs_high": 6100.0,
    "missing": [],
    "warnings": [],
}


def metrics(*changes: dict[str, Any]) -> pl.DataFrame:
    rows = [RUN | {"run_id": f"r{i}", "name": f"r{i}"} | c for i, c in enumerate(changes)]
    return pl.DataFrame([{n: row.get(n) for n in METRICS} for row in rows], schema=METRICS)


def test_like_runs_are_ranked_by_tgs() -> None:
    found = rank_runs(metrics({"tgs": 5000.0, "tgs_high": 5100.0}, {}))
    assert found["name"].to_list() == ["r1", "r0"]
    assert found["relative_tgs"].to_list() == [1.0, pytest.approx(5 / 6)]
    assert found["tied_with_best"].to_list() == [True, False]


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("flops_per_token", 4.9e10),
        ("work", "other layers"),
        ("synthetic", True),
        ("seq_len", 4096),
        ("precision", "fp8"),
        ("trained", "lora of rank 8 on q_proj"),
        ("attention_pattern", "causal, stops at document borders"),
        ("device", "NVIDIA H100 PCIe"),
        ("token_basis", "slots"),
    ],
)
def test_other_work_or_another_device_is_another_group(name: str, other: object) -> None:
    found = rank_runs(metrics({}, {name: other}))
    assert found["group"].n_unique() == 2
    assert found["rank"].to_list() == [1, 1]


@pytest.mark.parametrize("name", ["precision", "device", "seq_len", "token_basis", "trained"])
def test_two_unknowns_are_not_the_same(name: str) -> None:
    found = rank_runs(metrics({name: None}, {name: None}))
    assert found["group"].null_count() == 2
    assert "unknown" in found["not_ranked"][0][0]


@pytest.mark.parametrize(
    ("name", "other"), [("gpus", 64), ("recompute", "none"), ("framework", "xtuner")]
)
def test_what_one_compares_is_named_and_keeps_the_group(name: str, other: object) -> None:
    found = rank_runs(metrics({}, {name: other}))
    assert found["group"].n_unique() == 1
    assert any(str(other) in text for text in found["differs"][0])


def test_values_that_differ_behind_what_is_shown_are_told_apart() -> None:
    said = 'float8_cfg {"scaling_granularity_gemm": "tilewise", "grouped_gemm": "'
    values = (f"{said}{last}" for last in ("tilewise", "tensorwise"))
    found = rank_runs(metrics(*({"quantization": value} for value in values)))
    assert found["differs"][0].to_list() == ["quantization: …ilewise vs …ensorwise"]


def test_a_padded_vocabulary_keeps_the_group_and_is_named() -> None:
    found = rank_runs(metrics({}, {"flops_per_token": 5.11e10}))
    assert found["group"].n_unique() == 1
    assert any("FLOPs per token" in text for text in found["differs"][0])


def test_packed_tokens_and_counted_tokens_are_one_basis() -> None:
    assert rank_runs(metrics({}, {"token_basis": "non_padding"}))["group"].n_unique() == 1


def test_one_device_has_one_name_however_it_is_printed() -> None:
    found = rank_runs(metrics({}, {"accelerator": "NVIDIA H100"}))
    assert found["group"].n_unique() == 1


@pytest.mark.parametrize(
    "change",
    [
        {"tgs": None, "missing": ["seq_len"]},
        {"implied": 1.7},
        {"warnings": [f"{NOT_RANKED}TGS by time stamps is 50.0% lower than by the logged rate."]},
    ],
)
def test_a_doubtful_run_is_shown_apart_with_why(change: dict[str, Any]) -> None:
    found = rank_runs(metrics({}, change))
    apart = found.filter(pl.col("name") == "r1")
    assert apart["rank"][0] is None
    assert apart["not_ranked"][0].to_list()


# --- how sure ---------------------------------------------------------------------------------


def by_name(found: pl.DataFrame) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in found.iter_rows(named=True)}


def test_overlapping_intervals_may_well_be_told_apart() -> None:
    """6,000 +- 100 against 5,860 +- 90: the intervals overlap, that of the ratio leaves 1 out."""
    rows = by_name(rank_runs(metrics({}, {"tgs": 5860.0, "tgs_low": 5770.0, "tgs_high": 5950.0})))
    assert rows["r1"]["tied_with_best"] is False
    # on the log scale: sqrt(ln(6100 / 6000)^2 + ln(5860 / 5770)^2) = 0.0226 above 5860 / 6000
    assert rows["r1"]["relative_high"] == pytest.approx(0.97667 * 1.02268, rel=1e-3)
    assert 0.02 < rows["r1"]["smallest_difference"] < 0.05


def test_a_difference_inside_the_noise_is_a_tie() -> None:
    rows = by_name(rank_runs(metrics({}, {"tgs": 5950.0, "tgs_low": 5850.0, "tgs_high": 6050.0})))
    assert rows["r1"]["tied_with_best"] is True
    assert rows["r1"]["relative_low"] < 1 < rows["r1"]["relative_high"]


@pytest.mark.parametrize("silent", [0, 1])
def test_without_an_interval_nobody_is_tied_and_nobody_wins(silent: int) -> None:
    changes: list[dict[str, Any]] = [{}, {"tgs": 3000.0, "tgs_low": 2990.0, "tgs_high": 3010.0}]
    changes[silent] |= {"tgs_low": None, "tgs_high": None}
    rows = by_name(rank_runs(metrics(*changes)))
    assert rows["r1"]["tied_with_best"] is None
    assert rows["r1"]["relative_low"] is None


def repeated(*rates: float, **changes: object) -> list[dict[str, Any]]:
    """Runs of one setup, each with a narrow interval of its own."""
    return [{"tgs": r, "tgs_low": r * 0.999, "tgs_high": r * 1.001, **changes} for r in rates]


def test_three_repeats_have_the_interval_between_runs() -> None:
    """Single runs differ by 2 %, their own intervals by 0.2 %: the setups are not told apart."""
    runs = [*repeated(6000.0, 6120.0, 5880.0), *repeated(5950.0, 6070.0, 5830.0, recompute="none")]
    found = rank_runs(metrics(*runs))
    assert found["setup"].to_list() == ["A"] * 3 + ["B"] * 3
    assert set(found["repeats"]) == {3}
    assert found["tied_with_best"].to_list() == [True] * 6
    two = rank_runs(metrics(runs[1], runs[3]))
    assert two["tied_with_best"].to_list() == [True, False]


def test_the_fastest_run_of_a_slower_setup_does_not_come_first() -> None:
    runs = [*repeated(6000.0, 6010.0, 5990.0), *repeated(6020.0, 5000.0, 4000.0, recompute="none")]
    found = rank_runs(metrics(*runs))
    assert found["rank"].to_list() == [1, 2, 3, 4, 5, 6]
    assert found["tgs"].to_list()[:3] == [6010.0, 6000.0, 5990.0]


def test_two_repeats_stand_for_themselves() -> None:
    found = rank_runs(metrics(*repeated(6000.0, 6120.0)))
    assert found["setup"].to_list() == ["A", "A"]
    assert found["tied_with_best"].to_list() == [True, False]


@pytest.mark.parametrize("unknown", ["gpus", "recompute", "framework_version"])
def test_runs_that_do_not_say_their_setup_are_no_repeats(unknown: str) -> None:
    """Three experiments would pass for one that was repeated, and their interval for noise."""
    found = rank_runs(metrics(*repeated(6000.0, 6120.0, 5880.0, **{unknown: None})))
    assert found["setup"].to_list() == ["A", "B", "C"]
    assert set(found["repeats"]) == {1}


def test_launches_that_continue_one_another_are_one_start() -> None:
    runs = repeated(6000.0, 6120.0, 5880.0)
    runs[1]["continues"], runs[2]["continues"] = "r0", "r1"
    found = rank_runs(metrics(*runs))
    assert set(found["repeats"]) == {1}
    assert set(found["chain"]) == {"r0"}
    assert first_launches([{"run_id": "a", "continues": "b"}, {"run_id": "b", "continues": "a"}])


def test_a_gap_says_why_it_has_no_interval() -> None:
    table = metrics({"tgs_low": None, "no_interval": "3 windows"}, {})
    rows = join_comparison(table, rank_runs(table), {})
    for row in rows:
        if row["name"] == "r0":
            row["no_interval"] = "3 windows"
    one, other = comparison_sides(rows)
    assert speed_ratio(one, other).no_interval_reason == "3 windows"
    assert speed_ratio(other, one).no_interval_reason == "3 windows"


# --- the logs' own order ----------------------------------------------------------------------


def test_the_rank_that_the_logs_give() -> None:
    found = rank_runs(
        metrics(
            {"tgs": 6300.0, "logged_tflops": 300.0, "logged_mfu": 0.5},
            {"tgs": 6000.0, "logged_tflops": 412.0, "logged_mfu": 0.3},
            {"tgs": 5500.0, "logged_mfu": 0.6, "logged_tgs": 5500.0},
        )
    )
    assert set(found["logged_by"].drop_nulls()) == {"logged_tflops"}
    assert found["logged_rank"].to_list() == [2, 1, None]


def test_what_most_logs_print_gives_the_order() -> None:
    runs = [{"logged_tgs": 6000.0 + i} for i in range(3)]
    found = by_name(rank_runs(metrics(*runs, {"logged_tflops": 300.0})))
    assert found["r2"]["logged_by"] == "logged_tgs"
    assert [found[f"r{i}"]["logged_rank"] for i in range(4)] == [3, 2, 1, None]


def test_one_figure_alone_gives_no_order() -> None:
    found = rank_runs(metrics({"logged_tflops": 300.0}, {}))
    assert found["logged_rank"].null_count() == 2


# --- across groups ----------------------------------------------------------------------------


def test_tgs_at_equal_flops_is_mfu_times_peak_over_flops() -> None:
    long = {"seq_len": 32_768, "flops_per_token": 7.1e10, "tgs": 4000.0}
    found = by_name(rank_runs(metrics({}, long)))
    assert found["r0"]["tgs_at_equal_flops"] == 6000.0
    mfu = 4000.0 * 7.1e10 / 989.4e12
    assert found["r1"]["tgs_at_equal_flops"] == pytest.approx(mfu * 989.4e12 / 5.1e10)
    assert found["r1"]["rank"] == found["r0"]["rank"] == 1
    assert found["r1"]["nearest_differs"] == [
        "sequence length (32,768 vs 8,192)",
        "FLOPs per token (7.1e+10 vs 5.1e+10)",
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"device": "NVIDIA H100 PCIe"},
        {"precision": "fp8"},
        {"token_basis": "slots"},
        {"work": "other layers"},
        {"peak_flops": None},
    ],
)
def test_no_tgs_at_equal_flops_where_more_than_the_flops_differs(change: dict[str, Any]) -> None:
    found = rank_runs(metrics({}, {"seq_len": 4096, "flops_per_token": 4.8e10} | change))
    assert found["tgs_at_equal_flops"].null_count() == 2


# --- cost -------------------------------------------------------------------------------------


def test_gpu_hours_and_money() -> None:
    euros = cost.price("2.50 EUR")
    found = rank_runs(
        metrics({"tgs": 1e9 / 3600 / 40, "tgs_end_to_end": 1e9 / 3600 / 50}), None, euros
    )
    row = found.row(0, named=True)
    assert row["gpu_hours_per_billion_tokens"] == pytest.approx(40)
    assert row["gpu_hours_per_billion_tokens_end_to_end"] == pytest.approx(50)
    assert row["cost_per_billion_tokens"] == pytest.approx(100)
    assert row["cost_per_billion_tokens_end_to_end"] == pytest.approx(125)
    assert row["price_per_gpu_hour"] == "2.50 EUR"


@pytest.mark.parametrize(
    ("text", "written"),
    [("2.5", "2.50"), ("$2.50", "2.50 $"), ("1.99 EUR", "1.99 EUR"), (".5", "0.50")],
)
def test_a_price_as_people_write_it(text: str, written: str) -> None:
    assert str(cost.price(text)) == written


@pytest.mark.parametrize("text", ["", "free", "-2", "0", "2,50 EUR", "2.5 or 3"])
def test_what_is_no_price(text: str) -> None:
    with pytest.raises(ValueError, check=of_kind("not-a-price")):
        cost.price(text)


def test_no_price_no_money() -> None:
    found = rank_runs(metrics({}))
    assert found["cost_per_billion_tokens"].null_count() == 1
    assert found["gpu_hours_per_billion_tokens"][0] == pytest.approx(1e9 / 6000 / 3600)


def test_the_columns_are_those_of_the_schema() -> None:
    assert rank_runs(metrics({}, {})).schema == COMPARISON


def test_no_run_at_all_is_an_empty_table() -> None:
    assert rank_runs(metrics()).height == 0


# --- bounds and words, by hand ----------------------------------------------------------------


@pytest.mark.parametrize(("times", "groups"), [(1.0099, 1), (1.0101, 2), (1 / 1.0101, 2)])
def test_flops_of_one_group_differ_by_less_than_one_percent(times: float, groups: int) -> None:
    found = rank_runs(metrics({}, {"flops_per_token": 5.1e10 * times}))
    assert found["group"].n_unique() == groups


def test_a_group_is_held_against_its_run_of_the_least_flops() -> None:
    """0.9 % above the least and 1.8 %: the third is like the second, and not like the first."""
    flops = [5.1e10 * times for times in (1.018, 1.0, 1.009)]
    found = by_name(rank_runs(metrics(*({"flops_per_token": one} for one in flops))))
    assert found["r1"]["group"] == found["r2"]["group"] != found["r0"]["group"]


def pair(first: dict[str, Any], second: dict[str, Any]) -> Any:
    return compare_pair(*metrics_rows(metrics(first, second)))


def test_a_pair_says_all_that_differs() -> None:
    verdict = pair({}, {"seq_len": 4096, "precision": "fp8", "gpus": 64})
    assert verdict.verdict == "same model"
    assert verdict.sentence == (
        "same model, different sequence length (8,192 vs 4,096); precision (bf16 vs fp8)"
    )
    assert verdict.differing_columns == ("seq_len", "precision")
    assert any(text.startswith("GPUs: ") for text in verdict.context)
    assert pair({}, {"gpus": 64}).sentence == "like for like"


def test_a_pair_with_obstacles_says_whose() -> None:
    verdict = pair({}, {"work": "other layers", "model": "mine", "synthetic": True, "tgs": None})
    assert verdict.verdict == "not comparable"
    assert verdict.sentence.startswith("not comparable: r1: no TGS")
    assert "one of the two is synthetic" in verdict.obstacles
    assert any("different models (" in text and "vs mine)" in text for text in verdict.obstacles)
    assert verdict.differences == ()


def test_measured_flops_are_context_only_of_runs_that_are_alike() -> None:
    near = pair({}, {"flops_per_token": 5.11e10})
    assert any("FLOPs per token" in text for text in near.context)
    far = pair({}, {"seq_len": 4096, "flops_per_token": 4.8e10})
    assert not any("FLOPs per token" in text for text in far.context)


def test_what_keeps_a_run_out_is_all_named() -> None:
    said = [f"{NOT_RANKED}odd.", "x"]
    bad = {"precision": None, "device": None, "implied": 1.7, "warnings": said}
    found = by_name(rank_runs(metrics({}, bad)))
    assert found["r1"]["not_ranked"] == [
        "unknown: precision, accelerator",
        "odd",
        "impossible: MFU would be 170%",
    ]
    unknown = {"flops_per_token": None, "missing": ["model_config"]}
    found = by_name(rank_runs(metrics({}, unknown)))
    assert found["r1"]["not_ranked"] == ["unknown FLOPs per token: model_config"]


def test_two_groups_of_one_label_say_what_tells_them_apart() -> None:
    found = rank_runs(metrics({}, {"flops_per_token": 6e10}, {"synthetic": True}))
    labels = set(found["group"])
    assert len(labels) == 3
    assert all("FLOPs/token, model " in label for label in labels)
    assert sum(label.endswith(", synthetic") for label in labels) == 1
    (label,) = rank_runs(metrics({}))["group"]
    assert "FLOPs/token" not in label


def test_groups_are_told_apart_whatever_a_run_calls_its_model() -> None:
    """The second run has the layers of the first, and another name for them."""
    found = rank_runs(
        metrics({}, {"model": "mine", "flops_per_token": 5.11e10}, {"synthetic": True})
    )
    assert found["group"].n_unique() == 2
    assert all("FLOPs/token, model " in label for label in found["group"])


@pytest.mark.parametrize("name", ["replicas", "replica_groups"])
def test_one_replica_and_none_that_is_said_are_one_setup(name: str) -> None:
    for value, setups in ((1, ["A", "A"]), (2, ["A", "B"]), (0, ["A", "B"])):
        assert rank_runs(metrics({}, {name: value}))["setup"].to_list() == setups


def test_what_only_some_runs_say_stands_last() -> None:
    found = rank_runs(metrics({"torch": "2.8", "gpus": 64}, {}, {"torch": "2.8"}))
    differs = found["differs"][0].to_list()
    assert differs[0].startswith("GPUs: ")
    assert differs[-1].startswith("Not compared, because not every log states them: ")
    assert "PyTorch" in differs[-1]


def test_the_logs_order_is_by_what_more_than_half_print() -> None:
    """Two of four are not enough for TFLOP/s; then MFU, that three print, gives the order."""
    runs = [{"tgs": 6000.0 - i} for i in range(4)]
    for one, tflops in zip(runs, (300.0, 400.0), strict=False):
        one["logged_tflops"] = tflops
    for one, mfu in zip(runs, (0.3, 0.4, 0.4), strict=False):
        one["logged_mfu"] = mfu
    found = by_name(rank_runs(metrics(*runs)))
    assert found["r0"]["logged_by"] == "logged_mfu"
    assert [found[f"r{i}"]["logged_rank"] for i in range(4)] == [3, 1, 1, None]


OWN = {
    "logged_reproduced": True,
    "logged_formula": "one",
    "logged_tflops": 300.0,
    "logged_flops_per_token": 5.1e10,
    "logged_unit": 1.0,
}


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"logged_flops_per_token": 5.1e10 * 1.0009}, None),
        ({"logged_flops_per_token": 5.1e10 * 1.0011, "logged_formula": "two"}, "1.001x apart"),
        ({"logged_flops_per_token": 5.1e10 * 4 / 3, "logged_formula": "two"}, "1.333x apart"),
        ({"logged_unit": 8.0}, "8.000x apart"),
        ({"logged_flops_per_token": 6e10, "logged_reproduced": False}, None),
        ({"logged_flops_per_token": 6e10, "logged_tflops": None}, None),
        ({"logged_flops_per_token": 6e10, "framework": "xtuner"}, None),
    ],
)
def test_two_formulas_of_one_framework_do_not_compare(
    other: dict[str, Any], told: str | None
) -> None:
    differs = rank_runs(metrics(OWN, OWN | other))["differs"][0].to_list()
    said = [text for text in differs if text.startswith("formulas of")]
    assert len(said) == (told is not None)
    assert told is None or told in said[0]


@pytest.mark.parametrize(
    ("other", "is_told"),
    [
        ({"logged_peak": 312e12}, True),
        ({"logged_peak": 989e12}, False),
        ({"logged_peak": 312e12, "logged_mfu": None}, False),
    ],
)
def test_two_peaks_of_one_device_do_not_compare(other: dict[str, Any], *, is_told: bool) -> None:
    own = OWN | {"logged_peak": 989e12, "logged_mfu": 0.4}
    differs = rank_runs(metrics(own, own | other))["differs"][0].to_list()
    said = [text for text in differs if text.startswith("peaks of")]
    assert bool(said) is is_told
    assert not is_told or "312 vs 989 TFLOP/s" in said[0]


def test_the_nearest_group_differs_in_the_least() -> None:
    found = by_name(
        rank_runs(
            metrics(
                {},
                {"precision": "fp8"},
                {"precision": "fp8", "trained": "lora of rank 8 on q_proj"},
                {"work": "other layers"},
            )
        )
    )
    assert found["r0"]["nearest_group"] == found["r1"]["group"]
    assert found["r2"]["nearest_group"] == found["r1"]["group"]
    assert found["r2"]["nearest_differs"] == ["trainable (lora of rank 8 on q_proj vs full)"]
    assert (found["r3"]["nearest_group"], found["r3"]["nearest_differs"]) == (None, [])


def test_equal_flops_are_of_the_group_with_the_least() -> None:
    long = {"seq_len": 32_768, "flops_per_token": 7.1e10, "tgs": 4000.0}
    found = by_name(rank_runs(metrics(long, {})))
    assert {found[name]["equal_flops"] for name in ("r0", "r1")} == {5.1e10}
    assert found["r0"]["tgs_at_equal_flops"] == pytest.approx(4000 * 7.1 / 5.1)
    alone = by_name(rank_runs(metrics({}, {})))
    assert alone["r0"]["tgs_at_equal_flops"] is None


def test_our_tflops_are_tgs_times_flops() -> None:
    found = by_name(rank_runs(metrics({}, {"tgs": None})))
    assert found["r0"]["tflops"] == pytest.approx(6000 * 5.1e10 / 1e12)
    assert found["r1"]["tflops"] is None
    assert found["r1"]["group"] is None


def test_documents_of_other_lengths_are_repeats_where_they_are_masked() -> None:
    masked = {"attention_pattern": "causal, stops at document borders"}
    for facts, setups in ((masked, ["A", "A"]), ({}, ["A", "B"])):
        runs = (facts | {"flops_per_token": flops} for flops in (5.1e10, 5.11e10))
        assert rank_runs(metrics(*runs))["setup"].to_list() == setups


@pytest.mark.parametrize(
    ("value", "text"),
    [(8192, "8,192"), (5.1234567e10, "5.1235e+10"), ("TRUE", "yes"), (False, "no"), ("x" * 61, 60)],
)
def test_values_as_they_are_shown(value: object, text: str | int) -> None:
    assert format_value(value) == ("x" * text if isinstance(text, int) else text)
