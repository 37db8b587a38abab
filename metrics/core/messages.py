"""Messages against a figure of a run, and their kinds with identifiers.

Every kind is in the catalogue of its folder (`messages.py`), once. A message is a string, so pages
and tables can show it directly. Code asks for the kind and the effect rather than for words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Self, TypedDict, cast

Effect = Literal["note", "doubt", "unranked"]
"""note: changes no figure. doubt: may change a figure by more than 1 %. unranked: a doubt, and the
run is not ranked."""

NOT_RANKED: Final = "Not ranked: "
"""Beginning of a message that keeps its run out of every ranking."""


class MessageRow(TypedDict):
    """A message as a struct of a frame."""

    text: str
    kind: str
    effect: str


class Message(str):
    """Sentence about one run. kind: identifier of the MessageKind."""

    __slots__ = ("effect", "kind")

    kind: str
    effect: Effect

    def __new__(cls, text: str, kind: str, effect: Effect) -> Self:
        """Make a message from a finished text."""
        message = super().__new__(cls, text)
        message.kind, message.effect = kind, effect
        return message

    @classmethod
    def from_row(cls, row: MessageRow) -> Self:
        """Make a message from a MessageRow."""
        return cls(row["text"], row["kind"], cast(Effect, row["effect"]))

    @property
    def row(self) -> MessageRow:
        """The message as a struct of a frame."""
        return {"text": str(self), "kind": self.kind, "effect": self.effect}


@dataclass(frozen=True, slots=True)
class MessageKind:
    """Template of messages about runs: conclusion, reason, remedy.

    identifier: stays when the words change
    text: a template for `str.format`, a sentence without its full stop
    when: the runs with this message, for docs/reference/messages.md
    fix: a template of the remedy, shown after "Fix: "; empty if there is none
    """

    identifier: str
    text: str
    effect: Effect = "note"
    when: str = ""
    fix: str = ""

    def __call__(self, effect: Effect | None = None, /, **fields: object) -> Message:
        """Return the message with these fields; effect: overrides the effect of the kind."""
        effect = effect or self.effect
        text, fix = self.text.format(**fields), self.fix.format(**fields)
        if effect == "unranked":
            text = f"{NOT_RANKED}{_within_sentence(text)}"
        stop = "" if " Fix: " in text or text.endswith((".", "?", "…")) else "."
        return Message(f"{text}{stop}{f' Fix: {fix}' if fix else ''}", self.identifier, effect)


def _within_sentence(text: str) -> str:
    """Return a sentence to follow a colon: a common first word in lower case."""
    is_common = re.match(r"[A-Z][a-z]*(-[a-z]+)*,?\s", text)
    return text[:1].lower() + text[1:] if is_common else text


def as_clause(sentence: str) -> str:
    """Return a message as the end of another sentence, after a colon."""
    return _within_sentence(sentence.removeprefix(NOT_RANKED)).removesuffix(".")


def by_gravity(messages: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the messages that keep a run out of every ranking, and the others."""
    graver = [message for message in messages if message.startswith(NOT_RANKED)]
    return graver, [message for message in messages if message not in graver]


def as_sentence(message: str) -> str:
    """Return a message without NOT_RANKED; a common first word gets a capital."""
    text = message.removeprefix(NOT_RANKED)
    is_common = re.match(r"[a-z]+(-[a-z]+)*(?=[,.\s]|$)", text)
    return text[:1].upper() + text[1:] if is_common else text


def doubts_of(messages: Iterable[Message]) -> list[Message]:
    """Return the messages that may change a figure by more than 1 %."""
    return [message for message in messages if message.effect != "note"]
