"""End to end, the clock of a launch and goodput on logs whose truth is known, and on real ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.ingest.core.schema import TABLES
from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.ingest.store.store import Store
from fairmfu.metrics.core.run_words import SLOWER_SPEED
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.runs.resume_chains import earlier_launches_first
from fairmfu.metrics.throughput import resolved_facts, windows
from fairmfu.metrics.throughput.end_to_end import launch_clocks
from tests.support.effort import THOROUGH, every_log
from tests.tools.corpus import CORPUS

BEGIN = datetime(2026, 3, 1, 8, 0, 0, 250_000)  # not of whole seconds, which are coarse
TOKENS = 2 * 1024  # of one step on one GPU: two sequences of 1024
LOADING_S = 5.0  # from the header to the start of training
COMPILE_S = 20.0  # more that the first step takes


@dataclass
class Made:
    """Torchtitan launches that one can work out by hand: a step takes `step_s`."""

    gpus: int = 4
    step_s: float = 1.0
    every: int = 10

    def launch(
        self,
        at: float,
        first: int,
        last: int,
        *,
        done: bool = False,
        pauses: Mapping[int, float] = MappingProxyType({}),
        **other: float,
    ) -> tuple[list[str], float]:
        """Lines of a launch that trains the steps first to last, and when it printed its last.

        pauses: seconds behind the lines of steps, which no rate and no line tells of; stall_s: of
        the last step but five, which its rate includes.
        """
        loading, compiling = other.get("loading", LOADING_S), other.get("compiling", COMPILE_S)
        gpus = int(other.get("gpus", self.gpus))
        batch = int(other.get("batch", 2 * gpus))
        lines = [
            f"[titan] {_at(at)} - root - INFO - Starting job: made for this test",
            f"[titan] {_at(at)} - root - INFO - Building 1-D device mesh with ['dp_shard'], "
            f"[{gpus}]",
            f"[titan] {_at(at)} - root - INFO - Trainer is initialized with local batch size 2, "
            f"global batch size {batch}, gradient accumulation steps {batch // gpus // 2}, "
            "sequence length 1024, total steps 1000 (warmup 2)",
            f"[titan] {_at(at + loading)} - root - INFO - Training starts at step {first}",
        ]
        now, since, count = at + loading, at + loading, 0
        for step in range(first, last + 1):
            now += self.step_s + (compiling if step == first else 0.0)
            now += other.get("stall_s", 0.0) if step == last - 5 else 0.0
            count += 1
            if step in (1, last) or step % self.every == 0:
                rate = count * batch * 1024 / gpus / (now - since)
                lines.append(
                    f"[titan] {_at(now)} - root - INFO - step: {step:2}  loss: "
                    f"{9 - step / 1000:8.5f}  grad_norm:  1.2000  memory:  1.50GiB(3.00%)  "
                    f"tps: {rate:,.0f}  tflops: 1.25  mfu: 0.40%"
                )
                now += pauses.get(step, 0.0)
                since, count = now, 0
        if done:
            now += 3.0
            lines.append(f"[titan] {_at(now)} - root - INFO - Training completed")
        return lines, now


def _at(seconds: float) -> str:
    return (BEGIN + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]


Rates = Callable[..., list[dict[str, Any]]]


def tables_of(*paths: Path) -> dict[str, pl.DataFrame]:
    read = [read_log_tables(path) for path in paths]
    return {name: pl.concat([tables[name] for tables in read]) for name in TABLES}


@pytest.fixture
def rates(tmp_path: Path) -> Rates:
    """Rows of METRICS of logs, each given by its lines, in the order of their starts."""

    def analysed(*logs: Sequence[str]) -> list[dict[str, Any]]:
        paths = [tmp_path / f"log{number}.log" for number in range(len(logs))]
        for path, lines in zip(paths, logs, strict=True):
            path.write_text("\n".join(lines) + "\n")
        metrics = analyse(tables_of(*paths)).metrics
        return list(metrics.sort("started_at", "launch", nulls_last=True).iter_rows(named=True))

    return analysed


# -- one launch ----------------------------------------------------------------------------


def test_end_to_end_of_one_launch_starts_where_training_does(rates: Rates) -> None:
    lines, _ = Made().launch(0, 1, 100, done=True)
    (row,) = rates(lines)
    assert row["tgs"] == pytest.approx(TOKENS, rel=1e-3)
    assert row["end_to_end_basis"] == "stamp from start"
    assert row["tgs_end_to_end"] == pytest.approx(100 * TOKENS / (100 + COMPILE_S))
    # The wall clock has the start-up before training and the shutdown behind it too.
    wall = LOADING_S + COMPILE_S + 100 + 3
    assert row["goodput"] == pytest.approx(100 * TOKENS / wall)
    assert row["goodput_share"] == pytest.approx(row["goodput"] / row["tgs"])
    assert (row["goodput_launches"], row["lost_to_restarts_s"]) == (1, 0.0)


@pytest.mark.parametrize("stall_s", [0.0, 300.0])
def test_a_stall_in_tgs_leaves_goodput_below_the_usual_speed(rates: Rates, stall_s: float) -> None:
    """One of five windows has it; the first steps are faster than these on the average."""
    lines, _ = Made().launch(0, 1, 60, stall_s=stall_s, compiling=0.0)
    (row,) = rates(lines)
    wall = LOADING_S + 60 + stall_s
    assert row["goodput"] == pytest.approx(60 * TOKENS / wall)
    assert (row["goodput"] > row["tgs"]) == (stall_s > 0)
    assert row["goodput_share"] == pytest.approx(60 / wall, rel=1e-3)


@pytest.mark.parametrize("pause_s", [5.0, 40.0, 300.0])
def test_pauses_that_no_line_tells_of_count_however_long_they_are(
    rates: Rates, pause_s: float
) -> None:
    """As of an evaluation in a log of step lines alone: rate and stamps differ in few windows."""
    lines, _ = Made().launch(0, 1, 100, done=True, pauses=dict.fromkeys((30, 50, 70), pause_s))
    (row,) = rates(lines)
    assert row["tgs"] == pytest.approx(TOKENS, rel=1e-3)
    trained_s = COMPILE_S + 100 + 3 * pause_s
    assert row["end_to_end_basis"] == "stamp from start"
    assert row["tgs_end_to_end"] == pytest.approx(100 * TOKENS / trained_s)
    assert row["goodput"] == pytest.approx(100 * TOKENS / (LOADING_S + trained_s + 3))


def test_without_a_stamped_start_the_first_lines_own_time_is_that_of_its_steps(
    rates: Rates,
) -> None:
    lines, _ = Made().launch(0, 1, 100)
    (row,) = rates([line for line in lines if "Training starts" not in line])
    assert row["end_to_end_basis"] == "stamp and first line"
    assert row["tgs_end_to_end"] == pytest.approx(100 * TOKENS / (100 + COMPILE_S), rel=1e-2)
    assert row["goodput"] == pytest.approx(100 * TOKENS / (LOADING_S + COMPILE_S + 100))


@pytest.mark.parametrize("kept", ["step: ", "Training starts"])
def test_where_start_up_is_not_seen_there_is_no_goodput(rates: Rates, kept: str) -> None:
    lines, _ = Made().launch(0, 1, 100)
    header = [
        line.replace(_at(0), "") for line in lines if kept not in line and "step: " not in line
    ]
    (row,) = rates([*header, *(x for x in lines if "step: " in x or kept in x)])
    assert row["tgs_end_to_end"] is not None
    assert (row["goodput"], row["goodput_share"], row["goodput_launches"]) == (None, None, 1)


def test_a_log_without_stamps_has_neither_clock_nor_goodput(rates: Rates) -> None:
    lines, _ = Made().launch(0, 1, 100)
    (row,) = rates([line.partition(" - root - INFO - ")[2] for line in lines])
    assert row["tgs"] == pytest.approx(TOKENS, rel=1e-3)
    assert row["end_to_end_basis"] == "rate from start"
    assert (row["goodput"], row["lost_to_restarts_s"]) == (None, None)


def test_where_no_stamp_follows_the_header_there_is_no_goodput(rates: Rates) -> None:
    lines, _ = Made().launch(0, 1, 100)
    bare = [line.partition(" - root - INFO - ")[2] if "step: " in line else line for line in lines]
    (row,) = rates([line for line in bare if "Training starts" not in line])
    assert (row["error"], row["goodput"]) == (None, None)
    assert row["tgs"] == pytest.approx(TOKENS, rel=1e-3)


def test_tokens_that_rates_and_stamps_contradict_give_no_goodput(rates: Rates) -> None:
    lines, _ = Made().launch(0, 1, 100)
    half = f"tps: {TOKENS / 2:,.0f}  "
    (row,) = rates([line.replace(f"tps: {TOKENS:,.0f}  ", half) for line in lines])
    assert row["evidence_gap"] == pytest.approx(1.0, rel=1e-2)
    assert (row["end_to_end_basis"], row["goodput"]) == ("rate from start", None)


@pytest.mark.parametrize("rate", ["0.800", "0.8"])
def test_the_trainers_run_time_is_that_of_all_steps(tmp_path: Path, rate: str) -> None:
    log = tmp_path / "console.log"
    lines = [
        "***** Running training *****",
        "  Instantaneous batch size per device = 4",
        "  Total train batch size (w. parallel, distributed & accumulation) = 8",
        "  Gradient Accumulation steps = 1",
        "  Total optimization steps = 40",
        *(
            f"{{'loss': '6.9', 'grad_norm': '1.3', 'learning_rate': '0.0004', 'epoch': '{n / 10}'}}"
            for n in range(1, 9)
        ),
        "{'train_runtime': '50.00', 'train_samples_per_second': '6.4', "
        f"'train_steps_per_second': '{rate}', 'train_loss': '6.618', 'epoch': '0.8'}}",
    ]
    log.write_text("\n".join(lines) + "\n")
    tables = tables_of(log)
    interval = 5 if rate == "0.800" else 1
    assert tables["steps"]["step"].to_list() == [interval * n for n in range(1, 9)]
    row = told(log, "gpus=2", "seq_len=100", "packed=true")
    if rate == "0.8":  # too coarse for how many steps there were, so the lines count nothing known
        assert (row["tgs_end_to_end"], row["end_to_end_basis"]) == (320.0, "printed samples/s")
        return
    # The lines have no times, so there is no steady rate: 40 steps of 4 sequences a GPU in 50 s.
    assert (row["tgs"], row["end_to_end_basis"]) == (None, "runtime")
    assert row["tgs_end_to_end"] == pytest.approx(40 * 4 * 100 / 50)
    assert (row["goodput"], row["lost_to_restarts_s"]) == (None, None)


def trainer_log(first: int, last: int, compile_s: float) -> list[str]:
    """LLaMA-Factory's: a line at each tenth step, a clock that training started, in whole seconds.

    A step takes 1 s, the first `compile_s` more.
    """
    return [
        f'{{"current_steps": {step}, "total_steps": {last}, "loss": 1.5, "lr": 4.5e-05, "epoch": '
        f'0.2, "percentage": 2.5, "elapsed_time": "{timedelta(seconds=step + compile_s)}", '
        f'"remaining_time": "0:43:33", "total_tokens": {step * TOKENS}}}'
        for step in range(first, last + 1, 10)
    ]


def of_trainer(tmp_path: Path, lines: Sequence[str]) -> dict[str, Any]:
    path = tmp_path / "trainer_log.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return told(path, "gpus=1")


def told(path: Path, *flags: str) -> dict[str, Any]:
    """The row of METRICS of a log of one launch, with facts that it lacks."""
    return analyse(read_log_tables(path, flag_facts=facts_from_flags(flags))).metrics.row(
        0, named=True
    )


def test_a_clock_that_training_started_holds_the_start(tmp_path: Path) -> None:
    row = of_trainer(tmp_path, trainer_log(10, 400, 100))
    assert row["tgs"] == pytest.approx(TOKENS, rel=1e-6)
    assert row["end_to_end_basis"] == "clock from start"
    assert row["tgs_end_to_end"] == pytest.approx(400 * TOKENS / 500)
    assert row["wall_s"] == pytest.approx(500)
    (lost,) = row["time_lost"]
    assert (lost["cause"], lost["seconds"]) == ("start-up", pytest.approx(100))


def test_the_end_of_a_clock_is_that_of_the_wall_time(tmp_path: Path) -> None:
    end = '{"current_steps": 400, "total_steps": 400, "epoch": 10.0, "percentage": 100.0, '
    lines = [*trainer_log(10, 400, 100), end + '"elapsed_time": "0:09:00", "remaining_time": "0"}']
    row = of_trainer(tmp_path, lines)
    assert row["wall_s"] == pytest.approx(540)
    assert row["tgs_end_to_end"] == pytest.approx(400 * TOKENS / 500)
    lost = {one["cause"]: one["seconds"] for one in row["time_lost"]}
    assert lost == {"start-up": pytest.approx(100), "after the last step": pytest.approx(40)}


def test_a_clock_that_stops_early_is_not_that_of_all_steps(tmp_path: Path) -> None:
    """The Trainer's dicts, of which the first alone has a bar: that is start-up, not the run."""
    lines = [
        "TrainingArguments(output_dir=out, logging_strategy=steps, logging_steps=10)",
        "***** Running training *****",
        "  Instantaneous batch size per device = 1",
        "  Total train batch size (w. parallel, distributed & accumulation) = 1",
        "  Gradient Accumulation steps = 1",
        "  Total optimization steps = 100",
        *(f"{{'loss': 2.5, 'learning_rate': 1e-05, 'epoch': {n / 10}}}" for n in range(1, 11)),
        "{'train_runtime': '300.0', 'train_samples_per_second': '0.3', "
        "'train_steps_per_second': '0.3333', 'train_loss': '6.618', 'epoch': '1.0'}",
    ]
    lines.insert(7, " 10%|##   | 10/100 [03:30<00:10,  1.00s/it]")
    path = tmp_path / "console.log"
    path.write_text("\n".join(lines) + "\n")
    row = told(path, "gpus=1", "seq_len=100", "packed=true")
    assert row["end_to_end_basis"] == "runtime"
    assert row["tgs_end_to_end"] == pytest.approx(100 * 100 / 300)


