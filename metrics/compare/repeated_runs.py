"""Runs of one setup, and the confidence in their speed from repeated runs.

The interval of one run's windows says nothing about another night or node. With MIN_REPEATS repeats
or more the runs are the sample and the interval is between runs; with fewer, every run is a side of
its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from math import exp, fsum, inf, log
from statistics import geometric_mean
from string import ascii_uppercase
from typing import Final

from ..core import intervals
from ..core.intervals import Estimate, RepeatedRates
from ..core.run_table import MetricsRow, not_null
from ..runs.resume_chains import earlier_launches_first
from .comparison_row import ComparisonRow

MIN_REPEATS: Final = intervals.MIN_REPEATS
"""Fewest repeats to estimate the noise between runs."""

TOO_FEW_WINDOWS: Final = "too few windows"


@dataclass(frozen=True, slots=True)
class ComparisonSide:
    """Side of a comparison: one run, or the runs of a setup with repeats.

    rows: of metrics.compare.comparability.COMPARISON, fastest first
    repeats: starts of the setup; launches that continue one another are one start
    rate: in `unit`, of several runs the geometric mean
    estimate: `rate` with its interval; None if there is none, and `no_interval_reason` says why
    starts: rates of the starts, if there are repeats enough for an interval between runs
    """

    rows: tuple[ComparisonRow, ...]
    repeats: int
    rate: float
    estimate: Estimate | None
    no_interval_reason: str | None
    starts: RepeatedRates | None = None

    @property
    def unit(self) -> str | None:
        """Unit of `rate`."""
        return self.rows[0]["ranked_unit"]

    @property
    def has_run_interval(self) -> bool:
        """True if the interval is between runs."""
        return self.repeats >= MIN_REPEATS

    @property
    def mfu(self) -> float | None:
        """MFU at `rate`, exact attention; None if a row has no MFU."""
        shares = [
            None if row["mfu"] is None else row["mfu"] / not_null(row["tgs"]) for row in self.rows
        ]
        known = [share for share in shares if share is not None]
        return self.rate * geometric_mean(known) if len(known) == len(shares) else None


@dataclass(frozen=True, slots=True)
class SpeedRatio:
    """Speed of one side relative to another.

    ratio: of their rates; low, high: its 95 % interval
    smallest_difference: the smallest relative difference that such data usually reveals
        (metrics.core.intervals.smallest_difference)
    low, high and smallest_difference are None if a side has no interval; `no_interval_reason` says
    why
    """

    ratio: float
    low: float | None = None
    high: float | None = None
    smallest_difference: float | None = None
    no_interval_reason: str | None = None

    @property
    def is_tied(self) -> bool | None:
        """True if the difference is within the noise; None if the noise is unknown."""
        if self.low is None or self.high is None:
            return None
        return self.low <= 1.0 <= self.high


def speed_ratio(side: ComparisonSide, baseline: ComparisonSide) -> SpeedRatio:
    """Return the ratio of one side's rate to the baseline's, with its interval."""
    times = side.rate / baseline.rate
    if side.estimate is None or baseline.estimate is None:
        return SpeedRatio(
            times,
            no_interval_reason=side.no_interval_reason
            if side.estimate is None
            else baseline.no_interval_reason,
        )
    if side.starts is not None and baseline.starts is not None:
        between = intervals.ratio_of_repeats(side.starts, baseline.starts)
    else:
        between = intervals.estimate_ratio(side.estimate, baseline.estimate)
    smallest = intervals.smallest_difference(between)
    return SpeedRatio(times, between.low, between.high, smallest)


def setup_letters(
    group: Sequence[ComparisonRow], setup_key: Callable[[ComparisonRow], Hashable]
) -> list[str]:
    """Return a letter per row; rows with the same `setup_key` share a letter."""
    letters: dict[Hashable, str] = {}
    return [letters.setdefault(setup_key(row), _letter(len(letters))) for row in group]


def _letter(index: int) -> str:
    again, letter = divmod(index, len(ascii_uppercase))
    return ascii_uppercase[letter] + (str(again + 1) if again else "")


def first_launches(rows: Sequence[MetricsRow]) -> dict[str, str]:
    """Map every run_id to the run_id of the first launch of its chain."""
    continued = {row["run_id"]: row.get("continues") for row in rows}
    first: dict[str, str] = {}
    for run_id, before in earlier_launches_first(continued):
        first[run_id] = run_id if before is None else first.get(before, before)
    return {run_id: first[run_id] for run_id in continued}


def comparison_sides(group: Sequence[ComparisonRow]) -> list[ComparisonSide]:
    """Return the sides of one group, the fastest first.

    group: rows with run_id, ranked_rate, its interval and unit, no_interval, setup and chain
    """
    by_setup: dict[str | None, list[ComparisonRow]] = {}
    for row in sorted(group, key=lambda row: -not_null(row["ranked_rate"])):
        by_setup.setdefault(row["setup"], []).append(row)
    found = [side for rows in by_setup.values() for side in _of_setup(rows)]
    return sorted(found, key=lambda side: -side.rate)


def pooled_side(rows: Sequence[ComparisonRow]) -> ComparisonSide | None:
    """Return the side of repeats; None with fewer than MIN_REPEATS starts.

    rows: of one group, named as repeats by who compares them, whatever their `setup`
    """
    found = _of_setup(sorted(rows, key=lambda row: -not_null(row["ranked_rate"])))
    return found[0] if found and found[0].has_run_interval else None


def _of_setup(rows: Sequence[ComparisonRow]) -> list[ComparisonSide]:
    starts: dict[str, list[float]] = {}
    for row in rows:
        starts.setdefault(row["chain"], []).append(log(not_null(row["ranked_rate"])))
    if len(starts) < MIN_REPEATS:
        return [_alone(row, len(starts)) for row in rows]
    rates = [exp(fsum(of) / len(of)) for of in starts.values()]
    mean = geometric_mean(rates)
    own = tuple(own for row in rows if (own := _own(row)) is not None)
    between = intervals.mean_over_runs(rates, own)
    repeated = RepeatedRates(tuple(rates), own)
    return [ComparisonSide(tuple(rows), len(starts), mean, between, None, repeated)]


def _alone(row: ComparisonRow, repeats: int) -> ComparisonSide:
    own = _own(row)
    why = None if own is not None else row["no_interval"] or TOO_FEW_WINDOWS
    return ComparisonSide((row,), repeats, not_null(row["ranked_rate"]), own, why)


def _own(row: ComparisonRow) -> Estimate | None:
    """Return a run's rate with the interval of its windows; None without an interval."""
    low, high = row["ranked_low"], row["ranked_high"]
    if low is None or high is None:
        return None
    freedom = row["interval_freedom"]
    return Estimate(not_null(row["ranked_rate"]), low, high, inf if freedom is None else freedom)
