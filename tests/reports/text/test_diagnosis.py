"""The first lines on a run: outcome, speeds, time outside of the timer, losses."""

from __future__ import annotations

from typing import Any

from fairmfu.metrics.core.run_table import METRICS, PauseLevel, SpeedLevel
from fairmfu.metrics.core.run_words import SLOWER_SPEED
from fairmfu.reports.text.diagnosis import diagnosis
from fairmfu.reports.text.inside_run import levels_table, slowest_table


def row(**values: object) -> dict[str, Any]:
    return dict.fromkeys(METRICS) | {"outcome": "completed"} | values


def level(first: int, last: int, tgs: float | None, **values: Any) -> SpeedLevel:
    known: SpeedLevel = {
        "from_step": first,
        "to_step": last,
        "windows": 10,
        "seconds": 60.0,
        "seconds_per_step": 1.25,
        "tgs": tgs,
        "tgs_low": None,
        "tgs_high": None,
        "ranked": True,
        "change": None,
        "change_low": None,
        "change_high": None,
        "gpu_hours_lost": None,
        "events": [],
        "phases": None,
    }
    return known | values


def pause(first: int, last: int, seconds: float) -> PauseLevel:
    share = seconds / 16.7
    return {"from_step": first, "to_step": last, "seconds_per_step": seconds, "share": share}


def test_a_run_that_was_not_judged_has_its_outcome_alone() -> None:
    assert diagnosis(row()) == ["Outcome: completed."]


def test_a_steady_run_says_so() -> None:
    assert diagnosis(row(levels=[]))[1:] == ["Speed: no lasting change."]
    assert diagnosis(row(levels=[], tgs_p5=6_371.4, tgs_p95=6_432.0))[1:] == [
        "Speed: no lasting change; 90 % of the windows at 6,371 to 6,432 tokens/s/GPU."
    ]


def test_each_change_has_its_step_size_and_rates() -> None:
    levels = [
        level(3, 585, 219_814.0),
        level(586, 608, 149_934.0, change=-0.318, gpu_hours_lost=0.013, events=["evaluation"]),
        level(609, 1024, 168_830.0, change=0.126, gpu_hours_lost=0.16),
    ]
    assert diagnosis(row(levels=levels))[1:] == [
        "Speed: fell by 31.8 % at step 586 after evaluation (219,814 to 149,934 tokens/s/GPU), "
        "rose by 12.6 % at step 609 (to 168,830); at the end 23.2 % below the speed of the start. "
        "All slower steps together cost 0.17 GPU-hours."
    ]


def test_a_run_without_tokens_has_times_per_step() -> None:
    levels = [level(1, 50, None), level(51, 99, None, change=-0.1, seconds_per_step=1.39)]
    assert diagnosis(row(levels=levels))[1:] == [
        "Speed: fell by 10.0 % at step 51 (1.25 s a step to 1.39 s a step)."
    ]


def test_lines_of_an_unknown_number_of_steps_are_called_lines() -> None:
    levels = [level(1, 50, None), level(51, 99, None, change=-0.1, seconds_per_step=1.39)]
    counted = row(levels=levels, step_unit="log_line")
    assert diagnosis(counted)[1:] == [
        "Speed: fell by 10.0 % at log line 51 (1.25 s a log line to 1.39 s a log line)."
    ]
    table = levels_table(counted)
    assert "speed (time per log line)" in table
    assert "a step" not in table
    slow = {"from_step": 7, "to_step": 7, "seconds": 9.0, "lost_s": 5.0, "cause": "unexplained"}
    assert "slowest log lines" in slowest_table(row(slowest_steps=[slow], step_unit="log_line"))


def phases(**seconds: float) -> list[dict[str, Any]]:
    return [{"phase": phase, "seconds": of} for phase, of in seconds.items()]


def test_the_phase_that_changed_is_named_with_those_that_did_not() -> None:
    before = phases(data=0.001, forward=0.1, backward=0.3, rest=0.1)
    after = phases(data=0.27, forward=0.1, backward=0.301, rest=0.102)
    levels = [
        level(1, 50, 200.0, phases=before, seconds_per_step=0.5),
        level(51, 99, 130.0, phases=after, seconds_per_step=0.77, change=-0.35),
    ]
    assert diagnosis(row(levels=levels))[1].endswith(
        " Data rose from 1 ms a step (steps 1 to 50) to 270 ms (steps 51 to 99). "
        "Unchanged: forward, backward and rest."
    )
    levels[1]["phases"] = phases(data=0.001, forward=0.1, backward=0.301, rest=0.37)
    assert "The rest of a step, outside all timed phases, rose from " in str(
        diagnosis(row(levels=levels))
    )


