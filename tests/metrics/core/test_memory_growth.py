"""Growth of the peak memory: leaks and jumps are found, and nothing else."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.metrics.core.memory_growth import memory_changes
from fairmfu.metrics.core.run_arrays import RunArrays
from fairmfu.metrics.core.run_words import GROWTH, JUMP
from tests.metrics.throughput.test_throughput import facts, rates, run, steps
from tests.support.simulated_series import autoregressive

GIB = 2**30
DRAW = np.random.default_rng


def windows(gib: np.ndarray, every: int = 10, tokens: np.ndarray | None = None) -> RunArrays:
    """Windows of `every` steps after the first one, by their peak memory."""
    number = len(gib) + 1
    return RunArrays(
        pl.DataFrame(
            {
                "step": [every * n for n in range(1, number + 1)],
                "first": [at == 0 for at in range(number)],
                "warming": [False] * number,
                "peak_memory_bytes": [1.0 * GIB, *(float(round(g, 2)) * GIB for g in gib)],
                "tokens_per_gpu": [4096.0] * number if tokens is None else [4096.0, *tokens],
                "sequence_length": [None] * number,
            },
            schema_overrides={"sequence_length": pl.Float64},
        )
    )


@settings(max_examples=40)
@given(
    sizes=st.tuples(st.floats(5, 70), st.floats(0.05, 1.5), st.floats(0, 0.003)),
    number=st.integers(20, 300),
    begin=st.floats(0, 0.7),
    seed=st.integers(0, 999),
)
def test_a_leak_is_found_from_its_step_on(
    sizes: tuple[float, float, float], number: int, begin: float, seed: int
) -> None:
    """sizes: level [GiB], growth and noise, as shares of it."""
    level, share, noise = sizes
    start = min(int(begin * number), number - 12)
    ramp = np.maximum(0, np.arange(number) - start) / (number - 1 - start)
    gib = level * (1 + share * ramp + noise * DRAW(seed).standard_normal(number))
    found = memory_changes(windows(gib))
    assert found is not None
    (change,) = found
    assert change["kind"] == GROWTH
    assert abs(change["from_step"] / 10 - 2 - start) <= max(3, 0.25 * (number - start))
    assert change["bytes_after"] / GIB == pytest.approx(gib[-1], rel=0.02)
    assert change["to_step"] == 10 * (number + 1)


@settings(max_examples=15)
@given(
    level=st.floats(2, 70),
    noise=st.floats(0, 0.1),
    alike=st.floats(0, 0.7),
    number=st.integers(8, 400),
    seed=st.integers(0, 9999),
)
def test_noise_is_no_change(
    level: float, noise: float, alike: float, number: int, seed: int
) -> None:
    """Peaks of packs of other lengths scatter, and resemble their neighbours.

    At most one of twenty such runs has a change, by chance.
    """
    found = 0
    for draw in range(20):
        scatter = autoregressive(number, noise, alike, DRAW((seed, draw)))
        found += bool(memory_changes(windows(level * (1 + scatter))))
    assert found <= 1


@settings(max_examples=40)
@given(st.integers(30, 300), st.integers(0, 9999))
def test_the_largest_peak_since_the_start_levels_off(number: int, seed: int) -> None:
    """Most logs print it: the longest pack so far decides, and new records become rare."""
    gib = np.maximum.accumulate(40 + DRAW(seed).gumbel(0, 0.2, number))
    found = memory_changes(windows(gib)) or []
    assert not [change for change in found if change["kind"] == GROWTH]


@settings(max_examples=30)
@given(st.floats(0.03, 0.5), st.sampled_from([1, -1]), st.integers(10, 50), st.integers(0, 999))
def test_a_jump_is_found_at_its_step(size: float, side: int, at: int, seed: int) -> None:
    times = np.where(np.arange(60) < at, 1, (1 + size) ** side)
    gib = 40 * times * (1 + 0.001 * DRAW(seed).standard_normal(60))
    (change,) = memory_changes(windows(gib)) or []
    assert change["kind"] == JUMP
    assert change["from_step"] == 10 * (at + 2)
    ratio = change["bytes_after"] / change["bytes_before"]
    assert ratio == pytest.approx(times[-1], rel=2e-3)


def test_more_tokens_explain_more_memory() -> None:
    """A batch ramp is no leak, and a longer sequence no jump."""
    tokens = 4096 * np.linspace(1, 2, 60)
    assert memory_changes(windows(10 + tokens / 400, tokens=tokens)) == []
    steps_ = np.where(np.arange(60) < 30, 4096.0, 8192.0)
    assert memory_changes(windows(10 + steps_ / 400, tokens=steps_)) == []


def test_a_single_longer_step_explains_a_peak_that_stays() -> None:
    """Most logs print the largest peak since the start."""
    gib = np.where(np.arange(60) < 30, 20.0, 30.0)
    tokens = np.where(np.arange(60) == 30, 8192.0, 4096.0)
    assert memory_changes(windows(gib, tokens=tokens)) == []
    assert memory_changes(windows(gib))


def test_a_constant_peak_is_no_change_and_few_windows_are_not_judged() -> None:
    assert memory_changes(windows(np.full(100, 23.0))) == []
    assert memory_changes(windows(np.full(7, 23.0))) is None


def test_the_slope_is_per_hour_of_steady_steps() -> None:
    """2 s a step and 0.01 GiB a step are 18 GiB an hour."""
    rows = (
        {"step": at, "elapsed_s": 2.0, "peak_memory_bytes": (20 + 0.01 * at) * GIB}
        for at in range(1, 101)
    )
    row = rates(steps(*rows), run(elapsed_covers="interval"), facts())
    assert row["memory_slope"] / GIB == pytest.approx(18, rel=1e-6)
    rows = ({"step": at, "elapsed_s": 2.0, "peak_memory_bytes": 20.0 * GIB} for at in range(1, 101))
    row = rates(steps(*rows), run(elapsed_covers="interval"), facts())
    assert (row["memory_slope"], row["memory_changes"]) == (0.0, [])
