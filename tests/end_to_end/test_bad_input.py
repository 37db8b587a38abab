"""Whatever is given, each bad file gets one clear message and the good ones are stored."""

from __future__ import annotations

import gzip
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
from tensorboard.compat.proto import event_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

from fairmfu.ingest.core import prefilter
from fairmfu.ingest.core.errors import FairmfuError, UnreadableSourceError
from fairmfu.ingest.core.prefilter import parse_pattern
from fairmfu.ingest.core.safe_regex import Regex
from fairmfu.ingest.core.schema import TABLES
from fairmfu.ingest.decode.line_reader import Chunk, NumberedLine
from fairmfu.ingest.decode.tfevents import read_event_values
from fairmfu.ingest.detect.detection import detect_format
from fairmfu.ingest.extract.discovery import FileWalk
from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.formats.deepspeed.engine import DEEPSPEED
from fairmfu.ingest.formats.megatron.console import MEGATRON_DEEPSPEED
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.formats.spec import JSON_PAIRS, LogFormat, StepLine
from fairmfu.ingest.formats.torchtitan.console import TORCHTITAN
from fairmfu.ingest.launches.outcomes import ENDING_EVENT_LINES
from fairmfu.ingest.parse.line_parser import parse_lines
from fairmfu.ingest.parse.record_sink import ParsedSource
from fairmfu.ingest.parse.step_fields import ends_like
from fairmfu.ingest.pipeline.ingest_run import Outcome
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.compare.comparability import rank_runs
from fairmfu.metrics.core.messages import as_clause
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.throughput.messages import NO_STEP
from tests.support.effort import THOROUGH, sampled

Ingest = Callable[..., list[Outcome]]

OTHER_PROGRAM = "".join(f"epoch {n} | train loss 0.{n} | it/s 3.{n}\n" for n in range(50))
TITAN_PEAK = "[titan] 2026-01-02 03:04:05,678 - root - INFO - Peak FLOPS used for computing MFU: "
ONE_HEADER_LINE = f"{TITAN_PEAK}9.890e+14\n{TITAN_PEAK}9.890e+14\n"
HEADER = (
    f"{TITAN_PEAK}9.890e+14\n"
    "[titan] 2026-01-02 03:04:06,678 - root - INFO - CUDA capacity: X with 95.04GiB memory\n"
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
)
ENGINE_HEADER = "".join(line.example + "\n" for line in DEEPSPEED.facts)
PROFILE = "\n" + "".join(line + "\n" for line in DEEPSPEED.blocks[1].example)
EMPTY_STATE = json.dumps({"epoch": 0.1, "global_step": 2, "log_history": []}, indent=2)
OTHER_ITERATIONS = "".join(
    f"epoch 0, iteration {n}/40 | lr: 1.5e-06 | train_loss: 9.{n} | took: 7.5 | seen: {64 * n}\n"
    for n in (1, 2, 3)
)
"""Of a trainer that prints its steps as Megatron does, and everything else otherwise."""
SWISS_ARMY = "".join(
    f"[2026-03-01 10:0{n}:00,123] [INFO] [RANK 0]  iteration {50 * n:8d}/    2000 | elapsed time "
    f"per iteration (ms): 1200.0 | learning rate 1.000E-05 | total loss 1.{n}34567E+00 | loss "
    "scale 65536.0 |speed 200.00 samples/(min*GPU)\n"
    for n in (1, 2, 3)
)
"""Made from Megatron, and what is known of Megatron's trainings is not of its own."""
TWO_FORMATS = "".join(
    f.steps[0].example + "\n" for f in BUILT_IN_FORMATS if f.name in ("torchtitan", "xtuner-v1")
)
OF_AN_ENGINE = TORCHTITAN.steps[0].example + f"\n{DEEPSPEED.steps[0].example}" * 3
"""Torchtitan uses no engine, so this is of another run."""


