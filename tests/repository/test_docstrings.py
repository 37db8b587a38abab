"""Docstrings: all that is public has one; those of the surface say units, errors and an example."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairmfu import ingest, metrics, reports
from fairmfu.ingest import FairmfuError, Store
from fairmfu.ingest.core.errors import ClusterError
from fairmfu.metrics.pipeline.column_docs import COMPARISON_MEANINGS, METRIC_MEANINGS
from tests.repository.test_architecture import param
from tests.support.folders import ROOT
from tests.support.raised import raised
from tests.support.source_tree import MODULES, PACKAGES, tree

TITAN = ROOT / "sample_logs" / "synthetic" / "torchtitan"
NAME = "llama3-8b-8xh100-torchtitan"
PUBLIC = [(package, name) for package in (ingest, metrics, reports) for name in package.__all__]
SURFACE = {name: getattr(package, name) for package, name in PUBLIC}
SAID = {name: inspect.getdoc(one) or "" for name, one in SURFACE.items()}


def each(names: Iterator[str] | list[str]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", names)


# --- all that is public ------------------------------------------------------------------------


def undocumented(body: list[ast.stmt], within: str = "") -> Iterator[str]:
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if node.name.startswith("_"):
            continue
        if not ast.get_docstring(node):
            yield f"{within}{node.name}"
        if isinstance(node, ast.ClassDef):
            yield from undocumented(node.body, f"{within}{node.name}.")


@param(MODULES)
def test_every_public_function_class_and_method_has_a_docstring(module: Path) -> None:
    assert list(undocumented(tree(module).body)) == []


# --- the surface -------------------------------------------------------------------------------


def test_the_packages_give_their_names_when_asked_and_no_others() -> None:
    for package, name in PUBLIC:
        assert getattr(package, name).__module__.startswith(f"{package.__name__}.")
        assert name in (package.__doc__ or ""), f"{package.__name__} does not say what {name} is"
    with pytest.raises(AttributeError, match="no attribute 'analyze'"):
        _ = metrics.analyze


@each(PACKAGES)
def test_type_checkers_see_the_names_that_are_given(name: str) -> None:
    """What stands under TYPE_CHECKING is what is imported when asked for, from where it is."""
    told = {
        alias.name: node.module
        for node in ast.walk(tree(Path(name, "__init__.py")))
        if isinstance(node, ast.ImportFrom)
        and node.module not in ("typing", "fairmfu.ingest.core.lazy_exports")
        for alias in node.names
    }
    package = importlib.import_module(f"fairmfu.{name}")
    assert sorted(told) == sorted(package.__all__)
    for one, module in told.items():
        assert getattr(package, one) is getattr(importlib.import_module(module), one)


@each(PACKAGES)
def test_no_name_is_a_module_too(name: str) -> None:
    """Whoever imports that module would put it in the name's place."""
    package = importlib.import_module(f"fairmfu.{name}")
    assert {one for one in package.__all__ if (ROOT / name / one).exists()} == set()


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "fairmfu" / "py.typed").is_file()


def test_the_commands_use_the_surface_and_not_what_it_stands_for() -> None:
    taken = [n for n in ast.walk(tree(Path("cli.py"))) if isinstance(n, ast.ImportFrom)]
    surface = {f"fairmfu.{package}" for package in PACKAGES}
    packaged = {alias.name for n in taken if n.module in surface for alias in n.names}
    assert set(SURFACE) - packaged <= {
        *("analyse", "read_logs", "per_step", "price")
    }  # no command of their own
    homes = {SURFACE[name].__module__ for name in packaged & set(SURFACE)}
    beside = {f"{n.module}.{a.name}" for n in taken if n.module in homes for a in n.names}
    assert {name for name in beside if name.rpartition(".")[2] in SURFACE} <= {
        "fairmfu.metrics.compare.cost.price"
    }


# --- what their docstrings say -----------------------------------------------------------------

UNITS = {unit for unit, _ in (METRIC_MEANINGS | COMPARISON_MEANINGS).values() if unit}
UNITS |= {"days", "bytes", "pixels", "fraction", "ratio", "%", "FLOPs"}
TEXTS = {"str", "list[Path]"}


