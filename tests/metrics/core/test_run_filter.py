"""Filters see the columns of each run alone: no file, no other row order, clear errors."""

from __future__ import annotations

from datetime import datetime

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairmfu.metrics.core.run_filter import filter_runs, sort_runs
from fairmfu.metrics.core.run_messages import RunFilterError
from tests.support.error_kinds import of_kind

RUNS = pl.DataFrame(
    {
        "name": ["a", "train-from-scratch", "select 1", None],
        "framework": ["xtuner", "xtuner", "torchtitan", "deepspeed"],
        "gpus": [8, 4, 16, None],
        "tgs": [1.5, None, 3.0, 2.0],
        "missing": [["seq_len"], [], ["seq_len", "model"], []],
        "started_at": [datetime(2026, 11, 2), None, None, datetime(2026, 1, 1)],
    }
)
NO_FILE = "/no-such-folder/no-such-file"


@pytest.mark.parametrize(
    ("condition", "rows"),
    [
        ("framework = 'xtuner' and gpus >= 8", [0]),
        ("framework = 'xtuner' OR tgs is null", [0, 1]),
        ("not gpus > 4", [1]),
        ("name = 'train-from-scratch'", [1]),
        ("name = 'select 1'", [2]),
        ("name like '%from%' or name='from'", [1]),
        ("tgs > avg(tgs)", [2]),
        ("'model' = any(missing)", [2]),
        ("started_at >= DATE '2026-11-01'", [0]),
        ("gpus is not distinct from 8", [0]),
        ("gpus in (4, 16)", [1, 2]),
        ('"gpus" = 4', [1]),
        (None, [0, 1, 2, 3]),
    ],
)
def test_rows_for_which_a_condition_is_true(condition: str | None, rows: list[int]) -> None:
    assert filter_runs(RUNS, condition).rows() == RUNS[rows].rows()


@pytest.mark.parametrize(
    ("condition", "kind", "words"),
    [
        ("framewrk = 'xtuner'", "unknown-column", "Nearest: framework."),
        ("GPUS = 8", "unknown-column", "Nearest: gpus."),
        ("framework = xtuner", "unknown-column", "single quotes: 'xtuner'"),
        ("gpus >= '8'", "filter-failed", "cannot compare string with numeric type"),
        ("gpus", "filter-failed", "must be of type `Boolean`"),
        ("gpus =", "filter-failed", "unable to parse"),
        ("", "filter-failed", "unable to parse"),
        ("started_at > '2026-01-01'", "filter-failed", "DATE '2026-11-01'"),
        ("columns('a') = 1", "filter-failed", "it is several conditions"),
        ("gpus in (select gpus from read_csv('x'))", "subquery-in-filter", "'select'"),
        ("gpus in (from read_csv('x'))", "subquery-in-filter", "'from'"),
        ("E'\\'' = (SELECT 1 from read_csv('x')) or 'a'=''", "subquery-in-filter", ""),
        ("unnest(missing) = 'x'", "subquery-in-filter", "'unnest'"),
        ("gpus = 8; drop table x", "subquery-in-filter", "'table'"),
    ],
)
def test_wrong_conditions_are_refused(condition: str, kind: str, words: str) -> None:
    with pytest.raises(RunFilterError, check=of_kind(kind, words)):
        filter_runs(RUNS, condition)


PIECES = [
    *("gpus", "tgs", "name", "missing", "8", "=", ">", "and", "or", "not", "(", ")", ","),
    *("'", '"', "''", "\\", "$$", "`", "--", "/*", "*/", "E'", "'a'", "x'", "\n", "#", ";"),
    *("select", "SELECT", "from", "from", "with a as (", "values", "table", "unnest(", "*", "in ("),
    *(f"read_csv('{NO_FILE}')", f"read_parquet('{NO_FILE}')", f"'{NO_FILE}'", "distinct "),
]


@example(["gpus in (", f"from read_csv('{NO_FILE}')", ")"], "")
@given(st.lists(st.sampled_from(PIECES), max_size=12), st.sampled_from(["", " "]))
def test_no_condition_opens_a_file_or_adds_a_row(pieces: list[str], between: str) -> None:
    condition = between.join(pieces)
    said = ""
    try:
        assert set(filter_runs(RUNS, condition)["name"]) <= set(RUNS["name"])
    except RunFilterError as error:
        said = str(error)
    assert "o such file" not in said.replace(condition, "")


@pytest.mark.parametrize(
    ("column", "names"),
    [
        ("tgs", ["a", None, "select 1", "train-from-scratch"]),
        ("-tgs", ["select 1", None, "a", "train-from-scratch"]),
        ("framework", [None, "select 1", "a", "train-from-scratch"]),
        ("-missing", ["select 1", "a", "train-from-scratch", None]),
    ],
)
def test_unknown_values_are_last_in_both_directions(column: str, names: list[str | None]) -> None:
    assert sort_runs(RUNS, column)["name"].to_list() == names


@given(st.lists(st.none() | st.floats(allow_nan=False)), st.booleans())
def test_sorting_moves_rows_only(values: list[float | None], descending: bool) -> None:  # noqa: FBT001
    runs = pl.DataFrame({"n": range(len(values)), "tgs": values}, schema={"n": int, "tgs": float})
    found = sort_runs(runs, "-tgs" if descending else "tgs")
    assert sorted(found["n"]) == list(range(len(values)))
    known = found["tgs"].drop_nulls().to_list()
    assert known == sorted(known, reverse=descending)
    assert found["tgs"].to_list() == known + [None] * (len(values) - len(known))


def test_a_column_to_sort_by_is_corrected() -> None:
    with pytest.raises(RunFilterError, check=of_kind("unknown-column", "Nearest: gpus.")):
        sort_runs(RUNS, "-gpu")
