"""What an engine costs: processes of this machine and Ray, the same small logs into a new store.

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
    child,
    faster,
    installed,
    main,
    rounds,
    skipped,
)

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

    def times(self, folder: Path) -> Costs:
        """Each engine, by turns."""
        runs: dict[str, Run] = {
            engine: partial(self.ingest, folder, options)
            for engine, options in self.engines.items()
        }
        return rounds(runs, self.repeats)


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
        small = bench.times(bench.folder_of(files, SMALL))
        work = f"{files:,} files of 200 KB"
        for engine in (TWO, RAY):
            yield faster(f"{work}, {engine}", small, engine, ONE)
        yield faster(f"{work}, {RAY}", small, RAY, TWO)
        half = bench.times(bench.folder_of(files // 2, SMALL))
        long = bench.times(bench.folder_of(files // 2, 2 * SMALL))
    for engine in (ONE, TWO, RAY):
        yield _each("a file of 200 KB more", engine, small, half, files // 2)
        yield _each("a file more, of as many bytes", engine, small, long, files // 2)


def _each(work: str, engine: str, more: Costs, less: Costs, files: int) -> Row:
    """What each file more costs [ms]."""
    pairs = zip(more[engine], less[engine], strict=True)
    over = [1000 * (one.wall_s - other.wall_s) / files for one, other in pairs]
    return Row(f"{work}, {engine}", "", over, unit="ms", cost=more[engine])


WORKS: Final[Sequence[Callable[[Logs], Iterator[Row]]]] = (engines,)
SIZES: Final = {"files": Size(200, 2000, "small files")}

if __name__ == "__main__":
    main(__doc__, WORKS, Logs, SIZES, repeats=Size(1, 3, "rounds of each timing"))
