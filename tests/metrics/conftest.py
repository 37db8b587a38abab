"""What several tests of metrics share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.bad_rows import clear_caches


@pytest.fixture
def unbuilt() -> Iterator[None]:
    """Tables of which no row is built; rows that the test plants are forgotten after it."""
    clear_caches()
    yield
    clear_caches()
