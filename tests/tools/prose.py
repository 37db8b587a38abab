"""`make prose`: how plainly code and docs are written, counted from their text.

    python -m tests.tools.prose [--list] [PATH …]

PATH: a folder or file of code or docs; by default the product, README.md and docs/. With --list
each place that breaks a rule is printed as well.
"""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.folders import ROOT

DEFAULT_PATHS: Final = ("ingest", "metrics", "reports", "cli.py", "README.md", "docs")
MAX_FIRST_LINE_CHARS: Final = 80
MAX_SENTENCE_WORDS: Final = 25
RELATIVE_OPENINGS: Final = frozenset(
    {"what", "whether", "which", "how", "where", "when", "who", "whose", "why"}
)
"""Words that begin a relative clause: say the thing, not that which is said of it."""
POINTING_OPENINGS: Final = frozenset(
    {"it", "its", "that", "this", "these", "those", "one", "ones", "so", "as", "of", "by", "in"}
)
"""Words that point at something named elsewhere, and prepositions: neither verb nor noun phrase."""
PRO_FORMS: Final = re.compile(r"\b(?:it|that|which|what|those|one|its)\b", re.IGNORECASE)
BANNED_PARAMETERS: Final = frozenset(
    {"found", "told", "said", "one", "at", "place", "mine", "each", "own", "known"}
)
VAGUE_CONSTANTS: Final = re.compile(
    r"_?(?:FEW|MANY|LITTLE|LARGE|SMALL|LONG|SHORT|FAR|NEAR|OFTEN)\b"
)
_WORD: Final = re.compile(r"[A-Za-z][\w'-]*")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?:])\s+(?=[A-Z*`\[(])|\n\n+")
_CODE_BLOCK: Final = re.compile(r"```(?s:.*?)```|^(?: {4}|\t).*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Finding:
    """A place that breaks a rule. rule: its name in `RULES`."""

    path: Path
    line: int
    rule: str
    text: str


RULES: Final = {
    "opening": "docstrings that open with what, whether, which, how, where …",
    "pointing": "docstrings that open with a pronoun or a preposition",
    "first line": f"docstrings whose first line is longer than {MAX_FIRST_LINE_CHARS} characters",
    "parameter": f"parameters called {', '.join(sorted(BANNED_PARAMETERS))}",
    "constant": "constants whose names do not say their kind",
    "sentence": f"sentences of docs of more than {MAX_SENTENCE_WORDS} words",
}


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each docstring of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text


def code_findings(path: Path, tree: ast.Module) -> Iterator[Finding]:
    """Yield what breaks a rule in a module."""
    for line, text in docstrings(tree):
        first = text.partition("\n")[0]
        for rule in docstring_rules(first):
            yield Finding(path, line, rule, first)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for argument in (*node.args.args, *node.args.kwonlyargs):
                if argument.arg in BANNED_PARAMETERS:
                    yield Finding(
                        path, argument.lineno, "parameter", f"{node.name}: {argument.arg}"
                    )
    for name, line in constants(tree):
        if VAGUE_CONSTANTS.match(name):
            yield Finding(path, line, "constant", name)


def docstring_rules(first_line: str) -> Iterator[str]:
    """Yield the rules that the first line of a docstring breaks."""
    opening = next(iter(_WORD.findall(first_line)), "").lower()
    if opening in RELATIVE_OPENINGS:
        yield "opening"
    if opening in POINTING_OPENINGS and first_line[:1].isalpha():
        yield "pointing"
    if len(first_line) > MAX_FIRST_LINE_CHARS:
        yield "first line"


def constants(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the names of a module's constants, with their lines."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        for target in targets:
            if isinstance(target, ast.Name) and target.id.isupper():
                yield target.id, node.lineno


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Yield the sentences of a Markdown text, with their lines; no code, no tables, no headings."""
    prose = _CODE_BLOCK.sub(lambda match: "\n" * match[0].count("\n"), text)
    lines = (
        "" if line.lstrip().startswith(("|", "#", "<")) else line for line in prose.split("\n")
    )
    prose = "\n".join(re.sub(r"^\s*(?:[-*>]|\d+\.)\s+", "\n\n", line) for line in lines)
    at = 0
    for sentence in _SENTENCE_END.split(prose):
        place = prose.index(sentence, at)
        at = place + len(sentence)
        if _WORD.search(sentence):
            # list marks became two line breaks each, so a line is approximate there
            yield prose.count("\n", 0, place) + 1, " ".join(sentence.split())


def word_count(sentence: str) -> int:
    """Return the words of a sentence; code and links count as one word each."""
    plain = re.sub(r"`[^`]*`|\[([^\]]*)\]\([^)]*\)", "code", sentence)
    return len(_WORD.findall(plain))


def docs_findings(path: Path, text: str) -> Iterator[Finding]:
    """Yield the sentences of a page that are too long."""
    for line, sentence in sentences(text):
        if word_count(sentence) > MAX_SENTENCE_WORDS:
            yield Finding(path, line, "sentence", f"{word_count(sentence)} words: {sentence}")


def files(paths: Iterable[Path], suffix: str) -> list[Path]:
    """Return the files of a kind under the paths, in order."""
    under = (path.rglob(f"*{suffix}") if path.is_dir() else [path] for path in paths)
    return sorted(file for some in under for file in some if file.suffix == suffix)


def percentile(values: Sequence[int], share: float) -> int:
    """Return the value below or at which so large a share of the values lies; 0 of none."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))] if values else 0


def main() -> None:
    """Print the counts, and with --list each place."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.prose")
    parser.add_argument("--list", action="store_true", help="print each place that breaks a rule")
    parser.add_argument("paths", nargs="*", type=Path)
    options = parser.parse_args()
    paths = options.paths or [ROOT / path for path in DEFAULT_PATHS]
    findings: list[Finding] = []
    count = words = pro_forms = 0
    for file in files(paths, ".py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        findings += code_findings(file, tree)
        for _, text in docstrings(tree):
            count, words = count + 1, words + len(_WORD.findall(text))
            pro_forms += len(PRO_FORMS.findall(text))
    lengths: list[int] = []
    for page in files(paths, ".md"):
        text = page.read_text(encoding="utf-8")
        findings += docs_findings(page, text)
        lengths += [word_count(sentence) for _, sentence in sentences(text)]
    if options.list:
        for finding in findings:
            print(f"{finding.path}:{finding.line}: {finding.rule}: {finding.text}")
    print(f"{count:,} docstrings, {100 * pro_forms / max(words, 1):.1f} pro-forms per 100 words")
    longest = percentile(lengths, 0.9)
    print(f"{len(lengths):,} sentences of docs, nine of ten have {longest} words or fewer")
    for rule, meaning in RULES.items():
        print(f"{sum(finding.rule == rule for finding in findings):6,}  {meaning}")


if __name__ == "__main__":
    main()
