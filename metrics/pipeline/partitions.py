"""Metrics of more runs than are looked at together: in partitions, which may be computed elsewhere.

    alone       each partition as if there were no other runs; what was tied to a changed run when
                it was kept is in its partition
    across      which runs of a partition tell of one launch with a run elsewhere, or may
                (metrics.runs.same_run): by the last steps that came of the first round
    together    those with all that they are tied to, in partitions that keep them together
    behind      launches that may go on from one elsewhere (metrics.runs.resume_chains), by their
    courses; they
                are computed as any changed run is

Each round asks `each` for as many pieces of work as there are partitions; what the last one finds
is few, and computed here. Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Protocol, TypeVar

import polars as pl

from ..formula.accelerators import Accelerator
from ..runs.resume_chains import may_continue, resume_candidates
from .incremental import (
    DEPENDENCY_COLUMNS,
    LINK_SCHEMA,
    LoadTables,
    RescoredRuns,
    TableLoader,
    kept_links,
    new_links,
    requested_runs,
    rescore,
    same_file_links,
)
from .metrics_cache import KEPT_SCHEMA, upgrade_kept

MAX_PARTITION_RUNS: Final = 500
MAX_PARTITION_LINES: Final = 2_000_000
"""The most lines that the logs of a partition have; runs that are tied to each other may have
more."""
MAX_LATER_LAUNCHES: Final = 1_000
"""Launches for which an earlier one elsewhere is looked for by one piece of work."""

Argument = TypeVar("Argument")
Result = TypeVar("Result")


class WorkMapper(Protocol):
    """Who has a function called with each argument, and tells what came of them in their order."""

    def __call__(
        self, work: Callable[[Argument], Result], over: Sequence[Argument], /
    ) -> Iterable[Result]:
        """work: can be pickled."""


def map_locally(
    work: Callable[[Argument], Result], over: Sequence[Argument], /
) -> Iterable[Result]:
    """Each one by this process, when it is asked for."""
    return map(work, over)


def rescore_by_partition(  # noqa: PLR0913 - those of `rescore`, and who computes
    runs: pl.DataFrame,
    kept: pl.DataFrame,
    changed: Collection[str],
    load: LoadTables,
    overlay: Sequence[Accelerator] = (),
    *,
    mapper: WorkMapper = map_locally,
) -> RescoredRuns:
    """As metrics.pipeline.incremental.rescore, whose law holds here too; without an analysis.

    Where one partition holds all that has to be computed it is `rescore`, with its analysis. runs:
    neighbours come into one partition, so they are best in the order of their names. load: can be
    pickled, as it is used where `mapper` computes.
    """
    kept = upgrade_kept(kept)
    there = frozenset(runs["run_id"])
    asked = requested_runs(runs, kept.select(DEPENDENCY_COLUMNS), changed)
    beside = same_file_links(runs)
    groups = [group & there for group in _groups(pl.concat([_ties(kept), beside]), asked)]
    parts = _packed(runs, groups)
    if len(parts) < 2:  # noqa: PLR2004 - two are apart
        return rescore(runs, kept, changed, load, overlay)
    gone = sorted(asked - there)
    state = _State(runs, load, overlay, mapper, kept.filter(~_is_one_of(gone)))
    state.compute(parts)
    elsewhere = state.across()
    ties = pl.concat([elsewhere, _ties(state.rows), beside])
    together = _groups(ties, {*elsewhere["one"], *elsewhere["other"]})
    state.compute(_packed(runs, together))
    found = rescore(runs, state.rows, state.behind(), load, overlay)
    fresh = _is_one_of([*state.world, *found.rows["run_id"]])
    return RescoredRuns(found.replace_in(state.rows).filter(fresh).sort("run_id"), None, gone)


@dataclass(slots=True)
class _State:
    """What is known of all runs after each round.

    rows: columns of KEPT. world: the partition of each run that was computed, from 1; runs of one
    world were looked at together, as were those that were kept before (0).
    """

    runs: pl.DataFrame
    load: LoadTables
    overlay: Sequence[Accelerator]
    each: WorkMapper
    rows: pl.DataFrame
    world: dict[str, int] = field(default_factory=dict)

    def compute(self, parts: Sequence[Collection[str]]) -> None:
        """Rows of the runs of partitions, each as if there were no others."""
        work = partial(_alone, load=self.load, overlay=self.overlay)
        found = list(self.each(work, [self.runs.filter(_is_one_of(part)) for part in parts]))
        first = max(self.world.values(), default=0) + 1
        self.world |= {one: world for world, part in enumerate(parts, first) for one in part}
        replaced = _is_one_of({one for part in parts for one in part})
        self.rows = pl.concat([self.rows.filter(~replaced), *found]).rechunk()

    def across(self) -> pl.DataFrame:
        """Pairs of runs that tell of one launch, or may, of different worlds; columns of LINKS."""
        ends = self.rows.select("run_id", "ends")
        work = partial(_across, runs=self.runs, about=ends, load=self.load)
        parts: dict[int, list[str]] = {}
        for one, world in self.world.items():
            parts.setdefault(world, []).append(one)
        return pl.concat([LINK_SCHEMA.to_frame(), *self.each(work, list(parts.values()))])

    def behind(self) -> set[str]:
        """Launches that may go on from one of another world, as far as their courses tell."""
        courses = self.rows.select(pl.col("course").struct.unnest())
        courses = courses.filter(pl.col("run_id").is_not_null()).with_columns(
            world=pl.col("run_id").replace_strict(self.world, default=0, return_dtype=pl.Int64)
        )
        after, fresh = courses.filter(may_continue()), pl.col("world") > 0
        found: set[str] = set()
        for before, some in (
            (courses, after.filter(fresh)),
            (courses.filter(fresh), after.filter(~fresh)),
        ):
            parts = list(some.iter_slices(MAX_LATER_LAUNCHES)) if before.height else []
            found.update(*self.each(partial(_behind, before=before), parts))
        return found


def _is_one_of(ids: Collection[str]) -> pl.Expr:
    return pl.col("run_id").is_in(pl.Series(list(ids), dtype=pl.String).implode())


def _ties(about: pl.DataFrame) -> pl.DataFrame:
    """Runs that depend on each other, as they are kept; columns of LINKS."""
    earlier = about.select(one="run_id", other="earlier").filter(pl.col("other").list.len() > 0)
    return pl.concat([kept_links(about), earlier.explode("other")])


def _groups(ties: pl.DataFrame, whose: Collection[str]) -> list[set[str]]:
    """These runs, each with those that it is tied to, directly or by others."""
    group: dict[str, set[str]] = {one: {one} for one in whose}
    for one, other in ties.iter_rows():
        mine, others = group.setdefault(one, {one}), group.setdefault(other, {other})
        if mine is others:
            continue
        small, large = sorted((mine, others), key=len)
        large |= small
        group.update(dict.fromkeys(small, large))
    return list({id(group[one]): group[one] for one in whose}.values())


def _packed(runs: pl.DataFrame, groups: Sequence[Collection[str]]) -> list[list[str]]:
    """Groups in the order of their first run, some of them together; none that is empty."""
    lines = (pl.col("last_line") - pl.col("first_line") + 1).fill_null(1)
    of_run = {one: (place, n) for place, (one, n) in enumerate(runs.select("run_id", lines).rows())}
    packed: list[list[str]] = []
    room_for_runs = room_for_lines = 0
    filled = filter(None, groups)
    for group in sorted(filled, key=lambda group: min(of_run[one][0] for one in group)):
        size = sum(of_run[one][1] for one in group)
        if not packed or len(group) > room_for_runs or size > room_for_lines:
            packed.append([])
            room_for_runs, room_for_lines = MAX_PARTITION_RUNS, MAX_PARTITION_LINES
        packed[-1] += sorted(group)
        room_for_runs, room_for_lines = room_for_runs - len(group), room_for_lines - size
    return packed


# -- pieces of work --------------------------------------------------------------------------


def _alone(runs: pl.DataFrame, load: LoadTables, overlay: Sequence[Accelerator]) -> pl.DataFrame:
    """Rows of runs, as if there were no others."""
    return rescore(runs, KEPT_SCHEMA.to_frame(), (), load, overlay).rows


def _across(
    mine: Sequence[str], runs: pl.DataFrame, about: pl.DataFrame, load: LoadTables
) -> pl.DataFrame:
    """Pairs of one of these runs and another that tell of one launch, or may."""
    pairs = new_links(about, set(mine), TableLoader(runs, load))
    within = pl.col("one").is_in(list(mine)) & pl.col("other").is_in(list(mine))
    return pairs.filter(~within)


def _behind(after: pl.DataFrame, before: pl.DataFrame) -> set[str]:
    """Which launches of `after` may go on from one of another world.

    after, before: columns of COURSE, and `world`.
    """
    world = before.select(before="run_id", world="world")
    pairs = (
        resume_candidates(before.drop("world"), after.drop("world"))
        .join(world, on="before")
        .join(after.select(later="run_id", own="world"), on="later")
    )
    return set(pairs.filter(pl.col("world") != pl.col("own"))["later"])
