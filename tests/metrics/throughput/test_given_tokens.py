"""Tokens by a mean that a user gives: their rate, their basis, and what contradicts them."""

from __future__ import annotations

from typing import Any

import pytest

from fairmfu.metrics.core.messages import NOT_RANKED
from tests.metrics.compare.test_pairs import Run, run

__all__ = ["run"]  # a fixture


BASIS = "given"


def scored(run: Run, **facts: Any) -> dict[str, Any]:
    return run({"packed": None, "seq_len": None, "flops_per_token": 5e10} | facts)


@pytest.mark.parametrize("share", [1.0, 0.7])
def test_tokens_per_step_are_a_rate_of_their_own_basis(run: Run, share: float) -> None:
    whole = run({})
    batch = whole["tokens_per_update"]
    row = scored(run, tokens_per_step=share * batch)
    assert row["tgs"] == pytest.approx(share * whole["tgs"])
    assert row["token_basis"] == BASIS
    assert row["mfu"] == pytest.approx(row["tgs"] * 5e10 / 989.4e12)
    assert "tokens-given" in row["warning_kinds"]


def test_a_mean_length_counts_the_samples_of_a_step(run: Run) -> None:
    whole = run({})
    row = scored(run, mean_sample_length=1024.0)
    assert row["tgs"] == pytest.approx(whole["tgs"] / 8)
    assert row["token_basis"] == BASIS
    assert row["missing"] == []


def test_shorter_samples_leave_the_formula_a_range(run: Run) -> None:
    """Their pairs are not known: no MFU of whole sequences for them."""
    row = run({"packed": None, "mean_sample_length": 1024.0})
    assert row["mfu"] is None
    assert "padded-lengths-unknown" in row["warning_kinds"]
    assert "attended_pairs" in row["missing"]


def test_samples_of_two_sequences_have_twice_the_tokens(run: Run) -> None:
    whole = run({})
    pairs = run({"sequences_per_sample": 2})
    assert pairs["tgs"] == pytest.approx(2 * whole["tgs"])
    preferred = run({"sequences_per_sample": 2, "objective": "preference"})
    assert preferred["tgs"] == pytest.approx(2 * whole["tgs"])
    assert run({"objective": "preference"})["tgs"] is None


def test_more_tokens_than_slots_are_not_ranked(run: Run) -> None:
    batch = run({})["tokens_per_update"]
    row = run({"tokens_per_step": 2 * batch})
    assert any(str(text).startswith(NOT_RANKED) for text in row["warnings"])
