"""A start line after the end of a launch opens another launch, with steps or without."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.launches.start_watch import StartMark, StartWatch

PREFIX: Final = "[rank4]:[titan] 2026-05-04 06:0{minute}:00,000 - root - INFO - "
REPORT: Final = (
    "E0504 06:01:49.864000 246 torch/distributed/elastic/multiprocessing/api.py:986] failed "
    "(exitcode: 1) local_rank: 1 (pid: 246751) of binary: /venv/main/bin/python3\n"
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
)
ERROR: Final = "[rank4]:[rank4]: ValueError: keep at least 2 checkpoint replicas\n"
LAUNCHER: Final = (
    "W0504 06:02:11.683000 2476 torch/distributed/run.py:851] Setting OMP_NUM_THREADS environment "
    "variable for each process to be 1 in default, to avoid your system being overloaded\n"
)
DONE: Final = "[rank4]:[titan] 2026-05-04 06:09:00,000 - root - INFO - Training completed\n"


def header(minute: int, batch: int) -> str:
    """Lines of a start: of the mesh, and of the batch."""
    begin = PREFIX.format(minute=minute)
    return (
        f"{begin}Building device mesh with parallelism: pp=2, dp_shard=2, cp=1, tp=2\n"
        f"{begin}Trainer is initialized with local batch size {batch}, global batch size "
        f"{2 * batch}, gradient accumulation steps 1, sequence length 260, total steps 5000 "
        "(warmup 200)\n"
    )


def steps(minute: int, count: int = 3) -> str:
    """Step lines."""
    return "".join(
        f"[rank4]:[titan] 2026-05-04 06:0{minute}:{step:02},000 - root - INFO - step: {step:2}  "
        f"loss: {9 - step / 10:8.5f}  memory: 27.31GiB(87.10%)  tps: 300  tflops: 1.82  "
        "mfu: 0.58%\n"
        for step in range(1, count + 1)
    )


@pytest.fixture
def launches(tmp_path: Path):
    """Launches of a text: steps, batches, outcome and first line of each."""

    def read(text: str) -> list[tuple[int, list[str], str, int]]:
        log, by_path = tmp_path / "run.log", []
        log.write_text(text)
        for fast in (True, False):
            tables = read_log_tables(log, use_fast_path=fast)
            facts = tables["facts"].filter(name="micro_batch_size")
            by_path.append(
                [
                    (
                        tables["steps"].filter(run_id=run["run_id"]).height,
                        facts.filter(run_id=run["run_id"])["value"].to_list(),
                        run["outcome"],
                        run["first_line"],
                    )
                    for run in tables["runs"].to_dicts()
                ]
            )
        assert by_path[0] == by_path[1]
        return by_path[0]

    return read


Launches = Any


def test_launches_that_fail_before_a_step_are_launches_of_their_own(launches: Launches) -> None:
    text = header(1, 160) + ERROR + REPORT + header(2, 240) + REPORT + header(3, 200) + steps(4)
    assert launches(text) == [
        (0, ["160"], "crashed", 1),
        (0, ["240"], "crashed", 6),
        (3, ["200"], "incomplete", 10),
    ]


def test_a_launch_that_fails_between_two_trainings_is_its_own(launches: Launches) -> None:
    text = header(1, 160) + steps(2) + REPORT + header(3, 240) + ERROR + REPORT
    assert launches(text + header(4, 200) + steps(5)) == [
        (3, ["160"], "crashed", 1),
        (0, ["240"], "crashed", 8),
        (3, ["200"], "incomplete", 13),
    ]


def test_a_launch_that_fails_before_its_header_shows_its_error(launches: Launches) -> None:
    assert launches(LAUNCHER + ERROR + REPORT + LAUNCHER + header(2, 200) + steps(3)) == [
        (0, [], "crashed", 1),
        (3, ["200"], "incomplete", 5),
    ]
    assert launches(header(1, 160) + steps(2) + REPORT + LAUNCHER + ERROR + REPORT) == [
        (3, ["160"], "crashed", 1),
        (0, [], "crashed", 8),
    ]


def test_a_training_without_step_lines_ends_before_the_next_start(launches: Launches) -> None:
    assert launches(header(1, 160) + DONE + header(2, 200) + steps(3)) == [
        (0, ["160"], "completed", 1),
        (3, ["200"], "incomplete", 4),
    ]


def test_without_a_report_the_same_start_line_of_a_rank_begins_a_launch(
    launches: Launches,
) -> None:
    assert launches(header(1, 160) + ERROR + header(2, 200) + steps(3)) == [
        (0, ["160"], "crashed", 1),
        (3, ["200"], "incomplete", 4),
    ]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(ERROR + header(1, 200) + steps(2), id="error of a preamble"),
        pytest.param(
            "RuntimeError: of the job script\n"
            + 2 * header(1, 200).replace("[rank4]:", "")
            + steps(2),
            id="error of a preamble, ranks unknown",
        ),
        pytest.param(
            "[rank0]" + PREFIX[7:].format(minute=1) + "Starting job: debug\n"
            "[rank0]:[rank0]: ImportError: no flash attention\n" + header(1, 200) + steps(2),
            id="caught error between two start lines",
        ),
        pytest.param(LAUNCHER + LAUNCHER + header(1, 200) + steps(2), id="two nodes"),
        pytest.param(header(1, 200) + LAUNCHER + steps(2), id="launcher of a late node"),
        pytest.param(header(1, 200) + header(1, 200) + steps(2), id="start without a failure"),
    ],
)
def test_a_start_line_of_the_same_launch_begins_no_other(text: str, launches: Launches) -> None:
    (only,) = launches(text)
    assert only[0] == 3


def test_a_step_after_a_failure_shows_that_the_launch_went_on() -> None:
    watch, mark = StartWatch(), StartMark("0", "device mesh with")
    watch.note_start(mark)
    watch.note_events([{"line": 7, "kind": "error", "text": "ValueError: caught"}])
    assert watch.is_other_launch(mark)
    assert not watch.is_other_launch(StartMark("1", "device mesh with"))
    watch.note_step()
    assert not watch.is_other_launch(mark)
