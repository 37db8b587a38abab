"""Rule out pairs of sources in bulk, before single pairs are compared.

Logs of one second make as many pairs as the square of their number, and launches without losses, or
with equal ones, contradict each other only in their times. Here all steps of thousands of pairs are
compared at once. A pair is ruled out only if metrics.runs.same_run would find two launches, so the
answers stay the same.

Sources must have one rank each and the same printed steps. Other pairs stay.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from ..core.arrays import BoolArray, FloatArray, IntArray
from ..core.intervals import MAD_TO_SIGMA
from ..core.link_columns import STEP_TIME_FIGURES, TRAINING_FIGURES
from ..core.print_precision import MAX_STAMP_ERROR_S
from .launch_sources import (
    CHECKPOINT_FOLDER_PATTERN,
    FLOAT32_TOLERANCE,
    MAX_COMPARED_STEPS,
    MAX_COUNTED_LOSS_BITS,
    MAX_ROUNDING_UNITS,
    MAX_STAMP_GAP_S,
    MAX_USUAL_DELAY_SPREADS,
    MIN_AGREEING_SHARE,
    MIN_COMMON_STEPS,
    MIN_NODE_BITS,
    MIN_STAMP_SCATTER_S,
    MIN_TIMING_BITS,
    MIN_TWIN_BITS,
    NODE_NAME_PATTERN,
    SECONDS_PER_DAY,
    SECONDS_PER_YEAR,
    Source,
    delays,
)

TIMES: Final = (*STEP_TIME_FIGURES, "data_s")
MAX_STEPS: Final = 256
"""Most steps of a pair to compare in bulk; of more, as many at equal distances."""

MAX_CELLS: Final = 1 << 20
"""Most steps of all pairs to compare at once, to save memory."""


class PairFilter:
    """Filter of pairs; a pair has two indices of `sources`."""

    def __init__(self, sources: Sequence[Source]) -> None:
        """Group the sources by their printed steps."""
        self._sources = sources
        self._group = _codes(_printed_steps(source) for source in sources)
        self._place, self._tables = np.zeros(len(sources), np.int64), dict[int, _StepTable]()
        self._format = _codes(source.run["log_format"] for source in sources)
        self._utc = np.array([bool(source.run["utc"]) for source in sources])
        self._path = _codes(source.path for source in sources)
        self._folder = _codes(CHECKPOINT_FOLDER_PATTERN.sub("", s.path) for s in sources)
        self._node = _codes(NODE_NAME_PATTERN.sub("*", s.path) for s in sources)
        self._rank = _codes(s.series[0].rank if s.series else None for s in sources)
        self._names_files = np.array([bool(source.names) for source in sources])
        self._has_losses = np.array([source.has_losses for source in sources])
        self._is_stamped = np.array([_is_stamped(source) for source in sources])
        self._has_clock = np.array([source.clock is not None for source in sources])
        self._runtimes = np.array([len(source.runtimes) for source in sources])
        runtimes = [s.runtimes[0] if len(s.runtimes) == 1 else (np.nan, np.nan) for s in sources]
        self._runtime, self._runtime_unit = np.array(runtimes, np.float64).reshape(-1, 2).T

    def possible(self, pairs: IntArray) -> IntArray:
        """Return the pairs that may be of one launch, in their order."""
        ruled_out = np.zeros(len(pairs), np.bool_)
        for number, rows in self._blocks(pairs):
            ruled_out[rows] = self._is_other(self._table(number), *pairs[rows].T)
        return np.asarray(pairs[~ruled_out])

    def _blocks(self, pairs: IntArray) -> Iterator[tuple[int, IntArray]]:
        """Yield a group of printed steps, and rows of pairs with these steps."""
        if not len(pairs):
            return
        first, second = pairs.T
        group = np.where(self._comparable(first, second), self._group[first], -1)
        order = np.argsort(group, kind="stable")
        numbers, starts = np.unique(group[order], return_index=True)
        for number, rows in zip(numbers, np.split(order, starts[1:]), strict=True):
            if number >= 0:
                at_once = max(1, MAX_CELLS // self._table(number).width)
                for start in range(0, len(rows), at_once):
                    yield int(number), rows[start : start + at_once]

    def _comparable(self, first: IntArray, second: IntArray) -> BoolArray:
        """Return whether pairs print the same steps and only losses and times decide."""
        same_steps = (self._group[first] == self._group[second]) & (self._group[first] >= 0)
        ranks = self._rank[first], self._rank[second]
        other_ranks = (ranks[0] >= 0) & (ranks[1] >= 0) & (ranks[0] != ranks[1])
        half_losses = self._has_losses[first] != self._has_losses[second]
        streams = half_losses & (self._has_clock[first] | self._has_clock[second])
        nodes = (self._node[first] == self._node[second]) & (
            self._path[first] != self._path[second]
        )
        nodes &= ~(self._is_stamped[first] & self._is_stamped[second])
        return np.asarray(same_steps & ~other_ranks & ~streams & ~nodes)

    def _table(self, number: int) -> _StepTable:
        """Return the steps of a group."""
        if number not in self._tables:
            members = np.flatnonzero(self._group == number)
            self._place[members] = np.arange(len(members))
            self._tables[number] = _StepTable([self._sources[i] for i in members.tolist()])
        return self._tables[number]

    def _is_other(self, table: _StepTable, first: IntArray, second: IntArray) -> BoolArray:
        """Return whether pairs are of two launches."""
        a, b = self._place[first], self._place[second]
        alike, zone = (
            (self._format[first] == self._format[second]),
            self._utc[first] == self._utc[second],
        )
        figures = table.share(TRAINING_FIGURES, a, b)
        differ = table.differ(TRAINING_FIGURES, a, b) | (zone & table.apart(a, b))
        differ |= self._end_apart(first, second)
        slower = table.differ(TIMES, a, b)
        may_wait = alike & zone & figures & slower & ~differ
        may_wait[may_wait] = table.delay_bits(a[may_wait], b[may_wait]) >= MIN_NODE_BITS
        differ |= slower & ~may_wait
        proven = table.share(TIMES, a, b) | (self._runtimes[first] > 0) & (
            self._runtimes[second] > 0
        )
        proven |= self._names_files[first] | self._names_files[second]
        proven |= np.where(alike, self._folder[first] == self._folder[second], figures)
        open_ = ~differ & ~proven
        bits = table.moment_bits(a[open_], b[open_])
        enough = bits + MAX_COUNTED_LOSS_BITS * figures[open_] >= MIN_TWIN_BITS
        differ[open_] = ~(enough & (bits >= MIN_TIMING_BITS))
        return np.asarray(differ)

    def _end_apart(self, first: IntArray, second: IntArray) -> BoolArray:
        """Return whether both print a single run time, and the printed digits differ."""
        seconds, units = self._runtime, self._runtime_unit
        allowed = MAX_ROUNDING_UNITS * (units[first] + units[second])
        off = np.abs(seconds[first] - seconds[second])
        return np.asarray((off > allowed) | (allowed >= seconds[first]))


class _StepTable:
    """Steps of sources that print the same ones, a row per source."""

    def __init__(self, sources: Sequence[Source]) -> None:
        series = [source.series[0] for source in sources]
        count = min(len(series[0].steps), MAX_COMPARED_STEPS)
        self.is_whole = len(series[0].steps) <= MAX_STEPS
        chosen = np.unique(np.linspace(0, count - 1, min(count, MAX_STEPS)).astype(np.int64))
        self.width = len(chosen)
        self.stamps = _finite(np.stack([s.stamps[chosen] for s in series]))
        self.values = {
            name: _finite(np.stack([s.values[name][chosen] for s in series]))
            for name in (*TRAINING_FIGURES, *TIMES)
        }
        self.units = {
            name: np.stack([s.units[name][chosen] for s in series]) for name in self.values
        }
        self.printed = {name for name, v in self.values.items() if np.isfinite(v).any()}

    def share(self, names: Iterable[str], a: IntArray, b: IntArray) -> BoolArray:
        """Return whether both of a pair have one of these values at one step."""
        found = np.zeros(len(a), np.bool_)
        for values in (self.values[name] for name in names if name in self.printed):
            found |= np.isfinite(values[a] - values[b]).any(axis=1)
        return found

    def differ(self, names: Iterable[str], a: IntArray, b: IntArray) -> BoolArray:
        """Return whether one of these values differs at one step, in its printed digits."""
        found = np.zeros(len(a), np.bool_)
        for name in (name for name in names if name in self.printed):
            left, right, units = self.values[name][a], self.values[name][b], self.units[name]
            allowed = MAX_ROUNDING_UNITS * (units[a] + units[b])
            found |= (np.abs(left - right) > allowed + FLOAT32_TOLERANCE * np.abs(left)).any(axis=1)
        return found

    def apart(self, a: IntArray, b: IntArray) -> BoolArray:
        """Return whether the stamps of a step are too far apart for one moment."""
        off = self._off(a, b)
        several = np.isfinite(off).sum(axis=1) >= MIN_COMMON_STEPS
        return np.asarray(several & (np.abs(off) > MAX_STAMP_GAP_S).any(axis=1))

    def _off(self, a: IntArray, b: IntArray) -> FloatArray:
        off = self.stamps[b] - self.stamps[a]
        return np.asarray(off - np.rint(off / SECONDS_PER_YEAR) * SECONDS_PER_YEAR)

    def _limits(self, a: IntArray, b: IntArray) -> tuple[FloatArray, BoolArray]:
        """Return limits of the evidence from stamps [bits], and the pairs with all stamps.

        The limit is 0 of pairs with too few common stamps, else infinite. No pair is chosen if the
        table has only some of the steps.
        """
        stamped = np.isfinite(self.stamps)
        bits = np.where((stamped[a] & stamped[b]).sum(axis=1) < MIN_COMMON_STEPS, 0.0, np.inf)
        known: BoolArray = np.asarray(stamped.all(axis=1) & self.is_whole)
        return bits, np.asarray(known[a] & known[b])

    def delay_bits(self, a: IntArray, b: IntArray) -> FloatArray:
        """Return an upper limit of the evidence from delays at the same steps [bits]."""
        bits, chosen = self._limits(a, b)
        if not chosen.any():
            return bits
        a, b = a[chosen], b[chosen]
        mine = self.usual_delays[a]
        scatter = self.delays[b] - mine
        allowed = self._allowed(a, b, scatter)
        alternate = (allowed >= MAX_STAMP_ERROR_S) & (_spreads(mine) < 2 * allowed)
        bits[chosen] = np.where(alternate, 0.0, _bits(mine, scatter, allowed))
        return bits

    def moment_bits(self, a: IntArray, b: IntArray) -> FloatArray:
        """Return an upper limit of the evidence from stamps at the same moments [bits]."""
        bits, chosen = self._limits(a, b)
        a, b = a[chosen], b[chosen]
        off = self._off(a, b)
        scatter, advance = np.diff(off), np.diff(self.stamps[a])
        allowed = self._allowed(a, b, scatter)
        worst = np.maximum(np.abs(off).max(axis=1, initial=0), allowed)
        at_one_time = np.maximum(0, np.log2(SECONDS_PER_DAY / 2 / worst))
        bits[chosen] = _bits(advance, scatter, allowed) + at_one_time
        return bits

    def _allowed(self, a: IntArray, b: IntArray, scatter: FloatArray) -> FloatArray:
        """Return the largest distance of two stamps of a moment [s], of each pair."""
        by_scatter = np.maximum(MIN_STAMP_SCATTER_S, 3 * _spreads(scatter))
        return np.where(self.in_seconds[a] | self.in_seconds[b], MAX_STAMP_ERROR_S, by_scatter)

    @cached_property
    def in_seconds(self) -> BoolArray:
        """True if all stamps of a source are in whole seconds."""
        return np.asarray((self.stamps % 1 == 0).all(axis=1))

    @cached_property
    def delays(self) -> FloatArray:
        """Delays of steps against the steps around."""
        return np.stack([delays(np.diff(stamps)) for stamps in self.stamps])

    @cached_property
    def usual_delays(self) -> FloatArray:
        """Delays without extreme ones, which are NaN."""
        most = MAX_USUAL_DELAY_SPREADS * _spreads(self.delays)[:, np.newaxis]
        return np.where(np.abs(self.delays) <= most, self.delays, np.nan)


def _bits(values: FloatArray, scatter: FloatArray, allowed: FloatArray) -> FloatArray:
    """Return an upper limit of the bits of evidence of each row.

    As metrics.runs.same_run counts them, with sqrt(1 - exp(-x^2)) for erf(x), which is larger.
    """
    agree = np.abs(scatter) <= allowed[:, np.newaxis]
    share = agree.sum(axis=1) / np.maximum(1, np.isfinite(scatter).sum(axis=1))
    spread, count = _spreads(np.where(agree, values, np.nan)), agree.sum(axis=1)
    evident = (share > MIN_AGREEING_SHARE) & (spread > 0) & (count >= MIN_COMMON_STEPS)
    share_of_spread = allowed / (2 * np.where(evident, spread, 1))
    chance = np.sqrt(-np.expm1(-(share_of_spread**2)))
    return np.where(evident, -count * np.log2(np.maximum(chance, 1e-12)), 0.0)


def _spreads(values: FloatArray) -> FloatArray:
    """Return intervals.robust_spread of each row without NaN."""
    off = np.abs(values - _medians(values)[:, np.newaxis])
    return MAD_TO_SIGMA * np.nan_to_num(_medians(off))


def _medians(values: FloatArray) -> FloatArray:
    """Return the median of each row without NaN; NaN of no values."""
    ordered, count = np.sort(values, axis=1), np.isfinite(values).sum(axis=1)
    if not values.shape[1]:
        return np.full(len(values), np.nan)
    rows = np.arange(len(values))
    low, high = np.maximum(0, (count - 1) // 2), np.minimum(count // 2, values.shape[1] - 1)
    return np.asarray((ordered[rows, low] + ordered[rows, high]) / 2)


def _finite(values: FloatArray) -> FloatArray:
    return np.where(np.isfinite(values), values, np.nan)


def _printed_steps(source: Source) -> bytes | None:
    """Return the steps of a source of one rank, to compare with those of others."""
    if len(source.series) != 1 or len(source.series[0].steps) < MIN_COMMON_STEPS:
        return None
    return source.series[0].steps.tobytes()


def _is_stamped(source: Source) -> bool:
    return bool(source.series) and bool(np.isfinite(source.series[0].stamps).any())


def _codes(values: Iterable[Hashable]) -> IntArray:
    """Return a number per value, equal for equal values; -1 for None."""
    numbers: dict[Hashable, int] = {None: -1}
    return np.array([numbers.setdefault(v, len(numbers) - 1) for v in values], np.int64)
