"""Ingest of paths into a store: find files, read new ones, store batches."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import version
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from ..core.errors import (
    ClusterError,
    FairmfuError,
    NoteKind,
    UnknownFormatError,
    UnreadableSourceError,
    describe_fault,
    explain_read_error,
    one_line,
)
from ..core.faults import FAULTS
from ..core.messages import READING_FAULT, UNREADABLE_FILE
from ..core.paths import as_remote, parse_path, request_cache
from ..core.progress import is_progress_shown, note_progress
from ..core.spill import LogTables, Spool, collect_rows, iterate_frames
from ..decode.line_reader import STDIN_PATH, hash_content
from ..detect.detection import BUILT_IN_CHOICE, FormatChoice
from ..extract.discovery import (
    MAX_TOLD_NAMES,
    NO_FACT_FILES,
    FactFiles,
    FileWalk,
    LogFile,
    file_columns,
    file_identity,
    folder_signature,
    is_missing_file,
    short_signature,
    stat_file,
)
from ..extract.engine_api import ReadEngine, ReadOptions, ReadRequest, ReadSession
from ..extract.log_tables import facts_from_files, read_log
from ..extract.run_names import LOGGED_NAMES, given_run_name, name_fact
from ..extract.table_batches import LogBatch, LogRows
from ..facts import facts as given
from ..facts.companion_files import companion_problem
from ..formats.launch_view import Fact
from ..formats.spec import LogFormat
from ..store.catalogue import OutdatedSource
from ..store.store import FileMark, FileRemark, KnownFile, KnownFolders, Store
from ..workers.local_engine import LocalEngine
from . import rotation
from .messages import (
    COPY_INSTEAD,
    EMPTIED_LOG,
    FEWER_STEPS,
    FORCED_FORMAT_UNKNOWN,
    GROWING,
    KNOWN,
    KNOWN_COPY,
    MOVED_LOG,
    NAME_NOT_UTF8,
    OTHER_RUN,
    OVERWRITTEN_LOG,
    ROTATED_LOG,
    SKIPPED_BY_NAME,
    STORED_WITH_OTHER_FORMAT,
    UNREAD_LINES_REFUSED,
    UNREADABLE_COMPANION,
    UNWRITTEN_FILE,
)

MTIME_SETTLE_NS: Final = 2_000_000_000
"""Age below which a modification time is not trusted [ns]: the file may change again without a
visible change of a time that some file systems keep this coarsely.
"""

MAX_BATCH_LOGS: Final = 1_000
MAX_BATCH_STEPS: Final = 8 * 1024 * 1024
"""Limits of one batch, while more files follow. Log metadata waits in memory, steps on the disk;
after a kill, earlier batches remain stored.
"""


SINGLE_PROCESS: Final = LocalEngine()
"""Engine of the current process alone."""

FactsOf = Callable[[str], Sequence[Fact]]
"""Facts by the absolute path of a log."""


def _none(_path: str) -> Sequence[Fact]:
    return ()


class Outcome(NamedTuple):
    """Result for one path.

    given: the path as given.
    status: read; known (content is stored); unchanged (known without opening the file); failed (see
    message); passed (found in a folder, no line of a supported framework; no message if seen
    before); unlisted (reported once, message about all files skipped for their names).
    message: for a read file, news about an earlier run, or that more lines will follow.
    urgent: a read or known file that needs attention.
    cost: for a read file, one sentence about the reading.
    kind: identifier of the message.
    names: of the runs of a read file.
    """

    given: str
    status: str
    message: str
    log_format: str = ""
    steps: int = 0
    step_lines: int = 0
    unread_lines: int = 0
    other_lines: int = 0
    urgent: bool = False
    cost: str = ""
    kind: str = ""
    names: tuple[str, ...] = ()

    @classmethod
    def of_error(cls, given: str, status: str, error: FairmfuError) -> Outcome:
        """Return the outcome of a file that was not read."""
        return cls(given, status, str(error), kind=error.kind)

    @classmethod
    def of_note(cls, given: str, status: str, note: NoteKind, **fields: object) -> Outcome:
        """Return the outcome of a file with a note about it."""
        return cls(given, status, note.words(**fields), kind=note.identifier)

    @property
    def path(self) -> Path:
        """`given` as a Path, made on demand: most files are unchanged."""
        return parse_path(self.given)

    @property
    def skipped_message(self) -> str:
        """Message for a file skipped for the first time."""
        path = one_line(self.path)
        why = self.message.removeprefix(f"{path}: ").partition("\n")[0]
        return f"{path}: skipped: {why}"


class _Stood(NamedTuple):
    """Source as stored before this ingest."""

    path: str
    bytes: int
    log_format: str
    forced: Sequence[str] | None


def _stood(store: Store) -> dict[str, _Stood]:
    """Return the store's sources, by sha256."""
    sources = store.table("sources").select("sha256", *_Stood._fields)
    return {sha256: _Stood(*rest) for sha256, *rest in sources.iter_rows()}


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """Options for all files of one ingest.

    flag_facts: facts that override all others. path_facts: facts by the path of a log.
    strict: fail a source with unread lines. format_choice: formats that a log may have.
    """

    flag_facts: Sequence[Fact] = ()
    path_facts: FactsOf = _none
    strict: bool = False
    format_choice: FormatChoice = BUILT_IN_CHOICE

    @property
    def for_engine(self) -> ReadOptions:
        """Options for the engine's readers."""
        return tuple(self.flag_facts), self.format_choice

    @property
    def change_no_known_file(self) -> bool:
        """True if unchanged files need no check file by file."""
        given = self.flag_facts or self.path_facts is not _none
        return not given and not self.format_choice.wanted


