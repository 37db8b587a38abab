"""No framework's name in ingest outside formats/, nor in metrics outside the audit's eras.

What is true of one framework's logs alone is its format's, and is stored with the run. So a format
that is added by data alone gets the same doubts and rates as any other.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from fairmfu.ingest.core.schema import FACT_NAMES
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from tests.support.each_case import each_case
from tests.support.folders import ROOT
from tests.support.source_tree import MODULES, own_imports, tree

COMMON_WORDS: Final = {
    *("chat", "csv", "lm", "llm", "mm", "ms", "scalars", "spans", "state", "tensorboard", "timers"),
    *("tracker", "trainer", "v1"),
}
"""Words of formats' names that are no framework's."""

ALLOWED_TEXTS: Final[dict[str, str]] = {
    "megatron_arguments": "a fact's name, which stores hold",
    "torchtitan_arguments": "a fact's name, which stores hold",
    "the arguments header of Megatron-DeepSpeed": "what that fact is, for readers",
    "ModelArgs as Torchtitan prints them": "what that fact is, for readers",
    "a Hugging Face config.json (a path with --set)": "what a file is called, for readers",
    "activation checkpointing; selective_attention: only core attention (Megatron)": "a fact's "
    "meaning, for readers",
    "framework below lines that several frameworks print: deepspeed or megatron-lm": "a fact's "
    "values",
    "xtuner, torchtitan, deepspeed, transformers without it, megatron-lm, or megatron: "
    "Megatron-LM or a fork of it": "a column's values",
    "torchtitan": "format in READING_CHANGES, which metrics ask and stores count",
    **dict.fromkeys(
        (
            *(
                "deepspeed",
                "deepspeed-chat",
                "deepspeed-chat-rlhf",
                "hf-trainer",
                "hf-trainer-state",
                "llamafactory",
            ),
            *("ms-swift", "xtuner-v1"),
        ),
        "format in READING_CHANGES, which metrics ask and stores count",
    ),
}
"""Texts of ingest.core.schema, which stands below formats/, and why each may stay there."""
SCHEMA: Final = Path("ingest/core/schema.py")

OWN_FORMULAS: Final = Path("metrics/audit/eras")
"""What frameworks print by formulas of their own: of them alone, by version."""

ALLOWED_MODULES: Final = {
    "metrics/audit/other_tools.py": "what other tools count for a model, by the tools' names",
    "metrics/formula/counted_models.py": "models that transformers builds, whoever trains them",
    "metrics/formula/messages.py": "errors of models as one framework prints them",
    "metrics/formula/model_shapes/__init__.py": "readers of models, by who prints them so",
    "metrics/formula/model_shapes/decoder_types.py": "model_type of config.json: gpt_neox",
    "metrics/formula/model_shapes/other_kinds.py": "model_type of config.json: megatron-bert",
    "metrics/formula/model_shapes/hugging_face.py": "model_type of config.json: gpt_neox",
    "metrics/formula/model_shapes/megatron_header.py": "how a header that one prints is checked",
    "metrics/formula/model_shapes/models.py": "words of models' names that say nothing: hf",
    "metrics/formula/model_shapes/printed.py": "readers of models as two frameworks print them",
    "metrics/formula/model_shapes/torchtitan_layers.py": "a reader of models as one prints them",
    "metrics/formula/simplified_model.py": "models that people call by name: gpt-oss-20b",
}
"""Modules of metrics that may name one, and why; none of them has a run in hand."""

CONFIG_READER: Final = "hugging_face"
"""In names of modules and functions that read a config.json, whoever trains the model."""

MAX_SHORT: Final = 5
"""Letters of a short name."""

MODEL_READERS: Final = {"from_megatron", "from_torchtitan"}
"""Functions that build a model from a fact that holds it as one framework prints it."""


def framework_names() -> set[str]:
    """Return the words of all formats' and frameworks' names, and the folders of formats."""
    named = "-".join(f"{one.name}-{one.framework}" for one in BUILT_IN_FORMATS).lower()
    folders = [path.parent.name for path in (ROOT / "ingest/formats").glob("*/__init__.py")]
    return {*named.split("-"), *(re.sub("_", "", one) for one in folders)} - COMMON_WORDS


LONG: Final = re.compile("|".join(sorted(n for n in framework_names() if len(n) > MAX_SHORT)))
SHORT: Final = re.compile(
    "|".join(rf"(?<![a-z]){n}(?![a-z])" for n in sorted(framework_names()) if len(n) <= MAX_SHORT)
)
"""Of a short name the whole word: `graph` holds hf's letters."""


def names_a_framework(text: str) -> bool:
    """Return whether a text has one of their words; `deep_speed` and `Deep Speed` are one."""
    small = text.lower()
    return bool(SHORT.search(small) or LONG.search(re.sub(r"[-_ ]", "", small)))


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


def named_in(module: ast.Module) -> list[tuple[int, str]]:
    """Return the line and text of each name of a framework in the code of a module."""
    return [one for one in texts(module) if names_a_framework(one[1])]


def is_neutral(module: Path) -> bool:
    """Whether no framework is named there."""
    if module.parts[0] == "ingest":
        return "formats" not in module.parts
    return module.parts[0] == "metrics" and OWN_FORMULAS not in module.parents


@each_case("module", [*filter(is_neutral, MODULES)], ids=str)
def test_no_framework_is_named_where_all_are_alike(module: Path) -> None:
    """Ask the run instead: a quirk, or another field of LogFormat that is stored with it."""
    if str(module) in ALLOWED_MODULES:
        assert named_in(tree(module)) or names_a_framework(module.stem)
        return
    known = {*FACT_NAMES, *MODEL_READERS} if module.parts[0] == "metrics" else set()
    known |= ALLOWED_TEXTS.keys() if module == SCHEMA else set()
    found = [one for one in named_in(tree(module)) if one[1] not in known]
    assert [one for one in found if CONFIG_READER not in one[1]] == []
    assert not names_a_framework(module.stem)


def test_all_texts_that_are_allowed_are_there() -> None:
    assert {text for _, text in texts(tree(SCHEMA))} >= ALLOWED_TEXTS.keys()


def test_readers_of_models_are_used_where_a_model_is_built_only() -> None:
    metrics = [module for module in MODULES if module.parts[0] == "metrics"]
    named = {str(module): {text for _, text in texts(tree(module))} for module in metrics}
    users = {module for module, words in named.items() if words & MODEL_READERS}
    assert users - ALLOWED_MODULES.keys() == {"metrics/utilization/formula_inputs.py"}


def test_only_the_audit_knows_the_eras() -> None:
    metrics = [module for module in MODULES if module.parts[0] == "metrics"]
    users = {str(m.parent) for m in metrics for name in own_imports(m) if ".audit.eras" in name}
    assert users == {"metrics/audit", "metrics/audit/eras"}


def test_each_format_has_a_name_that_is_looked_for() -> None:
    for one in BUILT_IN_FORMATS:
        assert names_a_framework(one.name), one.name
        assert names_a_framework(one.framework), one.framework


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
        'if run["log_format"] == "hf-trainer-state": pass',
        'FRAMEWORKS = {"gpt-neox"}',
        'pl.col("framework").is_in(("LLaMA-Factory",))',
        "def of_deep_speed(run): ...",
        "told(mindspeed=True)",
    ],
)
def test_a_name_is_found(source: str) -> None:
    assert named_in(ast.parse(source))


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
    assert named_in(ast.parse(source)) == []
