"""Charts across runs, from rows of reports.text.verdict.join_comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median
from typing import Any, Final, Literal

import altair as alt
import polars as pl

from fairmfu.metrics.compare.comparability import SAMPLE_UNIT
from fairmfu.metrics.compare.comparison_row import ComparisonRow
from fairmfu.metrics.core.run_table import value_of

from ..text.tabular import MIN_ONE_DECIMAL_SHARE
from . import theme
from .chart_style import (
    MFU_EXACT_TITLE,
    MFU_FULL_TITLE,
    ROW_HEIGHT,
    WIDTH,
    fixed_channels,
    framework_colour,
    mark_opacity,
    text_above_plot,
)
from .figure import Figure, Row, Spec, build_spec, chart_number, rows_of
from .tooltips import (
    CONVENTION_EXPRESSION,
    CONVENTIONS,
    PEAK_EXPRESSION,
    TGS,
    TRANSFORM,
    Card,
    card_tooltip,
    chart_cards,
)

MAX_CHART_RUNS: Final = 20
"""Most runs in a chart with a row per run."""
MAX_NARROW_LABEL, MAX_WIDE_LABEL = 13, 48
"""Most characters of a run's name, in the narrowest and in the widest layout."""
MAX_DOTS: Final = 240
"""Most dots in one chart; more runs are merged into medians of similar ones."""

DASH: Final = "\N{EN DASH}"
MIN_AXIS_SPAN: Final = 0.2
"""Smallest span of an axis that does not begin at 0, as a share of its largest value."""

_CONVENED: Final = ("attention", "peak", "selected", "framework", "model", "accelerator")


def _drop(cards: Sequence[Card], *names: str) -> list[Card]:
    return [{name: value for name, value in card.items() if name not in names} for card in cards]


# --- a group of like-for-like runs ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Panel:
    """Measure of a comparison.

    heading: a Vega expression; ours, logged, low, high: fields; reach: the param of its axis' ends
    axis, text: formats of its ticks and its values
    """

    heading: str
    ours: str
    logged: str
    low: str
    high: str
    reach: str
    axis: str
    text: str

    @property
    def tip(self) -> str:
        """Format of a value in the tooltip."""
        return ".3~p" if self.text.endswith("%") else self.text


_PANELS: Final = {
    "tgs": _Panel(f"'{TGS}'", "tgs", "logged_tgs", "tgs_low", "tgs_high", "reach_tgs", "", ",.0f"),
    "samples": _Panel(
        "'Samples/s'",
        "ranked_rate",
        "logged_samples_per_second",
        "ranked_low",
        "ranked_high",
        "reach_samples",
        "",
        ",.3~r",
    ),
    "mfu": _Panel(
        f"'MFU (' + {CONVENTION_EXPRESSION} + ')'",
        "mfu",
        "logged_mfu",
        "mfu_low",
        "mfu_high",
        "reach_mfu[attention + '_' + peak]",
        "~%",
        ".1%",
    ),
    "tflops": _Panel(
        "'TFLOP/s per GPU (' + attention + ' attention)'",
        "tflops",
        "logged_tflops",
        "tflops_low",
        "tflops_high",
        "reach_tflops[attention]",
        "",
        ",.1f",
    ),
}
_SAMPLES: Final = ("ranked_rate", "ranked_low", "ranked_high", "logged_samples_per_second")
"""Columns of a row beside its card, where samples/s rank."""
_BOUNDS: Final[tuple[Spec, ...]] = tuple(
    {
        "calculate": f"isValid(datum.tgs_{end}) && datum.{name} ? "
        f"datum.{name} * datum.tgs_{end} / datum.tgs : null",
        "as": f"{name}_{end}",
    }
    for name in ("mfu", "tflops")
    for end in ("low", "high")
)


