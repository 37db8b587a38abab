"""`make mutants`: small faults planted in the code, and how many of them a test notices.

    python -m tests.tools.mutants [--rooms TEXT] [--minutes N] [--jobs N] [--budget S] [--again]
    python -m tests.tools.mutants --report [--rooms TEXT]

cosmic-ray plants them: another comparison, a number off by one, `and` for `or`, `abs()` removed.
Each is planted alone in a copy of the project, and the test files nearest to its module run, as far
as BUDGET_S reaches, until one fails: in a fork of a process that has the rest loaded. They come in
a random order, a few of each room by turns, so that those of any number of minutes are a fair
sample; what is known is kept in .mutants/ and not tried again. Where none fails, the mutant
survives: a test is missing, or it changes nothing that can be seen, and then it stands in
tests/golden/equivalent_mutants.tsv with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from difflib import unified_diff
from hashlib import sha256
from itertools import chain, zip_longest
from pathlib import Path
from random import Random
from typing import Any, Final

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator

from tests.support.folders import ROOT
from tests.tools.affected import DEFAULT_S, affected, seconds
from tests.tools.fork_runner import TIME_LIMIT
from tests.tools.project_copy import ProjectCopy

KEPT: Final = ROOT / ".mutants"
RESULTS: Final = KEPT / "results.jsonl"
EQUIVALENT: Final = ROOT / "tests" / "golden" / "equivalent_mutants.tsv"
ROOMS: Final = (
    *("metrics/audit", "metrics/compare", "metrics/core", "metrics/formula", "metrics/pipeline"),
    *("metrics/diagnosis", "metrics/runs", "metrics/throughput", "metrics/utilization"),
    *("ingest/core", "ingest/decode", "ingest/detect", "ingest/extract", "ingest/facts"),
    *("ingest/launches", "ingest/parse", "ingest/store", "ingest/vector"),
)
OPERATORS: Final = (
    "ReplaceComparisonOperator_Lt_LtE",
    "ReplaceComparisonOperator_Lt_GtE",
    "ReplaceComparisonOperator_LtE_Lt",
    "ReplaceComparisonOperator_LtE_Gt",
    "ReplaceComparisonOperator_Gt_GtE",
    "ReplaceComparisonOperator_Gt_LtE",
    "ReplaceComparisonOperator_GtE_Gt",
    "ReplaceComparisonOperator_GtE_Lt",
    "ReplaceComparisonOperator_Eq_NotEq",
    "ReplaceComparisonOperator_NotEq_Eq",
    "ReplaceComparisonOperator_Is_IsNot",
    "ReplaceComparisonOperator_IsNot_Is",
    "ReplaceBinaryOperator_Add_Sub",
    "ReplaceBinaryOperator_Sub_Add",
    "ReplaceBinaryOperator_Mul_Div",
    "ReplaceBinaryOperator_Div_Mul",
    "ReplaceBinaryOperator_FloorDiv_Mul",
    "ReplaceBinaryOperator_Mod_Mul",
    "ReplaceBinaryOperator_Pow_Mul",
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_Delete_USub",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "AddNot",
    "NumberReplacer",
    "ZeroIterationForLoop",
)
BUDGET_S: Final = 30.0
"""Seconds of the tests of one mutant, by tests/golden/seconds.tsv. What survives these is tried
again with more: `--again --budget 300`."""
SEED: Final = 0


class RemoveAbs(Operator):  # type: ignore[misc]  # cosmic-ray has no types
    """`abs(x)` becomes `(x)`."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        if node.type in ("atom_expr", "power") and node.children[0].get_code().strip() == "abs":
            yield node.start_pos, node.end_pos

    @classmethod
    def examples(cls) -> Sequence[Any]:
        return ()

    def mutate(self, node: Any, index: int) -> Any:  # noqa: ARG002 - there is one way
        node.children[0].value = ""
        return node


