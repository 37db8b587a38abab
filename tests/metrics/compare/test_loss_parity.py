"""Losses at equal tokens: the same work, other work, and where nothing can be said."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pytest

from fairmfu.metrics.compare.loss_parity import compare_losses

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
    return {row["run_id"]: row for row in compare_losses(frame, [ids]).iter_rows(named=True)}


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
    assert found(silent, lines("b"))["a"]["no_loss"] == "a log prints too few losses"
    unknown = lines("a", gpus=None)
    why = found(unknown, lines("b"))["a"]["no_loss"]
    assert why == "a log does not say how many tokens all GPUs trained on"
    broken = [row | {"loss": math.nan} for row in lines("a")]
    assert found(broken, lines("b"))["a"]["no_loss"] == "a log prints too few losses"


def test_one_run_alone_is_not_compared() -> None:
    assert found(lines("a"))["a"]["same_loss"] is None
