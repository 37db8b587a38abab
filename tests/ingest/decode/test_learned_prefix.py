"""Words before nearly all lines, learned from the lines: off where no line says less without."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from fairmfu.ingest.decode.learned_prefix import detect_learned_prefix

STEPS = [
    b"[titan] 2026-01-02 03:04:%02d,000 - root - INFO - step: %d  loss:  5.0%d000  memory:  "
    b"1.50GiB(3.00%%)  tps: 1,000" % (step, step, step)
    for step in range(1, 10)
]
BARE = [line.partition(b"INFO - ")[2] for line in STEPS]
DICTS = [b"{'loss': %d.5, 'grad_norm': 1.2, 'epoch': 0.%d}" % (n, n) for n in range(1, 10)]
TEXT = b"some other words of a page"


def unwrapped(lines: Sequence[bytes]) -> list[bytes] | None:
    """The lines without what is before them; None where nothing is learned."""
    made = detect_learned_prefix(lines)
    if made is None:
        return None
    unwrap = made()
    return [line if (piece := unwrap(line)) is None else piece.text for line in lines]


def before(words: bytes) -> Callable[[Sequence[bytes]], list[bytes]]:
    return lambda lines: [words + line for line in lines]


@pytest.mark.parametrize(
    "words", [b"node-07: ", b"INFO:root:", b"+", b"+ ", b"train |  ", b"out>", b"a\t", b"a: b: "]
)
def test_words_before_all_lines_go(words: bytes) -> None:
    assert unwrapped(before(words)(DICTS)) == DICTS


def test_a_log_without_words_before_it_stays() -> None:
    assert unwrapped(DICTS) is None
    assert unwrapped(STEPS) is None
    assert unwrapped([TEXT] * 9) is None


@pytest.mark.parametrize(("count", "learned"), [(4, False), (5, True)])
def test_five_lines_have_to_begin_alike(count: int, *, learned: bool) -> None:
    lines = before(b"node-07: ")(DICTS[:count])
    assert (unwrapped(lines) is not None) == learned


@pytest.mark.parametrize(("others", "learned"), [(1, True), (2, False)])
def test_nine_of_ten_lines_have_the_words(others: int, *, learned: bool) -> None:
    """Others stay as they are."""
    lines = before(b"node-07: ")([*DICTS, DICTS[0]][: 10 - others]) + [TEXT] * others
    assert unwrapped(lines) == ([*DICTS[: 10 - others], *[TEXT] * others] if learned else None)


@pytest.mark.parametrize(
    "words",
    [
        b"[rank0]: ",  # a launcher's: it tells the rank
        b"[1,0]<stdout>: ",
        b"0: ",
        b"2026-01-02 03: ",  # a stamp, of which a part would stay
        b"2026/01/02 x: ",
        b"03:04 x: ",
        b"[a: ",  # of a bracket that is not closed yet
    ],
)
def test_what_tells_something_stays(words: bytes) -> None:
    assert unwrapped(before(words)(DICTS)) is None


def test_a_stamp_that_all_lines_share_stays() -> None:
    """Without it the lines would say less."""
    same = [line.replace(line[8:31], b"2026-01-02 03:04:05,000") for line in STEPS]
    assert unwrapped(same) is None
    assert unwrapped(before(b"node-07: ")(same)) == same


def test_the_longest_words_that_are_right_go() -> None:
    """The word `step: ` is of the line, though all lines have it behind the host."""
    assert unwrapped(before(b"node-07: ")(BARE)) == BARE


def test_words_of_120_bytes_are_looked_at() -> None:
    assert unwrapped(before(b"a" * 118 + b": ")(DICTS)) == DICTS
    assert unwrapped(before(b"a" * 120 + b":")(DICTS)) is None


@pytest.mark.parametrize(("known", "learned"), [(0, False), (1, False), (2, True)])
def test_two_lines_behind_the_words_have_to_be_known(known: int, *, learned: bool) -> None:
    lines = [*DICTS[:known], *[TEXT] * 7]
    assert unwrapped(before(b"node-07: ")(lines)) == (lines if learned else None)


def test_a_blank_line_may_lack_the_last_blanks() -> None:
    lines = before(b"out>  ")([*DICTS, *DICTS])
    lines.insert(3, b"out>")
    assert unwrapped(lines) == [*DICTS[:3], b"", *DICTS[3:], *DICTS]


# -- a table, numbers, an indentation ----------------------------------------------------------


def test_a_table_of_one_column_is_its_cells() -> None:
    lines = [b"| " + line + b"   |" for line in DICTS]
    assert unwrapped(lines) == DICTS
    assert unwrapped([*lines[:-1], lines[-1] + b" \r"]) == DICTS


def test_numbers_that_rise_by_one_go() -> None:
    """As `less -N` has them, and tools that write `12:`."""
    for form in (b"%7d ", b"%d:", b"%d\t", b"     %d  "):
        lines = [form % number + line for number, line in enumerate(DICTS, 1)]
        found = unwrapped(lines)
        assert found is not None
        assert [line.strip() for line in found] == DICTS


@pytest.mark.parametrize("numbers", [[1, 2, 3, 4, 6], [5, 4, 3, 2, 1], [7, 7, 7, 7, 7]])
def test_other_numbers_stay(numbers: Sequence[int]) -> None:
    lines = [b"%d " % n + line for n, line in zip(numbers, BARE, strict=False)]
    assert unwrapped(lines) is None


def test_numbers_of_a_sample_rise_by_its_distance() -> None:
    """Of a long log each third line is looked at."""
    lines = [b"%d " % (3 * n) + line for n, line in enumerate(BARE, 1)]
    assert unwrapped(lines) == BARE


def test_a_line_without_a_number_denies_it() -> None:
    lines = [b"%d " % n + line for n, line in enumerate(BARE, 1)]
    assert unwrapped([*lines, b"x"]) is None
    assert unwrapped([*lines, b"10"]) == [*BARE, b""]  # a blank line has its number alone


@pytest.mark.parametrize(
    ("indent", "learned"), [(b"  ", True), (b"\t", True), (b"    ", True), (b" ", False)]
)
def test_the_indentation_of_known_lines_goes(indent: bytes, *, learned: bool) -> None:
    """Of two blanks at least, or a tab: some logs begin their step lines with one."""
    lines = [*before(indent)(DICTS), TEXT, TEXT]
    assert unwrapped(lines) == ([*DICTS, TEXT, TEXT] if learned else None)


@pytest.mark.parametrize(("others", "learned"), [(9, True), (10, False)])
def test_half_of_the_lines_are_indented(others: int, *, learned: bool) -> None:
    lines = [*before(b"    ")(DICTS), *[TEXT] * others]
    assert unwrapped(lines) == ([*DICTS, *[TEXT] * others] if learned else None)


@pytest.mark.parametrize(("known", "learned"), [(1, False), (2, True)])
def test_two_indented_lines_have_to_be_known(known: int, *, learned: bool) -> None:
    lines = before(b"    ")([*DICTS[:known], *[TEXT] * 5])
    assert unwrapped(lines) == ([*DICTS[:known], *[TEXT] * 5] if learned else None)
