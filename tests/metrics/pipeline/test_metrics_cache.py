"""Kept metrics are those of all runs at once, whatever came when, and cost what is new."""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from fairmfu.ingest.core.errors import FairmfuError
from fairmfu.ingest.core.schema import READING_CHANGES, TABLES, frame_schema
from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.pipeline.api import ingest_logs
from fairmfu.ingest.pipeline.ingest_run import ingest_paths
from fairmfu.ingest.store import lock
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.core.run_messages import FORMULA_CHANGED
from fairmfu.metrics.core.run_table import METRICS
from fairmfu.metrics.formula.accelerators import Accelerator
from fairmfu.metrics.pipeline import metrics_cache as keeping
from fairmfu.metrics.pipeline import partitions
from fairmfu.metrics.pipeline.analysis import Analysis, analyse
from fairmfu.metrics.pipeline.incremental import RescoredRuns, rescore
from fairmfu.metrics.pipeline.metrics_cache import (
    KEPT_SCHEMA,
    columns_hash,
    finish_metrics,
    outdated_rows,
    peaks_hash,
    program_version,
)
from fairmfu.metrics.pipeline.partitions import rescore_by_partition
from fairmfu.reports import compare, explain
from fairmfu.reports.store import metrics_store
from sample_logs.make_synthetic import WRITERS, ImaginaryRun
from tests.support import old_store
from tests.support.effort import THOROUGH
from tests.support.folders import ROOT
from tests.tools.corpus import CORPUS, GENERATED

SAMPLES = ROOT / "sample_logs"
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
    kept: pl.DataFrame = field(default_factory=KEPT_SCHEMA.to_frame)
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
        self.kept = found.replace_in(self.kept)
        assert found.analysis is not None
        return found.analysis

    def night_by_partition(self, changed: Iterable[str]) -> RescoredRuns:
        """The same, each partition by itself."""
        runs = self.tables()["runs"]
        found = rescore_by_partition(runs, self.kept, set(changed), self.load)
        self.kept = found.replace_in(self.kept)
        return found

    def put(self, *sources: Source) -> list[str]:
        for source in sources:
            self.sources[source["runs"][0]["sha256"]] = source
        return [one for source in sources for one in ids(source)]

    def holds(self) -> None:
        """THE LAW."""
        together = analyse(self.tables()).metrics
        assert_frame_equal(finish_metrics(self.kept), together, check_exact=True)


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
    digits = int(random.choice([1, 4, 4, 10]))
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
    path["reading"] = len(READING_CHANGES)
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


@pytest.mark.parametrize("seed", range(32 if THOROUGH else 2))
def test_what_is_kept_is_what_all_runs_at_once_give(seed: int) -> None:
    world = World()
    for night, changed in enumerate(
        nights(seed, world, 12 if THOROUGH else 7, chains=(0.4, 0.8)[seed % 2])
    ):
        world.night(changed)
        if THOROUGH or night % 3 == 0:
            world.holds()
    world.holds()
    assert world.kept.height


@pytest.mark.parametrize("seed", range(32 if THOROUGH else 1))
def test_partitions_give_what_all_runs_at_once_give(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "MAX_PARTITION_RUNS", (2, 1, 3)[seed % 3])
    monkeypatch.setattr(partitions, "MAX_LATER_LAUNCHES", 3)
    world = World()
    apart = 0
    count = 14 if THOROUGH else 9
    for night, changed in enumerate(nights(100 + seed, world, count, chains=(0.4, 0.8)[seed % 2])):
        apart += world.night_by_partition(changed).analysis is None
        if THOROUGH or night % 3 == 0:
            world.holds()
    world.holds()
    assert apart


# -- logs ----------------------------------------------------------------------------------


