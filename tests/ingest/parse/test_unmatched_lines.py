"""Lines that no pattern knows: cleaned and counted many at once as one by one."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from operator import itemgetter

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairmfu.ingest.core.arrays import Ints
from fairmfu.ingest.decode.text_cleaning import Cleaner
from fairmfu.ingest.formats.torchtitan.console import TORCHTITAN
from fairmfu.ingest.parse.unmatched_lines import (
    MAX_COUNTED_KINDS,
    MAX_KIND_CHARS,
    MAX_KIND_SOURCE_CHARS,
    MAX_REPORTED_KINDS,
    KindCounts,
    UnmatchedKinds,
    line_kind,
    line_kinds,
)

NOISES = [None, TORCHTITAN.noise, r"<[^>]*>", r"\bnoise\s*", r"(?i)tag\d"]
PIECES = ["\x1b[31m", "\x1b[m", "[0m", "\0", "\r", "\xa0", "step 12", "1.5:2", " ", "é", "百分"]
LINES = st.one_of(
    st.binary(max_size=80),
    st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=12).map(
        lambda pieces: "".join(pieces).encode("utf-8", "replace")
    ),
).map(lambda raw: raw.replace(b"\n", b""))


pytestmark = pytest.mark.usefixtures("however_few")


@pytest.mark.parametrize("noise", NOISES)
@given(lines=st.lists(LINES, max_size=8))
@example(lines=[b"\r", b"\r\r", b"a\r", b"\ra", b"a\r\r", b"", b"\xff", b"\xc2\xa0", b"\x1b[1"])
@example(lines=["\x1b[٣m".encode(), "\U0001e4f1 \U0001f917".encode(), b"<a<b>", b"tAg1 noise \t"])
def test_lines_are_cleaned_together_as_one_by_one(noise: str | None, lines: list[bytes]) -> None:
    cleaner = Cleaner(noise)
    together = cleaner.texts(pa.array([line + b"\n" for line in lines], pa.large_binary()))
    assert together.to_list() == [cleaner.text(line) for line in lines]


@given(st.lists(st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]))))
@example(
    [
        "x" * (MAX_KIND_CHARS - 1) + "12:34" + "y" * MAX_KIND_SOURCE_CHARS,
        "1" * 300,
        "٣٤ ३.४",
        "a" * 159 + "12",
    ]
)
def test_kinds_are_the_same_together_as_one_by_one(texts: list[str]) -> None:
    assert line_kinds(pl.Series(texts, dtype=pl.String)).to_list() == [line_kind(x) for x in texts]


def test_polars_and_python_know_the_same_digits() -> None:
    """Of the characters that are not cleaned one by one."""
    plane = [chr(point) for point in range(0x10000) if not 0xD800 <= point < 0xE000]
    found = pl.Series(plane).str.contains(r"\d").to_list()
    assert found == [re.search(r"\d", one) is not None for one in plane], sys.version


def test_the_first_kinds_are_counted_and_the_commonest_told() -> None:
    kinds = UnmatchedKinds(bytes.decode)
    for number in range(MAX_COUNTED_KINDS + 5):
        kinds.add(f"kind {number}", 1, number, "an example")
    kinds.add_many(
        KindCounts(
            pa.array(["kind 7", f"kind {MAX_COUNTED_KINDS}"]),
            np.array([3, 9]),
            np.array([90_000, 90_001]),
            lambda lines: pytest.fail(f"{lines} are known or beyond what is remembered"),
        )
    )
    first, second, *rest = kinds.commonest()
    assert first == {"count": 4, "line": 7, "example": "an example"}
    assert second == {"count": 1, "line": 0, "example": "an example"}
    assert len(rest) == MAX_REPORTED_KINDS - 2


@given(st.lists(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 9), min_size=1)))
def test_kinds_are_counted_together_as_one_by_one(batches: list[dict[str, int]]) -> None:
    together, alone = UnmatchedKinds(bytes.decode), UnmatchedKinds(bytes.decode)
    for number, batch in enumerate(batches):
        lines = 10 * number + np.arange(len(batch))[::-1]
        counts = np.array(list(batch.values()))
        together.add_many(
            KindCounts(pa.array(batch), counts, lines, lambda at: [b"%d" % n for n in at])
        )
        for kind, count, line in sorted(zip(batch, counts, lines, strict=True), key=itemgetter(2)):
            alone.add(kind, int(count), int(line), str(line))
    assert together.commonest() == alone.commonest()


@given(
    st.lists(
        st.tuples(st.booleans(), st.dictionaries(st.integers(0, 7), st.integers(1, 9), min_size=1)),
        min_size=1,
    )
)
def test_kinds_of_a_block_are_counted_in_several_goes_as_one_by_one(
    goes: list[tuple[bool, dict[int, int]]],
) -> None:
    """Each go is of the block of the one before, or of another one; most kinds have no line."""
    together, alone = UnmatchedKinds(bytes.decode), UnmatchedKinds(bytes.decode)
    kinds, texts = pa.array("abcdefgh"), of_block("")
    for number, (another, said) in enumerate(goes):
        kinds, texts = (pa.array("abcdefgh"), of_block(number)) if another else (kinds, texts)
        counts, lines = np.zeros(8, np.int64), np.zeros(8, np.int64)
        for line, (kind, count) in enumerate(said.items(), 10 * number):
            counts[kind], lines[kind] = count, line
            alone.add("abcdefgh"[kind], count, line, next(iter(texts(np.array([line])))).decode())
        together.add_many(KindCounts(kinds, counts, lines, texts))
    assert together.commonest() == alone.commonest()


def of_block(name: object) -> Callable[[Ints], list[bytes]]:
    """The lines of a block, by their numbers."""
    return lambda at: [f"{line} of {name}".encode() for line in at]


def test_blocks_that_share_kinds_have_their_own_lines() -> None:
    """As those of one log have that are planned together, with a line between them that was cut."""
    kinds, counts = pa.array(["noise", "news"]), np.array([1, 0])
    told = UnmatchedKinds(bytes.decode)
    told.add_many(KindCounts(kinds, counts, np.array([3, 0]), of_block("the first")))
    told.add_many(KindCounts(kinds, 1 - counts, np.array([0, 9]), of_block("the second")))
    examples = [kind["example"] for kind in told.commonest()]
    assert examples == ["3 of the first", "9 of the second"]
