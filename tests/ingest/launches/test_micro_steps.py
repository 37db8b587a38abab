"""Optimizer steps whose micro-steps are others than the configuration says."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta

import polars as pl
import pytest

from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts import facts as given
from fairmfu.ingest.formats.deepspeed.engine import BATCH_RAMP_NOTE
from fairmfu.ingest.launches.micro_steps import (
    CONFIGURED_RATE_KEY,
    TimerMicroSteps,
    find_unstated_micro_steps,
    samples_per_step,
)
from fairmfu.ingest.launches.step_alignment import RATE_COLUMN
from fairmfu.metrics.core.messages import NOT_RANKED
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.throughput.messages import BATCH_CHANGES

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


def header(**more: str) -> str:
    """What Megatron prints of its arguments before it trains."""
    values = {"model_parallel_size": "1", "num_layers": "2", "hidden_size": "64", **more}
    values |= {"num_attention_heads": "4", "max_position_embeddings": "512"}
    values |= {"vocab_size": "512", "bf16": "True"}
    lines = (f"  {name} {'.' * (48 - len(name))} {value}\n" for name, value in values.items())
    return f"---- arguments ----\n{''.join(lines)}---- end of arguments ----\n"


def stamped(at: datetime) -> str:
    return f"[{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03}] [INFO]"


def engine_line(at: datetime, step: int) -> str:
    return (
        f"{stamped(at)} [logging.py:107:log_dist] [Rank 0] step={step}, skipped=0, lr=[0.001], "
        "mom=[(0.9, 0.95)]\n"
    )


def trained(
    micro_steps: MicroSteps,
    *,
    engine_from: int = 0,
    epoch: int = 300,
    ranks: Sequence[str] = ("",),
    timed_s: float | None = None,
) -> Iterator[str]:
    """Step lines of 300 steps, each tenth printed; the timer prints the configured batch's rate.

    micro_steps: of each step; engine_from: the step of the checkpoint; epoch: steps in one; ranks:
    tags of those that print; timed_s: the last micro-step of a step, of a timer that is stopped
    once a step
    """
    at, micro = STARTED, 0
    for step in range(1, 301):
        count = micro_steps(step)
        at += timedelta(seconds=count * MICRO_STEP_S)
        micro += count if timed_s is None else 1
        if step % 10 == 0:
            rate = CONFIGURED * SAMPLES / (timed_s or count * MICRO_STEP_S)
            timer = (
                f"{stamped(at)} [timer.py:264:stop] epoch={(step - 1) // epoch}/micro_step={micro}"
                f"/global_step={step}, RunningAvgSamplesPerSec={rate}, CurrSamplesPerSec={rate}, "
                "MemAllocated=4.32GB, MaxMemAllocated=38.49GB\n"
            )
            for line in (engine_line(at, engine_from + step), timer):
                yield from (tag + line for tag in ranks)
        if step % epoch == 0:
            micro = 0


def trained_before_0_8(
    micro_steps: MicroSteps,
    *,
    engine_from: int = 0,
    every: int = 10,
    epoch: int = 300,
    once: bool = False,
) -> Iterator[str]:
    """The same by a timer that prints a line each so many micro-steps, and no step.

    every: optimizer steps between two lines of the engine, and micro-steps between the timer's;
    epoch: steps of one, with which its count begins anew; once: whether it is stopped, and counts,
    once a step, so that it has timed the last micro-step
    """
    at, count = STARTED, 0
    rate = SAMPLES / MICRO_STEP_S
    for step in range(1, 301):
        many = micro_steps(step)
        for done in range(1, many + 1):
            at += timedelta(seconds=MICRO_STEP_S)
            count += not once or done == many
            if done == many and (engine_from + step) % every == 0:
                yield engine_line(at, engine_from + step)
            if count % every == 0 and (not once or done == many):
                yield (
                    f"{stamped(at)} [timer.py:198:stop] {(step - 1) // epoch}/{count}, "
                    f"RunningAvgSamplesPerSec={rate}, CurrSamplesPerSec={rate}, "
                    "MemAllocated=0.36GB, MaxMemAllocated=15.06GB\n"
                )
        if step % epoch == 0:
            count = 0


def waiting(lines: Iterator[str], share: float) -> str:
    """Of which the run waits for data for such a share of its time: no timer times that."""
    return re.sub(
        r"(?<=SamplesPerSec=)[\d.]+", lambda rate: str(float(rate[0]) / (1 - share)), "".join(lines)
    )


@pytest.fixture
def read(logs):
    def of(text: str, *facts: str):
        (logs / "run.log").write_text(text)
        flags = given.facts_from_flags([*FACTS, *facts])
        return read_log_tables(logs / "run.log", flag_facts=flags)

    return of


@pytest.fixture
def measured(read):
    def of(text: str, *facts: str):
        return analyse(read(text, *facts)).metrics.row(0, named=True)

    return of


def steadily(count: int) -> MicroSteps:
    return lambda _: count


def doubles_behind(last: int) -> MicroSteps:
    return lambda step: CONFIGURED if step <= last else 2 * CONFIGURED


def ramps_up(step: int) -> int:
    return 1 + step // 60


@pytest.mark.parametrize("ranks", [("",), ("[rank0]: ", "[rank1]: ")])
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
def test_samples_are_those_of_the_micro_steps(micro_steps, engine_from, ranks, measured):
    """Of a batch that doubled half way TGS was a third too low, in silence."""
    lines = trained(micro_steps, engine_from=engine_from, ranks=ranks)
    row = measured(dump() + "".join(lines))
    assert row["warnings"] == []
    assert row["tgs"] == pytest.approx(TGS)
    assert row["tgs_end_to_end"] == pytest.approx(TGS)


def test_what_the_timer_claims_of_another_batch_is_kept(read):
    steps = read(dump() + "".join(trained(doubles_behind(150))))["steps"]
    row = steps.row(-1, named=True)
    assert row["logged_samples_per_second"] is None
    assert '"micro_step": "1800"' in row["extra"]
    assert '"samples_per_second_as_configured": 8.0}' in row["extra"]


@pytest.mark.parametrize(
    ("text", "facts", "stated"),
    [
        pytest.param(
            dump() + "".join(trained(doubles_behind(150), epoch=100)),
            (),
            "the config has 4",
            id="a count that starts anew with the epoch",
        ),
        pytest.param(
            "".join(trained(doubles_behind(150))),
            ("global_batch_size=32",),
            "the log has no config",
            id="no configuration",
        ),
    ],
)
def test_a_batch_that_is_not_known_is_not_ranked(text, facts, stated, measured):
    why = f"{NOT_RANKED}the timer counts 4 to 8 micro-steps per optimizer step, and {stated}."
    assert measured(text, *facts)["warnings"] == [why]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(dump() + "".join(trained(steadily(4), epoch=100)), id="as configured"),
        pytest.param("".join(trained(steadily(4))), id="no configuration"),
        pytest.param(
            header() + dump() + "".join(trained(steadily(4), timed_s=0.6)),
            id="the timer stops once a step",
        ),
        pytest.param(
            header() + dump() + "".join(trained(steadily(4), timed_s=1.6)),
            id="the same, with an optimizer that takes longer than the rest",
        ),
        pytest.param(
            header() + dump() + "".join(trained(steadily(4), timed_s=1.9)),
            id="the same, with one that takes most of the time",
        ),
    ],
)
def test_the_same_micro_steps_in_each_step_tell_nothing(text, read):
    tables = read(text)
    assert tables["steps"]["consumed_samples"].null_count() == 60
    assert tables["facts"].filter(name="batch_changes").is_empty()


SAYS = (
    f"the config has {CONFIGURED}. Fix: fairmfu set RUN global_batch_size=… "
    "gradient_accumulation=… batch_changes=none"
)


@pytest.mark.parametrize("waits", [0.0, 0.25, 0.8])
@pytest.mark.parametrize("lines", [trained, trained_before_0_8])
def test_one_micro_step_where_several_are_configured_is_not_ranked(lines, waits, measured):
    """The engine was set to it before the first step: TGS was four times as high, in silence.

    Where it waits for data its rate is as much too high as that of a timer that is stopped once a
    step.
    """
    text = dump() + waiting(lines(steadily(1)), waits)
    told = f"{NOT_RANKED}the timer counts 1 micro-step per optimizer step, and {SAYS}"
    assert told in measured(text)["warnings"]


def test_a_timer_that_nobody_is_known_to_stop_once_a_step_is_not_ranked(measured):
    """No header of Megatron's: the same lines may be of a run that waits for data."""
    told = f"{NOT_RANKED}the timer counts 1 micro-step per optimizer step, and {SAYS}"
    assert told in measured(dump() + "".join(trained(steadily(4), timed_s=0.6)))["warnings"]


