"""Find the sources of one launch.

A launch often has several sources: the console, the framework's own file, JSON, a TensorBoard file,
a file per rank. Counted twice, the launch would rank against itself. Files belong together on
evidence from their numbers, never by folder or name alone:

    twins   the same steps with the same losses, and step times that agree in every printed digit.
            Times separate two launches of a configuration; losses may not, since training may be
            deterministic. The chance of an agreement of two launches is counted in bits.
    ranks   the same steps with the same reduced figures at the same time, of different ranks;
            without stamps, in sibling folders named by rank
    nodes   the same steps with the same reduced figures, and stamps that stay in step: nodes delay
            each other. Every node's log calls itself rank 0, and the times of nodes differ a
            little; a node's log is another copy of the lead's steps.
    named   one prints the other's file name, and nothing contradicts
    saved   states in the checkpoints of one training, `checkpoint-500/`, and in their parent
            folder: one has the other's first steps, digit by digit
    streams output and errors of a job, by their file names, X.out and X.err: losses without a
            clock, and a clock alone, of as many steps and as long

If only the losses can be compared (one of the two prints no time), they must agree with a single
other source, or with a source in a nearer folder than all others of its format. Streams must also
fit a single other source. Open cases get a warning, and stay apart.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import PurePath
from typing import Any, Final

import numpy as np
import polars as pl

from fairmfu.ingest.core.schema import RunRow, run_rows

from ..core.arrays import FloatArray, IntArray
from ..core.intervals import robust_spread
from ..core.link_columns import (
    COMPARED_FIGURES,
    LAST_STEP_SCHEMA,
    REDUCED_FIGURES,
    STEP_TIME_FIGURES,
    TRAINING_FIGURES,
)
from ..core.messages import Message
from ..core.print_precision import MAX_STAMP_ERROR_S, Digits, digits_by, printed_digits
from ..throughput.windows import split_repeated_steps, without_placeholder_losses
from . import messages, replica_groups
from .launch_sources import (
    CHECKPOINT_FOLDER_PATTERN,
    FLOAT32_TOLERANCE,
    MAX_COMPARED_STEPS,
    MAX_COUNTED_LOSS_BITS,
    MAX_ROUNDING_UNITS,
    MAX_STAMP_GAP_S,
    MAX_TIME_ZONE_OFFSET_S,
    MAX_USUAL_DELAY_SPREADS,
    MIN_AGREEING_SHARE,
    MIN_COMMON_STEPS,
    MIN_LOSS_BITS_ALONE,
    MIN_NODE_BITS,
    MIN_STAMP_SCATTER_S,
    MIN_TIMING_BITS,
    MIN_TWIN_BITS,
    NODE_NAME_PATTERN,
    SECONDS_PER_DAY,
    SECONDS_PER_YEAR,
    STREAM_NAME_PATTERN,
    TIME_ZONE_STEP_S,
    Series,
    Source,
    delays,
)
from .ruled_out import PairFilter
from .source_merging import merge_sources

MAX_CLOCK_RUNTIME_GAP_S: Final = 1.5
"""Most seconds between a run time and the last value of a clock of whole seconds with the same
start.
"""

SEVERAL_LOSSES_FIT: Final = "the losses agree, but other sources fit too, and no times decide"
SEVERAL_STREAMS_FIT: Final = (
    "one has losses, the other a clock, and both end at the same step, but others fit too"
)
STREAMS_MAY_FIT: Final = (
    "one has losses, the other a clock, with equally many steps in one folder. Names such as X.out "
    "and X.err, or the whole run time, would decide"
)

NODES_MAY_FIT: Final = (
    "the names are of two nodes, the losses are equal, and no time stamps decide: two nodes of one "
    "job, or the same job on each node"
)

STEP_KEY_COLUMNS: Final = ("family", "unit", "step")
MAX_LAST_STEPS_AT_ONCE: Final = 200
"""Most last steps to compare with all others at once: in a store of thousands of runs each step
meets thousands.
"""

MAX_STEP_RUN_PAIRS: Final = 200_000
"""Most pairs of last steps and runs to compare at once, if the runs are few."""


@dataclass(frozen=True, slots=True)
class MergedLaunches:
    """Tables with one run per launch.

    tables: `runs`, `facts`, `steps`, `events` as in ingest.core.schema. A launch has the run_id of
        its lead source, and the steps, events and facts of all its sources
    members: rows of `runs` of all sources by the run_id of the lead, the lead first
    doubts: warnings by run_id
    linked_sources: by the run_id of each source, the certain or possible sources of the same
        launch; nothing else decided the merge
    last_steps: the last step of each source and rank, columns of LAST_STEP_SCHEMA
    """

    tables: dict[str, pl.DataFrame]
    members: dict[str, list[RunRow]]
    doubts: dict[str, list[Message]]
    linked_sources: dict[str, list[str]]
    last_steps: pl.DataFrame


def merge_launches(tables: Mapping[str, pl.DataFrame]) -> MergedLaunches:
    """Merge the sources of each launch.

    tables: `runs`, `facts`, `steps`, `events`, `sources`
    """
    runs = {row["run_id"]: row for row in run_rows(tables["runs"])}
    rows = _folded(tables["steps"])
    groups, unsure, links = _grouped(tables, runs, rows)
    said = _stated_fact_counts(tables)
    replica = replica_groups.groups_by_source(tables["facts"])
    members = {}
    for group in groups:
        # the first replica group saves for all, so its log has the checkpoints
        order = sorted(
            group,
            key=lambda run_id: (
                replica.get(run_id, [0]),
                -said.get(run_id, 0),
                runs[run_id]["name"],
            ),
        )
        members[order[0]] = [runs[run_id] for run_id in order]
    doubts = _doubts(members, unsure)
    linked: dict[str, list[str]] = {}
    for one, other in links:
        linked.setdefault(one, []).append(other)
        linked.setdefault(other, []).append(one)
    merged = dict(tables)
    if any(len(group) > 1 for group in groups):
        merged = merge_sources(tables, members)
    if of_groups := replica_groups.grouped_launches(replica, tables["facts"], members):
        facts = replica_groups.with_group_facts(tables["facts"], merged["facts"], of_groups)
        reasons = replica_groups.group_warnings(merged["steps"], tables["facts"], of_groups)
        merged |= {"facts": facts}
        doubts = {lead: [*doubts.get(lead, []), *reasons.get(lead, [])] for lead in members}
    return MergedLaunches(merged, members, doubts, linked, _ends(rows))


def _doubts(
    members: Mapping[str, Sequence[Mapping[str, Any]]], unsure: Iterable[DoubtfulPair]
) -> dict[str, list[Message]]:
    """Return warnings by run_id of launches that may be the same as another."""
    lead_of = {row["run_id"]: rows[0] for rows in members.values() for row in rows}
    doubts: dict[str, dict[str, Message]] = {}
    for *pair, why in unsure:
        one, other = (lead_of[run_id] for run_id in pair)
        if one is not other:
            for lead, second in ((one, other), (other, one)):
                doubt = messages.MAY_BE_SAME_LAUNCH(other=second["name"], reason=why)
                doubts.setdefault(lead["run_id"], {})[second["run_id"]] = doubt
    return {lead: [*found.values()] for lead, found in doubts.items()}


def _stated_fact_counts(tables: Mapping[str, pl.DataFrame]) -> dict[str, int]:
    """Return the number of facts that each source states, by run_id: the most leads."""
    logged = tables["facts"].filter(pl.col("origin").str.starts_with("log"))
    return dict(logged.group_by("run_id").agg(pl.col("name").n_unique()).iter_rows())


# -- some runs against the others ----------------------------------------------------------


def find_candidates(
    runs: pl.DataFrame, last_steps: pl.DataFrame, steps: pl.DataFrame, run_ids: Collection[str]
) -> list[str]:
    """Find runs that may be of the same launch as a run of `run_ids`.

    From first and last steps alone: all runs that `merge_launches` would link with `run_ids`, and
    possibly more.

    runs: all, as in ingest.core.schema; last_steps: of all other runs, columns of LAST_STEP_SCHEMA;
        steps: of `run_ids`
    """
    mine = _placed(_folded(steps), runs).filter(pl.col("run_id").is_in(list(run_ids)))
    others = last_steps.filter(~pl.col("run_id").is_in(list(run_ids)))
    placed = _placed(others, runs)
    at_once = max(MAX_LAST_STEPS_AT_ONCE, MAX_STEP_RUN_PAIRS // max(1, len(run_ids)))
    met = _candidate_places(placed, mine, at_once)
    last = _last(mine).select("sha256", *STEP_KEY_COLUMNS, "day").unique()
    spans = placed.select("place", "sha256", "day", *STEP_KEY_COLUMNS[:2], "first", last="step")
    inside = [
        _within_a_day(part, spans, STEP_KEY_COLUMNS[:2])
        .filter(
            pl.col("sha256") != pl.col("sha256_right"),
            pl.col("step").is_between("first", "last", closed="left"),
        )
        .select(pl.col("place").unique())
        for part in last.iter_slices(MAX_LAST_STEPS_AT_ONCE)
    ]
    found = pl.concat([met.select("place"), met.select(place="b"), *inside])["place"].unique()
    return (
        runs[found.sort()]
        .filter(pl.col("run_id").is_in(others["run_id"].implode()))["run_id"]
        .to_list()
    )


def find_source_links(
    tables: Mapping[str, pl.DataFrame], run_ids: Collection[str]
) -> list[tuple[str, str]]:
    """Return pairs of sources that are, or may be, of the same launch.

    A source of each pair is of `run_ids`. Sources that earlier pairs connect are not compared
    again: a launch of a thousand files has half a million pairs. tables: as for `merge_launches`
    """
    runs = {row["run_id"]: row for row in tables["runs"].iter_rows(named=True)}
    rows = _folded(tables["steps"])
    sources = _sources_of_runs(tables, runs, rows)
    connected = _Sets(sources)
    linked: list[tuple[str, str]] = []
    for a, b in _candidates(sources, _placed(rows, tables["runs"]), connected, run_ids):
        if _verdict(a, b) != "other":
            connected.join(a, b)
            linked.append(_ids(a, b))
    return linked


# -- what one source says ------------------------------------------------------------------


def _folded(steps: pl.DataFrame) -> pl.DataFrame:
    """Return one row per run, rank and step.

    `stamp` is in seconds of the year 2000, for all years; `unit_NAME` is the last printed digit of
    NAME's values.
    """
    whose = ("run_id", "rank")
    several, single = split_repeated_steps(
        without_placeholder_losses(steps).sort("run_id", "step", "line")
    )
    told = several.group_by(*whose, "step", maintain_order=True).agg(
        pl.col("logged_at").first(), pl.col(*COMPARED_FIGURES).drop_nulls().first()
    )
    folded = (
        pl.concat([told, single.select(told.columns)])
        .sort("run_id", maintain_order=True)
        .with_columns(
            pl.col(*COMPARED_FIGURES).cast(pl.Float64),
            stamp=pl.col("logged_at").dt.replace(year=2000).dt.epoch("us") / 1e6,
        )
    )
    digits = folded.select(whose).join(
        digits_by(folded, whose, COMPARED_FIGURES),
        on=whose,
        nulls_equal=True,
        maintain_order="left",
    )
    units = {
        f"unit_{name}": Digits(
            digits[f"{name}_decimals"].to_numpy(), digits[f"{name}_significant"].to_numpy()
        ).last_places(folded[name].to_numpy())
        for name in COMPARED_FIGURES
    }
    return folded.with_columns(pl.Series(name, values) for name, values in units.items())


def _placed(rows: pl.DataFrame, runs: pl.DataFrame) -> pl.DataFrame:
    """Add columns that candidates must share: framework family, step unit, day.

    place: index of the run in `runs`
    """
    about = runs.select(
        "run_id",
        place=pl.int_range(pl.len()),
        sha256="sha256",
        family=pl.coalesce("engine_below", "framework"),
        unit="step_unit",
        utc="utc",
        log_format="log_format",
        day=pl.col("started_at").dt.epoch("d").cast(pl.Int64),
    )
    return rows.join(about, on="run_id")


def _last(rows: pl.DataFrame) -> pl.DataFrame:
    """Return the last step of each run and rank."""
    return rows.filter(pl.col("step") == pl.col("step").max().over("run_id", "rank"))


def _ends(folded: pl.DataFrame) -> pl.DataFrame:
    """Return the last step of each run and rank as in `_folded`, with the first step."""
    first = pl.col("step").min().over("run_id", "rank")
    return _last(folded.with_columns(first=first)).select(LAST_STEP_SCHEMA.names())


def _sources_of_runs(
    tables: Mapping[str, pl.DataFrame],
    runs: Mapping[str, Mapping[str, Any]],
    folded: pl.DataFrame,
) -> list[Source]:
    paths = dict(tables["sources"].select("sha256", "path").iter_rows())
    series = _series(folded)
    events = tables["events"]
    timed = pl.col("seconds").is_between(0, math.inf, closed="none")
    runtimes = _runtimes(events.filter(timed, kind="end"))
    clocks, totals = _clocks(tables["steps"]), _total_steps(tables["facts"])
    names: dict[str, set[str]] = {}
    outputs = events.filter(kind="output").with_columns(
        file=pl.col("extra").str.json_path_match("$.file")
    )
    for run_id, file in outputs.select("run_id", "file").drop_nulls().iter_rows():
        names.setdefault(run_id, set()).add(PurePath(file).name)
    return [
        Source(
            run=run,
            path=paths.get(run["sha256"], ""),
            series=tuple(series.get(run_id, [])),
            runtimes=tuple(runtimes.get(run_id, ())),
            names=frozenset(names.get(run_id, ())),
            clock=clocks.get(run_id),
            total_steps=totals.get(run_id),
        )
        for run_id, run in runs.items()
    ]


def _series(folded: pl.DataFrame) -> dict[str, list[Series]]:
    """Return the series of each run, cut out of columns that are converted once."""
    steps = folded["step"].to_numpy()
    columns = {
        name: folded[name].to_numpy()  # null is NaN
        for name in ("stamp", *COMPARED_FIGURES, *(f"unit_{name}" for name in COMPARED_FIGURES))
    }
    rows = folded.with_row_index().group_by("run_id", "rank", maintain_order=True).agg("index")
    series: dict[str, list[Series]] = {}
    for run_id, rank, index in rows.iter_rows():
        place = np.array(index)
        one = Series(
            rank=rank,
            steps=steps[place],
            values={name: columns[name][place] for name in COMPARED_FIGURES},
            stamps=columns["stamp"][place],
            units={name: columns[f"unit_{name}"][place] for name in COMPARED_FIGURES},
        )
        series.setdefault(run_id, []).append(one)
    return series


def _clocks(steps: pl.DataFrame) -> dict[str, tuple[float, float]]:
    """Return the first and last second since the start at each run's last such step."""
    since = pl.col("since_start_s")
    told = steps.filter(since.is_not_null())
    ends = told.filter(pl.col("step") == pl.col("step").max().over("run_id"))
    found = ends.group_by("run_id").agg(first=since.min(), last=since.max())
    return {run_id: (first, last) for run_id, first, last in found.iter_rows()}


