"""Joules per token: printed in a log, or of power samples beside it."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmfu.ingest.formats.power_samples import MAX_ROUNDS, power_facts
from fairmfu.metrics import analyse
from fairmfu.metrics.utilization.messages import ENERGY_UNKNOWN
from tests.support.effort import THOROUGH
from tests.support.one_log import tables_of

START = datetime(2026, 11, 20, 10, 0)
GPUS, TGS, STEP_S, STEPS = 2, 1000, 2.0, 120
EXAMPLES = 20 if THOROUGH else 5


def titan(folder: Path, steps: int = STEPS) -> Path:
    """Return Torchtitan's log of as many steps of 2 s, 1,000 tokens a second on each GPU."""
    lines = [
        f"[rank0]:[titan] {START + timedelta(seconds=STEP_S * step):%Y-%m-%d %H:%M:%S},000 - root "
        f"- INFO - step: {step:2}  loss:  6.5  grad_norm:  0.5  memory: 10.00GiB(10.00%)  "
        f"tps: {TGS:,}  tflops: 10.00  mfu: 5.00%"
        for step in range(1, steps + 1)
    ]
    log = folder / "run.log"
    log.write_text("\n".join(lines) + "\n")
    return log


def smi(  # noqa: PLR0913 - forms of one file
    folder: Path,
    *,
    busy: float = 400.0,
    idle: float = 70.0,
    ahead_s: float = 0.0,
    around_s: int = 90,
    gpus: int = GPUS,
) -> None:
    """Write nvidia-smi's samples of each second, from before the log to after it."""
    seconds = STEP_S * STEPS
    lines = ["timestamp, index, power.draw [W]"]
    for at in range(-around_s, int(seconds) + around_s):
        stamp = START + timedelta(seconds=at + ahead_s)
        watts = busy if 0 <= at < seconds else idle
        lines += [
            f"{stamp:%Y/%m/%d %H:%M:%S}.{gpu:03}, {gpu}, {watts:.2f} W" for gpu in range(gpus)
        ]
    (folder / "power.csv").write_text("\n".join(lines) + "\n")


def row_of(log: Path, **facts: object) -> dict[str, Any]:
    return analyse(tables_of(log, facts={"gpus": GPUS} | facts)).metrics.row(0, named=True)


@settings(max_examples=EXAMPLES)
@given(watts=st.floats(200, 1200), quarters=st.integers(-56, 56))
def test_samples_give_the_watts_over_the_tokens_whatever_the_zone(
    watts: float, quarters: int
) -> None:
    with TemporaryDirectory() as folder:
        smi(Path(folder), busy=watts, ahead_s=900 * quarters)
        row = row_of(titan(Path(folder)))
    assert row["joules_per_token"] == pytest.approx(watts / TGS, rel=0.01)
    assert row["kwh_per_billion_tokens"] == pytest.approx(row["joules_per_token"] * 1e9 / 3.6e6)
    assert row["power_w"] == pytest.approx(watts, rel=0.01)
    assert ("h apart" in row["energy_source"]) is bool(quarters)
    assert ENERGY_UNKNOWN.identifier not in row["warning_kinds"]


def why_unknown(row: dict[str, Any]) -> str:
    assert row["joules_per_token"] is None
    (why,) = [text for text in row["warnings"] if text.startswith("Energy per token")]
    return str(why)


@pytest.mark.parametrize(
    ("changes", "facts", "why"),
    [
        ({"ahead_s": 400.0}, {}, "clock of the power samples"),
        ({"around_s": 0}, {}, "sample from before the start"),
        ({"idle": 400.0}, {}, "clock of the power samples"),
        ({"gpus": 3}, {}, "samples of 3 GPUs and a run of 2"),
        ({"busy": 20.0, "idle": 1.0}, {"gpus": 2}, None),
        ({"busy": 4.0, "idle": 1.0}, {}, "would mean 4 W for one GPU"),
    ],
)
def test_samples_that_decide_nothing_give_no_energy(
    changes: dict[str, float], facts: dict[str, object], why: str | None, tmp_path: Path
) -> None:
    smi(tmp_path, **changes)  # type: ignore[arg-type]
    row = row_of(titan(tmp_path), **facts)
    if why is None:
        assert row["joules_per_token"] is not None
    else:
        assert why in why_unknown(row)


def test_a_clock_that_the_user_vouches_for_needs_no_low_power(tmp_path: Path) -> None:
    smi(tmp_path, around_s=0)
    row = row_of(titan(tmp_path), power_clock="log")
    assert row["joules_per_token"] == pytest.approx(0.4, rel=0.01)
    smi(tmp_path, around_s=0, ahead_s=150.0)
    assert "cover only" in why_unknown(row_of(titan(tmp_path), power_clock="log"))


def test_samples_of_some_gpus_say_so(tmp_path: Path) -> None:
    smi(tmp_path)
    row = row_of(titan(tmp_path), gpus=8)
    assert row["joules_per_token"] == pytest.approx(0.4, rel=0.01)
    assert "of 2 of 8 GPUs" in row["energy_source"]