def comparison(rows: Sequence[ComparisonRow]) -> Figure:
    """Draw a group of like-for-like runs: TGS and MFU with intervals, ours and logged.

    rows: of reports.text.verdict.join_comparison, best first; at most `MAX_CHART_RUNS` are drawn.
        TFLOP/s get a panel of their own if a log prints them and no MFU. Samples/s replace
        all panels where they rank.
    """
    cards = _placed(chart_cards(rows[:MAX_CHART_RUNS]))
    by_samples = bool(rows) and rows[0].get("ranked_unit") == SAMPLE_UNIT
    panels = ["samples"] if by_samples else ["tgs", "mfu"]
    if by_samples:
        of_rows = ({name: chart_number(value_of(row, name)) for name in _SAMPLES} for row in rows)
        cards = [{**card, **more} for card, more in zip(cards, of_rows, strict=False)]
    elif any(c["logged_tflops"] is not None and c["logged_mfu"] is None for c in cards):
        panels.append("tflops")
    kind = "-".join(("comparison", *panels))
    rest = len(rows) - len(cards)
    notes = [
        "Dot: ours, by one formula. Box: its 95 % interval. Open diamond: logged, by the "
        "framework's own formula. The axes may start above 0.",
    ]
    if rest > 0:
        notes.append(f"The {len(cards)} best of {len(rows):,} runs are drawn, {rest:,} are not.")
    group = str(rows[0].get("group") or "") if rows else ""
    shown = "Samples/s" if by_samples else "TGS and MFU"
    named = "Samples per second" if by_samples else "Tokens per second per GPU and MFU"
    return Figure(
        kind=kind,
        title=f"{shown}: {group}" if group else shown,
        notes=tuple(notes),
        description=f"{named} of {len(cards)} runs, ours and logged.",
        spec=_comparison(tuple(panels)),
        datasets={"runs": cards, "columns": VALUE_COLUMNS},
        params=_reaches(cards, panels),
    )


def _reaches(cards: Sequence[Row], panels: Sequence[str]) -> dict[str, Any]:
    """Return the ends of each axis, under each convention."""

    def reach(ours: str, logged: str) -> list[float]:
        values = [card[name] for card in cards for name in (ours, logged)]
        ends = [
            card[ours] * card[end] / card["tgs"]
            for card in cards
            for end in ("tgs_low", "tgs_high")
            if card[ours] is not None and card[end] is not None and card["tgs"]
        ]
        return _reach([value for value in [*values, *ends] if value is not None])

    if "samples" in panels:
        ends = [value for card in cards for name in _SAMPLES if (value := card[name]) is not None]
        return {"reach_samples": _reach(ends)}
    found: dict[str, Any] = {
        "reach_tgs": reach("tgs", "logged_tgs"),
        "reach_mfu": {name: reach(f"mfu_{name}", "logged_mfu") for name in CONVENTIONS},
    }
    if "tflops" in panels:
        kinds = ("exact", "full")
        found["reach_tflops"] = {n: reach(f"tflops_{n}", "logged_tflops") for n in kinds}
    return found


def _reach(values: Sequence[float]) -> list[float]:
    """Return the ends of an axis: a little beyond the values, 0 at least.

    The axis is no narrower than `MIN_AXIS_SPAN`.
    """
    if not values:
        return [0.0, 1.0]
    low, high = min(values), max(values)
    room = max(MIN_AXIS_SPAN * high - (high - low), 0.16 * (high - low)) / 2
    return (
        [chart_number(max(0.0, low - room)), chart_number(high + room)] if high > 0 else [0.0, 1.0]
    )


@cache
def _comparison(panels: tuple[str, ...]) -> Spec:
    width = {1: 560, 2: 280, 3: 140}[len(panels)]  # beside names of 325 px on a page of 1,144 px
    parts = [_panel(_PANELS[name], width, first=place == 0) for place, name in enumerate(panels)]
    own: dict[str, Any] = {_PANELS[name].reach.split("[", maxsplit=1)[0]: None for name in panels}
    chart = alt.hconcat(*parts, spacing=12)
    own |= {"narrow": False, "stacked": False}  # a page sets them
    return build_spec(chart, *_CONVENED, data="runs", transform=[*TRANSFORM, *_BOUNDS], **own)


