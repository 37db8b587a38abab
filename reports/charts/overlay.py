"""Curves of several runs in one chart, whose rows a page fills in.

A reader chooses the runs, so the figure has no rows of its own: the page's script compare.js takes
them from the charts of the runs.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import altair as alt

from .chart_style import text_above_plot
from .figure import Figure, Spec, build_spec, mark_spec
from .tooltips import TGS

MAX_OVERLAID_RUNS: Final = 8
OVERLAY_COLOURS: Final = (
    "#2f74d0",
    "#c96a00",
    "#2e8b57",
    "#c2469b",
    "#0f8c99",
    "#d8403a",
    "#8a63d2",
    "#857700",
)
"""Colours of chosen runs, in their order; each has a contrast of 3 to 1 on both themes."""
OVERLAY_DASHES: Final = ([1, 0], [6, 2], [2, 2], [8, 2, 2, 2])
"""Strokes of chosen runs, in their order and then again: no curve is told by colour alone."""
OVERLAY_WIDTH: Final = 1_000
"""As wide as a page: it shrinks to its place."""
PANELS: Final = {
    "tgs": (TGS, 180),
    "step_s": ("s/step", 120),
    "loss": ("loss", 120),
    "memory": ("mean peak memory [GiB]", 90),
}
"""Title and height of each panel by its field; a page leaves out those without a point."""
PANELS_OF_SPEED: Final = ("tgs", "step_s")


def overlay() -> Figure:
    """Draw curves of chosen runs over steps, tokens or time, without rows.

    The page gives `points` (run_id, run, place, x, steps and PANELS; the `part` of a run between
    two changes of speed, and its `opacity`), the `reach` and the title of x, and the `digits` of
    its labels, and leaves out panels without a point.
    """
    return Figure(
        kind="overlay",
        title="Chosen runs in one chart",
        notes=(
            "TGS and s/step: a pale curve shows steps at another speed than the run's TGS. "
            "Start-up, warm-up, evaluations, checkpoints and other disturbed windows are left out.",
            "The axes may start above 0. Drag across a panel to zoom.",
        ),
        description="Curves of the chosen runs: TGS, seconds per step, loss and peak memory.",
        spec=_overlay(),
        datasets={"points": [], "one": [{}]},
        params={},
    )


@cache
def _overlay() -> Spec:
    chart = {"vconcat": [_panel(field) for field in PANELS], "spacing": 12}
    own: dict[str, Any] = {"reach": [0, 1], "digits": "", "least": 0}
    return build_spec(chart, data="points", **own)


def _panel(field: str) -> Spec:
    title, height = PANELS[field]
    points = alt.Chart(alt.NamedData("points")).transform_filter(f"isValid(datum.{field})")
    y = alt.Y(
        f"{field}:Q", title=None, scale=alt.Scale(zero=False, padding=6), axis=alt.Axis(tickCount=4)
    )
    runs = [str(place) for place in range(MAX_OVERLAID_RUNS)]
    colours = alt.Scale(domain=runs, range=[*OVERLAY_COLOURS])
    colour = alt.Color("place:N", legend=None, scale=colours)
    strokes = [OVERLAY_DASHES[n % len(OVERLAY_DASHES)] for n in range(MAX_OVERLAID_RUNS)]
    dash = alt.StrokeDash("place:N", legend=None, scale=alt.Scale(domain=runs, range=strokes))
    line = points.mark_line(strokeWidth=1.6, clip=True).encode(_x(), y, colour, dash)
    dots = points.mark_point(filled=True, size=16, clip=True).encode(_x(), y, colour, tooltip=_TIPS)
    if field in PANELS_OF_SPEED:
        pale = alt.Opacity("opacity:Q", legend=None, scale=None)
        line, dots = line.encode(pale, detail="part:N"), dots.encode(pale)
    marks = (line, dots, text_above_plot(f"'{title}'"))
    first, *others = map(mark_spec, marks)
    zoom = {"name": f"zoom_{field}", "select": {"type": "interval", "encodings": ["x"]}}
    return {
        "name": field,
        "layer": [first | {"params": [zoom]}, *others],
        "width": OVERLAY_WIDTH,
        "height": height,
    }


def _x() -> alt.X:
    axis = alt.Axis(
        labelExpr="format(datum.value, digits)",
        tickCount=8,
        tickMinStep=alt.ExprRef("least"),
        grid=False,
        title="",
    )
    scale = alt.Scale(domain=alt.ExprRef("reach"), nice=False, zero=False, padding=8)
    return alt.X("x:Q", axis=axis, scale=scale)


_TIPS: Final = [
    alt.Tooltip("run:N", title="run"),
    alt.Tooltip("steps:N", title="steps"),
    alt.Tooltip("tgs:Q", title=TGS, format=",.1f"),
    alt.Tooltip("step_s:Q", title="s/step", format=".4g"),
    alt.Tooltip("loss:Q", title="mean loss", format=".4f"),
    alt.Tooltip("memory:Q", title="mean peak memory [GiB]", format=".2f"),
]
