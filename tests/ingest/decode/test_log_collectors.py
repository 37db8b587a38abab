"""Which wrapping lines have, by how many of them look alike, and what is left of each line."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.decode.log_collectors import (
    BrokenStepLines,
    CsvCells,
    MakeUnwrap,
    UnwrappedLine,
    detect_file_envelope,
    detect_line_envelope,
    detect_node_copies,
    detect_terminal_width,
    unwrap_json_record,
    unwrap_json_text,
    unwrap_json_texts,
    unwrap_logfmt,
)
from tests.support.pieces import joined_by

AT = "2026-11-20T03:04:05"
TEXT = [b"line number %d says" % n for n in range(1, 11)]


def texts(lines: Sequence[bytes], made: MakeUnwrap | None) -> list[bytes] | None:
    """The lines without their wrapping; None where there is none."""
    if made is None:
        return None
    unwrap = made()
    return [line if (piece := unwrap(line)) is None else piece.text for line in lines]


def unwrapped(lines: Sequence[bytes]) -> list[bytes] | None:
    return texts(lines, detect_line_envelope(lines))


# -- words before a line -----------------------------------------------------------------------


@pytest.mark.parametrize(("others", "found"), [(5, True), (6, False)])
def test_half_of_the_lines_have_words_that_no_log_prints(others: int, *, found: bool) -> None:
    """Docker's stamp."""
    mine = TEXT[: 10 - others]
    lines = [AT.encode() + b".000600700Z " + line for line in mine] + [b"other"] * others
    assert unwrapped(lines) == ([*mine, *[b"other"] * others] if found else None)


@pytest.mark.parametrize(("others", "found"), [(1, True), (2, False)])
def test_nearly_all_lines_are_quoted(others: int, *, found: bool) -> None:
    mine = TEXT[: 10 - others]
    lines = [b"> " + line for line in mine] + [b"other"] * others
    assert unwrapped(lines) == ([*mine, *[b"other"] * others] if found else None)


def test_one_line_tells_nothing() -> None:
    assert unwrapped([b"> a"]) is None
    assert unwrapped([b"> a", b"> b"]) == [b"a", b"b"]
    assert unwrapped([]) is None


@pytest.mark.parametrize(
    ("names", "found"),
    [(1, True), (2, True), (3, False)],
)
def test_names_are_few_where_each_has_four_lines(names: int, *, found: bool) -> None:
    """Of ten lines: two names at most, or one."""
    lines = [b"[pod-%d] " % (n % names) + line for n, line in enumerate(TEXT)]
    assert (unwrapped(lines) == TEXT) == found


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (("node1", "node2"), True),
        (("node1", "node1"), False),  # one name may be the log's own word
        (("alpha", "beta"), False),
    ],
)
def test_hosts_differ_by_their_digits_alone(names: Sequence[str], *, found: bool) -> None:
    lines = [names[n % 2].encode() + b": " + line for n, line in enumerate(TEXT)]
    assert (unwrapped(lines) == TEXT) == found


def test_a_hosts_dicts_keep_whose_they_are() -> None:
    """Each node prints its own: a number stands for its name, as `srun --label` has it."""
    dicts = [b"{'loss': %d.5, 'epoch': 0.1}" % n for n in range(8)]
    bar = b" 10%|# | 1/10 [00:05<00:45, 5.0s/it]"
    lines = [b"node%d: " % (n % 2 + 7) + line for n, line in enumerate([*dicts, bar, b"text"])]
    expected = [b"%d: " % (n % 2) + line for n, line in enumerate([*dicts, bar])]
    assert unwrapped(lines) == [*expected, b"text"]


def numbered(numbers: Sequence[int], *, who: str = "") -> list[bytes]:
    """As grep -n prints them."""
    return [f"{who}{n}:".encode() + line for n, line in zip(numbers, TEXT, strict=False)]


@pytest.mark.parametrize(
    ("numbers", "found"),
    [
        ([1, 2, 3, 4, 5], True),
        ([1, 2, 3, 4], False),  # five lines at least
        ([3, 4, 50, 51, 90], True),
        ([1, 2, 3, 3, 4], False),
        ([5, 4, 3, 2, 1], False),
        ([0, 1, 2, 3, 4], False),  # grep counts from 1
    ],
)
def test_numbers_of_lines_rise(numbers: list[int], *, found: bool) -> None:
    assert unwrapped(numbered(numbers)) == (TEXT[: len(numbers)] if found else None)


