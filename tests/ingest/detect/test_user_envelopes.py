"""A wrapping of lines stays where a user's own format is of the lines that are wrapped."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from fairmfu.ingest.decode.log_collectors import UnwrappedLine
from fairmfu.ingest.detect.user_envelopes import envelope_keeper
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.formats.spec import FactLine, LogFormat, StepLine

TITAN: Final = next(f for f in BUILT_IN_FORMATS if f.name == "torchtitan")
HEAD: Final = b"<09:00> "


def unwrap(line: bytes) -> UnwrappedLine | None:
    return UnwrappedLine(line.removeprefix(HEAD)) if line.startswith(HEAD) else None


def own(regex: str, example: str, clock: str | None = None) -> LogFormat:
    step = StepLine(
        anchor="", regex=regex, columns={"step": "step"}, example=example, printed_by=""
    )
    return replace(TITAN, name="mine", steps=(step,), facts=(), events=(), clock=clock)


WRAPPED: Final = r"<\d\d:\d\d> step (?P<step>\d+)"
BARE: Final = r"step (?P<step>\d+)"
PERHAPS: Final = r"(?:<(?P<at>\S+)> )?step (?P<step>\d+)"


@pytest.mark.parametrize(
    ("mine", "lines", "stays"),
    [
        (own(WRAPPED, "<10:00> step 1"), [b"<09:00> step 1"], True),
        (own(BARE, "step 1"), [b"<09:00> step 1"], False),
        (own(PERHAPS, "step 1"), [b"<09:00> step 1"], True),  # a group is lost
        (own(PERHAPS, "step 1"), [b"<09:00> loss 1"], False),  # none of its lines
        (own(PERHAPS, "step 1"), [b"step 1"], False),
        (own(PERHAPS, "step 1"), [b"<09:00> loss 1", b"<09:00> step 1"], True),
        (own(WRAPPED, "<09:00> step 1"), [], True),  # by its example
        (own(BARE, "step 1", r"<(?P<stamp>\S+)>"), [b"<09:00> step 1"], True),  # its time
        (own(BARE, "step 1", TITAN.clock), [b"<09:00> step 1"], False),
    ],
)
def test_a_wrapping_stays_where_less_is_found_without_it(
    mine: LogFormat, lines: list[bytes], *, stays: bool
) -> None:
    keeps = envelope_keeper((*BUILT_IN_FORMATS, mine), BUILT_IN_FORMATS)
    assert keeps(unwrap, lines) is stays


def test_a_line_without_groups_is_lost_as_a_whole() -> None:
    fact = FactLine(
        anchor="",
        regex="<09:00> bf16",
        example="bf16",
        printed_by="",
        constants={"precision": "bf16"},
    )
    mine = replace(own(BARE, "step 1"), facts=(fact,))
    keeps = envelope_keeper((*BUILT_IN_FORMATS, mine), BUILT_IN_FORMATS)
    assert keeps(unwrap, [HEAD + b"bf16"])
    assert not keeps(unwrap, [HEAD + b"fp16"])


def test_lines_of_a_format_that_is_extended_keep_no_wrapping() -> None:
    """Those that a user's format shares with a built-in one are read without it."""
    same = replace(TITAN, name="mine")
    example = TITAN.steps[0].example.encode()
    for formats in (BUILT_IN_FORMATS, (*BUILT_IN_FORMATS, same)):
        assert not envelope_keeper(formats, BUILT_IN_FORMATS)(unwrap, [HEAD + example])
