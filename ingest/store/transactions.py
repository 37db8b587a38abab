"""What the holder of the lock does: parts and records first, and a catalogue that says so.

A merge makes parts needless that readers of the catalogue before may still read: they stay for
GRACE.
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

from ..core.schema import read_otherwise
from ..core.spill import LogTables, Table, whole
from . import catalogue, compaction, parquet_parts, staged_parts
from .catalogue import Connection
from .changeset import FileMark, Plan, Seen, Stored, Tables, base_id
from .local_backend import OvertakenError, Shelf
from .parquet_parts import Part, Record

GRACE: Final = timedelta(hours=1)
"""How long parts that were merged stay for readers of the catalogue before."""
RECORD_GRACE: Final = timedelta(days=7)
"""How long records stay where other machines write too: who is slower than that would take a number
that was taken."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a batch is about: all that it can touch follows from it."""

    paths: Collection[str] = ()
    sources: Collection[str] = ()
    runs: Collection[str] = ()

    @classmethod
    def of(cls, batch: Sequence[LogTables], seen: Sequence[Seen]) -> Asked:
        """Logs that were read, and files of known content."""
        sources = [whole(tables["sources"]) for tables in batch]
        runs = (run for tables in batch for run in whole(tables["runs"])["run_id"])
        return cls(
            [*(one["path"][0] for one in sources), *(one.path for one in seen)],
            [*(one["sha256"][0] for one in sources), *(one.sha256 for one in seen)],
            list(runs),
        )

    def frame(self) -> pl.DataFrame:
        """A row for each, in the columns of catalogue.ASKED_SCHEMA."""
        bases = [base_id(run) for run in self.runs]
        named = {"path": self.paths, "sha256": self.sources, "base": bases}
        frames = [pl.DataFrame({name: list(one)}) for name, one in named.items() if one]
        return pl.concat([catalogue.ASKED_SCHEMA.to_frame(), *frames], how="diagonal")


