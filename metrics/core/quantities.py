"""Quantities with their unit as their type: mypy refuses to add samples to tokens.

A batch is counted in samples over all GPUs, or in tokens of one GPU. Only
`StepSamples.to_tokens` converts between the two.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .arrays import FloatArray


@dataclass(frozen=True, slots=True)
class GpuTokens:
    """Number of tokens on one GPU."""

    count: float

    def __add__(self, other: GpuTokens) -> GpuTokens:
        """Return the sum of both."""
        return GpuTokens(self.count + other.count)

    def per_second(self, seconds: float) -> float:
        """Return TGS [tokens/s/GPU] over a number of seconds."""
        return self.count / seconds


@dataclass(frozen=True, slots=True)
class StepTokens:
    """Tokens of one step on one GPU, for each window; NaN where unknown."""

    per_gpu: FloatArray

    def over(self, steps: FloatArray) -> GpuTokens | None:
        """Return the tokens summed over `steps` per window; None if any is unknown.

        Windows without steps do not count.
        """
        held = steps > 0
        if np.isnan(self.per_gpu[held]).any():
            return None
        return GpuTokens(float(np.sum(steps[held] * self.per_gpu[held], dtype=np.float64)))


@dataclass(frozen=True, slots=True)
class StepSamples:
    """Samples of one step over all GPUs, for each window; NaN where unknown."""

    all_gpus: FloatArray

    def to_tokens(self, sample_length: FloatArray, gpus: float | None) -> StepTokens | None:
        """Return the tokens of a step on one GPU; None without GPUs or any sample length.

        sample_length: tokens of one sample in each window
            (metrics.throughput.token_counts.sample_length: null where samples hold padding)
        """
        if not gpus or np.isnan(sample_length).all():
            return None
        return StepTokens(self.all_gpus * sample_length / gpus)
