"""Windows: the steps covered by one logged line, with their tokens and time.

A window has one time for each kind of evidence on its line:

    elapsed   the logged step time, plus data loading if printed apart
    rate      a logged rate over a known window: its time is tokens / rate
    clock     the difference of two times since the training loop began (a progress bar's)
    stamp     the difference of two time stamps

and two kinds to check the others:

    engine    the difference of two time stamps of a companion's step lines (DeepSpeed's engine
              under Megatron, whose own lines have none). Used for a rate only if the run's own
              lines have no time at all (the Trainer's dicts without a progress bar)
    timer     the rate of DeepSpeed's ThroughputTimer beside another format's steps; never used
              for our rates

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from ..core.arrays import BoolArray, FloatArray, IntArray, median_of
from ..core.extra_figures import extra_figure, possible_figure
from ..core.print_precision import MAX_STAMP_ERROR_S, MAX_UNEXPLAINED_GAP, digits_of
from ..core.quirks import has_quirk
from ..core.run_arrays import MICROSECONDS_PER_SECOND, RunArrays, once_a_run, total
from .smoothed_times import IS_MOVING_MEAN, mark_single_step_times, with_disjoint_spans
from .token_counts import COUNT_QUIRKS, step_samples, with_non_padding, with_token_counts

WHOLE_SECOND: Final = 1.0
"""Unit of stamps of whole seconds [s]."""

MAX_UNEVEN_INTERVAL: Final = 2
"""Largest distance between two lines, in usual intervals, without a missing line."""

DEFAULT_AVERAGE_WINDOW: Final = 10
"""mmengine's log_processor.window_size, where the config does not state one."""

MOMENT_COLUMNS: Final = {"stamp": "logged_at", "clock": "since_start_s", "engine": "engine_at"}
"""Columns of the kinds of evidence that are a difference of two moments."""

ENGINE_EVIDENCE: Final = "engine"

PRINTED_TIME_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "elapsed": ("elapsed_s",),
    "rate": ("logged_tgs", "logged_samples_per_second"),
    "timer": ("timer_rate",),
}
"""Printed columns of the other kinds; the first known column counts."""

WALL_CLOCK_EVIDENCE: Final = ("stamp", "clock")
"""Kinds that cover all of the wall time; the first in the log counts."""

NON_TRAINING_EVENTS: Final = ("checkpoint", "evaluation", "profiler")
"""Events with time of their own, which falls into the window of the next line."""

DISTURBING_EVENTS: Final[dict[str, tuple[str, ...]]] = {
    "elapsed": NON_TRAINING_EVENTS,
    "rate": ("checkpoint", "profiler"),
    "clock": NON_TRAINING_EVENTS,
    "stamp": NON_TRAINING_EVENTS,
    "engine": NON_TRAINING_EVENTS,
    "timer": (),
}
"""Events whose time falls into the time of a kind of evidence.

A logged rate over all steps since the line before includes evaluations, too. Exceptions are
evaluations after which the rate restarts (Torchtitan's): then the rate includes nothing from
before. See `disturbances`."""

RATE_RESTART_KEY: Final = "restarts"
"""Key in the `extra` of an evaluation: `rate`, if the printed rate restarts afterwards."""

PROFILED_STEPS: Final = "profiled"
"""Key in the `extra` of a profiler's event: `steps`, if the steps up to its own ran under the
profiler. As an event of a window: some of its steps did, and the window counts, because there are
no others."""

MAX_START_LINES: Final = 2
"""Step 1, and the rest of the first interval."""
DEFAULT_PROFILED_STEPS: Final = 4
"""Torchtitan's profiler_warmup of 3 and profiler_active of 1, where the config does not state them
(pytorch/torchtitan/torchtitan/tools/profiling.py@018740b)."""


def _of_one_clock(steps: pl.DataFrame) -> pl.DataFrame:
    """Keep `since_start_s` of one rank per run, the rank with the most values.

    Each node of a job counts the seconds from its own start.
    """
    if steps["since_start_s"].null_count() == steps.height:
        return steps
    timed = steps.filter(pl.col("since_start_s").is_not_null())
    clocks = timed.group_by("run_id", "rank").agg(lines=pl.len())
    if clocks["run_id"].is_unique().all():
        return steps
    first = clocks.sort("lines", "rank", descending=[True, False])
    kept = first.unique("run_id", keep="first", maintain_order=True)
    chosen = steps.select("run_id", "rank").join(
        kept.with_columns(its=True),
        on=["run_id", "rank"],
        nulls_equal=True,
        how="left",
        maintain_order="left",
    )
    return steps.with_columns(since_start_s=pl.when(chosen["its"]).then("since_start_s"))


