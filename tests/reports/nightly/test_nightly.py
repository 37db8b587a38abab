"""The nightly command, unattended: what it writes and says, and what it leaves when it fails."""

from __future__ import annotations

import errno
import gzip
import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner, Result
from polars.testing import assert_frame_equal

from fairmfu.cli import main
from fairmfu.ingest.store import lock, parquet_parts
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.core.run_table import METRICS
from fairmfu.metrics.pipeline import analysis, incremental, run_scoring
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.reports.nightly import night_files, night_html
from fairmfu.reports.nightly import nightly as module
from tests.support.folders import ROOT
from tests.support.nights import Change, Plan, write_night
from tests.support.prepared import emptied, prepare

FEW = (0, 1)
"""Places of the series that these nights have, for speed."""


Nightly = Callable[..., Result]


@pytest.fixture
def tmp_path(one_place: Path) -> Path:
    return emptied(one_place)


@pytest.fixture
def nightly(tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch) -> Nightly:
    """`fairmfu nightly` over `logs`, into `store` and `out`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()

    def run(*options: str) -> Result:
        arguments = ["nightly", str(logs), "--store", "store", "--out", "out", *options]
        return CliRunner().invoke(main, arguments, catch_exceptions=False)

    return run


@pytest.fixture
def without_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages and charts take seconds; tests of what surrounds them do without."""
    leave_out_pages(monkeypatch)


def leave_out_pages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module, "full_page", lambda *_: "runs")
    patch.setattr(module.night_outputs, "svgs", lambda _: {"overview.svg": "<svg/>"})
    patch.setattr(module.night_html, "pages", lambda night: (f"night {night.number}", "kept"))


@pytest.fixture
def first_night(
    tmp_path: Path, logs: Path, nightly: Nightly, request: pytest.FixtureRequest
) -> None:
    """Night 1 took place: once for all tests, each of which has its own copy of what it left."""
    request.getfixturevalue("without_pages")

    def take_place() -> None:
        write_nights(logs, range(1, 2), Plan(seed=1))
        assert nightly().exit_code == 0

    prepare(tmp_path, "first-night", take_place)


def summary(tmp_path: Path) -> dict:
    return json.loads((tmp_path / "out" / "summary.json").read_text())


def list_as_ours(tmp_path: Path, name: str) -> None:
    """As if an earlier night had written it."""
    out = tmp_path / "out"
    night_files.write_list(out, night_files.owned_names(out) | {name})


def write_nights(logs: Path, nights: range, plan: Plan, only: tuple[int, ...] = FEW) -> None:
    for night in nights:
        for path in write_night(logs, night, plan, only=only):
            settle(path)


def settle(path: Path) -> None:
    """As if it had been written an hour ago."""
    before = path.stat().st_mtime - 3600
    os.utime(path, (before, before))


def test_a_regression_is_found_told_once_and_stands(
    tmp_path: Path, logs: Path, nightly: Nightly
) -> None:
    plan = Plan(seed=5, changes={0: (Change(night=12, factor=0.9, upgrade=True),)})
    write_nights(logs, range(1, 12), plan, only=(0,))
    with pytest.MonkeyPatch.context() as patch:
        leave_out_pages(patch)
        assert nightly().exit_code == 0
    assert summary(tmp_path)["regressions"] == []
    codes = []
    for night in (12, 13, 14):
        write_nights(logs, range(night, night + 1), plan, only=(0,))
        codes.append(nightly().exit_code)
    assert sorted(codes) == [0, 0, 3]
    assert codes.index(3) <= 1  # the second night at the latest
    (found,) = summary(tmp_path)["regressions"]
    assert found["ratio"] == pytest.approx(0.9, abs=0.012)
    assert not found["new"]
    archive = sorted(path.name for path in (tmp_path / "out" / "archive").iterdir())
    assert len(archive) == 4
    told = tmp_path / "out" / "archive" / archive[1 + codes.index(3)]
    (new,) = json.loads((told / "summary.json").read_text())["regressions"]
    assert new["new"]
    failures = ET.parse(told / "junit.xml").getroot().iter("failure")  # noqa: S314 - our own
    assert len(list(failures)) == 1
    assert "regression" in (told / "summary.md").read_text()
    assert "<svg" in next(told.glob("charts/*.svg")).read_text()
    assert "slower" in (told / "index.html").read_text()
    assert "fairmfu" in (told / "runs.html").read_text()


