"""Charts of one run, from metrics.runs.step_bins and a row of join_comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import inf, nan
from statistics import median
from typing import Any, Final

import altair as alt

from fairmfu.metrics.compare.comparison_row import ComparisonRow
from fairmfu.metrics.core.run_table import MetricsRow, SpeedLevel
from fairmfu.metrics.core.run_words import START_UP
from fairmfu.metrics.runs.step_bins import WINDOW_COUNTED, WINDOW_OTHER
from fairmfu.metrics.throughput.speed_levels import OTHER_SPEED
from fairmfu.metrics.throughput.time_breakdown import WARM_UP

from ..text.run_narrative import (
    UNKNOWN,
    phase_rows,
    seconds_text,
    time_rows,
    timed_phases,
    undisturbed_steps,
)
from ..text.tabular import GIB, count_noun, percent
from . import theme
from .chart_style import ROW_HEIGHT, WIDTH, fixed_channels, text_above_plot
from .figure import Figure, Row, Spec, Table, build_spec, chart_number, mark_spec, rows_of
from .tooltips import CONVENTION_EXPRESSION, CONVENTIONS, TGS, run_cards

RUN_CHART_WIDTH: Final = WIDTH + 40


def _colour(row: MetricsRow) -> str:
    return theme.FRAMEWORK_COLOURS.get(row["framework"], theme.ACCENT)


def _name(row: ComparisonRow) -> str:
    return f"{row['label']} (synthetic)" if row["synthetic"] else str(row["label"])


# --- over the steps -------------------------------------------------------------------------

_CROSSED: Final = "M-1,-1L1,1M-1,1L1,-1"
_STAR: Final = "M0,-1L0,1M-.87,-.5L.87,.5M-.87,.5L.87,-.5"
_UPRIGHT: Final = "M0,-1.2L0,1.2"
SIGNS: Final = {
    START_UP: "triangle-right",
    WARM_UP: "wedge",
    "load": "triangle-down",
    "restart": "arrow",
    "checkpoint": "diamond",
    "evaluation": "square",
    "profiler": "triangle-left",
    "compile": "cross",
    "gc": "circle",
    "overflow": "triangle-up",
    "error": _CROSSED,
    "out_of_memory": _STAR,
    "killed": _CROSSED,
    "end": _UPRIGHT,
    WINDOW_OTHER: "circle",
}
"""Shape for each kind of event and cause of an excluded window, in the order of their rows."""
SIGN_LABELS: Final = {
    "gc": "garbage collection",
    "out_of_memory": "out of memory",
    WINDOW_OTHER: "left out",
}
MAX_UPRIGHTS: Final = 40
"""Most events to draw as a vertical line through the throughput; more would hide it."""
MAX_EVENT_TEXT: Final = 160

MAX_AXIS_STRETCH: Final = 2.5
"""Largest ratio of the room for all windows to the room for most, for an axis that covers all."""


def course(series: Table, events: Table, row: ComparisonRow) -> Figure | None:
    """Draw throughput and MFU over steps, with events; loss and memory if known.

    series, events: rows of this run of `bin_windows` and `event_marks` of
        metrics.runs.step_bins. None if there is nothing to draw.
    """
    bins = [_bin(each) for each in rows_of(series)]
    rates = [each for each in bins if each["tgs"] is not None]
    losses = [each for each in bins if each["loss"] is not None]
    memory = [each for each in bins if each["memory"] is not None]
    if not (rates or losses or memory):
        return None
    signs = _signs(bins, rows_of(events))
    per = _mfu_per_tgs(row) if rates else {}
    parts = {"tgs": rates, "mfu": per, "signs": signs, "loss": losses, "memory": memory}
    drawn = tuple(name for name, there in parts.items() if there)
    steps = [each[end] for each in bins for end in ("step", "last_step")]
    own: dict[str, Any] = {
        "ends": [min(steps), max(*steps, min(steps) + 1)],
    }
    if rates:
        own |= {"colour": _colour(row), "reach": _reach(rates, row["levels"] or ())}
    if per:
        own["per"] = per
    return Figure(
        kind="-".join(("course", *drawn)),
        title=f"{_name(row)} over its steps",
        notes=tuple(_course_notes(bins, signs, row, own, drawn)),
        description=(
            f"{_listed(drawn)} of {_name(row)} over {count_noun(len(bins), 'bin')} of steps."
        ),
        spec=_course(drawn),
        datasets={"bins": bins, "one": [{}], **({"signs": signs} if signs else {})},
        params=own,
    )


def _bin(row: Row) -> dict[str, Any]:
    held, most = row["memory_bytes"], row["memory_bytes_max"]
    return {
        "window": row["window"],
        "at": (row["step"] + row["last_step"]) / 2,
        "step": row["step"],
        "last_step": row["last_step"],
        **{name: chart_number(row[name]) for name in ("tgs", "low", "high", "loss")},
        "memory": None if held is None else chart_number(held / GIB),
        "memory_most": None if most is None else chart_number(most / GIB),
        **{name: chart_number(row[name]) for name in ("step_s", "tokens", "time_s")},
        "windows": row["windows"],
    }


def _signs(bins: Sequence[Row], events: Sequence[Row]) -> list[dict[str, Any]]:
    """Return events, and excluded windows whose cause is no event, as signs."""
    known = [each for each in events if each["kind"] in SIGNS and each["step"] is not None]
    few = sum(each["events"] for each in known) <= MAX_UPRIGHTS
    signs = [
        {
            "kind": each["kind"],
            "word": _word(each["kind"]),
            "step": each["step"],
            "last_step": each["last_step"],
            "line": each["line"],
            "text": (each["text"] or "")[:MAX_EVENT_TEXT],
            "events": each["events"],
            "upright": few,
        }
        for each in known
    ]
    said = {each["kind"] for each in known}
    left_out = [each for each in bins if each["window"] not in {WINDOW_COUNTED, *said}]
    signs += [
        {
            "kind": each["window"],
            "word": _word(each["window"]),
            "step": each["step"],
            "last_step": each["last_step"],
            "line": None,
            "text": f"{count_noun(each['windows'], 'window')} left out",
            "events": each["windows"],
            "upright": False,
        }
        for each in left_out
        if each["window"] in SIGNS
    ]
    return signs


def _word(kind: str) -> str:
    return SIGN_LABELS.get(kind, kind.replace("_", " "))


def _mfu_per_tgs(row: ComparisonRow) -> dict[str, float | None]:
    """Return MFU over TGS by convention; empty if sequence lengths vary."""
    card = run_cards([row])[0]
    if not row["tgs"] or not _one_length(row):
        return {}
    found = {
        name: chart_number(value / row["tgs"])
        if (value := card[f"mfu_{name}"]) is not None
        else None
        for name in CONVENTIONS
    }
    return found if any(value is not None for value in found.values()) else {}


def _one_length(row: MetricsRow) -> bool:
    """Return whether all tokens cost the same FLOPs, as far as the log shows."""
    printed = row["sequence_length"]
    same = printed is None or row["seq_len"] is None or printed == row["seq_len"]
    return same and row["attention_ratio"] is None and len(row["logged_lengths"] or []) <= 1


def _reach(rates: Sequence[Row], levels: Sequence[SpeedLevel] = ()) -> list[float]:
    """Return the ends of the throughput axis; points beyond are drawn at the edge.

    levels: speeds of the run, all inside
    """
    inside = [each for each in rates if each["window"] == WINDOW_COUNTED] or rates
    slow = sorted(each["low"] or each["tgs"] for each in inside)
    fast = sorted(each["high"] or each["tgs"] for each in inside)
    few = len(inside) // 50
    low, high = slow[few], fast[-1 - few]
    if levels:
        low, high = _with_levels(low, high, rates, levels)
    span = max(high - low, 0.06 * high)
    middle = (low + high) / 2
    inner = [middle - 0.62 * span, middle + 0.62 * span]
    values = [each["tgs"] for each in rates] + slow + fast
    whole = [min(*values, inner[0]), max(*values, inner[1])]
    far = whole[1] - whole[0] > MAX_AXIS_STRETCH * (inner[1] - inner[0])
    room = 0.0 if far else 0.04 * (whole[1] - whole[0])
    low, high = inner if far else [whole[0] - room, whole[1] + room]
    return [chart_number(max(0.0, low)), chart_number(high)]


def _with_levels(
    low: float, high: float, rates: Sequence[Row], levels: Sequence[SpeedLevel]
) -> tuple[float, float]:
    """Return the reach of the steady windows, widened to all speeds of the run.

    Of windows at another speed, one in 50 at either end may be beyond.
    """
    known = [each["tgs"] for each in levels if each["tgs"] is not None]
    others = sorted(each["tgs"] for each in rates if each["window"] == OTHER_SPEED)
    few = len(others) // 50
    values = [low, high, *known, *others[few : len(others) - few]]
    return min(values), max(values)


def _course_notes(
    bins: Sequence[Row],
    signs: Sequence[Row],
    row: ComparisonRow,
    params: Mapping[str, Any],
    drawn: Sequence[str],
) -> list[str]:
    most = max(each["windows"] for each in bins)
    each = "One point per logged window."
    if most > 1:
        each = (
            f"One point covers up to {most:,} windows: total tokens / total time. The band spans "
            "their slowest to fastest."
        )
    notes = [f"{each} Windows left out show the symbol of their cause."]
    if "tgs" in drawn:
        low, high = params["reach"]
        beyond = sum(not low <= b["tgs"] <= high for b in bins if b["tgs"] is not None)
        words = "The vertical axis may start above 0."
        if beyond:
            are = "is" if beyond == 1 else "are"
            words += f" {count_noun(beyond, 'point')} beyond it {are} drawn at its edge."
        if "mfu" not in drawn and row["mfu"] is not None:
            words += " MFU is not drawn: sequence lengths vary, and so do the FLOPs per token."
        notes.append(words)
    several = [sign for sign in signs if sign["events"] > 1 and sign["line"] is not None]
    if several:
        notes.append("One symbol may show several events that are close together.")
    return notes


def _listed(drawn: Sequence[str]) -> str:
    words = {"tgs": "Tokens per second per GPU", "mfu": "MFU", "loss": "loss", "memory": "memory"}
    return ", ".join(words[name] for name in drawn if name in words)


@cache
def _course(drawn: tuple[str, ...]) -> Spec:
    panels = [name for name in drawn if name != "mfu"]
    parts = {
        "tgs": _rates(signs="signs" in drawn, mfu="mfu" in drawn),
        "signs": _rows_of_signs(),
        "loss": _losses(),
        "memory": _memory(),
    }
    heights = {"tgs": 200, "signs": {"step": 17}, "loss": 80, "memory": 70}
    shown = []
    for name in panels:
        first, *rest = parts[name]
        field = "step" if name == "signs" else "at"
        first = first.encode(_steps(field, bare=name != panels[-1]))
        panel: Spec = {"layer": [mark_spec(one) for one in (first, *rest)]}
        if name == "tgs" and "mfu" in drawn:
            panel = {"layer": [panel, mark_spec(_right_axis())], "resolve": _independent("y")}
        shown.append(panel | {"width": RUN_CHART_WIDTH, "height": heights[name]})
    chart = {"vconcat": shown, "spacing": 16, "resolve": _independent("shape")}
    own: dict[str, Any] = {"ends": [0, 1]}
    own |= {"colour": theme.ACCENT, "reach": [0, 1]} if "tgs" in drawn else {}
    own |= {"per": {}, "narrow": False} if "mfu" in drawn else {}
    names = ("attention", "peak") if "mfu" in drawn else ()
    by = f"isValid(datum.tgs) && isValid({_PER}) ? datum.tgs * {_PER} : null"
    mfu: list[Spec] = [
        {"calculate": by, "as": "mfu"},
        {"calculate": CONVENTION_EXPRESSION, "as": "convention"},
    ]
    transform = mfu if "mfu" in drawn else []
    return build_spec(chart, *names, data="bins", transform=transform, **own)


def _independent(channel: str) -> Spec:
    return {"scale": {channel: "independent"}}


_PER: Final = "per[attention + '_' + peak]"


def _steps(field: str, *, bare: bool) -> alt.X:
    """Return the step axis; without labels above another panel."""
    axis = alt.Axis(
        format=",d", tickCount=10, tickMinStep=1, grid=False, labels=not bare, ticks=not bare
    )
    scale = alt.Scale(domain=alt.ExprRef("ends"), nice=False, zero=False, padding=8)
    return alt.X(f"{field}:Q", title=None if bare else "step", axis=axis, scale=scale)


def _rates(*, signs: bool, mfu: bool) -> list[alt.Chart]:
    """Return counted windows as a line with its band, and excluded ones as signs."""
    bins = alt.Chart(alt.NamedData("bins")).transform_filter("isValid(datum.tgs)")
    inside = bins.transform_filter(alt.datum.window == WINDOW_COUNTED).encode(alt.X("at:Q"))
    left_out = bins.transform_filter(alt.datum.window != WINDOW_COUNTED).encode(alt.X("at:Q"))
    scale = alt.Scale(domain=alt.ExprRef("reach"), nice=False, zero=False, clamp=True)
    axis = alt.Axis(tickCount=5)
    y = alt.Y("tgs:Q", title=None, scale=scale, axis=axis)
    tips = _tips(mfu=mfu)
    tint = alt.ExprRef("colour")
    layers = [
        inside.mark_area(opacity=0.22, color=tint, clip=True).encode(
            alt.Y("low:Q", title=None, scale=scale, axis=axis), alt.Y2("high")
        ),
        inside.mark_line(strokeWidth=1.4, color=tint).encode(y),
        inside.mark_point(filled=True, size=14, color=tint, opacity=1).encode(y, tooltip=tips),
        left_out.mark_point(**_SIGN).encode(y, _shape("window"), tooltip=tips),
    ]
    if signs:
        layers.insert(1, _uprights())
    layers.append(text_above_plot(f"'{TGS}'"))
    if mfu:
        layers.append(
            text_above_plot(
                f"isValid({_PER}) ? 'MFU (' + {CONVENTION_EXPRESSION} + ')' : ''", right=True
            )
        )
    return layers


_SIGN: Final[Mapping[str, Any]] = {
    "filled": False,
    "size": 55,
    "strokeWidth": 1.6,
    "color": theme.MUTED,
    "opacity": 1,
}


def _shape(field: str) -> alt.Shape:
    return alt.Shape(
        f"{field}:N",
        scale=alt.Scale(domain=[*SIGNS], range=[*SIGNS.values()]),
        legend=None,
    )


def _uprights() -> alt.Chart:
    """Draw few events as dotted lines through the throughput."""
    events = alt.Chart(alt.NamedData("signs")).transform_filter("datum.upright")
    mark: alt.Chart = events.mark_rule(strokeDash=[1, 3], opacity=0.6, color=theme.MUTED)
    return mark.encode(alt.X("step:Q"), **fixed_channels(y=0, y2="height"), tooltip=_SIGN_TIPS)


def _right_axis() -> alt.Chart:
    """Draw the MFU axis at the right: the throughput axis times one number of the run."""
    ends = alt.ExprRef(f"isValid({_PER}) ? [reach[0] * {_PER}, reach[1] * {_PER}] : [0, 1]")
    axis = alt.Axis(
        orient="right",
        format=".1%",
        tickCount=5,
        grid=False,
        labelExpr=f"isValid({_PER}) ? datum.label : ''",
    )
    scale = alt.Scale(domain=ends, nice=False, zero=False)
    y = alt.YDatum(0, type="quantitative", title=None, axis=axis, scale=scale)
    chart: alt.Chart = alt.Chart(alt.NamedData("one")).mark_point(opacity=0, clip=True)
    return chart.encode(y, **fixed_channels(x=0))


def _rows_of_signs() -> list[alt.Chart]:
    """Return a row of signs per kind of event or cause, named at the left."""
    order = [_word(kind) for kind in SIGNS]
    axis = alt.Axis(grid=True, domain=False, labelFontSize=11)
    signs: alt.Chart = alt.Chart(alt.NamedData("signs")).mark_point(**_SIGN)
    return [
        signs.encode(
            y=alt.Y("word:N", title=None, sort=order, axis=axis),
            shape=_shape("kind"),
            tooltip=_SIGN_TIPS,
        )
    ]


def _losses() -> list[alt.Chart]:
    bins = alt.Chart(alt.NamedData("bins")).transform_filter("isValid(datum.loss)")
    y = alt.Y("loss:Q", title=None, scale=alt.Scale(zero=False), axis=alt.Axis(tickCount=3))
    ink: dict[str, Any] = {"color": theme.ACCENT}
    return [
        bins.mark_line(strokeWidth=1.4, **ink).encode(y=y),
        bins.mark_point(filled=True, size=10, opacity=1, **ink).encode(
            alt.X("at:Q"), y, tooltip=_tips(mfu=False)
        ),
        text_above_plot("'loss'"),
    ]


def _memory() -> list[alt.Chart]:
    bins = alt.Chart(alt.NamedData("bins")).transform_filter("isValid(datum.memory)")
    scale, axis = alt.Scale(zero=True), alt.Axis(tickCount=3)
    y = alt.Y("memory_most:Q", title=None, scale=scale, axis=axis)
    ink: dict[str, Any] = {"color": theme.ACCENT}
    return [
        bins.mark_area(opacity=0.3, **ink).encode(y=y),
        bins.mark_line(strokeWidth=1.4, **ink).encode(alt.X("at:Q"), y),
        bins.mark_point(filled=True, size=10, opacity=1, **ink).encode(
            alt.X("at:Q"), y, tooltip=_tips(mfu=False)
        ),
        text_above_plot("'largest peak memory [GiB]'"),
    ]


def _tips(*, mfu: bool) -> list[alt.Tooltip]:
    convened = [
        alt.Tooltip("mfu:Q", title="MFU", format=".1%"),
        alt.Tooltip("convention:N", title="convention"),
    ]
    return [
        alt.Tooltip("step:Q", title="from step", format=",d"),
        alt.Tooltip("last_step:Q", title="to step", format=",d"),
        alt.Tooltip("windows:Q", title="windows", format=",d"),
        alt.Tooltip("window:N", title="kind"),
        alt.Tooltip("tgs:Q", title=TGS, format=",.1f"),
        alt.Tooltip("low:Q", title="slowest window", format=",.1f"),
        alt.Tooltip("high:Q", title="fastest window", format=",.1f"),
        *(convened if mfu else []),
        alt.Tooltip("loss:Q", title="mean loss", format=".4f"),
        alt.Tooltip("memory:Q", title="mean peak memory [GiB]", format=".2f"),
        alt.Tooltip("memory_most:Q", title="largest peak memory [GiB]", format=".2f"),
    ]


_SIGN_TIPS: Final = [
    alt.Tooltip("word:N", title="event"),
    alt.Tooltip("events:Q", title="count", format=",d"),
    alt.Tooltip("step:Q", title="from step", format=",d"),
    alt.Tooltip("last_step:Q", title="to step", format=",d"),
    alt.Tooltip("line:Q", title="log line", format="d"),
    alt.Tooltip("text:N", title="log text"),
]


# --- how long steps took ----------------------------------------------------------------------


def step_times(histogram: Table, row: ComparisonRow) -> Figure | None:
    """Draw a histogram of step times, steady against excluded; None without any.

    histogram: of reports.charts.run_series.step_time_histogram
    """
    found = rows_of(histogram)
    if not found:
        return None
    inner = [each for each in found if not each["beyond"]]
    width = min(each["high"] - each["low"] for each in inner) if inner else 0.0
    edge = max((each["high"] for each in inner), default=min(each["low"] for each in found))
    start = min((each["low"] for each in inner), default=edge)
    width = max(width, 1e-9 * edge, (edge - start) / 64)
    rows = _placed(found, edge, width)
    longest = max((each["high"] for each in found if each["beyond"]), default=None)
    notes = [
        "Filled: steady windows. Outlined: windows left out (start-up, warm-up, checkpoints and "
        "similar). A window's time is divided equally among its steps.",
    ]
    if longest is not None:
        notes.append(
            f"The rightmost bar counts all longer windows, up to {seconds_text(longest)} a step."
        )
    end = edge + (4 if longest is not None else 0) * width
    windows = sum(each["windows"] for each in found)
    return Figure(
        kind="step_times",
        title=f"Step times of {_name(row)}",
        notes=tuple(notes),
        description=f"Seconds per step of {windows:,} windows of {_name(row)}.",
        spec=_step_times(),
        datasets={"bins": rows, "one": [{}]},
        params={
            "colour": _colour(row),
            "reach": [chart_number(start), chart_number(end)],
            "edge": chart_number(edge),
        },
    )


def _placed(histogram: Sequence[Row], edge: float, width: float) -> list[dict[str, Any]]:
    """Return bins with their positions: stacked, and the longest ones after a gap."""
    rows: list[dict[str, Any]] = []
    tops: dict[float, int] = {}
    longer = edge + 3 * width
    for each in sorted(
        histogram, key=lambda each: (each["beyond"], each["low"], not each["steady"])
    ):
        place = inf if each["beyond"] else round(each["high"] / width)
        foot = tops.get(place, 0)
        tops[place] = foot + each["windows"]
        rows.append(
            {
                "left": chart_number(longer - width if each["beyond"] else each["high"] - width),
                "right": chart_number(longer + width if each["beyond"] else each["high"]),
                "middle": chart_number(longer),
                "named": bool(each["beyond"]) and foot == 0,
                "foot": foot,
                "top": tops[place],
                "low": chart_number(each["low"]),
                "high": chart_number(each["high"]),
                "steady": each["steady"],
                "kind": "steady" if each["steady"] else "left out",
                "windows": each["windows"],
            }
        )
    return rows


@cache
def _step_times() -> Spec:
    bins = alt.Chart(alt.NamedData("bins"))
    inner = "datum.value > edge ? '' : datum.label"
    below = 9  # below the axis, so that the first label clears the 0 of the other axis
    axis = alt.Axis(grid=False, ticks=False, tickCount=8, labelExpr=inner, labelPadding=below)
    scale = alt.Scale(domain=alt.ExprRef("reach"), nice=False, zero=False, padding=6)
    whole = "datum.value % 1 ? '' : datum.label"  # Vega uses halves if counts are small
    count = alt.Axis(tickCount=4, format=",d", labelExpr=whole)
    bars = bins.mark_rect(
        fill=alt.ExprRef("datum.steady ? colour : 'transparent'"),
        stroke=alt.ExprRef(f"datum.steady ? colour : '{theme.MUTED}'"),
        strokeWidth=1.2,
        xOffset=0.5,
        x2Offset=-0.5,
    ).encode(
        alt.X("left:Q", title="seconds per step", scale=scale, axis=axis),
        alt.X2("right"),
        alt.Y("foot:Q", title=None, axis=count, scale=alt.Scale(zero=True)),
        alt.Y2("top"),
        tooltip=[
            alt.Tooltip("low:Q", title="from [s/step]", format=".4~g"),
            alt.Tooltip("high:Q", title="to [s/step]", format=".4~g"),
            alt.Tooltip("windows:Q", title="windows", format=",d"),
            alt.Tooltip("kind:N", title="kind"),
        ],
    )
    longer = bins.transform_filter("datum.named").mark_text(text="longer", baseline="top", dy=below)
    named = longer.encode(alt.X("middle:Q"), **fixed_channels(y="height"))
    chart = alt.layer(bars, named, text_above_plot("'windows'")).properties(width=WIDTH, height=150)
    return build_spec(chart, data="bins", colour=theme.ACCENT, reach=[0, 1], edge=1)


# --- ranks ------------------------------------------------------------------------------------

MAX_DRAWN_RANKS: Final = 512


def ranks(rank_rows: Table, row: ComparisonRow) -> Figure | None:
    """Draw the median step time of each rank against the middle rank.

    Names the slowest. rank_rows: metrics.throughput.rank_skew.measure_ranks of this run (rank,
    time, share). None for fewer than two ranks.
    """
    found = [each for each in rows_of(rank_rows) if each["time"]]
    if len(found) < 2:  # noqa: PLR2004 - nothing to set side by side
        return None
    rows = _rank_rows(found, row["slowest_rank"])
    return Figure(
        kind="ranks",
        title=f"Step time by rank, {_name(row)}",
        notes=_rank_notes(len(found), row),
        description=f"Median step time of {len(found)} ranks, relative to the median rank.",
        spec=_ranks(),
        datasets={"ranks": rows, "one": [{}]},
        params={
            "colour": _colour(row),
            "order": [each["rank"] for each in rows],
            "reach": _around([each["slower"] for each in rows]),
        },
    )


def _rank_rows(ranks: Sequence[Row], slowest: str | None) -> list[dict[str, Any]]:
    """Return rows of the ranks furthest from the middle one, in order of their number.

    late: in the second half, so that the name is drawn on the other side of its mark
    """
    middle = float(median(each["time"] for each in ranks))
    furthest = sorted(ranks, key=lambda each: -abs(each["time"] - middle))[:MAX_DRAWN_RANKS]
    ordered = sorted(furthest, key=lambda each: _in_order(str(each["rank"])))
    return [
        {
            "rank": str(each["rank"]),
            "slower": chart_number(each["time"] / middle - 1),
            "share": chart_number(each["share"]),
            "slowest": str(each["rank"]) == slowest,
            "says": f"rank {each['rank']}, slowest in {percent(each['share'])} of the steps",
            "late": place > len(ordered) / 2,
        }
        for place, each in enumerate(ordered)
    ]


def _rank_notes(ranks: int, row: ComparisonRow) -> tuple[str, ...]:
    """Return notes on the distance of the ranks, the chance level, and omitted ranks."""
    notes = [
        f"Median over {count_noun(row['rank_steps'] or 0, 'steady step')} that all {ranks:,} "
        f"ranks log. Slowest and fastest rank are {percent(row['rank_spread'] or 0.0)} apart. By "
        f"chance, each rank would be the slowest in {percent(1 / ranks)} of the steps."
    ]
    if row["slowest_rank"] is None:
        notes.append("No rank stands out as the slowest.")
    if ranks > MAX_DRAWN_RANKS:
        notes.append(f"The {MAX_DRAWN_RANKS} ranks furthest from the median rank are drawn.")
    return tuple(notes)


MIN_RANK_AXIS: Final = 0.002
"""Ranks that are closer to each other than this do not fill the axis."""


def _around(slower: Sequence[float]) -> list[float]:
    """Return the ends of the ranks' axis: 0 inside, with room for a name above."""
    low, high = min([*slower, -MIN_RANK_AXIS]), max([*slower, MIN_RANK_AXIS])
    room = 0.15 * (high - low)
    return [chart_number(low - room), chart_number(high + room)]


