"""Rates whose tokens are not counted: times the time between stamps they are those of a step.

Runs are simulated as Torchtitan prints them: step 1 and each multiple of the interval; a rate over
all steps and all time since the line before, evaluation left out.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fairmfu.metrics.core.run_table import NOT_RANKED
from tests.metrics.throughput.test_throughput import at, facts, rates, run, steps
from tests.support.effort import THOROUGH

TOKENS = 8192
"""Of a step, on one GPU."""

ABOUT = run(evidence=["rate", "stamp"], rate_covers="interval")
PICKED = "lines picked out of a longer log, a log interval that changed, or pauses without a line?"


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
    assert not [text for text in warned(rows, events) if "a step holds" in text]


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
    (text,) = [text for text in warned(picked(pace, at_steps)) if "a step holds" in text]
    assert PICKED in text
    assert text.endswith(NOT_RANKED)


def contradictions(rows: list[dict[str, object]]) -> list[str]:
    return [text for text in warned(rows) if "a step holds" in text]


def test_the_warning_says_what_a_step_would_hold() -> None:
    pace = np.ones(300)
    pace[[99, 199, 299]] = 0.5, 1.0, 2.0
    (text,) = contradictions(picked(pace, [1, 100, 200, 300]))
    assert text == (
        "by the logged rate and time stamps a step holds 4,137 to 16,301 tokens on one GPU, and no "
        f"two of 3 windows agree ({PICKED}): not ranked"
    )


def test_one_slow_step_that_stands_for_all_of_its_window_is_seen() -> None:
    """Of the time that a rate is over all has passed between the stamps, and a stall is in both."""
    pace = np.ones(1000)
    pace[499] = 4.0
    text, counted = warned(picked(pace, range(100, 1001, 100)))
    assert counted.startswith("1 of 9 windows takes 4x as long as the others, 33.3% of their time")
    assert "and 1 of 9 windows last less than the rate says" in text
    assert not warned(Run(pace=pace, interval=100).tables()[0])


def test_a_known_batch_excuses_it_no_more_than_an_unknown_one() -> None:
    pace = np.ones(1000)
    pace[499] = 4.0
    known = {"gpus": 1, "global_batch_size": 1, "seq_len": TOKENS}
    text, _ = warned(picked(pace, range(100, 1001, 100)), **known)
    assert text.endswith("without a known cause: not ranked")


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
    told = rates(lines, run(evidence=["rate"], **about), facts())["throughput_warnings"]
    assert not [text for text in told if "a step holds" in text]


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


@given(st.integers(1, 64), st.integers(1, 64), st.sampled_from([1, 2, 4, 8]))
def test_gpus_that_neither_data_nor_any_degree_explains_are_doubted(
    groups: int, data_parallel: int, tensor_parallel: int
) -> None:
    """GPUs / data-parallel ranks share each local batch: the degrees have to say as many."""
    known = {"gpus": groups * data_parallel, "data_parallel": data_parallel}
    told = facts(**LOCAL, **known, tensor_parallel=tensor_parallel)
    row = rates(steps(*PACE), TIMED, told)
    doubts = [text for text in row["throughput_warnings"] if "of the data-parallel ranks" in text]
    assert [text.endswith(NOT_RANKED) for text in doubts] == [True] * (groups != tensor_parallel)
