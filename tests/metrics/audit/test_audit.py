"""The audit: every public and generated log against its golden, and facts that are wrong.

The public logs lie outside of the project: in the folder $FAIRMFU_CORPUS, or beside it. Where they
are absent, the synthetic log of a Llama 3 8B on eight H100s still shows what a wrong fact does.
"""

from __future__ import annotations

import csv
import functools
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner

from fairmfu.cli import main
from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.metrics.audit.audit import audit
from fairmfu.metrics.audit.audit_results import Audit
from fairmfu.metrics.audit.era_lookup import ERAS_BY_NAME
from fairmfu.metrics.core.run_table import not_null
from fairmfu.metrics.pipeline.analysis import analyse
from tests.support.effort import THOROUGH, every_log
from tests.support.figures import known, lines
from tests.support.folders import ROOT
from tests.tools import audit as report
from tests.tools.audit import Row
from tests.tools.corpus import CORPUS, GENERATED

SYNTHETIC = ROOT / "sample_logs" / "synthetic"
LLAMA = SYNTHETIC / "torchtitan" / "llama3-8b-8xh100-torchtitan.log"

absent = pytest.mark.skipif(
    not (CORPUS.is_dir() and GENERATED.is_dir()),
    reason=f"NO LOGS in {CORPUS} or {GENERATED}: set FAIRMFU_CORPUS and FAIRMFU_GENERATED",
)


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return report.every_row()


# --- the table ------------------------------------------------------------------------------


@every_log
@absent
def test_the_table_is_the_golden(rows: list[Row], request: pytest.FixtureRequest) -> None:
    if request.config.getoption("update_golden"):
        report.write_golden(rows)
    assert {(r.path, r.launch): r.golden() for r in rows} == report.golden()


@every_log
@absent
def test_every_given_fact_is_of_a_run_that_printed_figures(rows: list[Row]) -> None:
    for fact in report.given():
        assert fact.source
        assert any(fact.speaks_of(row.path, row.launch) for row in rows), fact


def reported() -> list[tuple[str, int, list[str]]]:
    """Figure, lines of it that the formats' descriptions report as reproduced, and their files."""
    text = (report.GOLDEN / "audit_reported.tsv").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    rows = csv.DictReader(lines, delimiter="\t")
    return [(f"logged_{row['figure']}", int(row["lines"]), row["paths"].split()) for row in rows]


@every_log
@absent
@pytest.mark.parametrize(("figure", "lines", "paths"), reported(), ids=lambda x: str(x)[:60])
def test_at_least_as_many_lines_come_out_as_the_formats_descriptions_report(
    rows: list[Row], figure: str, lines: int, paths: list[str]
) -> None:
    mine = [row for row in rows if row.path in paths and row.lines]
    assert {row.path for row in mine} == set(paths)
    assert sum(row.figures.get(figure, (0, 0))[1] for row in mine) >= lines


@every_log
@absent
def test_the_formula_is_the_one_of_the_day_or_of_the_release(rows: list[Row]) -> None:
    """Of Torchtitan's main line: an old formula that fits by chance would show here."""
    dated = [row for row in rows if row.lines and row.framework == "torchtitan" and row.day]
    assert len(dated) > 100
    for row in dated:
        era = row.audit.era
        assert era is not None
        assert row.day is not None
        assert era.covers(row.day) or row.release in era.versions, (row.path, row.launch)


@every_log
@absent
def test_what_is_reproduced_leaves_nothing_unexplained(rows: list[Row]) -> None:
    whole = [row for row in rows if row.lines and row.reproduced == row.lines]
    assert whole
    for row in whole:
        low, high = row.audit.unexplained_low, row.audit.unexplained_high
        assert low is not None
        assert high is not None
        assert low <= 1 <= high, (row.path, row.launch)


@every_log
@absent
def test_every_bridge_of_a_reproduced_figure_is_whole(rows: list[Row]) -> None:
    """Its factors multiply to ours, and nothing but the print's rounding is left."""
    found = [(row, b) for row in rows for b in row.bridges if row.reproduced == row.lines > 0]
    assert len(found) > 60
    for row, bridge in found:
        product = prod(factor.factor for factor in bridge.factors)
        assert bridge.logged / bridge.unexplained * product == pytest.approx(bridge.ours)
        assert bridge.explained, (row.path, row.launch, bridge)


@every_log
@absent
def test_every_log_can_be_explained_and_stand_in_one_report(tmp_path: Path) -> None:
    files = [str(p) for folder in (CORPUS, GENERATED) for p in folder.rglob("*") if p.is_file()]
    store = ["--store", str(tmp_path / "store")]
    CliRunner().invoke(main, ["ingest", *files, *store])
    page = tmp_path / "report.html"
    result = CliRunner().invoke(main, ["report", "--out", str(page), *store])
    assert result.exit_code == 0, result.output
    assert page.stat().st_size > 1_000_000


