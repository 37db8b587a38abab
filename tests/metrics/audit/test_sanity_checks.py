"""Values that no run can have are told with where they stand, and change no figure."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.ingest.pipeline.ingest_run import ingest_paths
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.audit import messages
from fairmfu.metrics.audit.sanity_checks import sanity_warnings
from fairmfu.metrics.core.messages import NOT_RANKED, Message, MessageKind
from fairmfu.metrics.core.run_messages import IMPOSSIBLE_VALUE
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.throughput.messages import COUNTS_APART
from fairmfu.reports import current_metrics
from tests.metrics.throughput.test_throughput import frame, steps
from tests.support.folders import ROOT
from tests.support.kinds import of_kind

LOG = ROOT / "sample_logs/synthetic/torchtitan/llama3-8b-8xh100-torchtitan.log"
XTUNER = LOG.parents[1] / "xtuner/llama3-8b-8xh100-xtuner.log"
STAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}")
Change = Callable[[int, str], str]

IMPOSSIBLE = (
    *(messages.RATE_NOT_POSITIVE, messages.TIME_NOT_POSITIVE, messages.FIGURE_NOT_FINITE),
    *(messages.MFU_ABOVE_ONE, IMPOSSIBLE_VALUE),
)
SET_BACK = (
    *(messages.CLOCK_SET_BACK, messages.COUNTERS_JUMP, messages.EPOCH_BACK),
    *(messages.RUNS_INTERLEAVED, messages.STEPS_GO_BACK),
)
"""Kinds of messages that something goes back: stamps, counts, epochs or steps."""


def told(
    tmp_path: Path, change: Change, log: Path = LOG, facts: tuple[str, ...] = ()
) -> tuple[dict[str, list[str]], float | None]:
    """Warnings of a sample with its step lines changed, and its TGS; of several launches, both."""
    rows = analysed(tmp_path, change, log, facts)
    columns = ("warnings", "warning_kinds")
    return {name: [one for row in rows for one in row[name]] for name in columns}, rows[0]["tgs"]


def analysed(
    tmp_path: Path, change: Change, log: Path = LOG, facts: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    """Its metrics, launch by launch."""
    tmp_path.mkdir(exist_ok=True)
    count, lines = 0, []
    for line in log.read_text().splitlines():
        is_step = "step:" in line or "Iter(train)" in line
        lines.append(change(count, line) if is_step else line)
        count += is_step
    (tmp_path / "run.log").write_text("\n".join(lines) + "\n")
    tables = read_log_tables(tmp_path / "run.log", flag_facts=facts_from_flags(facts))
    return analyse(tables).metrics.sort("launch").to_dicts()


def rate(text: str, *at: int) -> Change:
    return lambda n, line: re.sub(r"tps: [\d,]+", f"tps: {text}", line) if n in at else line


def moved(by: timedelta, after: int) -> Change:
    def change(n: int, line: str) -> str:
        if n < after:
            return line
        stamp = STAMP.search(line)
        assert stamp is not None
        then = datetime.strptime(stamp[0], "%Y-%m-%d %H:%M:%S,%f") + by
        return line.replace(stamp[0], f"{then:%Y-%m-%d %H:%M:%S},{then.microsecond // 1000:03}")

    return change


def step_time(text: str, *at: int) -> Change:
    return lambda n, line: re.sub(r"(?<= time: )[\d.]+", text, line) if n in at else line


def mfu(n: int, line: str) -> str:
    return re.sub(r"mfu: [\d.]+%", "mfu: 117.20%", line) if n == 3 else line


def as_it_was(_: int, line: str) -> str:
    return line


@cache
def unchanged(log: Path = LOG) -> dict[str, Any]:
    """The metrics of a sample's one launch."""
    (row,) = analyse(read_log_tables(log)).metrics.to_dicts()
    return row


def test_a_log_as_it_was_has_no_such_warning() -> None:
    assert not of_kind(unchanged(), *IMPOSSIBLE, *SET_BACK)


@pytest.mark.parametrize(
    ("change", "kind", "where"),
    [
        (rate("0", 7), messages.RATE_NOT_POSITIVE, r"\(line \d+, step \d+\)"),
        (rate("0", 7, 9, 11), messages.RATE_NOT_POSITIVE, r"\(3 lines, first at line \d+, step"),
        (mfu, messages.MFU_ABOVE_ONE, r"\(line \d+, step \d+\)"),
        (
            moved(-timedelta(hours=10), 12),
            messages.CLOCK_SET_BACK,
            r"\(9 lines, first at line \d+, step",
        ),
    ],
)
def test_it_is_told_with_where_it_stands(
    change: Change, kind: MessageKind, where: str, tmp_path: Path
) -> None:
    warnings, tgs = told(tmp_path / "changed", change)
    (said,) = of_kind(warnings, kind)
    assert re.search(where, said)
    assert tgs == pytest.approx(unchanged()["tgs"], rel=2e-3)


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("0.0000", messages.TIME_NOT_POSITIVE, r"\(line \d+, step \d+\)"),
        ("-8.0000", messages.TIME_NOT_POSITIVE, r"\(line \d+, step \d+\)"),
        ("nan", messages.FIGURE_NOT_FINITE, r"\(line \d+, step \d+\)"),
        (
            "inf",
            IMPOSSIBLE_VALUE,
            r"^elapsed_s=inf \[s\] is impossible: it is up to 100,000,000 \(line \d+\)",
        ),
    ],
)
def test_a_step_time_that_none_can_have_is_told(
    text: str, kind: MessageKind, words: str, tmp_path: Path
) -> None:
    warnings, tgs = told(tmp_path / "changed", step_time(text, 9), XTUNER)
    (said,) = of_kind(warnings, kind)
    assert re.search(words, said)
    assert tgs == pytest.approx(unchanged(XTUNER)["tgs"], rel=2e-3)