def test_numbers_rise_in_each_file_that_is_named() -> None:
    one, other = numbered([1, 2, 3, 4, 5], who="a.log:"), numbered([3, 4, 7, 8], who="b.log:")
    assert unwrapped([*one, *other]) == [*TEXT[:5], *TEXT[:4]]
    assert unwrapped([*one, *other[:2]]) is None  # four lines of each file


@pytest.mark.parametrize(("clocks", "found"), [(5, True), (6, False)])
def test_an_hour_before_minutes_is_no_number_of_a_line(clocks: int, *, found: bool) -> None:
    """`12:34 ` is a clock; behind grep's number it may be one of some lines."""
    rest = [b"34 x"] * clocks + [b"text"] * (10 - clocks)
    lines = [b"%d:" % n + line for n, line in enumerate(rest, 10)]
    assert unwrapped(lines) == (rest if found else None)


@pytest.mark.parametrize(("flag", "partial"), [(b"F", False), (b"P", True)])
def test_a_part_of_a_line_says_so(flag: bytes, *, partial: bool) -> None:
    lines = [AT.encode() + b"Z stdout " + flag + b" " + line for line in TEXT]
    made = detect_line_envelope(lines)
    assert made is not None
    assert made()(lines[0]) == UnwrappedLine(TEXT[0], AT.encode(), partial=partial)


@pytest.mark.parametrize("flag", [b"00O", b"01E"])
def test_a_line_that_goes_on_says_so(flag: bytes) -> None:
    lines = [AT.encode() + b"Z " + flag + b" " + line for line in TEXT]
    made = detect_line_envelope(lines)
    assert made is not None
    on = made()(lines[1].replace(flag + b" ", flag + b"+"))
    assert on == UnwrappedLine(TEXT[1], AT.encode(), continues=True)


def test_the_name_of_a_line_is_its_tag() -> None:
    lines = [b"[pod/worker-0/train] " + line for line in TEXT]
    made = detect_line_envelope(lines)
    assert made is not None
    assert made()(lines[0]) == UnwrappedLine(TEXT[0], tag=b"pod/worker-0/train")


# -- records -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("record", "text", "at"),
    [
        ({"log": "a\n", "time": f"{AT}.1Z"}, b"a", AT.encode()),
        ({"message": "a", "ts": 1795141000.5}, b"a", b"1795141000.5"),
        ({"message": "a", "pod": "w-0"}, b"a", b""),
        ({"jsonPayload": {"message": "a"}, "timestamp": AT}, b"a", AT.encode()),
        ({"jsonPayload": {"message": "a"}, "message": "b", "timestamp": AT}, b"b", AT.encode()),
        ({"MESSAGE": [97, 27, 98], "__REALTIME_TIMESTAMP": "1795"}, b"a\x1bb", b"1795"),
        ({"stream_name": "stdout", "time": 1.5, "data": "a\n"}, b"a", b""),
    ],
)
def test_a_record_holds_its_text_and_when_it_was_taken(
    record: dict[str, object], text: bytes, at: bytes
) -> None:
    piece = unwrap_json_record(False, json.dumps(record).encode())  # noqa: FBT003
    assert piece == UnwrappedLine(text, at)


@pytest.mark.parametrize(
    "record",
    [
        {"message": "a"},  # nobody has taken it
        {"message": "a", "time": AT, "step": 5},  # a step of the framework's own
        {"message": "a", "log": "b", "time": AT},  # two texts
        {"message": 5, "time": AT},
        {"message": [1000], "time": AT},
        {"time": AT},
        {"stream_name": "stdout", "time": 1.5, "data": 7},
    ],
)
def test_other_records_stay(record: dict[str, object]) -> None:
    assert unwrap_json_record(False, json.dumps(record).encode()) is None  # noqa: FBT003


@pytest.mark.parametrize("line", [b"", b"{", b"[1]", b"text", b"[" * 9999, b'["a"]'])
def test_what_is_no_record_stays(line: bytes) -> None:
    assert unwrap_json_record(False, line) is None  # noqa: FBT003


