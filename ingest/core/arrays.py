"""Arrays of numpy: names by content, and copies into memory of Arrow."""

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

pa.set_memory_pool(pa.system_memory_pool())  # Arrow's own pool keeps freed memory: 28 MB of a log


def release_free_memory() -> None:
    """Give free memory between used blocks back to the system.

    See ingest.core.allocator.

    This takes some ms after a large log, and allocating the memory again as long.
    """
    pa.default_memory_pool().release_unused()  # of the C library: Arrow's pool is the system's


CACHE_WINDOW_BYTES: Final = 128 * 1024
"""Bytes that fit the processor's cache during one pass."""


def cache_windows(data: Bytes) -> Iterator[Bytes]:
    """Return consecutive parts of an array that fit the processor's cache."""
    return (data[at : at + CACHE_WINDOW_BYTES] for at in range(0, len(data), CACHE_WINDOW_BYTES))


def find_byte(data: Bytes, byte: int) -> Ints:
    """Return the offsets of a byte in the data."""
    offsets = (np.flatnonzero(part == byte) for part in cache_windows(data))
    none = np.empty(0, np.int64)
    return np.concatenate(
        [none, *(within + index * CACHE_WINDOW_BYTES for index, within in enumerate(offsets))]
    )


def concatenate_ints(parts: Sequence[Ints]) -> Ints:
    """Return the parts joined; an empty array for no parts."""
    return np.concatenate(parts) if parts else np.empty(0, np.int64)


def view_at_every_byte(data: bytes | Bytes, item_type: np.dtype[Any]) -> NDArray[Any]:
    """Return a view of overlapping items, one at every byte of `data`."""
    return np.ndarray((max(0, len(data) - item_type.itemsize + 1),), item_type, data, 0, (1,))


def copy_to_arrow(data: bytes | pa.Buffer | NDArray[Any]) -> pa.Buffer:
    """Copy contiguous bytes into memory owned by Arrow.

    Memory of pa.py_buffer belongs to Python and is freed under Python's lock (GIL). A Polars thread
    waits for that lock to free the memory. A thread pickling a frame owns the lock and waits for
    Polars' thread: deadlock. So no buffer of py_buffer may get into Polars.
    """
    content = data.view(np.uint8) if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    buffer = pa.allocate_buffer(content.nbytes)
    np.frombuffer(buffer, np.uint8)[:] = content.reshape(-1)
    return buffer


# pa.array, and to_numpy, fill_null and take (by numpy's integers) of Arrow's arrays, check for
# objects of pandas: an installed pandas is imported for that, in 0.2 s and 45 MB.


def text_array(texts: Iterable[str]) -> pa.StringArray:
    """Return an Arrow array of texts."""
    raws = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, raws)], dtype=np.int32)
    return pa.StringArray.from_buffers(
        len(raws), copy_to_arrow(ends), copy_to_arrow(b"".join(raws))
    )


def take_values(values: pa.Array, indices: Ints) -> pa.Array:
    """Return the values at these indices."""
    buffers = [None, copy_to_arrow(indices.astype(np.int64, copy=False))]
    return values.take(pa.Array.from_buffers(pa.int64(), len(indices), buffers))


def integers_of(integers: pa.Array, null_value: int) -> Ints:
    """Return the integers of an Arrow array, with `null_value` for null."""
    return _numbers(integers, null_value).astype(np.int64, copy=False)


def _numbers(numbers: pa.Array, null_value: float) -> NDArray[Any]:
    """Return the numbers of an Arrow array, with `null_value` for null.

    For a short array, this takes a tenth of Polars' time.
    """
    validity, data = numbers.buffers()
    span = slice(numbers.offset, numbers.offset + len(numbers))
    values = np.frombuffer(data or b"", str(numbers.type))[span]
    if not numbers.null_count:
        return values
    bits = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")
    return np.where(bits[span], values, null_value)


def take_rows(frame: pl.DataFrame, indices: Ints) -> pl.DataFrame:
    """Return the rows at these indices, in Polars' own memory except for viewed texts.

    Indices are cast to Polars' own type: Polars would search any other for negative ones.
    """
    return frame[pl.Series(indices.astype(np.uint32))]


def column_values(column: pl.Series, null_value: float) -> NDArray[Any]:
    """Return the values of a column of numbers, with `null_value` for null."""
    nulls = column.null_count()
    if nulls == len(column):
        return np.full(nulls, null_value)
    return _numbers(column.to_arrow(), null_value) if nulls else column.to_numpy()


def distinct_integers(numbers: Ints) -> Ints:
    """Return the sorted distinct values of integers from 0 on.

    Much faster than np.unique if the largest value is small.
    """
    return np.flatnonzero(np.bincount(numbers))