def test_whole_seconds_do_not_hide_what_the_first_step_took(rates: Rates) -> None:
    """Steps of 0.4 s, each printed: of a single one a stamp of whole seconds says nothing."""
    lines, _ = Made(step_s=0.4, every=1).launch(0, 1, 200)
    whole = [re.sub(r"(\d\d:\d\d:\d\d),\d{3}", r"\1", line) for line in lines]
    (row,) = rates(whole)
    assert row["end_to_end_basis"] == "stamp from start"
    assert row["tgs_end_to_end"] == pytest.approx(200 * TOKENS / (80 + COMPILE_S), rel=0.01)


def test_a_clock_of_steps_that_a_log_does_not_hold_is_not_theirs(tmp_path: Path) -> None:
    row = of_trainer(tmp_path, trainer_log(210, 400, 100))
    assert row["end_to_end_basis"] == "clock"
    assert row["tgs_end_to_end"] == pytest.approx(TOKENS)
    assert row["wall_s"] == pytest.approx(191)


def test_a_mean_over_fewer_steps_than_lie_before_the_first_line_leaves_them_in_the_wall_time(
    rates: Rates,
) -> None:
    """mmengine averages over ten steps, however many lie between two lines."""
    start = datetime(2026, 3, 1, 8, 0, 0)
    (row,) = rates(
        [
            f"{start + timedelta(seconds=30 + step):%Y/%m/%d %H:%M:%S} - mmengine - INFO - "
            f"Iter(train) [{step:5}/1000]  lr: 1.0e-05  eta: 0:51:34  time: 1.0000  "
            "data_time: 0.0082  memory: 15981  loss: 0.9031  tflops: 331.59  tokens_per_sec: 2048.0"
            for step in range(50, 1001, 50)
        ]
    )
    assert row["wall_s"] == pytest.approx(1000)


