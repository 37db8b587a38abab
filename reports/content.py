"""All that the report says, as data: what `--format json` prints and the page shows.

The page writes each number beside the path under which it stands here. Nothing is drawn or set in
HTML; no clock and no random id: the same store gives the same content.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final

import polars as pl

from ingest.schema import FACT_NAMES
from metrics.cost import Price
from metrics.era import Era
from metrics.fairness import COMPARISON, LABELS, SAME_WORK, compare, varying, written
from metrics.flops import FORMULA
from metrics.logged import Audit
from metrics.reconcile import Bridge
from metrics.utilization import METRICS, Analysis, operator_table
from reports import bridge, charts, course
from reports.verdict import NONE_RANKED, SET, Said, Style, between, counted, groups, joined, verdict
from reports.verdict import PLAIN as PLAIN_STYLE

Row = Mapping[str, Any]
Json = dict[str, Any]

SCHEMA: Final = 1
"""Rises where a key goes or changes its meaning; new keys may come without."""

FEW_RUNS: Final = 20
"""Up to here each run is drawn with all bins that a chart may have."""
FEWEST_BINS: Final = 24
MOST_EVENTS: Final = 200
"""Events of one run that are listed; all of them are counted."""
MOST_UNREAD: Final = 20
"""Lines per source that are quoted; the store has all of them."""
MOST_MODELS: Final = 6
"""Models whose other formulas are shown; `fairmfu flops --against-others` has any."""

MARKED: Final = (
    *("checkpoint", "evaluation", "restart", "load", "profiler", "compile", "gc", "overflow"),
    *("error", "out_of_memory", "killed", "end"),
)
"""Kinds of events that are listed and drawn; the rest says nothing of the course of a run."""

CONVENTIONS: Final = {
    "exact_own": "mfu",
    "full_own": "mfu_full_attention",
    "exact_bf16": "mfu_bf16",
    "full_bf16": "mfu_bf16_full_attention",
}
"""Attention and peak that an MFU is by, to the column of metrics.utilization."""


@dataclass(frozen=True, slots=True)
class Content:
    """What a report says.

    data: as docs/report.schema.json has it, but for `charts`; groups: of data["groups"], the rows
    of verdict.joined, best first; rows: of all runs, in the order of data["runs"]
    """

    data: Json
    groups: Sequence[Sequence[Row]]
    rows: Sequence[Row]

    def verdicts(self, style: Style) -> list[Said]:
        """One for each of data["verdicts"], with the same words."""
        return _verdicts(self.groups, self.rows, style)


def content(  # noqa: PLR0913, PLR0917 - a store, and how it is to be told
    analysis: Analysis,
    metrics: pl.DataFrame,
    tables: Mapping[str, pl.DataFrame],
    title: str,
    price: Price | None,
    version: str,
) -> Content:
    """What the report of these runs says.

    metrics: rows of analysis.metrics; tables: of the store, at least of these runs; version: of
    fairmfu.
    """
    parts = _Parts(analysis, metrics, tables)
    comparison = compare(metrics, parts.windows, price)
    bridges = {run_id: analysis.bridges(run_id) for run_id in metrics["run_id"]}
    rows = joined(metrics, comparison, bridges)
    ranked = sorted(groups(rows), key=_weight)
    place = {row["run_id"]: at for at, row in enumerate(row for group in ranked for row in group)}
    rows.sort(key=lambda row: place.get(row["run_id"], len(rows)))
    found = {row["run_id"]: group for group in ranked for row in group}
    verdicts = _verdicts(ranked, rows, PLAIN_STYLE)
    data: Json = {
        "schema": SCHEMA,
        "title": title,
        "fairmfu": version,
        "formula": FORMULA,
        "counts": {"runs": metrics.height, "logs": parts.sources.height},
        "synthetic": bool(metrics["synthetic"].any()),
        "verdicts": [_said(one) for one in verdicts],
        "groups": [_group(group) for group in ranked],
        "apart": [row["run_id"] for row in rows if row["rank"] is None],
        "to_give": _to_give(rows),
        "runs": {row["run_id"]: _run(row, parts, found.get(row["run_id"], ())) for row in rows},
        "sources": parts.told_sources(),
        "unread": parts.told_unread(),
        "formulas": [
            {"label": label, "formulas": frame.to_dicts()}
            for label, frame in list(analysis.others().items())[:MOST_MODELS]
        ],
        "eras": _eras(rows, analysis.audits),
        "bins": parts.bins,
    }
    return Content(plain(data), ranked, rows)


def as_json(told: Content) -> Json:
    """What `--format json` prints."""
    return told.data


def plain(value: Any) -> Any:  # noqa: ANN401 - whatever JSON can carry, and what it can't
    """As JSON has it: no NaN, no infinity, times in ISO 8601."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.isoformat() if isinstance(value, date | datetime) else value


