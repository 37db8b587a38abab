"""The text of a line's bytes is what a reader of the log sees."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.decode.line_text import (
    ODD_SPACES,
    UTF16_BYTE_ORDER_MARKS,
    WIDTHLESS_CHARS,
    decode_line,
    holds,
)


@given(text=st.text("aZ1.:[] \t\x1bé百\u0663🤗", max_size=20))
def test_plain_text_stays(text: str) -> None:
    assert decode_line(text.encode()) == text
    assert decode_line(text.encode() + b"\r") == text
    assert decode_line(b"\0" + text.encode() + b"\0\0") == text


@given(text=st.text("ab \r", max_size=20))
@pytest.mark.parametrize("mark", UTF16_BYTE_ORDER_MARKS)
def test_ascii_of_utf_16_is_read(mark: bytes, text: str) -> None:
    wide = text.encode("utf-16-le" if mark == b"\xff\xfe" else "utf-16-be")
    assert decode_line(mark + wide) == text.rstrip("\r")


@pytest.mark.parametrize("space", ODD_SPACES)
def test_odd_spaces_become_plain_ones(space: str) -> None:
    assert decode_line(f"step:{space}1".encode()) == "step: 1"


@pytest.mark.parametrize("char", WIDTHLESS_CHARS)
def test_characters_without_a_width_go(char: str) -> None:
    assert decode_line(f"st{char}ep: 1{char}".encode()) == "step: 1"


def test_bytes_that_are_no_utf_8_show() -> None:
    assert decode_line(b"loss: \xff1.5") == "loss: \ufffd1.5"
    assert "\u200b" in WIDTHLESS_CHARS
    assert {"\u2000", "\u200a"} <= set(ODD_SPACES)  # the first and the last of a row
    assert set(ODD_SPACES).isdisjoint(WIDTHLESS_CHARS)


@given(data=st.binary(max_size=20), text=st.binary(max_size=3))
def test_a_text_is_held_wherever_it_is(data: bytes, text: bytes) -> None:
    assert holds(data, text) == (text in data)
    assert holds(data + text + data, text)
