"""Micro-steps per step, where DeepSpeed's timer counts others than configured.

`engine.set_train_batch_size` changes the number before training or during it, for example for a
batch-size ramp-up, and prints nothing. The timer then still divides the batch size of its
construction by the time of a step (deepspeedai/DeepSpeed/deepspeed/utils/timer.py@038beb6
ThroughputTimer), but counts the real micro-steps. Since 0.8 the timer prints both micro-steps and
steps. Before 0.8, the engine's line just before gives the step.

One micro-step per step may also be the only timed one of several, where the timer stops once a step
(Megatron). Its rate is then too high for the time between its lines. But the rate is too high as
well where all of the step is timed and the run waits for data. Only the trainer in use separates
the two cases.
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
"""Count of the process, or of an epoch where the training reports epochs to the engine."""
TIMER_AVERAGE_RATE: Final = pl.col("extra").str.extract(r'"average": "([^"]{1,40})"')
"""Rate since the start: the only rate that the timer prints before 0.6."""
CONFIGURED_RATE_KEY: Final = "samples_per_second_as_configured"
"""Key in `extra` for a printed rate that assumes another batch than the step has."""


@dataclass(frozen=True, slots=True)
class TimerMicroSteps:
    """Micro-steps as the timer counts them.

    least, most: micro-steps per optimizer step, as means between two of its lines
    stated: as configured, 0 where the log is silent
    firsts: the first line of each rank
    line: the first line whose count differs
    is_sure: True if each count covers all that the process has trained, with one configuration
        stated
    batch: samples per step from the rate and the stamps, None without them
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
        """Description for people, with a remedy."""
        counted = f"{self.least:.4g}" + (f" to {self.most:.4g}" if self.most > self.least else "")
        unit = "micro-step" if self.most == 1 else "micro-steps"
        stated = f"the config has {self.stated}" if self.stated else "the log has no config"
        return f"The timer counts {counted} {unit} per optimizer step, and {stated}{self._remedy}"

    @property
    def _remedy(self) -> str:
        """Remedy for steps of one batch size, where only the user knows the configuration."""
        if self.most > self.least:
            return ""
        batch = "fairmfu set RUN global_batch_size=… gradient_accumulation=…"
        return f". Fix: {batch} batch_changes={NO_BATCH_CHANGES}"

    def make_correction(self, batch: int) -> Callable[[pl.DataFrame], pl.DataFrame] | None:
        """Return a function that turns the counts into samples, or None if they cannot.

        batch: configured samples per optimizer step, 0 where the log is silent. A timer built with
        another batch belongs to another engine (for evaluation, or a second model).
        """
        of_all_ranks, rest = divmod(batch, self.stated or 1)
        is_same_engine = (
            self.batch is not None
            and 1 / MAX_BATCH_RATIO < self.batch / (batch or np.inf) < MAX_BATCH_RATIO
        )
        known = self.is_sure and self.stated and of_all_ranks and not rest and is_same_engine
        return partial(_with_samples, of_all_ranks, self.firsts) if known else None


def find_unstated_micro_steps(
    rows: StepRows, stated_counts: Sequence[int], *, timer_stops_once: bool
) -> TimerMicroSteps | None:
    """Find the micro-steps per step by a launch's timer where not in `stated_counts`.

    Returns None where the count is one of `stated_counts`, or, without any, is the same for all
    steps. Also None where the timer counts one micro-step but is known to stop once a step.

    stated_counts: by each stated configuration; the last one applies
    timer_stops_once: True if the trainer stops the timer once a step
    """
    stated = stated_counts[-1] if stated_counts else 0
    since_start = any(form.counts == LAUNCH_STEPS for form in rows.forms())
    if since_start and any(
        _each_has(rows, n) for n in dict.fromkeys(reversed(stated_counts or [1]))
    ):
        return None
    counts = pl.concat([*_counts(rows)]) if since_start else _moments(rows)
    if not since_start and _keep_pace(counts, stated_counts):
        return None
    ratios = _of_each_step(counts, since_start=since_start)
    least, most = ratios["each"].min(), ratios["each"].max()
    if not ratios.height or least == most == (stated or least):
        return None
    if timer_stops_once and most == 1:
        return None
    other = ratios.filter(pl.col("each") != (stated or ratios["each"][0]))
    is_of_all = since_start and ratios.height == counts.height and (counts["epoch"] == 0).all()
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
    """Return the samples of a step by a launch's timer, given micro-steps per step.

    None where the timer counts nothing since the start, or its lines have no stamps.
    """
    since_start = any(form.counts == LAUNCH_STEPS for form in rows.forms())
    if not since_start or not _each_has(rows, accumulation):
        return None
    return _batch(pl.concat([*_counts(rows)]))


def _of_each_step(counts: pl.DataFrame, *, since_start: bool) -> pl.DataFrame:
    """Return mean micro-steps per step since the line before, where both counts grew.

    since_start: True if steps count from the process start too, so the first line gives a mean
    """
    counter = ("rank", "epoch")
    begins = (pl.int_range(pl.len()).over(counter) == 0) & (pl.col("epoch") == 0) & since_start
    grown = counts.with_columns(
        pl.when(begins).then(name).otherwise(pl.col(name).diff().over(counter)).alias(name)
        for name in ("step", "micro")
    )
    counted = grown.filter(pl.col("step") > 0, pl.col("micro") > 0)
    return counted.select("line", each=pl.col("micro") / pl.col("step"))


