"""Which launch continues which: resumes from a checkpoint, told by steps, time and losses.

A launch continues an earlier one when it starts behind that one's first step and no further than
one logged interval behind its last, trains the same work, and began after that one's last step.
In another file also its first loss has to lie where the earlier launch had come to. What the
earlier launch had trained beyond that point was trained again: those steps are marked.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np
import polars as pl

from fairmfu.ingest.core.schema import INT, TEXT, TEXT_LIST, TIMESTAMP

from ..core.link_columns import LAUNCH_COURSE_SCHEMA, RESUME_KEY_COLUMNS
from ..throughput.end_to_end import MAX_STAMP_CROSSING

MAX_NEIGHBOUR_STEPS: Final = 20
MAX_LOSS_SPREADS: Final = 3.0
"""A first loss lies on the earlier course when it is within this many spreads of its neighbours."""

RESUME_SCHEMA: Final = pl.Schema(
    {
        "run_id": TEXT,
        "continues": TEXT,
        "repeated_steps": INT,
        "earlier": TEXT_LIST,
        "course": pl.Struct(dict(LAUNCH_COURSE_SCHEMA)),
    }
)

MAX_LAUNCHES_AT_ONCE: Final = 200
"""Launches for which an earlier one is looked for at once."""


def link_resumes(
    runs: pl.DataFrame, folded: pl.DataFrame, facts: pl.DataFrame, clocks: pl.DataFrame
) -> pl.DataFrame:
    """One row per run that has steps, columns of RESUME_SCHEMA.

    runs: as in ingest.core.schema; folded: metrics.throughput.windows.fold_ranks or windows; facts:
    metrics.throughput.resolved_facts.typed_facts; clocks:
    metrics.throughput.end_to_end.launch_clocks, which tells what began at step 1. `repeated_steps`
    counts the logged steps of a run that one which continues it trained again. `earlier`: the run
    that it continues, or those of which it is not known which one it continues; another run changes
    this only if it ended no earlier. `course`: columns of COURSE.
    """
    known = launch_courses(runs, folded, facts, clocks)
    pairs = resume_candidates(known, known.filter(may_continue()))
    lines = _lines_of_pairs(folded, pairs)
    rows: dict[str, dict[str, Any]] = {
        run_id: {"run_id": run_id, "repeated_steps": 0, "earlier": []} for run_id in known["run_id"]
    }
    for run_id, told in _by_later(pairs):
        earlier = _earlier(told, lines[run_id], lines)
        rows[run_id]["earlier"] = earlier
        if len(earlier) != 1:
            continue
        rows[run_id]["continues"] = earlier[0]
        again = sum(step >= lines[run_id].steps[0] for step in lines[earlier[0]].steps)
        row = rows[earlier[0]]
        row["repeated_steps"] = max(row["repeated_steps"], again)
    course = known.select("run_id", course=pl.struct(LAUNCH_COURSE_SCHEMA.names()))
    linked = pl.DataFrame(list(rows.values()), schema=dict(list(RESUME_SCHEMA.items())[:-1]))
    return linked.join(course, on="run_id", maintain_order="left")


def launch_chain(run_id: str, continued: Mapping[str, str | None]) -> list[str]:
    """The launches up to and including `run_id`, the first one first.

    continued: run_id to the run that it continues (`link_resumes`); one that is not among them ends
    it.
    """
    found = [run_id]
    while (earlier := continued.get(found[-1])) is not None and earlier not in found:
        found.append(earlier)
    return found[::-1]


def may_continue() -> pl.Expr:
    """Launches that may continue another; one that trained from its first step is no checkpoint's.

    Of columns of COURSE.
    """
    return pl.col("began").is_null() | (pl.col("began") != 0)


def launch_courses(
    runs: pl.DataFrame, folded: pl.DataFrame, facts: pl.DataFrame, clocks: pl.DataFrame
) -> pl.DataFrame:
    """One row per run that has steps, in the order of `folded`.

    Columns of COURSE, arguments as in `link_resumes`.
    """
    interval = pl.col("step").diff().median().fill_null(1).cast(INT)
    return (
        folded.group_by("run_id", maintain_order=True)
        .agg(
            first_step=pl.col("step").first(),
            last_step=pl.col("step").last(),
            interval=pl.max_horizontal(interval, 1),
            first_stamp=pl.col("logged_at").min(),
            last_stamp=pl.col("logged_at").max(),
        )
        .join(
            runs.select("run_id", "sha256", "launch", "framework", "step_unit", "utc"),
            on="run_id",
            maintain_order="left",
        )
        .join(
            clocks.select("run_id", began="trained_from"),
            on="run_id",
            how="left",
            maintain_order="left",
        )
        .join(
            facts.select("run_id", *RESUME_KEY_COLUMNS),
            on="run_id",
            how="left",
            maintain_order="left",
        )
        .select(LAUNCH_COURSE_SCHEMA.names())
    )


def resume_candidates(before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame:
    """Pairs of launches of which steps, work and time allow that the later continues the other.

    before, after: columns of COURSE. `before`, `may_continue`: run ids; `in_file`: both are of one
    file; `launch`, `last_stamp`: of the earlier one.
    """
    parts = [
        part.join(before, on=["framework", "step_unit"], suffix="_before", nulls_equal=True)
        .filter(_fits())
        .select(
            before="run_id_before",
            later="run_id",
            in_file=_in_file(),
            launch="launch_before",
            last_stamp="last_stamp_before",
        )
        for part in after.iter_slices(MAX_LAUNCHES_AT_ONCE)
    ]
    return pl.concat([RESUME_PAIR_SCHEMA.to_frame(), *parts])


RESUME_PAIR_SCHEMA: Final = pl.Schema(
    {
        "before": TEXT,
        "later": TEXT,
        "in_file": pl.Boolean(),
        "launch": INT,
        "last_stamp": TIMESTAMP,
    }
)


def _in_file() -> pl.Expr:
    return pl.col("sha256") == pl.col("sha256_before")


def _fits() -> pl.Expr:
    """Whether a launch can go on from another: by columns of COURSE, the other's with `_before`."""
    gap = pl.max_horizontal("interval", "interval_before")
    steps = (pl.col("first_step") > pl.col("first_step_before")) & (
        pl.col("first_step") <= pl.col("last_step_before") + gap
    )
    resumed = pl.col("began").is_not_null() & (pl.col("began") != 0)
    alike, known = pl.lit(value=True), pl.lit(value=False)
    for name in RESUME_KEY_COLUMNS:
        same = pl.col(name) == pl.col(f"{name}_before")
        if name == "total_steps":
            same = pl.when(~resumed).then(same)
        if name == "global_batch_size":  # of a file's next launch on more GPUs, of local batches
            same = pl.when(~(resumed & _in_file())).then(same)
        alike &= same.fill_null(value=True)
        known |= same.is_not_null()
    ended_first = (pl.col("utc") == pl.col("utc_before")) & (
        pl.col("last_stamp_before") <= pl.col("first_stamp") + MAX_STAMP_CROSSING
    )
    follows = (
        pl.when(_in_file())
        .then(pl.col("launch_before") < pl.col("launch"))
        .otherwise(known & ended_first)
    )
    other = pl.col("run_id") != pl.col("run_id_before")
    return other & steps & alike & follows.fill_null(value=False)


