"""Work and baseline side by side: processes by turns, medians, and one table for all of them.

A benchmark is a module with a list of works; a work yields rows of the table. What it times are
processes of their own that take turns, in rounds of which each second is run in reverse order:
whatever else the machine does, it does to all of them. What the figures mean, and how a goal, a
wrong result and what the machine lacks are told, stands in README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final, TypeVar

ROOT: Final = Path(__file__).parent.parent
PYTHON: Final = sys.executable
FAIRMFU: Final = (PYTHON, "-c", "from fairmfu.cli import main; main()")
UNIT: Final = 1 if sys.platform == "darwin" else 1024
"""Bytes of what the system counts peak memory in."""

MB: Final = 1_000_000


class WrongResultError(Exception):
    """What was measured did not do the work."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one run: wall and processor time in s, peak memory in bytes; said: what it printed.

    Null where it cannot be known.
    """

    wall_s: float
    cpu_s: float | None = None
    peak_bytes: int | None = None
    said: str = ""

    def __add__(self, other: Cost) -> Cost:
        """Of both, one behind the other."""
        cpus = self.cpu_s, other.cpu_s
        return Cost(self.wall_s + other.wall_s, None if None in cpus else sum(filter(None, cpus)))


Run = Callable[[], Cost]
Word = str | Path


# -- one process ----------------------------------------------------------------------------

LAUNCH: Final = """
import json, os, sys, time
began = time.perf_counter()
process = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(process, 0)
took = time.perf_counter() - began, usage.ru_utime + usage.ru_stime, usage.ru_maxrss
with open(sys.argv[1], "w") as out: json.dump([os.waitstatus_to_exitcode(status), *took], out)
"""
"""Starts what is timed: Linux counts the memory of the process that starts another as that one's
too, and this one is small."""


def child(
    command: Sequence[Word], *, env: Mapping[str, str] | None = None, may_exit: Sequence[int] = (0,)
) -> Cost:
    """One process from the root of the project, its children counted with it.

    It knows no FAIRMFU_ variables but those of `env`, and may leave bytecode for the next one. What
    it prints goes to a file: grep stops at the first line it finds if nobody reads them. Raises
    WrongResultError where it ends otherwise than it may.
    """
    dropped = ("FAIRMFU_", "PYTHONDONTWRITEBYTECODE")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(dropped)}
    words = [*map(str, command)]
    words[0] = _program(words[0])
    with tempfile.TemporaryDirectory() as aside:
        out, errors, told = (Path(aside) / name for name in ("out", "errors", "told"))
        with out.open("wb") as into, errors.open("wb") as complaints:
            subprocess.run(  # noqa: S603 - our own commands
                [PYTHON, "-I", "-S", "-c", LAUNCH, told, *words],
                cwd=ROOT,
                stdout=into,
                stderr=complaints,
                env={**kept, "FAIRMFU_FORMATS": "", **(env or {})},
                check=True,
            )
        with out.open("rb") as into:
            said = into.read(MB).decode("utf-8", "replace")
        status, wall_s, cpu_s, peak = json.loads(told.read_text(encoding="utf-8"))
        if status not in may_exit:
            text = errors.read_text(encoding="utf-8", errors="replace")[-2000:]
            raise WrongResultError(f"{' '.join(words)[:500]}: exit {status}\n{said[-2000:]}{text}")
    return Cost(wall_s, cpu_s, peak * UNIT, said)


def _program(name: str) -> str:
    """Where a program lies; raises WrongResultError where it is not installed."""
    if (found := shutil.which(name)) is None:
        raise WrongResultError(f"{name} is not installed")
    return found


def inside(command: Sequence[Word]) -> Cost:
    """A process that measures its own work, without its imports, and prints it as JSON."""
    whole = child(command)
    told = json.loads(whole.said.splitlines()[-1])
    return replace(whole, wall_s=told["wall_s"], cpu_s=told["cpu_s"])


def ready_to_read() -> None:
    """Called before a process times its own reading.

    It takes memory as `fairmfu ingest` does, and has what is imported where it is first used: by
    Polars of its first array, by `strptime` of its first date.
    """
    import _strptime  # noqa: F401, PLC0415

    import numpy.ma  # noqa: F401, PLC0415

    from fairmfu.ingest.core.allocator import limit_allocators  # noqa: PLC0415

    limit_allocators()


def rounds(runs: Mapping[str, Run], repeats: int) -> dict[str, list[Cost]]:
    """Each run so many times, by turns."""
    costs: dict[str, list[Cost]] = {name: [] for name in runs}
    for number in range(repeats):
        order = list(runs.items())
        for name, run in order[:: -1 if number % 2 else 1]:
            costs[name].append(run())
    return costs


# -- rows -----------------------------------------------------------------------------------


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
    """One line of the table. `values`: the figure in each round; the median counts.

    cpu: the figure by processor time; cost: of our runs; note: why there are no values.
    """

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

    def __str__(self) -> str:
        figure = _figure(self.value, self.unit) if self.values else self.note
        missed = ", MISSED" if self.met is False else ""
        return f"{self.work}, {self.baseline}: {figure}{missed}".replace(", :", ":")

    def cells(self) -> Iterator[str]:
        yield from (self.work, self.baseline)
        if not self.values:
            yield from (f"**{self.note}**", "", "", "", "", "", str(self.goal or ""), "")
            return
        yield _figure(self.value, self.unit)
        several = len(self.values) > 1
        ends = [_figure(end(self.values), self.unit) for end in (min, max)] if several else []
        yield " to ".join(ends)
        yield "" if self.cpu is None else _figure(self.cpu, self.unit)
        yield _middle(cost.wall_s for cost in self.cost)
        yield _middle(cost.cpu_s for cost in self.cost)
        peaks = [cost.peak_bytes for cost in self.cost if cost.peak_bytes is not None]
        yield f"{max(peaks) / MB:,.0f}" if peaks else ""
        yield str(self.goal or "")
        yield {None: "", True: "yes", False: "**MISSED**"}[self.met]


def _figure(value: float, unit: str) -> str:
    if unit == "x":
        return f"{value:.3f}x" if value < 1 else f"{value:.2f}x"
    return f"{value:,.3g} {unit}" if abs(value) < 100 else f"{value:,.0f} {unit}"  # noqa: PLR2004


def _middle(seconds: Iterable[float | None]) -> str:
    found = [one for one in seconds if one is not None]
    return f"{statistics.median(found):.2f}" if found else ""


Costs = Mapping[str, Sequence[Cost]]


def faster(work: str, costs: Costs, ours: str, other: str, goal: Goal | None = None) -> Row:
    """How many times faster ours is than the other, in the same round."""
    return _ratio(work, other, goal, (costs[other], costs[ours]), costs[ours])


def longer(work: str, costs: Costs, ours: str, other: str, goal: Goal | None = None) -> Row:
    """How many times as long as the other ours takes, in the same round."""
    return _ratio(work, other, goal, (costs[ours], costs[other]), costs[ours])


def _ratio(
    work: str,
    other: str,
    goal: Goal | None,
    pair: tuple[Sequence[Cost], Sequence[Cost]],
    cost: Sequence[Cost],
) -> Row:
    over_under = list(zip(*pair, strict=True))
    walls = [over.wall_s / under.wall_s for over, under in over_under]
    cpus = [over.cpu_s / under.cpu_s for over, under in over_under if over.cpu_s and under.cpu_s]
    cpu = statistics.median(cpus) if cpus else None
    return Row(work, other, walls, goal, cpu=cpu, cost=cost)


def peak(work: str, cost: Sequence[Cost], goal: Goal | None = None) -> Row:
    """Peak memory in MB."""
    peaks = [one.peak_bytes / MB for one in cost if one.peak_bytes is not None]
    return Row(work, "", peaks, goal, unit="MB", cost=cost)


def skipped(work: str, why: str, goal: Goal | None = None) -> Row:
    """A row of what this machine or this program cannot do."""
    return Row(work, "", (), goal, note=f"skipped: {why}")


def installed(*packages: str) -> bool:
    """Whether these can be imported, without doing so."""
    return all(find_spec(name) is not None for name in packages)


def processors() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


# -- the table ------------------------------------------------------------------------------

HEAD: Final = (
    *("work", "against", "figure", "spread", "by CPU time"),
    *("wall s", "CPU s", "peak MB", "goal", "met"),
)
BUSY: Final = 1.5
"""Load at the beginning; what is measured adds its own."""


def table(title: str, rows: Sequence[Row]) -> str:
    """The rows as Markdown; wall and CPU seconds are medians of ours, the peak its greatest."""
    lines = [f"## {title}", "", _line(HEAD), _line(["---"] * 2 + ["---:"] * 6 + ["---"] * 2)]
    return "\n".join([*lines, *(_line(row.cells()) for row in rows), ""])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def machine() -> str:
    """What the figures are measured on, and how busy it is."""
    load = os.getloadavg()[0]
    python = ".".join(map(str, sys.version_info[:3]))
    libraries = ", ".join(f"{name} {version(name)}" for name in ("polars", "duckdb", "numpy"))
    busy = " **The machine is busy: trust the ratios by CPU time.**" if load > BUSY else ""
    return (
        f"{_processor()}{processors()} processors, load {load:.1f} at the beginning, "
        f"Python {python}, {libraries}.{busy}"
    )


def _processor() -> str:
    """Its name, where Linux tells it."""
    about = Path("/proc/cpuinfo")
    lines = about.read_text(encoding="utf-8").splitlines() if about.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next((f"{name}; " for name in names), "")


def conclude(title: str, rows: Sequence[Row], where: str = "") -> None:
    """Print the table, and how many goals are missed; where: `machine()` of the beginning."""
    print(where or machine(), end="\n\n")
    print(table(title, rows))
    missed = sum(row.met is False for row in rows)
    print(f"{missed} goals missed." if missed else "No goal missed.", flush=True)


# -- the command ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Size:
    """How large something is: in `--quick`, else; and in words."""

    quick: int
    whole: int
    about: str


@dataclass(frozen=True)
class Bench:
    """Where a benchmark works, how often each run is timed, and how large things are."""

    folder: Path
    repeats: int
    sizes: Mapping[str, int]


Kind = TypeVar("Kind", bound=Bench)


def main(
    about: str | None,
    works: Sequence[Callable[[Kind], Iterator[Row]]],
    kind: Callable[[Path, int, Mapping[str, int]], Kind],
    sizes: Mapping[str, Size],
    repeats: Size,
) -> None:
    """Run the works, and print their table; exit 1 where a result is wrong.

    about: the module's docstring; sizes: options. A work that finds a wrong result says so in its
    row, and the others go on.
    """
    title = (about or "").partition("\n")[0]
    given = _options(title, [work.__name__ for work in works], {**sizes, "repeats": repeats})
    where, rows, wrong = machine(), list[Row](), False
    with tempfile.TemporaryDirectory(dir=given.folder) as aside:
        asked = {name: getattr(given, name) for name in sizes}
        bench = kind(Path(aside), given.repeats, asked)
        for work in works:
            if given.only and work.__name__ not in given.only:
                continue
            print(f"{work.__name__} …", file=sys.stderr, flush=True)
            try:
                for row in work(bench):
                    rows.append(row)
                    print(f"  {row}", file=sys.stderr, flush=True)
            except Exception as error:  # noqa: BLE001 - the others go on, whatever it is
                wrong = True
                if not isinstance(error, WrongResultError):
                    traceback.print_exc()
                print(f"WRONG: {work.__name__}: {error}", file=sys.stderr, flush=True)
                rows.append(Row(work.__name__, "", (), note="WRONG, or not measured"))
    conclude(title, rows, where)
    if wrong:
        raise SystemExit("Something is wrong, or was not measured: see above.")


def _options(title: str, names: Sequence[str], sizes: Mapping[str, Size]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds")
    for name, size in sizes.items():
        text = f"{size.about} ({size.whole}; --quick: {size.quick})"
        parser.add_argument(f"--{name}", type=int, help=text)
    parser.add_argument("--only", action="append", choices=names, help="some of the works")
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    given = parser.parse_args()
    for name, size in sizes.items():
        if getattr(given, name) is None:
            setattr(given, name, size.quick if given.quick else size.whole)
    return given
