"""How much memory that was let go of stays with the process, and what goes back to the system.

It is measured by its peak, and what an allocator keeps for later is in it: a log is read in blocks
of 4 MB, each by a hundred arrays of some MB, while threads read, hash and write. What goes back has
to be taken anew for the next block, page by page: of XTuner v1 that was a tenth of the time.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from typing import Final

POLARS_ALLOCATOR: Final = {
    "_RJEM_MALLOC_CONF": "background_thread:true,dirty_decay_ms:500,muzzy_decay_ms:0,narenas:4"
}
"""The first two are Polars' own. Pages that it did not use for so long it only marks as free, which
go on counting; with the third it gives them back. With the last its threads take memory from four
places; from four for each core otherwise, and each place keeps some."""
GLIBC_ALLOCATOR: Final = {
    "MALLOC_ARENA_MAX": (-8, 1),
    "MALLOC_MMAP_THRESHOLD_": (-3, 32 * 1024 * 1024),
    "MALLOC_TRIM_THRESHOLD_": (-1, 1024 * 1024 * 1024),
}
"""Of GNU: its variable, the same in <malloc.h>, and the value. All threads take memory from one
place, where each keeps up to 64 MB at the end of its own otherwise; what a block takes is larger
than its own limits, so it would go back with each (32 MB are the most that the second may be). What
is free is given back by `ingest.core.arrays.release_free_memory`."""


def limit_allocators() -> None:
    """Have this process, and those that it starts, take little; what the user has set holds.

    For a command: before Polars is imported and before there are threads.
    """
    for name, setting in POLARS_ALLOCATOR.items():
        os.environ.setdefault(name, setting)
    for name, (parameter, value) in GLIBC_ALLOCATOR.items():
        if name not in os.environ:
            os.environ[name] = str(value)
            with suppress(AttributeError, OSError, TypeError):  # another C library than GNU's
                ctypes.CDLL(None).mallopt(parameter, value)