def fold_ranks(steps: pl.DataFrame) -> pl.DataFrame:
    """Fold the lines of all ranks into one row per run and step, sorted by both.

    `rank_tokens`, `rank_slots` and the image figures become the mean over the printing ranks. Times
    and stamps (`elapsed_s`; `wall_s`, with data loading; `logged_at`) are from the rank that takes
    longest overall. In steps missing from this rank: the longest time, the earliest stamp. The
    ranks may not be in step, and then the slowest rank of each step would give more time than
    passed. Logged figures are the median over the ranks.

    `rated_tokens` and `rated_samples` are tokens and samples of a step, from a line's own rate and
    time. `printing` is the number of ranks that print the step, `first_rank` and `last_rank` the
    lowest and highest of several. `copies_s` is the range of `elapsed_s` over lines without a rank.
    """
    clean = without_placeholder_losses(_of_one_clock(steps)).sort("run_id", "step", "line")
    clean = clean.with_columns(_measured(pl.col("peak_memory_bytes")))
    several, single = split_repeated_steps(clean.with_columns(**_LINE_FIGURES))
    folded = several.pipe(_with_slowest_rank).pipe(_fold_lines)
    unsaid = pl.lit(None, pl.Int64)
    alone = single.with_columns(
        printing=pl.lit(1, pl.Int64), first_rank=unsaid, last_rank=unsaid, copies_s=0.0
    )
    return pl.concat([folded, alone.select(folded.columns)]).sort("run_id", maintain_order=True)


PRINTED_ENERGY: Final = r'"energy per GPU \(J/iter/GPU\)": "?([\d.eE+-]+)'
"""Energy of an iteration on one GPU, the mean since the line before, without evaluations
(NVIDIA/Megatron-LM/megatron/training/training.py@core_v0.12.0 training_log, `--log-energy`)."""

_LINE_FIGURES: Final = {
    "wall_s": pl.col("elapsed_s") + pl.col("data_s").fill_null(0.0),
    "rated_tokens": pl.col("logged_tgs") * pl.col("elapsed_s"),
    "rated_samples": pl.col("logged_samples_per_second") * pl.col("elapsed_s"),
    "energy_j": possible_figure(
        pl.col("extra").str.extract(PRINTED_ENERGY).cast(pl.Float64, strict=False)
    ),
    "image_total": pl.col("image_tokens") ** 2,
    "image_squares": pl.col("image_attention_ratio") * pl.col("image_tokens") ** 2,
    "image_spread": pl.col("image_attention_ratio") * pl.col("image_tokens"),
}
"""Figures derived from one line: seconds with data loading, tokens and samples from its rate, and
products of its image figures, which no mean over ranks would give (see image_counts.py)."""


def _fold_lines(steps: pl.DataFrame) -> pl.DataFrame:
    """Fold the lines of each run's step into one row, as described in `fold_ranks`.

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
        pl.col("image_tokens", "image_attention_ratio").mean(),
        pl.col("image_total", "image_squares", "image_spread", "energy_j").mean(),
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
"""Least share of steps that a rank prints to be the slowest, relative to the rank with the most."""


def _with_slowest_rank(steps: pl.DataFrame) -> pl.DataFrame:
    """Add `slowest`: true on lines of the rank that takes longest over all its steps.

    Measured as excess over the mean of the ranks, after the first step.

    steps: with `wall_s`
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
    """Remove losses printed by ranks of pipeline stages before the last.

    Such a loss is negative and the same at every step: -1, or -1 times the summed ranks and
    micro-steps (pytorch/torchtitan/torchtitan/train.py@81af883; issue #1232).
    """
    if not steps.select((pl.col("loss") < 0).any()).item():
        return steps
    return steps.with_columns(pl.when(~_placeholder_loss()).then("loss").alias("loss"))


