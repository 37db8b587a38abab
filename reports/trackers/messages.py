"""Errors of exports."""

from __future__ import annotations

from typing import Final

from fairmfu.ingest.core.errors import ErrorKind, FairmfuError


class NotExportedError(FairmfuError):
    """Runs cannot be exported; the message says what, where, why and the remedy."""


TRACKER_MISSING: Final = ErrorKind(
    "tracker-missing",
    "--to {tracker} needs the package {package}, which is not installed.",
    "The package of a tracker is not installed.",
    NotExportedError,
    fix="{hint}",
)
EXPORT_EXISTS: Final = ErrorKind(
    "export-exists",
    "{path} exists, so nothing was written.",
    "A run was exported to the same folder before.",
    NotExportedError,
    fix="choose another --out, or remove it",
)
EXPORT_INCOMPLETE: Final = ErrorKind(
    "export-incomplete",
    "{folder}: W&B did not write {run}. Its logs in that folder give the reason.",
    "W&B does not write a run, and reports no error.",
    NotExportedError,
    fix="check the free disk space, remove the folder and export again",
)
