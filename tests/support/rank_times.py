"""Times of the ranks of synchronous jobs, of known truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from fairmfu.metrics.core.arrays import FloatArray

STEP_S = 2.0
TOKENS = 65_000.0
Late = Mapping[int, Mapping[int, float]]
"""Seconds of ranks, by step and rank."""


@dataclass(frozen=True)
class Job:
    """A job whose ranks wait for each other at the end of every step.

    synced: `time` holds the waits for other ranks, as where collectives run inside the timer
    late_data, late_compute: planted seconds. slower: ranks whose own work takes longer by a share
    all_slower: steps that take all ranks longer by a share
    noise, rank_noise: of the steps, and of each rank in each step, as shares of the time
    work: factor on the tokens of each rank, or of each step and rank
    """

    ranks: int = 16
    steps: int = 120
    synced: bool = True
    late_data: Late = field(default_factory=dict)
    late_compute: Late = field(default_factory=dict)
    slower: Mapping[int, float] = field(default_factory=dict)
    all_slower: Mapping[int, float] = field(default_factory=dict)
    noise: float = 0.01
    rank_noise: float = 0.0
    work: FloatArray | float = 1.0
    attention: Mapping[int, Mapping[int, float]] = field(default_factory=dict)
    seed: int = 1

    def tables(self) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
        """Return its `steps`, `runs` and windows."""
        chance = np.random.default_rng(self.seed)
        shape = self.steps, self.ranks
        data = 0.003 + np.abs(chance.normal(0, 0.001, shape))
        add(data, self.late_data)
        tokens = TOKENS * self.work * np.ones(shape) + chance.integers(-500, 500, shape)
        own = STEP_S * (1 + chance.normal(0, self.noise, (self.steps, 1))) * tokens / TOKENS
        own = own * (1 + chance.normal(0, self.rank_noise, shape))
        for rank, share in self.slower.items():
            own[:, rank] *= 1 + share
        for step, share in self.all_slower.items():
            own[step - 1] *= 1 + share
        add(own, self.late_compute)
        ratio = chance.uniform(0.1, 0.2, shape)
        add(ratio, self.attention)
        time = (data + own).max(axis=1, keepdims=True) - data if self.synced else own
        number = np.repeat(np.arange(1, self.steps + 1), self.ranks)
        steps = pl.DataFrame(
            {
                "run_id": "r",
                "step": number,
                "rank": [str(rank) for rank in range(self.ranks)] * self.steps,
                "elapsed_s": time.ravel().round(4),
                "data_s": data.ravel().round(4),
                "rank_tokens": tokens.ravel(),
                "attention_ratio": ratio.ravel(),
                "logged_tgs": (tokens / time).ravel(),
            }
        )
        runs = pl.DataFrame(
            {"run_id": "r", "elapsed_excludes_data": True, "rate_excludes_data": True}
        )
        windows = pl.DataFrame({"run_id": "r", "step": np.arange(1, self.steps + 1)})
        marks = {"elapsed_span": 1.0, "warming": False, "disturbed": False}
        return steps, runs, windows.with_columns(**marks)


def add(values: FloatArray, planted: Late) -> None:
    """Add planted values to an array of steps and ranks."""
    for step, of_ranks in planted.items():
        for rank, value in of_ranks.items():
            values[step - 1, rank] += value