def _total_steps(facts: pl.DataFrame) -> dict[str, int]:
    """Return the planned steps of each run whose log states a single number."""
    said = facts.filter(pl.col("name") == "total_steps", pl.col("origin").str.starts_with("log"))
    number = pl.col("value").cast(pl.Int64, strict=False)
    found = said.group_by("run_id").agg(number.unique()).filter(pl.col("value").list.len() == 1)
    return dict(found.select("run_id", pl.col("value").list.first()).drop_nulls().iter_rows())


def _runtimes(ended: pl.DataFrame) -> dict[str, set[tuple[float, float]]]:
    seconds = ended["seconds"].to_numpy()
    ended = ended.with_columns(unit=pl.Series(printed_digits(seconds).last_places(seconds)))
    runtimes: dict[str, set[tuple[float, float]]] = {}
    for run_id, length, unit in ended.select("run_id", "seconds", "unit").iter_rows():
        runtimes.setdefault(run_id, set()).add((length, unit))
    return runtimes


# -- evidence ------------------------------------------------------------------------------


def _grouped(
    tables: Mapping[str, pl.DataFrame], runs: Mapping[str, Mapping[str, Any]], rows: pl.DataFrame
) -> tuple[list[list[str]], list[DoubtfulPair], list[tuple[str, str]]]:
    """Group all sources as `_groups` does; a single source needs no evidence.

    runs: rows of the table by run_id; rows: as `_folded`
    """
    if len(runs) <= 1:
        return [[run_id] for run_id in runs], [], []
    return _groups(_sources_of_runs(tables, runs, rows), _placed(rows, tables["runs"]))


