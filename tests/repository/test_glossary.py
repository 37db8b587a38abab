"""docs/glossary.md: pages use its terms, and none of the words that it replaces.

Code, generated tables and addresses of links are no prose of a page. Sentences that the program
prints are checked too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.repository.test_docs import PAGES, each_page, named
from tests.support.each_case import each_case
from tests.support.folders import ROOT
from tests.support.source_tree import MODULES
from tests.tools.reference import REGION

GLOSSARY: Final = ROOT / "docs" / "glossary.md"

CHECKED: Final[Mapping[str, str]] = {
    "as good as": "effective sample size",
    "attended pairs left out": "masked-out attention",
    "device": "accelerator, GPU",
    "dtype": "precision",
    "number format": "precision",
    "own dtype": "precision",
    "passed over": "skipped",
    "recomputation": "activation checkpointing",
    "recomputed": "ours, or computed again",
    "trained weights": "trainable",
}
"""Words of the *not* column that pages do not use in any sense, with the term to use instead."""

UNCHECKED: Final[Mapping[str, str]] = {
    "T": "a letter of the formulas",
    "card": "the PCIe card of an accelerator; the card of a run in TensorBoard",
    "input": "an input of the GitHub action; a mutated input of the fuzzer",
    "its own figure": "fairmfu's own figure",
    "length": "the length of a line; part of `sequence length`",
    "setting": "a setting of a program",
    "the one": "the one before",
    "the other": "the other commands",
    "trained": "steps that were trained twice",
}
"""Words of the *not* column that have another sense as well, with an example of that."""

EXCEPTIONS: Final[Mapping[tuple[str, str], str]] = {}
"""Page and word that may stay, with the reason; a word that is gone is no exception any more."""

NO_PROSE: Final = re.compile(
    r"^```.*?^```$|^(?: {4}|\t).*?$|`[^`\n]*`|(?<=\])\([^)\s]*\)|<!--.*?-->",
    re.MULTILINE | re.DOTALL,
)


def prose(text: str) -> str:
    """Return a page without code, generated tables, comments and addresses of links."""
    without_tables = REGION.sub(lambda region: "\n" * region[0].count("\n"), text)
    return NO_PROSE.sub(lambda code: "\n" * code[0].count("\n"), without_tables)


def replaced(text: str) -> set[str]:
    """Return the replaced words in a text."""
    return {w for w in CHECKED if re.search(rf"\b{re.escape(w)}s?\b", text, re.IGNORECASE)}


def replaced_words(text: str) -> Iterator[tuple[int, str]]:
    """Yield line and word of each replaced word in the prose of a page."""
    for number, line in enumerate(prose(text).split("\n"), 1):
        for word in replaced(line):
            yield number, word


def test_the_words_of_the_table_are_checked_or_said_to_be_unchecked() -> None:
    table = GLOSSARY.read_text(encoding="utf-8").partition("## Terms")[2]
    rows = re.findall(r"^\|.*\|([^|]*)\|$", table, re.MULTILINE)[2:]
    words = {word.strip() for row in rows for word in row.split(",") if word.strip()}
    assert words == {*CHECKED, *UNCHECKED}


@each_page
def test_a_page_uses_the_terms_of_the_glossary(page: Path) -> None:
    if page == GLOSSARY:
        pytest.skip("the page lists the words")
    found = [
        f"{named(page)}:{line}: {word}: write {CHECKED[word]}"
        for line, word in replaced_words(page.read_text(encoding="utf-8"))
        if (named(page), word) not in EXCEPTIONS
    ]
    assert found == []


def test_exceptions_are_needed() -> None:
    used = {
        (named(page), word)
        for page in PAGES
        for _, word in replaced_words(page.read_text(encoding="utf-8"))
    }
    assert EXCEPTIONS.keys() <= used


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("One device, two\nDevices.", [(1, "device"), (2, "device")]),
        ("Its `device` and\n\n    device\n", []),
        ("```text\ndevice\n```\n", []),
        ("[logs](#recomputation), deviceless", []),
        ("<!-- make reference: x -->\n| dtype |\n<!-- end -->\nIts dtype.", [(4, "dtype")]),
    ],
)
def test_words_are_found_in_prose_alone(text: str, words: list[tuple[int, str]]) -> None:
    assert list(replaced_words(text)) == words


# -- what the program prints ----------------------------------------------------------------

PRINTING: Final = [
    path for path in MODULES if path.parts[:2] not in (("ingest", "formats"), ("ingest", "decode"))
]
"""Modules with printed sentences; formats and their decoding quote the frameworks' own lines."""
TEMPLATES: Final = sorted((ROOT / "reports").rglob("*.j2"))
PRINTED_EXCEPTIONS: Final[Mapping[tuple[str, str], str]] = {
    ("cli.py", "device"): "the name of a column",
    ("ingest/core/schema.py", "number format"): "the meaning of precision",
    ("ingest/extract/messages.py", "device"): "a device file",
    ("ingest/launches/outcomes.py", "device"): "a line of PyTorch",
}
"""Module and word that may stay, with the reason."""
NO_TEXT: Final = re.compile(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}|<[^>]*>", re.DOTALL)
REGEX_CALLS: Final = frozenset({"compile", "search", "match", "fullmatch", "sub", "findall"})


def sentences(tree: ast.AST) -> Iterator[str]:
    """Yield the string literals of several words, without docstrings and regexes."""
    silent: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            silent.add(id(node.value))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in REGEX_CALLS:
            silent |= {id(part) for part in ast.walk(node)}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and id(node) not in silent and " " in node.value.strip():
            yield node.value


@each_case("module", PRINTING, ids=str)
def test_a_module_prints_the_terms_of_the_glossary(module: Path) -> None:
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    used = {word for text in sentences(tree) for word in replaced(text)}
    known = {word for path, word in PRINTED_EXCEPTIONS if path == module.as_posix()}
    assert used == known, f"write {[CHECKED[word] for word in used - known]}"


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_a_page_of_the_report_uses_the_terms_of_the_glossary(template: Path) -> None:
    assert replaced(NO_TEXT.sub(" ", template.read_text(encoding="utf-8"))) == set()


def test_words_are_found_in_printed_sentences_alone() -> None:
    code = (
        'def f():\n    """A device."""\n    x = "device"\n    re.compile("a device")\n'
        '    raise ValueError(f"its dtype is {x}, and passed over")\n'
    )
    assert {word for text in sentences(ast.parse(code)) for word in replaced(text)} == {
        "dtype",
        "passed over",
    }
