"""A source read many lines at once: what `ingest.parse` makes of each, without asking it of each.

Lines that fit a shape (see ingest.scan) are taken together, as far as nothing lies between them
that has to be read by itself. The parser is asked of every other line, and of all lines while what
they mean depends on those before: in a block, in the header of a launch, behind a line that may go
on. Which rows begin another launch is decided as the parser does it, for all rows of a stretch; the
first one that might is left to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np
import polars as pl

from ingest.log_format import LogFormat
from ingest.parse import COPIES, SKEW, Launch, Parsed, Parser, Progress
from ingest.reader import LONGEST_LINE_BYTES, Chunk, NumberedLine, text_of
from ingest.rows import FORM, SCHEMA, Batch
from ingest.scan import Block, Fit, Ints, Scan, Shapes, decode

MICROSECOND: Final = 1_000_000
UNSURE, STEP, OTHER = 0, 1, 2
WORTH_LEARNING: Final = 64 * 1024
"""Bytes still to come in a block: to learn a shape costs as much as to read 200 lines."""
FEW: Final = 8
"""Lines that are read one by one rather than together: that is quicker."""


def parse(parser: Parser, chunks: Iterable[Chunk]) -> Parsed:
    """All lines of `chunks`; comes to the same as `parser.parse` of each line."""
    if parser.primary.join is not None:
        return parser.parse(line for chunk in chunks for line in chunk.lines())
    reader = _Reader(parser, _shapes_of((parser.primary, *parser.companions)))
    for chunk in chunks:
        if chunk.cut or not chunk.ended:
            for line in chunk.lines():
                parser.read(line)
        else:
            reader.read(Block(chunk.number, chunk.data))
    return parser.done()


_SHAPES: dict[tuple[int, ...], tuple[tuple[LogFormat, ...], Shapes]] = {}


def _shapes_of(formats: tuple[LogFormat, ...]) -> Shapes:
    """One collection for all files of these formats."""
    key = tuple(map(id, formats))
    if key not in _SHAPES:
        _SHAPES[key] = formats, Shapes()  # with the formats, so that their ids stay theirs
    return _SHAPES[key][1]


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is known of a block's lines before they are read.

    unsure: lines for the parser; others: lines that no pattern knows, with their `kinds`; rows: of
    step lines, with the `places` of their lines in the block, `forms` (indices), `steps` and
    `stamps` [us; none where a row has none]; shapes: index of each row's.
    """

    unsure: list[int]
    others: Ints
    kinds: Ints
    frame: pl.DataFrame
    places: Ints
    forms: Ints
    shapes: Ints
    steps: Ints
    stamps: Ints | None


