"""Several writers of one file: each has its lines read alone, so that none cuts another's runs.

A launch is one writer's sequence. Whose a line is, one of these tells:

    tagged_jobs     the name that a collector put before it
    page_blocks     the code block of a page
    writer_tracks   the steps and the clock of each writer
    pace_breaks     a break of time and speed

All are in ingest.launches. Lines of every writer, such as a page's first words, are read with each.
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


def apart(  # noqa: PLR0913 - of one file
    parsed: ParsedSource,
    tags: LineTags,
    read_lines: ReadLines,
    formats: DetectedFormats,
    spool: Spool,
    *,
    may_be_page: bool,
    may_break: bool,
) -> ParsedSource:
    """Return what a file says with the launches of each of its writers; as it is of one writer.

    parsed: all lines read as one writer's; tags: whose each line is; read_lines: gives them again;
    may_be_page: it may be a page with code blocks; may_break: runs may stand one behind the other
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
    """Reads the lines of one writer, and those of all; the others are blank to it."""

    def __init__(self, read_lines: ReadLines, formats: DetectedFormats, spool: Spool) -> None:
        self._read_lines, self._formats, self._spool = read_lines, formats, spool

    def launches(self, owners: Ints, *numbers: int) -> list[Launch]:
        """owners: of each line; numbers: the writer's."""
        mine = np.isin(owners, (SHARED, *numbers))
        launches = parse_lines(self._lines(mine), *self._formats, self._spool).launches
        return [launch for launch in launches if launch.rows] or launches

    def _lines(self, mine: Bools) -> Iterator[NumberedLine]:
        for line, is_mine in zip(self._read_lines(), mine.tolist(), strict=False):
            yield line if is_mine else line._replace(text="", cut=False)


def _by_names(
    parsed: ParsedSource, tags: LineTags, reader: _WriterReader, *, each_line: bool
) -> ParsedSource:
    """The launches of each job whose lines have names; each_line: each step is of one line."""
    numbers = np.frombuffer(tags.numbers, np.uint16).astype(np.int64)
    if each_line and are_one_job(parsed.launches, numbers):
        return parsed
    owners = np.where(numbers == 0, SHARED, numbers)
    place = {name.decode("utf-8", "replace"): number for name, number in tags.names.items()}
    by_name = {name: reader.launches(owners, number) for name, number in place.items()}
    jobs = job_names(by_name)
    if len(jobs) < 2:  # noqa: PLR2004 - all of them are ranks of one job
        return parsed
    every = []
    for names in jobs:
        mine = (
            by_name[names[0]]
            if len(names) == 1
            else reader.launches(owners, *(place[name] for name in names))
        )
        for launch in mine:
            launch.writer = names[0]
        every.append(mine)
    return _with_launches(parsed, every)


def _by_tracks(parsed: ParsedSource, reader: _WriterReader) -> ParsedSource:
    """The launches of writers that take turns; of those that nothing tells apart one."""
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
    """The launches of runs that stand one behind the other, where time and speed both tell."""
    breaks = {id(launch): found for launch in parsed.launches if (found := pace_breaks(launch))}
    every = [launch for launch in parsed.launches if id(launch) not in breaks]
    for launch in parsed.launches:
        found = breaks.get(id(launch), [])
        if not found:
            continue
        owners = np.full(parsed.lines, NOBODY, np.int64)
        owners[launch.first_line - 1 : launch.last_line] = 0
        for number, line in enumerate(found, 1):
            owners[line - 1 : launch.last_line] = number
        owners[launch.first_line - 1 : (launch.rows.first_line or 1) - 1] = SHARED
        for number in range(len(found) + 1):
            every += reader.launches(owners, number)
    return _with_launches(parsed, [every]) if breaks else parsed


def _line_owners(height: int, first: int, end: int, writers: Sequence[Ints]) -> Ints:
    """Whose each line is, from `first` to before `end`: that of the next step line, else the last.

    Those before the first step line are of each writer.
    """
    owners = np.full(height, NOBODY, np.int64)
    lines = np.concatenate(writers)
    whose = np.repeat(np.arange(len(writers)), [len(its) for its in writers])
    order = np.argsort(lines, kind="stable")
    lines, whose = lines[order], whose[order]
    mine = np.arange(first, end)
    at = np.minimum(lines.searchsorted(mine), len(lines) - 1)
    owners[mine - 1] = np.where(mine < lines[0], SHARED, whose[at])
    return owners


NOBODY: Final = -2
"""The owner of lines of other launches."""


def _with_launches(parsed: ParsedSource, by_writer: Sequence[Sequence[Launch]]) -> ParsedSource:
    """What was parsed, with the launches of all writers, in the order of their steps."""
    every = [launch for launches in by_writer for launch in launches]
    return replace(parsed, launches=sorted(every, key=_first_line))


def _first_line(launch: Launch) -> int:
    return launch.rows.first_line or launch.first_line
