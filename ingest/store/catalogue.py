"""The DuckDB catalogue over the parts of a store: which rows hold, and where they stand.

    held.sources, held.runs, held.facts    the rows that hold, each with the batch that wrote it
    held.parts, held.dead                  parts that are read, and those that readers of before
                                           may still read
    held.scored                            by run, the state of the store that its metrics are of
    held.files                             how files stood, so as not to open them again; and whole
                                           folders (path/), as of the sources of that time

All but `held.files` follows from the parts, batch by batch (`apply_batch`); that one is a mere
cache. A run's rows in the parts are those of its batch, so a file that is read again hides its
earlier rows. `runs.touched` is the last batch that changed a run's rows or facts.

The only SQL that writes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

import duckdb
import polars as pl

from ..core.schema import (
    LATER_COLUMNS,
    READING_CHANGES,
    SCHEMA_VERSION,
    TABLES,
    frame_schema,
    reading_changes_since,
)
from .changeset import BESIDE_TABLE, GIVEN_TABLE, ID_SUFFIX, REMOVED_TABLE, FileMark, Tables
from .local_backend import StoreBackend
from .parquet_parts import PART_SCHEMA, PARTS_FOLDER, STAGED_TIER, ParquetPart, parts_frame

CATALOGUE_TABLES: Final = ("sources", "runs", "facts")
PARTS_ONLY_TABLES: Final = {"steps": "run_id", "events": "run_id", "unread": "sha256"}
"""Tables whose rows stand in the parts alone, with the column that says whose they are."""

METRICS_TABLE: Final = "metrics"
REPLAYED_TABLES: Final = (
    *CATALOGUE_TABLES,
    BESIDE_TABLE,
    GIVEN_TABLE,
    REMOVED_TABLE,
    METRICS_TABLE,
)
"""Tables of parts whose rows `apply_batch` looks at."""

FLAG_ORIGIN_SQL: Final = "regexp_extract(origin, '^[a-z]+') = 'flag'"
OUTSIDE_ORIGIN_SQL: Final = "regexp_extract(origin, '^[a-z]+') in ('sidecar', 'companion')"

DERIVED_TABLE_ORDER: Final = {
    "sources": "sha256",
    "runs": "run_id",
    "facts": "run_id, sequence, name",
    "scored": "run_id",
    "parts": "path",
}
"""Tables that follow from the parts, with an order that tells rows apart."""

_SOURCES: Final = "sha256 in (select sha256 from frame)"
_THEIR_FACTS: Final = f"run_id in (select run_id from held.runs where {_SOURCES})"  # noqa: S608
_BASE: Final = f"regexp_replace(run_id, '{ID_SUFFIX.pattern}', '')"
"""The id that a run has before it is told apart from those of other files."""
_TOUCHED: Final = f"""
    select sha256 from held.sources
        where path in (select path from asked) or sha256 in (select sha256 from asked)
    union select sha256 from held.runs where {_BASE} in (select base from asked)
"""  # noqa: S608 - constants
STORED_SOURCES_SQL: Final = f"""
    select s.path, s.sha256, s.batch, s.read_at, s.step_lines,
        s.reading, s.log_format, s.companions,
        coalesce(list(r.run_id order by r.launch) filter (r.run_id is not null), [])
    from held.sources s left join held.runs r using (sha256)
    where s.sha256 in ({_TOUCHED}) group by all order by s.batch, s.path
"""  # noqa: S608
STORED_FACTS_SQL: Final = f"""
    from held.facts where ({FLAG_ORIGIN_SQL} or {OUTSIDE_ORIGIN_SQL}) and (
        run_id in (select run_id from held.runs where sha256 in ({_TOUCHED}))
        or {_BASE} in (select base from asked)
    ) order by run_id, sequence
"""  # noqa: S608
"""What stands of sources and facts that a batch can touch. asked: one row for each path, sha256 or
base of a run id that is in it."""
SCOPE_SCHEMA: Final = pl.Schema({"path": pl.String, "sha256": pl.String, "base": pl.String})
OUTDATED_RUNS_SQL: Final = """
    select run_id from held.runs left join held.scored using (run_id)
    where touched > coalesce(as_of, -1)
