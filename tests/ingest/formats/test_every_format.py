"""Every format stands by its own examples, and no format takes another's steps."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from fairmfu.ingest.core.schema import FACT_NAMES, STEP_COLUMNS
from fairmfu.ingest.decode.line_reader import Chunk, NumberedLine
from fairmfu.ingest.detect.detection import (
    FIRST_LOOK_BYTES,
    LOOK_GROWTH_FACTOR,
    MAX_SNIFFED_LINES,
    _Search,
    detect_format,
    detect_formats,
)
from fairmfu.ingest.formats.deepspeed.engine import DEEPSPEED
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.formats.spec import (
    ENGINE_PRECEDENCE,
    ONLY_BARS_PRECEDENCE,
    EventLine,
    FactBlock,
    FactLine,
    LogFormat,
    StepLine,
)
from fairmfu.ingest.parse.record_sink import ParsedSource
from tests.support.each_case import each_case


def cases(attribute: str) -> list[ParameterSet]:
    return [
        pytest.param(f, line, id=f"{f.name}-{attribute}{number}")
        for f in BUILT_IN_FORMATS
        for number, line in enumerate(getattr(f, attribute))
    ]


def is_record(case: ParameterSet) -> bool:
    """Whether it is no line as printed, but what is made of an event file or of several lines."""
    log_format = case.values[0]
    assert isinstance(log_format, LogFormat)
    told = log_format.join is not None or log_format.utc
    return told or log_format.name.endswith(("tensorboard", "tracker"))


STEP_LINES, FACT_LINES = cases("steps"), cases("facts")
EVENT_LINES, BLOCKS = cases("events"), cases("blocks")
ALL_LINES = [*STEP_LINES, *FACT_LINES, *EVENT_LINES]
SHOWN_BY_A_LINE = [f for f in BUILT_IN_FORMATS if f.precedence > ONLY_BARS_PRECEDENCE]
each_format = each_case("log_format", BUILT_IN_FORMATS, ids=lambda f: f.name)


@each_case(("log_format", "line"), STEP_LINES)
def test_a_step_example_is_read_with_every_printed_column(
    log_format: LogFormat, line: StepLine, parse: Callable[..., ParsedSource]
) -> None:
    parsed = parse(log_format.name, [line.example])
    (row,) = parsed.launches[0].rows
    match = re.search(line.regex, line.example)
    printed = {key for key, value in match.groupdict().items() if value is not None} - {"pairs"}
    if line.pair:
        printed |= {m["key"].strip() for m in re.finditer(line.pair, match["pairs"])}
    targets = (line.columns[key] for key in printed if key in line.columns)
    columns = {target if isinstance(target, str) else target[0] for target in targets}
    assert parsed.step_lines == 1
    assert {name for name in columns if row.get(name) is None} == set()
    assert row["step"] > 0


@each_case(("log_format", "line"), STEP_LINES)
def test_a_step_example_prints_a_number_behind_every_named_group(
    log_format: LogFormat, line: StepLine
) -> None:
    groups = re.search(line.regex, line.example).groupdict()
    optional = {"epoch", "rank"}
    assert {name for name, value in groups.items() if value is None} <= optional, log_format.name


@each_case(("log_format", "line"), STEP_LINES)
def test_every_step_target_is_a_column(log_format: LogFormat, line: StepLine) -> None:
    targets = {*line.fills}
    assert targets <= set(STEP_COLUMNS), log_format.name


@each_case(("log_format", "line"), STEP_LINES)
def test_every_step_example_looks_like_a_step(log_format: LogFormat, line: StepLine) -> None:
    assert re.search(log_format.looks_like_step, line.example)


@each_case(("log_format", "line"), FACT_LINES)
def test_a_fact_example_states_known_facts(
    log_format: LogFormat, line: FactLine, parse: Callable[..., ParsedSource]
) -> None:
    groups = re.search(line.regex, line.example).groupdict()
    said = line.read({k: v for k, v in groups.items() if v}) if line.read else groups
    assert {*said, *line.constants} <= set(FACT_NAMES)
    stated = {fact["name"] for fact in parse(log_format.name, [line.example]).launches[0].facts}
    assert {*said, *line.constants} <= stated


@each_case(("log_format", "line"), EVENT_LINES)
def test_an_event_example_is_that_event(
    log_format: LogFormat, line: EventLine, parse: Callable[..., ParsedSource]
) -> None:
    (event,) = parse(log_format.name, [line.example]).launches[0].events
    groups = re.search(line.regex, line.example).groupdict()
    groups = line.read({k: v for k, v in groups.items() if v}) if line.read else groups
    assert event["kind"] == line.kind
    assert (event["step"] is None) == ("step" not in groups)
    assert (event["seconds"] is None) == ("seconds" not in groups)


@each_case(("log_format", "block"), BLOCKS)
def test_a_block_example_is_read_whole_and_states_known_facts(
    log_format: LogFormat, block: FactBlock, parse: Callable[..., ParsedSource]
) -> None:
    parsed = parse(log_format.name, [*block.example, "behind it"])
    stated = {fact["name"] for fact in parsed.launches[0].facts}
    assert stated
    assert stated <= set(FACT_NAMES)
    whole = block.include_end or block.braces
    assert parsed.lines - parsed.known_lines <= (1 if whole else 2)
    if block.braces:
        assert not any(re.search(block.end, line) for line in block.example[1:])
    else:
        assert re.search(block.end, block.example[-1])


@each_case(
    ("log_format", "line"),
    [*BLOCKS, *(case for case in ALL_LINES if not is_record(case))],
)
def test_blanks_behind_lines_are_nothing(
    log_format: LogFormat,
    line: StepLine | FactLine | EventLine | FactBlock,
    parse: Callable[..., ParsedSource],
) -> None:
    """As a terminal is copied with them."""
    lines = list(line.example) if isinstance(line, FactBlock) else [line.example]
    plain, blanks = (
        parse(log_format.name, [text + behind for text in (*lines, "behind it")])
        for behind in ("", "  ")
    )
    assert blanks.known_lines == plain.known_lines
    said = ([(f["name"], f["value"]) for f in x.launches[0].facts] for x in (plain, blanks))
    assert next(said) == next(said)


@each_case("before", ["", "    ", "[rank0]:", "0: "], ids=repr)
@each_case(
    ("log_format", "block"), [(f, b) for f in BUILT_IN_FORMATS for b in f.blocks if b.braces]
)
def test_json_ends_where_its_braces_close(
    log_format: LogFormat, block: FactBlock, before: str, parse: Callable[..., ParsedSource]
) -> None:
    """With a launcher's tags and without, in a paste that is indented or has lost its indents."""
    told = parse(log_format.name, block.example).launches[0].facts
    first = block.example[0].removeprefix("[rank0]:")
    rest = [re.sub(r"^\[rank0\]:", "", line) for line in block.example[1:]]
    for lines in ([first, *rest], [first, *map(str.strip, rest)]):
        parsed = parse(log_format.name, [before + line for line in (*lines, "behind it")])
        said = [(fact["name"], fact["value"]) for fact in parsed.launches[0].facts]
        assert said == [(fact["name"], fact["value"]) for fact in told]


