"""DuckDB catalogue over the parts of a store: current rows and list of parts.

    held.sources, held.runs, held.facts    current rows, each with the batch that wrote it
    held.parts, held.dead                  live parts, and replaced parts that earlier readers may
                                           still read
    held.scored                            per run, the store state of its metrics
    held.files                             state of files, so that ingest need not open them; and of
                                           whole folders (path/), as of the sources at that time

All but `held.files`, a mere cache, follows from the parts, batch by batch (`apply_batch`). A run's
current rows in the parts are those of its batch, so a file that is read again hides its earlier
rows. `runs.touched` is the last batch that changed the rows or facts of a run.

All SQL that writes is here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

import duckdb
import polars as pl

from ..core.errors import StoreError
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
from .messages import UNTRUSTED_CATALOGUE
from .parquet_parts import (
    PART_SCHEMA,
    STAGED_TIER,
    ForeignPartError,
    ParquetPart,
    foreign_path_reason,
    part_of_row,
    parts_frame,
)
from .part_paths import PARTS_FOLDER, is_part_path

CATALOGUE_TABLES: Final = ("sources", "runs", "facts")
PARTS_ONLY_TABLES: Final = {"steps": "run_id", "events": "run_id", "unread": "sha256"}
"""Tables whose rows are in the parts alone, with the column of their owner."""

METRICS_TABLE: Final = "metrics"
REPLAYED_TABLES: Final = (
    *CATALOGUE_TABLES,
    BESIDE_TABLE,
    GIVEN_TABLE,
    REMOVED_TABLE,
    METRICS_TABLE,
)
"""Tables of parts that `apply_batch` reads."""

FLAG_ORIGIN_SQL: Final = "regexp_extract(origin, '^[a-z]+') = 'flag'"
OUTSIDE_ORIGIN_SQL: Final = "regexp_extract(origin, '^[a-z]+') in ('sidecar', 'companion')"

DERIVED_TABLE_ORDER: Final = {
    "sources": "sha256",
    "runs": "run_id",
    "facts": "run_id, sequence, name",
    "scored": "run_id",
    "parts": "path",
}
"""Tables that follow from the parts, with a unique sort order."""

_SOURCES: Final = "sha256 in (select sha256 from frame)"
_THEIR_FACTS: Final = f"run_id in (select run_id from held.runs where {_SOURCES})"  # noqa: S608
_BASE: Final = f"regexp_replace(run_id, '{ID_SUFFIX.pattern}', '')"
"""Run id without the suffix that distinguishes equal beginnings."""
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
"""Stored sources and facts that a batch can change. asked: one row per path, sha256 or base id of
the batch.
"""
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


def fetch_rows(
    connection: Connection, sql: str, values: Mapping[str, Any] | None = None
) -> list[tuple[Any, ...]]:
    """Return all rows of a query; twice as fast as a relation, which is planned twice."""
    rows: list[tuple[Any, ...]] = connection.execute(sql, values).fetchall()
    return rows


def fetch_frame(
    connection: Connection, sql: str, values: Mapping[str, Any] | None = None
) -> pl.DataFrame:
    """Return all rows of a query, without importing pyarrow. Raises duckdb.Error."""
    relation: Any = connection.sql(sql, params=values)
    try:
        return pl.DataFrame(relation)
    except pl.exceptions.ComputeError as error:
        raise duckdb.Error(str(error).removeprefix(STREAM_ERROR)) from error


STREAM_ERROR: Final = "got external error: "
"""Beginning of an error of DuckDB in Polars."""


def create_tables(connection: Connection) -> None:
    """Create the empty tables of a new catalogue."""
    connection.execute("create schema held")
    for table, schema in table_schemas().items():
        columns = ", ".join(f'"{name}" {_sql_type(dtype)}' for name, dtype in schema.items())
        connection.execute(f"create table held.{table} ({columns})")
    connection.execute("insert into held.about values ($v, 0)", {"v": SCHEMA_VERSION})


def table_schemas() -> dict[str, Mapping[str, Any]]:
    """Return the columns of each table of a catalogue."""
    return {
        "sources": frame_schema("sources") | BATCH_COLUMN,
        "runs": frame_schema("runs") | BATCH_COLUMN | {"touched": pl.Int64()},
        "facts": frame_schema("facts"),
        "parts": PART_SCHEMA,
        "dead": DEAD_PARTS_SCHEMA,
        "files": FILE_MARK_SCHEMA,
        "scored": {"run_id": pl.String(), "as_of": pl.Int64()},
        "about": {"schema_version": pl.String(), "batch": pl.Int64()},
    }


class OutdatedSource(NamedTuple):
    """Source that today's readers read differently.

    forced: formats chosen by the user, if any. since: descriptions of the changes.
    """

    path: str
    log_format: str
    forced: frozenset[str]
    since: Sequence[str]


def find_outdated_sources(connection: Connection) -> dict[str, OutdatedSource]:
    """Return sources that today's readers read differently, by sha256, in path order.

    A catalogue last written by an earlier version lacks the reading columns; they count as null.
    """
    columns = ", ".join(_columns(connection, "sources"))
    rows = fetch_rows(
        connection,
        "select sha256, path, log_format, companions, reading, forced "  # noqa: S608 - constants
        f"from (select {columns} from held.sources) "
        "where coalesce(reading, 0) < $known order by path",
        {"known": len(READING_CHANGES)},
    )
    return {
        sha256: OutdatedSource(path, log_format, frozenset(forced or ()), since)
        for sha256, path, log_format, companions, reading, forced in rows
        if (since := reading_changes_since(reading, log_format, companions))
    }


def add_later_columns(connection: Connection) -> None:
    """Add columns of schema.LATER_COLUMNS that the catalogue lacks."""
    for table in CATALOGUE_TABLES:
        present = _column_names(connection, table)
        for name in LATER_COLUMNS.get(table, ()):
            if name not in present:
                dtype = _sql_type(TABLES[table][name].dtype)
                connection.execute(f'alter table held.{table} add column "{name}" {dtype}')


def last_batch(connection: Connection) -> int:
    """Return the number of the last batch in the catalogue, 0 for a new catalogue."""
    rows = fetch_rows(connection, "select batch from held.about limit 2")
    if len(rows) != 1 or rows[0][0] is None or rows[0][0] < 0:
        raise untrusted(connection, "the number of its last batch is missing")
    return int(rows[0][0])


# -- trust ---------------------------------------------------------------------------------

_OTHER_OBJECTS_SQL: Final = """
    select 'schema', schema_name from system.main.duckdb_schemas()
        where database_name = $database and schema_name not in ('held', 'main')
    union all select 'view', view_name from system.main.duckdb_views()
        where database_name = $database
    union all select 'macro', function_name from system.main.duckdb_functions()
        where database_name = $database
    union all select 'type', type_name from system.main.duckdb_types()
        where database_name = $database and not internal
    union all select 'sequence', sequence_name from system.main.duckdb_sequences()
        where database_name = $database
    union all select 'index', index_name from system.main.duckdb_indexes()
        where database_name = $database
    union all select 'trigger', trigger_name from system.main.duckdb_triggers()
        where database_name = $database
    limit 1
