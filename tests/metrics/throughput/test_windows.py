"""Windows of each kind of time evidence, on rows that one can work out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.metrics.core.run_arrays import RunArrays
from fairmfu.metrics.throughput.windows import (
    OptimizerStepCount,
    _interval,
    accumulation_steps,
    average_window_assumed,
    build_windows,
    choose_evidence,
    clock_unit,
    count_optimizer_steps,
    disturbances,
    evidence_rounding,
    fold_ranks,
    lines_of_windows,
    split_repeated_steps,
    stamp_error,
    steady_windows,
    steps_covered,
    timed_windows,
    window_after_step_1,
    without_placeholder_losses,
)
from tests.metrics.throughput.test_throughput import at, facts, frame, rates, run, steps
from tests.support.effort import costly

HUNDRED = {"gpus": 1, "global_batch_size": 1, "seq_len": 100}
"""100 tokens a step on the one GPU."""


def windows(
    rows: Sequence[dict], *events: dict, known: dict | None = None, **about: object
) -> pl.DataFrame:
    happened = frame("events", *({"run_id": "r"} | event for event in events))
    given = facts(**HUNDRED) if known is None else facts(**known)
    return build_windows(steps(*rows), run(**about), given, happened)


def arrays(rows: Sequence[dict], *events: dict, **about: object) -> RunArrays:
    return RunArrays(windows(rows, *events, **about))


# --- ranks ----------------------------------------------------------------------------------


def of_rank(rank: str, seconds: dict[int, float]) -> list[dict]:
    return [
        {"rank": rank, "step": n, "elapsed_s": s, "logged_at": at(10 * n + s)}
        for n, s in seconds.items()
    ]


@pytest.mark.parametrize(("prints", "counts"), [(2, True), (1, False)])
def test_a_rank_of_few_lines_is_not_the_slowest(prints: int, *, counts: bool) -> None:
    """Of four steps behind the first it prints half, or fewer."""
    slow = {1: 1.0} | dict.fromkeys(range(2, 2 + prints), 3.0)
    rows = of_rank("0", dict.fromkeys(range(1, 6), 1.0)) + of_rank("1", slow)
    folded = fold_ranks(steps(*rows))
    longer = 3.0 if counts else 1.0
    assert folded["elapsed_s"].to_list() == [1.0, *[longer] * prints, *[1.0] * (4 - prints)]
    assert folded["logged_at"][1] == at(20 + longer)
    assert folded["printing"].to_list() == [2] * (1 + prints) + [1] * (4 - prints)


def test_the_first_step_does_not_say_which_rank_is_the_slowest() -> None:
    """It compiles there, whatever it takes behind that."""
    rows = of_rank("0", {1: 90.0, 2: 1.0, 3: 1.0}) + of_rank("1", {1: 10.0, 2: 1.5, 3: 1.5})
    assert fold_ranks(steps(*rows))["elapsed_s"].to_list() == [10.0, 1.5, 1.5]


def test_ranks_that_take_as_long_are_stamped_by_the_first() -> None:
    rows = of_rank("0", {1: 1.0, 2: 1.0}) + of_rank("1", {1: 1.0, 2: 1.0})
    late = [row | {"logged_at": row["logged_at"] + timedelta(seconds=5)} for row in rows[2:]]
    for order in ([*rows[:2], *late], [*late, *rows[:2]]):
        assert fold_ranks(steps(*order))["logged_at"].to_list() == [at(11), at(21)]


def test_the_wait_for_data_decides_which_rank_is_the_slowest() -> None:
    rows = of_rank("0", dict.fromkeys((1, 2, 3), 1.0)) + of_rank("1", dict.fromkeys((1, 2, 3), 0.9))
    rows = [row | {"data_s": 0.5 if row["rank"] == "1" else 0.1} for row in rows]
    folded = fold_ranks(steps(*rows))
    assert folded["elapsed_s"].to_list() == [0.9] * 3
    assert folded["wall_s"].to_list() == pytest.approx([1.4] * 3)
    assert folded["data_s"].to_list() == [0.5] * 3


def test_what_ranks_print_of_a_step_is_a_mean_a_median_or_the_most() -> None:
    """Rated tokens: of each rank its rate times its time; copies: of no named rank."""
    rows = [
        {"rank": "0", "logged_tgs": 10.0, "elapsed_s": 1.0, "rank_tokens": 8.0, "samples": 2},
        {"rank": "3", "logged_tgs": 20.0, "elapsed_s": 2.0, "rank_tokens": 10.0, "samples": 5},
        {"rank": "2", "logged_tgs": 90.0, "elapsed_s": 1.0, "rank_tokens": 12.0, "samples": 3},
    ]
    (one,) = fold_ranks(steps(*(row | {"step": 1} for row in rows))).to_dicts()
    assert (one["logged_tgs"], one["rated_tokens"]) == (20.0, (10 + 40 + 90) / 3)
    assert (one["rank_tokens"], one["samples"]) == (10.0, 5)
    assert (one["printing"], one["first_rank"], one["last_rank"]) == (3, 0, 3)
    copied = ({"step": 1, "elapsed_s": 1.0}, {"step": 1, "elapsed_s": 1.75})
    assert fold_ranks(steps(*copied))["copies_s"].to_list() == [0.75]


def test_a_loss_below_zero_at_each_step_is_no_loss() -> None:
    """What ranks of other pipeline stages print: -1, or that times the ranks that are summed."""
    losses = {
        "0": [-1.0, -1.0, -1.0],
        "1": [-8.0, -8.0, -8.0],
        "2": [-1.0, -1.0, -2.0],
        "3": [-1.0, None, None],
        "4": [0.0, 0.0, 0.0],
        "5": [3.0, -1.0, 2.0],
    }
    rows = [
        {"rank": rank, "step": n, "loss": loss}
        for rank, each in losses.items()
        for n, loss in enumerate(each, 1)
    ]
    kept = without_placeholder_losses(steps(*rows))["loss"].to_list()
    assert kept == [None] * 6 + [loss for rank in "2345" for loss in losses[rank]]


@pytest.mark.parametrize(
    ("loss", "stages", "counted"),
    [(-1.0, {}, None), (-1.0, {"pipeline_parallel": 4}, 25), (2.0, {}, 100)],
)
def test_stages_that_no_line_states_share_a_batch(
    loss: float, stages: dict[str, int], counted: float | None
) -> None:
    """The batch was counted as that of one GPU: 16 times the logged rate of 16 stages."""
    rows = [
        {"line": i, "step": i, "elapsed_s": 2.0, "logged_tgs": 4.0, "loss": loss, "rank": "0"}
        for i in range(1, 4)
    ]
    known = {"micro_batch_size": 1, "gradient_accumulation": 1, "seq_len": 100, **stages}
    assert windows(rows, known=known)["tokens_per_gpu"].to_list() == [counted] * 3


@costly
@given(peaks=st.lists(st.sampled_from([0.0, None, 2.0**30, 2.0**31]), min_size=3, max_size=8))
def test_a_peak_of_0_is_no_measured_memory(peaks: list[float | None]) -> None:
    """Torchtitan prints "memory: 0.00GiB(0.00%)" where the allocator keeps no statistics."""
    rows = [
        {"line": i, "step": i, "elapsed_s": 1.0, "peak_memory_bytes": peak}
        for i, peak in enumerate(peaks, 1)
    ]
    found = rates(steps(*rows), run(), facts(**HUNDRED))["peak_memory_bytes"]
    assert found == max(filter(None, peaks), default=None)
    assert windows(rows)["peak_memory_bytes"].to_list() == [peak or None for peak in peaks]


def test_a_step_has_the_loss_of_the_rank_that_knows_it() -> None:
    rows = [{"step": 1, "rank": "0", "loss": -1.0}, {"step": 1, "rank": "1", "loss": 0.0}]
    assert fold_ranks(steps(*rows))["loss"].to_list() == [0.0]
    assert fold_ranks(steps(*(row | {"loss": -2.0} for row in rows)))["loss"].to_list() == [-2.0]


def test_runs_that_print_a_step_twice_are_told_from_the_others() -> None:
    lines = {"a": (1, 2, 2, 3), "b": (3, 4), "c": (4, 4)}
    table = frame("steps", *({"run_id": r, "step": n} for r, each in lines.items() for n in each))
    several, single = split_repeated_steps(table)
    assert several["run_id"].to_list() == ["a"] * 4 + ["c"] * 2
    assert single["step"].to_list() == [3, 4]


# --- spans ----------------------------------------------------------------------------------


def spans(kind: str, *logged: int, every: int | None = None, **about: object) -> list[int | None]:
    rows = [{"step": n, "elapsed_s": 1.0, "logged_tgs": 100.0} for n in logged]
    known = HUNDRED | ({} if every is None else {"log_interval": every})
    return windows(rows, known=known, **about)[f"{kind}_span"].to_list()


def test_a_line_speaks_of_the_steps_since_the_line_before() -> None:
    whole = {"elapsed_covers": "interval", "rate_covers": "interval"}
    assert spans("elapsed", 10, 20, 30, **whole) == [None, 10, 10]
    assert spans("elapsed", 10, 20, 30, every=10, **whole) == [10, 10, 10]
    assert spans("elapsed", 20, 30, 40, every=10, **whole) == [None, 10, 10]  # an excerpt
    assert spans("elapsed", 7, 17, 27, every=10, **whole) == [7, 10, 10]
    assert spans("rate", 1, 10, 20, **whole) == [1, 9, 10]
    assert spans("rate", 1, 2, 3, **whole) == [1, 1, 1]


def test_of_lines_that_are_gone_a_line_speaks_of_its_own_interval() -> None:
    """By the interval of the log, else as many as lie between most lines."""
    whole = {"elapsed_covers": "interval"}
    assert spans("elapsed", 10, 20, 30, 1020, **whole) == [None, 10, 10, 10]
    assert spans("elapsed", 10, 20, 25, 30, **whole) == [None, 5, 5, 5]
    assert spans("elapsed", 1, 10, 20, 40, **whole) == [1, 9, 10, 10]
    assert spans("elapsed", 10, 20, 40, every=20, **whole) == [10, 10, 20]


def test_a_line_may_speak_of_a_step_or_of_the_last_ten() -> None:
    assert spans("elapsed", 10, 20, 30, elapsed_covers="step") == [1, 1, 1]
    assert spans("rate", 50, 100, rate_covers="step") == [1, 1]
    assert spans("rate", 5, 20, 25, 65, rate_covers="last_10") == [5, 10, 5, 10]
    assert spans("elapsed", 5, 20, 65, elapsed_covers="last_10") == [5, 10, 10]
    assert spans("elapsed", 10, 20) == [None, None]


@pytest.mark.parametrize(
    ("logged", "place"),
    [((1, 10, 20), 1), ((1, 3, 6), 1), ((1, 2, 3), None), ((10, 20, 30), None), ((1,), None)],
)
def test_what_completes_the_interval_of_step_1_has_its_place(
    logged: tuple[int, ...], place: int | None
) -> None:
    rows = [{"step": n, "elapsed_s": 1.0} for n in logged]
    assert window_after_step_1(arrays(rows, elapsed_covers="interval"), "elapsed") == place


def test_an_excerpt_has_no_window_that_completes_that_of_step_1() -> None:
    rows = [{"step": n, "elapsed_s": 1.0} for n in (1, 100, 110)]
    about = {"known": HUNDRED | {"log_interval": 10}, "elapsed_covers": "interval"}
    assert window_after_step_1(arrays(rows, **about), "elapsed") is None


# --- times ----------------------------------------------------------------------------------


def test_a_rate_in_samples_is_a_time_of_the_batch() -> None:
    """4 samples/s of 16 samples a step take 4 s; of 8 GPUs each has 2 samples of 100 tokens."""
    rows = [{"step": n, "logged_samples_per_second": 4.0} for n in (1, 2)]
    about = {"known": {"gpus": 8, "seq_len": 100, "global_batch_size": 16}, "rate_covers": "step"}
    found = windows(rows, **about)
    assert found["tokens_per_gpu"].to_list() == [200.0, 200.0]
    for name in ("rate_time", "known_rate_time"):
        assert found[name].to_list() == [4.0, 4.0], name


def test_a_rate_of_unknown_tokens_counts_a_step_as_one() -> None:
    rows = [{"step": n, "logged_tgs": 4.0} for n in (1, 11)]
    found = windows(rows, known={"gpus": 1, "log_interval": 10}, rate_covers="interval")
    assert found["rate_time"].to_list() == [0.25, 2.5]
    assert found["known_rate_time"].to_list() == [None, None]
    assert steady_windows(RunArrays(found), "rate").tokens.tolist() == [10.0]


@pytest.mark.parametrize("bad", [0.0, -1.0, float("inf"), float("nan")])
def test_a_time_or_a_rate_that_is_none_has_no_time(bad: float) -> None:
    rows = [{"step": 1, "elapsed_s": bad, "logged_tgs": bad}]
    found = windows(rows, elapsed_covers="step", rate_covers="step")
    for name in ("elapsed_time", "rate_time", "known_rate_time"):
        assert found[name].to_list() == [None], name


def test_moments_may_stand_still_but_not_go_back() -> None:
    seconds = (3.0, 3.0, 2.0, 4.5)
    rows = [{"step": n, "logged_at": at(s), "since_start_s": s} for n, s in enumerate(seconds, 1)]
    found = windows(rows)
    for name in ("stamp_time", "clock_time"):
        assert found[name].to_list() == [None, 0.0, None, 2.5], name


def test_a_line_without_a_time_adds_its_steps_to_the_next_window() -> None:
    rows = [{"step": n, "logged_at": None if n in {2, 3} else at(2.0 * n)} for n in range(1, 6)]
    found = windows(rows)
    assert found["stamp_span"].to_list() == [None, None, None, 3, 1]
    assert found["stamp_time"].to_list() == [None, None, None, 6.0, 2.0]


def test_lines_that_share_a_time_have_the_tokens_of_their_mean_step() -> None:
    """300 tokens on the line without a time, 100 on that behind it: 200 of each."""
    tokens = (100.0, 300.0, 100.0, 500.0)
    rows = [
        {"step": n, "rank_tokens": t, "logged_at": None if n == 2 else at(n)}
        for n, t in enumerate(tokens, 1)
    ]
    assert windows(rows)["tokens_per_gpu"].to_list() == [100.0, 200.0, 200.0, 500.0]
    rows[1]["rank_tokens"] = None
    assert windows(rows, known={"gpus": 1})["tokens_per_gpu"].to_list() == [100, None, None, 500]


# --- a companion's lines --------------------------------------------------------------------


def test_a_stamp_of_the_engine_stands_between_the_lines_of_its_step() -> None:
    """Behind the step's own line it counts other steps than these lines do."""
    rows = [{"line": 10 * n, "step": n, "elapsed_s": 1.0} for n in (1, 2, 3, 4)]
    lines = {1: 9, 2: 20, 3: 20, 4: 41}
    events = [
        {"kind": "engine_step", "line": line, "step": n, "logged_at": at(n)}
        for n, line in lines.items()
    ]
    assert windows(rows, *events)["engine_at"].to_list() == [at(1), at(2), at(3), None]
    counted = windows(rows, *events, known=HUNDRED | {"steps_counted": True})
    assert counted["engine_at"].to_list() == [None] * 4


