"""Charts draw what is there: data apart from specs, one spec per kind, conventions at a choice."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from functools import cache
from math import inf, nan, prod
from random import Random
from time import perf_counter
from types import SimpleNamespace

import hypothesis
import polars as pl
import pytest
import vl_convert
from hypothesis import strategies as st

from fairmfu.metrics.compare.comparability import rank_runs
from fairmfu.metrics.pipeline.analysis import analyse
from fairmfu.metrics.runs import step_bins
from fairmfu.metrics.throughput.speed_levels import OTHER_SPEED
from fairmfu.reports.charts import (
    charts,
    comparison_charts,
    overlay,
    run_charts,
    theme,
)
from fairmfu.reports.charts.figure import DIGITS, chart_number, drawable
from fairmfu.reports.text.runs_table import unique_names
from fairmfu.reports.text.verdict import join_comparison, ranked_groups
from tests.reports.page.test_html_report import (
    BRIDGES,
    EQUAL,
    FACTS,
    a_bridge,
    a_run,
    a_store,
    changed_speed,
)
from tests.support.effort import THOROUGH, costly

GIB = 2**30


def told(*runs):
    """All that charts are made of: tables, windows, metrics, rows and bridges."""
    tables = a_store(*runs)
    found = analyse(tables)
    bridges = {run_id: found.bridges(run_id) for run_id in found.metrics["run_id"]}
    return SimpleNamespace(
        tables=tables,
        analysis=found,
        windows=found.windows,
        metrics=found.metrics,
        rows=join_comparison(found.metrics, rank_runs(found.metrics), bridges),
    )


def full_run(framework="xtuner", tgs=5_000.0, **more):
    """A run that prints memory, several kinds of events and a loss."""
    run = a_run(framework, tgs, **more)
    for step in run["steps"]:
        step["peak_memory_bytes"] = (40 + step["step"] % 3) * GIB
    (event,) = run["events"]
    run["events"] = [
        event,
        event | {"line": 30, "kind": "evaluation", "text": "evaluating"},
        event | {"line": 5_000_000, "kind": "end", "text": "the end"},
        event | {"line": 12, "kind": "engine_step", "text": "no event of the pace"},
    ]
    return run


@cache
def three():
    return told(*(full_run(name, tgs) for name, tgs in EQUAL.items()))


def of(given, row):
    """Series and signs of one run."""
    series = charts.bin_windows(given.windows, given.metrics).filter(run_id=row["run_id"])
    return series, charts.event_marks(given.tables["events"], given.windows).filter(
        run_id=row["run_id"]
    )


RANKS = [{"rank": str(n), "time": 2.0 + 0.01 * (n % 5), "share": 0.1} for n in range(10)]


PHASES = [
    {"phase": phase, "seconds": seconds, "share": seconds, "share_of": "step"}
    | {"windows": 9, "source": "timer"}
    for phase, seconds in (("forward", 0.3), ("backward", 0.6), ("rest", 0.1))
]


def varied(rows, count=12):
    """Rows of runs that differ in GPUs, length, precision and recomputation."""
    kinds = ((8, 2048, "bf16", "none"), (16, 8192, "fp8", "full"), (64, 4096, "bf16", "full"))
    return [
        rows[n % len(rows)]
        | dict(zip(("gpus", "seq_len", "precision", "recompute"), kinds[n % 3], strict=True))
        | {"run_id": f"v{n}", "label": f"v{n}", "tgs": rows[0]["tgs"] * (1 - 0.01 * (n % 50))}
        for n in range(count)
    ]


def overlaid(given):
    """The figure of chosen runs, with rows as the page's script gives them."""
    courses = [charts.course(*of(given, row), row) for row in given.rows]
    points = [
        {"run_id": row["run_id"], "run": row["label"], "place": str(place), "steps": "1"}
        | {"x": each["at"], "part": 0, "opacity": 1}
        | {name: each[name] for name in overlay.PANELS}
        for place, (row, course) in enumerate(zip(given.rows, courses, strict=True))
        for each in course.datasets["bins"]
    ]
    ends = {"reach": [min(p["x"] for p in points), max(p["x"] for p in points)]}
    empty = charts.overlay()
    return replace(empty, datasets={**empty.datasets, "points": points}, params=ends)


