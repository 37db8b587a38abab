"""Contents of the report as data: the output of `--format json` and of the page.

The page shows the path of each number in this data. Nothing here draws or writes HTML. No clock and
no random id: the same store gives the same content.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import metadata
from itertools import zip_longest
from math import isfinite
from typing import Any, Final, TypeVar

import polars as pl

from fairmfu.ingest.core.progress import note_progress
from fairmfu.ingest.core.schema import FACT_NAMES
from fairmfu.metrics.audit.audit_results import Audit, Bridge
from fairmfu.metrics.audit.formula_era import Era
from fairmfu.metrics.audit.logged_figures import PER_GPU_FIGURES
from fairmfu.metrics.compare.comparability import (
    COLUMN_LABELS,
    COMPARISON,
    format_value,
    rank_runs,
    varying_columns,
)
from fairmfu.metrics.compare.comparison_row import ComparisonRow
from fairmfu.metrics.compare.cost import Price
from fairmfu.metrics.compare.studies import Study, find_studies
from fairmfu.metrics.core.run_selection import choose
from fairmfu.metrics.core.run_table import METRICS, value_of
from fairmfu.metrics.formula.accelerators import Accelerator
from fairmfu.metrics.formula.terms import FORMULA_VERSION
from fairmfu.metrics.pipeline.analysis import Analysis, analyse
from fairmfu.metrics.pipeline.kept_curves import CURVE_BINS
from fairmfu.metrics.pipeline.reported_runs import ReportedRuns
from fairmfu.metrics.pipeline.run_needs import AskedFacts
from fairmfu.metrics.runs.step_bins import MAX_STEP_BINS, count_events
from fairmfu.metrics.utilization.utilization import operator_table

from ..charts import charts
from ..charts.figure import Figure
from ..charts.tooltips import CONVENTIONS, run_cards
from ..comparison.matrix import matrix_json
from ..comparison.study_text import (
    shown_studies,
    study_frame,
    study_heading,
    study_notes,
    study_sentence,
)
from ..text import bridge_text, run_narrative
from ..text.diagnosis import diagnosis
from ..text.tabular import count_noun
from ..text.verdict import (
    PLAIN_STYLE,
    Style,
    Verdict,
    group_verdict,
    join_comparison,
    no_ranking_reason,
    pair_verdict,
    ranked_groups,
)
from . import overview
from .redaction import Redaction

Json = dict[str, Any]
Curve = Mapping[str, list[Json]]
"""Rows of each part of metrics.core.curve_columns.CURVE_PARTS, of one run."""
Result = TypeVar("Result")

REPORT_SCHEMA_VERSION: Final = 1
"""Increases if a key is removed or changes its meaning; new keys do not count."""

MAX_POINTS: Final = 6_000
"""Most points of all runs together to draw with all bins of a chart: those of 20 long runs."""
MIN_STEP_BINS: Final = 20
MAX_RUNS_IN_FULL: Final = 400
"""Most runs to report in full. Beyond, a run has the chart over steps alone, in four digits,
without event lines and without the slowest and fastest window of each bin: a kept curve
(metrics.pipeline.kept_curves).
"""
MAX_PAGE_PARTS: Final = 200
"""Of more than MAX_RUNS_IN_FULL runs, those that a page describes. Others are in tables only."""
RUNS_AT_ONCE: Final = 50
"""Runs to make ready for JSON together."""
PLAIN_TYPES: Final = frozenset({str, int, bool, type(None)})
"""Types of values that are alike in JSON, besides finite numbers."""
MAX_UNREAD_LINES: Final = 20
"""Most lines per source to quote; the store has all of them."""
MAX_FORMULA_MODELS: Final = 6
"""Most models with other tools' formulas; `fairmfu flops --against-others` has any."""

CARD_FIELDS: Final = (
    *(f"mfu_{how}" for how in CONVENTIONS),
    *("tflops_exact", "tflops_full", "peak_own", "peak_bf16", "peak_source", "interval"),
)
"""Fields of a figure card beyond the columns of a run."""

MAX_FACT_TEXT: Final = 2_000
"""Most characters of a fact's value."""


NOTHING_KEPT: Final[Mapping[str, AskedFacts]] = {}
"""Kept answers of a report that is not of a store."""


