"""Commands and the notebook, where PYTHONPATH leads to a training repository with our old names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fairmfu.cli import main
from tests.support.folders import ROOT

SYNTHETIC = ROOT / "sample_logs" / "synthetic"
NOTEBOOK = ROOT / "docs" / "examples" / "is_it_faster.py"
RUN = "llama3-8b-8xh100-torchtitan"
OTHER = "llama3-8b-8xh100-xtuner"
PROGRAM = Path(sys.executable).with_name("fairmfu")
HOSTILE = 'raise ImportError("a module of the training repository")\n'
NAMES = ("metrics.py", "cli.py", "reports.py", "ingest/__init__.py", "ingest/store.py")
IN_ORDER = (
    f"ingest {SYNTHETIC}/torchtitan {SYNTHETIC}/xtuner --processes 2",
    f"set {RUN} gpus=8",
    "rescore",
    "runs",
    f"compare {RUN} {OTHER}",
    f"explain {RUN}",
    "missing",
    f"report --out page.html {RUN}",
    f"chart course {RUN} --out course.svg",
    f"export {RUN} --to mlflow --out mlflow",
    "query 'select count(*) from runs'",
    f"nightly {SYNTHETIC}/torchtitan --out night",
    f"baseline set {RUN}",
    "baseline list",
    "doctor",
    "compact",
    "rebuild",
    f"remove {OTHER}",
)
"""Commands with a store, each on what those before it left."""
WITHOUT_STORE = (
    "flops llama3-8b --seq-len 8192",
    "formats",
    f"formats {SYNTHETIC}/torchtitan/{RUN}.log --check torchtitan",
    "facts",
    "models",
    "accelerators",
    "completion bash",
)


EVERY = """
import runpy, shlex, sys
from fairmfu.cli import main
from fairmfu.reports.charts import render_process
draw = render_process.draw_product
render_process.FIRST_PRODUCTS["html"] = "begun"
render_process.draw_product = lambda what, *given: b"" if what == "scripts" else draw(what, *given)
for line in sys.argv[1:]:
    if line.endswith(".py"):
        runpy.run_path(line, run_name="__main__")
        continue
    try:
        main(shlex.split(line), prog_name="fairmfu")
    except SystemExit as ended:
        assert not ended.code, line
"""
"""Runs each of the lines and Python files that it is given.

Without the scripts of pages: they take seconds, and come from the process that draws a chart.
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training repository whose modules are called as our folders are."""
    folder = tmp_path_factory.mktemp("training")
    for name in NAMES:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(HOSTILE)
    return folder


def run(repository: Path, *words: str | Path) -> None:
    """Run a program within the repository, which comes before everything else on the path."""
    environment = os.environ | {"PYTHONPATH": str(repository), "FAIRMFU_STORE": "store"}
    done = subprocess.run(  # noqa: S603 - our own programs
        words, cwd=repository, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"


def test_the_repository_is_hostile(repository: Path) -> None:
    with pytest.raises(AssertionError, match="a module of the training repository"):
        run(repository, sys.executable, "-c", "import metrics")


def test_every_command_is_tried() -> None:
    assert {line.split()[0] for line in (*IN_ORDER, *WITHOUT_STORE)} == set(main.commands)


def test_every_command_and_the_notebook(repository: Path) -> None:
    """In one process, which is as much as a start of each would show."""
    run(repository, sys.executable, "-c", EVERY, *IN_ORDER, *WITHOUT_STORE, NOTEBOOK)


def test_the_installed_program(repository: Path) -> None:
    run(repository, PROGRAM, "models")
