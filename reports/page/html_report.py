"""Report as one offline HTML page.

The page shows who is faster, by how much, with what confidence, and why logs disagree.
`render_page` renders the data of reports.page.report_data with the template report.html.j2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..charts import charts
from ..charts.figure import Figure
from .html_document import Sheet, json_block
from .html_run import RunView, accelerator_of, run_views, unread_by_source
from .html_style import SELECTABLE_STYLE, Sentences
from .html_templates import packaged, render
from .redaction import REDACTED
from .report_data import MAX_FORMULA_MODELS, Json, ReportContent

OPEN_GROUPS: Final = 4
"""Number of groups whose comparison is open; the others are folded."""
MAX_EXPLAINED_RUNS: Final = 100
"""On a page of very many runs, most runs explained in the section on logs."""
MAX_LISTED_LOGS: Final = 200
"""On a page of very many runs, most logs in the table of what was read."""
MAX_WATERFALLS: Final = 4
"""Most runs with a waterfall in the section on logs."""
MAX_OPEN_ROWS: Final = 40
"""Most rows that a table shows unfolded."""
MAX_OPEN_ROWS_OF_MANY: Final = 20
"""Most rows that a table shows unfolded on a page of very many runs."""
MAX_ROWS_PER_FOLD: Final = 400
MAX_RUNS_PER_FOLD: Final = 40
"""Most runs outside nested folds; more are folded in groups of this size."""
MAX_FOLDS_PER_LEVEL: Final = 24
FILTERS: Final = {"framework": "Framework", "model": "Model", "accelerator": "GPU"}
"""Label of each filter, by the key of a run."""
CROSS_RUN_CHARTS: Final = (
    "scaling",
    "mfu_by_length",
    "mfu_by_precision",
    "mfu_by_recompute",
    "mfu_by_run",
)


@dataclass(frozen=True, slots=True)
class Filter:
    """Selection of the shown runs. name: of the run's attribute to filter by."""

    name: str
    label: str
    choices: Sequence[str]


@dataclass(frozen=True, slots=True)
class Controls:
    """Choices of the reader.

    filters: those with several choices; frameworks: of the legend
    subjects: run ids by framework, model and accelerator, as JSON; "" for none
    """

    filters: Sequence[Filter]
    subjects: str
    frameworks: Sequence[str]

    @classmethod
    def of(cls, runs: Iterable[Json]) -> Controls:
        """Return filters for the differences between runs.

        runs: with run_id, framework, model, device and accelerator
        """
        subjects: dict[tuple[str, ...], list[str]] = {}
        frameworks: dict[str, None] = {}
        for run in runs:
            subject = (run["framework"], run["model"] or "", accelerator_of(run) or "")
            subjects.setdefault(subject, []).append(run["run_id"])
            frameworks[run["framework"]] = None
        filters = (
            Filter(name, label, sorted({subject[at] for subject in subjects} - {""}))
            for at, (name, label) in enumerate(FILTERS.items())
        )
        return cls(
            filters=[one for one in filters if len(one.choices) > 1],
            subjects=str(
                json_block([[*subject, " ".join(ids)] for subject, ids in sorted(subjects.items())])
            ),
            frameworks=[*frameworks],
        )


@dataclass(frozen=True, slots=True)
class GroupView:
    """Group of like-for-like runs with its verdict.

    about: data["groups"][place] of the report
    """

    place: int
    about: Json
    runs: Sequence[Json]
    verdict: Sentences

    @property
    def count(self) -> int:
        """Number of runs."""
        return len(self.runs)


@dataclass(frozen=True, slots=True)
class LeftOver:
    """Unread lines of a log.

    source: data["sources"][place] of the report; unread: lines that look like steps
    """

    place: int
    source: Json
    unread: Sequence[Json]


@dataclass(frozen=True, kw_only=True)
class PageView:
    """Data for the template of the report.

    sheet: collects folds and figures; data: the report's JSON; figures: its charts by key
    verdicts: if no group has several runs; alone: single runs of a group
    failed, slowed: runs that ended badly, or slowed down inside; causes: counts of failed runs by
        outcome, the most frequent first; all_runs: of the table of runs
    overlay: of chosen runs
    explained: with a logged figure; waterfalls: of the first group
    sources: listed logs, each with its `place` in the report's JSON
    """

    sheet: Sheet
    data: Json
    figures: Mapping[str, Figure]
    controls: Controls | None
    verdicts: Sequence[Sentences]
    groups: Sequence[GroupView]
    alone: Sequence[Json]
    failed: Sequence[Json]
    causes: Sequence[tuple[str, int]]
    slowed: Sequence[Json]
    all_runs: Sequence[Json]
    explained: Sequence[Json]
    waterfalls: Sequence[Json]
    more_waterfalls: bool
    charts_across_runs: Sequence[str]
    runs: Sequence[RunView]
    sources: Sequence[Json]
    left_over: Sequence[LeftOver]
    open_rows: int
    open_groups: int
    rows_per_fold: int
    runs_per_fold: int
    folds_per_level: int
    overlay: Figure
    most_formula_models: int = MAX_FORMULA_MODELS
    redacted: str = REDACTED


