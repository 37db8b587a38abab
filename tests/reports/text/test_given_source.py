"""The source of given FLOPs stands beside every MFU by them: text, page, Markdown and JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fairmfu.cli import main
from fairmfu.ingest.core.operator_list import operator_list_text
from fairmfu.metrics import answer, ask
from tests.support.folders import ROOT

LOG = ROOT / "sample_logs/synthetic/torchtitan/llama3-8b-8xh100-torchtitan.log"
LISTED = operator_list_text(json.dumps(answer(ask("llama3-8b", 8192)) | {"counted_by": "torch 9"}))


def run(*arguments: object) -> Any:
    done = CliRunner().invoke(main, [*map(str, arguments)])
    assert done.exit_code == 0, done.output
    return done


@pytest.mark.parametrize(
    ("fact", "source"),
    [
        ("flops_per_token=5e10", "given: flops_per_token (flag)"),
        (f"operators={LISTED}", "given: operators (flag: counted by torch 9)"),
    ],
    ids=["figure", "list"],
)
def test_the_source_is_beside_the_figure(fact: str, source: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    run("ingest", LOG, "--store", store, "--set", fact)
    assert source in run("explain", LOG.stem, "--store", store).stdout
    for word in ("runs", "compare"):
        done = run(word, "--store", store)
        assert fact.partition("=")[0] in done.stdout
        assert source in " ".join(done.stderr.split())
    (row,) = json.loads(run("runs", "--store", store, "--format", "json").stdout)
    assert row["flops_source"] == source
    for kind in ("html", "md", "json"):
        out = tmp_path / f"page.{kind}"
        run("report", "--store", store, "--format", kind, "--out", out)
        assert source in out.read_text(encoding="utf-8").replace("\\", "")
    (shown,) = json.loads((tmp_path / "page.json").read_text())["runs"].values()
    assert (shown["flops_source"], shown.get("error")) == (source, None)
    assert shown["mfu"] == row["mfu"] > 0


def test_a_run_by_the_formula_has_no_such_column(tmp_path: Path) -> None:
    run("ingest", LOG, "--store", tmp_path / "store")
    for words in (["runs"], ["compare"], ["explain", LOG.stem]):
        assert "given" not in run(*words, "--store", tmp_path / "store").stdout


def test_a_given_peak_is_named_as_such_and_the_accelerator_stays(tmp_path: Path) -> None:
    """It was `NVIDIA H100 SXM at 800 TFLOP/s`, another accelerator than that of its repeats."""
    store = tmp_path / "store"
    run("ingest", LOG, "--store", store, "--set", "peak_flops=800e12")
    assert (
        "TFLOP/s dense, as given for NVIDIA H100"
        in run("explain", LOG.stem, "--store", store).stdout
    )
    (row,) = json.loads(run("runs", "--store", store, "--format", "json").stdout)
    assert row["device"] == "NVIDIA H100 SXM"
