"""What a command costs beside its work: its start, known files, a long history, its report.

    python -m benchmarks.start [--quick] [--only WORK] [-h]

The large store holds the runs of many simulated nights, 20 of each (tests/support/nights.py), the
small one those of the last of them: the night behind it brings the same logs to both. Before
anything is timed, what the commands say is held against what was written.
"""

from __future__ import annotations

import json
import re
import statistics
import time
from collections.abc import Iterator
from functools import cached_property, partial
from typing import Final

from benchmarks.harness import (
    FAIRMFU,
    MB,
    PYTHON,
    Bench,
    Cost,
    Goal,
    Row,
    Run,
    Size,
    WrongResultError,
    child,
    faster,
    longer,
    main,
    peak,
    rounds,
)
from benchmarks.nightly import ALL_IS_WELL, QUIET, Place
from fairmfu.ingest.pipeline.ingest_run import MTIME_SETTLE_NS
from fairmfu.reports.page.html_document import bundle
from tests.support.nights import SERIES, Plan, plan_of, write_night
from tests.support.packs import unpacked

LIBRARIES: Final = (
    "import altair, click, duckdb, numpy, polars, pyarrow, rich.console, rich.table, "
    "scipy.special, vl_convert, yaml"
)
HEAVY: Final = ("altair", "duckdb", "numpy", "polars", "pyarrow", "rich", "scipy", "vl_convert")
LOADED: Final = (
    "import sys\nfrom cli import main\ntry: main()\nexcept SystemExit: pass\n"
    f"print(sorted(set({HEAVY}) & set(sys.modules)))"
)
NEEDED: Final = (
    "import click, duckdb, numpy, polars, pyarrow, rich.console, rich.table, scipy.special"
)
"""What metrics are computed, kept and shown with."""
OWN: Final = (
    "import fairmfu.cli, fairmfu.reports.text.runs_table, fairmfu.reports.store.metrics_store,"
    " fairmfu.reports.text.tabular, fairmfu.metrics.pipeline.incremental"
)
"""What `runs` has of fairmfu itself where metrics have to be computed."""
SEED: Final = 7
NEW: Final = len(SERIES)
"""Runs of a night."""
AS_JSON: Final = ("--format", "json")
COUNT: Final = (
    "select count(distinct run_id) as with_steps, (select count(*) from runs) as runs from steps"
)
YEAR: Final = 365
INGESTED, SCORED, BEFORE = "ingested", "scored", "before"
"""States of a store that are put aside."""
TURNS: Final = 25
"""Of the known files in each round, whose median counts: they take milliseconds."""


class Stores(Bench):
    """The two stores, made when they are first asked for."""

    @property
    def nights(self) -> int:
        """How many are stored where many are."""
        return self.sizes["nights"]

    @property
    def few(self) -> Place:
        """A store of the last night."""
        return self._ingested("few", range(self.nights, self.nights + 1))

    @property
    def many(self) -> Place:
        """A store of all nights."""
        return self._ingested("many", range(1, self.nights + 1))

    @cached_property
    def plan(self) -> Plan:
        """What happens in which night."""
        return plan_of(SEED, nights=max(self.nights, YEAR))

    def write(self, place: Place, night: int) -> None:
        """The logs of one more night."""
        write_night(place.nights("all"), night, self.plan)

    def _ingested(self, name: str, nights: range) -> Place:
        place = Place(self.folder / name)
        if not place.folder.exists():
            place.folder.mkdir(parents=True)
            for night in nights:
                self.write(place, night)
            child([*FAIRMFU, "ingest", place.logs, "--store", place.store])
        return place


# -- start ---------------------------------------------------------------------------------------


def start_help(bench: Stores) -> Iterator[Row]:
    """`fairmfu -h` against the import of all libraries."""
    for asked in (["-h"], ["--version"], ["runs", "-h"]):
        if not child([PYTHON, "-c", LOADED, *asked]).said.endswith("\n[]\n"):
            raise WrongResultError(f"fairmfu {' '.join(asked)} imports some of {', '.join(HEAVY)}")
    libraries = "import of all libraries"
    runs = {
        "ours": partial(child, [*FAIRMFU, "-h"]),
        libraries: partial(child, [PYTHON, "-c", LIBRARIES]),
    }
    rounds(runs, 1)  # may have to compile
    costs = rounds(runs, bench.repeats)
    yield faster("`fairmfu -h`", costs, "ours", libraries, Goal(10))


def start_runs(bench: Stores) -> Iterator[Row]:
    """`fairmfu runs` of a small store, just ingested and with its metrics kept."""
    place = bench.few
    place.put_aside(INGESTED)
    polars = "`import polars`"
    for state in ("just ingested", "metrics kept"):
        if state == "metrics kept":
            child([*FAIRMFU, "rescore", "--store", place.store])
            place.put_aside(SCORED)

        def ours(name: str = SCORED if state == "metrics kept" else INGESTED) -> Cost:
            place.bring_back(name)
            return child([*FAIRMFU, "runs", "--store", place.store])

        shown = json.loads(child([*FAIRMFU, "runs", "--store", place.store, *AS_JSON]).said)
        rated = sum(row["tgs"] is not None for row in shown)
        if rated != NEW:
            raise WrongResultError(f"fairmfu runs shows {rated} runs with a TGS, not {NEW}")
        runs: dict[str, Run] = {
            "ours": ours,
            polars: partial(child, [PYTHON, "-c", "import polars"]),
        }
        costs = rounds(runs, bench.repeats)
        goal = Goal(3, at_least=False)
        yield longer(f"`fairmfu runs`, {NEW} runs, {state}", costs, "ours", polars, goal)
    libraries = "the least that it takes, just ingested: imports of libraries"
    every = "the same with those of fairmfu itself, before anything is computed"
    imports = {
        libraries: partial(child, [PYTHON, "-c", NEEDED]),
        every: partial(child, [PYTHON, "-c", f"{NEEDED}\n{OWN}"]),
        polars: partial(child, [PYTHON, "-c", "import polars"]),
    }
    costs = rounds(imports, bench.repeats)
    for least in (libraries, every):
        yield longer(least, costs, least, polars)


