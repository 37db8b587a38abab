"""Rates in samples per second give end-to-end rates in tokens, or none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.metrics.pipeline.analysis import analyse
from tests.support.effort import costly


def engine_log(samples: int, step_s: list[float]) -> str:
    """DeepSpeed's engine and its timer, one line each a step; no line says the batch."""
    lines, now = [], 9 * 3600.0
    for step, seconds in enumerate(step_s, start=1):
        now += seconds
        stamp = f"2025-06-02 {int(now // 3600):02}:{int(now // 60 % 60):02}:{int(now % 60):02}"
        stamp += f",{int(now % 1 * 1000):03}"
        head = f"[{stamp}] [INFO] "
        rate = f"{samples / seconds:.13f}"
        lines += [
            f"{head}[logging.py:107:log_dist] [Rank 0] step={step}, skipped=0, lr=[1e-05], "
            "mom=[(0.9, 0.95)]",
            f"{head}[timer.py:264:stop] epoch=0/micro_step={step}/global_step={step}, "
            f"RunningAvgSamplesPerSec={rate}, CurrSamplesPerSec={rate}, MemAllocated=20.15GB, "
            "MaxMemAllocated=62.35GB",
        ]
    return "\n".join(lines) + "\n"


def metrics_of(text: str, folder: Path, *given_facts: str) -> dict[str, object]:
    """Metrics of the one run of a log."""
    (folder / "run.log").write_text(text)
    tables = read_log_tables(folder / "run.log", flag_facts=facts_from_flags(given_facts))
    (row,) = analyse(tables).metrics.to_dicts()
    return row


@costly
@given(
    samples=st.integers(1, 4096),
    gpus=st.sampled_from([1, 4, 8, 96]),
    length=st.sampled_from([512, 1000, 4096, 131_072]),
    mean_s=st.floats(2.0, 40.0),
)
def test_end_to_end_of_a_sample_rate_is_in_tokens(
    samples: int, gpus: int, length: int, mean_s: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    times = [mean_s * (1 + 0.01 * (place % 3 - 1)) for place in range(18)]
    text, folder = engine_log(samples, times), tmp_path_factory.mktemp("log")
    row = metrics_of(text, folder, f"gpus={gpus}", f"seq_len={length}")
    truth = samples * length / gpus / float(np.mean(times[1:]))
    assert row["tgs"] == pytest.approx(truth, rel=0.01)
    assert row["tgs_end_to_end"] == pytest.approx(truth, rel=0.01)
    lost = sum(each["seconds"] for each in row["time_lost"] or [])  # type: ignore[attr-defined]
    assert lost < 0.5 * mean_s, "steps of even length lose no time"


def test_without_a_length_there_is_no_rate(tmp_path: Path) -> None:
    row = metrics_of(engine_log(64, [3.0] * 12), tmp_path, "gpus=8")
    assert row["tgs"] is None
    assert row["tgs_end_to_end"] is None


def test_a_printed_time_counts_the_batch_of_a_rate_that_leaves_time_out(tmp_path: Path) -> None:
    lines = []
    for step in range(1, 21):  # 4 s each, of which the line times 3.2
        at = f"09:{step * 4 // 60:02}:{step * 4 % 60:02}"
        lines += [
            f"[2025-06-02 {at},500] [INFO] [logging.py:107:log_dist] [Rank 0] step={step}, "
            "skipped=0, lr=[1e-06], mom=[0.0]",
            f"steps: {step} loss: 1.9900 iter time (s): 3.200 samples/sec: 20.000",
        ]
    row = metrics_of("\n".join(lines) + "\n", tmp_path, "gpus=8", "seq_len=1024")
    assert row["tgs_end_to_end"] == pytest.approx(64 * 1024 / 8 / 4, rel=0.02)
