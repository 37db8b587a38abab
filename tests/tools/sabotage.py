"""`make sabotage`: break each promise of docs/reliability.md once, and show that its test fails.

    python -m tests.tools.sabotage [--only TEXT] [--jobs N]

A sabotage is one text of a source file in place of another, kept in sabotages.toml with its promise
and the test that has to fail. It is planted in a copy of the project, and the test runs in a fork
of a process that has the rest loaded (tests/tools/project_copy.py). A sabotage counts as caught
only if that test fails with it and passes without it. The command exits with 1 if one is not.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import threading
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.support.folders import ROOT
from tests.tools.fork_runner import TIME_LIMIT
from tests.tools.project_copy import ProjectCopy

PAGE: Final = ROOT / "docs" / "reliability.md"
SABOTAGES: Final = ROOT / "tests" / "tools" / "sabotages.toml"
SECTIONS_OF_ONE_PROMISE: Final = (
    "One bad run beside others",
    "Logs that were copied, cut or converted",
    "Any input at all",
)
"""Headings of the page whose text is a single promise; their promise is named as they are."""
LISTED_PROMISES: Final = "Values that no run can have"
"""Heading above a list whose items are promises."""
TEST_FILE: Final = re.compile(r"tests/[\w/]+/test_\w+\.py")
CAUGHT: Final = "caught"


@dataclass(frozen=True)
class Promise:
    """A promise of the page. name: how it begins there. tests: test files that it names."""

    name: str
    tests: frozenset[str]


@dataclass(frozen=True)
class Sabotage:
    """A change that breaks a promise.

    promise: how the promise begins. path: file to change. old, new: texts. test: fails with `new`.
    """

    promise: str
    path: str
    old: str
    new: str
    test: str

    def planted(self, source: str) -> str | None:
        """Return the file with the sabotage; None if the old text is not there exactly once."""
        return source.replace(self.old, self.new) if source.count(self.old) == 1 else None


def promises() -> list[Promise]:
    """Return the promises of the page, in order."""
    sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return [promise for section in sections for promise in _promises_of(section)]


def _promises_of(section: str) -> Iterator[Promise]:
    heading, _, body = section.partition("\n")
    if heading in SECTIONS_OF_ONE_PROMISE:
        yield _promise(heading, body)
    if heading == LISTED_PROMISES:
        yield from (_promise(item, item) for item in re.findall(r"^- (.*)$", body, re.MULTILINE))
    if "| promise |" in body:
        rows = re.findall(r"^\| (?!promise|---)(.*)$", body, re.MULTILINE)
        yield from (_promise(row, row) for row in rows)


def _promise(name: str, text: str) -> Promise:
    return Promise(name.partition(" | ")[0], frozenset(TEST_FILE.findall(text)))


def promise_of(sabotage: Sabotage) -> Promise:
    """Return the promise of a sabotage. Raises LookupError unless one alone begins so."""
    found = [one for one in promises() if one.name.startswith(sabotage.promise)]
    if len(found) != 1:
        raise LookupError(f"{len(found)} promises of {PAGE.name} begin so: {sabotage.promise}")
    return found[0]


@cache
def sabotages() -> list[Sabotage]:
    """Return every sabotage, in the order of the file."""
    rows = tomllib.loads(SABOTAGES.read_text(encoding="utf-8"))["sabotage"]
    return [Sabotage(**row) for row in rows]


def outcome(copy: ProjectCopy, sabotage: Sabotage) -> str:
    """Return `caught`, or the reason why the sabotage is not caught."""
    source = (copy.folder / sabotage.path).read_text(encoding="utf-8")
    if (changed := sabotage.planted(source)) is None:
        return "does not apply"
    with copy.planted(sabotage.path, changed):
        passed, failed = copy.tested([sabotage.test], sabotage.path)
    if passed:
        return "survived"
    if failed == TIME_LIMIT or "::" not in failed:
        return failed or "no test failed"
    if not copy.tested([failed], sabotage.path)[0]:
        return "fails without"
    return CAUGHT


def run(todo: Sequence[Sabotage], jobs: int, folder: Path) -> dict[Sabotage, str]:
    """Try sabotages, each job in its own copy of the project; print each as it ends."""
    waiting, lock, found = iter(todo), threading.Lock(), dict[Sabotage, str]()

    def work(number: int) -> None:
        copy = ProjectCopy(folder / f"copy-{number}")
        with closing(copy.runner):
            while True:
                with lock:
                    sabotage = next(waiting, None)
                if sabotage is None:
                    return
                begun = time.monotonic()
                found[sabotage] = outcome(copy, sabotage)
                taken_s = time.monotonic() - begun
                print(f"{found[sabotage]:<15}{taken_s:6.1f} s  {sabotage.promise}", flush=True)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(jobs)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return found


def report(found: dict[Sabotage, str], todo: Sequence[Sabotage]) -> int:
    """Print the table of all sabotages; return 1 if one is not caught."""
    print()
    for sabotage in todo:
        result = found.get(sabotage, "not tried")
        print(f"{result:<15}{sabotage.path:48}  {sabotage.test.removeprefix('tests/')}")
    caught = sum(result == CAUGHT for result in found.values())
    kept = len({promise_of(one).name for one in todo if found.get(one) == CAUGHT})
    print(
        f"\n{caught} of {len(todo)} sabotages are caught, of {kept} of {len(promises())} promises"
    )
    return int(caught < len(todo))


def main() -> int:
    """Try every sabotage and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="promises that hold this text")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    given = parser.parse_args()
    todo = [one for one in sabotages() if given.only in one.promise]
    with TemporaryDirectory(prefix="sabotage-") as folder:
        return report(run(todo, given.jobs, Path(folder)), todo)


if __name__ == "__main__":
    sys.exit(main())
