"""Ctrl-C ends a command with one line and exit code 130, at any moment; the store stays whole."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from fairmfu.cli import main
from fairmfu.ingest.pipeline import ingest_run
from fairmfu.ingest.store.doctor import examine_store
from fairmfu.ingest.store.store import Store
from tests.support.effort import THOROUGH
from tests.support.folders import ROOT
from tests.support.nights import Plan, write_night

MOMENTS: Final = 20 if THOROUGH else 1
RANDOM: Final = random.Random(3)  # noqa: S311 - moments to interrupt at
COMMANDS: Final = {
    "ingest": ["ingest", "logs"],
    "runs": ["runs"],
    "report": ["report", "--out", "report.html"],
    "nightly": ["nightly", "logs", "--out", "out"],
}
LASTS_S: Final = {"ingest": 1.0, "runs": 1.5, "report": 3.0, "nightly": 3.0}
"""On a machine that is busy; `make thorough` measures it."""
SAYS: Final = "Interrupted. What was stored is whole. Fix: to go on, run it again"
PROGRAM: Final = "from fairmfu.cli import main; print('ready', flush=True); main()"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of one night, and logs of one more that it does not know."""
    folder = tmp_path_factory.mktemp("prepared")
    plan = Plan(seed=5)
    write_night(folder / "logs", 1, plan, only=(0, 7))
    ingest_run.ingest_paths([folder / "logs"], Store(folder / "store"))
    write_night(folder / "logs", 2, plan, only=(0, 7))
    return folder


def started(folder: Path, arguments: list[str]) -> subprocess.Popen[str]:
    """Start a command in a group of its own; return when its program begins."""
    process = subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-c", PROGRAM, *arguments, "--store", "store"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("command", COMMANDS)
def test_an_interrupted_command_says_so_and_leaves_a_whole_store(
    command: str, prepared: Path, tmp_path: Path
) -> None:
    lasts = LASTS_S[command]
    if THOROUGH:
        began = time.monotonic()
        first = shutil.copytree(prepared, tmp_path / "first")
        started(first, COMMANDS[command]).communicate()
        lasts = time.monotonic() - began
    for moment in range(MOMENTS):
        folder = shutil.copytree(prepared, tmp_path / f"{moment}")
        process = started(folder, COMMANDS[command])
        delay = RANDOM.uniform(0.02, 0.8 * lasts)
        time.sleep(delay)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=120)
        when = f"after {delay:.3f} of {lasts:.3f} s: exit code {process.returncode}: {said}"
        if process.returncode == 130:
            assert said.splitlines()[-1] == SAYS, when
        else:  # it had ended
            assert process.returncode in (0, 3, 4, 5), when
        assert "Traceback" not in said, when
        store = Store(folder / "store")
        assert not [found for found in examine_store(store) if found.is_harmful], when
        assert store.table("runs").height in (2, 4), when


def test_an_interrupt_that_a_library_turns_into_an_error_is_one_line(
    prepared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: object) -> None:
        raise RuntimeError("Query interrupted")

    monkeypatch.setattr(Store, "require_batches", ended)
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.SIG_DFL)
    found = CliRunner().invoke(main, ["runs", "--store", str(prepared / "store")])
    assert (found.exit_code, found.output) == (130, f"{SAYS}\n")
