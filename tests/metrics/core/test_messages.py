"""The catalogue of messages: each sentence once, with an identifier and a meaning."""

from __future__ import annotations

import re
from collections import Counter
from string import Formatter

import pytest

from fairmfu.metrics.core.messages import NOT_RANKED, Message, MessageKind, doubts_of
from tests.support.folders import ROOT
from tests.support.source_tree import MODULES, PACKAGES, module_name
from tests.tools.reference import message_kinds, named_kinds

KINDS = message_kinds()


def test_an_identifier_is_of_one_kind() -> None:
    every = {id(kind): kind.identifier for _, kind in named_kinds("metrics", MessageKind)}
    counts = Counter(every.values())
    assert [name for name, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.identifier)
def test_a_kind_says_when_it_appears_and_is_used(kind: MessageKind) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", kind.identifier)
    assert re.fullmatch(r"[A-Z].{10,79}\.", kind.when), kind.when
    names = {name for name, known in named_kinds("metrics", MessageKind) if known is kind}
    texts = [
        (ROOT / path).read_text(encoding="utf-8") for path in MODULES if path.name != "messages.py"
    ]
    assert any(re.search(rf"\b{name}\b", text) for name in names for text in texts)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.identifier)
def test_a_message_has_the_effect_of_its_kind_unless_another_is_given(kind: MessageKind) -> None:
    class Value(str):
        """Takes any format."""

        __slots__ = ()

        def __format__(self, _: str) -> str:
            return "value"

    fields = {name: Value() for _, name, _, _ in Formatter().parse(kind.text) if name}
    message = kind(**fields)
    assert (message.kind, message.effect) == (kind.identifier, kind.effect)
    assert message.endswith(NOT_RANKED) == (kind.effect == "unranked")
    assert kind("unranked", **fields).endswith(NOT_RANKED)
    assert "{" not in message


def test_a_message_goes_through_a_frame() -> None:
    message = Message("odd: not ranked", "odd", "unranked")
    again = Message.from_row(message.row)
    assert (again, again.kind, again.effect) == (message, "odd", "unranked")


def test_notes_are_no_doubts() -> None:
    messages = [Message(name, name, name) for name in ("note", "doubt", "unranked")]  # type: ignore[arg-type]
    assert doubts_of(messages) == ["doubt", "unranked"]


def test_no_message_about_a_run_is_written_elsewhere() -> None:
    """The end of a message that costs the rank is put behind it in one place."""
    users = {
        module_name(path)
        for path in MODULES
        if path.parts[0] in PACKAGES
        and re.search(r"\bNOT_RANKED\b", (ROOT / path).read_text(encoding="utf-8"))
    }
    assert users <= {
        "metrics.core.messages",
        "metrics.core.run_table",  # the short form of a doubt
        "metrics.compare.comparability",  # reasons without a rank
    }
