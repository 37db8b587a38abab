"""Samples and tokens: what leads from one to the other, and what is not known."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.metrics.core.quantities import GpuTokens, StepSamples, StepTokens


def test_samples_become_tokens_only_with_gpus_and_a_length() -> None:
    samples, lengths = StepSamples(np.array([64.0, 32.0])), np.array([100.0, 200.0])
    tokens = samples.to_tokens(lengths, 8)
    assert tokens is not None
    assert tokens.per_gpu.tolist() == [800.0, 800.0]
    assert samples.to_tokens(lengths, None) is None
    assert samples.to_tokens(np.full(2, np.nan), 8) is None
    assert not hasattr(samples, "__add__")


def test_tokens_of_steps_are_known_or_none() -> None:
    tokens = StepTokens(np.array([100.0, np.nan, 300.0]))
    assert tokens.over(np.array([2.0, 0.0, 1.0])) == GpuTokens(500.0)
    assert tokens.over(np.ones(3)) is None
    assert (GpuTokens(300.0) + GpuTokens(200.0)).per_second(2.0) == 250.0


def test_one_known_length_is_enough_and_its_steps_alone_are_counted() -> None:
    tokens = StepSamples(np.array([64.0, 64.0])).to_tokens(np.array([100.0, np.nan]), 8)
    assert tokens is not None
    assert tokens.over(np.array([3.0, 0.0])) == GpuTokens(2400.0)
    assert tokens.over(np.array([3.0, 1.0])) is None
    assert StepSamples(np.array([64.0])).to_tokens(np.array([100.0]), 0) is None


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 10**6)), max_size=20),
    st.integers(0, 20),
)
def test_tokens_of_two_stretches_are_those_of_both(rows: list[tuple[int, int]], place: int) -> None:
    steps = np.array([float(n) for n, _ in rows])
    tokens = StepTokens(np.array([float(n) for _, n in rows]))
    before = np.arange(len(rows)) < place
    parts = (tokens.over(np.where(mask, steps, 0.0)) for mask in (before, ~before))
    first, second = parts
    assert first is not None
    assert second is not None
    assert first + second == tokens.over(steps) == GpuTokens(float(sum(a * b for a, b in rows)))
