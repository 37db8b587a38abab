"""The DuckDB catalogue over the parts of a store: which rows hold, and where they stand.

    held.sources, held.runs, held.facts    the rows that hold, each with the batch that wrote it
    held.parts, held.dead                  parts that are read, and those that readers of before
                                           may still read
    held.scored                            by run, the state of the store that its metrics are of
    held.files                             how files stood, so as not to open them again; and whole
                                           folders (path/), as of the sources of that time

All but `held.files` follows from the parts, batch by batch (`apply`); that one is a mere cache. A
run's rows in the parts are those of its batch, so a file that is read again hides its earlier rows.
`runs.touched` is the last batch that changed a run's rows or facts.

The only SQL that writes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

import duckdb
import polars as pl

from ..core.schema import ADDED, READINGS, SCHEMA_VERSION, TABLES, frame_schema, read_otherwise
from .changeset import BESIDE, GIVEN, ID_SUFFIX, REMOVED, FileMark, Tables
from .local_backend import Shelf
from .parquet_parts import PART_SCHEMA, PARTS, UNBATCHED, Part, listed

IN_CATALOGUE: Final = ("sources", "runs", "facts")
IN_PARTS: Final = {"steps": "run_id", "events": "run_id", "unread": "sha256"}
"""Tables whose rows stand in the parts alone, with the column that says whose they are."""

SCORED: Final = "metrics"
REPLAYED: Final = (*IN_CATALOGUE, BESIDE, GIVEN, REMOVED, SCORED)
"""Tables of parts whose rows `apply` looks at."""

BY_HAND: Final = "regexp_extract(origin, '^[a-z]+') = 'flag'"
FROM_BESIDE: Final = "regexp_extract(origin, '^[a-z]+') in ('sidecar', 'companion')"

FOLLOWING: Final = {
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
STANDING: Final = f"""
    select s.path, s.sha256, s.batch, s.read_at, s.step_lines,
        s.reading, s.log_format, s.companions,
        coalesce(list(r.run_id order by r.launch) filter (r.run_id is not null), [])
    from held.sources s left join held.runs r using (sha256)
    where s.sha256 in ({_TOUCHED}) group by all order by s.batch, s.path
"""  # noqa: S608
STANDING_FACTS: Final = f"""
    from held.facts where ({BY_HAND} or {FROM_BESIDE}) and (
        run_id in (select run_id from held.runs where sha256 in ({_TOUCHED}))
        or {_BASE} in (select base from asked)
    ) order by run_id, sequence
"""  # noqa: S608
"""What stands of sources and facts that a batch can touch. asked: one row for each path, sha256 or
base of a run id that is in it."""
ASKED_SCHEMA: Final = pl.Schema({"path": pl.String, "sha256": pl.String, "base": pl.String})
OUTDATED: Final = """
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
FILE_SCHEMA: Final = pl.Schema(
    {
        "path": pl.String,
        "size": pl.Int64,
        "mtime_ns": pl.Int64,
        "inode": pl.Int64,
        "beside": pl.String,
        "sha256": pl.String,
    }
)
DEAD_SCHEMA: Final = pl.Schema({"path": pl.String(), "since": pl.Datetime("us")})
BATCH: Final = {"batch": pl.Int64()}

Connection: TypeAlias = duckdb.DuckDBPyConnection


def create(con: Connection) -> None:
    """The empty tables of a new catalogue."""
    con.execute("create schema held")
    schemas: dict[str, Mapping[str, Any]] = {
        "sources": frame_schema("sources") | BATCH,
        "runs": frame_schema("runs") | BATCH | {"touched": pl.Int64()},
        "facts": frame_schema("facts"),
        "parts": PART_SCHEMA,
        "dead": DEAD_SCHEMA,
        "files": FILE_SCHEMA,
        "scored": {"run_id": pl.String(), "as_of": pl.Int64()},
        "about": {"schema_version": pl.String(), "batch": pl.Int64()},
    }
    for table, schema in schemas.items():
        columns = ", ".join(f'"{name}" {_sql_type(dtype)}' for name, dtype in schema.items())
        con.execute(f"create table held.{table} ({columns})")
    con.execute("insert into held.about values ($v, 0)", {"v": SCHEMA_VERSION})


