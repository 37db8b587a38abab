"""Columns cut by run, and sums that would wrap in 32 bits."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from fairmfu.metrics.core.quirks import has_quirk
from fairmfu.metrics.core.run_arrays import RunArrays, once_a_run, total
from fairmfu.metrics.throughput.windows import build_windows, steady_window_rows
from tests.metrics.throughput.test_throughput import at, facts, frame, rates, run, steps


def of(run_id: str, *parts: pl.DataFrame) -> list[pl.DataFrame]:
    return [part.with_columns(run_id=pl.lit(run_id)) for part in parts]


def spans() -> pl.DataFrame:
    rows = [{"step": n, "line": n, "elapsed_s": 1.0, "logged_at": at(n)} for n in range(1, 5)]
    given = facts(gpus=1, global_batch_size=1, seq_len=10)
    about = run(elapsed_covers="step")
    few, many = of("a", about, steps(*rows[:3]), given), of("b", about, steps(*rows), given)
    about, logged, given = (pl.concat(both) for both in zip(few, many, strict=True))
    happened = frame("events", {"run_id": "b", "line": 3, "kind": "checkpoint"})
    return build_windows(logged, about, given, happened)


def test_each_run_has_its_rows_alone() -> None:
    cut = RunArrays(spans()).by_run()
    assert list(cut) == ["a", "b"]
    assert cut["a"]["step"].tolist() == [1, 2, 3]
    assert cut["b"]["step"].tolist() == [1, 2, 3, 4]
    assert cut["a"].events() == []
    assert cut["b"].events() == [(2, ["checkpoint"])]
    assert cut["b"].has_events(["checkpoint", "profiler"]).tolist() == [False, False, True, False]
    assert [cut[name].value("step") for name in "ab"] == [1, 1]
    assert [cut[name].value("step", -1) for name in "ab"] == [3, 4]
    assert cut["a"].flags("first").tolist() == [True, False, False]


def test_what_is_null_is_no_number_and_times_are_microseconds() -> None:
    first = RunArrays(spans()).by_run()["b"]
    assert np.isnan(first["data_s"]).all()
    assert not first.has_any("data_s")
    assert first.has_all("elapsed_s")
    assert np.diff(first["logged_at"]).tolist() == [1e6, 1e6, 1e6]


@pytest.mark.parametrize(
    ("quirks", "has"), [(None, False), ([], False), (["other"], False), (["other", "mine"], True)]
)
def test_a_run_has_the_quirks_that_its_rows_name(quirks: list[str] | None, *, has: bool) -> None:
    frame = pl.DataFrame({"quirks": [quirks]}, schema={"quirks": pl.List(pl.String)})
    assert RunArrays(frame).has_quirk("mine") is has
    assert frame.select(has_quirk("mine")).item() is has


def test_values_of_a_run_may_be_replaced_for_it_alone() -> None:
    run = RunArrays(spans()).by_run()["b"]
    other = run.with_values(elapsed_s=np.full(4, 2.0))
    assert (run["elapsed_s"].tolist(), other["elapsed_s"].tolist()) == ([1.0] * 4, [2.0] * 4)
    both = other.with_values(data_s=np.zeros(4))
    assert (both["elapsed_s"].tolist(), both["data_s"].tolist()) == ([2.0] * 4, [0.0] * 4)
    assert both.value("step", -1) == 4
    assert run.with_values(first=np.ones(4)).flags("first").tolist() == [True] * 4


def test_clean_windows_of_several_runs_at_once_are_those_of_each() -> None:
    both = spans()
    apart = [
        steady_window_rows(one, "elapsed")
        for one in both.partition_by("run_id", maintain_order=True)
    ]
    assert steady_window_rows(both, "elapsed").equals(pl.concat(apart))


# --- 32 bits --------------------------------------------------------------------------------

MANY = 65_536
STEPS = 50_000
"""Of so many tokens each: 3.3 billion, beyond what 32 bits hold."""


@pytest.mark.parametrize("dtype", [pl.Int32, pl.UInt32, pl.Int64, pl.Float32])
def test_a_total_does_not_wrap(dtype: pl.DataType) -> None:
    assert total(pl.Series([MANY] * STEPS, dtype=dtype)) == MANY * STEPS


@pytest.mark.parametrize("dtype", [pl.Int32, pl.Int64])
def test_the_tokens_of_a_long_run_do_not_wrap(dtype: pl.DataType) -> None:
    """Steps as a reader of 32 bits would give them: the rate is that of all tokens."""
    integers = ("line", "step", "samples", "sequence_length")
    logged = steps({"step": 1, "elapsed_s": 1.0, "samples": 1, "sequence_length": MANY})
    logged = pl.concat([logged] * STEPS).with_columns(
        line=pl.int_range(1, STEPS + 1), step=pl.int_range(1, STEPS + 1)
    )
    row = rates(
        logged.cast(dict.fromkeys(integers, dtype)), run(elapsed_covers="step"), facts(gpus=1)
    )
    assert row["tgs"] == row["tgs_median"] == MANY
    assert row["tokens_per_gpu_step"] == MANY
    assert row["time_lost"] == []


def test_polars_sums_of_32_bits_do_wrap() -> None:
    """Why the tests above are there; where this fails, Polars has become safer."""
    assert pl.Series([MANY] * STEPS, dtype=pl.Int32).sum() != MANY * STEPS


def test_what_is_kept_of_a_run_is_of_its_own_values_and_evidence() -> None:
    asked = []

    @once_a_run
    def first(run: RunArrays, evidence: str) -> float:
        asked.append(evidence)
        return float(run[f"{evidence}_time"][1])

    run = RunArrays(spans()).by_run()["a"]
    assert [first(run, "elapsed"), first(run, "elapsed")] == [1.0, 1.0]
    assert asked == ["elapsed"]
    first(run, "stamp")
    longer = run.with_values(elapsed_time=np.full(run.height, 2.0))
    assert first(longer, "elapsed") == 2.0
    assert asked == ["elapsed", "stamp", "elapsed"]