# --- what is said of groups ---------------------------------------------------------------


def _weight(group: Sequence[Row]) -> tuple[bool, int, int]:
    """Groups that compare the most come first."""
    frameworks = {row["framework"] for row in group}
    return len(group) == 1, -len(frameworks), -len(group)


def _verdicts(ranked: Sequence[Sequence[Row]], rows: Sequence[Row], style: Style) -> list[Said]:
    """One for each group of several runs; where there is none, one that says so."""
    several = [group for group in ranked if len(group) > 1]
    return [verdict(group, style) for group in several] or [_no_verdict(rows, ranked, style)]


def _no_verdict(rows: Sequence[Row], alone: Sequence[Sequence[Row]], style: Style) -> Said:
    """What the first line says where no two runs may be compared."""
    if len(rows) == 2:  # noqa: PLR2004 - a pair
        return between(rows[0], rows[1], style)
    if not rows:
        return Said("", "The store holds no run.", ("Read some with: fairmfu ingest LOG…",))
    if not alone:
        return Said("", NONE_RANKED, (f"What would complete each run stands below; {SET}.",))
    if len(rows) == 1:
        return verdict(alone[0], style)
    says = "No two runs are like for like, so none is faster than another."
    of = counted(len(rows), "run")
    return Said("", says, (f"{len(alone)} of {of} can be ranked, each in a group of its own.",))


def _said(one: Said) -> Json:
    return {
        "label": one.label,
        "says": one.says.replace("all ", "All ", 1) if one.says.startswith("all ") else one.says,
        "notes": list(one.notes),
        "differs": one.differs,
    }


def _group(group: Sequence[Row]) -> Json:
    at = next((row["equal_tokens"] for row in group if row["equal_tokens"]), None)
    return {
        "group": group[0]["group"],
        "runs": [row["run_id"] for row in group],
        "frameworks": sorted({str(row["framework"]) for row in group}),
        "synthetic": all(row["synthetic"] for row in group),
        "equal_tokens": at,
        "equal_flops": group[0]["equal_flops"],
    }


def _to_give(rows: Iterable[Row]) -> list[Json]:
    """Facts that runs without a rank lack, with what each is."""
    asked = dict.fromkeys(name for row in rows if row["rank"] is None for name in lacks(row))
    return [{"name": name, "meaning": _meaning(name)} for name in asked]


def lacks(row: Row) -> list[str]:
    """Names of the facts that would complete a run."""
    unknown = [name for name in SAME_WORK if name in METRICS and row[name] is None]
    asked = dict.fromkeys([*row["missing"], *unknown])
    return [name for name in asked if name in FACT_NAMES and name != "params_total"]


def _meaning(name: str) -> str:
    """What a fact is, its unit, and the words that it may be."""
    fact = FACT_NAMES[name]
    unit = f" [{fact.unit}]" if fact.unit else ""
    return f"{fact.meaning}{unit}" + (f": {', '.join(fact.choices)}" if fact.choices else "")


