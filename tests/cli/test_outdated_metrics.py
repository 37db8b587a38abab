"""Commands over metrics of an earlier fairmfu name the command that keeps today's."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fairmfu.cli import main
from fairmfu.reports.store import metrics_store
from tests.support import old_store

KEEPING = "of an earlier fairmfu or of other accelerators"
READERS = (
    ["runs"],
    ["runs", "--format", "json"],
    ["missing"],
    ["compare"],
    ["explain", "RUN"],
    ["query", "select count(*) as n from metrics"],
    ["report", "--out", "PAGE"],
    ["chart", "comparison", "--out", "CHART"],
    ["export", "--to", "tensorboard", "--out", "FOLDER"],
)


def run(store: Path, *words: str) -> Result:
    places = {"PAGE": "page.html", "CHART": "tgs.svg", "FOLDER": "out"}
    given = [str(store.parent / places[word]) if word in places else word for word in words]
    return CliRunner().invoke(main, [*given, "--store", str(store)], catch_exceptions=False)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return old_store.genuine(tmp_path_factory.mktemp("old") / "store")


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_a_command_that_computes_again_names_rescore_once(
    old: Path, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_store, "MIN_OUTDATED_TO_TELL", 2)
    first = run(old, "query", "select run_id from runs limit 1", "--format", "csv")
    name = first.stdout.split()[1]
    said = run(old, *(name if word == "RUN" else word for word in words))
    assert said.stderr.count(KEEPING) == 1
    assert f"To keep them: fairmfu rescore --store {old}\n" in said.stderr
    assert KEEPING not in said.stdout


def test_of_few_runs_no_command_says_it(old: Path) -> None:
    assert KEEPING not in run(old, "runs").stderr


def test_after_rescore_no_command_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_store, "MIN_OUTDATED_TO_TELL", 1)
    store = old_store.genuine(tmp_path / "store")
    assert KEEPING not in run(store, "rescore").stderr
    assert KEEPING not in run(store, "runs").stderr