@dataclass(slots=True, kw_only=True)
class _Job:
    """State of one ingest: knowledge about the store, and results for the store."""

    options: IngestOptions
    known: dict[str, str]
    sizes: set[int]
    files: Mapping[str, FileMark]
    spool: Spool
    ahead: ReadSession
    report: Callable[[Outcome], None]
    began_ns: int = field(default_factory=time.time_ns)
    stood: Callable[[], Mapping[str, _Stood]] = dict  # stored sources by sha256
    taken: set[str] = field(default_factory=set)  # identities of files read
    seen: list[KnownFile] = field(default_factory=list)
    grown: list[str] = field(default_factory=list)  # earlier contents of grown files
    left_alone: list[FileMark] = field(default_factory=list)
    marks: dict[str, FileMark] = field(default_factory=dict)
    again: dict[str, OutdatedSource] = field(default_factory=dict)  # outdated sources by sha256
    formats: str = ""
    stored_sizes: frozenset[int] = field(init=False)
    stored_paths: frozenset[str] = field(init=False)
    _hashed: dict[str, str] = field(default_factory=dict)  # hashes by path, of files offered
    _told_of: set[str] = field(default_factory=set)  # folders with checked companions
    _batch: LogBatch = field(init=False)
    _logs: int = 0
    _steps: int = 0

    def __post_init__(self) -> None:
        self.stored_sizes = frozenset(self.sizes)
        self.stored_paths = frozenset(self.known.values())
        self._batch = LogBatch(self.spool)

    @property
    def is_much(self) -> bool:
        """True if the batch must be stored before more is read."""
        return self._logs >= MAX_BATCH_LOGS or self._steps >= MAX_BATCH_STEPS

    def batch(self) -> list[LogTables]:
        """Return the logs read since the last call, for the store."""
        batch, self._batch, self._logs, self._steps = self._batch, LogBatch(self.spool), 0, 0
        return batch.tables()

    def take(self, log_file: LogFile) -> Outcome:
        """Read one file, unless known; a failed file leaves no trace."""
        try:
            return self._take(log_file)
        except UnknownFormatError as error:
            is_stored = any(source.path == log_file.identity for source in self.again.values())
            if log_file.named or error.recognised or is_stored:
                return Outcome.of_error(log_file.path, "failed", error)
            if log_file.identity in self.stored_paths:
                overwritten = OVERWRITTEN_LOG(path=log_file.path)
                return Outcome.of_error(log_file.path, "failed", overwritten)
            self.remember_none(log_file)
            return Outcome.of_error(log_file.path, "passed", error)
        except ClusterError:
            raise
        except FAULTS as error:
            return Outcome.of_error(log_file.path, "failed", _failure(log_file.path, error))

    def _take(self, log_file: LogFile) -> Outcome:
        if log_file.error:
            raise log_file.error
        mark = self._same_as(log_file)
        if mark is not None and self._before(mark.sha256, log_file) is None:
            if not mark.sha256:
                return Outcome(log_file.path, "passed", "")
            if not self.options.flag_facts and self._given_as_before(log_file, mark.beside):
                self.left_alone.append(mark)
                return Outcome.of_note(log_file.path, "unchanged", KNOWN)
        if self._is_unwritten(log_file):
            self.remember_none(log_file)
            return Outcome.of_note(log_file.path, "passed", UNWRITTEN_FILE, path=log_file.path)
        path = parse_path(log_file.path)
        if path != STDIN_PATH and not log_file.size and log_file.identity in self.stored_paths:
            raise EMPTIED_LOG(path=path)
        sha256 = mark.sha256 if mark else self._content(log_file, path)
        before = self._before(sha256, log_file)
        if sha256 not in self.known or before is not None:
            return self._read(log_file, path, before)
        return self._see(log_file, path, sha256)

    def _is_unwritten(self, log_file: LogFile) -> bool:
        """Return whether a file of a folder is empty; torchrun and Slurm leave many.

        False for a former log, whose content was lost.
        """
        return not (log_file.size or log_file.named or log_file.identity in self.stored_paths)

    def _content(self, log_file: LogFile, path: Path) -> str:
        """Return the content hash of a file; empty if new: no source of this size."""
        if path == STDIN_PATH or log_file.size not in self.sizes:
            return ""
        return self._hashed.pop(log_file.path, "") or hash_content(path)

    def _before(self, sha256: str, log_file: LogFile) -> OutdatedSource | None:
        """Return the source of this content if today's readers would read it differently.

        A copy does not replace a file that still exists.
        """
        before = self.again.get(sha256)
        if before is None or not (before.path == log_file.identity or is_missing_file(before.path)):
            return None
        return before

    def _given_as_before(self, log_file: LogFile, beside: str) -> bool:
        """Return whether all fact sources outside the file are as in `beside`."""
        named = beside.split("\n")[1:]
        return log_file.beside(self.options.path_facts(log_file.identity), named).text == beside

    def _same_as(self, log_file: LogFile) -> FileMark | None:
        """Return the remembered state of an unchanged file, without opening the file."""
        mark = self.files.get(log_file.identity)
        if mark is None or self.options.format_choice.wanted:
            return None
        if mark[:4] != log_file[1:5]:  # path, size, mtime and inode
            return None
        if mark.sha256:
            return mark if mark.sha256 in self.known else None
        return mark if not log_file.named and mark.beside == self._formats() else None

    def _see(self, log_file: LogFile, path: Path, sha256: str) -> Outcome:
        before = self.stood().get(sha256) if self.options.format_choice.wanted else None
        if before is not None and before.log_format not in self.options.format_choice.wanted:
            stored_as = STORED_WITH_OTHER_FORMAT(path=path, name=before.log_format)
            return Outcome.of_error(log_file.path, "failed", stored_as)
        stored = self.known[sha256]
        beside = self._beside(log_file, path)
        here, given = stored == log_file.identity, []
        if here or is_missing_file(stored):
            self._tell_of_companions(log_file)
            given = [*self.options.path_facts(log_file.identity), *facts_from_files(path)]
        self.seen.append(
            KnownFile(
                log_file.identity, sha256, [*(given if here else []), *self.options.flag_facts]
            )
        )
        self._remember(log_file, sha256, beside)
        if given and not here:
            moved = Outcome.of_note(log_file.path, "known", MOVED_LOG, stored=stored)
            return moved._replace(urgent=True)
        return _known_as(log_file.path, log_file.identity, stored)

    def _read(self, log_file: LogFile, path: Path, before: OutdatedSource | None) -> Outcome:
        """Read a file; before: the stored source of the same content, if any."""
        beside = self._beside(log_file, path)
        facts = () if path == STDIN_PATH else self.options.path_facts(log_file.identity)
        planned = partial(self.ahead.planned, log_file)
        tried = self._tried_of(log_file, path, before)
        read = self.ahead.take(log_file, facts) or read_log(
            path,
            self.spool,
            path_facts=facts,
            flag_facts=self.options.flag_facts,
            format_choice=tried,
            plan_chunks=planned,
        )
        source = (
            read.source
            if isinstance(read, LogRows)
            else collect_rows(read["sources"]).to_dicts()[0]
        )
        done = _outcome(path, source, read, strict=self.options.strict)
        done = done._replace(names=_run_names(read))
        if done.status != "read":
            return done
        self._tell_of_companions(log_file)
        self.grown += self._grew_into(log_file, path, done.log_format)
        self._batch.add(read)
        self._logs, self._steps = self._logs + 1, self._steps + done.step_lines
        self.taken.add(source["path"])
        sha256 = source["sha256"]
        self.known[sha256] = log_file.identity
        self.again.pop(sha256, None)
        self.sizes.add(source["bytes"])
        with suppress(FileNotFoundError):  # moved meanwhile: all rows were read
            is_local = path != STDIN_PATH and as_remote(path) is None
            if is_local and stat_file(path)[:5] != log_file[:5]:
                return done._replace(message=GROWING.words(path=path), kind=GROWING.identifier)
        self._remember(log_file, sha256, beside)
        return done

    def _tried_of(
        self, log_file: LogFile, path: Path, before: OutdatedSource | None
    ) -> FormatChoice:
        """Return the formats to try: as forced before, unless formats are chosen now.

        before: as in `_read`. A grown file keeps the formats forced for the shorter file.
        """
        if self.options.format_choice.wanted:
            return self.options.format_choice
        forced = before.forced if before else self._forced_as(log_file, path)
        if unknown := sorted(forced - self.options.format_choice.names):
            raise FORCED_FORMAT_UNKNOWN(path=path, name=unknown[0])
        return self.options.format_choice.only(forced) if forced else self.options.format_choice

    def _forced_as(self, log_file: LogFile, path: Path) -> frozenset[str]:
        """Return the formats forced for the earlier content of a grown file."""
        began = self._began_with(log_file, path, lambda source: bool(source.forced))
        return frozenset(name for source in began.values() for name in source.forced or ())

    def _is_ahead(self, sha256: str, log_file: LogFile) -> bool:
        """Return whether stored content may be read again ahead of turn.

        Content with forced formats waits, unless formats are chosen now.
        """
        before = self._before(sha256, log_file)
        return before is not None and (bool(self.options.format_choice.wanted) or not before.forced)

    def _may_be_forced(self, log_file: LogFile) -> bool:
        """Return whether a file must wait: its stored content had a forced format."""
        if self.options.format_choice.wanted or log_file.identity not in self.stored_paths:
            return False
        return any(
            source.forced and source.path == log_file.identity for source in self.stood().values()
        )

    def _began_with(
        self, log_file: LogFile, path: Path, asked: Callable[[_Stood], bool]
    ) -> dict[str, _Stood]:
        """Return the earlier contents of a grown file, by sha256, if `asked` accepts them."""
        if log_file.identity not in self.stored_paths or path == STDIN_PATH:
            return {}
        return {
            sha256: source
            for sha256, source in self.stood().items()
            if source.path == log_file.identity and source.bytes < log_file.size and asked(source)
            if hash_content(path, source.bytes) == sha256
        }

    def _grew_into(self, log_file: LogFile, path: Path, log_format: str) -> Iterable[str]:
        """Return the earlier contents of a grown file, if read as another format.

        The beginning of a log may show too little, and runs of a beginning have other ids.
        """
        if as_remote(path) is not None:
            return ()
        return self._began_with(log_file, path, lambda source: source.log_format != log_format)

    def offer(self, log_file: LogFile) -> ReadRequest | None:
        """Return a request to read a new or outdated file ahead, None for any other file."""
        if log_file.error or log_file.path == str(STDIN_PATH) or self._is_unwritten(log_file):
            return None
        mark = self._same_as(log_file)
        if mark is None and self._may_be_forced(log_file):
            return None
        if mark is not None and not self._is_ahead(mark.sha256, log_file):
            return None
        path = parse_path(log_file.path)
        if log_file.size in self.stored_sizes and as_remote(path) is None:
            try:
                self._hashed[log_file.path] = hash_content(path)
            except (FairmfuError, OSError):  # reported in its turn
                return None
            sha256 = self._hashed[log_file.path]
            if sha256 in self.known and not self._is_ahead(sha256, log_file):
                return None
        return path, self.options.path_facts(log_file.identity)

    def _tell_of_companions(self, log_file: LogFile) -> None:
        """Report, once, broken fact files next to logs: their facts are ignored."""
        if log_file.around is None or log_file.around.folder in self._told_of:
            return
        self._told_of.add(log_file.around.folder)
        for name, _, size, _ in log_file.around.shared.marks:
            path = parse_path(log_file.around.folder) / name
            if size >= 0 and as_remote(path) is None and (why := companion_problem(path)):
                fields = {"path": path, "why": why}
                self.report(Outcome.of_note(str(path), "passed", UNREADABLE_COMPANION, **fields))

    def _formats(self) -> str:
        self.formats = self.formats or _formats(self.options.format_choice)
        return self.formats

    def _beside(self, log_file: LogFile, path: Path) -> FactFiles:
        """Return all fact sources outside the file."""
        if path == STDIN_PATH:
            return NO_FACT_FILES
        named = [file_identity(file) for file in given.files_named_in_sidecars(path)]
        return log_file.beside(self.options.path_facts(log_file.identity), named)

    def remember_none(self, log_file: LogFile) -> None:
        """Remember a file without a log, to report the file only once."""
        self._remember(log_file, "", FactFiles((), self._formats()))

    def _remember(self, log_file: LogFile, sha256: str, beside: FactFiles) -> None:
        """Remember the state of a file, if its modification times can be trusted."""
        newest_ns = max(log_file.mtime_ns, beside.newest_ns)
        settled = log_file.around is not None and newest_ns < self.began_ns - MTIME_SETTLE_NS
        mark = FileMark(
            path=log_file.identity,
            size=log_file.size,
            mtime_ns=log_file.mtime_ns,
            inode=log_file.inode,
            beside=beside.text,
            sha256=sha256,
        )
        if settled and self.files.get(mark.path) != mark:
            self.marks[mark.path] = mark

    def whole(
        self,
        looked_at: Iterable[LogFile],
        unchanged: Mapping[str, str],
        remarks: Iterable[FileRemark],
    ) -> dict[str, str]:
        """Return signatures of folders whose files are all known by their own content.

        Only folders whose files share all fact files, as the folder shows at once.
        unchanged: signatures of folders skipped as a whole.
        remarks: about files with other content than assumed; their folders are omitted.
        """
        within: dict[str, list[LogFile]] = {}
        apart = {remark.path.rpartition(os.sep)[0] for remark in remarks}
        for log_file in looked_at:
            folder = (
                log_file.around.folder if log_file.around else str(Path(log_file.identity).parent)
            )
            within.setdefault(folder, []).append(log_file)
            mark = self.marks.get(log_file.identity) or self.files.get(log_file.identity)
            if (
                log_file.named
                or mark is None
                or mark[:4] != log_file[1:5]
                or self.known.get(mark.sha256) != mark.path
                or log_file.around is None
                or not log_file.around.is_leaf
                or log_file.around.shared.text != mark.beside
            ):
                apart.add(folder)
        untouched = {
            folder: signature for folder, signature in unchanged.items() if folder not in within
        }
        return untouched | {
            folder: folder_signature(file_columns(log_files), log_files[0].around.shared.text)
            for folder, log_files in within.items()
            if folder not in apart and log_files[0].around is not None
        }

    def claims(self) -> list[KnownFile]:
        """Return unchanged copies of content whose source may be replaced by this ingest."""
        touched = self.taken.union(known_file.path for known_file in self.seen)
        copies = (m for m in self.left_alone if self.known[m.sha256] != m.path)
        return [KnownFile(m.path, m.sha256, []) for m in copies if self.known[m.sha256] in touched]