@pytest.mark.parametrize("sizes", ["['8', '8', '1000']", "None"])
def test_a_batch_that_megatron_ramps_up_is_not_ranked(sizes, measured):
    """Its engine's timer counts one micro-step a step: TGS was 1.28 times as high, in silence."""
    lines = trained(lambda step: min(CONFIGURED, 1 + step // 50), timed_s=0.6)
    row = measured(header(rampup_batch_size=sizes) + dump() + "".join(lines))
    assert (BATCH_CHANGES("unranked", changes=BATCH_RAMP_NOTE) in row["warnings"]) == (
        sizes != "None"
    )


def test_a_batch_that_its_reader_knows_is_ranked(measured):
    batch = (f"global_batch_size={SAMPLES}", "gradient_accumulation=1", "batch_changes=none")
    row = measured(dump() + "".join(trained(steadily(1))), *batch)
    assert row["tgs"] == pytest.approx(TGS)
    assert not any(NOT_RANKED in one for one in row["warnings"])


@pytest.mark.parametrize(
    ("micro_steps", "counted"),
    [
        pytest.param(steadily(1), f"1 micro-step per optimizer step, and {SAYS}", id="one"),
        pytest.param(steadily(8), f"8 micro-steps per optimizer step, and {SAYS}", id="more"),
        pytest.param(
            doubles_behind(150),
            "4 to 8 micro-steps per optimizer step, and the config has 4.",
            id="between two lines",
        ),
        pytest.param(
            doubles_behind(153),
            "4 to 8 micro-steps per optimizer step, and the config has 4.",
            id="within a line",
        ),
        pytest.param(
            ramps_up, "1 to 5 micro-steps per optimizer step, and the config has 4.", id="ramps up"
        ),
    ],
)
@pytest.mark.parametrize("average", ["RunningAvgSamplesPerSec", "SamplesPerSec"])
def test_other_micro_steps_than_configured_show_before_0_8_too(
    micro_steps, counted, average, measured
):
    """By the engine's lines before the timer's: the configured batch counted, in silence."""
    text = "".join(trained_before_0_8(micro_steps))
    if average == "SamplesPerSec":
        text = text.replace("RunningAvg", "").replace("CurrSamplesPerSec=16.0, ", "")
    assert measured(dump() + text)["warnings"] == [f"{NOT_RANKED}the timer counts {counted}"]


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(trained_before_0_8(steadily(4)), id="as configured"),
        pytest.param(trained_before_0_8(steadily(4), engine_from=503), id="resumed"),
        pytest.param(
            trained_before_0_8(steadily(4), engine_from=5, every=7),
            id="a line in the middle of a step",
        ),
        pytest.param(
            [header(), *trained_before_0_8(steadily(4), once=True)],
            id="the timer stops once a step",
        ),
        pytest.param(trained_before_0_8(steadily(4), epoch=37), id="a line's part behind an epoch"),
    ],
)
def test_micro_steps_as_configured_are_ranked_before_0_8(lines, measured):
    row = measured(dump() + "".join(lines))
    assert row["warnings"] == []
    assert row["tgs"] == pytest.approx(TGS, rel=0.002)


