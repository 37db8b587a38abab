"""Rates that need no token count: seconds per step, samples per second.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from ..core.arrays import FloatArray
from ..core.intervals import rate_interval
from ..core.run_arrays import RunArrays, total
from ..core.run_table import StepRateColumns
from .windows import choose_evidence, count_steps, evidence_rounding, steady_windows

MAX_BATCH_SPREAD: Final = 0.01
"""Largest relative spread of the tokens per step of a run with one batch size."""


def step_rates(
    windows: RunArrays, preferred: Sequence[str], facts: Mapping[str, Any]
) -> StepRateColumns:
    """Return the rates of the steady steps, with the interval of the time per step.

    A step is a logged step: an optimizer step, or a micro-step (`step_unit`). Samples and tokens
    are of all GPUs. Unknown values are None. A rate of unknown tokens times no step.

    windows: of one run, marked
    preferred: kinds of time evidence, the best first
    facts: known facts of the run, by name
    """
    memory = windows["peak_memory_bytes"]
    columns: StepRateColumns = {
        "seconds_per_step": None,
        "seconds_per_step_low": None,
        "seconds_per_step_high": None,
        "samples_per_second": None,
        "tokens_per_update": _tokens_per_update(windows, facts),
        "peak_memory_bytes": None if np.isnan(memory).all() else float(np.nanmax(memory)),
    }
    counted, has_tokens = count_steps(windows), windows.has_any("tokens_per_gpu")
    evidence = choose_evidence(counted, [e for e in preferred if e != "rate" or has_tokens])
    if evidence is None:
        return columns
    steady = steady_windows(counted, evidence)
    spans = counted[f"{evidence}_span"][steady.indices]
    seconds = total(steady.seconds) / total(spans)
    stalls = counted["stall_s"][steady.indices]
    coarse = evidence_rounding(counted, steady, evidence)
    columns["seconds_per_step"] = seconds
    if (sure := rate_interval(spans, steady.seconds, stalls, coarse).estimate) is not None:
        columns["seconds_per_step_low"] = 1 / sure.high
        columns["seconds_per_step_high"] = 1 / sure.low
    if seconds > 0 and (samples := _samples_per_step(windows, facts)) is not None:
        columns["samples_per_second"] = samples / seconds
    return columns


def _samples_per_step(windows: RunArrays, facts: Mapping[str, Any]) -> float | None:
    """Return the samples of a logged step over all GPUs; None if they vary."""
    batch, every = facts.get("global_batch_size"), _steps_per_update(windows)
    if batch is None or every is None or not _has_one_size(_slots(windows)):
        return None
    return float(batch) / every


def _tokens_per_update(windows: RunArrays, facts: Mapping[str, Any]) -> float | None:
    """Return the tokens of an optimizer update with padding; None if they vary."""
    slots, gpus, every = _slots(windows), facts.get("gpus"), _steps_per_update(windows)
    if not len(slots) or gpus is None or every is None or not _has_one_size(slots):
        return None
    return float(slots.mean() * gpus * every)


def _steps_per_update(windows: RunArrays) -> int | None:
    """Return the logged steps per optimizer update; None if unknown."""
    if windows.value("step_unit") != "micro_step":
        return 1
    every = windows.value("gradient_accumulation")
    return None if every is None else int(every)


def _slots(windows: RunArrays) -> FloatArray:
    """Return the known tokens per step of one GPU: with padding where that is known."""
    slots, tokens = windows["slots_per_gpu"], windows["tokens_per_gpu"]
    sizes = np.where(np.isnan(slots), tokens, slots)
    return sizes[~np.isnan(sizes)]


def _has_one_size(slots: FloatArray) -> bool:
    return not len(slots) or bool(np.ptp(slots) <= MAX_BATCH_SPREAD * slots.max())
