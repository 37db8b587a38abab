"""What an engine costs: processes of this machine and Ray, the same logs and metrics by each.

    python -m benchmarks.engines [--quick] [-h]

A Ray cluster of two nodes of one core each runs all the while; that its driver has to join it is in
its times. Before anything is timed, every store has to hold as many runs and steps as were written.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import polars as pl

from benchmarks.harness import (
    FAIRMFU,
    PYTHON,
    Bench,
    Cost,
    Costs,
    Row,
    Run,
    Size,
    Word,
    WrongResultError,
    child,
    faster,
    installed,
    main,
    peak,
    rounds,
    skipped,
)
from benchmarks.nightly import ALL_IS_WELL, QUIET
from fairmfu.ingest.store.store import Store
from fairmfu.reports.store.metrics_store import METRICS_TABLE
from tests.support.nights import plan_of, write_night

WORK: Final[tuple[Word, ...]] = (PYTHON, "-m", "benchmarks.ingest_work")
SMALL: Final = 200_000
"""Bytes of a small log."""
ONE, TWO, RAY = "1 process", "2 processes", "Ray, 2 nodes of 1 core"


class Logs(Bench):
    """Folders of small logs, and what reads them."""

    def folder_of(self, files: int, size: int) -> Path:
        """So many logs of all formats by turns, of so many bytes each, of which each is read."""
        folder = self.folder / f"{files}-{size}"
        rows = child([*WORK, "many", folder, str(files), str(size)]).said.strip()
        for engine, options in self.engines.items():
            self.ingest(folder, options)
            child([*WORK, "count", self.folder / "store", str(files), rows])
            print(f"  {engine}: {files:,} runs, {rows} steps", flush=True)
        return folder

    engines: Mapping[str, Sequence[Word]] = {}

    def ingest(self, folder: Path, options: Sequence[Word]) -> Cost:
        """The real command into a new store."""
        store = self.folder / "store"
        shutil.rmtree(store, ignore_errors=True)
        return child([*FAIRMFU, "ingest", folder, "--store", store, *options])

    def times(self, folders: Mapping[str, Path]) -> Mapping[str, Costs]:
        """By folder what each engine took; all by turns, as the machine is not always the same."""
        runs: dict[str, Run] = {
            f"{name} {engine}": partial(self.ingest, folder, options)
            for name, folder in folders.items()
            for engine, options in self.engines.items()
        }
        costs = rounds(runs, self.repeats)
        return {
            name: {engine: costs[f"{name} {engine}"] for engine in self.engines} for name in folders
        }


@contextmanager
def cluster() -> Iterator[str]:
    """A Ray cluster of two nodes of one core each, on this machine; its address."""
    from ray.cluster_utils import Cluster  # noqa: PLC0415 - may be missing

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        nodes.add_node(num_cpus=1)
        yield nodes.address
    finally:
        nodes.shutdown()


def engines(bench: Logs) -> Iterator[Row]:
    """The same logs by each engine; what a file costs each beyond its bytes."""
    if not installed("ray"):
        yield skipped("files by Ray", "ray is not installed")
        return
    files = bench.sizes["files"]
    with cluster() as address:
        where = ("--engine", "ray", "--ray-address", address)
        bench.engines = {ONE: ("--processes", "1"), TWO: ("--processes", "2"), RAY: where}
        folders = {
            "all": bench.folder_of(files, SMALL),
            "half": bench.folder_of(files // 2, SMALL),
            "long": bench.folder_of(files // 2, 2 * SMALL),
        }
        took = bench.times(folders)
        small = took["all"]
        work = f"{files:,} files of 200 KB"
        for engine in (TWO, RAY):
            yield faster(f"{work}, {engine}", small, engine, ONE)
        yield faster(f"{work}, {RAY}", small, RAY, TWO)
    for engine in (ONE, TWO, RAY):
        yield _each("a file of 200 KB more", engine, small, took["half"], files // 2)
        yield _each("a file more, of as many bytes", engine, small, took["long"], files // 2)


def _each(work: str, engine: str, more: Costs, less: Costs, files: int) -> Row:
    """What each file more costs [ms]."""
    pairs = zip(more[engine], less[engine], strict=True)
    over = [1000 * (one.wall_s - other.wall_s) / files for one, other in pairs]
    return Row(f"{work}, {engine}", "", over, unit="ms", cost=more[engine])


def metrics(bench: Logs) -> Iterator[Row]:
    """All metrics of a store whose runs nobody has looked at: a first night without its pages."""
    if not installed("ray"):
        yield skipped("metrics by Ray", "ray is not installed")
        return
    logs, store, out = (bench.folder / name for name in ("nights", "unscored", "report"))
    nights, plan = bench.sizes["nights"], plan_of()
    runs = sum(len(write_night(logs, night, plan)) for night in range(1, nights + 1))
    child([*FAIRMFU, "ingest", logs, "--store", store])
    kept: dict[str, pl.DataFrame] = {}

    def night(engine: str, options: Sequence[Word]) -> Cost:
        copy = bench.folder / "scored"
        for folder in (copy, out):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(store, copy)
        command = [PYTHON, "-c", QUIET, "nightly", logs, "--store", copy, "--out", out, *options]
        cost = child(command, may_exit=ALL_IS_WELL)
        rows = Store(copy).kept(METRICS_TABLE, latest_by=("run_id",)).sort("run_id")
        if rows.height != runs or not rows.equals(kept.setdefault("of the first", rows)):
            raise WrongResultError(f"{engine}: {rows.height} rows of metrics, or others")
        return cost

    with cluster() as address:
        where = ("--engine", "ray", "--ray-address", address)
        engines = {ONE: ("--processes", "1"), RAY: where}
        costs = rounds(
            {engine: partial(night, engine, options) for engine, options in engines.items()},
            bench.repeats,
        )
    work = f"metrics of {runs:,} runs for the first time"
    yield faster(f"{work}, {RAY}", costs, RAY, ONE)
    yield peak(f"{work}, {ONE}", costs[ONE])
    yield peak(f"{work}, {RAY}: the driver", costs[RAY])


STEP: Final = (
    "[rank0]:[titan] 2026-11-20 15:{minute:02}:00,000 - root - INFO - step: {step:2}  "
    "loss: {loss:.4f}  grad_norm: 1.2500  memory: 10.00GiB(12.50%)  "
    "tps: 1,234  tflops: 100.00  mfu: 10.11%\n"
)


def growth(bench: Logs) -> Iterator[Row]:
    """As many tiny logs more, again and again, into one store: what the last ones cost."""
    costs, folders = [], bench.sizes["folders"]
    for number in range(folders):
        folder = bench.folder / f"tiny-{number}"
        folder.mkdir()
        for place in range(bench.sizes["tiny"]):
            of_run = number * bench.sizes["tiny"] + place
            lines = (
                STEP.format(minute=step, step=step, loss=8 + of_run % 997 / 1000)
                for step in range(1, 9)
            )
            log = folder / f"{place:05}.log"
            log.write_text(f"job {of_run:07}\n{''.join(lines)}", encoding="utf-8")
        store = bench.folder / "grown"
        costs.append(child([*FAIRMFU, "ingest", folder, "--store", store, "--processes", "1"]))
    runs = folders * bench.sizes["tiny"]
    child([*WORK, "count", bench.folder / "grown", str(runs), str(8 * runs)])
    work = f"{bench.sizes['tiny']:,} logs of 1.5 KB more, where {runs - bench.sizes['tiny']:,} are"
    longer = [costs[-1].wall_s / costs[0].wall_s]
    yield Row(f"{work} stored", "the first of them", longer, cost=costs[-1:])


WORKS: Final[Sequence[Callable[[Logs], Iterator[Row]]]] = (engines, metrics, growth)
SIZES: Final = {
    "files": Size(200, 2000, "small files"),
    "nights": Size(30, 100, "nights of 20 runs"),
    "tiny": Size(200, 1000, "tiny files of a folder"),
    "folders": Size(3, 6, "folders of tiny files, one after the other"),
}

if __name__ == "__main__":
    main(__doc__, WORKS, Logs, SIZES, repeats=Size(1, 3, "rounds of each timing"))
