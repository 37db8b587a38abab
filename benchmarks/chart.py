"""What a chart of many points costs as SVG, beside Altair's own of the same points.

    python -m benchmarks.chart [--quick] [-h]

Ours shows TGS, MFU, loss and memory over the steps of one run by bins, the other a line of its TGS.
Both have to tell of each point, and of the same least and most. A row more has the least that ours
takes with this library: it starts and draws that figure, which is made before.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import partial
from typing import Final

from benchmarks.harness import (
    PYTHON,
    Bench,
    Goal,
    Row,
    Size,
    WrongResultError,
    faster,
    inside,
    main,
    rounds,
)
from tests.support.nights import Plan, write_night

EXACT: Final = 1e-12


def chart(bench: Bench) -> Iterator[Row]:
    """The course of a run, aggregated, against a line through all points."""
    (log,) = write_night(bench.folder, 1, Plan(), only=[0])
    points = bench.sizes["points"]
    raw, least = "raw Altair chart", "the least that it takes: the same figure, made before, drawn"
    runs = {
        name: partial(inside, [*WORK, which, log, str(points), bench.folder / f"{which}.svg"])
        for name, which in (("ours", "ours"), (raw, "raw"), (least, "least"))
    }
    costs = rounds(runs, bench.repeats)
    told = {name: json.loads(some[0].said)["told"] for name, some in costs.items()}
    alike = all(
        math.isclose(one, mine, rel_tol=EXACT)
        for each in told.values()
        for one, mine in zip(each, told["ours"], strict=True)
    )
    if not alike or told["ours"][0] != points:
        raise WrongResultError(f"points, least and most: {told}")
    yield faster(f"chart of {points:,} points, SVG", costs, "ours", raw, Goal(15))
    yield faster(least, costs, least, raw)


WORK: Final = (PYTHON, "-m", "benchmarks.chart_work")
WORKS: Final = (chart,)
SIZES: Final = {"points": Size(1_000_000, 1_000_000, "points of the chart")}

if __name__ == "__main__":
    main(__doc__, WORKS, Bench, SIZES, repeats=Size(1, 3, "rounds of each timing"))
