"""DeepSpeed's engines: which of several a log's lines are of, and how many ranks a batch counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts import facts as given
from fairmfu.ingest.facts.companion_files import facts_from_companions
from fairmfu.ingest.parse.record_sink import ParsedSource
from fairmfu.metrics.audit.messages import STEPS_REPEATED
from fairmfu.metrics.core.messages import NOT_RANKED
from fairmfu.metrics.pipeline.analysis import analyse
from tests.support.kinds import of_kind

STARTED = datetime(2026, 5, 1, 10)
GPUS, SHARE = 8, 4
MICRO, ACCUMULATION = 2, 4
BATCH = MICRO * ACCUMULATION * GPUS
STEP_S = 2.0
TGS = BATCH * 512 / GPUS / STEP_S

LAUNCHER = "[2026-05-01 09:59:50,000] [INFO] [launch.py:170:main] dist_world_size=8\n"
BEGIN = "[2026-05-01 09:59:55,000] [INFO] [comm.py:821:init_distributed] cdb=None\n" * GPUS
FAILED = 'Traceback (most recent call last):\n  File "a.py", line 1\nRuntimeError: no\n'
MEGATRON = "> initialized tensor model parallel with size 4\n"
MEGATRON += "> initialized pipeline model parallel with size 1\n"


def groups(ranks: object, models: int, sequences: int = 1) -> str:
    return (
        f"\t self.dp_world_size={ranks}\n\t self.mp_world_size={models}\n"
        f"\t self.seq_dp_world_size={ranks}\n\t self.sequence_parallel_size={sequences}\n"
    )


def dump(world: object, micro: int = MICRO, accumulation: int = ACCUMULATION, tp: int = 0) -> str:
    """What the engine prints of its configuration."""
    line = "[2026-05-01 10:00:00,000] [INFO] [config.py:678:print]   {} {} {}\n"
    values = {
        "gradient_accumulation_steps": accumulation,
        "tensor_parallel_config": f"dtype=torch.float16 autotp_size={tp} tp_overlap_comm=False",
        "train_batch_size": int(float(str(world))) * micro * accumulation,
        "train_micro_batch_size_per_gpu": micro,
        "world_size": world,
    }
    return "".join(line.format(name, "." * (29 - len(name)), v) for name, v in values.items())


def trained(
    batch: int = BATCH,
    accumulation: int = ACCUMULATION,
    *,
    timer: bool = True,
    lr: str = "0.001",
    wait: float = 0.0,
) -> list[str]:
    """Lines of 200 steps, those of each tenth; wait: seconds of each that the timer leaves out."""
    lines = []
    for step in range(10, 201, 10):
        at = f"{STARTED + timedelta(seconds=step * (STEP_S + wait)):%Y-%m-%d %H:%M:%S},000"
        lines.append(
            f"[{at}] [INFO] [logging.py:123:log_dist] [Rank 0] step={step}, skipped=0, lr=[{lr}], "
            "mom=[(0.9, 0.95)]\n"
        )
        if timer:
            lines[-1] += (
                f"[{at}] [INFO] [timer.py:264:stop] epoch=0/micro_step={step * accumulation}"
                f"/global_step={step}, RunningAvgSamplesPerSec={batch / STEP_S}, CurrSamplesPerSec="
                f"{batch / STEP_S}, MemAllocated=4.32GB, MaxMemAllocated=38.49GB\n"
            )
    return lines


STEPS = "".join(trained())
BARE = "".join(trained(timer=False))


@pytest.fixture
def measured(logs):
    def of(text: str, *facts: str):
        (logs / "run.log").write_text(text)
        flags = given.facts_from_flags(["seq_len=512", "packed=true", *facts])
        metrics = analyse(read_log_tables(logs / "run.log", flag_facts=flags)).metrics.to_dicts()
        return max(metrics, key=lambda row: row["steps"])

    return of


Measured = Callable[..., dict[str, Any]]


def ranked(row: dict[str, Any]) -> bool:
    return not any(NOT_RANKED in one for one in row["warnings"])


AUTOTP = dump(GPUS, tp=SHARE)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(LAUNCHER + BEGIN + groups(GPUS // SHARE, SHARE) + AUTOTP, id="launcher"),
        pytest.param(LAUNCHER + AUTOTP, id="launcher, no groups"),
        pytest.param(groups(GPUS // SHARE, SHARE) + AUTOTP, id="groups"),
        pytest.param(
            LAUNCHER + groups(GPUS // SHARE, SHARE) + AUTOTP + FAILED + LAUNCHER + AUTOTP,
            id="second attempt",
        ),
    ],
)
def test_a_batch_of_autotp_counts_a_micro_batch_once(text: str, measured: Measured) -> None:
    """It counted once for each of the ranks that share it: 4 times the TGS where GPUs are known."""
    row = measured(text + STEPS)
    assert ranked(row)
    assert row["tgs"] == pytest.approx(TGS / SHARE)
    assert (row["gpus"], row["tensor_parallel"]) == (GPUS, SHARE)
    assert row["global_batch_size"] == BATCH // SHARE


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(LAUNCHER + dump(GPUS // SHARE, tp=SHARE), id="handed a grouping"),
        pytest.param(groups(GPUS // SHARE, SHARE) + dump(GPUS // SHARE), id="groups"),
        pytest.param(MEGATRON + dump(GPUS // SHARE), id="Megatron's words"),
        pytest.param(groups(2, 2, 2) + dump("2.0"), id="sequences too"),
    ],
)
def test_a_batch_of_data_parallel_ranks_stays(text: str, measured: Measured) -> None:
    row = measured(text + "".join(trained(BATCH // SHARE)))
    assert ranked(row)
    assert row["tgs"] == pytest.approx(TGS / SHARE)
    assert row["global_batch_size"] == BATCH // SHARE


def test_degrees_behind_a_training_are_of_the_next_one(measured: Measured) -> None:
    """Which failed before its first step."""
    first = MEGATRON + dump(GPUS // SHARE) + "".join(trained(BATCH // SHARE))
    row = measured(first + MEGATRON.replace("4", "8") + FAILED)
    assert (row["tensor_parallel"], row["tgs"]) == (SHARE, pytest.approx(TGS / SHARE))


POLICY, REFERENCE = dump(GPUS), dump(GPUS, 1, 1)


@pytest.mark.parametrize(
    "engines",
    [
        POLICY + REFERENCE,
        REFERENCE + POLICY + REFERENCE,
        dump(GPUS, 2 * MICRO) + POLICY + dump(GPUS, 2 * MICRO),
    ],
)
def test_the_timer_tells_which_engine_trains(engines: str, measured: Measured) -> None:
    """The last configuration counted: an eighth of the TGS, or not ranked."""
    row = measured(LAUNCHER + BEGIN + engines + STEPS)
    assert ranked(row)
    assert row["tgs"] == pytest.approx(TGS)
    assert row["global_batch_size"] == BATCH


def test_an_engine_that_is_not_known_is_not_ranked(measured: Measured) -> None:
    """An eighth of the TGS was ranked."""
    row = measured(LAUNCHER + BEGIN + POLICY + REFERENCE + BARE)
    assert any(
        "has several engine configs (8, 64 samples per step)" in one for one in row["warnings"]
    )
    assert not ranked(row)


@pytest.mark.parametrize("others", [dump(GPUS, 2 * MICRO), dump(GPUS, MICRO // 2)])
@pytest.mark.parametrize("last", [True, False])
def test_a_wait_makes_no_other_engine_of_it(others: str, last: bool, measured: Measured) -> None:  # noqa: FBT001
    """As for what a model writes. Where half of the time was, twice the TGS was ranked."""
    engines = POLICY + others if last else others + POLICY
    row = measured(LAUNCHER + BEGIN + engines + "".join(trained(wait=STEP_S)))
    assert not ranked(row)


def test_one_that_is_made_while_steps_are_trained_is_not_known(measured: Measured) -> None:
    """For evaluation, or a training that goes on with another batch: the last one counted."""
    lines = trained(timer=False)
    of = "".join(lines[:10]), "".join(lines[10:])
    row = measured(LAUNCHER + BEGIN + POLICY + of[0] + REFERENCE + of[1])
    assert any(
        "has several engine configs (8, 64 samples per step)" in one for one in row["warnings"]
    )
    assert not ranked(row)
    row = measured(LAUNCHER + BEGIN + POLICY + of[0] + POLICY + of[1])
    assert (ranked(row), row["tgs"]) == (True, pytest.approx(TGS))


def test_one_behind_the_last_step_is_of_no_step(measured: Measured) -> None:
    row = measured(LAUNCHER + BEGIN + POLICY + BARE + REFERENCE)
    assert ranked(row)
    assert (row["tgs"], row["global_batch_size"]) == (pytest.approx(TGS), BATCH)


def test_engines_of_one_batch_may_count_it_otherwise(measured: Measured) -> None:
    """A reference model alone under AutoTP: its quarter of the TGS was ranked."""
    plain, shared = groups(GPUS, 1) + POLICY, groups(GPUS // SHARE, SHARE) + AUTOTP
    row = measured(LAUNCHER + BEGIN + plain + shared + STEPS)
    assert any(
        "has several engine configs (16, 64 samples per step)" in one for one in row["warnings"]
    )
    assert not ranked(row)


def test_it_is_once_the_reader_says_what_a_step_had(measured: Measured) -> None:
    said = (f"global_batch_size={BATCH}", "micro_batch_size=2", "gradient_accumulation=4")
    row = measured(LAUNCHER + POLICY + REFERENCE + BARE, *said, "batch_changes=none")
    assert ranked(row)
    assert row["tgs"] == pytest.approx(TGS)


@pytest.mark.parametrize("again", [FAILED, FAILED + LAUNCHER, LAUNCHER, BEGIN])
def test_a_process_that_begins_again_has_its_own(again: str, measured: Measured) -> None:
    """A batch that did not fit into memory, and a smaller one."""
    row = measured(LAUNCHER + BEGIN + dump(GPUS, 4) + again + POLICY + BARE)
    assert ranked(row)
    assert row["tgs"] == pytest.approx(TGS)


@pytest.mark.parametrize("lr", ["0.001", "5e-06"])
def test_engines_that_train_in_turn_are_not_ranked(lr: str, measured: Measured) -> None:
    """Steps of the second one were copies of the first one's, without a word."""
    late = [line.replace("0,000]", "3,000]") for line in trained(timer=False, lr=lr)]
    both = "".join(a + b for a, b in zip(trained(timer=False), late, strict=True))
    row = measured(LAUNCHER + BEGIN + POLICY + POLICY + both)
    assert of_kind(row, STEPS_REPEATED)
    assert not ranked(row)


