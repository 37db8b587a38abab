"""Link launches that resume from another's checkpoint, by steps, time and losses.

A launch continues an earlier one if all of these are true:

- it starts after the earlier launch's first step, at most one log interval after the last step
- both train the same work
- it began after the earlier launch's last step; in another file, at most 90 days after
- in another file, its first loss is on the earlier launch's course
- in the same file, the log shows that it resumed, or its steps follow the last step exactly, or
  neither prints losses: an engine's lines alone go on counting, and show no more

Steps of the earlier launch beyond that point were trained again and are marked.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from typing import Any, Final

import numpy as np
import polars as pl

from fairmfu.ingest.core.schema import INT, TEXT, TEXT_LIST, TIMESTAMP

from ..core.arrays import median_of
from ..core.link_columns import LAUNCH_COURSE_SCHEMA, RESUME_KEY_COLUMNS
from ..throughput.end_to_end import MAX_STAMP_CROSSING

MAX_NEIGHBOUR_STEPS: Final = 20
MAX_LOSS_SPREADS: Final = 3.0
"""Most spreads of its neighbours that a first loss on the earlier course deviates by."""
MAX_DAYS_AWAY: Final = timedelta(days=90)
"""Longest time from a launch's last line to the first of its restart in another file."""

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
"""Most launches to search for an earlier one at once."""


def link_resumes(
    runs: pl.DataFrame, folded: pl.DataFrame, facts: pl.DataFrame, clocks: pl.DataFrame
) -> pl.DataFrame:
    """Return one row per run with steps, columns of RESUME_SCHEMA.

    runs: as in ingest.core.schema; folded: metrics.throughput.windows.fold_ranks or windows; facts:
        metrics.throughput.resolved_facts.typed_facts; clocks:
        metrics.throughput.end_to_end.launch_clocks, for launches that began at step 1

    repeated_steps: logged steps of the run that a continuing run trained again
    earlier: the run before, or several candidates if undecided; another run changes this column
        only if the other run ended no earlier
    course: columns of LAUNCH_COURSE_SCHEMA
    """
    known = launch_courses(runs, folded, facts, clocks)
    pairs = resume_candidates(known, known.filter(may_continue()))
    lines = _lines_of_pairs(folded, pairs)
    rows: dict[str, dict[str, Any]] = {
        run_id: {"run_id": run_id, "repeated_steps": 0, "earlier": []} for run_id in known["run_id"]
    }
    for run_id, run_pairs in _by_later(pairs):
        earlier = _earlier(run_pairs, lines[run_id], lines)
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


def earlier_launches_first(
    continued: Mapping[str, str | None],
) -> Iterator[tuple[str, str | None]]:
    """Yield every launch with the launch before it, earlier launches first.

    The work grows with the launches, however long their chains are. A circle is cut where the
    search for its first launch comes round.

    continued: run_id to the run before (`link_resumes`); a missing run_id ends the chain
    """
    done: set[str] = set()
    for run_id in continued:
        chain: dict[str, str | None] = {}
        launch: str | None = run_id
        while launch is not None and not (launch in done or launch in chain):
            if launch not in continued:
                break
            chain[launch] = continued[launch]
            launch = chain[launch]
        for one, before in reversed(chain.items()):
            yield one, None if before in chain and before not in done else before
            done.add(one)


def may_continue() -> pl.Expr:
    """Return whether a launch may continue another: not if trained from its start.

    Reads columns of LAUNCH_COURSE_SCHEMA.
    """
    return pl.col("began").is_null() | (pl.col("began") != 0)


