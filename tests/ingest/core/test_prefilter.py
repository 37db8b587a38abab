"""Literals that tell at once that a pattern cannot match are needed by whatever it matches."""

from __future__ import annotations

import re

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.core import prefilter
from fairmfu.ingest.core.prefilter import (
    LiteralIndex,
    LiteralPrefilter,
    literal_matcher,
    numbered_literals,
    required_literals,
)
from fairmfu.ingest.core.safe_regex import GuardedRegex
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.launches.outcomes import ENDING_EVENT_LINES

LINES = [line for f in BUILT_IN_FORMATS for line in (*f.steps, *f.facts, *f.events)] + [
    *ENDING_EVENT_LINES
]
BLOCKS = [block for f in BUILT_IN_FORMATS for block in f.blocks]
MARKS = [
    p for f in BUILT_IN_FORMATS for p in (f.signature, f.looks_like_step, f.launch, f.header) if p
]
PATTERNS = sorted({*MARKS, *(x.regex for x in LINES), *(b.start for b in BLOCKS)})
EXAMPLES = sorted({*(x.example for x in LINES), *(text for b in BLOCKS for text in b.example)})


@pytest.mark.parametrize(
    ("pattern", "literals"),
    [
        (r"\bstep: *\d+ loss: ", {" loss: "}),
        (r"(?:Iter|Epoch)\(train\)", {"Iter(train)", "Epoch(train)"}),
        (r"(?:Iteration|Epoch) \d", {"Iteration ", "Epoch "}),
        (r"[Ll]oad(?:ing)? it|saved", {"Load it", "load it", "Loading it", "loading it", "saved"}),
        (r"x[abcdefghi][abcdefghi]y{2}long", {"long"}),
        (r"x[^y]z", {"x"}),
        (r"(?:ab){2}", {"ab"}),
        (r"a(?=long lookahead)b", {"ab"}),
        (r"(?:maybe)?x(?:often)+", {"often"}),
        (r"(?P<name>group)\d", {"group"}),
        (r"(?>atomic.*?) \d", {"atomic"}),
        (r"known|\d+", set()),
        (r"(?i)any case", set()),
        (r"(?i:any case) x", {" x"}),
        (r"\d+", set()),
        (r"", set()),
    ],
)
def test_the_literals_that_a_pattern_needs(pattern: str, literals: set[str]) -> None:
    assert required_literals(pattern) == literals


def test_what_a_pattern_of_a_format_matches_holds_a_literal_it_needs() -> None:
    for pattern in PATTERNS:
        literals, search = required_literals(pattern), re.compile(pattern).search
        matched = [text for text in EXAMPLES if search(text)]
        wrong = [t for t in matched if literals and not any(x in t for x in literals)]
        assert not wrong, (pattern, literals, wrong)


@pytest.mark.parametrize("few", [0, 2, 1_000], ids=["together", "some", "one by one"])
def test_a_sieve_lets_pass_whatever_a_pattern_matches(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefilter, "MAX_PYTHON_SEARCH_LINES", few)
    lines = [(line.anchor, line.regex) for line in LINES]
    for pattern in [*lines, *(("", mark) for mark in (*MARKS, *(b.start for b in BLOCKS)))]:
        search = re.compile(pattern[1]).search
        matched = pl.Series([x for x in EXAMPLES if pattern[0] in x and search(x)], dtype=pl.String)
        assert LiteralPrefilter([pattern]).lines_may_match(matched).all(), pattern
        assert (
            LiteralPrefilter([pattern], fork_patterns=pattern[1:]).lines_may_match(matched).all()
        ), pattern


@pytest.mark.parametrize("few", [0, 2, 1_000], ids=["together", "some", "one by one"])
def test_a_sieve_asks_for_two_clauses_of_each_pattern(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefilter, "MAX_PYTHON_SEARCH_LINES", few)
    sieve = LiteralPrefilter([("", r"\[XTuner\].* Step \d+"), ("loss", r"loss: \d")])
    texts = ["[XTuner] Step 1", "[XTuner] saved", " Step 1", "loss: 1", "loss 1", ""]
    assert sieve.lines_may_match(pl.Series(texts)).tolist() == [
        True,
        False,
        False,
        True,
        False,
        False,
    ]
    assert LiteralPrefilter([("", r"\d+")]).lines_may_match(pl.Series(texts)).all()
    assert not LiteralPrefilter([]).lines_may_match(pl.Series(texts)).any()


