"""A run that is killed leaves the old store or the new; the next one ends where it would have.

Twice: at steps that write to the disk, in this process (one of each command; `make kills`: each);
and by SIGKILL, SIGTERM or SIGINT at random moments of a process of its own (of two commands;
`make kills`: of all, 1,000 in all).
"""

from __future__ import annotations

import errno
import gc
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest
from click.testing import CliRunner
from polars.testing import assert_frame_equal

from fairmfu.cli import main
from fairmfu.ingest.core.schema import READING_COSTS
from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.ingest.pipeline import ingest_run
from fairmfu.ingest.store import compaction, transactions
from fairmfu.ingest.store.doctor import Finding, examine_store
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.pipeline.metrics_cache import KEPT_SCHEMA
from fairmfu.reports.nightly import night_html, night_outputs, nightly
from fairmfu.reports.nightly.findings import EXIT_FAILED_JOB
from fairmfu.reports.page import html_report
from tests.support.folders import ROOT
from tests.support.nights import Plan, write_night

ALL_MOMENTS: Final = "FAIRMFU_KILLS" in os.environ
KILLS: Final = int(os.environ.get("FAIRMFU_KILLS", "1"))
RANDOM: Final = random.Random(7)  # noqa: S311 - moments to kill at
PLAN: Final = Plan(seed=11)
PAGE: Final = "<!doctype html><html></html>"
Content = dict[str, pl.DataFrame]
READERS: Final = ("ingest", "nightly")
"""Commands that read logs; others change nothing that a log has said."""
KEEPERS: Final = ("runs", "report", "compare", "missing")
"""Commands that keep the results that they computed."""
RAN: Final = (0, 7, 12) if ALL_MOMENTS else (0, 12)
"""Places of the series that run each night: one per framework that prints few lines."""


# --- the store before, and the night's work ---------------------------------------------------


@dataclass(frozen=True)
class Place:
    """A folder that holds `logs` and a store, and how it stood before the run that is killed.

    All runs work in the one folder, for a source is known by its whole path.
    """

    folder: Path
    saved: Path
    command: str

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def store(self) -> Store:
        return Store(self.folder / "store")

    @property
    def out(self) -> Path:
        return self.folder / "report"

    @property
    def arguments(self) -> list[str]:
        """The command that is killed."""
        logs = [str(self.logs)] if self.command in READERS else []
        where = {"nightly": self.out, "report": self.out / "index.html"}.get(self.command)
        out = [] if where is None else ["--out", str(where)]
        return [self.command, *logs, "--store", str(self.store.path), *out]

    def save(self) -> None:
        shutil.copytree(self.folder, self.saved)

    def reset(self) -> None:
        shutil.rmtree(self.folder)
        shutil.copytree(self.saved, self.folder)

    def run(self) -> int:
        """The command in this process; its exit code."""
        done = CliRunner().invoke(main, self.arguments)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code

    def content(self) -> Content:
        """All that the store says, but for when it was read and which nights there were."""
        tables = self.store.tables()
        tables["facts"] = tables["facts"].drop("sequence")
        tables["sources"] = tables["sources"].drop("read_at", *READING_COSTS)
        kept = self.store.kept("metrics", latest_by=("run_id",))
        kept = kept.sort("run_id").drop("as_of") if kept.width else kept
        return tables | {"metrics": kept}


def two_nights(place: Place) -> None:
    """A log of the second night grows; the third comes; a fact stands beside a known log."""
    write_night(place.logs, 1, PLAN, only=RAN)
    grows = write_night(place.logs, 2, PLAN, only=RAN)[0]
    whole = grows.read_text()
    grows.write_text("".join(whole.splitlines(keepends=True)[:30]))
    assert place.run() == (EXIT_FAILED_JOB if place.command == "nightly" else 0)  # it stopped
    grows.write_text(whole)
    write_night(place.logs, 3, PLAN, only=RAN)
    grows.with_name("facts.toml").write_text('optimizer = "AdamW"\n')


def a_full_tier(place: Place) -> None:
    """The next batch is one which has all of them merged; a run has a fact by hand."""
    for night in range(1, compaction.MERGE_FAN_IN):
        paths = write_night(place.logs, night, PLAN, only=[0])
        ingest_run.ingest_paths(paths, place.store)
    run = place.store.table("runs")["run_id"][3]
    place.store.give_facts({run: facts_from_flags(["lora_rank=8"])})
    write_night(place.logs, compaction.MERGE_FAN_IN, PLAN, only=[0])


