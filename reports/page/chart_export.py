"""Charts by name, and charts as files: SVG, PNG, PDF, Vega-Lite JSON.

Nothing is written here: bytes come out. For one store, SVG, PNG and JSON have the same bytes each
time; PDF is the same picture, with objects in a random order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal

import polars as pl

from ..charts import render_process
from ..charts.charts import Figure, Spec
from ..charts.theme import chart_theme
from ..text.runs_table import unique_names
from ..text.tabular import count_noun, for_xml
from . import messages
from .report_data import ReportContent

Subject = Literal["one run", "a group", "all runs"]


@dataclass(frozen=True, slots=True)
class NamedChart:
    """Chart that can be drawn by name.

    of: subject; meaning: content, in a line; takes: required data
    """

    name: str
    of: Subject
    meaning: str
    takes: str


CHARTS: Final = (
    NamedChart(
        "comparison",
        "a group",
        "TGS and MFU of like-for-like runs with 95 % intervals, ours and logged",
        "two like-for-like runs",
    ),
    NamedChart(
        "waterfall",
        "one run",
        "from the logged figure to ours, factor by factor",
        "a logged figure and one of ours",
    ),
    NamedChart(
        "course",
        "one run",
        "TGS, MFU, loss and memory over steps, with events marked",
        "step lines with a time or a rate",
    ),
    NamedChart(
        "step_times",
        "one run",
        "distribution of step times: steady steps, and those left out",
        "step lines with seconds per step",
    ),
    NamedChart(
        "ranks",
        "one run",
        "median step time of each rank, with the slowest named",
        "step lines of two or more ranks",
    ),
    NamedChart(
        "time_lost",
        "one run",
        "wall time beyond the usual time of all steps, by cause",
        "a steady speed, and time lost to known causes",
    ),
    NamedChart(
        "phases",
        "one run",
        "time of a step by phase: data, forward, backward, collectives, pipeline, optimizer, rest",
        "timers of a step's phases, or a data time",
    ),
    NamedChart(
        "operators",
        "one run",
        "share of each operator in the FLOPs per token",
        "the model's shape and the sequence length",
    ),
    NamedChart(
        "others",
        "one run",
        "FLOPs per token by the formulas of other tools, as ratios to ours",
        "the model's shape and the sequence length",
    ),
    NamedChart(
        "mfu_by_run",
        "all runs",
        "MFU of each run under both attention conventions",
        "a run with an MFU",
    ),
    NamedChart(
        "scaling",
        "all runs",
        "TGS over the number of GPUs",
        "runs with a TGS on two or more numbers of GPUs",
    ),
    NamedChart(
        "mfu_by_length",
        "all runs",
        "MFU over the sequence length",
        "runs with an MFU at two or more sequence lengths",
    ),
    NamedChart(
        "mfu_by_precision",
        "all runs",
        "MFU by precision",
        "runs with an MFU in two or more precisions",
    ),
    NamedChart(
        "mfu_by_recompute",
        "all runs",
        "MFU by activation checkpointing",
        "runs with an MFU and two or more kinds of activation checkpointing",
    ),
)
"""All charts of `fairmfu chart`, in listing order."""


def listing() -> str:
    """Return a line per chart: name, subject, content."""
    name = max(len(chart.name) for chart in CHARTS)
    of = max(len(chart.of) for chart in CHARTS)
    return "\n".join(f"{c.name:{name}}  {c.of:{of}}  {c.meaning}" for c in CHARTS)


MAX_NAMED_LABELS: Final = 8
"""Most runs named in a message; the others are counted."""


def find_chart(name: str) -> NamedChart:
    """Return the chart of this name; raise NotDrawnError, with similar names, if none."""
    found = next((chart for chart in CHARTS if chart.name == name), None)
    if found is None:
        every = [chart.name for chart in CHARTS]
        near = get_close_matches(name, every, n=3, cutoff=0.4)
        hint = f" Nearest: {', '.join(near)}." if near else ""
        raise messages.UNKNOWN_CHART(name=name, hint=hint)
    return found


def check(chart: NamedChart, metrics: pl.DataFrame) -> None:
    """Raise NotDrawnError without runs, or for a chart of one run with several runs.

    metrics: columns run_id and name of the runs to draw
    """
    if metrics.is_empty():
        raise messages.STORE_WITHOUT_RUNS()  # noqa: RSE102 - a kind
    if chart.of != "one run" or metrics.height == 1:
        return
    labels = list(unique_names(metrics).values())
    more = f" and {len(labels) - MAX_NAMED_LABELS:,} more" if len(labels) > MAX_NAMED_LABELS else ""
    shown = ", ".join(labels[:MAX_NAMED_LABELS])
    raise messages.CHART_OF_ONE_RUN(chart=chart.name, count=len(labels), labels=shown, more=more)


def draw(
    chart: str | NamedChart,
    content: ReportContent,
    *,
    attention: Literal["exact", "full"] = "exact",
    peak: Literal["own", "bf16"] = "own",
) -> Figure:
    """Draw a chart of a report; a notebook shows the chart as it is.

    chart: a name from `fairmfu chart --list`; for a chart of a group, the first group. content: of
        `report`; for a chart of one run, of that run. attention: FLOPs of the pairs that the mask
        leaves, or of all. peak: of the run's own number formats, or the BF16 peak for all.

    The notes say units and convention: TGS [tokens/s/GPU], MFU [%], times [s]. `chart()` returns an
    Altair chart, `whole()` Vega-Lite, `with_()` the figure under another convention.

    Raises NotDrawnError if there is no such chart or nothing to draw, with the missing data;
    ValueError for another convention.

    >>> draw("comparison", report(tables), attention="full")
    """
    _one_of("attention", attention, ("exact", "full"))
    _one_of("peak", peak, ("own", "bf16"))
    wanted = find_chart(chart) if isinstance(chart, str) else chart
    check(wanted, pl.DataFrame(content.rows, schema=["run_id", "name"]))
    found = content.figures.get(figure_key(wanted, content))
    if found is None:
        raise _nothing_to_draw(wanted, content)
    return with_convention(found.with_(attention=attention, peak=peak))


def _one_of(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise messages.UNKNOWN_CONVENTION(name=name, value=value, choices=" or ".join(choices))


def figure_key(chart: NamedChart, content: ReportContent) -> str:
    """Return the key of a chart among the report's figures; of many the first."""
    if chart.of == "all runs":
        return chart.name
    if chart.of == "a group" or chart.name == "others":  # "others" is of the model
        return f"{chart.name}:0"
    return f"{chart.name}:{content.rows[0]['run_id']}"


