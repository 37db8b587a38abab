"""What a robust summary of many steps costs: 2,000 runs of 50,000 steps, from Parquet parts.

    python -m benchmarks.summary [--quick] [-h]

Steps are simulated and written as the store writes parts, 20 runs to each; what they take on the
disk goes again. Of each run behind its first 20 steps: the rate, its median, 5 % and 95 % quantile,
median distance and trimmed rate (metrics.core.intervals.robust_summary), and the MFU. Results are
first held against plain numpy. Then contenders run by turns, each in a process of its own; imports
are not timed. DuckDB makes one pass over the same columns for the rate and a mean; pandas, which
needs some 120 bytes a row, makes the whole summary of a tenth of the rows, and counts by row.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from benchmarks.harness import (
    PYTHON,
    Bench,
    Cost,
    Goal,
    Row,
    Run,
    Size,
    Word,
    WrongResultError,
    faster,
    inside,
    installed,
    longer,
    main,
    peak,
    rounds,
    skipped,
)
from fairmfu.ingest.core.schema import frame_schema
from fairmfu.ingest.store.local_backend import StoreBackend
from fairmfu.ingest.store.parquet_parts import write_part
from fairmfu.metrics.core.intervals import robust_summary

RUNS_A_PART: Final = 20
WARM_UP: Final = 20
"""Steps of each run that no contender counts."""
IDEAL_S: Final = 51_471_187_968 / 989.4e12
"""F / P of each run: Llama-3-8B of 8,192 tokens, an H100's dense bf16."""
SEED: Final = 7
COLUMNS: Final = ("run_id", "step", "elapsed_s", "rank_tokens")
SOME: Final = 5
"""Runs that are held against plain numpy."""
EXACT: Final = 1e-12

ROWS_OF_PANDAS: Final = 10_000_000
"""Of 100 million it needs 12 GB; of one million, which caches hold, a row takes it half as long."""

Rows = list[dict[str, Any]]


# --- the steps ------------------------------------------------------------------------------


def write_parts(store: Path, runs: int, steps: int) -> list[Path]:
    """Parts of simulated runs, as the store writes them."""
    found = []
    for batch, first in enumerate(range(0, runs, RUNS_A_PART), 1):
        places = range(first, min(first + RUNS_A_PART, runs))
        frame = pl.concat([_simulated(place, steps) for place in places])
        part = write_part(
            StoreBackend(store), "steps", frame.match_to_schema(frame_schema("steps")), batch
        )
        found.append(store / part.path)
    return found


def _simulated(place: int, steps: int) -> pl.DataFrame:
    """Steps of one run, with the digits that a log prints; every 500th waits for a checkpoint."""
    random = np.random.default_rng((SEED, place))
    step = np.arange(1, steps + 1)
    elapsed = 1.2 * (1 + place / 4_000) * np.exp(0.01 * random.standard_normal(steps))
    elapsed[:WARM_UP] *= 2
    elapsed[499::500] += 8
    frame = frame_schema("steps").to_frame(eager=True).clear(steps)
    began = datetime(2026, 1, 1)  # noqa: DTZ001 - the store's stamps have no zone
    return frame.with_columns(
        run_id=pl.lit(f"{place:016x}"),
        line=pl.Series(step + 40),
        step=pl.Series(step),
        logged_at=pl.lit(began) + pl.duration(milliseconds=pl.Series(1e3 * elapsed.cumsum())),
        elapsed_s=pl.Series(elapsed.round(4)),
        rank_tokens=pl.Series(8_192.0 - random.integers(0, 64, steps)),
        loss=pl.Series((2 + 9 / np.sqrt(step) + 0.02 * random.random(steps)).round(4)),
        grad_norm=pl.Series((1 + 0.2 * random.random(steps)).round(4)),
    )


# --- the contenders -------------------------------------------------------------------------


def ours(paths: Sequence[Path]) -> Rows:
    """metrics.core.intervals.robust_summary of each run, a part at a time."""
    return [row for path in paths for row in _of_part(path)]