"""
"""Objects that no catalogue has; a macro in a catalogue replaces DuckDB's own function."""
_TABLES_SQL: Final = """
    select schema_name, table_name, sql from system.main.duckdb_tables()
        where database_name = $database
"""
_COLUMNS_SQL: Final = """
    select table_name, column_name, data_type from system.main.duckdb_columns()
        where database_name = $database order by table_name, column_index
"""


def check_kinds(connection: Connection, database: str) -> None:
    """Raise StoreError if an attached catalogue has more than base tables.

    Call it before `use`: after that, the catalogue's own macros answer for DuckDB's functions.
    """
    found = connection.execute(_OTHER_OBJECTS_SQL, {"database": database}).fetchone()
    if found is not None:
        kind, name = found
        raise untrusted(connection, f"it has the {kind} {name!a}", database)


def schema_version(connection: Connection, database: str) -> str:
    """Return the schema version of a catalogue. Raises StoreError if missing."""
    rows: list[tuple[Any]] = []
    with suppress(duckdb.CatalogException, duckdb.BinderException):  # no such table or column
        sql = f"select schema_version from {database}.held.about limit 2"  # noqa: S608 - a constant
        rows = connection.execute(sql).fetchall()
    if len(rows) != 1 or not isinstance(rows[0][0], str):
        raise untrusted(connection, "the version of its schema is missing", database)
    return rows[0][0]


def check_tables(connection: Connection, database: str) -> None:
    """Raise StoreError unless a catalogue has the tables of `create_tables`."""
    params = {"database": database}
    columns: dict[str, dict[str, str]] = {}
    for table, name, dtype in connection.execute(_COLUMNS_SQL, params).fetchall():
        columns.setdefault(table, {})[name] = dtype
    definitions = {
        (schema, table): sql
        for schema, table, sql in connection.execute(_TABLES_SQL, params).fetchall()
    }
    wanted = table_schemas()
    if other := definitions.keys() - {("held", table) for table in wanted}:
        schema, table = min(other)
        raise untrusted(connection, f"it has the table {f'{schema}.{table}'!a}", database)
    for table, schema in wanted.items():
        if ("held", table) not in definitions:
            raise untrusted(connection, f"it has no table {table}", database)
        if not _is_plain_table(table, schema, columns[table], definitions["held", table]):
            why = f"the table {table} has other columns, a default or a rule"
            raise untrusted(connection, why, database)