def every(given):
    """A figure of every kind that a store may give."""
    rows = given.rows
    row = rows[0] | {"slowest_rank": "4", "rank_spread": 0.02, "rank_steps": 30}
    series, signs = of(given, row)
    silent = {"tgs": None, "low": None, "high": None}
    bare = [each | silent for each in series.to_dicts()]
    others = next(iter(given.analysis.other_tools().values()))
    found = {
        "comparison": charts.comparison(ranked_groups(rows)[0]),
        "comparison in MFU": charts.comparison([r | {"logged_mfu": 0.4} for r in rows]),
        "mfu_by_run": charts.mfu_by_run(charts.chart_cards(rows)),
        **{
            name: getattr(charts, name)(charts.chart_cards(varied(rows)))
            for name in ("scaling", "mfu_by_length", "mfu_by_precision", "mfu_by_recompute")
        },
        "others": charts.other_tools_chart(others, "a model"),
        "course": charts.course(series, signs, row),
        "course without MFU": charts.course(
            series, signs, row | {"mfu": None, "mfu_full_attention": None, "mfu_bf16": None}
        ),
        "course without rates": charts.course(bare, [], row),
        "step_times": charts.step_times(charts.step_time_histogram(given.windows, row), row),
        "ranks": charts.ranks(RANKS, row),
        "time_lost": charts.time_lost(row),
        "phases": charts.phases(row | {"phases": PHASES}),
        "operators": charts.operators(given.analysis.operators(row["run_id"])),
        "overlay": overlaid(given),
        **{f"waterfall, {n}": charts.waterfall(b, "xtuner", None) for n, b in BRIDGES.items()},
    }
    assert all(found.values())
    return found


EVERY = [
    "comparison",
    "comparison in MFU",
    "mfu_by_run",
    "scaling",
    "mfu_by_length",
    "mfu_by_precision",
    "mfu_by_recompute",
    "others",
    "course",
    "course without MFU",
    "course without rates",
    "step_times",
    "ranks",
    "time_lost",
    "phases",
    "operators",
    "overlay",
    *(f"waterfall, {name}" for name in BRIDGES),
]


@cache
def all_of_three():
    found = every(three())
    assert list(found) == EVERY
    return found


@pytest.fixture(params=EVERY)
def figure(request):
    return all_of_three()[request.param]


DRAWN = {}
"""Pictures by spec."""


def svg(figure):
    spec = json.dumps(figure.whole())
    if spec not in DRAWN:
        DRAWN[spec] = vl_convert.vegalite_to_svg(spec, show_warnings=True)
    return DRAWN[spec]


def texts(figure):
    return " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg(figure)))


def marks(figure):
    """All that is drawn but for words."""
    return re.sub(r"<text.*?</text>|aria-label=\"[^\"]*\"", "", svg(figure))


# --- a figure -------------------------------------------------------------------------------


def encoded(node, columns, datasets):
    """Pairs of a field that a part of a spec encodes or computes by, and the columns there."""
    if "data" in node:
        assert set(node["data"]) == {"name"}
        columns = frozenset().union(*datasets[node["data"]["name"]])
    columns |= {step["as"] for step in node.get("transform", []) if "as" in step}
    for channel in node.get("encoding", {}).values():
        for one in channel if isinstance(channel, list) else [channel]:
            if one and "field" in one:
                yield one["field"], columns
    mine = {name: part for name, part in node.items() if name not in PARTS}
    for text in expressions(mine, ("calculate", "filter", "expr", "test")):
        yield from ((field, columns) for field in re.findall(r"datum\.(\w+)", text))
    for name in PARTS:
        for inner in node.get(name, []):
            yield from encoded(inner, columns, datasets)


PARTS = ("layer", "hconcat", "vconcat")


def test_every_encoded_field_is_in_the_data(figure):
    pairs = list(encoded(figure.spec, frozenset(), figure.datasets))
    assert len(pairs) > 5
    assert [field for field, columns in pairs if field not in columns] == []


def test_a_spec_holds_no_data_and_no_theme(figure):
    assert not {"title", "config", "$schema", "datasets"} & set(figure.spec)
    assert '"values": [{' not in json.dumps(figure.spec)
    assert figure.description
    assert figure.title
    assert figure.notes


EVALUATED = ("calculate", "filter", "expr", "test", "labelExpr")


def expressions(node, names=EVALUATED):
    """What Vega evaluates in a spec, without quoted words."""
    inner = node if isinstance(node, list) else []
    if isinstance(node, dict):
        yield from (re.sub(r"'[^']*'", "", node[n]) for n in names if isinstance(node.get(n), str))
        inner = node.values()
    for each in inner:
        yield from expressions(each, names)


def test_params_exist(figure):
    """Those that a figure sets are the spec's; what an expression reads is one, and is read."""
    names = {param["name"] for param in figure.spec["params"]}
    assert set(figure.params) <= names
    text = " ".join(expressions(figure.spec))
    read = set(re.findall(r"(?<![\w.])[a-z]\w*(?!\w|\()", text))
    known = {"datum", "null", "isValid", "format", "indexof", "merge", "width", "height"}
    assert read - known == names - {"order"} | (read & {"order"})


