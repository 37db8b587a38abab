"""Stores that others have written to: a generator of crafted catalogues and of crafted parts.

Each change is drawn from a seed. Beside the store is a folder `outside` with canaries.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb
import polars as pl

from fairmfu.ingest.store import catalogue, parquet_parts
from fairmfu.ingest.store.store import CATALOGUE_NAME

OUTSIDE: Final = "outside"
TABLES: Final = [*catalogue.table_schemas()]

Change = Callable[[Path, random.Random], str]


def make_canaries(folder: Path) -> None:
    """Files of the user beside the store: a text, a part, a database, a folder of parts."""
    outside = folder / OUTSIDE
    (outside / "steps").mkdir(parents=True)
    (outside / "canary.txt").write_text("secret-canary\n")
    rows = pl.DataFrame({"run_id": ["secret-canary"], "sha256": ["secret-canary"], "batch": [1]})
    marks = {"fairmfu.schema": "4", "fairmfu.table": "steps"}
    for path in (outside / "canary.parquet", outside / "steps" / "00000001.parquet"):
        rows.write_parquet(path, metadata=marks)
    with duckdb.connect(str(outside / "canary.duckdb")) as con:
        con.execute(
            "create schema held; create table held.runs as select 'secret-canary' as run_id"
        )


def canaries(folder: Path) -> dict[str, bytes]:
    return {
        path.as_posix(): path.read_bytes()
        for path in sorted((folder / OUTSIDE).rglob("*"))
        if path.is_file()
    }


def foreign_paths(store: Path) -> list[str]:
    outside = (store.parent / OUTSIDE).absolute()
    return [
        "../outside/canary.txt",
        "../outside/canary.parquet",
        f"{outside}/canary.txt",
        f"{outside}/canary.parquet",
        "parts/../../outside/canary.parquet",
        "parts/steps/../../../outside/canary.txt",
        "parts/../../outside/steps/00000001.parquet",
        "parts/steps/00000001.parquet\n",
        "parts//steps/00000001.parquet",
        "parts/steps/./00000001.parquet",
        "parts/steps/canary.txt",
        "parts/STEPS/00000001.parquet",
        "parts/steps/١٢٣٤٥٦٧٨.parquet",
        "parts/steps/00000001.parquet/../../../../outside/canary.txt",
        "./../outside/canary.txt",
        "..",
        ".",
        "",
        "writer.lock",
        CATALOGUE_NAME,
        "s3://bucket/canary.parquet",
        "parts/steps/*.parquet",
    ]


@contextmanager
def opened(store: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """The catalogue, to be changed."""
    with duckdb.connect(str(store / CATALOGUE_NAME)) as con:
        yield con


# -- catalogues ----------------------------------------------------------------------------


def dead_path(store: Path, rng: random.Random) -> str:
    path = rng.choice(foreign_paths(store))
    with opened(store) as con:
        con.execute("insert into held.dead values ($p, timestamp '2020-01-01')", {"p": path})
    return f"dead {path!r}"


def live_path(store: Path, rng: random.Random) -> str:
    path = rng.choice(foreign_paths(store))
    with opened(store) as con:
        paths = [p for (p,) in con.sql("select path from held.parts order by 1").fetchall()]
        given = {"p": path, "old": rng.choice(paths)}
        con.execute("update held.parts set path = $p where path = $old", given)
    return f"live {path!r}"


def view_of_table(store: Path, rng: random.Random) -> str:
    table = rng.choice(TABLES)
    outside = (store.parent / OUTSIDE).absolute()
    with opened(store) as con:
        names = con.sql(f"from held.{table} limit 0").columns
        copied = f"hidden_{table}"
        con.execute(f"alter table held.{table} rename to {copied}")
        first, *rest = (f'"{name}"' for name in names)
        nulls = "".join(f", null as {name}" for name in rest)
        source = rng.choice(
            [
                f"* from held.{copied}",
                f"content as {first}{nulls} from read_text('{outside}/canary.txt')",
                f"run_id as {first}{nulls} from read_parquet('{outside}/canary.parquet')",
            ]
        )
        con.execute(f"create view held.{table} as select {source}")
    return f"view {table}: {source[:60]}"


def extra_object(store: Path, rng: random.Random) -> str:
    statement = rng.choice(
        [
            "create schema other",
            "create table held.other (x int)",
            "create table main.parts (path varchar)",
            "create view held.other as select 1",
            "create view main.runs as select 'secret-canary' as run_id",
            "create macro arg_max(a, b) as 'secret-canary'",
            "create macro held.count() as 7",
            "create macro regexp_extract(a, b) as 'flag'",
            "create macro duckdb_views() as table select 1 where false",
            "create sequence held.numbers",
            "create type held.mood as enum ('good')",
            "create index by_path on held.parts (path)",
            "create unique index by_run on held.runs (run_id)",
            "create table held.log (p varchar); create trigger noted after insert on held.dead "
            "for each row insert into held.log values (new.path)",
        ]
    )
    with opened(store) as con:
        con.execute(statement)
    return statement


def other_columns(store: Path, rng: random.Random) -> str:
    table = rng.choice(TABLES)
    with opened(store) as con:
        name = rng.choice(con.sql(f"from held.{table} limit 0").columns)
        statement = rng.choice(
            [
                f'alter table held.{table} alter "{name}" type blob[] using null',
                f'alter table held.{table} rename "{name}" to renamed',
                f"alter table held.{table} add column more varchar",
                f"alter table held.{table} add column more varchar default getenv('HOME')",
                f'alter table held.{table} alter "{name}" set default null',
                f'alter table held.{table} alter "{name}" set not null',
                f"create or replace table held.{table} (x int, y int generated always as (x + 1))",
            ]
        )
        try:
            con.execute(statement)
        except duckdb.Error:
            con.execute(f"alter table held.{table} rename to renamed")
    return statement


def missing_table(store: Path, rng: random.Random) -> str:
    table = rng.choice(TABLES)
    with opened(store) as con:
        con.execute(f"drop table held.{table}")
    return f"no {table}"


def odd_rows(store: Path, rng: random.Random) -> str:
    statement = rng.choice(
        [
            "update held.about set batch = null",
            "update held.about set batch = -1",
            "update held.about set batch = 999999999999999",
            "update held.about set schema_version = null",
            "delete from held.about",
            "insert into held.about select * from held.about",
            "insert into held.about select 'x', range from range(1000)",
            "update held.parts set rows = null",
            "update held.parts set table_name = null",
            "update held.parts set table_name = 'facts' where table_name = 'steps'",
            "update held.parts set sha256 = null",
            "update held.parts set path = null",
            "insert into held.dead values (null, timestamp '2020-01-01')",
            "insert into held.dead values ('parts/steps/00000099.parquet', null)",
        ]
    )
    with opened(store) as con:
        con.execute(statement)
    return statement


def other_file(store: Path, rng: random.Random) -> str:
    at = store / CATALOGUE_NAME
    kind = rng.choice(["link", "copied link", "folder", "pipe", "journal", "no database"])
    outside = (store.parent / OUTSIDE).absolute()
    if kind == "journal":
        at.with_name(f"{at.name}.wal").write_bytes(rng.randbytes(99))
        return kind
    at.unlink()
    if kind == "link":
        at.symlink_to(outside / "canary.duckdb")
    elif kind == "copied link":
        at.symlink_to(outside / "canary.txt")
    elif kind == "folder":
        at.mkdir()
    elif kind == "pipe":
        os.mkfifo(at)
    else:
        at.write_bytes(rng.randbytes(9999))
    return kind


CATALOGUE_CHANGES: Final[list[Change]] = [
    dead_path,
    live_path,
    view_of_table,
    extra_object,
    other_columns,
    missing_table,
    odd_rows,
    other_file,
]


# -- parts ---------------------------------------------------------------------------------


def parts_of(store: Path, table: str = "*") -> list[Path]:
    return sorted(path for path in store.glob(f"parts/{table}/*.parquet"))


def flipped_byte(store: Path, rng: random.Random) -> str:
    part = rng.choice(parts_of(store))
    content = bytearray(part.read_bytes())
    place = rng.randrange(len(content))
    content[place] ^= 1 << rng.randrange(8)
    part.write_bytes(content)
    return f"{part.name} of {part.parent.name}: byte {place}"


def cut_off(store: Path, rng: random.Random) -> str:
    part = rng.choice(parts_of(store))
    content = part.read_bytes()
    part.write_bytes(content[: rng.choice([0, 4, len(content) // 2, len(content) - 1])])
    return f"cut off: {part.parent.name}"


def linked_file(store: Path, rng: random.Random) -> str:
    part = rng.choice(parts_of(store))
    target = rng.choice(["canary.parquet", "canary.txt", "missing.parquet"])
    part.unlink()
    part.symlink_to((store.parent / OUTSIDE / target).absolute())
    return f"{part.parent.name} is {target}"


def linked_folder(store: Path, rng: random.Random) -> str:
    folder = rng.choice([store / "parts", *sorted((store / "parts").iterdir())])
    outside = store.parent / OUTSIDE
    target = outside if folder.name == "parts" else outside / "steps"
    shutil.rmtree(folder)
    folder.symlink_to(target.absolute())
    return f"{folder.name} is {target.name}"


def linked_beside(store: Path, rng: random.Random) -> str:
    canary = (store.parent / OUTSIDE / "canary.txt").absolute()
    number = rng.randrange(1, 9)
    name = rng.choice(
        [
            *(f"parts/{t}/{number:08d}.writing" for t in ("given", "steps", "batch", "metrics")),
            f"parts/given/{number:08d}.parquet",
            f"parts/batch/{number:08d}.parquet",
            f"{CATALOGUE_NAME}.{os.getpid()}.writing",
            f"{CATALOGUE_NAME}.1.writing",
            "writer.lock",
        ]
    )
    at = store / name
    at.parent.mkdir(exist_ok=True)
    at.unlink(missing_ok=True)
    at.symlink_to(canary)
    return f"link {name}"


def swapped(store: Path, rng: random.Random) -> str:
    one, other = rng.sample(parts_of(store), 2)
    content, more = one.read_bytes(), other.read_bytes()
    one.write_bytes(more)
    other.write_bytes(content)
    return f"{one.parent.name} and {other.parent.name} swapped"


def no_file(store: Path, rng: random.Random) -> str:
    part = rng.choice(parts_of(store))
    part.unlink()
    kind = rng.choice(["gone", "folder", "pipe"])
    if kind == "folder":
        part.mkdir()
    elif kind == "pipe":
        os.mkfifo(part)
    return f"{part.parent.name}: {kind}"


def other_schema(store: Path, rng: random.Random) -> str:
    """Rows with a column fewer or of another type; the record lists the new checksum."""
    path = rng.choice([p for p in parts_of(store) if p.parent.name != "batch"])
    marks = pl.read_parquet_metadata(path)
    rows = pl.read_parquet(path)
    name = rng.choice(rows.columns)
    kind = rng.choice(["dropped", "text", "renamed", "null", "other schema", "other table"])
    if kind == "dropped":
        rows = rows.drop(name)
    elif kind == "text":
        rows = rows.with_columns(pl.lit(b"x").alias(name))
    elif kind == "renamed":
        rows = rows.rename({name: "renamed"})
    elif kind == "null":
        rows = rows.with_columns(pl.lit(None, pl.Null).alias(name))
    elif kind == "other schema":
        marks["fairmfu.schema"] = "99"
    else:
        marks["fairmfu.table"] = "other"
    marks.pop("ARROW:schema", None)
    rows.write_parquet(path, metadata=marks)
    relist(store, path)
    return f"{path.parent.name}: {name} {kind}"


def relist(store: Path, path: Path) -> None:
    """List a changed part as it is, in its record and in the catalogue."""
    with path.open("rb") as file:
        sha256 = parquet_parts.sha256_of_file(file)
    listed = path.relative_to(store).as_posix()
    is_it = pl.col("path") == listed
    for record in parts_of(store, "batch"):
        rewrite(
            record,
            pl.read_parquet(record).with_columns(
                sha256=pl.when(is_it).then(pl.lit(sha256)).otherwise("sha256")
            ),
        )
    with opened(store) as con:
        given = {"s": sha256, "p": listed}
        con.execute("update held.parts set sha256 = $s where path = $p", given)


def rewrite(path: Path, rows: pl.DataFrame) -> None:
    marks = pl.read_parquet_metadata(path)
    marks.pop("ARROW:schema", None)
    rows.write_parquet(path, metadata=marks)


def crafted_record(store: Path, rng: random.Random) -> str:
    record = rng.choice(parts_of(store, "batch"))
    rows = pl.read_parquet(record)
    name = rng.choice(["path", "path", "path", "table_name", "sha256", "rows", "first_batch"])
    value = rng.choice(foreign_paths(store)) if name == "path" else None
    place = rng.randrange(rows.height)
    changed = pl.when(pl.int_range(pl.len()) == place).then(pl.lit(value, rows.schema[name]))
    rewrite(record, rows.with_columns(changed.otherwise(name).alias(name)))
    return f"record {record.name}: {name} {value!r}"


def foreign_file(store: Path, rng: random.Random) -> str:
    name = rng.choice(
        ["notes.txt", "00000001.parquet.bak", "my/00000001.parquet", "steps2.parquet"]
    )
    at = store / "parts" / "steps" / name
    at.parent.mkdir(exist_ok=True)
    at.write_text("mine")
    return f"foreign {name}"


def huge_batch(store: Path, rng: random.Random) -> str:
    name = rng.choice(["9" * 12, "9" * 18, "9" * 30, "1", "-1"])
    shutil.copy(parts_of(store, "batch")[-1], store / "parts" / "batch" / f"{name}.parquet")
    return f"record {name}"


PART_CHANGES: Final[list[Change]] = [
    flipped_byte,
    flipped_byte,
    cut_off,
    linked_file,
    linked_folder,
    linked_beside,
    swapped,
    no_file,
    other_schema,
    other_schema,
    crafted_record,
    foreign_file,
    huge_batch,
]
