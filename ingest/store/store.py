"""The store: Parquet parts, and a DuckDB catalogue that follows from them.

    STORE/parts/<table>/<batch>.parquet    ingest.store.parquet_parts: immutable; written aside,
                                           synced, renamed
    STORE/catalogue.duckdb                 ingest.store.catalogue: current rows and list of parts
    STORE/writer.lock                      ingest.store.lock: one writer at a time; readers never
                                           wait

A store at an address (ingest.store.object_backend) has its parts there. Catalogue and lock are in a
local cache of each machine, and the catalogue is updated before reads and writes.

A batch writes its parts, then the record that lists them, and last renames a new catalogue over the
old one. The record makes the batch count: a crash before the record leaves the old state, a crash
after it the new state, and the next writer updates the catalogue. Decisions about replaced files
and run ids are made under the lock, from the catalogue (ingest.store.changeset). Readers open the
current catalogue. Merged parts stay for transactions.MERGED_PART_GRACE, so no reader misses a file.
"""

from __future__ import annotations

import math
import os
import random
import re
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os import getpid
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import duckdb
import polars as pl

from ..core.errors import StoreError, explain_write_error
from ..core.schema import SCHEMA_VERSION, TABLES, frame_schema
from ..core.spill import LogTables, Spool
from . import catalogue, compaction, lock, parquet_parts, part_paths
from .catalogue import FILE_MARK_SCHEMA, Connection, OutdatedSource
from .changeset import FileMark, FileRemark, KnownFile, Tables
from .local_backend import BatchConflictError, StoreBackend, sync_to_disk
from .messages import (
    CATALOGUE_LOST,
    NO_SELECT,
    NO_STORE,
    OTHER_SCHEMA,
    OUTDATED_CATALOGUE,
    QUERY_FAILED,
    QUERY_OF_FILES,
    QUERY_TOO_LONG,
    RECORD_ANEW,
    RECORD_LOST,
    RECORDS_LOST,
    STORE_PATH_PATTERN,
    UNREADABLE_CATALOGUE,
    UNREADABLE_PARTS,
    UNREADABLE_STORE,
    UNSUPPORTED_TYPE,
    UNTRUSTED_CATALOGUE,
    WRITE_CONFLICTS,
    WRITE_FAILED,
)
from .parquet_parts import ParquetPart
from .part_paths import WRITING_SUFFIX
from .query_limits import QueryLimits
from .transactions import BatchScope, StoreWriter, live_paths, replay_parts

__all__ = ["FileMark", "FileRemark", "KnownFile", "Store", "Tables"]

CATALOGUE_NAME: Final = "catalogue.duckdb"
JOURNAL_SUFFIXES: Final = ("", ".wal", ".wal.checkpoint", ".wal.recovery")
"""Suffixes of the files that DuckDB uses for one database."""
TABLE_ORDER: Final = {
    "sources": "path",
    "runs": "name, launch, run_id",
    "facts": "run_id, sequence",
    "steps": "run_id, line",
    "events": "run_id, line",
    "unread": "sha256, line",
}
MAX_WRITE_ATTEMPTS: Final = 8
"""Attempts of one write while other machines write to the same store."""
SYNC_INTERVAL_S: Final = 10.0
"""Time between checks for batches of other machines [s]."""

Result = TypeVar("Result")
GLOB_CHARACTERS: Final = re.compile(r"[*?\[\]]")
_CHECKED_STATES: Final[dict[Path, tuple[int, ...]]] = {}
"""State of each catalogue that this process wrote or checked: a check takes 12 ms."""


@dataclass(frozen=True, slots=True)
class StoreParts:
    """Parts of a catalogue: live ones, and paths of dead ones, which a merge replaced."""

    live: list[ParquetPart]
    dead: set[str]


SourcesState = tuple[int, int]
"""Number of sources in a store, and the newest batch among them."""


class KnownContents(NamedTuple):
    """Contents of the sources, and remembered files.

    paths: path of each source, by content hash. sizes: of the sources at their reading [bytes].
    files: states of files by path, a mere cache. Includes files with stored content, and skipped
    files (no sha256).
    """

    paths: dict[str, str]
    sizes: set[int]
    files: dict[str, FileMark]


