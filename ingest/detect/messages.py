"""Errors of files without a single known format, and of formats."""

from __future__ import annotations

from typing import Final

from ..core.errors import ErrorKind, FormatFileError, UnknownFormatError, UnreadFormatError

_KNOWN: Final = "  known: {names}\n "
"""Last line of a text; the remedy follows in a line of its own."""
_GIVE_STEPS: Final = (
    "give the log with the training steps (stdout or stderr, rank 0). For your own format, write a "
    "TOML file (fairmfu formats -h shows one), and read with --log-format FILE.toml"
)
UNKNOWN_FORMAT: Final = ErrorKind(
    "unknown-format",
    f"{{path}}: unknown format.\n{{hint}}{_KNOWN}",
    "No line of a file is of a known format.",
    UnknownFormatError,
    fix=_GIVE_STEPS,
)
NO_READABLE_STEP: Final = ErrorKind(
    "no-readable-step",
    f"{{path}}: unknown format, similar to a known one.\n{{nearest}}{{hint}}{_KNOWN}",
    "A file is similar to a known format, and has no readable step.",
    UnreadFormatError,
    fix=_GIVE_STEPS,
)
LAUNCH_FAILED: Final = "no training step; the launch failed: "
"""Words before the error of a launch."""
FAILED_BEFORE_STEPS: Final = ErrorKind(
    "failed-before-steps",
    f"{{path}}: {LAUNCH_FAILED}{{error}}\n{{nearest}} ",
    "A file has an error of a launch, and no step of a known format.",
    UnreadFormatError,
    fix="mend the error, and start the run again. If its steps are in another file, give that one",
)
SEVERAL_FORMATS: Final = ErrorKind(
    "several-formats",
    "{path}: has lines of {count} formats, so it is unclear which steps count.\n{lines}\n ",
    "A file has steps of several frameworks.",
    UnreadFormatError,
    fix="split the file, or choose a format with --log-format",
)
FILE_WITHOUT_STEPS: Final = ErrorKind(
    "file-without-steps",
    "{path}: {what}",
    "A file that a framework writes beside its logs, and that has no step line.",
    UnknownFormatError,
)
UNSUPPORTED_TRAINER: Final = ErrorKind(
    "unsupported-trainer",
    "{path}: {trainer}.",
    "A log of a known trainer that fairmfu does not read.",
    UnreadFormatError,
)

# -- formats -------------------------------------------------------------------------------------

FORMAT_NAME_TAKEN: Final = ErrorKind(
    "format-name-taken",
    "{path}: name: the format {name!r} exists ({origin}).",
    "A format file has the name of another format.",
    FormatFileError,
    fix="give another name; extends = {name!r} adds lines to that format",
)
FORMAT_EXTENDED_TWICE: Final = ErrorKind(
    "format-extended-twice",
    "{path}: extends: {other} extends {name} too.",
    "Two format files extend the same format.",
    FormatFileError,
    fix="put the lines into one file",
)
FORMAT_TOO_WIDE: Final = ErrorKind(
    "format-too-wide",
    "{path}: signature: matches a step line of {name} too ({line!r}).",
    "The signature of a format file matches the steps of another format.",
    FormatFileError,
    fix="make it narrower; extends = {name!r} adds lines to that format",
)
FORMAT_COVERED: Final = ErrorKind(
    "format-covered",
    "{path}: signature: {name} matches this format's step line too ({line!r}).",
    "Another format matches the steps of a format file.",
    FormatFileError,
    fix="to add lines to that format, write extends = {name!r}",
)
UNKNOWN_FORMAT_NAME: Final = ErrorKind(
    "unknown-format-name",
    "No format is called {name!r}. {hint}Known: {names}.",
    "A format is chosen by a name that does not exist.",
    FormatFileError,
    fix="give one of these, or the path of a TOML file",
)
FORMATS_FOLDER_MISSING: Final = ErrorKind(
    "formats-folder-missing",
    "{variable}={path}: no such folder.",
    "An environment variable names a folder of formats that does not exist.",
    FormatFileError,
    fix="create it, or unset the variable",
)
