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

from fairmfu.ingest.store.catalogue import sql_literal
from fairmfu.ingest.store.store import Store

Idle = dict[tuple[int, int], list[duckdb.DuckDBPyConnection]]
"""By process and thread: a fork has no use for its parent's."""

TEMPORARY: Final = Path(tempfile.gettempdir())
"""As it was at first: a test may set another."""

_start_reader = Store._locked_down
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


def _started(store: Store) -> duckdb.DuckDBPyConnection:
    """Locked down like that of one store, to all temporary files."""
    if not _is_temporary(store):
        return _start_reader(store)
    connection = duckdb.connect()
    connection.execute("set enable_external_file_cache = false")  # other tests, the same paths
    connection.execute(f"set allowed_directories = [{sql_literal(str(TEMPORARY))}]")
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")
    return connection


@contextmanager
def shared_writers() -> Iterator[None]:
    """Stores write with databases that others have started."""
    with pytest.MonkeyPatch.context() as patch:
        own = property(lambda _: _own(_writers), lambda *_: None)
        patch.setattr(Store, "_idle_writers", own, raising=False)
        yield


@contextmanager
def shared_readers() -> Iterator[None]:
    """Stores in temporary folders read with databases that others have started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "_idle", property(_readers_of, lambda *_: None), raising=False)
        patch.setattr(Store, "_locked_down", _started)
        yield


@contextmanager
def own_readers() -> Iterator[None]:
    """Each store reads with a database that reaches only this store, as ever outside tests."""
    with pytest.MonkeyPatch.context() as patch:
        own = property(
            lambda store: store.__dict__.setdefault("_idle", []),
            lambda store, idle: store.__dict__.__setitem__("_idle", idle),
        )
        patch.setattr(Store, "_idle", own, raising=False)
        patch.setattr(Store, "_locked_down", _start_reader)
        yield
