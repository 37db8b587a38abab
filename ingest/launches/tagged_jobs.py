"""Which names before lines (pods, containers, hosts, files) are of one job.

Ranks of one job print the same loss at the same step. Names whose losses differ, or that share no
step, are of several jobs: what one of them prints says nothing of the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from itertools import combinations
from typing import Final

import polars as pl

from ..core.arrays import Ints
from .launch import LOSS_PRINT_TOLERANCE, MAX_COPY_DELAY, Launch

MIN_AGREEING_SHARE: Final = 0.9
"""Of the steps that two ranks print, as many agree: a line may be damaged."""
MAX_RANK_GAP_S: Final = 2.0
"""Seconds that ranks of one job may stamp one step apart."""
COMPARED_COLUMNS: Final[dict[str, pl.DataType]] = {
    "rank": pl.String(),
    "step": pl.Int64(),
    "loss": pl.Float64(),
    "logged_at": pl.Datetime("us"),
}


def may_hold_several_jobs(launches: Sequence[Launch]) -> bool:
    """Return whether lines of several names may be of several jobs.

    They begin several launches, or one rank prints a step with two losses.
    """
    with_rows = [launch for launch in launches if launch.rows]
    return len(with_rows) > 1 or any(map(_has_two_losses, with_rows))


def _has_two_losses(launch: Launch) -> bool:
    seen = pl.concat(launch.rows.frames("rank", "step", "loss"))
    loss = pl.col("loss").filter(pl.col("loss") >= 0)
    apart = seen.group_by("rank", "step").agg(
        far=(loss.max() - loss.min()) > LOSS_PRINT_TOLERANCE * (1 + loss.min())
    )
    return bool(apart["far"].any())


def job_names(by_name: Mapping[str, Sequence[Launch]]) -> list[list[str]]:
    """Return the names of each job, in the order in which they come.

    by_name: what the lines of each name alone say. One that prints no step is of the job whose
    names are most like it.
    """
    return _job_names({name: _steps(launches) for name, launches in by_name.items()})


def are_one_job(launches: Sequence[Launch], owners: Ints) -> bool:
    """Return whether all names are of one job, by what their lines said when read together.

    owners: the number of the name of each line, from the first. Holds of logs whose steps are of
    one line each: no line has to be read again for its name.
    """
    steps = _steps(launches, "line")
    owner = pl.Series("owner", owners[steps["line"].to_numpy() - 1])
    each = steps.with_columns(owner).partition_by("owner", include_key=False, as_dict=True)
    return len(_job_names({str(key): rows for key, rows in each.items()})) == 1


def _job_names(by_name: Mapping[str, pl.DataFrame]) -> list[list[str]]:
    """As `job_names`; by_name: the steps of each, of which the first print counts."""
    steps = {
        name: every.unique("step", keep="first", maintain_order=True)
        for name, every in by_name.items()
    }
    told = [name for name in by_name if steps[name].height]
    job = {name: name for name in told}
    for one, other in combinations(told, 2):
        if job[one] != job[other] and _of_one_job(steps[one], steps[other]):
            old, new = job[other], job[one]
            job |= {name: new for name, of in job.items() if of == old}
    for name in by_name if told else ():
        if name not in job:
            job[name] = job[get_close_matches(name, told, 1, 0.0)[0]]
    return [[name for name in by_name if job.get(name) == of] for of in dict.fromkeys(job.values())]


def _steps(launches: Sequence[Launch], *more: str) -> pl.DataFrame:
    """Return the compared columns of all steps; more: other columns of integers."""
    schema = COMPARED_COLUMNS | dict.fromkeys(more, pl.Int64())
    frames = (frame for launch in launches for frame in launch.rows.frames(*schema))
    return pl.concat([pl.DataFrame(schema=schema), *(f.cast(schema) for f in frames if f.height)])  # type: ignore[arg-type]


def _of_one_job(one: pl.DataFrame, other: pl.DataFrame) -> bool:
    """Whether the same steps have the same loss; without losses, or of two ranks, the same stamps.

    Stamps of copies that were started again (MAX_COPY_DELAY) are of two jobs.
    """
    both = one.join(other, on="step", suffix="_other")
    losses = both.filter(pl.col("loss") >= 0, pl.col("loss_other") >= 0)
    off = (losses["loss"] - losses["loss_other"]).abs()
    same = off <= LOSS_PRINT_TOLERANCE * (1 + losses["loss"].abs())
    apart_s = (both["logged_at"] - both["logged_at_other"]).dt.total_microseconds().abs() / 1e6
    apart_s = apart_s.drop_nulls()
    near = apart_s <= MAX_COPY_DELAY.total_seconds()
    if len(near) and near.mean() < MIN_AGREEING_SHARE:  # type: ignore[operator]
        return False
    if losses.height and same.mean() >= MIN_AGREEING_SHARE:  # type: ignore[operator]
        return True
    ranks = ({*frame["rank"].drop_nulls()} for frame in (one, other))
    if losses.height and not set.isdisjoint(*ranks):
        return False
    return bool(len(apart_s) and (apart_s <= MAX_RANK_GAP_S).mean() >= MIN_AGREEING_SHARE)  # type: ignore[operator]