def _placeholder_loss() -> pl.Expr:
    loss = pl.col("loss")
    same = (loss.max() < 0) & (loss.min() == loss.max()) & (loss.count() > 1)
    return same.over("run_id", "rank").fill_null(value=False)


def _with_pipelines(windows: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Mark as `pipelined` the runs in which a rank prints a placeholder for its loss.

    Such a rank is of a pipeline stage before the last, also if no line states the stages.

    steps: as in ingest.core.schema
    """
    if not steps.select((pl.col("loss") < 0).any()).item():
        return windows
    found = steps.filter(_placeholder_loss())["run_id"].unique().implode()
    shown = pl.when(pl.col("run_id").is_in(found)).then(pl.lit(value=True))
    return windows.with_columns(pipelined=pl.coalesce("pipelined", shown))


def _measured(memory: pl.Expr) -> pl.Expr:
    """Return peaks of memory, null for a peak of 0.

    No allocator has such a peak in a training. Torchtitan prints "memory: 0.00GiB(0.00%)"
    where the allocator keeps no statistics.
    """
    return pl.when(memory > 0).then(memory)


def split_repeated_steps(steps: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Split the steps: runs with some step on several lines, and all other runs.

    The other runs have one line per step, and need no expensive grouping.

    steps: sorted by run and step
    """
    by = pl.struct("run_id", "step")
    again = steps.filter(by == by.shift())
    if again.is_empty():
        return again, steps
    of_several = pl.col("run_id").is_in(again["run_id"].unique().implode())
    return steps.filter(of_several), steps.filter(~of_several)


UNMARKED: Final[dict[str, bool | float]] = {
    "warming": False,
    "stall_s": 0.0,
    "unlogged": False,
    "begun_anew": False,
    "level": -1,
    "off_level": False,
    "drifting": False,
}
"""Columns that are filled later."""


MAX_FIRST_LINE_STEP: Final = 100
"""Largest step of a first line, with its start-up: log intervals are no longer as a rule."""


def quoted_runs(steps: pl.DataFrame, facts: pl.DataFrame, events: pl.DataFrame) -> list[str]:
    """Return the runs that are one line from the middle of a log.

    No line before it states a fact or an event, and its step is too high for a first line.

    steps, facts, events: as in ingest.core.schema
    """
    lone = (
        steps.group_by("run_id")
        .agg(pl.col("line").min().alias("step_line"), pl.col("step").min(), lines=pl.len())
        .filter(pl.col("lines") == 1, pl.col("step") > MAX_FIRST_LINE_STEP)
    )
    header = pl.concat([table.select("run_id", "line") for table in (facts, events)])
    begun = lone.join(header, on="run_id").filter(pl.col("line") < pl.col("step_line"))
    return lone.join(begun, on="run_id", how="anti")["run_id"].to_list()


def build_windows(
    steps: pl.DataFrame,
    runs: pl.DataFrame,
    facts: pl.DataFrame,
    events: pl.DataFrame,
    quoted: Collection[str] = (),
) -> pl.DataFrame:
    """Return one row per logged step: its tokens, and span and time by each evidence.

    Adds these columns to `fold_ranks`:

    tokens_per_gpu, slots_per_gpu: tokens and slots of one step on one GPU
    `*_span` [steps], `*_time` [s]: for each kind of evidence, null if absent
    events, gc_s: events of the window, and time of its garbage collections
    rate_events: events that the window's rate may include
    rated_from: last earlier step after which the rate restarted
    restarts: number of such restarts in the window
    smeared: true for a moving mean that includes the start-up, or a disturbance of an earlier line
    disturbed, rate_disturbed: true if an event of DISTURBING_EVENTS fell into the window
    begun_anew: true for a rate that began within the window
    warming, stall_s, unlogged, level, off_level, drifting: filled by
    metrics.throughput.warmup.mark_warm_up_and_stalls

    steps, runs, events: as in ingest.core.schema
    facts: as in metrics.throughput.resolved_facts.typed_facts
    quoted: runs of one line that contains no start-up: `quoted_runs`
    """
    return (
        fold_ranks(steps)
        .pipe(_with_run_columns, runs, facts)
        .pipe(_with_pipelines, steps)
        .pipe(_with_engine, events)
        .pipe(_with_differences, quoted)
        .pipe(_over_untimed)
        .pipe(mark_single_step_times)
        .pipe(_with_restarts, events)
        .with_columns(
            interval=pl.when("quoted").then(pl.coalesce("log_interval", 1)).otherwise(_interval())
        )
        .with_columns(_spans())
        .pipe(with_non_padding)
        .pipe(with_token_counts)
        .pipe(_evened)
        .pipe(with_disjoint_spans)
        .with_columns(_times())
        .pipe(_with_events, events)
        .with_columns(*_disturbed())
        .with_columns(_smeared(), **UNMARKED)
        .pipe(_with_new_beginnings)
        .drop(COUNT_QUIRKS, "quoted")
    )


def _with_run_columns(steps: pl.DataFrame, runs: pl.DataFrame, facts: pl.DataFrame) -> pl.DataFrame:
    """Add facts of the whole run to each step, and `step_time` [s]."""
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
    "tokens_per_step",
    "mean_sample_length",
    "sequences_per_sample",
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
    "start_missing",
    "average_window",
    "profiled_steps",
)
_DIFFERENCES: Final = ("step", *MOMENT_COLUMNS.values(), "consumed_samples", "consumed_tokens")
_TIMED: Final = (*MOMENT_COLUMNS.values(), "elapsed_s", "logged_tgs", "logged_samples_per_second")


