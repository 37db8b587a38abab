"""Chart from a log's figure to ours, with a bar for each factor."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil, floor, log10
from typing import Any, Final, Literal

import altair as alt
import polars as pl

from fairmfu.metrics.audit.audit_results import Bridge

from ..text import bridge_text as bridge_steps
from . import theme
from .chart_style import ROW_HEIGHT, fixed_channels, framework_colour
from .figure import Figure, Spec, build_spec, drawable

WATERFALL_WIDTH: Final = 420
"""Width of the axis; names are to its left, factors and values to its right."""
BAR_HEIGHT: Final = 12
MAX_LINEAR_RATIO: Final = 10.0
"""Largest ratio of figures on a linear axis: a wrong unit, say, would fill a linear axis with one
step.
"""
MIN_BAR_SHARE: Final = 0.03
"""Share of the axis below which a bar is too short to show its style."""


def waterfall(bridge: Bridge, framework: str, formula: str | None) -> Figure:
    """Draw the steps from the log's figure to ours, the unexplained rest last.

    formula: name of the framework's formula, None if unknown. The axis begins at 0, so that the
        length of a step is its share of the figure. It is logarithmic only if the figure changes by
        more than `MAX_LINEAR_RATIO`.
    """
    unit, reach = bridge_steps.FIGURE_UNITS[bridge.figure], _Reach.of(bridge)
    data = drawable(_placed(bridge, reach)).with_columns(framework=pl.lit(framework))
    scale = " (log scale)" if reach.far else ""
    return Figure(
        kind=f"waterfall-{bridge.figure}{'-log' if reach.far else ''}",
        title=f"From logged {unit.name} to ours",
        notes=(
            _by_which(bridge, formula),
            f"Each step multiplies the figure{scale}. Dashed: unexplained rest. Grey: range that "
            "rounding of the logged figure can explain "
            f"({bridge_steps.unexplained_bounds(bridge)}).",
        ),
        description=f"From logged {unit.text} to ours in {len(bridge.factors) + 1} factors.",
        spec=_waterfall(bridge.figure, far=reach.far),
        datasets={"steps": data.to_dicts()},
        params={
            "order": data["what"].to_list(),
            "reach": [reach.low, reach.high],
            **({"decades": reach.decades()} if reach.far else {}),
        },
    )


@dataclass(frozen=True, slots=True)
class _Reach:
    """Ends of a waterfall's axis, in the unit of its figure."""

    low: float
    high: float
    far: bool

    @classmethod
    def of(cls, bridge: Bridge) -> _Reach:
        values = bridge_steps.bridge_frame(bridge)["after"].to_list()
        low, high = min(values), max(values)
        far = high > MAX_LINEAR_RATIO * low
        return cls(low / 1.3, high * 1.3, far) if far else cls(0.0, high * 1.08, far)

    def decades(self) -> list[float]:
        """Return the powers of ten on the axis: a log scale labels only those."""
        powers = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
        marks = [10.0**power for power in powers]
        return [mark for mark in marks if self.low <= mark <= self.high]

    def thin(self, before: float, after: float) -> bool:
        """Return whether a step's bar is too short to show its style."""
        if self.far:
            return abs(log10(after / before)) < MIN_BAR_SHARE * log10(self.high / self.low)
        return abs(after - before) < MIN_BAR_SHARE * self.high


def _placed(bridge: Bridge, reach: _Reach) -> pl.DataFrame:
    """Return the steps with their texts, and the name of the row below."""
    frame = bridge_steps.bridge_frame(bridge).drop("bounds")
    values = frame.select("before", "after").iter_rows()
    thin = [before is not None and reach.thin(before, after) for before, after in values]
    factors = [
        f"x {bridge_steps.format_factor(f)}" if f is not None else "" for f in frame["factor"]
    ]
    texts = [bridge_steps.value_text(bridge.figure, v, precise=True) for v in frame["after"]]
    unexplained = pl.col("kind") == bridge_steps.STEP_UNEXPLAINED
    nth = pl.int_range(1, pl.len() + 1).over("what")  # two of one name would share a row
    named = pl.when(nth > 1).then(pl.format("{} ({})", "what", nth)).otherwise("what")
    return frame.with_columns(what=named).with_columns(
        high=pl.when(unexplained).then(pl.col("high").fill_null(reach.high)),
        below=pl.col("what").shift(-1),
        thin=pl.Series(thin, dtype=pl.Boolean),
        times=pl.Series(factors, dtype=pl.String),
        text=pl.Series(texts, dtype=pl.String),
    )


def _by_which(bridge: Bridge, formula: str | None) -> str:
    """Say which formula and convention each end uses."""
    if bridge.figure == "logged_tgs":
        return "Both figures count tokens, not FLOPs."
    theirs = formula or "which could not be checked"
    return f"Logged: by the framework's formula, {theirs}. Ours: by our formula, exact attention."