def _of_part(path: Path) -> Iterator[dict[str, Any]]:
    part = pl.read_parquet(path, columns=list(COLUMNS))
    runs = part.select(pl.col("run_id").rle()).unnest("run_id")
    heights = runs["len"].cast(pl.Int64)
    steps, seconds, tokens = (part[name].to_numpy() for name in COLUMNS[1:])
    start = 0
    for run_id, height in zip(runs["value"], heights, strict=True):
        mine = slice(start, start + height)
        late = steps[mine] > WARM_UP
        its_tokens, its_seconds = tokens[mine][late], seconds[mine][late]
        tgs = float(its_tokens.sum() / its_seconds.sum())
        found = robust_summary(its_tokens, its_seconds)
        assert found is not None  # noqa: S101 - every simulated step takes time
        yield {"run_id": run_id, "tgs": tgs, "mfu": tgs * IDEAL_S, **asdict(found)}
        start += height


def plain(path: Path, run_id: str) -> dict[str, Any]:
    """The same of one run by numpy's own functions."""
    rows = pl.read_parquet(path, columns=list(COLUMNS)).filter(
        pl.col("run_id") == run_id, pl.col("step") > WARM_UP
    )
    tokens, seconds = rows["rank_tokens"].to_numpy(), rows["elapsed_s"].to_numpy()
    rates, tgs = tokens / seconds, tokens.sum() / seconds.sum()
    p5, median, p95 = np.quantile(rates, [0.05, 0.5, 0.95])
    middle = (rates >= p5) & (rates <= p95)
    return {
        "run_id": run_id,
        "tgs": tgs,
        "mfu": tgs * IDEAL_S,
        "median": median,
        "p5": p5,
        "p95": p95,
        "mad": np.median(np.abs(rates - median)),
        "trimmed": tokens[middle].sum() / seconds[middle].sum(),
    }


def duckdb_mean(paths: Sequence[Path]) -> Rows:
    """One pass: rate, and mean of the steps' rates."""
    import duckdb  # noqa: PLC0415 - of one process alone

    files = [str(path) for path in paths]
    told = duckdb.execute(
        "select run_id, sum(rank_tokens) / sum(elapsed_s) as tgs, avg(rank_tokens / elapsed_s) "
        "from read_parquet($files) where step > $warm_up group by run_id order by run_id",
        {"files": files, "warm_up": WARM_UP},
    )
    return [{"run_id": run_id, "tgs": tgs} for run_id, tgs, _ in told.fetchall()]


def pandas_groups(paths: Sequence[Path]) -> Rows:
    """What one writes first: all rows in one frame, a function of each group."""
    import pandas as pd  # type: ignore[import-not-found]  # noqa: PLC0415 - of one process alone

    frame = pd.concat([pd.read_parquet(path, columns=list(COLUMNS)) for path in paths])
    frame = frame[frame["step"] > WARM_UP]
    frame["rate"] = frame["rank_tokens"] / frame["elapsed_s"]

    def summary(run: Any) -> Any:  # noqa: ANN401 - a frame of pandas
        rates = run["rate"]
        low, high = rates.quantile(0.05), rates.quantile(0.95)
        middle = run[(rates >= low) & (rates <= high)]
        tgs = run["rank_tokens"].sum() / run["elapsed_s"].sum()
        return pd.Series(
            {
                "tgs": tgs,
                "mfu": tgs * IDEAL_S,
                "median": rates.median(),
                "p5": low,
                "p95": high,
                "mad": (rates - rates.median()).abs().median(),
                "trimmed": middle["rank_tokens"].sum() / middle["elapsed_s"].sum(),
            }
        )

    told = frame.groupby("run_id")[["rank_tokens", "elapsed_s", "rate"]].apply(summary)
    rows: Rows = told.reset_index().to_dict("records")
    return rows


OURS, DUCKDB, PANDAS = "robust summary", "DuckDB, mean in one pass", "pandas, by group"
CONTENDERS: Final[Mapping[str, Callable[[Sequence[Path]], Rows]]] = {
    OURS: ours,
    DUCKDB: duckdb_mean,
    PANDAS: pandas_groups,
}


# --- one process each -----------------------------------------------------------------------


