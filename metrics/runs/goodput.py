"""Goodput: trained tokens that survived restarts, per wall clock and accelerator.

    goodput = tokens of the final course / (GPU-seconds from the first stamp to the last)

A chain is a sequence of launches, each continuing the one before (metrics.runs.resume_chains). The
figure of a run covers the chain *up to and including the run*: the last launch's row is about the
whole training, an earlier row about the training when that launch ended. Steps trained again by a
later launch count once, as trained later. Steps after the checkpoint of a restart count only if
trained again. Logs do not say whether the last launch's final steps were saved: they count.

The clock runs from the first stamp of the first launch, before its start-up, to the last stamp of
the last launch. The time includes the start-up of each launch, checkpoints, evaluation, hangs and
the time between two launches. GPU-seconds are the seconds of each launch times its accelerators;
between two launches, the accelerators common to both. A failed launch without a continuation may
lie between the others: its time counts, its steps do not. The end-to-end rate is of the run's own
launch: a short last launch may have a lower rate than the whole chain's goodput.

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
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
from .resume_chains import launch_chain

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
    goodput_share: the GPU-time of the surviving tokens at each launch's steady TGS, as a share of
        the GPU-time spent; for a single launch, goodput over TGS
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
    before = dict(resume_links.select("run_id", "continues").iter_rows())
    rows = []
    for run_id in launches:
        course = _LaunchChain([launches[each] for each in launch_chain(run_id, before)])
        rows.append({"run_id": run_id} | course.row())
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


class _LaunchChain:
    """Chain of launches, the first one first, with the surviving steps of each."""

    def __init__(self, launches: Sequence[_ChainLaunch]) -> None:
        self.launches = launches
        first = launches[0].clock["trained_from"]
        if first is None:  # its first line covers an interval of steps, in the middle
            first = max(0, launches[0].first - line_interval(launches[0].windows))
        self.begins = [first]
        self.begins += [_resumed_from(one, other) for one, other in pairwise(launches)]
        ends: list[int] = [launches[-1].clock["trained_to"] or launches[-1].last]
        for begin in reversed(self.begins[1:]):
            ends.append(min(begin, ends[-1]))
        self.ends = ends[::-1]

    def row(self) -> dict[str, Any]:
        row: dict[str, Any] = dict.fromkeys(GOODPUT_SCHEMA.names()[1:])
        row["goodput_launches"] = len(self.launches)
        if not self._one_clock():
            return row
        row["lost_to_restarts_s"] = self._lost()
        gpu_seconds, counts = self._gpu_seconds(), self._tokens()
        if gpu_seconds is None or counts is None:
            return row
        row["goodput"] = sum(counts) / gpu_seconds
        rates = [launch.rates["tgs"] for launch in self.launches]
        if all(rates):
            needed = sum(n / rate for n, rate in zip(counts, rates, strict=True) if rate)
            row["goodput_share"] = needed / gpu_seconds
        return row

    def _one_clock(self) -> bool:
        """Return whether the stamps of all launches are of one clock and in order."""
        starts = [launch.clock["launched_at"] for launch in self.launches]
        ends = [launch.clock["last_step_at"] for launch in self.launches]
        if any(start is None for start in starts):
            return False
        alike = len(
            {(x.utc, s.year >= MIN_DATED_YEAR) for x, s in zip(self.launches, starts, strict=True)}
        )
        following = (
            end is not None and end <= start + MAX_STAMP_CROSSING
            for end, start in zip(ends[:-1], starts[1:], strict=True)
        )
        return alike == 1 and all(following)

    def _lost(self) -> float | None:
        lost = 0.0
        for one, other, step in zip(
            self.launches[:-1], self.launches[1:], self.begins[1:], strict=True
        ):
            done, began = one.done_at(step), _first_step_began(other, step)
            if done is None or began is None:
                return None
            lost += max(0.0, (began - done).total_seconds())
        return lost

    def _tokens(self) -> list[float] | None:
        """Return tokens of the final course by launch, over `_gpus` accelerators."""
        counts = []
        for launch, begin, end in zip(self.launches, self.begins, self.ends, strict=True):
            count = tokens_trained(launch.windows, begin, end)
            gpus, told = self._gpus(launch), launch.rates
            wrong = has_wrong_token_count(launch.windows, told["time_basis"])
            if count is None or gpus is None or wrong or launch.clock["trained_to"] is None:
                return None
            counts.append(count.count * gpus)
        return counts

    def _gpus(self, launch: _ChainLaunch) -> int | None:
        """Return 1 for a single launch, whose tokens are per accelerator."""
        return 1 if len(self.launches) == 1 else launch.gpus

    def _gpu_seconds(self) -> float | None:
        """Return GPU-seconds; None if the first start-up or the end has no stamp."""
        gpus = [self._gpus(launch) for launch in self.launches]
        clocks = [launch.clock for launch in self.launches]
        unseen = clocks[0]["launched_at"] in {clocks[0]["first_step_at"], clocks[0]["trained_at"]}
        if unseen or None in gpus or clocks[-1]["ended_at"] is None:
            return None
        starts = [clock["launched_at"] for clock in clocks]
        start, end = starts[0], clocks[-1]["ended_at"]
        if (end - start).total_seconds() < min_stamp_span(start, end):
            return None
        ends = [
            min(clock["ended_at"], start)
            for clock, start in zip(clocks[:-1], starts[1:], strict=True)
        ]
        ends.append(clocks[-1]["ended_at"])
        held = [n or 0 for n in gpus]
        spent = _gpu_seconds_of_spells(starts, ends, held)
        idle = _gpu_seconds_of_spells(ends[:-1], starts[1:], [min(pair) for pair in pairwise(held)])
        return spent + idle or None


def _gpu_seconds_of_spells(
    starts: Sequence[datetime], ends: Sequence[datetime], gpus: Sequence[int]
) -> float:
    """Return GPU-seconds of several spells."""
    return sum(
        (end - start).total_seconds() * n for start, end, n in zip(starts, ends, gpus, strict=True)
    )


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
