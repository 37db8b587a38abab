"""Databases in memory that all stores of a test process take turns with.

A store starts one to read and one to write. That takes longer than to read a short log, and tests
make thousands of stores.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import duckdb
import pytest

from fairmfu.ingest.core.schema import SCHEMA_VERSION
from fairmfu.ingest.store.catalogue import sql_literal, table_schemas
from fairmfu.ingest.store.store import Store

Idle = dict[tuple[int, int], list[duckdb.DuckDBPyConnection]]
"""By process and thread: a fork has no use for its parent's."""

TEMPORARY: Final = Path(tempfile.gettempdir())
"""As it was at first: a test may set another."""

_start_reader = Store._locked_down
_start_writer = Store._locked_down_writer
_readers: Idle = defaultdict(list)
_writers: Idle = defaultdict(list)


def _own(idle: Idle) -> list[duckdb.DuckDBPyConnection]:
    return idle[os.getpid(), threading.get_ident()]


def _is_temporary(store: Store) -> bool:
    return not store.shelf.shared and store.path.absolute().is_relative_to(TEMPORARY)


def _is_written_in_temporary(store: Store) -> bool:
    """The catalogue of a store at an address is written in a folder, too."""
    return store.home.absolute().is_relative_to(TEMPORARY)


def _readers_of(store: Store) -> list[duckdb.DuckDBPyConnection]:
    if _is_temporary(store):
        return _own(_readers)
    own: list[duckdb.DuckDBPyConnection] = store.__dict__.setdefault("_idle", [])
    return own


def _writers_of(store: Store) -> list[duckdb.DuckDBPyConnection]:
    if _is_written_in_temporary(store):
        return _own(_writers)
    own: list[duckdb.DuckDBPyConnection] = store.__dict__.setdefault("_idle_writers", [])
    return own


def _started(store: Store) -> duckdb.DuckDBPyConnection:
    return _start_temporary() if _is_temporary(store) else _start_reader(store)


def _started_writer(store: Store) -> duckdb.DuckDBPyConnection:
    return _start_temporary() if _is_written_in_temporary(store) else _start_writer(store)


def _start_temporary() -> duckdb.DuckDBPyConnection:
    """Locked down like that of one store, to all temporary files."""
    connection = duckdb.connect()
    connection.execute("set enable_external_file_cache = false")  # other tests, the same paths
    connection.execute(f"set allowed_directories = [{sql_literal(str(TEMPORARY))}]")
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")
    return connection


@contextmanager
def shared_writers() -> Iterator[None]:
    """Stores in temporary folders write with databases that others have started."""
    with pytest.MonkeyPatch.context() as patch:
        own = property(_writers_of, lambda *_: None)
        patch.setattr(Store, "_idle_writers", own, raising=False)
        patch.setattr(Store, "_locked_down_writer", _started_writer)
        yield


@contextmanager
def shared_readers() -> Iterator[None]:
    """Stores in temporary folders read with databases that others have started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "_idle", property(_readers_of, lambda *_: None), raising=False)
        patch.setattr(Store, "_locked_down", _started)
        yield


@contextmanager
def shared_beginnings() -> Iterator[None]:
    """Stores in temporary folders begin with a copy of an empty catalogue of their schema."""
    begun: dict[str, bytes] = {}
    begin = Store._begin

    def copied(store: Store) -> None:
        schema = f"{SCHEMA_VERSION} {table_schemas()}"
        if schema not in begun or not _is_written_in_temporary(store):
            begin(store)
            begun[schema] = store._catalogue.read_bytes()
        else:
            store._catalogue.write_bytes(begun[schema])
            store._remember_checked(store._catalogue_state())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "_begin", copied)
        yield


@contextmanager
def own_readers() -> Iterator[None]:
    """Stores have databases that reach only this store, as ever outside tests.

    All commands over one store take turns with them, until there is one over another store.
    """
    kept = _OfOneStore()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "_idle", kept.idle("reader"), raising=False)
        patch.setattr(Store, "_idle_writers", kept.idle("writer"), raising=False)
        patch.setattr(Store, "_locked_down", _start_reader)
        patch.setattr(Store, "_locked_down_writer", _start_writer)
        yield


class _OfOneStore:
    """Idle databases of the store that was used last, and of stores at addresses their own."""

    def __init__(self) -> None:
        self._path: Path | None = None
        self._idle: dict[object, list[duckdb.DuckDBPyConnection]] = {}

    def idle(self, kind: str) -> property:
        """Return an attribute of a store: those that are as free as its own would be."""
        return property(partial(self._of, kind), lambda *_: None)

    def _of(self, kind: str, store: Store) -> list[duckdb.DuckDBPyConnection]:
        if store.shelf.shared:
            return store.__dict__.setdefault(f"_idle_{kind}", [])  # type: ignore[no-any-return]
        if (path := store.path.absolute()) != self._path:
            self._path, self._idle = path, {}
        of = kind, store.memory_bytes, os.getpid(), threading.get_ident()
        return self._idle.setdefault(of, [])
