"""Time evidence against time evidence and tokens against tokens: on rows that one can work out by
hand, on logs of known truth, and on every public and generated log against the golden tables.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest

from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.metrics.core.messages import NOT_RANKED
from fairmfu.metrics.core.quantities import StepSamples, StepTokens
from fairmfu.metrics.core.run_arrays import RunArrays
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.throughput import messages, time_evidence, token_counts
from fairmfu.metrics.throughput.time_evidence import EvidenceComparison, fit_step_batch
from fairmfu.metrics.throughput.windows import build_windows
from tests.metrics.throughput.test_throughput import at, facts, frame, of_kinds, rates, run, steps
from tests.support.effort import every_log
from tests.tools import evidence as report
from tests.tools.corpus import CORPUS, GENERATED

ABSENT = f"NO LOGS in {CORPUS} or {GENERATED}: set FAIRMFU_CORPUS and FAIRMFU_GENERATED"
absent = pytest.mark.skipif(not (CORPUS.is_dir() and GENERATED.is_dir()), reason=ABSENT)


def compared(
    logged: pl.DataFrame, about: pl.DataFrame, given: pl.DataFrame, *events: dict
) -> dict[tuple[str, str], EvidenceComparison]:
    happened = frame("events", *({"run_id": "r"} | event for event in events))
    every = RunArrays(build_windows(logged, about, given, happened))
    return {
        one.kinds: one for one in time_evidence.compare_evidence(every, about.row(0, named=True))
    }


def counted(
    logged: pl.DataFrame, about: pl.DataFrame, **given: object
) -> list[token_counts.CountComparison]:
    every = RunArrays(build_windows(logged, about, facts(**given), frame("events")))
    return token_counts.compare_counts(every, facts(**given).row(0, named=True))


# --- time -----------------------------------------------------------------------------------


def test_stamps_are_summed_over_the_span_of_a_mean() -> None:
    """A line every 5 steps, its time a mean over 10: two stamped windows make one."""
    seconds = [0, 5, 15, 20, 30, 35, 45]
    rows = [
        {"step": 5 * (i + 1), "logged_at": at(s), "elapsed_s": 1.5} for i, s in enumerate(seconds)
    ]
    about = run(evidence=["elapsed", "stamp"], elapsed_covers="last_10")
    (one,) = compared(steps(*rows), about, facts(average_window=10)).values()
    # Steps 6 to 15, 16 to 25 and 26 to 35; the lines between reach back over the same steps.
    assert (one.kinds, one.windows, one.sampled) == (("elapsed", "stamp"), 3, False)
    assert one.ratio == pytest.approx(3 * 10 * 1.5 / 45)


def test_a_rate_of_single_steps_is_a_sample_and_its_scatter_is_allowed() -> None:
    rows = [
        {"step": 10 * n, "logged_at": at(100 * n), "logged_tgs": tgs}
        for n, tgs in enumerate((9, 10, 12, 9, 10, 12, 9, 10, 12), start=1)
    ]
    about = run(evidence=["stamp", "rate"], rate_covers="step")
    given = facts(gpus=1, global_batch_size=1, seq_len=100)
    one = compared(steps(*rows), about, given)["stamp", "rate"]
    assert one.sampled
    assert one.tolerance > 0.05
    assert not one.disagrees
    rows = [row | {"logged_tgs": row["logged_tgs"] * 1.5} for row in rows]
    one = compared(steps(*rows), about, given)["stamp", "rate"]
    assert one.contradicts


@pytest.mark.parametrize("lines", [2, 3, 4])
@pytest.mark.parametrize(("batch", "gap"), [(1, None), (8, -0.875), (4, -0.75)])
def test_a_batch_that_is_far_off_needs_no_three_windows(
    lines: int, batch: int, gap: float | None
) -> None:
    """Of every tenth step its own rate, of all stamps: of one or two such steps 1.3x is chance."""
    rows = [
        {"step": 10 * n, "logged_at": at(100 * n), "logged_samples_per_second": 0.13 - n / 100}
        for n in range(1, lines + 1)
    ]
    about = run(evidence=["stamp", "rate"], rate_covers="step", rate_excludes_data=True)
    found = compared(steps(*rows), about, facts(gpus=1, global_batch_size=batch, seq_len=100))
    if gap is None:
        assert bool(found) == (lines > 3)
        return
    (one,) = found.values()
    assert one.windows == lines - 1
    assert one.contradicts
    assert one.gap == pytest.approx(gap, abs=0.05)


@pytest.mark.parametrize("off", [1.0, 1.5])
def test_an_interval_that_meets_the_optimizer_too_often_is_a_cause(off: float) -> None:
    """Each 10th of micro-steps of 1 s is printed; each 4th holds the optimizer's step, 1 s more.

    off: the rate counts other tokens, which is no matter of which steps are printed.
    """
    took = [2.0 if n % 4 == 0 else 1.0 for n in range(1, 201)]
    rows = [
        {"step": n, "elapsed_s": sum(took[n - 10 : n]) / 10, "logged_tgs": off * 100 / took[n - 1]}
        for n in range(10, 201, 10)
    ]
    about = run(
        evidence=["elapsed"], elapsed_covers="last_10", rate_covers="step", step_unit="micro_step"
    )
    given = facts(gpus=1, micro_batch_size=1, seq_len=100, packed=True, gradient_accumulation=4)
    one = compared(steps(*rows), about, given)["elapsed", "rate"]
    assert one.sampled
    assert one.disagrees
    said = "the optimizer step is in 10 of the 19 logged micro-steps, and in 1 of 4 of all"
    assert one.cause == (said if off == 1 else None)


@pytest.mark.parametrize("set_by", [-30, 3_600])
def test_a_clock_that_was_set_once_does_not_allow_itself(set_by: int) -> None:
    """DeepSpeed's timer says the rate of one step in fifty: its scatter is that of most windows."""
    rows = [
        {
            "step": 50 * n,
            "logged_at": at(100 * n + (set_by if n > 5 else 0)),
            "logged_tgs": 50.0 + n % 3 / 100,
        }
        for n in range(1, 13)
    ]
    about = run(evidence=["stamp", "rate"], rate_covers="step")
    one = compared(steps(*rows), about, facts(gpus=1, global_batch_size=1, seq_len=100))
    assert one["stamp", "rate"].sampled
    assert one["stamp", "rate"].tolerance < 0.02
    assert one["stamp", "rate"].disagrees
    # A rate that leaves data loading out could be apart for that, where the others did not agree.
    without_data = about.with_columns(rate_excludes_data=True)
    one = compared(steps(*rows), without_data, facts(gpus=1, global_batch_size=1, seq_len=100))
    cause = one["stamp", "rate"].cause
    assert cause is not None
    slower = "time stamps" if set_by > 0 else "the logged rate"
    assert cause.startswith(f"{abs(set_by):,}.0 s more by {slower} in 1 of 11 windows (")


