"""Command lines that start the Hugging Face Trainer, in a log or in a job script."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ..launch_commands import MPI_LAUNCHER, options_of, world_size
from ..spec import FactLine
from .arguments import batch_facts, command_values, method_facts

TRAINER_OPTION: Final = "--per_device_train_batch_size"
"""Option of every such command; scripts that leave it out are told by nothing else."""

_SWIFT_PROCESSES: Final = re.compile(r"\bNPROC_PER_NODE=[\"']?([1-9]\d{0,5})\b")
_NODES: Final = re.compile(r"\bNNODES=[\"']?([1-9]\d{0,5})\b")


def command_facts(command: str) -> dict[str, str]:
    """Return facts of a command; empty if it does not start the Trainer.

    Options left out give none, as scripts differ in their defaults.
    """
    options = options_of(command)
    if "per_device_train_batch_size" not in options:
        return {}
    facts = method_facts(command_values(options)) | _processes(command)
    return facts | batch_facts(facts)


def _processes(command: str) -> dict[str, str]:
    """Return the GPUs of a launcher, or of ms-swift's environment variables."""
    each = _SWIFT_PROCESSES.search(command)
    if each is None or not re.search(r"\bswift\s", command):
        return world_size(command)
    nodes = _NODES.search(command)
    return {"gpus": str(int(each[1]) * (int(nodes[1]) if nodes else 1))}


def _of_line(printed: Mapping[str, str]) -> dict[str, str]:
    return command_facts(printed["command"])


COMMAND_LINE: Final = FactLine(
    anchor=TRAINER_OPTION,
    regex=rf"(?P<command>(?:{MPI_LAUNCHER})?"
    r"(?:\b[A-Z_]{1,64}=\S{1,256} ){0,32}\b(?:torchrun|python[\d.]*|accelerate|deepspeed|swift"
    rf"|llamafactory-cli)\s[^'\[].*{TRAINER_OPTION}[ =].*)",
    read=_of_line,
    of_any_file=True,
    example="+ torchrun --nnodes 2 --nproc_per_node 8 run_sft.py --model_name_or_path "
    "Qwen/Qwen3-8B --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --bf16 True",
    printed_by="pytorch/pytorch/torch/distributed/run.py@v2.9.0, as a shell prints its command",
    composed=True,
)
