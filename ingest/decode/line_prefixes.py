"""Prefixes that log collectors add to lines: the rows of line_prefixes.toml.

Rows are tried in order; the first row whose rule accepts the lines of a log counts. A wrong prefix
is worse than none. So words that a log may print itself count only if (nearly) all lines have the
same words, and numbers only if they rise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Final

from ..core.data_files import read_data_file

MIN_ALIKE_LINES: Final = 2
"""Lines that must share a prefix."""
MIN_RISING_LINES: Final = 5
"""Lines whose numbers must rise."""
MIN_MATCHING_SHARE: Final = 0.9
MIN_LINES_PER_NAME: Final = 4
"""Lines that a pod, host or file must have on average."""

AcceptMatches = Callable[[Sequence[re.Match[bytes]], int], bool]
"""Rule that accepts matches, in so many lines, as a collector's and not as the log's own."""


def half_match(matches: Sequence[re.Match[bytes]], lines: int) -> bool:
    """Return whether half of the lines match; for words that no log prints itself."""
    return len(matches) >= max(MIN_ALIKE_LINES, lines / 2)


def nearly_all_match(matches: Sequence[re.Match[bytes]], lines: int) -> bool:
    """Return whether nearly all lines match.

    For words that some logs print themselves.
    """
    return len(matches) >= max(MIN_ALIKE_LINES, lines * MIN_MATCHING_SHARE)


def few_names_match(matches: Sequence[re.Match[bytes]], lines: int) -> bool:
    """Return whether nearly all lines match, with few names (`who`)."""
    named = {match["who"] for match in matches}
    few = len(named) == 1 or len(named) * MIN_LINES_PER_NAME <= len(matches)
    return nearly_all_match(matches, lines) and few


def few_hosts_match(matches: Sequence[re.Match[bytes]], lines: int) -> bool:
    """Return whether nearly all lines match, with few hosts (`who`): node1, node2.

    The names differ only in their digits.
    """
    named = {match["who"] for match in matches}
    alike = len({_NUMBER.sub(b"", name) for name in named}) == 1 and len(named) > 1
    return alike and few_names_match(matches, lines)


_NUMBER: Final = re.compile(rb"\d+")


def rising_numbers_match(matches: Sequence[re.Match[bytes]], lines: int) -> bool:
    """Return whether nearly all lines begin with a number that rises.

    Numbers rise per file (`who`) if files are named. At most half may be a `clock`.
    """
    clocks = sum("clock" in m.re.groupindex and m["clock"] is not None for m in matches)
    if (
        len(matches) < max(MIN_RISING_LINES, lines * MIN_MATCHING_SHARE)
        or clocks > len(matches) / 2
    ):
        return False
    last: dict[bytes | None, int] = {}
    for match in matches:
        who, number = match.groupdict().get("who"), int(match["number"])
        if number <= last.get(who, 0):
            return False
        last[who] = number
    return len(last) == 1 or len(last) * MIN_LINES_PER_NAME <= len(matches)


RULES: Final[Mapping[str, AcceptMatches]] = {
    "half": half_match,
    "nearly_all": nearly_all_match,
    "few_names": few_names_match,
    "few_hosts": few_hosts_match,
    "rising_numbers": rising_numbers_match,
}


@dataclass(frozen=True)
class LinePrefix:
    """Words that one collector puts at the start of a line.

    name: of the collector. pattern: a regex with the groups described in line_prefixes.toml.
    accepts: the rule. names_hosts: the group `who` is one of the hosts of a job. example: a prefix.
    """

    name: str
    pattern: bytes
    accepts: AcceptMatches
    names_hosts: bool
    example: bytes

    @cached_property
    def regex(self) -> re.Pattern[bytes]:
        """The pattern, compiled on first use: most logs have no such prefix."""
        return re.compile(self.pattern)


@cache
def line_prefixes() -> tuple[LinePrefix, ...]:
    """Return all rows of line_prefixes.toml, in the order in which they are tried."""
    file = read_data_file(__package__, "line_prefixes.toml")
    pieces: Mapping[str, str] = file["pieces"]
    return tuple(
        LinePrefix(
            name=row["name"],
            pattern=_PIECE.sub(lambda match: pieces[match[1]], row["pattern"]).encode(),
            accepts=RULES[row.get("rule", "half")],
            names_hosts=row.get("names_hosts", False),
            example=row["example"].encode(),
        )
        for row in file["prefix"]
    )


_PIECE: Final = re.compile(r"\{([a-z_]+)\}")
