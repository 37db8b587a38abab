"""Offline HTML document: its figures and folds, and the frame around them.

Nothing is fetched: the content policy forbids the network and runs only the scripts whose hashes it
names. Every text is escaped by the templates, or is in JSON with escaped '<'. So no text can act as
markup, nor as the placeholder comment of a fold. No clock and no random id: the same parts give the
same bytes.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, Protocol

from markupsafe import Markup, escape

from ..charts import render_process
from ..charts.theme import chart_theme
from .html_templates import macro, packaged, render, trusted

Row = Mapping[str, Any]
Spec = dict[str, Any]
"""Chart in Vega-Lite."""

TEMPLATE: Final = "page/sheet.html.j2"


class FigureLike(Protocol):
    """Chart separate from its data, as made by reports.charts.charts."""

    @property
    def kind(self) -> str:
        """Name of the spec: figures of one kind have equal specs."""

    @property
    def title(self) -> str:
        """Subject of the chart, without its convention."""

    @property
    def notes(self) -> Sequence[str]:
        """Lines of the caption: unit, convention, aggregation."""

    @property
    def description(self) -> str:
        """Chart in words, for screen readers."""

    @property
    def spec(self) -> Spec:
        """Vega-Lite without title, config and data."""

    @property
    def datasets(self) -> Mapping[str, Sequence[Row]]:
        """Rows by the data names of the spec, ready for JSON."""

    @property
    def params(self) -> Mapping[str, Any]:
        """Values of the spec's params for this figure."""


@dataclass(frozen=True, slots=True)
class Fold:
    """Part that opens at its summary.

    name: id; attributes: further attributes, after a space
    """

    summary: str
    body: Markup
    name: str
    attributes: str


@dataclass(frozen=True, kw_only=True)
class Document:
    """Frame of the document template around its content.

    allowed: sources of scripts for the content policy; theme, specs: JSON of the charts, empty on a
        page without; library: packed; script_file: beside the page, allowed by the nonce
    """

    title: str
    style: Markup
    content: Markup
    allowed: Sequence[str]
    scripts: Sequence[Markup]
    script_file: str
    nonce: str
    theme: str | Markup = ""
    specs: Mapping[str, Markup] = field(default_factory=dict)
    library: str = ""


class Sheet:
    """Collects the figures and folds of a page's body, and writes the document.

    packed_above: bytes of folds above which folds are stored compressed and unpacked when opened
    """

    def __init__(self, *, packed_above: int = 1_000_000) -> None:
        self.packed_above = packed_above
        self._specs: dict[str, Spec] = {}
        self._folds: list[Fold] = []

    def figure(self, figure: FigureLike | Spec) -> Markup:
        """Return a placeholder for a chart with its data; store a spec once per kind.

        A complete Vega-Lite spec is written beside the placeholder. Raises ValueError if two
        figures of a kind have different specs.
        """
        written = macro(TEMPLATE, "figure")
        if isinstance(figure, dict):
            return written(figure.get("description", ""), json_block(figure))
        spec = self._specs.setdefault(figure.kind, figure.spec)
        if spec is not figure.spec and spec != figure.spec:
            raise ValueError(f"two figures of kind {figure.kind!r} have different specs")
        sets = {name: _by_column(rows) for name, rows in figure.datasets.items()}
        own = json_block({"datasets": sets, "params": figure.params})
        return written(figure.description, own, figure.kind, figure.title, figure.notes)

    def fold(self, summary: str, body: str, *, name: str = "", attributes: str = "") -> Markup:
        """Return the placeholder of a part that opens at its summary; escape plain text.

        name: id; attributes: further attributes, as written by the macro run_attributes. The
            placeholder belongs in the body for `html`.
        """
        self._folds.append(Fold(summary, escape(body), name, attributes))
        return trusted(f"<!--fold {len(self._folds) - 1}-->")

    def html(
        self, title: str, body: Markup, *, style: str = "", script: str = "", script_file: str = ""
    ) -> str:
        """Return the document as text.

        style: additional style sheet; script: run at the end, after `script_file`, the name of a
            script file in the page's folder. A nonce lets a single tag load the file, from disk as
            from a server. The nonce depends on the whole body, so no text in the body can contain
            the nonce.
        """
        folds = [*self._placed(body)]
        parts = [body, *(fold.body for fold in folds)]
        packed = sum(map(_size, folds)) > self.packed_above
        content = self._packed(body) if packed else self._inlined(body)
        drawing = _any_has(parts, "<figure")
        library = [bundle()] if drawing else []
        scripted = folds or any(_any_has(parts, mark) for mark in SCRIPTED_MARKUP)
        own = [page_script()] if scripted else []
        scripts = [*filter(None, [script]), *library, *own]
        nonce = _digest(content)[:22] if script_file else ""
        document = Document(
            title=title,
            style=trusted(packaged("page.css") + style),
            content=content,
            allowed=[*([f"'nonce-{nonce}'"] if nonce else []), *map(script_hash, scripts)],
            scripts=[trusted(text) for text in scripts if not (packed and text in library)],
            script_file=script_file,
            nonce=nonce,
            theme=json_block(chart_theme()["config"]) if drawing else "",
            specs={kind: json_block(spec) for kind, spec in self._specs.items()},
            library=_packed_library() if drawing and packed else "",
        )
        return str(render("page/document.html.j2", document=document))

    def _placed(self, text: str) -> Iterator[Fold]:
        """Yield the folds with a placeholder in the text, each before those inside it."""
        for place in FOLD_PLACEHOLDER.finditer(text):
            fold = self._folds[int(place[1])]
            yield fold
            yield from self._placed(fold.body)

    def _inlined(self, text: str) -> Markup:
        """Return the text with every fold in its place."""
        return self._opened(text, lambda fold: _details(fold, self._inlined(fold.body)))

    def _packed(self, text: str) -> Markup:
        """Return the text with every fold in its place, with packed bodies unless small."""
        packs = _Packs()

        def closed(fold: Fold) -> Markup:
            body = self._opened(fold.body, closed)
            if len(body) > MIN_PACKED_TEXT:
                return _details(fold, packed=packs.add(body))
            return _details(fold, body)

        return self._opened(text, closed) + macro(TEMPLATE, "packs")(packs.written())

    def _opened(self, text: str, written: Callable[[Fold], Markup]) -> Markup:
        """Return the text with each fold's markup in its place."""
        return trusted(FOLD_PLACEHOLDER.sub(lambda at: written(self._folds[int(at[1])]), text))


