"""A source read many lines at once: what `ingest.parse` makes of each, without asking it of each.

Of a block, steps are taken by their shapes (ingest.scan), and lines that hold no literal of any
pattern (ingest.prefilter) are counted as others, all at once. The rest is read by its regexes, line
by line; what each says on its own is taken with the rest of its stretch. A stretch ends where a
line means something by those before it: a header, a block of lines, a line that may go on. Such
lines go to the parser. Which rows begin another launch is decided as the parser does it, for all
rows of a stretch; the first one that might is left to it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa

from ingest.log_format import LogFormat, StepLine
from ingest.other_lines import kinds_of
from ingest.parse import COPIES, QUOTED_CHARACTERS, SKEW, Launch, Parsed, Parser, Progress
from ingest.reader import LONGEST_LINE_BYTES, Chunk, NumberedLine, text_of
from ingest.rows import FORM, SCHEMA, framed
from ingest.scan import Aside, Block, Ints, Other, Shape, Shapes, Step, decode, fit

SECOND: Final = 1_000_000
"""In microseconds, as stamps are."""
NO_STAMP: Final = -(2**63)
NO_EPOCH: Final = -1
WORTH_LEARNING: Final = 64 * 1024
"""Bytes still to come in a block: to learn a shape costs as much as to read 200 lines."""
VISIBLE: Final = "[!-~]"
"""In a line that is surely not blank."""
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


class _Trait(NamedTuple):
    """What rows have in common.

    form: place of their StepLine in the format; printed: their fields; says: facts that they print.
    """

    form: int
    printed: frozenset[str]
    says: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is known of a block's lines before they are read in their order.

    unsure: lines for the parser. asides: lines of events. idle: of nothing. others: that no
    pattern knows, with the number of the kind of each. frame: rows of step lines, with the places
    of their lines in the block, the numbers of their traits, their forms, steps and stamps [us, or
    NO_STAMP].
    """

    unsure: list[int]
    asides: list[tuple[int, Aside]]
    idle: Ints
    others: Ints
    other_kinds: Ints
    kinds: list[str]
    frame: pl.DataFrame
    places: Ints
    row_traits: Ints
    traits: list[_Trait]
    forms: Ints
    epochs: Ints
    steps: Ints
    stamps: Ints


