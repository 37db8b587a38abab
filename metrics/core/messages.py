"""Sentences that speak against a figure of a run: kinds with identifiers, and their messages.

A kind stands in the catalogue of its room (`messages.py`), once. A message is a string, so that
who only shows it need not know more; code asks for its kind and its effect, never for its words.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, Self, TypedDict, cast

Effect = Literal["note", "doubt", "unranked"]
"""note: changes no figure. doubt: may change one by more than 1 %. unranked: a doubt that costs
the rank."""

NOT_RANKED: Final = ": not ranked"
"""End of a message that keeps its run out of every ranking."""


class MessageRow(TypedDict):
    """A message as a struct of a frame."""

    text: str
    kind: str
    effect: str


class Message(str):
    """A sentence about one run. kind: identifier of its MessageKind."""

    __slots__ = ("effect", "kind")

    kind: str
    effect: Effect

    def __new__(cls, text: str, kind: str, effect: Effect) -> Self:
        """Make the message of a finished text."""
        message = super().__new__(cls, text)
        message.kind, message.effect = kind, effect
        return message

    @classmethod
    def from_row(cls, row: MessageRow) -> Self:
        """Make the message of a MessageRow."""
        return cls(row["text"], row["kind"], cast(Effect, row["effect"]))

    @property
    def row(self) -> MessageRow:
        """The message as a struct of a frame."""
        return {"text": str(self), "kind": self.kind, "effect": self.effect}


@dataclass(frozen=True, slots=True)
class MessageKind:
    """A sentence that fairmfu says of runs.

    identifier: stays when the words change. text: a template of `str.format`; NOT_RANKED follows it
    where the effect is "unranked". when: in which runs it appears, for docs/reference/messages.md.
    """

    identifier: str
    text: str
    effect: Effect = "note"
    when: str = ""

    def __call__(self, effect: Effect | None = None, /, **fields: object) -> Message:
        """Return the message of these fields; effect: another one than that of the kind."""
        effect = effect or self.effect
        ending = NOT_RANKED if effect == "unranked" else ""
        return Message(f"{self.text.format(**fields)}{ending}", self.identifier, effect)


def doubts_of(messages: Iterable[Message]) -> list[Message]:
    """Return the messages that may change a figure by more than 1 %."""
    return [message for message in messages if message.effect != "note"]
