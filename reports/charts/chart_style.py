"""Sizes, words and channels that charts share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import altair as alt

from . import theme

WIDTH: Final = 680
ROW_HEIGHT: Final = 26
"""Height of a row that names a run."""

MFU_EXACT_TITLE, MFU_FULL_TITLE = "MFU (exact attention)", "MFU (full attention)"

KNOWN_FRAMEWORKS: Final = [*theme.FRAMEWORK_COLOURS]
_COLOURS: Final = alt.Scale(domain=KNOWN_FRAMEWORKS, range=[*theme.FRAMEWORK_COLOURS.values()])


def framework_colour() -> Any:  # noqa: ANN401 - Altair's condition has no public type
    """Return the colour of a row's framework; without a legend, which a page has once."""
    unknown = f"indexof({KNOWN_FRAMEWORKS}, datum.framework) < 0"
    known = alt.Color("framework:N", scale=_COLOURS, legend=None)
    return alt.when(unknown).then(alt.value(theme.ACCENT)).otherwise(known)


def mark_opacity(opacity: float = 1.0) -> Any:  # noqa: ANN401 - see above
    """Return the opacity of a mark, lower if another run is selected."""
    test = "selected == '' || datum.run_id == selected"
    return alt.when(test).then(alt.value(opacity)).otherwise(alt.value(0.18 * opacity))


_FIXED: Final[Mapping[str, Any]] = {
    "x": alt.XValue,
    "x2": alt.X2Value,
    "y": alt.YValue,
    "y2": alt.Y2Value,
    "color": alt.ColorValue,
    "opacity": alt.OpacityValue,
    "tooltip": alt.TooltipValue,
}


def fixed_channels(**values: Any) -> dict[str, Any]:  # noqa: ANN401 - whatever JSON holds
    """Return channels with one constant value each, by name.

    `alt.value` leaves the channel open, so Altair tries hundreds of classes: 5 ms.
    """
    return {name: _FIXED[name](value) for name, value in values.items()}


def text_above_plot(text: str, *, right: bool = False) -> alt.Chart:
    """Draw a Vega expression as text above a plot, from data of one row called `one`.

    A title could not be an expression and appear in a page, which has a title of its own. The right
    text is above the left one if there is little room: the spec's param `narrow`.
    """
    mark: alt.Chart = alt.Chart(alt.NamedData("one")).mark_text(
        align="right" if right else "left",
        baseline="bottom",
        fontWeight=600,
        text=alt.ExprRef(text),
    )
    return mark.encode(
        **fixed_channels(
            x="width" if right else 0,
            y=alt.ExprRef("narrow ? -24 : -8") if right else -8,
            color=theme.INK,
            opacity=1,
            tooltip=None,
        )
    )