@pytest.mark.parametrize("other", [(1, 32), (2, 32), (1, 2)])
def test_an_engine_that_is_another_changes_no_batch(
    other: tuple[int, int], measured: Callable[..., dict[str, object]]
) -> None:
    """A second one, for evaluation say, prints its configuration behind that of the training."""
    row = measured(dump() + dump(*other) + "".join(trained(steadily(CONFIGURED))))
    is_right = row["tgs"] == pytest.approx(TGS)
    assert is_right or any(one.startswith(NOT_RANKED) for one in row["warnings"])  # type: ignore[attr-defined]


def test_a_configuration_that_is_not_the_timers_changes_no_batch(
    measured: Callable[..., dict[str, object]],
) -> None:
    row = measured(dump(1, 2) + "".join(trained(steadily(CONFIGURED))))
    assert any(one.startswith(NOT_RANKED) for one in row["warnings"])  # type: ignore[attr-defined]


# -- what the timer's counts are, without the rest of the analysis -------------------------------


@pytest.mark.parametrize(
    ("lines", "accumulation", "samples"),
    [
        ([*trained(steadily(4))], 4, 4 * SAMPLES),
        ([*trained(steadily(4))], 2, None),  # the counts are of other micro-steps
        ([*trained_before_0_8(steadily(4))], 4, None),  # it counts no step
        ([*trained(steadily(4), ranks=("[rank0]: ", "[rank1]: "))], 4, 4 * SAMPLES),
    ],
    ids=["four", "not two", "no steps", "two ranks"],
)
@pytest.mark.parametrize("engine", [True, False], ids=["engine", "timer alone"])
def test_the_timer_tells_the_samples_of_a_step(lines, accumulation, samples, engine, parse):
    """Its rate times the seconds from line to line, over the steps between them."""
    text = "".join(line for line in lines if engine or "timer.py" in line)
    (launch,) = parse("deepspeed", text).launches
    assert samples_per_step(launch.rows, accumulation) == pytest.approx(samples)


