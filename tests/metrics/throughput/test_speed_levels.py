"""Speeds inside a run, on windows of known truth."""

from __future__ import annotations

import re

import numpy as np
import pytest

from fairmfu.metrics.core.arrays import FloatArray
from fairmfu.metrics.core.run_table import SpeedLevel
from fairmfu.metrics.throughput import messages
from fairmfu.metrics.throughput.speed_levels import (
    MAX_RANKED_DRIFT,
    OTHER_SPEED,
    describe_level,
)
from tests.metrics.throughput.test_throughput import facts, of_kinds, rates, run, steps

FACTS = facts(gpus=8, global_batch_size=8, seq_len=100, log_interval=10)
KINDS = (
    *(messages.SPEED_CHANGED, messages.NO_LASTING_SPEED, messages.SPEED_ALTERNATES),
    messages.SPEED_DRIFTS,
)


def logged(pace: FloatArray, *events: dict, given: object = FACTS, **columns: FloatArray) -> dict:
    """Return the rates of a run with these seconds per step and 100 tokens per GPU and step."""
    rows = (
        {"line": 2 * i, "step": 10 * i, "elapsed_s": s}
        | {name: values[i - 1] for name, values in columns.items()}
        for i, s in enumerate(pace, 1)
    )
    return rates(steps(*rows), run(elapsed_covers="interval"), given, *events)


def noisy(windows: int, seed: int = 1, spread: float = 0.003) -> FloatArray:
    return 1 + spread * np.random.default_rng(seed).standard_normal(windows)


def levels(row: dict) -> list[tuple[int, int]]:
    return [(level["from_step"], level["to_step"]) for level in row["levels"]]


def test_a_slow_down_splits_the_run_and_the_longer_part_ranks() -> None:
    """Steps 1 to 700 at 100 tokens/s/GPU, then 80: a loss of 20 %."""
    pace = noisy(100)
    pace[70:] /= 0.8
    row = logged(pace, {"line": 141, "kind": "checkpoint"}, {"line": 141, "kind": "timers"})
    assert levels(row) == [(11, 700), (711, 1000)]  # window 71 holds the checkpoint
    assert row["tgs"] == pytest.approx(100 / pace[1:70].mean())
    assert row["tgs_low"] < 100 < row["tgs_high"]
    assert OTHER_SPEED in row["excluded_causes"]
    first, second = row["levels"]
    assert (first["ranked"], second["ranked"]) == (True, False)
    assert second["tgs"] == pytest.approx(80, rel=0.005)
    assert second["change_low"] < -0.2 < second["change_high"]
    assert second["change_high"] - second["change_low"] < 0.01
    # 29 windows of 10 steps of 1 / 0.8 s, of which a fifth is lost, on 8 GPUs
    assert second["gpu_hours_lost"] == pytest.approx(29 * 12.5 * 0.2 * 8 / 3600, rel=0.02)
    assert second["events"] == ["checkpoint"]
    (text,) = of_kinds(row, *KINDS)
    assert text.startswith(
        "Speed changed inside the run, and TGS is only of steps 11 to 700. TGS by steps: "
        "11 to 700: 100; 711 to 1,000: 80 (-20"
    )


def test_the_later_speed_ranks_where_it_lasts_longer() -> None:
    pace = noisy(100)
    pace[:40] *= 0.9
    row = logged(pace)
    assert [level["ranked"] for level in row["levels"]] == [False, True]
    assert row["tgs"] == pytest.approx(100, rel=0.003)
    assert row["steady_from"] == 400


def test_both_sides_of_an_episode_rank_together() -> None:
    pace = noisy(100)
    pace[40:60] /= 0.7
    row = logged(pace)
    assert levels(row) == [(11, 400), (401, 600), (601, 1000)]
    assert [level["ranked"] for level in row["levels"]] == [True, False, True]
    assert row["tgs"] == pytest.approx(100, rel=0.003)
    assert row["levels"][2]["gpu_hours_lost"] is None
    (text,) = of_kinds(row, messages.SPEED_CHANGED)
    assert "only of steps 11 to 400 and 601 to 1,000" in text


def test_without_a_speed_of_half_the_steps_a_run_is_not_ranked() -> None:
    pace = noisy(100)
    pace[35:70] *= 1.1
    pace[70:] *= 1.3
    (text,) = of_kinds(logged(pace), *KINDS)
    assert text.startswith("Not ranked: speed changed inside the run, and no speed lasted for half")