def test_the_clock_tells_start_up_and_what_came_behind(tmp_path: Path) -> None:
    lines, _ = Made().launch(0, 1, 100, done=True)
    (tmp_path / "run.log").write_text("\n".join(lines) + "\n")
    tables = tables_of(tmp_path / "run.log")
    typed = resolved_facts.typed_facts(resolved_facts.resolve_facts(tables["facts"]))
    spans = windows.build_windows(tables["steps"], tables["runs"], typed, tables["events"])
    row = launch_clocks(tables["runs"], spans, typed, tables["events"]).row(0, named=True)
    seconds = {
        name: (row[name] - BEGIN).total_seconds()
        for name in ("launched_at", "trained_at", "first_step_at", "last_step_at", "ended_at")
    }
    first = LOADING_S + COMPILE_S + 1
    assert list(seconds.values()) == [0, LOADING_S, first, first + 99, first + 102]
    assert (row["trained_from"], row["trained_to"]) == (0, 100)
    assert row["step_s"] == pytest.approx(1.0, rel=1e-3)
    assert row["startup_s"] == pytest.approx(LOADING_S + COMPILE_S, rel=1e-3)
    assert (row["after_s"], row["wall_s"], row["runtime_s"]) == (3.0, first + 102, None)


def test_a_cut_log_has_the_goodput_of_its_steps(rates: Rates) -> None:
    """A line 8 s after step 100 is none of an end: steps 101 to 108 may have run until then."""
    lines, _ = Made().launch(0, 1, 100)
    end_s = LOADING_S + COMPILE_S + 100
    later = f"[titan] {_at(end_s + 8)} - root - INFO - [GC] Peforming periodical GC collection"
    (row,) = rates([*lines, f"{later}. 0.02 seconds"])
    assert row["goodput"] == pytest.approx(100 * TOKENS / end_s, rel=1e-6)
    lines, ended = Made().launch(0, 1, 100, done=True)
    (row,) = rates(lines)
    assert row["goodput"] == pytest.approx(100 * TOKENS / ended, rel=1e-6)


