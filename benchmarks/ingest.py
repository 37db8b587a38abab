"""How fast logs are read, and in how much memory: `fairmfu ingest` beside grep, mawk and scripts.

    python -m benchmarks.ingest [--quick] [--size MB] [--large] [--repeats N] [--only WORD] ...

Logs are generated (tests/log_lines.py) into a temporary folder. Before anything is timed, what the
real command stores of a log has to be what was written, every value of every row; the baselines
have to find as many. A result that is wrong ends with exit 1; a goal that is missed is marked.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import (
    FAIRMFU,
    MB,
    PYTHON,
    Cost,
    Goal,
    Row,
    Word,
    WrongResultError,
    child,
    conclude,
    faster,
    inside,
    own_peak,
    rounds,
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
PEAK: Final = Goal(300, at_least=False, unit="MB")


@dataclass(frozen=True)
class Bench:
    """One benchmark: where it works, how large its logs are, how often each run is timed."""

    folder: Path
    size: int
    repeats: int
    files: int
    large: bool

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

    def plain(self, form: str, path: Path) -> Cost:
        """A user's script, log to Parquet."""
        return child([PYTHON, "-m", "benchmarks.plain", form, path, self.folder / "plain.parquet"])

    def times(self, runs: dict[str, Callable[[], Cost]]) -> dict[str, list[Cost]]:
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


def _skipped(work: str, why: str, goal: Goal | None = None) -> Row:
    print(f"SKIPPED: {work}: {why}", file=sys.stderr)
    return Row(work, "", (), goal, note=f"skipped: {why}")


def _written(log: Path) -> dict[str, int]:
    said: dict[str, int] = json.loads(child([*WORK, "steps", log.with_suffix(".rows")]).said)
    return said


# -- rows -----------------------------------------------------------------------------------


def torchtitan(bench: Bench) -> Iterator[Row]:
    """One large log, file to parts and catalogue, by one process and by two."""
    log = bench.log("torchtitan", bench.size)
    rows = _written(log)["rows"]
    bench.checked(log)
    _equal("plain rows", int(bench.plain("torchtitan", log).said), rows)
    grep: list[Word] = ["grep", "-cF", "mfu: ", log]
    _equal("lines of grep", int(child(grep, env=IN_C).said), rows)
    runs: dict[str, Callable[[], Cost]] = {
        "ours": partial(bench.ingest, log),
        "grep -cF": partial(child, grep, env=IN_C),
        "plain parser": partial(bench.plain, "torchtitan", log),
    }
    if mawk := shutil.which("mawk"):
        awk: list[Word] = [mawk, "-F:", MAWK, log]
        runs["mawk"] = partial(child, awk, env=IN_C)
        cut = bench.folder / "mawk.tsv"
        child(["sh", "-c", 'mawk -F: "$1" "$2" > "$3"', "sh", MAWK, log, cut], env=IN_C)
        _equal("lines of mawk", int(child(["wc", "-l", cut]).said.split()[0]), rows)
    two = PROCESSES in child([*FAIRMFU, "ingest", "-h"]).said
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
        yield _skipped(f"{work}, against mawk", "mawk is not installed", Goal(1.3))
    goals = {"grep -cF": Goal(0.43), "plain parser": Goal(17), "ours": Goal(1.75)}
    for other, goal in goals.items():
        if two:
            yield faster(f"{work}, two processes", costs, "two processes", other, goal)
        else:
            yield _skipped(f"{work}, two processes", f"no option {PROCESSES}", goal)


