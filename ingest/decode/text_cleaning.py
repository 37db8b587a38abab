"""Text of lines: decoded, without colours and other noise; one by one or in bulk."""

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
"""`decode_line` drops NUL characters."""
UNSTABLE_NON_ASCII: Final = (
    "[" + "".join(rf"\x{{{ord(char):X}}}" for char in NORMALIZED_CHARS) + r"\x{10000}-\x{10FFFF}]"
)
"""Non-ASCII characters that `decode_line` changes, and those newer than Polars' tables may be."""
LINE_END_CHARS: Final = "\r\n"
MAX_SINGLY_CLEANED_LINES: Final = 200
"""Below this, cleaning lines one by one is faster than a few calls of Polars."""
MIN_NON_ASCII_BYTE: Final = 0x80
"""Smallest byte of a non-ASCII character in UTF-8."""


def line_array(data: pa.Buffer, bounds: Ints) -> pa.LargeBinaryArray:
    """Return the bytes between consecutive bounds: lines with their newlines."""
    buffers = [None, copy_to_arrow(bounds), data]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(bounds) - 1, buffers)


class Cleaner:
    """Remove a format's noise from lines: a regex, by default terminal colours."""

    def __init__(self, noise: str | None) -> None:
        self._noise = noise or ANSI_ESCAPE
        self._sub = re.compile(self._noise).sub
        self._held_by_noise = [literal.encode() for literal in required_literals(self._noise)]
        self._alike = _alike(self._noise)
        ranges = list(_ranges(parse_pattern(self._noise) or ())) if self._alike else []
        self.digits_alike = self._alike and not any(_some_digits(*ends) for ends in ranges)
        """True if noise with other digits is still noise."""
        parts = parse_pattern(self._noise) if self.digits_alike else None
        self.runs_alike = parts is not None and _as_long_as_they_are(parts)
        """True if noise with longer or shorter runs of digits or blanks is still noise."""
        newline = ord("\n")
        self._within_a_line = self._alike and not any(x <= newline <= y for x, y in ranges)

    def text(self, raw: bytes) -> str:
        """Return the clean text of a line's bytes."""
        return self._sub("", decode_line(raw))

    def strip(self, text: str) -> str:
        """Return a line's text without noise."""
        return self._sub("", text)

    def texts(self, lines: pa.LargeBinaryArray) -> pl.Series:
        """Return the clean texts of many lines, all ending with a newline.

        Polars finds the lines with noise, and cleans those in ASCII; Python cleans the others one
        by one. Python cleans all lines if Polars may see other noise than Python, or if a line is
        not UTF-8.
        """
        if not self._alike or len(lines) <= MAX_SINGLY_CLEANED_LINES:
            return self._each(lines.to_pylist())
        if (bare := self._bare(lines)) is not None:
            return bare
        series, text = pl.Series(lines), pl.col("text")
        try:
            checked = pl.DataFrame({"text": series.cast(pl.String)}).select(
                text.str.strip_chars_end(LINE_END_CHARS).alias("clean"),
                _may_hold(self._noise, text).alias("noisy"),
                (text.str.len_chars() != text.str.len_bytes()).alias("wide"),
                text.str.contains(NUL_CHAR, literal=True).alias("odd"),
                text,
            )
        except pl.exceptions.ComputeError:
            return self._each(lines.to_pylist())
        clean, noisy = checked["clean"], checked["noisy"].arg_true()
        if len(noisy):
            clean = clean.scatter(noisy, clean.gather(noisy).str.replace_all(self._noise, ""))
        wide, odd = checked["wide"].arg_true(), checked["odd"].arg_true()
        if len(wide):
            beyond = (
                checked["text"].gather(wide).str.contains(f"{UNSTABLE_NON_ASCII}|{self._noise}")
            )
            odd = pl.concat([odd, wide.filter(beyond)])
        return clean.scatter(odd, self._each(series.gather(odd))) if len(odd) else clean

    def join_clean_texts(self, line_groups: Sequence[bytes]) -> tuple[Ints, pl.Series]:
        """Return the indices of groups that are cleaned whole, and their clean texts.

        line_groups: bytes of lines. A group that may need cleaning line by line is left out.
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
            has_noise = may.str.contains(digits_are_ascii)  # a fourth of the time of new texts
            cleaned = may.filter(has_noise).str.replace_all(digits_are_ascii, "")
            texts = texts.scatter(pl.Series(noisy).filter(has_noise), cleaned)
        return np.array(which, np.int64), texts

    def _plain(self, data: bytes) -> bool:
        """Return whether only noise has to be removed from the bytes."""
        return self._within_a_line and NUL_CHAR.encode() not in data and not _beyond(data)

    def _may_hold_noise(self, data: bytes) -> bool:
        """Return whether a literal of the noise is in the bytes.

        True for noise without literals.
        """
        held = self._held_by_noise
        return not held or any(literal in data for literal in held)

    def _bare(self, lines: pa.LargeBinaryArray) -> pl.Series | None:
        """Return the texts of lines that lose only their newlines.

        None if other bytes may go.
        """
        _, offsets, data = lines.buffers()
        bounds = np.frombuffer(offsets, np.int64)[lines.offset :][: len(lines) + 1]
        every = data[bounds[0] : bounds[-1]].to_pybytes()
        odd = not every.isascii() or any(byte in every for byte in (b"\0", b"\r"))
        if odd or self._may_hold_noise(every):
            return None
        texts, offsets = every.replace(b"\n", b""), bounds - bounds[0] - np.arange(len(bounds))
        return pl.Series(line_array(copy_to_arrow(texts), offsets)).cast(pl.String)

    def _each(self, lines: Iterable[bytes]) -> pl.Series:
        """Return the texts, cleaned line by line."""
        return pl.Series([self.text(raw.removesuffix(b"\n")) for raw in lines], dtype=pl.String)


def to_valid_utf8(text: str) -> str:
    r"""Escape surrogate halves, which UTF-8 lacks and JSON may spell (`\ud800`)."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _decoded(several: Sequence[bytes]) -> pl.Series:
    """Return the bytes as texts. Raises ComputeError if any is not UTF-8."""
    bounds = np.cumsum([0, *map(len, several)])
    return pl.Series(line_array(copy_to_arrow(b"".join(several)), bounds)).cast(pl.String)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _beyond(data: bytes) -> bool:
    """Return whether there are non-ASCII characters that cleaning changes, or digits."""
    if data.isascii():
        return False
    every = np.frombuffer(data, np.uint8)
    characters = set(every[every >= MIN_NON_ASCII_BYTE].tobytes().decode(errors="replace"))
    return any(character in NORMALIZED_CHARS or character.isdecimal() for character in characters)


