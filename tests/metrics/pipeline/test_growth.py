"""No step of the analysis grows faster than its work: calls are counted, not seconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from cProfile import Profile
from datetime import timedelta
from functools import cache, partial
from math import log2
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from fairmfu.ingest.pipeline.api import read_logs
from fairmfu.metrics.compare.comparability import rank_runs
from fairmfu.metrics.compare.repeated_runs import first_launches
from fairmfu.metrics.core.run_table import METRICS, metrics_rows
from fairmfu.metrics.pipeline import analysis, partitions
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.pipeline.measured_runs import MeasuredRuns
from fairmfu.metrics.pipeline.metrics_cache import KEPT_SCHEMA
from fairmfu.metrics.pipeline.partitions import rescore_by_partition
from sample_logs.make_synthetic import ImaginaryRun, deepspeed, torchtitan
from tests.support.effort import THOROUGH

Tables = Mapping[str, pl.DataFrame]
SIZES = (250, 500, 1_000) if THOROUGH else (24, 48, 96)
"""Launches or files; of events a hundred times as many."""
SIZES_BY_PARTITION = SIZES if THOROUGH else (12, 24, 48)
"""Each run is analysed more than once."""
PARTITIONS = 4 if THOROUGH else 2
ALLOWED = 1.15
BATCHES = 0.1
"""Calls that may be more than n log n says, and a share of the first: work comes in batches."""


def calls_of(work: Callable[[], object]) -> int:
    """Count the calls of Python and built-in functions."""
    profile = Profile()
    profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats())


def grows_as_its_work(counts: Sequence[int], sizes: Sequence[int] = SIZES) -> bool:
    """Return whether calls grow from 2x to 4x no faster than n log n.

    Compared with those of the first doubling, so that what is done once does not hide growth.
    """
    one, two, four = (n * log2(n) for n in sizes)
    expected = (four - two) / (two - one)
    first, second = counts[1] - counts[0], counts[2] - counts[1]
    return second <= ALLOWED * expected * max(first, 0) + BATCHES * counts[0]


# -- hostile shapes --------------------------------------------------------------------------


def imaginary(seed: int = 1, **more: Any) -> ImaginaryRun:
    pace = np.random.default_rng(seed).normal(2, 0.1, 40)
    return ImaginaryRun(step_s=tuple(pace.tolist()), **more)


def restarts(count: int, folder: Path) -> None:
    """One log of launches, each of which continues the one before."""
    run, lines = imaginary(), list[str]()
    for launch in range(count):
        began = run.started + timedelta(minutes=2 * launch)
        later = imaginary(started=began)
        for line in torchtitan(later):
            text = line.replace("starts at step 1", f"starts at step {1 + 20 * launch}")
            head, found, rest = text.partition(" step: ")
            if found:
                step, _, figures = rest.strip().partition(" ")
                text = f"{head} step: {int(step) + 20 * launch}  {figures.strip()}"
            lines.append(text)
    (folder / "restarts.log").write_text("\n".join(lines) + "\n")


def ranks(count: int, folder: Path) -> None:
    """A log of each rank of one job."""
    lines = list(torchtitan(imaginary(gpus=count)))
    for rank in range(count):
        text = "\n".join(lines).replace("[rank0]", f"[rank{rank}]")
        (folder / f"rank{rank:04}.log").write_text(f"{text}\n")


def strangers(count: int, folder: Path) -> None:
    """Logs of launches that began in the same second, each with losses of its own."""
    for number in range(count):
        text = "\n".join(torchtitan(imaginary(number)))
        for loss in {part.split()[0] for part in text.split("loss: ")[1:]}:
            text = text.replace(f"loss: {loss}", f"loss: {float(loss) + number / 100:.5f}")
            text = text.replace(f"loss:  {loss}", f"loss: {float(loss) + number / 100:.5f}")
        (folder / f"run{number:04}.log").write_text(f"{text}\n")


def repeats(count: int, folder: Path) -> None:
    """Logs of launches that began in the same second, with equal losses and times of their own."""
    for number in range(count):
        text = "\n".join(torchtitan(imaginary(number)))
        (folder / f"run{number:04}.log").write_text(f"{text}\n")


def without_losses(count: int, folder: Path) -> None:
    """Logs of the same second that print no loss."""
    for number in range(count):
        text = "\n".join(deepspeed(imaginary(number)))
        (folder / f"run{number:04}.log").write_text(f"{text}\n")


def saves(count: int, folder: Path) -> None:
    """One log with a hundred checkpoints for each of `count`."""
    *lines, last = torchtitan(imaginary())
    head = last.partition("Training")[0]
    saved = f"{head}Finished saving the checkpoint at step 40 in 1.21 seconds"
    (folder / "saves.log").write_text("\n".join([*lines, *[saved] * (100 * count), last]) + "\n")


Shape = Callable[[int, Path], None]
SHAPES: tuple[Shape, ...] = (restarts, ranks, strangers, repeats, without_losses, saves)
SAME_IN_PART: tuple[Shape, ...] = (restarts, strangers, repeats, without_losses)
"""Shapes of which the first runs are the same shape at another size."""
ALIKE_BY_PARTITION: tuple[Shape, ...] = () if THOROUGH else (strangers, without_losses)
"""Logs of one second: `repeats` are the costliest of them, the others are for `make thorough`."""
TablesAt = Callable[[int], Tables]


@pytest.fixture(scope="module", params=SHAPES, ids=lambda shape: shape.__name__)
def grown(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TablesAt:
    """The tables of a shape at each size."""
    shape = request.param
    of_shape = cache(partial(shape_of, shape, folders=tmp_path_factory))
    if shape in SAME_IN_PART:
        whole = of_shape(SIZES[-1])
        runs = whole["runs"].sort("first_line", "name")["run_id"].to_list()
        of_shape = cache(lambda count: loading(whole)(runs[:count]))
    some = of_shape(SIZES[0])
    analyse(loading(some)(some["runs"]["run_id"][:2]))  # not counted: what is imported once
    return of_shape


def shape_of(shape: Shape, count: int, folders: pytest.TempPathFactory) -> Tables:
    """The tables of so many launches or files."""
    folder = folders.mktemp(f"{shape.__name__}{count}")
    shape(count, folder)
    return read_logs(folder)


# -- the law -------------------------------------------------------------------------------


STAGES = (
    "merged",
    "held_facts",
    "windows",
    "clocks",
    "rates",
    "resume_links",
    "chain_of_run",
    "ranks_of_run",
    "timer_readings",
    "slow_ranks",
    "printed_lines",
)
"""Properties of MeasuredRuns, each after those it needs."""


def calls_by_stage(tables: Tables, *, rest: bool) -> dict[str, int]:
    """Count the calls of each stage; rest: of the rest of the analysis as well."""
    measured = MeasuredRuns(tables)
    counts = {stage: calls_of(partial(getattr, measured, stage)) for stage in STAGES}
    if rest:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(analysis, "MeasuredRuns", lambda _: measured)
            counts["the rest"] = calls_of(lambda: analyse(tables))
    return counts


def test_no_stage_grows_faster_than_its_work(
    grown: TablesAt, request: pytest.FixtureRequest
) -> None:
    """The rest of the analysis, too, where no other shape has it counted by partition below."""
    rest = THOROUGH or request.node.callspec.params["grown"] is without_losses
    by_size = [calls_by_stage(grown(size), rest=rest) for size in SIZES]
    counts = {stage: [calls[stage] for calls in by_size] for stage in by_size[0]}
    assert {stage: some for stage, some in counts.items() if not grows_as_its_work(some)} == {}


@pytest.mark.parametrize(
    "grown",
    [shape for shape in SHAPES if shape not in ALIKE_BY_PARTITION],
    indirect=True,
    scope="module",
    ids=lambda shape: shape.__name__,
)
def test_rescoring_by_partition_grows_as_its_work(
    grown: TablesAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    for size in SIZES_BY_PARTITION:
        monkeypatch.setattr(partitions, "MAX_PARTITION_RUNS", -(-size // PARTITIONS))
        tables = grown(size)
        runs = tables["runs"].sort("name")
        work = partial(rescore_by_partition, runs, KEPT_SCHEMA.to_frame(), (), loading(tables))
        counts.append(calls_of(work))
    assert grows_as_its_work(counts, SIZES_BY_PARTITION), counts


def loading(tables: Tables) -> Callable[[Sequence[str]], dict[str, pl.DataFrame]]:
    def load(run_ids: Sequence[str]) -> dict[str, pl.DataFrame]:
        runs = tables["runs"].filter(pl.col("run_id").is_in(list(run_ids)))
        files = runs["sha256"].implode()
        return {
            name: table.filter(
                pl.col("run_id").is_in(list(run_ids))
                if "run_id" in table.columns
                else pl.col("sha256").is_in(files)
            )
            for name, table in tables.items()
        }

    return load


def test_first_launches_of_a_long_chain_are_found_in_one_pass() -> None:
    counts = []
    for size in SIZES:
        rows = pl.DataFrame(
            [
                {"run_id": str(i), "continues": str(i - 1) if i else None}
                for i in reversed(range(size))
            ]
        )
        whole = metrics_rows(rows.match_to_schema(METRICS, missing_columns="insert"))
        counts.append(calls_of(partial(first_launches, whole)))
        assert set(first_launches(whole).values()) == {"0"}
    assert grows_as_its_work(counts), counts


def test_ranking_many_unlike_runs_grows_as_its_work() -> None:
    counts = []
    for size in (10 * n for n in SIZES):
        rows = [
            UNLIKE | {"run_id": str(i), "name": str(i), "seq_len": 128 * i, "flops_per_token": 1e9}
            for i in range(1, size + 1)
        ]
        calls, ranked = ranking(rows)
        assert ranked["group"].n_unique() == size
        counts.append(calls)
    assert grows_as_its_work(counts), counts


def test_ranking_repeats_of_two_setups_grows_as_its_work() -> None:
    counts = []
    for size in (10 * n for n in SIZES):
        rows = [
            UNLIKE
            | {"run_id": str(i), "name": str(i), "seq_len": 4096, "flops_per_token": 1e9}
            | {"gpus": 8 + 8 * (i % 2), "tgs": 6000.0 + i, "tgs_low": 5900.0, "tgs_high": 7000.0}
            | dict.fromkeys(("recompute", "framework_version"), "full")
            | {"tokens_per_gpu_step": 4096.0}
            for i in range(size)
        ]
        calls, ranked = ranking(rows)
        assert ranked["repeats"].unique().to_list() == [size // 2]
        counts.append(calls)
    assert grows_as_its_work(counts), counts


def ranking(rows: Sequence[dict[str, Any]]) -> tuple[int, pl.DataFrame]:
    """Rank runs that have the named columns alone; return the calls as well."""
    given = pl.Schema({name: METRICS[name] for name in rows[0]})
    frame = pl.DataFrame(rows, schema=given).match_to_schema(METRICS, missing_columns="insert")
    ranked: list[pl.DataFrame] = []
    return calls_of(lambda: ranked.append(rank_runs(frame))), ranked[0]


UNLIKE: dict[str, Any] = {
    "framework": "torchtitan",
    "model": "llama-3-8b",
    "work": "layers of llama",
    "precision": "bf16",
    "trained": "full",
    "device": "NVIDIA H100 SXM",
    "token_basis": "packed",
    "attention_pattern": "causal",
    "synthetic": False,
    "tgs": 6000.0,
    "warnings": [],
    "missing": [],
}


def test_a_quadratic_count_is_noticed() -> None:
    assert grows_as_its_work([1_000 + n * 100 for n in SIZES])
    assert not grows_as_its_work([1_000 + n * 100 + n * n for n in SIZES])
