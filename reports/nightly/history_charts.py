"""Charts of series over nights: TGS and MFU of one series, and an overview of all.

Points are thinned first: in a long history, a point covers several runs in a row (`thin_points`),
never across a change of level or of formula. So a chart of three years is as light as a chart of
one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache, lru_cache
from typing import Final

import altair as alt
import polars as pl
import polars.selectors as cs

from fairmfu.ingest.core.schema import BOOL, FLOAT, INT, TEXT, TIMESTAMP

from ..charts import theme
from ..charts.chart_style import fixed_channels
from ..charts.charts import MFU_EXACT_TITLE, TGS, WIDTH, Spec, drawable
from ..charts.figure import mark_spec
from ..text.tabular import difference_text
from .night_report import BASELINE, NightChange, NightSeries

HISTORY_WIDTH: Final = WIDTH + 80
MAX_POINTS: Final = 300
"""Most points of one series, in addition to its outliers and its last runs."""
SINGLE_LAST_RUNS: Final = 30
"""Number of last runs with a point each, however long the history."""
MAX_OUTLIERS: Final = 60
MAX_LABELLED_MARKS: Final = 6
"""Most marks with text; more marks show only their position."""
MAX_OVERVIEW_POINTS: Final = 60
"""Most points of a series in the overview, and in the table's small history."""
MAX_OVERVIEW_SERIES: Final = 40

THINNED_SCHEMA: Final = pl.Schema(
    {
        "at": TIMESTAMP,
        "tgs": FLOAT,
        "low": FLOAT,
        "high": FLOAT,
        "mfu": FLOAT,
        "runs": INT,
        "what": TEXT,
        "formula": TEXT,
        "outlier": BOOL,
        "segment": INT,
    }
)
"""Points to draw of a series: medians of `runs` runs; low to high: slowest to fastest of them."""


