"""What can go wrong with input, each with what, where, why and what to do.

FairmfuError
|-- UnknownFormatError      no format, or more than one, fits a file
|-- UnreadableSourceError   the file cannot be read at all
|-- FormatFileError         a format of the user's own is not one, or clashes with another
|-- ConfigError             fairmfu.toml holds something that it can't
|-- FactError               a fact is misnamed or has an impossible value
+-- StoreError              the store is missing, locked or damaged
"""

from __future__ import annotations

from functools import partial


class FairmfuError(Exception):
    """Base of all errors that a user can mend; the CLI prints it and exits 1."""


class UnknownFormatError(FairmfuError):
    """No format, or more than one, fits a file.

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
    """A file cannot be read: empty, binary, truncated or not there."""


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
