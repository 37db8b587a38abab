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
    "{path}: a {what}, not a log. Unpack it first: {command}",
    "A file is an archive, or compressed by another program than gzip or zstd.",
    UnreadableSourceError,
)
BINARY_FILE: Final = ErrorKind(
    "binary-file",
    "{path}: binary data, not a log ({odd} control characters in the first {size} bytes). Give the "
    "console log or the framework's own log file.",
    "More than a quarter of a file's first bytes are control characters.",
    UnknownFormatError,
)
DAMAGED_FILE: Final = ErrorKind(
    "damaged-file",
    "{path}: cut off or damaged after line {lines:,} ({error}). Nothing was stored from it. Copy "
    "the file again, or decompress what is left.",
    "A compressed file ends early, or reading fails.",
    UnreadableSourceError,
)
TENSORBOARD_EXTRA_MISSING: Final = ErrorKind(
    "tensorboard-extra-missing",
    f"{{path}}: reading a TensorBoard event file needs an extra. {install_hint('tensorboard')}",
    "An event file is given, and TensorBoard is not installed.",
    UnreadableSourceError,
)
DAMAGED_EVENT_FILE: Final = ErrorKind(
    "damaged-event-file",
    "{path}: a damaged TensorBoard event file ({error}). Nothing was stored from it; copy it "
    "again.",
    "A record of an event file is invalid.",
    UnreadableSourceError,
)
EVENT_FILE_WITHOUT_VALUES: Final = ErrorKind(
    "event-file-without-values",
    "{path}: an event file without values.",
    "An event file has no value: the run ended before its first step.",
    UnknownFormatError,
)
