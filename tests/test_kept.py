"""Kept metrics are those of all runs at once, whatever came when, and cost what is new."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from corpus import CORPUS
from polars.testing import assert_frame_equal

from ingest.errors import FairmfuError
from ingest.intake import read_source
from ingest.schema import TABLES, frame_schema
from metrics import kept as keeping
from metrics.accelerators import Accelerator
from metrics.kept import KEPT, finished, outdated, peaks_id, program, rescore
from metrics.utilization import METRICS, Analysis, analyse
from sample_logs.make_synthetic import WRITERS, ImaginaryRun

DIGITS = 0
START = datetime(2026, 11, 20, 10)
Rows = list[dict[str, Any]]
Source = dict[str, Rows]
ORDER = {
    "sources": ["path"],
    "runs": ["name", "launch", "run_id"],
    "facts": ["run_id", "sequence"],
    "steps": ["run_id", "line"],
    "events": ["run_id", "line"],
    "unread": ["sha256", "line"],
}


def ids(source: Source) -> list[str]:
    return [row["run_id"] for row in source["runs"]]


@dataclass
class World:
    """A store in memory, and what is kept beside it."""

    sources: dict[str, Source] = field(default_factory=dict)
    kept: pl.DataFrame = field(default_factory=KEPT.to_frame)
    asked: list[str] = field(default_factory=list)

    def tables(self, of: Iterable[str] | None = None) -> dict[str, pl.DataFrame]:
        wanted = None if of is None else set(of)
        mine = [s for s in self.sources.values() if wanted is None or wanted & set(ids(s))]
        found = {}
        for name in TABLES:
            schema = frame_schema(name)
            rows = [{c: row.get(c) for c in schema} for s in mine for row in s.get(name, [])]
            frame = pl.DataFrame(rows, schema=schema)
            if wanted is not None and "run_id" in schema:
                frame = frame.filter(pl.col("run_id").is_in(list(wanted)))
            found[name] = frame.sort(ORDER[name], maintain_order=True)
        return found

    def load(self, of: Sequence[str]) -> dict[str, pl.DataFrame]:
        self.asked += of
        return self.tables(of)

    def night(self, changed: Iterable[str]) -> Analysis:
        """Score after these runs came, changed or went."""
        self.asked = []
        runs = self.tables()["runs"]
        found = rescore(runs, self.kept, set(changed), self.load)
        assert len(self.asked) == len(set(self.asked))
        self.kept = found.onto(self.kept)
        return found.analysis

    def put(self, *sources: Source) -> list[str]:
        for source in sources:
            self.sources[source["runs"][0]["sha256"]] = source
        return [one for source in sources for one in ids(source)]

    def holds(self) -> None:
        """THE LAW."""
        together = analyse(self.tables()).metrics
        assert_frame_equal(finished(self.kept), together, check_exact=True)


# -- generated stores ----------------------------------------------------------------------


def training(random: np.random.Generator, first: int = 1) -> Rows:
    """Steps as they were, of which sources tell; losses may be those of another training."""
    count = int(random.choice([6, 12, 12, 12, 20]))
    steps = range(first, first + count)
    seed = int(random.integers(1000))
    times = 2 + 0.1 * np.random.default_rng(seed).standard_normal(count)
    start = START + timedelta(days=int(random.integers(3)), hours=int(random.integers(3)))
    stamps = start + np.cumsum(times) * timedelta(seconds=1)
    offset = float(random.choice([0, 0, 0, 0.5]))
    return [
        {
            "step": step,
            "loss": 8 / step + 1 / 7 + offset,
            "grad_norm": 1 + 1 / step,
            "elapsed_s": float(seconds),
            "logged_at": at,
        }
        for step, seconds, at in zip(steps, times, stamps, strict=True)
    ]


KINDS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "console": (("loss", "elapsed_s", "logged_at"), {"log_format": "xtuner"}),
    "undated": (("loss", "elapsed_s"), {"log_format": "xtuner"}),
    "scalars": (("loss", "grad_norm", "elapsed_s"), {"log_format": "xtuner-scalars"}),
    "state": (("loss", "grad_norm"), {"log_format": "hf-trainer-state"}),
    "events": (("loss", "elapsed_s", "logged_at"), {"log_format": "events", "utc": True}),
    "stamps": (("loss", "logged_at"), {"log_format": "xtuner", "evidence": ["stamp"]}),
    "rank": (("loss", "elapsed_s", "logged_at"), {"log_format": "xtuner"}),
}


def source(random: np.random.Generator, name: str, kind: str, rows: Rows, **run: Any) -> Source:
    """One of several files of a training, as fine as it prints and as often."""
    columns, about = KINDS[kind]
    digits = DIGITS or int(random.choice([1, 4, 4, 10]))
    every = int(random.choice([1, 1, 2]))
    dated = kind not in ("undated", "scalars", "state") and random.random() < 0.9
    steps = [
        {"run_id": name, "line": 10 + i, "step": row["step"]}
        | {c: row[c] if c == "logged_at" else round(row[c], digits) for c in columns}
        for i, row in enumerate(rows)
        if row["step"] % every == 0
    ]
    if kind == "rank":
        rank = str(random.integers(3))
        steps = [{**row, "rank": rank} for row in steps]
    run = {
        "run_id": name,
        "sha256": f"hash of {name}",
        "name": f"{random.integers(100):02} {name}",
        "launch": 1,
        "framework": "xtuner",
        "step_unit": "optimizer_step",
        "elapsed_covers": "step",
        "elapsed_excludes_data": False,
        "rate_excludes_data": False,
        "evidence": ["elapsed", "stamp"],
        "utc": False,
        "outcome": "incomplete",
        "synthetic": False,
        "first_line": 1,
        "last_line": 500,
        "started_at": rows[0]["logged_at"] if dated else None,
        **about,
        **run,
    }
    path = {"sha256": run["sha256"], "path": f"logs/{name}", "unread_lines": 0}
    said = {"gpus": "2", "global_batch_size": "8", "seq_len": "128", "packed": "true"}
    said |= {"model": str(random.choice(["llama3-8b", "llama3-8b", "qwen2-7b"]))}
    facts = [
        {"run_id": name, "name": n, "value": v, "origin": "log:1", "line": 1, "sequence": i}
        for i, (n, v) in enumerate(said.items())
        if random.random() < 0.9
    ]
    return {"runs": [run], "sources": [path], "steps": steps, "facts": facts, "events": []}


def resumed(random: np.random.Generator, rows: Rows) -> Rows:
    """A launch that goes on from a step of another, or a little before it began."""
    behind = rows[int(random.integers(1, len(rows)))]
    later = training(random, behind["step"])
    gap = timedelta(seconds=float(random.choice([1, 60, 3600])))
    shift = rows[-1]["logged_at"] + gap - later[0]["logged_at"]
    offset = rows[0]["loss"] - 8 / rows[0]["step"] - 1 / 7
    return [
        {
            **row,
            "logged_at": row["logged_at"] + shift,
            "loss": 8 / row["step"] + 1 / 7 + offset,
        }
        for row in later
    ]


def files(random: np.random.Generator, count: int, chains: float) -> list[Source]:
    """Files of some trainings, of chains of them, and of launches in one file.

    chains: share of the trainings that go on from another. Some end together with another.
    """
    made: list[Source] = []
    trainings: list[Rows] = []
    while len(made) < count:
        again = trainings and random.random() < chains
        before = trainings[int(random.integers(len(trainings)))] if again else None
        rows = training(random) if before is None else resumed(random, before)
        if again and random.random() < 0.2:  # at once with another, but not that one
            rows = [{**row, "loss": row["loss"] + 0.01} for row in trainings[-1]]
        trainings.append(rows)
        kinds = random.choice(list(KINDS), size=int(random.choice([1, 1, 2, 3])))
        for kind in kinds:
            name = f"{len(made):02}{kind}"
            one = source(random, name, str(kind), rows)
            if random.random() < 0.3:
                hash_of = one["runs"][0]["sha256"]
                later = resumed(random, rows)
                more = source(
                    random, f"{name}-2", str(kind), later, sha256=hash_of, launch=2, first_line=501
                )
                for table in ("runs", "steps", "facts"):
                    one[table] += more[table]
            made.append(one)
    return made


def shorter(random: np.random.Generator, whole: Source) -> Source:
    """The file as it was before it grew."""
    last = int(random.integers(1, len(whole["steps"]) + 1)) if whole["steps"] else 0
    return whole | {"steps": whole["steps"][:last]}


def given(random: np.random.Generator, whole: Source) -> Source:
    """With another fact that somebody gives to one of its runs."""
    name, value = (
        ("model", "llama3-8b"),
        ("model", "qwen2-7b"),
        ("seq_len", "256"),
        ("total_steps", "100"),
        ("accelerator", "NVIDIA H100 80GB HBM3"),
    )[int(random.integers(5))]
    run = str(random.choice(ids(whole)))
    sequence = 1000 + len(whole["facts"])
    fact = {"run_id": run, "name": name, "value": value, "origin": "flag", "sequence": sequence}
    return whole | {"facts": [*whole["facts"], fact]}


def nights(seed: int, world: World, count: int, chains: float = 0.4) -> Iterable[set[str]]:
    """Files come in any order, grow, get facts and go; which runs that changes."""
    random = np.random.default_rng(seed)
    coming = files(random, count, chains)
    random.shuffle(coming)  # type: ignore[arg-type]
    whole: dict[str, Source] = {}
    while coming or whole:
        changed: set[str] = set()
        for _ in range(int(random.integers(1, 5))):
            if coming:
                one = coming.pop()
                if random.random() < 0.3:
                    whole[one["runs"][0]["sha256"]] = one
                    one = shorter(random, one)
                changed |= set(world.put(one))
        for sha256 in list(whole):
            if random.random() < 0.5:
                changed |= set(world.put(whole.pop(sha256)))
        there = list(world.sources)
        if there and random.random() < 0.3:
            changed |= set(world.put(given(random, world.sources[str(random.choice(there))])))
        if there and random.random() < 0.2:
            gone = str(random.choice(there))
            whole.pop(gone, None)
            del world.sources[gone]
        yield changed


@pytest.mark.parametrize("seed", range(12))
def test_what_is_kept_is_what_all_runs_at_once_give(seed: int) -> None:
    world = World()
    for changed in nights(seed, world, 12):
        world.night(changed)
        world.holds()
    assert world.kept.height
