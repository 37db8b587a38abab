"""Shapes of lines: what fits one is read to the bit as the regex reads it, or is not taken."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import fields
from datetime import datetime
from decimal import Decimal
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.formats.spec import LogFormat
from fairmfu.ingest.parse.line_matcher import line_matcher
from fairmfu.ingest.parse.line_parser import LineParser
from fairmfu.ingest.parse.rank_and_time import parse_stamp
from fairmfu.ingest.vector import block_parser, block_plan, fixed_layouts, shape_cache
from fairmfu.ingest.vector.context_free import ContextFreeReader
from fairmfu.ingest.vector.fixed_layouts import LayoutCache, narrow_to_line
from fairmfu.ingest.vector.line_block import BLOCK_MARGIN_BYTES, DIGIT_WINDOW_BYTES, LineBlock
from fairmfu.ingest.vector.number_decoding import decode_rows
from fairmfu.ingest.vector.readings import LineReading, ReadLine, StepReading
from fairmfu.ingest.vector.shape_cache import ShapeCache
from fairmfu.ingest.vector.shape_learning import _Change, _Learner, learn_shape
from fairmfu.ingest.vector.shape_matching import (
    JoinedMatch,
    ShapeMatch,
    WalkedMatch,
    _width,
    match_shape,
)
from fairmfu.ingest.vector.shape_validation import (
    ChooseDigits,
    is_exponent,
    is_identical,
    is_same_reading,
    make_line,
)
from fairmfu.ingest.vector.shapes import LineShape, ShapeNumber, ShapePiece
from tests.support.effort import THOROUGH, sampled
from tests.support.log_lines import BY_NAME, write_log

pytestmark = sampled(4)

LINE = re.compile(
    rb"(?:(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}|\d{8} \d\d:\d\d:\d\d) )?"
    rb"run (\d+) of (-?[\d.]+(?:[eE][-+]?\d+)?) at +([\d,]+)  says ([\d.]+)%\r?"
)
FORM = "a form"
EXAMPLE = b"2026-11-20 15:34:16,731 run 7 of 12.5 at 1234  says 3.10%"
SEEDS = range(30 if THOROUGH else 10)
"""Of the random lines that a shape is tried with."""
WIDTHS = range(1, 17) if THOROUGH else (1, 2, 7, 8, 9, 10, 15, 16)
"""Of whole numbers, which are one word of eight digits or two."""


def read(raw: bytes) -> LineReading:
    """As a format's regex would: a whole number, a float, one with commas, and a text."""
    match = LINE.fullmatch(raw)
    if match is None:
        return None
    stamp, step, loss, rate, share = (None if g is None else g.decode() for g in match.groups())
    assert step is not None
    row: dict[str, Any] = {"logged_at": parse_stamp(stamp) if stamp else None, "rank": None}
    try:
        row |= {
            "step": int(step),
            "loss": float(loss or ""),
            "rate": float((rate or "").replace(",", "")) * 0.001,
            "extra": f'{{"share": "{share}"}}',
            "says": {},
        }
    except ValueError:
        return None
    return StepReading(FORM, frozenset({"step", "loss"}), row)


def shape_of(raw: bytes, reader: ReadLine = read) -> LineShape | None:
    return learn_shape(raw, reader, random.Random(3))  # noqa: S311 - lines to try


def context_free(form: LogFormat) -> ContextFreeReader:
    return ContextFreeReader(line_matcher(form, ()))


def taken(shape: LineShape, lines: list[bytes]) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """The lines that a shape takes, with the row of each."""
    block = LineBlock(1, b"".join(line + b"\n" for line in lines))
    yield from said(match_shape(block, shape, np.ones(len(block), bool)), lines)


def said(found: ShapeMatch, lines: list[bytes]) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """The lines that were found, with the row of each."""
    rows, shape = decode_rows(found), found.shape
    for index, line in enumerate(rows.lines):
        mine = {name: column[index] for name, column in rows.columns.items()}
        values = {n: v.item() if isinstance(v, np.generic) else v for n, v in mine.items()}
        yield lines[line], {**shape.fields, **values}


def fits(line: bytes, learned: bytes = EXAMPLE) -> bool:
    """Whether a line is taken by the shape of another one, which has to become one."""
    shape = shape_of(learned)
    assert shape is not None
    return [raw for raw, _ in taken(shape, [line])] == [line]


numbers = st.from_regex(r"-?\d{1,18}(\.\d{1,18})?([eE][-+]?\d{1,3})?", fullmatch=True)
stamps = st.from_regex(
    r"(20\d\d|\d{4})-[01]\d-[0-3]\d [0-2]\d:[0-6]\d:[0-6]\d,\d{3} ", fullmatch=True
)
lines_of = st.builds(
    "{}run {} of {} at{}{}  says {}%{}".format,
    st.one_of(stamps, st.just("")),
    st.integers(0, 10**19).map(str),
    numbers,
    st.sampled_from([" ", "  ", "     ", "            "]),
    st.integers(0, 10**9).flatmap(lambda n: st.sampled_from([str(n), f"{n:,}"])),
    st.decimals(0, 100, places=2).map(str),
    st.sampled_from(["", "\r", " "]),
).map(str.encode)


@settings(max_examples=600 if THOROUGH else 30)
@given(learned=lines_of, lines=st.lists(lines_of, min_size=1, max_size=20))
def test_a_line_that_fits_is_read_to_the_bit(learned: bytes, lines: list[bytes]) -> None:
    shape = shape_of(learned)
    if shape is None:
        return
    for raw, row in taken(shape, [learned, *lines]):
        assert_same(row, read(raw), raw)


