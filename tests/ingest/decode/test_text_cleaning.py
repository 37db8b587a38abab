"""Lines cleaned many at once, against the same lines one by one."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fairmfu.ingest.core.arrays import copy_to_arrow
from fairmfu.ingest.decode.text_cleaning import Cleaner, line_array
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS

PIECES = [
    *(b"loss: 1.5", b"\r", b" ", b"m", b"[", b"0;", b"\x1b[31m", b"[0m", b"\x1b[1;2K"),
    *(piece.encode() for piece in ("ä", "│", "[٣m", "\u00a0", "\N{GRINNING FACE}", "\0")),
    b"\xff",
]
LINES = st.lists(st.lists(st.sampled_from(PIECES), max_size=8).map(b"".join), min_size=1)


pytestmark = pytest.mark.usefixtures("however_few")


@pytest.mark.parametrize(
    "noise", [None, *sorted({f.noise for f in BUILT_IN_FORMATS if f.noise}), r"\s\d"]
)
@given(lines=LINES)
@example(lines=[b"of it nothing is noise", b"", b"\r", b" x \r\r"])
def test_many_lines_are_cleaned_as_each_is(noise: str | None, lines: list[bytes]) -> None:
    cleaner = Cleaner(noise)
    bounds = np.cumsum([0, *(len(line) + 1 for line in lines)])
    every = line_array(copy_to_arrow(b"".join(line + b"\n" for line in lines)), bounds)
    assert cleaner.texts(every).to_list() == [cleaner.text(line) for line in lines]
    assert cleaner.texts(every.slice(1)).to_list() == [cleaner.text(line) for line in lines[1:]]


@pytest.mark.parametrize(
    "noise", [None, *sorted({f.noise for f in BUILT_IN_FORMATS if f.noise}), r"\s\d"]
)
@given(lines=LINES)
def test_lines_are_cleaned_as_one_text_as_each_is(noise: str | None, lines: list[bytes]) -> None:
    cleaner = Cleaner(noise)
    every = [lines, [b"of it nothing is noise"], lines[:1]]
    which, texts = cleaner.join_clean_texts(
        [b"".join(one + b"\n" for one in some) for some in every]
    )
    for place, text in zip(which.tolist(), texts, strict=True):
        uncut = [line.rstrip("\r") for line in text.removesuffix("\n").split("\n")]
        assert uncut == [cleaner.text(line).rstrip("\r") for line in every[place]]


def test_progress_bars_are_one_text() -> None:
    data = "Training: 4%|█▏ | 1/25\rTraining: 8%|██▏ | 2/25\n[INFO] loss: 1.5\n".encode()
    which, texts = Cleaner(None).join_clean_texts([b"\xff\n", data])
    assert (which.tolist(), texts.to_list()) == ([1], [data.decode()])


# -- what noise is whatever its digits are -----------------------------------------------------

NOISES: Final = (
    *("x", r"\d", "[0-9]", "[1-3]", "[0-8]", "[/-9]", "[0-:]", "5", "(?:a|b)", "(?:a|b2)", "a1"),
    *(r"a\d+b", r"a\d*", r"a\d+", r"a\d{2}", r"\d+\d+", r"a[0-9 ]+b", "x{2}", r"\[\d+m", " x"),
    *(r"a(?:\d+;)*\d+m", r"(\d+)m", r"a[0-9;]*m", r"\d+x", r"\d+[ab]", r"\d+(?:a|b)", r"a\d?b"),
)
"""Regexes of what may be noise."""
TEXTS: Final = st.text("ab05 ;mx[:/", max_size=12)


def zeroed(text: str) -> str:
    return re.sub("[0-9]", "0", text)


def shortened(text: str) -> str:
    """With one digit for several, and one blank."""
    return re.sub(" +", " ", re.sub("0+", "0", zeroed(text)))


@given(texts=st.lists(TEXTS, min_size=1, max_size=30))
@settings(max_examples=30)
def test_noise_that_is_so_with_other_digits_is_found_in_zeros(texts: list[str]) -> None:
    """And where it is so of any run of them, in one for many."""
    for cleaner in map(Cleaner, NOISES):
        for text in texts if cleaner.digits_alike else ():
            assert zeroed(cleaner.strip(text)) == cleaner.strip(zeroed(text)), cleaner._noise
            if cleaner.runs_alike:
                cleaned = shortened(cleaner.strip(text))
                assert cleaned == shortened(cleaner.strip(shortened(text))), cleaner._noise


def test_which_noise_is_so_with_other_digits() -> None:
    digits = {noise for noise in NOISES if Cleaner(noise).digits_alike}
    assert set(NOISES) - digits == {"[1-3]", "[0-8]", "5", "(?:a|b2)", "a1"}
    runs = {noise for noise in NOISES if Cleaner(noise).runs_alike}
    assert runs >= {"x", "x{2}", "(?:a|b)", r"a\d+b", r"a\d*", r"\[\d+m", r"\d+x", r"\d+[ab]"}
    assert not runs & {r"\d", "[0-9]", r"a\d{2}", r"\d+\d+", r"a[0-9 ]+b", " x", r"a\d?b"}
    assert Cleaner(None).digits_alike


@pytest.mark.parametrize("noise", [r"\bx", "(?i)x", "x.", r"\s", "(?=x)y", r"\w", "x$", "[^a]"])
def test_noise_that_engines_may_see_otherwise_is_cleaned_line_by_line(noise: str) -> None:
    assert not Cleaner(noise).digits_alike
    lines = [b"x y", b"", b"aXx\r", "\u0663 x".encode()]
    bounds = np.cumsum([0, *(len(line) + 1 for line in lines)])
    every = line_array(copy_to_arrow(b"".join(line + b"\n" for line in lines)), bounds)
    cleaner = Cleaner(noise)
    assert cleaner.texts(every).to_list() == [cleaner.text(line) for line in lines]


@pytest.mark.parametrize(
    ("data", "is_text"),
    [
        ("a\u0080b", True),  # the first byte beyond ASCII
        ("│ 4%", True),
        ("a\u2000b", False),
        ("\u00a0", False),  # a blank that becomes a plain one
        ("\ufeff", False),
        ("٣", False),  # a digit
        ("a\0", False),
    ],
)
def test_texts_that_are_looked_through_as_one_need_no_cleaning(data: str, *, is_text: bool) -> None:
    which, texts = Cleaner(None).join_clean_texts([f"{data}\n".encode()])
    assert which.tolist() == ([0] if is_text else [])
    assert texts.to_list() == ([f"{data}\n"] if is_text else [])
