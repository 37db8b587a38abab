"""Jobs that ran more often in a night than they usually do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from statistics import median

from fairmfu.metrics.compare.history import NIGHT_START

from ..text.run_narrative import BAD_OUTCOMES
from .night_report import Row


def jobs_that_ran_again(
    rows_of_jobs: Collection[Sequence[Row]], tonight: Collection[str]
) -> Iterator[tuple[Row, int]]:
    """Yield the last run of each such job, with its number of runs in that night.

    rows_of_jobs: runs of each job, oldest first; tonight: ids of the runs of tonight. Failed runs
    do not count: another finding names them. A job that usually runs more than once in a night, or
    that has no earlier night, is none.
    """
    for rows in rows_of_jobs:
        good = [row for row in rows if row["at"] and row["outcome"] not in BAD_OUTCOMES]
        if not good or good[-1]["run_id"] not in tonight:
            continue
        nights = Counter((row["at"] - NIGHT_START).date() for row in good)
        count = nights.pop((good[-1]["at"] - NIGHT_START).date())
        if nights and count > 1 and median(nights.values()) == 1:
            yield good[-1], count
