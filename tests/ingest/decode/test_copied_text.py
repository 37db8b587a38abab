"""Tabs for blanks and HTML's characters: undone where lines say more then, and none says less."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.decode.copied_text import detect_copy, unwrap_entities, unwrap_tabs

STEPS = [
    b"[titan] 2026-01-02 03:04:%02d,000 - root - INFO - step: %d  loss:  5.0%d000  memory:  "
    b"1.50GiB(3.00%%)  tps: 1,000" % (step, step, step)
    for step in range(1, 10)
]
TABBED = [line.replace(b"- step", b"-\tstep").replace(b"  memory", b"\tmemory") for line in STEPS]
HTML = [line.replace(b"  ", b"&nbsp;&nbsp;") for line in STEPS]


def undone(lines: Sequence[bytes]) -> list[object]:
    return list(detect_copy(b"\n".join([*lines, b""])))


def test_a_copy_out_of_a_page_is_undone() -> None:
    assert undone(HTML) == [unwrap_entities]
    assert undone(STEPS) == []


def test_tabs_that_hide_something_are_undone() -> None:
    hidden = [line.replace(b"step: ", b"step:\t") for line in STEPS]
    assert undone(hidden) == [unwrap_tabs]
    assert undone([b"\t" + line for line in STEPS]) == []  # an indentation hides nothing
    assert undone([line + b"\t" for line in STEPS]) == []


def test_both_are_undone_the_entities_first() -> None:
    one_each = [*HTML[:3], *(line.replace(b"step: ", b"step:\t") for line in STEPS[:3])]
    assert undone(one_each) == [unwrap_entities, unwrap_tabs]


@pytest.mark.parametrize(("count", "found"), [(1, []), (2, [unwrap_entities])])
def test_two_lines_have_to_say_more(count: int, found: list[object]) -> None:
    assert undone([*HTML[:count], b"a &amp; b", *STEPS]) == found


def test_nothing_is_undone_where_a_line_says_less_then() -> None:
    """A tag of a value in a dict that holds an entity by itself."""
    odd = b"{'loss': 1.5, 'epoch': 0.1, 'text': 'a&#125;b'}"
    plain = b"{'loss': 1.5, 'epoch': 0.1, 'text': 'a&amp;b'}"
    assert undone([*HTML, plain]) == [unwrap_entities]
    assert undone([*HTML, odd]) in ([], [unwrap_entities])


def test_two_lines_of_each_kind_are_looked_at() -> None:
    """Those alike but for their numbers: a thousand of others stand before what tells."""
    others = [b"%d&nbsp;done: %d%%" % (n, n) for n in range(1000)]
    assert undone([*others, *HTML[:2]]) == [unwrap_entities]
    unlike = [b"%s&nbsp;done" % bytes([97 + n // 26 % 26, 97 + n % 26]) for n in range(400)]
    assert undone([*unlike[:198], *HTML[:2]]) == [unwrap_entities]
    assert undone([*unlike[:199], *HTML[:2]]) == []  # 200 lines are


def test_a_last_line_without_its_newline_counts() -> None:
    assert list(detect_copy(b"\n".join(HTML[:2]))) == [unwrap_entities]
    assert list(detect_copy(b"")) == []


def test_what_html_spells_is_read() -> None:
    piece = unwrap_entities(b"a&nbsp;&lt;b&gt; &#65;&#x42; &quot;&amp;&apos;")
    assert piece is not None
    assert piece.text == "a\xa0<b> AB \"&'".encode()
    assert unwrap_entities(b"a && b &unknown; c&") is None
    assert unwrap_entities(b"no entity") is None


def test_a_line_stays_one_line() -> None:
    piece = unwrap_entities(b"a&#10;b&#13;c\xff")
    assert piece is not None
    assert piece.text == b"a b c\xff"


@given(line=st.binary(max_size=40))
def test_tabs_become_blanks_and_nothing_else_changes(line: bytes) -> None:
    piece = unwrap_tabs(line)
    assert (piece is None) == (b"\t" not in line)
    if piece is not None:
        assert len(piece.text) == len(line)
        assert piece.text == bytes(ord(" ") if byte == ord("\t") else byte for byte in line)


@given(text=st.text(max_size=40).filter(lambda text: "\n" not in text and "\r" not in text))
def test_a_text_that_html_spells_comes_back(text: str) -> None:
    spelt = "".join(f"&#{ord(char)};" if char in "&<>\"' " else char for char in text)
    piece = unwrap_entities(spelt.encode())
    assert (spelt.encode() if piece is None else piece.text) == text.encode()
