"""The tables of several logs made together: a frame costs more than the rows of a small log do.

Each log gets its own rows of them. Rows that may be many wait in the spool; where those of
neighbours are wanted one behind the other, they are read together too.
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
"""Tables whose rows are made one by one."""
SPOOLED_TABLES: Final = ("steps", "events", "unread")
"""Tables whose rows wait in the spool."""
MAX_GROUP_LOGS: Final = 64
"""The most logs that become tables together; nor may they have more rows than PIECE_ROWS."""


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
        """The log's row of `sources`."""
        return self.rows["sources"][0]

    @property
    def weight(self) -> int:
        """What it takes in memory, in rows of a frame."""
        happened = sum(events.weight for _, events in self.events)
        return (
            MAPPING_ROW_WEIGHT * sum(map(len, self.rows.values())) + _height(self.steps) + happened
        )

    @property
    def heights(self) -> dict[str, int]:
        """How many rows it has of each table."""
        by_row = {name: len(rows) for name, rows in self.rows.items()}
        return {"steps": _height(self.steps), "events": _height(self.events), **by_row}

    def tables(self, spool: Spool) -> LogTables:
        """The log's tables; steps and events, which may be many, are read piece by piece."""
        found: dict[str, TableRows] = {}
        for name in ROW_BUILT_TABLES:
            frame = frame_of_rows(self.rows[name], frame_schema(name))
            found[name] = spool.rows(frame) if name in SPOOLED_TABLES else frame
        spool_waiting_rows(events for _, events in self.events)
        found["steps"] = _chained("steps", self.steps)
        found["events"] = _chained("events", self.events)
        return found


RunRows = Sequence[tuple[str, RowChunks]]
"""Rows of launches by the ids of their runs."""


def _height(runs: RunRows) -> int:
    """How many rows they are."""
    return sum(len(rows) for _, rows in runs)


def _chained(name: str, runs: RunRows) -> TableRows:
    """The rows of launches as those of a table."""
    empty: TableRows = pl.DataFrame(schema=frame_schema(name))
    return chain_rows([empty, *(_streamed(name, run_id, rows) for run_id, rows in runs if rows)])


def _streamed(name: str, run_id: str, rows: RowChunks) -> StreamedRows:
    """The rows of a launch as rows of a table."""
    run, schema = pl.lit(run_id).alias("run_id"), frame_schema(name)
    columns = [column for column in schema if column != "run_id"]
    return StreamedRows(
        schema,
        len(rows),
        lambda: (frame.select(run, pl.all()) for frame in rows.frames(*columns)),
    )