def _groups(
    sources: Sequence[Source], rows: pl.DataFrame
) -> tuple[list[list[str]], list[DoubtfulPair], list[tuple[str, str]]]:
    """Return groups of run ids, doubtful pairs, and the pairs that decided both.

    rows: as for `_candidates`
    """
    find = _Sets(sources)
    maybe: list[SourcePair] = []
    unsure: list[DoubtfulPair] = []
    linked: list[tuple[str, str]] = []
    for a, b in _candidates(sources, rows, find):
        verdict = _verdict(a, b)
        if verdict != "other":
            linked.append((a.run["run_id"], b.run["run_id"]))
        if verdict == "same" and not find.clash(a, b):
            find.join(a, b)
        elif verdict == "maybe":
            maybe.append((a, b))
        elif verdict == "doubt":
            why = STREAMS_MAY_FIT if _are_streams(a, b) else NODES_MAY_FIT
            unsure.append((*_ids(a, b), why))
    unsure += _settled(find, [pair for pair in maybe if not _are_streams(*pair)])
    unsure += _settled(find, [pair for pair in maybe if _are_streams(*pair)])
    return find.groups(), unsure, linked


SourcePair = tuple[Source, Source]

DoubtfulPair = tuple[str, str, str]
"""Ids of two runs that may be one launch, and the reason for the doubt."""


