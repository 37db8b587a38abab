"""Rates whose tokens are not counted: times the time between stamps they are those of a step.

Runs are simulated as Torchtitan prints them: step 1 and each multiple of the interval; a rate over
all steps and all time since the line before, evaluation left out.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fairmfu.metrics.core.messages import NOT_RANKED
from fairmfu.metrics.core.run_arrays import RunArrays
from fairmfu.metrics.throughput import messages
from fairmfu.metrics.throughput.token_counts import (
    CountComparison,
    compare_counts,
    count_mismatch_warning,
    missing_rate_facts,
    partial_sequence_warning,
    per_millisecond_cause,
    uncounted_tokens_reason,
)
from fairmfu.metrics.throughput.windows import build_windows
from tests.metrics.throughput.test_throughput import at, facts, frame, of_kinds, rates, run, steps
from tests.support.effort import THOROUGH

COUNTER_TOO_COARSE = messages.COUNTER_TOO_COARSE()
PROCESS_SUM_UNKNOWN = messages.PROCESS_SUM_UNKNOWN()
RANK_SUM_DOUBTFUL = messages.RANK_SUM_DOUBTFUL()
RANK_SUM_UNKNOWN = messages.RANK_SUM_UNKNOWN()

TOKENS = 8192
"""Of a step, on one GPU."""

ABOUT = run(evidence=["rate", "stamp"], rate_covers="interval")
PICKED = "lines missing from the log, a changed log interval, or pauses without a line?"


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run prints.

    pace: seconds of each step; evaluated, saved: steps behind which that is logged; away: seconds
    behind a step that nothing tells of but the stamps; late: the most that a line is behind its
    rate, s; unit: of the stamps, s
    """

    pace: NDArray[np.float64]
    interval: int = 1
    evaluated: Collection[int] = ()
    saved: Collection[int] = ()
    away: Mapping[int, float] = field(default_factory=dict)
    late: NDArray[np.float64] | None = None
    unit: float = 0.001

    def tables(self) -> tuple[list[dict], list[dict]]:
        """Rows of steps and of events."""
        rows, events, clock, written, since, timed = [], [], 0.0, 0.0, 0, 0.0
        for step, seconds in enumerate(self.pace, start=1):
            clock, timed, since = clock + seconds, timed + seconds, since + 1
            if step == 1 or step % self.interval == 0:
                late = 0.0 if self.late is None else self.late[step - 1]
                written = max(written, clock + late)
                stamped = {"logged_at": at(written // self.unit * self.unit)}
                rated = {"logged_tgs": round(TOKENS * since / timed)}
                rows.append({"line": 2 * step, "step": step} | stamped | rated)
                since, timed = 0, 0.0
            if step in self.saved:
                events.append({"line": 2 * step + 1, "kind": "checkpoint"})
                clock, timed = clock + 20, timed + 20
            if step in self.evaluated:
                events.append({"line": 2 * step + 1, "kind": "evaluation"})
                clock, since, timed = clock + 30, 0, 0.0
            clock += self.away.get(step, 0.0)
        return rows, events


def warned(rows: list[dict], events: Collection[dict] = (), **known: object) -> list[str]:
    """What a run is told of its rate."""
    return rates(steps(*rows), ABOUT, facts(**known), *events)["throughput_warnings"]


def contradictions(rows: list[dict], events: Collection[dict] = ()) -> list[str]:
    """Warnings of windows that fit no number of tokens per step."""
    row = rates(steps(*rows), ABOUT, facts(), *events)
    return of_kinds(row, messages.EVIDENCE_WITHOUT_FIT)


def picked(pace: NDArray[np.float64], at_steps: Collection[int]) -> list[dict]:
    """Some lines of a run that prints each step."""
    return [row for row in Run(pace=pace).tables()[0] if row["step"] in at_steps]


@st.composite
def honest(draw: st.DrawFn) -> Run:
    """Noise, stalls, a slow start, evaluations, checkpoints, pauses without a line in a few."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    interval = draw(st.sampled_from([1, 2, 10, 50]))
    windows = draw(st.integers(2, 30))
    count = interval * (windows + 1)
    pace = draw(st.floats(0.01, 20)) * (1 + draw(st.floats(0, 0.2)) * random.uniform(-1, 1, count))
    pace[random.random(count) < draw(st.sampled_from([0, 0.02, 0.2]))] *= 8
    pace[0] *= 30
    evaluated, saved = (random.choice(count, size=draw(st.integers(0, 3))) + 1 for _ in range(2))
    clean = sorted({*range(1, windows + 1)} - {step // interval for step in (*evaluated, *saved)})
    paused = random.choice(clean, size=(len(clean) - 1) // 3, replace=False) if clean else []
    return Run(
        pace=pace,
        interval=interval,
        evaluated=set(evaluated),
        saved=set(saved),
        away={window * interval: 60.0 for window in paused} if draw(st.booleans()) else {},
        late=random.uniform(0, 0.2, count),
        unit=draw(st.sampled_from([1.0, 0.001])),
    )


@settings(max_examples=60 if THOROUGH else 20)
@given(honest())
def test_a_run_whose_lines_are_all_there_does_not_contradict_itself(one: Run) -> None:
    rows, events = one.tables()
    assert not contradictions(rows, events)


@settings(max_examples=60 if THOROUGH else 20)
@given(
    st.lists(st.integers(-12, 12), min_size=3, max_size=8, unique=True),
    st.lists(st.integers(90, 110), min_size=8, max_size=8),
    st.integers(0, 2**32 - 1),
)
def test_lines_picked_out_of_a_log_contradict_one_another_where_the_pace_varies(
    slower: list[int], gaps: list[int], seed: int
) -> None:
    """slower: by which power of 1.1 the step of each line is slower than the others."""
    at_steps = np.cumsum([1, *gaps[: len(slower) - 1]])
    pace = np.random.default_rng(seed).uniform(0.9, 1.1, at_steps[-1])
    pace[at_steps - 1] = 1.1 ** np.array(slower)
    (text,) = contradictions(picked(pace, at_steps))
    assert PICKED in text
    assert text.startswith(NOT_RANKED)


def test_the_warning_says_what_a_step_would_hold() -> None:
    pace = np.ones(300)
    pace[[99, 199, 299]] = 0.5, 1.0, 2.0
    (text,) = contradictions(picked(pace, [1, 100, 200, 300]))
    assert text == (
        f"{NOT_RANKED}the logged rate and time stamps imply 4,137 to 16,301 tokens on one GPU per "
        f"step, and no two of 3 windows agree ({PICKED})."
    )


def test_one_slow_step_that_stands_for_all_of_its_window_is_seen() -> None:
    """Of the time that a rate is over all has passed between the stamps, and a stall is in both."""
    pace = np.ones(1000)
    pace[499] = 4.0
    text, left_out = warned(picked(pace, range(100, 1001, 100)))
    slow = "1 of 9 windows (4x as slow as the rest, 33.3% of the measured time)"
    assert left_out.startswith(f"{NOT_RANKED}TGS leaves out {slow}")
    assert "and in 1 of 9 windows less time passes than at this rate" in text
    assert not warned(Run(pace=pace, interval=100).tables()[0])


def test_a_known_batch_excuses_it_no_more_than_an_unknown_one() -> None:
    pace = np.ones(1000)
    pace[499] = 4.0
    known = {"gpus": 1, "global_batch_size": 1, "seq_len": TOKENS}
    text, _ = warned(picked(pace, range(100, 1001, 100)), **known)
    assert text.startswith(NOT_RANKED)
    assert text.endswith(" no known cause.")


@pytest.mark.parametrize(
    "about",
    [
        {"rate_covers": "step"},
        {"rate_covers": "interval", "rate_excludes_data": True},
    ],
)
def test_rates_that_leave_out_steps_or_time_are_not_held_to_it(about: dict) -> None:
    pace = np.ones(300)
    pace[[99, 199, 299]] = 0.5, 1.0, 2.0
    lines = steps(*picked(pace, [1, 100, 200, 300]))
    row = rates(lines, run(evidence=["rate"], **about), facts())
    assert not of_kinds(row, messages.EVIDENCE_WITHOUT_FIT)


def test_a_batch_that_grows_is_not_held_to_it() -> None:
    rows = Run(pace=np.ones(300), interval=100).tables()[0]
    grown = [
        row | {"samples": 8 * n, "logged_tgs": row["logged_tgs"] * n}
        for n, row in enumerate(rows, start=1)
    ]
    assert not contradictions(grown)


@pytest.mark.parametrize(("interval", "told"), [(1, True), (100, False)])
def test_two_windows_contradict_each_other(interval: int, *, told: bool) -> None:
    pace = np.ones(200)
    pace[[99, 199]] = 0.5, 1.5
    rows = [row for row in Run(pace=pace, interval=interval).tables()[0] if row["step"] % 100 < 2]
    assert bool(contradictions([row for row in rows if row["step"] in {1, 100, 200}])) is told


LOCAL = {"micro_batch_size": 4, "gradient_accumulation": 2, "seq_len": 100}
PACE: list[dict] = [{"step": n, "elapsed_s": 1.0} for n in range(1, 40)]
TIMED = run(elapsed_covers="interval")


@pytest.mark.parametrize(
    ("degrees", "tgs"),
    [({}, None), ({"gpus": 8}, 800.0), ({"pipeline_parallel": 2}, 400.0)],
)
def test_stages_whose_number_is_unknown_share_a_batch_of_no_known_size(
    degrees: dict[str, int], tgs: float | None
) -> None:
    """Else a log of two stages that has lost its header would be twice as fast."""
    row = rates(steps(*PACE), TIMED, facts(**LOCAL, **degrees, pipelined=True))
    assert row["tgs"] == (tgs if tgs is None else pytest.approx(tgs))


@settings(max_examples=60 if THOROUGH else 15)
@given(st.integers(1, 64), st.integers(1, 64), st.sampled_from([1, 2, 4, 8]))
def test_gpus_that_neither_data_nor_any_degree_explains_are_doubted(
    groups: int, data_parallel: int, tensor_parallel: int
) -> None:
    """GPUs / data-parallel ranks share each local batch: the degrees have to say as many."""
    known = {"gpus": groups * data_parallel, "data_parallel": data_parallel}
    told = facts(**LOCAL, **known, tensor_parallel=tensor_parallel)
    row = rates(steps(*PACE), TIMED, told)
    doubts = [text for text in row["throughput_warnings"] if "of the data-parallel ranks" in text]
    assert [text.startswith(NOT_RANKED) for text in doubts] == [True] * (groups != tensor_parallel)


# --- each count -----------------------------------------------------------------------------


def built(rows: Sequence[dict], known: Mapping[str, object], **about: object) -> pl.DataFrame:
    """Windows of lines ten steps apart, of a second a step where they say no other time."""
    lines = ({"step": 10 * n, "elapsed_s": 1.0} | row for n, row in enumerate(rows, 1))
    whole = {"elapsed_covers": "interval", "rate_covers": "interval"} | about
    return build_windows(steps(*lines), run(**whole), facts(**known), frame("events"))


BATCH = {"gpus": 8, "seq_len": 100}


@pytest.mark.parametrize(
    ("count", "printed", "known", "about", "tokens"),
    [
        ("all_ranks", {"step_tokens": 8000.0}, {}, {}, 1000.0),
        ("all_ranks", {"step_tokens": 8000.0, "rank_tokens": 1490.0}, {}, {}, 1000.0),
        ("all_ranks", {"step_tokens": 8000.0, "rank_tokens": 1510.0}, {}, {}, None),
        ("all_ranks", {"step_tokens": 8000.0, "rank_tokens": 670.0}, {}, {}, 1000.0),
        ("all_ranks", {"step_tokens": 8000.0, "rank_tokens": 660.0}, {}, {}, None),
        ("ranks", {"step_tokens": 8000.0, "rank_tokens": 1510.0}, {}, {}, 1510.0),
        ("samples", {"samples": 16}, {}, {}, 200.0),
        ("samples", {"samples": 16, "sequence_length": 50.0}, {}, {}, 100.0),
        ("samples", {"samples": 16}, {"packed": False}, {}, None),
        ("samples", {"samples": 16}, {"steps_counted": True, "log_interval": 5}, {}, 1000.0),
        ("samples", {"samples": 16}, {"objective": "preference"}, {}, None),
        ("global_batch", {}, {"global_batch_size": 16}, {}, 200.0),
        ("global_batch", {}, {"global_batch_size": 16, "packed": False}, {}, None),
        ("global_batch", {}, {"global_batch_size": 16}, {"step_unit": "micro_step"}, None),
        ("micro_batches", {}, {"micro_batch_size": 4, "gradient_accumulation": 3}, {}, 1200.0),
        ("micro_batches", {}, {"micro_batch_size": 4}, {}, None),
        ("micro_batches", {}, {"micro_batch_size": 4}, {"quirks": ["accumulation_stated"]}, 400.0),
        (
            "micro_batches",
            {},
            {"micro_batch_size": 4, "gradient_accumulation": 3, "packed": True},
            {"step_unit": "micro_step"},
            400.0,
        ),
        ("micro_batches", {}, {"micro_batch_size": 4}, {"step_unit": "micro_step"}, None),
        (
            "micro_batches",
            {},
            {"micro_batch_size": 8, "gradient_accumulation": 1}
            | {"tensor_parallel": 2, "context_parallel": 4, "pipeline_parallel": 1},
            {},
            100.0,
        ),
        (
            "data_parallel_batches",
            {},
            {"micro_batch_size": 2, "gradient_accumulation": 3, "data_parallel": 4},
            {},
            300.0,
        ),
        (
            "data_parallel_batches",
            {},
            {"micro_batch_size": 2, "gradient_accumulation": 3, "data_parallel": 4}
            | {"global_batch_size": 24},
            {},
            None,
        ),
        ("rate", {"logged_tgs": 50.0, "elapsed_s": 2.5}, {}, {}, 125.0),
        ("rate", {"logged_tgs": 50.0}, {}, {"rate_covers": "step"}, None),
        ("samples_rate", {"logged_samples_per_second": 4.0, "elapsed_s": 2.0}, {}, {}, 100.0),
        ("ranks_slots", {"rank_slots": 77.0}, {}, {}, 77.0),
        ("ranks", {"rank_tokens": -1.0}, {}, {}, None),
        ("ranks", {"rank_tokens": float("inf")}, {}, {}, None),
        ("ranks", {"rank_tokens": float("nan")}, {}, {}, None),
        ("ranks", {"rank_tokens": 2.0**53}, {}, {}, 2.0**53),
        ("ranks", {"rank_tokens": 2.0**54}, {}, {}, None),
        ("ranks", {"rank_tokens": 0.0}, {}, {}, 0.0),
    ],
)
def test_each_count_is_of_one_step_on_one_of_eight_gpus(
    count: str, printed: dict, known: dict, about: dict, tokens: float | None
) -> None:
    found = built([printed] * 3, BATCH | known, **about)
    assert found[f"{count}_count"].to_list()[1:] == [tokens] * 2


COUNTING = [{"consumed_tokens": 4000.0 * n, "consumed_non_padding": 3200.0 * n} for n in (1, 2, 4)]


@pytest.mark.parametrize(
    ("known", "about", "tokens", "without"),
    [
        ({}, {}, [50.0, 100.0], [40.0, 80.0]),
        ({"tensor_parallel": 2}, {}, [50.0, 100.0], [None, None]),
        ({"data_parallel": 4}, {}, [50.0, 100.0], [None, None]),
        ({"data_parallel": 8}, {}, [50.0, 100.0], [40.0, 80.0]),
        ({"tensor_parallel": 2}, {"quirks": ["tokens_of_processes"]}, [None] * 2, [None] * 2),
        ({"context_parallel": 1}, {"quirks": ["tokens_of_processes"]}, [50.0, 100.0], [40.0, 80.0]),
        ({"tensor_parallel": 2}, {"quirks": ["tokens_of_ranks"]}, [25.0, 50.0], [20.0, 40.0]),
        (
            {"tensor_parallel": 2, "context_parallel": 2},
            {"quirks": ["tokens_of_ranks"]},
            [12.5, 25.0],
            [10.0, 20.0],
        ),
        ({"data_parallel": 2}, {"quirks": ["tokens_of_ranks"]}, [12.5, 25.0], [10.0, 20.0]),
    ],
)
def test_a_counter_is_of_the_steps_since_the_line_before(
    known: dict, about: dict, tokens: list[float | None], without: list[float | None]
) -> None:
    """Of ten steps on 8 GPUs; those without padding are of ranks that may share a sequence."""
    found = built(COUNTING, BATCH | known, **about)
    assert found["consumed_tokens_count"].to_list() == [None, *tokens]
    assert found["non_padding_count"].to_list() == [None, *without]


def test_a_counter_that_stands_still_or_falls_counts_nothing() -> None:
    rows = [{"consumed_tokens": n, "consumed_non_padding": n} for n in (80.0, 80.0, 40.0, 240.0)]
    found = built(rows, BATCH)
    assert found["consumed_tokens_count"].to_list() == [None, None, None, 2.5]
    assert found["non_padding_count"].to_list() == [None, None, None, 2.5]


def test_lines_that_are_gone_make_a_counter_no_count_of_a_line_s_own_steps() -> None:
    """At 1,020 it grew by 990 steps, of which the line's own batch is one of ten."""
    rows = [{"step": n, "consumed_samples": 2 * n} for n in (10, 20, 30, 1020)]
    known = BATCH | {"log_interval": 10}
    assert built(rows, known)["consumed_samples_count"].to_list() == [None, 25.0, 25.0, 25.0]
    told = [row | {"samples": 2} for row in rows]
    assert built(told, known)["consumed_samples_count"].to_list() == [None, 25.0, 25.0, None]


@settings(max_examples=20)
@given(st.integers(600, 9_000), st.integers(0, 2**32 - 1))
def test_a_counter_of_four_digits_counts_over_as_many_lines_as_it_takes(
    usual: int, seed: int
) -> None:
    """Its last digit leaves half a hundredth open at most; the sum of all lines is what it grew."""
    each = np.random.default_rng(seed).uniform(0.8, 1.2, 60) * usual
    rows = [{"consumed_non_padding": float(f"{sum(each[:n]):.3e}")} for n in range(1, 61)]
    found = built(rows, {"gpus": 1, "seq_len": 1})["non_padding_tokens"].to_numpy()[1:]
    known = ~np.isnan(found)
    if known.any():  # a line is ten steps
        assert known.all()
        assert found.sum() * 10 == pytest.approx(each[1:].sum(), rel=0.01)


def test_a_counter_is_read_on_lines_with_a_time() -> None:
    """The step of a line without one may be a guess."""
    rows = [{"consumed_non_padding": 100.0 * n * n} for n in range(1, 5)]
    rows[2] |= {"elapsed_s": None}
    found = built(rows, {"gpus": 1, "seq_len": 1})
    assert found["non_padding_tokens"].to_list() == [None, 30.0, 60.0, 60.0]
    bare = [row | {"elapsed_s": None} for row in rows]
    found = built(bare, {"gpus": 1, "seq_len": 1})
    assert found["non_padding_tokens"].to_list() == [None, 30.0, 50.0, 70.0]


def test_a_printed_total_counts_slots_where_it_grows_faster_than_tokens_do() -> None:
    """Beside tokens without padding: by more than half a hundredth, else it is the same count."""
    for more, slots in ((1.006, 50.3), (1.004, None)):
        rows = [
            {"consumed_non_padding": 4000.0 * n, "consumed_tokens": more * 4000.0 * n}
            for n in (1, 2, 3)
        ]
        found = built(rows, {"gpus": 8})
        assert found["tokens_per_gpu"].to_list() == [None, 50.0, 50.0]
        assert found["slots_per_gpu"].to_list()[1:] == pytest.approx([slots] * 2), more


@pytest.mark.parametrize(
    "other", [{"consumed_tokens": 4000.0}, {"consumed_samples": 40.0}, {"samples": 40}]
)
def test_lines_of_a_run_are_not_counted_with_padding_where_others_are_without(other: dict) -> None:
    """Only its last two lines are behind one with tokens without padding: 40 a step on a GPU."""
    (name,) = other
    rows = [
        {name: of if name == "samples" else of * n} for n in range(1, 6) for of in [other[name]]
    ]
    some = [row | {"consumed_non_padding": 3200.0 * n} for n, row in enumerate(rows, 1) if n > 2]
    assert built(rows, BATCH)["counted_by"].to_list()[1:] == [name] * 4
    found = built(rows[:2] + some, BATCH)
    assert found["counted_by"].to_list() == [None, None, None, *["non_padding"] * 2]
    assert found["tokens_per_gpu"].to_list() == [None, None, None, 40.0, 40.0]


# --- which count is used, and what it is told of the others -----------------------------------


def told_of_counts(
    rows: Sequence[dict], known: Mapping[str, object], **about: object
) -> dict[str, CountComparison]:
    windows = RunArrays(built(rows, known, **about))
    found = compare_counts(windows, facts(**known).row(0, named=True))
    return {one.other.name: one for one in found}


@pytest.mark.parametrize(
    ("rate", "elapsed", "fits"),
    [
        (8.0, 2.0, "global_batch_size=16"),
        (8.25, 2.125, "global_batch_size=about 18"),  # 17.53, known to 1 %
        (1.05, 2.0, "global_batch_size=2"),  # 2.1, and 2 s may be 1.8
    ],
)
def test_the_batch_that_would_fit_is_named(rate: float, elapsed: float, fits: str) -> None:
    rows = [{"logged_samples_per_second": rate, "elapsed_s": elapsed}] * 4
    found = told_of_counts(rows, BATCH | {"global_batch_size": 1})["logged samples/s x time"]
    assert found.contradicts
    assert found.gap == pytest.approx(rate * elapsed - 1)
    assert found.fits == fits
    assert str(count_mismatch_warning(found)).endswith(f"both counts agree with {fits}")


def test_of_micro_batches_the_factor_that_would_fit_is_named() -> None:
    rows = [{"logged_samples_per_second": 16.25, "elapsed_s": 2.125}] * 4
    known = BATCH | {"micro_batch_size": 1, "gradient_accumulation": 1}
    found = told_of_counts(rows, known)["logged samples/s x time"]
    assert found.fits == "a batch 4.32 times as large"
    assert found.gap == pytest.approx(16.25 * 2.125 / 8 - 1)


@pytest.mark.parametrize(
    ("micro", "shared"), [(4, "as if 4 GPUs share each micro-batch"), (1, ""), (3, "as if 3 GPUs")]
)
def test_micro_batches_that_are_a_whole_multiple_of_the_batch_may_be_shared(
    micro: int, shared: str
) -> None:
    """A batch of 8 on 8 GPUs is one of each."""
    known = BATCH | {"global_batch_size": 8, "micro_batch_size": micro, "gradient_accumulation": 1}
    warning = count_mismatch_warning(told_of_counts([{}] * 4, known)["micro-batches"])
    assert (shared in str(warning)) if shared else warning is None
    half = told_of_counts([{}] * 4, known | {"global_batch_size": 16, "micro_batch_size": 5})
    warning = count_mismatch_warning(half["micro-batches"])
    assert warning is not None
    assert "share" not in warning  # 2.5 GPUs


@pytest.mark.parametrize(
    ("ratio", "tolerance", "told"),
    [
        (1000.0, 0.0, True),
        (951.0, 0.0, True),
        (1049.0, 0.0, True),
        (949.0, 0.0, False),
        (1051.0, 0.0, False),
        (949.0, 0.01, True),
        (1.0, 0.0, False),
    ],
)
def test_samples_per_millisecond_are_a_thousand_times_as_many(
    ratio: float, tolerance: float, *, told: bool
) -> None:
    assert (per_millisecond_cause(ratio, tolerance) is not None) is told


def test_a_total_beside_tokens_without_padding_holds_the_padding() -> None:
    """50 tokens of a step on a GPU, and 40 without padding."""
    found = told_of_counts(COUNTING, BATCH)["consumed tokens"]
    assert (found.used.name, found.gap) == ("tokens without padding", pytest.approx(0.25))
    assert found.cause == "20.0% of the slots are padding"
    fewer = [
        {"consumed_tokens": row["consumed_non_padding"]}
        | {"consumed_non_padding": row["consumed_tokens"]}
        for row in COUNTING
    ]
    assert told_of_counts(fewer, BATCH)["consumed tokens"].contradicts


def test_a_batch_that_grows_in_each_window_is_a_cause() -> None:
    """A line prints 16 where its ten steps have 12 on average, those before it 8."""
    printed = ((8, 80), (16, 200), (24, 400), (32, 680))
    rows = [{"samples": batch, "consumed_samples": so_far} for batch, so_far in printed]
    found = told_of_counts(rows, {"gpus": 1, "seq_len": 10})["samples of the step"]
    assert found.cause == (
        "the batch grows from 8 to 32 samples, and a line prints that of its last step"
    )
    for so_far in (79.0 + 80, 161.0 + 80):  # fewer than 8 each, or more than 16
        rows[1]["consumed_samples"] = so_far
        rows[2]["consumed_samples"], rows[3]["consumed_samples"] = so_far + 200, so_far + 480
        found = told_of_counts(rows, {"gpus": 1, "seq_len": 10})["samples of the step"]
        assert found.cause is None


# --- what is missing, and what is doubted ------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "sharing", "whole"),
    [
        ((0, 1), 2, True),
        ((2, 3), 2, True),
        ((0, 1, 2, 3), 2, True),
        ((0,), 2, False),
        ((1, 2), 2, False),
        ((0, 3), 2, False),
        ((0, 1, 2), 2, False),
        ((0,), 1, True),
    ],
)
def test_ranks_of_a_part_of_a_sequence_are_no_sample(
    ranks: tuple[int, ...], sharing: int, *, whole: bool
) -> None:
    rows = [
        {"rank": str(rank), "rank_tokens": 100.0, "step": 10 * n}
        for n in (1, 2, 3)
        for rank in ranks
    ]
    known = {"context_parallel": sharing}
    windows = RunArrays(built(rows, known))
    told = partial_sequence_warning(windows, np.array([1, 2]), known)
    assert (told is None) is whole
    if told is not None:
        assert told.endswith("Fix: ingest the logs of all ranks")
        assert told.startswith(f"{NOT_RANKED}{sharing} ranks share each sequence")
    summed = RunArrays(built([row | {"step_tokens": 800.0} for row in rows], known))
    told = partial_sequence_warning(summed, np.array([1, 2]), known)
    assert (told is None) is whole
    assert told is None or "Fix: fairmfu set RUN gpus=N" in told


@pytest.mark.parametrize(
    ("printed", "known", "about", "missing"),
    [
        ({}, {}, {}, ["seq_len", "gpus", "global_batch_size"]),
        ({}, {"seq_len": 100, "gpus": 1}, {}, ["global_batch_size"]),
        ({"step_tokens": 800.0}, {}, {}, ["gpus"]),
        ({"consumed_tokens": 800.0}, {}, {}, ["gpus"]),
        ({"samples": 8}, {}, {}, ["seq_len", "gpus"]),
        ({"sequence_length": 50.0}, {}, {}, ["gpus", "global_batch_size"]),
        ({"logged_samples_per_second": 2.0}, {}, {}, ["seq_len", "gpus"]),
        (
            {"logged_samples_per_second": 2.0},
            {},
            {"rate_excludes_data": True},
            ["seq_len", "gpus", "global_batch_size"],
        ),
        ({}, {}, {"step_unit": "micro_step"}, ["seq_len", "micro_batch_size", "packed"]),
        ({}, {"seq_len": 1, "steps_counted": True, "gpus": 1, "global_batch_size": 1}, {}, "every"),
        ({}, {"packed": False, "gpus": 1, "global_batch_size": 1}, {}, ["seq_len", "packed"]),
    ],
)
def test_as_few_facts_are_asked_for_as_do(
    printed: dict, known: dict, about: dict, missing: list[str] | str
) -> None:
    rows = [
        {name: of * n if name == "consumed_tokens" else of for name, of in printed.items()}
        for n in (1, 2, 3)
    ]
    windows, of_run = RunArrays(built(rows, known, **about)), run(**about).row(0, named=True)
    said = facts(**known).row(0, named=True) if known else {}
    asked = ["log_interval"] if missing == "every" else missing
    assert missing_rate_facts(windows, of_run, said) == asked


@pytest.mark.parametrize(
    ("known", "about", "reason"),
    [
        ({}, {}, None),
        ({"gpus": 8}, {}, None),
        ({"gpus": 8, "tensor_parallel": 2}, {}, RANK_SUM_UNKNOWN),
        ({"gpus": 8}, {"quirks": ["tokens_of_ranks"]}, RANK_SUM_DOUBTFUL),
        ({"gpus": 8, "tensor_parallel": 2}, {"quirks": ["tokens_of_ranks"]}, RANK_SUM_DOUBTFUL),
        ({"gpus": 8, "data_parallel": 8}, {"quirks": ["tokens_of_ranks"]}, None),
        (
            {"gpus": 8, "tensor_parallel": 1, "context_parallel": 1},
            {"quirks": ["tokens_of_ranks"]},
            None,
        ),
    ],
)
def test_a_sum_over_ranks_is_doubted_where_they_may_share_tokens(
    known: dict, about: dict, reason: str | None
) -> None:
    rows = [{"consumed_non_padding": 4000.0 * n} for n in (1, 2, 3)]
    windows = RunArrays(built(rows, known, **about))
    said = facts(**known).row(0, named=True) if known else {}
    assert uncounted_tokens_reason(windows, said) == reason


def test_a_counter_that_tells_nothing_says_why() -> None:
    known = {"gpus": 8, "tensor_parallel": 2}
    said = facts(**known).row(0, named=True)
    flat = RunArrays(built([{"consumed_non_padding": 4.0}] * 3, known))
    assert uncounted_tokens_reason(flat, said) == COUNTER_TOO_COARSE
    assert uncounted_tokens_reason(RunArrays(built(COUNTING[:1], known)), said) is None
    rows = [{"consumed_tokens": 4000.0 * n} for n in (1, 2, 3)]
    summed = RunArrays(built(rows, known, quirks=["tokens_of_processes"]))
    assert uncounted_tokens_reason(summed, said) == PROCESS_SUM_UNKNOWN
    assert uncounted_tokens_reason(RunArrays(built(rows, known)), said) is None
