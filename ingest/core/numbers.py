"""Numbers as logs print them."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

_THOUSANDS: Final = re.compile(r"\s*[-+]?\d{1,3}(?:,\d{3})+(?:\.\d*)?(?:[eE][-+]?\d+)?\s*")
_SIZE: Final = re.compile(r"[1-9][0-9]{0,8}")
_Number = TypeVar("_Number", bound=float)


def strip_thousands_commas(text: str) -> str:
    """Remove the commas between the thousands of a printed number.

    Raises ValueError at any other comma, and at an underscore, which only Python accepts.
    """
    if "_" in text:
        raise ValueError(text)
    if "," not in text:
        return text
    if _THOUSANDS.fullmatch(text) is None:
        raise ValueError(text)
    return text.replace(",", "")


def parse_integer(text: str) -> int:
    """Parse a whole number, also 8.0 or 1e3.

    Raises ValueError if not whole or beyond 64 bits.
    """
    value = int(text) if text.lstrip("-").isdigit() else float(text)
    if not abs(value) < 2**63 or value != int(value):
        raise ValueError(text)
    return int(value)


def parse_size(text: str) -> int | None:
    """Parse a size of a run: a whole number of 1 to 9 digits.

    None for all else, and 0.
    """
    return int(text) if _SIZE.fullmatch(text) else None


def parse_optional(parse_number: Callable[[str], _Number], text: str | None) -> _Number | None:
    """Parse the number of an optional group; None if missing or damaged."""
    with suppress(ValueError):
        return None if text is None else parse_number(strip_thousands_commas(text))
    return None