def contend(name: str, listed: Path, out: Path) -> None:
    """Runs one contender, writes its rows to `out`, and prints what they took.

    listed: a file of paths, as JSON.
    """
    paths = [Path(each) for each in json.loads(listed.read_text(encoding="utf-8"))]
    CONTENDERS[name](paths[:1])  # imports, and the first touch of each library
    wall, cpu = time.perf_counter(), time.process_time()
    rows = CONTENDERS[name](paths)
    took = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    out.write_text(json.dumps(rows), encoding="utf-8")
    print(json.dumps(took))


def wrong(rows: Rows, paths: Sequence[Path], others: Rows) -> Iterator[str]:
    """What differs from plain numpy on some runs, and in the rate from DuckDB on all."""
    by_id = {row["run_id"]: row for row in rows}
    for at in np.linspace(0, len(rows) - 1, SOME).astype(int):
        run_id = rows[at]["run_id"]
        told = plain(paths[at // RUNS_A_PART], run_id)
        for name in told.keys() - {"run_id"}:
            if abs(by_id[run_id][name] / told[name] - 1) > EXACT:
                yield f"{run_id}: {name} is {by_id[run_id][name]}, numpy says {told[name]}"
    for row in others:
        if abs(by_id[row["run_id"]]["tgs"] / row["tgs"] - 1) > EXACT:
            yield f"{row['run_id']}: TGS is {by_id[row['run_id']]['tgs']}, DuckDB says {row['tgs']}"
    if len(by_id) != len(others):
        yield f"{len(by_id)} runs, DuckDB has {len(others)}"


# --- the rows -------------------------------------------------------------------------------


def summary(bench: Bench) -> Iterator[Row]:
    """All contenders by turns; what pandas takes is counted by row."""
    runs = bench.sizes["runs"]
    steps = bench.sizes["rows"] // runs
    paths = write_parts(bench.folder, runs, steps)
    of = {OURS: paths, DUCKDB: paths}
    if installed("pandas"):
        of[PANDAS] = paths[: max(1, ROWS_OF_PANDAS // (steps * RUNS_A_PART))]
    contenders: dict[str, Run] = {}
    for name, some in of.items():
        listed, out = (bench.folder / f"{name}-{what}.json" for what in ("paths", "rows"))
        listed.write_text(json.dumps([str(path) for path in some]), encoding="utf-8")
        command: list[Word] = [PYTHON, "-m", "benchmarks.summary", "contend", name, listed, out]
        contenders[name] = partial(inside, command)
    told = {}
    for name in (OURS, DUCKDB):
        contenders[name]()
        rows = (bench.folder / f"{name}-rows.json").read_text(encoding="utf-8")
        told[name] = json.loads(rows)
    if faults := list(wrong(told[OURS], paths, told[DUCKDB])):
        raise WrongResultError("\n".join(faults))
    costs = rounds(contenders, bench.repeats)
    work = f"{OURS} of {runs * steps:,} steps, {runs:,} runs"
    yield longer(f"{work}, time", costs, OURS, DUCKDB, Goal(4, at_least=False))
    if PANDAS in of:
        share = min(len(of[PANDAS]) * RUNS_A_PART, runs) / runs
        whole = {**costs, PANDAS: [_scaled(cost, 1 / share) for cost in costs[PANDAS]]}
        yield faster(f"{work}, a row", whole, OURS, PANDAS, Goal(6))
    else:
        yield skipped(f"{work}, a row, against pandas", "pandas is not installed", Goal(6))
    yield peak(f"{work}, peak memory", costs[OURS], Goal(250, at_least=False, unit="MB"))


def _scaled(cost: Cost, times: float) -> Cost:
    """What so many times the rows would take."""
    return replace(cost, wall_s=cost.wall_s * times, cpu_s=(cost.cpu_s or 0.0) * times)


WORKS: Final = (summary,)
SIZES: Final = {
    "rows": Size(10_000_000, 100_000_000, "steps of all runs"),
    "runs": Size(200, 2_000, "runs"),
}

if __name__ == "__main__":
    if sys.argv[1:2] == ["contend"]:
        contend(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
    else:
        main(__doc__, WORKS, Bench, SIZES, repeats=Size(1, 3, "rounds of each timing"))
