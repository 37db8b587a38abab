"""Charts: one function each, Polars frames in, an Altair chart out.

What is drawn is aggregated first (`MOST_BINS` bins of steps at most per run), so a chart of a
long run is as light as that of a short one. A null is absent; NaN and infinities become null.
Every title and tooltip names unit and convention.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Any, Final, Literal, cast

import altair as alt
import polars as pl
import polars.selectors as cs

from metrics.reconcile import Bridge
from metrics.time_lost import START_UP, WARM_UP
from metrics.windows import SPOILERS, clean
from reports import bridge as bridge_steps
from reports import theme
from reports.verdict import names

Chart = alt.Chart | alt.LayerChart | alt.FacetChart | alt.VConcatChart
Layers = alt.LayerChart | alt.FacetChart
"""What `alt.layer` gives: a facet only where a layer is one."""
Spec = dict[str, Any]
"""A chart as Vega-Lite has it; Altair reads it by `alt.Chart.from_dict`."""

WIDTH: Final = 680
ROW: Final = 26
MOST_BINS: Final = 300
"""Bins of steps per run; with the windows left out kept apart, under 2,000 points per run."""
DIGITS: Final = 6
"""Significant figures that a spec carries: more than a pixel shows."""

TGS: Final = "TGS [tokens/s/GPU]"
LOGGED, OURS = "what the log printed", "recomputed (exact attention)"
EXACT, FULL = "MFU (exact attention)", "MFU (full attention)"
NOT_RANKED: Final = "not ranked"
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


def tgs_by_run(comparison: pl.DataFrame, metrics: pl.DataFrame) -> alt.FacetChart:
    """TGS of the ranked runs with 95 % intervals; a panel for each group of like-for-like runs."""
    ranked = _cards(comparison.filter(pl.col("rank").is_not_null()), metrics)
    reach = pl.coalesce("tgs_high", "tgs").alias("reach")
    data = drawable(ranked.select(*_CARD_FIELDS, "panel", "tgs_low", "tgs_high", reach))
    base = alt.Chart(data).encode(
        y=alt.Y("run:N", sort=data["run"].to_list(), title=None), tooltip=list(CARD)
    )
    bars = base.mark_bar(height=14).encode(_length("tgs", TGS, ",.0f"), _framework(data))
    spread = base.mark_rule(strokeWidth=2).encode(alt.X("tgs_low:Q"), alt.X2("tgs_high"))
    figures = base.mark_text(align="left", dx=8).encode(
        alt.X("reach:Q"), alt.Text("tgs:Q", format=",.0f")
    )
    return _by_panel(alt.layer(bars, spread, figures), data).properties(
        title=_title(
            "TGS: tokens per second per GPU",
            "Steady state; the line is the 95 % interval. Compare within a panel only.",
        ),
        description=f"Tokens per second per GPU of {data.height} runs, by group.",
    )


def mfu_by_run(metrics: pl.DataFrame) -> Layers:
    """MFU of each run under both conventions: a dot for exact, an open diamond for full."""
    known = metrics.filter(pl.col("mfu").is_not_null() | pl.col("mfu_full_attention").is_not_null())
    cards = _cards(known, metrics).sort(
        pl.coalesce("mfu", "mfu_full_attention"), "run", descending=[True, False]
    )
    wide = drawable(cards.select(_CARD_FIELDS))
    long = _stacked(wide, {"mfu_full_attention": FULL, "mfu": EXACT})
    return _dumbbell(long, EXACT, _length("value", "MFU of the dense peak", ".0%")).properties(
        title=_title("MFU under both attention conventions", _key(EXACT, FULL)),
        description=f"{EXACT} and {FULL} of {wide.height} runs.",
        width=WIDTH,
        height=alt.Step(ROW),
    )


def logged_against_recomputed(comparison: pl.DataFrame, metrics: pl.DataFrame) -> alt.VConcatChart:
    """What the log printed and what it is, a dumbbell per run, a panel for each group.

    TFLOP/s per GPU where the log prints it; runs whose log prints MFU alone stand below, in MFU.
    Runs that lack either side are not drawn.
    """
    cards = _cards(comparison, metrics)
    tflops = cards.filter(pl.col("logged_tflops").is_not_null() & pl.col("tflops").is_not_null())
    only_mfu = pl.col("logged_tflops").is_null() & pl.col("logged_mfu").is_not_null()
    mfu = cards.filter(only_mfu & pl.col("mfu").is_not_null())
    parts = []
    if tflops.height or not mfu.height:
        parts.append(_logged(tflops, "tflops", "TFLOP/s per GPU", ",.4~r"))
    if mfu.height:
        parts.append(_logged(mfu, "mfu", "MFU", ".0%"))
    chart: alt.VConcatChart = alt.vconcat(*parts, spacing=28).resolve_scale(color="independent")
    drawn = tflops.height + mfu.height
    return chart.properties(description=f"Logged against recomputed figures of {drawn} runs.")


def _logged(cards: pl.DataFrame, name: str, unit: str, axis_format: str) -> alt.FacetChart:
    both = {f"logged_{name}": LOGGED, name: OURS}
    wide = drawable(cards.select(*dict.fromkeys([*_CARD_FIELDS, "panel", *both])))
    data = _stacked(wide, both)
    chart = _by_panel(_dumbbell(data, OURS, _length("value", unit, axis_format)), data)
    return chart.properties(
        title=_title(f"{unit}: what the log said, what it is", _key(OURS, LOGGED))
    )


def steps_over_time(windows: pl.DataFrame, metrics: pl.DataFrame) -> alt.VConcatChart:
    """TGS of each window over steps, the windows left out marked, and the loss below.

    windows: as metrics.windows.windows, of the runs to draw; metrics: their rows.
    """
    data = drawable(binned(windows, metrics))
    rates, losses = (
        data.filter(pl.col("tgs").is_not_null()),
        data.filter(pl.col("loss").is_not_null()),
    )
    parts: list[Chart] = [_rates(rates)] if rates.height else []
    parts += [_losses(losses)] if losses.height or not parts else []
    chart: alt.VConcatChart = alt.vconcat(*parts, spacing=10).resolve_scale(color="independent")
    return chart.properties(
        title=_title(
            "TGS and loss over steps",
            _bin_note(data),
            "Windows left out are marked. The vertical axis need not start at 0.",
        ),
        description=f"Tokens per second per GPU, and loss, over {data.height} bins of steps.",
    )


def _rates(data: pl.DataFrame) -> Layers:
    """Counted windows as a line with its band, those left out as marks by cause."""
    kinds = sorted(set(data["window"].unique()) - {COUNTED})
    base = alt.Chart(data).encode(_step_axis(), tooltip=_STEP_TIPS)
    counted = base.transform_filter(alt.datum.window == COUNTED).encode(
        _framework(data), alt.Detail("run:N")
    )
    y = alt.Y("tgs:Q", title=TGS, scale=alt.Scale(zero=False))
    band = counted.mark_area(opacity=0.25).encode(alt.Y("low:Q"), alt.Y2("high"))
    line = counted.mark_line(strokeWidth=1.5, point={"size": 14}).encode(y)
    shape = alt.Shape("window:N", title="left out", scale=alt.Scale(domain=kinds, range=_SHAPES))
    left_out = base.transform_filter(alt.datum.window != COUNTED).mark_point(
        size=55, strokeWidth=1.6, color=theme.MUTED
    )
    layers = [band, line, *([left_out.encode(y, shape)] if kinds else [])]
    return alt.layer(*layers).properties(width=WIDTH + 80, height=190)


def _losses(data: pl.DataFrame) -> alt.Chart:
    line: alt.Chart = alt.Chart(data).mark_line(strokeWidth=1.5)
    return line.encode(
        _step_axis(),
        alt.Y("loss:Q", title="loss", scale=alt.Scale(zero=False)),
        _framework(data).legend(None),
        alt.Detail("run:N"),
        tooltip=_STEP_TIPS,
    ).properties(width=WIDTH + 80, height=90)


def binned(windows: pl.DataFrame, metrics: pl.DataFrame, bins: int = MOST_BINS) -> pl.DataFrame:
    """What `steps_over_time` draws: per run, bin of steps and kind of window, sorted.

    tgs [tokens/s/GPU] is a ratio of sums over the bin, low and high its slowest and fastest
    window, loss the mean, `windows` how many; `window` is "counted" or why it was left out.
    """
    frames = [
        _binned_run(windows.filter(run_id=row["run_id"]), row, bins)
        for row in metrics.iter_rows(named=True)
    ]
    found = pl.concat(frames) if frames else pl.DataFrame(schema=_BINNED)
    run = pl.col("run_id").replace_strict(names(metrics), return_dtype=pl.String)
    return found.with_columns(run=run).drop("run_id")


def operators(operator_table: pl.DataFrame) -> Layers:
    """Share of the FLOPs per token of each operator, largest first.

    operator_table: as metrics.utilization.operator_table; an operator of several layer groups is
    one bar.
    """
    data = drawable(
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


def others(rows: pl.DataFrame) -> Layers:
    """FLOPs per token by each other formula as a ratio to ours, on a log scale.

    rows: as metrics.utilization.Analysis.others, one model; a formula without a figure is absent.
    """
    data = drawable(
        rows.filter(pl.col("ratio_to_ours").is_not_null())
        .sort("ratio_to_ours", "name", descending=[True, False])
        .with_columns(one=pl.lit(1.0))
    )
    base = alt.Chart(data).encode(
        alt.Y("name:N", sort=data["name"].to_list(), title=None, axis=alt.Axis(labelLimit=320)),
        tooltip=[
            alt.Tooltip("name:N", title="formula"),
            alt.Tooltip("ratio_to_ours:Q", title="FLOPs / ours", format=".3f"),
            alt.Tooltip("flops_per_token:Q", title="FLOPs per token", format=".4s"),
            alt.Tooltip("why:N", title="what it does otherwise"),
        ],
    )
    scale = alt.Scale(type="log", nice=True)
    ratio = alt.X("ratio_to_ours:Q", scale=scale, title="FLOPs per token / ours (log scale)")
    stems = base.mark_rule(color=theme.ACCENT, opacity=0.5).encode(ratio, alt.X2("one"))
    dots = base.mark_point(filled=True, size=70, color=theme.ACCENT).encode(ratio)
    figures = base.mark_text(align="left", dx=8).encode(
        ratio, alt.Text("ratio_to_ours:Q", format=".2f")
    )
    return alt.layer(stems, dots, figures).properties(
        width=460,
        height=alt.Step(20),
        title=_title(
            "The same work by other formulas",
            "Full training, over our exact count. A logger that uses one is off by so much.",
        ),
        description=f"{data.height} formulas of other tools as ratios to ours.",
    )


def waterfall(bridge: Bridge, framework: str, formula: str | None) -> Layers:
    """From the log's figure to ours, a bar for each factor; what is unexplained stands last.

    formula: name of the framework's own, None where none is known. The axis begins at 0, so that a
    step is as long as its share of the figure; it is logarithmic only where the figure moves by
    more than `FAR`.
    """
    unit, reach = bridge_steps.UNITS[bridge.figure], _Reach.of(bridge)
    data = drawable(_placed(bridge, reach))
    base = alt.Chart(data)
    of = {kind: base.transform_filter(alt.datum.kind == kind) for kind in data["kind"].unique()}
    links = base.transform_filter(alt.datum.kind != bridge_steps.OURS).mark_rule(opacity=0.5)
    links = links.encode(
        alt.X("after:Q", title=unit.text, scale=reach.scale, axis=reach.axis(unit)), alt.Y2("below")
    )
    colour = theme.FRAMEWORK_COLOURS.get(framework, theme.ACCENT)
    layers = [
        links,
        *_unexplained(of[bridge_steps.UNEXPLAINED]),
        *(_named(of[bridge_steps.NAMED]) if bridge.factors else []),
        *_end(of[bridge_steps.LOGGED], "diamond", colour, reach),
        *_end(of[bridge_steps.OURS], "circle", colour, reach),
        *(
            base.mark_text(align="right").encode(alt.Text(f"{column}:N"), x=alt.value(x))
            for column, x in (("times", WATERFALL + 75), ("text", WATERFALL + 160))
        ),
    ]
    axis = alt.Axis(labelLimit=420)
    y = alt.Y(field="what", type="nominal", sort=data["what"].to_list(), title=None, axis=axis)
    shared = {"y": y, "tooltip": _WATERFALL_TIPS}
    return alt.layer(*layers, encoding=shared).properties(
        width=WATERFALL,
        height=alt.Step(ROW),
        title=_title(
            f"From the log's {unit.name} to ours",
            _by_which(bridge, formula),
            f"Each step multiplies the figure{' (log scale)' if reach.far else ''}. Dashed: what "
            f"stays unexplained; grey: what the print's rounding allows for it "
            f"({bridge_steps.bounds(bridge)}).",
        ),
        description=f"From the log's {unit.text} to ours in {len(bridge.factors) + 1} factors.",
    )


def _named(step: alt.Chart) -> list[alt.Chart]:
    """Bars of the named factors, with an edge, which a bar thinner than a pixel needs."""
    return [
        step.mark_bar(height=BAR, color=theme.ACCENT).encode(alt.X("before:Q"), alt.X2("after")),
        step.mark_tick(thickness=2, size=18, color=theme.ACCENT).encode(alt.X("after:Q")),
    ]


def _unexplained(step: alt.Chart) -> list[alt.Chart]:
    """A dashed outline, a square where a bar would be too thin for one, on what is allowed.

    The page's style sheet knows their names.
    """
    dashed: dict[str, Any] = {"filled": False, "strokeDash": [3, 2], "strokeWidth": 1.5}
    dashed["color"] = theme.MUTED
    allowed = step.mark_bar(height=18, opacity=0.25, color=theme.MUTED, clip=True)
    outline = step.mark_bar(height=BAR, **dashed).transform_filter("!datum.thin")
    square = step.mark_point(shape="square", size=BAR**2, **dashed).transform_filter("datum.thin")
    return [
        allowed.encode(alt.X("low:Q"), alt.X2("high")).properties(name="allowed"),
        outline.encode(alt.X("before:Q"), alt.X2("after")).properties(name="unexplained"),
        square.encode(alt.X("after:Q")).properties(name="unexplained_thin"),
    ]


def _end(
    step: alt.Chart, shape: Literal["diamond", "circle"], colour: str, reach: _Reach
) -> list[alt.Chart]:
    """The log's figure as an open diamond, ours as a dot; a stem where the axis begins at 0."""
    stem = step.mark_bar(height=3, opacity=0.45, color=colour)
    stem = stem.encode(alt.X("after:Q"), alt.X2Datum(0))
    mark = step.mark_point(shape=shape, size=100, filled=shape == "circle", opacity=1, color=colour)
    return [*([] if reach.far else [stem]), mark.encode(alt.X("after:Q"))]