@request_cache()
def ingest_paths(  # noqa: PLR0913 - each is an option of the command
    paths: Iterable[Path],
    store: Store,
    *,
    flag_facts: Sequence[Fact] = (),
    path_facts: FactsOf = _none,
    excluded_folders: Sequence[Path] = (),
    strict: bool = False,
    format_choice: FormatChoice = BUILT_IN_CHOICE,
    report: Callable[[Outcome], None] = lambda _: None,
    engine: ReadEngine = SINGLE_PROCESS,
) -> list[Outcome]:
    """Read the files of `paths` into `store`; a failing file leaves the others alone.

    A source with known content is not read again; only the facts are updated. Content read by an
    earlier version is read again if `format_choice` includes its format. Unchanged files, with all
    files next to them unchanged, are not opened.

    path_facts: facts as from files next to a log; real files next to the log override them.
    excluded_folders: folders not to enter.
    strict: fail sources with unread lines.
    format_choice: if formats are wanted, files of another format fail, also if stored as another.
    report: receives every outcome when ready, and again after a remark of the store.
    engine: reads the files.
    """
    options = IngestOptions(
        flag_facts=flag_facts, path_facts=path_facts, strict=strict, format_choice=format_choice
    )
    again = _to_read_again(store, format_choice)
    folders = store.folders() if options.change_no_known_file else None
    remembered = (
        _but_for((source.path for source in again.values()), folders.listed) if folders else {}
    )
    walk = FileWalk(format_choice.formats, excluded_folders, remembered)
    note_progress("Looking for logs")
    files = _found(paths, walk)
    outcomes: list[Outcome] = []
    if (first := next(files, None)) is not None:
        job = _job(store, options, engine, again, report)
        outcomes = _taken(job, chain([first], files), store, folders, walk.whole)
    alike = Outcome.of_note("", "unchanged", KNOWN)[1:]
    unchanged = list(map(Outcome, walk.unchanged, *map(repeat, alike)))
    for outcome in unchanged:
        report(outcome)
    if walk.unlisted and any(outcome.status == "read" for outcome in outcomes):
        report(_unlisted(walk.unlisted))
    return outcomes + unchanged


