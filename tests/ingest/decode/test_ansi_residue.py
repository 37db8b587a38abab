"""Colours that stand in a log as text are taken off where enough of them show."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fairmfu.ingest.decode.ansi_residue import (
    ANY_COLOUR,
    BARE_COLOUR,
    MAX_SCANNED_LINES,
    SPELT_COLOUR,
    detect_colours,
    strip_colours,
)
from fairmfu.ingest.decode.line_prefixes import MIN_ALIKE_LINES


def colours_of(lines: Sequence[bytes], sample: Sequence[bytes] = ()) -> object:
    return detect_colours(lines, sample, b"\n".join(lines))


@pytest.mark.parametrize(
    ("escape", "colour"),
    [(b"", BARE_COLOUR), (b"^[", SPELT_COLOUR), (b"#033", SPELT_COLOUR), (rb"\x1b", SPELT_COLOUR)],
)
def test_a_few_colours_are_enough(escape: bytes, colour: object) -> None:
    """Of so many at least one ends them."""
    begins, ends = escape + b"[32mINFO", escape + b"[0m step: 1"
    enough = [begins] * (MIN_ALIKE_LINES - 1) + [ends]
    assert colours_of(enough) is colour
    assert colours_of(enough[1:]) is None
    assert colours_of([begins] * MIN_ALIKE_LINES) is None


@pytest.mark.parametrize("before", [MAX_SCANNED_LINES - MIN_ALIKE_LINES, MAX_SCANNED_LINES])
def test_colours_are_looked_for_in_the_first_lines(before: int) -> None:
    lines = [b"x"] * before + [b"[32m"] * (MIN_ALIKE_LINES - 1) + [b"[0m"]
    assert (colours_of(lines) is None) == (before == MAX_SCANNED_LINES)


@pytest.mark.parametrize(
    ("line", "stripped"),
    [
        (b"[32mINFO[0m step: 1", b"INFO step: 1"),
        (b"[1;31;40mINFO[39m", b"INFO"),
        (b"[107mINFO[97m", b"INFO"),
        (b"[108m [58m [200m", None),  # too large for a colour
        (b"loss [32] m", None),
        (b"no bracket", None),
    ],
)
def test_bare_colours_go_and_nothing_else(line: bytes, stripped: bytes | None) -> None:
    piece = strip_colours(BARE_COLOUR, line)
    assert (piece and piece.text) == stripped


def test_colours_with_their_escape_are_no_bare_ones() -> None:
    """Those are noise of a line's text; beside a Trainer's dict or bar they go before that."""
    line = b"\x1b[32mINFO\x1b[0m"
    assert strip_colours(BARE_COLOUR, line) is None
    assert strip_colours(ANY_COLOUR, line + b"[0m") == strip_colours(ANY_COLOUR, b"INFO[0m")
    assert colours_of([line] * 9) is None


@pytest.mark.parametrize(
    ("line", "goes"),
    [
        (b"\x1b[32m{'loss': 1.5, 'epoch': 0.1}\x1b[0m", True),
        (b"{'loss': 1.5, 'epoch': 0.1}\x1b[0m", True),
        (b"\x1b[32m 50%|##  | 1/2 [00:01<00:01, 1.0s/it]", True),
        (b"50%|##  | 1/2 [00:01<00:01, 1.0s/it]\x1b[0m", True),
        (b"\x1b[32mINFO\x1b[0m x {'loss': 1.5}", False),  # not beside it
        (b"\x1b[A{'loss': 1.5}", False),  # moves the cursor
    ],
)
def test_colours_beside_a_trainers_step_go_first(line: bytes, goes: bool) -> None:  # noqa: FBT001
    assert (colours_of([line], [line]) is ANY_COLOUR) == goes
    bar = b"%|" in line
    assert (colours_of([line]) is ANY_COLOUR) == (goes and not bar)  # bars are sampled
