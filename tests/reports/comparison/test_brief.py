"""The brief answer on many runs: who has no rank, who is faster, what settings do."""

from __future__ import annotations

import pytest

from fairmfu.ingest.pipeline.api import read_logs
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.reports.comparison import comparison as module
from fairmfu.reports.comparison.comparison import Comparison, compare
from tests.support.folders import ROOT

SAMPLES = ROOT / "sample_logs"


@pytest.fixture(scope="module")
def compared() -> Comparison:
    return compare(analyse(read_logs(SAMPLES / "h200", SAMPLES / "h100", SAMPLES / "genuine")))


def test_runs_without_a_rank_are_counted_first_of_all_runs(compared: Comparison) -> None:
    apart = [row for row in compared.rows if row["not_ranked"]]
    count = f"{len(apart)} of {len(compared.rows)} runs not ranked: "
    assert 0 < len(apart) < len(compared.rows)
    assert compared.brief[0].startswith(count)


def test_who_is_faster_comes_before_what_settings_do(
    compared: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = ["as fast" in sentence and "Effect" not in sentence for sentence in compared.brief[1:]]
    assert kinds[0]
    assert any(sentence.startswith("Effect of") for sentence in compared.brief)
    monkeypatch.setattr(module, "MAX_SENTENCES", 2)
    first, verdict, second, rest = compared.brief
    assert (first, verdict, second) == tuple(compared.brief[:3])
    assert rest.startswith("Not shown: ")
