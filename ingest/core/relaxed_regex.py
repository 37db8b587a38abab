r"""Regexes of Polars that match all ASCII texts of Python's, and maybe more.

Polars searches all lines of a block for a hundred patterns in the time of a few patterns in Python.
Polars knows no look-around and no back reference, so the looser regex drops them, and drops the
upper bound of repeats. A line without a match of the looser regex matches no pattern. Python checks
the other lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Final

import polars as pl

from .prefilter import PatternPart, PatternParts, parser

ASCII: Final = frozenset(map(chr, range(128)))
DIGITS: Final = frozenset("0123456789")
CATEGORIES: Final = {
    f"CATEGORY_{opposite}{name}": frozenset(c for c in ASCII if re.match(taken, c))
    for name, takes in (("DIGIT", r"\d"), ("SPACE", r"\s"), ("WORD", r"\w"))
    for opposite, taken in (("", takes), ("NOT_", takes.upper()))
}
r"""Characters that `\d`, `\S` and so on match."""
POSITIONS: Final = {"AT_BEGINNING": "^", "AT_BEGINNING_STRING": "^", "AT_END": "$"}
"""Anchors, for texts of one line."""
MAX_EXACT_REPEATS: Final = 4
"""Repeats kept as an exact count: a higher count costs an automaton many states."""
TOLD_FLAGS: Final = re.IGNORECASE | re.UNICODE | re.VERBOSE
NO_CHARACTER: Final = r"[a&&b]"
ANYTHING: Final = r"[\x00-\x7f]*"


class UnknownPartError(ValueError):
    """A part of a pattern has no equivalent in Polars."""


def relaxed_union(patterns: Iterable[str], *, digits_folded: bool = False) -> str | None:
    """Return a regex of Polars that matches at least what the patterns match.

    None if a pattern has no equivalent in Polars, or if the union is too large for Polars.
    digits_folded: texts have `0` for every digit
    """
    if parser is None:
        return None
    try:
        union = "|".join(_relaxed(pattern, digits_folded) for pattern in dict.fromkeys(patterns))
        pl.Series([""]).str.contains(union)
    except (UnknownPartError, pl.exceptions.ComputeError):
        return None
    return union


@cache
def _relaxed(pattern: str, folded: bool) -> str:  # noqa: FBT001 - a key of the cache
    parts = parser.parse(pattern)
    if parts.state.flags & ~TOLD_FLAGS:
        raise UnknownPartError(pattern)
    case = "i" if parts.state.flags & re.IGNORECASE else ""
    return f"(?{case}-u:{_sequence(parts, folded=folded)})"


def _sequence(parts: PatternParts, *, folded: bool) -> str:
    return "".join(_part(part, folded=folded) for part in parts)


def _part(part: PatternPart, *, folded: bool) -> str:
    match str(part[0]), part[1]:
        case "BRANCH", (_, branches):
            inside = "|".join(_sequence(one, folded=folded) for one in branches)
        case "SUBPATTERN", (_, (0 | re.IGNORECASE) as added, _, parts):
            inside = f"(?{'i' * bool(added)}:{_sequence(parts, folded=folded)})"
        case "GROUPREF", _:
            inside = ANYTHING
        case "ATOMIC_GROUP", parts:
            inside = _sequence(parts, folded=folded)
        case (("MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT"), (least, most, parts)):
            return f"(?:{_sequence(parts, folded=folded)}){_times(least, most)}"
        case (("ASSERT" | "ASSERT_NOT"), _):
            return ""
        case "AT", where:
            return POSITIONS.get(str(where), "")
        case _:
            return _class(_characters(part), folded=folded)
    return f"(?:{inside})"


def _times(least: int, most: float) -> str:
    if most == least and least <= MAX_EXACT_REPEATS:
        return f"{{{least}}}"
    if least:
        return "+"
    return "?" if most == 1 else "*"


def _characters(part: PatternPart) -> frozenset[str]:
    """Return the ASCII characters that a part of one character matches."""
    match str(part[0]), part[1]:
        case ("LITERAL" | "NOT_LITERAL") as name, code:
            taken = ASCII & {chr(code)}
            return taken if name == "LITERAL" else ASCII - taken
        case "ANY", _:
            return ASCII - {"\n"}
        case "RANGE", (first, last):
            return frozenset(one for one in ASCII if first <= ord(one) <= last)
        case "CATEGORY", category:
            return CATEGORIES[str(category)]
        case "IN", members:
            negated = str(members[0][0]) == "NEGATE"
            taken = frozenset[str]().union(*map(_characters, members[negated:]))
            return ASCII - taken if negated else taken
    raise UnknownPartError(part[0])


def _class(taken: frozenset[str], *, folded: bool) -> str:
    """Return the character class of these characters. folded: `0` for all digits."""
    if folded and taken & DIGITS:
        taken = taken - DIGITS | {"0"}
    codes = (f"{ord(one):02x}" for one in sorted(taken))
    return "[" + "".join(rf"\x{code}" for code in codes) + "]" if taken else NO_CHARACTER
