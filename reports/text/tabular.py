"""Tables for people and programs: terminal, JSON, CSV and Markdown from one frame."""

from __future__ import annotations

import csv
import io
import json
import math
import re
import shutil
import sys
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from textwrap import fill
from typing import Any, Final

import polars as pl

Formatter = Callable[[Any], str]

COLUMN_GAP: Final = 3
"""Characters between two columns of a table."""
MIN_TEXT_WIDTH: Final = 16
"""Characters of a column of text, at the least, unless all of it is shorter."""
MAX_SENTENCE_WIDTH: Final = 100
"""Characters of a column of sentences in a file, at the most."""
WORD_SEAM: Final = re.compile(r"(?<=\s)(?=\S)")
CELL_SEAM: Final = re.compile(rf"{WORD_SEAM.pattern}|(?<=\w[-_/:])(?<!\d[eE]-)(?=\w)")
"""Where a heading may be broken, and a cell: behind what joins the parts of a name as well."""
MAX_TABLE_WIDTH: Final = 1_000_000
"""Characters of a table's line: how wide its columns are is settled before."""


MIN_ONE_DECIMAL_SHARE: Final = 0.01
"""Shares below it keep two digits: a run far from its peak has an MFU too."""


MAX_DECIMAL_SHARE: Final = 1e12
"""Shares of which no digit behind the point is known."""


def percent(value: float) -> str:
    """0.3328 as 33.3 %, 0.00361 as 0.36 %; a tie goes up, as it does in charts."""
    if 0 < abs(value) < MIN_ONE_DECIMAL_SHARE:
        return f"{100 * value:.2g} %"
    if not abs(value) < MAX_DECIMAL_SHARE:
        return f"{100 * value:.1f} %"
    return f"{Decimal(100 * value).quantize(Decimal('0.1'), ROUND_HALF_UP)} %"


def count(value: float) -> str:
    """6398.2 as 6,398; small figures keep three digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004


def decimal(value: float) -> str:
    """370.805 as 370.8; small figures keep three digits."""
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"  # noqa: PLR2004


def ratio(value: float) -> str:
    """1.4404 as 1.440x."""
    return f"{value:.3f}x"


def join_values(values: Sequence[str]) -> str:
    """A list as one text; several sentences keep apart."""
    return "; ".join(values)


def render_frame(
    frame: pl.DataFrame,
    output: str,
    columns: Mapping[str, tuple[str, Formatter]] | None = None,
    droppable: Sequence[str] = (),
    complete_output: str = "csv",
) -> str:
    """The frame as text: table, json, csv or markdown.

    JSON and CSV carry every column with its own name and full precision. The table and Markdown
    show `columns` (name: heading and formatter), or all. least: of these, what a terminal leaves
    out first that is too narrow for all; the line below the table names it, and the format of
    the same command that has it, `complete_output`.
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
    cells = [*zip(headings, *body, strict=True)]
    order = [list(shown).index(name) for name in droppable if name in shown]
    left = _too_much(cells, order) if sys.stdout.isatty() else []
    table = _table([column for i, column in enumerate(cells) if i not in left])
    return (
        table
        if not left
        else f"{table}\n\n{_left_out([headings[i] for i in left], complete_output)}"
    )


