"""One step line quoted from the middle of a log gives the rate of its interval, unranked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.throughput import messages
from fairmfu.metrics.throughput.windows import MAX_FIRST_LINE_STEP
from tests.support.effort import costly

HEADER = "[titan] 2026-06-01 09:00:00,000 - root - INFO - Training starts at step 1.\n"
LINE = (
    "[titan] 2026-06-01 09:{minute:02d}:00,000 - root - INFO - step: {step}  loss: 4.50000  "
    "grad_norm:  1.2000  memory: 44.21GiB(55.88%)  tps: 6,400  tflops: 370.65  mfu: 37.48%\n"
)
MEGATRON = (
    " iteration {step}/ 5000 | elapsed time per iteration (ms): 16000.0 | global batch size: 1024 |"
    " actual seqlen: 2048 | samples per second: 64.000 | tokens per gpu per second (tgs): 2048.000"
    " | lm loss: 2.5E+00 |\n"
)


def metrics(text: str, folder: Path) -> dict[str, Any]:
    log = folder / "run.log"
    log.write_text(text)
    return analyse(read_log_tables(log)).metrics.row(0, named=True)


@pytest.mark.parametrize(
    ("line", "tgs"), [(LINE.format(step=530, minute=5), 6400), (MEGATRON.format(step=1200), 2048)]
)
def test_a_line_from_the_middle_gives_its_rate_unranked(
    line: str, tgs: float, tmp_path: Path
) -> None:
    row = metrics(f"8x H100:\n{line}", tmp_path)

    assert row["tgs"] == tgs
    assert (row["tgs_low"], row["windows"]) == (None, 1)
    assert messages.QUOTED_LINE() in row["doubts"]
    assert "start-up" not in row["excluded_causes"]
    assert row["wall_s"] == pytest.approx(row["seconds_per_step"])


@pytest.mark.parametrize(
    "text",
    [
        LINE.format(step=1, minute=5),
        LINE.format(step=MAX_FIRST_LINE_STEP, minute=5),
        "Building device mesh with parallelism: dp_shard=4, cp=1, tp=1, ep=1\n"
        + LINE.format(step=530, minute=5),
        "Finished saving the checkpoint at step 530 in 1.2 seconds\n"
        + LINE.format(step=530, minute=5),
    ],
    ids=["first step", "a usual interval", "a header", "an event"],
)
def test_a_line_that_may_hold_start_up_gives_none(text: str, tmp_path: Path) -> None:
    row = metrics(text, tmp_path)

    assert row["tgs"] is None
    assert row["warnings"] == [messages.SINGLE_STEP()]


@costly
@given(st.integers(MAX_FIRST_LINE_STEP + 1, 10**6))
def test_a_second_line_takes_the_rate(step: int) -> None:
    """Then the first line may hold start-up, whatever its step."""
    import tempfile  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        lines = LINE.format(step=step, minute=5) + LINE.format(step=step + 10, minute=6)
        row = metrics(lines, Path(folder))
    assert row["windows"] == 1
    assert messages.QUOTED_LINE() not in row["doubts"]
