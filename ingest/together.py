"""The tables of several logs made together: a frame costs more than the rows of a small log do.

Each log gets its own rows of them. Rows that may be many wait in the spool; where those of
neighbours are wanted one behind the other, they are read together too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import polars as pl

from ingest.rows import MAPPING, SCHEMA, Rows, framed
from ingest.schema import frame_schema
from ingest.spool import PIECE_ROWS, Piece, Spool, Streamed, Table, chained

LogTables = Mapping[str, Table]
"""All tables of one log; those that may be long are read piece by piece."""

BY_ROW: Final = ("sources", "runs", "facts", "events", "unread")
"""Tables whose rows are made one by one."""
WAITING: Final = ("steps", "events", "unread")
"""Tables whose rows wait in the spool."""
MOST_LOGS: Final = 64
"""That are made tables together; and no more rows than are read together (PIECE_ROWS)."""


@dataclass(frozen=True, slots=True)
class Log:
    """What one log holds: rows of each table of BY_ROW, and steps of each run in its order."""

    rows: Mapping[str, Sequence[dict[str, Any]]]
    steps: Sequence[tuple[str, Rows]]

    @property
    def source(self) -> dict[str, Any]:
        """Its row of `sources`."""
        return self.rows["sources"][0]

    @property
    def weight(self) -> int:
        """What it takes in memory, in rows of a frame."""
        return MAPPING * sum(map(len, self.rows.values())) + self._steps

    @property
    def heights(self) -> dict[str, int]:
        """How many rows it has of each table."""
        return {"steps": self._steps, **{name: len(rows) for name, rows in self.rows.items()}}

    @property
    def _steps(self) -> int:
        return sum(len(rows) for _, rows in self.steps)

    def tables(self, spool: Spool) -> LogTables:
        """Its tables, where its rows may be many: steps are read piece by piece."""
        found: dict[str, Table] = {}
        for name in BY_ROW:
            frame = framed(self.rows[name], frame_schema(name))
            found[name] = spool.rows(frame) if name in WAITING else frame
        steps: list[Table] = [pl.DataFrame(schema=frame_schema("steps"))]
        found["steps"] = chained([*steps, *(_streamed(*run) for run in self.steps)])
        return found


def _streamed(run_id: str, rows: Rows) -> Streamed:
    """The rows of a launch as rows of `steps`."""
    run = pl.lit(run_id).alias("run_id")
    return Streamed(
        frame_schema("steps"),
        len(rows),
        lambda: (frame.select(run, pl.all()) for frame in rows.frames(*SCHEMA)),
    )


@dataclass(frozen=True, slots=True)
class Group:
    """Rows of several logs by table, and of each log how many of each table are its own."""

    tables: Mapping[str, pl.DataFrame]
    heights: Sequence[Mapping[str, int]]

    @classmethod
    def of(cls, logs: Sequence[Log]) -> Group:
        """Those of some logs."""
        tables = {
            name: framed([row for log in logs for row in log.rows[name]], frame_schema(name))
            for name in BY_ROW
        }
        tables["steps"] = _steps(run for log in logs for run in log.steps)
        return cls(tables, [log.heights for log in logs])

    def logs(self, spool: Spool) -> list[LogTables]:
        """The tables of each log."""
        each = {name: self._cut(name, spool) for name in self.tables}
        return [dict(zip(each, tables, strict=True)) for tables in zip(*each.values(), strict=True)]

    def _cut(self, name: str, spool: Spool) -> list[Table]:
        """A table of each log."""
        table, heights = self.tables[name], [heights[name] for heights in self.heights]
        spans = list(zip(accumulate(heights, initial=0), heights, strict=False))
        if name not in WAITING:
            return [table.slice(*span) for span in spans]
        if table.height > PIECE_ROWS:
            return [spool.rows(table.slice(*span)) for span in spans]
        piece = spool.keep(table)
        return [Cut(piece, table.schema, *span) for span in spans]


def _steps(runs: Iterable[tuple[str, Rows]]) -> pl.DataFrame:
    """All rows of `steps` of some runs."""
    frames = [pl.DataFrame(schema=frame_schema("steps"))]
    for run_id, rows in runs:
        name = pl.Series("run_id", [run_id], pl.String)
        frames += [f.hstack([name.new_from_index(0, f.height)]) for f in rows.frames()]
    return pl.concat(frames, how="diagonal", rechunk=True)


class Cut(Streamed):
    """Some of the rows of a piece."""

    def __init__(self, piece: Piece, schema: pl.Schema, first: int, height: int) -> None:
        super().__init__(schema, height, self._frames)
        self.piece, self.first = piece, first

    def _frames(self) -> Iterator[pl.DataFrame]:
        if self.height:
            yield self.piece.read().slice(self.first, self.height)


def neighbours_joined(tables: Iterable[Table]) -> list[Table]:
    """The same rows in the same order; those that stand behind one another in a piece are one."""
    out: list[Table] = []
    for table in tables:
        last = out[-1] if out else None
        if (
            isinstance(table, Cut)
            and isinstance(last, Cut)
            and table.piece is last.piece
            and table.first == last.first + last.height
        ):
            out[-1] = Cut(last.piece, last.schema, last.first, last.height + table.height)
        else:
            out.append(table)
    return out


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
