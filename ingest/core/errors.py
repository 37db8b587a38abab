"""Errors of input, with what, where, why and what to do.

FairmfuError
|-- UnknownFormatError      no format, or more than one, fits a file
|   `-- UnreadFormatError   the format is known, and the steps cannot be read
|-- UnreadableSourceError   the file cannot be read at all
|   `-- ReadingFaultError   the program itself failed at the file
|-- FormatFileError         a user's format is invalid, or clashes with another
|-- ConfigError             fairmfu.toml is invalid
|-- FactError               a fact is misnamed or has an impossible value
|-- StoreError              the store is missing, locked or damaged
+-- ClusterError            the reading machines fail, whatever the file

Each error has a kind with an identifier. The kinds of a room are in its `messages.py`.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Generic, TypeVar

DISK_FULL_ERRNOS: Final = (errno.ENOSPC, errno.EDQUOT)
PERMISSION_ERRNOS: Final = (errno.EROFS, errno.EACCES, errno.EPERM)
"""Errors of a write: a full disk; a read-only disk or folder."""


PACKAGE: Final = Path(__file__).parents[2]
MAX_MESSAGE: Final = 160
"""Characters of an error's message in a report of a fault."""


class FairmfuError(Exception):
    """Base of all errors that a user can fix; the CLI prints it and exits 1.

    kind: identifier of the ErrorKind; empty for an error of none
    """

    kind = ""


class UnknownFormatError(FairmfuError):
    """No format, or more than one, fits a file; or the file is binary.

    recognised: True if some format knows at least one line of the file. False for a file found by
    walking a folder means: no log of these frameworks.
    """

    recognised = False


class UnreadFormatError(UnknownFormatError):
    """A file has lines of a known format or trainer, and its steps cannot be read."""

    recognised = True


class UnreadableSourceError(FairmfuError):
    """A file cannot be read: empty, packed, truncated or missing."""


class ReadingFaultError(UnreadableSourceError):
    """The program itself failed at a file; other files are read all the same."""


class FormatFileError(FairmfuError):
    """A TOML file describes no valid format, or a format name is unknown.

    A format may also clash with another. The message names file, table and key, the problem and the
    remedy.
    """


class ConfigError(FairmfuError):
    """The configuration file is invalid.

    The message names file, table and key, the problem and the remedy.
    """


class FactError(FairmfuError):
    """A fact is misnamed, or its value is impossible."""


class StoreError(FairmfuError):
    """The store is missing, locked or damaged."""


class ClusterError(FairmfuError):
    """The machines that read files fail. No file is to blame, so the command ends."""


ErrorT_co = TypeVar("ErrorT_co", bound=Exception, covariant=True)
MadeErrorT = TypeVar("MadeErrorT", bound=Exception)


FILE_FIELDS: Final = ("path", "source", "folder", "store", "out", "other")
"""Fields of messages that hold names of files, which others may have chosen."""


def one_line(name: object) -> str:
    """Return a name on one line, so that no part of it begins a line."""
    return re.sub(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]", "\N{REPLACEMENT CHARACTER}", str(name))


@dataclass(frozen=True, slots=True)
class NoteKind:
    """Template of a text about a file, a store or a command.

    identifier: stays when the words change
    text: a template for `str.format`: conclusion, place, reason
    when: the situation, for docs/reference/messages.md
    fix: a template of the remedy, shown after "Fix: "; empty if there is none
    """

    identifier: str
    text: str
    when: str
    fix: str = field(default="", kw_only=True)

    def words(self, **fields: object) -> str:
        """Return the text and the remedy with these fields; names of files take one line."""
        shown = {
            name: one_line(value) if name in FILE_FIELDS else value
            for name, value in fields.items()
        }
        text, fix = self.text.format(**shown), self.fix.format(**shown)
        return f"{text} Fix: {fix}" if fix else text


@dataclass(frozen=True, slots=True)
class ErrorKind(NoteKind, Generic[ErrorT_co]):
    """Template of an error.

    error: class of the error: of FairmfuError, or of click in the command line
    """

    error: type[ErrorT_co]

    def __call__(self, **fields: object) -> ErrorT_co:
        """Return the error with these fields."""
        return self.made(self.error, **fields)

    def made(self, error_type: type[MadeErrorT], **fields: object) -> MadeErrorT:
        """Return the error with these fields, as a given class."""
        error = error_type(self.words(**fields))
        vars(error)["kind"] = self.identifier
        return error


def install_hint(extra: str) -> str:
    """Return the commands that install an extra of the package."""
    uv, pip = f"uv tool install '.[{extra}]'", f"pip install '.[{extra}]'"
    return f"install it in your clone of fairmfu: {uv} or {pip}"


def explain_write_error(error: Exception, option: str) -> tuple[str, str]:
    """Return the reason of a failed write, and the remedy, both without a full stop.

    error: of the system, or of a library that quotes the system. option: the option that names
    another folder.
    """
    if _is_one_of(DISK_FULL_ERRNOS, error):
        return "the disk is full", "free some space and run it again"
    why = getattr(error, "strerror", None) or str(error) or type(error).__name__
    reason = f"cannot be written to ({why.splitlines()[0]})"
    if _is_one_of(PERMISSION_ERRNOS, error):
        return reason, f"give another {option}, or get write permission"
    return reason, "run it again; if that fails too, check the disk"


def explain_read_error(error: OSError) -> str:
    """Return the reason of a failed read and, if access was denied, the remedy.

    The words of an object store already include the remedy.
    """
    why = f"{error.strerror or error}."
    if error.errno in PERMISSION_ERRNOS and error.strerror == os.strerror(error.errno):
        return f"{why} Fix: get read permission; ls -ld shows the owner"
    return why


def _is_one_of(numbers: tuple[int, ...], error: Exception) -> bool:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in numbers
    return any(os.strerror(number) in str(error) for number in numbers)


def describe_fault(error: BaseException) -> str:
    """Return the exception, its origin, and an identifier to report.

    The identifier is a hash of the error's type and of the functions in the traceback: the same
    fault has the same identifier, whatever the log.
    """
    frames = [
        (place.relative_to(PACKAGE), frame.lineno, frame.name)
        for frame in traceback.extract_tb(error.__traceback__)
        if (place := Path(frame.filename)).is_relative_to(PACKAGE)
    ]
    way = "\n".join(f"{place.as_posix()} {name}" for place, _, name in frames)
    kind = type(error).__name__
    identifier = hashlib.sha256(f"{kind}\n{way}".encode()).hexdigest()[:8]
    place, line, name = frames[-1] if frames else (Path("?"), 0, "?")
    said = " ".join(str(error).split())[:MAX_MESSAGE]
    return f"{kind} in {place.as_posix()}, line {line}, {name}: {said} [{identifier}]"