def test_it_compiles_without_a_warning(figure, capfd):
    DRAWN.clear()  # a picture that is there warns of nothing
    found = svg(figure)
    assert "NaN" not in found
    assert "undefined" not in found
    assert "null" not in texts(figure)
    assert "WARN" not in "".join(capfd.readouterr()).upper()


VALIDATED = ("comparison", "waterfall, thousand times", "course", "operators", "ranks")


@pytest.mark.parametrize("name", VALIDATED if THOROUGH else VALIDATED[:2])
def test_a_notebook_has_it_as_altair_does(name):
    """Altair validates what it gives out."""
    figure = all_of_three()[name]
    assert figure.chart().to_dict() == figure.whole()


def test_whole_carries_title_theme_and_params(figure):
    whole = figure.whole()
    assert whole["config"] == theme.chart_theme()["config"]
    assert whole["title"]["text"] == figure.title
    said = " ".join(whole["title"]["subtitle"])
    assert said == " ".join(figure.notes)
    values = {param["name"]: param["value"] for param in whole["params"]}
    assert figure.params.items() <= values.items()
    json.dumps(whole, allow_nan=False)


def test_two_figures_of_one_kind_have_one_spec():
    first, second = all_of_three(), every(told(full_run("deepspeed", 7_000.0, steps=90)))
    kinds = {}
    for figure in [*first.values(), *second.values()]:
        assert kinds.setdefault(figure.kind, figure.spec) == figure.spec
    assert len(kinds) > 14


def test_a_whole_figure_leaves_the_shared_spec_alone():
    figure = all_of_three()["comparison"]
    before = json.dumps(figure.spec)
    whole = figure.whole()
    whole["params"][0]["value"] = "changed"
    whole["hconcat"].clear()
    assert json.dumps(figure.spec) == before


def test_another_choice_is_another_figure():
    figure = all_of_three()["comparison"]
    other = figure.with_(attention="full", peak="bf16")
    assert (other.params["attention"], other.params["peak"]) == ("full", "bf16")
    assert "attention" not in figure.params
    assert all_of_three()["others"].with_(attention="full").params == {}
    with pytest.raises(ValueError, match="comparison-tgs-mfu-tflops has no param attentoin"):
        figure.with_(attentoin="full")


def test_the_legend_names_the_frameworks_that_are_drawn():
    words = texts(all_of_three()["mfu_by_run"])
    drawn = {row["framework"] for row in three().rows}
    assert all((name in words) == (name in drawn) for name in theme.FRAMEWORK_COLOURS)
    pair = charts.comparison(ranked_groups(three().rows)[0][:2])
    legends = re.findall(r'"values": \[([^\]]*)\], "title": null', json.dumps(pair.whole()))
    assert legends
    assert {legend.count(",") for legend in legends} == {1}


def test_an_unknown_framework_has_a_colour_of_no_other():
    rows = [row | {"framework": "our-fork"} for row in three().rows]
    found = svg(charts.mfu_by_run(charts.chart_cards(rows)))
    assert theme.ACCENT in found
    assert not any(colour in found for colour in theme.FRAMEWORK_COLOURS.values())


# --- conventions and choices ------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["comparison", "course", "operators", "mfu_by_length", "mfu_by_precision", "mfu_by_recompute"],
)
def test_the_attention_convention_is_at_a_choice(name):
    exact = all_of_three()[name]
    full = exact.with_(attention="full")
    assert "exact attention" in texts(exact)
    assert "full attention" in texts(full)
    assert "exact attention" not in texts(full)
    assert marks(exact) != marks(full)


def test_the_peak_is_at_a_choice():
    rows = [row | {"precision": "fp8", "mfu_bf16": 0.61} for row in ranked_groups(three().rows)[0]]
    figure = charts.comparison(rows)
    assert "61.0%" not in texts(figure)
    assert "61.0%" in texts(figure.with_(peak="bf16"))
    assert "BF16 peak" in texts(figure.with_(peak="bf16"))


def test_a_filter_hides_what_it_leaves_out():
    figure = all_of_three()["mfu_by_run"]
    assert "xtuner-8b" in texts(figure.with_(model="llama-3-8b"))
    assert "xtuner-8b" not in texts(figure.with_(model="another"))


def test_a_selected_run_stands_out():
    figure = all_of_three()["mfu_by_run"]
    assert 'opacity="0.18"' not in svg(figure)
    assert 'opacity="0.18"' in svg(figure.with_(selected="id-xtuner"))


