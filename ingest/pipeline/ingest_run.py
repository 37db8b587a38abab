"""From paths to a store: finds the files, has those read that are new, stores batches."""

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
from typing import Any, Final, NamedTuple

from ..core.errors import (
    ClusterError,
    FairmfuError,
    ReadingFaultError,
    UnknownFormatError,
    UnreadableSourceError,
    explain_read_error,
)
from ..core.faults import FAULTS
from ..core.paths import as_remote, parse_path, request_cache
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
from ..extract.table_batches import LogBatch, LogRows
from ..facts import facts as given
from ..formats.launch_view import Fact
from ..formats.spec import LogFormat
from ..store.catalogue import OutdatedSource
from ..store.store import FileMark, FileRemark, KnownFile, KnownFolders, Store
from ..workers.local_engine import LocalEngine
from . import rotation

MTIME_SETTLE_NS: Final = 2_000_000_000
"""A file that was written to within this time, before it was looked at, may change again without
its time of change (as coarse as this on some file systems) showing it."""

MAX_BATCH_LOGS: Final = 1_000
MAX_BATCH_STEPS: Final = 8 * 1024 * 1024
"""What is stored together, if there is more to be read: what is told of each log waits in memory
for that, its steps on the disk; and a run that is killed has what was stored before."""


SINGLE_PROCESS: Final = LocalEngine()
"""The engine of one process, this one."""

FactsOf = Callable[[str], Sequence[Fact]]
"""Facts by the absolute path of a log."""


def _none(_path: str) -> Sequence[Fact]:
    return ()


class Outcome(NamedTuple):
    """What became of one path.

    given: the path, as it was given. status: read, known (its content is stored), unchanged
    (known, and it need not be opened to see that), failed (message says why), or passed: a file
    that a folder's walk came upon and that has no line of these frameworks; no message where that
    was seen before. One more, of the status unlisted, is reported alone: its message is of all
    files of folders that are passed over for their names. A message of one that was read says what
    became of an earlier run, or that more is to come. urgent: of one that was read or known, that
    somebody has to see to it. cost: of one that was read, in a sentence.
    """

    given: str
    status: str
    message: str
    log_format: str = ""
    step_lines: int = 0
    unread_lines: int = 0
    other_lines: int = 0
    urgent: bool = False
    cost: str = ""

    @property
    def path(self) -> Path:
        """`given` as a Path. Made only when it is asked for: most files are as they were."""
        return parse_path(self.given)

    @property
    def skipped_message(self) -> str:
        """The sentence of a file that is passed over, and of which no earlier ingest told."""
        why = self.message.removeprefix(f"{self.path}: ").partition("\n")[0]
        return f"{self.path}: passed over, {why}"


class _Stood(NamedTuple):
    """A source as the store had it before."""

    path: str
    bytes: int
    log_format: str
    forced: Sequence[str] | None


def _stood(store: Store) -> dict[str, _Stood]:
    """The store's sources, by sha256."""
    sources = store.table("sources").select("sha256", *_Stood._fields)
    return {sha256: _Stood(*rest) for sha256, *rest in sources.iter_rows()}


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """What holds for all files of one ingest.

    flag_facts: facts that hold before all others; path_facts: facts by the path of a log;
    strict: fail a source that has unread lines; format_choice: formats that a log may have
    """

    flag_facts: Sequence[Fact] = ()
    path_facts: FactsOf = _none
    strict: bool = False
    format_choice: FormatChoice = BUILT_IN_CHOICE

    @property
    def for_engine(self) -> ReadOptions:
        """The options that whoever reads the files takes."""
        return tuple(self.flag_facts), self.format_choice

    @property
    def change_no_known_file(self) -> bool:
        """True if files that are as they were need not be looked at one by one."""
        given = self.flag_facts or self.path_facts is not _none
        return not given and not self.format_choice.wanted


