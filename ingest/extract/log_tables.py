"""Rows of all tables from one log and the files next to it."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final, NamedTuple, Self

import polars as pl
from polars import selectors as cs

from ..core.arrays import release_free_memory
from ..core.errors import FairmfuError
from ..core.faults import FAULTS, reading_error
from ..core.paths import prefetch, request_cache
from ..core.schema import READING_CHANGES
from ..core.spill import Spool, collect_rows
from ..decode.line_reader import MAX_PEEK_BYTES, STDIN_PATH, Chunk, NumberedLine, Source
from ..decode.line_text import holds
from ..detect.detection import (
    BUILT_IN_CHOICE,
    DetectedFormats,
    EarlyDetection,
    FormatChoice,
    detect_format,
    detect_formats,
    detect_from_beginning,
)
from ..facts import facts as given
from ..facts.companion_files import facts_from_companions, without_other_runs
from ..formats.launch_view import Fact
from ..formats.registry import CACHED_MODEL
from ..formats.spec import ENGINE_PRECEDENCE, LogFormat, StepLine
from ..launches import outcomes
from ..launches.event_rows import EventRows
from ..launches.launch import Launch
from ..launches.step_rows import STEP_SCHEMA, StepRows
from ..parse.launch_closing import MissingTextsError
from ..parse.line_parser import parse_lines
from ..parse.rank_and_time import PLACEHOLDER_YEAR
from ..parse.record_sink import ParsedSource, ReadingCost
from ..store.changeset import Tables
from ..vector.block_parser import BlockParser, PlanChunks, parse_small_texts, without_plans
from . import writers
from .discovery import file_identity
from .engine_api import ReadRequest
from .messages import LINES_LOST, NEWEST_FIRST
from .run_names import LOGGED_NAMES, TORCHRUN_LOG_PATH, name_fact, named_run
from .table_batches import LogRows

MAX_SMALL_BYTES: Final = 1024 * 1024
"""Size limit of logs that are read together [bytes]."""

BYTES_PER_MB: Final = 1e6
MIN_READ_SECONDS: Final = 1e-9
"""Lower limit against division by zero: a coarse clock gives 0 s for a small file [s]."""
STAMP_COLUMNS: Final = ("line", "logged_at")
MAX_YEARLESS_GAP: Final = timedelta(days=182)


def read_log_tables(
    path: Path,
    *,
    flag_facts: Sequence[Fact] = (),
    format_choice: FormatChoice = BUILT_IN_CHOICE,
    use_fast_path: bool = True,
) -> Tables:
    """Return all rows of one log file, with its facts. Raises FairmfuError.

    flag_facts: facts that override all others.
    use_fast_path: read similar lines in blocks, with the same result.
    """
    spool = Spool(
        max_held_bytes=math.inf
    )  # all rows are collected at once, so none need go to the disk
    log = read_log(
        path, spool, flag_facts=flag_facts, format_choice=format_choice, use_fast_path=use_fast_path
    )
    return {name: collect_rows(table) for name, table in log.tables(spool).items()}


@request_cache()
def read_log(  # noqa: PLR0913 - each is an option of the one who reads
    path: Path,
    spool: Spool,
    *,
    path_facts: Sequence[Fact] = (),
    flag_facts: Sequence[Fact] = (),
    format_choice: FormatChoice = BUILT_IN_CHOICE,
    use_fast_path: bool = True,
    plan_chunks: PlanChunks = without_plans,
) -> LogRows:
    """Read one log file with its facts, not yet as tables. Raises FairmfuError.

    spool: storage of waiting step rows.
    path_facts: facts that files next to the log can override.
    flag_facts, use_fast_path: as in `read_log_tables`.
    plan_chunks: lets other processes plan blocks of a large file before their turn.
    """
    began = perf_counter()
    with Source(path, keeps_envelope=format_choice.keeps_envelope) as source:
        plans = plan_chunks if use_fast_path else None
        detected, parsed = _parse(source, spool, format_choice, plans)
    if source.is_rereadable():
        lines = partial(_lines_again, path, format_choice)
        is_small = source.bytes <= MAX_SMALL_BYTES
        parsed = writers.apart(
            parsed,
            source.tags,
            lines,
            detected,
            spool,
            may_be_page=is_small and _has_fences(parsed),
            may_break=is_small,
        )
    parsed.cost.seconds = perf_counter() - began
    if source.bytes > MAX_PEEK_BYTES:  # free the memory of blocks before rows are written
        release_free_memory()
    text = _Text.of(
        source, parsed, [*path_facts, *facts_from_files(path), *flag_facts], format_choice
    )
    return next(_logs(*detected, [text]))


def _parse(
    source: Source, spool: Spool, format_choice: FormatChoice, plan_chunks: PlanChunks | None
) -> tuple[DetectedFormats, ParsedSource]:
    """Detect the formats of a source, and parse it.

    plan_chunks: None to parse by lines.

    A re-readable source is parsed by the formats of the beginning. Parsing starts over if a later
    line shows another format, or if dropped texts turn out to be needed.
    """
    early = _first_look(source, format_choice, watching=plan_chunks is not None)
    keep_texts = not source.is_rereadable()
    while True:
        try:
            if plan_chunks is None:
                return early.detected, parse_lines(source.lines(), *early.detected, spool)
            parser = BlockParser(
                *early.detected,
                spool,
                early.watch,
                keep_texts=keep_texts,
                plan_chunks=plan_chunks,
                on_watched_line=partial(_watch_on, source.path, format_choice, early),
            )
            return early.detected, parser.parse(source.chunks())
        except _TakenOtherwiseError as otherwise:
            early = otherwise.sure
        except MissingTextsError:
            keep_texts = True
        source.close()  # parse from the beginning again


def _has_fences(parsed: ParsedSource) -> bool:
    """Return whether unread lines include fences of code blocks, as in Markdown."""
    return any(fence in kind["example"] for kind in parsed.other_kinds for fence in ("```", "~~~"))


def _lines_again(path: Path, tried: FormatChoice) -> Iterator[NumberedLine]:
    with Source(path, keeps_envelope=tried.keeps_envelope) as source:
        yield from source.lines()


class _TakenOtherwiseError(Exception):
    """The log has other formats than its beginning shows; discard all parsed rows."""

    def __init__(self, detected: DetectedFormats) -> None:
        self.sure = EarlyDetection(detected)


def _first_look(source: Source, tried: FormatChoice, *, watching: bool) -> EarlyDetection:
    """Detect formats from the beginning; a re-readable source can also be watched."""
    look = source.path, source.peek(), tried.formats, tried.wanted
    watching = watching and source.is_rereadable()
    return detect_from_beginning(*look) if watching else EarlyDetection(detect_format(*look))


def _watch_on(
    path: Path, format_choice: FormatChoice, early: EarlyDetection, number: float
) -> bool:
    """Check the whole log because of a line that may show other formats.

    Returns True for a line of the beginning, where the watch goes on, and False once the whole log
    confirms the formats.
    Raises _TakenOtherwiseError if the formats differ.
    """
    if number <= early.last:
        return True
    with Source(path, keeps_envelope=format_choice.keeps_envelope) as source:
        sure = detect_format(path, source.chunks(), format_choice.formats, format_choice.wanted)
    if sure != early.detected:
        raise _TakenOtherwiseError(sure)
    return False


@request_cache()
def read_log_files(
    requests: Sequence[ReadRequest],
    spool: Spool,
    *,
    flag_facts: Sequence[Fact] = (),
    format_choice: FormatChoice = BUILT_IN_CHOICE,
) -> list[LogRows | Exception]:
    """Read several files as `read_log` does; each result is a log or an error.

    Small files are read together.
    """
    read: dict[Path, LogRows | Exception] = {}
    small: dict[Path, _Small] = {}
    prefetch(path for path, _ in requests)
    for path, facts in requests:
        try:
            if (text := _Small.of(path, facts, format_choice)) is not None:
                small[path] = text
            else:
                read[path] = read_log(
                    path,
                    spool,
                    path_facts=facts,
                    flag_facts=flag_facts,
                    format_choice=format_choice,
                )
        except FAULTS as error:
            read[path] = reading_error(path, error)
    read |= _read_small(small, flag_facts, format_choice)
    return [read[path] for path, _ in requests]


def _read_small(
    texts: Mapping[Path, _Small], extra: Sequence[Fact], tried: FormatChoice
) -> dict[Path, LogRows | Exception]:
    """Read small texts together; after an error by halves, to isolate the bad file."""
    try:
        return _read_together(texts, extra, tried)
    except FAULTS as error:
        paths = [*texts]
        if len(paths) == 1:
            return {paths[0]: reading_error(paths[0], error)}
    halves = paths[: len(paths) // 2], paths[len(paths) // 2 :]
    first, second = (
        _read_small({path: texts[path] for path in half}, extra, tried) for half in halves
    )
    return first | second


def _read_together(
    texts: Mapping[Path, _Small], extra: Sequence[Fact], tried: FormatChoice
) -> dict[Path, LogRows | Exception]:
    read: dict[Path, LogRows | Exception] = {}
    alike: dict[DetectedFormats, list[_Small]] = {}
    chunks = [(path, text.chunks) for path, text in texts.items()]
    for path, detected in zip(
        texts, detect_formats(chunks, tried.formats, tried.wanted), strict=True
    ):
        if isinstance(detected, Exception):
            read[path] = detected
        else:
            alike.setdefault(detected, []).append(texts[path])
    for formats, same_format in alike.items():
        read |= _read_alike(formats, same_format, extra, tried)
    return read


class _Small(NamedTuple):
    """Text of a small file, read together with others."""

    source: Source
    chunks: list[Chunk]
    by_path: Sequence[Fact]

    @classmethod
    def of(cls, path: Path, by_path: Sequence[Fact], tried: FormatChoice) -> Self | None:
        """Return a file's text, None if large or compressed. Raises FairmfuError, OSError."""
        with Source(path, keeps_envelope=tried.keeps_envelope) as source:
            if not source.is_text() or path.stat().st_size > MAX_SMALL_BYTES:
                return None
            return cls(source, list(source.chunks()), by_path)

    def may_be_page(self) -> bool:
        """Return whether the text has fences of code blocks, as in Markdown."""
        return any(holds(chunk.data, fence) for chunk in self.chunks for fence in (b"```", b"~~~"))

    def lines(self) -> Iterator[NumberedLine]:
        """Yield all lines."""
        return (line for chunk in self.chunks for line in chunk.lines())


