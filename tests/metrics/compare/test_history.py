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
from fairmfu.metrics.core.run_messages import OUTDATED_READING
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
        ("r003", "night 3", "no time: the log has no timestamp, and the store has no reading time"),
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
        one["warning_kinds"] = [OUTDATED_READING.identifier]
    change = row(history(metrics(rows)).changes)
    assert change["causes"] == ["log parsed by an earlier fairmfu -> this fairmfu"]


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
    assert found.unplaced.rows() == [("gone", "pinned", "a baseline whose run is in no series")]


# --- bounds of what has a place, by hand ------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "last", "is_short"),
    [
        ([8] * 9, 6, False),  # 3/4 of 8
        ([8] * 9, 5, True),
        ([40] * 9, 9, False),  # windows that an interval needs, whatever runs before had
        ([40] * 9, 8, True),
        ([40] * 2, 1, False),  # two runs before say nothing
        ([40] * 3, 1, True),
        ([40] * 4 + [10] * 5, 7, True),  # of the last nine, the median is 10
        ([40] * 9 + [8] * 9, 6, False),  # older ones are forgotten
        ([40, 8] * 4 + [8], 6, False),
    ],
)
def test_a_run_is_short_by_three_quarters_of_the_nine_before(
    before: list[int], last: int, *, is_short: bool
) -> None:
    found = of_windows([*before, last], slower=1.0)
    named = f"r{len(before):03}"
    assert (named in found.unplaced["run_id"].to_list()) is is_short
    if is_short:
        why = found.unplaced.filter(run_id=named)["why"].item()
        assert f" {last} window{'s' if last > 1 else ''}, too few" in why


def test_a_run_of_unknown_windows_is_as_short_as_one_of_none() -> None:
    rows = [{**one, "windows": 40} for one in runs(LEVEL[:12])]
    rows[11]["windows"] = None
    assert history(metrics(rows)).unplaced["run_id"].to_list() == ["r011"]


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_an_impossible_rate_has_no_place(rate: float) -> None:
    rows = runs([6000.0, rate])
    found = history(metrics(rows))
    assert found.points["run_id"].to_list() == ["r000"]
    assert found.unplaced["run_id"].to_list() == ["r001"]


def test_nights_go_from_noon_to_noon() -> None:
    rows = runs(LEVEL[:4])
    stamps = ((1, 12, 0), (2, 11, 59), (2, 12, 0), (2, 12, 1))
    for one, (day, hour, minute) in zip(rows, stamps, strict=True):
        one["started_at"] = datetime(2026, 1, day, hour, minute)
    assert row(history(metrics(rows)).series)["nights"] == 2


def test_the_label_says_each_column_of_the_key() -> None:
    rows = metrics(runs(LEVEL[:1], trained="lora of rank 8"))
    by = ("device", "trained", "seq_len", "recompute")
    rows = rows.with_columns(recompute=pl.lit("full"))
    (label,) = history(rows, by=by).series["series"]
    assert label == "NVIDIA H100 80GB HBM3, lora of rank 8, 8,192 tokens, recompute full"


def test_many_series_stand_in_the_order_of_their_names() -> None:
    names = [f"model {n:03}" for n in range(20)]
    found = history(metrics(runs([6000.0] * 20, model=[*reversed(names)])))
    assert found.series["model"].to_list() == names
    assert found.points["series"].is_sorted()


def test_a_run_of_unknown_origin_is_not_in_the_series_of_composed_ones() -> None:
    rows = runs(LEVEL[:3], synthetic=[None, True, False])
    assert sorted(history(metrics(rows)).series["points"]) == [1, 2]


# --- what a series says of itself -------------------------------------------------------------


def test_settings_take_turns_from_two_returns_on() -> None:
    def turns(*values: int | None) -> list[str]:
        return row(of(LEVEL[: len(values)], global_batch_size=[*values]).series)["setups"]

    assert turns(64, 128, 64) == []  # taken back
    assert turns(64, 128, 64, 128) == ["global batch: 128 / 64"]
    assert turns(64, None, 128, None, 64, 64, 128) == ["global batch: 128 / 64"]
    assert turns(64, 128, 256, 512) == []  # each is new


def test_values_that_hold_a_comma_are_marked_in_quotes() -> None:
    found = of(LEVEL[:2], attention_pattern=["causal", "causal, stops at document borders"])
    assert found.points["marks"].to_list()[1] == [
        'attention "causal" -> "causal, stops at document borders"'
    ]


