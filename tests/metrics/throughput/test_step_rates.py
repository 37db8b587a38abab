"""Rates without tokens, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.metrics.throughput.test_throughput import facts, rates, run, steps

NAMES = ("seconds_per_step", "samples_per_second", "tokens_per_update")


def logged(about: dict, fact_values: dict, *, seconds: float = 2.0, **columns: float) -> dict:
    rows = ({"step": at, "elapsed_s": seconds} | columns for at in range(1, 13))
    return rates(steps(*rows), run(elapsed_covers="interval", **about), facts(**fact_values))


def test_time_per_step_needs_no_fact() -> None:
    row = logged({}, {})
    assert [row[name] for name in NAMES] == [2.0, None, None]
    assert row["seconds_per_step_low"] <= 2.0 <= row["seconds_per_step_high"]


def test_samples_are_the_batch_over_the_time() -> None:
    """256 samples in 2 s."""
    assert logged({}, {"global_batch_size": 256})["samples_per_second"] == 128.0


def test_micro_steps_share_a_batch() -> None:
    """A batch of 64 in 4 micro-steps of 2 s: 8 samples a second; 8 GPUs of 2 x 4,096 tokens."""
    given_ = {
        "global_batch_size": 64,
        "micro_batch_size": 2,
        "gradient_accumulation": 4,
        "gpus": 8,
        "seq_len": 4096,
        "packed": "true",
    }
    row = logged({"step_unit": "micro_step"}, given_)
    assert row["samples_per_second"] == 8.0
    assert row["tokens_per_update"] == 2 * 4096 * 8 * 4
    unknown = logged({"step_unit": "micro_step"}, {"global_batch_size": 64})
    assert unknown["samples_per_second"] is None


def test_a_batch_that_varies_has_no_samples_per_second() -> None:
    rows = ({"step": at, "elapsed_s": 2.0, "step_tokens": 100.0 + at} for at in range(1, 13))
    row = rates(steps(*rows), run(elapsed_covers="interval"), facts(gpus=1, global_batch_size=4))
    assert row["samples_per_second"] is None
    assert row["tokens_per_update"] is None


def test_a_rate_of_unknown_tokens_times_no_step() -> None:
    rows = ({"step": at, "logged_tgs": 500.0} for at in range(1, 13))
    row = rates(steps(*rows), run(evidence=["rate"], rate_covers="step"), facts())
    assert row["tgs"] == pytest.approx(500)
    assert row["seconds_per_step"] is None


def test_the_peak_is_the_largest_of_all_lines() -> None:
    rows = ({"step": at, "elapsed_s": 1.0, "peak_memory_bytes": at * 1e9} for at in range(1, 13))
    assert rates(steps(*rows), run(elapsed_covers="interval"), facts())["peak_memory_bytes"] == 12e9


@settings(max_examples=10)
@given(st.integers(1, 512), st.integers(1, 64), st.sampled_from([128, 4096]), st.floats(0.1, 99))
def test_samples_tokens_and_tgs_agree(batch: int, gpus: int, length: int, seconds: float) -> None:
    row = logged({}, {"global_batch_size": batch, "gpus": gpus, "seq_len": length}, seconds=seconds)
    tokens_per_second = row["tgs"] * gpus
    assert row["samples_per_second"] * length == pytest.approx(tokens_per_second)
    assert row["tokens_per_update"] / row["seconds_per_step"] == pytest.approx(tokens_per_second)
    assert np.isfinite(row["tokens_per_update"])


@given(st.integers(1, 5000), st.floats(0.01, 500), st.integers(1, 4))
def test_the_logged_rate_names_one_batch_or_none(batch: int, seconds: float, decimals: int) -> None:
    """Rounded samples/s and step times never name a wrong batch."""
    rows = []
    for step in range(1, 13):
        took = seconds * (1 + 0.001 * (step % 3))
        rate = round(batch / took, decimals)
        rows.append(
            {"step": step, "elapsed_s": round(took, 3), "logged_samples_per_second": rate or None}
        )
    row = rates(steps(*rows), run(elapsed_covers="interval"), facts())
    assert row["samples_per_update"] in (None, batch)


@pytest.mark.parametrize(
    ("printed", "stated", "batch"),
    [([16] * 12, None, 16), ([16] * 12, 32, 32), ([16] * 6 + [32] * 6, None, None)],
)
def test_a_batch_printed_with_the_steps_counts_unless_the_run_states_another(
    printed: list[int], stated: int | None, batch: int | None
) -> None:
    """A fork of Megatron-DeepSpeed prints the batch of one replica with its steps."""
    rows = ({"step": n, "elapsed_s": 2.0, "samples": of} for n, of in enumerate(printed, 1))
    given = facts() if stated is None else facts(global_batch_size=stated)
    row = rates(steps(*rows), run(elapsed_covers="interval"), given)
    assert row["samples_per_update"] == batch
    assert row["samples_per_second"] == (batch and batch / 2)


@pytest.mark.parametrize("gpus", [1, 6, 7])
def test_while_a_batch_ramps_up_its_size_is_that_of_the_lines(gpus: int) -> None:
    """The run states the size at its end: 12 samples in 2 s, not 1,536."""
    given_ = {"global_batch_size": 1536, "seq_len": 2048, "gpus": gpus, "packed": "true"}
    row = logged({}, given_, samples=12)
    assert (row["samples_per_update"], row["samples_per_second"]) == (12, 6)
    assert row["tokens_per_update"] == 12 * 2048
    assert row["tgs"] * gpus == pytest.approx(6 * 2048)


def test_a_changing_rate_names_no_batch() -> None:
    rows = (
        {"step": at, "elapsed_s": 2.0, "logged_samples_per_second": 2.0 + at % 2}
        for at in range(1, 13)
    )
    row = rates(steps(*rows), run(elapsed_covers="interval"), facts())
    assert row["samples_per_update"] is None


@pytest.mark.parametrize(
    ("seconds", "shows_range"), [((0, 1, 2, 2), True), ((0, 9, 19, 28), False)]
)
def test_few_ticks_of_a_clock_of_whole_seconds_are_a_range(
    seconds: tuple[int, ...], *, shows_range: bool
) -> None:
    rows = ({"step": 7 + n, "since_start_s": 1500.0 + s} for n, s in enumerate(seconds))
    row = rates(steps(*rows), run(evidence=["clock"]), facts())
    found = [row[f"seconds_per_step{side}"] for side in ("", "_low", "_high")]
    whole = seconds[-1]
    if shows_range:  # a second more or less
        assert found == pytest.approx([whole / 3, (whole - 1) / 3, (whole + 1) / 3])
    else:
        assert found == [pytest.approx(whole / 3), None, None]
