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

GAP: Final = "   "
"""Between two columns of a table."""
RULE: Final = "─"
"""Character of the line below the headings."""
MIN_TEXT_WIDTH: Final = 16
"""Fewest characters of a text column, unless all its texts are shorter."""
RUN_HEADING: Final = "run"
"""Heading of the names of runs: they are never broken, so that they can be copied."""
MAX_SENTENCE_WIDTH: Final = 100
"""Most characters of a sentence column in a file."""
WORD_SEAM: Final = re.compile(r"(?<=\s)(?=\S)")
CELL_SEAM: Final = re.compile(rf"{WORD_SEAM.pattern}|(?<=\w[-_/:])(?<!\d[eE]-)(?=\w)")
"""Break points: WORD_SEAM of a heading; CELL_SEAM of a cell, also after joints within names."""

MIN_ONE_DECIMAL_SHARE: Final = 0.01
"""Smallest share with one decimal; smaller ones keep two digits, as for a run far from its peak."""


MAX_DECIMAL_SHARE: Final = 1e12
"""Shares from which on no digit after the point is known."""


GIB: Final = 2**30
"""Bytes of a GiB."""


def percent(value: float) -> str:
    """Return 0.3328 as 33.3 %, 0.00361 as 0.36 %; a tie rounds up, as in charts."""
    if 0 < abs(value) < MIN_ONE_DECIMAL_SHARE:
        return f"{100 * value:.2g} %"
    if not abs(value) < MAX_DECIMAL_SHARE:
        return f"{100 * value:.1f} %"
    return f"{Decimal(100 * value).quantize(Decimal('0.1'), ROUND_HALF_UP)} %"


