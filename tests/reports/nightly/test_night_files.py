"""A night replaces and deletes only what fairmfu wrote; all else is refused or stays."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner, Result

from fairmfu.cli import main
from fairmfu.reports.nightly import night_files
from fairmfu.reports.nightly import nightly as module
from tests.support.effort import THOROUGH
from tests.support.nights import Plan, write_night
from tests.support.prepared import emptied, prepare

Nightly = Callable[..., Result]


def snapshot(folder: Path) -> dict[str, bytes | str]:
    return {
        path.relative_to(folder).as_posix(): (
            str(path.readlink()) if path.is_symlink() else path.read_bytes()
        )
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


@pytest.fixture
def tmp_path(one_place: Path) -> Path:
    return emptied(one_place)


@pytest.fixture
def nightly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nightly:
    monkeypatch.chdir(tmp_path)

    def run(*options: str) -> Result:
        return CliRunner().invoke(main, ["nightly", "logs", "--store", "store", *options])

    return run


@pytest.fixture(autouse=True)
def first_night(tmp_path: Path, nightly: Nightly, monkeypatch: pytest.MonkeyPatch) -> None:
    """A night took place, without the pages that take seconds."""
    monkeypatch.setattr(module, "full_page", lambda *_: "runs")
    monkeypatch.setattr(module.night_outputs, "svgs", lambda _: {"overview.svg": "<svg/>"})
    pages = '<script src="status.js">', "kept"
    monkeypatch.setattr(module.night_html, "pages", lambda _: pages)

    def take_place() -> None:
        (tmp_path / "logs").mkdir()
        for path in write_night(tmp_path / "logs", 1, Plan(seed=1), only=(0,)):
            before = path.stat().st_mtime - 3600
            os.utime(path, (before, before))
        assert nightly("--out", "out").exit_code == 0

    prepare(tmp_path, "night-files", take_place)


@pytest.mark.parametrize(
    "name",
    [
        *("index.html", "runs.html", "summary.md", "summary.json", "junit.xml", "status.js"),
        *("nightly.log", "nightly.log.1", "writer.lock", "charts/mine.svg"),
        night_files.MARKER,
    ],
)
@pytest.mark.parametrize("linked", [False, True])
def test_a_file_of_others_is_refused_before_anything_changes(
    tmp_path: Path, nightly: Nightly, name: str, *, linked: bool
) -> None:
    mine = tmp_path / "site" / name
    mine.parent.mkdir(parents=True)
    (tmp_path / "kept.txt").write_text("mine")
    if linked and not name.startswith("charts"):
        mine.symlink_to(tmp_path / "kept.txt")
    else:
        mine.write_text("mine")
    before = snapshot(tmp_path)
    found = nightly("--out", "site", "--keep", "1")
    assert found.exit_code == 1
    assert f"fairmfu did not write {name}" in " ".join(found.stderr.split())
    assert "Fix: move that file away, or give another folder with --out" in found.stderr
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("name", ["charts", "archive"])
def test_a_linked_folder_is_refused(tmp_path: Path, nightly: Nightly, name: str) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "photos" / "2020-01-01").mkdir(parents=True)
    (tmp_path / "photos" / "mine.svg").write_text("mine")
    (tmp_path / "site" / name).symlink_to(tmp_path / "photos")
    before = snapshot(tmp_path)
    assert nightly("--out", "site", "--keep", "1").exit_code == 1
    assert snapshot(tmp_path) == before


def test_only_listed_nights_of_the_archive_go(tmp_path: Path, nightly: Nightly) -> None:
    mine = tmp_path / "out" / "archive" / "2020-01-01" / "thesis.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    for _ in range(2):
        assert nightly("--out", "out", "--keep", "1").exit_code == 0
    assert mine.read_text() == "mine"
    assert len([*(tmp_path / "out" / "archive").iterdir()]) == 2


def test_the_list_names_what_is_there(tmp_path: Path) -> None:
    out = tmp_path / "out"
    there = {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}
    owned = night_files.owned_names(out)
    (night,) = night_files.archived_nights(out, owned)
    inside = {name for name in there if name.startswith(f"archive/{night.name}/")}
    assert there - inside - owned == {night_files.MARKER, "writer.lock"}


@pytest.mark.parametrize("names", ["/etc/passwd", "../kept.txt", "archive/../../kept", "notes.txt"])
def test_a_list_that_names_other_places_gives_no_right_to_them(
    tmp_path: Path, nightly: Nightly, names: str
) -> None:
    kept = tmp_path / "kept.txt"
    kept.write_text("mine")
    (tmp_path / "out" / "notes.txt").write_text("mine")
    night_files.write_list(tmp_path / "out", night_files.owned_names(tmp_path / "out") | {names})
    assert nightly("--out", "out", "--keep", "1").exit_code == 0
    assert kept.read_text() == (tmp_path / "out" / "notes.txt").read_text() == "mine"


def test_a_folder_of_an_earlier_version_is_recognised(tmp_path: Path, nightly: Nightly) -> None:
    out = tmp_path / "out"
    owned = night_files.owned_names(out)
    (out / night_files.MARKER).unlink()
    present = {name for name in owned if (out / name).exists()}
    assert night_files.owned_names(out) >= present
    assert nightly("--out", "out").exit_code == 0
    assert night_files.owned_names(out) >= present - {"runs.html"}  # a night without new runs


@pytest.mark.parametrize("name", ["index.html", "summary.json", "summary.md", "nightly.log"])
def test_a_changed_file_of_an_earlier_version_is_refused(
    tmp_path: Path, nightly: Nightly, name: str
) -> None:
    (tmp_path / "out" / night_files.MARKER).unlink()
    (tmp_path / "out" / name).write_text("mine")
    before = snapshot(tmp_path)
    assert nightly("--out", "out").exit_code == 1
    assert snapshot(tmp_path) == before


ALLOWED_AT: Final = {
    "../elsewhere": "store",
    "{tmp}/elsewhere": "out",
    "link/elsewhere": "issue_dir",
    "~/elsewhere": "out",
}
"""Of each place the key of which a night shows what is allowed; `make thorough`: of each key."""


@pytest.mark.parametrize("key", ["store", "out", "issue_dir"])
@pytest.mark.parametrize("place", ALLOWED_AT)
def test_a_config_that_nobody_named_writes_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, place: str
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "link").symlink_to(tmp_path)
    shutil.copytree(tmp_path / "logs", here / "logs")
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(tmp_path))
    (here / "fairmfu.toml").write_text(
        f'sources = ["logs"]\n{key} = "{place.format(tmp=tmp_path)}"\n'
    )
    found = CliRunner().invoke(main, ["nightly"])
    assert found.exit_code == 1
    assert f"{key} is outside" in " ".join(found.stderr.split())
    assert not (tmp_path / "elsewhere").exists()
    if key != ALLOWED_AT[place] and not THOROUGH:
        return
    option = {"store": "--store", "out": "--out", "issue_dir": "--issue"}[key]
    assert CliRunner().invoke(main, ["nightly", option, "mine"]).exit_code == 0
    assert not (tmp_path / "elsewhere").exists()
    if key == "store":
        found = CliRunner().invoke(main, ["ingest", "logs"])
        assert found.exit_code == 1
        assert not (tmp_path / "elsewhere").exists()
    named = CliRunner().invoke(main, ["nightly", "--config", "fairmfu.toml"])
    assert named.exit_code == 0, named.output
    assert (tmp_path / "elsewhere").exists() or key == "issue_dir"