def _size(fold: Fold) -> int:
    """Return the bytes of a fold, without the folds inside it."""
    body = FOLD_PLACEHOLDER.sub("", fold.body)
    return len(_details(fold).encode()) + len(body.encode())


def _any_has(parts: Sequence[str], mark: str) -> bool:
    return any(mark in part for part in parts)


def _details(fold: Fold, body: str = "", packed: str = "") -> Markup:
    return macro(TEMPLATE, "details")(fold, body, packed)


SCRIPT_FILES: Final = ("page.js", "tables.js", "compare.js", "charts.js", "reader.js")
"""Parts of the page's script; the last starts it."""
SCRIPTED_MARKUP: Final = ("<figure", "<details", 'class="controls"', 'class="pick"')
"""Markup that needs the page's script; a page without any has no script."""
FOLD_PLACEHOLDER: Final = re.compile(r"<!--fold (\d+)-->")
"""Placeholder of a fold. No text can contain one: all have their '<' escaped."""
MIN_PACKED_TEXT: Final = 300
"""Fewest characters of a fold's body to pack."""
GZIP_LEVEL: Final = 6
"""Half of the time of level 9, for a few per cent more bytes."""
MAX_FOLDS_PER_PACK: Final = 48
MAX_TEXT_PER_PACK: Final = 1_500_000
"""Most folds, and most of their text, to unpack at once."""


class _Packs:
    """Bodies of folds, compressed in groups, since they resemble each other.

    A full group is compressed at once, so that few bodies are held in memory.
    """

    def __init__(self) -> None:
        self._written: list[str] = []
        self._last: list[str] = []

    def add(self, body: str) -> str:
        """Add a body; return its position as block and number."""
        last = self._last
        if len(last) == MAX_FOLDS_PER_PACK or sum(map(len, last)) > MAX_TEXT_PER_PACK:
            self._written = self.written()
            self._last = last = []
        last.append(body)
        return f"{len(self._written)}.{len(last) - 1}"

    def written(self) -> list[str]:
        """Return all blocks as gzip in base64."""
        return [*self._written, _gzipped(json_block(self._last))]


def _by_column(rows: Sequence[Row]) -> object:
    """Return rows with equal keys by column: half of the bytes, fewer when compressed."""
    names = [*rows[0]] if rows else []
    if not names or any([*row] != names for row in rows):
        return rows
    return {name: [row[name] for row in rows] for name in names}


def _gzipped(text: str) -> str:
    """Return text as gzip in base64; the same text gives the same bytes."""
    return base64.b64encode(gzip.compress(text.encode(), GZIP_LEVEL, mtime=0)).decode()


@cache
def _packed_library() -> str:
    """Return the library packed to half its size; the policy knows its hash."""
    return _gzipped(bundle())


@cache
def page_script() -> str:
    """Return the page's own script: all SCRIPT_FILES in one scope."""
    return "".join(['(() => {\n"use strict";\n', *map(packaged, SCRIPT_FILES), "})();\n"])


@cache
def bundle() -> str:
    """Return Vega, Vega-Lite and vega-embed in one script, some 0.9 MB."""
    return render_process.draw_product("scripts").decode()


def script_hash(script: str) -> str:
    """Return a script's source expression for the content policy."""
    return f"'sha256-{_digest(script)}'"


def json_block(value: object) -> Markup:
    """Return JSON for a data block: no text in it can end the block."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), default=dict)
    return trusted(text.replace("<", "\\u003c"))


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
