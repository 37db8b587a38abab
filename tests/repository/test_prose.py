"""Plain English, as far as rules can hold it: docstrings, parameters, and the sentences of docs."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

from tests.repository.test_architecture import param
from tests.support.folders import ROOT
from tests.support.source_tree import MODULES, tree
from tests.tools.prose import (
    MAX_FIRST_LINE_CHARS,
    MAX_SENTENCE_WORDS,
    PRO_FORMS,
    RULES,
    code_findings,
    docs_findings,
    docstrings,
    percentile,
    sentences,
    word_count,
)

MAX_PRO_FORMS: Final = 4.0
"""Pronouns and relatives (it, that, which, what, those, one, its) in 100 words of docstrings."""
PAGES: Final = sorted(
    path.relative_to(ROOT)
    for path in (
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
        ROOT / "benchmarks" / "README.md",
    )
)
EXAMPLE: Final = '''"""Which runs are fast."""
FEW = 3
def f(told, *, one):
    """{long}"""
class C:
    """It is one of those."""
'''


@param(MODULES)
def test_a_module_is_written_plainly(module: Path) -> None:
    assert [
        f"{one.rule}, line {one.line}: {one.text}" for one in code_findings(module, tree(module))
    ] == []


def test_docstrings_name_things_rather_than_point_at_them() -> None:
    texts = [text for module in MODULES for _, text in docstrings(tree(module))]
    words = sum(word_count(text) for text in texts)
    assert 100 * sum(len(PRO_FORMS.findall(text)) for text in texts) / words < MAX_PRO_FORMS


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_nine_of_ten_sentences_of_a_page_are_short(page: Path) -> None:
    lengths = [word_count(one) for _, one in sentences((ROOT / page).read_text(encoding="utf-8"))]
    assert percentile(lengths, 0.9) <= MAX_SENTENCE_WORDS


def test_each_rule_can_fail() -> None:
    """A rule that finds nothing in a bad text holds nothing."""
    bad = EXAMPLE.format(long="Long " * MAX_FIRST_LINE_CHARS)
    found = {one.rule for one in code_findings(Path("bad.py"), ast.parse(bad))}
    found |= {one.rule for one in docs_findings(Path("bad.md"), "A word " * MAX_SENTENCE_WORDS)}
    assert found == set(RULES)


def test_code_tables_and_headings_are_no_sentences() -> None:
    text = (
        "# A heading\n\nOne sentence. Another one,\nof two lines.\n\n    code = 1\n\n| a | cell |\n"
    )
    assert [one for _, one in sentences(text)] == ["One sentence.", "Another one, of two lines."]
