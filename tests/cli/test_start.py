"""How a command begins and ends: what it imports, and that no process tidies up what it holds."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from fairmfu.cli import main
from tests.support.folders import ROOT

LOG = ROOT / "sample_logs" / "synthetic" / "torchtitan"
LIBRARIES = {
    *(
        "altair",
        "duckdb",
        "jinja2",
        "numpy",
        "polars",
        "pyarrow",
        "rich",
        "scipy",
        "vl_convert",
        "yaml",
    ),
    "fairmfu.metrics",
}
CATALOGUE = {"fairmfu.reports", "fairmfu.reports.text", "fairmfu.reports.text.messages"}
"""Modules of reports that every command imports: the errors of the command line."""
DRAWING = {
    "altair",
    "jinja2",
    "vl_convert",
    "fairmfu.reports.page.html_document",
    "fairmfu.reports.nightly.nightly",
}
READING = {
    "yaml",
    "fairmfu.ingest.pipeline.ingest_run",
    "fairmfu.ingest.detect.detection",
    "fairmfu.ingest.decode.line_reader",
}
COMPUTING = {
    *("numpy", "scipy", "pyarrow", "fairmfu.metrics.pipeline.analysis"),
    *("fairmfu.metrics.pipeline.measured_runs", "fairmfu.metrics.audit.audit"),
}
FORMULA = {"fairmfu.metrics.formula.flops", "fairmfu.metrics.formula.model_shapes"}
UNREAD = {"rich.table", "fairmfu.ingest.formats.registry", "fairmfu.ingest.pipeline.ingest_run"}
"""Modules that no command over kept results needs: tables of rich, and the formats of logs."""
READERS = {
    "runs": FORMULA,
    "missing": FORMULA,
    "explain llama3-8b-8xh100-torchtitan": {"fairmfu.reports.text.verdict"},
}
"""Commands over kept results, and what each does without besides."""
CODE = """
import shlex, sys
from fairmfu.cli import main
for line in sys.argv[1:]:
    try:
        main(shlex.split(line), prog_name="fairmfu")
    except SystemExit as ended:
        assert not ended.code, line
sys.stderr.write("\\n".join(sys.modules))
"""


def imported(*lines: str, before: str = "", **environment: str) -> set[str]:
    """What these commands, one after the other in one process, have imported."""
    ran = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-c", before + CODE, *lines],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout
    return set(ran.stderr.splitlines())


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    assert CliRunner().invoke(main, ["ingest", str(LOG), "--store", str(path)]).exit_code == 0
    return path


def test_help_imports_no_library_but_click() -> None:
    found = imported("-h", "--version", *(f"{name} -h" for name in main.commands))
    assert "click" in found
    assert found & LIBRARIES == set()
    assert {name for name in found if name.startswith("fairmfu.reports")} == CATALOGUE


def test_completion_imports_no_library_but_click() -> None:
    asked = {"_FAIRMFU_COMPLETE": "bash_complete", "COMP_WORDS": "fairmfu ingest --s"}
    found = imported("", COMP_CWORD="2", **asked)
    assert found & LIBRARIES == set()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose results are kept."""
    path = tmp_path_factory.mktemp("kept") / "store"
    for words in (["ingest", str(LOG)], ["rescore"], ["missing"]):
        assert CliRunner().invoke(main, [*words, "--store", str(path)]).exit_code == 0
    return path


@pytest.mark.parametrize("command", READERS)
def test_what_is_kept_is_shown_without_computing(command: str, kept: Path) -> None:
    """In an own process each: one command would hide what another imports."""
    found = imported(f"{command} --store '{kept}'")
    assert found & (DRAWING | READING | COMPUTING | UNREAD | READERS[command]) == set()


def test_kept_runs_are_compared_without_scipy(kept: Path) -> None:
    found = imported(f"compare --store '{kept}'")
    spared = {"scipy", "pyarrow.lib", "fairmfu.metrics.pipeline.analysis", *DRAWING, *READING}
    assert found & spared == set()


WITHOUT_SCRIPTS = """
from fairmfu.reports.charts import render_process
render_process.start_drawing = lambda _: None
render_process.draw_product = lambda *_: b""
"""
"""Another process would draw, and prepare the scripts of the page for seconds."""


def test_a_page_of_kept_runs_needs_no_arrow_library(kept: Path) -> None:
    """It takes 40 MB and 0.2 s."""
    lines = (f"runs --store '{kept}'", f"report --store '{kept}' --out '{kept}.html'")
    found = imported(*lines, before=WITHOUT_SCRIPTS)
    assert "jinja2" in found
    assert found & {"pyarrow.lib", *READING} == set()


def test_runs_that_were_just_read_are_computed_without_drawing(store: Path) -> None:
    found = imported(f"runs --store '{store}'")
    assert "scipy" in found
    assert found & (DRAWING | READING) == set()


def test_pandas_is_left_alone_where_it_is_installed(tmp_path: Path) -> None:
    """Arrow imports it as soon as it is asked for an array of something: 0.2 s, 45 MB."""
    (tmp_path / "pandas").mkdir()
    (tmp_path / "pandas" / "__init__.py").write_text('__version__ = "3.1.1"\n')
    lines = (
        f"ingest {LOG} --store {tmp_path / 'store'}",
        f"runs --store {tmp_path / 'store'}",
    )
    assert "pandas" not in imported(*lines, PYTHONPATH=str(tmp_path))


ENDED = """
import gc
from fairmfu.cli import main
try:
    main(["--version"])
except SystemExit as ended:
    print(ended.code, gc.get_freeze_count() > 10_000)
"""


def test_a_process_ends_without_a_look_at_all_its_objects() -> None:
    """But not that of who calls the command in his own."""
    ran = [sys.executable, "-c", ENDED]
    said = subprocess.run(ran, cwd=ROOT, capture_output=True, text=True, check=True).stdout  # noqa: S603
    assert said.endswith("\n0 True\n")
    before = gc.get_freeze_count()
    assert CliRunner().invoke(main, ["--version"]).exit_code == 0
    assert gc.get_freeze_count() == before
