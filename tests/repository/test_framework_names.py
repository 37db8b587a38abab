"""Metrics ask a run what is true of its log, and never which framework printed it.

So a format that is added by data alone gets the same doubts and rates as any other.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from fairmfu.ingest.core.schema import FACT_NAMES
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from tests.support.source_tree import MODULES, own_imports, tree

COMMON_WORDS: Final = {
    *("chat", "csv", "scalars", "spans", "state", "tensorboard", "timers", "tracker", "trainer"),
    *("gpt", "hf", "llm", "lm", "mm", "ms", "v1"),
}
"""Words of formats' names that say nothing of a framework, or too little."""

OWN_FORMULAS: Final = "metrics/audit/eras/"
"""What frameworks print by formulas of their own: of them alone, by version."""

ALLOWED: Final = {
    "metrics/audit/other_tools.py": "what other tools count for a model, by the tools' names",
    "metrics/formula/accelerators.py": "where each peak is published",
    "metrics/formula/model_shapes/__init__.py": "readers of models, by who prints them so",
    "metrics/formula/model_shapes/hugging_face.py": "model_type of config.json: gpt_neox",
    "metrics/formula/model_shapes/names.py": "models that people call by name: gpt-neox-20b",
    "metrics/formula/model_shapes/printed.py": "readers of models as two frameworks print them",
}
"""Modules that may name one, and why; none of them has a run in hand."""

MODEL_READERS: Final = {"from_megatron", "from_torchtitan"}
"""Functions that build a model from a fact that holds it as one framework prints it."""


@cache
def framework_words() -> re.Pattern[str]:
    """Words of the names of all frameworks and formats, as they may stand in code."""
    names = {name for f in BUILT_IN_FORMATS for name in (f.name, f.framework, f.engine_below or "")}
    words = {name: set(name.split("-")) - COMMON_WORDS or {name} for name in names if name}
    return re.compile("|".join({_joined(word) for some in words.values() for word in some}))


def _joined(text: str) -> str:
    return re.sub(r"[-_ ]", "", text).lower()


def names_a_framework(text: str) -> bool:
    """Whether a text has one of their words: `llama-factory` is `llamafactory`."""
    return framework_words().search(_joined(text)) is not None


def words_of(node: ast.AST) -> Iterator[str]:
    """Names and texts of a node of a syntax tree, but of none below it."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.Name(id=text) | ast.Attribute(attr=text) | ast.arg(arg=text):
            yield text
        case ast.keyword(arg=str(text)):
            yield text
        case ast.FunctionDef(name=text) | ast.ClassDef(name=text):
            yield text
        case ast.ImportFrom():
            yield node.module or ""
        case ast.alias():
            yield from (node.name, node.asname or "")


def named_in(code: ast.Module) -> list[str]:
    """What in a module's code names a framework; comments and docstrings may."""
    lone = {n.value for n in ast.walk(code) if isinstance(n, ast.Expr)}  # docstrings, the texts
    nodes = (n for n in ast.walk(code) if n not in lone or not isinstance(n, ast.Constant))
    texts = (text for n in nodes for text in words_of(n))
    known = {*FACT_NAMES, *MODEL_READERS}
    return sorted({text for text in texts if text not in known and names_a_framework(text)})


METRICS: Final = [m for m in MODULES if m.parts[0] == "metrics"]


@pytest.mark.parametrize(
    "module",
    [m for m in METRICS if str(m) not in ALLOWED and not str(m).startswith(OWN_FORMULAS)],
    ids=str,
)
def test_metrics_name_no_framework(module: Path) -> None:
    assert named_in(tree(module)) == [], (
        "ask the run: a quirk (QUIRKS of ingest/core/schema.py) or another field of LogFormat that "
        "is stored with it. What a framework's own formula is belongs into metrics/audit/eras"
    )


@pytest.mark.parametrize("module", ALLOWED)
def test_what_is_allowed_is_needed(module: str) -> None:
    assert named_in(tree(Path(module)))


def test_readers_of_models_are_used_where_a_model_is_built_only() -> None:
    named = {str(m): {w for n in ast.walk(tree(m)) for w in words_of(n)} for m in METRICS}
    users = {module for module, words in named.items() if words & MODEL_READERS}
    assert users - set(ALLOWED) == {"metrics/utilization/formula_inputs.py"}


def test_only_the_audit_knows_the_eras() -> None:
    users = {str(m.parent) for m in METRICS for name in own_imports(m) if ".audit.eras" in name}
    assert users == {"metrics/audit", "metrics/audit/eras"}


@pytest.mark.parametrize(
    "code",
    [
        'if run["log_format"] == "hf-trainer-state": pass',
        'FRAMEWORKS = {"gpt-neox"}',
        'pl.col("framework").is_in(("LLaMA-Factory",))',
        "from .eras.torchtitan import PEAK",
        "def of_deep_speed(run): ...",
        "run.is_xtuner",
        "told(mindspeed=True)",
    ],
)
def test_a_name_in_code_is_found(code: str) -> None:
    assert named_in(ast.parse(code))


def test_a_name_in_words_for_readers_is_none() -> None:
    assert named_in(ast.parse('"""As Torchtitan prints it."""\nx = 1  # of DeepSpeed\n')) == []
    assert named_in(ast.parse('facts["megatron_arguments"]')) == []
