"""All shapes of a format."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

import numpy as np

from ingest.arrays import Ints
from ingest.scan.fitting import Fit, Sheet, Walked
from ingest.scan.learning import learn
from ingest.scan.readings import Read
from ingest.scan.shapes import RUN, Shape, stretches_of

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
MANY_ALIKE: Final = 1_000
"""Lines of a block that are laid out alike, before they become a shape of fixed widths."""
MOST_FIXED: Final = 8
"""Of a format; the one of the fewest lines is forgotten: a number that grows a digit lays all lines
out anew."""
MOST_LAYOUTS: Final = 64
"""Of a shape in a block; with more of them, as full precision has, each would fit few lines."""
MIXED: Final = np.uint64(0x9E3779B97F4A7C15)
"""Factor of a hash of places."""


class Shapes:
    """What was learned of the lines of one format (with its companions), for all its files."""

    def __init__(self) -> None:
        self.known: list[Shape] = []
        self._fixed: list[_Fixed] = []
        self._seen: Counter[bytes] = Counter()
        self._events: Counter[bytes] = Counter()
        self._spread: set[int] = set()
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
        shape = learn(raw, read, self._rng)
        self._tried += 1
        if shape is not None:
            self.known.append(shape)
        return shape

    def in_turn(self) -> list[Shape]:
        """All of them in the order in which they are to be tried in a block.

        Those of fixed widths first, of these again those of most lines: what is as long, but laid
        out otherwise, is compared with each of them in vain.
        """
        often = {line: seen for line, seen in self._events.items() if seen >= EVENTS_BEFORE}
        self._events = Counter(often)
        self._fixed = sorted(self._fixed, key=attrgetter("lines"), reverse=True)[:MOST_FIXED]
        return [*(one.shape for one in self._fixed), *self.known]

    def narrow(self, found: Fit, read: Ints) -> None:
        """From now on try first how most of the lines that were read are laid out."""
        known = id(found.shape)
        if found.shape.is_fixed:
            for one in self._fixed:
                if one.shape is found.shape:
                    one.lines = len(read)
        if len(read) < MANY_ALIKE or isinstance(found, Sheet) or known in self._spread:
            return
        if len(read) < len(found.lines):
            found = found.only(np.isin(found.lines, read))
        starts, key = found.block.starts[found.lines], np.zeros(len(found.lines), np.uint64)
        for at in (*found.begins.values(), *found.stops.values()):
            key = key * MIXED + (at - starts).astype(np.uint64)
        _, lines, counts = np.unique(key, return_index=True, return_counts=True)
        if len(counts) > MOST_LAYOUTS:
            self._spread.add(known)
            return
        many = counts >= MANY_ALIKE
        for line, count in zip(lines[many].tolist(), counts[many].tolist(), strict=True):
            self._fixed.append(_Fixed(narrowed(found, line), count))


@dataclass(slots=True)
class _Fixed:
    """A shape of fixed widths, and how many lines it took when it was tried last."""

    shape: Shape
    lines: int


def narrowed(found: Walked, line: int) -> Shape:
    """The shape of those lines alone whose runs are as wide and as padded as those of this one."""
    shape, pieces = found.shape, []
    begins, stops = (
        {r: int(at[line]) for r, at in ats.items()} for ats in (found.begins, found.stops)
    )
    stops[-1] = int(found.block.starts[found.lines[line]])
    for piece in shape.pieces:
        if piece.before is None:
            pieces.append(piece)
            continue
        blanks = begins[piece.before] - stops[piece.behind] - len(piece.text)
        pieces.append(replace(piece, text=piece.text + b" " * blanks, pad=False))
    widths = {run: (stops[run] - begins[run],) * 2 for run in shape.widths}
    return replace(
        shape, pieces=tuple(pieces), widths=widths, stretches=stretches_of(pieces, widths)
    )
