"""Tables on a terminal: figures stay whole, and what is left out is named."""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import string
import sys

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from fairmfu.cli import main
from fairmfu.metrics.core.run_table import METRICS
from fairmfu.reports.text import tabular
from fairmfu.reports.text.runs_table import (
    DROPPABLE_RUN_COLUMNS,
    RUN_COLUMNS,
    Columns,
    run_doubts,
)
from fairmfu.reports.text.summary import (
    ACCELERATOR_COLUMNS,
    MODEL_COLUMNS,
    accelerator_table,
    model_table,
)
from fairmfu.reports.text.tabular import count, percent, render_frame, wrapped

RUN = {
    "name": "llama3-8b-8xh100-megatron-deepspeed",
    "log_format": "megatron-deepspeed",
    "model": "llama-3-8b",
    "gpus": 128,
    "seq_len": 8192,
    "precision": "bf16",
    "steps": 1_000_000,
    "tgs": 12_345.0,
    "seconds_per_step": 1.28,
    "samples_per_second": 400.0,
    "doubts": ["TGS is of 2 windows, 20 steps, and may be off by 61%, as they differ"],
    "tgs_end_to_end": 12_289.0,
    "mfu": 0.3333,
    "mfu_language_model": 0.3012,
    "mfu_full_attention": 0.3754,
    "flops_source": "given: operators (flag: counted by torch 2.13.0)",
    "logged_tflops": 1481.25,
    "logged_mfu": 0.4875,
    "inferred": ["precision", "trainable"],
    "outcome": "incomplete",
}
RUNS = pl.DataFrame([RUN], schema={name: METRICS[name] for name in RUN})


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The table of runs on a terminal of so many columns."""
    size = os.terminal_size((request.param, 24))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_, **__: size)
    return render_frame(RUNS, "table", RUN_COLUMNS, droppable=DROPPABLE_RUN_COLUMNS)


@pytest.mark.parametrize("shown", [*range(72, 161, 4)], indirect=True)
def test_a_narrow_terminal_shows_whole_figures_and_names_what_it_leaves_out(
    shown: str, request: pytest.FixtureRequest
) -> None:
    width = request.node.callspec.params["shown"]
    table, _, left = shown.partition("\n\n")
    left = " ".join(left.split())
    assert max(map(len, table.splitlines())) <= width
    assert re.search(r"12,345 .*33\.3 %", table)
    named = left.partition("narrow: ")[2].partition(". To see")[0]
    headings = [heading for heading, _ in RUN_COLUMNS.values()]
    there = [h for h in headings if h not in named]
    words = " ".join(table.split("───")[0].split())
    assert all(word in words for heading in there for word in heading.split())
    figures = {"GPUs": "128", "seq_len": "8,192", "steps": "1,000,000", "TGS end to end": "12,289"}
    assert all((text in table) == (heading in there) for heading, text in figures.items())
    assert "outcome" in there


@pytest.mark.parametrize("shown", [360], indirect=True)
def test_a_wide_terminal_shows_all_in_one_line_each(shown: str) -> None:
    assert len(shown.splitlines()) == 3
    assert "Columns hidden" not in shown


@pytest.mark.parametrize(
    "command",
    ["accelerators", "models", "formats", "formats --eras", "flops llama3-8b --seq-len 8192"],
)
def test_lists_fit_a_terminal_of_eighty_columns(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    main(command.split(), standalone_mode=False)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    for told in re.findall(r"To see all: --format (\w+)", " ".join(shown.split())):
        main([*command.split(), "--format", told], standalone_mode=False)


def test_figures_of_lists_have_units_and_separators() -> None:
    models = render_frame(model_table(), "table", MODEL_COLUMNS)
    assert "8,030,261,248" in next(x for x in models.splitlines() if " llama-3-8b " in x)
    peaks = render_frame(accelerator_table(), "table", ACCELERATOR_COLUMNS)
    assert peaks[: peaks.index("───")].count("TFLOP/s") == 6
    as_csv = render_frame(accelerator_table(), "csv", ACCELERATOR_COLUMNS).partition("\n")[0]
    assert as_csv.startswith("accelerator,unit,fp32,")


def test_what_goes_to_a_file_leaves_nothing_out() -> None:
    for output in ("table", "markdown", "csv"):
        assert "Columns hidden" not in render_frame(
            RUNS, output, RUN_COLUMNS, droppable=DROPPABLE_RUN_COLUMNS
        )


def test_names_are_whole_in_a_file_however_long() -> None:
    name = "-".join(["llama3-8b-8xh100"] * 20)
    frame = pl.DataFrame({"name": [name], "why": ["a sentence that goes on " * 20], "n": [1]})
    lines = render_frame(frame, "table").splitlines()
    assert lines[2].split()[0] == name
    assert max(map(len, lines)) < len(name) + 120


CELLS = st.text("ab1-. /\n\u4e2d\u00e9\u0301\u00d7", max_size=30) | st.from_regex(
    r"-?\d{1,6} ?", fullmatch=True
)
HEADINGS = st.text("ab1-. /\u4e2d", min_size=1, max_size=12).filter(str.strip)


@given(
    st.lists(HEADINGS, min_size=1, max_size=4, unique=True).flatmap(
        lambda names: st.lists(st.tuples(*(CELLS for _ in names)), max_size=4).map(
            lambda rows: pl.DataFrame(rows, dict.fromkeys(names, pl.String), orient="row")
        )
    )
)
def test_a_table_is_laid_out_as_by_rich(frame: pl.DataFrame) -> None:
    """Also wide and combining characters, cells of several lines, and no row at all."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    cells = [[tabular._cell(text, str) for text in frame[name]] for name in frame.columns]
    for name, column in zip(frame.columns, cells, strict=True):
        right = name != "run" and all(map(tabular._is_number, column))
        table.add_column(Text(name), justify="right" if right else "left", no_wrap=True)
    for row in zip(*cells, strict=True):
        table.add_row(*map(Text, row))
    console = Console(file=io.StringIO(), width=10_000)
    with console.capture() as drawn:
        console.print(table)
    lines = [line.rstrip() for line in drawn.get().splitlines()]
    assert render_frame(frame, "table") == "\n".join(lines).strip("\n")


