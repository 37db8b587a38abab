"""Job scripts next to a log: Slurm's directives, and the commands that they start."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

from .deepspeed.chat import command_facts as chat_facts
from .hugging_face.command_line import command_facts as trainer_facts
from .launch_commands import joined_command, options_of, world_size
from .spec import CompanionFile
from .torchtitan.command_line import command_facts as titan_facts

SCRIPT_READERS: Final = (titan_facts, trainer_facts, chat_facts)
"""Readers of a command; a reader knows the options of its own program alone."""

_DIRECTIVE: Final = re.compile(r"#SBATCH\s+(-.+)")
_GPU_COUNT: Final = re.compile(r"(?:gpu:)?(?:[A-Za-z][\w.-]*:)?([1-9]\d{0,3})(?:\(|$)")


def _script(lines: Sequence[str]) -> dict[str, str]:
    """Return facts of a script that starts one training.

    A launcher's processes count before Slurm's allocation. A script with several commands that
    differ, such as a loop over settings, says only what all of them say.
    """
    text = [line.strip() for line in lines]
    commands = [found for command in _commands(text) if (found := _command_facts(command))]
    facts = commands[0] if commands else {}
    for other in commands[1:]:
        facts = {name: value for name, value in facts.items() if other.get(name) == value}
    return _allocation(text) | facts


def _commands(lines: Sequence[str]) -> Iterator[str]:
    """Yield the commands of a script, each on one line, without comments."""
    held: list[str] = []
    for line in lines:
        if not held and line.startswith("#"):
            continue
        held.append(line)
        if not line.endswith("\\"):
            yield joined_command(held)
            held = []


def _command_facts(command: str) -> dict[str, str]:
    facts = world_size(command)
    for read in SCRIPT_READERS:
        facts |= read(command)
    return facts


def _allocation(lines: Sequence[str]) -> dict[str, str]:
    """Return the GPUs of Slurm's directives, if nodes and GPUs are numbers."""
    words = " ".join(
        match[1].partition(" #")[0] for line in lines if (match := _DIRECTIVE.match(line))
    )
    options = options_of(words)
    nodes = options.get("nodes", options.get("N", ""))
    each = options.get("gpus_per_node", options.get("gres", ""))
    count = (
        _GPU_COUNT.match(each) if each.startswith("gpu:") or "gpus_per_node" in options else None
    )
    if not nodes.isdecimal() or not int(nodes) or count is None:
        return {}
    return {"gpus": str(int(nodes) * int(count[1]))}


JOB_SCRIPTS: Final = (
    CompanionFile(
        names=("*.sbatch", "*.slurm", "*.sh"), kind="lines", read=_script, of_one_run=True
    ),
)
