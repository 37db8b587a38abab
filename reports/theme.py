"""How charts and pages look: one Altair theme, one colour per framework, one style sheet.

The three colours stay apart under the common colour-blindnesses and in grey (L* 42, 61, 52), and
stand out 3 to 1 from a white and from a dark page. A chart is drawn for white; on the dark page
the style sheet turns its text and lines, so that no chart is drawn twice.
"""

from __future__ import annotations

from typing import Any, Final

import altair as alt

FRAMEWORK_COLOURS: Final = {
    "xtuner": "#2A62B8",
    "torchtitan": "#D08300",
    "deepspeed": "#CB4F87",
}
INK: Final = "#1d2129"
MUTED: Final = "#5b6472"
GRID: Final = "#e3e6eb"
ACCENT: Final = "#4a6785"
"""For marks that stand for no framework."""
FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"


@alt.theme.register("fairmfu", enable=True)
def fairmfu() -> alt.theme.ThemeConfig:
    """The theme of all charts: transparent, so that the page shows through."""
    return alt.theme.ThemeConfig({"config": _config()})


def _config() -> Any:  # noqa: ANN401 - Altair's typed dict of some 900 keys
    return {
        "background": "transparent",
        "font": FONT,
        "padding": 4,
        "view": {"stroke": None},
        "title": {
            "anchor": "start",
            "color": INK,
            "fontSize": 15,
            "fontWeight": 600,
            "offset": 10,
            "subtitleColor": MUTED,
            "subtitleFontSize": 12,
            "subtitleLineHeight": 16,
        },
        "axis": {
            "domain": False,
            "labelFlush": False,
            "gridColor": GRID,
            "labelColor": INK,
            "labelFontSize": 12,
            "labelLimit": 300,
            "tickColor": GRID,
            "titleColor": MUTED,
            "titleFontSize": 12,
            "titleFontWeight": 400,
        },
        "axisY": {"ticks": False, "labelPadding": 8},
        "header": {
            "labelAnchor": "start",
            "labelColor": INK,
            "labelFontSize": 12,
            "labelFontWeight": 600,
            "labelLimit": 900,
            "labelOrient": "top",
            "labelPadding": 4,
            "title": None,
        },
        "legend": {
            "labelColor": INK,
            "labelFontSize": 12,
            "orient": "top",
            "titleColor": MUTED,
            "titleFontSize": 12,
            "titleFontWeight": 400,
        },
        "text": {"color": INK, "fontSize": 12},
        "rule": {"color": INK},
    }


