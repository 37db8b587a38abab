"""Means over the last ten steps on lines that stand closer together: each step counts once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import polars as pl
import pytest

from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts.facts import facts_from_flags
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.pipeline.messages import RATE_AGAINST_LOG
from fairmfu.metrics.runs.step_bins import WINDOW_COUNTED
from fairmfu.metrics.throughput.messages import COUNTS_APART, EVIDENCE_MISCOUNTED
from fairmfu.metrics.throughput.windows import build_windows
from fairmfu.reports.charts.run_series import per_step
from tests.metrics.throughput.test_throughput import START, facts, frame, rates, run, steps

LENGTH: Final = 2048
FLAGS: Final = ("gpus=1", f"seq_len={LENGTH}", "micro_batch_size=1", "packed=true")
WINDOW: Final = 10
START_S: Final = 5.0
STEADY: Final = tuple(0.9 + 0.01 * (step * 7 % 5) for step in range(1, 120))
MISCOUNTED: Final = {
    kind.identifier for kind in (COUNTS_APART, EVIDENCE_MISCOUNTED, RATE_AGAINST_LOG)
}

Read = Callable[..., Any]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """The analysis of what XTuner prints of steps that take so many seconds."""

    def analysed(  # noqa: PLR0913 - each is something else of a log
        times: Sequence[float],
        first: int = 1,
        every: int = 1,
        *,
        rate: bool = False,
        window: int = WINDOW,
        without: int = 0,
        before: Mapping[int, str] = MappingProxyType({}),
        waits: Sequence[float] = (),
    ) -> Any:
        """without: a step whose line is missing; before: what stands before the line of a step.

        waits: what each of them waits for data.
        """
        lines = printed(times, first, every, rate=rate, window=window, waits=waits)
        for step, line in before.items():
            lines.insert((step - first) // every, line)
        log = tmp_path / "run.log"
        log.write_text("\n".join(one for one in lines if f"[{without}/" not in one))
        return analyse(read_log_tables(log, flag_facts=facts_from_flags(FLAGS)))

    return analysed


def printed(  # noqa: PLR0913 - as above
    times: Sequence[float],
    first: int,
    every: int,
    *,
    rate: bool,
    window: int,
    waits: Sequence[float] = (),
) -> list[str]:
    """Lines of mmengine's LoggerHook at every so many steps, from the first one on."""
    waits = waits or [0.01] * len(times)
    lines, at = [], START
    for step, seconds in enumerate(times, start=1):
        at += timedelta(seconds=seconds)
        if step < first or step % every:
            continue
        mean, wait = (
            sum(each[max(0, step - window) : step]) / min(step, window) for each in (times, waits)
        )
        own = f"  tflops: {100 / seconds:.4f}  tokens_per_sec: {LENGTH / seconds:.4f}"
        lines.append(
            f"{at:%Y/%m/%d %H:%M:%S} - mmengine - INFO - Iter(train) [{step}/{len(times)}]  lr: "
            f"1.0e-05  eta: 0:01:00  time: {mean:.4f}  data_time: {wait:.4f}  memory: 15000  "
            f"loss: 1.2{own * rate}"
        )
    return lines


def over(times: Sequence[float], begin: int = 0, end: int | None = None) -> float:
    """Tokens/s of the steps behind one up to another."""
    return LENGTH * len(times[begin:end]) / sum(times[begin:end])