def launch_courses(
    runs: pl.DataFrame, folded: pl.DataFrame, facts: pl.DataFrame, clocks: pl.DataFrame
) -> pl.DataFrame:
    """Return one row per run with steps, in the order of `folded`.

    Columns of LAUNCH_COURSE_SCHEMA, arguments as in `link_resumes`.
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
            clocks.select("run_id", "loaded", began="trained_from"),
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
    """Return pairs of launches whose steps, work and time allow a continuation.

    before, after: columns of LAUNCH_COURSE_SCHEMA.

    Columns of RESUME_PAIR_SCHEMA: before, later: run ids; in_file: both are of one file; is_shown:
    as `_is_shown`; launch, last_stamp: of the earlier launch.
    """
    parts = [
        part.join(before, on=["framework", "step_unit"], suffix="_before", nulls_equal=True)
        .filter(_fits())
        .select(
            before="run_id_before",
            later="run_id",
            in_file=_in_file(),
            is_shown=_is_shown(),
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
        "is_shown": pl.Boolean(),
        "launch": INT,
        "last_stamp": TIMESTAMP,
    }
)


def _is_shown() -> pl.Expr:
    """Return whether the log shows a resume, or the steps follow exactly."""
    goes_on = pl.col("first_step") > pl.col("last_step_before")
    return _began_later() | pl.col("loaded").fill_null(value=False) | goes_on.fill_null(value=False)


def _began_later() -> pl.Expr:
    """Return whether training is known to have begun after a later step than 0."""
    return pl.col("began").is_not_null() & (pl.col("began") != 0)


def _in_file() -> pl.Expr:
    return pl.col("sha256") == pl.col("sha256_before")


def _fits() -> pl.Expr:
    """Return whether a launch can continue another, whose columns end in `_before`.

    Columns of LAUNCH_COURSE_SCHEMA.
    """
    gap = pl.max_horizontal("interval", "interval_before")
    steps = (pl.col("first_step") > pl.col("first_step_before")) & (
        pl.col("first_step") <= pl.col("last_step_before") + gap
    )
    resumed = _began_later()
    alike, known = pl.lit(value=True), pl.lit(value=False)
    for name in RESUME_KEY_COLUMNS:
        same = pl.col(name) == pl.col(f"{name}_before")
        if name == "total_steps":
            same = pl.when(~resumed).then(same)
        if name == "global_batch_size":  # of a file's next launch on more GPUs, of local batches
            same = pl.when(~(resumed & _in_file())).then(same)
        alike &= same.fill_null(value=True)
        known |= same.is_not_null()
    away = pl.col("first_stamp") - pl.col("last_stamp_before")
    ended_first = (pl.col("utc") == pl.col("utc_before")) & away.is_between(
        -MAX_STAMP_CROSSING, MAX_DAYS_AWAY
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
    """Steps of one launch, folded over ranks."""

    steps: list[int]
    losses: list[float | None]


def _lines_of_pairs(folded: pl.DataFrame, pairs: pl.DataFrame) -> dict[str, _Lines]:
    """Return the lines of the launches in any pair, by run_id."""
    if pairs.is_empty():
        return {}
    named = pl.concat([pairs["before"], pairs["later"]]).implode()
    runs = folded.filter(pl.col("run_id").is_in(named)).group_by("run_id")
    return {
        str(run_id): _Lines(frame["step"].to_list(), frame["loss"].to_list())
        for (run_id,), frame in runs
    }


def _by_later(pairs: pl.DataFrame) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the pairs of each later launch: first of its own file, then by last stamp."""
    ordered = pairs.sort(
        "later", "in_file", "last_stamp", "launch", descending=[False, True, True, True]
    )
    for later_id, told in groupby(ordered.iter_rows(named=True), lambda row: row["later"]):
        yield str(later_id), list(told)


def _earlier(
    pairs: Sequence[Mapping[str, Any]], later_lines: _Lines, lines: Mapping[str, _Lines]
) -> list[str]:
    """Return the launches that a later launch may continue: the last to end that fit.

    pairs: an item of `_by_later`. Several if they ended together, so that the choice is open.
    """
    silent = not _has_losses(later_lines)
    in_file = [
        row
        for row in pairs
        if row["in_file"]
        and (row["is_shown"] or (silent and not _has_losses(lines[row["before"]])))
    ]
    if in_file:
        return [max(in_file, key=lambda row: int(row["launch"]))["before"]]
    others = [row for row in pairs if not row["in_file"]]
    for _, together in groupby(others, lambda row: row["last_stamp"]):
        ids = [row["before"] for row in together]
        if found := [one for one in ids if _on_course(lines[one], later_lines)]:
            return sorted(found)
    return []


def _has_losses(lines: _Lines) -> bool:
    return any(loss is not None for loss in lines.losses)


def _on_course(before: _Lines, later: _Lines) -> bool:
    """Return whether the first loss of `later` fits the losses of `before` there.

    Compared with the lines of `before` nearest to the first step of `later`.
    """
    first = next((loss for loss in later.losses if loss is not None), None)
    known = [(s, x) for s, x in zip(before.steps, before.losses, strict=True) if x is not None]
    if first is None or not known:
        return False
    near = sorted(known, key=lambda pair: abs(pair[0] - later.steps[0]))[:MAX_NEIGHBOUR_STEPS]
    losses = np.array([loss for _, loss in near])
    if not np.isfinite(losses).all() or len(losses) < 2:  # noqa: PLR2004 - a spread needs two
        return False
    spread = max(float(np.ptp(losses)), 1e-3 * abs(float(losses.mean())))
    return bool(abs(first - median_of(losses)) <= MAX_LOSS_SPREADS * spread)
