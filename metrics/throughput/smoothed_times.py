"""Step times averaged over more steps than lie between two lines.

mmengine averages `time` over its last 10 iterations. If lines are printed more often, the means of
several lines share steps, and a sum of means would count a slow step several times. So only means
without shared steps count: the last line's, then the mean of the last line before its steps, and so
on backwards. The rest after the first line is shorter than a mean. Its time is known if the mean
that ends there and the first line's mean both begin with training: the difference of their sums.
Then the time of each step between two lines is known as well: the sum of all steps is the sum of
the window before plus the mean's. Rounding errors of the print accumulate from window to window. So
only a short log is split like this, or a long log with enough printed digits.

A log may not state the number of averaged iterations. The number may be 1 (mmengine's
window_size=1, as in many configs with a throughput hook). If the lines show single steps, the times
are read as such, else as means. Lines as far apart as a mean reaches show single steps by the rate
beside each time.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from itertools import starmap
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from fairmfu.ingest.core.schema import INT

from ..core.arrays import FloatArray, median_of
from ..core.print_precision import (
    MAX_ROUNDING_SHARE,
    MAX_STAMP_ERROR_S,
    MAX_UNEXPLAINED_GAP,
    digits_of,
    rounding_share,
)
from ..core.run_arrays import MICROSECONDS_PER_SECOND, RunArrays

IS_MOVING_MEAN: Final = pl.col("elapsed_covers") == "last_10"
"""True if a step time is such a mean."""

TOKEN_COUNT_COLUMNS: Final = ("tokens_per_gpu", "slots_per_gpu")


def mark_single_step_times(steps: pl.DataFrame) -> pl.DataFrame:
    """Set `average_window` to 1 where the log states none and shows single steps.

    steps: sorted by run, with `step_time` [s], and `window_unsaid`
    """
    close = pl.col("average_window") > pl.col("new_step")
    telling = close | pl.col("logged_tgs").is_not_null()
    found = steps.filter(pl.col("window_unsaid") & IS_MOVING_MEAN & telling)
    if found.is_empty():
        return steps
    asked = steps.filter(pl.col("run_id").is_in(found["run_id"].unique().implode()))
    single = [run_id for run_id, run in RunArrays(asked).by_run().items() if _single(run)]
    mine = pl.col("run_id").is_in(single)
    return steps.with_columns(average_window=pl.when(mine).then(1).otherwise("average_window"))


def _single(run: RunArrays) -> bool:
    """Return whether one run's times are of single steps and cannot be means."""
    timed = np.isfinite(run["step_time"]) & (run["step_time"] > 0)
    names = ("step", "step_time", "average_window", "logged_at")
    step, seconds, window, stamp = (run[name][timed] for name in names)
    return len(step) > 1 and (
        _shrinking(step, seconds, window)
        or _rated_alike(run["elapsed_s"][timed], run["logged_tgs"][timed])
        or _stamped_alike(step, seconds, window, stamp / MICROSECONDS_PER_SECOND)
    )


def _shrinking(step: FloatArray, seconds: FloatArray, window: FloatArray) -> bool:
    """Return whether the times cannot be means since the start.

    Such means would make a step's time negative.
    """
    sums, unit = (step * seconds)[step <= window], rounding_share(seconds)
    return bool((sums[1:] * (1 + unit) < sums[:-1] * (1 - unit)).any())


def _rated_alike(seconds: FloatArray, rates: FloatArray) -> bool:
    """Return whether times vary with the rates of single steps: all products agree.

    Products agree if one number fits all lines within the rounding of their last digits.
    """
    if not (np.isfinite(rates) & (rates > 0)).all():
        return False
    unsure, tokens = _half_units(seconds) + _half_units(rates), seconds * rates
    alike = (tokens * (1 - unsure)).max() <= (tokens * (1 + unsure)).min()
    return bool(alike and np.ptp(seconds) > 4 * (unsure * seconds).min())


def _half_units(values: FloatArray) -> FloatArray:
    """Return half a unit of each value's last digit, as a fraction of the value."""
    return np.minimum(MAX_ROUNDING_SHARE, digits_of(values).last_places(values) / 2 / values)


def _stamped_alike(
    step: FloatArray, seconds: FloatArray, window: FloatArray, stamp: FloatArray
) -> bool:
    """Return whether the stamps confirm single-step times and rule out means."""
    place = np.searchsorted(step, step - window)
    whole = (step > window) & (step[place] == step - window)
    passed = stamp - stamp[place]
    off = np.abs(passed - window * seconds) > MAX_STAMP_ERROR_S + MAX_UNEXPLAINED_GAP * passed
    if not (whole & off).any() or (np.diff(step) != 1).any():
        return False
    apart = np.diff(stamp)
    return bool(
        (np.abs(apart - seconds[1:]) <= MAX_STAMP_ERROR_S + MAX_UNEXPLAINED_GAP * apart).all()
    )


