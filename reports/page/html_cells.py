"""How the templates of pages write figures: filters, and what a figure shows by each convention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fairmfu.metrics.core.run_table import short_doubt

from ..charts.theme import ACCENT, FRAMEWORK_COLOURS
from ..charts.tooltips import CONVENTIONS
from ..text import bridge_text, run_narrative, tabular
from ..text.verdict import count_noun, plural

Row = Mapping[str, Any]
Formatter = Callable[[float | None], str]

DASH: Final = "\N{EN DASH}"
"""Stands for a figure that is not known, and between the ends of an interval."""
ATTENTION: Final = tuple(dict.fromkeys(name.partition("_")[0] for name in CONVENTIONS))
"""The ways of counting attention, of which the page shows the chosen one."""


@dataclass(frozen=True, slots=True)
class Column:
    """The head of a table's column.

    heading: one line or several; css_class: of its cells; static: its digits are no figure of a run
    """

    heading: str
    css_class: str = ""
    static: bool = False

    @property
    def lines(self) -> list[str]:
        """The heading, line by line."""
        return self.heading.split("\n")


# --- one figure ---------------------------------------------------------------------------


def number(value: float | None, digits: int = 0) -> str:
    """Write a figure with so many decimals; a dash where there is none."""
    return DASH if value is None else f"{value:,.{digits}f}"


def percent(value: float | None) -> str:
    """Write a share in percent, as reports.text.tabular.percent; a dash for none."""
    return DASH if value is None else tabular.percent(value)


def significant(value: float | None) -> str:
    """Write three or more figures, whatever the size."""
    if value is None:
        return DASH
    return f"{value:,.0f}" if abs(value) >= bridge_text.MIN_WHOLE_FIGURE else f"{value:.3g}"


def scientific(value: float | None) -> str:
    """Write four figures; a large or small one with its power of ten."""
    return DASH if value is None else f"{value:.4g}"


def ratio(value: float | None, unit: str = "x") -> str:
    """Write 1.1259 as 1.13x."""
    return DASH if value is None else f"{value:.2f}{unit}"


def four_figures(value: float) -> str:
    """Write four figures, with the zeros at their end: 2.100."""
    return format(value, "#.4g")


def keep_units_together(text: str) -> str:
    """Keep a figure on one line with what belongs to it: 33.3 %, (x 0.89). text: or markup."""
    return text.replace("(x ", "(x\N{NO-BREAK SPACE}").replace(" %", "\N{NO-BREAK SPACE}%")


def framework_colour(framework: str) -> str:
    """Return the colour of a framework's marks, as CSS has it."""
    return FRAMEWORK_COLOURS.get(framework, ACCENT)


# --- a figure under each convention -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shown:
    """A figure where one convention is chosen, or several that agree.

    css_class: of the conventions that show it, "" for all; field: of the content; text: the figure
    """

    css_class: str
    field: str
    text: str


def by_convention(row: Row, field: str, formatter: Formatter = percent) -> list[Shown]:
    """Write a figure by each convention; what reads the same by all, or by both peaks, once.

    row: with `field` by `CONVENTIONS` behind an underscore.
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
"""How each figure of a log is written, and its unit."""

FORMATTERS: Final[dict[str, Callable[..., str]]] = {
    "number": number,
    "percent": percent,
    "significant": significant,
    "scientific": scientific,
    "ratio": ratio,
}
"""Filters that a macro may also be given, to write the figures of a row."""
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
    "short_doubt": short_doubt,
    "units": keep_units_together,
}
GLOBALS: Final[dict[str, object]] = {
    **FORMATTERS,
    "ATTENTION": ATTENTION,
    "CLAIMS": CLAIMS,
    "Column": Column,
    "DASH": DASH,
    "by_convention": by_convention,
}
