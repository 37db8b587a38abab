"""The shape of a line, found out by having it read with other digits."""

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
"""Digits of a number where more are not read alike."""
PRINTED_NUMBER: Final = re.compile(
    rb"[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?"
)
ASCII_DIGITS: Final = b"0123456789"
DIGITS_TO_ZEROS: Final = bytes.maketrans(ASCII_DIGITS, b"0" * 10)
CANDIDATE_FACTORS: Final = (0.01, 0.001, 1e-6, 1000.0, 1e6, 1e9, 1024.0, 1024.0**2, 1024.0**3)
"""Of units to those of columns."""
NumberEffects = tuple[list[ShapeValue], list[tuple[str, int, int]]]
"""Columns that a number fills, and the texts in which it stands (column, from, to)."""


class _Change(NamedTuple):
    """Other bytes of a line from `begin` to `end`: of a number, or of the blanks before it."""

    number: ShapeNumber
    begin: int
    end: int
    text: bytes


ValidChanges = Callable[[Sequence[_Change]], set[ShapeNumber]]
"""The numbers whose changes leave the line one of its kind."""


def learn_shape(
    raw: bytes, read_line: ReadLine, rng: random.Random, spelled: Iterable[bytes] = ()
) -> LineShape | None:
    """The shape of a line; None where the regexes do not read lines of its kind alike.

    spelled: texts of patterns that spell numbers out, as few do.
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
    """Finds out what the runs of digits of one line do, by having it read with others."""

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
        """What is not found to fill a column is constant."""
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
        """Whether it does so with the numbers that a text spells out, where it has such.

        A text may begin or end within a number.
        """
        like = DIGIT_RUN.sub(rb"[0-9]+", re.escape(text))
        more = (b"7" * text[:1].isdigit(), b"7" * text[-1:].isdigit())
        longer = {
            tuple(DIGIT_RUN.findall(one + text + two))
            for one, two in product(*((b"", x) for x in more))
        }
        for match in re.finditer(like, self.raw):
            runs = [self.place[match.start() + m.start()] for m in DIGIT_RUN.finditer(match[0])]
            if not all(self._says_the_same(dict(zip(runs, said, strict=True))) for said in longer):
                return False
        return True

    def _says_the_same(self, said: Mapping[int, bytes]) -> bool:
        """With other digits for runs; also where no line of this shape has them."""
        of_run = {run: n for n in self.effects for run in range(n.first, n.last + 1)}
        changes = []
        for run, digits in said.items():
            begin, end = self.runs[run]
            least, most = self.widths.get(run, (0, 0))
            if digits != self.raw[begin:end]:
                if run not in of_run or not least <= len(digits) <= most:
                    return True
                changes.append(_Change(of_run[run], begin, end, digits))
        joined = _joined(self.raw, changes)
        zeros = {one.number for one in joined if float(self._after(one).replace(",", "")) == 0}
        return not zeros.isdisjoint(self.nonzero) or self._hold(joined)

    def _read_changed(self, raw: bytes) -> RowReading | None:
        """The line read as it is now; None where it is read as another line."""
        now = self.read(raw)
        if not isinstance(now, type(self.base)) or now.form is not self.base.form:
            return None
        alike = now.printed == self.base.printed and now.row.keys() == self.base.row.keys()
        return now if alike else None

    def _stamp(self) -> tuple[int, ...]:
        """Runs of the time stamp; none where they are not those of a date and a time."""
        found = self._dating(range(len(self.runs))) if self.base.row["logged_at"] else []
        in_a_row = found == list(range(found[0], found[0] + len(found))) if found else False
        width = self.runs[found[0]][1] - self.runs[found[0]][0] if found else 0
        counts = len(found) <= MAX_EPOCH_RUNS and width in (
            EPOCH_SECONDS_DIGITS,
            EPOCH_SECONDS_DIGITS + 3,
            EPOCH_SECONDS_DIGITS + 6,
        )
        compact = len(found) == COMPACT_STAMP_RUNS and width == COMPACT_DATE_DIGITS
        dates = compact or YEARLESS_STAMP_RUNS <= len(found) <= YEARLESS_STAMP_RUNS + 2
        return tuple(found) if in_a_row and (counts or dates) else ()

    def _dating(self, runs: range) -> list[int]:
        """Those of some runs that are of the time stamp.

        Most are not: all are changed at once, and half of them at a time where the stamp changes.
        Three nudges tell that none is: whatever its value is, one more or less is another stamp, or
        none, and where it is finer than microseconds, 1 is.
        """
        before, rows = self.base.row["logged_at"], map(self._read_changed, self._nudged(runs))
        stamps = (now and now.row["logged_at"] for now in rows)
        changed = next((stamp for stamp in islice(stamps, 3) if stamp != before), before)
        if changed == before:
            return []
        if len(runs) == 1:
            others = chain([changed], stamps)
            return [*runs] if any(x not in (None, before) for x in others) else []
        middle = len(runs) // 2
        return self._dating(runs[:middle]) + self._dating(runs[middle:])

    def _nudged(self, runs: range) -> Iterator[bytes]:
        """The line with other numbers for some runs, of as many digits.

        One is a day, a month or an hour where the first was. The month before one of 31 days may
        have fewer, and a year beside a leap year no 29 February.
        """
        for nudge in (partial(add, -1), partial(add, 1), lambda _: 1, partial(add, 4)):
            out, at = [], 0
            for begin, end in (self.runs[run] for run in runs):
                value = int(self.raw[begin:end])
                other = nudge(value) if nudge(value) > 0 else value
                out += [self.raw[at:begin], str(other).zfill(end - begin).encode()]
                at = end
            changed = b"".join((*out, self.raw[at:]))
            if changed != self.raw:
                yield changed

    def _printed(self, match: re.Match[bytes]) -> ShapeNumber:
        """A number by its runs."""
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
        """What numbers do, and how each may be printed; the digits of others are constant.

        Digits that do nothing may be half of a stamp, with others a whole one.
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
        """Where it begins and ends."""
        return self.runs[number.first][0], self.runs[number.last][1]

    def _tail(self, number: ShapeNumber) -> int:
        """Where its digits end, but for an exponent's: with other ones it might be infinite."""
        return self._span(number)[1] if number.exponent is None else self.runs[number.exponent][0]

    def _width(self, run: int) -> int:
        begin, end = self.runs[run]
        return end - begin

    def _with_others(self, number: ShapeNumber) -> _Change:
        """Another number of the same form: each digit is another one, the first not 0."""
        begin, end = self._span(number)[0], self._tail(number)
        return _Change(number, begin, end, _other_digits(self.raw[begin:end], self.rng))

    def _with(self, changes: Iterable[_Change]) -> RowReading | None:
        """The line read with these, which do not overlap; None where it is read as another line."""
        out, at = [], 0
        for _, begin, end, text in sorted(changes, key=itemgetter(1)):
            out += [self.raw[at:begin], text]
            at = end
        return self._read_changed(b"".join((*out, self.raw[at:])))

    def _after(self, change: _Change) -> str:
        """The number as it is printed then, with its sign; blanks change nothing of it."""
        begin, end = self._span(change.number)
        if change.text.strip():
            text = self.raw[begin : change.begin] + change.text + self.raw[change.end : end]
        else:
            text = self.raw[begin:end]
        return "-" * change.number.negative + text.decode()

    def _holding(self, changes: Sequence[_Change]) -> set[ShapeNumber]:
        """Those with which the line says what they were found to do, and nothing else.

        Most do: all are made at once, and half of them at a time where the line says otherwise.
        """
        if self._hold(changes):
            return {change.number for change in changes}
        if len(changes) == 1:
            return set()
        middle = len(changes) // 2
        return self._holding(changes[:middle]) | self._holding(changes[middle:])

    def _hold(self, changes: Sequence[_Change]) -> bool:
        """Whether it does so with all of these."""
        if not changes:
            return True
        now, said = self._with(changes), self._row_with(changes)
        return now is not None and all(
            is_identical(now.row[name], value) for name, value in said.items()
        )

    def _of_its_kind(self, changes: Sequence[_Change]) -> set[ShapeNumber]:
        """Those with which the line is one of its kind, whatever it says."""
        return {change.number for change in changes if self._with([change]) is not None}

    def _row_with(self, changes: Sequence[_Change]) -> dict[str, Any]:
        """What the line says with these by what its numbers do."""
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
        """What a number does by a change of it; None where it does more than a shape can tell."""
        now, number = self._with([change]), change.number
        if now is None:
            return None
        begin, end = self._span(number)
        before, after = "-" * number.negative + self.raw[begin:end].decode(), self._after(change)
        values: list[ShapeValue] = []
        texts: list[tuple[str, int, int]] = []
        for name, was in self.base.row.items():
            is_ = now.row[name]
            if is_identical(was, is_):
                continue
            if isinstance(was, str) and isinstance(is_, str):
                place = _place(was, is_, before, after)
                if place is None:
                    return None
                texts.append((name, *place))
                continue
            value = _how(name, number, [(was, before), (is_, after)])
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
        """The least and the most digits of runs of numbers."""

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
        """Widths between the least and the most with which a line says something else.

        A column may be there for numbers of eight decimals alone. All numbers are tried at once; of
        what lies behind such a width nothing is sure.
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
        """Whether a run that has not so many digits is said to have them, and not as its bounds."""
        least, most = self.widths[run]
        return least < width < most and width != self._width(run)

    def _with_digits(self, number: ShapeNumber, run: int, width: int) -> _Change:
        """A run of so many digits, all alike, which are not the first one that it has."""
        begin, end = self.runs[run]
        digit = b"2" if self.raw[begin:end].startswith(b"1") else b"1"
        return _Change(number, begin, end, digit * width)

    def _find_bare(self, runs: Mapping[ShapeNumber, int]) -> None:
        """The runs that no 0 may begin, and whether it may be their only digit."""
        zeros = [
            _Change(number, *self.runs[run], b"0".ljust(self.widths[run][1], b"1"))
            for number, run in runs.items()
        ]
        may = self._holding(zeros)
        left = {number: run for number, run in runs.items() if number not in may}
        alone = self._holding([_Change(n, *self.runs[run], b"0") for n, run in left.items()])
        self.bare = {run: number in alone for number, run in left.items()}

    def _find_nonzero(self) -> None:
        """The numbers that do something else where they are 0, which may stand for none.

        Each is asked by itself, as it may be so only where others are not 0; then with those behind
        it, as some are so only where these are 0 too: `step=0, skipped=0` begins a run.
        """
        zeros = []
        for number in self.effects:
            (begin, behind), tail = self.runs[number.first], self._tail(number)
            if self.raw[begin:tail] == self.raw[begin:tail].translate(DIGITS_TO_ZEROS):
                continue  # it is 0 here
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
        """The runs before which blanks may be more or fewer."""
        begins = {number: self._span(number)[0] for number in self.effects if not number.negative}
        begins = {n: at for n, at in begins.items() if self.raw[at - 1 : at] == b" "}
        more = self._holding([_Change(n, at, at, b" ") for n, at in begins.items()])
        several = {n: begins[n] for n in more if self.raw[begins[n] - 2 : begins[n]] == b"  "}
        fewer = self._holding([_Change(n, at - 1, at, b"") for n, at in several.items()])
        self.padded = {n.first for n in more if n not in several or n in fewer}

    def _texts(self) -> list[ShapeText]:
        """The columns in whose texts numbers stand."""
        places: dict[str, list[tuple[int, int, ShapeNumber]]] = {}
        for number, (_, texts) in self.effects.items():
            for column, begin, end in texts:
                places.setdefault(column, []).append((begin, end, number))
        return [self._text(column, those) for column, those in places.items()]

    def _text(self, column: str, places: Iterable[tuple[int, int, ShapeNumber]]) -> ShapeText:
        pieces: list[str | ShapeNumber] = []
        whole, at = str(self.base.row[column]), 0
        for begin, end, number in sorted(places, key=itemgetter(0)):
            pieces += [whole[at:begin], number]
            at = end
        return ShapeText(column, tuple(piece for piece in (*pieces, whole[at:]) if piece != ""))


def _joined(raw: bytes, changes: Iterable[_Change]) -> list[_Change]:
    """One change of each number, of all that it has."""
    out: dict[ShapeNumber, _Change] = {}
    for change in sorted(changes, key=itemgetter(1)):
        before = out.setdefault(change.number, change)
        if before is not change:
            between = raw[before.end : change.begin]
            text = before.text + between + change.text
            out[change.number] = _Change(change.number, before.begin, change.end, text)
    return [*out.values()]


def _other_digits(text: bytes, rng: random.Random) -> bytes:
    """Another number of the same form: each digit is another one, the first not 0."""
    digits = (
        rng.choice(sorted({*ASCII_DIGITS[index == 0 :]} - {byte}))
        for index, byte in enumerate(text)
    )
    return bytes(
        digit if byte in ASCII_DIGITS else byte for byte, digit in zip(text, digits, strict=True)
    )


def _place(was: str, is_: str, before: str, after: str) -> tuple[int, int] | None:
    """Where in a text the number stands, if nothing else of it has changed."""
    first = next((i for i, (a, b) in enumerate(zip(was, is_, strict=False)) if a != b), len(was))
    for at in range(first, max(-1, first - len(before)), -1):
        end = at + len(before)
        if was[at:end] == before and was[:at] + after + was[end:] == is_:
            return at, end
    return None


def _how(name: str, number: ShapeNumber, pairs: Sequence[tuple[object, str]]) -> ShapeValue | None:
    """How a number becomes a column; pairs: of the column and the number as printed."""
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
    """What a column says of a number that is printed so."""
    said = float(printed.replace(",", ""))
    if value.kind == "int":
        return int(said) if said.is_integer() else None
    return said if value.factor is None else said * value.factor
