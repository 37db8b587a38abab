"""Step 3 of DeepSpeed-Chat: when it was launched, and what its times cover."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.metrics.pipeline.analysis import analyse

HYBRID = (
    "node1: |E2E latency=10.00s |Gather latency=1.50s (15.00%) |Generate time=5.00s (50.00%) "
    "|Training time=4.00s (40.00%) |Others=1.00 (10.00%)|CurSamplesPerSec=51.20 "
    "|AvgSamplesPerSec=51.20"
)
PLAIN = (
    "node1: End-to-End => Latency: 10.00s, TFLOPs: 4.12, Samples/sec: 51.20, Time/seq 0.02s, "
    "Batch Size: 512, Total Seq. Length: 512"
)
LOSSES = (
    "node1: epoch: 0|step: {step}|ppo_ep: 1|act_loss: 0.0329|cri_loss: 0.0208|unsuper_loss: 0.0"
)


def stamped(time: str, text: str) -> str:
    return f"node1: [2026-03-01 {time}] [INFO] {text}"


@pytest.mark.parametrize(("line", "leaves_out_data"), [(HYBRID, False), (PLAIN, True)])
def test_a_launch_of_step_3_begins_with_its_launcher(
    line: str, tmp_path: Path, *, leaves_out_data: bool
) -> None:
    """E2E latency is from the end of an iteration to the next; the other one is of its parts."""
    log = tmp_path / "step3.log"
    log.write_text(
        "\n".join(
            (
                stamped("08:00:00,000", "[runner.py:555:main] cmd = pdsh -S -f 1024 -w node1"),
                stamped("08:00:30,000", "[comm.py:616:init_distributed] cdb=None"),
                *(text for n in range(12) for text in (LOSSES.format(step=n), line)),
                stamped("08:05:00,000", "[launch.py:347:main] Process 7 exits successfully."),
            )
        )
        + "\n"
    )
    tables = read_log_tables(log)
    (run,) = tables["runs"].iter_rows(named=True)
    assert (run["log_format"], run["outcome"]) == ("deepspeed-chat-rlhf", "completed")
    assert run["started_at"] == datetime(2026, 3, 1, 8)
    assert run["elapsed_excludes_data"] is leaves_out_data
    (row,) = analyse(tables).metrics.iter_rows(named=True)
    assert row["wall_s"] == pytest.approx(300)