STYLE: Final = """
:root {
  --paper: #fff; --ink: #1d2129; --muted: #5b6472; --line: #dfe3e8; --panel: #f5f7f9;
  --warn: #8a5300; --link: #2a62b8;
  color-scheme: light dark;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #15181d; --ink: #e6e9ee; --muted: #a3acb9; --line: #343a44; --panel: #1d2128;
    --warn: #f0b45a; --link: #8fb6f5;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem 1.25rem 4rem; max-width: 74rem;
  background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
header { color: var(--muted); }
h1 { margin: 0; font-size: 1.05rem; font-weight: 600; color: var(--ink); }
h2 { margin: 2.75rem 0 .75rem; padding-top: .75rem; border-top: 1px solid var(--line);
     font-size: 1.2rem; line-height: 1.3; }
h3 { margin: 1.5rem 0 .5rem; font-size: 1rem; }
p { margin: .35rem 0; }
header p { margin: 0; font-size: .85rem; }
.verdict { margin: 1.1rem 0; padding: .2rem 0 .2rem 1rem; border-left: 4px solid var(--link); }
.verdict .on { color: var(--muted); font-size: .9rem; }
.verdict .says { margin: .15rem 0 .3rem; font-size: 1.4rem; line-height: 1.3; text-wrap: pretty; }
.verdict .sure { color: var(--muted); font-size: .75em; white-space: nowrap; }
.verdict .aside { font-size: .75em; }
.verdict .note { max-width: 60rem; }
.muted, .note { color: var(--muted); }
.tag { padding: 0 .4em; border: 1px dashed var(--warn); border-radius: .3em; color: var(--warn);
       font-size: .8em; font-style: italic; font-weight: 400; white-space: nowrap; }
.banner { margin: 1rem 0 0; padding: .4rem .75rem; border: 1px dashed var(--warn);
          border-radius: .3rem; color: var(--warn); }
.name { overflow-wrap: anywhere; unicode-bidi: isolate; }
.scroll { overflow-x: auto; }
table { width: 100%; margin: .75rem 0 1.25rem; border-collapse: collapse;
        font-variant-numeric: tabular-nums; font-size: .9rem; }
caption { padding: .2rem 0 .4rem; text-align: left; font-weight: 600; }
caption .note { display: block; max-width: calc(100vw - 2.5rem); font-weight: 400;
                font-size: .85rem; }
th, td { padding: .35rem .7rem .35rem 0; border-bottom: 1px solid var(--line); text-align: left;
         vertical-align: top; font-weight: 400; }
thead th.number { white-space: nowrap; }
thead th { color: var(--muted); font-size: .82rem; line-height: 1.25; vertical-align: bottom; }
th:not(:first-child), td:not(:first-child) { padding-left: .4rem; }
tbody th { min-width: 9rem; }
.number { text-align: right; }
td.number, td code { white-space: nowrap; }
.small { display: block; color: var(--muted); font-size: .82rem; white-space: nowrap; }
td.text { min-width: 11rem; overflow-wrap: anywhere; }
code, .log { font: .86em/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
             overflow-wrap: anywhere; }
.log { white-space: pre-wrap; }
details { margin: .4rem 0; padding: .3rem .8rem; border: 1px solid var(--line);
          border-radius: .4rem; background: var(--paper); }
details[open] { padding-bottom: .8rem; }
summary { padding: .25rem 0; cursor: pointer; }
summary .figures { color: var(--muted); font-size: .9rem; }
details details { border: 0; padding: 0; }
.warning { color: var(--warn); }
figure { margin: 1rem 0 1.75rem; overflow-x: auto; }
ul { margin: .3rem 0; padding-left: 1.2rem; }
.formula { margin: .6rem 0; padding: .6rem .9rem; background: var(--panel); border-radius: .4rem;
           white-space: pre-wrap; }
.chart text { fill: var(--ink); }
.chart .role-axis-title text, .chart .role-title-subtitle text, .chart .role-legend-title text {
  fill: var(--muted);
}
.chart .role-axis-grid line, .chart .role-axis-tick line { stroke: var(--line); }
.chart .mark-rule.role-mark line { stroke: var(--ink); }
.chart [class*="unexplained"] path { stroke: var(--ink); }
.chart [class*="allowed"] path { fill: var(--muted); }
#vg-tooltip-element { font-family: inherit; }
@media print {
  body { max-width: none; padding: 0; font-size: 10.5pt; }
  h2 { break-after: avoid; }
  tr, figure, .verdict { break-inside: avoid; }
  .scroll, figure { overflow: visible; }
  .chart svg { max-width: 100%; height: auto; }
}
"""
"""The page's style sheet: light, dark by the reader's setting, and print."""

NIGHTLY: Final = """
.verdict.alarm { border-left-color: var(--warn); }
.banner.alarm { border-style: solid; border-width: 2px; font-size: 1.05rem; font-weight: 600; }
.changes { margin: .3rem 0 1rem; padding: 0; list-style: none; }
.changes li { margin: 0 0 .7rem; padding-left: 1.6rem; }
.changes .note { display: block; max-width: 60rem; font-size: .87rem; }
.changes .mark { display: inline-block; width: 1.6rem; margin-left: -1.6rem; }
.changes .quiet { color: var(--muted); }
.changes strong, .says strong { white-space: nowrap; }
.changes .sure { color: var(--muted); white-space: nowrap; }
.regressed > .mark { color: var(--warn); }
.improved > .mark { color: var(--link); }
.state { white-space: nowrap; }
.state .mark { display: inline-block; width: 1.3em; text-align: center; }
.state.regressed, .state.suspect { color: var(--warn); font-weight: 600; }
.state.steady, .state.new { color: var(--muted); }
a { color: var(--link); }
a.quiet { color: inherit; text-decoration-color: var(--line); text-underline-offset: .2em; }
h3 .figures { font-size: .9rem; font-weight: 400; }
.spark { display: block; fill: none; stroke: currentColor; }
.spark polyline { stroke-width: 1.2; stroke-linejoin: round; }
.spark path { stroke-width: 1; stroke-dasharray: 2 2; opacity: .6; }
.spark circle { fill: currentColor; stroke: none; }
footer { margin-top: 2.5rem; padding-top: .75rem; border-top: 1px solid var(--line); }
"""
"""What the nightly page has beside `STYLE`."""
