"""Figures watched beside TGS: each is found, once, and only where TGS does not say it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.ingest.core.schema import TEXT, TEXT_LIST, TIMESTAMP
from fairmfu.metrics.compare.failed_launches import failure_rise
from fairmfu.metrics.compare.history import history
from fairmfu.metrics.compare.watched_metrics import WATCHED, watch_metrics
from tests.support.series import Array, metrics, runs

NO_PINS = pl.DataFrame(schema={"run_id": TEXT, "at": TIMESTAMP})
NIGHTS, CHANGED = 40, 30


def noise(spread: float = 0.005, nights: int = NIGHTS, seed: int = 0) -> Array:
    return np.exp(spread * np.random.default_rng(seed).standard_normal(nights))


def step(size: float, nights: int = NIGHTS) -> Array:
    """1 until the change, then 1 + size."""
    return np.where(np.arange(nights) >= CHANGED, 1 + size, 1.0)


def losses(values: Sequence[float], count: int = 2**24) -> list[list[dict[str, Any]]]:
    return [[{"unit": "tokens", "count": count, "loss": float(value)}] for value in values]


def watched(
    rows: Sequence[dict[str, Any]], pins: pl.DataFrame = NO_PINS, threshold: float = 0.0
) -> list[dict[str, Any]]:
    frame = metrics(rows)
    past = history(frame)
    placed = past.points.select("run_id", "series", "at", "marks")
    rest = frame.join(placed, on="run_id", how="anti").with_columns(
        series=pl.lit("a job"), at="started_at", marks=pl.lit([], TEXT_LIST)
    )
    both = pl.concat([frame.join(placed, on="run_id"), rest], how="diagonal")
    found = watch_metrics(both, past.changes, pins, threshold).filter("counts")
    return found.to_dicts()


def told(rows: Sequence[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(row["metric"], row["kind"], row["run_id"]) for row in watched(rows)]


TGS = list(7000 * noise())
SAME: dict[str, Any] = {
    "steps": 400,
    "windows": 40,
    "peak_memory_bytes": 44 * 2.0**30,
    "memory_growth": 0.0,
    "startup_s": list(60 * noise(0.1, seed=1)),
    "tgs_end_to_end": list(0.95 * np.array(TGS)),
    "losses": losses(3.2 * noise(seed=2)),
}
FIRST = f"r{CHANGED:03}"

CHANGES = {
    "memory": {"peak_memory_bytes": list(44 * 2.0**30 * step(0.02))},
    "memory-growth": {"memory_growth": list(0.001 * np.log(noise(1)) + step(0.1) - 1)},
    "loss": {"losses": losses(3.2 * noise(seed=2) * step(0.05))},
    "start-up": {"startup_s": list(60 * noise(0.1, seed=1) * step(1.2))},
    "end-to-end": {"tgs_end_to_end": list(0.95 * np.array(TGS) * step(-0.06))},
}


def test_a_steady_series_tells_nothing() -> None:
    assert told(runs(TGS, **SAME)) == []


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_for_the_worse_is_found_by_the_third_night(name: str) -> None:
    """Of a start-up, which scatters by 10 %, by the fifth."""
    rows = runs(TGS, **SAME | CHANGES[name])
    (row,) = watched(rows)
    assert (row["metric"], row["kind"], row["stands"]) == (name, "worse", True)
    assert row["ratio_low"] < row["ratio"] < row["ratio_high"]
    within = 5 if name == "start-up" else 3
    assert int(row["found_by"][1:]) - CHANGED + 1 in range(3, within + 1)
    assert int(row["run_id"][1:]) - CHANGED in range(within - 2)
    assert told(rows[: CHANGED + within]) == [(name, "worse", row["run_id"])]
    assert told(rows[: CHANGED + 2]) == []


@pytest.mark.parametrize("name", ["memory", "loss"])
def test_a_change_for_the_better_is_no_alarm(name: str) -> None:
    values = {"memory": 44 * 2.0**30 * step(-0.1), "loss": 3.2 * noise(seed=2) * step(-0.05)}[name]
    other = {"peak_memory_bytes": list(values)} if name == "memory" else {"losses": losses(values)}
    assert told(runs(TGS, **SAME | other)) == [(name, "better", FIRST)]


def test_a_slower_rate_is_not_told_twice() -> None:
    tgs = np.array(TGS) * step(-0.1)
    slower = {"tgs_end_to_end": list(0.95 * tgs), "seconds_per_step": list(8192 / tgs)}
    assert told(runs(list(tgs), **SAME | slower)) == []


def test_a_faster_rate_after_the_same_start_is_no_slower_end_to_end() -> None:
    """Start-up takes a larger share of a shorter run."""
    tgs = np.array(TGS) * step(0.5)
    whole = 1 / (1 / tgs + 0.05 / 7000)
    assert told(runs(list(tgs), **SAME | {"tgs_end_to_end": list(whole)})) == []


def test_steps_are_timed_where_no_tokens_are_known() -> None:
    seconds = list(0.5 * noise() * step(0.05))
    rows = runs([None] * NIGHTS, seconds_per_step=seconds, steps=400)  # type: ignore[list-item]
    assert told(rows) == [("seconds-per-step", "worse", FIRST)]
    assert watched(rows, threshold=0.08) == []


def test_memory_that_never_scatters_has_a_floor() -> None:
    def grown(size: float) -> list[tuple[str, str, str]]:
        return told(runs(TGS, **SAME | {"peak_memory_bytes": list(44 * 2.0**30 * step(size))}))

    assert grown(0.009) == []
    assert grown(0.012) == [("memory", "worse", FIRST)]


def test_rare_runs_of_one_kind_are_no_change() -> None:
    """Some nodes need more memory: two nights in a row there are no alarm."""
    memory = np.full(NIGHTS, 44 * 2.0**30)
    memory[[5, 12, 20, 21, 30, 31, 32]] *= 1.05
    assert told(runs(TGS, **SAME | {"peak_memory_bytes": list(memory)})) == []


def test_a_run_that_broke_off_says_nothing_of_its_whole() -> None:
    short = {"steps": [400] * (NIGHTS - 4) + [150] * 4}
    memory = {"peak_memory_bytes": [44e9] * (NIGHTS - 4) + [60e9] * 4}
    assert told(runs(TGS, **SAME | short | memory)) == []


def test_losses_are_compared_at_the_count_that_most_runs_reach() -> None:
    """Some runs are longer: their later losses are lower, and at the same count they are alike."""
    both = [
        [*early, {"unit": "tokens", "count": 2**25, "loss": 1.0}] if night % 3 else early
        for night, early in enumerate(losses(3.2 * noise(seed=2)))
    ]
    assert told(runs(TGS, **SAME | {"losses": both})) == []
    worse = losses(3.2 * noise(seed=2) * step(0.05))
    rows = watched(runs(TGS, **SAME | {"losses": worse}))
    assert [(row["at_count"], row["count_unit"]) for row in rows] == [(2**24, "tokens")]


def test_a_baseline_holds_every_figure() -> None:
    rows = runs(TGS, **SAME | CHANGES["memory"])
    old, new = (
        pl.DataFrame([{"run_id": run, "at": None}], schema=NO_PINS.schema)
        for run in ("r020", "r035")
    )
    against = [(row["against"], row["stands"]) for row in watched(rows, old)]
    assert against == [("history", True), ("baseline", True)]
    assert [(row["against"], row["stands"]) for row in watched(rows, new)] == [("history", False)]


@settings(max_examples=15, deadline=None)
@given(
    scale=st.floats(0.1, 10),
    size=st.floats(0.03, 0.5),
    order=st.randoms(use_true_random=False),
    nights=st.integers(CHANGED + 3, NIGHTS),
)
def test_scale_order_and_later_nights_do_not_matter(
    scale: float, size: float, order: Any, nights: int
) -> None:
    memory = scale * 44e9 * noise(0.001, seed=3) * step(size)
    rows = runs(TGS, **SAME | {"peak_memory_bytes": list(memory)})[:nights]
    order.shuffle(rows)
    assert told(rows) == [("memory", "worse", FIRST)]


def test_metrics_are_told_apart() -> None:
    assert len({metric.identifier for metric in WATCHED}) == len(WATCHED)
    assert len({metric.finding for metric in WATCHED}) == len(WATCHED)
    names = {metric.identifier for metric in WATCHED}
    assert {by for metric in WATCHED for by in metric.explained_by} <= {*names, "tgs"}


# --- failed launches ----------------------------------------------------------------------


def test_launches_that_fail_more_often_are_found() -> None:
    failed = [n % 20 == 0 for n in range(60)] + [n % 2 == 0 for n in range(30)]
    rise = failure_rise(failed)
    assert rise is not None
    assert 56 <= rise.first <= 62
    assert (rise.failed_before, rise.launches_before) == (sum(failed[: rise.first]), rise.first)
    assert failure_rise([*failed, *[False] * 40]) is None


@settings(max_examples=30, deadline=None)
@given(st.lists(st.booleans(), max_size=9))
def test_few_launches_claim_nothing(failed: list[bool]) -> None:
    assert failure_rise(failed) is None


@pytest.mark.parametrize("share", [0.0, 0.02, 0.1, 0.5])
def test_launches_that_fail_equally_often_are_no_rise(share: float) -> None:
    """About one series of 1,000 has a rise by chance, at half of the launches failed."""
    series = (np.random.default_rng(seed).random(100) < share for seed in range(200))
    rises = [failure_rise(failed.tolist()) for failed in series]
    assert sum(rise is not None for rise in rises) <= 1
