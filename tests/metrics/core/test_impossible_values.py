"""What no run can have enters no figure, and is said with its line."""

from __future__ import annotations

import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.core.schema import (
    EVENT_BOUNDS,
    EVENT_COLUMNS,
    FACT_NAMES,
    INFINITE_COLUMNS,
    STEP_BOUNDS,
    STEP_COLUMNS,
    fact_bounds,
    fact_problem,
    frame_schema,
)
from fairmfu.metrics.core.impossible_values import refuse_impossible
from fairmfu.metrics.core.run_messages import IMPOSSIBLE_VALUE
from tests.support.each_case import each_case

TABLES = {name: frame_schema(name).to_frame() for name in ("runs", "facts", "steps", "events")}


def steps(**values: list[float | None]) -> dict[str, pl.DataFrame]:
    height = len(next(iter(values.values())))
    rows = {"run_id": ["a"] * height, "line": list(range(1, height + 1)), **values}
    rows.setdefault("step", list(range(height)))
    schema = frame_schema("steps")
    frame = pl.DataFrame(rows, schema={name: schema[name] for name in rows})
    return TABLES | {"steps": frame.match_to_schema(schema, missing_columns="insert")}


@pytest.mark.parametrize("name", sorted(STEP_BOUNDS))
def test_every_figure_of_a_step_has_bounds(name: str) -> None:
    dtype, bound = STEP_COLUMNS[name].dtype, STEP_BOUNDS[name]
    far = 2 * bound.highest
    kept = [bound.lowest, max(0, bound.lowest), 1, bound.highest, None]
    values = [*kept, far] if dtype.is_float() else [*(v and int(v) for v in kept), int(far)]
    found = refuse_impossible(steps(**{name: values}))
    after = found.tables["steps"]
    if name == "step":
        assert after[name].to_list() == values[:-1]
    else:
        assert after[name].to_list() == [*values[:-1], None]
    (words,) = found.warnings["a"]
    assert words.startswith(f"{name}={far:g}")
    assert "(line 6)" in words


@pytest.mark.parametrize("name", sorted(n for n, of in STEP_BOUNDS.items() if of.smallest))
def test_what_is_smaller_than_a_figure_can_be_is_refused_but_0(name: str) -> None:
    smallest = STEP_BOUNDS[name].smallest
    assert 0 < smallest < 1
    values = [0.0, smallest, smallest / 2]
    found = refuse_impossible(steps(**{name: [*values]}))
    assert found.tables["steps"][name].to_list() == [*values[:-1], None]


def test_all_numbers_of_steps_and_events_have_bounds() -> None:
    for columns, bounds in ((STEP_COLUMNS, STEP_BOUNDS), (EVENT_COLUMNS, EVENT_BOUNDS)):
        numbers = {name for name, column in columns.items() if column.dtype.is_numeric()}
        assert numbers - {"line"} == set(bounds)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_left_to_those_who_tell_of_it(value: float) -> None:
    found = refuse_impossible(steps(loss=[1.0, value], elapsed_s=[math.nan, 1e308]))
    assert str(found.tables["steps"]["loss"][1]) == str(value)
    assert math.isnan(found.tables["steps"]["elapsed_s"][0])
    assert [words.split("=")[0] for words in found.warnings["a"]] == ["elapsed_s"]


FINITE = [
    (name, column.unit)
    for name, column in STEP_COLUMNS.items()
    if column.dtype.is_float() and name not in INFINITE_COLUMNS
]


@pytest.mark.parametrize(("column", "unit"), FINITE)
@pytest.mark.parametrize("value", [math.inf, -math.inf])
def test_only_losses_and_rates_may_be_infinite(column: str, unit: str, value: float) -> None:
    """A mean over an infinite time, ratio or count would end the analysis of the run."""
    found = refuse_impossible(steps(**{column: [0.5, value]}))
    assert found.tables["steps"][column].to_list() == [0.5, None]
    (words,) = found.warnings["a"]
    said = f" [{unit}]" if unit else ""
    assert words.startswith(f"{column}={value:g}{said} is impossible: ")


def test_a_time_next_to_nothing_is_none() -> None:
    found = refuse_impossible(steps(elapsed_s=[1e-308, 0.0, 0.5]))
    assert found.tables["steps"]["elapsed_s"].to_list() == [None, 0.0, 0.5]
    assert "at least 1e-09" in found.warnings["a"][0]