# -- restarts ------------------------------------------------------------------------------


def crash_and_resume(gap: float = 60.0, **later: float) -> tuple[list[str], list[str], float]:
    """100 steps, a crash, and from the checkpoint of step 70 on to 200: 30 steps twice."""
    first, crashed = Made().launch(0, 1, 100)
    second, ended = Made().launch(crashed + gap, 71, 200, **later)
    return first, second, ended


@pytest.mark.parametrize("files", [1, 2])
def test_repeated_steps_count_once(rates: Rates, files: int) -> None:
    first, second, ended = crash_and_resume()
    one, two = rates(first, second) if files == 2 else rates([*first, *second])
    assert two["continues"] == one["run_id"]
    assert one["goodput"] == pytest.approx(100 * TOKENS / (LOADING_S + COMPILE_S + 100))
    assert two["goodput_launches"] == 2
    assert two["goodput"] == pytest.approx(200 * TOKENS / ended)
    # 30 steps trained again, the gap, loading and compiling once more.
    assert two["lost_to_restarts_s"] == pytest.approx(30 + 60 + LOADING_S + COMPILE_S, rel=1e-3)
    assert two["goodput_share"] == pytest.approx(200 / ended, rel=1e-3)
    # End to end is of the launch alone.
    assert two["tgs_end_to_end"] == pytest.approx(130 * TOKENS / (130 + COMPILE_S))


