"""Charts separate from their data, so that a page contains a spec once.

`Figure.whole` combines the two for a file or a notebook. A reader's choices (attention convention,
peak, selected run, filters) are params of the spec, so they change the chart without new data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, Final

import altair as alt
import polars as pl
import polars.selectors as cs

from . import theme

Row = Mapping[str, Any]
Spec = dict[str, Any]
"""Chart in Vega-Lite; Altair reads a spec with `alt.Chart.from_dict`."""

VEGA_LITE_SCHEMA: Final = f"https://vega.github.io/schema/vega-lite/{alt.SCHEMA_VERSION}.json"
DIGITS: Final = 6
"""Significant figures in a spec: more than a pixel shows."""
EXACT_DIGITS: Final = 12
"""Digits of a value that a chart rounds itself: with fewer the value would be rounded twice
(50,721.47 via 50,721.5 to 50,722).
"""

VIEW: Final[Mapping[str, str]] = {
    "attention": "exact",
    "peak": "own",
    "selected": "",
    "framework": "",
    "model": "",
    "accelerator": "",
}
"""A reader's choices and their defaults: exact or full; own or bf16; a run_id; "" for all."""


@dataclass(frozen=True, slots=True)
class Figure:
    """Chart separate from its data; two figures of one kind have equal specs.

    title, notes: the caption; the notes give unit, convention and aggregation
    description: for screen readers
    spec: Vega-Lite without title, config and schema, data only by name; shared, never changed
    datasets: rows of JSON by those names; params: the figure's own values of the spec's params
    """

    kind: str
    title: str
    notes: tuple[str, ...]
    description: str
    spec: Spec
    datasets: Mapping[str, Sequence[Row]]
    params: Mapping[str, Any]

    def whole(self) -> Spec:
        """Return a complete spec with title, theme, data, params, and a framework legend."""
        spec = deepcopy(self.spec)
        _give_legend(spec, self._frameworks())
        title: Spec = {"text": self.title}
        if self.notes:
            title["subtitle"] = [line for note in self.notes for line in _lines(note)]
        return spec | {
            "$schema": VEGA_LITE_SCHEMA,
            "title": title,
            "description": self.description,
            "config": theme.chart_theme()["config"],
            "datasets": {name: [*rows] for name, rows in self.datasets.items()},
            "params": [
                param | {"value": self.params.get(param["name"], param["value"])}
                for param in spec.get("params", [])
            ],
        }

    def chart(self) -> alt.TopLevelMixin:
        """Return the figure as an Altair chart, for further use in a notebook."""
        whole = self.whole()
        kind = next(made_of for part, made_of in _CLASSES.items() if part in whole)
        chart: alt.TopLevelMixin = kind.from_dict(whole, validate=False)
        return chart

    def _repr_mimebundle_(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return self.chart()._repr_mimebundle_(*args, **kwargs)

    def with_(self, **params: Any) -> Figure:  # noqa: ANN401 - whatever JSON holds
        """Return the figure with other params: `with_(attention="full", peak="bf16")`.

        Names of VIEW that do not affect this chart are ignored. Raises ValueError for a name that
        is not a param.
        """
        names = {param["name"] for param in self.spec.get("params", [])}
        unknown = sorted(set(params) - names - set(VIEW))
        if unknown:
            raise ValueError(f"{self.kind} has no param {', '.join(unknown)}")
        own = {name: value for name, value in params.items() if name in names}
        return replace(self, params={**self.params, **own})

    def _frameworks(self) -> list[str]:
        """Return the drawn frameworks, in the order of the theme."""
        drawn = {row.get("framework") for rows in self.datasets.values() for row in rows}
        return [name for name in theme.FRAMEWORK_COLOURS if name in drawn]


_CLASSES: Final[Mapping[str, Any]] = {
    "layer": alt.LayerChart,
    "hconcat": alt.HConcatChart,
    "vconcat": alt.VConcatChart,
    "mark": alt.Chart,
}
"""Altair's chart class by spec key. Altair's own search takes the first class unless it validates,
which takes seconds.
"""


def spec_params(*names: str, **defaults: Any) -> list[Spec]:  # noqa: ANN401 - whatever JSON holds
    """Return top-level params of a spec: names of VIEW, and a figure's own defaults."""
    values = {name: VIEW[name] for name in names} | defaults
    return [{"name": name, "value": value} for name, value in values.items()]


def mark_spec(chart: alt.Chart) -> Spec:
    """Return a chart of one mark as a part of a larger spec.

    Altair copies every part that it combines, level by level, which takes longer than drawing.
    """
    spec = chart.to_dict(validate=False)  # the tests validate the whole
    own = ("data",) if chart.data is not alt.Undefined else ()  # else Altair names an empty one
    names = (*own, "transform", "mark", "encoding")
    return {name: spec[name] for name in names if name in spec}


def build_spec(
    chart: Any,  # noqa: ANN401 - any Altair chart, or a spec of parts
    *names: str,
    data: str = "",
    transform: Sequence[Spec] = (),
    **defaults: Any,  # noqa: ANN401 - whatever JSON holds
) -> Spec:
    """Turn an Altair chart on named data into the spec of a Figure.

    The spec has `spec_params`; the tests validate the spec.

    data: name of the data of most parts, transformed first, once for all parts; defaults: params
        with a value per figure
    """
    spec: Spec = chart if isinstance(chart, dict) else chart.to_dict(validate=False)
    for shared in ("config", "$schema", "datasets"):
        spec.pop(shared, None)
    if data:
        _hoist(spec, data)
        spec |= {"data": {"name": data}, "transform": [*transform, *spec.get("transform", [])]}
    return spec | {"params": spec_params(*names, **defaults)}


def _hoist(node: Any, data: str) -> None:  # noqa: ANN401 - any part of a spec
    """Remove this data name from all parts: the top level provides the data."""
    if isinstance(node, dict):
        if node.get("data") == {"name": data}:
            del node["data"]
        for value in node.values():
            _hoist(value, data)
    elif isinstance(node, list):
        for item in node:
            _hoist(item, data)


MAX_NOTE_LINE: Final = 110
"""Most characters of a line under a stand-alone chart's title."""


def _lines(note: str) -> list[str]:
    """Split a note into lines of at most `MAX_NOTE_LINE` characters, between words."""
    lines = [""]
    for word in note.split():
        longer = f"{lines[-1]} {word}".strip()
        if len(longer) > MAX_NOTE_LINE and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def _give_legend(node: Any, frameworks: Sequence[str]) -> None:  # noqa: ANN401 - any part of a spec
    """Give each colour scale of frameworks a legend of the drawn ones, if several."""
    if isinstance(node, list):
        for item in node:
            _give_legend(item, frameworks)
    if not isinstance(node, dict):
        return
    colour = node.get("color")
    if isinstance(colour, dict) and colour.get("field") == "framework" and len(frameworks) > 1:
        colour["legend"] = {"values": [*frameworks], **LEGEND}
    for value in node.values():
        _give_legend(value, frameworks)


LEGEND: Final = {
    "title": None,
    "symbolType": "circle",
    "symbolOpacity": 1,
    "symbolStrokeWidth": 0,
    "offset": 26,  # above the text over a plot
}


def drawable(frame: pl.DataFrame) -> pl.DataFrame:
    """Round each number of a frame with `chart_number`."""
    return frame.with_columns(
        pl.Series(column.name, [chart_number(value) for value in column], column.dtype)
        for column in frame.select(cs.float())
    )


Table = pl.DataFrame | Sequence[Row]
"""Rows, as a frame or as dictionaries."""


def rows_of(table: Table) -> list[dict[str, Any]]:
    """Return rows as dictionaries."""
    if isinstance(table, pl.DataFrame):
        return table.to_dicts()
    return [dict(row) for row in table]


def chart_number(value: Any) -> Any:  # noqa: ANN401 - a cell
    """Return a value for JSON: no NaN, no infinity, no more digits than visible."""
    if not isinstance(value, float):
        return value
    if not isfinite(value):
        return None
    text = f"{value:.{DIGITS - 1}e}"
    if (rounded := float(text)) == value:  # already few digits, as in a kept curve
        return rounded
    tie = text.partition("e")[0].rstrip("0").endswith("5")
    return float(f"{value:.{EXACT_DIGITS}g}") if tie else rounded