@given(
    st.lists(st.sampled_from(["", " ", "  ", "a", "run", "two words"]), max_size=6, unique=True),
    st.sampled_from([[], [None], [None, "cells of some words"]]),
    st.integers(1, 60),
)
def test_any_headings_fit_any_terminal(
    headings: list[str], cells: list[str | None], width: int
) -> None:
    frame = pl.DataFrame(dict.fromkeys(headings, cells), dict.fromkeys(headings, pl.String))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.stdout, "isatty", lambda: True)
        patch.setattr(shutil, "get_terminal_size", lambda *_, **__: os.terminal_size((width, 5)))
        assert isinstance(render_frame(frame, "table"), str)


def test_a_name_is_broken_where_its_parts_meet_and_a_number_nowhere() -> None:
    assert tabular._parts("llama3-8b-8xh100-megatron-deepspeed", 16) == [
        "llama3-8b-",
        "8xh100-megatron-",
        "deepspeed",
    ]
    assert tabular._parts("at 1e-05 and 6,398.2 tokens", 9) == [
        "at 1e-05",
        "and",
        "6,398.2",
        "tokens",
    ]
    assert tabular._parts("x" * 20, 8) == ["x" * 8, "x" * 8, "x" * 4]
    assert "".join(tabular._parts("a/b_c:d-e" * 9, 5)) == "a/b_c:d-e" * 9


NAMES = st.lists(
    st.text(string.ascii_letters + string.digits + "-_./ []", min_size=1, max_size=200)
    .map(str.strip)
    .filter(bool),
    min_size=1,
    max_size=4,
    unique=True,
)


@pytest.mark.parametrize("width", [80, 120])
@given(names=NAMES)
def test_names_of_runs_are_whole_on_a_narrow_terminal(width: int, names: list[str]) -> None:
    """Every name is in one piece, in order; figures stay within the terminal."""
    runs = pl.DataFrame([RUN | {"name": name} for name in names], schema=RUNS.schema)
    apart: Columns = {"name": ("run", str), "tgs": ("TGS", count), "why": ("reason", str)}
    others = runs.with_columns(why=pl.lit("a reason of several words, " * 5))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.stdout, "isatty", lambda: True)
        patch.setattr(shutil, "get_terminal_size", lambda *_, **__: os.terminal_size((width, 24)))
        tables = [
            render_frame(runs, "table", RUN_COLUMNS, droppable=DROPPABLE_RUN_COLUMNS),
            render_frame(others, "table", apart),
        ]
    for table in tables:
        lines = table.partition("\n\n")[0].splitlines()
        beside = [
            i for name in names for i, line in enumerate(lines) if line.startswith(f" {name}")
        ]
        assert len(beside) >= len(names)
        figures = [line for line in lines if line.strip() not in names]
        assert max(map(len, figures)) <= width
        assert table.count("12,345") == len(names)
        assert "Columns hidden" not in table or table is tables[0]