def _job(
    store: Store,
    options: IngestOptions,
    engine: ReadEngine,
    again: dict[str, OutdatedSource],
    report: Callable[[Outcome], None],
) -> _Job:
    """Return an ingest with the store's current state; again: of `_to_read_again`."""
    spool, known = store.spool(), store.known_contents()
    return _Job(
        options=options,
        known=known.paths,
        sizes=known.sizes,
        files=known.files,
        spool=spool,
        ahead=engine.reading(options.for_engine, store.shelf, spool),
        report=report,
        again=again,
    )


def _to_read_again(store: Store, tried: FormatChoice) -> dict[str, OutdatedSource]:
    """Return sources to read again for today's readers, by content hash.

    Omits sources read with a format outside `tried`: another format would give other rows.
    """
    before = store.outdated_sources()
    return {sha256: source for sha256, source in before.items() if not _untried(source, tried)}


def _untried(source: OutdatedSource, tried: FormatChoice) -> str | None:
    """Return a format of a source, detected or forced, outside `tried`."""
    forced = () if tried.wanted else sorted(source.forced)
    return next((n for n in (source.log_format, *forced) if n not in tried.names), None)


def find_outdated_logs(
    store: Store, format_choice: FormatChoice = BUILT_IN_CHOICE
) -> tuple[list[Path], list[str]]:
    """Return logs to read again after a change of readers; for others, reasons.

    Raises StoreError if the store cannot be read.
    """
    readable, reasons = list[Path](), list[str]()
    for source in store.outdated_sources().values():
        path = source.path
        if path == str(STDIN_PATH):
            reasons.append("one log came through a pipe: pipe it again")
        elif (name := _untried(source, format_choice)) is not None:
            reasons.append(f"{path}: unknown format {name}: give it with --log-format")
        elif is_missing_file(path):
            reasons.append(f"{path}: the file is gone")
        else:
            readable.append(parse_path(path))
    return readable, reasons