def test_a_checkpoint_between_two_lines_is_where_the_course_goes_on(rates: Rates) -> None:
    first, crashed = Made().launch(0, 1, 99)
    second, ended = Made().launch(crashed + 10, 76, 200)
    one, two = rates(first, [line for line in second if "step: 76 " not in line])
    assert two["goodput"] == pytest.approx(200 * TOKENS / ended)
    assert two["lost_to_restarts_s"] == pytest.approx(24 + 10 + LOADING_S + COMPILE_S, rel=1e-3)
    assert one["goodput_launches"] == 1


def test_a_checkpoint_behind_the_last_line_was_done_at_the_pace_of_steps(rates: Rates) -> None:
    """The first launch saved step 95 and ended before it printed the line."""
    made = Made(step_s=2.0)
    first, crashed = made.launch(0, 1, 95)
    second, ended = made.launch(crashed + 60, 96, 200)
    _, two = rates([line for line in first if "step: 95 " not in line], second)
    assert two["goodput_launches"] == 2
    assert two["lost_to_restarts_s"] == pytest.approx(60 + LOADING_S + COMPILE_S, rel=1e-3)
    assert two["goodput"] == pytest.approx(200 * TOKENS / ended)


def test_a_checkpoint_before_the_first_line_was_done_at_the_pace_of_steps(rates: Rates) -> None:
    """Of steps 41 to 80 the first launch has lines from 50 on; the second goes on from 45."""
    made = Made(step_s=2.0)
    first, crashed = made.launch(0, 41, 80)
    second, _ = made.launch(crashed + 60, 46, 200)
    lines = [
        [line for line in log if not any(f"step: {n} " in line for n in unprinted)]
        for log, unprinted in ((first, (41,)), (second, (46, 50)))
    ]
    _, two = rates(*lines)
    assert two["goodput_launches"] == 2
    # Five of the first launch's 40 steps stand.
    assert two["lost_to_restarts_s"] == pytest.approx(35 * 2 + 60 + LOADING_S + COMPILE_S, rel=1e-3)


def test_a_checkpoint_between_the_first_two_lines_was_done_between_their_stamps(
    rates: Rates,
) -> None:
    """Behind step 1, at 26 s, stands a pause of 45 s; step 10 is done at 80 s, and so step 5 at 50.

    The first launch ends at 170 s; the second begins step 6 another 60 + 25 s later.
    """
    first, crashed = Made().launch(0, 1, 100, pauses={1: 45.0})
    second, _ = Made().launch(crashed + 60, 6, 200)
    _, two = rates(first, second)
    assert two["goodput_launches"] == 2
    assert two["lost_to_restarts_s"] == pytest.approx(170 + 60 + 25 - 50, rel=2e-3)


@pytest.mark.parametrize(("gap", "known"), [(-1.0, True), (-1.9, True), (-2.1, False)])
def test_stamps_of_two_launches_may_cross_by_two_seconds(
    rates: Rates, gap: float, *, known: bool
) -> None:
    first, second, ended = crash_and_resume(gap)
    _, two = rates([*first, *second])
    assert two["goodput_launches"] == 2
    assert two["goodput"] == (pytest.approx(200 * TOKENS / ended) if known else None)
    assert (two["lost_to_restarts_s"] is not None) is known


def unstamped_header(lines: Sequence[str]) -> list[str]:
    return [line if "step: " in line else line.partition(" - root")[2] for line in lines]


def test_of_a_chain_the_first_launchs_start_has_to_be_seen(rates: Rates) -> None:
    first, second, ended = crash_and_resume()
    _, two = rates([*unstamped_header(first), *second])
    assert (two["goodput_launches"], two["goodput"]) == (2, None)
    _, two = rates([*first, *unstamped_header(second)])
    assert two["goodput"] == pytest.approx(200 * TOKENS / ended)


def test_a_chain_of_three_tells_each_time_how_it_stands(rates: Rates) -> None:
    first, crashed = Made().launch(0, 1, 100)
    second, again = Made().launch(crashed + 30, 81, 150)
    third, ended = Made().launch(again + 40, 121, 300, done=True)
    rows = rates([*first, *second], third)
    assert [row["goodput_launches"] for row in rows] == [1, 2, 3]
    assert rows[1]["goodput"] == pytest.approx(150 * TOKENS / again)
    assert rows[2]["goodput"] == pytest.approx(300 * TOKENS / ended)
    lost = [row["lost_to_restarts_s"] for row in rows]
    each = LOADING_S + COMPILE_S
    assert lost == pytest.approx([0, 20 + 30 + each, 20 + 30 + each + 30 + 40 + each], rel=1e-3)


def test_a_launch_that_led_nowhere_costs_its_time_only(rates: Rates) -> None:
    first, crashed = Made().launch(0, 1, 100)
    lost, again = Made().launch(crashed + 30, 101, 130)
    third, ended = Made().launch(again + 40, 101, 200)
    rows = rates(first, lost, third)
    assert rows[2]["continues"] == rows[0]["run_id"]
    assert rows[2]["goodput_launches"] == 2
    assert rows[2]["goodput"] == pytest.approx(200 * TOKENS / ended)


