"""Merge the sources of a launch: one run, with its steps, events and facts once.

A column comes from the source with the finest print, a fact from the source with the preferred
origin. Events of all sources are placed by step; an event in several sources counts once.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import polars as pl

from fairmfu.ingest.core.schema import COUNTED_RANKS_SUFFIX

from ..core.arrays import BoolArray, IntArray
from ..core.print_precision import digits_by
from ..throughput.windows import MOMENT_COLUMNS, PRINTED_TIME_COLUMNS

COLUMN_GROUPS: Final = (
    ("elapsed_s", "data_s"),
    ("logged_tgs", "logged_samples_per_second", "logged_tflops", "logged_mfu"),
    ("logged_at",),
    ("rank_tokens", "rank_slots", "attention_ratio"),
    ("image_tokens", "image_attention_ratio"),
)
"""Columns that only make sense together: a launch takes each group from sources of one format."""

EVIDENCE_COLUMNS: Final = {
    kind: PRINTED_TIME_COLUMNS.get(kind) or (MOMENT_COLUMNS[kind],)
    for kind in ("elapsed", "rate", "clock", "stamp")
}
"""Columns of each kind of time evidence."""


FAILURE_EVENTS: Final = ("error", "out_of_memory", "killed")
"""Kinds of events that are separate in each source, even at one step: each rank ends by itself."""

STEP_IS_OWN: Final = "engine_step"
"""Kind of event with a step of its own, not the step before the event."""


def merge_sources(
    tables: Mapping[str, pl.DataFrame], members: Mapping[str, Sequence[Mapping[str, Any]]]
) -> dict[str, pl.DataFrame]:
    """Return the tables with one run per launch, under the run_id of the lead.

    tables: `runs`, `steps`, `events`, `facts` as in ingest.core.schema; other tables stay
    members: run_id of the lead to the rows of `runs` of all its sources, the lead first
    """
    lead_of = {row["run_id"]: lead for lead, rows in members.items() for row in rows}
    several = {lead: rows for lead, rows in members.items() if len(rows) > 1}
    sources = pl.DataFrame(
        [
            {"run_id": row["run_id"], "lead": lead, "place": place, "told_by": row["log_format"]}
            for lead, rows in several.items()
            for place, row in enumerate(rows)
        ]
    )
    alone = ~pl.col("run_id").is_in(sources["run_id"].implode())
    own = _finest_clock(tables["steps"].join(sources, on="run_id", maintain_order="left"))
    taken = _formats_of_groups(own, sources)
    formats = {row["lead"]: row for row in taken.iter_rows(named=True)}
    tops = dict(tables["steps"].group_by("run_id").agg(pl.col("step").max()).iter_rows())
    united = [_one_run(rows, formats[lead], tops) for lead, rows in several.items()]
    runs = pl.DataFrame(united, schema=tables["runs"].schema)
    timed = _timed_steps(own, taken, {row["run_id"]: row["evidence"] for row in united})
    steps = _merged_steps(timed, own, taken).select(tables["steps"].columns)
    return {
        **tables,
        "runs": pl.concat([tables["runs"].filter(alone), runs]),
        "steps": pl.concat([tables["steps"].filter(alone), steps]).sort(
            "run_id", "line", maintain_order=True
        ),
        "events": _events(tables["events"], own, steps, sources, several),
        "facts": _with_all_ranks(_facts(tables["facts"], members, lead_of), steps),
    }


def _finest_clock(steps: pl.DataFrame) -> pl.DataFrame:
    """Keep the seconds since the start of one source per format, the finest.

    A second, rounding source would be later at one step and earlier at the next. Steps missing from
    the finest source get the value of the next source of about the same precision.

    steps: as for `_formats_of_groups`
    """
    told = steps.filter(pl.col("since_start_s").is_not_null())
    by = ["lead", "told_by", "place"]
    decimals = pl.col("since_start_s_decimals")
    fine = (
        digits_by(told, by, ("since_start_s",))
        .filter(decimals >= decimals.max().over(by[:2]) - 1)  # a last digit may be 0 by chance
        .sort("since_start_s_significant", "place", descending=[True, False])
        .select(*by, order=pl.int_range(pl.len()))
    )
    told_order = pl.when(pl.col("since_start_s").is_not_null()).then("order")
    found = steps.join(fine, on=by, how="left", maintain_order="left").with_columns(told_order)
    its = found.select(pl.col("order") == pl.col("order").min().over("lead", "told_by", "step"))
    return steps.with_columns(since_start_s=pl.when(its.to_series()).then("since_start_s"))


def _formats_of_groups(steps: pl.DataFrame, sources: pl.DataFrame) -> pl.DataFrame:
    """Return per lead the format that supplies each column of COLUMN_GROUPS.

    The format with the most steps, then the most digits, then the first source. steps: with the
    columns of `sources`: lead, place and told_by
    """
    by = ["lead", "told_by"]
    formats = sources.group_by(by, maintain_order=True).agg(pl.col("place").min())
    taken = sources.select("lead").unique(maintain_order=True)
    for group in COLUMN_GROUPS:
        numbers = [name for name in group if steps.schema[name].is_numeric()]
        told = steps.filter(pl.any_horizontal(pl.col(*group).is_not_null()))
        digits = digits_by(told, by, numbers).select(
            *by, fine=pl.max_horizontal(0, *(f"{name}_significant" for name in numbers))
        )
        best = (
            formats.join(told.group_by(by).agg(pl.col("step").n_unique()), on=by, how="left")
            .join(digits, on=by, how="left")
            .with_columns(pl.col("step", "fine").fill_null(0))
            .sort("lead", "step", "fine", "place", descending=[False, True, True, False])
            .group_by("lead")
            .agg(*(pl.col("told_by").first().alias(name) for name in group))
        )
        taken = taken.join(best, on="lead", maintain_order="left")
    return taken


def _timed_steps(
    steps: pl.DataFrame, taken: pl.DataFrame, evidence: Mapping[str, Sequence[str]]
) -> pl.DataFrame:
    """Return the steps of the format with a lead's preferred time evidence.

    Steps of other formats would cut the windows, including the first window with the start-up. All
    steps if no source has evidence.
    """
    by = ("lead", "told_by")
    giving: dict[tuple[str, str], list[str]] = {}
    for kind, columns in EVIDENCE_COLUMNS.items():
        told = steps.filter(pl.any_horizontal(pl.col(*columns).is_not_null()))
        if columns[0] in taken.columns:
            told = taken.select("lead", told_by=columns[0]).join(told, on="lead", how="semi")
        for lead, told_by in told.select(by).unique().iter_rows():
            giving.setdefault((lead, kind), []).append(told_by)
    timers = [
        (lead, told_by)
        for lead, kinds in evidence.items()
        for told_by in next((giving[lead, kind] for kind in kinds if (lead, kind) in giving), ())
    ]
    timing = pl.DataFrame(timers, schema=dict.fromkeys(by, pl.String), orient="row")
    told = steps.select(*by, "step")
    kept = [told.join(timing, on=by, how="semi"), told.join(timing, on="lead", how="anti")]
    return steps.join(pl.concat(kept), on=["lead", "step"], how="semi")


def _merged_steps(rows: pl.DataFrame, steps: pl.DataFrame, taken: pl.DataFrame) -> pl.DataFrame:
    """Return a row per lead, step and rank, each column from its best source.

    A source without a rank counts as the lowest rank, the usual writer of such files. Copies of a
    step with the same rank become one. `line` is the lead's at this step, or the next line of the
    lead, for placing its events.

    rows: kept rows of `steps`; steps, taken: as for and from `_formats_of_groups`
    """
    whose = ("run_id", "step", "rank", "line", "lead", "place", "told_by")
    columns = [name for name in steps.columns if name not in whose]
    grouped = [name for group in COLUMN_GROUPS for name in group]
    floats = [name for name in columns if name not in grouped and steps.schema[name].is_float()]
    fine = digits_by(steps, ["run_id"], floats).select(
        "run_id", pl.col([f"{name}_significant" for name in floats]).cast(pl.Int8)
    )
    rows = (
        rows.join(taken, on="lead", suffix="_from")
        .with_columns(
            pl.when(pl.col("told_by") == pl.col(f"{name}_from")).then(name) for name in grouped
        )
        .select(steps.columns)
        .join(fine, on="run_id")
        .with_columns(pl.col("rank").fill_null(_lowest_ranks(steps)))
        .sort("lead", "step", "place", "line", maintain_order=True)
    )
    picks = []
    for name in columns:
        mine = pl.col(name)
        if name in floats:  # rows stay in the order of the sources where equal
            mine = mine.sort_by(f"{name}_significant", descending=True, maintain_order=True)
        picks.append(mine.drop_nulls().first())
    line = pl.col("line").filter(pl.col("run_id") == pl.col("lead")).first()
    return (
        rows.group_by("lead", "step", "rank", maintain_order=True)
        .agg(line, *picks)
        .with_columns(pl.col("line").backward_fill().forward_fill().over("lead"))
        .rename({"lead": "run_id"})
    )


def _events(
    events: pl.DataFrame,
    source_steps: pl.DataFrame,
    steps: pl.DataFrame,
    sources: pl.DataFrame,
    several: Mapping[str, Sequence[Mapping[str, Any]]],
) -> pl.DataFrame:
    """Return per launch the events of all its sources, without duplicates.

    The lead's events stay in place. Events of other sources, and the lead's after its last line if
    others print later steps, get the `step` after which they happened: as printed, or of the line
    before in their source. Their `line` is the lead's at the next step; `text` names the original
    source and line.

    source_steps: of all sources; steps: of the launches, as in ingest.core.schema; sources: as for
        `_formats_of_groups`
    """
    of = events.join(sources, on="run_id", how="left", maintain_order="left")
    alone = of.filter(pl.col("place").is_null()).select(events.columns)
    united = of.filter(pl.col("place").is_not_null())
    if united.is_empty():
        return alone
    leads = steps.group_by(lead="run_id", at="step").agg(pl.col("line").min()).sort("at")
    last = leads.group_by("lead").agg(end=pl.col("line").max() + 1, top=pl.col("at").max())
    around = _between_lines(united, source_steps).join(last, on="lead", maintain_order="left")
    stays = (pl.col("place") == 0) & (
        pl.col("next").is_not_null() | (pl.col("low") >= pl.col("top"))
    )
    around = _without_copies(around)
    names = {row["run_id"]: row["name"] for rows in several.values() for row in rows}
    own_step = pl.col("kind") == STEP_IS_OWN
    placed = (
        around.filter(~stays)
        .with_columns(
            text=pl.format(
                "{} (line {} of {})", "text", "line", pl.col("run_id").replace_strict(names)
            ),
            step=pl.when(own_step).then("step").otherwise(pl.col("behind").clip(0)),
            at=pl.col("behind") + 1,
        )
        .drop("line")
        .sort("at", maintain_order=True)
        .join_asof(leads, on="at", by="lead", strategy="forward", check_sortedness=False)
        .with_columns(pl.col("line").fill_null(pl.col("end")), run_id="lead")
    )
    kept = [alone, around.filter(stays), placed]
    return pl.concat([part.select(events.columns) for part in kept]).sort(
        "run_id", "line", maintain_order=True
    )


def _between_lines(events: pl.DataFrame, source_steps: pl.DataFrame) -> pl.DataFrame:
    """Add to events the steps of the lines around, and the step before the event.

    before, next: step of the line before and after the event in its source; null if there is no
        line
    behind: the step after which the event happened; low, high: first and last possible value
    """
    lines = source_steps.select("run_id", "line", "step").sort("line")
    around = (
        events.sort("line", maintain_order=True)
        .join_asof(
            lines.rename({"step": "before"}),
            on="line",
            by="run_id",
            allow_exact_matches=False,
            check_sortedness=False,
        )
        .join_asof(
            lines.rename({"step": "next"}),
            on="line",
            by="run_id",
            strategy="forward",
            check_sortedness=False,
        )
    )
    before = pl.col("before").fill_null(-1)
    most = pl.max_horizontal(pl.col("next") - 1, before)  # one of several ranks may lag
    most = pl.when(pl.col("next").is_not_null()).then(most)
    behind = pl.min_horizontal(pl.max_horizontal("step", before), most)
    said = pl.col("step").is_not_null()
    return around.with_columns(
        behind=behind,
        low=pl.when(said).then(behind).otherwise(before),
        high=pl.when(said).then(behind).otherwise(pl.max_horizontal("next", before)),
    )


def _without_copies(events: pl.DataFrame) -> pl.DataFrame:
    """Return the events without copies from later sources: same kind and step.

    events: with `low` and `high`, as `_between_lines`; `place`: of their source
    """
    shared = ~pl.col("kind").is_in(FAILURE_EVENTS)
    several = pl.col("place").n_unique().over("lead", "kind") > 1
    asked = events.with_row_index("event").filter(shared & several)
    again: list[int] = []
    for _, group in asked.group_by("lead", "kind"):
        earlier = np.empty((2, 0), np.int64)
        for _, part in group.sort("place").group_by("place", maintain_order=True):
            spans = part.select("low", "high").to_numpy().T
            met = _overlap(earlier, spans)
            again += part["event"].filter(pl.Series(met)).to_list()
            earlier = np.concatenate([earlier, spans[:, ~met]], axis=1)
    return events.filter(~pl.int_range(pl.len()).is_in(again))


def _overlap(earlier: IntArray, spans: IntArray) -> BoolArray:
    """Return the spans that share a step with an earlier span.

    earlier, spans: rows of first steps and of last steps
    """
    if not earlier.size:
        return np.zeros(spans.shape[1], np.bool_)
    order = np.argsort(earlier[0], kind="stable")
    lows, highs = earlier[0][order], np.maximum.accumulate(earlier[1][order])
    begun = lows.searchsorted(spans[1], "right")  # earlier spans that begin before the span ends
    return np.asarray((begun > 0) & (highs[np.maximum(begun, 1) - 1] >= spans[0]))


def _lowest_ranks(steps: pl.DataFrame) -> pl.Expr:
    """Return the lowest rank stated by a row's lead, else by the other sources.

    Null if no source states a rank.
    """
    said = steps.filter(pl.col("rank").is_not_null())
    others, own = (
        said.filter((pl.col("run_id") == pl.col("lead")) == leads) for leads in (False, True)
    )
    lowest: dict[str, str] = {}
    for some in (others, own):  # the lead's ranks win
        ranks: dict[str, str] = {}
        for lead, rank in some.select("lead", "rank").unique().iter_rows():
            ranks[lead] = min(ranks.get(lead, rank), rank, key=_rank_order)
        lowest |= ranks
    return pl.col("lead").replace_strict(lowest, default=None, return_dtype=pl.String)


def _rank_order(rank: str) -> tuple[int, str]:
    return (int(rank) if rank.isdigit() else 0, rank)


def _one_run(
    rows: Sequence[Mapping[str, Any]], taken: Mapping[str, str], tops: Mapping[str, int]
) -> dict[str, Any]:
    """Return the lead's row, with the meaning of columns from their source.

    It began with the first source by the clock of the lead, and ended as `_ended` says.
    """
    of_format = {row["log_format"]: row for row in reversed(rows)}
    elapsed, rate = of_format[taken["elapsed_s"]], of_format[taken["logged_tgs"]]
    ended = _ended(rows, tops)
    begun = [row for row in rows if row["started_at"] is not None]
    started = [row["started_at"] for row in begun if row["utc"] == begun[0]["utc"]]
    return {
        **rows[0],
        "framework": _framework(rows),
        "elapsed_covers": elapsed["elapsed_covers"],
        "elapsed_excludes_data": elapsed["elapsed_excludes_data"],
        "rate_covers": rate["rate_covers"],
        "rate_excludes_data": rate["rate_excludes_data"],
        "utc": of_format[taken["logged_at"]]["utc"],
        "evidence": _evidence(rows, elapsed["evidence"]),
        "started_at": min(started, default=None),
        **{name: ended[name] for name in ("outcome", "outcome_line", "outcome_text")},
    }


OUTCOME_ORDER: Final = ("completed", "out_of_memory")
"""Preferred outcomes among sources that end at one step, in this order, as within one log."""


def _ended(rows: Sequence[Mapping[str, Any]], tops: Mapping[str, int]) -> Mapping[str, Any]:
    """Return the source with the outcome of the launch: the source that got furthest.

    tops: the last step of each source
    """

    def order(row: Mapping[str, Any]) -> tuple[int, int]:
        known = (*OUTCOME_ORDER, row["outcome"])
        return -tops.get(row["run_id"], -1), known.index(row["outcome"])

    told = [row for row in rows if row["outcome"] != "incomplete"]
    return min(told, key=order, default=rows[0])


def _framework(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the engine if a source names it, as within a file; else the lead's."""
    own = str(rows[0]["framework"])
    engine = rows[0]["engine_below"] or own
    return engine if any(row["framework"] == engine for row in rows) else own


