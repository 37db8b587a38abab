"""Names that a package exports from its modules, imported on first use (PEP 562).

A package lists its purpose in one place, and an import of one of its modules, the usual case here,
loads no other. Type checkers read the same names from the imports under TYPE_CHECKING.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def on_demand(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package.

    modules: name to module, relative to the package. No name may be a module too: an import of that
    module would replace the name.
    """

    def get(name: str) -> Any:  # noqa: ANN401 - any object of a module
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(modules[name], package), name)

    return get