# --- cards --------------------------------------------------------------------------------------


def test_a_card_has_all_four_conventions():
    (row, *_) = three().rows
    (card,) = charts.run_cards([row])
    assert card["mfu_exact_own"] == card["mfu_exact_bf16"] == row["mfu"]
    assert card["mfu_full_own"] == row["mfu_full_attention"]
    assert card["peak_bf16"] == pytest.approx(card["peak_own"])
    assert card["tflops_full"] == row["tgs"] * row["flops_per_token_full_attention"] / 1e12
    fp8 = row | {"precision": "fp8", "mfu_bf16": 2 * row["mfu"], "mfu_bf16_full_attention": 0.9}
    (card,) = charts.run_cards([fp8])
    assert (card["mfu_exact_bf16"], card["mfu_full_bf16"]) == (2 * row["mfu"], 0.9)
    assert card["peak_bf16"] == pytest.approx(card["peak_own"] / 2)
    unknown = fp8 | {"mfu_bf16": None, "mfu_bf16_full_attention": None}
    assert charts.run_cards([unknown])[0]["mfu_exact_bf16"] is None


def test_a_card_of_a_run_without_figures_is_null():
    run = a_run("xtuner", 5_000.0, steps=1)
    (row,) = told(run | {"facts": []}).rows
    (card,) = charts.run_cards([row])
    assert card["tgs"] is card["mfu_exact_own"] is card["tflops_full"] is card["basis"] is None
    json.dumps(charts.comparison([row]).whole(), allow_nan=False)


def test_the_tooltip_is_the_figure_card():
    spec = json.dumps(all_of_three()["comparison"].spec)
    for said in ("95 % interval", "formula", "peak source", "basis", "statistic", "convention"):
        assert f"'{said}': " in spec


# --- what is aggregated -------------------------------------------------------------------------


def test_not_a_number_never_reaches_a_spec():
    given = told(*(full_run(name, tgs) for name, tgs in EQUAL.items()))
    odd = pl.Series([nan, inf, -inf])
    for name in ("loss", "elapsed_time", "peak_memory_bytes"):
        values = pl.concat([odd, given.windows[name].cast(pl.Float64)[3:]]).alias(name)
        given.windows = given.windows.with_columns(values)
    given.rows = [row | {"mfu": value} for row, value in zip(given.rows, odd, strict=True)]
    given.rows = [given.rows[0] | {"tgs_high": nan, "mfu": 0.3}, *given.rows[1:]]
    series, signs = of(given, given.rows[0])
    for figure in (
        charts.comparison(given.rows),
        charts.mfu_by_run(charts.chart_cards(given.rows)),
        charts.scaling(charts.chart_cards(varied(given.rows))),
        charts.course(series, signs, given.rows[0]),
        charts.step_times(charts.step_time_histogram(given.windows, given.rows[0]), given.rows[0]),
    ):
        json.dumps(figure.whole(), allow_nan=False)


def test_a_chart_rounds_no_figure_twice():
    """A table has 50,721 where the value is 50,721.47, and so has the chart beside it."""
    chance = Random(0)  # noqa: S311 - numbers, no secrets
    values = [50_721.466_662_6, *(chance.uniform(1e-4, 1e6) for _ in range(20_000))]
    drawn = drawable(pl.DataFrame({"value": values}))["value"]
    assert chart_number(values[0]) == drawn[0] == 50_721.466_662_6
    for given, kept in zip(values * 2, [*drawn, *map(chart_number, values)], strict=True):
        assert all(f"{given:.{n}g}" == f"{kept:.{n}g}" for n in range(1, DIGITS))


def test_a_long_run_is_drawn_in_few_rows():
    given = told(full_run(steps=30_000))
    (row,) = given.rows
    series, signs = of(given, row)
    assert series.height < 400
    assert series["windows"].sum() == 30_000
    assert series.filter(window="checkpoint")["windows"].to_list() == [1]
    assert series.filter(window="start-up")["step"].to_list() == [1]
    inside = series.filter(window="counted")
    assert (inside["low"] <= inside["tgs"]).all()
    assert (inside["tgs"] <= inside["high"]).all()
    assert (series["memory_bytes"] <= series["memory_bytes_max"]).all()
    course = charts.course(series, signs, row)
    hist = charts.step_times(charts.step_time_histogram(given.windows, row), row)
    assert sum(map(len, course.datasets.values())) + len(hist.datasets["bins"]) < 2_000
    assert "up to 100 windows" in course.notes[0]


