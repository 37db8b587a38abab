"""Runs as records for trackers: series over steps, figures, facts and texts.

    log/...       figures that the log printed at a step, by ingest.core.schema.STEP_COLUMNS
    fairmfu/...   our figures of the same window
    run/...       figures of the whole run, by the columns of metrics.core.run_table.METRICS

Frames in, frames out; a module per tracker writes its files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from typing import Final

import polars as pl

from fairmfu.ingest.core.progress import note_progress
from fairmfu.ingest.core.schema import FACT_NAMES, FLOAT, INT, STEP_COLUMNS
from fairmfu.metrics.core.run_arrays import MICROSECONDS_PER_SECOND
from fairmfu.metrics.core.run_table import (
    METRICS,
    MetricsRow,
    metrics_rows,
    not_null,
    value_of,
)
from fairmfu.metrics.pipeline.analysis import Analysis
from fairmfu.metrics.pipeline.reported_runs import ReportedRuns
from fairmfu.metrics.runs.step_bins import WINDOW_COUNTED, rate_windows
from fairmfu.metrics.throughput.resolved_facts import SETUP_FACTS

from ..page.redaction import Redaction

LOG_PREFIX, OURS_PREFIX, RUN_PREFIX = "log/", "fairmfu/", "run/"

TRACKER_NAMES: Final[Mapping[str, str]] = {
    "mfu": "mfu_exact_attention",
    "mfu_bf16": "mfu_bf16_exact_attention",
    "flops_per_token": "flops_per_token_exact_attention",
}
"""Columns whose name omits the convention; a tracker needs the convention in the name."""

OUR_SERIES: Final[Mapping[str, tuple[str, str]]] = {
    "tgs": ("tokens/s/GPU", "tokens of the window / its time"),
    "mfu_exact_attention": (
        "",
        "TGS x F / P of the run, a fraction; pairs that the mask allows",
    ),
    "mfu_full_attention": ("", "the same with full attention, all pairs"),
    "tflops_exact_attention": ("TFLOP/s/GPU", "TGS x F"),
    "tflops_full_attention": (
        "TFLOP/s/GPU",
        "the same with full attention, all pairs",
    ),
    "seconds_per_step": ("s", "time of the window / its steps, by the time basis of the run"),
    "steady": ("", "1 if the window counts in the TGS of the run, 0 if it is excluded"),
}
"""Our series: unit and meaning."""

LOGGED_COLUMNS: Final = tuple(
    name
    for name, column in STEP_COLUMNS.items()
    if column.dtype in (INT, FLOAT) and name not in ("line", "step")
)
"""Numeric columns of step lines."""

EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - as the stamps of a store, without a zone


@dataclass(frozen=True, slots=True)
class TrackerRecord:
    """Run for trackers.

    series: `step`, `at` [s since 1970] and a Float64 column per tag, sorted by step; null is a step
        without a value, NaN and infinities are as the log printed them
    figures: of the whole run
    facts: the formula's inputs; origins: the source of each fact
    texts: all other information on the run
    """

    run_id: str
    name: str
    outcome: str
    started_at: float
    series: pl.DataFrame
    figures: Mapping[str, float]
    facts: Mapping[str, str]
    origins: Mapping[str, str]
    texts: Mapping[str, str]

    @property
    def tags(self) -> list[str]:
        """Tags of the series."""
        return self.series.columns[2:]

    @property
    def last(self) -> tuple[int, float]:
        """Last step and its time [s since 1970]; without steps, 0 and the start."""
        if self.series.is_empty():
            return 0, self.started_at
        step, at = self.series.select("step", "at").row(-1)
        return int(step), float(at)

    def points(self, tag: str) -> pl.DataFrame:
        """Return `step`, `at` and `value` of one series, without nulls."""
        return self.series.select("step", "at", value=tag).drop_nulls("value")


def tracker_records(
    analysis: Analysis | ReportedRuns,
    metrics: pl.DataFrame,
    steps: pl.DataFrame,
    runs: pl.DataFrame,
) -> list[TrackerRecord]:
    """Return a record per run, in the order of `metrics`.

    metrics: rows of METRICS; steps, runs: as in ingest.core.schema, of all sources
    """
    note_progress("Writing runs")
    zones = dict(runs.select("run_id", "utc").iter_rows())
    windows, lines = _by_run(analysis.windows), _by_run(steps)
    rates = _by_run(rate_windows(analysis.windows, metrics))
    found = []
    for row in metrics_rows(metrics):
        mine = windows(row["run_id"])
        told_by = pl.concat(map(lines, dict.fromkeys([row["run_id"], *row["members"]])))
        series = _series(row, mine, rates(row["run_id"]), _extra_columns(told_by))
        about = {"zone_of_times": "UTC" if zones.get(row["run_id"]) else NO_ZONE_TEXT}
        found.append(_record(analysis, row, series, about, _start(row, mine)))
    return found


def _by_run(frame: pl.DataFrame) -> Callable[[str], pl.DataFrame]:
    """Return a function from run_id to its rows, empty for an unknown run."""
    parts = frame.partition_by("run_id", as_dict=True)
    return lambda run_id: parts.get((run_id,), frame.clear())


def _record(
    analysis: Analysis | ReportedRuns,
    row: MetricsRow,
    series: pl.DataFrame,
    about: Mapping[str, str],
    start: float,
) -> TrackerRecord:
    facts = analysis.facts(row["run_id"])
    return TrackerRecord(
        run_id=row["run_id"],
        name=row["name"],
        outcome=not_null(row["outcome"]),
        started_at=start,
        series=series,
        figures=dict(_figures(row)),
        facts={name: fact["value"] for name, fact in facts.items()},
        origins={name: fact["origin"] for name, fact in facts.items()},
        texts={**dict(_texts(row)), **about},
    )


NO_ZONE_TEXT: Final = "none logged: time stamps are read as UTC"


def redact_records(runs: Sequence[TrackerRecord], redaction: Redaction) -> list[TrackerRecord]:
    """Return the runs with confidential text replaced; `redaction` collects the text."""
    worded = [(run.name, run.facts, run.origins, run.texts) for run in runs]
    redaction.scan(worded)
    return [
        replace(run, name=name, facts=facts, origins=origins, texts=texts)
        for run, (name, facts, origins, texts) in zip(runs, redaction.redact(worded), strict=True)
    ]


# -- series ------------------------------------------------------------------------------------


def _series(
    row: MetricsRow, windows: pl.DataFrame, rates: pl.DataFrame, beside: pl.DataFrame
) -> pl.DataFrame:
    """Return the series of a run (TrackerRecord.series), without empty tags."""
    if windows.is_empty():
        return pl.DataFrame(schema={"step": INT, "at": FLOAT})
    both = windows.join(
        rates.select("step", "span", "tokens", "seconds", "window"), on="step", how="left"
    ).join(beside, on="step", how="left")
    at = _times(both, row)
    printed = [pl.col(name).cast(FLOAT).alias(_log_tag(name)) for name in _printed(both)]
    every = both.select("step", at.alias("at"), *printed, *_recomputed(row)).sort("step")
    empty = [name for name in every.columns[2:] if every[name].null_count() == every.height]
    return every.drop(empty)


def _printed(frame: pl.DataFrame) -> list[str]:
    columns = [name for name in LOGGED_COLUMNS if name in frame.columns]
    return [*columns, *(name for name in frame.columns if name.startswith(EXTRA_PREFIX))]


EXTRA_PREFIX: Final = "extra/"
"""Beginning of the tags of printed fields without a column."""


def _log_tag(column: str) -> str:
    return LOG_PREFIX + column.removeprefix("logged_")


def _recomputed(row: MetricsRow) -> Iterator[pl.Expr]:
    """Yield the series of OUR_SERIES from the window's tokens and seconds on one GPU."""
    tgs = pl.col("tokens") / pl.col("seconds")
    tgs = pl.when(tgs.is_finite()).then(tgs)
    yield tgs.alias(f"{OURS_PREFIX}tgs")
    for kind, mfu, flops in (
        ("exact_attention", row["mfu"], row["flops_per_token"]),
        ("full_attention", row["mfu_full_attention"], row["flops_per_token_full_attention"]),
    ):
        share = mfu / row["tgs"] if mfu is not None and row["tgs"] else None
        yield (tgs * pl.lit(share, FLOAT)).alias(f"{OURS_PREFIX}mfu_{kind}")
        yield (tgs * pl.lit(flops, FLOAT) / 1e12).alias(f"{OURS_PREFIX}tflops_{kind}")
    each = pl.col("seconds") / pl.col("span")
    yield (
        pl.when(_in_seconds(row) & each.is_finite())
        .then(each)
        .alias(f"{OURS_PREFIX}seconds_per_step")
    )
    timed = pl.lit(row["time_basis"]).is_not_null()
    yield (
        pl.when(timed)
        .then((pl.col("window") == WINDOW_COUNTED).cast(FLOAT))
        .alias(f"{OURS_PREFIX}steady")
    )


