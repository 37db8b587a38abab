"""The rules of the layout: imports go one way, and what computes opens no file."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("ingest", "metrics", "reports")
MODULES = sorted(
    path.relative_to(ROOT)
    for path in (ROOT / "cli.py", *(p for name in PACKAGES for p in (ROOT / name).rglob("*.py")))
    if path.is_file()
)
OPENERS = {
    *("open", "read_text", "read_bytes", "write_text", "write_bytes", "mkdir", "unlink"),
    *("read_parquet", "scan_parquet", "read_csv", "scan_csv", "read_json", "read_ndjson"),
    *("write_parquet", "write_csv", "write_json", "sink_parquet", "connect", "urlopen"),
}


KNOWN_OF_INGEST = {"ingest.schema", "ingest.errors"}
"""The contract, and the family of errors that a user can mend, so that one `except` takes all."""


def tree(module: Path) -> ast.Module:
    return ast.parse((ROOT / module).read_text(encoding="utf-8"))


def imports(module: Path) -> Iterator[str]:
    """Every module that `module` imports, also inside functions, as a dotted name."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: a relative import"
            source = node.module or ""
            packaged = {f"{source}.{alias.name}" for alias in node.names}
            submodules = {name for name in packaged if is_module(name)}
            yield from submodules or {source}


def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or path.is_dir()


def own(module: Path) -> set[str]:
    """The imports of `module` from this project."""
    return {name for name in imports(module) if name.split(".")[0] in (*PACKAGES, "cli")}


def called(module: Path) -> Iterator[tuple[str, int]]:
    """Name and line of every call, without what it is called on."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            yield name, node.lineno


def within(*folders: str) -> list[Path]:
    return [m for m in MODULES if str(m).startswith(folders) and m.name != "__init__.py"]


def param(modules: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("module", modules, ids=str)


def test_there_are_modules_to_look_at() -> None:
    assert {m.parts[0] for m in MODULES} >= {"ingest", "metrics"}


@param(within("ingest/formats"))
def test_a_format_imports_the_vocabulary_and_lines_of_formats_only(module: Path) -> None:
    assert {name for name in own(module) if not name.startswith("ingest.formats.")} <= {
        "ingest.log_format"
    }
    assert {name.split(".")[0] for name in imports(module)} <= {*sys.stdlib_module_names, "ingest"}


@param(within("ingest"))
def test_ingest_imports_neither_metrics_nor_reports(module: Path) -> None:
    assert {name.split(".")[0] for name in own(module)} <= {"ingest"}


@param(within("metrics"))
def test_metrics_knows_of_ingest_its_schema_and_errors_only(module: Path) -> None:
    others = {name for name in own(module) if not name.startswith("metrics.")}
    assert others <= KNOWN_OF_INGEST


@param([m for m in within("reports") if m.name not in {"nightly.py", "scores.py", "baselines.py"}])
def test_a_report_knows_of_ingest_its_schema_and_errors_only(module: Path) -> None:
    others = {name for name in own(module) if not name.startswith(("metrics.", "reports."))}
    assert others <= KNOWN_OF_INGEST


WRITERS = {
    *("document", "export", "files", "mlflow_files", "night_files", "nightly", "scores"),
    *("tensorboard_files", "trackers", "wandb_files"),
}
"""Of reports, what reads or writes files."""


@param([*within("metrics"), *(m for m in within("reports") if m.stem not in WRITERS)])
def test_what_computes_and_draws_opens_no_file(module: Path) -> None:
    assert [(name, line) for name, line in called(module) if name in OPENERS] == []


@param(MODULES)
def test_nothing_runs_strings_of_code(module: Path) -> None:
    names = {node.id for node in ast.walk(tree(module)) if isinstance(node, ast.Name)}
    assert names & {"eval", "exec", "compile", "__import__"} == set()
    assert {name for name, _ in called(module)} & {"unsafe_load", "full_load", "system"} == set()


@param(MODULES)
def test_no_memory_of_python_gets_into_polars(module: Path) -> None:
    """Why: ingest.arrays.owned."""
    assert "py_buffer" not in {name for name, _ in called(module)}


@param([m for m in MODULES if m not in {Path("ingest/store.py"), Path("ingest/catalogue.py")}])
def test_only_the_store_knows_its_database(module: Path) -> None:
    assert "duckdb" not in {name.split(".")[0] for name in imports(module)}


@param(MODULES)
def test_no_module_is_a_drawer_for_everything(module: Path) -> None:
    assert module.stem not in {"utils", "util", "misc", "common", "helpers", "helper", "shared"}


def test_each_module_has_its_place_in_contributing() -> None:
    whole = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = whole[whole.index("## Where things are") : whole.index("## Add a format")]
    modules = [m for m in within("ingest", "metrics", "reports") if len(m.parts) == 2]
    assert [str(m) for m in modules if not re.search(rf"[`/]{re.escape(m.name)}`", table)] == []


def test_no_file_names_a_place_of_the_machine_it_was_written_on() -> None:
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listing = [git, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.check_output(listing, cwd=ROOT, text=True)  # noqa: S603 - constants
    files = [ROOT / name for name in names.split("\0") if name]
    place = re.compile(rb"(?<![\w.*-])/(?:work|root)/")
    found = [p for p in files if p.is_file() and place.search(p.read_bytes())]
    assert [str(path.relative_to(ROOT)) for path in found] == []