def test_a_clock_that_jumps_forward_is_told_and_is_no_part_of_the_pace(tmp_path: Path) -> None:
    (row,) = analysed(tmp_path / "changed", moved(timedelta(hours=2), 12))
    (said,) = [one for one in row["warnings"] if "time stamps" in one.lower()]
    assert "7,200.0 s more by time stamps in 1 of 20 windows" in said
    assert "or a clock change?" in said
    assert row["tgs"] == pytest.approx(unchanged()["tgs"], rel=2e-3)


def test_steps_that_go_back_without_a_start_are_two_launches_and_told(tmp_path: Path) -> None:
    def again(n: int, line: str) -> str:
        return re.sub(r"step: *\d+", f"step: {n - 11:2}", line) if n >= 12 else line

    first, second = analysed(tmp_path / "changed", again)
    assert not of_kind(first, *SET_BACK)
    (said,) = of_kind(second, *SET_BACK)
    assert re.match(r"Steps go back to 1 at line \d+ without a start line:", said)
    for row in (first, second):
        assert row["tgs"] == pytest.approx(unchanged()["tgs"], rel=2e-3)


def row_of_a_table(n: int, line: str) -> str:
    """The step lines alone, unstamped; the last is of an earlier step that no line has."""
    line = STAMP.sub("", line)
    return re.sub(r"step: *\d+", "step: 5", line) if n == 20 else line


def test_rows_of_a_table_of_several_runs_are_no_rate_of_one(tmp_path: Path) -> None:
    (row,) = analysed(tmp_path / "changed", row_of_a_table)
    (said,) = of_kind(row, messages.STEPS_OUT_OF_ORDER)
    assert re.search(r"\(line \d+, step 5\): lines of several runs", said)
    assert said.startswith(NOT_RANKED)


def of_twice_the_length(n: int, line: str) -> str:
    """The step lines alone, unstamped; from the 15th on as of a run that counts twice the FLOPs."""
    line = STAMP.sub("", line)
    figures = re.search(r"tflops: ([\d.]+)  mfu: ([\d.]+)%", line)
    assert figures is not None
    twice = f"tflops: {2 * float(figures[1]):.2f}  mfu: {2 * float(figures[2]):.2f}%"
    return line.replace(figures[0], twice) if n >= 14 else line


def test_lines_whose_token_costs_other_flops_are_no_rate_of_one(tmp_path: Path) -> None:
    (row,) = analysed(tmp_path / "changed", of_twice_the_length)
    (said,) = of_kind(row, messages.FLOPS_JUMP)
    assert re.search(r"\(\d lines, first at line \d+, step \d+\): lines of several runs", said)
    assert said.startswith(NOT_RANKED)
    assert not of_kind(unchanged(), messages.FLOPS_JUMP)


@pytest.mark.parametrize(
    ("rates", "claims", "odd"),
    [
        ((68.0, 24468.0, 24500.0), (0.02, 7.16, 7.17), []),  # of a slow step two digits are left
        ((24468.0, 24468.0, 24468.0), (7.16, 7.16, 7.21), []),
        ((24468.0, 24468.0, 24468.0), (7.16, 7.16, 7.30), [3]),
        ((20.0, 30.0, 40.0), (0.01, 0.01, 0.02), []),  # none tells what a token costs
        ((0.0, 24468.0, float("nan")), (0.0, 7.16, 7.16), []),
    ],
)
def test_rounding_gives_a_token_no_other_flops(
    rates: tuple[float, ...], claims: tuple[float, ...], odd: list[int]
) -> None:
    rows = [
        {"line": n, "step": 10 * n, "logged_tgs": rate, "logged_tflops": claim}
        for n, (rate, claim) in enumerate(zip(rates, claims, strict=True), 1)
    ]
    of_titan = frame("runs", {"run_id": "r", "launch": 1, "log_format": "torchtitan"})
    jump = messages.FLOPS_JUMP.identifier
    warnings = sanity_warnings(steps(*rows), of_titan).get("r", [])
    where = [re.search(r"\(line (\d)", one) for one in warnings if one.kind == jump]
    assert [int(one[1]) for one in where if one is not None] == odd
    of_batches = of_titan.with_columns(quirks=pl.lit([]))  # whose lengths may differ
    assert jump not in [one.kind for one in sanity_warnings(steps(*rows), of_batches).get("r", [])]


@pytest.mark.parametrize(
    ("late", "told"),
    [
        ({"logged_tgs": 5.0}, True),
        ({"loss": 2.0}, False),  # a dict of the Trainer beside the bars of another stream
        (
            {"logged_tgs": 5.0, "logged_at": datetime(2026, 1, 1, 9, 59, 50)},
            False,
        ),  # a rank's, late
        ({"logged_tgs": 5.0, "logged_at": datetime(2026, 1, 1, 11)}, True),
    ],
)
def test_a_step_behind_a_later_one_is_late_or_of_another_run(late: dict, *, told: bool) -> None:
    at_ten = {"logged_at": datetime(2026, 1, 1, 10)} if "logged_at" in late else {}
    rows = [{"step": 20, "logged_tgs": 5.0} | at_ten, {"step": 10} | late]
    about = frame("runs", {"run_id": "r", "launch": 1})
    assert bool(sanity_warnings(steps(*rows), about)) is told