def formats(bench: Bench) -> Iterator[Row]:
    """Every format into memory, without start-up and store."""
    for form in ("torchtitan", *FORMATS):
        log = bench.log(form, bench.size // 10)
        bench.checked(log)
        expected = _written(log)
        runs = {
            reader: partial(inside, [*WORK, "parse", reader, form, log])
            for reader in ("fairmfu", "plain", "careful")
        }
        costs = bench.times(dict(runs))
        for reader, some in costs.items():
            told = json.loads(some[0].said)
            _equal(f"{form}, {reader}", {key: told[key] for key in expected}, expected)
        speed = log.stat().st_size / MB / statistics.median(c.cpu_s for c in costs["fairmfu"])
        work = f"{form}, parse only ({speed:,.0f} MB/s)"
        goals = (Goal(4), Goal(2.5)) if form in FORMATS else (None, None)
        for other, goal in zip(("plain", "careful"), goals, strict=True):
            yield faster(work, costs, "fairmfu", other, goal)


def sparse(bench: Bench) -> Iterator[Row]:
    """A log of which three lines in a hundred are steps."""
    log = bench.log("torchtitan", bench.size, 0.03)
    bench.checked(log)
    grep: list[Word] = ["grep", "-cF", "mfu: ", log]
    runs = {"ours": partial(bench.ingest, log), "grep -cF": partial(child, grep, env=IN_C)}
    costs = bench.times(dict(runs))
    yield faster("torchtitan, 3 % of lines steps, ingest", costs, "ours", "grep -cF", Goal(0.55))


def compressed(bench: Bench) -> Iterator[Row]:
    """The same log as it is and compressed."""
    log = bench.log("torchtitan", bench.size)
    runs: dict[str, Callable[[], Cost]] = {"plain file": partial(bench.ingest, log)}
    for ending in (".gz", ".zst"):
        bench.checked(bench.packed(log, ending), log.with_suffix(".rows"))
        runs[ending] = partial(bench.ingest, bench.packed(log, ending))
    costs = bench.times(runs)
    for ending in (".gz", ".zst"):
        pairs = list(zip(costs[ending], costs["plain file"], strict=True))
        walls = [one.wall_s / other.wall_s for one, other in pairs]
        cpu = statistics.median(one.cpu_s / other.cpu_s for one, other in pairs)
        goal = Goal(1.1, at_least=False)
        yield Row(f"{ending}, time", "the plain file", walls, goal, cpu=cpu, cost=costs[ending])


SMALL: Final = 200_000


def small_files(bench: Bench) -> Iterator[Row]:
    """A folder of small logs of five formats against as many bytes in five files."""
    small, large = bench.folder / "small", bench.folder / "large"
    found = {}
    each = SMALL * bench.files // 5
    for folder, files, size in ((small, bench.files, SMALL), (large, 5, each)):
        found[folder] = int(child([*WORK, "many", folder, str(files), str(size)]).said)
        bench.ingest(folder)
        child([*WORK, "count", bench.store, str(files), str(found[folder])])
        _warm(folder)
    _equal("plain rows", int(bench.plain("", small).said), found[small])
    costs = bench.times(
        {
            "ours": partial(bench.ingest, small),
            "as many bytes in five files": partial(bench.ingest, large),
            "plain parser": partial(bench.plain, "", small),
        }
    )
    work = f"{bench.files:,} files of 200 KB, ingest"
    yield faster(work, costs, "ours", "plain parser", Goal(5.5))
    pairs = zip(costs["ours"], costs["as many bytes in five files"], strict=True)
    over = [1000 * (one.wall_s - other.wall_s) / bench.files for one, other in pairs]
    goal = Goal(0.5, at_least=False, unit="ms")
    yield Row("overhead a file", "as many bytes in five files", over, goal, unit="ms")


LONG: Final = 100 * MB


def memory(bench: Bench) -> Iterator[Row]:
    """Peak memory of the whole command as the log grows, and with a very long line."""
    sizes = sorted({min(100 * MB, bench.size), bench.size, *([10_000 * MB] if bench.large else [])})
    logs = {size: bench.log("torchtitan", size) for size in sizes}
    peaks = {}
    for size, log in logs.items():
        costs = [bench.checked(log) for _ in range(1 if size > 1000 * MB else bench.repeats)]
        peaks[size] = [cost.peak_bytes / MB for cost in costs]
        work = f"peak memory, {size / MB:,.0f} MB"
        yield Row(work, "", peaks[size], PEAK, unit="MB", cost=costs)
    first, last = (statistics.median(peaks[size]) for size in (sizes[0], sizes[-1]))
    if first != last:
        grown = [100 * (last / first - 1)]
        work = f"growth from {sizes[0] / MB:,.0f} to {sizes[-1] / MB:,.0f} MB"
        yield Row(work, "itself", grown, Goal(5, at_least=False, unit="%"), unit="%")
    long = bench.folder / "long.log"
    child([*WORK, "line", logs[sizes[0]], long, str(LONG)])
    costs = [bench.checked(long) for _ in range(bench.repeats)]
    more = [cost.peak_bytes / MB - first for cost in costs]
    goal = Goal(10, at_least=False, unit="MB")
    yield Row(f"a line of {LONG / MB:.0f} MB more", "without it", more, goal, unit="MB", cost=costs)


WORKS: Final[Sequence[Callable[[Bench], Iterator[Row]]]] = (
    *(torchtitan, formats, sparse, compressed, small_files, memory),
)


def main() -> None:
    """Print the table; exit 1 where a result is wrong."""
    given = _options()
    with tempfile.TemporaryDirectory(dir=given.folder) as aside:
        bench = Bench(
            folder=Path(aside),
            size=given.size * MB,
            repeats=given.repeats,
            files=given.files,
            large=given.large,
        )
        rows = []
        try:
            for work in WORKS:
                if not given.only or work.__name__ in given.only:
                    print(f"{work.__name__} …", file=sys.stderr, flush=True)
                    rows += list(work(bench))
        except WrongResultError as error:
            raise SystemExit(f"WRONG: {error}") from error
    conclude(f"Reading logs, {given.size:,} MB", rows)
    print(f"No peak below {own_peak() / MB:.0f} MB can be seen.")


def _options() -> Any:  # noqa: ANN401 - argparse has no types
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="100 MB and 200 files, twice")
    parser.add_argument("--size", type=int, help="MB of the large logs (1000)")
    parser.add_argument("--files", type=int, help="small files (2000)")
    parser.add_argument("--large", action="store_true", help="memory at 10 GB as well")
    parser.add_argument("--repeats", type=int, help="rounds of each timing (3)")
    names = [work.__name__ for work in WORKS]
    parser.add_argument("--only", action="append", choices=names, help="some of the works")
    parser.add_argument("--folder", type=Path, help="where the temporary folder is made")
    given = parser.parse_args()
    for name, quick, whole in (("size", 100, 1000), ("files", 200, 2000), ("repeats", 2, 3)):
        if getattr(given, name) is None:
            setattr(given, name, quick if given.quick else whole)
    return given


if __name__ == "__main__":
    main()
