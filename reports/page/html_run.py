"""Data of a run's part of the page, for its template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from fairmfu.metrics.core.run_table import MetricsRow

from ..charts.tooltips import accelerator_name
from .report_data import Json, ReportContent

MAX_FACT_SUMMARY: Final = 160
"""Most characters of a fact's value to show unfolded."""
MAX_LISTED_EVENTS: Final = 40
"""Most events in a table."""


@dataclass(frozen=True, slots=True)
class FactView:
    """Fact; summary: the beginning of a folded value, else ""; text: of its line."""

    name: str
    value: str
    summary: str
    unit: str
    origin: str
    text: str


@dataclass(frozen=True, slots=True)
class RunView:
    """Part of the page on a run.

    about: the run in the report's JSON; accelerator: its name in the filter
    steps_shown: the steps from the log's figure to ours are shown
    events, more_events: listed events, and the number of others in the chart
    unread: lines of its logs that look like steps, with their `place`
    """

    about: Json
    accelerator: str | None
    steps_shown: bool
    facts: Sequence[FactView]
    events: Sequence[Json]
    more_events: int
    unread: Sequence[Json]


def run_views(content: ReportContent) -> list[RunView]:
    """Return the parts of the described runs; of very many runs, without quoted lines."""
    runs, unread = content.data["runs"], unread_by_source(content.data)
    return [
        _run(runs[run_id], unread, in_full=content.data["in_full"]) for run_id in content.described
    ]


def accelerator_of(run: Json) -> str | None:
    """Return the accelerator of a run by its name in the page's filter."""
    return accelerator_name(cast(MetricsRow, run))


def unread_by_source(data: Json) -> dict[int, list[Json]]:
    """Return unread lines by the place of their source, with each line's own place."""
    found: dict[int, list[Json]] = {}
    for place, line in enumerate(data["unread"]):
        found.setdefault(line["source"], []).append(line | {"place": place})
    return found


def _run(run: Json, unread: Mapping[int, Sequence[Json]], *, in_full: bool) -> RunView:
    events = run["events"][:MAX_LISTED_EVENTS] if in_full else []
    return RunView(
        about=run,
        accelerator=accelerator_of(run),
        steps_shown=in_full,
        facts=[_fact(fact, quoted=in_full) for fact in run["facts"]],
        events=events,
        more_events=len(run["events"]) - len(events),
        unread=[line for at in sorted(set(run["source_places"])) for line in unread.get(at, ())],
    )


def _fact(fact: Mapping[str, Any], *, quoted: bool) -> FactView:
    value = str(fact["value"])
    return FactView(
        name=fact["name"],
        value=value,
        summary=value[:MAX_FACT_SUMMARY] if len(value) > MAX_FACT_SUMMARY else "",
        unit=fact["unit"],
        origin=fact["origin"],
        text=(fact["text"] or "") if quoted else "",
    )
