"""The rules of the house: rooms import rooms below them, and what computes opens no file."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.each_case import Test, each_case
from tests.support.folders import ROOT, TESTS
from tests.support.source_tree import MODULES, PACKAGES, import_source, nodes, own_imports, tree

FLOORS = {
    "ingest": (
        *("core", "formats", "decode", "launches", "parse", "facts", "vector", "detect", "store"),
        *("extract", "workers", "pipeline"),
    ),
    "metrics": (
        *("core", "formula", "throughput", "runs", "utilization", "diagnosis", "audit", "compare"),
        "pipeline",
    ),
    "reports": ("store", "text", "comparison", "charts", "page", "nightly", "trackers"),
}
"""The rooms of each top-level folder from the ground up: a room imports only rooms before it."""

MAX_MODULES = 20
"""Modules of a room, so that its listing is taken in at a glance."""

SHARED_BY_INGEST = {
    "ingest.core.toml_reader",
    *("ingest.core.schema", "ingest.core.errors", "ingest.core.faults"),
    *("ingest.core.progress", "ingest.core.data_files", "ingest.core.operator_list"),
}
"""What metrics and reports know of ingest: the tables, errors that a user can mend, and others."""

COMPUTES = {
    *("launch_view.py", "world_size.py", "engines.py", "shared_batches.py", "job_config.py"),
}
"""Modules of formats that compute facts of whole launches or files; others describe lines."""

KNOWS_THE_STORE = {
    *("nightly/nightly.py", "nightly/night_files.py", "nightly/baselines.py"),
    *("store/kept_needs.py", "store/metrics_store.py", "store/failing_runs.py"),
}
"""Reports that open a store themselves."""

WRITERS = {
    *("html_templates", "chart_export", "output_files", "mlflow_files", "night_outputs", "nightly"),
    *("metrics_store", "tensorboard_files", "trackers", "wandb_files"),
    "night_files",  # and reads the list of what is ours
    "render",  # keeps the bundled scripts in the user's cache
}
"""Reports that read or write files."""

READS_TABLES = Path("ingest/core/data_files.py")
"""What reads the tables that are installed with the code."""

OPENERS = {
    *("open", "read_text", "read_bytes", "write_text", "write_bytes", "mkdir", "unlink"),
    *("read_parquet", "scan_parquet", "read_csv", "scan_csv", "read_json", "read_ndjson"),
    *("write_parquet", "write_csv", "write_json", "sink_parquet", "connect", "urlopen"),
}


def room(module: Path) -> str:
    """Return the room of a module: `launches` of ingest/launches/outcomes.py, "" of __init__.py."""
    return module.parts[1] if len(module.parts) > 2 else ""


def called(module: Path) -> Iterator[tuple[str, int]]:
    """Yield name and line of every call, without what it is called on."""
    for node in nodes(module):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            yield name, node.lineno


def within(*folders: str) -> list[Path]:
    return [m for m in MODULES if str(m).startswith(folders) and m.name != "__init__.py"]


def param(modules: list[Path]) -> Callable[[Test], Test]:
    return each_case("module", modules, ids=str)


# --- rooms -------------------------------------------------------------------------------------


@pytest.mark.parametrize("top", PACKAGES)
def test_every_module_is_in_a_room_that_has_a_floor(top: str) -> None:
    assert {room(module) for module in within(f"{top}/")} == set(FLOORS[top])


@pytest.mark.parametrize("top", PACKAGES)
def test_no_room_is_crowded(top: str) -> None:
    folders = {module.parent for module in within(f"{top}/")}
    modules = {folder: [m for m in within(f"{top}/") if m.parent == folder] for folder in folders}
    assert [str(f) for f, held in modules.items() if len(held) > MAX_MODULES] == []


@pytest.mark.parametrize("top", PACKAGES)
def test_every_room_says_what_it_holds(top: str) -> None:
    texts = {module.parent: tree(module.parent / "__init__.py") for module in within(f"{top}/")}
    assert [str(folder) for folder, text in texts.items() if not ast.get_docstring(text)] == []


@param([module for module in MODULES if room(module)])
def test_a_room_imports_only_rooms_on_floors_below(module: Path) -> None:
    top, floors = module.parts[0], FLOORS[module.parts[0]]
    below = floors[: floors.index(room(module)) + 1]
    imported = {name for name in own_imports(module) if name.split(".")[0] == top}
    assert {name for name in imported if name.split(".")[1] not in below} == set()


@param(MODULES)
def test_imports_are_relative_inside_a_folder_and_absolute_across(module: Path) -> None:
    for node in nodes(module):
        if isinstance(node, ast.ImportFrom):
            top = import_source(module, node).split(".")[0]
            if top in PACKAGES and room(module):
                assert bool(node.level) == (top == module.parts[0]), f"{module}:{node.lineno}"
            elif top in PACKAGES:
                assert not node.level, f"{module}:{node.lineno}"
        if isinstance(node, ast.Import):
            tops = {alias.name.split(".")[0] for alias in node.names}
            assert tops & {*PACKAGES, "cli"} == set(), f"{module}:{node.lineno}"


@pytest.mark.parametrize("top", PACKAGES)
def test_the_tests_of_a_room_are_in_a_room_of_its_name(top: str) -> None:
    tested = {p.parent.relative_to(TESTS / top).parts[0] for p in (TESTS / top).rglob("test_*.py")}
    assert tested <= set(FLOORS[top])
    assert set(FLOORS[top]) - tested <= {"store"}, "a room without tests of its own"


# --- who knows whom ----------------------------------------------------------------------------


@param([m for m in within("ingest/formats") if m.name not in COMPUTES])
def test_a_format_imports_the_vocabulary_and_lines_of_formats_only(module: Path) -> None:
    assert {name for name in own_imports(module) if not name.startswith("ingest.formats.")} == set()
    libraries = {
        import_source(module, node) if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in nodes(module)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert {name.split(".")[0] for name in libraries} <= {*sys.stdlib_module_names, "ingest"}


@param([m for m in within("ingest/formats") if m.name in COMPUTES])
def test_what_computes_for_a_format_imports_formats_and_core_only(module: Path) -> None:
    assert all(n.startswith(("ingest.formats.", "ingest.core.")) for n in own_imports(module))


@param(within("ingest"))
def test_ingest_imports_neither_metrics_nor_reports(module: Path) -> None:
    assert {name.split(".")[0] for name in own_imports(module)} <= {"ingest"}


@param(within("metrics"))
def test_metrics_knows_of_ingest_its_schema_and_errors_only(module: Path) -> None:
    others = {name for name in own_imports(module) if not name.startswith("metrics.")}
    assert others - {"ingest.core.lazy_exports"} <= SHARED_BY_INGEST


@param([m for m in within("reports") if "/".join(m.parts[1:]) not in KNOWS_THE_STORE])
def test_a_report_knows_of_ingest_its_schema_and_errors_only(module: Path) -> None:
    others = {n for n in own_imports(module) if not n.startswith(("metrics.", "reports."))}
    assert others <= SHARED_BY_INGEST


@param(
    [
        *(m for m in within("metrics") if m != READS_TABLES),
        *(m for m in within("reports") if m.stem not in WRITERS),
    ]
)
def test_what_computes_and_draws_opens_no_file(module: Path) -> None:
    assert [(name, line) for name, line in called(module) if name in OPENERS] == []


@param(MODULES)
def test_nothing_runs_strings_of_code(module: Path) -> None:
    names = {
        node.id
        for node in nodes(module)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)  # a key may be `compile`
    }
    assert names & {"eval", "exec", "compile", "__import__"} == set()
    assert {name for name, _ in called(module)} & {"unsafe_load", "full_load", "system"} == set()


@param(MODULES)
def test_no_memory_of_python_gets_into_polars(module: Path) -> None:
    """Why: ingest.core.arrays.copy_to_arrow."""
    assert "py_buffer" not in {name for name, _ in called(module)}


@param([m for m in MODULES if str(m) not in {"ingest/store/store.py", "ingest/store/catalogue.py"}])
def test_only_the_store_knows_its_database(module: Path) -> None:
    named = [node for node in nodes(module) if isinstance(node, ast.Import)]
    froms = [node for node in nodes(module) if isinstance(node, ast.ImportFrom)]
    libraries = {alias.name.split(".")[0] for node in named for alias in node.names}
    libraries |= {(node.module or "").split(".")[0] for node in froms if not node.level}
    assert "duckdb" not in libraries


@param(MODULES)
def test_no_module_is_a_drawer_for_everything(module: Path) -> None:
    assert module.stem not in {"utils", "util", "misc", "common", "helpers", "helper", "shared"}


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
