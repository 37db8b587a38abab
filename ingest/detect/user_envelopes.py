"""Wrappings of lines that belong to a user's own format.

A format may describe lines as wrapped by a collector (records, additional times). Then the regexes
of the format match less after unwrapping, in the examples or in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain

from ..core.safe_regex import Regex
from ..decode.envelopes import KeepsEnvelope
from ..decode.log_collectors import Unwrap
from ..decode.text_cleaning import Cleaner
from ..formats.spec import EventLine, FactLine, LogFormat, StepLine


@cache
def envelope_keeper(
    formats: tuple[LogFormat, ...], built_in: tuple[LogFormat, ...]
) -> KeepsEnvelope:
    """Return a function that recognises wrappings to keep, for formats of the user."""
    user_formats = [f for f in formats if f not in built_in]
    built_in_regexes = {
        regex for f in built_in for regex in (f.clock, *(x.regex for x in _lines(f)))
    }
    lines = [_OwnLines(f, built_in_regexes) for f in user_formats]
    return lambda unwrap, raws: any(own_lines.lose(unwrap, raws) for own_lines in lines)


def _lines(log_format: LogFormat) -> Iterable[StepLine | FactLine | EventLine]:
    return chain(log_format.steps, log_format.facts, log_format.events)


class _OwnLines:
    """Lines of a format without those shared with built-in formats."""

    def __init__(self, log_format: LogFormat, built_in_regexes: set[str | None]) -> None:
        lines = [line for line in _lines(log_format) if line.regex not in built_in_regexes]
        self._clean = Cleaner(log_format.noise).text
        self._regexes = [Regex(line.regex) for line in lines]
        self._examples = [line.example.encode() for line in lines]
        clock = log_format.clock
        self._clock = Regex("(?!)" if clock is None or clock in built_in_regexes else clock)

    def lose(self, unwrap: Unwrap, raws: Iterable[bytes]) -> bool:
        """Return whether unwrapping loses matches, in any of the lines or examples."""
        for raw in chain(raws, self._examples):
            piece = unwrap(raw)
            if piece is not None and self._loses(self._clean(raw), self._clean(piece.text)):
                return True
        return False

    def _loses(self, text: str, unwrapped: str) -> bool:
        if not any(regex.search(text) for regex in self._regexes):
            return False
        both = [*self._regexes, self._clock]
        before, after = _groups(both, text), _groups(both, unwrapped)
        return any(x > y for x, y in zip(before, after, strict=True))


def _groups(regexes: Sequence[Regex], text: str) -> list[int]:
    """Return per regex the number of matched groups plus 1; 0 without a match."""
    matches = (regex.search(text) for regex in regexes)
    return [0 if m is None else 1 + sum(x is not None for x in m.groups()) for m in matches]
