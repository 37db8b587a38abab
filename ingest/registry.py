"""Which format a log has: told from its lines, never from its name.

Of several formats in one file (Megatron iteration lines between the DeepSpeed engine's) the one of
the highest precedence is primary, the others are its companions. Two of the highest, or none, is
an error that says how far each candidate got. A launch that ended before its first step has only a
header: two different lines of it tell a trainer; the engine's are printed under trainers that are
not known here, so they tell none.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final

from ingest.errors import UnknownFormatError
from ingest.formats.deepspeed import DEEPSPEED
from ingest.formats.gpt_neox import GPT_NEOX
from ingest.formats.hf_trainer import HF_CONSOLE, HF_STATE, HF_TENSORBOARD
from ingest.formats.llamafactory import LLAMAFACTORY
from ingest.formats.megatron_deepspeed import MEGATRON_DEEPSPEED
from ingest.formats.mlperf import MLPERF
from ingest.formats.torchtitan import TORCHTITAN
from ingest.formats.torchtitan_events import TORCHTITAN_EVENTS
from ingest.formats.torchtitan_spans import TORCHTITAN_SPANS
from ingest.formats.xtuner import XTUNER
from ingest.formats.xtuner_scalars import XTUNER_SCALARS, XTUNER_TENSORBOARD
from ingest.formats.xtuner_v1 import XTUNER_V1, XTUNER_V1_TENSORBOARD, XTUNER_V1_TRACKER
from ingest.log_format import ENGINE, TRAINER, FactLine, LogFormat
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
    GPT_NEOX,
    HF_CONSOLE,
    HF_STATE,
    HF_TENSORBOARD,
    LLAMAFACTORY,
    MLPERF,
    DEEPSPEED,
)

PYTHON: Final = (
    "  A Python file is no log. XTuner's dump of a config is read as a companion of its log: "
    "beside the log\n  as vis_data/config.py, or beside the scalars in the folder vis_data.\n"
)

SNIFFED_LINES: Final = 2_000
"""Lines looked at beyond the first step of a primary format; companions stand near it."""

HEADER_LINES: Final = 200_000
"""Lines looked at for headers where no step shows."""

HEADER_EVIDENCE: Final = 2
"""Different lines of a header that tell its format."""


def detect(
    path: Path, lines: Iterable[NumberedLine], formats: tuple[LogFormat, ...] = FORMATS
) -> tuple[LogFormat, tuple[LogFormat, ...]]:
    """The primary format of `lines` and its companions.

    Reads until a framework's own trainer shows, and `SNIFFED_LINES` beyond; where only others
    show, to the end. Where none shows, the header of a launch without steps tells it. Raises
    UnknownFormatError.
    """
    found, beside = _signatures(lines, formats)
    shown = sorted((f for f in formats if f.name in found), key=lambda f: -f.precedence)
    primaries = [f for f in shown if f.precedence == shown[0].precedence]
    if len(primaries) > 1:
        raise UnknownFormatError(_two_formats(path, primaries, found), recognised=True)
    if primaries:
        lower = (f for f in formats if f.precedence < primaries[0].precedence)
        quiet = [f for f in lower if f.name in beside and f not in shown]
        return primaries[0], (*shown[1:], *quiet)
    headers = _headers(Source(path).lines() if path.is_file() else lines, formats)
    without_steps = _by_header(headers, formats)
    if without_steps:
        return without_steps[0], without_steps[1:]
    nearest = _nearest(headers)
    raise UnknownFormatError(_no_format(path, nearest, formats), recognised=bool(nearest))


def _signatures(
    lines: Iterable[NumberedLine], formats: tuple[LogFormat, ...]
) -> tuple[dict[str, NumberedLine], set[str]]:
    """Each format whose signature matches, with the first such line; those that show beside it."""
    noise = re.compile("|".join({f.noise for f in formats if f.noise} | {ANSI.pattern}))
    signatures = [(f, re.compile(f.signature)) for f in formats]
    either = re.compile("|".join(f"(?:{f.signature})" for f in formats))
    quiet = [(f.name, re.compile(f.beside)) for f in formats if f.beside]
    found: dict[str, NumberedLine] = {}
    beside: set[str] = set()
    last = math.inf
    for line in lines:
        if line.number > last:
            break
        text = noise.sub("", line.text)
        beside.update(name for name, mark in quiet if name not in beside and mark.search(text))
        if either.search(text) is None:
            continue
        for log_format, signature in signatures:
            if log_format.name not in found and signature.search(text):
                found[log_format.name] = line
                if log_format.precedence == TRAINER:
                    last = min(last, line.number + SNIFFED_LINES)
    return found, beside


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


@dataclass(slots=True)
class _Header:
    """Lines of one format that are no steps: the first, and how many of each kind."""

    number: int
    text: str
    kinds: Counter[str] = field(default_factory=Counter)


def _headers(lines: Iterable[NumberedLine], formats: tuple[LogFormat, ...]) -> dict[str, _Header]:
    """Each format of which some line stands in the file, though no step that can be read."""
    found: dict[str, _Header] = {}
    tests = [(f.name, _marks(f)) for f in formats]
    for line in islice(lines, HEADER_LINES):
        for name, marks in tests:
            for anchor, mark in marks:
                if anchor in line.text and (match := mark.search(line.text)):
                    header = found.setdefault(name, _Header(line.number, match[0]))
                    header.kinds[mark.pattern] += 1
                    break
    return found


def _by_header(
    headers: Mapping[str, _Header], formats: tuple[LogFormat, ...]
) -> tuple[LogFormat, ...]:
    """The trainer whose header stands in the file, and its companions; none where two may be.

    Forks of one trainer share lines, so the one of the most kinds of lines is meant.
    """
    kinds = [
        (len({*headers[f.name].kinds} - {f.looks_like_step}), f)
        for f in formats
        if f.name in headers
    ]
    shown = [(count, f) for count, f in kinds if count >= HEADER_EVIDENCE]
    ranks = [(f.precedence, count) for count, f in shown if f.precedence > ENGINE]
    best = [f for count, f in shown if (f.precedence, count) == max(ranks, default=None)]
    if len(best) != 1:
        return ()
    return (best[0], *(f for _, f in shown if f.precedence < best[0].precedence))


def _nearest(headers: Mapping[str, _Header]) -> str:
    """Formats of which some line was recognised although no step was, best first."""
    ranked = sorted(headers.items(), key=lambda item: -item[1].kinds.total())
    return "".join(
        f"  nearest: {name}: {header.kinds.total()} of its header lines stand here (first: line "
        f'{header.number}, "{header.text[:60]}"), but no step line\n'
        for name, header in ranked[:2]
    )


def _marks(log_format: LogFormat) -> list[tuple[str, re.Pattern[str]]]:
    """A literal and a pattern of each line that tells of the format."""
    facts = [(line.anchor, re.compile(line.regex)) for line in log_format.facts if _states(line)]
    others = [log_format.looks_like_step, *(block.start for block in log_format.blocks)]
    return [*facts, *(("", re.compile(pattern)) for pattern in others)]


def _states(line: FactLine) -> bool:
    """Whether the line states facts; one that is only known may be anyone's."""
    return bool(line.constants or line.read or re.compile(line.regex).groupindex)