def _with_differences(steps: pl.DataFrame, quoted: Collection[str]) -> pl.DataFrame:
    """Add `new_*`, the differences to the run's line before; mark lines with a time.

    first: the run's first line, with its start-up, unless the run is quoted
    """
    is_quoted = pl.col("run_id").is_in(list(quoted))
    return steps.with_columns(
        pl.when(pl.col("since_start_s").is_finite()).then("since_start_s")
    ).with_columns(
        pl.col(*_DIFFERENCES).diff().over("run_id").name.prefix("new_"),
        first=(pl.int_range(pl.len()).over("run_id") == 0) & ~is_quoted,
        quoted=is_quoted,
        timed=pl.any_horizontal(pl.col(*_TIMED).is_not_null()),
    )


def _over_untimed(steps: pl.DataFrame) -> pl.DataFrame:
    """Take differences of moments to the last line with a time, `apart` steps back.

    Not every line has a time: the Trainer's dict does if its progress bar was printed beside the
    dict.
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
    """Give lines that share one time the tokens of their mean step."""
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
    """Return the number of steps averaged by a mean since the last line.

    An excerpt may skip lines, so that more steps lie between two lines. A line covers at most the
    usual distance between lines, or the log's interval. If half of the distances are far larger
    than the others, the smaller half counts.
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
    """Return whether a line covers the first interval less step 1.

    Step 1 then has its own line. Some frameworks print step 1 whatever their interval is
    (Torchtitan), then the line of step 10, which covers nine steps. A line of step 2 alone is a
    whole interval of one step.

    step: last step of a line; span: number of its steps
    """
    found: _S = (step - span == 1) & (span > 1)
    return found


def _spans() -> list[pl.Expr]:
    """Return the steps covered by each kind of evidence; null if not known."""
    since = pl.col("interval")
    anew = pl.min_horizontal(since, pl.col("step") - pl.col("rated_from"))  # nulls are ignored
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
    """Return the printed seconds of a step, with the wait for data."""
    return pl.when("elapsed_excludes_data").then("wall_s").otherwise("elapsed_s")


def _times() -> list[pl.Expr]:
    """Return the seconds of the spans.

    A rate of unknown tokens counts a step as one token.
    """
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
    """Add figures of the engine's lines beside another format's steps.

    `engine_at`: stamp of the engine's line of the same step. This line must lie between the lines
    of the previous step and of this step, so both count the same steps. `timer_rate` [samples/s],
    `timer_step` and `timer_micro_step`: of the engine's ThroughputTimer. The timer counts from its
    own start, so its line belongs to the step printed next.
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
    """Add `timer_rate`, `timer_step`, `timer_micro_step`; engine: its lines' events."""
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
    """Return whether an event restarts the printed rate."""
    said = pl.col("extra").str.json_path_match(f"$.{RATE_RESTART_KEY}") == "rate"
    return ((pl.col("kind") == "evaluation") & said).fill_null(value=False)


