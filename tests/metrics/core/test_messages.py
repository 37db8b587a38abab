"""The catalogue of messages: each sentence once, with an identifier and a meaning."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from string import Formatter

import pytest

from fairmfu.metrics.core.messages import (
    NOT_RANKED,
    Effect,
    Message,
    MessageKind,
    as_clause,
    as_sentence,
    doubts_of,
)
from tests.support.each_case import each_case
from tests.support.folders import ROOT
from tests.support.source_tree import MODULES, PACKAGES, module_name
from tests.tools.reference import message_kinds, named_message_kinds

KINDS = message_kinds()


def test_an_identifier_is_of_one_kind() -> None:
    every = {id(kind): kind.identifier for _, kind in named_message_kinds()}
    counts = Counter(every.values())
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
    for name, kind in named_message_kinds():
        found.setdefault(id(kind), set()).add(name)
    return found


@each_case("kind", KINDS, ids=lambda kind: kind.identifier)
def test_a_kind_says_when_it_appears_and_is_used(kind: MessageKind) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", kind.identifier)
    assert re.fullmatch(r"[A-Z].{10,79}\.", kind.when), kind.when
    assert names()[id(kind)] & used()


@each_case("kind", KINDS, ids=lambda kind: kind.identifier)
def test_a_message_has_the_effect_of_its_kind_unless_another_is_given(kind: MessageKind) -> None:
    class Value(str):
        """Takes any format."""

        __slots__ = ()

        def __format__(self, _: str) -> str:
            return "value"

    parts = Formatter().parse(f"{kind.text} {kind.fix}")
    fields = {name: Value() for _, name, _, _ in parts if name}
    message = kind(**fields)
    assert (message.kind, message.effect) == (kind.identifier, kind.effect)
    assert message.startswith(NOT_RANKED) == (kind.effect == "unranked")
    assert kind("unranked", **fields).startswith(NOT_RANKED)
    assert (" Fix: " in message) == bool(kind.fix)
    assert "{" not in message


@pytest.mark.parametrize(
    ("text", "fix", "effect", "shown"),
    [
        ("A rate is odd", "", "note", "A rate is odd."),
        ("A rate is odd: why?", "", "doubt", "A rate is odd: why?"),
        ("A rate is odd", "log more", "doubt", "A rate is odd. Fix: log more"),
        ("A rate is odd. Fix: log more", "", "note", "A rate is odd. Fix: log more"),
        ("A rate is odd", "", "unranked", f"{NOT_RANKED}a rate is odd."),
        ("TGS is odd", "log more", "unranked", f"{NOT_RANKED}TGS is odd. Fix: log more"),
        ("3 of 9 are odd", "", "unranked", f"{NOT_RANKED}3 of 9 are odd."),
    ],
)
def test_a_message_is_a_sentence_and_a_remedy(
    text: str, fix: str, effect: Effect, shown: str
) -> None:
    assert (
        MessageKind("odd", "{text}", effect, fix="{fix}" if fix else "")(text=text, fix=fix)
        == shown
    )


def test_a_message_goes_through_a_frame() -> None:
    message = Message(f"{NOT_RANKED}odd.", "odd", "unranked")
    again = Message.from_row(message.row)
    assert (again, again.kind, again.effect) == (message, "odd", "unranked")


def test_notes_are_no_doubts() -> None:
    messages = [Message(name, name, name) for name in ("note", "doubt", "unranked")]  # type: ignore[arg-type]
    assert doubts_of(messages) == ["doubt", "unranked"]


def test_no_message_about_a_run_is_written_elsewhere() -> None:
    """The beginning of a message that costs the rank is put before it in one place."""
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


@pytest.mark.parametrize(
    ("sentence", "clause"),
    [
        (f"{NOT_RANKED}the epoch goes back (line 3).", "the epoch goes back (line 3)"),
        ("All steps count 0 tokens.", "all steps count 0 tokens"),
        (
            "Only one step is logged. Fix: log more steps",
            "only one step is logged. Fix: log more steps",
        ),
        ("TGS is from a single window.", "TGS is from a single window"),
        ("TorchFT's groups differ.", "TorchFT's groups differ"),
        ("seq_len=0 is impossible.", "seq_len=0 is impossible"),
        ("", ""),
    ],
)
def test_a_message_may_end_another_sentence(sentence: str, clause: str) -> None:
    assert as_clause(sentence) == clause


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        (f"{NOT_RANKED}the epoch goes back.", "The epoch goes back."),
        (f"{NOT_RANKED}precision=bf16 is given.", "precision=bf16 is given."),
        (f"{NOT_RANKED}TGS is too low.", "TGS is too low."),
    ],
)
def test_a_name_keeps_its_letters_in_a_cell(message: str, sentence: str) -> None:
    assert as_sentence(message) == sentence
