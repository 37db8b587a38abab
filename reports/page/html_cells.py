"""What the page's tables show of a run, each number beside its place in the content.

A cell is HTML of one row; `field_span` names the field that an element shows, so that a number on
the page can be looked up in what `--format json` prints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from fairmfu.metrics.core.run_table import short_doubt

from ..charts.theme import ACCENT, FRAMEWORK_COLOURS
from ..charts.tooltips import CONVENTIONS
from ..text import tabular
from ..text.bridge_text import MIN_WHOLE_FIGURE
from .html_document import (
    ATTENTION,
    DASH,
    DOT,
    Column,
    Sheet,
    by_convention,
    esc,
    number,
    select_button,
    table,
)
from .report_data import Json, ReportContent

Row = Mapping[str, Any]

MAX_OPEN_ROWS: Final = 40
"""Rows that a table shows; the rest is folded."""
MAX_OPEN_ROWS_OF_MANY: Final = 20
"""Rows that a table shows on a page of very many runs."""


# --- numbers and words --------------------------------------------------------------------


def field_span(field: str, html: str) -> str:
    """HTML beside the field of the content that it shows; nothing where it is nothing."""
    return f'<span data-of="{field}">{html}</span>' if html else ""


def static_span(text: str) -> str:
    """Prose that holds digits and no figure of a run; HTML."""
    return f"<span data-static>{text}</span>"


def percent_cell(value: float | None) -> str:
    """A share in percent, as reports.text.tabular.percent; a dash for none."""
    return DASH if value is None else tabular.percent(value)


def significant_cell(value: float | None) -> str:
    """Three or more figures, whatever the size."""
    if value is None:
        return DASH
    return f"{value:,.0f}" if abs(value) >= MIN_WHOLE_FIGURE else f"{value:.3g}"


def scientific_cell(value: float | None) -> str:
    """Four figures; a large or small one with its power of ten."""
    return DASH if value is None else f"{value:.4g}"


def ratio_cell(value: float | None) -> str:
    """1.1259 as 1.13x."""
    return DASH if value is None else f"{value:.2f}x"


def interval_cell(row: Row, low: str, high: str, formatter: Callable[[float | None], str]) -> str:
    """low to high; one figure where both read the same, nothing where one is unknown."""
    if row[low] is None or row[high] is None:
        return ""
    ends = formatter(row[low]), formatter(row[high])
    if ends[0] == ends[1]:
        return field_span(low, ends[0])
    return f"{field_span(low, ends[0])}{DASH}{field_span(high, ends[1])}"


def convention_cell(
    row: Row, field: str, formatter: Callable[[float | None], str] = percent_cell
) -> str:
    """A figure by each convention, of which the page shows the chosen one.

    row: with `field` by `CONVENTIONS` behind an underscore.
    """
    return by_convention(
        {name: formatter(row[f"{field}_{name}"]) for name in CONVENTIONS}, field=field
    )


CONVENTION_NOTE_HTML: Final = (
    'MFU and TFLOP/s are by <span class="c exact">exact</span><span class="c full">full</span> '
    'attention; MFU is of the <span class="c own">own-dtype</span><span class="c bf16">BF16'
    "</span> peak."
)
"""Names the chosen convention, beneath a caption."""


# --- a run --------------------------------------------------------------------------------


def run_label(row: Row) -> str:
    """A run's name behind a dot in its framework's colour; synthetic runs say so."""
    return dotted_label(row) + _tag(row)


def run_select_cell(row: Row) -> str:
    """A run's name as a button that marks the run everywhere on the page."""
    return select_button(row["run_id"], dotted_label(row), str(row["label"])) + _tag(row)


def dotted_label(row: Row) -> str:
    """The label of a run or a series behind the dot."""
    colour = FRAMEWORK_COLOURS.get(row["framework"], ACCENT)
    dot = f'<span style="color:{colour}" aria-hidden="true">{DOT}&nbsp;</span>'
    return f'<span class="name">{dot}{esc(row["label"])}</span>'


def _tag(row: Row) -> str:
    return ' <span class="tag" data-static>synthetic</span>' if row["synthetic"] else ""


def run_link_cell(row: Row) -> str:
    """A run's name, with a link to the run's own part of the page."""
    to = f"All of {esc(row['label'])}"
    arrow = '<span aria-hidden="true">\N{DOWNWARDS ARROW}</span>'
    link = f'<a class="to" href="#run-{esc(row["run_id"])}" aria-label="{to}" title="{to}">'
    return f'<span class="run">{run_select_cell(row)} {link}{arrow}</a></span>'


def keep_units_together(sentence: str) -> str:
    """HTML in which a figure keeps to one line with what belongs to it: 33.3 %, (x 0.89)."""
    return sentence.replace("(x ", "(x&nbsp;").replace(" %", "&nbsp;%")


def tgs_cell(run: Row) -> str:
    """With its interval beneath, and what puts it in doubt."""
    if run["tgs"] is None:
        return field_span("tgs", DASH)
    interval = interval_cell(run, "tgs_low", "tgs_high", number) or "no interval"
    shown = f"<strong>{field_span('tgs', number(run['tgs']))}</strong>"
    return f'{shown}<span class="small">{interval}</span>{doubt_cell(run)}'


def doubt_cell(run: Row) -> str:
    """The first doubt of a figure, to stand beneath it; the whole of it on the mouse."""
    if (short := short_doubt(run["doubts"])) is None:
        return ""
    whole = esc("; ".join(run["doubts"]))
    return f'<span class="small doubt" title="{whole}">? {esc(short)}</span>'


