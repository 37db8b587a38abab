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
    PIECE_ROWS,
    Cut,
    LogTables,
    Packed,
    Piece,
    Spool,
    Streamed,
    Table,
    chained,
    frames,
    whole,
)
from ..launches import event_rows
from ..launches.event_rows import Events
from ..launches.row_chunks import MAPPING, Pieces, framed, put_aside
from ..launches.step_rows import Rows
from ..store.local_backend import Shelf
from ..store.staged_parts import Unbatched, write_unbatched

BY_ROW: Final = ("sources", "runs", "facts", "unread")
"""Tables whose rows are made one by one."""
WAITING: Final = ("steps", "events", "unread")
"""Tables whose rows wait in the spool."""
MOST_LOGS: Final = 64
"""The most logs that become tables together; nor may they have more rows than PIECE_ROWS."""


@dataclass(frozen=True, slots=True)
class Log:
    """What one log holds: rows of each table of BY_ROW; steps and events of each run, in order."""

    rows: Mapping[str, Sequence[dict[str, Any]]]
    steps: Sequence[tuple[str, Rows]]
    events: Sequence[tuple[str, Events]]

    @property
    def source(self) -> dict[str, Any]:
        """The log's row of `sources`."""
        return self.rows["sources"][0]

    @property
    def weight(self) -> int:
        """What it takes in memory, in rows of a frame."""
        happened = sum(events.weight for _, events in self.events)
        return MAPPING * sum(map(len, self.rows.values())) + _height(self.steps) + happened

    @property
    def heights(self) -> dict[str, int]:
        """How many rows it has of each table."""
        by_row = {name: len(rows) for name, rows in self.rows.items()}
        return {"steps": _height(self.steps), "events": _height(self.events), **by_row}

    def tables(self, spool: Spool) -> LogTables:
        """The log's tables; steps and events, which may be many, are read piece by piece."""
        found: dict[str, Table] = {}
        for name in BY_ROW:
            frame = framed(self.rows[name], frame_schema(name))
            found[name] = spool.rows(frame) if name in WAITING else frame
        put_aside(events for _, events in self.events)
        found["steps"] = _chained("steps", self.steps)
        found["events"] = _chained("events", self.events)
        return found


Runs = Sequence[tuple[str, Pieces]]
"""Rows of launches by the ids of their runs."""


def _height(runs: Runs) -> int:
    """How many rows they are."""
    return sum(len(rows) for _, rows in runs)


def _chained(name: str, runs: Runs) -> Table:
    """The rows of launches as those of a table."""
    empty: Table = pl.DataFrame(schema=frame_schema(name))
    return chained([empty, *(_streamed(name, run_id, rows) for run_id, rows in runs if rows)])


