"""Kinds of faults, apart from `errors`: commands import `errors` before Polars."""

from __future__ import annotations

from typing import Final

from polars.exceptions import PanicException

from .errors import FairmfuError, describe_fault
from .messages import READING_FAULT

FAULTS: Final = (Exception, PanicException)
"""Any exception of reading a file or computing a run: the result of that file or run."""


def reading_error(path: object, error: BaseException) -> Exception:
    """Return the error of a failed reading: a fault becomes a ReadingFaultError."""
    if isinstance(error, FairmfuError | OSError):
        return error
    return READING_FAULT(path=path, fault=describe_fault(error))
