"""A chart apart from its data, so that a page holds the spec of a hundred runs once.

`Figure.whole` puts the two together for a file or a notebook. A reader's choices (attention
convention, peak, selected run, filters) are params of the spec, so that they change what is drawn
without new data.
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
"""A chart as Vega-Lite has it; Altair reads it by `alt.Chart.from_dict`."""

VEGA_LITE_SCHEMA: Final = f"https://vega.github.io/schema/vega-lite/{alt.SCHEMA_VERSION}.json"
DIGITS: Final = 6
"""Significant figures that a spec carries: more than a pixel shows."""
EXACT_DIGITS: Final = 12
"""Digits of a value that a chart rounds itself: of fewer it would round twice (50,721.47 by way of
50,721.5 to 50,722)."""

VIEW: Final[Mapping[str, str]] = {
    "attention": "exact",
    "peak": "own",
    "selected": "",
    "model": "",
    "accelerator": "",
}
"""A reader's choices and their defaults: exact or full; own or bf16; a run_id; "" for all."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A chart apart from its data; two figures of one kind have equal specs.

    title, notes: the caption; the notes say unit, convention and what was aggregated
    description: for screen readers
    spec: Vega-Lite without title, config and schema, data only by name; shared, never changed
    datasets: rows of JSON by those names; params: values of the spec's params that are its own
    """

    kind: str
    title: str
    notes: tuple[str, ...]
    description: str
    spec: Spec
    datasets: Mapping[str, Sequence[Row]]
    params: Mapping[str, Any]

    def whole(self) -> Spec:
        """One complete spec with title, theme, data, params, and a legend of its frameworks."""
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
        """The figure in Altair, to go on with in a notebook."""
        whole = self.whole()
        kind = next(made_of for part, made_of in _CLASSES.items() if part in whole)
        chart: alt.TopLevelMixin = kind.from_dict(whole, validate=False)
        return chart

    def _repr_mimebundle_(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return self.chart()._repr_mimebundle_(*args, **kwargs)

    def with_(self, **params: Any) -> Figure:  # noqa: ANN401 - whatever JSON holds
        """The figure with other values of params: `with_(attention="full", peak="bf16")`.

        One of VIEW that makes no difference to this chart is passed over. ValueError: a name that
        is none of its params.
        """
        names = {param["name"] for param in self.spec.get("params", [])}
        unknown = sorted(set(params) - names - set(VIEW))
        if unknown:
            raise ValueError(f"{self.kind} has no param {', '.join(unknown)}")
        own = {name: value for name, value in params.items() if name in names}
        return replace(self, params={**self.params, **own})

    def _frameworks(self) -> list[str]:
        """Frameworks that are drawn, in the order of the theme."""
        drawn = {row.get("framework") for rows in self.datasets.values() for row in rows}
        return [name for name in theme.FRAMEWORK_COLOURS if name in drawn]


_CLASSES: Final[Mapping[str, Any]] = {
    "layer": alt.LayerChart,
    "hconcat": alt.HConcatChart,
    "vconcat": alt.VConcatChart,
    "mark": alt.Chart,
}
"""Altair's own look for the right one takes the first unless it validates, which takes seconds."""


def spec_params(*names: str, **defaults: Any) -> list[Spec]:  # noqa: ANN401 - whatever JSON holds
    """Top-level params of a spec: names of VIEW, and those that a figure has a value of."""
    values = {name: VIEW[name] for name in names} | defaults
    return [{"name": name, "value": value} for name, value in values.items()]


def mark_spec(chart: alt.Chart) -> Spec:
    """A chart of one mark as a part of a larger spec.

    Altair copies all that it puts together, level by level, which takes longer than to draw it.
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

    The spec has `spec_params`; the tests validate it.

    data: the name of those that most parts draw, which pass through transform first, once for all;
    defaults: params that each figure has a value of.
    """
    spec: Spec = chart if isinstance(chart, dict) else chart.to_dict(validate=False)
    for shared in ("config", "$schema", "datasets"):
        spec.pop(shared, None)
    if data:
        _hoist(spec, data)
        spec |= {"data": {"name": data}, "transform": [*transform, *spec.get("transform", [])]}
    return spec | {"params": spec_params(*names, **defaults)}


def _hoist(node: Any, data: str) -> None:  # noqa: ANN401 - any part of a spec
    """Take these data from wherever parts name them: they have them of the whole."""
    if isinstance(node, dict):
        if node.get("data") == {"name": data}:
            del node["data"]
        for value in node.values():
            _hoist(value, data)
    elif isinstance(node, list):
        for item in node:
            _hoist(item, data)


MAX_NOTE_LINE: Final = 110
"""Characters of a line under a stand-alone chart's title."""


def _lines(note: str) -> list[str]:
    """A note in lines of at most `MAX_NOTE_LINE` characters, broken between words."""
    lines = [""]
    for word in note.split():
        longer = f"{lines[-1]} {word}".strip()
        if len(longer) > MAX_NOTE_LINE and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def _give_legend(node: Any, frameworks: Sequence[str]) -> None:  # noqa: ANN401 - any part of a spec
    """Give each colour scale of frameworks a legend of those drawn, where there are several."""
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
    "offset": 26,  # above the words that stand over a plot
}


def drawable(frame: pl.DataFrame) -> pl.DataFrame:
    """Each number of a frame by `chart_number`."""
    return frame.with_columns(
        pl.Series(column.name, [chart_number(value) for value in column], column.dtype)
        for column in frame.select(cs.float())
    )


Table = pl.DataFrame | Sequence[Row]
"""Rows, as a frame or as dictionaries."""


def rows_of(table: Table) -> list[dict[str, Any]]:
    """Rows as dictionaries."""
    if isinstance(table, pl.DataFrame):
        return table.to_dicts()
    return [dict(row) for row in table]


def chart_number(value: Any) -> Any:  # noqa: ANN401 - a cell
    """A value as JSON carries it: no NaN, no infinity, no more digits than can be seen."""
    if not isinstance(value, float):
        return value
    if not isfinite(value):
        return None
    text = f"{value:.{DIGITS - 1}e}"
    tie = text.partition("e")[0].rstrip("0").endswith("5")
    return float(f"{value:.{EXACT_DIGITS}g}" if tie else text)
