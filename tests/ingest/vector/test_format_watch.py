"""Logs that are read by what their beginning shows: as by all of them, wherever they show more.

A wrong format is a wrong step, so what is compared is every table with the reading line by line,
which looks at all of a log first.
"""

from __future__ import annotations

import gzip
import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.core.errors import UnknownFormatError
from fairmfu.ingest.core.spill import Spool, collect_rows
from fairmfu.ingest.decode import line_reader
from fairmfu.ingest.decode.line_reader import MAX_LINE_BYTES, STDIN_PATH, Chunk, Source
from fairmfu.ingest.decode.text_cleaning import ANSI_ESCAPE, Cleaner
from fairmfu.ingest.detect import detection
from fairmfu.ingest.detect.detection import FormatChoice, detect_format, detect_from_beginning
from fairmfu.ingest.extract import log_tables
from fairmfu.ingest.extract.log_tables import read_log, read_log_files, read_log_tables
from fairmfu.ingest.formats.deepspeed.chat import DEEPSPEED_CHAT
from fairmfu.ingest.formats.deepspeed.engine import DEEPSPEED
from fairmfu.ingest.formats.megatron.console import MEGATRON_DEEPSPEED
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.formats.spec import LogFormat
from fairmfu.ingest.formats.torchtitan.console import TORCHTITAN
from fairmfu.ingest.vector import block_parser, block_plan, fixed_layouts
from fairmfu.ingest.vector.block_plan import BlockPlan, BlockPlanner
from fairmfu.ingest.vector.format_watch import FormatWatch, fold_digits_and_blanks
from tests.ingest.vector.test_block_plan import Other
from tests.ingest.vector.test_gate import BY_LINE, LINES, Reading, differences, reading
from tests.support.damaged_lines import DAMAGES, damaged_log, varied
from tests.support.effort import sampled
from tests.support.log_lines import BY_NAME, Style, noise, write_log

pytestmark = sampled(6)