@pytest.mark.parametrize("learned", ["-1.25", "-0.1234567890123456", "-3e-05", "-12"])
@pytest.mark.parametrize("fixed", [False, True], ids=["walked", "laid"])
def test_negative_numbers_are_learned_and_keep_their_sign(learned: str, *, fixed: bool) -> None:
    """However long others of the same lines are."""
    line, read_it = f"loss {learned} of run", partial(read_loss, re.compile(rb"loss (\S+) of run"))
    shape = shape_of(line.encode(), read_it)
    assert shape is not None
    others = [re.sub(r"[1-9]", digit, line).encode() for digit in "12345678"]
    long = line.replace(".", ".3219876543210987").encode()
    lines = [line.encode(), *others, long]
    if fixed:
        block = LineBlock(1, line.encode() + b"\n")
        found = match_shape(block, shape, np.arange(len(block)) < 1)
        shape = narrow_to_line(found, 0) if isinstance(found, WalkedMatch) else shape
    rows = list(taken(shape, lines))
    assert {raw for raw, _ in rows} >= {line.encode(), *others}
    for raw, row in rows:
        assert row["loss"] == float(raw.split()[1])


@pytest.mark.parametrize("whole", range(1, 10))
@pytest.mark.parametrize("behind", ["", "e-05", "e+07"])
def test_numbers_of_all_widths_are_read_exactly_where_lines_are_laid_out_alike(
    whole: int, behind: str
) -> None:
    draw = random.Random(whole)  # noqa: S311 - numbers to read
    read_it = partial(read_loss, re.compile(rb"run 3.14: loss (\d+\.\d+(?:e[-+]\d\d)?) of 2"))
    for decimals in range(1, 12):
        numbers = [
            f"{draw.randrange(10**whole):0{whole}}.{draw.randrange(10**decimals):0{decimals}}"
            for _ in range(20)
        ]
        lines = [f"run 3.14: loss {number}{behind} of 2".encode() for number in numbers]
        shape = shape_of(lines[0], read_it)
        assert shape is not None
        found = match_shape(LineBlock(1, lines[0] + b"\n"), shape, np.ones(1, bool))
        fixed = narrow_to_line(found, 0) if isinstance(found, WalkedMatch) else shape
        rows = list(taken(fixed, lines))
        assert [raw for raw, _ in rows] == lines
        for raw, row in rows:
            assert repr(row["loss"]) == repr(float(raw.split()[3]))


def read_loss(pattern: re.Pattern[bytes], raw: bytes) -> LineReading:
    match = pattern.fullmatch(raw)
    if match is None:
        return None
    row = {"logged_at": None, "step": 1, "loss": float(match[1]), "says": {}}
    return StepReading(FORM, frozenset({"loss"}), row)


@settings(max_examples=400 if THOROUGH else 20)
@given(learned=lines_of, lines=st.lists(lines_of, max_size=20))
def test_lines_laid_out_alike_are_read_as_by_their_shape(
    learned: bytes, lines: list[bytes]
) -> None:
    shape = shape_of(learned)
    if shape is None or shape.is_fixed:
        return
    lines = [learned, *lines, *(re.sub(rb"(?<=[ .])[1-8]", b"9", line) for line in lines)]
    block = LineBlock(1, b"".join(line + b"\n" for line in lines))
    found = match_shape(block, shape, np.ones(len(block), bool))
    assert isinstance(found, WalkedMatch)
    by_shape = dict(taken(shape, lines))
    for place, line in enumerate(found.lines.tolist()):
        fixed = narrow_to_line(found, place)
        assert fixed.is_fixed
        by_layout = dict(taken(fixed, lines))
        assert lines[line] in by_layout or lines[line] not in by_shape
        for raw, row in by_layout.items():
            assert repr(row) == repr(by_shape[raw])


def test_a_layout_takes_other_digits_and_no_other_byte() -> None:
    """Also where it is compared many lines at once, of which some fit and some do not."""
    read_it = partial(read_loss, re.compile(rb"loss (\d+\.\d\d) of v2"))
    line = b"loss 123.45 of v2"
    shape = shape_of(line, read_it)
    assert shape is not None
    walked = match_shape(LineBlock(1, line + b"\n"), shape, np.ones(1, bool))
    layout = narrow_to_line(walked, 0) if isinstance(walked, WalkedMatch) else shape
    places = product(range(len(line)), set(range(256)) - set(b"\r\n"))
    changed = [line[:at] + bytes([byte]) + line[at + 1 :] for at, byte in places]
    block = LineBlock(1, b"".join(one + b"\n" for one in (*changed, *[line] * 10_000)))
    taken_lines = set(match_shape(block, layout, np.ones(len(block), bool)).lines.tolist())
    read_lines = {at for at, one in enumerate(changed) if read_it(one) is not None}
    assert taken_lines == read_lines | set(range(len(changed), len(block)))
    assert len(read_lines) == 5 * 10 + (len(line) - 5)


@pytest.mark.parametrize(
    "line",
    [
        b"2026-11-20 15:34:16,731 run 123456 of 0.000001 at 99  says 99.99%",
        b"2027-02-28 00:00:00,000 run 0 of 7.25 at    1  says 0.00%",
        b"2028-02-29 23:59:59,999 run 8 of 123456.5 at 123456789  says 100.00%",
        b"2026-11-20 15:34:16,731 run 7 of 12.5 at 1234  says 3.10%\r",
        b"2026-11-20 15:34:16,731 run 7 of 1.2345678901234567 at 1234  says 3.10%",
    ],
)
def test_numbers_dates_and_padding_may_be_others(line: bytes) -> None:
    assert fits(line)


