"""Genuine logs against a clock outside the framework: truth.json holds each step's seconds."""

import json
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.pipeline.api import read_logs
from fairmfu.ingest.pipeline.ingest_run import ingest_paths
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.compare.comparability import rank_runs
from fairmfu.metrics.core.messages import as_clause
from fairmfu.metrics.pipeline.analysis import Analysis, analyse
from fairmfu.metrics.pipeline.messages import RATE_AGAINST_LOG
from fairmfu.metrics.throughput.windows import steady_window_rows
from fairmfu.metrics.utilization.messages import QUANTIZED_WEIGHTS
from tests.support.each_case import each_case
from tests.support.effort import THOROUGH
from tests.support.folders import ROOT
from tests.support.kinds import of_kind

SAMPLES = ROOT / "sample_logs"
CASES = sorted(path.parent for path in SAMPLES.glob("*/*/*/truth.json"))
ON_A_CPU = [case for case in CASES if case.is_relative_to(SAMPLES / "genuine")]
ON_GPUS = [case for case in CASES if case not in ON_A_CPU]
READ_ALONE = CASES if THOROUGH else CASES[::3]
"""Those whose log is read without the files beside it, too."""
UNTIMED = SAMPLES / "h100/xtuner-0.2.0/bf16-short-batches"
"""The one case whose clock was lost."""


def named(case: Path) -> str:
    return str(case.relative_to(SAMPLES))


# How far a printed time may be from the outer clock, and why.
TOLERANCE = {
    "torchtitan": 5e-3,  # tps is a whole number of about 320
    "deepspeed": 2.5e-2,  # the script's own work between two lines is in the stamps
    "xtuner": 1e-2,  # time is printed to 0.1 ms of about 80 ms
}
OF_A_GPU = 1e-3
"""The same where steps are long and many: the worst is 0.53e-3, of selective recomputation."""


def tolerance(case: Path) -> float:
    return TOLERANCE[case.parent.name.split("-")[0]] if case in ON_A_CPU else OF_A_GPU


