"""Tables of several logs, made together: a frame costs more than a small log.

Each log gets its slice. Long tables wait in the spool, and neighbouring slices are read together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain
from typing import Any, Final

import polars as pl

from ..core.schema import frame_schema
from ..core.spill import (
    CHUNK_ROWS,
    LogTables,
    PackedFrame,
    SlicedRows,
    Spool,
    SpooledFrame,
    StreamedRows,
    TableRows,
    chain_rows,
    collect_rows,
    iterate_frames,
)
from ..launches import event_rows
from ..launches.event_rows import EventRows
from ..launches.row_chunks import MAPPING_ROW_WEIGHT, RowChunks, frame_of_rows, spool_waiting_rows
from ..launches.step_rows import StepRows
from ..store.local_backend import StoreBackend
from ..store.staged_parts import StagedPart, write_staged_parts

ROW_BUILT_TABLES: Final = ("sources", "runs", "facts", "unread")
"""Tables built from single rows."""
SPOOLED_TABLES: Final = ("steps", "events", "unread")
"""Tables whose rows wait in the spool."""
MAX_GROUP_LOGS: Final = 64
"""Limit of logs in one group; CHUNK_ROWS limits their rows."""


@dataclass(frozen=True, slots=True)
class LogRows:
    """Contents of one log.

    rows: of each table of ROW_BUILT_TABLES; steps, events: of each run, in order.
    """

    rows: Mapping[str, Sequence[dict[str, Any]]]
    steps: Sequence[tuple[str, StepRows]]
    events: Sequence[tuple[str, EventRows]]

    @property
    def source(self) -> dict[str, Any]:
        """The row of `sources`."""
        return self.rows["sources"][0]

    @property
    def weight(self) -> int:
        """Memory use, in rows of a frame."""
        event_weight = sum(events.weight for _, events in self.events)
        return (
            MAPPING_ROW_WEIGHT * sum(map(len, self.rows.values()))
            + _height(self.steps)
            + event_weight
        )

    @property
    def heights(self) -> dict[str, int]:
        """Number of rows per table."""
        by_row = {name: len(rows) for name, rows in self.rows.items()}
        return {"steps": _height(self.steps), "events": _height(self.events), **by_row}

    def tables(self, spool: Spool) -> LogTables:
        """Return the log's tables; steps and events, which may be long, are streamed."""
        tables: dict[str, TableRows] = {}
        for name in ROW_BUILT_TABLES:
            frame = frame_of_rows(self.rows[name], frame_schema(name))
            tables[name] = spool.rows(frame) if name in SPOOLED_TABLES else frame
        spool_waiting_rows(events for _, events in self.events)
        tables["steps"] = _chained("steps", self.steps)
        tables["events"] = _chained("events", self.events)
        return tables


RunRows = Sequence[tuple[str, RowChunks]]
"""Rows of launches, by run id."""


def _height(runs: RunRows) -> int:
    """Return the number of rows."""
    return sum(len(rows) for _, rows in runs)


def _chained(name: str, runs: RunRows) -> TableRows:
    """Return the rows of launches as one table."""
    empty: TableRows = pl.DataFrame(schema=frame_schema(name))
    return chain_rows([empty, *(_streamed(name, run_id, rows) for run_id, rows in runs if rows)])


def _streamed(name: str, run_id: str, rows: RowChunks) -> StreamedRows:
    """Return the rows of a launch as rows of a table."""
    run, schema = pl.lit(run_id).alias("run_id"), frame_schema(name)
    columns = [column for column in schema if column != "run_id"]
    return StreamedRows(
        schema,
        len(rows),
        lambda: (frame.select(run, pl.all()) for frame in rows.frames(*columns)),
    )


