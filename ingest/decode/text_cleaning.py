"""The text of lines: decoded, without what colours it; of one line, or of many at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa

from ..core.arrays import Ints, copy_to_arrow
from ..core.prefilter import REPEAT_OPS, PatternPart, PatternParts, parse_pattern, required_literals
from .line_text import NORMALIZED_CHARS, decode_line

ANSI_ESCAPE: Final = r"\x1b\[[0-9;]*[A-Za-z]"
NUL_CHAR: Final = "\0"
"""What `text_of` drops."""
UNSTABLE_NON_ASCII: Final = (
    "[" + "".join(rf"\x{{{ord(char):X}}}" for char in NORMALIZED_CHARS) + r"\x{10000}-\x{10FFFF}]"
)
"""What it may change beyond ASCII, and characters of which the tables of Polars may be newer."""
LINE_END_CHARS: Final = "\r\n"
MAX_SINGLY_CLEANED_LINES: Final = 200
"""Lines that are cleaned one by one in the time of a few calls of Polars."""
MIN_NON_ASCII_BYTE: Final = 0x80
"""The least byte of a character that is not ASCII."""


def line_array(data: pa.Buffer, bounds: Ints) -> pa.LargeBinaryArray:
    """The bytes between each bound and the next: lines, each with its newline."""
    buffers = [None, copy_to_arrow(bounds), data]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(bounds) - 1, buffers)


class Cleaner:
    """What a format's lines say without its noise: a regex, else the colours of a terminal."""

    def __init__(self, noise: str | None) -> None:
        self._noise = noise or ANSI_ESCAPE
        self._sub = re.compile(self._noise).sub
        self._held_by_noise = [literal.encode() for literal in required_literals(self._noise)]
        self._alike = _alike(self._noise)
        ranges = list(_ranges(parse_pattern(self._noise) or ())) if self._alike else []
        self.digits_alike = self._alike and not any(_some_digits(*one) for one in ranges)
        """Whether what is noise stays so with other digits."""
        parts = parse_pattern(self._noise) if self.digits_alike else None
        self.runs_alike = parts is not None and _as_long_as_they_are(parts)
        """The same with more or fewer of them, or of blanks, side by side."""
        newline = ord("\n")
        self._within_a_line = self._alike and not any(x <= newline <= y for x, y in ranges)

    def text(self, raw: bytes) -> str:
        """The text of a line's bytes."""
        return self._sub("", decode_line(raw))

    def strip(self, text: str) -> str:
        """A line's text without its noise."""
        return self._sub("", text)

    def texts(self, lines: pa.LargeBinaryArray) -> pl.Series:
        """The texts of many lines, each of which ends with its newline.

        Polars finds those that hold something to clean, and cleans ASCII; others are cleaned one by
        one. All are where it may see noise otherwise than Python does, or one line is no UTF-8.
        """
        if not self._alike or len(lines) <= MAX_SINGLY_CLEANED_LINES:
            return self._each(lines.to_pylist())
        if (bare := self._bare(lines)) is not None:
            return bare
        series, text = pl.Series(lines), pl.col("text")
        try:
            found = pl.DataFrame({"text": series.cast(pl.String)}).select(
                text.str.strip_chars_end(LINE_END_CHARS).alias("clean"),
                _may_hold(self._noise, text).alias("noisy"),
                (text.str.len_chars() != text.str.len_bytes()).alias("wide"),
                text.str.contains(NUL_CHAR, literal=True).alias("odd"),
                text,
            )
        except pl.exceptions.ComputeError:
            return self._each(lines.to_pylist())
        clean, noisy = found["clean"], found["noisy"].arg_true()
        if len(noisy):
            clean = clean.scatter(noisy, clean.gather(noisy).str.replace_all(self._noise, ""))
        wide, odd = found["wide"].arg_true(), found["odd"].arg_true()
        if len(wide):
            beyond = found["text"].gather(wide).str.contains(f"{UNSTABLE_NON_ASCII}|{self._noise}")
            odd = pl.concat([odd, wide.filter(beyond)])
        return clean.scatter(odd, self._each(series.gather(odd))) if len(odd) else clean

    def join_clean_texts(self, line_groups: Sequence[bytes]) -> tuple[Ints, pl.Series]:
        """All lines of each as one text, without those that may have to be cleaned line by line.

        Which of them, and their texts without noise.
        """
        which = [place for place, data in enumerate(line_groups) if self._plain(data)]
        try:
            texts = _decoded([line_groups[place] for place in which])
        except pl.exceptions.ComputeError:
            which = [place for place in which if _is_utf8(line_groups[place])]
            texts = _decoded([line_groups[place] for place in which])
        noisy = [at for at, place in enumerate(which) if self._may_hold_noise(line_groups[place])]
        if noisy:
            digits_are_ascii = f"(?-u){self._noise}" if self._noise.isascii() else self._noise
            may = texts[noisy]
            found = may.str.contains(digits_are_ascii)  # in a fourth of the time of new texts
            cleaned = may.filter(found).str.replace_all(digits_are_ascii, "")
            texts = texts.scatter(pl.Series(noisy).filter(found), cleaned)
        return np.array(which, np.int64), texts

    def _plain(self, data: bytes) -> bool:
        """Whether nothing of it but noise has to be cleaned."""
        return self._within_a_line and NUL_CHAR.encode() not in data and not _beyond(data)

    def _may_hold_noise(self, data: bytes) -> bool:
        """Whether a literal of the noise is in it; of noise without any it may be in everything."""
        held = self._held_by_noise
        return not held or any(literal in data for literal in held)

    def _bare(self, lines: pa.LargeBinaryArray) -> pl.Series | None:
        """Texts of lines of which nothing but the newlines goes; None where something else may."""
        _, offsets, data = lines.buffers()
        bounds = np.frombuffer(offsets, np.int64)[lines.offset :][: len(lines) + 1]
        every = data[bounds[0] : bounds[-1]].to_pybytes()
        odd = not every.isascii() or any(byte in every for byte in (b"\0", b"\r"))
        if odd or self._may_hold_noise(every):
            return None
        texts, places = every.replace(b"\n", b""), bounds - bounds[0] - np.arange(len(bounds))
        return pl.Series(line_array(copy_to_arrow(texts), places)).cast(pl.String)

    def _each(self, lines: Iterable[bytes]) -> pl.Series:
        """As `texts`, line by line."""
        return pl.Series([self.text(raw.removesuffix(b"\n")) for raw in lines], dtype=pl.String)


