"""Which wrappings of lines are of a user's own format: those that its lines are written with.

A format may be of lines as a collector wrapped them (its records, the time that it adds). Then the
regexes of its lines find less where the wrapping is taken off, in its examples or in the log.
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
    """What tells wrappings that stay, for those of the formats that are not built in."""
    own = [f for f in formats if f not in built_in]
    known = {regex for f in built_in for regex in (f.clock, *(x.regex for x in _lines(f)))}
    lines = [_OwnLines(f, known) for f in own]
    return lambda unwrap, raws: any(one.lose(unwrap, raws) for one in lines)


def _lines(log_format: LogFormat) -> Iterable[StepLine | FactLine | EventLine]:
    return chain(log_format.steps, log_format.facts, log_format.events)


class _OwnLines:
    """The lines of a format that no other has."""

    def __init__(self, log_format: LogFormat, known: set[str | None]) -> None:
        own = [line for line in _lines(log_format) if line.regex not in known]
        self._clean = Cleaner(log_format.noise).text
        self._regexes = [Regex(line.regex) for line in own]
        self._examples = [line.example.encode() for line in own]
        clock = log_format.clock
        self._clock = Regex("(?!)" if clock is None or clock in known else clock)

    def lose(self, unwrap: Unwrap, raws: Iterable[bytes]) -> bool:
        """Whether less is found in one of them, or in an example, once it is unwrapped."""
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
    """How many groups each finds in a text, and one for itself; 0 where it does not match."""
    matches = (regex.search(text) for regex in regexes)
    return [0 if m is None else 1 + sum(x is not None for x in m.groups()) for m in matches]