def _read_alike(
    detected: DetectedFormats, texts: Sequence[_Small], extra: Sequence[Fact], tried: FormatChoice
) -> dict[Path, LogRows | Exception]:
    """Read texts of the same formats together."""
    spool = Spool(max_held_bytes=math.inf)  # several logs share a frame
    began = perf_counter()
    parsers = (BlockParser(*detected, spool) for _ in texts)
    parsers_with_chunks = [
        (parser, text.chunks) for parser, text in zip(parsers, texts, strict=True)
    ]
    read: dict[Path, LogRows | Exception] = {}
    parsed: list[_Text] = []
    parsed_texts = parse_small_texts(parsers_with_chunks)
    seconds_per_byte = (perf_counter() - began) / sum(max(t.source.bytes, 1) for t in texts)
    for text, parsed_text in zip(texts, parsed_texts, strict=True):
        path = text.source.path
        parsed_text.cost.seconds = seconds_per_byte * text.source.bytes
        try:
            facts = [*text.by_path, *facts_from_files(path), *extra]
            may_be_page = text.may_be_page()
            by_writer = writers.apart(
                parsed_text,
                text.source.tags,
                text.lines,
                detected,
                spool,
                may_be_page=may_be_page,
                may_break=True,
            )
            parsed.append(_Text.of(text.source, by_writer, facts, tried))
        except (FairmfuError, OSError) as error:
            read[path] = error
    paths = [text.source.path for text in parsed]
    return read | dict(zip(paths, _logs(*detected, parsed), strict=True))


