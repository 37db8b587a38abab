"""The Parquet parts of a store: the truth, immutable, written aside, synced and renamed.

    STORE/parts/<table>/<batch>.parquet    rows, each with the number of the batch that wrote it;
                                           <batch>_0001.parquet and so on where they are many
    STORE/parts/batch/<batch>.parquet      the record of a batch: which parts it added

A batch is there when its record is; parts that no record lists are what a killed writer left. A
merge (ingest.compaction) writes a *full* record, which lists every part that there still is, so
that what stood before it can go. Rows of a part keep the number of the batch that first wrote them
when parts are merged: which rows hold follows from these numbers alone, in any order of the files.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Final

import polars as pl
from polars.io.plugins import register_io_source

from ingest.errors import StoreError
from ingest.schema import SCHEMA_VERSION
from ingest.spool import PIECE_ROWS, Streamed, Table, whole

PARTS: Final = "parts"
RECORD: Final = "batch"
WRITING: Final = ".writing"
MARK: Final = "fairmfu."
GROUP_ROWS: Final = 65_536
"""Rows of one row group where a table has more, so that no more of them are in memory."""
PART_ROWS: Final = 2**20
"""Rows of one part where a batch has more: what is told of its groups waits in memory for its end.
More than half of what a merge takes (ingest.compaction), so such parts stay as they are."""

PART_SCHEMA: Final = pl.Schema(
    {
        "table_name": pl.String,
        "path": pl.String,
        "first_batch": pl.Int64,
        "last_batch": pl.Int64,
        "tier": pl.Int64,
        "rows": pl.Int64,
        "bytes": pl.Int64,
        "sha256": pl.String,
    }
)


@dataclass(frozen=True, slots=True)
class Part:
    """One Parquet file of the store.

    path: relative to the store; first_batch, last_batch: of its rows; tier: how often its rows
    were merged; sha256: of the file.
    """

    table_name: str
    path: str
    first_batch: int
    last_batch: int
    tier: int
    rows: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Record:
    """What one batch added; a full one lists every part that there still is."""

    batch: int
    parts: tuple[Part, ...]
    full: bool


def write_parts(store: Path, table: str, rows: Table, batch: int) -> list[Part]:
    """Rows of one table that a batch adds: a part, or several of PART_ROWS where they are many.

    Those that are streamed are in memory all at once where they are few, else piece by piece.
    """
    if not isinstance(rows, Streamed) or rows.height <= GROUP_ROWS:
        return [write_part(store, table, whole(rows), batch)]
    mark = pl.lit(batch, pl.Int64).alias("batch")
    frames = (frame.with_columns(mark) for frame in _gathered(rows.frames()))
    rest, schema = list[pl.DataFrame](), pl.Schema([*rows.schema.items(), ("batch", pl.Int64())])
    written = []
    for place, begin in enumerate(range(0, rows.height, PART_ROWS)):
        height = min(PART_ROWS, rows.height - begin)
        some = Streamed(schema, height, partial(_first, height, frames, rest))
        path = _path(store, table, batch, place)
        size, sha256 = _write(path, some, {"table": table, "batch": str(batch)})
        relative = path.relative_to(store).as_posix()
        written.append(Part(table, relative, batch, batch, 0, height, size, sha256))
    return written


def _gathered(frames: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """The same rows, where they come by few at a time in frames of PIECE_ROWS or more."""
    few: list[pl.DataFrame] = []
    for frame in frames:
        few.append(frame)
        if sum(one.height for one in few) >= PIECE_ROWS:
            yield pl.concat(few)
            few = []
    if few:
        yield pl.concat(few)


def _first(
    count: int, frames: Iterator[pl.DataFrame], rest: list[pl.DataFrame]
) -> Iterator[pl.DataFrame]:
    """So many rows of `frames`; what is over of the last one stands in `rest`, for the next."""
    while count:
        frame = rest.pop() if rest else next(frames)
        mine, over = frame[:count], frame[count:]
        if over.height:
            rest.append(over)
        count -= mine.height
        yield mine


def write_part(store: Path, table: str, frame: pl.DataFrame, batch: int, tier: int = 0) -> Part:
    """Rows of one table as a part; those without a `batch` are of this one."""
    if "batch" not in frame.columns:
        frame = frame.with_columns(batch=pl.lit(batch, pl.Int64))
    path = _path(store, table, batch)
    size, sha256 = _write(path, frame, {"table": table, "batch": str(batch)})
    first, last = frame["batch"].min(), frame["batch"].max()
    assert isinstance(first, int)  # noqa: S101 - a part has rows
    assert isinstance(last, int)  # noqa: S101
    relative = path.relative_to(store).as_posix()
    return Part(table, relative, first, last, tier, frame.height, size, sha256)


def write_record(store: Path, record: Record) -> None:
    """From here on the batch is there."""
    frame = listed(record.parts)
    marks = {"table": RECORD, "batch": str(record.batch), "full": str(record.full)}
    _write(_path(store, RECORD, record.batch), frame, marks)


def listed(parts: Iterable[Part]) -> pl.DataFrame:
    """Parts as rows of PART_SCHEMA."""
    return pl.DataFrame([astuple(part) for part in parts], schema=PART_SCHEMA, orient="row")


def read_record(store: Path, batch: int) -> Record | None:
    """The record of a batch; None where there is none. Raises StoreError on a damaged one."""
    path = _path(store, RECORD, batch)
    if not path.exists():
        return None
    marks, frame = _marks(path), read_part(path)
    there = {name: dtype for name, dtype in frame.schema.items() if name in PART_SCHEMA}
    if there != dict(PART_SCHEMA) or "full" not in marks:
        raise damaged(path)
    rows = frame.select(PART_SCHEMA.names()).iter_rows()
    return Record(batch, tuple(Part(*row) for row in rows), marks["full"] == "True")


def records(store: Path, until: int | None = None) -> Iterator[Record]:
    """The records from the last full one on, in their order.

    until: as they stood with that batch, though others may have been written since.
    """
    found: list[Record] = []
    for batch in reversed(_recorded(store)):
        if until is not None and batch > until:
            continue
        record = read_record(store, batch)
        if record is not None:
            found.append(record)
            if record.full:
                break
    yield from reversed(found)


def gap(store: Path, batch: int) -> bool:
    """Whether records behind that batch are there, but not each of them: a merge took some away."""
    later = [number for number in _recorded(store) if number > batch]
    return later != list(range(batch + 1, batch + 1 + len(later)))


def record_path(batch: int) -> str:
    """Of a batch's record, relative to the store."""
    return f"{PARTS}/{RECORD}/{batch:08d}.parquet"


