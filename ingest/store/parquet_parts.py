"""The Parquet parts of a store: the truth, immutable, written aside, synced and renamed.

    STORE/parts/<table>/<batch>.parquet    rows, each with the number of the batch that wrote it;
                                           <batch>_0001.parquet and so on where they are many
    STORE/parts/<table>/<job>-<hash>.parquet
                                           rows that were written before there was a batch
                                           (ingest.store.staged_parts): of the one whose record
                                           lists them
    STORE/parts/batch/<batch>.parquet      the record of a batch: which parts it added

A batch is there when its record is; parts that no record lists are what a killed writer left. A
merge (ingest.store.compaction) writes a *full* record, which lists every part that there still is,
so that what stood before it can go. Rows of a part keep the number of the batch that first wrote
them when parts are merged: which rows hold follows from these numbers alone, in any order of the
files.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

import polars as pl
from polars.io.plugins import register_io_source

from ..core.errors import StoreError
from ..core.schema import SCHEMA_VERSION
from ..core.spill import CHUNK_ROWS, StreamedRows, TableRows, collect_rows
from .local_backend import StoreBackend, sha256_of_file, sync_to_disk

PARTS_FOLDER: Final = "parts"
RECORD_TABLE: Final = "batch"
METADATA_PREFIX: Final = "fairmfu."
ROW_GROUP_ROWS: Final = 65_536
ROW_GROUP_TEXT_BYTES: Final = 4 * 1024 * 1024
"""Rows of one row group where a table has more, and bytes of their texts: several groups are in
memory at once."""
MAX_PART_ROWS: Final = 2**20
"""Rows of one part where a batch has more: what is told of its groups waits in memory for its end.
More than half of what a merge takes (ingest.store.compaction), so such parts stay as they are."""

STAGED_TIER: Final = -1
"""Tier of parts without a `batch` of each row: that of the part is their rows'."""
STAGED_FILE_PATH: Final = re.compile(
    r".*/[0-9a-f]{8}-(?:[0-9a-f]{16}\.writing|[0-9a-f]{32}\.parquet)"
)
"""Paths of files that were written before there was a batch (ingest.store.staged_parts)."""

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
    """One Parquet file of the store.

    path: relative to the store; first_batch, last_batch: of its rows; tier: how often its rows
    were merged, or STAGED_TIER; sha256: of the file.
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
    """What one batch added; a full one lists every part that there still is."""

    batch: int
    parts: tuple[ParquetPart, ...]
    full: bool


def write_parts(
    backend: StoreBackend, table: str, rows: TableRows, batch: int
) -> list[ParquetPart]:
    """Rows of one table that a batch adds: a part, or several of MAX_PART_ROWS where they are many.

    Those that are streamed are in memory all at once where they are few, else piece by piece.
    """
    if not isinstance(rows, StreamedRows) or rows.height <= ROW_GROUP_ROWS:
        return [write_part(backend, table, collect_rows(rows), batch)]
    mark = pl.lit(batch, pl.Int64).alias("batch")
    schema = pl.Schema([*rows.schema.items(), ("batch", pl.Int64())])
    marked = StreamedRows(
        schema, rows.height, lambda: (f.with_columns(mark) for f in rows.frames())
    )
    written = []
    for place, some in enumerate(split_rows(marked, MAX_PART_ROWS)):
        path = backend.named(_path(table, batch, place))
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
    """The rows in portions of so many; each is to be read before the next is asked for."""
    frames, rest = rows.frames(), list[pl.DataFrame]()
    for begin in range(0, rows.height, max_rows):
        height = min(max_rows, rows.height - begin)
        yield StreamedRows(rows.schema, height, partial(_first, height, frames, rest))


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


def write_part(
    backend: StoreBackend, table: str, frame: pl.DataFrame, batch: int, tier: int = 0
) -> ParquetPart:
    """Rows of one table as a part; those without a `batch` are of this one."""
    if "batch" not in frame.columns:
        frame = frame.with_columns(batch=pl.lit(batch, pl.Int64))
    path = backend.named(_path(table, batch))
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
    """From here on the batch is there. Raises OvertakenError where another of its number is."""
    frame = parts_frame(record.parts)
    marks = {"table": RECORD_TABLE, "batch": str(record.batch), "full": str(record.full)}
    _write(backend, record_path(record.batch), frame, marks, only=True)


def parts_frame(parts: Iterable[ParquetPart]) -> pl.DataFrame:
    """Parts as rows of PART_SCHEMA."""
    return pl.DataFrame([astuple(part) for part in parts], schema=PART_SCHEMA, orient="row")


def read_record(backend: StoreBackend, batch: int) -> BatchRecord | None:
    """The record of a batch; None where there is none. Raises StoreError on a damaged one."""
    path = record_path(batch)
    try:
        marks, frame = _read(backend, path)
    except FileNotFoundError:
        return None
    there = {name: dtype for name, dtype in frame.schema.items() if name in PART_SCHEMA}
    if there != dict(PART_SCHEMA) or "full" not in marks:
        raise damaged_part_error(backend, path)
    rows = frame.select(PART_SCHEMA.names()).iter_rows()
    return BatchRecord(batch, tuple(ParquetPart(*row) for row in rows), marks["full"] == "True")


def read_records(backend: StoreBackend, last_batch: int | None = None) -> Iterator[BatchRecord]:
    """The records from the last full one on, in their order.

    last_batch: as they stood with that batch, though others may have been written since.
    """
    found: list[BatchRecord] = []
    for batch in reversed(recorded_batches(backend)):
        if last_batch is not None and batch > last_batch:
            continue
        record = read_record(backend, batch)
        if record is not None:
            found.append(record)
            if record.full:
                break
    yield from reversed(found)


def has_record_gap(batch_numbers: Iterable[int], batch: int) -> bool:
    """Whether records behind that batch are there, but not each of them: a merge took some away."""
    later = [number for number in batch_numbers if number > batch]
    return later != list(range(batch + 1, batch + 1 + len(later)))


def recorded_batches(backend: StoreBackend) -> list[int]:
    """The batches that have a record, in their order."""
    names = (path.rpartition("/")[2] for path in backend.listed(f"{PARTS_FOLDER}/{RECORD_TABLE}"))
    stems = (name.removesuffix(".parquet") for name in names if name.endswith(".parquet"))
    return sorted(int(stem) for stem in stems if stem.isdigit())


def record_path(batch: int) -> str:
    """The path of a batch's record, relative to the store."""
    return _path(RECORD_TABLE, batch)


