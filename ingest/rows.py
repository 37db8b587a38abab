"""Step rows of a launch: those that were read line by line, and those of many lines at once.

Both stand in the order of their lines, and go where a spool keeps them as they become many. Who
asks for a row gets a mapping; who needs all of a column gets it piece by piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any, Final, overload

import numpy as np
import polars as pl

from ingest import spool
from ingest.arrays import Ints, there_are
from ingest.schema import frame_schema
from ingest.spool import Piece, Spool

SCHEMA: Final = {n: kind for n, kind in frame_schema("steps").items() if n != "run_id"}

Row = dict[str, Any]
FORM: Final = "form"
EMPTY: Final = {"rank": None, "logged_at": None, "extra": None}
"""What every row of a line has."""
SPARE: Final = (*EMPTY, "epoch", "since_start_s")
"""Columns of rows of many lines at once that are null in most formats, and take time as others."""
WHILE_READ: Final = {FORM: pl.Int8(), "text": pl.String(), "counted": pl.Boolean()}
"""What a row has beside its columns of `steps` until its launch is whole.

FORM: which of its format's StepLines it is of; in a frame by its place. text: of a line with a
counter of its own. counted: its step is a mere count.
"""
KEPT: Final = SCHEMA | WHILE_READ
SOUGHT: Final = (FORM, "rank", "step", "epoch", "since_start_s", "loss")
"""What is asked of rows of a step that were read before."""
INDEXED: Final = 16
"""Pieces that are held in the order of their steps, of those asked last: about 1 MB each."""
MAPPING: Final = 4
"""A mapping takes as much memory as so many rows of a frame."""
ROW_BYTES: Final = 256
"""Twice what a row of numbers takes; one with a long text weighs as much as several of them."""
FRAMES: Final = 4
"""That wait as they came; of more, each is of few rows."""


@dataclass(frozen=True, slots=True)
class Share:
    """Some of the rows of a piece."""

    piece: Piece
    first: int
    height: int

    def read(self, columns: Iterable[str]) -> pl.DataFrame:
        """As Piece.read."""
        frame = self.piece.read(columns)
        return frame if self.height == frame.height else frame.slice(self.first, self.height)


class Rows(Sequence[Row]):
    """Rows in their order; `append` one, or `extend` by a frame."""

    def __init__(self, kept: Spool | None = None, forms: Sequence[Any] = ()) -> None:
        """kept: where they are put aside; forms: the StepLines that they may be of."""
        self._spool = kept or Spool()
        self._forms = tuple(forms)
        self._places = {id(form): place for place, form in enumerate(self._forms)}
        self._pieces: list[Share] = []
        self._waiting: list[list[Row] | pl.DataFrame] = []
        self._loose = 0
        self._changes: list[Callable[[pl.DataFrame], pl.DataFrame]] = []
        self._names: Mapping[str, pl.DataType] = KEPT
        self._used: set[int] = set()
        self._count = 0
        self._put = 0
        self._spans: list[tuple[int, int]] = []
        self._first_line: int | None = None
        self._sorted: dict[int, pl.DataFrame] = {}
        self._recent: dict[tuple[str | None, int], list[Row]] = {}
        self._recent_count = 0

    def append(self, row: Row) -> None:
        """One more row."""
        if not self._waiting or isinstance(self._waiting[-1], pl.DataFrame):
            self._waiting.append([])
        last = self._waiting[-1]
        assert isinstance(last, list)  # noqa: S101 - it was made so
        last.append(row)
        self._more(1, MAPPING)

    def extend(self, frame: pl.DataFrame) -> None:
        """All rows of a frame: columns of KEPT that they fill."""
        self._waiting.append(frame if len(self._waiting) < FRAMES else _copied(frame))
        self._more(frame.height, max(frame.height, int(frame.estimated_size()) // ROW_BYTES))

    def like(self) -> Rows:
        """No rows, for others of the same launch."""
        return Rows(self._spool, self._forms)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Row]:
        return self.behind(0)

    def behind(self, count: int) -> Iterator[Row]:
        """The rows behind the first so many."""
        parts: list[list[Row] | pl.DataFrame | Share] = []
        begins = self._count
        for part in chain(reversed(self._waiting), reversed(self._pieces)):
            if begins <= count:
                break
            parts.append(part)
            begins -= len(part) if isinstance(part, list) else part.height
        if parts and begins < count:
            skipped, first = count - begins, parts.pop()
            kept = self._read(first, self._names) if isinstance(first, Share) else first
            parts.append(kept[skipped:])
        return chain.from_iterable(map(self._rows, reversed(parts)))

    def at(self, rank: str | None, step: int) -> Iterator[Row]:
        """The rows of that rank and step, with SOUGHT at least, in their order.

        Pieces are looked into where the step lies between their first and last one.
        """
        for place, (first, last) in enumerate(self._spans):
            if first <= step <= last:
                yield from (row for row in self._of_step(place, step) if row["rank"] == rank)
        for row in self.behind(self._put + self._recent_count):
            self._recent.setdefault((row["rank"], row["step"]), []).append(row)
            self._recent_count += 1
        yield from self._recent.get((rank, step), ())

    def _of_step(self, place: int, step: int) -> Iterator[Row]:
        """Those of a piece."""
        found = self._sorted.pop(place, None)
        if found is None:
            piece = self._read(self._pieces[place], SOUGHT)
            found = _filled(piece, SOUGHT).sort("step", maintain_order=True)
        self._sorted[place] = found
        if len(self._sorted) > INDEXED:
            del self._sorted[next(iter(self._sorted))]
        first, behind = (found["step"].search_sorted(step, side) for side in ("left", "right"))
        return self._rows(found[first:behind])

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return list(self)[index]
        if not -self._count <= index < self._count:
            raise IndexError(index)
        return next(self.behind(index % self._count))

    @property
    def all_forms(self) -> tuple[Any, ...]:
        """The StepLines that rows may be of; FORM of a frame is a place in these."""
        return self._forms

    def forms(self) -> list[Any]:
        """The StepLines of the rows."""
        self._fold()
        return [self._forms[place] for place in sorted(self._used)]

    def alter(self, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
        """Change all rows; of a frame that may lack any column, each column by itself."""
        self._fold()
        self._changes.append(change)

    def settle(self) -> None:
        """The launch is whole: from now on the rows have the columns of `steps` alone."""
        self._fold()
        self._names = SCHEMA

    @property
    def first_line(self) -> int | None:
        """The line of the first row."""
        self._fold()
        return self._first_line

    def has(self, *names: str) -> bool:
        """Whether some rows may have all of these columns."""
        self._fold()
        return any(set(names) <= set(share.piece.columns) for share in self._pieces)

    def frames(self, *names: str) -> Iterator[pl.DataFrame]:
        """These columns of all rows, by default those that some are said to have, in pieces."""
        self._fold()
        for piece in self._pieces:
            frame = self._read(piece, names or self._names)
            yield _filled(frame, names) if names else frame

    def by_step(self, *names: str) -> Iterator[pl.DataFrame]:
        """The same in the order of their steps, then of their lines; those of a step together.

        It holds no more than overlaps: `step` and `line` are among the columns.
        """
        self._fold()
        firsts = [int(frame["step"].min()) for frame in self.frames("step")]  # type: ignore[arg-type]
        order = sorted(range(len(firsts)), key=firsts.__getitem__)
        ends = [firsts[place] for place in order[1:]]
        rest: list[pl.DataFrame] = []
        for place, end in zip_longest(order, ends):
            so_far = pl.concat([*rest, _filled(self._read(self._pieces[place], names), names)])
            if not (so_far["step"].is_sorted() and so_far["line"].is_sorted()):
                so_far = so_far.sort("step", "line")
            steps = so_far["step"]
            whole = so_far.height if end is None else steps.search_sorted(end, "left")
            yield so_far[:whole]
            rest = [so_far[whole:]]

    def _more(self, count: int, weight: int) -> None:
        self._count += count
        self._loose += weight
        if self._loose >= spool.PIECE_ROWS:
            self._fold()

    def _fold(self) -> None:
        """Put aside what has come since the last piece."""
        put_aside([self])

    def waiting(self) -> list[list[Row] | pl.DataFrame]:
        """What has come since the last piece, with the places of the forms."""
        if not self._loose:
            return []
        return [
            part
            if isinstance(part, pl.DataFrame)
            else [row | {FORM: self._places[id(row[FORM])]} for row in part]
            for part in self._waiting
        ]

    def keep(self, frame: pl.DataFrame) -> Piece:
        """Put a frame aside where the rows are."""
        return self._spool.keep(frame)

    def kept(self, share: Share, forms: Ints, steps: pl.Series, line: int) -> None:
        """All that waited is there now; forms and steps: of these rows; line: the first one's."""
        self._pieces.append(share)
        self._spans.append((steps.min(), steps.max()))  # type: ignore[arg-type]
        self._first_line = line if self._first_line is None else self._first_line
        self._used.update(there_are(forms).tolist())
        self._waiting, self._loose, self._put = [], 0, self._count
        self._recent, self._recent_count = {}, 0

    def _read(self, piece: Share, names: Iterable[str]) -> pl.DataFrame:
        frame = piece.read({"line": None, **dict.fromkeys(names)})  # every row has a line
        for change in self._changes:
            frame = change(frame)
        return frame

    def _rows(self, part: list[Row] | pl.DataFrame | Share) -> Iterator[Row]:
        """Each row of a part as the parser makes it of one line."""
        if isinstance(part, list):
            yield from part
            return
        frame = part if isinstance(part, pl.DataFrame) else self._read(part, self._names)
        for row in frame.iter_rows(named=True):
            form = {FORM: self._forms[row[FORM]]} if FORM in row else {}
            yield EMPTY | row | form