@dataclass(frozen=True, slots=True)
class _Lines:
    """The steps of one launch, folded over ranks."""

    steps: list[int]
    losses: list[float | None]


def _lines_of_pairs(folded: pl.DataFrame, pairs: pl.DataFrame) -> dict[str, _Lines]:
    """By run_id the lines of the launches that stand in any pair."""
    if pairs.is_empty():
        return {}
    named = pl.concat([pairs["before"], pairs["later"]]).implode()
    runs = folded.filter(pl.col("run_id").is_in(named)).group_by("run_id")
    return {
        str(run_id): _Lines(frame["step"].to_list(), frame["loss"].to_list())
        for (run_id,), frame in runs
    }


def _by_later(pairs: pl.DataFrame) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The pairs of each later launch: those of its own file first, then what ended last first."""
    ordered = pairs.sort(
        "later", "in_file", "last_stamp", "launch", descending=[False, True, True, True]
    )
    for later_id, told in groupby(ordered.iter_rows(named=True), lambda row: row["later"]):
        yield str(later_id), list(told)


def _earlier(
    told: Sequence[Mapping[str, Any]], later_lines: _Lines, lines: Mapping[str, _Lines]
) -> list[str]:
    """Which launches a later one may continue: of those that fit, the one that ended last.

    told: one of `_by_later`. Several where they ended together, so that it is not known which.
    """
    in_file = [row for row in told if row["in_file"]]
    if in_file:
        return [max(in_file, key=lambda row: int(row["launch"]))["before"]]
    for _, together in groupby(told, lambda row: row["last_stamp"]):
        ids = [row["before"] for row in together]
        if found := [one for one in ids if _on_course(lines[one], later_lines)]:
            return sorted(found)
    return []


def _on_course(before: _Lines, later: _Lines) -> bool:
    """Whether the first loss of `later` lies among those of `before` near that step."""
    first = next((loss for loss in later.losses if loss is not None), None)
    known = [(s, x) for s, x in zip(before.steps, before.losses, strict=True) if x is not None]
    if first is None or not known:
        return False
    near = sorted(known, key=lambda pair: abs(pair[0] - later.steps[0]))[:MAX_NEIGHBOUR_STEPS]
    losses = np.array([loss for _, loss in near])
    if not np.isfinite(losses).all() or len(losses) < 2:  # noqa: PLR2004 - a spread needs two
        return False
    spread = max(float(np.ptp(losses)), 1e-3 * abs(float(losses.mean())))
    return bool(abs(first - float(np.median(losses))) <= MAX_LOSS_SPREADS * spread)
