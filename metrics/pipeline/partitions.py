"""Metrics of many runs, computed in partitions, perhaps elsewhere.

    alone       every partition as if there were no other runs; stored links of a changed run are
                in the same partition
    across      pairs of runs of different partitions, possibly sources of the same launch
                (metrics.runs.same_run), from the last steps found by the first round
    together    linked runs again, in partitions with all linked runs
    behind      launches that may continue a launch of another partition
                (metrics.runs.resume_chains), from their courses; rescored like changed runs

A round gives a piece of work per partition to the mapper. The last round finds few runs and
rescores them in this process. Frames in, frames out; no files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Final, Protocol, TypeVar

import polars as pl

from fairmfu.ingest.core.progress import counted_after

from ..formula.accelerators import Accelerator
from ..runs.resume_chains import may_continue, resume_candidates
from .incremental import (
    DEPENDENCY_COLUMNS,
    LoadTables,
    RescoredRuns,
    TableLoader,
    new_links,
    requested_runs,
    rescore,
    same_file_links,
)
from .metrics_cache import KEPT_SCHEMA, upgrade_kept
from .run_links import LINK_SCHEMA, kept_links

MAX_PARTITION_RUNS: Final = 500
MAX_PARTITION_LINES: Final = 2_000_000
"""Line limit of a partition's logs, with MAX_PARTITION_RUNS; linked runs may exceed both."""
MAX_LATER_LAUNCHES: Final = 1_000
"""Launches per piece of work that searches for an earlier launch elsewhere."""

Argument = TypeVar("Argument")
Result = TypeVar("Result")


class WorkMapper(Protocol):
    """Mapper of a function over arguments, here or elsewhere."""

    def __call__(
        self, work: Callable[[Argument], Result], over: Sequence[Argument], /
    ) -> Iterable[Result]:
        """Return the results of `work`, in order; work must be picklable."""


def map_locally(
    work: Callable[[Argument], Result], over: Sequence[Argument], /
) -> Iterable[Result]:
    """Call the function in this process, result by result."""
    return map(work, over)


def rescore_by_partition(  # noqa: PLR0913 - those of `rescore`, and the mapper
    runs: pl.DataFrame,
    kept: pl.DataFrame,
    changed: Collection[str],
    load: LoadTables,
    overlay: Sequence[Accelerator] = (),
    *,
    mapper: WorkMapper = map_locally,
) -> RescoredRuns:
    """Rescore runs as metrics.pipeline.incremental.rescore does, in partitions.

    The result has no analysis, unless a single partition is enough. Then it is that of `rescore`.

    runs: neighbouring rows are put into one partition, so sort them by name.
    load: must be picklable, because it runs where `mapper` computes.
    """
    kept = upgrade_kept(kept)
    current = frozenset(runs["run_id"])
    asked = requested_runs(runs, kept.select(DEPENDENCY_COLUMNS), changed)
    same_file = same_file_links(runs)
    groups = [group & current for group in _groups(pl.concat([_ties(kept), same_file]), asked)]
    parts = _packed(runs, groups)
    if len(parts) < 2:  # noqa: PLR2004 - a single partition
        return rescore(runs, kept, changed, load, overlay)
    gone = sorted(asked - current)
    state = _State(runs, load, overlay, mapper, kept.filter(~_is_one_of(gone)))
    state.compute(parts)
    elsewhere = state.across()
    ties = pl.concat([elsewhere, _ties(state.rows), same_file])
    together = _groups(ties, {*elsewhere["one"], *elsewhere["other"]})
    state.compute(_packed(runs, together))
    last = rescore(runs, state.rows, state.behind(), load, overlay)
    fresh = _is_one_of([*state.world, *last.rows["run_id"]])
    return RescoredRuns(last.replace_in(state.rows).filter(fresh).sort("run_id"), None, gone)