@dataclass(frozen=True)
class Mutant:
    """One fault: the occurrence of an operator in a module, and the line where it stands."""

    path: str
    operator: str
    occurrence: int
    line: int
    key: str
    """What names it while other lines of its module change."""

    def planted(self, source: str) -> str | None:
        """The module with the fault; None where that is no Python."""
        mutated: str | None = mutate_code(source, operator(self.operator), self.occurrence)
        try:
            compile(mutated or "", "mutant", "exec")
        except SyntaxError:
            return None
        return mutated


def operator(name: str) -> Any:
    """An operator of cosmic-ray, or our own."""
    return RemoveAbs() if name == "RemoveAbs" else get_operator(f"core/{name}")()


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Every fault of a module."""
    source = (ROOT / path).read_text(encoding="utf-8")
    lines, nodes = source.splitlines(), list(ast_nodes(get_ast(source)))
    same: Counter[tuple[object, ...]] = Counter()
    for name in (*OPERATORS, "RemoveAbs"):
        plant = operator(name)
        found = chain.from_iterable(map(plant.mutation_positions, nodes))
        for occurrence, ((line, column), _) in enumerate(found):
            if lines[line - 1].lstrip().startswith("@"):
                continue  # slots, frozen: nothing that can be seen
            what = (str(path), name, lines[line - 1], column)
            key = sha256(repr((*what, same[what])).encode()).hexdigest()[:16]
            same[what] += 1
            yield Mutant(str(path), name, occurrence, line, key)


def sample(rooms: str) -> list[tuple[str, Path]]:
    """The modules of the rooms whose names hold a text."""
    return [
        (room, path.relative_to(ROOT))
        for room in ROOMS
        if rooms in room
        for path in sorted((ROOT / room).rglob("*.py"))
    ]


def in_turns(rooms: str) -> list[Mutant]:
    """Every mutant in a random order that any start of is a fair sample of each room."""
    by_room: dict[str, list[Mutant]] = defaultdict(list)
    for room, path in sample(rooms):
        by_room[room] += mutants_of(path)
    for room, found in by_room.items():
        Random(f"{SEED}{room}").shuffle(found)  # noqa: S311 - no secret
    turns = chain.from_iterable(zip_longest(*by_room.values()))
    return [mutant for mutant in turns if mutant is not None]


def tests_of(path: str, budget_s: float) -> list[str]:
    """The test files nearest to a module that fit into the budget, the quickest of the near first.

    Tests of the repository itself are left out: they would notice any change.
    """
    cost, left = seconds(), budget_s
    chosen: list[str] = []
    near = affected({Path(path)})
    for _, test in sorted(near, key=lambda one: (one[0], cost.get(one[1], DEFAULT_S))):
        taken = cost.get(test, DEFAULT_S)
        if test.parts[1] != "repository" and (taken <= left or not chosen):
            chosen.append(str(test))
            left -= taken
    return chosen


class Copy(ProjectCopy):
    """A copy of the project in which mutants are planted."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.passing = set[tuple[str, str]]()
        """Modules and test files of which a test that noticed a fault passes without it."""

    def attempt(self, mutant: Mutant, budget_s: float) -> dict[str, Any]:
        """Plant a fault and run the tests near it."""
        source = (self.folder / mutant.path).read_text(encoding="utf-8")
        begun, row = time.monotonic(), asdict(mutant)
        if (mutated := mutant.planted(source)) is None or mutated == source:
            return {**row, "outcome": "no Python", "test": "", "s": 0.0, "change": ""}
        tests = tests_of(mutant.path, budget_s)
        with self.planted(mutant.path, mutated):
            passed, test = self.tested(tests, mutant.path)
        if not passed and test != TIME_LIMIT:
            self._check_passes(test or tests[0], mutant.path)
        return {
            **row,
            "outcome": "survived" if passed else "killed",
            "test": f"FAILED {test}".strip() * (not passed),
            "s": round(time.monotonic() - begun, 1),
            "change": _changed_lines(source, mutated),
        }

    def _check_passes(self, test: str, path: str) -> None:
        """End all where a test fails without a fault, too; one test of each file is tried."""
        pair = (path, test.partition("::")[0])
        if pair not in self.passing:
            passed, why = self.tested([test], path)
            if not passed:
                raise RuntimeError(f"{test} fails without a fault in {path}: {why}")
            self.passing.add(pair)


