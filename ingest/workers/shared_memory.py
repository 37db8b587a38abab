"""Bytes passed between processes through an unnamed file, open in all of them.

A pipe has room for 64 KiB. Reads and writes wait for the other side and for Python's lock, which a
busy process releases every 5 ms: passing a block and the plan through pipes took as long as
planning. Here the bytes are copied twice, without waiting.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from contextlib import suppress
from multiprocessing.reduction import DupFd
from typing import Any, Final, Protocol

SLOT_BYTES: Final = 64 * 1024 * 1024
"""Size of one slot of the file [bytes]; unwritten bytes need no memory."""


class SharedSlots:
    """Slots in an unnamed file, inherited by processes at their start.

    The number of slots is unlimited. Read a slot before writing to the slot again.
    """

    def __init__(self, slot_bytes: int = SLOT_BYTES, file: int | None = None) -> None:
        """Open a new file, or use `file`, the descriptor from another process."""
        self._place_bytes = slot_bytes
        self._file = _unnamed() if file is None else file
        weakref.finalize(self, os.close, self._file)

    def __reduce__(self) -> tuple[Any, ...]:
        return _given, (self._place_bytes, DupFd(self._file))

    def put(self, slot: int, data: bytes | memoryview) -> bool:
        """Write to a slot; return False if there is not enough room."""
        if len(data) > self._place_bytes:
            return False
        offset, rest = slot * self._place_bytes, memoryview(data)
        try:
            while rest:
                written = os.pwrite(self._file, rest, offset)
                offset, rest = offset + written, rest[written:]
        except OSError:  # no memory or disk left
            return False
        return True

    def get(self, slot: int, size: int) -> bytes:
        """Return the bytes in a slot. Raises OSError if incomplete."""
        data = os.pread(self._file, size, slot * self._place_bytes)
        if len(data) < size:
            raise OSError(f"{len(data)} of {size} bytes")
        return data


class _Sent(Protocol):
    """File descriptor on its way to another process."""

    def detach(self) -> int:
        """Return the descriptor in the other process."""


def _given(place_bytes: int, file: _Sent) -> SharedSlots:
    return SharedSlots(place_bytes, file.detach())


def _unnamed() -> int:
    """Open an unnamed file, in memory if the system supports this."""
    with suppress(AttributeError, OSError):
        return os.memfd_create("fairmfu")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
