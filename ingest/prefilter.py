"""Whether a line may match any of many patterns, told from their literals.

A regex of a hundred alternatives tries each of them at every character of a line, a literal is
looked for some fifty times faster, and most lines hold none of those that the patterns need.

What a pattern needs is read from how Python parses it, so that no format has to say it twice.
`re._parser` is Python's own; tests/test_prefilter.py holds it to every pattern and example here.
Without it no literal is known: every line is tried, which is slower and comes to the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Final

try:
    from re import _parser as parser  # type: ignore[attr-defined]
except ImportError:  # pragma: no cover - of a later Python
    parser = None

ZERO_WIDTH: Final = ("AT", "ASSERT", "ASSERT_NOT")
REPEATS: Final = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")


@cache
def needed(pattern: str) -> frozenset[str]:
    """Literals of which one stands in whatever `pattern` matches; none where that is not known."""
    if parser is None:
        return frozenset()
    parsed = parser.parse(pattern)
    return frozenset() if parsed.state.flags & re.IGNORECASE else _needed(parsed)


def _needed(items: Iterable[tuple[Any, Any]]) -> frozenset[str]:
    """Of the literals that each part of a sequence needs, those of the part with the longest."""
    choices: list[frozenset[str]] = []
    run = ""
    for op, said in items:
        name = str(op)
        if name == "LITERAL":
            run += chr(said)
        elif name not in ZERO_WIDTH:
            choices.append(frozenset({run}))
            run = ""
        if name == "BRANCH":
            each = [_needed(branch) for branch in said[1]]
            choices.append(frozenset().union(*each) if all(each) else frozenset())
        elif name == "SUBPATTERN" and not said[1] & re.IGNORECASE:
            choices.append(_needed(said[3]))
        elif name in REPEATS and said[0] > 0:
            choices.append(_needed(said[2]))
    best = max(
        (*choices, frozenset({run})), key=lambda literals: min(map(len, literals), default=0)
    )
    return best - {""}


def any_of(literals: Iterable[str], patterns: Iterable[str] = ()) -> Callable[[str], object]:
    """Tells of a text whether it holds any of `literals`, or may match any of `patterns`.

    Literals are grouped by their first character: a regex is quick where few alternatives begin
    alike.
    """
    every, unknown = literals_of(literals, patterns)
    tails: dict[str, list[str]] = {}
    for literal in sorted(every):
        tails.setdefault(literal[:1], []).append(re.escape(literal[1:]))
    groups = [f"{re.escape(first)}(?:{'|'.join(rest)})" for first, rest in tails.items()]
    alone = (f"(?:{pattern})" for pattern in unknown)
    return re.compile("|".join((*groups, *alone)) or "(?!)").search


def literals_of(
    literals: Iterable[str], patterns: Iterable[str] = ()
) -> tuple[set[str], list[str]]:
    """All literals of which a text has to hold one, and the patterns that need none."""
    every, unknown = set(literals), list[str]()
    for pattern in patterns:
        if found := needed(pattern):
            every |= found
        else:
            unknown.append(pattern)
    return every, unknown


class Guarded:
    """A regex that is tried only on texts that hold a literal it needs."""

    __slots__ = ("_literals", "_search", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._literals = tuple(needed(pattern)) or ("",)
        self._search = re.compile(pattern).search

    def search(self, text: str) -> re.Match[str] | None:
        """As re.Pattern.search."""
        for literal in self._literals:
            if literal in text:
                return self._search(text)
        return None
