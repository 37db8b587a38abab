"""One offline HTML document: tables, figures and folds, and what is written around them.

Nothing is fetched: the content policy forbids the network and runs only the scripts whose hashes
it names. Every text that came from a log goes through `esc`, or into JSON with each '<' escaped,
so no text can be taken for markup, nor for the comment that holds a fold's place. No clock and no
random id: the same parts give the same bytes.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, Final, Protocol

from ..charts import render_process
from ..charts.theme import ACCENT, FRAMEWORK_COLOURS, chart_theme
from ..charts.tooltips import CONVENTIONS

Row = Mapping[str, Any]
Spec = dict[str, Any]
"""A chart as Vega-Lite has it."""

DASH: Final = "\N{EN DASH}"
DOT: Final = "\N{BLACK CIRCLE}"


class FigureLike(Protocol):
    """A chart apart from its data, as reports.charts.charts makes it."""

    @property
    def kind(self) -> str:
        """Names the spec: figures of one kind have equal specs."""

    @property
    def title(self) -> str:
        """What is drawn, without its convention."""

    @property
    def notes(self) -> Sequence[str]:
        """Lines of the caption: unit, convention, what was aggregated."""

    @property
    def description(self) -> str:
        """The chart in words, for those who hear the page."""

    @property
    def spec(self) -> Spec:
        """Vega-Lite without title, config and data."""

    @property
    def datasets(self) -> Mapping[str, Sequence[Row]]:
        """Rows by the names that the spec has for them, ready for JSON."""

    @property
    def params(self) -> Mapping[str, Any]:
        """Values of the spec's params that are this figure's own."""


# --- words and numbers ------------------------------------------------------------------------


def esc(text: object) -> str:
    """Text as HTML shows it, in an element or a quoted attribute."""
    return html.escape(str(text), quote=True)


def number(value: float | None, digits: int = 0, unit: str = "") -> str:
    """A figure with its unit, a dash where there is none."""
    return DASH if value is None else f"{value:,.{digits}f}{unit}"


def by_convention(texts: Mapping[str, str], field: str = "") -> str:
    """A figure under each convention, of which the page shows the chosen one.

    What reads the same by all of them, or by both peaks, stands there once.

    texts: HTML by `CONVENTIONS`; field: name of the JSON field before the convention.
    """
    if len(set(texts.values())) == 1:
        shown = {CONVENTIONS[0]: ""}
    elif all(texts[f"{a}_own"] == texts[f"{a}_bf16"] for a in ATTENTION):
        shown = {f"{a}_own": f"c {a}" for a in ATTENTION}
    else:
        shown = {name: f"c {name.replace('_', ' ')}" for name in CONVENTIONS}
    return "".join(
        f"<span{_attribute('class', kind)}{_attribute('data-of', field and f'{field}_{name}')}>"
        f"{texts[name]}</span>"
        for name, kind in shown.items()
    )


def run_attributes(run_id: str, model: str | None, accelerator: str | None) -> str:
    """Attributes of an element that is about one run: it can be filtered and is marked if selected.

    They start with a space.
    """
    names = {"data-run": run_id, "data-model": model, "data-accelerator": accelerator}
    return "".join(f' {name}="{esc(value or "")}"' for name, value in names.items())


def select_button(run_id: str, html: str, label: str) -> str:
    """A button that selects a run everywhere. text: HTML; label: the run's name."""
    return (
        f'<button type="button" class="pick" data-run="{esc(run_id)}" aria-pressed="false" '
        f'title="Mark {esc(label)} everywhere">{html}</button>'
    )


