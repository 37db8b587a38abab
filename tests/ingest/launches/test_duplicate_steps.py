"""Steps that come again: held against earlier ones many at once as they are one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from math import inf, nan
from pathlib import Path
from random import Random
from typing import Any, Final

import numpy as np
import polars as pl
import pytest

from fairmfu.ingest.core import spill
from fairmfu.ingest.core.spill import collect_rows
from fairmfu.ingest.decode import line_reader
from fairmfu.ingest.formats.megatron.console import MEGATRON_DEEPSPEED
from fairmfu.ingest.formats.spec import LAUNCH_STEPS, LogFormat
from fairmfu.ingest.launches.duplicate_steps import EarlierRows
from fairmfu.ingest.launches.launch import (
    NO_STAMP,
    FormRows,
    Launch,
    begins_new_launch,
    count_same_process_rows,
)
from fairmfu.ingest.launches.row_chunks import Row, frame_of_rows
from fairmfu.ingest.launches.step_rows import (
    FORM_COLUMN,
    PARSED_STEP_SCHEMA,
    REPEAT_COLUMN,
    StepRows,
)
from fairmfu.ingest.vector import block_parser, block_plan
from tests.ingest.vector.test_gate import BY_LINE, differences, reading
from tests.support import damaged_lines
from tests.support.damaged_lines import next_step
from tests.support.effort import THOROUGH, sampled

Lines = list[bytes]

NO_TIME: Final = datetime(9998, 12, 31)
"""Of a year that no stamp is read of."""
STEPS: Final = 30
LOGS: Final = 100 if THOROUGH else 1
"""Of a format."""
DRAWS: Final = 4 * 100 if THOROUGH else 3
"""Of rows of steps."""


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done with many lines is done with few."""
    monkeypatch.setattr(block_plan, "MIN_BYTES_TO_LEARN", 0)
    monkeypatch.setattr(block_parser, "MAX_SINGLY_READ_LINES", 1)


# -- logs that hold copies of themselves ---------------------------------------------------


def written(form: LogFormat, draw: Random) -> Lines:
    """Lines of steps of one kind, or of two that print each step, without a time."""
    kinds = draw.sample(form.steps, draw.choice((1, min(2, len(form.steps)))))
    return [
        next_step(form, kind, draw, step, NO_TIME).encode()
        for step in range(1, STEPS)
        for kind in kinds
    ]


def other_values(line: bytes, draw: Random) -> bytes:
    """The line with another last digit of one of its numbers."""
    places = [at for at, byte in enumerate(line) if byte in b"0123456789"]
    at = draw.choice(places)
    return line[:at] + b"%d" % draw.randrange(10) + line[at + 1 :]


def whole(log: Lines, _: Random) -> Lines:
    return log


def tail(log: Lines, draw: Random) -> Lines:
    return log[-draw.randrange(1, len(log)) :]


def thrice(log: Lines, _: Random) -> Lines:
    return [*log, *log]


def each_block(log: Lines, draw: Random) -> Lines:
    """More lines, by two who print the same: block by block, as their buffers go out."""
    size = draw.choice((1, 3, 20))
    blocks = [log[at : at + size] for at in range(0, len(log), size)]
    return [line for block in blocks for line in (*block, *block)]


def changed(log: Lines, draw: Random) -> Lines:
    """The same steps, now and then with another value."""
    share = draw.choice((0.02, 0.3, 1.0))
    return [other_values(line, draw) if draw.random() < share else line for line in log]


def shuffled(log: Lines, draw: Random) -> Lines:
    """As late as lines of processes are that print into one file."""
    late = {place: place + 5 * draw.random() for place in range(len(log))}
    return [log[place] for place in sorted(late, key=late.__getitem__)]


def of_ranks(log: Lines, draw: Random) -> Lines:
    return [b"[rank%d]:" % draw.randrange(2) + line for line in log]


COPIES: Final = (whole, tail, thrice, each_block, changed, shuffled, of_ranks)