def _settled(find: _Sets, maybe: Iterable[SourcePair]) -> list[DoubtfulPair]:
    """Join pairs whose losses fit nothing else; return the ids of doubtful pairs."""
    near, left = _by_folder([pair for pair in maybe if not find.same(*_ids(*pair))])
    for a, b in near:
        if not (find.clash(a, b) or find.parts(a, b) or _of_other_ranks(a, b)):
            find.join(a, b)
    fits = _fits(left)
    unsure: list[DoubtfulPair] = []
    for a, b in left:
        if find.same(*_ids(a, b)) or find.clash(a, b) or find.parts(a, b):
            continue
        others = {
            find.root(x.run["run_id"]) for one in (a, b) for x in (one, *fits[one.run["run_id"]])
        }
        alone = len(others) == 2  # noqa: PLR2004 - each has the other alone
        if alone and not _of_other_ranks(a, b):
            find.join(a, b)
        else:
            unsure.append(
                (*_ids(a, b), SEVERAL_STREAMS_FIT if _are_streams(a, b) else SEVERAL_LOSSES_FIT)
            )
    return unsure


def _ids(a: Source, b: Source) -> tuple[str, str]:
    return a.run["run_id"], b.run["run_id"]


def _fits(pairs: Iterable[SourcePair]) -> dict[str, list[Source]]:
    """Return by run id the partners of each source."""
    fits = defaultdict[str, list[Source]](list)
    for a, b in pairs:
        fits[a.run["run_id"]].append(b)
        fits[b.run["run_id"]].append(a)
    return fits


def _by_folder(pairs: Sequence[SourcePair]) -> tuple[list[SourcePair], list[SourcePair]]:
    """Return pairs in nearer folders than any rival that fits, and undecided pairs.

    Launches with the same seed may have the same losses. If only losses can be compared, say of a
    state and an event file, files in the same folder are of the same launch, and not of another's.
    """
    fits = _fits(pairs)
    near, lost = list[SourcePair](), set[frozenset[str]]()
    for a, b in pairs:
        rivals = [
            (mine, its)
            for mine, fellow in ((a, b), (b, a))
            for its in fits[mine.run["run_id"]]
            if its is not fellow and its.run["log_format"] == fellow.run["log_format"]
        ]
        if rivals and max(_shared(*pair) for pair in rivals) < _shared(a, b):
            near.append((a, b))
            lost |= {frozenset(_ids(*pair)) for pair in rivals}
    settled = lost.union(frozenset(_ids(*pair)) for pair in near)
    return near, [pair for pair in pairs if frozenset(_ids(*pair)) not in settled]


