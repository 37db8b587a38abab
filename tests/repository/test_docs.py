"""README.md and docs/: what they show is what the commands print; links lead somewhere.

Lines of an indented block that begin with `$ ` are commands, what follows one is what it prints,
as on a terminal of 128 columns. The blocks of a page are run from its first line to its last, in
one folder that holds sample_logs. In what is shown

    ...     on a line of its own stands for any lines
    …       stands for any text of a line
    # NAME  as the first line of a block: the reader writes the block into this file

A fairmfu command without `$ `, an example with names to put in, or one that stands behind
<!-- not run: WHY -->, has to be one that there is, with these options.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import click
import pytest

from fairmfu.cli import CONTEXT_SETTINGS, main
from fairmfu.ingest.formats.registry import BUILT_IN_FORMATS
from fairmfu.metrics.compare.comparability import COMPARISON
from fairmfu.metrics.core.run_table import METRICS
from fairmfu.metrics.pipeline.column_docs import COMPARISON_MEANINGS, METRIC_MEANINGS
from tests.support.folders import ROOT
from tests.tools import reference

PAGES = reference.pages()
LINKED = [*PAGES, ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("[bs]*/**/README.md"))]
COLUMNS = 128
ENDS = re.compile(r"\s*(?:2>&1|\|\||\s\||>>?\s|`).*|\)+$")
"""What the shell takes of a command line."""
COMMAND = re.compile(r"(?:^ *(?:\$ )?|bin/|\$\()fairmfu (.*)")
INSTALLS = ("uv", "python3", "~/fairmfu/bin/pip", "export")
"""What makes the commands that are run here; tests/repository/test_wheel.py installs."""


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


each_page = pytest.mark.parametrize("page", PAGES, ids=named)
each_linked = pytest.mark.parametrize("page", LINKED, ids=named)


# -- blocks ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """An indented block of a page; `line` is the number of its first one."""

    line: int
    lines: tuple[str, ...]
    runs: bool

    def commands(self) -> Iterator[tuple[int, str, list[str]]]:
        """Line number, command line and what it shows, of each."""
        starts = [n for n, text in enumerate(self.lines) if text.startswith("$ ")]
        for start, end in pairwise([*starts, len(self.lines)]):
            shown = "\n".join(self.lines[start + 1 : end]).rstrip().splitlines()
            yield self.line + start, self.lines[start][2:], shown

    def file(self) -> str | None:
        """The file that the reader makes of it."""
        found = re.fullmatch(r"# ([\w-]+(?:\.\w+)+)", self.lines[0])
        return None if found is None else found[1]


def blocks(text: str) -> Iterator[Block]:
    """Indented blocks, with the blank lines inside of them."""
    found: list[str] = []
    first, runs, fenced = 0, True, False
    for number, line in enumerate([*text.splitlines(), "end"], 1):
        fenced ^= line.startswith("```")
        if line.startswith("    ") and not fenced:
            first = first if found else number
            found.append(line[4:])
        elif found and not line.strip():
            found.append("")
        else:
            if found:
                yield Block(first, tuple("\n".join(found).rstrip().splitlines()), runs)
                found, runs = [], True
            if line.strip():
                runs = not line.startswith("<!-- not run:")


def blocks_of(page: Path) -> list[Block]:
    return list(blocks(page.read_text(encoding="utf-8")))


# -- commands --------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed(words: list[str], out: io.StringIO | None = None) -> tuple[str, int]:
    """What a command prints on a terminal, and its exit code; out: a pipe for its output."""
    terminal = Terminal()
    with contextlib.redirect_stdout(out or terminal), contextlib.redirect_stderr(terminal):
        try:
            code = main.main(words, prog_name="fairmfu")
        except SystemExit as end:
            code = end.code
    return terminal.getvalue(), int(code or 0)


def test_nothing_is_shown_as_it_is_not() -> None:
    assert agrees(["a", "...", "d …"], "a\nb\nc\nd e\n")
    assert agrees(["a", "...", "b"], "a\nb\n")
    assert not agrees(["a"], "a\nb\n")
    assert not agrees(["a", "b"], "a\n\nb\n")
    assert not agrees(["a", "b"], "a\n")
    assert not agrees(["a b"], "a c\n")


def agrees(shown: list[str], text: str) -> bool:
    """Whether a page shows what was printed."""
    parts = [
        r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line).replace("…", ".*") + r"\n"
        for line in shown
    ]
    lines = "".join(f"{line.rstrip()}\n" for line in text.rstrip().splitlines())
    return re.fullmatch("".join(parts), lines) is not None


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a page is followed."""
    for name in [name for name in os.environ if name.startswith("FAIRMFU_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "sample_logs").symlink_to(ROOT / "sample_logs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@each_page
def test_commands_print_what_the_page_shows(page: Path, desk: Path) -> None:
    code = 0
    for block in blocks_of(page):
        commands = list(block.commands())
        if name := block.file():
            assert not commands, f"{named(page)}:{block.line}: two blocks need a line between them"
            desk.joinpath(name).write_text("\n".join(block.lines) + "\n", encoding="utf-8")
        for line, command, shown in commands:
            words = shlex.split(command, comments=True)
            if block.runs and words[0] not in INSTALLS:
                told, code = followed(words, code, desk)
                assert agrees(shown, told), f"{named(page)}:{line}: {command}\n{told}"


def followed(words: list[str], code: int, desk: Path) -> tuple[str, int]:
    """What one command line prints, and its exit code; code: of the one before."""
    match words:
        case ["fairmfu", *rest]:
            return printed(rest)
        case ["echo", "$?"]:
            return f"{code}\n", 0
        case ["cat", path]:
            return desk.joinpath(path).read_text(encoding="utf-8"), 0
        case ["cp", source, target]:
            shutil.copy(source, target)
            return "", 0
    pytest.fail(f"{words}: what is run is fairmfu, cat, cp and echo $?")


PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
WITH_PYTHON = [page for page in PAGES if PYTHON.search(page.read_text(encoding="utf-8"))]
WITH_PYTHON.remove(ROOT / "docs" / "python.md")  # tests/repository/test_python_docs.py runs it


@pytest.mark.parametrize("page", WITH_PYTHON, ids=named)
def test_python_runs_as_it_stands(page: Path, desk: Path) -> None:
    """Blocks of Python, one after the other, with the sample logs in the store."""
    _, code = printed(["ingest", str(desk / "sample_logs" / "synthetic")])
    assert code == 0
    names: dict[str, object] = {}
    for block in PYTHON.findall(page.read_text(encoding="utf-8")):
        exec(compile(block, named(page), "exec"), names)  # noqa: S102 - the page's


def command_lines(page: Path) -> Iterator[tuple[int, str]]:
    """What stands behind `fairmfu` in blocks of code."""
    for block in blocks_of(page):
        for number, text in enumerate(block.lines, block.line):
            code = re.sub(r"\s+#.*", "", text)
            usage = code.startswith("#") or "[OPTIONS]" in code
            if found := COMMAND.search("" if usage else code):
                yield number, ENDS.sub("", found[1])


@cache
def command_of(*words: str) -> tuple[click.Command, tuple[str, ...]]:
    """The command that words begin with, and the others."""
    command: click.Command = main
    rest = list(words)
    while isinstance(command, click.Group):
        while rest and rest[0].startswith("-"):  # of the group
            assert rest[0] in options_of(command), rest[0]
            rest = rest[1:] if "=" in rest[0] or rest[0] in ("--version", "-h") else rest[2:]
        if not rest:
            break
        assert rest[0] in command.commands, f"no command {rest[0]}"
        command = command.commands[rest.pop(0)]
    return command, tuple(rest)


def options_of(command: click.Command) -> set[str]:
    return {"-h", "--help", *(name for p in command.params for name in p.opts)}


@each_page
def test_every_command_is_one_with_these_options(page: Path) -> None:
    for line, text in command_lines(page):
        try:
            takes(shlex.split(text))
        except (click.UsageError, AssertionError) as error:
            pytest.fail(f"{named(page)}:{line}: fairmfu {text}: {error}")


def takes(words: list[str]) -> None:
    """Whether the command line is one; raises UsageError."""
    command, rest = command_of(*words)
    context = click.Context(command, click.Context(main, **CONTEXT_SETTINGS))  # which keeps -h
    given, left, _ = command.make_parser(context).parse_args(list(rest))
    if isinstance(command, click.Group) or "help" in given:
        return
    assert not left, f"{left} is not taken"
    for parameter in command.params:
        value = given.get(parameter.name or "")
        if parameter.required and not (isinstance(value, str | tuple | list) and value):
            raise click.MissingParameter(param=parameter)
        if not isinstance(parameter.type, click.Path) and isinstance(value, str):
            parameter.type_cast_value(context, value)


def test_a_command_that_is_none_is_found() -> None:
    takes(["ingest", "run.log", "--set", "gpus=8"])
    takes(["baseline", "set", "run"])
    for wrong in ("nosuch", "remove", "compare --nosuch", "runs --format xml", "explain a b"):
        with pytest.raises((click.UsageError, AssertionError)):
            takes(wrong.split())


@each_page
def test_every_command_in_a_sentence_is_one(page: Path) -> None:
    prose = re.sub(r"(?m)^    .*$", "", page.read_text(encoding="utf-8"))
    for code in re.findall(r"`fairmfu ([^`]+)`", prose):
        command, rest = command_of(*shlex.split(code))
        used = {word.partition("=")[0] for word in rest if word.startswith("--")}
        assert used <= options_of(command), code


@each_linked
def test_every_target_of_make_is_one(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([\w -]+):", makefile, re.MULTILINE))
    known = {name for line in targets for name in line.split()}
    used = re.findall(r"(?:`|^    )(?:\w+=\w+ )?make ([a-z][\w-]*)", page.read_text(), re.MULTILINE)
    assert set(used) <= known


# -- links -----------------------------------------------------------------------------------

LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)")
FILE = re.compile(
    r"(?<![\w./-])((?:tests|docs|metrics|ingest|reports|benchmarks|sample_logs)/[\w./-]+\.\w+)"
)


@cache
def anchors(page: Path) -> frozenset[str]:
    """Of the headings of a page, as GitHub makes them."""
    prose = re.sub(r"(?m)^(?:    .*|```[\s\S]*?^```)$", "", page.read_text(encoding="utf-8"))
    counted: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#+ +(.+?)\s*$", prose, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.replace("`", ""))
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found.add(f"{slug}-{counted[slug]}" if counted[slug] else slug)
        counted[slug] += 1
    return frozenset(found)


@each_linked
def test_every_link_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), f"{named(page)}: {link}"
        if anchor:
            assert anchor in anchors(target.resolve()), f"{named(page)}: {link}"


@each_page
def test_every_file_that_is_named_is_there(page: Path) -> None:
    for path in FILE.findall(page.read_text(encoding="utf-8")):
        assert ROOT.joinpath(path).exists(), f"{named(page)}: {path}"


def test_the_index_leads_to_every_page() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in LINK.findall(
        index.read_text(encoding="utf-8"))}  # fmt: skip
    assert {page for page in PAGES if page.parent != ROOT} - {index} <= linked


# -- from code -------------------------------------------------------------------------------


@each_page
def test_a_page_has_the_tables_of_the_code(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text == reference.written(text), "run: make reference"


def test_every_table_stands_somewhere() -> None:
    texts = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert set(re.findall(r"<!-- make reference: ([\w-]+) -->", texts)) == set(reference.REGIONS)


def test_the_readme_names_a_framework_that_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever adds a format need not remember the table."""
    nova = replace(BUILT_IN_FORMATS[0], name="nova", framework="NovaTrain", versions="2026")
    monkeypatch.setattr(reference, "BUILT_IN_FORMATS", (*BUILT_IN_FORMATS, nova))
    assert "| NovaTrain | nova: 2026 |" in reference.formats_by_framework()


def test_every_column_of_metrics_has_a_meaning() -> None:
    assert list(METRIC_MEANINGS) == METRICS.names()
    assert list(COMPARISON_MEANINGS) == [name for name in COMPARISON if name not in METRICS]


def test_the_first_screen_of_the_readme_has_40_lines() -> None:
    first = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## ")[0]
    assert len(first.splitlines()) <= 40
