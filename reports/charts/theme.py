"""Look of charts: one Altair theme, one colour per framework.

The colours differ under the common colour-blindnesses (CIE76 22 or more, by Machado's matrices),
and have a contrast of 3 to 1 against a white and a dark page. A chart is drawn for white; on the
dark page the style sheet (page.css) recolours its text and lines, so that no chart is drawn twice.
"""

from __future__ import annotations

from typing import Any, Final

import altair as alt

FRAMEWORK_COLOURS: Final = {
    "xtuner": "#2A62B8",
    "torchtitan": "#D08300",
    "deepspeed": "#CB4F87",
    "megatron-lm": "#00994C",
    "transformers": "#8A2EE5",
}
INK: Final = "#1d2129"
MUTED: Final = "#5b6472"
GRID: Final = "#e3e6eb"
ACCENT: Final = "#4a6785"
"""Colour of marks without a framework."""
PAGE_FONT: Final = (
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
)


@alt.theme.register("fairmfu", enable=True)
def chart_theme() -> alt.theme.ThemeConfig:
    """Return the theme of all charts: transparent, so that the page shows through."""
    return alt.theme.ThemeConfig({"config": _config()})


TITLE_STYLE: Final = {
    "anchor": "start",
    "color": INK,
    "fontSize": 15,
    "fontWeight": 600,
    "offset": 10,
    "subtitleColor": MUTED,
    "subtitleFontSize": 12,
    "subtitleLineHeight": 16,
}
AXIS_STYLE: Final = {
    "domain": False,
    "labelFlush": False,
    "gridColor": GRID,
    "labelColor": INK,
    "labelFontSize": 12,
    "labelLimit": 300,
    "labelSeparation": 8,
    "tickColor": GRID,
    "titleColor": MUTED,
    "titleFontSize": 12,
    "titleFontWeight": 400,
}
HEADER_STYLE: Final = {
    "labelAnchor": "start",
    "labelColor": INK,
    "labelFontSize": 12,
    "labelFontWeight": 600,
    "labelLimit": 900,
    "labelOrient": "top",
    "labelPadding": 4,
    "title": None,
}
LEGEND_STYLE: Final = {
    "labelColor": INK,
    "labelFontSize": 12,
    "orient": "top",
    "titleColor": MUTED,
    "titleFontSize": 12,
    "titleFontWeight": 400,
}


def _config() -> Any:  # noqa: ANN401 - Altair's typed dict of some 900 keys
    return {
        "background": "transparent",
        "font": PAGE_FONT,
        "padding": 4,
        "view": {"stroke": None},
        "title": dict(TITLE_STYLE),
        "axis": dict(AXIS_STYLE),
        "axisY": {"ticks": False, "labelPadding": 8},
        "header": dict(HEADER_STYLE),
        "legend": dict(LEGEND_STYLE),
        "text": {"color": INK, "fontSize": 12},
        "rule": {"color": INK},
    }