def _in_order(rank: str) -> tuple[int, str]:
    return (int(rank), "") if rank.isdecimal() else (10**9, rank)


@cache
def _ranks() -> Spec:
    base = alt.Chart(alt.NamedData("ranks"))
    x = alt.X(
        "rank:N",
        title="rank",
        sort=None,
        scale=alt.Scale(domain=alt.ExprRef("order")),
        axis=alt.Axis(labelAngle=0, labelOverlap=True, grid=False),
    )
    y = alt.Y(
        "slower:Q",
        title=None,
        axis=alt.Axis(format="+.2~%", tickCount=5),
        scale=alt.Scale(domain=alt.ExprRef("reach"), nice=True),
    )
    tips = [
        alt.Tooltip("rank:N"),
        alt.Tooltip("slower:Q", title="median step time against the median rank", format="+.2%"),
        alt.Tooltip("share:Q", title="share of steps in which it is slowest", format=".1%"),
    ]
    tint = alt.ExprRef("colour")
    worst = base.transform_filter("datum.slowest")
    layers = [
        base.mark_bar(width=1.2, opacity=0.5, color=tint).encode(x, y, alt.Y2Datum(0)),
        base.mark_point(filled=True, size=45, opacity=1, color=tint).encode(x, y, tooltip=tips),
        worst.mark_point(size=150, strokeWidth=1.6, color=theme.INK, opacity=1).encode(x, y),
        worst.mark_text(
            align=alt.ExprRef("datum.late ? 'right' : 'left'"),
            dx=alt.ExprRef("datum.late ? -12 : 12"),
        ).encode(x, y, alt.Text("says:N")),
        text_above_plot("'step time against the median rank'"),
    ]
    chart = alt.layer(*layers).properties(width=WIDTH, height=150)
    return build_spec(chart, data="ranks", colour=theme.ACCENT, order=[], reach=[0, 1])


