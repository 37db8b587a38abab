"""Tables for people and programs: terminal, JSON, CSV and Markdown from one frame."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from textwrap import wrap
from typing import Any, Final

import polars as pl

Formatter = Callable[[Any], str]

GAP: Final = 3
"""Characters between two columns of a table."""
READABLE: Final = 16
"""Characters of a column of text, at the least, unless all of it is shorter."""


def percent(value: float) -> str:
    """0.3328 as 33.3 %."""
    return f"{100 * value:.1f} %"


def count(value: float) -> str:
    """6398.2 as 6,398; small figures keep three digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004


def decimal(value: float) -> str:
    """370.805 as 370.8; small figures keep three digits."""
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"  # noqa: PLR2004


def ratio(value: float) -> str:
    """1.4404 as 1.440x."""
    return f"{value:.3f}x"


def joined(values: Sequence[str]) -> str:
    """A list as one text; several sentences keep apart."""
    return "; ".join(values)


def render(
    frame: pl.DataFrame,
    output: str,
    columns: Mapping[str, tuple[str, Formatter]] | None = None,
    title: str = "",
    least: Sequence[str] = (),
) -> str:
    """The frame as text: table, json, csv or markdown.

    JSON and CSV carry every column with its own name and full precision. The table and Markdown
    show `columns` (name: heading and formatter), or all. least: of these, what a terminal leaves
    out first that is too narrow for all; the line below the table names it.
    """
    if output == "json":
        return json.dumps(records(frame), indent=2, allow_nan=False, default=str)
    if output == "csv":
        return _csv(frame)
    every: dict[str, tuple[str, Formatter]] = {name: (name, str) for name in frame.columns}
    shown = columns or every
    body = [[_cell(row[name], how) for name, (_, how) in shown.items()] for row in _rows(frame)]
    headings = [heading for heading, _ in shown.values()]
    if output == "markdown":
        return _markdown(headings, body)
    order = [list(shown).index(name) for name in least if name in shown]
    left = _too_much(headings, body, order, _width(headings, body))
    kept = [place for place in range(len(headings)) if place not in left]
    table = _table(title, [headings[i] for i in kept], [[row[i] for i in kept] for row in body])
    return table if not left else f"{table}\n\n{_left_out([headings[i] for i in left])}"


def records(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Rows as dictionaries that JSON can carry: no NaN, no infinity."""
    return [{key: _plain(value) for key, value in row.items()} for row in _rows(frame)]


def _rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
    return list(frame.iter_rows(named=True))


def _plain(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _cell(value: object, how: Formatter) -> str:
    return "-" if value is None or value == [] else printable(how(value))


def printable(text: str) -> str:
    """Text of a log without what a terminal would obey."""
    return "".join(
        char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text
    )


def _csv(frame: pl.DataFrame) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(frame.columns)
    for row in frame.iter_rows():
        writer.writerow([_csv_cell(value) for value in row])
    return out.getvalue().rstrip("\n")


def _csv_cell(value: object) -> object:
    """Lists joined; text that a spreadsheet would take for a formula is quoted.

    It is as harmless to a terminal as a table.
    """
    text = joined([str(item) for item in value]) if isinstance(value, list) else value
    if not isinstance(text, str):
        return text
    return f"'{printable(text)}" if text[:1] in ("=", "+", "-", "@", "\t") else printable(text)


def _markdown(headings: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    lines = [
        "| " + " | ".join(map(markdown_text, headings)) + " |",
        "| --- " * len(headings) + "|",
    ]
    lines += ["| " + " | ".join(map(markdown_text, row)) + " |" for row in body]
    return "\n".join(lines)


def markdown_text(text: str) -> str:
    """Text as Markdown shows it: it ends no cell or line, starts no tag, link, list or mention."""
    for char in "\\[]`*_~#":
        text = text.replace(char, f"\\{char}")
    for char, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "&#124;")):
        text = text.replace(char, entity)
    for char, kept in (("://", ":&#47;&#47;"), ("www.", "www&#46;"), ("\n", " ")):
        text = text.replace(char, kept)
    return re.sub(r"(?<!\w)@", "@\N{ZERO WIDTH SPACE}", text)


def _table(title: str, headings: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - rich is slow to import
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    width = _width(headings, body)
    headings = _broken(headings, body, width)
    numeric = [all(_is_number(row[i]) for row in body) for i in range(len(headings))]
    table = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading, right in zip(headings, numeric, strict=True):
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    for row in body:
        table.add_row(*map(Text, row))
    console = Console(file=io.StringIO(), force_terminal=False, width=width)
    console.print(table)
    return "\n".join(line.rstrip() for line in _text(console).splitlines()).strip("\n")


def _too_much(
    headings: Sequence[str], body: Sequence[Sequence[str]], order: Sequence[int], width: int
) -> list[int]:
    """The first columns of `order` without which the others fit into so many characters."""
    needs = [_least_width(*column) for column in zip(headings, *body, strict=True)]
    over = sum(needs) + GAP * (len(needs) - 1) - width
    left: list[int] = []
    while over > 0 and len(left) < len(order):
        left.append(order[len(left)])
        over -= needs[left[-1]] + GAP
    return sorted(left)


def _least_width(heading: str, *cells: str) -> int:
    """Characters that a column needs: figures stay whole, headings break between words."""
    words = max(map(len, heading.split()), default=0)
    longest = max(map(len, cells), default=0)
    figures = all(map(_is_number, cells))
    return max(words, longest if figures else min(longest, READABLE))


def _broken(headings: Sequence[str], body: Sequence[Sequence[str]], width: int) -> Sequence[str]:
    """The headings over several lines where that gives other columns room that they lack."""
    columns = [*zip(headings, *body, strict=True)]
    wide = [max(len(line) for cell in column for line in cell.split("\n")) for column in columns]
    if sum(wide) + GAP * (len(columns) - 1) <= width:
        return headings
    return [
        "\n".join(wrap(heading, _least_width(heading, *cells))) or heading
        for heading, *cells in columns
    ]


def _left_out(headings: Sequence[str]) -> str:
    named = ", ".join(heading.replace("\n", " ") for heading in headings)
    return (
        f"Left out, as the terminal is too narrow: {named}. All of it: a wider one, or --format csv"
    )


def _text(console: Any) -> str:  # noqa: ANN401 - rich is imported late
    return str(console.file.getvalue())


def _is_number(text: str) -> bool:
    return text == "-" or text[:1].isdigit() or (text[:1] == "-" and text[1:2].isdigit())


def _width(headings: Sequence[str], body: Sequence[Sequence[str]]) -> int:
    """As wide as the terminal, or as the table where output goes to a file."""
    import shutil  # noqa: PLC0415
    import sys  # noqa: PLC0415

    if sys.stdout.isatty():
        return shutil.get_terminal_size().columns
    widths = [max(map(len, column)) for column in zip(headings, *body, strict=True)]
    return max(80, min(sum(width + 3 for width in widths), 240))
