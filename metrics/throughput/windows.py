"""Windows: the span that one logged line speaks of, with its tokens and its time.

A window has one time for each kind of evidence that its line gives:

    elapsed   the logged step time, with data loading added where that is printed apart
    rate      a logged rate over a known window: its time is tokens / rate
    clock     the difference of two times since the training loop began (a progress bar's)
    stamp     the difference of two time stamps

and two to check these by:

    engine    the difference of two time stamps of a companion's step lines (DeepSpeed's engine
              under Megatron, whose own lines have none); a rate is of it where its own lines have
              no time at all (the Trainer's dicts without a progress bar)
    timer     the rate of DeepSpeed's ThroughputTimer beside another format's steps, of which no
              rate of ours ever is

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ..core.arrays import BoolArray, FloatArray, IntArray
from ..core.extra_figures import extra_figure
from ..core.print_precision import MAX_STAMP_ERROR_S, MAX_UNEXPLAINED_GAP, digits_of
from ..core.quirks import has_quirk
from ..core.run_arrays import MICROSECONDS_PER_SECOND, RunArrays, total
from .smoothed_times import IS_MOVING_MEAN, mark_single_step_times, with_disjoint_spans
from .token_counts import COUNT_QUIRKS, step_samples, with_non_padding, with_token_counts

WHOLE_SECOND: Final = 1.0
"""The unit of stamps of whole seconds, s."""

MAX_UNEVEN_INTERVAL: Final = 2
"""Times as many steps as usual that may lie between two lines with none left out."""

DEFAULT_AVERAGE_WINDOW: Final = 10
"""mmengine's log_processor.window_size, where the config does not say."""

MOMENT_COLUMNS: Final = {"stamp": "logged_at", "clock": "since_start_s", "engine": "engine_at"}
"""Columns of the kinds of evidence that are a difference of two moments."""

ENGINE_EVIDENCE: Final = "engine"

PRINTED_TIME_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "elapsed": ("elapsed_s",),
    "rate": ("logged_tgs", "logged_samples_per_second"),
    "timer": ("timer_rate",),
}
"""Columns that the other kinds are printed in; of several the first that is known counts."""

WALL_CLOCK_EVIDENCE: Final = ("stamp", "clock")
"""Kinds that see all of the wall time; of several the first that a log has counts."""

NON_TRAINING_EVENTS: Final = ("checkpoint", "evaluation", "profiler")
"""Events that take time of their own, which falls into the window of the next line."""

DISTURBING_EVENTS: Final[dict[str, tuple[str, ...]]] = {
    "elapsed": NON_TRAINING_EVENTS,
    "rate": ("checkpoint", "profiler"),
    "clock": NON_TRAINING_EVENTS,
    "stamp": NON_TRAINING_EVENTS,
    "engine": NON_TRAINING_EVENTS,
    "timer": (),
}
"""Events whose time falls into the time of a kind of evidence.

A logged rate of all steps since the line before holds evaluations too, but for those behind which
it starts anew (Torchtitan's), and then nothing of what was before: see `disturbances`."""

RATE_RESTART_KEY: Final = "restarts"
"""In the `extra` of an evaluation: `rate`, where the printed rate starts anew behind it."""

PROFILED_STEPS: Final = "profiled"
"""In the `extra` of a profiler's event: `steps`, where the steps up to its own ran under it. Among
the `events` of a window: some of its steps did, and it counts, for there are no others."""

MAX_START_LINES: Final = 2
"""Step 1, and the rest of the first interval."""
DEFAULT_PROFILED_STEPS: Final = 4
"""Torchtitan's profiler_warmup of 3 and profiler_active of 1, where the config does not say
(pytorch/torchtitan/torchtitan/tools/profiling.py@018740b)."""


def _of_one_clock(steps: pl.DataFrame) -> pl.DataFrame:
    """Steps of which one rank of each run tells the seconds since its start, that which tells most.

    Each node of a job counts them from a start of its own.
    """
    if steps["since_start_s"].null_count() == steps.height:
        return steps
    told = steps.filter(pl.col("since_start_s").is_not_null())
    clocks = told.group_by("run_id", "rank").agg(lines=pl.len())
    if clocks["run_id"].is_unique().all():
        return steps
    first = clocks.sort("lines", "rank", descending=[True, False])
    kept = first.unique("run_id", keep="first", maintain_order=True)
    its = steps.select("run_id", "rank").join(
        kept.with_columns(its=True),
        on=["run_id", "rank"],
        nulls_equal=True,
        how="left",
        maintain_order="left",
    )
    return steps.with_columns(since_start_s=pl.when(its["its"]).then("since_start_s"))


def fold_ranks(steps: pl.DataFrame) -> pl.DataFrame:
    """One row per run and step, whichever ranks and lines speak of it, sorted by both.

    `rank_tokens` and `rank_slots` become the mean over the ranks that print them. Times and stamps
    (`elapsed_s`; `wall_s`, which is with data loading; `logged_at`) are those of the rank that
    takes longest on the whole, and of the slowest in a step that it does not print: of ranks that
    are not in step each tiles its own clock, and the slowest of each step are more time than
    passed. Claims are the median over the ranks. `rated_tokens` and `rated_samples` are what a
    line's own rate and time make of a step; `printing`: ranks that print it, where several do from
    `first_rank` to `last_rank`; `copies_s`: the least and the longest `elapsed_s` of lines that
    name no rank differ by so much.
    """
    clean = without_placeholder_losses(_of_one_clock(steps)).sort("run_id", "step", "line")
    several, single = split_repeated_steps(clean.with_columns(**_LINE_FIGURES))
    folded = several.pipe(_with_slowest_rank).pipe(_fold_lines)
    unsaid = pl.lit(None, pl.Int64)
    alone = single.with_columns(
        printing=pl.lit(1, pl.Int64), first_rank=unsaid, last_rank=unsaid, copies_s=0.0
    )
    return pl.concat([folded, alone.select(folded.columns)]).sort("run_id", maintain_order=True)


