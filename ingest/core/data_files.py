"""Tables that are installed with the code, as TOML beside the module that knows their rows."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any


@cache
def read_data_file(package: str, name: str) -> Mapping[str, Any]:
    """Read a TOML file of a package, once: when its first row is asked for.

    package: as `__package__` has it
    """
    return tomllib.loads(resources.files(package).joinpath(name).read_text(encoding="utf-8"))
