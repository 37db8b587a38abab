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
from .line_block import LineBlock
from .shape_matching import (
    FixedMatch,
    ShapeMatch,
    WalkedMatch,
    join_matches,
    lines_of_fitting_length,
    lines_with_fitting_end,
    match_fixed,
    match_walking,
)
from .shapes import LineShape, join_into_stretches

MIN_LAYOUT_LINES: Final = 250
LAYOUT_LINE_DIVISOR: Final = 16
"""Lines of a block that are laid out alike, before they are compared as a whole: so many, and
one of so many of those that are as long as the shape allows."""
LAYOUT_SAMPLE_LINES: Final = 256
"""Lines that are walked through to see how all are laid out."""
MAX_KNOWN_LAYOUTS: Final = 8
"""Layouts of a shape that are remembered."""
MAX_SAMPLE_LAYOUTS: Final = 64
"""Of a sample; with more of them, as full precision has, each would fit few lines."""
MAX_COMPARED_PER_FIT: Final = 4
"""Of so many lines that are compared with a layout one has to fit it."""
RETRY_GROWTH_FACTOR: Final = 2
RETRY_DECAY_FACTOR: Final = 0.9
"""Where the layouts of many lines cannot be told, so many times as many are to be left before it is
tried again; of that a part is forgotten with each block."""
HASH_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
"""Factor of a hash of places."""


class LayoutCache:
    """Of the shapes of one format, as they were met in the last block; for all its files."""

    def __init__(self) -> None:
        self._known: dict[LineShape, list[LineShape]] = {}
        self._left: dict[LineShape, float] = {}
        """How many lines have to be left before it is seen how they are laid out."""

    def fit(self, block: LineBlock, shape: LineShape, candidates: Bools) -> ShapeMatch:
        """Match the lines that fit the shape, however they are laid out.

        candidates: lines that may fit.
        """
        lines = lines_of_fitting_length(block, shape, candidates)
        if shape.is_fixed:
            return match_fixed(block, shape, lines)
        compared = _Compared(block, lines)
        for layout in self._known.get(shape, ()):
            compared.with_(layout)
        compared.lines = lines_with_fitting_end(block, shape, compared.lines)
        left = self._left.get(shape, 0.0)
        many = max(MIN_LAYOUT_LINES, len(lines) // LAYOUT_LINE_DIVISOR)
        if len(compared.lines) >= max(many, left):
            for layout in self._of_many(block, shape, compared.lines, many):
                compared.with_(layout)
            left = RETRY_GROWTH_FACTOR * len(compared.lines)
        self._known[shape], self._left[shape] = compared.worth(), RETRY_DECAY_FACTOR * left
        return join_matches(shape, [*compared.sheets, match_walking(block, shape, compared.lines)])

    def _of_many(
        self, block: LineBlock, shape: LineShape, lines: Ints, many: int
    ) -> list[LineShape]:
        """How so many of the lines are laid out, those of most of them first."""
        one_of = -(-len(lines) // LAYOUT_SAMPLE_LINES)
        found = match_walking(block, shape, lines[::one_of])
        if not len(found.lines):
            return []
        starts, key = block.starts[found.lines], np.zeros(len(found.lines), np.uint64)
        for at in (*found.begins.values(), *found.stops.values()):
            key = key * HASH_MULTIPLIER + (at - starts).astype(np.uint64)
        _, first, counts = np.unique(key, return_index=True, return_counts=True)
        if len(counts) > MAX_SAMPLE_LAYOUTS:
            return []
        often = np.argsort(-counts)
        return [narrow_to_line(found, int(first[n])) for n in often if counts[n] * one_of >= many]


class _Compared:
    """Lines that are compared with one layout after the other; those that fit none are left."""

    def __init__(self, block: LineBlock, lines: Ints) -> None:
        self.block, self.lines = block, lines
        self.sheets: list[FixedMatch] = []
        self._left = np.ones(len(block), bool)
        self._worth: list[tuple[int, LineShape]] = []

    def with_(self, layout: LineShape) -> None:
        """With those that are as long."""
        mine = self.lines[self.block.lengths[self.lines] == layout.least]
        fitting = 0
        if len(mine):
            sheet = match_fixed(self.block, layout, mine)
            self.sheets.append(sheet)
            self._left[sheet.lines] = False
            self.lines = self.lines[self._left[self.lines]]
            fitting = len(sheet.lines)
        if len(mine) <= MAX_COMPARED_PER_FIT * fitting:
            self._worth.append((fitting, layout))

    def worth(self) -> list[LineShape]:
        """The layouts to compare the next block with: those of most lines first."""
        often = sorted(self._worth, key=itemgetter(0), reverse=True)
        return [layout for _, layout in often[:MAX_KNOWN_LAYOUTS]]


def narrow_to_line(walked: WalkedMatch, line: int) -> LineShape:
    """The shape of those lines alone whose runs are as wide and as padded as those of this one."""
    shape, pieces = walked.shape, []
    begins, stops = (
        {r: int(at[line]) for r, at in ats.items()} for ats in (walked.begins, walked.stops)
    )
    stops[-1] = int(walked.block.starts[walked.lines[line]])
    for piece in shape.pieces:
        if piece.before is None:
            pieces.append(piece)
            continue
        blanks = begins[piece.before] - stops[piece.behind] - len(piece.text)
        pieces.append(replace(piece, text=piece.text + b" " * blanks, pad=False))
    widths = {run: (stops[run] - begins[run],) * 2 for run in shape.widths}
    return replace(
        shape, pieces=tuple(pieces), widths=widths, stretches=join_into_stretches(pieces, widths)
    )
