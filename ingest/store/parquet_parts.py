"""Parquet parts of a store: immutable files, written aside, synced and renamed.

    STORE/parts/<table>/<batch>.parquet    rows, with the number of the batch that wrote them;
                                           further parts of a batch are <batch>_0001.parquet …
    STORE/parts/<table>/<job>-<hash>.parquet
                                           rows written before their batch
                                           (ingest.store.staged_parts), owned by the batch whose
                                           record lists them
    STORE/parts/batch/<batch>.parquet      the record of a batch: the list of its new parts

A batch exists once its record exists; parts without a record are leftovers of a killed writer. A
merge (ingest.store.compaction) writes a *full* record, a list of all remaining parts, so that older
records and parts can be deleted. Merged rows keep the number of the batch that first wrote them:
the current rows follow from these numbers alone, in any order of the files.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import polars as pl
from polars.io.plugins import register_io_source

from ..core.errors import StoreError
from ..core.schema import SCHEMA_VERSION
from ..core.spill import CHUNK_ROWS, StreamedRows, TableRows, collect_rows
from .local_backend import StoreBackend, sha256_of_file, sync_to_disk
from .messages import DAMAGED_PART, PART_DENIED, PART_OF_OTHER_SCHEMA, UNTRUSTED_RECORD
from .part_paths import PARTS_FOLDER, RECORD_TABLE, STAGED_FILE_PATH, is_part_path, part_path

METADATA_PREFIX: Final = "fairmfu."
ROW_GROUP_ROWS: Final = 65_536
ROW_GROUP_TEXT_BYTES: Final = 4 * 1024 * 1024
"""Limits of one row group: rows, and bytes of text. Several groups are in memory at once."""
MAX_PART_ROWS: Final = 2**20
"""Row limit of one part; row-group metadata waits in memory until the file is complete.
More than half of MAX_MERGE_ROWS (ingest.store.compaction), so full parts are never merged.
"""

STAGED_TIER: Final = -1
"""Tier of staged parts. Their rows have no `batch` column; the number of the part applies."""
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
class ParquetPart:
    """Parquet file of the store.

    path: relative to the store. first_batch, last_batch: range of the rows' batches.
    tier: number of merges of the rows, or STAGED_TIER. sha256: checksum of the file.
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
class BatchRecord:
    """Parts added by one batch; a full record lists all parts of the store."""

    batch: int
    parts: tuple[ParquetPart, ...]
    full: bool


def write_parts(
    backend: StoreBackend, table: str, rows: TableRows, batch: int
) -> list[ParquetPart]:
    """Write the new rows of a table: one part, or several of MAX_PART_ROWS.

    Up to ROW_GROUP_ROWS streamed rows are collected in memory; longer tables are written in pieces.
    """
    if not isinstance(rows, StreamedRows) or rows.height <= ROW_GROUP_ROWS:
        return [write_part(backend, table, collect_rows(rows), batch)]
    mark = pl.lit(batch, pl.Int64).alias("batch")
    schema = pl.Schema([*rows.schema.items(), ("batch", pl.Int64())])
    marked = StreamedRows(
        schema, rows.height, lambda: (f.with_columns(mark) for f in rows.frames())
    )
    written = []
    for part_index, some in enumerate(split_rows(marked, MAX_PART_ROWS)):
        path = backend.named(part_path(table, batch, part_index))
        size, sha256 = _write(backend, path, some, {"table": table, "batch": str(batch)})
        written.append(
            ParquetPart(
                table_name=table,
                path=path,
                first_batch=batch,
                last_batch=batch,
                tier=0,
                rows=some.height,
                bytes=size,
                sha256=sha256,
            )
        )
    return written


def split_rows(rows: StreamedRows, max_rows: int) -> Iterator[StreamedRows]:
    """Yield the rows in portions of `max_rows`, to be read one after another."""
    frames, rest = rows.frames(), list[pl.DataFrame]()
    for begin in range(0, rows.height, max_rows):
        height = min(max_rows, rows.height - begin)
        yield StreamedRows(rows.schema, height, partial(_first, height, frames, rest))


def _first(
    count: int, frames: Iterator[pl.DataFrame], rest: list[pl.DataFrame]
) -> Iterator[pl.DataFrame]:
    """Yield the next `count` rows; the remainder of the last frame goes to `rest`."""
    while count:
        frame = rest.pop() if rest else next(frames)
        head, remainder = frame[:count], frame[count:]
        if remainder.height:
            rest.append(remainder)
        count -= head.height
        yield head