# --- tables -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    heading, cell: HTML, the latter of a row; css_class: class of the cell; field: name of the JSON
    field that the cell shows, `at` as seen from the table's rows.
    """

    heading: str
    cell: Callable[[Row], str]
    css_class: str = ""
    field: str = ""


def table(  # noqa: PLR0913 - what a table may say of itself
    caption: str,
    columns: Sequence[Column],
    rows: Iterable[Row],
    note: str = "",
    json_path: str = "",
    *,
    key: str = "",
) -> str:
    """A table with a caption; the first column heads its rows. All texts are HTML.

    json_path: JSON path of the rows, a list; a dict by `key` where that is given. Rows by `run_id`
    can be filtered and selected.
    """
    heads = "".join(f'<th scope="col"{_kind(c.css_class)}>{c.heading}</th>' for c in columns)
    body = "\n".join(
        f"<tr{_place(json_path, row, key, n)}>{_cells(columns, row)}</tr>"
        for n, row in enumerate(rows)
    )
    below = f'<span class="note">{note}</span>' if note else ""
    title = f'<caption><span class="title">{caption}</span>{below}</caption>'
    return (
        f'<div class="scroll">{_opened(columns)}{title}'
        f"<thead><tr>{heads}</tr></thead><tbody>\n{body}\n</tbody></table></div>"
    )


CARD_COLUMN_COUNTS: Final = range(5, 11)
"""Columns of a table that is wider than a telephone; the style sheet names as many in a card."""


def _opened(columns: Sequence[Column]) -> str:
    """The tag of a table; of a wide one with its headings, for where each row is a card."""
    if len(columns) not in CARD_COLUMN_COUNTS:
        return "<table>"
    words = (re.sub(r"<[^>]*>", "", c.heading.replace("<br>", " ")) for c in columns)
    named = ";".join(f"--h{n}:'{word}'" for n, word in enumerate(words, 1) if n > 1)
    return f'<table class="cards" style="{named}">'


def _place(at: str, row: Row, key: str, index: int) -> str:
    path = _attribute("data-at", at and f"{at}.{row[key] if key else index}")
    if key != "run_id":
        return path
    return path + run_attributes(row["run_id"], row.get("model"), row.get("accelerator"))


def _cells(columns: Sequence[Column], row: Row) -> str:
    first, *others = columns
    head = f'<th scope="row"{_attribute("data-of", first.field)}>{first.cell(row)}</th>'
    return head + "".join(
        f"<td{_kind(c.css_class)}{_attribute('data-of', c.field)}>{c.cell(row)}</td>"
        for c in others
    )


def _kind(kind: str) -> str:
    return _attribute("class", kind)


def _attribute(name: str, value: str) -> str:
    return f' {name}="{esc(value)}"' if value else ""


# --- controls ---------------------------------------------------------------------------------


def controls(
    models: Sequence[str],
    accelerators: Sequence[str],
    counts: Mapping[tuple[str, str], int] | None = None,
) -> str:
    """Toggles of the convention for the whole page, and filters where there is something to choose.

    counts: runs by model and accelerator, of which the page tells how many are shown.
    """
    filters = _filter("model", "Model", models) + _filter("accelerator", "GPU", accelerators)
    known = [[*pair, count] for pair, count in sorted((counts or {}).items())]
    held = f' data-counts="{esc(_json(known))}"' if known else ""
    return (
        f'<section class="controls" aria-label="What the page shows"{held}>'
        f"{_radios('attention', 'Attention', ATTENTION)}{_radios('peak', 'Peak', PEAK)}{filters}"
        f'<p class="status" role="status"></p>{SELECTED_RUN_HTML}{CONVENTION_HTML}</section>'
    )


ATTENTION: Final = {
    "exact": ("exact", "FLOPs of the pairs that the mask lets attend"),
    "full": ("full", "each token attends to the whole sequence, as most papers count"),
}
PEAK: Final = {
    "own": ("own dtype", "the peak of each operator's own number format"),
    "bf16": ("BF16", "the BF16 peak for every operator"),
}
SELECTED_RUN_HTML: Final = (
    '<p class="chosen" hidden><button type="button" class="details">Go to it</button> '
    '<button type="button" class="clear">Clear <kbd>Esc</kbd></button></p>'
)
"""What can be done about the run that is selected."""
CONVENTION_HTML: Final = (
    '<p class="convention">Figures count <span class="c exact">exact attention, the pairs that the '
    'mask lets attend</span><span class="c full">full attention, each token to the whole sequence'
    '</span>; MFU is of <span class="c own">the peak of each operator\'s own number format</span>'
    '<span class="c bf16">the BF16 peak</span>.</p>'
)
"""Names the chosen convention on paper, where no control shows it."""


def _radios(name: str, legend: str, choices: Mapping[str, tuple[str, str]]) -> str:
    first = next(iter(choices))
    inputs = "".join(
        f'<label title="{esc(meaning)}"><input type="radio" name="{name}" value="{value}" '
        f'autocomplete="off"{" checked" if value == first else ""}> <span>{text}</span></label>'
        for value, (text, meaning) in choices.items()
    )
    return f"<fieldset><legend>{legend}</legend>{inputs}</fieldset>"


def _filter(name: str, label: str, choices: Sequence[str]) -> str:
    known = sorted(set(filter(None, choices)))
    if len(known) < 2:  # noqa: PLR2004 - a choice takes two
        return ""
    options = "".join(f'<option value="{esc(text)}">{esc(text)}</option>' for text in known)
    return (
        f'<label>{label} <select name="{name}" autocomplete="off">'
        f'<option value="">all {len(known)}</option>{options}</select></label>'
    )


def legend(frameworks: Iterable[str]) -> str:
    """Which colour is which framework; names stand beside the colours."""
    shown = "".join(
        f'<li><span style="color:{FRAMEWORK_COLOURS.get(name, ACCENT)}" aria-hidden="true">{DOT}'
        f'</span> <span class="name">{esc(name)}</span></li>'
        for name in dict.fromkeys(frameworks)
    )
    return f'<ul class="legend" aria-label="Colours of the frameworks">{shown}</ul>'


# --- the document -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Fold:
    head: str
    body: str


class Sheet:
    """Collects what a page's body needs, figures and folds, and writes the document around it.

    packed_above: bytes of folds from which on they are stored compressed, each to be unpacked when
    it is opened.
    """

    def __init__(self, *, packed_above: int = 1_000_000) -> None:
        self.packed_above = packed_above
        self._specs: dict[str, Spec] = {}
        self._folds: list[_Fold] = []

    def figure(self, figure: FigureLike | Spec) -> str:
        """A place for a chart with its data beside it; its spec is stored once per kind.

        A whole Vega-Lite spec stands beside its place by itself. Raises ValueError where two
        figures of one kind have different specs.
        """
        if isinstance(figure, dict):
            return _figure(figure.get("description", ""), _data(figure))
        spec = self._specs.setdefault(figure.kind, figure.spec)
        if spec is not figure.spec and spec != figure.spec:
            raise ValueError(f"two figures of kind {figure.kind!r} have different specs")
        sets = {name: _by_column(rows) for name, rows in figure.datasets.items()}
        own = {"datasets": sets, "params": figure.params}
        notes = "".join(f'<span class="note">{esc(note)}</span>' for note in figure.notes)
        words = f"<figcaption>{esc(figure.title)}{notes}</figcaption>"
        return _figure(figure.description, _data(own), words, figure.kind)

    def fold(self, summary: str, body: str, *, name: str = "", attributes: str = "") -> str:
        """A part that opens at its summary; both are HTML.

        name: its id; attributes: more of the element's, escaped, as `run_attributes` gives them.
        What comes back holds its place in the body that `html` is given.
        """
        given = f"{_attribute('id', name)} {attributes.strip()}".rstrip()
        self._folds.append(_Fold(f"{given}\n{summary}", body))
        return f"<!--fold {len(self._folds) - 1}-->"

    def html(  # noqa: PLR0913 - the parts of a document
        self,
        title: str,
        body: Sequence[str],
        *,
        controls: str = "",
        style: str = "",
        script: str = "",
        script_file: str = "",
    ) -> str:
        """The document as text.

        controls: stand below the header, the body's first part; style: more of a style sheet;
        script: run at the end, after `script_file`, the name of a script file in the page's folder.
        A nonce lets that one tag load it, from a disk as from a server; as it hangs on the whole
        body, no text in the body can know it.
        """
        head, *rest = [part for part in body if part] or [""]
        text = "\n".join(filter(None, [head, controls, *rest]))
        packs = _Packs()
        whole = self._inlined(text)
        packed = (
            len(whole.encode()) - len(FOLD_PLACEHOLDER.sub("", text).encode()) > self.packed_above
        )
        content = f"{self._packed(text, packs)}\n{packs.written()}" if packed else whole
        drawing = "<figure" in whole
        data = self._drawing() if drawing else []
        if drawing and packed:
            data.append(_packed_library())
        library = [bundle()] if drawing else []
        own = [packaged("page.js")] if any(mark in whole for mark in SCRIPTED_MARKUP) else []
        scripts = [*filter(None, [script]), *library, *own]
        run = [script for script in scripts if not (packed and script in library)]
        nonce = _digest(content)[:22] if script_file else ""
        sources = [f"'nonce-{nonce}'"] if script_file else []
        loaded = (
            [f'<script nonce="{nonce}" src="{esc(script_file)}"></script>'] if script_file else []
        )
        return DOCUMENT.format(
            allowed=" ".join([*sources, *map(script_hash, scripts)]) or "'none'",
            title=esc(title),
            style=packaged("page.css") + style,
            content=content,
            end="".join([*loaded, *data, *(f"<script>{script}</script>" for script in run)]),
        )

    def _inlined(self, text: str) -> str:
        """The text with every fold in its place."""
        return FOLD_PLACEHOLDER.sub(lambda at: self._written(at, self._inlined), text)

    def _packed(self, text: str, packs: _Packs) -> str:
        """The text with every fold in its place, whose body is in `packs`, but for small ones."""
        return FOLD_PLACEHOLDER.sub(
            lambda at: self._written(at, lambda t: self._packed(t, packs), packs), text
        )

    def _written(
        self, at: re.Match[str], inner: Callable[[str], str], packs: _Packs | None = None
    ) -> str:
        fold = self._folds[int(at[1])]
        attributes, summary = fold.head.split("\n", 1)
        body = inner(fold.body)
        if packs is not None and len(body) > MIN_PACKED_TEXT:
            attributes += f' data-packed="{packs.add(body)}"'
            body = ""
        return f"<details{attributes}><summary>{summary}</summary>{body}</details>"

    def _drawing(self) -> list[str]:
        """Theme and specs, for the library to draw by."""
        specs = [
            _data(spec, f' class="spec" data-kind="{esc(kind)}"')
            for kind, spec in self._specs.items()
        ]
        return [_data(chart_theme()["config"], ' id="theme"'), *specs, NO_SCRIPT]


SCRIPTED_MARKUP: Final = ("<figure", "<details", 'class="controls"', 'class="pick"')
"""What the page's script serves; a page without any of them has none."""
FOLD_PLACEHOLDER: Final = re.compile(r"<!--fold (\d+)-->")
"""Where a fold stands. No text can hold it: all have their '<' escaped."""
MIN_PACKED_TEXT: Final = 300
"""Characters below which a fold's body stands in its place on any page."""
MAX_FOLDS_PER_PACK: Final = 48
MAX_TEXT_PER_PACK: Final = 1_500_000
"""What is unpacked at once: so many folds, or so much of them."""