def render_page(content: ReportContent) -> str:
    """Render the report as one HTML page."""
    return document(page_view(content))


def document(page: PageView) -> str:
    """Return the page as an HTML document."""
    body = render("page/report.html.j2", page=page)
    return page.sheet.html(page.data["title"], body, style=packaged("report.css"))


def page_view(content: ReportContent) -> PageView:
    """Return the data of the page."""
    data = content.data
    runs = data["runs"]
    groups, alone = data["groups"], [g["runs"][0] for g in data["groups"] if len(g["runs"]) == 1]
    several = any(len(group["runs"]) > 1 for group in groups)
    verdicts = [Sentences.of(verdict) for verdict in content.verdicts(SELECTABLE_STYLE)]
    explained = [run for run in runs.values() if run["claim"]]
    drawn = _waterfalls(content)
    return PageView(
        sheet=Sheet(),
        data=data,
        figures=content.figures,
        controls=Controls.of(runs.values()) if runs else None,
        verdicts=[] if several else verdicts,
        groups=_groups(data, runs, verdicts),
        alone=[runs[run_id] for run_id in alone],
        failed=[runs[run_id] for run_id in data["failed"]],
        causes=Counter(runs[run_id]["outcome"] for run_id in data["failed"]).most_common(),
        slowed=[runs[run_id] for run_id in data["slowed"]],
        all_runs=[*runs.values()],
        explained=explained if data["in_full"] else explained[:MAX_EXPLAINED_RUNS],
        waterfalls=[runs[run_id] for run_id in drawn],
        more_waterfalls=bool(drawn) and _count_waterfalls(content) > len(drawn),
        charts_across_runs=[key for key in CROSS_RUN_CHARTS if key in content.figures],
        runs=run_views(content),
        sources=_sources(data),
        left_over=_left_over(data),
        open_rows=MAX_OPEN_ROWS if data["in_full"] else MAX_OPEN_ROWS_OF_MANY,
        open_groups=OPEN_GROUPS,
        rows_per_fold=MAX_ROWS_PER_FOLD,
        runs_per_fold=MAX_RUNS_PER_FOLD,
        folds_per_level=MAX_FOLDS_PER_LEVEL,
        overlay=charts.overlay(),
    )


def _groups(data: Json, runs: Mapping[str, Json], verdicts: Sequence[Sentences]) -> list[GroupView]:
    several = [group for group in data["groups"] if len(group["runs"]) > 1]
    return [
        GroupView(place, group, [runs[run_id] for run_id in group["runs"]], verdicts[place])
        for place, group in enumerate(several)
    ]


def _waterfalls(content: ReportContent) -> list[str]:
    """Return the runs of the first group whose waterfall is drawn."""
    first = content.data["groups"][0]["runs"] if content.data["groups"] else []
    return [run_id for run_id in first if f"waterfall:{run_id}" in content.figures][:MAX_WATERFALLS]


def _count_waterfalls(content: ReportContent) -> int:
    return sum(key.startswith("waterfall:") for key in content.figures)


def _sources(data: Json) -> list[Json]:
    """Return the logs to list; for very many runs, those of which the least was read."""
    sources = [source | {"place": place} for place, source in enumerate(data["sources"])]
    if data["in_full"]:
        return sources
    return sorted(sources, key=lambda one: (-one["unread_lines"], one["understood"] or 0.0))[
        :MAX_LISTED_LOGS
    ]


def _left_over(data: Json) -> list[LeftOver]:
    """Return logs with unread lines; for very many runs, only those with unread steps."""
    unread = unread_by_source(data)
    found = [
        LeftOver(place, source, unread.get(place, ()))
        for place, source in enumerate(data["sources"])
        if data["in_full"] or source["unread_lines"]
    ]
    return [one for one in found if one.unread or one.source["other_kinds"]]
