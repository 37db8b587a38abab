"""The Python surface as docs/python.md and the notebook show it: run, and held to what is shown."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl
import pytest

from fairmfu import ingest, metrics, reports
from tests.support.folders import ROOT

DOCS = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
SAMPLES = Path("sample_logs", "synthetic")
NOTEBOOK = ROOT / "docs" / "examples" / "is_it_faster.py"
BLOCK = re.compile(r"```python\n(?P<code>.*?)```(?:\n\n```text\n(?P<shown>.*?)```)?", re.DOTALL)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str, str | None]]:
    """Each block of the page, run after those before it: code, what it prints, what is shown."""
    folder = tmp_path_factory.mktemp("python")
    shutil.copytree(ROOT / SAMPLES, folder / SAMPLES)
    names: dict[str, Any] = {}
    ran = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for block in BLOCK.finditer(DOCS):
            with redirect_stdout(StringIO()) as printed:
                exec(block["code"], names)  # noqa: S102 - what the page shows
            ran.append((block["code"], printed.getvalue(), block["shown"]))
    return ran


def test_each_block_of_the_page_prints_what_stands_below_it(
    page: list[tuple[str, str, str | None]],
) -> None:
    assert len(page) == DOCS.count("```python")
    for code, printed, shown in page:
        assert printed == (shown or ""), code


def test_the_page_has_an_example_of_all_of_the_surface() -> None:
    used = "".join(block["code"] for block in BLOCK.finditer(DOCS))
    for package in (ingest, metrics, reports):
        for name in package.__all__:
            assert re.search(rf"\b{name}\b", used), f"{package.__name__}.{name} has no example"


@pytest.fixture(scope="module")
def ran() -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the cells of the notebook show, and the names that they define."""
    spec = importlib.util.spec_from_file_location("is_it_faster", NOTEBOOK)
    assert spec is not None
    assert spec.loader is not None
    notebook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(notebook)
    outputs, names = notebook.app.run()
    return outputs, dict(names)


def test_the_notebook_answers_its_question(ran: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
    outputs, names = ran
    assert names["claim"] == pytest.approx(481 / 371, rel=0.01)  # as the logs print it
    (said,) = names["compared"].sentences
    assert "are equally fast" in said
    assert "The logs said 1.30x; by one formula it is 1.00x." in outputs[-1].text
    assert "activation checkpointing counted as work, x1.31" in outputs[-1].text


def test_the_notebook_shows_tables_and_charts(
    ran: tuple[tuple[Any, ...], dict[str, Any]],
) -> None:
    outputs, _ = ran
    charts = [one for one in outputs if isinstance(one, alt.TopLevelMixin)]
    tables = [one for one in outputs if isinstance(one, pl.DataFrame)]
    assert len(charts) == 2
    assert [table.height for table in tables] == [2, 5, 5]
    for chart in charts:
        assert chart.to_dict(validate=False)["datasets"]


def test_the_notebook_is_one_that_marimo_opens() -> None:
    check = [sys.executable, "-m", "marimo", "check", "--strict", str(NOTEBOOK)]
    done = subprocess.run(check, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr + done.stdout
