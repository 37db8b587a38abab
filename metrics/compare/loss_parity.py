"""Loss parity: the loss of each run at the same count of consumed tokens.

Runs that claim the same work should have the same loss after the same tokens. A rate is worth
nothing if a run dropped samples, trained on other data or did not train at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from fairmfu.ingest.core.schema import BOOL, FLOAT, TEXT

from ..core.arrays import FloatArray, median_of
from ..core.intervals import robust_spread, spread_of_most
from ..core.run_arrays import RunArrays
from ..core.run_course import MIN_LOSS_LINES, tokens_at_lines
from ..core.run_table import LOSS_LINE_FIELDS

LOSS_REACHES: Final = (0.1, 0.2, 0.3, 0.4, 0.5)
"""Shares of t tokens before t whose lines make up the median loss at t. The first share with enough
lines in every log is used for all: the loss falls, and a wider median is higher.
"""

MIN_LOSS_DIFFERENCE: Final = 1e-3
"""Smallest relative difference of losses that counts, however little they scatter."""

LOSS_PARITY_SCHEMA: Final = pl.Schema(
    {
        "run_id": TEXT,
        "equal_tokens": FLOAT,
        "loss_at_equal_tokens": FLOAT,
        "loss_spread": FLOAT,
        "same_loss": BOOL,
        "no_loss": TEXT,
    }
)

LOSS_LINES: Final = pl.Schema({"run_id": TEXT, **LOSS_LINE_FIELDS})

LossSeries = tuple[FloatArray, FloatArray]


def loss_lines(windows: pl.DataFrame) -> pl.DataFrame:
    """Return the lines with a loss, columns of LOSS_LINES, by run and step.

    windows: metrics.throughput.windows.build_windows

    tokens: over all GPUs up to the line; null for a run whose log does not give them
    """
    ordered = windows.sort("run_id", "step")
    tokens = [np.empty(0)]
    for run in RunArrays(ordered).by_run().values():
        known = np.isfinite(run["loss"])
        counts = tokens_at_lines(run, known)
        tokens.append(np.full(np.count_nonzero(known), np.nan) if counts is None else counts)
    counted = pl.Series("tokens", np.concatenate(tokens), nan_to_null=True)
    lines = ordered.filter(pl.col("loss").is_finite()).select("run_id", "step", "loss")
    return lines.with_columns(counted).match_to_schema(LOSS_LINES)


def compare_losses(
    losses: pl.DataFrame, groups: Sequence[Sequence[str]], by_steps: Sequence[str] = ()
) -> pl.DataFrame:
    """Return one row per run of `groups`, columns of LOSS_PARITY_SCHEMA.

    losses: of `loss_lines`
    groups: run_ids of like-for-like runs
    by_steps: run_ids of those with equal batches and unknown tokens, compared at equal steps;
        their equal_tokens are null

    equal_tokens: the last count of tokens, over all GPUs, at which all runs of the group have a
        loss
    loss_spread: scatter of the lines around there, as a standard deviation
    same_loss: whether the loss is within the scatter of the other run's; for several runs, of the
        median of all
    no_loss: the reason for a missing loss
    """
    wanted = {run_id for group in groups for run_id in group}
    mine = losses.filter(pl.col("run_id").is_in(list(wanted)))
    series = {
        run_id: _series(run, by_steps=run_id in by_steps)
        for run_id, run in RunArrays(mine).by_run().items()
    }
    rows = [row for group in groups for row in _group(group, series)]
    for row in rows:
        if row["run_id"] in by_steps:
            row["equal_tokens"] = None
    return pl.DataFrame(
        [{n: row.get(n) for n in LOSS_PARITY_SCHEMA} for row in rows], schema=LOSS_PARITY_SCHEMA
    )


def _series(lines: RunArrays, *, by_steps: bool) -> LossSeries | str:
    """Return tokens (or steps) and losses of the lines with a loss, or a reason."""
    if lines.height < MIN_LOSS_LINES:
        return TOO_FEW_LOSSES
    if not by_steps and not lines.has_all("tokens"):
        return TOKENS_UNCOUNTED
    return lines["step" if by_steps else "tokens"], lines["loss"]


TOO_FEW_LOSSES: Final = "a log has too few losses"
TOKENS_UNCOUNTED: Final = "a log does not give the tokens over all GPUs"
TOKENS_COUNTED_UNLIKE: Final = "no common token count"


def _group(group: Sequence[str], series: Mapping[str, LossSeries | str]) -> list[dict[str, Any]]:
    found = {run: series.get(run, TOO_FEW_LOSSES) for run in group}
    lines = {run: one for run, one in found.items() if not isinstance(one, str)}
    token_count = min((float(tokens[-1]) for tokens, _ in lines.values()), default=0.0)
    there = {run: _level(losses) for run, losses in _at_equal_tokens(lines, token_count).items()}
    others = _levels_of_others(there)
    rows = []
    for run, one in found.items():
        row: dict[str, Any] = {"run_id": run}
        if isinstance(one, str):
            row["no_loss"] = one
        elif run not in others:
            row["no_loss"] = TOKENS_COUNTED_UNLIKE
        else:
            row |= _compared_loss(there[run], others[run]) | {"equal_tokens": token_count}
        rows.append(row)
    return rows


def _at_equal_tokens(lines: Mapping[str, LossSeries], token_count: float) -> dict[str, FloatArray]:
    """Return the losses of lines up to `at` tokens, with the same reach for all runs."""
    widest = {run: _near(one, token_count, LOSS_REACHES[-1]) for run, one in lines.items()}
    able = [run for run, losses in widest.items() if len(losses) >= MIN_LOSS_LINES]
    for reach in LOSS_REACHES:
        near = {run: _near(lines[run], token_count, reach) for run in able}
        if all(len(losses) >= MIN_LOSS_LINES for losses in near.values()):
            return near
    return {}


def _near(series: LossSeries, token_count: float, reach: float) -> FloatArray:
    tokens, losses = series
    return losses[(tokens <= token_count * (1 + 1e-9)) & (tokens >= token_count * (1 - reach))]


@dataclass(frozen=True, slots=True)
class _Level:
    """Level of a run's losses: the median, and the spread as a standard deviation."""

    loss: float
    spread: float


def _level(losses: FloatArray) -> _Level:
    """Return the level of some losses.

    Losses that alternate, or are mostly printed alike, scatter though their median does not.
    """
    middle = median_of(losses)
    return _Level(middle, robust_spread(losses) or spread_of_most(losses - middle))


def _levels_of_others(there: Mapping[str, _Level]) -> dict[str, _Level]:
    """Return the level to compare each run with: the other's, or the median."""
    if len(there) < PAIR_SIZE:
        return {}
    if len(there) == PAIR_SIZE:
        (one, of_one), (other, of_other) = there.items()
        return {one: of_other, other: of_one}
    loss = median_of(np.array([level.loss for level in there.values()]))
    spread = median_of(np.array([level.spread for level in there.values()]))
    return dict.fromkeys(there, _Level(loss, spread))


def _compared_loss(level: _Level, others: _Level) -> dict[str, Any]:
    """Compare a run's loss with the other's or the median of all, in their spreads."""
    widest = max(level.spread, others.spread)
    apart = abs(level.loss - others.loss) > max(widest, MIN_LOSS_DIFFERENCE * abs(others.loss))
    return {"loss_at_equal_tokens": level.loss, "loss_spread": level.spread, "same_loss": not apart}


PAIR_SIZE: Final = 2