@pytest.fixture
def good(logs: Path, titan: Callable[..., str]) -> Path:
    path = logs / "good.log"
    path.write_text(titan())
    return path


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", ["empty-file"]),
        (bytes(range(1, 32)) * 200, ["binary-file"]),
        (gzip.compress(OTHER_PROGRAM.encode())[:-9], ["damaged-file", "after line"]),
        (OTHER_PROGRAM.encode(), ["unknown-format", "known: torchtitan, "]),
        (
            ONE_HEADER_LINE.encode(),
            ["no-readable-step", "nearest: torchtitan: 2 of its header lines", "line 1"],
        ),
        (ENGINE_HEADER.encode(), ["no-readable-step", "nearest: deepspeed: ", "but no step line"]),
        (TWO_FORMATS.encode(), ["several-formats", "xtuner-v1: line 2"]),
        (OF_AN_ENGINE.encode(), ["several-formats", "deepspeed: line 2"]),
        (b"\n" * 9, ["unknown-format"]),
        (PROFILE.encode(), ["file-without-steps", "the output_file of DeepSpeed's flops profiler"]),
        (EMPTY_STATE.encode(), ["file-without-steps", "a Hugging Face checkpoint"]),
        (
            OTHER_ITERATIONS.encode(),
            ["no-readable-step", "megatron-deepspeed: 3 lines", "a time or rate\n"],
        ),
        (SWISS_ARMY.encode(), ["no-readable-step", "nearest: megatron-deepspeed: 3 lines"]),
    ],
    ids=[
        "empty",
        "binary",
        "broken-gz",
        "other",
        "no-steps",
        "engine",
        "two-formats",
        "other-run",
        "blank",
        "profile",
        "empty-state",
        "other-iterations",
        "swiss-army",
    ],
)
def test_a_bad_file_gets_one_message_and_harms_no_other(
    content: bytes, says: list[str], good: Path, ingest: Ingest, store: Store
) -> None:
    bad = good.with_name("bad.log")
    bad.write_bytes(content)
    kind, *texts = says
    first, second = ingest(bad, good)
    assert (first.status, first.kind, second.status) == ("failed", kind, "read")
    assert first.message.startswith(f"{bad}: ")
    assert [text for text in texts if text not in first.message] == []
    assert store.table("sources")["path"].to_list() == [str(good)]


def test_no_format_is_proposed_that_would_read_lines_without_a_time(
    tmp_path: Path, ingest: Ingest
) -> None:
    log = tmp_path / "run.log"
    log.write_text(OTHER_ITERATIONS)
    assert "--log-format megatron" not in ingest(log)[0].message
    log.write_text(OTHER_ITERATIONS.replace("took:", "elapsed time per iteration (ms):"))
    assert "--log-format megatron-deepspeed reads them anyway" in ingest(log)[0].message


def test_a_path_that_is_not_there_harms_no_other(good: Path, ingest: Ingest, store: Store) -> None:
    missing = good.with_name("missing.log")
    first, second = ingest(missing, good)
    assert (first.status, second.status) == ("failed", "read")
    assert first.message == f"{missing}: no such file or folder."
    assert store.table("runs").height == 1


def test_a_folder_without_a_log_harms_no_other(good: Path, ingest: Ingest, store: Store) -> None:
    folder = good.with_name("empty")
    (folder / ".hidden").mkdir(parents=True)
    for name in ("notes.md", "facts.toml", ".hidden/run.log"):
        (folder / name).write_text("text")
    first, second = ingest(folder, good)
    assert (first.status, second.status) == ("failed", "read")
    assert first.message == (
        f"{folder}: no log file in this folder. Skipped by file name: notes.md. To read one, "
        "give its path."
    )
    assert store.table("runs").height == 1


def test_a_bad_sidecar_fails_its_log_by_name(good: Path, ingest: Ingest) -> None:
    good.with_name("good.log.facts.toml").write_text("gpu = 8")
    (outcome,) = ingest(good)
    assert outcome.status == "failed"
    assert "good.log.facts.toml: no fact is called 'gpu'. Did you mean gpus" in outcome.message