def read_truth(case: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((case / "truth.json").read_text(encoding="utf-8"))
    return found


OUTCOMES = {"llama3-1rank-crashed": "crashed", "zero2-2ranks-killed": "killed"}
"""Of launches that did not come to their end; of all others nothing else may be said."""

CONTINUES = {"llama3-1rank-resumed": ("llama3-1rank-crashed", 3)}
"""Which launch a case continues, and how many of that one's logged steps it trained again."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    """All cases at once, with the files that stand beside the logs."""
    store = Store(tmp_path_factory.mktemp("genuine"))
    outcomes = ingest_paths(sorted({case.parents[1] for case in CASES}), store)
    told = {Path(one.given).name for one in outcomes if one.status != "read"}
    assert told == {"command.txt"}
    return analyse(store.tables())


@pytest.fixture(scope="module")
def of_logs() -> Analysis:
    """The logs of cases, without the files of the framework beside them."""
    return analyse(read_logs(*(case / "run.log" for case in READ_ALONE)))


def row_of(told: Analysis, case: Path) -> dict[str, Any]:
    """The run that the case's log tells of, maybe among others."""
    log = pl.lit(str(case / "run.log"))
    return told.metrics.row(by_predicate=pl.col("sources").list.contains(log), named=True)


def tgs_by_the_outer_clock(truth: dict[str, Any], spans: pl.DataFrame, basis: str) -> float:
    """tokens/s/GPU over the steady windows of `spans`."""
    steady = steady_window_rows(spans, basis)
    before = truth.get("first_step", 1) - 1  # of a resumed run
    ends = zip(steady["step"] - before, steady[f"{basis}_span"], strict=True)
    seconds = sum(sum(truth["wall_s"][end - span : end]) for end, span in ends)
    steps = int(steady[f"{basis}_span"].sum())
    return steps * float(truth["tokens_per_step"]) / truth["gpus"] / seconds


def each_told(case: Path, whole: Analysis, of_logs: Analysis) -> list[Analysis]:
    """Analyses of a case: of its folder, and of its log alone if it was read so."""
    return [whole, of_logs] if case in READ_ALONE else [whole]


@each_case("case", CASES, ids=named)
def test_recomputed_tgs_is_what_the_outer_clock_says(
    case: Path, whole: Analysis, of_logs: Analysis
) -> None:
    for told in each_told(case, whole, of_logs):
        row = row_of(told, case)
        spans = told.windows.filter(run_id=row["run_id"])
        expected = tgs_by_the_outer_clock(read_truth(case), spans, row["time_basis"])
        assert row["tgs"] == pytest.approx(expected, rel=tolerance(case))


def test_each_case_is_one_run_however_many_files_tell_of_it(whole: Analysis) -> None:
    cases = [*CASES, UNTIMED]
    runs = {row_of(whole, case)["run_id"] for case in cases}
    assert runs == set(whole.metrics["run_id"])
    assert len(runs) == len(cases)
    assert whole.metrics["members"].list.len().max() == 3  # console, JSON and TensorBoard


@each_case("case", CASES, ids=named)
def test_which_framework_how_it_ended_and_what_it_continues(case: Path, whole: Analysis) -> None:
    row = row_of(whole, case)
    assert case.parent.name.startswith(row["framework"])
    allowed = {OUTCOMES[case.name]} if case.name in OUTCOMES else {"completed", "incomplete"}
    assert row["outcome"] in allowed
    earlier, again = CONTINUES.get(case.name, (None, 0))
    before = None if earlier is None else row_of(whole, case.with_name(earlier))
    assert row["continues"] == (before and before["run_id"])
    assert before is None or before["repeated_steps"] == again


@each_case("case", CASES, ids=named)
def test_tokens_per_step_are_those_of_the_recipe(
    case: Path, whole: Analysis, of_logs: Analysis
) -> None:
    truth = read_truth(case)
    for told in each_told(case, whole, of_logs):
        row = row_of(told, case)
        assert row["tokens_per_gpu_step"] == truth["tokens_per_step"] / truth["gpus"]
        assert row["seq_len"] == truth["seq_len"]
        assert row["gpus"] in (truth["gpus"], None)


@each_case("case", ON_A_CPU, ids=named)
def test_no_mfu_is_made_up_for_a_cpu(case: Path, whole: Analysis, of_logs: Analysis) -> None:
    for told in each_told(case, whole, of_logs):
        row = row_of(told, case)
        assert row["mfu"] is None
        assert row["missing"]


WEIGHTS = 22 * (2 * 2048 * 2048 + 2 * 2048 * 256 + 3 * 2048 * 5632) + 2048 * 32000
FLOPS = 6 * WEIGHTS + 6 * 22 * 2048 * (4096 + 1)
"""FLOPs per token of the model of the GPU runs, by hand: layers and lm_head, half of the square."""


TITAN_ON_H100 = SAMPLES / "h100/torchtitan-0.2.2"
FP8 = TITAN_ON_H100 / "fp8-recompute-selective-compile"
FP8_BUT_LM_HEAD = TITAN_ON_H100 / "fp8-but-lm_head-recompute-selective-compile"


def test_no_case_lost_its_clock() -> None:
    assert (len(ON_A_CPU), len(ON_GPUS)) == (26, 19)


@pytest.mark.parametrize(
    "case", [case for case in ON_GPUS if case not in (FP8, FP8_BUT_LM_HEAD)], ids=named
)
def test_mfu_on_a_gpu_is_what_the_outer_clock_says(case: Path, whole: Analysis) -> None:
    row, truth = row_of(whole, case), read_truth(case)
    spans = whole.windows.filter(run_id=row["run_id"])
    tgs = tgs_by_the_outer_clock(truth, spans, row["time_basis"])
    assert row["flops_per_token"] == FLOPS
    assert row["mfu"] == pytest.approx(tgs * FLOPS / 989.4e12, rel=tolerance(case))


def test_layers_of_fp8_that_no_line_names_have_no_mfu(tmp_path: Path) -> None:
    shutil.copy(FP8 / "run.log", tmp_path)
    row = analyse(read_log_tables(tmp_path / "run.log")).metrics.row(0, named=True)
    assert row["mfu"] is None
    (told,) = of_kind(row, QUANTIZED_WEIGHTS)
    assert "precision=P, with P one of: fp8 (lm_head in bf16), fp8+lm_head (" in told


ATTENTION, LM_HEAD = 6 * 22 * 2048 * (4096 + 1), 6 * 2048 * 32000


@pytest.mark.parametrize(
    ("case", "bf16"), [(FP8, ATTENTION), (FP8_BUT_LM_HEAD, ATTENTION + LM_HEAD)]
)
def test_what_is_computed_in_fp8_has_its_peak_and_the_rest_that_of_bf16(
    case: Path, bf16: int, whole: Analysis
) -> None:
    row, truth = row_of(whole, case), read_truth(case)
    tgs = tgs_by_the_outer_clock(truth, whole.windows.filter(run_id=row["run_id"]), "rate")
    ideal = bf16 / 989.4e12 + (FLOPS - bf16) / 1978.9e12
    assert row["flops_per_token"] == FLOPS
    assert row["mfu"] == pytest.approx(tgs * ideal, rel=OF_A_GPU)
    assert row["mfu_bf16"] == pytest.approx(tgs * FLOPS / 989.4e12, rel=OF_A_GPU)


@pytest.mark.parametrize("framework", ["deepspeed-0.19.8", "torchtitan-0.2.2", "xtuner-0.2.0"])
def test_recomputation_costs_speed_whatever_the_log_says(framework: str, whole: Analysis) -> None:
    """The forward pass of the layers once more, of 4 then: a quarter of the time at most."""
    folder = SAMPLES / "h100" / framework
    plain, again = (row_of(whole, folder / name) for name in ("bf16", "bf16-recompute"))
    assert 0.75 < again["tgs"] / plain["tgs"] < 0.9
    assert again["mfu"] / plain["mfu"] == pytest.approx(again["tgs"] / plain["tgs"])
    assert again["hfu_low"] > again["mfu"]
    if framework == "xtuner-0.2.0":  # whose hook counts recomputed forwards as work
        assert again["logged_tflops"] / plain["logged_tflops"] == pytest.approx(1.075, abs=5e-4)
        assert again["logged_tflops"] / (again["mfu"] * 989.4) == pytest.approx(1.520, abs=5e-4)


def test_starts_of_one_command_are_repeats(whole: Analysis) -> None:
    """Three of each framework, up to 4.7 % apart."""
    folders = [path for path in (SAMPLES / "h100").glob("*-*/bf16*") if "-re" not in path.name]
    rows = {named(folder): row_of(whole, folder) for folder in folders if folder != UNTIMED}
    ranked = rank_runs(whole.metrics).filter(
        pl.col("run_id").is_in([r["run_id"] for r in rows.values()])
    )
    assert ranked["group"].n_unique() == 1
    setups = ranked.group_by("setup").agg(
        "repeats", pl.col("framework").unique(), apart=pl.max("tgs") / pl.min("tgs") - 1
    )
    assert setups["repeats"].list.unique().to_list() == [[3]] * 3
    by_framework = {row["framework"][0]: row["apart"] for row in setups.to_dicts()}
    assert by_framework == pytest.approx(
        {"deepspeed": 0.0475, "torchtitan": 0.0108, "xtuner": 0.0175}, abs=5e-4
    )


def test_three_frameworks_are_ranked_on_one_gpu(whole: Analysis) -> None:
    """The same model, length, number format and card; outer clocks: 50,697, 41,503, 36,320."""
    ranked = rank_runs(whole.metrics)
    of = [row_of(whole, case)["run_id"] for case in (SAMPLES / "h200").glob("*/*")]
    group = ranked.filter(pl.col("run_id").is_in(of)).sort("rank")
    assert group["group"].n_unique() == 1
    assert group["framework"].to_list() == ["torchtitan", "deepspeed", "xtuner"]
    assert group["tied_with_best"].to_list() == [True, False, False]


def test_batches_that_are_not_all_whole_are_not_ranked(whole: Analysis) -> None:
    """27 packed samples in batches of two: the last batch of each epoch has one of them."""
    row = row_of(whole, UNTIMED)
    ranked = rank_runs(whole.metrics).filter(run_id=row["run_id"])
    (told,) = of_kind(row, RATE_AGAINST_LOG)
    assert "tokens per step must be wrong" in told
    assert as_clause(told) in ranked["not_ranked"].item()
