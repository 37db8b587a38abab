"""Lines of a block that state facts, for quotes in reports.

The reader of a block returns facts without their lines, and a value such as 8 is on many of them.
So the reader is called again with a different value on every line: the resulting fact identifies
the line. If changed lines cannot be read, halves of the lines are changed one after the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

ReadBlock = Callable[[Sequence[str]], Mapping[str, str]]

MAX_SEARCHED_LINES: Final = 2000
"""Longest block to search: the search reads the block many times."""

MARKER_BASE: Final = 7_000_000
"""Larger than values in blocks, so that a marked number equals none of them."""

_SWAPPED: Final = {
    one: other
    for yes, no in (("true", "false"), ("True", "False"), ("TRUE", "FALSE"))
    for one, other in ((yes, no), (no, yes))
}


def locate_facts(
    lines: Sequence[str], read_block: ReadBlock, block_facts: Mapping[str, str]
) -> dict[str, int]:
    """Return the index of each fact's line, by the fact's name.

    Facts that follow from several lines, without being on any of them, are left out.

    read_block: returns facts of lines, and never raises
    block_facts: result of read_block for `lines`
    """
    if len(lines) > MAX_SEARCHED_LINES:
        return {}
    indices = _by_marks(lines, read_block, block_facts)
    for name, value in block_facts.items():
        index = None if name in indices else _by_halves(lines, read_block, name, value)
        if index is not None:
            indices[name] = index
    return indices


def _by_marks(
    lines: Sequence[str], read_block: ReadBlock, block_facts: Mapping[str, str]
) -> dict[str, int]:
    """Return the line of each fact whose value is copied from a line."""
    word = _words(block_facts.values())
    marks: dict[str, int] = {}
    marked = list(lines)
    for i, line in enumerate(lines):
        for match in reversed(list(word.finditer(line))):
            quoted, mark = _mark(match[0], i)
            marks[mark] = i
            marked[i] = marked[i][: match.start()] + quoted + marked[i][match.end() :]
    now = read_block(marked) if marks else {}
    return {name: marks[now[name]] for name in block_facts if now.get(name) in marks}


def _mark(text: str, index: int) -> tuple[str, str]:
    """Return a value unique to the line: as written there, and as read back."""
    if text in _SWAPPED:
        return f'"truth {index}"', f"truth {index}"
    number = re.fullmatch(r"[\d,]+", text)
    mark = str(MARKER_BASE + index) if number else f"{text}x{index}"
    return mark, mark


def _by_halves(lines: Sequence[str], read: ReadBlock, name: str, value: str) -> int | None:
    """Return the line whose value determines the fact, the first of several."""
    word = _words([value])
    candidates = [i for i, line in enumerate(lines) if word.search(line)]

    def bear(chosen: Collection[int]) -> bool:
        """Return whether the fact would change if these lines had another value."""
        changed = (word.sub(_other, x) if i in chosen else x for i, x in enumerate(lines))
        now = read(list(changed))
        return bool(now) and now.get(name) != value  # unreadable lines prove nothing

    if not candidates or not bear(candidates):
        return None
    while len(candidates) > 1:
        half = candidates[: len(candidates) // 2]
        candidates = half if bear(half) else candidates[len(half) :]
    return candidates[0] if bear(candidates) else None


def _words(values: Iterable[str]) -> re.Pattern[str]:
    """Return a regex for these values as whole words, ignoring case."""
    either = "|".join(_spelt(value) for value in dict.fromkeys(values) if value) or "(?!)"
    return re.compile(rf"(?<!\w)(?<!\d\.)(?:{either})(?!\w|\.\d)", re.IGNORECASE)


def _spelt(value: str) -> str:
    """Return a regex for a value; a whole number also matches as 4,096 or 3.0."""
    if not value.isdecimal():
        return re.escape(value)
    head = len(value) % 3
    thousands = [value[i : i + 3] for i in range(head, len(value), 3)]
    return ",?".join(filter(None, (value[:head], *thousands))) + r"(?:\.0+)?"


def _other(match: re.Match[str]) -> str:
    """Return another value of the same kind, to keep the line readable."""
    text = match[0]
    if text in _SWAPPED:
        return _SWAPPED[text]
    first = next((i for i, c in enumerate(text) if c.isalnum()), None)
    if first is None:
        return f"{text}x"
    old = text[first]
    new = str(int(old) % 9 + 1) if old.isdecimal() else "y" if old in "xX" else "x"
    return text[:first] + new + text[first + 1 :]