def _shared(a: Source, b: Source) -> int:
    """Return the number of leading folders that two paths have in common."""
    folders = zip(PurePath(a.path).parts[:-1], PurePath(b.path).parts[:-1], strict=False)
    return sum(1 for _ in takewhile(lambda both: both[0] == both[1], folders))


class _Sets:
    """Disjoint sets of run ids, one per launch, with each rank of a format once."""

    def __init__(self, sources: Iterable[Source]) -> None:
        self.sources = {source.run["run_id"]: [source] for source in sources}
        self.parent = {run_id: run_id for run_id in self.sources}
        self.held: dict[str, set[tuple[str, str]]] = {}

    def root(self, run_id: str) -> str:
        while (above := self.parent[run_id]) != run_id:
            self.parent[run_id] = self.parent[above]  # halves the way of the next search
            run_id = above
        return run_id

    def root_places(self) -> IntArray:
        """Return a number per source, equal for the sources of one set."""
        number = {run_id: i for i, run_id in enumerate(self.parent)}
        return np.array([number[self.root(run_id)] for run_id in self.parent])

    def same(self, a: str, b: str) -> bool:
        return self.root(a) == self.root(b)

    def clash(self, a: Source, b: Source) -> bool:
        """Return whether a join of sources of different ranks would repeat a rank.

        A launch has one file per rank and format.
        """
        mine, other = (self.held.get(self.root(t.run["run_id"]), _format_ranks(t)) for t in (a, b))
        return a.ranks.isdisjoint(b.ranks) and not mine.isdisjoint(other)

    def parts(self, a: Source, b: Source) -> bool:
        """Return whether joining would put two launches' sources of a format together.

        A state of a resumed run has the losses of all launches of the run.
        """
        mine, other = (self.sources[self.root(t.run["run_id"])] for t in (a, b))
        return any(
            x.run["log_format"] == y.run["log_format"] and _verdict(x, y) == "other"
            for x in mine
            for y in other
            if x.has_losses and y.has_losses and not _of_other_ranks(x, y)
        )

    def join(self, a: Source, b: Source) -> None:
        one, other = self.root(a.run["run_id"]), self.root(b.run["run_id"])
        both = self.held.pop(one, _format_ranks(a)) | self.held.pop(other, _format_ranks(b))
        self.sources[one] += self.sources.pop(other)
        self.parent[other] = one
        self.held[one] = both

    def groups(self) -> list[list[str]]:
        out: dict[str, list[str]] = {}
        for run_id in self.parent:
            out.setdefault(self.root(run_id), []).append(run_id)
        return list(out.values())


def _format_ranks(source: Source) -> set[tuple[str, str]]:
    return {(source.run["log_format"], rank) for rank in source.ranks}


def _candidates(
    sources: Sequence[Source],
    rows: pl.DataFrame,
    joined: _Sets,
    whose: Collection[str] | None = None,
) -> Iterator[tuple[Source, Source]]:
    """Yield pairs of sources worth comparing step by step.

    A pair that is joined by the time of its turn is left out.

    If two sources are of the same launch, the last step of the source that ended first is also in
    the other. So candidates have the same framework, and began within a day of each other if both
    have a date. A step of one must not contradict the last step of the other. Both may be of the
    same file, since a file may contain a log twice.

    rows: as `_folded`, `_placed` in the order of the sources; joined: sets that grow while pairs
        are compared; whose: only pairs with a source of these
    """
    rows = rows.drop("logged_at")
    last = _last(rows)
    sides = [(last, rows)]
    if whose is not None:
        mine = pl.col("run_id").is_in(list(whose))
        sides = [(last.filter(mine), rows), (last.filter(~mine), rows.filter(mine))]
    found = pl.concat(
        [_candidate_places(some, every, MAX_LAST_STEPS_AT_ONCE) for some, every in sides]
    )
    pairs = found.unique().sort("place", "b").to_numpy()
    at_once, bulk = len(sources), PairFilter(sources)
    while len(pairs):
        for one, other in bulk.possible(pairs[:at_once]).tolist():
            if not joined.same(*_ids(sources[one], sources[other])):
                yield sources[one], sources[other]
        roots = joined.root_places()
        left = pairs[at_once:]
        pairs = left[roots[left[:, 0]] != roots[left[:, 1]]]
        at_once *= 2  # so that pairs that are never joined are not filtered often


def _candidate_places(last: pl.DataFrame, every: pl.DataFrame, at_once: int) -> pl.DataFrame:
    """Compute `_meeting` in batches of `at_once` rows of `last`, to save memory."""
    last = last.join(every, on=STEP_KEY_COLUMNS, how="semi")
    every = every.join(last, on=STEP_KEY_COLUMNS, how="semi")
    parts = [_meeting(part, every) for part in last.iter_slices(at_once)]
    return pl.concat([CANDIDATE_SCHEMA.to_frame(), *parts]).unique()


CANDIDATE_SCHEMA: Final = pl.Schema({"place": pl.Int64, "b": pl.Int64})


def _meeting(last: pl.DataFrame, every: pl.DataFrame) -> pl.DataFrame:
    """Return places of source pairs in which two rows may be the same step.

    The rows are of `last` and of `every`.
    """
    return (
        _within_a_day(last, every, STEP_KEY_COLUMNS)
        .filter(pl.col("place") != pl.col("place_right"), ~_contradicts())
        .select(
            pl.min_horizontal("place", "place_right"), b=pl.max_horizontal("place", "place_right")
        )
        .unique()
    )