def _changed_lines(source: str, mutated: str) -> str:
    lines = unified_diff(source.splitlines(), mutated.splitlines(), n=0, lineterm="")
    return "\n".join(line for line in list(lines)[2:] if not line.startswith("@@"))


def known() -> dict[str, dict[str, Any]]:
    """What was tried before, the last try of each."""
    if not RESULTS.is_file():
        return {}
    rows = map(json.loads, RESULTS.read_text(encoding="utf-8").splitlines())
    return {row["key"]: row for row in rows}


def equivalents() -> dict[str, str]:
    """Reasons of mutants that change nothing, by key."""
    if not EQUIVALENT.is_file():
        return {}
    rows = (line.split("\t") for line in EQUIVALENT.read_text(encoding="utf-8").splitlines()[1:])
    return {key: reason for key, *_, reason in rows}


def run(todo: Sequence[Mutant], minutes: float, jobs: int, budget_s: float) -> None:
    """Try mutants, each job in its own copy, until the minutes are over."""
    end = time.monotonic() + 60 * minutes
    waiting, lock = iter(todo), threading.Lock()

    def work(number: int) -> None:
        copy = Copy(KEPT / f"copy-{number}")
        with closing(copy.runner):
            while time.monotonic() < end:
                with lock:
                    mutant = next(waiting, None)
                if mutant is None:
                    return
                row = copy.attempt(mutant, budget_s)
                with lock, RESULTS.open("a", encoding="utf-8") as stream:
                    stream.write(json.dumps(row) + "\n")
                where = f"{mutant.path}:{mutant.line}"
                print(f"{row['outcome']:9}{row['s']:6} s  {where}  {row['test']}", flush=True)

    KEPT.mkdir(exist_ok=True)
    workers = [threading.Thread(target=work, args=(number,)) for number in range(jobs)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def report(rooms: str) -> None:
    """Print the score of each room, and the mutants that survive."""
    same = equivalents()
    rows = [r for r in known().values() if rooms in r["path"] and r["outcome"] != "no Python"]
    for row in sorted(rows, key=lambda row: (row["path"], row["line"])):
        if row["outcome"] == "survived" and row["key"] not in same:
            print(f"{row['path']}:{row['line']}  {row['operator']}  {row['key']}")
            print(row["change"], "\n")
    print(f"{'room':24}{'tried':>7}{'killed':>8}{'survived':>10}{'the same':>10}{'score':>8}")
    of_room: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        outcome = "same" if row["key"] in same else row["outcome"]
        for room in ("/".join(row["path"].split("/")[:2]), "~ all"):
            of_room[room][outcome] += 1
    for room, count in sorted(of_room.items()):
        matter = count["killed"] + count["survived"]
        score = f"{count['killed'] / matter:8.1%}" if matter else f"{'-':>8}"
        print(
            f"{room.strip('~ '):24}{count.total():7,}{count['killed']:8,}{count['survived']:10,}"
            f"{count['same']:10,}{score}"
        )


def main() -> int:
    """Try mutants for some minutes and print the score."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rooms", default="", help="folders that hold this text")
    parser.add_argument("--minutes", type=float, default=600)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds of tests, each")
    parser.add_argument("--again", action="store_true", help="those that survived, once more")
    parser.add_argument("--report", action="store_true", help="try none")
    given = parser.parse_args()
    if not given.report:
        before, same = known(), equivalents()
        todo = [
            mutant
            for mutant in in_turns(given.rooms)
            if mutant.key not in same
            and (
                before.get(mutant.key, {}).get("outcome") == "survived"
                if given.again
                else mutant.key not in before
            )
        ]
        print(f"{len(todo):,} mutants are left to try", flush=True)
        run(todo, given.minutes, given.jobs, given.budget)
    report(given.rooms)
    return 0


if __name__ == "__main__":
    sys.exit(main())
