"""The store: Parquet parts are the truth, a DuckDB catalogue over them can always be made anew.

    STORE/parts/<table>/<source>-<sequence>.parquet    immutable; written aside, synced, renamed
    STORE/catalogue.duckdb                             sources, runs, facts, the list of parts
    STORE/writer.lock                                  one writer at a time; readers never wait

A batch writes its parts first, then a part that lists them, and renames a new catalogue over the
old one last, so a crash leaves the old state or the new, and a rebuild takes whole batches only.
What a new file replaces, and how its runs are called, is decided under the lock, by the catalogue.

How long a fact lives follows from its origin. What is given by hand (flag) belongs to the run: it
stays while the log grows, until another value is given or it is taken back. What stands beside the
log (sidecar, companion) belongs to the file and is replaced as a set each time that it is ingested.
All else belongs to the log's rows. This module holds all the SQL that writes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import duckdb
import polars as pl

from ingest.errors import StoreError
from ingest.schema import SCHEMA_VERSION, TABLES, frame_schema

Tables = dict[str, pl.DataFrame]

CATALOGUE: Final = "catalogue.duckdb"
LOCK: Final = "writer.lock"
LOCK_PATIENCE_S: Final = 30.0
IN_CATALOGUE: Final = ("sources", "runs", "facts")
IN_PARTS: Final = ("steps", "events", "unread")
LOG: Final = "log"
BESIDE: Final = "beside"
GIVEN: Final = "given"
GIVEN_STRIDE: Final = 1_000_000
"""Other facts come behind all of the log's own, which count from 0 within their run."""

BY_HAND: Final = "regexp_extract(origin, '^[a-z]+') = 'flag'"
FROM_BESIDE: Final = "regexp_extract(origin, '^[a-z]+') in ('sidecar', 'companion')"
ID_SUFFIX: Final = re.compile(r"-[0-9a-f]{6}$")
"""Tells apart runs of files that begin alike; `-2` is another launch of the same beginning."""

ORDER: Final = {
    "sources": "path",
    "runs": "name, launch, run_id",
    "facts": "run_id, sequence",
    "steps": "run_id, line",
    "events": "run_id, line",
    "unread": "sha256, line",
}
REMOVED: Final = "removed"
BATCH: Final = "batch"
"""The last part of a batch lists the others; what no batch lists was broken off."""

GLOB: Final = re.compile(r"[*?\[\]]")
PART_COLUMNS: Final = pl.Schema(
    {
        "table_name": pl.String,
        "path": pl.String,
        "owner": pl.String,
        "kind": pl.String,
        "sequence": pl.Int64,
        "rows": pl.Int64,
    }
)
REMOVED_SCHEMA: Final = pl.Schema({"sha256": pl.String})
STANDING: Final = """
    select s.path, s.sha256,
        coalesce(list(r.run_id order by r.launch) filter (r.run_id is not null), []),
        any_value(p.path)
    from sources s
    join parts p on p.owner = s.sha256 and p.table_name = 'steps'
    left join runs r on r.sha256 = s.sha256
    group by s.path, s.sha256 order by min(p.sequence), s.path
"""


