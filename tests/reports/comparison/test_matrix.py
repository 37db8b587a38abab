"""Tables of one fact by another."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.ingest import read_logs
from fairmfu.reports import report
from fairmfu.reports.comparison.matrix import matrix_frame, matrix_text
from fairmfu.reports.page.html_report import render_page
from tests.metrics.compare.test_studies import rate, rows_of
from tests.metrics.utilization.test_energy import titan

KNOBS = {"precision": ["bf16", "fp8"], "gpus": [8, 16, 128], "recompute": ["none", "full"]}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries({n: st.sampled_from(v) for n, v in KNOBS.items()}),
        min_size=1,
        max_size=12,
    )
)
def test_every_run_is_in_one_cell_and_numbers_are_in_order(runs: list[dict[str, Any]]) -> None:
    rows = rows_of(*(rate(5000 + n) | run for n, run in enumerate(runs)))
    cells = matrix_frame(rows, "precision", "gpus")
    held = [name for cell in cells["runs"] for name in cell]
    assert sorted(held) == sorted(row["label"] for row in rows)
    for (row,), of in cells.group_by("row"):
        sizes = [int(text) for text in of["column"]]
        assert sizes == sorted(sizes)
        for size, tgs in zip(sizes, of["tgs"], strict=True):
            alike = [
                5000.0 + n
                for n, run in enumerate(runs)
                if (run["precision"], run["gpus"]) == (row, size)
            ]
            assert min(alike) <= tgs <= max(alike)


def test_a_cell_out_of_memory_says_so_and_an_empty_one_is_empty() -> None:
    rows = rows_of(
        rate(6000) | {"mfu": 0.33, "peak_memory_bytes": 40 * 2**30},
        {"tgs": None, "precision": "fp8", "gpus": 16, "outcome": "out_of_memory"},
    )
    table = matrix_text(rows, "precision", "gpus", "markdown")
    assert "| bf16 | 6,000, 33.0 %, 40.0 GiB |  |" in table
    assert "| fp8 |  | out of memory |" in table
    cells = [*csv.DictReader(io.StringIO(matrix_text(rows, "precision", "gpus", "csv")))]
    assert [cell["outcome"] for cell in cells] == ["", "out of memory"]


def test_cells_of_other_models_are_not_to_be_compared() -> None:
    rows = rows_of(rate(6000), rate(9000) | {"model": "small", "work": "s", "precision": "fp8"})
    assert "- Do not compare cells: these runs differ in model (2) too." in matrix_text(
        rows, "precision", "gpus"
    )


@pytest.mark.parametrize(
    ("line", "kinds", "says"),
    [
        ("Float8 training active", [], "fp8, recipe not stated"),
        ("fp8 hybrid", [], "fp8, recipe not stated"),
        ("MX training active with recipe mxfp8_cublas", [], "fp8 (mxfp8_cublas)"),
        ("NVFP4 training", [], "fp4, recipe not stated"),
        ("Transformer Engine: te_layernorm_mlp", [], "below 16 bits, recipe not stated"),
        (None, ["quantized-weights"], "below 16 bits"),
        (None, [], "not stated"),
    ],
)
def test_an_unknown_precision_says_what_the_log_does(
    line: str | None, kinds: list[str], says: str
) -> None:
    unknown = {"precision": None, "quantization": line, "warning_kinds": kinds}
    cells = matrix_frame(rows_of(rate(6000), rate(7000) | unknown), "precision", "gpus")
    assert set(cells["row"]) == {"bf16", says}


def test_each_cell_of_the_page_leads_to_its_runs(tmp_path: Path) -> None:
    for name, tps in (("a", 1000), ("b", 2000)):
        log = titan(tmp_path, steps=12)
        log.write_text(log.read_text().replace("tps: 1,000", f"tps: {tps:,}"))
        (tmp_path / name).mkdir()
        log.rename(tmp_path / name / f"{name}.log")
    content = report(read_logs(tmp_path), matrix=("framework", "precision"))
    matrix = content.data["matrix"]
    (cell,) = matrix["cells"]
    assert set(cell["run_ids"]) == set(content.data["runs"])
    page = render_page(content)
    whole = page[page.index('<section id="matrix">') :]
    section = whole[: whole.index("</section>")]
    for run_id in cell["run_ids"]:
        assert f'href="#run-{run_id}"' in section
        assert f'id="run-{run_id}"' in page
    assert report(read_logs(tmp_path)).data["matrix"] is None