def facts_from_files(path: Path) -> list[Fact]:
    """Return facts from the files next to a log. Raises FairmfuError."""
    return (
        [] if path == STDIN_PATH else given.facts_from_sidecars(path) + facts_from_companions(path)
    )


class _Text(NamedTuple):
    """Parsed text.

    facts: given, or from files next to the log. tried: the choice of formats.
    """

    source: Source
    parsed: ParsedSource
    facts: Sequence[Fact]
    tried: FormatChoice

    @classmethod
    def of(
        cls, source: Source, parsed: ParsedSource, facts: Sequence[Fact], tried: FormatChoice
    ) -> Self:
        """Check a parsed text.

        Raises UnreadableSourceError if its lines are newest first, or not all counted.
        """
        if source.newest_first:
            raise NEWEST_FIRST(path=source.path)
        if parsed.lines != source.height:
            raise LINES_LOST(path=source.path, counted=parsed.lines, lines=source.height)
        return cls(source, parsed, facts, tried)

    @property
    def launches(self) -> list[Launch]:
        """Launches that become runs: all that trained, stated something or failed."""
        every = self.parsed.launches
        return [x for x in every if x.rows or len(every) == 1 or x.stated or _has_failed(x)]


def _has_failed(launch: Launch) -> bool:
    return next(launch.events.of_kinds(outcomes.FAILURE_EVENT_KINDS), None) is not None


