"""One imaginary run, written as each framework logs it, has one TGS and one MFU."""

import math
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.ingest.core.schema import TABLES
from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts.facts import facts_from_toml
from fairmfu.ingest.pipeline.ingest_run import ingest_paths
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.compare.comparability import rank_runs
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.throughput.messages import (
    LATE_START,
    NO_LASTING_SPEED,
    SPEED_CHANGED,
    UNLOGGED_WORK,
)
from sample_logs.make_synthetic import HERE, MARK, SIDECARS, WRITERS, ImaginaryRun, demo_run, write
from tests.support.effort import THOROUGH
from tests.support.kinds import of_kind

FORMATS = sorted(WRITERS)


def metrics_of(run: ImaginaryRun, folder: Path) -> pl.DataFrame:
    store = Store(folder / "store")
    outcomes = ingest_paths(write(run, folder / "logs"), store)
    assert {outcome.status for outcome in outcomes} == {"read"}
    return analyse({name: store.table(name) for name in TABLES}).metrics


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    """1.28 s a step: 6,400 tokens/s/GPU, which every format prints without rounding."""
    run = ImaginaryRun(step_s=[9.6] + [1.28] * 119)
    return metrics_of(run, tmp_path_factory.mktemp("exact"))


def test_every_format_gives_the_same_tgs(exact: pl.DataFrame) -> None:
    assert exact.height == len(FORMATS)
    assert exact["tgs"].to_list() == pytest.approx([6400.0] * len(FORMATS), rel=1e-6)


def test_every_format_gives_the_same_mfu(exact: pl.DataFrame) -> None:
    # By hand, per token: 32 layers x (projections 2 x 4096 x (4096 + 1024 + 1024) + 2 x 4096 x 4096
    # + core attention 4 x 4096 x 4096.5 + FFN 6 x 4096 x 14336) + head 2 x 4096 x 128256, times 3.
    projections = 2 * 4096 * (4096 + 1024 + 1024) + 2 * 4096 * 4096
    layer = projections + 4 * 4096 * (8192 + 1) / 2 + 6 * 4096 * 14336
    flops = 3 * (32 * layer + 2 * 4096 * 128256)
    assert exact["flops_per_token"].to_list() == [flops] * len(FORMATS)
    expected = 6400 * flops / 989.4e12
    assert exact["mfu"].to_list() == pytest.approx([expected] * len(FORMATS), rel=1e-6)


def test_the_logs_disagree_although_the_run_is_one(exact: pl.DataFrame) -> None:
    claims = exact["logged_tflops"].drop_nulls()
    assert claims.len() == 3
    assert claims.max() > 1.25 * claims.min()


def test_all_formats_stand_in_one_group_as_equals(exact: pl.DataFrame) -> None:
    comparison = rank_runs(exact)
    assert comparison["group"].n_unique() == 1
    assert comparison["group"].null_count() == 0
    assert comparison["relative_tgs"].min() == pytest.approx(1.0, rel=1e-6)


def test_synthetic_files_carry_their_label(exact: pl.DataFrame) -> None:
    assert exact["synthetic"].all()
    for path in sorted(HERE.glob("*/*.log")):
        assert path.read_text(encoding="utf-8").startswith(MARK)


def test_the_kept_files_are_what_the_script_writes(tmp_path: Path) -> None:
    for path in write(demo_run(), tmp_path):
        kept = HERE / path.relative_to(tmp_path)
        assert kept.read_bytes() == path.read_bytes()


# Half a unit of the last printed digit, relative to the value, of what TGS is computed from.
def printed_error(name: str, run: ImaginaryRun) -> float:
    fastest, windows_s = min(run.step_s[1:]), run.log_interval * min(run.step_s[1:])
    stamps = 1e-3 / windows_s  # two stamps of 1 ms each
    return {
        "torchtitan": 0.5 / (run.seq_len / max(run.step_s[1:])),
        "xtuner": 0.5e-4 / fastest,
        "xtuner-v1": 1e-4 / fastest,  # time and data_time, rounded apart
        "deepspeed": stamps,
        "megatron-deepspeed": 0.5e-4 / fastest,
    }[name]


def true_tgs(name: str, run: ImaginaryRun) -> float:
    """Over the steps that each format's clean windows hold."""
    first = 1 if name == "xtuner-v1" else run.log_interval
    last = run.steps if name == "xtuner-v1" else run.steps // run.log_interval * run.log_interval
    seconds = run.step_s[first:last]
    return run.seq_len * len(seconds) / math.fsum(seconds)


# From 0.2 to 30 s a step, but for a run's first third: what is slower there alone is warm-up, which
# formats that print each step see more finely than those that print every tenth.
step_times = st.tuples(
    st.floats(0.2, 30.0).flatmap(lambda s: st.lists(st.just(s), min_size=21, max_size=21)),
    st.lists(st.floats(0.2, 30.0), max_size=39),
).map(lambda parts: [*parts[0], *parts[1]])

runs = st.builds(
    ImaginaryRun,
    step_s=step_times,
    gpus=st.sampled_from([1, 8, 64, 1024]),
    seq_len=st.sampled_from([2048, 8192, 32768]),
    started=st.datetimes(datetime(2024, 1, 1), datetime(2026, 12, 31)).map(
        lambda at: at.replace(microsecond=0)
    ),
)


@pytest.mark.parametrize("name", FORMATS)
@given(run=runs)
@settings(max_examples=100 if THOROUGH else 6, deadline=None)
def test_any_run_comes_out_within_its_printed_digits(
    name: str, run: ImaginaryRun, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("run")
    log = folder / "run.log"
    log.write_text("\n".join(WRITERS[name](run)) + "\n", encoding="utf-8")
    sidecar = folder / "facts.toml"
    sidecar.write_text(
        SIDECARS[name]
        .replace("gpus = 8", f"gpus = {run.gpus}")
        .replace("seq_len = 8192", f"seq_len = {run.seq_len}"),
        encoding="utf-8",
    )
    assert facts_from_toml(sidecar) is not None
    row = analyse(read_log_tables(log)).metrics.row(0, named=True)
    # A step that stands apart may be work whose lines are gone, and steps at another speed are no
    # part of TGS: they are left out with a sentence.
    if not of_kind(row, UNLOGGED_WORK, LATE_START, SPEED_CHANGED, NO_LASTING_SPEED):
        assert row["tgs"] == pytest.approx(true_tgs(name, run), rel=1.01 * printed_error(name, run))
    assert row["gpus"] == run.gpus