@pytest.mark.parametrize(("second", "resolution"), [(1.0, 1.0), (1.001, 0.001)])
def test_stamps_of_whole_seconds_allow_more(second: float, resolution: float) -> None:
    rows = [{"step": n, "elapsed_s": 1.1, "logged_at": at(n * second)} for n in range(1, 22)]
    about = run(evidence=["elapsed", "stamp"], elapsed_covers="step")
    (one,) = compared(steps(*rows), about, facts(gpus=1)).values()
    assert one.resolution == resolution
    assert one.ratio == pytest.approx(1.1 / second)
    # 20 windows of 1 s: two truncated ends are up to a unit apart; 1.1 is printed to 0.1.
    assert one.tolerance == pytest.approx(0.01 + resolution / (20 * second) + 0.05 / 1.1)


@pytest.mark.parametrize(("saved", "stretches"), [((10,), 2), ((5, 10), 3), ((2,), 1)])
def test_each_stretch_of_windows_has_two_truncated_ends(
    saved: tuple[int, ...], stretches: int
) -> None:
    """Of several they are off by as much as chance gives: 1.22 s times the root of their number."""
    rows = [{"step": n, "elapsed_s": 1.1, "logged_at": at(n)} for n in range(1, 22)]
    about = run(evidence=["elapsed", "stamp"], elapsed_covers="step")
    events = ({"line": line, "kind": "checkpoint"} for line in saved)
    (one,) = compared(steps(*rows), about, facts(gpus=1), *events).values()
    assert one.windows == 20 - len(saved)
    off = min(stretches, 1.22 * stretches**0.5)
    assert one.tolerance == pytest.approx(0.01 + off / one.windows + 0.05 / 1.1)


def test_a_spike_without_a_line_is_named_with_its_time_and_its_period() -> None:
    clock, rows = 0.0, []
    for step in range(1, 81):
        clock += 31.0 if step % 20 == 1 and step > 1 else 1.0
        rows.append({"step": step, "elapsed_s": 1.0, "logged_at": at(clock)})
    about = run(evidence=["elapsed", "stamp"], elapsed_covers="step")
    (one,) = compared(steps(*rows), about, facts(gpus=1)).values()
    assert one.disagrees
    assert not one.contradicts
    assert one.cause is not None
    assert one.cause.startswith("90.0 s more by time stamps in 3 of 79 windows every 20 steps")


def test_a_gap_in_every_window_has_no_cause() -> None:
    rows = [{"step": n, "elapsed_s": 1.0, "logged_at": at(1.3 * n)} for n in range(1, 40)]
    about = run(evidence=["elapsed", "stamp"], elapsed_covers="step")
    (one,) = compared(steps(*rows), about, facts(gpus=1)).values()
    assert one.cause is None
    assert time_evidence.evidence_warning(one) == (
        f"{NOT_RANKED}TGS by time stamps is 23.1% lower than by the logged step time: no known "
        "cause."
    )