def _within_a_day(some: pl.DataFrame, others: pl.DataFrame, on: Sequence[str]) -> pl.DataFrame:
    """Return pairs of rows with equal `on` and adjacent days, or a missing date."""
    dated, undated = some.filter(pl.col("day").is_not_null()), some.filter(pl.col("day").is_null())
    days = pl.concat([dated.with_columns(day=pl.col("day") + more) for more in (-1, 0, 1)])
    return pl.concat(
        [
            days.join(others, on=[*on, "day"]).drop("day"),
            dated.join(others.filter(pl.col("day").is_null()), on=on).drop("day", "day_right"),
            undated.join(others, on=on).drop("day", "day_right"),
        ]
    )


def _contradicts() -> pl.Expr:
    """Return whether two rows of a step cannot be of the same launch.

    Then the sources need no `_verdict`.
    """
    other_rank = (pl.col("rank") != pl.col("rank_right")).fill_null(value=False)
    stamped = pl.col("stamp").is_not_null() & pl.col("stamp_right").is_not_null()
    nodes = (pl.col("log_format") == pl.col("log_format_right")) & stamped
    differ = pl.lit(value=False)
    for name in COMPARED_FIGURES:
        units = pl.col(f"unit_{name}") + pl.col(f"unit_{name}_right")
        off = (pl.col(name) - pl.col(f"{name}_right")).abs()
        unlike = off > MAX_ROUNDING_UNITS * units + FLOAT32_TOLERANCE * pl.col(name).abs()
        mine = unlike if name in REDUCED_FIGURES else unlike & ~other_rank & ~nodes
        differ |= mine.fill_null(value=False)
    apart = pl.col("stamp_right") - pl.col("stamp")
    apart -= (apart / SECONDS_PER_YEAR).round() * SECONDS_PER_YEAR
    zone = (apart / TIME_ZONE_STEP_S).round() * TIME_ZONE_STEP_S
    same = pl.col("utc") == pl.col("utc_right")
    moment = pl.when(same).then(apart.abs()).otherwise((apart - zone).abs()) > MAX_STAMP_GAP_S
    return differ | moment.fill_null(value=False)


def _verdict(a: Source, b: Source) -> str:
    """Return same, maybe (only times are missing), doubt (never joined) or other."""
    if _of_other_ranks(a, b):
        return _ranks_of_one(a, b)
    if _are_streams(a, b):
        return _streams_of_one(*_losses_first(a, b))
    verdicts = {_twins(a, b, one, other) for one in a.series for other in b.series}
    found = next((word for word in ("same", "maybe") if word in verdicts), "other")
    return "doubt" if found == "other" and _may_be_nodes(a, b) else found


def _twins(a: Source, b: Source, first: Series, second: Series) -> str:
    if first.rank is not None and second.rank is not None and first.rank != second.rank:
        return "other"
    first_rows, second_rows = _common_rows(first, second)
    shorter = min(len(first.steps), len(second.steps))
    if len(first_rows) < max(1, min(MIN_COMMON_STEPS, shorter)):
        return "other"
    within = len(first_rows) == shorter
    first_rows, second_rows = first_rows[:MAX_COMPARED_STEPS], second_rows[:MAX_COMPARED_STEPS]
    figures = [
        _agreement(first, second, name, first_rows, second_rows) for name in TRAINING_FIGURES
    ]
    times = [_agreement(first, second, name, first_rows, second_rows) for name in STEP_TIME_FIGURES]
    data = _agreement(first, second, "data_s", first_rows, second_rows)
    moment = _moment(a, b, first.stamps[first_rows], second.stamps[second_rows])
    runtime = _runtime(a, b)
    if _against(*figures, moment, runtime):
        return "other"
    losses = sum(bits or 0.0 for bits in figures)
    told_twice = a.run["log_format"] == b.run["log_format"]
    if _against(*times, data):
        may_be = told_twice and a.run["utc"] == b.run["utc"] and losses >= MAX_COUNTED_LOSS_BITS
        in_step = (
            may_be
            and _in_step(first.stamps[first_rows], second.stamps[second_rows]) >= MIN_NODE_BITS
        )
        return "same" if in_step else "other"
    timing = max(bits or 0.0 for bits in times) + (data or 0.0) + (moment or 0.0)
    named = a.file in b.names or b.file in a.names
    timing += (runtime or 0.0) + (MIN_TWIN_BITS if named else 0.0)
    enough = (
        timing >= MIN_TIMING_BITS and timing + min(losses, MAX_COUNTED_LOSS_BITS) >= MIN_TWIN_BITS
    )
    agree = any(bits is not None for bits in figures)
    saved = told_twice and within and agree and _saved_by_one(a.path, b.path)
    if enough or saved or (runtime is not None and losses >= MIN_LOSS_BITS_ALONE):
        return "same"
    silent = all(bits is None for bits in times) and not (a.timed and b.timed)
    return "maybe" if silent and not told_twice and losses >= MIN_LOSS_BITS_ALONE else "other"


