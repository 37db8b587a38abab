"""No function is longer than what fits on a screen, its docstring apart."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from tests.support.source_tree import MODULES, module_name, tree

MAX_FUNCTION_LINES: Final = 40
"""From `def` to the end, without the docstring; decorators are not counted."""


def function_lines(body: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each function's name with the lines that it has beside its docstring."""
    for node in ast.walk(body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            docstring = first if ast.get_docstring(node, clean=False) is not None else None
            yield node.name, _lines(node) - (0 if docstring is None else _lines(docstring))


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_no_function_is_longer_than_a_screen() -> None:
    found = {
        f"{module_name(module)}.{name}": lines
        for module in MODULES
        for name, lines in function_lines(tree(module))
        if lines > MAX_FUNCTION_LINES
    }
    assert found == {}


def test_lines_are_counted_from_def_to_the_end_without_the_docstring() -> None:
    body = ast.parse('@cache\ndef f(\n    a,\n):\n    """One.\n\n    Two.\n    """\n    return a\n')
    assert list(function_lines(body)) == [("f", 4)]
