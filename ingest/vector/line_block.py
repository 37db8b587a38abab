"""Lines of a file, adjacent in memory."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa

from ..core.arrays import (
    CACHE_WINDOW_BYTES,
    Bytes,
    Ints,
    Words,
    cache_windows,
    copy_to_arrow,
    find_byte,
    take_values,
    view_at_every_byte,
)
from ..decode.line_reader import BYTES_AFTER_BLOCK, BYTES_BEFORE_BLOCK, NEWLINE

CARRIAGE_RETURN: Final = 13
ZERO_DIGIT: Final = np.uint8(ord("0"))
MAX_SHAPE_LINE_BYTES: Final = BYTES_AFTER_BLOCK - BYTES_BEFORE_BLOCK
"""Longest line that may become a shape."""
BLOCK_MARGIN_BYTES: Final = BYTES_BEFORE_BLOCK
"""Bytes before a block, so that reads at the block's ends stay inside the array.

After the block there is room for the margin and the longest line: the last line is compared with
shapes that may be longer.
"""
DIGIT_WINDOW_BYTES: Final = 32
"""Bytes after a position that are tested for digits at once."""
SPARSE_DIVISOR: Final = 16
"""Fewer than this part of the lines are tested one by one."""


class LineSpans:
    """Lines of a file, by their positions."""

    def __init__(self, first_number: int, data: bytes | memoryview, bounds: Ints) -> None:
        """Store the lines.

        first_number: of the first line
        data: whole lines, each with a newline
        bounds: begin of every line, counted from BLOCK_MARGIN_BYTES, and end of the last line
        """
        self.number, self.data, self.bounds = first_number, data, bounds

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @cached_property
    def sizes(self) -> Ints:
        """Bytes of every line without the newline, but with a carriage return."""
        return np.diff(self.bounds) - 1

    def numbered(self, first_number: int) -> LineSpans:
        """Return the same lines with another first number."""
        return LineSpans(first_number, self.data, self.bounds)

    def raw(self, line: int) -> bytes:
        """Return the bytes of a line (from 0), without the newline."""
        return bytes(
            self.data[
                self.bounds[line] - BLOCK_MARGIN_BYTES : self.bounds[line + 1]
                - 1
                - BLOCK_MARGIN_BYTES
            ]
        )

    def raws(self, lines: Ints) -> list[bytes]:
        """Return the bytes of several lines."""
        begins, stops = (
            self.bounds[lines] - BLOCK_MARGIN_BYTES,
            self.bounds[lines + 1] - 1 - BLOCK_MARGIN_BYTES,
        )
        spans = zip(begins.tolist(), stops.tolist(), strict=True)
        return [bytes(self.data[begin:stop]) for begin, stop in spans]

    def raws_of(self, numbers: Ints) -> list[bytes]:
        """Return the bytes of lines by their numbers in the file."""
        return self.raws(numbers - self.number)


class LineBlock(LineSpans):
    """Lines of a file in an array, for operations on all lines at once."""

    def __init__(
        self,
        first_number: int,
        data: bytes | memoryview,
        newlines: Ints | None = None,
        room: pa.Buffer | None = None,
    ) -> None:
        """Lay out a block of whole lines.

        first_number: of the first line
        data: whole lines, each with a newline
        newlines: positions of newlines in data, if known
        room: buffer with the data at BLOCK_MARGIN_BYTES, followed by at least BYTES_AFTER_BLOCK
            bytes of any value; by default the data are copied
        """
        size = len(data)
        self.buffer = (
            pa.allocate_buffer(BLOCK_MARGIN_BYTES + size + BYTES_AFTER_BLOCK)
            if room is None
            else room
        )
        self.bytes = np.frombuffer(self.buffer, np.uint8)[
            : BLOCK_MARGIN_BYTES + size + BYTES_AFTER_BLOCK
        ]
        if room is None:
            self.bytes[:BLOCK_MARGIN_BYTES] = self.bytes[BLOCK_MARGIN_BYTES + size :] = 0
            self.bytes[BLOCK_MARGIN_BYTES : BLOCK_MARGIN_BYTES + size] = np.frombuffer(
                data, np.uint8
            )
        self.words = view_at_every_byte(self.bytes, np.dtype("<u8"))
        if newlines is None:
            newlines = find_byte(np.frombuffer(data, np.uint8), NEWLINE)
        newlines = newlines + BLOCK_MARGIN_BYTES
        super().__init__(first_number, data, np.concatenate([[BLOCK_MARGIN_BYTES], newlines + 1]))
        self.starts = self.bounds[:-1]
        self.ends: Ints = newlines - (self.bytes[newlines - 1] == CARRIAGE_RETURN) * (
            newlines > self.starts
        )
        self.lengths: Ints = self.ends - self.starts

    def no_digits(self, starts: Ints) -> Words:
        """Return bits of the bytes after each position: 1 for bytes that are no digits.

        The bits cover at least DIGIT_WINDOW_BYTES bytes.
        """
        if len(starts) < len(self) // SPARSE_DIVISOR:
            rows = (
                view_at_every_byte(self.bytes, np.dtype("V64"))[starts]
                .view(np.uint8)
                .reshape(-1, 64)
            )
            return np.asarray(_no_digits(rows).view("<u8")[:, 0])
        return np.asarray(self._no_digits[starts >> 5] >> (starts & 31).astype(np.uint64))

    @cached_property
    def _no_digits(self) -> Words:
        """Bits of two windows of DIGIT_WINDOW_BYTES, starting at each window."""
        out = np.zeros(len(self.bytes) // DIGIT_WINDOW_BYTES + 2, "<u4")
        for index, part in enumerate(cache_windows(self.bytes)):
            bits, first = _no_digits(part), index * CACHE_WINDOW_BYTES // 8
            out.view(np.uint8)[first : first + len(bits)] = bits
        return np.asarray(out[:-1] | out[1:].astype(np.uint64) << np.uint64(32))

    def lines(self, indices: Ints) -> pa.LargeBinaryArray:
        """Return a copy of the bytes of these lines, each with a newline."""
        buffers = [None, copy_to_arrow(self.bounds), self.buffer]
        every = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(self), buffers)
        return take_values(every, indices)

    def texts(self, begins: Ints, stops: Ints) -> pa.StringArray:
        """Return a copy of the ASCII texts between these positions."""
        bounds = copy_to_arrow(np.column_stack([begins, stops]).astype(np.int32))
        count = 2 * len(begins) - 1
        every = pa.StringArray.from_buffers(count, bounds, self.buffer)
        return take_values(every, np.arange(0, count, 2))


def _no_digits(data: Bytes) -> Bytes:
    """Return a bit per byte, lowest first: 1 for bytes that are no digits."""
    return np.packbits(data - ZERO_DIGIT > 9, axis=-1, bitorder="little")  # noqa: PLR2004 - the last one
