"""What a file costs that is known: `fairmfu ingest` again, against listing folders and a stat.

    python -m benchmarks.known TURNS FEW MANY

FEW, MANY: folders with `logs` and a `store` that knows all of them. In this process and per file,
beyond what few files cost: the start of a process is far more. Prints JSON: microseconds a file of
each turn. Exit 1 where a file is not told as unchanged, or its content is read.
"""

from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

from fairmfu.cli import main as fairmfu


def again(place: Path) -> str:
    """What the ingest of known files says."""
    with redirect_stderr(io.StringIO()) as said:
        arguments = ["ingest", str(place / "logs"), "--store", str(place / "store")]
        fairmfu(arguments, standalone_mode=False)
    return said.getvalue()


def looked_at(place: Path) -> None:
    """List the folders, and ask for the stat of each file."""
    left = [str(place / "logs")]
    while left:
        with os.scandir(left.pop()) as entries:
            for entry in entries:
                if entry.is_dir():
                    left.append(entry.path)
                else:
                    entry.stat()


@contextmanager
def opened() -> Iterator[list[str]]:
    """Paths of the files that this process opens."""
    paths: list[str] = []
    listening = True

    def hear(event: str, about: tuple[object, ...]) -> None:
        if listening and event == "open":
            paths.append(str(about[0]))

    sys.addaudithook(hear)  # for good: a hook cannot be taken away
    yield paths
    listening = False


def check(place: Path, files: int) -> None:
    """Exit where known files are not skipped unread."""
    with opened() as paths:
        said = again(place)
    if said != f"{files:,} unchanged\n":
        sys.exit(f"{place}: {said}, not {files:,} unchanged")
    if any(path.startswith(str(place)) and path.endswith(".log") for path in paths):
        sys.exit(f"{place}: a known log was opened")


def seconds(do: Callable[[Path], object], place: Path) -> tuple[float, float]:
    """Wall and processor time."""
    wall, cpu = time.perf_counter(), time.process_time()
    do(place)
    return time.perf_counter() - wall, time.process_time() - cpu


def main() -> None:
    """Check, then time by turns."""
    turns, places = int(sys.argv[1]), [Path(name) for name in sys.argv[2:]]
    files = [sum(1 for _ in (place / "logs").rglob("*.log")) for place in places]
    for place, count in zip(places, files, strict=True):
        check(place, count)
    found: dict[str, list[float]] = {name: [] for name in ("wall", "cpu", "floor")}
    for _ in range(turns):
        (few, few_cpu), (many, many_cpu) = (seconds(again, place) for place in places)
        few_at, many_at = (seconds(looked_at, place)[0] for place in places)
        for name, took in (
            ("wall", many - few),
            ("cpu", many_cpu - few_cpu),
            ("floor", many_at - few_at),
        ):
            found[name].append(1e6 * took / (files[1] - files[0]))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
