"""Lines of a file, side by side in memory."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from ..core.arrays import WINDOW, Bytes, Ints, Words, at_every_byte, owned, places, taken, windows
from ..decode.line_reader import BEFORE, BEHIND, NEWLINE

RETURN: Final = 13
ZERO: Final = np.uint8(ord("0"))
LONGEST: Final = BEHIND - BEFORE
"""Bytes of a line that may become a shape."""
MARGIN: Final = BEFORE
"""Bytes before a block, so that what is read at its ends stays inside the array; as many and the
longest line are behind it: its last line is compared with shapes that may be longer."""
SEEN: Final = 32
"""Bytes from a place on of which it is asked whether they are digits."""
FEW: Final = 16
"""Of so many lines one, or fewer, are looked at by themselves."""


class Lines:
    """Lines of a file, by their places."""

    def __init__(self, number: int, data: bytes | memoryview, bounds: Ints) -> None:
        """number: of the first one; data: whole lines, each with its newline.

        bounds: where each begins, counted from MARGIN, and where the last one ends.
        """
        self.number, self.data, self.bounds = number, data, bounds

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @cached_property
    def sizes(self) -> Ints:
        """Bytes of each line without its newline, but with the return before that."""
        return np.diff(self.bounds) - 1

    def numbered(self, number: int) -> Lines:
        """The same lines, of which the first one has that number."""
        return Lines(number, self.data, self.bounds)

    def raw(self, line: int) -> bytes:
        """The bytes of a line (from 0), without its newline."""
        return bytes(self.data[self.bounds[line] - MARGIN : self.bounds[line + 1] - 1 - MARGIN])

    def raws(self, lines: Ints) -> list[bytes]:
        """The same of several."""
        begins, stops = self.bounds[lines] - MARGIN, self.bounds[lines + 1] - 1 - MARGIN
        spans = zip(begins.tolist(), stops.tolist(), strict=True)
        return [bytes(self.data[begin:stop]) for begin, stop in spans]

    def raws_of(self, numbers: Ints) -> list[bytes]:
        """The same of lines by their numbers in the file."""
        return self.raws(numbers - self.number)


class Block(Lines):
    """The same, laid out so that they can be looked at all at once."""

    def __init__(
        self,
        number: int,
        data: bytes | memoryview,
        newlines: Ints | None = None,
        room: pa.Buffer | None = None,
    ) -> None:
        """number: of its first line; data: whole lines, each with its newline; these, if known.

        room: where the data begin at MARGIN, with BEHIND bytes or more behind them, whatever these
        are; by default they are copied.
        """
        size = len(data)
        self.buffer = pa.allocate_buffer(MARGIN + size + BEHIND) if room is None else room
        self.bytes = np.frombuffer(self.buffer, np.uint8)[: MARGIN + size + BEHIND]
        if room is None:
            self.bytes[:MARGIN] = self.bytes[MARGIN + size :] = 0
            self.bytes[MARGIN : MARGIN + size] = np.frombuffer(data, np.uint8)
        self.words = at_every_byte(self.bytes, np.dtype("<u8"))
        if newlines is None:
            newlines = places(np.frombuffer(data, np.uint8), NEWLINE)
        newlines = newlines + MARGIN
        super().__init__(number, data, np.concatenate([[MARGIN], newlines + 1]))
        self.starts = self.bounds[:-1]
        self.ends: Ints = newlines - (self.bytes[newlines - 1] == RETURN) * (newlines > self.starts)
        self.lengths: Ints = self.ends - self.starts

    def no_digits(self, at: Ints) -> Words:
        """Of SEEN bytes or more from each of these places on a bit: set where one is no digit."""
        if len(at) < len(self) // FEW:
            rows = at_every_byte(self.bytes, np.dtype("V64"))[at].view(np.uint8).reshape(-1, 64)
            return np.asarray(_no_digits(rows).view("<u8")[:, 0])
        return np.asarray(self._no_digits[at >> 5] >> (at & 31).astype(np.uint64))

    @cached_property
    def _no_digits(self) -> Words:
        """The same of twice as many from each SEEN bytes on."""
        out = np.zeros(len(self.bytes) // SEEN + 2, "<u4")
        for at, part in enumerate(windows(self.bytes)):
            bits, first = _no_digits(part), at * WINDOW // 8
            out.view(np.uint8)[first : first + len(bits)] = bits
        return np.asarray(out[:-1] | out[1:].astype(np.uint64) << np.uint64(32))

    def lines(self, which: Ints) -> pa.LargeBinaryArray:
        """The bytes of these lines, each with its newline; a copy."""
        buffers = [None, owned(self.bounds), self.buffer]
        every = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(self), buffers)
        return taken(every, which)

    def texts(self, begins: Ints, stops: Ints) -> pa.StringArray:
        """The bytes from each of these places to its other one, ASCII in their order; a copy."""
        bounds = owned(np.column_stack([begins, stops]).astype(np.int32))
        count = 2 * len(begins) - 1
        every = pa.StringArray.from_buffers(count, bounds, self.buffer)
        return taken(every, np.arange(0, count, 2))


def _no_digits(data: Bytes) -> Bytes:
    """A bit of each byte, the first one the lowest: set where it is no digit."""
    return np.packbits(data - ZERO > 9, axis=-1, bitorder="little")  # noqa: PLR2004 - the last one