def merged_parts(place: Place) -> None:
    """Parts of a merge are still there, and readers of before it are long gone."""
    assert place.run() == 0
    write_night(place.logs, compaction.MERGE_FAN_IN + 1, PLAN, only=[0])


def some_batches(place: Place) -> None:
    """Three batches, a run with a fact by hand, and no metrics yet."""
    for night in range(1, 4):
        ingest_run.ingest_paths(write_night(place.logs, night, PLAN, only=[0]), place.store)
    run = place.store.table("runs")["run_id"][0]
    place.store.give_facts({run: facts_from_flags(["lora_rank=8"])})


def kept_and_changed(place: Place) -> None:
    """Results of all runs of some_batches are kept, and of one are stale: it has a fact more."""
    assert place.run() == 0
    run = place.store.table("runs")["run_id"][1]
    place.store.give_facts({run: facts_from_flags(["gpus=64"])})


def batches_without_a_model(place: Place) -> None:
    """Two runs of some_batches are of a model that nobody knows, so that facts are missing."""
    runs = place.store.table("runs")["run_id"][1:]
    place.store.give_facts({run: facts_from_flags(["model=unheard-of"]) for run in runs})


BEFORE: Final = (
    (two_nights, "nightly"),
    (a_full_tier, "ingest"),
    (merged_parts, "ingest"),
    (some_batches, "runs"),
    (some_batches, "compact"),
    (some_batches, "rebuild"),
    (some_batches, "report"),
    (kept_and_changed, "compare"),
    (batches_without_a_model, "missing"),
)
IN_PROCESS: Final = BEFORE if ALL_MOMENTS else BEFORE[:3] + BEFORE[4:]
"""`report` does what `runs` does, and then writes a page."""
AS_PROCESSES: Final = BEFORE if ALL_MOMENTS else BEFORE[:1] + BEFORE[4:5]
"""Those that are killed at random moments as well: by `make kills` all."""
ON_BAD_DISKS: Final = BEFORE if ALL_MOMENTS else BEFORE[::6]
ON_SLOW_DISKS: Final = BEFORE[1:] if ALL_MOMENTS else BEFORE[1:2] + BEFORE[4:5]


FOLLOWS: Final = {
    merged_parts: a_full_tier,
    kept_and_changed: some_batches,
    batches_without_a_model: some_batches,
}
"""What one prepares goes on from what another did."""


def named(param: tuple[Callable[[Place], None], str]) -> str:
    return f"{param[0].__name__}-{param[1]}"


@pytest.fixture(scope="module")
def parents(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Where commands find what one function prepares: once for all of them."""
    return cache(tmp_path_factory.mktemp)


@pytest.fixture(scope="module", params=IN_PROCESS, ids=named)
def place(request: pytest.FixtureRequest, parents: Callable[[str], Path]) -> Place:
    prepare, command = request.param
    first = FOLLOWS.get(prepare, prepare)
    parent = parents(first.__name__)
    for step in dict.fromkeys((first, prepare)):
        place = Place(parent / "work", parent / step.__name__, command)
        if not place.saved.exists():
            with plain_pages():
                step(place)
            place.save()
        place.reset()
    return place


@contextmanager
def plain_pages() -> Iterator[None]:
    """Reports are written as ever, and hardly drawn, for that takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nightly, "full_page", lambda *_: PAGE)
        patch.setattr(html_report, "document", lambda *_, **__: PAGE)
        patch.setattr(night_html, "pages", lambda _: (PAGE, PAGE))
        patch.setattr(night_outputs, "svgs", lambda _: {"overview.svg": "<svg/>"})
        yield


@pytest.fixture(scope="module", autouse=True)
def small_and_without_grace() -> Iterator[None]:
    """Merged parts may go at once; see plain_pages. Five batches are merged instead of sixteen."""
    with plain_pages(), pytest.MonkeyPatch.context() as patch:
        if not ALL_MOMENTS:
            patch.setattr(compaction, "MERGE_FAN_IN", 5)
        patch.setattr(transactions, "MERGED_PART_GRACE", timedelta(0))
        yield


@pytest.fixture(scope="module")
def before(place: Place) -> Content:
    """Return the contents of the store before the run."""
    place.reset()
    return place.content()


@dataclass(frozen=True)
class Undisturbed:
    """What the store holds when nothing disturbs the run, and the moments that the run had."""

    content: Content
    calls: list[str]