_LINE_FIGURES: Final = {
    "wall_s": pl.col("elapsed_s") + pl.col("data_s").fill_null(0.0),
    "rated_tokens": pl.col("logged_tgs") * pl.col("elapsed_s"),
    "rated_samples": pl.col("logged_samples_per_second") * pl.col("elapsed_s"),
}
"""Figures that follow from one line: seconds with data loading, and what its rate counts."""


def _fold_lines(steps: pl.DataFrame) -> pl.DataFrame:
    """Fold the lines of each run's step into one row, as `fold_ranks` says.

    steps: with _LINE_FIGURES, and `slowest` of `_with_slowest_rank`
    """
    loss, stamp, rank = pl.col("loss"), pl.col("logged_at"), pl.col("rank")
    number = rank.cast(pl.Int64, strict=False)
    unnamed = pl.col("elapsed_s").filter(rank.is_null())
    of_slowest = (
        pl.coalesce(pl.col(name).filter("slowest").max(), pl.col(name).max()).alias(name)
        for name in ("elapsed_s", "wall_s")
    )
    return steps.group_by("run_id", "step", maintain_order=True).agg(
        pl.col("line", "since_start_s").min(),
        pl.coalesce(stamp.filter("slowest").min(), stamp.min()),
        *of_slowest,
        pl.col("data_s").max(),
        pl.col("rank_tokens", "rank_slots", "attention_ratio").mean(),
        pl.col("samples", "sequence_length", "step_tokens").max(),
        pl.col("consumed_samples", "consumed_tokens", "consumed_non_padding").max(),
        pl.coalesce(loss.filter(loss >= 0).first(), loss.drop_nulls().first()),
        pl.col("grad_norm", "learning_rate").drop_nulls().first(),
        pl.col("peak_memory_bytes", "skipped_steps").max(),
        pl.col("logged_tgs", "logged_samples_per_second").median(),
        pl.col("logged_tflops", "logged_mfu").median(),
        pl.col("rated_tokens").mean(),
        pl.col("rated_samples").median(),
        rank.n_unique().cast(pl.Int64).alias("printing"),
        number.min().alias("first_rank"),
        number.max().alias("last_rank"),
        (unnamed.max() - unnamed.min()).alias("copies_s"),
    )


MIN_RANK_STEPS: Final = 0.5
"""The share of the steps of the rank with the most that another prints to be the slowest."""


def _with_slowest_rank(steps: pl.DataFrame) -> pl.DataFrame:
    """`slowest`: lines of the rank of each run that takes longest over all of its steps.

    By how much longer than the mean of the ranks, behind the first step. steps: with `wall_s`.
    """
    if steps.is_empty():
        return steps.with_columns(slowest=False)
    mean = pl.col("wall_s").mean().over("run_id", "step")
    behind = pl.col("step") > pl.col("step").min().over("run_id")
    ranks = (
        steps.with_columns(longer=pl.col("wall_s") - mean)
        .filter(behind, pl.col("rank").is_not_null(), pl.col("longer").is_not_null())
        .group_by("run_id", "rank")
        .agg(pl.col("longer").sum(), lines=pl.len())
        .filter(pl.col("lines") >= MIN_RANK_STEPS * pl.col("lines").max().over("run_id"))
        .sort("longer", "rank", descending=[True, False])
        .unique("run_id", keep="first", maintain_order=True)
        .select("run_id", "rank", slowest=True)
    )
    return steps.join(ranks, on=["run_id", "rank"], how="left", maintain_order="left").with_columns(
        pl.col("slowest").fill_null(value=False)
    )


def without_placeholder_losses(steps: pl.DataFrame) -> pl.DataFrame:
    """Steps without what ranks of other pipeline stages than the last print as their loss.

    It is below zero and the same at each step: -1, or that times the ranks and micro-steps that
    are summed (pytorch/torchtitan/torchtitan/train.py@81af883; issue #1232).
    """
    loss, below = pl.col("loss"), pl.col("loss") < 0
    if not steps.select(below.any()).item():
        return steps
    same = (loss.max() < 0) & (loss.min() == loss.max()) & (loss.count() > 1)
    placeholder = same.over("run_id", "rank").fill_null(value=False)
    return steps.with_columns(pl.when(~placeholder).then(loss).alias("loss"))


