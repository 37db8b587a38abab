"""Lines cleaned many at once, against the same lines one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
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
