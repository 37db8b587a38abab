"""A formula that changes inside one project's history: seen in the print, and said.

The synthetic Torchtitan log is written again as an earlier version would have printed it: other
date, other speed, and TFLOP/s and MFU by that version's own formula.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fairmfu.cli import main
from fairmfu.metrics.audit.era_lookup import ERAS_BY_NAME
from fairmfu.metrics.core.messages import NOT_RANKED
from fairmfu.metrics.core.run_messages import FORMULA_CHANGED
from fairmfu.metrics.formula.model_shapes import find_model
from fairmfu.metrics.formula.simplified_model import SimplifiedModel
from fairmfu.metrics.pipeline.messages import RATE_AGAINST_LOG
from fairmfu.metrics.throughput.messages import COUNTS_APART, EVIDENCE_MISCOUNTED
from tests.support.folders import ROOT
from tests.support.kinds import of_kind

SYNTHETIC = ROOT / "sample_logs" / "synthetic"
SAMPLE = SYNTHETIC / "torchtitan" / "llama3-8b-8xh100-torchtitan.log"
XTUNER = SYNTHETIC / "xtuner" / "llama3-8b-8xh100-xtuner.log"
SEEN = SimplifiedModel(
    shape=find_model("llama3-8b"), T=8192, recompute="full", intermediate_size=None
)
FIGURES = re.compile(r"loss: +(\S+)(.*)tps: ([\d,]+)  tflops: \S+  mfu: \S+%")


def as_printed(era: str, day: str, speed: float) -> str:
    """The sample as `era` would print it on a day, at `speed` times its tokens/s."""
    flops = ERAS_BY_NAME[era].flops(SEEN)

    def figures(line: re.Match[str]) -> str:
        tps = round(int(line[3].replace(",", "")) * speed)
        tflops, mfu = flops * tps / 1e12, 100 * flops * tps / 989e12
        loss = float(line[1]) + 0.01
        return f"loss: {loss:8.5f}{line[2]}tps: {tps:,}  tflops: {tflops:.2f}  mfu: {mfu:.2f}%"

    lines = SAMPLE.read_text().replace("2026-11-02", day).splitlines(keepends=True)
    return "".join(FIGURES.sub(figures, line) for line in lines if "torchtitan version" not in line)


def runs_of(folder: Path, **logs: str) -> dict[str, dict[str, Any]]:
    for name, text in logs.items():
        (folder / f"{name}.log").write_text(text)
        (folder / f"{name}.log.facts.toml").write_text("seq_len = 8192\n")
    store = ["--store", str(folder / "store")]
    assert CliRunner().invoke(main, ["ingest", str(folder), *store]).exit_code == 0
    shown = CliRunner().invoke(main, ["runs", "--format", "json", *store])
    return {row["name"]: row for row in json.loads(shown.stdout)}


def test_each_log_is_reproduced_by_the_formula_of_its_time(tmp_path: Path) -> None:
    rows = runs_of(
        tmp_path,
        old=as_printed("torchtitan-2024-03", "2024-04-10", 0.999),
        new=as_printed("torchtitan-2024-05", "2024-06-10", 0.997),
    )
    for name, era in (("old", "torchtitan-2024-03"), ("new", "torchtitan-2024-05")):
        assert rows[name]["logged_reproduced"] is True
        assert rows[name]["logged_formula"] == era
        assert rows[name]["logged_lines"] == rows[name]["logged_lines_reproduced"] == 21
    assert "logged_formula" in rows["old"]["proven"]


def test_the_change_is_said_where_it_happens(tmp_path: Path) -> None:
    rows = runs_of(
        tmp_path,
        old=as_printed("torchtitan-2024-03", "2024-04-10", 0.999),
        new=as_printed("torchtitan-2024-05", "2024-06-10", 0.997),
    )
    assert not of_kind(rows["old"], FORMULA_CHANGED)
    (said,) = of_kind(rows["new"], FORMULA_CHANGED)
    assert "those of old," in said


def test_the_same_formula_is_no_change(tmp_path: Path) -> None:
    """2024-05 and 2025-10 count a llama alike: only the wording of the code changed."""
    rows = runs_of(
        tmp_path,
        old=as_printed("torchtitan-2024-05", "2024-06-10", 0.999),
        new=as_printed("torchtitan-2025-10", "2025-11-10", 0.997),
    )
    assert [row["logged_formula"] for row in rows.values()] == [
        "torchtitan-2025-10",
        "torchtitan-2024-05",
    ]
    assert not [one for row in rows.values() for one in of_kind(row, FORMULA_CHANGED)]


def test_a_comparison_names_eras_that_count_differently(tmp_path: Path) -> None:
    runs_of(
        tmp_path,
        old=as_printed("torchtitan-2024-03", "2024-04-10", 0.999),
        new=as_printed("torchtitan-2024-05", "2024-06-10", 0.997),
    )
    store = ["--store", str(tmp_path / "store")]
    shown = CliRunner().invoke(main, ["compare", "--format", "json", *store])
    differs = json.loads(shown.stdout)[0]["differs"]
    (said,) = [words for words in differs if words.startswith("formulas of torchtitan")]
    assert "torchtitan-2024-03 vs torchtitan-2024-05" in said
    assert "logged figures are not comparable" in said


@pytest.mark.parametrize(
    ("printed", "given"),
    [
        ("torchtitan-2024-03", "torchtitan-2024-05"),
        ("torchtitan-2024-05", "torchtitan-2024-03"),
    ],
)
def test_an_era_that_is_given_wrongly_is_found(tmp_path: Path, printed: str, given: str) -> None:
    log = tmp_path / "run.log"
    log.write_text(as_printed(printed, "2024-04-30", 1.0))
    store = ["--store", str(tmp_path / "store")]
    CliRunner().invoke(main, ["ingest", str(log), "--set", f"logged_formula={given}", *store])
    shown = CliRunner().invoke(main, ["runs", "--format", "json", *store])
    (row,) = json.loads(shown.stdout)
    assert row["logged_reproduced"] is False
    assert row["logged_hypothesis"] == f"the formula of {printed}"
    assert row["mfu"] is not None, "the own formula is not ours: no figure of ours depends on it"


# --- what must not happen -----------------------------------------------------------------------


def one_run(folder: Path, text: str, *facts: str) -> dict[str, Any]:
    log = folder / "run.log"
    log.write_text(text)
    store = ["--store", str(folder / "store")]
    given = [word for fact in facts for word in ("--set", fact)]
    result = CliRunner().invoke(main, ["ingest", str(log), *given, *store])
    assert result.exit_code == 0, result.output
    shown = CliRunner().invoke(main, ["runs", "--format", "json", *store])
    (row,) = json.loads(shown.stdout)
    told = CliRunner().invoke(main, ["explain", row["run_id"], "--format", "json", *store])
    assert told.exit_code == 0, told.output
    return {**row, "bridges": json.loads(told.stdout)["bridges"]}


def test_a_print_of_zeros_is_no_error(tmp_path: Path) -> None:
    text = re.sub(
        r"tps: \S+  tflops: \S+  mfu: \S+%", "tps: 0  tflops: 0.00  mfu: 0.00%", SAMPLE.read_text()
    )
    assert one_run(tmp_path, text)["logged_tflops"] == 0


def test_tokens_that_are_counted_twice_are_left_unexplained_and_cost_the_rank(
    tmp_path: Path,
) -> None:
    """XTuner's print is of single micro-steps: FLOPs over tokens, which no batch size enters."""
    text = XTUNER.read_text()
    row = one_run(tmp_path, text, "micro_batch_size=2")
    assert row["logged_reproduced"] is True
    said = of_kind(row, COUNTS_APART, EVIDENCE_MISCOUNTED, RATE_AGAINST_LOG)
    assert any(words.startswith(NOT_RANKED) for words in said)
    (bridge,) = row["bridges"]
    assert bridge["explained"] is False
    assert bridge["unexplained"] == pytest.approx(0.5, rel=0.01)


