"""What copies, mails, pages and tickets do to a log leaves its figures as they are, or is told.

Every sample log is changed as each of them would. Its steps and facts are then those of the log
itself, or lines are unread and say why: nothing is lost, and nothing is read otherwise, in silence.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from fairmfu.ingest.core.errors import FairmfuError, UnreadableSourceError
from fairmfu.ingest.decode.envelopes import detect_envelopes
from fairmfu.ingest.decode.line_reader import Source
from fairmfu.ingest.extract.discovery import FileWalk
from fairmfu.ingest.extract.log_tables import read_log_tables
from tests.support.effort import THOROUGH, sampled
from tests.support.folders import ROOT

pytestmark = sampled(3)

SAMPLES = ROOT / "sample_logs"
LOGS = [
    *sorted((SAMPLES / "synthetic").glob("*/*.log")),
    *sorted((SAMPLES / "genuine").glob("*/*/run.log")),
]
FEW = [
    *sorted((SAMPLES / "synthetic").glob("*/*.log")),
    SAMPLES / "genuine/torchtitan-0.3.0/llama3-2ranks-fsdp/run.log",
    SAMPLES / "genuine/xtuner-0.2.0/llama-2ranks/run.log",
    SAMPLES / "genuine/deepspeed-0.19.8/hf-trainer-2ranks-zero2/run.log",
    SAMPLES / "genuine/deepspeed-0.19.8/zero2-2ranks-bf16-accumulation4/run.log",
]
STEP_COLUMNS_BESIDE = ("run_id", "line", "text", "extra", "form")
Change = Callable[[Sequence[str]], Sequence[str]]


def before(words: str) -> Change:
    return lambda lines: [words + line for line in lines]


def put(old: str, new: str) -> Change:
    return lambda lines: [re.sub(old, new, line) for line in lines]


def wrapped(width: int, *, hard: bool = False) -> Change:
    """Broken at blanks as a mail program does, or at the last column as a terminal does."""

    def change(lines: Sequence[str]) -> Sequence[str]:
        if hard:
            return [x[at : at + width] for x in lines for at in range(0, max(len(x), 1), width)]
        pieces = (textwrap.wrap(x, width, break_long_words=False) or [""] for x in lines)
        kept = ([x] if len(x) <= width else y for x, y in zip(lines, pieces, strict=True))
        return [piece for one in kept for piece in one]

    return change


def numbered(lines: Sequence[str]) -> Sequence[str]:
    """As `less -N` shows them."""
    return [f"{number:>7} {line}" for number, line in enumerate(lines, 1)]


def in_json(indent: int | None) -> Change:
    def change(lines: Sequence[str]) -> Sequence[str]:
        said = {"title": "slow?", "body": "\n".join(["```", *lines, "```"]), "id": 7}
        return json.dumps(said, indent=indent).split("\n")

    return change


def in_page(lines: Sequence[str]) -> Sequence[str]:
    """As the source of a page has them."""
    return ["<pre>", *(escape(line).replace("  ", "&nbsp;&nbsp;") for line in lines), "</pre>"]


def item(lines: Sequence[str]) -> Sequence[str]:
    """In an item of a list in Markdown."""
    return ["# Result", "", "- one node:", "", "    ```", *before("    ")(lines), "    ```", ""]


CHANGES: dict[str, Change] = {
    "tabs": put(r"(?<=\S) {2,}(?=\S)", "\t"),
    "no-break spaces": put(r"(?<=\S) {2}(?=\S)", "\xa0\xa0"),
    "narrow no-break spaces": put(r"(?<=\S) (?=\S)", "\u202f"),
    "ideographic spaces": put(r"(?<=\S) {2}(?=\S)", "\u3000 "),
    "widthless": put(r"(?<=[:=,]) ", " \u200b"),
    "word joiners": put(r"(?<=: )(?=\d)", "\u2060"),
    "byte-order marks": before("\ufeff"),
    "entities": in_page,
    "indented": before("    "),
    "indented by a tab": before("\t"),
    "a list's item": item,
    "a host": before("node-07: "),
    "a logger": before("INFO:root:"),
    "a diff": before("+"),
    "less -N": numbered,
    "a table": lambda lines: [f"| {line} |" for line in lines],
    "quoted": before("> "),
    "fenced": lambda lines: ["```text", *lines, "```"],
    "a JSON text": in_json(None),
    "a JSON text of a pretty record": in_json(2),
    "a JSON text in another": lambda lines: [json.dumps({"event": "".join(in_json(None)(lines))})],
    **{f"wrapped at {width}": wrapped(width) for width in (72, 80, 100, 120, 160)},
    **{f"broken at {width}": wrapped(width, hard=True) for width in (80, 132)},
}


@dataclass
class Reading:
    """What a log says; refused: why nothing."""

    steps: list[tuple[object, ...]] = field(default_factory=list)
    facts: set[tuple[str, str]] = field(default_factory=set)
    unread: int = 0
    refused: str = ""


def reading(path: Path) -> Reading:
    try:
        tables = read_log_tables(path)
    except FairmfuError as error:
        return Reading(refused=str(error))
    steps = tables["steps"].drop(STEP_COLUMNS_BESIDE, strict=False)
    facts = {(str(fact["name"]), str(fact["value"])) for fact in tables["facts"].to_dicts()}
    unread = sum(tables["sources"]["unread_lines"])
    return Reading(steps.rows(), facts, unread)


@cache
def clean(log: Path) -> tuple[list[str], Reading]:
    """A log's lines, and what it says without what stands beside it."""
    text = log.read_text()
    with TemporaryDirectory() as folder:
        copy = Path(folder) / log.name
        copy.write_text(text)
        return text.removesuffix("\n").split("\n"), reading(copy)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    "log", LOGS if THOROUGH else FEW, ids=lambda log: str(log.relative_to(SAMPLES).parent)
)
def test_a_changed_log_says_the_same_or_tells(log: Path, change: str, tmp_path: Path) -> None:
    lines, expected = clean(log)
    path = tmp_path / log.name
    path.write_text("\n".join([*CHANGES[change](lines), ""]))
    found = reading(path)
    if found.refused or found.unread > expected.unread:
        return
    assert found.steps == expected.steps
    assert found.facts == expected.facts