class _Reader:
    """Reads blocks of one source."""

    def __init__(self, parser: Parser, shapes: Shapes) -> None:
        self.parser, self.shapes = parser, shapes
        self.fits: list[Fit] = []
        self.form_list: tuple[Any, ...] = tuple(parser.primary.steps)
        self.form_index = {id(form): index for index, form in enumerate(self.form_list)}

    def read(self, block: Block) -> None:
        """All lines of a block; anew from where a shape was learned."""
        at: int | None = 0
        while at is not None and at < len(block):
            block = block.behind(at)
            at = self._walk(block, self._plan(block))

    def _plan(self, block: Block) -> _Plan:
        scan = Scan(block, self.shapes)
        self.fits = scan.fits
        verdict = np.zeros(len(block), np.int8)
        frames, places, forms, shapes = [], [], [], []
        others, kinds = [], []
        for index, found in enumerate(scan.fits):
            if found.shape.kind is not None:
                verdict[found.lines] = OTHER
                others.append(found.lines)
                kinds.append(np.full(len(found.lines), index))
                continue
            rows = decode(block, found)
            verdict[rows.lines] = STEP
            frames.append(_frame(found.shape.fields, rows.columns, len(rows.lines)))
            places.append(rows.lines)
            forms.append(np.full(len(rows.lines), self.form_index[id(found.shape.form)]))
            shapes.append(np.full(len(rows.lines), index))
        place = _joined(places)
        order = np.argsort(place, kind="stable")
        place, form = place[order], _joined(forms)[order]
        frame = pl.concat(frames, how="diagonal")[order] if frames else pl.DataFrame()
        steps, stamps = np.empty(0, np.int64), None
        if frames:
            line = pl.Series("line", place + block.number)
            frame = frame.with_columns(line, pl.Series(FORM, form.astype(np.int8)))
            steps = frame["step"].to_numpy()
            if "logged_at" in frame.columns and not frame["logged_at"].null_count():
                stamps = frame["logged_at"].to_physical().to_numpy()
        other, kind = _joined(others), _joined(kinds)
        order = np.argsort(other, kind="stable")
        return _Plan(
            unsure=np.flatnonzero(verdict == UNSURE).tolist(),
            others=other[order],
            kinds=kind[order],
            frame=frame,
            places=place,
            forms=form,
            shapes=_joined(shapes)[np.argsort(_joined(places), kind="stable")],
            steps=steps,
            stamps=stamps,
        )

    def _walk(self, block: Block, plan: _Plan) -> int | None:
        """Read the lines in their order; the next line, where a shape was learned before it."""
        at = 0
        for stop in (*plan.unsure, len(block)):
            while at < stop:
                taken = self._together(block, plan, at, stop)
                if not taken:
                    self._one(block, at)
                at += taken or 1
            if stop < len(block):
                at = stop + 1
                worth = len(block.data) - block.starts[stop] > WORTH_LEARNING
                if self._one(block, stop) and worth and self._learned(block.raw(stop)):
                    return at
        return None

    def _one(self, block: Block, at: int) -> bool:
        """Read a line by itself; whether it is a step, or no pattern knows it."""
        out, raw = self.parser.out, block.raw(at)
        taken = out.step_lines + out.other_lines
        text = text_of(raw[:LONGEST_LINE_BYTES])
        cut = len(raw) > LONGEST_LINE_BYTES
        self.parser.read(NumberedLine(block.number + at, text, cut))
        return not cut and out.step_lines + out.other_lines > taken

    def _learned(self, raw: bytes) -> bool:
        """Whether a line that fitted no shape has become one."""
        return self.shapes.see(raw, self.parser.sure) is not None

    def _together(self, block: Block, plan: _Plan, at: int, stop: int) -> int:
        """How many lines from `at` on were taken together; 0 where the next has to be read."""
        parser = self.parser
        if stop - at < FEW or not parser.settled:
            return 0
        launch = parser.out.launches[-1]
        first, last = np.searchsorted(plan.places, (at, stop)).tolist()
        sure = self._sure_rows(launch, plan, first, last)
        if sure < last:
            stop = int(plan.places[sure])
        self._take_others(block, plan, at, stop)
        if sure > first:
            self._take_rows(block, plan, first, sure)
        return stop - at

    def _take_others(self, block: Block, plan: _Plan, at: int, stop: int) -> None:
        first, last = np.searchsorted(plan.others, (at, stop)).tolist()
        if first == last:
            return
        kinds, where, counts = np.unique(
            plan.kinds[first:last], return_index=True, return_counts=True
        )
        for place, index, count in sorted(zip(where.tolist(), kinds, counts, strict=True)):
            line = int(plan.others[first + place])
            kind = self.fits[index].shape.kind
            assert kind is not None  # noqa: S101 - of others
            example = self.parser.clean(block.raw(line))
            self.parser.add_others(kind, int(count), block.number + line, example)

    def _sure_rows(self, launch: Launch, plan: _Plan, first: int, last: int) -> int:
        """The rows up to this one are of the launch for certain, and say no new facts."""
        sure = last
        forms = plan.forms[first:last]
        for form in np.unique(forms).tolist():
            mine = np.flatnonzero(forms == form) + first
            progress = launch.known_progress(self.form_list[form])
            count = _of_one_process(launch, progress, plan, mine)
            if count < len(mine):
                sure = min(sure, int(mine[count]))
        for shape in np.unique(plan.shapes[first:last]).tolist():
            says = self.fits[shape].shape.fields["says"]
            if any(launch.said.get(name) != value for name, value in says.items()):
                sure = min(sure, first + int(np.argmax(plan.shapes[first:last] == shape)))
        return sure

    def _take_rows(self, block: Block, plan: _Plan, first: int, last: int) -> None:
        forms = plan.forms[first:last]
        for form in np.unique(forms).tolist():
            mine = np.flatnonzero(forms == form) + first
            shape = self.fits[int(plan.shapes[mine[-1]])].shape
            text = self.parser.clean(block.raw(int(plan.places[mine[-1]])))
            self.parser.printed_last(shape.form, shape.printed, text)
            _advance(
                self.parser.out.launches[-1].known_progress(shape.form),
                plan.steps[mine],
                None if plan.stamps is None else plan.stamps[mine],
            )
        text = self.parser.clean(block.raw(int(plan.places[last - 1])))
        self.parser.add_rows(Batch(plan.frame[first:last], self.form_list), text)


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def _frame(fields: Mapping[str, Any], columns: dict[str, Any], height: int) -> pl.DataFrame:
    """Columns of `steps` that the rows fill; those that are null in all are left out."""
    named: dict[str, pl.Series] = {}
    for name, kind in SCHEMA.items():
        if name in columns:
            named[name] = pl.Series(name, columns[name]).cast(kind)
        elif fields.get(name) is not None:
            named[name] = pl.Series(name, [fields[name]], kind).new_from_index(0, height)
    return pl.DataFrame(named)