WATERFALL: Final = 420
"""Width of the axis; names stand to its left, factors and values to its right."""
BAR: Final = 12
FAR: Final = 10.0
"""A figure that moves by more, say by a wrong unit, would leave a plain axis all to one step."""


@dataclass(frozen=True, slots=True)
class _Reach:
    """From where to where the axis of a waterfall goes, in the unit of its figure."""

    low: float
    high: float
    far: bool

    @classmethod
    def of(cls, bridge: Bridge) -> _Reach:
        values = bridge_steps.steps(bridge)["after"].to_list()
        low, high = min(values), max(values)
        far = high > FAR * low
        return cls(low / 1.3, high * 1.3, far) if far else cls(0.0, high * 1.08, far)

    @property
    def scale(self) -> alt.Scale:
        """Of the horizontal axis."""
        kind: Literal["log", "linear"] = "log" if self.far else "linear"
        return alt.Scale(type=kind, domain=[self.low, self.high], nice=False)

    def axis(self, unit: bridge_steps.Unit) -> alt.Axis:
        """The horizontal axis; of a log scale only the decades are named."""
        if self.far:
            return alt.Axis(format=unit.axis, values=self._decades())
        return alt.Axis(format=unit.axis, tickCount=6)

    def _decades(self) -> list[float]:
        powers = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
        marks = [10.0**power for power in powers]
        return [mark for mark in marks if self.low <= mark <= self.high]

    def thin(self, before: float, after: float) -> bool:
        """Whether a step is too short to see how its bar is drawn."""
        if self.far:
            return abs(log10(after / before)) < THIN * log10(self.high / self.low)
        return abs(after - before) < THIN * self.high


