"""One writer at a time: a lock on a file, which the system lets go when its holder ends.

The file says who holds it, so that another can say for whom it waits. Readers take no lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import IO, Final

from ..core.errors import StoreError, explain_write_error

LOCK_NAME: Final = "writer.lock"
DEFAULT_PATIENCE_S: Final = 30.0
POLL_INTERVAL_S: Final = 0.1


@contextmanager
def hold_lock(
    folder: Path,
    patience_s: float = DEFAULT_PATIENCE_S,
    on_wait: Callable[[str], None] = lambda _: None,
    folder_option: str = "--store",
) -> Iterator[None]:
    """Hold the lock of a folder.

    patience_s: how long to wait for another writer [s]; on_wait: gets one sentence when a wait
    begins; folder_option: by which another folder is given. Raises StoreError that names the holder
    when the wait is over.
    """
    with _opened(folder / LOCK_NAME, folder_option) as lock:
        _acquire(lock, folder, patience_s, on_wait, folder_option)
        lock.seek(0)
        lock.truncate()
        json.dump(_myself(), lock)
        lock.flush()
        yield


def _opened(path: Path, option: str) -> IO[str]:
    try:
        return path.open("a+", encoding="utf-8")
    except OSError as error:
        why, todo = explain_write_error(error, option)
        raise StoreError(f"{path.parent}: {why}. {todo}") from error


def _acquire(
    lock: IO[str],
    folder: Path,
    patience_s: float,
    waiting: Callable[[str], None],
    option: str,
) -> None:
    until, said = time.monotonic() + patience_s, False
    while not _taken(lock):
        if time.monotonic() >= until:
            raise StoreError(
                f"{folder}: {_holder(lock)} is writing there and did not end within "
                f"{patience_s:g} s. Wait for it to end, or give another {option}."
            )
        if not said:
            waiting(f"{folder}: {_holder(lock)} is writing there; waiting up to {patience_s:g} s")
            said = True
        time.sleep(POLL_INTERVAL_S)


def _taken(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _myself() -> dict[str, str | int]:
    return {
        "process": os.getpid(),
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:2]]),
        "host": socket.gethostname(),
        "since": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def _holder(lock: IO[str]) -> str:
    """Who holds the lock, as far as the file says: its holder may be about to write that."""
    with suppress(ValueError, KeyError, TypeError):
        lock.seek(0)
        told = json.load(lock)
        return (
            f"process {told['process']} ({told['command']}, on {told['host']} since "
            f"{told['since']})"
        )
    return "another process"