COUNTS = {
    "deepspeed": (49, 0, 16),
    "torchtitan": (148, 0, 14),
    "transformers": (0, 0, 7),
    "xtuner": (42, 1, 2),
}
"""Framework: runs of which every line is reproduced, not every line, and none is compared."""


@every_log
@absent
@pytest.mark.parametrize("framework", COUNTS)
def test_so_many_runs_are_reproduced_and_so_many_are_not(rows: list[Row], framework: str) -> None:
    mine = [row for row in rows if row.framework == framework]
    whole = [row for row in mine if row.lines and row.reproduced == row.lines]
    partly = [row for row in mine if row.reproduced < row.lines]
    none = [row for row in mine if not row.lines]
    assert (len(whole), len(partly), len(none)) == COUNTS[framework]
    assert all(row.why for row in (*partly, *none))


@every_log
@absent
def test_no_run_is_compared_by_a_model_that_its_figures_do_not_single_out(
    rows: list[Row],
) -> None:
    assert [row.path for row in rows if row.known_by == "ambiguous"] == []


@every_log
@absent
def test_no_line_is_counted_that_is_not_compared(rows: list[Row]) -> None:
    for row in rows:
        assert row.reproduced <= row.lines <= max((n for n, _ in row.figures.values()), default=0)


@every_log
@absent
def test_every_generated_torchtitan_figure_is_reproduced(rows: list[Row]) -> None:
    mine = [r for r in rows if r.framework == "torchtitan" and (GENERATED / r.path).is_file()]
    assert len(mine) == 35  # 19 consoles and 16 event files
    assert [row.path for row in mine if row.reproduced != row.lines or not row.lines] == []


# --- facts that are wrong -------------------------------------------------------------------


def audited(log: Path, launch: int, facts: Sequence[str], printed: Sequence[pl.Expr] = ()) -> Audit:
    """The audit of one launch with facts by hand, and other figures in its lines."""
    tables = dict(read_log_tables(log, flag_facts=facts_from_flags(facts)))
    tables["steps"] = tables["steps"].with_columns(*printed)
    run = tables["runs"].filter(launch=launch)["run_id"][0]
    return analyse(tables).audits[run]