def _eras(rows: Sequence[Row], audits: Mapping[str, Audit]) -> list[Json]:
    """Own formulas of frameworks that the logs print by, each with the runs of it."""
    of: dict[str, tuple[Era, list[str]]] = {}
    for row in rows:
        era = audits[row["run_id"]].era
        if era is not None and any(row[name] is not None for name in bridge.UNITS):
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
    """The frames of a store by run, cut once: a filter per run over all of them would be slow."""

    def __init__(
        self, analysis: Analysis, metrics: pl.DataFrame, tables: Mapping[str, pl.DataFrame]
    ) -> None:
        ids = metrics["run_id"].implode()
        self.audits = analysis.audits
        self.windows = analysis.windows.filter(pl.col("run_id").is_in(ids))
        self.bins = bins_of(metrics.height)
        self.of_windows = _by_run(self.windows)
        self.of_facts = _by_run(analysis.held.filter(pl.col("run_id").is_in(ids)))
        lead = {of: row["run_id"] for row in metrics.to_dicts() for of in row["members"]}
        self.of_events = _by_run(_placed(_of_leads(tables["events"], lead), self.windows))
        self.of_metrics = _by_run(metrics)
        self.sources = tables["sources"].sort("path", "sha256")
        self.place = {path: at for at, path in enumerate(self.sources["path"])}
        self.unread = tables["unread"].sort("sha256", "line")

    def told_sources(self) -> list[Json]:
        """How much of each log was read; the kinds of lines that no pattern knows."""
        return self.sources.drop("read_at").to_dicts()

    def told_unread(self) -> list[Json]:
        """The first lines of each source that could not be read, by its place in the sources."""
        place = {sha256: at for at, sha256 in enumerate(self.sources["sha256"])}
        first = self.unread.group_by("sha256", maintain_order=True).head(MOST_UNREAD)
        told = [
            {"source": place[row.pop("sha256")], **row}
            for row in first.to_dicts()
            if row["sha256"] in place
        ]
        return sorted(told, key=lambda row: (row["source"], row["line"]))


def _by_run(frame: pl.DataFrame) -> dict[str, pl.DataFrame]:
    cut = frame.partition_by("run_id", as_dict=True, maintain_order=True)
    return {str(key[0]): part for key, part in cut.items()}