class _Planner:
    """Finds out of a block's lines what they say whatever was read before them."""

    def __init__(self, block: Block, shapes: Shapes, parser: Parser) -> None:
        self.block, self.shapes, self.parser = block, shapes, parser
        self.free = np.ones(len(block), bool)
        self.idle: list[int] = []
        self.others, self.other_kinds = np.empty(0, np.int64), np.empty(0, np.int64)
        self.kinds: dict[str, int] = {}
        self.others_by_regex: list[tuple[int, int]] = []
        self.asides: list[tuple[int, Aside]] = []
        self.rows: list[tuple[Ints, Ints, pl.DataFrame]] = []
        self.by_regex: list[tuple[int, int, Mapping[str, Any]]] = []
        self.traits: dict[_Trait, int] = {}
        self.forms = {id(form): index for index, form in enumerate(parser.primary.steps)}

    def plan(self) -> _Plan:
        """Steps by their shapes, what no pattern can match by its literals, the rest by regexes.

        A line of a step that is read by its regex may become a shape, for those behind it.
        """
        for shape in self.shapes.known:
            self._fitted(shape, np.flatnonzero(self.free))
        self._without_literals(np.flatnonzero(self.free))
        for line in np.flatnonzero(self.free).tolist():
            if self.free[line]:
                self._by_regex(line)
        places, traits, frame = self._gathered()
        form = np.array([trait.form for trait in self.traits], np.int8)[traits]
        frame = frame.with_columns(
            pl.Series("line", places + self.block.number, pl.Int64), pl.Series(FORM, form, pl.Int8)
        )
        if any(line.counts for line in self.parser.primary.steps):
            texts = pl.Series("text", self._texts(places, form.astype(np.int64)), pl.String)
            frame = frame.with_columns(texts)
        alone = np.array(self.others_by_regex, np.int64).reshape(-1, 2)
        others = np.concatenate([self.others, alone[:, 0]])
        kinds = np.concatenate([self.other_kinds, alone[:, 1]])
        order = np.argsort(others)
        return _Plan(
            unsure=np.flatnonzero(self.free).tolist(),
            asides=self.asides,
            idle=np.sort(np.array(self.idle, np.int64)),
            others=others[order],
            other_kinds=kinds[order],
            kinds=list(self.kinds),
            frame=frame,
            places=places,
            row_traits=traits,
            traits=list(self.traits),
            forms=form.astype(np.int64),
            epochs=frame["epoch"].fill_null(NO_EPOCH).to_numpy(),
            steps=frame["step"].to_numpy(),
            stamps=frame["logged_at"].to_physical().fill_null(NO_STAMP).to_numpy(),
        )

    def _fitted(self, shape: Shape, lines: Ints) -> None:
        """Take those of `lines` that fit a shape."""
        found = fit(self.block, shape, lines)
        if len(found.lines):
            rows = decode(self.block, found)
            trait = self._trait(shape.form, shape.printed, shape.fields)
            frame = _frame(shape.fields, rows.columns, len(rows.lines))
            self.free[rows.lines] = False
            self.rows.append((rows.lines, np.full(len(rows.lines), trait), frame))

    def _without_literals(self, lines: Ints) -> None:
        """Take those of `lines` that are blank, or hold no literal of any pattern."""
        lines = lines[self.block.lengths[lines] <= LONGEST_LINE_BYTES]
        texts = self.parser.cleaner.texts(self.block.lines(lines))
        bare = np.flatnonzero(~texts.str.contains(VISIBLE).to_numpy())
        blank = bare[[not text.strip() for text in texts.gather(bare)]]
        other = ~self.parser.sieve.may_match(texts)
        other[blank] = False
        kinds = kinds_of(texts.filter(other)).to_arrow().cast(pa.large_string())
        numbered = kinds.dictionary_encode()
        self.idle, self.others = lines[blank].tolist(), lines[other]
        self.other_kinds = numbered.indices.to_numpy().astype(np.int64)
        self.kinds = {kind: number for number, kind in enumerate(numbered.dictionary.to_pylist())}
        self.free[self.idle] = self.free[self.others] = False

    def _by_regex(self, line: int) -> None:
        """Take a line that fits no shape; a shape that it becomes takes those behind it too."""
        raw = self.block.raw(line)
        if len(raw) > LONGEST_LINE_BYTES:
            return
        found = self.parser.sure(raw)
        if found is None:
            return
        self.free[line] = False
        if isinstance(found, Step):
            trait = self._trait(found.form, found.printed, found.row)
            self.by_regex.append((line, trait, found.row))
        elif isinstance(found, Aside):
            self.asides.append((line, found))
        elif isinstance(found, Other):
            kind = self.kinds.setdefault(found.kind, len(self.kinds))
            self.others_by_regex.append((line, kind))
        else:
            self.idle.append(line)
        left = len(self.block.data) - self.block.starts[line]
        if not isinstance(found, Step) or left < WORTH_LEARNING:
            return
        shape = self.shapes.see(raw, self.parser.sure)
        if shape is not None:
            self._fitted(shape, np.flatnonzero(self.free))

    def _trait(self, form: StepLine, printed: frozenset[str], row: Mapping[str, Any]) -> int:
        trait = _Trait(self.forms[id(form)], printed, tuple(row["says"].items()))
        return self.traits.setdefault(trait, len(self.traits))

    def _gathered(self) -> tuple[Ints, Ints, pl.DataFrame]:
        """All rows in the order of their lines: these, their traits, and what they say."""
        if self.by_regex:
            lines, its_traits, rows = zip(*self.by_regex, strict=True)
            self.rows.append(
                (np.array(lines), np.array(its_traits), framed(rows, SCHEMA, said_only=True))
            )
        places = _joined([lines for lines, _, _ in self.rows])
        traits = _joined([traits for _, traits, _ in self.rows])
        order = np.argsort(places)
        empty = pl.DataFrame(schema={name: SCHEMA[name] for name in ("step", "epoch", "logged_at")})
        frame = pl.concat([empty, *(frame for _, _, frame in self.rows)], how="diagonal")
        return places[order], traits[order], frame[order] if len(order) else frame

    def _texts(self, places: Ints, forms: Ints) -> list[str | None]:
        """The lines of rows with a counter of their own: they may turn out to be events."""
        counts = [bool(form.counts) for form in self.parser.primary.steps]
        text = self.parser.cleaner.text
        return [
            text(self.block.raw(place))[:QUOTED_CHARACTERS] if counts[form] else None
            for place, form in zip(places.tolist(), forms.tolist(), strict=True)
        ]