def _is_plain_table(
    table: str, schema: Mapping[str, Any], columns: Mapping[str, str], definition: str
) -> bool:
    """Return whether a table is made of the columns of `schema` alone.

    Later columns may be missing. DuckDB writes defaults, generated columns, keys and checks into
    the definition, which must be the bare list of names and types.
    """
    types = {name: _sql_type(dtype) for name, dtype in schema.items()}
    bare = ", ".join(f"{name} {dtype}" for name, dtype in columns.items())
    return (
        all(
            _plain_type(types.get(name, "")) == _plain_type(dtype)
            for name, dtype in columns.items()
        )
        and types.keys() - columns.keys() <= {*LATER_COLUMNS.get(table, ())}
        and definition.replace('"', "") == f"CREATE TABLE held.{table}({bare});".replace('"', "")
    )


def _plain_type(sql_type: str) -> str:
    """Return an SQL type in upper case, without quotes and spaces after commas."""
    return sql_type.upper().replace('"', "").replace(", ", ",")


def untrusted(connection: Connection, why: str, database: str | None = None) -> StoreError:
    """Return the error for a catalogue that fairmfu did not write."""
    ((path,),) = connection.execute(
        "select any_value(path) from system.main.duckdb_databases() "
        "where database_name = coalesce($database, current_database())",
        {"database": database},
    ).fetchall()
    return UNTRUSTED_CATALOGUE(path=path, why=why)


# -- what a batch changes ------------------------------------------------------------------


def apply_batch(connection: Connection, batch: int, frames: Mapping[str, pl.DataFrame]) -> None:
    """Apply the rows of one batch by table: delete replaced rows, insert new rows."""
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


def is_empty(connection: Connection) -> bool:
    """Return whether a catalogue has neither sources nor facts."""
    sql = "select 1 from held.sources union all select 1 from held.facts limit 1"
    return not fetch_rows(connection, sql)


def register_parts(connection: Connection, parts: Sequence[ParquetPart]) -> None:
    """Add live parts."""
    _append(connection, "parts", parts_frame(parts))


def retire_parts(connection: Connection, paths: Collection[str], now: datetime) -> None:
    """Move parts from the live to the dead ones; now: UTC."""
    frame = pl.DataFrame({"path": list(paths)}).with_columns(since=pl.lit(now, pl.Datetime("us")))
    _run(connection, frame, "delete from held.parts where path in (select path from frame)")
    _append(connection, "dead", frame)


def forget_dead_parts(connection: Connection, paths: Collection[str]) -> None:
    """Remove dead parts whose files are deleted."""
    frame = pl.DataFrame({"path": list(paths)}, schema={"path": pl.String})
    _run(connection, frame, "delete from held.dead where path in (select path from frame)")


def mark_files(connection: Connection, files: Iterable[FileMark]) -> None:
    """Replace the remembered state of files."""
    frame = pl.DataFrame(list(files), schema=FILE_MARK_SCHEMA, orient="row")
    frame = frame.unique("path", keep="last", maintain_order=True)
    _run(
        connection,
        frame,
        "delete from held.files where path in (select path from frame)",
        "insert into held.files by name select * from frame",
    )


def sources_state(connection: Connection) -> tuple[int, int]:
    """Return the number of sources and the newest batch: unique per set of sources."""
    sql = "select count(*), coalesce(max(batch), 0) from held.sources"
    ((count, batch),) = fetch_rows(connection, sql)
    return int(count), int(batch)


def remembered_folders(connection: Connection, state: tuple[int, int]) -> dict[str, str]:
    """Return the folder signatures remembered at this state of the sources."""
    sql = "select path, beside from held.files where size = $n and mtime_ns = $b and path like '%/'"
    rows = fetch_rows(connection, sql, dict(zip("nb", state, strict=True)))
    return {path[:-1]: names for path, names in rows}


def remember_folders(connection: Connection, signatures: Mapping[str, str]) -> None:
    """Remember folder signatures at the sources' current state; forget all others."""
    rows = [(f"{path}/", *sources_state(connection), 0, at, "") for path, at in signatures.items()]
    connection.execute("delete from held.files where path like '%/'")
    _append(connection, "files", pl.DataFrame(rows, schema=FILE_MARK_SCHEMA, orient="row"))