def _but_for(paths: Iterable[str], folders: Mapping[str, str]) -> Mapping[str, str]:
    """Return the folders without any of these files."""
    within = {path.rpartition(os.sep)[0] for path in paths}
    if not within:
        return folders
    return {folder: signature for folder, signature in folders.items() if folder not in within}


def _taken(
    job: _Job,
    files: Iterable[LogFile],
    store: Store,
    before: KnownFolders | None,
    whole: Mapping[str, str],
) -> list[Outcome]:
    """Return the outcomes of all files, after all rows are stored.

    Large batches are stored before more is read. Files of known content come last: after all
    replacements the store knows who has the content, as in a single batch. Former logs without
    content are reported even later, because any other file may have their content.

    before: folders remembered by the store; None to remember none.
    whole: unchanged folders, complete once all files were found.
    """
    ahead = job.ahead
    job.stood = cache(partial(_stood, store))
    outcomes: list[Outcome] = []
    looked_at: list[LogFile] = []
    lost: list[int] = []
    remarks: list[FileRemark] = []
    progress = _FileProgress(files)
    with ahead:
        for log_file in ahead.before(progress.files, job.offer):
            looked_at.append(log_file)
            outcomes.append(job.take(log_file))
            progress.add(log_file)
            if _has_lost(log_file, outcomes[-1]):
                lost.append(len(outcomes) - 1)
            else:
                job.report(outcomes[-1])
            ahead.forget(log_file)
            if job.is_much and ahead.can_store_now:
                remarks += store.add(job.batch(), earlier_contents=job.grown)
    now = (
        None if before is None else KnownFolders(job.whole(looked_at, whole, remarks), before.state)
    )
    seen, marks = [*job.seen, *job.claims()], list(job.marks.values())
    remarks += store.add(job.batch(), seen, marks, now, earlier_contents=job.grown)
    if lost:
        _tell_of_lost(job, outcomes, {index: looked_at[index] for index in lost}, store)
    return _settled(job, outcomes, looked_at, store, remarks)