def test_a_timer_is_of_the_step_that_is_printed_next_after_it() -> None:
    rows = [{"line": 10 * n, "step": n, "elapsed_s": 1.0} for n in (1, 2, 3)]
    said = '{"average": "1.0", "rate": "%d", "step": "%d", "micro_step": "%d"}'
    events = [
        {"kind": "engine_step", "line": line, "extra": said % (line, line + 1, line + 2)}
        for line in (5, 8, 25)
    ]
    found = windows(rows, *events)
    assert found["timer_rate"].to_list() == [8.0, None, 25.0]
    assert found["timer_step"].to_list() == [9.0, None, 26.0]
    assert found["timer_micro_step"].to_list() == [10.0, None, 27.0]
    assert found["timer_time"].to_list() == [1 / 8, None, 1 / 25]


# --- events ---------------------------------------------------------------------------------

ANEW = {"kind": "evaluation", "extra": '{"restarts": "rate"}'}


def test_a_rate_starts_anew_behind_an_evaluation() -> None:
    """Behind those of steps 12 and 17 it is over 3 steps; behind that of step 30 over 10."""
    rows = [{"line": n, "step": n, "logged_tgs": 100.0} for n in (10, 20, 30, 40)]
    events = [ANEW | {"line": n + 1, "step": n} for n in (12, 17, 30)]
    found = windows(rows, *events, rate_covers="interval")
    assert found["rated_from"].to_list() == [None, 17, 17, 30]
    assert found["restarts"].to_list() == [None, 2, 0, 1]
    assert found["rate_span"].to_list() == [None, 3, 10, 10]
    other = [event | {"extra": None} for event in events]
    found = windows(rows, *other, rate_covers="interval")
    assert found["rated_from"].to_list() == [None] * 4
    assert found["restarts"].to_list() == [None, 0, 0, 0]
    assert found["rate_span"].to_list() == [None, 10, 10, 10]


