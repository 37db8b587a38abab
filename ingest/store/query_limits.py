"""Limits of memory and time for one query."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Timer
from typing import Any, Final

import polars as pl

from ..core.errors import StoreError
from .messages import QUERY_TOO_LARGE

MAX_QUERY_BYTES: Final = 4 * 1024**3
MAX_QUERY_S: Final = 600.0
ROWS_AT_ONCE: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLimits:
    """Limits of one query.

    memory_bytes: of the database, and of the result [bytes]. timeout_s: until the end [s].
    """

    memory_bytes: int = MAX_QUERY_BYTES
    timeout_s: float = MAX_QUERY_S

    @contextmanager
    def timer(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """Call `interrupt` if the block takes longer than the limit."""
        timer = Timer(self.timeout_s, interrupt)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def rows_of(self, relation: Any) -> pl.DataFrame:  # noqa: ANN401 - of the database
        """Return the rows of a query. Raises StoreError if they need too much memory."""
        import pyarrow as pa  # noqa: PLC0415 - most commands do without

        reader = relation.to_arrow_reader(ROWS_AT_ONCE)
        batches, size = [], 0
        for batch in reader:
            batches.append(batch)
            size += batch.nbytes
            if size > self.memory_bytes:
                raise self.too_large()
        frame = pl.from_arrow(pa.Table.from_batches(batches, reader.schema))
        assert isinstance(frame, pl.DataFrame)  # noqa: S101 - of batches
        return frame

    def too_large(self) -> StoreError:
        """Return the error of a query that needs more memory."""
        return QUERY_TOO_LARGE(limit=f"{self.memory_bytes / 1024**3:.3g} GiB")