@dataclass(slots=True, kw_only=True)
class _Job:
    """What one ingest knows beforehand, and what it gathers for the store."""

    options: IngestOptions
    known: dict[str, str]
    sizes: set[int]
    files: Mapping[str, FileMark]
    spool: Spool
    ahead: ReadSession
    report: Callable[[Outcome], None]
    began_ns: int = field(default_factory=time.time_ns)
    stood: Callable[[], Mapping[str, _Stood]] = dict  # by sha256, of what is stored
    taken: set[str] = field(default_factory=set)  # identities of what was read
    seen: list[KnownFile] = field(default_factory=list)
    grown: list[str] = field(default_factory=list)  # contents that files began with
    left_alone: list[FileMark] = field(default_factory=list)
    marks: dict[str, FileMark] = field(default_factory=dict)
    again: dict[str, OutdatedSource] = field(
        default_factory=dict
    )  # by sha256: what is to be read anew
    formats: str = ""
    stored_sizes: frozenset[int] = field(init=False)
    stored_paths: frozenset[str] = field(init=False)
    _hashed: dict[str, str] = field(default_factory=dict)  # by path, of files to come
    _told_of: set[str] = field(default_factory=set)  # folders whose companions were looked into
    _batch: LogBatch = field(init=False)
    _logs: int = 0
    _steps: int = 0

    def __post_init__(self) -> None:
        self.stored_sizes = frozenset(self.sizes)
        self.stored_paths = frozenset(self.known.values())
        self._batch = LogBatch(self.spool)

    @property
    def is_much(self) -> bool:
        """Whether what was read is to be stored before more is read."""
        return self._logs >= MAX_BATCH_LOGS or self._steps >= MAX_BATCH_STEPS

    def batch(self) -> list[LogTables]:
        """What was read since this was last asked, for the store."""
        batch, self._batch, self._logs, self._steps = self._batch, LogBatch(self.spool), 0, 0
        return batch.tables()

    def take(self, found: LogFile) -> Outcome:
        """Read one file, or see that it is known; one that fails leaves no trace."""
        try:
            return self._take(found)
        except UnknownFormatError as error:
            is_stored = any(source.path == found.identity for source in self.again.values())
            if found.named or error.recognised or is_stored:
                return Outcome(found.path, "failed", str(error))
            if found.identity in self.stored_paths:
                return Outcome(found.path, "failed", f"{found.path}: {OVERWRITTEN_LOG_NOTE}")
            self.remember_none(found)
            return Outcome(found.path, "passed", str(error))
        except ClusterError:
            raise
        except FairmfuError as error:
            why = str(error)
        except OSError as error:
            why = f"{found.path}: {explain_read_error(error)}"
        except FAULTS as error:
            why = str(ReadingFaultError(found.path, error))
        return Outcome(found.path, "failed", why)

    def _take(self, found: LogFile) -> Outcome:
        if found.error:
            raise UnreadableSourceError(found.error)
        mark = self._same_as(found)
        if mark is not None and self._before(mark.sha256, found) is None:
            if not mark.sha256:
                return Outcome(found.path, "passed", "")
            if not self.options.flag_facts and self._given_as_before(found, mark.beside):
                self.left_alone.append(mark)
                return Outcome(found.path, "unchanged", "known already")
        if self._is_unwritten(found):
            self.remember_none(found)
            return Outcome(found.path, "passed", f"{found.path}: the file is empty.")
        path = parse_path(found.path)
        if path != STDIN_PATH and not found.size and found.identity in self.stored_paths:
            raise UnreadableSourceError(f"{path}: {EMPTIED_LOG_NOTE}")
        sha256 = mark.sha256 if mark else self._content(found, path)
        before = self._before(sha256, found)
        if sha256 not in self.known or before is not None:
            return self._read(found, path, before)
        return self._see(found, path, sha256)

    def _is_unwritten(self, found: LogFile) -> bool:
        """Whether a file that a folder's walk came upon is empty, as torchrun and Slurm leave many.

        One that was a log before has lost what it held.
        """
        return not (found.size or found.named or found.identity in self.stored_paths)

    def _content(self, found: LogFile, path: Path) -> str:
        """The hash of what the file holds; none where no source is as large, so that it is new."""
        if path == STDIN_PATH or found.size not in self.sizes:
            return ""
        return self._hashed.pop(found.path, "") or hash_content(path)

    def _before(self, sha256: str, found: LogFile) -> OutdatedSource | None:
        """The source of that content where today's readers read it otherwise, from this file.

        A copy of a file that is still there is none to take its place.
        """
        before = self.again.get(sha256)
        if before is None or not (before.path == found.identity or is_missing_file(before.path)):
            return None
        return before

    def _given_as_before(self, found: LogFile, beside: str) -> bool:
        """Whether what gives facts to the file from outside it is as `beside` tells."""
        named = beside.split("\n")[1:]
        return found.beside(self.options.path_facts(found.identity), named).text == beside

    def _same_as(self, found: LogFile) -> FileMark | None:
        """What is known of the file without opening it."""
        mark = self.files.get(found.identity)
        if mark is None or self.options.format_choice.wanted:
            return None
        if mark[:4] != found[1:5]:  # path, size, time of change and inode
            return None
        if mark.sha256:
            return mark if mark.sha256 in self.known else None
        return mark if not found.named and mark.beside == self._formats() else None

    def _see(self, found: LogFile, path: Path, sha256: str) -> Outcome:
        before = self.stood().get(sha256) if self.options.format_choice.wanted else None
        if before is not None and before.log_format not in self.options.format_choice.wanted:
            return Outcome(found.path, "failed", _read_otherwise(path, before.log_format))
        stored = self.known[sha256]
        beside = self._beside(found, path)
        here, given = stored == found.identity, []
        if here or is_missing_file(stored):
            self._tell_of_companions(found)
            given = [*self.options.path_facts(found.identity), *facts_from_files(path)]
        self.seen.append(
            KnownFile(found.identity, sha256, [*(given if here else []), *self.options.flag_facts])
        )
        self._remember(found, sha256, beside)
        ignored = bool(given) and not here
        known = _known_as(found.identity, stored) + MOVED_LOG_NOTE * ignored
        return Outcome(found.path, "known", known, urgent=ignored)

    def _read(self, found: LogFile, path: Path, before: OutdatedSource | None) -> Outcome:
        """before: how the same content stands in the store, if it does."""
        beside = self._beside(found, path)
        facts = () if path == STDIN_PATH else self.options.path_facts(found.identity)
        planned, tried = partial(self.ahead.planned, found), self._tried_of(found, path, before)
        read = self.ahead.take(found, facts) or read_log(
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
        if done.status != "read":
            return done
        self._tell_of_companions(found)
        self.grown += self._grew_into(found, path, done.log_format)
        self._batch.add(read)
        self._logs, self._steps = self._logs + 1, self._steps + done.step_lines
        self.taken.add(source["path"])
        sha256 = source["sha256"]
        self.known[sha256] = found.identity
        self.again.pop(sha256, None)
        self.sizes.add(source["bytes"])
        with suppress(FileNotFoundError):  # moved since: what was read of it is whole
            if path != STDIN_PATH and as_remote(path) is None and stat_file(path)[:5] != found[:5]:
                grew = f"{path}: read while it was being written; the rest comes next time"
                return done._replace(message=grew)
        self._remember(found, sha256, beside)
        return done

    def _tried_of(self, found: LogFile, path: Path, before: OutdatedSource | None) -> FormatChoice:
        """What a file may be read with: what it was forced to be, where nothing is wanted now.

        before: as in `_read`. A file that grew is forced as what it began with.
        """
        if self.options.format_choice.wanted:
            return self.options.format_choice
        forced = before.forced if before else self._forced_as(found, path)
        if unknown := sorted(forced - self.options.format_choice.names):
            raise UnreadableSourceError(_forced_as_unknown(path, unknown[0]))
        return self.options.format_choice.only(forced) if forced else self.options.format_choice

    def _forced_as(self, found: LogFile, path: Path) -> frozenset[str]:
        """What the content was to be read with that a file which grew had before."""
        began = self._began_with(found, path, lambda one: bool(one.forced))
        return frozenset(name for one in began.values() for name in one.forced or ())

    def _is_ahead(self, sha256: str, found: LogFile) -> bool:
        """Whether what is known is read anew as all is; with formats of its own it has its turn."""
        before = self._before(sha256, found)
        return before is not None and (bool(self.options.format_choice.wanted) or not before.forced)

    def _may_be_forced(self, found: LogFile) -> bool:
        """Whether a file has its turn, for what was read of it before was forced to be a format."""
        if self.options.format_choice.wanted or found.identity not in self.stored_paths:
            return False
        return any(one.forced and one.path == found.identity for one in self.stood().values())

    def _began_with(
        self, found: LogFile, path: Path, asked: Callable[[_Stood], bool]
    ) -> dict[str, _Stood]:
        """What the file held before, by sha256, if it grew; of that what is asked for alone."""
        if found.identity not in self.stored_paths or path == STDIN_PATH:
            return {}
        return {
            sha256: one
            for sha256, one in self.stood().items()
            if one.path == found.identity and one.bytes < found.size and asked(one)
            if hash_content(path, one.bytes) == sha256
        }

    def _grew_into(self, found: LogFile, path: Path, log_format: str) -> Iterable[str]:
        """The content that the file had, if it grew and was read as another format then.

        A beginning may show too little; its runs have other ids than those of the whole.
        """
        if as_remote(path) is not None:
            return ()
        return self._began_with(found, path, lambda one: one.log_format != log_format)

    def offer(self, found: LogFile) -> ReadRequest | None:
        """What to read before its turn: a file of which nothing is stored, or to be read anew."""
        if found.error or found.path == str(STDIN_PATH) or self._is_unwritten(found):
            return None
        mark = self._same_as(found)
        if mark is None and self._may_be_forced(found):
            return None
        if mark is not None and not self._is_ahead(mark.sha256, found):
            return None
        path = parse_path(found.path)
        if found.size in self.stored_sizes and as_remote(path) is None:
            try:
                self._hashed[found.path] = hash_content(path)
            except (FairmfuError, OSError):  # told in its turn
                return None
            sha256 = self._hashed[found.path]
            if sha256 in self.known and not self._is_ahead(sha256, found):
                return None
        return path, self.options.path_facts(found.identity)

    def _tell_of_companions(self, found: LogFile) -> None:
        """Say of each file beside a log that is broken, once, that no facts are taken of it."""
        if found.around is None or found.around.folder in self._told_of:
            return
        self._told_of.add(found.around.folder)
        for name, _, size, _ in found.around.shared.marks:
            path = parse_path(found.around.folder) / name
            if size >= 0 and as_remote(path) is None and (why := given.companion_problem(path)):
                message = f"{path}: {why}. The logs beside it have no facts of it"
                self.report(Outcome(str(path), "passed", message))

    def _formats(self) -> str:
        self.formats = self.formats or _formats(self.options.format_choice)
        return self.formats

    def _beside(self, found: LogFile, path: Path) -> FactFiles:
        """All that gives facts to the file from outside it."""
        if path == STDIN_PATH:
            return NO_FACT_FILES
        named = [file_identity(file) for file in given.files_named_in_sidecars(path)]
        return found.beside(self.options.path_facts(found.identity), named)

    def remember_none(self, found: LogFile) -> None:
        """Have the store remember a file of no log, so that it is told of once."""
        self._remember(found, "", FactFiles((), self._formats()))

    def _remember(self, found: LogFile, sha256: str, beside: FactFiles) -> None:
        """Have the store remember what the file looks like, if that can be relied on."""
        newest_ns = max(found.mtime_ns, beside.newest_ns)
        settled = found.around is not None and newest_ns < self.began_ns - MTIME_SETTLE_NS
        mark = FileMark(
            path=found.identity,
            size=found.size,
            mtime_ns=found.mtime_ns,
            inode=found.inode,
            beside=beside.text,
            sha256=sha256,
        )
        if settled and self.files.get(mark.path) != mark:
            self.marks[mark.path] = mark

    def whole(
        self, looked_at: Iterable[LogFile], told: Mapping[str, str], remarks: Iterable[FileRemark]
    ) -> dict[str, str]:
        """Folders of which all files are known by their own content: walk.listing of each.

        Of those alone whose files all have the same beside them, which the folder shows at once.
        told: those of which no file was looked at; remarks: of files that are not as they seemed.
        """
        within: dict[str, list[LogFile]] = {}
        apart = {remark.path.rpartition(os.sep)[0] for remark in remarks}
        for found in looked_at:
            folder = found.around.folder if found.around else str(Path(found.identity).parent)
            within.setdefault(folder, []).append(found)
            mark = self.marks.get(found.identity) or self.files.get(found.identity)
            if (
                found.named
                or mark is None
                or mark[:4] != found[1:5]
                or self.known.get(mark.sha256) != mark.path
                or found.around is None
                or not found.around.is_leaf
                or found.around.shared.text != mark.beside
            ):
                apart.add(folder)
        left = {folder: at for folder, at in told.items() if folder not in within}
        return left | {
            folder: folder_signature(file_columns(held), held[0].around.shared.text)
            for folder, held in within.items()
            if folder not in apart and held[0].around is not None
        }

    def claims(self) -> list[KnownFile]:
        """Copies that were left alone, of what another file of this ingest may take away."""
        touched = self.taken.union(one.path for one in self.seen)
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
    """Read each file of `paths` into `store`; one that fails leaves the others alone.

    A source whose content is known is not read again; its facts are brought up to date: but for
    what an earlier reader read, which is read anew where its format is one of `format_choice`. One
    that looks as it did when it was last taken, with all beside it, is not opened. With `strict` a
    source that has unread lines fails; where `format_choice` wants formats, so does one that has
    another or is stored as read with another. `path_facts` gives facts as files beside a log do;
    what stands there holds before them. Folders of `excluded_folders` are not entered. `report`
    gets each outcome as it comes, and again where the store has something to say of it. engine: who
    reads the files.
    """
    options = IngestOptions(
        flag_facts=flag_facts, path_facts=path_facts, strict=strict, format_choice=format_choice
    )
    again = _to_read_again(store, format_choice)
    folders = store.folders() if options.change_no_known_file else None
    remembered = _but_for((one.path for one in again.values()), folders.listed) if folders else {}
    walk = FileWalk(format_choice.formats, excluded_folders, remembered)
    files = _found(paths, walk)
    outcomes: list[Outcome] = []
    if (first := next(files, None)) is not None:
        job = _job(store, options, engine, again, report)
        outcomes = _taken(job, chain([first], files), store, folders, walk.whole)
    unchanged = list(map(Outcome, walk.unchanged, repeat("unchanged"), repeat("known already")))
    for one in unchanged:
        report(one)
    if walk.unlisted and any(one.status == "read" for one in outcomes):
        report(Outcome(walk.unlisted[0], "unlisted", _unlisted(walk.unlisted)))
    return outcomes + unchanged


def _job(
    store: Store,
    options: IngestOptions,
    engine: ReadEngine,
    again: dict[str, OutdatedSource],
    report: Callable[[Outcome], None],
) -> _Job:
    """Return an ingest with what the store knows beforehand; again: as `_to_read_again`."""
    spool = store.spool()
    return _Job(
        options=options,
        known=store.known_sources(),
        sizes=store.known_sizes(),
        files=store.files(),
        spool=spool,
        ahead=engine.reading(options.for_engine, store.shelf, spool),
        report=report,
        again=again,
    )


def _to_read_again(store: Store, tried: FormatChoice) -> dict[str, OutdatedSource]:
    """What today's readers read otherwise than it is stored, by content hash.

    Not what was read with a format that is not tried now: another one would read something else.
    """
    before = store.outdated_sources()
    return {sha256: one for sha256, one in before.items() if not _untried(one, tried)}


def _untried(source: OutdatedSource, tried: FormatChoice) -> str | None:
    """A format that a source was read with, or was to be, that is none of these."""
    forced = () if tried.wanted else sorted(source.forced)
    return next((n for n in (source.log_format, *forced) if n not in tried.names), None)


def find_outdated_logs(
    store: Store, format_choice: FormatChoice = BUILT_IN_CHOICE
) -> tuple[list[Path], list[str]]:
    """Logs that today's readers read otherwise than they are stored; of those left, why each is.

    Raises StoreError where the store cannot be read.
    """
    there, left = list[Path](), list[str]()
    for source in store.outdated_sources().values():
        path = source.path
        if path == str(STDIN_PATH):
            left.append("one came through a pipe: give it once more")
        elif (name := _untried(source, format_choice)) is not None:
            left.append(f"{path}: {name} is no format that is known here: give it by --log-format")
        elif is_missing_file(path):
            left.append(f"{path}: it is gone")
        else:
            there.append(parse_path(path))
    return there, left


def _but_for(paths: Iterable[str], folders: Mapping[str, str]) -> Mapping[str, str]:
    """Folders without those that one of these files stands in."""
    within = {path.rpartition(os.sep)[0] for path in paths}
    if not within:
        return folders
    return {folder: at for folder, at in folders.items() if folder not in within}


def _taken(
    job: _Job,
    files: Iterable[LogFile],
    store: Store,
    before: KnownFolders | None,
    whole: Mapping[str, str],
) -> list[Outcome]:
    """What became of each file, once the store has what was read of them all.

    What is much is stored before more is read. Files of known content come last: the store is to
    see who has it once all that replaces any has been placed, as in one batch. Files that were logs
    are told of behind that: what they held may stand in one that came later. before: the folders
    that the store remembers; None where it is to remember none. whole: those that are as they were,
    once all files have been found.
    """
    ahead = job.ahead
    job.stood = cache(partial(_stood, store))
    outcomes: list[Outcome] = []
    looked_at: list[LogFile] = []
    lost: list[int] = []
    told: list[FileRemark] = []
    with ahead:
        for found in ahead.before(files, job.offer):
            looked_at.append(found)
            outcomes.append(job.take(found))
            if _has_lost(found, outcomes[-1]):
                lost.append(len(outcomes) - 1)
            else:
                job.report(outcomes[-1])
            ahead.forget(found)
            if job.is_much and ahead.can_store_now:
                told += store.add(job.batch(), earlier_contents=job.grown)
    now = None if before is None else KnownFolders(job.whole(looked_at, whole, told), before.state)
    seen, marks = [*job.seen, *job.claims()], list(job.marks.values())
    told += store.add(job.batch(), seen, marks, now, earlier_contents=job.grown)
    if lost:
        _tell_of_lost(job, outcomes, {at: looked_at[at] for at in lost}, store)
    return _settled(job, outcomes, looked_at, store, told)


def _has_lost(found: LogFile, outcome: Outcome) -> bool:
    """Whether it is a file of a folder that was a log, and holds nothing of one now."""
    lost = outcome.status == "failed" and outcome.message.endswith(
        (EMPTIED_LOG_NOTE, OVERWRITTEN_LOG_NOTE)
    )
    return lost and not found.named


def _tell_of_lost(
    job: _Job, outcomes: list[Outcome], lost: Mapping[int, LogFile], store: Store
) -> None:
    """Report files that were logs: nothing is lost where all that they held stands in others now.

    As where logs are rotated, and the next one has begun with lines of its launcher alone.
    """
    job.marks.clear()
    copies = {one.sha256: one.path for one in job.left_alone}
    copies |= {one.sha256: one.path for one in job.seen}
    elsewhere = rotation.find_moved_content(
        store, copies, {found.identity for found in lost.values()}
    )
    for at, found in lost.items():
        if where := elsewhere.get(found.identity):
            path = outcomes[at].path
            outcomes[at] = Outcome(found.path, "passed", f"{path}: {ROTATED_LOG_PREFIX}{where}.")
            job.remember_none(found)
        job.report(outcomes[at])
    store.add((), (), list(job.marks.values()))


def _settled(
    job: _Job,
    outcomes: list[Outcome],
    looked_at: Sequence[LogFile],
    store: Store,
    told: Sequence[FileRemark],
) -> list[Outcome]:
    """The outcomes with what the store says of the files; told: its remarks.

    What was known then, and replaced since, is read; that may replace what another file, which came
    upon it as known, has still, so that is told of again.
    """
    stands = [*job.seen, *job.claims()]
    while remarks := {remark.path: remark for remark in told}:
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
        for at, one in enumerate(outcomes):
            remark = remarks.get(file_identity(one.path))
            if remark is None or one.status not in ("read", "known", "unchanged"):
                continue
            if remark.kind == "gone":
                outcomes[at] = again.take(looked_at[at])
            elif one.status != "unchanged":
                outcomes[at] = _remarked(one, remark)
            job.report(outcomes[at])
        batch = again.batch()
        if not batch:
            break
        stands = [one for one in stands if one.path not in remarks]
        told = store.add(batch, stands, list(again.marks.values()))
    return outcomes


def _remarked(outcome: Outcome, remark: FileRemark) -> Outcome:
    """The outcome with what the store says of its file."""
    path = outcome.path
    if remark.kind == "known":
        return Outcome(outcome.given, "known", _known_as(file_identity(path), remark.known_as))
    if remark.known_as:
        known = _known_as(file_identity(path), remark.known_as)
        return outcome._replace(message=f"{known}; the earlier run of {path} is kept")
    if remark.kind == "less":
        return outcome._replace(message=f"{path} {FEWER_STEPS_NOTE}", urgent=True)
    return outcome._replace(message=f"{path} holds another run now; the earlier one is kept")


def _forced_as_unknown(path: Path, name: str) -> str:
    return (
        f"{path}: it grew since it was read with --log-format {name}, which is no format that is "
        f"known here; what was read of it stays. Give its file by --log-format, or lay it into "
        "the folder of formats."
    )


def _read_otherwise(path: Path, before: str) -> str:
    return (
        f"{path}: its content is stored already, as read with {before}. --log-format is for what "
        "is new to a store: give another --store, or leave --log-format out."
    )


MOVED_LOG_NOTE: Final = (
    " though that file is gone. Those beside this one are not: for them, fairmfu remove its run, "
    "and ingest it again"
)
"""What is said of a log that was moved, and has facts beside it."""


EMPTIED_LOG_NOTE: Final = (
    "the file is empty, and was a log. What was read is kept: restore or delete it."
)
OVERWRITTEN_LOG_NOTE: Final = (
    "no line of it is of a known format, and it was a log. What was read is kept: restore or "
    "delete it."
)
ROTATED_LOG_PREFIX: Final = "no log any more; what it held stands in "
FEWER_STEPS_NOTE: Final = (
    "holds fewer steps of its run than were read before, which are kept. Where they are not to "
    "count, fairmfu remove the run, and ingest the log again"
)
"""What is said of a log that lost all, that holds something else now, the same where what it held
was moved, and of one that lost steps."""


def _known_as(path: str, stored: str) -> str:
    if stored == path:
        return "known already"
    return f"known already: same content as {stored}; its facts are used"


def _unlisted(paths: Sequence[str]) -> str:
    """What is said of files that are passed over for their names, all of them in one line."""
    names = ", ".join(Path(path).name for path in paths[:MAX_TOLD_NAMES])
    more = f" and {len(paths) - MAX_TOLD_NAMES:,} more" if len(paths) > MAX_TOLD_NAMES else ""
    count = "1 file" if len(paths) == 1 else f"{len(paths):,} files"
    return (
        f"{count} of folders not opened, for their names are of no logs: {names}{more}. "
        "To read one, give it by name."
    )


def _found(paths: Iterable[Path], walk: FileWalk) -> Iterator[LogFile]:
    """The files of each path; one that is not there, or holds no log, is told as such a file."""
    for path in paths:
        try:
            yield from map(_with_a_name, walk.of(path))
        except UnreadableSourceError as error:
            yield _with_a_name(LogFile(str(path), "", error=str(error)))


def _with_a_name(found: LogFile) -> LogFile:
    """The file, or why it is none that can be spoken of."""
    try:
        found.path.encode()
    except UnicodeEncodeError:
        path = os.fsencode(found.path).decode(errors="backslashreplace")
        error = f"{path}: its name is not UTF-8, so no table can hold it. Rename it."
        return LogFile(path, path, named=found.named, around=found.around, error=error)
    return found


def _formats(tried: FormatChoice) -> str:
    """Short text that changes with the formats that a file may have, and with the program."""
    said = [
        (f.name, f.signature, f.looks_like_step, f.header, f.noise, f.file_names, _regexes(f))
        for f in tried.formats
    ]
    return "formats " + short_signature((version("fairmfu"), said))


def _regexes(log_format: LogFormat) -> list[str]:
    steps = [line.regex for line in log_format.steps]
    facts = [line.regex for line in log_format.facts]
    return steps + facts + [line.regex for line in log_format.events]


def _outcome(
    path: Path, row: Mapping[str, Any], read: LogRows | LogTables, *, strict: bool
) -> Outcome:
    counts = {key: row[key] for key in ("log_format", "step_lines", "unread_lines", "other_lines")}
    counts["cost"] = _cost(row)
    if strict and row["unread_lines"]:
        first = _first_unread(read)
        message = (
            f"{path}:{first['line']}: {first['reason']}: {first['text'][:120]!r}. "
            f"{row['unread_lines']} such lines; without --strict the rest is read."
        )
        return Outcome(str(path), "failed", message, **counts)
    return Outcome(str(path), "read", "", **counts)


def _cost(row: Mapping[str, Any]) -> str:
    """How a source was read, and how fast: `row` is its row of `sources`."""
    if row.get("read_s") is None:
        return ""
    return (
        f"{row['bytes'] / 1e6:,.1f} MB in {row['read_s']:.2f} s ({row['read_mb_per_s']:.1f} MB/s); "
        f"{row['lines']:,} lines: {row['block_lines']:,} many at once, "
        f"{row['cached_lines']:,} from the cache, {row['regex_lines']:,} one by one by regexes; "
        f"{row['other_lines']:,} match no pattern"
    )


def _first_unread(read: LogRows | LogTables) -> Mapping[str, Any]:
    if isinstance(read, LogRows):
        return read.rows["unread"][0]
    return next(iterate_frames(read["unread"])).row(0, named=True)
