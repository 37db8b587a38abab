"""What collectors put around lines goes before they are read, so the same log says the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import polars as pl
import pytest

from ingest import read_logs
from ingest.reader import Source
from ingest.wrapped import unwrapping
from metrics import analyse

SYNTHETIC = Path(__file__).resolve().parent.parent / "sample_logs" / "synthetic"
AT = "2026-11-20T03:04:05.000600700Z"
Wrap = Callable[[Sequence[str]], Sequence[str]]


def before(words: str) -> Wrap:
    return lambda lines: [words + line for line in lines]


def record(**others: str) -> Wrap:
    """One record a line; the key with an empty text holds the line."""
    key = next(name for name, value in others.items() if value in ("", "\n"))
    end = others[key]
    return lambda lines: [json.dumps(others | {key: line + end}) for line in lines]


def repeated(lines: Sequence[str]) -> Sequence[str]:
    """As Ray tells that several actors printed the same."""
    ends = ("", "", " [repeated 7x across cluster]", "\x1b[32m [repeated 7x across cluster]\x1b[0m")
    return [f"(W pid=17) {line}{ends[n % len(ends)]}" for n, line in enumerate(lines)]


def notebook(lines: Sequence[str]) -> Sequence[str]:
    outputs = [{"name": "stdout", "text": [line + "\n" for line in lines]}]
    return json.dumps({"cells": [{"outputs": outputs, "source": ["!sh\n"]}]}, indent=1).split("\n")


def events(lines: Sequence[str]) -> Sequence[str]:
    """As `aws logs get-log-events` prints them."""
    each = [{"timestamp": 1795141000000, "message": line, "ingestionTime": 1} for line in lines]
    return json.dumps({"events": each, "nextForwardToken": "f/3"}, indent=4).split("\n")


def parts(lines: Sequence[str]) -> Sequence[str]:
    """As Kubernetes cuts long lines, here all of them."""
    halves = ((line[: len(line) // 2], line[len(line) // 2 :]) for line in lines)
    return [
        f"{AT} stderr {tag} {half}" for two in halves for tag, half in zip("PF", two, strict=True)
    ]


def records_in_parts(lines: Sequence[str]) -> Sequence[str]:
    halves = [piece for x in lines for piece in (x[: len(x) // 2], x[len(x) // 2 :] + "\n")]
    return [json.dumps({"log": half, "stream": "stdout", "time": AT}) for half in halves]


WRAPS: dict[str, Wrap] = {
    "docker": record(log="\n", stream="stdout", time=AT),
    "docker, cut": records_in_parts,
    "logcli": record(line="", timestamp=AT),
    "cloud": record(insertId="a1", textPayload="", timestamp=AT),
    "kubernetes": before(f"{AT} stdout F "),
    "kubernetes, cut": parts,
    "kubectl": before("[pod/train-worker-0/pytorch] "),
    "kubectl with stamps": before(f"[pod/train-worker-0/pytorch] {AT} "),
    "github": before("2026-11-20T03:04:05.0006007Z "),
    "aws tail": before("2026-11-20T03:04:05.000000+00:00 train/algo-1/17 "),
    "aws events": events,
    "jenkins": before("[2026-11-20T03:04:05.006Z] "),
    "ray": before("(TrainWorker pid=1234, ip=10.0.0.1) "),
    "ray in colour": before("\x1b[36m(RayTrainWorker pid=1234)\x1b[0m "),
    "ray, repeated": repeated,
    "sagemaker": before("[1,mpirank:0,algo-1]<stdout>:"),
    "open mpi": before("[1,0]<stdout>:"),
    "srun": before("0: "),
    "srun of many tasks": before(" 0: "),
    "torchrun": before("[rank0]:"),
    "pdsh": before("10.0.0.3: "),
    "compose": before("trainer-1  | "),
    "journal": before("Nov 20 03:04:05 node1 python[1234]: "),
    "ts": before("Nov 20 03:04:05 "),
    "syslog": before(f"<14>1 {AT} node1 train 99 - - "),
    "airflow": before("[2026-11-20, 03:04:05 UTC] {subprocess.py:93} INFO - "),
    "airflow's pod": before("[2026-11-20T03:04:05.000+0000] {pod_manager.py:477} INFO - [base] "),
    "notebook": notebook,
}


@cache
def told_of(folder: Path) -> pl.DataFrame:
    metrics = analyse(read_logs(folder)).metrics.sort("name")
    return metrics.select("name", "tgs", "mfu", "time_basis", "gpus", "missing")


@pytest.mark.parametrize("wrap", WRAPS.values(), ids=WRAPS)
def test_wrapped_logs_say_what_they_say(wrap: Wrap, tmp_path: Path) -> None:
    for path in filter(Path.is_file, SYNTHETIC.rglob("*")):
        copy = tmp_path / path.relative_to(SYNTHETIC)
        copy.parent.mkdir(exist_ok=True)
        lines = path.read_text().splitlines()
        copy.write_text("\n".join([*(wrap(lines) if path.suffix == ".log" else lines), ""]))
    assert told_of(SYNTHETIC)["mfu"].null_count() == 0
    assert told_of(tmp_path).equals(told_of(SYNTHETIC))


@pytest.mark.parametrize(
    "lines",
    [
        ["[rank0]:[titan] 2026-11-20 15:34:16,731 - root - INFO - step: 1"] * 9,
        ["2024-10-03 15:01:18,520 - root - INFO - step: 1  loss:  8.1"] * 9,
        ["0: step: 1", "1: step: 1"] * 9,
        ["Epoch: 0, Step: 3, Rank: 0, loss = 2.140625"] * 9,
        [" iteration        1/     100 | consumed samples:            8 |"] * 9,
        ['{"loss": 1.5, "time": 3, "step": 1}'] * 9,
        ['{"log": "one", "line": "two", "time": "now"}'] * 9,
        ['{"message": "step_end", "time": 1780000000, "step": 5}'] * 9,
        ["| step-1 | loss |"] * 9,
        ["Saved.", "[pod/a/b] one", "Done.", "Left."] * 9,
        [f"{AT} one"],
    ],
)
def test_lines_that_are_not_wrapped_stay(lines: list[str], tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text("\n".join([*lines, ""]))
    assert [line.text for line in Source(path).lines()] == lines


def test_a_line_between_wrapped_ones_stays_and_numbers_are_those_of_the_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.log"
    path.write_text(
        f"{AT} stdout F one\nrotated\n{AT} stdout P tw\n{AT} stdout F o\n{AT} stderr F x"
    )
    found = [(line.number, line.text) for line in Source(path).lines()]
    assert found == [(1, "one"), (2, "rotated"), (3, ""), (4, "two"), (5, "x")]


@pytest.mark.parametrize("size", [1, 7, 64])
def test_blocks_may_end_within_a_wrapping(
    size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.log"
    first = "".join(f"{AT} stdout F {number}\n" for number in range(9))
    path.write_text(first)
    wrappings = unwrapping(first.encode())
    monkeypatch.setattr("ingest.reader.BLOCK_BYTES", size)
    monkeypatch.setattr("ingest.reader.unwrapping", lambda _: wrappings)
    assert [line.text for line in Source(path).lines()] == [str(number) for number in range(9)]


def test_a_format_of_ones_own_has_the_lines_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(f"{AT} one\n" * 3)
    assert {line.text for line in Source(path, bare=True).lines()} == {f"{AT} one"}
