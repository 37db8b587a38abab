"""Runs as offline runs of W&B, written by its own package, which is an extra.

What its files look like is W&B's own and changes with its versions; so it writes them itself.
`wandb sync` uploads them. Nothing of this machine goes along: no host, user, repository or
packages.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import wandb

from .tracker_record import TrackerRecord, fact_value, run_card_markdown

OFFLINE_SETTINGS: Final[dict[str, object]] = {
    "console": "off",
    "disable_code": True,
    "disable_git": True,
    "host": "fairmfu",
    "quiet": True,
    "save_code": False,
    "silent": True,
    "x_disable_machine_info": True,
    "x_disable_meta": True,
    "x_disable_stats": True,
    "x_save_requirements": False,
}
"""Settings of W&B by which it adds nothing of its own; those that a version lacks are left out."""


def write_wandb_run(run: TrackerRecord, folder: Path, project: str) -> None:
    """One offline run beneath `folder`/wandb. Raises OSError and what W&B raises."""
    known = {
        name: to for name, to in OFFLINE_SETTINGS.items() if name in wandb.Settings.model_fields
    }
    begun = wandb.init(
        mode="offline",
        dir=str(folder),
        project=project,
        id=run.run_id,
        name=run.name,
        notes=run_card_markdown(run),
        config=_config(run),
        settings=wandb.Settings(**known),
        reinit="create_new",
    )
    tags = run.tags
    for step, at, *values in run.series.iter_rows():
        said = zip(tags, values, strict=True)
        row: dict[str, float] = {tag: value for tag, value in said if value is not None}
        begun.log({**row, "_timestamp": at}, step=step)
    begun.summary.update(dict(run.figures))
    begun.finish(exit_code=0 if run.outcome in ("completed", "incomplete") else 1)


def _config(run: TrackerRecord) -> dict[str, Any]:
    """Facts with their types, and apart where each is from and all else that is known."""
    facts = {name: fact_value(name, value) for name, value in run.facts.items()}
    return {**facts, "origin": dict(run.origins), "fairmfu": dict(run.texts)}


def finish() -> None:
    """Wait until W&B's own process has written all that it was told."""
    wandb.teardown()