# -- nothing new ---------------------------------------------------------------------------------


def known(bench: Stores) -> Iterator[Row]:
    """A second ingest of known files, against listing the folders and a stat of each file."""
    places = [bench.few, bench.many]
    time.sleep(MTIME_SETTLE_NS / 1e9)  # younger files are not relied on
    for place in places:
        child([*FAIRMFU, "ingest", place.logs, "--store", place.store])
    turns = TURNS * bench.repeats
    folders = (place.folder for place in places)
    cost = child([PYTHON, "-m", "benchmarks.known", str(turns), *folders])
    told = json.loads(cost.said)
    wall, floor = (
        [statistics.median(told[name][at : at + TURNS]) for at in range(0, turns, TURNS)]
        for name in ("wall", "floor")
    )
    yield Row(
        f"nothing new, {NEW * bench.nights:,} files known, a file",
        "",
        wall,
        Goal(5, at_least=False, unit="us"),
        unit="us",
        cpu=statistics.median(told["cpu"]),
        cost=[cost],
    )
    yield Row("the least that it takes, a file: scandir and stat alone", "", floor, unit="us")


# -- a long history ------------------------------------------------------------------------------


def report(bench: Stores) -> Iterator[Row]:
    """The page of all runs: its size, and what it takes."""
    page = bench.many.folder / "report.html"
    cost = child([*FAIRMFU, "report", "--store", bench.many.store, "--out", page])
    runs = NEW * bench.nights
    whole = unpacked(page.read_text(encoding="utf-8"))
    if (found := whole.count(bundle())) != 1:
        raise WrongResultError(f"the page has the library {found} times")
    if (found := len(set(re.findall(r'data-run="(\w+)"', whole)))) != runs:
        raise WrongResultError(f"the page tells of {found} runs, not {runs}")
    yield Row(
        f"`fairmfu report`, {runs:,} runs, size of the page",
        "(the library embedded once)",
        [page.stat().st_size / MB],
        Goal(3, at_least=False, unit="MB"),
        unit="MB",
        cost=[cost],
    )


READERS: Final = {"runs": 3, "missing": 3, "explain": 3, "compare": 6, "report": 30}
"""Commands over kept results, and how many times `import polars` they may take."""
PAGE_MEMORY: Final = Goal(400, at_least=False, unit="MB")
RATED: Final = "select run_id from metrics where tgs is not null"


def readers(bench: Stores) -> Iterator[Row]:
    """Commands over the kept results of all runs, against `import polars`."""
    store = bench.many.store
    for command in ("rescore", "missing"):
        child([*FAIRMFU, command, "--store", store])
    shown = json.loads(child([*FAIRMFU, "query", RATED, "--store", store, *AS_JSON]).said)
    if len(shown) < NEW * bench.nights:
        raise WrongResultError(f"the store has {len(shown)} runs with a TGS")
    words = {
        "explain": [shown[-1]["run_id"]],
        "report": ["--out", bench.many.folder / "kept.html"],
    }
    polars = "`import polars`"
    timed: dict[str, Run] = {
        command: partial(child, [*FAIRMFU, command, *words.get(command, ()), "--store", store])
        for command in READERS
    }
    costs = rounds(timed | {polars: partial(child, [PYTHON, "-c", "import polars"])}, bench.repeats)
    for command, most in READERS.items():
        work = f"`fairmfu {command}`, {len(shown):,} runs, metrics kept"
        yield longer(work, costs, command, polars, Goal(most, at_least=False))
    work = f"`fairmfu report`, {len(shown):,} runs, metrics kept, peak memory"
    yield peak(work, costs["report"], PAGE_MEMORY)


def night(bench: Stores) -> Iterator[Row]:
    """A night of 20 new runs behind many, against one behind few; without the pages."""
    places = {bench.few: 1, bench.many: bench.nights}
    for place, nights in places.items():
        _night(place)
        place.put_aside(BEFORE)
        bench.write(place, bench.nights + 1)
        _night(place)
        counted = [*FAIRMFU, "query", COUNT, "--store", place.store, *AS_JSON]
        found = json.loads(child(counted).said)[0]
        if set(found.values()) != {NEW * (nights + 1)}:
            raise WrongResultError(f"the store has {found}, not {NEW} more")

    def again(place: Place) -> Cost:
        place.bring_back(BEFORE)
        return _night(place)

    few = f"{NEW} new, {NEW} stored"
    runs = {few: partial(again, bench.few), "ours": partial(again, bench.many)}
    costs = rounds(runs, bench.repeats)
    work = f"nightly without pages, {NEW} new runs, {NEW * bench.nights:,} stored"
    yield longer(work, costs, "ours", few, Goal(1.1, at_least=False))


def _night(place: Place) -> Cost:
    return child([PYTHON, "-c", QUIET, *place.arguments()], may_exit=ALL_IS_WELL)


WORKS: Final = (start_help, start_runs, known, report, readers, night)
SIZES: Final = {"nights": Size(15, 100, "nights of 20 runs in the large store")}

if __name__ == "__main__":
    main(__doc__, WORKS, Stores, SIZES, repeats=Size(2, 7, "rounds of each timing"))
