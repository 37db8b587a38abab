"""The store: Parquet parts are the truth, a DuckDB catalogue over them can always be made anew.

    STORE/parts/<table>/<batch>.parquet    ingest.store.parquet_parts: immutable; written aside,
    synced, renamed STORE/catalogue.duckdb                 ingest.store.catalogue: which rows hold,
    and where they stand STORE/writer.lock                      ingest.store.lock: one writer at a
    time; readers never wait

Of a store at an address (ingest.store.object_backend) the parts lie there, the others in a cache of
each machine: the catalogue is brought to what others stored before it is read or written.

A batch writes its parts, then the record that lists them, and renames a new catalogue over the old
one last. The record is what makes it count: a crash before leaves the old state, one behind it the
new, which the next writer puts into the catalogue. What a new file replaces, and how its runs are
called, is decided under the lock, by the catalogue (ingest.store.changeset). Readers open the
catalogue of the moment; parts that a merge made needless stay for writing.GRACE, so nobody reads
into the void.
"""

from __future__ import annotations

import math
import os
import random
import re
import shutil
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
from . import catalogue, compaction, lock, parquet_parts
from .catalogue import FILE_MARK_SCHEMA, Connection, OutdatedSource
from .changeset import FileMark, FileRemark, KnownFile, Tables
from .local_backend import WRITING_SUFFIX, BatchConflictError, StoreBackend, sync_to_disk
from .parquet_parts import ParquetPart
from .run_quirks import with_quirks
from .transactions import BatchScope, StoreWriter, live_paths, replay_parts

__all__ = ["FileMark", "FileRemark", "KnownFile", "Store", "Tables"]

CATALOGUE_NAME: Final = "catalogue.duckdb"
TABLE_ORDER: Final = {
    "sources": "path",
    "runs": "name, launch, run_id",
    "facts": "run_id, sequence",
    "steps": "run_id, line",
    "events": "run_id, line",
    "unread": "sha256, line",
}
MAX_WRITE_ATTEMPTS: Final = 8
"""Times that a write is begun where other machines write too."""
SYNC_INTERVAL_S: Final = 10.0
"""How long what other machines stored need not be asked for again [s]."""

Result = TypeVar("Result")
GLOB_CHARACTERS: Final = re.compile(r"[*?\[\]]")


@dataclass(frozen=True, slots=True)
class StoreParts:
    """Parts by what they are to the catalogue: read from now on, or merged since (paths)."""

    live: list[ParquetPart]
    dead: set[str]


SourcesState = tuple[int, int]
"""How many sources a store has, and the batch of the newest."""


class KnownFolders(NamedTuple):
    """Folders that need not be looked at file by file: all files are known, and as they were.

    listed: by absolute path, ingest.extract.discovery.folder_signature; state: as it was then:
    where a source came, was replaced or removed since, nothing is remembered.
    """

    listed: dict[str, str]
    state: SourcesState


