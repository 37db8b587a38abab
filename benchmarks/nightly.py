"""What a night costs as the history grows: `fairmfu nightly` over a year of simulated nights.

    python -m benchmarks.nightly [--quick] [-h]

Each night some new logs come (tests/support/nights.py), and the real command reads them, in this
process and without writing the report: the same code up to the files. The state before the second
night and before the last one is put aside. Then these two nights are timed by turns, with the
report and without. What was told is held against what was planted.
"""

from __future__ import annotations

import shutil
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.harness import (
    PYTHON,
    Bench,
    Cost,
    Goal,
    Row,
    Size,
    WrongResultError,
    child,
    longer,
    main,
    rounds,
)
from tests.support.nights import SIZES as SIZES_PLANTED
from tests.support.nights import (
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

QUIET: Final = """
from fairmfu.cli import main
from tests.support.nights import without_report

with without_report():
    main()
"""
LOUD: Final = "from fairmfu.cli import main; main()"
ALL_IS_WELL: Final = (0, 3)
"""Exit codes: regressions were planted."""
SEED: Final = 7
FIRST_TIMED: Final = 2


@dataclass(frozen=True, kw_only=True)
class Held:
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
        """Keep store and reports, where there are any, as they are now."""
        for folder in (self.store, self.out):
            if folder.exists():
                shutil.copytree(folder, self.folder / f"{folder.name}-{name}")

    def bring_back(self, name: str) -> None:
        """Have store and reports as they were."""
        for folder in (self.store, self.out):
            shutil.rmtree(folder, ignore_errors=True)
            if (aside := self.folder / f"{folder.name}-{name}").exists():
                shutil.copytree(aside, folder)


EARLY, LATE = "early", "late"


def held(store: Path, night: int) -> Held:
    """How much the disk holds."""
    files = [path.stat().st_size for path in store.rglob("*") if path.is_file()]
    parts = len(list((store / "parts").rglob("*.parquet")))
    catalogue = (store / "catalogue.duckdb").stat().st_size
    return Held(night=night, parts=parts, bytes=sum(files), catalogue_bytes=catalogue)


def year(bench: Bench) -> Iterator[Row]:
    """The second night and the last one of a year."""
    nights, place = bench.sizes["nights"], Place(bench.folder / "year")
    place.folder.mkdir()
    first = date.today() - timedelta(days=nights - 1)  # noqa: DTZ011 - as the logs
    plan = replace(plan_of(SEED, nights=nights), first=first)
    stores, judged = _over(place, plan, nights)
    if faults := list(shortcomings(judged)):
        raise WrongResultError("\n".join(faults))
    codes = {"without pages": QUIET, "with its pages": LOUD}
    costs = rounds(
        {
            f"{name}, {how}": partial(_night, place, name, code)
            for how, code in codes.items()
            for name in (EARLY, LATE)
        },
        bench.repeats,
    )
    for how in codes:
        late, early = f"{LATE}, {how}", f"{EARLY}, {how}"
        against = {**costs, "the second night": costs[early]}
        work = f"night {nights}, {how}"
        yield longer(work, against, late, "the second night", Goal(1.5, at_least=False))
    print("\n".join(_told(stores, judged)))


def _night(place: Place, name: str, code: str) -> Cost:
    place.nights(name)
    place.bring_back(name)
    return child([PYTHON, "-c", code, *place.arguments()], may_exit=ALL_IS_WELL)


def _over(place: Place, plan: Plan, nights: int) -> tuple[list[Held], Judged]:
    """All nights; the states before the two that are timed are put aside."""
    stores = []
    told: list[Told] = []
    every = place.nights(LATE)
    for night in range(1, nights + 1):
        if night == FIRST_TIMED:
            place.put_aside(EARLY)
        if night == nights:
            place.put_aside(LATE)
        written = write_night(every, night, plan)
        if night <= FIRST_TIMED:
            _linked(every, written, place.folder / f"logs-{EARLY}")
        summary = quiet_night(place.logs, place.store, place.out)
        if summary["night"] != night:
            raise WrongResultError(f"night {night} is told as night {summary['night']}")
        told += told_by(plan, night, [*summary["regressions"], *summary["improvements"]])
        if night in {1, 2, 4, 30, 90, 180, nights}:
            stores.append(held(place.store, night))
            print(f"night {night} is over", file=sys.stderr, flush=True)
    return stores, judge(plan, told, nights)


def _linked(every: Path, logs: list[Path], into: Path) -> None:
    """The same files, what stands beside them too, in another folder: same inodes, same times."""
    for log in logs:
        for path in (log, *log.parent.glob("*.toml")):
            other = into / path.relative_to(every)
            other.parent.mkdir(parents=True, exist_ok=True)
            if not other.exists():
                other.hardlink_to(path)


def _told(stores: list[Held], judged: Judged) -> Iterator[str]:
    """What is no time: the store, and what was found."""
    yield "| night | parts | store MB | of it the catalogue MB |"
    yield "| ---: | ---: | ---: | ---: |"
    for one in stores:
        mb, catalogue = one.bytes / 1e6, one.catalogue_bytes / 1e6
        yield f"| {one.night} | {one.parts:,} | {mb:,.1f} | {catalogue:,.1f} |"
    yield ""
    yield "| planted | changes | found | in nights, median | at most |"
    yield "| ---: | ---: | ---: | ---: | ---: |"
    for planted in SIZES_PLANTED:
        took = judged.nights(planted)
        middle = f"{statistics.median(took):g} | {took[-1]}" if took else "- | -"
        of = len(took) + judged.lost(planted)
        yield f"| {planted:.0%} | {of} | {len(took)} | {middle} |"
    yield ""
    yield f"False alarms: {len(judged.false)} in {judged.series_years:.0f} series-years."
    yield ""


WORKS: Final = (year,)
SIZES: Final = {"nights": Size(60, 365, "nights of 20 runs")}

if __name__ == "__main__":
    main(__doc__, WORKS, Bench, SIZES, repeats=Size(2, 5, "rounds of each timing"))
