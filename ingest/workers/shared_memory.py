"""Bytes that processes hand each other through a file without a name that all of them have open.

A pipe holds 64 KiB. Who fills or empties it waits for the other side each time, and for Python's
lock, which whoever works in that process gives up every 5 ms: a block of a log and its plan took as
long to be handed over by pipes as to be planned. Here each is copied twice, and that is all.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from contextlib import suppress
from multiprocessing.reduction import DupFd
from typing import Any, Final, Protocol

SLOT_BYTES: Final = 64 * 1024 * 1024
"""Bytes of the file for each place. Only those that were written to take memory."""


class SharedSlots:
    """A file without a name, which processes are given when they are started.

    It has as many places as are written to. Whoever uses them sees to it that one is not written to
    before it was read.
    """

    def __init__(self, slot_bytes: int = SLOT_BYTES, file: int | None = None) -> None:
        """file: of another process."""
        self._place_bytes = slot_bytes
        self._file = _unnamed() if file is None else file
        weakref.finalize(self, os.close, self._file)

    def __reduce__(self) -> tuple[Any, ...]:
        return _given, (self._place_bytes, DupFd(self._file))

    def put(self, slot: int, data: bytes | memoryview) -> bool:
        """Write to a place; False where there is no room for so much."""
        if len(data) > self._place_bytes:
            return False
        at, rest = slot * self._place_bytes, memoryview(data)
        try:
            while rest:
                written = os.pwrite(self._file, rest, at)
                at, rest = at + written, rest[written:]
        except OSError:  # memory or disk are full
            return False
        return True

    def get(self, slot: int, size: int) -> bytes:
        """What was written to a place. Raises OSError where it is not whole."""
        data = os.pread(self._file, size, slot * self._place_bytes)
        if len(data) < size:
            raise OSError(f"{len(data)} of {size} bytes")
        return data


class _Sent(Protocol):
    """A file on its way to another process."""

    def detach(self) -> int:
        """The file's descriptor in the other process."""


def _given(place_bytes: int, file: _Sent) -> SharedSlots:
    return SharedSlots(place_bytes, file.detach())


def _unnamed() -> int:
    """In memory where the system has such files, and lets them be made."""
    with suppress(AttributeError, OSError):
        return os.memfd_create("fairmfu")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
