"""Doubts stand beside the figure: in the table of runs, the comparison, and on the page."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from fairmfu.metrics.core.run_table import (
    MAX_CLAUSE,
    NOT_RANKED,
    MetricsRow,
    metrics_rows,
    short_doubt,
)
from fairmfu.metrics.pipeline.analysis import Analysis, analyse
from fairmfu.reports.comparison.comparison import compare
from fairmfu.reports.text.runs_table import columns_of_runs
from tests.support.folders import ROOT
from tests.support.markup import markup
from tests.support.one_log import tables_of

LOG = ROOT / "sample_logs" / "synthetic" / "torchtitan" / "llama3-8b-8xh100-torchtitan.log"


@pytest.fixture(scope="module")
def sound() -> Analysis:
    return analyse(tables_of(LOG))


@pytest.fixture(scope="module")
def doubted(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    """The same log, with a length given by hand that it contradicts."""
    path: Path = tmp_path_factory.mktemp("doubted") / "run.log"
    path.write_text(LOG.read_text())
    return analyse(tables_of(path, facts={"seq_len": 4096}))


def on_page(kind: str, run: MetricsRow) -> str:
    """Return the text that a macro of the page's figures gives for a run."""
    return markup(f"{{{{ figures.{kind}(run) }}}}", run=run).unescape()


def test_a_sound_run_has_no_column_of_doubts(sound: Analysis) -> None:
    assert sound.metrics["doubts"].to_list() == [[]]
    assert "doubts" not in columns_of_runs(sound.metrics)
    assert "?" not in on_page("tgs", metrics_rows(sound.metrics)[0])


def test_times_per_step_are_shown_where_a_rate_is_unknown(sound: Analysis) -> None:
    assert "seconds_per_step" not in columns_of_runs(sound.metrics)
    unknown = sound.metrics.with_columns(tgs=pl.lit(None, pl.Float64))
    assert "seconds_per_step" in columns_of_runs(unknown)


def test_doubts_are_those_of_the_warnings_that_may_change_a_figure(doubted: Analysis) -> None:
    (row,) = metrics_rows(doubted.metrics)
    assert row["doubts"]
    assert set(row["doubts"]) <= set(row["warnings"])
    assert any(doubt.startswith(NOT_RANKED) for doubt in row["doubts"])


def test_a_doubt_stands_beside_the_figure(doubted: Analysis) -> None:
    (row,) = metrics_rows(doubted.metrics)
    names = list(columns_of_runs(doubted.metrics))
    assert names[names.index("tgs") + 1] == "doubts"
    short = short_doubt(row["doubts"])
    assert short is not None
    assert short.rstrip("…") in on_page("tgs", row)
    assert on_page("doubt", row | {"doubts": []}) == ""
    assert compare(doubted).table["doubts"].to_list() == [row["doubts"]]


@pytest.mark.parametrize(
    ("doubts", "short"),
    [
        ([], None),
        (
            [
                "TGS is from only 2 windows (20 steps) and may be off by 61%, as they differ. "
                "Fix: train longer, or log more often"
            ],
            "TGS is from only 2 windows",
        ),
        (["some", f"{NOT_RANKED}steps of two runs."], "Steps of two runs"),
        (["This launch has no clean window. Fix: a"], "This launch has no clean window"),
        ([f"{NOT_RANKED}MFU would be 120%: a wrong peak"], "MFU would be 120%: a wrong peak"),
        (["X" * 100], f"{'X' * (MAX_CLAUSE - 1)}…"),
    ],
)
def test_a_doubt_in_a_few_words(doubts: list[str], short: str | None) -> None:
    assert short_doubt(doubts) == short