def split_repeated_steps(steps: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Steps of the runs that print some step on several lines, and those of all other runs.

    In the latter each step is one line, which need not be grouped: groups cost much. steps: sorted
    by run and step.
    """
    by = pl.struct("run_id", "step")
    again = steps.filter(by == by.shift())
    if again.is_empty():
        return again, steps
    of_several = pl.col("run_id").is_in(again["run_id"].unique().implode())
    return steps.filter(of_several), steps.filter(~of_several)


def build_windows(
    steps: pl.DataFrame, runs: pl.DataFrame, facts: pl.DataFrame, events: pl.DataFrame
) -> pl.DataFrame:
    """One row per logged step: its tokens, and its span and time by each kind of evidence.

    steps, runs, events: as in ingest.core.schema; facts: as
    metrics.throughput.resolved_facts.typed_facts. Adds to `fold_ranks` tokens_per_gpu [tokens of
    one step on one GPU], slots_per_gpu, for each evidence `*_span` [steps] and `*_time` [s; null
    where absent], `events` and `gc_s`: what fell into the window, `rate_events`: those of them that
    its rate may hold, `rated_from`: the last step before behind which the rate started anew,
    `restarts`: how often it did in the window, `smeared`: a moving mean that still holds the
    start-up or spoiler of an earlier line, `disturbed` and `rate_disturbed`: that an event of
    DISTURBING_EVENTS fell into it, `begun_anew`: a rate that began within the window, and
    `warming`, `stall_s` and `unlogged`, which
    metrics.throughput.warmup.mark_warm_up_and_stalls fills.
    """
    return (
        fold_ranks(steps)
        .pipe(_with_run_columns, runs, facts)
        .pipe(_with_engine, events)
        .pipe(_with_differences)
        .pipe(_over_untimed)
        .pipe(mark_single_step_times)
        .pipe(_with_restarts, events)
        .with_columns(interval=_interval())
        .with_columns(_spans())
        .pipe(with_non_padding)
        .pipe(with_token_counts)
        .pipe(_evened)
        .pipe(with_disjoint_spans)
        .with_columns(_times())
        .pipe(_with_events, events)
        .with_columns(*_disturbed())
        .with_columns(_smeared(), warming=False, stall_s=0.0, unlogged=False, begun_anew=False)
        .pipe(_with_new_beginnings)
        .drop(COUNT_QUIRKS)
    )


def _with_run_columns(steps: pl.DataFrame, runs: pl.DataFrame, facts: pl.DataFrame) -> pl.DataFrame:
    """Add to each step what is known of its run as a whole, and `step_time` [s] by that."""
    quirks = {name: has_quirk(name) for name in COUNT_QUIRKS}
    about, inputs = runs.select("run_id", *_ABOUT, **quirks), facts.select("run_id", *_INPUTS)
    window = pl.col("average_window")
    return (
        steps.join(about, on="run_id", validate="m:1", maintain_order="left")
        .join(inputs, on="run_id", how="left", validate="m:1", maintain_order="left")
        .with_columns(
            window.fill_null(DEFAULT_AVERAGE_WINDOW),
            window_unsaid=window.is_null(),
            step_time=_step_time(),
        )
    )


_ABOUT: Final = (
    "framework",
    "log_format",
    "step_unit",
    "elapsed_covers",
    "elapsed_excludes_data",
    "rate_covers",
    "quirks",
)
_INPUTS: Final = (
    "gpus",
    "seq_len",
    "packed",
    "objective",
    "micro_batch_size",
    "global_batch_size",
    "gradient_accumulation",
    "data_parallel",
    "tensor_parallel",
    "pipeline_parallel",
    "context_parallel",
    "pipelined",
    "log_interval",
    "steps_counted",
    "average_window",
    "profiled_steps",
)
_DIFFERENCES: Final = ("step", *MOMENT_COLUMNS.values(), "consumed_samples", "consumed_tokens")
_TIMED: Final = (*MOMENT_COLUMNS.values(), "elapsed_s", "logged_tgs", "logged_samples_per_second")


def _with_differences(steps: pl.DataFrame) -> pl.DataFrame:
    """Add `new_*`, the differences to the line before of its run, and which lines have a time."""
    return steps.with_columns(
        pl.when(pl.col("since_start_s").is_finite()).then("since_start_s")
    ).with_columns(
        pl.col(*_DIFFERENCES).diff().over("run_id").name.prefix("new_"),
        first=pl.int_range(pl.len()).over("run_id") == 0,
        timed=pl.any_horizontal(pl.col(*_TIMED).is_not_null()),
    )


def _over_untimed(steps: pl.DataFrame) -> pl.DataFrame:
    """Differences of moments as of the last line before that has any time, `apart` steps before.

    Not each line has one: a dict of the Trainer does where its progress bar was printed beside it.
    """
    steps = steps.with_columns(apart="new_step")
    if steps["timed"].all():
        return steps
    since = {"apart": "step"} | {f"new_{name}": name for name in MOMENT_COLUMNS.values()}
    differences = {new: pl.col(name).diff().over("run_id") for new, name in since.items()}
    own = steps.filter("timed").select("run_id", "step", **differences)
    return steps.drop(*since).join(
        own, on=["run_id", "step"], how="left", validate="1:1", maintain_order="left"
    )


def _evened(steps: pl.DataFrame) -> pl.DataFrame:
    """Tokens of lines whose time is one for several of them: each gets those of their mean step."""
    if (steps["apart"] == steps["new_step"]).all(ignore_nulls=True):
        return steps
    stretch = ("run_id", "stretch")
    several = (pl.col("apart") > pl.col("new_step")).any().over(stretch)

    def even(name: str) -> pl.Expr:
        known = pl.col(name).is_not_null().all().over(stretch)
        whole = (pl.col("new_step") * pl.col(name)).sum().over(stretch)
        mean = whole / pl.col("new_step").sum().over(stretch)
        return pl.when(several).then(pl.when(known).then(mean)).otherwise(name).alias(name)

    up_to_a_time = pl.col("timed").cast(pl.Int64).cum_sum(reverse=True).over("run_id")
    counts = (even(name) for name in ("tokens_per_gpu", "slots_per_gpu"))
    return steps.with_columns(stretch=up_to_a_time).with_columns(counts).drop("stretch")


def _interval() -> pl.Expr:
    """Steps that a mean since the last line is over.

    In an excerpt that leaves lines out more steps lie between two lines than that: a line speaks of
    no more than lie between most of them, or than the log's interval. Where half have far more
    between them than the others, these tell it.
    """
    from_start = pl.col("first") & (pl.col("step") <= pl.coalesce("log_interval", 1))
    short = _begins_behind_step_1(pl.col("step"), pl.col("new_step"))
    whole = pl.when(short).then("step").otherwise("new_step")
    less, more = (whole.quantile(0.5, which).over("run_id") for which in ("lower", "higher"))
    usual = pl.when(more > MAX_UNEVEN_INTERVAL * less).then(less).otherwise(more).cast(pl.Int64)
    apart = pl.coalesce("log_interval", usual)
    since = pl.when(pl.col("new_step") > apart).then(apart).otherwise("new_step")
    return pl.when(from_start).then("step").otherwise(since)


_S = TypeVar("_S", pl.Expr, NDArray[Any])


def _begins_behind_step_1(step: _S, span: _S) -> _S:
    """Whether a line speaks of the first interval less step 1, which has a line of its own.

    Some frameworks print step 1 whatever their interval is (Torchtitan), then the line of step 10,
    which is of nine steps. step: the last that a line speaks of; span: how many. A line of step 2
    alone is a whole interval of one step.
    """
    found: _S = (step - span == 1) & (span > 1)
    return found


def _spans() -> list[pl.Expr]:
    """Steps that each kind of evidence speaks of; null where that is not known."""
    since = pl.col("interval")
    anew = pl.min_horizontal(since, pl.col("step") - pl.col("rated_from"))  # nulls are left out
    reach = pl.min_horizontal("step", "average_window")
    mean = pl.min_horizontal(since, reach)
    kinds = {"step": pl.lit(1), "interval": since, "last_10": mean}
    elapsed, rate = pl.lit(None, pl.Int64), pl.lit(None, pl.Int64)
    for kind, span in kinds.items():
        elapsed = pl.when(pl.col("elapsed_covers") == kind).then(span).otherwise(elapsed)
        rated = anew if kind == "interval" else span
        rate = pl.when(pl.col("rate_covers") == kind).then(rated).otherwise(rate)
    return [
        elapsed.alias("elapsed_span"),
        pl.when(IS_MOVING_MEAN).then(reach).otherwise(elapsed).alias("elapsed_reach"),
        rate.alias("rate_span"),
        pl.col("apart").alias("clock_span"),
        pl.col("apart").alias("stamp_span"),
        pl.col("apart").alias("engine_span"),
        pl.lit(1, pl.Int64).alias("timer_span"),
    ]


def _step_time() -> pl.Expr:
    """Seconds of a step as the line prints them, with its wait for data."""
    return pl.when("elapsed_excludes_data").then("wall_s").otherwise("elapsed_s")


def _times() -> list[pl.Expr]:
    """Seconds of the spans; a rate whose tokens are unknown counts each step as one token."""
    mean_s = pl.col("elapsed_reach") * pl.col("step_time") - pl.col("elapsed_less_s")
    samples_rate = pl.col("logged_samples_per_second") * pl.col("sample_length") / pl.col("gpus")
    rate = pl.coalesce("logged_tgs", samples_rate)
    tokens = pl.coalesce("tokens_per_gpu", 1.0)
    stamped = pl.col("new_logged_at").dt.total_microseconds() / 1e6  # 0 within one second
    engine = pl.col("new_engine_at").dt.total_microseconds() / 1e6
    samples, sampled = step_samples(), pl.col("logged_samples_per_second")
    clocked = pl.col("new_since_start_s")
    return [
        _positive(pl.when(pl.col("elapsed_span").is_not_null()).then(mean_s)).alias("elapsed_time"),
        _positive(pl.col("rate_span") * tokens / rate).alias("rate_time"),
        pl.when(clocked >= 0).then(clocked).alias("clock_time"),
        pl.when(stamped >= 0).then(stamped).alias("stamp_time"),
        pl.when(engine >= 0).then(engine).alias("engine_time"),
        pl.coalesce(
            _positive(pl.col("rate_span") * pl.col("tokens_per_gpu") / pl.col("logged_tgs")),
            _positive(pl.col("rate_span") * samples / sampled),
        ).alias("known_rate_time"),
        _positive(samples / pl.col("timer_rate")).alias("timer_time"),
    ]


def _positive(seconds: pl.Expr) -> pl.Expr:
    return pl.when(seconds.is_finite() & (seconds > 0)).then(seconds)


def _with_engine(steps: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """What the engine's lines say beside another format's steps.

    `engine_at`: the stamp of its line of the same step, which stands between the line of the step
    before and that of this one: so the two count the same steps. `timer_rate` [samples/s],
    `timer_step` and `timer_micro_step`: of its ThroughputTimer, which counts from where it was
    started, so that its line is of the step that is printed next after it.
    """
    engine = events.filter(kind="engine_step")
    ended = (
        events.filter(pl.col("kind") == "end", pl.col("seconds").is_not_null())
        .group_by("run_id")
        .agg(runtime_s=pl.col("seconds").max())
    )
    stamped = _with_engine_stamps(steps, engine)
    joined = stamped.join(ended, on="run_id", how="left", maintain_order="left")
    return _with_engine_timer(joined, engine)


def _with_engine_stamps(steps: pl.DataFrame, engine: pl.DataFrame) -> pl.DataFrame:
    """Add `engine_at`; engine: events of the engine's lines."""
    stamps = engine.filter(pl.col("step").is_not_null(), pl.col("logged_at").is_not_null())
    if stamps.is_empty():
        return steps.with_columns(engine_at=pl.lit(None, steps.schema["logged_at"]))
    of_step = stamps.group_by("run_id", "step", maintain_order=True).agg(
        engine_at=pl.col("logged_at").min(), engine_line=pl.col("line").min()
    )
    line, counted = pl.col("line"), pl.col("steps_counted").fill_null(value=False)
    between = pl.col("engine_line").is_between(line.shift().over("run_id").fill_null(0), line)
    return (
        steps.join(of_step, on=["run_id", "step"], how="left", maintain_order="left")
        .with_columns(pl.when(between & ~counted).then("engine_at"))
        .drop("engine_line")
    )


def _with_engine_timer(steps: pl.DataFrame, engine: pl.DataFrame) -> pl.DataFrame:
    """Add `timer_rate`, `timer_step` and `timer_micro_step`; engine: events of its lines."""
    timer = {f"timer_{name}": extra_figure(name) for name in ("rate", "step", "micro_step")}
    averaged = pl.col("extra").str.json_path_match("$.average").is_not_null()
    timed = engine.filter(averaged)
    if timed.is_empty():
        return steps.with_columns(pl.lit(None, pl.Float64).alias(name) for name in timer)
    timed = timed.sort("line").select("run_id", "line", at="line", **timer)
    before = steps.sort("line").join_asof(timed, on="line", by="run_id", check_sortedness=False)
    own = pl.col("at") > pl.col("line").shift().over("run_id").fill_null(0)
    return (
        before.with_columns(pl.when(own).then(pl.col(*timer)).name.keep())
        .drop("at")
        .sort("run_id", "step")
    )


def _restarts() -> pl.Expr:
    """Of an event whether the printed rate starts anew behind it."""
    said = pl.col("extra").str.json_path_match(f"$.{RATE_RESTART_KEY}") == "rate"
    return ((pl.col("kind") == "evaluation") & said).fill_null(value=False)


def _with_restarts(steps: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """`rated_from`: the last step before this one behind which the printed rate starts anew.

    That is one between two lines where an evaluation is out of step with them: the steps up to it
    are then in the rate of neither. `restarts`: how many there are since the line before.
    """
    found = events.filter(_restarts(), pl.col("step").is_not_null())
    if not found.height:
        never = (pl.col("step") * 0).diff().over("run_id")  # as where another run's does
        return steps.with_columns(rated_from=pl.lit(None, pl.Int64), restarts=never)
    found = found.select("run_id", "step", rated_from="step").unique().sort("step")
    joined = steps.sort("step").join_asof(
        found.with_columns(restarts=pl.int_range(1, pl.len() + 1).over("run_id")),
        on="step",
        by="run_id",
        strategy="backward",
        allow_exact_matches=False,
        check_sortedness=False,
    )
    so_far = pl.col("restarts").fill_null(0)
    return joined.sort("run_id", "step").with_columns(restarts=so_far.diff().over("run_id"))


def _with_events(steps: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """`events`: kinds of those between the line before and this one, of those with a time.

    With them a profiler that some step between the two ran under, and that writes later what it
    saw. `rate_events`: those behind which the rate does not start anew. `gc_s`: the time that
    garbage collection printed there, of all ranks; null where it did not.
    """
    collected = pl.col("kind") == "gc"
    since = (pl.col("step") - pl.col("new_step")).fill_null(-1)
    places = steps.filter("timed").select("run_id", "line", at="line", into="step", since=since)
    # by their order, for those of another source of the launch may be of one line
    after = pl.col("order") > pl.col("order").filter("anew").max().fill_null(-1)
    fell = (
        events.select("run_id", "line", "kind", "seconds", behind="step", anew=_restarts())
        .sort("line", maintain_order=True)
        .with_columns(order=pl.int_range(pl.len()))
        .join_asof(
            places.sort("line"), on="line", by="run_id", strategy="forward", check_sortedness=False
        )
        .pipe(_of_lines_shared, places)
        .drop("behind", "since")
    )
    profiled = _profiled(steps, events, fell)
    if profiled.height:
        fell = pl.concat([fell, profiled.select(fell.columns)], how="vertical_relaxed")
    kinds = fell.group_by("run_id", "into", maintain_order=True).agg(
        events=pl.col("kind").unique(maintain_order=True),
        rate_events=pl.col("kind").filter(after).unique(maintain_order=True),
        gc_s=pl.when((collected & pl.col("seconds").is_null()).any().not_()).then(
            pl.col("seconds").filter(collected).sum()
        ),
    )
    joined = steps.join(
        kinds,
        left_on=["run_id", "step"],
        right_on=["run_id", "into"],
        how="left",
        maintain_order="left",
    )
    return joined.with_columns(pl.col("events", "rate_events").fill_null([]))


def _of_lines_shared(fell: pl.DataFrame, places: pl.DataFrame) -> pl.DataFrame:
    """Events with all lines of steps that they may have fallen into.

    Where the source that leads prints fewer steps than another of its launch, several have its next
    line: an event falls into the first of them behind its own step, or into all if it says none, or
    one that they do not hold. fell: `order`, its own; `behind`, the step that it says; `at`, the
    line that it fell into, and `into`, its step. places: the lines of all steps, sorted by run and
    step; `since`, the step before.
    """
    again = pl.all_horizontal(pl.col(name) == pl.col(name).shift() for name in ("run_id", "line"))
    shared = places.filter(again).select("run_id", "at").unique()
    if not shared.height:
        return fell
    each = (
        fell.drop("into", "since")
        .join(shared, on=["run_id", "at"], how="semi", maintain_order="left")
        .join(places.drop("line"), on=["run_id", "at"], how="left", maintain_order="left")
    )
    into, behind = pl.col("into"), pl.col("behind")
    held = behind.is_between(pl.col("since").min(), into.max()).over("order")
    last = into.max().over("order")
    its = into.filter(into >= pl.min_horizontal(behind + 1, last)).min().over("order")
    placed = each.filter((~held | (into == its)).fill_null(value=True)).select(fell.columns)
    alone = fell.join(shared, on=["run_id", "at"], how="anti", maintain_order="left")
    return pl.concat([alone, placed]).sort("order", maintain_order=True)


def _profiled(steps: pl.DataFrame, events: pl.DataFrame, fell: pl.DataFrame) -> pl.DataFrame:
    """An event for each line with a time of whose steps some ran under a profiler.

    Its traces are written, and told of, behind the last of these steps. No rows where none ran.
    kind: "profiler"; PROFILED_STEPS of a run with no other line behind its start, but such that
    events (fell) spoil: there these are all that there is, some hundredths slower.
    """
    of_profiler = events.filter(pl.col("kind") == "profiler", pl.col("step").is_not_null())
    written = of_profiler.filter(
        pl.col("extra").str.json_path_match(f"$.{PROFILED_STEPS}") == "steps"
    )
    if not written.height:
        return written
    first = pl.col("step") - pl.col("apart").fill_null(pl.col("step")) + 1
    lines = steps.filter("timed").select(
        "run_id", "line", "profiled_steps", at="line", into="step", step=first
    )
    next_written = written.select("run_id", "step", until="step").sort("step")
    under = lines.sort("step").join_asof(
        next_written, on="step", by="run_id", strategy="forward", check_sortedness=False
    )
    reach = pl.col("profiled_steps").fill_null(DEFAULT_PROFILED_STEPS)
    under = under.filter(pl.col("until") - reach < pl.col("into"))
    spoiling = fell.filter(pl.col("kind").is_in(NON_TRAINING_EVENTS), pl.col("anew").not_())
    others = lines.filter(pl.col("into").rank("ordinal").over("run_id") > MAX_START_LINES)
    for some in (under, spoiling):
        others = others.join(some, on=["run_id", "into"], how="anti")
    kind = pl.when(pl.col("run_id").is_in(others["run_id"].unique().implode()))
    return under.with_columns(
        kind=kind.then(pl.lit("profiler")).otherwise(pl.lit(PROFILED_STEPS)),
        seconds=pl.lit(None, pl.Float64),
        anew=pl.lit(value=False),
        order=pl.lit(fell.height),
    )


def _disturbed() -> tuple[pl.Expr, pl.Expr]:
    """`disturbed`, `rate_disturbed`: windows that `disturbances` finds, by a time and by a rate."""

    def hold(events: str, kinds: Sequence[str]) -> pl.Expr:
        return pl.col(events).list.eval(pl.element().is_in(kinds)).list.any()

    of_all = (pl.col("rate_covers") == "interval").fill_null(value=False)
    rate = pl.when(of_all).then(hold("rate_events", NON_TRAINING_EVENTS))
    return (
        hold("events", NON_TRAINING_EVENTS).alias("disturbed"),
        rate.otherwise(hold("rate_events", DISTURBING_EVENTS["rate"])).alias("rate_disturbed"),
    )


def _smeared() -> pl.Expr:
    """Whether a moving mean (mmengine's) holds the start-up, or what spoiled an earlier line.

    It does where it reaches back to such a line, because lines are printed more often than they
    average. XTuner up to 0.1.13 evaluates before the line of a step, and the timer gives that to
    the next step: what is taken from means that share steps leaves that one out. Elsewhere a time
    that is longer than between the stamps holds what ran before them.
    """
    spoiled = pl.col("disturbed")
    bad = pl.when(pl.col("first") | spoiled).then("step").forward_fill().over("run_id")
    evaluated = pl.when(spoiled).then("step").forward_fill().over("run_id")
    longer = (
        pl.col("elapsed_time")
        > pl.col("stamp_time") * (1 + MAX_UNEXPLAINED_GAP) + MAX_STAMP_ERROR_S
    )
    foreign = ((pl.col("average_window") <= pl.col("new_step")) & longer).fill_null(value=False)
    apart = pl.col("elapsed_span") == pl.col("new_step")
    begin = pl.col("step") - pl.when(apart).then("elapsed_span").otherwise("elapsed_reach")
    shared = pl.col("elapsed_reach") > pl.col("new_step")
    back = (begin < bad) | foreign | (shared & (begin <= evaluated)).fill_null(value=False)
    return (IS_MOVING_MEAN & back).fill_null(value=False).alias("smeared")


MIN_PAUSE_S: Final = 5.0
MIN_PAUSE_SHARE: Final = 0.1
"""Seconds, and a share of a window's time by its rate, that time stamps have to hold beside it for
a process to have begun in between."""

MAX_RESTARTED_SHARE: Final = 0.2
"""Windows that hold more are a share of at most this, or they are no exceptions."""


def _with_new_beginnings(steps: pl.DataFrame) -> pl.DataFrame:
    """`begun_anew`: a few windows whose stamps hold much more than a rate of all since the line.

    No line says of what (an evaluation starts the rate anew, and that is known). The rate of a
    process that began there is over its own start-up and the steps behind that alone. Where the
    tokens of a step are not known, they are what most windows have by their rate and time.
    """
    of_all = (pl.col("rate_covers") == "interval") & pl.col("elapsed_covers").ne_missing("interval")
    if not steps.select((of_all & pl.col("stamp_time").is_not_null()).any()).item():
        return steps
    rate, whole = pl.col("logged_tgs"), pl.col("rate_span") == pl.col("stamp_span")
    rated = rate.is_finite() & (rate > 0) & whole & ~pl.col("first")
    counted = pl.when(rated).then(rate * pl.col("stamp_time") / pl.col("rate_span"))
    tokens = pl.coalesce("tokens_per_gpu", counted.median().over("run_id"))
    by_rate = pl.col("rate_span") * tokens / rate
    pause = pl.col("stamp_time") - by_rate
    said = pl.col("events").list.contains("evaluation")
    long = (pause > MIN_PAUSE_S) & (pause > (MIN_PAUSE_SHARE + 0.5 / rate) * by_rate)
    anew = (of_all & rated & ~said & long).fill_null(value=False)
    steps = steps.with_columns(begun_anew=anew)
    if not steps["begun_anew"].any():
        return steps
    few = pl.col("begun_anew").mean().over("run_id") <= MAX_RESTARTED_SHARE
    return steps.with_columns(pl.col("begun_anew") & few)


@dataclass(frozen=True, slots=True)
class WindowSelection:
    """Windows of one run, mostly the steady ones.

    indices: their places; tokens, seconds: of each, on one GPU
    """

    indices: IntArray
    tokens: FloatArray
    seconds: FloatArray

    def behind(self, number: int) -> WindowSelection:
        """All but the first `number` of them."""
        return WindowSelection(self.indices[number:], self.tokens[number:], self.seconds[number:])


def disturbances(run: RunArrays, evidence: str) -> dict[int, list[str]]:
    """Windows that DISTURBING_EVENTS fell into, by place, with these events in order.

    evidence: of time evidence
    """
    found: dict[int, list[str]] = {}
    for at, events in run.events("rate_events" if evidence == "rate" else "events"):
        of_all = evidence == "rate" and run.value("rate_covers", at) == "interval"
        its = NON_TRAINING_EVENTS if of_all else DISTURBING_EVENTS[evidence]
        if spoiling := [event for event in events if event in its]:
            found[at] = spoiling
    return found


def steady_windows(run: RunArrays, evidence: str) -> WindowSelection:
    """The windows of one run that count as steady.

    All but the first, which holds start-up and compilation, those that an event of
    DISTURBING_EVENTS fell into, moving means that reach back to such, rates that began anew, and
    where they are marked warm-up and work of which the log has no line. Other windows that are slow
    for no known reason stay in.
    """
    left_out = disturbed_windows(run, evidence) | run.flags("warming") | run.flags("unlogged")
    if evidence == "rate":
        left_out |= run.flags("begun_anew")
    return timed_windows(run, evidence, ~left_out)


def disturbed_windows(run: RunArrays, evidence: str) -> BoolArray:
    """Windows that are known to hold more than training, by one kind of evidence."""
    out = run.flags("first")
    if DISTURBING_EVENTS[evidence]:
        out = out | run.flags("rate_disturbed" if evidence == "rate" else "disturbed")
    return out | run.flags("smeared") if evidence == "elapsed" else out


def timed_windows(run: RunArrays, evidence: str, mask: BoolArray) -> WindowSelection:
    """Windows of a run, of those `mask`, whose tokens and time are known by one evidence."""
    tokens, seconds = window_tokens(run, evidence), run[f"{evidence}_time"]
    at = np.flatnonzero(mask & ~np.isnan(tokens) & ~np.isnan(seconds))
    return WindowSelection(at, tokens[at], seconds[at])


def window_tokens(run: RunArrays, evidence: str) -> FloatArray:
    """Tokens of each window on one GPU; a rate whose tokens are unknown counts a step as one."""
    tokens = run["tokens_per_gpu"]
    if evidence == "rate":
        tokens = np.where(np.isnan(tokens), 1.0, tokens)
    return run[f"{evidence}_span"] * tokens


def lines_of_windows(run: RunArrays, evidence: str, selection: WindowSelection) -> WindowSelection:
    """The lines whose steps these windows hold, each with its share of tokens and time.

    A window is mostly one line. That of a moving mean spans several, each of which may print
    something else of its own steps (their length, say).
    """
    if evidence != "elapsed" or not (run["elapsed_reach"] > run["new_step"]).any():
        return selection
    last, begins = (
        selection.indices,
        run["step"][selection.indices] - run["elapsed_span"][selection.indices],
    )
    held = last + 1 - np.searchsorted(run["step"], begins, "right")
    lines = np.arange(held.sum()) + np.repeat(last + 1 - np.cumsum(held), held)
    return WindowSelection(
        lines, np.repeat(selection.tokens / held, held), np.repeat(selection.seconds / held, held)
    )


def window_after_step_1(run: RunArrays, evidence: str) -> int | None:
    """The place of the window of the first interval less step 1, which is printed alone.

    It counts as start-up, as that of step 1 does: a framework that gives step 1 no line of its own
    prints the two as one.
    """
    steps, spans = run["step"], run[f"{evidence}_span"]
    at = timed_windows(run, evidence, ~run.flags("first")).indices[:1]
    rest = steps[0] == 1 and _begins_behind_step_1(steps[at], spans[at]).any()
    return int(at[0]) if rest else None


def accumulation_steps(run: RunArrays) -> int:
    """Micro-steps per optimizer step of a run whose steps are micro-steps; 1 of all others."""
    every = run.value("gradient_accumulation") or 1
    return int(every) if run.value("step_unit") == "micro_step" else 1


def steps_covered(run: RunArrays, evidence: str, indices: IntArray) -> float:
    """Steps behind the windows before some windows, up to the last of each: those timed or not."""
    since = run["elapsed_apart" if evidence == "elapsed" else "new_step"]
    return float(np.nansum(since[indices]))


def average_window_assumed(run: RunArrays) -> bool:
    """Whether nothing tells over how many steps a run's times are means: neither rates nor it."""
    moving = run.value("elapsed_covers") == "last_10" and run.value("average_window") != 1
    return moving and bool(run.flags("window_unsaid").any()) and not run.has_any("logged_tgs")


MAX_STEP_IMBALANCE: Final = 0.1
"""How far from their share optimizer steps may be in number, where nothing tells how long one takes
beside its micro-step; one takes a part of its cycle only."""


@dataclass(frozen=True, slots=True)
class OptimizerStepCount:
    """Optimizer steps in some windows of a run whose steps are micro-steps.

    count: of those windows; expected: as many as so many micro-steps have on the whole;
    excess_share: the share of the windows' time that is of optimizer steps beyond these, or lacking
    where they are fewer; None where windows do not tell how long one takes
    """

    count: int
    expected: float
    excess_share: float | None

    @classmethod
    def in_windows(
        cls, run: RunArrays, evidence: str, indices: IntArray
    ) -> OptimizerStepCount | None:
        """Those of windows, by place; None where no micro-steps are accumulated."""
        every = accumulation_steps(run)
        if every == 1:
            return None
        spans, seconds = run[f"{evidence}_span"][indices], run[f"{evidence}_time"][indices]
        each = count_optimizer_steps(run["step"][indices], spans, every)
        found, fair = int(each.sum()), float(spans.sum()) / every
        longer = _seconds_of_updates(spans, each, seconds)
        whole = total(seconds)
        more = None if longer is None or not whole else (found - fair) * longer / whole
        return cls(found, fair, more)

    @property
    def is_balanced(self) -> bool:
        """Whether their number leaves TGS as it is, or they are about as many as is their share."""
        if self.excess_share is not None:
            return abs(self.excess_share) <= MAX_UNEXPLAINED_GAP
        return not self.expected or abs(self.count / self.expected - 1) <= MAX_STEP_IMBALANCE


def _seconds_of_updates(
    spans: FloatArray, updates: FloatArray, seconds: FloatArray
) -> float | None:
    """How much longer a micro-step takes with the optimizer's step; None where windows don't tell.

    By the medians of windows that hold as many of both, which a stall does not move, or by their
    means, which know of optimizer steps that take longer than most: whichever is more.
    """
    kinds, of, many = np.unique(
        np.stack([spans, updates]), axis=1, return_inverse=True, return_counts=True
    )
    if np.linalg.matrix_rank(kinds) < len(kinds):
        return None
    each = [seconds[of.ravel() == kind] for kind in range(len(many))]
    weights = np.sqrt(many)
    fitted = (
        np.linalg.lstsq((kinds * weights).T, np.array(usual) * weights, rcond=None)[0][1]
        for usual in ([np.median(x) for x in each], [np.mean(x) for x in each])
    )
    return float(max(fitted, key=abs))


def count_optimizer_steps(
    last_steps: FloatArray, spans: FloatArray, accumulation: int
) -> FloatArray:
    """Count the micro-steps of each stretch that end an optimizer step.

    These are the multiples of `accumulation`.

    last_steps: the last micro-step of each stretch; spans: their lengths
    """
    found: FloatArray = np.floor(last_steps / accumulation) - np.floor(
        (last_steps - spans) / accumulation
    )
    return found


def steady_window_rows(frame: pl.DataFrame, evidence: str) -> pl.DataFrame:
    """Rows of `steady_windows`, with `tokens` and `seconds` on one GPU.

    frame: of one run or several.
    """
    found = steady_windows(RunArrays(frame), evidence)
    tokens, seconds = pl.Series("tokens", found.tokens), pl.Series("seconds", found.seconds)
    return frame[found.indices].with_columns(tokens, seconds)


def choose_evidence(run: RunArrays, preferred: Sequence[str]) -> str | None:
    """The kind of time evidence that a run's rates are of; None where there is none.

    The first of those preferred by which it has a clean window with time and tokens. But a rate
    that is printed too coarsely (`tps: 8`) gives way to a kind that is fine enough, and so do times
    of micro-steps that hold more or fewer optimizer steps than their share, as means over ten of
    every twenty may, to one that holds its own. The engine's stamps count only where the run's own
    lines have no time.
    """
    own = any(run.has_any(f"{evidence}_time") for evidence in preferred)
    kinds = preferred if own else (*preferred, ENGINE_EVIDENCE)
    windows = ((evidence, steady_windows(run, evidence)) for evidence in kinds)
    known = ((e, one) for e, one in windows if one.seconds.sum() > 0 and one.tokens.sum() > 0)
    first, counted = next(known, (None, None))
    if first is None or counted is None:
        return None
    coarse = first == "rate" and has_coarse_rates(run, counted)
    if coarse or not has_balanced_steps(run, first):
        fine = (e for e, one in known if evidence_rounding(run, one, e) <= MAX_UNEXPLAINED_GAP)
        return next((e for e in fine if has_balanced_steps(run, e)), first)
    return first


def has_balanced_steps(run: RunArrays, evidence: str) -> bool:
    """Whether windows, warm-up among them, hold about as many optimizer steps as is their share."""
    if accumulation_steps(run) == 1:
        return True
    updates = OptimizerStepCount.in_windows(
        run, evidence, timed_windows(run, evidence, ~disturbed_windows(run, evidence)).indices
    )
    return updates is None or updates.is_balanced


def has_coarse_rates(run: RunArrays, selection: WindowSelection) -> bool:
    """Whether rates are whole numbers so small that half a unit is more than 1 % of them.

    Of formats that round them alone: another's may be whole by chance (`8.0` is 8 in a table).
    """
    rates = _printed_values(run, selection, "rate")
    whole = run.has_quirk("rates_rounded") and len(rates) > 0 and not (rates % 1).any()
    return whole and bool(np.median(0.5 / rates) > MAX_UNEXPLAINED_GAP)


def evidence_rounding(run: RunArrays, selection: WindowSelection, evidence: str) -> float:
    """How much of the time the print of one kind of evidence leaves open, as a fraction.

    Of a printed time or rate half a unit of its last digit; of stamps and clocks half a unit at
    both ends, over all of the time between.
    """
    if evidence not in PRINTED_TIME_COLUMNS:
        return stamp_error(run, evidence, selection.indices) / total(selection.seconds)
    values = _printed_values(run, selection, evidence)
    if not len(values):  # nothing but waiting for data
        return 0.0
    return float(np.median(digits_of(values).last_places(values) / 2 / values))


def _printed_values(run: RunArrays, selection: WindowSelection, evidence: str) -> FloatArray:
    """What the lines of windows print of one kind of evidence, above 0: of its first column."""
    columns = (run[name][selection.indices] for name in PRINTED_TIME_COLUMNS[evidence])
    above = (column[column > 0] for column in columns)
    return next((values for values in above if len(values)), np.empty(0))


def stamp_error(run: RunArrays, evidence: str, indices: IntArray | None = None) -> float:
    """How far a window's time may be off because its two ends are printed as whole seconds, s.

    indices: places of the windows that are meant; all without it
    """
    whole = evidence in WALL_CLOCK_EVIDENCE and clock_unit(run, evidence, indices) == WHOLE_SECOND
    return MAX_STAMP_ERROR_S if whole else 0.0


def clock_unit(run: RunArrays, evidence: str, indices: IntArray | None = None) -> float:
    """The coarsest unit that all stamps or readings of a clock are multiples of, s.

    evidence: one of MOMENT_COLUMNS; indices: as of `stamp_error`
    """
    name = MOMENT_COLUMNS[evidence]
    moments = run[name] if indices is None else run[name][indices]
    moments = moments[~np.isnan(moments)]
    if run.values(name).dtype == pl.Float64:
        moments = (moments * MICROSECONDS_PER_SECOND).round()
    micros = moments.astype(np.int64) % 1_000_000
    units = (1_000_000, 100_000, 10_000, 1_000)
    return next((unit / 1e6 for unit in units if not (micros % unit).any()), 1e-6)
