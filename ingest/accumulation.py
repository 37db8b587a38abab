"""Micro-steps of optimizer steps, where DeepSpeed's timer counts others than are configured.

`engine.set_train_batch_size` changes them while training runs, as a batch that ramps up does, and
prints nothing. The timer then goes on to print the batch that it was built with over the time of a
step (deepspeedai/DeepSpeed/deepspeed/utils/timer.py@038beb6 ThroughputTimer), but it counts
micro-steps beside steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import polars as pl

from ingest.alignment import RATE, has_micro_steps
from ingest.log_format import LAUNCH_STEPS
from ingest.rows import FORM, Rows

MICRO_STEP: Final = pl.col("extra").str.extract(r'"micro_step": "(\d{1,12})"').cast(pl.Int64)
"""Of the process, or of an epoch where the training tells the engine of these."""
APART: Final = 1.5
"""How many times the configured batch the timer's may seem: its rate leaves waiting out."""
CONFIGURED: Final = "samples_per_second_as_configured"
"""What a row keeps of a rate that is of another batch than its step has."""


@dataclass(frozen=True, slots=True)
class Accumulated:
    """What the timer counts.

    least, most: micro-steps of an optimizer step, as means between two of its lines; stated: as
    configured, 0 where the log does not say; first: its first line; line: the first that tells of
    others; is_sure: whether each count is of all that the process has trained, and one
    configuration is stated; batch: samples of a step by its rate and the stamps, null without these
    """

    least: float
    most: float
    stated: int
    first: int
    line: int
    is_sure: bool
    batch: float | None

    @property
    def text(self) -> str:
        """It in words."""
        counted = f"{self.least:.4g}" + (f" to {self.most:.4g}" if self.most > self.least else "")
        stated = f"{self.stated} are configured" if self.stated else "the log has no configuration"
        return f"the timer counts {counted} micro-steps an optimizer step, and {stated}"

    def change(self, batch: int) -> Callable[[pl.DataFrame], pl.DataFrame] | None:
        """What makes samples of the counts; None where they do not tell these.

        batch: samples of an optimizer step as configured, 0 where the log does not say. A timer
        that was built with another is of another engine (for evaluation, or a second model).
        """
        of_all_ranks, rest = divmod(batch, self.stated or 1)
        mine = self.batch is not None and 1 / APART < self.batch / (batch or np.inf) < APART
        known = self.is_sure and self.stated and of_all_ranks and not rest and mine
        return partial(_with_samples, of_all_ranks, self.first) if known else None


def accumulated_otherwise(rows: Rows, said: Sequence[int]) -> Accumulated | None:
    """What the timer of a launch counts, where that is not `said` micro-steps in each step.

    said: by each configuration that the log states, the last one holds; None where it is any of
    these, or where nothing is said and each step has as many; and where the timer stops once a
    step, as the pipeline engine's does.
    """
    if any(_each_has(rows, count) for count in dict.fromkeys((*reversed(said), 1))):
        return None
    stated = said[-1] if said else 0
    counts = pl.concat([_counts(frame) for frame in rows.frames(*_TOLD)])
    counter = ("rank", "epoch")
    begins = (pl.int_range(pl.len()).over(counter) == 0) & (pl.col("epoch") == 0)
    grown = counts.with_columns(
        pl.when(begins).then(name).otherwise(pl.col(name).diff().over(counter)).alias(name)
        for name in ("step", "micro")
    )
    known = grown.filter(pl.col("step") > 0, pl.col("micro") > 0)
    each = known.select("line", each=pl.col("micro") / pl.col("step"))
    least, most = each["each"].min(), each["each"].max()
    if not each.height or least == most == (stated or least):
        return None
    other = each.filter(pl.col("each") != (stated or each["each"][0]))
    one = counts.select(*counter).n_unique() == 1 and counts["epoch"][0] == 0
    is_sure = one and known.height == counts.height and len({*said}) == 1
    lines = counts["line"][0], other["line"][0]
    return Accumulated(least, most, stated, *lines, is_sure, _batch(counts))  # type: ignore[arg-type]


_TOLD: Final = (FORM, "line", "rank", "epoch", "step", "extra", "logged_at", RATE)


def _batch(counts: pl.DataFrame) -> float | None:
    """Samples of a step by the timer's rate and the time between its lines."""
    seconds = pl.col("logged_at").diff().dt.total_microseconds() / 1e6
    batches = counts.select(pl.col(RATE) * seconds / pl.col("step").diff())
    return batches.to_series().median()  # type: ignore[return-value]


def _each_has(rows: Rows, count: int) -> bool:
    """Whether each step has so many micro-steps by the counts since the start."""
    mine = _places(rows)
    each = (~pl.col(FORM).is_in(mine) | has_micro_steps(count)).all()
    return all(f.select(each).item() for f in rows.frames(FORM, "step", "extra") if mine)


def _places(rows: Rows) -> list[int]:
    """Forms of the timer that count optimizer steps."""
    return [place for place, form in enumerate(rows.all_forms) if form.counts == LAUNCH_STEPS]


def _counts(frame: pl.DataFrame) -> pl.DataFrame:
    """Both counts of the timer's lines."""
    told = frame.select("line", "rank", "epoch", "step", "logged_at", RATE, micro=MICRO_STEP)
    return told.filter(pl.col("micro").is_not_null())


def _with_samples(of_all_ranks: int, first: int, frame: pl.DataFrame) -> pl.DataFrame:
    """Rows with the samples that micro-steps have consumed, of `of_all_ranks` each.

    The line `first` says those of a step of its own, for no line before it has counts. The printed
    rate, of another batch, stands with what has no column.
    """
    if not {"extra", "line", "step", RATE} <= set(frame.columns):
        return frame
    consumed, mine = MICRO_STEP * of_all_ranks, MICRO_STEP.is_not_null()
    told = (pl.col("line") == first) & (consumed % pl.col("step") == 0)
    fields = pl.col("extra").str.strip_suffix("}"), pl.lit(f', "{CONFIGURED}": '), RATE, pl.lit("}")
    return frame.with_columns(
        pl.when(mine).then(consumed).alias("consumed_samples"),
        pl.when(told).then(consumed // pl.col("step")).alias("samples"),
        pl.when(~mine).then(RATE).alias(RATE),
        pl.when(mine & pl.col(RATE).is_not_null())
        .then(pl.concat_str(fields))
        .otherwise("extra")
        .alias("extra"),
    )
