"""Step lines with a counter of their own, brought to the steps of the training.

DeepSpeed's throughput timer counts from the start of its process, and until 0.7 it counts
micro-steps, while the engine's `step=` goes on after a resume. Both print right after one another
at the end of a step, so a timer's line behind the engine's tells both counts of one moment:

    count of the timer = steps of the training x micro-steps per step + offset

Where too little is known to solve it, a line has no step: none is better than a wrong one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any, Final

import polars as pl

from ingest.log_format import MICRO_STEPS, last_place
from ingest.rows import EMPTY, FORM, Row, Rows


@dataclass(slots=True)
class Aligned:
    """Rows with steps of the training, rows without, and the unit where it is not the format's."""

    rows: Rows
    unplaced: list[Row] = field(default_factory=list)
    step_unit: str | None = None


def align(rows: Rows, accumulation: int) -> Aligned:
    """The rows of a launch, those that count by themselves brought to the steps of the others.

    accumulation: micro-steps of an optimizer step as the log states them, 0 where it does not.
    """
    relations, alone = _relations(rows, accumulation)
    if relations.is_empty():
        return Aligned(rows)
    related = partial(_related, relations=relations)
    if alone and not any(
        told.select(PLACE.is_not_null().any()).item() for told in map(related, _told(rows))
    ):
        return _micro_steps(rows)
    out = Aligned(rows.like())
    for frame, told in zip(rows.frames(), map(related, _told(rows, RATE, "extra")), strict=True):
        several = (pl.col("factor") > 1) | (_one_stop() if accumulation > 1 else False)
        said = told.select(
            pl.when(MINE).then(PLACE).otherwise("step").cast(pl.Int64, strict=False).alias("step"),
            (MINE & pl.col(RATE).is_not_null() & several).fill_null(value=False).alias("lone"),
            RATE,
            "extra",
        )
        lone = said.filter("lone").select(RATE, "extra").iter_rows()
        beside = pl.Series([_beside(rate, extra) for rate, extra in lone], dtype=pl.String)
        extras = said["extra"].scatter(said["lone"].arg_true(), beside)
        rates = said.select(pl.when("lone").then(None).otherwise(RATE).alias(RATE)).to_series()
        there = said["step"].is_not_null()
        placed = frame.with_columns(said["step"], rates, extras)
        _take(out, placed.filter(there), frame.filter(~there))
    return out


def _take(out: Aligned, placed: pl.DataFrame, unplaced: pl.DataFrame) -> None:
    """Rows with a step of the training, and without."""
    if placed.height:
        out.rows.extend(placed)
    out.unplaced += (EMPTY | row for row in unplaced.iter_rows(named=True))


