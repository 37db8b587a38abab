"""Events of a launch: pieces of rows in the order of their lines, which know their kinds.

Few read an event as a mapping: those of some kinds, and those before the first step.
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
from .row_chunks import Part, Pieces, Row, Share, framed, put_aside

SCHEMA: Final = {n: kind for n, kind in frame_schema("events").items() if n != "run_id"}
LINE: Final = itemgetter("line")
FEW: Final = 64
"""Events that are mappings though they come at once: several calls of Polars cost as much."""


class _Content(NamedTuple):
    """What a piece holds."""

    last_line: int
    kinds: frozenset[str]


class Events(Pieces):
    """Events as they are read; in the order of their lines once they are settled."""

    KEPT = SCHEMA

    def __init__(self, kept: Spool | None = None) -> None:
        """kept: where they are put aside."""
        super().__init__(kept)
        self._contents: list[_Content] = []
        self._last_line = 0
        self._kinds: set[str] = set()
        """Of what has come since the last piece."""
        self._late: list[Row] = []

    def append(self, row: Row) -> None:
        """One more event; of a line before the last one's it waits until all are there."""
        if row["line"] < self._last_line:
            self._late.append(row)
            return
        self._last_line = row["line"]
        self._kinds.add(row["kind"])
        super().append(row)

    def extend(self, part: Part) -> None:
        """All events of a part, each behind those that are there."""
        if isinstance(part, pl.DataFrame) and part.height >= FEW:
            self._last_line = part["line"][-1]
            self._kinds.update(part["kind"].unique())
            super().extend(part)
            return
        rows = self._mappings(part) if isinstance(part, pl.DataFrame) else part
        for row in rows:
            self.append(row)

    def settle(self) -> None:
        """All are there: those that came late get to their places, behind others of their lines."""
        if not self._late:
            return
        self._fold()
        late, self._late = sorted(self._late, key=LINE), []
        for place, (last_line, kinds) in enumerate(self._contents):
            count = bisect_left(late, last_line, key=LINE)
            if not count:
                continue
            frames = (self._pieces[place].read(SCHEMA), framed(late[:count], SCHEMA))
            merged = pl.concat(frames, how="diagonal").sort("line", maintain_order=True)
            self._pieces[place] = Share(self.keep(merged), 0, merged.height)
            new = {event["kind"] for event in late[:count]}
            self._contents[place] = _Content(last_line, kinds | new)
            self._count += count
            self._put += count
            late = late[count:]
        for event in late:
            self.append(event)

    def dated(self, stamps: Sequence[datetime | None]) -> Events:
        """These events, which are settled, with other time stamps."""
        out, first = Events(self._spool), 0
        for frame in self.frames():
            mine = stamps[first : first + frame.height]
            out.extend(frame.with_columns(pl.Series("logged_at", mine, SCHEMA["logged_at"])))
            first += frame.height
        return out

    def of_kinds(self, kinds: Collection[str], behind: int = 0) -> Iterator[Row]:
        """Events of some kinds, of lines behind `behind`."""
        parts = [
            piece
            for piece, content in zip(self._pieces, self._contents, strict=True)
            if content.last_line > behind and not content.kinds.isdisjoint(kinds)
        ]
        waiting = [] if self._kinds.isdisjoint(kinds) else self._waiting
        for part in (*parts, *waiting, self._late):
            if isinstance(part, list):
                yield from (x for x in part if x["kind"] in kinds and x["line"] > behind)
                continue
            frame = part if isinstance(part, pl.DataFrame) else part.read(SCHEMA)
            there = frame["kind"].is_in(kinds) & (frame["line"] > behind)
            if there.any():
                yield from self._mappings(frame.filter(there))

    def kept(self, share: Share, frame: pl.DataFrame) -> None:
        """All that waited is there now; frame: of the piece."""
        super().kept(share, frame)
        self._contents.append(_Content(self._last_line, frozenset(self._kinds)))
        self._kinds = set()

    def shares(self) -> Iterator[Share]:
        """All events, in pieces as they were put aside."""
        self._fold()
        return iter(self._pieces)


def table(runs: Sequence[tuple[str, Events]]) -> pl.DataFrame:
    """All rows of `events` of launches, by the ids of their runs.

    Events of several that were put aside together are read together.
    """
    put_aside(events for _, events in runs)
    shares: list[Share] = []
    for one in (share for _, events in runs for share in events.shares()):
        last = shares[-1] if shares else None
        if last is not None and last.piece is one.piece and last.first + last.height == one.first:
            shares[-1] = Share(one.piece, last.first, last.height + one.height)
        else:
            shares.append(one)
    empty = pl.DataFrame(schema=SCHEMA)
    every = pl.concat([empty, *(share.read(SCHEMA) for share in shares)], how="diagonal")
    ids = pl.Series("run_id", [run_id for run_id, _ in runs], pl.String)
    of_each = np.repeat(np.arange(len(runs)), [len(events) for _, events in runs])
    return pl.DataFrame([ids.gather(of_each), *every])
