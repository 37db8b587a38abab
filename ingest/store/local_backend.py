"""Where the parts of a store lie: in its folder, or at its address (ingest.store.object_backend).

What is written appears under its name whole or not at all: in a folder it is written aside, synced
and renamed, and the name synced.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

WRITING_SUFFIX: Final = ".writing"
"""Ending of a file that is not yet whole."""


class BatchConflictError(Exception):
    """Another machine has stored a batch of that number; plan anew on what stands now."""


class StoreBackend:
    """Files by their paths relative to the store.

    home: the folder of this machine that holds the catalogue. shared: whether other machines have
    catalogues of their own of it. read_by: the file system, as fsspec has it, by which a database
    reads what is not in a folder.
    """

    shared = False
    duckdb_filesystem: Any = None

    def __init__(self, home: Path) -> None:
        self.home = home

    def __str__(self) -> str:
        return str(self.home)

    def absolute(self) -> StoreBackend:
        """The shelf by its absolute path, for a process in another folder."""
        return StoreBackend(self.home.absolute())

    def at(self, path: str) -> str:
        """Where a file lies, as it is told to users and to DuckDB: by its absolute path."""
        return str((self.home / path).absolute())

    def prepare_reads(self, folder: str) -> None:
        """Before a database reads files of a folder."""

    def open(self, path: str) -> IO[bytes]:
        """For reading. Raises OSError."""
        return (self.home / path).open("rb")

    def size(self, path: str) -> int | None:
        """In bytes; None where there is no such file."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return (self.home / path).stat().st_size
        return None

    def listed(self, folder: str) -> list[str]:
        """Paths of all files in a folder, and in those within, in their order."""
        found = (path for path in (self.home / folder).rglob("*") if path.is_file())
        return sorted(path.relative_to(self.home).as_posix() for path in found)

    def modified_at(self, path: str) -> float | None:
        """When a file was written [s since 1970]; None where there is none."""
        with suppress(FileNotFoundError):
            return (self.home / path).stat().st_mtime
        return None

    def aside(self, path: str) -> Path:
        """Where a file of that path is to be written, for `put`."""
        aside = (self.home / path).with_suffix(WRITING_SUFFIX)
        if not aside.parent.exists():
            aside.parent.mkdir(parents=True, exist_ok=True)
            sync_to_disk(aside.parent.parent)
        return aside

    def put(self, staging_path: Path, path: str, *, exclusive: bool = False) -> None:  # noqa: ARG002
        """Have a file that was written aside under its name. Raises OSError.

        exclusive: where there is none, else OvertakenError; here the lock has seen to that.
        """
        target = self.home / path
        staging_path.rename(target)
        sync_to_disk(target.parent)

    def named(self, path: str) -> str:
        """The path of a file so that no other writer gives it; here the lock has seen to that."""
        return path

    def delete(self, path: str) -> None:
        """A file that may be gone already."""
        (self.home / path).unlink(missing_ok=True)


def sha256_of_file(file: IO[bytes]) -> str:
    """SHA-256 of what is left of a file. Raises OSError."""
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def sync_to_disk(path: Path) -> None:
    """Have the disk keep a file, or the names in a folder."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