def _panel(panel: _Panel, width: int, *, first: bool) -> alt.LayerChart | alt.FacetChart:
    """Draw dots with intervals and open diamonds, and the values at the right."""
    base = alt.Chart(alt.NamedData("runs"))
    x = alt.X(
        f"{panel.ours}:Q",
        title=None,
        axis=_axis(panel.axis, tickCount=4),
        scale=alt.Scale(domain=alt.ExprRef(panel.reach), nice=False, zero=False),
    )
    shared = {
        "y": _run_axis(named=first),
        "color": framework_colour(),
        "opacity": mark_opacity(),
        "tooltip": card_tooltip(
            ("ours", panel.ours, panel.tip),
            ("logged", panel.logged, panel.tip),
        ),
    }
    joined = base.mark_rule(strokeWidth=1.2, strokeDash=[2, 2], aria=False)
    spread = base.mark_bar(height=12, filled=False, strokeWidth=1.5, aria=False)
    layers = [
        joined.encode(x, alt.X2(panel.logged)),
        spread.encode(alt.X(f"{panel.low}:Q"), alt.X2(panel.high)),
        base.mark_point(**OURS_MARK).encode(x),
        base.mark_point(**LOGGED_MARK).encode(alt.X(f"{panel.logged}:Q")),
        _value(base, panel.ours, panel.text, OURS_VALUE_X, weight=600),
        _value(base, panel.logged, panel.text, LOGGED_VALUE_X),
        *_headings(),
    ]
    title = alt.TitleParams(
        alt.ExprRef(panel.heading), fontSize=12, offset=12, anchor="start", frame="group"
    )
    return alt.layer(*layers, encoding=shared).properties(
        width=width, height=alt.Step(ROW_HEIGHT), title=title
    )


OURS_MARK: Final[Mapping[str, Any]] = {"shape": "circle", "size": 50, "filled": True}
LOGGED_MARK: Final[Mapping[str, Any]] = {
    "shape": "diamond",
    "size": 130,
    "strokeWidth": 1.6,
    "filled": False,
}
OURS_VALUE_X, LOGGED_VALUE_X = 52, 106
"""Right ends of the value columns, right of a panel [px]."""


def _axis(form: str, **more: Any) -> alt.Axis:  # noqa: ANN401 - properties of an axis
    """Return an axis with a format; without one, with as many digits as ticks need."""
    said: dict[str, Any] = {"format": form} if form else {}
    return alt.Axis(labelOverlap=True, **said, **more)


def _placed(cards: Sequence[Card]) -> list[Card]:
    """Number the rows; without numbers a panel orders runs as it meets their marks.

    A run without a figure has no mark in its panel, and would get another row than in the next
    panel.
    """
    return [card | {"place": place} for place, card in enumerate(cards)]


def _run_axis(*, named: bool) -> alt.Y:
    wide = _ENDED if named else f"stacked ? {_ENDED} : ''"
    label = f"narrow ? {_ENDING} : {wide}"
    axis = alt.Axis(grid=True, domain=False, ticks=False, labelLimit=325, labelExpr=label)
    return alt.Y("run:N", title=None, sort=alt.EncodingSortField("place", op="min"), axis=axis)


_SHORTER: Final = "replace(datum.label, ' (synthetic)', '')"
NARROW_BEGINNING: Final = 4
"""Characters from the beginning of a long name, beside those of its end."""
_ENDING: Final = (
    f"length({_SHORTER}) > {MAX_NARROW_LABEL} ? slice({_SHORTER}, 0, {NARROW_BEGINNING}) + "
    f"'\N{HORIZONTAL ELLIPSIS}' + slice({_SHORTER}, {NARROW_BEGINNING - MAX_NARROW_LABEL}) : "
    f"{_SHORTER}"
)
_ENDED: Final = (
    f"length(datum.label) > {MAX_WIDE_LABEL} ? "
    f"'\N{HORIZONTAL ELLIPSIS}' + slice(datum.label, -{MAX_WIDE_LABEL}) : datum.label"
)
"""With little room, the end of a name distinguishes runs of one framework, and with least room
its beginning tells frameworks apart. There only the page says, above, which runs are synthetic.
"""


