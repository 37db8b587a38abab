"""Where one launch ends and the next begins, by the number of steps that its lines plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairmfu.ingest import read_logs


def launches(tmp_path: Path, *steps: tuple[int, int]) -> list[list[int]]:
    """The steps of each launch of an XTuner log, whose lines print a step and the last planned."""
    lines = [
        f"11/20 15:{32 + place:02}:33 - mmengine - INFO - Iter(train) [{step:3}/{total}]  lr: "
        f"1.0000e-04  eta: 0:00:02  time: 6.0  data_time: 0.0019  loss: {6 - place / 10:.4f}  "
        "tflops: 0.0338  tokens_per_sec: 5063.2"
        for place, (step, total) in enumerate(steps)
    ]
    log = tmp_path / "run.log"
    log.write_text("\n".join(lines) + "\n")
    tables = read_logs(log)
    by_run = tables["steps"].sort("line").group_by("run_id", maintain_order=True)
    return [group["step"].to_list() for _, group in by_run]


@pytest.mark.parametrize(
    ("total", "parts"),
    [
        (100, [[10, 20, 30, 40]]),
        (200, [[10, 20], [30, 40]]),  # another plan
        (40, [[10, 20], [30, 40]]),  # another plan, which the last line completes
        (3, [[10, 20, 30, 40]]),  # a step is beyond it: the number is damaged
    ],
)
def test_another_plan_is_another_launch(tmp_path: Path, total: int, parts: list[list[int]]) -> None:
    assert launches(tmp_path, (10, 100), (20, 100), (30, total), (40, total)) == parts


def test_a_plan_that_the_line_itself_completes_is_one(tmp_path: Path) -> None:
    assert launches(tmp_path, (10, 100), (20, 100), (30, 30)) == [[10, 20], [30]]
