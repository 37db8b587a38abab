"""Torchtitan's job config, as given or saved, next to its logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...core.schema import TOKEN_SHARING_DEGREES
from ..spec import WANDB_CONFIG_NAMES, CompanionFile
from .console import job_config_facts


def _job_config(config: Mapping[str, Any]) -> dict[str, str]:
    """Return facts of a job config of Torchtitan; empty for another framework's.

    A local batch covers a data-parallel rank and one micro-step. It gives no tokens per GPU if the
    degrees that share it, or the number of micro-steps, are unknown.
    """
    if not all(isinstance(config.get(section), dict) for section in ("training", "optimizer")):
        return {}
    facts = job_config_facts(config)
    if "global_batch_size" in facts or not facts.keys() >= {*TOKEN_SHARING_DEGREES}:
        facts.pop("micro_batch_size", None)
    return facts


JOB_CONFIGS: Final = (
    CompanionFile(names=("config.json",), kind="JSON", read=_job_config),
    CompanionFile(names=WANDB_CONFIG_NAMES, kind="W&B", read=_job_config),
    CompanionFile(names=("job.toml",), kind="TOML", read=_job_config),
)
"""The saved config, the whole config in W&B, and the TOML file of a job, until 2026-02."""
