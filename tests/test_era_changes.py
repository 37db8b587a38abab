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

from cli import main
from metrics.identities import BY_NAME
from metrics.model_shapes import known
from metrics.seen import Seen

SAMPLE = (
    Path(__file__).parent.parent
    / "sample_logs/synthetic/torchtitan/llama3-8b-8xh100-torchtitan.log"
)
SEEN = Seen(shape=known("llama3-8b"), T=8192, recompute="full", intermediate_size=None)
FIGURES = re.compile(r"loss: +(\S+)(.*)tps: ([\d,]+)  tflops: \S+  mfu: \S+%")


def as_printed(era: str, day: str, speed: float) -> str:
    """The sample as `era` would print it on a day, at `speed` times its tokens/s."""
    flops = BY_NAME[era].flops(SEEN)

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
    assert not any("implies" in warning for warning in rows["old"]["warnings"])
    (said,) = [warning for warning in rows["new"]["warnings"] if "implies" in warning]
    assert "that of old" in said
    assert "the own formula changed between them" in said


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
    assert not any("implies" in w for row in rows.values() for w in row["warnings"])


def test_a_comparison_names_eras_that_count_differently(tmp_path: Path) -> None:
    runs_of(
        tmp_path,
        old=as_printed("torchtitan-2024-03", "2024-04-10", 0.999),
        new=as_printed("torchtitan-2024-05", "2024-06-10", 0.997),
    )
    store = ["--store", str(tmp_path / "store")]
    shown = CliRunner().invoke(main, ["compare", "--format", "json", *store])
    differs = json.loads(shown.stdout)[0]["differs"]
    (said,) = [words for words in differs if words.startswith("own formula of torchtitan")]
    assert "torchtitan-2024-03 / torchtitan-2024-05" in said
    assert "their logged figures do not compare" in said


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