def test_tokens_that_are_too_many_cost_the_rank_though_the_factor_is_named() -> None:
    rows = [{"step": n, "logged_tgs": 50.0, "logged_at": at(2 * n)} for n in range(1, 40)]
    about = run(evidence=["rate", "stamp"], rate_covers="interval")
    given = facts(gpus=1, micro_batch_size=2, gradient_accumulation=1, seq_len=100)
    one = compared(steps(*rows), about, given)["rate", "stamp"]
    assert one.ratio == pytest.approx(2.0)
    assert "2x too high" in str(one.cause)
    assert one.contradicts


def test_unknown_tokens_are_fitted_and_the_window_that_does_not_fit_is_seen() -> None:
    rows = [{"step": n, "logged_tgs": 512.0, "logged_at": at(4 * n)} for n in range(1, 30)]
    rows[20:] = [row | {"logged_at": at(4 * row["step"] + 60)} for row in rows[20:]]
    about = run(evidence=["rate", "stamp"], rate_covers="interval")
    one = compared(steps(*rows), about, facts(gpus=1))["rate", "stamp"]
    assert one.fitted_tokens == pytest.approx(2048.0)
    assert "60.0 s more by time stamps in 1 of 28 windows" in str(one.cause)
    found = time_evidence.select_check([one], "rate")
    assert found is None  # what is fitted to the stamps is no evidence for them


def test_a_rate_without_data_loading_is_told_by_the_data_times() -> None:
    rows = [
        {"step": n, "elapsed_s": 1.0, "data_s": 0.25, "rank_tokens": 100.0, "logged_tgs": 100.0}
        for n in range(1, 20)
    ]
    about = run(
        elapsed_covers="step",
        elapsed_excludes_data=True,
        rate_covers="step",
        rate_excludes_data=True,
    )
    one = compared(steps(*rows), about, facts(gpus=1))["elapsed", "rate"]
    assert one.ratio == pytest.approx(1.25)
    assert one.cause == "the logged rate leaves out data loading"
    rows = [row | {"logged_tgs": 150.0} for row in rows]
    assert compared(steps(*rows), about, facts(gpus=1))["elapsed", "rate"].cause is None


@pytest.mark.parametrize(("batch", "known"), [(8, True), (4, False), (1, False)])
def test_data_loading_excuses_no_gap_that_a_wrong_batch_would_make(
    batch: int, *, known: bool
) -> None:
    """A rate that leaves data loading out is a little above that by time stamps."""
    rows = [
        {"step": n, "logged_at": at(10 * n), "logged_samples_per_second": 0.84}
        for n in range(1, 20)
    ]
    about = run(evidence=["stamp", "rate"], rate_covers="step", rate_excludes_data=True)
    given = facts(gpus=1, global_batch_size=batch, seq_len=100)
    one = compared(steps(*rows), about, given)["stamp", "rate"]
    assert one.disagrees
    assert one.contradicts is not known


def test_the_run_time_of_the_end_is_held_against_the_clock() -> None:
    rows = [{"step": n, "since_start_s": 2.0 * n} for n in range(1, 51)]
    about = run(evidence=["clock"])
    ended = {"line": 99, "kind": "end", "seconds": 104.0}
    one = compared(steps(*rows), about, facts(gpus=1), ended)["clock", "runtime"]
    assert (one.ratio, one.sampled) == (pytest.approx(100 / 104), False)
    assert one.cause == "4.0 s of it are before the first or after the last step"
    late = compared(steps(*rows), about, facts(gpus=1), ended | {"seconds": 90.0})
    assert late["clock", "runtime"].contradicts


def megatron(calls_per_step: int, seen: int) -> dict[tuple[str, str], EvidenceComparison]:
    """Steps of 8 s in 4 micro-batches of 2 s, and the engine's lines before each."""
    rows, events = [], []
    for step in range(1, 20):
        calls = {"step": step, "micro_step": step * calls_per_step}
        timer = {"epoch": "0", "average": "1.0", "rate": str(64 / seen)}
        timer |= {name: str(count) for name, count in calls.items()}
        stamped = {"kind": "engine_step", "logged_at": at(8.0 * step)}
        events.append(stamped | {"line": 3 * step, "step": step})
        events.append(stamped | {"line": 3 * step + 1, "extra": json.dumps(timer)})
        rows.append({"line": 3 * step + 2, "step": step, "elapsed_s": 8.0})
    about = run(elapsed_covers="interval")
    given = facts(gpus=8, global_batch_size=64, seq_len=128, gradient_accumulation=4)
    return compared(steps(*rows), about, given, *events)


def test_the_engines_lines_stamp_the_steps_of_another_format() -> None:
    one = megatron(calls_per_step=1, seen=2)["elapsed", "engine"]
    assert (one.ratio, one.windows, one.disagrees) == (pytest.approx(1.0), 18, False)