@dataclass(frozen=True, slots=True)
class Part:
    """One Parquet file of the store; `kind` is log, beside, given or removed."""

    table: str
    path: str
    sha256: str
    kind: str
    sequence: int
    rows: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A file whose content is stored: its facts are brought up to date, it is not read again."""

    path: str
    sha256: str
    facts: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class FileMark:
    """What a file looked like when its content was last taken, so that it need not be opened.

    beside: changes with what gives facts to it. sha256: of its content; empty where it is no log.
    """

    path: str
    size: int
    mtime_ns: int
    inode: int
    beside: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Remark:
    """What its reader could not know of a file before the store looked at it.

    kind: known (the content is stored, as `known_as`), kept (the path holds another run now; the
    earlier one stays), or gone (the content was known and no longer is: the file must be read).
    """

    path: str
    kind: str
    known_as: str = ""


@dataclass(frozen=True, slots=True)
class _Stored:
    """A source as the catalogue has it; run ids in the order of their launches."""

    path: str
    sha256: str
    runs: tuple[str, ...]
    steps: pl.LazyFrame

    def grown_into(self, runs: Iterable[str]) -> bool:
        """Whether a file of these runs holds all of this one's.

        A launch that had no step yet has no lasting id, so it is not asked for.
        """
        held = {_base(run) for run in runs}
        lost = {run for run in self.runs if _base(run) not in held}
        return not lost or lost.isdisjoint(self.steps.select("run_id").collect()["run_id"])


class _Plan:
    """What one batch changes, decided file by file against what is stored."""

    def __init__(self, stored: Iterable[_Stored], facts: pl.DataFrame) -> None:
        """facts: those given by hand, and those from beside the logs."""
        self.stored = {source.sha256: source for source in stored}
        self.owner = {run: source for source in self.stored.values() for run in source.runs}
        self.facts = facts
        self.new: dict[str, Tables] = {}
        self.removed: list[str] = []
        self.beside: dict[str, list[dict[str, Any]]] = {}
        self.by_hand: list[dict[str, Any]] = []
        self.remarks: list[Remark] = []

    def place(self, tables: Tables) -> None:
        """A file that was read: it replaces what grew into it; its runs get their own ids."""
        path, sha256 = tables["sources"].select("path", "sha256").row(0)
        runs = tables["runs"]["run_id"].to_list()
        outer, log = _apart(tables["facts"])
        if sha256 in self.stored:  # another process was faster, or it came through a pipe again
            self.remarks.append(Remark(path, "known", self.stored[sha256].path))
            self.see(Seen(path, sha256, outer))
            return
        stale, kept = self._at(path, runs)
        for source in stale:
            self._drop(source)
        source = _Stored(path, sha256, (), tables["steps"].lazy())
        own = {run: self._own_id(run, source, stale) for run in runs}
        source = replace(source, runs=tuple(own.values()))
        self.stored[sha256] = source
        self.new[sha256] = _renamed(tables | {"facts": log}, own)
        self._carry(stale, source)
        self._update(source, outer, beside=True)
        if kept and not stale and path != "-":
            self.remarks.append(Remark(path, "kept"))

    def see(self, seen: Seen, claimed: Iterable[str] = ()) -> None:
        """A file of known content: what stands beside it counts where the content was read from.

        claimed: content that another file of this batch still has, so it is not dropped.
        """
        source = self.stored.get(seen.sha256)
        if source is None:
            self.remarks.append(Remark(seen.path, "gone"))
            return
        stale, kept = self._at(seen.path, source.runs)
        same = source.path == seen.path
        stale = [s for s in stale if s.sha256 not in (seen.sha256, *self.new, *claimed)]
        for other in stale:
            self._drop(other)
        self._carry(stale, source)
        self._update(source, seen.facts, beside=same)
        if kept and not same and seen.path != "-":
            self.remarks.append(Remark(seen.path, "kept", source.path))

    def _at(self, path: str, runs: Sequence[str]) -> tuple[list[_Stored], list[_Stored]]:
        """The sources of a path: those that grew into a file of these runs, and the others."""
        here = [source for source in self.stored.values() if source.path == path]
        stale = [source for source in here if source.grown_into(runs)]
        return stale, [source for source in here if source not in stale]

    def _drop(self, source: _Stored) -> None:
        del self.stored[source.sha256]
        self.beside.pop(source.sha256, None)
        for run in source.runs:
            del self.owner[run]
        if self.new.pop(source.sha256, None) is None:
            self.removed.append(source.sha256)

    def _own_id(self, run: str, source: _Stored, stale: Sequence[_Stored]) -> str:
        """The id of the same run before its file grew, or one that no other file has."""
        before = [old for s in stale for old in s.runs if _base(old) == run]
        path = f"{run}-{_short(source.path)}"
        content = f"{run}-{_short(source.path + source.sha256)}"
        for own in (*before, run, path, content):
            if own not in self.owner:
                self.owner[own] = source
                return own
        other = self.owner[run].path
        raise StoreError(
            f"{source.path} and {other}: a run of both has the id {run}. Give one another --store."
        )

    def _carry(self, stale: Sequence[_Stored], source: _Stored) -> None:
        """What was given by hand to a run whose id is gone goes to the one that it became."""
        now = {_base(run): run for run in source.runs}
        for old in stale:
            by_launch = dict(zip(old.runs, source.runs, strict=False))
            for run in old.runs:
                after = now.get(_base(run)) or by_launch.get(run, run)
                named = {row["name"] for row in self._flags_of(after)}
                rows = self._flags_of(run)
                self.by_hand += [r | {"run_id": after} for r in rows if r["name"] not in named]

    def _flags_of(self, run: str) -> list[dict[str, Any]]:
        """What was given to a run by hand, before this batch."""
        return self.facts.filter(pl.col("run_id") == run, _is_flag()).rows(named=True)

    def _update(self, source: _Stored, facts: Sequence[Mapping[str, Any]], *, beside: bool) -> None:
        flags = [fact for fact in facts if _is_by_hand(fact)]
        self.by_hand += [{**fact, "run_id": run} for run in source.runs for fact in flags]
        if beside:
            others = [fact for fact in facts if not _is_by_hand(fact)]
            rows = [{**fact, "run_id": run} for run in source.runs for fact in others]
            self.beside[source.sha256] = rows

    def beside_that_changed(self) -> dict[str, list[dict[str, Any]]]:
        """By source, all its facts from beside it, where they are not what is stored."""
        stood: dict[str, list[tuple[Any, ...]]] = {}
        for row in self.facts.filter(~_is_flag()).iter_rows(named=True):
            stood.setdefault(row["run_id"], []).extend(_content([row]))
        return {
            sha256: rows
            for sha256, rows in self.beside.items()
            if _content(rows) != self._stood(sha256, stood)
        }

    def _stood(
        self, sha256: str, by_run: Mapping[str, list[tuple[Any, ...]]]
    ) -> list[tuple[Any, ...]]:
        """Those of a source's runs in the catalogue; a new source has none there."""
        runs = () if sha256 in self.new else self.stored[sha256].runs
        return [fact for run in runs for fact in by_run.get(run, ())]


