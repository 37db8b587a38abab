"""Stores as earlier versions wrote them, for the tests of what migrates them.

Frozen: nothing here follows the program. Schema 2 has a part for each table of each source,

    parts/<table>/<first 16 of sha256>-<sequence>-log.parquet       its rows
    parts/facts/<first 16 of sha256>-<sequence>-beside.parquet      facts from beside it, as a set
    parts/facts/all-<sequence>-given.parquet                        facts given by hand
    parts/removed/all-<sequence>-removed.parquet                    sources that are gone
    parts/batch/all-<sequence>-batch.parquet                        the batch's parts, written last

each with its marks (fairmfu.schema, .table, .owner, .kind, .sequence), and over them
catalogue.duckdb with the tables sources, runs, facts, parts and about.
"""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import duckdb
import polars as pl

from tests.support.folders import TESTS

Tables = Mapping[str, pl.DataFrame]

STORES: Final = TESTS / "old_stores"
STRIDE: Final = 1_000_000
OF_SOURCE: Final = "run_id in (select run_id from runs where sha256 = $s)"
STOOD_BESIDE: Final = f"regexp_matches(origin, '^(sidecar|companion)') and {OF_SOURCE}"
ANY_BESIDE: Final = f"select 1 from facts where {STOOD_BESIDE}"  # noqa: S608 - constants
FORGET: Final = (
    f"delete from facts where not regexp_matches(origin, '^flag') and {OF_SOURCE}",  # noqa: S608 - constants
    "delete from runs where sha256 = $s",
    "delete from sources where sha256 = $s",
    "delete from parts where owner = $s",
)
FORGET_BESIDE: Final = (
    f"delete from facts where {STOOD_BESIDE}",  # noqa: S608 - constants
    "delete from parts where owner = $s and kind = 'beside'",
)
FORGET_GIVEN: Final = (
    "delete from facts where regexp_matches(origin, '^flag') "
    "and (run_id, name) in (select (run_id, name) from given)"
)
OUTSIDE: Final = pl.col("origin").str.extract(r"^([a-z]+)").is_in(["flag", "sidecar", "companion"])