def bracketed(said: str) -> list[tuple[list[str], str]]:
    """Names and the unit that stands behind them: `tgs, tgs_low [tokens/s/GPU, steady]`."""
    found = re.findall(
        r"((?:[\w*]+(?:\s*\([^)]*\))?,\s+)*[\w*]+(?:\s*\([^)]*\))?)\s+\[([^\]]+)\]", said
    )
    return [(re.findall(r"\w+", names), " ".join(unit.split())) for names, unit in found]


def unit_of(text: str) -> str | None:
    """The unit that a bracket begins with: `FLOP/s of one GPU`, `ratio to the best`."""
    return max(
        (unit for unit in UNITS if re.match(rf"{re.escape(unit)}(?![^\s,])", text)),
        key=len,
        default=None,
    )


@each([name for name, one in SURFACE.items() if inspect.isfunction(one)])
def test_what_gives_numbers_says_their_units(name: str) -> None:
    if inspect.get_annotations(SURFACE[name])["return"] not in TEXTS:
        given_on = "units stay" in SAID[name] or "per hour" in SAID[name]
        assert bracketed(SAID[name]) or given_on, f"{name} says no unit"


@each(list(SURFACE))
def test_brackets_hold_units_that_are_those_of_the_tables(name: str) -> None:
    known = {
        column: unit
        for column, (unit, _) in (METRIC_MEANINGS | COMPARISON_MEANINGS).items()
        if unit
    }
    for names, text in bracketed(SAID[name]):
        unit = unit_of(text)
        assert unit, f"[{text}] begins with no unit"
        for one in known.keys() & names:
            assert known[one] == unit, f"{name}: {one}"


@each(list(SURFACE))
def test_the_example_is_python_that_uses_what_it_is_of(name: str) -> None:
    if name == "FairmfuError":  # which nobody makes
        return
    (example,) = re.findall(r"^>>> (.*)$", SAID[name], re.MULTILINE)
    used = {node.id for node in ast.walk(ast.parse(example)) if isinstance(node, ast.Name)}
    assert name in used


# --- the errors --------------------------------------------------------------------------------


class Broken:
    """An engine that cannot read."""

    def reading(self, *_: object) -> Any:
        raise ClusterError("gone")


@pytest.fixture(scope="module")
def known() -> dict[str, Any]:
    """What the failing calls below begin with."""
    tables = ingest.read_logs(TITAN)
    analysis = metrics.analyse(tables)
    return {"tables": tables, "analysis": analysis, "told": reports.report(tables)}


def nowhere() -> Store:
    return Store("nowhere")