CLAIMS: Final[dict[str, tuple[Callable[[float | None], str], str]]] = {
    "logged_tflops": (significant_cell, "TFLOP/s"),
    "logged_mfu": (percent_cell, "MFU"),
    "logged_tgs": (number, "TGS"),
}
"""How each figure of a log is written, and its unit."""


def _claimed(run: Row, cell: Callable[[Row, Callable[[float | None], str], str], str]) -> str:
    """A cell on what the log printed."""
    claim = run["claim"]
    if claim is None:
        return '<span class="muted">nothing</span>'
    text, unit = CLAIMS[claim["figure"]]
    return f'<span data-at="claim">{cell(claim, text, unit)}</span>'


def _printed(run: Row) -> str:
    def cell(claim: Row, text: Callable[[float | None], str], unit: str) -> str:
        return f"{field_span('logged', text(claim['logged']))} {unit}"

    mfu, claim = run["logged_mfu"], run["claim"]
    both = claim is not None and claim["figure"] != "logged_mfu" and mfu is not None
    more = (
        f'<span class="small">MFU {field_span("logged_mfu", percent_cell(mfu))}</span>'
        if both
        else ""
    )
    return _claimed(run, cell) + more


def _ours(run: Row) -> str:
    """In the unit of what the log printed; TFLOP/s where it printed nothing."""
    if run["claim"] is None:
        return DASH if run["tflops_exact"] is None else f"{_tflops(run)} TFLOP/s"
    if run["claim"]["ours_full_own"] is None:
        return DASH
    return _claimed(run, lambda claim, text, _: convention_cell(claim, "ours", text))


def _tflops(run: Row) -> str:
    """TFLOP/s by exact and by full attention, of which the page shows the chosen one."""
    names = {kind: f"tflops_{kind}" for kind in ATTENTION}
    shown = {kind: field_span(name, significant_cell(run[name])) for kind, name in names.items()}
    return "".join(f'<span class="c {kind}">{text}</span>' for kind, text in shown.items())


def _ratio(run: Row) -> str:
    if run["claim"] is None:
        return DASH
    return _claimed(
        run, lambda claim, *_: f"<strong>{convention_cell(claim, 'ratio', ratio_cell)}</strong>"
    )


def audit_cell(run: Row) -> str:
    """Whether the framework's own formula gives what its log printed; why stands behind it."""
    audit = run["audit"]
    kind = ' class="warning"' if run["logged_reproduced"] is False else ""
    word = field_span("audit.word", esc(audit["word"]))
    return f'<abbr{kind} title="{esc(audit["why"])}">{word}</abbr>'


NAME_COLUMN: Final = Column("Run", run_link_cell, field="label")
LOGGED_COLUMN: Final = Column("The log<br>printed", _printed, "number")
OURS_COLUMN: Final = Column("Recomputed", _ours, "number")
RATIO_COLUMN: Final = Column("Logged /<br>recomputed", _ratio, "number")


# --- tables and figures -------------------------------------------------------------------


def folded_table(  # noqa: PLR0913, PLR0917 - what a table may say of itself
    sheet: Sheet,
    content: ReportContent,
    caption: str,
    columns: Sequence[Column],
    rows: Sequence[Row],
    note: str = "",
    json_path: str = "",
) -> str:
    """A table of which only the first rows stand open. at: JSON path of a list; else of runs."""
    key, path = ("", json_path) if json_path else ("run_id", "runs")
    done = MAX_OPEN_ROWS if content.data["in_full"] else MAX_OPEN_ROWS_OF_MANY
    first = table(caption, columns, rows[:done], note, json_path=path, key=key)
    for n in range(done, len(rows), MAX_ROWS_PER_FOLD):
        part = rows[n : n + MAX_ROWS_PER_FOLD]
        whole = table(caption, columns, part, json_path=path, key=key)
        if json_path:  # rows of a list count from where the table before ended
            whole = _counted_from(whole, json_path, n)
        count = static_span(f"{n + 1:,} to {n + len(part):,} of {len(rows):,}")
        first += sheet.fold(f"{count}, the rest of the table", whole)
    return first


MAX_ROWS_PER_FOLD: Final = 400


def _counted_from(whole: str, at: str, first: int) -> str:
    """A table whose rows stand later in the list than its first."""
    head, *rest = whole.split(f'data-at="{at}.')
    moved = (part.split('"', 1) for part in rest)
    return head + "".join(f'data-at="{at}.{int(n) + first}"{after}' for n, after in moved)


def figure_block(sheet: Sheet, content: ReportContent, key: str) -> str:
    """A chart of the content by its key, nothing where there is none."""
    if key not in content.figures:
        return ""
    return f'<div data-at="charts.{esc(key)}">{sheet.figure(content.figures[key])}</div>'


def unread_table(lines: Sequence[Json]) -> str:
    """Lines that look like steps and could not be read; each with its `place` among all."""
    if not lines:
        return ""
    return table(
        "Look like steps and could not be read",
        UNREAD_COLUMNS,
        lines,
        json_path="unread",
        key="place",
    )


UNREAD_COLUMNS: Final = (
    Column("Line", lambda row: number(row["line"]), field="line"),
    Column("Why", lambda row: esc(row["reason"]), "text", field="reason"),
    Column(
        "Text", lambda row: f'<span class="log">{esc(row["text"])}</span>', "text", field="text"
    ),
)