def test_a_bin_is_a_ratio_of_sums():
    given = told(a_run("xtuner", 5_000.0))
    whole = charts.bin_windows(given.windows, given.metrics, bins=1).filter(window="counted")
    assert whole["tgs"].to_list() == pytest.approx([given.metrics["tgs"][0]])
    assert whole["step_s"].to_list() == pytest.approx([given.metrics["seconds_per_step"][0]])


@pytest.mark.parametrize("name", EQUAL)
def test_a_line_has_its_place_in_tokens_and_time(name):
    given = told(full_run(name, EQUAL[name]))
    (row,) = given.rows
    per_step = given.windows["tokens_per_gpu"].mean() * row["gpus"]
    timed = given.windows.with_columns(
        logged_at=pl.datetime(2026, 1, 1) + pl.duration(seconds=3 * pl.col("step"))
    )
    bins = charts.bin_windows(timed, given.metrics, bins=1_000).sort("step")
    assert bins["tokens"].to_list() == pytest.approx([step * per_step for step in bins["step"]])
    assert bins["time_s"].to_list() == [3 * (step - bins["step"][0]) for step in bins["step"]]
    for odd in (None, pl.datetime(2027, 1, 1)):
        clock = timed.with_columns(
            logged_at=pl.when(pl.col("step") != 9).then("logged_at").otherwise(odd),
            since_start_s=None,
        )
        assert charts.bin_windows(clock, given.metrics)["time_s"].is_null().all()


@hypothesis.given(share=st.floats(0.1, 0.8), from_step=st.integers(60, 150))
@costly
def test_each_speed_of_a_run_is_drawn_at_its_height(share, from_step):
    """Curves ended where the speed changed, or had the rest at the edge of their axis."""
    slowing = told(changed_speed(full_run(steps=200), share, from_step))
    (row,) = slowing.rows
    series, signs = of(slowing, row)
    other = series.filter(window=OTHER_SPEED)
    (own,) = (level for level in row["levels"] if level["ranked"])
    (level,) = (level for level in row["levels"] if not level["ranked"])
    expected = share if level["from_step"] > own["from_step"] else 1 / share
    assert other["tgs"].median() / row["tgs"] == pytest.approx(expected, rel=0.02)
    assert other["step_s"].median() * expected == pytest.approx(row["seconds_per_step"], rel=0.02)
    low, high = charts.course(series, signs, row).params["reach"]
    assert all(low < each["tgs"] < high for each in row["levels"])
    assert other["tgs"].is_between(low, high).mean() >= 0.95


def test_a_rate_of_unknown_tokens_times_no_step():
    """Such a rate counts a token a step, so its time would be the inverse of the rate."""
    given = told(full_run())
    uncounted = given.windows.with_columns(tokens_per_gpu=pl.lit(None, pl.Float64))
    metrics = given.metrics.with_columns(seconds_per_step=pl.lit(None, pl.Float64))
    assert charts.bin_windows(uncounted, metrics)["step_s"].is_null().all()


def contrast(*colours):
    """Contrast of two colours by WCAG 2."""
    lights = []
    for colour in colours:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        lights.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] + 0.05)
    return max(lights) / min(lights)


def test_colours_of_chosen_runs_are_seen_in_both_themes():
    assert len(set(overlay.OVERLAY_COLOURS)) == overlay.MAX_OVERLAID_RUNS
    for colour in overlay.OVERLAY_COLOURS:
        for page in ("#ffffff", "#15181d"):
            assert contrast(colour, page) >= 3


def test_bins_of_several_runs_are_their_own():
    given = three()
    for row in given.metrics.iter_rows(named=True):
        mine = given.windows.filter(run_id=row["run_id"])
        alone = charts.bin_windows(mine, given.metrics.filter(run_id=row["run_id"]), 10)
        together = charts.bin_windows(given.windows, given.metrics, 10).filter(run_id=row["run_id"])
        assert alone.equals(together)
        assert 10 <= alone.height <= 20


def test_an_event_stands_at_its_step_or_the_next_line():
    given = told(full_run())
    signs = charts.event_marks(given.tables["events"], given.windows)
    found = {row["kind"]: row["step"] for row in signs.iter_rows(named=True)}
    assert found == {"checkpoint": 20, "evaluation": 28, "end": 40}


def test_many_events_of_a_kind_become_few_that_say_so():
    run = full_run(steps=1_000)
    event = run["events"][0]
    run["events"] = [event | {"line": n, "kind": "gc"} for n in range(3, 1_000)]
    given = told(run)
    (row,) = given.rows
    series, signs = of(given, row)
    assert signs.height <= step_bins.MAX_MARK_BINS
    assert signs["events"].sum() == 997
    course = charts.course(series, signs, row)
    assert any("several events" in note for note in course.notes)
    assert not any(sign["upright"] for sign in course.datasets["signs"])


