"""What a night costs as the history grows: `fairmfu nightly` over a year of simulated nights.

    python -m benchmarks.nightly [--nights 365] [--runs 20] [--seed 7] [--repeats 5] [--folder DIR]

Each night some new logs come (tests/nights.py), and the real command reads them, in this process
and without writing the report: the same code up to the files. The state before the second night and
before the last one is put aside. Then these two nights are timed by turns, each in a process of its
own, with the report and without: whatever else the machine does, it does to both. What was told is
held against what was planted; a benchmark of wrong results ends with exit 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Final

from tests.nights import (
    SERIES,
    SIZES,
    Judged,
    Plan,
    Told,
    judge,
    plan_of,
    quiet_night,
    shortcomings,
    told_by,
    write_night,
)

ROOT: Final = Path(__file__).parent.parent
QUIET: Final = (
    "from cli import main\nfrom tests.nights import without_report\nwith without_report(): main()"
)
LOUD: Final = "from cli import main; main()"
ALL_IS_WELL: Final = (0, 3)
"""Exit codes: regressions were planted."""
RATIO: Final = 1.5
"""The wall time of the last night over that of the second has to stay below."""
FIRST_TIMED: Final = 2


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Of one process: wall and processor time in s, peak memory in bytes; without report `bare`."""

    early: bool
    wall_s: float
    cpu_s: float
    bare_wall_s: float
    bare_cpu_s: float
    peak_bytes: int


@dataclass(frozen=True, kw_only=True)
class Size:
    """Of the store behind a night."""

    night: int
    parts: int
    bytes: int
    catalogue_bytes: int


@dataclass(frozen=True)
class Place:
    """The folders of one benchmark."""

    folder: Path

    @property
    def logs(self) -> Path:
        """What the command reads: a link to the logs of some nights, so that paths stay."""
        return self.folder / "logs"

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def out(self) -> Path:
        return self.folder / "report"

    def arguments(self) -> list[str]:
        return ["nightly", str(self.logs), "--store", str(self.store), "--out", str(self.out)]

    def nights(self, name: str) -> Path:
        """The logs that `logs` shows from now on."""
        folder = self.folder / f"logs-{name}"
        folder.mkdir(exist_ok=True)
        self.logs.unlink(missing_ok=True)
        self.logs.symlink_to(folder, target_is_directory=True)
        return folder

    def put_aside(self, name: str) -> None:
        """Keep store and reports as they are now."""
        for folder in (self.store, self.out):
            shutil.copytree(folder, self.folder / f"{folder.name}-{name}")

    def bring_back(self, name: str) -> None:
        """Have store and reports as they were."""
        for folder in (self.store, self.out):
            shutil.rmtree(folder)
            shutil.copytree(self.folder / f"{folder.name}-{name}", folder)


EARLY, LATE = "early", "late"


def timed(place: Place, name: str) -> Cost:
    """One night by the command, and before it the same without its report."""
    place.nights(name)
    place.bring_back(name)
    bare = _measured(QUIET, place.arguments())
    place.bring_back(name)
    whole = _measured(LOUD, place.arguments())
    return Cost(
        early=name == EARLY,
        wall_s=whole[0],
        cpu_s=whole[1],
        bare_wall_s=bare[0],
        bare_cpu_s=bare[1],
        peak_bytes=whole[2],
    )


def _measured(code: str, arguments: list[str]) -> tuple[float, float, int]:
    """Wall time and processor time in s, and peak memory in bytes, of a process."""
    began = time.perf_counter()
    process = subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None  # noqa: S101 - for the types
    said = process.stderr.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in ALL_IS_WELL:
        raise SystemExit(f"fairmfu {' '.join(arguments)}: exit {process.returncode}\n{said}")
    unit = 1 if sys.platform == "darwin" else 1024
    return seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * unit


def size(store: Path, night: int) -> Size:
    """How much the disk holds."""
    files = [path.stat().st_size for path in store.rglob("*") if path.is_file()]
    parts = len(list((store / "parts").rglob("*.parquet")))
    catalogue = (store / "catalogue.duckdb").stat().st_size
    return Size(night=night, parts=parts, bytes=sum(files), catalogue_bytes=catalogue)