def test_good_tables_stay_the_same_frames() -> None:
    tables = steps(loss=[5.0], elapsed_s=[1.0])
    found = refuse_impossible(tables)
    assert found.tables["steps"] is tables["steps"]
    assert found.tables["facts"] is tables["facts"]
    assert found.warnings == {}


NUMBERS = sorted(name for name, known in FACT_NAMES.items() if known.kind in ("int", "float"))


@given(st.sampled_from(NUMBERS), st.floats() | st.integers(-(10**30), 10**30))
def test_a_fact_lies_within_its_bounds_or_is_refused(name: str, value: float) -> None:
    possible = value in fact_bounds(name) and (
        FACT_NAMES[name].kind == "float" or value == int(value)
    )
    assert (fact_problem(name, str(value)) is None) == possible
    facts = pl.DataFrame(
        [
            {"run_id": "a", "name": name, "value": "1", "origin": "log:3", "line": 3},
            {"run_id": "a", "name": name, "value": str(value), "origin": "log:7", "line": 7},
        ]
    ).match_to_schema(frame_schema("facts"), missing_columns="insert")
    found = refuse_impossible(TABLES | {"facts": facts})
    kept = found.tables["facts"].filter(pl.col("line") == 7)
    assert kept.height == possible
    told = [words for words in found.warnings.get("a", []) if "(log:7)" in words]
    assert len(told) == (not possible)


@each_case("name", NUMBERS)
def test_every_number_among_facts_has_bounds(name: str) -> None:
    assert fact_bounds(name).lowest < fact_bounds(name).highest


def test_words_that_a_fact_cannot_be_are_refused() -> None:
    assert fact_problem("precision", "bf17")
    assert fact_problem("packed", "maybe")
    assert fact_problem("gpus", "eight")
    assert fact_problem("model", "anything") is None


def facts(*rows: tuple[str, str, str | None, str, int | None]) -> pl.DataFrame:
    """Run, name, value, origin and line of each."""
    columns = ("run_id", "name", "value", "origin", "line")
    made = pl.DataFrame(
        [dict(zip(columns, row, strict=True)) for row in rows], schema=frame_schema("facts")
    )
    return TABLES | {"facts": made}


def test_a_fact_is_refused_in_each_run_with_its_place() -> None:
    found = refuse_impossible(
        facts(
            ("a", "gpus", "0", "log", 1234),
            ("a", "gpus", "8", "log", 5),
            ("b", "gpus", "0", "log:7", 7),
            ("c", "gpus", "0", "facts.toml", None),
            ("c", "gpus", "0", "facts.toml", None),
            ("d", "model", "0", "log", 1),
        )
    )
    assert found.tables["facts"].select("run_id", "value").rows() == [("a", "8"), ("d", "0")]
    said = [words for every in found.warnings.values() for words in every]
    assert {words.kind for words in said} == {IMPOSSIBLE_VALUE.identifier}
    places = {
        run: [words.partition(" (")[2].partition(")")[0] for words in every]
        for run, every in found.warnings.items()
    }
    assert places == {"a": ["log, line 1,234"], "b": ["log:7"], "c": ["facts.toml"]}


def test_a_warning_of_several_lines_names_the_first_and_their_number() -> None:
    found = refuse_impossible(steps(elapsed_s=[1.0, 1e300, 2.0, 2e300]))
    (words,) = found.warnings["a"]
    assert words.startswith("elapsed_s=1e+300 [s] is impossible")
    assert words.kind == IMPOSSIBLE_VALUE.identifier
    assert "(2 lines, first at line 2)" in words
    assert found.tables["steps"]["elapsed_s"].to_list() == [1.0, None, 2.0, None]


def test_a_line_whose_step_cannot_be_is_left_out_and_other_figures_stay() -> None:
    found = refuse_impossible(
        steps(step=[1, -5, 3], loss=[1.0, 2.0, 3.0], elapsed_s=[1e300, 1.0, 2.0])
    )
    kept = found.tables["steps"].select("step", "loss", "elapsed_s").rows()
    assert kept == [(1, 1.0, None), (3, 3.0, 2.0)]
    assert sorted(words.partition("=")[0] for words in found.warnings["a"]) == ["elapsed_s", "step"]


def test_no_sequence_is_empty() -> None:
    """A predicted rate of 0 tokens would divide by 0 in the audit."""
    found = refuse_impossible(steps(sequence_length=[0, 2048]))
    assert found.tables["steps"]["sequence_length"].to_list() == [None, 2048]
    assert found.warnings["a"][0].startswith(
        "sequence_length=0 [tokens] is impossible: it is 1 to "
    )
