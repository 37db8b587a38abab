"""GPUs that share a micro-batch by a grouping that the DeepSpeed engine is handed, unprinted."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.facts import facts as given
from fairmfu.metrics.core.messages import NOT_RANKED
from fairmfu.metrics.pipeline.analysis import analyse

STARTED = datetime(2026, 5, 1, 10)
SHARE = 4
"""GPUs of one model."""
RANKS, GPUS = 2, 2 * SHARE
SAMPLES, STEP_S = 16, 1.0
TGS = SAMPLES * 512 / GPUS / STEP_S

LAUNCHER = "[2026-05-01 09:59:50,000] [INFO] [launch.py:163:main] dist_world_size=8\n"
BEGINS = "[2026-05-01 09:59:55,000] [INFO] [comm.py:652:init_distributed] cdb=None\n"
BEGIN = BEGINS * GPUS
GROUPS = f"\t self.dp_world_size={RANKS}\n\t self.mp_world_size={SHARE}\n"
GROUPS += f"\t self.seq_dp_world_size={RANKS}\n\t self.sequence_parallel_size=1\n"
MPI = "".join(
    f"[2026-05-01 09:59:50,000] [INFO] [comm.py:665:mpi_discovery] Discovered MPI settings of "
    f"world_rank={rank}, local_rank={rank}, world_size=8, master_addr=10.0.0.1, master_port=29500\n"
    for rank in (1, 0, *range(2, GPUS))
)
EXPERTS = (
    "[2026-05-01 09:59:58,000] [INFO] [logging.py:107:log_dist] [Rank 0] Creating deepspeed groups "
    f"with model parallel size {SHARE}, expert parallel size 2, world size 8, dp world size 2\n"
)
FAILED = (
    'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\nRuntimeError: no\n'
)


def dump(ranks: int = RANKS) -> str:
    """What the engine prints of its configuration; of `world_size` it says data-parallel ranks."""
    line = "[2026-05-01 10:00:00,000] [INFO] [config.py:1007:print]   {} {} {}\n"
    values = {
        "gradient_accumulation_steps": 2,
        "train_batch_size": SAMPLES,
        "train_micro_batch_size_per_gpu": SAMPLES // 2 // ranks,
        "world_size": ranks,
    }
    return "".join(line.format(name, "." * (29 - len(name)), v) for name, v in values.items())


AS_FLOATS = re.sub(
    r"(?<=[_ ])(gradient_accumulation_steps|world_size)( \.+ \d+)\n", r"\1\2.0\n", dump()
)
"""As where it is all ranks' by those that share a sequence."""


def trained(started: datetime = STARTED) -> str:
    """Step lines of 200 steps, each tenth printed."""
    lines = []
    for step in range(10, 201, 10):
        at = started + timedelta(seconds=step * STEP_S)
        lines.append(
            f"[{at:%Y-%m-%d %H:%M:%S},000] [INFO] [timer.py:264:stop] epoch=0/micro_step={2 * step}"
            f"/global_step={step}, RunningAvgSamplesPerSec=16.1, CurrSamplesPerSec=16.1, "
            "MemAllocated=4.32GB, MaxMemAllocated=38.49GB\n"
        )
    return "".join(lines)


@pytest.fixture
def all_measured(logs):
    def of(text: str, *facts: str):
        (logs / "run.log").write_text(text)
        flags = given.facts_from_flags(["seq_len=512", "packed=true", *facts])
        return analyse(read_log_tables(logs / "run.log", flag_facts=flags)).metrics.to_dicts()

    return of


@pytest.fixture
def measured(all_measured):
    def of(text: str, *facts: str):
        """The run with steps: an attempt that failed before is a run of its own."""
        (row,) = [row for row in all_measured(text + trained(), *facts) if row["steps"]]
        return row

    return of


