"""TOML files that users write: values by kind, and all problems at once."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from .errors import FairmfuError, explain_read_error
from .messages import INVALID_TOML, INVALID_VALUES, UNREADABLE_FILE
from .paths import as_remote

_T = TypeVar("_T")

_KINDS: Final[dict[type, str]] = {
    str: "text in quotes",
    bool: "true or false",
    int: "a whole number",
    list: "a list in [ ]",
    dict: "a table: { name = … }",
}


MAX_TOML_BYTES: Final = 8 * 1024 * 1024
MAX_KEY_LEVELS: Final = 32
"""Names in a dotted key; the time and memory of tomllib grow with their square."""
_LEVEL: Final = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')"""
_DEEP_KEY: Final = re.compile(
    rf"(?<![A-Za-z0-9_-]){_LEVEL}(?:[ \t]*+\.[ \t]*+{_LEVEL}){{{MAX_KEY_LEVELS}}}"
)


class TomlTable:
    """A table of a TOML file: returns values by kind and gathers the problems of all."""

    def __init__(self, values: Mapping[str, Any], table_name: str, problems: list[str]) -> None:
        """Set up a table. `table_name` begins all its problems: `[[steps]] 2, `."""
        self.values, self.place, self.problems = values, table_name, problems

    def add_problem(self, key: str, text: str) -> None:
        """Add a problem of a key: what is wrong, and what to do."""
        self.problems.append(f"{self.place}{key}: {text}")

    def take(self, key: str, kind: type[_T], default: _T) -> _T:
        """Return the value of a key; the default if missing or of another kind."""
        value = self.values.get(key, default)
        if isinstance(value, kind) and (kind is bool or not isinstance(value, bool)):
            return value
        self.add_problem(key, f"is {value!r}: write {_KINDS[kind]}.")
        return default

    def require(self, *keys: str) -> None:
        """Add a problem for every key that is missing or empty."""
        for key in keys:
            if not self.values.get(key):
                self.add_problem(key, "is missing.")

    def only(self, keys: Iterable[str]) -> None:
        """Add a problem for every key of the table outside `keys`."""
        allowed = sorted(keys)
        for key in self.values:
            if key not in allowed:
                self.add_problem(key, self.unknown_key_message(key, allowed))

    def unknown_key_message(self, key: str, allowed: Sequence[str]) -> str:
        """Return the message for a key that is not allowed."""
        return f"unknown key. {suggest_or_list(key, allowed)}"

    def tables(self, key: str) -> list[Self]:
        """Return the tables of an array, `[[key]]`."""
        single = isinstance(self.values.get(key), dict)  # [key]
        rows = [None] if single else self.take(key, list, [])
        if not all(isinstance(row, dict) for row in rows):
            self.add_problem(key, f"write [[{key}]] above each of its tables.")
            return []
        kind = type(self)
        return [kind(r, f"[[{key}]] {n}, ", self.problems) for n, r in enumerate(rows, start=1)]

    def table(self, key: str) -> Self:
        """Return the table `[key]`; an empty one if missing."""
        return type(self)(self.take(key, dict, {}), f"[{key}] ", self.problems)


def read_toml(path: Path, error_type: type[FairmfuError]) -> dict[str, Any]:
    """Return the values of a TOML file. Raises `error_type`."""
    try:
        return parse_toml(read_toml_text(path))
    except tomllib.TOMLDecodeError as error:
        hint = " Put regexes in single quotes: '\\d+'." if "\\" in str(error) else ""
        raise INVALID_TOML.made(error_type, path=path, error=error, hint=hint) from error
    except UnicodeDecodeError as error:
        raise UNREADABLE_FILE.made(error_type, path=path, why=f"{error}.") from error
    except OSError as error:
        why = explain_read_error(error)
        raise UNREADABLE_FILE.made(error_type, path=path, why=why) from error


def read_toml_text(path: Path) -> str:
    """Return the text of a TOML file.

    Raises OSError, UnicodeDecodeError, or TOMLDecodeError if it has more than MAX_TOML_BYTES.
    """
    if as_remote(path) is not None:  # its text is kept, so that it is asked for once
        content = path.read_text(encoding="utf-8").encode()
    else:
        with path.open("rb") as file:
            content = file.read(MAX_TOML_BYTES + 1)
    if len(content) > MAX_TOML_BYTES:
        raise tomllib.TOMLDecodeError(f"larger than {MAX_TOML_BYTES // 1024**2} MiB")
    return content.decode("utf-8")


def parse_toml(text: str) -> dict[str, Any]:
    """Return the values of a TOML text. Raises TOMLDecodeError.

    tomllib raises RecursionError at endless nesting, and accepts integers beyond TOML's 64 bits,
    some of them too long for Python to print: both raise TOMLDecodeError here. A byte-order mark at
    the start, from an editor, is skipped. Keys of more than MAX_KEY_LEVELS names are refused.
    """
    if _DEEP_KEY.search(text):
        raise tomllib.TOMLDecodeError(f"a key of more than {MAX_KEY_LEVELS} names")
    try:
        values = tomllib.loads(text.removeprefix("\ufeff"))
        beyond = any(not -(2**63) <= number < 2**63 for number in _whole_numbers(values))
    except RecursionError as error:
        raise tomllib.TOMLDecodeError("nested too deeply") from error
    except tomllib.TOMLDecodeError:
        raise
    except ValueError as error:
        raise tomllib.TOMLDecodeError(f"{error}") from error
    if beyond:
        raise tomllib.TOMLDecodeError("a whole number beyond 64 bits")
    return values


def _whole_numbers(value: object) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _whole_numbers(item)


def raise_problems(path: Path, problems: Sequence[str], error_type: type[FairmfuError]) -> None:
    """Raise `error_type` with all problems, if any."""
    if problems:
        listed = "".join(f"\n  {problem}" for problem in problems)
        text = problems[0] if len(problems) == 1 else f"{len(problems)} problems:{listed}"
        raise INVALID_VALUES.made(error_type, path=path, problems=text)


def suggest_or_list(word: str, choices: Iterable[str]) -> str:
    """Return a question for the nearest choices, or a list of all choices."""
    names = list(choices)
    return suggest_nearest(word, names) or list_choices(names)


def suggest_nearest(word: str, choices: Iterable[str]) -> str:
    """Return a question for the nearest choices; empty if none is near."""
    near = get_close_matches(word, choices, n=2, cutoff=0.6)
    return f"Did you mean {' or '.join(near)}?" if near else ""


def list_choices(choices: Iterable[str]) -> str:
    """Return a sentence that lists the choices."""
    return f"One of: {', '.join(choices)}."
