"""Learning of a line's shape, by reading the line with other digits."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice, product
from operator import add, itemgetter
from typing import Any, Final, NamedTuple

from ..parse.rank_and_time import COMPACT_DATE_DIGITS, COMPACT_STAMP_RUNS
from .line_block import MAX_SHAPE_LINE_BYTES
from .number_decoding import MAX_INTEGER_DIGITS
from .readings import EventReading, ReadLine, RowReading, StepReading
from .shape_validation import is_identical, is_trustworthy
from .shapes import (
    DIGIT_RUN,
    MAX_DECIMALS,
    LineShape,
    ShapeNumber,
    ShapeText,
    ShapeValue,
    join_into_stretches,
    split_into_pieces,
)
from .timestamps import EPOCH_SECONDS_DIGITS, MAX_EPOCH_RUNS, YEARLESS_STAMP_RUNS

SHORT_NUMBER_DIGITS: Final = 9
"""Width to try for numbers that read differently with the maximum width."""
PRINTED_NUMBER: Final = re.compile(
    rb"[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?"
)
ASCII_DIGITS: Final = b"0123456789"
DIGITS_TO_ZEROS: Final = bytes.maketrans(ASCII_DIGITS, b"0" * 10)
CANDIDATE_FACTORS: Final = (0.01, 0.001, 1e-6, 1000.0, 1e6, 1e9, 1024.0, 1024.0**2, 1024.0**3)
"""Factors from printed units to units of columns."""
NumberEffects = tuple[list[ShapeValue], list[tuple[str, int, int]]]
"""Columns filled by a number, and texts that contain it (column, begin, end)."""


class _Change(NamedTuple):
    """Other bytes of a line from `begin` to `end`.

    The bytes are those of a number, or of blanks before the number.
    """

    number: ShapeNumber
    begin: int
    end: int
    text: bytes


ValidChanges = Callable[[Sequence[_Change]], set[ShapeNumber]]
"""Function that returns the numbers whose changes leave the line valid."""


def learn_shape(
    raw: bytes, read_line: ReadLine, rng: random.Random, spelled: Iterable[bytes] = ()
) -> LineShape | None:
    """Return the shape of a line; None if lines of the kind do not read alike.

    spelled: texts of patterns that contain numbers, as few patterns do
    """
    if len(raw) > MAX_SHAPE_LINE_BYTES or not raw.isascii() or b"\0" in raw:
        return None
    base = read_line(raw)
    if not isinstance(base, StepReading | EventReading):
        return None
    learner = _Learner(raw, base, read_line, rng)
    shape = learner.shape()
    if shape is None or not all(map(learner.says_the_same, spelled)):
        return None
    return shape if is_trustworthy(shape, raw, read_line, rng) else None


def _runs(raw: bytes) -> list[tuple[int, int]]:
    return [match.span() for match in DIGIT_RUN.finditer(raw)]


class _Learner:
    """Experiment with a line: other digits show the effects of its digit runs."""

    def __init__(self, raw: bytes, base: RowReading, read: ReadLine, rng: random.Random) -> None:
        self.raw, self.base, self.read, self.rng = raw, base, read, rng
        self.runs = _runs(raw)
        self.place = {begin: index for index, (begin, _) in enumerate(self.runs)}
        self.effects: dict[ShapeNumber, NumberEffects] = {}
        self.widths: dict[int, tuple[int, int]] = {}
        self.padded: set[int] = set()
        self.bare: dict[int, bool] = {}
        self.nonzero: list[ShapeNumber] = []

    def shape(self) -> LineShape | None:
        """Return the shape. Runs without an effect are constant."""
        stamp = self._stamp()
        if (self.base.row["logged_at"] is None) != (not stamp):
            return None
        hidden = bytearray(self.raw)
        for run in stamp:
            begin, end = self.runs[run]
            hidden[begin:end] = b"x" * (end - begin)
            self.widths[run] = end - begin, end - begin
        if len(stamp) == MAX_EPOCH_RUNS:
            seconds = ShapeNumber((stamp[0],), stamp[1], None, 1, negative=False)
            self._find_widths({seconds: stamp[1]}, self._of_its_kind, MAX_DECIMALS)
            self._find_gaps({}, {seconds: stamp[1]}, self._of_its_kind)
        matches = PRINTED_NUMBER.finditer(bytes(hidden))
        self._find([self._printed(match) for match in matches if match.start() in self.place])
        values = [value for values, _ in self.effects.values() for value in values]
        texts = self._texts()
        moving = {value.column for value in values} | {text.column for text in texts}
        moving |= {"logged_at"} if stamp else set()
        pieces = split_into_pieces(self.raw, self.runs, self.widths, self.padded)
        return LineShape(
            pieces=pieces,
            widths=self.widths,
            stretches=join_into_stretches(pieces, self.widths),
            bare=self.bare,
            nonzero=tuple(self.nonzero),
            reading=type(self.base),
            form=self.base.form,
            printed=self.base.printed,
            fields={n: value for n, value in self.base.row.items() if n not in moving},
            values=tuple(values),
            texts=tuple(texts),
            stamp=stamp,
        )

    def says_the_same(self, text: bytes) -> bool:
        """Return whether the shape stays valid with numbers from a pattern's text.

        The text may begin or end within a number.
        """
        like = DIGIT_RUN.sub(rb"[0-9]+", re.escape(text))
        more = (b"7" * text[:1].isdigit(), b"7" * text[-1:].isdigit())
        longer = {
            tuple(DIGIT_RUN.findall(before + text + after))
            for before, after in product(*((b"", x) for x in more))
        }
        for match in re.finditer(like, self.raw):
            runs = [self.place[match.start() + m.start()] for m in DIGIT_RUN.finditer(match[0])]
            if not all(
                self._says_the_same(dict(zip(runs, digits, strict=True))) for digits in longer
            ):
                return False
        return True

    def _says_the_same(self, digits_of_run: Mapping[int, bytes]) -> bool:
        """Return whether the line reads as predicted with other digits for some runs.

        True also if no line of this shape has the digits.

        digits_of_run: the digits, by run
        """
        of_run = {run: n for n in self.effects for run in range(n.first, n.last + 1)}
        changes = []
        for run, digits in digits_of_run.items():
            begin, end = self.runs[run]
            least, most = self.widths.get(run, (0, 0))
            if digits != self.raw[begin:end]:
                if run not in of_run or not least <= len(digits) <= most:
                    return True
                changes.append(_Change(of_run[run], begin, end, digits))
        joined = _joined(self.raw, changes)
        zeros = {
            change.number for change in joined if float(self._after(change).replace(",", "")) == 0
        }
        return not zeros.isdisjoint(self.nonzero) or self._hold(joined)

    def _read_changed(self, raw: bytes) -> RowReading | None:
        """Return the reading of a changed line; None if another kind of line."""
        reading = self.read(raw)
        if not isinstance(reading, type(self.base)) or reading.form is not self.base.form:
            return None
        alike = reading.printed == self.base.printed and reading.row.keys() == self.base.row.keys()
        return reading if alike else None

    def _stamp(self) -> tuple[int, ...]:
        """Return the runs of the time stamp; empty if they are not a date and a time."""
        runs = self._dating(range(len(self.runs))) if self.base.row["logged_at"] else []
        in_a_row = runs == list(range(runs[0], runs[0] + len(runs))) if runs else False
        width = self.runs[runs[0]][1] - self.runs[runs[0]][0] if runs else 0
        counts = len(runs) <= MAX_EPOCH_RUNS and width in (
            EPOCH_SECONDS_DIGITS,
            EPOCH_SECONDS_DIGITS + 3,
            EPOCH_SECONDS_DIGITS + 6,
        )
        compact = len(runs) == COMPACT_STAMP_RUNS and width == COMPACT_DATE_DIGITS
        dates = compact or YEARLESS_STAMP_RUNS <= len(runs) <= YEARLESS_STAMP_RUNS + 2
        return tuple(runs) if in_a_row and (counts or dates) else ()

    def _dating(self, runs: range) -> list[int]:
        """Return the runs that belong to the time stamp.

        Most runs do not: all are changed at once, and in halves if the stamp changes. Three nudges
        show that no run does: a value more or less by 1 gives another stamp or none, and for a part
        finer than microseconds the value 1 does.
        """
        before, rows = self.base.row["logged_at"], map(self._read_changed, self._nudged(runs))
        stamps = (reading and reading.row["logged_at"] for reading in rows)
        changed = next((stamp for stamp in islice(stamps, 3) if stamp != before), before)
        if changed == before:
            return []
        if len(runs) == 1:
            others = chain([changed], stamps)
            return [*runs] if any(x not in (None, before) for x in others) else []
        middle = len(runs) // 2
        return self._dating(runs[:middle]) + self._dating(runs[middle:])

    def _nudged(self, runs: range) -> Iterator[bytes]:
        """Yield the line with other numbers of the same width for some runs.

        1 is a valid day, month and hour. Values less or more by 1 may be invalid: the month before
        may have fewer than 31 days, and a year next to a leap year has no 29 February.
        """
        for nudge in (partial(add, -1), partial(add, 1), lambda _: 1, partial(add, 4)):
            out, done = [], 0
            for begin, end in (self.runs[run] for run in runs):
                value = int(self.raw[begin:end])
                other = nudge(value) if nudge(value) > 0 else value
                out += [self.raw[done:begin], str(other).zfill(end - begin).encode()]
                done = end
            changed = b"".join((*out, self.raw[done:]))
            if changed != self.raw:
                yield changed

    def _printed(self, match: re.Match[bytes]) -> ShapeNumber:
        """Return a number with the indices of its runs."""
        parts = re.fullmatch(rb"([\d,]+)(?:\.(\d+))?(?:[eE]([-+]?)(\d+))?", match[0])
        assert parts is not None  # noqa: S101 - PRINTED_NUMBER is made so
        begin = match.start()
        before = self.raw[max(0, begin - 2) : begin]
        return ShapeNumber(
            whole=tuple(self.place[begin + run.start()] for run in DIGIT_RUN.finditer(parts[1])),
            decimals=self.place[begin + parts.start(2)] if parts[2] else None,
            exponent=self.place[begin + parts.start(4)] if parts[4] else None,
            exponent_sign=-1 if parts[3] == b"-" else 1,
            negative=before.endswith(b"-") and not before[:-1].isalnum(),
        )

    def _find(self, numbers: Iterable[ShapeNumber]) -> None:
        """Find the effects of numbers and how they may be printed.

        Other digits are constant, also because digits without an effect may be half of a stamp.
        """
        for number in numbers:
            effects = self._effects_of(self._with_others(number))
            if effects is not None and any(effects):
                self.effects[number] = effects
        again = self._holding([self._with_others(number) for number in self.effects])
        self.effects = {n: effects for n, effects in self.effects.items() if n in again}
        for number in self.effects:
            for run in range(number.first, number.last + 1):
                self.widths[run] = (self._width(run),) * 2
        plain = {n: n.first for n in self.effects if len(n.whole) == 1}
        self._find_widths(plain, self._holding)
        self._find_bare(plain)
        decimals = {n: n.decimals for n in self.effects if n.decimals is not None}
        self._find_widths(decimals, self._holding, MAX_DECIMALS)
        self._find_gaps(plain, decimals, self._holding)
        self._find_nonzero()
        self._find_padded()

    def _span(self, number: ShapeNumber) -> tuple[int, int]:
        """Return begin and end of a number."""
        return self.runs[number.first][0], self.runs[number.last][1]

    def _tail(self, number: ShapeNumber) -> int:
        """Return the end of a number without the exponent, which could become infinite."""
        return self._span(number)[1] if number.exponent is None else self.runs[number.exponent][0]

    def _width(self, run: int) -> int:
        begin, end = self.runs[run]
        return end - begin

    def _with_others(self, number: ShapeNumber) -> _Change:
        """Return a change of all digits of a number, the first not to 0."""
        begin, end = self._span(number)[0], self._tail(number)
        return _Change(number, begin, end, _other_digits(self.raw[begin:end], self.rng))

    def _with(self, changes: Iterable[_Change]) -> RowReading | None:
        """Return the reading with changes, which must not overlap; None if another kind."""
        out, done = [], 0
        for _, begin, end, text in sorted(changes, key=itemgetter(1)):
            out += [self.raw[done:begin], text]
            done = end
        return self._read_changed(b"".join((*out, self.raw[done:])))

    def _after(self, change: _Change) -> str:
        """Return the printed number after a change, with sign; blanks change nothing."""
        begin, end = self._span(change.number)
        if change.text.strip():
            text = self.raw[begin : change.begin] + change.text + self.raw[change.end : end]
        else:
            text = self.raw[begin:end]
        return "-" * change.number.negative + text.decode()

    def _holding(self, changes: Sequence[_Change]) -> set[ShapeNumber]:
        """Return the numbers whose changes have only the known effects.

        Most have: all are changed at once, and in halves if the line reads differently.
        """
        if self._hold(changes):
            return {change.number for change in changes}
        if len(changes) == 1:
            return set()
        middle = len(changes) // 2
        return self._holding(changes[:middle]) | self._holding(changes[middle:])

    def _hold(self, changes: Sequence[_Change]) -> bool:
        """Return whether all changes together have only the known effects."""
        if not changes:
            return True
        reading, predicted = self._with(changes), self._row_with(changes)
        return reading is not None and all(
            is_identical(reading.row[name], value) for name, value in predicted.items()
        )

    def _of_its_kind(self, changes: Sequence[_Change]) -> set[ShapeNumber]:
        """Return the numbers whose changes keep the kind of the line, with any effect."""
        return {change.number for change in changes if self._with([change]) is not None}

    def _row_with(self, changes: Sequence[_Change]) -> dict[str, Any]:
        """Return the row predicted for changes from the known effects."""
        row = dict(self.base.row)
        places = []
        for change in changes:
            printed = self._after(change)
            values, texts = self.effects[change.number]
            row |= {value.column: _value(value, printed) for value in values}
            places += [(begin, end, column, printed) for column, begin, end in texts]
        for begin, end, column, printed in sorted(places, reverse=True):
            row[column] = row[column][:begin] + printed + row[column][end:]
        return row

    def _effects_of(self, change: _Change) -> NumberEffects | None:
        """Return the effects of a change; None if a shape cannot express them."""
        reading, number = self._with([change]), change.number
        if reading is None:
            return None
        begin, end = self._span(number)
        printed_before, printed_after = (
            "-" * number.negative + self.raw[begin:end].decode(),
            self._after(change),
        )
        values: list[ShapeValue] = []
        texts: list[tuple[str, int, int]] = []
        for name, before in self.base.row.items():
            now = reading.row[name]
            if is_identical(before, now):
                continue
            if isinstance(before, str) and isinstance(now, str):
                span = _place(before, now, printed_before, printed_after)
                if span is None:
                    return None
                texts.append((name, *span))
                continue
            value = _how(name, number, [(before, printed_before), (now, printed_after)])
            if value is None:
                return None
            values.append(value)
        return values, texts

    def _find_widths(
        self,
        runs: Mapping[ShapeNumber, int],
        holding: ValidChanges,
        longest: int = MAX_INTEGER_DIGITS,
    ) -> None:
        """Set the minimum and maximum width of runs."""

        def printed(which: Iterable[ShapeNumber], width: int) -> list[_Change]:
            return [self._with_digits(number, runs[number], width) for number in which]

        wide = {number: self._width(run) for number, run in runs.items()}
        least = holding(printed((number for number in runs if wide[number] > 1), 1))
        most = holding(printed((n for n in runs if wide[n] <= longest), longest))
        left = (n for n in runs if n not in most and wide[n] <= SHORT_NUMBER_DIGITS)
        fewer = holding(printed(left, SHORT_NUMBER_DIGITS))
        for number, run in runs.items():
            width = wide[number]
            self.widths[run] = (
                1 if number in least else width,
                longest if number in most else SHORT_NUMBER_DIGITS if number in fewer else width,
            )

    def _find_gaps(
        self,
        wholes: Mapping[ShapeNumber, int],
        decimals: Mapping[ShapeNumber, int],
        holding: ValidChanges,
    ) -> None:
        """Exclude widths between minimum and maximum at which the line reads differently.

        For example, a column may exist only for numbers of eight decimals. All numbers are tried at
        once; beyond an excluded width nothing is certain.
        """
        for width in range(2, MAX_DECIMALS):
            kinds = [
                [
                    self._with_digits(n, run, width)
                    for n, run in runs.items()
                    if self._may(run, width)
                ]
                for runs in (wholes, decimals)
            ]
            both = _joined(self.raw, [*kinds[0], *kinds[1]])
            if holding(both) == {change.number for change in both}:
                continue
            for runs, changes in zip((wholes, decimals), kinds, strict=True):
                for number in {change.number for change in changes} - holding(changes):
                    least, most = self.widths[runs[number]]
                    less = width < self._width(runs[number])
                    self.widths[runs[number]] = (width + 1, most) if less else (least, width - 1)

    def _may(self, run: int, width: int) -> bool:
        """Return whether a width is within the run's limits and still untried."""
        least, most = self.widths[run]
        return least < width < most and width != self._width(run)

    def _with_digits(self, number: ShapeNumber, run: int, width: int) -> _Change:
        """Return a change of a run to `width` equal digits, unlike its first digit."""
        begin, end = self.runs[run]
        digit = b"2" if self.raw[begin:end].startswith(b"1") else b"1"
        return _Change(number, begin, end, digit * width)

    def _find_bare(self, runs: Mapping[ShapeNumber, int]) -> None:
        """Find runs without leading zeros, and whether they may be a single 0."""
        zeros = [
            _Change(number, *self.runs[run], b"0".ljust(self.widths[run][1], b"1"))
            for number, run in runs.items()
        ]
        may = self._holding(zeros)
        left = {number: run for number, run in runs.items() if number not in may}
        alone = self._holding([_Change(n, *self.runs[run], b"0") for n, run in left.items()])
        self.bare = {run: number in alone for number, run in left.items()}

    def _find_nonzero(self) -> None:
        """Find numbers with another effect when 0, since 0 may mean none.

        Every number is set to 0 alone first, because the effect may require other numbers not to be
        0. Then it is set to 0 with the later ones, because the effect may require these to be 0
        too: `step=0, skipped=0` begins a run.
        """
        zeros = []
        for number in self.effects:
            (begin, behind), tail = self.runs[number.first], self._tail(number)
            if self.raw[begin:tail] == self.raw[begin:tail].translate(DIGITS_TO_ZEROS):
                continue  # the number is 0 in this line
            whole = b"0" * self.widths[number.first][0]
            text = whole + self.raw[behind:tail].translate(DIGITS_TO_ZEROS)
            zeros.append(_Change(number, begin, tail, text))
        may = [zero for zero in zeros if self._hold([zero])]
        if not self._hold(may):
            together: list[_Change] = []
            for zero in reversed(may):
                together += [zero] if self._hold([*together, zero]) else []
            may = together
        mays = {zero.number for zero in may}
        self.nonzero = [zero.number for zero in zeros if zero.number not in mays]

    def _find_padded(self) -> None:
        """Find runs before which the number of blanks may vary."""
        begins = {number: self._span(number)[0] for number in self.effects if not number.negative}
        begins = {n: begin for n, begin in begins.items() if self.raw[begin - 1 : begin] == b" "}
        more = self._holding([_Change(n, begin, begin, b" ") for n, begin in begins.items()])
        several = {n: begins[n] for n in more if self.raw[begins[n] - 2 : begins[n]] == b"  "}
        fewer = self._holding([_Change(n, begin - 1, begin, b"") for n, begin in several.items()])
        self.padded = {n.first for n in more if n not in several or n in fewer}

    def _texts(self) -> list[ShapeText]:
        """Return the columns whose texts contain numbers."""
        places: dict[str, list[tuple[int, int, ShapeNumber]]] = {}
        for number, (_, texts) in self.effects.items():
            for column, begin, end in texts:
                places.setdefault(column, []).append((begin, end, number))
        return [self._text(column, those) for column, those in places.items()]

    def _text(self, column: str, places: Iterable[tuple[int, int, ShapeNumber]]) -> ShapeText:
        pieces: list[str | ShapeNumber] = []
        whole, done = str(self.base.row[column]), 0
        for begin, end, number in sorted(places, key=itemgetter(0)):
            pieces += [whole[done:begin], number]
            done = end
        return ShapeText(column, tuple(piece for piece in (*pieces, whole[done:]) if piece != ""))