def logs(folder: Path, largest: int, every: int) -> list[Source]:
    """The smaller of each n-th file of a folder; a run that two of them hold comes once."""
    found, seen = [], set()
    for path in sorted(folder.rglob("*"))[:: 1 if THOROUGH else every]:
        if not path.is_file() or path.stat().st_size > largest:
            continue
        try:
            source = {name: frame.to_dicts() for name, frame in read_log_tables(path).items()}
        except FairmfuError:
            continue
        if seen.isdisjoint(ids(source)):
            seen |= set(ids(source))
            found.append(source)
    return found


@pytest.mark.parametrize(
    ("folder", "largest", "every"),
    [(SAMPLES, 10**6 if THOROUGH else 50_000, 3), (CORPUS, 30_000, 3), (GENERATED, 20_000, 1)],
    ids=["samples", "public", "generated"],
)
def test_logs_in_any_order_are_kept_as_all_at_once(folder: Path, largest: int, every: int) -> None:
    """Of public and sample logs each third file; `make thorough`: all."""
    if not folder.is_dir():
        pytest.skip(f"NO LOGS in {folder}: set FAIRMFU_CORPUS and FAIRMFU_GENERATED")
    coming = logs(folder, largest, every)
    np.random.default_rng(1).shuffle(coming)  # type: ignore[arg-type]
    world = World()
    for batch in np.array_split(np.arange(len(coming)), 5 if THOROUGH else 3):
        world.night(world.put(*(coming[i] for i in batch)))
    world.holds()
    assert finish_metrics(world.kept).height >= 10
    if folder == GENERATED:
        united = world.kept.filter(pl.col("run_id") != pl.col("lead"))
        assert united.height > 20


# -- cost ----------------------------------------------------------------------------------

GIVEN = {"gpus": "2", "seq_len": "128", "global_batch_size": "8", "packed": "true"}


def launch(name: str, first: int, last: int, start: datetime) -> Source:
    """A file of one launch, with losses that any such launch has and times of its own."""
    random = np.random.default_rng(crc32(name.encode()))
    pace = 2 + 0.1 * random.standard_normal(last + 1)
    rows = [
        {"step": i, "loss": 8 / i, "elapsed_s": round(float(pace[i]), 4)}
        | {"logged_at": start + timedelta(seconds=2 * (i - first + 1))}
        for i in range(first, last + 1)
    ]
    made = source(random, name, "console", rows, started_at=start)
    made["runs"][0]["name"] = name
    made["steps"] = [{"run_id": name, "line": 10 + i, **row} for i, row in enumerate(rows)]
    made["facts"] = [
        {"run_id": name, "name": n, "value": v, "origin": "log:1", "line": 1, "sequence": i}
        for i, (n, v) in enumerate((GIVEN | {"model": "llama3-8b"}).items())
    ]
    return made


def day(number: int, runs: int, steps: int) -> list[Source]:
    start = START + timedelta(days=number)
    return [launch(f"{number:03}-{i}", 1, steps, start + timedelta(hours=i)) for i in range(runs)]


def history(days: int, runs: int) -> World:
    """So many days of so many dated runs; only those of the first were scored, others are alike."""
    world = World()
    world.night(world.put(*day(0, runs, 6)))
    later = []
    for number in range(1, days):
        world.put(*day(number, runs, 6))
        ago = timedelta(days=number)
        name = pl.col("run_id").str.replace("000", f"{number:03}")
        course = pl.col("course").struct.with_fields(
            run_id=pl.field("run_id").str.replace("000", f"{number:03}"),
            sha256=pl.field("sha256").str.replace("000", f"{number:03}"),
            first_stamp=pl.field("first_stamp") + ago,
            last_stamp=pl.field("last_stamp") + ago,
        )
        about = {"run_id": name, "lead": name, "name": name, "members": pl.concat_list(name)}
        at = pl.col("started_at") + ago
        later.append(world.kept.with_columns(**about, started_at=at, course=course))
    world.kept = pl.concat([world.kept, *later])
    return world


