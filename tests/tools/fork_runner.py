"""Run tests of a copy of the project, each time in a fork of a process that has fairmfu loaded.

    cd COPY && PYTHONPATH=COPY python -m tests.tools.fork_runner

A line of JSON in has `tests`, files or names of tests; `reload`, the modules that the fork loads
from the disk again; `limit_s`, the seconds after which it is killed. A line out: whether all
passed, and which failed first. Before the first it says that it has loaded all, and from then on
tests/tools/mutants.py may plant a fault in the copy.
"""

from __future__ import annotations

import compileall
import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from subprocess import PIPE
from typing import Any, Final

import pytest

from tests.support.source_tree import MODULES, module_name

FORK: Final = multiprocessing.get_context("fork")
LIBRARIES: Final = (
    *("_hypothesis_pytestplugin", "click.testing", "duckdb", "hypothesis.extra.numpy"),
    *("numpy.testing", "polars.testing", "pyarrow", "scipy.stats"),
)
OPTIONS: Final = (
    *("-x", "-q", "--assert=plain", "-p", "no:cacheprovider"),
    *("--disable-plugin-autoload", "-p", "_hypothesis_pytestplugin"),
)
TIME_LIMIT: Final = "time limit"
PASSED: Final = (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


class FirstFailure:
    """A plugin of pytest that remembers the first test that failed."""

    test = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._see(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._see(report)

    def _see(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed and not self.test:
            self.test = report.nodeid


class ForkRunner:
    """The process of a copy of the project, as who asks it sees it."""

    def __init__(self, folder: Path) -> None:
        environment = os.environ | {
            "POLARS_MAX_THREADS": "1",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / ".hypothesis"),
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPATH": str(folder),
        }
        command = [sys.executable, "-m", "tests.tools.fork_runner"]
        self._process = subprocess.Popen(  # noqa: S603 - our own tests
            command, cwd=folder, env=environment, stdin=PIPE, stdout=PIPE, text=True
        )
        self._line()  # a fault that is planted while it loads would stay loaded

    def ask(self, tests: Sequence[str], reload: Sequence[str], limit_s: float) -> tuple[bool, str]:
        """Return whether all tests pass, and the first that does not."""
        assert self._process.stdin is not None
        request = {"tests": tests, "reload": reload, "limit_s": limit_s}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        passed, test = self._line()
        return passed, test

    def _line(self) -> Any:
        assert self._process.stdout is not None
        if not (line := self._process.stdout.readline()):
            raise RuntimeError("the process that runs the tests has ended")
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def load() -> None:
    """Load the libraries and fairmfu; from here on no bytecode is written.

    That of an unchanged module stays on the disk, and is taken as long as the module is as old.
    """
    compileall.compile_dir(".", quiet=2)
    for name in LIBRARIES:
        import_module(name)
    for module in MODULES:
        if module.parts[0] in ("ingest", "metrics"):
            import_module(f"fairmfu.{module_name(module)}")
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # for what tests start


def forget(name: str) -> None:
    """Have the next import of a module read it from the disk."""
    package, _, leaf = name.rpartition(".")
    sys.modules.pop(name, None)
    if package in sys.modules:
        vars(sys.modules[package]).pop(leaf, None)


def run(tests: Sequence[str], reload: Sequence[str], to: Connection) -> None:
    """Run the first test file, then the others, and end this process."""
    os.setsid()  # what a test starts is killed with it
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    for name in reload:
        forget(f"fairmfu.{name}")
    failure, passed = FirstFailure(), True
    for files in filter(None, (tests[:1], tests[1:])):
        passed = passed and pytest.main([*OPTIONS, *files], plugins=[failure]) in PASSED
    to.send((passed, failure.test))
    os._exit(0)  # threads of a test may still run


def answer(tests: Sequence[str], reload: Sequence[str], limit_s: float) -> tuple[bool, str]:
    """Run tests in a fork; one that dies, or takes longer than its limit, has failed."""
    receiving, sending = FORK.Pipe(duplex=False)
    fork = FORK.Process(target=run, args=(tests, reload, sending))
    fork.start()
    sending.close()
    try:
        ended = receiving.poll(limit_s)
        passed, test = receiving.recv() if ended else (False, TIME_LIMIT)
    except EOFError:
        passed, test = False, ""
    finally:
        with suppress(ProcessLookupError):
            os.killpg(fork.pid or 0, signal.SIGKILL)
        fork.join()
    return passed, test


def main() -> None:
    """Say that all is loaded, then answer one request after the other until there are no more."""
    load()
    print(json.dumps("loaded"), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(**json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