def to_valid_utf8(text: str) -> str:
    r"""The text as UTF-8 can have it: JSON and Python may spell halves of characters (`\ud800`)."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _decoded(several: Sequence[bytes]) -> pl.Series:
    """Each as a text. Raises ComputeError where one is no UTF-8."""
    bounds = np.cumsum([0, *map(len, several)])
    return pl.Series(line_array(copy_to_arrow(b"".join(several)), bounds)).cast(pl.String)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _beyond(data: bytes) -> bool:
    """Whether there are characters beyond ASCII that change a text, or are digits."""
    if data.isascii():
        return False
    every = np.frombuffer(data, np.uint8)
    characters = set(every[every >= MIN_NON_ASCII_BYTE].tobytes().decode(errors="replace"))
    return any(character in NORMALIZED_CHARS or character.isdecimal() for character in characters)


def _may_hold(noise: str, text: pl.Expr) -> pl.Expr:
    """Whether a text may hold noise: a literal is found in a fifth of the time."""
    literals = required_literals(noise)
    if len(literals) == 1:
        return text.str.contains(*literals, literal=True)
    return text.str.contains(noise)


@cache
def _alike(noise: str) -> bool:
    """Whether Polars finds the same noise as Python does."""
    parts = parse_pattern(noise)
    return parts is not None and _plain(parts)


def _plain(items: PatternParts) -> bool:
    """Whether every engine finds the same: literals, digits, ranges, choices, repeats of them."""
    return all(map(_plain_part, items))


def _plain_part(part: PatternPart) -> bool:
    name, said = str(part[0]), part[1]
    if name == "IN":
        return all(
            str(kind) in ("LITERAL", "RANGE") or str(one) == "CATEGORY_DIGIT" for kind, one in said
        )
    if name == "BRANCH":
        return all(map(_plain, said[1]))
    if name == "SUBPATTERN":
        return not (said[1] or said[2]) and _plain(said[3])
    return name == "LITERAL" or (name in REPEAT_OPS[:2] and _plain(said[2]))


def _ranges(items: PatternParts) -> Iterator[tuple[int, int]]:
    """The first and the last of the characters that each part may match, but for digits as such."""
    for name, said in items:
        match str(name):
            case "LITERAL":
                yield said, said
            case "IN":
                chosen = ((str(kind), one) for kind, one in said if str(kind) != "CATEGORY")
                yield from (one if kind == "RANGE" else (one, one) for kind, one in chosen)
            case "BRANCH":
                for choice in said[1]:
                    yield from _ranges(choice)
            case _:
                yield from _ranges(said[-1])


def _some_digits(first: int, last: int) -> bool:
    """Whether some digits, but not all, are among these characters."""
    among = [first <= ord(digit) <= last for digit in "0123456789"]
    return any(among) and not all(among)


def _as_long_as_they_are(items: PatternParts) -> bool:
    """Whether runs of digits match however long they are, and blanks not at all; of what is plain.

    So digits are repeated without end. Of those side by side only one repeat may need any.
    """
    parts = list(items)
    return all(map(_of_any_length, parts, [*parts[1:], None]))


def _of_any_length(part: PatternPart, behind: PatternPart | None) -> bool:
    name, said = str(part[0]), part[1]
    if name == "BRANCH":
        return all(map(_as_long_as_they_are, said[1]))
    if name not in REPEAT_OPS:
        inside = name == "SUBPATTERN" and _as_long_as_they_are(said[-1])
        return inside or not (_takes("0", part) or _takes(" ", part))
    least, most, what = said
    if len(what) > 1 or not _takes("0", what[0]) or _takes(" ", what[0]):
        return _as_long_as_they_are(what)
    ends = behind is not None and _is_one(behind) and not _takes("0", behind)
    return str(most) == "MAXREPEAT" and (least == 0 or (least == 1 and ends))


def _is_one(part: PatternPart) -> bool:
    """Whether it is of one character."""
    return str(part[0]) in ("LITERAL", "IN")


def _takes(character: str, part: PatternPart) -> bool:
    """Whether a part of one character matches this one; others are not said to."""
    name, said = str(part[0]), part[1]
    if name == "LITERAL":
        return bool(said == ord(character))
    return name == "IN" and any(
        str(one) == "CATEGORY_DIGIT" and character.isdigit()
        if str(kind) == "CATEGORY"
        else _among(one if str(kind) == "RANGE" else (one, one), character)
        for kind, one in said
    )


def _among(ends: tuple[int, int], character: str) -> bool:
    return ends[0] <= ord(character) <= ends[1]
