"""Seconds since the start of training, finer than the printed whole seconds.

Over a window of ten seconds, whole seconds err by up to a tenth. Some lines also print the mean
speed since the start, which gives the time more precisely if it has enough digits. The error of its
last digit grows with the time: four digits of 1.877 s a step are 0.5 s after 1,000 steps. That is a
quarter of a step, and soon the clock goes back from one line to the next. The speed may also use
another clock. In both cases the whole seconds stay.

Frames in, frames out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import polars as pl

from ..formats.spec import FinerClock

PRINTED_SECONDS: Final = pl.col("since_start_s")
CLOCK_COLUMNS: Final = ("step", "consumed_tokens", "since_start_s", "extra")
"""Columns that `is_finer` needs."""
MAX_ERROR_S: Final = 0.5
"""Error of a printed whole second [s]; a mean with a larger error is no finer."""
MAX_ERROR_SHARE: Final = 0.1
"""Largest error of the finer seconds, as a share of the mean time between two lines."""


def is_finer(clock_spec: FinerClock, frames: Iterable[pl.DataFrame]) -> bool:
    """Return whether the printed mean of a launch has enough digits.

    The digits are the most of any line, because a single number may be round by chance.

    frames: rows of `steps`, with CLOCK_COLUMNS
    """
    lines = pl.concat([_precision(clock_spec, frame) for frame in frames] or [pl.DataFrame()])
    if lines.is_empty():
        return False
    most = lines.max()
    error_s = pl.max_horizontal(
        pl.col("decimal_s") / 10.0 ** pl.col("decimals"),
        pl.col("digit_s") / 10.0 ** pl.col("digits"),
    )
    worst_s, last_s = most.select(error_s / 2, "last_s").row(0)
    apart_s = last_s / lines["lines"].sum()
    return bool(worst_s < MAX_ERROR_S and worst_s <= MAX_ERROR_SHARE * apart_s)


def _precision(clock_spec: FinerClock, rows: pl.DataFrame) -> pl.DataFrame:
    """Return one row about the mean in these rows; none without a finer time.

    decimals, digits: most decimals and significant digits
    decimal_s, digit_s: largest effect of a unit on the time [s], for numbers without decimals and
        for numbers of no digits
    """
    mean, fine = _mean(clock_spec), _fine(clock_spec)
    value = mean.cast(pl.Float64, strict=False)
    effect = fine / value
    return (
        rows.filter((value > 0) & _near(clock_spec, fine))
        .select(
            decimals=mean.str.extract(r"\.(\d+)").str.len_bytes().fill_null(0).max(),
            digits=mean.str.replace_all(r"^[0.]+|\.", "").str.len_bytes().max(),
            decimal_s=effect.max(),
            digit_s=(effect * 10.0 ** (value.log10().floor() + 1)).max(),
            last_s=PRINTED_SECONDS.max(),
            lines=pl.len(),
        )
        .filter(pl.col("lines") > 0)
    )


def refine_elapsed(clock_spec: FinerClock, rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows of `steps` with a finer `since_start_s` where it is certain.

    rows: of a launch that `is_finer`; may lack any column
    """
    counted = "consumed_tokens" if clock_spec.tokens_per_s else "step"
    if not {counted, "since_start_s", "extra"} <= set(rows.columns):
        return rows
    fine = _fine(clock_spec)
    sure = _near(clock_spec, fine) & _text(clock_spec.clock).is_not_null()
    return rows.with_columns(since_start_s=pl.when(sure).then(fine).otherwise(PRINTED_SECONDS))


def _mean(by: FinerClock) -> pl.Expr:
    """Return the printed mean that gives the time, as text."""
    keys = (by.tokens_per_s,) if by.tokens_per_s else (by.steps_per_s, by.s_per_step)
    return pl.coalesce([_text(key) for key in keys])


def _fine(by: FinerClock) -> pl.Expr:
    if by.tokens_per_s:
        return pl.col("consumed_tokens") / _number(by.tokens_per_s)
    step, seconds = pl.col("step"), _number(by.s_per_step)
    resumed = (seconds > by.early + by.late) & ~_near(by, seconds * step)
    steps = pl.when(resumed).then(((PRINTED_SECONDS - by.early) / seconds).ceil()).otherwise(step)
    return pl.coalesce(step / _number(by.steps_per_s), seconds * steps)


def _near(by: FinerClock, seconds: pl.Expr) -> pl.Expr:
    return (seconds - PRINTED_SECONDS).is_between(-by.early, by.late)


def _number(key: str) -> pl.Expr:
    return _text(key).cast(pl.Float64, strict=False)


def _text(key: str) -> pl.Expr:
    """Return a field of `extra`; null where the field is not printed."""
    return pl.col("extra").str.extract(rf'"{re.escape(key)}": "([^"]*)"')
