"""Prefilter by literals: find lines that may match any of many patterns.

A regex of a hundred alternatives tries all of them at every character of a line. A search for
literals is some fifty times faster, and most lines contain no needed literal.

Literals are read from Python's parse of a pattern, so no format has to repeat them. `re._parser` is
private; tests/ingest/core/test_prefilter.py checks every pattern and example here against the
parse. Without `re._parser` no literal is known and every line is tried: slower, with the same
result.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import chain
from typing import Any, Final, Generic, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

try:
    from re import _parser as _python_parser  # type: ignore[attr-defined]
except ImportError:  # pragma: no cover - of a later Python
    _python_parser = None
parser: Final[Any] = _python_parser
"""Python's own parser of patterns; None if a later Python renames it."""

Item = TypeVar("Item", bound=Hashable)

PatternPart = tuple[Any, Any]
"""Part of a pattern as Python parses it: an operator and its argument."""
PatternParts = Iterable[PatternPart]
LITERAL_OP: Final = getattr(parser, "LITERAL", None)
ZERO_WIDTH_OPS: Final = ("AT", "ASSERT", "ASSERT_NOT")
REPEAT_OPS: Final = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
MAX_LITERALS: Final = 64
"""Literals of one part of a pattern: `[Ll]oad(?:ing|ed)` has four."""

MIN_SECOND_LITERAL_CHARS: Final = 4
"""Characters of the shortest literal in a clause that is worth a second search."""

PIECE_CHARS: Final = 4
"""Characters of a literal's word by which it is looked up."""
MAX_REMEMBERED_WORDS: Final = 8_192
"""Words whose literals are remembered."""

SURROGATE: Final = re.compile("[\ud800-\udfff]")
"""A surrogate half. A pattern may contain one, but text decoded from UTF-8 never does."""
NUMBERED_LITERAL: Final = re.compile("[A-Za-z].*[0-9]|[0-9].*[A-Za-z]")
"""A literal with a number and its name."""
NEVER_MATCHING: Final = r"x\A"
"""A regex that no text matches."""
MAX_PYTHON_SEARCH_LINES: Final = 100
"""Lines searched for literals by Python, in a tenth of the time of a new regex: Polars compiles a
regex in 2 to 5 ms, once for every thread.
"""

MAX_UNCOMPILED_SEARCH_LINES: Final = 2_000
"""Lines searched for the literals of a second clause without a regex. Polars remembers 32 regexes:
with those of all second clauses, it would compile most of them again for each group of small logs.
"""

IDENTITY_BYTES: Final = bytes(range(256))
"""Maps every byte to itself."""

Clause = frozenset[str]
"""Alternative literals: a text has to contain at least one of them."""
EMPTY_CLAUSE: Final = frozenset({""})


def parse_pattern(pattern: str) -> PatternParts | None:
    """Return the parts of a pattern; None if unknown, or if the pattern ignores case."""
    if parser is None:
        return None
    parts: PatternParts = parser.parse(pattern)
    return None if parts.state.flags & re.IGNORECASE else parts  # type: ignore[attr-defined]


@cache
def required_clauses(pattern: str) -> tuple[Clause, ...]:
    """Return clauses that every match satisfies, the most selective first.

    A clause is selective if its shortest literal is long. Clauses implied by others are left out.
    """
    parts = parse_pattern(pattern)
    return () if parts is None else rank_clauses(_clauses(parts))


def rank_clauses(pattern_clauses: Iterable[Clause]) -> tuple[Clause, ...]:
    """Sort the clauses of one pattern, the most selective first; drop implied ones."""
    out: list[Clause] = []
    for clause in sorted(pattern_clauses, key=lambda clause: (-min(map(len, clause)), len(clause))):
        if not any(all(any(part in text for part in clause) for text in other) for other in out):
            out.append(clause)
    return tuple(out)


def required_literals(pattern: str) -> Clause:
    """Return literals of which every match of a pattern contains one; none if unknown."""
    return next(iter(required_clauses(pattern)), frozenset())


def numbered_literals(pattern: str) -> Clause:
    """Return the literals of a pattern that spell out numbers: `step=0, skipped=0`."""
    without_repeats = re.sub(r"\{\d*,?\d*\}", "", pattern)
    if not re.search(r"\d", without_repeats):  # most patterns; parsing is slow
        return frozenset()
    literals = _literals(parse_pattern(pattern) or ())
    return frozenset(text for text in literals if NUMBERED_LITERAL.search(text))


