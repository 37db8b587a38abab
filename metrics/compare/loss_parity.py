"""Whether runs learnt alike: the loss of each at the same count of consumed tokens.

Runs that claim the same work should have the same loss after the same tokens. A rate is worth
nothing where one of them dropped samples, trained on other data or did not train at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from fairmfu.ingest.core.schema import BOOL, FLOAT, TEXT

from ..core.arrays import Array
from ..core.intervals import robust_spread

REACHES: Final = (0.1, 0.2, 0.3, 0.4, 0.5)
"""The loss at t tokens is the median of the lines that speak of so much of them, to t; the first
reach at which each log has enough lines, the same for all: the loss falls, and a wider median is
higher."""

FEWEST_LINES: Final = 5
"""Lines that a median needs."""

ROUNDING: Final = 1e-3
"""Losses that differ by less, as a fraction, are the same however little they scatter."""

SAMENESS: Final = pl.Schema(
    {
        "run_id": TEXT,
        "equal_tokens": FLOAT,
        "loss_at_equal_tokens": FLOAT,
        "loss_spread": FLOAT,
        "same_loss": BOOL,
        "no_loss": TEXT,
    }
)

Series = tuple[Array, Array]


def sameness(windows: pl.DataFrame, groups: Sequence[Sequence[str]]) -> pl.DataFrame:
    """A row for each run of `groups` (run_ids of like-for-like runs), columns of SAMENESS.

    windows: metrics.throughput.windows.windows

    equal_tokens: the last count of tokens, over all GPUs, that all runs of the group have a loss of
    loss_spread: scatter of the lines around there, as a standard deviation
    same_loss: whether the loss is as near to the other run's as they scatter, of several runs to
        the median of all
    no_loss: why there is none
    """
    wanted = {run_id for group in groups for run_id in group}
    mine = windows.filter(pl.col("run_id").is_in(list(wanted)))
    series = {str(run_id): _series(frame) for (run_id,), frame in mine.group_by("run_id")}
    rows = [row for group in groups for row in _group(group, series)]
    return pl.DataFrame([{n: row.get(n) for n in SAMENESS} for row in rows], schema=SAMENESS)


def _series(frame: pl.DataFrame) -> Series | str:
    """Consumed tokens and losses of the lines that print one; or why there are none."""
    losses = frame.filter(pl.col("loss").is_finite()).sort("step")
    if losses.height < FEWEST_LINES:
        return NO_LOSS
    padded = not frame["non_padding_count"].count()  # else a total may hold padding
    per_step = pl.lit(frame["tokens_per_gpu"].mean(), pl.Float64)
    counts = losses.select(
        printed=pl.when(pl.lit(value=padded)).then("consumed_tokens").cast(pl.Float64),
        samples=pl.col("consumed_samples").cast(pl.Float64) * pl.col("seq_len"),
        steps=pl.col("step").cast(pl.Float64) * per_step * pl.col("gpus"),
    )
    tokens = next((count for count in counts if not count.null_count()), None)
    if tokens is None:
        return UNCOUNTED
    return tokens.to_numpy(), losses["loss"].to_numpy()


NO_LOSS: Final = "a log prints too few losses"
UNCOUNTED: Final = "a log does not say how many tokens all GPUs trained on"
NO_COUNT: Final = "no common token count"


def _group(group: Sequence[str], series: Mapping[str, Series | str]) -> list[dict[str, Any]]:
    found = {run: series.get(run, NO_LOSS) for run in group}
    lines = {run: one for run, one in found.items() if not isinstance(one, str)}
    at = min((float(tokens[-1]) for tokens, _ in lines.values()), default=0.0)
    there = {run: _level(losses) for run, losses in _at_equal_tokens(lines, at).items()}
    rows = []
    for run, one in found.items():
        row: dict[str, Any] = {"run_id": run}
        if isinstance(one, str):
            row["no_loss"] = one
        elif run not in there or len(there) == 1:
            row["no_loss"] = NO_COUNT
        else:
            row |= _against(run, there) | {"equal_tokens": at}
        rows.append(row)
    return rows


def _at_equal_tokens(lines: Mapping[str, Series], at: float) -> dict[str, Array]:
    """Losses of each run's lines up to `at` tokens, as far back for one as for the others."""
    widest = {run: _near(one, at, REACHES[-1]) for run, one in lines.items()}
    able = [run for run, losses in widest.items() if len(losses) >= FEWEST_LINES]
    for reach in REACHES:
        near = {run: _near(lines[run], at, reach) for run in able}
        if all(len(losses) >= FEWEST_LINES for losses in near.values()):
            return near
    return {}


def _near(series: Series, at: float, reach: float) -> Array:
    tokens, losses = series
    return losses[(tokens <= at * (1 + 1e-9)) & (tokens >= at * (1 - reach))]


@dataclass(frozen=True, slots=True)
class _Level:
    """The level of a run's losses: the median, and their spread as a standard deviation."""

    loss: float
    spread: float


def _level(losses: Array) -> _Level:
    return _Level(float(np.median(losses)), robust_spread(losses))


def _against(run: str, there: Mapping[str, _Level]) -> dict[str, Any]:
    """A run's loss beside that of the other, or of the one in the middle, in their spreads."""
    own = there[run]
    others = [one for name, one in there.items() if name != run or len(there) != PAIR]
    middle = float(np.median([one.loss for one in others]))
    widest = max(own.spread, float(np.median([one.spread for one in others])))
    apart = abs(own.loss - middle) > max(widest, ROUNDING * abs(middle))
    return {"loss_at_equal_tokens": own.loss, "loss_spread": own.spread, "same_loss": not apart}


PAIR: Final = 2
