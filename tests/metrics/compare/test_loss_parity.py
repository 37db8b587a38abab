"""Losses at equal tokens: the same work, other work, and where nothing can be said."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pytest

from fairmfu.metrics.compare.loss_parity import compare_losses, loss_lines

COLUMNS = {
    "run_id": pl.String,
    "step": pl.Int64,
    "loss": pl.Float64,
    "tokens_per_gpu": pl.Float64,
    "gpus": pl.Int64,
    "seq_len": pl.Int64,
    "consumed_tokens": pl.Float64,
    "consumed_samples": pl.Int64,
    "non_padding_count": pl.Float64,
}


def curve(tokens: float) -> float:
    return 2.2 + 9.8 * math.exp(-tokens / 1.2e7)


def lines(  # noqa: PLR0913 - what a log may print otherwise
    run_id: str,
    *,
    steps: int = 200,
    every: int = 1,
    gpus: int | None = 8,
    tokens: float = 8192.0,
    shift: float = 0.0,
    first: int = 1,
    noise: float = 0.02,
    **printed: Any,
) -> list[dict[str, Any]]:
    """Windows of a run whose loss follows `curve`, with noise of its own."""
    chance = np.random.default_rng([ord(letter) for letter in run_id])
    rows = []
    for step in range(first, first + steps):
        loss = curve(step * tokens * (gpus or 8)) + shift + chance.normal(0, noise)
        if step % every == 0:
            rows.append({"run_id": run_id, "step": step, "loss": loss, "gpus": gpus})
            rows[-1] |= {"tokens_per_gpu": tokens, "seq_len": 8192}
            rows[-1] |= {name: of(step) for name, of in printed.items()}
    return rows


def found(*runs: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    frame = pl.DataFrame(
        [{name: row.get(name) for name in COLUMNS} for run in runs for row in run], schema=COLUMNS
    )
    ids = [run[0]["run_id"] for run in runs]
    return {
        row["run_id"]: row for row in compare_losses(loss_lines(frame), [ids]).iter_rows(named=True)
    }


def test_two_runs_of_the_same_work() -> None:
    rows = found(lines("a"), lines("b"))
    assert {row["same_loss"] for row in rows.values()} == {True}
    assert {row["equal_tokens"] for row in rows.values()} == {200 * 8192 * 8}
    assert rows["a"]["loss_at_equal_tokens"] == pytest.approx(curve(0.95 * 200 * 65536), rel=0.02)


def test_a_run_that_learns_something_else_is_flagged() -> None:
    rows = found(lines("a"), lines("b", shift=0.4))
    assert {row["same_loss"] for row in rows.values()} == {False}
    of_three = found(lines("a"), lines("b", shift=0.4), lines("c"))
    assert [of_three[name]["same_loss"] for name in "abc"] == [True, False, True]


def test_tokens_are_compared_and_not_steps() -> None:
    """Half the GPUs take twice the steps to the same tokens; at equal steps the losses differ."""
    rows = found(lines("a", steps=200), lines("b", steps=400, gpus=4))
    assert rows["a"]["equal_tokens"] == rows["b"]["equal_tokens"] == 200 * 65536
    assert rows["a"]["same_loss"]
    assert curve(200 * 65536) < 0.9 * curve(100 * 65536)


@pytest.mark.parametrize("every", [5, 10, 20])
def test_a_log_that_prints_more_rarely_is_the_same_run(every: int) -> None:
    """The window of tokens is as wide for both, else the falling loss would tell them apart."""
    rows = found(lines("a", noise=1e-4), lines("b", every=every, noise=1e-4))
    assert rows["a"]["same_loss"]
    apart = abs(rows["a"]["loss_at_equal_tokens"] - rows["b"]["loss_at_equal_tokens"])
    assert apart < 0.05 * rows["a"]["loss_at_equal_tokens"]


def test_the_shorter_run_says_where() -> None:
    rows = found(lines("a", steps=50), lines("b", steps=400))
    assert rows["a"]["equal_tokens"] == 50 * 65536
    assert rows["b"]["same_loss"]


def test_counts_that_the_log_prints_go_first() -> None:
    """A ramp-up of the batch: tokens are not steps times tokens per step."""
    rows = found(
        lines("a", consumed_tokens=lambda step: step * 1e6),
        lines("b", consumed_samples=lambda step: step * 100),
    )
    assert rows["a"]["equal_tokens"] == 200 * 100 * 8192


def test_a_run_that_starts_behind_the_end_of_the_other_has_no_common_count() -> None:
    rows = found(lines("a", steps=50), lines("b", first=1000))
    assert {row["no_loss"] for row in rows.values()} == {"no common token count"}
    assert {row["same_loss"] for row in rows.values()} == {None}


def test_why_there_is_no_loss() -> None:
    silent = [row | {"loss": None} for row in lines("a")]
    assert found(silent, lines("b"))["a"]["no_loss"] == "a log has too few losses"
    unknown = lines("a", gpus=None)
    why = found(unknown, lines("b"))["a"]["no_loss"]
    assert why == "a log does not give the tokens over all GPUs"
    broken = [row | {"loss": math.nan} for row in lines("a")]
    assert found(broken, lines("b"))["a"]["no_loss"] == "a log has too few losses"


def test_one_run_alone_is_not_compared() -> None:
    assert found(lines("a"))["a"]["same_loss"] is None


# --- bounds, by hand: losses without noise ----------------------------------------------------


def flat(run_id: str, loss: float, steps: int = 50, **more: Any) -> list[dict[str, Any]]:
    """Every line of the same loss."""
    return [row | {"loss": loss} for row in lines(run_id, steps=steps, **more)]


@pytest.mark.parametrize(("apart", "same"), [(0.0009, True), (0.0011, False)])
def test_losses_differ_from_a_thousandth_on(apart: float, *, same: bool) -> None:
    for sign in (-1, 1):
        rows = found(flat("a", 2.0), flat("b", 2.0 * (1 + sign * apart)))
        assert {row["same_loss"] for row in rows.values()} == {same}
        assert rows["a"]["loss_at_equal_tokens"] == 2.0
        assert rows["a"]["loss_spread"] == 0


def test_a_run_that_scatters_may_be_as_far_off_as_it_scatters() -> None:
    """The last 20 losses are 2 +- 0.1 in turns: their spread is 0.1 x 1.4826."""
    wide = [row | {"loss": 2.0 + 0.1 * (-1) ** row["step"]} for row in lines("a", steps=199)]
    for shift, same in ((0.147, True), (0.150, False)):
        rows = found(wide, flat("b", 2.0 + shift, 199))
        assert rows["a"]["loss_spread"] == pytest.approx(0.14826)
        assert rows["a"]["same_loss"] is same


def test_of_three_the_middle_one_counts() -> None:
    rows = found(flat("a", 2.0), flat("b", 2.1), flat("c", 2.2))
    assert [rows[name]["same_loss"] for name in "abc"] == [False, True, False]


@pytest.mark.parametrize(("steps", "is_enough"), [(4, False), (5, True)])
def test_a_median_needs_five_lines(steps: int, *, is_enough: bool) -> None:
    """Of 8 lines those over the last half of the tokens are 5: from step 4 on."""
    few = [row | {"loss": None if i >= steps else 2.0} for i, row in enumerate(lines("a"))]
    rows = found(few, flat("b", 2.0))
    assert (rows["a"]["no_loss"] == "a log has too few losses") is not is_enough
    rows = found(flat("a", 2.0, steps=8), flat("b", 2.0, steps=8))
    assert rows["a"]["same_loss"] is True
    rows = found(flat("a", 2.0, steps=7), flat("b", 2.0, steps=7))
    assert rows["a"]["no_loss"] == "no common token count"


def test_the_narrowest_window_that_both_fill_is_taken() -> None:
    """Losses are their step: over the last tenth of 50 steps, 45 to 50, the median is 47.5."""
    steps = [row | {"loss": float(row["step"])} for row in lines("a", steps=50)]
    rows = found(steps, flat("b", 2.0, steps=50))
    assert rows["a"]["loss_at_equal_tokens"] == 47.5
    # Every fifth line: five of them, 30 to 50, stand in the last 40 % only.
    rare = flat("b", 2.0, steps=50, every=5)
    rows = found(steps, rare)
    assert rows["a"]["loss_at_equal_tokens"] == 40.0
    assert rows["b"]["equal_tokens"] == 50 * 65536


@pytest.mark.parametrize(
    ("every", "last", "median"),
    [
        (2, 50, 45.0),  # 6 lines in the last fifth, from 40 on; 3 in the last tenth
        (3, 48, 41.0),  # 5 in the last 30 %, from 33.6 on
        (4, 48, 38.5),  # 5 in the last 40 %, from 28.8 on
        (6, 48, 36.0),  # 5 in the last half
    ],
)
def test_a_rare_line_widens_the_window_of_both(every: int, last: int, median: float) -> None:
    steps = [row | {"loss": float(row["step"])} for row in lines("a", steps=50)]
    rows = found(steps, flat("b", 2.0, steps=50, every=every))
    assert rows["a"]["equal_tokens"] == last * 65536
    assert rows["a"]["loss_at_equal_tokens"] == median


def test_losses_of_nothing_are_the_same() -> None:
    rows = found(flat("a", 0.0), flat("b", 0.0))
    assert {row["same_loss"] for row in rows.values()} == {True}


def test_a_count_of_tokens_that_may_hold_padding_is_not_taken() -> None:
    """Where lines tell padding apart, the printed total need not: steps count."""
    padded = [row | {"non_padding_count": 8000.0} for row in lines("a", consumed_tokens=float)]
    rows = found(padded, lines("b"))
    assert rows["a"]["equal_tokens"] == 200 * 65536
    rows = found(lines("a", consumed_tokens=lambda step: step * 65536.0), lines("b"))
    assert rows["a"]["equal_tokens"] == 200 * 65536


def test_losses_that_alternate_scatter_as_far_as_they_alternate() -> None:
    """2.0 and 2.2 by turns, as of two data sources: the median is 2.2, and so are most of both."""

    def turns(run_id: str, odd: float) -> list[dict[str, Any]]:
        rows = flat(run_id, 2.2)
        for row in rows[::3]:
            row["loss"] = odd
        return rows

    both = found(turns("a", 2.0), turns("b", 1.9))
    assert both["a"]["loss_spread"] == pytest.approx(0.2 / 2.563)
    assert found(turns("a", 2.0), flat("b", 2.25))["a"]["same_loss"]
    assert not found(flat("a", 2.2), flat("b", 2.25))["a"]["same_loss"]