@pytest.mark.parametrize("blanks", [8, 9, 10, 30])
def test_a_line_fits_its_own_shape_however_wide_it_is_padded(blanks: int) -> None:
    line = EXAMPLE.replace(b" at ", b" at" + b" " * blanks)
    assert fits(line, learned=line)
    assert fits(line.replace(b" 1234", b"12345"), learned=line)


def test_each_number_of_a_table_may_be_padded_by_as_many_blanks_as_it_likes() -> None:
    pattern = re.compile(rb"row +(\d+) +(\d+) +(\d+\.\d+)")

    def cells(raw: bytes) -> LineReading:
        match = pattern.fullmatch(raw)
        if match is None:
            return None
        row = {"logged_at": None, "step": int(match[1]), "rate": int(match[2]), "says": {}}
        return StepReading(FORM, frozenset({"step"}), {**row, "loss": float(match[3])})

    shape = shape_of(b"row    7   12  3.5", cells)
    assert shape is not None
    pads = list(product((1, 2, 5), repeat=3))
    lines = [b"row%*d%*d%*.1f" % (a + 2, 61, b + 4, 4802, c + 3, 7.5) for a, b, c in pads]
    found = [(raw, row["step"], row["rate"], row["loss"]) for raw, row in taken(shape, lines)]
    assert found == [(line, 61, 4802, 7.5) for line in lines]


@pytest.mark.parametrize("form", ["repr", "between two floats", "many digits"])
def test_long_numbers_are_read_to_the_bit(form: str) -> None:
    draw = random.Random(form)  # noqa: S311 - no secret
    texts = [text for text in (long_number(form, draw) for _ in range(5_000)) if len(text) < 30]
    lines = [EXAMPLE.replace(b"12.5", text.encode()) for text in texts]
    shape = shape_of(EXAMPLE)
    assert shape is not None
    read_ = [(raw, row["loss"]) for raw, row in taken(shape, lines)]
    assert len(read_) > 1_000
    told = dict(zip(lines, texts, strict=True))
    assert [(told[raw], loss) for raw, loss in read_ if repr(loss) != repr(float(told[raw]))] == []


def long_number(form: str, draw: random.Random) -> str:
    if form == "repr":
        return f"{draw.uniform(0, 10.0 ** draw.randrange(-3, 9)):.17g}"
    if form == "many digits":
        return f"{draw.randrange(10 ** draw.randrange(1, 15))}.{draw.randrange(10**20)}"
    half = Decimal(2 * draw.randrange(2**52) + 2**53 + 1) / 2 ** draw.randrange(1, 16)
    return f"{half:f}" + draw.choice(("", "0", "1"))


def test_a_format_may_refuse_zeros_before_a_number() -> None:
    """JSON knows no 007."""

    def strict(raw: bytes) -> LineReading:
        return None if re.search(rb"run 0\d| of 0\d", raw) else read(raw)

    shape = shape_of(EXAMPLE, strict)
    assert shape is not None
    lines = [EXAMPLE.replace(b"run 7 of 12.", some) for some in ZEROS]
    assert [raw for raw, _ in taken(shape, lines)] == lines[:3]


def test_a_format_may_refuse_the_number_0() -> None:
    def strict(raw: bytes) -> LineReading:
        return None if re.search(rb"run 0", raw) else read(raw)

    for seed in SEEDS:  # random lines find it, mostly
        shape = learn_shape(EXAMPLE, strict, random.Random(seed))  # noqa: S311
        assert shape is not None
        lines = [EXAMPLE.replace(b"run 7", b"run %d" % number) for number in (0, 7, 10)]
        assert [raw for raw, _ in taken(shape, lines)] == lines[1:]


@pytest.mark.parametrize("odd", ["ä".encode(), b"\xe4", b"\0"])
def test_a_line_with_other_than_plain_characters_has_no_shape(odd: bytes) -> None:
    """Its text is cleaned first, and then is other bytes than the line."""

    def cleaned(raw: bytes) -> LineReading:
        return read(raw.replace(odd, b""))

    assert shape_of(EXAMPLE, cleaned) is not None
    assert shape_of(EXAMPLE.replace(b"says", odd + b"says"), cleaned) is None


@pytest.mark.parametrize("column", ["step", "loss", "rate"])
def test_a_number_may_mean_something_else_where_it_is_0(column: str) -> None:
    """A count of 0.0 tokens is none, step 0 another event: that is not left to random lines."""

    def strict(raw: bytes) -> LineReading:
        found = read(raw)
        if not isinstance(found, StepReading) or found.row[column] != 0:
            return found
        return StepReading(FORM, found.printed, {**found.row, column: None})

    start, *others = re.split(rb"(?<= run )7 of 12.5 at 1234(?=  says)", EXAMPLE)
    said = (b"7 of 12.5 at 1234", b"0 of 12.5 at 1234", b"7 of 0.0 at 1234", b"7 of 12.5 at 0")
    lines = [start + one + b"".join(others) for one in (*said, b"10 of 10.0 at 10")]
    away = lines[1 + ["step", "loss", "rate"].index(column)]
    for seed in SEEDS:
        shape = learn_shape(EXAMPLE, strict, random.Random(seed))  # noqa: S311
        assert shape is not None
        assert [raw for raw, _ in taken(shape, lines)] == [raw for raw in lines if raw != away]
    block = LineBlock(1, b"".join(line + b"\n" for line in lines))
    found = match_shape(block, shape, np.ones(len(block), bool))
    assert isinstance(found, WalkedMatch)
    for place, line in enumerate(found.lines.tolist()):
        assert bool(list(taken(narrow_to_line(found, place), [lines[line]]))) == (
            lines[line] != away
        )