# -- in the log ----------------------------------------------------------------------------


def megatron(folder: Path, joules: float, steps: int = 40) -> Path:
    """Return Megatron's log of 10 iterations a line, 2 s and 4,096 tokens each on each GPU."""
    lines = [
        f" [2026-11-20 10:{step * 2 // 60:02}:{step * 2 % 60:02}] iteration {step:8}/    1000 | "
        f"consumed samples: {step * 4:12} | elapsed time per iteration (ms): 2000.0 | "
        f"energy per GPU (J/iter/GPU): {joules:.1f} | power per GPU (W/GPU): {joules / 2:.1f} | "
        "learning rate: 1.0E-04 | global batch size:     4 | lm loss: 1.0E+01 | loss scale: 1.0 | "
        "grad norm: 1.0 | number of skipped iterations:   0 | number of nan iterations:   0 |"
        for step in range(10, steps * 10 + 1, 10)
    ]
    log = folder / "megatron.log"
    log.write_text("\n".join(lines) + "\n")
    return log


@settings(max_examples=EXAMPLES)
@given(joules=st.floats(200, 2000))
def test_printed_energy_is_of_an_iteration_on_one_gpu(joules: float) -> None:
    with TemporaryDirectory() as folder:
        row = row_of(megatron(Path(folder), joules), seq_len=2048)
    assert row["tgs"] == pytest.approx(4 * 2048 / GPUS / 2)
    assert row["joules_per_token"] == pytest.approx(round(joules, 1) / (4 * 2048 / GPUS))
    assert row["power_w"] == pytest.approx(round(joules, 1) / 2)
    assert row["energy_source"] == "the log's energy per GPU"


def test_samples_that_contradict_the_log_are_named(tmp_path: Path) -> None:
    log = megatron(tmp_path, 800.0, steps=12)
    global_steps = 240
    lines = ["timestamp, index, power.draw [W]"]
    for at in range(-90, global_steps + 90):
        stamp = START + timedelta(seconds=at)
        watts = 700.0 if 0 <= at <= global_steps else 60.0
        lines += [f"{stamp:%Y/%m/%d %H:%M:%S}.000, {gpu}, {watts} W" for gpu in range(GPUS)]
    (tmp_path / "power.csv").write_text("\n".join(lines) + "\n")
    row = row_of(log, seq_len=2048)
    assert row["joules_per_token"] == pytest.approx(800 / 4096)
    assert ENERGY_UNKNOWN.identifier in row["warning_kinds"]


# -- files ---------------------------------------------------------------------------------

DCGM = "#Entity   GPUUTL    POWER\nID                  W\n"


def test_dcgm_without_stamps_is_named(tmp_path: Path) -> None:
    rows = "".join(f"GPU {gpu}     98        400.5\n" for _ in range(9) for gpu in range(GPUS))
    (tmp_path / "dcgm.txt").write_text(DCGM + rows)
    assert "no time stamps" in why_unknown(row_of(titan(tmp_path)))


def test_dcgm_with_stamps_is_read_as_nvidia_smi_is() -> None:
    stamps = [f"{START + timedelta(seconds=at):%Y-%m-%d %H:%M:%S}" for at in range(9)]
    rows = [f"{stamp} GPU {gpu}  98  {400 + gpu}" for stamp in stamps for gpu in range(GPUS)]
    found = json.loads(power_facts([*DCGM.splitlines(), *rows])["power_samples"])
    assert (found["tool"], found["gpus"], found["watts"]) == ("dcgmi", 2, [801.0] * 9)
    assert found["seconds"] == [*map(float, range(9))]


@given(st.lists(st.text(), max_size=30))
def test_no_text_fails_as_samples(lines: list[str]) -> None:
    power_facts(lines)
    power_facts(["timestamp, index, power.draw [W]", *lines])
    power_facts(["#Entity POWER", *lines])


@pytest.mark.parametrize("rounds", [MAX_ROUNDS - 1, MAX_ROUNDS, 3 * MAX_ROUNDS + 1])
def test_long_series_keep_their_energy(rounds: int) -> None:
    stamps = [START + timedelta(seconds=at) for at in range(rounds)]
    lines = [
        "timestamp, uuid, power.draw [W]",
        *(f"{t:%Y/%m/%d %H:%M:%S}.000, GPU-1, {at % 500} W" for at, t in enumerate(stamps)),
    ]
    found = json.loads(power_facts(lines)["power_samples"])
    edges = [*found["seconds"], found["end"]]
    energy = sum(
        watts * (later - now)
        for watts, now, later in zip(found["watts"], edges[:-1], edges[1:], strict=True)
    )
    assert len(found["watts"]) <= MAX_ROUNDS
    assert energy == pytest.approx(sum(at % 500 for at in range(rounds - 1)), rel=0.01)