def stride(rows: Rows, events: Iterable[Mapping[str, Any]]) -> int | None:
    """Steps between two lines that print none and were counted one by one; null where unknown.

    The Trainer's console prints dicts at each `logging_steps`, and at the end how many steps there
    were: so many fit into it in one way only. rows: as in `align`, `counted` where the step is a
    mere count. The epoch has to grow with the count from the start, as it does not after a resume.
    """
    ends = {event["step"] for event in events if event["kind"] == "end" and event["step"]}
    if len(ends) != 1 or not rows:
        return None
    last, count = ends.pop(), 0
    for frame in rows.frames("counted", "step"):
        if not frame["counted"].fill_null(value=False).all():
            return None
        count = max(count, *frame["step"])
    fitting = range(last // (count + 1) + 1, last // count + 1)
    return fitting[0] if len(fitting) == 1 and _grows_from_start(rows, count) else None


def _grows_from_start(rows: Rows, count: int) -> bool:
    epochs = [json.loads(row["extra"] or "{}").get("epoch") for row in (rows[0], rows[-1])]
    try:
        first, last = (Decimal(epoch) for epoch in epochs)
        return abs(last - count * first) <= (count * last_place(first) + last_place(last)) / 2
    except (TypeError, ArithmeticError, ValueError):
        return False


RATE: Final = "logged_samples_per_second"

KEY: Final = ("rank", "counter", "era")
"""Of a counter: its rank, what is counted, and the epoch: that of micro-steps may start anew."""
MINE: Final = pl.col("counter").is_not_null()
"""Rows of a counter of their own."""
BIG: Final = pl.Int128
"""Counts of damaged lines times each other fit too."""

_AHEAD: Final = pl.col("step") - pl.col("offset")
_WHOLE: Final = (pl.col("factor") != 0) & (_AHEAD % pl.col("factor") == 0)
_STEP: Final = pl.when(_WHOLE).then(_AHEAD // pl.col("factor"))
PLACE: Final = pl.when(_STEP > 0).then(_STEP)
"""The step of the training; null in the middle of one, or where the relation is not known."""


def _told(rows: Rows, *names: str) -> Iterator[pl.DataFrame]:
    """All rows piece by piece: KEY, step, whole and these columns.

    counter: null where the row has the training's step; whole: that step, where a row of the same
    rank has it right before.
    """
    counts = pl.Series("counter", [form.counts for form in rows.all_forms], pl.String)
    era = pl.when(pl.col("counter") == MICRO_STEPS).then(pl.col("epoch").fill_null(0)).otherwise(0)
    before = pl.when(~MINE).then("step").shift(1).over("rank")
    last = pl.DataFrame(schema={"rank": pl.String, "counter": pl.String, "step": BIG})
    for frame in rows.frames(FORM, "rank", "step", "epoch", *names):
        told = frame.with_columns(counts.gather(frame[FORM]), pl.col("step").cast(BIG))
        both = pl.concat([last, told.select(last.columns)])
        whole = both.select(before.alias("whole")).slice(last.height)
        yield told.with_columns(era.alias("era"), whole.to_series())
        last = both.unique("rank", keep="last", maintain_order=True)


def _relations(rows: Rows, accumulation: int) -> tuple[pl.DataFrame, bool]:
    """How the counters of the rows relate to the training; whether all rows are of counters.

    By KEY: factor, how many counts a step of the training has (0: not known), and offset, what is
    to be taken from a count first (null: not known).
    """
    alone, met, ratios = True, [], []
    last: pl.DataFrame | None = None
    for told in _told(rows):
        mine = told.filter(MINE)
        alone = alone and mine.height == told.height
        met.append(mine.group_by(KEY).agg(pl.col("whole").count().cast(pl.Int64).alias("moments")))
        moments = mine.filter(pl.col("whole").is_not_null()).select(*KEY, "step", "whole")
        both = moments if last is None else pl.concat([last, moments])
        more, steps = (pl.col(name).diff().over(KEY) for name in ("step", "whole"))
        grown = both.select(*KEY, more.alias("more"), steps.alias("steps"))
        grown = grown.filter((pl.col("steps") > 0) & (pl.col("more") % pl.col("steps") == 0))
        ratios.append(_counts(grown, pl.col("more") // pl.col("steps")))
        last = both.unique(KEY, keep="last", maintain_order=True)
    if not met:
        return pl.DataFrame(schema=dict.fromkeys(KEY, pl.String)), alone
    known = pl.concat(met).group_by(KEY).agg(pl.col("moments").sum())
    found = _most(known, ratios, pl.col("moments") - 1).fill_null(0)
    factor = pl.when(pl.col("counter") == MICRO_STEPS).then(accumulation or found).otherwise(1)
    known = known.with_columns(factor.cast(BIG).alias("factor"))
    offsets = [
        _counts(
            _related(told.filter(MINE & pl.col("whole").is_not_null()), known),
            pl.col("step") - pl.col("factor") * pl.col("whole"),
        )
        for told in _told(rows)
    ]
    offset = _most(known, offsets, pl.col("moments"))
    from_start = (pl.col("era") == 0) & (pl.col("moments") == 0) & alone
    return known.with_columns(
        pl.when(from_start).then(0).otherwise(offset).cast(BIG).alias("offset")
    ), alone


def _related(told: pl.DataFrame, relations: pl.DataFrame) -> pl.DataFrame:
    """Each row with what is known of its counter."""
    return told.join(relations, on=KEY, how="left", nulls_equal=True, maintain_order="left")


def _counts(frame: pl.DataFrame, value: pl.Expr) -> pl.DataFrame:
    """How often each counter has a value."""
    return frame.group_by(*KEY, value.alias("value")).agg(pl.len().cast(pl.Int64).alias("times"))


def _most(known: pl.DataFrame, counts: Iterable[pl.DataFrame], of: pl.Expr) -> pl.Series:
    """Of each counter the value of more than half, null where there is none; of: of how many."""
    times = pl.concat(counts).group_by(*KEY, "value").agg(pl.col("times").sum())
    most = _related(times, known).filter(2 * pl.col("times") > of)
    return _related(known.select(KEY), most.select(*KEY, "value"))["value"]


def _one_stop() -> pl.Expr:
    """Whether the timer stopped once a step although several micro-steps make it.

    So it does under Megatron without pipeline: its `micro_step` keeps step with `global_step`, and
    it has timed the last micro-step alone.
    """
    said = pl.col("extra").str.extract(r'"micro_step": "([^"\\]*)"')
    return (said == pl.col("step").cast(pl.String)).fill_null(value=False)


def _beside(rate: float, extra: str | None) -> str:
    """What a row says beside its columns: a rate of one micro-step is not that of the step."""
    return json.dumps(json.loads(extra or "{}") | {"micro_step_samples_per_second": rate})


def _micro_steps(rows: Rows) -> Aligned:
    """Nothing but a counter of micro-steps: the run is told in those, of its first epoch."""
    out = Aligned(rows.like())
    first = (pl.col("counter") == MICRO_STEPS) & (pl.col("era") == 0)
    for frame, told in zip(rows.frames(), _told(rows), strict=True):
        there = told.select(first.fill_null(value=False)).to_series()
        _take(out, frame.filter(there), frame.filter(~there))
    out.step_unit = "micro_step" if out.rows else None
    return out
