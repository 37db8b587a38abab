"""How far a pattern matches a line that it does not match."""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import cache

from ..core.safe_regex import Regex


def longest_matched_prefix(pattern: str, text: str) -> str:
    """The longest part of `text` that a prefix of `pattern` matches; longer ones match less."""

    def fails(end: int) -> bool:
        return _prefix(pattern, end).search(text) is None

    end = bisect_left(range(len(pattern) + 1), x=True, key=fails) - 1
    match = _prefix(pattern, end).search(text)
    return match[0] if match else ""


@cache
def _prefix(pattern: str, end: int) -> Regex:
    """The longest beginning of `pattern` up to there that is a regex of its own.

    Where one is not, a set or group is open, and none is that ends within it.
    """
    while True:
        try:
            re.compile(pattern[:end])
            return Regex(pattern[:end])
        except re.error as error:
            end = end - 1 if error.pos is None else min(end - 1, error.pos)
        except FutureWarning:
            end -= 1
