"""Fixed layouts of a shape, for comparisons of lines as a whole.

Walking through a line takes five times as long as a comparison with fixed widths. Layouts change
during a log, for example when a number grows a digit. So a block is compared with the layouts of
the block before. If many other lines remain, some of them are walked through to find their layouts.
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
"""Minimum lines of a layout: MIN_LAYOUT_LINES, and this part of the lines of fitting length."""
LAYOUT_SAMPLE_LINES: Final = 256
"""Lines walked through to find the layouts of all."""
MAX_KNOWN_LAYOUTS: Final = 8
"""Layouts remembered per shape."""
MAX_SAMPLE_LAYOUTS: Final = 64
"""Limit for a sample: with more layouts, as for full precision, a layout would fit few lines."""
MAX_COMPARED_PER_FIT: Final = 4
"""A layout is kept if at least one of this many compared lines fits."""
RETRY_GROWTH_FACTOR: Final = 2
RETRY_DECAY_FACTOR: Final = 0.9
"""After a sample, RETRY_GROWTH_FACTOR times as many remaining lines trigger the next sample.

The threshold decays by RETRY_DECAY_FACTOR with every block.
"""
HASH_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)
"""Factor of a hash of positions."""


class LayoutCache:
    """Layouts of the shapes of a format in the last block, shared by all its files."""

    def __init__(self) -> None:
        self._known: dict[LineShape, list[LineShape]] = {}
        self._left: dict[LineShape, float] = {}
        """Number of remaining lines that triggers the next sample of layouts."""

    def fit(self, block: LineBlock, shape: LineShape, candidates: Bools) -> ShapeMatch:
        """Match the lines that fit the shape, in any layout.

        candidates: lines that may fit
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
        """Return the layouts of at least `many` lines, the most common first."""
        one_of = -(-len(lines) // LAYOUT_SAMPLE_LINES)
        walked = match_walking(block, shape, lines[::one_of])
        if not len(walked.lines):
            return []
        starts, key = block.starts[walked.lines], np.zeros(len(walked.lines), np.uint64)
        for positions in (*walked.begins.values(), *walked.stops.values()):
            key = key * HASH_MULTIPLIER + (positions - starts).astype(np.uint64)
        _, first, counts = np.unique(key, return_index=True, return_counts=True)
        if len(counts) > MAX_SAMPLE_LAYOUTS:
            return []
        by_count = np.argsort(-counts)
        return [
            narrow_to_line(walked, int(first[n])) for n in by_count if counts[n] * one_of >= many
        ]


class _Compared:
    """Lines compared with one layout after the other; lines without a fit remain."""

    def __init__(self, block: LineBlock, lines: Ints) -> None:
        self.block, self.lines = block, lines
        self.sheets: list[FixedMatch] = []
        self._left = np.ones(len(block), bool)
        self._worth: list[tuple[int, LineShape]] = []

    def with_(self, layout: LineShape) -> None:
        """Compare the lines of the layout's length with the layout."""
        compared = self.lines[self.block.lengths[self.lines] == layout.least]
        fitting = 0
        if len(compared):
            sheet = match_fixed(self.block, layout, compared)
            self.sheets.append(sheet)
            self._left[sheet.lines] = False
            self.lines = self.lines[self._left[self.lines]]
            fitting = len(sheet.lines)
        if len(compared) <= MAX_COMPARED_PER_FIT * fitting:
            self._worth.append((fitting, layout))

    def worth(self) -> list[LineShape]:
        """Return the layouts for the next block, the most common first."""
        by_lines = sorted(self._worth, key=itemgetter(0), reverse=True)
        return [layout for _, layout in by_lines[:MAX_KNOWN_LAYOUTS]]


def narrow_to_line(walked: WalkedMatch, line: int) -> LineShape:
    """Return the shape of lines with the same widths and padding as this line."""
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