def _forget(con: Connection, sources: pl.DataFrame) -> None:
    """Delete sources by sha256; facts given by hand stay for the replacing source."""
    con.register("frame", sources)
    if fetch_rows(con, f"select 1 from held.sources where {_SOURCES} limit 1"):  # noqa: S608
        con.execute(f"delete from held.facts where not {FLAG_ORIGIN_SQL} and {_THEIR_FACTS}")  # noqa: S608
        for table in ("runs", "sources"):
            con.execute(f"delete from held.{table} where {_SOURCES}")  # noqa: S608
    con.unregister("frame")


def _replace_beside(con: Connection, batch: int, facts: pl.DataFrame) -> None:
    """Replace the facts from outside, per source.

    In merged parts, a source that was later replaced or removed has no runs. Its facts are not
    inserted, because no later batch would delete them.
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
    """Replace facts given by hand; a fact without a value is only deleted."""
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
    """Add columns that the table had not yet when the rows were written, as nulls."""
    missing = [name for name in LATER_COLUMNS.get(table, ()) if name not in frame.columns]
    return frame.with_columns(
        pl.lit(None, TABLES[table][name].dtype).alias(name) for name in missing
    )


def _touch(con: Connection, batch: int, frame: pl.DataFrame, by: str) -> None:
    _run(
        con,
        frame.select(by),
        f"update held.runs set touched = {batch} where {by} in (select {by} from frame)",  # noqa: S608 - no user input
    )


def _run(con: Connection, frame: pl.DataFrame, *statements: str) -> None:
    """Execute statements about the rows of `frame`."""
    con.register("frame", frame.rechunk())  # DuckDB takes 0.15 ms for each chunk
    for sql in statements:
        con.execute(sql)
    con.unregister("frame")


def _append(con: Connection, table: str, frame: pl.DataFrame) -> None:
    if frame.is_empty():
        return
    _run(con, frame, f"insert into held.{table} by name select * from frame")  # noqa: S608 - no user input


# -- queries -------------------------------------------------------------------------------


def derived_tables(connection: Connection) -> Tables:
    """Return the tables that follow from the parts, sorted by DERIVED_TABLE_ORDER."""
    return {
        table: _in_order(
            _as_today(fetch_frame(connection, f"from held.{table} order by {order}"), table), table
        )
        for table, order in DERIVED_TABLE_ORDER.items()
    }


def _in_order(frame: pl.DataFrame, table: str) -> pl.DataFrame:
    """Put the schema's columns first: a column added later is at the end of the table."""
    first = [*TABLES.get(table, ())]
    return frame.select(*first, *(name for name in frame.columns if name not in first))


def live_parts(connection: Connection, tables: Collection[str] = ()) -> list[ParquetPart]:
    """Return the live parts of these tables, or of all, oldest rows first.

    Raises StoreError if a row is of no part that fairmfu writes.
    """
    columns = ", ".join(PART_SCHEMA)
    rows = fetch_rows(
        connection,
        f"select {columns} from held.parts order by table_name, first_batch, path",  # noqa: S608 - constants
    )
    try:
        every = [part_of_row(row) for row in rows]
    except ForeignPartError as error:
        raise untrusted(connection, str(error)) from error
    return [part for part in every if not tables or part.table_name in tables]


def dead_parts(connection: Connection) -> dict[str, datetime]:
    """Return the paths of dead parts, with the time of their replacement (UTC).

    Raises StoreError if a path is of no part that fairmfu writes.
    """
    rows = fetch_rows(connection, "select path, since from held.dead")
    for path, since in rows:
        if not is_part_path(path) or since is None:
            raise untrusted(connection, foreign_path_reason(path))
    return dict(rows)


def runs_scored_after(connection: Connection, state: int) -> list[str]:
    """Return runs whose metrics belong to a later state of the store."""
    sql = "select run_id from held.scored where as_of > $state"
    return [run for (run,) in fetch_rows(connection, sql, {"state": state})]


def batches_of_runs(connection: Connection, runs: Collection[str]) -> list[int]:
    """Return the numbers of the batches with rows of these runs."""
    sql = "select distinct batch from held.runs where run_id in (select unnest($ids::varchar[]))"
    return sorted(batch for (batch,) in fetch_rows(connection, sql, {"ids": list(runs)}))


