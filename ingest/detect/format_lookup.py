"""Formats allowed for a log: built-in formats, and formats of the user.

Every command knows the formats in the user's folder; others are named on the command line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..core.errors import FormatFileError
from ..core.toml_reader import suggest_nearest
from ..formats.registry import BUILT_IN_FORMATS
from ..formats.spec import LogFormat
from .detection import FormatChoice
from .messages import (
    FORMAT_COVERED,
    FORMAT_EXTENDED_TWICE,
    FORMAT_NAME_TAKEN,
    FORMAT_TOO_WIDE,
    FORMATS_FOLDER_MISSING,
    UNKNOWN_FORMAT_NAME,
)
from .user_formats import UserFormat, load_user_format

FORMATS_FOLDER_VARIABLE: Final = "FAIRMFU_FORMATS"
"""Environment variable: a folder in place of the user's own; empty for none."""


@dataclass(frozen=True, slots=True)
class FormatCatalog:
    """All formats allowed for a log. own: formats of the user."""

    formats: tuple[LogFormat, ...] = BUILT_IN_FORMATS
    own: tuple[UserFormat, ...] = ()

    def origin(self, name: str) -> str:
        """Return the file of a user's format, or "built-in"."""
        return next((str(o.path) for o in self.own if o.log_format.name == name), "built-in")

    def with_user_format(self, user_format: UserFormat) -> FormatCatalog:
        """Return the catalog with another format, in place of the extended one if any.

        Raises FormatFileError if the name is taken, or another format matches the step lines.
        """
        name, old = user_format.log_format.name, user_format.extends
        if any(f.name == name for f in self.formats):
            raise FORMAT_NAME_TAKEN(path=user_format.path, name=name, origin=self.origin(name))
        if old is not None and old not in self.formats:
            other = next(o.path for o in self.own if o.extends == old)
            raise FORMAT_EXTENDED_TWICE(path=user_format.path, other=other, name=old.name)
        others = [f for f in self.formats if f != old]
        if clash := next(_clashes(user_format, others), None):
            raise clash
        kept = tuple(user_format.log_format if f == old else f for f in self.formats)
        return FormatCatalog(
            kept if old else (*kept, user_format.log_format), (*self.own, user_format)
        )

    def tried(self, names_or_paths: Sequence[str] = ()) -> FormatChoice:
        """Return the choice of formats for a log: the named formats, or all.

        names_or_paths: names of formats, or TOML files. Raises FormatFileError.
        """
        catalog, names = self, set[str]()
        for word in names_or_paths:
            catalog, name = catalog.with_named_format(word)
            names.add(name)
        choice = FormatChoice(catalog.formats)
        return choice.only(names) if names else choice

    def with_named_format(self, name_or_path: str) -> tuple[FormatCatalog, str]:
        """Return the catalog with the named format, and the name of the format.

        A user's format replaces the extended format. Raises FormatFileError.
        """
        if any(f.name == name_or_path for f in self.formats):
            return self, name_or_path
        if own := next((o for o in self.own if o.extends and o.extends.name == name_or_path), None):
            return self, own.log_format.name
        path = Path(name_or_path)
        if path.suffix != ".toml" and not path.is_file():
            names = [f.name for f in self.formats]
            hint = f"{near} " if (near := suggest_nearest(name_or_path, names)) else ""
            raise UNKNOWN_FORMAT_NAME(name=name_or_path, hint=hint, names=", ".join(names))
        same = (o for o in self.own if path.exists() and o.path.exists() and path.samefile(o.path))
        if loaded := next(same, None):
            return self, loaded.log_format.name
        new = load_user_format(path)
        return self.with_user_format(new), new.log_format.name


def load_format_catalog() -> FormatCatalog:
    """Return the built-in formats and the user's formats. Raises FormatFileError."""
    out = FormatCatalog()
    for path in user_format_files():
        out = out.with_user_format(load_user_format(path))
    return out


def user_format_files() -> list[Path]:
    """Return the TOML files of the user's folder of formats.

    The folder is $FAIRMFU_FORMATS, or fairmfu/formats in $XDG_CONFIG_HOME or ~/.config. A missing
    folder is an error (FormatFileError) only if $FAIRMFU_FORMATS names the folder.
    """
    setting = os.environ.get(FORMATS_FOLDER_VARIABLE)
    if setting == "":
        return []
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    folder = Path(setting) if setting else Path(home) / "fairmfu" / "formats"
    if setting and not folder.is_dir():
        raise FORMATS_FOLDER_MISSING(variable=FORMATS_FOLDER_VARIABLE, path=setting)
    return sorted(folder.glob("*.toml"))


def _clashes(user_format: UserFormat, others: Iterable[LogFormat]) -> Iterator[FormatFileError]:
    """Yield errors for formats that match each other's step lines."""
    path, log_format = user_format.path, user_format.log_format
    signature = re.compile(log_format.signature)
    for other in others:
        other_signature = re.compile(other.signature)
        for line in other.steps:
            if signature.search(line.example):
                yield FORMAT_TOO_WIDE(path=path, name=other.name, line=line.example[:60])
        for line in log_format.steps:
            if other_signature.search(line.example):
                yield FORMAT_COVERED(path=path, name=other.name, line=line.example[:60])