def test_every_event_that_is_shown_has_a_sign_of_its_own():
    assert set(step_bins.SHOWN_EVENT_KINDS) <= set(run_charts.SIGNS)
    words = [run_charts._word(kind) for kind in run_charts.SIGNS]
    assert len(set(words)) == len(words)


def test_events_are_told_apart_by_shape_and_word():
    words = texts(all_of_three()["course"])
    assert all(word in words for word in ("start-up", "checkpoint", "evaluation", "end"))
    assert "engine" not in words
    signs = all_of_three()["course"].datasets["signs"]
    shapes = {run_charts.SIGNS[sign["kind"]] for sign in signs}
    assert len(shapes) == len({sign["word"] for sign in signs})


def test_the_mfu_axis_is_the_throughputs_times_one_number():
    (row, *_) = three().rows
    course = charts.course(*of(three(), row), row)
    spec = json.dumps(course.spec)
    per = course.params["per"]
    assert per["exact_own"] * row["tgs"] == pytest.approx(row["mfu"], rel=1e-5)
    assert per["full_own"] * row["tgs"] == pytest.approx(row["mfu_full_attention"], rel=1e-5)
    ends = "[reach[0] * per[attention + '_' + peak], reach[1] * per[attention + '_' + peak]]"
    assert ends in spec
    assert '"domain": {"expr": "reach"}, "nice": false' in spec


@pytest.mark.parametrize(
    "varying", [{"attention_ratio": 0.3}, {"sequence_length": 1_197.8}, {"logged_lengths": [1, 2]}]
)
def test_where_lengths_vary_there_is_no_mfu_axis(varying):
    (row, *_) = three().rows
    course = charts.course(*of(three(), row), row | varying)
    assert "mfu" not in course.kind
    assert any("MFU is not drawn" in note for note in course.notes)


def test_a_histogram_counts_every_window():
    given = told(full_run(steps=500))
    (row,) = given.rows
    hist = charts.step_time_histogram(given.windows, row)
    assert hist["windows"].sum() == 500
    assert hist.filter("steady")["windows"].sum() == row["windows"]
    assert hist.filter("beyond")["windows"].sum() == 2  # steps 1 and 20 take three times as long
    bins = charts.step_times(hist, row).datasets["bins"]
    assert sum(each["top"] - each["foot"] for each in bins) == 500
    assert "all longer windows, up to 9.9" in charts.step_times(hist, row).notes[1]


def test_a_histogram_of_unknown_tokens_by_a_rate_is_empty():
    given = told(a_run("xtuner", 5_000.0))
    row = given.rows[0] | {"time_basis": "rate"}
    unknown = given.windows.with_columns(tokens_per_gpu=pl.lit(None, pl.Float64))
    assert not charts.step_time_histogram(unknown, row).height
    assert charts.step_times(charts.step_time_histogram(unknown, row), row) is None


def test_many_runs_are_drawn_as_few_dots():
    rows = varied(three().rows, 2_000)
    for name in ("scaling", "mfu_by_length", "mfu_by_precision", "mfu_by_recompute"):
        figure = getattr(charts, name)(charts.chart_cards(rows))
        assert len(figure.datasets["runs"]) <= comparison_charts.MAX_DOTS
        assert sum(dot["runs"] for dot in figure.datasets["runs"]) == 2_000
        assert "2,000 runs: one dot is the median" in figure.notes[-1]
    comparison = charts.comparison(rows)
    assert len(comparison.datasets["runs"]) == comparison_charts.MAX_CHART_RUNS
    assert "The 20 best of 2,000 runs are drawn, 1,980 are not." in comparison.notes
    assert (
        len(charts.mfu_by_run(charts.chart_cards(rows)).datasets["runs"])
        == comparison_charts.MAX_CHART_RUNS
    )


def test_a_caption_speaks_of_lines_where_there_are_some_and_of_each_logarithmic_axis():
    """A line joins runs that differ in GPUs alone."""
    apart = [row | {"model": f"m{n}"} for n, row in enumerate(varied(three().rows))]
    alike = [row | dict.fromkeys(("model", "framework"), "one") for row in apart]
    alike = [row | {"seq_len": 4096, "precision": "bf16", "recompute": "none"} for row in alike]
    (note,) = charts.scaling(charts.chart_cards(apart)).notes
    assert note.startswith("No lines: no two of these runs differ only in the number of GPUs.")
    (note,) = charts.scaling(charts.chart_cards(alike)).notes
    assert note.startswith("Each line is one framework, model, sequence length")
    for figure in (
        charts.scaling(charts.chart_cards(apart)),
        charts.mfu_by_length(charts.chart_cards(apart)),
    ):
        assert "logarithmic" in figure.notes[0]


