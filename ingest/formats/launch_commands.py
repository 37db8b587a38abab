"""Launch commands, in a log or in a job script: processes and options.

    torchrun --nnodes 2 --nproc_per_node 8 -m torchtitan.train --training.seq_len 8192

Only literal numbers are facts: `$NNODES` and `gpu` are not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from .spec import FactLine

MAX_COMMAND_CHARS: Final = 20_000

LAUNCHER_START: Final = "Setting OMP_NUM_THREADS environment variable for each process to be "
"""Words of a line that torchrun prints once at its start, on every node.

Printed by pytorch/pytorch/torch/distributed/run.py@v2.9.0, unless the variable is set.
"""

_PROMPT: Final = (
    r"(?:\([\w.-]{1,64}\) *)?(?:[$>%\u276f] +|! *|\++ +"
    r"|\[?[\w.-]{1,64}@[^\s$#>%]{1,200}(?: [^\s$#>%]{1,200})?[$#>%] *)?"
)
"""Prompt of a shell or notebook, or the mark of a shell's own echo (`set -x`)."""
_VARIABLE: Final = r"""[A-Za-z_]\w{0,64}=(?:"[^"]{0,256}"|'[^']{0,256}'|[^\s"']{0,256})"""
COMMAND_LINE: Final = (
    rf"^ {{0,8}}{_PROMPT}(?:(?:{_VARIABLE}|with-proxy|nohup|time|bash|sh) +){{0,32}}"
    r"(?:(?:torchrun|python[\d.]{0,8} (?:-u )?-m torch\.distributed\.(?:run|launch)|accelerate launch"
    r"|deepspeed) (?=-|\"?\$|\S{1,256}\.py\b)|(?:[\w.-]{0,64}/){0,16}run_\w{0,64}train\.sh(?= |$))"
)
"""Regex of a line that is a command by which people start a training."""

QUOTES: Final = "'\"`"
"""Marks around words, of the shell and of Markdown."""

_WORD: Final = re.compile(r"""(?:[^\s'"]|'[^']*'|"[^"]*")+""")
_TORCH: Final = re.compile(r"\btorchrun\b|\btorch\.distributed\.(?:run|launch)\b")
_ACCELERATE: Final = re.compile(r"\baccelerate launch\b")
_OF_MPI: Final = r"\b(?:mpiexec|mpirun|srun) "
MPI_LAUNCHER: Final = rf"{_OF_MPI}(?:(?!{_OF_MPI})[^'\"]){{0,2000}}?"
"""Regex of a launcher of any program, with its options; here it starts one process per GPU."""
_MPI: Final = re.compile(rf"{MPI_LAUNCHER}\bpython[\d.]*\s")
_DEEPSPEED: Final = re.compile(r"(?:^|\s)deepspeed\s+-")


def options_of(command: str) -> dict[str, str]:
    """Return the options of a command by name, without dashes; a flag is `true`.

    `-` and `_` are one. The last of several counts. A value may be a list, with blanks.
    """
    words = [word.strip(QUOTES) for word in _WORD.findall(command[:MAX_COMMAND_CHARS])]
    return dict(_options(words))


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    values: list[str] = []
    name = ""
    for word in [*words, "--"]:
        if word.startswith("--") or re.match(r"-[A-Za-z]", word):
            if name:
                yield name, " ".join(values) or "true"
            name, equals, value = word.lstrip("-").partition("=")
            name, values = name.replace("-", "_"), [value.strip(QUOTES)] if equals else []
        elif name:
            values.append(word)


def _count(options: Mapping[str, str], *names: str) -> int | None:
    """Return an option as a count; None if absent or no literal number."""
    for name in names:
        if name in options:
            word = options[name].partition(" ")[0]
            return int(word) if re.fullmatch(r"[1-9]\d{0,6}", word) else None
    return None


def world_size(command: str) -> dict[str, str]:
    """Return the GPUs of a command that starts one process for each.

    Without --nnodes, torchrun starts one node.
    """
    options = options_of(command)
    if _TORCH.search(command):
        each, nodes = _count(options, "nproc_per_node"), 1
        if "nnodes" in options:
            nodes = _count(options, "nnodes") or 0
        return {"gpus": str(nodes * each)} if each and nodes else {}
    if _ACCELERATE.search(command):
        processes = _count(options, "num_processes")
        return {"gpus": str(processes)} if processes and "cpu" not in options else {}
    if _DEEPSPEED.search(command):
        each, nodes = _count(options, "num_gpus"), _count(options, "num_nodes") or 1
        return {"gpus": str(nodes * each)} if each else {}
    if launcher := _MPI.search(command):
        processes = _count(options_of(launcher[0]), "n", "np", "ntasks")
        return {"gpus": str(processes)} if processes and processes > 1 else {}  # 1 may start more
    return {}


def joined_command(lines: Sequence[str]) -> str:
    """Return a command whose lines end with a backslash as one line."""
    return " ".join(re.sub(r"\s*\\\s*$", "", line).strip() for line in lines)


def _of_trace(printed: Mapping[str, str]) -> dict[str, str]:
    return world_size(printed["command"])


TRACED_LAUNCHER: Final = FactLine(
    anchor="nproc",
    regex=r"^\+ (?:srun\s(?:.*\s)?|(?:export ')?\w{1,64}='?)?(?P<command>(?:\S*/)?(?:torchrun"
    r"|python[\d.]*\s(?:-u\s)?-m torch\.distributed\.(?:run|launch))\s[^']*)",
    read=_of_trace,
    of_any_file=True,
    example="+ LAUNCHER='python -u -m torch.distributed.launch --nproc_per_node 4 --nnodes 8 '",
    printed_by="pytorch/pytorch/torch/distributed/launch.py@v2.9.0, as `set -x` shows a command",
    composed=True,
)
"""A launcher as a shell's trace shows it, with the values of its variables. A script that is only
echoed may hold several, so its text is not read.
"""

EZPZ_GPUS: Final = FactLine(
    anchor="Using [",
    regex=r"\[ezpz/\w+:\d+:\w+\] (?:\W{1,4} )?Using \[(?P<gpus>\d{1,7}) ?/ ?\d+\] "
    r"(?:GPUs \[|available \"\w+\" devices)",
    example="[2026-11-20 15:33:07,501612][I][ezpz/pbs:273:get_pbs_launch_cmd] ✅ Using [24/24] GPUs "
    "[2 hosts] x [12 GPU/host]",
    printed_by="saforem2/ezpz/src/ezpz/pbs.py get_pbs_launch_cmd; dist.py print_dist_setup",
    composed=True,
)
"""The GPUs that a launcher of any framework counted."""
