"""Commands take folders and patterns as runs, a condition and an order."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fairmfu.cli import main

FOLDERS = {"base": ("a", "b"), "head": ("a", "c"), "head/deep": ("d",)}
"""Names of logs in each folder: `a` is the name of two runs."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, titan: Callable[..., str]) -> Path:
    """Logs in folders, and their store."""
    top = tmp_path_factory.mktemp("logs")
    number = 0
    for name, logs in FOLDERS.items():
        (top / name).mkdir(parents=True, exist_ok=True)
        for log in logs:
            number += 1
            text = titan(steps=9, loss=float(number), tps=1000 * number)
            (top / name / f"{log}.log").write_text(text)
    done = CliRunner().invoke(main, ["ingest", str(top), "--store", str(top / "store")])
    assert done.exit_code == 0, done.output
    return top


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("FAIRMFU_STORE", str(folder / "store"))

    def ran(*words: str) -> Result:
        return CliRunner().invoke(main, list(words), catch_exceptions=False)

    return ran


def listed(result: Result) -> list[tuple[str, str]]:
    """Return the folder and the name of each row of JSON."""
    rows = json.loads(result.stdout)
    return [(Path(row["sources"][0]).parent.name, row["name"]) for row in rows]


def test_a_folder_means_the_runs_in_it(run: Callable[..., Result]) -> None:
    assert listed(run("runs", "head/", "--format", "json")) == [
        *(("head", "a"), ("head", "c"), ("deep", "d"))
    ]
    assert listed(run("runs", "head/deep", "base/*", "--format", "json")) == [
        *(("deep", "d"), ("base", "a"), ("base", "b"))
    ]
    assert len(json.loads(run("compare", "head", "--format", "json").stdout)) == 3
    needs = json.loads(run("missing", "base", "--format", "json").stdout)
    assert [row["name"] for row in needs] == ["a", "b"]
    assert "on 2 runs" in run("set", "base/", "gpus=8").stderr
    assert "on 2 runs" in run("set", "base/", "gpus=").stderr
    assert run("explain", "head/deep").exit_code == 0
    several = run("explain", "head/")
    assert (several.exit_code, "'head/' means 3 runs" in several.stderr) == (1, True)


def test_conditions_and_orders_reach_every_format(run: Callable[..., Result]) -> None:
    words = ("runs", "base", "head", "--where", "logged_tgs > 1000", "--sort", "-logged_tgs")
    assert [name for _, name in listed(run(*words, "--format", "json"))] == ["d", "c", "a", "b"]
    rows = csv.DictReader(run(*words, "--format", "csv").stdout.splitlines())
    assert [row["name"] for row in rows] == ["d", "c", "a", "b"]
    for output in ("table", "markdown"):
        text = run(*words, "--format", output).stdout
        assert [line.split()[0 if output == "table" else 1] for line in text.splitlines()[2:]] == [
            *("d", "c", "a", "b")
        ]
    rows = json.loads(run("compare", "--where", "name = 'a'", "--format", "json").stdout)
    assert [row["name"] for row in rows] == ["a", "a"]


def test_names_of_a_filtered_table_choose_their_run(run: Callable[..., Result]) -> None:
    """A name that another stored run has is shown with its id, even if listed once."""
    for command in ("runs", "compare"):
        text = run(command, "--where", "logged_tgs between 2500 and 3500").stdout
        row = next(line for line in text.splitlines() if line.lstrip().startswith("a ["))
        label = row[: row.index("]") + 1].strip()
        assert run("explain", label).exit_code == 0
        assert run("explain", label.split("[")[1].rstrip("]")).exit_code == 0
    assert run("explain", "a").exit_code == 1


def test_nothing_fulfils_a_condition(run: Callable[..., Result]) -> None:
    said = run("runs", "--where", "gpus = 77", "--format", "json")
    assert (said.exit_code, json.loads(said.stdout)) == (0, [])
    assert "No run fulfils the condition" in said.stderr
    assert "No run fulfils the condition" in run("compare", "--where", "gpus = 77").stdout
    assert run("compare", "--where", "gpus = 77", "--format", "markdown").exit_code == 0


@pytest.mark.parametrize("words", [
    ("runs", "--where", "gpu = 8"), ("compare", "--where", "gpu = 8"), ("runs", "--sort", "-gpu"),
    ("compare", "--sort", "-gpu"),
])  # fmt: skip
def test_a_wrong_column_is_corrected(words: tuple[str, ...], run: Callable[..., Result]) -> None:
    said = run(*words)
    assert said.exit_code == 1
    assert "No column is called 'gpu'. Nearest: gpus" in said.stderr


@pytest.mark.parametrize("column", ["logged_tgs", "-logged_tgs", "steps", "-run_id"])
def test_comparisons_are_sorted_as_runs_are(column: str, run: Callable[..., Result]) -> None:
    """The rows alone: each has the figures and the rank that it has without."""
    commands = (["runs", "--sort", column], ["compare", "--sort", column], ["compare"])
    runs, ordered, plain = (json.loads(run(*one, "--format", "json").stdout) for one in commands)
    assert [row["run_id"] for row in ordered] == [row["run_id"] for row in runs]
    assert sorted(ordered, key=lambda row: row["run_id"]) == sorted(
        plain, key=lambda row: row["run_id"]
    )


def test_tables_of_a_comparison_are_sorted_and_its_sentences_stay(
    run: Callable[..., Result],
) -> None:
    texts = [run("compare", "--sort", column, "--full").stdout for column in ("-tgs", "tgs")]
    assert texts[0] != texts[1]
    assert sorted(texts[0].splitlines()) == sorted(texts[1].splitlines())
