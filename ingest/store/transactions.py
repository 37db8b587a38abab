"""What the holder of the lock does: parts and records first, and a catalogue that says so.

A merge makes parts needless that readers of the catalogue before may still read: they stay for
MERGED_PART_GRACE.
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

from ..core.schema import reading_changes_since
from ..core.spill import LogTables, TableRows, collect_rows
from . import catalogue, compaction, parquet_parts, staged_parts
from .catalogue import Connection
from .changeset import Changeset, FileMark, KnownFile, StoredSource, Tables, base_id
from .local_backend import BatchConflictError, StoreBackend
from .parquet_parts import BatchRecord, ParquetPart

MERGED_PART_GRACE: Final = timedelta(hours=1)
"""How long parts that were merged stay for readers of the catalogue before."""
RECORD_GRACE: Final = timedelta(days=7)
"""How long records stay where other machines write too: who is slower than that would take a number
that was taken."""


@dataclass(frozen=True, slots=True)
class BatchScope:
    """What a batch is about: all that it can touch follows from it."""

    paths: Collection[str] = ()
    sources: Collection[str] = ()
    runs: Collection[str] = ()

    @classmethod
    def of(cls, batch: Sequence[LogTables], known_files: Sequence[KnownFile]) -> BatchScope:
        """Logs that were read, and files of known content."""
        sources = [collect_rows(tables["sources"]) for tables in batch]
        runs = (run for tables in batch for run in collect_rows(tables["runs"])["run_id"])
        return cls(
            [*(one["path"][0] for one in sources), *(one.path for one in known_files)],
            [*(one["sha256"][0] for one in sources), *(one.sha256 for one in known_files)],
            list(runs),
        )

    def frame(self) -> pl.DataFrame:
        """A row for each, in the columns of catalogue.SCOPE_SCHEMA."""
        bases = [base_id(run) for run in self.runs]
        named = {"path": self.paths, "sha256": self.sources, "base": bases}
        frames = [pl.DataFrame({name: list(one)}) for name, one in named.items() if one]
        return pl.concat([catalogue.SCOPE_SCHEMA.to_frame(), *frames], how="diagonal")


class StoreWriter:
    """Writes one batch after another into a store, and says so in a catalogue.

    connection: to the catalogue that will take the place of the old one; changed: whether it has
    to.
    """

    def __init__(self, backend: StoreBackend, connection: Connection) -> None:
        self.shelf = backend
        self.connection = connection
        self.changed = False

    @property
    def number(self) -> int:
        """The number of the batch that is about to be written."""
        return catalogue.last_batch(self.connection) + 1

    def plan(self, scope: BatchScope, earlier_contents: Collection[str] = ()) -> Changeset:
        """A plan on what stands of that; earlier_contents: contents that files began with."""
        self.connection.register("asked", scope.frame())
        found = self.connection.sql(catalogue.STORED_SOURCES_SQL).fetchall()
        facts = self.connection.sql(catalogue.STORED_FACTS_SQL).pl()
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
            for path, sha256, batch, read_at, step_lines, *reading, runs in found
        ]
        return Changeset(stored, facts, utc_now(), earlier_contents)

    def _stepped(self, batch: int, runs: Sequence[str]) -> frozenset[str]:
        """Runs of a batch that have a step."""
        steps = catalogue.live_parts(self.connection, {"steps"})
        here = (part for part in steps if part.first_batch <= batch <= part.last_batch)
        mine = pl.col("batch") == batch, pl.col("run_id").is_in(runs)
        each = (
            parquet_parts.read_rows_with_batch(self.shelf, part, ["run_id"]).filter(*mine)
            for part in here
        )
        return frozenset(run for rows in each for run in rows["run_id"].unique())

    def write(self, frames: Mapping[str, TableRows]) -> None:
        """One batch of rows, by table; nothing where there are none."""
        if not frames:
            return
        number = self.number
        written = [self._parts(name, table, number) for name, table in frames.items()]
        record = BatchRecord(number, tuple(chain.from_iterable(written)), full=False)
        parquet_parts.write_record(self.shelf, record)
        mark = pl.lit(number, pl.Int64).alias("batch")
        told = {n: f.with_columns(mark) for n, f in frames.items() if isinstance(f, pl.DataFrame)}
        self._register(record, told)
        with suppress(BatchConflictError):  # what is written stands; whoever overtook it may merge
            while groups := compaction.due_merges(catalogue.live_parts(self.connection)):
                self.merge(groups)

    def _parts(self, name: str, rows: TableRows, number: int) -> list[ParquetPart]:
        """Rows of one table as parts; those that workers wrote as they are, where all is stored."""
        taken, left = staged_parts.split_off_staged_parts(rows)
        of_batch = [one.assign_to_batch(number) for one in taken]
        written = [] if left is None else parquet_parts.write_parts(self.shelf, name, left, number)
        return of_batch + written

    def mark_files(self, files: Sequence[FileMark]) -> None:
        """How files stood."""
        if files:
            catalogue.mark_files(self.connection, files)
            self.changed = True

    def merge(self, groups: Sequence[Sequence[ParquetPart]]) -> None:
        """Each group of parts of one table becomes one part, in a batch that changes no row."""
        if not groups:
            return
        number = self.number
        live = {
            "runs": self.connection.sql("select run_id, batch from held.runs").pl(),
            "sources": self.connection.sql("select sha256, batch from held.sources").pl(),
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
        """Batches whose writer was killed before its catalogue stood."""
        while (record := parquet_parts.read_record(self.shelf, self.number)) is not None:
            self._register(record, {} if record.full else replay_parts(self.shelf, record.parts))

    def sweep(self, *, find_strays: bool) -> None:
        """Delete what no reader needs: parts that were merged, and what killed writers left.

        find_strays: look for the latter, by all files that there are.
        """
        dead = catalogue.dead_parts(self.connection)
        gone = {path for path, since in dead.items() if abs(utc_now() - since) >= self._grace(path)}
        left = (
            parquet_parts.find_stray_files(self.shelf, live_paths(self.connection) | dead.keys())
            if find_strays
            else ()
        )
        for path in (
            *gone,
            *(path for path in left if not staged_parts.may_still_be_listed(self.shelf, path)),
        ):
            self.shelf.delete(path)
        if gone:
            catalogue.forget_dead_parts(self.connection, gone)
            self.changed = True

    def _grace(self, path: str) -> timedelta:
        """How long a file that readers of now do not need stays."""
        is_record = path.startswith(f"{parquet_parts.PARTS_FOLDER}/{parquet_parts.RECORD_TABLE}/")
        return RECORD_GRACE if is_record and self.shelf.shared else MERGED_PART_GRACE

    def _register(self, record: BatchRecord, frames: Mapping[str, pl.DataFrame]) -> None:
        """Put what a record says into the catalogue; frames: its rows, of a full one none."""
        known = {part.path for part in catalogue.live_parts(self.connection)}
        if record.full:
            gone = known - {part.path for part in record.parts}
            earlier = parquet_parts.record_paths_before(self.shelf, record.batch)
            catalogue.retire_parts(self.connection, [*gone, *earlier], utc_now())
        catalogue.register_parts(
            self.connection, [part for part in record.parts if part.path not in known]
        )
        catalogue.apply_batch(self.connection, record.batch, frames)
        self.changed = True


def live_paths(connection: Connection) -> set[str]:
    """Paths of the parts that are read, and of the records that a rebuild may need."""
    batches = range(1, catalogue.last_batch(connection) + 1)
    records = {parquet_parts.record_path(number) for number in batches} - set(
        catalogue.dead_parts(connection)
    )
    return {part.path for part in catalogue.live_parts(connection)} | records


def replay_parts(backend: StoreBackend, written: Iterable[ParquetPart]) -> Tables:
    """The rows of parts that the catalogue follows from. Raises StoreError on a damaged part.

    So no changed byte of theirs becomes a row: each has the checksum that its record says.
    """
    found: dict[str, list[pl.DataFrame]] = {}
    for part in written:
        parquet_parts.check_part(backend, part)
        if part.table_name in catalogue.REPLAYED_TABLES:
            found.setdefault(part.table_name, []).append(
                parquet_parts.read_rows_with_batch(backend, part)
            )
    return {table: pl.concat(frames, how="diagonal_relaxed") for table, frames in found.items()}


def utc_now() -> datetime:
    """UTC, without a zone, as all times of a store."""
    return datetime.now(UTC).replace(tzinfo=None)
