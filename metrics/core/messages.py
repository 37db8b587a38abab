"""Messages against a figure of a run, and their kinds with identifiers.

Every kind is in the catalogue of its folder (`messages.py`), once. A message is a string, so pages
and tables can show it directly. Code asks for the kind and the effect rather than for words.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, Self, TypedDict, cast

Effect = Literal["note", "doubt", "unranked"]
"""note: changes no figure. doubt: may change a figure by more than 1 %. unranked: a doubt, and the
run is not ranked."""

NOT_RANKED: Final = ": not ranked"
"""End of a message that keeps its run out of every ranking."""


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
    """Template of messages about runs.

    identifier: stays when the words change
    text: a template for `str.format`; with the effect "unranked", NOT_RANKED is appended
    when: the runs with this message, for docs/reference/messages.md
    """

    identifier: str
    text: str
    effect: Effect = "note"
    when: str = ""

    def __call__(self, effect: Effect | None = None, /, **fields: object) -> Message:
        """Return the message with these fields; effect: overrides the effect of the kind."""
        effect = effect or self.effect
        ending = NOT_RANKED if effect == "unranked" else ""
        return Message(f"{self.text.format(**fields)}{ending}", self.identifier, effect)


def doubts_of(messages: Iterable[Message]) -> list[Message]:
    """Return the messages that may change a figure by more than 1 %."""
    return [message for message in messages if message.effect != "note"]
