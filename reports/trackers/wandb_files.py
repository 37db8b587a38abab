"""Runs as offline runs of W&B, written by its own package, an extra.

W&B's file format changes with its versions, so the package writes the files. `wandb sync` uploads
them. Nothing of this machine is included: no host, user, repository or packages.
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
"""Settings of W&B that add nothing of its own; settings unknown to a version are left out."""


def write_wandb_run(run: TrackerRecord, folder: Path, project: str) -> None:
    """Write one offline run beneath `folder`/wandb. Raises OSError and W&B's errors."""
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
    """Return facts with their types, plus their origins and all other texts."""
    facts = {name: fact_value(name, value) for name, value in run.facts.items()}
    return {**facts, "origin": dict(run.origins), "fairmfu": dict(run.texts)}


def finish() -> None:
    """Wait until W&B's own process has written everything."""
    wandb.teardown()
