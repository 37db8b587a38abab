"""The fast reading of logs against the reading line by line, which is the specification.

Equal means every table, row and value, to the last bit. Logs are damaged in all the ways of
`damaged_lines`; a few hundred lines a format here, $FAIRMFU_GATE lines a format in `make gate`,
with the samples and the public and generated logs in full. A difference is brought down to the few
lines that show it, and told with the seed of its log.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import polars as pl
import pytest

from fairmfu.ingest.core.errors import FairmfuError
from fairmfu.ingest.core.schema import READING_COSTS
from fairmfu.ingest.decode import line_reader, tfevents
from fairmfu.ingest.detect import detection
from fairmfu.ingest.extract import log_tables
from fairmfu.ingest.extract.log_tables import cost_columns, read_log_tables
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.formats.spec import LogFormat
from fairmfu.ingest.launches import event_rows
from fairmfu.ingest.parse.line_matcher import line_matcher
from fairmfu.ingest.parse.line_parser import LineParser
from fairmfu.ingest.store.store import Tables
from fairmfu.ingest.vector import (
    block_parser,
    block_plan,
    fixed_layouts,
    line_cache,
    tfevents_columns,
)
from tests.support.damaged_events import TAGS, damaged_events
from tests.support.damaged_lines import damaged_log
from tests.support.effort import sampled
from tests.support.folders import ROOT
from tests.support.log_lines import KINDS, Kind, Style, noise, write_log
from tests.tools.corpus import CORPUS, GENERATED

pytestmark = sampled(6)

LINES: Final = int(os.environ.get("FAIRMFU_GATE") or 0)
"""Damaged lines a format; 0 in ordinary tests, which take `FEW`."""
FIRST: Final = int(os.environ.get("FAIRMFU_GATE_SEED") or 0)
"""Seed of the first damaged log; those behind it count on."""
FEW: Final = 300
FEW_LOGS: Final = 8
OF_A_LOG: Final = 8_000 if LINES else 300
LARGE: Final = 10_000
"""Bytes: larger public logs are read by `make gate` alone."""

BY_LINE: Final = [f for f in BUILT_IN_FORMATS if f.join is None or f.addition is not None]
SAMPLES: Final = ROOT / "sample_logs"
COUNTS: Final = ("step_lines", "known_lines", "companion_lines", "other_lines", "unread_lines")
WAYS: Final = ("block_lines", "regex_lines", "cached_lines")
TRIES: Final = 400
"""Readings in which a log that shows a difference is made smaller."""


# -- two readings ---------------------------------------------------------------------------


@dataclass
class Reading:
    """The tables of a log, or why it is refused; `by_line`: lines that regexes have read."""

    tables: Tables = field(default_factory=dict)
    refused: str = ""
    by_line: int = 0

    @property
    def source(self) -> dict[str, Any]:
        return self.tables["sources"].row(0, named=True)


def reading(path: Path, *, fast: bool) -> Reading:
    try:
        with counted_lines() as count:
            tables = read_log_tables(path, use_fast_path=fast)
    except FairmfuError as error:
        return Reading(refused=str(error))
    return Reading(tables, by_line=count[0])


@contextmanager
def counted_lines() -> Iterator[list[int]]:
    """Return the number of records read one by one."""
    count, read = [0], LineParser.read

    def counting(*given: Any, **named: Any) -> None:
        count[0] += 1
        read(*given, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LineParser, "read", counting)
        patch.setattr(log_tables, "cost_columns", cost_columns)
        yield count


def differences(fast: Reading, slow: Reading) -> Iterator[str]:
    """What is not the same; nothing where all is."""
    if fast.refused or slow.refused:
        if fast.refused != slow.refused:
            yield f"refused: {fast.refused or 'read'!r}, not {slow.refused or 'read'!r}"
        return
    for name, expected in slow.tables.items():
        tables = (one.drop(READING_COSTS, strict=False) for one in (fast.tables[name], expected))
        yield from (f"{name}: {text}" for text in unlike(*tables))
    if fast.tables.keys() != slow.tables.keys():
        yield f"tables {fast.tables.keys()}, not {slow.tables.keys()}"


def unlike(one: pl.DataFrame, other: pl.DataFrame) -> Iterator[str]:
    """Columns, dtypes, heights and values that differ; floats by their bits, any NaN as one."""
    if one.schema != other.schema:
        yield f"{one.schema}, not {other.schema}"
    elif one.height != other.height:
        yield f"{one.height} rows, not {other.height}"
    else:
        for column in other:
            here = np.flatnonzero(~same(one[column.name], column))
            if len(here):
                place = int(here[0])
                two = one[column.name][place], column[place]
                yield f"{column.name}, row {place} of {len(here)} such: {two[0]!r}, not {two[1]!r}"


def same(one: pl.Series, other: pl.Series) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Of each row whether the values are one."""
    floats = other.dtype.is_float()
    if other.null_count() == one.null_count() == len(other) or (not floats and one.equals(other)):
        return np.ones(len(other), bool)  # most columns, and soon said
    if not floats:
        return np.array(one.eq_missing(other).to_list(), dtype=bool)
    bits = [
        s.fill_nan(float("nan")).fill_null(0.0).to_numpy().view(np.uint64) for s in (one, other)
    ]
    nan = one.is_nan().fill_null(value=False) & other.is_nan().fill_null(value=False)
    nulls = (one.is_null() == other.is_null()).to_numpy()
    equal: np.ndarray[Any, np.dtype[np.bool_]] = ((bits[0] == bits[1]) | nan.to_numpy()) & nulls
    return equal


