"""Rows of a launch are what a plain list of them would be, wherever their pieces end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.ingest.core import spill
from fairmfu.ingest.launches.row_chunks import frame_of_rows
from fairmfu.ingest.launches.step_rows import (
    FORM_COLUMN,
    LOOKUP_COLUMNS,
    MAX_INDEXED_CHUNKS,
    PARSED_STEP_SCHEMA,
    REPEAT_COLUMN,
    STEP_SCHEMA,
    StepRows,
)

Row = dict[str, Any]

FORMS: Final = ("plain", "timer")

one_row = st.fixed_dictionaries(
    {
        "rank": st.sampled_from([None, "0"]),
        "step": st.integers(0, 9),
        FORM_COLUMN: st.sampled_from(FORMS),
    },
    optional={"loss": st.floats(0, 9, width=32), "extra": st.just('{"a": "b"}')},
)
parts = st.lists(st.tuples(st.booleans(), st.lists(one_row, min_size=1, max_size=6)), max_size=6)
"""Rows as they come: one by one, or many at once."""


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "CHUNK_ROWS", 10)


def framed(rows: Sequence[Row]) -> pl.DataFrame:
    placed = [row | {FORM_COLUMN: FORMS.index(row[FORM_COLUMN])} for row in rows]
    return frame_of_rows(placed, PARSED_STEP_SCHEMA, filled_only=True)


def add(rows: StepRows, plain: list[Row], part: Sequence[Row], *, at_once: bool) -> None:
    """Add lines to the rows, together or one by one, and to the plain list."""
    numbered = [row | {"line": len(plain) + n} for n, row in enumerate(part, 1)]
    if at_once:
        rows.extend(framed(numbered))
    else:
        for row in numbered:
            rows.append(dict(row))
    plain += numbered


def kept(came: Sequence[tuple[bool, list[Row]]]) -> tuple[StepRows, list[Row]]:
    """The rows of a launch, and the same as a plain list."""
    rows, plain = StepRows(None, FORMS), list[Row]()
    for at_once, part in came:
        add(rows, plain, part, at_once=at_once)
    return rows, plain


def told(rows: Iterator[Row] | Sequence[Row]) -> list[Row]:
    """What rows say, without what they leave open."""
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


def lines(rows: Iterator[Row] | Sequence[Row]) -> list[int]:
    return [row["line"] for row in rows]


@given(came=parts)
@settings(max_examples=25)
def test_rows_are_those_that_came_in_their_order(came: list[tuple[bool, list[Row]]]) -> None:
    rows, plain = kept(came)
    assert len(rows) == len(plain)
    assert told(rows) == told(plain)
    for place in range(-len(plain), len(plain)):
        assert rows[place]["line"] == plain[place]["line"]
        assert lines(rows[place:]) == lines(plain[place:])
    for place in (len(plain), -len(plain) - 1):
        with pytest.raises(IndexError):
            rows[place]
    for count in range(len(plain) + 1):
        assert lines(rows.behind(count)) == lines(plain[count:])
        assert lines(rows.without_last(count)) == lines(plain[: len(plain) - count])
    assert len(rows) == len(plain)


@given(came=parts)
@settings(max_examples=25)
def test_rows_of_a_step_are_found_in_each_piece(came: list[tuple[bool, list[Row]]]) -> None:
    """And among those that wait, also once more of them have come."""
    rows, plain = StepRows(None, FORMS), list[Row]()
    for at_once, part in came:
        add(rows, plain, part, at_once=at_once)
        for step in range(-1, 11):
            for rank in (None, "0", "1"):
                mine = [row for row in plain if (row["rank"], row["step"]) == (rank, step)]
                found = [
                    {name: row.get(name) for name in LOOKUP_COLUMNS} for row in rows.at(rank, step)
                ]
                assert found == [{name: row.get(name) for name in LOOKUP_COLUMNS} for row in mine]
        for steps in ([0], [9], [3, 4], [1, 7], [-1], [0, 5, 9, 12]):
            told_of = rows.rows_of_steps(np.array(steps))
            assert told_of.columns == list(LOOKUP_COLUMNS)
            assert told_of["step"].to_list() == [r["step"] for r in plain if r["step"] in steps]
            assert told_of["loss"].to_list() == [r.get("loss") for r in plain if r["step"] in steps]


@given(came=parts)
@settings(max_examples=25)
def test_what_is_known_of_all_rows_is_known_of_each(came: list[tuple[bool, list[Row]]]) -> None:
    rows, plain = kept(came)
    assert rows.first_line == (1 if plain else None)
    assert rows.last_line == len(plain)
    assert rows.top_step == max((row["step"] for row in plain), default=0)
    assert rows.forms() == [form for form in FORMS if form in {r[FORM_COLUMN] for r in plain}]
    frames = [*rows.frames("line", "loss", "epoch")]
    assert [line for frame in frames for line in frame["line"]] == lines(plain)
    assert [x for frame in frames for x in frame["loss"]] == [row.get("loss") for row in plain]
    assert all(frame["epoch"].null_count() == frame.height for frame in frames)
    again = [line for frame in rows.frames_reversed("line") for line in frame["line"]]
    assert sorted(again) == lines(plain)
    assert rows.has_columns("loss") == any("loss" in row for row in plain)
    assert not rows.has_columns("loss", "epoch")
    rows.transform(
        lambda frame: frame.with_columns(pl.col("step") * 3) if "step" in frame.columns else frame
    )
    assert [row["step"] for row in rows] == [3 * row["step"] for row in plain]
    assert rows.top_step == max((3 * row["step"] for row in plain), default=0)
    rows.settle()
    assert all(set(row) <= set(STEP_SCHEMA) for row in rows)


@given(came=parts)
@settings(max_examples=25)
def test_rows_by_their_steps_have_all_of_a_step_in_one_frame(
    came: list[tuple[bool, list[Row]]],
) -> None:
    rows, plain = kept(came)
    frames = [*rows.by_step("step", "line", "loss")] if plain else []
    every = [row for frame in frames for row in frame.rows()]
    assert every == sorted((row["step"], row["line"], row.get("loss")) for row in plain)
    steps = [set(frame["step"]) for frame in frames]
    assert sum(map(len, steps)) == len(set().union(*steps))


def test_the_last_piece_comes_first_in_reverse() -> None:
    rows, _ = kept(
        [(True, [{"rank": None, "step": n, FORM_COLUMN: "plain"}] * 10) for n in (1, 2, 3)]
    )
    assert [frame["step"].to_list() for frame in rows.frames_reversed("step")] == [
        [step] * 10 for step in (3, 2, 1)
    ]


def test_rows_of_a_step_are_found_in_more_pieces_than_are_held_sorted() -> None:
    """Each piece has steps 0 to 9, so all are asked for each of them."""
    count = MAX_INDEXED_CHUNKS + 3
    plain = {"rank": None, FORM_COLUMN: "plain"}
    rows, _ = kept(
        [
            (True, [plain | {"step": step, "loss": float(n)} for step in range(10)])
            for n in range(count)
        ]
    )
    for step in (3, 7, 3):
        assert [row["loss"] for row in rows.at(None, step)] == list(range(count))


def test_rows_that_say_nothing_new_are_left_out_of_what_is_looked_up() -> None:
    """The first of a step has told all that later ones are held against."""
    part = [{"rank": None, "step": n // 2, FORM_COLUMN: "plain", "line": n} for n in range(20)]
    rows = StepRows(None, FORMS)
    again = pl.Series(REPEAT_COLUMN, [n % 2 == 1 for n in range(20)])
    rows.extend(framed(part).with_columns(again))
    assert rows.rows_of_steps(np.array([2, 5]))["step"].to_list() == [2, 5]
    assert lines(rows) == list(range(20))
    every = StepRows(None, FORMS)
    every.extend(framed(part).with_columns(pl.Series(REPEAT_COLUMN, [True] * 20)))
    assert every.rows_of_steps(np.array([2, 5])).is_empty()
    assert list(every.at(None, 2)) == []