def record_paths_before(backend: StoreBackend, batch: int) -> list[str]:
    """Paths of the records before a batch, relative to the store."""
    return [record_path(number) for number in recorded_batches(backend) if number < batch]


def check_part(backend: StoreBackend, part: ParquetPart) -> None:
    """Raises StoreError on a part that is gone, of another schema or not what was written."""
    try:
        with backend.open(part.path) as file:
            marks = pl.read_parquet_metadata(file)
            file.seek(0)
            is_same = sha256_of_file(file) == part.sha256
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise damaged_part_error(backend, part.path, error) from error
    _ours(backend, part.path, marks)
    if not is_same:
        raise damaged_part_error(backend, part.path)


def read_rows_with_batch(
    backend: StoreBackend, part: ParquetPart, columns: Sequence[str] | None = None
) -> pl.DataFrame:
    """The rows of a part, each with its batch; columns: these of a part, and the batch.

    Raises StoreError as `read_part` does.
    """
    mark = pl.lit(part.first_batch, pl.Int64).alias("batch")
    if part.tier == STAGED_TIER:
        return read_part(backend, part.path, columns).with_columns(mark)
    return read_part(backend, part.path, columns and [*columns, "batch"])


def read_part(
    backend: StoreBackend, path: str, columns: Sequence[str] | None = None
) -> pl.DataFrame:
    """The rows of a part. Raises StoreError that names it where it is gone or damaged."""
    try:
        with backend.open(path) as part:
            return pl.read_parquet(part, columns=None if columns is None else list(columns))
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise damaged_part_error(backend, path, error) from error


def _read(shelf: StoreBackend, path: str) -> tuple[dict[str, str], pl.DataFrame]:
    """What a part says of itself, and its rows, at once.

    Raises StoreError on one that is damaged or of another schema, FileNotFoundError.
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
    return _ours(shelf, path, marks), rows


def damaged_part_error(
    backend: StoreBackend, path: str, error: BaseException | None = None
) -> StoreError:
    """The error that a part can't be read, with what to do."""
    if isinstance(error, PermissionError):
        return StoreError(
            f"{backend.at(path)}: permission denied. Ask its owner for the right to read the store."
        )
    return StoreError(
        f"{backend.at(path)}: this part is gone or damaged. Say what is left with: fairmfu doctor; "
        "or ingest the logs again into a new --store."
    )


def has_any_batch(backend: StoreBackend) -> bool:
    """Whether a batch was ever begun, as far as files tell."""
    return any(
        p.endswith(".parquet") and not STAGED_FILE_PATH.fullmatch(p)
        for p in backend.listed(PARTS_FOLDER)
    )


def find_stray_files(backend: StoreBackend, known_paths: Collection[str]) -> list[str]:
    """Files in the folder of parts that are not among the known ones: a writer was killed."""
    return [path for path in backend.listed(PARTS_FOLDER) if path not in known_paths]


def write_parquet(
    staging_path: Path, rows: TableRows, metadata: Mapping[str, str]
) -> tuple[int, str]:
    """Rows as a file that the disk has; bytes and hash of it."""
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
    """How many rows like these are a row group."""
    texts: int = sum(like.select(pl.col(pl.String).str.len_bytes().sum()).row(0))
    return max(1, min(ROW_GROUP_ROWS, ROW_GROUP_TEXT_BYTES * like.height // max(1, texts)))


def _gathered(frames: Iterable[pl.DataFrame], rows: int) -> Iterator[pl.DataFrame]:
    """The rows in frames of so many or more: they may come few at a time."""
    few: list[pl.DataFrame] = []
    for frame in frames:
        few.append(frame)
        if sum(one.height for one in few) >= rows:
            yield pl.concat(few)
            few = []
    if few:
        yield pl.concat(few)


def _path(table: str, batch: int, place: int = 0) -> str:
    """place: among the parts of that table that the batch writes."""
    return f"{PARTS_FOLDER}/{table}/{batch:08d}{f'_{place:04d}' if place else ''}.parquet"


def _ours(shelf: StoreBackend, path: str, marks: Mapping[str, str]) -> dict[str, str]:
    """What a part says of itself. Raises StoreError on one of another schema."""
    schema = marks.get(f"{METADATA_PREFIX}schema")
    if schema != SCHEMA_VERSION:
        raise StoreError(
            f"{shelf.at(path)}: written with schema {schema}, this program reads {SCHEMA_VERSION}."
        )
    return {key.removeprefix(METADATA_PREFIX): value for key, value in marks.items()}


def _write(
    shelf: StoreBackend, path: str, rows: TableRows, marks: Mapping[str, str], *, only: bool = False
) -> tuple[int, str]:
    """Bytes and hash of the file; only: as for Shelf.put."""
    aside = shelf.aside(path)
    written = write_parquet(aside, rows, marks)
    shelf.put(aside, path, exclusive=only)
    return written
