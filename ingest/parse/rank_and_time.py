"""Head of a line: tags of the rank, and the time stamp."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Final

from ..formats.registry import RANK_TAGS

COMPACT_STAMP_RUNS: Final = 4
"""Digit runs of a stamp with a compact date, 20261120: date, hour, minute, second."""
COMPACT_DATE_DIGITS: Final = 8
VALID_YEARS: Final = range(1970, 2971)
"""Years of valid stamps: stamps near the largest datetime break arithmetic."""
PLACEHOLDER_YEAR: Final = 2000
"""Year of stamps without one: a leap year, so that 29 February parses."""

_LAUNCHER_TAGS: Final = (
    r"\[(?:rank|default|trainer)(\d{1,9})(?:\\?\|\d{1,9})?\]:|(\d{1,9}): "
    r"|\[\d{1,9},(\d{1,9})\]<std(?:out|err)>:"
)
"""Tags of torchrun (role and rank, perhaps `|` local rank), srun --label and Open MPI."""
EMBEDDED_TAG: Final = re.compile(r"\[(?:rank|default|trainer)\d")
"""Tag of torchrun after text without a newline, such as a progress bar."""

_DIGITS: Final = re.compile(r"\d+")
_EPOCH: Final = re.compile(r"\d{10}(?:\.\d+)?|\d{13}|\d{16}")


@cache
def compile_rank_tags(tags: Sequence[str] = ()) -> re.Pattern[str]:
    """Return a regex for a tag before a line: a launcher's, of RANK_TAGS or of `tags`.

    RANK_TAGS and `tags` are regexes with a group `rank`. In the result their groups are named, and
    the groups of launchers' tags are not.
    """
    several = [
        tag.replace("(?P<rank>", f"(?P<rank{index}>")
        for index, tag in enumerate(dict.fromkeys((*RANK_TAGS, *tags)))
    ]
    return re.compile(rf"\s*(?:{'|'.join((_LAUNCHER_TAGS, *several))})")


def parse_rank(text: str, tag: re.Pattern[str] | None = None) -> str | None:
    """Return the ranks of the tags before a line, outermost first.

    `1: [rank0]:` is 1:0. A framework's tag contains the global rank, and replaces all others.

    tag: from `compile_rank_tags`
    """
    ranks: dict[str, str] = {}  # by tag: torchrun's may be repeated
    tag = tag or compile_rank_tags()
    match = tag.match(text)
    if match is None and (glued := EMBEDDED_TAG.search(text)):
        match = tag.match(text, glued.start())
    while match:
        if match.lastgroup:
            return match[match.lastgroup] or None
        ranks[match[0].strip()] = next(group for group in match.groups() if group)
        match = tag.match(text, match.end())
    return ":".join(ranks.values()) or None


def parse_stamp(text: str) -> datetime | None:
    """Return the time of a stamp; None if invalid.

    Examples: `2026-11-20 15:34:16,731`, `20260306 10:15:16`, `05/04 15:24:10` (year unknown). A
    bare number is a time since the epoch in s (perhaps with a fraction), ms or us.
    """
    parts = _DIGITS.findall(text)
    if len(parts) < 3 and _EPOCH.fullmatch(text):  # noqa: PLR2004 - date and time have more
        seconds = float(text) / 10 ** max(0, 3 * ((len(text.partition(".")[0]) - 10) // 3))
        return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    if len(parts) == COMPACT_STAMP_RUNS and len(parts[0]) == COMPACT_DATE_DIGITS:
        parts[:1] = parts[0][:4], parts[0][4:6], parts[0][6:]
    digits = [int(part[:9]) for part in parts]
    if len(digits) in (5, 6) and len(text) < 16:  # noqa: PLR2004 - no year
        digits = [PLACEHOLDER_YEAR, *digits]
    if len(digits) == 7:  # noqa: PLR2004 - a fraction of a second
        digits[6] = int(parts[6][:6].ljust(6, "0"))
    if not digits or digits[0] not in VALID_YEARS:
        return None
    try:
        return datetime(*digits)  # type: ignore[arg-type]  # noqa: DTZ001 - zone unknown
    except (ValueError, TypeError):
        return None
