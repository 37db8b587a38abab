"""Limits of the freed memory that the process keeps for later.

Peak memory includes the memory that an allocator keeps for later. A log is read in blocks of 4 MB,
as a hundred arrays of some MB, while threads read, hash and write. Memory that went back to the
system must be mapped again for the next block, page by page: a tenth of the time for XTuner v1.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from typing import Final

POLARS_ALLOCATOR: Final = {
    "_RJEM_MALLOC_CONF": "background_thread:true,dirty_decay_ms:500,muzzy_decay_ms:0,narenas:4"
}
"""Settings of Polars' allocator, jemalloc. The first two are Polars' own: pages unused for 500 ms
are only marked as free, and still count. The third setting gives them back. The last limits the
arenas to four for all threads: by default four per core, and every arena keeps some memory.
"""
GLIBC_ALLOCATOR: Final = {
    "MALLOC_ARENA_MAX": (-8, 1),
    "MALLOC_MMAP_THRESHOLD_": (-3, 32 * 1024 * 1024),
    "MALLOC_TRIM_THRESHOLD_": (-1, 1024 * 1024 * 1024),
}
"""Settings of glibc: variable, number in <malloc.h>, value. One arena for all threads: by default
every thread keeps up to 64 MB at the end of its own. A block's arrays exceed the default
thresholds, so their memory would go back after every block (32 MB is the maximum of the second).
`ingest.core.arrays.release_free_memory` gives free memory back.
"""


def limit_allocators() -> None:
    """Limit the memory that this process and its children keep; a user's settings win.

    Call it in a command before Polars is imported and before any thread starts.
    """
    for name, setting in POLARS_ALLOCATOR.items():
        os.environ.setdefault(name, setting)
    for name, (parameter, value) in GLIBC_ALLOCATOR.items():
        if name not in os.environ:
            os.environ[name] = str(value)
            with suppress(AttributeError, OSError, TypeError):  # another C library than GNU's
                ctypes.CDLL(None).mallopt(parameter, value)
