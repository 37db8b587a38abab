"""Tables for people and programs: terminal, JSON, CSV and Markdown from one frame."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import polars as pl

Formatter = Callable[[Any], str]


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
) -> str:
    """The frame as text: table, json, csv or markdown.

    JSON and CSV carry every column with its own name and full precision. The table and Markdown
    show `columns` (name: heading and formatter), or all.
    """
    if output == "json":
        return json.dumps(records(frame), indent=2, allow_nan=False, default=str)
    if output == "csv":
        return _csv(frame)
    every: dict[str, tuple[str, Formatter]] = {name: (name, str) for name in frame.columns}
    shown = columns or every
    body = [[_cell(row[name], how) for name, (_, how) in shown.items()] for row in _rows(frame)]
    headings = [heading for heading, _ in shown.values()]
    return _markdown(headings, body) if output == "markdown" else _table(title, headings, body)


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

    numeric = [all(_is_number(row[i]) for row in body) for i in range(len(headings))]
    table = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for heading, right in zip(headings, numeric, strict=True):
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    for row in body:
        table.add_row(*map(Text, row))
    console = Console(file=io.StringIO(), force_terminal=False, width=_width(headings, body))
    console.print(table)
    return "\n".join(line.rstrip() for line in _text(console).splitlines()).strip("\n")


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