def test_columns_give_way_before_names_get_a_line_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def headings_of(length: int, width: int) -> tuple[str, bool]:
        size = os.terminal_size((width, 24))
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setattr(shutil, "get_terminal_size", lambda *_, **__: size)
        runs = RUNS.with_columns(name=pl.lit("x" * length))
        table = render_frame(runs, "table", RUN_COLUMNS, droppable=DROPPABLE_RUN_COLUMNS)
        row = next(line for line in table.splitlines() if "x" * length in line)
        return table.partition("──")[0], "12,345" in row

    for width, fits, too_long in ((80, 16, 40), (120, 40, 70)):
        beside, is_beside = headings_of(fits, width)
        above, is_still_beside = headings_of(too_long, width)
        assert (is_beside, is_still_beside) == (True, False)
        assert "format" not in beside
        assert len(above.split()) >= len(beside.split())


def test_a_line_is_wrapped_for_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a path /of/many-parts/that-stays-whole " * 4
    assert wrapped(text) == text
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda *_, **__: os.terminal_size((40, 24)))
    assert max(map(len, wrapped(text).splitlines())) <= 40
    assert wrapped(text).count("/of/many-parts/that-stays-whole") == 4


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0.3425, "34.3 %"), (0.3328, "33.3 %"), (-0.3425, "-34.3 %"), (0.0, "0.0 %")),
        *((0.00361, "0.36 %"), (float("inf"), "inf %"), (float("nan"), "nan %")),
    ],
)
def test_shares_are_rounded_as_charts_round_them(value: float, text: str) -> None:
    """d3-format's ties go up; Python's to the even digit, so a page had 34.3 and 34.2."""
    assert percent(value) == text


def doubtful(*warnings: str, missing: tuple[str, ...] = ()) -> list[dict[str, object]]:
    return [
        {"name": f"run-{n}", "warnings": [words], "missing": list(missing)}
        for n, words in enumerate(warnings)
    ]


def test_doubts_of_many_runs_that_differ_in_figures_alone_are_told_once() -> None:
    back = "Steps go back to 1 at line {} without a start line"
    few = [back.format(n) for n in (14, 1_875, 28)]
    assert run_doubts(doubtful(*few)) == [f"run-{n}: {words}" for n, words in enumerate(few)]
    (told,) = run_doubts(doubtful(*few, back.format(39)))
    every = back.format("14 to 1875")
    assert told.startswith(f"run-0, run-1, 2 more runs: {every} (figures are ranges over ")
    assert told.endswith("fairmfu explain RUN)")
    gaps = [f"TGS is {gap}% off. 4 of 4,096 by 0.2.3, in 7." for gap in ("+2", "0.5", "-12.5", "9")]
    (told,) = run_doubts(doubtful(*gaps))
    assert "TGS is -12.5 to 9% off. 4 of 4,096 by 0.2.3, in 7. (" in told
    levels = [
        f"Speed changed, to {n}. By steps: {n} to {n}: {n}; {n} to {n}. Fix: look"
        for n in (1, 2, 4, 7)
    ]
    (told,) = run_doubts(doubtful(*levels))
    assert told.endswith(
        "2 more runs: Speed changed. Fix: look (figures differ; for one run: fairmfu explain RUN)"
    )
    names = [f"The model 'llama{n}-{n}.5b' is unknown" for n in range(4)]
    assert len(run_doubts(doubtful(*names))) == 4
    assert run_doubts(doubtful(*["the same"] * 4)) == ["run-0, run-1, 2 more runs: the same"]


def test_doubts_say_how_to_give_what_is_missing() -> None:
    rows = doubtful("the same", missing=("gpus", "seq_len"))
    assert run_doubts(rows) == [
        "run-0: missing gpus, seq_len",
        "run-0: the same",
        "See which facts give most runs an MFU with: fairmfu missing. Give them with: fairmfu set "
        "RUN NAME=VALUE",
    ]
    assert run_doubts(rows, missing=False)[1:] == ["List missing facts with: fairmfu runs"]


@example(["=1+1"])
@given(st.lists(st.text(min_size=1) | st.sampled_from(["=1+1", "+x", "-2+3", "@a", "\t=1"])))
def test_no_cell_of_csv_is_a_formula(texts: list[str]) -> None:
    """A spreadsheet takes a cell for one that begins so, also of several names in a list."""
    frame = pl.DataFrame({"name": texts, "names": [[text] for text in texts]}, strict=False)
    rows = list(csv.reader(io.StringIO(render_frame(frame.cast({"name": pl.String}), "csv"))))
    for row in rows[1:]:
        assert not {cell[:1] for cell in row} & set("=+-@\t\r")