Measured = Callable[..., dict[str, Any]]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(LAUNCHER + BEGIN + dump(), id="launcher"),
        pytest.param(LAUNCHER + BEGIN + dump() + dump(), id="two engines"),
        pytest.param(LAUNCHER + BEGIN + FAILED + LAUNCHER + BEGIN + dump(), id="second attempt"),
        pytest.param(MPI + BEGIN + dump(), id="mpi"),
        pytest.param(LAUNCHER + BEGIN + AS_FLOATS, id="world size as a float"),
        pytest.param(BEGINS + GROUPS + dump(), id="groups"),
        pytest.param(LAUNCHER + BEGIN + GROUPS + dump(), id="launcher and groups"),
        pytest.param(EXPERTS + dump(), id="experts"),
    ],
)
def test_gpus_that_share_a_batch(text: str, measured: Measured) -> None:
    """Each micro-batch counted as one GPU's: 4 times the TGS; with a launcher it was not ranked."""
    row = measured(text)
    assert row["warnings"] == []
    assert row["tgs"] == pytest.approx(TGS)
    assert (row["gpus"], row["tensor_parallel"]) == (GPUS, SHARE)


@pytest.mark.parametrize("begin", ["", BEGINS])
def test_gpus_that_each_have_a_model(begin: str, measured: Measured) -> None:
    """Nothing else of such a log states its GPUs."""
    groups = GROUPS.replace(f"mp_world_size={SHARE}", "mp_world_size=1")
    row = measured(begin + groups + dump())
    assert row["tgs"] == pytest.approx(TGS * SHARE)
    assert (row["gpus"], row["tensor_parallel"]) == (RANKS, None)


@pytest.mark.parametrize("begin", ["", BEGIN])
def test_a_world_that_the_engine_groups_itself_is_not_of_data_parallel_ranks(
    begin: str, measured: Measured
) -> None:
    """AutoTP: each rank of the configuration's world was `SHARE` GPUs, 32 for 8."""
    row = measured(begin + GROUPS + dump(GPUS))
    assert row["tgs"] == pytest.approx(TGS / SHARE)
    assert (row["gpus"], row["tensor_parallel"]) == (GPUS, SHARE)


def test_more_processes_than_are_known_to_train_are_not_ranked(measured: Measured) -> None:
    """They may be of one node of several, so that how many share a batch is not known."""
    assert any(one.startswith(NOT_RANKED) for one in measured(BEGIN + dump())["warnings"])


def test_they_are_once_the_reader_says_how_many_share_a_batch(measured: Measured) -> None:
    row = measured(BEGIN + dump(), "tensor_parallel=4")
    assert row["warnings"] == []
    assert row["tgs"] == pytest.approx(TGS)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(BEGINS * 2 + dump(), id="all"),
        pytest.param(BEGINS + dump(), id="first node of two"),
        pytest.param(BEGINS * 2 + dump() + FAILED + BEGINS * 2 + dump(), id="second attempt"),
        pytest.param(BEGINS * 2 + FAILED + BEGINS * 2 + dump(), id="one that fell before"),
    ],
)
def test_processes_that_each_have_a_batch(text: str, measured: Measured) -> None:
    row = measured(text)
    assert row["warnings"] == []
    assert row["tgs"] == pytest.approx(TGS * SHARE)
    assert (row["gpus"], row["tensor_parallel"]) == (None, None)


def test_fewer_processes_than_the_launcher_speaks_of_share_nothing(measured: Measured) -> None:
    """As where training began without a node that is down (elasticity)."""
    row = measured(LAUNCHER + BEGINS * 4 + dump(4))
    assert row["tensor_parallel"] is None
    assert any(one.startswith(NOT_RANKED) for one in row["warnings"])


def test_processes_that_begin_are_of_what_they_train(all_measured) -> None:
    """Of a second training in one file they were the first one's: 4 times its TGS, ranked."""
    version = (
        "[2026-05-01 09:59:57,000] [INFO] [logging.py:107:log_dist] [Rank 0] DeepSpeed info: "
        "version=0.15.4, git-hash=unknown, git-branch=unknown\n"
    )
    both = (trained(), trained(STARTED + timedelta(hours=1)))
    rows = all_measured("".join(BEGIN + version + dump() + steps for steps in both))
    assert [row["gpus"] for row in rows] == [GPUS, GPUS]
    assert all(any(one.startswith(NOT_RANKED) for one in row["warnings"]) for row in rows)