@pytest.fixture(scope="module")
def undisturbed(place: Place, before: Content) -> Undisturbed:
    place.reset()
    with killed(0) as never:
        assert place.run() == 0
    assert WRITES[place.command] <= set(never.calls)
    after = place.content()
    if place.command in READERS:
        assert after["steps"].height >= before["steps"].height + 41
    else:
        assert after["metrics"].height == (place.command in KEEPERS) * before["runs"].height
        if place.command == "missing":
            assert after["metrics"]["needs"].drop_nulls().len() == 2
        for tables in (before, after):
            assert_same({**tables, "metrics": before["metrics"]}, before, place.command)
    return Undisturbed(after, never.calls)


def assert_same(found: Content, wanted: Content, when: str) -> None:
    assert found.keys() == wanted.keys()
    for name, frame in wanted.items():
        try:
            assert_frame_equal(found[name], frame)
        except AssertionError as error:
            raise AssertionError(f"{when}: {name}: {error}") from error


# --- at each step that writes -----------------------------------------------------------------


class Killed(BaseException):
    """The process is dead: nothing catches it, and nothing more reaches the disk."""


@dataclass
class Killer:
    """Counts the moments of a run, and ends it at one of them.

    A moment lies before and behind each call that changes what stands on the disk; of one that
    writes a file, also when half of it is written.
    """

    at: int
    """From 1; 0 for never."""
    moments: int = 0
    dead: bool = False
    calls: list[str] = field(default_factory=list)

    def moment(self, call: str) -> None:
        self.moments += 1
        self.calls.append(call)
        if self.moments == self.at:
            self.dead = True
            raise Killed(call)

    def guarded(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def guard(*args: Any, **options: Any) -> Any:
            if self.dead:
                raise Killed(name)
            self.moment(f"before {name}")
            result = call(*args, **options)
            self.moment(f"behind {name}")
            return result

        return guard

    def writing(self, name: str, call: Callable[..., Any], place: int) -> Callable[..., Any]:
        """`call` writes the file that its argument at `place` names."""

        def guard(*args: Any, **options: Any) -> Any:
            if self.dead:
                raise Killed(name)
            self.moment(f"before {name}")
            result = call(*args, **options)
            path = args[place] if len(args) > place else None
            try:
                self.moment(f"within {name}")
            except Killed:
                if isinstance(path, str | Path):
                    os.truncate(path, Path(path).stat().st_size // 2)
                raise
            self.moment(f"behind {name}")
            return result

        return guard


@contextmanager
def killed(at: int, kind: Callable[[int], Killer] | None = None) -> Iterator[Killer]:
    killer = (kind or Killer)(at)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # of what was open when it ended
        for owner, name in (
            (os, "fsync"),
            (os, "rename"),
            (os, "replace"),
            (os, "unlink"),
            (os, "remove"),
            (os, "symlink"),
            (Path, "rename"),
            (Path, "replace"),
            (Path, "unlink"),
            (Path, "symlink_to"),
            (Path, "touch"),
            (shutil, "rmtree"),
        ):
            patch.setattr(owner, name, killer.guarded(name, getattr(owner, name)))
        for owner, name, place in (
            (pl.DataFrame, "write_parquet", 1),
            (shutil, "copyfile", 1),
            (shutil, "copy", 1),
            (shutil, "copy2", 1),
            (Path, "write_text", 0),
            (Path, "write_bytes", 0),
        ):
            patch.setattr(owner, name, killer.writing(name, getattr(owner, name), place))
        yield killer
        gc.collect()


def killed_at(place: Place, at: int) -> Killer:
    """A run that ends at that moment."""
    with killed(at) as killer:
        try:
            place.run()
        except Killed:
            assert killer.dead
    return killer


WRITES: Final = {
    **{
        name: {"behind write_parquet", "behind rename"}
        for name in (*READERS, "runs", "compact", "compare", "missing")
    },
    "rebuild": {"behind rename", "before fsync"},
    "report": {"behind replace", "within write_bytes"},
}
"""What each command is known to do on the disk."""


def test_a_run_killed_at_any_step_is_made_good_by_the_next(
    place: Place, before: Content, undisturbed: Undisturbed
) -> None:
    moments = list(enumerate(undisturbed.calls, start=1))
    for at, call in moments if ALL_MOMENTS else RANDOM.sample(moments, 1):
        place.reset()
        when = f"killed {call} (moment {at} of {len(moments)})"
        assert killed_at(place, at).dead, when
        assert_old_or_new(place, before, undisturbed.content, when)
        assert place.run() == 0, when
        assert_same(place.content(), undisturbed.content, when)
        assert not harm(examine_store(place.store)), when
        assert_report_is_whole(place, when)
        assert not list(place.folder.rglob("*.writing*")), when


def assert_report_is_whole(place: Place, when: str) -> None:
    """That of this night or of the one before: a page, and what goes with it."""
    if place.command == "report" and (place.out / "index.html").exists():
        assert "</html>" in (place.out / "index.html").read_text()[-20:], when
    if place.command == "nightly":
        assert "</html>" in (place.out / "index.html").read_text()[-20:], when
        assert json.loads((place.out / "summary.json").read_text())["schema"] == "1", when
        for dated in (place.out / "archive").iterdir():
            whole = {"index.html", "summary.json", "summary.md", "junit.xml", "charts"}
            there = {path.name for path in dated.iterdir()}
            assert whole <= there or dated.suffix == ".writing", when


def assert_old_or_new(
    place: Place, old: Content, new: Content, when: str, *, alone: bool = True
) -> None:
    """What a reader finds in between, and that doctor calls none of it harm.

    alone: nobody writes meanwhile, so nothing changes between two looks.
    """
    left = place.content()
    whole = new if left["steps"].equals(new["steps"]) else old
    for table in whole.keys() - {"metrics"}:
        assert_same({table: left[table]}, {table: whole[table]}, when)
    states = [old["metrics"], new["metrics"]]
    if place.command == "missing":  # keeps metrics first, then the missing facts
        states.append(new["metrics"].with_columns(needs=pl.lit(None, KEPT_SCHEMA["needs"])))
        answered = new["metrics"].filter(pl.col("needs").is_not_null())
        states.append(answered)  # the disk refused the metrics, and took the answers
    assert any(left["metrics"].equals(state) for state in states), when
    findings = examine_store(place.store)
    assert not harm(findings), when
    if alone:
        assert_orphans_are_explained(place, findings, when)
        assert_report_is_whole(place, when)


def assert_orphans_are_explained(place: Place, findings: Sequence[Finding], when: str) -> None:
    """Doctor names each file of the store that no reader needs, and says what becomes of it."""
    folder = place.store.path
    said = " ".join(finding.what for finding in findings)
    held = place.store.held()
    needed = {folder / part.path for part in held.live}
    needed |= {folder / "catalogue.duckdb", folder / "writer.lock"}
    needed |= set((folder / "parts" / "batch").glob("[0-9]*.parquet"))
    for path in folder.rglob("*"):
        if path.is_file() and path not in needed:
            assert str(path) in said or place.store.behind(), f"{when}: {path}"


def harm(findings: Sequence[Finding]) -> list[str]:
    """What doctor finds that does not go by itself."""
    return [finding.what for finding in findings if finding.is_harmful]


# --- disks that fail --------------------------------------------------------------------------


@dataclass
class Failing(Killer):
    """A disk that gives an error from a moment on: once, or for good where it is full or may only
    be read; a full one still takes what frees room.
    """

    error: int = errno.EIO

    def moment(self, call: str) -> None:
        self.moments += 1
        self.calls.append(call)
        frees_room = call.endswith(("unlink", "remove", "rmtree"))
        stays = self.error == errno.EROFS or (self.error == errno.ENOSPC and not frees_room)
        later = self.moments > self.at > 0 and call.startswith("before")
        if self.moments == self.at or (later and stays):
            raise OSError(self.error, os.strerror(self.error), "the disk")


WHAT_TO_DO: Final = "free some space|get write permission|check the disk|fairmfu doctor"


@pytest.mark.parametrize("place", ON_BAD_DISKS, indirect=True, scope="module", ids=named)
def test_a_disk_that_fails_at_any_step_is_told_and_costs_nothing(
    place: Place, before: Content, undisturbed: Undisturbed
) -> None:
    calls = enumerate(undisturbed.calls, start=1)
    every = list(product(calls, (errno.ENOSPC, errno.EIO, errno.EROFS)))
    for (at, call), error in every if ALL_MOMENTS else RANDOM.sample(every, 1):
        place.reset()
        when = f"{errno.errorcode[error]} {call} (moment {at})"
        with killed(at, partial(Failing, error=error)):
            done = CliRunner().invoke(main, place.arguments)
            assert done.exception is None or isinstance(done.exception, SystemExit), when
            if done.exit_code:
                said = f"disk is full|{os.strerror(error)}"
                assert re.search(said, done.output), when + done.output
                assert re.search(WHAT_TO_DO, done.output), when + done.output
            del done
        assert_old_or_new(place, before, undisturbed.content, when)
        assert place.run() == 0, when
        assert_same(place.content(), undisturbed.content, when)
        assert not harm(examine_store(place.store)), when


# --- disks that are slow ---------------------------------------------------------------------


class Slow(Killer):
    """A disk that takes its time before and behind each call that writes."""

    def moment(self, call: str) -> None:
        self.moments += 1
        self.calls.append(call)
        time.sleep(SLOW_S)


SLOW_S: Final = 0.01


@pytest.mark.parametrize("place", ON_SLOW_DISKS, indirect=True, scope="module", ids=named)
def test_a_slow_disk_keeps_no_reader_waiting_and_loses_no_other_writer(
    place: Place, before: Content, undisturbed: Undisturbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "MERGED_PART_GRACE", timedelta(hours=1))  # for the reader
    place.reset()
    failed: list[BaseException] = []
    ended = threading.Event()
    kept = pl.DataFrame({"note": [f"{number}" for number in range(3)]})
    reads = 0

    def as_a_thread(work: Callable[[], None]) -> threading.Thread:
        def noted() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - asserted on by the test
                failed.append(error)

        return threading.Thread(target=noted)

    def read() -> None:
        nonlocal reads
        while not ended.is_set():
            assert_old_or_new(place, before, undisturbed.content, "while it is slow", alone=False)
            reads += 1
            ended.wait(0.1)

    def write() -> None:
        for row in kept.iter_slices(1):
            Store(place.store.path, patience_s=600).keep("notes", row)

    reader, writer = as_a_thread(read), as_a_thread(write)
    with killed(0, Slow) as slow:
        reader.start()
        writer.start()
        assert place.run() == 0
        meanwhile = reads
        writer.join()
        ended.set()
        reader.join()
    assert not failed, failed
    assert meanwhile, "no reader was done before the command was"
    assert slow.moments >= len(undisturbed.calls)
    assert_same(place.content(), undisturbed.content, "when it was slow")
    assert place.store.kept("notes")["note"].to_list() == kept["note"].to_list()
    assert not harm(examine_store(place.store))


# --- at random moments ------------------------------------------------------------------------


def started(place: Place) -> subprocess.Popen[bytes]:
    """The command as a process, with a group of its own; its report is drawn whole."""
    return subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-c", "from fairmfu.cli import main; main()", *place.arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


BUSY_S: Final = 3.0
"""Longest run on a busy machine. A run that ends before tells how long it took."""


def seconds_of_a_run(place: Place) -> float:
    place.reset()
    began = time.monotonic()
    assert started(place).wait() == 0
    return time.monotonic() - began


@pytest.mark.parametrize("place", AS_PROCESSES, indirect=True, scope="module", ids=named)
def test_a_run_killed_at_random_moments_is_made_good_by_the_next(
    place: Place, undisturbed: Undisturbed
) -> None:
    lasts = max(seconds_of_a_run(place) for _ in range(2)) if ALL_MOMENTS else BUSY_S
    kills, runs = max(1, round(KILLS * (0.16 if place.command == "nightly" else 0.12))), 0
    killed_by: Counter[str] = Counter()
    while killed_by.total() < kills:
        place.reset()
        began, process = time.monotonic(), started(place)
        delay, how = RANDOM.uniform(0.2, 1.0) * lasts, RANDOM.choice(SIGNALS)
        runs += 1
        try:
            process.wait(timeout=delay)
            lasts = min(lasts, time.monotonic() - began)  # it was quicker than those before
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, how)
            killed_by[how.name] += process.wait(timeout=60) != 0
        when = f"run {runs}, {how.name} after {delay:.3f} s"
        assert place.run() == 0, when
        assert_same(place.content(), undisturbed.content, when)
        assert not harm(examine_store(place.store)), when
        assert_report_is_whole(place, when)
        assert runs <= 20 + 3 * kills, "most runs ended before they were to be killed"
    print(f"{place.command}: {runs} runs, killed by {dict(killed_by)}")  # noqa: T201 - for `make kills`


SIGNALS: Final = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