@dataclass(frozen=True, slots=True)
class LogGroup:
    """Rows of several logs by table, and the number of rows per log and table.

    tables: in memory, or written by the reader for another process.
    """

    tables: Mapping[str, pl.DataFrame | Sequence[StagedPart] | Sequence[PackedFrame]]
    heights: Sequence[Mapping[str, int]]

    @classmethod
    def of(cls, logs: Sequence[LogRows]) -> LogGroup:
        """Return the group of some logs."""
        return cls(cls._framed(logs), [log.heights for log in logs])

    @classmethod
    def packed(cls, logs: Sequence[LogRows]) -> LogGroup:
        """Return the group of some logs for another process; packs long tables.

        The other process copies packed tables to its spool without decoding.
        """
        return cls._many(logs, _pack)

    @classmethod
    def written(cls, logs: Sequence[LogRows], backend: StoreBackend, job_id: str) -> LogGroup:
        """Return the group of some logs, long tables written as staged parts.

        job_id: as in staged_parts.write_staged_parts.
        """
        return cls._many(logs, partial(write_staged_parts, backend, job_id))

    @classmethod
    def _many(
        cls, logs: Sequence[LogRows], put: Callable[[str, TableRows], Sequence[Any]]
    ) -> LogGroup:
        """Return the group of some logs; put: packs or writes the rows of a long table."""
        alone = len(logs) == 1  # may be long
        tables = logs[0].tables(Spool()) if alone else cls._framed(logs)
        few = {name: collect_rows(table) for name, table in tables.items() if _is_few(name, table)}
        many = {name: put(name, table) for name, table in tables.items() if name not in few}
        return cls({**few, **many}, [log.heights for log in logs])

    @staticmethod
    def _framed(logs: Sequence[LogRows]) -> dict[str, pl.DataFrame]:
        """Return all rows per table."""
        tables = {
            name: frame_of_rows([row for log in logs for row in log.rows[name]], frame_schema(name))
            for name in ROW_BUILT_TABLES
        }
        return tables | {
            "steps": _steps(run for log in logs for run in log.steps),
            "events": event_rows.events_frame([run for log in logs for run in log.events]),
        }

    def logs(self, spool: Spool) -> list[LogTables]:
        """Return the tables of each log."""
        by_table = {name: self._cut(name, spool) for name in self.tables}
        return [
            dict(zip(by_table, tables, strict=True))
            for tables in zip(*by_table.values(), strict=True)
        ]

    def _cut(self, name: str, spool: Spool) -> list[TableRows]:
        """Return one table of each log."""
        table, heights = self.tables[name], [heights[name] for heights in self.heights]
        spans = list(zip(accumulate(heights, initial=0), heights, strict=False))
        if not isinstance(table, pl.DataFrame):
            parts = [spool.take(part) if isinstance(part, PackedFrame) else part for part in table]
            return [_across(parts, frame_schema(name), *span) for span in spans]
        if name not in SPOOLED_TABLES:
            return [table.slice(*span) for span in spans]
        cuts: list[TableRows] = []
        for first, some in _neighbours(heights, CHUNK_ROWS):
            height = sum(some)
            rows = table.slice(first, height)
            if height > CHUNK_ROWS:  # a single log
                cuts.append(spool.rows(rows))
                continue
            piece, begins = spool.keep(rows), accumulate(some, initial=0)
            cuts += [
                SlicedRows(piece, rows.schema, *span) for span in zip(begins, some, strict=False)
            ]
        return cuts


def _neighbours(heights: Iterable[int], most: int) -> Iterator[tuple[int, list[int]]]:
    """Yield neighbouring heights of at most `most` in sum, with the first row's index.

    A larger height is alone.
    """
    first, some = 0, list[int]()
    for height in heights:
        if some and sum(some) + height > most:
            yield first, some
            first, some = first + sum(some), []
        some.append(height)
    if some:
        yield first, some


def _is_few(name: str, table: TableRows) -> bool:
    """Return whether rows are returned as they are."""
    return name not in SPOOLED_TABLES or table.height <= (0 if name == "steps" else CHUNK_ROWS)


def _pack(_: str, rows: TableRows) -> list[PackedFrame]:
    """Return rows of a table packed for another process."""
    frames = (some.iter_slices(CHUNK_ROWS) for some in iterate_frames(rows))
    return [PackedFrame.of(piece) for piece in chain.from_iterable(frames)]


def _across(
    parts: Sequence[StagedPart | SpooledFrame], schema: pl.Schema, first: int, height: int
) -> TableRows:
    """Return a range of the concatenated rows of parts."""
    cuts: list[TableRows] = []
    begin = 0
    for part in parts:
        overlap = max(first, begin), min(first + height, begin + part.height)
        if overlap[0] < overlap[1]:
            cuts.append(SlicedRows(part, schema, overlap[0] - begin, overlap[1] - overlap[0]))
        begin += part.height
    return chain_rows(cuts or [pl.DataFrame(schema=schema)])


def _steps(runs: Iterable[tuple[str, StepRows]]) -> pl.DataFrame:
    """Return all rows of `steps` of some runs."""
    frames = [pl.DataFrame(schema=frame_schema("steps"))]
    for run_id, rows in runs:
        name = pl.Series("run_id", [run_id], pl.String)
        frames += [f.hstack([name.new_from_index(0, f.height)]) for f in rows.frames()]
    return pl.concat(frames, how="diagonal", rechunk=True)


class LogBatch:
    """Logs read for the store, in order."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._tables: list[LogTables] = []
        self._logs: list[LogRows] = []
        self._weight = 0

    def add(self, log: LogRows | LogTables) -> None:
        """Add a log."""
        if not isinstance(log, LogRows):
            self._make()
            self._tables.append(log)
            return
        weight = log.weight
        if self._weight + weight > CHUNK_ROWS or len(self._logs) >= MAX_GROUP_LOGS:
            self._make()
        self._logs.append(log)
        self._weight += weight

    def tables(self) -> list[LogTables]:
        """Return the tables of each log."""
        self._make()
        return self._tables

    def _make(self) -> None:
        if len(self._logs) == 1:
            self._tables.append(self._logs[0].tables(self._spool))
        elif self._logs:
            group = LogGroup.of(self._logs)
            self._logs = []  # free the rows: the group has copies
            self._tables += group.logs(self._spool)
        self._logs, self._weight = [], 0
