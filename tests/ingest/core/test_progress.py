"""The progress of a command: shown on a terminal, erased at the end, and nowhere else."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from fairmfu.cli import main
from fairmfu.ingest.core import progress
from fairmfu.ingest.core.progress import (
    Progress,
    counted_after,
    is_progress_shown,
    note_part,
    note_progress,
    shown_on_terminal,
)
from tests.support.folders import ROOT
from tests.support.nights import Plan, write_night

AT_ONCE: Final = """
import os, sys
from fairmfu.ingest.core import progress
progress.DELAY_S, progress.INTERVAL_S = 0, 0.01
from fairmfu.cli import main
for number, command in enumerate(sys.argv[1:]):
    os.dup2(os.open(f"stdout{number}", os.O_CREAT | os.O_WRONLY), 1)
    main(command.split(), standalone_mode=False)
    sys.stdout.flush()
    print("\\f", end="", file=sys.stderr, flush=True)
"""
"""Commands, with a progress from the first moment of each; a form feed ends what each draws."""


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    write_night(folder, 1, Plan(seed=5), only=range(6))
    return folder


def screen(told: str) -> list[str]:
    """Return the lines that a terminal shows in the end."""
    lines = [""]
    for line in told.replace("\r\n", "\n").split("\n"):
        shown = ""
        for part in line.split("\r"):
            shown = part + shown[len(part) :]
        lines.append(shown.rstrip())
    return [line for line in lines if line]


@contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Let stderr be a terminal; what was drawn is in the list afterwards."""
    reads, writes = pty.openpty()
    drawn: list[str] = []
    with os.fdopen(writes, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        yield drawn
        monkeypatch.setattr(sys, "stderr", sys.__stderr__)
    drawn.append(all_of(reads))


def all_of(terminal: int) -> str:
    """Return what was written to a terminal until it was closed."""
    told = b""
    with suppress(OSError):  # the other end is closed
        while part := os.read(terminal, 65_536):
            told += part
    os.close(terminal)
    return told.decode()


def environment() -> dict[str, str]:
    """That of a command of this clone, in a terminal that can draw."""
    return os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm"}


def in_terminal(commands: list[str], folder: Path) -> list[tuple[str, str]]:
    """Run commands whose stderr is a terminal; stdout and what was drawn of each."""
    reads, writes = pty.openpty()
    process = subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-c", AT_ONCE, *commands], cwd=folder, env=environment(), stderr=writes
    )
    os.close(writes)
    *drawn, end = all_of(reads).split("\f")
    assert (process.wait(), end) == (0, "")
    texts = [(folder / f"stdout{number}").read_text() for number in range(len(commands))]
    return list(zip(texts, drawn, strict=True))


def in_pipe(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Run a command without a terminal; its stdout and stderr."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "DELAY_S", 0.0)
    monkeypatch.setattr(progress, "INTERVAL_S", 0.002)
    done = CliRunner().invoke(main, command.split())
    assert done.exit_code == 0
    return done.stdout, done.stderr


def test_commands_show_their_progress_on_a_terminal_and_nothing_in_a_pipe(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / "terminal", tmp_path / "pipe"]
    for folder in folders:
        folder.mkdir()
    commands = [f"ingest {logs} --store store", "report --format json --store store"]
    shown = in_terminal(commands, folders[0])
    for command, (stdout, drawn), *works in (
        (commands[0], shown[0], r"Reading logs: \d of 6 files, \d of \d MB, \d+ s"),
        (
            commands[1],
            shown[1],
            r"Computing runs: \d of 6 runs, \d+ s",
            r"Describing runs: \d of 6 runs, \d+ s",
        ),
    ):
        for work in works:
            assert re.search(work, drawn), drawn
        piped = in_pipe(command, folders[1], monkeypatch)
        assert stdout == piped[0]
        assert not {"\r", "\x1b"} & set(piped[1])
        assert screen(drawn) == screen(piped[1])


def test_the_line_is_erased_before_other_text_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "DELAY_S", 0.0)
    monkeypatch.setattr(progress, "INTERVAL_S", 0.001)
    with terminal(monkeypatch) as told:
        with shown_on_terminal():
            assert is_progress_shown()
            note_progress("Reading logs", 3, 2_000, "files", 4_000_000, 80_000_000)
            note_part(2_000_000)
            time.sleep(0.05)
            sys.stderr.write("a log\n")
            sys.stderr.writelines(["half ", "a line"])
            note_progress("Unseen")
            time.sleep(0.05)
            sys.stderr.write(", whole\n")
            note_progress("Computing runs", 1, 7, "runs")
            time.sleep(0.05)
        assert not is_progress_shown()
    drawn = told[0]
    assert "Reading logs: 3 of 2,000 files, 6 of 80 MB, 0 s" in drawn
    assert "Computing runs: 1 of 7 runs, 0 s" in drawn
    assert "Unseen" not in drawn
    assert screen(drawn) == ["a log", "half a line, whole"]


@pytest.mark.parametrize("term", ["dumb", "xterm"])
def test_nothing_is_drawn_on_a_dumb_terminal_or_before_a_second(
    monkeypatch: pytest.MonkeyPatch, term: str
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(progress, "INTERVAL_S", 0.001)
    monkeypatch.setattr(progress, "DELAY_S", 0.0 if term == "dumb" else 9.0)
    with terminal(monkeypatch) as told, shown_on_terminal():
        note_progress("Reading logs")
        time.sleep(0.02)
        sys.stderr.write("all\n")
    assert told == ["all\r\n"]


def test_an_error_ends_the_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")

    def fail() -> None:
        with shown_on_terminal():
            assert sys.stderr is not before
            raise KeyError

    with terminal(monkeypatch):
        before = sys.stderr
        with pytest.raises(KeyError):
            fail()
        assert sys.stderr is before


def test_parts_of_work_are_counted_together() -> None:
    with counted_after(500, 1_200):
        note_progress("Computing runs", 10, 500, "runs")
        assert progress._state == Progress("Computing runs", 510, 1_200, "runs")
    note_progress("Computing runs", 10, 500, "runs")
    assert progress._state == Progress("Computing runs", 10, 500, "runs")
    note_part(7)
    assert progress._state.part_bytes == 0
