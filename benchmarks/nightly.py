"""What a night costs as the history grows: `fairmfu nightly` over a year of simulated nights.

    python -m benchmarks.nightly [--nights 365] [--runs 20] [--seed 7] [--folder DIR]

Each night some new logs come (tests/nights.py), and the real command reads them. Nights 2 to 4 and
the last three are timed in a process of their own, each twice: as it is, and without writing the
report (on a copy of the store). The nights between run in this process without writing the report:
the same code up to the files. Then what was told is held against what was planted; a benchmark of
wrong results ends with exit 1.
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
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

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
"""The wall time of the last nights over the first ones has to stay below."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Of one process: wall and processor time in s, peak memory in bytes; without report `bare`."""

    night: int
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
        return self.folder / "logs"

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def out(self) -> Path:
        return self.folder / "report"

    def arguments(self, store: Path, out: Path) -> list[str]:
        return ["nightly", str(self.logs), "--store", str(store), "--out", str(out)]


def timed(place: Place, night: int) -> Cost:
    """One night by the command, and before it the same without its report, on a copy."""
    copy = place.folder / "copy"
    shutil.copytree(place.store, copy)
    bare = _measured(QUIET, place.arguments(copy, place.folder / "nowhere"))
    shutil.rmtree(copy)
    whole = _measured(LOUD, place.arguments(place.store, place.out))
    return Cost(
        night=night,
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


def _run(place: Place, plan: Plan, nights: int, runs: int) -> tuple[list[Cost], list[Size], Judged]:
    last = {*range(nights - 2, nights + 1)}
    costs, sizes = [], []
    told: list[Told] = []
    for night in range(1, nights + 1):
        write_night(place.logs, night, plan, only=range(runs))
        summary: dict[str, Any]
        if night in {2, 3, 4} | last:
            costs.append(timed(place, night))
            summary = json.loads((place.out / "summary.json").read_text(encoding="utf-8"))
            print(f"night {night}: {costs[-1].wall_s:.1f} s", file=sys.stderr, flush=True)
        else:
            summary = quiet_night(place.logs, place.store, place.folder / "nowhere")
        if summary["night"] != night:
            raise SystemExit(f"night {night} is told as night {summary['night']}")
        told += told_by(plan, night, [*summary["regressions"], *summary["improvements"]])
        if night in {1, 2, 4, 30, 90, 180, *last}:
            sizes.append(size(place.store, night))
    return costs, sizes, judge(plan, told, nights)


def _table(costs: list[Cost], sizes: list[Size], judged: Judged) -> Iterator[str]:
    yield "| night | wall s | processor s | without report: wall s | processor s | peak memory MB |"
    yield "| ---: | ---: | ---: | ---: | ---: | ---: |"
    for cost in costs:
        peak = cost.peak_bytes / 1e6
        whole = f"{cost.wall_s:.2f} | {cost.cpu_s:.2f}"
        bare = f"{cost.bare_wall_s:.2f} | {cost.bare_cpu_s:.2f}"
        yield f"| {cost.night} | {whole} | {bare} | {peak:,.0f} |"
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


def ratio(costs: list[Cost], what: str) -> float:
    """Median of the last nights over that of the first ones; what: a field of Cost."""
    half = len(costs) // 2
    first, last = ([getattr(cost, what) for cost in some] for some in (costs[:half], costs[half:]))
    return float(statistics.median(last) / statistics.median(first))


def main() -> None:
    """Print the tables; exit 1 where results are wrong or the ratio is too high."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nights", type=int, default=365)
    parser.add_argument("--runs", type=int, default=len(SERIES), help="new logs each night")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--folder", type=Path, help="where to work; it stays")
    given = parser.parse_args()
    first = date.today() - timedelta(days=given.nights - 1)  # noqa: DTZ011 - as the logs
    plan = plan_of(given.seed, nights=given.nights)
    plan = replace(plan, first=first, series=plan.series[: given.runs])
    plan = replace(plan, changes={place: plan.changes[place] for place in range(given.runs)})
    with tempfile.TemporaryDirectory() as aside:
        place = Place(given.folder or Path(aside))
        place.folder.mkdir(parents=True, exist_ok=True)
        costs, sizes, judged = _run(place, plan, given.nights, given.runs)
    print("\n".join(_table(costs, sizes, judged)))
    told = {what: ratio(costs, what) for what in ("wall_s", "cpu_s", "bare_wall_s", "bare_cpu_s")}
    words = ", ".join(f"{what} {value:.2f}" for what, value in told.items())
    print(f"\nThe last nights over the first, ratios of medians: {words}.")
    wrong = list(shortcomings(judged))
    if told["wall_s"] >= RATIO:
        wrong.append(f"the ratio of wall times is {told['wall_s']:.2f}, not below {RATIO}")
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