def test_events_fall_into_the_window_of_the_next_line() -> None:
    """Of one line with it, and of several kinds; a rate that starts anew holds the later ones."""
    rows = [{"line": 10 * n, "step": n, "elapsed_s": 1.0} for n in (1, 2, 3, 4)]
    events = [
        {"line": 10, "kind": "load"},
        {"line": 12, "kind": "checkpoint"},
        ANEW | {"line": 14, "step": 1},
        {"line": 16, "kind": "profiler"},
        {"line": 17, "kind": "profiler"},
        {"line": 22, "kind": "gc", "seconds": 0.5},
        {"line": 23, "kind": "gc", "seconds": 0.25},
        {"line": 32, "kind": "gc", "seconds": 0.5},
        {"line": 33, "kind": "gc"},
        {"line": 44, "kind": "checkpoint"},
    ]
    found = windows(rows, *events)
    assert found["events"].to_list() == [
        ["load"],
        ["checkpoint", "evaluation", "profiler"],
        ["gc"],
        ["gc"],
    ]
    assert found["rate_events"].to_list() == [["load"], ["profiler"], ["gc"], ["gc"]]
    assert found["gc_s"].to_list()[2:] == [0.75, None]


@pytest.mark.parametrize(
    ("step", "into"),
    [
        (None, [2, 3, 4]),
        (0, [2, 3, 4]),
        (1, [2]),
        (2, [3]),
        (3, [4]),
        (4, [4]),
        (5, [2, 3, 4]),
    ],
)
def test_an_event_before_a_line_of_several_steps_is_of_those_behind_its_own(
    step: int | None, into: list[int]
) -> None:
    """Where the source that leads prints fewer lines than another of its launch."""
    lines = {1: 10, 2: 20, 3: 20, 4: 20, 5: 30}
    rows = [{"line": line, "step": n, "elapsed_s": 1.0} for n, line in lines.items()]
    found = windows(rows, {"line": 15, "kind": "checkpoint", "step": step})
    fell = found.filter(pl.col("events").list.len() > 0)
    assert fell["step"].to_list() == into


