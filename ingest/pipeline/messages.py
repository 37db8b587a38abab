"""Errors and notes about single files of an ingest.

A note ends without a full stop: it is a line of its own, or part of a sentence.
"""

from __future__ import annotations

from typing import Final

from ..core.errors import ErrorKind, NoteKind, UnknownFormatError, UnreadableSourceError

EMPTIED_LOG: Final = ErrorKind(
    "emptied-log",
    "{path}: the file is empty, and was a log. The stored runs are kept.",
    "A file that was read as a log is empty now.",
    UnreadableSourceError,
    fix="restore or delete the file",
)
OVERWRITTEN_LOG: Final = ErrorKind(
    "overwritten-log",
    "{path}: unknown format, and the file was a log. The stored runs are kept.",
    "A file that was read as a log has no line of a known format now.",
    UnknownFormatError,
    fix="restore or delete the file",
)
FORCED_FORMAT_UNKNOWN: Final = ErrorKind(
    "forced-format-unknown",
    "{path}: it grew, and --log-format {name}, with which it was read, is unknown now. The "
    "stored runs are kept.",
    "A log that was read with --log-format grew, and the format is gone.",
    UnreadableSourceError,
    fix="give the format's file with --log-format, or put it into the folder of formats",
)
STORED_WITH_OTHER_FORMAT: Final = ErrorKind(
    "stored-with-other-format",
    "{path}: its content is stored already, read as {name}. --log-format is for new logs.",
    "A stored log is given again with another --log-format.",
    UnreadableSourceError,
    fix="give another --store, or omit --log-format",
)
NAME_NOT_UTF8: Final = ErrorKind(
    "name-not-utf8",
    "{path}: its name is not UTF-8, so it cannot be stored.",
    "The name of a file is not UTF-8.",
    UnreadableSourceError,
    fix="rename it",
)
UNREAD_LINES_REFUSED: Final = ErrorKind(
    "unread-lines-refused",
    "{path}:{line}: {reason}: {text!r}. {count} such lines, and --strict is given.",
    "A log has lines that look like steps and cannot be read, and --strict is given.",
    UnreadableSourceError,
    fix="omit --strict to read the rest",
)
NO_LOG_GIVEN: Final = ErrorKind(
    "no-log-given",
    "{what}.",
    "A Python call names no log, or a list of logs.",
    UnreadableSourceError,
    fix="give each log as an argument, 'a.log', 'b.log'",
)
NO_LOG_FOUND: Final = ErrorKind(
    "no-log-found",
    "{names}: no log of a known framework.",
    "A Python call names folders without a log.",
    UnreadableSourceError,
)
LOGS_FAILED: Final = ErrorKind(
    "logs-failed",
    "{messages}",
    "Several logs of a Python call cannot be read.",
    UnreadableSourceError,
)

# -- notes ---------------------------------------------------------------------------------------

KNOWN: Final = NoteKind(
    "known",
    "known already",
    "The content of a log is stored.",
)
KNOWN_COPY: Final = NoteKind(
    "known-copy",
    "known already: same content as {stored}, whose facts apply",
    "The content of a log is stored, from another file.",
)
MOVED_LOG: Final = NoteKind(
    "moved-log",
    "known already: same content as {stored}, which is gone, and whose facts still apply. To use "
    "the facts beside this log, fairmfu remove its run, and ingest it again",
    "A log with facts beside it has the content of a stored log that is gone.",
)
COPY_INSTEAD: Final = NoteKind(
    "copy-instead",
    "{known}; the earlier run of {path} is kept",
    "A file that was read has the content of another one now.",
)
OTHER_RUN: Final = NoteKind(
    "other-run",
    "{path}: has another run now; the earlier one is kept",
    "A file that was read holds another run now.",
)
FEWER_STEPS: Final = NoteKind(
    "fewer-steps",
    "{path}: has fewer steps of its run than were read before, which are kept. To drop these, "
    "fairmfu remove the run, and ingest the log again",
    "A log that was read has lost steps since.",
)
GROWING: Final = NoteKind(
    "growing",
    "{path}: read while it was being written; the next ingest reads the rest",
    "A log changes while it is read.",
)
UNWRITTEN_FILE: Final = NoteKind(
    "unwritten-file",
    "{path}: the file is empty.",
    "A file of a folder has no bytes, as torchrun and Slurm leave many.",
)
ROTATED_LOG: Final = NoteKind(
    "rotated-log",
    "{path}: no log any more; its content is in {moved_to}.",
    "A log was rotated: another file has its content.",
)
UNREADABLE_COMPANION: Final = NoteKind(
    "unreadable-companion",
    "{path}: {why}. The logs beside it get no facts from it.",
    "A file that gives facts to the logs beside it cannot be read.",
)
SKIPPED_BY_NAME: Final = NoteKind(
    "skipped-by-name",
    "{count} skipped by file name: {names}. To read one, give its path.",
    "Folders have files whose names are not those of logs.",
)
