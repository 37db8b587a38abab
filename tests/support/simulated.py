"""Simulated runs of which the truth is known: rate, noise, stalls, warm-up, lost lines."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairmfu.ingest.core.schema import frame_schema
from fairmfu.metrics.core.intervals import RateInterval, rate_interval
from fairmfu.metrics.runs.goodput import goodput
from fairmfu.metrics.runs.resume_chains import link_resumes
from fairmfu.metrics.throughput.end_to_end import launch_clocks
from fairmfu.metrics.throughput.resolved_facts import resolve_facts, typed_facts
from fairmfu.metrics.throughput.throughput import summarise
from fairmfu.metrics.throughput.warmup import mark_warm_up_and_stalls, stall_excess, warm_up_length
from fairmfu.metrics.throughput.windows import build_windows

TOKENS = 4096
"""Of a step, on the one GPU."""
INTERVAL = 10
"""Steps of a window."""
START = datetime(2026, 1, 1)
SETUP_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """A law that runs are drawn from; times in seconds per step, noise as a fraction of them."""

    windows: int = 240
    step_s: float = 1.0
    noise: float = 0.02
    autocorrelation: float = 0.0
    stalls: float = 0.0
    """Share of windows that stall, for 20 to 100 % of their time."""
    warm_up: int = 0
    """Windows that are 30 % slower, behind the first, which takes 20 times its time."""
    checkpoint_every: int = 0
    """Windows; a checkpoint takes 3 windows' time and is logged."""
    lost_lines: float = 0.0

    @property
    def tgs(self) -> float:
        """The true steady rate: what unexplained stalls cost belongs to it."""
        return TOKENS / (self.step_s * (1 + self.stalls * 0.6))

    def paces(self, runs: int, random: np.random.Generator) -> NDArray[np.float64]:
        """Seconds per step of each run and window, warm-up and first window included."""
        a, burn = self.autocorrelation, 100
        shocks = random.standard_normal((runs, self.windows + burn))
        x = np.empty_like(shocks)
        x[:, 0] = shocks[:, 0] / np.sqrt(1 - a**2)
        for i in range(1, x.shape[1]):
            x[:, i] = a * x[:, i - 1] + shocks[:, i]
        noisy = 1 + self.noise * np.sqrt(1 - a**2) * x[:, burn:]
        hit = random.random(noisy.shape) < self.stalls
        pace = self.step_s * (noisy + hit * random.uniform(0.2, 1.0, noisy.shape))
        pace[:, 1 : 1 + self.warm_up] *= 1.3
        pace[:, 0] *= 20
        return np.asarray(pace)

    def estimates(self, runs: int, seed: int) -> list[RateInterval]:
        """The rate of each run with its interval, from its windows behind the warm-up."""
        random = np.random.default_rng(seed)
        tokens = np.full(self.windows, float(TOKENS * INTERVAL))
        found = []
        for pace in self.paces(runs, random):
            settled = pace[1 + warm_up_length(pace[1:]) :] * INTERVAL
            told = tokens[: len(settled)]
            excess = stall_excess(settled, told)
            found.append(rate_interval(told, settled, excess))
        return found

    def draw(
        self, runs: int, seed: int, *, checkpoint_s: float = 3.0, logged: bool = True
    ) -> pl.DataFrame:
        """What the product makes of `runs` runs' lines: metrics.throughput.throughput.SUMMARY.

        checkpoint_s: what a checkpoint takes, in windows; logged: whether lines tell of them
        """
        random = np.random.default_rng(seed)
        pace = self.paces(runs, random)
        saved = np.zeros(pace.shape, bool)
        if self.checkpoint_every:
            saved[:, self.checkpoint_every :: self.checkpoint_every] = True
        pace[saved] += checkpoint_s * self.step_s
        kept = random.random(pace.shape) >= self.lost_lines
        kept[:, 0] = True
        return rates(pace, saved & logged, kept)


GIVEN = {"gpus": 1, "global_batch_size": 1, "seq_len": TOKENS, "log_interval": INTERVAL}
ABOUT = {
    "framework": "torchtitan",
    "step_unit": "optimizer_step",
    "elapsed_covers": "interval",
    "elapsed_excludes_data": False,
    "rate_excludes_data": False,
    "utc": False,
}


