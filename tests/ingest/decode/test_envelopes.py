"""What collectors put around lines goes before they are read, so the same log says the same."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from random import Random

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from fairmfu.ingest import read_logs
from fairmfu.ingest.core.errors import UnreadableSourceError
from fairmfu.ingest.decode import envelopes
from fairmfu.ingest.decode.envelopes import (
    LineTags,
    UnwrappedStream,
    detect_envelopes,
    detect_json_texts,
)
from fairmfu.ingest.decode.line_reader import Source
from fairmfu.ingest.decode.log_collectors import Unwrap, UnwrappedLine
from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.metrics import analyse
from tests.support.effort import THOROUGH, sampled
from tests.support.error_kinds import of_kind
from tests.support.folders import ROOT

pytestmark = sampled(3)

SYNTHETIC = ROOT / "sample_logs" / "synthetic"
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


def google(lines: Sequence[str]) -> Sequence[str]:
    return [json.dumps({"jsonPayload": {"message": x}, "timestamp": AT}) for x in lines]


def datadog(lines: Sequence[str]) -> Sequence[str]:
    """Records of its first API, one a line."""
    each = ({"timestamp": AT, "message": line, "attributes": {"pid": 7}} for line in lines)
    return [json.dumps({"id": "AA", "content": content}) for content in each]


def datadog_2(lines: Sequence[str]) -> Sequence[str]:
    each = ({"timestamp": AT, "message": line, "tags": []} for line in lines)
    return [json.dumps({"id": "AA", "type": "log", "attributes": of}) for of in each]


def gcloud(lines: Sequence[str]) -> Sequence[str]:
    """As `gcloud logging read --format=json` prints them."""
    each = [{"insertId": "a1", "textPayload": line, "timestamp": AT} for line in lines]
    return json.dumps(each, indent=2).split("\n")


def bytes_of(lines: Sequence[str]) -> Sequence[str]:
    """As `journalctl -o json` writes a text with colours."""
    each = [line if n % 3 else list(line.encode()) for n, line in enumerate(lines)]
    return [json.dumps({"MESSAGE": x, "__REALTIME_TIMESTAMP": "1795141000123456"}) for x in each]


def logfmt(lines: Sequence[str]) -> Sequence[str]:
    return [f"time={AT} level=info msg={json.dumps(line)} pod=w-0" for line in lines]


def numbered(before: str) -> Wrap:
    return lambda lines: [before % number + line for number, line in enumerate(lines, 1)]


MESSAGES = ("@message", "Message", "Content")


def cells(*columns: str, lines_in_one: int = 1) -> Wrap:
    """A CSV file, of whose columns that of a message holds the lines."""

    def wrap(lines: Sequence[str]) -> Sequence[str]:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        for n in range(0, len(lines), lines_in_one):
            cell = "\n".join(lines[n : n + lines_in_one])
            writer.writerow([cell if name in MESSAGES else AT for name in columns])
        return text.getvalue().split("\n")[:-1]

    return wrap


def continued(lines: Sequence[str]) -> Sequence[str]:
    """As GitLab's runner cuts lines that are printed a piece at a time."""
    return [
        f"2026-11-20T03:04:05.000600Z 00O{tag}{half}"
        for line in lines
        for tag, half in ((" ", line[: len(line) // 2]), ("+", line[len(line) // 2 :]))
    ]


def kaggle(lines: Sequence[str]) -> Sequence[str]:
    """The log of a notebook that Kaggle ran, as its file: one array, a record on each line."""
    each = [
        json.dumps({"stream_name": "stdout", "time": 9990.5 + n, "data": line + "\n"})
        for n, line in enumerate(lines)
    ]
    return [f"{',' if n else '['}{one}" for n, one in enumerate(each)] + ["]"]


def kaggles_page(lines: Sequence[str]) -> Sequence[str]:
    return [f"{9990.5 + n:.1f}s\t{n}\t{line}" for n, line in enumerate(lines, 1)]


def coloured(escape: str) -> Wrap:
    """In colours: each line, and the level of a record; as something writes their escape."""

    def level(word: re.Match[str]) -> str:
        return f"{escape}[4m{escape}[97m{word[0]}{escape}[0m"

    return lambda lines: [
        f"{escape}[1m{re.sub('INFO|WARNING', level, line)}{escape}[39m" if line.strip() else line
        for line in lines
    ]


WRAPS: dict[str, Wrap] = {
    "quoted": lambda lines: [f"> {line}".rstrip() for line in lines],
    "quoted twice, with a fence": lambda lines: [f"> > {x}" for x in ("```", *lines, "```")],
    "quoted kubernetes": before(f">{AT} stdout F "),
    "colours": coloured("\x1b"),
    "colours without their escape": coloured(""),
    "colours in less": coloured("^["),
    "colours of rsyslog": coloured("#033"),
    "colours spelt": coloured("\\x1b"),
    "colours as pictures": coloured("\u241b"),
    "colours in kubernetes": lambda lines: before(f"{AT} stdout F ")(coloured("")(lines)),
    "colours around kubernetes": lambda lines: coloured("")(before(f"{AT} stdout F ")(lines)),
    "colours in docker": lambda lines: record(log="\n", time=AT)(coloured("\\u001b")(lines)),
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
    "compose 1": before("trainer_1  | "),
    "compose 1 in colour": before("\x1b[36mtrainer_1  |\x1b[0m "),
    "journal": before("Nov 20 03:04:05 node1 python[1234]: "),
    "ts": before("Nov 20 03:04:05 "),
    "syslog": before(f"<14>1 {AT} node1 train 99 - - "),
    "airflow": before("[2026-11-20, 03:04:05 UTC] {subprocess.py:93} INFO - "),
    "airflow's pod": before("[2026-11-20T03:04:05.000+0000] {pod_manager.py:477} INFO - [base] "),
    "notebook": notebook,
    "stern": before("train-worker-0 pytorch "),
    "stern, all namespaces": before("ml train-5d4f8c7b9d-x2x9k pytorch "),
    "stern in colour": before("\x1b[32mtrain-worker-0\x1b[0m \x1b[36mpytorch\x1b[0m "),
    "stern with stamps": before(f"train-worker-0 pytorch {AT} "),
    "stern's json": record(message="", namespace="ml", podName="train-worker-0"),
    "stern's extjson": record(pod="train-worker-0", container="pytorch", message=""),
    "kubetail": before("[train-worker-0] "),
    "kubetail, containers": before("[train-worker-0 pytorch] "),
    "grep -n": numbered("%d:"),
    "grep -rn": numbered("runs/a/run.log:%d:"),
    "grep, files": before("run.log:"),
    "cat -n": numbered("%6d\t"),
    "kaggle": kaggle,
    "kaggle's page": kaggles_page,
    "kaggle's page, copied": lambda lines: [x.replace("\t", " ", 2) for x in kaggles_page(lines)],
    "google": google,
    "gcloud": gcloud,
    "logfmt": logfmt,
    "logcli's lines": before('2026-11-20T03:04:05Z {app="train", pod="w-0"} '),
    "cloudwatch insights": cells("@timestamp", "@message"),
    "cloudwatch insights, several lines": cells("@timestamp", "@message", lines_in_one=3),
    "datadog": cells("Date", "Host", "Message", "Tags"),
    "datadog's content": cells("Date", "Host", "Service", "Content"),
    "datadog's API": datadog,
    "datadog's API, v2": datadog_2,
    "syslog, RFC 3164": before("<14>Nov 20 03:04:05 node1 train: "),
    "syslog with data": before(f'<14>1 {AT} node1 train 99 ID1 [ex@1 a="b c"] '),
    "rsyslog": before("2026-11-20T03:04:05.000600+00:00 node1 python[1234]: "),
    "journal, precise": before("Nov 20 03:04:05.000600 node1 python[1234]: "),
    "journal, full": before("Fri 2026-11-20 03:04:05 UTC node1 python[1234]: "),
    "journal, unix": before("1795141000.123456 node1 python[1234]: "),
    "journal's json": bytes_of,
    "ts of seconds": before("1795141000.123456 "),
    "gh run view": before(f"train\tRun python\t{AT} "),
    "gitlab": before("2026-11-20T03:04:05.000600Z 00O "),
    "gitlab, cut": continued,
    "docker service": before("train.1.k2j3kx@node1    | "),
    "stamps of a collector in the records of another": lambda lines: before(f"{AT} stdout F ")(
        record(log="\n", time=AT)(lines)
    ),
}


@cache
def told_of(folder: Path) -> pl.DataFrame:
    metrics = analyse(read_logs(folder)).metrics.sort("name")
    return metrics.select("name", "tgs", "mfu", "time_basis", "gpus", "missing")


def wrapped(wrap: Wrap, folder: Path) -> None:
    """The synthetic logs, wrapped, with the facts beside them."""
    for path in filter(Path.is_file, SYNTHETIC.rglob("*")):
        copy = folder / path.relative_to(SYNTHETIC)
        copy.parent.mkdir(exist_ok=True)
        lines = path.read_text().splitlines()
        copy.write_text("\n".join([*(wrap(lines) if path.suffix == ".log" else lines), ""]))


PLACES: dict[str, tuple[str, ...]] = {
    "steps": ("run_id", "line", "rank"),
    "events": ("run_id", "line", "text"),
    "facts": ("run_id", "line", "origin", "text"),
    "runs": (
        *("run_id", "sha256", "first_line", "last_line", "outcome_line", "outcome_text"),
        "synthetic",  # said in a line that a rank may stand before
    ),
    "unread": ("sha256", "line"),
}
"""Columns that tell where something stands, and as what."""


@cache
def lines_of(path: Path) -> dict[str, pl.DataFrame]:
    tables = read_log_tables(path)
    found = {name: tables[name].drop(places) for name, places in PLACES.items()}
    return found | {"sources": tables["sources"].select("log_format", "step_lines")}


@pytest.mark.parametrize("name", WRAPS)
def test_wrapped_lines_say_what_they_say(name: str, tmp_path: Path) -> None:
    """Of two of the logs by turns; `make thorough`: of each."""
    wrapped(WRAPS[name], tmp_path)
    logs = sorted(SYNTHETIC.rglob("*.log"))
    turn = list(WRAPS).index(name)
    two = {logs[(turn + more) % len(logs)] for more in (0, 2)}
    for path in logs if THOROUGH else sorted(two):
        expected, found = lines_of(path), lines_of(tmp_path / path.relative_to(SYNTHETIC))
        assert expected["steps"].height
        for kind, table in expected.items():
            assert_frame_equal(found[kind], table, check_exact=True)


OF_EACH_KIND = (
    *("docker", "aws events", "logcli's lines"),
    *("kubernetes, cut", "cloudwatch insights", "sagemaker"),
    *("torchrun", "srun of many tasks", "kaggle"),
    "notebook",
)
"""A line each, pieces of lines, those that leave ranks, and whole files: the first of each row are
the sample.
"""


@pytest.mark.parametrize("name", WRAPS if THOROUGH else OF_EACH_KIND)
def test_wrapped_logs_come_to_the_same(name: str, tmp_path: Path) -> None:
    wrapped(WRAPS[name], tmp_path)
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
        ["> building train datasets", "> loading a checkpoint", " > finished", "step 1"] * 9,
        ["Saved.", "[pod/a/b] one", "Done.", "Left."] * 9,
        [f"{AT} one"],
        [f"{hour:02}:34:56 step {hour}" for hour in range(9, 24)],
        [f"{hour:02}:34:56,789 step {hour}" for hour in range(9, 24)],
        ["17: step: 1", "3: step: 1", "4: step: 1"] * 9,
        [f"{rank}:step: {step}" for step in range(9) for rank in range(8)],
        ["1\tone", "2\ttwo", "3\tthree", "4\tfour", "5\tfive", "6\tsix"],
        ["run.py:17: UserWarning: slow"] * 9,
        ["pre-train step 1 loss 2.5"] * 9,
        ["[rank-a] step 1", "[INFO] step 2"] * 9,
        ["rank0: step 1", "rank1: step 1"] * 9,
        ["INFO: step 1", "DEBUG: step 2"] * 9,
        [f"step{step}: loss 2.5" for step in range(1, 19)],
        ["loss=2.5 time=3 step=1"] * 9,
        ["time=3 loss=2.5 msg=saved step=1"] * 9,
        ["step,time,message", "1,2,saved", "2,3,saved"],
        ["step,time,loss", "1,2,3", "2,3,4"],
        ['{"jsonPayload": {"message": "one", "step": 1}, "timestamp": "2026"}'] * 9,
        ["00:00:12 one"] * 9,
        [f"{n}.5s 3 steps" for n in range(9)],
        [',{"time": 3, "message": "one"}'] * 9,
        ["2026-11-20 03:04:05 one"] * 9,
        ["11/20/2026 03:04:05 one"] * 9,
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
    wrappings = detect_envelopes(first.encode())
    monkeypatch.setattr("fairmfu.ingest.decode.line_reader.READ_BLOCK_BYTES", size)
    monkeypatch.setattr("fairmfu.ingest.decode.line_reader.detect_envelopes", lambda *_: wrappings)
    assert [line.text for line in Source(path).lines()] == [str(number) for number in range(9)]


STEPS_OF_MEGATRON = [
    f" iteration {step:8d}/     500 | consumed samples: {step * 256:12d} | elapsed time per "
    f"iteration (ms): {1234.5 + step % 7} | learning rate: 1.000E-05 | global batch size:   256 | "
    f"lm loss: {9 - step / 100:.6E} | loss scale: 1.0 | number of skipped iterations:   0 | "
    f"samples per second: {256_000 / (1234.5 + step % 7):.3f} | TFLOPs: 120.50 |"
    for step in range(10, 60, 10)
]
BETWEEN = "  validation loss at iteration 30 | lm loss value: 2.5 | "


@pytest.mark.parametrize("trimmed", [False, True])
@pytest.mark.parametrize("columns", [80, 100, 115, 120, 132, 133, 200])
def test_steps_of_megatron_that_a_terminal_broke_are_whole(
    columns: int, tmp_path: Path, *, trimmed: bool
) -> None:
    path, whole = tmp_path / "run.log", [*STEPS_OF_MEGATRON[:3], BETWEEN, *STEPS_OF_MEGATRON[3:]]
    path.write_text("\n".join([*whole, ""]))
    asked = "step", "elapsed_s", "samples", "logged_samples_per_second", "logged_tflops"
    steps = read_log_tables(path)["steps"].select(asked)
    pieces = [line[at : at + columns] for line in whole for at in range(0, len(line), columns)]
    path.write_text("\n".join([*(one.rstrip() if trimmed else one for one in pieces), ""]))
    tables = read_log_tables(path)
    assert tables["steps"].select(asked).equals(steps)
    assert tables["events"].filter(kind="evaluation").height == 1
    assert tables["sources"]["unread_lines"].to_list() == [0]


OWN = """
name = "own"
framework = "own"
versions = "1"
signature = 'step took'
looks_like_step = 'step took'
evidence = ["elapsed"]
elapsed_covers = "step"
rate_covers = "step"
"""


def steps_of_own(lines: Sequence[str], regex: str, example: str, folder: Path) -> list[int]:
    (folder / "run.log").write_text("\n".join([*lines, ""]))
    columns = 'columns = { step = "step", s = "elapsed_s" }'
    (folder / "own.toml").write_text(
        f"{OWN}[[steps]]\nregex = {json.dumps(regex)}\n{columns}\nexample = {json.dumps(example)}\n"
    )
    log_formats = [str(folder / "own.toml")]
    return read_logs(folder / "run.log", log_formats=log_formats)["steps"]["step"].to_list()


LINES = [f"[own] {number} step took 1.5" for number in range(1, 9)]
"""With a number behind a word, so that none stands first."""


@pytest.mark.parametrize("name", ["docker", "github", "grep -n"])
def test_lines_are_unwrapped_for_a_format_of_ones_own(name: str, tmp_path: Path) -> None:
    regex = r"^\[own\] (?P<step>\d+) step took (?P<s>[\d.]+)$"
    assert steps_of_own(WRAPS[name](LINES), regex, LINES[0], tmp_path) == list(range(1, 9))


@pytest.mark.parametrize(
    ("name", "regex"),
    [
        ("docker", r'"\[own\] (?P<step>\d+) step took (?P<s>[\d.]+)\\n"'),
        ("github", r"Z \[own\] (?P<step>\d+) step took (?P<s>[\d.]+)"),
        ("grep -n", r"(?P<step>\d+):.* step took (?P<s>[\d.]+)"),
    ],
)
def test_a_wrapping_that_a_format_of_ones_own_is_of_stays(
    name: str, regex: str, tmp_path: Path
) -> None:
    wrapped = WRAPS[name](LINES)
    assert steps_of_own(wrapped, regex, wrapped[0], tmp_path) == list(range(1, 9))


@pytest.mark.parametrize("name", ["cloudwatch insights", "google", "logfmt", "kubectl with stamps"])
def test_lines_that_stand_newest_first_are_refused(name: str, tmp_path: Path) -> None:
    lines = next(SYNTHETIC.glob("torchtitan/*.log")).read_text().splitlines()
    stamped = [x.replace(AT, f"2026-11-20T03:{n:02}:05Z") for n, x in enumerate(WRAPS[name](lines))]
    path = tmp_path / "run.log"
    path.write_text("\n".join([*stamped, ""]))
    assert read_logs(path)["steps"].height
    heading = stamped[:1] if stamped[0].startswith("@") else []
    path.write_text("\n".join([*heading, *reversed(stamped[len(heading) :]), ""]))
    with pytest.raises(UnreadableSourceError, check=of_kind("newest-first")):
        read_logs(path)


HOSTS = {
    "pdsh of addresses": "10.96.202.{}: ",
    "deepspeed's hostfile": "worker-{}: ",
    "pdsh of names": "gpu-r2-n{}.cluster: ",
    "srun": "{}: ",
}


@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)
def test_a_dict_that_each_node_prints_is_one_step(host: str, tmp_path: Path) -> None:
    """The dicts print no step: those of four nodes were four steps each."""
    hosts = [host.format(number) for number in (43, 17, 16, 40)]
    turns = [hosts, hosts[::-1], [*hosts[2:], *hosts[:2]]] * 7
    text = "{'loss': %.1f, 'learning_rate': 5e-05, 'epoch': 0.1}"
    dicts = [text % (9 - n / 9) for n in range(21)]
    lines = [turn + text for text, turns_of in zip(dicts, turns, strict=True) for turn in turns_of]
    path = tmp_path / "run.log"
    path.write_text("\n".join([*lines, *(f"{one}{{'train_runtime': 9.5}}" for one in hosts), ""]))
    tables = read_log_tables(path)
    assert tables["runs"].height == 1
    assert analyse(tables).metrics["steps"].to_list() == [21]
    of_ranks = tables["steps"].group_by("rank").agg(pl.col("step").sort())
    assert of_ranks["step"].to_list() == [list(range(1, 22))] * len(hosts)


def of_nodes(nodes: int, draw: Random, *, returns: bool, every: int) -> str:
    """What the Trainer prints on each node into one file: 5.05 s a step, 8,192 tokens for each."""
    text, seconds = "***** Running training *****\n  Total optimization steps = 1,000\n", 0.0
    begin, end = ("\r", "") if returns else ("", "\n")

    def bar(step: int, node: int) -> str:
        minutes, rest = divmod(int(seconds + 0.3 * node), 60)
        clock = f"{minutes:02}:{rest:02}<1:00:00,  5.0{node}s/it"
        return f"{begin}{step // 10:3}%|{' ' * 10}| {step}/1000 [{clock}]{end}"

    for step in range(1, 201):
        seconds += 5 + 0.1 * draw.random()
        text += "".join(bar(step, node) for node in draw.sample(range(nodes), nodes))
        if step % every:
            continue
        said = {"loss": round(2 + draw.random(), 4), "learning_rate": step / 1e7}
        said |= {"epoch": round(step / 1000, 2), "num_input_tokens_seen": 131_072 * step}
        waiting = [[f"{said}\n", bar(step, node)] for node in range(nodes)]  # all gather before
        while any(waiting):
            text += draw.choice([node for node in waiting if node]).pop(0)
    return text + "\n"


@pytest.mark.parametrize("every", [1, 10])
@pytest.mark.parametrize("returns", [True, False])
@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_dicts_that_nodes_print_without_a_tag_are_one_step_each(
    nodes: int, every: int, tmp_path: Path, *, returns: bool
) -> None:
    """TGS was up to 1.7 times too high: what two nodes printed was steps one behind the other."""
    path = tmp_path / "run.log"
    text = of_nodes(nodes, Random(every), returns=returns, every=every)  # noqa: S311 - a log
    path.write_text(text, newline="")
    facts = facts_from_flags(["gpus=16"])
    tables = read_log_tables(path, flag_facts=facts)
    assert tables["steps"]["step"].to_list() == list(range(every, 201, every))
    (row,) = analyse(tables).metrics.to_dicts()
    assert row["tgs"] == pytest.approx(131_072 / 16 / 5.05, rel=2e-3)


def test_lines_with_a_tag_or_with_other_figures_are_no_copies() -> None:
    dicts = [f"{{'loss': {n}.5, 'epoch': 0.{n}}}".encode() for n in range(9)]
    twice = [one for text in dicts for one in (text, text)]
    assert detect_envelopes(b"\n".join([*twice, b""])).unwraps
    tagged = [b"[rank%d]: %s" % (n % 2, text) for n, text in enumerate(twice)]
    odd = [*twice[:3], b"{'loss': 3.5, 'epoch': 0.7}", *twice[3:]]
    for lines in (dicts, tagged, odd, [dicts[0]] * 20):
        assert not detect_envelopes(b"\n".join([*lines, b""])).unwraps


def test_a_step_with_the_figures_of_the_one_before_is_no_copy(tmp_path: Path) -> None:
    """Of two nodes each text stands there twice, once more for each step that has it."""
    path = tmp_path / "run.log"
    many = [f"{{'loss': 0.{n:03}, 'epoch': 1.0}}" for n in range(80)]
    lines = [one for text in (*many, many[5], many[5]) for one in (text, text)]
    path.write_text("\n".join([*lines, ""]))
    losses = read_log_tables(path)["steps"]["loss"].to_list()
    assert losses == [*(n / 1000 for n in range(80)), 0.005, 0.005]


@pytest.mark.parametrize("count", [3, 5, 8])
def test_a_training_that_is_run_again_is_no_copy(count: int, tmp_path: Path) -> None:
    """With the same seed, and few dicts: its lines were taken off as those of another node."""
    path = tmp_path / "run.log"
    text = of_nodes(1, Random(1), returns=True, every=200 // count)  # noqa: S311 - a log
    path.write_text(text * 2, newline="")
    lines = read_log_tables(path)["steps"]
    assert lines.height == 2 * (200 // (200 // count))


def test_the_config_of_a_host_is_whole(tmp_path: Path) -> None:
    """Only what tells no rank of its own has the host's number before it."""
    path = tmp_path / "run.log"
    printed = ["config = {", "  'lr': {'a': 1},", "}", "{'loss': 1.5, 'epoch': 0.1}"]
    lines = [f"node{n}: {text}" for text in printed * 5 for n in (1, 2)]
    path.write_text("\n".join([*lines, ""]))
    found = [line.text for line in Source(path).lines()]
    assert found[:6:2] == printed[:3]
    assert found[6:8] == ["0: {'loss': 1.5, 'epoch': 0.1}", "1: {'loss': 1.5, 'epoch': 0.1}"]


TRAINER = [
    "***** Running training *****",
    "  Total optimization steps = 40",
    *(
        line
        for step in range(1, 5)
        for line in (
            f"{{'loss': {7 - step / 8}, 'learning_rate': 0.0004, 'epoch': {step / 10}}}",
            f" {step * 10}%|█         | {step}/40 [00:{step * 5:02}<03:00,  5.00s/it]",
        )
    ),
]


@pytest.mark.parametrize("escape", ["\x1b", "", "^["], ids=["colour", "without escape", "spelt"])
@pytest.mark.parametrize("place", ["before", "behind", "behind the bar"])
def test_colours_beside_the_trainers_dicts_and_bars_go(
    place: str, escape: str, tmp_path: Path
) -> None:
    colours = {
        "before": lambda line: f"{escape}[1m{escape}[32m{line}{escape}[0m",
        "behind": lambda line: f"{line}{escape}[0m",
        "behind the bar": lambda line: f"{line}{escape}[0m" if "s/it" in line else line,
    }
    path, asked = tmp_path / "run.log", ["step", "loss", "since_start_s"]
    path.write_text("\n".join([*TRAINER, ""]))
    plain = read_log_tables(path)["steps"].select(asked)
    assert plain["since_start_s"].to_list() == [5, 10, 15, 20]
    path.write_text("\n".join([*map(colours[place], TRAINER), ""]))
    assert read_log_tables(path)["steps"].select(asked).equals(plain)


@pytest.mark.parametrize("escape", ["", "^["])
def test_few_lines_with_colours_are_enough(escape: str) -> None:
    """As those with steps, among what else is told before and between them."""
    coloured = [f"{escape}[31mstep: 1{escape}[39m", f"{escape}[31mstep: 2{escape}[39m"]
    lines = [f"[titan] a line {n}" for n in range(499)]
    lines[33], lines[52] = coloured
    (bare,) = detect_envelopes("\n".join([*lines, ""]).encode()).unwraps
    assert [piece and piece.text for piece in map(bare, [b"a", coloured[0].encode()])] == [
        None,
        b"step: 1",
    ]


@pytest.mark.parametrize(
    "lines",
    [
        ["step 1 took [5m", "step 2 took [30m"] * 9,  # nothing ends these
        ["\x1b[32mINFO\x1b[0m step 1", "\x1b[32mINFO\x1b[0m step 2"] * 9,  # noise of the text
        ["[I][mmm/train:493] step 1", "[E][0x7f] step 2, 10m"] * 9,
    ],
)
def test_what_is_no_colour_as_text_stays(lines: list[str]) -> None:
    assert not detect_envelopes("\n".join([*lines, ""]).encode()).unwraps


# -- a stream whose lines say themselves how they are wrapped --------------------------------


def told(line: bytes) -> UnwrappedLine | None:
    """`name>text`, with `~` before it where it goes on, and behind it where the next one does."""
    name, mark, text = line.partition(b">")
    if not mark:
        return None
    continues, partial = text.startswith(b"~"), text.endswith(b"~")
    return UnwrappedLine(text.strip(b"~"), partial=partial, continues=continues, tag=name)


def streamed(text: bytes, size: int = 1 << 22, *unwraps: Unwrap) -> tuple[bytes, list[int]]:
    """All lines without what is around them, and the number of the name of each."""
    stream = UnwrappedStream(io.BytesIO(text), unwraps or (told,))
    read = b"".join(iter(lambda: stream.read(size), b""))
    return read, stream.tags.numbers.tolist()


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_a_line_in_parts_is_one_and_the_others_are_blank(size: int) -> None:
    """So that the number of a line is that in the file; a name has the number of its coming."""
    text = b"a>one\nb>two~\nb>three\nbare\na>four\nc>~ five\n>six"
    whole = b"one\n\ntwothree\nbare\n\nfour five\nsix"
    assert streamed(text, size) == (whole, [1, 2, 2, 0, 1, 3, 0])
    assert streamed(text + b"\n", size)[0] == whole + b"\n"


def test_a_text_that_breaks_off_within_a_part_has_no_newline() -> None:
    assert streamed(b"a>one\na>two~\n")[0] == b"one\ntwo"
    assert streamed(b"")[0] == b""
    assert streamed(b"\n\n")[0] == b"\n\n"


def test_of_several_wrappings_the_outermost_name_holds() -> None:
    assert streamed(b"a>b>one\n>b>two\na>three\n", 99, told, told) == (
        b"one\ntwo\nthree\n",
        [1, 2, 1],
    )


def test_names_beyond_those_that_are_told_apart_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelopes, "MAX_TAGS", 2)
    tags = LineTags()
    for name in (b"", b"a", b"b", b"c", b"a", b"d"):
        tags.add(name)
    assert tags.numbers.tolist() == [0, 1, 2, 2, 1, 2]


def test_two_bytes_hold_the_number_of_a_name() -> None:
    tags = LineTags()
    for number in range(2**16 + 3):
        tags.add(b"%d" % number)
    assert tags.numbers[2**16 - 3 :].tolist() == [2**16 - 2, *[2**16 - 1] * 5]


def test_a_log_within_json_is_found_where_it_says_more() -> None:
    """As the body of an issue does."""
    step = "step: {}  loss:  8.1  memory: 1.50GiB(3.00%)  tps: 883  mfu: 1%"
    body = json.dumps({"body": "\n".join(step.format(n) for n in range(1, 30))})
    for text, known in (
        (body, True),
        (f" {body}", True),
        (f"[{body}]\n", True),
        (f"x {body}", False),
        (json.dumps({"body": "\n".join(["hello"] * 30)}), False),
        (json.dumps({"body": step}), False),
    ):
        found = detect_json_texts(text.encode())
        assert (found is not None) == known, text[:20]
    (unwrap,) = [detect_json_texts(body.encode())]
    assert unwrap is not None
    piece = unwrap(body.encode())
    assert piece is not None
    assert piece.text.count(b"\n") == 28