def _times(frame: pl.DataFrame, row: MetricsRow) -> pl.Expr:
    """Return the time of each step in seconds since 1970.

    The stamp, else the time since the start. A missing stamp is replaced by the one of the step
    before. For a log without any date the start is 1970 itself.
    """
    stamped = (pl.col("logged_at") - EPOCH).dt.total_microseconds() / MICROSECONDS_PER_SECOND
    if frame["logged_at"].null_count() < frame.height:
        return stamped.forward_fill().backward_fill()
    took = pl.when(_in_seconds(row)).then("seconds").fill_null(0.0).fill_nan(0.0)
    return pl.coalesce("since_start_s", took.cum_sum()) + _start(row, frame)


def _in_seconds(row: MetricsRow) -> pl.Expr:
    """Return whether a window's time is in seconds.

    With unknown tokens, a rate gives the time of one token a step.
    """
    return pl.col("tokens_per_gpu").is_not_null() | pl.lit(row["time_basis"] != "rate")


def _seconds(moment: datetime) -> float:
    return moment.replace(tzinfo=UTC).timestamp()


def _start(row: MetricsRow, windows: pl.DataFrame) -> float:
    """Return the start of a run: its first dated stamp, else 1970."""
    stamps = windows["logged_at"].drop_nulls()
    first = row["started_at"] or (stamps[0] if len(stamps) else EPOCH)
    return _seconds(first)


