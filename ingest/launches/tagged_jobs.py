"""Jobs of the names before lines (pods, containers, hosts, files).

Ranks of one job print the same loss at the same step. Names whose losses differ, or that share no
step, belong to several jobs: facts of one job do not apply to the other.
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
"""Share of common steps on which two ranks agree: a line may be damaged."""
MAX_RANK_GAP_S: Final = 2.0
"""Largest distance between stamps of one step by ranks of one job [s]."""
COMPARED_COLUMNS: Final[dict[str, pl.DataType]] = {
    "rank": pl.String(),
    "step": pl.Int64(),
    "loss": pl.Float64(),
    "logged_at": pl.Datetime("us"),
}


def may_hold_several_jobs(launches: Sequence[Launch]) -> bool:
    """Return whether lines of several names may belong to several jobs.

    They do if they begin several launches, or one rank prints a step with two losses.
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
    """Return the names of each job, in order of appearance.

    by_name: launches parsed from the lines of one name. A name without steps joins the job with the
    most similar name.
    """
    return _job_names({name: _steps(launches) for name, launches in by_name.items()})


def are_one_job(launches: Sequence[Launch], owners: Ints) -> bool:
    """Return whether all names belong to one job, from lines parsed together.

    owners: number of the name of every line, from the first line. Only for logs with one line per
    step: no line has to be read again for its name.
    """
    steps = _steps(launches, "line")
    owner = pl.Series("owner", owners[steps["line"].to_numpy() - 1])
    by_owner = steps.with_columns(owner).partition_by("owner", include_key=False, as_dict=True)
    return len(_job_names({str(key): rows for key, rows in by_owner.items()})) == 1


def _job_names(by_name: Mapping[str, pl.DataFrame]) -> list[list[str]]:
    """Return `job_names` by the steps of each name; the first print of a step counts."""
    steps = {
        name: every.unique("step", keep="first", maintain_order=True)
        for name, every in by_name.items()
    }
    with_steps = [name for name in by_name if steps[name].height]
    job = {name: name for name in with_steps}
    for first, second in combinations(with_steps, 2):
        if job[first] != job[second] and _of_one_job(steps[first], steps[second]):
            old, new = job[second], job[first]
            job |= {name: new for name, job_name in job.items() if job_name == old}
    for name in by_name if with_steps else ():
        if name not in job:
            job[name] = job[get_close_matches(name, with_steps, 1, 0.0)[0]]
    return [
        [name for name in by_name if job.get(name) == job_name]
        for job_name in dict.fromkeys(job.values())
    ]


def _steps(launches: Sequence[Launch], *more: str) -> pl.DataFrame:
    """Return the compared columns of all steps. more: other columns of integers."""
    schema = COMPARED_COLUMNS | dict.fromkeys(more, pl.Int64())
    frames = (frame for launch in launches for frame in launch.rows.frames(*schema))
    return pl.concat([pl.DataFrame(schema=schema), *(f.cast(schema) for f in frames if f.height)])  # type: ignore[arg-type]


def _of_one_job(first: pl.DataFrame, second: pl.DataFrame) -> bool:
    """Return whether steps have the same losses or, for want of losses, stamps.

    Stamps decide without losses, or between different ranks. Copies that were restarted
    (MAX_COPY_DELAY) belong to two jobs.
    """
    both = first.join(second, on="step", suffix="_other")
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
    ranks = ({*frame["rank"].drop_nulls()} for frame in (first, second))
    if losses.height and not set.isdisjoint(*ranks):
        return False
    return bool(len(apart_s) and (apart_s <= MAX_RANK_GAP_S).mean() >= MIN_AGREEING_SHARE)  # type: ignore[operator]