@pytest.mark.parametrize("every", [1, 2, 5])
@pytest.mark.parametrize("steps_", [20, 31, 40, 46])
def test_a_slow_start_counts_once_end_to_end(read: Read, every: int, steps_: int) -> None:
    times = [START_S, *STEADY[: steps_ - 1]]
    row = read(times, every=every).metrics.row(0, named=True)
    assert row["end_to_end_basis"] == "elapsed from start"
    assert row["tgs_end_to_end"] == pytest.approx(over(times[: steps_ // every * every]), rel=1e-3)


def test_a_pause_before_an_excerpt_is_not_its_own(read: Read) -> None:
    """20 s in step 17; the lines of steps 20 to 26 are means that still hold them."""
    times = list(STEADY[:57])
    times[16] += 20
    row = read(times, first=20).metrics.row(0, named=True)
    # Step 57 and back by tens to step 27: what the lines before it tell reaches before the excerpt.
    assert row["tgs_end_to_end"] == pytest.approx(over(times, 27), rel=1e-4)
    assert (row["end_to_end_basis"], row["windows"]) == ("elapsed", 3)
    assert row["tgs"] == pytest.approx(over(times, 27), rel=1e-4)


def test_a_stall_that_no_line_tells_of_counts_once(read: Read) -> None:
    times = list(STEADY[:110])
    times[104] += 20
    row = read(times).metrics.row(0, named=True)
    assert row["tgs"] == pytest.approx(over(times, 10), rel=1e-4)  # step 1 is start-up
    assert row["windows"] == 10


def test_rates_of_single_steps_are_held_against_no_mean_of_ten(read: Read) -> None:
    times = list(STEADY[:60])
    times[52] += 20
    row = read(times, first=20, rate=True).metrics.row(0, named=True)
    assert not MISCOUNTED.intersection(row["warning_kinds"])
    # Of all lines within the windows that count, not of the last one of each.
    assert row["logged_tgs_total"] == pytest.approx(over(times, 20), rel=1e-4)


def test_means_that_leave_steps_out_are_no_time_of_all_steps(read: Read) -> None:
    """Of every third line means of ten leave two steps out, or hold two twice: stamps count."""
    times = [START_S, *STEADY[:44]]
    row = read(times, every=3).metrics.row(0, named=True)
    assert row["end_to_end_basis"] == "stamp and first line"
    assert row["tgs_end_to_end"] == pytest.approx(over(times), abs=over(times) / sum(times))


def test_lines_within_a_window_that_counts_are_not_left_out(read: Read) -> None:
    analysis = read(list(STEADY[:51]), first=12)
    window = per_step(analysis)["window"].to_list()
    assert window == ["start-up", *["other"] * 9, *[WINDOW_COUNTED] * 30]


@pytest.mark.parametrize("every", [1, 2, 5])
def test_a_short_log_from_the_start_on_tells_each_line_its_own_time(read: Read, every: int) -> None:
    times = [START_S, *(seconds + 0.0013 * (at * 3 % 7) for at, seconds in enumerate(STEADY[:59]))]
    row = read(times, every=every).metrics.row(0, named=True)
    assert row["windows"] == 60 // every - 1
    assert row["tgs"] == pytest.approx(over(times, every), rel=1e-4)
    assert row["no_interval"] is None
    assert row["tgs_low"] < over(times, every) < row["tgs_high"]


def test_a_stall_is_of_its_own_step_where_a_short_log_tells_it(read: Read) -> None:
    """20 s in step 30: the means of ten lines hold them."""
    stalls = read(paused([START_S, *STEADY[:59]], 30)).windows.filter(pl.col("stall_s") > 0)
    assert stalls["step"].to_list() == [30]
    assert stalls["stall_s"].to_list() == pytest.approx([20], rel=0.01)


@pytest.mark.parametrize("every", [1, 5])
def test_waiting_for_data_is_that_of_the_same_steps_as_the_time(read: Read, every: int) -> None:
    """The means of the lines behind the first still hold its 3 s."""
    times = [START_S, *STEADY[:59]]
    waits = [3.0, *(0.1 + 0.02 * (step % 3) for step in range(59))]
    row = read(times, every=every, waits=waits).metrics.row(0, named=True)
    assert row["data_share"] == pytest.approx(sum(waits[every:]) / sum(times[every:]), rel=1e-3)


def test_the_step_behind_an_evaluation_is_left_out_with_it(read: Read) -> None:
    """XTuner up to 0.1.13 evaluates before the line of step 30; the time of step 31 holds that."""
    times = [START_S, *STEADY[:59]]
    chat = "2026/11/20 15:28:47 - mmengine - INFO - after_train_iter in EvaluateChatHook."
    row = read(paused(times, 31), before={30: chat}).metrics.row(0, named=True)
    kept = [seconds for step, seconds in enumerate(times, start=1) if step not in {1, 30, 31}]
    assert (row["windows"], row["tgs"]) == (57, pytest.approx(over(kept), rel=1e-4))


@pytest.mark.parametrize(
    ("scale", "first", "without"),
    [(0.1, 1, 0), (1.0, 3, 0), (1.0, 1, 27)],
    ids=["print too coarse", "an excerpt", "a line missing"],
)
def test_what_lines_cannot_tell_of_single_steps_is_of_whole_means(
    scale: float, first: int, without: int, read: Read
) -> None:
    times = [seconds * scale for seconds in (START_S, *STEADY[:59])]
    row = read(times, first=first, without=without).metrics.row(0, named=True)
    assert row["windows"] == 5
    assert row["no_interval"] == "5 timed windows, 9 needed"
    assert row["tgs"] == pytest.approx(over(times, 10), rel=1e-3)


def test_a_window_has_the_tokens_of_its_steps() -> None:
    tokens = [100, 300] * 15
    rows = [
        {"step": i + 1, "elapsed_s": 1.0, "sequence_length": each} for i, each in enumerate(tokens)
    ]
    about = run(step_unit="micro_step", elapsed_covers="last_10")
    given = facts(gpus=1, micro_batch_size=1)
    each = [row | {"samples": 1} for row in rows]
    row = rates(steps(*each), about, given)
    assert (row["tgs"], row["windows"]) == (200.0, 2)
    every = build_windows(steps(*each), about, given, frame("events"))
    assert every["elapsed_span"].drop_nulls().to_list() == [1, 9, 10, 10]
    assert every["elapsed_time"].drop_nulls().to_list() == pytest.approx([1, 9, 10, 10])


def paused(times: Sequence[float], step: int) -> list[float]:
    return [seconds + 20 * (at == step) for at, seconds in enumerate(times, start=1)]


@pytest.mark.parametrize(
    ("times", "first", "rate"),
    [
        ([START_S, *STEADY[:29]], 1, False),
        (STEADY[:40], 11, True),
        (paused(STEADY[:40], 25), 11, False),
    ],
    ids=["a mean since the start would shrink", "rates", "stamps around a pause"],
)
def test_times_of_single_steps_are_seen_where_the_log_does_not_say(
    times: Sequence[float], first: int, *, rate: bool, read: Read
) -> None:
    """mmengine's window_size=1, in lines without the config that says so."""
    analysis = read(times, first=first, rate=rate, window=1)
    assert analysis.metrics["windows"][0] == len(times) - first
    assert analysis.metrics["tgs"][0] == pytest.approx(over(times, first), rel=1e-4)


@pytest.mark.parametrize("rate", [False, True])
@pytest.mark.parametrize("first", [1, 11])
def test_means_that_jump_are_means(first: int, read: Read, *, rate: bool) -> None:
    """Every fourth step holds the optimizer's, so means of ten hold two or three of them."""
    times = [seconds + 0.5 * (at % 4 == 0) for at, seconds in enumerate(STEADY, start=1)]
    assert read(times, first=first, rate=rate).metrics["windows"][0] == 11 - (first > 1)
