"""Which runs stand side by side, and which never do."""

from typing import Any

import polars as pl
import pytest

from metrics.fairness import compare, ratio_interval
from metrics.utilization import METRICS

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
    found = compare(metrics({"tgs": 5000.0, "tgs_high": 5100.0}, {}))
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
        ("trainable", "lora"),
        ("device", "NVIDIA H100 PCIe"),
        ("token_basis", "slots"),
    ],
)
def test_other_work_or_another_device_is_another_group(name: str, other: object) -> None:
    found = compare(metrics({}, {name: other}))
    assert found["group"].n_unique() == 2
    assert found["rank"].to_list() == [1, 1]


@pytest.mark.parametrize("name", ["precision", "device", "seq_len", "token_basis", "trainable"])
def test_two_unknowns_are_not_the_same(name: str) -> None:
    found = compare(metrics({name: None}, {name: None}))
    assert found["group"].null_count() == 2
    assert "unknown" in found["not_ranked"][0][0]


@pytest.mark.parametrize(
    ("name", "other"), [("gpus", 64), ("recompute", "none"), ("framework", "xtuner")]
)
def test_what_one_compares_is_named_and_keeps_the_group(name: str, other: object) -> None:
    found = compare(metrics({}, {name: other}))
    assert found["group"].n_unique() == 1
    assert any(str(other) in text for text in found["differs"][0])


def test_a_padded_vocabulary_keeps_the_group_and_is_named() -> None:
    found = compare(metrics({}, {"flops_per_token": 5.11e10}))
    assert found["group"].n_unique() == 1
    assert any("FLOPs per token" in text for text in found["differs"][0])


def test_packed_tokens_and_counted_tokens_are_one_basis() -> None:
    assert compare(metrics({}, {"token_basis": "non_padding"}))["group"].n_unique() == 1


def test_one_device_has_one_name_however_it_is_printed() -> None:
    found = compare(metrics({}, {"accelerator": "NVIDIA H100"}))
    assert found["group"].n_unique() == 1


@pytest.mark.parametrize(
    "change",
    [
        {"tgs": None, "missing": ["seq_len"]},
        {"implied": 1.7},
        {"warnings": ["time stamps give -50.0% TGS against the logged rate: not ranked"]},
    ],
)
def test_a_doubtful_run_is_shown_apart_with_why(change: dict[str, Any]) -> None:
    found = compare(metrics({}, change))
    apart = found.filter(pl.col("name") == "r1")
    assert apart["rank"][0] is None
    assert apart["not_ranked"][0].to_list()


def test_the_interval_of_a_ratio_is_tighter_than_bounds_over_bounds() -> None:
    best, other = dict(RUN), RUN | {"tgs": 5000.0, "tgs_low": 4900.0, "tgs_high": 5100.0}
    interval = ratio_interval(best, other)
    assert interval is not None
    assert 5900 / 5100 < interval[0] < 1.2 < interval[1] < 6100 / 4900
    assert ratio_interval(best, other | {"tgs_low": None}) is None


def test_no_run_at_all_is_an_empty_table() -> None:
    assert compare(metrics()).height == 0
