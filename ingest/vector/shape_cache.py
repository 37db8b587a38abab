"""All shapes of a format."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection
from typing import Final

from .fixed_layouts import LayoutCache
from .readings import ReadLine
from .shape_learning import learn_shape
from .shapes import DIGIT_RUN, LineShape

MAX_SHAPES: Final = 300
"""Of a format; a log whose lines have more is read by the regexes."""
MIN_STEP_REPEATS: Final = 6
"""Step lines alike before they are taken for a shape."""
MIN_EVENT_REPEATS: Final = 20
"""The same of events, within a block: fewer are read by their regexes in less time than it takes to
look for their shapes in each block."""
LEARNING_COST_LINES: Final = 200
"""Lines that are read in the time that it takes to learn a shape, or to find that there is none."""
FREE_LEARNING_ATTEMPTS: Final = 6
"""Shapes before their cost counts; then as many more lines have to be read one by one first: where
few lines are alike, as in a damaged log, they would be learned for nothing."""
MAX_ATTEMPTS_PER_SKELETON: Final = 18
"""More lines alike after which none of their kind are tried."""
MAX_SKELETONS: Final = 5_000


class ShapeCache:
    """What was learned of the lines of one format (with its companions), for all its files."""

    def __init__(self, spelled: Collection[bytes] = ()) -> None:
        """spelled: texts of patterns that spell numbers out."""
        self._spelled = spelled
        self.known: list[LineShape] = []
        self.layouts = LayoutCache()
        self._seen: Counter[bytes] = Counter()
        self._events: Counter[bytes] = Counter()
        self._alone = self._tried = 0
        self._rng = random.Random(7)  # noqa: S311 - lines to try

    def see(self, raw: bytes, read_line: ReadLine, *, is_event: bool = False) -> LineShape | None:
        """A line that no shape fits; the shape that it becomes, if it does.

        is_event: it is no step.
        """
        self._alone += 1
        if (
            len(self.known) >= MAX_SHAPES
            or self._tried >= FREE_LEARNING_ATTEMPTS + self._alone // LEARNING_COST_LINES
        ):
            return None
        skeleton = DIGIT_RUN.sub(b"0", raw[:400])
        seen, before = (
            (self._events, MIN_EVENT_REPEATS) if is_event else (self._seen, MIN_STEP_REPEATS)
        )
        if skeleton not in seen and len(seen) >= MAX_SKELETONS:
            return None
        seen[skeleton] += 1
        if not before <= seen[skeleton] <= before + MAX_ATTEMPTS_PER_SKELETON:
            return None
        shape = learn_shape(raw, read_line, self._rng, self._spelled)
        self._tried += 1
        if shape is not None:
            self.known.append(shape)
        return shape

    def begin_block(self) -> list[LineShape]:
        """All of them, in the order in which they are to be tried in a block that begins.

        Of events before it, those stay counted that were many by then.
        """
        often = {line: seen for line, seen in self._events.items() if seen >= MIN_EVENT_REPEATS}
        self._events = Counter(often)
        return [*self.known]
