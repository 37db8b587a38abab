"""Charts: one function each, Polars frames in, an Altair chart out.

What is drawn is aggregated first (`MOST_BINS` bins of steps at most per run), so a chart of a
long run is as light as that of a short one. A null is absent; NaN and infinities become null.
Every title and tooltip names unit and convention.
"""

from __future__ import annotations

from typing import Any, Final, cast

import altair as alt
import polars as pl
import polars.selectors as cs

from metrics.throughput import SPOILERS, clean
from reports import theme

Chart = alt.Chart | alt.LayerChart | alt.FacetChart | alt.VConcatChart

WIDTH: Final = 620
ROW: Final = 26
MOST_BINS: Final = 300
"""Bins of steps per run; with the windows left out kept apart, under 2,000 points per run."""
DIGITS: Final = 6
"""Significant figures that a spec carries: more than a pixel shows."""

TGS: Final = "TGS [tokens/s/GPU]"
LOGGED, OURS = "what the log printed", "recomputed (exact attention)"
EXACT, FULL = "MFU (exact attention)", "MFU (full attention)"
COUNTED: Final = "counted"
SEVERAL: Final = "other"

CARD: Final = (
    alt.Tooltip("run:N", title="run"),
    alt.Tooltip("framework:N", title="framework"),
    alt.Tooltip("tgs:Q", title=TGS, format=",.1f"),
    alt.Tooltip("interval:N", title="95 % interval"),
    alt.Tooltip("token_basis:N", title="token basis"),
    alt.Tooltip("time_basis:N", title="time evidence"),
    alt.Tooltip("mfu:Q", title=EXACT, format=".1%"),
    alt.Tooltip("mfu_full_attention:Q", title=FULL, format=".1%"),
    alt.Tooltip("peak_tflops:Q", title="dense peak [TFLOP/s]", format=",.1f"),
)
"""The figure card: what every point of a run says of itself."""


def labels(metrics: pl.DataFrame) -> dict[str, str]:
    """A name for each run_id, of its own: names that several runs share get the id's start."""
    twice = metrics.filter(pl.col("name").is_duplicated())["run_id"].to_list()
    return {
        row["run_id"]: (row["name"] or row["run_id"])
        + (f" [{row['run_id'][:8]}]" if row["run_id"] in twice else "")
        + (" (synthetic)" if row["synthetic"] else "")
        for row in metrics.iter_rows(named=True)
    }


def tgs_by_run(comparison: pl.DataFrame, metrics: pl.DataFrame) -> alt.FacetChart:
    """TGS of the ranked runs with 95 % intervals; a panel for each group of like-for-like runs."""
    ranked = _cards(comparison.filter(pl.col("rank").is_not_null()), metrics)
    data = _drawable(ranked.select(*_CARD_FIELDS, "group", "tgs_low", "tgs_high"))
    groups = data["group"].unique(maintain_order=True).to_list()
    y = alt.Y("run:N", sort=data["run"].to_list(), title=None)
    base = alt.Chart(data).encode(y=y, tooltip=list(CARD))
    bars = base.mark_bar(height=14).encode(alt.X("tgs:Q", title=TGS), _framework(data))
    spread = base.mark_rule(strokeWidth=2, aria=False).encode(
        alt.X("tgs_low:Q"), alt.X2("tgs_high")
    )
    figures = base.mark_text(align="left", dx=8).encode(
        alt.X("reach:Q"), alt.Text("tgs:Q", format=",.0f")
    )
    layers = alt.layer(bars, spread, figures).transform_calculate(
        reach="isValid(datum.tgs_high) ? datum.tgs_high : datum.tgs"
    )
    return (
        layers.properties(width=WIDTH, height=alt.Step(ROW))
        .facet(row=alt.Row("group:N", sort=groups, title=None), spacing=24)
        .resolve_scale(x="independent", y="independent")
        .properties(
            title=_title(
                "TGS: tokens per second per GPU",
                "Steady state; the line is the 95 % interval. Compare within a panel only.",
            ),
            description=f"Tokens per second per GPU of {data.height} runs, by group.",
        )
    )