@each_case(("log_format", "line"), ALL_LINES)
def test_an_anchor_stands_in_its_example(
    log_format: LogFormat, line: StepLine | FactLine | EventLine
) -> None:
    assert line.anchor in line.example, log_format.name


@each_case(("log_format", "line"), [*ALL_LINES, *BLOCKS])
def test_every_line_names_the_statement_that_prints_it(
    log_format: LogFormat, line: StepLine | FactLine | EventLine | FactBlock
) -> None:
    statement = r"[\w.-]+/[\w.-]+/[\w./-]+\.(py|cc|sh)(@[\w.]+)?\b|nvidia-smi\b"
    assert re.match(statement, line.printed_by), log_format.name


@each_format
def test_a_signature_matches_its_own_steps_and_no_other_formats(log_format: LogFormat) -> None:
    signature = re.compile(log_format.signature)
    taken = {f.name for f in BUILT_IN_FORMATS if any(signature.search(s.example) for s in f.steps)}
    assert taken == {log_format.name}


ANYBODYS = '"tag": "train/learning_rate"'
"""A value of the Hugging Face Trainer's that others call alike; it stands beside a loss."""


@each_case(
    ("log_format", "line"),
    [(f, line) for f in SHOWN_BY_A_LINE for line in f.steps if line.anchor != ANYBODYS],
)
def test_detect_tells_the_format_from_one_step(log_format: LogFormat, line: StepLine) -> None:
    chunk = Chunk(1, line.example.encode() + b"\n")
    assert detect_format(Path("run.log"), [chunk]) == (log_format, ())