def test_copies_of_other_ranks_stand_behind_later_steps(tmp_path: Path) -> None:
    text = "".join(line for line in LOG.read_text().splitlines(keepends=True) if "step:" in line)
    (tmp_path / "one.log").write_text(STAMP.sub("", text.replace("[rank0]:", "")) * 2)
    warnings, _ = told(tmp_path / "changed", as_it_was, tmp_path / "one.log")
    assert not of_kind(warnings, messages.STEPS_OUT_OF_ORDER)


def test_a_second_launch_that_prints_its_start_goes_back_to_nothing(tmp_path: Path) -> None:
    twice = tmp_path / "twice.log"
    text = LOG.read_text()
    twice.write_text(text + re.sub(r"\b2026-", "2027-", text))
    rows = analysed(tmp_path / "changed", as_it_was, twice)
    assert len(rows) == 2
    assert not [one for row in rows for one in of_kind(row, messages.STEPS_GO_BACK)]


def test_tokens_that_contradict_batch_and_length_cost_the_rank(tmp_path: Path) -> None:
    (row,) = analysed(tmp_path / "changed", as_it_was, facts=("global_batch_size=4096",))
    (said,) = of_kind(row, COUNTS_APART)
    assert ": global batch " in said
    assert "tokens per GPU and step" in said
    assert said.startswith(NOT_RANKED)
    assert row["tgs"] == pytest.approx(unchanged()["tgs"], rel=2e-3)


def test_a_stamp_a_little_behind_another_is_no_wonder(tmp_path: Path) -> None:
    warnings, _ = told(tmp_path, lambda n, x: moved(-timedelta(seconds=8), 0)(n, x) if n % 2 else x)
    assert not of_kind(warnings, *SET_BACK)


STATE = (
    '{{\n  "log_history": [\n    {{\n      "loss": 2.5,\n      "num_input_tokens_seen": 4096,\n'
    '      "step": {first}\n    }},\n    {{\n      "loss": 2.4,\n'
    '      "num_input_tokens_seen": 8192,\n      "step": 10,\n      "train_runtime": {runtime}\n'
    "    }}\n  ],\n"
    '  "max_steps": 10\n}}\n'
)
TIMER = (
    "[2026-11-20 15:01:{n:02},149] [INFO] [timer.py:264:stop] epoch=0/micro_step={n}/"
    "global_step={n}, RunningAvgSamplesPerSec={rate}, CurrSamplesPerSec={rate}, "
    "MemAllocated=0.44GB, MaxMemAllocated=0.44GB\n"
)
WAITING = (
    "[XTuner][RANK 0][2026-11-20 15:49:{n:02}][INFO] Epoch 1 Step {n}/20 data_time: 0.0080 "
    "lr: 5.000000e-04 time: 0.0 text_tokens: 1887 reduced_llm_loss: 6.99, local_loss: 6.99 "
    "grad_norm: 4.09 max_memory: 0.77 GB reserved_memory: 0.77 GB tgs: 2545.1 eta: 0:00:13 \n"
)
ODD: dict[str, tuple[str, str]] = {
    "a peak that is cut off while it is written": (
        "run.log",
        LOG.read_text() + "[rank0]:[titan] 2026-11-20 15:53:47,308 - root - INFO - Peak FLOPS used "
        "for computing MFU: 3.120e+\n",
    ),
    "infinite rates": (
        "run.log",
        "".join(TIMER.format(n=n, rate="inf") for n in (2, 4, 6)),
    ),
    "a first step 0 with tokens": ("trainer_state.json", STATE.format(first=0, runtime=9.5)),
    "an infinite run time": ("trainer_state.json", STATE.format(first=5, runtime="1e400")),
    "nothing but waiting": ("run.log", "".join(WAITING.format(n=n) for n in range(2, 9))),
}


@pytest.mark.parametrize("what", ODD)
def test_an_odd_log_costs_no_other_its_figures(what: str, tmp_path: Path) -> None:
    """Each ended every table of its store."""
    name, text = ODD[what]
    (tmp_path / name).write_text(text)
    store = Store(tmp_path / "store")
    ingest_paths([tmp_path / name, LOG], store, flag_facts=facts_from_flags(["gpus=8"]))
    rows = analyse(store.tables()).metrics
    assert rows.height == (
        1 if text.startswith(LOG.read_text()) else 2
    )  # a copy of LOG is that run
    assert rows.filter(pl.col("log_format") == "torchtitan")["tgs"].max() == pytest.approx(
        6400, rel=0.01
    )


def of_one_run(*lines: tuple[int, int, int | None], rank: str | None = None) -> list[Message]:
    """Warnings of lines that print a step, the samples since the start, and a batch."""
    rows = [
        {"step": step, "consumed_samples": samples, "samples": batch, "rank": rank}
        for step, samples, batch in lines
    ]
    return sanity_warnings(steps(*rows), frame("runs", {"run_id": "r", "launch": 1})).get("r", [])


@pytest.mark.parametrize(
    "lines",
    [
        [(10, 640, 64), (20, 1280, 64), (30, 640, 64)],
        [(10, 640, None), (20, 1280, None), (30, 320, None)],
        [(10, 640, 64), (20, 1280, 64), (100, 51_200, 512)],
        [(10, 640, 64), (20, 1280, 64), (100, 3200, 64)],
    ],
    ids=["back", "back without a batch", "more than the larger batch", "fewer than the smaller"],
)
def test_experiments_one_behind_the_other_are_told_by_what_they_count(
    lines: list[tuple[int, int, int | None]],
) -> None:
    (said,) = of_one_run(*lines)
    assert said.kind == messages.COUNTERS_JUMP.identifier
    assert f"(line 3, step {lines[2][0]}): lines of several runs" in said
    assert said.startswith(NOT_RANKED)


