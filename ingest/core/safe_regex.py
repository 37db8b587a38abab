r"""Regexes whose time to search a line grows linearly with the line.

`re` tries a pattern at every possible start. In a line with six thousand `{'loss': `, the regex
`\{'loss': .*\}` searches for the brace as often, to the end of the line every time. After a `.*`, a
later start sees no more text than the first start: if the first fails, all fail. So in a long line
the regex is tried at a single start: the first match of the pieces before the `.*`, and only if the
pieces after the `.*` follow in order.

Only `.*` has this property: `[^}]*` may stop at one start and not at a later one. The patterns
themselves bound such repeats, or make them possessive (`\w++`); tests/end_to_end/test_bad_input.py
finds the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain
from typing import Final

from .prefilter import PatternPart, PatternParts, parse_pattern, required_literals

try:
    from re import _compiler as compiler  # type: ignore[attr-defined]
    from re import _parser as parser  # type: ignore[attr-defined]
except ImportError:  # pragma: no cover - of a later Python
    compiler = None

MIN_GUARDED_CHARS: Final = 1000
"""Characters of a guarded line. A shorter line costs little, whatever its text."""
MAX_WAYS: Final = 32

PatternPiece = Sequence[PatternPart]
"""Adjacent parts of a pattern, without `.*`."""
PatternWay = Sequence[PatternPiece]
"""Pieces of a match in this order, with any text between; the first begins the match."""
GAP_WAY: Final[PatternWay] = ((), ())
EMPTY_WAY: Final[PatternWay] = ((),)


class Regex:
    """A regex compiled at its first search: most patterns are never needed."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern

    @cached_property
    def search(self) -> Callable[..., re.Match[str] | None]:
        """Search a text from an offset on, as re.Pattern.search."""
        return self._search if re.search(r"\.[*+{]", self.pattern) else self._regex.search

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    @cached_property
    def _ways(self) -> list[list[tuple[re.Pattern[str], int]]]:
        """Ways to match: pieces, with the minimum length of a match; empty if unknown."""
        parts = parse_pattern(self.pattern)
        if parts is None or compiler is None or "GROUPREF" in repr(parts):
            return []
        ways = _ways(parts)
        if all(len(way) == 1 for way in ways):
            return []
        state = parts.state  # type: ignore[attr-defined]
        pieces = ((parser.SubPattern(state, list(piece)) for piece in way) for way in ways)
        return [[(compiler.compile(piece), piece.getwidth()[0]) for piece in way] for way in pieces]

    def _search(self, text: str, begin: int = 0) -> re.Match[str] | None:
        if len(text) <= MIN_GUARDED_CHARS or not self._ways or "\n" in text:
            return self._regex.search(text, begin)
        starts = sorted({at for way in self._ways if (at := _begins(way, text, begin)) is not None})
        return next(filter(None, (self._regex.match(text, start) for start in starts)), None)


class GuardedRegex:
    """A regex tried only on texts with a literal that every match needs."""

    __slots__ = ("_literals", "_regex", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._literals = tuple(required_literals(pattern)) or ("",)
        self._regex = Regex(pattern)

    def search(self, text: str) -> re.Match[str] | None:
        """Search a text, as re.Pattern.search."""
        return self._regex.search(text) if self.holds(text) else None

    def holds(self, text: str) -> bool:
        """True if a text contains one of the needed literals."""
        for literal in self._literals:  # noqa: SIM110 - a generator takes three times as long
            if literal in text:
                return True
        return False


def _begins(way: Sequence[tuple[re.Pattern[str], int]], text: str, begin: int) -> int | None:
    """Return the first start of a match of this way.

    None if the pieces do not follow in order.
    """
    starts = list[int]()
    for piece, least in way:
        match = piece.search(text, begin)
        if match is None:
            return None
        starts.append(match.start())
        begin = match.start() + least
    return starts[0]


def _ways(items: PatternParts) -> list[PatternWay]:
    """Return the ways through adjacent parts."""
    ways: list[PatternWay] = [EMPTY_WAY]
    for part in items:
        its = _ways_of(part)
        if len(ways) * len(its) > MAX_WAYS:
            its = [((part,),)]
        ways = [(*way[:-1], (*way[-1], *more[0]), *more[1:]) for way in ways for more in its]
    return ways


def _ways_of(part: PatternPart) -> list[PatternWay]:
    """Return the ways through one part.

    A part without a gap is one piece of a single way.
    """
    name, said = str(part[0]), part[1]
    ways: list[PatternWay] = []
    if name in ("MAX_REPEAT", "MIN_REPEAT"):
        least, most, its = said
        if most is parser.MAXREPEAT and str(its[0][0]) == "ANY":
            return [GAP_WAY]
        if (least, most) == (0, 1):
            ways = [*_ways(its), EMPTY_WAY]
    elif name == "SUBPATTERN" and not (said[1] | said[2]):
        ways = _ways(said[3])
    elif name == "BRANCH":
        ways = list(chain.from_iterable(map(_ways, said[1])))
    elif name == "ASSERT" and said[0] > 0 and all(not way[0] for way in _ways(said[1])):
        return [EMPTY_WAY]  # a look-ahead at any distance: only the match itself checks it
    return ways if any(len(way) > 1 for way in ways) else [((part,),)]
