"""`make check`: the tests that a change can break, the nearest first, as far as two minutes reach.

A test file is the nearer to a changed module, the lower its distance:

    0  it changed itself, or is named after the module: test_outcomes.py of launches/outcomes.py
    1  it imports the module and is in the tests of its room
    2  it imports the module, or a helper that does
    3  it is in the tests of the module's room
    4  it imports a module that imports the changed one

A table of data, such as accelerators.toml, counts as the module of its name beside it.

Files are taken in this order while their seconds (tests/golden/seconds.tsv, by `make seconds`) fit;
the others are named, and left to `make test`.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

from tests.support.folders import ROOT, TESTS
from tests.support.source_tree import MODULES, imported_names, module_name, own_imports

SECONDS: Final = TESTS / "golden" / "seconds.tsv"
BUDGET_S: Final = 150.0
"""Processor seconds of all tests together: a bit over a minute on two cores."""
DEFAULT_S: Final = 5.0
"""Seconds of a test file that was never timed."""
DOCUMENTS: Final = ("README.md", "docs/", "action.yml", "CONTRIBUTING.md")
TOO_HEAVY: Final = {Path("tests/ingest/workers/test_ray_engine.py")}
"""A Ray cluster takes a minute to start: `make test-ray`."""


def changed(base: str) -> set[Path]:
    """Return the files that differ from a commit, and those that git does not know yet."""
    commands = (["diff", "--name-only", base], ["ls-files", "--others", "--exclude-standard"])
    names = [
        subprocess.check_output(["git", *command], cwd=ROOT, text=True)  # noqa: S603, S607
        for command in commands
    ]
    return {Path(line) for text in names for line in text.splitlines()}


def test_files() -> list[Path]:
    """Return every test file, from the root."""
    return sorted(p.relative_to(ROOT) for p in TESTS.rglob("test_*.py"))


@cache
def imports(path: Path) -> frozenset[str]:
    """Return what a file of tests/ imports: modules of ours without `fairmfu.`, and of tests."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    names = {name for _, name in imported_names(path, ast.walk(tree))}
    return frozenset(names | {name.rpartition(".")[0] for name in names})


@cache
def reach(path: Path) -> frozenset[str]:
    """Return the imports of a file of tests/, and of the helpers that it imports."""
    found = imports(path)
    helpers = {ROOT / f"{name.replace('.', '/')}.py" for name in found if name.startswith("tests.")}
    inner = [
        reach(p.relative_to(ROOT)) for p in sorted(helpers) if p.is_file() and p != ROOT / path
    ]
    return found.union(*inner)


def distance(test: Path, changed_file: Path) -> int | None:
    """Return how near a test file is to a changed file of the project; None where it is apart."""
    name = module_name(changed_file)
    same_room = test.parts[1:3] == changed_file.parts[:2]
    named_after = same_room and test.stem == f"test_{changed_file.stem}"
    is_helper = changed_file.parts[0] == "tests"
    near = {
        0: test == changed_file or named_after or (is_helper and name in reach(test)),
        1: same_room and name in imports(test),
        2: name in reach(test),
        3: same_room,
        4: bool(importers(name) & imports(test)),
    }
    return next((step for step, is_so in near.items() if is_so), None)


@cache
def importers(name: str) -> frozenset[str]:
    """Return the modules of ours that import a module."""
    return frozenset(module_name(module) for module in MODULES if name in own_imports(module))


def dependents(name: str) -> set[str]:
    """Return a module of ours and those that import it, or one of these."""
    found, left = {name}, [name]
    while left:
        new = importers(left.pop()) - found
        found |= new
        left += new
    return found


def affected(files: set[Path]) -> list[tuple[int, Path]]:
    """Return the test files that a change can break, each with its distance, the nearest first."""
    modules = [path for path in files if path.suffix in {".py", ".toml"}]
    code = [path for path in modules if (ROOT / path.with_suffix(".py")).exists()]
    near: dict[Path, int] = {}
    for test in test_files():
        found = [near_by for path in code if (near_by := distance(test, path)) is not None]
        if found:
            near[test] = min(found)
    if any(str(path).startswith(DOCUMENTS) for path in files):
        near |= {test: 0 for test in test_files() if test.match("tests/repository/test_*docs.py")}
    if files:
        near[Path("tests/repository/test_architecture.py")] = 0
    return sorted((near_by, test) for test, near_by in near.items() if test not in TOO_HEAVY)


def seconds() -> dict[Path, float]:
    """Return the processor seconds of each test file, as they were measured."""
    if not SECONDS.is_file():
        return {}
    rows = (line.split("\t") for line in SECONDS.read_text(encoding="utf-8").splitlines())
    return {Path(name): float(taken) for name, taken in rows}


def fitting(near: list[tuple[int, Path]], budget_s: float) -> Iterator[Path]:
    """Yield the files that fit into a budget, the nearest and then the shortest first."""
    taken_s, cost_s = 0.0, seconds()
    for near_by, test in sorted(near, key=lambda one: (one[0], cost_s.get(one[1], DEFAULT_S))):
        cost = cost_s.get(test, DEFAULT_S)
        if near_by == 0 or taken_s + cost <= budget_s:
            taken_s += cost
            yield test


def main() -> None:
    """Print the test files to run; what is left out goes to the standard error."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--base", default="HEAD", help="the commit to compare with")
    base = parser.parse_args().base
    files = changed(base) or changed(f"{base}~1")
    near = affected(files)
    chosen = list(fitting(near, BUDGET_S))
    left = [str(test) for _, test in near if test not in chosen]
    print(*chosen, sep="\n")
    print(f"{len(chosen)} of {len(near)} test files that {len(files)} files touch", file=sys.stderr)
    if left:
        print("left to `make test`:", *left, sep="\n  ", file=sys.stderr)


if __name__ == "__main__":
    main()