def times(factor: float, right: Audit) -> list[pl.Expr]:
    """What lines would print whose unit is off by a factor, rounded as they round."""
    assert right.flops_per_token
    assert right.peak_flops
    if factor == 1:
        return []
    flops = pl.col("logged_tgs") * right.flops_per_token * factor
    return [
        (flops / 1e12).round(2).alias("logged_tflops"),
        (flops / right.peak_flops).round(4).alias("logged_mfu"),
    ]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The synthetic log without its lines that say which model and which peak it is."""
    says = ("total parameters", "Peak FLOPS", "CUDA capacity")
    lines = LLAMA.read_text(encoding="utf-8").splitlines(keepends=True)
    log = tmp_path_factory.mktemp("bare") / "run.log"
    log.write_text("".join(line for line in lines if not any(x in line for x in says)))
    return log


RIGHT = ("model=llama-3-8b", "seq_len=8192", "gpus=8", "accelerator=NVIDIA H100 80GB HBM3")


@functools.cache
def as_printed(log: Path) -> Audit:
    """The audit of its first launch with its own facts."""
    return audited(log, 1, ())


@functools.cache
def rightly(log: Path, launch: int) -> Audit:
    """The audit of one launch with the right facts."""
    return audited(log, launch, RIGHT)


WRONG = [
    ("seq_len=4096", 1.0, "seq_len", "seq_len=8,192"),
    ("seq_len=16384", 1.0, "seq_len", "seq_len=8,192"),
    ("seq_len=2048", 1.0, "seq_len", "seq_len=8,192"),
    ("model=llama-3-70b", 1.0, "model", "model=llama-3-8b"),
    ("model=qwen3-8b", 1.0, "model", "model=llama-3-8b"),
    ("accelerator=NVIDIA A100", 1.0, "logged_peak_flops", "a peak of 989 TFLOP/s"),
    ("accelerator=NVIDIA B200", 1.0, "logged_peak_flops", "a peak of 989 TFLOP/s"),
    ("logged_peak_flops=7.56e14", 1.0, "logged_peak_flops", "a peak of 989 TFLOP/s"),
    ("logged_formula=torchtitan-2024-03", 1.0, "logged_formula", "torchtitan-2026-01"),
    ("logged_formula=torchtitan-hf-backend", 1.0, "logged_formula", "torchtitan-2026-01"),
    ("gpus=8", 1000.0, "unit", "1,000 times too high"),
    ("gpus=8", 8.0, "unit", "the sum over 8 GPUs"),
    ("gpus=8", 1 / 8, "unit", "divided by the 8 GPUs twice"),
    ("gpus=8", 2.0, "unit", "logged value is doubled"),
    ("gpus=8", 4 / 3, "unit", "activation checkpointing counted"),
]
"""A fact that is wrong, the factor of the print, and which hypothesis is right."""


def test_the_right_facts_reproduce_every_line(bare: Path) -> None:
    right = rightly(bare, 1)
    assert right.reproduced
    assert right.lines_by_column == {"logged_tflops": (21, 21), "logged_mfu": (21, 21)}
    assert set(right.proven) >= {"seq_len", "model", "logged_peak_flops"}


@pytest.mark.parametrize(("fact", "printed", "suspect", "text"), WRONG)
def test_a_wrong_fact_fails_the_audit_and_is_named_first(
    bare: Path, fact: str, printed: float, suspect: str, text: str
) -> None:
    right = rightly(bare, 1)
    wrong = audited(bare, 1, [*RIGHT, fact], times(printed, right))
    assert wrong.reproduced is False
    assert wrong.suspect == suspect
    assert text in (wrong.hypothesis or "")


@pytest.mark.parametrize("printed", [0.97, 1.002])
def test_what_misses_by_more_than_last_digits_explain_is_not_named(
    bare: Path, printed: float
) -> None:
    """A length by another formula comes within 3 % of nearly every print."""
    wrong = audited(bare, 1, RIGHT, times(printed, rightly(bare, 1)))
    assert (wrong.reproduced, wrong.hypothesis, wrong.suspect) == (False, None, None)


@pytest.mark.parametrize(
    ("framework", "fact", "suspect", "text"),
    [
        ("xtuner", "recompute=none", "recompute", "recompute=full"),
        # 0.1.10 counted the whole of attention, later versions half of it: both print the same
        ("xtuner", "seq_len=4096", "seq_len", "seq_len=8,192, or by the formula of xtuner-0.1.10,"),
        ("xtuner", "model=llama-3-70b", "model", "model=llama-3-8b"),
        ("megatron-deepspeed", "recompute=none", "recompute", "recompute=full"),
        ("megatron-deepspeed", "gpus=16", "gpus", "gpus=8"),
        ("megatron-deepspeed", "gpus=4", "gpus", "gpus=8"),
    ],
)
def test_a_wrong_fact_of_the_other_frameworks_is_named_first(
    framework: str, fact: str, suspect: str, text: str
) -> None:
    log = SYNTHETIC / framework / f"llama3-8b-8xh100-{framework}.log"
    assert as_printed(log).reproduced
    wrong = audited(log, 1, [fact])
    assert wrong.reproduced is False
    assert (wrong.suspect, wrong.hypothesis) == (suspect, text)


@pytest.mark.parametrize("turn", [1, -1], ids=["in-order", "reversed"])
@pytest.mark.parametrize(("printed", "compared"), [(4096.0, 2), (8192.0, 1)])
def test_a_formula_by_which_all_comes_out_is_likelier_than_one_by_which_some_does(
    printed: float, compared: int, turn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 sequences of 4,096 tokens a GPU in 2 s are 4,096 tokens/s, by the one that counts so.

    Where 8,192 are printed, only the TFLOP/s come out by it; by the other one they are all there
    is.
    """
    own = ERAS_BY_NAME["xtuner-0.1.16"]
    eras = (own, replace(own, derived_columns=()))[::turn]
    monkeypatch.setattr("fairmfu.metrics.audit.audit.eras_of_format", lambda _: eras)
    truth = known(log_format="xtuner")
    tflops = own.flops(not_null(truth.simplified_model())) * printed / 1e12
    figures = lines(logged_tflops=[tflops], logged_tgs=[printed], elapsed_s=[2.0])
    found = audit(figures, truth)
    assert found.reproduced is True
    assert len(found.lines_by_column) == compared


PUBLIC = [
    ("torchtitan/msg_2025-07-01_c31ff8b053.txt", 3),
    ("torchtitan/ao_pretraining_tutorial.rst", 2),
    ("torchtitan/msg_2025-10-16_54310d57e5.txt", 1),
]
"""Runs of Llama 3 8B on H100s whose logs do not say so; the first prints its peak and its size."""


OF_PUBLIC = [
    (run, *wrong)
    for turn, wrong in enumerate(WRONG)
    for place, run in enumerate(PUBLIC)
    if THOROUGH or place == turn % len(PUBLIC)
]
"""Each wrong fact with one of the runs by turns; `make thorough`: with each."""


@absent
@pytest.mark.parametrize(("run", "fact", "printed", "suspect", "text"), OF_PUBLIC)
def test_a_wrong_fact_of_a_public_log_is_named_first(
    run: tuple[str, int], fact: str, printed: float, suspect: str, text: str
) -> None:
    path, launch = run
    right = rightly(CORPUS / path, launch)
    assert right.reproduced
    wrong = audited(CORPUS / path, launch, [*RIGHT, fact], times(printed, right))
    if wrong.reproduced and run == PUBLIC[0]:
        assert "accelerator" in fact  # the log prints the peak, which goes before a table's
        return
    if run == PUBLIC[0] and suspect == "model":  # the log counts its parameters
        assert wrong.not_compared_reason == "logged_tflops and logged_mfu not compared: model"
        return
    assert wrong.reproduced is False
    assert wrong.suspect == suspect
    said = right.era.name if right.era and suspect == "logged_formula" else text
    assert said in (wrong.hypothesis or "")
