"""What stands at the head of a line: the tags of its rank, and its time stamp."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

COMPACT_STAMP_RUNS: Final = 4
"""Runs of a stamp whose date is one number, 20261120: date, hour, minute, second."""
COMPACT_DATE_DIGITS: Final = 8
VALID_YEARS: Final = range(1970, 2971)
"""A stamp of another year is none: a time next to the last one that there is breaks arithmetic."""
PLACEHOLDER_YEAR: Final = 2000
"""Stands for the year of stamps that have none: a leap year, so that 29 February parses."""

_COMPACT: Final = r"\d{8} \d\d:\d\d:\d\d"
_OF_PRIMUS: Final = r"\[(?:.{0,199}?\[)?rank-"
PRIMUS_STAMP: Final = re.compile(rf"\[(?P<stamp>{_COMPACT})\](?={_OF_PRIMUS}\d)")
"""Of the head that AMD's Primus gives the lines of what runs on it, whatever their own is:
`[20260306 10:15:16][rank-7/8][INFO ] [--------trainer.py:2382] : `, in its files with the user, the
module and the address of the node before the rank (AMD-AGI/Primus
primus/core/utils/logger.py@0db5d5d)."""

LAUNCHER_RANK: Final = re.compile(
    r"\s*(?:\[(?:rank|default|trainer)(\d{1,9})(?:\\?\|\d{1,9})?\]:|(\d{1,9}): "
    r"|\[\d{1,9},(\d{1,9})\]<std(?:out|err)>:|\[XTuner\]\[RANK (?P<xtuner>\d{1,9})\]"
    rf"|\[{_COMPACT}\]{_OF_PRIMUS}(?P<primus>\d{{1,9}})/\d{{1,9}}\])"
)
"""Tags of torchrun (role and rank, perhaps `|` local rank), srun --label, Open MPI, XTuner and
Primus."""
EMBEDDED_TAG: Final = re.compile(r"\[(?:rank|default|trainer)\d")
"""The tag of torchrun behind what was printed without a newline, such as a progress bar."""

_DIGITS: Final = re.compile(r"\d+")
_EPOCH: Final = re.compile(r"\d{10}(?:\.\d+)?|\d{13}|\d{16}")


def parse_rank(text: str) -> str | None:
    """The launchers' tags before a line, outermost first: `1: [rank0]:` is 1:0.

    XTuner's own and that of Primus are the global rank, so they stand for all.
    """
    ranks: dict[str, str] = {}  # by tag: torchrun's may come twice
    match = LAUNCHER_RANK.match(text)
    if match is None and (glued := EMBEDDED_TAG.search(text)):
        match = LAUNCHER_RANK.match(text, glued.start())
    while match:
        if whole := match["xtuner"] or match["primus"]:
            return str(whole)
        ranks[match[0].strip()] = next(group for group in match.groups() if group)
        match = LAUNCHER_RANK.match(text, match.end())
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
