"""The wheel installs and runs where the repository is not; the sdist holds what builds it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tests.support.folders import ROOT

SAMPLES = [
    ROOT / "sample_logs" / "synthetic" / name
    for name in (
        "torchtitan/llama3-8b-8xh100-torchtitan.log",
        "xtuner/llama3-8b-8xh100-xtuner.log",
    )
]
MOST_BYTES = 4_000_000
JUNK = {".venv", ".git", "demo", "dist", "__pycache__", ".mypy_cache", ".ruff_cache", "shared"}


def built(kind: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)  # noqa: S603 - constants
    (found,) = folder.iterdir()
    return found


def packaged() -> set[str]:
    """The files of this checkout that belong into the wheel."""
    folders = [
        path for name in ("ingest", "metrics", "reports") for path in (ROOT / name).rglob("*")
    ]
    files = [ROOT / "cli.py", *(path for path in folders if path.is_file())]
    inside = {f"fairmfu/{path.relative_to(ROOT)}" for path in files if path.suffix != ".pyc"}
    return inside | {"fairmfu/__init__.py", "fairmfu/py.typed"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `fairmfu` of an environment that has the wheel, and our libraries but not us.

    What makes this checkout importable is a .pth file, which counts in the environment's own folder
    alone, not in folders that one of its .pth files names.
    """
    place = tmp_path_factory.mktemp("installed")
    venv.create(place, symlinks=True)
    python = place / "bin" / "python"
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--quiet",
        "--no-compile",
    ]
    subprocess.run([*command, "--no-deps", "--no-index", str(wheel)], check=True)  # noqa: S603
    own = sysconfig.get_path("purelib", vars={"base": str(place), "platbase": str(place)})
    libraries = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    Path(own, "libraries.pth").write_text("\n".join(libraries))
    return place / "bin" / "fairmfu"


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two logs and nothing else."""
    folder = tmp_path_factory.mktemp("elsewhere")
    for log in SAMPLES:
        shutil.copy(log, folder)
    return folder


def ran(program: Path, folder: Path, *arguments: str) -> str:
    ours = ("FAIRMFU", "PYTHON")
    environment = {name: to for name, to in os.environ.items() if not name.startswith(ours)}
    done = subprocess.run(  # noqa: S603 - our own command
        [program, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_every_file_of_its_packages_and_no_other(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == packaged()
    assert {Path(name).suffix for name in names} >= {".py", ".js", ".css", ".toml", ".j2"}


SESSION = """
import shlex, sys
from fairmfu import cli
from fairmfu.ingest import store
print(cli.__file__, store.__file__)
for line in sys.argv[1:]:
    print(end="\\0", flush=True)
    try:
        cli.main(shlex.split(line), prog_name="fairmfu")
    except SystemExit as ended:
        assert not ended.code, line
"""
"""Prints where fairmfu is, and after that what each of the lines prints."""


def test_the_wheel_runs_where_the_repository_is_not(installed: Path, elsewhere: Path) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert ran(installed, elsewhere, "--version") == f"fairmfu, version {version}\n"
    python = installed.with_name("python")
    where, _, compared, _, accelerators, models, completion = ran(
        *(python, elsewhere, "-c", SESSION),
        "ingest . --store store",
        "compare --format json --store store",
        "report --store store --out report.html",
        "accelerators --format json",
        "models --format json",
        "completion bash",
    ).split("\0")
    for path in where.split():
        assert Path(path).is_relative_to(installed.parents[1])
    rows = json.loads(compared)
    assert {row["name"] for row in rows} == {log.stem for log in SAMPLES}
    assert all(row["mfu"] for row in rows)
    page = (elsewhere / "report.html").read_text(encoding="utf-8")
    assert (ROOT / "reports" / "page" / "page.css").read_text(encoding="utf-8").split("{")[
        0
    ].strip() in page
    for table in (accelerators, models):
        assert len(json.loads(table)) > 60
    assert completion.startswith("_fairmfu_completion")


def test_the_sdist_holds_what_builds_the_wheel_and_no_junk(tmp_path: Path) -> None:
    sdist = built("sdist", tmp_path)
    assert sdist.stat().st_size < MOST_BYTES
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
        assert not [member.name for member in archive if member.issym()]
    assert packaged() | {"pyproject.toml", "README.md", "LICENSE"} <= names
    assert not {name for name in names if JUNK & set(Path(name).parts)}
    assert not {name for name in names if name.endswith((".whl", ".pyc", ".duckdb"))}