@pytest.mark.parametrize(
    "lines",
    [
        [(10, 640, 64), (20, 1280, 64), (120, 7680, 64)],
        [(10, 640, 64), (20, 1600, 128), (30, 2880, 128)],  # a batch that grew between two lines
        [(10, 640, 64), (20, 1280, 64), (20, 1280, 64), (30, 960, 64)],  # copies of ranks
    ],
    ids=["excerpt", "ramp-up", "copies"],
)
def test_counts_of_one_run_are_no_others(lines: list[tuple[int, int, int | None]]) -> None:
    assert not of_one_run(*lines)


def at_levels(*levels: tuple[int, float, float], every: str = "logged_tgs") -> list[Message]:
    """Warnings of lines at several levels: how many, their memory [GB] and their speed."""
    rows = []
    for lines, memory, speed in levels:
        for n in range(lines):
            wobble = 1 + 0.004 * (n * 7 % 5 - 2) - 0.3 * (n == 5)  # one of them holds a pause
            pace = {"logged_tgs": speed * wobble, "elapsed_s": 1 / (speed * wobble)}[every]
            about = {"peak_memory_bytes": (memory + n % 2 / 100) * 1e9, every: pace}
            rows.append({"step": 10 * len(rows) + 10, "loss": 5.0} | about)
    return sanity_warnings(steps(*rows), frame("runs", {"run_id": "r", "launch": 1})).get("r", [])


@pytest.mark.parametrize("every", ["logged_tgs", "elapsed_s"])
@pytest.mark.parametrize("other", [(60.2, 6000.0), (31.5, 6000.0), (41.9, 3700.0)])
def test_experiments_whose_steps_go_on_are_told_by_memory_and_speed(
    other: tuple[float, float], every: str
) -> None:
    """Excerpts of a page, one behind the other, of a framework that counts nothing."""
    (said,) = at_levels((1, 20.0, 900.0), (15, 40.1, 4000.0), (12, *other), every=every)
    assert said.kind == messages.LEVEL_CHANGE.identifier
    assert re.search(r"\(line \d+, step 170\)", said)
    assert said.startswith(NOT_RANKED)


@pytest.mark.parametrize(
    "levels",
    [
        [(1, 20.0, 900.0), (30, 40.1, 4000.0)],
        [(15, 40.1, 4000.0), (15, 40.1, 6000.0)],  # a slow node that was replaced, say
        [(15, 40.1, 4000.0), (15, 60.2, 4000.0)],
        [(15, 40.1, 4000.0), (15, 40.3, 6000.0)],
        [(15, 40.1, 4000.0), (15, 60.2, 4100.0)],
        [(5, 40.1, 4000.0), (25, 60.2, 6000.0)],  # a slow start
        [(12, 40.1, 4000.0), (12, 60.2, 6000.0), (12, 40.1, 4000.0)],  # and back: no other run's
    ],
)
def test_what_a_run_may_do_is_no_other_run(levels: list[tuple[int, float, float]]) -> None:
    assert not at_levels(*levels)


def told_twice(figures: list[tuple[int, int, int]], log_format: str = "hf-trainer") -> list[bool]:
    """Of lines with these losses, learning rates and epochs: whether each warning is of no rank."""
    rows = [
        {
            "step": n,
            "loss": 1 + loss / 100,
            "grad_norm": 1.0,
            "learning_rate": rate / 1e6,
            "extra": f'{{"epoch": "{epoch / 100}"}}',
        }
        for n, (loss, rate, epoch) in enumerate(figures, 1)
    ]
    runs = frame("runs", {"run_id": "r", "launch": 1, "log_format": log_format})
    return [NOT_RANKED in one for one in sanity_warnings(steps(*rows), runs).get("r", [])]


