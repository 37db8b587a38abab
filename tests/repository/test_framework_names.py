"""No framework's name in the code of ingest outside formats/: what is one's own is its format's."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from tests.support.folders import ROOT
from tests.support.source_tree import MODULES, tree

COMMON_WORDS: Final = {
    *("chat", "csv", "lm", "llm", "mm", "ms", "scalars", "spans", "state", "tensorboard", "timers"),
    *("tracker", "trainer", "v1"),
}
"""Words of formats' names that are no framework's."""

ALLOWED: Final[dict[str, str]] = {
    "megatron_arguments": "a fact's name, which stores hold",
    "torchtitan_arguments": "a fact's name, which stores hold",
    "the arguments header of Megatron-DeepSpeed": "what that fact is, for readers",
    "ModelArgs as Torchtitan prints them": "what that fact is, for readers",
    "a Hugging Face config.json (a path with --set)": "what a file is called, for readers",
    "activation recomputation; selective_attention: only core attention (Megatron)": "a fact's "
    "meaning, for readers",
    "framework below lines that several print alike: deepspeed or megatron-lm": "a fact's values",
    "xtuner, torchtitan, deepspeed, transformers without it, megatron-lm, or megatron: "
    "Megatron-LM or a fork of it": "a column's values",
    "torchtitan": "format in READING_CHANGES, which metrics ask and stores count",
    "deepspeed": "format in READING_CHANGES, which metrics ask and stores count",
}
"""Texts of ingest.core.schema, which stands below formats/, and why each may stay there."""
ALLOWED_IN: Final = Path("ingest/core/schema.py")


def framework_names() -> set[str]:
    """Return the words of all formats' and frameworks' names, and the folders of formats."""
    named = "-".join(f"{one.name}-{one.framework}" for one in BUILT_IN_FORMATS).lower()
    folders = [path.parent.name for path in (ROOT / "ingest/formats").glob("*/__init__.py")]
    return {*named.split("-"), *folders} - COMMON_WORDS


NAMES: Final = re.compile(
    "|".join(
        re.escape(name).replace("_", "[ _]?") if len(name) > 5 else rf"(?<![a-z]){name}(?![a-z])"
        for name in sorted(framework_names())
    )
)
"""A name in a text of small letters; of a short one the whole word."""


def prose(module: ast.Module) -> set[int]:
    """Return the ids of nodes that tell and do nothing: docstrings, citations of source lines."""
    nodes = list(ast.walk(module))
    cited = (n.value for n in nodes if isinstance(n, ast.keyword) and n.arg == "printed_by")
    told = (node.value for node in nodes if isinstance(node, ast.Expr))
    return {
        *(id(text) for text in told if isinstance(text, ast.Constant)),
        *(id(part) for text in cited for part in ast.walk(text)),
    }


def texts(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of each identifier, import and string that is no prose."""
    passed = prose(module)
    for node in ast.walk(module):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str | bytes) and id(node) not in passed:
                value = node.value
                yield line, value if isinstance(value, str) else value.decode("latin-1")
            continue
        for key in ("id", "attr", "name", "asname", "arg", "module"):
            if isinstance(value := getattr(node, key, None), str):
                yield line, value


def named_in(source: str) -> list[tuple[int, str]]:
    """Return the line and text of each name of a framework in the code of a module."""
    return [one for one in texts(ast.parse(source)) if NAMES.search(one[1].lower())]


NEUTRAL: Final = [
    module for module in MODULES if module.parts[0] == "ingest" and "formats" not in module.parts
]


@pytest.mark.parametrize("module", NEUTRAL, ids=str)
def test_no_framework_is_named_outside_formats(module: Path) -> None:
    allowed = ALLOWED if module == ALLOWED_IN else {}
    found = [one for one in texts(tree(module)) if NAMES.search(one[1].lower())]
    assert [one for one in found if one[1] not in allowed] == []
    assert NAMES.search(module.stem) is None


def test_all_that_is_allowed_is_there() -> None:
    assert {text for _, text in texts(tree(ALLOWED_IN))} >= ALLOWED.keys()


def test_each_format_has_a_name_that_is_looked_for() -> None:
    for one in BUILT_IN_FORMATS:
        assert NAMES.search(one.name), one.name
        assert NAMES.search(one.framework), one.framework


@pytest.mark.parametrize(
    "source",
    [
        "from .x import deepspeed_engines",
        "from .torchtitan.console import x",
        "import xtuner.world",
        "by_megatron = 1",
        "class DeepSpeedEngine: ...",
        "launch.last_value('megatron_arguments')",
        "word = b'[XTuner]'",
        "def read_hf_state(): ...",
        "read(gpt_neox=1)",
        "text = f'of DeepSpeed {n}'",
    ],
)
def test_a_name_is_found(source: str) -> None:
    assert named_in(source)


@pytest.mark.parametrize(
    "source",
    [
        '"""Of DeepSpeed\'s engine."""',
        "x = 1  # Megatron prints it",
        "x = 1\n'''As Torchtitan has it.'''",
        "EventLine(printed_by='deepspeedai/DeepSpeed/launch.py')",
        "EventLine(printed_by=f'{SOURCE} DeepSpeed')",
        "half = graph",  # holds hf's letters
    ],
)
def test_prose_and_citations_may_name_one(source: str) -> None:
    assert named_in(source) == []
