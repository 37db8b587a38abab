"""Files of a store in a local folder.

Stores at an address use ingest.store.object_backend.

A file appears under its name complete or not at all: written aside, synced, renamed, and the folder
synced.
"""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from .messages import LINKED_PART
from .part_paths import WRITING_SUFFIX, check_part_path


class BatchConflictError(Exception):
    """Another machine has stored a batch of this number: plan again on the new state."""


class StoreBackend:
    """Files of a store by their relative paths.

    home: local folder of the catalogue. shared: True if other machines have their own catalogue of
    this store. duckdb_filesystem: fsspec file system through which DuckDB reads parts that are not
    in a folder, else None.
    """

    shared = False
    duckdb_filesystem: Any = None

    def __init__(self, home: Path) -> None:
        self.home = home

    def __str__(self) -> str:
        return str(self.home)

    def absolute(self) -> StoreBackend:
        """Return the backend with an absolute path, for a process in another folder."""
        return StoreBackend(self.home.absolute())

    def at(self, path: str) -> str:
        """Return the absolute path of a file, for messages and for DuckDB."""
        return str((self.home / path).absolute())

    def prepare_reads(self, folder: str) -> None:
        """Prepare a folder for reads by DuckDB; nothing to do for local files."""

    def readable(self, path: str) -> str:
        """Return the absolute path of a part that may be read.

        Raises StoreError if the path is not that of a part, or leads out of the store.
        """
        place = self._place(path)
        with suppress(FileNotFoundError):
            mode = place.lstat().st_mode
            if not stat.S_ISREG(mode):
                what = "a link" if stat.S_ISLNK(mode) else "this kind of file"
                raise LINKED_PART(path=place.absolute(), what=what)
        return str(place.absolute())

    def _place(self, path: str) -> Path:
        """Return the place of a part whose real folder is that of its table.

        Raises StoreError otherwise.
        """
        place = self.home / check_part_path(path)
        folder = os.path.realpath(place.parent)
        if folder != str(Path(os.path.realpath(self.home), path).parent):
            raise LINKED_PART(path=place.parent.absolute(), what="a linked folder")
        return place

    def open(self, path: str) -> IO[bytes]:
        """Open a part for reading. Raises OSError, StoreError as `readable`."""
        return Path(self.readable(path)).open("rb")

    def size(self, path: str) -> int | None:
        """Return the size of a file [bytes], None if missing."""
        with suppress(FileNotFoundError, NotADirectoryError):
            return self._place(path).lstat().st_size
        return None

    def listed(self, folder: str) -> list[str]:
        """Return the paths of all files under a folder, recursively and sorted.

        Raises StoreError if the folder is a link.
        """
        for place in (self.home / folder, *(self.home / folder).parents):
            if place == self.home:
                break
            if place.is_symlink():
                raise LINKED_PART(path=place.absolute(), what="a linked folder")
        found = (path for path in (self.home / folder).rglob("*") if path.is_file())
        return sorted(path.relative_to(self.home).as_posix() for path in found)

    def modified_at(self, path: str) -> float | None:
        """Return the modification time of a file [s since 1970], None if missing."""
        with suppress(FileNotFoundError):
            return self._place(path).lstat().st_mtime
        return None

    def aside(self, path: str) -> Path:
        """Return the path to write a file to before `put`; make its folder."""
        aside = self._place(path).with_suffix(WRITING_SUFFIX)
        aside.unlink(missing_ok=True)  # a link here would be written through
        if not aside.parent.exists():
            aside.parent.mkdir(parents=True, exist_ok=True)
            sync_to_disk(aside.parent.parent)
        return aside

    def put(self, staging_path: Path, path: str, *, exclusive: bool = False) -> None:  # noqa: ARG002
        """Rename a file written aside to its final path, and sync. Raises OSError.

        exclusive: raise BatchConflictError if the path exists; unused here because of the store's
        lock.
        """
        target = self._place(path)
        staging_path.rename(target)
        sync_to_disk(target.parent)

    def named(self, path: str) -> str:
        """Return a path unique among writers; unchanged here because of the store's lock."""
        return path

    def delete(self, path: str) -> None:
        """Delete a file, if present."""
        self._place(path).unlink(missing_ok=True)


def sha256_of_file(file: IO[bytes]) -> str:
    """Return the SHA-256 of the rest of a file. Raises OSError."""
    return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]


def sync_to_disk(path: Path) -> None:
    """Sync a file, or the names in a folder, to the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