def _value(
    base: alt.Chart, field: str, form: str, right: int, weight: Literal[400, 600] = 400
) -> alt.Chart:
    """Draw a column of figures beside the panel."""
    small = f"datum.{field} < {MIN_ONE_DECIMAL_SHARE} ? '.2p' : " if form.endswith("%") else ""
    text = f"isValid(datum.{field}) ? format(datum.{field}, {small}'{form}') : '{DASH}'"
    chart: alt.Chart = base.mark_text(
        align="right", dx=right, fontWeight=weight, text=alt.ExprRef(text)
    )
    return chart.encode(**fixed_channels(x="width", color=theme.INK))


def _headings() -> list[alt.Chart]:
    """Draw the heading of each column of figures, after its mark."""
    base = alt.Chart(alt.NamedData("columns")).encode(
        **fixed_channels(x="width", y=-11, color=theme.MUTED, opacity=1, tooltip=None),
    )
    filled = f"datum.shape == '{OURS_MARK['shape']}' ? '{theme.MUTED}' : 'transparent'"
    return [
        base.mark_text(
            align="right", dx=alt.ExprRef("datum.right"), text=alt.ExprRef("datum.text")
        ),
        base.mark_point(
            shape=alt.ExprRef("datum.shape"),
            size=alt.ExprRef("datum.size"),
            strokeWidth=LOGGED_MARK["strokeWidth"],
            fill=alt.ExprRef(filled),
            xOffset=alt.ExprRef("datum.right - 7 * length(datum.text) - 6"),
        ),
    ]


VALUE_COLUMNS: Final[Sequence[Row]] = tuple(
    {"text": text, "right": right, "shape": mark["shape"], "size": mark["size"]}
    for text, right, mark in (
        ("ours", OURS_VALUE_X, OURS_MARK),
        ("log", LOGGED_VALUE_X, LOGGED_MARK),
    )
)
"""Columns of figures beside a panel: heading, right end [px], mark."""


# --- both conventions -----------------------------------------------------------------------


def mfu_by_run(cards: Sequence[Card]) -> Figure | None:
    """Draw the MFU of each run under both attention conventions; None if unknown.

    The highest come first; at most `MAX_CHART_RUNS` are drawn.
    """
    known = [c for c in cards if c["mfu_exact_own"] or c["mfu_full_own"]]
    known.sort(key=lambda card: -(card["mfu_exact_own"] or card["mfu_full_own"]))
    drawn, rest = _placed(known[:MAX_CHART_RUNS]), len(known) - MAX_CHART_RUNS
    if not drawn:
        return None
    notes = ["Dot: exact attention. Open diamond: full attention. The axis may start above 0."]
    if rest > 0:
        notes.append(
            f"The {MAX_CHART_RUNS} highest of {len(known):,} runs are drawn, {rest:,} are not."
        )
    reach = {
        peak: _reach(
            [v for c in drawn for a in ("exact", "full") if (v := c[f"mfu_{a}_{peak}"]) is not None]
        )
        for peak in ("own", "bf16")
    }
    return Figure(
        kind="mfu_by_run",
        title="MFU under both attention conventions",
        notes=tuple(notes),
        description=f"{MFU_EXACT_TITLE} and {MFU_FULL_TITLE} of {len(drawn)} runs.",
        spec=_mfu_by_run(),
        datasets={"runs": drawn, "one": [{}]},
        params={"reach": reach},
    )


@cache
def _mfu_by_run() -> Spec:
    base = alt.Chart(alt.NamedData("runs"))
    x = alt.X(
        "exact:Q",
        title=None,
        axis=_axis("~%", tickCount=8),
        scale=alt.Scale(domain=alt.ExprRef("reach[peak]"), nice=False, zero=False),
    )
    shared = {
        "y": _run_axis(named=True),
        "color": framework_colour(),
        "opacity": mark_opacity(),
        "tooltip": card_tooltip(
            (MFU_EXACT_TITLE, "exact", ".3~p"),
            (MFU_FULL_TITLE, "full", ".3~p"),
        ),
    }
    layers = [
        base.mark_rule(strokeWidth=1.2, strokeDash=[2, 2]).encode(x, alt.X2("full")),
        base.mark_point(**OURS_MARK).encode(x),
        base.mark_point(**LOGGED_MARK).encode(alt.X("full:Q")),
    ]
    by = f"'MFU (' + {PEAK_EXPRESSION} + ')'"
    chart = alt.layer(*layers, text_above_plot(by), encoding=shared).properties(
        width=WIDTH, height=alt.Step(ROW_HEIGHT)
    )
    ends: list[Spec] = [
        {"calculate": f"datum['mfu_{name}_' + peak]", "as": name} for name in ("exact", "full")
    ]
    return build_spec(
        chart, *_CONVENED, data="runs", transform=[*TRANSFORM, *ends], reach=None, narrow=False
    )


