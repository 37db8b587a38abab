"""Optimizer steps whose micro-steps are others than the configuration says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

import pytest

from ingest import facts as given
from ingest.schema import TABLES
from metrics.analysis import analyse
from metrics.table import NOT_RANKED

STARTED = datetime(2026, 5, 1, 10)
MICRO_STEP_S = 0.5
SAMPLES = 8
"""Of a micro-step, over both ranks."""
FACTS = ("gpus=2", "seq_len=512", "packed=true")
TGS = SAMPLES * 512 / 2 / MICRO_STEP_S
CONFIGURED = 4

MicroSteps = Callable[[int], int]


def dump(count: int = CONFIGURED, batch: int = CONFIGURED * SAMPLES) -> str:
    """What the engine prints of its configuration."""
    line = "[2026-05-01 10:00:00,000] [INFO] [config.py:1007:print]   {} {} {}\n"
    values = {"gradient_accumulation_steps": count, "train_batch_size": batch}
    return "".join(line.format(name, "." * (29 - len(name)), v) for name, v in values.items())


def trained(micro_steps: MicroSteps, *, engine_from: int = 0, epoch: int = 300) -> Iterator[str]:
    """Step lines of 300 steps, each tenth printed; the timer prints the configured batch's rate.

    micro_steps: of each step; engine_from: the step of the checkpoint; epoch: steps in one
    """
    at, micro = STARTED, 0
    for step in range(1, 301):
        count = micro_steps(step)
        at, micro = at + timedelta(seconds=count * MICRO_STEP_S), micro + count
        if step % 10 == 0:
            stamp = f"[{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}] [INFO]"
            rate = CONFIGURED * SAMPLES / (count * MICRO_STEP_S)
            yield (
                f"{stamp} [logging.py:107:log_dist] [Rank 0] step={engine_from + step}, skipped=0, "
                "lr=[0.001], mom=[(0.9, 0.95)]\n"
            )
            yield (
                f"{stamp} [timer.py:264:stop] epoch={(step - 1) // epoch}/micro_step={micro}"
                f"/global_step={step}, RunningAvgSamplesPerSec={rate}, CurrSamplesPerSec={rate}, "
                "MemAllocated=4.32GB, MaxMemAllocated=38.49GB\n"
            )
        if step % epoch == 0:
            micro = 0


@pytest.fixture
def measured(ingest, store, logs):
    def of(text: str, *facts: str):
        (logs / "run.log").write_text(text)
        ingest(logs / "run.log", extra=given.from_flags([*FACTS, *facts]))
        return analyse({name: store.table(name) for name in TABLES}).metrics.row(0, named=True)

    return of


def steadily(count: int) -> MicroSteps:
    return lambda _: count


def doubles_behind(last: int) -> MicroSteps:
    return lambda step: CONFIGURED if step <= last else 2 * CONFIGURED


def ramps_up(step: int) -> int:
    return 1 + step // 60


@pytest.mark.parametrize(
    ("micro_steps", "engine_from"),
    [
        pytest.param(steadily(CONFIGURED), 0, id="as configured"),
        pytest.param(doubles_behind(150), 0, id="between two lines"),
        pytest.param(doubles_behind(153), 0, id="within a line"),
        pytest.param(doubles_behind(153), 500, id="resumed"),
        pytest.param(ramps_up, 0, id="ramps up"),
        pytest.param(steadily(8), 0, id="more from the first step on"),
        pytest.param(steadily(2), 0, id="fewer from the first step on"),
    ],
)
def test_samples_are_those_of_the_micro_steps(micro_steps, engine_from, measured):
    """Of a batch that doubled half way TGS was a third too low, in silence."""
    row = measured(dump() + "".join(trained(micro_steps, engine_from=engine_from)))
    assert row["warnings"] == []
    assert row["tgs"] == pytest.approx(TGS)
    assert row["tgs_end_to_end"] == pytest.approx(TGS)


def test_what_the_timer_claims_of_another_batch_is_kept(measured, store):
    measured(dump() + "".join(trained(doubles_behind(150))))
    row = store.table("steps").row(-1, named=True)
    assert row["logged_samples_per_second"] is None
    assert '"micro_step": "1800"' in row["extra"]
    assert '"samples_per_second_as_configured": 8.0}' in row["extra"]


@pytest.mark.parametrize(
    ("text", "facts", "stated"),
    [
        pytest.param(
            dump() + "".join(trained(doubles_behind(150), epoch=100)),
            (),
            "4 are configured",
            id="a count that starts anew with the epoch",
        ),
        pytest.param(
            "".join(trained(doubles_behind(150))),
            ("global_batch_size=32",),
            "the log has no configuration",
            id="no configuration",
        ),
    ],
)
def test_a_batch_that_is_not_known_is_not_ranked(text, facts, stated, measured):
    why = f"the timer counts 4 to 8 micro-steps an optimizer step, and {stated}{NOT_RANKED}"
    assert measured(text, *facts)["warnings"] == [why]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(dump() + "".join(trained(steadily(4), epoch=100)), id="as configured"),
        pytest.param(dump() + "".join(trained(steadily(1))), id="the timer stops once a step"),
        pytest.param("".join(trained(steadily(4))), id="no configuration"),
    ],
)
def test_the_same_micro_steps_in_each_step_tell_nothing(text, measured, store):
    measured(text)
    assert store.table("steps")["consumed_samples"].null_count() == 60
    assert store.table("facts").filter(name="batch_changes").is_empty()


@pytest.mark.parametrize("other", [(1, 32), (2, 32), (1, 2)])
def test_an_engine_that_is_another_changes_no_batch(
    other: tuple[int, int], measured: Callable[..., dict[str, object]]
) -> None:
    """A second one, for evaluation say, prints its configuration behind that of the training."""
    row = measured(dump() + dump(*other) + "".join(trained(steadily(CONFIGURED))))
    is_right = row["tgs"] == pytest.approx(TGS)
    assert is_right or any(one.endswith(NOT_RANKED) for one in row["warnings"])  # type: ignore[attr-defined]


def test_a_configuration_that_is_not_the_timers_changes_no_batch(
    measured: Callable[..., dict[str, object]],
) -> None:
    row = measured(dump(1, 2) + "".join(trained(steadily(CONFIGURED))))
    assert any(one.endswith(NOT_RANKED) for one in row["warnings"])  # type: ignore[attr-defined]