def test_the_cause_is_of_the_speed_that_cost_most() -> None:
    """A short drop in one phase hides no long loss in another."""
    levels = [
        level(1, 50, 200.0, phases=phases(data=0.1, forward=0.4), seconds_per_step=0.5),
        level(51, 60, 130.0, phases=phases(data=0.3, forward=0.4), seconds_per_step=0.7),
        level(61, 200, 170.0, phases=phases(data=0.1, forward=0.5), seconds_per_step=0.6),
    ]
    assert diagnosis(row(levels=levels))[1].endswith(
        " Forward rose from 400 ms a step (steps 1 to 50) to 500 ms (steps 61 to 200). "
        "Unchanged: data."
    )


def test_a_cause_is_not_named_from_the_rest_alone_or_other_phases() -> None:
    for before, after in (
        (phases(rest=0.5), phases(rest=0.77)),
        (phases(data=0.1, rest=0.4), phases(forward=0.1, rest=0.67)),
    ):
        levels = [
            level(1, 50, 200.0, phases=before),
            level(51, 99, 130.0, phases=after, seconds_per_step=0.77, change=-0.35),
        ]
        assert "Time in" not in diagnosis(row(levels=levels))[1]


def test_many_changes_are_counted() -> None:
    levels = [level(10 * n, 10 * n + 9, 100.0 + n, change=0.01) for n in range(1, 7)]
    assert diagnosis(row(levels=levels))[1].endswith(
        "(to 104), and 2 more changes; at the end 5.0 % above the speed of the start."
    )


def test_a_drift_has_its_size() -> None:
    assert diagnosis(row(levels=[], drift=-0.589))[1] == (
        "Speed: fell steadily by 58.9 % over the run."
    )


def test_time_outside_of_the_timer_names_its_steps() -> None:
    pauses = [
        pause(first, last, seconds)
        for first, last, seconds in (
            *((2, 89, 1.77), (90, 259, 0.02), (260, 349, 1.7), (350, 519, 0.02)),
            *((520, 609, 1.7), (610, 779, 0.02), (780, 800, 1.7)),
        )
    ]
    assert diagnosis(row(pauses=pauses))[1:2] == [
        "Outside the step timer: up to 1.77 s a step (10.6 % of its time) in steps 2 to 89, "
        "260 to 349, 520 to 609 and 1 more stretch, by time stamps."
    ]


def test_close_times_outside_of_the_timer_have_a_longest_one() -> None:
    told = diagnosis(row(pauses=[pause(1, 50, 0.40), pause(51, 90, 0.05)]))[1]
    assert told.startswith(
        "Outside the step timer: up to 0.4 s a step (2.4 % of its time) in steps"
    )
    assert "steps 1 to 50, by" in told


def test_the_largest_losses_are_named_and_small_ones_are_not() -> None:
    lost = [
        {"cause": cause, "windows": 1, "seconds": seconds, "share": seconds / 1000}
        for cause, seconds in (("evaluation", 149.0), ("start-up", 90.0), ("checkpoint", 19.0))
    ]
    assert diagnosis(row(time_lost=lost))[1:] == [
        "Wall time lost: 14.9 % (2.5 min) evaluation; 9.0 % (1.5 min) start-up.",
        "Next: Evaluate faster, less often, or on fewer samples: evaluation took 14.9 % of the "
        "wall time.",
    ]


def test_a_slow_down_of_most_steps_is_said_to_be_one() -> None:
    lost = [{"cause": SLOWER_SPEED, "windows": 90, "seconds": 100.0, "share": 0.1}]
    levels = [level(1, 10, None, windows=10), level(11, 100, None, windows=90)]
    (told,) = (line for line in diagnosis(row(time_lost=lost, levels=levels)) if "lost" in line)
    assert told == (
        "Wall time lost: 10.0 % (1.7 min) extra time of slower steps (most of the run)."
    )