def test_a_timer_that_is_read_once_a_step_times_one_micro_batch() -> None:
    one = megatron(calls_per_step=1, seen=2)["elapsed", "timer"]
    assert one.ratio == pytest.approx(4.0)
    assert "the last of the 4 micro-batches" in str(one.cause)
    good = megatron(calls_per_step=4, seen=8)["elapsed", "timer"]
    assert not good.disagrees


def comparison(**fields: Any) -> EvidenceComparison:
    base = {"kind": "rate", "other": "stamp", "ratio": 1.0, "windows": 9, "seconds": 90.0}
    return EvidenceComparison(
        **base | {"resolution": None, "tolerance": 0.02, "cause": None} | fields
    )


@pytest.mark.parametrize(
    ("fields", "disagrees", "contradicts"),
    [
        ({"ratio": 1.0199}, False, False),
        ({"ratio": 1.0201}, True, True),
        ({"ratio": 0.9801}, False, False),
        ({"ratio": 0.9799}, True, True),
        ({"ratio": 1.1, "cause": "known"}, True, False),
        ({"ratio": 1.1, "cause": "tokens", "miscounted": True}, True, True),
        ({"ratio": 1.1, "cause": "a pause", "has_exceptions": True}, True, False),
        ({"ratio": 1.1, "cause": "a pause", "has_exceptions": True, "kind": "stamp"}, True, True),
        ({"ratio": 0.9, "cause": "a pause", "has_exceptions": True, "kind": "stamp"}, True, False),
        ({"cause": "no fit", "has_no_fit": True}, True, True),
        ({"ratio": 1.1, "fitted_tokens": 8.0}, True, True),
        ({"ratio": 1.1, "fitted_tokens": 8.0, "sampled": True}, True, False),
        ({"ratio": 1.99, "tolerance": 9.0, "sampled": True}, False, False),
        ({"ratio": 2.0, "tolerance": 9.0, "sampled": True}, True, True),
        ({"ratio": 0.51, "tolerance": 9.0, "sampled": True}, False, False),
        ({"ratio": 0.5, "tolerance": 9.0, "sampled": True}, True, True),
        ({"ratio": 2.0, "tolerance": 9.0}, False, False),
    ],
)
def test_two_kinds_contradict_each_other_beyond_what_is_allowed_and_without_a_cause(
    fields: dict[str, Any], *, disagrees: bool, contradicts: bool
) -> None:
    one = comparison(**fields)
    assert (one.disagrees, one.contradicts) == (disagrees, contradicts)
    warning = time_evidence.evidence_warning(one)
    assert (warning is not None) is disagrees
    assert str(warning).startswith(NOT_RANKED) is contradicts
    kind = messages.EVIDENCE_MISCOUNTED if one.miscounted else messages.EVIDENCE_APART
    kind = messages.EVIDENCE_WITHOUT_FIT if one.has_no_fit else kind
    assert warning is None or warning.kind == kind.identifier


def test_rates_are_checked_by_the_best_kind_that_is_independent() -> None:
    of_line = comparison(kind="elapsed", other="rate", ratio=1.1)
    timer = comparison(kind="elapsed", other="timer")
    assert time_evidence.select_check([of_line, timer], "elapsed") is None
    sampled = comparison(kind="elapsed", other="rate", sampled=True)
    clock = comparison(kind="elapsed", other="clock")
    stamp = comparison(kind="stamp", other="elapsed", ratio=1.25, seconds=100.0)
    assert time_evidence.select_check([of_line, sampled, timer], "elapsed") == sampled
    assert time_evidence.select_check([sampled, clock], "elapsed") == clock
    found = time_evidence.select_check([sampled, clock, stamp, timer], "elapsed")
    assert found == comparison(kind="elapsed", other="stamp", ratio=0.8, seconds=80.0)
    assert time_evidence.select_check([clock, stamp], "rate") is None


def stamped(elapsed: float, *seconds: float, **columns: object) -> list[dict[str, Any]]:
    """A line a step, of one printed time each; between the stamps so many seconds."""
    clock = (sum(seconds[:n]) for n in range(len(seconds) + 1))
    return [
        {"step": n, "elapsed_s": elapsed, "logged_at": at(s)} | columns
        for n, s in enumerate(clock, 1)
    ]


@pytest.mark.parametrize(("odd", "told"), [(2, True), (3, False)])
def test_exceptions_are_a_fifth_of_the_windows_at_most(odd: int, *, told: bool) -> None:
    rows = stamped(1.0, *[1.0] * (10 - odd), *[31.0] * odd)
    about = run(evidence=["elapsed", "stamp"], elapsed_covers="step")
    (one,) = compared(steps(*rows), about, facts(gpus=1)).values()
    assert one.disagrees
    assert one.contradicts is not told
    assert one.has_exceptions is told
    said = f"{30 * odd}.0 s more by time stamps in {odd} of 10 windows"
    assert str(one.cause).startswith(said) is told


