"""Runs have the names that people gave them, wherever a run is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fairmfu.cli import main
from fairmfu.ingest.extract import run_names
from fairmfu.reports.nightly import nightly as module
from tests.support.nights import Plan, write_night


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments], catch_exceptions=False)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FAIRMFU_STORE", raising=False)
    return tmp_path


def names() -> set[str]:
    """Names of all runs: in the metrics, and in the table of runs."""
    sql = "select runs.name, metrics.name as computed from runs full join metrics using (run_id)"
    rows = json.loads(run("query", sql, "--format", "json").stdout)
    assert all(row["name"] == row["computed"] for row in rows), rows
    return {row["name"] for row in rows}


def write(path: str, text: str) -> Path:
    log = Path(path)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(text)
    return log


def test_ingest_prints_the_name_of_each_run(titan: Callable[..., str]) -> None:
    log = write("jobs/titan-8b/2026-10-22.log", titan())
    assert "0 other lines; stored as run titan-8b/2026-10-22\n" in run("ingest", "jobs").stderr
    write("jobs/titan-8b/facts.toml", 'name = "night"\n')
    run("ingest", "jobs")
    assert names() == {"night/2026-10-22"}
    log.write_text(titan(4))
    assert "0 other lines; stored as run night/2026-10-22\n" in run("ingest", "jobs").stderr
    assert names() == {"night/2026-10-22"}
    write("jobs/titan-8b/2026-10-22.log.facts.toml", 'name = "the one"\n')
    run("ingest", "jobs")
    assert names() == {"the one"}


def test_a_name_is_given_corrected_and_taken_back(titan: Callable[..., str]) -> None:
    write("a.log", titan(loss=4.0))
    assert "; stored as run mine\n" in run("ingest", "a.log", "--set", "name=mine").stderr
    assert names() == {"mine"}
    assert run("set", "mine", "name=yours").exit_code == 0
    assert names() == {"yours"}
    assert "No run is called 'mine'" in run("explain", "mine").stderr
    assert run("explain", "yours").exit_code == 0
    assert run("set", "yours", "name=").exit_code == 0
    assert names() == {"a"}
    assert run("remove", "a").exit_code == 0


def test_runs_of_one_file_stay_apart(titan: Callable[..., str]) -> None:
    start = "[titan] 2026-01-02 03:04:00,000 - root - INFO - Starting job: mine\n"
    write("two.log", start + titan(5) + start + titan(4, loss=3.0))
    said = run("ingest", "two.log", "--set", "name=mine").stderr
    assert "; stored as runs mine#1, mine#2\n" in said
    rows = json.loads(run("query", "select name from runs", "--format", "json").stdout)
    assert sorted(row["name"] for row in rows) == ["mine#1", "mine#2"]


DESCRIBED = {
    "2026-10-22": '{"description": "qwen on b200"}',
    "2026-10-23": '{"description": "default job"}',
    "2026-10-24": '{"description": ""}',
    "2026-10-25": "{}",
}
"""Configurations of jobs by the date that names their logs."""


def test_a_description_names_a_run_of_a_date_alone(
    titan: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for loss, (date, config) in enumerate(DESCRIBED.items(), 4):
        write(f"logs/{date[-2:]}/{date}.log", titan(loss=loss))
        job = f'{{"job": {config}, "training": {{}}, "optimizer": {{}}}}'
        write(f"logs/{date[-2:]}/config.json", job)
    run("ingest", "logs", "--store", "named")
    with monkeypatch.context() as patch:  # no folder above has a name
        patch.setattr(run_names, "job_name", lambda _: "")
        run("ingest", "logs")
    found = names()
    assert f"qwen on b200/{min(DESCRIBED)}" in found
    assert sorted(name.rpartition("/")[2] for name in found) == [*DESCRIBED]
    assert sum("qwen" in name or "default" in name for name in found) == 1
    monkeypatch.setenv("FAIRMFU_STORE", "named")
    found = names()
    assert len(found) == len(DESCRIBED)
    assert not [name for name in found if "qwen" in name]


def test_a_night_names_a_job_as_its_facts_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dated logs of a folder without a name, and a name for all of them."""
    monkeypatch.setattr(module, "full_page", lambda *_: "runs")
    monkeypatch.setattr(module.night_outputs, "svgs", lambda _: {})
    monkeypatch.setattr(module.night_html, "pages", lambda _: ("now", "kept"))
    Path("fairmfu.toml").write_text(
        'sources = ["logs"]\n[[facts]]\npaths = "*.log"\nname = "nightly-8b"\n'
    )
    for night in (1, 2, 3):
        (log,) = write_night(Path("plan"), night, Plan(seed=1), only=(0,))
        write(f"logs/2026/{log.stem[-10:]}.log", log.read_text())
    assert run("nightly").exit_code == 0
    data = json.loads(Path("nightly/summary.json").read_text())
    (row,) = data["series"]
    assert row["label"] == "nightly-8b, synthetic"
    assert all(one["name"].startswith("nightly-8b/") for one in data["runs"])