def test_with_other_gpus_on_the_way_gpu_seconds_count(rates: Rates) -> None:
    first, crashed = Made().launch(0, 1, 100, gpus=8)
    # A batch of another size were other work: the second accumulates.
    second, ended = Made().launch(crashed + 60, 71, 200, gpus=4, batch=16)
    one, two = rates(first, second)
    assert two["continues"] == one["run_id"]
    # While nothing ran, the 4 GPUs that both had waited for sure.
    spent = 8 * crashed + 4 * 60 + 4 * (ended - crashed - 60)
    assert two["goodput"] == pytest.approx(200 * 16 * 1024 / spent)


def test_in_one_file_a_resumed_launch_may_have_more_gpus_and_samples(rates: Rates) -> None:
    first, crashed = Made().launch(0, 1, 100, gpus=4)
    second, ended = Made().launch(crashed + 60, 71, 200, gpus=8)
    resumed = "[titan] {} - root - INFO - Loading the checkpoint from outputs/checkpoint/step-70."
    second.insert(3, resumed.format(_at(crashed + 61)))
    _, two = rates([*first, *second])
    assert two["goodput_launches"] == 2
    tokens = (70 * 8 + 130 * 16) * 1024
    assert two["goodput"] == pytest.approx(
        tokens / (4 * (crashed + 60) + 8 * (ended - crashed - 60))
    )


def test_a_launch_in_the_middle_begins_an_interval_before_its_first_line(rates: Rates) -> None:
    lines, ended = Made().launch(0, 51, 100)
    (row,) = rates([line for line in lines if "Training starts at step" not in line])
    assert row["goodput"] == pytest.approx(50 * TOKENS / ended)


def test_gpus_that_are_not_known_are_no_chain(rates: Rates) -> None:
    first, second, _ = crash_and_resume()
    unsaid = [[x for x in lines if "device mesh" not in x] for lines in (first, second)]
    one, two = rates(*unsaid)
    assert one["goodput"] == pytest.approx(100 * TOKENS / (LOADING_S + COMPILE_S + 100))
    assert two["goodput_launches"] == 2
    assert two["goodput"] is None


def test_a_clock_that_went_back_between_launches_gives_nothing(rates: Rates) -> None:
    first, _, _ = crash_and_resume()
    second, _ = Made().launch(-7200, 71, 200)
    rows = {row["launch"]: row for row in rates([*first, *second])}
    assert rows[2]["continues"] == rows[1]["run_id"]
    assert (rows[2]["goodput"], rows[2]["lost_to_restarts_s"]) == (None, None)


def test_lines_of_another_clock_around_the_steps_are_no_start() -> None:
    """The header of another run stands above the steps: a later time before an earlier one."""
    spans = pl.DataFrame(
        {
            "run_id": ["r"] * 2, "line": [5, 6], "step": [1, 2], "first": [True, False],
            "logged_at": [BEGIN, BEGIN + timedelta(seconds=9)], "log_interval": [1, 1],
            "steps_counted": [None, None], "start_missing": [None, None],
            "consumed_tokens": [None, None], "new_step": [None, 1],
            "stamp_time": [None, 9.0], "stamp_span": [None, 1],
        }
    )  # fmt: skip
    about = {"run_id": "r", "evidence": ["stamp"], "utc": False, "outcome": "incomplete"}
    late = pl.DataFrame([about | {"first_line": 1, "started_at": BEGIN + timedelta(hours=1)}])
    facts = pl.DataFrame({"run_id": ["r"], "total_steps": [None]})
    row = launch_clocks(late, spans, facts, EVENTS).row(0, named=True)
    assert row["launched_at"] is None
    early = late.with_columns(started_at=pl.lit(BEGIN - timedelta(seconds=7)))
    row = launch_clocks(early, spans, facts, EVENTS).row(0, named=True)
    assert row["wall_s"] == 16


@pytest.mark.parametrize(
    ("log_format", "seen"), [("deepspeed-tensorboard", False), ("hf-trainer-tensorboard", True)]
)
def test_the_first_step_of_an_event_file_is_not_when_the_launch_began(
    log_format: str, *, seen: bool
) -> None:
    """DeepSpeed's monitor writes at the end of each step, the Trainer's as training begins."""
    spans = pl.DataFrame(
        {
            "run_id": ["r"] * 2, "line": [5, 6], "step": [5, 10], "first": [True, False],
            "logged_at": [BEGIN, BEGIN + timedelta(seconds=5)], "log_interval": [5, 5],
            "steps_counted": [None, None], "start_missing": [None, None],
            "consumed_tokens": [None, None], "new_step": [None, 5],
            "stamp_time": [None, 5.0], "stamp_span": [None, 5],
        }
    )  # fmt: skip
    about = {"run_id": "r", "evidence": ["stamp"], "utc": True, "outcome": "incomplete"}
    about |= {"first_line": 1, "log_format": "deepspeed"}
    (quirks,) = (list(one.quirks) for one in BUILT_IN_FORMATS if one.name == log_format)
    events = about | {"run_id": "e", "log_format": log_format, "quirks": quirks}
    began = BEGIN - timedelta(seconds=4)  # step 1
    members = [about | {"started_at": None}, events | {"started_at": began}]
    facts = pl.DataFrame({"run_id": ["r"], "total_steps": [None]})
    runs = pl.DataFrame([members[0]])
    row = launch_clocks(runs, spans, facts, EVENTS, {"r": members}).row(0, named=True)
    assert row["launched_at"] == (began if seen else BEGIN)