KIND_OF_LINE: Final = 'struct("count" bigint, line bigint, example varchar)[]'
DEFINITIONS: Final = {
    "sources": "sha256 varchar, path varchar, bytes bigint, log_format varchar, "
    "companions varchar[], lines bigint, step_lines bigint, known_lines bigint, "
    "other_lines bigint, unread_lines bigint, companion_lines bigint, "
    f"other_kinds {KIND_OF_LINE}",
    "runs": "run_id varchar, sha256 varchar, name varchar, launch bigint, framework varchar, "
    "log_format varchar, first_line bigint, last_line bigint, started_at timestamp, utc boolean, "
    "outcome varchar, outcome_line bigint, outcome_text varchar, step_unit varchar, "
    "elapsed_covers varchar, elapsed_excludes_data boolean, rate_covers varchar, "
    "rate_excludes_data boolean, evidence varchar[], synthetic boolean",
    "facts": "run_id varchar, name varchar, value varchar, origin varchar, line bigint, "
    "sequence bigint",
}
"""Tables of the catalogue; the columns of the others stand in `IN_PARTS`."""
PARTS: Final = (
    "table_name varchar, path varchar, owner varchar, kind varchar, sequence bigint, rows bigint"
)
IN_PARTS: Final = {
    "steps": "run_id line rank step epoch logged_at since_start_s elapsed_s data_s samples "
    "sequence_length rank_tokens rank_slots step_tokens consumed_samples consumed_tokens "
    "attention_ratio loss grad_norm learning_rate loss_scale skipped_steps peak_memory_bytes "
    "logged_tgs logged_samples_per_second logged_tflops logged_mfu extra",
    "events": "run_id line kind step logged_at seconds extra text",
    "unread": "sha256 line reason text",
}
COLUMNS: Final = {
    **{
        table: [column.split()[0].strip('"') for column in _split]
        for table, _split in (
            (table, text.replace(KIND_OF_LINE, "any").split(", "))
            for table, text in DEFINITIONS.items()
        )
    },
    **{table: names.split() for table, names in IN_PARTS.items()},
}


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What one command wrote.

    files: all tables of each file that it read, as `ingest.extract.log_tables.read_log_tables` has
    them; a file
        of a known path takes the place of what was read there before, as one that grew does
    beside: by content hash, the facts (name, value, origin) that stand beside a known file by now
    given: facts (run_id, name, value) given by hand; None as value takes one back
    """

    files: Sequence[Tables] = ()
    beside: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    given: Sequence[Mapping[str, Any]] = ()


def write_schema_2(path: Path, batches: Iterable[Batch]) -> None:
    """A store of schema 2 at `path`, one batch after the other."""
    (path / "parts").mkdir(parents=True)
    with duckdb.connect(path / "catalogue.duckdb") as con:
        for table, columns in DEFINITIONS.items():
            con.execute(f"create table {table} ({columns})")
        con.execute(f"create table parts ({PARTS})")
        con.execute("create table about (schema_version varchar)")
        con.execute("insert into about values ('2')")
        for sequence, batch in enumerate(batches, start=1):
            _Writer(path, con, sequence).write(batch)
        con.execute("checkpoint")
    (path / "writer.lock").write_text("1")


class _Writer:
    """The parts of one batch, and what the catalogue makes of them."""

    def __init__(self, path: Path, con: duckdb.DuckDBPyConnection, sequence: int) -> None:
        self.path, self.con, self.sequence = path, con, sequence
        self.listed: list[str] = []

    def write(self, batch: Batch) -> None:
        removed = [sha256 for tables in batch.files for sha256 in self._replaced(tables)]
        for sha256 in removed:
            self._forget(sha256)
        given = list(batch.given)
        for tables in batch.files:
            given += self._add(tables)
        for sha256, facts in batch.beside.items():
            runs = self.con.execute("select run_id from runs where sha256 = $s", {"s": sha256})
            self._put_beside(sha256, [run for (run,) in runs.fetchall()], facts)
        if given:
            self._give(given)
        if removed:
            self._part("removed", pl.DataFrame({"sha256": removed}), "", "removed")
        self.con.execute("delete from facts where run_id not in (select run_id from runs)")
        self._part("batch", pl.DataFrame({"path": self.listed}), "", "batch", listed=False)

    def _replaced(self, tables: Tables) -> list[str]:
        path = tables["sources"]["path"][0]
        found = self.con.execute("select sha256 from sources where path = $p", {"p": path})
        return [sha256 for (sha256,) in found.fetchall()]

    def _add(self, tables: Tables) -> list[dict[str, Any]]:
        """One file's rows; what was given by hand with them."""
        sha256 = tables["sources"]["sha256"][0]
        facts = tables["facts"]
        for table, frame in (tables | {"facts": facts.filter(~OUTSIDE)}).items():
            rows = frame.select(COLUMNS[table])
            self._part(table, rows, sha256, "log")
            if table in DEFINITIONS:
                self._append(table, rows)
        outside = facts.filter(OUTSIDE, pl.col("run_id") == pl.col("run_id").first())
        by_hand = pl.col("origin").str.starts_with("flag")
        runs = tables["runs"]["run_id"].to_list()
        self._put_beside(sha256, runs, outside.filter(~by_hand).rows(named=True))
        flags = outside.filter(by_hand).rows(named=True)
        return [{**fact, "run_id": run} for run in runs for fact in flags]

    def _put_beside(
        self, sha256: str, runs: Sequence[str], facts: Sequence[Mapping[str, Any]]
    ) -> None:
        stood = self.con.execute(ANY_BESIDE, {"s": sha256})
        if not facts and not stood.fetchone():
            return
        for statement in FORGET_BESIDE:
            self.con.execute(statement, {"s": sha256})
        rows = [{**fact, "run_id": run} for run in runs for fact in facts]
        frame = _facts(rows, self.sequence * STRIDE)
        self._part("facts", frame, sha256, "beside")
        self._append("facts", frame)

    def _give(self, given: Sequence[Mapping[str, Any]]) -> None:
        rows = [{"origin": "flag", **fact} for fact in given]
        frame = _facts(rows, self.sequence * STRIDE + STRIDE // 2)
        self._part("facts", frame, "", "given")
        self.con.register("given", frame)
        self.con.execute(FORGET_GIVEN)
        self.con.unregister("given")
        self._append("facts", frame.filter(pl.col("value").is_not_null()))

    def _forget(self, sha256: str) -> None:
        for statement in FORGET:
            self.con.execute(statement, {"s": sha256})

    def _append(self, table: str, frame: pl.DataFrame) -> None:
        self.con.register("new", frame)
        self.con.execute(f"insert into {table} by name from new")
        self.con.unregister("new")

    def _part(
        self, table: str, frame: pl.DataFrame, owner: str, kind: str, *, listed: bool = True
    ) -> None:
        name = f"parts/{table}/{owner[:16] or 'all'}-{self.sequence:06d}-{kind}.parquet"
        (self.path / name).parent.mkdir(exist_ok=True)
        marks = {"table": table, "owner": owner, "kind": kind, "sequence": str(self.sequence)}
        metadata = {f"fairmfu.{key}": value for key, value in {"schema": "2", **marks}.items()}
        frame.write_parquet(self.path / name, metadata=metadata)
        if listed:
            self.listed.append(name)
            row = [table, name, owner, kind, self.sequence, frame.height]
            self.con.execute("insert into parts values (?, ?, ?, ?, ?, ?)", row)


def _facts(rows: Sequence[Mapping[str, Any]], first: int) -> pl.DataFrame:
    """Rows of `facts`, numbered from `first`."""
    text, number = pl.String(), pl.Int64()
    schema = dict(zip(COLUMNS["facts"], (text, text, text, text, number, number), strict=True))
    columns = {name: [row.get(name) for row in rows] for name in schema}
    return pl.DataFrame(columns | {"sequence": range(first, first + len(rows))}, schema=schema)


def genuine(to: Path, schema: int = 2) -> Path:
    """A copy at `to` of the store that the program wrote when that schema was its own.

    That of schema 3 is of its first days: its facts quote no line.
    """
    shutil.copytree(STORES / f"schema-{schema}", to)
    packed = to / "catalogue.duckdb.gz"
    (to / "catalogue.duckdb").write_bytes(gzip.decompress(packed.read_bytes()))
    packed.unlink()
    return to


def said_by_genuine(schema: int = 2) -> dict[str, list[dict[str, Any]]]:
    """By table, the rows that the program of then read in `genuine`; times are texts."""
    text = (STORES / f"schema-{schema}.json").read_text(encoding="utf-8")
    tables: dict[str, list[dict[str, Any]]] = json.loads(text)
    return tables


def as_said(table: str, frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Rows of a table in the form of `said_by_genuine`, with the columns of schema 2 alone."""
    return as_told(frame.select(COLUMNS[table]))


def as_told(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Rows in the form of `said_by_genuine`."""
    rows = frame.rows(named=True)
    said: list[dict[str, Any]] = json.loads(json.dumps(rows, default=lambda at: at.isoformat()))
    return said
