"""The formats that a log may have: the built-in ones, and a user's own.

Those in the user's folder of formats are known to every command; others are named on the command
line.
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
from .user_formats import UserFormat, load_user_format

FORMATS_FOLDER_VARIABLE: Final = "FAIRMFU_FORMATS"
"""Environment variable: a folder in place of the user's own; empty for none."""


@dataclass(frozen=True, slots=True)
class FormatCatalog:
    """All formats that a log may have, and which of them are a user's own."""

    formats: tuple[LogFormat, ...] = BUILT_IN_FORMATS
    own: tuple[UserFormat, ...] = ()

    def origin(self, name: str) -> str:
        """Where the format of that name is from."""
        return next((str(o.path) for o in self.own if o.log_format.name == name), "built-in")

    def with_user_format(self, user_format: UserFormat) -> FormatCatalog:
        """These and one more, which takes the place of the one that it extends.

        Raises FormatFileError where its name or its step lines are another's.
        """
        name, old = user_format.log_format.name, user_format.extends
        if any(f.name == name for f in self.formats):
            raise FormatFileError(
                f"{user_format.path}: name: {name!r} is a known format ({self.origin(name)}). "
                f"Give another name; extends = {name!r} adds lines to that format."
            )
        if old is not None and old not in self.formats:
            other = next(o.path for o in self.own if o.extends == old)
            raise FormatFileError(
                f"{user_format.path}: extends: {other} extends {old.name} too. "
                "Put the lines into one file."
            )
        others = [f for f in self.formats if f != old]
        if clash := next(_clashes(user_format.log_format, others), None):
            raise FormatFileError(f"{user_format.path}: {clash}")
        kept = tuple(user_format.log_format if f == old else f for f in self.formats)
        return FormatCatalog(
            kept if old else (*kept, user_format.log_format), (*self.own, user_format)
        )

    def tried(self, names_or_paths: Sequence[str] = ()) -> FormatChoice:
        """What a log may have where `names_or_paths` name formats, or TOML files of them.

        Raises FormatFileError.
        """
        known, names = self, set[str]()
        for word in names_or_paths:
            known, name = known.with_named_format(word)
            names.add(name)
        tried = FormatChoice(known.formats)
        return tried.only(names) if names else tried

    def with_named_format(self, name_or_path: str) -> tuple[FormatCatalog, str]:
        """These with the format that `name_or_path` names, and its name. Raises FormatFileError.

        One of the user's own stands for the one that it extends.
        """
        if any(f.name == name_or_path for f in self.formats):
            return self, name_or_path
        if own := next((o for o in self.own if o.extends and o.extends.name == name_or_path), None):
            return self, own.log_format.name
        path = Path(name_or_path)
        if path.suffix != ".toml" and not path.is_file():
            names = [f.name for f in self.formats]
            meant = f"{near} " if (near := suggest_nearest(name_or_path, names)) else ""
            raise FormatFileError(
                f"no format is called {name_or_path!r}. {meant}Known: {', '.join(names)}; "
                "or give the path of a TOML file."
            )
        same = (o for o in self.own if path.exists() and o.path.exists() and path.samefile(o.path))
        if there := next(same, None):
            return self, there.log_format.name
        new = load_user_format(path)
        return self.with_user_format(new), new.log_format.name


def load_format_catalog() -> FormatCatalog:
    """The built-in formats and those of the user's folder. Raises FormatFileError."""
    out = FormatCatalog()
    for path in user_format_files():
        out = out.with_user_format(load_user_format(path))
    return out


def user_format_files() -> list[Path]:
    """The TOML files of the user's folder of formats. Raises FormatFileError where it is missing.

    $FAIRMFU_FORMATS, or fairmfu/formats in $XDG_CONFIG_HOME or ~/.config, which need not be there.
    """
    said = os.environ.get(FORMATS_FOLDER_VARIABLE)
    if said == "":
        return []
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    folder = Path(said) if said else Path(home) / "fairmfu" / "formats"
    if said and not folder.is_dir():
        raise FormatFileError(
            f"{FORMATS_FOLDER_VARIABLE}={said}: no such folder. Make it, or unset the variable."
        )
    return sorted(folder.glob("*.toml"))


def _clashes(mine: LogFormat, others: Iterable[LogFormat]) -> Iterator[str]:
    """Formats that take each other's step lines, so that a log would have two."""
    signature = re.compile(mine.signature)
    for other in others:
        theirs = re.compile(other.signature)
        for line in other.steps:
            if signature.search(line.example):
                yield (
                    f"signature: matches a step line of {other.name} too ({line.example[:60]!r}). "
                    f"Make it narrower; extends = {other.name!r} adds lines to that format."
                )
        for line in mine.steps:
            if theirs.search(line.example):
                yield (
                    f"signature: {other.name} takes its step line for its own "
                    f"({line.example[:60]!r}). extends = {other.name!r} adds lines to that format."
                )