@pytest.mark.parametrize(
    ("seconds", "told"), [(1.4, True), (1.6, False), (0.9, False), (1.005, None)]
)
def test_a_step_time_without_data_loading_is_less_than_a_wrong_degree_would_make_it(
    seconds: float, *, told: bool | None
) -> None:
    rows = stamped(1.0001, *[seconds] * 20)
    about = run(evidence=["elapsed", "stamp"], elapsed_covers="step", elapsed_excludes_data=True)
    (one,) = compared(steps(*rows), about, facts(gpus=1)).values()
    assert one.disagrees is (told is not None)
    assert ("leaves out data loading" in str(one.cause)) is bool(told)


@pytest.mark.parametrize(
    ("held", "said"),
    [(3.0, "3x too low"), (1 / 3, "3x too high"), (2.015, "2x too low"), (2.03, None), (1.5, None)],
)
def test_a_whole_factor_of_a_rate_is_named(held: float, said: str | None) -> None:
    """A rate of so many times the tokens that are known: 100 of each step of 2 s."""
    rows = stamped(2.0, *[2.0001] * 20, logged_tgs=50.0 * held)
    about = run(evidence=["rate", "stamp"], rate_covers="interval")
    given = facts(gpus=1, global_batch_size=1, seq_len=100)
    one = compared(steps(*rows), about, given)["rate", "stamp"]
    assert one.contradicts
    assert one.miscounted is (said is not None)
    assert (said is None) if one.cause is None else (str(said) in one.cause)


@pytest.mark.parametrize(
    ("runtime", "first", "told"), [(101.0, 1, False), (101.2, 1, True), (101.2, 2, None)]
)
def test_the_sum_of_all_steps_is_held_against_the_run_time(
    runtime: float, first: int, *, told: bool | None
) -> None:
    """50 steps of 2 s, each timed from the first on, and not where step 1 is gone."""
    rows = [{"step": n, "elapsed_s": 2.0} for n in range(first, first + 50)]
    ended = {"line": 99, "kind": "end", "seconds": runtime}
    found = compared(steps(*rows), run(elapsed_covers="step"), facts(gpus=1), ended)
    one = found.get(("elapsed", "runtime"))
    assert (one is None) is (told is None)
    if one is not None:
        assert (one.disagrees, one.resolution) == (told, None)
        assert one.ratio == pytest.approx(100 / runtime)


@pytest.mark.parametrize(("runtime", "told"), [(102.0, False), (102.2, True)])
def test_a_clock_of_whole_seconds_may_be_one_of_them_off(runtime: float, *, told: bool) -> None:
    rows = [{"step": n, "since_start_s": 2.0 * n} for n in range(1, 51)]
    ended = {"line": 99, "kind": "end", "seconds": runtime}
    found = compared(steps(*rows), run(evidence=["clock"]), facts(gpus=1), ended)
    one = found["clock", "runtime"]
    assert (one.disagrees, one.resolution, one.windows) == (told, 1.0, 50)


def arrays(rows: list[dict[str, Any]], **about: Any) -> RunArrays:
    given = facts(gpus=2, log_interval=10)
    return RunArrays(build_windows(steps(*rows), run(**about), given, frame("events")))


def test_windows_of_whole_seconds_are_compared_ten_seconds_at_a_time() -> None:
    """20 windows of 1 s: 9, 10 and 1 of them, for a clock shifts the first by up to one."""
    about = {"evidence": ["elapsed", "stamp"], "elapsed_covers": "step"}
    whole = arrays(stamped(1.25, *[1.0] * 20), **about)
    assert time_evidence.window_ratios(whole, "elapsed", "stamp").tolist() == [1.25] * 3
    fine = arrays(stamped(1.25, *[1.001] * 20), **about)
    assert time_evidence.window_ratios(fine, "elapsed", "stamp").tolist() == pytest.approx(
        [1.25 / 1.001] * 20
    )


def rated(seconds: Sequence[float], **columns: object) -> RunArrays:
    """Lines each ten steps that print a rate; between the stamps so many seconds."""
    clock = (sum(seconds[:n]) for n in range(len(seconds) + 1))
    rows = [{"step": 10 * n, "logged_at": at(s)} | columns for n, s in enumerate(clock, 1)]
    return arrays(rows, evidence=["rate", "stamp"], rate_covers="interval")


FITTED = run(evidence=["rate", "stamp"], rate_covers="interval").row(0, named=True)


def test_a_rate_times_the_time_between_stamps_is_the_batch_of_a_step() -> None:
    """100 a second over 20 s of ten steps: 200 of each."""
    found = fit_step_batch(rated([20.001] * 5, logged_tgs=100.0), FITTED)
    assert isinstance(found, StepTokens)
    assert found.per_gpu.tolist() == pytest.approx([200.01] * 6)
    found = fit_step_batch(rated([20.001] * 5, logged_samples_per_second=100.0), FITTED)
    assert isinstance(found, StepSamples)
    assert fit_step_batch(rated([20.001], logged_tgs=100.0), FITTED) is None  # any number fits it
    assert fit_step_batch(rated([100.0] * 5, logged_tgs=100.0), FITTED) is not None
    assert fit_step_batch(rated([99.0] * 5, logged_tgs=100.0), FITTED) is None  # 1 s of 99
    unlike = rated([20.001, 30.001, 45.001, 60.001], logged_tgs=100.0)
    assert fit_step_batch(unlike, FITTED) is None