def profiled(count: int, written: int, reach: int | None = None) -> list[list[str]]:
    """Events of lines of one step each; what a profiler saw is written at one of them."""
    rows = [{"line": 10 * n, "step": n, "elapsed_s": 1.0} for n in range(1, count + 1)]
    known = HUNDRED | ({} if reach is None else {"profiled_steps": reach})
    seen = {"kind": "profiler", "step": written, "extra": '{"profiled": "steps"}'}
    found = windows(rows, seen | {"line": 10 * written + 1}, known=known)
    return found["events"].to_list()


def test_the_steps_before_a_trace_is_written_ran_under_the_profiler() -> None:
    """Four of them, or as many as the config says; the write falls into the next window."""
    assert profiled(22, 20) == [[]] * 16 + [["profiler"]] * 5 + [[]]
    assert profiled(22, 20, 2) == [[]] * 18 + [["profiler"]] * 3 + [[]]


def test_steps_under_a_profiler_count_where_there_are_no_others() -> None:
    """Behind the two lines of the start."""
    assert profiled(6, 6) == [[], [], *[["profiled"]] * 4]
    assert profiled(6, 6, 3) == [[], [], [], *[["profiler"]] * 3]


def test_an_evaluation_spoils_a_rate_that_is_over_all_steps() -> None:
    rows = [{"line": 10 * n, "step": n, "logged_tgs": 100.0} for n in range(1, 5)]
    kinds = ("evaluation", "checkpoint", "load")
    events = [{"line": 10 * n + 5, "kind": kind} for n, kind in enumerate(kinds, 1)]
    found = {
        covers: disturbances(arrays(rows, *events, rate_covers=covers), "rate")
        for covers in ("interval", "step")
    }
    assert found["interval"] == {1: ["evaluation"], 2: ["checkpoint"]}
    assert found["step"] == {2: ["checkpoint"]}
    assert disturbances(arrays(rows, *events), "stamp") == {1: ["evaluation"], 2: ["checkpoint"]}
    assert disturbances(arrays(rows, *events), "timer") == {}