def records_before(store: Path, batch: int) -> list[str]:
    """Paths of the records before a batch, relative to the store."""
    return [record_path(number) for number in _recorded(store) if number < batch]


def check(path: Path, sha256: str) -> None:
    """Raises StoreError on a part that is gone, of another schema or not what was written."""
    _marks(path)
    if checksum(path) != sha256:
        raise damaged(path)


def read_part(path: Path) -> pl.DataFrame:
    """The rows of a part. Raises StoreError that names it where it is gone or damaged."""
    try:
        return pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise damaged(path) from error


def damaged(path: Path) -> StoreError:
    """That a part cannot be read, and what to do."""
    return StoreError(
        f"{path}: this part is gone or damaged. Say what is left with: fairmfu doctor; "
        "or ingest the logs again into a new --store."
    )


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def strays(store: Path, known: Iterable[str]) -> list[Path]:
    """Files in the folder of parts that are not among the known ones: a writer was killed."""
    expected = {store / path for path in known}
    there = (path for path in (store / PARTS).rglob("*") if path.is_file())
    return sorted(path for path in there if path not in expected)


def sync(path: Path) -> None:
    """Have the disk keep a file, or the names in a folder."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _recorded(store: Path) -> list[int]:
    """The batches that have a record, in their order."""
    folder = store / PARTS / RECORD
    return sorted(int(path.stem) for path in folder.glob("*.parquet") if path.stem.isdigit())


def _path(store: Path, table: str, batch: int, place: int = 0) -> Path:
    """place: among the parts of that table that the batch writes."""
    return store / PARTS / table / f"{batch:08d}{f'_{place:04d}' if place else ''}.parquet"


def _marks(path: Path) -> dict[str, str]:
    """What a part says of itself. Raises StoreError on one of another schema."""
    try:
        marks = pl.read_parquet_metadata(path)
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise damaged(path) from error
    schema = marks.get(f"{MARK}schema")
    if schema != SCHEMA_VERSION:
        raise StoreError(
            f"{path}: written with schema {schema}, this program reads {SCHEMA_VERSION}."
        )
    return {key.removeprefix(MARK): value for key, value in marks.items()}


def _write(path: Path, rows: Table, marks: Mapping[str, str]) -> tuple[int, str]:
    """Bytes and hash of the file."""
    if not path.parent.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        sync(path.parent.parent)
    aside = path.with_suffix(WRITING)
    marked = {f"{MARK}{key}": value for key, value in {"schema": SCHEMA_VERSION, **marks}.items()}
    if isinstance(rows, pl.DataFrame):
        rows.write_parquet(aside, metadata=marked)
    else:
        lazy = register_io_source(lambda *_: rows.frames(), schema=rows.schema)
        lazy.sink_parquet(aside, metadata=marked, row_group_size=GROUP_ROWS)
    sync(aside)
    size, sha256 = aside.stat().st_size, checksum(aside)
    aside.rename(path)
    sync(path.parent)
    return size, sha256
