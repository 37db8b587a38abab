"""False alarms of steady series and delays of planted changes: the tables of docs/statistics.md.

make changes
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fairmfu.metrics.compare.change_points import find_levels
from tests.support.series import Nights

YEARS = 2000
"""Series-years of each line, a quarter of them with four runs a night."""
PLANTED = 400
"""Series of each size, half of them slower."""
SIZES = {0.01: 30, 0.02: 10, 0.05: 3, 0.10: 3}
"""Nights within which a change of each size is to be found."""
BEFORE = (10, 20, 40, 100)
AFTER = 60
"""Nights that a planted change is looked for."""

LAWS = {
    "0.5 %": Nights(),
    "0.25 %": Nights(spread=0.0025),
    "1 %": Nights(spread=0.01),
    "0.5 %, no bad nodes": Nights(bad_nodes=0),
    "0.5 %, 2 % bad nodes": Nights(bad_nodes=0.02),
    "0.5 %, 5 % bad nodes": Nights(bad_nodes=0.05),
    "0.5 %, autocorrelation 0.3": Nights(autocorrelation=0.3),
    "0.5 %, autocorrelation 0.6": Nights(autocorrelation=0.6),
    "0.5 %, Student's t of 5": Nights(freedom=5),
    "0.5 %, then 1 %": Nights(louder=2),
    "0.5 %, then 1.5 %": Nights(louder=3),
    "0.5 %, drift of 1 % a year": Nights(drift=-0.01),
}
SOUGHT = ("0.5 %", "0.25 %", "1 %", "0.5 %, autocorrelation 0.3", "0.5 %, Student's t of 5")


def alarms(law: Nights, years: int) -> float:
    """False alarms per ten series-years."""
    return (
        10 * sum(len(find_levels(values).changes) for values in law.series(years, seed=1)) / years
    )


def delays(law: Nights, size: float, before: int) -> Iterator[float]:
    """Nights of the new level that it took to find it, of each series; infinite where it was not.

    1: the night of the change itself.
    """
    for sign in (-1, 1):
        drawn = replace(law, nights=before + AFTER, planted={before: sign * size})
        for values in drawn.series(PLANTED // 2, seed=2):
            found = (change.confirmed_at for change in find_levels(values).changes)
            later = (at // law.per_night - before + 1 for at in found)
            yield next((float(nights) for nights in later if nights > 0), np.inf)


def sought(law: Nights, before: int) -> list[str]:
    """Of each size the median delay, and the share that is found in time."""
    cells = []
    for size, within in SIZES.items():
        each = np.array(list(delays(law, size, before)))
        middle = float(np.quantile(each, 0.5, method="inverted_cdf"))
        usual = f"{middle:.0f}" if np.isfinite(middle) else f"> {AFTER}"
        cells.append(f"{usual}; {np.mean(each <= within):.1%}")
    return cells


def row(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def main() -> None:
    """Print the tables."""
    row("spread from run to run", "1 run a night", "4 runs a night")
    row("---", "---", "---")
    for name, law in LAWS.items():
        often = replace(law, per_night=4)
        row(name, f"{alarms(law, YEARS):.2f}", f"{alarms(often, YEARS // 4):.2f}")
    print()
    heads = [f"{size:.0%} (in {within} nights)" for size, within in SIZES.items()]
    row("spread", "runs a night", "nights before", *heads)
    row(*(["---"] * (3 + len(heads))))
    for name in SOUGHT:
        for per_night in (1, 4):
            law = replace(LAWS[name], per_night=per_night)
            for before in BEFORE if name == "0.5 %" and per_night == 1 else (40,):
                row(name, per_night, before, *sought(law, before))


if __name__ == "__main__":
    main()
