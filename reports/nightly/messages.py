"""Errors that end a night, and errors of baselines."""

from __future__ import annotations

from typing import Final

from fairmfu.ingest.core.errors import ErrorKind, FairmfuError


class BaselineError(FairmfuError):
    """A baseline has no run with a TGS, so nothing could be compared with it."""


class NothingReadError(FairmfuError):
    """None of the sources could be read."""


BASELINE_WITHOUT_TGS: Final = ErrorKind(
    "baseline-without-tgs",
    "No baseline was set: {name} has no TGS{missing}.",
    "A run without TGS is set as a baseline.",
    BaselineError,
    fix="give the missing facts with fairmfu set, or name another run",
)
BASELINE_WITHOUT_RUN: Final = ErrorKind(
    "baseline-without-run",
    "{problems}",
    "Baselines of the store or of fairmfu.toml have no run with a TGS.",
    BaselineError,
)
NOTHING_READ: Final = ErrorKind(
    "nothing-read",
    "None of the sources could be read. {reasons}",
    "Every source of a night fails.",
    NothingReadError,
)
NO_KNOWN_LOG: Final = ErrorKind(
    "no-known-log",
    "None of the sources could be read. No file has a known log format.",
    "No source of a night has a log of a known format.",
    NothingReadError,
    fix="see why with: fairmfu ingest FILE",
)
ISSUES_NOT_WRITTEN: Final = ErrorKind(
    "issues-not-written",
    "{folder}: {why}; the reports of the night are written.",
    "The folder of --issue cannot be written: a full disk, or no permission.",
    FairmfuError,
    fix="{remedy}",
)
OUT_NOT_OURS: Final = ErrorKind(
    "out-not-ours",
    "{out}: fairmfu did not write {name} there, so no report is written.",
    "The folder of a nightly's reports has a file that a report would replace.",
    FairmfuError,
    fix="move that file away, or give another folder with --out",
)
NIGHT_NOT_WRITTEN: Final = ErrorKind(
    "night-not-written",
    "{out}: {why}; the last good report is unchanged.",
    "The reports of a night cannot be written: a full disk, or no permission.",
    FairmfuError,
    fix="{remedy}",
)
