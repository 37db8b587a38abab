"""Result of a format on a log, line by line, for authors of formats."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ..core.safe_regex import Regex
from ..decode.line_reader import NumberedLine, Source
from ..decode.text_cleaning import Cleaner
from ..formats.spec import EventLine, FactLine, LogFormat, StepLine
from ..launches.launch import Launch
from ..parse.line_parser import parse_lines
from ..parse.record_sink import ParsedSource
from .detection import FormatChoice

PARSER_MADE_COLUMNS: Final = frozenset({"line", "rank", "logged_at", "extra", "says"})


@dataclass(frozen=True, slots=True)
class FormatCheck:
    """Readings of all lines known to the format, or similar to a step.

    counts: lines by kind
    patterns: number of lines matched by every line of the format
    lines: by number, with keys `is` (step, fact, event, known, unread), `by` (the line of the
        format), `says` and `text`
    other_kinds: the most common lines without a match, with an example
    """

    counts: dict[str, int]
    patterns: list[dict[str, Any]]
    lines: list[dict[str, Any]]
    other_kinds: list[dict[str, Any]] = field(default_factory=list)

    @property
    def matched(self) -> bool:
        """True if any line of the format matched a line of the log."""
        return any(row["is"] != "unread" for row in self.lines)


def check_format(
    log_format: LogFormat, path: Path, base_format: LogFormat | None = None
) -> FormatCheck:
    """Return the readings of `path` by `log_format` alone.

    Raises UnreadableSourceError.

    base_format: extended by `log_format`; base lines follow the format's lines, and are labelled
    with the name of the base. May be `log_format` itself: then all lines are base lines.
    """
    watch = _Watch(log_format, base_format)
    source = Source(path, keeps_envelope=FormatChoice((log_format,)).keeps_envelope)
    parsed = parse_lines(watch.through(source.lines()), log_format)
    rows = [row for launch in parsed.launches for row in _of_launch(launch)]
    rows += [_row(u["line"], "unread", {"reason": u["reason"]}) for u in parsed.unread]
    read_lines = {row["line"] for row in rows}
    rows += [_row(number, "known", {}) for number in watch.by if number not in read_lines]
    lines = [
        row | {"by": watch.by.get(row["line"], ""), "text": watch.texts.get(row["line"], "")}
        for row in sorted(rows, key=lambda row: int(row["line"]))
    ]
    return FormatCheck(_counts(parsed), watch.patterns(), lines, parsed.other_kinds)


class _Watch:
    """Recorder of the matching format lines of each line, with the parser's rules."""

    def __init__(self, log_format: LogFormat, extends: LogFormat | None) -> None:
        self.cleaner = Cleaner(log_format.noise)
        self.looks = Regex(log_format.looks_like_step)
        self.kinds = [
            [
                (_label(log_format, kind, number, extends), line.anchor, Regex(line.regex))
                for number, line in enumerate(getattr(log_format, kind), start=1)
            ]
            for kind in ("events", "steps", "facts")
        ]
        self.fills = {
            _label(log_format, kind, number, extends): _filled(line)
            for kind in ("steps", "facts", "events")
            for number, line in enumerate(getattr(log_format, kind), start=1)
        }
        self.by: dict[int, str] = {}
        self.texts: dict[int, str] = {}
        self.taken: Counter[str] = Counter()

    def through(self, lines: Iterable[NumberedLine]) -> Iterator[NumberedLine]:
        for line in lines:
            text = self.cleaner.strip(line.text)
            labels = next(filter(None, (self._takers(kind, text) for kind in self.kinds)), [])
            if labels:
                self.by[line.number] = ", ".join(labels)
            if labels or self.looks.search(text):
                self.texts[line.number] = text[:500]
            self.taken.update(labels)
            yield line

    @staticmethod
    def _takers(kind: list[tuple[str, str, Regex]], text: str) -> list[str]:
        return [label for label, anchor, regex in kind if anchor in text and regex.search(text)]

    def patterns(self) -> list[dict[str, Any]]:
        return [
            {"pattern": label, "fills": fills, "lines": self.taken[label]}
            for label, fills in self.fills.items()
        ]


def _label(log_format: LogFormat, kind: str, number: int, extends: LogFormat | None) -> str:
    """Return `[[steps]] 1`, or `torchtitan steps 1` for a line of the extended format."""
    inherited = len(getattr(extends, kind)) if extends else 0
    own = len(getattr(log_format, kind)) - inherited
    if extends is None or number <= own:
        return f"[[{kind}]] {number}"
    return f"{extends.name} {kind} {number - own}"


def _filled(line: StepLine | FactLine | EventLine) -> list[str]:
    """Return the columns, facts or event filled by a line of a format."""
    if isinstance(line, StepLine):
        return [*line.fills, *line.facts.values()]
    if isinstance(line, FactLine):
        match = re.search(line.regex, line.example)
        groups = {k: v for k, v in match.groupdict().items() if v} if match else {}
        return [*(line.read(groups) if line.read else groups), *line.constants]
    return [line.kind]


def _of_launch(launch: Launch) -> Iterator[dict[str, Any]]:
    for row in launch.rows:
        values = {k: v for k, v in row.items() if k not in PARSER_MADE_COLUMNS and v is not None}
        if row["logged_at"] is not None:
            values["logged_at"] = str(row["logged_at"])
        yield _row(row["line"], "step", values | _extra(row))
    for event in launch.events:
        kept = ("kind", "step", "seconds")
        values = {key: event[key] for key in kept if event[key] is not None}
        yield _row(event["line"], "event", values | _extra(event))
    facts: dict[int, dict[str, Any]] = {}
    for fact in launch.stated:
        facts.setdefault(fact["line"], {})[fact["name"]] = fact["value"]
    yield from (_row(number, "fact", values) for number, values in facts.items())


def _extra(row: dict[str, Any]) -> dict[str, Any]:
    return {"extra": json.loads(row["extra"])} if row.get("extra") else {}


def _row(number: int, what: str, says: dict[str, Any]) -> dict[str, Any]:
    return {"line": number, "is": what, "says": says}


def _counts(parsed: ParsedSource) -> dict[str, int]:
    return {
        "lines": parsed.lines,
        "step_lines": parsed.step_lines,
        "known_lines": parsed.known_lines,
        "unread_lines": parsed.unread_lines,
        "other_lines": parsed.other_lines,
    }
