"""Commands that start a training: recognised, and the start of another launch between steps."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Final

import pytest

from fairmfu.ingest.extract.log_tables import read_log_tables
from fairmfu.ingest.formats.launch_commands import COMMAND_LINE, world_size

COMMANDS: Final = (
    '> with-proxy CONFIG_FILE="./a b.toml" ./run_train.sh --training.compile',
    "NGPU=8 ./run_train.sh",
    "+ torchrun --nproc_per_node=8 -m torchtitan.train",
    "++ torchrun $ARGS train.py",
    "$ deepspeed train.py --deepspeed",
    "(base) ann@node1:~/titan$ torchrun train.py",
    "[ann@node1 titan]$ accelerate launch --num_processes 8 train.py",
    "!NGPU=2 LOG_RANK=0 ./run_train.sh \\",
    "\u276f NGPU=8 ./run_train.sh --model.flavor small",
    "LOG_RANK=0 python -m torch.distributed.run --nproc_per_node 2 train.py",
)
OTHERS: Final = (
    "run.sh: line 242: 259200 Killed                  torchrun --nproc_per_node=8 train.py",
    "deepspeed info ................... 0.10.0",
    "deepspeed wheel compiled w. ...... torch 2.0",
    "# torchrun --nproc_per_node=8 train.py",
    "Start it with torchrun --nproc_per_node=8 train.py",
    "torchrun starts one process for each GPU",
    "[INFO] [runner.py:618:main] cmd = deepspeed main.py --deepspeed",
    '  File "/venv/bin/torchrun", line 10, in <module>',
    "+ python evaluate.py --checkpoint 50",
)


def step(number: int, loss: float = 5.0) -> str:
    return f"step: {number:2}  loss: {loss:8.4f}  memory: 47.65GiB(50.16%)  tps: 5,760  mfu: 33.73%"


@pytest.fixture
def launches(tmp_path: Path):
    """Steps of each launch, by both readers."""

    def read(*lines: str) -> list[list[int]]:
        log = tmp_path / "run.log"
        log.write_text("\n".join(lines) + "\n")
        tables = [read_log_tables(log, use_fast_path=fast) for fast in (True, False)]
        fast, slow = (
            [
                steps["step"].to_list()
                for _, steps in t["steps"].group_by("run_id", maintain_order=True)
            ]
            for t in tables
        )
        assert fast == slow
        assert [t["runs"].height for t in tables] == [len(fast), len(slow)]
        return fast

    return read


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_between_steps_begins_a_launch(command: str, launches) -> None:
    assert re.search(COMMAND_LINE, command)
    assert launches(command, step(20), "", command, "...", step(30)) == [[20], [30]]


@pytest.mark.parametrize("line", OTHERS)
def test_a_line_that_only_names_a_launcher_begins_none(line: str, launches) -> None:
    assert not re.search(COMMAND_LINE, line)
    assert launches(COMMANDS[0], step(20), line, step(30)) == [[20, 30]]


def test_a_shell_that_echoes_its_command_starts_one_launch(launches) -> None:
    echoes = (COMMANDS[1], COMMANDS[2], COMMANDS[2])
    assert launches(*echoes, step(10), step(20), *echoes, step(30)) == [[10, 20], [30]]


def test_a_command_without_a_step_after_it_is_of_no_launch(launches) -> None:
    assert launches(COMMANDS[1], step(10), step(20), *COMMANDS) == [[10, 20]]


@pytest.mark.parametrize("unit", ["[a]", "1: ", "A", "a.", " ", "a@b ", "A=1 ", "a/", "> ", "+"])
def test_a_long_line_is_searched_in_no_time(unit: str) -> None:
    began = time.monotonic()
    re.search(COMMAND_LINE, unit * (60_000 // len(unit)) + "torchrun --a")
    assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    ("command", "gpus"),
    [
        ("mpiexec --envall --np=24 --ppn=12 python3 -m torchtitan.train -n 8", "24"),
        ("srun --ntasks 16 --gpus-per-task=1 python -u train.py", "16"),
        ("mpirun -n 8 -x PATH python train.py", "8"),
        ("srun -n 1 python train.py", None),  # may start more processes itself
        ("srun -N 2 torchrun --nnodes 2 --nproc_per_node 8 train.py", "16"),
        ("srun -n 2 bash start.sh", None),
    ],
)
def test_a_launcher_of_any_program_shows_the_processes(command: str, gpus: str | None) -> None:
    assert world_size(command).get("gpus") == gpus


TITAN: Final = "-m torchtitan.experiments.ezpz.train --model.name a --model.flavor 2b"
OPTIONS: Final = "--training.seq_len 8192 --training.global_batch_size=48"


@pytest.mark.parametrize("launcher", ["torchrun", "ezpz launch python3", "srun -n 8 python -u"])
@pytest.mark.parametrize("between", [" ", " \\\n  "])
def test_the_launcher_before_python_does_not_matter(
    launcher: str, between: str, tmp_path: Path
) -> None:
    log = tmp_path / "run.log"
    log.write_text(f"; {launcher} {TITAN}{between}{OPTIONS}\n{step(1)}\n{step(2)}\n")
    facts = dict(read_log_tables(log)["facts"].select("name", "value").rows())
    wanted = {"model": "a 2b", "seq_len": "8192", "global_batch_size": "48"}
    assert facts.items() >= wanted.items()


def test_a_launcher_that_counts_the_gpus_counts_them_for_every_framework(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text(
        "; ezpz launch python3 -m ezpz.examples.hf_trainer --per_device_train_batch_size=1 "
        "--block_size=8192\n"
        "[2026-11-20 13:11:28,455234][W][ezpz/dist:544:print_dist_setup] Using [24 / 24] available "
        '"xpu" devices !!\n'
        "{'loss': 2.0, 'learning_rate': 1e-05, 'epoch': 0.1}\n"
        "{'loss': 1.9, 'learning_rate': 1e-05, 'epoch': 0.2}\n"
    )
    facts = dict(read_log_tables(log)["facts"].select("name", "value").rows())
    assert facts.items() >= {"gpus": "24", "seq_len": "8192", "micro_batch_size": "1"}.items()