@pytest.mark.usefixtures("without_pages")
class TestWhatSurroundsIt:
    @pytest.mark.usefixtures("first_night")
    def test_a_night_computes_only_what_is_new(
        self, logs: Path, nightly: Nightly, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[int] = []

        def counting(tables: dict, overlay: tuple = ()) -> analysis.Analysis:
            asked.append(tables["runs"].height)
            return analyse(tables, overlay)

        monkeypatch.setattr(incremental, "analyse", counting)
        write_nights(logs, range(5, 6), Plan(seed=1))
        for _ in range(2):
            nightly()
            assert asked == [2]

    def test_kept_metrics_are_those_of_the_whole_store(
        self, tmp_path: Path, logs: Path, nightly: Nightly
    ) -> None:
        plan = Plan(seed=1)
        for night in (1, 2):
            write_nights(logs, range(night, night + 1), plan, only=(0, 12))
            nightly()
        store = Store(tmp_path / "store")
        found = module.update_metrics(store)
        assert found.rescored is None
        assert_frame_equal(found.metrics, analyse(store.tables()).metrics)

    @pytest.mark.usefixtures("first_night")
    def test_facts_given_by_day_are_in_the_next_report(
        self, tmp_path: Path, nightly: Nightly
    ) -> None:
        before = Store(tmp_path / "store").table("runs")["run_id"].to_list()
        arguments = ["set", before[0], "accelerator=NVIDIA H200", "--store", "store"]
        assert CliRunner().invoke(main, arguments).exit_code == 0
        assert nightly().exit_code == 0
        assert [run["run_id"] for run in summary(tmp_path)["runs"]] == [before[0]]

    @pytest.mark.usefixtures("first_night")
    def test_a_night_without_anything_new_is_quiet(self, tmp_path: Path, nightly: Nightly) -> None:
        again = nightly()
        assert again.exit_code == 0
        assert "No new run tonight" in again.stdout
        assert summary(tmp_path)["runs"] == []

    @pytest.mark.usefixtures("first_night")
    def test_a_source_that_cannot_be_read_is_told_every_night(
        self, tmp_path: Path, logs: Path, nightly: Nightly
    ) -> None:
        (logs / "cut.log").write_bytes(gzip.compress(b"step\n" * 99)[:-9])
        for _ in range(2):
            found = nightly()
            assert found.exit_code == 4
            assert "cut.log" in found.stdout
            (failed,) = summary(tmp_path)["sources"]["failed"]
            assert failed["path"].endswith("cut.log")

    @pytest.mark.usefixtures("first_night")
    def test_no_source_at_all_is_a_failure_that_leaves_the_last_report(
        self, tmp_path: Path, logs: Path, nightly: Nightly
    ) -> None:
        good = (tmp_path / "out" / "index.html").read_text()
        shutil.rmtree(logs)
        found = nightly()
        assert found.exit_code == 1
        assert f"None of the sources could be read. {logs}: no such file or folder" in found.stderr
        assert (tmp_path / "out" / "index.html").read_text() == good
        status = (tmp_path / "out" / "status.js").read_text()
        assert "None of the sources could be read" in status
        logs.mkdir()
        write_nights(logs, range(1, 2), Plan(seed=1))
        assert nightly().exit_code == 0
        assert (tmp_path / "out" / "status.js").read_text() == night_html.status_js()

    @pytest.mark.usefixtures("first_night")
    def test_a_full_disk(
        self,
        tmp_path: Path,
        logs: Path,
        nightly: Nightly,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        store = Store(tmp_path / "store")
        before = store.tables()
        write_nights(logs, range(2, 3), Plan(seed=1), only=(0,))

        def full(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr(pl.DataFrame, "write_parquet", full)
            found = nightly()
        assert found.exit_code == 1
        assert (
            "store: the disk is full. What was stored before is intact. Fix: free some "
            "space and run it again" in found.stderr
        )
        assert "the disk is full" in (tmp_path / "out" / "status.js").read_text()
        for name, frame in store.tables().items():
            assert_frame_equal(frame, before[name])
        assert nightly().exit_code == 0
        assert store.table("runs").height == 3

    @pytest.mark.usefixtures("first_night")
    def test_a_full_disk_under_the_report(
        self,
        tmp_path: Path,
        logs: Path,
        nightly: Nightly,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        good = (tmp_path / "out" / "index.html").read_text()
        write_nights(logs, range(2, 3), Plan(seed=1), only=(0,))
        with monkeypatch.context() as patch:
            patch.setattr(module.night_outputs, "markdown", lambda _: 1 / 0)
            assert "fairmfu itself failed: ZeroDivisionError" in nightly().output
        assert (tmp_path / "out" / "index.html").read_text() == good
        assert nightly().exit_code == 0
        assert len(summary(tmp_path)["runs"]) == 1  # that that the failed night did not tell
        assert list((tmp_path / "out").rglob("*.writing")) == []

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    @pytest.mark.usefixtures("first_night")
    def test_a_read_only_store(self, tmp_path: Path, logs: Path, nightly: Nightly) -> None:
        (tmp_path / "store").chmod(0o500)
        (tmp_path / "store" / lock.LOCK_NAME).chmod(0o400)
        write_nights(logs, range(2, 3), Plan(seed=1))
        try:
            found = nightly()
        finally:
            (tmp_path / "store").chmod(0o700)
        assert found.exit_code == 1
        assert "store: cannot be written to (Permission denied)" in found.stderr

    @pytest.mark.usefixtures("first_night")
    def test_a_store_that_may_not_be_written_to(
        self,
        logs: Path,
        nightly: Nightly,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:

        def refuse(*_: object, **__: object) -> None:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))

        monkeypatch.setattr(parquet_parts, "write_part", refuse)
        write_nights(logs, range(2, 3), Plan(seed=1))
        found = nightly()
        assert found.exit_code == 1
        assert (
            "store: cannot be written to (Read-only file system). What was stored before is "
            "intact. Fix: give another --store, or get write permission" in found.stderr
        )

    @pytest.mark.usefixtures("first_night")
    def test_another_writer_is_waited_for_by_name(
        self, tmp_path: Path, logs: Path, nightly: Nightly
    ) -> None:
        write_nights(logs, range(2, 3), Plan(seed=1))
        with Store(tmp_path / "store")._writing():
            found = nightly("--wait", "0.2")
        assert found.exit_code == 1
        holder = f"process {os.getpid()} ("
        waits, gives_up = [line for line in found.stderr.splitlines() if holder in line]
        assert waits.endswith("is writing there; waiting up to 0.2 s")
        assert "did not end within 0.2 s. Fix: wait for it to end" in gives_up

    @pytest.mark.usefixtures("first_night")
    def test_a_reader_reads_while_a_night_writes(
        self,
        tmp_path: Path,
        logs: Path,
        nightly: Nightly,
    ) -> None:
        write_nights(logs, range(2, 3), Plan(seed=1))
        store = Store(tmp_path / "store")
        with store._reading() as con:
            assert nightly().exit_code == 0
            assert con.sql("select count(distinct run_id) from steps").fetchall() == [(2,)]
        assert store.table("runs").height == 4

    @pytest.mark.usefixtures("first_night")
    def test_a_clock_that_was_set_back_is_told(
        self,
        nightly: Nightly,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        earlier = module.utc_now() - timedelta(days=3)
        monkeypatch.setattr(module, "utc_now", lambda: earlier)
        found = nightly()
        assert found.exit_code == 0
        words = " ".join(found.stdout.split())
        assert (
            f"The clock was set back: it shows {earlier:%Y-%m-%d %H:%M} UTC, and the last" in words
        )

    @pytest.mark.usefixtures("first_night")
    def test_reports_of_one_day_stand_side_by_side_and_the_oldest_go(
        self, tmp_path: Path, nightly: Nightly
    ) -> None:
        today = f"{datetime.now():%Y-%m-%d}"
        archive = tmp_path / "out" / "archive"
        for _ in range(2):
            nightly()
        assert sorted(p.name for p in archive.iterdir()) == [today, f"{today}-2", f"{today}-3"]
        (archive / "1999-12-31").mkdir()
        list_as_ours(tmp_path, "archive/1999-12-31")
        (archive / "notes of mine").mkdir()
        (archive / "2020-01-01").mkdir()
        nightly("--keep", "2")
        left = sorted(p.name for p in archive.iterdir())
        assert left == ["2020-01-01", f"{today}-3", f"{today}-4", "notes of mine"]
        nightly("--keep", "2")  # the numbers that are free are of reports that went
        left = sorted(p.name for p in archive.iterdir())
        assert left == ["2020-01-01", f"{today}-4", f"{today}-5", "notes of mine"]

    def test_files_of_others_beside_the_report_stay(
        self, tmp_path: Path, logs: Path, nightly: Nightly
    ) -> None:
        write_nights(logs, range(1, 2), Plan(seed=1), only=(0,))
        mine = [tmp_path / "out" / name for name in ("charts/mine.png", "charts/mine/a.svg")]
        mine += [tmp_path / "out" / "archive" / name for name in ("1999-12-31", "notes")]
        for path in mine:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("mine")
        stale = tmp_path / "out" / "charts" / "gone.svg"
        stale.write_text("<svg/>")
        list_as_ours(tmp_path, "charts/gone.svg")
        for _ in range(2):
            assert nightly("--keep", "1").exit_code == 0
        assert [path for path in mine if not path.exists()] == []
        assert not stale.exists()

    @pytest.mark.usefixtures("first_night")
    def test_what_was_done_stands_in_the_log(self, tmp_path: Path) -> None:
        written = (tmp_path / "out" / "nightly.log").read_text().splitlines()
        lines = [line.split(" ", 1)[1] for line in written]
        assert lines[1:] == ["2 read", "2 runs computed", "done, exit 0"]
        assert lines[0].startswith("started, fairmfu ")

    @pytest.mark.usefixtures("first_night")
    def test_a_log_that_lost_steps_is_a_note_of_one_night(
        self, tmp_path: Path, logs: Path, nightly: Nightly
    ) -> None:
        log = min(logs.rglob("*.log"))
        log.write_text("".join(log.read_text().splitlines(keepends=True)[:-3]))
        settle(log)
        notes = []
        for _ in range(2):
            assert nightly().exit_code == 0
            notes.append([words for words in summary(tmp_path)["notes"] if str(log) in words])
        ((told,), none) = notes
        assert "fewer steps of its run than were read before, which are kept" in told
        assert none == []

    def test_what_is_passed_over_stands_in_the_log_once(
        self, tmp_path: Path, logs: Path, nightly: Nightly
    ) -> None:
        """Cron mails nothing of a night that ends well."""
        empty = logs / "stderr.log"
        empty.touch()
        settle(empty)
        found = nightly()
        assert found.exit_code == 1
        assert "No file has a known log format" in found.stderr
        write_nights(logs, range(1, 2), Plan(seed=1), only=(0,))
        assert [nightly().exit_code for _ in range(2)] == [0, 0]
        written = (tmp_path / "out" / "nightly.log").read_text()
        assert written.count(f" {empty}: skipped: the file is empty.\n") == 1

    def test_reports_in_the_folder_of_the_logs_are_not_read(self, logs: Path) -> None:
        write_nights(logs, range(1, 2), Plan(seed=1), only=(0,))
        arguments = ["--store", str(logs / "store"), "--out", str(logs / "out")]
        for _ in range(2):
            found = CliRunner().invoke(main, ["nightly", str(logs), *arguments])
            assert found.exit_code == 0, found.output
            assert "nightly.log" not in found.output

    @pytest.mark.usefixtures("first_night")
    def test_a_new_formula_is_told_until_the_store_is_rescored(
        self, tmp_path: Path, logs: Path, nightly: Nightly, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for of in (analysis, run_scoring, module.scores, module):
            monkeypatch.setattr(of, "FORMULA_VERSION", "fairmfu-next")
        write_nights(logs, range(2, 3), Plan(seed=1))
        found = nightly()
        words = " ".join(found.stdout.split())
        assert "2 runs have metrics of an earlier fairmfu" in words
        assert "fairmfu rescore" in words
        assert {s["series"]: s["formulas"] for s in summary(tmp_path)["series"]}.popitem()[1] == [
            "fairmfu-1",
            "fairmfu-next",
        ]
        rescored = CliRunner().invoke(main, ["rescore", "--store", "store"])
        assert rescored.exit_code == 0
        assert "Recomputed 2 runs" in rescored.stderr
        assert "earlier fairmfu" not in nightly().stdout
        assert {tuple(s["formulas"]) for s in summary(tmp_path)["series"]} == {("fairmfu-next",)}

    def test_a_baseline_holds_until_it_is_taken_back(self, logs: Path, nightly: Nightly) -> None:
        plan = Plan(seed=2, changes={0: (Change(night=4, factor=0.9),)})
        write_nights(logs, range(1, 12), plan, only=(0,))
        nightly()
        name = min(path.stem for path in logs.rglob("*.log"))
        pinned = CliRunner().invoke(main, ["baseline", "set", name, "--store", "store"])
        assert pinned.exit_code == 0, pinned.output
        for _ in range(2):
            assert nightly().exit_code == 3
        listed = CliRunner().invoke(main, ["baseline", "list", "--store", "store"])
        assert name in listed.stdout
        remove = ["baseline", "remove", name, "--store", "store"]
        taken = CliRunner().invoke(main, remove)
        assert (taken.exit_code, taken.stderr) == (0, "Removed 1 baseline\n")
        again = CliRunner().invoke(main, remove)
        assert f"No baseline is called {name!r}. Fix: see fairmfu baseline list" in again.stderr
        listed = CliRunner().invoke(main, ["baseline", "list", "--store", "store"])
        assert "No baseline is set" in listed.stderr
        assert not listed.stdout
        elsewhere = CliRunner().invoke(main, ["baseline", "list", "--store", "stroe"])
        assert (elsewhere.exit_code, "stroe: no store here" in elsewhere.stderr) == (1, True)
        assert nightly().exit_code == 0

    def test_a_report_made_elsewhere_takes_no_news_from_the_nightly(
        self, logs: Path, nightly: Nightly
    ) -> None:
        plan = Plan(seed=2, changes={0: (Change(night=12, factor=0.9),)})
        write_nights(logs, range(1, 11), plan, only=(0,))
        assert nightly().exit_code == 0
        write_nights(logs, range(11, 15), plan, only=(0,))
        trial = nightly("--out", "trial")
        assert "1 earlier change is listed but not reported as new" in " ".join(
            trial.stdout.split()
        )
        assert nightly().exit_code == 3
        assert nightly().exit_code == 0
        assert nightly("--series-by", "model,gpus").exit_code == 0  # other series: no news of old

    def test_the_report_of_tonight_stays_though_the_clock_was_set_back(
        self, tmp_path: Path, logs: Path, nightly: Nightly
    ) -> None:
        write_nights(logs, range(1, 2), Plan(seed=1), only=(0,))
        archive = tmp_path / "out" / "archive"
        for later in ("2999-01-01", "2999-01-02"):
            (archive / later).mkdir(parents=True)
            list_as_ours(tmp_path, f"archive/{later}")
        nightly("--keep", "2")
        today = f"{datetime.now():%Y-%m-%d}"
        assert sorted(p.name for p in archive.iterdir()) == [today, "2999-01-02"]

    def test_the_configuration_stands_in_one_file(
        self, tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        write_nights(logs, range(1, 2), Plan(seed=1), only=(0,))
        (tmp_path / "fairmfu.toml").write_text(
            'store = "perf"\nsources = ["logs/*"]\nout = "www"\ntitle = "Team X"\n'
            '[[facts]]\npaths = "*.log"\ngradient_accumulation = 1\n'
            '[[facts]]\npaths = "*/nowhere/*.log"\ngpus = 8\n'
        )
        found = CliRunner().invoke(main, ["nightly"])
        assert found.exit_code == 0, found.output
        assert "no source matches" in " ".join(found.stdout.split())
        told = json.loads((tmp_path / "www" / "summary.json").read_text())
        assert told["title"] == "Team X"
        facts = Store(tmp_path / "perf").table("facts").filter(name="gradient_accumulation")
        assert "sidecar:fairmfu.toml" in facts["origin"].to_list()
        assert "overrides the log" not in " ".join(found.stdout.split())

    def test_facts_that_speak_against_the_log_are_told(
        self, tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        write_nights(logs, range(1, 2), Plan(seed=1))
        (tmp_path / "fairmfu.toml").write_text(
            'sources = ["logs"]\n[[facts]]\npaths = "*.log"\naccelerator = "NVIDIA B200"\n'
        )
        found = CliRunner().invoke(main, ["nightly"])
        words = " ".join(found.stdout.split())
        assert "fairmfu.toml overrides the log's facts in 2 runs tonight, such as" in words
        assert "NVIDIA B200 (sidecar:fairmfu.toml)" in words

    def test_options_may_stand_in_the_environment(
        self, tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_nights(logs, range(1, 2), Plan(seed=1), only=(0,))
        monkeypatch.setenv("FAIRMFU_STORE", str(tmp_path / "perf"))
        monkeypatch.setenv("FAIRMFU_NIGHTLY_OUT", str(tmp_path / "www"))
        monkeypatch.setenv("FAIRMFU_NIGHTLY_TITLE", "Team Y")
        monkeypatch.setenv("FAIRMFU_NIGHTLY_THRESHOLD", "4 %")
        found = CliRunner().invoke(main, ["nightly", str(logs)])
        assert found.exit_code == 0, found.output
        told = json.loads((tmp_path / "www" / "summary.json").read_text())
        assert (told["title"], told["threshold"]) == ("Team Y", 0.04)
        assert (tmp_path / "perf" / "catalogue.duckdb").exists()

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (["--threshold", "3"], "--threshold must be a fraction below 1. Fix: write 0.03"),
            (["--series-by", "model,gpu"], "metrics has no column 'gpu'."),
            (["--store", "a", "--out", "a"], "--store and --out are the same folder."),
            (["--config", "nowhere.toml"], "does not exist"),
        ],
    )
    def test_options_that_cannot_be_meant_are_refused(
        self, options: list[str], words: str, logs: Path, tmp_path: Path
    ) -> None:
        found = CliRunner().invoke(main, ["nightly", str(logs), *options])
        assert found.exit_code == 2
        assert words in " ".join(found.stderr.split())
        assert not (tmp_path / "a").exists()

    def test_mail_holds_the_night_and_not_each_log_that_was_read(
        self, tmp_path: Path, logs: Path, nightly: Nightly
    ) -> None:
        write_nights(logs, range(1, 2), Plan(seed=1), only=(0,))
        (logs / "packed.log").write_bytes(b"BZh91AY")
        found = nightly()
        page = Path("out/index.html")
        why = f"{logs / 'packed.log'}: a file compressed by bzip2, not a log."
        assert found.stderr.splitlines() == [
            f"Error: {why} Fix: unpack it first: bunzip2 FILE",
            f"Report: {page}. Exit code 4: a log could not be read.",
        ]
        markdown = (tmp_path / "out" / "summary.md").read_text()
        assert why.replace(": ", " (unreadable): ", 1) in markdown.replace("\\", "")
        assert "nothing else here is comparable" not in markdown

    def test_nothing_to_read_is_a_question_of_usage(self, tmp_path: Path) -> None:
        found = CliRunner().invoke(main, ["nightly", "--store", str(tmp_path / "s")])
        assert found.exit_code == 2
        assert "Fix: give at least one PATH, or sources in fairmfu.toml" in found.stderr


WITHOUT_PAGES = """
from fairmfu.cli import main
from fairmfu.reports.nightly import night_html, night_outputs, nightly

nightly.render_process.start_drawing = lambda _: None
nightly.full_page = lambda *_: "runs"
night_outputs.svgs = lambda _: {"overview.svg": "<svg/>"}
night_html.pages = lambda night: (f"night {night.number}", "kept")
main()
"""


@pytest.mark.usefixtures("without_pages")
def test_two_nightlies_at_once_lose_nothing(
    tmp_path: Path, logs: Path, nightly: Nightly, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process begins while this one reads, and waits for it."""
    write_nights(logs, range(1, 3), Plan(seed=1), only=(0,))
    command = [sys.executable, "-c", WITHOUT_PAGES, "nightly", str(logs)]
    command += ["--store", str(tmp_path / "store"), "--out", str(tmp_path / "out")]
    read, others = module._read, []

    def read_while_another_waits(*given: Any) -> Any:
        if not others:
            environment = os.environ | {"PYTHONPATH": str(ROOT)}
            other = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)  # noqa: S603
            others.append(other)
            assert f"process {os.getpid()} (" in other.stderr.readline()
        return read(*given)

    monkeypatch.setattr(module, "_read", read_while_another_waits)
    assert nightly().exit_code == 0
    (other,) = others
    said = other.communicate()[1]
    assert other.returncode == 0, said
    store = Store(tmp_path / "store")
    assert store.table("runs").height == 2
    state = module.update_metrics(store)
    assert state.metrics.height == 2
    assert set(METRICS.names()) == set(state.metrics.columns)
    assert summary(tmp_path)["sources"]["known"] == 2  # the other one was the last
    assert list((tmp_path / "out").rglob("*.writing")) == []


def test_a_change_is_news_once_though_a_late_log_moves_what_made_it_sure() -> None:
    """A log of an earlier night, read later, may begin a change, or confirm it."""

    def night(
        run_id: str, found_by: str, told: list[str], *, counts: bool = True, series: str = "s"
    ) -> tuple[bool, list[str]]:
        change = {"series": series, "against": "history", "kind": "regression", "run_id": run_id}
        past = SimpleNamespace(
            changes=pl.DataFrame([change | {"found_by": found_by, "counts": counts}])
        )
        nights = pl.DataFrame(
            [{"number": 1, "by": ["model"], "told": told}], schema_overrides={"told": pl.List(str)}
        )
        order = SimpleNamespace(by=["model"])
        changes, keys = module._news(past, nights, order, diary=None)  # type: ignore[arg-type]
        return changes["new"][0], keys

    new, told = night("first", "confirmed", [])
    assert new
    assert not night("first", "late", told)[0]
    assert not night("late", "first", told)[0]
    assert not night("late", "confirmed", told)[0]
    assert not night("first", "confirmed", told, series="of a mended fact")[0]
    assert night("second", "again", told)[0]
    # What begins where another was made sure is another change.
    assert night("confirmed", "again", told)[0]
    # What was told, and no longer counts, is no news; what did not count is, once it does.
    assert not night("first", "confirmed", told, counts=False)[0]
    new, told = night("first", "confirmed", [], counts=False)
    assert new
    assert not night("first", "confirmed", told, counts=False)[0]
    assert night("first", "confirmed", told)[0]
    former = ["s\x1fhistory\x1fregression\x1fconfirmed"]
    assert not night("first", "confirmed", former)[0]


@pytest.mark.usefixtures("first_night")
def test_baselines_of_the_configuration_are_named_as_runs_are_anywhere(
    nightly: Nightly, tmp_path: Path
) -> None:
    """By a name, or the beginning of an id; one that is none ends the night with the nearest."""
    kept = module.update_metrics(Store(tmp_path / "store")).metrics
    first, second = kept["run_id", "name"].rows()

    def held_against(*named: str) -> Result:
        config = tmp_path / "fairmfu.toml"
        config.write_text("".join(f'[[baselines]]\nrun = "{name}"\n' for name in named))
        return nightly("--config", str(config))

    assert held_against(first[1], second[0][:8]).exit_code == 0
    before = summary(tmp_path)
    assert {first[1], second[1]} <= {
        row["baseline"]["run"] for row in before["series"] if row["baseline"]
    }
    found = held_against(first[1], f"{second[1]}x", "nothing like it")
    assert found.exit_code == 1
    assert "fairmfu.toml, [[baselines]]: no run to compare a series with.\n" in found.stderr
    assert f"No run is called '{second[1]}x'. Nearest: {second[1]}" in found.stderr
    assert "No run is called 'nothing like it'." in found.stderr
    assert summary(tmp_path) == before
    assert "No run is called" in (tmp_path / "out" / "status.js").read_text()


@pytest.mark.usefixtures("first_night")
def test_a_baseline_whose_run_was_removed_ends_the_night(
    nightly: Nightly, tmp_path: Path, logs: Path
) -> None:
    """Told when it is removed, too; not where its log is read again by the night."""
    write_nights(logs, range(2, 3), Plan(seed=1), only=(0,))
    assert nightly().exit_code == 0
    metrics = module.update_metrics(Store(tmp_path / "store")).metrics
    run_id, name, (path,) = metrics.select("run_id", "name", "sources").row(0)
    other = metrics["name"][1]
    (tmp_path / "fairmfu.toml").write_text(f'store = "store"\n[[baselines]]\nrun = "{other}"\n')
    fairmfu = CliRunner().invoke
    assert fairmfu(main, ["baseline", "set", name, "--store", "store"]).exit_code == 0
    removed = fairmfu(main, ["remove", name, other, "--store", "store"])
    assert removed.exit_code == 0
    assert f"Warning: {name} ({run_id}) is a baseline:" in removed.stderr
    assert f"Warning: fairmfu.toml names {other} as a baseline:" in removed.stderr
    (tmp_path / "fairmfu.toml").unlink()
    assert nightly().exit_code == 0  # which has read it again
    before = summary(tmp_path)
    assert fairmfu(main, ["remove", name, "--store", "store"]).exit_code == 0
    Path(path).unlink()
    found = nightly()
    assert found.exit_code == 1
    assert "store, baselines: no run to compare a series with.\n" in found.stderr
    assert f"{name} ({run_id}) is no longer in the store." in found.stderr
    assert summary(tmp_path) == before
    assert (
        f"{name} ({run_id}) is no longer in the store."
        in (tmp_path / "out" / "status.js").read_text()
    )
    assert fairmfu(main, ["baseline", "remove", run_id, "--store", "store"]).exit_code == 0
    assert nightly().exit_code == 0
    assert "Warning" not in fairmfu(main, ["remove", metrics["name"][2], "--store", "store"]).stderr