# --- time and FLOPs -----------------------------------------------------------------------------


def time_lost(row: ComparisonRow) -> Figure | None:
    """Draw the wall time lost beyond the speed of TGS, by cause; None if unknown."""
    causes = [each for each in row["time_lost"] or [] if each["seconds"] > 0]
    if row["wall_s"] is None or not causes:
        return None
    written = {each["cause"]: each for each in time_rows(row)}
    rows = [
        {
            "cause": each["cause"],
            "share": chart_number(each["share"]),
            "seconds": chart_number(each["seconds"]),
            "windows": each["windows"],
            "text": f"{written[each['cause']]['time']}, {written[each['cause']]['share']}",
        }
        for each in causes
    ]
    steady, lost = 1 - sum(each["share"] for each in causes), count_noun(len(rows), "cause")
    return Figure(
        kind="time_lost",
        title=f"Time lost, {_name(row)}",
        notes=(
            f"Of {seconds_text(row['wall_s'])} of wall time, {percent(steady)} is "
            f"{undisturbed_steps(row)}. Each bar: time lost to one cause.",
        ),
        description=f"Wall time lost to {lost}; the rest is {undisturbed_steps(row)}.",
        spec=_time_lost(),
        datasets={"causes": rows},
        params={},
    )


@cache
def _time_lost() -> Spec:
    tips = [
        alt.Tooltip("cause:N"),
        alt.Tooltip("seconds:Q", title="seconds", format=",.4~r"),
        alt.Tooltip("share:Q", title="share of wall time", format=".2%"),
        alt.Tooltip("windows:Q", title="windows", format=",d"),
    ]
    x = alt.X("share:Q", title="share of wall time", axis=alt.Axis(format="~%", tickCount=6))
    y = alt.Y("cause:N", sort=None, title=None, axis=alt.Axis(labelLimit=320))
    base = alt.Chart(alt.NamedData("causes"))
    layers = [
        base.mark_bar(height=13, color=theme.ACCENT).encode(x),
        base.mark_text(align="left", dx=6).encode(x, alt.Text("text:N")),
    ]
    chart = alt.layer(*layers, encoding={"y": y, "tooltip": tips})
    return build_spec(chart.properties(width=420, height=alt.Step(ROW_HEIGHT - 4)), data="causes")


