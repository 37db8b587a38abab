"""Fields of a step line: cut from the text, converted to columns, or rejected."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from typing import Any, Final

from ..core.numbers import parse_integer, strip_thousands_commas
from ..core.safe_regex import Regex
from ..core.schema import STEP_COLUMNS
from ..formats.spec import JSON_PAIRS, ColumnTarget, LogFormat, StepLine
from ..launches.launch import MAX_STEP

_INTEGER: Final = frozenset(n for n, c in STEP_COLUMNS.items() if c.dtype.is_integer())
_FLOAT: Final = frozenset(n for n, c in STEP_COLUMNS.items() if c.dtype.is_float())
_NOT_APPLICABLE: Final = frozenset({"N/A", "None", "null", ""})


class RejectedLineError(Exception):  # a verdict on a line, no FairmfuError
    """A line that looks like a step and cannot be read, with the reason."""


# -- fields and values ---------------------------------------------------------------------


def pair_cutter(pair_pattern: str) -> Callable[[str], dict[str, str]]:
    """Return a function that cuts text into keys and values by a StepLine's pattern."""
    return (
        _json_pairs if pair_pattern == JSON_PAIRS else partial(_cut_pairs, re.compile(pair_pattern))
    )


def _json_pairs(text: str) -> dict[str, str]:
    """Return the fields of a JSON object as printed; nested objects get dotted keys."""
    try:
        values = json.loads(text, parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError) as error:
        raise RejectedLineError(f"no JSON object ({error})") from error
    if not isinstance(values, dict):
        raise RejectedLineError("no JSON object")
    return dict(_flat(values))


def _flat(values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{path}{key}.")
        elif isinstance(value, str):
            yield f"{path}{key}", value
        else:
            yield f"{path}{key}", json.dumps(value)


def _cut_pairs(pair: re.Pattern[str], text: str) -> dict[str, str]:
    """Return keys and values; repeated keys become `key#2`, `key#3` and so on."""
    out: dict[str, str] = {}
    next_times: dict[str, int] = {}
    for match in pair.finditer(text):
        if match["key"] is None or match["value"] is None:
            continue
        first = key = match["key"].strip()
        times = next_times.get(first, 2)
        while key in out:
            key, times = f"{first}#{times}", times + 1
            next_times[first] = times
        _refuse_more(text, match.end("value"), _GOES_ON_UNREAD)
        out[key] = match["value"].strip()
    return out


def _convert(key: str, text: str, target: ColumnTarget) -> tuple[str, Any]:
    column, factor = (target, None) if isinstance(target, str) else target
    if text in _NOT_APPLICABLE:
        return column, None
    try:
        if column in _FLOAT:
            value = float(strip_thousands_commas(text.rstrip("%")))
            return column, value if factor is None else value * factor
        if column in _INTEGER:
            return column, parse_integer(strip_thousands_commas(text.rstrip("%")))
    except (ValueError, OverflowError) as error:
        raise RejectedLineError(f"{key} is {text!r}: not a number") from error
    return column, text


def step_columns(
    log_format: LogFormat, step_line: StepLine, printed: Mapping[str, str]
) -> dict[str, Any]:
    """Return the columns that a step line fills, plus `extra` and, in `says`, facts."""
    row: dict[str, Any] = {"says": {}}
    extra: dict[str, str] = {}
    for key, value in printed.items():
        target = step_line.columns.get(key)
        if target is not None:
            column, number = _convert(key, value, target)
            row[column] = number
        elif key not in step_line.facts:
            extra[key] = value
    if log_format.complete is not None:
        try:
            log_format.complete(row, printed)
        except ValueError as error:
            raise RejectedLineError(f"a value is not a number ({error})") from error
    if (row.get("step") or 0) > MAX_STEP:
        raise RejectedLineError(f"step {row['step']} is beyond 64 bits")
    row["says"] |= {fact: printed[key] for key, fact in step_line.facts.items() if key in printed}
    row["says"] |= dict(
        stated for k, stated in step_line.tells.items() if printed.get(k, "null") != "null"
    )
    row["extra"] = json.dumps(extra) if extra else None
    return row


# -- damage --------------------------------------------------------------------------------


def ends_like(text: str, reference_text: str) -> bool:
    """Return whether a line ends like another: same character, or as long a number.

    Half of `tokens_per_sec: 4749.02` may still be a number. A number with as many decimals is
    complete; without decimals, a number with as many digits.
    """
    number, reference = (LAST_NUMBER.search(line) for line in (text, reference_text))
    if number is None or reference is None:
        return text[-1:] == reference_text[-1:]
    kind = number.lastindex or 0
    return kind == reference.lastindex and len(number[kind]) >= len(reference[kind])


LAST_NUMBER: Final = re.compile(r"(?:\d\.(\d*)|(?<!\d)(\d+))$")
"""The decimals, or the digits, of the number at the end of a line."""


_EXPONENT: Final = r"[eE][-+]?\d"
_GOES_ON: Final = re.compile(_EXPONENT)
_GOES_ON_UNREAD: Final = re.compile(rf",?{_EXPONENT}|[.,_]?\d|,\.\d|_\w")
"""Continuation of a number after the match's end; within a match, commas may separate values."""


def reject_cut_number(text: str, match: re.Match[str]) -> None:
    """Raise RejectedLineError if a number continues after a group.

    A pattern without exponents reads 1e-05 as 1, a pattern without commas reads 52,345 as 52. A
    pattern with its end there reads 1.5.2 as 1.5.
    """
    for group in range(1, match.re.groups + 1):
        if (end := match.end(group)) > 0:
            _refuse_more(text, end, _GOES_ON_UNREAD if end == match.end() else _GOES_ON)
    if text[match.end() - 1 : match.end()].isdigit():
        _refuse_more(text, match.end(), _GOES_ON_UNREAD)


def _refuse_more(text: str, end: int, goes_on: re.Pattern[str]) -> None:
    """Raise RejectedLineError if the number before `end` continues."""
    last = text[end - 1 : end]
    if (last.isdigit() or last in (".", ",")) and goes_on.match(text, end):
        raise RejectedLineError(
            f"a number goes on behind {text[:end][-20:]!r}: {text[end : end + 20]!r}"
        )


def reject_second_record(text: str, match: re.Match[str]) -> None:
    """Raise RejectedLineError for a second record on the line.

    Where a newline is missing, the second record would be lost, or mixed into the first.
    """
    printed = [group for group in range(1, match.re.groups + 1) if match.end(group) > 0]
    first = min(map(match.end, printed), default=len(text))
    again = _anywhere(match.re).search(text, first)
    if again and any(again.start(group) >= match.end(group) for group in printed):
        raise RejectedLineError("two records in one line: a newline is missing")


@cache
def _anywhere(regex: re.Pattern[str]) -> Regex:
    """Return the regex without the anchor at the line's beginning."""
    return Regex(regex.pattern.removeprefix("^"))
