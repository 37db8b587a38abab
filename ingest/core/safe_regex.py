r"""Regexes as they are searched in lines, in time that grows as the line does.

`re` tries a pattern at each place where it may begin. In one line that holds `{'loss': ` six
thousand times `\{'loss': .*\}` looks for its brace as often, to the end of the line each time.
What goes on with `.*` sees no more from a later place than from the first one: where it fails
there, it fails everywhere. So in a long line it is tried at one place, the first at which all that
stands before the `.*` is, and only if what it needs behind that comes in its order.

Only `.*` is of that kind: `[^}]*` may be stopped in one place and not in a later one. Such repeats
are bounded in the patterns themselves, or cannot be left (`\w++`);
tests/end_to_end/test_bad_input.py finds those that are not.
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
"""Characters of a line that is tried so; shorter ones cost little, whatever stands in them."""
MAX_WAYS: Final = 32

PatternPiece = Sequence[PatternPart]
"""Parts of a pattern side by side, without `.*`."""
PatternWay = Sequence[PatternPiece]
"""What stands in a match, in this order, with anything between; first that by which it begins."""
GAP_WAY: Final[PatternWay] = ((), ())
EMPTY_WAY: Final[PatternWay] = ((),)


class Regex:
    """One that is compiled when it is first tried: most lines of a format never show."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern

    @cached_property
    def search(self) -> Callable[..., re.Match[str] | None]:
        """Search a text from a place on, as re.Pattern.search."""
        return self._search if re.search(r"\.[*+{]", self.pattern) else self._regex.search

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    @cached_property
    def _ways(self) -> list[list[tuple[re.Pattern[str], int]]]:
        """Each way to match: its pieces, and how long each is at least; no ways if not known."""
        parts = parse_pattern(self.pattern)
        if parts is None or compiler is None or "GROUPREF" in repr(parts):
            return []
        ways = _ways(parts)
        if all(len(way) == 1 for way in ways):
            return []
        state = parts.state  # type: ignore[attr-defined]
        pieces = ((parser.SubPattern(state, list(piece)) for piece in way) for way in ways)
        return [[(compiler.compile(one), one.getwidth()[0]) for one in way] for way in pieces]

    def _search(self, text: str, begin: int = 0) -> re.Match[str] | None:
        if len(text) <= MIN_GUARDED_CHARS or not self._ways or "\n" in text:
            return self._regex.search(text, begin)
        starts = sorted({at for way in self._ways if (at := _begins(way, text, begin)) is not None})
        return next(filter(None, (self._regex.match(text, start) for start in starts)), None)


class GuardedRegex:
    """A regex that is tried only on texts that hold a literal it needs."""

    __slots__ = ("_literals", "_regex", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._literals = tuple(required_literals(pattern)) or ("",)
        self._regex = Regex(pattern)

    def search(self, text: str) -> re.Match[str] | None:
        """Search a text, as re.Pattern.search."""
        return self._regex.search(text) if self.holds(text) else None

    def holds(self, text: str) -> bool:
        """Whether a text holds a literal that it needs."""
        for literal in self._literals:  # noqa: SIM110 - a generator takes three times as long
            if literal in text:
                return True
        return False


def _begins(way: Sequence[tuple[re.Pattern[str], int]], text: str, begin: int) -> int | None:
    """Where a match of this way may begin: nowhere if its pieces do not follow each other."""
    starts = list[int]()
    for piece, least in way:
        found = piece.search(text, begin)
        if found is None:
            return None
        starts.append(found.start())
        begin = found.start() + least
    return starts[0]


def _ways(items: PatternParts) -> list[PatternWay]:
    """The ways through parts that stand side by side."""
    ways: list[PatternWay] = [EMPTY_WAY]
    for part in items:
        its = _ways_of(part)
        if len(ways) * len(its) > MAX_WAYS:
            its = [((part,),)]
        ways = [(*way[:-1], (*way[-1], *more[0]), *more[1:]) for way in ways for more in its]
    return ways


def _ways_of(part: PatternPart) -> list[PatternWay]:
    """The ways through one part; a part without a gap is one piece of a single way."""
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
        return [EMPTY_WAY]  # what stands anywhere behind here: the match asks for it
    return ways if any(len(way) > 1 for way in ways) else [((part,),)]
