"""Logs by one call: what is read in memory is what a store would hold."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import pytest
from polars.testing import assert_frame_equal

from fairmfu.ingest import Store, ingest_logs, read_logs
from fairmfu.ingest.core.errors import UnreadableSourceError
from fairmfu.ingest.extract import log_tables
from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.ingest.parse.record_sink import RecordSink
from fairmfu.metrics import analyse
from fairmfu.reports import compare, draw, per_step, report
from tests.support.folders import ROOT
from tests.support.log_lines import BY_NAME, write_log

SYNTHETIC = ROOT / "sample_logs" / "synthetic"
GIVEN = {"torch": "2.9.0", "compile": True, "expert_parallel": 1}
WORDS = facts_from_flags(["torch=2.9.0", "compile=true", "expert_parallel=1"])


def test_tables_in_memory_are_those_of_a_store_and_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    found = read_logs(SYNTHETIC, facts=GIVEN)
    assert list(tmp_path.iterdir()) == []
    store = Store(str(tmp_path / "store"))
    ingest_logs(store, str(SYNTHETIC), facts=WORDS)
    for name, frame in store.tables().items():
        when = [column for column in ("read_at",) if column in frame.columns]
        assert_frame_equal(found[name].drop(when), frame.drop(when))


def test_a_log_that_cannot_be_read_is_told_and_nothing_comes_out(tmp_path: Path) -> None:
    empty = tmp_path / "empty.log"
    empty.touch()
    with pytest.raises(UnreadableSourceError) as caught:
        read_logs(SYNTHETIC, empty, tmp_path / "gone.log")
    assert [line.partition(":")[0] for line in str(caught.value).splitlines()] == [
        str(empty),
        str(tmp_path / "gone.log"),
    ]


@pytest.mark.parametrize("size", ["small", "large"])
def test_a_log_of_which_a_line_got_lost_is_none(
    size: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a fault of ours: a store that lacks a line would look as any other."""
    if size == "large":
        monkeypatch.setattr(log_tables, "MAX_SMALL_BYTES", 0)
    log = tmp_path / "run.log"
    write_log(log, BY_NAME["torchtitan"], 100_000)
    lines = log.read_bytes().count(b"\n")
    count = RecordSink.count_known
    monkeypatch.setattr(
        RecordSink, "count_known", lambda self, lines, *at: count(self, max(lines - 1, 0), *at)
    )
    with pytest.raises(UnreadableSourceError) as caught:
        read_logs(log)
    assert re.search(
        rf"run\.log: [\d,]+ of its {lines:,} lines were counted: a fault", str(caught.value)
    )


@pytest.mark.parametrize("paths", [(), (["a.log"],), (None,)])
def test_what_is_no_path_is_told(paths: tuple[Any, ...]) -> None:
    with pytest.raises(UnreadableSourceError, match="give each log as an argument"):
        read_logs(*paths)


def test_a_chart_has_no_other_convention() -> None:
    told = report(read_logs(SYNTHETIC / "torchtitan/llama3-8b-8xh100-torchtitan.log"))
    with pytest.raises(ValueError, match="exact or full"):
        draw("comparison", told, attention="half")  # type: ignore[arg-type]


def test_the_same_log_twice_is_one_run(tmp_path: Path) -> None:
    (log,) = (SYNTHETIC / "torchtitan").glob("*.log")
    copy = tmp_path / "copy.log"
    copy.write_bytes(log.read_bytes())
    assert read_logs(log, copy)["runs"].height == 1


def test_the_pace_over_steps_has_what_the_rate_of_the_run_is_of() -> None:
    analysis = analyse(read_logs(SYNTHETIC))
    assert per_step(analysis).height == analysis.windows.height
    for row in analysis.metrics.iter_rows(named=True):
        mine = per_step(analysis, row["name"])
        counted = mine.filter(window="counted")["tgs"]
        assert counted.len() == row["windows"]
        assert counted.median() == pytest.approx(row["tgs_median"], rel=1e-9)
        assert mine["step"].is_sorted()


def test_a_notebook_shows_sentences_and_tables_of_a_comparison() -> None:
    found = compare(analyse(read_logs(SYNTHETIC)))
    shown = found._repr_markdown_()
    assert shown.startswith(f"### {found.sentences[0].partition(': ')[0]}\n\nAll 5 runs are")
    assert "| run" in shown
