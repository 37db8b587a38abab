"""What would change the formats that a log is taken for, watched for while it is read.

Where only an engine's lines show, a trainer's may come at the end of the log. To look for them is
to look at all of it before it is read. So it is read by what its beginning shows, and of the lines
that come only those are looked at that may hold what is watched for. Of most it is known without:
lines that are alike but for the digits and blanks in them hold the same literals, and of such lines
one was looked at when it was learned what they are (ingest.vector.line_cache).
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
    """Marks that are watched for in texts without noise: both are regexes."""

    noise: str
    marks: tuple[str, ...]

    @classmethod
    def of(cls, noise: str, marks: Iterable[str]) -> Self | None:
        """None where it can not be told of a line by one that is alike whether it holds a mark."""
        watch = cls(noise, tuple(marks))
        known = all(map(required_clauses, watch.marks)) and watch.cleaner.runs_alike
        return watch if known else None

    @property
    def cleaner(self) -> Cleaner:
        """Takes the noise out of lines."""
        return _needs(self).cleaner

    @property
    def patterns(self) -> Sequence[tuple[str, str]]:
        """The marks as a sieve takes them."""
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
    """What a text has to hold in which a mark stands: literals of all clauses of one."""

    cleaner: Cleaner
    clauses: tuple[tuple[Clause, ...], ...]
    first: Callable[[str], object]


@cache
def _needs(watch: FormatWatch) -> _Needs:
    """What the marks need, found out once for all files."""
    every = tuple(
        tuple(frozenset(map(fold_digits_and_blanks, clause)) for clause in required_clauses(mark))
        for mark in watch.marks
    )
    return _Needs(
        Cleaner(watch.noise), every, literal_matcher(frozenset().union(*(c[0] for c in every)))
    )


def fold_digits_and_blanks(text: str) -> str:
    """A text with one zero for digits side by side, and one blank for blanks.

    If a text holds another one, it holds it so too.
    """
    return BLANK_SEQUENCE.sub(" ", DIGIT_SEQUENCE.sub("0", text))