# --- what a window holds besides ------------------------------------------------------------


def begun(*seconds: float, tgs: float = 100.0, **known: object) -> list[bool]:
    """Ten steps a line at one printed rate; between the stamps so many seconds."""
    clock = np.cumsum([0.0, *seconds])
    rows = [
        {"step": 10 * n, "logged_tgs": tgs, "logged_at": at(passed)}
        for n, passed in enumerate(clock, 1)
    ]
    about = {"rate_covers": "interval", "elapsed_covers": "step"}
    found = windows(rows, known={"gpus": 1, "log_interval": 10} | known, **about)
    return found["begun_anew"].to_list()[1:]


@pytest.mark.parametrize(
    ("usual", "pause", "told"),
    [(20.0, 4.9, False), (20.0, 5.1, True), (100.0, 10.4, False), (100.0, 10.6, True)],
)
def test_stamps_that_hold_a_pause_beside_a_rate_tell_of_a_new_beginning(
    usual: float, pause: float, *, told: bool
) -> None:
    """More than 5 s, and than 10 % and what the print of 100 tokens/s leaves open: 0.5 %."""
    found = begun(*[usual] * 5, usual + pause, *[usual] * 4)
    assert found == [False] * 5 + [told] + [False] * 4


def test_the_tokens_of_a_step_tell_how_long_its_rate_takes() -> None:
    """200 of each step at 100 a second: 20 s, whatever most windows take."""
    known = {"global_batch_size": 2, "seq_len": 100}
    assert begun(*[20.0] * 8, 60.0, **known) == [False] * 8 + [True]
    assert begun(*[60.0] * 8, 60.0, **known) == [False] * 9  # too many for exceptions


@pytest.mark.parametrize(("paused", "told"), [(2, True), (3, False)])
def test_new_beginnings_are_a_fifth_of_the_windows_at_most(paused: int, *, told: bool) -> None:
    """Of ten lines, the first with them."""
    found = begun(*[20.0] * (9 - paused), *[50.0] * paused)
    assert found == [False] * (9 - paused) + [told] * paused


def test_a_line_without_a_stamp_tells_of_no_new_beginning() -> None:
    rows = [{"step": 10 * n, "logged_tgs": 100.0, "logged_at": at(20.0 * n)} for n in range(1, 11)]
    rows[4]["logged_at"] = None
    about = {"rate_covers": "interval", "elapsed_covers": "step"}
    found = windows(rows, known={"gpus": 1, "log_interval": 10}, **about)
    assert not found["begun_anew"].any()