@pytest.mark.parametrize("log", LOGS, ids=lambda log: str(log.relative_to(SAMPLES).parent))
def test_nothing_is_undone_where_nothing_was_done(log: Path) -> None:
    """Lines near one width, a rank or a stamp before all of them: they are the log's own."""
    assert not detect_envelopes(log.read_bytes()).unwraps


TITAN = "[rank0]:[titan] 2026-06-01 09:00:00,000 - root - INFO - "
MESH = "Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=16, cp=1, tp=4, ep=1"
STEPS = [
    f"{TITAN}step: {n:2}  loss: 11.{n:05}  grad_norm:  1.2000  memory: 44.21GiB(55.88%)  "
    f"tps: 6,4{n:02}  tflops: 370.65  mfu: 37.48%"
    for n in range(1, 10)
]


def written(path: Path, *lines: str) -> Reading:
    path.write_text("\n".join([*lines, *STEPS, ""]))
    return reading(path)


@pytest.mark.parametrize("end", range(MESH.index("pp=1"), MESH.index(", ep=")))
def test_a_mesh_that_is_cut_proves_no_degree(end: int, tmp_path: Path) -> None:
    found = written(tmp_path / "run.log", TITAN + MESH[:end])
    assert found.unread == 1
    assert not {name for name, _ in found.facts} & {"gpus", "tensor_parallel", "data_parallel"}


@pytest.mark.parametrize("between", ["", " ", " " * 40, "\t"])
@pytest.mark.parametrize(
    "behind",
    ["[GC] Initial GC collection took 0.00 seconds", "Training starts at step 1", STEPS[0]],
)
def test_a_record_behind_another_hides_it_not(behind: str, between: str, tmp_path: Path) -> None:
    behind = behind if behind.startswith(TITAN) else TITAN + behind
    found = written(tmp_path / "run.log", f"{TITAN}{MESH}, etp=1{between}{behind}")
    assert ("gpus", "64") in found.facts


@pytest.mark.parametrize(
    "piece", ["tflops: 370.65  mfu: 37.48%", "11.0  grad_norm: 1.2  tps: 6,400"]
)
def test_a_piece_of_a_step_alone_is_unread(piece: str, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text("\n".join([*STEPS, f"{TITAN}Training completed", piece, ""]))
    assert reading(path).unread == 1


def test_two_records_of_one_width_stay_two(tmp_path: Path) -> None:
    """The first might be broken behind its end, by its width."""
    step = (
        " iteration {0:8}/     500 | consumed samples: {0:12} | elapsed time per iteration (ms): "
        "1237.5 | learning rate: 1.0E-05 | global batch size:   256 | lm loss: 2.5E+00 |"
    )
    lines = [step.format(10), "  validation loss at iteration 10 | lm loss value: 2.5 | "]
    path = tmp_path / "run.log"
    path.write_text("\n".join([*lines, *(step.format(n) for n in (20, 30, 40)), ""]))
    assert [text.text for text in Source(path).lines()][:2] == lines


def test_the_log_of_a_trainer_that_is_not_read_is_named(tmp_path: Path) -> None:
    head = "[XTuner][2026-09-01 10:05:00][INFO]"
    lines = [
        f"{head} Rank0 Rollout 6 Step 0: reduced_llm_loss=0.0649, step_consumed_tokens=36822",
        f"{head} Train step 6/6",
        "Train step 6 finished and timing listed:",
        " - training                 : 8.00s",
    ]
    path = tmp_path / "run.log"
    path.write_text("\n".join([*lines, ""]))
    assert "XTuner's RL trainer" in reading(path).refused


def test_files_of_a_folder_that_are_not_opened_for_their_names_are_told(tmp_path: Path) -> None:
    for name in ("issue.json", "notes.md", "config.json", "tokenizer_config.json", "README.md"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "run.log").write_text("\n".join([*STEPS, ""]))
    walk = FileWalk()
    assert [Path(found.path).name for found in walk.of(tmp_path)] == ["run.log"]
    assert [Path(path).name for path in walk.unlisted] == ["issue.json", "notes.md"]
    (tmp_path / "run.log").unlink()
    with pytest.raises(UnreadableSourceError, match=r"Skipped by file name: issue\.json"):
        list(FileWalk().of(tmp_path))