EVENTS = pl.DataFrame(
    schema={
        "run_id": pl.String, "line": pl.Int64, "kind": pl.String, "step": pl.Int64,
        "logged_at": pl.Datetime("us"), "seconds": pl.Float64, "extra": pl.String,
    }
)  # fmt: skip


def test_launches_come_after_the_launch_before_them() -> None:
    chain = {"c": "b", "b": "a", "a": None, "d": "b"}
    ordered = list(earlier_launches_first(chain))
    assert ordered == [("a", None), ("b", "a"), ("c", "b"), ("d", "b")]
    assert list(earlier_launches_first({"c": "b"})) == [("c", "b")]
    assert list(earlier_launches_first({"a": "b", "b": "a"})) == [("b", None), ("a", "b")]


# -- laws ----------------------------------------------------------------------------------


COURSES = st.tuples(st.integers(20, 80), st.integers(0, 15), st.integers(100, 160))
"""The last step of the first launch, how many are trained again, the last of all."""


@settings(max_examples=60 if THOROUGH else 8)
@given(course=COURSES, gap=st.floats(0, 500), step_s=st.sampled_from([0.5, 1.0, 3.0]))
def test_goodput_is_never_above_end_to_end_nor_that_above_steady(
    tmp_path_factory: pytest.TempPathFactory,
    course: tuple[int, int, int],
    gap: float,
    step_s: float,
) -> None:
    (first, again, last), made = course, Made(step_s=step_s)
    one, crashed = made.launch(0, 1, first)
    two, ended = made.launch(crashed + gap, first - again + 1, last)
    path = tmp_path_factory.mktemp("law") / "run.log"
    path.write_text("\n".join([*one, *two]) + "\n")
    rows = analyse(tables_of(path)).metrics.sort("launch").to_dicts()
    for number, row in enumerate(rows, start=1):
        best = max(each["tgs_end_to_end"] for each in rows[:number])
        assert row["goodput"] <= best * (1 + 1e-9)
        assert row["tgs"] is None or row["tgs_end_to_end"] <= row["tgs"] * 1.001
    assert rows[1]["goodput"] == pytest.approx(last * TOKENS / ended, rel=1e-4)
    assert rows[1]["lost_to_restarts_s"] == pytest.approx(
        again * step_s + gap + LOADING_S + COMPILE_S, rel=1e-2, abs=0.1
    )


@settings(max_examples=60 if THOROUGH else 8)
@given(at=st.integers(12, 95))
def test_a_run_cut_in_two_without_a_gap_has_the_same_goodput(
    tmp_path_factory: pytest.TempPathFactory, at: int
) -> None:
    made, folder = Made(), tmp_path_factory.mktemp("cut")
    whole, _ = made.launch(0, 1, 120)
    one, now = made.launch(0, 1, at)
    two, _ = made.launch(now, at + 1, 120, loading=0.0, compiling=0.0)
    found = []
    for name, lines in (("whole", whole), ("cut", [*one, *two])):
        (folder / f"{name}.log").write_text("\n".join(lines) + "\n")
        found.append(
            analyse(tables_of(folder / f"{name}.log")).metrics.sort("launch").row(-1, named=True)
        )
    assert found[1]["goodput_launches"] == 2
    assert found[1]["goodput"] == pytest.approx(found[0]["goodput"], rel=1e-9)
    assert found[1]["lost_to_restarts_s"] == pytest.approx(0.0, abs=0.01)


# -- real logs -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real() -> Callable[[str], dict[str, dict[str, Any]]]:
    def read(name: str) -> dict[str, dict[str, Any]]:
        path = CORPUS / name
        if not path.is_file():
            pytest.skip(f"NOT CHECKED: no public log {path} (FAIRMFU_CORPUS)")
        metrics = analyse(tables_of(path)).metrics
        return {row["name"]: row for row in metrics.iter_rows(named=True)}

    return read


def test_real_torchtitan_from_its_start_to_its_last_step(
    real: Callable[[str], dict[str, dict[str, Any]]],
) -> None:
    """Its raw lines: version 10:03:35,314; start 38,856; step 10 at 55,297; completed 57,297."""
    (row,) = real("torchtitan/jpl_ouro1.4b_a100_slurm_17414723.out").values()
    assert row["end_to_end_basis"] == "stamp from start"
    assert row["tgs_end_to_end"] == pytest.approx(10 * 2 * 2048 / (55.297 - 38.856))
    assert row["goodput"] == pytest.approx(10 * 2 * 2048 / (57.297 - 35.314))