def phases(row: ComparisonRow) -> Figure | None:
    """Draw the time of a step by phase; None if the log times no phase."""
    found = [each for each in timed_phases(row) if each["seconds"] is not None]
    if len(found) < MIN_DRAWN_PHASES:
        return None
    written = [each for each in phase_rows(row) if each["seconds"] != UNKNOWN]
    rows = [
        {
            "phase": said["phase"],
            "seconds": chart_number(each["seconds"]),
            "share": chart_number(each["share"]),
            "share_of": {"step": "step time", "wall": "wall time"}[each["share_of"]],
            "text": f"{said['seconds']}, {said['share']}",
        }
        for each, said in zip(found, written, strict=True)
    ]
    return Figure(
        kind="phases",
        title=f"Where a step's time goes, {_name(row)}",
        notes=("Seconds per step. Checkpoint and evaluation: averaged over all steps.",),
        description=f"Time of a training step in {count_noun(len(rows), 'phase')}.",
        spec=_phases(),
        datasets={"phases": rows},
        params={},
    )


MIN_DRAWN_PHASES: Final = 2


@cache
def _phases() -> Spec:
    tips = [
        alt.Tooltip("phase:N"),
        alt.Tooltip("seconds:Q", title="seconds per step", format=",.4~r"),
        alt.Tooltip("share:Q", title="share", format=".2%"),
        alt.Tooltip("share_of:N", title="of"),
    ]
    x = alt.X("seconds:Q", title="seconds per step", axis=alt.Axis(tickCount=6))
    y = alt.Y("phase:N", sort=None, title=None, axis=alt.Axis(labelLimit=320))
    base = alt.Chart(alt.NamedData("phases"))
    layers = [
        base.mark_bar(height=13, color=theme.ACCENT).encode(x),
        base.mark_text(align="left", dx=6).encode(x, alt.Text("text:N")),
    ]
    chart = alt.layer(*layers, encoding={"y": y, "tooltip": tips})
    return build_spec(chart.properties(width=420, height=alt.Step(ROW_HEIGHT - 4)), data="phases")