@pytest.mark.parametrize("name", ["scaling", "mfu_by_length", "mfu_by_precision"])
def test_one_value_is_no_comparison(name):
    assert getattr(charts, name)(charts.chart_cards(three().rows)) is None


def test_nothing_to_draw_is_no_chart():
    (row,) = told(a_run("xtuner", 5_000.0, steps=1)).rows
    assert charts.course([], [], row) is None
    assert charts.ranks(RANKS[:1], row) is None
    assert charts.time_lost(row | {"time_lost": []}) is None
    assert charts.operators([]) is None
    assert charts.other_tools_chart([]) is None
    assert (
        charts.mfu_by_run(charts.chart_cards([row | {"mfu": None, "mfu_full_attention": None}]))
        is None
    )


def test_specs_are_made_once():
    """Altair is slow: of many figures of a kind one alone costs what it does."""
    given = three()
    (row, *_) = given.rows
    series, signs = of(given, row)
    group = ranked_groups(given.rows)[0]
    for cached, draw in (
        (run_charts._course, lambda: charts.course(series, signs, row)),
        (comparison_charts._comparison, lambda: charts.comparison(group)),
    ):
        cached.cache_clear()
        start = perf_counter()
        first = draw()
        built = perf_counter() - start
        start = perf_counter()
        assert all(draw().spec is first.spec for _ in range(50))
        assert (perf_counter() - start) / 50 < built / 5


# --- panels and notes -----------------------------------------------------------------------------


def test_logs_that_print_no_mfu_are_compared_in_tflops():
    assert "TFLOP/s per GPU" in texts(all_of_three()["comparison"])
    assert "TFLOP/s per GPU" not in texts(all_of_three()["comparison in MFU"])
    assert "40.0%" in texts(all_of_three()["comparison in MFU"])


def test_a_comparison_shows_both_figures_of_each_run():
    group = ranked_groups(three().rows)[0]
    words = texts(charts.comparison(group))
    for row in group:
        assert f"{row['logged_tflops']:.1f}" in words
        assert f"{row['tgs']:,.0f}" in words
        assert row["label"] in words


def test_axes_hold_all_that_they_show():
    figure = charts.comparison(ranked_groups(three().rows)[0])
    low, high = figure.params["reach_tgs"]
    for card in figure.datasets["runs"]:
        assert low <= card["tgs_low"] <= card["tgs_high"] <= high
        low_mfu, high_mfu = figure.params["reach_mfu"]["full_own"]
        assert low_mfu <= card["mfu_full_own"] <= high_mfu
    assert high - low >= comparison_charts.MIN_AXIS_SPAN * 5_838 * 0.99


def test_runs_of_one_name_are_two_rows():
    runs = [a_run("xtuner", tgs, name="same", run_id=i) for i, tgs in (("a1", 5e3), ("b2", 6e3))]
    given = told(*runs)
    assert unique_names(given.metrics) == {"a1": "same [a1]", "b2": "same [b2]"}
    shown = [card["run"] for card in charts.comparison(given.rows).datasets["runs"]]
    assert shown == ["same [b2] (synthetic)", "same [a1] (synthetic)"]


def test_the_slowest_rank_is_named():
    words = texts(all_of_three()["ranks"])
    assert "rank 4, slowest in 10.0 % of the steps" in words
    (row, *_) = three().rows
    alike = charts.ranks(RANKS, row | {"slowest_rank": None, "rank_spread": 0.0, "rank_steps": 9})
    assert "No rank stands out as the slowest." in alike.notes


def test_lost_time_is_said_with_what_was_not_lost():
    (row, *_) = three().rows
    figure = charts.time_lost(row)
    assert "is all steps at their usual speed" in figure.notes[0]
    shares = [each["share"] for each in figure.datasets["causes"]]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) < 1
    alone = charts.time_lost(row | {"time_lost": row["time_lost"][:1]})
    assert (
        alone.description
        == "Wall time lost to 1 cause; the rest is all steps at their usual speed."
    )


def test_hostile_text_is_data_alone():
    evil = "</script><script>alert(1)</script>"
    facts = FACTS | {"model": evil}
    given = told(full_run("xtuner", 5e3, name=evil, facts=facts))
    (row,) = given.rows
    figure = charts.course(*of(given, row), row)
    assert evil in figure.title
    assert evil not in json.dumps(figure.spec)


