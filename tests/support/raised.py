"""Which of our errors a function may raise, itself or by what it calls: read from the source.

Names are followed as far as the text tells what they are: functions, classes, modules, parameters
by their annotation, variables by what made them. What a handler or `suppress` takes is taken out.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TypeGuard

from fairmfu.ingest.core.errors import ErrorKind, FairmfuError
from tests.support.source_tree import MODULES, imported_names, module_name, tree

Errors = frozenset[type[BaseException]]
Caught = tuple[type[BaseException], ...]
Names = dict[str, str]
"""Names of a text, and the dotted name of what each is in this project."""


HELD = {
    # of targets that metrics.utilization.formula_inputs has tried
    (
        "metrics.utilization.formula_inputs.FormulaInputs.language_operators",
        "metrics.formula.flops.operators",
    ),
    (
        "metrics.utilization.image_work.trained_parts",
        "metrics.formula.vision.TrainedParts.__post_init__",
    ),
    (
        "metrics.utilization.image_work.trained_parts",
        "metrics.formula.flops.Trainable.__post_init__",
    ),
    # of kinds without adapters
    (
        "metrics.formula.vision.TrainedParts.trainable_of",
        "metrics.formula.flops.Trainable.__post_init__",
    ),
    (
        "metrics.utilization.image_work.ImageWork.operators_of",
        "metrics.formula.vision.counted_operators",
    ),
    (
        "metrics.utilization.utilization._hfu",
        "metrics.formula.flops.hardware_operators",
    ),
    ("metrics.audit.bridge._counts", "metrics.formula.flops.operators"),
    # of facts, whose values ingest.core.schema bounds
    (
        "metrics.utilization.formula_inputs._trainable",
        "metrics.formula.flops.Trainable.__post_init__",
    ),
    (
        "metrics.utilization.formula_inputs.operator_dtypes",
        "metrics.formula.precision.operator_formats",
    ),
    # of full training
    ("metrics.audit.other_tools.compare_other_formulas", "metrics.formula.flops.operators"),
    # what is raised there becomes the error of a run (metrics.pipeline.bulkhead)
    ("metrics.pipeline.analysis.analyse", "metrics.pipeline.analysis._analyse"),
    ("metrics.pipeline.incremental.rescore", "metrics.pipeline.incremental._rescore"),
    ("reports.page.report_data.build_content", "reports.page.report_data._whole"),
    # of rows of the table, all of which a test builds
    ("metrics.formula.accelerators._built", "metrics.formula.accelerators._accelerator"),
    # at the path of a store that stands
    ("ingest.store.store.Store.without_waiting", "ingest.store.store.Store.__init__"),
}
"""Callers and callees whose errors cannot come, for a reason that no text tells."""


@dataclass
class Function:
    """What stands in one function.

    names: what each is; of instances their class. used: functions and classes, each with what is
    caught there; raised: what it raises itself and does not catch.
    """

    names: Names
    instances: set[str] = field(default_factory=set)
    used: set[tuple[str, Caught]] = field(default_factory=set)
    raised: set[type[BaseException]] = field(default_factory=set)


class Source:
    """All functions of the packages, by dotted name."""

    def __init__(self) -> None:
        self.trees = {module_name(path): tree(path) for path in MODULES if path != Path("cli.py")}
        self.names = {
            module_name(path): self._top(path) for path in MODULES if path != Path("cli.py")
        }
        self.returns: Names = {}
        self.functions: dict[str, Function] = {}
        found = [one for name, body in self.trees.items() for one in _functions(name, body)]
        for module, dotted, node, _ in found:
            self.returns[dotted] = self._annotated(node.returns, self.names[module])
        for module, dotted, node, owner in found:
            self.functions[dotted] = self._read(module, node, owner)
        for one in self.functions.values():
            every = {(name, caught) for used, caught in one.used for name in _called(used)}
            one.used = {(name, caught) for name, caught in every if name in self.functions}
        for caller, callee in HELD:
            used = self.functions[caller].used
            assert callee in {name for name, _ in used}, f"{caller} calls no {callee}"
            self.functions[caller].used = {(n, caught) for n, caught in used if n != callee}

    def errors(self) -> dict[str, Errors]:
        """The errors of each function, until none comes to another any more."""
        out: dict[str, Errors] = dict.fromkeys(self.functions, frozenset())
        while True:
            now = {name: self._errors_of(one, out) for name, one in self.functions.items()}
            if now == out:
                return out
            out = now

    def _errors_of(self, one: Function, out: dict[str, Errors]) -> Errors:
        of = {(e, caught) for name, caught in one.used for e in out[name]}
        return frozenset(one.raised | {e for e, caught in of if not issubclass(e, caught)})

    def _top(self, path: Path) -> Names:
        module, body = module_name(path), tree(path)
        names = dict(imported_names(path, ast.walk(body)))
        defined = (ast.FunctionDef, ast.ClassDef)
        names |= {one.name: f"{module}.{one.name}" for one in body.body if isinstance(one, defined)}
        return names

    def resolved(self, dotted: str) -> str:
        """A name that a package only hands on, as where it stands."""
        package, _, name = dotted.rpartition(".")
        if package in self.trees and name in self.names[package]:
            return self.names[package][name]
        return dotted

    def _class(self, dotted: str) -> type[BaseException] | None:
        module, _, name = self.resolved(dotted).rpartition(".")
        found = (
            getattr(importlib.import_module(f"fairmfu.{module}"), name, None)
            if module in self.trees
            else None
        )
        error = found.error if isinstance(found, ErrorKind) else found
        return error if isinstance(error, type) and issubclass(error, FairmfuError) else None

    def _annotated(self, node: ast.expr | None, names: Names) -> str:
        """The class of ours that an annotation names, if it is one."""
        if isinstance(node, ast.BinOp):
            return self._annotated(node.left, names) or self._annotated(node.right, names)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return names.get(node.value, "")
        return self._named(node, names) if node is not None else ""

    def _named(self, node: ast.expr, names: Names) -> str:
        """What a name or an attribute is; empty where that is not told."""
        if isinstance(node, ast.Name):
            return self.resolved(names.get(node.id, ""))
        if isinstance(node, ast.Attribute):
            of = self._named(node.value, names)
            return self.resolved(f"{of}.{node.attr}") if of else ""
        if isinstance(node, ast.Call):
            made = self._named(node.func, names)
            return self.returns.get(made, made)
        return ""

    def _read(self, module: str, node: ast.FunctionDef, owner: str) -> Function:
        out = Function(dict(self.names[module]))
        every = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        for one in every:
            out.names[one.arg] = self._annotated(one.annotation, self.names[module])
        if owner and every:
            out.names[every[0].arg] = owner
        out.instances |= {one.arg for one in every}
        for one in ast.walk(node):
            if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
                self._made(one.targets[0].id, one.value, out)
            if isinstance(one, ast.withitem) and isinstance(one.optional_vars, ast.Name):
                self._made(one.optional_vars.id, one.context_expr, out)
        self._walk(node.body, (), out)
        return out

    def _made(self, name: str, value: ast.expr, out: Function) -> None:
        out.names[name] = self._named(value, out.names)
        out.instances.add(name)

    def _walk(self, body: Sequence[ast.AST], caught: Caught, out: Function) -> None:
        for node in body:
            if isinstance(node, ast.Try):
                taken = [h.type for h in node.handlers if h.type is not None]
                self._walk(node.body, self._with(taken, caught, out), out)
                self._walk([*node.handlers, *node.orelse, *node.finalbody], caught, out)
            elif isinstance(node, ast.With):
                calls = (item.context_expr for item in node.items)
                taken = [a for one in calls if _is_suppress(one) for a in one.args]
                self._walk(node.items, caught, out)
                self._walk(node.body, self._with(taken, caught, out), out)
            else:
                self._see(node, caught, out)
                self._walk(list(ast.iter_child_nodes(node)), caught, out)

    def _see(self, node: ast.AST, caught: Caught, out: Function) -> None:
        if isinstance(node, ast.Raise) and node.exc is not None:
            made = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            name = self._named(made, out.names)
            error = self._class(self.returns.get(name, name))
            out.raised |= {error} if error and not issubclass(error, caught) else set()
        known = isinstance(node, ast.Name) and node.id in out.instances
        if isinstance(node, ast.Name | ast.Attribute) and not known:
            out.used.add((self._named(node, out.names), caught))

    def _with(self, taken: Sequence[ast.expr], caught: Caught, out: Function) -> Caught:
        return (*caught, *(error for one in taken for error in self._taken(one, out.names)))

    def _taken(self, node: ast.expr, names: Names) -> Iterator[type[BaseException]]:
        if isinstance(node, ast.Tuple):
            for one in node.elts:
                yield from self._taken(one, names)
        elif found := self._class(self._named(node, names)):
            yield found
        elif isinstance(node, ast.Name):
            usual = {"ValueError": ValueError, "LookupError": LookupError, "Exception": Exception}
            yield from (usual[node.id],) if node.id in usual else ()


def _called(used: str) -> Iterator[str]:
    """A function by its name; of a class what runs when one is made."""
    yield used
    yield from (f"{used}.{method}" for method in ("__init__", "__post_init__"))


def _is_suppress(node: ast.expr) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == "suppress"


def _functions(module: str, tree: ast.Module) -> Iterator[tuple[str, str, ast.FunctionDef, str]]:
    """Module, dotted name, node and the class of each function; those within others are theirs."""
    for one in tree.body:
        if isinstance(one, ast.FunctionDef):
            yield module, f"{module}.{one.name}", one, ""
        elif isinstance(one, ast.ClassDef):
            owner = f"{module}.{one.name}"
            for method in one.body:
                if isinstance(method, ast.FunctionDef):
                    yield module, f"{owner}.{method.name}", method, owner


@cache
def raised() -> dict[str, Errors]:
    """The errors of each function of the packages, by dotted name."""
    return Source().errors()
