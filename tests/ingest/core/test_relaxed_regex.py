"""A looser regex matches wherever Python's does: of every pattern, in any text."""

from __future__ import annotations

import re
from itertools import chain
from random import Random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.core.relaxed_regex import relaxed_union
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.launches.outcomes import ENDING_EVENT_LINES

LINES = [
    *ENDING_EVENT_LINES,
    *chain.from_iterable((*f.steps, *f.facts, *f.events) for f in BUILT_IN_FORMATS),
]
BLOCKS = [block for f in BUILT_IN_FORMATS for block in f.blocks]
PATTERNS = sorted(
    {
        *(line.regex for line in LINES),
        *(block.start for block in BLOCKS),
        *(f.looks_like_step for f in BUILT_IN_FORMATS),
        *(f.launch for f in BUILT_IN_FORMATS if f.launch),
        *(f.step_pieces for f in BUILT_IN_FORMATS if f.step_pieces),
    }
)
EXAMPLES = sorted({*(x.example for x in LINES), *(text for b in BLOCKS for text in b.example)})
ASCII_EXAMPLES = [text for text in EXAMPLES if text.isascii() and "\n" not in text]


def folded(text: str) -> str:
    return re.sub(r"[0-9]", "0", text)


def found(pattern: str, texts: list[str], *, fold: bool) -> list[bool]:
    relaxed = relaxed_union([pattern], digits_folded=fold)
    assert relaxed is not None, pattern
    return pl.Series(map(folded, texts) if fold else texts).str.contains(relaxed).to_list()


def assert_matches_wherever_python_does(pattern: str, texts: list[str]) -> None:
    python = [re.search(pattern, text) is not None for text in texts]
    for fold in (False, True):
        polars = found(pattern, texts, fold=fold)
        lost = [t for t, mine, its in zip(texts, polars, python, strict=True) if its and not mine]
        assert lost == [], pattern


def test_every_pattern_matches_in_every_example_in_which_python_finds_it() -> None:
    for pattern in PATTERNS:
        assert_matches_wherever_python_does(pattern, ASCII_EXAMPLES)


def damaged(text: str, draw: Random) -> str:
    for _ in range(draw.randrange(4)):
        at = draw.randrange(len(text) + 1)
        more = "".join(draw.choices("0 9a:,|\t[]-.", k=draw.randrange(3)))
        text = text[:at] + more + text[at + draw.randrange(3) :]
    return text


def test_so_does_it_in_examples_that_are_damaged() -> None:
    draw = Random(3)  # noqa: S311 - no secret
    texts = [damaged(text, draw) for text in ASCII_EXAMPLES]
    for pattern in PATTERNS:
        assert_matches_wherever_python_does(pattern, texts)


PARTS = st.sampled_from(
    [
        *("a", "7", ".", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", "[ab]", "[^ab]", "[5-9x]"),
        *("[^5]", r"[^\d]", r"[\w.]", r"\b", "^", "$", r"\A", r"\Z", "(?=a)", "(?!b)", "(?<!a)"),
        *("a{3}", "a{2,}", "[ab]{0,9}", "b?", "b??", "(?:ab)*+", "(?>a|ab)", "(ab|7)", "(?P<n>a)"),
        *(
            "(?i:a)b",
            "(?-i:a)b",
            r"(a)\1",
            r"[\x00-\x1f]",
            "[]a]",
            "-",
            r"\.",
            "[^\n]",
            "ä",
            "[ä-ö]",
            "[^ä]",
        ),
    ]
)


@given(
    parts=st.lists(PARTS, min_size=1, max_size=5),
    ignoring_case=st.booleans(),
    texts=st.lists(st.text("abAB79 .-\t\x1f", max_size=12), min_size=1, max_size=9),
)
def test_any_pattern_matches_wherever_python_does(
    parts: list[str],
    ignoring_case: bool,  # noqa: FBT001
    texts: list[str],
) -> None:
    pattern = "(?i)" * ignoring_case + "".join(parts)
    try:
        re.compile(pattern)
    except re.error:  # two groups of one name
        return
    assert_matches_wherever_python_does(pattern, texts)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"step: \d+ loss", "step: x loss"),
        (r"loss: [\d.]+$", "loss: 2.5 of it"),
        ("^step", "a step"),
        (r"step=1\b", "step=x"),
        ("(?i)oom", "omo"),
        (r"\w{3}", "ab cd"),
        ("a{3}", "aa"),
        ("[^a-z]", "abc"),
        (r"x\A", "axa"),
    ],
)
def test_most_texts_without_a_match_are_told(pattern: str, text: str) -> None:
    assert found(pattern, [text], fold=True) == [False]


@pytest.mark.parametrize("pattern", ["(?s)a.b", "(?m)^a$", "(?s:a.)b"])
def test_a_pattern_without_a_like_is_none(pattern: str) -> None:
    assert relaxed_union(["a", pattern]) is None


def test_patterns_that_are_too_much_for_polars_have_none() -> None:
    nested = "a"
    for _ in range(11):
        nested = f"(?:{nested}){{4}}"
    assert relaxed_union([nested]) is None


def test_one_regex_stands_for_all_patterns() -> None:
    union = relaxed_union(["ab", "c+", "(?i)X"])
    assert union is not None
    texts = pl.Series(["ab", "xc", "x", "a", "b"])
    assert texts.str.contains(union).to_list() == [True, True, True, False, False]