THIN: Final = 0.03
"""Share of the axis."""


def _placed(bridge: Bridge, reach: _Reach) -> pl.DataFrame:
    """Steps with the texts beside them, and the name of the row below."""
    frame = bridge_steps.steps(bridge).drop("bounds")
    values = frame.select("before", "after").iter_rows()
    thin = [before is not None and reach.thin(before, after) for before, after in values]
    factors = [f"x {bridge_steps.times(f)}" if f is not None else "" for f in frame["factor"]]
    texts = [bridge_steps.value_text(bridge.figure, v, finely=True) for v in frame["after"]]
    unexplained = pl.col("kind") == bridge_steps.UNEXPLAINED
    nth = pl.int_range(1, pl.len() + 1).over("what")  # two of one name would share a row
    named = pl.when(nth > 1).then(pl.format("{} ({})", "what", nth)).otherwise("what")
    return frame.with_columns(what=named).with_columns(
        high=pl.when(unexplained).then(pl.col("high").fill_null(reach.high)),
        below=pl.col("what").shift(-1),
        thin=pl.Series(thin, dtype=pl.Boolean),
        times=pl.Series(factors, dtype=pl.String),
        text=pl.Series(texts, dtype=pl.String),
    )


def _by_which(bridge: Bridge, formula: str | None) -> str:
    """By whose formula each end is, and under which convention."""
    if bridge.figure == "logged_tgs":
        return "Both count tokens, no FLOPs."
    theirs = f"own formula, {formula}" if formula else "own formula, which could not be checked"
    return f"The log's is by its {theirs}; ours by the one formula (exact attention)."


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
_WATERFALL_TIPS: Final = [
    alt.Tooltip("what:N", title="step"),
    alt.Tooltip("times:N", title="factor"),
    alt.Tooltip("text:N", title="then"),
]
_SHAPES: Final = ["cross", "triangle-up", "square", "diamond", "circle"]


