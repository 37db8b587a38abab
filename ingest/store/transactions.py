"""Writes of the lock's holder: first parts and a record, then the catalogue.

A merge replaces parts that readers of the earlier catalogue may still read. The replaced parts
stay for MERGED_PART_GRACE.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain
from typing import Final

import polars as pl

from ..core.schema import frame_schema, reading_changes_since
from ..core.spill import LogTables, TableRows, collect_rows
from . import catalogue, compaction, parquet_parts, part_checks, part_paths, staged_parts
from .catalogue import Connection
from .changeset import Changeset, FileMark, KnownFile, StoredSource, Tables, base_id
from .local_backend import BatchConflictError, StoreBackend
from .parquet_parts import BatchRecord, ParquetPart

MERGED_PART_GRACE: Final = timedelta(hours=1)
"""Time that merged parts stay for readers of an earlier catalogue."""
RECORD_GRACE: Final = timedelta(days=7)
"""Time that old records stay in a store shared between machines: a machine slower than this would
use a batch number twice.
"""


@dataclass(frozen=True, slots=True)
class BatchScope:
    """Paths, contents and runs that determine all rows a batch can change."""

    paths: Collection[str] = ()
    sources: Collection[str] = ()
    runs: Collection[str] = ()

    @classmethod
    def of(cls, batch: Sequence[LogTables], known_files: Sequence[KnownFile]) -> BatchScope:
        """Return the scope of newly read logs, and of files with known content."""
        sources = [collect_rows(tables["sources"]) for tables in batch]
        runs = (run for tables in batch for run in collect_rows(tables["runs"])["run_id"])
        return cls(
            [*(source["path"][0] for source in sources), *(file.path for file in known_files)],
            [*(source["sha256"][0] for source in sources), *(file.sha256 for file in known_files)],
            list(runs),
        )

    def frame(self) -> pl.DataFrame:
        """Return a row per path, content and base id, as catalogue.SCOPE_SCHEMA."""
        bases = [base_id(run) for run in self.runs]
        named = {"path": self.paths, "sha256": self.sources, "base": bases}
        frames = [pl.DataFrame({name: list(values)}) for name, values in named.items() if values]
        return pl.concat([catalogue.SCOPE_SCHEMA.to_frame(), *frames], how="diagonal")


class StoreWriter:
    """Writer of batches into a store and the next catalogue.

    connection: to the next catalogue.
    changed: True if the next catalogue differs, so the old one must be replaced.
    """

    def __init__(self, backend: StoreBackend, connection: Connection) -> None:
        self.shelf = backend
        self.connection = connection
        self.changed = False

    @property
    def number(self) -> int:
        """Number of the next batch."""
        return catalogue.last_batch(self.connection) + 1

    def plan(self, scope: BatchScope, earlier_contents: Collection[str] = ()) -> Changeset:
        """Plan a batch from the stored state within its scope.

        earlier_contents: hashes of contents that files of this batch began with.
        """
        if catalogue.is_empty(self.connection):
            return Changeset([], frame_schema("facts").to_frame(), utc_now(), earlier_contents)
        self.connection.register("asked", scope.frame())
        source_rows = catalogue.fetch_rows(self.connection, catalogue.STORED_SOURCES_SQL)
        facts = catalogue.fetch_frame(self.connection, catalogue.STORED_FACTS_SQL)
        self.connection.unregister("asked")
        stored = [
            StoredSource(
                path=path,
                sha256=sha256,
                runs=tuple(runs),
                read_at=read_at,
                step_lines=step_lines,
                runs_with_steps=partial(self._stepped, batch, tuple(runs)),
                read_otherwise=bool(reading_changes_since(*reading)),
            )
            for path, sha256, batch, read_at, step_lines, *reading, runs in source_rows
        ]
        return Changeset(stored, facts, utc_now(), earlier_contents)

    def _stepped(self, batch: int, runs: Sequence[str]) -> frozenset[str]:
        """Return those of the given runs that have a step in this batch."""
        steps = catalogue.live_parts(self.connection, {"steps"})
        parts = (part for part in steps if part.first_batch <= batch <= part.last_batch)
        of_runs = pl.col("batch") == batch, pl.col("run_id").is_in(runs)
        frames = (
            parquet_parts.read_rows_with_batch(self.shelf, part, ["run_id"]).filter(*of_runs)
            for part in parts
        )
        return frozenset(run for rows in frames for run in rows["run_id"].unique())

    def write(self, frames: Mapping[str, TableRows]) -> None:
        """Write one batch of rows by table; no batch if there are no tables."""
        if not frames:
            return
        number = self.number
        written = [self._parts(name, table, number) for name, table in frames.items()]
        record = BatchRecord(number, tuple(chain.from_iterable(written)), full=False)
        parquet_parts.write_record(self.shelf, record)
        mark = pl.lit(number, pl.Int64).alias("batch")
        frames_with_batch = {
            n: f.with_columns(mark) for n, f in frames.items() if isinstance(f, pl.DataFrame)
        }
        self._register(record, frames_with_batch)
        with suppress(BatchConflictError):  # the batch is stored; the faster machine may merge
            while groups := compaction.due_merges(catalogue.live_parts(self.connection)):
                self.merge(groups)

    def _parts(self, name: str, rows: TableRows, number: int) -> list[ParquetPart]:
        """Write rows of one table as parts, and reuse complete staged parts."""
        taken, left = staged_parts.split_off_staged_parts(rows)
        of_batch = [part.assign_to_batch(number) for part in taken]
        written = [] if left is None else parquet_parts.write_parts(self.shelf, name, left, number)
        return of_batch + written

    def mark_files(self, files: Sequence[FileMark]) -> None:
        """Remember the state of files."""
        if files:
            catalogue.mark_files(self.connection, files)
            self.changed = True

    def merge(self, groups: Sequence[Sequence[ParquetPart]]) -> None:
        """Merge each group of parts of a table, in a batch that changes no row."""
        if not groups:
            return
        number = self.number
        live = {
            "runs": catalogue.fetch_frame(self.connection, "select run_id, batch from held.runs"),
            "sources": catalogue.fetch_frame(
                self.connection, "select sha256, batch from held.sources"
            ),
        }
        merged = {part.path for group in groups for part in group}
        after = [part for part in catalogue.live_parts(self.connection) if part.path not in merged]
        for group in groups:
            rows = compaction.merge_live_rows(self.shelf, group, live)
            if rows.height:
                table, tier = group[0].table_name, max(part.tier for part in group) + 1
                after.append(parquet_parts.write_part(self.shelf, table, rows, number, tier))
        record = BatchRecord(number, tuple(after), full=True)
        parquet_parts.write_record(self.shelf, record)
        self._register(record, {})

    def catch_up(self) -> None:
        """Apply batches whose writer was killed before it replaced the catalogue."""
        while (record := parquet_parts.read_record(self.shelf, self.number)) is not None:
            self._register(record, {} if record.full else replay_parts(self.shelf, record.parts))

    def sweep(self, *, find_strays: bool) -> None:
        """Delete parts and records replaced by merges, after their grace time.

        find_strays: also list all files, and delete the leftovers of killed writers.
        """
        dead = catalogue.dead_parts(self.connection)
        gone = {path for path, since in dead.items() if abs(utc_now() - since) >= self._grace(path)}
        strays = (
            parquet_parts.find_stray_files(
                self.shelf, live_paths(self.shelf, self.connection) | dead.keys()
            )
            if find_strays
            else ()
        )
        for path in (
            *gone,
            *(path for path in strays if not staged_parts.may_still_be_listed(self.shelf, path)),
        ):
            self.shelf.delete(path)
        if gone:
            catalogue.forget_dead_parts(self.connection, gone)
            self.changed = True

    def _grace(self, path: str) -> timedelta:
        """Return the time that a replaced file stays for readers of an earlier catalogue."""
        is_record = path.startswith(f"{part_paths.PARTS_FOLDER}/{part_paths.RECORD_TABLE}/")
        return RECORD_GRACE if is_record and self.shelf.shared else MERGED_PART_GRACE

    def _register(self, record: BatchRecord, frames: Mapping[str, pl.DataFrame]) -> None:
        """Apply a record to the catalogue; frames: its rows, empty for a full record."""
        live = {part.path for part in catalogue.live_parts(self.connection)}
        if record.full:
            gone = live - {part.path for part in record.parts}
            earlier = parquet_parts.record_paths_before(self.shelf, record.batch)
            catalogue.retire_parts(self.connection, [*gone, *earlier], utc_now())
        catalogue.register_parts(
            self.connection, [part for part in record.parts if part.path not in live]
        )
        catalogue.apply_batch(self.connection, record.batch, frames)
        self.changed = True


def live_paths(backend: StoreBackend, connection: Connection) -> set[str]:
    """Return the paths of all live parts, and of the records that a rebuild may need."""
    last = catalogue.last_batch(connection)
    records = {
        parquet_parts.record_path(number)
        for number in parquet_parts.recorded_batches(backend)
        if number <= last
    } - set(catalogue.dead_parts(connection))
    return {part.path for part in catalogue.live_parts(connection)} | records


def replay_parts(backend: StoreBackend, written: Iterable[ParquetPart]) -> Tables:
    """Return the rows for the catalogue. Raises StoreError on a damaged part.

    Checksums are verified first, so no changed byte of a part becomes a row.
    """
    parts_of: dict[str, list[ParquetPart]] = {}
    for part in written:
        if part.table_name in catalogue.REPLAYED_TABLES:
            parts_of.setdefault(part.table_name, []).append(part)
        else:
            part_checks.check_part(backend, part)
    return {table: compaction.concat_rows(backend, parts) for table, parts in parts_of.items()}


def utc_now() -> datetime:
    """Return UTC without a time zone, as all times of a store."""
    return datetime.now(UTC).replace(tzinfo=None)
