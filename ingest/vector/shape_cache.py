"""Shapes of a format."""

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
"""Limit per format; further kinds of lines are read by the regexes."""
MIN_STEP_REPEATS: Final = 6
"""Like step lines required before a shape is learned."""
MIN_EVENT_REPEATS: Final = 20
"""Like events required within a block: fewer are read faster by regexes than by a search per block.
"""
LEARNING_COST_LINES: Final = 200
"""Lines read in the time of learning a shape, or of failing to."""
FREE_LEARNING_ATTEMPTS: Final = 6
"""Attempts before their cost counts.

Afterwards LEARNING_COST_LINES more lines must be read one by one before each attempt. In a damaged
log, for example, few lines are alike, and learning would be in vain.
"""
MAX_ATTEMPTS_PER_SKELETON: Final = 18
"""Attempts for like lines before their kind is given up."""
MAX_SKELETONS: Final = 5_000


class ShapeCache:
    """Learned shapes of a format (with its companions), shared by all its files."""

    def __init__(self, spelled: Collection[bytes] = ()) -> None:
        """Begin without shapes. spelled: texts of patterns that contain numbers."""
        self._spelled = spelled
        self.known: list[LineShape] = []
        self.layouts = LayoutCache()
        self._seen: Counter[bytes] = Counter()
        self._events: Counter[bytes] = Counter()
        self._alone = self._tried = 0
        self._rng = random.Random(7)  # noqa: S311 - trial lines

    def see(self, raw: bytes, read_line: ReadLine, *, is_event: bool = False) -> LineShape | None:
        """Count a line that fits no shape; return a shape if one can be learned.

        is_event: True for events, False for steps
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
        """Return all shapes, in the order in which to try them.

        Counts of events are reset, except those that reached MIN_EVENT_REPEATS.
        """
        frequent = {line: seen for line, seen in self._events.items() if seen >= MIN_EVENT_REPEATS}
        self._events = Counter(frequent)
        return [*self.known]
