"""Runs in the layout of MLflow's file store, written without MLflow.

    OUT/EXPERIMENT/meta.yaml
    OUT/EXPERIMENT/RUN/meta.yaml, metrics/TAG, params/FACT, tags/TEXT

A line of a metric is `milliseconds value step`; params and tags are files with their value. MLflow
1 and 2 read the layout directly, MLflow 3 with MLFLOW_ALLOW_FILE_STORE=true or after `mlflow
migrate-filestore`.
"""

from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import polars as pl
import yaml

from .tracker_record import TrackerRecord, file_name, run_card_markdown

MLFLOW_RUNNING, MLFLOW_FINISHED, MLFLOW_FAILED, MLFLOW_KILLED = 1, 3, 4, 5
"""Values of MLflow's RunStatus."""
MLFLOW_STATUS: Final = {
    "completed": MLFLOW_FINISHED,
    "out_of_memory": MLFLOW_FAILED,
    "crashed": MLFLOW_FAILED,
    "nan_loss": MLFLOW_FAILED,
    "killed": MLFLOW_KILLED,
    "incomplete": MLFLOW_RUNNING,
}
"""MLflow's status by outcome (ingest.core.schema.OUTCOMES)."""


def experiment_id(name: str) -> str:
    """Return a number of at most 18 digits, as in MLflow, always the same for a name."""
    return str(int.from_bytes(blake2b(name.encode(), digest_size=7).digest()) + 1)


def write_experiment(name: str, folder: Path, location: str) -> None:
    """Turn an empty folder into an experiment. Raises OSError.

    location: URI of its runs' files, from the function `location`
    """
    about = {
        "artifact_location": location,
        "creation_time": 0,
        "experiment_id": experiment_id(name),
        "last_update_time": 0,
        "lifecycle_stage": "active",
        "name": name,
    }
    _write(folder / "meta.yaml", yaml.safe_dump(about))


def location(folder: Path, out: Path, *, omit_path: bool) -> str:
    """Return the URI of a folder in the store `out`, for MLflow.

    omit_path: relative to the store, which MLflow accepts too, since a path identifies a machine
    """
    return folder.relative_to(out).as_posix() if omit_path else folder.absolute().as_uri()


def write_mlflow_run(run: TrackerRecord, folder: Path, experiment: str, location: str) -> None:
    """Write one run of an experiment to an empty folder. Raises OSError.

    experiment: id; location: URI of the folder after its move
    """
    _write(folder / "meta.yaml", yaml.safe_dump(_about(run, experiment, location)))
    step, moment = run.last
    for tag in run.tags:
        _write(folder / "metrics" / tag, _lines(run.points(tag)))
    for tag, value in run.figures.items():
        _write(folder / "metrics" / tag, f"{_milliseconds(moment)} {value!r} {step}\n")
    for name, fact in run.facts.items():
        _write(folder / "params" / file_name(name), fact)
    for name, text in _tags(run).items():
        _write(folder / "tags" / name, text)
    (folder / "artifacts").mkdir()


def _about(run: TrackerRecord, experiment: str, location: str) -> dict[str, Any]:
    status = MLFLOW_STATUS.get(run.outcome, MLFLOW_RUNNING)
    return {
        "artifact_uri": f"{location}/artifacts",
        "deleted_time": None,
        "end_time": None if status == MLFLOW_RUNNING else _milliseconds(run.last[1]),
        "entry_point_name": "",
        "experiment_id": experiment,
        "lifecycle_stage": "active",
        "run_id": run.run_id,
        "run_name": run.name,
        "run_uuid": run.run_id,
        "source_name": "",
        "source_type": 4,  # local
        "source_version": "",
        "start_time": _milliseconds(run.started_at),
        "status": status,
        "tags": [],
        "user_id": "fairmfu",
    }


def _tags(run: TrackerRecord) -> dict[str, str]:
    """Return texts, the origins of facts, and MLflow's own display texts."""
    own = {"mlflow.runName": run.name, "mlflow.note.content": run_card_markdown(run)}
    origins = {f"origin.{file_name(name)}": origin for name, origin in run.origins.items()}
    return own | origins | {f"fairmfu.{file_name(name)}": text for name, text in run.texts.items()}


def _lines(points: pl.DataFrame) -> str:
    rows = points.select("at", "value", "step").iter_rows()
    return "".join(f"{_milliseconds(at)} {value!r} {step}\n" for at, value, step in rows)


def _milliseconds(seconds: float) -> int:
    """Return milliseconds, at least 0: MLflow accepts no times before 1970."""
    return max(0, int(seconds * 1000))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="")