def _keep_pace(counts: pl.DataFrame, stated_counts: Sequence[int]) -> bool:
    """Return whether counts of `_moments` fit one number of micro-steps in every step.

    The timer prints every n micro-steps. In the middle of a step its count is ahead of the engine's
    line, but never by more than the distance between two timer lines. Without `stated_counts`, the
    median is tried.
    """
    counts = counts.filter(
        pl.col("apart").is_not_null()
    )  # the first of an epoch has no line before
    usual_ratio = _of_each_step(counts, since_start=False)["each"].median()
    usual = [round(usual_ratio)] if usual_ratio is not None else []  # type: ignore[arg-type]
    of_counter = counts.group_by("rank", "epoch")

    def fits(count: int) -> bool:
        ahead = pl.col("micro") - count * pl.col("step")
        spread = of_counter.agg(fits=ahead.max() - ahead.min() < pl.max("apart"))
        return bool(spread["fits"].fill_null(value=True).all())

    return any(map(fits, {*(stated_counts or usual)}))


def _ranks_agree(counts: pl.DataFrame) -> bool:
    return counts.select("step", "micro").n_unique() == counts["step"].n_unique()


_COUNT_COLUMNS: Final = (
    FORM_COLUMN,
    "line",
    "rank",
    "epoch",
    "step",
    "extra",
    "logged_at",
    RATE_COLUMN,
)


def _batch(counts: pl.DataFrame) -> float | None:
    """Return the samples of a step: the timer's rate times the time between its lines."""
    seconds = pl.col("logged_at").diff().over("rank").dt.total_microseconds() / 1e6
    batches = counts.select(pl.col(RATE_COLUMN) * seconds / pl.col("step").diff().over("rank"))
    return batches.to_series().median()  # type: ignore[return-value]


def _each_has(rows: StepRows, count: int) -> bool:
    """Return whether every step has this many micro-steps, by counts since the start."""
    forms = _places(rows, LAUNCH_STEPS)
    each = (~pl.col(FORM_COLUMN).is_in(forms) | has_micro_steps(count)).all()
    return all(f.select(each).item() for f in rows.frames(FORM_COLUMN, "step", "extra"))


def _places(rows: StepRows, counter: str) -> list[int]:
    """Return the indices of the timer's forms that count `counter`."""
    return [place for place, form in enumerate(rows.all_forms) if form.counts == counter]


def _counts(rows: StepRows) -> Iterator[pl.DataFrame]:
    """Yield both counts of the timer's lines that have both since the process start."""
    for frame in rows.frames(*_COUNT_COLUMNS):
        counts = frame.select(
            "line", "rank", "epoch", "step", "logged_at", RATE_COLUMN, micro=TIMER_MICRO_STEP
        )
        yield counts.filter(pl.col("micro").is_not_null())


def _moments(rows: StepRows) -> pl.DataFrame:
    """Return counts of lines that print micro-steps alone.

    Steps come from the engine's line right before. Column apart: micro-steps since the timer's line
    before.
    """
    is_timer = pl.col(FORM_COLUMN).is_in(_places(rows, MICRO_STEPS))
    rate = pl.coalesce(RATE_COLUMN, TIMER_AVERAGE_RATE.cast(pl.Float64, strict=False))
    pieces = (
        frame.select(
            *("line", "rank", "epoch", "step", "logged_at"),
            rate.alias(RATE_COLUMN),
            is_timer=is_timer,
        )
        for frame in rows.frames(*_COUNT_COLUMNS)
    )
    whole = pl.when(~pl.col("is_timer")).then("step").shift().over("rank")
    timed = pl.concat(pieces).with_columns(whole=whole).filter("is_timer")
    counts = timed.select(
        *("line", "rank", "epoch", "logged_at", RATE_COLUMN),
        apart=pl.col("step").diff().over("rank", "epoch"),
        micro="step",
        step="whole",
    )
    return counts.filter(pl.col("step").is_not_null())


def _with_samples(of_all_ranks: int, firsts: Sequence[int], frame: pl.DataFrame) -> pl.DataFrame:
    """Return rows with the samples that their micro-steps consumed.

    The lines `firsts` also get the samples of a step, because no earlier line has counts. The
    printed rate assumes another batch, so it moves to `extra`.

    of_all_ranks: samples per micro-step of all ranks
    """
    if not {"extra", "line", "step", RATE_COLUMN} <= set(frame.columns):
        return frame
    consumed, has_count = TIMER_MICRO_STEP * of_all_ranks, TIMER_MICRO_STEP.is_not_null()
    is_first = pl.col("line").is_in(firsts) & (consumed % pl.col("step") == 0)
    fields = (
        pl.col("extra").str.strip_suffix("}"),
        pl.lit(f', "{CONFIGURED_RATE_KEY}": '),
        RATE_COLUMN,
        pl.lit("}"),
    )
    return frame.with_columns(
        pl.when(has_count).then(consumed).alias("consumed_samples"),
        pl.when(is_first).then(consumed // pl.col("step")).alias("samples"),
        pl.when(~has_count).then(RATE_COLUMN).alias(RATE_COLUMN),
        pl.when(has_count & pl.col(RATE_COLUMN).is_finite())  # JSON has no NaN
        .then(pl.concat_str(fields))
        .otherwise("extra")
        .alias("extra"),
    )