def test_a_length_that_the_log_states_is_not_overruled_by_its_date(tmp_path: Path) -> None:
    """An old release prints a new date; half of the pairs at 16,384 are all of them at 8,192."""
    seen = SimplifiedModel(
        shape=find_model("llama3-8b"), T=8192, recompute="full", intermediate_size=None
    )
    flops = ERAS_BY_NAME["xtuner-0.1.14"].flops(seen)

    def figures(line: re.Match[str]) -> str:
        return f"tflops: {flops * float(line[1]) / 1e12:.4f}  tokens_per_sec: {line[1]}"

    text = XTUNER.read_text()
    row = one_run(tmp_path, re.sub(r"tflops: \S+  tokens_per_sec: (\S+)", figures, text))
    assert row["logged_reproduced"] is True
    assert row["logged_formula"] in ("xtuner-0.1.10", "xtuner-0.1.14")  # which count alike
    assert not any(warning.startswith(NOT_RANKED) for warning in row["warnings"])
    assert "seq_len" not in row["proven"]


def test_two_facts_that_are_wrong_together_are_not_proven(tmp_path: Path) -> None:
    """Some other model of some other length counts as many FLOPs within what is printed."""
    flops = ERAS_BY_NAME["torchtitan-2024-05"].flops(
        SEEN._replace(shape=find_model("gpt-oss-120b"), T=12_288)
    )

    def figures(line: re.Match[str]) -> str:
        tps = int(line[3].replace(",", ""))
        return f"loss: {line[1]}{line[2]}tps: {tps:,}  tflops: {flops * tps / 1e12:.2f}"

    lines = SAMPLE.read_text().replace("2026-11-02", "2024-06-10").splitlines(keepends=True)
    unsaid = ("torchtitan version", " size: ", "sequence length")
    kept = [line for line in lines if not any(word in line for word in unsaid)]
    text = "".join(FIGURES.sub(figures, line) for line in kept)
    row = one_run(tmp_path, text, "model=llama2-7b", "seq_len=4096")
    if row["logged_reproduced"]:
        assert not {"model", "seq_len"} & set(row["proven"])


