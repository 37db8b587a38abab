"""Lines that were broken at a width, put together again: where lines say more then, and only so."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import pytest

from fairmfu.ingest.decode.wrapped_lines import WrappedLines, detect_wrapped_lines
from tests.support.pieces import joined_by

MEGATRON = (
    b" iteration %8d/    2000 | consumed samples: %12d | elapsed time per iteration (ms): 1234.5 | "
    b"learning rate: 1.500E-04 | global batch size:    64 | lm loss: 7.123456E+00 | "
    b"grad norm: 1.234 | number of skipped iterations:   0 |"
)
TITAN = (
    b"[titan] 2026-01-02 03:04:%02d,000 - root - INFO - step: %d  loss:  5.00000  "
    b"grad_norm:  1.2000  memory:  1.50GiB(3.00%%)  tps: 1,000  tflops: 1.25  mfu: 0.40%%"
)
STEPS = [MEGATRON % (n, 64 * n) for n in range(1, 11)]
TITANS = [TITAN % (n, n) for n in range(1, 11)]


def joined(lines: Sequence[bytes]) -> list[bytes] | None:
    """The lines put together; None where they stay."""
    return joined_by(detect_wrapped_lines(lines), lines)


def hard(lines: Sequence[bytes], width: int) -> list[bytes]:
    """Broken wherever the width ends."""
    return [line[at : at + width] for line in lines for at in range(0, len(line), width)]


def at_blanks(lines: Sequence[bytes], width: int) -> list[bytes]:
    """Broken between words, as a mail program does it."""
    texts = (line.decode() for line in lines)
    return [
        piece.encode()
        for text in texts
        for piece in textwrap.wrap(text, width, drop_whitespace=True, break_on_hyphens=False)
    ]


def words(line: bytes) -> list[bytes]:
    return line.split()


@pytest.mark.parametrize("width", [72, 80, 100, 140])
@pytest.mark.parametrize("steps", [STEPS, TITANS], ids=["megatron", "titan"])
def test_lines_that_were_broken_at_blanks_are_whole(steps: Sequence[bytes], width: int) -> None:
    found = joined(at_blanks(steps, width))
    assert found is not None
    assert [*map(words, found)] == [*map(words, steps)]


@pytest.mark.parametrize("width", [72, 80, 100, 133])
@pytest.mark.parametrize("end", [b"", b"\r"])
def test_lines_that_were_broken_hard_are_whole(width: int, end: bytes) -> None:
    """In the middle of a word; the last piece may lack blanks at its end."""
    assert joined([piece + end for piece in hard(TITANS, width)]) == TITANS


def test_whole_lines_stay() -> None:
    for lines in (STEPS, TITANS, [*STEPS, b"text"], [], [b""], [b"text"] * 50):
        assert joined(lines) is None


def test_prose_that_was_broken_stays() -> None:
    """It says no more as one line."""
    prose = b"The loss of this run was fine, and nobody has seen a NaN in any of the steps. " * 9
    assert joined(at_blanks([prose], 72)) is None


@pytest.mark.parametrize(("count", "whole"), [(1, False), (2, True), (3, True)])
def test_two_lines_have_to_say_more(count: int, *, whole: bool) -> None:
    """A third of all broken ones, or three."""
    found = joined(hard(TITANS[:count], 100))
    assert (found == TITANS[:count]) == whole


def test_records_are_not_put_together() -> None:
    """Each begins by itself: a tag, a stamp, a dict, a heading, an argument."""
    others = [
        *(b"[INFO] some words of a log", b"2026-01-02 03:04:05 some words", b"{'a': 1}"),
        *(b"--- heading", b"# heading", b"*** note", b"name = value", b"```"),
        b"  hidden_size ....................... 2048",
    ]
    for other in others:
        lines = [line for step in TITANS for line in (*hard([step], 100), other)]
        whole = [line for step in TITANS for line in (step, other)]
        assert joined(lines) == whole


def test_a_step_that_says_something_stays_beside_a_whole_one() -> None:
    """Lines of two kinds, one behind the other, of which none is broken."""
    lines = [line for pair in zip(STEPS, TITANS, strict=True) for line in pair]
    assert joined(lines) is None


# -- one line behind the other -----------------------------------------------------------------

HEAD, REST = TITANS[0][:100], TITANS[0][100:]


def test_a_break_at_a_blank_gets_its_blank_back() -> None:
    head, _, rest = TITANS[0].partition(b"  memory")
    lines = WrappedLines(len(head), len(head) + 8, at_blanks=True)
    assert lines(head).text == head
    piece = lines(b"memory" + rest)
    assert (piece.continues, piece.text) == (True, b" memory" + rest)


def test_a_line_with_values_goes_on_if_it_has_more_with_the_blank_of_the_break() -> None:
    """A date and a time are a clock only with a blank between them."""
    date, rest = b"[titan] 2026-01-02", b"03:04:05,000 - root - INFO - Training starts at step 1"
    lines = WrappedLines(len(date), len(date) + 8, at_blanks=True)
    lines(date)
    assert lines(rest).continues
    lines = WrappedLines(len(date), len(date), at_blanks=False)
    lines(date)
    assert not lines(rest).continues


def test_a_word_that_was_broken_at_its_hyphen_gets_none() -> None:
    head = b"x" * 50 + b" micro-"
    lines = WrappedLines(len(head), len(head) + 4, at_blanks=True)
    lines(head)
    assert lines(b"batch size").text == b"batch size"
    lines(b"x" * 50 + b" lone -")
    assert lines(b"batch size").text == b" batch size"


@pytest.mark.parametrize(("word", "goes_on"), [(9, False), (10, True)])
def test_a_line_goes_on_where_its_first_word_would_not_have_fitted(
    word: int, *, goes_on: bool
) -> None:
    """A line of 90, lines of 102 at most: with three blanks before it ten more are too wide."""
    lines = WrappedLines(102, 102, at_blanks=True)
    lines(b"x" * 90)
    assert lines(b"y" * word + b" z").continues == goes_on


@pytest.mark.parametrize(("width", "goes_on"), [(100, True), (90, True), (89, False), (101, False)])
def test_a_hard_break_is_at_the_width_or_behind_blanks_left_out(
    width: int, *, goes_on: bool
) -> None:
    """Ten blanks at most, which come back."""
    lines = WrappedLines(100, 100, at_blanks=False)
    lines(b"x" * width)
    piece = lines(b"yyy")
    assert piece.continues == goes_on
    if goes_on:
        assert piece.text == b" " * (100 - width) + b"yyy"


def test_no_piece_is_wider_than_the_width() -> None:
    lines = WrappedLines(100, 100, at_blanks=False)
    lines(b"x" * 100)
    assert not lines(b"y" * 101).continues
    lines(b"x" * 100)
    assert lines(b"y" * 100).continues


def test_a_line_that_is_indented_was_not_broken_at_a_blank() -> None:
    lines = WrappedLines(90, 100, at_blanks=True)
    lines(b"x" * 90)
    assert not lines(b"  yyyyyyyyyyyyyyyyyyyy").continues
    lines(b"x" * 90)
    assert lines(b" yyyyyyyyyyyyyyyyyyyy").continues


def test_characters_count_and_not_bytes() -> None:
    lines = WrappedLines(60, 60, at_blanks=False)
    lines("ä".encode() * 60)
    assert lines(b"yyy").continues
    lines("ä".encode() * 30)
    assert not lines(b"yyy").continues


@pytest.mark.parametrize(("width", "goes_on"), [(16, True), (15, False), (400, True), (401, False)])
def test_a_line_that_was_broken_has_16_to_400_characters(width: int, *, goes_on: bool) -> None:
    lines = WrappedLines(width, width, at_blanks=False)
    lines(b"x" * width)
    assert lines(b"yyy").continues == goes_on