def _of_one_process(launch: Launch, progress: Progress | None, plan: _Plan, rows: Ints) -> int:
    """How many of the rows (of one form) are of the launch's process for certain.

    As `ingest.parse._starts_again` tells it of a row: by its stamp, where all have one, else by
    steps that no line of the launch has printed before.
    """
    if progress is None or progress.top_clock is not None:
        return 0
    steps = plan.steps[rows]
    tops = np.maximum.accumulate(np.concatenate([[progress.top_step], steps]))[:-1]
    higher = steps > tops
    if plan.stamps is None:
        if not launch.one_form or progress.top_stamp is not None:
            return 0
        odd = ~higher
    else:
        if progress.top_stamp is None or launch.started_at is None:
            return 0
        stamps = plan.stamps[rows]
        began = _microseconds(launch.started_at)
        at = np.maximum.accumulate(np.where(higher, np.arange(len(rows)), -1))
        before = np.concatenate([[-1], at[:-1]])
        top = np.where(before < 0, _microseconds(progress.top_stamp), stamps[before])
        skew, copies = SKEW.total_seconds(), COPIES.total_seconds()
        behind = (stamps > top + skew * MICROSECOND) | (stamps < began - copies * MICROSECOND)
        twice = (steps == tops) & (np.abs(stamps - top) > copies * MICROSECOND)
        odd = ((steps < tops) & behind) | twice
    return int(np.argmax(odd)) if odd.any() else len(rows)


def _advance(progress: Progress | None, steps: Ints, stamps: Ints | None) -> None:
    """The highest step of the rows, and when it was first printed."""
    assert progress is not None  # noqa: S101 - of a form that has rows
    place = int(np.argmax(steps))
    if steps[place] > progress.top_step:
        progress.top_step = int(steps[place])
        stamp = None if stamps is None else np.datetime64(int(stamps[place]), "us").item()
        progress.top_stamp = stamp


def _microseconds(stamp: datetime) -> int:
    return int(np.datetime64(stamp, "us").astype(np.int64))