def test_a_sieve_asks_for_every_clause_of_a_forks_pattern() -> None:
    patterns = [("", r"long words \d+ shared ones \d+ own"), ("", r"own \d+ to both")]
    texts = pl.Series(
        ["long words 1 shared ones 2 own", "long words 1 shared ones 2", "own 3 to both"]
    )
    may = LiteralPrefilter(patterns).lines_may_match(texts)
    assert may.tolist() == [True, True, True]
    may = LiteralPrefilter(patterns, fork_patterns={patterns[0][1]}).lines_may_match(texts)
    assert may.tolist() == [True, False, True]
    assert LiteralPrefilter([("", r"\d+")], fork_patterns={r"\d+"}).lines_may_match(texts).all()


def test_what_marks_a_format_is_known_by_literals() -> None:
    assert [mark for mark in MARKS if not required_literals(mark)] == []


def test_any_of_tells_what_may_match() -> None:
    may = literal_matcher(["step:", "step=", "a.b"], [r"loss \d+ of", r"\d{3}"])
    assert all(map(may, ["a step=", "the a.b", "loss x of", "123", "step:"]))
    assert not any(map(may, ["step", "aXb", "12", "", "los 1"]))
    assert not literal_matcher([])("anything")
    assert literal_matcher([""])("anything")


@given(
    lines=st.lists(
        st.sampled_from(["first second", "first third", "second", "forks own words", "forks", ""])
    ),
    most=st.integers(0, 6),
)
def test_a_second_clause_selects_the_same_lines_with_and_without_a_regex(
    lines: list[str], most: int
) -> None:
    patterns = [("", r"first \d*second"), ("", r"forks \d*own \d*words")]
    sieve = LiteralPrefilter(patterns, fork_patterns={patterns[1][1]})
    texts = pl.Series(lines, dtype=pl.String)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(prefilter, "MAX_UNCOMPILED_SEARCH_LINES", most)
        assert sieve.may_match(texts).tolist() == sieve.lines_may_match(texts).tolist()


@given(
    st.lists(st.lists(st.text("ab: \t\x1f\xa0", max_size=9), max_size=3)),
    st.text("ab: \t\x1f\xa0", max_size=40),
)
def test_an_index_finds_the_items_with_a_literal_in_the_text(
    literals: list[list[str]], text: str
) -> None:
    index = LiteralIndex([(its, item) for item, its in enumerate(literals)])
    assert index.possible(text) == {
        item for item, its in enumerate(literals) if not its or any(one in text for one in its)
    }


def test_a_guarded_regex_matches_as_it_is() -> None:
    for pattern in PATTERNS:
        guarded, plain = GuardedRegex(pattern), re.compile(pattern)
        for text in EXAMPLES:
            one, other = guarded.search(text), plain.search(text)
            assert (one and one.span()) == (other and other.span())


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        (r"\bstep=0, skipped=0", {"step=0, skipped=0"}),
        (r"(?:Float8 (?P<what>.*)|stage(?:1|2|_3))", {"Float8 ", "stage1", "stage2", "stage_3"}),
        (
            r"(?:epoch 1 )?(?!at 5x)(?P<loss>[\d.]{1,9}) (?:x2)+ [a-z0-9]",
            {"epoch 1 ", "at 5x", "x2"},
        ),
        (r"step: (\d{1,9}) of (\d+)(?<=[^0-9])", set()),
        (r"(?i)step 3", set()),
    ],
)
def test_literals_that_spell_numbers_out_are_found(pattern: str, texts: set[str]) -> None:
    found = numbered_literals(pattern)
    assert all(any(text in one for one in found) for text in texts)
    assert all(any(text in one for text in texts) for one in found)
