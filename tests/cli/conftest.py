"""Commands read a store with a database that can reach only this store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import shared_databases


@pytest.fixture(autouse=True, scope="module")
def databases_are_their_stores() -> Iterator[None]:
    with shared_databases.own_readers():
        yield