def put_aside(several: Iterable[Rows]) -> None:
    """What has come to each since its last piece, as one frame: of it each has its own rows."""
    waiting = [(rows, parts) for rows in several if (parts := rows.waiting())]
    if not waiting:
        return
    frame = _joined([part for _, parts in waiting for part in parts])
    forms = frame[FORM].to_numpy() if FORM in frame.columns else np.empty(0, np.int64)
    piece, first = waiting[0][0].keep(frame), 0
    for rows, parts in waiting:
        height = sum(map(len, parts))
        steps = frame["step"].slice(first, height)
        share = Share(piece, first, height)
        rows.kept(share, forms[first : first + height], steps, frame["line"][first])
        first += height


def _joined(parts: Sequence[list[Row] | pl.DataFrame]) -> pl.DataFrame:
    """Rows and frames in their order, as one frame."""
    own = [row for part in parts if isinstance(part, list) for row in part]
    frames = [part for part in parts if isinstance(part, pl.DataFrame)]
    if own:
        frames = [framed(own, KEPT, said_only=True), *frames]
    joined = _said(pl.concat(frames, how="diagonal", rechunk=True))
    order = _order(parts, len(own))
    return joined if (np.diff(order) == 1).all() else joined[order]


def _order(parts: Iterable[list[Row] | pl.DataFrame], behind: int) -> Ints:
    """Places of the rows of parts where own rows stand before those of frames, so many."""
    places, next_own, next_framed = [], 0, behind
    for part in parts:
        if isinstance(part, list):
            places.append(np.arange(next_own, next_own + len(part)))
            next_own += len(part)
        else:
            places.append(np.arange(next_framed, next_framed + part.height))
            next_framed += part.height
    return np.concatenate(places)