def _with_restarts(steps: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """Add `rated_from`: last earlier step after which the printed rate restarts.

    Such a step lies between two lines if evaluations and lines are out of step: then no rate
    includes the steps since the line before. Also `restarts`: number of restarts since the line
    before.
    """
    found = events.filter(_restarts(), pl.col("step").is_not_null())
    if not found.height:
        never = (pl.col("step") * 0).diff().over("run_id")  # 0, null on the first line
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
    """Add `events`: kinds of events between the line before and this line.

    Only lines with a time count. The kinds include a profiler that ran during a step between the
    two lines and wrote its trace later. `rate_events`: events after which the rate does not
    restart. `gc_s`: printed time of garbage collections, of all ranks; null if not printed.
    """
    collected = pl.col("kind") == "gc"
    since = (pl.col("step") - pl.col("new_step")).fill_null(-1)
    places = steps.filter("timed").select("run_id", "line", at="line", into="step", since=since)
    # by order, because events of another source of the launch may share a line
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
    """Assign events to lines shared by several steps.

    If the leading source prints fewer steps than another source of its launch, several steps share
    their next line. An event goes to the first of these steps after its own step. It goes to all of
    them if it states no step, or a step outside their range.

    fell: `order`, index of the event; `behind`, its stated step; `at` and `into`, its line and the
        line's step
    places: lines of all steps, sorted by run and step; `since`, the step before
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
    chosen = into.filter(into >= pl.min_horizontal(behind + 1, last)).min().over("order")
    placed = each.filter((~held | (into == chosen)).fill_null(value=True)).select(fell.columns)
    alone = fell.join(shared, on=["run_id", "at"], how="anti", maintain_order="left")
    return pl.concat([alone, placed]).sort("order", maintain_order=True)


def _profiled(steps: pl.DataFrame, events: pl.DataFrame, fell: pl.DataFrame) -> pl.DataFrame:
    """Return an event for each timed line with steps under a profiler.

    The profiler writes and logs its traces after the last of these steps. No rows without such
    steps.

    kind: "profiler"; or PROFILED_STEPS in a run where every other line after the start is spoiled
    by events (fell). Then these lines are all there is, some hundredths slower.
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
    """Return `disturbed` and `rate_disturbed`: `disturbances` of times and of rates."""

    def hold(events: str, kinds: Sequence[str]) -> pl.Expr:
        return pl.col(events).list.eval(pl.element().is_in(kinds)).list.any()

    of_all = (pl.col("rate_covers") == "interval").fill_null(value=False)
    rate = pl.when(of_all).then(hold("rate_events", NON_TRAINING_EVENTS))
    return (
        hold("events", NON_TRAINING_EVENTS).alias("disturbed"),
        rate.otherwise(hold("rate_events", DISTURBING_EVENTS["rate"])).alias("rate_disturbed"),
    )


def _smeared() -> pl.Expr:
    """Return whether a moving mean (mmengine's) includes start-up or a disturbance.

    True if the mean reaches back to such a line, because lines are printed more often than the mean
    is long. XTuner up to 0.1.13 evaluates before the line of a step, and its timer adds this time
    to the next step: times derived from means with shared steps leave this step out. Otherwise, a
    time longer than between the stamps includes earlier work.
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
"""Least time of the stamps beyond a window's rate, in seconds and as a share of the window's time,
from which a process must have begun in between."""

MAX_RESTARTED_SHARE: Final = 0.2
"""Largest share of windows with such a pause; more of them are no exceptions."""


def _with_new_beginnings(steps: pl.DataFrame) -> pl.DataFrame:
    """Mark `begun_anew`: few windows whose stamps give far more time than their rate.

    The rate covers all steps since the line, and no line explains the difference (an evaluation
    restarts the rate, and is known). A new process began there, so its rate covers only its own
    start-up and the steps afterwards. Unknown tokens of a step are the median from rate and time.
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
    """Windows of one run, mostly the steady windows.

    indices: indices of the windows; tokens, seconds: of each window, on one GPU
    """

    indices: IntArray
    tokens: FloatArray
    seconds: FloatArray

    def behind(self, number: int) -> WindowSelection:
        """Return all windows but the first `number`."""
        return WindowSelection(self.indices[number:], self.tokens[number:], self.seconds[number:])

    def where(self, mask: BoolArray) -> WindowSelection:
        """Return the windows in a mask, with one entry a window of the selection."""
        return WindowSelection(self.indices[mask], self.tokens[mask], self.seconds[mask])


def disturbances(run: RunArrays, evidence: str) -> dict[int, list[str]]:
    """Return the windows with DISTURBING_EVENTS, by index, with these events in order.

    evidence: kind of time evidence
    """
    found: dict[int, list[str]] = {}
    for at, events in run.events("rate_events" if evidence == "rate" else "events"):
        of_all = evidence == "rate" and run.value("rate_covers", at) == "interval"
        disturbing = NON_TRAINING_EVENTS if of_all else DISTURBING_EVENTS[evidence]
        if spoiling := [event for event in events if event in disturbing]:
            found[at] = spoiling
    return found


@once_a_run
def steady_windows(run: RunArrays, evidence: str) -> WindowSelection:
    """Return the steady windows of one run.

    Left out are: the first window, which includes start-up and compilation; windows with an event
    of DISTURBING_EVENTS; moving means that reach back to such windows; rates that began anew; and,
    where marked, warm-up, work missing from the log, and another speed than the longest. Other
    windows that are slow for no known reason stay.
    """
    left_out = disturbed_windows(run, evidence)
    for mark in ("warming", "unlogged", "off_level"):
        left_out = left_out | run.flags(mark)
    if evidence == "rate":
        left_out |= run.flags("begun_anew")
    return timed_windows(run, evidence, ~left_out)


@once_a_run
def disturbed_windows(run: RunArrays, evidence: str) -> BoolArray:
    """Return a mask of windows known to include more than training, by one evidence."""
    out = run.flags("first")
    if DISTURBING_EVENTS[evidence]:
        out = out | run.flags("rate_disturbed" if evidence == "rate" else "disturbed")
    return out | run.flags("smeared") if evidence == "elapsed" else out


def timed_windows(run: RunArrays, evidence: str, mask: BoolArray) -> WindowSelection:
    """Return the windows in `mask` with known tokens and time, by one evidence."""
    tokens, seconds = window_tokens(run, evidence), run[f"{evidence}_time"]
    at = np.flatnonzero(mask & ~np.isnan(tokens) & ~np.isnan(seconds))
    return WindowSelection(at, tokens[at], seconds[at])


@once_a_run
def window_tokens(run: RunArrays, evidence: str) -> FloatArray:
    """Return the tokens of each window on one GPU.

    A rate of unknown tokens counts a step as one token.
    """
    tokens = run["tokens_per_gpu"]
    if evidence == "rate":
        tokens = np.where(np.isnan(tokens), 1.0, tokens)
    return run[f"{evidence}_span"] * tokens


def lines_of_windows(run: RunArrays, evidence: str, selection: WindowSelection) -> WindowSelection:
    """Return the lines of these windows, each with its share of tokens and time.

    A window is mostly one line. The window of a moving mean spans several lines, and each line may
    print different figures of its own steps (their length, say).
    """
    if evidence != "elapsed" or not (run["elapsed_reach"] > run["new_step"]).any():
        return selection
    last, begins = (
        selection.indices,
        run["step"][selection.indices] - run["elapsed_span"][selection.indices],
    )
    counts = last + 1 - np.searchsorted(run["step"], begins, "right")
    lines = np.arange(counts.sum()) + np.repeat(last + 1 - np.cumsum(counts), counts)
    return WindowSelection(
        lines,
        np.repeat(selection.tokens / counts, counts),
        np.repeat(selection.seconds / counts, counts),
    )


def window_after_step_1(run: RunArrays, evidence: str) -> int | None:
    """Return the index of the window of the first interval less step 1; None if none.

    Counts as start-up, like step 1: a framework without a line for step 1 prints the two together.
    """
    steps, spans = run["step"], run[f"{evidence}_span"]
    at = timed_windows(run, evidence, ~run.flags("first")).indices[:1]
    rest = steps[0] == 1 and _begins_behind_step_1(steps[at], spans[at]).any()
    return int(at[0]) if rest else None


def count_steps(run: RunArrays) -> RunArrays:
    """Return a run; without known tokens, each step has one.

    Then the time per token is the time per step.
    """
    return run if run.has_any("tokens_per_gpu") else count_unknown_tokens(run)


def count_unknown_tokens(run: RunArrays) -> RunArrays:
    """Return a run with one token per step wherever its tokens are unknown."""
    tokens = run["tokens_per_gpu"]
    return run.with_values(tokens_per_gpu=np.where(np.isnan(tokens), 1.0, tokens))


def accumulation_steps(run: RunArrays) -> int:
    """Return the micro-steps per optimizer step; 1 unless steps are micro-steps."""
    every = run.value("gradient_accumulation") or 1
    return int(every) if run.value("step_unit") == "micro_step" else 1


def steps_covered(run: RunArrays, evidence: str, indices: IntArray) -> float:
    """Return the steps between the line before each window and its last step, summed.

    Timed or not.
    """
    since = run["elapsed_apart" if evidence == "elapsed" else "new_step"]
    return float(np.nansum(since[indices]))


def average_window_assumed(run: RunArrays) -> bool:
    """Return whether a run's averaging window is an assumption.

    Neither a fact nor logged rates show over how many steps its times are means.
    """
    moving = run.value("elapsed_covers") == "last_10" and run.value("average_window") != 1
    return moving and bool(run.flags("window_unsaid").any()) and not run.has_any("logged_tgs")


MAX_STEP_IMBALANCE: Final = 0.1
"""Largest relative distance between the number of optimizer steps and their share, where their
time is not known. An optimizer step takes only a part of its cycle."""


@dataclass(frozen=True, slots=True)
class OptimizerStepCount:
    """Optimizer steps in some windows of a run whose steps are micro-steps.

    count: in these windows; expected: share of these micro-steps; excess_share: time of the excess
    optimizer steps as a share of the windows' time, negative if some are lacking. None if the
    windows do not show the time of an optimizer step
    """

    count: int
    expected: float
    excess_share: float | None

    @classmethod
    def in_windows(
        cls, run: RunArrays, evidence: str, indices: IntArray
    ) -> OptimizerStepCount | None:
        """Count the optimizer steps of windows; None without accumulated micro-steps.

        indices: indices of the windows
        """
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
        """True if the number leaves TGS unchanged, or is about the expected share."""
        if self.excess_share is not None:
            return abs(self.excess_share) <= MAX_UNEXPLAINED_GAP
        return not self.expected or abs(self.count / self.expected - 1) <= MAX_STEP_IMBALANCE


def _seconds_of_updates(
    spans: FloatArray, updates: FloatArray, seconds: FloatArray
) -> float | None:
    """Return the extra time of a micro-step with the optimizer step; None if unclear.

    The larger of two fits: by medians of windows with equal numbers of both, which ignore a stall,
    or by means, which include optimizer steps longer than most.
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
        for usual in ([median_of(x) for x in each], [np.mean(x) for x in each])
    )
    return float(max(fitted, key=abs))


def count_optimizer_steps(
    last_steps: FloatArray, spans: FloatArray, accumulation: int
) -> FloatArray:
    """Count the micro-steps of each stretch that end an optimizer step.

    These are the multiples of `accumulation`.

    last_steps: last micro-step of each stretch; spans: lengths of the stretches
    """
    found: FloatArray = np.floor(last_steps / accumulation) - np.floor(
        (last_steps - spans) / accumulation
    )
    return found


def steady_window_rows(frame: pl.DataFrame, evidence: str) -> pl.DataFrame:
    """Return the rows of `steady_windows`, with `tokens` and `seconds` on one GPU.

    frame: of one run or several
    """
    found = steady_windows(RunArrays(frame), evidence)
    tokens, seconds = pl.Series("tokens", found.tokens), pl.Series("seconds", found.seconds)
    return frame[found.indices].with_columns(tokens, seconds)


def choose_evidence(run: RunArrays, preferred: Sequence[str]) -> str | None:
    """Return the kind of time evidence for a run's rates; None if none is usable.

    The first preferred kind with a clean window of known time and tokens. Exceptions: a rate
    printed too coarsely (`tps: 8`) gives way to a kind with enough digits. Times of micro-steps
    with more or fewer optimizer steps than their share, as in means over ten of every twenty, give
    way to a balanced kind. The engine's stamps count only if the run's own lines have no time.
    """
    has_time = any(run.has_any(f"{evidence}_time") for evidence in preferred)
    kinds = preferred if has_time else (*preferred, ENGINE_EVIDENCE)
    windows = ((evidence, steady_windows(run, evidence)) for evidence in kinds)
    known = (
        (e, clean) for e, clean in windows if clean.seconds.sum() > 0 and clean.tokens.sum() > 0
    )
    first, counted = next(known, (None, None))
    if first is None or counted is None:
        return None
    coarse = first == "rate" and has_coarse_rates(run, counted)
    if coarse or not has_balanced_steps(run, first):
        fine = (e for e, clean in known if evidence_rounding(run, clean, e) <= MAX_UNEXPLAINED_GAP)
        return next((e for e in fine if has_balanced_steps(run, e)), first)
    return first


def has_balanced_steps(run: RunArrays, evidence: str) -> bool:
    """Return whether windows contain about their share of optimizer steps.

    Warm-up is included.
    """
    if accumulation_steps(run) == 1:
        return True
    updates = OptimizerStepCount.in_windows(
        run, evidence, timed_windows(run, evidence, ~disturbed_windows(run, evidence)).indices
    )
    return updates is None or updates.is_balanced


def has_coarse_rates(run: RunArrays, selection: WindowSelection) -> bool:
    """Return whether rates are whole numbers, with half a unit above 1 % of them.

    Only for formats that round rates: another format's may be whole by chance (`8.0` is 8 in a
    table).
    """
    rates = _printed_values(run, selection, "rate")
    whole = run.has_quirk("rates_rounded") and len(rates) > 0 and not (rates % 1).any()
    return whole and median_of(0.5 / rates) > MAX_UNEXPLAINED_GAP


def evidence_rounding(run: RunArrays, selection: WindowSelection, evidence: str) -> float:
    """Return the error of one kind of evidence from its printed digits, as a fraction.

    For a printed time or rate, half a unit of its last digit. For stamps and clocks, half a unit at
    both ends, over all of the time between.
    """
    if evidence not in PRINTED_TIME_COLUMNS:
        return stamp_error(run, evidence, selection.indices) / total(selection.seconds)
    values = _printed_values(run, selection, evidence)
    if not len(values):  # only waits for data
        return 0.0
    return median_of(digits_of(values).last_places(values) / 2 / values)


def _printed_values(run: RunArrays, selection: WindowSelection, evidence: str) -> FloatArray:
    """Return the values above 0 that the windows' lines print, from the first column."""
    columns = (run[name][selection.indices] for name in PRINTED_TIME_COLUMNS[evidence])
    above = (column[column > 0] for column in columns)
    return next((values for values in above if len(values)), np.empty(0))