def test_of_a_long_history_only_the_days_beside_a_new_run_are_read() -> None:
    world = history(80, 5)
    assert world.kept.height == 400
    new = world.put(*day(80, 5, 6))
    world.night(new)
    assert sorted(world.asked) == new  # no last step is one of another run
    broken_off = world.put(*day(81, 5, 4))
    world.night(broken_off)
    assert sorted(world.asked) == [*new, *broken_off]  # of the day before, not of those before it
    assert finish_metrics(world.kept).height == 410


def undated(made: Source) -> Source:
    steps = [{k: v for k, v in row.items() if k != "logged_at"} for row in made["steps"]]
    return made | {"steps": steps, "runs": [{**made["runs"][0], "started_at": None}]}


def test_of_undated_runs_those_are_read_that_may_be_the_same_launch() -> None:
    world = World()
    world.night(world.put(*(undated(launch(f"old{i}", 1, 5, START)) for i in range(30))))
    twin = undated(launch("old7", 1, 5, START))
    twin = {
        table: [{**row, "run_id": "twin"} if "run_id" in row else row for row in rows]
        for table, rows in twin.items()
    }
    twin["runs"] = [{**twin["runs"][0], "sha256": "other", "name": "twin", "log_format": "x"}]
    twin["sources"] = [{**twin["sources"][0], "sha256": "other"}]
    world.night(world.put(twin))
    assert set(world.asked) == {"twin", "old7"}
    assert finish_metrics(world.kept).height == 30
    world.holds()


def test_a_chain_that_grows_by_a_launch_a_night() -> None:
    world = World()
    nights = 9 if THOROUGH else 5
    last = f"n{nights - 1}"
    for night in range(nights):
        start = START + timedelta(days=night)
        world.night(world.put(launch(f"n{night}", 40 * night + 1, 40 * night + 50, start)))
        if THOROUGH or night % 4 == 0:
            world.holds()
    rows = {row["run_id"]: row for row in finish_metrics(world.kept).iter_rows(named=True)}
    assert rows[last]["goodput_launches"] == nights
    assert rows[last]["continues"] == f"n{nights - 2}"
    assert rows[f"n{nights - 2}"]["repeated_steps"] == 10
    del world.sources["hash of n2"]
    world.night([])
    world.holds()
    rows = {row["run_id"]: row for row in finish_metrics(world.kept).iter_rows(named=True)}
    assert rows[last]["goodput_launches"] == nights - 3
    assert rows["n1"]["repeated_steps"] == 0


def test_many_that_go_on_from_one_checkpoint_do_not_load_each_other() -> None:
    world = World()
    world.night(world.put(launch("base", 1, 50, START)))
    for night in range(1, 9 if THOROUGH else 4):
        start = START + timedelta(days=2 * night)
        world.night(world.put(launch(f"n{night}", 43 if night == 2 else 44, 60, start)))
        assert {"base"} < set(world.asked) <= {"base", "n2", f"n{night}"}
    world.holds()
    (base,) = finish_metrics(world.kept).filter(run_id="base").iter_rows(named=True)
    assert base["repeated_steps"] == 8


def test_a_restart_reads_the_launches_that_ended_last() -> None:
    world = World()
    starts = [START + timedelta(days=i) for i in range(20)]
    world.night(world.put(*(launch(f"old{i:02}", 1, 50, at) for i, at in enumerate(starts))))
    world.night(world.put(launch("again", 41, 90, START + timedelta(days=70))))
    assert set(world.asked) == {"again", "old19", "old18", "old17", "old16"}
    (row,) = finish_metrics(world.kept).filter(run_id="again").iter_rows(named=True)
    assert row["continues"] == "old19"
    world.holds()


def test_a_restart_looks_further_back_where_losses_are_off() -> None:
    world = World()
    off = []
    for night in range(22):
        made = launch(f"old{night:02}", 1, 50, START + timedelta(days=night))
        if night != 3:
            made["steps"] = [{**row, "loss": row["loss"] + 5} for row in made["steps"]]
        off.append(made)
    world.night(world.put(*off))
    world.night(world.put(launch("again", 41, 90, START + timedelta(days=70))))
    (row,) = finish_metrics(world.kept).filter(run_id="again").iter_rows(named=True)
    assert row["continues"] == "old03"
    world.holds()


