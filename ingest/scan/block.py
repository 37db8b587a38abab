"""Lines of a file, side by side in memory."""

from __future__ import annotations

from copy import copy
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.arrays import WINDOW, Bytes, Ints, owned, windows
from ingest.reader import NEWLINE

RETURN: Final = 13
LONGEST: Final = 4_000
"""Bytes of a line that may become a shape."""
MARGIN: Final = 64
"""Bytes before a block, so that what is read at its ends stays inside the array."""
BEHIND: Final = MARGIN + LONGEST
"""The same behind it: its last line is compared with shapes that may be longer."""


class Block:
    """Lines of a file."""

    def __init__(self, number: int, data: bytes) -> None:
        """number: of its first line; data: whole lines, each with its newline."""
        self.number, self.data = number, data
        size = len(data)
        self.buffer = pa.allocate_buffer(MARGIN + size + BEHIND)
        self.bytes = np.frombuffer(self.buffer, np.uint8)
        self.bytes[:MARGIN] = self.bytes[MARGIN + size :] = 0
        self.bytes[MARGIN : MARGIN + size] = np.frombuffer(data, np.uint8)
        self.words = view(self.bytes, np.dtype("<u8"))
        newlines = _places(self.bytes, NEWLINE)
        self.bounds: Ints = np.concatenate([[MARGIN], newlines + 1])
        self.starts = self.bounds[:-1]
        self.ends: Ints = newlines - (self.bytes[newlines - 1] == RETURN) * (newlines > self.starts)
        self.lengths: Ints = self.ends - self.starts

    def __len__(self) -> int:
        return len(self.starts)

    def numbered(self, number: int) -> Block:
        """The same lines, of which the first one has that number."""
        other = copy(self)
        other.number = number
        return other

    def lines(self, which: Ints) -> pa.LargeBinaryArray:
        """The bytes of these lines, each with its newline; a copy."""
        buffers = [None, owned(self.bounds), self.buffer]
        every = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(self), buffers)
        return every.take(pa.array(which))

    def raw(self, line: int) -> bytes:
        """The bytes of a line (from 0), without its newline."""
        return self.data[self.bounds[line] - MARGIN : self.bounds[line + 1] - 1 - MARGIN]

    def raws(self, lines: Ints) -> list[bytes]:
        """The same of several."""
        begins, stops = self.bounds[lines] - MARGIN, self.bounds[lines + 1] - 1 - MARGIN
        spans = zip(begins.tolist(), stops.tolist(), strict=True)
        return [self.data[begin:stop] for begin, stop in spans]


def _places(data: Bytes, byte: int) -> Ints:
    """Where that byte stands."""
    found = (np.flatnonzero(part == byte) for part in windows(data))
    return np.concatenate([places + at * WINDOW for at, places in enumerate(found)])


def view(buffer: Bytes, kind: np.dtype[Any]) -> NDArray[Any]:
    """Items of that kind at every byte of `buffer`; they overlap."""
    return np.ndarray((len(buffer) - kind.itemsize + 1,), kind, buffer, 0, (1,))
