"""A copy of the project in which faults are planted, one at a time, and the tests that run in it.

`make mutants` and `make sabotage` use it: the project itself is never changed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.folders import ROOT
from tests.support.source_tree import module_name
from tests.tools.affected import DEFAULT_S, dependents, seconds
from tests.tools.fork_runner import ForkRunner


def copy_project(to: Path) -> None:
    """Copy what git knows of the project, and what it does not ignore."""
    shutil.rmtree(to, ignore_errors=True)
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    for name in subprocess.check_output(command, cwd=ROOT, text=True).splitlines():  # noqa: S603
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, to / name, follow_symlinks=False)
    subprocess.run(["git", "init", "--quiet"], cwd=to, check=True)  # noqa: S607


class ProjectCopy:
    """A copy of the project, and the process that runs its tests."""

    def __init__(self, folder: Path) -> None:
        copy_project(folder)
        self.folder = folder
        self.runner = ForkRunner(folder)

    @contextmanager
    def planted(self, name: str, text: str) -> Iterator[None]:
        """Change a file, and make it so old that its bytecode is not taken for it."""
        path = self.folder / name
        source, times = path.read_bytes(), path.stat()
        try:
            path.write_text(text, encoding="utf-8")
            os.utime(path, (0, 0))
            yield
        finally:
            path.write_bytes(source)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def tested(self, tests: Sequence[str], path: str) -> tuple[bool, str]:
        """Run tests with a file as it is on the disk; return the first that fails."""
        cost = seconds()
        taken_s = sum(cost.get(Path(test.partition("::")[0]), DEFAULT_S) for test in tests)
        reload = sorted(dependents(module_name(Path(path)))) if path.endswith(".py") else []
        return self.runner.ask(tests, reload, 5 * taken_s + 60)