def _extra_columns(lines: pl.DataFrame) -> pl.DataFrame:
    """Return `step` and values missing from windows: other columns, other numbers.

    Of several lines of a step, the first with a value.
    """
    mine = lines.with_columns(_extra(lines["extra"]))
    names = [n for n in mine.columns if n in EXTRA_STEP_COLUMNS or n.startswith(EXTRA_PREFIX)]
    first = (pl.col(name).drop_nulls().first() for name in names)
    return mine.sort("line").group_by("step").agg(*first)


EXTRA_STEP_COLUMNS: Final = ("epoch", "loss_scale")


def _extra(texts: pl.Series) -> pl.DataFrame:
    """Return numbers of the printed fields without a column.

    Their columns begin with EXTRA_PREFIX.
    """
    numbers = [dict(_numbers(text)) for text in texts]
    tags = _unique_tags(dict.fromkeys(name for of in numbers for name in of))
    return pl.DataFrame(
        {tag: [of.get(name) for of in numbers] for name, tag in tags.items()},
        schema_overrides=dict.fromkeys(tags.values(), FLOAT),
    )


def _numbers(text: str | None) -> Iterator[tuple[str, float]]:
    for name, value in json.loads(text or "{}").items():
        with suppress(TypeError, ValueError):
            yield name, float(value)


def _unique_tags(names: Iterable[str]) -> dict[str, str]:
    """Return a unique tag per field, even if names differ only in signs."""
    tags: dict[str, str] = {}
    for name in names:
        tag, taken = file_name(name), {one.lower() for one in tags.values()}
        number = next(n for n in count(1) if f"{EXTRA_PREFIX}{_nth(tag, n)}".lower() not in taken)
        tags[name] = EXTRA_PREFIX + _nth(tag, number)
    return tags


def _nth(tag: str, number: int) -> str:
    return tag if number == 1 else f"{tag}-{number}"


# -- figures and texts -------------------------------------------------------------------------

IDENTITY: Final = ("run_id", "name", "launch")


def _figures(row: MetricsRow) -> Iterator[tuple[str, float]]:
    """Yield numeric results of a row of METRICS, and the seconds lost to each cause."""
    for name, dtype in METRICS.items():
        number = dtype in (INT, FLOAT) and name not in (*SETUP_FACTS, *IDENTITY, "seq_len")
        value = value_of(row, name)
        if number and value is not None:
            yield RUN_PREFIX + TRACKER_NAMES.get(name, name), float(value)
    for lost in row["time_lost"] or []:
        yield f"{RUN_PREFIX}time_lost_s/{file_name(lost['cause'])}", float(lost["seconds"])


def _texts(row: MetricsRow) -> Iterator[tuple[str, str]]:
    for name, dtype in METRICS.items():
        value = value_of(row, name)
        records = isinstance(dtype, pl.List) and isinstance(dtype.inner, pl.Struct)
        if value in (None, []) or dtype in (INT, FLOAT) or records:
            continue
        yield name, "; ".join(map(str, value)) if isinstance(value, list) else str(value)


def file_name(name: str) -> str:
    """Return a name that is a file on any disk and a tag in any tracker.

    Letters, digits, `_`, `-`, `.`; never empty, hidden, or a path to another folder.
    """
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name)[:100].strip("._") or "_"


def fact_value(name: str, value: str) -> str | float | bool:
    """Return a fact as a number or a boolean if possible, else as text."""
    kind = FACT_NAMES[name].kind if name in FACT_NAMES else "text"
    if kind == "bool" and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if kind in ("int", "float"):
        with suppress(ValueError):
            number = float(value)
            return int(number) if kind == "int" and number.is_integer() else number
    return value


def run_card_markdown(run: TrackerRecord) -> str:
    """Return the run as Markdown: figures, facts with their origins, texts."""
    parts = (
        ("figure", "value", ((name, _number(value), "") for name, value in run.figures.items())),
        ("fact", "value", ((n, value, run.origins[n]) for n, value in run.facts.items())),
        ("of the run", "", ((name, text, "") for name, text in run.texts.items())),
    )
    return "\n\n".join(_table(*part) for part in parts)


def _table(name: str, value: str, rows: Iterator[tuple[str, str, str]]) -> str:
    lines = [f"| {name} | {value} | origin |", "| --- | --- | --- |"]
    return "\n".join([*lines, *(f"| {' | '.join(map(_cell, row))} |" for row in rows)])


def _number(value: float) -> str:
    return f"{value:,.0f}" if value.is_integer() else f"{value!r}"


def _cell(text: str) -> str:
    """Return text on one line, with escaped cell separators."""
    return " ".join(text.replace("|", "\\|").split())