# --- the spec -----------------------------------------------------------------------------


@cache
def _waterfall(figure: str, *, far: bool) -> Spec:
    base = alt.Chart(alt.NamedData("steps"))
    layers = [
        _links(base, _figure_axis(figure, far=far)),
        *_unexplained(_of_kind(base, bridge_steps.STEP_UNEXPLAINED)),
        *_named(_of_kind(base, bridge_steps.STEP_FACTOR)),
        *_end(_of_kind(base, bridge_steps.STEP_LOGGED), "diamond", far=far),
        *_end(_of_kind(base, bridge_steps.STEP_OURS), "circle", far=far),
        *_texts(base),
    ]
    step_names = alt.Y(
        "what:N",
        title=None,
        sort=None,
        scale=alt.Scale(domain=alt.ExprRef("order")),
        axis=alt.Axis(labelLimit=420),
    )
    shared = {"y": step_names, "tooltip": _TIPS}
    chart = alt.layer(*layers, encoding=shared).properties(
        width=WATERFALL_WIDTH, height=alt.Step(ROW_HEIGHT)
    )
    own: dict[str, Any] = {"order": [], "reach": None, **({"decades": []} if far else {})}
    return build_spec(chart, data="steps", **own)


def _figure_axis(figure: str, *, far: bool) -> alt.X:
    """Return the axis of the figure after each step, logarithmic if `far`."""
    unit = bridge_steps.FIGURE_UNITS[figure]
    ticks: dict[str, Any] = {"values": alt.ExprRef("decades")} if far else {"tickCount": 6}
    return alt.X(
        "after:Q",
        title=unit.text,
        axis=alt.Axis(format=unit.axis, **ticks),
        scale=alt.Scale(type="log" if far else "linear", domain=alt.ExprRef("reach"), nice=False),
    )


def _of_kind(base: alt.Chart, kind: str) -> alt.Chart:
    return base.transform_filter(alt.datum.kind == kind)


def _links(base: alt.Chart, x: alt.X) -> alt.Chart:
    """Draw vertical lines from the end of a step to the row below."""
    steps = base.transform_filter(alt.datum.kind != bridge_steps.STEP_OURS)
    links: alt.Chart = steps.mark_rule(opacity=0.5).encode(x, alt.Y2("below"))
    return links


def _texts(base: alt.Chart) -> list[alt.Chart]:
    """Draw the factor and figure of each step, right of the chart."""
    return [
        base.mark_text(align="right", dx=right).encode(
            alt.Text(f"{column}:N"), **fixed_channels(x="width")
        )
        for column, right in (("times", 75), ("text", 160))
    ]


def _named(step: alt.Chart) -> list[alt.Chart]:
    """Draw bars of the named factors, with an edge for bars thinner than a pixel."""
    return [
        step.mark_bar(height=BAR_HEIGHT, color=theme.ACCENT).encode(
            alt.X("before:Q"), alt.X2("after")
        ),
        step.mark_tick(thickness=2, size=18, color=theme.ACCENT).encode(alt.X("after:Q")),
    ]


def _unexplained(step: alt.Chart) -> list[alt.Chart]:
    """Draw a dashed outline, or a square for a thin bar, over the allowed range.

    The page's style sheet refers to their names.
    """
    dashed: dict[str, Any] = {"filled": False, "strokeDash": [3, 2], "strokeWidth": 1.5}
    dashed["color"] = theme.MUTED
    allowed = step.mark_bar(height=18, opacity=0.25, color=theme.MUTED, clip=True)
    outline = step.mark_bar(height=BAR_HEIGHT, **dashed).transform_filter("!datum.thin")
    square = step.mark_point(shape="square", size=BAR_HEIGHT**2, **dashed).transform_filter(
        "datum.thin"
    )
    return [
        allowed.encode(alt.X("low:Q"), alt.X2("high")).properties(name="allowed"),
        outline.encode(alt.X("before:Q"), alt.X2("after")).properties(name="unexplained"),
        square.encode(alt.X("after:Q")).properties(name="unexplained_thin"),
    ]


def _end(step: alt.Chart, shape: Literal["diamond", "circle"], *, far: bool) -> list[alt.Chart]:
    """Draw the log's figure as an open diamond, ours as a dot, with a stem if linear."""
    coloured = step.encode(color=framework_colour())
    stem = coloured.mark_bar(height=3, opacity=0.45).encode(alt.X("after:Q"), alt.X2Datum(0))
    mark = coloured.mark_point(shape=shape, size=100, filled=shape == "circle", opacity=1)
    return [*([] if far else [stem]), mark.encode(alt.X("after:Q"))]


_TIPS: Final = [
    alt.Tooltip("what:N", title="step"),
    alt.Tooltip("times:N", title="factor"),
    alt.Tooltip("text:N", title="so far"),
]