def smeared(rows: Sequence[dict], *events: dict, **about: object) -> list[int]:
    found = windows(rows, *events, **{"elapsed_covers": "last_10"} | about)
    return found.filter("smeared")["step"].to_list()


def test_a_moving_mean_that_reaches_back_to_the_start_holds_it() -> None:
    """Lines of every 4 steps: those of 8 and 12 reach behind the first."""
    rows = [{"line": n, "step": n, "elapsed_s": 1.0} for n in range(4, 41, 4)]
    assert smeared(rows) == [4, 8, 12]
    far = [{"line": n, "step": n, "elapsed_s": 1.0} for n in range(10, 51, 10)]
    assert smeared(far) == [10]
    assert smeared(rows, elapsed_covers="interval") == []


def test_a_moving_mean_holds_what_fell_into_a_line_before() -> None:
    """An evaluation is of the line of 25, or step 26 has it: in all means that hold one of both."""
    rows = [{"line": n, "step": n, "elapsed_s": 1.0} for n in range(5, 61, 5)]
    assert smeared(rows, {"line": 22, "kind": "evaluation"}) == [5, 25, 30, 35]
    assert smeared(rows, {"line": 22, "kind": "load"}) == [5]


@pytest.mark.parametrize(("seconds", "held"), [(1.109, False), (1.12, True)])
def test_a_mean_longer_than_its_stamps_allow_holds_what_ran_before(
    seconds: float, *, held: bool
) -> None:
    """Ten steps of 1 s by stamps: 1 % and a second more may be rounding, 11.1 s."""
    rows = [{"step": 10 * n, "elapsed_s": 1.0, "logged_at": at(10.0 * n)} for n in range(1, 6)]
    rows[3]["elapsed_s"] = seconds
    assert smeared(rows)[1:] == ([40] if held else [])


def test_a_moving_mean_is_of_its_own_steps_less_those_of_the_window_before() -> None:
    """Steps 6 to 10 take 2.003 s, all others 1.001 s; two means hold them."""
    means = (1.001, 1.502, 1.502, 1.001)
    rows = [{"step": 5 * n, "elapsed_s": mean} for n, mean in enumerate(means, 1)]
    found = windows(rows, elapsed_covers="last_10")
    assert found["elapsed_span"].to_list() == [5, 5, 5, 5]
    assert found["elapsed_time"].to_list() == pytest.approx([5.005, 10.015, 5.005, 5.005])


def test_a_window_of_several_lines_is_shared_by_them() -> None:
    """A moving mean over ten steps of which each second line is printed: five lines of 2 s."""
    rows = [{"step": n, "elapsed_s": 1.0} for n in range(2, 61, 2)]
    found = arrays(rows, elapsed_covers="last_10", known=HUNDRED | {"average_window": 10})
    steady = steady_windows(found, "elapsed")
    lines = lines_of_windows(found, "elapsed", steady)
    assert lines.tokens.sum() == steady.tokens.sum()
    assert lines.seconds.sum() == pytest.approx(steady.seconds.sum())
    held = [
        place
        for end, tokens in zip(steady.indices, steady.tokens, strict=True)
        for place in range(int(end - tokens / 200) + 1, int(end) + 1)
    ]
    assert lines.indices.tolist() == held
    assert lines_of_windows(found, "rate", steady) is steady


def test_steps_covered_are_timed_or_not() -> None:
    """Means over 10 of each 50: 30 steps timed of 150."""
    rows = [{"step": 50 * n, "elapsed_s": 1.0, "logged_at": at(n)} for n in range(1, 5)]
    found = arrays(rows, elapsed_covers="last_10")
    later = timed_windows(found, "elapsed", ~found.flags("first"))
    assert later.seconds.tolist() == [10.0] * 3
    assert steps_covered(found, "elapsed", later.indices) == 150
    assert steps_covered(found, "stamp", later.indices) == 150


@pytest.mark.parametrize(
    ("known", "rate", "assumed"),
    [
        ({}, None, True),
        ({"average_window": 10}, None, False),
        ({}, 100.0, False),
        ({"average_window": 1}, None, False),
    ],
)
def test_over_how_many_steps_a_mean_is_may_be_assumed(
    known: dict, rate: float | None, *, assumed: bool
) -> None:
    rows = [{"step": 50 * n, "elapsed_s": 1.0, "logged_tgs": rate} for n in range(1, 5)]
    found = arrays(rows, elapsed_covers="last_10", known=HUNDRED | known)
    assert average_window_assumed(found) is assumed
    assert not average_window_assumed(arrays(rows, elapsed_covers="interval"))


# --- optimizer steps ------------------------------------------------------------------------


