"""How fast logs are read, and in how much memory: `fairmfu ingest` beside grep, mawk and scripts.

    python -m benchmarks.ingest [--quick] [--only WORK] [-h]

Logs are generated (tests/support/log_lines.py) into a temporary folder. Before anything is timed,
what the real command stores of a log has to be what was written, every value of every row; the
baselines have to find as many.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
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
    Word,
    WrongResultError,
    child,
    faster,
    inside,
    longer,
    main,
    peak,
    processors,
    rounds,
    skipped,
)

WORK: Final[tuple[Word, ...]] = (PYTHON, "-m", "benchmarks.ingest_work")
IN_C: Final = {"LC_ALL": "C"}
PROCESSES: Final = "--processes"
"""The option of `fairmfu ingest` for several processes; rows that need it are skipped without."""

MAWK: Final = r"""
/mfu: / {
    gsub(",", "")
    print substr($2, length($2) - 12) ":" $3 ":" substr($4, 1, 5), $1, \
        $5 + 0, $6 + 0, $7 + 0, $8 + 0, $9 + 0, $10 + 0, $11 + 0
}
"""
"""The columns of Torchtitan's lines cut at the colons: time, rank, step, loss, norm, memory, …"""

FORMATS: Final = ("xtuner", "xtuner-v1", "megatron-deepspeed", "deepspeed")
PUBLIC: Final = {"FAIRMFU_CORPUS": "public", "FAIRMFU_GENERATED": "generated"}
"""Variables that name the folders of public and of generated logs, where there are any."""
TEST_GATE: Final = (
    *(
        PYTHON,
        "-m",
        "pytest",
        "tests/ingest/vector/test_gate.py",
        "-q",
        "-rs",
        "-p",
        "no:cacheprovider",
    ),
    *("--numprocesses", "auto", "--dist", "worksteal"),
)
PEAK: Final = Goal(300, at_least=False, unit="MB")
LEAST: Final = "the least that such a reader takes"
START: Final = "the start of its libraries"
STARTED: Final = "the same with the start of its libraries"


class Logs(Bench):
    """The logs of a benchmark, and what reads them."""

    @property
    def size(self) -> int:
        """Bytes of the large logs."""
        return self.sizes["size"] * MB

    @property
    def files(self) -> int:
        """How many small ones."""
        return self.sizes["files"]

    # -- logs -------------------------------------------------------------------------------

    def log(self, form: str, size: int, density: float = 0.5) -> Path:
        """A log of a format with about so many bytes, warm in the page cache."""
        path = self.folder / f"{form}-{size // MB}-{density:g}.log"
        if not path.exists():
            child([*WORK, "write", form, path, str(size), str(density)])
        _warm(path)
        return path

    def packed(self, log: Path, ending: str) -> Path:
        path = log.with_name(log.name + ending)
        if not path.exists():
            child([*WORK, "pack", log, path])
        _warm(path)
        return path

    # -- runs -------------------------------------------------------------------------------

    def ingest(self, path: Path, *options: str) -> Cost:
        """The real command into a new store."""
        store = self.store
        shutil.rmtree(store, ignore_errors=True)
        return child([*FAIRMFU, "ingest", path, "--store", store, *options])

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def checked(self, path: Path, truth: Path | None = None, *options: str) -> Cost:
        """The same once, every row held against what was written."""
        cost = self.ingest(path, *options)
        child([*WORK, "check", self.store, truth or path.with_suffix(".rows")])
        return cost

    def plain(self, form: str, path: Path, parser: str = "plain") -> Cost:
        """A user's script, log to Parquet."""
        out = self.folder / "plain.parquet"
        return child([PYTHON, "-m", "benchmarks.plain", parser, form, path, out])

    def times(self, runs: dict[str, Run]) -> dict[str, list[Cost]]:
        return rounds(runs, self.repeats)


def _warm(path: Path) -> None:
    """Have the system keep the content of a file, or of all in a folder, in memory."""
    for one in [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file()):
        with one.open("rb") as log:
            while log.read(MB):
                pass