@dataclass(frozen=True, slots=True)
class ReportContent:
    """Contents of a report.

    data: by docs/report.schema.json, without `charts`
    groups: of data["groups"], the rows of verdict.join_comparison, best first
    rows: of all runs, in the order of data["runs"]
    described: run_id of runs with all keys in data["runs"]; others have those of tables
    figures: by kind, followed by a colon and the place of a group or model, or a run_id
    redaction: hidden texts, and the words in their place; None if nothing is hidden
    analysis, metrics, say: the inputs, so that `render` can leave out a run that fails
    failed: runs that `render` left out, by `name` and `error`
    """

    data: Json
    groups: Sequence[Sequence[ComparisonRow]]
    rows: Sequence[ComparisonRow]
    figures: Mapping[str, Figure]
    described: Sequence[str]
    redaction: Redaction | None = None
    analysis: Analysis | ReportedRuns | None = None
    metrics: pl.DataFrame | None = None
    say: Callable[[Analysis | ReportedRuns, pl.DataFrame], ReportContent] | None = None
    failed: list[Json] = field(default_factory=list)

    def render(self, draw: Callable[[ReportContent], Result]) -> Result:
        """Return the result of `draw` for the report, without runs that `draw` fails for."""
        analysis, metrics, say = self.analysis, self.metrics, self.say
        if analysis is None or metrics is None or say is None:
            return draw(self)

        def draw_of(subset: Analysis | ReportedRuns, rows: pl.DataFrame) -> Result:
            if subset is not analysis:
                self.failed.extend(rows.filter(pl.col("error").is_not_null()).to_dicts())
            return draw(self if rows is metrics else say(subset, rows))

        return analysis.present(metrics, draw_of)

    def verdicts(self, style: Style) -> list[Verdict]:
        """Return a verdict per item of data["verdicts"], with the same words."""
        return _verdicts(self.groups, self.rows, style)


def report(  # noqa: PLR0913 - each is an option of the command
    tables: Mapping[str, pl.DataFrame],
    *names: str,
    title: str = "Training runs",
    price: Price | None = None,
    overlay: Sequence[Accelerator] = (),
    redact: bool = False,
    store: str | None = None,
    check: Callable[[pl.DataFrame], None] = lambda _: None,
    analysis: Analysis | ReportedRuns | None = None,
    asked: Mapping[str, AskedFacts] = NOTHING_KEPT,
    matrix: tuple[str, str] | None = None,
    most_described: int | None = None,
) -> ReportContent:
    """Return the report's contents for the named runs only; for `save_report`.

    tables: of `read_logs`, or of `Store.tables`. names: as for `choose`; all runs without any.
        price: of one GPU-hour. overlay: user-defined devices. redact: replace secrets and names of
        users and hosts in all texts. store: path for the commands of the page; None for the usual
        store. check: gets the metrics of these runs, and may raise before
        the rest is computed. analysis: of these runs, with the metrics of all; computed without
        one. asked: missing facts that a store keeps, by run_id. matrix: facts of the rows and of
        the columns of a table, each cell with links to its runs. most_described: of more than
        MAX_RUNS_IN_FULL runs, those with facts, curve and operators; None for all.

    `data` is the output of `--format json`, by docs/report.schema.json: tgs [tokens/s/GPU], mfu
    [fraction], times [s]; `figures` are its charts, of which `draw` returns one by name.

    Raises RunNameError if no run has one of the names, and the errors of `check`.

    >>> report(tables, "titan-8b", "xtuner-8b").data["verdicts"]
    """
    analysis = analyse(tables, overlay) if analysis is None else analysis
    chosen = choose(analysis.metrics, *names)
    check(chosen)
    if names:
        tables, analysis = _sources_of(chosen, tables), analysis.with_metrics(chosen)
    hides = Redaction() if redact else None
    version = metadata.version("fairmfu")
    return build_content(
        analysis,
        chosen,
        tables,
        title,
        price,
        version,
        redaction=hides,
        store=store,
        asked=asked,
        matrix=matrix,
        most_described=most_described,
    )