TWICE = [(n // 2, n // 2, n // 2) for n in range(40)]


@pytest.mark.parametrize(
    ("figures", "is_told"),
    [
        (TWICE, True),
        ([(n, n, n) for n in range(40)], False),
        ([(0, n, 0) for n in range(40)], False),  # the loss alone stays
        ([(0, 0, n) for n in range(40)], False),  # and so does the rate
        ([(n // 2 if n < 6 else n, n, n) for n in range(40)], False),
        ([*TWICE[:6], *((n, n, n) for n in range(6, 40))], False),  # by chance
    ],
)
def test_figures_that_stand_twice_are_copies_of_one_step(
    figures: list[tuple[int, int, int]], *, is_told: bool
) -> None:
    """Two nodes that print the Trainer's dicts into one file, without a tag."""
    assert told_twice(figures) == [True] * is_told


@pytest.mark.parametrize("log_format", ["llamafactory", "xtuner", "hf-trainer-state"])
def test_figures_beside_a_printed_step_are_its_own(log_format: str) -> None:
    """A small loss of four digits, at a rate that stays: a fifth of the lines, and no rank."""
    assert told_twice(TWICE, log_format) == []


def of_writers(*lines: dict, log_format: str = "torchtitan") -> list[Message]:
    """Warnings of lines of one launch that no run can have, and that cost the rank."""
    runs = frame("runs", {"run_id": "r", "launch": 1, "log_format": log_format})
    told = sanity_warnings(steps(*lines), runs).get("r", [])
    return [one for one in told if one.startswith(NOT_RANKED)]


@pytest.mark.parametrize("rank", [None, "0"])
@pytest.mark.parametrize("every", [1, 2])
def test_a_step_of_two_losses_is_of_two_runs(every: int, rank: str | None) -> None:
    """Two jobs of one output file at one pace, one of which may print each second step alone."""
    jobs = [(n, 9.0 - n / 20, 0.0) for n in range(10, 60, 10)]
    jobs += [(n, 8.0 - n / 20, 0.4) for n in range(10, 60, 10 * every)]
    rows = [
        {"step": n, "loss": loss, "logged_tgs": 6400.0, "rank": rank}
        | {"logged_at": datetime(2026, 3, 6) + timedelta(seconds=n + late)}
        for n, loss, late in sorted(jobs, key=lambda job: job[0] + job[2])
    ]
    (said,) = of_writers(*rows)
    assert said.kind == messages.STEPS_REPEATED.identifier
    assert re.search(r"\(\d lines, first at line 2, step 10\)", said)


@pytest.mark.parametrize(
    "copy",
    [
        {"logged_tgs": 6395.0, "peak_memory_bytes": 5e9},  # ranks that do not name themselves
        {"loss": 9.0004},  # printed more finely
        {"loss": -1.0},  # another pipeline stage
        {"loss": float("nan")},
        {"loss": None},
        {"rank": "1", "loss": 8.0},
    ],
)
def test_a_step_that_other_ranks_print_too_is_of_one_run(copy: dict) -> None:
    lines = [{"step": n, "rank": "0", "loss": 9.0, "logged_tgs": 6400.0} for n in (1, 2, 3)]
    assert not of_writers(*(one for line in lines for one in (line, line | copy)))


@pytest.mark.parametrize(
    ("other", "log_format", "is_told"),
    [
        ({"logged_samples_per_second": 40.5}, "deepspeed", True),
        ({}, "deepspeed", False),
        ({"logged_samples_per_second": None, "learning_rate": 1e-5}, "deepspeed", False),
        (
            {"logged_samples_per_second": 40.5, "elapsed_s": 0.2},
            "deepspeed",
            False,
        ),  # the pipeline's
        ({"logged_samples_per_second": 40.5, "epoch": 1}, "deepspeed", False),  # counts anew
        ({"logged_samples_per_second": 40.5}, "torchtitan", False),  # a rank's own
    ],
)
def test_a_step_of_two_rates_is_of_two_runs_where_one_process_prints(
    other: dict, log_format: str, *, is_told: bool
) -> None:
    """DeepSpeed's engine prints no loss."""
    lines = [{"step": n, "epoch": 0, "logged_samples_per_second": 41.0} for n in (1, 2, 3)]
    rows = [one for line in lines for one in (line, line | other)]
    assert bool(of_writers(*rows, log_format=log_format)) is is_told


@pytest.mark.parametrize(
    ("other", "is_told"),
    [
        ({"logged_at": None}, False),  # a handler of the root logger, without a stamp
        ({"logged_at": datetime(2026, 3, 6, 0, 0, 0, 1000)}, False),  # of another handler
        ({"logged_at": datetime(2026, 3, 6, 0, 0, 2)}, True),  # the critic's engine
        ({"learning_rate": 2e-5}, True),
    ],
)
def test_a_line_of_the_engine_that_two_handlers_print_is_of_one_run(
    other: dict, *, is_told: bool
) -> None:
    at = datetime(2026, 3, 6)
    lines = [
        {"step": n, "skipped_steps": 0, "learning_rate": 1e-5, "logged_at": at} for n in (1, 2, 3)
    ]
    for rows in ([line, line | other] for line in lines), ([line | other, line] for line in lines):
        told = of_writers(*(one for pair in rows for one in pair), log_format="deepspeed")
        assert bool(told) is is_told


def of_dicts(*jobs: tuple[float, int], name: str = "consumed_tokens") -> list[dict]:
    """Dicts of the Trainer, whose steps are counted, of jobs with a pace and a batch."""
    dicts = sorted((pace * n, n, batch) for pace, batch in jobs for n in range(1, 9))
    return [
        {"step": count, "loss": 5.0 - n / 9, "since_start_s": at}
        | ({"extra": f'{{"epoch": "{n / 100}"}}'} if name == "extra" else {name: float(n * batch)})
        for count, (at, n, batch) in enumerate(dicts, 1)
    ]


@pytest.mark.parametrize(
    ("name", "paces", "is_told"),
    [
        ("consumed_tokens", [1.0, 1.0], True),
        ("consumed_tokens", [1.0, 1.03], True),
        ("consumed_non_padding", [1.0, 1.0], True),
        ("extra", [1.0, 1.3], True),
        ("extra", [1.0, 1.0], False),  # of two decimals: small steps stay where they are
        ("consumed_tokens", [1.0], False),
        ("extra", [1.0], False),
    ],
)
def test_steps_that_are_counted_are_of_one_run_where_tokens_and_epoch_go_on(
    name: str, paces: list[float], *, is_told: bool
) -> None:
    rows = of_dicts(*((pace, 4096) for pace in paces), name=name)
    assert bool(of_writers(*rows, log_format="hf-trainer")) is is_told


@pytest.mark.parametrize("name", ["consumed_tokens", "consumed_non_padding"])
@pytest.mark.parametrize(("before", "is_told"), [(1e9, False), (7e7, False), (0, True)])
def test_tokens_of_four_digits_stand_still_while_steps_are_trained(
    before: float, name: str, *, is_told: bool
) -> None:
    """Since transformers 5.0 the console prints so many: '1.305e+09' may hold for 20 steps."""
    tokens = [before + 4096 * n for n in range(1, 41)]
    rows = [
        {"step": n, "loss": 5.0 - n / 100, name: float(f"{of:.4g}")}
        for n, of in enumerate(tokens, 1)
    ]
    assert not of_writers(*rows, log_format="hf-trainer")
    twice = [{**row, "step": 2 * row["step"] + more} for row in rows for more in (0, 1)]
    assert bool(of_writers(*twice, log_format="hf-trainer")) is is_told


def test_tokens_that_a_process_counts_begin_anew_with_it() -> None:
    """TRL's `num_tokens`, in a state whose steps go on."""
    tokens = [4096.0, 8192.0, 12288.0, 4096.0, 8192.0]
    rows = [{"step": n, "loss": 2.0, "consumed_non_padding": of} for n, of in enumerate(tokens, 1)]
    assert not of_writers(*rows, log_format="hf-trainer-state")


def test_dicts_behind_later_ones_are_of_another_run() -> None:
    """With bars, or as LLaMA-Factory and ms-swift print them: a job that began a minute later."""
    steps_of = [(10, 33.0), (70, 97.0), (20, 46.0), (80, 110.0), (30, 59.0)]
    (said,) = of_writers(*({"step": n, "since_start_s": at, "loss": 5.0} for n, at in steps_of))
    assert said.kind == messages.STEPS_OUT_OF_ORDER.identifier
    assert "(2 lines, first at line 3, step" in said


def of_launches(*launches: list[tuple[int, float | None]]) -> list[bool]:
    """Whether each launch of a log without starts is said to be of several runs: steps, seconds."""
    rows, runs, line = [], [], 0
    for number, lines in enumerate(launches, 1):
        about = {"run_id": f"{number}", "sha256": "s", "launch": number}
        runs.append(about | {"first_line": line + 1, "last_line": line + len(lines)})
        for line, (step, at) in enumerate(lines, line + 1):  # noqa: B020 - it goes on
            stamp = None if at is None else datetime(2026, 3, 6) + timedelta(seconds=at)
            row = {"run_id": f"{number}", "line": line, "step": step, "logged_at": stamp}
            rows.append(row | {"elapsed_s": 5.0})
    warnings = sanity_warnings(steps(*rows), frame("runs", *runs))
    in_turn = messages.RUNS_INTERLEAVED.identifier
    return [
        any(one.kind == in_turn and one.startswith(NOT_RANKED) for one in said)
        for said in (warnings.get(run["run_id"], []) for run in runs)
    ]


def bare(*numbers: int) -> list[tuple[int, float | None]]:
    return [(step, None) for step in numbers]


@pytest.mark.parametrize(
    "launches",
    [
        [bare(1), bare(1, 2), bare(2, 3), bare(3, 4), bare(4, 5)],  # two that are as fast
        [bare(1, 2, 3), bare(2, 4), bare(3, 5), bare(4, 6, 7)],  # one that is ahead
        [bare(1), bare(1, 3, 2, 4), bare(3, 5, 6, 4, 7), bare(5, 8, 6, 9), bare(7, 10)],
        [[(10, 0), (20, 50), (30, 100)], [(20, 110), (40, 150)]],  # too soon for a start
        [bare(7, 10, 14, 20, 21, 28, 30), bare(30, 35, 40, 42, 49, 50)],  # each 7, and each 10
    ],
)
def test_runs_that_write_one_log_in_turn_are_not_ranked(
    launches: list[list[tuple[int, float | None]]],
) -> None:
    """Two jobs of one output file; their lines made runs of a few steps, some of both of them."""
    assert of_launches(*launches) == [True] * len(launches)


@pytest.mark.parametrize(
    "launches",
    [
        [bare(10, 20, 30)] * 4,  # excerpts of short experiments
        [bare(*range(1, 10)), bare(6, 7, 8), bare(7, 8, 9), bare(8, *range(9, 20))],
        [[(10, 0), (20, 50), (30, 100)], [(20, 200), (30, 250)]],  # begun again
        [[(30, 200), (40, 250)], [(10, 0), (20, 50)]],  # parts in the wrong order
        [bare(10, 20, 30, 40), bare(40, 50, 60)],  # trained again from step 30 on
        [bare(1, 10, 20), bare(20, 40, 60, 80)],
        [bare(1, 10, 20), bare(20, 30, 50)],  # too few lines to tell how they are spaced
        [  # an excerpt of steps, begun again an hour later
            [(n, 5.0 * n) for n in (1, 10, 20, 50, 90)],
            [(n, 5.0 * n + 3600) for n in (90, 100, 120, 170, 200)],
        ],
    ],
)
def test_launches_one_behind_the_other_take_no_turns(
    launches: list[list[tuple[int, float | None]]],
) -> None:
    assert not any(of_launches(*launches))


@pytest.mark.parametrize(("grow", "is_told"), [(True, True), (False, False)])
def test_launches_whose_steps_are_counted_take_turns_by_their_tokens(
    *, grow: bool, is_told: bool
) -> None:
    """The Trainer's dicts of two jobs: at each turn the clock goes back, and counts begin anew."""
    rows, runs = [], []
    for number in range(1, 6):
        about = {"run_id": f"{number}", "sha256": "s", "launch": number, "log_format": "hf-trainer"}
        runs.append(about | {"first_line": 2 * number - 1, "last_line": 2 * number})
        ahead = number if grow else 1
        for n, tokens in ((1, ahead), (2, ahead + 5)):
            row = {"run_id": f"{number}", "line": 2 * number + n - 2, "step": n, "loss": 3.0}
            rows.append(row | {"consumed_tokens": 4096.0 * tokens, "since_start_s": 9.0 * tokens})
    warnings = sanity_warnings(steps(*rows), frame("runs", *runs))
    in_turn = messages.RUNS_INTERLEAVED.identifier
    said = [any(one.kind == in_turn for one in warnings.get(f"{n}", [])) for n in range(1, 6)]
    assert said == [is_told] * 5


@pytest.mark.parametrize(("own", "is_told"), [({}, False), ({"elapsed_s": 3.0}, True)])
def test_a_bar_that_comes_late_is_of_the_same_run(own: dict[str, float], *, is_told: bool) -> None:
    """With an earlier clock; a line that times its step comes in its turn."""
    clocks = [(1, 3.0), (3, 9.0), (2, 6.0), (4, 12.0)]
    rows = [{"step": step, "since_start_s": since} | own for step, since in clocks]
    warnings = sanity_warnings(steps(*rows), frame("runs", {"run_id": "r", "launch": 1})).get(
        "r", []
    )
    assert [NOT_RANKED in one for one in warnings] == [True] * is_told


def test_a_later_clock_at_an_earlier_step_is_another_run() -> None:
    """Of LLaMA-Factory's or ms-swift's lines, which tell no time of a step."""
    clocks = [(1, 3.0), (3, 9.0), (2, 9.5)]
    rows = [{"step": step, "since_start_s": since} for step, since in clocks]
    (said,) = sanity_warnings(steps(*rows), frame("runs", {"run_id": "r", "launch": 1}))["r"]
    assert said.kind == messages.STEPS_OUT_OF_ORDER.identifier
    assert "(line 3, step 2)" in said


def test_a_fact_of_one_of_them_leaves_the_others_in_its_file(tmp_path: Path) -> None:
    """What is kept of metrics is computed anew with all launches of the file."""
    line = " iteration {}/ 99 | elapsed time per iteration (ms): {} | lm loss: {}E+00 |\n"
    jobs = [(0.9 * n, line.format(n, 900.0, 9 - n / 9)) for n in range(1, 40)]
    jobs += [(1.7 * n, line.format(n, 1700.0, 8 - n / 9)) for n in range(1, 20)]
    (tmp_path / "run.log").write_text("".join(text for _, text in sorted(jobs)))
    store = Store(tmp_path / "store")
    ingest_paths([tmp_path / "run.log"], store)
    some = current_metrics(store).filter(pl.col("launch") == 5)["run_id"][0]
    store.give_facts({some: [{"name": "gpus", "value": "8", "origin": "flag", "line": None}]})
    kept, whole = current_metrics(store), analyse(store.tables()).metrics
    assert_frame_equal(kept.sort("run_id"), whole.sort("run_id"))
    assert all(messages.RUNS_INTERLEAVED.identifier in kinds for kinds in kept["warning_kinds"])


# --- bounds, line by line ---------------------------------------------------------------------

TEN = datetime(2026, 1, 1, 10)


def said_of(*lines: dict, log_format: str = "xtuner") -> list[Message]:
    """Warnings of lines 1, 2, … of one launch."""
    rows = [{"line": n, "step": n} | line for n, line in enumerate(lines, 1)]
    runs = frame("runs", {"run_id": "r", "launch": 1, "log_format": log_format})
    return sanity_warnings(steps(*rows), runs).get("r", [])


@pytest.mark.parametrize(
    ("odd", "usual", "kind"),
    [
        ({"logged_tgs": 0.0}, {"logged_tgs": 0.001}, messages.RATE_NOT_POSITIVE),
        ({"logged_samples_per_second": -1.0}, {}, messages.RATE_NOT_POSITIVE),
        ({"elapsed_s": 0.0}, {"elapsed_s": 0.001}, messages.TIME_NOT_POSITIVE),
        ({"data_s": -0.1}, {"data_s": 0.0}, messages.TIME_NOT_POSITIVE),
        ({"logged_tgs": float("inf")}, {"logged_tgs": 1e9}, messages.FIGURE_NOT_FINITE),
        ({"elapsed_s": float("nan")}, {"elapsed_s": 1e9}, messages.FIGURE_NOT_FINITE),
        ({"logged_mfu": 1.001}, {"logged_mfu": 1.0}, messages.MFU_ABOVE_ONE),
    ],
)
def test_a_value_that_no_line_can_have_is_told(odd: dict, usual: dict, kind: MessageKind) -> None:
    (said,) = said_of({}, odd)
    assert said.kind == kind.identifier
    assert "(line 2, step 2)" in said
    assert not said.startswith(NOT_RANKED)
    assert said_of({}, usual) == []
    (several,) = said_of(odd, usual, odd)
    assert several.kind == kind.identifier
    assert "(2 lines, first at line 1, step 1)" in several


@pytest.mark.parametrize(
    ("back", "rank", "is_told"), [(60, "0", False), (61, "0", True), (61, "1", False)]
)
def test_a_clock_may_be_a_minute_behind(back: int, rank: str, *, is_told: bool) -> None:
    """Of its own rank's latest stamp; each rank has a clock of its own."""
    early = {"logged_at": TEN - timedelta(seconds=back), "rank": rank}
    lines = ({"logged_at": TEN, "rank": "0"}, {"rank": "0"}, early)
    kinds = [one.kind for one in said_of(*lines)]
    assert (messages.CLOCK_SET_BACK.identifier in kinds) is is_told


@pytest.mark.parametrize(
    ("loss", "is_told"),
    [(9.0, False), (9.0099, False), (9.0101, True), (8.9899, True), (-1, False)],
)
def test_a_loss_is_another_from_a_thousandth_on(loss: float, *, is_told: bool) -> None:
    """Of 1 + 9, the first print of the step: 0.01."""
    lines = ({"loss": 9.0}, {"step": 1, "loss": loss})
    told = [one for one in said_of(*lines) if one.kind == messages.STEPS_REPEATED.identifier]
    assert bool(told) is is_told
    assert not told or told[0].startswith(NOT_RANKED)


@pytest.mark.parametrize(("seconds", "is_told"), [(0.1, False), (0.101, True)])
def test_handlers_of_one_logger_print_within_a_tenth_of_a_second(
    seconds: float, *, is_told: bool
) -> None:
    line = {"step": 1, "skipped_steps": 0, "learning_rate": 1e-5, "logged_at": TEN}
    late = line | {"logged_at": TEN + timedelta(seconds=seconds)}
    assert bool(said_of(line, late, log_format="deepspeed")) is is_told


@pytest.mark.parametrize(
    ("samples", "is_told"), [(1286, False), (1287, True), (1274, False), (1273, True)]
)
def test_counters_are_rounded_by_one_percent(samples: int, *, is_told: bool) -> None:
    """10 steps of 64 samples: 640, so 633.6 to 646.4 more than 640."""
    assert bool(of_one_run((10, 640, 64), (20, samples, 64))) is is_told


def test_tokens_that_stand_still_are_told_by_the_last_line_too() -> None:
    rows = [{"consumed_tokens": 4096.0 * n} for n in (1, 2, 2)]
    (said,) = said_of(*rows)
    assert "(line 3, step 3): lines of several runs" in said


@pytest.mark.parametrize(
    ("before", "behind", "is_told"), [(9, 8, True), (8, 8, False), (9, 7, False)]
)
def test_a_level_has_eight_lines_on_either_side(before: int, behind: int, *, is_told: bool) -> None:
    """The first line, which holds the start-up, has no say."""
    assert bool(at_levels((before, 40.1, 4000.0), (behind, 60.2, 6000.0))) is is_told


@pytest.mark.parametrize(
    ("memory", "speed", "is_told"),
    [
        (40.93, 6000.0, True),  # 40.1 and 40.11 before: 0.82 GB apart, more than 2 % of 40.1
        (40.90, 6000.0, False),  # 0.79
        (39.30, 6000.0, True),  # 0.79 below, more than 2 % of 39.3
        (39.32, 6000.0, False),  # 0.77 of 0.786
        (60.2, 4320.0, True),  # the middle 80 % of lines: 6.3 % apart
        (60.2, 4200.0, False),  # 3.4 %
        (60.2, 3700.0, True),
        (60.2, 3850.0, False),
    ],
)
def test_levels_are_two_and_five_percent_apart(
    memory: float, speed: float, *, is_told: bool
) -> None:
    assert bool(at_levels((15, 40.1, 4000.0), (15, memory, speed))) is is_told


@pytest.mark.parametrize(("copies", "is_told"), [(4, True), (3, False)])
def test_copies_are_a_tenth_of_the_lines(copies: int, *, is_told: bool) -> None:
    """Of 40 dicts."""
    alone = [(n, n, n) for n in range(40 - copies)]
    twice = [one for n, one in enumerate(alone) for _ in range(2 if n < copies else 1)]
    assert len(twice) == 40
    assert bool(told_twice(twice)) is is_told


def test_a_start_that_is_not_printed_is_told_with_what_came_before() -> None:
    def of(last: int, first: int) -> list[str]:
        rows = [
            {"run_id": "a", "line": 1, "step": last, "logged_tgs": 5.0},
            {"run_id": "b", "line": 2, "step": first, "logged_tgs": 5.0},
        ]
        runs = [
            {"run_id": name, "sha256": "s", "launch": n, "first_line": n, "last_line": n}
            for n, name in enumerate("ab", 1)
        ]
        warnings = sanity_warnings(steps(*rows), frame("runs", *runs))
        assert "a" not in warnings
        return warnings["b"]

    for last, first in ((20, 10), (20, 20)):
        (said,) = of(last, first)
        assert said.startswith(f"Steps go back to {first} at line 2 without a start line:")
    (said,) = of(20, 21)
    assert said.startswith("Another process begins with step 21 at line 2 without a start line:")


@pytest.mark.parametrize(("lines", "is_told"), [([1, 2, 3, 4], True), ([1, 2, 3, 4, 5], False)])
def test_turns_are_of_four_lines_at_most(lines: list[int], *, is_told: bool) -> None:
    """Three launches behind the first, of so many steps, each a step further than the last."""
    launches = [bare(*(n + later for n in lines)) for later in range(4)]
    assert any(of_launches(*launches)) is is_told
    assert not any(of_launches(*launches[:3]))  # two are not enough


@pytest.mark.parametrize(("gap", "is_told"), [(24, True), (25, False), (0, True), (-1, False)])
def test_a_turn_comes_sooner_than_half_the_time_between_lines(gap: int, *, is_told: bool) -> None:
    """Lines come each 50 s; a process that starts again needs more than 25 s."""
    first = [(10, 0.0), (20, 50.0), (30, 100.0)]
    second = [(20, 100.0 + gap), (40, 150.0 + gap)]
    assert any(of_launches(first, second)) is is_told