def test_the_rate_stands_behind_the_outcome_with_its_interval_and_mfu() -> None:
    steady = row(tgs=50_721.5, tgs_low=50_405.2, tgs_high=51_042.0, mfu=0.375)
    assert diagnosis(steady)[1] == (
        "Rate: 50,722 tokens/s/GPU (95 % interval 50,405 to 51,042), MFU 37.5 % (exact attention)."
    )
    doubted = row(tgs=50_721.5, mfu=0.919, warning_kinds=["mfu-implausible"])
    assert diagnosis(doubted)[1].endswith("MFU 91.9 % (exact attention, not plausible).")
    given_flops = row(tgs=50_721.5, mfu=0.375, flops_source="given: flops_per_token (flag)")
    assert diagnosis(given_flops)[1].endswith("MFU 37.5 % (by given FLOPs).")
    assert diagnosis(row(tgs=4_749.4, seconds_per_step=0.863, step_unit="micro_step"))[1] == (
        "Rate: 4,749 tokens/s/GPU, 0.863 s a micro-step."
    )
    assert diagnosis(row(samples_per_second=44.8, seconds_per_step=0.357))[1] == (
        "Rate: 44.8 samples/s over all GPUs, 0.357 s a step."
    )


def test_a_rate_that_is_not_ranked_has_its_doubt_beside_it() -> None:
    other = "TGS by time stamps is 99.8% higher than by the logged rate"
    doubts = ["Loss is of one rank.", f"Not ranked: {other}: tokens per step seem 2x too high."]
    doubted = row(tgs=5_800.0, doubts=doubts, warnings=doubts)
    assert diagnosis(doubted)[1] == f"Rate: 5,800 tokens/s/GPU. In doubt: {other}."
    ranked = row(tgs=5_800.0, doubts=doubts[:1], warnings=doubts[:1])
    assert diagnosis(ranked)[1] == "Rate: 5,800 tokens/s/GPU."


def test_an_unknown_rate_has_its_reason() -> None:
    ended = row(steps=0, warnings=["No training step was read."], warning_kinds=["no-steps"])
    assert diagnosis(ended)[1:] == ["Rate: unknown, because no training step was read."]


def test_a_time_of_a_step_without_a_tgs_shows_a_wide_interval() -> None:
    wide = {"seconds_per_step_low": 0.5, "seconds_per_step_high": 1.5}
    ends = {"seconds_per_step_low": 0.96, "seconds_per_step_high": 1.05}
    assert rate_of(seconds_per_step=1.0, **wide) == "Rate: 1 s a step (0.5 s to 1.5 s)."
    assert rate_of(seconds_per_step=1.0, **ends) == "Rate: 1 s a step."
    assert rate_of(tgs=7.0, seconds_per_step=1.0, **wide) == "Rate: 7 tokens/s/GPU, 1 s a step."


def rate_of(**values: object) -> str:
    return next(line for line in diagnosis(row(**values)) if line.startswith("Rate"))


def of_step(**shares: float) -> list[dict[str, Any]]:
    rows = [{"phase": phase, "seconds": of, "share": of} for phase, of in shares.items()]
    return [{**each, "share_of": "step", "windows": 9, "source": "timer"} for each in rows]


def test_waits_for_data_have_a_line() -> None:
    assert diagnosis(row(bound="data", data_share=0.23))[1] == (
        "Data: 23 % of the time of all steps waits for data."
    )
    uneven = row(bound="data", data_share=0.23, phases=of_step(data=0.08, rest=0.92))
    assert diagnosis(uneven)[1] == (
        "Data: 23 % of the time of all steps waits for data (8.0 % of a typical step; the waits "
        "are uneven)."
    )


def test_the_largest_loss_of_time_comes_first() -> None:
    lost = [{"cause": "start-up", "windows": 1, "seconds": 30.9, "share": 0.111}]
    waits = row(time_lost=lost, phases=of_step(collectives=0.571, pipeline=0.189, rest=0.24))
    assert diagnosis(waits)[1:3] == [
        "Communication: a step spends 57.1 % in collectives and 18.9 % in sends and receives "
        "between pipeline stages, including waits for other ranks.",
        "Wall time lost: 11.1 % (30.9 s) start-up.",
    ]


def test_a_rate_without_an_mfu_has_its_flops() -> None:
    assert diagnosis(row(tgs=1_000.0, flops_per_token=2.5e9))[1] == (
        "Rate: 1,000 tokens/s/GPU, 2.5 TFLOP/s per GPU (exact attention)."
    )


def test_speeds_far_apart_are_uneven() -> None:
    assert diagnosis(row(levels=[], tgs_p5=4_255.0, tgs_p95=11_819.0))[1] == (
        "Speed: uneven, no lasting change; 90 % of the windows at 4,255 to 11,819 tokens/s/GPU."
    )