def mfu_by_run(metrics: pl.DataFrame) -> alt.LayerChart:
    """MFU of each run under both conventions: a filled dot for exact, a diamond for full."""
    known = metrics.filter(pl.col("mfu").is_not_null() | pl.col("mfu_full_attention").is_not_null())
    cards = _cards(known, metrics).sort(
        pl.coalesce("mfu", "mfu_full_attention"), "run", descending=[True, False]
    )
    wide = _drawable(cards.select(_CARD_FIELDS))
    long = _stacked(wide, {"mfu": EXACT, "mfu_full_attention": FULL})
    return _dumbbell(
        long, wide["run"].to_list(), [EXACT, FULL], "MFU of the dense peak", ".0%"
    ).properties(
        title=_title(
            "MFU under both attention conventions",
            "Exact attended pairs is the headline; full attention is what most papers print.",
        ),
        description=f"MFU (exact attention) and MFU (full attention) of {wide.height} runs.",
    )


def logged_against_recomputed(comparison: pl.DataFrame, metrics: pl.DataFrame) -> alt.VConcatChart:
    """What the log printed and what it is, a dumbbell per run.

    TFLOP/s per GPU where the log prints it; runs whose log prints MFU alone stand in a panel of
    MFU. Runs that lack either side are not drawn.
    """
    cards = _cards(comparison, metrics)
    tflops = cards.filter(pl.col("logged_tflops").is_not_null() & pl.col("tflops").is_not_null())
    mfu = cards.filter(
        pl.col("logged_tflops").is_null()
        & pl.col("logged_mfu").is_not_null()
        & pl.col("mfu").is_not_null()
    )
    panels = []
    if tflops.height or not mfu.height:
        panels.append(_logged(tflops, "tflops", "TFLOP/s per GPU", ",.0f"))
    if mfu.height:
        panels.append(_logged(mfu, "mfu", "MFU", ".0%"))
    apart = alt.vconcat(*panels, spacing=28).resolve_scale(color="independent", shape="independent")
    return apart.properties(
        description=f"Logged against recomputed figures of {tflops.height + mfu.height} runs."
    )


def _logged(cards: pl.DataFrame, name: str, unit: str, axis_format: str) -> alt.LayerChart:
    both = {f"logged_{name}": LOGGED, name: OURS}
    wide = _drawable(cards.select(*dict.fromkeys([*_CARD_FIELDS, *both])))
    long = _stacked(wide, both)
    return _dumbbell(long, wide["run"].to_list(), [LOGGED, OURS], unit, axis_format).properties(
        title=_title(
            f"{unit}: what the log said, what it is",
            "Open diamond: printed by the framework's own formula. Dot: one formula for all.",
        )
    )