def _nothing_to_draw(chart: NamedChart, content: ReportContent) -> messages.NotDrawnError:
    """Return the error with the required data of a chart, and the missing part."""
    lacking, fix = _lacking(content)
    reason = f".{lacking}"
    if chart.of == "all runs" and len(content.rows) > 1:
        reason = f"; too few of {count_noun(len(content.rows), 'run')} have that.{lacking}"
    elif chart.of == "a group":
        verdict = content.data["verdicts"][0]
        reason = f". {' '.join([verdict['says'], *verdict['notes']])}{lacking}"
    elif chart.name == "waterfall":
        claim = content.data["runs"][content.rows[0]["run_id"]]["words"]["claim"]
        reason, fix = f". {claim}", ""
    return messages.NOTHING_TO_DRAW(chart=chart.name, needs=chart.takes, reason=reason, fix=fix)


def _lacking(content: ReportContent) -> tuple[str, str]:
    """Return a sentence with the missing facts, and the command that gives them."""
    runs = content.data["runs"].values()
    facts = dict.fromkeys(one["name"] for run in runs for one in run["complete_with"])
    missing = dict.fromkeys(name for run in runs for name in run["missing"])
    if not missing and not facts:
        return "", ""
    lacking = f" Missing: {', '.join(missing or facts)}."
    return lacking, "fairmfu set RUN NAME=VALUE" if facts else ""


CONVENTION_LABELS: Final[Mapping[str, Mapping[str, str]]] = {
    "attention": {"exact": "exact attention", "full": "full attention"},
    "peak": {"own": "peak of the run's own precision", "bf16": "BF16 peak"},
}
"""Words of a caption for the values of VIEW."""


