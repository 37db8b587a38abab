"""Events of a launch: pieces of rows in line order, with the kinds of each piece.

Only few events are ever read as mappings: some kinds, and events before the first step.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from ..core.schema import frame_schema
from ..core.spill import Spool
from .row_chunks import ChunkSlice, Row, RowBatch, RowChunks, frame_of_rows, spool_waiting_rows

EVENT_SCHEMA: Final = {n: kind for n, kind in frame_schema("events").items() if n != "run_id"}
LINE_OF_ROW: Final = itemgetter("line")
MIN_FRAME_EVENTS: Final = 64
"""Fewer events than this become mappings even from a frame: some calls of Polars cost as much."""


class _Content(NamedTuple):
    """Last line and kinds of a piece."""

    last_line: int
    kinds: frozenset[str]


class EventRows(RowChunks):
    """Events as they are read; in line order once they are settled."""

    COLUMN_TYPES = EVENT_SCHEMA

    def __init__(self, spool: Spool | None = None) -> None:
        """Begin without events. spool: storage of the pieces."""
        super().__init__(spool)
        self._contents: list[_Content] = []
        self._last_line = 0
        self._kinds: set[str] = set()
        """Kinds of the events since the last piece."""
        self._late: list[Row] = []

    def append(self, row: Row) -> None:
        """Append an event, or keep it for `settle` if its line is before the last one."""
        if row["line"] < self._last_line:
            self._late.append(row)
            return
        self._last_line = row["line"]
        self._kinds.add(row["kind"])
        super().append(row)

    def extend(self, events: RowBatch) -> None:
        """Append all events of a part, each after the existing ones."""
        if isinstance(events, pl.DataFrame) and events.height >= MIN_FRAME_EVENTS:
            self._last_line = events["line"][-1]
            self._kinds.update(events["kind"].unique())
            super().extend(events)
            return
        rows = self._mappings(events) if isinstance(events, pl.DataFrame) else events
        for row in rows:
            self.append(row)

    def settle(self) -> None:
        """Move late events to their lines, after other events of the same line."""
        if not self._late:
            return
        self._fold()
        late, self._late = sorted(self._late, key=LINE_OF_ROW), []
        for index, (last_line, kinds) in enumerate(self._contents):
            count = bisect_left(late, last_line, key=LINE_OF_ROW)
            if not count:
                continue
            frames = (
                self._pieces[index].read(EVENT_SCHEMA),
                frame_of_rows(late[:count], EVENT_SCHEMA),
            )
            merged = pl.concat(frames, how="diagonal").sort("line", maintain_order=True)
            self._pieces[index] = ChunkSlice(self.keep(merged), 0, merged.height)
            new = {event["kind"] for event in late[:count]}
            self._contents[index] = _Content(last_line, kinds | new)
            self._count += count
            self._put += count
            late = late[count:]
        for event in late:
            self.append(event)

    def dated(self, stamps: Sequence[datetime | None]) -> EventRows:
        """Return these settled events with other time stamps."""
        out, first = EventRows(self._spool), 0
        for frame in self.frames():
            stamps_of_frame = stamps[first : first + frame.height]
            out.extend(
                frame.with_columns(
                    pl.Series("logged_at", stamps_of_frame, EVENT_SCHEMA["logged_at"])
                )
            )
            first += frame.height
        return out

    def of_kinds(self, kinds: Collection[str], after_line: int = 0) -> Iterator[Row]:
        """Yield events of some kinds from lines after `after_line`."""
        parts = [
            piece
            for piece, content in zip(self._pieces, self._contents, strict=True)
            if content.last_line > after_line and not content.kinds.isdisjoint(kinds)
        ]
        waiting = [] if self._kinds.isdisjoint(kinds) else self._waiting
        for part in (*parts, *waiting, self._late):
            if isinstance(part, list):
                yield from (x for x in part if x["kind"] in kinds and x["line"] > after_line)
                continue
            frame = part if isinstance(part, pl.DataFrame) else part.read(EVENT_SCHEMA)
            selected = frame["kind"].is_in(kinds) & (frame["line"] > after_line)
            if selected.any():
                yield from self._mappings(frame.filter(selected))

    def kept(self, chunk_slice: ChunkSlice, frame: pl.DataFrame) -> None:
        """Record the piece that now contains all waiting rows. frame: of the piece."""
        super().kept(chunk_slice, frame)
        self._contents.append(_Content(self._last_line, frozenset(self._kinds)))
        self._kinds = set()

    def chunk_slices(self) -> Iterator[ChunkSlice]:
        """Return all events, in the pieces of the spool."""
        self._fold()
        return iter(self._pieces)


def events_frame(runs: Sequence[tuple[str, EventRows]]) -> pl.DataFrame:
    """Return all rows of `events` of several runs. runs: ids with their events.

    Events that were spooled together are read together.
    """
    spool_waiting_rows(events for _, events in runs)
    shares: list[ChunkSlice] = []
    for share in (chunk_slice for _, events in runs for chunk_slice in events.chunk_slices()):
        last = shares[-1] if shares else None
        if (
            last is not None
            and last.piece is share.piece
            and last.first + last.height == share.first
        ):
            shares[-1] = ChunkSlice(share.piece, last.first, last.height + share.height)
        else:
            shares.append(share)
    empty = pl.DataFrame(schema=EVENT_SCHEMA)
    every = pl.concat([empty, *(share.read(EVENT_SCHEMA) for share in shares)], how="diagonal")
    ids = pl.Series("run_id", [run_id for run_id, _ in runs], pl.String)
    of_each = np.repeat(np.arange(len(runs)), [len(events) for _, events in runs])
    return pl.DataFrame([ids.gather(of_each), *every])