def steps_over_time(windows: pl.DataFrame, metrics: pl.DataFrame) -> alt.VConcatChart:
    """TGS of each window over steps, the windows left out marked, and the loss below.

    windows: as metrics.throughput.windows, of the runs to draw; metrics: their rows.
    """
    data = _drawable(binned(windows, metrics))
    kinds = sorted(set(data["window"].unique()) - {COUNTED})
    counted, left_out = data.filter(window=COUNTED), data.filter(pl.col("window") != COUNTED)
    base = alt.Chart(counted).encode(_step_axis(title=None), _framework(data), alt.Detail("run:N"))
    y = alt.Y("tgs:Q", title=TGS, scale=alt.Scale(zero=False))
    band = base.mark_area(opacity=0.25).encode(alt.Y("low:Q"), alt.Y2("high"))
    line = base.mark_line(strokeWidth=1.5, point={"size": 14}).encode(y, tooltip=_STEP_TIPS)
    marks = alt.Chart(left_out).mark_point(size=55, strokeWidth=1.6, color=theme.MUTED)
    crosses = marks.encode(
        _step_axis(title=None),
        y,
        alt.Shape("window:N", title="left out", scale=alt.Scale(domain=kinds, range=_SHAPES)),
        tooltip=_STEP_TIPS,
    )
    loss = alt.Chart(data).encode(_step_axis(), _framework(data).legend(None), alt.Detail("run:N"))
    below = loss.mark_line(strokeWidth=1.5).encode(
        alt.Y("loss:Q", title="loss", scale=alt.Scale(zero=False)), tooltip=_STEP_TIPS
    )
    above = alt.layer(band, line, *([crosses] if kinds else []))
    return (
        alt.vconcat(
            above.properties(
                width=WIDTH + 100,
                height=190,
                title=_title(
                    "TGS over steps",
                    _bin_note(data),
                    "Windows left out are marked. The axis need not start at 0.",
                ),
            ),
            below.properties(width=WIDTH + 100, height=90),
            spacing=10,
        )
        .resolve_scale(color="independent")
        .properties(
            description=f"Tokens per second per GPU and loss over {data.height} bins of steps."
        )
    )


def binned(windows: pl.DataFrame, metrics: pl.DataFrame, bins: int = MOST_BINS) -> pl.DataFrame:
    """What `steps_over_time` draws: per run, bin of steps and kind of window, sorted.

    tgs [tokens/s/GPU] is a ratio of sums over the bin, low and high its slowest and fastest
    window, loss the mean, `windows` how many; `window` is "counted" or why it was left out.
    """
    frames = [
        _binned_run(windows.filter(run_id=row["run_id"]), row, bins)
        for row in metrics.iter_rows(named=True)
    ]
    names = labels(metrics)
    found = pl.concat(frames) if frames else pl.DataFrame(schema=_BINNED)
    return found.with_columns(
        run=pl.col("run_id").replace_strict(names, return_dtype=pl.String)
    ).drop("run_id")


def operators(operator_table: pl.DataFrame) -> alt.LayerChart:
    """Share of the FLOPs per token of each operator, largest first.

    operator_table: as metrics.utilization.operator_table; an operator of several layer groups is
    one bar.
    """
    data = _drawable(
        operator_table.group_by("operator", maintain_order=True)
        .agg(
            pl.col("share", "flops_per_token").sum(),
            pl.col("layers").sum(),
            pl.col("dtype").drop_nulls().unique(maintain_order=True).str.join(", "),
        )
        .sort("share", "operator", descending=[True, False])
    )
    base = alt.Chart(data).encode(
        alt.X("share:Q", title="share of FLOPs per token", axis=alt.Axis(format="%", grid=False)),
        alt.Y("operator:N", sort=data["operator"].to_list(), title=None),
        tooltip=[
            alt.Tooltip("operator:N"),
            alt.Tooltip("layers:Q", title="layers"),
            alt.Tooltip("dtype:N", title="computed in"),
            alt.Tooltip("flops_per_token:Q", title="FLOPs per token", format=".4s"),
            alt.Tooltip("share:Q", title="share", format=".1%"),
        ],
    )
    figures = base.mark_text(align="left", dx=6).encode(text=alt.Text("share:Q", format=".1%"))
    return alt.layer(base.mark_bar(height=13, color=theme.ACCENT), figures).properties(
        width=300,
        height=alt.Step(22),
        title=_title("Where the FLOPs are", "Forward and backward, exact attention."),
        description=f"Share of FLOPs per token of {data.height} operators.",
    )


# --- what is drawn ------------------------------------------------------------------------

