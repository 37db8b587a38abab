"""Start-up, growth of memory, and losses at counts that all runs share."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.metrics.core.run_arrays import RunArrays
from fairmfu.metrics.core.run_course import losses_at_counts, memory_growth, run_course

COLUMNS = {
    "step": pl.Int64,
    "loss": pl.Float64,
    "peak_memory_bytes": pl.Float64,
    "tokens_per_gpu": pl.Float64,
    "gpus": pl.Int64,
    "seq_len": pl.Int64,
    "consumed_tokens": pl.Float64,
    "consumed_samples": pl.Int64,
    "non_padding_count": pl.Float64,
}


def windows(steps: int = 400, every: int = 10, **columns: Any) -> RunArrays:
    step = np.arange(every, steps + 1, every)
    usual = {"step": step, "tokens_per_gpu": np.full(len(step), 8192.0)}
    usual |= {"gpus": np.full(len(step), 8), "loss": 2 + 9 * np.exp(-step / 60)}
    frame = pl.DataFrame(usual | columns, schema_overrides=COLUMNS)
    return RunArrays(frame.match_to_schema(pl.Schema(COLUMNS), missing_columns="insert"))


@given(growth=st.floats(-0.5, 3), lines=st.integers(12, 300))
def test_growth_is_over_all_lines(growth: float, lines: int) -> None:
    memory = 40e9 * np.linspace(1, 1 + growth, lines)
    found = memory_growth(windows(10 * lines, peak_memory_bytes=memory))
    start = 1 + 0.1 * growth  # the first lines are left out
    assert found == pytest.approx(0.9 * growth / start, rel=0.35, abs=0.01)
    assert (found or 0) * growth >= 0


def test_caches_that_fill_first_are_no_growth() -> None:
    memory = np.full(40, 40e9)
    memory[:3] = 20e9
    assert memory_growth(windows(peak_memory_bytes=memory)) == 0.0
    assert memory_growth(windows(80, peak_memory_bytes=memory[:8])) is None
    assert memory_growth(windows()) is None


def test_losses_are_at_counts_that_do_not_depend_on_the_length() -> None:
    short, long = (losses_at_counts(windows(steps)) for steps in (400, 800))
    assert [each["count"] for each in short] == [round(2 ** (k / 2)) for k in (47, 48, 49)]
    assert {each["unit"] for each in short} == {"tokens"}
    assert long[: len(short)] == short
    assert short[-1]["loss"] == pytest.approx(2 + 9 * np.exp(-320 / 60), rel=0.05)


@given(every=st.sampled_from([1, 2, 5]))
def test_more_lines_give_nearly_the_same_losses(every: int) -> None:
    few = {each["count"]: each["loss"] for each in losses_at_counts(windows(1000, every=10))}
    many = {each["count"]: each["loss"] for each in losses_at_counts(windows(1000, every=every))}
    assert few.keys() <= many.keys()
    for count, loss in few.items():
        assert many[count] == pytest.approx(loss, rel=0.12)


def test_steps_count_where_tokens_are_unknown() -> None:
    unknown = np.full(40, np.nan)
    found = losses_at_counts(windows(tokens_per_gpu=unknown))
    assert [(each["unit"], each["count"]) for each in found[-2:]] == [
        ("steps", 256),
        ("steps", 362),
    ]
    assert losses_at_counts(windows(loss=unknown)) == []
    course = run_course(windows(loss=unknown), {"startup_s": 12.5})
    assert course == {"startup_s": 12.5, "memory_growth": None, "losses": None}