def _sources_of(
    chosen: pl.DataFrame, tables: Mapping[str, pl.DataFrame]
) -> dict[str, pl.DataFrame]:
    """Return the tables with the sources of these runs, and their unread lines, alone."""
    paths = chosen["sources"].explode().implode()
    sources = tables["sources"].filter(pl.col("path").is_in(paths))
    unread = tables["unread"].filter(pl.col("sha256").is_in(sources["sha256"].implode()))
    return {**tables, "sources": sources, "unread": unread}


def build_content(  # noqa: PLR0913, PLR0917 - a store, and how it is to be told
    analysis: Analysis | ReportedRuns,
    metrics: pl.DataFrame,
    tables: Mapping[str, pl.DataFrame],
    title: str,
    price: Price | None,
    version: str,
    *,
    redaction: Redaction | None = None,
    store: str | None = None,
    asked: Mapping[str, AskedFacts] = NOTHING_KEPT,
    matrix: tuple[str, str] | None = None,
    most_described: int | None = None,
) -> ReportContent:
    """Return the contents of the report on these runs.

    metrics: rows of analysis.metrics; tables: of the store, at least of these runs; version: of
        fairmfu; redaction: hides texts, and collects them here; store, asked, matrix,
        most_described: as for `report`
    """

    def say(analysis: Analysis | ReportedRuns, metrics: pl.DataFrame) -> ReportContent:
        ranked, rows = _ordered_rows(analysis, metrics, price)
        described = _described(ranked, rows, most_described)
        needs = overview.Needs.of(analysis, metrics["run_id"].to_list(), tables, store, asked)
        parts = _Parts(analysis, metrics, tables, needs, described)
        whole = _header(metrics, title, version) | _whole(parts, ranked, rows, matrix)
        content = _redacted(whole, ranked, rows, described, redaction)
        return replace(content, analysis=analysis, metrics=metrics, say=say)

    return analysis.present(metrics, say)


def _ordered_rows(
    analysis: Analysis | ReportedRuns, metrics: pl.DataFrame, price: Price | None
) -> tuple[list[list[ComparisonRow]], list[ComparisonRow]]:
    """Return groups of like-for-like runs, the most informative first, and all runs.

    All runs are in the order of the groups; runs without a rank come last.
    """
    bridges = analysis.bridges_of(metrics["run_id"].to_list())
    rows = join_comparison(metrics, rank_runs(metrics, analysis.loss_lines, price), bridges)
    ranked = sorted(ranked_groups(rows), key=_weight)
    place = {row["run_id"]: at for at, row in enumerate(row for group in ranked for row in group)}
    return ranked, sorted(rows, key=lambda row: place.get(row["run_id"], len(place)))


def _described(
    ranked: Sequence[Sequence[ComparisonRow]], rows: Sequence[ComparisonRow], most: int | None
) -> list[str]:
    """Return the run_id of described runs, in the order of the rows.

    most: of more than MAX_RUNS_IN_FULL runs, first those that failed or slowed down, then the best
        of each group; None: all
    """
    most = most if len(rows) > MAX_RUNS_IN_FULL else None
    ids = [row["run_id"] for row in rows]
    best = [row["run_id"] for some in zip_longest(*ranked) for row in some if row is not None]
    first = dict.fromkeys([*overview.failed(rows), *overview.slowed(rows), *best, *ids])
    chosen = {*list(first)[:most]}
    return [run_id for run_id in ids if run_id in chosen]


def _whole(
    parts: _Parts,
    ranked: Sequence[Sequence[ComparisonRow]],
    rows: Sequence[ComparisonRow],
    matrix: tuple[str, str] | None,
) -> Json:
    """Return the data of the report, without its header."""
    return (
        _overview(rows, parts)
        | _comparison(ranked, rows, parts.needs)
        | {"matrix": matrix_json(rows, *matrix) if matrix else None}
        | _all_runs(rows, ranked, parts)
    )


def _redacted(
    whole: Json,
    ranked: Sequence[Sequence[ComparisonRow]],
    rows: Sequence[ComparisonRow],
    described: Sequence[str],
    redaction: Redaction | None,
) -> ReportContent:
    """Return the contents, ready for JSON, without texts that a redaction hides."""
    whole["redacted"] = redaction is not None
    data = {name: part if name == "runs" else json_value(part) for name, part in whole.items()}
    if redaction is not None:
        redaction.scan([data, rows])
        data, ranked, rows = (redaction.redact(part) for part in (data, ranked, rows))
    figures = _figures(data, ranked, rows, described)
    return ReportContent(data, ranked, rows, figures, described, redaction)


