"""Seconds since the start of training, more finely than a line prints them.

Of whole seconds a window of ten is up to a tenth off. Where a mean speed since the start is printed
beside them, to six decimals, it says them too. It may be of another clock: then they stay whole.

Frames in, frames out.
"""

from __future__ import annotations

import re
from typing import Final

import polars as pl

from ..formats.spec import FinerClock

PRINTED_SECONDS: Final = pl.col("since_start_s")


def refine_elapsed(clock_spec: FinerClock, rows: pl.DataFrame) -> pl.DataFrame:
    """Rows of `steps`, which may lack any column, with a finer `since_start_s` where it is sure."""
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
    step, each = pl.col("step"), _number(by.s_per_step)
    resumed = (each > by.early + by.late) & ~_near(by, each * step)
    own = pl.when(resumed).then(((PRINTED_SECONDS - by.early) / each).ceil()).otherwise(step)
    return pl.coalesce(step / _number(by.steps_per_s), each * own)


def _near(by: FinerClock, seconds: pl.Expr) -> pl.Expr:
    return (seconds - PRINTED_SECONDS).is_between(-by.early, by.late)


def _number(key: str) -> pl.Expr:
    return _text(key).cast(pl.Float64, strict=False)


def _text(key: str) -> pl.Expr:
    """A field that no column holds; null where it is not printed."""
    return pl.col("extra").str.extract(rf'"{re.escape(key)}": "([^"]*)"')
