"""Which format a log has: told from its lines, never from its name.

Of several formats in one file (Megatron iteration lines between the DeepSpeed engine's) the one of
the highest precedence is primary, the others are its companions. Two of the highest, or none, is
an error that says how far each candidate got.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from ingest.errors import UnknownFormatError
from ingest.formats.deepspeed import DEEPSPEED
from ingest.formats.deepspeed_monitor import DEEPSPEED_CSV, DEEPSPEED_TENSORBOARD, NO_STEPS
from ingest.formats.megatron_deepspeed import MEGATRON_DEEPSPEED
from ingest.formats.torchtitan import TORCHTITAN
from ingest.formats.xtuner import XTUNER
from ingest.formats.xtuner_v1 import XTUNER_V1
from ingest.log_format import TRAINER, LogFormat
from ingest.parse import ANSI, matched_prefix
from ingest.reader import NumberedLine, Source

FORMATS: Final[tuple[LogFormat, ...]] = (
    TORCHTITAN,
    XTUNER,
    XTUNER_V1,
    MEGATRON_DEEPSPEED,
    DEEPSPEED,
    DEEPSPEED_TENSORBOARD,
    DEEPSPEED_CSV,
)


@dataclass(frozen=True, slots=True)
class Tried:
    """The formats that a log may have; by name, those that may be primary: all, where none is."""

    formats: tuple[LogFormat, ...] = FORMATS
    wanted: frozenset[str] = frozenset()


BUILT_IN: Final = Tried()

SNIFFED_LINES: Final = 2_000
"""Lines looked at beyond the first step of a primary format; companions stand near it."""

HEAD_LINES: Final = 200
"""Lines in which a file that is no log is known."""

LOOKED_INTO: Final = 20
"""Lines that look like steps of a format of which it is found out how far it gets."""


def detect(
    path: Path,
    lines: Iterable[NumberedLine],
    formats: tuple[LogFormat, ...] = FORMATS,
    wanted: Collection[str] = (),
) -> tuple[LogFormat, tuple[LogFormat, ...]]:
    """The primary format of `lines` and its companions.

    wanted: names of formats, where only they may be primary; a line that looks like a step of one
    is enough. Reads until a framework's own trainer shows, and `SNIFFED_LINES` beyond; where only
    others show, to the end. Raises UnknownFormatError.
    """
    found = _signatures(lines, formats, wanted)
    shown = sorted((f for f in formats if f.name in found), key=lambda f: -f.precedence)
    primaries = [f for f in shown if f.precedence == shown[0].precedence]
    if wanted and not all(f.name in wanted for f in primaries):
        primaries = []
    if len(primaries) > 1:
        raise UnknownFormatError(_two_formats(path, primaries, found), recognised=True)
    if primaries:
        return primaries[0], tuple(shown[1:])
    if known := _without_steps(path):
        raise UnknownFormatError(f"{path}: {known}", recognised=False)
    formats = tuple(f for f in formats if not wanted or f.name in wanted)
    nearest = _nearest(path, formats)
    names = ", ".join(f.name for f in formats)
    raise UnknownFormatError(_no_format(path, nearest, names), recognised=bool(nearest))


def _signatures(
    lines: Iterable[NumberedLine], formats: tuple[LogFormat, ...], wanted: Collection[str]
) -> dict[str, NumberedLine]:
    """Each format whose signature matches, with the first line that it matches."""
    noise = _noise(formats)
    marks = {f.name: (f.signature, *([f.looks_like_step] * (f.name in wanted))) for f in formats}
    signatures = [(f, re.compile("|".join(f"(?:{m})" for m in marks[f.name]))) for f in formats]
    either = re.compile("|".join(f"(?:{mark})" for each in marks.values() for mark in each))
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


def _noise(formats: Iterable[LogFormat]) -> re.Pattern[str]:
    return re.compile("|".join({f.noise for f in formats if f.noise} | {ANSI.pattern}))


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


def _no_format(path: Path, nearest: str, known: str) -> str:
    return (
        f"{path}: no known format matches.\n{nearest}"
        f"  known: {known}\n"
        "  Is this the log with the training steps (stdout or stderr, rank 0)?\n"
        "  A format of your own is a TOML file: fairmfu formats -h shows one, "
        "--log-format FILE.toml reads with it."
    )


def _without_steps(path: Path) -> str:
    """What a file is that a framework leaves beside its logs; empty where it is not known."""
    if not path.is_file():
        return ""
    head = "\n".join(line.text for line in islice(Source(path).lines(), HEAD_LINES))
    begins = ((re.match(pattern, head.lstrip(), re.DOTALL), what) for pattern, what in NO_STEPS)
    return next((what for match, what in begins if match), "")


def _nearest(path: Path, formats: Iterable[LogFormat]) -> str:
    """How far the formats got of which some line stands here, best first."""
    if not path.is_file():
        return ""
    hits, noise = [_Hits(f) for f in formats], _noise(formats)
    for line in islice(Source(path).lines(), 200_000):
        clean = line._replace(text=noise.sub("", line.text))
        for hit in hits:
            hit.look(clean)
    ranked = sorted(hits, key=lambda hit: (-len(hit.reach), -hit.headers))
    return "".join(hit.text() for hit in ranked[:2] if hit.headers or hit.like_steps)


class _Hits:
    """Lines that one format knows in a file none of whose steps it can read."""

    def __init__(self, log_format: LogFormat) -> None:
        self.name = log_format.name
        self.events = [(line.anchor, re.compile(line.regex)) for line in log_format.events]
        self.facts = [(line.anchor, re.compile(line.regex)) for line in log_format.facts]
        joined = log_format.join is not None  # then a line is not yet what the patterns speak of
        self.looks = re.compile("(?!)" if joined else log_format.looks_like_step)
        self.steps = [line.regex for line in log_format.steps]
        self.headers = self.like_steps = 0
        self.first = self.closest = NumberedLine(0, "", cut=False)
        self.reach = ""

    def look(self, line: NumberedLine) -> None:
        if self.looks.search(line.text) and not _any(self.events, line.text):
            self.like_steps += 1
            if self.like_steps <= LOOKED_INTO:
                self._reach(line)
        elif _any(self.facts, line.text):
            self.headers += 1
            self.first = line if self.headers == 1 else self.first

    def _reach(self, line: NumberedLine) -> None:
        reach = max((matched_prefix(regex, line.text) for regex in self.steps), key=len)
        if self.like_steps == 1 or len(reach) > len(self.reach):
            self.reach, self.closest = reach, line

    def text(self) -> str:
        if not self.like_steps:
            return (
                f"  nearest: {self.name}: {self.headers:,} of its header lines stand here (first: "
                f'line {self.first.number}, "{self.first.text.strip()[:60]}"), but no step line\n'
            )
        if any(re.search(regex, self.closest.text) for regex in self.steps):
            return (
                f"  nearest: {self.name}: {self.like_steps:,} lines could be its steps (first: "
                f"line {self.closest.number}), but lack what tells it from other formats;\n"
                f"    --log-format {self.name} reads them all the same\n"
            )
        return (
            f"  nearest: {self.name}: {self.like_steps:,} lines look like its steps, and none can "
            f"be read;\n    line {self.closest.number} is understood up to the mark: "
            f"{_marked(self.closest.text, self.reach)}\n"
        )


def _any(lines: Iterable[tuple[str, re.Pattern[str]]], text: str) -> bool:
    return any(anchor in text and regex.search(text) for anchor, regex in lines)


def _marked(text: str, reach: str) -> str:
    """The line around the end of what was understood of it, which >>> marks."""
    at = text.find(reach) + len(reach)
    before = text[max(0, at - 60) : at]
    return f"{'…' if at > 60 else ''}{before}>>>{text[at : at + 40].rstrip()}"  # noqa: PLR2004