def with_disjoint_spans(steps: pl.DataFrame) -> pl.DataFrame:
    """Set `elapsed_span` to windows without shared steps, else to null.

    Adds `elapsed_apart`, the steps since the end of the window before, and `elapsed_less_s`, the
    part of the mean that belongs to steps before its window [s]. `data_s` and TOKEN_COUNT_COLUMNS
    become means over the window's steps.

    steps: sorted by run, with `step_time` [s], `elapsed_reach` (steps averaged in the time),
        `data_s` (a mean of the same steps) and TOKEN_COUNT_COLUMNS
    """
    steps = steps.with_columns(elapsed_apart="new_step", elapsed_less_s=0.0)
    shared = steps.filter(IS_MOVING_MEAN & (pl.col("elapsed_reach") > pl.col("new_step")))
    overlapping = shared["run_id"].unique().to_list()
    if not overlapping:
        return steps
    parts = steps.partition_by("run_id", maintain_order=True)
    return pl.concat(_apart(one) if one["run_id"][0] in overlapping else one for one in parts)


def _apart(steps: pl.DataFrame) -> pl.DataFrame:
    """Apply `with_disjoint_spans` to one run."""
    run = RunArrays(steps)
    step, new, first = run["step"], run["new_step"], _first_timed(run)
    span, apart = np.full(run.height, np.nan), np.full(run.height, np.nan)
    less_s, counts = (
        np.zeros(run.height),
        {n: run[n].copy() for n in TOKEN_COUNT_COLUMNS if _varies(run[n])},
    )
    waits, reach = run["data_s"].copy(), run["elapsed_reach"]
    windows = _between_lines(run) or _windows(run, first)
    span[first], end = reach[first], windows[0].begin if windows else 0.0
    for at, begin, less, waited in windows:
        span[at], apart[at], less_s[at], end = step[at] - begin, step[at] - end, less, step[at]
        waits[at] = max(reach[at] * waits[at] - waited, 0.0) / span[at]
        lines = slice(int(np.searchsorted(step, begin, "right")), at + 1)
        for values in counts.values():
            values[lines] = np.average(values[lines], weights=new[lines])
    whole = {"elapsed_span": span, "elapsed_apart": apart}
    columns = [pl.Series(name, of, nan_to_null=True).cast(INT) for name, of in whole.items()]
    own = {"data_s": waits, **counts}
    columns += [pl.Series(name, of, nan_to_null=True) for name, of in own.items()]
    return steps.with_columns(columns, elapsed_less_s=pl.Series(less_s))


def _varies(values: FloatArray) -> bool:
    return bool((values != values[0]).any()) and not np.isnan(values).all()


class _Window(NamedTuple):
    """Steps after `begin`, up to the step of a line.

    less_s, waited_s: part of the line's means that belongs to earlier steps: time, wait for data
    [s]
    """

    line: int
    begin: float
    less_s: float = 0.0
    waited_s: float = 0.0


def _between_lines(run: RunArrays) -> list[_Window]:
    """Return a window after each line but the last, if all sums of steps are known.

    The sums are known from the start of training on, if lines are evenly spaced and none is
    missing. No windows if half a unit of the print per earlier step may add up to
    MAX_UNEXPLAINED_GAP of a window.
    """
    step, reach, seconds = (run[name] for name in ("step", "elapsed_reach", "step_time"))
    every, window = int(step[0]), int(reach[-1])
    evenly = len(step) > 1 and every > 0 and (step == every * np.arange(1, len(step) + 1)).all()
    means = (reach == np.minimum(step, window)).all() and (seconds > 0).all()
    if not (evenly and means and window % every == 0):
        return []
    held = reach * np.array([seconds, run["data_s"]])
    spent, waited = (np.diff(_sums(each, window // every)) for each in held)
    unsure = step[-1] * digits_of(seconds).last_places(seconds).max()
    if not (MAX_UNEXPLAINED_GAP * median_of(spent) >= unsure and spent.min() > unsure):
        return []
    before = held[:, 1:] - [spent, waited]
    parts = zip(range(1, len(step)), step[:-1].tolist(), *before.tolist(), strict=True)
    return list(starmap(_Window, parts))


def _sums(held: FloatArray, lines: int) -> FloatArray:
    """Return the seconds of all steps up to each line.

    held: seconds of the mean's steps per line; lines: lines per mean
    """
    whole = np.pad(held, (0, -len(held) % lines)).reshape(-1, lines)
    sums: FloatArray = whole.cumsum(axis=0).ravel()[: len(held)]
    return sums


def _first_timed(run: RunArrays) -> int:
    """Return the index of the first line with a time."""
    return int(next(iter(np.flatnonzero(run["step_time"] > 0)), 0))


def _windows(run: RunArrays, first: int) -> list[_Window]:
    """Return windows after the first timed line, in order, without shared steps."""
    step, reach, seconds = (run[name] for name in ("step", "elapsed_reach", "step_time"))
    before_first = reach[first] * np.array([seconds[first], run["data_s"][first]])
    timed = np.flatnonzero(np.isfinite(seconds) & (seconds > 0))
    begins = step[timed] - reach[timed]
    before = timed[np.maximum(np.searchsorted(step[timed], begins, "right") - 1, 0)]
    previous = dict(zip(timed.tolist(), before.tolist(), strict=True))
    found, at = [], int(timed[-1]) if len(timed) else first
    while at > first:
        begin = step[at] - reach[at]
        if begin >= step[first]:
            found.append(_Window(at, begin))
        elif begin == step[first] - reach[first] == 0:
            found.append(_Window(at, step[first], *before_first.tolist()))
        at = previous[at]
    return found[::-1]