GIVEN_NAMES_SQL: Final = """
    select run_id, case
        when shared and value <> own then value || '/' || own
        when not shared and count(*) over (partition by sha256, value) > 1
            then value || '#' || launch
        else value end as given_name
    from (
        select run_id, arg_max(value, strength) as value, arg_max(shared, strength) as shared
        from (
            select run_id, value,
                (origin like 'flag%', origin like 'sidecar:%.facts.toml', sequence) as strength,
                origin like 'sidecar%' and origin not like 'sidecar:%.facts.toml' as shared
            from held.facts
            where name = 'name' and (origin like 'flag%' or origin like 'sidecar%')
        )
        group by run_id
    )
    join (
        select run_id, sha256, launch, regexp_extract(name, '[^/]*$') as own from held.runs
    ) using (run_id)
"""
"""Names that people gave to runs (ingest.extract.run_names.given_run_name)."""


def create_views(
    connection: Connection,
    backend: StoreBackend,
    tables: Collection[str] = tuple(TABLES),
    runs: Collection[str] | None = None,
) -> None:
    """Create temporary views of the schema's tables, for all runs or only `runs`."""
    wanted = ""
    if runs is not None:
        sql = "create temp table wanted as select unnest($ids::varchar[]) as run_id"
        connection.execute(sql, {"ids": list(runs)})
        wanted = "semi join wanted using (run_id)"
    of_runs = f"(select run_id, sha256, batch from held.runs {wanted})"  # noqa: S608 - constants
    here = of_runs if wanted else "held.sources"
    whose = {"run_id": of_runs, "sha256": here}
    batches = None if runs is None else batches_of_runs(connection, runs)
    for table in set(CATALOGUE_TABLES).intersection(tables):
        columns = ", ".join(_columns(connection, table))
        if table == "runs":
            columns = columns.replace('"name"', "coalesce(given_name, name) as name")
        limit = {
            "sources": f"semi join {here} h using (sha256)",
            "runs": f"left join ({GIVEN_NAMES_SQL}) using (run_id) {wanted}",
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


def _column_names(con: Connection, table: str) -> list[str]:
    description = con.execute(f"from held.{table} limit 0").description or ()
    return [column[0] for column in description]


def _columns(con: Connection, table: str) -> list[str]:
    """Return the columns of a catalogue table; null for those the catalogue lacks."""
    present = _column_names(con, table)
    later = [name for name in LATER_COLUMNS.get(table, ()) if name not in present]
    return [_null(table, name) if name in later else f'"{name}"' for name in TABLES[table]]


def _view(
    con: Connection, table: str, shelf: StoreBackend, limit: str, batches: Collection[int] | None
) -> str:
    columns = ", ".join(f'"{name}"' for name in TABLES[table])
    parts = [
        part
        for part in live_parts(con, {table})
        if batches is None or any(part.first_batch <= b <= part.last_batch for b in batches)
    ]
    if parts:
        shelf.prepare_reads(f"{PARTS_FOLDER}/{table}")
    else:
        empty = ", ".join(_null(table, name) for name in TABLES[table])
        return f"create temp view {table} as select {empty} where false"
    only = "" if batches is None else f"where batch in ({', '.join(map(str, batches))})"
    rows = f"select * from ({_rows(shelf, parts)}{_later(table)}) {only}"  # noqa: S608 - no user input
    return f"create temp view {table} as select {columns} from ({rows}) {limit}"  # noqa: S608


def _later(table: str) -> str:
    """Return SQL for zero rows with the later columns, so that old parts give nulls."""
    nulls = ", ".join(_null(table, name) for name in LATER_COLUMNS.get(table, ()))
    if not nulls:
        return ""
    return f" union all by name select {nulls} where false"


def _null(table: str, name: str) -> str:
    """Return SQL for a column of nulls."""
    return f'null::{_sql_type(TABLES[table][name].dtype)} as "{name}"'


def _rows(shelf: StoreBackend, parts: Iterable[ParquetPart]) -> str:
    """Return SQL for all rows of parts, with their batch."""
    with_batch = [part for part in parts if part.tier != STAGED_TIER]
    without = [part for part in parts if part.tier == STAGED_TIER]
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
    return sql_literal(shelf.readable(part.path))


def sql_literal(text: str) -> str:
    """Return a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def _sql_type(dtype: pl.DataType) -> str:
    if isinstance(dtype, pl.List):
        return f"{_sql_type(dtype.inner)}[]"  # type: ignore[arg-type]
    if isinstance(dtype, pl.Struct):
        fields = ", ".join(f'"{f.name}" {_sql_type(f.dtype)}' for f in dtype.fields)  # type: ignore[arg-type]
        return f"struct({fields})"
    name = str(dtype).split("(", maxsplit=1)[0]
    return _SQL_TYPES[name]