@sampled(3)
@pytest.mark.parametrize("form", BY_LINE, ids=lambda form: form.name)
def test_a_log_with_copies_of_its_steps_is_read_alike(
    form: LogFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever copies, blocks and pieces of rows end, and whatever else stands between."""
    log = tmp_path / "run.log"
    for seed in range(LOGS):
        draw = Random(seed)  # noqa: S311 - lines to try
        once, copies = written(form, draw), draw.sample(COPIES, draw.choice((1, 1, 2)))
        lines = [*once, *(line for copy in copies for line in copy(once, draw))]
        ends = [event.example.encode() for event in form.events if event.kind == "end"]
        between = [b"", b"other", lines[-1][:40], *ends]
        for _ in range(draw.choice((0, 0, 10))):
            lines.insert(draw.randrange(len(lines)), draw.choice(between))
        log.write_bytes(b"\n".join(lines) + b"\n")
        size = len(b"".join(lines))
        monkeypatch.setattr(
            line_reader, "READ_BLOCK_BYTES", draw.choice((997, size // 3, 2 * size))
        )
        monkeypatch.setattr(spill, "CHUNK_ROWS", draw.choice((5, 40, 100_000)))
        monkeypatch.setattr(spill, "MAX_HELD_BYTES", draw.choice((0, 100_000)))
        wrong = list(differences(reading(log, fast=True), reading(log, fast=False)))
        assert wrong == [], (seed, [copy.__name__ for copy in copies])


def test_copies_are_read_many_at_once_and_looked_for_in_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill, "CHUNK_ROWS", 30)
    monkeypatch.setattr(line_reader, "READ_BLOCK_BYTES", 9_000)
    found, of_steps = list[tuple[int, int]](), StepRows.rows_of_steps

    def counted(rows: StepRows, steps: Any) -> pl.DataFrame:
        frame = of_steps(rows, steps)
        found.append((frame.height, len(steps)))
        return frame

    monkeypatch.setattr(StepRows, "rows_of_steps", counted)
    monkeypatch.setattr(damaged_lines, "OTHER_FACTS", 0.0)
    log, draw, form = tmp_path / "run.log", Random(1), MEGATRON_DEEPSPEED  # noqa: S311
    once = [next_step(form, form.steps[0], draw, step, NO_TIME) for step in range(1, 121)]
    log.write_text("\n".join(once * 5) + "\n")
    read = reading(log, fast=True)
    assert (read.tables["runs"].height, read.tables["steps"].height) == (1, 600)
    assert read.by_line < 5
    assert len(found) > 20
    assert all(rows <= steps for rows, steps in found)


def test_where_runs_begin_again_at_each_row_few_look_ups_are_in_vain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many rows are left to the parser behind them, whatever stands between the rows."""
    of_steps, log, draw = StepRows.rows_of_steps, tmp_path / "run.log", Random(1)  # noqa: S311
    count = 600 if THOROUGH else 300
    lines = [next_step(MEGATRON_DEEPSPEED, LINE, draw, 5, NO_TIME) for _ in range(count)]
    for others in (0, 9):
        found = list[int]()

        def counted(rows: StepRows, steps: Any, found: list[int] = found) -> pl.DataFrame:
            found.append(len(steps))
            return of_steps(rows, steps)

        monkeypatch.setattr(StepRows, "rows_of_steps", counted)
        log.write_text("".join(line + "\n" + "another line\n" * others for line in lines))
        assert reading(log, fast=True).tables["runs"].height == count
        assert len(found) < 2 * count / block_parser.MAX_SINGLY_READ_ROWS


# -- the rule of one row, and of many ------------------------------------------------------


LINE: Final = MEGATRON_DEEPSPEED.steps[0]
FORMS: Final = (LINE, replace(LINE, counts=LAUNCH_STEPS), replace(LINE, anchor="another"))
LOSSES: Final = (None, 2.0, 2.0, 2.0, 2.0005, 2.1, 0.0, -0.0, -1.0, nan, -nan, inf, -inf)


def drawn_row(draw: Random, line: int, losses: Sequence[float | None], *, clocks: bool) -> Row:
    row = {
        "line": line,
        FORM_COLUMN: draw.choice(FORMS),
        "rank": draw.choice((None, None, None, "0", "1")),
        "step": draw.randrange(6),
        "logged_at": None,
        "loss": draw.choice(losses),
    }
    if clocks and draw.random() < 0.7:
        row["since_start_s"] = draw.choice((line, line, line - 1.5, line + 70.0, 0.0))
    if draw.random() < 0.3:
        row["epoch"] = draw.choice((1, 2))
    return row


def advanced(launch: Launch, row: Row) -> None:
    """As the parser has it behind a row."""
    progress = launch.progress_of(row)
    if row["step"] > progress.top_step:
        progress.top_step, progress.top_clock = row["step"], row.get("since_start_s")


def sure_at_once(launch: Launch, rows: Sequence[Row], earlier: EarlierRows) -> int:
    """How many of the rows are of the launch by the rule of many; of each form of one epoch."""
    sure = len(rows)
    for form in FORMS:
        mine = [
            at for at, row in enumerate(rows) if row[FORM_COLUMN] is form and at < first_other(rows)
        ]
        if mine:
            clocks = [rows[at].get("since_start_s") for at in mine]
            given = FormRows(
                np.array([rows[at]["step"] for at in mine]),
                np.full(len(mine), NO_STAMP),
                np.array([nan if clock is None else clock for clock in clocks]),
                lambda _: (),
                lambda count, mine=mine: earlier.of(np.array(mine[:count])),  # type: ignore[misc]
            )
            progress = launch.known_progress(form, rows[mine[0]].get("epoch"))
            sure = min(sure, [*mine, sure][count_same_process_rows(launch, progress, given)])
    return min(sure, first_other(rows))


def first_other(rows: Sequence[Row]) -> int:
    """The first row that is of another epoch than the first of its form."""
    epochs = dict[int, int | None]()
    for at, row in enumerate(rows):
        epoch = row.get("epoch") if row[FORM_COLUMN].counts else None
        if epochs.setdefault(id(row[FORM_COLUMN]), epoch) != epoch:
            return at
    return len(rows)


def sure_one_by_one(launch: Launch, rows: Sequence[Row], *, one_writer: bool) -> int:
    """The same by the rule of one, which takes these rows into the launch."""
    known = [launch.known_progress(row[FORM_COLUMN], row.get("epoch")) is not None for row in rows]
    for at, row in enumerate(rows[: first_other(rows)]):
        if not known[at] or begins_new_launch(launch, row, single_writer=one_writer):
            return at
        launch.rows.append(dict(row))
        advanced(launch, row)
    return first_other(rows)


@pytest.mark.parametrize("one_writer", [True, False])
def test_the_rule_of_many_rows_is_that_of_one(
    monkeypatch: pytest.MonkeyPatch, *, one_writer: bool
) -> None:
    """Those before them wait or were put aside; they came one by one, or many at once."""
    taken = 0
    for seed in range(DRAWS):
        draw = Random(seed)  # noqa: S311 - rows to try
        monkeypatch.setattr(spill, "CHUNK_ROWS", draw.choice((4, 20, 1000)))
        losses, clocks = draw.choice(((2.0,), LOSSES)), draw.random() < 0.5
        every = [drawn_row(draw, line, losses, clocks=clocks) for line in range(1, 80)]
        plain, fast = (Launch(1, rows=StepRows(None, FORMS)) for _ in range(2))
        while every:
            rows = every[: draw.randrange(1, 30)]
            placed = [row | {FORM_COLUMN: FORMS.index(row[FORM_COLUMN])} for row in rows]
            frame = frame_of_rows(placed, PARSED_STEP_SCHEMA, filled_only=True)
            earlier = EarlierRows(fast.rows, frame, 0, single_writer=one_writer)
            sure = sure_at_once(fast, rows, earlier)
            assert sure == sure_one_by_one(plain, rows, one_writer=one_writer), seed
            if sure:
                fast.rows.extend(earlier.with_repeats(sure))
            for row in rows[:sure]:
                advanced(fast, row)
            taken, every = taken + sure, every[sure:]
            if sure < len(rows):
                again = [
                    begins_new_launch(x, rows[sure], single_writer=one_writer)
                    for x in (fast, plain)
                ]
                assert again[0] == again[1], seed
                for launch in () if again[0] else (fast, plain):
                    launch.rows.append(dict(rows[sure]))
                    advanced(launch, rows[sure])
                every = every[1:]
    assert taken > 5 * DRAWS


def known_of(rows: StepRows, *behind: Row) -> EarlierRows:
    placed = [row | {FORM_COLUMN: FORMS.index(row[FORM_COLUMN])} for row in behind]
    return EarlierRows(
        rows, frame_of_rows(placed, PARSED_STEP_SCHEMA, filled_only=True), 0, single_writer=False
    )


def test_a_row_that_is_the_first_to_say_something_is_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such as the loss of a step that another line of its kind has printed without one."""
    monkeypatch.setattr(spill, "CHUNK_ROWS", 1)
    rows = StepRows(None, FORMS)
    rows.append({"line": 1, FORM_COLUMN: FORMS[0], "rank": None, "step": 1})
    second = known_of(
        rows, {"line": 2, FORM_COLUMN: FORMS[0], "rank": None, "step": 1, "loss": 2.0}
    )
    assert second.of(np.array([0])).has_earlier_row.tolist() == [True]
    rows.extend(second.with_repeats(1))
    third = known_of(rows, {"line": 3, FORM_COLUMN: FORMS[2], "rank": None, "step": 1, "loss": 3.0})
    assert third.of(np.array([0])).first_loss.tolist() == [2.0]


def test_rows_whose_steps_are_to_be_counted_are_no_copies_of_each_other() -> None:
    said = {FORM_COLUMN: FORMS[0], "rank": None, "loss": 2.0}
    stepless = known_of(
        StepRows(None, FORMS), *({"line": n, "step": None} | said for n in range(3))
    )
    stepless.of(np.arange(3))
    assert REPEAT_COLUMN not in stepless.with_repeats(3).columns
    same = known_of(StepRows(None, FORMS), *({"line": n, "step": 1} | said for n in range(3)))
    same.of(np.arange(3))
    assert same.with_repeats(3)[REPEAT_COLUMN].to_list() == [False, True, True]


def test_what_is_asked_of_a_few_rows_may_be_asked_of_more_behind_them() -> None:
    said = {FORM_COLUMN: FORMS[0], "rank": None}
    behind = [{"line": n, "step": n // 2, "loss": float(n)} | said for n in range(6)]
    asked, fresh = (known_of(StepRows(None, FORMS), *behind) for _ in range(2))
    assert not asked.was_asked
    assert asked.of(np.array([0, 1])).has_earlier_row.tolist() == [False, True]
    assert asked.was_asked
    every = fresh.of(np.arange(6))
    assert every.first_loss[[1, 3, 5]].tolist() == [0.0, 2.0, 4.0]
    for one, other in zip(asked.of(np.arange(6)), every, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(asked.of(np.array([4])), every, strict=True):  # known already
        np.testing.assert_array_equal(one, other[4:5])


@pytest.mark.parametrize("longer", [9, 20, 31])
def test_micro_steps_are_the_same_wherever_pieces_of_rows_end(
    longer: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A timer that counts micro-steps alone takes its steps from the engine's line before."""
    stamp = "[2026-01-01 00:00:00,000] [INFO]"
    lines, micro = [], 0
    for n in range(1, 41):
        micro += 3 if n in (longer, 25) else 1
        lines += [
            f"{stamp} [logging.py:96:log_dist] [Rank 0] step={n}, skipped=0, lr=[0.1], mom=[0.9]",
            f"{stamp} [timer.py:193:stop] 0/{micro}, SamplesPerSec=71.25, MemAllocated=0.50GB, "
            "MaxMemAllocated=7.25GB",
        ]
    log = tmp_path / "run.log"
    log.write_text("\n".join(lines) + "\n", encoding="utf-8")
    whole = reading(log, fast=False)
    assert "batch_changes" in collect_rows(whole.tables["facts"])["name"]
    for rows in range(3, 12) if THOROUGH else range(3 + longer % 3, 12, 3):
        monkeypatch.setattr(spill, "CHUNK_ROWS", rows)
        assert list(differences(reading(log, fast=rows % 2 == 0), whole)) == []
