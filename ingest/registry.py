"""Which format a log has: told from its lines, never from its name.

Of several formats in one file (Megatron iteration lines between the DeepSpeed engine's) the one of
the highest precedence is primary, the others are its companions. Two of the highest, or none, is
an error that says how far each candidate got.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Final

from ingest.errors import UnknownFormatError
from ingest.formats.deepspeed import DEEPSPEED, DEEPSPEED_TIMERS
from ingest.formats.deepspeed_chat import DEEPSPEED_CHAT
from ingest.formats.domino import DOMINO
from ingest.formats.megatron_deepspeed import MEGATRON_DEEPSPEED
from ingest.formats.torchtitan import TORCHTITAN
from ingest.formats.xtuner import XTUNER
from ingest.formats.xtuner_v1 import XTUNER_V1
from ingest.log_format import PARTS, TRAINER, LogFormat
from ingest.parse import ANSI
from ingest.reader import NumberedLine, Source

FORMATS: Final[tuple[LogFormat, ...]] = (
    TORCHTITAN,
    XTUNER,
    XTUNER_V1,
    MEGATRON_DEEPSPEED,
    DOMINO,
    DEEPSPEED,
    DEEPSPEED_CHAT,
    DEEPSPEED_TIMERS,
)

SNIFFED_LINES: Final = 2_000
"""Lines looked at beyond the first step of a primary format; companions stand near it."""


def detect(
    path: Path, lines: Iterable[NumberedLine], formats: tuple[LogFormat, ...] = FORMATS
) -> tuple[LogFormat, tuple[LogFormat, ...]]:
    """The primary format of `lines` and its companions.

    Reads until a framework's own trainer shows, and `SNIFFED_LINES` beyond; where only others
    show, to the end. Raises UnknownFormatError.
    """
    found, headed = _signatures(lines, formats)
    shown = sorted((f for f in formats if f.name in found), key=lambda f: -f.precedence)
    primaries = [f for f in shown if f.precedence == shown[0].precedence]
    if len(primaries) > 1:
        raise UnknownFormatError(_two_formats(path, primaries, found), recognised=True)
    if primaries:
        primary = primaries[0]
        headers = [f for f in formats if f.name in headed and f.name not in found]
        low = primary.precedence < TRAINER
        others = [*shown[1:], *(f for f in headers if low or f.framework == primary.framework)]
        return primary, tuple(sorted(others, key=lambda f: -f.precedence))
    nearest = _nearest(path, formats)
    raise UnknownFormatError(_no_format(path, nearest, formats), recognised=bool(nearest))


def _signatures(
    lines: Iterable[NumberedLine], formats: tuple[LogFormat, ...]
) -> tuple[dict[str, NumberedLine], set[str]]:
    """Formats by signature, each with the first line that it matches, and formats by header."""
    noise = re.compile("|".join({f.noise for f in formats if f.noise} | {ANSI.pattern}))
    signatures = [(f, re.compile(f.signature)) for f in formats]
    headers = [(f.name, re.compile(f.header)) for f in formats if f.header]
    patterns = [*(f.signature for f in formats), *(f.header for f in formats if f.header)]
    either = re.compile("|".join(f"(?:{pattern})" for pattern in patterns))
    found: dict[str, NumberedLine] = {}
    headed: set[str] = set()
    last = math.inf
    for line in lines:
        if line.number > last:
            break
        text = noise.sub("", line.text)
        if either.search(text) is None:
            continue
        for log_format, signature in signatures:
            if log_format.name not in found and signature.search(text):
                found[log_format.name] = line
                if log_format.precedence == TRAINER:
                    last = min(last, line.number + SNIFFED_LINES)
        headed.update(name for name, header in headers if header.search(text))
    return found, headed


def _two_formats(path: Path, primaries: list[LogFormat], found: dict[str, NumberedLine]) -> str:
    seen = "\n".join(
        f"  {f.name}: line {found[f.name].number}: {found[f.name].text.strip()[:100]}"
        for f in primaries
    )
    return (
        f"{path}: lines of {len(primaries)} formats stand in one file, so it is not clear "
        f"whose steps to count.\n{seen}\n"
        "  Split the file, or name one with --log-format."
    )


def _no_format(path: Path, nearest: str, formats: tuple[LogFormat, ...]) -> str:
    known = ", ".join(f.name for f in formats)
    return (
        f"{path}: no known format matches.\n{nearest}"
        f"  known: {known}\n"
        "  Is this the log with the training steps (stdout or stderr, rank 0)? "
        "CONTRIBUTING.md, 'Add a format', says how to add one."
    )


def _nearest(path: Path, formats: tuple[LogFormat, ...]) -> str:
    """Formats of which some line was recognised although no step was, best first."""
    if not path.is_file():
        return ""
    hits: dict[str, tuple[int, int, str]] = {}
    tests = [(f.name, _marks(f)) for f in formats if f.precedence > PARTS]
    for line in islice(Source(path).lines(), 200_000):
        for name, marks in tests:
            found = (mark.search(line.text) for anchor, mark in marks if anchor in line.text)
            if match := next(filter(None, found), None):
                count, number, text = hits.get(name, (0, line.number, match[0]))
                hits[name] = (count + 1, number, text)
    ranked = sorted(hits.items(), key=lambda hit: -hit[1][0])
    return "".join(
        f"  nearest: {name}: {count} of its header lines stand here (first: line {number}, "
        f'"{text[:60]}"), but no step line\n'
        for name, (count, number, text) in ranked[:2]
    )


def _marks(log_format: LogFormat) -> list[tuple[str, re.Pattern[str]]]:
    """A literal and a pattern of each line that tells of the format."""
    facts = [(line.anchor, re.compile(line.regex)) for line in log_format.facts]
    blocks = [("", re.compile(block.start)) for block in log_format.blocks]
    return [("", re.compile(log_format.looks_like_step)), *facts, *blocks]