"""

_SQL_TYPES: Final = {
    "String": "varchar",
    "Int64": "bigint",
    "Float64": "double",
    "Boolean": "boolean",
    "Datetime": "timestamp",
}
FILE_MARK_SCHEMA: Final = pl.Schema(
    {
        "path": pl.String,
        "size": pl.Int64,
        "mtime_ns": pl.Int64,
        "inode": pl.Int64,
        "beside": pl.String,
        "sha256": pl.String,
    }
)
DEAD_PARTS_SCHEMA: Final = pl.Schema({"path": pl.String(), "since": pl.Datetime("us")})
BATCH_COLUMN: Final = {"batch": pl.Int64()}

Connection: TypeAlias = duckdb.DuckDBPyConnection


def create_tables(connection: Connection) -> None:
    """The empty tables of a new catalogue."""
    connection.execute("create schema held")
    schemas: dict[str, Mapping[str, Any]] = {
        "sources": frame_schema("sources") | BATCH_COLUMN,
        "runs": frame_schema("runs") | BATCH_COLUMN | {"touched": pl.Int64()},
        "facts": frame_schema("facts"),
        "parts": PART_SCHEMA,
        "dead": DEAD_PARTS_SCHEMA,
        "files": FILE_MARK_SCHEMA,
        "scored": {"run_id": pl.String(), "as_of": pl.Int64()},
        "about": {"schema_version": pl.String(), "batch": pl.Int64()},
    }
    for table, schema in schemas.items():
        columns = ", ".join(f'"{name}" {_sql_type(dtype)}' for name, dtype in schema.items())
        connection.execute(f"create table held.{table} ({columns})")
    connection.execute("insert into held.about values ($v, 0)", {"v": SCHEMA_VERSION})


class OutdatedSource(NamedTuple):
    """A source that is read otherwise today.

    forced: the formats that it was to be read with, if any; since: what is read otherwise.
    """

    path: str
    log_format: str
    forced: frozenset[str]
    since: Sequence[str]


def find_outdated_sources(connection: Connection) -> dict[str, OutdatedSource]:
    """Sources that are read otherwise today, by sha256 in the order of their paths.

    A catalogue that no writer of today has seen has no column that says of any how it was read.
    """
    columns = ", ".join(_columns(connection, "sources"))
    rows = connection.sql(
        "select sha256, path, log_format, companions, reading, forced "  # noqa: S608 - constants
        f"from (select {columns} from held.sources) "
        "where coalesce(reading, 0) < $known order by path",
        params={"known": len(READING_CHANGES)},
    ).fetchall()
    return {
        sha256: OutdatedSource(path, log_format, frozenset(forced or ()), since)
        for sha256, path, log_format, companions, reading, forced in rows
        if (since := reading_changes_since(reading, log_format, companions))
    }


def add_later_columns(connection: Connection) -> None:
    """Add the columns that a catalogue of this schema may lack, as schema.ADDED has them."""
    for table in CATALOGUE_TABLES:
        for name in LATER_COLUMNS.get(table, ()):
            dtype = _sql_type(TABLES[table][name].dtype)
            connection.execute(
                f'alter table held.{table} add column if not exists "{name}" {dtype}'
            )


def last_batch(connection: Connection) -> int:
    """Number of the last batch that the catalogue knows; 0 of a new one."""
    ((batch,),) = connection.sql("select batch from held.about").fetchall()
    return int(batch)


# -- what a batch changes ------------------------------------------------------------------


def apply_batch(connection: Connection, batch: int, frames: Mapping[str, pl.DataFrame]) -> None:
    """The rows of one batch, by table: what is removed or replaced goes, then the new comes."""
    connection.execute("update held.about set batch = $b", {"b": batch})
    gone = [
        frames[table].select("sha256") for table in ("sources", REMOVED_TABLE) if table in frames
    ]
    if gone:
        _forget(connection, pl.concat(gone).unique())
    for table in CATALOGUE_TABLES:
        if table in frames:
            columns = [*TABLES[table], *(["batch"] if table != "facts" else [])]
            frame = _as_today(frames[table], table).select(columns)
            touched = frame.with_columns(touched=pl.lit(batch, pl.Int64))
            _append(connection, table, touched if table == "runs" else frame)
    if REMOVED_TABLE in frames:
        _run(
            connection,
            frames[REMOVED_TABLE].select("run_id"),
            f"delete from held.facts where {FLAG_ORIGIN_SQL} "  # noqa: S608 - constants
            "and run_id in (select run_id from frame) "
            "and run_id not in (select run_id from held.runs)",
        )
    if BESIDE_TABLE in frames:
        _replace_beside(connection, batch, frames[BESIDE_TABLE])
    if GIVEN_TABLE in frames:
        _give(connection, batch, frames[GIVEN_TABLE])
    if METRICS_TABLE in frames:
        scored = frames[METRICS_TABLE].select("run_id", "as_of")
        _run(
            connection, scored, "delete from held.scored where run_id in (select run_id from frame)"
        )
        _append(connection, "scored", scored)


def register_parts(connection: Connection, parts: Sequence[ParquetPart]) -> None:
    """Parts that are read from now on."""
    _append(connection, "parts", parts_frame(parts))


def retire_parts(connection: Connection, paths: Collection[str], now: datetime) -> None:
    """Parts that new readers do not read any more; now: UTC."""
    frame = pl.DataFrame({"path": list(paths)}).with_columns(since=pl.lit(now, pl.Datetime("us")))
    _run(connection, frame, "delete from held.parts where path in (select path from frame)")
    _append(connection, "dead", frame)


def forget_dead_parts(connection: Connection, paths: Collection[str]) -> None:
    """Dead parts whose files are gone."""
    frame = pl.DataFrame({"path": list(paths)}, schema={"path": pl.String})
    _run(connection, frame, "delete from held.dead where path in (select path from frame)")


def mark_files(connection: Connection, files: Iterable[FileMark]) -> None:
    """How files stand now, in place of how they stood."""
    frame = pl.DataFrame(list(files), schema=FILE_MARK_SCHEMA, orient="row")
    frame = frame.unique("path", keep="last", maintain_order=True)
    _run(connection, frame, "delete from held.files where path in (select path from frame)")
    _append(connection, "files", frame)


def sources_state(connection: Connection) -> tuple[int, int]:
    """How many there are, and the batch of the newest: never the same of two sets of sources."""
    sql = "select count(*), coalesce(max(batch), 0) from held.sources"
    ((count, batch),) = connection.sql(sql).fetchall()
    return int(count), int(batch)


def remembered_folders(connection: Connection, state: tuple[int, int]) -> dict[str, str]:
    """What `remember_folders` was told when the sources were these."""
    sql = "select path, beside from held.files where size = $n and mtime_ns = $b and path like '%/'"
    rows = connection.sql(sql, params=dict(zip("nb", state, strict=True))).fetchall()
    return {path[:-1]: names for path, names in rows}


def remember_folders(connection: Connection, signatures: Mapping[str, str]) -> None:
    """What folders hold as of the sources that are held now; other ones are forgotten."""
    rows = [(f"{path}/", *sources_state(connection), 0, at, "") for path, at in signatures.items()]
    connection.execute("delete from held.files where path like '%/'")
    _append(connection, "files", pl.DataFrame(rows, schema=FILE_MARK_SCHEMA, orient="row"))


def _forget(con: Connection, sources: pl.DataFrame) -> None:
    """Sources by sha256 go; facts given by hand stay for the source that replaces them."""
    _run(con, sources, f"delete from held.facts where not {FLAG_ORIGIN_SQL} and {_THEIR_FACTS}")  # noqa: S608
    for table in ("runs", "sources"):
        _run(con, sources, f"delete from held.{table} where {_SOURCES}")  # noqa: S608


def _replace_beside(con: Connection, batch: int, facts: pl.DataFrame) -> None:
    """Each source's set of facts from beside it comes in place of the earlier one.

    Where the parts were merged, a source that was replaced or removed later has no runs any more:
    its set does not come, for nothing would take it away again.
    """
    facts = _as_today(facts, "facts")
    sources = facts.select("sha256").unique()
    _run(con, sources, f"delete from held.facts where {OUTSIDE_ORIGIN_SQL} and {_THEIR_FACTS}")  # noqa: S608
    _touch(con, batch, sources, "sha256")
    columns = ", ".join(f'"{name}"' for name in TABLES["facts"])
    _run(
        con,
        facts.filter(pl.col("name").is_not_null()),
        f"insert into held.facts by name select {columns} from frame "  # noqa: S608 - constants
        "semi join held.runs using (run_id, sha256)",
    )


def _give(con: Connection, batch: int, facts: pl.DataFrame) -> None:
    """Each fact given by hand comes in place of an earlier one; without a value, nothing comes."""
    facts = _as_today(facts, "facts").select(list(TABLES["facts"]))
    _run(
        con,
        facts,
        f"delete from held.facts where {FLAG_ORIGIN_SQL} "  # noqa: S608 - constants
        "and (run_id, name) in (select (run_id, name) from frame)",
    )
    _touch(con, batch, facts, "run_id")
    _append(con, "facts", facts.filter(pl.col("value").is_not_null()))


def _as_today(frame: pl.DataFrame, table: str) -> pl.DataFrame:
    """Rows of a table; columns that there were not yet when they were written are null."""
    missing = [name for name in LATER_COLUMNS.get(table, ()) if name not in frame.columns]
    return frame.with_columns(
        pl.lit(None, TABLES[table][name].dtype).alias(name) for name in missing
    )


def _touch(con: Connection, batch: int, frame: pl.DataFrame, by: str) -> None:
    _run(
        con,
        frame.select(by),
        f"update held.runs set touched = {batch} where {by} in (select {by} from frame)",  # noqa: S608 - own words
    )


def _run(con: Connection, frame: pl.DataFrame, sql: str) -> None:
    """A statement about the rows of `frame`."""
    con.register("frame", frame.rechunk())  # DuckDB takes 0.15 ms for each chunk
    con.execute(sql)
    con.unregister("frame")


def _append(con: Connection, table: str, frame: pl.DataFrame) -> None:
    if frame.is_empty():
        return
    _run(con, frame, f"insert into held.{table} by name select * from frame")  # noqa: S608 - own words


# -- what it tells -------------------------------------------------------------------------


def derived_tables(connection: Connection) -> Tables:
    """The tables that follow from the parts, in the order of DERIVED_TABLE_ORDER."""
    return {
        table: _in_order(
            _as_today(connection.sql(f"from held.{table} order by {order}").pl(), table), table
        )
        for table, order in DERIVED_TABLE_ORDER.items()
    }


def _in_order(frame: pl.DataFrame, table: str) -> pl.DataFrame:
    """The columns of the schema first: one that was added to a table stands behind all others."""
    first = [*TABLES.get(table, ())]
    return frame.select(*first, *(name for name in frame.columns if name not in first))


def live_parts(connection: Connection, tables: Collection[str] = ()) -> list[ParquetPart]:
    """The parts that are read, of these tables or of all, oldest rows first."""
    columns = ", ".join(PART_SCHEMA)
    rows = connection.sql(
        f"select {columns} from held.parts order by table_name, first_batch, path"  # noqa: S608 - constants
    )
    found = [ParquetPart(*row) for row in rows.fetchall()]
    return [part for part in found if not tables or part.table_name in tables]


def dead_parts(connection: Connection) -> dict[str, datetime]:
    """Paths of the parts that only readers of before may read, and since when (UTC)."""
    return dict(connection.sql("select path, since from held.dead").fetchall())


def runs_scored_after(connection: Connection, state: int) -> list[str]:
    """Runs whose metrics are of a later state of the store."""
    sql = "select run_id from held.scored where as_of > $state"
    return [run for (run,) in connection.sql(sql, params={"state": state}).fetchall()]


def batches_of_runs(connection: Connection, runs: Collection[str]) -> list[int]:
    """The batches that hold the rows of these runs."""
    frame = pl.DataFrame({"run_id": list(runs)}, schema={"run_id": pl.String})
    connection.register("frame", frame)
    rows = connection.sql(
        "select distinct batch from held.runs semi join frame using (run_id)"
    ).fetchall()
    connection.unregister("frame")
    return sorted(batch for (batch,) in rows)


def create_views(
    connection: Connection,
    backend: StoreBackend,
    tables: Collection[str] = tuple(TABLES),
    runs: Collection[str] | None = None,
) -> None:
    """Temporary views of tables of ingest.core.schema, of all runs or of these alone."""
    wanted = ""
    if runs is not None:
        ids = pl.DataFrame({"run_id": list(runs)}, schema={"run_id": pl.String})
        _run(connection, ids, "create temp table wanted as from frame")
        wanted = "semi join wanted using (run_id)"
    of_runs = f"(select run_id, sha256, batch from held.runs {wanted})"  # noqa: S608 - constants
    here = of_runs if wanted else "held.sources"
    whose = {"run_id": of_runs, "sha256": here}
    batches = None if runs is None else batches_of_runs(connection, runs)
    for table in set(CATALOGUE_TABLES).intersection(tables):
        columns = ", ".join(_columns(connection, table))
        limit = {
            "sources": f"semi join {here} h using (sha256)",
            "runs": wanted,
            "facts": f"semi join {of_runs} h using (run_id)",
        }[table]
        connection.execute(
            f"create temp view {table} as select {columns} from held.{table} {limit}"  # noqa: S608
        )
    for table in PARTS_ONLY_TABLES.keys() & set(tables):
        by = PARTS_ONLY_TABLES[table]
        connection.execute(
            _view(
                connection, table, backend, f"semi join {whose[by]} h using ({by}, batch)", batches
            )
        )


def _columns(con: Connection, table: str) -> list[str]:
    """The columns of a table of CATALOGUE_TABLES, null those that came later than the catalogue."""
    there = con.sql(f"from held.{table} limit 0").columns
    later = [name for name in LATER_COLUMNS.get(table, ()) if name not in there]
    return [_null(table, name) if name in later else f'"{name}"' for name in TABLES[table]]


def _view(
    con: Connection, table: str, shelf: StoreBackend, limit: str, batches: Collection[int] | None
) -> str:
    columns = ", ".join(f'"{name}"' for name in TABLES[table])
    found = [
        part
        for part in live_parts(con, {table})
        if batches is None or any(part.first_batch <= b <= part.last_batch for b in batches)
    ]
    if found:
        shelf.prepare_reads(f"{PARTS_FOLDER}/{table}")
    else:
        empty = ", ".join(_null(table, name) for name in TABLES[table])
        return f"create temp view {table} as select {empty} where false"
    only = "" if batches is None else f"where batch in ({', '.join(map(str, batches))})"
    rows = f"select * from ({_rows(shelf, found)}{_later(table)}) {only}"  # noqa: S608 - own words
    return f"create temp view {table} as select {columns} from ({rows}) {limit}"  # noqa: S608


def _later(table: str) -> str:
    """No rows with the columns that came later: they are null where parts have none of them."""
    nulls = ", ".join(_null(table, name) for name in LATER_COLUMNS.get(table, ()))
    if not nulls:
        return ""
    return f" union all by name select {nulls} where false"


def _null(table: str, name: str) -> str:
    """A column of a table where there are no values of it."""
    return f'null::{_sql_type(TABLES[table][name].dtype)} as "{name}"'


def _rows(shelf: StoreBackend, found: Iterable[ParquetPart]) -> str:
    """All rows of parts, each with its batch."""
    with_batch = [part for part in found if part.tier != STAGED_TIER]
    without = [part for part in found if part.tier == STAGED_TIER]
    selects = []
    if with_batch:
        files = ", ".join(_file(shelf, part) for part in with_batch)
        selects.append(f"select * from read_parquet([{files}], union_by_name = true)")  # noqa: S608
    if without:
        files = ", ".join(_file(shelf, part) for part in without)
        batch_of = ", ".join(f"({_file(shelf, part)}, {part.first_batch})" for part in without)
        selects.append(
            f"select * exclude (filename) from read_parquet([{files}], union_by_name = true, "  # noqa: S608
            "filename = true) "
            f"join (values {batch_of}) as of_part(filename, batch) using (filename)"
        )
    return " union all by name ".join(selects)


def _file(shelf: StoreBackend, part: ParquetPart) -> str:
    return sql_literal(shelf.at(part.path))


def sql_literal(text: str) -> str:
    """A text as SQL has it."""
    return "'" + text.replace("'", "''") + "'"


def _sql_type(dtype: pl.DataType) -> str:
    if isinstance(dtype, pl.List):
        return f"{_sql_type(dtype.inner)}[]"  # type: ignore[arg-type]
    if isinstance(dtype, pl.Struct):
        fields = ", ".join(f'"{f.name}" {_sql_type(f.dtype)}' for f in dtype.fields)  # type: ignore[arg-type]
        return f"struct({fields})"
    name = str(dtype).split("(", maxsplit=1)[0]
    return _SQL_TYPES[name]
