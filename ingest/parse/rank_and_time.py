"""What stands at the head of a line: the tags of its rank, and its time stamp."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Final

from ..formats.registry import RANK_TAGS

COMPACT_STAMP_RUNS: Final = 4
"""Runs of a stamp whose date is one number, 20261120: date, hour, minute, second."""
COMPACT_DATE_DIGITS: Final = 8
VALID_YEARS: Final = range(1970, 2971)
"""A stamp of another year is none: a time next to the last one that there is breaks arithmetic."""
PLACEHOLDER_YEAR: Final = 2000
"""Stands for the year of stamps that have none: a leap year, so that 29 February parses."""

_LAUNCHER_TAGS: Final = (
    r"\[(?:rank|default|trainer)(\d{1,9})(?:\\?\|\d{1,9})?\]:|(\d{1,9}): "
    r"|\[\d{1,9},(\d{1,9})\]<std(?:out|err)>:"
)
"""Tags of torchrun (role and rank, perhaps `|` local rank), srun --label and Open MPI."""
EMBEDDED_TAG: Final = re.compile(r"\[(?:rank|default|trainer)\d")
"""The tag of torchrun behind what was printed without a newline, such as a progress bar."""

_DIGITS: Final = re.compile(r"\d+")
_EPOCH: Final = re.compile(r"\d{10}(?:\.\d+)?|\d{13}|\d{16}")


@cache
def compile_rank_tags(tags: Sequence[str] = ()) -> re.Pattern[str]:
    """One tag before a line: of a launcher, of RANK_TAGS or of `tags`.

    Those two are regexes with the group `rank`; each gets a named group, launchers' tags none.
    """
    several = [
        tag.replace("(?P<rank>", f"(?P<rank{place}>")
        for place, tag in enumerate(dict.fromkeys((*RANK_TAGS, *tags)))
    ]
    return re.compile(rf"\s*(?:{'|'.join((_LAUNCHER_TAGS, *several))})")


def parse_rank(text: str, tag: re.Pattern[str] | None = None) -> str | None:
    """The tags before a line, outermost first: `1: [rank0]:` is 1:0.

    A framework's own is the global rank, so it stands for all. tag: of `compile_rank_tags`.
    """
    ranks: dict[str, str] = {}  # by tag: torchrun's may come twice
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
    """`2026-11-20 15:34:16,731`, `20260306 10:15:16`, `05/04 15:24:10` (year unknown).

    A bare number counts from the epoch, in s (with a fraction), ms or us.
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