class KnownFolders(NamedTuple):
    """Folders whose files are all known and unchanged, so that ingest can skip them.

    listed: ingest.extract.discovery.folder_signature by absolute path.
    state: sources at that time; after any change of the sources nothing is remembered.
    """

    listed: dict[str, str]
    state: SourcesState


class Store:
    """A folder with parts and a catalogue: rows read from logs, and stored metrics.

    `tables()` and `table(name)` return Polars frames as in ingest.core.schema.TABLES, `query(sql)`
    the result of an SQL statement. The schema gives the units: [s], [tokens], [bytes], [FLOP/s].
    `ingest_logs` fills a store; `reports.query` also makes metrics visible to SQL.

    Raises StoreError for a path with glob characters, UnreadableSourceError for an address that no
    installed package can open. Methods raise StoreError if the store is missing, damaged, of
    another schema, or not writable.

    >>> Store("perf").tables()["steps"]
    """

    def __init__(
        self,
        path: str | Path,
        *,
        patience_s: float | None = None,
        notify: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Open a store; the folder need not exist before the first `add`.

        path: a folder, or an address at an object store (`s3://bucket/perf`).
        patience_s: how long a write waits for another writer [s], by default
        lock.DEFAULT_PATIENCE_S.
        notify: receives sentences about such waits, and about metrics that cannot be kept.

        Raises StoreError if the path has glob characters.
        """
        path = _named(path) if isinstance(path, str) else path
        self.shelf = _shelf_of(path)
        if GLOB_CHARACTERS.search(self.shelf.at("")):
            raise STORE_PATH_PATTERN(store=path)
        self.path = path
        self.home = self.shelf.home
        self.patience_s = patience_s
        self.says = notify
        self._idle: list[Connection] = []
        self._idle_writers: list[Connection] = []
        self.memory_bytes: int | None = None
        self._limited_reader: Store | None = None
        self._added: tuple[SourcesState, SourcesState] | None = None
        self._met_at = -math.inf

    def __reduce__(self) -> tuple[type[Store], tuple[Path]]:
        """Pickle the absolute path, for a process in another folder or on another machine."""
        return Store, (self.path.absolute(),)

    def without_waiting(self) -> Store:
        """Return a silent copy whose writes fail at once while the lock is taken."""
        other = Store(self.path, patience_s=0)
        other._idle, other._idle_writers = self._idle, self._idle_writers
        return other

    # -- writing --------------------------------------------------------------------------

    def spool(self) -> Spool:
        """Return a spool for rows to be added; many rows go to the store's own disk."""
        return Spool(self.home / part_paths.PARTS_FOLDER)

    def add(
        self,
        logs: Sequence[LogTables],
        known_files: Sequence[KnownFile] = (),
        files: Sequence[FileMark] = (),
        folders: KnownFolders | None = None,
        *,
        earlier_contents: Collection[str] = (),
    ) -> list[FileRemark]:
        """Add sources with their rows, and facts of known files, in one transaction.

        A file replaces the source of the same path whose runs it contains, because it grew, or
        whose content is in `earlier_contents`. A file with other runs is added next to the source.
        Runs of files with equal beginnings get different ids.

        files: states of files for the next `files` call.
        folders: folders for the next `folders` call. Remembered only if `folders.state` is the
        state before this call, or before an unbroken series of `add` calls of this object.
        Nothing happens without logs, known files or files.
        """
        if not logs and not known_files and not files:
            return []

        def add(writer: StoreWriter) -> list[FileRemark]:
            before = catalogue.sources_state(writer.connection)
            began = self._added[0] if self._added and self._added[1] == before else before
            plan = writer.plan(BatchScope.of(logs, known_files), earlier_contents)
            for tables in logs:
                plan.place(tables)
            claimed = {known_file.sha256 for known_file in known_files}
            for known_file in known_files:
                plan.see(known_file, claimed)
            writer.write(plan.frames(writer.number))
            gone = {remark.path for remark in plan.remarks if remark.kind == "gone"}
            writer.mark_files([mark for mark in files if mark.path not in gone])
            if folders is not None and folders.state in {began, before}:
                changed = {remark.path.rpartition(os.sep)[0] for remark in plan.remarks}
                listed = folders.listed.items()
                unchanged = {path: signature for path, signature in listed if path not in changed}
                catalogue.remember_folders(writer.connection, unchanged)
            self._added = began, catalogue.sources_state(writer.connection)
            return plan.remarks

        return self._written(add)

    def give_facts(self, facts_of_runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> int:
        """Give facts to runs by id, replacing earlier ones; return the count of new facts.

        A fact without a value takes back the earlier one.
        """
        if not any(facts_of_runs.values()):
            return 0

        def give(writer: StoreWriter) -> int:
            plan = writer.plan(BatchScope(runs=facts_of_runs))
            new = plan.give_facts(facts_of_runs)
            writer.write(plan.frames(writer.number))
            return new

        return self._written(give)

    def remove(self, runs: Collection[str]) -> dict[str, list[str]]:
        """Forget the sources of these runs, with all their runs; return run ids by path.

        The next ingest of a remaining file reads the file again.
        """

        def remove(writer: StoreWriter) -> dict[str, list[str]]:
            plan = writer.plan(BatchScope(runs=runs))
            gone = plan.remove(runs)
            writer.write(plan.frames(writer.number))
            return gone

        return self._written(remove)

    def keep(self, table: str, frame: pl.DataFrame, as_of: int | None = None) -> None:
        """Append rows to a table that belongs to no log: metrics, baselines, nights.

        as_of: state of the store that the rows were computed from. A run changed since then is
        again among `outdated_runs`. Metrics of a run with stored metrics of a later state are
        dropped: another process was faster, with newer rows.
        """
        if frame.is_empty():
            return

        def keep(writer: StoreWriter) -> None:
            state = writer.number if as_of is None else as_of
            rows = frame.with_columns(as_of=pl.lit(state, pl.Int64))
            if table == catalogue.METRICS_TABLE:
                later = pl.col("run_id").is_in(
                    catalogue.runs_scored_after(writer.connection, state)
                )
                rows = rows.filter(~later)
            if rows.height:
                writer.write({table: rows})

        self._written(keep)

    def rebuild(self) -> int:
        """Rebuild the catalogue from the parts alone. Return the number of parts."""
        if self._is_new():
            raise self._lost()
        with self._locked():
            try:
                with self._attached() as con:
                    self._newest_record(con)
            except StoreError as error:  # a catalogue that cannot be read lists nothing
                if getattr(error, "kind", "") == RECORD_LOST.identifier:
                    raise
            return self._rebuild()

    def compact(self) -> tuple[int, int]:
        """Merge the parts of each table; return the number of parts before and after."""
        if self._is_new():
            raise self._lost()

        def merge(writer: StoreWriter) -> tuple[int, int]:
            if self.shelf.shared:  # in a folder each write does this
                writer.sweep(find_strays=True)
            before = catalogue.live_parts(writer.connection)
            writer.merge(compaction.full_merges(before))
            return len(before), len(catalogue.live_parts(writer.connection))

        return self._written(merge)

    # -- reading --------------------------------------------------------------------------

    def known_contents(self) -> KnownContents:
        """Return what an ingest compares files with, of one state of the store."""
        if self._is_new():
            return KnownContents({}, set(), {})
        with self._connected() as con:
            sources = catalogue.fetch_rows(con, "select sha256, path, bytes from held.sources")
            marks = catalogue.fetch_rows(
                con,
                f"select {', '.join(FILE_MARK_SCHEMA)} from held.files "  # noqa: S608
                "where path not like '%/' "
                "and (sha256 = '' or sha256 in (select sha256 from held.sources))",
            )
        return KnownContents(
            {sha256: path for sha256, path, _ in sources},
            {size for _, _, size in sources},
            {mark[0]: FileMark._make(mark) for mark in marks},
        )

    def known_sources(self) -> dict[str, str]:
        """Return the path of each source, by content hash."""
        return self.known_contents().paths

    def outdated_sources(self) -> dict[str, OutdatedSource]:
        """Return sources that today's readers read differently, by content hash.

        See schema.READING_CHANGES.
        """
        if self._is_new():
            return {}
        with self._connected() as con:
            return catalogue.find_outdated_sources(con)

    def folders(self) -> KnownFolders:
        """Return the folders remembered for the current sources; a mere cache."""
        if self._is_new():
            return KnownFolders({}, (0, 0))
        with self._connected() as con:
            state = catalogue.sources_state(con)
            return KnownFolders(catalogue.remembered_folders(con, state), state)

    def table(self, name: str, runs: Collection[str] | None = None) -> pl.DataFrame:
        """Return a table of `TABLES`, sorted by `TABLE_ORDER`, of all runs or only `runs`.

        For `sources` and `unread`: the sources of these runs.
        """
        with self._reading((name,), runs) as con:
            columns = ", ".join(TABLES[name])
            frame = catalogue.fetch_frame(
                con,
                f"select {columns} from {name} order by {TABLE_ORDER[name]}",  # noqa: S608 - constants
            )
        return _as_now(name, frame)

    def facts_named(self, name: str) -> pl.DataFrame:
        """Return the rows of `facts` with this name, of all runs, in order."""
        with self._reading(("facts",)) as con:
            return catalogue.fetch_frame(
                con,
                "select * from facts where name = $name order by run_id, sequence",
                {"name": name},
            )

    def tables(self, runs: Collection[str] | None = None) -> Tables:
        """Return all of `TABLES`, at one state of the store."""
        with self._reading(runs=runs) as con:
            frames = {
                name: catalogue.fetch_frame(
                    con,
                    f"select {', '.join(TABLES[name])} from {name} order by {order}",  # noqa: S608
                )
                for name, order in TABLE_ORDER.items()
            }
        return {name: _as_now(name, frame) for name, frame in frames.items()}

    def require_batches(self) -> None:
        """Raise StoreError if nothing was ever stored."""
        if self._is_new():
            raise self._lost()

    def kept(
        self, table: str, latest_by: Sequence[str] = (), without: Sequence[str] = ()
    ) -> pl.DataFrame:
        """Return rows of a table that belongs to no log, oldest first.

        latest_by: only the newest rows per value of these columns. without: columns to leave out.
        The column `as_of` is the state of the store that the rows were computed from. Empty,
        without columns, if nothing was stored.
        """
        if self._is_new():
            return pl.DataFrame()
        with self._connected() as con:
            found = catalogue.live_parts(con, {table})
        frames = [
            parquet_parts.read_rows_with_batch(self.shelf, part, without=without) for part in found
        ]
        if not frames:
            return pl.DataFrame()
        rows = pl.concat(frames, how="diagonal_relaxed")
        if latest_by:
            rows = compaction.latest_rows(rows, latest_by)
        if not rows["batch"].is_sorted():
            rows = rows.sort("batch", maintain_order=True)
        return rows.drop("batch")

    def outdated_runs(self) -> tuple[list[str], int]:
        """Return runs with rows or facts newer than their metrics, and the store's state."""
        if self._is_new():
            return [], 0
        with self._connected() as con:
            runs = [run for (run,) in catalogue.fetch_rows(con, catalogue.OUTDATED_RUNS_SQL)]
            return sorted(runs), catalogue.last_batch(con)

    def runs_changed_since(self, state: int) -> list[str]:
        """Return runs with rows or facts newer than this state of the store."""
        if self._is_new():
            return []
        with self._connected() as con:
            sql = "select run_id from held.runs where touched > $since order by 1"
            return [run for (run,) in catalogue.fetch_rows(con, sql, {"since": state})]

    def query(
        self,
        sql: str,
        frames: Mapping[str, pl.DataFrame] | None = None,
        limits: QueryLimits | None = None,
    ) -> pl.DataFrame:
        """Return the rows of a SELECT statement over the tables, and `frames` by name.

        Raises StoreError with DuckDB's message, or if the query exceeds a limit.
        """
        limits = limits or QueryLimits()
        return self._limited(limits.memory_bytes)._rows_within(limits, sql, frames)  # noqa: SLF001

    def _rows_within(
        self, limits: QueryLimits, sql: str, frames: Mapping[str, pl.DataFrame] | None
    ) -> pl.DataFrame:
        """Return the rows of a query of this limited reader."""
        with self._reading(frames=frames) as con, limits.timer(con.interrupt):
            try:
                statements = con.extract_statements(sql)
                if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                    raise NO_SELECT()  # noqa: RSE102 - a kind
                result = limits.rows_of(con.sql(sql))
            except duckdb.InterruptException as error:
                raise QUERY_TOO_LONG(timeout_s=limits.timeout_s) from error
            except duckdb.OutOfMemoryException as error:
                raise limits.too_large() from error
            except duckdb.PermissionException as error:
                raise QUERY_OF_FILES(error=_first_line(error)) from error
            except duckdb.Error as error:
                raise QUERY_FAILED(error=error) from error
            except pl.exceptions.PolarsError as error:
                raise UNSUPPORTED_TYPE() from error  # noqa: RSE102 - a kind
        return result

    def _limited(self, memory_bytes: int) -> Store:
        """Return a reader of this store with a limit of memory; kept for the next query."""
        if self._limited_reader is None or self._limited_reader.memory_bytes != memory_bytes:
            reader = object.__new__(type(self))
            vars(reader).update(vars(self))
            reader._idle, reader.memory_bytes = [], memory_bytes
            self._limited_reader = reader
        return self._limited_reader

    def held(self) -> StoreParts:
        """Return the parts in the catalogue. Raises StoreError if it is too old."""
        with self._connected() as con:
            if self._is_gap_behind(catalogue.last_batch(con)):
                raise self._outrun()
            return StoreParts(catalogue.live_parts(con), set(catalogue.dead_parts(con)))

    def behind(self) -> bool:
        """Return whether the catalogue lacks a stored batch: its writer was killed."""
        with self._connected() as con:
            number = catalogue.last_batch(con) + 1
        return self.shelf.size(parquet_parts.record_path(number)) is not None

    def stray_files(self) -> list[str]:
        """Return unneeded files: merged parts, and leftovers of killed writers."""
        with self._connected() as con:
            known, number = live_paths(self.shelf, con), catalogue.last_batch(con) + 1
        pending = parquet_parts.read_record(self.shelf, number)
        known |= {part.path for part in pending.parts} if pending else set()
        return parquet_parts.find_stray_files(
            self.shelf, known | {parquet_parts.record_path(number)}
        )

    def compare_with_parts(self) -> dict[str, tuple[pl.DataFrame, pl.DataFrame]]:
        """Return each catalogue table as stored, and as rebuilt from the parts."""
        with self._connected() as con, duckdb.connect() as again:
            self._newest_record(con)
            catalogue.create_tables(again)
            self._replay(again, catalogue.last_batch(con))
            stored, replayed = catalogue.derived_tables(con), catalogue.derived_tables(again)
        return {table: (stored[table], replayed[table]) for table in stored}

    # -- the catalogue --------------------------------------------------------------------

    @property
    def _catalogue(self) -> Path:
        return self.home / CATALOGUE_NAME

    @property
    def _next_catalogue(self) -> Path:
        return self.home / f"{CATALOGUE_NAME}.{getpid()}{WRITING_SUFFIX}"

    @contextmanager
    def _reading(
        self,
        tables: Collection[str] = tuple(TABLES),
        runs: Collection[str] | None = None,
        frames: Mapping[str, pl.DataFrame] | None = None,
    ) -> Iterator[Connection]:
        """Connect to the catalogue with views of tables, limited to `runs` if given."""
        with self._connected() as con:
            try:
                catalogue.create_views(con, self.shelf, tables, runs)
            except duckdb.Error as error:
                raise UNREADABLE_PARTS(store=self.path, error=_first_line(error)) from error
            for name, frame in (frames or {}).items():
                con.register(name, frame)
            yield con

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        """Connect to the catalogue. Raises StoreError if missing, damaged or too old."""
        if self.shelf.shared:
            self._meet()
        with self._attached() as con:
            yield con

    @contextmanager
    def _attached(self) -> Iterator[Connection]:
        """Attach this machine's catalogue, read-only.

        Attached, not opened: DuckDB makes one database of a file that a process opens twice, with
        one configuration and the first state. Attached for every read, so the state is current.
        """
        if not self._catalogue.exists():
            raise self._lost()
        self._require_plain_file()
        with _lent(self._idle, self._locked_down, "stored") as con:
            try:
                path = catalogue.sql_literal(str(self._catalogue.absolute()))
                con.execute(f"attach {path} as stored (read_only)")
                self._check_objects(con)
                con.execute("use stored")
            except duckdb.Error as error:
                raise UNREADABLE_CATALOGUE(path=self._catalogue, error=error) from error
            try:
                yield con
            except duckdb.Error as error:
                raise UNREADABLE_STORE(store=self.path, error=_first_line(error)) from error

    def _require_plain_file(self) -> None:
        """Raise StoreError if the catalogue is a link, no file, or beside a journal.

        A writer renames a closed catalogue into place, so a journal is of another program.
        """
        if not stat.S_ISREG(self._catalogue.lstat().st_mode):
            raise UNTRUSTED_CATALOGUE(path=self._catalogue, why="it is a link, or no file")
        if os.path.lexists(f"{self._catalogue}.wal"):
            raise UNTRUSTED_CATALOGUE(path=self._catalogue, why="a journal is beside it")

    def _check_objects(self, con: Connection) -> None:
        """Check the attached catalogue, once per process and state of its file.

        Raises StoreError if it is of another schema, or has what fairmfu never writes.
        """
        state, checked = self._catalogue_state(), _CHECKED_STATES.get(self._catalogue.absolute())
        if state != checked:
            catalogue.check_kinds(con, "stored")
        version = catalogue.schema_version(con, "stored")
        if version != SCHEMA_VERSION:
            raise OTHER_SCHEMA(store=self.path, schema=f"schema {version}", readable=SCHEMA_VERSION)
        if state != checked:
            catalogue.check_tables(con, "stored")
            self._remember_checked(state)

    def _remember_checked(self, state: tuple[int, ...]) -> None:
        """Remember that the catalogue in this state is fairmfu's own."""
        _CHECKED_STATES[self._catalogue.absolute()] = state

    def _catalogue_state(self) -> tuple[int, ...]:
        """Return what changes with the file of the catalogue."""
        found = self._catalogue.stat()
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns

    def _locked_down(self) -> Connection:
        """Start an in-memory database that can reach only the catalogue and the parts."""
        con = duckdb.connect()
        if self.shelf.duckdb_filesystem is not None:
            con.register_filesystem(self.shelf.duckdb_filesystem)
        folder = catalogue.sql_literal(self.shelf.at(part_paths.PARTS_FOLDER))
        con.execute(f"set allowed_directories = [{folder}]")
        if self.memory_bytes is not None:
            con.execute(f"set memory_limit = '{self.memory_bytes} B'")
            con.execute("set temp_directory = ''")
        _lock_down(con, self._catalogue)
        return con

    def _locked_down_writer(self) -> Connection:
        """Start an in-memory database that can reach only the next catalogue."""
        con = duckdb.connect()
        _lock_down(con, self._next_catalogue)
        return con

    def _lost(self) -> StoreError:
        if self._is_new():
            return NO_STORE(store=self.path)
        return CATALOGUE_LOST(store=self.path)

    def _outrun(self) -> StoreError:
        return OUTDATED_CATALOGUE(store=self.path)

    def _is_gap_behind(self, batch: int) -> bool:
        """Return whether a catalogue at `batch` cannot catch up: later records are gone."""
        return parquet_parts.has_record_gap(parquet_parts.recorded_batches(self.shelf), batch)

    def _is_new(self) -> bool:
        """Return whether nothing was ever stored; parts alone mean a lost catalogue."""
        if self.shelf.shared:
            self._meet()
            return not self._catalogue.exists()
        return not self._catalogue.exists() and not parquet_parts.has_any_batch(self.shelf)

    # -- one writer -----------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the store for writing. Raises StoreError that names the holder.

        A write refused by the system (disk full, read-only) also raises StoreError.
        """
        patience = lock.DEFAULT_PATIENCE_S if self.patience_s is None else self.patience_s
        try:
            (self.home / part_paths.PARTS_FOLDER).mkdir(parents=True, exist_ok=True)
            with lock.hold_lock(self.home, patience, self.says):
                yield
        except (OSError, duckdb.Error, pl.exceptions.ComputeError) as error:
            raise _refused(self.path, error) from error

    def _written(self, act: Callable[[StoreWriter], Result]) -> Result:
        """Write, and return the result of `act`; repeat after a conflict."""
        for attempt in range(MAX_WRITE_ATTEMPTS):
            time.sleep(attempt and random.uniform(0, attempt))  # noqa: S311 - spreads retries
            with suppress(BatchConflictError), self._writing() as writer:
                return act(writer)
        raise WRITE_CONFLICTS(store=self.path, attempts=MAX_WRITE_ATTEMPTS)

    @contextmanager
    def _writing(self) -> Iterator[StoreWriter]:
        """Lock the store, update its catalogue, and yield a writer."""
        with self._locked():
            if self.shelf.shared:
                self._follow()
            if self._is_new():  # never leave parts without a catalogue
                self._begin()
            self._restore_trust()
            with self._new_catalogue(from_old=True) as writer:
                writer.catch_up()
                if not self.shelf.shared and self._is_gap_behind(writer.number - 1):
                    raise self._outrun()
                writer.sweep(find_strays=not self.shelf.shared)
                yield writer

    def _begin(self) -> None:
        """Write the empty catalogue of a new store; the caller has the lock."""
        with self._new_catalogue(from_old=False) as writer:
            writer.changed = True

    def _restore_trust(self) -> None:
        """Rebuild the catalogue if fairmfu did not write it; the caller has the lock.

        Raises StoreError if it is gone, damaged or of another schema, or if a part is damaged.
        """
        try:
            with self._attached() as con:
                catalogue.dead_parts(con)
                last = catalogue.last_batch(con)
                if last > self._newest_record(con):
                    raise catalogue.untrusted(con, f"its last batch, {last}, has no record")
        except StoreError as error:
            if getattr(error, "kind", "") != UNTRUSTED_CATALOGUE.identifier:
                raise
            self._rebuild()
            self.says(f"{self._catalogue}: fairmfu did not write it; rebuilt from the parts")

    def _newest_record(self, con: Connection) -> int:
        """Return the number of the newest record, 0 without any.

        Raises StoreError if parts of a later batch are listed and there: a rebuild would lose them
        without a word, because no later record tells of the gap.
        """
        newest = max(parquet_parts.recorded_batches(self.shelf), default=0)
        later = [part for part in catalogue.live_parts(con) if part.first_batch > newest]
        if newest and later:
            there = set(self.shelf.listed(part_paths.PARTS_FOLDER))
            if lost := [part.first_batch for part in later if part.path in there]:
                raise self._record_lost(min(lost))
        return newest

    def _record_lost(self, batch: int, otherwise: str = "") -> StoreError:
        record = parquet_parts.record_path(batch)
        return RECORD_LOST(path=self.shelf.at(record), otherwise=otherwise)

    def _meet(self) -> None:
        """Update the catalogue from other machines, once per SYNC_INTERVAL_S."""
        if time.monotonic() - self._met_at < SYNC_INTERVAL_S:
            return
        recorded, cached = parquet_parts.recorded_batches(self.shelf), self._catalogue.exists()
        if (self._known(recorded) != recorded[-1]) if recorded else cached:
            with self._locked():
                self._follow()
        self._met_at = time.monotonic()

    def _follow(self) -> None:
        """Update the catalogue from other machines now; the caller has the lock."""
        recorded = parquet_parts.recorded_batches(self.shelf)
        if not recorded:
            self._catalogue.unlink(missing_ok=True)
        elif not (known := self._known(recorded)):
            self._rebuild()
        elif known < recorded[-1]:
            with self._new_catalogue(from_old=True) as writer:
                writer.catch_up()
        self._met_at = time.monotonic()

    def _known(self, recorded: Sequence[int]) -> int:
        """Return the catalogue's last batch if it can catch up with the records, else 0."""
        if not self._catalogue.exists():
            return 0
        try:
            with self._attached() as con:
                known = catalogue.last_batch(con)
                paths = {part.path for part in catalogue.live_parts(con)} | set(
                    catalogue.dead_parts(con)
                )
        except StoreError:  # a damaged cache is no loss
            return 0
        if known not in recorded or parquet_parts.has_record_gap(recorded, known):
            return 0
        record = parquet_parts.read_record(self.shelf, known)
        is_ours = record is not None and {part.path for part in record.parts} <= paths
        return known if is_ours else 0

    def _rebuild(self) -> int:
        """Build a catalogue from the records and parts; return the number of parts."""
        with self._new_catalogue(from_old=False) as writer:
            writer.changed = True
            return self._replay(writer.connection)

    def _replay(self, con: Connection, until: int | None = None) -> int:
        """Fill an empty catalogue from records and parts; return the number of parts.

        until: last batch to apply, by default all.
        """
        parts: dict[str, ParquetPart] = {}
        last = 0
        if not self._has_records() and parquet_parts.has_any_batch(self.shelf):
            records = self.path / part_paths.PARTS_FOLDER / part_paths.RECORD_TABLE
            raise RECORDS_LOST(path=records)
        for record in parquet_parts.read_records(self.shelf, until):
            if not record.full and record.batch != last + 1:
                raise self._record_lost(last + 1, RECORD_ANEW)
            kept = {} if record.full else parts
            parts = kept | {part.path: part for part in record.parts}
            last = record.batch
        by_batch: dict[int, Tables] = {}
        for table, frame in replay_parts(self.shelf, parts.values()).items():
            for (batch,), rows in frame.partition_by("batch", as_dict=True).items():
                by_batch.setdefault(int(batch), {})[table] = rows
        catalogue.register_parts(con, list(parts.values()))
        for batch in sorted(by_batch):
            catalogue.apply_batch(con, batch, by_batch[batch])
        catalogue.apply_batch(con, last, {})
        return len(parts)

    def _has_records(self) -> bool:
        """Return whether a record of this schema exists."""
        return next(parquet_parts.read_records(self.shelf), None) is not None

    @contextmanager
    def _opened(self, path: Path) -> Iterator[Connection]:
        """Attach a catalogue for writing, and detach it afterwards."""
        with _lent(self._idle_writers, self._locked_down_writer, "written") as con:
            con.execute(f"attach {catalogue.sql_literal(str(path.absolute()))} as written")
            con.execute("use written")
            yield con

    @contextmanager
    def _new_catalogue(self, *, from_old: bool) -> Iterator[StoreWriter]:
        """Write a new catalogue; rename it over the old one after success, if changed."""
        aside = self._next_catalogue
        for left in self.home.glob(f"{CATALOGUE_NAME}.*"):
            left.unlink()
        try:
            if from_old:
                shutil.copyfile(self._catalogue, aside)
            with self._opened(aside) as con:
                if from_old:
                    catalogue.add_later_columns(con)
                con.execute("begin")
                if not from_old:
                    catalogue.create_tables(con)
                writer = StoreWriter(self.shelf, con)
                yield writer
                con.execute("commit" if writer.changed else "rollback")
                con.execute("checkpoint written")  # here, as on close a failure would be hidden
            if writer.changed:
                sync_to_disk(aside)
                aside.rename(self._catalogue)
                self._remember_checked(self._catalogue_state())
                sync_to_disk(self.home)
        finally:
            for left in self.home.glob(f"{aside.name}*"):
                left.unlink()


def _lock_down(con: Connection, path: Path) -> None:
    """Limit a database to one catalogue and its journal, for good."""
    files = ", ".join(
        catalogue.sql_literal(f"{path.absolute()}{suffix}") for suffix in JOURNAL_SUFFIXES
    )
    con.execute(f"set allowed_paths = [{files}]")
    con.execute("set enable_external_access = false")
    con.execute("set lock_configuration = true")


@contextmanager
def _lent(
    idle: list[Connection], start: Callable[[], Connection], name: str
) -> Iterator[Connection]:
    """Lend an in-memory database, and detach the catalogue `name` afterwards.

    The caller attaches the catalogue. An idle database is reused, because starting one costs as
    much as many reads. The database is idle again afterwards, or closed after an error.
    """
    database = idle.pop() if idle else start()
    try:
        with database.cursor() as con:
            yield con
            con.execute("use memory")
            con.execute(f"detach {name}")
    except BaseException:
        database.close()
        raise
    idle.append(database)


def _named(path: str) -> Path:
    """Return the folder or address in a text."""
    from ..core.paths import parse_path  # noqa: PLC0415 - commands pass a path

    return parse_path(path)


def _shelf_of(path: Path) -> StoreBackend:
    """Return the backend for a store's path."""
    from ..core.paths import as_remote  # noqa: PLC0415 - most stores are folders

    if (address := as_remote(path)) is None:
        return StoreBackend(path)
    from .object_backend import ObjectBackend  # noqa: PLC0415

    return ObjectBackend(address.url)


def _refused(store: Path, error: Exception) -> StoreError:
    """Return the error of a failed write: the reason, and a remedy."""
    why, todo = explain_write_error(error, "--store")
    if isinstance(error, duckdb.Error) and "disk" not in why:
        todo = "See: fairmfu doctor"
    return WRITE_FAILED(store=store, why=why, remedy=todo)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _as_now(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Return rows with the schema's dtypes and the current quirks of their formats."""
    rows = frame.match_to_schema(frame_schema(table))
    if table != "runs":
        return rows
    from .run_quirks import with_quirks  # noqa: PLC0415 - imports every format

    return with_quirks(rows)