def in_file_of(first: Source, later: Source) -> Source:
    """The file of a launch, with a second launch below it."""
    sha256 = first["runs"][0]["sha256"]
    run = {**later["runs"][0], "sha256": sha256, "launch": 2, "first_line": 501, "last_line": 999}
    return first | {
        "runs": [*first["runs"], run],
        "steps": [*first["steps"], *later["steps"]],
        "facts": [*first["facts"], *later["facts"]],
    }


def test_a_restart_reads_the_sources_of_the_launches_in_the_file_before() -> None:
    """The second launch of the file starts again, so it does not continue the first one."""
    first = launch("first", 1, 20, START)
    copy = launch("copy", 1, 20, START)
    copy["steps"] = [{**row, "run_id": "copy"} for row in first["steps"]]
    second = launch("second", 1, 50, START + timedelta(days=1))
    world = World()
    world.night(world.put(in_file_of(first, second), copy))
    world.night(world.put(launch("again", 41, 90, START + timedelta(days=2))))
    assert set(world.asked) == {"again", "second", "first", "copy"}
    rows = {row["run_id"]: row for row in finish_metrics(world.kept).iter_rows(named=True)}
    assert rows["again"]["continues"] == "second"
    assert rows["second"]["continues"] is None
    assert sorted(rows) == ["again", "copy", "second"]
    world.holds()


# -- what else changes a row ---------------------------------------------------------------


def test_a_warning_beside_an_earlier_run_comes_and_goes_with_it(tmp_path: Path) -> None:
    def log(name: str, day: int, times: float) -> Source:
        run = ImaginaryRun(step_s=[9.6] + [1.28] * 39, started=START + timedelta(days=day))
        text = "\n".join(WRITERS["torchtitan"](run)) + "\n"
        path = tmp_path / f"{name}.log"
        tflops = re.compile(r"(tflops: )([\d.,]+)")
        path.write_text(
            tflops.sub(lambda m: f"{m[1]}{times * float(m[2].replace(',', '')):.2f}", text),
            encoding="utf-8",
        )
        return {table: frame.to_dicts() for table, frame in read_log_tables(path).items()}

    def told() -> list[bool]:
        kinds = finish_metrics(world.kept).sort("started_at")["warning_kinds"]
        return [FORMULA_CHANGED.identifier in each for each in kinds]

    world = World()
    world.night(world.put(log("later", 9, 1.5)))
    assert told() == [False]
    world.night(world.put(log("first", 0, 1.0)))
    world.holds()
    assert told() == [False, True]
    assert FORMULA_CHANGED.identifier not in world.kept["warning_kinds"].explode().to_list()
    world.sources.popitem()
    world.night([])
    assert told() == [False]
    world.holds()


def test_nothing_new_costs_nothing() -> None:
    world = World()
    world.night(world.put(launch("a", 1, 20, START), launch("b", 1, 20, START)))
    before = world.kept
    analysis = world.night([])
    assert world.asked == []
    assert analysis.metrics.height == 0
    assert_frame_equal(world.kept, before)


def test_rows_that_another_layout_kept_are_computed_anew() -> None:
    world = World()
    names = world.put(launch("a", 1, 20, START), launch("b", 1, 20, START))
    world.night(names)
    world.kept = world.kept.drop("ends", "course", "mfu")
    world.night([])
    assert sorted(world.asked) == names
    assert world.kept.schema == KEPT_SCHEMA
    world.holds()