def _common_rows(first: Series, second: Series) -> tuple[IntArray, IntArray]:
    """Return the rows of each series whose steps the other one has too, by step."""
    _, first_rows, second_rows = np.intersect1d(
        first.steps, second.steps, assume_unique=True, return_indices=True
    )
    return first_rows, second_rows


def _are_streams(a: Source, b: Source) -> bool:
    """Return whether one source has losses without step times, the other only a clock."""
    losses, clock = _losses_first(a, b)
    told_alike = a.run["log_format"] == b.run["log_format"]
    of_each = losses.has_losses and clock.clock is not None
    return told_alike and of_each and not (clock.has_losses or a.timed or b.timed)


def _losses_first(a: Source, b: Source) -> SourcePair:
    return (a, b) if a.has_losses else (b, a)


def _streams_of_one(losses: Source, clock: Source) -> str:
    """Return whether two streams are of the same job: maybe, doubt or other.

    Criteria: as many steps as planned in as many seconds, and file names that differ only in the
        stream.
    """
    of_one_folder = PurePath(losses.path).parent == PurePath(clock.path).parent
    whole = clock.last_step == clock.total_steps
    left = clock.last_step - losses.last_step
    if not of_one_folder or clock.clock is None or not whole or not 0 <= left < losses.interval:
        return "other"
    off = [abs(one - end) for one, _ in losses.runtimes for end in clock.clock]
    if off and min(off) > MAX_CLOCK_RUNTIME_GAP_S:
        return "other"
    names = (STREAM_NAME_PATTERN.sub("*", told.file) for told in (losses, clock))
    alike = len(set(names)) == 1 and losses.file != clock.file
    return "maybe" if alike and off else "doubt"


def _may_be_nodes(a: Source, b: Source) -> bool:
    """Return whether two sources without stamps may be two nodes of one job.

    Such nodes print the same losses, and end within MAX_CLOCK_RUNTIME_GAP_S of each other.
    """
    named = a.path != b.path and NODE_NAME_PATTERN.sub("*", a.path) == NODE_NAME_PATTERN.sub(
        "*", b.path
    )
    if not named or a.run["log_format"] != b.run["log_format"]:
        return False
    first, second = a.series[0], b.series[0]
    stamped = np.isfinite(first.stamps).any() and np.isfinite(second.stamps).any()
    steps, first_rows, second_rows = np.intersect1d(
        first.steps, second.steps, assume_unique=True, return_indices=True
    )
    if stamped or len(steps) < MIN_COMMON_STEPS:
        return False
    bits = [
        _agreement(first, second, name, first_rows, second_rows) or 0.0 for name in TRAINING_FIGURES
    ]
    return not _against(*bits) and sum(bits) >= MIN_LOSS_BITS_ALONE and _end_alike(a, b)


def _end_alike(a: Source, b: Source) -> bool:
    """Return whether two sources print about the same run time, or else last seconds."""
    runtimes = [abs(x - y) for x, _ in a.runtimes for y, _ in b.runtimes]
    clocks = [abs(x - y) for x in a.clock or () for y in b.clock or ()]
    off = runtimes or clocks
    return bool(off) and min(off) <= MAX_CLOCK_RUNTIME_GAP_S


def _saved_by_one(first: str, second: str) -> bool:
    """Return whether two files are from a folder's checkpoints, or the folder itself."""
    where, there = (CHECKPOINT_FOLDER_PATTERN.sub("", path) for path in (first, second))
    return first != second and where == there


def _against(*evidence: float | None) -> bool:
    return any(bits is not None and bits < 0 for bits in evidence)


def _agreement(
    first: Series, second: Series, name: str, first_rows: IntArray, second_rows: IntArray
) -> float | None:
    """Return bits of evidence from one column: None if missing, -1 if values differ.

    By chance two values with spread s agree within t with probability erf(t / 2s).
    """
    left, right = first.values[name][first_rows], second.values[name][second_rows]
    both = np.isfinite(left) & np.isfinite(right)
    if not both.any():
        return None
    left, right = left[both], right[both]
    units = (first.units[name][first_rows] + second.units[name][second_rows])[both]
    allowed = MAX_ROUNDING_UNITS * units + FLOAT32_TOLERANCE * np.abs(left)
    if (np.abs(left - right) > allowed).any():
        return -1.0
    return _bits(left, float(np.median(allowed)))


def _bits(values: FloatArray, allowed: float) -> float:
    """Return bits of evidence if all `values` agree within `allowed`, by their spread."""
    spread = robust_spread(values)
    if spread <= 0 or len(values) < MIN_COMMON_STEPS:
        return 0.0
    return -len(values) * math.log2(max(math.erf(allowed / (2 * spread)), 1e-12))


def _runtime(a: Source, b: Source) -> float | None:
    """Return bits of evidence from the whole runtimes printed at the end.

    None if a source prints none, -1 if the printed digits differ.
    """
    bits = [_same_seconds(*x, *y) for x in a.runtimes for y in b.runtimes]
    return max(bits) if bits else None


def _same_seconds(seconds: float, unit: float, other_seconds: float, other_unit: float) -> float:
    allowed = MAX_ROUNDING_UNITS * (unit + other_unit)
    return (
        math.log2(seconds / allowed) if abs(seconds - other_seconds) <= allowed < seconds else -1.0
    )