def _evidence(rows: Sequence[Mapping[str, Any]], of_elapsed: Sequence[str]) -> list[str]:
    """Return the kinds of time evidence in the order of the lead.

    The step time comes after the stamps if its own source prefers stamps: the step time may leave
    some time out.
    """
    order = list(dict.fromkeys(kind for row in rows for kind in row["evidence"]))
    own = [kind for kind in of_elapsed if kind in ("elapsed", "stamp")]
    if own == ["stamp", "elapsed"]:
        order.remove("elapsed")
        order.insert(order.index("stamp") + 1, "elapsed")
    return order


def _with_all_ranks(facts: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Return the facts with `gpus` over all sources, if counted from printing ranks.

    Each node has a log of its ranks. If ranks are missing, `gpus` is unknown. steps: of the
    launches
    """
    number = pl.col("rank").cast(pl.Int64, strict=False)
    printing = (
        steps.group_by("run_id")
        .agg(count=number.drop_nulls().n_unique(), highest=number.max())
        .with_columns(whole=pl.col("highest") == pl.col("count") - 1)
    )
    every = facts.join(printing, on="run_id", how="left", maintain_order="left")
    counted = (pl.col("name") == "gpus") & pl.col("origin").str.ends_with(COUNTED_RANKS_SUFFIX)
    more = counted & (pl.col("highest") >= pl.col("value").cast(pl.Int64, strict=False))
    more = more.fill_null(value=False)
    return (
        every.filter(~more | pl.col("whole"))
        .with_columns(
            value=pl.when(more).then(pl.col("count").cast(pl.String)).otherwise("value"),
            origin=pl.when(more)
            .then(pl.format(f"inferred: {{}} {COUNTED_RANKS_SUFFIX}", "count"))
            .otherwise("origin"),
        )
        .select(facts.columns)
    )


def _facts(
    facts: pl.DataFrame,
    members: Mapping[str, Sequence[Mapping[str, Any]]],
    lead_of: Mapping[str, str],
) -> pl.DataFrame:
    """Return the facts of all sources of a launch; the lead's first within an origin.

    A line number of another source gets that source's name.
    """
    place = {row["run_id"]: -i for rows in members.values() for i, row in enumerate(rows)}
    names = {row["run_id"]: row["name"] for rows in members.values() for row in rows}
    logged = pl.col("origin").str.contains(r"log:\d")
    other = pl.col("run_id") != pl.col("lead")
    named = pl.format(
        "{} of {}", "origin", pl.col("run_id").replace_strict(names, default="another source")
    )
    return (
        facts.with_columns(
            lead=pl.col("run_id").replace(lead_of),
            place=pl.col("run_id").replace_strict(place, default=0, return_dtype=pl.Int64),
        )
        .with_columns(origin=pl.when(logged & other).then(named).otherwise("origin"))
        .sort("lead", "place", "sequence")
        .with_columns(
            run_id=pl.col("lead"),
            sequence=pl.int_range(pl.len()).over("lead"),
        )
        .select(facts.columns)
    )
