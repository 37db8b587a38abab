"""Series of nights of which the truth is known: noise, bad nodes, planted changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairmfu.ingest.core.schema import TEXT, TIMESTAMP
from fairmfu.metrics.core.run_table import METRICS

Array = NDArray[np.float64]

START = datetime(2026, 1, 1, 22)
NIGHTS = 365


@dataclass(frozen=True, kw_only=True)
class Nights:
    """A law that series are drawn from; spread relative, from run to run."""

    nights: int = NIGHTS
    per_night: int = 1
    spread: float = 0.005
    bad_nodes: float = 0.01
    """Share of runs that are 5 to 30 % slower."""
    autocorrelation: float = 0.0
    freedom: int | None = None
    """Degrees of freedom of Student's t, of the same standard deviation; None: normal."""
    louder: float = 1.0
    """Times the spread of the second half."""
    drift: float = 0.0
    """Relative change over all nights, evenly."""
    planted: Mapping[int, float] = field(default_factory=dict)
    """Night, from 0, to the relative change that begins there."""

    @property
    def points(self) -> int:
        return self.nights * self.per_night

    def draw(self, random: np.random.Generator) -> Array:
        """Logarithms of the rates of one series."""
        n, a = self.points, self.autocorrelation
        shocks = random.standard_normal(n)
        if self.freedom is not None:
            shocks = random.standard_t(self.freedom, n) * np.sqrt(1 - 2 / self.freedom)
        if a:
            for i in range(1, n):
                shocks[i] = a * shocks[i - 1] + np.sqrt(1 - a**2) * shocks[i]
        shocks[n // 2 :] *= self.louder
        x = self.spread * shocks + np.linspace(0, np.log1p(self.drift), n)
        hit = random.random(n) < self.bad_nodes
        x[hit] += np.log(1 - random.uniform(0.05, 0.30, np.count_nonzero(hit)))
        for night, size in self.planted.items():
            x[night * self.per_night :] += np.log1p(size)
        return np.asarray(x)

    def series(self, count: int, seed: int) -> Iterator[Array]:
        random = np.random.default_rng(seed)
        return (self.draw(random) for _ in range(count))


USUAL: dict[str, Any] = {
    "framework": "torchtitan",
    "model": "llama3-8b",
    "seq_len": 8192,
    "device": "NVIDIA H100 80GB HBM3",
    "precision": "bf16",
    "trained": "full",
    "gpus": 8,
    "formula": "1",
    "peaks": "aaaa",
    "outcome": "completed",
    "synthetic": False,
    "framework_version": "0.2.0",
    "missing": [],
}


def runs(tgs: Sequence[float], **about: object) -> list[dict[str, Any]]:
    """One run a night; a list gives a value to each run, anything else one to all."""
    rows = []
    for i, rate in enumerate(tgs):
        own = {k: v[i] if isinstance(v, list) and k != "missing" else v for k, v in about.items()}
        at = START + timedelta(days=i)
        rows.append(
            USUAL
            | {"run_id": f"r{i:03}", "name": f"night {i}", "started_at": at, "tgs": rate}
            | own
        )
    return rows


def metrics(rows: Sequence[Mapping[str, Any]]) -> pl.DataFrame:
    """As `history` takes them."""
    schema = pl.Schema({**METRICS, "read_at": TIMESTAMP, "peaks": TEXT})
    return pl.DataFrame([{name: row.get(name) for name in schema} for row in rows], schema=schema)