def test_an_old_row_is_named_and_stays_until_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.night(world.put(launch("a", 1, 20, START), launch("b", 1, 20, START)))
    assert outdated_rows(world.kept).height == 0
    other = Accelerator(
        name="X1", unit="GPU", peaks={"bf16": 1e15}, source="a sheet", confidence="high"
    )
    assert peaks_hash([other]) != peaks_hash()
    assert re.fullmatch("[0-9a-f]{8}", peaks_hash())
    (one, _) = outdated_rows(world.kept, [other]).iter_rows(named=True)
    assert one["run_id"] == "a"
    assert one["why"] == f"peaks {peaks_hash()}, now {peaks_hash([other])}"
    monkeypatch.setattr(keeping, "program_version", lambda: "9.9.9")
    why = outdated_rows(world.kept)["why"].to_list()
    assert why == [f"program {program_version()}, now 9.9.9"] * 2
    world.night(world.put(launch("c", 1, 20, START)))
    assert outdated_rows(world.kept)["run_id"].to_list() == ["a", "b"]
    world.night(outdated_rows(world.kept)["run_id"])
    assert outdated_rows(world.kept).height == 0


def test_metrics_of_before_a_column_came_are_named_and_computed_anew(tmp_path: Path) -> None:
    """A genuine store: a program of the same version kept it, which knew fewer columns."""
    store = Store(old_store.genuine(tmp_path / "old"))
    kept = metrics_store.update_metrics(store).kept
    titan = kept.filter(pl.col("mfu") > 0).row(0, named=True)
    assert titan["mfu_bf16"] is titan["peak_source"] is None
    assert titan["program"] == program_version()
    peaks = f"peaks {titan['peaks']}, now {peaks_hash()}"
    why = f"{peaks}; columns unknown, now {columns_hash()}"
    assert dict(outdated_rows(kept).select("run_id", "why").iter_rows()) == {titan["run_id"]: why}
    shown = metrics_store.current_metrics(store).filter(run_id=titan["run_id"]).row(0, named=True)
    assert shown["mfu_bf16"] == shown["mfu"] == pytest.approx(titan["mfu"])
    assert shown["peak_source"].startswith("NVIDIA H100 SXM: dense bf16 989.4 TFLOP/s")
    assert metrics_store.rescore_all(store, ()) == 2  # facts of the other one are newer
    kept = metrics_store.update_metrics(store).kept
    assert outdated_rows(kept).is_empty()
    assert kept.filter(run_id=titan["run_id"])["mfu_bf16"].item() == pytest.approx(titan["mfu"])


def test_steps_of_before_a_column_came_say_nothing_of_it(tmp_path: Path) -> None:
    store = Store(old_store.genuine(tmp_path / "old"))
    before = store.table("steps")
    assert before.height
    assert before["consumed_non_padding"].is_null().all()
    log = tmp_path / "run.log"
    line = "{{'loss': 2.5, 'num_tokens': {}, 'mean_token_accuracy': 0.5, 'epoch': 0.1}}\n"
    log.write_text("".join(line.format(800.0 * n) for n in (1, 2)))
    ingest_logs(store, log)
    assert store.table("steps")["consumed_non_padding"].drop_nulls().to_list() == [800, 1600]