def _header(metrics: pl.DataFrame, title: str, version: str) -> Json:
    """Return the subject of the report, and its program version."""
    return {
        "schema": REPORT_SCHEMA_VERSION,
        "title": title,
        "fairmfu": version,
        "formula": FORMULA_VERSION,
        "synthetic": bool(metrics["synthetic"].any()),
    }


def _overview(rows: Sequence[ComparisonRow], parts: _Parts) -> Json:
    """Return counts of runs, failed and slowed runs, and facts that unlock others."""
    held = {"runs": len(rows), "logs": parts.sources.height}
    return {
        "counts": held | overview.counts(rows),
        "failed": overview.failed(rows),
        "slowed": overview.slowed(rows),
        "missing": overview.missing(rows, parts.needs),
    }


def _comparison(
    ranked: Sequence[Sequence[ComparisonRow]],
    rows: Sequence[ComparisonRow],
    needs: overview.Needs,
) -> Json:
    """Return who is faster, runs without a rank, and facts that would rank them."""
    return {
        "studies": [_study(one) for one in shown_studies(rows, find_studies(rows))],
        "verdicts": [_verdict_json(one) for one in _verdicts(ranked, rows, PLAIN_STYLE)],
        "frameworks_apart": overview.frameworks_apart(ranked, rows),
        "groups": [_group(group) for group in ranked],
        "apart": [row["run_id"] for row in rows if row["rank"] is None],
        "reasons_apart": overview.reasons_apart(rows),
        "to_give": _to_give(rows, needs),
    }


def _study(study: Study) -> Json:
    """Return a study: its answer, and a row per setting."""
    return {
        "question": study_heading(study),
        "says": study_sentence(study),
        "notes": study_notes(study),
        "runs": sorted(study.run_ids),
        "settings": study_frame(study).drop("question").to_dicts(),
    }


def _all_runs(
    rows: Sequence[ComparisonRow], ranked: Sequence[Sequence[ComparisonRow]], parts: _Parts
) -> Json:
    """Return each run, the reading of its logs, and the formulas for comparison.

    Runs are made ready for JSON some at once, since most of the data is theirs: all at once would
    be in memory twice, and keys are shared only among those.
    """
    varies: dict[str, Sequence[str]] = {}
    for group in ranked:
        varies |= dict.fromkeys((row["run_id"] for row in group), varying_columns(group))
    runs: Json = {}
    for first in range(0, len(rows), RUNS_AT_ONCE):
        note_progress("Describing runs", first, len(rows), "runs")
        some = rows[first : first + RUNS_AT_ONCE]
        of_some = {row["run_id"]: _run(row, parts, varies.get(row["run_id"], ())) for row in some}
        nested = {run_id: _without_plain(run) for run_id, run in of_some.items()}
        for run_id, values in json_value(nested).items():
            runs[run_id] = of_some[run_id] | values
    return {
        "runs": runs,
        "sources": parts.source_rows(),
        "unread": parts.unread_rows(),
        "formulas": [
            {"label": label, "formulas": frame.to_dicts()}
            for label, frame in parts.analysis.other_tools(MAX_FORMULA_MODELS).items()
        ],
        "eras": _eras(rows, parts.audits),
        "peaks": overview.peaks(rows),
        "bins": parts.bins,
        "in_full": parts.in_full,
    }


def report_json(content: ReportContent) -> Json:
    """Return the data of `--format json`."""
    drawn = {
        name: {"title": figure.title, "notes": [*figure.notes], "datasets": figure.datasets}
        for name, figure in content.figures.items()
    }
    whole: Json = content.data | {"charts": json_value(drawn)}
    return whole


def json_value(value: Any) -> Any:  # noqa: ANN401 - whatever JSON can carry, and what it can't
    """Return a value for JSON: no NaN, no infinity, times in ISO 8601.

    Writing and reading JSON is several times faster than a walk through the values.
    """
    return json.loads(json.dumps(value, default=_json_object), parse_constant=lambda _: None)


