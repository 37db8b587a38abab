"""What can go wrong with input, each with what, where, why and what to do.

FairmfuError
|-- UnknownFormatError      no format, or more than one, fits a file
|-- UnreadableSourceError   the file cannot be read at all
|   `-- ReadingFaultError   it made the program itself fail
|-- FormatFileError         a format of the user's own is not one, or clashes with another
|-- ConfigError             fairmfu.toml holds something that it can't
|-- FactError               a fact is misnamed or has an impossible value
|-- StoreError              the store is missing, locked or damaged
+-- ClusterError            the machines that are to read cannot, whatever the file
"""

from __future__ import annotations

import errno
import hashlib
import os
import traceback
from functools import partial
from pathlib import Path
from typing import Final

DISK_FULL_ERRNOS: Final = (errno.ENOSPC, errno.EDQUOT)
PERMISSION_ERRNOS: Final = (errno.EROFS, errno.EACCES, errno.EPERM)
"""Errors of a write: no room; a disk or a folder that may only be read."""


PACKAGE: Final = Path(__file__).parents[2]
MAX_MESSAGE: Final = 160
"""Characters of an error's own words."""


class FairmfuError(Exception):
    """Base of all errors that a user can mend; the CLI prints it and exits 1."""


class UnknownFormatError(FairmfuError):
    """No format, or more than one, fits a file; or it is binary.

    recognised: whether any line of it is one that some format knows; where none is, a file that a
    folder's walk came upon is no log of these frameworks.
    """

    def __init__(self, message: str, *, recognised: bool) -> None:
        super().__init__(message)
        self.recognised = recognised

    def __reduce__(self) -> tuple[partial[UnknownFormatError], tuple[str, ...]]:
        """So that it comes whole from another process."""
        return partial(type(self), recognised=self.recognised), self.args


class UnreadableSourceError(FairmfuError):
    """A file cannot be read: empty, packed, truncated or not there."""


class ReadingFaultError(UnreadableSourceError):
    """A file made the program itself fail: its fault, and yet the answer of that file alone.

    path: the file; error: what was raised while it was read
    """

    def __init__(self, path: object, error: BaseException | str) -> None:
        said = error if isinstance(error, str) else describe_fault(error)
        super().__init__(
            f"{path}: fairmfu failed at this file: {said}. So nothing of it is taken; all others "
            "are. Please report it with what stands in brackets."
        )
        self.given = str(path), said

    def __reduce__(self) -> tuple[type[ReadingFaultError], tuple[str, str]]:
        """So that it comes whole from another process."""
        return type(self), self.given


class FormatFileError(FairmfuError):
    """A TOML file describes no format, or one that clashes with another; or no format has a name.

    The message names file, table and key, what is wrong and what to do.
    """


class ConfigError(FairmfuError):
    """The configuration is not one.

    The message names file, table and key, what is wrong and what to do.
    """


class FactError(FairmfuError):
    """A fact is misnamed, or its value is impossible."""


class StoreError(FairmfuError):
    """The store is missing, locked or damaged."""


class ClusterError(FairmfuError):
    """Who is to read the files cannot: no file is to blame, so it ends the command."""


def explain_write_error(error: Exception, option: str) -> tuple[str, str]:
    """Why a write failed, and what to do, a sentence; option: by which another folder is given.

    error: of the system, or of a library that tells what the system said.
    """
    if _is_one_of(DISK_FULL_ERRNOS, error):
        return "the disk is full", "Free some space and run it again."
    why = getattr(error, "strerror", None) or str(error) or type(error).__name__
    reason = f"cannot be written to ({why.splitlines()[0]})"
    if _is_one_of(PERMISSION_ERRNOS, error):
        return reason, f"Give another {option}, or the rights to write there."
    return reason, "Run it again; if that fails too, have the disk looked at."


def explain_read_error(error: OSError) -> str:
    """Why a read failed, in sentences; an object store's words say themselves what to do."""
    why = f"{error.strerror or error}."
    if error.errno in PERMISSION_ERRNOS and error.strerror == os.strerror(error.errno):
        return f"{why} Get the right to read it; ls -ld shows whose it is."
    return why


def _is_one_of(numbers: tuple[int, ...], error: Exception) -> bool:
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in numbers
    return any(os.strerror(number) in str(error) for number in numbers)


def reading_error(path: object, error: BaseException) -> Exception:
    """Return the answer of a file that could not be read: its own error, or a fault as one."""
    if isinstance(error, FairmfuError | OSError):
        return error
    return ReadingFaultError(path, error)


def describe_fault(error: BaseException) -> str:
    """Say what was raised, where, and by which identifier to report it.

    The identifier is of the kind of error and the functions on the way to it, so that one fault has
    one, whatever the log.
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