class ReadBefore(NamedTuple):
    """A source that is read otherwise today.

    forced: the formats that it was to be read with, if any; since: what is read otherwise.
    """

    path: str
    log_format: str
    forced: frozenset[str]
    since: Sequence[str]


def read_before(con: Connection) -> dict[str, ReadBefore]:
    """Sources that are read otherwise today, by sha256 in the order of their paths.

    A catalogue that no writer of today has seen has no column that says of any how it was read.
    """
    columns = ", ".join(_columns(con, "sources"))
    rows = con.sql(
        "select sha256, path, log_format, companions, reading, forced "  # noqa: S608 - constants
        f"from (select {columns} from held.sources) "
        "where coalesce(reading, 0) < $known order by path",
        params={"known": len(READINGS)},
    ).fetchall()
    return {
        sha256: ReadBefore(path, log_format, frozenset(forced or ()), since)
        for sha256, path, log_format, companions, reading, forced in rows
        if (since := read_otherwise(reading, log_format, companions))
    }


def bring_up(con: Connection) -> None:
    """Add the columns that a catalogue of this schema may lack, as schema.ADDED has them."""
    for table in IN_CATALOGUE:
        for name in ADDED.get(table, ()):
            dtype = _sql_type(TABLES[table][name].dtype)
            con.execute(f'alter table held.{table} add column if not exists "{name}" {dtype}')


def last_batch(con: Connection) -> int:
    """Number of the last batch that the catalogue knows; 0 of a new one."""
    ((batch,),) = con.sql("select batch from held.about").fetchall()
    return int(batch)


# -- what a batch changes ------------------------------------------------------------------


def apply(con: Connection, batch: int, frames: Mapping[str, pl.DataFrame]) -> None:
    """The rows of one batch, by table: what is removed or replaced goes, then the new comes."""
    con.execute("update held.about set batch = $b", {"b": batch})
    gone = [frames[table].select("sha256") for table in ("sources", REMOVED) if table in frames]
    if gone:
        _forget(con, pl.concat(gone).unique())
    for table in IN_CATALOGUE:
        if table in frames:
            columns = [*TABLES[table], *(["batch"] if table != "facts" else [])]
            frame = _as_today(frames[table], table).select(columns)
            touched = frame.with_columns(touched=pl.lit(batch, pl.Int64))
            _append(con, table, touched if table == "runs" else frame)
    if REMOVED in frames:
        _run(
            con,
            frames[REMOVED].select("run_id"),
            f"delete from held.facts where {BY_HAND} and run_id in (select run_id from frame) "  # noqa: S608 - constants
            "and run_id not in (select run_id from held.runs)",
        )
    if BESIDE in frames:
        _replace_beside(con, batch, frames[BESIDE])
    if GIVEN in frames:
        _give(con, batch, frames[GIVEN])
    if SCORED in frames:
        scored = frames[SCORED].select("run_id", "as_of")
        _run(con, scored, "delete from held.scored where run_id in (select run_id from frame)")
        _append(con, "scored", scored)


def register(con: Connection, parts: Sequence[Part]) -> None:
    """Parts that are read from now on."""
    _append(con, "parts", listed(parts))


def retire(con: Connection, paths: Collection[str], now: datetime) -> None:
    """Parts that new readers do not read any more; now: UTC."""
    frame = pl.DataFrame({"path": list(paths)}).with_columns(since=pl.lit(now, pl.Datetime("us")))
    _run(con, frame, "delete from held.parts where path in (select path from frame)")
    _append(con, "dead", frame)


def bury(con: Connection, paths: Collection[str]) -> None:
    """Dead parts whose files are gone."""
    frame = pl.DataFrame({"path": list(paths)}, schema={"path": pl.String})
    _run(con, frame, "delete from held.dead where path in (select path from frame)")


