"""Sources of launches as arrays, and limits of metrics.runs.same_run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

import numpy as np
import polars as pl

from ..core.arrays import FloatArray, IntArray
from ..core.link_columns import STEP_TIME_FIGURES, TRAINING_FIGURES

MIN_TWIN_BITS: Final = 24.0
"""Evidence for twins, in bits: they agree by chance once in sixteen million."""

MIN_TIMING_BITS: Final = 14.0
"""Part of the evidence that must come from times: the losses of two deterministic launches agree
too.
"""

MAX_COUNTED_LOSS_BITS: Final = 10.0
MIN_LOSS_BITS_ALONE: Final = 60.0
"""Evidence from losses, in bits, if one source prints no time."""

MIN_NODE_BITS: Final = 30.0
"""Evidence from the stamps of two nodes, in bits; launches that run side by side do not wait for
each other, unlike nodes.
"""

DELAY_MEDIAN_STEPS: Final = 11
MAX_USUAL_DELAY_SPREADS: Final = 5.0
"""Most spreads by which a usual step deviates from the median of the DELAY_MEDIAN_STEPS around."""

SECONDS_PER_DAY: Final = 86_400.0
"""Seconds over which starts of launches of one framework are assumed random."""

MAX_STAMP_GAP_S: Final = 2.0
"""Most seconds between two sources' stamps of one step: both may cut to the second, and their lines
are written one after the other.
"""

SECONDS_PER_YEAR: Final = 366 * SECONDS_PER_DAY
"""Length of the year 2000 [s], the year of all stamps here. Stamps of two time zones may be on both
sides of New Year, and so this far apart.
"""

TIME_ZONE_STEP_S: Final = 900.0
"""Zones differ from UTC by a multiple of this many seconds."""

MAX_TIME_ZONE_OFFSET_S: Final = 14 * 3600.0
MIN_STAMP_SCATTER_S: Final = 0.002
"""Seconds by which the stamps of a step in an event file and on the console may always scatter:
both are printed to the millisecond. They are written one after the other and may scatter more;
the stamps themselves show how much.
"""

MAX_ROUNDING_UNITS: Final = 0.51
FLOAT32_TOLERANCE: Final = 1e-6
"""Most last digits (MAX_ROUNDING_UNITS) plus relative float32 rounding by which two prints of one
value may differ.
"""

MIN_COMMON_STEPS: Final = 2
MAX_COMPARED_STEPS: Final = 2_000
"""Most steps to compare; more would prove no more."""

CHECKPOINT_FOLDER_PATTERN: Final = re.compile(r"/checkpoint-\d+(?=/[^/]+\Z)")
"""Folder of a Hugging Face Trainer checkpoint, within the path of a file in the folder."""

STREAM_NAME_PATTERN: Final = re.compile(
    r"(?<![a-z])(?:std)?(?:out(?:put)?|err(?:or)?)(?![a-z])|(?<=\.)[oe](?=\d+\Z)", re.IGNORECASE
)
"""Part of a file name that identifies a job's stream: X.out, stderr.log, X.e17."""

NODE_NAME_PATTERN: Final = re.compile(
    r"(?<![a-z])(?:node|worker|host|machine)[-_.]?\d+", re.IGNORECASE
)
"""Part of a path that identifies a node: node0.log, worker-1/train.log."""

MIN_AGREEING_SHARE: Final = 0.9
"""Smallest share of agreeing stamps: some may be written late after a stall."""


@dataclass(frozen=True, slots=True)
class Series:
    """Steps of a rank in a source; absent values are NaN.

    units: the last printed digit of each value
    """

    rank: str | None
    steps: IntArray
    values: dict[str, FloatArray]
    stamps: FloatArray
    units: dict[str, FloatArray]


@dataclass(frozen=True, slots=True)
class Source:
    """Source of a launch.

    runtimes: printed at the end [s], with the last printed digit
    clock: first and last second since the start at its last step; total_steps: planned steps
    """

    run: Mapping[str, Any]
    path: str
    series: tuple[Series, ...]
    runtimes: tuple[tuple[float, float], ...]
    names: frozenset[str]
    clock: tuple[float, float] | None = None
    total_steps: int | None = None

    @property
    def last_step(self) -> int:
        """Last step of any rank."""
        return max((int(s.steps[-1]) for s in self.series if len(s.steps)), default=0)

    @property
    def interval(self) -> int:
        """Steps between the last two lines."""
        return max(int(np.diff(s.steps[-2:], prepend=0)[-1]) for s in self.series)

    @property
    def file(self) -> str:
        """Name without folders."""
        return PurePath(self.path).name

    @property
    def ranks(self) -> frozenset[str]:
        """Ranks that print steps."""
        return frozenset(s.rank for s in self.series if s.rank is not None)

    @property
    def has_losses(self) -> bool:
        """True if a step has a figure of the training."""
        return any(_any(s, name) for s in self.series for name in TRAINING_FIGURES)

    @property
    def timed(self) -> bool:
        """True if a step has a time."""
        return any(_any(s, name) for s in self.series for name in STEP_TIME_FIGURES)


def _any(series: Series, name: str) -> bool:
    return bool(np.isfinite(series.values[name]).any())


def delays(advance: FloatArray) -> FloatArray:
    """Return steps' times relative to the median of the steps around each [s]."""
    around = pl.Series(advance).rolling_median(DELAY_MEDIAN_STEPS, min_samples=1, center=True)
    return np.asarray(advance - around.to_numpy())