def test_a_text_without_its_newline_goes_on_where_others_have_theirs() -> None:
    whole, part = ({"log": text, "time": AT} for text in ("a\n", "a"))
    for ends, partial in ((True, True), (False, False)):
        piece = unwrap_json_record(ends, json.dumps(part).encode())
        assert piece is not None
        assert piece.partial == partial
    piece = unwrap_json_record(True, json.dumps(whole).encode())  # noqa: FBT003
    assert piece is not None
    assert not piece.partial


@pytest.mark.parametrize(("others", "found"), [(5, True), (6, False)])
def test_half_of_the_lines_are_records(others: int, *, found: bool) -> None:
    mine = [json.dumps({"log": "a", "time": AT}).encode()] * (10 - others)
    lines = mine + [b"{other"] * others
    assert (unwrapped(lines) is not None) == found


def test_a_record_of_logfmt_holds_its_text() -> None:
    assert unwrap_logfmt(rb'time=%s level=info msg="a \"b\" \x41\a"' % AT.encode()) == (
        UnwrappedLine(b'a "b" A\x07', AT.encode())
    )
    assert unwrap_logfmt(b"time=now msg=word") == UnwrappedLine(b"word")
    assert unwrap_logfmt(b"msg=word") is None
    assert unwrap_logfmt(b"time=1 level=info") is None
    assert unwrap_logfmt(b"time=1 msg=a b") is None


def test_a_line_of_a_notebook_is_one_text() -> None:
    assert unwrap_json_text(b'   "a \\"b\\"\\n",') == UnwrappedLine(b'a "b"')
    assert unwrap_json_text(b'  "message": "a",') == UnwrappedLine(b"a")
    assert unwrap_json_text(b'  "timestamp": "%s.5Z",' % AT.encode()) == (
        UnwrappedLine(b"", AT.encode())
    )
    assert unwrap_json_text(b'  "cell_type": "code",') == UnwrappedLine(b"")


def test_texts_of_three_lines_are_a_log() -> None:
    """Also in JSON within JSON; one of two lines is a remark."""
    three, two = {"body": "a\nb\nc"}, {"body": "a\nb"}
    for said in (three, {"inner": json.dumps(three)}):
        piece = unwrap_json_texts(json.dumps(said).encode())
        assert piece is not None
        assert piece.text == b"a\nb\nc"
    assert unwrap_json_texts(json.dumps(two).encode()) is None
    assert unwrap_json_texts(b"no text") is None
    both = unwrap_json_texts(json.dumps([three, {"body": "d\r\ne\r\nf"}, two]).encode())
    assert both is not None
    assert both.text == b"a\nb\nc\nd\ne\nf"


# -- CSV ---------------------------------------------------------------------------------------