_CARD_FIELDS: Final = (
    "run",
    "framework",
    "tgs",
    "interval",
    "token_basis",
    "time_basis",
    "mfu",
    "mfu_full_attention",
    "peak_tflops",
)
_BINNED: Final = pl.Schema(
    {
        "run_id": pl.String,
        "framework": pl.String,
        "window": pl.String,
        "step": pl.Int64,
        "last_step": pl.Int64,
        "tgs": pl.Float64,
        "low": pl.Float64,
        "high": pl.Float64,
        "loss": pl.Float64,
        "windows": pl.UInt32,
    }
)
_STEP_TIPS: Final = [
    alt.Tooltip("run:N", title="run"),
    alt.Tooltip("step:Q", title="from step", format=",d"),
    alt.Tooltip("last_step:Q", title="to step", format=",d"),
    alt.Tooltip("windows:Q", title="windows"),
    alt.Tooltip("window:N", title="kind"),
    alt.Tooltip("tgs:Q", title=TGS, format=",.1f"),
    alt.Tooltip("low:Q", title="slowest window", format=",.1f"),
    alt.Tooltip("high:Q", title="fastest window", format=",.1f"),
    alt.Tooltip("loss:Q", title="loss", format=".4f"),
]
_SHAPES: Final = ["cross", "triangle-up", "square", "diamond", "circle"]


def _cards(runs: pl.DataFrame, metrics: pl.DataFrame) -> pl.DataFrame:
    """`runs` with the columns of the figure card, in their order."""
    names = labels(metrics)
    more = metrics.select(
        "run_id",
        "token_basis",
        "time_basis",
        interval=_interval(),
        peak_tflops=pl.col("peak_flops") / 1e12,
        run=pl.col("run_id").replace_strict(names, return_dtype=pl.String),
    )
    own = runs.drop(cs.by_name("token_basis", "time_basis", require_all=False))
    return own.join(more, on="run_id", how="left", validate="1:1", maintain_order="left")


def _interval() -> pl.Expr:
    """The 95 % interval of TGS as text; null where there is none."""

    def text(row: Any) -> str | None:  # noqa: ANN401 - a struct as Polars hands it over
        low, high = row["tgs_low"], row["tgs_high"]
        return None if low is None or high is None else f"{low:,.0f}\N{EN DASH}{high:,.0f}"

    return pl.struct("tgs_low", "tgs_high").map_elements(text, return_dtype=pl.String)


def _drawable(frame: pl.DataFrame) -> pl.DataFrame:
    """No NaN, no infinity, no more digits than can be seen."""
    floats = cs.float()
    return frame.with_columns(
        pl.when(floats.is_finite()).then(floats.round_sig_figs(DIGITS)).name.keep()
    )


def _stacked(wide: pl.DataFrame, kinds: dict[str, str]) -> pl.DataFrame:
    """A row per run and figure: `kind` names it, `value` is it."""
    return pl.concat(
        wide.with_columns(value=pl.col(column), kind=pl.lit(kind)) for column, kind in kinds.items()
    ).filter(pl.col("value").is_not_null())


def _dumbbell(
    data: pl.DataFrame, runs: list[str], kinds: list[str], unit: str, axis_format: str
) -> alt.LayerChart:
    """Two marks per run joined by a line; the open diamond is what others print."""
    ours = EXACT if EXACT in kinds else OURS
    shapes = ["circle" if kind == ours else "diamond" for kind in kinds]
    base = alt.Chart(data).encode(
        alt.Y("run:N", sort=runs, title=None), tooltip=_dumbbell_tips(axis_format)
    )
    x = alt.X("value:Q", title=unit, axis=alt.Axis(format=axis_format), scale=alt.Scale(zero=True))
    colour = _framework(data)
    joined = base.mark_line(strokeWidth=3, opacity=0.45).encode(x, colour, alt.Detail("run:N"))
    points = base.mark_point(size=90, strokeWidth=2, opacity=1).encode(
        x,
        colour,
        alt.Shape("kind:N", title=None, scale=alt.Scale(domain=kinds, range=shapes)),
        fillOpacity=alt.condition(alt.datum.kind == ours, alt.value(1), alt.value(0)),
        fill=alt.Fill("framework:N", scale=_colours(data), legend=None),
    )
    return alt.layer(joined, points).properties(width=WIDTH, height=alt.Step(ROW))