def test_a_number_may_mean_something_else_where_it_alone_is_0() -> None:
    def strict(raw: bytes) -> LineReading:
        found = read(raw)
        if not isinstance(found, StepReading) or found.row["step"] != 0 or found.row["loss"] == 0:
            return found
        return StepReading(FORM, found.printed, {**found.row, "step": None})

    for seed in SEEDS:
        shape = learn_shape(EXAMPLE, strict, random.Random(seed))  # noqa: S311
        assert shape is None or list(taken(shape, [EXAMPLE.replace(b"run 7", b"run 0")])) == []


def test_two_numbers_may_mean_something_else_where_they_are_one() -> None:
    """A tag of torchrun that comes twice is one; two tags are the ranks of two launchers."""

    def tagged(raw: bytes) -> LineReading:
        found = re.fullmatch(rb"\[rank(\d{1,9})\]:\[rank(\d{1,9})\]: step (\d+)", raw)
        if found is None:
            return None
        rank = ":".join(dict.fromkeys(number.decode() for number in found.groups()[:2]))
        row = {"rank": rank, "logged_at": None, "step": int(found[3]), "says": {}}
        return StepReading(FORM, frozenset(), row)

    for seed in SEEDS:
        shape = learn_shape(b"[rank3]:[rank1]: step 7", tagged, random.Random(seed))  # noqa: S311
        assert shape is None or list(taken(shape, [b"[rank1]:[rank1]: step 8"])) == []


def test_a_number_may_mean_something_else_where_it_equals_a_fixed_one() -> None:
    """As `[rank4]:[rank7]:`, of which a shape may take the first rank for text."""

    def tagged(raw: bytes) -> LineReading:
        found = re.fullmatch(rb"\[rank4\]:\[rank(\d{1,9})\]: step (\d+)", raw)
        if found is None:
            return None
        rank = "4" if found[1] == b"4" else f"4:{found[1].decode()}"
        row = {"rank": rank, "logged_at": None, "step": int(found[2]), "says": {}}
        return StepReading(FORM, frozenset(), row)

    for seed in SEEDS:
        shape = learn_shape(b"[rank4]:[rank7]: step 7", tagged, random.Random(seed))  # noqa: S311
        assert shape is None or list(taken(shape, [b"[rank4]:[rank4]: step 8"])) == []


ZEROS = (b"run 0 of 0.", b"run 10 of 10.", b"run 7 of 1.", b"run 07 of 1.", b"run 7 of 01.")


@pytest.mark.parametrize("date", [b"2026-12-31", b"2024-02-29", b"2026-01-01", b"2026-03-31"])
def test_a_line_of_any_day_becomes_a_shape(date: bytes) -> None:
    """The month before one of 31 days has fewer, so that a changed month may be no date."""
    assert fits(EXAMPLE, EXAMPLE.replace(b"2026-11-20", date))


@pytest.mark.parametrize(
    ("stamp", "fitting"),
    [
        (b"20280229 23:59:59", True),
        (b"20270101 00:00:00", True),
        (b"20261131 15:34:16", False),
        (b"20261120 24:34:16", False),
        (b"09991120 15:34:16", False),
        (b"2026-11-20 15:34:16,731", False),
    ],
)
def test_a_date_may_be_one_number(stamp: bytes, *, fitting: bool) -> None:
    compact = EXAMPLE.replace(b"2026-11-20 15:34:16,731", b"20261120 15:34:16")
    line = EXAMPLE.replace(b"2026-11-20 15:34:16,731", stamp)
    assert fits(line, learned=compact) == fitting


