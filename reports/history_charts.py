"""Charts of series over nights: TGS and MFU of one series, and all series at a glance.

What is drawn is thinned first: of a long history, a point stands for several runs in a row
(`thinned`), never across a change of level or of formula, so that a chart of three years is as
light as that of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import altair as alt
import polars as pl

from ingest.schema import BOOL, FLOAT, INT, TEXT, TIME
from reports import theme
from reports.charts import EXACT, TGS, WIDTH, Chart, Layers, drawable
from reports.night import BASELINE, Row, apart

WIDE: Final = WIDTH + 80
MOST_POINTS: Final = 300
"""Points of one series, beside its outliers and its last runs."""
LAST: Final = 30
"""The last runs stand alone, however long the history."""
MOST_OUTLIERS: Final = 60
MOST_MARKS: Final = 6
"""Marks that are written out; of more, only where they are."""
AT_A_GLANCE: Final = 60
"""Points of a series in the overview, and in the table's small history."""
MOST_SERIES: Final = 40

THINNED: Final = pl.Schema(
    {
        "at": TIME,
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
"""What is drawn of a series: medians of `runs` runs, low to high their slowest and fastest."""


def thinned(points: pl.DataFrame, most: int = MOST_POINTS, last: int = LAST) -> pl.DataFrame:
    """Rows of THINNED of one series' points, by time.

    The last runs and the outliers (the latest `MOST_OUTLIERS`) stand alone; of the others, as many
    in a row become one point as leaves `most` of them, apart by segment and formula.
    """
    ordered = points.sort("at", "run_id").with_row_index("place")
    alone = pl.col("place") >= ordered.height - last
    early = ordered.filter(~alone)
    strays = early.filter("outlier").tail(MOST_OUTLIERS)
    calm = early.filter(~pl.col("outlier"))
    width = max(1, -(-calm.height // most))
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
        .select(pl.col(name).cast(dtype) for name, dtype in THINNED.items())
    )


def how_thinned(data: pl.DataFrame) -> str:
    """What a point stands for, in a sentence."""
    most = data["runs"].max()
    if not isinstance(most, int) or most <= 1:
        return "One point per run."
    return (
        f"A point is the median of up to {most} runs in a row, its line from the slowest to the "
        f"fastest; the last {LAST} runs stand alone."
    )


def history(series: Row, points: pl.DataFrame) -> alt.VConcatChart:
    """TGS of one series over its nights, what changed with it, and its MFU.

    series: of reports.night.Told.series; points: its rows of POINTS. Runs are dots, those that lie
    far out hollow; the level between two changes is a line; a change that was confirmed is a
    dashed upright with its size; the baseline lies dashed.
    """
    data = drawable(thinned(points))
    marks = _marks(points)
    utilised = data["mfu"].count() > 0
    x = _time(points)
    bare = x.copy().axis(labels=False, ticks=False, grid=False)
    parts: list[Chart] = [_rates(series, points, data, bare if utilised else x)]
    parts += [_what_changed(marks, points, bare)] if marks.height else []
    parts += [_utilisation(data["formula"], _colour(series), x)] if utilised else []
    chart: alt.VConcatChart = (
        alt.vconcat(*parts, spacing=6)
        .resolve_scale(color="independent", shape="independent")
        .properties(description=f"TGS and MFU of {series['label']} over {points.height} runs.")
    )
    # last, for Altair copies a chart and its data with each step
    chart["datasets"] = {RUNS.name: _rows(data)}
    return chart


def _colour(series: Row) -> str:
    return theme.FRAMEWORK_COLOURS.get(series["framework"], theme.ACCENT)


RUNS: Final = alt.NamedData("runs")
"""Rows of THINNED, which two panels draw."""


def _rows(data: pl.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON carries them; a time without a zone is shown as it stands."""
    return [row | {"at": row["at"].isoformat()} for row in data.iter_rows(named=True)]


def _days(points: pl.DataFrame) -> list[alt.DateTime]:
    """The ends of the time axis, a little beyond the first and the last run."""
    first, last = points["at"].min(), points["at"].max()
    if not isinstance(first, datetime) or not isinstance(last, datetime):
        return []
    room = max((last - first) * 0.015, timedelta(hours=12))
    return [_moment(first - room), _moment(last + room)]


def _moment(at: datetime) -> alt.DateTime:
    return alt.DateTime(year=at.year, month=at.month, date=at.day, hours=at.hour, minutes=at.minute)


SEASON: Final = timedelta(days=150)
"""A history that is longer has months and years on its axis, not days."""


def _time(points: pl.DataFrame) -> alt.X:
    scale = alt.Scale(domain=_days(points), nice=False)
    first, last = points["at"].min(), points["at"].max()
    long = isinstance(first, datetime) and isinstance(last, datetime) and last - first > SEASON
    form = "%b %Y" if long else "%-d %b"
    axis = alt.Axis(tickCount=6, format=form, labelOverlap=True, labelSeparation=8, grid=False)
    return alt.X("at:T", title=None, scale=scale, axis=axis)


_TIPS: Final = [
    alt.Tooltip("what:N", title="run"),
    alt.Tooltip("at:T", title="at", format="%Y-%m-%d %H:%M"),
    alt.Tooltip("tgs:Q", title=TGS, format=",.1f"),
    alt.Tooltip("low:Q", title="slowest", format=",.1f"),
    alt.Tooltip("high:Q", title="fastest", format=",.1f"),
    alt.Tooltip("mfu:Q", title=EXACT, format=".2%"),
    alt.Tooltip("formula:N", title="MFU by"),
]


def _rates(series: Row, points: pl.DataFrame, data: pl.DataFrame, x: alt.X) -> Layers:
    """Runs, levels, confirmed changes and the baseline.

    data: what `RUNS` will be; a layer that would be empty is left out.
    """
    colour = _colour(series)
    y = alt.Y("tgs:Q", title=TGS, scale=alt.Scale(zero=False, nice=True))
    base = alt.Chart(RUNS).encode(x, y, tooltip=_TIPS)
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
    runs = [
        *([spread] if (data["runs"] > 1).any() else []),
        *([dots] if not data["outlier"].all() else []),
        *([far] if data["outlier"].any() else []),
    ]
    layers = [*runs, *_levels(points), *_baseline(series), *_changes(series, points)]
    return alt.layer(*layers).properties(width=WIDE, height=220)


def _levels(points: pl.DataFrame) -> list[alt.Chart]:
    """The level of each segment, from its first run to its last."""
    segments = (
        points.filter(pl.col("level").is_not_null())
        .group_by("segment")
        .agg(at=pl.col("at").min(), until=pl.col("at").max(), level=pl.col("level").first())
        .sort("segment")
    )
    if not segments.height:
        return []
    tips = [
        alt.Tooltip("level:Q", title=f"level, {TGS}", format=",.1f"),
        alt.Tooltip("at:T", title="from", format="%Y-%m-%d"),
        alt.Tooltip("until:T", title="to", format="%Y-%m-%d"),
    ]
    line = alt.Chart(drawable(segments)).mark_rule(strokeWidth=2.5, strokeCap="round")
    return [line.encode(alt.X("at:T"), alt.X2("until"), alt.Y("level:Q"), tooltip=tips)]


def _baseline(series: Row) -> list[alt.Chart]:
    if series["baseline_tgs"] is None:
        return []
    data = pl.DataFrame(
        {"tgs": [series["baseline_tgs"]], "what": [f"baseline, {series['baseline_name']}"]}
    )
    base = alt.Chart(drawable(data)).encode(
        alt.Y("tgs:Q"),
        tooltip=[alt.Tooltip("what:N"), alt.Tooltip("tgs:Q", title=TGS, format=",.1f")],
    )
    text = base.mark_text(text="baseline", align="left", baseline="bottom", dx=4, dy=-3)
    line = base.mark_rule(strokeDash=[7, 4], strokeWidth=1.2)
    return [line, text.encode(x=alt.value(0))]


def _changes(series: Row, points: pl.DataFrame) -> list[Layers]:
    """An upright for each confirmed change, with its size at the top."""
    own = [c for c in series["changes"] if c["against"] != BASELINE and c["at"] is not None]
    own.sort(key=lambda change: change["at"])
    if not own:
        return []
    rows = [
        {
            "at": change["at"],
            "text": _size(change),
            "causes": "; ".join(change["causes"] or []) or "nothing that the logs say",
            "late": _late(change["at"], points),
            "row": place % 2,
        }
        for place, change in enumerate(own)
    ]
    tips = [
        alt.Tooltip("at:T", title="first run after", format="%Y-%m-%d %H:%M"),
        alt.Tooltip("text:N", title="change"),
        alt.Tooltip("causes:N", title="changed with it"),
    ]
    base = alt.Chart(pl.DataFrame(rows)).encode(alt.X("at:T"), tooltip=tips)
    line = base.mark_rule(strokeDash=[2, 3], strokeWidth=1.2)
    texts = [
        base.transform_filter(f"datum.late === {str(late).lower()} && datum.row === {row}")
        .mark_text(align="right" if late else "left", dx=-5 if late else 5, fontWeight=600)
        .encode(alt.Text("text:N"), y=alt.value(-9 - 15 * row))
        for late in (False, True)
        for row in (0, 1)
        if any(one["late"] is late and one["row"] == row for one in rows)
    ]
    return [alt.layer(line, *texts)]


def _size(change: Row) -> str:
    """`▼ 5.1 % slower`: a word and a shape beside any colour."""
    size, _ = apart(change["ratio"], change["ratio_low"], change["ratio_high"])
    down = change["ratio"] < 1
    mark = "\N{BLACK DOWN-POINTING TRIANGLE}" if down else "\N{BLACK UP-POINTING TRIANGLE}"
    return f"{mark} {size} {'slower' if down else 'faster'}"


def _late(at: datetime, points: pl.DataFrame) -> bool:
    """Whether a text at this time would leave the chart at its right."""
    first, last = points["at"].min(), points["at"].max()
    if not isinstance(first, datetime) or not isinstance(last, datetime) or first == last:
        return False
    return (at - first) / (last - first) > 0.6  # noqa: PLR2004 - room for the text


def _marks(points: pl.DataFrame) -> pl.DataFrame:
    """When what the logs say of the setup changed, and what."""
    return points.filter(pl.col("marks").list.len() > 0).select(
        "at", "name", what=pl.col("marks").list.join("; ")
    )


MOST_MARKED: Final = 100
SHORT: Final = 60
"""Characters of a mark that is written out."""


def _what_changed(marks: pl.DataFrame, points: pl.DataFrame, x: alt.X) -> Layers:
    """A track of marks below the TGS: versions and settings, written out where there are few."""
    shown = marks.tail(MOST_MARKED)
    few = shown.height <= MOST_MARKS
    rows = shown.with_row_index("place").with_columns(
        row=pl.col("place") % (min(shown.height, 3) if few else 1),
        late=pl.Series([_late(at, points) for at in shown["at"]], dtype=BOOL),
        text=pl.when(pl.col("what").str.len_chars() > SHORT)
        .then(pl.col("what").str.slice(0, SHORT - 1) + "\N{HORIZONTAL ELLIPSIS}")
        .otherwise("what"),
    )
    tracks = min(shown.height, 3) if few else 1
    tips = [
        alt.Tooltip("what:N", title="changed"),
        alt.Tooltip("name:N", title="first run"),
        alt.Tooltip("at:T", title="at", format="%Y-%m-%d %H:%M"),
    ]
    place = alt.Y("row:O", title=None, axis=None)
    base = alt.Chart(rows).encode(x, place, tooltip=tips)
    dots = base.mark_point(shape="triangle-up", filled=True, size=45, color=theme.MUTED, opacity=1)
    texts = [
        base.transform_filter(f"datum.late === {str(late).lower()}")
        .mark_text(align="right" if late else "left", dx=-8 if late else 8, fontSize=11)
        .encode(alt.Text("text:N"))
        for late in (False, True)
        if few and (rows["late"] == late).any()
    ]
    return alt.layer(dots, *texts).properties(width=WIDE, height=16 * tracks)


SHAPES: Final = ("circle", "triangle-up", "square", "diamond", "cross")


def _utilisation(formula: pl.Series, colour: str, x: alt.X) -> alt.Chart:
    """MFU; where it is by several formulas, each has a shape of its own."""
    formulas = formula.drop_nulls().unique(maintain_order=True).to_list()
    y = alt.Y(
        "mfu:Q",
        title="MFU",
        scale=alt.Scale(zero=False),
        axis=alt.Axis(format=".1%", tickCount=4),
    )
    known = alt.Chart(RUNS).transform_filter("isValid(datum.mfu)")
    points: alt.Chart = known.mark_point(
        filled=len(formulas) <= 1, size=14, color=colour, opacity=0.8, strokeWidth=1.2
    )
    chart: alt.Chart = points.encode(x, y, tooltip=_TIPS)
    if len(formulas) > 1:
        shapes = alt.Scale(domain=formulas, range=[*SHAPES[: len(formulas)]])
        chart = chart.encode(shape=alt.Shape("formula:N", title="MFU by formula", scale=shapes))
    return chart.properties(width=WIDE, height=90)


# --- all series -----------------------------------------------------------------------------


def overview(series: Sequence[Row], points: pl.DataFrame) -> alt.FacetChart:
    """Every series in a row of its own: TGS against its present level, on one scale.

    series: of reports.night.Told.series, in the order to draw; at most `MOST_SERIES` are drawn.
    """
    rows = [row for row in series if row["level"]][:MOST_SERIES]
    frames = [_glance(row, points.filter(series=row["series"])) for row in rows]
    data = drawable(pl.concat(frames)) if frames else pl.DataFrame(schema=_GLANCE)
    low, high = _reach(data)
    data = data.with_columns(
        ratio=pl.when(pl.col("ratio").is_between(low, high)).then(pl.col("ratio"))
    )
    order = data["row"].unique(maintain_order=True).to_list()
    base = alt.Chart(data).encode(_time(points))
    y = alt.Y(
        "ratio:Q",
        title=None,
        scale=alt.Scale(zero=False, domain=[low, high]),
        axis=alt.Axis(format=".0%", tickCount=3),
    )
    dots = base.mark_point(filled=True, size=9, opacity=0.55, color=theme.ACCENT)
    lines = base.mark_line(strokeWidth=1.5, color=theme.INK).encode(
        alt.Y("level:Q"), alt.Detail("segment:N")
    )
    layers = alt.layer(lines, dots.encode(y)).properties(width=WIDTH, height=38)
    chart: alt.FacetChart = layers.facet(row=alt.Row("row:N", sort=order, title=None), spacing=6)
    return chart.properties(
        title=alt.TitleParams(
            "Every series over its nights",
            subtitle=["TGS against the present level of each; the line is the level."],
        ),
        description=f"TGS of {len(rows)} series against their present level.",
    )


_GLANCE: Final = pl.Schema(
    {
        "row": TEXT,
        "at": TIME,
        "ratio": FLOAT,
        "level": FLOAT,
        "segment": INT,
    }
)


def _glance(series: Row, points: pl.DataFrame) -> pl.DataFrame:
    levels = points.group_by("segment").agg(pl.col("level").first())
    return (
        thinned(points, AT_A_GLANCE, last=1)
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
    """From the lowest to the highest level, with room for noise; what lies beyond is not drawn."""
    inner = data.select(
        low=pl.min_horizontal(pl.col("ratio").quantile(0.02), pl.col("level").min(), 0.98),
        high=pl.max_horizontal(pl.col("ratio").quantile(0.98), pl.col("level").max(), 1.02),
    ).row(0)
    low, high = (1.0 if end is None else float(end) for end in inner)
    room = 0.15 * (high - low)
    return low - room, high + room


# --- a line in a table ----------------------------------------------------------------------


def spark(points: pl.DataFrame) -> list[tuple[float, float]]:
    """The small history of one series: time and TGS, each from 0 to 1; strays left out.

    TGS is set against two per cent of its level at least, so that noise stays small.
    """
    data = thinned(points.filter(~pl.col("outlier")), AT_A_GLANCE, last=1)
    if not data.height:
        return []
    times = [at.timestamp() for at in data["at"]]
    rates: list[float] = data["tgs"].to_list()
    middle, span = (max(rates) + min(rates)) / 2, max(rates) - min(rates)
    span = max(span, 0.04 * middle)
    long = max(times[-1] - times[0], 1.0)
    return [
        ((at - times[0]) / long, 0.5 + (rate - middle) / span)
        for at, rate in zip(times, rates, strict=True)
    ]