def _streamed(name: str, run_id: str, rows: Pieces) -> Streamed:
    """The rows of a launch as rows of a table."""
    run, schema = pl.lit(run_id).alias("run_id"), frame_schema(name)
    columns = [column for column in schema if column != "run_id"]
    return Streamed(
        schema,
        len(rows),
        lambda: (frame.select(run, pl.all()) for frame in rows.frames(*columns)),
    )


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of several logs by table, and of each log how many of each table are its own.

    tables: in memory, or put where others can take them by who has read them.
    """

    tables: Mapping[str, pl.DataFrame | Sequence[Unbatched] | Sequence[Packed]]
    heights: Sequence[Mapping[str, int]]

    @classmethod
    def of(cls, logs: Sequence[Log]) -> Group:
        """The group of some logs."""
        return cls(cls._framed(logs), [log.heights for log in logs])

    @classmethod
    def packed(cls, logs: Sequence[Log]) -> Group:
        """The group of some logs for another process; rows that may be many as its spool has them.

        So they go to its disk without being looked at.
        """
        return cls._many(logs, _pack)

    @classmethod
    def written(cls, logs: Sequence[Log], shelf: Shelf, job: str) -> Group:
        """The group of some logs; rows that may be many are written as parts that a batch may take.

        job: as for unbatched.write_unbatched.
        """
        return cls._many(logs, partial(write_unbatched, shelf, job))

    @classmethod
    def _many(cls, logs: Sequence[Log], put: Callable[[str, Table], Sequence[Any]]) -> Group:
        """The group of some logs; put: what becomes of the rows of a table that may be many."""
        alone = len(logs) == 1  # which may be long
        tables = logs[0].tables(Spool()) if alone else cls._framed(logs)
        few = {name: whole(table) for name, table in tables.items() if _is_few(name, table)}
        many = {name: put(name, table) for name, table in tables.items() if name not in few}
        return cls({**few, **many}, [log.heights for log in logs])

    @staticmethod
    def _framed(logs: Sequence[Log]) -> dict[str, pl.DataFrame]:
        """All rows of each table."""
        tables = {
            name: framed([row for log in logs for row in log.rows[name]], frame_schema(name))
            for name in BY_ROW
        }
        return tables | {
            "steps": _steps(run for log in logs for run in log.steps),
            "events": event_rows.table([run for log in logs for run in log.events]),
        }

    def logs(self, spool: Spool) -> list[LogTables]:
        """The tables of each log."""
        each = {name: self._cut(name, spool) for name in self.tables}
        return [dict(zip(each, tables, strict=True)) for tables in zip(*each.values(), strict=True)]

    def _cut(self, name: str, spool: Spool) -> list[Table]:
        """A table of each log."""
        table, heights = self.tables[name], [heights[name] for heights in self.heights]
        spans = list(zip(accumulate(heights, initial=0), heights, strict=False))
        if not isinstance(table, pl.DataFrame):
            parts = [spool.take(part) if isinstance(part, Packed) else part for part in table]
            return [_across(parts, frame_schema(name), *span) for span in spans]
        if name not in WAITING:
            return [table.slice(*span) for span in spans]
        cuts: list[Table] = []
        for first, some in _neighbours(heights, PIECE_ROWS):
            height = sum(some)
            rows = table.slice(first, height)
            if height > PIECE_ROWS:  # of one log
                cuts.append(spool.rows(rows))
                continue
            piece, begins = spool.keep(rows), accumulate(some, initial=0)
            cuts += [Cut(piece, rows.schema, *span) for span in zip(begins, some, strict=False)]
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


def _is_few(name: str, table: Table) -> bool:
    """Whether rows are sent back as they are."""
    return name not in WAITING or table.height <= (0 if name == "steps" else PIECE_ROWS)


def _pack(_: str, rows: Table) -> list[Packed]:
    """Rows of a table for another process."""
    each = (some.iter_slices(PIECE_ROWS) for some in frames(rows))
    return [Packed.of(piece) for piece in chain.from_iterable(each)]


def _across(
    parts: Sequence[Unbatched | Piece], schema: pl.Schema, first: int, height: int
) -> Table:
    """Some of the rows of parts, one behind the other."""
    cuts: list[Table] = []
    begin = 0
    for part in parts:
        mine = max(first, begin), min(first + height, begin + part.height)
        if mine[0] < mine[1]:
            cuts.append(Cut(part, schema, mine[0] - begin, mine[1] - mine[0]))
        begin += part.height
    return chained(cuts or [pl.DataFrame(schema=schema)])


def _steps(runs: Iterable[tuple[str, Rows]]) -> pl.DataFrame:
    """All rows of `steps` of some runs."""
    frames = [pl.DataFrame(schema=frame_schema("steps"))]
    for run_id, rows in runs:
        name = pl.Series("run_id", [run_id], pl.String)
        frames += [f.hstack([name.new_from_index(0, f.height)]) for f in rows.frames()]
    return pl.concat(frames, how="diagonal", rechunk=True)


class Batch:
    """What was read, in its order, for the store."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._tables: list[LogTables] = []
        self._logs: list[Log] = []
        self._weight = 0

    def add(self, read: Log | LogTables) -> None:
        """One more log."""
        if not isinstance(read, Log):
            self._make()
            self._tables.append(read)
            return
        weight = read.weight
        if self._weight + weight > PIECE_ROWS or len(self._logs) >= MOST_LOGS:
            self._make()
        self._logs.append(read)
        self._weight += weight

    def tables(self) -> list[LogTables]:
        """The tables of each log."""
        self._make()
        return self._tables

    def _make(self) -> None:
        if len(self._logs) == 1:
            self._tables.append(self._logs[0].tables(self._spool))
        elif self._logs:
            group = Group.of(self._logs)
            self._logs = []  # so that the spool holds their steps only once
            self._tables += group.logs(self._spool)
        self._logs, self._weight = [], 0
