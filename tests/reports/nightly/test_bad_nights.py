"""Nights with bad input: each has a clear line, and nothing counts twice."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.cli import main
from fairmfu.reports.nightly import nightly as module
from fairmfu.reports.nightly.repeated_jobs import jobs_that_ran_again
from tests.support.nights import Plan, write_night
from tests.support.prepared import emptied, prepare

NOON = datetime(2026, 3, 1, 12)


@pytest.fixture
def tmp_path(one_place: Path) -> Path:
    return emptied(one_place)


@pytest.fixture
def nightly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`fairmfu nightly` with fairmfu.toml."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FAIRMFU_STORE", raising=False)
    monkeypatch.setattr(module, "full_page", lambda *_: "runs")
    monkeypatch.setattr(module.night_outputs, "svgs", lambda _: {})
    monkeypatch.setattr(module.night_html, "pages", lambda _: ("now", "kept"))
    return lambda *more: CliRunner().invoke(main, ["nightly", *more], catch_exceptions=False)


@pytest.fixture
def three_logged(tmp_path: Path, nightly: Callable[..., Result]) -> None:
    """Three nights of two jobs were written."""
    assert nightly
    prepare(tmp_path, "logged", log_three)


@pytest.fixture
def three_told(tmp_path: Path, nightly: Callable[..., Result]) -> None:
    """A first night read three nights of two jobs."""

    def take_place() -> None:
        log_three()
        assert nightly().exit_code == 0

    prepare(tmp_path, "told", take_place)


def log_three() -> None:
    Path("fairmfu.toml").write_text('sources = ["logs"]\nstore = "perf"\nout = "out"\n')
    for night in (1, 2, 3):
        write(night)


def write(night: int) -> list[Path]:
    Path("logs").mkdir(exist_ok=True)
    return write_night(Path("logs"), night, Plan(seed=1), only=(0, 1))


def summary() -> dict:
    return json.loads(Path("out/summary.json").read_text())


def said(result: Result) -> str:
    return " ".join(result.stdout.split())


def points() -> list[int]:
    return sorted(row["points"] for row in summary()["series"])


@pytest.mark.usefixtures("three_logged")
def test_a_job_that_is_configured_and_never_seen(nightly: Callable[..., Result]) -> None:
    with Path("fairmfu.toml").open("a") as config:
        config.write('[jobs]\nexpected = ["new-8b"]\n')
    for night in (3, 4):
        write(night)
        found = nightly()
        assert found.exit_code == 5
        assert said(found).startswith("new-8b is expected and has never run.")
        assert summary()["findings"][0]["id"] == "job-missing"
        assert ET.parse("out/junit.xml").getroot().get("errors") == "1"  # noqa: S314 - ours


@pytest.mark.usefixtures("three_told")
def test_a_night_that_runs_twice_counts_nothing_twice(nightly: Callable[..., Result]) -> None:
    write(4)
    assert nightly().exit_code == 0
    assert points() == [4, 4]
    again = nightly()
    assert (again.exit_code, points()) == (0, [4, 4])
    assert said(again) == "No new run tonight. 2 jobs in the history."


@pytest.mark.usefixtures("three_told")
@pytest.mark.parametrize(
    "error",
    [
        "ModuleNotFoundError: No module named 'flash_attn'",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, timeout",
        "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    ],
)
def test_a_job_whose_log_is_an_error_alone_failed_tonight(
    nightly: Callable[..., Result], error: str
) -> None:
    """It was skipped, or "unknown format", and the night said only that the job has not run."""
    log, other = write(4)
    log.write_text(f"Traceback (most recent call last):\n  File 'train.py', line 3\n{error}\n")
    found = nightly()
    assert found.exit_code == 5
    text, cause = said(found), error.removeprefix("[rank0]: ")
    assert text.startswith("1 of 2 jobs failed tonight: ")
    assert "before step 1)" in text
    assert f"{cause.removesuffix('.')}. Read the log: {log.absolute()}" in text
    (one,) = (row for row in summary()["findings"] if row["id"] == "job-failed")
    assert one["evidence"] == cause
    assert f"{log.absolute()} (failed): no training step" in Path("out/summary.md").read_text(
        "utf-8"
    )
    assert "failed tonight" not in said(nightly())
    assert other.exists()


@pytest.mark.usefixtures("three_told")
def test_an_error_file_beside_the_log_of_a_run_fails_no_job(nightly: Callable[..., Result]) -> None:
    log, _ = write(4)
    log.with_suffix(".err").write_text("ValueError: of a worker that was not needed\n")
    found = nightly()
    assert found.exit_code == 0
    assert "failed tonight" not in said(found)


@pytest.mark.usefixtures("three_told")
def test_two_logs_of_one_job_in_a_night(nightly: Callable[..., Result]) -> None:
    """A copy is no second run; a second run is one, and is named."""
    log, _ = write(4)
    shutil.copy(log, log.with_name("copy-of-the-night.log"))
    found = nightly()
    assert (found.exit_code, points()) == (0, [4, 4])
    assert "more than once" not in said(found)
    log, _ = write(5)
    (later,) = write_night(Path("elsewhere"), 5, Plan(seed=2), only=(0,))
    shutil.copy(later, log.with_name("again.log"))
    found = nightly()
    assert (found.exit_code, points()) == (0, [5, 6])
    assert f"Ran more than once tonight: {log.parent.name}, synthetic (2 runs)." in said(found)
    assert [row["nights"] for row in summary()["series"]] == [5, 5]
    write(6)
    assert "more than once" not in said(nightly())


@pytest.mark.usefixtures("three_logged")
def test_a_store_that_moved_without_its_new_name(nightly: Callable[..., Result]) -> None:
    assert "First night in the store" not in said(nightly())
    Path("perf").rename("moved")
    write(4)
    lost = nightly()
    assert "First night in the store" in said(lost)
    assert "If the store moved, name its new place: --store, or store in fairmfu.toml." in said(
        lost
    )
    shutil.rmtree("perf")
    found = nightly("--store", "moved")
    assert "First night in the store" not in said(found)
    assert (found.exit_code, points()) == (0, [4, 4])


@given(st.lists(st.integers(1, 3), min_size=1, max_size=8), st.integers(0, 23))
def test_a_job_ran_again_if_it_usually_runs_once(counts: list[int], hour: int) -> None:
    """Whatever the hour of the night."""
    rows = [
        {"run_id": f"{night}-{n}", "at": at, "outcome": "completed"}
        for night, count in enumerate(counts)
        for n in range(count)
        for at in [NOON + timedelta(days=night, hours=hour, minutes=n)]
    ]
    last = {row["run_id"] for row in rows if row["run_id"].startswith(f"{len(counts) - 1}-")}
    found = list(jobs_that_ran_again([rows], last))
    before = sorted(counts[:-1])
    usual = before and before[len(before) // 2] == before[(len(before) - 1) // 2] == 1
    assert found == ([(rows[-1], counts[-1])] if usual and counts[-1] > 1 else [])
    assert not list(jobs_that_ran_again([rows], set()))
    failed = [{**row, "outcome": "crashed"} for row in rows]
    assert not list(jobs_that_ran_again([failed, []], last))
