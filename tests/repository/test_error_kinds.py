"""The catalogue of errors and notes: each sentence once, with an identifier."""

from __future__ import annotations

import ast
import pickle
import re
from collections import Counter
from functools import cache
from pathlib import Path
from string import Formatter

from fairmfu.ingest.core.errors import ErrorKind, FairmfuError, NoteKind
from tests.support.each_case import each_case
from tests.support.folders import ROOT
from tests.support.source_tree import MODULES, nodes
from tests.tools.reference import CATALOGUE_SUFFIX, error_kinds, message_kinds, named_error_kinds

KINDS = error_kinds()

each_kind = each_case("kind", KINDS, ids=lambda kind: kind.identifier)


class Value(str):
    """Takes any format."""

    __slots__ = ()

    def __format__(self, _: str) -> str:
        return "value"


def words(kind: NoteKind) -> dict[str, Value]:
    return {name: Value() for _, name, _, _ in Formatter().parse(kind.text + kind.fix) if name}


def test_an_identifier_is_of_one_kind() -> None:
    every = {id(kind): kind.identifier for _, kind in named_error_kinds()}
    counts = Counter([*every.values(), *(kind.identifier for kind in message_kinds())])
    assert [name for name, count in counts.items() if count > 1] == []


@cache
def used() -> set[str]:
    """Words of the modules that may use a kind."""
    paths = [path for path in MODULES if not path.name.endswith(CATALOGUE_SUFFIX)]
    return {w for path in paths for w in re.findall(r"\w+", (ROOT / path).read_text("utf-8"))}


@cache
def names() -> dict[int, set[str]]:
    """Names of kinds in the code, by the kind's id."""
    found: dict[int, set[str]] = {}
    for name, kind in named_error_kinds():
        found.setdefault(id(kind), set()).add(name)
    return found


@each_kind
def test_a_kind_says_when_it_appears_and_is_used(kind: NoteKind) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", kind.identifier)
    assert re.fullmatch(r"[A-Z].{10,79}\.", kind.when), kind.when
    assert names()[id(kind)] & used()


@each_kind
def test_an_error_is_of_its_kind_in_another_process_too(kind: NoteKind) -> None:
    assert "{" not in kind.words(**words(kind))
    if isinstance(kind, ErrorKind):
        error = kind(**words(kind))
        again = pickle.loads(pickle.dumps(error))  # noqa: S301 - ours
        assert (type(again), str(again), again.kind) == (type(error), str(error), kind.identifier)


@cache
def error_classes() -> set[str]:
    """Names of our error classes: of FairmfuError, and of all that derive from it."""
    found = {FairmfuError.__name__}
    while True:
        more = {
            node.name
            for module in MODULES
            for node in nodes(module)
            if isinstance(node, ast.ClassDef) and {_last(base) for base in node.bases} & found
        }
        if more <= found:
            return found
        found |= more


def _last(node: ast.expr) -> str:
    return getattr(node, "id", getattr(node, "attr", ""))


def test_all_error_classes_are_known() -> None:
    assert {"StoreError", "ImpossibleShapeError", "NotDrawnError"} < error_classes()


@each_case("module", MODULES, ids=str)
def test_no_error_is_made_without_a_kind(module: Path) -> None:
    """An error class is only called by a kind; tests and users know the identifier."""
    calls = (node.func for node in nodes(module) if isinstance(node, ast.Call))
    assert [_last(call) for call in calls if _last(call) in error_classes()] == []


@each_case("module", [m for m in MODULES if not m.name.endswith(CATALOGUE_SUFFIX)], ids=str)
def test_a_kind_stands_in_the_catalogue_of_its_room(module: Path) -> None:
    calls = (node.func for node in nodes(module) if isinstance(node, ast.Call))
    kinds = {"NoteKind", "ErrorKind", "MessageKind"}
    assert [_last(call) for call in calls if _last(call) in kinds] == []


@each_kind
def test_a_remedy_is_shown_after_fix_only(kind: NoteKind) -> None:
    """So that the table has it in a column of its own, and no sentence shows it twice."""
    assert "Fix:" not in kind.text
    assert not kind.fix.endswith(".")
