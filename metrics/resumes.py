"""Which launch continues which: resumes from a checkpoint, told by steps, time and losses.

A launch continues an earlier one when it starts behind that one's first step and no further than
one logged interval behind its last, trains the same work, and began after that one's last step.
In another file also its first loss has to lie where the earlier launch had come to. What the
earlier launch had trained beyond that point was trained again: those steps are marked.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import polars as pl

SAME_WORK: Final = ("model", "params_total", "seq_len", "global_batch_size", "total_steps")
"""What a resumed launch has in common with the one before, where both say it. One that says that it
was resumed may go on for longer than was planned."""

SLACK: Final = timedelta(seconds=2)
NEAR_STEPS: Final = 20
LOSS_SPREAD: Final = 3.0
"""A first loss lies on the earlier course when it is within this many spreads of its neighbours."""

RESUMES: Final = pl.Schema(
    {"run_id": pl.String, "continues": pl.String, "repeated_steps": pl.Int64}
)


@dataclass(frozen=True, slots=True)
class _Course:
    """The steps of one launch, folded over ranks."""

    run: Mapping[str, Any]
    facts: Mapping[str, Any]
    steps: list[int]
    losses: list[float | None]
    interval: int
    first_stamp: datetime | None
    last_stamp: datetime | None
    began: int | None
    """The step behind which it says, or shows, that training began."""


def resumes(
    runs: pl.DataFrame, folded: pl.DataFrame, facts: pl.DataFrame, clocks: pl.DataFrame
) -> pl.DataFrame:
    """run_id, continues (run_id or null), repeated_steps of each run that has steps.

    runs: as in ingest.schema; folded: metrics.windows.fold_ranks or windows; facts:
    metrics.inputs.typed; clocks: metrics.end_to_end.clock, which tells what began at step 1.
    `repeated_steps` counts the logged steps of a run that one which continues it trained again.
    """
    began = dict(clocks.select("run_id", "trained_from").iter_rows())
    courses = _courses(runs, folded, facts, began)
    rows: dict[str, dict[str, Any]] = {
        c.run["run_id"]: {"run_id": c.run["run_id"], "continues": None, "repeated_steps": 0}
        for c in courses
    }
    for later in courses:
        fresh = later.began == 0  # it is no checkpoint's
        before = None if fresh else _before(later, courses)
        if before is None:
            continue
        rows[later.run["run_id"]]["continues"] = before.run["run_id"]
        again = sum(step >= later.steps[0] for step in before.steps)
        row = rows[before.run["run_id"]]
        row["repeated_steps"] = max(row["repeated_steps"], again)
    return pl.DataFrame(list(rows.values()), schema=RESUMES)


def chain(run_id: str, before: Mapping[str, str | None]) -> list[str]:
    """The launches up to and including `run_id`, the first one first.

    before: run_id to the run that it continues (`resumes`); one that is not among them ends it.
    """
    found = [run_id]
    while (earlier := before.get(found[-1])) is not None and earlier not in found:
        found.append(earlier)
    return found[::-1]


def _courses(
    runs: pl.DataFrame,
    folded: pl.DataFrame,
    facts: pl.DataFrame,
    began: Mapping[str, int | None],
) -> list[_Course]:
    known = {row["run_id"]: row for row in facts.iter_rows(named=True)}
    about = {row["run_id"]: row for row in runs.iter_rows(named=True)}
    return [
        _Course(
            run=about[str(run_id)],
            facts=known.get(str(run_id), {}),
            steps=frame["step"].to_list(),
            losses=frame["loss"].to_list(),
            interval=int(frame["step"].diff().median() or 1),  # type: ignore[arg-type]
            first_stamp=frame["logged_at"].min(),  # type: ignore[arg-type]
            last_stamp=frame["logged_at"].max(),  # type: ignore[arg-type]
            began=began[str(run_id)],
        )
        for (run_id,), frame in folded.group_by("run_id", maintain_order=True)
    ]


def _before(later: _Course, courses: Sequence[_Course]) -> _Course | None:
    """The launch that `later` continues: of those that fit, the one that ended last."""
    fitting = [c for c in courses if c is not later and _fits(c, later)]
    in_file = [c for c in fitting if c.run["sha256"] == later.run["sha256"]]
    if in_file:
        return max(in_file, key=_launch)
    on_course = [c for c in fitting if _on_course(c, later)]
    ends = sorted(on_course, key=_last_stamp)
    if len(ends) > 1 and ends[-1].last_stamp == ends[-2].last_stamp:
        return None  # two that ended together: which one is not known
    return ends[-1] if ends else None


def _launch(course: _Course) -> int:
    return int(course.run["launch"])


def _last_stamp(course: _Course) -> datetime:
    """Of one that fits in another file, which has one."""
    assert course.last_stamp is not None  # noqa: S101 - `_fits` asked
    return course.last_stamp


def _fits(before: _Course, later: _Course) -> bool:
    """Whether steps, work and time allow that `later` continues `before`."""
    gap = max(before.interval, later.interval)
    if not before.steps[0] < later.steps[0] <= before.steps[-1] + gap:
        return False
    if any(before.run[name] != later.run[name] for name in ("framework", "step_unit")):
        return False
    named = [name for name in SAME_WORK if name != "total_steps" or not later.began]
    pairs = [(before.facts.get(name), later.facts.get(name)) for name in named]
    known = [pair for pair in pairs if None not in pair]
    if any(one != other for one, other in known):
        return False
    if before.run["sha256"] == later.run["sha256"]:
        return bool(before.run["launch"] < later.run["launch"])
    return bool(known) and _ended_first(before, later)


def _ended_first(before: _Course, later: _Course) -> bool:
    """Whether the last step of one was over when the other began, by the same clock."""
    if before.run["utc"] != later.run["utc"]:
        return False
    if before.last_stamp is None or later.first_stamp is None:
        return False
    return before.last_stamp <= later.first_stamp + SLACK


def _on_course(before: _Course, later: _Course) -> bool:
    """Whether the first loss of `later` lies among those of `before` near that step."""
    first = next((loss for loss in later.losses if loss is not None), None)
    known = [(s, x) for s, x in zip(before.steps, before.losses, strict=True) if x is not None]
    if first is None or not known:
        return False
    near = sorted(known, key=lambda pair: abs(pair[0] - later.steps[0]))[:NEAR_STEPS]
    losses = np.array([loss for _, loss in near])
    if not np.isfinite(losses).all() or len(losses) < 2:  # noqa: PLR2004 - a spread needs two
        return False
    spread = max(float(np.ptp(losses)), 1e-3 * abs(float(losses.mean())))
    return bool(abs(first - float(np.median(losses))) <= LOSS_SPREAD * spread)
