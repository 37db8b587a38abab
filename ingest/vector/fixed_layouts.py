"""How most lines of a shape are laid out: these are compared as a whole, the rest walked through.

To walk through a line takes five times as long as to compare it with a shape of fixed widths. How
lines are laid out changes as a log goes on, where a number grows a digit. So a block is compared
with the layouts of the one before, and where it has many other lines, some of these are walked
through to see how they are laid out.
"""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter
from typing import Final

import numpy as np

from ..core.arrays import Bools, Ints
from .line_block import Block
from .shape_matching import Fit, Sheet, Walked, as_long, ending, lay, together, walk
from .shapes import Shape, stretches_of

MANY_ALIKE: Final = 250
ONE_OF: Final = 16
"""Lines of a block that are laid out alike, before they are compared as a whole: so many, and
one of so many of those that are as long as the shape allows."""
SAMPLE: Final = 256
"""Lines that are walked through to see how all are laid out."""
MOST_FIXED: Final = 8
"""Layouts of a shape that are remembered."""
MOST_LAYOUTS: Final = 64
"""Of a sample; with more of them, as full precision has, each would fit few lines."""
IN_VAIN: Final = 4
"""Of so many lines that are compared with a layout one has to fit it."""
MORE: Final = 2
FORGET: Final = 0.9
"""Where the layouts of many lines cannot be told, so many times as many are to be left before it is
tried again; of that a part is forgotten with each block."""
MIXED: Final = np.uint64(0x9E3779B97F4A7C15)
"""Factor of a hash of places."""


class Layouts:
    """Of the shapes of one format, as they were met in the last block; for all its files."""

    def __init__(self) -> None:
        self._known: dict[Shape, list[Shape]] = {}
        self._left: dict[Shape, float] = {}
        """How many lines have to be left before it is seen how they are laid out."""

    def fit(self, block: Block, shape: Shape, free: Bools) -> Fit:
        """The lines that fit the shape, however they are laid out; free: which of them may."""
        lines = as_long(block, shape, free)
        if shape.is_fixed:
            return lay(block, shape, lines)
        compared = _Compared(block, lines)
        for layout in self._known.get(shape, ()):
            compared.with_(layout)
        compared.lines = ending(block, shape, compared.lines)
        left = self._left.get(shape, 0.0)
        many = max(MANY_ALIKE, len(lines) // ONE_OF)
        if len(compared.lines) >= max(many, left):
            for layout in self._of_many(block, shape, compared.lines, many):
                compared.with_(layout)
            left = MORE * len(compared.lines)
        self._known[shape], self._left[shape] = compared.worth(), FORGET * left
        return together(shape, [*compared.sheets, walk(block, shape, compared.lines)])

    def _of_many(self, block: Block, shape: Shape, lines: Ints, many: int) -> list[Shape]:
        """How so many of the lines are laid out, those of most of them first."""
        one_of = -(-len(lines) // SAMPLE)
        found = walk(block, shape, lines[::one_of])
        if not len(found.lines):
            return []
        starts, key = block.starts[found.lines], np.zeros(len(found.lines), np.uint64)
        for at in (*found.begins.values(), *found.stops.values()):
            key = key * MIXED + (at - starts).astype(np.uint64)
        _, first, counts = np.unique(key, return_index=True, return_counts=True)
        if len(counts) > MOST_LAYOUTS:
            return []
        often = np.argsort(-counts)
        return [narrowed(found, int(first[n])) for n in often if counts[n] * one_of >= many]


class _Compared:
    """Lines that are compared with one layout after the other; those that fit none are left."""

    def __init__(self, block: Block, lines: Ints) -> None:
        self.block, self.lines = block, lines
        self.sheets: list[Sheet] = []
        self._left = np.ones(len(block), bool)
        self._worth: list[tuple[int, Shape]] = []

    def with_(self, layout: Shape) -> None:
        """With those that are as long."""
        mine = self.lines[self.block.lengths[self.lines] == layout.least]
        fitting = 0
        if len(mine):
            sheet = lay(self.block, layout, mine)
            self.sheets.append(sheet)
            self._left[sheet.lines] = False
            self.lines = self.lines[self._left[self.lines]]
            fitting = len(sheet.lines)
        if len(mine) <= IN_VAIN * fitting:
            self._worth.append((fitting, layout))

    def worth(self) -> list[Shape]:
        """The layouts to compare the next block with: those of most lines first."""
        often = sorted(self._worth, key=itemgetter(0), reverse=True)
        return [layout for _, layout in often[:MOST_FIXED]]


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