@pytest.mark.parametrize("split", ["", "\x1b[33m", "[0m"], ids=["plain", "coloured", "bare"])
@pytest.mark.parametrize(
    "log_format",
    [f for f in BUILT_IN_FORMATS if f.precedence > ENGINE_PRECEDENCE and not f.alone],
    ids=lambda f: f.name,
)
def test_a_trainer_is_found_far_behind_the_engine(log_format: LogFormat, split: str) -> None:
    """Where its lines are coloured as well, however that splits what tells them."""
    engine = f"{DEEPSPEED.steps[0].example}\n".encode()
    trainer = split.join(re.findall(r"\S+|\s+", log_format.steps[0].example))
    chunks = [Chunk(at, 3_000 * engine) for at in (1, 3_001)]
    last = Chunk(6_001, 5_000 * engine + f"{trainer}\n".encode() + engine)
    assert detect_format(Path("run.log"), [*chunks, last]) == (log_format, (DEEPSPEED,))


@pytest.mark.parametrize("width", [1, 300], ids=["in a small piece", "in a large one"])
@pytest.mark.parametrize("beyond", [0, 1])
def test_a_companion_is_found_up_to_the_last_line_that_is_looked_at(
    width: int, beyond: int
) -> None:
    trainer = next(f for f in BUILT_IN_FORMATS if f.name == "megatron-deepspeed").steps[0].example
    lines = [trainer, *["x" * width] * (MAX_SNIFFED_LINES - 1 + beyond), DEEPSPEED.steps[0].example]
    chunk = Chunk(1, "".join(f"{line}\n" for line in [*lines, *lines[1:-1]]).encode())
    assert (len(chunk.data) > 2 * LOOK_GROWTH_FACTOR * FIRST_LOOK_BYTES) == (width > 1)
    _, companions = detect_format(Path("run.log"), [chunk])
    assert companions == (() if beyond else (DEEPSPEED,))


@each_format
def test_implied_facts_have_known_names(log_format: LogFormat) -> None:
    assert set(log_format.implies) <= set(FACT_NAMES)


@each_format
def test_evidence_names_what_metrics_can_use(log_format: LogFormat) -> None:
    assert set(log_format.evidence) <= {"elapsed", "rate", "clock", "stamp"}


def test_names_are_unique() -> None:
    assert len({f.name for f in BUILT_IN_FORMATS}) == len(BUILT_IN_FORMATS)


@each_format
def test_a_format_is_a_companion_of_those_of_higher_precedence(
    log_format: LogFormat, tmp_path: Path
) -> None:
    """A single line of one under a format that stands alone is none of its steps either."""
    path = tmp_path / "run.log"
    for companion in (f for f in SHOWN_BY_A_LINE if f.precedence < log_format.precedence):
        texts = [companion.steps[0].example, log_format.steps[0].example]
        path.write_text("".join(f"{text}\n" for text in texts))
        primary, companions = detect_format(path, [Chunk(1, path.read_bytes())])
        assert primary == log_format
        assert companion in companions


TOLD_BY_WHAT_IS_NOT_THERE = {"megatron-lm", "mindspeed-mm", "mindspeed-llm", "gpt-neox"}
"""Their step lines hold all words of Megatron-DeepSpeed's, which has to be asked of each line."""
WITHOUT_A_HEADER = {"deepspeed", "deepspeed-timers"}
"""Words of the engine's header, which is not in what is made here, are in each of its lines."""


@pytest.mark.parametrize(
    "log_format",
    [f for f in BUILT_IN_FORMATS if f.name not in TOLD_BY_WHAT_IS_NOT_THERE | WITHOUT_A_HEADER],
    ids=lambda f: f.name,
)
def test_few_lines_are_looked_at_one_by_one_however_many_steps_a_log_has(
    log_format: LogFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at = list[str]()
    changes = _Search._changes

    def counted(search: _Search, line: NumberedLine) -> bool:
        looked_at.append(line.text)
        return changes(search, line)

    monkeypatch.setattr(_Search, "_changes", counted)
    lines = "".join(f"{line.example}\n" for line in log_format.steps) * (
        1_000 // len(log_format.steps)
    )
    (found,) = detect_formats([(tmp_path / "a.log", [Chunk(1, lines.encode())])])
    if not isinstance(found, Exception):
        assert len(looked_at) <= 10, looked_at[-1]