@dataclass(frozen=True, slots=True)
class LogGroup:
    """Rows of several logs by table, and of each log how many of each table are its own.

    tables: in memory, or put where others can take them by who has read them.
    """

    tables: Mapping[str, pl.DataFrame | Sequence[StagedPart] | Sequence[PackedFrame]]
    heights: Sequence[Mapping[str, int]]

    @classmethod
    def of(cls, logs: Sequence[LogRows]) -> LogGroup:
        """The group of some logs."""
        return cls(cls._framed(logs), [log.heights for log in logs])

    @classmethod
    def packed(cls, logs: Sequence[LogRows]) -> LogGroup:
        """The group of some logs for another process; rows that may be many as its spool has them.

        So they go to its disk without being looked at.
        """
        return cls._many(logs, _pack)

    @classmethod
    def written(cls, logs: Sequence[LogRows], backend: StoreBackend, job_id: str) -> LogGroup:
        """The group of some logs; rows that may be many are written as parts that a batch may take.

        job_id: as for unbatched.write_unbatched.
        """
        return cls._many(logs, partial(write_staged_parts, backend, job_id))

    @classmethod
    def _many(
        cls, logs: Sequence[LogRows], put: Callable[[str, TableRows], Sequence[Any]]
    ) -> LogGroup:
        """The group of some logs; put: what becomes of the rows of a table that may be many."""
        alone = len(logs) == 1  # which may be long
        tables = logs[0].tables(Spool()) if alone else cls._framed(logs)
        few = {name: collect_rows(table) for name, table in tables.items() if _is_few(name, table)}
        many = {name: put(name, table) for name, table in tables.items() if name not in few}
        return cls({**few, **many}, [log.heights for log in logs])

    @staticmethod
    def _framed(logs: Sequence[LogRows]) -> dict[str, pl.DataFrame]:
        """All rows of each table."""
        tables = {
            name: frame_of_rows([row for log in logs for row in log.rows[name]], frame_schema(name))
            for name in ROW_BUILT_TABLES
        }
        return tables | {
            "steps": _steps(run for log in logs for run in log.steps),
            "events": event_rows.events_frame([run for log in logs for run in log.events]),
        }

    def logs(self, spool: Spool) -> list[LogTables]:
        """The tables of each log."""
        each = {name: self._cut(name, spool) for name in self.tables}
        return [dict(zip(each, tables, strict=True)) for tables in zip(*each.values(), strict=True)]

    def _cut(self, name: str, spool: Spool) -> list[TableRows]:
        """A table of each log."""
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
            if height > CHUNK_ROWS:  # of one log
                cuts.append(spool.rows(rows))
                continue
            piece, begins = spool.keep(rows), accumulate(some, initial=0)
            cuts += [
                SlicedRows(piece, rows.schema, *span) for span in zip(begins, some, strict=False)
            ]
        return cuts


def _neighbours(heights: Iterable[int], most: int) -> Iterator[tuple[int, list[int]]]:
    """Heights that together are no more than `most`, or one alone; with the sum of those before."""
    first, some = 0, list[int]()
    for height in heights:
        if some and sum(some) + height > most:
            yield first, some
            first, some = first + sum(some), []
        some.append(height)
    if some:
        yield first, some


def _is_few(name: str, table: TableRows) -> bool:
    """Whether rows are sent back as they are."""
    return name not in SPOOLED_TABLES or table.height <= (0 if name == "steps" else CHUNK_ROWS)


def _pack(_: str, rows: TableRows) -> list[PackedFrame]:
    """Rows of a table for another process."""
    each = (some.iter_slices(CHUNK_ROWS) for some in iterate_frames(rows))
    return [PackedFrame.of(piece) for piece in chain.from_iterable(each)]


def _across(
    parts: Sequence[StagedPart | SpooledFrame], schema: pl.Schema, first: int, height: int
) -> TableRows:
    """Some of the rows of parts, one behind the other."""
    cuts: list[TableRows] = []
    begin = 0
    for part in parts:
        mine = max(first, begin), min(first + height, begin + part.height)
        if mine[0] < mine[1]:
            cuts.append(SlicedRows(part, schema, mine[0] - begin, mine[1] - mine[0]))
        begin += part.height
    return chain_rows(cuts or [pl.DataFrame(schema=schema)])


def _steps(runs: Iterable[tuple[str, StepRows]]) -> pl.DataFrame:
    """All rows of `steps` of some runs."""
    frames = [pl.DataFrame(schema=frame_schema("steps"))]
    for run_id, rows in runs:
        name = pl.Series("run_id", [run_id], pl.String)
        frames += [f.hstack([name.new_from_index(0, f.height)]) for f in rows.frames()]
    return pl.concat(frames, how="diagonal", rechunk=True)


class LogBatch:
    """What was read, in its order, for the store."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._tables: list[LogTables] = []
        self._logs: list[LogRows] = []
        self._weight = 0

    def add(self, log: LogRows | LogTables) -> None:
        """One more log."""
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
        """The tables of each log."""
        self._make()
        return self._tables

    def _make(self) -> None:
        if len(self._logs) == 1:
            self._tables.append(self._logs[0].tables(self._spool))
        elif self._logs:
            group = LogGroup.of(self._logs)
            self._logs = []  # so that the spool holds their steps only once
            self._tables += group.logs(self._spool)
        self._logs, self._weight = [], 0