def thin_points(
    points: pl.DataFrame, max_points: int = MAX_POINTS, single_runs: int = SINGLE_LAST_RUNS
) -> pl.DataFrame:
    """Return rows of THINNED_SCHEMA of one series' points, by time.

    The last runs and the outliers (the latest `MAX_OUTLIERS`) remain single points. The others are
    merged in consecutive bins, separate by segment and formula, to about `max_points` points.
    """
    ordered = points.sort("at", "run_id").with_row_index("place")
    alone = pl.col("place") >= ordered.height - single_runs
    early = ordered.filter(~alone)
    strays = early.filter("outlier").tail(MAX_OUTLIERS)
    calm = early.filter(~pl.col("outlier"))
    width = max(1, -(-calm.height // max_points))
    kind = pl.struct("segment", "formula").rle_id()
    binned = calm.with_columns(kind=kind).with_columns(
        bin=pl.int_range(pl.len()).over("kind") // width
    )
    singles = pl.concat([strays, ordered.filter(alone)]).with_columns(
        kind=pl.lit(None, pl.UInt32), bin=pl.col("place").cast(INT)
    )
    return (
        pl.concat([binned, singles], how="diagonal_relaxed")
        .group_by("kind", "bin", maintain_order=True)
        .agg(
            pl.col("at").sort().get((pl.len() - 1) // 2),
            pl.col("tgs").median(),
            low=pl.col("tgs").min(),
            high=pl.col("tgs").max(),
            mfu=pl.col("mfu").median(),
            runs=pl.len(),
            what=pl.col("name").first(),
            formula=pl.col("formula").first(),
            outlier=pl.col("outlier").first(),
            segment=pl.col("segment").first(),
        )
        .with_columns(
            what=pl.when(pl.col("runs") == 1)
            .then("what")
            .otherwise(pl.format("median of {} runs", "runs"))
        )
        .sort("at", "what")
        .select(pl.col(name).cast(dtype) for name, dtype in THINNED_SCHEMA.items())
    )


def thinning_sentence(data: pl.DataFrame) -> str:
    """Return the meaning of a point, in a sentence."""
    most = data["runs"].max()
    if not isinstance(most, int) or most <= 1:
        return "One point per run."
    return (
        f"A point is the median of up to {most} consecutive runs; its line spans the slowest to "
        f"the fastest. The last {SINGLE_LAST_RUNS} runs have a point each."
    )


@dataclass(frozen=True)
class HistoryChart:
    """Chart of a series, with the meaning of its points in a sentence."""

    spec: Spec
    thin: str


def history(series: NightSeries, points: pl.DataFrame) -> HistoryChart:
    """Draw the TGS of one series over its nights, the setup changes, and its MFU.

    series: of reports.nightly.night_report.NightDigest.series; points: its rows of POINT_SCHEMA.
        Runs are dots, outliers are hollow; the level between two changes is a line; a confirmed
        change is a dashed vertical with its size; the baseline is dashed.
    """
    data = drawable(thin_points(points))
    span = _span(points)
    colour = theme.FRAMEWORK_COLOURS.get(series["framework"] or "", theme.ACCENT)
    marks = _marks(points, span)
    sets = {
        "runs": _rows(data.drop("segment")),
        "levels": _rows(_levels(points)),
        "baseline": _baseline(series),
        "changes": _changes(series, span),
        "marks": _rows(marks),
    }
    utilised = data["mfu"].count() > 0
    panels = [_panel(_rates(data, series, sets, colour), 220, _time(span, bare=utilised))]
    if marks.height:
        panels.append(_mark_panel(marks, _time(span, bare=True)))
    if utilised:
        panels.append(_mfu_panel(data, colour, _time(span)))
    spec = {
        "description": f"TGS and MFU of {series['label']} over {points.height} runs.",
        "datasets": {name: rows for name, rows in sets.items() if rows},
        "vconcat": panels,
        "spacing": 6,
        "resolve": {"scale": {"color": "independent", "shape": "independent"}},
    }
    return HistoryChart(spec, thinning_sentence(data))


def _rates(
    data: pl.DataFrame, series: NightSeries, sets: Mapping[str, Sequence[object]], colour: str
) -> list[Spec]:
    """Return the layers of the TGS panel that have something to draw."""
    drawn = {
        "spread": (data["runs"] > 1).any(),
        "dots": not data["outlier"].all(),
        "far": data["outlier"].any(),
    } | {name: bool(rows) for name, rows in sets.items()}
    layers = [
        layer for name, group in _rate_layers(colour).items() if drawn[name] for layer in group
    ]
    narrow = _narrow(data, series)
    return [_widened(layer, narrow) for layer in layers] if narrow else layers


def _mark_panel(marks: pl.DataFrame, x: Spec) -> Spec:
    """Draw setup changes, with text if there are few."""
    few = marks.height <= MAX_LABELLED_MARKS
    tracks = min(marks.height, 3) if few else 1
    return _panel(_mark_layers() if few else _mark_layers()[:1], 16 * tracks, x)


def _mfu_panel(data: pl.DataFrame, colour: str, x: Spec) -> Spec:
    """Draw MFU, with a shape per formula if there are several."""
    formulas = data["formula"].drop_nulls().unique(maintain_order=True).to_list()
    shapes = tuple(formulas) if len(formulas) > 1 else ()
    mfu = _with(_utilisation(colour, shapes), x=x)
    return mfu | {"width": HISTORY_WIDTH, "height": 90}


# Altair makes the shared parts once, each layer by itself and without data: combining charts copies
# them with all their data, which took longer than the rest of a page. The parts specific to a
# series are put around the layers, which are never changed.


def _panel(layers: Sequence[Spec], height: int, x: Spec) -> Spec:
    """Combine layers; those without an x channel get this one."""
    along = [one if "x" in one["encoding"] else _with(one, x=x) for one in layers]
    return {"layer": along, "width": HISTORY_WIDTH, "height": height}


def _with(layer: Spec, **channels: Spec) -> Spec:
    """Add channels to a layer.

    Channels around layers would conflict with themselves in Vega-Lite.
    """
    return layer | {"encoding": layer.get("encoding", {}) | channels}


def _rows(data: pl.DataFrame) -> list[Spec]:
    """Return rows for JSON; a time without a zone is shown as stored."""
    return data.with_columns(cs.temporal().dt.strftime("%Y-%m-%dT%H:%M:%S")).to_dicts()


MIN_AXIS_REACH: Final = 0.01
"""Smallest reach of the TGS axis above and below the level, as a share, so that equal runs look
equal.
"""


def _narrow(data: pl.DataFrame, series: NightSeries) -> list[float]:
    """Return the ends of the TGS axis if the data spans less than the smallest reach."""
    drawn = pl.concat([data["low"], data["high"], pl.Series([series["baseline_tgs"]], dtype=FLOAT)])
    low, high = drawn.min(), drawn.max()
    if not isinstance(low, float) or not isinstance(high, float):
        return []
    middle = (low + high) / 2
    ends = [middle * (1 - MIN_AXIS_REACH), middle * (1 + MIN_AXIS_REACH)]
    return ends if ends[0] <= low and high <= ends[1] else []


def _widened(layer: Spec, ends: Sequence[float]) -> Spec:
    y = layer["encoding"].get("y", {})
    if "field" not in y:
        return layer
    return _with(layer, y=y | {"scale": {"domain": [*ends], "nice": True, "zero": False}})


Span = tuple[datetime, datetime]
"""Times of the first and the last run."""


def _span(points: pl.DataFrame) -> Span | None:
    first, last = points["at"].min(), points["at"].max()
    if not isinstance(first, datetime) or not isinstance(last, datetime):
        return None
    return first, last


MAX_DAY_LABEL_SPAN: Final = timedelta(days=150)
"""Longest history with days on its axis; a longer one has months and years."""
MAX_DAILY_TICK_SPAN: Final = timedelta(days=6)
"""Longest history with a tick per day; without these, some days would appear twice."""


def _time(span: Span | None, *, bare: bool = False) -> Spec:
    """Return the time axis, a little beyond the runs; bare: without labels."""
    domain: list[Spec] = []
    form = "%-d %b"
    ticks: Spec | int = 6
    if span:
        first, last = span
        room = max((last - first) * 0.015, timedelta(hours=12))
        domain = [_moment(first - room), _moment(last + room)]
        form = "%b %Y" if last - first > MAX_DAY_LABEL_SPAN else form
        if last - first < MAX_DAILY_TICK_SPAN:
            ticks = {"interval": "day", "step": 1}
    axis: Spec = {"grid": False}
    if bare:
        axis |= {"labels": False, "ticks": False}
    else:
        axis |= {"tickCount": ticks, "format": form, "labelOverlap": True, "labelSeparation": 8}
    scale = {"domain": domain, "nice": False}
    return {"field": "at", "type": "temporal", "title": None, "scale": scale, "axis": axis}


def _moment(time: datetime) -> Spec:
    day = {"year": time.year, "month": time.month, "date": time.day}
    return day | {"hours": time.hour, "minutes": time.minute}


_TIPS: Final = [
    alt.Tooltip("what:N", title="run"),
    alt.Tooltip("at:T", title="at", format="%Y-%m-%d %H:%M"),
    alt.Tooltip("tgs:Q", title=TGS, format=",.1f"),
    alt.Tooltip("low:Q", title="slowest", format=",.1f"),
    alt.Tooltip("high:Q", title="fastest", format=",.1f"),
    alt.Tooltip("mfu:Q", title=MFU_EXACT_TITLE, format=".2%"),
    alt.Tooltip("formula:N", title="MFU formula"),
]


@cache
def _rate_layers(colour: str) -> dict[str, list[Spec]]:
    """Return runs, levels, the baseline and confirmed changes, in drawing order.

    Layers without data must be left out: Vega warns of an axis without an end.
    """
    runs, references = _run_layers(colour), _reference_layers()
    return {"spread": runs.pop("spread"), **references, **runs}  # dots above their level


def _run_layers(colour: str) -> dict[str, list[Spec]]:
    y = alt.Y("tgs:Q", title=TGS, scale=alt.Scale(zero=False, nice=True))
    base = alt.Chart(alt.NamedData("runs")).encode(y, tooltip=_TIPS)
    spread = (
        base.transform_filter("datum.runs > 1")
        .mark_bar(width=1.5, opacity=0.35, color=colour)
        .encode(alt.Y("low:Q"), alt.Y2("high"))
    )
    dots = base.transform_filter("!datum.outlier").mark_point(
        filled=True, size=16, color=colour, opacity=0.75
    )
    far = base.transform_filter("datum.outlier").mark_point(
        filled=False, size=36, strokeWidth=1.3, color=colour, opacity=1
    )
    return {"spread": [mark_spec(spread)], "dots": [mark_spec(dots)], "far": [mark_spec(far)]}


@cache
def _reference_layers() -> dict[str, list[Spec]]:
    """Return layers without a framework colour: levels, baseline, confirmed changes."""
    tips = [
        alt.Tooltip("level:Q", title=f"level, {TGS}", format=",.1f"),
        alt.Tooltip("at:T", title="from", format="%Y-%m-%d"),
        alt.Tooltip("until:T", title="to", format="%Y-%m-%d"),
    ]
    levels = (
        alt.Chart(alt.NamedData("levels"))
        .mark_rule(strokeWidth=2.5, strokeCap="round")
        .encode(alt.X("at:T"), alt.X2("until"), alt.Y("level:Q"), tooltip=tips)
    )
    base = alt.Chart(alt.NamedData("baseline")).encode(
        alt.Y("tgs:Q"),
        tooltip=[alt.Tooltip("what:N"), alt.Tooltip("tgs:Q", title=TGS, format=",.1f")],
    )
    line = base.mark_rule(strokeDash=[7, 4], strokeWidth=1.2).encode(
        **fixed_channels(x="width", x2=0)
    )
    text = base.mark_text(text="baseline", align="left", baseline="bottom", dx=4, dy=-3).encode(
        **fixed_channels(x=0)
    )
    return {
        "levels": [mark_spec(levels)],
        "baseline": [mark_spec(line), mark_spec(text)],
        "changes": _change_layers(),
    }


def _change_layers() -> list[Spec]:
    """Draw a vertical for each confirmed change, with its size above in two rows."""
    tips = [
        alt.Tooltip("at:T", title="first run after", format="%Y-%m-%d %H:%M"),
        alt.Tooltip("text:N", title="change"),
        alt.Tooltip("causes:N", title="changed at the same time"),
    ]
    base = alt.Chart(alt.NamedData("changes")).encode(alt.X("at:T"), tooltip=tips)
    line = base.mark_rule(strokeDash=[2, 3], strokeWidth=1.2)
    place = alt.value(alt.ExprRef("-9 - 15 * datum.row"))
    text = base.mark_text(align=SIDE, dx=alt.ExprRef("datum.late ? -5 : 5"), fontWeight=600).encode(
        alt.Text("text:N"), y=place
    )
    return [mark_spec(line), mark_spec(text)]


SIDE: Final = alt.ExprRef("datum.late ? 'right' : 'left'")
"""Alignment of text: right of its position, or left if late."""


@cache
def _mark_layers() -> list[Spec]:
    """Draw a track of marks below the TGS, with their text."""
    tips = [
        alt.Tooltip("what:N", title="changed"),
        alt.Tooltip("name:N", title="first run"),
        alt.Tooltip("at:T", title="at", format="%Y-%m-%d %H:%M"),
    ]
    place = alt.Y("row:O", title=None, axis=None)
    base = alt.Chart(alt.NamedData("marks")).encode(place, tooltip=tips)
    dots = base.mark_point(shape="triangle-up", filled=True, size=45, color=theme.MUTED, opacity=1)
    text = base.mark_text(align=SIDE, dx=alt.ExprRef("datum.late ? -8 : 8"), fontSize=11).encode(
        alt.Text("text:N")
    )
    return [mark_spec(dots), mark_spec(text)]


SHAPES: Final = ("circle", "triangle-up", "square", "diamond", "cross")


@lru_cache
def _utilisation(colour: str, formulas: tuple[str, ...]) -> Spec:
    """Draw MFU, with a shape per formula if there are several."""
    y = alt.Y(
        "mfu:Q",
        title="MFU, exact",
        scale=alt.Scale(zero=False),
        axis=alt.Axis(format=".1%", tickCount=4),
    )
    chart = (
        alt.Chart(alt.NamedData("runs"))
        .transform_filter("isValid(datum.mfu)")
        .mark_point(filled=not formulas, size=14, color=colour, opacity=0.8, strokeWidth=1.2)
        .encode(y, tooltip=_TIPS)
    )
    if formulas:
        shapes = alt.Scale(domain=[*formulas], range=[*SHAPES[: len(formulas)]])
        chart = chart.encode(shape=alt.Shape("formula:N", title="MFU formula", scale=shapes))
    return mark_spec(chart)


# --- what a series has of its own -------------------------------------------------------------


def _levels(points: pl.DataFrame) -> pl.DataFrame:
    """Return the level of each segment, from its first run to its last."""
    return drawable(
        points.filter(pl.col("level").is_not_null())
        .group_by("segment")
        .agg(at=pl.col("at").min(), until=pl.col("at").max(), level=pl.col("level").first())
        .sort("segment")
    )


def _baseline(series: NightSeries) -> list[Spec]:
    if series["baseline_tgs"] is None:
        return []
    data = pl.DataFrame(
        {"tgs": [series["baseline_tgs"]], "what": [f"baseline: {series['baseline_name']}"]}
    )
    return _rows(drawable(data))


def _changes(series: NightSeries, span: Span | None) -> list[Spec]:
    own = [
        (c["at"], c) for c in series["changes"] if c["against"] != BASELINE and c["at"] is not None
    ]
    own.sort(key=lambda dated: dated[0])
    return [
        {
            "at": at.isoformat(),
            "text": _size(change),
            "causes": "; ".join(change["causes"] or []) or "no setup change in the logs",
            "late": _late(at, span),
            "row": place % 2,
        }
        for place, (at, change) in enumerate(own)
    ]


def _size(change: NightChange) -> str:
    """Return `▼ 5.1 % slower`: a word and a shape, independent of colour."""
    size, _ = difference_text(change["ratio"], change["ratio_low"], change["ratio_high"])
    down = change["ratio"] < 1
    mark = "\N{BLACK DOWN-POINTING TRIANGLE}" if down else "\N{BLACK UP-POINTING TRIANGLE}"
    return f"{mark} {size} {'slower' if down else 'faster'}"


def _late(time: datetime, span: Span | None) -> bool:
    """Return whether a text at this time would exceed the chart at the right."""
    if span is None or span[0] == span[1]:
        return False
    return (time - span[0]) / (span[1] - span[0]) > 0.6  # noqa: PLR2004 - room for the text


MAX_MARKS: Final = 100
MAX_MARK_TEXT: Final = 60
"""Most characters of a mark's text."""


def _marks(points: pl.DataFrame, span: Span | None) -> pl.DataFrame:
    """Return when the logged setup changed, and the change, as text if there are few."""
    what = pl.col("marks").list.join("; ")
    marks = points.filter(pl.col("marks").list.len() > 0).select("at", "name", what=what)
    shown = marks.tail(MAX_MARKS)
    few = shown.height <= MAX_LABELLED_MARKS
    short = pl.col("what").str.slice(0, MAX_MARK_TEXT - 1) + "\N{HORIZONTAL ELLIPSIS}"
    return shown.with_columns(
        row=pl.int_range(pl.len()) % (min(max(shown.height, 1), 3) if few else 1),
        late=pl.Series([_late(at, span) for at in shown["at"]], dtype=BOOL),
        text=pl.when(pl.col("what").str.len_chars() > MAX_MARK_TEXT).then(short).otherwise("what"),
    )


# --- all series -----------------------------------------------------------------------------


def overview(series: Sequence[NightSeries], points: pl.DataFrame) -> Spec:
    """Draw a row per series: TGS relative to its present level, on one scale.

    series: of reports.nightly.night_report.NightDigest.series, in the order to draw; at most
        `MAX_OVERVIEW_SERIES` are drawn.
    """
    rows = [row for row in series if row["level"]][:MAX_OVERVIEW_SERIES]
    by_series = points.partition_by("series", as_dict=True, maintain_order=True)
    none = points.clear()
    frames = [_glance(row, by_series.get((row["series"],), none)) for row in rows]
    data = drawable(pl.concat(frames)) if frames else pl.DataFrame(schema=_GLANCE)
    low, high = _reach(data)
    data = data.with_columns(
        ratio=pl.when(pl.col("ratio").is_between(low, high)).then(pl.col("ratio"))
    )
    order = data["row"].unique(maintain_order=True).to_list()
    lines, dots = _glance_layers()
    x = _time(_span(points))
    y = {
        "field": "ratio",
        "type": "quantitative",
        "title": None,
        "scale": {"zero": False, "domain": [low, high]},
        "axis": {"format": "~%", "tickCount": 3},
    }
    return {
        "title": {
            "text": "TGS of every series over time",
            "subtitle": ["Relative to the current level of the series. The line is the level."],
        },
        "description": f"TGS of {len(rows)} series relative to their current level.",
        "datasets": {"glance": _rows(data)},
        "data": {"name": "glance"},
        "facet": {"row": {"field": "row", "type": "nominal", "sort": order, "title": None}},
        "spec": {
            "layer": [_with(lines, x=x), _with(dots, x=x, y=y)],
            "width": WIDTH,
            "height": 38,
        },
        "spacing": 6,
    }


@cache
def _glance_layers() -> tuple[Spec, Spec]:
    base = alt.Chart()
    lines = base.mark_line(strokeWidth=1.5, color=theme.INK).encode(
        alt.Y("level:Q"), alt.Detail("segment:N")
    )
    dots = base.mark_point(filled=True, size=9, opacity=0.55, color=theme.ACCENT)
    return mark_spec(lines), mark_spec(dots)


_GLANCE: Final = pl.Schema(
    {
        "row": TEXT,
        "at": TIMESTAMP,
        "ratio": FLOAT,
        "level": FLOAT,
        "segment": INT,
    }
)


def _glance(series: NightSeries, points: pl.DataFrame) -> pl.DataFrame:
    levels = points.group_by("segment").agg(pl.col("level").first())
    return (
        thin_points(points, MAX_OVERVIEW_POINTS, single_runs=1)
        .join(levels, on="segment", how="left", maintain_order="left")
        .select(
            pl.lit(f"{series['label']}: {series['state']}").alias("row"),
            "at",
            ratio=pl.col("tgs") / series["level"],
            level=pl.col("level") / series["level"],
            segment="segment",
        )
    )


def _reach(data: pl.DataFrame) -> tuple[float, float]:
    """Return the axis ends: lowest to highest level, with room for noise, as drawn."""
    inner = data.select(
        low=pl.min_horizontal(pl.col("ratio").quantile(0.02), pl.col("level").min(), 0.98),
        high=pl.max_horizontal(pl.col("ratio").quantile(0.98), pl.col("level").max(), 1.02),
    ).row(0)
    low, high = (1.0 if end is None else float(end) for end in inner)
    room = 0.15 * (high - low)
    return low - room, high + room


# --- a line in a table ----------------------------------------------------------------------


def spark(
    points: pl.DataFrame, event_times: Sequence[datetime] = ()
) -> tuple[list[tuple[float, float]], list[float]]:
    """Return the small history of a series: (time, TGS) from 0 to 1, and event times.

    Outliers are left out; event_times outside the time span too. TGS is drawn over at least 4 % of
    its middle, so that noise stays small.
    """
    data = thin_points(points.filter(~pl.col("outlier")), MAX_OVERVIEW_POINTS, single_runs=1)
    if not data.height:
        return [], []
    times = [at.timestamp() for at in data["at"]]
    rates: list[float] = data["tgs"].to_list()
    middle, span = (max(rates) + min(rates)) / 2, max(rates) - min(rates)
    span = max(span, 0.04 * middle)
    long = max(times[-1] - times[0], 1.0)
    dots = [
        ((at - times[0]) / long, 0.5 + (rate - middle) / span)
        for at, rate in zip(times, rates, strict=True)
    ]
    placed = ((mark.timestamp() - times[0]) / long for mark in event_times)
    return dots, [place for place in placed if 0 <= place <= 1]
