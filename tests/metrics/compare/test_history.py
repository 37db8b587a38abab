"""Series of runs: who is in which, in what order, what changed with a change, and baselines."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from fairmfu.metrics.compare.history import (
    CHANGE_SCHEMA,
    POINT_SCHEMA,
    SERIES_SCHEMA,
    UNPLACED_SCHEMA,
    History,
    history,
)
from fairmfu.metrics.core.run_table import OUTDATED_READING
from tests.support.series import START, Nights, metrics, runs

WOBBLE = [1.0, 1.004, 0.997, 1.001, 0.995, 1.002, 1.005, 0.998, 0.999, 1.003]
LEVEL = [6000 * w for w in WOBBLE * 2]
"""20 nights of 6,000 tokens/s/GPU, within half a percent."""
DOWN = [rate * 0.95 for rate in LEVEL[:10]]
LABEL = "torchtitan, llama3-8b, 8,192 tokens, 8 x NVIDIA H100 80GB HBM3, bf16"


def of(tgs: list[float], *, threshold: float = 0.0, **about: object) -> History:
    return history(metrics(runs(tgs, **about)), threshold=threshold)


def row(frame: pl.DataFrame) -> dict[str, Any]:
    """The one row."""
    assert frame.height == 1
    return frame.row(0, named=True)


def pins(*runs_and_tgs: tuple[str, float]) -> pl.DataFrame:
    """Baselines, pinned one an hour."""
    return pl.DataFrame(
        [
            {"run_id": run, "name": "pinned", "at": START + timedelta(hours=i), "tgs": tgs}
            for i, (run, tgs) in enumerate(runs_and_tgs)
        ]
    )


# --- series -------------------------------------------------------------------------------


def test_nothing_gives_empty_tables() -> None:
    found = history(metrics([]))
    for frame, schema in zip(
        (found.points, found.changes, found.series, found.unplaced),
        (POINT_SCHEMA, CHANGE_SCHEMA, SERIES_SCHEMA, UNPLACED_SCHEMA),
        strict=True,
    ):
        assert frame.schema == schema
        assert frame.height == 0


def of_windows(counts: list[int], *, slower: float = 0.95, **more: Any) -> History:
    """A steady series of so many windows each; those of fewer than 9 are slower."""
    rates = [rate * (slower if n < 9 else 1) for rate, n in zip(LEVEL, counts, strict=False)]
    rows = [{**row, "windows": n} for row, n in zip(runs(rates), counts, strict=True)]
    return history(metrics(rows), **more)


def test_a_run_that_broke_off_in_its_warm_up_is_no_slow_night() -> None:
    """Two of these, or two runs that are still being written, were a regression."""
    found = of_windows([40] * 12 + [6, 8, 6])
    assert found.changes.is_empty()
    assert row(found.series)["points"] == 12
    assert [why.split(":")[0] for why in found.unplaced["why"]] == ["too short"] * 3
    assert found.unplaced["run_id"].to_list() == ["r012", "r013", "r014"]


@pytest.mark.parametrize("before", [[6, 6, 40], [40]], ids=str)
def test_a_series_of_short_runs_is_one(before: list[int]) -> None:
    """Also where a line is lost, and behind a long one."""
    counts = [*before, *[6, 5] * 6]
    found = of_windows(counts, slower=1.0)
    assert row(found.series)["points"] == len(counts)
    assert found.unplaced.is_empty()


def test_a_short_run_that_is_a_baseline_stays_one() -> None:
    found = of_windows([40] * 12 + [6], slower=1.0, baselines=pins(("r012", LEVEL[12])))
    assert found.unplaced.is_empty()
    assert row(found.series)["points"] == 13


def test_a_steady_series_by_hand() -> None:
    """Ten rates of which the logarithms have mean 0.00038 and standard deviation 0.0032."""
    found = of(LEVEL, mfu=0.4)
    series = row(found.series)
    assert series["series"] == LABEL
    assert (series["points"], series["nights"], series["state"]) == (20, 20, "steady")
    assert series["level"] == pytest.approx(6000 * np.prod(WOBBLE) ** 0.1)
    assert series["spread"] == pytest.approx(np.log(WOBBLE).std() * (20 / 18) ** 0.5)
    assert series["level_low"] < series["level"] < series["level_high"]
    assert series["last_ratio"] == pytest.approx(LEVEL[-1] / series["level"])
    assert (series["last_run"], series["suspect"], series["mfu"]) == ("r019", False, 0.4)
    assert (series["framework"], series["model"], series["gpus"]) == ("torchtitan", "llama3-8b", 8)
    assert found.points.schema == POINT_SCHEMA
    assert found.points["segment"].unique().to_list() == [0]
    assert found.changes.height == 0


def test_few_points_are_new_and_have_a_level() -> None:
    series = row(of(LEVEL[:3]).series)
    assert (series["state"], series["spread"]) == ("new", None)
    assert series["level_low"] < series["level"] < series["level_high"]
    assert row(of(LEVEL[:2]).series)["level_low"] is None


def test_other_keys_and_synthetic_runs_are_other_series() -> None:
    rows = runs(
        LEVEL[:5],
        gpus=[8, 16, 8, 8, 8],
        trained=["full", "full", "lora, rank 8", "full", "full"],
        synthetic=[False, False, False, True, False],
    )
    assert history(metrics(rows)).series["series", "points"].rows() == [
        (LABEL.replace("8 x", "16 x"), 1),
        (LABEL, 2),
        (LABEL + ", lora, rank 8", 1),
        (LABEL + ", synthetic", 1),
    ]


def test_the_key_can_be_chosen() -> None:
    rows = runs(LEVEL[:4], global_batch_size=[64, 1024, 64, 64], seq_len=[1, 2, 3, 4])
    found = history(metrics(rows), by=("model", "gpus", "global_batch_size"))
    assert found.series["series"].to_list() == [
        "llama3-8b, 8 GPUs, global batch 1,024",
        "llama3-8b, 8 GPUs, global batch 64",
    ]
    assert found.series["framework"].to_list() == [None, None]


def test_runs_without_a_rate_or_a_key_have_no_place_and_say_why() -> None:
    rows = runs([6000.0, 6000.0, 6000.0, 6000.0], seq_len=[8192, None, 8192, 8192])
    rows[2] |= {"tgs": None, "missing": ["gpus"]}
    rows[3] |= {"started_at": None}
    found = history(metrics(rows))
    assert found.points["run_id"].to_list() == ["r000"]
    assert found.unplaced.rows() == [
        ("r001", "night 1", "unknown: sequence length"),
        ("r002", "night 2", "no TGS: missing gpus"),
        ("r003", "night 3", "no time: no stamp, and not when read"),
    ]


def test_the_order_is_by_start_else_by_when_it_was_read_then_by_id() -> None:
    rows = runs(LEVEL[:4])
    rows[0] |= {"started_at": None, "read_at": START + timedelta(days=9)}
    rows[1] |= {"started_at": START + timedelta(days=2)}
    points = history(metrics(rows)).points
    assert points["run_id", "dated"].rows() == [
        ("r001", True),
        ("r002", True),
        ("r003", True),
        ("r000", False),
    ]


def test_a_night_goes_over_midnight() -> None:
    rows = runs(LEVEL[:3])
    for i, at in enumerate((datetime(2026, 1, 1, 22), datetime(2026, 1, 2, 3))):
        rows[i]["started_at"] = at
    assert row(history(metrics(rows)).series)["nights"] == 2


# --- changes ------------------------------------------------------------------------------


def test_a_regression_names_its_points_and_the_upgrade() -> None:
    found = of(LEVEL + DOWN, framework_version=["0.2.0"] * 20 + ["0.2.1"] * 10)
    change = row(found.changes)
    assert (change["series"], change["against"], change["kind"]) == (LABEL, "history", "regression")
    assert (change["last_before"], change["run_id"], change["found_by"]) == ("r019", "r020", "r021")
    assert change["at"] == START + timedelta(days=20)
    assert change["found_at"] == START + timedelta(days=21)
    assert change["ratio"] == pytest.approx(0.95)
    assert change["after"] / change["before"] == pytest.approx(0.95)
    assert change["ratio_low"] < 0.95 < change["ratio_high"]
    assert (change["points_after"], change["counts"]) == (10, True)
    assert change["causes"] == ["version 0.2.0 -> 0.2.1"]
    series = row(found.series)
    assert (series["state"], series["suspect"]) == ("regressed", False)
    assert series["level"] == pytest.approx(change["after"])
    assert found.points["segment"].to_list() == [0] * 20 + [1] * 10


def test_a_change_where_logs_are_read_otherwise_is_told_as_such() -> None:
    """Runs whose logs were gone when fairmfu came to read such logs otherwise."""
    rows = runs(LEVEL[:10] + DOWN)
    for one in rows[:10]:
        one["warnings"] = [f"{OUTDATED_READING}pairs count as two, so figures may be wrong"]
    change = row(history(metrics(rows)).changes)
    assert change["causes"] == ["read by an earlier fairmfu -> this fairmfu"]


def test_the_last_point_far_out_is_suspect_and_the_next_decides() -> None:
    one = of([*LEVEL, DOWN[0]])
    assert (row(one.series)["state"], one.changes.height) == ("suspect", 0)
    assert one.points["outlier"].to_list() == [False] * 20 + [True]
    assert row(of([*LEVEL, DOWN[0], LEVEL[0]]).series)["state"] == "steady"
    assert row(of([*LEVEL, DOWN[0], DOWN[1]]).series)["state"] == "regressed"


def test_an_improvement_and_what_came_back() -> None:
    up = [rate * 1.05 for rate in LEVEL[:10]]
    found = of(LEVEL + up)
    assert (row(found.changes)["kind"], row(found.series)["state"]) == ("improvement", "improved")
    back = of(LEVEL + up + LEVEL)
    assert back.changes["kind"].to_list() == ["improvement", "regression"]
    assert row(back.series)["state"] == "regressed"


def test_a_change_below_the_threshold_is_listed_and_does_not_count() -> None:
    found = of(LEVEL + DOWN, threshold=0.06)
    assert row(found.changes)["counts"] is False
    assert row(found.series)["state"] == "steady"
    assert row(of(LEVEL + DOWN, threshold=0.04).changes)["counts"] is True


def test_a_cause_may_stand_where_a_small_change_may_begin() -> None:
    """1 % in noise of 0.5 % is often placed a night or two beside the upgrade."""
    law = Nights(nights=80, bad_nodes=0, planted={50: -0.01})
    torch = ["2.8"] * 50 + ["2.9"] * 30
    late = 0
    for values in law.series(40, seed=1):
        found = of((6000 * np.exp(values)).tolist(), torch=torch)
        if found.changes.height == 1:
            late += found.changes["run_id"].item() != "r050"
            assert found.changes["causes"].item().to_list() in ([], ["PyTorch 2.8 -> 2.9"])
    assert late > 5


def test_marks_name_all_that_differs_and_silence_is_no_difference() -> None:
    found = of(
        LEVEL[:5],
        recompute=["none", "full", "full", "full", "full"],
        global_batch_size=[64, 64, 1024, 1024, 1024],
        torch=["2.8", None, None, "2.8", "2.9"],
        compile=["True", "true", "yes", "no", "no"],
        formula=["1", "1", "2", "2", "2"],
    )
    assert found.points["marks"].to_list() == [
        [],
        ["recompute none -> full"],
        ["global batch 64 -> 1,024"],
        ["compile yes -> no"],
        ["PyTorch 2.8 -> 2.9"],
    ]
    assert row(found.series)["setups"] == []


def test_a_field_that_goes_back_and_forth_holds_several_jobs() -> None:
    turns = [64, 128] * 3
    assert row(of(LEVEL[:6], global_batch_size=turns).series)["setups"] == [
        "global batch: 128 / 64"
    ]
    taken_back = ["0.2.0", "0.2.1", "0.2.0"]
    assert row(of(LEVEL[:3], framework_version=taken_back).series)["setups"] == []


def test_mfu_is_of_the_newest_formula_and_tgs_of_all() -> None:
    formulas = ["1"] * 15 + ["2"] * 5
    found = of(LEVEL, mfu=[0.5] * 15 + [0.4] * 5, formula=formulas)
    series = row(found.series)
    assert (series["formulas"], series["peaks"]) == (["1", "2"], ["aaaa"])
    assert series["mfu"] == 0.4
    assert found.changes.height == 0


# --- baselines ----------------------------------------------------------------------------


def test_a_level_below_its_baseline_stays_listed() -> None:
    rows = metrics(runs(LEVEL + DOWN))
    found = history(rows, baselines=pins(("r003", 6000.0)))
    own, pinned = found.changes.rows(named=True)
    assert (own["against"], pinned["against"]) == ("history", "baseline")
    assert (pinned["kind"], pinned["last_before"]) == ("regression", "r003")
    assert (pinned["run_id"], pinned["found_by"]) == ("r020", "r021")
    assert (pinned["before"], pinned["counts"]) == (6000.0, True)
    assert pinned["ratio_high"] < 1
    series = row(found.series)
    assert (series["baseline_run"], series["baseline_tgs"]) == ("r003", 6000.0)
    assert series["against_baseline"] == pytest.approx(pinned["ratio"])
    assert series["against_low"] < series["against_baseline"] < series["against_high"]


def test_a_baseline_pinned_behind_a_regression_takes_it_as_it_is() -> None:
    rows = metrics(runs(LEVEL + DOWN))
    found = history(rows, baselines=pins(("r003", 6000.0), ("r025", 5700.0)))
    assert found.changes["against"].to_list() == ["history"]
    series = row(found.series)
    assert (series["baseline_run"], series["state"]) == ("r025", "steady")


def test_a_baseline_beyond_the_threshold_only_and_one_that_is_lost() -> None:
    rows = metrics(runs(LEVEL + DOWN))
    found = history(rows, baselines=pins(("r003", 6000.0), ("gone", 1.0)), threshold=0.06)
    assert found.changes["against"].to_list() == ["history"]
    assert found.unplaced.rows() == [("gone", "pinned", "a baseline, and its run is in no series")]


# --- laws ---------------------------------------------------------------------------------

DRAWN = st.builds(
    lambda seed, at, size: Nights(nights=60, bad_nodes=0.05, planted={at: size}).draw(
        np.random.default_rng(seed)
    ),
    st.integers(0, 2**16),
    st.integers(5, 55),
    st.sampled_from([-0.1, -0.02, 0.02, 0.1]),
)


@given(DRAWN, st.randoms(use_true_random=False))
@settings(max_examples=10)
def test_the_order_of_rows_does_not_matter(values: np.ndarray, random: Any) -> None:
    rows = runs((6000 * np.exp(values)).tolist(), torch=["2.8"] * 30 + ["2.9"] * 30)
    one = history(metrics(rows), baselines=pins(("r010", 6000.0)))
    random.shuffle(rows)
    other = history(metrics(rows), baselines=pins(("r010", 6000.0)))
    for name in ("points", "changes", "series", "unplaced"):
        assert_frame_equal(getattr(one, name), getattr(other, name))


@given(DRAWN, st.integers(1, 60))
@settings(max_examples=15)
def test_later_nights_take_nothing_back(values: np.ndarray, until: int) -> None:
    rows = runs((6000 * np.exp(values)).tolist())
    lasting = ["series", "run_id", "at", "last_before", "found_at", "found_by", "causes"]
    then, now = (history(metrics(some)).changes for some in (rows[:until], rows))
    known = now.filter(pl.col("found_at") < START + timedelta(days=until))
    assert_frame_equal(then.select(lasting), known.select(lasting))


def test_a_year_of_20_series_takes_no_time_and_finds_what_is_there() -> None:
    """Each has one regression of 5 % and one improvement of 2 %."""
    law = Nights(planted={100: -0.05, 200: 0.02})
    rows = [
        run | {"run_id": f"{model:02} {run['run_id']}"}
        for model, values in enumerate(law.series(20, seed=4))
        for run in runs((6000 * np.exp(values)).tolist(), model=f"model {model:02}")
    ]
    changes = history(metrics(rows)).changes
    assert changes["kind"].to_list() == ["regression", "improvement"] * 20
    delays = (changes["found_at"] - changes["at"]).dt.total_days().to_list()
    assert max(delays[::2]) <= 2
    assert max(delays[1::2]) <= 9