def operators(operator_rows: Table) -> Figure | None:
    """Draw each operator's share of the FLOPs per token, largest first.

    operator_rows: metrics.utilization.utilization.OPERATOR_SCHEMA; an operator of several layer
        groups is one bar. None if the FLOPs are unknown.
    """
    found: dict[str, dict[str, Any]] = {}
    for each in rows_of(operator_rows):
        name = each["operator"]
        kept = found.setdefault(
            name, {"operator": name, "layers": 0, "dtypes": {}, "exact": 0.0, "full": 0.0}
        )
        kept["layers"] += each["layers"] or 0
        kept["dtypes"] |= {each["dtype"]: None} if each["dtype"] else {}
        kept["exact"] += each["flops_per_token"]
        full = each["flops_per_token_full_attention"]
        kept["full"] += nan if full is None else full
    whole = {name: sum(kept[name] for kept in found.values()) for name in ("exact", "full")}
    if not whole["exact"]:
        return None
    rows = [
        {
            "operator": kept["operator"],
            "layers": kept["layers"],
            "dtype": ", ".join(kept["dtypes"]),
            **{f"flops_{name}": chart_number(kept[name]) for name in whole},
            **{f"share_{name}": chart_number(kept[name] / (whole[name] or nan)) for name in whole},
        }
        for kept in sorted(found.values(), key=lambda kept: (-kept["exact"], kept["operator"]))
    ]
    return Figure(
        kind="operators",
        title="FLOPs by operator",
        notes=(
            "Share of the model FLOPs per token, forward and backward, without the second forward "
            "of activation checkpointing.",
        ),
        description=f"Share of FLOPs per token of {len(rows)} operators.",
        spec=_operators(),
        datasets={"operators": rows, "one": [{}]},
        params={},
    )


@cache
def _operators() -> Spec:
    base = alt.Chart(alt.NamedData("operators"))
    x = alt.X("share:Q", title=None, axis=alt.Axis(format="%", grid=False, tickCount=5))
    shared = {
        "y": alt.Y("operator:N", sort=None, title=None),
        "tooltip": [
            alt.Tooltip("operator:N"),
            alt.Tooltip("layers:Q", title="layers"),
            alt.Tooltip("dtype:N", title="precision"),
            alt.Tooltip("flops:Q", title="FLOPs per token", format=".4s"),
            alt.Tooltip("share:Q", title="share", format=".1%"),
        ],
    }
    layers = [
        base.mark_bar(height=13, color=theme.ACCENT).encode(x),
        base.mark_text(align="left", dx=6).encode(x, alt.Text("share:Q", format=".1%")),
        text_above_plot("'share of FLOPs per token (' + attention + ' attention)'"),
    ]
    chart = alt.layer(*layers, encoding=shared).properties(
        width=320, height=alt.Step(ROW_HEIGHT - 4)
    )
    transform: list[Spec] = [
        {"calculate": f"datum['{name}_' + attention]", "as": name} for name in ("share", "flops")
    ]
    return build_spec(chart, "attention", data="operators", transform=transform)