def _logs(
    primary: LogFormat, companions: Sequence[LogFormat], texts: Sequence[_Text]
) -> Iterator[LogRows]:
    """Yield the rows of texts of the same formats."""
    launches = [text.launches for text in texts]
    for text, own_launches in zip(texts, launches, strict=True):
        for launch in own_launches:
            _date(launch)
            _name_rank(text.source.path, primary, launch)
            _name_group(launch)
    every = [launch for own_launches in launches for launch in own_launches]
    inferred = iter(given.infer_facts(primary, every, companions))
    for text, own_launches in zip(texts, launches, strict=True):
        yield _log(text, primary, companions, [(launch, next(inferred)) for launch in own_launches])


def _log(
    text: _Text,
    primary: LogFormat,
    companions: Sequence[LogFormat],
    launches: Sequence[tuple[Launch, Sequence[Fact]]],
) -> LogRows:
    """Return the rows of one text; launches: with their inferred facts."""
    source, parsed, facts, _ = text
    sha256 = source.sha256
    rows: dict[str, list[dict[str, Any]]] = {"runs": [], "facts": []}
    steps: list[tuple[str, StepRows]] = []
    events: list[tuple[str, EventRows]] = []
    ids: dict[str, int] = {}
    for number, (launch, inferred) in enumerate(launches, start=1):
        ids[launch.run_id] = ids.get(launch.run_id, 0) + 1
        count = ids[launch.run_id]
        run_id = launch.run_id if count == 1 else f"{launch.run_id}-{count}"
        label = _label(launch, number, [other.writer for other, _ in launches])
        logged = [f for f in (*launch.stated, *facts) if f["origin"].startswith(LOGGED_NAMES)]
        name = named_run(source.path, name_fact(logged)) + label
        run = _run(source, primary, launch, number, name)
        run |= {"run_id": run_id, "synthetic": parsed.synthetic}
        run["framework"] = _framework(primary, companions, launch.last_value("engine"))
        rows["runs"].append(run | _ending(launch, facts))
        steps.append((run_id, launch.rows))
        events.append((run_id, launch.events))
        known = [*launch.stated, *without_other_runs(facts, launch.stated)]
        all_facts = [*known, *CACHED_MODEL(known), *inferred]
        rows["facts"] += [
            {"run_id": run_id, "sequence": sequence, **fact}
            for sequence, fact in enumerate(all_facts)
        ]
    rows["unread"] = [{"sha256": sha256, **item} for item in parsed.unread]
    rows["sources"] = [_source(text, primary, companions)]
    return LogRows(rows, steps, events)