def test_real_megatron_whose_steps_have_no_stamps(
    real: Callable[[str], dict[str, dict[str, Any]]],
) -> None:
    """Its raw lines: the start of training at 19:23:07, its end at 19:44:47; the launcher 19:22:02.

    50 steps of 16 sequences of 2048 on 16 GPUs; the launcher's last process ends at 19:45:00,671.
    """
    rows = real("deepspeed/starksim__tp1pp4dp4_static_seq_20260316.log")
    row = rows["starksim__tp1pp4dp4_static_seq_20260316#1"]
    assert row["end_to_end_basis"] == "runtime"
    assert row["tgs_end_to_end"] == pytest.approx(50 * 2048 / 1300)
    wall = datetime(2026, 3, 16, 19, 45, 0, 671_000) - datetime(2026, 3, 16, 19, 22, 2, 70_000)
    assert row["goodput"] == pytest.approx(50 * 2048 / wall.total_seconds())


def test_a_real_chain_counts_its_repeated_steps_once(
    real: Callable[[str], dict[str, dict[str, Any]]],
) -> None:
    """Its raw lines: job 12:55:00.591, step 400 at 13:05:06.613 and on to 500; started again, from
    the checkpoint of step 400, to "Training completed" at 13:26:21.433 behind step 1000.
    """
    row = real("torchtitan/msg_2025-07-01_c31ff8b053.txt")["msg_2025-07-01_c31ff8b053#2"]
    assert row["goodput_launches"] == 2
    wall = (13 * 60 + 26) * 60 + 21.433 - ((12 * 60 + 55) * 60 + 0.591)
    assert row["goodput"] == pytest.approx(1000 * 8192 / wall)
    # To the first line of the later launch, step 410 at 13:11:13.774, less ten steps of 1.4 s.
    first_step_began = (13 * 60 + 11) * 60 + 13.774 - 10 * 1.4
    assert row["lost_to_restarts_s"] == pytest.approx(
        first_step_began - ((13 * 60 + 5) * 60 + 6.613), abs=0.5
    )


def test_real_logs_that_have_no_honest_goodput(
    real: Callable[[str], dict[str, dict[str, Any]]],
) -> None:
    # An excerpt of step 20 after one of steps 1 to 20: another experiment, not a resume.
    row = real("torchtitan/msg_2025-05-28_f8f545c459.txt")["msg_2025-05-28_f8f545c459#2"]
    assert (row["goodput_launches"], row["goodput"], row["continues"]) == (1, None, None)
    # Tensor parallel of a degree that it does not say: stamps and rate are 2x apart.
    (row,) = real("torchtitan/msg_2024-10-22_6b2f673135.txt").values()
    assert (row["end_to_end_basis"], row["goodput"]) == ("rate from start", None)
    # Excerpts of several hours in one page.
    (row,) = real("deepspeed/alcf__cooldown.md").values()
    assert (row["goodput"], row["lost_to_restarts_s"]) == (None, None)


@every_log
def test_no_real_log_has_goodput_above_end_to_end_or_that_above_steady(
    ingest: Callable[..., object], store: Store
) -> None:
    if not CORPUS.is_dir():
        pytest.skip(f"NOT CHECKED: no public logs in {CORPUS} (FAIRMFU_CORPUS)")
    ingest(*sorted(CORPUS.glob("*/*")))
    rows = analyse({name: store.table(name) for name in TABLES}).metrics
    # A first line, and what completes its interval, is left out of steady whatever its pace.
    figures = rows.select("name", "tgs", "tgs_end_to_end", "goodput").filter(
        (pl.col("tgs_end_to_end") > 1.02 * pl.col("tgs"))
        | (pl.col("goodput") > pl.col("tgs_end_to_end") * (1 + 1e-9))
    )
    assert figures.rows() == []
    assert rows["goodput"].count() > 40
    lost = rows.filter(pl.col("time_lost").list.len() > 0).select(
        *("name", "wall_s", "goodput_share", "goodput_launches", "time_lost", "levels"),
        without_stalls=pl.col("tgs_without_spikes") > pl.col("tgs"),
    )
    for name, wall_s, share, launches, causes, levels, without_stalls in lost.iter_rows():
        assert all(0 < each["seconds"] <= wall_s for each in causes), name
        steady = 1 - sum(each["share"] for each in causes)
        assert 0 < steady < 1, name
        if (
            share is not None and launches == 1
        ):  # told apart from the time lost by another path: rates and stamps
            kept = set(STAYS_IN) - ({"unexplained"} if without_stalls else set())
            if any(level["ranked"] and level["gpu_hours_lost"] for level in levels or []):
                kept.add(SLOWER_SPEED)  # TGS is of the slower steps
            stays = sum(each["share"] for each in causes if each["cause"] in kept)
            assert share == pytest.approx(steady + stays, abs=0.025), name


STAYS_IN = ("unexplained", "garbage collection")