def micro_steps(every: int, *seconds: float, interval: int = 10, **about: object) -> RunArrays:
    rows = [{"step": interval * n, "elapsed_s": s} for n, s in enumerate(seconds, 1)]
    known = {"micro_batch_size": 1, "seq_len": 100, "packed": True, "log_interval": interval}
    about = {"step_unit": "micro_step", "elapsed_covers": "interval"} | about
    return arrays(rows, known=known | {"gradient_accumulation": every}, **about)


def test_micro_steps_alone_are_accumulated() -> None:
    assert accumulation_steps(micro_steps(4, 1.0)) == 4
    assert accumulation_steps(micro_steps(4, 1.0, step_unit="optimizer_step")) == 1
    unsaid = {"step": 1, "elapsed_s": 1.0}
    assert accumulation_steps(arrays([unsaid], step_unit="micro_step")) == 1
    whole = OptimizerStepCount.in_windows(micro_steps(1, 1.0), "elapsed", np.array([0]))
    assert whole is None


@settings(max_examples=30)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(1, 12))
def test_an_optimizer_step_ends_with_each_multiple(gaps: list[int], every: int) -> None:
    ends = np.cumsum(gaps)
    found = count_optimizer_steps(ends.astype(float), np.array(gaps, dtype=float), every)
    held = [
        sum(n % every == 0 for n in range(end - gap + 1, end + 1))
        for end, gap in zip(ends.tolist(), gaps, strict=True)
    ]
    assert found.tolist() == held


def test_windows_tell_what_an_optimizer_step_takes() -> None:
    """Ten micro-steps of 1 s with 2 or 3 optimizer steps of 2 s more: 14 and 16 s."""
    found = micro_steps(4, 1.4, 1.6, 1.4, 1.6)
    counted = OptimizerStepCount.in_windows(found, "elapsed", np.array([0, 1, 3]))
    assert counted is not None
    assert (counted.count, counted.expected) == (8, 7.5)
    assert counted.excess_share == pytest.approx((8 - 7.5) * 2 / (14 + 16 + 16))
    assert not counted.is_balanced
    alike = OptimizerStepCount.in_windows(found, "elapsed", np.array([1, 3]))
    assert alike is not None
    assert (alike.count, alike.expected, alike.excess_share) == (6, 5.0, None)


@pytest.mark.parametrize("stalled", [1, 9])
def test_a_stall_of_one_window_does_not_hide_what_optimizer_steps_take(stalled: int) -> None:
    """By medians or by means, whichever is more: 2 s, or 20 s more in one of five windows."""
    seconds = [1.4, 1.6] * 5
    seconds[stalled] += 2.0
    counted = OptimizerStepCount.in_windows(micro_steps(4, *seconds), "elapsed", np.arange(10))
    assert counted is not None
    assert (counted.count, counted.expected, counted.excess_share) == (25, 25.0, 0.0)
    counted = OptimizerStepCount.in_windows(micro_steps(4, *seconds), "elapsed", np.arange(9) + 1)
    assert counted is not None
    whole = 4 * 14 + 5 * 16 + 20
    assert counted.excess_share == pytest.approx((23 - 22.5) * (2 + 20 / 5) / whole)


@pytest.mark.parametrize(
    ("count", "expected", "excess", "balanced"),
    [
        (50, 10.0, 0.01, True),
        (5, 10.0, -0.01, True),
        (10, 10.0, 0.0101, False),
        (10, 10.0, -0.0101, False),
        (9, 10.0, None, True),
        (109, 100.0, None, True),
        (89, 100.0, None, False),
        (111, 100.0, None, False),
        (0, 0.0, None, True),
    ],
)
def test_optimizer_steps_are_balanced_by_their_time_or_else_by_their_number(
    count: int, expected: float, excess: float | None, *, balanced: bool
) -> None:
    assert OptimizerStepCount(count, expected, excess).is_balanced is balanced


# --- which evidence, and how exact ----------------------------------------------------------


def test_evidence_is_the_first_that_has_a_clean_window() -> None:
    rows = [{"step": n, "logged_at": at(2.0 * n), "elapsed_s": None} for n in (1, 2, 3)]
    about = {"elapsed_covers": "step"}
    assert choose_evidence(arrays(rows, **about), ["elapsed", "stamp"]) == "stamp"
    timed = [row | {"elapsed_s": 2.0} for row in rows]
    assert choose_evidence(arrays(timed, **about), ["elapsed", "stamp"]) == "elapsed"
    assert choose_evidence(arrays(timed, **about), ["stamp", "elapsed"]) == "stamp"
    assert choose_evidence(arrays(timed[:1], **about), ["stamp", "elapsed"]) is None
    assert choose_evidence(arrays(timed, known={"gpus": 1}, **about), ["stamp", "elapsed"]) is None


