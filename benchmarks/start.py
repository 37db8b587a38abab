"""What a command costs beside its work: its start, files that are known, and a long history.

    python -m benchmarks.start [--nights 100] [--repeats 9] [--seed 7] [--folder DIR]

Each work is timed by turns with its baseline, in processes of their own: whatever else the machine
does, it does to both. Figures are processor time, ratios are of medians. Bytecode is at hand, as in
an installed program. What the commands say is held against what was written before anything is
timed; a goal that is missed ends with exit 1.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.nightly import ALL_IS_WELL, QUIET, Place
from cli import main as fairmfu
from ingest.intake import SETTLED_NS
from tests.nights import SERIES, Plan, plan_of, write_night

ROOT: Final = Path(__file__).parent.parent
COMMAND: Final = "from cli import main; main()"
LIBRARIES: Final = (
    "import altair, click, duckdb, numpy, polars, pyarrow, rich.console, rich.table, "
    "scipy.special, vl_convert, yaml"
)
LAUNCH: Final = """
import json, os, sys
process = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(process, 0)
about = os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss
print(json.dumps(about), file=sys.stderr)
"""
"""Starts what is timed: a process counts the memory of the one that it was started by as its own,
and this one is small."""
HEAVY: Final = ("altair", "duckdb", "numpy", "polars", "pyarrow", "rich", "scipy", "vl_convert")
EAGER, START, KNOWN_US, GREW = 10.0, 3.0, 5.0, 1.1
FEW: Final = 1
"""Nights of the small stores: 20 runs."""
BEFORE: Final = "before"
KB: Final = 1 if sys.platform == "darwin" else 1024
"""Bytes of a unit of `ru_maxrss`."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One work against its baseline.

    ratio: of medians; spread: the least and the most of single turns; took: both in words;
    peak_bytes: memory of the work's process.
    """

    work: str
    baseline: str
    took: str
    ratio: float
    spread: tuple[float, float]
    goal: str
    met: bool
    peak_bytes: int


@dataclass(frozen=True)
class Ran:
    """A process that is over: processor time in s, peak memory in bytes, what it wrote."""

    cpu_s: float
    peak_bytes: int
    out: str


@dataclass(frozen=True)
class Bench:
    """How processes are started: where their bytecode lies, and how often each is timed."""

    bytecode: Path
    repeats: int

    def run(self, code: str, *arguments: object, may_exit: Sequence[int] = (0,)) -> Ran:
        """A process of its own. Ends the benchmark where it fails."""
        passed = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH")
        environment = {name: text for name, text in os.environ.items() if name not in passed}
        environment |= {"PYTHONPYCACHEPREFIX": str(self.bytecode), "FAIRMFU_FORMATS": ""}
        command = [sys.executable, "-c", code, *map(str, arguments)]
        ran = subprocess.run(  # noqa: S603 - our own command
            [sys.executable, "-I", "-S", "-c", LAUNCH, *command],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        said, _, last = ran.stderr.rstrip("\n").rpartition("\n")
        status, cpu_s, peak = json.loads(last)
        if status not in may_exit:
            raise SystemExit(f"{' '.join(map(str, arguments))}: exit {status}\n{said}")
        return Ran(cpu_s, peak * KB, ran.stdout)

    def by_turns(
        self, work: Callable[[], Ran], baseline: Callable[[], Ran]
    ) -> tuple[list[Ran], list[Ran]]:
        """Both, as often as asked for; the first of each only warms up."""
        turns = [(work(), baseline()) for _ in range(self.repeats + 1)][1:]
        return [one for one, _ in turns], [other for _, other in turns]


def _row(  # noqa: PLR0913 - one row from its parts
    work: str,
    baseline: str,
    ran: list[Ran],
    against: list[Ran],
    *,
    most: float = float("inf"),
    least: float = 0.0,
) -> Row:
    """most: of work over baseline; least: of baseline over work, which then is the ratio."""
    one, other = ([run.cpu_s for run in some] for some in (ran, against))
    over, under = (other, one) if least else (one, other)
    ratio = statistics.median(over) / statistics.median(under)
    turns = [a / b for a, b in zip(over, under, strict=True)]
    return Row(
        work=work,
        baseline=baseline,
        took=" against ".join(f"{1e3 * statistics.median(some):,.0f} ms" for some in (one, other)),
        ratio=ratio,
        spread=(min(turns), max(turns)),
        goal=f">= {least:g}" if least else f"<= {most:g}",
        met=least <= ratio <= most,
        peak_bytes=max(run.peak_bytes for run in ran),
    )


# -- start ---------------------------------------------------------------------------------------


def help_row(bench: Bench) -> Row:
    """`fairmfu -h` against the import of all libraries."""
    loaded = (
        "import sys\nfrom cli import main\ntry: main()\nexcept SystemExit: pass\n"
        f"print(sorted(set({HEAVY}) & set(sys.modules)))"
    )
    for asked in (["-h"], ["--version"], ["runs", "-h"]):
        if not bench.run(loaded, *asked).out.endswith("\n[]\n"):
            raise SystemExit(f"fairmfu {' '.join(asked)} imports some of {', '.join(HEAVY)}")
    turns = bench.by_turns(lambda: bench.run(COMMAND, "-h"), lambda: bench.run(LIBRARIES))
    return _row("`fairmfu -h`", "import of all libraries", *turns, least=EAGER)


def runs_rows(bench: Bench, place: Place) -> Iterator[Row]:
    """`fairmfu runs` of a small store, just ingested and with its metrics kept."""
    there = len(SERIES) * FEW
    for name in ("just ingested", "metrics kept"):
        if name == "metrics kept":
            bench.run(COMMAND, "rescore", "--store", place.store)
        shown = bench.run(COMMAND, "runs", "--store", place.store, "--format", "json").out
        if sum(row["tgs"] is not None for row in json.loads(shown)) != there:
            raise SystemExit(f"fairmfu runs does not show {there} runs with a TGS")
        turns = bench.by_turns(
            lambda: bench.run(COMMAND, "runs", "--store", place.store),
            lambda: bench.run("import polars"),
        )
        work = f"`fairmfu runs`, {there} runs, {name}"
        yield _row(work, "`import polars`", *turns, most=START)


# -- nothing new ---------------------------------------------------------------------------------


def known_row(bench: Bench, few: Place, many: Place) -> Row:
    """A second ingest of known files, against listing the folders and a stat of each file.

    In this process and per file, beyond what few files cost: the start of a process is far more.
    """
    places = (few, many)
    logs = [list(place.logs.rglob("*.log")) for place in places]
    opened: list[str] = []
    sys.addaudithook(lambda event, about: opened.append(str(about[0])) if event == "open" else None)
    for place, there in zip(places, logs, strict=True):
        opened.clear()
        if (said := _again(place)) != f"{len(there):,} unchanged\n":
            raise SystemExit(f"{place.logs}: {said}")
        if any(path.startswith(str(place.folder)) and path.endswith(".log") for path in opened):
            raise SystemExit(f"{place.logs}: a known log was opened")
    files = len(logs[1]) - len(logs[0])
    turns = [
        [_cpu_s(do, place) for do in (_again, _looked_at) for place in places]
        for _ in range(5 * bench.repeats)
    ]
    few_s, many_s, few_at_s, many_at_s = (min(column) for column in zip(*turns, strict=True))
    each, floor = (many_s - few_s) / files, (many_at_s - few_at_s) / files
    spread = [(turn[1] - turn[0]) / (turn[3] - turn[2]) for turn in turns]
    low, *_, high = statistics.quantiles(spread, n=20)
    return Row(
        work=f"nothing new, {len(logs[1]):,} files known",
        baseline="scandir and stat alone",
        took=f"{1e6 * each:.1f} us against {1e6 * floor:.1f} us a file (minima)",
        ratio=each / floor,
        spread=(low, high),
        goal=f"<= {KNOWN_US:g} us a file",
        met=1e6 * each <= KNOWN_US,
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * KB,
    )


def _again(place: Place) -> str:
    """What the ingest of known files says."""
    with redirect_stderr(io.StringIO()) as said:
        arguments = ["ingest", str(place.logs), "--store", str(place.store)]
        fairmfu(arguments, standalone_mode=False)
    return said.getvalue()


def _looked_at(place: Place) -> None:
    left = [str(place.logs)]
    while left:
        with os.scandir(left.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    left.append(entry.path)
                else:
                    entry.stat()


def _cpu_s(do: Callable[[Place], object], place: Place) -> float:
    began = time.process_time()
    do(place)
    return time.process_time() - began


# -- a long history ------------------------------------------------------------------------------


def night_row(bench: Bench, few: Place, many: Place, logs: Logs) -> Row:
    """A night of 20 new runs behind many, against one behind few; without the pages."""
    for place, nights in ((few, FEW), (many, logs.nights)):
        bench.run(QUIET, *place.arguments(), may_exit=ALL_IS_WELL)
        place.put_aside(BEFORE)
        logs.write(place, nights + 1)
        _night(bench, place)
        shown = bench.run(COMMAND, "runs", "--store", place.store, "--format", "csv").out
        if len(shown.splitlines()) != 1 + len(SERIES) * (nights + 1):
            raise SystemExit(f"{place.store}: the night did not bring {len(SERIES)} runs")
    turns = bench.by_turns(lambda: _night(bench, many), lambda: _night(bench, few))
    new, there = len(SERIES), len(SERIES) * logs.nights
    work = f"nightly without pages, {new} new runs, {there:,} stored"
    return _row(work, f"{new} new, {new * FEW} stored", *turns, most=GREW)


def _night(bench: Bench, place: Place) -> Ran:
    place.bring_back(BEFORE)
    return bench.run(QUIET, *place.arguments(), may_exit=ALL_IS_WELL)


# -- all of it -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Logs:
    """Nights of simulated runs; nights: how many are stored where many are."""

    plan: Plan
    nights: int

    def write(self, place: Place, night: int) -> None:
        """The logs of one more night."""
        write_night(place.nights("all"), night, self.plan)


def rows(folder: Path, *, nights: int, repeats: int, seed: int) -> Iterator[Row]:
    """All works, in the order of the table; folder: an empty one to work in."""
    bench = Bench(folder / "bytecode", repeats)
    yield help_row(bench)
    logs = Logs(plan_of(seed, nights=nights + 1), nights)
    few, many = Place(folder / "few"), Place(folder / "many")
    for place, stored in ((few, FEW), (many, nights)):
        place.folder.mkdir(parents=True)
        for night in range(1, stored + 1):
            logs.write(place, night)
        bench.run(COMMAND, "ingest", place.logs, "--store", place.store)
    yield from runs_rows(bench, few)
    time.sleep(SETTLED_NS / 1e9)  # younger files are not relied on
    for place in (few, many):
        _again(place)
    yield known_row(bench, few, many)
    yield night_row(bench, few, many, logs)


def table(found: Sequence[Row]) -> Iterator[str]:
    """The rows in Markdown."""
    yield "| work | baseline | processor time | ratio | of turns | goal | met | peak MB |"
    yield "| --- | --- | --- | ---: | ---: | ---: | --- | ---: |"
    for row in found:
        spread = f"{row.spread[0]:.2f} to {row.spread[1]:.2f}"
        cells = (row.work, row.baseline, row.took, f"{row.ratio:.2f}", spread, row.goal)
        end = f"{'yes' if row.met else 'no'} | {row.peak_bytes / 1e6:,.0f}"
        yield f"| {' | '.join(cells)} | {end} |"


def main() -> None:
    """Print the table; exit 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nights", type=int, default=100, help="of 20 runs, in the large store")
    parser.add_argument("--repeats", type=int, default=9, help="how often each work is timed")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--folder", type=Path, help="where to work; it stays")
    given = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as aside:
        folder = given.folder or Path(aside)
        for row in rows(folder, nights=given.nights, repeats=given.repeats, seed=given.seed):
            print(f"{row.work}: {row.took}", file=sys.stderr, flush=True)
            found.append(row)
    print("\n".join(table(found)))
    if not all(row.met for row in found):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
