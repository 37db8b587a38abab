"""File lock for the only writer of a store; released when the process ends.

The lock file names its holder for the message to a waiting writer. Readers take no lock.
"""

from __future__ import annotations

import errno
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

from ..core.errors import explain_write_error
from .messages import NOT_WRITABLE, STORE_LOCKED

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
    """Lock a folder for writing, and name this process in the lock file.

    patience_s: how long to wait for another writer [s].
    on_wait: receives one sentence when a wait begins.
    folder_option: command-line option for the folder, named in error messages.

    Raises StoreError with the name of the holder when the wait is over.
    """
    with _opened(folder / LOCK_NAME, folder_option) as lock:
        _acquire(lock, folder, patience_s, on_wait, folder_option)
        lock.seek(0)
        lock.truncate()
        json.dump(_myself(), lock)
        lock.flush()
        yield


def _opened(path: Path, option: str) -> IO[str]:
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.fdopen(os.open(path, flags, 0o666), "a+", encoding="utf-8")
    except OSError as error:
        if error.errno == errno.ELOOP:
            why, todo = f"{path.name} is a link, so it is not written", "delete the link"
            raise NOT_WRITABLE(folder=path.parent, why=why, remedy=todo) from error
        why, todo = explain_write_error(error, option)
        raise NOT_WRITABLE(folder=path.parent, why=why, remedy=todo) from error


def _acquire(
    lock: IO[str],
    folder: Path,
    patience_s: float,
    on_wait: Callable[[str], None],
    option: str,
) -> None:
    deadline, announced = time.monotonic() + patience_s, False
    while not _taken(lock):
        if time.monotonic() >= deadline:
            raise STORE_LOCKED(
                folder=folder, holder=_holder(lock), patience_s=patience_s, option=option
            )
        if not announced:
            on_wait(f"{folder}: {_holder(lock)} is writing there; waiting up to {patience_s:g} s")
            announced = True
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
    """Describe the holder, if the lock file already names one."""
    with suppress(ValueError, KeyError, TypeError):
        lock.seek(0)
        holder = json.load(lock)
        return (
            f"process {holder['process']} ({holder['command']}, on {holder['host']} since "
            f"{holder['since']})"
        )
    return "another process"
