"""What can go wrong with input, each with what, where, why and what to do.

    FairmfuError
    |-- UnknownFormatError      no format, or more than one, fits a file
    |-- UnreadableSourceError   the file cannot be read at all
    |-- FactError               a fact is misnamed or has an impossible value
    +-- StoreError              the store is missing, locked or damaged
"""

from __future__ import annotations


class FairmfuError(Exception):
    """Base of all errors that a user can mend; the CLI prints it and exits 1."""


class UnknownFormatError(FairmfuError):
    """No format, or more than one, fits a file."""


class UnreadableSourceError(FairmfuError):
    """A file cannot be read: empty, binary, truncated or not there."""


class FactError(FairmfuError):
    """A fact is misnamed, or its value is impossible."""


class StoreError(FairmfuError):
    """The store is missing, locked or damaged."""
