"""Micro-steps of optimizer steps, where DeepSpeed's timer counts others than are configured.

`engine.set_train_batch_size` changes them before training or while it runs, as a batch that ramps
up does, and prints nothing. The timer then goes on to print the batch that it was built with over
the time of a step (deepspeedai/DeepSpeed/deepspeed/utils/timer.py@038beb6 ThroughputTimer), but it
counts micro-steps: since 0.8 beside steps, until then a line of the engine before its own tells the
step.

One micro-step a step may also be one that was timed of several, where the timer is stopped once a
step (Megatron). Then its rate is too high for the time between its lines; but so it is where all of
the step is timed and the run waits for data, so that only what trains tells which of the two it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import polars as pl

from ..core.schema import NO_BATCH_CHANGES
from ..formats.launch_view import MAX_BATCH_RATIO
from ..formats.spec import LAUNCH_STEPS, MICRO_STEPS
from .step_alignment import RATE_COLUMN, has_micro_steps
from .step_rows import FORM_COLUMN, StepRows

TIMER_MICRO_STEP: Final = pl.col("extra").str.extract(r'"micro_step": "(\d{1,12})"').cast(pl.Int64)
"""Of the process, or of an epoch where the training tells the engine of these."""
TIMER_AVERAGE_RATE: Final = pl.col("extra").str.extract(r'"average": "([^"]{1,40})"')
"""The rate since the start, which is all that the timer prints until 0.6."""
CONFIGURED_RATE_KEY: Final = "samples_per_second_as_configured"
"""What a row keeps of a rate that is of another batch than its step has."""


@dataclass(frozen=True, slots=True)
class TimerMicroSteps:
    """What the timer counts.

    least, most: micro-steps of an optimizer step, as means between two of its lines; stated: as
    configured, 0 where the log does not say; firsts: the first line of each rank; line: the first
    that tells of others; is_sure: whether each count is of all that the process has trained, and
    one configuration is stated; batch: samples of a step by its rate and the stamps, null without
    these
    """

    least: float
    most: float
    stated: int
    firsts: Sequence[int]
    line: int
    is_sure: bool
    batch: float | None

    @property
    def text(self) -> str:
        """It in words."""
        counted = f"{self.least:.4g}" + (f" to {self.most:.4g}" if self.most > self.least else "")
        unit = "micro-step" if self.most == 1 else "micro-steps"
        stated = f"{self.stated} are configured" if self.stated else "the log has no configuration"
        return f"the timer counts {counted} {unit} an optimizer step, and {stated}{self._remedy}"

    @property
    def _remedy(self) -> str:
        """What to do where each step has the same batch, and it is not known which."""
        if self.most > self.least:
            return ""
        batch = "--set global_batch_size and gradient_accumulation to what a step had"
        return f"; {batch}, and batch_changes={NO_BATCH_CHANGES}"

    def make_correction(self, batch: int) -> Callable[[pl.DataFrame], pl.DataFrame] | None:
        """What makes samples of the counts; None where they do not tell these.

        batch: samples of an optimizer step as configured, 0 where the log does not say. A timer
        that was built with another is of another engine (for evaluation, or a second model).
        """
        of_all_ranks, rest = divmod(batch, self.stated or 1)
        mine = (
            self.batch is not None
            and 1 / MAX_BATCH_RATIO < self.batch / (batch or np.inf) < MAX_BATCH_RATIO
        )
        known = self.is_sure and self.stated and of_all_ranks and not rest and mine
        return partial(_with_samples, of_all_ranks, self.firsts) if known else None


def find_unstated_micro_steps(
    rows: StepRows, stated_counts: Sequence[int], *, timer_stops_once: bool
) -> TimerMicroSteps | None:
    """Find the micro-steps per step by a launch's timer, where not `stated_counts`.

    stated_counts: by each configuration that the log states, the last one holds; None where it is
    any of these, or where nothing is said and each step has as many; and where the timer counts
    one, for what trains is known to stop it once a step (stopped_once).
    """
    stated = stated_counts[-1] if stated_counts else 0
    since_start = any(form.counts == LAUNCH_STEPS for form in rows.forms())
    if since_start and any(
        _each_has(rows, n) for n in dict.fromkeys(reversed(stated_counts or [1]))
    ):
        return None
    counts = pl.concat([*_counts(rows)] if since_start else [*_moments(rows)])
    if not since_start and _keep_pace(counts, stated_counts):
        return None
    each = _of_each_step(counts, since_start=since_start)
    least, most = each["each"].min(), each["each"].max()
    if not each.height or least == most == (stated or least):
        return None
    if timer_stops_once and most == 1:
        return None
    other = each.filter(pl.col("each") != (stated or each["each"][0]))
    is_of_all = since_start and each.height == counts.height and (counts["epoch"] == 0).all()
    is_sure = is_of_all and _ranks_agree(counts) and len({*stated_counts}) == 1 and most != 1
    firsts = counts.unique("rank", keep="first", maintain_order=True)["line"].to_list()
    return TimerMicroSteps(
        least=least,  # type: ignore[arg-type]
        most=most,  # type: ignore[arg-type]
        stated=stated,
        firsts=firsts,
        line=other["line"][0],
        is_sure=is_sure,
        batch=_batch(counts),
    )


def samples_per_step(rows: StepRows, accumulation: int) -> float | None:
    """Samples of a step by the timer of a launch, where each step has so many micro-steps.

    None where it does not tell: where it counts none since the start, or its lines have no stamps.
    """
    since_start = any(form.counts == LAUNCH_STEPS for form in rows.forms())
    if not since_start or not _each_has(rows, accumulation):
        return None
    return _batch(pl.concat([*_counts(rows)]))


def _of_each_step(counts: pl.DataFrame, *, since_start: bool) -> pl.DataFrame:
    """Micro-steps of a step, as a mean since the line before, of lines where both counts grew.

    since_start: whether the steps are of the process too, so that its first line tells of some.
    """
    counter = ("rank", "epoch")
    begins = (pl.int_range(pl.len()).over(counter) == 0) & (pl.col("epoch") == 0) & since_start
    grown = counts.with_columns(
        pl.when(begins).then(name).otherwise(pl.col(name).diff().over(counter)).alias(name)
        for name in ("step", "micro")
    )
    known = grown.filter(pl.col("step") > 0, pl.col("micro") > 0)
    return known.select("line", each=pl.col("micro") / pl.col("step"))


def _keep_pace(counts: pl.DataFrame, said: Sequence[int]) -> bool:
    """Whether counts of `_moments` fit so many micro-steps in each step.

    The timer prints each so many micro-steps: where that is in the middle of a step its count is
    ahead of the engine's line, but never by more than lie between two of its own. Where nothing is
    said, each step may have as many as most have.
    """
    counts = counts.filter(pl.col("apart").is_not_null())  # an epoch's first may follow the last's
    each = _of_each_step(counts, since_start=False)["each"].median()
    usual = [round(each)] if each is not None else []  # type: ignore[arg-type]
    of_counter = counts.group_by("rank", "epoch")

    def fits(count: int) -> bool:
        ahead = pl.col("micro") - count * pl.col("step")
        spread = of_counter.agg(fits=ahead.max() - ahead.min() < pl.max("apart"))
        return bool(spread["fits"].fill_null(value=True).all())

    return any(map(fits, {*(said or usual)}))


def _ranks_agree(counts: pl.DataFrame) -> bool:
    return counts.select("step", "micro").n_unique() == counts["step"].n_unique()


_TOLD: Final = (FORM_COLUMN, "line", "rank", "epoch", "step", "extra", "logged_at", RATE_COLUMN)


def _batch(counts: pl.DataFrame) -> float | None:
    """Samples of a step by the timer's rate and the time between its lines."""
    seconds = pl.col("logged_at").diff().over("rank").dt.total_microseconds() / 1e6
    batches = counts.select(pl.col(RATE_COLUMN) * seconds / pl.col("step").diff().over("rank"))
    return batches.to_series().median()  # type: ignore[return-value]


