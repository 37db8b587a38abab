"""Filters of page templates: figures as text, and figures under each convention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fairmfu.metrics.core.run_table import short_doubt

from ..charts.overlay import OVERLAY_COLOURS, OVERLAY_DASHES
from ..charts.theme import ACCENT, FRAMEWORK_COLOURS
from ..charts.tooltips import CONVENTIONS
from ..text import bridge_text, run_narrative, tabular
from ..text.tabular import count_noun, plural

Row = Mapping[str, Any]
Formatter = Callable[[float | None], str]

DASH: Final = "\N{EN DASH}"
"""Sign for an unknown figure, and between the ends of an interval."""
ATTENTION: Final = tuple(dict.fromkeys(name.partition("_")[0] for name in CONVENTIONS))
"""Conventions of counting attention; the page shows the selected one."""


@dataclass(frozen=True, slots=True)
class Column:
    """Head of a table's column.

    heading: one or several lines; css_class: of the cells, `extra` if the script hides the column
        until it is chosen; static: the digits are no figure of a run; unit: for CSV, of a heading
        without one
    """

    heading: str
    css_class: str = ""
    static: bool = False
    unit: str = ""

    @property
    def lines(self) -> list[str]:
        """Heading, line by line."""
        return self.heading.split("\n")

    @property
    def extra(self) -> bool:
        """True if the column is hidden at first."""
        return "extra" in self.css_class.split()


# --- one figure ---------------------------------------------------------------------------


def number(value: float | None, digits: int = 0) -> str:
    """Return a figure with a number of decimals; a dash if missing."""
    return DASH if value is None else f"{value:,.{digits}f}"


def percent(value: float | None) -> str:
    """Return a share in percent, as reports.text.tabular.percent; a dash if missing."""
    return DASH if value is None else tabular.percent(value)


def significant(value: float | None) -> str:
    """Return a figure with three or more digits, whatever the size."""
    if value is None:
        return DASH
    return f"{value:,.0f}" if abs(value) >= bridge_text.MIN_WHOLE_FIGURE else f"{value:.3g}"


def sort_key(value: float | str | None, unit: float = 1.0) -> str:
    """Return a sort key for browsers: a figure with six digits, "" if unknown.

    unit: of the column, in that of the value
    """
    if value is None or isinstance(value, str):
        return value or ""
    return f"{value / unit:.6g}"


def scientific(value: float | None) -> str:
    """Return a figure with four digits; a large or small one with a power of ten."""
    return DASH if value is None else f"{value:.4g}"


def ratio(value: float | None, unit: str = "x") -> str:
    """Return 1.1259 as 1.13x."""
    return DASH if value is None else f"{value:.2f}{unit}"


def four_figures(value: float) -> str:
    """Return a figure with four digits, trailing zeros included: 2.100."""
    return format(value, "#.4g")


def keep_units_together(text: str) -> str:
    """Keep a figure on one line with its unit or brackets: 33.3 %, (x 0.89).

    text: may be markup
    """
    return text.replace("(x ", "(x\N{NO-BREAK SPACE}").replace(" %", "\N{NO-BREAK SPACE}%")


def framework_colour(framework: str) -> str:
    """Return the colour of a framework's marks, in CSS."""
    return FRAMEWORK_COLOURS.get(framework, ACCENT)


# --- a figure under each convention -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shown:
    """Figure shown under a convention, or under several that agree.

    css_class: of the conventions that show the figure, "" for all; field: of the content; text: the
        figure
    """

    css_class: str
    field: str
    text: str


def by_convention(row: Row, field: str, formatter: Formatter = percent) -> list[Shown]:
    """Return a figure by each convention, once for conventions with the same text.

    row: with `field` by `CONVENTIONS`, joined by an underscore
    """
    texts = {name: formatter(row[f"{field}_{name}"]) for name in CONVENTIONS}
    if len(set(texts.values())) == 1:
        classes = {CONVENTIONS[0]: ""}
    elif all(texts[f"{a}_own"] == texts[f"{a}_bf16"] for a in ATTENTION):
        classes = {f"{a}_own": f"c {a}" for a in ATTENTION}
    else:
        classes = {name: f"c {name.replace('_', ' ')}" for name in CONVENTIONS}
    return [Shown(kind, f"{field}_{name}", texts[name]) for name, kind in classes.items()]


CLAIMS: Final[dict[str, tuple[Formatter, str]]] = {
    "logged_tflops": (significant, "TFLOP/s"),
    "logged_mfu": (percent, "MFU"),
    "logged_tgs": (number, "TGS"),
}
"""Formatter and unit of each logged figure."""

FORMATTERS: Final[dict[str, Callable[..., str]]] = {
    "number": number,
    "outcome": lambda kind: run_narrative.OUTCOME_LABELS.get(kind, DASH).partition(" (")[0],
    "percent": percent,
    "significant": significant,
    "sort_key": sort_key,
    "scientific": scientific,
    "ratio": ratio,
    "gib": lambda memory: f"{memory / tabular.GIB:.1f}",
}
"""Filters that macros also accept as an argument, to format the figures of a row."""
FILTERS: Final[dict[str, Callable[..., object]]] = {
    **FORMATTERS,
    "bridge_factor": bridge_text.format_factor,
    "bridge_value": lambda value, figure: bridge_text.value_text(figure, value, precise=True),
    "colour": framework_colour,
    "count_noun": count_noun,
    "decimal": tabular.decimal,
    "four_figures": four_figures,
    "plural": lambda count, noun: plural(noun, count),
    "seconds": run_narrative.seconds_text,
    "phase": run_narrative.phase_label,
    "step_seconds": run_narrative.step_seconds,
    "short_doubt": short_doubt,
    "units": keep_units_together,
}
GLOBALS: Final[dict[str, object]] = {
    **FORMATTERS,
    "ATTENTION": ATTENTION,
    "CONVENTIONS": CONVENTIONS,
    "CLAIMS": CLAIMS,
    "Column": Column,
    "DASH": DASH,
    "GIB": tabular.GIB,
    "OVERLAY_COLOURS": OVERLAY_COLOURS,
    "OVERLAY_DASHES": OVERLAY_DASHES,
    "by_convention": by_convention,
}
