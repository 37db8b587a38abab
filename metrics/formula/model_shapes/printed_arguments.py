"""Arguments as a framework prints them, read as numbers and flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .. import messages
from .shape import check_dimension


@dataclass(frozen=True, slots=True)
class PrintedArguments:
    """Arguments as printed by a framework: 'None', 'True', '4096', '[64]'."""

    values: Mapping[str, Any]
    source: str

    def get(self, key: str) -> str | None:
        """Return the text of an argument; None if absent or none."""
        text = str(self.values.get(key)).strip()  # values given as JSON may be numbers or booleans
        return None if text in ("None", "null", "") else text

    def optional(self, key: str) -> int | None:
        """Return a whole number; None if absent or none."""
        value = self.get(key)
        if value is None:
            return None
        try:
            number = int(value)
        except ValueError:
            raise messages.SHAPE_KEY_MALFORMED(
                source=self.source, key=key, value=value, wanted="a whole number"
            ) from None
        return check_dimension(self.source, key, number)

    def number(self, key: str, default: int | None = None) -> int:
        """Return a whole number of at least 1."""
        value = self.optional(key)
        value = default if value is None else value
        if value is None:
            raise messages.SHAPE_KEY_MISSING(source=self.source, keys=repr(key))
        if value < 1:
            raise messages.SHAPE_KEY_TOO_SMALL(source=self.source, key=key, value=value)
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        """Return a boolean, in Python's or JSON's spelling."""
        value = self.get(key)
        if value not in (None, "True", "False", "true", "false"):
            raise messages.SHAPE_KEY_MALFORMED(
                source=self.source, key=key, value=value, wanted="True or False"
            )
        return default if value is None else value in ("True", "true")
