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
    (lost,) = row["time_lost"]  # the first iteration takes as long as the others
    assert (lost["cause"], lost["seconds"]) == (
        "start-up and other time outside the steps",
        pytest.approx(180),
    )


def test_a_slow_first_step_is_no_start_up_where_the_start_is_stamped(tmp_path: Path) -> None:
    log = tmp_path / "log"
    steps = [rlhf(n) for n in range(20)]
    steps[0][0] = PLAIN.replace("10.00s, TFLOPs", "16.00s, TFLOPs")
    begin = stamped("08:00:00,000", "[runner.py:555:main] cmd = pdsh -S -f 1024 -w node1")
    end = stamped("08:10:00,000", "[launch.py:347:main] Process 7 exits successfully.")
    log.write_text("\n".join([begin, *(text for step in steps for text in step), end]) + "\n")
    (row,) = analyse(read_log_tables(log)).metrics.iter_rows(named=True)
    assert {lost["cause"]: round(lost["seconds"]) for lost in row["time_lost"]} == {
        "start-up and other time outside the steps": 394,
        "slow first step": 6,
    }


def rlhf(step: int, actor: str = "0.03", critic: str = "0.02", epoch: int = 0) -> list[str]:
    losses = f"act_loss: {actor}|cri_loss: {critic}|unsuper_loss: 0.0"
    return [PLAIN, f"epoch: {epoch}|step: {step}|ppo_ep: 1|{losses}"]


def ending(tmp_path: Path, *lines: str) -> dict[str, object]:
    log = tmp_path / "log"
    log.write_text("\n".join(lines) + "\n")
    (row,) = analyse(read_log_tables(log)).metrics.iter_rows(named=True)
    return {name: row[name] for name in ("outcome", "outcome_text", "last_step")}


@pytest.mark.parametrize(
    ("steps", "last"),
    [
        (rlhf(0) + rlhf(1) + rlhf(2), 3),
        (rlhf(40) + rlhf(41) + rlhf(42), 42),
        (rlhf(40) + rlhf(42) + rlhf(43), None),  # a line is missing
        (rlhf(9, epoch=1) + rlhf(10, epoch=1), None),  # after epochs of unknown length
        (rlhf(40) + rlhf(41) + rlhf(0, epoch=1), 42),
        ([PLAIN, PLAIN], None),
    ],
)
def test_an_excerpt_has_the_steps_that_it_prints(
    steps: list[str], last: int | None, tmp_path: Path
) -> None:
    assert ending(tmp_path, *steps)["last_step"] == last


@pytest.mark.parametrize(
    ("steps", "outcome", "text"),
    [
        (rlhf(7) + rlhf(8, "inf", "inf"), "nan_loss", "actor_loss is inf from step 8 on"),
        (rlhf(7) + rlhf(8, critic="-inf"), "nan_loss", "critic_loss is -inf from step 8 on"),
        (rlhf(6, "nan") + rlhf(7) + rlhf(8, "nan"), "nan_loss", "actor_loss is nan from step 8 on"),
        (rlhf(7, "nan") + rlhf(8), "incomplete", None),
    ],
)
def test_a_loss_of_any_name_that_is_not_finite_is_the_outcome(
    steps: list[str], outcome: str, text: str | None, tmp_path: Path
) -> None:
    end = ending(tmp_path, *steps)
    assert (end["outcome"], end["outcome_text"]) == (outcome, text)