def test_layers_of_the_model_are_marked_by_a_few_characters() -> None:
    found = of(LEVEL[:2], work=["0123456789ab", "a123456789ab"])
    assert found.points["marks"].to_list()[1] == ["model layers 012345 -> a12345"]


def test_the_mfu_of_a_level_is_the_median_of_its_own_points() -> None:
    """Neither of the level before, nor of a night far out, nor by other peaks."""
    slow = DOWN[:5]
    found = of([*LEVEL, *slow, 3000.0], mfu=[0.5] * 20 + [0.40, 0.41, 0.42, 0.43, 0.44, 0.2])
    assert found.points["outlier"].to_list()[-1] is True
    assert row(found.series)["mfu"] == pytest.approx(0.42)
    found = of(LEVEL[:4], mfu=[0.1, 0.4, 0.5, None], peaks=["a", "b", "b", "b"])
    assert row(found.series)["mfu"] == pytest.approx(0.45)
    assert row(found.series)["peaks"] == ["a", "b"]


def test_the_first_runs_have_the_interval_between_them() -> None:
    """Three nights: no spread, but Student's t of their rates, of two degrees of freedom."""
    series = row(of(LEVEL[:3]).series)
    logs = np.log(LEVEL[:3])
    half = 4.30265 * logs.std(ddof=1) / 3**0.5
    assert np.log(series["level_high"] / series["level"]) == pytest.approx(half, rel=1e-4)
    assert series["spread"] is None


def test_the_rates_before_and_behind_a_change_are_levels() -> None:
    change = row(of(LEVEL + DOWN).changes)
    level = 6000 * np.prod(WOBBLE) ** 0.1
    assert change["before"] == pytest.approx(level)
    assert change["after"] == pytest.approx(0.95 * level)
    assert change["points_after"] == 10


@pytest.mark.parametrize(("threshold", "counts"), [(0.0499, True), (0.0501, False)])
def test_a_change_counts_from_the_threshold_on(threshold: float, *, counts: bool) -> None:
    assert row(of(LEVEL + DOWN, threshold=threshold).changes)["counts"] is counts
    up = [rate * 1.05 for rate in LEVEL[:10]]
    assert row(of(LEVEL + up, threshold=threshold).changes)["counts"] is counts


# --- baselines: which one, and since when -----------------------------------------------------


def test_the_baseline_pinned_last_holds() -> None:
    rows = metrics(runs(LEVEL + DOWN))
    two = pins(("r025", 5700.0), ("r003", 6000.0))
    series = row(history(rows, baselines=two).series)
    assert (series["baseline_run"], series["state"]) == ("r003", "regressed")
    stamps = pl.Series([START + timedelta(hours=2), None], dtype=two.schema["at"])
    undated = two.with_columns(at=stamps)
    assert row(history(rows, baselines=undated).series)["baseline_run"] == "r025"


@pytest.mark.parametrize("tgs", [0.0, None])
def test_a_baseline_pinned_without_a_rate_has_that_of_its_run(tgs: float | None) -> None:
    rows = metrics(runs(LEVEL))
    held = pins(("r003", 1.0)).with_columns(tgs=pl.lit(tgs, pl.Float64))
    series = row(history(rows, baselines=held).series)
    assert series["baseline_tgs"] == LEVEL[3]
    assert series["against_baseline"] == pytest.approx(series["level"] / LEVEL[3])


def test_a_row_of_a_baseline_says_since_when() -> None:
    found = history(metrics(runs(LEVEL + DOWN)), baselines=pins(("r003", 6000.0)))
    pinned = found.changes.row(1, named=True)
    assert (pinned["run_id"], pinned["points_after"]) == ("r020", 10)
    assert pinned["after"] == pytest.approx(0.95 * 6000 * np.prod(WOBBLE) ** 0.1)
    assert pinned["ratio"] == pytest.approx(pinned["after"] / 6000)


def test_without_a_spread_a_baseline_has_no_interval() -> None:
    series = row(history(metrics(runs(LEVEL[:3])), baselines=pins(("r000", 3000.0))).series)
    assert series["against_baseline"] == pytest.approx(series["level"] / 3000)
    assert (series["against_low"], series["against_high"]) == (None, None)
    assert series["state"] == "new"


def test_an_improvement_since_the_baseline_is_one() -> None:
    up = [rate * 1.05 for rate in LEVEL[:10]]
    rows = metrics(runs(LEVEL + up))
    assert row(history(rows, baselines=pins(("r019", 6000.0))).series)["state"] == "improved"
    assert row(history(rows, baselines=pins(("r020", 6300.0))).series)["state"] == "steady"


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


# --- jobs with unknown facts --------------------------------------------------------------

