"""Whether a line may match any of many patterns, told from their literals.

A regex of a hundred alternatives tries each of them at every character of a line, a literal is
looked for some fifty times faster, and most lines hold none of those that the patterns need.

What a pattern needs is read from how Python parses it, so that no format has to say it twice.
`re._parser` is Python's own; tests/ingest/core/test_prefilter.py holds it to every pattern and
example here. Without it no literal is known: every line is tried, which is slower and comes to the
same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import cache
from itertools import chain
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

try:
    from re import _parser as _python_parser  # type: ignore[attr-defined]
except ImportError:  # pragma: no cover - of a later Python
    _python_parser = None
parser: Final[Any] = _python_parser
"""Python's own parser of patterns; None where it has another name."""

PatternPart = tuple[Any, Any]
"""Of a pattern as Python parses it: an operator, and what it says."""
PatternParts = Iterable[PatternPart]
LITERAL_OP: Final = getattr(parser, "LITERAL", None)
ZERO_WIDTH_OPS: Final = ("AT", "ASSERT", "ASSERT_NOT")
REPEAT_OPS: Final = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
MAX_LITERALS: Final = 64
"""Literals of one part of a pattern: `[Ll]oad(?:ing|ed)` is four."""

MIN_SECOND_LITERAL_CHARS: Final = 4
"""Characters of the shortest literal of a clause that is worth looking for beside another."""

SURROGATE: Final = re.compile("[\ud800-\udfff]")
"""Of a character; a pattern may name it, no text that was UTF-8 holds it."""
NUMBERED_LITERAL: Final = re.compile("[A-Za-z].*[0-9]|[0-9].*[A-Za-z]")
"""What says which number it is of."""
NEVER_MATCHING: Final = r"x\A"
"""A regex that no text matches."""
MAX_PYTHON_SEARCH_LINES: Final = 100
"""Lines in which literals are looked for one by one in a tenth of the time that a new regex takes:
Polars makes one in 2 to 5 ms, once for each of its threads."""

IDENTITY_BYTES: Final = bytes(range(256))
"""Each byte stands for itself."""

Clause = frozenset[str]
"""Literals of which a text has to hold one."""
EMPTY_CLAUSE: Final = frozenset({""})


def parse_pattern(pattern: str) -> PatternParts | None:
    """Its parts; None where they are not known, or letters of both cases are alike to it."""
    if parser is None:
        return None
    parts: PatternParts = parser.parse(pattern)
    return None if parts.state.flags & re.IGNORECASE else parts  # type: ignore[attr-defined]


@cache
def required_clauses(pattern: str) -> tuple[Clause, ...]:
    """What a text has to hold that `pattern` matches, the most telling clause first.

    Telling is one whose shortest literal is long. A clause that follows from another is left out.
    """
    parts = parse_pattern(pattern)
    return () if parts is None else rank_clauses(_clauses(parts))


def rank_clauses(pattern_clauses: Iterable[Clause]) -> tuple[Clause, ...]:
    """Clauses of one pattern, the most telling first, without those that follow from others."""
    out: list[Clause] = []
    for clause in sorted(pattern_clauses, key=lambda clause: (-min(map(len, clause)), len(clause))):
        if not any(all(any(one in text for one in clause) for text in other) for other in out):
            out.append(clause)
    return tuple(out)


def required_literals(pattern: str) -> Clause:
    """Literals of which one stands in whatever `pattern` matches; none where that is not known."""
    return next(iter(required_clauses(pattern)), frozenset())


def numbered_literals(pattern: str) -> Clause:
    """Literals of a pattern, wherever they stand, that spell numbers out: `step=0, skipped=0`."""
    without_repeats = re.sub(r"\{\d*,?\d*\}", "", pattern)
    if not re.search(r"\d", without_repeats):  # as in most, and to parse one takes long
        return frozenset()
    literals = _literals(parse_pattern(pattern) or ())
    return frozenset(text for text in literals if NUMBERED_LITERAL.search(text))


def _literals(items: PatternParts) -> Iterator[str]:
    """Each one, with what may follow it where that is few texts."""
    texts = EMPTY_CLAUSE
    for part, its in _each(items):
        name, said = str(part[0]), part[1]
        if name.startswith("ASSERT"):
            yield from _literals(said[-1])
        if its is not None and len(texts) * len(its) <= MAX_LITERALS:
            texts = _followed(texts, its)
            continue
        yield from texts
        texts = EMPTY_CLAUSE if its is None else its
        if its is None and name == "BRANCH":
            yield from chain.from_iterable(map(_literals, said[1]))
        elif its is None and name in (*REPEAT_OPS, "SUBPATTERN"):
            yield from _literals(said[-1])
        elif its is None and name == "ATOMIC_GROUP":
            yield from _literals(said)
    yield from texts