class _Packs:
    """Bodies of folds, compressed some together, as one looks like another."""

    def __init__(self) -> None:
        self._blocks: list[list[str]] = [[]]

    def add(self, body: str) -> str:
        """Keep a body; its place, as block and number."""
        last = self._blocks[-1]
        if len(last) == MAX_FOLDS_PER_PACK or sum(map(len, last)) > MAX_TEXT_PER_PACK:
            self._blocks.append(last := [])
        last.append(body)
        return f"{len(self._blocks) - 1}.{len(last) - 1}"

    def written(self) -> str:
        """All blocks, each a script element that holds base64 and does not run."""
        blocks = "\n".join(_gzipped("pack", _json(block)) for block in self._blocks)
        return f"{blocks}\n{PACKED_NOTE}"


def _by_column(rows: Sequence[Row]) -> object:
    """Rows of one and the same names by column: half of the bytes, and fewer when compressed."""
    names = [*rows[0]] if rows else []
    if not names or any([*row] != names for row in rows):
        return rows
    return {name: [row[name] for row in rows] for name in names}


def _gzipped(kind: str, text: str) -> str:
    """Text as gzip in base64; without a time, so that the same text gives the same bytes."""
    held = base64.b64encode(gzip.compress(text.encode(), 9, mtime=0)).decode()
    return f'<script type="text/plain" class="{kind}">{held}</script>'