def _without_plain(run: Json) -> Json:
    """Return the values that are not alike in JSON."""
    return {
        name: value
        for name, value in run.items()
        if type(value) not in PLAIN_TYPES and not (type(value) is float and isfinite(value))
    }


def _json_object(value: Any) -> Any:  # noqa: ANN401 - whatever JSON can't carry
    """Return a mapping as dict, a sequence as list, and a time as text."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence):
        return list(value)
    return value.isoformat()


# --- what is said of groups ---------------------------------------------------------------


def _weight(group: Sequence[ComparisonRow]) -> tuple[bool, int, bool, int, float]:
    """Return a sort key: groups with the most to compare come first.

    Several frameworks, then several setups, then many runs, then a large difference.
    """
    frameworks = {row["framework"] for row in group}
    setups = {row["setup"] for row in group}
    slowest = min((row["relative_tgs"] or 1.0 for row in group), default=1.0)
    return len(group) == 1, -len(frameworks), len(setups) == 1, -len(group), slowest


def _verdicts(
    ranked: Sequence[Sequence[ComparisonRow]], rows: Sequence[ComparisonRow], style: Style
) -> list[Verdict]:
    """Return a verdict per group of several runs, or a single verdict with a reason."""
    several = [_untagged(group) for group in ranked if len(group) > 1]
    return [group_verdict(group, style) for group in several] or [_no_verdict(rows, ranked, style)]


def _untagged(group: Sequence[ComparisonRow]) -> Sequence[ComparisonRow]:
    """Return rows without the synthetic mark if all are synthetic.

    Then the mark is in the heading.
    """
    if not all(row["synthetic"] for row in group):
        return group
    return [{**row, "synthetic": False} for row in group]


def _no_verdict(
    rows: Sequence[ComparisonRow], alone: Sequence[Sequence[ComparisonRow]], style: Style
) -> Verdict:
    """Return the first line if no two runs may be compared."""
    if len(rows) == 2:  # noqa: PLR2004 - a pair
        return pair_verdict(rows[0], rows[1], style)
    if not rows:
        return Verdict("", "The store has no runs.", ("Read logs first: fairmfu ingest LOG…",))
    if not alone:
        says, helps = no_ranking_reason(rows)
        return Verdict("", says, (f"{helps}.",))
    if len(rows) == 1:
        return group_verdict(alone[0], style)
    says = "No two runs are like for like, so no run is faster than another."
    of = count_noun(len(rows), "run")
    return Verdict("", says, (f"{len(alone)} of {of} can be ranked, each alone in its group.",))


def _verdict_json(verdict: Verdict) -> Json:
    return {
        "label": verdict.label,
        "says": verdict.sentence,
        "notes": list(verdict.notes),
        "differs": verdict.differs,
    }


def _group(group: Sequence[ComparisonRow]) -> Json:
    at = next((row["equal_tokens"] for row in group if row["equal_tokens"]), None)
    return {
        "group": group[0]["group"],
        "runs": [row["run_id"] for row in group],
        "frameworks": sorted({str(row["framework"]) for row in group}),
        "synthetic": all(row["synthetic"] for row in group),
        "equal_tokens": at,
        "equal_flops": group[0]["equal_flops"],
    }


def _to_give(rows: Iterable[ComparisonRow], needs: overview.Needs) -> list[Json]:
    """Return the facts that runs without a rank lack, with their meanings."""
    asked = dict.fromkeys(name for row in rows if row["rank"] is None for name in needs.facts(row))
    return [{"name": name, "meaning": _meaning(name)} for name in asked]


def _meaning(name: str) -> str:
    """Return the meaning of a fact, its unit, and its possible words."""
    fact = FACT_NAMES[name]
    unit = f" [{fact.unit}]" if fact.unit else ""
    return f"{fact.meaning}{unit}" + (f": {', '.join(fact.choices)}" if fact.choices else "")


def _eras(rows: Sequence[ComparisonRow], audits: Mapping[str, Audit]) -> list[Json]:
    """Return the frameworks' formulas behind the logs' figures, with their runs."""
    of: dict[str, tuple[Era, list[str]]] = {}
    for row in rows:
        era = audits[row["run_id"]].era
        if era is not None and any(
            value_of(row, name) is not None for name in bridge_text.FIGURE_UNITS
        ):
            of.setdefault(era.name, (era, []))[1].append(row["run_id"])
    return [
        {
            "name": era.name,
            "log_formats": list(era.log_formats),
            "since": era.since,
            "until": era.until,
            "formula": era.formula,
            "code": f"{era.repo}/{era.path}",
            "commit": era.commit,
            "runs": runs,
            "compared": sum(audits[run_id].reproduced is not None for run_id in runs),
            "reproduced": sum(audits[run_id].reproduced is True for run_id in runs),
        }
        for era, runs in of.values()
    ]


# --- one run ------------------------------------------------------------------------------


class _Parts:
    """Frames of a store by run, split once: a filter per run over all would be slow."""

    def __init__(
        self,
        analysis: Analysis | ReportedRuns,
        metrics: pl.DataFrame,
        tables: Mapping[str, pl.DataFrame],
        needs: overview.Needs,
        described: Sequence[str],
    ) -> None:
        self.analysis, self.audits = analysis, analysis.audits
        self.needs, self.described = needs, frozenset(described)
        self.in_full = metrics.height <= MAX_RUNS_IN_FULL
        self.of_facts = _rows_by_run(analysis.facts_of_runs(described))
        self.of_windows: dict[str, pl.DataFrame] = {}
        self.bins, self.curve_of = self._full_curves(metrics) if self.in_full else self._curves()
        self.sources = tables["sources"].sort("path", "sha256")
        self.place = {path: at for at, path in enumerate(self.sources["path"])}
        self.unread = tables["unread"].sort("sha256", "line")

    def _full_curves(self, metrics: pl.DataFrame) -> tuple[int, Callable[[str], Curve]]:
        """Return the bins per run, and the curve of each run in as many bins."""
        ids = pl.col("run_id").is_in(metrics["run_id"].implode())
        windows, events = (
            table.filter(ids) for table in (self.analysis.windows, self.analysis.events)
        )
        self.of_windows = _by_run(windows)
        bins = bins_per_run([run.height for run in self.of_windows.values()])
        parts = {
            "series": charts.bin_windows(windows, metrics, bins),
            "marks": charts.event_marks(events, windows),
            "event_counts": count_events(events),
            "rank_times": self.analysis.rank_times.filter(ids),
        }
        rows = {name: _rows_by_run(frame) for name, frame in parts.items()}
        return bins, lambda run: {name: rows[name].get(run, []) for name in rows}

    def _curves(self) -> tuple[int, Callable[[str], Curve]]:
        """Return the bins per run, and the curve of each run of many."""
        curves: dict[str, Curve] = dict(self.analysis.curves([*self.described]).iter_rows())
        return CURVE_BINS, curves.pop

    def step_times(self, row: ComparisonRow) -> pl.DataFrame:
        """Return charts.step_time_histogram of a run; empty if runs are not drawn in full."""
        if not self.in_full:
            return pl.DataFrame()
        windows = self.of_windows.get(row["run_id"])
        return pl.DataFrame() if windows is None else charts.step_time_histogram(windows, row)

    def source_rows(self) -> list[Json]:
        """Return how much of each log was read, and the kinds of unknown lines."""
        return understood_shares(self.sources).drop("read_at").to_dicts()

    def unread_rows(self) -> list[Json]:
        """Return the first unread lines of each source, by its place in the sources."""
        place = {sha256: at for at, sha256 in enumerate(self.sources["sha256"])}
        first = self.unread.group_by("sha256", maintain_order=True).head(MAX_UNREAD_LINES)
        told = [
            {"source": place[row.pop("sha256")], **row}
            for row in first.to_dicts()
            if row["sha256"] in place
        ]
        return sorted(told, key=lambda row: (row["source"], row["line"]))


def _by_run(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    cut = frame.partition_by("run_id", as_dict=True, maintain_order=True)
    return {str(key[0]): part for key, part in cut.items()}


def _rows_by_run(frame: pl.DataFrame) -> dict[str, list[Json]]:
    return frame.rows_by_key("run_id", named=True)


def understood_shares(sources: pl.DataFrame) -> pl.DataFrame:
    """Add `understood`: the share of lines that are neither other nor unread."""
    known = pl.col("lines") - pl.col("other_lines") - pl.col("unread_lines")
    return sources.with_columns(
        understood=pl.when(pl.col("lines") > 0).then(known / pl.col("lines"))
    )


def bins_per_run(lines: Sequence[int]) -> int:
    """Return the step bins per run, so that big pages stay small.

    lines: step lines of each run; a run takes no more bins than it has lines
    """
    for bins in range(MAX_STEP_BINS, MIN_STEP_BINS, -1):
        if sum(min(bins, each) for each in lines) <= MAX_POINTS:
            return bins
    return MIN_STEP_BINS


TABLE_COLUMNS: Final = (
    *(name for name, dtype in METRICS.items() if not dtype.is_nested() or name == "doubts"),
    *COMPARISON,
)
"""Columns of metrics of a run that is in tables only."""


def _run(row: ComparisonRow, parts: _Parts, varies: Sequence[str]) -> Json:
    """Return the data of a run; varies: columns that differ in its group."""
    audit, (card,) = parts.audits[row["run_id"]], run_cards([row])
    described = row["run_id"] in parts.described
    columns = (*METRICS, *COMPARISON) if described else TABLE_COLUMNS
    run = {
        **{name: row.get(name) for name in columns},
        "label": row["label"],
        **{name: card[name] for name in CARD_FIELDS},
        "claim": _claim(row, card),
        "audit": dict(zip(("word", "why"), bridge_text.audit_verdict(audit), strict=True)),
        "causes": _causes(row, audit),
        "words": _table_words(row, varies),
        "findings": overview.findings(row),
        **overview.unknown_because(row, parts.needs),
    }
    return run | _description(run["words"], row, audit, parts) if described else run


def _description(words: Json, row: ComparisonRow, audit: Audit, parts: _Parts) -> Json:
    """Return the rest of a described run, such as its curve.

    words: sentences for tables
    """
    facts, curve = parts.of_facts.get(row["run_id"], []), parts.curve_of(row["run_id"])
    operators = operator_table({fact["name"]: fact for fact in facts}, row)
    return {
        "words": words | _words(row, audit) | overview.head_words(row, parts.needs),
        "facts": [_fact(fact) for fact in facts],
        "operators": operators.to_dicts(),
        "bridges": [_bridge(one) for one in row["bridges"]],
        "time": run_narrative.time_spent(row),
        "series": curve["series"],
        "step_times": parts.step_times(row).to_dicts(),
        "by_rank": curve["rank_times"],
        "events": curve["marks"],
        "event_counts": curve["event_counts"],
        **overview.run_needs(row, parts.needs, _meaning),
        "source_places": [parts.place[path] for path in row["sources"] if path in parts.place],
    }


def _claim(row: ComparisonRow, card: Json) -> Json | None:
    """Return the logged figure beside ours: TFLOP/s, else MFU, else TGS; may be None."""
    figure = next((name for name in PER_GPU_FIGURES if row[name] is not None), None)
    if figure is None:
        return None
    logged = value_of(row, figure)
    if figure == "logged_mfu":
        ours = {how: card[f"mfu_{how}"] for how in CONVENTIONS}
    elif figure == "logged_tflops":
        ours = {how: card[f"tflops_{how.partition('_')[0]}"] for how in CONVENTIONS}
    else:
        ours = dict.fromkeys(CONVENTIONS, row["tgs"])
    return {
        "figure": figure,
        "name": bridge_text.FIGURE_UNITS[figure].name,
        "logged": logged,
        **{f"ours_{how}": value for how, value in ours.items()},
        **{f"ratio_{how}": logged / value if value else None for how, value in ours.items()},
    }


def _causes(row: ComparisonRow, audit: Audit) -> list[str]:
    """Return the reasons for the gap to ours, the largest first, or why none is known."""
    bridges = row["bridges"]
    if bridges:
        return bridge_text.factor_reasons(bridges[0])
    return [bridge_text.no_bridge_reason(row, audit)]


def _table_words(row: ComparisonRow, varies: Sequence[str]) -> Json:
    """Return the sentences on a run in tables."""
    return {
        "ended": run_narrative.outcome_words(row),
        "last_words": run_narrative.last_words(row),
        "diagnosis": diagnosis(row),
        "differs": _what_differs(row, varies),
    }


def _words(row: ComparisonRow, audit: Audit) -> Json:
    """Return other sentences on a run."""
    return {
        "went": run_narrative.outcome_sentence(row),
        "sure": run_narrative.confidence_text(row),
        "end_to_end": run_narrative.end_to_end_words(row),
        "goodput": run_narrative.goodput_words(row),
        "claim": bridge_text.claim_sentence(row, audit, row["bridges"]),
        "proof": bridge_text.proof_sentences(audit),
    }


def _what_differs(row: ComparisonRow, varies: Sequence[str]) -> str:
    """Return the run's own values of columns that differ in its group."""
    names = [name for name in varies if name != "framework"]
    values = ((COLUMN_LABELS.get(n, n), value_of(row, n)) for n in names)
    said = [
        f"{label} {'unknown' if value is None else format_value(value)}" for label, value in values
    ]
    return ", ".join(said)


