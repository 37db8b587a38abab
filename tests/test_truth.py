"""Genuine logs against a clock outside the framework: truth.json holds each step's seconds."""

import json
from pathlib import Path

import pytest

from ingest.log_rows import read_source
from metrics.inputs import holding, typed
from metrics.utilization import run_metrics
from metrics.windows import clean, windows

GENUINE = Path(__file__).parents[1] / "sample_logs" / "genuine"
CASES = sorted(path.parent for path in GENUINE.glob("*/*/truth.json"))

# How far a printed time may be from the outer clock, and why.
TOLERANCE = {
    "torchtitan": 5e-3,  # tps is a whole number of about 320
    "deepspeed": 2.5e-2,  # the script's own work between two lines is in the stamps
    "xtuner": 1e-2,  # time is printed to 0.1 ms of about 80 ms
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_recomputed_tgs_is_what_the_outer_clock_says(case: Path) -> None:
    truth = json.loads((case / "truth.json").read_text(encoding="utf-8"))
    tables = read_source(case / "run.log")
    row = run_metrics(tables).row(0, named=True)
    facts = typed(holding(tables["facts"]))
    frame = windows(tables["steps"], tables["runs"], facts, tables["events"])
    steady = clean(frame, row["time_basis"])
    spans = zip(steady["step"], steady[f"{row['time_basis']}_span"], strict=True)
    seconds = sum(sum(truth["wall_s"][step - span : step]) for step, span in spans)
    steps = steady[f"{row['time_basis']}_span"].sum()
    expected = steps * truth["tokens_per_step"] / truth["gpus"] / seconds
    assert row["tgs"] == pytest.approx(expected, rel=TOLERANCE[row["framework"]])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_tokens_per_step_are_those_that_were_fed(case: Path) -> None:
    truth = json.loads((case / "truth.json").read_text(encoding="utf-8"))
    row = run_metrics(read_source(case / "run.log")).row(0, named=True)
    assert row["tokens_per_gpu_step"] == truth["tokens_per_step"] / truth["gpus"]
    assert row["seq_len"] == truth["seq_len"]
    assert row["gpus"] in (truth["gpus"], None)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_mfu_is_made_up_for_a_cpu(case: Path) -> None:
    row = run_metrics(read_source(case / "run.log")).row(0, named=True)
    assert row["mfu"] is None
    assert row["missing"]