BEGINNING: Final = 4_000
"""Bytes of a log that are looked at before it is read."""
WATCHED: Final = [f for f in BY_LINE if f.precedence < detection.TRAINER_PRECEDENCE]
TRAINER: Final = MEGATRON_DEEPSPEED.steps[0].example
HEADER: Final = (
    "[2026-11-20 15:01:22,507] [INFO] [config.py:678:print] DeepSpeedEngine configuration:"
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done with large logs, by large blocks, is done with small ones."""
    monkeypatch.setattr(detection, "MIN_BEGINNING_BYTES", BEGINNING)
    monkeypatch.setattr(detection, "FIRST_LOOK_BYTES", BEGINNING)
    monkeypatch.setattr(line_reader, "READ_BLOCK_BYTES", 9_001)
    monkeypatch.setattr(block_plan, "MIN_BYTES_TO_LEARN", 0)
    monkeypatch.setattr(block_parser, "MAX_SINGLY_READ_LINES", 1)
    monkeypatch.setattr(fixed_layouts, "MIN_LAYOUT_LINES", 20)
    monkeypatch.setattr(fixed_layouts, "LAYOUT_LINE_DIVISOR", 10**9)


def of_an_engine(folder: Path) -> list[bytes]:
    """The lines of a log of DeepSpeed's engine."""
    write_log(folder / "engine.log", BY_NAME[DEEPSPEED.name], 30_000, at_once=200)
    return (folder / "engine.log").read_bytes().splitlines()


def of_dicts(_: Path) -> list[bytes]:
    """The same of the Trainer's console: each dict with a progress bar behind it, and noise."""
    draw = Random(5)  # noqa: S311 - no secret
    between = noise(BY_NAME[DEEPSPEED.name], Style(), 3, 40)
    lines = ["***** Running training *****", "  Total optimization steps = 900"]
    for step in range(1, 150):
        lines.append(
            f"{{'loss': '{draw.uniform(2, 9):.4f}', 'grad_norm': '{draw.uniform(0, 2):.4f}', "
            f"'learning_rate': '{draw.uniform(0, 1):.4g}', 'epoch': '{step / 90:.4g}'}}"
        )
        lines.append(
            f"  {step // 9}%|#   | {step}/900 [{step // 60:02}:{step % 60:02}<10:00,  1it/s]"
        )
        lines += [draw.choice(between)] * draw.randrange(3)
    return [line.encode() for line in lines]


Lines = Callable[[Path], list[bytes]]
each_log = pytest.mark.parametrize("made", [of_an_engine, of_dicts])


def written(path: Path, lines: Iterable[bytes], end: bytes = b"\n") -> Path:
    path.write_bytes(b"\n".join(lines) + end)
    return path


def watched(path: Path) -> bool:
    with Source(path) as source:
        return detect_from_beginning(path, source.peek()).watch is not None


def format_of(read: Reading) -> str:
    return str(read.source["log_format"])


def same(path: Path) -> Reading:
    """What a log says, which is the same by its beginning as by all of it."""
    slow = reading(path, fast=False)
    assert list(differences(reading(path, fast=True), slow)) == []
    return slow


@each_log
def test_a_log_that_shows_nothing_else_is_looked_at_once(
    made: Lines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "run.log", made(tmp_path))
    assert watched(path)
    same(path)
    monkeypatch.setattr(log_tables, "detect_format", None)
    read_log_tables(path)


@each_log
def test_a_beginning_is_long_enough_where_no_line_looks_like_anothers(
    made: Lines, tmp_path: Path
) -> None:
    def last(lines: list[bytes]) -> int:
        path = written(tmp_path / "run.log", lines)
        with Source(path) as source:
            return detect_from_beginning(path, source.peek()).last

    lines = made(tmp_path)
    first = last(lines)
    assert sum(len(line) + 1 for line in lines[:first]) < 2 * BEGINNING
    assert (
        last([*lines[:3], b"Model Parameters: a, b, Latency: of a script", *lines[3:]]) > first + 1
    )


@pytest.mark.parametrize("shown", BUILT_IN_FORMATS, ids=lambda form: form.name)
@each_log
def test_a_line_of_any_format_counts_wherever_it_stands(
    made: Lines, shown: LogFormat, tmp_path: Path
) -> None:
    before, draw = made(tmp_path), Random(shown.name)  # noqa: S311 - no secret
    begins = sum(1 for _ in behind(before))
    line = draw.choice(shown.steps).example.encode()
    places = draw.randrange(len(before) - begins, len(before)), len(before)
    for place, end in zip(places, (b"\r\n", b""), strict=True):
        lines = [*before[:place], line, *before[place:]]
        path = written(tmp_path / "run.log", lines, end)
        assert watched(path)
        found = same(path)
        if not found.refused and shown.precedence == detection.TRAINER_PRECEDENCE:
            assert format_of(found) == shown.name


def behind(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines that are not looked at first."""
    size = 0
    for line in lines:
        size += len(line) + 1
        if size > 3 * BEGINNING:
            yield line


SPLIT: Final = {
    "coloured": "\x1b[33m",
    "without-escape": "[0m",
    "other-colours": "\x1b[38;5;1m",
    "nul": "\0",
}


def as_it_is(text: str) -> bytes:
    return text.encode()


def split_by(what: str) -> Callable[[str], bytes]:
    return lambda text: what.join(re.findall(r"\S+|\s+", text)).encode()


def in_a_long_line(text: str) -> bytes:
    return text.encode() + b" x" * MAX_LINE_BYTES


def behind_a_bar(text: str) -> bytes:
    return b"  3%|#   | 7/900 [00:01<10:00,  1it/s]\r" + text.encode()


def behind_bad_bytes(text: str) -> bytes:
    return b"\xff\xfe " + text.encode() + b" \xf0\x9f\x92\xa9"


def within_noise(text: str) -> bytes:
    """Of a line as many others are, but for what stands far behind in it."""
    return b"Processed 21 documents (4.23 docs/s)." + b" " * 200 + b"- | " + text.encode()


WAYS: Final[dict[str, Callable[[str], bytes]]] = {
    "as-it-is": as_it_is,
    **{name: split_by(what) for name, what in SPLIT.items()},
    "in-a-long-line": in_a_long_line,
    "behind-a-bar": behind_a_bar,
    "behind-bad-bytes": behind_bad_bytes,
    "within-noise": within_noise,
}


@pytest.mark.parametrize("way", WAYS)
@each_log
def test_a_trainers_line_counts_however_it_is_printed(
    made: Lines, way: str, tmp_path: Path
) -> None:
    lines = made(tmp_path)
    for place in (len(lines) // 2, len(lines)):
        shown = WAYS[way](TORCHTITAN.steps[0].example)
        path = written(tmp_path / "run.log", [*lines[:place], shown, *lines[place:]])
        assert watched(path)
        assert "formats, so it is unclear" in same(path).refused  # it has no engine


def glued(line: bytes, step: int) -> bytes:
    """A line of the engine, and one of the trainer that lost its newline to it."""
    return line + b" iteration %d/ 900 | elapsed time per iteration (ms): 1.5 | " % step


@pytest.mark.parametrize("of", [b" skipped=", b"global_step=", b"'loss': ", b"Processed "])
@each_log
def test_lines_alike_that_show_a_trainer_are_no_shape_of_the_engine(
    made: Lines, of: bytes, tmp_path: Path
) -> None:
    """They are the same kind of line over and over, as shapes are learned of."""
    lines = made(tmp_path)
    later = len(lines) - sum(1 for _ in behind(lines))
    lines[later:] = [
        glued(line, step) if of in line else line for step, line in enumerate(lines[later:])
    ]
    path = written(tmp_path / "run.log", lines)
    shows = any(b" | elapsed" in line for line in lines)
    assert format_of(same(path)) != MEGATRON_DEEPSPEED.name or shows
    assert (format_of(same(path)) == MEGATRON_DEEPSPEED.name) == shows


@each_log
def test_a_restart_by_another_trainer_counts(made: Lines, tmp_path: Path) -> None:
    lines = made(tmp_path)
    write_log(tmp_path / "other.log", BY_NAME[MEGATRON_DEEPSPEED.name], 30_000, at_once=100)
    other = (tmp_path / "other.log").read_bytes().splitlines()
    for text in ([*lines, *other], [*lines, *other, *lines]):
        path = written(tmp_path / "run.log", text)
        assert watched(path)
        assert format_of(same(path)) == MEGATRON_DEEPSPEED.name


def test_a_header_makes_the_engine_a_companion(tmp_path: Path) -> None:
    lines = of_dicts(tmp_path)
    for place in (len(lines) // 2, len(lines)):
        path = written(tmp_path / "run.log", [*lines[:place], HEADER.encode(), *lines[place:]])
        assert watched(path)
        assert same(path).source["companions"] == [DEEPSPEED.name]


def test_two_trainers_are_refused_as_they_are_by_all_of_a_log(tmp_path: Path) -> None:
    lines = of_an_engine(tmp_path)
    more = [TRAINER.encode(), TORCHTITAN.steps[0].example.encode()]
    path = written(tmp_path / "run.log", [*lines, *more])
    assert "has lines of 3 formats" in same(path).refused


def test_a_script_gives_way_to_an_engine(tmp_path: Path) -> None:
    """Of which a header stood at the beginning, so that it was a companion already."""
    draw, line = Random(3), DEEPSPEED_CHAT.steps[0]  # noqa: S311 - no secret
    lines = [HEADER, *(varied(line.example, line.regex, draw) for _ in range(500))]
    before = [text.encode() for text in lines]
    path = written(tmp_path / "run.log", before)
    assert watched(path)
    assert format_of(same(path)) == DEEPSPEED_CHAT.name
    path = written(path, [*before, DEEPSPEED.steps[0].example.encode()])
    assert watched(path)
    assert format_of(same(path)) == DEEPSPEED.name


def test_files_configs_that_are_renamed_have_all_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Trainer's lines are read otherwise behind them than they stand in the file."""
    lines = of_dicts(tmp_path)
    lines[len(lines) // 2] = b"Overriding config: x"
    lines[-3] = b"Model config {"
    path = written(tmp_path / "run.log", lines)
    assert watched(path)
    same(path)
    assert all_looked_at(path, monkeypatch) == [path]


def all_looked_at(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Reads a log: the files of which all was looked at for their formats meanwhile."""
    asked: list[Path] = []

    def detected(path: Path, *given: object) -> detection.DetectedFormats:
        asked.append(path)
        return detect_format(path, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(log_tables, "detect_format", detected)
    read_log_tables(path)
    return asked


@each_log
def test_lines_that_look_like_it_have_all_looked_at_once(
    made: Lines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = made(tmp_path)
    for place in range(len(lines) // 2, len(lines), 7):
        lines[place] = b"Model Parameters: a, b, Latency: of a script"
    path = written(tmp_path / "run.log", lines)
    assert watched(path)
    same(path)
    assert all_looked_at(path, monkeypatch) == [path]
    path = written(path, [*lines, TRAINER.encode()])
    assert format_of(same(path)) == MEGATRON_DEEPSPEED.name


def test_without_dicts_the_bars_of_all_lines_are_steps(tmp_path: Path) -> None:
    lines = [line for line in of_dicts(tmp_path) if not line.startswith(b"{")]
    for more in ([], [TRAINER.encode()]):
        path = written(tmp_path / "run.log", [*lines, *more])
        assert watched(path)
        same(path)


def test_a_format_that_is_named_is_watched_for_others_as_well(tmp_path: Path) -> None:
    path = written(tmp_path / "run.log", [*of_an_engine(tmp_path), TRAINER.encode()])
    for name, refused in ((DEEPSPEED.name, True), (MEGATRON_DEEPSPEED.name, False)):
        tried = FormatChoice(wanted=frozenset({name}))
        if refused:
            with pytest.raises(UnknownFormatError) as slow:
                read_log_tables(path, format_choice=tried, use_fast_path=False)
            with pytest.raises(UnknownFormatError) as fast:
                read_log_tables(path, format_choice=tried)
            assert str(fast.value) == str(slow.value)
        else:
            tables = Reading(read_log_tables(path, format_choice=tried))
            slow_tables = Reading(read_log_tables(path, format_choice=tried, use_fast_path=False))
            assert list(differences(tables, slow_tables)) == []


@pytest.mark.parametrize("seed", range(LINES // 50 or 12))
def test_damaged_logs_with_lines_of_others_are_read_alike(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, form = Random(seed), WATCHED[seed % len(WATCHED)]  # noqa: S311 - no secret
    monkeypatch.setattr(line_reader, "READ_BLOCK_BYTES", draw.choice((997, 3_001, 9_001)))
    lines = damaged_log(form, seed, draw.choice((100, 300, 600))).split(b"\n")
    for _ in range(draw.choice((0, 1, 1, 2, 5))):
        line = draw.choice(draw.choice([f for f in BUILT_IN_FORMATS if f is not form]).steps)
        other = varied(line.example, line.regex, draw) if draw.random() < 0.7 else line.example
        shown = other.encode()
        for _ in range(draw.choice((0, 0, 1, 2))):
            shown = draw.choice(DAMAGES)(shown, draw)
        place = draw.randrange(len(lines) // 3, len(lines))
        glue = draw.choice((b"\n", b"\n", b"", b" ", b"\r"))
        lines[place : place + 1] = (lines[place] + glue + shown).split(b"\n")
    same(written(tmp_path / "run.log", lines, b""))


# -- other ways to the lines ----------------------------------------------------------------


@each_log
def test_packed_and_piped_and_beside_others(
    made: Lines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [*made(tmp_path), TRAINER.encode()]
    path = written(tmp_path / "run.log", lines)
    expected = same(path)
    assert format_of(expected) == MEGATRON_DEEPSPEED.name
    packed = path.with_suffix(".log.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert watched(packed)
    assert format_of(same(packed)) == MEGATRON_DEEPSPEED.name
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(path.read_bytes())))
    piped = read_log_tables(STDIN_PATH)
    assert piped["steps"].drop("run_id").equals(expected.tables["steps"].drop("run_id"))
    plain = written(tmp_path / "plain.log", lines[:-1])
    for most in (0, log_tables.MAX_SMALL_BYTES):  # read one by one, and together
        monkeypatch.setattr(log_tables, "MAX_SMALL_BYTES", most)
        spool = Spool()
        logs = read_log_files([(path, []), (plain, []), (packed, [])], spool)
        found = [
            log.rows["sources"][0]["log_format"] for log in logs if not isinstance(log, Exception)
        ]
        assert found == [MEGATRON_DEEPSPEED.name, format_of(same(plain)), MEGATRON_DEEPSPEED.name]


@pytest.mark.parametrize("theirs", ["all", "some"])
@each_log
def test_plans_of_others_are_watched(made: Lines, theirs: str, tmp_path: Path) -> None:
    lines, other, draw = made(tmp_path), Other(), Random(1)  # noqa: S311 - no secret

    def planned(
        planner: BlockPlanner, chunks: Iterable[Chunk]
    ) -> Iterator[tuple[Chunk, BlockPlan | None]]:
        for chunk in chunks:
            mine = chunk.cut or not chunk.ended or (theirs == "some" and draw.random() < 0.5)
            yield chunk, None if mine else other.plan(planner, chunk)

    for more in ([], [b"epoch: 3", *lines[-40:]], [TRAINER.encode(), *lines[-40:]]):
        path = written(tmp_path / "run.log", [*lines, *more])
        assert watched(path)
        spool = Spool()
        tables = read_log(path, spool, plan_chunks=planned).tables(spool)
        fast = Reading({name: collect_rows(table) for name, table in tables.items()})
        assert list(differences(fast, same(path))) == []


# -- what the watch rests on ----------------------------------------------------------------


def test_nothing_of_this_holds_if_nobody_watches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FormatWatch, "may_hold_mark", lambda *_: False)
    for made in (of_an_engine, of_dicts):
        path = written(tmp_path / "run.log", [*made(tmp_path), TRAINER.encode()])
        assert list(differences(reading(path, fast=True), reading(path, fast=False)))


@given(st.text("12  ,:ab"), st.text("12  ,:ab", max_size=4))
def test_a_text_holds_another_one_in_whatever_is_alike(text: str, part: str) -> None:
    assert fold_digits_and_blanks(part) in fold_digits_and_blanks(f"{text}{part}{text}")
    assert fold_digits_and_blanks(text) == fold_digits_and_blanks(
        re.sub(r"\d+", "123", re.sub(" +", "   ", text))
    )


ALL_NOISE: Final = detection._noise(BUILT_IN_FORMATS)


@given(st.text("12;; [[m\x1bKx"), st.data())
def test_what_is_noise_is_so_with_other_digits_and_blanks(text: str, data: st.DataObject) -> None:
    cleaner = Cleaner(ALL_NOISE)
    other = re.sub(r"\d+", lambda _: data.draw(st.from_regex(r"[0-9]{1,6}", fullmatch=True)), text)
    other = re.sub(" +", lambda _: data.draw(st.from_regex(" {1,4}", fullmatch=True)), other)
    assert cleaner.runs_alike
    assert fold_digits_and_blanks(
        cleaner.strip(fold_digits_and_blanks(text))
    ) == fold_digits_and_blanks(cleaner.strip(other))


@pytest.mark.parametrize(
    "noise",
    [
        r"\d\d:",
        r"\d{2,}:",
        r"\d?:",
        r"\d+\d+:",
        r"\d+",
        r"(?:\d|xy)*:",
        r"a *b",
        r"a[ -~]*b",
        r"1*",
    ],
)
def test_noise_that_counts_digits_or_blanks_is_known(noise: str) -> None:
    assert not Cleaner(noise).runs_alike
    assert FormatWatch.of(noise, ["a mark"]) is None


@pytest.mark.parametrize(
    "noise", [None, ANSI_ESCAPE, r"\d*:", r"\d+:", r"(?:\d+;)*\d*m", r"<[a-z0-9]*>"]
)
def test_noise_of_any_length_is_known(noise: str | None) -> None:
    assert Cleaner(noise).runs_alike


def test_a_mark_without_literals_cannot_be_watched_for() -> None:
    assert FormatWatch.of(ANSI_ESCAPE, ["a mark", r"\d+"]) is None
    assert FormatWatch.of(ANSI_ESCAPE, ["a mark"]) is not None


@pytest.mark.parametrize("form", BUILT_IN_FORMATS, ids=lambda form: form.name)
def test_a_line_that_shows_a_format_may_show_it(form: LogFormat) -> None:
    watch = FormatWatch.of(ALL_NOISE, [form.signature])
    assert watch is not None
    for step in form.steps:
        assert watch.may_hold_mark(step.example) >= bool(re.search(form.signature, step.example))
