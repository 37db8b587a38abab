"""The modules of fairmfu as text: their syntax trees, and what each imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.folders import ROOT

PACKAGES = ("ingest", "metrics", "reports")
"""The top-level folders; `fairmfu/` holds links to them, so fairmfu.ingest is ingest/."""
MODULES = sorted(
    path.relative_to(ROOT)
    for path in (ROOT / "cli.py", *(p for name in PACKAGES for p in (ROOT / name).rglob("*.py")))
)


@cache
def tree(module: Path) -> ast.Module:
    """Parse a module, given by its path from the project's root."""
    return ast.parse((ROOT / module).read_text(encoding="utf-8"))


@cache
def nodes(module: Path) -> tuple[ast.AST, ...]:
    """All nodes of a module's tree."""
    return tuple(ast.walk(tree(module)))


def module_name(module: Path) -> str:
    """Return the name of a module without `fairmfu.`.

    ingest/core/schema.py is ingest.core.schema.
    """
    parts = module.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_source(module: Path, node: ast.ImportFrom) -> str:
    """Return what a `from … import` is from, spelled out and without `fairmfu.`."""
    source = node.module or ""
    if node.level:
        package = module.with_suffix("").parts[: -node.level]
        return ".".join((*package, *filter(None, [source])))
    return source.removeprefix("fairmfu.") if source != "fairmfu" else ""


def imported_names(module: Path, nodes: Iterator[ast.AST]) -> Iterator[tuple[str, str]]:
    """Yield each imported name with the dotted name of what it is, without `fairmfu.`."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            source = import_source(module, node)
            yield from ((a.asname or a.name, f"{source}.{a.name}".strip(".")) for a in node.names)
        elif isinstance(node, ast.Import):
            names = (alias.name.removeprefix("fairmfu.") for alias in node.names)
            yield from ((name.split(".")[0], name) for name in names)


@cache
def is_module(name: str) -> bool:
    """Return whether a dotted name without `fairmfu.` is a module or a package of ours."""
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


@cache
def own_imports(module: Path) -> frozenset[str]:
    """Return the modules of ours that a module imports, also inside its functions."""
    names = {name for _, name in imported_names(module, nodes(module))}
    homes = {name if is_module(name) else name.rpartition(".")[0] for name in names}
    return frozenset(name for name in homes if name.split(".")[0] in (*PACKAGES, "cli"))
