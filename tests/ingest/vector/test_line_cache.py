"""Lines looked through together and remembered, against each line asked of the patterns."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.decode.text_cleaning import Cleaner
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.parse.unmatched_lines import line_kind
from fairmfu.ingest.vector import line_cache
from fairmfu.ingest.vector.line_cache import BLANK_LINE, MAY_MATCH, LineCache

PATTERNS = [("", r"exit code 137"), ("loss: ", r"loss: \d+"), ("", r"rank[0-9]+ died|step=0,")]
PIECES = [
    *("exit code 137", "exit code 999", "loss: 1", "loss", "rank7 died", "rank", "step=0,"),
    *("step=5,", "12:30", "7", "\x1b[31m", "\x1b[5m", " ", "\u00a0", "ä", "٣", "word"),
]
TEXTS = st.lists(st.lists(st.sampled_from(PIECES), max_size=5).map("".join), min_size=1)


pytestmark = pytest.mark.usefixtures("however_few")


def found(learned: LineCache, lines: list[bytes]) -> list[str | int]:
    """What each line is: BLANK, MAY_MATCH, or its kind."""
    numbers = learned.of(pa.array([line + b"\n" for line in lines], pa.large_binary())).tolist()
    return [number if number < 0 else learned.kinds[number].as_py() for number in numbers]


@pytest.mark.parametrize(
    "noise", [None, *sorted({f.noise for f in BUILT_IN_FORMATS if f.noise}), "7|ä"]
)
@given(blocks=st.lists(TEXTS, min_size=1, max_size=4))
def test_what_is_remembered_is_so_of_each_line(noise: str | None, blocks: list[list[str]]) -> None:
    cleaner = Cleaner(noise)
    learned = LineCache(cleaner, PATTERNS)
    for texts in blocks:
        lines = [text.encode() for text in texts]
        for line, what in zip(lines, found(learned, lines), strict=True):
            text = cleaner.text(line)
            if any(re.search(pattern, text) for _, pattern in PATTERNS):
                assert what == MAY_MATCH, line
            elif what != MAY_MATCH:  # a line that holds a literal may still match none
                assert what == (line_kind(text) if text.strip() else BLANK_LINE), line


def test_a_blank_line_is_none_that_a_pattern_may_match() -> None:
    blank, may_match, other = found(LineCache(Cleaner(None), PATTERNS), [b" ", b"loss: 1", b"x 1"])
    assert len({blank, may_match}) == 2
    assert other == "x #"


def test_other_digits_of_a_literal_are_not_taken_for_it() -> None:
    learned = LineCache(Cleaner(None), PATTERNS)
    assert found(learned, [b"exit code 999", b"exit code 13"]) == [MAY_MATCH, "exit code #"]
    assert found(learned, [b"exit code 137"]) == [MAY_MATCH]


@pytest.mark.parametrize(
    ("noise", "alike"),
    [
        *((None, True), (r"\[rank\d+\]", True), (r"\[rank0\]", False), ("[1-3]x", False)),
        *(("", True), ("[0-9a]|b", True), ("(?:a|b2)", False), (r"\bx", False), ("x{2}", True)),
    ],
)
def test_digits_are_alike_to_noise_that_names_none(noise: str | None, alike: bool) -> None:  # noqa: FBT001
    assert Cleaner(noise).digits_alike is alike


def test_a_log_that_never_repeats_itself_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_cache, "MAX_CACHED_LINES", 100)
    learned = LineCache(Cleaner(None), PATTERNS)
    rng = np.random.default_rng(5)
    for _ in range(30):
        words = ["".join(map(chr, rng.integers(97, 123, 12))) for _ in range(60)]
        assert found(learned, [word.encode() for word in words]) == words
        assert len(learned.kinds) <= 160


def test_lines_alike_but_for_their_digits_are_looked_through_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_through, look_through = list[int](), LineCache._look_through

    def counted(learned: LineCache, alike: pa.LargeBinaryArray) -> Any:
        looked_through.append(len(alike))
        return look_through(learned, alike)

    monkeypatch.setattr(LineCache, "_look_through", counted)
    learned = LineCache(Cleaner(None), PATTERNS)
    for first in (10, 50):
        lines = [b"word %d" % n for n in range(first, first + 30)]
        assert found(learned, lines) == ["word #"] * 30
    assert looked_through == [1]
