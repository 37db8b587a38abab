"""Watch for lines that would change the formats of a log, while the log is read.

If a log begins with lines of an engine, lines of a trainer may follow only at the end. Looking for
them first means searching all of the log. So the log is read by the formats of its beginning, and
only lines that may contain a watched mark are searched. For most lines this is known in advance:
lines equal except for digits and blanks contain the same literals, and a line of each kind was
searched when its kind was learned (ingest.vector.line_cache).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple, Self

from ..core.prefilter import Clause, literal_matcher, required_clauses
from ..decode.text_cleaning import Cleaner

DIGIT_SEQUENCE: Final = re.compile("[0-9]+")
BLANK_SEQUENCE: Final = re.compile(" +")


@dataclass(frozen=True, slots=True)
class FormatWatch:
    """Marks to watch for in texts without noise. noise, marks: regexes."""

    noise: str
    marks: tuple[str, ...]

    @classmethod
    def of(cls, noise: str, marks: Iterable[str]) -> Self | None:
        """Return a watch; None if lines that are alike may differ in containing a mark."""
        watch = cls(noise, tuple(marks))
        known = all(map(required_clauses, watch.marks)) and watch.cleaner.runs_alike
        return watch if known else None

    @property
    def cleaner(self) -> Cleaner:
        """Cleaner that removes the noise from lines."""
        return _needs(self).cleaner

    @property
    def patterns(self) -> Sequence[tuple[str, str]]:
        """Marks as patterns of a LiteralPrefilter."""
        return [("", mark) for mark in self.marks]

    def may_hold_mark(self, text: str) -> bool:
        """Return whether a mark may be in a text.

        The answer is the same for all texts that are alike after `fold_digits_and_blanks`.
        """
        needs = _needs(self)
        bare = fold_digits_and_blanks(needs.cleaner.strip(fold_digits_and_blanks(text)))
        return needs.first(bare) is not None and any(
            all(any(literal in bare for literal in clause) for clause in each)
            for each in needs.clauses
        )


class _Needs(NamedTuple):
    """Literals required in a text with a mark: of all clauses of any mark."""

    cleaner: Cleaner
    clauses: tuple[tuple[Clause, ...], ...]
    first: Callable[[str], object]


@cache
def _needs(watch: FormatWatch) -> _Needs:
    """Return the requirements of the marks, computed once for all files."""
    every = tuple(
        tuple(frozenset(map(fold_digits_and_blanks, clause)) for clause in required_clauses(mark))
        for mark in watch.marks
    )
    return _Needs(
        Cleaner(watch.noise), every, literal_matcher(frozenset().union(*(c[0] for c in every)))
    )


def fold_digits_and_blanks(text: str) -> str:
    """Return a text with runs of digits as 0, and runs of blanks as a single blank.

    If a text contains another text, the folded texts do too.
    """
    return BLANK_SEQUENCE.sub(" ", DIGIT_SEQUENCE.sub("0", text))
