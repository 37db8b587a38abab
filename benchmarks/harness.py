"""Work and baseline side by side: processes by turns, medians, and a table of what was reached.

All runs are processes of their own, measured by wait4, and take turns in rounds of which each
second is run in reverse order: whatever else the machine does, it does to all of them. Linux hands
the peak memory of a process on to its children, so what calls `child` imports no large library.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PYTHON: Final = sys.executable
FAIRMFU: Final = (PYTHON, "-c", "from cli import main; main()")
UNIT: Final = 1 if sys.platform == "darwin" else 1024
"""Bytes of what the system counts peak memory in."""

MB: Final = 1_000_000


class WrongResultError(Exception):
    """What was measured did not do the work."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one run: wall and processor time in s, peak memory in bytes; said: what it printed."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    said: str = ""


Run = Callable[[], Cost]
Word = str | Path


def child(command: Sequence[Word], *, env: Mapping[str, str] | None = None) -> Cost:
    """One process from the root of the project, its children counted with it.

    What it prints goes to a file: grep stops at the first line it finds if nobody reads them.
    Raises WrongResultError where it fails.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        began = time.perf_counter()
        process = subprocess.Popen(  # noqa: S603 - our own commands
            [*map(str, command)],
            cwd=ROOT,
            stdout=out,
            stderr=errors,
            env={**os.environ, **(env or {})},
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        errors.seek(0)
        said = out.read(MB).decode("utf-8", "replace")
        if process.returncode:
            text = errors.read().decode("utf-8", "replace")[-2000:]
            called = " ".join(map(str, command))
            raise WrongResultError(f"{called}: exit {process.returncode}\n{said[-2000:]}{text}")
    return Cost(wall_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * UNIT, said)


def inside(command: Sequence[Word]) -> Cost:
    """A process that measures its own work, without its imports, and prints it as JSON."""
    whole = child(command)
    told = json.loads(whole.said.splitlines()[-1])
    return replace(whole, wall_s=told["wall_s"], cpu_s=told["cpu_s"])


def rounds(runs: Mapping[str, Run], repeats: int) -> dict[str, list[Cost]]:
    """Each run so many times, by turns."""
    costs: dict[str, list[Cost]] = {name: [] for name in runs}
    for number in range(repeats):
        order = list(runs.items())
        for name, run in order[:: -1 if number % 2 else 1]:
            costs[name].append(run())
    return costs


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure has to reach: `at_least`, or else at most."""

    value: float
    at_least: bool = True
    unit: str = "x"

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {_figure(self.value, self.unit)}"

    def met(self, value: float) -> bool:
        return value >= self.value if self.at_least else value <= self.value


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `values`: the figure in each round; the median counts."""

    work: str
    baseline: str
    values: Sequence[float]
    goal: Goal | None = None
    unit: str = "x"
    cpu: float | None = None
    cost: Sequence[Cost] = ()
    note: str = ""

    @property
    def value(self) -> float:
        return statistics.median(self.values)

    @property
    def met(self) -> bool | None:
        """Null where there is no goal, or nothing was measured."""
        return None if self.goal is None or not self.values else self.goal.met(self.value)

    def cells(self) -> Iterator[str]:
        yield from (self.work, self.baseline)
        if not self.values:
            yield from (f"**{self.note}**", "", "", "", "", "", str(self.goal or ""), "")
            return
        yield _figure(self.value, self.unit)
        yield f"{_figure(min(self.values), self.unit)} to {_figure(max(self.values), self.unit)}"
        yield "" if self.cpu is None else _figure(self.cpu, self.unit)
        yield _middle(cost.wall_s for cost in self.cost)
        yield _middle(cost.cpu_s for cost in self.cost)
        yield f"{max(cost.peak_bytes for cost in self.cost) / MB:,.0f}" if self.cost else ""
        yield str(self.goal or "")
        yield {None: "", True: "yes", False: "**MISSED**"}[self.met]


def _figure(value: float, unit: str) -> str:
    if unit == "x":
        return f"{value:.3f}x" if value < 1 else f"{value:.2f}x"
    return f"{value:,.3g} {unit}" if abs(value) < 100 else f"{value:,.0f} {unit}"  # noqa: PLR2004


def _middle(seconds: Iterable[float]) -> str:
    found = list(seconds)
    return f"{statistics.median(found):.2f}" if found else ""


def faster(
    work: str, costs: Mapping[str, Sequence[Cost]], ours: str, other: str, goal: Goal | None = None
) -> Row:
    """How many times faster ours is than the other, in the same round."""
    mine, theirs = costs[ours], costs[other]
    walls = [b.wall_s / a.wall_s for a, b in zip(mine, theirs, strict=True)]
    cpus = [b.cpu_s / a.cpu_s for a, b in zip(mine, theirs, strict=True) if b.cpu_s and a.cpu_s]
    cpu = statistics.median(cpus) if cpus else None
    return Row(work, other, walls, goal, cpu=cpu, cost=mine)


HEAD: Final = (
    *("work", "against", "figure", "spread", "by CPU time"),
    *("wall s", "CPU s", "peak MB", "goal", "met"),
)


def table(title: str, rows: Sequence[Row]) -> str:
    """The rows as Markdown; wall and CPU seconds are medians of ours, the peak its greatest."""
    lines = [f"## {title}", "", _line(HEAD), _line(["---"] * 2 + ["---:"] * 6 + ["---"] * 2)]
    return "\n".join([*lines, *(_line(row.cells()) for row in rows), ""])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def machine() -> str:
    """What the figures were measured on, and how busy it was."""
    load = os.getloadavg()[0]
    python = ".".join(map(str, sys.version_info[:3]))
    busy = " **The machine is busy: trust the ratios by CPU time.**" if load > 1.5 else ""  # noqa: PLR2004
    return f"{os.cpu_count()} processors, load {load:.1f}, Python {python}.{busy}"


def own_peak() -> int:
    """Peak memory of this process in bytes: no child can show less."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT


def conclude(title: str, rows: Sequence[Row]) -> None:
    """Print the table, and how many goals are missed."""
    print(machine(), end="\n\n")
    print(table(title, rows))
    missed = sum(row.met is False for row in rows)
    print(f"{missed} goals missed." if missed else "No goal missed.", flush=True)