def _source(text: _Text, primary: LogFormat, companions: Sequence[LogFormat]) -> dict[str, Any]:
    source, parsed, _, tried = text
    return {
        "sha256": source.sha256,
        "path": file_identity(source.path),
        "bytes": source.bytes,
        "log_format": primary.name,
        "companions": [f.name for f in companions],
        "lines": parsed.lines,
        "step_lines": parsed.step_lines,
        "known_lines": parsed.known_lines,
        "companion_lines": parsed.companion_lines,
        "other_lines": parsed.other_lines,
        "unread_lines": parsed.unread_lines,
        "other_kinds": parsed.other_kinds,
        "reading": len(READING_CHANGES),
        "forced": sorted(tried.wanted) or None,
        **cost_columns(parsed.cost, source.bytes),
    }


def cost_columns(cost: ReadingCost, size: int) -> dict[str, float]:
    """Return READING_COSTS of a source; size: bytes."""
    megabytes = size / BYTES_PER_MB
    return {
        "read_s": cost.seconds,
        "read_mb_per_s": megabytes / max(cost.seconds, MIN_READ_SECONDS),
        "block_lines": cost.block_lines,
        "regex_lines": cost.regex_lines,
        "cached_lines": cost.cached_lines,
    }


def _run(
    source: Source, primary: LogFormat, launch: Launch, number: int, name: str
) -> dict[str, Any]:
    started = launch.started_at or _first_stamp(launch.events)
    with_data = any(form.times_data for form in launch.rows.forms())
    return {
        "sha256": source.sha256,
        "name": name,
        "launch": number,
        "log_format": primary.name,
        "first_line": launch.first_line,
        "last_line": launch.last_line,
        "started_at": None if started is None or started.year == PLACEHOLDER_YEAR else started,
        "utc": primary.utc,
        "step_unit": launch.step_unit or primary.step_unit,
        "elapsed_covers": primary.elapsed_covers,
        "elapsed_excludes_data": primary.elapsed_excludes_data and not with_data,
        "rate_covers": primary.rate_covers,
        "rate_excludes_data": primary.rate_excludes_data,
        "evidence": [*primary.evidence, *_further_evidence(launch.rows.forms())],
        "quirks": list(primary.quirks),
        "engine_below": primary.engine_below,
        "times_elsewhere": primary.times_elsewhere,
        "phase_timers": primary.stored_value("phase_timers"),
    }


def _further_evidence(forms: Sequence[StepLine]) -> list[str]:
    """Return the kinds of time evidence that all forms of a launch's lines add."""
    first = forms[0].evidence if forms else ()
    return [kind for kind in first if all(kind in form.evidence for form in forms)]


def _label(launch: Launch, number: int, writers_of_file: Sequence[str | None]) -> str:
    """Return a launch's suffix in a file of several: writer's name, else number."""
    if len(writers_of_file) == 1:
        return ""
    if launch.writer is None:
        return f"#{number}"
    several = writers_of_file.count(launch.writer) > 1
    return f"#{launch.writer}" + (f"#{number}" if several else "")


def _framework(primary: LogFormat, companions: Sequence[LogFormat], engine: str | None) -> str:
    """Return the framework that trained: a printed engine below a trainer's lines.

    The Hugging Face Trainer trains on an engine; Megatron prints its lines with an engine or
    without.
    """
    engines = [f.framework for f in companions if f.precedence <= ENGINE_PRECEDENCE]
    if primary.framework_unsaid:
        return engine or next(iter(engines), primary.framework_unsaid)
    return engines[0] if engines and primary.engine_below else primary.framework


