"""Colours of a terminal that a copy of it shows as text, taken off: `[32mINFO[0m`, `^[[32m`.

What shows a log may drop the character that begins a colour (pages of clusters, a paste into a
thread), or spell it (`cat -v`, `less`, rsyslog, JSON). With the character a colour is noise of a
line's text (ingest.decode.text_cleaning); but where a dict of the Hugging Face Trainer or its
progress bar stands in the line is asked before that, so on these it goes here too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import Final

from .line_prefixes import MIN_ALIKE_LINES
from .log_collectors import LOSS_DICT_START, UnwrappedLine

MAX_SCANNED_LINES: Final = 500
"""Lines of a beginning in which a colour as text has to show."""

_SPELT: Final = (
    rb"\^\[|#033|\\{1,4}(?:x1[bB]|u001[bB]|033|e)"  # of a string in JSON in a string: \\u001b
    rb"|\xe2\x90\x9b|\xef\xbf\xbd"  # a picture of it, and of what is no character
)
BARE_COLOUR: Final = re.compile(rb"\[(?<!\x1b\[)(?:[02-4]?\d|9[0-7]|10[0-7])(?:;\d{1,3}){0,9}m")
"""A colour without its escape character. Alone it is four times as fast: it begins with a byte."""
SPELT_COLOUR: Final = re.compile(rb"(?:%s)\[[\d;]{0,39}[A-Za-z]|%s" % (_SPELT, BARE_COLOUR.pattern))
"""That, or one with an escape character that is spelt."""
_RESET: Final = re.compile(rb"\[(?<!\x1b\[)(?:0?0|39)m")
"""Ends one without its escape character: where nothing does, `[5m` is something else."""

_IS_SPELT: Final = re.compile(rb"(?:%s)\[" % _SPELT)
ANY_COLOUR: Final = re.compile(rb"\x1b\[[\d;]{0,39}[A-Za-z]|%s" % SPELT_COLOUR.pattern)
_AT_A_STEP: Final = re.compile(
    rb"\x1b\[\d[\d;]{0,39}m *(?:\{'loss': |\d{1,3}%\|)"
    rb"|(?:\{'loss': [^{}\n]{1,9999}\}|(?:s/it|it/s)\])\x1b\[[\d;]{0,39}m"
)
"""A colour beside a dict of the Trainer, or a bar."""


def strip_colours(colour: re.Pattern[bytes], line: bytes) -> UnwrappedLine | None:
    """A line without its colours."""
    text = colour.sub(b"", line) if b"[" in line else line
    return UnwrappedLine(text) if text != line else None


def detect_colours(
    lines: Sequence[bytes], sample: Sequence[bytes], beginning: bytes
) -> re.Pattern[bytes] | None:
    """The colours that have to go before lines that begin so are read, if any.

    sample: of the lines, some evenly apart: they show whether bars are coloured, for all take long.
    """
    if b"\x1b" in beginning:
        asked = lines if LOSS_DICT_START in beginning else sample
        coloured = (
            line for line in asked if b"\x1b" in line and (LOSS_DICT_START in line or b"%|" in line)
        )
        if any(map(_AT_A_STEP.search, coloured)):
            return ANY_COLOUR
    text = b"\n".join(lines[:MAX_SCANNED_LINES])
    if _RESET.search(text) is None:
        return None
    if len([*islice(SPELT_COLOUR.finditer(text), MIN_ALIKE_LINES)]) < MIN_ALIKE_LINES:
        return None
    return SPELT_COLOUR if _IS_SPELT.search(text) else BARE_COLOUR
