"""Two jobs that write one file without tags are no run of one; two nodes of one job are."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.metrics.audit.messages import RUNS_INTERLEAVED, STEPS_REPEATED
from fairmfu.metrics.core.messages import NOT_RANKED
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.throughput.messages import MIXED_WRITERS
from tests.support.folders import ROOT

SAMPLES = ROOT / "sample_logs/synthetic"
LOSS = {
    "torchtitan": r"(?<=loss: {2})\d\.\d+",
    "xtuner": r"(?<=loss: )\d+\.\d+",
    "xtuner-v1": r"(?<=loss: )\d+\.\d+",
    "megatron-deepspeed": r"(?<=lm loss: )\d\.\d+",
    "deepspeed": r"(?<=SamplesPerSec=)\d+\.\d+",
}
"""What tells two jobs apart: the engine prints no loss."""

NO_RATE = {MIXED_WRITERS.identifier}
INTERLEAVED = {STEPS_REPEATED.identifier, RUNS_INTERLEAVED.identifier}


def rows(name: str, twin: Callable[[str], str], folder: Path) -> pl.DataFrame:
    """Metrics of a sample whose step lines are each followed by that of another writer."""
    (log,) = (SAMPLES / name).glob("*.log")
    lines = []
    for line in log.read_text().splitlines():
        lines.append(line)
        if re.search(LOSS[name], line):
            lines.append(twin(line))
    folder.mkdir()
    (folder / "run.log").write_text("\n".join(lines) + "\n")
    given = ["gpus=8", "accelerator=NVIDIA H100 80GB HBM3", "seq_len=8192"]
    tables = read_log_tables(folder / "run.log", flag_facts=facts_from_flags(given))
    return analyse(tables).metrics


@pytest.mark.parametrize("name", LOSS)
def test_lines_of_two_jobs_are_ranked_only_where_they_are_copies(name: str, tmp_path: Path) -> None:
    def of_another_job(line: str) -> str:
        return re.sub(LOSS[name], lambda found: f"{0.97 * float(found[0]):.5f}", line)

    mixed = rows(name, of_another_job, tmp_path / "jobs")
    columns = ("tgs", "warnings", "warning_kinds")
    for rate, told, kinds in mixed.filter(pl.col("steps") > 1).select(columns).iter_rows():
        doubts = NO_RATE if rate is None else INTERLEAVED
        (said,) = [one for one, kind in zip(told, kinds, strict=True) if kind in doubts]
        assert said.startswith(NOT_RANKED)
    assert mixed.filter(pl.col("steps") > 1).height == 1
    nodes = rows(name, str, tmp_path / "nodes")
    alone = rows(name, lambda _: "", tmp_path / "alone")
    assert nodes["tgs"].to_list() == pytest.approx(alone["tgs"].to_list(), rel=1e-6)
    assert not [one for one in nodes["warnings"][0] if one.startswith(NOT_RANKED)]