def rates(
    pace: NDArray[np.float64], saved: NDArray[np.bool_], kept: NDArray[np.bool_]
) -> pl.DataFrame:
    """The product's rates of runs with these seconds per step, checkpoints and printed lines."""
    runs, count = pace.shape
    run, window = (grid.ravel() for grid in np.mgrid[:runs, :count])
    lines = pl.DataFrame(
        {
            "run_id": [f"{i:06}" for i in run],
            "line": 2 * window + 2,
            "step": (window + 1) * INTERVAL,
            "elapsed_s": pace.ravel(),
            "kept": kept.ravel(),
            "saved": saved.ravel(),
        }
    )
    steps = _table("steps", lines.filter("kept").drop("kept", "saved"))
    saves = lines.filter("saved").select("run_id", pl.col("line") - 1, kind=pl.lit("checkpoint"))
    every, known = _runs(lines.select("run_id").unique(maintain_order=True), "elapsed")
    marked = mark_warm_up_and_stalls(
        build_windows(steps, every, known, _table("events", saves)), every
    )
    return summarise(marked, every, known)


def _runs(ids: pl.DataFrame, evidence: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Tables `runs` and typed facts of these ids; other columns of `ids` are kept."""
    of = pl.lit([evidence], pl.List(pl.String))
    about = ids.with_columns(name="run_id", evidence=of, **{k: pl.lit(v) for k, v in ABOUT.items()})
    given = pl.DataFrame({"name": list(GIVEN), "value": [str(v) for v in GIVEN.values()]})
    facts = ids.select("run_id").join(given, how="cross")
    facts = facts.with_columns(origin=pl.lit("flag"), sequence=0)
    return _table("runs", about), typed_facts(resolve_facts(_table("facts", facts)))


def restarted(law: Simulation, runs: int, seed: int, repeated: int, gap_s: float) -> pl.DataFrame:
    """Runs that crash, wait and train `repeated` windows again; with the true goodput.

    Each is two launches of one file, stamped; training begins `SETUP_S` behind the first stamp.
    Columns of metrics.throughput.throughput.SUMMARY and metrics.runs.goodput.GOODPUT_SCHEMA, and
    `truth`: the true one, of the later launch.
    """
    random = np.random.default_rng(seed)
    first, later = law.paces(runs, random), law.paces(runs, random)
    begins = law.windows - repeated
    lines, launches, truths = [], [], {}
    for i, (one, other) in enumerate(zip(first, later, strict=True)):
        began = START
        for launch, pace, before in ((1, one, 0), (2, other, begins)):
            ends = np.cumsum(pace) * INTERVAL + SETUP_S
            run_id = f"{i:06}-{launch}"
            launches.append({"run_id": run_id, "launch": launch, "started_at": began})
            launches[-1] |= {"sha256": str(i), "first_line": launch * 10_000}
            lines += [
                {
                    "run_id": run_id,
                    "line": launch * 10_000 + w + 2,
                    "step": (before + w + 1) * INTERVAL,
                    "logged_at": began + timedelta(seconds=float(end)),
                }
                for w, end in enumerate(ends)
            ]
            began = lines[-1]["logged_at"] + timedelta(seconds=gap_s)
        tokens = (begins + law.windows) * INTERVAL * TOKENS
        truths[f"{i:06}-2"] = tokens / (lines[-1]["logged_at"] - START).total_seconds()
    every, known = _runs(pl.DataFrame(launches), "stamp")
    begun = [
        {"run_id": r["run_id"], "line": r["first_line"] + 1, "kind": "train_start"}
        | {"logged_at": r["started_at"] + timedelta(seconds=SETUP_S)}
        for r in launches
    ]
    happened = _table("events", pl.DataFrame(begun))
    marked = mark_warm_up_and_stalls(
        build_windows(_table("steps", pl.DataFrame(lines)), every, known, happened), every
    )
    clocks = launch_clocks(every, marked, known, happened)
    rated = summarise(marked, every.join(clocks, on="run_id"), known)
    linked = link_resumes(every, marked, known, clocks)
    good = goodput(every, marked, linked, clocks, rated)
    true = pl.DataFrame({"run_id": list(truths), "truth": list(truths.values())})
    return (
        rated.join(linked, on="run_id").join(good, on="run_id").join(true, on="run_id", how="left")
    )


def _table(name: str, frame: pl.DataFrame) -> pl.DataFrame:
    return frame.match_to_schema(
        frame_schema(name), missing_columns="insert", integer_cast="upcast"
    )