PACKED_NOTE: Final = (
    '<footer class="note screen" data-static><p>To keep this page small, what is folded is packed '
    "until it is opened: the browser's search finds it from then on.</p></footer>"
    "<noscript><p>What is folded is packed on this page, and needs JavaScript to be opened.</p>"
    "</noscript>"
)
NO_SCRIPT: Final = (
    "<noscript><style>.controls, .chart { display: none; }</style>"
    "<p>The charts need JavaScript; the tables hold all figures.</p></noscript>"
)


@cache
def _packed_library() -> str:
    """The library at half its size, for the page's script to run: the policy knows its hash."""
    return _gzipped("library", bundle())


@cache
def bundle() -> str:
    """Vega, Vega-Lite and vega-embed in one script, some 0.9 MB."""
    return render_process.draw_product("scripts").decode()


@cache
def packaged(name: str) -> str:
    """The text of a file of this package: a style sheet, a script."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def script_hash(script: str) -> str:
    """The script as the content policy names it."""
    return f"'sha256-{_digest(script)}'"


def _figure(description: str, data: str, caption: str = "", kind: str = "") -> str:
    return (
        f'<figure aria-label="{esc(description)}"{_attribute("data-kind", kind)}>{caption}'
        f'<div class="chart"></div>{data}</figure>'
    )


def _data(value: object, attributes: str = "") -> str:
    """JSON as a block of data: no text in it can end the block."""
    return f'<script type="application/json"{attributes}>{_json(value)}</script>'


def _json(value: object) -> str:
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), default=dict)
    return text.replace("<", "\\u003c")


DOCUMENT: Final = """<!doctype html>
<html lang="en" data-attention="exact" data-peak="own">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src {allowed}; \
style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{content}
{end}
</body>
</html>
"""
"""No network. A script runs only if it is one of ours, by hash, whatever a log smuggles in."""


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
