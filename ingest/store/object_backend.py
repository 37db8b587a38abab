"""Where the parts of a store lie that has an address: behind a prefix of an object store.

An object appears whole or not at all, and a record only where there is none of its number: of two
machines that write at once one is overtaken, and plans anew on what the other stored. So neither
needs a lock that both see. The catalogue of such a store is a cache in a folder of this machine.
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

from ..core.errors import StoreError
from ..core.paths import URL_SEPARATOR, open_filesystem, translated_store_errors
from .local_backend import BatchConflictError, StoreBackend

CACHE_VARIABLE: Final = "FAIRMFU_CACHE"
"""Environment variable: where catalogues of such stores lie; by default in the user's cache."""


CONDITIONAL_PUT_PROTOCOLS: Final = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")
"""Protocols whose libraries put an object only where there is none: s3fs by If-None-Match, gcsfs
(2026.10.1) by ifGenerationMatch=0, adlfs (2026.8.0) by overwrite=False. Others look first and write
then, and two machines might both find nothing."""


class ObjectBackend(StoreBackend):
    """Objects by their keys behind the store's address."""

    shared = True

    def __init__(self, address: str) -> None:
        """Raises StoreError where two machines could harm each other."""
        if (protocol := address.partition(URL_SEPARATOR)[0]) not in CONDITIONAL_PUT_PROTOCOLS:
            raise StoreError(
                f"{address}: a store cannot lie at {protocol}{URL_SEPARATOR}, where two machines "
                f"that write at once may overwrite each other. Give a folder, or an address of: "
                f"{', '.join(CONDITIONAL_PUT_PROTOCOLS)}."
            )
        self.address = address
        super().__init__(_home(address))

    def __reduce__(self) -> tuple[type[ObjectBackend], tuple[str]]:
        """Other processes connect by themselves."""
        return ObjectBackend, (self.address,)

    def __str__(self) -> str:
        return self.address

    @cached_property
    def files(self) -> Any:  # noqa: ANN401 - fsspec's
        """The file system, as fsspec has it."""
        with translated_store_errors(self.address):
            files, _ = open_filesystem(self.address)
        return files

    def absolute(self) -> ObjectBackend:
        """An address is one from wherever it is given."""
        return self

    def at(self, path: str) -> str:
        """Where an object lies, as it is told to users and to DuckDB."""
        return f"{self.address}/{path}"

    @cached_property
    def duckdb_filesystem(self) -> Any:  # noqa: ANN401
        """The file system for a database, which asks twenty times what an object is before reading.

        Through fsspec, for its own way needs an extension.
        """
        with translated_store_errors(self.address):
            files, _ = open_filesystem(
                self.address, use_listings_cache=True, skip_instance_cache=True
            )
        return files

    def prepare_reads(self, folder: str) -> None:
        """List the objects of a folder, for a database that is to read of them."""
        self.duckdb_filesystem.invalidate_cache(self.at(folder))
        with translated_store_errors(self.at(folder)), suppress(FileNotFoundError):
            self.duckdb_filesystem.ls(self.at(folder))

    def open(self, path: str) -> IO[bytes]:
        """The whole object, for reading. Raises OSError."""
        with translated_store_errors(self.at(path)):
            return io.BytesIO(self.files.cat_file(self.at(path)))

    def size(self, path: str) -> int | None:
        """In bytes; None where there is no such object."""
        with translated_store_errors(self.at(path)), suppress(FileNotFoundError):
            return int(self.files.info(self.at(path))["size"])
        return None

    def listed(self, folder: str) -> list[str]:
        """Paths of all objects behind a prefix, in their order."""
        prefix = len(self.files._strip_protocol(self.address)) + 1  # noqa: SLF001 - fsspec has it so
        with translated_store_errors(self.at(folder)):
            return sorted(name[prefix:] for name in self.files.find(self.at(folder)))

    def modified_at(self, path: str) -> float | None:
        """When an object was written [s since 1970]; None where there is none."""
        with translated_store_errors(self.at(path)), suppress(FileNotFoundError):
            return float(self.files.modified(self.at(path)).timestamp())
        return None

    def aside(self, path: str) -> Path:
        """Where it is to be written on this machine, for `put`."""
        aside = self.home / "aside" / f"{token_hex(8)}-{path.rpartition('/')[2]}"
        aside.parent.mkdir(parents=True, exist_ok=True)
        return aside

    def put(self, staging_path: Path, path: str, *, exclusive: bool = False) -> None:
        """Have a file that was written aside as an object.

        exclusive: where there is none. Raises OSError; OvertakenError where there is another one.
        """
        taken = False
        try:
            with translated_store_errors(self.at(path)):
                try:
                    mode = "create" if exclusive else "overwrite"
                    self.files.put_file(str(staging_path), self.at(path), mode=mode)
                except FileExistsError:
                    taken = True
            if taken and not self._is(staging_path, path):  # else ours: its answer was lost
                raise BatchConflictError
        finally:
            staging_path.unlink(missing_ok=True)

    def _is(self, aside: Path, path: str) -> bool:
        """Whether an object holds what a file does."""
        with self.open(path) as there:
            return there.read() == aside.read_bytes()

    def delete(self, path: str) -> None:
        """An object that may be gone already."""
        with translated_store_errors(self.at(path)), suppress(FileNotFoundError):
            self.files.rm_file(self.at(path))

    def named(self, path: str) -> str:
        """A name that no other writer gives: two may be at the same batch."""
        stem, ending = os.path.splitext(path)  # noqa: PTH122 - no file of this machine
        return f"{stem}-{token_hex(4)}{ending}"


def _home(address: str) -> Path:
    """The folder of this machine that holds the catalogue of a store of that address."""
    given = os.environ.get(CACHE_VARIABLE) or os.environ.get("XDG_CACHE_HOME")
    cache = Path(given) if given else Path("~/.cache").expanduser()
    name = hashlib.sha256(address.encode()).hexdigest()[:16]
    return (cache if os.environ.get(CACHE_VARIABLE) else cache / "fairmfu") / "stores" / name
