"""Names of runs and jobs, from the path of a log."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from ..decode.line_reader import STDIN_PATH

GENERIC_NAMES: Final = re.compile(
    r"run|logs?|train|std(?:out|err)|out(?:puts?)?|console|work(?:_dirs?)?|runs|files|tb|csv|vis_data"
    r"|structured_logs|exp_tracking|rank_?\d+|tracker|scalars|trainer_(?:state|log)|\d{8}_?\d{6}"
    r"|Train_Samples_.*|events\.out\.tfevents.*|training\.global_rank_.*",
    re.IGNORECASE,
)
"""Names of files and folders that frameworks use for every run, so no part of a run's name."""

TORCHRUN_LOG_PATH: Final = r"[/\\]attempt_\d+[/\\](\d+)[/\\]std(?:out|err)\.log(?:\.gz|\.zst)?$"
"""Path of a rank's output under torchrun --log-dir; the group is its local rank."""

_COUNTED: Final = re.compile(
    r"(?:run|log|train|training|slurm|job|night|nightly|attempt|version|part|seed|latest)?"
    r"[-_. ]*\d*|[a-z]",
    re.IGNORECASE,
)
"""Names that only count the runs of a job."""

_MOMENT: Final = re.compile(
    r"(?<![^\W_])(?:\d{4}[-_.]?\d\d[-_.]?\d\d(?:[T_ -]?\d\d[-_:.]?\d\d(?:[-_:.]?\d\d)?)?(?![^\W_])"
    r"|(?:\d{5,}|(?:0[1-9]|1[0-2])[0-3]\d)$)"
)
"""Date with or without a time, or at the end a long number, or month and day."""


def run_name(path: Path) -> str:
    """Return a run's name: of the file, or of its folders if generic (`run.log`).

    A file named by a date alone gets its folder's name before it: `ds-1b/2026-10-22`.
    """
    if path == STDIN_PATH:
        return "stdin"
    stem, parents = _parts(path)
    specific = [part for part in parents if not GENERIC_NAMES.fullmatch(part)]
    if specific and GENERIC_NAMES.fullmatch(stem):
        return "/".join(specific[-2:])
    return f"{specific[-1]}/{stem}" if specific and not _undated(stem) else stem


def job_name(path: Path) -> str:
    """Return the name of a log's job: of its file or folder, without dates and counts.

    `logs/ds-1b/2026-10-22.log` and `logs/ds-1b-0412/run.log` are runs of `ds-1b`. Empty if no part
    of the path names the job.
    """
    if path == STDIN_PATH:
        return ""
    stem, parents = _parts(path)
    for part in (stem, *reversed(parents)):
        name = _undated(part)
        if not (GENERIC_NAMES.fullmatch(name) or _COUNTED.fullmatch(name)):
            return name
    return ""


def job_place(path: Path) -> str | None:
    """Return what the logs of one job share: the folder above its name, and the name.

    None if no part of the path names the job.
    """
    name = job_name(path)
    if not name:
        return None
    parts = str(path).split("/")
    above = max((n for n, part in enumerate(parts) if name in part), default=len(parts) - 1)
    return "/".join([*parts[:above], name])


def _undated(part: str) -> str:
    """Return a name without dates and the numbers of runs."""
    return re.sub(r"([-_.])[-_.]+", r"\1", _MOMENT.sub("", part)).strip(" -_.")


def _parts(path: Path) -> tuple[str, list[str]]:
    """Return the file's name without suffixes, and the names of its folders."""
    path = Path(re.sub(TORCHRUN_LOG_PATH, "/run.log", str(path)))
    stem = path.name.removesuffix(".gz").removesuffix(".zst")
    stem = stem.rsplit(".", 1)[0] if "." in stem else stem
    return stem, [part for part in path.absolute().parent.parts if part != "/"]