def _clauses(items: PatternParts) -> list[Clause]:
    """What each part of a sequence needs; parts side by side that have few texts are one."""
    found: list[Clause] = []
    texts = EMPTY_CLAUSE
    for part, its in _each(items):
        if its is not None and len(texts) * len(its) <= MAX_LITERALS:
            texts = _followed(texts, its)
            continue
        found.append(texts)
        texts = EMPTY_CLAUSE if its is None else its
        if its is None:
            found += _inside(part)
    return [_shortest(clause) for clause in (*found, texts) if clause and "" not in clause]


def _each(items: PatternParts) -> Iterator[tuple[PatternPart, Clause | None]]:
    """Each part with its texts; literals side by side, most of a pattern, are one part."""
    literals: list[PatternPart] = []
    for part in getattr(items, "data", items):  # a list; they themselves are asked part by part
        if part[0] == LITERAL_OP:
            literals.append(part)
            continue
        if literals:
            yield _one(literals)
            literals = []
        yield part, _texts(part)
    if literals:
        yield _one(literals)


def _one(literals: Sequence[PatternPart]) -> tuple[PatternPart, Clause]:
    return literals[-1], frozenset({"".join(chr(said) for _, said in literals)})


def _followed(texts: Clause, its: Clause) -> Clause:
    """Each text with each of those that may follow it."""
    return (
        its if texts is EMPTY_CLAUSE else frozenset(text + more for text in texts for more in its)
    )


def _inside(part: PatternPart) -> list[Clause]:
    """What a part needs that has not just a few texts."""
    name, said = str(part[0]), part[1]
    if name == "BRANCH":
        each = [rank_clauses(_clauses(branch))[:1] for branch in said[1]]
        return [frozenset().union(*(best for (best,) in each))] if all(each) else []
    if name == "SUBPATTERN" and not said[1] & re.IGNORECASE:
        return _clauses(said[3])
    if name in REPEAT_OPS and said[0] > 0:
        return _clauses(said[2])
    return _clauses(said) if name == "ATOMIC_GROUP" else []


def _texts(part: PatternPart) -> Clause | None:
    """All texts that a part matches, if they are few and known."""
    name, said = str(part[0]), part[1]
    found: Clause | None = None
    if name == "LITERAL":
        found = frozenset({chr(said)})
    elif name in ZERO_WIDTH_OPS:
        found = frozenset({""})
    elif name == "IN" and all(str(kind) == "LITERAL" for kind, _ in said):
        found = frozenset(chr(one) for _, one in said)
    elif name == "SUBPATTERN" and not (said[1] | said[2]):
        found = _sequence(said[3])
    elif name == "BRANCH":
        each = [texts for branch in said[1] if (texts := _sequence(branch)) is not None]
        found = frozenset().union(*each) if len(each) == len(said[1]) else None
    elif name in REPEAT_OPS and said[1] == 1:
        once = _sequence(said[2])
        found = once if once is None or said[0] else once | {""}
    return found if found is not None and len(found) <= MAX_LITERALS else None


def _sequence(items: PatternParts) -> Clause | None:
    """The same of parts side by side."""
    texts = EMPTY_CLAUSE
    for _, its in _each(items):
        if its is None or len(texts) * len(its) > MAX_LITERALS:
            return None
        texts = _followed(texts, its)
    return texts


def _shortest(clause: Clause) -> Clause:
    """The same without literals that hold another one."""
    return frozenset(
        text for text in clause if not any(one in text for one in clause if one != text)
    )


def _beside(found: Sequence[Clause], first: Collection[str]) -> Clause:
    """Of a pattern's clauses the one to look for beside its first; that one if no other tells."""
    others = (
        clause
        for clause in found[1:]
        if min(map(len, clause)) >= MIN_SECOND_LITERAL_CHARS and clause.isdisjoint(first)
    )
    return next(iter((*others, *found[:1])), frozenset())


