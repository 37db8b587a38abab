"""Errors of files that hold no lines of text, or not all of them."""

from __future__ import annotations

from typing import Final

from ..core.errors import ErrorKind, UnknownFormatError, UnreadableSourceError, install_hint

EMPTY_FILE: Final = ErrorKind(
    "empty-file",
    "{path}: the file is empty.",
    "A file has no bytes.",
    UnreadableSourceError,
)
PACKED_FILE: Final = ErrorKind(
    "packed-file",
    "{path}: a {what}, not a log.",
    "A file is an archive, or compressed by another program than gzip or zstd.",
    UnreadableSourceError,
    fix="unpack it first: {command}",
)
BINARY_FILE: Final = ErrorKind(
    "binary-file",
    "{path}: binary data, not a log ({odd} control characters in the first {size} bytes).",
    "More than a quarter of a file's first bytes are control characters.",
    UnknownFormatError,
    fix="give the console log or the framework's own log file",
)
DAMAGED_FILE: Final = ErrorKind(
    "damaged-file",
    "{path}: cut off or damaged after line {lines:,} ({error}). Nothing was stored from it.",
    "A compressed file ends early, or reading fails.",
    UnreadableSourceError,
    fix="copy the file again, or decompress what is left",
)
OVERPACKED_FILE: Final = ErrorKind(
    "overpacked-file",
    "{path}: its content is over {ratio} times as large as the file, as no log is. Nothing was "
    "stored from it.",
    "A compressed file repeats the same few bytes for very long.",
    UnreadableSourceError,
    fix="decompress it and look; if it is a log, give the decompressed file",
)
TENSORBOARD_EXTRA_MISSING: Final = ErrorKind(
    "tensorboard-extra-missing",
    "{path}: reading a TensorBoard event file needs an extra.",
    "An event file is given, and TensorBoard is not installed.",
    UnreadableSourceError,
    fix=install_hint("tensorboard"),
)
DAMAGED_EVENT_FILE: Final = ErrorKind(
    "damaged-event-file",
    "{path}: a damaged TensorBoard event file ({error}). Nothing was stored from it.",
    "A record of an event file is invalid.",
    UnreadableSourceError,
    fix="copy it again",
)
EVENT_FILE_WITHOUT_VALUES: Final = ErrorKind(
    "event-file-without-values",
    "{path}: an event file without values.",
    "An event file has no value: the run ended before its first step.",
    UnknownFormatError,
)