class _FileProgress:
    """Progress of reading files, which are all found first if a terminal shows it."""

    def __init__(self, files: Iterable[LogFile]) -> None:
        listed = list(files) if is_progress_shown() else []
        self.files = listed or files
        self._total, self._bytes = len(listed), sum(log_file.size for log_file in listed)
        self._done = self._bytes_done = 0
        self._note()

    def add(self, log_file: LogFile) -> None:
        """Count a file that was read."""
        self._done, self._bytes_done = self._done + 1, self._bytes_done + log_file.size
        self._note()

    def _note(self) -> None:
        far = self._done, self._total, "files", self._bytes_done, self._bytes
        note_progress("Reading logs", *far)


def _has_lost(log_file: LogFile, outcome: Outcome) -> bool:
    """Return whether a folder's file was a log, and has no log lines now."""
    kinds = EMPTIED_LOG.identifier, OVERWRITTEN_LOG.identifier
    return outcome.status == "failed" and outcome.kind in kinds and not log_file.named


def _tell_of_lost(
    job: _Job, outcomes: list[Outcome], lost: Mapping[int, LogFile], store: Store
) -> None:
    """Report former logs without content; nothing is lost if other files have all.

    This is usual after log rotation, when the next log has only launcher lines so far.
    """
    job.marks.clear()
    copies = {mark.sha256: mark.path for mark in job.left_alone}
    copies |= {known_file.sha256: known_file.path for known_file in job.seen}
    elsewhere = rotation.find_moved_content(
        store, copies, {log_file.identity for log_file in lost.values()}
    )
    for index, log_file in lost.items():
        if moved_to := elsewhere.get(log_file.identity):
            path = outcomes[index].path
            fields = {"path": path, "moved_to": moved_to}
            outcomes[index] = Outcome.of_note(log_file.path, "passed", ROTATED_LOG, **fields)
            job.remember_none(log_file)
        job.report(outcomes[index])
    store.add((), (), list(job.marks.values()))


