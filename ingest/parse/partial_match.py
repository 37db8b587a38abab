"""Partial matches of a pattern, for lines without a whole match."""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import cache

from ..core.safe_regex import Regex


def longest_matched_prefix(pattern: str, text: str) -> str:
    """Return the part of `text` matched by the longest matching prefix of `pattern`."""

    def fails(end: int) -> bool:
        return _prefix(pattern, end).search(text) is None

    end = bisect_left(range(len(pattern) + 1), x=True, key=fails) - 1
    match = _prefix(pattern, end).search(text)
    return match[0] if match else ""


@cache
def _prefix(pattern: str, end: int) -> Regex:
    """Return the longest prefix of `pattern`, up to `end`, that is a valid regex.

    An invalid prefix has an open set or group, so no prefix between is valid.
    """
    while True:
        try:
            re.compile(pattern[:end])
            return Regex(pattern[:end])
        except re.error as error:
            end = end - 1 if error.pos is None else min(end - 1, error.pos)
        except FutureWarning:
            end -= 1