@given(
    rows=st.lists(
        st.tuples(st.text('a,"\n ', max_size=8), st.text('b,"\n ', max_size=12)),
        min_size=1,
        max_size=6,
    ),
    swapped=st.booleans(),
)
def test_cells_of_a_csv_file_are_its_messages(
    rows: list[tuple[str, str]], *, swapped: bool
) -> None:
    """Whatever is quoted, and however many lines a cell has."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    columns = ["message", "x"] if swapped else ["x", "message"]
    writer.writerow([*columns, "time"])
    for other, message in rows:
        writer.writerow([*([message, other] if swapped else [other, message]), AT])
    lines = stream.getvalue().encode().split(b"\n")[:-1]
    made = detect_file_envelope(lines, b"\n".join(lines))
    assert made is not None
    unwrap = made()
    found = [unwrap(line) for line in lines]
    said = b"".join(piece.text for piece in found if piece)
    assert said == "".join(message.replace("\n", "") for _, message in rows).encode()
    assert sum(bool(piece and piece.at == AT.encode()) for piece in found) == len(rows)


@pytest.mark.parametrize(
    ("heading", "found"),
    [
        (b"time,message", True),
        (b'"@timestamp","@message"\r', True),
        (b"\xef\xbb\xbfDate,Content", True),
        (b"time,message,step", False),  # a framework's own table
        (b"time,message,log", False),
        (b"message,other", False),
        (b"time,other", False),
        (b"time", False),
    ],
)
def test_a_heading_names_a_time_and_one_message(heading: bytes, *, found: bool) -> None:
    lines = [b"", heading, b"1,2,3"]
    assert (detect_file_envelope(lines, b"\n".join(lines)) is not None) == found


def test_nothing_of_a_heading_is_a_line() -> None:
    cells = CsvCells(0, 1)
    assert [cells(line).text for line in (b"", b"time,message", b"1,a")] == [b"", b"", b"a"]


# -- lines that a terminal broke ---------------------------------------------------------------

STEP = (
    b" iteration %8d/    2000 | consumed samples: %12d | elapsed time per iteration (ms): 1234.5 | "
    b"lm loss: 7.123456E+00 | grad norm: 1.234 |"
)
WHOLE = [STEP % (n, 64 * n) for n in range(1, 7)]


def broken(line: bytes, columns: int) -> list[bytes]:
    return [line[at : at + columns].rstrip() for at in range(0, len(line), columns)]


def joined(lines: Sequence[bytes]) -> list[bytes] | None:
    return joined_by(detect_terminal_width(lines, b"\n".join(lines)), lines)


@pytest.mark.parametrize("columns", [80, 90, 100, 120])
def test_steps_that_a_terminal_broke_are_whole(columns: int) -> None:
    pieces = [piece for line in WHOLE for piece in broken(line, columns)]
    assert joined(pieces) == WHOLE


def test_steps_that_nothing_broke_stay() -> None:
    assert joined(WHOLE) is None
    assert joined([]) is None


@pytest.mark.parametrize(("count", "found"), [(2, False), (3, True)])
def test_two_steps_before_the_last_have_to_be_broken(count: int, *, found: bool) -> None:
    """The last one may go on."""
    pieces = [piece for line in WHOLE[:count] for piece in broken(line, 80)]
    assert joined(pieces) == (WHOLE[:count] if found else None)


def test_a_line_between_two_steps_is_none_of_theirs() -> None:
    lines = BrokenStepLines(80)
    first, *rest = broken(WHOLE[0], 80)
    found = [lines(one) for one in (first, *rest, b"saving checkpoint at 1")]
    assert [piece.continues for piece in found] == [False, *[True] * len(rest), False]
    assert lines(b" lm loss: 5 |") == UnwrappedLine(b" lm loss: 5 |")


# -- dicts that each node prints ---------------------------------------------------------------


def dicts(count: int, copies: int, last: int | None = None) -> list[bytes]:
    each = [b"{'loss': %d.5, 'epoch': 0.%d}" % (n, n) for n in range(1, count + 1)]
    times = [copies] * (count - 1) + [copies if last is None else last]
    return [one for one, many in zip(each, times, strict=True) for _ in range(many)]


@pytest.mark.parametrize(
    ("lines", "nodes"),
    [
        (dicts(3, 4), 4),
        (dicts(2, 4), None),  # three steps tell it
        (dicts(5, 1), None),
        (dicts(4, 3, last=1), 3),  # more may come
        (dicts(4, 3, last=4), None),
        ([*dicts(3, 2), *dicts(1, 2)], None),
    ],
)
def test_each_step_has_as_many_copies(lines: list[bytes], nodes: int | None) -> None:
    found = texts(lines, detect_node_copies(lines))
    if nodes is None:
        assert found is None
        return
    assert found is not None
    assert [line for line in found if line] == list(dict.fromkeys(lines))


def test_what_stands_before_a_copy_stays() -> None:
    """Its progress bar is its own."""
    lines = [b" 10%|# | 1/10 [00:05<00:45, 5.0s/it]" + one for one in dicts(3, 2)]
    found = texts(lines, detect_node_copies(lines))
    assert found is not None
    assert found[:2] == [lines[0], b" 10%|# | 1/10 [00:05<00:45, 5.0s/it]"]


def test_a_step_that_comes_again_later_is_of_another_training() -> None:
    """Run again with the same seed: copies are waited for in two steps at most."""
    made = detect_node_copies(dicts(4, 2))
    assert made is not None
    unwrap = made()
    one, two, three, four = dicts(4, 1)

    def is_copy(line: bytes) -> bool:
        piece = unwrap(line)
        assert piece is not None
        return piece.text == b""

    assert [is_copy(line) for line in (one, two, one, two)] == [False, False, True, True]
    assert [is_copy(line) for line in (one, two, three, one)] == [False] * 4
    assert [is_copy(line) for line in (four, one)] == [False, True]