def _settled(
    job: _Job,
    outcomes: list[Outcome],
    looked_at: Sequence[LogFile],
    store: Store,
    store_remarks: Sequence[FileRemark],
) -> list[Outcome]:
    """Return the outcomes after the store's remarks on files.

    Known content that was replaced meanwhile is now read. The new rows may replace content of
    another file, so the check is repeated.
    """
    claimed = [*job.seen, *job.claims()]
    while remarks := {remark.path: remark for remark in store_remarks}:
        alone = SINGLE_PROCESS.reading(job.options.for_engine, store.shelf, job.spool)
        again = _Job(
            options=job.options,
            known={},
            sizes=set(),
            files={},
            spool=job.spool,
            ahead=alone,
            report=job.report,
        )
        for index, outcome in enumerate(outcomes):
            remark = remarks.get(file_identity(outcome.path))
            if remark is None or outcome.status not in ("read", "known", "unchanged"):
                continue
            if remark.kind == "gone":
                outcomes[index] = again.take(looked_at[index])
            elif outcome.status != "unchanged":
                outcomes[index] = _remarked(outcome, remark)
            job.report(outcomes[index])
        batch = again.batch()
        if not batch:
            break
        claimed = [known_file for known_file in claimed if known_file.path not in remarks]
        store_remarks = store.add(batch, claimed, list(again.marks.values()))
    return outcomes


def _remarked(outcome: Outcome, remark: FileRemark) -> Outcome:
    """Return the outcome with the store's remark on its file."""
    path = outcome.path
    known = _known_as(outcome.given, file_identity(path), remark.known_as)
    if remark.kind == "known":
        return known
    if remark.known_as:
        return _noted(outcome, COPY_INSTEAD, known=known.message, path=path)
    if remark.kind == "less":
        return _noted(outcome, FEWER_STEPS, path=path)._replace(urgent=True)
    return _noted(outcome, OTHER_RUN, path=path)


def _noted(outcome: Outcome, note: NoteKind, **fields: object) -> Outcome:
    return outcome._replace(message=note.words(**fields), kind=note.identifier)


def _known_as(given: str, identity: str, stored: str) -> Outcome:
    """Return the outcome of known content; stored: path of its source."""
    if stored == identity:
        return Outcome.of_note(given, "known", KNOWN)
    return Outcome.of_note(given, "known", KNOWN_COPY, stored=stored)


