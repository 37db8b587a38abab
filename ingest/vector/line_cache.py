"""Cache for lines without a step, keyed by the line with digits zeroed.

Noise repeats: most lines without a shape are the same messages with other numbers. The class of a
line (blank, of an unmatched kind, or a possible match of a pattern) does not depend on the digits,
if neither the cleaner nor the literals of the patterns distinguish digits. So digits are replaced
by zeros, and the class of the resulting line is cached.
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
"""Size at which the cache is emptied: lines of a log's start may never recur."""
ASCII_ZERO: Final = ord("0")
DIGIT_FOLDING: Final = bytes(
    ASCII_ZERO if chr(byte).isdecimal() else byte for byte in IDENTITY_BYTES
)
MIN_DOUBTFUL_LINES: Final = 1_000
"""Lines with a literal of a pattern, in all files so far, that justify a common regex.

A doubtful line costs Python 50 us, and compiling a regex of all patterns costs 0.1 s.
"""
DIGIT_COUNT: Final = 10


class LineCache:
    """Classes of lines for a format (with its companions), shared by all its files."""

    def __init__(
        self,
        cleaner: Cleaner,
        patterns: Iterable[tuple[str, str]],
        watch: FormatWatch | None = None,
    ) -> None:
        """Begin with an empty cache.

        patterns: each with a required literal, or an empty one
        watch: lines that may contain a watched mark count as possible matches
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
        """Return BLANK_LINE, MAY_MATCH, or the number of the kind, for every line.

        lines: a copy of lines with their newlines; digits are overwritten. Kind numbers are indices
        into `kinds`, valid until the next call.
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
        """True if enough lines were doubtful to pay for a regex of all patterns."""
        return self._doubtful_lines >= MIN_DOUBTFUL_LINES

    def _look_through(self, alike: pa.LargeBinaryArray) -> NDArray[np.int64]:
        """Return the classes of distinct lines."""
        texts = self._cleaner.texts(alike)
        other = ~self._may_match(texts)
        if self._watch is not None:
            other &= ~self._watched.lines_may_match(self._watch.cleaner.texts(alike))
        others = texts.filter(other)
        classes = np.full(len(texts), MAY_MATCH)
        classes[other] = [
            self._number(kind) if kind.strip() or others[index].strip() else BLANK_LINE
            for index, kind in enumerate(line_kinds(others))
        ]
        if len(self._numbers) > len(self.kinds):
            new = text_array(islice(self._numbers, len(self.kinds), None))
            self.kinds = pa.concat_arrays([self.kinds, new])
        return classes

    def _may_match(self, texts: pl.Series) -> Bools:
        """Return True for texts that some pattern may match."""
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
    """Overwrite the digits of the lines with zeros, in place."""
    every = np.frombuffer(lines.buffers()[2], np.uint8)
    for part in cache_windows(every):
        values = part - np.uint8(ASCII_ZERO)
        values *= values < DIGIT_COUNT  # other bytes stay
        np.subtract(part, values, out=part)
