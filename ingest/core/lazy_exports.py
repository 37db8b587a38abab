"""Names of a package that stand in its modules, imported when they are asked for (PEP 562).

So a package says in one place what it is for, and whoever takes one of its modules, as all do here,
pays for no other. Type checkers read the same names from the imports under TYPE_CHECKING.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def on_demand(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package: homes is the module of each name, relative to it.

    No name may be a module's too: whoever imports that module would put it in the name's place.
    """

    def get(name: str) -> Any:  # noqa: ANN401 - whatever stands there
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name], package), name)

    return get
