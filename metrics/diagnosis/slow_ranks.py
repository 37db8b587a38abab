"""Ranks that all others waited for: in which steps, for what, and at which cost.

Ranks of a synchronous job end every step together. If one loads its data late, all others wait for
it in a collective, and most frameworks count this wait in the `time` of the others. So the late
rank is the one with the long wait for data, never the one with the long step. A rank that computes
for longer shows only where the others' waits are in no printed time; there its own time is longer.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import polars as pl

from ..core.arrays import BoolArray, FloatArray, IntArray
from ..core.intervals import MAD_TO_SIGMA
from ..core.run_table import SlowRanks
from ..core.run_words import SECONDS_PER_HOUR
from .rank_nodes import nodes_of_ranks, nodes_text, ranks_text
from .rank_times import RankTimes, lower_median, times_of_runs

MIN_STEPS: Final = 3
"""Fewest steps that several ranks print, for ranks to be judged."""
MIN_LASTING_STEPS: Final = 10
"""Fewest steps for a rank to be late in most of them."""
MIN_LOST: Final = 0.02
"""Least time lost in one step, as a share of the usual step."""
MIN_SLOW: Final = 0.3
"""Time lost that makes one step slow, as a share of the usual step."""
MIN_TOTAL: Final = 0.01
"""Time lost in several less slow steps, as a share of the time of all steps."""
MIN_REPEATS: Final = 3
"""Fewest such steps."""
MAX_NOISE: Final = 8.0
"""Spreads from step to step beyond which a rank is late. Of 10^5 values of normal noise, the
largest has 4.4; computing times have longer tails."""
MAX_LASTING_NOISE: Final = 6.0
"""Standard errors beyond which the median of a rank is late."""
MAX_RANK_SPREADS: Final = 4.0
"""Spreads of the medians of ranks beyond which a rank is late: no two GPUs are equally fast."""
MEDIAN_ERROR: Final = 1.2533
"""Standard error of a median over that of a mean, for normal noise."""
LATE: Final = 1 / 2
"""Least lateness of a culprit, as a share of the latest rank's. If all culprits had been in time,
less than half of the time would have been lost."""
MAX_LASTING: Final = 2.0
"""Lateness of a rank that is late in most steps, over its median. Beyond, it has another cause."""
AFFECTED: Final = 0.1
"""The same for ranks that something delayed. If they are most ranks, no rank is the cause."""
MAX_TOKEN_POWER: Final = 2.0
"""Power of its tokens that a rank's time grows with, at most: attention's."""
USUAL_STEPS: Final = 10
"""Steps on either side with which a step is compared."""
MAX_GROUPS: Final = 20
"""Groups of ranks of a run; the others are taken together."""
MAX_LISTED_STEPS: Final = 20
"""Steps listed for a group."""

MIN_MORE_WORK: Final = 1.5
"""Least work of the busiest rank in a slow step, over its usual lead on the other ranks."""

Kind = Literal["data", "compute", "tokens", "documents"]


@dataclass(frozen=True, slots=True)
class LateRanks:
    """Ranks that were late together.

    ranks: as printed, in order. kind: why: they waited for data, computed longer, or had more
    tokens or longer documents than the others. shared: most ranks were late at once, so no rank is
    the cause. lasting: late in most steps
    steps: where, or all if lasting
    seconds: lost by each GPU; longest: in one step; share: of the time of all steps
    """

    ranks: tuple[str, ...]
    kind: Kind
    shared: bool
    lasting: bool
    steps: tuple[int, ...]
    seconds: float
    longest: float
    share: float


@dataclass(frozen=True, slots=True)
class JudgedRanks:
    """Ranks of a run that print step times, in order, and those that were late.

    late: the most expensive first
    """

    ranks: tuple[str, ...]
    late: list[LateRanks]

    def rows(self, gpus: int | None, paths: Mapping[str, str]) -> list[SlowRanks]:
        """Return the late ranks for a run's metrics.

        gpus: of the run; if unknown, those of the printing ranks. paths: file of each rank
        """
        nodes = nodes_of_ranks(self.ranks, paths)
        waiting = max(gpus or 0, len(self.ranks))
        return [
            {
                "ranks": ranks_text(late.ranks),
                "rank_count": len(late.ranks),
                "node": None if late.shared else nodes_text(late.ranks, nodes),
                "kind": late.kind,
                "shared": late.shared,
                "lasting": late.lasting,
                "steps": len(late.steps),
                "first_steps": list(late.steps[:MAX_LISTED_STEPS]),
                "seconds": late.seconds,
                "longest_s": late.longest,
                "gpu_hours_lost": late.seconds * waiting / SECONDS_PER_HOUR,
                "share": late.share,
            }
            for late in self.late
        ]


def judge_ranks(
    steps: pl.DataFrame, runs: pl.DataFrame, windows: pl.DataFrame
) -> dict[str, JudgedRanks]:
    """Return the ranks of each run by run_id, with those that were late.

    A run of one rank, or without times of its steps, is not in it.

    steps, runs: as in ingest.core.schema
    windows: metrics.throughput.warmup.mark_warm_up_and_stalls
    """
    return {
        run_id: JudgedRanks(times.ranks, _late_ranks(times))
        for run_id, times in times_of_runs(steps, runs, windows)
        if len(times.steps) >= MIN_STEPS
    }


# -- the rule --------------------------------------------------------------------------------


def _late_ranks(times: RankTimes) -> list[LateRanks]:
    waits = times.data - np.median(lower_median(times.data))
    found = [
        *_groups(times, waits, "data"),
        *_groups(times, _own_excess(times), "compute"),
        *_slow_together(times, waits),
    ]
    return sorted(found, key=lambda late: -late.seconds)


def _own_excess(times: RankTimes) -> FloatArray:
    """Return the time that each rank computes beyond the others in its step [s].

    A rank that waits for others has a longer step with no longer wall time; one that loads its data
    late, a longer wall time with no longer step. A rank that computes for longer has both. What its
    tokens explain is no excess.
    """
    step, usual = times.wall - times.data, lower_median(times.wall)[:, None]
    excess = np.fmin(*(part - lower_median(part)[:, None] for part in (step, times.wall)))
    more, relative = np.nan_to_num(_lead(times.tokens) - 1), excess / usual
    typical = np.abs(relative) < MIN_SLOW
    weight = float((more[typical] ** 2).sum())
    if not weight:
        return excess
    power = float((more[typical] * relative[typical]).sum()) / weight
    return excess - min(max(power, 0.0), MAX_TOKEN_POWER) * more * usual


def _lead(work: FloatArray) -> FloatArray:
    """Return the work of each rank over the usual work in its step; NaN if unknown."""
    usual = lower_median(work)[:, None]
    return work / np.where(usual > 0, usual, np.nan)


def _groups(times: RankTimes, excess: FloatArray, kind: Kind) -> Iterator[LateRanks]:
    """Yield the ranks that are late in most steps, then those late in some.

    excess: time of each rank beyond the usual [s]
    """
    noise, least = _noise(excess), MIN_LOST * times.usual
    medians = _lasting(excess, least)
    if medians.any():
        lasting = np.fmin(excess, MAX_LASTING * medians)
        late = medians >= LATE * medians.max()
        lost = _lost(np.where(medians > 0, lasting, excess), late[None])
        if lost.any():
            yield _late(times, late, kind, lost, lasting=True)
        excess = np.where(medians > 0, excess - lasting, excess)
    most = np.nanmax(excess, axis=1)
    slow = np.flatnonzero(most >= max(least, MAX_NOISE * noise))
    most, excess = most[slow, None], excess[slow]
    culprits, affected = excess >= LATE * most, excess >= AFFECTED * most
    shared = 2 * affected.sum(axis=1) > np.count_nonzero(~np.isnan(excess), axis=1)
    lost = np.where(shared, most[:, 0], _lost(excess, culprits))
    culprits[shared] = affected[shared].any(axis=0)
    yield from _SlowSteps(slow, lost, culprits, shared).groups(times, kind)


def _lost(excess: FloatArray, late: BoolArray) -> FloatArray:
    """Return the time by which each step would be shorter without the late ranks [s].

    Then all would still wait for the latest of the others.
    """
    others = np.fmax.reduce(np.where(late, 0.0, excess), axis=1, initial=0.0)
    return np.asarray(np.fmax(0.0, np.nanmax(excess, axis=1) - others))


def _noise(excess: FloatArray) -> float:
    """Return the spread of a rank's excess from step to step [s].

    Lasting differences of ranks are no spread.
    """
    changes = np.abs(np.diff(excess, axis=0))
    known = changes[~np.isnan(changes)]
    return float(np.median(known)) * MAD_TO_SIGMA / 2**0.5 if len(known) else 0.0


def _lasting(excess: FloatArray, least: float) -> FloatArray:
    """Return the median excess of ranks that are late in most steps, else 0 [s]."""
    steps = len(excess)
    printed = np.count_nonzero(~np.isnan(excess), axis=0)
    if steps < MIN_LASTING_STEPS:
        return np.zeros(excess.shape[1])
    medians = lower_median(excess.T)
    changes = np.abs(np.diff(excess, axis=0))
    noise = np.nan_to_num(lower_median(changes.T)) * MAD_TO_SIGMA / 2**0.5
    error = MEDIAN_ERROR * noise / np.sqrt(np.maximum(printed, 1))
    apart = np.abs(medians - lower_median(medians[None])[0])
    spread = MAD_TO_SIGMA * lower_median(apart[None])[0]
    limit = np.maximum(MAX_LASTING_NOISE * error, max(least, MAX_RANK_SPREADS * spread))
    return np.where((medians >= limit) & (printed * 2 > steps), medians, 0.0)


def _slow_together(times: RankTimes, waits: FloatArray) -> Iterator[LateRanks]:
    """Yield the steps that were slow on all ranks alike, for no wait for data.

    Collectives make the ranks equally slow, so their times show no cause. Their work may show one:
    a rank with far more tokens, or longer documents, than usual in the step.
    """
    own = lower_median(times.wall) - np.fmax(0.0, np.nanmax(waits, axis=1))
    tokens = np.nan_to_num(lower_median(times.tokens))
    usual, usual_tokens = _around(own), _around(tokens)
    more = np.where(usual_tokens > 0, tokens / np.where(usual_tokens > 0, usual_tokens, 1.0), 1.0)
    excess = own - usual * np.fmax(1.0, more)
    slow = excess >= np.fmax(MIN_SLOW * usual, MAX_NOISE * _noise(own[:, None]))
    slow &= times.quiet
    works: dict[Kind, FloatArray] = {"documents": times.attention, "tokens": times.tokens}
    for kind, work in works.items():
        busy = _busy(work)
        rows = np.flatnonzero(slow & busy.any(axis=1))
        alone = np.zeros(len(rows), np.bool_)
        yield from _SlowSteps(rows, excess[rows], busy[rows], alone).groups(times, kind)
        slow[rows] = False
    rows = np.flatnonzero(slow)
    every = np.ones((len(rows), len(times.ranks)), np.bool_)
    yield from _SlowSteps(rows, excess[rows], every, every[:, 0]).groups(times, "compute")


def _busy(work: FloatArray) -> BoolArray:
    """Return the ranks with more work in a step than the busiest rank of other steps."""
    lead = np.nan_to_num(_lead(work), nan=1.0)
    most = lead.max(axis=1)
    standing_out = most >= MIN_MORE_WORK * np.median(most)
    return np.asarray(standing_out[:, None] & (lead - 1 >= LATE * (most - 1)[:, None]))


def _around(values: FloatArray) -> FloatArray:
    """Return the median of each value and its neighbours."""
    padded = np.pad(values, USUAL_STEPS, constant_values=np.nan)
    near = np.lib.stride_tricks.sliding_window_view(padded, 2 * USUAL_STEPS + 1)
    return np.asarray(np.nanmedian(near, axis=1))


# -- groups ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _SlowSteps:
    """Slow steps of one kind. rows: indices of the steps; lost: of each [s].

    culprits: late ranks of each, a column per rank; shared: most ranks were late
    """

    rows: IntArray
    lost: FloatArray
    culprits: BoolArray
    shared: BoolArray

    def are_material(self, times: RankTimes) -> BoolArray:
        """Return the steps that are slow, or whose culprits are often late."""
        seconds = self.lost * times.spans[self.rows]
        of_rank = (seconds[:, None] * self.culprits).sum(axis=0)
        often = (of_rank >= MIN_TOTAL * times.total) & (self.culprits.sum(axis=0) >= MIN_REPEATS)
        slow = self.lost >= MIN_SLOW * times.usual
        return np.asarray(slow | (self.culprits & often).any(axis=1))

    def groups(self, times: RankTimes, kind: Kind) -> Iterator[LateRanks]:
        """Yield the material steps by their culprits; the cheapest groups are one."""
        same: dict[tuple[bool, bytes], list[int]] = {}
        for index in np.flatnonzero(self.are_material(times)):
            key = bool(self.shared[index]), self.culprits[index].tobytes()
            same.setdefault(key, []).append(int(index))
        groups = sorted(same.values(), key=lambda some: -self.lost[some].sum())
        rest = [index for some in groups[MAX_GROUPS:] for index in some]
        for some in filter(None, [*groups[:MAX_GROUPS], rest]):
            lost = np.zeros(len(times.steps))
            lost[self.rows[some]] = self.lost[some]
            late = np.logical_or.reduce(self.culprits[some])
            shared = bool(self.shared[some].all())
            if lost.any():
                yield _late(times, late, kind, lost, shared=shared)


def _late(  # noqa: PLR0913 - all that is said of them
    times: RankTimes,
    ranks: BoolArray,
    kind: Kind,
    lost: FloatArray,
    *,
    shared: bool = False,
    lasting: bool = False,
) -> LateRanks:
    """Return a group of late ranks; lost: in each row of the times [s]."""
    seconds = float((lost * times.spans).sum())
    return LateRanks(
        ranks=tuple(times.ranks[index] for index in np.flatnonzero(ranks)),
        kind=kind,
        shared=shared,
        lasting=lasting,
        steps=tuple((times.steps if lasting else times.steps[lost > 0]).tolist()),
        seconds=seconds,
        longest=float(lost.max()),
        share=seconds / times.total,
    )