def _each_has(rows: StepRows, count: int) -> bool:
    """Whether each step has so many micro-steps by the counts since the start."""
    mine = _places(rows, LAUNCH_STEPS)
    each = (~pl.col(FORM_COLUMN).is_in(mine) | has_micro_steps(count)).all()
    return all(f.select(each).item() for f in rows.frames(FORM_COLUMN, "step", "extra"))


def _places(rows: StepRows, counter: str) -> list[int]:
    """Forms of the timer that count these."""
    return [place for place, form in enumerate(rows.all_forms) if form.counts == counter]


def _counts(rows: StepRows) -> Iterator[pl.DataFrame]:
    """Both counts of the timer's lines, which tell both since the process began."""
    for frame in rows.frames(*_TOLD):
        told = frame.select(
            "line", "rank", "epoch", "step", "logged_at", RATE_COLUMN, micro=TIMER_MICRO_STEP
        )
        yield told.filter(pl.col("micro").is_not_null())


def _moments(rows: StepRows) -> Iterator[pl.DataFrame]:
    """The same of lines that count micro-steps alone, by the engine's line right before.

    apart: micro-steps since the timer's line before.
    """
    mine = pl.col(FORM_COLUMN).is_in(_places(rows, MICRO_STEPS))
    whole = pl.when(~mine).then("step").shift().over("rank")
    for frame in rows.frames(*_TOLD):
        told = frame.with_columns(whole=whole).filter(mine)
        rate = pl.coalesce(RATE_COLUMN, TIMER_AVERAGE_RATE.cast(pl.Float64, strict=False))
        apart = pl.col("step").diff().over("rank", "epoch")
        told = told.select(
            *("line", "rank", "epoch", "logged_at"),
            rate.alias(RATE_COLUMN),
            apart=apart,
            micro="step",
            step="whole",
        )
        yield told.filter(pl.col("step").is_not_null())


def _with_samples(of_all_ranks: int, firsts: Sequence[int], frame: pl.DataFrame) -> pl.DataFrame:
    """Rows with the samples that micro-steps have consumed, of `of_all_ranks` each.

    The lines `firsts` say those of a step of their own, for no line before them has counts. The
    printed rate, of another batch, stands with what has no column.
    """
    if not {"extra", "line", "step", RATE_COLUMN} <= set(frame.columns):
        return frame
    consumed, mine = TIMER_MICRO_STEP * of_all_ranks, TIMER_MICRO_STEP.is_not_null()
    told = pl.col("line").is_in(firsts) & (consumed % pl.col("step") == 0)
    fields = (
        pl.col("extra").str.strip_suffix("}"),
        pl.lit(f', "{CONFIGURED_RATE_KEY}": '),
        RATE_COLUMN,
        pl.lit("}"),
    )
    return frame.with_columns(
        pl.when(mine).then(consumed).alias("consumed_samples"),
        pl.when(told).then(consumed // pl.col("step")).alias("samples"),
        pl.when(~mine).then(RATE_COLUMN).alias(RATE_COLUMN),
        pl.when(mine & pl.col(RATE_COLUMN).is_not_null())
        .then(pl.concat_str(fields))
        .otherwise("extra")
        .alias("extra"),
    )