def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk on which there is no room for a store."""

    def fails(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fairmfu.ingest.store.lock.hold_lock", fails)


Call = Callable[[dict[str, Any]], object]
NOT_THERE = "mars://bucket/logs"
FAILING: dict[tuple[str, str], Call] = {
    ("Store", "StoreError"): lambda _: Store("a*b"),
    ("Store", "UnreadableSourceError"): lambda _: Store(NOT_THERE),
    ("ingest_logs", "FactError"): lambda _: ingest.ingest_logs(nowhere(), TITAN, facts={"gpu": 8}),
    ("ingest_logs", "FormatFileError"): lambda _: ingest.ingest_logs(
        nowhere(), TITAN, log_formats=["none"]
    ),
    ("ingest_logs", "UnreadableSourceError"): lambda _: ingest.ingest_logs(nowhere(), NOT_THERE),
    ("ingest_logs", "StoreError"): lambda _: ingest.ingest_logs(Store("/dev/null/store"), TITAN),
    ("ingest_logs", "ClusterError"): lambda _: ingest.ingest_logs(
        nowhere(), TITAN, engine=Broken()
    ),
    ("read_logs", "UnreadableSourceError"): lambda _: ingest.read_logs("gone.log"),
    ("read_logs", "FactError"): lambda _: ingest.read_logs(TITAN, facts={"gpus": 0}),
    ("read_logs", "FormatFileError"): lambda _: ingest.read_logs(TITAN, log_formats=["none"]),
    ("read_logs", "StoreError"): lambda of: (full(of["patch"]), ingest.read_logs(TITAN)),
    ("choose", "RunNameError"): lambda of: metrics.choose(of["analysis"].metrics, "none"),
    ("ask", "UnknownModelError"): lambda _: metrics.ask("gpt-9", 8192),
    ("ask", "ShapeError"): lambda _: metrics.ask({"model_type": "none"}, 8192),
    ("ask", "ValueError"): lambda _: metrics.ask("llama3-8b", 8192, tgs=1.0),
    ("answer", "UnknownAcceleratorError"): lambda _: metrics.answer(
        metrics.ask("llama3-8b", 8192, accelerator="abacus")
    ),
    ("answer", "ShapeError"): lambda _: metrics.answer(
        metrics.ask("llama3-8b", 8192, trainable="lora", lora_rank=8, lora_targets="none")
    ),
    ("answer", "ValueError"): lambda _: metrics.answer(
        metrics.ask("llama3-8b", 8192, accelerator="a100", precision="fp8")
    ),
    ("price", "ValueError"): lambda _: metrics.price("much"),
    ("current_metrics", "StoreError"): lambda _: reports.current_metrics(nowhere()),
    ("query", "StoreError"): lambda _: reports.query(nowhere(), "select 1"),
    ("compare", "RunNameError"): lambda of: reports.compare(of["analysis"], NAME, "none"),
    ("compare", "RunFilterError"): lambda of: reports.compare(of["analysis"], where="none = 1"),
    ("explain", "RunNameError"): lambda of: reports.explain(of["analysis"], "none"),
    ("per_step", "RunNameError"): lambda of: reports.per_step(of["analysis"], "none"),
    ("report", "RunNameError"): lambda of: reports.report(of["tables"], "none"),
    ("draw", "NotDrawnError"): lambda of: reports.draw("scaling", of["told"]),
    ("draw", "ValueError"): lambda of: reports.draw("comparison", of["told"], attention="half"),
    ("save_report", "UnknownKindError"): lambda of: reports.save_report(of["told"], "speed.doc"),
    ("save_report", "FairmfuError"): lambda of: reports.save_report(
        of["told"], "/dev/null/speed.html"
    ),
}
"""A call that raises each error that a docstring names."""


def named(name: str) -> set[str]:
    """Errors that the docstring of a name of the surface speaks of."""
    return set(re.findall(r"\b\w+Error\b", SAID[name])) - {name}


def test_each_error_that_a_docstring_names_is_one_that_a_call_below_raises() -> None:
    told = {(name, error) for name in SURFACE for error in named(name)}
    assert told == set(FAILING)


@pytest.mark.parametrize(("name", "error"), FAILING)
def test_the_error_comes(
    name: str,
    error: str,
    known: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Exception, match=r"\S") as caught:  # by its name, which docstrings say
        FAILING[name, error](known | {"patch": monkeypatch})
    assert error in {one.__name__ for one in type(caught.value).__mro__}
    assert error == "ValueError" or isinstance(caught.value, FairmfuError)


@each(list(SURFACE))
def test_each_error_that_the_source_can_raise_is_named(name: str) -> None:
    one = SURFACE[name]
    home = f"{one.__module__}.{name}".removeprefix("fairmfu.")
    found = (
        raised()[f"{home}.__init__" if home not in raised() else home]
        if name != "FairmfuError"
        else ()
    )
    missing = [e.__name__ for e in found if not named(name) & {c.__name__ for c in e.__mro__}]
    assert missing == []
    assert not found or "Raises" in SAID[name]


def test_errors_are_followed_through_calls_and_taken_out_where_they_are_caught() -> None:
    """So that the test above can fail: what is known of functions inside."""
    told = {name: {e.__name__ for e in errors} for name, errors in raised().items()}
    assert "StoreError" in told["ingest.store.store.Store.table"]
    assert "ShapeError" in told["metrics.formula.model_shapes.hugging_face.from_hugging_face"]
    assert told["metrics.pipeline.analysis.analyse"] == set()
    assert told["metrics.core.run_selection.choose_one"] == {"RunNameError"}