class _Reader:
    """Reads blocks of one source in the order of their lines."""

    def __init__(self, parser: Parser, shapes: Shapes) -> None:
        self.parser, self.shapes = parser, shapes
        self.forms: tuple[StepLine, ...] = tuple(parser.primary.steps)

    def read(self, block: Block) -> None:
        """All lines of a block: those that are unsure, and what lies between them."""
        at = 0
        while at < len(block) and not self.parser.settled:  # in a header nothing can be together
            self._one(block, at)
            at += 1
        if at == len(block):
            return
        block = block.behind(at)
        plan, at = _Planner(block, self.shapes, self.parser).plan(), 0
        for stop in (*plan.unsure, len(block)):
            while at < stop:
                taken = self._together(block, plan, at, stop)
                if not taken:
                    self._one(block, at)
                at += taken or 1
            if stop < len(block):
                self._one(block, stop)
                at = stop + 1

    def _one(self, block: Block, at: int) -> None:
        """Read a line by itself."""
        raw = block.raw(at)
        text, cut = text_of(raw[:LONGEST_LINE_BYTES]), len(raw) > LONGEST_LINE_BYTES
        self.parser.read(NumberedLine(block.number + at, text, cut))

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
        idle, behind = np.searchsorted(plan.idle, (at, stop)).tolist()
        parser.add_idle(behind - idle)
        self._take_others(block, plan, at, stop)
        begin, end = (bisect_left(plan.asides, place, key=itemgetter(0)) for place in (at, stop))
        asides = plan.asides[begin:end]
        if sure > first:
            last_row = int(plan.places[sure - 1])
            before = bisect_left(asides, last_row, key=itemgetter(0))
            self._take_asides(block, asides[:before])
            self._take_rows(block, plan, first, sure)
            asides = asides[before:]
        self._take_asides(block, asides)
        return stop - at

    def _take_asides(self, block: Block, asides: Iterable[tuple[int, Aside]]) -> None:
        for place, aside in asides:
            self.parser.add_aside(block.number + place, aside)

    def _take_others(self, block: Block, plan: _Plan, at: int, stop: int) -> None:
        first, last = np.searchsorted(plan.others, (at, stop)).tolist()
        if first == last:
            return
        kinds = plan.other_kinds[first:last]
        counts, firsts = np.bincount(kinds), np.empty(len(plan.kinds), np.int64)
        firsts[kinds[::-1]] = plan.others[first:last][::-1]  # the last one that is set stays
        there = np.flatnonzero(counts)
        there = there[np.argsort(firsts[there])]
        numbers = (firsts[there] + block.number).tolist()
        told = zip(
            (plan.kinds[kind] for kind in there), counts[there].tolist(), numbers, strict=True
        )
        self.parser.add_others(last - first, told, partial(self._text_of, block))

    def _text_of(self, block: Block, number: int) -> str:
        """Of a line of that number in the file."""
        return self._text(block, number - block.number)

    def _text(self, block: Block, line: int) -> str:
        return self.parser.cleaner.text(block.raw(line))

    def _sure_rows(self, launch: Launch, plan: _Plan, first: int, last: int) -> int:
        """The rows up to this one are of the launch for certain, and say no new facts."""
        sure = last
        forms = plan.forms[first:last]
        for form in np.unique(forms).tolist():
            mine = np.flatnonzero(forms == form) + first
            other = mine[plan.epochs[mine] != plan.epochs[mine[0]]]
            if self.forms[form].counts and len(other):  # the counter may begin anew with an epoch
                sure = min(sure, int(other[0]))
                mine = mine[mine < other[0]]
            progress = self._progress(launch, form, plan, int(mine[0]))
            count = _of_one_process(launch, progress, plan, mine)
            if count < len(mine):
                sure = min(sure, int(mine[count]))
        traits = plan.row_traits[first:last]
        for trait in np.unique(traits).tolist():
            if any(launch.said.get(name) != value for name, value in plan.traits[trait].says):
                sure = min(sure, first + int(np.argmax(traits == trait)))
        return sure

    def _progress(self, launch: Launch, form: int, plan: _Plan, row: int) -> Progress | None:
        epoch = int(plan.epochs[row])
        return launch.known_progress(self.forms[form], None if epoch == NO_EPOCH else epoch)

    def _take_rows(self, block: Block, plan: _Plan, first: int, last: int) -> None:
        forms = plan.forms[first:last]
        for form in np.unique(forms).tolist():
            mine = np.flatnonzero(forms == form) + first
            trait = plan.traits[plan.row_traits[mine[-1]]]
            text = self._text(block, int(plan.places[mine[-1]]))
            self.parser.printed_last(self.forms[form], trait.printed, text)
            _advance(
                self._progress(self.parser.out.launches[-1], form, plan, int(mine[-1])),
                plan.steps[mine],
                plan.stamps[mine],
            )
        text = self._text(block, int(plan.places[last - 1]))
        self.parser.add_rows(plan.frame[first:last], text)


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

    As `ingest.parse._starts_again` tells it of a row: by its stamp, else by steps that no line of
    the launch has printed before. Behind the first rows that all have stamps, or all have none, it
    is to be asked anew.
    """
    if progress is None or progress.top_clock is not None:
        return 0
    bare = plan.stamps[rows] == NO_STAMP
    count = int(np.argmax(bare != bare[0])) or len(rows)
    steps, stamps = plan.steps[rows][:count], plan.stamps[rows][:count]
    tops = np.maximum.accumulate(np.concatenate([[progress.top_step], steps]))[:-1]
    higher = steps > tops
    if bare[0]:
        odd = ~higher if launch.one_form else np.ones(count, bool)
    elif progress.top_stamp is None or launch.started_at is None:
        return 0
    else:
        at = np.maximum.accumulate(np.where(higher, np.arange(count), -1))
        before = np.concatenate([[-1], at[:-1]])
        top = np.where(before < 0, _microseconds(progress.top_stamp), stamps[before])
        skew, copies = SKEW.total_seconds() * SECOND, COPIES.total_seconds() * SECOND
        began = _microseconds(launch.started_at)
        behind = (stamps > top + skew) | (stamps < began - copies)
        twice = (steps == tops) & (np.abs(stamps - top) > copies)
        odd = ((steps < tops) & behind) | twice
    return int(np.argmax(odd)) if odd.any() else count


def _advance(progress: Progress | None, steps: Ints, stamps: Ints) -> None:
    """The highest step of the rows, and when it was first printed."""
    assert progress is not None  # noqa: S101 - of a form that has rows
    place = int(np.argmax(steps))
    if steps[place] > progress.top_step:
        progress.top_step = int(steps[place])
        bare = stamps[place] == NO_STAMP
        progress.top_stamp = None if bare else np.datetime64(int(stamps[place]), "us").item()


def _microseconds(stamp: datetime) -> int:
    return int(np.datetime64(stamp, "us").astype(np.int64))
