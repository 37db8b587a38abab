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
from ingest.formats.deepspeed import DEEPSPEED
from ingest.formats.megatron_deepspeed import MEGATRON_DEEPSPEED
from ingest.formats.torchtitan import TORCHTITAN
from ingest.formats.torchtitan_events import TORCHTITAN_EVENTS
from ingest.formats.torchtitan_spans import TORCHTITAN_SPANS
from ingest.formats.xtuner import XTUNER
from ingest.formats.xtuner_scalars import XTUNER_SCALARS, XTUNER_TENSORBOARD
from ingest.formats.xtuner_v1 import XTUNER_V1, XTUNER_V1_TENSORBOARD, XTUNER_V1_TRACKER
from ingest.log_format import TRAINER, LogFormat
from ingest.parse import ANSI
from ingest.reader import NumberedLine, Source

FORMATS: Final[tuple[LogFormat, ...]] = (
    TORCHTITAN,
    TORCHTITAN_EVENTS,
    TORCHTITAN_SPANS,
    XTUNER,
    XTUNER_SCALARS,
    XTUNER_TENSORBOARD,
    XTUNER_V1,
    XTUNER_V1_TRACKER,
    XTUNER_V1_TENSORBOARD,
    MEGATRON_DEEPSPEED,
    DEEPSPEED,
)

PYTHON: Final = (
    "  A Python file is no log. XTuner's dump of a config is read as a companion of its log: "
    "beside the log\n  as vis_data/config.py, or beside the scalars in the folder vis_data.\n"
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
    found = _signatures(lines, formats)
    shown = sorted((f for f in formats if f.name in found), key=lambda f: -f.precedence)
    primaries = [f for f in shown if f.precedence == shown[0].precedence]
    if len(primaries) > 1:
        raise UnknownFormatError(_two_formats(path, primaries, found), recognised=True)
    if primaries:
        return primaries[0], tuple(shown[1:])
    nearest = _nearest(path, formats)
    raise UnknownFormatError(_no_format(path, nearest, formats), recognised=bool(nearest))


def _signatures(
    lines: Iterable[NumberedLine], formats: tuple[LogFormat, ...]
) -> dict[str, NumberedLine]:
    """Each format whose signature matches, with the first line that it matches."""
    noise = re.compile("|".join({f.noise for f in formats if f.noise} | {ANSI.pattern}))
    signatures = [(f, re.compile(f.signature)) for f in formats]
    either = re.compile("|".join(f"(?:{f.signature})" for f in formats))
    found: dict[str, NumberedLine] = {}
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
    return found


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
        f"{path}: no known format matches.\n{nearest}{PYTHON if path.suffix == '.py' else ''}"
        f"  known: {known}\n"
        "  Is this the log with the training steps (stdout or stderr, rank 0)? "
        "CONTRIBUTING.md, 'Add a format', says how to add one."
    )


def _nearest(path: Path, formats: tuple[LogFormat, ...]) -> str:
    """Formats of which some line was recognised although no step was, best first."""
    if not path.is_file():
        return ""
    hits: dict[str, tuple[int, int, str]] = {}
    tests = [(f.name, _marks(f)) for f in formats]
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
    """A literal and a pattern of each line that tells of the format; known ones tell too little."""
    stating = (f for f in log_format.facts if f.constants or f.read or "(?P<" in f.regex)
    facts = [(line.anchor, re.compile(line.regex)) for line in stating]
    return [("", re.compile(log_format.looks_like_step)), *facts]
