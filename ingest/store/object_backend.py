"""Files of a store at an address: objects under a prefix of an object store.

An object appears complete or not at all, and a record only if its number is free. Of two machines
that write at once, one gets a BatchConflictError and plans again on the new state. No shared lock
is needed. The catalogue of such a store is a cache in a local folder.
"""

from __future__ import annotations

import hashlib
import io
import os
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from secrets import token_hex
from typing import IO, Any, Final

from ..core.paths import URL_SEPARATOR, open_filesystem, translated_store_errors
from .local_backend import BatchConflictError, StoreBackend
from .messages import UNSAFE_PROTOCOL
from .part_paths import check_part_path

CACHE_VARIABLE: Final = "FAIRMFU_CACHE"
"""Environment variable for the folder of local catalogues; default: the user's cache folder."""


CONDITIONAL_PUT_PROTOCOLS: Final = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")
"""Protocols whose libraries can put an object only if the key is free: s3fs by If-None-Match, gcsfs
(2026.10.1) by ifGenerationMatch=0, adlfs (2026.8.0) by overwrite=False. Other libraries check first
and write afterwards, so two machines may both find the key free.
"""


class ObjectBackend(StoreBackend):
    """Objects of a store, by keys under its address."""

    shared = True

    def __init__(self, address: str) -> None:
        """Raise StoreError if the protocol lets two machines overwrite each other."""
        if (protocol := address.partition(URL_SEPARATOR)[0]) not in CONDITIONAL_PUT_PROTOCOLS:
            raise UNSAFE_PROTOCOL(
                address=address,
                protocol=f"{protocol}{URL_SEPARATOR}",
                protocols=", ".join(CONDITIONAL_PUT_PROTOCOLS),
            )
        self.address = address
        super().__init__(_home(address))

    def __reduce__(self) -> tuple[type[ObjectBackend], tuple[str]]:
        """Pickle the address alone; other processes open their own connection."""
        return ObjectBackend, (self.address,)

    def __str__(self) -> str:
        return self.address

    @cached_property
    def files(self) -> Any:  # noqa: ANN401 - fsspec's
        """The fsspec file system."""
        with translated_store_errors(self.address):
            files, _ = open_filesystem(self.address)
        return files

    def absolute(self) -> ObjectBackend:
        """Return the backend itself: an address is always absolute."""
        return self

    def at(self, path: str) -> str:
        """Return the address of an object, for messages and for DuckDB."""
        return f"{self.address}/{path}"

    @cached_property
    def duckdb_filesystem(self) -> Any:  # noqa: ANN401
        """The fsspec file system for DuckDB, with cached listings.

        DuckDB asks for the properties of an object twenty times before reading. Its own access to
        object stores needs an extension.
        """
        with translated_store_errors(self.address):
            files, _ = open_filesystem(
                self.address, use_listings_cache=True, skip_instance_cache=True
            )
        return files

    def prepare_reads(self, folder: str) -> None:
        """List the objects of a folder into the cache that DuckDB's reads use."""
        self.duckdb_filesystem.invalidate_cache(self.at(folder))
        with translated_store_errors(self.at(folder)), suppress(FileNotFoundError):
            self.duckdb_filesystem.ls(self.at(folder))

    def readable(self, path: str) -> str:
        """Return the address of a part. Raises StoreError for any other path."""
        return self.at(check_part_path(path))

    def open(self, path: str) -> IO[bytes]:
        """Return the whole object, for reading. Raises OSError, StoreError as `readable`."""
        with translated_store_errors(self.at(path)):
            return io.BytesIO(self.files.cat_file(self.readable(path)))

    def size(self, path: str) -> int | None:
        """Return the size of an object [bytes], None if missing."""
        with translated_store_errors(self.at(path)), suppress(FileNotFoundError):
            return int(self.files.info(self.readable(path))["size"])
        return None

    def listed(self, folder: str) -> list[str]:
        """Return the sorted paths of all objects under a prefix."""
        prefix = len(self.files._strip_protocol(self.address)) + 1  # noqa: SLF001 - no public name
        with translated_store_errors(self.at(folder)):
            return sorted(name[prefix:] for name in self.files.find(self.at(folder)))

    def modified_at(self, path: str) -> float | None:
        """Return the modification time of an object [s since 1970], None if missing."""
        with translated_store_errors(self.at(path)), suppress(FileNotFoundError):
            return float(self.files.modified(self.readable(path)).timestamp())
        return None

    def aside(self, path: str) -> Path:
        """Return the local path to write an object to before `put`."""
        aside = self.home / "aside" / f"{token_hex(8)}-{path.rpartition('/')[2]}"
        aside.parent.mkdir(parents=True, exist_ok=True)
        return aside

    def put(self, staging_path: Path, path: str, *, exclusive: bool = False) -> None:
        """Upload a file written aside, and delete the local file. Raises OSError.

        exclusive: raise BatchConflictError if the key has a different object.
        """
        taken = False
        try:
            with translated_store_errors(self.at(path)):
                try:
                    mode = "create" if exclusive else "overwrite"
                    self.files.put_file(str(staging_path), self.readable(path), mode=mode)
                except FileExistsError:
                    taken = True
            if taken and not self._is(staging_path, path):  # equal: our own, its answer was lost
                raise BatchConflictError
        finally:
            staging_path.unlink(missing_ok=True)

    def _is(self, aside: Path, path: str) -> bool:
        """Return whether an object equals a local file."""
        with self.open(path) as there:
            return there.read() == aside.read_bytes()

    def delete(self, path: str) -> None:
        """Delete an object, if present."""
        with translated_store_errors(self.at(path)), suppress(FileNotFoundError):
            self.files.rm_file(self.readable(path))

    def named(self, path: str) -> str:
        """Return a unique path: two writers may be writing the same batch."""
        stem, ending = os.path.splitext(path)  # noqa: PTH122 - no file of this machine
        return f"{stem}-{token_hex(4)}{ending}"


def _home(address: str) -> Path:
    """Return the local folder for the catalogue of the store at this address."""
    configured = os.environ.get(CACHE_VARIABLE) or os.environ.get("XDG_CACHE_HOME")
    cache = Path(configured) if configured else Path("~/.cache").expanduser()
    name = hashlib.sha256(address.encode()).hexdigest()[:16]
    return (cache if os.environ.get(CACHE_VARIABLE) else cache / "fairmfu") / "stores" / name