def _equal(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise WrongResultError(f"{what}: {found}, not {expected}")


def _written(log: Path) -> dict[str, int]:
    said: dict[str, int] = json.loads(child([*WORK, "steps", log.with_suffix(".rows")]).said)
    return said


# -- rows -----------------------------------------------------------------------------------


def torchtitan(bench: Logs) -> Iterator[Row]:
    """One large log, file to parts and catalogue, by one process and by two."""
    log = bench.log("torchtitan", bench.size)
    rows = _written(log)["rows"]
    bench.checked(log)
    _equal("plain rows", int(bench.plain("torchtitan", log).said), rows)
    grep: list[Word] = ["grep", "-cF", "mfu: ", log]
    _equal("lines of grep", int(child(grep, env=IN_C).said), rows)
    runs: dict[str, Run] = {
        "ours": partial(bench.ingest, log, PROCESSES, "1"),
        "grep -cF": partial(child, grep, env=IN_C),
        "plain parser": partial(bench.plain, "torchtitan", log),
        LEAST: partial(inside, [PYTHON, "-m", "benchmarks.least", log]),
        START: partial(child, [PYTHON, "-c", "import benchmarks.least"]),
    }
    if mawk := shutil.which("mawk"):
        awk: list[Word] = [mawk, "-F:", MAWK, log]
        runs["mawk"] = partial(child, awk, env=IN_C)
        cut = bench.folder / "mawk.tsv"
        child(["sh", "-c", 'mawk -F: "$1" "$2" > "$3"', "sh", MAWK, log, cut], env=IN_C)
        _equal("lines of mawk", int(child(["wc", "-l", cut]).said.split()[0]), rows)
    there = PROCESSES in child([*FAIRMFU, "ingest", "-h"]).said
    two = there and processors() > 1
    if two:
        bench.checked(log, None, PROCESSES, "2")
        runs["two processes"] = partial(bench.ingest, log, PROCESSES, "2")
    costs = bench.times(runs)
    work = f"torchtitan, {bench.size / MB:,.0f} MB, ingest"
    yield faster(f"{work}, one process", costs, "ours", "grep -cF", Goal(0.25))
    yield faster(f"{work}, one process", costs, "ours", "plain parser", Goal(10))
    if mawk:
        yield faster(f"{work}, one process", costs, "ours", "mawk", Goal(1.3))
    else:
        yield skipped(f"{work}, against mawk", "mawk is not installed", Goal(1.3))
    parts = json.loads(costs[LEAST][0].said)["parts"]
    told = ", ".join(f"{part} {seconds:.2f} s" for part, seconds in parts.items())
    for other in ("grep -cF", "plain parser", *(["mawk"] if mawk else [])):
        yield faster(f"{LEAST} ({told})", costs, LEAST, other)
    costs[STARTED] = [one + start for one, start in zip(costs[LEAST], costs[START], strict=True)]
    yield faster(STARTED, costs, STARTED, "grep -cF")
    goals = {"grep -cF": Goal(0.43), "plain parser": Goal(17), "ours": Goal(1.75)}
    for other, goal in goals.items():
        if two:
            yield faster(f"{work}, two processes", costs, "two processes", other, goal)
        else:
            yield skipped(
                f"{work}, two processes", "one core" if there else f"no option {PROCESSES}", goal
            )


def formats(bench: Logs) -> Iterator[Row]:
    """Every format into memory, without start-up and store."""
    for form in ("torchtitan", *FORMATS):
        log = bench.log(form, bench.size // 2)
        bench.checked(log)
        expected = _written(log)
        readers = ("fairmfu", "plain", "careful")
        runs: dict[str, Run] = {
            reader: partial(inside, [*WORK, "parse", reader, form, log]) for reader in readers
        }
        runs[LEAST] = partial(inside, [PYTHON, "-m", "benchmarks.least", log, "parse"])
        costs = bench.times(runs)
        for reader in readers:
            told = json.loads(costs[reader][0].said)
            _equal(f"{form}, {reader}", {key: told[key] for key in expected}, expected)
        speed = (
            log.stat().st_size
            / MB
            / statistics.median(c.cpu_s or c.wall_s for c in costs["fairmfu"])
        )
        work = f"{form}, {bench.size / 2 / MB:,.0f} MB, parse only ({speed:,.0f} MB/s)"
        goals = (Goal(4), Goal(2.5)) if form in FORMATS else (None, None)
        for other, goal in zip(("plain", "careful"), goals, strict=True):
            yield faster(work, costs, "fairmfu", other, goal)
        yield faster(f"the least that reading {form} takes", costs, LEAST, "plain")


def sparse(bench: Logs) -> Iterator[Row]:
    """A log of which three lines in a hundred are steps."""
    log = bench.log("torchtitan", bench.size, 0.03)
    bench.checked(log)
    grep: list[Word] = ["grep", "-cF", "mfu: ", log]
    runs: dict[str, Run] = {
        "ours": partial(bench.ingest, log),
        "grep -cF": partial(child, grep, env=IN_C),
        LEAST: partial(inside, [PYTHON, "-m", "benchmarks.least", log]),
    }
    costs = bench.times(runs)
    yield faster("torchtitan, 3 % of lines steps, ingest", costs, "ours", "grep -cF", Goal(0.55))
    yield faster(LEAST, costs, LEAST, "grep -cF")


def steplike(bench: Logs) -> Iterator[Row]:
    """A log most of whose lines hold words of a step and are none, no two of them alike."""
    clean = bench.log("torchtitan", bench.size // 10, 1)
    log = clean.with_name("steplike.log")
    child([*WORK, "steplike", clean, log])
    _warm(log)
    bench.checked(log)
    runs: dict[str, Run] = {
        "ours": partial(bench.ingest, log),
        "plain parser": partial(bench.plain, "torchtitan", log),
    }
    work = f"torchtitan, four lines like steps behind each, {log.stat().st_size / MB:,.0f} MB"
    yield faster(f"{work}, ingest", bench.times(runs), "ours", "plain parser")


def compressed(bench: Logs) -> Iterator[Row]:
    """The same log as it is and compressed."""
    log = bench.log("torchtitan", bench.size)
    runs: dict[str, Run] = {"plain file": partial(bench.ingest, log)}
    for ending in (".gz", ".zst"):
        bench.checked(bench.packed(log, ending), log.with_suffix(".rows"))
        runs[ending] = partial(bench.ingest, bench.packed(log, ending))
    costs = bench.times(runs)
    at_most = Goal(1.1, at_least=False)
    for ending in (".gz", ".zst"):
        if processors() > 1:
            yield longer(f"{ending}, time, two cores", costs, ending, "plain file", at_most)
        else:
            yield skipped(f"{ending}, time, two cores", "one core", at_most)


SMALL: Final = 200_000


def small_files(bench: Logs) -> Iterator[Row]:
    """A folder of small logs of five formats against as many bytes in five files."""
    small, large = bench.folder / "small", bench.folder / "large"
    found = {}
    each = SMALL * bench.files // 5
    for folder, files, size in ((small, bench.files, SMALL), (large, 5, each)):
        found[folder] = int(child([*WORK, "many", folder, str(files), str(size)]).said)
        bench.ingest(folder)
        child([*WORK, "count", bench.store, str(files), str(found[folder])])
        _warm(folder)
    for parser in ("plain", "careful"):
        _equal(f"{parser} rows", int(bench.plain("", small, parser).said), found[small])
    costs = bench.times(
        {
            "ours": partial(bench.ingest, small),
            "as many bytes in five files": partial(bench.ingest, large),
            "plain parser": partial(bench.plain, "", small),
            "careful parser": partial(bench.plain, "", small, "careful"),
            LEAST: partial(inside, [PYTHON, "-m", "benchmarks.least", small]),
        }
    )
    work = f"{bench.files:,} files of 200 KB, ingest"
    yield faster(work, costs, "ours", "plain parser", Goal(5.5))
    for other in ("as many bytes in five files", "careful parser", LEAST):
        yield faster(other, costs, other, "plain parser")
    pairs = zip(costs["ours"], costs["as many bytes in five files"], strict=True)
    over = [1000 * (one.wall_s - other.wall_s) / bench.files for one, other in pairs]
    goal = Goal(0.5, at_least=False, unit="ms")
    yield Row("overhead a file", "as many bytes in five files", over, goal, unit="ms")


LONG: Final = 100 * MB
MANY: Final = 1000 * MB
"""Logs of so many bytes are read once for their memory."""


def memory(bench: Logs) -> Iterator[Row]:
    """Peak memory of the whole command as the log grows, and with a very long line."""
    sizes = [bench.size // 10, bench.size]
    if large := bench.sizes["large"] * MB:
        sizes.append(large)
    peaks = []
    for size in sizes:
        log = bench.log("torchtitan", size)
        costs = [bench.checked(log) for _ in range(1 if size >= MANY else bench.repeats)]
        peaks.append(peak(f"peak memory, {size / MB:,.0f} MB", costs, PEAK))
        yield peaks[-1]
    if not large:
        yield skipped("peak memory, 10 GB", "--large 10000, 12 GB on the disk", PEAK)
    first, last = peaks[0].value, peaks[-1].value
    work = f"growth of the peak from {sizes[0] / MB:,.0f} to {sizes[-1] / MB:,.0f} MB"
    at_most = Goal(5, at_least=False, unit="%")
    yield Row(work, "itself", [100 * (last / first - 1)], at_most, unit="%")
    short, long = bench.log("torchtitan", sizes[0]), bench.folder / "long.log"
    child([*WORK, "line", short, long, str(LONG)])
    one = (None, PROCESSES, "1")  # a log of twice the size is worth a second process
    costs = bench.times(
        {name: partial(bench.checked, log, *one) for name, log in (("", short), ("long", long))}
    )
    pairs = zip(peak("", costs["long"]).values, peak("", costs[""]).values, strict=True)
    more = [with_it - without for with_it, without in pairs]
    goal = Goal(10, at_least=False, unit="MB")
    work = f"a line of {LONG / MB:.0f} MB more, one process"
    yield Row(work, "without it", more, goal, unit="MB", cost=costs["long"])


FEW: Final = 600
"""Damaged lines of each format that ordinary tests read."""
NONE_DIFFERENT: Final = Goal(0, at_least=False, unit="differences")


def gate(bench: Logs) -> Iterator[Row]:
    """Fast reading against the formats' regexes line by line: the tests that `make gate` runs."""
    lines = bench.sizes["gate"]
    more = {} if lines <= FEW else {"FAIRMFU_GATE": str(lines)}
    folders = {name: os.environ[name] for name in PUBLIC if name in os.environ}
    work = "correctness gate"
    for what, chosen in (
        (f"{max(lines, FEW):,} damaged lines of each format", "damaged_logs or what_was_written"),
        ("whole logs", "sample_logs or public_and_generated"),
    ):
        cost = child([*TEST_GATE, "-k", chosen], env={**more, **folders})
        row = Row(
            f"{work}, {what}", "regexes, line by line", [0.0], NONE_DIFFERENT, unit="differences"
        )
        yield replace(row, cost=[cost])
        for name, whose in PUBLIC.items():
            if f"${name}" in cost.said:
                yield skipped(f"{work}, {whose} logs", f"no folder, ${name}", NONE_DIFFERENT)


WORKS: Final[Sequence[Callable[[Logs], Iterator[Row]]]] = (
    *(torchtitan, formats, sparse, steplike, compressed, small_files, memory, gate),
)

SIZES: Final = {
    "size": Size(50, 1000, "MB of the large logs"),
    "files": Size(100, 2000, "small files"),
    "large": Size(0, 0, "MB of a log whose memory alone is measured; 10000: 10 GB"),
    "gate": Size(FEW, 8_000, "damaged lines of each format"),
}

if __name__ == "__main__":
    main(__doc__, WORKS, Logs, SIZES, repeats=Size(1, 3, "rounds of each timing"))
