"""The shape of a line, found out by having it read with other digits."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import add, itemgetter
from typing import Final

from ingest.scan.block import LONGEST
from ingest.scan.decoding import WHOLE_DIGITS
from ingest.scan.readings import Aside, Read, Row, Step
from ingest.scan.shapes import (
    MOST_DECIMALS,
    RUN,
    Number,
    Shape,
    Text,
    Value,
    pieces_of,
    stretches_of,
)
from ingest.scan.stamps import EPOCH, NO_YEAR, SECONDS
from ingest.scan.trust import believed, same

FEW_DIGITS: Final = 9
"""Digits of a number where more are not read alike."""
NUMBER: Final = re.compile(
    rb"[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?"
)
DIGITS: Final = b"0123456789"
ZEROS: Final = bytes.maketrans(DIGITS, b"0" * 10)
FACTORS: Final = (0.01, 0.001, 1e-6, 1000.0, 1e6, 1e9, 1024.0, 1024.0**2, 1024.0**3)
"""Of units to those of columns."""
Effects = tuple[list[Value], list[tuple[str, int, int]]]
"""Columns that a number fills, and the texts in which it stands (column, from, to)."""


def learn(raw: bytes, read: Read, rng: random.Random) -> Shape | None:
    """The shape of a line; None where the regexes do not read lines of its kind alike."""
    if len(raw) > LONGEST or not raw.isascii() or b"\0" in raw:
        return None
    base = read(raw)
    if not isinstance(base, Step | Aside):
        return None
    shape = _Learner(raw, base, read, rng).shape()
    return shape if shape is not None and believed(shape, raw, read, rng) else None


def _runs(raw: bytes) -> list[tuple[int, int]]:
    return [match.span() for match in RUN.finditer(raw)]


class _Learner:
    """Finds out what the runs of digits of one line do, by having it read with others."""

    def __init__(self, raw: bytes, base: Row, read: Read, rng: random.Random) -> None:
        self.raw, self.base, self.read, self.rng = raw, base, read, rng
        self.runs = _runs(raw)
        self.place = {begin: index for index, (begin, _) in enumerate(self.runs)}
        self.widths: dict[int, tuple[int, int]] = {}
        self.padded: set[int] = set()
        self.bare: dict[int, bool] = {}
        self.nonzero: list[Number] = []
        self.values: list[Value] = []
        self.texts: dict[str, list[tuple[int, int, Number]]] = {}

    def shape(self) -> Shape | None:
        """What is not found to fill a column is constant."""
        stamp = self._stamp()
        if (self.base.row["logged_at"] is None) != (not stamp):
            return None
        hidden = bytearray(self.raw)
        for run in stamp:
            begin, end = self.runs[run]
            hidden[begin:end] = b"x" * (end - begin)
            self.widths[run] = end - begin, end - begin
        if len(stamp) == EPOCH:
            begin, end = self.runs[stamp[1]]
            self.widths[stamp[1]] = self._widths(
                stamp[1], lambda text: self._with(begin, end, text) is not None, MOST_DECIMALS
            )
        for match in NUMBER.finditer(bytes(hidden)):
            if match.start() in self.place:
                self._number(match)
        moving = {value.column for value in self.values} | set(self.texts)
        moving |= {"logged_at"} if stamp else set()
        pieces = pieces_of(self.raw, self.runs, self.widths, self.padded)
        return Shape(
            pieces=pieces,
            widths=self.widths,
            stretches=stretches_of(pieces, self.widths),
            bare=self.bare,
            nonzero=tuple(self.nonzero),
            reading=type(self.base),
            form=self.base.form,
            printed=self.base.printed,
            fields={n: value for n, value in self.base.row.items() if n not in moving},
            values=tuple(self.values),
            texts=tuple(self._text(column) for column in self.texts),
            stamp=stamp,
        )

    def _with(self, begin: int, end: int, text: bytes) -> Row | None:
        """The line read with another text there; None where it is read as another line."""
        return self._read_changed(self.raw[:begin] + text + self.raw[end:])

    def _read_changed(self, raw: bytes) -> Row | None:
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
        counts = len(found) <= EPOCH and width in (SECONDS, SECONDS + 3, SECONDS + 6)
        return tuple(found) if in_a_row and (counts or NO_YEAR <= len(found) <= NO_YEAR + 2) else ()

    def _dating(self, runs: range) -> list[int]:
        """Those of some runs that are of the time stamp.

        Most are not: all are changed at once, and half of them at a time where the stamp changes.
        """
        before, others = self.base.row["logged_at"], map(self._read_changed, self._nudged(runs))
        stamps = (now and now.row["logged_at"] for now in others)
        if len(runs) == 1:
            return [*runs] if any(stamp not in (None, before) for stamp in stamps) else []
        if all(stamp == before for stamp in stamps):
            return []
        middle = len(runs) // 2
        return self._dating(runs[:middle]) + self._dating(runs[middle:])

    def _nudged(self, runs: range) -> Iterator[bytes]:
        """The line with other numbers for some runs, of as many digits.

        One is a day, a month or an hour where the first was. The month before one of 31 days may
        have fewer, and a year beside a leap year no 29 February.
        """
        for nudge in (partial(add, -1), partial(add, 1), partial(add, 4), lambda _: 1):
            out, at = [], 0
            for begin, end in (self.runs[run] for run in runs):
                value = int(self.raw[begin:end])
                other = nudge(value) if nudge(value) > 0 else value
                out += [self.raw[at:begin], str(other).zfill(end - begin).encode()]
                at = end
            changed = b"".join((*out, self.raw[at:]))
            if changed != self.raw:
                yield changed

    def _number(self, match: re.Match[bytes]) -> None:
        """What a printed number does, and how it may be printed; else its digits are constant."""
        parts = re.fullmatch(rb"([\d,]+)(?:\.(\d+))?(?:[eE]([-+]?)(\d+))?", match[0])
        assert parts is not None  # noqa: S101 - NUMBER is made so
        begin = match.start()
        before = self.raw[max(0, begin - 2) : begin]
        number = Number(
            whole=tuple(self.place[begin + run.start()] for run in RUN.finditer(parts[1])),
            decimals=self.place[begin + parts.start(2)] if parts[2] else None,
            exponent=self.place[begin + parts.start(4)] if parts[4] else None,
            exponent_sign=-1 if parts[3] == b"-" else 1,
            negative=before.endswith(b"-") and not before[:-1].isalnum(),
        )
        effects = self._effects(number)
        if effects is None or not any(effects):
            return  # digits that do nothing may be half of a stamp, with others a whole one
        self.values += effects[0]
        for column, start, stop in effects[1]:
            self.texts.setdefault(column, []).append((start, stop, number))
        for run in range(number.first, number.last + 1):
            width = self.runs[run][1] - self.runs[run][0]
            self.widths[run] = width, width
        if len(number.whole) == 1:
            alike = partial(self._does, effects, number, number.first)
            self.widths[number.first] = self._widths(number.first, alike)
            if not alike(b"0".ljust(self.widths[number.first][1], b"1")):
                self.bare[number.first] = alike(b"0")
        if number.decimals is not None:
            alike = partial(self._does, effects, number, number.decimals)
            self.widths[number.decimals] = self._widths(number.decimals, alike, MOST_DECIMALS)
        if not self._may_be_zero(effects, number):
            self.nonzero.append(number)
        if self._may_be_padded(number):
            self.padded.add(number.first)

    def _effects(self, number: Number) -> Effects | None:
        """What it does with other digits; None where it does more than a shape can tell."""
        begin, end = self.runs[number.first][0], self.runs[number.last][1]
        was = self.raw[begin:end]
        found: list[Effects | None] = []
        for _ in range(2):
            text = _other_digits(was, self.rng)
            if number.exponent is not None:  # a power that no machine has would be an infinity
                tail = self.runs[number.exponent][0] - begin
                text = text[:tail] + was[tail:]
            found.append(self._effects_of(number, text))
        return found[0] if found[0] == found[1] else None

    def _effects_of(self, number: Number, text: bytes) -> Effects | None:
        """What it does where it is printed so."""
        begin, end = self.runs[number.first][0], self.runs[number.last][1]
        now = self._with(begin, end, text)
        was = self.raw[begin:end].decode()
        return None if now is None else self._said(number, now, was, text.decode())

    def _said(self, number: Number, now: Row, before: str, after: str) -> Effects | None:
        """What has become of the row where the number was changed."""
        sign = "-" if number.negative else ""
        values: list[Value] = []
        texts: list[tuple[str, int, int]] = []
        for name, was in self.base.row.items():
            is_ = now.row[name]
            if same(was, is_):
                continue
            if isinstance(was, str) and isinstance(is_, str):
                place = _place(was, is_, sign + before, sign + after)
                if place is None:
                    return None
                texts.append((name, *place))
                continue
            value = _how(name, number, [(was, sign + before), (is_, sign + after)])
            if value is None:
                return None
            values.append(value)
        return values, texts

    def _widths(
        self, run: int, alike: Callable[[bytes], bool], longest: int = WHOLE_DIGITS
    ) -> tuple[int, int]:
        """The least and the most digits of a run; alike: whether the line is as with others."""
        begin, end = self.runs[run]
        digit = b"2" if self.raw[begin:end].startswith(b"1") else b"1"  # not the one that it has
        width = end - begin
        least = 1 if width == 1 or alike(digit) else width
        most = (most for most in (longest, FEW_DIGITS) if width <= most and alike(most * digit))
        return least, next(most, width)

    def _does(self, effects: Effects, number: Number, run: int, text: bytes) -> bool:
        """Whether the number has these effects where one of its runs is printed so."""
        whole, (begin, end) = self.runs[number.first][0], self.runs[run]
        before, after = self.raw[whole:begin], self.raw[end : self.runs[number.last][1]]
        same = text == self.raw[begin:end]
        return same or self._effects_of(number, before + text + after) == effects

    def _may_be_zero(self, effects: Effects, number: Number) -> bool:
        """Whether it has these effects where it is 0 as well, which may stand for none."""
        (begin, behind), end = self.runs[number.first], self.runs[number.last][1]
        tail = end if number.exponent is None else self.runs[number.exponent][0]
        if self.raw[begin:tail] == self.raw[begin:tail].translate(ZEROS):
            return True  # it is here
        rest = self.raw[behind:tail].translate(ZEROS) + self.raw[tail:end]
        text = b"0" * self.widths[number.first][0] + rest
        return self._effects_of(number, text) == effects

    def _may_be_padded(self, number: Number) -> bool:
        """Whether blanks before the number may be more or fewer."""
        begin = self.runs[number.first][0]
        if number.negative or self.raw[begin - 1 : begin] != b" ":
            return False
        fewer = self.raw[begin - 2 : begin] == b"  "
        return self._alike(begin, begin, b" ") and (not fewer or self._alike(begin - 1, begin, b""))

    def _alike(self, begin: int, end: int, text: bytes) -> bool:
        """Whether the line says the same with another text there."""
        now = self._with(begin, end, text)
        return now is not None and all(same(now.row[name], self.base.row[name]) for name in now.row)

    def _text(self, column: str) -> Text:
        pieces: list[str | Number] = []
        whole, at = str(self.base.row[column]), 0
        for begin, end, number in sorted(self.texts[column], key=itemgetter(0)):
            pieces += [whole[at:begin], number]
            at = end
        return Text(column, tuple(piece for piece in (*pieces, whole[at:]) if piece != ""))


def _other_digits(text: bytes, rng: random.Random) -> bytes:
    """Another number of the same form: each digit is another one, the first not 0."""
    digits = (
        rng.choice(sorted({*DIGITS[index == 0 :]} - {byte})) for index, byte in enumerate(text)
    )
    return bytes(
        digit if byte in DIGITS else byte for byte, digit in zip(text, digits, strict=True)
    )


def _place(was: str, is_: str, before: str, after: str) -> tuple[int, int] | None:
    """Where in a text the number stands, if nothing else of it has changed."""
    first = next((i for i, (a, b) in enumerate(zip(was, is_, strict=False)) if a != b), len(was))
    for at in range(first, max(-1, first - len(before)), -1):
        end = at + len(before)
        if was[at:end] == before and was[:at] + after + was[end:] == is_:
            return at, end
    return None


def _how(name: str, number: Number, pairs: Sequence[tuple[object, str]]) -> Value | None:
    """How a number becomes a column; pairs: of the column and the number as printed."""
    if all(type(value) is int for value, _ in pairs):
        same = all(value == float(text.replace(",", "")) for value, text in pairs)
        return Value(name, number, "int", None) if same else None
    if all(type(value) is float for value, _ in pairs):
        floats = [(value, float(text.replace(",", ""))) for value, text in pairs]
        for factor in (None, *FACTORS):
            if all(value == (x if factor is None else x * factor) for value, x in floats):
                return Value(name, number, "float", factor)
    return None
