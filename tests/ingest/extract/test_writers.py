"""Several writers of one file: each is a run, or all of them are one without a rate."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.ingest.pipeline.api import read_logs
from fairmfu.metrics.core.messages import NOT_RANKED
from fairmfu.metrics.pipeline.analysis import analyse

START = datetime(2026, 6, 1, 9, 0, 0)
GIVEN = ("gpus=1", "seq_len=1000", "packed=true", "global_batch_size=16")


def metrics_of(text: str, folder: Path, *given: str, name: str = "run.log") -> pl.DataFrame:
    (folder / name).write_text(text)
    tables = read_log_tables(folder / name, flag_facts=facts_from_flags(given))
    assert tables["sources"]["lines"].to_list() == [text.count("\n")]
    return analyse(tables).metrics.sort("name")


# -- clocks ------------------------------------------------------------------------------------


def trainer_line(step: int, seconds: float, loss: float, total: int) -> str:
    clock = str(timedelta(seconds=int(seconds)))
    said = {"current_steps": step, "total_steps": total, "loss": round(loss, 4), "lr": 1e-05}
    return json.dumps(
        said
        | {"epoch": step / total, "percentage": round(100 * step / total, 2)}
        | {"elapsed_time": clock, "remaining_time": "0:10:00"}
    )


def clocked(paces: Sequence[float], starts: Sequence[float], lines: int, seed: int = 0) -> str:
    """The lines of writers that each print every tenth step, in the order of time."""
    rng, every = np.random.default_rng(seed), []
    for writer, (pace, start) in enumerate(zip(paces, starts, strict=True)):
        times = np.cumsum(10 * pace * (1 + 0.004 * rng.standard_normal(lines)))
        for at, seconds in enumerate(times, 1):
            text = trainer_line(10 * at, seconds, 2 / at + 0.01 * writer, 10 * lines)
            every.append((start + seconds, text))
    return "".join(f"{text}\n" for _, text in sorted(every))


@pytest.mark.parametrize(
    ("paces", "starts"),
    [
        ((14.8, 15.1), (0, 5)),
        ((14.8, 15.1, 17.0), (0, 3, 8)),
        ((9.0, 31.0), (0, 40)),
        ((20.0, 8.0), (0, 700)),
        ((12.0, 11.5, 14.0, 13.1), (0, 2, 4, 9)),
    ],
)
def test_writers_of_one_file_are_followed_by_their_clocks(
    paces: Sequence[float], starts: Sequence[float], tmp_path: Path
) -> None:
    text = clocked(paces, starts, 60)
    found = metrics_of(text, tmp_path, *GIVEN, name="trainer_log.jsonl")
    assert found["steps"].to_list() == [60] * len(paces)
    assert sorted(found["tgs"]) == pytest.approx(sorted(16_000 / pace for pace in paces), rel=0.01)


def test_writers_that_nothing_tells_apart_are_one_run_without_a_rate(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    every = []
    for writer in range(2):  # as ranks in step, with losses of their own, and whole seconds
        for at in range(1, 41):
            loss = 2 / at + 0.05 * writer
            every.append((at + 0.1 * rng.random(), trainer_line(10 * at, 150 * at, loss, 400)))
    text = "".join(f"{one}\n" for _, one in sorted(every))
    (run,) = metrics_of(text, tmp_path, *GIVEN, name="trainer_log.jsonl").iter_rows(named=True)
    assert run["tgs"] is run["tgs_end_to_end"] is None
    (warning,) = run["warnings"]
    assert "several runs" in warning
    assert warning.startswith(NOT_RANKED)


def test_a_run_that_starts_again_is_no_second_writer(tmp_path: Path) -> None:
    """Four starts, one behind the other: as many runs, each with its own steps."""
    parts = [clocked((15.0,), (0,), lines, seed) for seed, lines in enumerate((8, 12, 9, 30))]
    found = metrics_of("".join(parts), tmp_path, *GIVEN, name="trainer_log.jsonl")
    assert found["steps"].to_list() == [8, 12, 9, 30]
    assert found["tgs"].to_list() == pytest.approx([16_000 / 15] * 4, rel=0.01)


# -- names before lines ------------------------------------------------------------------------


def titan(
    pace_s: float, shift: float = 0.0, rank: int = 0, steps: int = 25
) -> Iterator[tuple[float, str]]:
    """Lines of one rank, each with its moment: 8,192 tokens a step."""
    head = f"[rank{rank}]:[titan] "
    opening = (
        "Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=8, cp=1, tp=1",
        "Trainer is initialized with local batch size 1, global batch size 8, gradient "
        "accumulation steps 1, sequence length 8192, total steps 1000 (warmup 200)",
        "Training starts at step 1",
    )
    for text in opening:
        yield 0.0, f"{head}{START:%Y-%m-%d %H:%M:%S},000 - root - INFO - {text}"
    rng, now = np.random.default_rng(rank), 20.0
    for step in range(1, steps + 1):
        now += pace_s
        at = START + timedelta(seconds=now + 0.01 * rng.random())
        rate = 8192 / pace_s * (1 + 0.002 * rng.standard_normal())
        yield (
            now,
            f"{head}{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03} - root - INFO - "
            f"step: {step:2}  loss: {12 - step / 10 + shift:8.5f}  grad_norm:  1.2000  "
            f"memory: 44.21GiB(55.88%)  "
            f"tps: {rate:,.0f}  tflops: {rate / 17.27:.2f}  mfu: {rate / 170:.2f}%",
        )


def tagged(*writers: tuple[str, Iterator[tuple[float, str]]]) -> str:
    every = [
        (at, place, number, f"{tag}{text}")
        for place, (tag, lines) in enumerate(writers)
        for number, (at, text) in enumerate(lines)
    ]
    return "".join(f"{text}\n" for _, _, _, text in sorted(every))


TAGS = (
    ("exp-a-1  | ", "exp-b-1  | "),
    ("[pod/exp-a-0/pytorch] ", "[pod/exp-b-0/pytorch] "),
    ("2026-06-01T09:00:00Z [pod/exp-a-0/pytorch] ", "2026-06-01T09:00:00Z [pod/exp-b-0/pytorch] "),
    ("exp_a_1 | ", "exp_b_1 | "),
    ("logs/exp_a.log:", "logs/exp_b.log:"),
    ("worker-0: ", "worker-1: "),
)


@pytest.mark.parametrize("tags", TAGS)
def test_jobs_with_names_of_their_own_are_runs_of_their_own(
    tags: tuple[str, str], tmp_path: Path
) -> None:
    text = tagged((tags[0], titan(1.28)), (tags[1], titan(1.6, shift=-5.0)))
    found = metrics_of(text, tmp_path)
    assert found["tgs"].to_list() == pytest.approx([6400, 5120], rel=0.01)
    assert found["steps"].to_list() == [25, 25]
    names = [tag.strip(" |:[]").split()[-1].strip("[") for tag in tags]
    assert [name.partition("#")[2] for name in found["name"]] == names


@pytest.mark.parametrize("tags", TAGS)
def test_ranks_of_one_job_are_one_run(tags: tuple[str, str], tmp_path: Path) -> None:
    text = tagged((tags[0], titan(1.28)), (tags[1], titan(1.28, rank=8)))
    found = metrics_of(text, tmp_path)
    assert found["tgs"].to_list() == pytest.approx([6400], rel=0.01)


def test_two_jobs_of_two_ranks_each_are_two_runs(tmp_path: Path) -> None:
    text = tagged(
        ("[pod/exp-a-0/pytorch] ", titan(1.28)),
        ("[pod/exp-a-1/pytorch] ", titan(1.28, rank=8)),
        ("[pod/exp-b-0/pytorch] ", titan(1.6, shift=-5.0)),
        ("[pod/exp-b-1/pytorch] ", titan(1.6, shift=-5.0, rank=8)),
    )
    found = metrics_of(text, tmp_path)
    assert found["tgs"].to_list() == pytest.approx([6400, 5120], rel=0.01)


# -- pages -------------------------------------------------------------------------------------


def page(*blocks: Sequence[str], fence: str = "```") -> str:
    parts = ["# Notes\n\n8x H100, sequence length 8192\n"]
    for number, lines in enumerate(blocks):
        parts.append(f"\n## Run {number}\n{fence}\n" + "\n".join(lines) + f"\n{fence}\n")
    return "".join(parts)


def quoted(pace_s: float, steps: Sequence[int], after: float, memory: float) -> list[str]:
    lines = []
    for step in steps:
        at, rate = START + timedelta(seconds=after + step * pace_s), 8192 / pace_s
        lines.append(
            f"[rank0]:[titan] {at:%Y-%m-%d %H:%M:%S},000 - root - INFO - step: {step}  "
            f"loss: {12 - step / 100:.5f}  grad_norm:  1.2000  memory: {memory:.2f}GiB(50.56%)  "
            f"tps: {rate:,.0f}  tflops: {rate / 17.27:.2f}  mfu: {rate / 170:.2f}%"
        )
    return lines


@pytest.mark.parametrize("fence", ["```", "~~~", "> ```"])
def test_experiments_in_blocks_of_a_page_are_runs_of_their_own(fence: str, tmp_path: Path) -> None:
    text = page(
        quoted(1.6, [10, 20, 30, 40], 0, 40.0),
        quoted(1.3, [50, 60, 70, 80], 2400, 62.0),
        quoted(2.6, [90, 100, 110, 120], 5700, 77.5),
        fence=fence,
    )
    found = metrics_of(text, tmp_path, name="page.md")
    assert found["tgs"].to_list() == pytest.approx([8192 / 1.6, 8192 / 1.3, 8192 / 2.6], rel=0.01)


def test_single_lines_in_blocks_of_a_page_give_no_rate_between_them(tmp_path: Path) -> None:
    text = page(quoted(1.6, [10], 0, 40.0), quoted(1.3, [20], 2400, 62.0))
    found = metrics_of(text, tmp_path, name="page.md")
    assert found["steps"].to_list() == [1, 1]
    assert found["tgs"].to_list() == found["tgs_end_to_end"].to_list() == [None, None]


def test_blocks_of_one_run_that_keep_its_pace_are_one_run(tmp_path: Path) -> None:
    text = page(quoted(1.6, [10, 20, 30], 0, 40.0), quoted(1.6, [40, 50, 60, 70], 0, 40.5))
    found = metrics_of(text, tmp_path, name="page.md")
    assert found["steps"].to_list() == [7]
    assert found["tgs"].to_list() == pytest.approx([8192 / 1.6], rel=0.01)


def test_a_log_that_prints_fences_itself_is_no_page(tmp_path: Path) -> None:
    lines = quoted(1.6, [*range(10, 200, 10)], 0, 40.0)
    for place in (3, 7, 12, 15):
        lines.insert(place, "```")
    found = metrics_of("\n".join(lines) + "\n", tmp_path)
    assert found["steps"].to_list() == [19]


# -- one behind the other ----------------------------------------------------------------------


@pytest.mark.parametrize(("speed", "pause"), [(2.6, 2400), (1.0, 300), (1.75, 86_400)])
def test_runs_one_behind_the_other_at_another_speed_give_no_rate_between_them(
    speed: float, pause: float, tmp_path: Path
) -> None:
    lines = quoted(1.6, range(10, 210, 10), 0, 40.0)
    lines += quoted(speed, range(210, 410, 10), 320 + pause - 210 * speed, 40.0)
    found = metrics_of("\n".join(lines) + "\n", tmp_path)
    assert found["steps"].to_list() == [20, 20]
    assert found["tgs"].to_list() == pytest.approx([8192 / 1.6, 8192 / speed], rel=0.01)


def test_runs_one_behind_the_other_share_every_line_before_their_steps(tmp_path: Path) -> None:
    """The first line alone says how long a sequence is."""
    lines = [text for _, text in titan(1.6) if "sequence length" in text]
    lines += quoted(1.6, range(10, 210, 10), 0, 40.0)
    lines += quoted(2.6, range(210, 410, 10), 2720 - 210 * 2.6, 40.0)
    found = metrics_of("\n".join(lines) + "\n", tmp_path)
    assert found["seq_len"].to_list() == [8192, 8192]


@pytest.mark.parametrize(("speed", "pause"), [(1.6, 2400), (2.6, 0), (1.62, 600)])
def test_a_pause_or_another_speed_alone_parts_no_run(
    speed: float, pause: float, tmp_path: Path
) -> None:
    lines = quoted(1.6, range(10, 210, 10), 0, 40.0)
    lines += quoted(speed, range(210, 410, 10), 336 + pause - 210 * speed, 40.0)
    found = metrics_of("\n".join(lines) + "\n", tmp_path)
    assert found["steps"].to_list() == [40]


# -- logs read together ------------------------------------------------------------------------


def test_a_log_has_the_same_runs_alone_as_beside_others(tmp_path: Path) -> None:
    """Two runs, one behind the other, that only a pause and another speed tell apart."""
    first = [(step, 10.0 * step) for step in range(10, 110, 10)]
    second = [(step, 20_000.0 + 20.0 * step) for step in range(110, 210, 10)]
    lines = (trainer_line(step, at, 2 / step, 200) for step, at in [*first, *second])
    logs = [tmp_path / f"{name}.jsonl" for name in "abc"]
    texts = "".join(f"{line}\n" for line in lines), *(clocked([pace], [0], 20) for pace in (9, 11))
    for log, text in zip(logs, texts, strict=True):
        log.write_text(text)
    alone = [read_logs(log)["runs"].height for log in logs]
    assert alone == [2, 1, 1]
    assert read_logs(*logs)["runs"].height == sum(alone)