def test_a_program_with_other_columns_has_another_id(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.night(world.put(launch("a", 1, 20, START)))
    before = columns_hash()
    assert re.fullmatch("[0-9a-f]{8}", before)
    columns_hash.cache_clear()
    monkeypatch.setattr(keeping, "KEPT_SCHEMA", pl.Schema({**KEPT_SCHEMA, "new": pl.Float64()}))
    assert outdated_rows(world.kept)["why"].to_list() == [f"columns {before}, now {columns_hash()}"]
    columns_hash.cache_clear()


def test_a_united_run_is_kept_as_a_stub() -> None:
    world = World()
    one = launch("one", 1, 20, START)
    two = launch("two", 1, 20, START)
    two["steps"] = [{**row, "run_id": "two"} for row in one["steps"]]
    world.night(world.put(one))
    world.night(world.put(two))
    rows = {row["run_id"]: row for row in world.kept.iter_rows(named=True)}
    assert rows["one"]["members"] == ["one", "two"]
    stub = {name for name, value in rows["two"].items() if value is not None}
    assert stub == {"run_id", "lead", "ends"}
    assert rows["two"]["lead"] == "one"
    assert finish_metrics(world.kept).columns == METRICS.names()
    assert finish_metrics(world.kept).height == 1
    del world.sources["hash of one"]
    world.night([])
    assert finish_metrics(world.kept)["run_id"].to_list() == ["two"]
    world.holds()


# -- what is kept by looking ---------------------------------------------------------------

LOG = SAMPLES / "synthetic" / "torchtitan"


@pytest.fixture
def just_read(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    assert [one.status for one in ingest_paths([LOG], store)] == ["read"]
    return store


def contents(store: Store) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in store.path.rglob("*") if p.is_file()}


def test_runs_that_were_looked_at_are_computed_once(just_read: Store) -> None:
    assert just_read.outdated_runs()[0] != []
    shown = metrics_store.current_metrics(just_read)
    assert just_read.outdated_runs()[0] == []
    assert metrics_store.update_metrics(just_read).rescored is None
    before = contents(just_read)
    assert_frame_equal(metrics_store.current_metrics(just_read), shown, check_exact=True)
    assert_frame_equal(shown, analyse(just_read.tables()).metrics, check_exact=True)
    assert contents(just_read) == before


def test_who_looks_does_not_wait_for_a_writer(just_read: Store) -> None:
    says: list[str] = []
    store = Store(just_read.path, patience_s=60, notify=says.append)
    with lock.hold_lock(store.path):
        before = contents(store)
        began = time.monotonic()
        shown = metrics_store.current_metrics(store)
        assert time.monotonic() - began < 30
        assert contents(store) == before
    assert says == []
    assert store.outdated_runs()[0] == shown["run_id"].to_list()


def test_a_store_that_cannot_be_written_to_is_looked_at(
    just_read: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(lock, "_opened", refused)
    before = contents(just_read)
    assert metrics_store.current_metrics(just_read).height == 1
    assert contents(just_read) == before


def test_looking_does_not_mix_what_is_kept_by_other_peaks(just_read: Store) -> None:
    """A night tells of kept rows as they are: its own are not to be by another's peaks."""
    metrics_store.current_metrics(just_read)
    assert ingest_paths([SAMPLES / "synthetic" / "xtuner"], just_read) != []
    before = contents(just_read)
    other = Accelerator(
        name="X1", unit="GPU", peaks={"bf16": 1e15}, source="a sheet", confidence="high"
    )
    assert metrics_store.current_metrics(just_read, [other]).height == 2
    assert contents(just_read) == before
    assert metrics_store.current_metrics(just_read).height == 2
    assert just_read.outdated_runs()[0] == []
    assert set(metrics_store.update_metrics(just_read).kept["peaks"]) == {peaks_hash()}


# -- chosen runs ---------------------------------------------------------------------------


def test_chosen_runs_are_explained_and_compared_as_if_all_were_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_store, "MIN_RUNS_TO_CHOOSE", 1)
    store = Store(tmp_path)
    ingest_logs(store, SAMPLES / "synthetic")
    whole = analyse(store.tables())
    metrics_store.current_metrics(store)
    ids = whole.metrics["run_id"].to_list()
    for chosen in ids[: 4 if THOROUGH else 2]:
        some = metrics_store.analysis_of_chosen(store, is_one_of(chosen))
        assert_frame_equal(some.metrics, whole.metrics, check_exact=True)
        assert some.windows["run_id"].n_unique() < whole.windows["run_id"].n_unique()
        assert explain(some, chosen, output="json") == explain(whole, chosen, output="json")
    pair = ids[:2]
    some = metrics_store.analysis_of_chosen(store, is_one_of(*pair))
    assert_frame_equal(compare(some, *pair).table, compare(whole, *pair).table, check_exact=True)


def is_one_of(*run_ids: str) -> Callable[[pl.DataFrame], pl.DataFrame]:
    return lambda metrics: metrics.filter(pl.col("run_id").is_in(run_ids))
