"""Each promise of docs/reliability.md names a test that there is, and can be broken on purpose.

`make sabotage` breaks them (tests/tools/sabotage.py); here is what can be told without running.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

from tests.support.each_case import each_case
from tests.support.folders import ROOT
from tests.tools.sabotage import Promise, Sabotage, promise_of, promises, sabotages


@cache
def names_in(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.ClassDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


def test_the_page_has_promises() -> None:
    found = promises()
    assert len(found) > 60
    assert len({one.name for one in found}) == len(found)


@each_case("promise", promises())
def test_a_promise_names_a_test_and_is_sabotaged(promise: Promise) -> None:
    assert promise.tests, promise.name
    assert all((ROOT / path).is_file() for path in promise.tests), promise
    assert any(promise.name.startswith(one.promise) for one in sabotages()), promise.name


@each_case("sabotage", sabotages())
def test_a_sabotage_applies_and_breaks_one_promise(sabotage: Sabotage) -> None:
    source = (ROOT / sabotage.path).read_text(encoding="utf-8")
    changed = sabotage.planted(source)
    assert changed is not None, f"{sabotage.path}: the old text is not there exactly once"
    assert changed != source
    if sabotage.path.endswith(".py"):
        ast.parse(changed)
    file, *names = sabotage.test.partition("[")[0].split("::")
    assert file in promise_of(sabotage).tests, sabotage
    assert set(names) <= names_in(file), sabotage.test
    assert names[-1].startswith("test_")


def test_a_text_that_is_there_twice_is_not_changed() -> None:
    sabotage = Sabotage("", "", "a", "b", "")
    assert sabotage.planted("a c") == "b c"
    assert sabotage.planted("a a") is None
    assert sabotage.planted("c") is None


def test_a_promise_is_named_by_its_beginning() -> None:
    with pytest.raises(LookupError, match="0 promises"):
        promise_of(Sabotage("no such promise", "", "", "", ""))
    assert Path(sabotages()[0].path).suffix == ".py"
