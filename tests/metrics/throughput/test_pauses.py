"""Time outside of the step timer, on windows of known truth."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pytest

from fairmfu.metrics.core.arrays import FloatArray
from tests.metrics.throughput.test_throughput import facts, rates, run, steps

START = datetime(2026, 1, 1)


def logged(gaps: FloatArray, *, stamped: bool = True) -> dict:
    """Return the rates of a run of 10 s a step by its timer, with these seconds between steps."""
    elapsed = 10 + 0.02 * np.random.default_rng(1).standard_normal(len(gaps))
    moments = np.cumsum(elapsed + gaps)
    rows = (
        {"step": at, "elapsed_s": seconds}
        | ({"logged_at": START + timedelta(seconds=moment)} if stamped else {})
        for at, (seconds, moment) in enumerate(zip(elapsed, moments, strict=True), 1)
    )
    return rates(
        steps(*rows), run(evidence=["elapsed", "stamp"], elapsed_covers="interval"), facts(gpus=8)
    )


def test_stretches_with_pauses_are_found_without_any_tokens() -> None:
    gaps = np.where(np.arange(1, 300) % 100 < 40, 1.5, 0.01)
    row = logged(gaps)
    assert row["tgs"] is None
    assert row["levels"] == []
    assert row["seconds_per_step"] == pytest.approx(10, rel=0.001)
    found = [(pause["from_step"], pause["to_step"]) for pause in row["pauses"]]
    assert found == [(2, 39), (40, 99), (100, 139), (140, 199), (200, 239), (240, 299)]
    assert row["pauses"][0]["seconds_per_step"] == pytest.approx(1.5, abs=0.02)
    assert row["pauses"][1]["share"] == pytest.approx(0.001, abs=0.001)


def test_equal_gaps_are_no_finding() -> None:
    assert logged(np.full(100, 0.8))["pauses"] == []


def test_whole_seconds_make_no_pauses() -> None:
    """Steps of 10.004 s: a stamp in 250 is a second late."""
    elapsed = np.full(300, 10.004)
    rows = (
        {"step": at, "elapsed_s": 10.0, "logged_at": START + timedelta(seconds=int(moment))}
        for at, moment in enumerate(np.cumsum(elapsed), 1)
    )
    about = run(evidence=["elapsed", "stamp"], elapsed_covers="interval")
    assert rates(steps(*rows), about, facts(gpus=8))["pauses"] == []


def test_without_stamps_nothing_is_known() -> None:
    assert logged(np.zeros(100), stamped=False)["pauses"] is None
