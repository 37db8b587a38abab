"""Events that came many at once and one by one: the same rows, in the order of their lines."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from fairmfu.ingest.core import spill
from fairmfu.ingest.core.spill import Spool
from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.launches import event_rows
from fairmfu.ingest.launches.event_rows import EVENT_SCHEMA, LINE_OF_ROW, EventRows, events_frame
from fairmfu.ingest.vector import block_parser, block_plan
from tests.support.effort import THOROUGH

KINDS = ("deepspeed_step", "checkpoint", "end")


def event(line: int, draw: Random) -> dict[str, Any]:
    said = {
        "kind": draw.choice(KINDS),
        "step": draw.choice((None, line)),
        "logged_at": draw.choice((None, datetime(2026, 1, 2, 3, 4, line % 60))),
        "text": f"line {line} of more than twelve bytes",
    }
    return dict.fromkeys(EVENT_SCHEMA) | {"line": line} | said


def mixed(draw: Random, kept: Spool) -> tuple[EventRows, list[dict[str, Any]]]:
    """Events as they are read, and the same as a list in the order in which they came.

    Some come behind later lines, some are of one line.
    """
    found, plain, line = EventRows(kept), list[dict[str, Any]](), 1
    for _ in range(draw.randrange(30)):
        if draw.random() < 0.4:
            rows = [
                event(line := line + draw.randint(1, 3), draw)
                for _ in range(draw.choice((1, 5, 9)))
            ]
            found.extend(pl.DataFrame(rows, schema=EVENT_SCHEMA).drop("seconds"))
        else:
            late = plain and draw.random() < 0.2
            line += 0 if late else draw.randint(0, 2)
            rows = [event(draw.randint(1, line) if late else line, draw)]
            found.append(rows[0])
        plain += rows
    return found, plain


@pytest.mark.parametrize("seed", range(60 if THOROUGH else 20))
def test_events_stand_in_the_order_of_their_lines(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = Random(seed)  # noqa: S311 - events to try
    monkeypatch.setattr(event_rows, "MIN_FRAME_EVENTS", draw.choice((1, 6)))
    monkeypatch.setattr(spill, "CHUNK_ROWS", draw.choice((1, 40, 10_000)))
    kept = Spool(max_held_bytes=draw.choice((0, None)))
    runs = []
    for number in range(3):
        found, plain = mixed(draw, kept)
        ends = [one for one in plain if one["kind"] == "end"]
        assert sorted(found.of_kinds(["end"]), key=LINE_OF_ROW) == sorted(ends, key=LINE_OF_ROW)
        found.settle()
        plain.sort(key=LINE_OF_ROW)
        assert (list(found), len(found)) == (plain, len(plain))
        line = draw.randint(0, 60)
        behind = [one for one in plain if one["kind"] != "end" and one["line"] > line]
        assert list(found.of_kinds(KINDS[:2], after_line=line)) == behind
        runs.append((f"run {number}", found, plain))
    said = [{"run_id": name, **one} for name, _, plain in runs for one in plain]
    made = events_frame([(name, found) for name, found, _ in runs])
    assert_frame_equal(made, pl.DataFrame(said, schema=made.schema))
    for _, found, plain in runs:
        assert [row for frame in found.frames(*EVENT_SCHEMA) for row in frame.to_dicts()] == plain
        later = [datetime(2027, 1, 1, 0, 0, place % 60) for place in range(len(plain))]
        assert [one["logged_at"] for one in found.dated(later)] == later


@pytest.mark.parametrize("many", [1, 100])
def test_events_of_a_part_come_as_a_list_or_as_a_frame(many: int) -> None:
    draw = Random(1)  # noqa: S311 - events to try
    rows = [event(line, draw) for line in range(1, many + 1)]
    for part in (rows, pl.DataFrame(rows, schema=EVENT_SCHEMA)):
        found = EventRows()
        found.extend(part)
        assert list(found) == rows
        assert list(found.of_kinds(KINDS)) == rows


STEP = (
    " iteration {0:8}/    1000 | consumed samples: {0} | elapsed time per iteration (ms): 7.{0} | "
    "learning rate: 3.000E-04 | global batch size:   512 | lm loss: {1}.{0:06}E+00 | "
    "number of skipped iterations:   0 | number of nan iterations:   0 |"
)
ENGINE = (
    "[2026-01-02 03:04:05,999] [INFO] [logging.py:123:log_dist] [Rank 0] step={}, skipped=0, "
    "lr=[0.0003], mom=[(0.9, 0.95)]"
)
SAVED = "  successfully saved checkpoint at iteration {:7d} to /checkpoints"
SAYS = "using world size: 8, data-parallel-size: 4, tensor-model-parallel size: 2 "


def test_events_around_a_restart_within_a_block_are_of_the_launch_they_were_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those behind its last step too, but not those behind what the next one states of itself."""
    monkeypatch.setattr(block_plan, "MIN_BYTES_TO_LEARN", 0)
    monkeypatch.setattr(block_parser, "MAX_SINGLY_READ_LINES", 1)
    lines, owner = list[str](), list[int]()

    def write(launch: int, *texts: str) -> None:
        lines.extend(texts)
        owner.extend([launch] * len(texts))

    for step in range(1, 301):
        write(1, ENGINE.format(step), STEP.format(step, 4))
        if step % 100 == 0:
            write(1, SAVED.format(step))
    write(1, *(ENGINE.format(step) for step in range(301, 306)))
    write(2, SAYS, *(ENGINE.format(step) for step in range(90, 101)))
    for step in range(101, 401):
        write(2, STEP.format(step, 3), ENGINE.format(step))
    write(2, *(ENGINE.format(step) for step in range(401, 420)), SAVED.format(419))
    log = tmp_path / "run.log"
    log.write_text("\n".join(lines) + "\n")
    slow = read_log_tables(log, use_fast_path=False)
    assert slow["runs"].height == 2
    for few in (1, 10, 1_000):
        monkeypatch.setattr(event_rows, "MIN_FRAME_EVENTS", few)
        fast = read_log_tables(log)
        for name in ("runs", "steps", "facts", "events"):
            assert_frame_equal(fast[name], slow[name])
    ids = slow["runs"]["run_id"].to_list()
    expected = [
        (ids[launch - 1], number)
        for number, (text, launch) in enumerate(zip(lines, owner, strict=True), 1)
        if "step=" in text or "saved" in text
    ]
    assert fast["events"].select("run_id", "line").rows() == expected
