"""The catalogue of errors and notes: each sentence once, with an identifier."""

from __future__ import annotations

import ast
import pickle
import re
from collections import Counter
from functools import cache
from pathlib import Path
from string import Formatter

from fairmfu.ingest.core import errors
from fairmfu.ingest.core.errors import ErrorKind, FairmfuError, NoteKind
from tests.support.each_case import each_case
from tests.support.folders import ROOT
from tests.support.source_tree import MODULES, nodes
from tests.tools.reference import error_kinds, message_kinds, named_kinds

KINDS = error_kinds()

each_kind = each_case("kind", KINDS, ids=lambda kind: kind.identifier)


class Value(str):
    """Takes any format."""

    __slots__ = ()

    def __format__(self, _: str) -> str:
        return "value"


def words(kind: NoteKind) -> dict[str, Value]:
    return {name: Value() for _, name, _, _ in Formatter().parse(kind.text) if name}


def test_an_identifier_is_of_one_kind() -> None:
    every = {id(kind): kind.identifier for _, kind in named_kinds("ingest", NoteKind)}
    counts = Counter([*every.values(), *(kind.identifier for kind in message_kinds())])
    assert [name for name, count in counts.items() if count > 1] == []


@cache
def used() -> set[str]:
    """Words of the modules that may use a kind."""
    paths = [path for path in MODULES if path.name != "messages.py"]
    return {w for path in paths for w in re.findall(r"\w+", (ROOT / path).read_text("utf-8"))}


@cache
def names() -> dict[int, set[str]]:
    """Names of kinds in the code, by the kind's id."""
    found: dict[int, set[str]] = {}
    for name, kind in named_kinds("ingest", NoteKind):
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


@each_case("module", [m for m in MODULES if m.parts[0] == "ingest"], ids=str)
def test_ingest_raises_no_error_without_a_kind(module: Path) -> None:
    """An error class is only called by a kind; tests and users know the identifier."""
    classes = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, FairmfuError)
    }
    calls = (node.func for node in nodes(module) if isinstance(node, ast.Call))
    assert [c.id for c in calls if isinstance(c, ast.Name) and c.id in classes] == []
