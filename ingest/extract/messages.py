"""Errors of paths, and of texts that are not read as a whole."""

from __future__ import annotations

from typing import Final

from ..core.errors import ErrorKind, UnreadableSourceError

NO_REGULAR_FILE: Final = ErrorKind(
    "no-regular-file",
    "{path}: not a regular file.",
    "A path names a device, a socket or a named pipe.",
    UnreadableSourceError,
    fix="pipe its output instead: … | fairmfu ingest -",
)
BROKEN_LINK: Final = ErrorKind(
    "broken-link",
    "{path}: a broken or circular link.",
    "A path is a symbolic link without a target.",
    UnreadableSourceError,
)
PATH_MISSING: Final = ErrorKind(
    "path-missing",
    "{path}: {why}.",
    "A path or an address does not exist.",
    UnreadableSourceError,
)
ACCESS_DENIED: Final = ErrorKind(
    "access-denied",
    "{path}: {why}.",
    "An object store does not let the credentials list or read an address.",
    UnreadableSourceError,
)
NO_MATCH: Final = ErrorKind(
    "no-match",
    "{pattern}: no file or folder matches{detail}.",
    "A pattern matches nothing.",
    UnreadableSourceError,
)
NO_LOG_IN_FOLDER: Final = ErrorKind(
    "no-log-in-folder",
    "{folder}: no log file in this folder.{hint}",
    "A folder has no file that may be a log.",
    UnreadableSourceError,
)
NEWEST_FIRST: Final = ErrorKind(
    "newest-first",
    "{path}: its lines are in reverse order, newest first, so no step has a duration. Nothing "
    "was stored from it.",
    "A log was exported with its newest line first.",
    UnreadableSourceError,
    fix="export it oldest first",
)
LINES_LOST: Final = ErrorKind(
    "lines-lost",
    "{path}: {counted:,} of its {lines:,} lines were counted: a fault of fairmfu, not of the "
    "log. Nothing was stored from it.",
    "The counts of a log's lines do not add up: a fault of fairmfu.",
    UnreadableSourceError,
    fix="report it",
)