def uncounted(read: Reading, text: bytes) -> Iterator[str]:
    """Lines that are counted twice or never."""
    source, tables = read.source, read.tables
    counts = [source[name] for name in COUNTS]
    if (by_way := sum(source[name] for name in WAYS)) != source["lines"]:
        yield f"{by_way} lines read in any way, of {source['lines']}"
    if sum(counts) != source["lines"]:
        yield f"{dict(zip(COUNTS, counts, strict=True))} of {source['lines']} lines"
    if (lines := text.count(b"\n") + (not text.endswith(b"\n"))) != source["lines"]:
        yield f"{source['lines']} lines, not {lines}"
    if tables["steps"].height != source["step_lines"]:
        yield f"{tables['steps'].height} rows of {source['step_lines']} lines"
    if tables["unread"].height != source["unread_lines"]:
        yield f"{tables['unread'].height} unread of {source['unread_lines']}"


def faults(path: Path) -> list[str]:
    """All that is wrong with the readings of a log; a crash too."""
    return compared(path)[0]


def compared(path: Path) -> tuple[list[str], Reading]:
    """The faults, and the fast reading."""
    try:
        fast, slow = reading(path, fast=True), reading(path, fast=False)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a fault
        return [f"{type(error).__name__}: {error}"], Reading()
    wrong, text = list(differences(fast, slow)), path.read_bytes()
    if not slow.refused:
        wrong += [*uncounted(slow, text), *uncounted(fast, text)]
    return wrong, fast


def fewest_lines(text: bytes, wrong: Callable[[bytes], bool]) -> bytes:
    """Of the lines of a text those without which it is not wrong any more."""
    lines = text.split(b"\n")
    size, tries = len(lines) // 2, 0
    while size and tries < TRIES:
        place = 0
        while place < len(lines) and tries < TRIES:
            fewer = [*lines[:place], *lines[place + size :]]
            tries += 1
            if wrong(b"\n".join(fewer)):
                lines = fewer
            else:
                place += size
        size //= 2
    return b"\n".join(lines)


