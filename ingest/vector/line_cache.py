"""Lines that no step is read of, looked through once for all that are alike but for their digits.

Noise repeats itself: the same message with other numbers makes up most of what no shape fits. What
a line is found to be (blank, of a kind that no pattern knows, or one that a pattern may match) is
so whatever its digits are, where digits are alike to what cleans it and to the literals that the
patterns need. So digits become zeros first, and what was found of such a line is remembered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cached_property
from itertools import islice
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ..core.arrays import Bools, cache_windows, integers_of, take_values, text_array
from ..core.prefilter import IDENTITY_BYTES, LiteralPrefilter
from ..core.relaxed_regex import relaxed_union
from ..decode.text_cleaning import Cleaner
from ..parse.unmatched_lines import line_kinds
from .format_watch import FormatWatch

BLANK_LINE: Final = -1
MAY_MATCH: Final = -2
MAX_CACHED_LINES: Final = 40_000
MAX_CACHED_BYTES: Final = 8 * 1024 * 1024
"""Remembered; then all is forgotten, for what a log said at its start may never come again."""
ASCII_ZERO: Final = ord("0")
DIGIT_FOLDING: Final = bytes(
    ASCII_ZERO if chr(byte).isdecimal() else byte for byte in IDENTITY_BYTES
)
MIN_DOUBTFUL_LINES: Final = 1_000
"""Lines that hold a literal of a pattern, of all files so far. Each costs Python 50 us, and to make
a regex of all patterns costs 0.1 s."""
DIGIT_COUNT: Final = 10


class LineCache:
    """What lines of one format (with its companions) were found to be, for all its files."""

    def __init__(
        self,
        cleaner: Cleaner,
        patterns: Iterable[tuple[str, str]],
        watch: FormatWatch | None = None,
    ) -> None:
        """patterns: each with a literal that it needs, or an empty one.

        watch: a line that may show what is watched for is one that a pattern may match.
        """
        self._cleaner = cleaner
        self._alike = DIGIT_FOLDING if cleaner.digits_alike else IDENTITY_BYTES
        patterns = tuple(patterns)
        self._sieve = LiteralPrefilter(patterns, self._alike)
        self._regexes = [regex or re.escape(literal) for literal, regex in patterns]
        self._watch = watch
        self._watched = LiteralPrefilter(watch.patterns if watch else (), self._alike)
        self._doubtful_lines = 0
        self._forget()

    def _forget(self) -> None:
        self.kinds = text_array(())
        self._numbers: dict[str, int] = {}
        self._known = pa.nulls(0, pa.large_binary())
        self._found = np.empty(0, np.int64)

    def of(self, lines: pa.LargeBinaryArray) -> NDArray[np.int64]:
        """Of each line (with its newline) BLANK_LINE, MAY_MATCH, or the number of its kind.

        lines: a copy, of which the digits are lost. Numbers are places in `kinds`, until this is
        asked again.
        """
        if self._alike is DIGIT_FOLDING:
            _zero(lines)
        if len(self._known) > MAX_CACHED_LINES or self._known.nbytes > MAX_CACHED_BYTES:
            self._forget()
        known = pc.index_in(lines, self._known)
        places = integers_of(known, len(self._known))
        if known.null_count:
            new = lines.filter(pc.is_null(known)).dictionary_encode()
            places = places.copy()
            places[places == len(self._known)] += integers_of(new.indices, 0)
            self._found = np.concatenate([self._found, self._look_through(new.dictionary)])
            self._known = pa.concat_arrays([self._known, new.dictionary])
        was_sifting = self._is_sifting
        self._doubtful_lines += int(np.count_nonzero(self._found[places] == MAY_MATCH))
        if self._is_sifting and not was_sifting:
            doubtful = np.flatnonzero(self._found == MAY_MATCH)
            self._found[doubtful] = self._look_through(take_values(self._known, doubtful))
        return np.asarray(self._found[places])

    @property
    def _is_sifting(self) -> bool:
        """Whether so many lines were doubtful that it pays to ask one regex of all patterns."""
        return self._doubtful_lines >= MIN_DOUBTFUL_LINES

    def _look_through(self, alike: pa.LargeBinaryArray) -> NDArray[np.int64]:
        """What lines are that are not alike."""
        texts = self._cleaner.texts(alike)
        other = ~self._may_match(texts)
        if self._watch is not None:
            other &= ~self._watched.lines_may_match(self._watch.cleaner.texts(alike))
        others = texts.filter(other)
        found = np.full(len(texts), MAY_MATCH)
        found[other] = [
            self._number(kind) if kind.strip() or others[place].strip() else BLANK_LINE
            for place, kind in enumerate(line_kinds(others))
        ]
        if len(self._numbers) > len(self.kinds):
            new = text_array(islice(self._numbers, len(self.kinds), None))
            self.kinds = pa.concat_arrays([self.kinds, new])
        return found

    def _may_match(self, texts: pl.Series) -> Bools:
        """Of each text whether a pattern may match it."""
        may = self._sieve.lines_may_match(texts)
        if self._is_sifting and may.any() and self._relaxed is not None:
            doubtful = texts.filter(may)
            wide = doubtful.str.len_chars() != doubtful.str.len_bytes()
            may[may] = (wide | doubtful.str.contains(self._relaxed)).to_numpy()
        return may

    @cached_property
    def _relaxed(self) -> str | None:
        return relaxed_union(self._regexes, digits_folded=self._alike is DIGIT_FOLDING)

    def _number(self, kind: str) -> int:
        return self._numbers.setdefault(kind, len(self._numbers))


def _zero(lines: pa.LargeBinaryArray) -> None:
    """Zeros for the digits of the lines, where they are."""
    every = np.frombuffer(lines.buffers()[2], np.uint8)
    for part in cache_windows(every):
        values = part - np.uint8(ASCII_ZERO)
        values *= values < DIGIT_COUNT  # what is no digit stays
        np.subtract(part, values, out=part)
