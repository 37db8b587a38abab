"""Texts of many lines put together by bytes, without a Python string of each."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from ingest.arrays import Bytes, Ints, Words, owned
from ingest.scan.block import Block

Part = bytes | Bytes
"""Of texts: the same of all, or a row of bytes of each."""
INLINE: Final = 12
"""Bytes of a text that stand in its view."""
FIRST: Final = np.array([(1 << (8 * n)) - 1 for n in range(9)], dtype=np.uint64)
"""The first n bytes of a word of eight."""


def quoted(block: Block, begins: Ints, stops: Ints, head: Words | None = None) -> pl.Series:
    """Texts of a block, as views of its bytes: where one is long, they hold all of it in memory.

    head: the first eight bytes of each, and what is behind it.
    """
    sizes = (stops - begins).astype(np.uint64)
    head = block.words[begins] if head is None else head
    views = np.empty((len(begins), 2), np.uint64)
    views[:, 0] = sizes | head << np.uint64(32)
    views[:, 1] = begins.astype(np.uint64) << np.uint64(32)
    short = np.flatnonzero(sizes <= INLINE)
    if len(short):  # these stand in their views, with zeros behind them
        sizes, head = sizes[short], head[short]
        tail = head >> np.uint64(32) | block.words[begins[short] + 8] << np.uint64(32)
        low = head & np.uint64(0xFFFFFFFF) & FIRST[np.minimum(sizes, 4)]
        views[short, 0] = sizes | low << np.uint64(32)
        views[short, 1] = tail & FIRST[np.maximum(sizes, 4) - 4]
    return _viewed(views, block.buffer if len(short) < len(begins) else None)


def is_view(texts: pl.Series) -> bool:
    """Whether they are a view of the bytes of a block, which these hold in memory."""
    return bool((texts.str.len_bytes() > INLINE).any())


def laid(parts: Sequence[Part], rows: int) -> pl.Series:
    """Texts that are all as long: the parts of each, one behind the other."""
    widths = [len(part) if isinstance(part, bytes) else part.shape[1] for part in parts]
    size = sum(widths)
    data = pa.allocate_buffer(rows * size)
    text = np.frombuffer(data, np.uint8).reshape(rows, size)
    same = (
        part if isinstance(part, bytes) else bytes(width)
        for part, width in zip(parts, widths, strict=True)
    )
    text[:] = np.frombuffer(b"".join(same), np.uint8)  # at once: most are short
    for part, end in zip(parts, accumulate(widths), strict=True):
        if not isinstance(part, bytes):
            text[:, end - part.shape[1] : end] = part
    views = np.zeros((rows, 4), np.uint32)
    views[:, 0] = size
    inside = min(size, 4 if size > INLINE else INLINE)
    views.view(np.uint8)[:, 4 : 4 + inside] = text[:, :inside]
    if size > INLINE:
        views[:, 3] = np.arange(0, rows * size, size)
    return _viewed(views, data if size > INLINE else None)


def _viewed(views: NDArray[Any], data: pa.Buffer | None) -> pl.Series:
    """Texts of views, 16 bytes each, and the bytes that they view, if any."""
    buffers = [None, owned(views), *([] if data is None else [data])]
    return pl.Series(pl.from_arrow(pa.Array.from_buffers(pa.string_view(), len(views), buffers)))