def _literals(items: PatternParts) -> Iterator[str]:
    """Yield the literals, joined with the texts that may follow if these are few."""
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
    """Return the clauses of a sequence; adjacent parts with few texts make one clause."""
    clauses: list[Clause] = []
    texts = EMPTY_CLAUSE
    for part, its in _each(items):
        if its is not None and len(texts) * len(its) <= MAX_LITERALS:
            texts = _followed(texts, its)
            continue
        clauses.append(texts)
        texts = EMPTY_CLAUSE if its is None else its
        if its is None:
            clauses += _inside(part)
    return [_shortest(clause) for clause in (*clauses, texts) if clause and "" not in clause]


def _each(items: PatternParts) -> Iterator[tuple[PatternPart, Clause | None]]:
    """Yield the parts with their texts.

    Adjacent literals, most of a pattern, are one part.
    """
    literals: list[PatternPart] = []
    for part in getattr(items, "data", items):  # a list: faster than SubPattern's own iteration
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
    """Return all texts followed by all of `its`."""
    return (
        its if texts is EMPTY_CLAUSE else frozenset(text + more for text in texts for more in its)
    )


def _inside(part: PatternPart) -> list[Clause]:
    """Return the clauses of a part with many or unknown texts."""
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
    """Return all texts that a part matches; None if many or unknown."""
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
    """Return all texts that adjacent parts match; None if many or unknown."""
    texts = EMPTY_CLAUSE
    for _, its in _each(items):
        if its is None or len(texts) * len(its) > MAX_LITERALS:
            return None
        texts = _followed(texts, its)
    return texts


def _shortest(clause: Clause) -> Clause:
    """Return the clause without literals that contain another."""
    return frozenset(
        text for text in clause if not any(part in text for part in clause if part != text)
    )


def _second_clause(clauses: Sequence[Clause], first: Collection[str]) -> Clause:
    """Return the clause to search after the first.

    The first again if no other is selective.
    """
    others = (
        clause
        for clause in clauses[1:]
        if min(map(len, clause)) >= MIN_SECOND_LITERAL_CHARS and clause.isdisjoint(first)
    )
    return next(iter((*others, *clauses[:1])), frozenset())


class LiteralPrefilter:
    """Select the lines that may match any of many patterns, in one pass.

    Two clauses per pattern are searched: most lines of an XTuner log contain `[XTuner]`, and fewer
    also contain ` Step `. All literals make one regex of Polars: half the time of `contains_any`,
    and cached by Polars. Formats of forks share all words but a few, so all clauses of their
    patterns are searched, one after the other.
    """

    def __init__(
        self,
        patterns: Iterable[tuple[str, str]],
        byte_map: bytes = IDENTITY_BYTES,
        fork_patterns: Collection[str] = (),
    ) -> None:
        """Compile the literals of the patterns.

        patterns: (literal, pattern), with a literal that every match contains, or an empty one.
        byte_map: the translation of bytes applied to the texts. fork_patterns: patterns of forks,
        among these.
        """
        each, by_themselves = list[Sequence[Clause]](), list[Sequence[Clause]]()
        for anchor, pattern in patterns:
            found = rank_clauses(
                [*([frozenset({anchor})] if anchor else []), *required_clauses(pattern)]
            )
            (by_themselves if pattern in fork_patterns else each).append(found)
        self._open = not all((*each, *by_themselves))
        first = {text for found in each for text in (*found, frozenset[str]())[0]}
        second = {text for found in each for text in _second_clause(found, first)}
        self._rounds = [_translated(literals, byte_map) for literals in (first, second) if literals]
        self._regexes = [_one_of(literals) for literals in self._rounds]
        self._forks = [
            [_translated(clause, byte_map) for clause in reversed(found)] for found in by_themselves
        ]

    def may_match(self, texts: pl.Series) -> NDArray[np.bool_]:
        """Return a mask of the texts; False: no pattern matches in the text."""
        return self._sifted(texts, 0)

    def lines_may_match(self, lines: pl.Series) -> NDArray[np.bool_]:
        """Return a mask as `may_match`, for texts of one line."""
        return self._sifted(lines, MAX_PYTHON_SEARCH_LINES)

    def _sifted(self, texts: pl.Series, few: int) -> NDArray[np.bool_]:
        """Return the mask. few: search so many texts, or fewer, in Python."""
        if self._open:
            return np.full(len(texts), fill_value=True)
        may, left = np.arange(len(texts) if self._rounds else 0), texts
        for number, (literals, regex) in enumerate(zip(self._rounds, self._regexes, strict=True)):
            if len(left) <= few:
                held = _hold(left, literals)
            elif number and len(left) <= MAX_UNCOMPILED_SEARCH_LINES:
                held = _contain_any(left, literals).to_numpy()
            else:
                held = left.str.contains(regex).to_numpy()
            may = may[held]
            if not len(may):
                break
            left = texts[may]
        out = np.zeros(len(texts), bool)
        out[may] = True
        for clauses_of_one in self._forks:
            may = np.flatnonzero(~out)
            for clause in clauses_of_one:
                may = may[_contain_any(texts[may], clause).to_numpy()] if len(may) else may
            out[may] = True
        return out


