"""Arrays of numpy: their names by what they hold, and how their memory goes to Arrow and Polars."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]

pa.set_memory_pool(pa.system_memory_pool())  # Arrow's own keeps what it once had: 28 MB of a log's


def release_free_memory() -> None:
    """Give the system back memory that is free between what is in use (see ingest.core.allocator).

    After a large log that takes some ms, and taking the memory anew as many.
    """
    pa.default_memory_pool().release_unused()  # of the C library, for its memory is Arrow's


CACHE_WINDOW_BYTES: Final = 128 * 1024
"""Bytes that stay in the processor's cache while they are looked at."""


def cache_windows(data: Bytes) -> Iterator[Bytes]:
    """Parts of an array that stay in the processor's cache, one behind the other."""
    return (data[at : at + CACHE_WINDOW_BYTES] for at in range(0, len(data), CACHE_WINDOW_BYTES))


def find_byte(data: Bytes, byte: int) -> Ints:
    """Places in the data that have that byte."""
    found = (np.flatnonzero(part == byte) for part in cache_windows(data))
    none = np.empty(0, np.int64)
    return np.concatenate(
        [none, *(here + at * CACHE_WINDOW_BYTES for at, here in enumerate(found))]
    )


def concatenate_ints(parts: Sequence[Ints]) -> Ints:
    """The parts one behind the other; none of none."""
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def view_at_every_byte(data: bytes | Bytes, item_type: np.dtype[Any]) -> NDArray[Any]:
    """Items of that kind at every byte of `data`; they overlap."""
    return np.ndarray((max(0, len(data) - item_type.itemsize + 1),), item_type, data, 0, (1,))


def copy_to_arrow(data: bytes | pa.Buffer | NDArray[Any]) -> pa.Buffer:
    """A copy of contiguous bytes in memory of Arrow's own.

    What pa.py_buffer makes belongs to Python: it is let go of under Python's lock. A thread of
    Polars that does so waits for whoever has that lock, and who pickles a frame has it while it
    waits for that thread: neither goes on. So nothing made by py_buffer is to get into Polars.
    """
    content = data.view(np.uint8) if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    buffer = pa.allocate_buffer(content.nbytes)
    np.frombuffer(buffer, np.uint8)[:] = content.reshape(-1)
    return buffer


# pa.array, and to_numpy, fill_null and take (by numpy's integers) of Arrow's arrays, ask whether
# they deal with pandas: where that is installed, they import it, which is 0.2 s and 45 MB.


def text_array(texts: Iterable[str]) -> pa.StringArray:
    """Texts as an array of Arrow."""
    raws = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, raws)], dtype=np.int32)
    return pa.StringArray.from_buffers(
        len(raws), copy_to_arrow(ends), copy_to_arrow(b"".join(raws))
    )


def take_values(values: pa.Array, indices: Ints) -> pa.Array:
    """The values at these places."""
    buffers = [None, copy_to_arrow(indices.astype(np.int64, copy=False))]
    return values.take(pa.Array.from_buffers(pa.int64(), len(indices), buffers))


def integers_of(integers: pa.Array, null_value: int) -> Ints:
    """Integers of Arrow's, `null_value` for null."""
    return _numbers(integers, null_value).astype(np.int64, copy=False)


def _numbers(found: pa.Array, nothing: float) -> NDArray[Any]:
    """Numbers of Arrow's, `nothing` for null; of few, in a tenth of the time that Polars takes."""
    held, data = found.buffers()
    among = slice(found.offset, found.offset + len(found))
    numbers = np.frombuffer(data or b"", str(found.type))[among]
    if not found.null_count:
        return numbers
    bits = np.unpackbits(np.frombuffer(held, np.uint8), bitorder="little")
    return np.where(bits[among], numbers, nothing)


def take_rows(frame: pl.DataFrame, indices: Ints) -> pl.DataFrame:
    """The rows at these places, in memory of Polars' own but for what its texts view.

    Places as Polars has them, or it would look through all of them for negative ones.
    """
    return frame[pl.Series(indices.astype(np.uint32))]


def column_values(column: pl.Series, null_value: float) -> NDArray[Any]:
    """The values of a column of numbers, `null_value` for null."""
    nulls = column.null_count()
    if nulls == len(column):
        return np.full(nulls, null_value)
    return _numbers(column.to_arrow(), null_value) if nulls else column.to_numpy()


def distinct_integers(numbers: Ints) -> Ints:
    """Which of the numbers from 0 on are there: of few ones, much faster than np.unique."""
    return np.flatnonzero(np.bincount(numbers))
