"""Lines that no step is read of, looked through once for all that are alike but for their digits.

Noise repeats itself: the same message with other numbers makes up most of what no shape fits. What
a line is found to be (blank, of a kind that no pattern knows, or one that a pattern may match) is
so whatever its digits are, where digits are alike to what cleans it and to the literals that the
patterns need. So digits become zeros first, and what was found of such a line is remembered.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..core.arrays import places_of, texts_of, windows
from ..core.prefilter import SAME, Sieve
from ..decode.text_cleaning import Cleaner
from .format_watch import Watch
from .unmatched_lines import kinds_of

BLANK: Final = -1
MAY_MATCH: Final = -2
MOST_LINES: Final = 40_000
MOST_BYTES: Final = 8 * 1024 * 1024
"""Remembered; then all is forgotten, for what a log said at its start may never come again."""
ZERO: Final = ord("0")
ZEROS: Final = bytes(ZERO if chr(byte).isdecimal() else byte for byte in SAME)
TEN: Final = 10


class Familiar:
    """What lines of one format (with its companions) were found to be, for all its files."""

    def __init__(
        self, cleaner: Cleaner, patterns: Iterable[tuple[str, str]], watch: Watch | None = None
    ) -> None:
        """patterns: each with a literal that it needs, or an empty one.

        watch: a line that may show what is watched for is one that a pattern may match.
        """
        self._cleaner = cleaner
        self._alike = ZEROS if cleaner.digits_alike else SAME
        self._sieve = Sieve(patterns, self._alike)
        self._watch = watch
        self._watched = Sieve(watch.patterns if watch else (), self._alike)
        self._forget()

    def _forget(self) -> None:
        self.kinds = texts_of(())
        self._numbers: dict[str, int] = {}
        self._known = pa.nulls(0, pa.large_binary())
        self._found = np.empty(0, np.int64)

    def of(self, lines: pa.LargeBinaryArray) -> NDArray[np.int64]:
        """Of each line (with its newline) BLANK, MAY_MATCH, or the number of its kind.

        lines: a copy, of which the digits are lost. Numbers are places in `kinds`, until this is
        asked again.
        """
        if self._alike is ZEROS:
            _zero(lines)
        if len(self._known) > MOST_LINES or self._known.nbytes > MOST_BYTES:
            self._forget()
        known = pc.index_in(lines, self._known)
        places = places_of(known, len(self._known))
        if known.null_count:
            new = lines.filter(pc.is_null(known)).dictionary_encode()
            places = places.copy()
            places[places == len(self._known)] += places_of(new.indices, 0)
            self._learn(new.dictionary)
        return np.asarray(self._found[places])

    def _learn(self, alike: pa.LargeBinaryArray) -> None:
        """Look lines through that were not seen before."""
        texts = self._cleaner.texts(alike)
        other = ~self._sieve.lines_may_match(texts)
        if self._watch is not None:
            other &= ~self._watched.lines_may_match(self._watch.cleaner.texts(alike))
        others = texts.filter(other)
        found = np.full(len(texts), MAY_MATCH)
        found[other] = [
            self._number(kind) if kind.strip() or others[place].strip() else BLANK
            for place, kind in enumerate(kinds_of(others))
        ]
        if len(self._numbers) > len(self.kinds):
            new = texts_of(islice(self._numbers, len(self.kinds), None))
            self.kinds = pa.concat_arrays([self.kinds, new])
        self._known = pa.concat_arrays([self._known, alike])
        self._found = np.concatenate([self._found, found])

    def _number(self, kind: str) -> int:
        return self._numbers.setdefault(kind, len(self._numbers))


def _zero(lines: pa.LargeBinaryArray) -> None:
    """Zeros for the digits of the lines, where they are."""
    every = np.frombuffer(lines.buffers()[2], np.uint8)
    for part in windows(every):
        values = part - np.uint8(ZERO)
        values *= values < TEN  # what is no digit stays
        np.subtract(part, values, out=part)