def _one_of(literals: Iterable[str]) -> str:
    """Return a regex for Polars that matches any of the literals."""
    return "|".join(map(re.escape, literals)) or NEVER_MATCHING


def _contain_any(texts: pl.Series, literals: Sequence[str]) -> pl.Series:
    """Return whether the texts contain any of the literals, without a regex."""
    if len(literals) == 1:
        return texts.str.contains(literals[0], literal=True)
    return texts.str.contains_any(literals)


def _hold(texts: pl.Series, literals: Iterable[str]) -> NDArray[np.bool_]:
    """Return a mask of the texts that contain any of the literals.

    Most literals are in none.
    """
    whole = "\n".join(texts)
    there = [literal for literal in literals if literal in whole]
    return np.array([any(literal in text for literal in there) for text in texts], bool)


def _translated(literals: Iterable[str], byte_map: bytes) -> list[str]:
    """Return the literals as in translated texts.

    Those with surrogate halves occur in no log.
    """
    whole = (literal for literal in literals if not SURROGATE.search(literal))
    return sorted({literal.encode().translate(byte_map).decode() for literal in whole})


@cache
def cached_prefilter(
    patterns: tuple[tuple[str, str], ...], fork_patterns: frozenset[str] = frozenset()
) -> LiteralPrefilter:
    """Return the prefilter of these patterns, built once for all files."""
    return LiteralPrefilter(patterns, fork_patterns=fork_patterns)


def literal_matcher(
    literals: Iterable[str], patterns: Iterable[str] = ()
) -> Callable[[str], object]:
    """Return a search for any of `literals`, or for a literal that a pattern needs.

    A pattern without a needed literal is searched itself. Literals are grouped by their first
    character: a regex is fast if few alternatives begin alike.
    """
    return _any_of(frozenset(literals), tuple(patterns))


@cache
def _any_of(literals: Clause, patterns: tuple[str, ...]) -> Callable[[str], object]:
    """Build the search of `literal_matcher`, once for all files."""
    every = literals.union(*map(required_literals, patterns))
    tails: dict[str, list[str]] = {}
    for literal in sorted(every):
        tails.setdefault(literal[:1], []).append(re.escape(literal[1:]))
    groups = [f"{re.escape(first)}(?:{'|'.join(rest)})" for first, rest in tails.items()]
    alone = (f"(?:{pattern})" for pattern in patterns if not required_literals(pattern))
    return re.compile("|".join((*groups, *alone)) or "(?!)").search


class LiteralIndex(Generic[Item]):
    """Find the items, among some hundred, whose literals a text contains.

    A literal is looked up by its longest word, and that by a piece of it that few others share, so
    most are never searched. The words of logs recur, so the literals of a word are remembered.
    """

    def __init__(self, items: Iterable[tuple[Iterable[str], Item]]) -> None:
        """Index items by their literals; one without literals is always found."""
        self._items: dict[str, list[Item]] = {}
        for literals, item in items:
            for literal in tuple(literals) or ("",):
                self._items.setdefault(literal, []).append(item)
        words = {
            literal: max(literal.split(), key=len, default="") for literal in sorted(self._items)
        }
        shared = Counter(chain.from_iterable(map(_pieces, words.values())))
        self._by_piece: dict[str, list[tuple[str, str]]] = {"": []}
        for literal, word in words.items():
            rarest = min(_pieces(word), key=lambda piece: (shared[piece], piece), default="")
            self._by_piece.setdefault(rarest, []).append((word, literal))
        self._of_word = lru_cache(MAX_REMEMBERED_WORDS)(self._literals_of_word)

    def possible(self, text: str) -> set[Item]:
        """Return the items with a literal in the text."""
        literals = {*chain(*map(self._of_word, {"", *text.split()}))}
        return {item for one in literals if one in text for item in self._items[one]}

    def _literals_of_word(self, word: str) -> Sequence[str]:
        """Return the literals whose longest word is in this word."""
        pieces = self._by_piece.keys() & {"", *_pieces(word)}
        known = chain(*(self._by_piece[piece] for piece in pieces))
        return [literal for part, literal in known if part in word]


def _pieces(word: str) -> set[str]:
    """Return all pieces of PIECE_CHARS characters of a word; none if it is shorter."""
    return {word[start : start + PIECE_CHARS] for start in range(len(word) - PIECE_CHARS + 1)}