@pytest.mark.parametrize(
    "head", ["[{0}][rank-{1}/8][INFO ] ", "[{0}][a/b][m ][ip-1.0.0.7][rank-{1}/16][INFO]     "]
)
def test_lines_with_the_head_of_primus_are_read_many_at_once(
    head: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As each is; with other heads between them, days that there are not, and ranks."""
    path, alone, line = tmp_path / "run.log", [0], LineParser.read
    write_log(path, BY_NAME["torchtitan"], 300_000)
    lines = [_of_primus(text, head) for text in path.read_text().splitlines()]
    lines[7::90] = [text.replace("[2026", "[20260231", 1) for text in lines[7::90]]
    path.write_text("".join(f"{text}\n" for text in lines))
    expected = read_log_tables(path, use_fast_path=False)

    def counted(*given: Any, **named: Any) -> None:
        alone[0] += 1
        line(*given, **named)

    monkeypatch.setattr(LineParser, "read", counted)
    found = read_log_tables(path)
    assert all(found[table].equals(expected[table]) for table in expected)
    assert alone[0] < len(lines) / 5
    steps = found["steps"]
    assert steps["rank"].null_count() + steps["logged_at"].null_count() < len(steps) / 20


def _of_primus(text: str, head: str) -> str:
    found = re.match(r"\[rank(\d+)\]:\[titan\] ([\d-]{10}) ([\d:]{8}),\d{3} - root - INFO - ", text)
    if found is None:
        return text
    at = head.format(f"{found[2].replace('-', '')} {found[3]}", found[1])
    return f"{at}[----------metrics.py:430] : {text[found.end() :]}"


@pytest.mark.parametrize(
    "line",
    [
        b"2026-02-30 15:34:16,731 run 7 of 12.5 at 1234  says 3.10%",
        b"2026-11-20 24:34:16,731 run 7 of 12.5 at 1234  says 3.10%",
        b"9999-11-20 15:34:16,731 run 7 of 12.5 at 1234  says 3.10%",
        b"2026-11-20 15:34:16,731 run 7 of 1.2345678901234567890123456 at 1  says 3.10%",
        b"2026-11-20 15:34:16,731 run 12345678901234567890 of 12.5 at 1234  says 3.10%",
        b"2026-11-20 15:34:16,731 run 7 of 12.5 at 1234  says 3.10% ",
        b"2026-11-20 15:34:16,731 run 7 of -12.5 at 1234  says 3.10%",
        b"2026-11-20 15:34:16,731 run 7 of 12.5 at 1234\tsays 3.10%",
        b"[2026-11-20 15:34:16,731 run 7 of 12.5 at 1234  says 3.10%",
    ],
)
def test_what_is_not_sure_is_left_to_the_regex(line: bytes) -> None:
    assert not fits(line)


def test_a_lone_0_in_a_text_may_have_other_digits_behind_it() -> None:
    line = EXAMPLE.replace(b"3.10", b"0")
    assert fits(line.replace(b" 0%", b" 07%"), learned=line)


@pytest.mark.parametrize("columns", [("step", "rate"), ("step", "loss"), ("step", "loss", "rate")])
def test_numbers_may_mean_something_else_where_all_are_0(columns: tuple[str, ...]) -> None:
    """As in `step=0, skipped=0`, with which a run begins; each of them may be 0 elsewhere."""

    def strict(raw: bytes) -> LineReading:
        found = read(raw)
        if not isinstance(found, StepReading) or any(found.row[column] for column in columns):
            return found
        return StepReading(FORM, found.printed, {**found.row, "step": None})

    line = "2026-11-20 15:34:16,731 run {step} of {loss} at {rate}  says 3.10%"
    tried = [
        line.format(step=step, loss=loss, rate=rate).encode()
        for step, loss, rate in product((7, 0), (12.5, 0.0), (1234, 0))
    ]
    for seed in SEEDS:
        shape = learn_shape(EXAMPLE, strict, random.Random(seed))  # noqa: S311
        assert shape is not None
        rows = dict(taken(shape, tried))
        assert {tried[0], tried[1], tried[2], tried[3]} <= rows.keys()  # the step is not 0
        for raw, row in rows.items():
            assert_same(row, strict(raw), raw)


@pytest.mark.parametrize(
    ("spelled", "away"),
    [
        (b"run 5 of 7.25", b"run 5 of 7.25 "),
        (b"5 of 7.", b"run 35 of 7.25 "),
        (b"run 5", b"run 58 of 7.25 "),
        (b"run 0 of 0", b"run 0 of 0.0 "),
    ],
)
def test_numbers_that_a_pattern_spells_out_are_tried(spelled: bytes, away: bytes) -> None:
    """With all others as they are: that is not left to random lines."""

    def strict(raw: bytes) -> LineReading:
        found = read(raw)
        if not isinstance(found, StepReading) or spelled not in raw:
            return found
        return StepReading(FORM, found.printed, {**found.row, "step": None})

    line = EXAMPLE.replace(b"run 7 of 12.5 ", away)
    refused = 0
    for seed in SEEDS:
        draw = random.Random(seed)  # noqa: S311 - lines to try
        assert learn_shape(EXAMPLE, read, draw, [spelled, b"step 5"]) is not None
        shape = learn_shape(EXAMPLE, strict, draw, [spelled])
        assert shape is None or list(taken(shape, [line])) == []
        refused += shape is None
    # of what may be 0 only that is left to the regex
    assert refused > 2 / 3 * len(SEEDS) or b"0" in spelled


@pytest.mark.parametrize("wide", range(1, 25))
@pytest.mark.parametrize("part", ["step", "decimals"])
def test_a_number_may_mean_something_else_where_it_is_so_wide(part: str, wide: int) -> None:
    """XTuner v1's attention ratio is one where a count has eight decimals alone."""

    def strict(raw: bytes) -> LineReading:
        found = read(raw)
        said = re.search(rb"run (?P<step>\d+) of \d+\.(?P<decimals>\d+) ", raw)
        if not isinstance(found, StepReading) or said is None or len(said[part]) != wide:
            return found
        return StepReading(FORM, found.printed, {**found.row, "rate": None})

    def line(step: int, decimals: int) -> bytes:
        return b"run %s of 12.%s at 1234  says 3.10%%" % (b"7" * step, b"3" * decimals)

    learned = line(4, 5)
    shape = shape_of(learned, strict)
    assert shape is not None
    lines = [line(step, 5) for step in range(1, 17)] + [line(4, decs) for decs in range(1, 25)]
    rows = dict(taken(shape, lines))
    assert len(rows) > 1 or wide == len({"step": "7777", "decimals": "33333"}[part])
    for raw, row in rows.items():
        assert_same(row, strict(raw), raw)


@pytest.mark.parametrize("form", BUILT_IN_FORMATS, ids=lambda form: form.name)
def test_lines_of_which_two_numbers_are_0_are_read_as_by_their_regexes(form: LogFormat) -> None:
    """Whatever the others are: of each example, and where all of its numbers are others."""
    reader, draw = context_free(form), random.Random(3)  # noqa: S311 - lines to try
    examples = [line.example for line in (*form.steps, *form.events)]
    for example in (line.encode() for text in examples for line in text.splitlines()):
        no_zero = re.sub(rb"(?<=[= ])0(?=[, ])", b"3", example)
        for learned_from in dict.fromkeys((example, no_zero)):
            shape = shape_of(learned_from, reader.read)
            if shape is None:
                continue
            runs = [piece.before for piece in shape.pieces if piece.before is not None]
            lines = [
                make_line(shape, draw, zeros_at({one, other}, draw))
                for at, one in enumerate(runs)
                for other in runs[at:]
            ]
            block = LineBlock(1, b"".join(line + b"\n" for line in lines))
            rows = decode_rows(match_shape(block, shape, np.ones(len(block), bool)))
            for index, place in enumerate(rows.lines.tolist()):
                now = reader.read(lines[place])
                assert is_same_reading(shape, rows, index, now), (learned_from, lines[place])


def zeros_at(runs: Collection[int | None], draw: random.Random) -> ChooseDigits:
    """Zeros for these runs of digits; others begin with none."""

    def digits(piece: ShapePiece, least: int, most: int) -> str:
        width = min(most, max(least, 2))
        zero = piece.before in runs
        return "0" * least if zero else str(draw.randrange(10 ** (width - 1), 10**width))

    return digits


@pytest.mark.parametrize("form", BUILT_IN_FORMATS, ids=lambda form: form.name)
def test_numbers_are_tried_together_as_each_by_itself(
    form: LogFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changes that are made to a line at once tell of each number what it alone tells.

    Of each second line; `make thorough`: of each.
    """
    examples = [line.example for line in (*form.steps, *form.events)]
    lines = [line.encode() for example in examples for line in example.splitlines()]
    lines = lines[:: 1 if THOROUGH else 2]
    reader = context_free(form)
    together = [shape_of(line, reader.read) for line in lines]
    holding: Callable[[_Learner, Sequence[_Change]], set[ShapeNumber]] = _Learner._holding

    def each(self: _Learner, changes: Sequence[_Change]) -> set[ShapeNumber]:
        return set[ShapeNumber]().union(*(holding(self, [change]) for change in changes))

    monkeypatch.setattr(_Learner, "_holding", each)
    for line, shape in zip(lines, together, strict=True):
        assert told(shape_of(line, reader.read)) == told(shape), line


def told(shape: LineShape | None) -> Any:
    """All that a shape is, to be compared."""
    return shape and {field.name: getattr(shape, field.name) for field in fields(shape)}


@pytest.mark.parametrize(("kept", "fitting"), [(rb" +(\d+)", 3), (rb"( +\d+)", 1)])
def test_blanks_before_a_number_vary_where_no_text_keeps_them(kept: bytes, fitting: int) -> None:
    def read_it(raw: bytes) -> LineReading:
        found = re.fullmatch(rb"step (\d+) took" + kept, raw)
        if found is None:
            return None
        row = {"logged_at": None, "step": int(found[1]), "extra": found[2].decode(), "says": {}}
        return StepReading(FORM, frozenset(), row)

    lines = [b"step 8 took%s3" % (b" " * blanks) for blanks in (1, 2, 5)]
    shape = shape_of(lines[0], read_it)
    assert shape is not None
    rows = list(taken(shape, lines))
    assert [raw for raw, _ in rows] == lines[:fitting]
    assert [read_it(raw) for raw, _ in rows] == [
        StepReading(FORM, frozenset(), row) for _, row in rows
    ]


def test_numbers_that_bound_each_other_are_not_read_otherwise() -> None:
    """A line where the last step is at most twice the step: of both, changed at once, it is."""

    def bounded(raw: bytes) -> LineReading:
        found = re.fullmatch(rb"step (\d+) of (\d+)", raw)
        if found is None or int(found[2]) > 2 * int(found[1]):
            return None
        row = {"logged_at": None, "step": int(found[1]), "epoch": int(found[2]), "says": {}}
        return StepReading(FORM, frozenset(), row)

    lines = [b"step %d of %d" % (of, many) for of in (1, 7, 70, 700) for many in (5, 99, 1111)]
    for seed in SEEDS:
        shape = learn_shape(b"step 70 of 80", bounded, random.Random(seed))  # noqa: S311
        read_of = [] if shape is None else list(taken(shape, lines))
        assert all(isinstance(bounded(raw), StepReading) for raw, _ in read_of)


def test_a_number_whose_value_tells_more_is_constant() -> None:
    """A format may leave out a loss that cannot be: then digits do not tell what a row says."""

    def wary(raw: bytes) -> LineReading:
        found = read(raw)
        if isinstance(found, StepReading) and found.row["loss"] > 15:
            return found._replace(row=found.row | {"loss": None})
        return found

    shape = shape_of(EXAMPLE, wary)
    lines = [EXAMPLE.replace(b"12.5", loss) for loss in (b"12.5", b"11.5", b"15.5")]
    assert shape is None or [raw for raw, _ in taken(shape, lines)] == [EXAMPLE]


def test_digits_that_make_no_stamp_may_be_one_in_the_next_line() -> None:
    """A thirteenth month gives no stamp; with a month of the year the same line has one."""

    def within(raw: bytes) -> LineReading:
        found = re.search(rb"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) step (\d+)", raw)
        if found is None:
            return None
        row = {"logged_at": parse_stamp(found[1].decode()), "step": int(found[2]), "says": {}}
        return StepReading(FORM, frozenset(), row)

    shape = shape_of(b"2026-13-20 15:34:16 step 7", within)
    rows = [] if shape is None else list(taken(shape, [b"2026-12-20 15:34:16 step 8"]))
    assert all(row["logged_at"] == datetime(2026, 12, 20, 15, 34, 16) for _, row in rows)


def test_a_number_that_is_none_when_it_is_too_long_is_not_read_so() -> None:
    """A rank has at most nine digits; a longer one is no rank, but the line is still a step."""

    def ranked(raw: bytes) -> LineReading:
        found = re.fullmatch(rb"(?:\[rank(\d{1,9})\])?.*: step (\d+)", raw)
        if found is None:
            return None
        rank = None if found[1] is None else found[1].decode()
        row = {"rank": rank, "logged_at": None, "step": int(found[2]), "says": {}}
        return StepReading(FORM, frozenset(), row)

    for seed in SEEDS:  # random lines find it, mostly
        shape = learn_shape(b"[rank3]: step 7", ranked, random.Random(seed))  # noqa: S311
        assert shape is not None
        assert list(taken(shape, [b"[rank%s]: step 8" % (b"1" * 12)])) == []
        assert len(list(taken(shape, [b"[rank%s]: step 8" % (b"1" * 9)]))) == 1


@settings(max_examples=50)
@given(
    data=st.lists(st.binary(max_size=80), min_size=1, max_size=40),
    draw=st.randoms(use_true_random=False),
)
def test_of_each_place_it_is_known_how_many_digits_stand_there(
    data: list[bytes], draw: random.Random
) -> None:
    """Of few lines as of many: up to SEEN - 1 exactly, of more that they are as many at least."""
    digits = [b"".join(b"%d" % byte for byte in part) for part in data]
    text = b"\n".join(draw.choice([*data, *digits, b"x"]) for _ in range(60)) + b"\n"
    block = LineBlock(1, text)
    every = np.arange(BLOCK_MARGIN_BYTES, BLOCK_MARGIN_BYTES + len(text))
    for places in (every, every[:1], np.array(draw.sample(every.tolist(), 2))):
        found = _width(block, places).tolist()
        assert len(found) == len(places)
        for at, width in zip((places - BLOCK_MARGIN_BYTES).tolist(), found, strict=True):
            true = len(re.compile(rb"[0-9]*").match(text, at)[0])  # type: ignore[index]
            assert width == true or (width >= DIGIT_WINDOW_BYTES <= true)


@pytest.mark.parametrize(
    ("most", "kept"), [(fixed_layouts.MAX_SAMPLE_LAYOUTS, False), (1_000, True)]
)
def test_lines_of_many_layouts_get_no_shape_of_fixed_widths(
    most: int, monkeypatch: pytest.MonkeyPatch, *, kept: bool
) -> None:
    """As repr() prints floats, each of them would take few lines."""
    monkeypatch.setattr(fixed_layouts, "MAX_SAMPLE_LAYOUTS", most)
    draw = random.Random(5)  # noqa: S311 - numbers to read
    widths = [16] * 30 + list(range(1, 18))
    drawn = [f"{draw.random():.{draw.choice(widths)}f}" for _ in range(24_000)]
    texts = (f"run {10 ** draw.randint(0, 8)} of {number} at 12" for number in drawn)
    lines = [f"{text}  says 3.10%".encode() for text in texts]
    known, shape = LayoutCache(), shape_of(lines[0])
    assert shape is not None
    assert isinstance(fitted(known, shape, lines), JoinedMatch if kept else WalkedMatch)
    assert bool(known._known[shape]) == kept


def test_lines_are_read_alike_however_they_were_found() -> None:
    """Walked through, or compared with layouts: of this block, or of the one before."""
    draw = random.Random(6)  # noqa: S311 - numbers to read
    lines = [
        f"2026-11-20 15:34:16,731 run {draw.choice((1, 99, 10**6))} of {number(draw)} "
        f"at {draw.choice((1234, f'{draw.randrange(10**7):7}'))}  says {draw.randrange(1000) / 10}%"
        for _ in range(9_000)
    ]
    every, known, shape = [line.encode() for line in lines], LayoutCache(), shape_of(EXAMPLE)
    assert shape is not None
    expected = {raw: repr(row) for raw, row in taken(shape, every)}
    assert len(every) // 2 < len(expected) < len(every)
    for some in (every, every, every[::-1], [*every[:1_000], EXAMPLE]):
        found = fitted(known, shape, some)
        assert isinstance(found, JoinedMatch)
        assert len(found.parts) > 2
        rows = list(said(found, some))
        assert len(rows) == sum(raw in expected or raw == EXAMPLE for raw in some)
        assert all(repr(row) == expected.get(raw, repr(row)) for raw, row in rows)


@pytest.mark.parametrize("behind", [b"", b".5", b".123456789012345"])
def test_a_number_may_be_wider_in_lines_that_were_found_in_another_way(
    behind: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of eight digits at most are one word, which may be the first of a line, others two."""
    monkeypatch.setattr(fixed_layouts, "MIN_LAYOUT_LINES", 20)

    def counted(raw: bytes) -> LineReading:
        found = re.fullmatch(rb"(\d+) of (\d+(?:\.\d+)?)", raw)
        if found is None:
            return None
        row = {"logged_at": None, "step": int(found[1]), "loss": float(found[2]), "says": {}}
        return StepReading(FORM, frozenset(), row)

    shape = shape_of(b"7 of 7" + behind, counted)
    assert shape is not None
    draw = random.Random(behind)  # noqa: S311 - numbers to read
    for laid, walked in product(WIDTHS, repeat=2):
        widths = [*[laid] * 100, *[walked] * 3]
        numbers = [draw.randrange(10 ** (width - 1), 10**width) for width in widths]
        lines = [b"%d of %d%s" % (number, number, behind) for number in numbers]
        found = fitted(LayoutCache(), shape, lines)
        assert isinstance(found, JoinedMatch) == (laid != walked)
        rows = list(said(found, lines))
        assert len(rows) == len(lines) or b"." in behind  # too long to be exact
        for raw, row in rows:
            assert_same(row, counted(raw), raw)


@pytest.mark.parametrize("form", BUILT_IN_FORMATS, ids=lambda form: form.name)
def test_lines_of_all_widths_in_one_block_are_read_as_by_their_regexes(
    form: LogFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most are laid out alike; of some others the numbers are wider or narrower."""
    monkeypatch.setattr(fixed_layouts, "MIN_LAYOUT_LINES", 20)
    draw, reader = random.Random(form.name), context_free(form)  # noqa: S311 - lines to read
    examples = [line.example for line in (*form.steps, *form.events)]
    lines = [line.encode() for example in examples for line in example.splitlines()]
    shapes = [shape for line in lines if (shape := shape_of(line, reader.read)) is not None]
    taken_lines = 0
    few = 60 if THOROUGH else 10
    for shape in shapes * (1 + few // len(shapes)):
        usual = {run: draw.randint(1, draw.choice((4, 9, 18))) for run in shape.widths}
        other = {run: draw.choice((width, draw.randint(1, 18))) for run, width in usual.items()}
        kinds = [usual] * 30 + [other] * draw.choice((1, 3, 25))
        each = (of_widths(widths, draw) for widths in draw.sample(kinds, len(kinds)))
        lines = [make_line(shape, draw, digits, pads=(0,)) for digits in each]
        rows = decode_rows(fitted(LayoutCache(), shape, lines))
        taken_lines += len(rows.lines)
        for index, line in enumerate(rows.lines):
            found = reader.read(lines[line])
            assert is_same_reading(shape, rows, index, found), lines[line]
    assert taken_lines > few * 25


@pytest.mark.parametrize("tried", [True, False], ids=["tried", "untried"])
def test_digits_before_a_month_are_none_of_the_year(
    monkeypatch: pytest.MonkeyPatch, *, tried: bool
) -> None:
    """Of `2026/811/20` the regex reads the last two digits: a stamp without year."""
    if not tried:
        monkeypatch.setattr("fairmfu.ingest.vector.shape_learning.is_trustworthy", lambda *_: True)
    xtuner = next(form for form in BUILT_IN_FORMATS if form.name == "xtuner")
    reader, example = context_free(xtuner), xtuner.steps[0].example
    lines = [example.replace("/11/", f"/{digit}11/").encode() for digit in range(10)]
    shape = shape_of(lines[0], reader.read)
    assert (shape is None) == tried
    rows = [*taken(shape, lines)] if shape else []
    assert bool(rows) != tried
    for raw, row in rows:
        assert_same(row, reader.read(raw), raw)


def of_widths(widths: dict[int, int], draw: random.Random) -> ChooseDigits:
    """Numbers that are as wide, if they may be."""

    def digits(piece: ShapePiece, least: int, most: int) -> str:
        assert piece.before is not None
        if is_exponent(piece):
            return str(draw.randrange(20)).zfill(least)
        width = max(least, min(most, widths[piece.before]))
        return str(draw.randrange(10 ** (width - 1), 10**width))

    return digits


def number(draw: random.Random) -> str:
    """Some are laid out as most, some have an exponent, or more digits than are exact."""
    text = f"{draw.random():.5f}"
    return text + draw.choice(("", "", "", "e-05", "0" * draw.randrange(20)))


def assert_same(row: dict[str, Any], found: LineReading, raw: bytes) -> None:
    """The row of a line is that of its reading, to the bit."""
    assert isinstance(found, StepReading), raw
    assert row.keys() == found.row.keys(), raw
    assert all(is_identical(row[name], found.row[name]) for name in row), raw


def fitted(known: LayoutCache, shape: LineShape, lines: list[bytes]) -> ShapeMatch:
    block = LineBlock(1, b"".join(line + b"\n" for line in lines))
    return known.fit(block, shape, np.ones(len(block), bool))


def test_lines_are_learned_once_for_all_files() -> None:
    shapes = ShapeCache()
    learned = [shapes.see(EXAMPLE, read) for _ in range(100)]
    assert sum(shape is not None for shape in learned) >= 1
    assert len(shapes.known) < 30


@pytest.mark.parametrize(
    ("often", "become"),
    [(shape_cache.MIN_EVENT_REPEATS - 1, False), (shape_cache.MIN_EVENT_REPEATS, True)],
)
def test_events_become_a_shape_where_a_block_has_many(often: int, *, become: bool) -> None:
    shapes = ShapeCache()
    for _ in range(3):
        shapes.begin_block()
        for _ in range(often):
            shapes.see(EXAMPLE, read, is_event=True)
    assert bool(shapes.known) == become


def test_events_that_become_no_shape_are_not_tried_in_each_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shapes, tried = ShapeCache(), []
    monkeypatch.setattr(shape_cache, "learn_shape", lambda *_: tried.append(1))
    monkeypatch.setattr(shape_cache, "FREE_LEARNING_ATTEMPTS", 1_000)
    for _ in range(20):
        shapes.begin_block()
        for _ in range(shape_cache.MIN_EVENT_REPEATS + 1):
            shapes.see(EXAMPLE, read, is_event=True)
    assert len(tried) == shape_cache.MAX_ATTEMPTS_PER_SKELETON + 1


@pytest.mark.parametrize("name", BY_NAME)
def test_first_lines_are_read_before_others_as_line_by_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a large file, of which no shape is known yet."""
    path = tmp_path / "run.log"
    write_log(path, BY_NAME[name], 150_000)
    expected = read_log_tables(path, use_fast_path=False)
    monkeypatch.setattr(block_plan, "MIN_LARGE_BLOCK_BYTES", 0)
    line_matcher.cache_clear()
    found = read_log_tables(path)
    assert all(found[table].equals(expected[table]) for table in expected)


@pytest.mark.parametrize(
    ("name", "share"),
    [("torchtitan", 0.9), ("xtuner", 0.9), ("megatron-deepspeed", 0.8), ("deepspeed", 0.4)],
)
def test_most_lines_of_a_log_are_read_many_at_once(
    name: str, share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else all tests that hold both readings equal would say little."""
    path = tmp_path / "run.log"
    write_log(path, BY_NAME[name], 1_000_000)
    alone, line = [0], LineParser.read

    def counted(parser: LineParser, one: Any) -> None:
        alone[0] += 1
        line(parser, one)

    monkeypatch.setattr(LineParser, "read", counted)
    lines = read_log_tables(path)["sources"]["lines"][0]
    assert alone[0] <= (1 - share) * lines
    assert block_parser.MAX_SINGLY_READ_LINES > 1