# --- one dot per run ------------------------------------------------------------------------


def scaling(cards: Sequence[Card]) -> Figure | None:
    """Draw TGS over GPUs; None for fewer than two known counts of GPUs."""
    known = [card for card in cards if card["gpus"] and card["tgs"]]
    if len({card["gpus"] for card in known}) < 2:  # noqa: PLR2004 - nothing to set side by side
        return None
    dots, folded = _folded([card | {"series": _series(card)} for card in known], "gpus", "series")
    lines = len({(dot["series"], dot["gpus"]) for dot in dots}) > len({d["series"] for d in dots})
    return Figure(
        kind="scaling",
        title="TGS over GPUs",
        notes=(f"{_LINES if lines else _NO_LINE} {_BOTH_LOGARITHMIC}", *folded),
        description=f"Tokens per second per GPU of {len(known)} runs over the number of GPUs.",
        spec=_scaling(),
        datasets={"runs": dots},
        params={},
    )


_LINES: Final = (
    "Each line is one framework, model, sequence length, precision, activation checkpointing and "
    "accelerator. A level line is perfect scaling: each added GPU is worth as much as the first."
)
_NO_LINE: Final = "No lines: no two of these runs differ only in the number of GPUs."
_BOTH_LOGARITHMIC: Final = "Both axes are logarithmic."


def _series(card: Row) -> str:
    """Return the key of a scaling line; a run with unknown settings has its own line."""
    length = f"{card['seq_len']:,} tokens" if card["seq_len"] else None
    again = f"recompute {card['recompute']}" if card["recompute"] else None
    said = (
        card["model"],
        length,
        card["precision"],
        again,
        card["accelerator"],
        card["framework"],
    )
    alone = None if all(said) else f"({card['run_id']}, alone: some facts are unknown)"
    return ", ".join(str(word) for word in (*said, alone) if word)


@cache
def _scaling() -> Spec:
    base = alt.Chart(alt.NamedData("runs"))
    shared = {
        "x": _logarithmic("gpus", "GPUs"),
        "y": alt.Y(
            "tgs:Q",
            title=TGS,
            scale=alt.Scale(type="log", nice=False, padding=14),
            axis=alt.Axis(format="~s", tickCount=5),
        ),
        "color": framework_colour(),
        "opacity": mark_opacity(0.85),
        "tooltip": card_tooltip(_OF_SEVERAL, ("line", "series", "")),
    }
    middle = base.mark_line(strokeWidth=1.5).encode(
        alt.Y("median(tgs):Q"),
        alt.Detail("series:N"),
        **fixed_channels(opacity=0.5, tooltip=None),
    )
    chart = alt.layer(middle, base.mark_point(**OURS_MARK), encoding=shared)
    return build_spec(
        chart.properties(width=WIDTH, height=260), *_CONVENED, data="runs", transform=TRANSFORM
    )


def mfu_by_length(cards: Sequence[Card]) -> Figure | None:
    """Draw MFU over sequence length; None for fewer than two known lengths."""
    known = _known(cards, "seq_len")
    if len({card["seq_len"] for card in known}) < 2:  # noqa: PLR2004 - see scaling
        return None
    dots, folded = _folded(known, "seq_len")
    return Figure(
        kind="mfu_by_length",
        title="MFU over sequence length",
        notes=(
            "Full attention counts masked-out attention as work, more of it for longer sequences. "
            "With exact attention, different sequence lengths are comparable. The horizontal axis "
            "is logarithmic.",
            *folded,
        ),
        description=f"MFU of {len(known)} runs over their sequence length in tokens.",
        spec=_mfu_by_length(),
        datasets={"runs": dots, "one": [{}]},
        params={},
    )