def count(value: float) -> str:
    """Return 6398.2 as 6,398; small figures keep three digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"  # noqa: PLR2004


def decimal(value: float) -> str:
    """Return 370.805 as 370.8; small figures keep three digits."""
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.3g}"  # noqa: PLR2004


def ratio(value: float) -> str:
    """Return 1.4404 as 1.440x."""
    return f"{value:.3f}x"


def count_noun(n: int, noun: str) -> str:
    """Return 1 run, 2 runs."""
    return f"{n:,} {plural(noun, n)}"


def plural(noun: str, n: int) -> str:
    """Return a noun for a count: more and series have no plural, address takes es."""
    if n == 1 or noun in ("more", "series"):
        return noun
    return noun + ("es" if noun.endswith("s") else "s")


def signed_percent(ratio: float | None) -> str:
    """Return 0.949 as -5.1 % and 1.02 as +2.0 %, with a real minus sign."""
    if ratio is None:
        return "\N{EN DASH}"
    text = f"{100 * (ratio - 1):+.1f} %"
    if float(text[:-2]) == 0:
        return "0.0 %"
    return text.replace("-", "\N{MINUS SIGN}")


def difference_text(ratio: float, low: float | None, high: float | None) -> tuple[str, str]:
    """Return the unsigned distance from 1 and its interval: `5.1 %`, `4.6 to 5.6`.

    One decimal; two if one decimal would hide the difference or equal an end of the interval.
    """
    way = -1 if ratio < 1 else 1
    ends = (
        [] if low is None or high is None else sorted(100 * way * (end - 1) for end in (low, high))
    )
    size, interval = "", []
    for digits in (1, 2):
        size = f"{100 * way * (ratio - 1):.{digits}f}"
        interval = [f"{end:.{digits}f}".replace("-", "\N{MINUS SIGN}") for end in ends]
        if float(size) and size not in interval:
            break
    return f"{size} %", " to ".join(interval)


def join_values(values: Sequence[str]) -> str:
    """Return a list as one text, with separate sentences."""
    return "; ".join(values)


def render_frame(
    frame: pl.DataFrame,
    output: str,
    columns: Mapping[str, tuple[str, Formatter]] | None = None,
    droppable: Sequence[str] = (),
    complete_output: str = "csv",
) -> str:
    """Return the frame as text: table, json, csv or markdown.

    JSON and CSV contain every column with its own name and full precision. The table and Markdown
    show `columns` (name: heading and formatter), or all.

    droppable: columns that a narrow terminal omits, in this order; complete_output: the format of
        the same command with all columns, named below the table

    A terminal that is too narrow breaks texts, then omits columns. If the names of runs still do
    not fit beside the other columns, each is on a line of its own.
    """
    if output == "json":
        return json.dumps(records(frame), indent=2, allow_nan=False, default=str)
    if output == "csv":
        return _csv(frame)
    every: dict[str, tuple[str, Formatter]] = {name: (name, str) for name in frame.columns}
    shown = columns or every
    headings = [heading for heading, _ in shown.values()]
    cells: list[Sequence[str]] = [
        [heading, *(_cell(value, how) for value in frame[name].to_list())]
        for name, (heading, how) in shown.items()
    ]
    if output == "markdown":
        return _markdown(cells)
    if not sys.stdout.isatty():
        return _table(cells)
    order = [list(shown).index(name) for name in droppable if name in shown]
    names, cells = _names_above(cells, order)
    left = _too_much(cells, order)
    table = _table([column for i, column in enumerate(cells) if i not in left], names)
    return (
        table
        if not left
        else f"{table}\n\n{_left_out([headings[i] for i in left], complete_output)}"
    )


def records(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Return rows for JSON: no NaN, no infinity; DuckDB's sums as numbers."""
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
    """Return log text without control characters that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text
    )


NOT_XML: Final = r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"


def for_xml(text: str) -> str:
    """Return text without characters that XML 1.0 forbids, even escaped."""
    return re.sub(NOT_XML, "\N{REPLACEMENT CHARACTER}", text)


def _csv(frame: pl.DataFrame) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(frame.columns)
    for row in frame.iter_rows():
        writer.writerow([_csv_cell(value) for value in row])
    return out.getvalue().rstrip("\n")


def _csv_cell(value: object) -> object:
    """Return a cell for CSV: lists joined, formulas of spreadsheets quoted.

    The text is as harmless to a terminal as a table.
    """
    text = join_values([str(item) for item in value]) if isinstance(value, list) else value
    if not isinstance(text, str):
        return text
    return f"'{printable(text)}" if text[:1] in ("=", "+", "-", "@", "\t") else printable(text)


def _markdown(columns: Sequence[Sequence[str]]) -> str:
    """Return a table as Markdown; columns: lists of a heading and cells."""
    rows = zip(*columns, strict=True)
    lines = ["| " + " | ".join(map(markdown_text, row)) + " |" for row in rows]
    lines.insert(1, "| --- " * len(columns) + "|")
    return "\n".join(lines)


def markdown_text(text: str) -> str:
    """Escape text for Markdown, so that no character ends a cell or starts markup.

    No end of a cell or line, no tag, link, list or mention. GitHub and Python-Markdown agree on
    these escapes; an escaped ~ is none to the latter.
    """
    for char in "\\[]`*_#":
        text = text.replace(char, f"\\{char}")
    for char, entity in (
        ("&", "&amp;"),
        ("<", "&lt;"),
        (">", "&gt;"),
        ("|", "&#124;"),
        ("~", "&#126;"),
    ):
        text = text.replace(char, entity)
    for char, kept in (("://", ":&#47;&#47;"), ("www.", "www&#46;"), ("\n", " ")):
        text = text.replace(char, kept)
    return re.sub(r"(?<!\w)@", "@\N{ZERO WIDTH SPACE}", text)


def _names_above(
    columns: list[Sequence[str]], order: Sequence[int]
) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Return names of runs that need a line of their own, and the columns.

    Without names if they fit beside the other columns once those of `order` are omitted.
    """
    kept = [column for i, column in enumerate(columns) if i not in order]
    if sum(_least_width(*column) for column in kept) <= _room(len(kept)):
        return (), columns
    names = next((cells for heading, *cells in columns if heading == RUN_HEADING), [])
    blank = [""] * len(names)
    return names, [[RUN_HEADING, *blank] if c[0] == RUN_HEADING else c for c in columns]


def _table(columns: Sequence[Sequence[str]], names: Sequence[str] = ()) -> str:
    """Return a table as text.

    columns: lists of a heading and cells. names: of the rows, for a line above each
    """
    if not columns:
        return ""
    widths = _widths(columns)
    fitted = [_fitted(*column, width=n) for column, n in zip(columns, widths, strict=True)]
    heights = [max(cell.count("\n") + 1 for cell in row) for row in zip(*fitted, strict=True)]
    drawn = []
    for column, (heading, *cells) in zip(fitted, columns, strict=True):
        right = heading != RUN_HEADING and all(map(_is_number, cells))
        drawn.append(_aligned(_stacked(column, heights), right=right))
    lines = [" " + GAP.join(parts) for parts in zip(*drawn, strict=True)]
    rule = sum(_display_width(column[0]) for column in drawn) + len(GAP) * (len(columns) - 1)
    lines.insert(heights[0], " " + RULE * rule)
    text = "\n".join(line.rstrip() for line in lines).strip("\n")
    return _with_names(text, names, heights) if names else text


def _stacked(cells: Sequence[str], heights: Sequence[int]) -> list[str]:
    """Return the lines of a column, with blank lines for shorter cells.

    A heading is at the bottom of its row, a cell at the top.
    """
    (heading, *body), (first, *others) = (cell.split("\n") for cell in cells), heights
    lines = [""] * (first - len(heading)) + heading
    for cell, height in zip(body, others, strict=True):
        lines += cell + [""] * (height - len(cell))
    return lines