class Store:
    """One folder with parts and a catalogue."""

    def __init__(self, path: Path) -> None:
        """The folder need not exist before the first `add`. Raises StoreError on a glob."""
        if GLOB.search(str(path.absolute())):
            raise StoreError(
                f"{path}: a store's path may not hold * ? [ or ]: its parts are read by pattern. "
                "Give another --store."
            )
        self.path = path

    # -- writing --------------------------------------------------------------------------

    def add(
        self,
        batch: Sequence[Tables],
        seen: Sequence[Seen] = (),
        files: Sequence[FileMark] = (),
    ) -> list[Remark]:
        """Register sources with all their rows, and the facts of known ones, in one transaction.

        A file replaces the source of the same path whose runs it holds: it grew. One that holds
        other runs stands beside it. Runs of files that begin alike get ids of their own.
        """
        if not batch and not seen and not files:
            return []
        with self._writing():
            sequence, plan = self._plan()
            for tables in batch:
                plan.place(tables)
            claimed = {one.sha256 for one in seen}
            for one in seen:
                plan.see(one, claimed)
            self._write(plan, sequence)
            if files:
                marks = self.files() | {mark.path: mark for mark in files}
                frame = pl.DataFrame([asdict(mark) for mark in marks.values()])
                frame.write_parquet(self.path / "files.parquet")
            return plan.remarks

    def give(self, facts_of_runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> int:
        """Give facts to runs by id, each in place of an earlier one; how many are new.

        One without a value is taken back.
        """
        if not any(facts_of_runs.values()):
            return 0
        with self._writing():
            sequence, plan = self._plan()
            rows = [{**f, "run_id": run} for run, facts in facts_of_runs.items() for f in facts]
            plan.by_hand += [row for row in rows if row["run_id"] in plan.owner]
            return self._write(plan, sequence)

    def _write(self, plan: _Plan, sequence: int) -> int:
        """The parts of a plan, if it changes anything; how many facts by hand are new."""
        parts = [
            self._write_part(table, frame, sha256, LOG, sequence)
            for sha256, tables in plan.new.items()
            for table, frame in tables.items()
        ]
        for sha256, rows in plan.beside_that_changed().items():
            frame = _facts(rows, sequence * GIVEN_STRIDE)
            parts.append(self._write_part("facts", frame, sha256, BESIDE, sequence))
        by_hand = _only_new(plan.by_hand, plan.facts.filter(_is_flag()))
        if by_hand:
            frame = _facts(by_hand, sequence * GIVEN_STRIDE + GIVEN_STRIDE // 2)
            parts.append(self._write_part("facts", frame, "", GIVEN, sequence))
        if plan.removed:
            frame = pl.DataFrame({"sha256": plan.removed}, schema=REMOVED_SCHEMA)
            parts.append(self._write_part(REMOVED, frame, "", REMOVED, sequence))
        if parts:
            self._commit(parts, sequence)
        return len(by_hand)

    def rebuild(self) -> int:
        """Make the catalogue anew from the parts alone. How many parts it found."""
        with self._writing():
            batches = sorted((self._parts / BATCH).glob("*.parquet"))
            listed = sorted({path for batch in batches for path in pl.read_parquet(batch)["path"]})
            parts = [_read_part(self.path / path, self.path) for path in listed]
            (self.path / "files.parquet").unlink(missing_ok=True)
            with self._new_catalogue(from_old=False) as con:
                _insert(con, parts, self.path)
            return len(parts)

    # -- reading --------------------------------------------------------------------------

    def known_sources(self) -> dict[str, str]:
        """Content hash to path of each source."""
        if self._is_new():
            return {}
        with self._connected() as con:
            return dict(con.sql("select sha256, path from sources").fetchall())

    def files(self) -> dict[str, FileMark]:
        """What files looked like when their content was last taken, by path."""
        path = self.path / "files.parquet"
        if not path.exists():
            return {}
        return {row[0]: FileMark(*row) for row in pl.read_parquet(path).iter_rows()}

    def table(self, name: str) -> pl.DataFrame:
        """A whole table of `TABLES`, in the order of `ORDER`."""
        with self._reading() as con:
            columns = ", ".join(TABLES[name])
            frame: pl.DataFrame = con.sql(
                f"select {columns} from {name} order by {ORDER[name]}"  # noqa: S608 - constants
            ).pl()
        return frame.match_to_schema(frame_schema(name))

    def query(self, sql: str, frames: Mapping[str, pl.DataFrame] | None = None) -> pl.DataFrame:
        """The rows of one read-only statement over the tables, and over `frames` by name.

        Raises StoreError with DuckDB's own message.
        """
        with self._reading(frames or {}) as con:
            try:
                statements = con.extract_statements(sql)
                if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                    raise StoreError("query takes one SELECT statement: a store is read-only here.")
                result: pl.DataFrame = con.sql(sql).pl()
            except duckdb.Error as error:
                raise StoreError(f"query: {error}") from error
        return result

    # -- the catalogue --------------------------------------------------------------------

    @property
    def _catalogue(self) -> Path:
        return self.path / CATALOGUE

    @property
    def _parts(self) -> Path:
        return self.path / "parts"

    @contextmanager
    def _reading(
        self, frames: Mapping[str, pl.DataFrame] | None = None
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        """A locked-down connection: the catalogue, the parts, and nothing else of the machine."""
        with self._connected() as con:
            for table in IN_PARTS:
                con.execute(_view(con, table, self.path))
            for name, frame in (frames or {}).items():
                con.register(name, frame)
            con.execute(f"set allowed_directories = [{_quote(str(self._parts.absolute()))}]")
            con.execute("set enable_external_access = false")
            con.execute("set lock_configuration = true")
            yield con

    def _connected(self) -> duckdb.DuckDBPyConnection:
        """The catalogue, for reading. Raises StoreError where it is gone or damaged."""
        if not self._catalogue.exists():
            raise self._lost()
        try:
            return duckdb.connect(self._catalogue, read_only=True)
        except duckdb.Error as error:
            raise StoreError(
                f"{self._catalogue}: cannot be read ({error}). Make it anew with: fairmfu rebuild"
            ) from error

    def _lost(self) -> StoreError:
        if self._is_new():
            return StoreError(
                f"{self.path}: no store here. Make one with: fairmfu ingest LOG… --store DIR"
            )
        return StoreError(f"{self.path}: the catalogue is gone. Make it anew with: fairmfu rebuild")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """The only writer. Raises StoreError that names the holder when the wait is over."""
        self._parts.mkdir(parents=True, exist_ok=True)
        with (self.path / LOCK).open("a+") as lock:
            _acquire(lock.fileno(), self.path / LOCK)
            lock.seek(0)
            lock.truncate()
            lock.write(str(os.getpid()))
            lock.flush()
            yield

    def _is_new(self) -> bool:
        """Whether nothing was ever stored; parts without a catalogue have lost it."""
        return not self._catalogue.exists() and not any(self._parts.rglob("*.parquet"))

    def _plan(self) -> tuple[int, _Plan]:
        """The next sequence, and a plan on what stands; of a new store 1 and an empty one.

        A new store gets an empty catalogue first, so that parts never stand without one.
        """
        if self._is_new():
            with self._new_catalogue(from_old=False):
                return 1, _Plan([], pl.DataFrame(schema=frame_schema("facts")))
        with self._connected() as con:
            ((sequence,),) = con.sql("select coalesce(max(sequence), 0) + 1 from parts").fetchall()
            found = con.sql(STANDING).fetchall()
            facts = con.sql(f"from facts where {BY_HAND} or {FROM_BESIDE} order by sequence").pl()
        stored = [
            _Stored(path, sha256, tuple(runs), pl.scan_parquet(self.path / steps))
            for path, sha256, runs, steps in found
        ]
        return sequence, _Plan(stored, facts)

    def _write_part(
        self, table: str, frame: pl.DataFrame, owner: str, kind: str, sequence: int
    ) -> Part:
        folder = self._parts / table
        folder.mkdir(exist_ok=True)
        short = re.sub(r"\W", "", owner)[:16]
        path = folder / f"{short or 'all'}-{sequence:06d}-{kind}.parquet"
        marks = {
            "fairmfu.schema": SCHEMA_VERSION,
            "fairmfu.table": table,
            "fairmfu.owner": owner,
            "fairmfu.kind": kind,
            "fairmfu.sequence": str(sequence),
        }
        aside = path.with_suffix(".writing")
        frame.write_parquet(aside, metadata=marks)
        _sync(aside)
        aside.rename(path)
        _sync(folder)
        return Part(table, str(path.relative_to(self.path)), owner, kind, sequence, frame.height)

    def _commit(self, parts: Sequence[Part], sequence: int) -> None:
        listed = pl.DataFrame({"path": [part.path for part in parts]})
        self._write_part(BATCH, listed, "", BATCH, sequence)
        self._register(parts)

    def _register(self, parts: Sequence[Part]) -> None:
        with self._new_catalogue(from_old=True) as con:
            _insert(con, parts, self.path)

    @contextmanager
    def _new_catalogue(self, *, from_old: bool) -> Iterator[duckdb.DuckDBPyConnection]:
        """A new catalogue, renamed over the old one when all went well."""
        aside = self.path / f"{CATALOGUE}.{os.getpid()}.writing"
        with suppress(FileNotFoundError):
            aside.unlink()
        copied = from_old and self._catalogue.exists()
        if copied:
            shutil.copyfile(self._catalogue, aside)
        try:
            with duckdb.connect(aside) as con:
                con.execute("begin")
                if not copied:
                    _create(con)
                yield con
                con.execute("commit")
                con.execute("checkpoint")
            _sync(aside)
            aside.rename(self._catalogue)
            _sync(self.path)
        finally:
            with suppress(FileNotFoundError):
                aside.unlink()


def _acquire(fd: int, path: Path) -> None:
    until = time.monotonic() + LOCK_PATIENCE_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                holder = path.read_text() or "unknown"
                raise StoreError(
                    f"{path.parent}: process {holder} is writing to this store. "
                    "Wait for it to end, or give another --store."
                ) from None
            time.sleep(0.1)
        else:
            return


_SQL_TYPES: Final = {
    "String": "varchar",
    "Int64": "bigint",
    "Float64": "double",
    "Boolean": "boolean",
    "Datetime": "timestamp",
}


def _sql_type(dtype: pl.DataType) -> str:
    if isinstance(dtype, pl.List):
        return f"{_sql_type(dtype.inner)}[]"  # type: ignore[arg-type]
    if isinstance(dtype, pl.Struct):
        fields = ", ".join(f'"{f.name}" {_sql_type(f.dtype)}' for f in dtype.fields)  # type: ignore[arg-type]
        return f"struct({fields})"
    name = str(dtype).split("(", maxsplit=1)[0]
    return _SQL_TYPES[name]


def _create(con: duckdb.DuckDBPyConnection) -> None:
    for table in IN_CATALOGUE:
        columns = ", ".join(f'"{n}" {_sql_type(c.dtype)}' for n, c in TABLES[table].items())
        con.execute(f"create table {table} ({columns})")
    columns = ", ".join(f"{name} {_sql_type(dtype)}" for name, dtype in PART_COLUMNS.items())
    con.execute(f"create table parts ({columns})")
    con.execute("create table about (schema_version varchar)")
    con.execute("insert into about values ($v)", {"v": SCHEMA_VERSION})


def _insert(con: duckdb.DuckDBPyConnection, parts: Sequence[Part], store: Path) -> None:
    """Register parts batch by batch: what is removed or replaced goes, then the new comes."""
    for _, batch in groupby(sorted(parts, key=_sequence), key=_sequence):
        new = list(batch)
        gone = [p.sha256 for p in new if p.kind == LOG and p.table == "sources"]
        for part in new:
            if part.kind == REMOVED:
                gone += pl.read_parquet(store / part.path)["sha256"].to_list()
        for sha256 in gone:
            _forget(con, sha256)
        for table in IN_CATALOGUE:
            _append(con, table, _rows_of(new, table, LOG, store))
        for part in new:
            if part.kind == BESIDE:
                _forget_beside(con, part.sha256)
        _append(con, "facts", _rows_of(new, "facts", BESIDE, store))
        _give(con, _rows_of(new, "facts", GIVEN, store))
        con.execute("delete from facts where run_id not in (select run_id from runs)")
        rows = pl.DataFrame(
            [(p.table, p.path, p.sha256, p.kind, p.sequence, p.rows) for p in new],
            schema=PART_COLUMNS,
            orient="row",
        )
        _append(con, "parts", rows)


def _sequence(part: Part) -> int:
    return part.sequence


def _rows_of(parts: Sequence[Part], table: str, kind: str, store: Path) -> pl.DataFrame:
    paths = [store / p.path for p in parts if p.table == table and p.kind == kind]
    frames = [pl.read_parquet(path) for path in paths]
    return pl.concat(frames) if frames else pl.DataFrame(schema=frame_schema(table))


def _give(con: duckdb.DuckDBPyConnection, facts: pl.DataFrame) -> None:
    """Each fact given by hand comes in place of an earlier one; without a value, nothing comes."""
    if facts.is_empty():
        return
    con.register("frame", facts)
    con.execute(
        f"delete from facts where {BY_HAND} "  # noqa: S608 - a constant
        "and (run_id, name) in (select (run_id, name) from frame)"
    )
    con.unregister("frame")
    _append(con, "facts", facts.filter(pl.col("value").is_not_null()))


def _append(con: duckdb.DuckDBPyConnection, table: str, frame: pl.DataFrame) -> None:
    if frame.is_empty():
        return
    con.register("frame", frame)
    con.execute(f"insert into {table} by name select * from frame")  # noqa: S608 - a constant
    con.unregister("frame")


def _live(con: duckdb.DuckDBPyConnection, table: str) -> list[str]:
    rows = con.sql(
        "select path from parts where table_name = $t order by sequence, path", params={"t": table}
    )
    return [path for (path,) in rows.iter_rows()]


def _forget(con: duckdb.DuckDBPyConnection, sha256: str) -> None:
    """Unregister a source; its files stay, dead, for a rebuild comes to the same end.

    Facts given by hand stay for the source that replaces it, if that holds the same run.
    """
    con.execute(
        f"delete from facts where not {BY_HAND} "  # noqa: S608 - a constant
        "and run_id in (select run_id from runs where sha256 = $s)",
        {"s": sha256},
    )
    con.execute("delete from runs where sha256 = $s", {"s": sha256})
    con.execute("delete from sources where sha256 = $s", {"s": sha256})
    con.execute("delete from parts where owner = $s", {"s": sha256})


def _forget_beside(con: duckdb.DuckDBPyConnection, sha256: str) -> None:
    """Unregister what stood beside a source."""
    con.execute(
        f"delete from facts where {FROM_BESIDE} "  # noqa: S608 - a constant
        "and run_id in (select run_id from runs where sha256 = $s)",
        {"s": sha256},
    )
    con.execute(
        "delete from parts where owner = $s and kind = $kind", {"s": sha256, "kind": BESIDE}
    )


def _view(con: duckdb.DuckDBPyConnection, table: str, store: Path) -> str:
    columns = ", ".join(f'null::{_sql_type(c.dtype)} as "{n}"' for n, c in TABLES[table].items())
    paths = [str((store / path).absolute()) for path in _live(con, table)]
    if not paths:
        source = f"select {columns} where false"
    else:
        listed = ", ".join(map(_quote, paths))
        source = f"from read_parquet([{listed}], union_by_name = true)"
    return f"create temp view {table} as {source}"


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _base(run_id: str) -> str:
    """The id that a run has before it is told apart from those of other files."""
    return ID_SUFFIX.sub("", run_id)


def _short(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:6]


def _renamed(tables: Tables, ids: Mapping[str, str]) -> Tables:
    own = pl.col("run_id").replace(ids)
    return {n: f.with_columns(own) if "run_id" in f.columns else f for n, f in tables.items()}


def _kind_of_origin() -> pl.Expr:
    return pl.col("origin").str.extract(r"^([a-z]+)")


def _is_flag() -> pl.Expr:
    return _kind_of_origin() == "flag"


def _is_by_hand(fact: Mapping[str, Any]) -> bool:
    return str(fact["origin"]).partition(":")[0] == "flag"


def _apart(facts: pl.DataFrame) -> tuple[list[dict[str, Any]], pl.DataFrame]:
    """Facts that all runs of the file have from outside it, and those of the log."""
    outside = _kind_of_origin().is_in(["flag", "sidecar", "companion"])
    first = facts.filter(outside, pl.col("run_id") == pl.col("run_id").first())
    return first.drop("run_id").rows(named=True), facts.filter(~outside)


def _content(rows: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["run_id"], row["name"], row["value"], row["origin"]) for row in rows]


def _facts(rows: Sequence[Mapping[str, Any]], first: int) -> pl.DataFrame:
    """Rows of `facts`, numbered from `first`."""
    schema = frame_schema("facts")
    columns = {name: [row.get(name) for row in rows] for name in schema}
    columns["sequence"] = list(range(first, first + len(rows)))
    return pl.DataFrame(columns, schema=schema)


def _only_new(rows: Iterable[dict[str, Any]], old: pl.DataFrame) -> list[dict[str, Any]]:
    """The last of each run and name, where its value is not what is given already."""
    last = {(row["run_id"], row["name"]): row for row in rows}
    before = {(run, name): value for run, name, value in old["run_id", "name", "value"].iter_rows()}
    return [row for key, row in last.items() if row["value"] != before.get(key)]


def _read_part(path: Path, store: Path) -> Part:
    try:
        marks = pl.read_parquet_metadata(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise StoreError(
            f"{path}: this part is gone or damaged. Ingest the logs again into a new --store."
        ) from error
    if marks.get("fairmfu.schema") != SCHEMA_VERSION:
        raise StoreError(
            f"{path}: written with schema {marks.get('fairmfu.schema')}, this program reads "
            f"{SCHEMA_VERSION}. Ingest the logs again into a new --store."
        )
    rows = pl.scan_parquet(path).select(pl.len()).collect().item()
    return Part(
        marks["fairmfu.table"],
        str(path.relative_to(store)),
        marks["fairmfu.owner"],
        marks["fairmfu.kind"],
        int(marks["fairmfu.sequence"]),
        rows,
    )


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
