"""Checks of an error's identifier, so that tests do not depend on its words."""

from __future__ import annotations

from collections.abc import Callable


def of_kind(identifier: str, *parts: str) -> Callable[[BaseException], bool]:
    """Return a check for `pytest.raises(…, check=…)`.

    parts: values in the text, such as the name of a file or a key
    """
    return lambda error: (
        getattr(error, "kind", None) == identifier and all(part in str(error) for part in parts)
    )