def with_convention(figure: Figure) -> Figure:
    """Add a note on the convention of a figure, if the convention makes a difference.

    A page shows the convention beside its controls; a file has none.
    """
    shown = " ".join(_shown(figure.spec))
    said = [
        CONVENTION_LABELS[param["name"]][str(figure.params.get(param["name"], param["value"]))]
        for param in figure.spec.get("params", [])
        if param["name"] in CONVENTION_LABELS and re.search(PARAM_FIELDS[param["name"]], shown)
    ]
    if not said:
        return figure
    return replace(figure, notes=(*figure.notes, f"Convention: {', '.join(said)}."))


PARAM_FIELDS: Final = {"attention": r"\b(attention|mfu|tflops)\b", "peak": r"\b(peak|mfu)\b"}
"""Fields and expressions with which a param changes the picture."""
INVISIBLE_PARTS: Final = ("tooltip", "transform", "params", "name")


def _shown(node: Any) -> Iterator[str]:  # noqa: ANN401 - any part of a spec
    """Yield the texts of a spec, without tooltips and computations that may be unused."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name not in INVISIBLE_PARTS:
                yield from _shown(value)
    elif isinstance(node, list):
        for item in node:
            yield from _shown(item)
    elif isinstance(node, str):
        yield node


# --- files ----------------------------------------------------------------------------------

FILE_FONT: Final = "Arial, 'Liberation Sans', Helvetica, sans-serif"
"""Font of text in a file: Liberation Sans, as wide as Arial and Helvetica, so that text fits in
any.
"""
CHART_FORMATS: Final = ("svg", "png", "pdf", "json")
"""Suffixes of chart files."""


def chart_format(out: Path) -> str:
    """Return the format of a chart by suffix; raise NotDrawnError for another suffix."""
    kind = out.suffix.lower().removeprefix(".")
    if kind not in CHART_FORMATS:
        known = ", ".join(f".{one}" for one in CHART_FORMATS)
        raise messages.UNKNOWN_CHART_SUFFIX(out=out, suffixes=known)
    return kind


def rendered(figure: Figure, kind: str) -> bytes:
    """Render a figure as a file of one of CHART_FORMATS.

    JSON is the whole Vega-Lite spec with its data.
    """
    if kind == "json":
        return f"{json.dumps(figure.whole(), indent=1, allow_nan=False)}\n".encode()
    drawn = svg(figure)
    return drawn.encode() if kind == "svg" else render_process.draw_product(kind, drawn)


def svg(figure: Figure) -> str:
    """Return a figure as SVG on white, with title, notes and legend; reproducible."""
    return _steady(spec_svg(figure.whole() | {"config": _config()}))


def spec_svg(spec: Spec) -> str:
    """Return a spec as SVG, with U+FFFD for text that XML cannot contain.

    Such text would make the library end its process. Marks have no descriptions and no tooltips:
    files do not need them. The descriptions were half of the file, the tooltips a seventh of the
    time.
    """
    config = {**spec.get("config", {}), "mark": {"aria": False}}
    return render_process.draw_product("svg", _pictured({**spec, "config": config})).decode()


def _pictured(value: Any) -> Any:  # noqa: ANN401 - any part of a spec
    if isinstance(value, str):
        return for_xml(value)
    if isinstance(value, dict):
        named = {_pictured(key): _pictured(one) for key, one in value.items()}
        if isinstance(named.get("encoding"), dict):
            named["encoding"].pop("tooltip", None)
        return named
    return [_pictured(one) for one in value] if isinstance(value, list | tuple) else value


def _config() -> Spec:
    return {**chart_theme()["config"], "background": "white", "font": FILE_FONT, "padding": 12}


def _steady(text: str) -> str:
    """Renumber ids from 1: the library counts them over the life of the process."""
    numbers: dict[str, int] = {}

    def numbered(match: re.Match[str]) -> str:
        number = numbers.setdefault(match["id"], len(numbers) + 1)
        return f"{match['before']}{match['kind']}{number}"

    return re.sub(r'(?P<before> id="|url\(#)(?P<id>(?P<kind>clip|gradient_)\d+)', numbered, text)