def stamp_error(run: RunArrays, evidence: str, indices: IntArray | None = None) -> float:
    """Return the error of a window's time from ends printed as whole seconds [s].

    indices: indices of the windows; default all
    """
    whole = evidence in WALL_CLOCK_EVIDENCE and clock_unit(run, evidence, indices) == WHOLE_SECOND
    return MAX_STAMP_ERROR_S if whole else 0.0


def stamp_rounding(run: RunArrays, evidence: str, indices: IntArray) -> float:
    """Return the spread of a window's time from whole seconds at both ends [s]."""
    return stamp_error(run, evidence, indices) / 6**0.5


def clock_unit(run: RunArrays, evidence: str, indices: IntArray | None = None) -> float:
    """Return the coarsest unit that divides all stamps or readings of a clock [s].

    evidence: one of MOMENT_COLUMNS; indices: as in `stamp_error`
    """
    name = MOMENT_COLUMNS[evidence]
    moments = run[name] if indices is None else run[name][indices]
    moments = moments[~np.isnan(moments)]
    if run.values(name).dtype == pl.Float64:
        moments = (moments * MICROSECONDS_PER_SECOND).round()
    micros = moments.astype(np.int64) % 1_000_000
    units = (1_000_000, 100_000, 10_000, 1_000)
    return next((unit / 1e6 for unit in units if not (micros % unit).any()), 1e-6)