def _copied(frame: pl.DataFrame) -> pl.DataFrame:
    """The same in memory of Polars' own.

    Its columns are numpy's and Arrow's, which lie among the large arrays of the block that they are
    of. Where they stay, the C library cannot give the room of these to the next block: up to a
    third of the memory that a log with few steps took.
    """
    every = pl.int_range(pl.len())
    return frame.select(
        pl.concat_str(name, pl.lit("")) if kind == pl.String else pl.col(name).gather(every)
        for name, kind in frame.schema.items()
    )


def _said(frame: pl.DataFrame) -> pl.DataFrame:
    """A frame without those of SPARE that no row says."""
    there = [name for name in SPARE if name in frame.columns]
    return frame.drop([name for name in there if frame[name].null_count() == frame.height])


def _filled(frame: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
    """Those columns of a frame; what it does not have is null."""
    if frame.columns == list(names):
        return frame
    missing = [name for name in names if name not in frame.columns]
    empty = [pl.Series(n, [None], KEPT[n]).new_from_index(0, frame.height) for n in missing]
    return frame.hstack(empty)[list(names)]


def framed(
    rows: Sequence[Mapping[str, Any]],
    schema: Mapping[str, pl.DataType],
    *,
    said_only: bool = False,
) -> pl.DataFrame:
    """Rows as a frame of that schema; what they lack is null, or with `said_only` left out."""
    said = set[str]().union(*rows)
    wanted = {name: kind for name, kind in schema.items() if name in said or not said_only}
    values = {
        name: [row.get(name) for row in rows] if name in said else [None] * len(rows)
        for name in wanted
    }
    return pl.DataFrame(values, schema=wanted, strict=True)