@pytest.mark.parametrize(("seconds", "borne_out"), [(1.009, True), (1.011, False), (0.991, True)])
def test_moments_bear_a_time_out_to_a_hundredth(seconds: float, *, borne_out: bool) -> None:
    about = {"evidence": ["elapsed", "stamp"], "elapsed_covers": "step"}
    windows = arrays(stamped(seconds, *[1.0] * 20), **about)
    row = run(**about).row(0, named=True)
    found = time_evidence.summarise_evidence(windows, row, "elapsed")
    assert found["borne_out"] is borne_out
    assert found["evidence_gap"] == pytest.approx(seconds - 1)
    assert (found["evidence_windows"], found["evidence_cause"]) == (20, None)
    alone = time_evidence.summarise_evidence(windows, row, "clock")
    assert (alone["borne_out"], alone["evidence_gap"]) == (False, None)


def test_the_best_check_is_told_where_it_disagrees() -> None:
    about = {"evidence": ["elapsed", "stamp"], "elapsed_covers": "step"}
    row = run(**about).row(0, named=True)
    apart = arrays(stamped(1.3, *[1.001] * 20), **about)
    (told,) = time_evidence.summarise_evidence(apart, row, "elapsed")["evidence_warnings"]
    text = "TGS by time stamps is 29.9% higher than by the logged step time: no known cause."
    assert told == f"{NOT_RANKED}{text}"
    paused = arrays(stamped(1.0, *[1.001] * 15, 31.001, *[1.001] * 4), **about)
    (told,) = time_evidence.summarise_evidence(paused, row, "elapsed")["evidence_warnings"]
    assert "30.0 s more by time stamps in 1 of 20 windows" in told
    alike = arrays(stamped(1.0, *[1.001] * 20), **about)
    assert not time_evidence.summarise_evidence(alike, row, "elapsed")["evidence_warnings"]


def test_what_is_fitted_to_the_stamps_is_told_though_it_is_no_check() -> None:
    rows = [
        {"step": 10 * n, "logged_at": at(20.001 * n + (60 if n > 20 else 0)), "logged_tgs": 512.0}
        for n in range(1, 30)
    ]
    windows = arrays(rows, evidence=["rate", "stamp"], rate_covers="interval")
    found = time_evidence.summarise_evidence(windows, FITTED, "rate")
    assert (found["borne_out"], found["evidence_gap"]) == (False, None)
    (told,) = found["evidence_warnings"]
    assert "60.0 s more by time stamps in 1 of 28 windows" in told
    assert not told.startswith(NOT_RANKED)


@pytest.mark.parametrize(
    ("seconds", "told"), [(1.2001, True), (1.0001, False), (1.6001, True), (1.6601, False)]
)
def test_means_that_hold_more_optimizer_steps_than_all_do_take_longer(
    seconds: float, *, told: bool
) -> None:
    """Of each 20 micro-steps the last ten hold the optimizer's: at most 1.5x is put down to it."""
    rows = [{"step": 20 * n, "elapsed_s": seconds, "logged_at": at(22.001 * n)} for n in range(12)]
    about = run(evidence=["elapsed", "stamp"], elapsed_covers="last_10", step_unit="micro_step")
    given = facts(average_window=10, gradient_accumulation=20)
    (one,) = compared(steps(*rows[1:]), about, given).values()
    assert (one.sampled, one.disagrees) == (True, True)
    assert (one.cause is not None) is told
    shares = (
        "10 of 100 micro-steps by the logged step time",
        "10 of 200 micro-steps by time stamps",
        "1 of 20 of all",
    )
    for said in ("the optimizer step", *shares) if told else ():
        assert said in str(one.cause)


# --- tokens -----------------------------------------------------------------------------------


def test_counts_that_agree_are_listed_and_have_no_gap() -> None:
    rows = [
        {
            "step": n,
            "samples": 64,
            "consumed_samples": 64 * n,
            "elapsed_s": 2.0,
            "logged_tgs": 512.0,
        }
        for n in range(1, 9)
    ]
    about = run(elapsed_covers="interval", rate_covers="interval")
    found = counted(
        steps(*rows),
        about,
        gpus=8,
        seq_len=128,
        global_batch_size=64,
        micro_batch_size=4,
        gradient_accumulation=4,
        tensor_parallel=2,
    )
    assert [one.other.name for one in found] == [
        "samples of the step",
        "global batch",
        "micro-batches",
        "logged rate x time",
    ]
    assert all(one.gap == pytest.approx(0) for one in found)


