"""`doctor` computes each run as `runs` would, and names those that fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fairmfu.cli import main
from fairmfu.ingest.pipeline import ingest_run
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.pipeline import run_scoring
from fairmfu.reports.store import failing_runs as module


@pytest.fixture
def held(store: Store, logs: Path, titan: Callable[..., str]) -> Store:
    for number in range(2):
        (logs / f"{number}.log").write_text(titan(20, loss=5.0 + number))
    ingest_run.ingest_paths([logs], store)
    return store


def doctor(store: Store) -> Result:
    return CliRunner().invoke(main, ["doctor", "--store", str(store.path)])


def test_a_store_whose_runs_compute_has_no_problem(held: Store) -> None:
    before = {path: path.read_bytes() for path in held.path.rglob("*") if path.is_file()}
    found = doctor(held)
    assert found.exit_code == 0, found.output
    assert "no problems found" in found.stdout
    assert before == {path: path.read_bytes() for path in held.path.rglob("*") if path.is_file()}


def test_each_run_that_fails_is_named(held: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def bad(*_: object, **__: object) -> None:
        raise KeyError("a column")

    assert CliRunner().invoke(main, ["runs", "--store", str(held.path)]).exit_code == 0
    monkeypatch.setattr(run_scoring, "score_utilization", bad)
    found = doctor(held)
    assert found.exit_code == 1
    assert found.stdout.count("cannot be computed: KeyError") == 2
    assert "--again" in found.stdout
    assert "no problems found" not in found.stdout


def test_what_stops_every_command_is_told(held: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def bad(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(module, "update_metrics", bad)
    found = doctor(held)
    assert found.exit_code == 1
    assert "no run can be computed: ZeroDivisionError" in found.stdout
    assert "no problems found" not in found.stdout