@pytest.mark.parametrize(
    ("micro_steps", "stated", "counted"),
    [
        (steadily(4), [4], None),
        (steadily(4), [2, 4], None),  # of two engines, as one of them says
        (steadily(1), [], None),  # the same in each step
        (steadily(4), [2], (4, 4)),
        (doubles_behind(150), [4], (4, 8)),
        (doubles_behind(150), [], (4, 8)),
    ],
)
def test_micro_steps_are_found_where_none_of_those_stated_fit(micro_steps, stated, counted, parse):
    (launch,) = parse("deepspeed", "".join(trained(micro_steps))).launches
    found = find_unstated_micro_steps(launch.rows, stated, timer_stops_once=False)
    assert (found and (found.least, found.most)) == counted


def test_a_timer_that_is_stopped_once_a_step_tells_no_micro_steps(parse):
    (launch,) = parse("deepspeed", "".join(trained(steadily(1)))).launches
    assert find_unstated_micro_steps(launch.rows, [4], timer_stops_once=True) is None
    found = find_unstated_micro_steps(launch.rows, [4], timer_stops_once=False)
    assert found is not None
    assert not found.is_sure  # it may be stopped so, or have one micro-step a step


def counted(**changes: object) -> TimerMicroSteps:
    """Four micro-steps a step are configured, of 32 samples, and the timer counts eight."""
    said = {"least": 8.0, "most": 8.0, "stated": 4, "firsts": [2], "line": 4, "is_sure": True}
    return TimerMicroSteps(**{**said, "batch": 32.0, **changes})


@pytest.mark.parametrize(
    ("changes", "batch", "known"),
    [
        ({}, 32, True),
        ({"stated": 0}, 32, False),  # the log has no configuration
        ({}, 0, False),
        ({}, 30, False),  # no multiple of four micro-steps
        ({"is_sure": False}, 32, False),
        ({"batch": None}, 32, False),  # without stamps, or a rate
        ({"batch": 47.0}, 32, True),  # the rate leaves out waiting
        ({"batch": 49.0}, 32, False),  # of another engine: 1.5 times as many
        ({"batch": 22.0}, 32, True),
        ({"batch": 21.0}, 32, False),
    ],
)
def test_counts_tell_samples_of_a_batch_that_is_known_alone(changes, batch, known):
    assert (counted(**changes).make_correction(batch) is not None) == known


def test_samples_are_the_micro_steps_so_far_times_those_of_one():
    """32 samples over 4 micro-steps are 8 of each: 80 micro-steps have consumed 640."""
    frame = pl.DataFrame(
        {
            "line": [1, 2, 4, 6],
            "step": [10, 10, 20, 30],
            "extra": [None, *(f'{{"micro_step": "{count}"}}' for count in (80, 160, 240))],
            "logged_samples_per_second": [5.0, 16.0, 16.0, None],
        }
    )
    made = counted().make_correction(32)(frame)
    assert made["consumed_samples"].to_list() == [None, 640, 1280, 1920]
    assert made["samples"].to_list() == [None, 64, None, None]  # no line before the first
    assert made["logged_samples_per_second"].to_list() == [5.0, None, None, None]
    assert made["extra"][1] == '{"micro_step": "80", "samples_per_second_as_configured": 16.0}'
    odd = counted().make_correction(32)(frame.with_columns(step=pl.col("step") + 1))
    assert odd["samples"].to_list() == [None] * 4  # 640 samples are not of 11 steps alike


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"least": 1.0, "most": 1.0},
            "counts 1 micro-step per optimizer step, and the config has 4.",
        ),
        ({"most": 9.5}, "counts 8 to 9.5 micro-steps per optimizer step, and the config has 4"),
        ({"stated": 0}, "counts 8 micro-steps per optimizer step, and the log has no config. Fix"),
    ],
)
def test_what_is_counted_is_said(changes, said):
    assert said in counted(**changes).text
    assert ("Fix: " in counted(**changes).text) == ("most" not in changes or changes["most"] == 1)


@pytest.mark.parametrize("rate", [math.nan, math.inf, -math.inf])
def test_a_moved_rate_that_is_no_number_leaves_the_extra_readable(rate: float) -> None:
    """JSON has no NaN: one such line ended the analysis of its run."""
    lines = {"line": [1, 2], "step": [10, 20], "extra": ['{"micro_step": "40"}'] * 2}
    frame = pl.DataFrame(lines | {RATE_COLUMN: [rate, 4.0]})
    timer = TimerMicroSteps(least=4, most=4, stated=2, firsts=[1], line=1, is_sure=True, batch=16.0)
    correct = timer.make_correction(16)
    assert correct is not None
    found = correct(frame)
    bad, good = (json.loads(extra) for extra in found["extra"])
    assert bad == {"micro_step": "40"}
    assert good == {"micro_step": "40", CONFIGURED_RATE_KEY: 4.0}
