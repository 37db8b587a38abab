"""Course of a run beside its speed: start-up, memory, and losses at fixed counts.

Each figure is comparable between runs of one job, so nights can be compared by it.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import floor, log2
from typing import Any, Final

import numpy as np

from .arrays import BoolArray, FloatArray, median_of
from .intervals import FLOAT_TOLERANCE
from .run_arrays import RunArrays
from .run_table import LossAtCount, RunCourseColumns

MIN_LOSS_LINES: Final = 5
"""Fewest lines for a median loss."""

COUNTS_PER_DOUBLING: Final = 2
"""Number of fixed counts from any count to its double."""

FIRST_LINES: Final = 0.1
"""Share of the lines, from the first, whose memory is not yet the run's: caches fill."""

MIN_MEMORY_LINES: Final = 9
"""Fewest lines with a memory, after the first, for its growth."""


def run_course(windows: RunArrays, run: Mapping[str, Any]) -> RunCourseColumns:
    """Return the columns of a run's course; unknown values are None.

    windows: of one run; run: with startup_s of metrics.throughput.end_to_end.launch_clocks, if
        known
    """
    return {
        "startup_s": run.get("startup_s"),
        "memory_growth": memory_growth(windows),
        "losses": losses_at_counts(windows) or None,
    }


def memory_growth(windows: RunArrays) -> float | None:
    """Return the growth of the peak memory from first to last line, as a share.

    It is that from the median of the first third of the lines to the last third's, over all lines.
    """
    memory = windows["peak_memory_bytes"]
    memory = memory[memory > 0]
    memory = memory[int(np.ceil(FIRST_LINES * len(memory))) :]
    if len(memory) < MIN_MEMORY_LINES:
        return None
    third = len(memory) // 3
    first, last = median_of(memory[:third]), median_of(memory[-third:])
    return (last / first - 1) * len(memory) / (len(memory) - third)


def losses_at_counts(windows: RunArrays) -> list[LossAtCount]:
    """Return the losses of a run at fixed counts of tokens, else of steps.

    The counts are the same for all runs: powers of 2, and one between two of them. A loss is the
    median of the lines since the count before, of at least MIN_LOSS_LINES.
    """
    known = np.isfinite(windows["loss"])
    if np.count_nonzero(known) < MIN_LOSS_LINES:
        return []
    tokens = tokens_at_lines(windows, known)
    counts = windows["step"][known] if tokens is None else tokens
    losses, most = windows["loss"][known], float(counts[-1])
    if not most >= 1:
        return []
    found: list[LossAtCount] = []
    for place in range(1, floor(COUNTS_PER_DOUBLING * log2(most) + FLOAT_TOLERANCE) + 1):
        low, high = (2 ** (each / COUNTS_PER_DOUBLING) for each in (place - 1, place))
        inside = (counts > low * (1 + FLOAT_TOLERANCE)) & (counts <= high * (1 + FLOAT_TOLERANCE))
        if np.count_nonzero(inside) >= MIN_LOSS_LINES:
            loss = median_of(losses[inside])
            unit = "steps" if tokens is None else "tokens"
            found.append({"unit": unit, "count": round(high), "loss": loss})
    return found


def tokens_at_lines(windows: RunArrays, lines: BoolArray) -> FloatArray | None:
    """Return the tokens over all GPUs up to some lines; None if unknown.

    lines: mask of the lines
    """
    is_padded = not windows.has_any("non_padding_count")  # else a total may include padding
    nothing = np.full(windows.height, np.nan)
    sizes = windows["tokens_per_gpu"]
    per_step = float(np.nanmean(sizes)) if windows.has_any("tokens_per_gpu") else np.nan
    counts = (
        windows["consumed_tokens"] if is_padded else nothing,
        windows["consumed_samples"] * windows["seq_len"],
        windows["step"] * per_step * windows["gpus"],
    )
    return next((each[lines] for each in counts if not np.isnan(each[lines]).any()), None)