class Store:
    """One folder with parts and a catalogue: what was read of logs, and what is kept of metrics.

    `tables()` and `table(name)` give Polars frames by ingest.core.schema.TABLES, `query(sql)` what
    SQL makes of them; units stand in the schema: [s], [tokens], [bytes], [FLOP/s]. `ingest_logs`
    fills it, `reports.query` has SQL see metrics too.

    Raises StoreError of a path that is a pattern, UnreadableSourceError of an address that no
    package knows; its methods StoreError where the store is missing, damaged, of another schema, or
    cannot be written to.

    >>> Store("perf").tables()["steps"]
    """

    def __init__(
        self,
        path: str | Path,
        *,
        patience_s: float | None = None,
        notify: Callable[[str], None] = lambda _: None,
    ) -> None:
        """The folder need not exist before the first `add`. Raises StoreError on a glob.

        path: of a folder, or the address of one at an object store (`s3://bucket/perf`).
        patience_s: how long a write waits for another writer [s], by default
        lock.DEFAULT_PATIENCE_S; notify: gets a sentence about such a wait.
        """
        path = _named(path) if isinstance(path, str) else path
        self.shelf = _shelf_of(path)
        if GLOB_CHARACTERS.search(self.shelf.at("")):
            raise StoreError(
                f"{path}: a store's path may not hold * ? [ or ]: its parts are read by pattern. "
                "Give another --store."
            )
        self.path = path
        self.home = self.shelf.home
        self.patience_s = patience_s
        self.says = notify
        self._idle: list[Connection] = []
        self._idle_writers: list[Connection] = []
        self._added: tuple[SourcesState, SourcesState] | None = None
        self._met_at = -math.inf

    def __reduce__(self) -> tuple[type[Store], tuple[Path]]:
        """The same store, for a process in another folder or on another machine."""
        return Store, (self.path.absolute(),)

    def without_waiting(self) -> Store:
        """The same store, whose writes fail where another writer is at it. It says nothing."""
        other = Store(self.path, patience_s=0)
        other._idle, other._idle_writers = self._idle, self._idle_writers
        return other

    # -- writing --------------------------------------------------------------------------

    def spool(self) -> Spool:
        """Where rows wait that are to be added, on the store's own disk as they become many."""
        return Spool(self.home / parquet_parts.PARTS_FOLDER)

    def add(
        self,
        logs: Sequence[LogTables],
        known_files: Sequence[KnownFile] = (),
        files: Sequence[FileMark] = (),
        folders: KnownFolders | None = None,
        *,
        earlier_contents: Collection[str] = (),
    ) -> list[FileRemark]:
        """Register sources with all their rows, and the facts of known ones, in one transaction.

        A file replaces the source of the same path whose runs it holds: it grew; so it does where
        `earlier_contents` has the content that it began with. One that holds other runs stands
        beside it. Runs of files that begin alike get ids of their own. files: how they stood, for
        `files` to tell next time. folders: what `folders` is to tell next time, and `state` as it
        was before this, or before what this one added just before; not without anything else.
        """
        if not logs and not known_files and not files:
            return []

        def add(writer: StoreWriter) -> list[FileRemark]:
            before = catalogue.sources_state(writer.connection)
            began = self._added[0] if self._added and self._added[1] == before else before
            plan = writer.plan(BatchScope.of(logs, known_files), earlier_contents)
            for tables in logs:
                plan.place(tables)
            claimed = {one.sha256 for one in known_files}
            for one in known_files:
                plan.see(one, claimed)
            writer.write(plan.frames(writer.number))
            gone = {remark.path for remark in plan.remarks if remark.kind == "gone"}
            writer.mark_files([mark for mark in files if mark.path not in gone])
            if folders is not None and folders.state in {began, before}:
                odd = {remark.path.rpartition(os.sep)[0] for remark in plan.remarks}
                alike = {path: at for path, at in folders.listed.items() if path not in odd}
                catalogue.remember_folders(writer.connection, alike)
            self._added = began, catalogue.sources_state(writer.connection)
            return plan.remarks

        return self._written(add)

    def give_facts(self, facts_of_runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> int:
        """Give facts to runs by id, each in place of an earlier one; how many are new.

        One without a value is taken back.
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
        """Forget the sources that hold these runs, with all the runs of each: by path, their ids.

        A file that is still there is read again by the next ingest of it.
        """

        def remove(writer: StoreWriter) -> dict[str, list[str]]:
            plan = writer.plan(BatchScope(runs=runs))
            gone = plan.remove(runs)
            writer.write(plan.frames(writer.number))
            return gone

        return self._written(remove)

    def keep(self, table: str, frame: pl.DataFrame, as_of: int | None = None) -> None:
        """Append rows to a table that is no log's: metrics, baselines, nights.

        as_of: the state of the store that they were computed from; a run that was touched since is
        told again by `outdated_runs`. Metrics of a run whose kept ones are of a later state are
        left out: another process was faster, and saw more.
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
        """Make the catalogue anew from the parts alone. How many parts it found."""
        if self._is_new():
            raise self._lost()
        with self._locked():
            return self._rebuild()

    def compact(self) -> tuple[int, int]:
        """Merge all parts of each table into one: how many parts there were, and are."""
        if self._is_new():
            raise self._lost()

        def merge(writer: StoreWriter) -> tuple[int, int]:
            if self.shelf.shared:  # else each write does it
                writer.sweep(find_strays=True)
            before = catalogue.live_parts(writer.connection)
            writer.merge(compaction.full_merges(before))
            return len(before), len(catalogue.live_parts(writer.connection))

        return self._written(merge)

    # -- reading --------------------------------------------------------------------------

    def known_sources(self) -> dict[str, str]:
        """Content hash to path of each source."""
        if self._is_new():
            return {}
        with self._connected() as con:
            return dict(con.sql("select sha256, path from held.sources").fetchall())

    def outdated_sources(self) -> dict[str, OutdatedSource]:
        """Sources that today's readers read otherwise (schema.READINGS), by content hash."""
        if self._is_new():
            return {}
        with self._connected() as con:
            return catalogue.find_outdated_sources(con)

    def known_sizes(self) -> set[int]:
        """Sizes of the sources as they were read [bytes]."""
        if self._is_new():
            return set()
        with self._connected() as con:
            return {size for (size,) in con.sql("select bytes from held.sources").fetchall()}

    def files(self) -> dict[str, FileMark]:
        """How files stood when they were last looked at, by path; a mere cache.

        Those whose content is stored, and those that were passed over (no sha256).
        """
        if self._is_new():
            return {}
        with self._connected() as con:
            rows = con.sql(
                f"select {', '.join(FILE_MARK_SCHEMA)} from held.files "  # noqa: S608
                "where path not like '%/' "
                "and (sha256 = '' or sha256 in (select sha256 from held.sources))"
            ).fetchall()
        return {row[0]: FileMark._make(row) for row in rows}

    def folders(self) -> KnownFolders:
        """Folders that are remembered as of the sources that are stored; a mere cache."""
        if self._is_new():
            return KnownFolders({}, (0, 0))
        with self._connected() as con:
            state = catalogue.sources_state(con)
            return KnownFolders(catalogue.remembered_folders(con, state), state)

    def table(self, name: str, runs: Collection[str] | None = None) -> pl.DataFrame:
        """A table of `TABLES`, in the order of `TABLE_ORDER`, of all runs or of these alone.

        Of `sources` and `unread`, runs are the sources that hold them.
        """
        with self._reading((name,), runs) as con:
            columns = ", ".join(TABLES[name])
            frame: pl.DataFrame = con.sql(
                f"select {columns} from {name} order by {TABLE_ORDER[name]}"  # noqa: S608 - constants
            ).pl()
        return _as_now(name, frame)

    def tables(self, runs: Collection[str] | None = None) -> Tables:
        """All of `TABLES`, at one state of the store."""
        with self._reading(runs=runs) as con:
            found = {
                name: con.sql(f"select {', '.join(TABLES[name])} from {name} order by {order}").pl()  # noqa: S608
                for name, order in TABLE_ORDER.items()
            }
        return {name: _as_now(name, frame) for name, frame in found.items()}

    def require_batches(self) -> None:
        """Raises StoreError where nothing was ever stored."""
        if self._is_new():
            raise self._lost()

    def kept(self, table: str, latest_by: Sequence[str] = ()) -> pl.DataFrame:
        """Rows of a table that belongs to no log, oldest first.

        latest_by: only the newest of each of these. With `as_of`, the state of the store that the
        rows were computed from. Empty, without columns, where nothing was kept.
        """
        if self._is_new():
            return pl.DataFrame()
        with self._connected() as con:
            found = catalogue.live_parts(con, {table})
        frames = [parquet_parts.read_rows_with_batch(self.shelf, part) for part in found]
        if not frames:
            return pl.DataFrame()
        rows = pl.concat(frames, how="diagonal_relaxed").sort("batch", maintain_order=True)
        return (compaction.latest_rows(rows, latest_by) if latest_by else rows).drop("batch")

    def outdated_runs(self) -> tuple[list[str], int]:
        """Runs whose rows or facts are newer than what is kept of their metrics; and the state."""
        if self._is_new():
            return [], 0
        with self._connected() as con:
            runs = [run for (run,) in con.sql(catalogue.OUTDATED_RUNS_SQL).fetchall()]
            return sorted(runs), catalogue.last_batch(con)

    def runs_changed_since(self, state: int) -> list[str]:
        """Runs whose rows or facts are newer than that state of the store."""
        if self._is_new():
            return []
        with self._connected() as con:
            sql = "select run_id from held.runs where touched > $since order by 1"
            return [run for (run,) in con.sql(sql, params={"since": state}).fetchall()]

    def query(self, sql: str, frames: Mapping[str, pl.DataFrame] | None = None) -> pl.DataFrame:
        """The rows of one read-only statement over the tables, and over `frames` by name.

        Raises StoreError with DuckDB's own message.
        """
        with self._reading(frames=frames) as con:
            try:
                statements = con.extract_statements(sql)
                if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                    raise StoreError("query takes one SELECT statement: a store is read-only here.")
                result: pl.DataFrame = con.sql(sql).pl()
            except duckdb.PermissionException as error:
                raise StoreError(
                    "query reads the tables of the store, and no other file or address. "
                    f"{_first_line(error)}"
                ) from error
            except duckdb.Error as error:
                raise StoreError(f"query: {error}") from error
            except pl.exceptions.PolarsError as error:
                raise StoreError(
                    "query: a column of the result has a type that is not read, as the difference "
                    "of two times has. Cast it, to seconds with epoch(…), or to text with ::text."
                ) from error
        return result

    def held(self) -> StoreParts:
        """The parts that the catalogue knows. Raises StoreError where it is older than they are."""
        with self._connected() as con:
            if self._is_gap_behind(catalogue.last_batch(con)):
                raise self._outrun()
            return StoreParts(catalogue.live_parts(con), set(catalogue.dead_parts(con)))

    def behind(self) -> bool:
        """Whether a batch is there whose writer was killed before its catalogue stood."""
        with self._connected() as con:
            number = catalogue.last_batch(con) + 1
        return self.shelf.size(parquet_parts.record_path(number)) is not None

    def stray_files(self) -> list[str]:
        """Parts that no reader of now reads: merged ones, and what killed writers left."""
        with self._connected() as con:
            known, number = live_paths(con), catalogue.last_batch(con) + 1
        pending = parquet_parts.read_record(self.shelf, number)
        known |= {part.path for part in pending.parts} if pending else set()
        return parquet_parts.find_stray_files(
            self.shelf, known | {parquet_parts.record_path(number)}
        )

    def compare_with_parts(self) -> dict[str, tuple[pl.DataFrame, pl.DataFrame]]:
        """Each table of the catalogue as it stands, and as it follows from the parts."""
        with self._connected() as con, duckdb.connect() as again:
            catalogue.create_tables(again)
            self._replay(again, catalogue.last_batch(con))
            stored, replayed = catalogue.derived_tables(con), catalogue.derived_tables(again)
        return {table: (stored[table], replayed[table]) for table in stored}

    # -- the catalogue --------------------------------------------------------------------

    @property
    def _catalogue(self) -> Path:
        return self.home / CATALOGUE_NAME

    @contextmanager
    def _reading(
        self,
        tables: Collection[str] = tuple(TABLES),
        runs: Collection[str] | None = None,
        frames: Mapping[str, pl.DataFrame] | None = None,
    ) -> Iterator[Connection]:
        """The catalogue with views of tables, of all runs or of these, and of `frames`."""
        with self._connected() as con:
            try:
                catalogue.create_views(con, self.shelf, tables, runs)
            except duckdb.Error as error:
                raise StoreError(
                    f"{self.path}: a part is gone or damaged ({_first_line(error)}). "
                    "See: fairmfu doctor"
                ) from error
            for name, frame in (frames or {}).items():
                con.register(name, frame)
            yield con

    @contextmanager
    def _connected(self) -> Iterator[Connection]:
        """The catalogue, for reading. Raises StoreError where it is gone, damaged or too old."""
        if self.shelf.shared:
            self._meet()
        with self._attached() as con:
            yield con

    @contextmanager
    def _attached(self) -> Iterator[Connection]:
        """The catalogue as it stands on this machine.

        Attached, not opened: what a process opens twice is one database to DuckDB, with one
        configuration and as it stood at first. Attached anew each time: as it stands now.
        """
        if not self._catalogue.exists():
            raise self._lost()
        with _lent(self._idle, self._locked_down, "stored") as con:
            try:
                path = catalogue.sql_literal(str(self._catalogue.absolute()))
                con.execute(f"attach {path} as stored (read_only)")
                con.execute("use stored")
            except duckdb.Error as error:
                raise StoreError(
                    f"{self._catalogue}: cannot be read ({error}). "
                    "Make it anew with: fairmfu rebuild"
                ) from error
            version = _version(con)
            if version != SCHEMA_VERSION:
                raise self._other_schema(version)
            try:
                yield con
            except duckdb.Error as error:
                raise StoreError(
                    f"{self.path}: cannot be read ({_first_line(error)}). See: fairmfu doctor"
                ) from error

    def _locked_down(self) -> Connection:
        """A database in memory that reaches the catalogue, the parts, and nothing else."""
        con = duckdb.connect()
        if self.shelf.duckdb_filesystem is not None:
            con.register_filesystem(self.shelf.duckdb_filesystem)
        path = str(self._catalogue.absolute())
        files = ", ".join(
            map(catalogue.sql_literal, (path, f"{path}.wal"))
        )  # its journal is asked for
        folder = catalogue.sql_literal(self.shelf.at(parquet_parts.PARTS_FOLDER))
        con.execute(f"set allowed_paths = [{files}]")
        con.execute(f"set allowed_directories = [{folder}]")
        con.execute("set enable_external_access = false")
        con.execute("set lock_configuration = true")
        return con

    def _other_schema(self, version: str | None) -> StoreError:
        schema = "an unknown schema" if version is None else f"schema {version}"
        return StoreError(
            f"{self.path}: a store of {schema}, which this program (schema {SCHEMA_VERSION}) does "
            "not read. Use the version of fairmfu that wrote it."
        )

    def _lost(self) -> StoreError:
        if self._is_new():
            return StoreError(
                f"{self.path}: no store here. Name yours with --store or FAIRMFU_STORE, or "
                "make one with: fairmfu ingest LOG… --store DIR"
            )
        return StoreError(f"{self.path}: the catalogue is gone. Make it anew with: fairmfu rebuild")

    def _outrun(self) -> StoreError:
        return StoreError(
            f"{self.path}: the catalogue is older than the parts (it was copied, or came from a "
            "backup). Make it anew with: fairmfu rebuild"
        )

    def _is_gap_behind(self, batch: int) -> bool:
        """Whether the catalogue cannot catch up."""
        return parquet_parts.has_record_gap(parquet_parts.recorded_batches(self.shelf), batch)

    def _is_new(self) -> bool:
        """Whether nothing was ever stored; parts without a catalogue have lost it."""
        if self.shelf.shared:
            self._meet()
            return not self._catalogue.exists()
        return not self._catalogue.exists() and not parquet_parts.has_any_batch(self.shelf)

    # -- one writer -----------------------------------------------------------------------

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """The only writer. Raises StoreError that names the holder when the wait is over.

        A write that the system refuses (a full disk, a read-only one) is a StoreError as well.
        """
        patience = lock.DEFAULT_PATIENCE_S if self.patience_s is None else self.patience_s
        try:
            (self.home / parquet_parts.PARTS_FOLDER).mkdir(parents=True, exist_ok=True)
            with lock.hold_lock(self.home, patience, self.says):
                yield
        except (OSError, duckdb.Error, pl.exceptions.ComputeError) as error:
            raise StoreError(_refused(self.path, error)) from error

    def _written(self, act: Callable[[StoreWriter], Result]) -> Result:
        """What comes of writing; done again where another machine was faster."""
        for attempt in range(MAX_WRITE_ATTEMPTS):
            time.sleep(attempt and random.uniform(0, attempt))  # noqa: S311 - who comes next
            with suppress(BatchConflictError), self._writing() as writer:
                return act(writer)
        raise StoreError(
            f"{self.path}: other machines wrote there {MAX_WRITE_ATTEMPTS} times while this one "
            "was about to; nothing of it was stored. Run it again."
        )

    @contextmanager
    def _writing(self) -> Iterator[StoreWriter]:
        """The only writer, of a store that is up to date and whole."""
        with self._locked():
            if self.shelf.shared:
                self._follow()
            if self._is_new():  # so that parts never stand without a catalogue
                with self._new_catalogue(from_old=False) as writer:
                    writer.changed = True
            with self._attached():  # which tells one that is gone, damaged or of another schema
                pass
            with self._new_catalogue(from_old=True) as writer:
                writer.catch_up()
                if not self.shelf.shared and self._is_gap_behind(writer.number - 1):
                    raise self._outrun()
                writer.sweep(find_strays=not self.shelf.shared)
                yield writer

    def _meet(self) -> None:
        """Bring this machine's catalogue to what others stored; it may be some seconds behind."""
        if time.monotonic() - self._met_at < SYNC_INTERVAL_S:
            return
        recorded, cached = parquet_parts.recorded_batches(self.shelf), self._catalogue.exists()
        if (self._known(recorded) != recorded[-1]) if recorded else cached:
            with self._locked():
                self._follow()
        self._met_at = time.monotonic()

    def _follow(self) -> None:
        """As `_meet`, at once; whoever calls has the lock."""
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
        """The last batch that the catalogue knows, where it can catch up with these; else 0."""
        if not self._catalogue.exists():
            return 0
        try:
            with self._attached() as con:
                known = catalogue.last_batch(con)
                there = {part.path for part in catalogue.live_parts(con)} | set(
                    catalogue.dead_parts(con)
                )
        except StoreError:  # a cache that is damaged is no loss
            return 0
        if known not in recorded or parquet_parts.has_record_gap(recorded, known):
            return 0
        record = parquet_parts.read_record(self.shelf, known)
        is_ours = record is not None and {part.path for part in record.parts} <= there
        return known if is_ours else 0

    def _rebuild(self) -> int:
        """A catalogue from the records and their parts; how many parts."""
        with self._new_catalogue(from_old=False) as writer:
            writer.changed = True
            return self._replay(writer.connection)

    def _replay(self, con: Connection, until: int | None = None) -> int:
        """Fill an empty catalogue from the records and their parts; how many parts.

        until: the last batch that counts; all, without it.
        """
        found: dict[str, ParquetPart] = {}
        last = 0
        if not self._has_records() and parquet_parts.has_any_batch(self.shelf):
            raise StoreError(
                f"{self.path / parquet_parts.PARTS_FOLDER / parquet_parts.RECORD_TABLE}: the "
                "records of the batches are gone, and with them which parts count. Bring them "
                "back, or ingest the logs again into a new --store."
            )
        for record in parquet_parts.read_records(self.shelf, until):
            kept = {} if record.full else found
            found = kept | {part.path: part for part in record.parts}
            last = record.batch
        by_batch: dict[int, Tables] = {}
        for table, frame in replay_parts(self.shelf, found.values()).items():
            for (batch,), rows in frame.partition_by("batch", as_dict=True).items():
                by_batch.setdefault(int(batch), {})[table] = rows
        catalogue.register_parts(con, list(found.values()))
        for batch in sorted(by_batch):
            catalogue.apply_batch(con, batch, by_batch[batch])
        catalogue.apply_batch(con, last, {})
        return len(found)

    def _has_records(self) -> bool:
        """Whether there is a record of this schema."""
        return next(parquet_parts.read_records(self.shelf), None) is not None

    @contextmanager
    def _opened(self, path: Path) -> Iterator[Connection]:
        """A catalogue for writing, closed behind it."""
        with _lent(self._idle_writers, duckdb.connect, "written") as con:
            con.execute(f"attach {catalogue.sql_literal(str(path.absolute()))} as written")
            con.execute("use written")
            yield con

    @contextmanager
    def _new_catalogue(self, *, from_old: bool) -> Iterator[StoreWriter]:
        """A new catalogue, renamed over the old one when all went well and something changed."""
        aside = self.home / f"{CATALOGUE_NAME}.{getpid()}{WRITING_SUFFIX}"
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
                con.execute("checkpoint written")  # else closing does, and hides that it fails
            if writer.changed:
                sync_to_disk(aside)
                aside.rename(self._catalogue)
                sync_to_disk(self.home)
        finally:
            for left in self.home.glob(f"{aside.name}*"):
                left.unlink()


@contextmanager
def _lent(
    idle: list[Connection], start: Callable[[], Connection], name: str
) -> Iterator[Connection]:
    """A database in memory to which a catalogue is attached by that name, meanwhile.

    One that is idle, for to start another takes as long as many reads; it is idle again behind it,
    or closed where that failed.
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
    """The folder or the address that a text names."""
    from ..core.paths import parse_path  # noqa: PLC0415 - commands have a path already

    return parse_path(path)


def _shelf_of(path: Path) -> StoreBackend:
    """Where the parts of the store of that path lie."""
    from ..core.paths import as_remote  # noqa: PLC0415 - most stores are folders

    if (address := as_remote(path)) is None:
        return StoreBackend(path)
    from .object_backend import ObjectBackend  # noqa: PLC0415

    return ObjectBackend(address.url)


def _version(con: Connection) -> str | None:
    """The version of a catalogue's schema; None where it tells none."""
    with suppress(duckdb.Error):
        ((version,),) = con.sql("select schema_version from held.about").fetchall()
        return str(version)
    return None


def _refused(store: Path, error: Exception) -> str:
    """What the system or a library says of a write that failed, and what to do."""
    why, todo = explain_write_error(error, "--store")
    if isinstance(error, duckdb.Error) and "disk" not in why:
        todo = "See: fairmfu doctor"
    return f"{store}: {why}; what was stored before is whole and can be read. {todo}"


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _as_now(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Rows with the dtypes of the schema, and what their formats say by now."""
    rows = frame.match_to_schema(frame_schema(table))
    return with_quirks(rows) if table == "runs" else rows