def _may_hold(noise: str, text: pl.Expr) -> pl.Expr:
    """Return whether a text may contain noise: a literal takes a fifth of the time."""
    literals = required_literals(noise)
    if len(literals) == 1:
        return text.str.contains(*literals, literal=True)
    return text.str.contains(noise)


@cache
def _alike(noise: str) -> bool:
    """Return whether Polars finds the same noise as Python."""
    parts = parse_pattern(noise)
    return parts is not None and _plain(parts)


def _plain(items: PatternParts) -> bool:
    """Return whether all engines match these parts alike.

    True for literals, digits, ranges, choices, and repeats of these.
    """
    return all(map(_plain_part, items))


def _plain_part(part: PatternPart) -> bool:
    name, said = str(part[0]), part[1]
    if name == "IN":
        return all(
            str(kind) in ("LITERAL", "RANGE") or str(item) == "CATEGORY_DIGIT"
            for kind, item in said
        )
    if name == "BRANCH":
        return all(map(_plain, said[1]))
    if name == "SUBPATTERN":
        return not (said[1] or said[2]) and _plain(said[3])
    return name == "LITERAL" or (name in REPEAT_OPS[:2] and _plain(said[2]))


def _ranges(items: PatternParts) -> Iterator[tuple[int, int]]:
    """Yield the first and last character of the ranges in parts, CATEGORY_DIGIT aside."""
    for name, said in items:
        match str(name):
            case "LITERAL":
                yield said, said
            case "IN":
                chosen = ((str(kind), item) for kind, item in said if str(kind) != "CATEGORY")
                yield from (item if kind == "RANGE" else (item, item) for kind, item in chosen)
            case "BRANCH":
                for choice in said[1]:
                    yield from _ranges(choice)
            case _:
                yield from _ranges(said[-1])


def _some_digits(first: int, last: int) -> bool:
    """Return whether a range contains some digits, but not all."""
    among = [first <= ord(digit) <= last for digit in "0123456789"]
    return any(among) and not all(among)


def _as_long_as_they_are(items: PatternParts) -> bool:
    """Return whether the parts match digit runs of any length, and no blanks.

    So every digit is in an unlimited repeat, and of adjacent repeats only one may need a digit. The
    parts are plain.
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
    """Return whether a part matches exactly one character."""
    return str(part[0]) in ("LITERAL", "IN")


def _takes(character: str, part: PatternPart) -> bool:
    """Return whether a part of one character matches this one; False for other parts."""
    name, said = str(part[0]), part[1]
    if name == "LITERAL":
        return bool(said == ord(character))
    return name == "IN" and any(
        str(item) == "CATEGORY_DIGIT" and character.isdigit()
        if str(kind) == "CATEGORY"
        else _among(item if str(kind) == "RANGE" else (item, item), character)
        for kind, item in said
    )


def _among(ends: tuple[int, int], character: str) -> bool:
    return ends[0] <= ord(character) <= ends[1]
