"""Commands in texts for people, so that they run as printed."""

from __future__ import annotations

import re
import shlex
from typing import Final

_OF_A_STORE: Final = re.compile(
    r"\bfairmfu (?P<command>baseline (?:set|list|remove)|chart|compact|compare|doctor|explain|"
    r"export|ingest|missing|query|rebuild|remove|report|rescore|runs|set)\b"
    r"(?!:| -h\b)(?![^.;\n]*--store\b)"
)
"""A command that reads or writes a store, and names none."""


def shell_word(text: str) -> str:
    """Return a text as one word and one line of a command, for bash."""
    if text.isprintable():
        return shlex.quote(text)
    quoted = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{''.join(map(_escaped, quoted))}'"


def _escaped(char: str) -> str:
    written = char.encode("utf-8", "surrogatepass")
    return char if char.isprintable() else "".join(f"\\x{byte:02x}" for byte in written)


def store_option(store: str | None) -> str:
    """Return the option that names a store; empty for the usual store."""
    return "" if store is None else f" --store {shell_word(store)}"


def with_store(text: str, store: str | None) -> str:
    """Return a text whose commands name a store; None for the usual store.

    >>> with_store("Fix: fairmfu rescore.", "perf")
    'Fix: fairmfu rescore --store perf.'
    """
    option = store_option(store)
    return _OF_A_STORE.sub(lambda found: f"{found[0]}{option}", text) if option else text
