"""How far a pattern matches a line that it does not match: for the words of an error."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.parse.partial_match import longest_matched_prefix


@pytest.mark.parametrize(
    ("pattern", "text", "matched"),
    [
        (r"step: (\d+) loss: (\d+)", "x step: 12 loss: 5", "step: 12 loss: 5"),
        (r"step: (\d+) loss: (\d+)", "x step: 12 los: 5", "step: 12 los"),
        (r"step: (\d+) loss: (\d+)", "x step: a", "step: "),
        (r"step: [0-9]+ x", "step: 12 y", "step: 12 "),
        (r"(?:a|b)c", "bd", "b"),
        (r"abc", "xyz", ""),
        (r"", "xyz", ""),
    ],
)
def test_the_longest_beginning_of_a_pattern_that_matches(
    pattern: str, text: str, matched: str
) -> None:
    assert longest_matched_prefix(pattern, text) == matched


@given(text=st.text("ab1 ", max_size=12), words=st.text("ab1 ", max_size=12))
def test_of_plain_words_it_is_their_longest_beginning_in_the_line(text: str, words: str) -> None:
    longest = max((words[:end] for end in range(len(words) + 1) if words[:end] in text), key=len)
    assert longest_matched_prefix(words, text) == longest
    assert longest_matched_prefix(re.escape(words), words) == words


PIECES: Final = ("ab", r"\d+", "(?:cd|e)", "(?P<n>x+)", "[^a]", "(?<!z)", r"\.", "(?=1)", "[0-9]")


@given(
    pieces=st.lists(st.sampled_from(PIECES), min_size=1, max_size=5, unique=True),
    text=st.text("abcdex12. ", max_size=12),
)
def test_no_longer_beginning_of_a_pattern_matches(pieces: list[str], text: str) -> None:
    """Of all that are patterns themselves, tried one after the other."""
    pattern, longest = "".join(pieces), ""
    for end in range(len(pattern), -1, -1):
        with suppress(re.error):
            if match := re.search(pattern[:end], text):
                longest = match[0]
                break
    assert longest_matched_prefix(pattern, text) == longest