def test_a_rate_that_counts_other_tokens_is_not_ranked() -> None:
    rows = [{"step": n, "elapsed_s": 2.0, "logged_tgs": 512.0} for n in range(1, 9)]
    about = run(elapsed_covers="interval", rate_covers="interval")
    given = {"gpus": 4, "seq_len": 128, "global_batch_size": 64}  # of 8 GPUs, in truth
    (one,) = counted(steps(*rows), about, **given)
    assert one.gap == pytest.approx(-0.5)
    assert one.contradicts
    assert str(token_counts.count_mismatch_warning(one)).startswith(NOT_RANKED)


def test_padding_is_a_cause_where_slots_are_more_and_never_where_they_are_fewer() -> None:
    rows = [{"step": n, "rank_tokens": 900.0, "rank_slots": 1000.0} for n in range(1, 9)]
    (one,) = counted(steps(*rows), run(), gpus=1)
    assert one.cause == "10.0% of the slots are padding"
    rows = [row | {"rank_slots": 800.0} for row in rows]
    (one,) = counted(steps(*rows), run(), gpus=1)
    assert one.contradicts


def test_the_packs_of_one_rank_are_a_sample_of_those_of_all() -> None:
    rows = [{"step": n, "rank_tokens": 950.0, "step_tokens": 8000.0} for n in range(1, 9)]
    (one,) = counted(steps(*rows), run(), gpus=8)
    assert one.used.name == "sum over all ranks"
    assert one.cause == "1 of 8 ranks print their tokens"
    rows = [row | {"rank": str(rank)} for row in rows for rank in range(8)]
    (one,) = counted(steps(*rows), run(), gpus=8)
    assert one.contradicts


def test_a_world_size_that_the_ranks_deny_on_one_line_is_told() -> None:
    rows = [{"step": n, "rank_tokens": 1000.0, "step_tokens": 8000.0} for n in range(1, 9)]
    rows[4] |= {"step_tokens": 16_000.0}
    alike, one = counted(steps(*rows), run(), gpus=8)
    assert alike.gap == pytest.approx(0)
    assert (one.used.name, one.other.name, one.steps) == ("ranks", "sum over all ranks", 1)
    assert one.contradicts


def test_a_batch_ramp_up_is_a_cause_only_where_megatron_says_so() -> None:
    rows = [{"step": n, "samples": 8 * n, "elapsed_s": 1.0} for n in range(1, 9)]
    about = run(elapsed_covers="interval")
    given = {"gpus": 1, "seq_len": 10, "global_batch_size": 512}
    (one,) = counted(steps(*rows), about, **given)
    assert one.contradicts
    said = json.dumps({"rampup_batch_size": "['8', '8', '1000']"})
    (one,) = counted(steps(*rows), about, megatron_arguments=said, **given)
    assert one.cause == "the batch ramps up: 16 to 64 of 512 samples"