def write_part(
    backend: StoreBackend, table: str, frame: pl.DataFrame, batch: int, tier: int = 0
) -> ParquetPart:
    """Write rows of one table as a part; rows without a `batch` column get this batch."""
    if "batch" not in frame.columns:
        frame = frame.with_columns(batch=pl.lit(batch, pl.Int64))
    path = backend.named(part_path(table, batch))
    size, sha256 = _write(backend, path, frame, {"table": table, "batch": str(batch)})
    first, last = frame["batch"].min(), frame["batch"].max()
    assert isinstance(first, int)  # noqa: S101 - a part has rows
    assert isinstance(last, int)  # noqa: S101
    return ParquetPart(
        table_name=table,
        path=path,
        first_batch=first,
        last_batch=last,
        tier=tier,
        rows=frame.height,
        bytes=size,
        sha256=sha256,
    )


def write_record(backend: StoreBackend, record: BatchRecord) -> None:
    """Write the record of a batch, which makes the batch exist.

    Raises BatchConflictError if another machine has written a batch of this number.
    """
    frame = parts_frame(record.parts)
    marks = {"table": RECORD_TABLE, "batch": str(record.batch), "full": str(record.full)}
    _write(backend, record_path(record.batch), frame, marks, only=True)


def parts_frame(parts: Iterable[ParquetPart]) -> pl.DataFrame:
    """Return parts as rows of PART_SCHEMA."""
    return pl.DataFrame([astuple(part) for part in parts], schema=PART_SCHEMA, orient="row")


def read_record(backend: StoreBackend, batch: int) -> BatchRecord | None:
    """Return the record of a batch, None if missing. Raises StoreError if damaged."""
    path = record_path(batch)
    try:
        marks, frame = _read(backend, path)
    except FileNotFoundError:
        return None
    there = {name: dtype for name, dtype in frame.schema.items() if name in PART_SCHEMA}
    if there != dict(PART_SCHEMA) or "full" not in marks:
        raise damaged_part_error(backend, path)
    rows = frame.select(PART_SCHEMA.names()).iter_rows()
    try:
        parts = tuple(part_of_row(row) for row in rows)
    except ForeignPartError as error:
        raise UNTRUSTED_RECORD(path=backend.at(path), why=error) from error
    return BatchRecord(batch, parts, marks["full"] == "True")


class ForeignPartError(Exception):
    """A list of parts has a row that fairmfu never writes; the message says why."""


def part_of_row(row: Sequence[Any]) -> ParquetPart:
    """Return the part of a row by PART_SCHEMA.

    Raises ForeignPartError if fairmfu never writes such a row.
    """
    part = ParquetPart(*row)
    if not is_part_path(part.path, part.table_name) or not part.path.endswith(".parquet"):
        raise ForeignPartError(foreign_path_reason(part.path))
    if None in row:
        raise ForeignPartError(f"an entry of {part.path} is missing")
    return part


def foreign_path_reason(path: object) -> str:
    """Return the clause about a path in a list that fairmfu gives to no part."""
    return f"it lists {path!a}, which is no name of a part"


def read_records(backend: StoreBackend, last_batch: int | None = None) -> Iterator[BatchRecord]:
    """Yield the records from the last full record on, in batch order.

    last_batch: ignore later batches.
    """
    newest_first: list[BatchRecord] = []
    for batch in reversed(recorded_batches(backend)):
        if last_batch is not None and batch > last_batch:
            continue
        record = read_record(backend, batch)
        if record is not None:
            newest_first.append(record)
            if record.full:
                break
    yield from reversed(newest_first)


def has_record_gap(batch_numbers: Iterable[int], batch: int) -> bool:
    """Return whether records after `batch` exist, but not all: a merge deleted some."""
    later = [number for number in batch_numbers if number > batch]
    return later != list(range(batch + 1, batch + 1 + len(later)))


def recorded_batches(backend: StoreBackend) -> list[int]:
    """Return the numbers of all batches with a record, in order."""
    listed = backend.listed(f"{PARTS_FOLDER}/{RECORD_TABLE}")
    names = (path.rpartition("/")[2] for path in listed if is_part_path(path, RECORD_TABLE))
    stems = (name.removesuffix(".parquet") for name in names if name.endswith(".parquet"))
    return sorted(int(stem) for stem in stems if stem.isdigit())


def record_path(batch: int) -> str:
    """Return the path of a batch's record, relative to the store."""
    return part_path(RECORD_TABLE, batch)


def record_paths_before(backend: StoreBackend, batch: int) -> list[str]:
    """Return the paths of all records before a batch, relative to the store."""
    return [record_path(number) for number in recorded_batches(backend) if number < batch]


def read_rows_with_batch(
    backend: StoreBackend,
    part: ParquetPart,
    columns: Sequence[str] | None = None,
    without: Sequence[str] = (),
) -> pl.DataFrame:
    """Return the rows of a part with their batch; columns: only these and `batch`.

    without: columns to leave out. Raises StoreError as `read_part` does.
    """
    mark = pl.lit(part.first_batch, pl.Int64).alias("batch")
    if part.tier == STAGED_TIER:
        return read_part(backend, part.path, columns, without).with_columns(mark)
    return read_part(backend, part.path, columns and [*columns, "batch"], without)