def records(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Rows as dictionaries that JSON can carry: no NaN, no infinity; DuckDB's sums as numbers."""
    return [{key: _plain(value) for key, value in row.items()} for row in _rows(frame)]


def _rows(frame: pl.DataFrame) -> list[dict[str, Any]]:
    return list(frame.iter_rows(named=True))


def _plain(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Decimal):  # DuckDB sums integers as HUGEINT, which Polars holds as Decimal
        return int(value) if value == value.to_integral_value() else float(value)
    return value


def _cell(value: object, how: Formatter) -> str:
    return "-" if value is None or value == [] else printable(how(value))


def printable(text: str) -> str:
    """Text of a log without what a terminal would obey."""
    return "".join(
        char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text
    )


NOT_XML: Final = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def for_xml(text: str) -> str:
    """Text without the characters that XML 1.0 cannot carry, not even escaped."""
    return NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


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
    text = join_values([str(item) for item in value]) if isinstance(value, list) else value
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


def _table(columns: Sequence[Sequence[str]]) -> str:
    """columns: each its heading, then its cells."""
    from rich.box import SIMPLE_HEAD  # noqa: PLC0415 - rich is slow to import
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    fitted = [
        [_broken(heading, width, WORD_SEAM), *(_broken(cell, width) for cell in cells)]
        for (heading, *cells), width in zip(columns, _widths(columns), strict=True)
    ]
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for (heading, *_), (_, *cells) in zip(fitted, columns, strict=True):
        right = all(map(_is_number, cells))
        table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    for row in list(zip(*fitted, strict=True))[1:]:
        table.add_row(*map(Text, row))
    console = Console(file=io.StringIO(), force_terminal=False, width=MAX_TABLE_WIDTH)
    console.print(table)
    return "\n".join(line.rstrip() for line in _text(console).splitlines()).strip("\n")


def _too_much(columns: Sequence[Sequence[str]], order: Sequence[int]) -> list[int]:
    """The first columns of `order` without which the others fit into the terminal."""
    needs = [_least_width(*column) for column in columns]
    over = sum(needs) - _room(len(columns))
    left: list[int] = []
    while over > 0 and len(left) < len(order):
        left.append(order[len(left)])
        over -= needs[left[-1]] + COLUMN_GAP
    return sorted(left)


def _room(columns: int) -> int:
    """Characters of the terminal that so many columns share; one stands before them."""
    return shutil.get_terminal_size().columns - 1 - COLUMN_GAP * (columns - 1)


def _widths(columns: Sequence[Sequence[str]]) -> list[int]:
    """Characters of each column: within the terminal, the widest gives first, none what it needs.

    In a file only sentences are broken.
    """
    full = [max(map(_longest_line, column)) for column in columns]
    if not sys.stdout.isatty():
        told = [any(" " in cell for cell in cells) for _, *cells in columns]
        return [min(n, MAX_SENTENCE_WIDTH) if of else n for n, of in zip(full, told, strict=True)]
    needs = [_least_width(*column) for column in columns]

    def within(most: int) -> list[int]:
        return [max(least, min(n, most)) for n, least in zip(full, needs, strict=True)]

    room = _room(len(columns))
    most = bisect_right(range(max(full, default=0) + 1), room, key=lambda n: sum(within(n)))
    return within(most - 1)


def _least_width(heading: str, *cells: str) -> int:
    """Characters that a column needs: figures stay whole, headings break between words."""
    words = max(map(len, heading.split()), default=0)
    longest = max(map(_longest_line, cells), default=0)
    figures = all(map(_is_number, cells))
    return max(words, longest if figures else min(longest, MIN_TEXT_WIDTH))


def _longest_line(cell: str) -> int:
    return max(map(len, cell.split("\n")))


def _broken(cell: str, width: int, seam: re.Pattern[str] = CELL_SEAM) -> str:
    """A cell over several lines of at most `width` characters."""
    if _longest_line(cell) <= width:
        return cell
    return "\n".join(part for line in cell.split("\n") for part in _parts(line, width, seam))


def _parts(line: str, width: int, seam: re.Pattern[str] = CELL_SEAM) -> list[str]:
    """Broken at seams; what is longer than a line anywhere."""
    parts = [""]
    for piece in seam.split(line):
        for start in range(0, len(piece), width):
            some = piece[start : start + width]
            if len(parts[-1]) + len(some.rstrip()) > width:
                parts.append("")
            parts[-1] += some
    return [part.strip() for part in parts]


def wrapped(text: str) -> str:
    """Broken between words where it goes to a terminal; as it is where a program reads it."""
    if not sys.stdout.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return fill(text, width, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)


def _left_out(headings: Sequence[str], whole: str) -> str:
    named = ", ".join(heading.replace("\n", " ") for heading in headings)
    return wrapped(
        f"Left out for want of room: {named}. All of it: a wider terminal, or --format {whole}"
    )


def _text(console: Any) -> str:  # noqa: ANN401 - rich is imported late
    return str(console.file.getvalue())


def _is_number(text: str) -> bool:
    return text == "-" or text[:1].isdigit() or (text[:1] == "-" and text[1:2].isdigit())
