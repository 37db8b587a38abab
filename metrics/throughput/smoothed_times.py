"""Step times that are means over more steps than lie between two lines.

mmengine averages `time` over its last 10 iterations. Where lines are printed more often than that,
the means of several lines hold the same steps, so that a slow step would count several times if
they were summed. So only means that share no step count: the last line's, then that of the last
line before its steps, and so on back. What is left behind the first line is shorter than a mean.
Its time is known where the mean that ends with it and the first line's both begin with training: it
is the difference of their sums. Then the time of each step between two lines is known as well: the
sum of all steps is that of the window before and the mean's. What digits that are not printed take
from it adds up from window to window, so a short log is taken apart like that, and a long one where
it prints enough.

A log may not say over how many iterations it averages. It may be one (mmengine's window_size=1, as
many configs with a throughput hook have): where its lines show single steps they are taken for
that, else for means. Lines as far apart as a mean reaches show it by the rate beside each time.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from itertools import starmap
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from fairmfu.ingest.core.schema import INT

from ..core.arrays import FloatArray
from ..core.print_precision import (
    MAX_ROUNDING_SHARE,
    MAX_STAMP_ERROR_S,
    MAX_UNEXPLAINED_GAP,
    digits_of,
    rounding_share,
)
from ..core.run_arrays import MICROSECONDS_PER_SECOND, RunArrays

IS_MOVING_MEAN: Final = pl.col("elapsed_covers") == "last_10"
"""Whether a step time is such a mean."""

TOKEN_COUNT_COLUMNS: Final = ("tokens_per_gpu", "slots_per_gpu")


def mark_single_step_times(steps: pl.DataFrame) -> pl.DataFrame:
    """Steps with an `average_window` of 1 where the log says none, and its lines show single steps.

    steps: sorted by run, with `step_time` [s], and `window_unsaid`.
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
    """Whether the times of one run's lines are of single steps, and can't be means."""
    timed = np.isfinite(run["step_time"]) & (run["step_time"] > 0)
    names = ("step", "step_time", "average_window", "logged_at")
    step, seconds, window, stamp = (run[name][timed] for name in names)
    return len(step) > 1 and (
        _shrinking(step, seconds, window)
        or _rated_alike(run["elapsed_s"][timed], run["logged_tgs"][timed])
        or _stamped_alike(step, seconds, window, stamp / MICROSECONDS_PER_SECOND)
    )


def _shrinking(step: FloatArray, seconds: FloatArray, window: FloatArray) -> bool:
    """Whether the times can't be means since the start: these would make a step's time negative."""
    sums, unit = (step * seconds)[step <= window], rounding_share(seconds)
    return bool((sums[1:] * (1 + unit) < sums[:-1] * (1 - unit)).any())


def _rated_alike(seconds: FloatArray, rates: FloatArray) -> bool:
    """Whether times vary with the rates of single steps beside them: all products are alike.

    They are where one number lies within what the last digits of each line leave open.
    """
    if not (np.isfinite(rates) & (rates > 0)).all():
        return False
    unsure, tokens = _half_units(seconds) + _half_units(rates), seconds * rates
    alike = (tokens * (1 - unsure)).max() <= (tokens * (1 + unsure)).min()
    return bool(alike and np.ptp(seconds) > 4 * (unsure * seconds).min())


def _half_units(values: FloatArray) -> FloatArray:
    """Half a unit of the last place of each value, as a fraction of it."""
    return np.minimum(MAX_ROUNDING_SHARE, digits_of(values).last_places(values) / 2 / values)


def _stamped_alike(
    step: FloatArray, seconds: FloatArray, window: FloatArray, stamp: FloatArray
) -> bool:
    """Whether the stamps bear out each step's own time, and no mean over several."""
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
    """Steps whose `elapsed_span` is that of a window of its own, or null.

    steps: sorted by run, with `step_time` [s], `elapsed_reach`, the steps that it is a mean over,
    `data_s`, a mean of the same steps, and TOKEN_COUNT_COLUMNS; these become those of the mean step
    of a window. Adds `elapsed_apart`, the steps since the end of the window before, and
    `elapsed_less_s`, what the mean holds of steps before its window [s].
    """
    steps = steps.with_columns(elapsed_apart="new_step", elapsed_less_s=0.0)
    shared = steps.filter(IS_MOVING_MEAN & (pl.col("elapsed_reach") > pl.col("new_step")))
    overlapping = shared["run_id"].unique().to_list()
    if not overlapping:
        return steps
    parts = steps.partition_by("run_id", maintain_order=True)
    return pl.concat(_apart(one) if one["run_id"][0] in overlapping else one for one in parts)


def _apart(steps: pl.DataFrame) -> pl.DataFrame:
    """`with_disjoint_spans` of one run."""
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
    """The steps behind `begin`, up to that of a line.

    less_s, waited_s: what its means hold of steps before, of their time and of waiting for data [s]
    """

    line: int
    begin: float
    less_s: float = 0.0
    waited_s: float = 0.0


def _between_lines(run: RunArrays) -> list[_Window]:
    """A window behind each line but the last, where the sum of all steps up to each is known.

    So it is from the start of training on, where lines stand evenly and none is missing. None is
    told where half a unit of the print, once for each step before, may be DISAGREEMENT of a window.
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
    if not (MAX_UNEXPLAINED_GAP * np.median(spent) >= unsure and spent.min() > unsure):
        return []
    before = held[:, 1:] - [spent, waited]
    parts = zip(range(1, len(step)), step[:-1].tolist(), *before.tolist(), strict=True)
    return list(starmap(_Window, parts))


def _sums(held: FloatArray, lines: int) -> FloatArray:
    """Seconds of all steps up to each line; held: those of its window, of so many lines."""
    whole = np.pad(held, (0, -len(held) % lines)).reshape(-1, lines)
    sums: FloatArray = whole.cumsum(axis=0).ravel()[: len(held)]
    return sums


def _first_timed(run: RunArrays) -> int:
    """The place of the first line with a time."""
    return int(next(iter(np.flatnonzero(run["step_time"] > 0)), 0))


def _windows(run: RunArrays, first: int) -> list[_Window]:
    """Windows behind the first timed line, in their order; none shares a step with another."""
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