def _unlisted(paths: Sequence[str]) -> Outcome:
    """Return one outcome for all files skipped for their names."""
    names = ", ".join(Path(path).name for path in paths[:MAX_TOLD_NAMES])
    more = f" and {len(paths) - MAX_TOLD_NAMES:,} more" if len(paths) > MAX_TOLD_NAMES else ""
    count = "1 file" if len(paths) == 1 else f"{len(paths):,} files"
    fields = {"count": count, "names": names + more}
    return Outcome.of_note(paths[0], "unlisted", SKIPPED_BY_NAME, **fields)


def _found(paths: Iterable[Path], walk: FileWalk) -> Iterator[LogFile]:
    """Yield the files of all paths; a path that is missing or has no log is an error."""
    for path in paths:
        try:
            yield from map(_with_a_name, walk.of(path))
        except UnreadableSourceError as error:
            yield _with_a_name(LogFile(str(path), "", error=error))


def _with_a_name(log_file: LogFile) -> LogFile:
    """Return the file, or an error if its name is not valid UTF-8."""
    try:
        log_file.path.encode()
    except UnicodeEncodeError:
        path = os.fsencode(log_file.path).decode(errors="backslashreplace")
        error = NAME_NOT_UTF8(path=path)
        return LogFile(path, path, named=log_file.named, around=log_file.around, error=error)
    return log_file


def _formats(tried: FormatChoice) -> str:
    """Return a short text that changes with the formats to try, and with the version."""
    said = [
        (f.name, f.signature, f.looks_like_step, f.header, f.noise, f.file_names, _regexes(f))
        for f in tried.formats
    ]
    return "formats " + short_signature((version("fairmfu"), said))


def _regexes(log_format: LogFormat) -> list[str]:
    steps = [line.regex for line in log_format.steps]
    facts = [line.regex for line in log_format.facts]
    return steps + facts + [line.regex for line in log_format.events]


def _failure(path: str, error: BaseException) -> FairmfuError:
    """Return the error of a failed reading, with a kind."""
    if isinstance(error, OSError):
        return UNREADABLE_FILE(path=path, why=explain_read_error(error))
    if isinstance(error, FairmfuError):
        return error
    return READING_FAULT(path=path, fault=describe_fault(error))


def _outcome(
    path: Path, row: Mapping[str, Any], read: LogRows | LogTables, *, strict: bool
) -> Outcome:
    counts = {key: row[key] for key in ("log_format", "step_lines", "unread_lines", "other_lines")}
    counts["cost"] = _cost(row)
    counts["steps"] = read.heights["steps"] if isinstance(read, LogRows) else read["steps"].height
    if strict and row["unread_lines"]:
        first = _first_unread(read)
        refused = UNREAD_LINES_REFUSED(
            path=path,
            line=first["line"],
            reason=first["reason"],
            text=first["text"][:120],
            count=row["unread_lines"],
        )
        return Outcome.of_error(str(path), "failed", refused)._replace(**counts)
    return Outcome(str(path), "read", "", **counts)


def _cost(row: Mapping[str, Any]) -> str:
    """Return a sentence on how, and how fast, a source was read; row: of `sources`."""
    if row.get("read_s") is None:
        return ""
    return (
        f"{row['bytes'] / 1e6:,.1f} MB in {row['read_s']:.2f} s ({row['read_mb_per_s']:.1f} MB/s); "
        f"{row['lines']:,} lines: {row['block_lines']:,} many at once, "
        f"{row['cached_lines']:,} from the cache, {row['regex_lines']:,} one by one; "
        f"{row['other_lines']:,} match no pattern"
    )


def _run_names(read: LogRows | LogTables) -> tuple[str, ...]:
    """Return the names of the runs of a file, as the store will have them."""
    if isinstance(read, LogRows):
        runs, facts = read.rows["runs"], read.rows["facts"]
    else:
        runs, facts = (collect_rows(read[name]).to_dicts() for name in ("runs", "facts"))
    given = [fact for fact in facts if not fact["origin"].startswith(LOGGED_NAMES)]
    named = name_fact(cast(Iterable[Fact], given))
    if named is None:
        return tuple(run["name"] for run in runs)
    label = named.of_run and len(runs) > 1
    return tuple(
        given_run_name(run["name"], named) + (f"#{run['launch']}" if label else "") for run in runs
    )


def _first_unread(read: LogRows | LogTables) -> Mapping[str, Any]:
    if isinstance(read, LogRows):
        return read.rows["unread"][0]
    return next(iterate_frames(read["unread"])).row(0, named=True)
