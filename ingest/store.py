"""The store: Parquet parts are the truth, a DuckDB catalogue over them can always be made anew.

    STORE/parts/<table>/<source>-<sequence>.parquet    immutable; written aside, synced, renamed
    STORE/catalogue.duckdb                             sources, runs, facts, the list of parts
    STORE/writer.lock                                  one writer at a time; readers never wait

A batch writes its parts first, then a part that lists them, and renames a new catalogue over the
old one last, so a crash leaves the old state or the new, and a rebuild takes whole batches only.
This module holds all the SQL that writes.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
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
GIVEN: Final = "given"
GIVEN_STRIDE: Final = 1_000_000
"""Facts given later come behind all of the log's own, which count from 0 within their run."""

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


@dataclass(frozen=True, slots=True)
class Part:
    """One Parquet file of the store; `kind` is log, given or removed."""

    table: str
    path: str
    sha256: str
    kind: str
    sequence: int
    rows: int


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

    def add(self, batch: Sequence[Tables]) -> None:
        """Register sources with all their rows; one of the same path is replaced whole."""
        if not batch:
            return
        with self._writing():
            sequence = self._next_sequence()
            parts = []
            for tables in batch:
                sha256 = tables["sources"]["sha256"][0]
                for table, frame in tables.items():
                    parts.append(self._write_part(table, frame, sha256, "log", sequence))
            stale = self._stale(batch)
            if stale:
                frame = pl.DataFrame({"sha256": stale}, schema=REMOVED_SCHEMA)
                parts.append(self._write_part(REMOVED, frame, "", REMOVED, sequence))
            self._commit(parts, sequence)

    def give(self, facts_of_runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> int:
        """Add facts to runs by id; the later of one kind of origin holds. How many are new."""
        if not any(facts_of_runs.values()):
            return 0
        with self._writing():
            sequence = self._next_sequence()
            rows = [
                {"run_id": run_id, **fact, "sequence": sequence * GIVEN_STRIDE + place}
                for run_id, facts in facts_of_runs.items()
                for place, fact in enumerate(facts)
            ]
            new = _only_new(rows, self.table("facts"))
            if new.height:
                self._commit([self._write_part("facts", new, "", GIVEN, sequence)], sequence)
            return new.height

    def rebuild(self) -> int:
        """Make the catalogue anew from the parts alone. How many parts it found."""
        with self._writing():
            batches = sorted((self._parts / BATCH).glob("*.parquet"))
            listed = sorted({path for batch in batches for path in pl.read_parquet(batch)["path"]})
            parts = [_read_part(self.path / path, self.path) for path in listed]
            with self._new_catalogue(from_old=False) as con:
                _insert(con, parts, self.path)
            return len(parts)

    # -- reading --------------------------------------------------------------------------

    def known_sources(self) -> dict[str, str]:
        """Content hash to path of each source."""
        if self._is_new():
            return {}
        return dict(self.table("sources").select("sha256", "path").iter_rows())

    def owners(self) -> dict[str, str]:
        """Run id to the path of its source."""
        if not self._catalogue.exists():
            return {}
        runs = self.table("runs").join(self.table("sources"), on="sha256", how="inner")
        return dict(runs.select("run_id", "path").iter_rows())

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
        if not self._catalogue.exists():
            raise self._lost()
        try:
            con = duckdb.connect(self._catalogue, read_only=True)
        except duckdb.Error as error:
            raise StoreError(
                f"{self._catalogue}: cannot be read ({error}). Make it anew with: fairmfu rebuild"
            ) from error
        with con:
            for table in IN_PARTS:
                con.execute(_view(con, table, self.path))
            for name, frame in (frames or {}).items():
                con.register(name, frame)
            con.execute(f"set allowed_directories = [{_quote(str(self._parts.absolute()))}]")
            con.execute("set enable_external_access = false")
            con.execute("set lock_configuration = true")
            yield con

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

    def _next_sequence(self) -> int:
        """Of a new store 1, and an empty catalogue, so that parts never stand without one."""
        if self._is_new():
            with self._new_catalogue(from_old=False):
                return 1
        if not self._catalogue.exists():
            raise self._lost()
        with duckdb.connect(self._catalogue, read_only=True) as con:
            rows = con.sql("select coalesce(max(sequence), 0) from parts").iter_rows()
            return int(next(iter(rows))[0]) + 1

    def _stale(self, batch: Sequence[Tables]) -> list[str]:
        """Sources that a new one of the same path replaces."""
        new = {t["sources"]["path"][0]: t["sources"]["sha256"][0] for t in batch}
        return [
            sha256
            for sha256, path in self.known_sources().items()
            if path in new and new[path] != sha256 and path != "-"
        ]

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
        gone = [p.sha256 for p in new if p.kind == "log" and p.table == "sources"]
        for part in new:
            if part.kind == REMOVED:
                gone += pl.read_parquet(store / part.path)["sha256"].to_list()
        for sha256 in gone:
            _forget(con, sha256)
        for table in IN_CATALOGUE:
            for kind in ("log", GIVEN):
                paths = [p.path for p in new if p.table == table and p.kind == kind]
                _insert_rows(con, table, [store / path for path in paths], given=kind == GIVEN)
        con.execute("delete from facts where run_id not in (select run_id from runs)")
        rows = pl.DataFrame(
            [(p.table, p.path, p.sha256, p.kind, p.sequence, p.rows) for p in new],
            schema=PART_COLUMNS,
            orient="row",
        )
        _append(con, "parts", rows)


def _sequence(part: Part) -> int:
    return part.sequence


def _insert_rows(
    con: duckdb.DuckDBPyConnection, table: str, paths: Sequence[Path], *, given: bool
) -> None:
    """Rows of parts; facts given to a run that is gone stay behind."""
    if not paths:
        return
    frame = pl.concat([pl.read_parquet(path) for path in paths])
    if given:
        runs = con.sql("select run_id from runs").pl()
        frame = frame.join(runs, on="run_id", how="semi", maintain_order="left")
    _append(con, table, frame)


def _append(con: duckdb.DuckDBPyConnection, table: str, frame: pl.DataFrame) -> None:
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
        "delete from facts where sequence < $given "
        "and run_id in (select run_id from runs where sha256 = $s)",
        {"given": GIVEN_STRIDE, "s": sha256},
    )
    con.execute("delete from runs where sha256 = $s", {"s": sha256})
    con.execute("delete from sources where sha256 = $s", {"s": sha256})
    con.execute("delete from parts where owner = $s and kind = 'log'", {"s": sha256})


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


def _only_new(rows: list[dict[str, Any]], old: pl.DataFrame) -> pl.DataFrame:
    """Rows whose run, name, origin and value are not what holds already."""
    schema = frame_schema("facts")
    new = pl.DataFrame({n: [row.get(n) for row in rows] for n in schema}, schema=schema)
    key = ["run_id", "name", "origin"]
    latest = old.sort("sequence", maintain_order=True).unique(key, keep="last")
    same = latest.select(*key, "value")
    return new.join(same, on=[*key, "value"], how="anti", maintain_order="left")


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
