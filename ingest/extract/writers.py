"""Several writers in one file, parsed separately so that runs stay whole.

A launch is the sequence of one writer. A line's writer follows from one of these:

    tagged_jobs     the name put before each line by a log collector
    page_blocks     the code block of a page
    writer_tracks   steps and clock of each writer
    pace_breaks     a break of time and speed

All are in ingest.launches. Lines of all writers, such as a page's introduction, are parsed with
each writer's lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from ..core.arrays import Bools, Ints
from ..core.spill import Spool
from ..decode.envelopes import LineTags
from ..decode.line_reader import NumberedLine
from ..detect.detection import DetectedFormats
from ..launches.launch import Launch
from ..launches.pace_breaks import pace_breaks
from ..launches.page_blocks import SHARED, page_owners
from ..launches.tagged_jobs import are_one_job, job_names, may_hold_several_jobs
from ..launches.writer_tracks import find_turns, join_launches
from ..parse.line_parser import parse_lines
from ..parse.record_sink import ParsedSource

ReadLines = Callable[[], Iterable[NumberedLine]]


def apart(  # noqa: PLR0913 - details of one file
    parsed: ParsedSource,
    tags: LineTags,
    read_lines: ReadLines,
    formats: DetectedFormats,
    spool: Spool,
    *,
    may_be_page: bool,
    may_break: bool,
) -> ParsedSource:
    """Return the source with launches per writer; unchanged for a single writer.

    parsed: all lines, parsed as of a single writer. tags: names of the lines.
    read_lines: reads the lines again. may_be_page: the file may have code blocks.
    may_break: runs may follow one another.
    """
    reader = _WriterReader(read_lines, formats, spool)
    if len(tags.names) > 1 and may_hold_several_jobs(parsed.launches):
        each_line = not (formats[0].join or formats[0].join_by_step)
        return _by_names(parsed, tags, reader, each_line=each_line)
    if may_be_page and parsed.step_lines > 1:
        owners = page_owners([line.text for line in read_lines()], parsed.launches)
        if owners is not None:
            numbers: list[int] = np.unique(owners[owners != SHARED]).tolist()
            return _with_launches(parsed, [reader.launches(owners, n) for n in numbers])
    parsed = _by_tracks(parsed, reader)
    return _by_pace(parsed, reader) if may_break else parsed


class _WriterReader:
    """Parser of one writer's lines and shared lines; all other lines are blank."""

    def __init__(self, read_lines: ReadLines, formats: DetectedFormats, spool: Spool) -> None:
        self._read_lines, self._formats, self._spool = read_lines, formats, spool

    def launches(self, owners: Ints, *numbers: int) -> list[Launch]:
        """Return the launches of the writers `numbers`; owners: writer number per line."""
        selected = np.isin(owners, (SHARED, *numbers))
        launches = parse_lines(self._lines(selected), *self._formats, self._spool).launches
        return [launch for launch in launches if launch.rows] or launches

    def _lines(self, selected: Bools) -> Iterator[NumberedLine]:
        for line, is_selected in zip(self._read_lines(), selected.tolist(), strict=False):
            yield line if is_selected else line._replace(text="", cut=False)


def _by_names(
    parsed: ParsedSource, tags: LineTags, reader: _WriterReader, *, each_line: bool
) -> ParsedSource:
    """Return launches per named job; each_line: True if every step is a single line."""
    numbers = np.frombuffer(tags.numbers, np.uint16).astype(np.int64)
    if each_line and are_one_job(parsed.launches, numbers):
        return parsed
    owners = np.where(numbers == 0, SHARED, numbers)
    number_of = {name.decode("utf-8", "replace"): number for name, number in tags.names.items()}
    by_name = {name: reader.launches(owners, number) for name, number in number_of.items()}
    jobs = job_names(by_name)
    if len(jobs) < 2:  # noqa: PLR2004 - all are ranks of one job
        return parsed
    every = []
    for names in jobs:
        launches = (
            by_name[names[0]]
            if len(names) == 1
            else reader.launches(owners, *(number_of[name] for name in names))
        )
        for launch in launches:
            launch.writer = names[0]
        every.append(launches)
    return _with_launches(parsed, every)


def _by_tracks(parsed: ParsedSource, reader: _WriterReader) -> ParsedSource:
    """Return launches of writers that take turns; one launch if indistinguishable."""
    every: list[list[Launch]] = []
    done = 0
    for turns in find_turns(parsed.launches):
        mixed = parsed.launches[turns.launches]
        every.append(parsed.launches[done : turns.launches.start])
        done = turns.launches.stop
        if turns.writers:
            end = (
                parsed.launches[done].first_line
                if done < len(parsed.launches)
                else parsed.lines + 1
            )
            owners = _line_owners(parsed.lines, mixed[0].first_line, end, turns.writers)
            every += [reader.launches(owners, number) for number in range(len(turns.writers))]
        else:
            every.append([join_launches(mixed)])
    return _with_launches(parsed, [*every, parsed.launches[done:]]) if every else parsed


def _by_pace(parsed: ParsedSource, reader: _WriterReader) -> ParsedSource:
    """Return launches of consecutive runs, split where both time and speed break."""
    breaks = {id(launch): starts for launch in parsed.launches if (starts := pace_breaks(launch))}
    every = [launch for launch in parsed.launches if id(launch) not in breaks]
    for launch in parsed.launches:
        starts = breaks.get(id(launch), [])
        if not starts:
            continue
        owners = np.full(parsed.lines, NOBODY, np.int64)
        owners[launch.first_line - 1 : launch.last_line] = 0
        for number, line in enumerate(starts, 1):
            owners[line - 1 : launch.last_line] = number
        owners[launch.first_line - 1 : (launch.rows.first_line or 1) - 1] = SHARED
        for number in range(len(starts) + 1):
            every += reader.launches(owners, number)
    return _with_launches(parsed, [every]) if breaks else parsed


def _line_owners(height: int, first: int, end: int, writers: Sequence[Ints]) -> Ints:
    """Return the owner per line, from `first` to `end`: that of the next step line.

    Lines after the last step line have its owner; lines before the first are shared.
    writers: line numbers of the steps, per writer.
    """
    owners = np.full(height, NOBODY, np.int64)
    lines = np.concatenate(writers)
    whose = np.repeat(np.arange(len(writers)), [len(step_lines) for step_lines in writers])
    order = np.argsort(lines, kind="stable")
    lines, whose = lines[order], whose[order]
    line_numbers = np.arange(first, end)
    next_step = np.minimum(lines.searchsorted(line_numbers), len(lines) - 1)
    owners[line_numbers - 1] = np.where(line_numbers < lines[0], SHARED, whose[next_step])
    return owners


NOBODY: Final = -2
"""Owner of lines that belong to other launches."""


def _with_launches(parsed: ParsedSource, by_writer: Sequence[Sequence[Launch]]) -> ParsedSource:
    """Return the parsed source with the launches of all writers, in step order."""
    every = [launch for launches in by_writer for launch in launches]
    return replace(parsed, launches=sorted(every, key=_first_line))


def _first_line(launch: Launch) -> int:
    return launch.rows.first_line or launch.first_line