def test_the_engines_stamps_count_where_no_line_has_a_time() -> None:
    rows = [{"line": 10 * n, "step": n} for n in (1, 2, 3)]
    events = [
        {"kind": "engine_step", "line": 10 * n - 1, "step": n, "logged_at": at(n)}
        for n in (1, 2, 3)
    ]
    assert choose_evidence(arrays(rows, *events), ["elapsed"]) == "engine"
    timed = [row | {"elapsed_s": 1.0 if row["step"] == 1 else None} for row in rows]
    assert choose_evidence(arrays(timed, *events, elapsed_covers="step"), ["elapsed"]) is None


@pytest.mark.parametrize(("tgs", "kind"), [(49.0, "stamp"), (50.0, "rate"), (49.5, "rate")])
def test_a_rate_gives_way_where_half_a_unit_is_more_than_a_hundredth(tgs: float, kind: str) -> None:
    rows = [{"step": n, "logged_tgs": tgs, "logged_at": at(200.5 * n)} for n in (1, 2, 3)]
    found = arrays(rows, rate_covers="step", log_format="torchtitan")
    assert choose_evidence(found, ["rate", "stamp"]) == kind
    other = arrays(rows, rate_covers="step")  # of a format that prints decimals
    assert choose_evidence(other, ["rate", "stamp"]) == "rate"


def test_a_print_leaves_half_a_unit_of_its_last_digit_open() -> None:
    """1.25 and 0.5 s: 0.005 of each, 0.4 % and 1 %; of three the median."""
    rows = [{"step": n, "elapsed_s": s} for n, s in enumerate((9.0, 1.25, 0.5, 1.25), 1)]
    found = arrays(rows, elapsed_covers="step")
    chosen = steady_windows(found, "elapsed")
    assert evidence_rounding(found, chosen, "elapsed") == pytest.approx(0.005 / 1.25)


def test_a_step_that_only_waits_for_data_has_no_digits() -> None:
    """Nor do its digits count beside those of other steps."""
    for last, off in ((0.0, 0.0), (1.25, 0.005 / 1.25)):
        rows = [
            {"step": n, "elapsed_s": s, "data_s": 2.0} for n, s in enumerate((9.0, 0.0, last), 1)
        ]
        found = arrays(rows, elapsed_covers="step", elapsed_excludes_data=True)
        chosen = steady_windows(found, "elapsed")
        assert len(chosen.indices) == 2
        assert evidence_rounding(found, chosen, "elapsed") == pytest.approx(off)


def test_stamps_of_whole_seconds_leave_a_second_open() -> None:
    rows = [{"step": n, "logged_at": at(4.0 * n)} for n in range(1, 7)]
    found = arrays(rows)
    assert (clock_unit(found, "stamp"), stamp_error(found, "stamp")) == (1.0, 1.0)
    chosen = steady_windows(found, "stamp")
    assert evidence_rounding(found, chosen, "stamp") == pytest.approx(1 / 20)
    rows[0]["logged_at"] = at(4.5)
    found = arrays(rows)
    assert (clock_unit(found, "stamp"), stamp_error(found, "stamp")) == (0.1, 0.0)
    assert stamp_error(found, "stamp", np.array([1, 2])) == 1.0  # these are whole
    assert stamp_error(found, "elapsed") == 0.0


@pytest.mark.parametrize(
    ("seconds", "unit"),
    [(1.0, 1.0), (1.5, 0.1), (1.25, 0.01), (1.125, 0.001), (1.0625, 1e-6)],
)
def test_a_clock_has_the_coarsest_unit_of_all_its_readings(seconds: float, unit: float) -> None:
    rows = [
        {"step": n, "logged_at": at(s), "since_start_s": s} for n, s in ((1, 3.0), (2, seconds))
    ]
    found = arrays(rows)
    for kind in ("stamp", "clock"):
        assert clock_unit(found, kind) == unit


@pytest.mark.parametrize(
    ("steps", "spans"),
    [
        ([10, 20, 30, 4180, 14620], [10, 10, 10, 10]),  # excerpts of one log, days apart
        ([50, 80, 90], [10, 10]),
        ([10, 20, 90, 160], [70, 70, 70]),  # most lines are left out
    ],
)
def test_a_line_between_excerpts_is_of_the_usual_interval(
    steps: list[int], spans: list[int]
) -> None:
    """A printed mean is of the log's interval, however many steps the excerpt leaves out."""
    frame = pl.DataFrame({"run_id": ["a"] * len(steps), "step": steps}).with_columns(
        new_step=pl.col("step").diff(),
        first=pl.int_range(pl.len()) == 0,
        log_interval=pl.lit(None, pl.Int64),
    )
    told = frame.select(interval=_interval())["interval"].to_list()[1:]
    assert told == [min(span, apart) for span, apart in zip(spans, np.diff(steps), strict=True)]
