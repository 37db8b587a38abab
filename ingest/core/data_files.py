"""Tables installed with the code, as TOML files next to their module."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any


@cache
def read_data_file(package: str, name: str) -> Mapping[str, Any]:
    """Read a TOML file of a package, once, at the first use of a row.

    package: its `__package__`
    """
    return tomllib.loads(resources.files(package).joinpath(name).read_text(encoding="utf-8"))
