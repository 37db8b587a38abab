"""Partial matches of formats, for a file without a readable step.

The header of a launch that ended before the first step identifies the format. For other files, the
error describes the best partial matches.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from itertools import chain, islice
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from ..core.errors import UnknownFormatError, UnreadFormatError
from ..core.prefilter import cached_prefilter, literal_matcher
from ..core.safe_regex import GuardedRegex, Regex
from ..decode.line_reader import NumberedLine
from ..decode.text_cleaning import Cleaner
from ..formats.registry import FILE_HINTS, UNREAD_TRAINERS
from ..formats.spec import (
    ENGINE_PRECEDENCE,
    LIBRARY_PRECEDENCE,
    STEP_PARTS_PRECEDENCE,
    LogFormat,
)
from ..launches.outcomes import (
    ENDING_EVENT_LINES,
    FAILURE_EVENT_KINDS,
    LAUNCHER_KILL,
    LAUNCHER_SUMMARY,
    TRACEBACK,
    TRACEBACK_WITHOUT_ERROR,
)
from ..parse.line_parser import parse_lines
from ..parse.partial_match import longest_matched_prefix
from .messages import FAILED_BEFORE_STEPS, NO_READABLE_STEP, UNKNOWN_FORMAT

LINES_AT_ONCE: Final = 4_096
"""Lines prefiltered together."""

MIN_HEADER_LINES: Final = 2
"""Distinct lines of a header that identify a format."""

PRINTED_LOSS: Final = r"(?<![A-Za-z])[Ll]oss\W{1,9}(?:tensor\()?(?:-?\d|nan|inf)"
"""A loss: a script of its own trains, on an engine that prints no steps."""

TIME_COLUMNS: Final = (
    "logged_at",
    "elapsed_s",
    "since_start_s",
    "logged_tgs",
    "logged_samples_per_second",
)
"""Columns of steps that give their time; a log without any of them has no rate."""

MAX_NEAR_MISSES: Final = 20
"""Maximum number of lines per format that are tested for partial matches of steps."""


def scan_formats(
    lines: Iterable[NumberedLine],
    formats: tuple[LogFormat, ...],
    cleaner: Cleaner,
    trainer: UnreadTrainer | None = None,
) -> tuple[list[FormatHits], LaunchEnd]:
    """Return the known lines of such a file per format, and the end of the launch.

    Lines that an engine prints under any trainer do not identify the trainer.

    trainer: sees the same lines
    """
    hits = [FormatHits(f) for f in formats if f.precedence > STEP_PARTS_PRECEDENCE]
    end, trainer = LaunchEnd(), trainer or UnreadTrainer()
    lower = [hit for hit in hits if hit.log_format.precedence <= ENGINE_PRECEDENCE]
    engines = (f for f in formats if f.precedence == ENGINE_PRECEDENCE)
    of_engines = [(line.anchor, Regex(line.regex)) for f in engines for line in f.facts]
    interesting = literal_matcher(
        (anchor for hit in hits for anchor in hit.anchors),
        (pattern for hit in hits for pattern in hit.patterns),
    )
    sought = chain(*(hit.sought for hit in hits), end.sought, trainer.sought)
    may_tell = cached_prefilter(tuple(dict.fromkeys(sought))).lines_may_match
    lines = iter(lines)
    while batch := list(islice(lines, LINES_AT_ONCE)):
        texts = [cleaner.strip(line.text) for line in batch]
        for index in np.flatnonzero(may_tell(pl.Series(texts))).tolist():
            end.look(texts[index], batch[index].number)
            trainer.look(texts[index])
            if interesting(texts[index]):
                line = batch[index]._replace(text=texts[index])
                for hit in lower if _any(of_engines, line.text) else hits:
                    hit.look(line)
    return hits, end


def formats_by_header(hits: Iterable[FormatHits], launch_end: LaunchEnd) -> tuple[LogFormat, ...]:
    """Return the trainer whose header is in the file, with companions.

    Empty if two trainers are possible. Forks of a trainer share lines, so the fork with the most
    kinds of lines wins. A format with another's header, distinguished by its steps alone, does not
    win. An engine trains for others, whose steps may be unknown here: an engine wins only if the
    launch ended before any step.
    """
    shown = [hit for hit in hits if len(hit.kinds) >= MIN_HEADER_LINES]
    least = ENGINE_PRECEDENCE if launch_end.is_early else LIBRARY_PRECEDENCE
    trainers = [hit for hit in shown if hit.log_format.precedence >= least]
    most = max(map(_evidence, trainers), default=None)
    likely = [hit.log_format for hit in trainers if _evidence(hit) == most]
    best = [f for f in likely if f is likely[0] or not _share_blocks(f, likely[0])]
    if len(best) != 1:
        return ()
    lower = (hit.log_format for hit in shown if hit.log_format.precedence < best[0].precedence)
    return (best[0], *lower)


def _share_blocks(first: LogFormat, second: LogFormat) -> bool:
    return first.blocks == second.blocks or any(b in second.blocks for b in first.blocks)


def describe_hits(hits: Iterable[FormatHits]) -> str:
    """Return a description of the best partial matches."""
    ranked = sorted(hits, key=lambda hit: (-len(hit.reach), -hit.headers))
    return "".join(hit.text() for hit in ranked[:2] if hit.headers or hit.like_steps)


def no_format_error(
    path: Path, near_misses: str, format_names: str, end: LaunchEnd | None = None
) -> UnknownFormatError:
    """Return the error of a file without a matching format.

    near_misses: from `describe_hits`
    format_names: names of formats
    end: of the last launch in the file, which may have failed before its first step
    """
    end = end or LaunchEnd()
    if end.error:
        made = UnreadFormatError if near_misses else UnknownFormatError
        nearest = end.other_errors() + near_misses
        return FAILED_BEFORE_STEPS.made(made, path=path, error=end.error, nearest=nearest)
    ending = f'  the log ends with: "{end.words[:MAX_ERROR_CHARS]}"\n' if end.words else ""
    hint = f"{ending}{FILE_HINTS.get(path.suffix, '')}"
    if near_misses:
        return NO_READABLE_STEP(path=path, nearest=near_misses, hint=hint, names=format_names)
    return UNKNOWN_FORMAT(path=path, hint=hint, names=format_names)


class FormatHits:
    """Lines that a format knows in a file without a readable step."""

    def __init__(self, log_format: LogFormat) -> None:
        self.log_format, self.name = log_format, log_format.name
        self.events = [(line.anchor, Regex(line.regex)) for line in log_format.events]
        stating = [f for f in log_format.facts if f.states_facts and not f.of_any_file]
        facts = [(line.anchor, Regex(line.regex)) for line in stating]
        starts = [block.start for block in log_format.blocks if not block.of_any_file]
        self.facts = [*facts, *(("", Regex(start)) for start in starts)]
        joined = log_format.join is not None  # patterns match joined lines
        self.looks = GuardedRegex("(?!)" if joined else log_format.looks_like_step)
        self.anchors = {line.anchor for line in stating}
        self.patterns = starts if joined else [log_format.looks_like_step, *starts]
        self._interesting = literal_matcher(self.anchors, self.patterns)
        self.sought = [(line.anchor, line.regex) for line in stating]
        """Anchors and patterns, one of which matches every useful line."""
        self.sought += [("", pattern) for pattern in self.patterns]
        self.steps = [line.regex for line in log_format.steps]
        self.kinds: Counter[str] = Counter()
        self.like_steps = 0
        self.first = self.closest = NumberedLine(0, "", cut=False)
        self.reach = ""

    @property
    def headers(self) -> int:
        """Number of header lines found."""
        return self.kinds.total()

    def look(self, line: NumberedLine) -> None:
        """Count the line if known to the format."""
        if not self._interesting(line.text):
            return
        if self.looks.search(line.text) and not _any(self.events, line.text):
            self.like_steps += 1
            if self.like_steps <= MAX_NEAR_MISSES:
                self._reach(line)
        elif kind := _any(self.facts, line.text):
            self.first = line if not self.kinds else self.first
            self.kinds[kind] += 1

    def _reach(self, line: NumberedLine) -> None:
        reach = max((longest_matched_prefix(regex, line.text) for regex in self.steps), key=len)
        if self.like_steps == 1 or len(reach) > len(self.reach):
            self.reach, self.closest = reach, line

    def _tells_time(self) -> bool:
        """Return whether the closest line, read as a step, gives a time."""
        rows = parse_lines([self.closest], self.log_format).launches[-1].rows
        return any(row.get(name) is not None for row in rows for name in TIME_COLUMNS)

    def text(self) -> str:
        """Return the partial match as text for an error."""
        if not self.like_steps:
            return (
                f"  nearest: {self.name}: {self.headers:,} of its header lines (first: "
                f'line {self.first.number}, "{self.first.text.strip()[:60]}"), but no step line\n'
            )
        if any(Regex(regex).search(self.closest.text) for regex in self.steps):
            could = (
                f"  nearest: {self.name}: {self.like_steps:,} lines could be its steps (first: "
                f"line {self.closest.number}), but "
            )
            if not self._tells_time():
                return f"{could}have none of its fields with a time or rate\n"
            return (
                f"{could}lack the marks that distinguish it from other formats;\n"
                f"    --log-format {self.name} reads them anyway\n"
            )
        return (
            f"  nearest: {self.name}: {self.like_steps:,} lines look like its steps, but none can "
            f"be read;\n    line {self.closest.number} matches up to the mark >>>: "
            f"{_marked(self.closest.text, self.reach)}\n"
        )


class LaunchEnd:
    """Detector of a launch that failed before the first step, for any format.

    A scheduler writes the output of many jobs into one file: the last one counts.
    """

    def __init__(self) -> None:
        self._bad = [
            (line.anchor, Regex(line.regex))
            for line in ENDING_EVENT_LINES
            if line.kind in FAILURE_EVENT_KINDS
        ]
        self._losses = [(anchor, Regex(PRINTED_LOSS)) for anchor in ("loss", "Loss")]
        self.sought = [(anchor, regex.pattern) for anchor, regex in (*self._bad, *self._losses)]
        self.sought += [(BAR_ANCHOR, MOVED_BAR)]
        self._bar = [(BAR_ANCHOR, Regex(MOVED_BAR))]
        self._ended = self._trained = self._moved = False
        self._error = self._next_error = self._other = ""
        self._jobs: set[str] = set()
        self._errors: dict[str, NumberedError] = {}

    @property
    def is_early(self) -> bool:
        """True if the launch ended in failure, and no line prints a loss."""
        return self._ended and not self._trained

    @property
    def error(self) -> str:
        """First error of the last launch that failed early; empty if none is printed."""
        words = self._error or ("" if self._moved else self._other)
        return words if self.is_early else ""

    @property
    def words(self) -> str:
        """First words on the end of the last launch, trained or not; may be empty."""
        return self._error or self._other

    def other_errors(self) -> str:
        """Return a line that counts the other errors and shows the first; may be empty."""
        others = [error for error in self._errors.values() if error.text != self.words]
        if not others:
            return ""
        first = others[0]
        place = f'line {first.number:,}, "{first.text[:MAX_ERROR_CHARS]}"'
        if len(others) == 1:
            return f"  the file has another error: {place}\n"
        return f"  the file has {len(others)} other errors; the first: {place}\n"

    def look(self, text: str, number: int = 0) -> None:
        """Check a line, at any position: a file may contain several launches."""
        for anchor, regex in self._bad:
            if anchor in text and (match := regex.search(text)):
                self._ended = True
                self._note(match[0].strip(), (match.groupdict().get("error") or "").strip(), number)
                break
        self._trained = self._trained or bool(_any(self._losses, text))
        self._moved = self._moved or bool(_any(self._bar, text))

    def _note(self, text: str, error: str, number: int) -> None:
        """Keep the words on the end of a launch: an error, or how it was killed."""
        job = JOB_END.search(text)
        if job and job[1] not in self._jobs:
            if self._jobs:
                self._error, self._next_error = self._next_error, ""
            self._other, self._moved = text, False
            self._jobs.add(job[1])
        elif error and not (LAUNCHER_SUMMARY.search(text) or TRACEBACK.search(text)):
            kind = re.sub(r"\d+", "0", error)
            self._errors.setdefault(kind, NumberedError(number, error))
            if self._jobs:  # of the job that was cancelled, until another one is
                self._next_error = self._next_error or error
            else:
                self._error = self._error or error
        elif not self._other or LAUNCHER_KILL.search(self._other):
            self._other = TRACEBACK_WITHOUT_ERROR if TRACEBACK.search(text) else text


class NumberedError(NamedTuple):
    """An error, and its line."""

    number: int
    text: str


JOB_END: Final = re.compile(r"\*\*\* JOB (\d{1,18}) ")
"""Slurm's line at the end of a job: the output of the next job follows."""
MAX_ERROR_CHARS: Final = 120
BAR_ANCHOR: Final = "it"
MOVED_BAR: Final = r"(?<![\d.])[1-9]\d{0,8}/\d{1,9} \[\d[^\]]{0,40}(?:it/s|s/it)"
"""A progress bar beyond 0: data sets and models are loaded with bars too, so it proves no step."""


class UnreadTrainer:
    """Detector of logs of known but unsupported trainers."""

    def __init__(self) -> None:
        """Begin without a trainer. known: a description, or ""."""
        self.known = ""
        self.sought = [("", pattern) for pattern, _ in UNREAD_TRAINERS]
        self._marks = [(Regex(pattern), what) for pattern, what in UNREAD_TRAINERS]

    def look(self, text: str) -> None:
        """Check a line; the first match counts."""
        self.known = self.known or next(
            (what for mark, what in self._marks if mark.search(text)), ""
        )


def _evidence(hit: FormatHits) -> tuple[int, int]:
    return hit.log_format.precedence, len(hit.kinds)


def _any(lines: Iterable[tuple[str, Regex]], text: str) -> str:
    """Return the first matching pattern, or ""."""
    patterns = (regex.pattern for anchor, regex in lines if anchor in text and regex.search(text))
    return next(patterns, "")


def _marked(text: str, reach: str) -> str:
    """Return the text around the end of the understood part, marked by >>>."""
    end = text.find(reach) + len(reach)
    before = text[max(0, end - 60) : end]
    return f"{'…' if end > 60 else ''}{before}>>>{text[end : end + 40].rstrip()}"  # noqa: PLR2004