def _cards(runs: pl.DataFrame, metrics: pl.DataFrame) -> pl.DataFrame:
    """`runs` with the columns of the figure card, in their order.

    `panel` names the group; groups that read alike and are not are numbered.
    """
    tag = pl.when("synthetic").then(pl.lit(" (synthetic)")).otherwise(pl.lit(""))
    run = pl.col("run_id").replace_strict(names(metrics), return_dtype=pl.String) + tag
    more = metrics.select(
        "run_id",
        "token_basis",
        "time_basis",
        interval=_interval(),
        peak_tflops=pl.col("peak_flops") / 1e12,
        run=run,
    )
    own = runs.drop("token_basis", "time_basis", strict=False)
    if "rank" in own.columns:
        own = _panels(own)
    return own.join(more, on="run_id", how="left", validate="1:1", maintain_order="left")


def _panels(ranked: pl.DataFrame) -> pl.DataFrame:
    number = (pl.col("rank") == 1).cum_sum()
    nth = pl.col("number") - pl.col("number").min().over("group") + 1
    named = pl.when(nth > 1).then(pl.format("{} ({})", "group", nth)).otherwise("group")
    panel = pl.when(pl.col("rank").is_null()).then(pl.lit(NOT_RANKED)).otherwise(named)
    return ranked.with_columns(number=number).with_columns(panel=panel).drop("number")


