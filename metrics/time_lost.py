"""What the wall time of a launch went to: steady training, and each cause of the rest.

A window costs what it took beyond the steady pace of its tokens. The log's own words come first
(checkpoint, evaluation, profiler); a stall without any is told by what its line shows.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import gcd
from typing import Any, Final

import numpy as np
import polars as pl

from metrics.steady import stalls
from metrics.windows import SPOILERS, clean, resolution, total

LOST: Final = pl.Struct(
    {"cause": pl.String, "windows": pl.Int64, "seconds": pl.Float64, "share": pl.Float64}
)

START_UP: Final = "start-up"
WARM_UP: Final = "warm-up"
AFTER: Final = "after the last step"
AROUND: Final = "before, after and between the steps' times"
UNEXPLAINED: Final = "unexplained"
PERIODIC: Final = "unexplained, every {:,} steps"

MOST_OF_IT: Final = 0.5
"""Of a stall's excess that waiting for data or a printed time makes up, for it to be the cause."""
MOST_STEPS: Final = 0.8
"""Steps that the lines have to time for their sum to be wall time."""
FEWEST_PERIODIC: Final = 4
OFTEN: Final = 0.7
"""Of the multiples of a period that have a stall, for it to be one."""


def time_lost(
    frame: pl.DataFrame, evidence: str, run: Mapping[str, Any]
) -> tuple[float | None, list[dict[str, Any]]]:
    """Wall time [s] of a launch, and what of it was not steady training.

    frame: the marked windows of one run (metrics.steady.mark); evidence: its time basis; run: with
    startup_s, after_s and wall_s of metrics.end_to_end.clock where they are known. Each row of
    `LOST` has the windows of a cause, the seconds that they took beyond the steady pace, and their
    share of the wall time; the largest first. By time stamps where there are any, else by
    `evidence`, which may not see all of it. (None, []) where nothing is steady, or all that there
    is are rates of unknown tokens, or times of single steps among many.
    """
    uncounted = frame["tokens_per_gpu"].is_null().all()
    if uncounted:
        frame = frame.with_columns(tokens_per_gpu=1.0)  # steps, then, at the pace of a step
    clock = _wall_clock(frame, evidence)
    if (uncounted and clock == "rate") or _samples(frame, clock):
        return None, []
    counted = clean(frame, clock)
    excess = stalls(counted, resolution(frame, clock))
    steady_s = total(counted["seconds"]) - float(excess.sum())
    if not counted.height or steady_s <= 0:
        return None, []
    pace = steady_s / total(counted["tokens"])
    timed = frame.with_columns(
        tokens=pl.col(f"{clock}_span") * pl.col("tokens_per_gpu"), seconds=pl.col(f"{clock}_time")
    ).filter(~pl.col("first"), pl.col("tokens").is_not_null(), pl.col("seconds").is_not_null())
    timed = timed.with_columns(
        lost=pl.col("seconds") - pace * pl.col("tokens"),
        stalled=pl.col("step").is_in(counted["step"].filter(pl.Series(excess > 0)).implode()),
    )
    first_s, start_s = _first_line(frame, pace, evidence, run)
    after_s = run.get("after_s") or 0.0
    rows: list[dict[str, Any]] = [
        {"cause": START_UP, "windows": 1, "seconds": start_s},
        {"cause": AFTER, "windows": 0, "seconds": after_s},
    ]
    rows += [
        {"cause": cause, "windows": lines.height, "seconds": total(lines["lost"])}
        for cause, lines in _by_cause(timed)
    ]
    wall_s = total(timed["seconds"]) + first_s + after_s
    if clock != "stamp" and (run.get("wall_s") or 0.0) > wall_s:
        rows.append({"cause": AROUND, "windows": 0, "seconds": run["wall_s"] - wall_s})
        wall_s = run["wall_s"]
    lost = [row | {"share": row["seconds"] / wall_s} for row in rows if row["seconds"] > 0]
    return wall_s, sorted(lost, key=lambda row: -row["seconds"])


def _wall_clock(frame: pl.DataFrame, evidence: str) -> str:
    """The evidence that sees most: time stamps, a progress bar's clock, or the run's own."""
    clocks = ("stamp", "clock")
    return next((c for c in clocks if total(clean(frame, c)["seconds"]) > 0), evidence)


def _samples(frame: pl.DataFrame, clock: str) -> bool:
    """Whether lines time a part of the steps alone, as one micro-step of ten; a few may be lost."""
    later = frame.filter(~pl.col("first"))
    return total(later[f"{clock}_span"]) < MOST_STEPS * total(later["new_step"])


def _first_line(
    frame: pl.DataFrame, pace: float, evidence: str, run: Mapping[str, Any]
) -> tuple[float, float]:
    """Seconds up to the first step line, and what of them was start-up.

    By stamps, or by the line's own time where that is longer: a log may begin at its first step.
    """
    first = frame.row(0, named=True)
    span = first[f"{evidence}_span"] or 1
    usual = pace * span * (first["tokens_per_gpu"] or 0.0)
    by_line = (first[f"{evidence}_time"] or 0.0) - usual
    start_s = max(run.get("startup_s") or 0.0, by_line, 0.0)
    return start_s + usual, start_s


def _by_cause(timed: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
    """The windows that lost time, by what the log says fell into them, else what they show."""
    said = pl.col("spoilers").list.set_intersection(list(SPOILERS["stamp"])).list.sort()
    waited = (pl.col("data_s") - pl.col("data_s").median()) * pl.col("new_step")
    enough = pl.col("gc_s").is_null() | (pl.col("gc_s") > MOST_OF_IT * pl.col("lost"))
    borne_out = {"gc": enough}
    seen = pl.coalesce(
        *(
            pl.when(pl.col("spoilers").list.contains(kind), borne_out.get(kind, True)).then(
                pl.lit(words)
            )
            for kind, words in SEEN.items()
        ),
        pl.when(waited > MOST_OF_IT * pl.col("lost")).then(pl.lit("data loading")),
        pl.lit(UNEXPLAINED),
    )
    cause = (
        pl.when(said.list.len() > 0)
        .then(said.list.join(" and "))
        .when("warming")
        .then(pl.lit(WARM_UP))
        .when("stalled")
        .then(seen)
    )
    single = (pl.col("step_unit") == "micro_step") & (pl.col("new_step") == 1)
    every = pl.col("gradient_accumulation")
    # A micro-step with the optimizer's is slower than those before it, and no loss.
    optimizer = single & (every > 1) & (pl.col("step") % every == 0)
    usual = optimizer.fill_null(value=False) & (said.list.len() == 0)
    lost = timed.with_columns(cause=cause).filter(pl.col("cause").is_not_null(), ~usual)
    for (words,), lines in lost.group_by("cause", maintain_order=True):
        period = _period(lines["step"].to_list()) if words == UNEXPLAINED else None
        yield str(words) if period is None else PERIODIC.format(period), lines


SEEN: Final = {
    "restart": "restart",
    "load": "loading",
    "compile": "compilation",
    "gc": "garbage collection",
}
"""Events that may explain a stall, and stay in the steady rate."""


def _period(steps: list[int]) -> int | None:
    """Steps between stalls that come in a rhythm, as an unlogged checkpoint does."""
    if len(steps) < FEWEST_PERIODIC:
        return None
    gaps = np.diff(steps)
    period = gcd(*map(int, gaps))
    possible = (steps[-1] - steps[0]) // period + 1
    rare = period > 1 and len(steps) >= OFTEN * possible
    return period if rare else None