def _run(
    place: Place, plan: Plan, nights: int, runs: int, repeats: int
) -> tuple[list[Cost], list[Size], Judged]:
    sizes = []
    told: list[Told] = []
    every = place.nights(LATE)
    for night in range(1, nights + 1):
        if night == FIRST_TIMED:
            place.put_aside(EARLY)
        if night == nights:
            place.put_aside(LATE)
        written = write_night(every, night, plan, only=range(runs))
        if night <= FIRST_TIMED:
            _linked(every, written, place.folder / f"logs-{EARLY}")
        summary = quiet_night(place.logs, place.store, place.out)
        if summary["night"] != night:
            raise SystemExit(f"night {night} is told as night {summary['night']}")
        told += told_by(plan, night, [*summary["regressions"], *summary["improvements"]])
        if night in {1, 2, 4, 30, 90, 180, nights}:
            sizes.append(size(place.store, night))
            print(f"night {night} is over", file=sys.stderr, flush=True)
    costs = [timed(place, name) for _ in range(repeats) for name in (EARLY, LATE)]
    return costs, sizes, judge(plan, told, nights)


def _linked(every: Path, logs: list[Path], into: Path) -> None:
    """The same files, what stands beside them too, in another folder: same inodes, same times."""
    for log in logs:
        for path in (log, *log.parent.glob("*.toml")):
            other = into / path.relative_to(every)
            other.parent.mkdir(parents=True, exist_ok=True)
            if not other.exists():
                other.hardlink_to(path)


def _table(costs: list[Cost], sizes: list[Size], judged: Judged, nights: int) -> Iterator[str]:
    yield "| night | wall s | processor s | without report: wall s | processor s | peak memory MB |"
    yield "| ---: | ---: | ---: | ---: | ---: | ---: |"
    for name, some in (("2", _of(costs, early=True)), (str(nights), _of(costs, early=False))):
        seconds = [_spread(getattr(cost, what) for cost in some) for what in TIMES]
        peak = max(cost.peak_bytes for cost in some) / 1e6
        yield f"| {name} | {' | '.join(seconds)} | {peak:,.0f} |"
    ratios = " | ".join(f"{ratio(costs, what):.2f}" for what in TIMES)
    peaks = [max(c.peak_bytes for c in _of(costs, early=early)) for early in (False, True)]
    yield f"| ratio of medians | {ratios} | {peaks[0] / peaks[1]:.2f} |"
    yield ""
    yield "| night | parts | store MB | of it the catalogue MB |"
    yield "| ---: | ---: | ---: | ---: |"
    for one in sizes:
        mb, catalogue = one.bytes / 1e6, one.catalogue_bytes / 1e6
        yield f"| {one.night} | {one.parts:,} | {mb:,.1f} | {catalogue:,.1f} |"
    yield ""
    yield "| planted | changes | found | in nights, median | at most |"
    yield "| ---: | ---: | ---: | ---: | ---: |"
    for planted in SIZES:
        took = judged.nights(planted)
        middle = f"{statistics.median(took):g} | {took[-1]}" if took else "- | -"
        of = len(took) + judged.lost(planted)
        yield f"| {planted:.0%} | {of} | {len(took)} | {middle} |"
    yield ""
    yield f"False alarms: {len(judged.false)} in {judged.series_years:.0f} series-years."


TIMES: Final = ("wall_s", "cpu_s", "bare_wall_s", "bare_cpu_s")


def _of(costs: list[Cost], *, early: bool) -> list[Cost]:
    return [cost for cost in costs if cost.early is early]


def _spread(seconds: Iterable[float]) -> str:
    """Median, with the least and the most."""
    found = sorted(seconds)
    return f"{statistics.median(found):.2f} ({found[0]:.2f} to {found[-1]:.2f})"


def ratio(costs: list[Cost], what: str) -> float:
    """Median of the last night over that of the second; what: a field of Cost."""
    late, early = (
        statistics.median(getattr(cost, what) for cost in _of(costs, early=first))
        for first in (False, True)
    )
    return float(late / early)


def main() -> None:
    """Print the tables; exit 1 where results are wrong or the ratio is too high."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nights", type=int, default=365)
    parser.add_argument("--runs", type=int, default=len(SERIES), help="new logs each night")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--repeats", type=int, default=5, help="how often each night is timed")
    parser.add_argument("--folder", type=Path, help="where to work; it stays")
    given = parser.parse_args()
    first = date.today() - timedelta(days=given.nights - 1)  # noqa: DTZ011 - as the logs
    plan = plan_of(given.seed, nights=given.nights)
    plan = replace(plan, first=first, series=plan.series[: given.runs])
    plan = replace(plan, changes={place: plan.changes[place] for place in range(given.runs)})
    with tempfile.TemporaryDirectory() as aside:
        place = Place(given.folder or Path(aside))
        place.folder.mkdir(parents=True, exist_ok=True)
        costs, sizes, judged = _run(place, plan, given.nights, given.runs, given.repeats)
    print("\n".join(_table(costs, sizes, judged, given.nights)))
    wrong = list(shortcomings(judged))
    if (grew := ratio(costs, "wall_s")) >= RATIO:
        wrong.append(f"the ratio of wall times is {grew:.2f}, not below {RATIO}")
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
