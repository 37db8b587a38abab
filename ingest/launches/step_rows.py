"""Step rows of a launch: pieces of rows with indices of their forms and steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, Final

import numpy as np
import polars as pl

from ..core.arrays import Ints, column_values, distinct_integers
from ..core.schema import frame_schema
from ..core.spill import Spool
from .row_chunks import ChunkSlice, Row, RowBatch, RowChunks, frame_of_rows, select_filled

STEP_SCHEMA: Final = {n: kind for n, kind in frame_schema("steps").items() if n != "run_id"}

FORM_COLUMN: Final = "form"
REPEAT_COLUMN: Final = "again"
EMPTY_LINE_VALUES: Final = {"rank": None, "logged_at": None, "extra": None}
"""Columns that every row of a line has."""
PARSING_SCHEMA: Final = {
    FORM_COLUMN: pl.Int8(),
    "text": pl.String(),
    "counted": pl.Boolean(),
    REPEAT_COLUMN: pl.Boolean(),
}
"""Columns that a row has in addition to `steps` until its launch is complete.

FORM_COLUMN: the format's StepLine of the row; in a frame, its index
text: of a line with its own counter
counted: True if the step is a mere count
REPEAT_COLUMN: True if earlier rows of the step already have all values that later rows are compared
with, so lookups skip the row (see ingest.launches.duplicate_steps)
"""
PARSED_STEP_SCHEMA: Final = STEP_SCHEMA | PARSING_SCHEMA
NO_STEP: Final = -(2**63)
"""Step of a row that has none yet."""
LOOKUP_COLUMNS: Final = (FORM_COLUMN, "rank", "step", "epoch", "since_start_s", "loss")
"""Columns that lookups of earlier rows need."""
_SOUGHT_SCHEMA: Final = {name: PARSED_STEP_SCHEMA[name] for name in LOOKUP_COLUMNS}
_NONE_SOUGHT: Final = pl.DataFrame(schema=_SOUGHT_SCHEMA)
EMPTY_STEP_RANGE: Final = (0, -1)
"""First and last step of a piece whose rows all repeat earlier ones."""
MAX_INDEXED_CHUNKS: Final = 16
"""Pieces kept sorted by step, the most recently used ones: about 1 MB each."""


class StepRows(RowChunks):
    """Step rows in their order; `append` a mapping, or `extend` by a frame."""

    COLUMN_TYPES = PARSED_STEP_SCHEMA

    def __init__(self, spool: Spool | None = None, forms: Sequence[Any] = ()) -> None:
        """Begin without rows. spool: storage of the pieces; forms: possible StepLines."""
        super().__init__(spool)
        self._forms = tuple(forms)
        self._places = {id(form): place for place, form in enumerate(self._forms)}
        self._changes: list[Callable[[pl.DataFrame], pl.DataFrame]] = []
        self._used: set[int] = set()
        self._spans: list[tuple[int, int]] = []
        self._first_line: int | None = None
        self._last_line = self._top_step = 0
        self._sorted: dict[int, tuple[Ints, pl.DataFrame]] = {}
        self._recent: dict[tuple[str | None, int], list[Row]] = {}
        self._recent_count = 0
        self._late = _NONE_SOUGHT

    def empty_copy(self) -> StepRows:
        """Return an empty copy, for other rows of the same launch."""
        return StepRows(self._spool, self._forms)

    def without_last(self, count: int) -> StepRows:
        """Return all rows but the last `count`."""
        out, left = self.empty_copy(), len(self) - count
        for frame in self.frames():
            out.extend(frame[:left])
            left -= min(left, frame.height)
        return out

    def at(self, rank: str | None, step: int) -> Iterator[Row]:
        """Yield the rows of a rank and step, in their order, with at least LOOKUP_COLUMNS.

        Rows marked REPEAT_COLUMN may be missing. Only pieces whose range of steps contains the step
        are read.
        """
        for piece_index, (first, last) in enumerate(self._spans):
            if first <= step <= last:
                yield from (row for row in self._of_step(piece_index, step) if row["rank"] == rank)
        for row in self.behind(self._put + self._recent_count):
            self._recent.setdefault((row["rank"], row["step"]), []).append(row)
            self._recent_count += 1
        yield from self._recent.get((rank, step), ())

    def rows_of_steps(self, steps: Ints) -> pl.DataFrame:
        """Return the rows of these steps, in their order, with LOOKUP_COLUMNS.

        Rows marked REPEAT_COLUMN may be missing.

        steps: ascending
        """
        frames = [self._late_rows()]
        for piece, (first, last) in zip(self._pieces, self._spans, strict=True):
            if steps.searchsorted(first) < steps.searchsorted(last, "right"):
                frames.append(self._read(piece, (*LOOKUP_COLUMNS, REPEAT_COLUMN)))
        return pl.concat([_new_of_steps(frame, steps) for frame in (*frames[1:], frames[0])])

    def _late_rows(self) -> pl.DataFrame:
        """Return LOOKUP_COLUMNS of the rows since the last piece."""
        parts = self._parts_behind(self._put + self._late.height)
        new = []
        for part in parts:
            assert not isinstance(part, ChunkSlice)  # noqa: S101 - those behind _put wait
            frame = (
                frame_of_rows(self._placed(part), _SOUGHT_SCHEMA)
                if isinstance(part, list)
                else part
            )
            new.append(select_filled(frame, LOOKUP_COLUMNS, PARSED_STEP_SCHEMA))
        self._late = pl.concat([self._late, *new], rechunk=True) if new else self._late
        return self._late

    def _of_step(self, piece_index: int, step: int) -> Iterator[Row]:
        """Yield the rows of a step in one piece."""
        piece_rows = self._sorted.pop(piece_index, None)
        if piece_rows is None:
            piece = self._read(self._pieces[piece_index], LOOKUP_COLUMNS)
            frame = select_filled(piece, LOOKUP_COLUMNS, PARSED_STEP_SCHEMA).sort(
                "step", maintain_order=True
            )
            piece_rows = column_values(frame["step"], NO_STEP), frame
        self._sorted[piece_index] = piece_rows
        if len(self._sorted) > MAX_INDEXED_CHUNKS:
            del self._sorted[next(iter(self._sorted))]
        steps, frame = piece_rows
        first, behind = (int(steps.searchsorted(step, side)) for side in ("left", "right"))
        return self._mappings(frame[first:behind])

    @property
    def all_forms(self) -> tuple[Any, ...]:
        """StepLines that rows may have; FORM_COLUMN of a frame is an index into these."""
        return self._forms

    def forms(self) -> list[Any]:
        """Return the StepLines of the rows."""
        self._fold()
        return [self._forms[place] for place in sorted(self._used)]

    def transform(self, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
        """Change all rows. change: takes a frame that may lack any column.

        A column computed from others must change only in frames that have the others.
        """
        self._fold()
        self._changes.append(change)

    def settle(self) -> None:
        """Restrict rows to the columns of `steps`: the launch is complete."""
        self._fold()
        self._names = STEP_SCHEMA

    @property
    def first_line(self) -> int | None:
        """The line of the first row; None without rows."""
        self._fold()
        return self._first_line

    @property
    def last_line(self) -> int:
        """The last line of a row; 0 without rows."""
        self._fold()
        return self._last_line

    @property
    def top_step(self) -> int:
        """The highest step of a row; 0 without rows."""
        self._fold()
        if self._changes:
            return max((int(frame["step"].max()) for frame in self.frames("step")), default=0)  # type: ignore[arg-type]
        return self._top_step

    def has_columns(self, *names: str) -> bool:
        """Return whether some piece has all of these columns."""
        self._fold()
        return any(set(names) <= set(share.piece.columns) for share in self._pieces)

    def by_step(self, *names: str) -> Iterator[pl.DataFrame]:
        """Yield rows ordered by step, then line; a step is never split between frames.

        All rows of pieces with overlapping steps are in memory.

        names: columns, among them `step` and `line`
        """
        self._fold()
        firsts = [int(frame["step"].min()) for frame in self.frames("step")]  # type: ignore[arg-type]
        order = sorted(range(len(firsts)), key=firsts.__getitem__)
        ends = [firsts[piece_index] for piece_index in order[1:]]
        rest: list[pl.DataFrame] = []
        for piece_index, end in zip_longest(order, ends):
            so_far = pl.concat(
                [
                    *rest,
                    select_filled(
                        self._read(self._pieces[piece_index], names), names, PARSED_STEP_SCHEMA
                    ),
                ]
            )
            if not (so_far["step"].is_sorted() and so_far["line"].is_sorted()):
                so_far = so_far.sort("step", "line")
            steps = so_far["step"]
            whole = so_far.height if end is None else steps.search_sorted(end, "left")
            yield so_far[:whole]
            rest = [so_far[whole:]]

    def waiting_rows(self) -> list[RowBatch]:
        """Return the rows since the last piece, with the indices of the forms."""
        return [
            self._placed(part) if isinstance(part, list) else part
            for part in super().waiting_rows()
        ]

    def _placed(self, part: list[Row]) -> list[Row]:
        return [row | {FORM_COLUMN: self._places[id(row[FORM_COLUMN])]} for row in part]

    def kept(self, chunk_slice: ChunkSlice, frame: pl.DataFrame) -> None:
        """Record the piece that now contains all waiting rows. frame: of the piece."""
        super().kept(chunk_slice, frame)
        kept_rows = frame.slice(chunk_slice.first, chunk_slice.height)
        steps = _new(kept_rows)["step"]
        self._spans.append((steps.min(), steps.max()) if len(steps) else EMPTY_STEP_RANGE)  # type: ignore[arg-type]
        if self._first_line is None:
            self._first_line = kept_rows["line"][0]
        self._last_line = max(self._last_line, kept_rows["line"].max())  # type: ignore[assignment,type-var]
        self._top_step = max(self._top_step, kept_rows["step"].max())  # type: ignore[assignment,type-var]
        if FORM_COLUMN in frame.columns:
            self._used.update(distinct_integers(kept_rows[FORM_COLUMN].to_numpy()).tolist())
        self._recent, self._recent_count = {}, 0
        self._late = self._late.clear()

    def _read(self, piece: ChunkSlice, names: Iterable[str]) -> pl.DataFrame:
        frame = super()._read(piece, names)
        for change in self._changes:
            frame = change(frame)
        return frame

    def _mappings(self, frame: pl.DataFrame) -> Iterator[Row]:
        """Yield rows with the frame's columns, and those of EMPTY_LINE_VALUES."""
        for row in frame.iter_rows(named=True):
            form = {FORM_COLUMN: self._forms[row[FORM_COLUMN]]} if FORM_COLUMN in row else {}
            yield EMPTY_LINE_VALUES | row | form


def _new(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of a frame that are not marked REPEAT_COLUMN."""
    return frame.remove(REPEAT_COLUMN) if REPEAT_COLUMN in frame.columns else frame


def _new_of_steps(frame: pl.DataFrame, steps: Ints) -> pl.DataFrame:
    """Return LOOKUP_COLUMNS of the rows of these steps that repeat no earlier row."""
    frame = select_filled(_new(frame), LOOKUP_COLUMNS, PARSED_STEP_SCHEMA)
    row_steps = frame["step"].to_numpy()
    near = np.minimum(steps.searchsorted(row_steps), len(steps) - 1)
    return frame.filter(steps[near] == row_steps)