def told(path: Path, what: str) -> str:
    """The faults of a log, and the few lines of it that show one."""
    whole = faults(path)
    if not whole:
        return ""
    small = path.with_name(f"small-{path.name}")

    def wrong(text: bytes) -> bool:
        small.write_bytes(text)
        return bool(faults(small))

    few = fewest_lines(path.read_bytes(), wrong)
    small.write_bytes(few)
    lines = "\n".join(repr(line[:1000]) for line in few.split(b"\n")[:20])
    return f"{what}: {'; '.join(whole[:5])}\n{'; '.join(faults(small)[:5])} of\n{lines}"


# -- whole logs of a format's own examples ---------------------------------------------------


@pytest.mark.parametrize("form", BY_LINE, ids=lambda form: form.name)
def test_first_lines_of_all_kinds_are_read_alike(
    form: LogFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a large file of which no shape is known yet: some that may be steps state nothing."""
    draw = Random(form.name)  # noqa: S311 - no secret
    said = [line.example for line in (*form.steps, *form.facts, *form.events)]
    path = tmp_path / "run.log"
    path.write_text("\n".join([said[0], *draw.choices(said, k=300), "noise\n"]), encoding="utf-8")
    monkeypatch.setattr(block_plan, "MIN_LARGE_BLOCK_BYTES", 0)
    line_matcher.cache_clear()
    assert faults(path) == []


# -- damaged logs ---------------------------------------------------------------------------


@pytest.mark.parametrize("form", BY_LINE, ids=lambda form: form.name)
def test_damaged_logs_are_read_alike(
    form: LogFormat,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = by_line = refused = rows = 0
    seed = FIRST
    # one log may be nearly all noise
    while lines < (LINES or FEW) or (rows <= lines / 10 and seed - FIRST < FEW_LOGS):
        path = tmp_path / f"{form.name}-{seed}.log"
        text = damaged_log(form, seed, OF_A_LOG)
        path.write_bytes(text)
        # blocks end anywhere in a line, of logs that are smaller than one
        size = Random(seed).choice((30_011, 262_144, 2 * 1024 * 1024))  # noqa: S311
        monkeypatch.setattr(line_reader, "READ_BLOCK_BYTES", size)
        monkeypatch.setattr(block_plan, "MIN_BYTES_TO_LEARN", 0)
        monkeypatch.setattr(block_parser, "MAX_SINGLY_READ_LINES", 1)
        monkeypatch.setattr(fixed_layouts, "MIN_LAYOUT_LINES", Random(seed).choice((2, 20)))  # noqa: S311
        monkeypatch.setattr(fixed_layouts, "LAYOUT_LINE_DIVISOR", 10**9)
        monkeypatch.setattr(line_cache, "MIN_DOUBTFUL_LINES", 1)
        monkeypatch.setattr(event_rows, "MIN_FRAME_EVENTS", Random(seed).choice((1, 5, 64)))  # noqa: S311
        # looked at whole, or by their beginning and watched
        first = Random(seed).choice((5_000, 20_000, detection.FIRST_LOOK_BYTES))  # noqa: S311
        monkeypatch.setattr(detection, "FIRST_LOOK_BYTES", first)
        monkeypatch.setattr(detection, "MIN_BEGINNING_BYTES", first)
        wrong, read = compared(path)
        if wrong:
            pytest.fail(told(path, f"{form.name}, seed {seed}, blocks of {size} bytes"))
        refused += bool(read.refused)
        if not read.refused:
            lines, by_line = lines + read.source["lines"], by_line + read.by_line
            rows += read.tables["steps"].height
        path.unlink()
        seed += 1
    # a damaged line may look like one of another format; of few logs nearly all may have such
    assert refused <= 4 * (seed - FIRST - refused) + 8
    assert rows > lines / 10
    if LINES:
        with capsys.disabled():
            print(  # noqa: T201 - the report of `make gate`
                f"\n{form.name}: {lines:,} lines of {seed - FIRST} logs, {rows:,} rows, "
                f"{refused} logs refused; {1 - by_line / lines:.0%} of the lines read fast",
                file=sys.stderr,  # which workers of xdist share
            )


@pytest.mark.parametrize("log_format", TAGS)
def test_damaged_event_files_are_read_alike(
    log_format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = by_line = rows = refused = 0
    seed = FIRST
    while values < (LINES or 4 * FEW):
        path = tmp_path / f"events.out.tfevents.{seed}"
        draw = Random(seed)  # noqa: S311 - no secret
        damaged_events(path, log_format, seed, 800 if LINES else 120)
        # windows end anywhere in a step; runs that are few are learned too, and held ones let go
        monkeypatch.setattr(tfevents, "READ_WINDOW_BYTES", draw.choice((1_000, 9_973, 1 << 20)))
        monkeypatch.setattr(tfevents_columns, "MIN_RUNS_TO_LEARN", draw.choice((2, 20)))
        monkeypatch.setattr(tfevents_columns, "MAX_HELD_VALUES", draw.choice((15, 100_000)))
        monkeypatch.setattr(tfevents_columns, "MAX_RUN_KINDS", 10)
        fast, slow = reading(path, fast=True), reading(path, fast=False)
        seed += 1
        refused += bool(slow.refused)
        assert list(differences(fast, slow)) == [], f"{log_format}, seed {seed - 1}"
        if not slow.refused:
            source = fast.source
            assert sum(source[name] for name in COUNTS) == source["lines"]
            values, by_line = values + source["lines"], by_line + fast.by_line
            rows += fast.tables["steps"].height
    assert refused < 0.8 * (seed - FIRST)
    assert rows > values / 30
    if tfevents_columns.reads_by_columns(next(f for f in BUILT_IN_FORMATS if f.name == log_format)):
        assert by_line < 2 / 3 * values  # a dozen files: some draws damage most of them


@pytest.mark.parametrize("stamp", ["9999-12-31 23:59:59,000", "0001-01-01 00:00:00,000"])
def test_a_stamp_at_the_end_of_time_does_not_stop_a_log(stamp: str, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    line = f"{stamp} - root - INFO - step: {{}}  loss:  8.1  memory:  1.50GiB(3.00%)  tps: 1,000\n"
    path.write_text(line.format(2) + line.format(1))
    assert read_log_tables(path, use_fast_path=False)["steps"].height == 2


# -- whole logs -----------------------------------------------------------------------------


def logs(*folders: Path) -> list[Any]:
    """Files of folders that exist, by name, with what stands for those that do not."""
    out = []
    for folder in folders:
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        names = [str(path.relative_to(folder.parent)) for path in paths]
        missing = [pytest.param(folder, id=f"no folder {folder.name}")]
        out += [pytest.param(p, id=n) for p, n in zip(paths, names, strict=True)] or missing
    return out


@pytest.mark.parametrize("path", logs(CORPUS, GENERATED)[:: 1 if LINES else 3])
def test_public_and_generated_logs_are_read_alike(path: Path) -> None:
    if not path.is_file():
        name = "FAIRMFU_CORPUS" if path == CORPUS else "FAIRMFU_GENERATED"
        pytest.skip(f"no folder of logs at {path}: ${name} may name one")
    if path.stat().st_size > LARGE and not LINES:
        pytest.skip("a large log: `make gate` reads it")
    assert list(differences(reading(path, fast=True), reading(path, fast=False))) == []


@pytest.mark.parametrize("path", logs(SAMPLES)[:: 1 if LINES else 3])
def test_sample_logs_are_read_alike(path: Path) -> None:
    assert list(differences(reading(path, fast=True), reading(path, fast=False))) == []


@pytest.mark.parametrize("style", [Style(), Style(ansi=False, ranks=1)], ids=["ranks", "one rank"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.log_format)
def test_what_was_written_is_read(kind: Kind, style: Style, tmp_path: Path) -> None:
    """Each row, value and line number, of logs whose rows are known."""
    log, truth = tmp_path / "run.log", tmp_path / "rows.parquet"
    size, few = (4_000_000 if LINES else 80_000), noise(kind, style, 0, 2_000)
    write_log(log, kind, size, truth=truth, style=style, between=few, at_once=200)
    written = pl.read_parquet(truth)
    for fast in (True, False):
        read = reading(log, fast=fast)
        assert read.source["log_format"] == kind.log_format
        assert list(unlike(read.tables["steps"].select(written.columns), written)) == []
        assert list(uncounted(read, log.read_bytes())) == []


@pytest.mark.parametrize("tokens", [2**14, 2**16, 2**18, 2**20][:: 1 if LINES else 3])
def test_counts_that_grow_are_read_alike(tokens: int, tmp_path: Path) -> None:
    """Few of a block's lines have a count of eight digits, which is one word; most are wider."""
    lines = (
        f" iteration {step:8d}/   10000 | consumed samples: {8 * step:12d} | "
        f"consumed tokens: {tokens * step:12d} | elapsed time per iteration (ms): 723.1 | "
        f"learning rate: 3.000E-04 | global batch size: {8:5d} | lm loss: 2.{step:06d}E+00 |\n"
        for step in range(1, 8_001)
    )
    log = tmp_path / "run.log"
    log.write_text("".join(lines))
    fast, slow = reading(log, fast=True), reading(log, fast=False)
    assert fast.by_line < 1_000 < slow.by_line
    assert list(differences(fast, slow)) == []
    assert fast.tables["steps"]["consumed_tokens"].to_list() == [
        tokens * n for n in range(1, 8_001)
    ]


# -- the gate itself ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([1.0, 2.0], [1.0, 2.0000000000000004]),
        ([0.0], [-0.0]),
        ([None], [float("nan")]),
        ([None], [0.0]),
        (["a"], ["b"]),
        (["a"], [None]),
        ([1], [1.0]),
        ([1], [1, 1]),
    ],
)
def test_a_difference_is_seen(one: Sequence[Any], other: Sequence[Any]) -> None:
    frames = [pl.DataFrame({"x": pl.Series(values, strict=False)}) for values in (one, other)]
    assert len(list(unlike(*frames))) == 1
    for frame in frames:
        assert list(unlike(frame, frame.clone())) == []


