"""Checks of an error's identifier, so that tests do not depend on its words."""

from __future__ import annotations

from collections.abc import Callable


def of_kind(identifier: str) -> Callable[[BaseException], bool]:
    """Return a check for `pytest.raises(…, check=…)`."""
    return lambda error: getattr(error, "kind", None) == identifier