def _moment(a: Source, b: Source, left: FloatArray, right: FloatArray) -> float | None:
    """Return bits of evidence from stamps: None if missing, -1 for different moments.

    Stamps of the same zone are compared as printed; of two zones, by their advance.
    """
    both = np.isfinite(left) & np.isfinite(right)
    if both.sum() < MIN_COMMON_STEPS:
        return None
    apart = right[both] - left[both]
    apart -= np.rint(apart / SECONDS_PER_YEAR) * SECONDS_PER_YEAR
    scatter = np.diff(apart)
    allowed = _stamps_scatter(left[both], right[both], scatter)
    agree = np.abs(scatter) <= allowed
    steady = agree.mean() > MIN_AGREEING_SHARE
    advance = _bits(np.diff(left[both])[agree], allowed) if steady else 0.0
    if a.run["utc"] == b.run["utc"]:
        worst = float(np.abs(apart).max())
        return (
            -1.0
            if worst > MAX_STAMP_GAP_S
            else advance + math.log2(SECONDS_PER_DAY / 2 / max(worst, allowed))
        )
    offset = float(np.median(apart))
    zone = TIME_ZONE_STEP_S * round(offset / TIME_ZONE_STEP_S)
    if abs(offset - zone) > MAX_STAMP_GAP_S or abs(zone) > MAX_TIME_ZONE_OFFSET_S:
        return -1.0
    return -1.0 if (np.abs(apart - offset) > MAX_STAMP_GAP_S).any() else advance


def _stamps_scatter(left: FloatArray, right: FloatArray, scatter: FloatArray) -> float:
    """Return the largest distance of two stamps of a moment [s], from their print.

    At least the scatter, unless stamps are in whole seconds.
    """
    whole = bool((left % 1 == 0).all() or (right % 1 == 0).all())
    return MAX_STAMP_ERROR_S if whole else max(MIN_STAMP_SCATTER_S, 3 * robust_spread(scatter))


def _in_step(left: FloatArray, right: FloatArray) -> float:
    """Return bits of evidence if two clocks are delayed at the same steps.

    A delay is relative to the surrounding steps, so that a drift is none. Extreme steps are left
    out: two launches of the same settings both save a checkpoint there.
    """
    both = np.isfinite(left) & np.isfinite(right)
    if both.sum() < MIN_COMMON_STEPS:
        return 0.0
    mine, theirs = (delays(np.diff(stamps[both])) for stamps in (left, right))
    usual = np.abs(mine) <= MAX_USUAL_DELAY_SPREADS * robust_spread(mine)
    scatter = (theirs - mine)[usual]
    allowed = _stamps_scatter(left[both], right[both], scatter)
    agree = np.abs(scatter) <= allowed
    if allowed >= MAX_STAMP_ERROR_S and robust_spread(mine[usual]) < 2 * allowed:
        return 0.0  # stamps of whole seconds alternate by as much
    return _bits(mine[usual][agree], allowed) if agree.mean() > MIN_AGREEING_SHARE else 0.0


def _of_other_ranks(a: Source, b: Source) -> bool:
    return bool(a.ranks and b.ranks) and a.ranks.isdisjoint(b.ranks)


def _ranks_of_one(a: Source, b: Source) -> str:
    """Return whether sources of different ranks are of the same launch.

    Returns same, maybe or other.
    """
    if a.run["log_format"] != b.run["log_format"] or a.run["utc"] != b.run["utc"]:
        return "other"
    first, second = a.series[0], b.series[0]
    steps, first_rows, second_rows = np.intersect1d(
        first.steps, second.steps, assume_unique=True, return_indices=True
    )
    reduced = [_agreement(first, second, name, first_rows, second_rows) for name in REDUCED_FIGURES]
    known = [bits for bits in reduced if bits is not None]
    if len(steps) < MIN_COMMON_STEPS or not known or _against(*known):
        return "other"
    apart = np.abs(first.stamps[first_rows] - second.stamps[second_rows])
    apart = apart[np.isfinite(apart)]
    if len(apart):
        together = len(apart) >= MIN_COMMON_STEPS and bool((apart <= MAX_STAMP_GAP_S).all())
        return "same" if together else "other"
    if sum(known) < MIN_LOSS_BITS_ALONE or _unlike_paces(first, second, first_rows, second_rows):
        return "other"
    return "same" if _sibling_pattern(a) == _sibling_pattern(b) else "maybe"


def _unlike_paces(
    first: Series, second: Series, first_rows: IntArray, second_rows: IntArray
) -> bool:
    """Return whether two ranks' step times differ too much for ranks that wait."""
    left, right = (
        (series.values["elapsed_s"] + np.nan_to_num(series.values["data_s"]))[at]
        for series, at in ((first, first_rows), (second, second_rows))
    )
    both = np.isfinite(left) & np.isfinite(right)
    shorter, longer = sorted((float(left[both].sum()), float(right[both].sum())))
    return longer > shorter * (1 + MAX_PACE_DIFFERENCE)


MAX_PACE_DIFFERENCE: Final = 0.03
"""Largest relative difference of step times of ranks that wait for each other: each leaves some
time out of its figures.
"""


def _sibling_pattern(source: Source) -> str:
    """Return the path of a rank's file with * for its rank, equal for sibling files."""
    return source.path.replace(f"rank{source.series[0].rank}/", "rank*/")
