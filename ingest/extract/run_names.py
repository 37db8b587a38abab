"""Names of runs and jobs, from the path of a log or from the fact `name`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from ..decode.line_reader import STDIN_PATH
from ..formats.launch_view import Fact

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


class NameFact(NamedTuple):
    """A fact `name`.

    of_run: it names a single run, not several of a folder; is_given: by a person. A name that a log
    or a tracker has counts only if the path names no job.
    """

    value: str
    of_run: bool
    is_given: bool


LOGGED_NAMES: Final = ("inferred", "companion", "log")
"""Kinds of origins of names that no person gave."""


def name_fact(facts: Iterable[Fact]) -> NameFact | None:
    """Return the fact `name` that applies to a log; None without one.

    facts: of the run, in order
    """
    named = [fact for fact in facts if fact["name"] == "name" and fact["value"]]
    if not named:
        return None
    fact = max(enumerate(named), key=lambda one: (_strength(one[1]["origin"]), one[0]))[1]
    strength = _strength(fact["origin"])
    return NameFact(
        str(fact["value"]), strength >= _OF_RUN, not fact["origin"].startswith(LOGGED_NAMES)
    )


def _strength(origin: str) -> int:
    kind, _, file = origin.partition(":")
    if kind == "sidecar" and file.endswith(OWN_SIDECAR_SUFFIX):
        return _OF_RUN
    return (*LOGGED_NAMES, "sidecar", "", "flag").index(kind)


OWN_SIDECAR_SUFFIX: Final = ".facts.toml"
"""End of the origin of facts for one log, LOG.facts.toml."""

_OF_RUN: Final = len(LOGGED_NAMES) + 1
"""Least strength of names of a single run."""


def named_run(path: Path, fact: NameFact | None) -> str:
    """Return a run's name: of its path, after a logged name if the path names no job."""
    name = run_name(path)
    if fact is None or fact.is_given or job_name(path):
        return name
    return fact.value if GENERIC_NAMES.fullmatch(name) else given_run_name(name, fact)


def given_run_name(name: str, fact: NameFact) -> str:
    """Return the name of a run with a fact `name`; name: without the fact.

    A name of several runs comes before what tells them apart: `nightly-8b/2026-10-22`. For given
    names, ingest.store.catalogue.GIVEN_NAMES_SQL does the same.
    """
    last = name.rpartition("/")[2]
    return fact.value if fact.of_run or last == fact.value else f"{fact.value}/{last}"


def named_job(path: Path, fact: NameFact | None) -> tuple[str, str | None]:
    """Return a job's name and place: of its path, or of its fact `name`."""
    of_path = job_name(path)
    if fact is None or not (fact.is_given or not of_path):
        return of_path, _place(path, of_path)
    name = _undated(fact.value)
    name = fact.value if _COUNTED.fullmatch(name) else name
    return name, f"{'' if fact.is_given else path.absolute().parent}//{name}"


def run_name(path: Path) -> str:
    """Return a run's name: of the file, or of its folders if generic (`run.log`).

    A file named by a date, a count or the number of a job gets the name of its folder before it:
    `ds-1b/2026-10-22`, `titan-8b/slurm-123456`.
    """
    if path == STDIN_PATH:
        return "stdin"
    stem, parents = _parts(path)
    specific = [part for part in parents if not GENERIC_NAMES.fullmatch(part)]
    if specific and GENERIC_NAMES.fullmatch(stem):
        return "/".join(specific[-2:])
    undated = _undated(stem)
    if not specific or (undated and (undated == stem or not _COUNTED.fullmatch(undated))):
        return stem
    named = [part for part in specific if not _COUNTED.fullmatch(_undated(part))]
    return f"{(named or specific)[-1]}/{stem}"


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
    return _place(path, job_name(path))


def _place(path: Path, name: str) -> str | None:
    """Return the place of a path whose part is the name of its job."""
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
    text = re.sub(TORCHRUN_LOG_PATH, "/run.log", str(path.absolute()))
    folder, _, name = text.rpartition("/")
    stem = name.removesuffix(".gz").removesuffix(".zst")
    stem = stem.rsplit(".", 1)[0] if "." in stem else stem
    return stem, [part for part in folder.split("/") if part]