class Writer:
    """Writes one batch after another into a store, and says so in a catalogue.

    con: to the catalogue that will take the place of the old one; changed: whether it has to.
    """

    def __init__(self, shelf: Shelf, con: Connection) -> None:
        self.shelf = shelf
        self.con = con
        self.changed = False

    @property
    def number(self) -> int:
        """The number of the batch that is about to be written."""
        return catalogue.last_batch(self.con) + 1

    def plan(self, asked: Asked, grown: Collection[str] = ()) -> Plan:
        """A plan on what stands of that; grown: contents that files began with."""
        self.con.register("asked", asked.frame())
        found = self.con.sql(catalogue.STANDING).fetchall()
        facts = self.con.sql(catalogue.STANDING_FACTS).pl()
        self.con.unregister("asked")
        stored = [
            Stored(
                path,
                sha256,
                tuple(runs),
                read_at,
                step_lines,
                partial(self._stepped, batch, tuple(runs)),
                read_otherwise=bool(read_otherwise(*reading)),
            )
            for path, sha256, batch, read_at, step_lines, *reading, runs in found
        ]
        return Plan(stored, facts, utc_now(), grown)

    def _stepped(self, batch: int, runs: Sequence[str]) -> frozenset[str]:
        """Runs of a batch that have a step."""
        steps = catalogue.parts_of(self.con, {"steps"})
        here = (part for part in steps if part.first_batch <= batch <= part.last_batch)
        mine = pl.col("batch") == batch, pl.col("run_id").is_in(runs)
        each = (parquet_parts.rows_of(self.shelf, part, ["run_id"]).filter(*mine) for part in here)
        return frozenset(run for rows in each for run in rows["run_id"].unique())

    def write(self, frames: Mapping[str, Table]) -> None:
        """One batch of rows, by table; nothing where there are none."""
        if not frames:
            return
        number = self.number
        written = [self._parts(name, table, number) for name, table in frames.items()]
        record = Record(number, tuple(chain.from_iterable(written)), full=False)
        parquet_parts.write_record(self.shelf, record)
        mark = pl.lit(number, pl.Int64).alias("batch")
        told = {n: f.with_columns(mark) for n, f in frames.items() if isinstance(f, pl.DataFrame)}
        self._register(record, told)
        with suppress(OvertakenError):  # what is written stands; whoever overtook it may merge
            while groups := compaction.due(catalogue.parts_of(self.con)):
                self.merge(groups)

    def _parts(self, name: str, rows: Table, number: int) -> list[Part]:
        """Rows of one table as parts; those that workers wrote as they are, where all is stored."""
        taken, left = staged_parts.taken(rows)
        of_batch = [one.of_batch(number) for one in taken]
        written = [] if left is None else parquet_parts.write_parts(self.shelf, name, left, number)
        return of_batch + written

    def mark(self, files: Sequence[FileMark]) -> None:
        """How files stood."""
        if files:
            catalogue.mark_files(self.con, files)
            self.changed = True

    def merge(self, groups: Sequence[Sequence[Part]]) -> None:
        """Each group of parts of one table becomes one part, in a batch that changes no row."""
        if not groups:
            return
        number = self.number
        live = {
            "runs": self.con.sql("select run_id, batch from held.runs").pl(),
            "sources": self.con.sql("select sha256, batch from held.sources").pl(),
        }
        merged = {part.path for group in groups for part in group}
        after = [part for part in catalogue.parts_of(self.con) if part.path not in merged]
        for group in groups:
            rows = compaction.merged(self.shelf, group, live)
            if rows.height:
                table, tier = group[0].table_name, max(part.tier for part in group) + 1
                after.append(parquet_parts.write_part(self.shelf, table, rows, number, tier))
        record = Record(number, tuple(after), full=True)
        parquet_parts.write_record(self.shelf, record)
        self._register(record, {})

    def catch_up(self) -> None:
        """Batches whose writer was killed before its catalogue stood."""
        while (record := parquet_parts.read_record(self.shelf, self.number)) is not None:
            self._register(record, {} if record.full else replayed(self.shelf, record.parts))

    def sweep(self, *, astray: bool) -> None:
        """Delete what no reader needs: parts that were merged, and what killed writers left.

        astray: look for the latter, by all files that there are.
        """
        dead = catalogue.dead(self.con)
        gone = {path for path, since in dead.items() if abs(utc_now() - since) >= self._grace(path)}
        left = parquet_parts.strays(self.shelf, read_now(self.con) | dead.keys()) if astray else ()
        for path in (*gone, *(path for path in left if not staged_parts.young(self.shelf, path))):
            self.shelf.delete(path)
        if gone:
            catalogue.bury(self.con, gone)
            self.changed = True

    def _grace(self, path: str) -> timedelta:
        """How long a file that readers of now do not need stays."""
        is_record = path.startswith(f"{parquet_parts.PARTS}/{parquet_parts.RECORD}/")
        return RECORD_GRACE if is_record and self.shelf.shared else GRACE

    def _register(self, record: Record, frames: Mapping[str, pl.DataFrame]) -> None:
        """Put what a record says into the catalogue; frames: its rows, of a full one none."""
        known = {part.path for part in catalogue.parts_of(self.con)}
        if record.full:
            gone = known - {part.path for part in record.parts}
            earlier = parquet_parts.records_before(self.shelf, record.batch)
            catalogue.retire(self.con, [*gone, *earlier], utc_now())
        catalogue.register(self.con, [part for part in record.parts if part.path not in known])
        catalogue.apply(self.con, record.batch, frames)
        self.changed = True


def read_now(con: Connection) -> set[str]:
    """Paths of the parts that are read, and of the records that a rebuild may need."""
    batches = range(1, catalogue.last_batch(con) + 1)
    records = {parquet_parts.record_path(number) for number in batches} - set(catalogue.dead(con))
    return {part.path for part in catalogue.parts_of(con)} | records


def replayed(shelf: Shelf, written: Iterable[Part]) -> Tables:
    """The rows of parts that the catalogue follows from. Raises StoreError on a damaged part.

    So no changed byte of theirs becomes a row: each has the checksum that its record says.
    """
    found: dict[str, list[pl.DataFrame]] = {}
    for part in written:
        parquet_parts.check(shelf, part)
        if part.table_name in catalogue.REPLAYED:
            found.setdefault(part.table_name, []).append(parquet_parts.rows_of(shelf, part))
    return {table: pl.concat(frames, how="diagonal_relaxed") for table, frames in found.items()}


def utc_now() -> datetime:
    """UTC, without a zone, as all times of a store."""
    return datetime.now(UTC).replace(tzinfo=None)