# --- waterfalls -----------------------------------------------------------------------------------


@pytest.mark.parametrize("bridge", BRIDGES.values(), ids=BRIDGES)
def test_a_waterfall_draws_its_steps(bridge):
    figure = charts.waterfall(bridge, "torchtitan", "torchtitan-2024-05")
    rows = figure.datasets["steps"]
    factors = [row["factor"] for row in rows if row["factor"] is not None]
    assert len(factors) == len(bridge.factors) + 1  # those of the print's precision, too
    assert bridge.logged * prod(factors) == pytest.approx(bridge.ours, rel=1e-4)
    assert rows[-2]["text"] == rows[-1]["text"]
    assert figure.title.startswith("From logged ")
    assert figure.params["order"] == [row["what"] for row in rows]
    if bridge.figure != "logged_tgs":
        assert "torchtitan-2024-05. Ours: by our formula, exact attention" in figure.notes[0]


def test_two_factors_of_one_name_are_two_rows():
    bridge = a_bridge(caused={"window": 0.9})
    twice = charts.waterfall(replace(bridge, factors=2 * bridge.factors), "xtuner", None)
    rows = [row["what"] for row in twice.datasets["steps"]]
    assert len(rows) == len(set(rows)) == 5


def test_only_a_figure_that_moves_far_has_a_log_scale():
    far = charts.waterfall(BRIDGES["thousand times"], "xtuner", None)
    assert far.kind.endswith("-log")
    assert "(log scale)" in far.notes[1]
    plain = charts.waterfall(BRIDGES["many causes"], "xtuner", None)
    assert plain.params["reach"][0] == 0
    assert '"type": "log"' not in json.dumps(plain.spec)


def test_what_is_unexplained_is_said_with_what_the_print_allows():
    figure = charts.waterfall(BRIDGES["unexplained"], "xtuner", None)
    assert "(x 0.6849 to 0.6850)" in figure.notes[1]
    assert figure.params["order"][-2] == "unexplained"
    digit = charts.waterfall(BRIDGES["one digit"], "xtuner", None)
    assert "(x 0.5051 or more)" in digit.notes[1]


# --- rows ---------------------------------------------------------------------------------------


def rows_of_text(figure):
    """Texts of the marks of each panel by their height, from the top."""
    found = []
    root = ET.fromstring(svg(figure))  # noqa: S314 - our own

    def walk(node, at):
        moved = re.search(r"translate\(([-\d.]+),([-\d.]+)\)", node.get("transform", ""))
        at = at + float(moved[2]) if moved else at
        if node.tag.endswith("}text") and node.text:
            found.append((round(at / 8), node.text))
        for child in node:
            walk(child, at)

    walk(root, 0.0)
    return found


@pytest.mark.parametrize("without", range(3))
def test_a_run_without_a_figure_leaves_the_others_in_their_rows(without):
    """One that has no MFU has no mark in that panel, which took its row for another's."""
    rows = [row | {"rank": None, "group": "g"} for row in three().rows]
    assert len(rows) == 3
    nothing = dict.fromkeys(name for name in rows[0] if "mfu" in name)
    for n, row in enumerate(rows):
        row |= {"tgs": 1111.0 * (n + 1), "mfu": 0.111 * (n + 1)}
        rows[n] = row | {"tgs_low": None, "tgs_high": None, "logged_mfu": 0.111 * (n + 5)}
    rows[without] |= nothing
    heights = {text: at for at, text in rows_of_text(charts.comparison(rows))}
    for one in {1, 2, 3} - {without + 1}:
        four = one + 4
        told = f"{one},{one}{one}{one}", f"{one}{one}.{one}%", f"{four}{four}.{four}%"
        assert len({heights[text] for text in told}) == 1


def test_short_labels_tell_runs_of_one_set_up_apart_by_framework() -> None:
    """On a narrow page three frameworks were all `…f16-recompute`."""
    names = [f"{of}/bf16-recompute" for of in ("torchtitan-0.2.2", "deepspeed-0.19.8", "xtuner-0")]
    axis = {"labelExpr": comparison_charts._ENDING}
    spec = {
        "data": {"values": [{"run": name} for name in [*names, "short"]]},
        "mark": "point",
        "encoding": {"y": {"field": "run", "type": "nominal", "axis": axis}},
    }
    found = vl_convert.vegalite_to_svg(spec)
    shown = re.findall(r"<text[^>]*>([^<]*)</text>", found)
    assert {"torc…recompute", "deep…recompute", "xtun…recompute", "short"} <= {*shown}
