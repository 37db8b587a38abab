"""Speeds inside real runs, beside what a person sees in a plot: tests/golden/speed_changes.tsv.

A row changes only with a reason in its commit. `why` holds the reason where the two differ.
"""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from fairmfu.ingest import read_logs
from fairmfu.metrics.core.run_table import MetricsRow, metrics_rows
from fairmfu.metrics.pipeline.analysis import analyse
from tests.support.effort import every_log
from tests.support.folders import ROOT
from tests.tools.corpus import CORPUS, GENERATED

ABSENT = f"NO LOGS in {CORPUS} or {GENERATED}: set FAIRMFU_CORPUS and FAIRMFU_GENERATED"
absent = pytest.mark.skipif(not (CORPUS.is_dir() and GENERATED.is_dir()), reason=ABSENT)

GOLDEN = ROOT / "tests" / "golden" / "speed_changes.tsv"
FOLDERS = {"logs": CORPUS, "generated": GENERATED, "sample_logs": ROOT / "sample_logs"}


def labelled() -> list[dict[str, str]]:
    lines = GOLDEN.read_text(encoding="utf-8").splitlines()
    return list(
        csv.DictReader((line for line in lines if not line.startswith("#")), delimiter="\t")
    )


def found(row: MetricsRow) -> str:
    """Return the changes of speed of a run in one line."""
    if row["drift"] is not None:
        return f"drift {100 * row['drift']:+.1f} %"
    changes = [
        f"{level['from_step']} {100 * level['change']:+.1f} %"
        for level in row["levels"] or []
        if level["change"] is not None
    ]
    return ", ".join(changes) or "none"


def speeds_of(label: dict[str, str]) -> str:
    folder, _, rest = label["log"].partition("/")
    rows = metrics_rows(analyse(read_logs(Path(FOLDERS[folder]) / rest)).metrics)
    judged = [row for row in rows if row["levels"] is not None]
    names = {row["name"]: row for row in judged}
    (row,) = [names[label["run"]]] if label["run"] else judged
    return found(row)


LABELS = labelled()
SAMPLES = [label for label in LABELS if label["log"].startswith("sample_logs/")]


@pytest.mark.parametrize("label", SAMPLES, ids=lambda label: label["log"])
def test_sample_logs_have_the_labelled_speeds(label: dict[str, str]) -> None:
    assert speeds_of(label) == label["found"]


@every_log
@absent
@pytest.mark.parametrize("label", LABELS, ids=lambda label: label["log"] + label["run"])
def test_public_logs_have_the_labelled_speeds(label: dict[str, str]) -> None:
    assert speeds_of(label) == label["found"]


def test_a_difference_from_what_a_person_sees_has_its_reason() -> None:
    assert len(LABELS) >= 30
    for row in LABELS:
        is_alike = (row["by_eye"] == "no change") == (row["found"] == "none")
        assert is_alike or row["why"] or "no lasting change" in row["by_eye"], row
