"""Formats of a user beside the built-in ones: where they are found, and which names mean what."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from fairmfu.ingest.core.errors import FormatFileError
from fairmfu.ingest.detect.format_lookup import (
    FORMATS_FOLDER_VARIABLE,
    FormatCatalog,
    load_format_catalog,
    user_format_files,
)
from fairmfu.ingest.detect.user_formats import load_user_format
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS

BUILT_IN: Final = {f.name for f in BUILT_IN_FORMATS}
EXTENDS: Final = """
name = "{name}"
extends = "torchtitan"
[[steps]]
regex = 'step: *(?P<step>\\d+) loss: (?P<loss>\\S+) mem: '
columns = {{ step = "step", loss = "loss" }}
example = "step: 10 loss: 6.27853 mem: 3"
"""
ALONE: Final = """
name = "{name}"
framework = "torchtitan"
evidence = ["elapsed"]
elapsed_covers = "step"
looks_like_step = '{word} step'
[[steps]]
regex = '{word} step (?P<step>\\d+) took (?P<took>[\\d.]+)'
columns = {{ step = "step", took = ["elapsed_s", 0.001] }}
example = "{word} step 3 took 250{more}"
"""


def alone(name: str, word: str = "", more: str = "") -> str:
    return ALONE.format(name=name, word=word or name, more=more)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder of formats."""
    folder = tmp_path / "formats"
    folder.mkdir()
    monkeypatch.setenv(FORMATS_FOLDER_VARIABLE, str(folder))
    return folder


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


# -- where they are ------------------------------------------------------------------------


def test_the_folders_files_are_known_to_every_command(folder: Path) -> None:
    for name in ("b", "a"):
        write(folder / f"{name}.toml", alone(name))
    write(folder / "notes.txt", "none")
    assert [path.name for path in user_format_files()] == ["a.toml", "b.toml"]
    catalog = load_format_catalog()
    assert {f.name for f in catalog.formats} == BUILT_IN | {"a", "b"}
    assert catalog.origin("a") == str(folder / "a.toml")
    assert catalog.origin("torchtitan") == "built-in"


def test_a_folder_that_is_named_has_to_be_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FORMATS_FOLDER_VARIABLE, str(folder / "gone"))
    with pytest.raises(FormatFileError, match="gone: no such folder"):
        user_format_files()
    monkeypatch.setenv(FORMATS_FOLDER_VARIABLE, "")
    assert user_format_files() == []


def test_the_users_own_folder_need_not_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(FORMATS_FOLDER_VARIABLE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert user_format_files() == []
    (own := tmp_path / "fairmfu" / "formats").mkdir(parents=True)
    mine = write(own / "a.toml", alone("a"))
    assert user_format_files() == [mine]
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_format_files() == []
    (own := tmp_path / ".config" / "fairmfu" / "formats").mkdir(parents=True)
    mine = write(own / "b.toml", alone("b"))
    assert user_format_files() == [mine]


# -- which names mean what -----------------------------------------------------------------


def test_formats_that_are_named_are_those_that_may_be_primary(folder: Path) -> None:
    path = write(folder.parent / "mine.toml", alone("mine"))
    catalog = FormatCatalog()
    assert catalog.tried().wanted == frozenset()
    assert catalog.tried().names == BUILT_IN
    assert catalog.tried(["torchtitan"]).wanted == {"torchtitan"}
    both = catalog.tried(["torchtitan", str(path)])
    assert both.wanted == {"torchtitan", "mine"}
    assert {"torchtitan", "mine"} <= both.names
    assert catalog.tried([str(path), str(path)]).wanted == {"mine"}  # the same file


def test_an_extension_is_meant_by_the_name_of_what_it_extends(folder: Path) -> None:
    write(folder / "fork.toml", EXTENDS.format(name="fork"))
    catalog = load_format_catalog()
    assert {f.name for f in catalog.formats} == BUILT_IN - {"torchtitan"} | {"fork"}
    assert catalog.tried(["torchtitan"]).wanted == {"fork"}
    assert catalog.tried(["fork"]).wanted == {"fork"}
    assert catalog.tried([str(folder / "fork.toml")]).wanted == {"fork"}
    assert catalog.tried(["xtuner"]).wanted == {"xtuner"}


def test_a_name_that_is_none_is_told_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(FormatFileError, match=r"'torchtitn'. Did you mean torchtitan") as error:
        FormatCatalog().tried(["torchtitn"])
    assert "or the path of a TOML file" in str(error.value)
    with pytest.raises(FormatFileError, match=r"'xyz'. Known: torchtitan, "):
        FormatCatalog().tried(["xyz"])
    with pytest.raises(FormatFileError, match=r"none\.toml"):
        FormatCatalog().tried([str(tmp_path / "none.toml")])
    path = write(tmp_path / "a_format", alone("mine"))  # of whatever ending
    assert FormatCatalog().tried([str(path)]).wanted == {"mine"}


# -- formats that are in each other's way --------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (alone("xtuner"), "name: the format 'xtuner' exists .built-in."),
        (alone("first"), "name: the format 'first' exists .*a.toml"),
        (
            alone("other", "first", " and more"),
            "signature: matches a step line of first too .'first step 3 took 250'",
        ),
        (EXTENDS.format(name="fork2"), r"extends: .*b\.toml extends torchtitan too"),
    ],
)
def test_formats_of_one_name_or_of_the_same_lines_are_refused(
    text: str, why: str, folder: Path
) -> None:
    write(folder / "a.toml", alone("first"))
    write(folder / "b.toml", EXTENDS.format(name="fork"))
    catalog = load_format_catalog()
    path = write(folder.parent / "c.toml", text)
    with pytest.raises(FormatFileError, match=why) as error:
        catalog.with_user_format(load_user_format(path))
    assert str(error.value).startswith(f"{path}: ")


def test_a_format_whose_steps_another_takes_is_refused(folder: Path) -> None:
    """Sixty characters of the line are shown."""
    write(folder / "a.toml", alone("first"))
    more = " " + "x" * 90
    text = alone("other", "other", more).replace('"other step', '"first step 1 took 2, other step')
    path = write(folder.parent / "c.toml", text)
    with pytest.raises(FormatFileError, match="signature: first matches this") as error:
        load_format_catalog().with_user_format(load_user_format(path))
    quoted = ("first step 1 took 2, other step 3 took 250" + more)[:60]
    assert f"({quoted!r})" in str(error.value)