@pytest.mark.parametrize("off", [1.0, 1.1])
def test_a_batch_that_grows_between_two_lines_is_a_cause(off: float) -> None:
    """Megatron prints the last batch; off: the rate is of another one."""
    batches = [8 * (1 + n // 15) for n in range(80)]
    rows = [
        {
            "step": n,
            "samples": batches[n - 1],
            "consumed_samples": sum(batches[:n]),
            "elapsed_s": 1.00013,
            "logged_samples_per_second": off * batches[n - 1] / 1.00013,
        }
        for n in range(10, 81, 10)
    ]
    about = run(elapsed_covers="interval", rate_covers="interval")
    given = {"gpus": 1, "seq_len": 10, "log_interval": 10}
    of_step, of_rate = counted(steps(*rows), about, **given)
    grown = "the batch grows from 8 to 48 samples, and a line prints that of its last step"
    assert of_step.cause == grown
    assert of_rate.cause == (grown if off == 1 else None)
    assert of_rate.contradicts == (off != 1)


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize(("full", "told"), [(80, True), (40, False)])
def test_samples_that_grow_to_the_full_length_are_a_cause(
    full: int, *, within: bool, told: bool
) -> None:
    """A curriculum: lines print the length of their last step; full: the length by the header."""
    lengths = [10 * (1 + (n // 15 if within else n // 10)) for n in range(80)]
    rows = [
        {
            "step": n,
            "samples": 8,
            "sequence_length": lengths[n - 1],
            "consumed_samples": 8 * n,
            "consumed_tokens": 8 * sum(lengths[:n]),
            "elapsed_s": 1.0,
        }
        for n in range(10, 81, 10)
    ]
    given = {"gpus": 1, "seq_len": full, "global_batch_size": 8, "log_interval": 10}
    about = run(elapsed_covers="interval")
    found = {one.other.name: one for one in counted(steps(*rows), about, **given)}
    cause = f"samples grow from 20 to {60 if within else 80} of {full} tokens"
    assert found["global batch"].cause == (cause if told else None)
    last = "samples grow from 10 to 60 tokens, and a line prints that of its last step"
    for name in ("consumed samples", "samples of the step"):
        assert found[name].cause == (last if within else None)
        assert not found[name].contradicts


def test_a_line_speaks_of_no_more_steps_than_its_interval() -> None:
    """An excerpt that leaves lines out: the mean over 10 steps is not that of 990."""
    rows = [{"step": n, "elapsed_s": 1.0} for n in (10, 20, 30, 1020, 1030)]
    rows[3] = rows[3] | {"elapsed_s": 9.0}
    every = build_windows(
        steps(*rows), run(elapsed_covers="interval"), facts(log_interval=10), frame("events")
    )
    assert every["elapsed_span"].to_list() == [10, 10, 10, 10, 10]


# --- every log ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rows() -> tuple[list[report.Row], list[report.Row]]:
    return report.every_row()


@every_log
@absent
@pytest.mark.parametrize(("which", "path"), list(enumerate((report.TIME, report.TOKENS))))
def test_the_table_is_the_golden(
    rows: tuple[list[report.Row], list[report.Row]],
    which: int,
    path: report.Path,
    request: pytest.FixtureRequest,
) -> None:
    if request.config.getoption("update_golden"):
        report.write(rows[which], path)
    assert report.keyed(rows[which]) == report.golden(path)


def test_every_gap_has_a_named_cause_or_costs_the_rank() -> None:
    """Of the golden tables, so that this holds where the logs are absent.

    Single steps with a fitted number of tokens are no proof against anything.
    """
    for path in (report.TIME, report.TOKENS):
        for key, row in report.golden(path).items():
            sample = row.get("how", "").startswith("single steps, fitted")
            assert row["cause"] != "NONE" or sample, key


def test_no_gap_beyond_one_percent_is_let_pass_by_an_allowance_of_fine_stamps() -> None:
    """Where the stamps have fractions and a window is long, what is allowed is 1 % and little."""
    for key, row in report.golden(report.TIME).items():
        fine = row["resolution_s"] not in {"-", "1"} and float(row["seconds"]) > 10
        if fine and row["how"] == "same steps" and "rate" not in {row["kind"], row["other"]}:
            assert float(row["allowed"].rstrip("%")) < 1.5, key


TIMED_ONE_MICRO_BATCH = {
    "xmoe__xmoe-base-v1-n8-EP8.log": (7.19, 47 * 65_536 / 703.3),
    "summit__gpt3-megatron.3329260.o": (4.27, 470 * 8_192 / 1_185.2),
}


@absent
@pytest.mark.parametrize("name", TIMED_ONE_MICRO_BATCH)
def test_deepspeeds_timer_under_megatron_is_never_used(name: str) -> None:
    """The wrong figure is what its SamplesPerSec would give, the right one what stamps confirm."""
    times, tgs = TIMED_ONE_MICRO_BATCH[name]
    (row,) = analyse(read_log_tables(CORPUS / "deepspeed" / name)).metrics.iter_rows(named=True)
    assert row["time_basis"] == "elapsed"
    assert row["tgs"] == pytest.approx(tgs, rel=0.01)
    assert row["evidence_gap"] == pytest.approx(0, abs=5e-4)  # by the engine's own stamps
    key = (f"deepspeed/{name}", "1", "elapsed", "timer")
    assert float(report.golden(report.TIME)[key]["ratio"]) == pytest.approx(times, abs=0.01)


def stamped_rates(
    off: float, *, windows: int = 40, unit_s: float = 0.001, pause_s: float = 0.0
) -> list[str]:
    """Return the messages of lines whose tokens are off by a share: of steps of 2.3 s and more."""
    noise = np.random.default_rng(1).normal(1, 0.003, windows + 1)
    ends = np.cumsum(2.3 * noise) + pause_s * (np.arange(windows + 1) >= windows // 2)
    rows = [
        {"step": n, "logged_at": at(end // unit_s * unit_s), "logged_tgs": round(4128 / s)}
        for n, (end, s) in enumerate(zip(ends, 2.3 * noise, strict=True), 1)
    ]
    about = run(evidence=["rate"], rate_covers="interval")
    given = facts(gpus=1, global_batch_size=16, seq_len=258 * (1 + off))
    return of_kinds(rates(steps(*rows), about, given), messages.TOKENS_ABOVE_RATE)


def test_tokens_that_take_longer_than_the_time_between_stamps_are_too_many() -> None:
    """A header of 260, and steps of 258 tokens: 0.8 %, below what needs a cause."""
    (text,) = stamped_rates(2 / 258)
    assert text.startswith(
        "Tokens per step seem 0.8% too many: 4,160 on one GPU by the facts, and 4,128 by the "
        "logged rate and time stamps (40 windows)."
    )
    assert stamped_rates(2 / 258, pause_s=100.0)  # in one window, which no rate includes


def test_tokens_of_the_rate_are_not_too_many() -> None:
    assert not stamped_rates(0.0)
    assert not stamped_rates(-2 / 258)  # the rate leaves out time between its steps
    assert not stamped_rates(2 / 258, windows=15)
    assert not stamped_rates(2 / 258, unit_s=1.0)