@cache
def _mfu_by_length() -> Spec:
    dots = (
        alt.Chart(alt.NamedData("runs"))
        .transform_filter("isValid(datum.mfu)")
        .mark_point(**OURS_MARK)
    )
    dots = dots.encode(
        _logarithmic("seq_len", "sequence length [tokens]"),
        alt.Y("mfu:Q", title=None, axis=_axis("~%", tickCount=5), scale=alt.Scale(zero=True)),
        color=framework_colour(),
        opacity=mark_opacity(0.85),
        tooltip=card_tooltip(_OF_SEVERAL, ("sequence length", "seq_len", ",d")),
    )
    chart = alt.layer(dots, text_above_plot(_PANELS["mfu"].heading)).properties(
        width=WIDTH, height=240
    )
    return build_spec(chart, *_CONVENED, data="runs", transform=TRANSFORM)


def mfu_by_precision(cards: Sequence[Card]) -> Figure | None:
    """Draw MFU by precision; None for fewer than two known precisions."""
    return _by_kind(cards, "precision", "MFU by precision", "precision")


def mfu_by_recompute(cards: Sequence[Card]) -> Figure | None:
    """Draw MFU by recompute policy; None for fewer than two known policies."""
    words = "activation checkpointing"
    return _by_kind(cards, "recompute", f"MFU by {words}", words)


def _by_kind(cards: Sequence[Card], name: str, title: str, words: str) -> Figure | None:
    known = _known(cards, name)
    kinds = {card[name] for card in known}
    if len(kinds) < 2:  # noqa: PLR2004 - see scaling
        return None
    dots, folded = _folded(known, name)
    return Figure(
        kind=f"mfu_by_{name}",
        title=title,
        notes=(
            "Vertical line: median of the row. Runs in one row may also differ in model, sequence "
            "length and accelerator.",
            *folded,
        ),
        description=f"MFU of {len(known)} runs by {words}: {', '.join(sorted(map(str, kinds)))}.",
        spec=_strip(name),
        datasets={"runs": dots, "one": [{}]},
        params={},
    )


@cache
def _strip(name: str) -> Spec:
    base = alt.Chart(alt.NamedData("runs")).transform_filter("isValid(datum.mfu)")
    axis = alt.Axis(grid=True, labelLimit=300)
    shared = {
        "x": alt.X("mfu:Q", title=None, axis=_axis("~%", tickCount=8), scale=alt.Scale(zero=True)),
        "y": alt.Y(f"{name}:N", title=None, sort="ascending", axis=axis),
    }
    dots = base.mark_point(**OURS_MARK).encode(
        color=framework_colour(), opacity=mark_opacity(0.75), tooltip=card_tooltip(_OF_SEVERAL)
    )
    middle = base.mark_tick(thickness=2, size=26, color=theme.INK).encode(
        alt.X("median(mfu):Q"), tooltip=[alt.Tooltip("median(mfu):Q", title="median", format=".1%")]
    )
    layers = (middle, dots, text_above_plot(_PANELS["mfu"].heading))
    chart = alt.layer(*layers, encoding=shared).properties(width=WIDTH, height=alt.Step(34))
    return build_spec(chart, *_CONVENED, data="runs", transform=TRANSFORM)


def _logarithmic(name: str, title: str) -> alt.X:
    """Return a logarithmic axis with powers of two."""
    scale = alt.Scale(type="log", base=2, nice=False, padding=24)
    axis = alt.Axis(format=",d", tickCount=8, labelOverlap=True, grid=False)
    return alt.X(f"{name}:Q", title=title, scale=scale, axis=axis)


_OF_SEVERAL: Final = ("runs", "runs", ",d")


def _known(cards: Sequence[Card], name: str) -> list[Card]:
    """Return the cards with an MFU and a known value of a field."""
    mfu = [f"mfu_{convention}" for convention in CONVENTIONS]
    return [c for c in cards if c[name] is not None and any(c[m] is not None for m in mfu)]


_SAME: Final = ("framework", "model", "accelerator")


