"""How memory that was let go of goes back to the system.

It is measured by its peak, and what an allocator keeps for later is in it: a log is read in blocks
of 4 MB, each by a hundred arrays of some MB, while threads read, hash and write.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from typing import Final

POLARS: Final = {"_RJEM_MALLOC_CONF": "background_thread:true,dirty_decay_ms:500,muzzy_decay_ms:0"}
"""The first two are Polars' own. Pages that it did not use for so long it only marks as free, which
go on counting; with the last it gives them back."""
M_ARENA_MAX: Final = -8
"""Of <malloc.h>."""


def sparing() -> None:
    """Have this process, and those that it starts, keep little; what the user has set holds.

    For a command: before Polars is imported and before there are threads. By itself the C library
    has each thread take memory from a place of its own, and keeps up to 64 MB at the end of each.
    """
    for name, setting in POLARS.items():
        os.environ.setdefault(name, setting)
    if "MALLOC_ARENA_MAX" not in os.environ:
        with suppress(AttributeError, OSError, TypeError):  # another C library than GNU's
            ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
