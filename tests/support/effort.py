"""How much a test tries: `make thorough` has those that draw at random draw more, and reads all."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Final

import pytest
from hypothesis import settings

THOROUGH: Final = "FAIRMFU_THOROUGH" in os.environ

sampled = pytest.mark.sampled
"""Of a module, `pytestmark = sampled(3)`: each third case of each of its tests runs, by `make
thorough` all of them. For cases that are many of one kind; the first of each test runs."""


def sampled_items(items: Sequence[pytest.Item]) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """Those that run, and those of `sampled` modules that do not."""
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    seen: Counter[str] = Counter()
    for item in items:
        mark = None if THOROUGH else item.get_closest_marker("sampled")
        of_test = item.nodeid.partition("[")[0]
        (left if mark is not None and seen[of_test] % mark.args[0] else kept).append(item)
        seen[of_test] += 1
    return kept, left


thorough_only = pytest.mark.skipif(not THOROUGH, reason="long: make thorough, make test-ray")
every_log = pytest.mark.skipif(not THOROUGH, reason="reads every log: make thorough")

costly = settings(max_examples=100 if THOROUGH else 8, deadline=None)
"""Of a test that draws: each example is analysed as a log is."""
