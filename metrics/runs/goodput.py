"""Goodput: trained tokens that survived restarts, per wall clock and accelerator.

    goodput = tokens of the final course / (GPU-seconds from the first stamp to the last)

A chain is a sequence of launches, each continuing the one before (metrics.runs.resume_chains). The
figure of a run covers the chain *up to and including the run*: the last launch's row is about the
whole training, an earlier row about the training when that launch ended. Steps trained again by a
later launch count once, as trained later. Steps after the checkpoint of a restart count only if
trained again. Logs do not say whether the last launch's final steps were saved: they count.

The clock runs from the first stamp of the first launch, before its start-up, to the last stamp of
the last launch, or to its last step line if training may have gone on after it. The time includes
the start-up of each launch, checkpoints, evaluation, hangs and the time between two launches.
GPU-seconds are the seconds of each launch times its accelerators; between two launches, the
accelerators common to both. A failed launch without a continuation may lie between the others: its
time counts, its steps do not. The end-to-end rate is of the run's own launch: a short last launch
may have a lower rate than the whole chain's goodput.

No figure if the clock cannot be read:

- the first launch's first stamp is from its first step line or from the start of training, so the
start-up is unseen
- no stamps, or stamps of two clocks (UTC and local, with a year and without)
- a later launch stamped before an earlier one ended
- whole seconds over too short a time

None if the tokens are unknown, contradict logged rates and stamps, or are of a chain whose
accelerators are unknown.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import polars as pl

from fairmfu.ingest.core.schema import FLOAT, INT, TEXT

from ..core.run_arrays import RunArrays
from ..throughput.end_to_end import (
    MAX_STAMP_CROSSING,
    has_wrong_token_count,
    line_interval,
    min_stamp_span,
    tokens_trained,
)
from .resume_chains import earlier_launches_first

GOODPUT_SCHEMA: Final = pl.Schema(
    {
        "run_id": TEXT,
        "goodput": FLOAT,
        "goodput_share": FLOAT,
        "goodput_launches": INT,
        "lost_to_restarts_s": FLOAT,
    }
)

MIN_DATED_YEAR: Final = 2001
"""First year of dated stamps: stamps of logs without a year are earlier
(ingest.vector.timestamps.YEAR_UNKNOWN).
"""


def goodput(
    runs: pl.DataFrame,
    spans: pl.DataFrame,
    resume_links: pl.DataFrame,
    clocks: pl.DataFrame,
    rates: pl.DataFrame,
) -> pl.DataFrame:
    """Return one row per run with steps, columns of GOODPUT_SCHEMA.

    runs: as in ingest.core.schema; spans: metrics.throughput.windows.build_windows; resume_links:
        metrics.runs.resume_chains.link_resumes; clocks:
        metrics.throughput.end_to_end.launch_clocks; rates: metrics.throughput.throughput.summarise.

    goodput: tokens/s/GPU
    goodput_share: the GPU-time of the surviving tokens at each launch's usual speed, as a share of
        the GPU-time spent; for a single launch, goodput over that speed. It is the steady TGS,
        without slow time of unknown cause. None where the whole is faster, so that it is not usual
    goodput_launches: launches of the chain up to this run
    lost_to_restarts_s [s]: 0 for a single launch; for each restart the time between the first
    training of the checkpoint's step and the later launch's first step: steps trained again, hang
    and shutdown after the last line, the time between the launches and the later start-up
    """
    known = {row["run_id"]: row for row in clocks.iter_rows(named=True)}
    rated = {row["run_id"]: row for row in rates.iter_rows(named=True)}
    utc = dict(runs.select("run_id", "utc").iter_rows())
    launches = {
        run_id: _ChainLaunch(known[run_id], windows, rated[run_id], utc[run_id])
        for run_id, windows in RunArrays(spans).by_run().items()
    }
    continued = dict(resume_links.select("run_id", "continues").iter_rows())
    chains: dict[str, _LaunchChain] = {}
    for run_id, before in earlier_launches_first(continued):
        earlier = None if before is None else chains[before]
        chains[run_id] = _LaunchChain.ending_with(launches[run_id], earlier)
    rows = [{"run_id": run_id} | chains[run_id].row() for run_id in launches]
    return pl.DataFrame(rows, schema=GOODPUT_SCHEMA)


@dataclass(frozen=True, slots=True)
class _ChainLaunch:
    clock: Mapping[str, Any]
    windows: RunArrays
    rates: Mapping[str, Any]
    utc: bool

    @property
    def first(self) -> int:
        return int(self.windows.value("step"))

    @property
    def last(self) -> int:
        return int(self.windows.value("step", -1))

    @property
    def gpus(self) -> int | None:
        gpus: int | None = self.windows.value("gpus")
        return gpus

    @property
    def usual_rate(self) -> float | None:
        """TGS, without slow time of unknown cause."""
        rate: float | None = self.rates["tgs_without_spikes"] or self.rates["tgs"]
        return rate

    def done_at(self, step: float) -> datetime | None:
        """Return when a step was done, from the stamps of the lines around the step."""
        places = np.flatnonzero(~np.isnan(self.windows["logged_at"]))
        steps = self.windows["step"][places]
        if not len(places):
            return None
        ahead = int(np.searchsorted(steps, step, "right")) - 1
        behind = int(np.searchsorted(steps, step, "left"))
        if ahead < 0 or behind == len(steps):
            return self._off(int(places[max(ahead, 0)]), step)
        one, other = int(places[ahead]), int(places[behind])
        part = (step - steps[ahead]) / ((steps[behind] - steps[ahead]) or 1)
        stamp: datetime = self._stamp(one) + float(part) * (self._stamp(other) - self._stamp(one))
        return stamp

    def _stamp(self, index: int) -> datetime:
        stamp: datetime = self.windows.value("logged_at", index)
        return stamp

    def _off(self, index: int, step: float) -> datetime | None:
        """Extrapolate from the nearest line, by the typical time of a step."""
        if self.clock["step_s"] is None:
            return None
        beyond = step - self.windows.value("step", index)
        return self._stamp(index) + timedelta(seconds=beyond * self.clock["step_s"])


@dataclass(frozen=True, slots=True)
class _TrainedPart:
    """Surviving steps of an earlier launch, on top of those of the launches before.

    begin, end: the part covers the steps after `begin` up to `end`
    tokens: of this part and all below, over all GPUs; None if unknown
    needed_s: GPU-seconds of these tokens at each launch's usual speed; None if unknown
    """

    launch: _ChainLaunch
    begin: int
    end: int
    below: _TrainedPart | None
    tokens: float | None
    needed_s: float | None


def _with_part(
    below: _TrainedPart | None, launch: _ChainLaunch, begin: int, end: int, gpus: int | None
) -> _TrainedPart:
    """Return the parts with the steps of one more launch on top."""
    count, rate = tokens_trained(launch.windows, begin, end), launch.usual_rate
    tokens, needed_s = (below.tokens, below.needed_s) if below else (0.0, 0.0)
    if count is None or gpus is None or tokens is None:
        return _TrainedPart(launch, begin, end, below, None, None)
    own = count.count * gpus
    needed_s = needed_s + own / rate if rate and needed_s is not None else None
    return _TrainedPart(launch, begin, end, below, tokens + own, needed_s)


def _trained_up_to(parts: _TrainedPart | None, step: int) -> _TrainedPart | None:
    """Return the parts without the steps after `step`, trained again later.

    Parts do not overlap, so at most one part is cut; parts after that one are empty.
    """
    while parts is not None and parts.end > step:
        if parts.begin < step:
            return _with_part(parts.below, parts.launch, parts.begin, step, parts.launch.gpus)
        parts = parts.below
    return parts


@dataclass(frozen=True, slots=True)
class _LaunchChain:
    """Chain of launches up to its last, from the chain of the launch before.

    Sums over earlier launches come from that chain, so that a launch is counted once, and not
    again for every later launch.

    first: the first launch; begin: the last launch trained the steps after this one
    has_one_clock: the stamps of all launches are of one clock and in order; if not, other fields
        but `launches` and `begin` are not used
    lost_s: time lost to restarts; None if unknown
    parts: surviving steps of the earlier launches, if all resume before the last launch's end
    spent_s, idle_s: GPU-seconds of the earlier launches, and between launches; None if unknown
    is_countable: no launch has unknown or wrong tokens; has_rates: all have a steady TGS
    """

    launch: _ChainLaunch
    first: _ChainLaunch
    launches: int
    begin: int
    has_one_clock: bool
    lost_s: float | None = 0.0
    parts: _TrainedPart | None = None
    spent_s: float | None = 0.0
    idle_s: float | None = 0.0
    is_countable: bool = True
    has_rates: bool = True

    @classmethod
    def ending_with(cls, launch: _ChainLaunch, earlier: _LaunchChain | None) -> _LaunchChain:
        """Return the chain `earlier` with one more launch."""
        if earlier is None:
            began = launch.clock["trained_from"]
            if began is None:  # its first line covers an interval of steps, in the middle
                began = max(0, launch.first - line_interval(launch.windows))
            chain = cls(launch, launch, 1, began, launch.clock["launched_at"] is not None)
        else:
            begin = _resumed_from(earlier.launch, launch)
            clock = earlier.has_one_clock and _follows(earlier.launch, launch)
            chain = cls(launch, earlier.first, earlier.launches + 1, begin, clock)
        return chain._summed(earlier) if chain.has_one_clock else chain

    def _summed(self, earlier: _LaunchChain | None) -> _LaunchChain:
        """Return the chain with its sums, from those of the chain before."""
        launch = self.launch
        wrong = has_wrong_token_count(launch.windows, launch.rates["time_basis"])
        countable = not wrong and launch.clock["trained_to"] is not None
        rated = bool(launch.usual_rate)
        if earlier is None:
            return replace(self, is_countable=countable, has_rates=rated)
        spent_s, idle_s = earlier.gpu_seconds_until(launch)
        parts = earlier.parts
        if earlier.begin < self.begin:
            one = earlier.launch
            parts = _with_part(parts, one, earlier.begin, self.begin, one.gpus)
        return replace(
            self,
            lost_s=_plus(earlier.lost_s, _lost_between(earlier.launch, launch, self.begin)),
            parts=_trained_up_to(parts, self.begin),
            spent_s=spent_s,
            idle_s=idle_s,
            is_countable=earlier.is_countable and countable,
            has_rates=earlier.has_rates and rated,
        )

    def gpu_seconds_until(self, later: _ChainLaunch) -> tuple[float | None, float | None]:
        """Return `spent_s` and `idle_s` of this chain with `later` behind it."""
        gpus, more = self.launch.gpus, later.gpus
        if gpus is None or more is None or self.spent_s is None or self.idle_s is None:
            return None, None
        start, end = later.clock["launched_at"], self.launch.clock["ended_at"]
        end = min(end, start)
        spent = (end - self.launch.clock["launched_at"]).total_seconds() * gpus
        idle = (start - end).total_seconds() * min(gpus, more)
        return self.spent_s + spent, self.idle_s + idle

    def row(self) -> dict[str, Any]:
        """Return the columns of GOODPUT_SCHEMA but the run_id."""
        row: dict[str, Any] = dict.fromkeys(GOODPUT_SCHEMA.names()[1:])
        row["goodput_launches"] = self.launches
        if not self.has_one_clock:
            return row
        row["lost_to_restarts_s"] = self.lost_s
        gpu_seconds, trained = self._gpu_seconds(), self._trained()
        if gpu_seconds is None or trained.tokens is None or not self.is_countable:
            return row
        row["goodput"] = trained.tokens / gpu_seconds
        if self.has_rates and trained.needed_s is not None and trained.needed_s <= gpu_seconds:
            row["goodput_share"] = trained.needed_s / gpu_seconds
        return row

    @property
    def _gpus(self) -> int | None:
        """1 for a single launch, whose tokens are per accelerator."""
        return 1 if self.launches == 1 else self.launch.gpus

    def _trained(self) -> _TrainedPart:
        """Return the surviving steps of all launches, with all of the last launch."""
        end = self.launch.clock["trained_to"] or self.launch.last
        parts = _trained_up_to(self.parts, min(self.begin, end))
        return _with_part(parts, self.launch, self.begin, end, self._gpus)

    def _gpu_seconds(self) -> float | None:
        """Return GPU-seconds; None if the first start-up or the end has no stamp."""
        clock, gpus = self.first.clock, self._gpus
        start, end = clock["launched_at"], self.launch.clock["ended_at"]
        unseen = start in {clock["first_step_at"], clock["trained_at"]}
        if unseen or end is None or gpus is None or self.spent_s is None or self.idle_s is None:
            return None
        if (end - start).total_seconds() < min_stamp_span(start, end):
            return None
        last_s: float = self.launch.clock["wall_s"]
        return self.spent_s + last_s * gpus + self.idle_s or None


def _plus(total: float | None, more: float | None) -> float | None:
    return None if total is None or more is None else total + more


def _follows(earlier: _ChainLaunch, later: _ChainLaunch) -> bool:
    """Return whether the stamps of two launches are of one clock and in order."""
    start, later_start = earlier.clock["launched_at"], later.clock["launched_at"]
    end = earlier.clock["last_step_at"]
    if later_start is None or end is None or earlier.utc != later.utc:
        return False
    alike = (start.year >= MIN_DATED_YEAR) == (later_start.year >= MIN_DATED_YEAR)
    return bool(alike and end <= later_start + MAX_STAMP_CROSSING)


def _lost_between(earlier: _ChainLaunch, later: _ChainLaunch, step: int) -> float | None:
    """Return seconds from the first training of `step` until `later` resumed."""
    done, began = earlier.done_at(step), _first_step_began(later, step)
    if done is None or began is None:
        return None
    return max(0.0, (began - done).total_seconds())


def _resumed_from(earlier: _ChainLaunch, later: _ChainLaunch) -> int:
    """Return the step of `earlier` from which `later` continued.

    As stated by the log of `later`; else a log interval before the first line of `later`, or the
    last line of `earlier` if before that: no step between the two is missing.
    """
    if (resumed := later.clock["trained_from"]) is not None:
        return int(resumed)
    interval = line_interval(later.windows)
    return min(later.first - interval, earlier.last)


def _first_step_began(launch: _ChainLaunch, behind: int) -> datetime | None:
    """Return when the first step of a launch began: its first line less typical steps."""
    stamp, step_s = launch.clock["first_step_at"], launch.clock["step_s"]
    if stamp is None or step_s is None:
        return None
    began: datetime = stamp - timedelta(seconds=(launch.first - behind) * step_s)
    launched: datetime = launch.clock["launched_at"]
    return max(began, launched)
