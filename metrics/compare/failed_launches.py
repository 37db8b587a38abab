"""Share of launches that fail, and the launch since which it is higher.

Fisher's exact test of every split of a job's launches, at each new launch. As in
metrics.compare.change_points, the search restarts after a change, and the changes among the first n
launches depend on these alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import comb
from typing import Final

from .change_points import MIN_POINTS

FALSE_RISE_CHANCE: Final = 1e-5
"""Chance that one split of launches that fail equally often passes. Only splits between a failed
and another launch are tested, so a year has far fewer tests than a series of rates.
"""


@dataclass(frozen=True, slots=True)
class FailureRise:
    """Rise of the share of failed launches; first, confirmed_at: places of launches.

    Counts of failed and of all launches, before the first one and since.
    """

    first: int
    confirmed_at: int
    failed_before: int
    launches_before: int
    failed_since: int
    launches_since: int


def failure_rise(failed: Sequence[bool]) -> FailureRise | None:
    """Return the last change of the share of failed launches, if it is a rise.

    failed: of every launch of a job, oldest first
    """
    start, found = 0, None
    totals, splits = [0, *accumulate(failed)], _splits(failed)
    for point in range(MIN_POINTS - 1, len(failed)):
        first = _sure_split(failed, totals, splits, start, point)
        if first is not None:
            found = (start, first, point)
            start = first
    if found is None or not failed[found[1]]:
        return None
    begin, first, point = found
    before, since = failed[begin:first], failed[first:]
    return FailureRise(first, point, sum(before), len(before), sum(since), len(since))


def _splits(failed: Sequence[bool]) -> list[int]:
    """Return the launches that ended otherwise than the one before them."""
    return [place for place in range(1, len(failed)) if failed[place] != failed[place - 1]]


def _sure_split(
    failed: Sequence[bool], totals: Sequence[int], splits: Sequence[int], start: int, point: int
) -> int | None:
    """Return the first launch after the least likely split, if it is sure.

    The launch before a split ended otherwise. The newest launch ended as the first one did.
    totals: failed launches before each place; splits: see _splits
    """
    newest, every = failed[point], point + 1 - start
    best: tuple[float, int | None] = (FALSE_RISE_CHANCE, None)
    for first in reversed(splits[bisect_right(splits, start) : bisect_right(splits, point)]):
        if failed[first] == newest:
            hits, marked = (
                count if newest else launches - count
                for count, launches in (
                    (totals[point + 1] - totals[first], point + 1 - first),
                    (totals[point + 1] - totals[start], every),
                )
            )
            chance = _upper_tail(hits, point + 1 - first, marked, every)
            best = min(best, (chance, first), key=lambda one: one[0])
    return best[1]


def _upper_tail(hits: int, draws: int, marked: int, every: int) -> float:
    """Return the chance of at least `hits` marked of `draws`, without replacement."""
    most = min(draws, marked)
    ways = sum(comb(marked, n) * comb(every - marked, draws - n) for n in range(hits, most + 1))
    return ways / comb(every, draws)
