"""Many readers while one writes: each finds the store whole, as it was before a step or behind it.

A few in every run, in two processes; `make kills`: a hundred, in ten.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from fairmfu.ingest.core.schema import READING_COSTS
from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.ingest.pipeline import ingest_run
from fairmfu.ingest.store.doctor import examine_store
from fairmfu.ingest.store.store import Store
from tests.support.folders import ROOT

PROCESSES, THREADS = (10, 10) if "FAIRMFU_KILLS" in os.environ else (2, 2)
PAUSE_S: Final = 0.2 * PROCESSES * THREADS
"""Between two looks of a reader at most, so that the writer has a part of the machine."""


def state(store: Store) -> str:
    """What the store says, in short: the same of one state whoever reads it, and when."""
    tables = store.tables()
    tables["facts"] = tables["facts"].drop("sequence")
    tables["sources"] = tables["sources"].drop("read_at", *READING_COSTS)
    digest = hashlib.sha256()
    for name, frame in sorted(tables.items()):
        digest.update(name.encode())
        digest.update(frame.write_json().encode())
    return digest.hexdigest()[:16]


def looks(path: Path, until: Path, begun: Path) -> Iterator[str]:
    """The states that one reader finds, until that file is there; where one stays, it is told once.

    Some looks are those of a query, and of `doctor`, which finds no harm. begun: made when the
    first one is over.
    """
    store, parent, last = Store(path), os.getppid(), ""
    for count in itertools.count(1):
        if until.exists() or os.getppid() != parent:
            return
        found = state(store)
        if found != last:
            yield found
        last = found
        begun.touch()
        time.sleep(random.uniform(0, PAUSE_S))  # noqa: S311 - no secret
        if count % 2 == 0:
            ((steps, runs),) = store.query(
                "select count(*), count(distinct run_id) from steps"
            ).rows()
            assert steps == STEPS * runs
        if count % 5 == 0:
            assert not [one.what for one in examine_store(store) if one.is_harmful]


def read_on(path: Path, until: Path, folder: Path, name: str) -> None:
    """THREADS readers of one process: what each finds is one line of a file of that name."""

    def one(number: int) -> list[str]:
        return [*looks(path, until, folder / f"{name}-{number}.begun")]

    with ThreadPoolExecutor(THREADS) as pool:
        found = [*pool.map(one, range(THREADS))]
    (folder / f"{name}.json").write_text(json.dumps(found))


STEPS: Final = 20
"""Of each log."""


@contextmanager
def reading(path: Path, folder: Path) -> Iterator[None]:
    """All readers have looked at the store, and look again and again until the end."""
    until = folder / "until"
    readers = [
        subprocess.Popen(  # noqa: S603 - our own
            [
                *(sys.executable, "-c"),
                "import sys; from pathlib import Path\n"
                "from tests.ingest.store.test_concurrent_readers import read_on\n"
                "read_on(*map(Path, sys.argv[1:4]), sys.argv[4])",
                *(str(path), str(until), str(folder), f"reader-{number}"),
            ],
            cwd=ROOT,
            stderr=subprocess.PIPE,
        )
        for number in range(PROCESSES)
    ]
    try:
        waited_until = time.monotonic() + 60 + 20 * PROCESSES
        while len([*folder.glob("*.begun")]) < PROCESSES * THREADS:
            assert time.monotonic() < waited_until
            assert all(reader.poll() is None for reader in readers)
            time.sleep(0.05)
        yield
    finally:
        until.touch()
        said = [reader.communicate(timeout=300)[1].decode() for reader in readers]
    assert [reader.returncode for reader in readers] == [0] * PROCESSES, "\n".join(said)


def steps_of_a_writer(store: Store, logs: Path, titan: Callable[..., str]) -> Iterator[bool]:
    """Each step that is done, and whether it changes what the store says."""
    for number in range(4):
        log = logs / f"{number}.log"
        log.write_text(titan(STEPS, loss=5.0 + number))
        (outcome,) = ingest_run.ingest_paths([log], store)
        assert outcome.status == "read"
        yield True
        runs = store.table("runs")["run_id"]
        if number == 1:
            assert store.give_facts({runs[0]: facts_from_flags([f"lora_rank={number}"])})
            yield True
        elif number == 2:
            store.compact()
            yield False
            assert store.remove([runs[1]])
            yield True
    store.rebuild()
    yield False


def test_readers_see_each_step_of_a_writer_whole(
    tmp_path: Path, logs: Path, titan: Callable[..., str]
) -> None:
    store = Store(tmp_path / "store")
    writer = steps_of_a_writer(store, logs, titan)
    assert next(writer)
    states = [state(store)]
    with reading(store.path, tmp_path):
        for changes in writer:
            found = state(store)
            assert (found != states[-1]) == changes
            states += [found] * changes
    assert len(set(states)) == len(states)
    place = {found: at for at, found in enumerate(states)}
    seen = [
        [place[one] for one in found]  # a state that never was is no key
        for number in range(PROCESSES)
        for found in json.loads((tmp_path / f"reader-{number}.json").read_text())
    ]
    assert len(seen) == PROCESSES * THREADS
    assert all(places == sorted(places) for places in seen)
    assert sum(map(len, seen)) > len(seen), "none saw more than one state"
    assert not [one.what for one in examine_store(store) if one.is_harmful]
