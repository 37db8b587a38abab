"""Files of Weights & Biases: config.yaml and wandb-metadata.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .spec import WANDB_CONFIG_NAMES, WANDB_METADATA_NAMES, CompanionFile

RUN_NAME_KEYS: Final = ("wandb_run_name", "run_name", "wandb_name")
"""Keys of a config under which trainers give Weights & Biases the name of a run."""

MACHINE_NOTE: Final = "the GPUs of the machine, as W&B counts them; no file names another machine"


def _named_facts(values: Mapping[Any, Any]) -> dict[str, str]:
    """Return the values with names of facts, and the run's name."""
    facts = {k: str(v) for k, v in values.items() if k in ("seq_len", "micro_batch_size")}
    named = next((values[key] for key in RUN_NAME_KEYS if isinstance(values.get(key), str)), "")
    return facts | ({"name": named.strip()} if named.strip() else {})


def _metadata(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the accelerator, the repository's commit, and the GPUs of a Slurm job.

    A job's GPUs are those of its nodes together. Machines with several kinds of GPUs give none.
    """
    git = values.get("git")
    commit = git.get("commit") if isinstance(git, dict) else None
    facts = {"commit": commit} if isinstance(commit, str) and commit else {}
    if len(names := _gpu_names(values)) == 1:
        facts["accelerator"] = names.pop()
    nodes, per_node = (_slurm_count(values, key) for key in ("nnodes", "gpus_on_node"))
    if nodes and per_node:
        facts["gpus"] = str(nodes * per_node)
    return facts


def _machine(values: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """Return the GPUs of the only machine, where no Slurm job has several nodes."""
    count = values.get("gpu_count")
    whole = type(count) is int and count > 0
    if not whole or (_slurm_count(values, "nnodes") or 1) > 1:
        return {}
    return {"gpus": (str(count), MACHINE_NOTE)}


def _gpu_names(values: Mapping[str, Any]) -> set[str]:
    listed = values.get("gpu_devices") or values.get("gpu_nvidia")
    devices = listed if isinstance(listed, list) else []
    names = {str(one["name"]) for one in devices if isinstance(one, dict) and one.get("name")}
    alone = values.get("gpu")
    return names or ({alone} if isinstance(alone, str) and alone.strip() else set())


def _slurm_count(values: Mapping[str, Any], key: str) -> int | None:
    """Return a count that Slurm gave the job; None if unknown."""
    slurm = values.get("slurm")
    text = str(slurm.get(key, "")) if isinstance(slurm, dict) else ""
    return int(text) if text.isdecimal() and len(text) < 10 else None  # noqa: PLR2004 - no id


WANDB_FILES: Final = (
    CompanionFile(names=WANDB_CONFIG_NAMES, kind="W&B", read=_named_facts),
    CompanionFile(
        names=WANDB_METADATA_NAMES, kind="JSON", read=_metadata, infer=_machine, of_one_run=True
    ),
)
