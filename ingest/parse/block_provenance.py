"""Which line of a block says a fact, so that it can be quoted.

The reader of a block gives facts, not their lines, and a value such as 8 stands on many of them.
So the reader is asked again, of lines that say another value each: what the fact becomes tells its
line. Where that cannot be read, halves of the lines are asked one after the other.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

ReadBlock = Callable[[Sequence[str]], Mapping[str, str]]

MAX_SEARCHED_LINES: Final = 2000
"""The longest block of which the line is looked for: the search reads the block again and again."""

MARKER_BASE: Final = 7_000_000
"""Larger than what blocks say, so that a marked number is none of theirs."""

_SWAPPED: Final = {
    one: other
    for yes, no in (("true", "false"), ("True", "False"), ("TRUE", "FALSE"))
    for one, other in ((yes, no), (no, yes))
}


def locate_facts(
    lines: Sequence[str], read_block: ReadBlock, block_facts: Mapping[str, str]
) -> dict[str, int]:
    """Indices of the lines that say facts, by name.

    read_block: gives facts of lines, and never raises; block_facts: those that it gives of these
    lines. A fact that is in no line as such, but follows from what several say, has none.
    """
    if len(lines) > MAX_SEARCHED_LINES:
        return {}
    found = _by_marks(lines, read_block, block_facts)
    for name, value in block_facts.items():
        index = None if name in found else _by_halves(lines, read_block, name, value)
        if index is not None:
            found[name] = index
    return found


def _by_marks(lines: Sequence[str], read: ReadBlock, said: Mapping[str, str]) -> dict[str, int]:
    """Facts whose value goes from one line into what is read, by name."""
    word = _words(said.values())
    marks: dict[str, int] = {}
    marked = list(lines)
    for i, line in enumerate(lines):
        for match in reversed(list(word.finditer(line))):
            quoted, mark = _mark(match[0], i)
            marks[mark] = i
            marked[i] = marked[i][: match.start()] + quoted + marked[i][match.end() :]
    now = read(marked) if marks else {}
    return {name: marks[now[name]] for name in said if now.get(name) in marks}


def _mark(text: str, index: int) -> tuple[str, str]:
    """A value that no other line says: as it is written there, and as it is read."""
    if text in _SWAPPED:
        return f'"truth {index}"', f"truth {index}"
    number = re.fullmatch(r"[\d,]+", text)
    mark = str(MARKER_BASE + index) if number else f"{text}x{index}"
    return mark, mark


def _by_halves(lines: Sequence[str], read: ReadBlock, name: str, value: str) -> int | None:
    """The line without whose value the fact would be another one, the first of several."""
    word = _words([value])
    holding = [i for i, line in enumerate(lines) if word.search(line)]

    def bear(chosen: Collection[int]) -> bool:
        """Whether the fact would be another one if these lines said another value."""
        changed = (word.sub(_other, x) if i in chosen else x for i, x in enumerate(lines))
        now = read(list(changed))
        return bool(now) and now.get(name) != value  # what cannot be read any more tells nothing

    if not holding or not bear(holding):
        return None
    while len(holding) > 1:
        half = holding[: len(holding) // 2]
        holding = half if bear(half) else holding[len(half) :]
    return holding[0] if bear(holding) else None


def _words(values: Iterable[str]) -> re.Pattern[str]:
    """Matches these values where they stand alone, in whatever case."""
    either = "|".join(_spelt(value) for value in dict.fromkeys(values) if value) or "(?!)"
    return re.compile(rf"(?<!\w)(?<!\d\.)(?:{either})(?!\w|\.\d)", re.IGNORECASE)


def _spelt(value: str) -> str:
    """A whole number also as 4,096 or 3.0."""
    if not value.isdecimal():
        return re.escape(value)
    head = len(value) % 3
    thousands = [value[i : i + 3] for i in range(head, len(value), 3)]
    return ",?".join(filter(None, (value[:head], *thousands))) + r"(?:\.0+)?"


def _other(match: re.Match[str]) -> str:
    """Another value of the same kind, so that what holds it can still be read."""
    text = match[0]
    if text in _SWAPPED:
        return _SWAPPED[text]
    first = next((i for i, c in enumerate(text) if c.isalnum()), None)
    if first is None:
        return f"{text}x"
    old = text[first]
    new = str(int(old) % 9 + 1) if old.isdecimal() else "y" if old in "xX" else "x"
    return text[:first] + new + text[first + 1 :]