def test_many_changes_are_one_alternating_speed() -> None:
    pace = noisy(160)
    pace[np.arange(160) // 10 % 2 == 0] *= 1.5
    row = logged(pace)
    assert row["tgs"] == pytest.approx(100 / pace[1:].mean(), rel=1e-6)
    (text,) = of_kinds(row, *KINDS)
    assert re.match(r"TGS is a mean of changing speeds: 1\d changes, the slowest .* 1\.5.x", text)


@pytest.mark.parametrize("loss", [0.05, 0.3])
def test_a_drift_is_told_with_its_size(loss: float) -> None:
    slower = np.exp(np.linspace(0, -np.log1p(-loss), 99))
    row = logged(noisy(100) * np.concatenate([[1.0], slower]))
    assert row["levels"] == []
    assert row["drift_low"] < -loss < row["drift_high"]
    (text,) = of_kinds(row, messages.SPEED_DRIFTS)
    assert text.startswith("Not ranked: ") == (loss > MAX_RANKED_DRIFT)


def test_a_healthy_run_has_no_levels_and_no_word() -> None:
    for seed in range(5):
        row = logged(noisy(100, seed))
        assert (row["levels"], row["drift"]) == ([], None)
        assert not of_kinds(row, *KINDS)


def test_too_few_windows_are_not_judged() -> None:
    """The first window is start-up."""
    pace = noisy(10)
    pace[5:] *= 2
    assert logged(pace)["levels"] is None


@pytest.mark.parametrize("windows", [11, 14, 17, 20])
def test_a_short_run_that_slows_down_halfway(windows: int) -> None:
    pace = noisy(windows, seed=windows)
    half = windows // 2 + 1
    pace[half:] *= 1.2
    row = logged(pace)
    assert levels(row) == [(11, 10 * half), (10 * half + 1, 10 * windows)]
    assert row["levels"][1]["change"] == pytest.approx(1 / 1.2 - 1, abs=0.01)
    assert of_kinds(row, messages.SPEED_CHANGED, messages.NO_LASTING_SPEED)


def test_a_healthy_short_run_has_one_speed() -> None:
    for seed in range(40):
        row = logged(noisy(11 + seed % 10, seed, 0.01))
        assert (row["levels"], row["drift"]) == ([], None), seed


def test_stalls_are_no_level() -> None:
    pace = noisy(100)
    pace[[20, 21, 22, 60, 80]] *= 4
    assert logged(pace)["levels"] == []


def ramp(counts: FloatArray, slower: FloatArray | float = 1.0) -> dict:
    """Return the rates of a run with so many tokens per window and step, at one speed a batch."""
    bigger = np.where(counts > 100, 0.8, 1.0)  # a larger batch is faster per token
    pace = noisy(100) * counts / 100 * bigger * slower
    return logged(pace, step_tokens=counts, given=facts(gpus=8))


@pytest.mark.parametrize("steps_", [(50, 50), (20, 20, 60)])
def test_a_batch_ramp_is_no_change_of_speed(steps_: tuple[int, ...]) -> None:
    row = ramp(np.repeat([100.0, 200.0, 400.0][: len(steps_)], steps_))
    assert row["tgs"] is not None
    assert row["levels"] == []


def test_a_slow_down_beside_a_batch_ramp_is_found() -> None:
    row = ramp(np.repeat([100.0, 200.0], 50), np.where(np.arange(100) >= 75, 1.2, 1.0))
    assert levels(row) == [(11, 750), (751, 1000)]
    assert row["levels"][1]["change"] == pytest.approx(1 / 1.2 - 1, abs=0.01)


def test_lengths_that_differ_by_step_hide_no_slow_down() -> None:
    """Time grows with the square of the length, and the speed falls by 10 % halfway."""
    lengths = np.random.default_rng(2).uniform(500, 1500, 100)
    pace = noisy(100) * (1 + lengths / 3000)
    assert logged(pace, sequence_length=lengths)["levels"] == []
    pace[50:] /= 0.9
    row = logged(pace, sequence_length=lengths)
    assert levels(row) == [(11, 500), (501, 1000)]
    assert row["levels"][1]["change"] == pytest.approx(-0.1, abs=0.01)


def test_coarse_times_make_no_level() -> None:
    """Times of 0.1 s: 1.24 s and 1.26 s print as 1.2 and 1.3, 8 % apart."""
    pace = np.round(np.repeat([1.24, 1.26], 50), 1)
    assert logged(pace)["levels"] == []


def test_the_interval_of_a_change_is_by_the_noise_of_the_whole_run() -> None:
    """Nine windows alone know their own noise badly: by them, 5 % may be none."""
    pace = noisy(200, spread=0.012)
    pace[:10] *= 0.95
    pace[1:10] *= [1.03, 1.0, 0.98, 0.985, 0.98, 0.985, 0.99, 1.015, 1.015]  # a hump
    _, second = logged(pace)["levels"]
    assert second["change_low"] < -0.05 < second["change_high"] < -0.03


def test_stalls_widen_the_interval_of_a_change() -> None:
    pace = noisy(100)
    pace[60:] *= 1.1
    calm = logged(pace)["levels"][1]
    pace[[70, 80, 90]] *= 1.6
    stalled = logged(pace)["levels"][1]
    assert stalled["change"] < calm["change"]
    assert calm["change_high"] - calm["change_low"] < 0.01
    assert stalled["change"] - stalled["change_low"] > 0.02


def clocked(pace: FloatArray) -> dict:
    """Return the rates of a run with these seconds per step, by a clock of whole seconds."""
    rows = ({"step": i, "since_start_s": s} for i, s in enumerate(np.floor(np.cumsum(pace)), 1))
    given = facts(gpus=8, global_batch_size=8, seq_len=100, log_interval=1)
    return rates(steps(*rows), run(evidence=["clock"]), given)


def test_steps_shorter_than_the_clock_has_their_mean_speed() -> None:
    """Steps of 0.7 s and 0.9 s print as 0 s or 1 s; without the zeros both are 1 s."""
    pace = 0.7 * noisy(600)
    assert clocked(pace)["levels"] == []
    pace[300:] *= 9 / 7
    _, second = clocked(pace)["levels"]
    assert second["from_step"] == pytest.approx(301, abs=8)
    assert second["change"] == pytest.approx(7 / 9 - 1, abs=0.01)


def test_a_level_in_words() -> None:
    level: SpeedLevel = {
        "from_step": 586,
        "to_step": 1024,
        "windows": 439,
        "seconds": 340.7,
        "seconds_per_step": 0.7762,
        "tgs": 168_830.4,
        "tgs_low": None,
        "tgs_high": None,
        "ranked": False,
        "change": -0.2319,
        "change_low": -0.24,
        "change_high": -0.22,
        "gpu_hours_lost": 0.16,
        "events": [],
        "phases": None,
    }
    assert describe_level(level) == "586 to 1,024: 168,830 (-23.2%)"
    assert describe_level(level | {"tgs": None}) == "586 to 1,024: 0.776 s a step (-23.2%)"
