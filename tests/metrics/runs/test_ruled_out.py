"""Pairs of sources that are ruled out in bulk are two launches, compared step by step."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.metrics.core.arrays import FloatArray
from fairmfu.metrics.core.intervals import robust_spread
from fairmfu.metrics.core.link_columns import COMPARED_FIGURES
from fairmfu.metrics.runs import ruled_out
from fairmfu.metrics.runs.launch_sources import Series, Source
from fairmfu.metrics.runs.ruled_out import PairFilter
from fairmfu.metrics.runs.same_run import _verdict

PATHS = ("a/x.log", "a/y.log", "a/node0.log", "a/node1.log", "a/checkpoint-5/x.log", "b/x.out")
DIGITS = 0.001


def launch(seed: int, **more: Any) -> Source:
    """A source with the figures of one launch.

    seed: of its times; losses: of its losses, None for none; count: of steps; pace: spread of step
    times; lag: seconds by which its stamps scatter; columns: printed times; gaps: share of missing
    values
    """
    losses, count, pace, lag = (more[name] for name in ("losses", "count", "pace", "lag"))
    random = np.random.default_rng(seed)
    step_s = 2 + pace * random.standard_normal(count)
    own = np.random.default_rng(more["copy"])
    values = dict.fromkeys(COMPARED_FIGURES, np.full(count, np.nan))
    if losses is not None:
        values["loss"] = np.random.default_rng(losses).random(count).round(5)
    for name in more["columns"]:
        values[name] = printed(step_s, own, more["gaps"])
    stamps = np.full(count, np.nan)
    if more["stamped"]:
        stamps = 1e6 + np.cumsum(step_s) + lag * own.standard_normal(count)
        stamps = np.floor(stamps) if more["in_seconds"] else printed(stamps, own, more["gaps"])
    units = {name: np.where(np.isfinite(v), DIGITS, np.nan) for name, v in values.items()}
    steps = np.arange(1, count + 1) * more["every"]
    series = Series(more["rank"], steps, values, stamps, units)
    run = {"run_id": f"{seed}", "log_format": more["log_format"], "utc": more["utc"]}
    runtimes = ((float(step_s.sum().round(3)), DIGITS),) * more["runtimes"]
    return Source(
        run, more["path"], (series,), runtimes, frozenset(more["names"]), more["clock"], count
    )


def printed(values: FloatArray, random: np.random.Generator, gaps: float) -> FloatArray:
    """Values in three digits, some of them missing."""
    return np.where(random.random(len(values)) < gaps, np.nan, values.round(3))


LAUNCHES = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2),
        "losses": st.sampled_from([None, 1, 1, 1, 2]),
        "count": st.sampled_from([1, 2, 5, 40, 300]),
        "pace": st.sampled_from([0.0, 0.01, 0.1]),
        "lag": st.sampled_from([0.0, 0.001, 0.02]),
        "copy": st.integers(0, 2),
        "columns": st.sampled_from([(), (), ("elapsed_s",), ("logged_tgs", "data_s")]),
        "gaps": st.sampled_from([0.0, 0.0, 0.3]),
        "stamped": st.booleans(),
        "in_seconds": st.booleans(),
        "every": st.sampled_from([1, 1, 1, 10]),
        "rank": st.sampled_from([None, None, "0", "1"]),
        "log_format": st.sampled_from(["console", "console", "events"]),
        "utc": st.sampled_from([False, False, True]),
        "runtimes": st.sampled_from([0, 0, 0, 1, 2]),
        "path": st.sampled_from(PATHS),
        "names": st.sampled_from([(), (), (), ("x.log",)]),
        "clock": st.sampled_from([None, None, (0.0, 80.0)]),
    }
)
LIKE = st.fixed_dictionaries({"columns": st.just(()), "copy": st.integers(3, 5)})
"""Another print of a launch: what it changes."""


@settings(max_examples=300)
@given(st.lists(LAUNCHES, min_size=1, max_size=3), st.lists(LIKE, max_size=2))
def test_what_is_ruled_out_is_another_launch(
    launches: list[dict[str, Any]], prints: list[dict[str, Any]]
) -> None:
    sources = [launch(**one) for one in launches]
    sources += [launch(**launches[0] | changed) for changed in prints]
    pairs = np.array([*combinations(range(len(sources)), 2)], np.int64).reshape(-1, 2)
    left = {(a, b) for a, b in PairFilter(sources).possible(pairs).tolist()}
    for a, b in pairs.tolist():
        if (a, b) not in left:
            assert _verdict(sources[a], sources[b]) == "other"


PLAIN: dict[str, Any] = {
    "losses": 1,
    "count": 40,
    "pace": 0.1,
    "lag": 0.0,
    "copy": 0,
    "columns": ("elapsed_s",),
    "gaps": 0.0,
    "stamped": True,
    "in_seconds": False,
    "every": 1,
    "rank": None,
    "log_format": "console",
    "utc": False,
    "runtimes": 0,
    "names": (),
    "clock": None,
    "path": "a/x.log",
}


@pytest.mark.parametrize(
    "alike",
    [
        {"losses": 1},
        {"losses": 1, "in_seconds": True},
        {"losses": None},
        {"losses": None, "columns": (), "stamped": False},
        {"losses": 1, "columns": (), "stamped": False},
        {"losses": None, "columns": (), "count": 5},
        {"losses": None, "columns": (), "stamped": False, "runtimes": 1},
    ],
    ids=str,
)
def test_launches_of_one_second_are_ruled_out(alike: dict[str, Any]) -> None:
    sources = [
        launch(seed, **PLAIN | alike | {"path": f"a/run{seed}.log", "copy": seed})
        for seed in range(20)
    ]
    pairs = np.array([*combinations(range(20), 2)])
    left = PairFilter(sources).possible(pairs)
    assert len(left) < len(pairs) // 20


def test_copies_of_a_launch_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = [launch(1, **PLAIN | {"path": f"{i}.log"}) for i in range(9)]
    pairs = np.array([*combinations(range(9), 2)])
    assert PairFilter(sources).possible(pairs).tolist() == pairs.tolist()
    monkeypatch.setattr(ruled_out, "MAX_CELLS", 3 * 40)  # in blocks
    assert PairFilter(sources).possible(pairs).tolist() == pairs.tolist()


def test_spreads_are_those_of_single_rows() -> None:
    values = np.random.default_rng(1).standard_normal((30, 7))
    values[np.random.default_rng(2).random(values.shape) < 0.4] = np.nan
    values[0] = np.nan
    alone = [robust_spread(row[np.isfinite(row)]) for row in values]
    assert ruled_out._spreads(values).tolist() == alone
