"""Seconds since the start of training, finer than the printed whole seconds.

Over a window of ten seconds, whole seconds err by up to a tenth. Some lines also print the mean
speed since the start with six decimals, which gives the time more precisely. That speed may use
another clock: then the whole seconds stay.

Frames in, frames out.
"""

from __future__ import annotations

import re
from typing import Final

import polars as pl

from ..formats.spec import FinerClock

PRINTED_SECONDS: Final = pl.col("since_start_s")


def refine_elapsed(clock_spec: FinerClock, rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows of `steps` with a finer `since_start_s` where it is certain.

    rows: may lack any column
    """
    counted = "consumed_tokens" if clock_spec.tokens_per_s else "step"
    if not {counted, "since_start_s", "extra"} <= set(rows.columns):
        return rows
    fine = (
        pl.col(counted) / _number(clock_spec.tokens_per_s)
        if clock_spec.tokens_per_s
        else _by_steps(clock_spec)
    )
    sure = _near(clock_spec, fine) & _text(clock_spec.clock).is_not_null()
    return rows.with_columns(since_start_s=pl.when(sure).then(fine).otherwise(PRINTED_SECONDS))


def _by_steps(by: FinerClock) -> pl.Expr:
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
