"""Runs whose tokens are unknown: ranked by samples/s, or not, and why."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fairmfu.ingest import read_logs
from fairmfu.metrics.compare.comparability import rank_runs
from fairmfu.metrics.pipeline.analysis import Analysis, analyse
from fairmfu.reports.comparison.comparison import Comparison, compare

STEPS = 40


def pipeline_log(
    seconds: float, batch: int, loss: float = 2.0, every: int = 1, day: int = 4
) -> str:
    """DeepSpeed's pipeline engine: two lines every `every` steps, without tokens or model."""
    at, lines = datetime(2026, 9, day, 15), []
    for step in range(1, STEPS + 1):
        took = seconds * (1 + 0.002 * ((7 * step) % 5 - 2))
        at += timedelta(seconds=took)
        if step % every:
            continue
        stamp = f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03d}"
        lines += [
            f"[{stamp}] [INFO] [logging.py:107:log_dist] [Rank 0] step={step}, skipped=0, "
            "lr=[1e-05], mom=[0.0]",
            f"steps: {step} loss: {loss + 0.01 * (step % 3):.4f} iter time (s): {took:.3f} "
            f"samples/sec: {batch / took:.3f}",
        ]
    return "\n".join(lines)


def analysed(folder: Path, **logs: str) -> Analysis:
    for name, text in logs.items():
        (folder / f"{name}.log").write_text(text)
    return analyse(read_logs(*sorted(folder.glob("*.log"))))


def compared(folder: Path, **logs: str) -> Comparison:
    return compare(analysed(folder, **logs))


@settings(max_examples=8, deadline=None)
@given(st.floats(0.5, 60), st.floats(1.05, 4), st.integers(1, 64))
def test_equal_batches_rank_by_samples(
    tmp_path_factory: pytest.TempPathFactory, seconds: float, times: float, batch: int
) -> None:
    """If all rates of a log end in 0, their last digit is not seen: the batch may be unknown."""
    rates = (batch / seconds, batch / (seconds * times))
    assume(all(round(rate, 3) != round(rate, 2) for rate in rates))
    folder = tmp_path_factory.mktemp("logs")
    slow, fast = pipeline_log(seconds * times, batch, day=5), pipeline_log(seconds, batch)
    found = compared(folder, slow=slow, fast=fast)
    best, other = found.table.to_dicts()
    assert (best["name"], best["ranked_unit"], best["samples_per_update"]) == (
        "fast",
        "samples/s",
        batch,
    )
    assert best["ranked_rate"] == pytest.approx(batch / seconds, rel=5e-3)
    assert 1 / other["relative_tgs"] == pytest.approx(times, rel=5e-3)
    assert other["tied_with_best"] is False
    (sentence,) = found.sentences
    assert "Ranked by samples/s, because the logs state no sequence length" in sentence
    assert f"both have a global batch of {batch}." in sentence
    assert "equal model, sequence length, packing, GPUs" in sentence


def test_a_batch_whose_rates_hide_a_digit_is_unknown(tmp_path: Path) -> None:
    """0.010 at 192 s reads as 0.01: one or two samples."""
    found = compared(tmp_path, slow=pipeline_log(192.0, 2), fast=pipeline_log(48.0, 2))
    batches = dict(found.table.select("name", "samples_per_update").rows())
    assert batches == {"fast": 2, "slow": None}
    assert found.table["rank"].to_list() == [None, None]


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (pipeline_log(2.0, 8), "different global batch"),
        (pipeline_log(2.0, 4, loss=3.0), "losses differ at equal steps"),
        (pipeline_log(2.0, 4, every=10), "losses cannot be compared"),
    ],
)
def test_other_work_is_never_ranked(tmp_path: Path, other: str, why: str) -> None:
    """Not in the table, and not in the sentence on a pair."""
    found = compared(tmp_path, one=pipeline_log(1.0, 4), other=other)
    assert found.table["rank"].to_list() == [None, None]
    (sentence,) = found.sentences
    assert "not comparable" in sentence
    assert why in sentence
    assert why in str(found.table["not_ranked"].to_list())
    assert "as fast" not in sentence


def test_a_third_run_of_another_batch_changes_no_rank(tmp_path: Path) -> None:
    logs = {"one": pipeline_log(1.0, 4), "two": pipeline_log(1.3, 4)}
    both = compared(tmp_path, **logs).table
    three = compared(tmp_path, **logs, other=pipeline_log(1.7, 8)).table
    names = ("name", "rank", "relative_tgs", "group")
    assert three.filter(three["rank"].is_not_null()).select(names).equals(both.select(names))
    assert "different global batch" in str(three["not_ranked"].to_list())


def test_a_batch_that_no_line_tells_is_asked_for(tmp_path: Path) -> None:
    """Samples/s that fit several batches name none."""
    text = pipeline_log(0.02, 300)  # 0.020 s: the third digit is 5 % of a step
    found = compared(tmp_path, one=text, other=text.replace("2026", "2025"))
    assert found.table["rank"].to_list() == [None, None]
    assert "its global batch is unknown" in str(found.table["not_ranked"].to_list())
    assert "global_batch_size=N" in str(found.table["not_ranked"].to_list())


def test_a_run_without_a_match_says_what_it_said_before(tmp_path: Path) -> None:
    found = compared(tmp_path, one=pipeline_log(1.0, 4))
    assert [reason[:16] for reason in found.table["not_ranked"][0]] == ["no TGS: missing "]


def test_a_slow_start_or_stall_is_a_doubt_of_samples_too(tmp_path: Path) -> None:
    """The rate without tokens has the doubts of a TGS, and never calls itself one."""
    lines = pipeline_log(1.0, 4).splitlines()
    slow = "steps: 20 loss: 2.0200 iter time (s): 9.000 samples/sec: 0.444"
    text = "\n".join(slow if line.startswith("steps: 20 ") else line for line in lines)
    (row,) = analysed(tmp_path, one=text).metrics.to_dicts()
    assert row["samples_per_update"] == 4
    assert row["doubts"]
    assert not [doubt for doubt in row["doubts"] if "TGS" in doubt]


def test_a_pack_is_no_sample(tmp_path: Path) -> None:
    analysis = analysed(tmp_path, one=pipeline_log(1.0, 4), other=pipeline_log(2.0, 4))
    packed = analysis.metrics.with_columns(
        packed=pl.when(pl.col("name") == "one").then(pl.lit("true")).otherwise(pl.lit("false"))
    )
    ranked = rank_runs(packed, analysis.loss_lines)
    assert ranked["rank"].to_list() == [None, None]
    assert "different packing" in ranked["not_ranked"][0][-1]