TRAINER = "{{'loss': '{0:.4f}', 'epoch': '{1:.4f}', 'num_input_tokens_seen': {2}}}"
ENGINE = (
    "[2026-01-02 03:{3:02}:{4:02},999] [INFO] [logging.py:123:log_dist] [Rank 0] step={2}, "
    "skipped=0, lr=[0.0003], mom=[(0.9, 0.95)]"
)


@pytest.mark.parametrize(("line", "naught"), [(TRAINER, "0.0"), (ENGINE, "0")])
@pytest.mark.parametrize("seed", range(5 if LINES else 2))
def test_what_is_0_is_read_as_line_by_line(
    line: str, naught: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens that are 0.0 are not counted; the engine's step 0 is its start."""
    monkeypatch.setattr(block_plan, "MIN_BYTES_TO_LEARN", 0)
    monkeypatch.setattr(block_parser, "MAX_SINGLY_READ_LINES", 1)
    draw = Random(seed)  # noqa: S311 - lines to try
    steps = (f"{n}.5" if naught == "0.0" else f"{n}" for n in range(1, 400))
    said = [naught if n % 9 == 0 and n > 200 else step for n, step in enumerate(steps)]
    lines = [
        line.format(draw.uniform(1, 9), n / 100, step, n // 60, n % 60)
        for n, step in enumerate(said)
    ]
    log = tmp_path / "run.log"
    log.write_text("\n".join(lines) + "\n")
    assert faults(log) == []


def test_a_difference_is_brought_down_to_its_lines() -> None:
    text = b"\n".join(b"line %d" % number for number in range(100))
    few = fewest_lines(text, lambda some: b"line 17" in some and b"line 80" in some)
    assert few == b"line 17\nline 80"
