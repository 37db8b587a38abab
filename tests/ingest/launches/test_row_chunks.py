"""Rows that are put aside: several launches' in one piece, each with its own."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from fairmfu.ingest.core import spill
from fairmfu.ingest.launches.row_chunks import (
    MAPPING_ROW_WEIGHT,
    MAX_WAITING_FRAMES,
    frame_of_rows,
    select_filled,
    spool_waiting_rows,
    with_line_numbers,
)
from fairmfu.ingest.launches.step_rows import STEP_SCHEMA, StepRows

SCHEMA = {"line": pl.Int64(), "step": pl.Int64(), "rank": pl.String()}


def rows_of(*steps: int) -> StepRows:
    rows = StepRows(None, ["plain"])
    for line, step in enumerate(steps, 1):
        rows.append({"line": line, "rank": None, "step": step, "form": "plain"})
    return rows


def steps_of(rows: StepRows) -> list[int]:
    return [step for frame in rows.frames("step") for step in frame["step"]]


def test_rows_of_several_launches_are_put_aside_together() -> None:
    several = [rows_of(1, 2, 3), rows_of(), rows_of(4), rows_of(5, 6)]
    spool_waiting_rows(several)
    assert [steps_of(rows) for rows in several] == [[1, 2, 3], [], [4], [5, 6]]
    assert [rows.first_line for rows in several] == [1, None, 1, 1]
    several[2].append({"line": 9, "rank": None, "step": 7, "form": "plain"})
    assert [row["step"] for row in several[2]] == [4, 7]
    spool_waiting_rows(several)
    assert [steps_of(rows) for rows in several] == [[1, 2, 3], [], [4, 7], [5, 6]]
    assert several[2].last_line == 9


def test_rows_one_by_one_and_many_at_once_keep_their_order() -> None:
    rows = StepRows(None, ["plain"])
    for line in range(1, 2 * MAX_WAITING_FRAMES + 3):
        if line % 2:
            rows.append({"line": line, "rank": str(line), "step": line, "form": "plain"})
        else:
            twice = {"line": [line] * 2, "step": [line, -line], "form": [0, 0]}
            rows.extend(pl.DataFrame(twice, schema_overrides={"form": pl.Int8}))
    told = [
        step for n in range(1, 2 * MAX_WAITING_FRAMES + 3) for step in ((n,), (n, -n))[1 - n % 2]
    ]
    assert [row["step"] for row in rows] == told
    assert steps_of(rows) == told
    ranks = [rank for frame in rows.frames("rank") for rank in frame["rank"]]
    assert ranks == [str(step) if step % 2 else None for step in told]


def test_a_row_by_itself_weighs_as_several_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is put aside keeps its weight, of a row each."""
    monkeypatch.setattr(spill, "CHUNK_ROWS", 3 * MAPPING_ROW_WEIGHT)
    rows = rows_of(1, 2)
    assert rows.weight == 2 * MAPPING_ROW_WEIGHT
    rows.append({"line": 3, "rank": None, "step": 3, "form": "plain"})
    assert rows.weight == 3
    assert rows_of().weight == 0


def test_columns_that_no_row_fills_are_not_there() -> None:
    rows = rows_of(1)
    rows.extend(
        pl.DataFrame(
            {"line": [2], "step": [2], "form": [0], "extra": [None]},
            schema_overrides={"form": pl.Int8, "extra": pl.String},
        )
    )
    assert rows.has_columns("step")
    assert not rows.has_columns("extra")
    assert [frame["extra"].to_list() for frame in rows.frames("extra")] == [[None, None]]


def test_rows_become_a_frame_of_all_columns_or_of_those_they_fill() -> None:
    rows = [{"line": 1, "step": 5}, {"line": 2, "step": None}]
    assert frame_of_rows(rows, SCHEMA).columns == ["line", "step", "rank"]
    assert frame_of_rows(rows, SCHEMA)["rank"].to_list() == [None, None]
    filled = frame_of_rows(rows, SCHEMA, filled_only=True)
    assert filled.to_dict(as_series=False) == {"line": [1, 2], "step": [5, None]}
    assert frame_of_rows([], SCHEMA).schema == SCHEMA


def test_columns_are_selected_in_the_order_in_which_they_are_asked_for() -> None:
    frame = pl.DataFrame({"step": [5, 6], "line": [1, 2]})
    assert select_filled(frame, ["line", "rank", "step"], SCHEMA).rows() == [
        (1, None, 5),
        (2, None, 6),
    ]
    assert select_filled(frame, ["line", "step"], SCHEMA).columns == ["line", "step"]
    assert select_filled(frame, ["step", "line"], SCHEMA).columns == ["step", "line"]


def test_lines_are_counted_anew_of_rows_of_both_kinds() -> None:
    lines = np.array([7, 9])
    rows = [{"line": 1, "step": 5}, {"step": 6}]
    assert with_line_numbers(rows, lines) == [{"line": 7, "step": 5}, {"line": 9, "step": 6}]
    for frame in (pl.DataFrame({"step": [5, 6]}), pl.DataFrame({"line": [1, 2], "step": [5, 6]})):
        made = with_line_numbers(frame, lines)
        assert isinstance(made, pl.DataFrame)
        assert made.select("line", "step").rows() == [(7, 5), (9, 6)]
        assert made.schema["line"] == STEP_SCHEMA["line"]


def test_rows_are_asked_for_by_their_places() -> None:
    rows = rows_of(5, 6)
    spool_waiting_rows([rows])
    rows.append({"line": 3, "rank": None, "step": 7, "form": "plain"})
    assert [rows[place]["step"] for place in (0, 1, 2, -1, -3)] == [5, 6, 7, 7, 5]
    assert [row["step"] for row in rows[1:]] == [6, 7]
    for place in (3, -4):
        with pytest.raises(IndexError):
            rows[place]
    with pytest.raises(IndexError):
        rows_of()[0]
