"""Lines that print figures of a framework's own, of steps and of events."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest

from fairmfu.ingest.core.schema import TABLES
from fairmfu.metrics.audit import flops_profiler
from fairmfu.metrics.audit.logged_figures import (
    FIXED_DECIMALS,
    LOGGED_FIGURES,
    figure_lines,
    lines_by_run,
)


def table(name: str, *rows: dict[str, Any]) -> pl.DataFrame:
    schema = pl.Schema({column: known.dtype for column, known in TABLES[name].items()})
    return pl.DataFrame(
        [{column: row.get(column) for column in schema} for row in rows], schema=schema
    )


def step(line: int, run_id: str = "a", extra: dict[str, str] | None = None, **row: Any) -> Any:
    text = None if extra is None else json.dumps(extra)
    return {"run_id": run_id, "line": line, "step": line, "extra": text} | row


def event(kind: str, line: int, extra: dict[str, str], **row: Any) -> Any:
    return {"run_id": "a", "kind": kind, "line": line, "extra": json.dumps(extra)} | row


def test_lines_without_a_figure_are_left_out_and_the_others_keep_their_order() -> None:
    steps = table(
        "steps",
        step(9, logged_tgs=3.0),
        step(2, logged_tgs=1.0),
        step(5, elapsed_s=1.0),
        step(1, run_id="b", logged_mfu=0.4),
    )
    found = figure_lines(steps)
    assert found.select("run_id", "line").rows() == [("a", 2), ("a", 9), ("b", 1)]
    assert set(LOGGED_FIGURES) <= set(found.columns)
    assert {run: frame.height for run, frame in lines_by_run(found).items()} == {"a": 2, "b": 1}


@pytest.mark.parametrize(
    ("key", "text", "column", "value"),
    [
        ("[LM]-TFLOPs", "101.5", "logged_lm_tflops", 101.5),
        ("[LM]TFLOPs", "101.5", "logged_lm_tflops", 101.5),
        ("HFU", "54.97%", "logged_hfu", 0.5497),
        ("HFU", " 54.97 %", "logged_hfu", 0.5497),
        ("device_samples_per_second", "3", "logged_device_samples_per_second", 3.0),
        ("HFU", "1e33", "logged_hfu", None),  # a damaged number is no claim
        ("HFU", "-1e33", "logged_hfu", None),
        ("HFU", "many", "logged_hfu", None),
    ],
)
def test_figures_without_a_column_are_read_from_the_rest_of_a_line(
    key: str, text: str, column: str, value: float | None
) -> None:
    steps = table("steps", step(1, extra={key: text}), step(2, logged_tgs=1.0))
    found = figure_lines(steps)
    assert found.filter(line=2)[column].item() is None
    assert found.filter(line=1)[column].to_list() == ([] if value is None else [value])


def test_a_figure_of_timers_is_of_the_step_before_it() -> None:
    steps = table("steps", step(10, elapsed_s=2.0, samples=16), step(20, elapsed_s=3.0, samples=32))
    timers = {"billion_parameters": "1.3", "tflops": "99.5"}
    events = table(
        "events",
        event("timers", 11, timers),
        event("timers", 12, timers, step=10),
        event("timers", 13, timers, step=9),  # of another step: its time is not known
        event("timers", 5, timers),  # before any
        event("timers", 14, {"tflops": "99.5"}),  # not such a line
        event("other", 15, timers),
    )
    found = figure_lines(steps, events)
    assert found.select("line", "logged_tflops", "elapsed_s", "samples").rows() == [
        (5, 99.5, None, None),
        (11, 99.5, 2.0, 16),
        (12, 99.5, 2.0, 16),
        (13, 99.5, None, None),
    ]
    assert "billion_parameters" not in found.columns


def test_the_engines_line_has_its_own_time_and_batch() -> None:
    extra = {"device_samples_per_second": "4.0", "tflops": "50", "elapsed": "0.5"}
    extra |= {"batch": "2", "length": "512"}
    steps = table("steps", step(1, elapsed_s=9.0, samples=16))
    found = figure_lines(steps, table("events", event("engine_step", 2, extra)))
    names = ("logged_device_samples_per_second", "logged_tflops", "elapsed_s")
    assert found.select(*names, "device_samples", "sequence_length").rows() == [
        (4.0, 50.0, 0.5, 2.0, 512)
    ]
    assert "samples" not in found.columns or found["samples"].to_list() == [None]


def test_only_the_profilers_figures_have_decimals_of_every_version() -> None:
    assert set(FIXED_DECIMALS) == {flops_profiler.FLOPS_FIGURE, flops_profiler.SAMPLES_FIGURE}


def test_the_trainers_total_stands_beside_its_last_step() -> None:
    steps = table("steps", step(10, consumed_tokens=1000), step(20, consumed_tokens=2000))
    events = table("events", event("end", 21, {"total_flos": "1.5e18"}))
    found = figure_lines(steps, events)
    assert found.select("line", "logged_total_flops", "consumed_tokens").rows() == [
        (21, 1.5e18, 2000)
    ]


def test_no_lines_give_an_empty_table_of_all_columns() -> None:
    found = figure_lines(table("steps"), table("events"))
    assert found.height == 0
    assert {*LOGGED_FIGURES, "device_samples"} <= set(found.columns)