def _ending(launch: Launch, facts: Sequence[Fact]) -> dict[str, Any]:
    """Return the columns of `runs` about the end of a launch."""
    planned, ends = _planned(launch, facts), launch.ends.values()
    ending = outcomes.launch_outcome(launch.rows, launch.events, planned, ends)
    return dict(zip(("outcome", "outcome_line", "outcome_text"), ending, strict=True))


def _first_stamp(events: Iterable[Mapping[str, Any]]) -> datetime | None:
    """Return the first timestamp among the events of a launch without a start time."""
    stamps = (event["logged_at"] for event in events if event["logged_at"] is not None)
    return next(stamps, None)


def _planned(launch: Launch, facts: Sequence[Fact]) -> int | None:
    """Return the planned number of steps, in the unit of the step lines.

    The log's value wins over files next to the log.
    """
    all_facts = [*facts, *launch.stated]
    values = [fact["value"] for fact in all_facts if fact["name"] == "total_steps"]
    return int(values[-1]) if values and re.fullmatch(r"\d{1,18}", values[-1]) else None


def _name_rank(path: Path, primary: LogFormat, launch: Launch) -> None:
    """Set the rank of all rows from the file's path, if no row has a rank."""
    patterns = filter(None, (primary.rank_in_path, TORCHRUN_LOG_PATH))
    match = next(filter(None, (re.search(pattern, str(path)) for pattern in patterns)), None)
    if match and not any(frame["rank"].count() for frame in launch.rows.frames("rank")):
        launch.rows.transform(lambda frame: frame.with_columns(rank=pl.lit(match[1])))


def _name_group(launch: Launch) -> None:
    """Prefix ranks with the number of their replica group; every group has a rank 0."""
    groups = {fact["value"] for fact in launch.facts if fact["name"] == "replica_group"}
    if len(groups) == 1:
        rank = cs.by_name("rank", require_all=False)
        prefixed = pl.concat_str(pl.lit(groups.pop()), rank, separator=":", ignore_nulls=True)
        launch.rows.transform(lambda frame: frame.with_columns(rank=prefixed))


def _date(launch: Launch) -> None:
    """Add the year from a line such as `Exp name: cfg_20240504_…` to timestamps."""
    years_stated = [int(fact["value"]) for fact in launch.facts if fact["name"] == "started_year"]
    before = launch.started_at
    if before is None or before.year != PLACEHOLDER_YEAR:
        return
    years = _Years(before, years_stated[-1] if years_stated else PLACEHOLDER_YEAR)
    launch.started_at = years.dated(before)
    dated, of_events = launch.rows.empty_copy(), list[datetime | None]()
    events = deque(x for f in launch.events.frames(*STAMP_COLUMNS) for x in f.iter_rows())
    for frame in launch.rows.frames(*STEP_SCHEMA):
        stamps = []
        for line, stamp in frame.select(STAMP_COLUMNS).iter_rows():
            while events and events[0][0] < line:
                of_events.append(years.dated(events.popleft()[1]))
            stamps.append(years.dated(stamp))
        dated.extend(frame.with_columns(pl.Series("logged_at", stamps, STEP_SCHEMA["logged_at"])))
    of_events += [years.dated(stamp) for _, stamp in events]
    dated.settle()
    launch.rows, launch.events = dated, launch.events.dated(of_events)


@dataclass(slots=True)
class _Years:
    """Year assignment for timestamps in line order; last: the previous timestamp."""

    last: datetime
    year: int

    def dated(self, stamp: datetime | None) -> datetime | None:
        if stamp is None or stamp.year != PLACEHOLDER_YEAR:
            return stamp
        self.year += self.last - stamp > MAX_YEARLESS_GAP  # a New Year lies between them
        self.last = stamp
        return _in_year(stamp, self.year)


def _in_year(stamp: datetime, year: int) -> datetime | None:
    """Return the timestamp in this year; None for 29 February in a common year."""
    with suppress(ValueError):
        return stamp.replace(year=year)
    return None