class LiteralPrefilter:
    """Which of many lines may match any of many patterns, told for all of them at once.

    Of each pattern two clauses are looked for: `[XTuner]` stands in most lines of its logs, and
    fewer of them also hold ` Step `. All literals are one regex to Polars, which takes half the
    time of its `contains_any`, and knows it the next time. Formats of forks share all words but
    one: of patterns that are named so each clause is looked for, by itself.
    """

    def __init__(
        self,
        patterns: Iterable[tuple[str, str]],
        byte_map: bytes = IDENTITY_BYTES,
        fork_patterns: Collection[str] = (),
    ) -> None:
        """patterns: each with a literal that it needs, or an empty one.

        byte_map: of each byte of the texts the one that stands for it in them. of_forks: some of
        the patterns.
        """
        each, by_themselves = list[Sequence[Clause]](), list[Sequence[Clause]]()
        for anchor, pattern in patterns:
            found = rank_clauses(
                [*([frozenset({anchor})] if anchor else []), *required_clauses(pattern)]
            )
            (by_themselves if pattern in fork_patterns else each).append(found)
        self._open = not all((*each, *by_themselves))
        first = {text for found in each for text in (*found, frozenset[str]())[0]}
        second = {text for found in each for text in _beside(found, first)}
        self._rounds = [_changed(literals, byte_map) for literals in (first, second) if literals]
        self._regexes = [_one_of(literals) for literals in self._rounds]
        self._forks = [
            [_one_of(_changed(clause, byte_map)) for clause in reversed(found)]
            for found in by_themselves
        ]

    def may_match(self, texts: pl.Series) -> NDArray[np.bool_]:
        """Of each text whether it may; one that may not holds a match of no pattern."""
        return self._sifted(texts, 0)

    def lines_may_match(self, lines: pl.Series) -> NDArray[np.bool_]:
        """The same of lines."""
        return self._sifted(lines, MAX_PYTHON_SEARCH_LINES)

    def _sifted(self, texts: pl.Series, few: int) -> NDArray[np.bool_]:
        """The same; few: of so many or fewer literals are looked for one by one."""
        if self._open:
            return np.full(len(texts), fill_value=True)
        may, left = np.arange(len(texts) if self._rounds else 0), texts
        for literals, regex in zip(self._rounds, self._regexes, strict=True):
            short = len(left) <= few
            may = may[_hold(left, literals) if short else left.str.contains(regex).to_numpy()]
            if not len(may):
                break
            left = texts[may]
        out = np.zeros(len(texts), bool)
        out[may] = True
        for clauses_of_one in self._forks:
            may = np.flatnonzero(~out)
            for clause in clauses_of_one:
                may = may[texts[may].str.contains(clause).to_numpy()]
            out[may] = True
        return out


def _one_of(literals: Iterable[str]) -> str:
    """A regex to Polars: any of them."""
    return "|".join(map(re.escape, literals)) or NEVER_MATCHING


def _hold(texts: pl.Series, literals: Iterable[str]) -> NDArray[np.bool_]:
    """Of each text whether it holds any of the literals; most of these are in none."""
    whole = "\n".join(texts)
    there = [literal for literal in literals if literal in whole]
    return np.array([any(literal in text for literal in there) for text in texts], bool)


def _changed(literals: Iterable[str], alike: bytes) -> list[str]:
    """As they are in texts that are changed, without halves of a character: no log holds these."""
    whole = (literal for literal in literals if not SURROGATE.search(literal))
    return sorted({literal.encode().translate(alike).decode() for literal in whole})


@cache
def cached_prefilter(
    patterns: tuple[tuple[str, str], ...], fork_patterns: frozenset[str] = frozenset()
) -> LiteralPrefilter:
    """A sieve of these patterns, once for all files."""
    return LiteralPrefilter(patterns, fork_patterns=fork_patterns)


def literal_matcher(
    literals: Iterable[str], patterns: Iterable[str] = ()
) -> Callable[[str], object]:
    """Tells of a text whether it holds any of `literals`, or may match any of `patterns`.

    Literals are grouped by their first character: a regex is quick where few alternatives begin
    alike.
    """
    return _any_of(frozenset(literals), tuple(patterns))


@cache
def _any_of(literals: Clause, patterns: tuple[str, ...]) -> Callable[[str], object]:
    """The same, once for all files."""
    every = literals.union(*map(required_literals, patterns))
    tails: dict[str, list[str]] = {}
    for literal in sorted(every):
        tails.setdefault(literal[:1], []).append(re.escape(literal[1:]))
    groups = [f"{re.escape(first)}(?:{'|'.join(rest)})" for first, rest in tails.items()]
    alone = (f"(?:{pattern})" for pattern in patterns if not required_literals(pattern))
    return re.compile("|".join((*groups, *alone)) or "(?!)").search
