"""The job config that Torchtitan is given or saves, beside its logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ...core.schema import TOKEN_SHARING_DEGREES
from ..spec import WANDB_CONFIG_NAMES, CompanionFile
from .console import job_config_facts


def _job_config(config: Mapping[str, Any]) -> dict[str, str]:
    """The job config of Torchtitan; nothing of another's.

    A local batch is a data-parallel rank's and of one micro-step: where the degrees that share it
    or the number of micro-steps are not known, it says nothing of a GPU's tokens.
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
"""As it is saved, as W&B has the whole of it, and the TOML file of a job, until 2026-02."""
