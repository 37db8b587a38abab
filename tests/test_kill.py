"""A run that is killed leaves the old store or the new; the next one ends where it would have.

Twice: at each step that writes to the disk, one after another, in this process; and with SIGKILL,
at random moments of a process of its own (12 of them; `make kills`: 200).
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest
from click.testing import CliRunner
from polars.testing import assert_frame_equal

from cli import main
from ingest.schema import TABLES
from ingest.store import Store
from tests.nights import Plan, write_night

KILLS: Final = int(os.environ.get("FAIRMFU_KILLS", "12"))
ROOT: Final = Path(__file__).parent.parent
PLAN: Final = Plan(seed=11)
Content = dict[str, pl.DataFrame]
RAN: Final = (0, 7, 12)
"""Places of the series that run each night: one per framework that prints few lines."""


# --- the store before, and the night's work ---------------------------------------------------


@dataclass(frozen=True)
class Place:
    """A folder that holds `logs` and a store, and how it stood before the run that is killed.

    All runs work in the one folder, for a source is known by its whole path.
    """

    folder: Path
    saved: Path

    def save(self) -> None:
        shutil.copytree(self.folder, self.saved)

    def reset(self) -> None:
        shutil.rmtree(self.folder)
        shutil.copytree(self.saved, self.folder)

    @property
    def arguments(self) -> list[str]:
        """The command that is killed."""
        return ["ingest", str(self.folder / "logs"), "--store", str(self.folder / "store")]

    def run(self) -> int:
        """The command in this process; its exit code."""
        done = CliRunner().invoke(main, self.arguments)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code

    def content(self) -> Content:
        """All that the store says, but for when it was read or computed."""
        store = Store(self.folder / "store")
        tables = {name: store.table(name) for name in TABLES}
        tables["facts"] = tables["facts"].drop("sequence")
        return {name: frame.drop("read_at", strict=False) for name, frame in tables.items()}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A store of two nights, and logs that are to come into it.

    These are: the third night's, a log of the second night that has grown since, and a fact that
    stands beside a known log by now.
    """
    parent = tmp_path_factory.mktemp("kills")
    place, logs = Place(parent / "work", parent / "saved"), parent / "work" / "logs"
    write_night(logs, 1, PLAN, only=RAN)
    grows = write_night(logs, 2, PLAN, only=RAN)[0]
    whole = grows.read_text()
    grows.write_text("".join(whole.splitlines(keepends=True)[:30]))
    assert place.run() == 0
    grows.write_text(whole)
    write_night(logs, 3, PLAN, only=RAN)
    grows.with_name("facts.toml").write_text('optimizer = "AdamW"\n')
    place.save()
    return place


@pytest.fixture(scope="module")
def undisturbed(place: Place) -> Content:
    """What the store holds when nothing disturbs the run."""
    before = place.content()
    assert place.run() == 0
    after = place.content()
    assert after["sources"].height == before["sources"].height + len(RAN)
    assert after["steps"].height > before["steps"].height + 40 * len(RAN)
    place.reset()
    return after


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
def killed(at: int) -> Iterator[Killer]:
    killer = Killer(at)
    with pytest.MonkeyPatch.context() as patch:
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


def killed_at(place: Place, at: int) -> Killer:
    """A run that ends at that moment."""
    with killed(at) as killer:
        try:
            place.run()
        except Killed:
            assert killer.dead
    return killer


def test_a_run_killed_at_any_step_is_made_good_by_the_next(
    place: Place, undisturbed: Content
) -> None:
    before = place.content()
    every = killed_at(place, 0)
    assert {"behind write_parquet", "behind rename", "before fsync"} <= set(every.calls)
    for at, call in enumerate(every.calls, start=1):
        place.reset()
        when = f"killed {call} (moment {at} of {every.moments})"
        assert killed_at(place, at).dead, when
        left = place.content()
        whole = undisturbed if left["sources"].equals(undisturbed["sources"]) else before
        assert_same(left, whole, f"{when}, before the next run")
        assert place.run() == 0, when
        assert_same(place.content(), undisturbed, when)


# --- at random moments ------------------------------------------------------------------------


def started(place: Place) -> subprocess.Popen[bytes]:
    """The command as a process, with a group of its own."""
    return subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-c", "from cli import main; main()", *place.arguments],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def seconds_of_a_run(place: Place) -> float:
    place.reset()
    began = time.monotonic()
    assert started(place).wait() == 0
    return time.monotonic() - began


def test_a_run_killed_at_random_moments_is_made_good_by_the_next(
    place: Place, undisturbed: Content
) -> None:
    lasts = max(seconds_of_a_run(place) for _ in range(2))
    draw = random.Random(7)  # noqa: S311 - moments to kill at
    hit = 0
    for kill in range(1, KILLS + 1):
        place.reset()
        process = started(place)
        delay = draw.uniform(0.2, 1.0) * lasts
        try:
            process.wait(timeout=delay)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            hit += process.wait() == -signal.SIGKILL
        assert place.run() == 0
        assert_same(place.content(), undisturbed, f"kill {kill}, after {delay:.3f} s")
    assert hit > KILLS / 2, "most runs ended before they were to be killed"