def _dumbbell_tips(value_format: str) -> list[alt.Tooltip]:
    digits = value_format.replace(".0", ".1")
    return [
        alt.Tooltip("kind:N", title="figure"),
        alt.Tooltip("value:Q", title="value", format=digits),
        *CARD,
    ]


def _binned_run(frame: pl.DataFrame, about: dict[str, Any], bins: int) -> pl.DataFrame:
    evidence = about["time_basis"]
    rates = _rated(frame, evidence)
    first, last = frame["step"].min() or 0, frame["step"].max() or 0
    width = max(1, -(-(cast("int", last) - cast("int", first) + 1) // bins))
    return (
        rates.group_by(pl.col("window"), bin=(pl.col("step") - first) // width)
        .agg(
            pl.col("step").min(),
            pl.col("step").max().alias("last_step"),
            tgs=pl.when(pl.col("seconds").sum() > 0).then(
                pl.col("tokens").sum() / pl.col("seconds").sum()
            ),
            low=(pl.col("tokens") / pl.col("seconds")).min(),
            high=(pl.col("tokens") / pl.col("seconds")).max(),
            loss=pl.col("loss").mean(),
            windows=pl.len(),
        )
        .sort("step", "window")
        .select(
            pl.lit(about["run_id"]).alias("run_id"),
            pl.lit(about["framework"]).alias("framework"),
            *list(_BINNED)[2:],
        )
    )


def _rated(frame: pl.DataFrame, evidence: str | None) -> pl.DataFrame:
    """Each window with its tokens and seconds on one GPU and whether it was counted, or why not."""
    if evidence is None:
        nothing = pl.lit(None, pl.Float64)
        return frame.with_columns(tokens=nothing, seconds=nothing, window=pl.lit(COUNTED))
    steady = clean(frame, evidence)["line"].implode()
    spoiling = pl.col("spoilers").list.set_intersection(list(SPOILERS[evidence])).list.first()
    tokens = pl.coalesce("tokens_per_gpu", 1.0) if evidence == "rate" else pl.col("tokens_per_gpu")
    return frame.with_columns(
        tokens=pl.col(f"{evidence}_span") * tokens,
        seconds=pl.col(f"{evidence}_time"),
        window=pl.when(pl.col("line").is_in(steady))
        .then(pl.lit(COUNTED))
        .otherwise(
            pl.when("first")
            .then(pl.lit("start-up"))
            .otherwise(pl.coalesce(spoiling, pl.lit(SEVERAL)))
        ),
    )


def _framework(data: pl.DataFrame) -> alt.Color:
    """The framework's colour; the legend shows those that are drawn."""
    legend = alt.Legend(symbolType="circle", symbolOpacity=1, symbolStrokeWidth=0)
    return alt.Color("framework:N", title=None, scale=_colours(data), legend=legend)


def _colours(data: pl.DataFrame) -> alt.Scale:
    drawn = set(data["framework"].unique())
    colours = {name: colour for name, colour in theme.FRAMEWORK_COLOURS.items() if name in drawn}
    colours |= dict.fromkeys(sorted(drawn - set(colours)), theme.ACCENT)
    return alt.Scale(domain=list(colours), range=list(colours.values()))


def _step_axis(title: str | None = "step") -> alt.X:
    return alt.X(
        "step:Q", title=title, axis=alt.Axis(format=",d"), scale=alt.Scale(nice=False, padding=8)
    )


def _bin_note(data: pl.DataFrame) -> str:
    most = data["windows"].max()
    if not isinstance(most, int) or most <= 1:
        return "One point per logged window."
    return f"Up to {most:,} windows a point: line all of them, band from slowest to fastest."


def _title(text: str, *subtitle: str) -> alt.TitleParams:
    return alt.TitleParams(text, subtitle=list(subtitle))