def _joined(raw: bytes, changes: Iterable[_Change]) -> list[_Change]:
    """Return the changes merged into a single change per number."""
    out: dict[ShapeNumber, _Change] = {}
    for change in sorted(changes, key=itemgetter(1)):
        before = out.setdefault(change.number, change)
        if before is not change:
            between = raw[before.end : change.begin]
            text = before.text + between + change.text
            out[change.number] = _Change(change.number, before.begin, change.end, text)
    return [*out.values()]


def _other_digits(text: bytes, rng: random.Random) -> bytes:
    """Return other digits of the same form, the first not 0."""
    digits = (
        rng.choice(sorted({*ASCII_DIGITS[index == 0 :]} - {byte}))
        for index, byte in enumerate(text)
    )
    return bytes(
        digit if byte in ASCII_DIGITS else byte for byte, digit in zip(text, digits, strict=True)
    )


def _place(
    before: str, now: str, printed_before: str, printed_after: str
) -> tuple[int, int] | None:
    """Return begin and end of the number in a text; None if other bytes changed."""
    first = next(
        (i for i, (a, b) in enumerate(zip(before, now, strict=False)) if a != b), len(before)
    )
    for begin in range(first, max(-1, first - len(printed_before)), -1):
        end = begin + len(printed_before)
        if (
            before[begin:end] == printed_before
            and before[:begin] + printed_after + before[end:] == now
        ):
            return begin, end
    return None


def _how(name: str, number: ShapeNumber, pairs: Sequence[tuple[object, str]]) -> ShapeValue | None:
    """Return how a number fills a column; None if unclear.

    pairs: values of the column with the printed number
    """
    if all(type(value) is int for value, _ in pairs):
        same = all(value == float(text.replace(",", "")) for value, text in pairs)
        return ShapeValue(name, number, "int", None) if same else None
    if all(type(value) is float for value, _ in pairs):
        floats = [(value, float(text.replace(",", ""))) for value, text in pairs]
        for factor in (None, *CANDIDATE_FACTORS):
            if all(value == (x if factor is None else x * factor) for value, x in floats):
                return ShapeValue(name, number, "float", factor)
    return None


def _value(value: ShapeValue, printed: str) -> int | float | None:
    """Return the value of a column for a printed number."""
    number = float(printed.replace(",", ""))
    if value.kind == "int":
        return int(number) if number.is_integer() else None
    return number if value.factor is None else number * value.factor