def test_a_formula_of_no_era_is_refused(tmp_path: Path) -> None:
    store = ["--store", str(tmp_path / "store")]
    given = ["--set", "logged_formula=nonsense"]
    result = CliRunner().invoke(main, ["ingest", str(SAMPLE), *given, *store])
    assert result.exit_code == 1
    assert "fairmfu formats --eras" in result.output


def test_a_formula_of_another_framework_is_answered_with_those_there_are(tmp_path: Path) -> None:
    row = one_run(tmp_path, SAMPLE.read_text(), "logged_formula=xtuner-0.1.10")
    assert row["logged_reproduced"] is None
    assert "torchtitan-2024-05" in row["logged_not_compared"]
    assert row["bridges"] == []


def test_a_model_that_the_log_contradicts_is_answered_with_one_that_fits(tmp_path: Path) -> None:
    row = one_run(tmp_path, SAMPLE.read_text(), "model=llama3-70b")
    assert any("model=llama-3-8b" in warning for warning in row["warnings"])


def test_peaks_that_changed_are_told_in_a_comparison(tmp_path: Path) -> None:
    """Torchtitan took 4.5e15 for a B200 until 2025-07-14, and half of it since."""

    def on_b200(day: str, peak: float, speed: float) -> str:
        text = as_printed("torchtitan-2024-05", day, speed).replace("H100 80GB HBM3", "B200")
        text = text.replace("9.890e+14", f"{peak:.3e}")
        return re.sub(r"mfu: ([\d.]+)%", lambda m: f"mfu: {float(m[1]) * 989e12 / peak:.2f}%", text)

    runs_of(
        tmp_path,
        old=on_b200("2025-06-10", 4.5e15, 0.999),
        new=on_b200("2025-08-10", 2.25e15, 0.997),
    )
    store = ["--store", str(tmp_path / "store")]
    shown = CliRunner().invoke(main, ["compare", "--format", "json", *store])
    differs = json.loads(shown.stdout)[0]["differs"]
    assert any("peaks of torchtitan: 2,250 vs 4,500 TFLOP/s" in words for words in differs)
