"""All shapes of a format."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection
from typing import Final
from weakref import WeakKeyDictionary

from ..parse.line_matcher import Patterns
from ..parse.readings import Read
from .fixed_layouts import Layouts
from .shape_learning import learn
from .shapes import RUN, Shape

MOST_SHAPES: Final = 300
"""Of a format; a log whose lines have more is read by the regexes."""
SEEN_BEFORE: Final = 6
"""Step lines alike before they are taken for a shape."""
EVENTS_BEFORE: Final = 20
"""The same of events, within a block: fewer are read by their regexes in less time than it takes to
look for their shapes in each block."""
COST: Final = 200
"""Lines that are read in the time that it takes to learn a shape, or to find that there is none."""
FREE: Final = 6
"""Shapes before their cost counts; then as many more lines have to be read one by one first: where
few lines are alike, as in a damaged log, they would be learned for nothing."""
IN_VAIN: Final = 18
"""More lines alike after which none of their kind are tried."""
MOST_SKELETONS: Final = 5_000


class Shapes:
    """What was learned of the lines of one format (with its companions), for all its files."""

    def __init__(self, spelled: Collection[bytes] = ()) -> None:
        """spelled: texts of patterns that spell numbers out."""
        self._spelled = spelled
        self.known: list[Shape] = []
        self.layouts = Layouts()
        self._seen: Counter[bytes] = Counter()
        self._events: Counter[bytes] = Counter()
        self._alone = self._tried = 0
        self._rng = random.Random(7)  # noqa: S311 - lines to try

    def see(self, raw: bytes, read: Read, *, event: bool = False) -> Shape | None:
        """A line that no shape fits; the shape that it becomes, if it does.

        event: it is no step.
        """
        self._alone += 1
        if len(self.known) >= MOST_SHAPES or self._tried >= FREE + self._alone // COST:
            return None
        skeleton = RUN.sub(b"0", raw[:400])
        seen, before = (self._events, EVENTS_BEFORE) if event else (self._seen, SEEN_BEFORE)
        if skeleton not in seen and len(seen) >= MOST_SKELETONS:
            return None
        seen[skeleton] += 1
        if not before <= seen[skeleton] <= before + IN_VAIN:
            return None
        shape = learn(raw, read, self._rng, self._spelled)
        self._tried += 1
        if shape is not None:
            self.known.append(shape)
        return shape

    def for_a_block(self) -> list[Shape]:
        """All of them, in the order in which they are to be tried in a block that begins.

        Of events before it, those stay counted that were many by then.
        """
        often = {line: seen for line, seen in self._events.items() if seen >= EVENTS_BEFORE}
        self._events = Counter(often)
        return [*self.known]


_LEARNED: Final[WeakKeyDictionary[Patterns, Shapes]] = WeakKeyDictionary()


def shapes_of(patterns: Patterns) -> Shapes:
    """Return the shapes learned of the lines of these formats; none are known at first."""
    shapes = _LEARNED.get(patterns)
    if shapes is None:
        shapes = _LEARNED[patterns] = Shapes([text.encode() for text in sorted(patterns.spelled)])
    return shapes