def _fact(fact: Mapping[str, Any]) -> Json:
    """Return name, value, unit, origin, line and the line's text, if any."""
    known = FACT_NAMES.get(fact["name"])
    return {
        "name": fact["name"],
        "value": fact["value"][:MAX_FACT_TEXT],
        "unit": known.unit if known else "",
        "origin": fact["origin"],
        "line": fact["line"],
        "text": fact.get("text"),
    }


def _bridge(bridge: Bridge) -> Json:
    return {
        "figure": bridge.figure,
        "name": bridge_text.FIGURE_UNITS[bridge.figure].name,
        "unit": bridge_text.FIGURE_UNITS[bridge.figure].text,
        "logged": bridge.logged,
        "ours": bridge.ours,
        "explained": bridge.explained,
        "steps": bridge_text.bridge_frame(bridge).to_dicts(),
    }


# --- what is drawn ------------------------------------------------------------------------


def _figures(
    data: Json,
    ranked: Sequence[Sequence[ComparisonRow]],
    rows: Sequence[ComparisonRow],
    described: Sequence[str],
) -> dict[str, Figure]:
    """Return every chart of a report by key: kind, and place or run_id."""
    cards = charts.chart_cards(rows)
    across = {
        "scaling": charts.scaling(cards),
        "mfu_by_length": charts.mfu_by_length(cards),
        "mfu_by_precision": charts.mfu_by_precision(cards),
        "mfu_by_recompute": charts.mfu_by_recompute(cards),
        "mfu_by_run": charts.mfu_by_run(cards),
    }
    several = [group for group in ranked if len(group) > 1]
    alone = [group[0] for group in ranked if len(group) == 1]
    found: dict[str, Figure | None] = {
        "logged": _logged(alone)
        if any(data["runs"][r["run_id"]]["claim"] for r in alone)
        else None,
        **{f"comparison:{n}": charts.comparison(group) for n, group in enumerate(several)},
        **across,
        **{
            f"others:{n}": charts.other_tools_chart(one["formulas"], one["label"])
            for n, one in enumerate(data["formulas"])
        },
    }
    of = {row["run_id"]: row for row in rows}
    for run_id in described:
        of_run = _figures_of(of[run_id], data["runs"][run_id], in_full=data["in_full"])
        found |= {f"{name}:{run_id}": figure for name, figure in of_run.items()}
    return {name: figure for name, figure in found.items() if figure is not None}


def _logged(alone: Sequence[ComparisonRow]) -> Figure:
    """Return the chart of logged and our figures, for runs that do not compare."""
    figure = charts.comparison(alone)
    more = "Compare the two marks within a row, not different rows."
    title = "Logged and ours"
    return replace(figure, title=title, notes=(more, *figure.notes))


def _figures_of(row: ComparisonRow, run: Json, *, in_full: bool) -> dict[str, Figure | None]:
    """Return the charts of one run; without in_full, only those without a table."""
    shown: dict[str, Figure | None] = {"course": charts.course(run["series"], run["events"], row)}
    if in_full:
        bridges = row["bridges"]
        shown |= {
            "step_times": charts.step_times(run["step_times"], row),
            "ranks": charts.ranks(run["by_rank"], row),
            "time_lost": charts.time_lost(row),
            "phases": charts.phases(row),
            "operators": charts.operators(run["operators"]),
            "waterfall": (
                charts.waterfall(bridges[0], row["framework"], row["logged_formula"])
                if bridges
                else None
            ),
        }
    return shown