def _folded(cards: Sequence[Card], *by: str) -> tuple[list[Card], list[str]]:
    """Return at most MAX_DOTS dots, and a note if several runs are merged.

    Runs with equal `by`, framework, model and accelerator become their median.
    """
    if len(cards) <= MAX_DOTS:
        return [card | {"runs": 1} for card in cards], []
    alike: dict[tuple[Any, ...], list[Card]] = {}
    for card in cards:
        alike.setdefault(tuple(card[name] for name in (*_SAME, *by)), []).append(card)
    groups = sorted(alike.values(), key=len, reverse=True)
    dots = [_median(group, (*_SAME, *by)) for group in groups[:MAX_DOTS]]
    note = (
        f"{len(cards):,} runs: one dot is the median of runs with the same framework, model, "
        "accelerator and value on the axis."
    )
    left = sum(len(group) for group in groups[MAX_DOTS:])
    return dots, [note + (f" {left:,} runs of the smallest groups are not drawn." if left else "")]


def _median(cards: Sequence[Card], same: Sequence[str]) -> Card:
    """Merge several runs into one card: medians of their figures, and shared fields."""
    if len(cards) == 1:
        return cards[0] | {"runs": 1}
    first = cards[0]
    out: dict[str, Any] = {name: first[name] for name in same}
    for name in ("tgs", *(f"mfu_{c}" for c in CONVENTIONS), "tflops_exact", "tflops_full"):
        values = [card[name] for card in cards if card[name] is not None]
        out[name] = chart_number(float(median(values))) if values else None
    return out | {"run": f"median of {len(cards):,} runs", "runs": len(cards)}


# --- other formulas -------------------------------------------------------------------------


def other_tools_chart(rows: pl.DataFrame | Sequence[Row], label: str = "") -> Figure | None:
    """Draw FLOPs per token by each other formula as a ratio to ours, on a log scale.

    rows: as metrics.pipeline.analysis.Analysis.other_tools, of one model, named by label; a formula
        without a figure is absent. None if no formula has a figure.
    """
    known = [
        {
            name: chart_number(row[name])
            for name in ("name", "flops_per_token", "ratio_to_ours", "why")
        }
        for row in rows_of(rows)
        if row["ratio_to_ours"] is not None
    ]
    if not known:
        return None
    known.sort(key=lambda row: (-row["ratio_to_ours"], row["name"]))
    return Figure(
        kind="others",
        title=f"FLOPs by other tools' formulas{f': {label}' if label else ''}",
        notes=(
            "FLOPs per token of full training, divided by our exact count. A logger with this "
            "formula is off by this factor.",
        ),
        description=f"{len(known)} formulas of other tools as ratios to ours.",
        spec=_others(),
        datasets={"formulas": known},
        params={},
    )


@cache
def _others() -> Spec:
    base = alt.Chart(alt.NamedData("formulas"))
    shared = {
        "y": alt.Y("name:N", sort=None, title=None, axis=alt.Axis(labelLimit=320, grid=False)),
        "tooltip": [
            alt.Tooltip("name:N", title="formula"),
            alt.Tooltip("ratio_to_ours:Q", title="FLOPs / ours", format=".3f"),
            alt.Tooltip("flops_per_token:Q", title="FLOPs per token", format=".4s"),
            alt.Tooltip("why:N", title="how it differs"),
        ],
    }
    ratio = alt.X(
        "ratio_to_ours:Q",
        scale=alt.Scale(type="log", nice=False, padding=16),
        axis=alt.Axis(values=_RATIOS, format="~g", labelOverlap="greedy", grid=False),
        title="FLOPs per token / ours (log scale)",
    )
    layers = [
        base.mark_bar(height=1.5, opacity=0.5, color=theme.ACCENT).encode(ratio, alt.X2Datum(1)),
        base.mark_tick(thickness=1.2, size=20, color=theme.MUTED).encode(alt.XDatum(1)),
        base.mark_point(filled=True, size=70, color=theme.ACCENT, opacity=1).encode(ratio),
        base.mark_text(align="left", dx=8).encode(
            alt.Text("ratio_to_ours:Q", format=".2f"), **fixed_channels(x="width")
        ),
    ]
    chart = alt.layer(*layers, encoding=shared).properties(width=420, height=alt.Step(20))
    return build_spec(chart, data="formulas")


_RATIOS: Final = [0.1, 0.2, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3, 1.5, 2, 3, 5, 10]
