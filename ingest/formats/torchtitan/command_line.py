"""Command lines that start Torchtitan: its job config's keys are options.

torchrun --nproc_per_node=8 -m torchtitan.train --job.config_file 8b.toml --training.seq_len 8192
"""

from __future__ import annotations

import re
from typing import Any, Final

from ..launch_commands import MPI_LAUNCHER, options_of, world_size
from .job_config import partial_config_facts

COMMAND_START: Final = (
    r"(?:\b[A-Z_]{1,64}=\S{1,256} +){0,32}(?:\btorchrun\b|\bpython[\d.]* -m torch\.distributed\.run\b"
    r"|(?<!\w)\./run_\w*train\.sh\b)"
)
"""Regex of the start of a command, with its variables."""
MODULE_START: Final = rf"(?:{MPI_LAUNCHER})?\bpython[\d.]* (?:-u )?-m torchtitan\b"
"""Regex of the start of a command without a launcher of PyTorch."""

_TITAN: Final = re.compile(r"\btorchtitan\b|--job\.config_file\b|\brun_\w*train\.sh\b")
_NGPU: Final = re.compile(r"\bNGPU=[\"']?([1-9]\d{0,5})\b")
"""Number of processes that run_train.sh starts; it has a default."""


def command_facts(command: str) -> dict[str, str]:
    """Return facts of a command; empty if it does not start Torchtitan.

    Options override the config file, which may set more: they give no batch without its degrees.
    """
    if not _TITAN.search(command):
        return {}
    count = _NGPU.search(command)
    facts = {"gpus": count[1]} if count else world_size(command)
    options = options_of(command)
    name, flavor = options.get("model.name"), options.get("model.flavor")
    if name and flavor:
        facts["model"] = f"{name} {flavor}"
    return facts | partial_config_facts(_nested(options))


def _nested(options: dict[str, str]) -> dict[str, Any]:
    """Return options such as `training.seq_len` as the job config that they set."""
    config: dict[str, Any] = {}
    for name, text in options.items():
        *sections, key = name.split(".")
        inner: Any = config
        for section in sections:
            inner = inner.setdefault(section, {}) if isinstance(inner, dict) else None
        if sections and isinstance(inner, dict):
            inner[key] = _value(text)
    return config


def _value(text: str) -> str | int | bool:
    if text.isdecimal() and len(text) < 16:  # noqa: PLR2004 - a count
        return int(text)
    return {"true": True, "false": False}.get(text.lower(), text)
