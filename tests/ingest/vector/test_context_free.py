"""Lines read without context equal the line parser's reading among other lines."""

from __future__ import annotations

from typing import Final

import pytest

from fairmfu.ingest.decode.line_reader import NumberedLine
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.formats.spec import LogFormat
from fairmfu.ingest.parse.line_matcher import LineMatcher
from fairmfu.ingest.parse.line_parser import LineParser
from fairmfu.ingest.parse.record_sink import ParsedSource, RecordSink
from fairmfu.ingest.parse.records import record_of
from fairmfu.ingest.vector.context_free import ContextFreeReader
from fairmfu.ingest.vector.readings import (
    EventReading,
    KnownReading,
    LineReading,
    StepReading,
    UnmatchedReading,
)

BY_NAME: Final = {f.name: f for f in BUILT_IN_FORMATS}
BY_LINE: Final = [f for f in BUILT_IN_FORMATS if f.join is None]
ENGINE: Final = BY_NAME["deepspeed"]
OTHERS: Final = (
    *("", "   ", "hello 3", "# synthetic log", "KeyboardInterrupt", "Traceback:", "x" * 700),
    *(line.example for line in ENGINE.steps),
)


def parsed(matcher: LineMatcher, *lines: str) -> tuple[LineParser, RecordSink]:
    sink = RecordSink(matcher)
    parser = LineParser(matcher, sink)
    for number, text in enumerate(lines, 1):
        parser.read(record_of(matcher, NumberedLine(number, text, cut=False)))
    return parser, sink


def counts(out: ParsedSource) -> list[int]:
    return [out.step_lines, out.known_lines, out.companion_lines, out.other_lines, out.unread_lines]


def place(reading: LineReading) -> int:
    """Among the counts."""
    if isinstance(reading, EventReading):
        return 2 if reading.companion else 1
    return {StepReading: 0, KnownReading: 1, UnmatchedReading: 3}[type(reading)]


@pytest.mark.parametrize("form", BY_LINE, ids=lambda form: form.name)
def test_a_line_by_itself_says_what_the_line_parser_takes_it_for(form: LogFormat) -> None:
    """Behind a step: its count, the row of a step, the event."""
    companions = () if form is ENGINE else (ENGINE,)
    matcher = LineMatcher(form, companions)
    mine = ContextFreeReader(matcher)
    first = next(line.example for line in form.steps if not line.may_continue)
    parser, before = parsed(matcher, first)
    known = [line.example for line in (*form.steps, *form.events, *form.facts)]
    cut = [text[: len(text) // 2] for text in known]
    seen = set[type]()
    for text in (*known, *cut, *OTHERS):
        reading = mine.read(text.encode())
        seen.add(type(reading))
        if reading is None or not (parser.is_idle and before.is_mid_launch):
            continue
        _, after = parsed(matcher, first, text)
        grown = [b - a for a, b in zip(counts(before.out), counts(after.out), strict=True)]
        assert grown == [n == place(reading) for n in range(5)], (text, reading)
        if isinstance(reading, StepReading):
            row = after.out.launches[-1].rows[-1]
            said = {name: value for name, value in reading.row.items() if name != "says"}
            assert said["step"] is None or {name: row[name] for name in said} == said
    assert seen >= {UnmatchedReading, type(None)}
    by_itself = (s for s in form.steps if not s.may_continue and not (s.numbered and s.every_step))
    assert (StepReading in seen) == any(by_itself)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Saving the checkpoint (or staging if async is enabled).", EventReading),
        ("[rank0]: torch.OutOfMemoryError: Allocation on device", EventReading),
        ("an unknown line 3", UnmatchedReading),
        ("Starting job: debug", type(None)),  # begins a launch
        (BY_NAME["torchtitan"].facts[1].example, type(None)),
        (BY_NAME["torchtitan"].steps[0].example, type(None)),  # may go on in the next line
        ("step: 3  loss: x", type(None)),  # looks like a step
        ("# synthetic log", type(None)),
        ("  ", type(None)),
    ],
)
def test_a_line_is_read_alone_where_it_hangs_on_no_other(text: str, kind: type) -> None:
    assert (
        type(ContextFreeReader(LineMatcher(BY_NAME["torchtitan"], ())).read(text.encode())) is kind
    )
