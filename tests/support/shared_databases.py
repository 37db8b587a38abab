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


def _readers_of(store: Store) -> list[duckdb.DuckDBPyConnection]:
    if _is_temporary(store):
        return _own(_readers)
    own: list[duckdb.DuckDBPyConnection] = store.__dict__.setdefault("_idle", [])
    return own


def _writers_of(store: Store) -> list[duckdb.DuckDBPyConnection]:
    if _is_temporary(store):
        return _own(_writers)
    own: list[duckdb.DuckDBPyConnection] = store.__dict__.setdefault("_idle_writers", [])
    return own


def _started(store: Store) -> duckdb.DuckDBPyConnection:
    return _start_temporary() if _is_temporary(store) else _start_reader(store)


def _started_writer(store: Store) -> duckdb.DuckDBPyConnection:
    return _start_temporary() if _is_temporary(store) else _start_writer(store)


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
        if schema not in begun or not _is_temporary(store):
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
    """Each store has databases that reach only this store, as ever outside tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "_idle", _own_list("_idle_"), raising=False)
        patch.setattr(Store, "_idle_writers", _own_list("_idle_writers_"), raising=False)
        patch.setattr(Store, "_locked_down", _start_reader)
        patch.setattr(Store, "_locked_down_writer", _start_writer)
        yield


def _own_list(name: str) -> property:
    """Return an attribute of a store that is a list of its own."""
    return property(
        lambda store: store.__dict__.setdefault(name, []),
        lambda store, idle: store.__dict__.__setitem__(name, idle),
    )