def mark_files(con: Connection, files: Iterable[FileMark]) -> None:
    """How files stand now, in place of how they stood."""
    frame = pl.DataFrame(list(files), schema=FILE_SCHEMA, orient="row")
    frame = frame.unique("path", keep="last", maintain_order=True)
    _run(con, frame, "delete from held.files where path in (select path from frame)")
    _append(con, "files", frame)


def state_of_sources(con: Connection) -> tuple[int, int]:
    """How many there are, and the batch of the newest: never the same of two sets of sources."""
    sql = "select count(*), coalesce(max(batch), 0) from held.sources"
    ((count, batch),) = con.sql(sql).fetchall()
    return int(count), int(batch)


def folders(con: Connection, state: tuple[int, int]) -> dict[str, str]:
    """What `remember_folders` was told when the sources were these."""
    sql = "select path, beside from held.files where size = $n and mtime_ns = $b and path like '%/'"
    rows = con.sql(sql, params=dict(zip("nb", state, strict=True))).fetchall()
    return {path[:-1]: names for path, names in rows}


def remember_folders(con: Connection, names: Mapping[str, str]) -> None:
    """What folders hold as of the sources that are held now; other ones are forgotten."""
    rows = [(f"{path}/", *state_of_sources(con), 0, at, "") for path, at in names.items()]
    con.execute("delete from held.files where path like '%/'")
    _append(con, "files", pl.DataFrame(rows, schema=FILE_SCHEMA, orient="row"))


def _forget(con: Connection, sources: pl.DataFrame) -> None:
    """Sources by sha256 go; facts given by hand stay for the source that replaces them."""
    _run(con, sources, f"delete from held.facts where not {BY_HAND} and {_THEIR_FACTS}")  # noqa: S608
    for table in ("runs", "sources"):
        _run(con, sources, f"delete from held.{table} where {_SOURCES}")  # noqa: S608


def _replace_beside(con: Connection, batch: int, facts: pl.DataFrame) -> None:
    """Each source's set of facts from beside it comes in place of the earlier one.

    Where the parts were merged, a source that was replaced or removed later has no runs any more:
    its set does not come, for nothing would take it away again.
    """
    facts = _as_today(facts, "facts")
    sources = facts.select("sha256").unique()
    _run(con, sources, f"delete from held.facts where {FROM_BESIDE} and {_THEIR_FACTS}")  # noqa: S608
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
        f"delete from held.facts where {BY_HAND} "  # noqa: S608 - constants
        "and (run_id, name) in (select (run_id, name) from frame)",
    )
    _touch(con, batch, facts, "run_id")
    _append(con, "facts", facts.filter(pl.col("value").is_not_null()))


def _as_today(frame: pl.DataFrame, table: str) -> pl.DataFrame:
    """Rows of a table; columns that there were not yet when they were written are null."""
    missing = [name for name in ADDED.get(table, ()) if name not in frame.columns]
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


def following(con: Connection) -> Tables:
    """The tables that follow from the parts, in the order of FOLLOWING."""
    return {
        table: _in_order(
            _as_today(con.sql(f"from held.{table} order by {order}").pl(), table), table
        )
        for table, order in FOLLOWING.items()
    }


def _in_order(frame: pl.DataFrame, table: str) -> pl.DataFrame:
    """The columns of the schema first: one that was added to a table stands behind all others."""
    first = [*TABLES.get(table, ())]
    return frame.select(*first, *(name for name in frame.columns if name not in first))


def parts_of(con: Connection, tables: Collection[str] = ()) -> list[Part]:
    """The parts that are read, of these tables or of all, oldest rows first."""
    columns = ", ".join(PART_SCHEMA)
    rows = con.sql(f"select {columns} from held.parts order by table_name, first_batch, path")  # noqa: S608 - constants
    found = [Part(*row) for row in rows.fetchall()]
    return [part for part in found if not tables or part.table_name in tables]


def dead(con: Connection) -> dict[str, datetime]:
    """Paths of the parts that only readers of before may read, and since when (UTC)."""
    return dict(con.sql("select path, since from held.dead").fetchall())


