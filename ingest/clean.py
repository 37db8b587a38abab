"""The text of lines: decoded, without what colours it; of one line, or of many at once."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from ingest.prefilter import REPEATS, Part, Parts, parsed
from ingest.reader import text_of

ANSI: Final = r"\x1b\[[0-9;]*[A-Za-z]"
ODD: Final = r"[\x00\x{A0}\x{10000}-\x{10FFFF}]|\r[^\n]"
"""What `text_of` may change, and characters of which the tables of Polars may be newer."""
ENDS: Final = "\r\n"
BEYOND_16_BITS: Final = 0xF0
"""First byte in UTF-8 of the first character of more bits."""


def lines_of(data: bytes, starts: NDArray[np.int64]) -> pl.Series:
    """The bytes of lines that begin there, each with its newline."""
    buffers = [None, pa.py_buffer(np.append(starts, len(data))), pa.py_buffer(data)]
    every = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(starts), buffers)
    return pl.Series(every)


class Cleaner:
    """What a format's lines say without its noise: a regex, else the colours of a terminal."""

    def __init__(self, noise: str | None) -> None:
        self._noise = noise = noise or ANSI
        self._sub = re.compile(noise).sub
        self._odd = _odd_with(noise)
        self._plain = bool(self._odd)

    def text(self, raw: bytes) -> str:
        """Of a line's bytes."""
        return self._sub("", text_of(raw))

    def strip(self, text: str) -> str:
        """A line's text without its noise."""
        return self._sub("", text)

    def texts(self, lines: pl.Series) -> pl.Series:
        """Of many lines, each with its newline (a series of bytes).

        Polars finds those that hold something to clean; they are cleaned one by one. All are where
        it may see noise otherwise than Python does, or one line is no UTF-8.
        """
        try:
            texts = lines.cast(pl.String)
        except pl.exceptions.ComputeError:
            return pl.Series([self.text(raw.removesuffix(b"\n")) for raw in lines], dtype=pl.String)
        odd = texts.str.contains(self._odd).arg_true()
        cleaned = [self.text(raw.removesuffix(b"\n")) for raw in lines.gather(odd)]
        return texts.str.strip_chars_end(ENDS).scatter(odd, cleaned)

    def texts_in(self, data: bytes, lines: pl.Series) -> pl.Series:
        """The same of all lines of `data`: by Polars alone where none of its bytes may be odd."""
        if self._plain and not may_be_odd(data):
            with suppress(pl.exceptions.ComputeError):
                texts = lines.cast(pl.String).str.strip_chars_end(ENDS)
                return texts.str.replace_all(self._noise, "")
        return self.texts(lines)


@cache
def _odd_with(noise: str) -> str:
    """A regex of Polars that finds what may have to be cleaned; one of anything, where need be."""
    parts = parsed(noise)
    return f"{ODD}|{noise}" if parts is not None and _plain(parts) else ""


def may_be_odd(data: bytes) -> bool:
    """Whether some line may hold what `text_of` changes within it, or a character beyond 16 bits.

    What is no UTF-8 is not looked for.
    """
    beyond = np.frombuffer(data, np.uint8).max(initial=0) >= BEYOND_16_BITS
    return bool(beyond) or b"\0" in data or b"\xc2\xa0" in data


def _plain(items: Parts) -> bool:
    """Whether every engine finds the same: literals, digits, ranges, choices, repeats of them."""
    return all(map(_plain_part, items))


def _plain_part(part: Part) -> bool:
    name, said = str(part[0]), part[1]
    if name == "IN":
        return all(
            str(kind) in ("LITERAL", "RANGE") or str(one) == "CATEGORY_DIGIT" for kind, one in said
        )
    if name == "BRANCH":
        return all(map(_plain, said[1]))
    if name == "SUBPATTERN":
        return not (said[1] or said[2]) and _plain(said[3])
    return name == "LITERAL" or (name in REPEATS[:2] and _plain(said[2]))