def _interval() -> pl.Expr:
    """The 95 % interval of TGS as text; null where there is none."""

    def text(row: Any) -> str | None:  # noqa: ANN401 - a struct as Polars hands it over
        low, high = row["tgs_low"], row["tgs_high"]
        return None if low is None or high is None else f"{low:,.0f}\N{EN DASH}{high:,.0f}"

    return pl.struct("tgs_low", "tgs_high").map_elements(text, return_dtype=pl.String)


def drawable(frame: pl.DataFrame) -> pl.DataFrame:
    """No NaN, no infinity, no more digits than can be seen."""
    floats = cs.float()
    return frame.with_columns(
        pl.when(floats.is_finite()).then(floats.round_sig_figs(DIGITS)).name.keep()
    )


def _stacked(wide: pl.DataFrame, kinds: dict[str, str]) -> pl.DataFrame:
    """A row per run and figure: `kind` names it, `value` is it, `text` writes it."""
    both = pl.concat(
        wide.with_columns(value=pl.col(column), kind=pl.lit(kind)) for column, kind in kinds.items()
    ).filter(pl.col("value").is_not_null())
    percent = any(kind in (EXACT, FULL) for kind in kinds.values()) or "mfu" in kinds
    written = [f"{v:.1%}" if percent else f"{v:,.4g}" for v in both["value"]]
    return both.with_columns(text=pl.Series(written, dtype=pl.String))


