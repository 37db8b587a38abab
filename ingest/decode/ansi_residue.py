"""Remove terminal colours that a copy shows as text: `[32mINFO[0m`, `^[[32m`.

A log viewer may drop the escape character of a colour (pages of clusters, a paste into a thread),
or spell it (`cat -v`, `less`, rsyslog, JSON). Colours with the escape character are noise of a
line's text (ingest.decode.text_cleaning). But the search for dicts and progress bars of the Hugging
Face Trainer comes earlier, so their colours are removed here too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import Final

from .line_prefixes import MIN_ALIKE_LINES
from .log_collectors import LOSS_DICT_START, UnwrappedLine

MAX_SCANNED_LINES: Final = 500
"""First lines of a file that must show a colour as text."""

_SPELT: Final = (
    rb"\^\[|#033|\\{1,4}(?:x1[bB]|u001[bB]|033|e)"  # JSON in a string: \\u001b
    rb"|\xe2\x90\x9b|\xef\xbf\xbd"  # the symbol for escape, and the replacement character
)
BARE_COLOUR: Final = re.compile(rb"\[(?<!\x1b\[)(?:[02-4]?\d|9[0-7]|10[0-7])(?:;\d{1,3}){0,9}m")
"""A colour without its escape character. A regex that begins with a byte is four times as fast."""
SPELT_COLOUR: Final = re.compile(rb"(?:%s)\[[\d;]{0,39}[A-Za-z]|%s" % (_SPELT, BARE_COLOUR.pattern))
"""A colour without its escape character, or with a spelt one."""
_RESET: Final = re.compile(rb"\[(?<!\x1b\[)(?:0?0|39)m")
"""End of a colour, without its escape character. Without any end, `[5m` is something else."""

_IS_SPELT: Final = re.compile(rb"(?:%s)\[" % _SPELT)
ANY_COLOUR: Final = re.compile(rb"\x1b\[[\d;]{0,39}[A-Za-z]|%s" % SPELT_COLOUR.pattern)
_AT_A_STEP: Final = re.compile(
    rb"\x1b\[\d[\d;]{0,39}m *(?:\{'loss': |\d{1,3}%\|)"
    rb"|(?:\{'loss': [^{}\n]{1,9999}\}|(?:s/it|it/s)\])\x1b\[[\d;]{0,39}m"
)
"""A colour next to a dict of the Trainer, or a progress bar."""


def strip_colours(colour: re.Pattern[bytes], line: bytes) -> UnwrappedLine | None:
    """Return a line without its colours; None if unchanged."""
    text = colour.sub(b"", line) if b"[" in line else line
    return UnwrappedLine(text) if text != line else None


def detect_colours(
    lines: Sequence[bytes], sample: Sequence[bytes], beginning: bytes
) -> re.Pattern[bytes] | None:
    """Return the colours to remove before reading a file with this beginning, if any.

    sample: some of the lines, at equal distances, that show if progress bars are coloured: checking
    all lines takes long.
    """
    if b"\x1b" in beginning:
        checked = lines if LOSS_DICT_START in beginning else sample
        coloured = (
            line
            for line in checked
            if b"\x1b" in line and (LOSS_DICT_START in line or b"%|" in line)
        )
        if any(map(_AT_A_STEP.search, coloured)):
            return ANY_COLOUR
    text = b"\n".join(lines[:MAX_SCANNED_LINES])
    if _RESET.search(text) is None:
        return None
    if len([*islice(SPELT_COLOUR.finditer(text), MIN_ALIKE_LINES)]) < MIN_ALIKE_LINES:
        return None
    return SPELT_COLOUR if _IS_SPELT.search(text) else BARE_COLOUR