KEY = ("model", "seq_len", "device", "precision", "trained", "gpus")
HIDDEN = st.lists(st.sets(st.sampled_from(KEY)), min_size=20, max_size=20)


def of_jobs(*jobs: tuple[str, list[dict[str, Any]]]) -> History:
    rows = [row for _, several in jobs for row in several]
    names = [name for name, several in jobs for _ in several]
    return history(metrics(rows).with_columns(job=pl.Series(names, dtype=pl.String)))


@settings(max_examples=25)
@given(HIDDEN)
def test_a_job_whose_logs_lack_facts_is_one_series(hidden: list[set[str]]) -> None:
    rates = [*LEVEL[:10], *DOWN]
    whole = of(rates)
    rows = [{**row, **dict.fromkeys(lacks)} for row, lacks in zip(runs(rates), hidden, strict=True)]
    found = of_jobs(("logs/titan", rows))
    assert found.series.height == 1
    assert found.unplaced.is_empty()
    columns = ("at", "run_id", "found_by", "ratio", "kind")
    assert_frame_equal(found.changes.select(columns), whole.changes.select(columns))
    if all(any(name not in lacks for lacks in hidden) for name in KEY):
        assert found.series["series"].to_list() == [LABEL]


def test_a_fact_that_no_run_of_a_job_states_is_equal_in_all() -> None:
    rows = runs([*LEVEL[:10], *DOWN], device=None)
    found = of_jobs(("logs/titan", rows))
    name = "torchtitan, llama3-8b, 8,192 tokens, bf16, 8 GPUs, job titan"
    assert row(found.series)["series"] == name
    assert row(found.changes)["kind"] == "regression"


def test_two_jobs_of_one_name_are_two_series() -> None:
    one, two = (runs(LEVEL, precision=None) for _ in range(2))
    for other in two:
        other["run_id"] += "-b"
    found = of_jobs(("a/titan", one), ("b/titan", two))
    assert sorted(found.series["series"].str.slice(-11)) == ["job a/titan", "job b/titan"]


def by_turns(*jobs: str) -> History:
    """Runs of equal facts, one a night, of these jobs."""
    rows = runs(LEVEL[: len(jobs)])
    return of_jobs(*((job, [row]) for job, row in zip(jobs, rows, strict=True)))


def test_jobs_of_equal_facts_that_take_turns_are_a_series_each() -> None:
    found = by_turns(*["logs/a", "logs/b"] * 10)
    assert found.series["series"].to_list() == [f"{LABEL}, job a", f"{LABEL}, job b"]
    assert found.series["points"].to_list() == [10, 10]
    assert by_turns("a", "b", "a", "b").series.height == 2
    assert by_turns("a", "b", "b", "a").series.height == 1  # moved, and moved back


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_a_job_that_moves_on_stays_one_series(lengths: list[int]) -> None:
    places = [f"logs/{n}" for n, length in enumerate(lengths) for _ in range(length)]
    assert row(by_turns(*places).series)["series"] == LABEL


def test_jobs_of_equal_facts_do_not_hide_each_others_change() -> None:
    steady, slower = runs(LEVEL), runs([*LEVEL[:10], *DOWN])
    for other in slower:
        other["run_id"] += "-b"
    found = of_jobs(("logs/a", steady), ("logs/b", slower))
    assert row(found.changes)["series"] == f"{LABEL}, job b"
    assert dict(found.series.select("series", "state").iter_rows()) == {
        f"{LABEL}, job a": "steady",
        f"{LABEL}, job b": "regressed",
    }


def test_a_fact_that_becomes_known_or_unknown_is_a_mark() -> None:
    known = [None] * 5 + ["bf16"] * 10 + [None] * 5
    found = of_jobs(("logs/titan", runs(LEVEL, precision=known)))
    marks = {place: marks for place, marks in enumerate(found.points["marks"]) if len(marks)}
    assert {place: list(some) for place, some in marks.items()} == {
        5: ["precision unknown -> bf16"],
        15: ["precision bf16 -> unknown"],
    }


def test_an_unknown_fact_of_a_job_with_two_values_is_its_own_series() -> None:
    known = ["bf16"] * 7 + ["fp8"] * 7 + [None] * 6
    found = of_jobs(("logs/titan", runs(LEVEL, precision=known)))
    assert found.series.height == 3


def test_without_a_job_an_unknown_fact_leaves_a_run_out() -> None:
    found = of(LEVEL, precision=None)
    assert found.series.is_empty()
    assert found.unplaced["why"].unique().to_list() == ["unknown: precision"]