def read_part(
    backend: StoreBackend,
    path: str,
    columns: Sequence[str] | None = None,
    without: Sequence[str] = (),
) -> pl.DataFrame:
    """Return the rows of a part. Raises StoreError with the path if gone or damaged.

    columns: only these; without: columns to leave out if the part has them
    """
    try:
        with backend.open(path) as part:
            if without:
                return pl.scan_parquet(part).drop(without, strict=False).collect()
            return pl.read_parquet(part, columns=None if columns is None else list(columns))
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise damaged_part_error(backend, path, error) from error


def _read(shelf: StoreBackend, path: str) -> tuple[dict[str, str], pl.DataFrame]:
    """Return the metadata and the rows of a part, from one read.

    Raises StoreError on a damaged part or another schema, FileNotFoundError if missing.
    """
    try:
        with shelf.open(path) as part:
            marks = pl.read_parquet_metadata(part)
            part.seek(0)
            rows = pl.read_parquet(part)
    except FileNotFoundError:
        raise
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise damaged_part_error(shelf, path, error) from error
    return check_schema_version(shelf, path, marks), rows


def damaged_part_error(
    backend: StoreBackend, path: str, error: BaseException | None = None
) -> StoreError:
    """Return the error for an unreadable part, with a remedy."""
    if isinstance(error, PermissionError):
        return PART_DENIED(path=backend.at(path))
    return DAMAGED_PART(path=backend.at(path))


def has_any_batch(backend: StoreBackend) -> bool:
    """Return whether files of any batch exist."""
    return any(
        p.endswith(".parquet") and not STAGED_FILE_PATH.fullmatch(p)
        for p in backend.listed(PARTS_FOLDER)
    )


def find_stray_files(backend: StoreBackend, known_paths: Collection[str]) -> list[str]:
    """Return the parts outside `known_paths`; other files there are not ours."""
    return [
        path
        for path in backend.listed(PARTS_FOLDER)
        if path not in known_paths and is_part_path(path)
    ]


def write_parquet(
    staging_path: Path, rows: TableRows, metadata: Mapping[str, str]
) -> tuple[int, str]:
    """Write rows to a file, sync, and return the size [bytes] and SHA-256 of the file."""
    marked = {
        f"{METADATA_PREFIX}{key}": value
        for key, value in {"schema": SCHEMA_VERSION, **metadata}.items()
    }
    if isinstance(rows, pl.DataFrame):
        rows.write_parquet(staging_path, metadata=marked)
    else:
        frames = (frame for frame in rows.frames() if frame.height)
        first = next(frames)
        most = _group_rows(first)
        every = _gathered(chain([first], frames), min(most, CHUNK_ROWS))
        lazy = register_io_source(lambda *_: every, schema=rows.schema)
        lazy.sink_parquet(staging_path, metadata=marked, row_group_size=most)
    sync_to_disk(staging_path)
    with staging_path.open("rb") as file:
        return staging_path.stat().st_size, sha256_of_file(file)


def _group_rows(like: pl.DataFrame) -> int:
    """Return the rows per row group for a table whose rows are like these."""
    texts: int = sum(like.select(pl.col(pl.String).str.len_bytes().sum()).row(0))
    return max(1, min(ROW_GROUP_ROWS, ROW_GROUP_TEXT_BYTES * like.height // max(1, texts)))


def _gathered(frames: Iterable[pl.DataFrame], rows: int) -> Iterator[pl.DataFrame]:
    """Yield the rows in frames of at least `rows` rows; the last may be shorter."""
    pending: list[pl.DataFrame] = []
    for frame in frames:
        pending.append(frame)
        if sum(f.height for f in pending) >= rows:
            yield pl.concat(pending)
            pending = []
    if pending:
        yield pl.concat(pending)


def check_schema_version(
    shelf: StoreBackend, path: str, marks: Mapping[str, str]
) -> dict[str, str]:
    """Return the metadata of a part. Raises StoreError on another schema."""
    schema = marks.get(f"{METADATA_PREFIX}schema")
    if schema != SCHEMA_VERSION:
        raise PART_OF_OTHER_SCHEMA(path=shelf.at(path), schema=schema, readable=SCHEMA_VERSION)
    return {key.removeprefix(METADATA_PREFIX): value for key, value in marks.items()}


def _write(
    shelf: StoreBackend, path: str, rows: TableRows, marks: Mapping[str, str], *, only: bool = False
) -> tuple[int, str]:
    """Write a part and return its size [bytes] and SHA-256.

    only: `exclusive` of StoreBackend.put.
    """
    aside = shelf.aside(path)
    written = write_parquet(aside, rows, marks)
    shelf.put(aside, path, exclusive=only)
    return written