@pytest.mark.parametrize("name", ["closed.log", "closed.log.gz", "closed.log.zst"])
def test_a_log_that_may_not_be_read_harms_no_other(
    name: str, good: Path, ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says what to do, however it is packed."""
    closed, open_ = good.with_name(name), Path.open

    def refuse(path: Path, *arguments: Any, **named: Any) -> object:
        if path == closed:
            raise PermissionError(13, "Permission denied")
        return open_(path, *arguments, **named)

    closed.write_text("text")
    monkeypatch.setattr(Path, "open", refuse)
    first, second = ingest(closed, good)
    assert (first.status, second.status) == ("failed", "read")
    why = "cannot be read: Permission denied. Fix: get read permission; ls -ld shows the owner"
    assert first.message == f"{closed}: {why}"


def test_a_file_of_another_program_in_a_folder_is_passed_over(good: Path, ingest: Ingest) -> None:
    good.with_name("other.log").write_text(OTHER_PROGRAM)
    good.with_name("titan.log").write_text(ONE_HEADER_LINE)
    status = {outcome.path.name: outcome.status for outcome in ingest(good.parent)}
    assert status == {"good.log": "read", "other.log": "passed", "titan.log": "failed"}


def test_a_link_to_a_folder_is_not_entered_and_one_to_another_file_is_a_log_or_none(
    good: Path, ingest: Ingest, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "run.log").write_text(good.read_text().replace("step:", "step: "))
    (outside / "secret.txt").write_text("a secret\n" * 30)
    (good.parent / "elsewhere").symlink_to(outside)
    (good.parent / "around").symlink_to(good.parent)
    (good.parent / "latest.log").symlink_to(good)
    (good.parent / "secret.log").symlink_to(outside / "secret.txt")
    told = {Path(one.given).name: one for one in ingest(good.parent)}
    status = {name: one.status for name, one in told.items()}
    assert status == {"good.log": "read", "secret.log": "passed"}
    assert not any("a secret" in one.message for one in told.values())


def test_a_config_that_is_a_program_is_read_and_not_run(good: Path, ingest: Ingest) -> None:
    trace = good.with_name("trace")
    config = good.parent / "vis_data" / "config.py"
    config.parent.mkdir()
    config.write_text(f"max_length = 2048\nopen({str(trace)!r}, 'w').write('run')\n")
    for program in ("config.json", "ds_config.json"):
        good.with_name(program).write_text(f"__import__('os').system('touch {trace}')")
    ingest(good)
    assert not trace.exists()


def test_a_launch_that_ended_before_its_first_step_is_listed_and_never_ranked(
    good: Path, ingest: Ingest, store: Store
) -> None:
    good.with_name("early.log").write_text(HEADER)
    assert [outcome.status for outcome in ingest(good.parent)] == ["read", "read"]
    runs = store.table("runs").sort("name")
    assert runs["outcome"].to_list() == ["out_of_memory", "incomplete"]
    began = [datetime(2026, 1, 2, 3, 4, 5, 678_000), datetime(2026, 1, 2, 3, 4, 1)]
    assert runs["started_at"].to_list() == began  # of its first line, though no step came
    metrics = analyse({name: store.table(name) for name in TABLES}).metrics.sort("name")
    assert metrics["steps"].to_list() == [0, 3]
    rows = {row["name"]: row for row in rank_runs(metrics).iter_rows(named=True)}
    assert rows["early"]["rank"] is None
    assert rows["early"]["not_ranked"] == [f"no TGS: {as_clause(NO_STEP())}"]


def test_a_launch_whose_steps_have_no_stamps_began_at_its_first_event(logs: Path) -> None:
    path = logs / "run.log"
    path.write_text(
        "[after model, optimizer, and learning rate scheduler are built] datetime: "
        f"2026-11-20 10:31:12 \n{MEGATRON_DEEPSPEED.steps[0].example}\n"
        "[exiting program at iteration 10] datetime: 2026-11-20 10:32:30 \n"
    )
    tables = read_log_tables(path)
    began = datetime(2026, 11, 20, 10, 31, 12)
    assert tables["runs"]["started_at"].to_list() == [began]
    assert tables["events"]["logged_at"].to_list() == [began, began + timedelta(seconds=78)]
    assert tables["steps"]["logged_at"].null_count() == 1


CRASH = (
    "[rank0]: Traceback (most recent call last):\n"
    "[rank0]: AssertionError: bwd_microstep timer has already been started\n"
    "[2026-11-20 15:05:10,351] [ERROR] [launch.py:259:sigkill_handler] ['python', 'train.py'] "
    "exits with return code = 1\n"
)


def test_a_launch_of_an_engine_alone_is_read_where_it_ended_before_its_first_step(
    good: Path, ingest: Ingest, store: Store
) -> None:
    """Else its script's own step lines may be what is not known."""
    early = good.with_name("early.log")
    trains = "".join(f"iter {n}: loss {9 - n}.25, 3.1 it/s\n" for n in range(5))
    for text in (ENGINE_HEADER, ENGINE_HEADER + trains + CRASH):
        early.write_text(text)
        (outcome, _) = ingest(good.parent)
        assert (outcome.status, "nearest: deepspeed" in outcome.message) == ("failed", True)
    early.write_text(ENGINE_HEADER + CRASH)
    ingest(good.parent)
    run = store.table("runs").filter(name="early").row(0, named=True)
    assert (run["log_format"], run["outcome"]) == ("deepspeed", "crashed")
    assert "AssertionError" in run["outcome_text"]
    metrics = analyse({name: store.table(name) for name in TABLES}).metrics
    assert metrics.filter(name="early")["steps"].to_list() == [0]


SHARED_HEADER = (
    "------------------------ arguments ------------------------\n"
    "  num_layers ...................................... 12\n"
    "-------------------- end of arguments ---------------------\n"
    " > padded vocab (size: 50257) with 175 dummy tokens (new size: 50432)\n"
)


@pytest.mark.parametrize(
    ("line", "log_format"),
    [
        ("using world size: 2, data-parallel-size: 2", "megatron-deepspeed"),
        (
            "NeoXArgs.configure_distributed_args() using world size: 2 and model-parallel size: 1",
            "gpt-neox",
        ),
    ],
)
def test_the_header_of_most_lines_is_meant_where_two_trainers_share_some(
    line: str, log_format: str, logs: Path
) -> None:
    path = logs / "run.log"
    path.write_text(SHARED_HEADER)
    with pytest.raises(FairmfuError, match="no step line"):
        read_log_tables(path)
    path.write_text(f"{SHARED_HEADER}{line}\n")
    assert read_log_tables(path)["runs"]["log_format"].to_list() == [log_format]


def test_a_folder_is_walked_in_order_without_what_is_no_log(good: Path) -> None:
    beside = ("a/model.safetensors", "a/.git/x.log", "a/training_args.bin", "a/trace.json.gz")
    of_jobs = ("gpt.3328593.o", "slurm-7.out", "gpt.e12")  # LSF, Slurm, PBS
    logs = ("b/run.log", "a/train.txt", "c.log.gz", "a/scalars.json.zst", *of_jobs)
    for name in (*logs, *beside):
        path = good.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("text")
    found = [str(Path(f.path).relative_to(good.parent)) for f in FileWalk().of(good.parent)]
    assert found == sorted([*logs, "good.log"])


def test_what_is_binary_is_passed_over_in_a_folder(good: Path, ingest: Ingest) -> None:
    """A core dump beside the log of the run that left it is no error of each night."""
    core = good.parent / "core.4711"
    core.write_bytes(bytes(range(1, 32)) * 200)
    other, log = ingest(good.parent)
    assert (log.status, other.status) == ("read", "passed")
    assert "binary data, not a log" in other.message
    (named,) = ingest(core)
    assert (named.status, named.message) == ("failed", other.message)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_hides_no_first_line(
    encoding: str, good: Path, ingest: Ingest, store: Store
) -> None:
    """Notepad and PowerShell write one."""
    lines = good.read_text().splitlines(keepends=True)
    step = next(line for line in lines if "step:" in line)
    good.write_text(f"# synthetic log, composed\n{step}", encoding=encoding)
    (outcome,) = ingest(good)
    assert (outcome.step_lines, outcome.other_lines) == (1, 0)
    assert store.table("runs")["synthetic"].to_list() == [True]
    (good.parent / "facts.toml").write_text("gpus = 4\n", encoding="utf-8-sig")
    good.write_text(step, encoding=encoding)
    (outcome,) = ingest(good)
    assert outcome.step_lines == 1
    assert "4" in store.table("facts").filter(name="gpus")["value"].to_list()


def test_a_last_line_that_is_cut_is_unread(good: Path, ingest: Ingest, store: Store) -> None:
    """A run that was killed, or a copy of a file that was being written."""
    text = good.read_text()
    good.write_text(text[: text.rindex("tps: 1,") + len("tps: 1,")])
    (outcome,) = ingest(good)
    assert (outcome.status, outcome.step_lines, outcome.unread_lines) == ("read", 2, 1)
    assert "cut off" in store.table("unread")["reason"][0]


TEXT_LOGS: Final = {
    "torchtitan": 1,
    "xtuner": 0,
    "xtuner-v1": 0,
    "megatron-deepspeed": 0,
    "deepspeed": 0,
    "hf-trainer": 1,
}
"""Formats whose lines are whole records, and the place of a step line that is not wrapped."""


@pytest.mark.parametrize("between", ["", " ", "\r"])
@pytest.mark.parametrize("name", TEXT_LOGS)
def test_two_records_in_one_line_are_unread(
    name: str, between: str, parse: Callable[..., ParsedSource], by_name: dict[str, LogFormat]
) -> None:
    """Two writers of one file, one of which lost its newline; a row of both would be of neither."""
    line = by_name[name].steps[TEXT_LOGS[name]].example
    parsed = parse(name, [line, f"{line}{between}{line}", line])
    assert (parsed.step_lines, parsed.unread_lines) == (2, 1)


def within(text: str, place: int) -> bool:
    """Whether a word of letters goes on there, as it does a letter before and behind."""
    return text[max(place - 2, 0) : place + 2].isalpha()


@pytest.mark.parametrize(
    ("log_format", "line"),
    [
        pytest.param(f, s, id=f"{f.name}-{n}")
        for f in BUILT_IN_FORMATS
        for n, s in enumerate(f.steps)
    ],
)
def test_no_cut_of_a_last_line_gives_a_wrong_number(log_format: LogFormat, line: StepLine) -> None:
    """Nor of a number that nothing is printed behind: it is as long as the one before.

    At each eighth place that is not within a word; `make thorough`: at each place.
    """
    apart = {"line", "extra"}
    whole = NumberedLine(1, line.example, cut=False)
    (expected,) = parse_lines([whole], log_format).launches[0].rows
    unsure = {"step"} if line.numbered else set()
    ends = range(len(line.example))
    for end in ends if THOROUGH else [end for end in ends if not within(line.example, end)][::8]:
        cut = NumberedLine(2, line.example[:end], cut=False, ended=False)
        rows = [r for x in parse_lines([whole, cut], log_format).launches for r in x.rows]
        for row in rows[1:]:
            columns = set(row) - apart - unsure
            assert {key: row[key] for key in columns} == {key: expected[key] for key in columns}


@pytest.mark.parametrize(
    ("text", "before", "whole"),
    [
        ("tokens_per_sec: 47", "tokens_per_sec: 4749.02", False),
        ("tokens_per_sec: 4749.0", "tokens_per_sec: 4748.02", False),
        ("tokens_per_sec: 512.50", "tokens_per_sec: 4748.02", True),
        ("samples/sec: 7.", "samples/sec: 7.25", False),
        ("step: 2", "step: 12.34", False),
        ("step: 10", "step: 9", True),
        ("step: 1", "step: 10", False),
        ("lr: 1e-0", "lr: 1e-05", False),
        ("mfu: 3", "mfu: 3.25%", False),
        ("mfu: 9.5%", "mfu: 13.25%", True),
    ],
)
def test_a_line_is_closed_as_the_one_before(text: str, before: str, *, whole: bool) -> None:
    assert ends_like(text, before) is whole


def test_a_whole_last_line_needs_no_newline(good: Path, ingest: Ingest) -> None:
    good.write_text(good.read_text().rstrip("\n"))
    (outcome,) = ingest(good)
    assert (outcome.step_lines, outcome.unread_lines) == (3, 0)


def test_strict_refuses_a_log_with_an_unread_line(good: Path, ingest: Ingest, store: Store) -> None:
    good.write_text(good.read_text() + "step:  4  loss:  1.0  memory: lots\n")
    (outcome,) = ingest(good, strict=True)
    assert outcome.status == "failed"
    assert outcome.message.startswith(f"{good}:4: looks like a step of torchtitan")
    assert "omit --strict to read the rest" in outcome.message
    assert store.known_sources() == {}


@pytest.mark.parametrize(
    "line",
    [
        f"step: {10**30}  loss:  1.0  memory:  1.00GiB(1.00%)  tps: 1",
        f"validate step: {10**30}",
        "step:  9  loss:  1e999  memory:  1.00GiB(1.00%)  tps: 1",
        "local batch size 99999999999999999999, sequence length 1, total steps 1",
        "Building llama3 8B with {\n" + "[" * 200_000 + "\n}",
        "step: \u0663  loss:  1.0  memory:  1.00GiB(1.00%)  tps: 1",
        "\ud800 \udfff",
    ],
    ids=["step", "event", "loss", "fact", "nested", "digits", "surrogates"],
)
def test_a_number_beyond_all_bounds_does_not_stop_a_log(
    line: str, good: Path, ingest: Ingest
) -> None:
    good.write_bytes(line.encode("utf-8", "surrogatepass") + b"\n" + good.read_bytes())
    (outcome,) = ingest(good)
    assert (outcome.status, outcome.message) == ("read", "")
    assert outcome.step_lines >= 3


TEXTS: Final = (" ", "\t", "-", "1", "[", "a ", "1;", "[1;", "iteration ", "\r")
EACH_OF_THEM: Final = tuple(product(BUILT_IN_FORMATS, TEXTS))


@pytest.mark.parametrize(
    ("log_format", "text"),
    # Each text with every seventh format; `make thorough`: with each.
    [pytest.param(f, t, id=f"{f.name}-{t}") for f, t in EACH_OF_THEM[:: 1 if THOROUGH else 7]],
)
def test_a_long_line_of_one_text_takes_no_time(
    log_format: LogFormat, text: str, tmp_path: Path
) -> None:
    line = (text * 100_000)[:100_000]
    path = tmp_path / "run.log"
    path.write_text(line)
    began = time.process_time()
    parse_lines([NumberedLine(1, line, cut=False)], log_format)
    with pytest.raises(FairmfuError):
        detect_format(path, [Chunk(1, line.encode() + b"\n")], (log_format,))
    assert time.process_time() - began < 2


def test_a_synthetic_log_is_read_as_such(good: Path) -> None:
    good.write_text("# synthetic log: composed\n" + good.read_text())
    assert read_log_tables(good)["runs"]["synthetic"].to_list() == [True]


HOSTILE = ("9" * 5000, "1e999", "nan", "[" * 3000, '"x"')


def examples(log_format: LogFormat) -> list[str]:
    lines = [line.example for line in (*log_format.facts, *log_format.events, *log_format.steps)]
    return [*lines, *(text for block in log_format.blocks for text in block.example)]


@sampled(3)
@pytest.mark.parametrize("log_format", BUILT_IN_FORMATS, ids=lambda f: str(f.name))
def test_no_value_of_a_line_ends_the_reading(log_format: LogFormat, tmp_path: Path) -> None:
    """Each number of each example in turn is one that no machine holds, or none at all.

    One of these values by turns; `make thorough`: each.
    """
    path = tmp_path / "x.log"
    numbers = [
        (text, number)
        for text in examples(log_format)
        for number in re.finditer(r"\d+(?:\.\d+)?", text)
    ]
    for turn, value in enumerate(HOSTILE):
        lines = [log_format.steps[0].example] * 3
        for place, (text, number) in enumerate(numbers):
            if THOROUGH or place % len(HOSTILE) == turn:
                lines.append(text[: number.start()] + value + text[number.end() :])
        path.write_text("\n".join(lines) + "\n")
        with suppress(FairmfuError):
            read_log_tables(path)


RUNS = (" ", "0", "a", "a ", "0,", "{", "[", "(", "'", '"')
"""What a line may hold very often."""
WORDS = re.compile(r"\d+|[A-Za-z]+|\s+|\W")


def patterns(form: LogFormat | None) -> dict[str, list[str]]:
    """What is searched in lines, and texts that it matches, as far as there are any."""
    if form is None:
        return {line.regex: [line.example] for line in ENDING_EVENT_LINES}
    lines = (*form.steps, *form.events, *form.facts)
    out = {line.regex: [line.example] for line in lines}
    named = (form.signature, form.looks_like_step, form.launch, form.late, form.clock, form.header)
    blocks = (part for block in form.blocks for part in (block.start, block.end, block.others))
    for pattern in filter(None, (*named, *blocks, form.noise)):
        out[pattern] = [text for text in examples(form) if re.search(pattern, text)][:3]
    for step in form.steps:
        if step.pair and step.pair != JSON_PAIRS:
            out.setdefault(step.pair, []).append(step.example)
    return out


def long_lines(pattern: str, texts: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """How lines begin, what they hold many times, and how they end, where that may take long."""
    for part in (*RUNS, *spelled_out(pattern)):
        yield "", part, ""
    for text in texts:
        match = re.search(pattern, text)
        text = text[match.start() if match else 0 :]  # noqa: PLW2901 - from where it matters
        ends = [word.end() for word in WORDS.finditer(text)]
        for end in ends[:: len(ends) // 20 + 1]:
            for rest in ("", text[end:]):
                yield "", text[:end], rest
                for run in RUNS:
                    yield text[:end], run, rest


def spelled_out(pattern: str) -> Iterator[str]:
    """The literals of a pattern, alone and all up to one."""
    literals = [text for text in prefilter._literals(parse_pattern(pattern) or ()) if text]
    yield from literals
    yield from map("".join, (literals[:count] for count in range(2, len(literals) + 1)))


def seconds(regex: Regex, line: tuple[str, str, str], size: int) -> float:
    begins, often, ends = line
    text = begins + often * (size // len(often)) + ends
    begun = time.process_time()
    regex.search(text)
    return time.process_time() - begun


def grows(regex: Regex, line: tuple[str, str, str], short: int, long: int) -> float:
    """How many times longer the search takes in the long line; 0 where it takes no time at all."""
    least = 0.1  # of the long line; of the short one, if the search is quadratic
    if seconds(regex, line, short) < least * (short / long) ** 2:
        return 0.0
    taken = min(seconds(regex, line, long) for _ in range(2))
    return taken / min(seconds(regex, line, short) for _ in range(2)) if taken > least else 0.0


@sampled(3)
@pytest.mark.parametrize(
    "form", [None, *BUILT_IN_FORMATS], ids=lambda f: f.name if f else "endings"
)
def test_no_pattern_takes_long_over_a_long_line(form: LogFormat | None) -> None:
    """A line of 256 kB that is searched in quadratic time holds up a night.

    Lines of one text, those where newlines were lost, and those that begin or end like one of the
    pattern's own. A short one tells which are worth a longer one. A line four times as long takes
    four times as long on any machine; sixteen times where the search is quadratic.
    """
    slow = []
    for pattern, texts in patterns(form).items():
        regex = Regex(pattern)
        for line in long_lines(pattern, texts):
            if seconds(regex, line, 4_000) > 5e-4 and grows(regex, line, 15_000, 60_000) > 8:
                slow.append((pattern, line))
                break
    assert not slow, slow


def event_file(path: Path, *records: bytes) -> Path:
    with path.open("wb") as stream:
        writer = RecordWriter(stream)
        for record in (event_pb2.Event(file_version="brain.Event:2").SerializeToString(), *records):
            writer.write(record)
    return path


def scalar(tensor: dict[str, Any]) -> bytes:
    summary = {"value": [{"tag": "train/loss", "tensor": tensor}]}
    return bytes(event_pb2.Event(step=1, wall_time=1e9, summary=summary).SerializeToString())


@pytest.mark.parametrize(
    "tensor",
    [
        {"dtype": 99},
        {"dtype": 1, "tensor_shape": {"dim": [{"size": 10**12}]}},
        {"dtype": 1, "float_val": [2.5], "tensor_shape": {"dim": [{"size": 2**42}]}},
        {"dtype": 1, "tensor_content": b"abc", "tensor_shape": {"dim": [{"size": 1}]}},
        {"dtype": 10, "bool_val": [True], "tensor_shape": {"dim": [{"size": 1}]}},
    ],
    ids=["type", "shape", "repeated", "content", "bool"],
)
def test_a_tensor_that_is_no_number_hides_no_other(tensor: dict[str, Any], tmp_path: Path) -> None:
    good = scalar({"dtype": 1, "float_val": [2.5]})
    path = event_file(tmp_path / "events.out.tfevents.1", scalar(tensor), good)
    odd, number = (text for values in read_event_values(path) for text in values.texts)
    assert '"kind": "other"' in odd
    assert '"value": 2.5' in number


def test_a_record_that_is_no_event_is_said(tmp_path: Path) -> None:
    path = event_file(tmp_path / "events.out.tfevents.1", b"\xff\xff\xff")
    with pytest.raises(UnreadableSourceError, match="damaged TensorBoard event file"):
        list(read_event_values(path))