def _dumbbell(data: pl.DataFrame, ours: str, x: alt.X) -> Layers:
    """A dot and an open diamond per run, joined by a line; the dot is the kind `ours`."""
    runs = data["run"].unique(maintain_order=True).to_list()
    tips = [alt.Tooltip("kind:N", title="figure"), alt.Tooltip("text:N", title="value"), *CARD]
    colour = _framework(data)
    y = alt.Y("run:N", sort=runs, title=None)
    base = alt.Chart(data).encode(x, y, colour, tooltip=tips)
    joined = base.mark_line(strokeWidth=3, opacity=0.45).encode(alt.Detail("run:N"))
    diamonds = base.mark_point(shape="diamond", size=100, strokeWidth=2, opacity=1)
    dots = base.mark_point(shape="circle", size=100, filled=True, opacity=1)
    return alt.layer(
        joined,
        diamonds.transform_filter(alt.datum.kind != ours),
        dots.transform_filter(alt.datum.kind == ours),
    )


def _by_panel(layers: Layers, data: pl.DataFrame) -> alt.FacetChart:
    """The layers once for each panel, each with scales of its own."""
    panels = data["panel"].unique(maintain_order=True).to_list()
    sized = cast("alt.LayerChart", layers).properties(width=WIDTH, height=alt.Step(ROW))
    faceted = sized.facet(row=alt.Row("panel:N", sort=panels, title=None), spacing=20)
    chart: alt.FacetChart = faceted.resolve_scale(x="independent", y="independent")
    return chart


def _length(name: str, title: str, axis_format: str) -> alt.X:
    """A horizontal axis from 0."""
    axis = alt.Axis(format=axis_format, tickCount=8)
    return alt.X(f"{name}:Q", title=title, axis=axis, scale=alt.Scale(zero=True))


def _key(dot: str, diamond: str) -> str:
    return f"\N{BLACK CIRCLE} {dot}    \N{WHITE DIAMOND} {diamond}"


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
    steady = clean(frame, evidence)["step"].implode()
    spoiling = pl.col("spoilers").list.set_intersection(list(SPOILERS[evidence])).list.first()
    tokens = pl.coalesce("tokens_per_gpu", 1.0) if evidence == "rate" else pl.col("tokens_per_gpu")
    return frame.with_columns(
        tokens=pl.col(f"{evidence}_span") * tokens,
        seconds=pl.col(f"{evidence}_time"),
        window=pl.when(pl.col("step").is_in(steady))
        .then(pl.lit(COUNTED))
        .otherwise(
            pl.when("first")
            .then(pl.lit(START_UP))
            .when("warming")
            .then(pl.lit(WARM_UP))
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


def _step_axis() -> alt.X:
    axis = alt.Axis(format=",d", tickCount=10)
    return alt.X("step:Q", title="step", axis=axis, scale=alt.Scale(nice=False, padding=8))


def _bin_note(data: pl.DataFrame) -> str:
    most = data["windows"].max()
    if not isinstance(most, int) or most <= 1:
        return "One point per logged window."
    return f"Up to {most:,} windows a point: line all of them, band from slowest to fastest."


def _title(text: str, *subtitle: str) -> alt.TitleParams:
    return alt.TitleParams(text, subtitle=list(subtitle))