def test_what_was_written_twice_is_no_second_engine(measured: Measured) -> None:
    row = measured(LAUNCHER + BEGIN + POLICY + "".join(2 * line for line in trained()))
    assert ranked(row)
    assert row["tgs"] == pytest.approx(TGS)


def test_it_is_said_what_to_give_where_ranks_may_share(measured: Measured) -> None:
    row = measured(LAUNCHER + dump(GPUS // SHARE) + "".join(trained(BATCH // SHARE)))
    assert any("as if 4 GPUs share each micro-batch" in one for one in row["warnings"])
    assert not ranked(row)


@pytest.mark.parametrize(
    ("param", "optimizer", "expected"),
    [
        ("None", "None", "none"),
        ("DeepSpeedZeroOffloadParamConfig(device='cpu', nvme_path=None)", "None", "parameters"),
        ("None", "Config(device=<OffloadDeviceEnum.cpu: 'cpu'>, pin_memory=True)", "optimizer"),
        ("Config(device='nvme', x=1)", "Config(device='cpu', x=1)", "optimizer, parameters (nvme)"),
        ("Config(device='none', x=1)", "Config(device='none', x=1)", "none"),
    ],
)
def test_what_zero_keeps_outside_the_gpu_is_a_fact(
    param: str, optimizer: str, expected: str, parse: Callable[..., ParsedSource]
) -> None:
    line = (
        "[2026-11-20 15:01:22,507] [INFO] [config.py:1001:print]   zero_config .................. "
        f"stage=3 offload_param={param} offload_optimizer={optimizer} sub_group_size=1000000000"
    )
    facts = parse("deepspeed", [line]).launches[0].facts
    assert [f["value"] for f in facts if f["name"] == "offload"] == [expected]


@pytest.mark.parametrize("device", ["cpu", "nvme", "none", None, 5])
def test_a_config_says_what_is_offloaded_as_the_log_does(device: object, tmp_path: Path) -> None:
    zero = {"stage": 3, "offload_optimizer": {"device": device}}
    (tmp_path / "ds_config.json").write_text(json.dumps({"zero_optimization": zero}))
    facts = {f["name"]: f["value"] for f in facts_from_companions(tmp_path / "run.log")}
    expected = {"cpu": "optimizer", "nvme": "optimizer (nvme)"}
    assert facts["offload"] == expected.get(str(device), "none")