@dataclass(slots=True)
class _State:
    """Results of the rounds so far.

    rows: columns of KEPT_SCHEMA. world: partition number of every computed run, from 1. Runs of one
    world were computed together; so were rows from the cache (0).
    """

    runs: pl.DataFrame
    load: LoadTables
    overlay: Sequence[Accelerator]
    each: WorkMapper
    rows: pl.DataFrame
    world: dict[str, int] = field(default_factory=dict)

    def compute(self, parts: Sequence[Collection[str]]) -> None:
        """Compute the rows of each partition as if there were no other runs."""
        work = partial(_alone, load=self.load, overlay=self.overlay)
        some = iter(self.each(work, [self.runs.filter(_is_one_of(part)) for part in parts]))
        computed, sizes = list[pl.DataFrame](), list(map(len, parts))
        for done, size in zip(accumulate(sizes), sizes, strict=True):
            with counted_after(done - size, sum(sizes)):
                computed.append(next(some))
        first = max(self.world.values(), default=0) + 1
        self.world |= {run_id: world for world, part in enumerate(parts, first) for run_id in part}
        replaced = _is_one_of({run_id for part in parts for run_id in part})
        self.rows = pl.concat([self.rows.filter(~replaced), *computed]).rechunk()

    def across(self) -> pl.DataFrame:
        """Return pairs from different worlds that may be of one launch, as LINK_SCHEMA."""
        ends = self.rows.select("run_id", "ends")
        work = partial(_across, runs=self.runs, about=ends, load=self.load)
        parts: dict[int, list[str]] = {}
        for run_id, world in self.world.items():
            parts.setdefault(world, []).append(run_id)
        return pl.concat([LINK_SCHEMA.to_frame(), *self.each(work, list(parts.values()))])

    def behind(self) -> set[str]:
        """Return launches that may continue one of another world, judged by their courses."""
        courses = self.rows.select(pl.col("course").struct.unnest())
        courses = courses.filter(pl.col("run_id").is_not_null()).with_columns(
            world=pl.col("run_id").replace_strict(self.world, default=0, return_dtype=pl.Int64)
        )
        after, fresh = courses.filter(may_continue()), pl.col("world") > 0
        launches: set[str] = set()
        for before, some in (
            (courses, after.filter(fresh)),
            (courses.filter(fresh), after.filter(~fresh)),
        ):
            parts = list(some.iter_slices(MAX_LATER_LAUNCHES)) if before.height else []
            launches.update(*self.each(partial(_behind, before=before), parts))
        return launches


def _is_one_of(ids: Collection[str]) -> pl.Expr:
    return pl.col("run_id").is_in(pl.Series(list(ids), dtype=pl.String).implode())


def _ties(about: pl.DataFrame) -> pl.DataFrame:
    """Return cached dependencies between runs, in columns of LINK_SCHEMA."""
    earlier = about.select(one="run_id", other="earlier").filter(pl.col("other").list.len() > 0)
    return pl.concat([kept_links(about), earlier.explode("other")])


def _groups(ties: pl.DataFrame, run_ids: Collection[str]) -> list[set[str]]:
    """Return a group per run: the run, with all runs linked directly or indirectly."""
    group: dict[str, set[str]] = {one: {one} for one in run_ids}
    for one, other in ties.iter_rows():
        mine, others = group.setdefault(one, {one}), group.setdefault(other, {other})
        if mine is others:
            continue
        small, large = sorted((mine, others), key=len)
        large |= small
        group.update(dict.fromkeys(small, large))
    return list({id(group[one]): group[one] for one in run_ids}.values())


def _packed(runs: pl.DataFrame, groups: Sequence[Collection[str]]) -> list[list[str]]:
    """Pack groups into partitions, in the order of their first run; skip empty groups."""
    lines = (pl.col("last_line") - pl.col("first_line") + 1).fill_null(1)
    of_run = {
        run_id: (position, n)
        for position, (run_id, n) in enumerate(runs.select("run_id", lines).rows())
    }
    packed: list[list[str]] = []
    room_for_runs = room_for_lines = 0
    non_empty = filter(None, groups)
    for group in sorted(non_empty, key=lambda group: min(of_run[run_id][0] for run_id in group)):
        size = sum(of_run[run_id][1] for run_id in group)
        if not packed or len(group) > room_for_runs or size > room_for_lines:
            packed.append([])
            room_for_runs, room_for_lines = MAX_PARTITION_RUNS, MAX_PARTITION_LINES
        packed[-1] += sorted(group)
        room_for_runs, room_for_lines = room_for_runs - len(group), room_for_lines - size
    return packed


# -- pieces of work --------------------------------------------------------------------------


def _alone(runs: pl.DataFrame, load: LoadTables, overlay: Sequence[Accelerator]) -> pl.DataFrame:
    """Return the rows of runs, as if there were no others."""
    return rescore(runs, KEPT_SCHEMA.to_frame(), (), load, overlay).rows


def _across(
    own_ids: Sequence[str], runs: pl.DataFrame, about: pl.DataFrame, load: LoadTables
) -> pl.DataFrame:
    """Return pairs of these runs with others that may be sources of one launch."""
    pairs = new_links(about, set(own_ids), TableLoader(runs, load))
    within = pl.col("one").is_in(list(own_ids)) & pl.col("other").is_in(list(own_ids))
    return pairs.filter(~within)


def _behind(after: pl.DataFrame, before: pl.DataFrame) -> set[str]:
    """Return launches of `after` that may continue one of another world.

    after, before: columns of LAUNCH_COURSE_SCHEMA, and `world`.
    """
    world = before.select(before="run_id", world="world")
    pairs = (
        resume_candidates(before.drop("world"), after.drop("world"))
        .join(world, on="before")
        .join(after.select(later="run_id", own="world"), on="later")
    )
    return set(pairs.filter(pl.col("world") != pl.col("own"))["later"])
