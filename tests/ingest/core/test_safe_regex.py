"""A regex finds in a long line what `re` does, and does not look for it from every place."""

from __future__ import annotations

import re
import time
from itertools import pairwise
from random import Random

import pytest

from fairmfu.ingest.core import safe_regex
from fairmfu.ingest.core.safe_regex import Regex
from tests.ingest.core.test_prefilter import EXAMPLES, PATTERNS

LINES = [
    *EXAMPLES,
    *(f"{one} {other}" for one, other in pairwise(EXAMPLES)),
    *(f"{one[: len(one) // 2]}{one}{one[len(one) // 3 :]}" for one in EXAMPLES),
]


def same(pattern: str, text: str, begin: int = 0) -> bool:
    mine, theirs = Regex(pattern).search(text, begin), re.compile(pattern).search(text, begin)
    if mine is None or theirs is None:
        return mine is theirs
    return (mine.span(), mine.groupdict()) == (theirs.span(), theirs.groupdict())


def test_what_a_pattern_of_a_format_finds_is_what_re_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_regex, "MIN_GUARDED_CHARS", 0)
    draw = Random(1)  # noqa: S311 - no secret
    for pattern in PATTERNS:
        mine, theirs = Regex(pattern).search, re.compile(pattern).search
        lines = [text for text in LINES if theirs(text)]
        for text in (*lines, *draw.sample(LINES, 20)):
            at, end = sorted(draw.randrange(len(text) + 1) for _ in range(2))
            for line in (text, text[at:], text[:end], text[:at] + text[end:]):
                assert str(mine(line)) == str(theirs(line)), (pattern, line)
        assert not lines or same(pattern, lines[0], 1)


@pytest.mark.parametrize(
    "pattern",
    [
        r"a(?P<x>\d).*b",
        r"a(?P<x>\d.*)b|c.+?d",
        r"x(?:a.*b)?c",
        r"x(?:a|b.*)c",
        r"(?<!x)a(?=.*b).*c",
        r"a(?=.*b)c",
        r"a(?!.*b)c.*d",
        r"^a.*b$",
        r"(a.*b).*\1c",
        r"(?i)A.*B",
        r"(?i:A).*b",
        r"(?>a.*?b).*c",
        r"a.{2,}b.{0,3}c",
        r"(?:a.*b)+c",
    ],
)
def test_it_finds_what_re_finds(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_regex, "MIN_GUARDED_CHARS", 0)
    draw = Random(pattern)  # noqa: S311 - no secret
    found = 0
    for _ in range(2_000):
        text = "".join(draw.choices("abcdx1\n", (4, 4, 4, 2, 2, 3, 0.2), k=draw.randrange(12)))
        assert same(pattern, text, draw.randrange(3)), text
        found += re.search(pattern, text) is not None
    assert found


@pytest.mark.parametrize("count", [2_000, 30_000])
def test_it_looks_once_for_what_is_not_there(count: int) -> None:
    begun = time.process_time()
    assert Regex(r"(?<!x)\{'a': .*\}.*!$").search("{'a': } " * count) is None
    assert time.process_time() - begun < 1


def test_without_the_parser_of_this_python_it_is_searched_as_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(safe_regex, "compiler", None)
    assert same("a.*b", "a" * 2_000 + "b")