def _aligned(lines: Sequence[str], *, right: bool) -> list[str]:
    """Return lines of equal display width."""
    texts = [line.rstrip() for line in lines] if right else lines
    width = max(map(_display_width, lines))
    blanks = [" " * (width - _display_width(text)) for text in texts]
    pairs = zip(blanks, texts, strict=True) if right else zip(texts, blanks, strict=True)
    return list(map("".join, pairs))


def _display_width(text: str) -> int:
    """Return the columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # noqa: PLC0415 - few tables need it

    return cell_len(text)


def _fitted(heading: str, *cells: str, width: int) -> list[str]:
    """Return a column broken at a width; names of runs stay whole."""
    if heading == RUN_HEADING:
        return [heading, *cells]
    return [_broken(heading, width, WORD_SEAM), *(_broken(cell, width) for cell in cells)]


def _with_names(text: str, names: Sequence[str], heights: Sequence[int]) -> str:
    """Return a table with a name above each row.

    heights: number of lines of the headings, and of each row
    """
    lines = iter(text.splitlines())
    parts = [next(lines) for _ in range(heights[0] + 1)]  # headings and the rule below
    for name, height in zip(names, heights[1:], strict=True):
        parts += [f" {name}", *(next(lines, "") for _ in range(height))]
    return "\n".join(parts)


def _too_much(columns: Sequence[Sequence[str]], order: Sequence[int]) -> list[int]:
    """Return the first columns of `order` to omit so that the rest fits the terminal."""
    needs = [_least_width(*column) for column in columns]
    over = sum(needs) - _room(len(columns))
    left: list[int] = []
    while over > 0 and len(left) < len(order):
        left.append(order[len(left)])
        over -= needs[left[-1]] + len(GAP)
    return sorted(left)


def _room(columns: int) -> int:
    """Return the characters of the terminal for so many columns, after a margin."""
    return shutil.get_terminal_size().columns - 1 - len(GAP) * (columns - 1)


def _widths(columns: Sequence[Sequence[str]]) -> list[int]:
    """Return the width of each column: the widest shrink first, none below its need.

    Within the terminal; in a file only sentences are broken.
    """
    full = [max(map(_longest_line, column)) for column in columns]
    if not sys.stdout.isatty():
        told = [
            heading != RUN_HEADING and any(" " in cell for cell in cells)
            for heading, *cells in columns
        ]
        return [min(n, MAX_SENTENCE_WIDTH) if of else n for n, of in zip(full, told, strict=True)]
    needs = [_least_width(*column) for column in columns]

    def within(most: int) -> list[int]:
        return [max(least, min(n, most)) for n, least in zip(full, needs, strict=True)]

    room = _room(len(columns))
    most = bisect_right(range(max(full, default=0) + 1), room, key=lambda n: sum(within(n)))
    return within(most - 1)


def _least_width(heading: str, *cells: str) -> int:
    """Return the characters that a column needs.

    Figures and names of runs stay whole, headings are broken by word.
    """
    words = max(map(len, heading.split()), default=0)
    longest = max(map(_longest_line, cells), default=0)
    whole = heading == RUN_HEADING or all(map(_is_number, cells))
    return max(1, words, longest if whole else min(longest, MIN_TEXT_WIDTH))


def _longest_line(cell: str) -> int:
    return max(map(len, cell.split("\n")))


def _broken(cell: str, width: int, seam: re.Pattern[str] = CELL_SEAM) -> str:
    """Return a cell over several lines of at most `width` characters."""
    if _longest_line(cell) <= width:
        return cell
    return "\n".join(part for line in cell.split("\n") for part in _parts(line, width, seam))


def _parts(line: str, width: int, seam: re.Pattern[str] = CELL_SEAM) -> list[str]:
    """Return a line broken at seams; a part longer than `width` is broken anywhere."""
    parts = [""]
    for piece in seam.split(line):
        for start in range(0, len(piece), width):
            some = piece[start : start + width]
            if len(parts[-1]) + len(some.rstrip()) > width:
                parts.append("")
            parts[-1] += some
    return [part.strip() for part in parts]


def wrapped(text: str) -> str:
    """Break text between words for a terminal; leave text for programs as it is."""
    if not sys.stdout.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return fill(text, width, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)


def _left_out(headings: Sequence[str], whole: str) -> str:
    named = ", ".join(heading.replace("\n", " ") for heading in headings)
    return wrapped(
        f"Columns hidden, because the terminal is narrow: {named}. To see all: --format {whole}"
    )


def _is_number(text: str) -> bool:
    return text == "-" or text[:1].isdigit() or (text[:1] == "-" and text[1:2].isdigit())