def scored_after(con: Connection, state: int) -> list[str]:
    """Runs whose metrics are of a later state of the store."""
    sql = "select run_id from held.scored where as_of > $state"
    return [run for (run,) in con.sql(sql, params={"state": state}).fetchall()]


def batches_of(con: Connection, runs: Collection[str]) -> list[int]:
    """The batches that hold the rows of these runs."""
    frame = pl.DataFrame({"run_id": list(runs)}, schema={"run_id": pl.String})
    con.register("frame", frame)
    rows = con.sql("select distinct batch from held.runs semi join frame using (run_id)").fetchall()
    con.unregister("frame")
    return sorted(batch for (batch,) in rows)


def show(
    con: Connection,
    shelf: Shelf,
    tables: Collection[str] = tuple(TABLES),
    runs: Collection[str] | None = None,
) -> None:
    """Temporary views of tables of ingest.core.schema, of all runs or of these alone."""
    wanted = ""
    if runs is not None:
        ids = pl.DataFrame({"run_id": list(runs)}, schema={"run_id": pl.String})
        _run(con, ids, "create temp table wanted as from frame")
        wanted = "semi join wanted using (run_id)"
    of_runs = f"(select run_id, sha256, batch from held.runs {wanted})"  # noqa: S608 - constants
    here = of_runs if wanted else "held.sources"
    whose = {"run_id": of_runs, "sha256": here}
    batches = None if runs is None else batches_of(con, runs)
    for table in set(IN_CATALOGUE).intersection(tables):
        columns = ", ".join(_columns(con, table))
        limit = {
            "sources": f"semi join {here} h using (sha256)",
            "runs": wanted,
            "facts": f"semi join {of_runs} h using (run_id)",
        }[table]
        con.execute(f"create temp view {table} as select {columns} from held.{table} {limit}")  # noqa: S608
    for table in IN_PARTS.keys() & set(tables):
        by = IN_PARTS[table]
        con.execute(
            _view(con, table, shelf, f"semi join {whose[by]} h using ({by}, batch)", batches)
        )


def _columns(con: Connection, table: str) -> list[str]:
    """The columns of a table of IN_CATALOGUE, null those that came later than the catalogue."""
    there = con.sql(f"from held.{table} limit 0").columns
    later = [name for name in ADDED.get(table, ()) if name not in there]
    return [_null(table, name) if name in later else f'"{name}"' for name in TABLES[table]]


def _view(
    con: Connection, table: str, shelf: Shelf, limit: str, batches: Collection[int] | None
) -> str:
    columns = ", ".join(f'"{name}"' for name in TABLES[table])
    found = [
        part
        for part in parts_of(con, {table})
        if batches is None or any(part.first_batch <= b <= part.last_batch for b in batches)
    ]
    if found:
        shelf.look_at(f"{PARTS}/{table}")
    else:
        empty = ", ".join(_null(table, name) for name in TABLES[table])
        return f"create temp view {table} as select {empty} where false"
    only = "" if batches is None else f"where batch in ({', '.join(map(str, batches))})"
    rows = f"select * from ({_rows(shelf, found)}{_later(table)}) {only}"  # noqa: S608 - own words
    return f"create temp view {table} as select {columns} from ({rows}) {limit}"  # noqa: S608


def _later(table: str) -> str:
    """No rows with the columns that came later: they are null where parts have none of them."""
    nulls = ", ".join(_null(table, name) for name in ADDED.get(table, ()))
    if not nulls:
        return ""
    return f" union all by name select {nulls} where false"


def _null(table: str, name: str) -> str:
    """A column of a table where there are no values of it."""
    return f'null::{_sql_type(TABLES[table][name].dtype)} as "{name}"'


def _rows(shelf: Shelf, found: Iterable[Part]) -> str:
    """All rows of parts, each with its batch."""
    with_batch = [part for part in found if part.tier != UNBATCHED]
    without = [part for part in found if part.tier == UNBATCHED]
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


def _file(shelf: Shelf, part: Part) -> str:
    return quote(shelf.at(part.path))


def quote(text: str) -> str:
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
