"""False alarms and delays of the figures watched beside TGS: the tables of docs/statistics.md.

make watches
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import numpy as np
import polars as pl

from fairmfu.ingest.core.schema import TEXT, TIMESTAMP
from fairmfu.metrics.compare.change_points import (
    FALSE_SPLIT_CHANCE,
    MIN_RELATIVE_SPREAD,
    ChangeTest,
    find_levels,
)
from fairmfu.metrics.compare.history import history
from fairmfu.metrics.compare.watched_metrics import BUDGET_SHARES, WATCHED, WORSE, watch_metrics
from fairmfu.metrics.core.run_table import METRICS
from tests.support.series import START, USUAL, Array, Nights
from tests.tools.changes_table import row

YEARS = 300
PLANTED = 100
BEFORE, AFTER = 40, 30

NO_PINS = pl.DataFrame(schema={"run_id": TEXT, "at": TIMESTAMP})
GIB = 2.0**30


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """Runs of one job; spreads are relative, from run to run.

    rare: share of runs with another peak memory, and of runs that start twice as slowly
    changes: by figure, the size that begins on the night BEFORE
    """

    rates: Nights = field(default_factory=Nights)
    memory: float = 0.0
    loss: float = 0.005
    start: float = 0.1
    rare: float = 0.02
    changes: Mapping[str, float] = field(default_factory=dict)

    def draw(self, random: np.random.Generator, name: str) -> pl.DataFrame:
        """Return the runs of one job, columns for `watch_metrics`."""
        n = self.rates.points
        tgs = 7000 * np.exp(self.rates.draw(random))

        def shifted(figure: str) -> Array:
            out = np.ones(n)
            out[BEFORE:] += self.changes.get(figure, 0.0)
            return out

        def noise(spread: float) -> Array:
            return np.exp(spread * random.standard_normal(n))

        start = 60 * noise(self.start) * np.where(random.random(n) < self.rare, 2.0, 1.0)
        start *= shifted("start-up")
        memory = 44.2 * noise(self.memory) * np.where(random.random(n) < self.rare, 1.02, 1.0)
        losses = 3.2 * noise(self.loss) * shifted("loss")
        steady_s = 2000.0
        columns = {
            "run_id": [f"{name}-{night}" for night in range(n)],
            "name": [f"{name} {night}" for night in range(n)],
            "started_at": [START + timedelta(days=night) for night in range(n)],
            "tgs": tgs,
            "tgs_end_to_end": tgs * steady_s / (steady_s + 30 * noise(0.1)) * shifted("end-to-end"),
            "startup_s": start,
            "peak_memory_bytes": memory * GIB * shifted("memory"),
            "memory_growth": 0.003 * random.standard_normal(n) + shifted("memory-growth") - 1,
            "losses": [[{"unit": "tokens", "count": 2**24, "loss": x}] for x in losses.tolist()],
            "steps": [400] * n,
            "windows": [40] * n,
        }
        usual = {key: [value] * n for key, value in USUAL.items()} | {"model": [name] * n}
        schema = pl.Schema({**METRICS, "read_at": TIMESTAMP, "peaks": TEXT})
        rows = pl.DataFrame({**usual, **columns}, schema_overrides=dict(schema), strict=False)
        return rows.match_to_schema(schema, missing_columns="insert", extra_columns="ignore")


def watched(runs: pl.DataFrame) -> pl.DataFrame:
    """Return the alarms of some jobs."""
    past = history(runs)
    placed = past.points.select("run_id", "series", "at", "marks")
    found = watch_metrics(runs.join(placed, on="run_id"), past.changes, NO_PINS)
    return found.filter(pl.col("counts") & (pl.col("kind") == WORSE))


def alarms(law: Jobs, years: int) -> dict[str, float]:
    """Return false alarms per ten series-years, by figure."""
    random = np.random.default_rng(1)
    found = dict.fromkeys((metric.identifier for metric in WATCHED), 0)
    for year in range(years):
        for name in watched(law.draw(random, f"job {year}"))["metric"]:
            found[name] += 1
    return {name: 10 * count / years for name, count in found.items()}


def delays(law: Jobs, figure: str) -> Array:
    """Return the nights that it took to find a change in each job; infinite if it was not."""
    random = np.random.default_rng(2)
    took = []
    for place in range(PLANTED):
        one = watched(law.draw(random, f"job {place}")).filter(metric=figure)
        nights = [(at - START).days - BEFORE + 1 for at in one["found_at"]]
        took.append(min((float(each) for each in nights if each > 0), default=np.inf))
    return np.array(took)


LAWS = {
    "0.5 %": Jobs(),
    "0.5 %, memory scatters by 0.2 %": Jobs(memory=0.002),
    "1 %": Jobs(rates=Nights(spread=0.01), loss=0.01, start=0.2),
    "0.5 %, no bad nodes, no rare runs": Jobs(rates=Nights(bad_nodes=0), rare=0),
}

SOUGHT = {
    "memory": (0.02, 0.10),
    "memory-growth": (0.03, 0.10),
    "loss": (0.01, 0.02, 0.05),
    "start-up": (0.30, 1.0),
    "end-to-end": (-0.03, -0.10),
}


def budget() -> None:
    """Print the delay of a rate tested with the whole chance, and with one share of it."""
    row("chance", "1 %", "2 %", "5 %")
    row(*["---"] * 4)
    for name, parts in (("whole, as TGS", 1), (f"a share of {BUDGET_SHARES}", BUDGET_SHARES)):
        test = ChangeTest(FALSE_SPLIT_CHANCE / parts, min_spread=MIN_RELATIVE_SPREAD)
        cells = []
        for size in (0.01, 0.02, 0.05):
            law = Nights(nights=BEFORE + 60, planted={BEFORE: -size})
            took = []
            for values in law.series(400, seed=2):
                later = [one.confirmed_at for one in find_levels(values, test).changes]
                took.append(min((at - BEFORE + 1 for at in later if at >= BEFORE), default=np.inf))
            cells.append(f"{np.quantile(took, 0.5, method='inverted_cdf'):.0f}")
        row(name, *cells)


def main() -> None:
    """Print the tables."""
    figures = [metric.identifier for metric in WATCHED if metric.identifier != "seconds-per-step"]
    row("spread from run to run", *figures, "together")
    row(*["---"] * (len(figures) + 2))
    for name, law in LAWS.items():
        found = alarms(law, YEARS)
        row(name, *(f"{found[each]:.2f}" for each in figures), f"{sum(found.values()):.2f}")
    print()
    row("figure", "change", "median nights", "found in 3 nights", "found in 10 nights")
    row(*["---"] * 5)
    for figure, sizes in SOUGHT.items():
        for size in sizes:
            law = Jobs(rates=Nights(nights=BEFORE + AFTER), changes={figure: size})
            took = delays(law, figure)
            middle = np.quantile(took, 0.5, method="inverted_cdf")
            shares = (f"{np.mean(took <= nights):.0%}" for nights in (3, 10))
            usual = f"{middle:.0f}" if np.isfinite(middle) else f"> {AFTER}"
            row(figure, f"{size:+.0%}", usual, *shares)
    print()
    budget()


if __name__ == "__main__":
    main()