def bins_of(runs: int) -> int:
    """Bins of steps that one of so many runs is drawn with, so that a page of many stays small."""
    if runs <= FEW_RUNS:
        return charts.MOST_BINS
    return max(FEWEST_BINS, charts.MOST_BINS * FEW_RUNS // runs)


def _of_leads(frame: pl.DataFrame, lead: Mapping[str, str]) -> pl.DataFrame:
    """Rows of a launch's sources under the id of the launch."""
    of = pl.col("run_id").replace_strict(lead, default=None, return_dtype=pl.String)
    return frame.with_columns(run_id=of).filter(pl.col("run_id").is_not_null())


def _placed(events: pl.DataFrame, windows: pl.DataFrame) -> pl.DataFrame:
    """Events with `at`: the step that they say, or that of the last step line before them."""
    lines = windows.select("run_id", "line", before="step").sort("line")
    return (
        events.filter(pl.col("kind").is_in(MARKED))
        .sort("line")
        .join_asof(lines, on="line", by="run_id", check_sortedness=False)
        .with_columns(at=pl.coalesce("step", "before"))
        .sort("run_id", "line")
    )


def _run(row: Row, parts: _Parts, group: Sequence[Row]) -> Json:
    """All that is said of one run; group: the rows that it is ranked with."""
    run_id, audit = row["run_id"], parts.audits[row["run_id"]]
    facts = parts.of_facts.get(run_id)
    held = [] if facts is None else facts.to_dicts()
    operators = operator_table({fact["name"]: fact for fact in held}, row)
    events = parts.of_events.get(run_id)
    return {
        **{name: row.get(name) for name in (*METRICS, *COMPARISON)},
        "label": row["label"],
        **{f"mfu_{how}": row.get(name) for how, name in CONVENTIONS.items()},
        **_tflops(row),
        "peak_tflops": None if row["peak_flops"] is None else row["peak_flops"] / 1e12,
        "peak_source": row.get("peak_source"),
        "claim": _claim(row),
        "audit": dict(zip(("word", "why"), bridge.verdict(audit), strict=True)),
        "causes": bridge.reasons(row["bridges"][0]) if row["bridges"] else [],
        "words": _words(row, audit, group),
        "facts": [_fact(fact) for fact in held],
        "operators": operators.to_dicts(),
        "bridges": [_bridge(one) for one in row["bridges"]],
        "time": course.time_rows(row),
        "series": _series(row, parts),
        "events": [] if events is None else _events(events),
        "event_counts": [] if events is None else _event_counts(events),
        "complete_with": [
            {
                "name": name,
                "meaning": _meaning(name),
                "command": f"fairmfu set {run_id} {name}={_example(name)}",
            }
            for name in lacks(row)
        ],
        "source_places": [parts.place[path] for path in row["sources"] if path in parts.place],
    }


def _example(name: str) -> str:
    """What stands behind the = of a command."""
    return "|".join(FACT_NAMES[name].choices) or "…"


def _tflops(row: Row) -> Json:
    full = row["flops_per_token_full_attention"]
    known = row["tgs"] is not None and full is not None
    return {
        "tflops_exact": row["tflops"],
        "tflops_full": row["tgs"] * full / 1e12 if known else None,
    }


def _claim(row: Row) -> Json | None:
    """What the log printed beside ours: TFLOP/s, or else MFU, or TGS; None where it prints none."""
    names = ("logged_tflops", "logged_mfu", "logged_tgs")
    figure = next((name for name in names if row[name] is not None), None)
    if figure is None:
        return None
    if figure == "logged_mfu":
        ours = {how: row.get(name) for how, name in CONVENTIONS.items()}
    elif figure == "logged_tgs":
        ours = dict.fromkeys(CONVENTIONS, row["tgs"])
    else:
        tflops = _tflops(row)
        ours = {how: tflops[f"tflops_{how.partition('_')[0]}"] for how in CONVENTIONS}
    return {
        "figure": figure,
        "unit": bridge.UNITS[figure].text,
        "logged": row[figure],
        **{f"ours_{how}": value for how, value in ours.items()},
        **{f"ratio_{how}": row[figure] / value if value else None for how, value in ours.items()},
    }


def _words(row: Row, audit: Audit, group: Sequence[Row]) -> Json:
    """Sentences on one run."""
    return {
        "went": course.how_it_went(row),
        "sure": course.sureness(row),
        "end_to_end": course.end_to_end_words(row),
        "goodput": course.goodput_words(row),
        "claim": bridge.sentence(row, audit, row["bridges"]),
        "proof": bridge.proof(audit),
        "differs": _what_differs(row, group),
    }


def _what_differs(row: Row, group: Sequence[Row]) -> str:
    """The run's own side of what is not the same in its group."""
    names = [name for name in varying(group) if name != "framework"]
    said = [f"{LABELS.get(n, n)} {'unknown' if row[n] is None else written(row[n])}" for n in names]
    return ", ".join(said)


def _fact(fact: Row) -> Json:
    """name, value, unit, origin, line and the line's text, where one says so."""
    known = FACT_NAMES.get(fact["name"])
    return {
        "name": fact["name"],
        "value": fact["value"],
        "unit": known.unit if known else "",
        "origin": fact["origin"],
        "line": fact["line"],
        "text": fact.get("text"),
    }


def _bridge(one: Bridge) -> Json:
    return {
        "figure": one.figure,
        "name": bridge.UNITS[one.figure].name,
        "unit": bridge.UNITS[one.figure].text,
        "logged": one.logged,
        "ours": one.ours,
        "explained": one.explained,
        "steps": bridge.steps(one).to_dicts(),
    }


def _series(row: Row, parts: _Parts) -> list[Json]:
    """The course of a run in bins of steps: reports.charts.binned."""
    mine = parts.of_windows.get(row["run_id"])
    if mine is None:
        return []
    found = charts.binned(mine, parts.of_metrics[row["run_id"]], parts.bins)
    return found.drop("run", "framework").to_dicts()


def _events(events: pl.DataFrame) -> list[Json]:
    return events.head(MOST_EVENTS).select("kind", "line", "at", "seconds", "text").to_dicts()


def _event_counts(events: pl.DataFrame) -> list[Json]:
    """How often each kind happened, the commonest first, and the seconds that the log prints."""
    return (
        events.group_by("kind", maintain_order=True)
        .agg(count=pl.len(), seconds=pl.col("seconds").sum(), first=pl.col("at").first())
        .sort("count", descending=True, maintain_order=True)
        .to_dicts()
    )
