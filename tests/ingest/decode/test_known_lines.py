"""How much the formats read of a line: what tells a right unwrapping from a wrong one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.decode.known_lines import MAX_READ_CHARS, known_lines

STEP = b"step: 10  loss:  5.00000  grad_norm:  1.2000  memory:  1.50GiB(3.00%)  tps: 1,000"
TITAN = b"[titan] 2026-01-02 03:04:05,000 - root - INFO - "
DICT = b"{'loss': 1.5, 'epoch': 0.1}"


def test_a_line_without_a_pattern_counts_nothing() -> None:
    """Nor does its stamp, which any line may have."""
    for line in (b"", b"hello", b"[INFO] the loss is high", TITAN + b"hello"):
        assert known_lines().count(line) == 0


def test_each_value_that_a_line_says_more_counts_one_more() -> None:
    words = b"step: 10  loss:  5.00000  memory:  1.50GiB(3.00%)  tps: 1,000"
    more = [b"", b"  tflops: 1.25", b"  tflops: 1.25  mfu: 0.40%"]
    counts = [known_lines().count(words + some) for some in more]
    assert counts == [counts[0], counts[0] + 1, counts[0] + 2]


def test_the_clock_of_a_line_that_is_known_counts_one() -> None:
    known = known_lines()
    assert known.count(TITAN + STEP) == known.count(STEP) + 1
    assert known.has_clock(TITAN)
    assert not known.has_clock(STEP)


def test_a_colour_hides_nothing() -> None:
    coloured = STEP.replace(b"loss: ", b"\x1b[32mloss: \x1b[0m")
    assert known_lines().count(coloured) == known_lines().count(STEP)
    assert known_lines().begins_step(b"\x1b[31m" + STEP)


@given(digits=st.text("0123456789", min_size=1, max_size=1), other=st.sampled_from("123456789"))
def test_lines_alike_but_for_digits_count_alike(digits: str, other: str) -> None:
    assert known_lines().count(STEP.replace(b"5", digits.encode())) == known_lines().count(
        STEP.replace(b"5", other.encode())
    )


def test_a_fact_counts_beside_a_step() -> None:
    """Of several step lines that match one line only one counts: they are one line's readings."""
    fact = b"  hidden_size ..................................... 2048"
    block = b"------------------------ arguments ------------------------"
    known = known_lines()
    assert known.count(DICT) > 0
    assert known.count(fact) == 0  # within its block alone
    assert known.count(block) > 0


@pytest.mark.parametrize(
    ("head", "begins"),
    [
        (b"", True),
        (TITAN, True),
        (b"x " * 31 + b" ", True),
        (b"x " * 32, False),
        (b"y" * 70, False),
    ],
)
def test_a_step_begins_within_the_first_64_characters(head: bytes, *, begins: bool) -> None:
    assert known_lines().begins_step(head + STEP) == begins


def test_only_the_first_characters_of_a_long_line_are_read() -> None:
    known, line = known_lines(), b" " * (MAX_READ_CHARS - len(STEP)) + STEP
    assert known.count(line) == known.count(STEP)
    assert known.count(b" " * 12 + line) < known.count(STEP)
    assert known.count(b" " * len(STEP) + line) == 0
    assert known.has_clock(b" " * (MAX_READ_CHARS - len(TITAN)) + TITAN)
    assert not known.has_clock(b" " * MAX_READ_CHARS + TITAN)


PIECES = st.sampled_from(
    [b"", b"hello", b"  tps: 1,000", b"loss: ", b" 5.0", b"step:", STEP, TITAN, TITAN + STEP, DICT]
)


@given(before=PIECES, between=st.sampled_from([b"", b" "]), line=PIECES, data=st.data())
def test_joined_lines_gain_where_they_count_more_than_apart(
    before: bytes, between: bytes, line: bytes, data: st.DataObject
) -> None:
    whole = before + line
    cut = data.draw(st.integers(0, len(whole)))
    known = known_lines()
    for first, second in ((before, line), (whole[:cut], whole[cut:])):
        apart = known.count(first), known.count(second)
        gain = known.count(first + between + second) > sum(apart)
        assert known.gain_joined(first, between, second) == (gain and not all(apart))
