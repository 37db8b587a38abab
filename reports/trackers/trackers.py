"""Trackers for the export of runs, and the folders of their files.

A run is written to a temporary folder and then moved into place, so that a tracker never sees half
of a run; existing runs are never overwritten.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from fairmfu.ingest.core.errors import install_hint

from ..page.messages import STORE_WITHOUT_RUNS
from . import messages
from .tracker_record import TrackerRecord, file_name


@dataclass(frozen=True, slots=True)
class Tracker:
    """Experiment tracker: its package, if needed, and a command to open its files.

    open_command: contains {out}
    """

    package: str | None
    open_command: str


TRACKERS: Final = {
    "tensorboard": Tracker("tensorboard", "tensorboard --logdir {out}"),
    "mlflow": Tracker(None, "MLFLOW_ALLOW_FILE_STORE=true mlflow ui --backend-store-uri {out}"),
    "wandb": Tracker("wandb", "wandb sync {out}/wandb/offline-run-*"),
}
"""Trackers by their names in `--to`."""


def export_runs(
    runs: Sequence[TrackerRecord],
    tracker: str,
    out: Path,
    experiment: str,
    *,
    omit_path: bool = False,
) -> Iterator[tuple[TrackerRecord, Path]]:
    """Write each run, and yield the run with its path.

    tracker: of TRACKERS; experiment: of MLflow, the project of W&B; omit_path: leave the path of
        `out` out of MLflow's files. Raises NotExportedError before anything is written if a package
        is missing, there is no run, or a run exists already. Raises OSError if a write failed; then
        that run does not exist.
    """
    package = TRACKERS[tracker].package
    if package is not None and find_spec(package) is None:
        raise messages.TRACKER_MISSING(tracker=tracker, package=package, hint=install_hint(tracker))
    if not runs:
        raise STORE_WITHOUT_RUNS.made(messages.NotExportedError)
    if tracker == "wandb":
        return _to_wandb(runs, out, experiment)
    if tracker == "mlflow":
        return _to_mlflow(runs, out, experiment, nameless=omit_path)
    return _to_tensorboard(runs, out)


def _to_tensorboard(
    runs: Sequence[TrackerRecord], out: Path
) -> Iterator[tuple[TrackerRecord, Path]]:
    from . import tensorboard_files  # noqa: PLC0415 - an extra

    places = {run.run_id: out / name for run, name in zip(runs, _folders(runs), strict=True)}
    _free(places.values())
    for run in runs:
        yield (
            run,
            _written_aside(places[run.run_id], partial(tensorboard_files.write_event_file, run)),
        )


def _to_mlflow(
    runs: Sequence[TrackerRecord], out: Path, experiment: str, *, nameless: bool
) -> Iterator[tuple[TrackerRecord, Path]]:
    from . import mlflow_files  # noqa: PLC0415 - so that trackers are listed at once

    number = mlflow_files.experiment_id(experiment)
    folder = out / number
    places = {run.run_id: folder / run.run_id for run in runs}
    _free(places.values())
    located = partial(mlflow_files.location, out=out, omit_path=nameless)
    if not folder.exists():
        begun = partial(mlflow_files.write_experiment, experiment, location=located(folder))
        _written_aside(folder, begun)
    for run in runs:
        at = places[run.run_id]
        put = partial(mlflow_files.write_mlflow_run, run, experiment=number, location=located(at))
        yield run, _written_aside(at, put)


def _to_wandb(
    runs: Sequence[TrackerRecord], out: Path, project: str
) -> Iterator[tuple[TrackerRecord, Path]]:
    from . import wandb_files  # noqa: PLC0415 - an extra

    _free(place for run in runs for place in _offline(run, out))
    out.mkdir(parents=True, exist_ok=True)
    try:
        for run in runs:
            wandb_files.write_wandb_run(run, out, project)
    finally:
        wandb_files.finish()
    for run in runs:
        yield run, _written(run, out)


EMPTY_FILE_BYTES: Final = 7
"""Bytes of an offline run without content."""


def _written(run: TrackerRecord, out: Path) -> Path:
    """Return the path of a run; W&B's process reports failed writes only in its log."""
    for place in _offline(run, out):
        if any(file.stat().st_size > EMPTY_FILE_BYTES for file in place.glob("*.wandb")):
            return place
    raise messages.EXPORT_INCOMPLETE(folder=out / "wandb", run=run.name)


def _offline(run: TrackerRecord, out: Path) -> list[Path]:
    """Return the paths of a run written by W&B."""
    return sorted((out / "wandb").glob(f"offline-run-*-{run.run_id}"))


def _folders(runs: Sequence[TrackerRecord]) -> list[str]:
    """Return a folder name per run, unique even if case does not count."""
    names = [file_name(run.name) for run in runs]
    folded = [name.lower() for name in names]
    return [
        name if folded.count(name.lower()) == 1 else f"{name}-{run.run_id}"
        for run, name in zip(runs, names, strict=True)
    ]


def _free(places: Iterable[Path]) -> None:
    for place in places:
        if place.exists():
            raise messages.EXPORT_EXISTS(path=place)


def _written_aside(path: Path, write: Callable[[Path], None]) -> Path:
    """Write a temporary folder, then move it into place."""
    aside = path.with_name(f".{path.name}.writing")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        write(aside)
        aside.rename(path)
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    return path
