"""Windows: the span that one logged line speaks of, with its tokens and its time.

A window has one time for each kind of evidence that its line gives:

    elapsed   the logged step time, with data loading added back where it leaves it out
    rate      a logged rate over a known window: its time is tokens / rate
    clock     the difference of two times since the training loop began (a progress bar's)
    stamp     the difference of two time stamps

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

DISAGREEMENT: Final = 0.01
"""A gap between two kinds of time evidence above this has to have a cause."""

STAMP_ERROR: Final = 1.0
"""Of the difference of two stamps of whole seconds, s."""

DEFAULT_AVERAGE_WINDOW: Final = 10
"""mmengine's log_processor.window_size, where the config does not say."""

SPOILERS: Final[dict[str, tuple[str, ...]]] = {
    "elapsed": ("checkpoint", "evaluation", "profiler"),
    "rate": ("checkpoint", "profiler"),
    "clock": ("checkpoint", "evaluation", "profiler"),
    "stamp": ("checkpoint", "evaluation", "profiler"),
}
"""Events whose time falls into the next window; a logged rate starts anew after evaluation."""


def fold_ranks(steps: pl.DataFrame) -> pl.DataFrame:
    """One row per run and step, whichever ranks and lines speak of it, sorted by both.

    `rank_tokens` and `rank_slots` become the mean over the ranks that print them, `wall_s` is the
    slowest rank's time with data loading, claims are the median over the ranks.
    """
    wall = pl.col("elapsed_s") + pl.col("data_s").fill_null(0.0)
    return (
        steps.sort("run_id", "step", "line")
        .group_by("run_id", "step", maintain_order=True)
        .agg(
            pl.col("line", "logged_at", "since_start_s").min(),
            pl.col("elapsed_s", "data_s").max(),
            wall.max().alias("wall_s"),
            pl.col("rank_tokens", "rank_slots", "attention_ratio").mean(),
            pl.col("samples", "sequence_length", "step_tokens").max(),
            pl.col("consumed_samples", "consumed_tokens").max(),
            pl.coalesce(
                pl.col("loss").filter(pl.col("loss") >= 0).first(),  # pipeline stages print -1
                pl.col("loss").drop_nulls().first(),
            ),
            pl.col("grad_norm", "learning_rate").drop_nulls().first(),
            pl.col("peak_memory_bytes", "skipped_steps").max(),
            pl.col("logged_tgs", "logged_samples_per_second").median(),
            pl.col("logged_tflops", "logged_mfu").median(),
        )
    )


def windows(
    steps: pl.DataFrame, runs: pl.DataFrame, facts: pl.DataFrame, events: pl.DataFrame
) -> pl.DataFrame:
    """One row per logged step: its tokens, and its span and time by each kind of evidence.

    steps, runs, events: as in ingest.schema; facts: as metrics.inputs.typed. Adds to `fold_ranks`
    tokens_per_gpu [tokens of one step on one GPU], slots_per_gpu, for each evidence `*_span`
    [steps] and `*_time` [s; null where absent], `spoilers`: what fell into the window, `smeared`:
    a moving mean that still holds the start-up or spoiler of an earlier line, and `warming` and
    `stall_s`, which metrics.steady.mark fills.
    """
    inputs = facts.select("run_id", *_INPUTS)
    about = runs.select(
        "run_id", "step_unit", "elapsed_covers", "elapsed_excludes_data", "rate_covers"
    )
    return (
        fold_ranks(steps)
        .join(about, on="run_id", validate="m:1", maintain_order="left")
        .join(inputs, on="run_id", how="left", validate="m:1", maintain_order="left")
        .with_columns(
            pl.col(*_DIFFERENCES).diff().over("run_id").name.prefix("new_"),
            first=pl.int_range(pl.len()).over("run_id") == 0,
        )
        .with_columns(_tokens_per_gpu(), slots_per_gpu=pl.coalesce("rank_slots", _samples()))
        .with_columns(_spans())
        .with_columns(_times())
        .pipe(_with_spoilers, events)
        .with_columns(_smeared(), warming=False, stall_s=0.0)
    )


_INPUTS: Final = (
    "gpus",
    "seq_len",
    "packed",
    "micro_batch_size",
    "global_batch_size",
    "gradient_accumulation",
    "tensor_parallel",
    "pipeline_parallel",
    "context_parallel",
    "log_interval",
    "average_window",
)
_DIFFERENCES: Final = (
    "step",
    "logged_at",
    "since_start_s",
    "consumed_samples",
    "consumed_tokens",
)


def _tokens_per_gpu() -> pl.Expr:
    """Tokens of one step on one GPU, by the best that is known.

    Tokens of the step over all ranks > of the ranks that print them > consumed tokens or samples
    since the last line > samples of this step > batch sizes. Where the first two cannot both be
    right, the world size is wrong, and what the ranks print holds.
    """
    shared, printed = worlds()
    return pl.coalesce(
        pl.when(alike(shared, printed)).then(shared), "rank_tokens", _samples()
    ).alias("tokens_per_gpu")


def _samples() -> pl.Expr:
    """Tokens of the samples of one step on one GPU, as the lines count them, else the batch sizes.

    Lines go first: in a ramp-up of the batch its size is only where it ends.
    """
    length = _length()
    consumed = pl.coalesce("new_consumed_tokens", pl.col("new_consumed_samples") * length)
    return pl.coalesce(
        pl.when(consumed > 0).then(consumed / pl.col("new_step") / pl.col("gpus")),
        pl.col("samples") * length / pl.col("gpus"),
        _batch(),
    )


def _length() -> pl.Expr:
    """Tokens of a sample: as printed, or the full length where samples have no padding."""
    filled = pl.coalesce("packed", pl.lit(value=True))
    return pl.coalesce("sequence_length", pl.when(filled).then("seq_len"))


def worlds() -> tuple[pl.Expr, pl.Expr]:
    """Tokens of one GPU and step, from the sum over all ranks and as ranks print them."""
    return pl.col("step_tokens") / pl.col("gpus"), pl.col("rank_tokens")


def alike(shared: pl.Expr, printed: pl.Expr) -> pl.Expr:
    """Whether a mean over ranks and one rank's count are of one world; packs differ by less."""
    ratio = shared / printed
    return ratio.is_null() | ratio.is_between(1 / UNLIKE, UNLIKE)


UNLIKE: Final = 1.5
"""Ranks differ by less in tokens; a wrong world size makes them differ by 2 at least."""


def _batch() -> pl.Expr:
    """Token slots of one step on one GPU from batch sizes; null where samples vary in length.

    A local batch is that of a data-parallel rank; the ranks of its model-parallel group share it.
    """
    micro_step = pl.col("step_unit") == "micro_step"
    sharing = pl.lit(1)
    for name in ("tensor_parallel", "pipeline_parallel", "context_parallel"):
        sharing *= pl.coalesce(name, 1)
    local = pl.col("micro_batch_size") * pl.col("seq_len") / sharing
    local *= pl.when(micro_step).then(1).otherwise(pl.coalesce("gradient_accumulation", 1))
    whole = pl.col("global_batch_size") * pl.col("seq_len") / pl.col("gpus")
    filled = pl.when(micro_step).then(pl.col("packed")).otherwise(pl.coalesce("packed", True))
    return pl.when(filled).then(
        pl.when(micro_step).then(local).otherwise(pl.coalesce(whole, local))
    )


def _spans() -> list[pl.Expr]:
    """Steps that each kind of evidence speaks of; null where that is not known."""
    from_start = pl.col("first") & (pl.col("step") <= pl.coalesce("log_interval", 1))
    since = pl.when(from_start).then("step").otherwise("new_step")
    mean = pl.min_horizontal(since, "step", pl.coalesce("average_window", DEFAULT_AVERAGE_WINDOW))
    kinds = {"step": pl.lit(1), "interval": since, "last_10": mean}
    elapsed, rate = pl.lit(None, pl.Int64), pl.lit(None, pl.Int64)
    for kind, span in kinds.items():
        elapsed = pl.when(pl.col("elapsed_covers") == kind).then(span).otherwise(elapsed)
        rate = pl.when(pl.col("rate_covers") == kind).then(span).otherwise(rate)
    return [
        elapsed.alias("elapsed_span"),
        rate.alias("rate_span"),
        pl.col("new_step").alias("clock_span"),
        pl.col("new_step").alias("stamp_span"),
    ]


def _times() -> list[pl.Expr]:
    """Seconds of the spans; a rate whose tokens are unknown counts each step as one token."""
    step_time = pl.when("elapsed_excludes_data").then("wall_s").otherwise("elapsed_s")
    length = _length()
    samples_rate = pl.col("logged_samples_per_second") * length / pl.col("gpus")
    rate = pl.coalesce("logged_tgs", samples_rate)
    tokens = pl.coalesce("tokens_per_gpu", 1.0)
    stamped = pl.col("new_logged_at").dt.total_microseconds() / 1e6  # 0 within one second
    clocked = pl.col("new_since_start_s")
    return [
        _positive(pl.col("elapsed_span") * step_time).alias("elapsed_time"),
        _positive(pl.col("rate_span") * tokens / rate).alias("rate_time"),
        pl.when(clocked >= 0).then(clocked).alias("clock_time"),
        pl.when(stamped >= 0).then(stamped).alias("stamp_time"),
    ]


def _positive(seconds: pl.Expr) -> pl.Expr:
    return pl.when(seconds.is_finite() & (seconds > 0)).then(seconds)


def _with_spoilers(steps: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """`spoilers`: kinds of the events between the line before and this one."""
    places = steps.select("run_id", "line", at=pl.col("line")).sort("line")
    kinds = (
        events.select("run_id", "line", "kind")
        .sort("line")
        .join_asof(places, on="line", by="run_id", strategy="forward", check_sortedness=False)
        .group_by("run_id", "at", maintain_order=True)
        .agg(spoilers=pl.col("kind").unique(maintain_order=True))
    )
    joined = steps.join(
        kinds,
        left_on=["run_id", "line"],
        right_on=["run_id", "at"],
        how="left",
        maintain_order="left",
    )
    return joined.with_columns(pl.col("spoilers").fill_null([])).sort("run_id", "step")


def _smeared() -> pl.Expr:
    """mmengine's mean reaches back over several lines where it logs more often than it averages.

    Where it does not, a time longer than between the stamps holds what ran before them: XTuner up
    to 0.1.13 evaluates before the line of a step, and the timer gives that to the next step.
    """
    spoiled = pl.col("spoilers").list.eval(pl.element().is_in(SPOILERS["elapsed"])).list.any()
    bad = pl.when(pl.col("first") | spoiled).then("step").forward_fill().over("run_id")
    reach = pl.coalesce("average_window", DEFAULT_AVERAGE_WINDOW)
    moving = pl.col("elapsed_covers") == "last_10"
    longer = pl.col("elapsed_time") > pl.col("stamp_time") * (1 + DISAGREEMENT) + STAMP_ERROR
    foreign = ((reach <= pl.col("new_step")) & longer).fill_null(value=False)
    back = (pl.col("step") - reach < bad) | foreign
    return (moving & back).fill_null(value=False).alias("smeared")


def clean(frame: pl.DataFrame, evidence: str) -> pl.DataFrame:
    """The windows of one run that count as steady, with `tokens` and `seconds` on one GPU.

    Without the first, which holds start-up and compilation, without those that an event of
    SPOILERS fell into, without moving means that reach back to such, and without warm-up where
    that is marked. What is unexplained stays in.
    """
    spoiled = pl.col("spoilers").list.eval(pl.element().is_in(SPOILERS[evidence])).list.any()
    if evidence == "elapsed":
        spoiled |= pl.col("smeared")
    tokens = pl.col("tokens_per_gpu")
    if evidence == "rate":
        tokens = pl.coalesce("tokens_per_gpu", 1.0)
    return frame.with_columns(
        tokens=pl.col(f"{evidence}_span") * tokens, seconds=pl.col(f"{evidence}_time")
    ).filter(
        ~pl.col("first"),
        ~spoiled,
        ~pl.col("warming"),
        pl.col("tokens").is_not_null(),
        pl.col("seconds").is_not_null(),
    )


def evidence_of(frame: pl.DataFrame, preferred: Sequence[str]) -> str | None:
    """The first kind of time evidence by which a run has a clean window."""
    return next((e for e in preferred if clean(frame, e)["seconds"].sum() > 0), None)


def resolution(frame: pl.DataFrame, evidence: str) -> float:
    """How far a window's time may be off because its two ends are printed as whole seconds, s."""
    whole = {
        "stamp": pl.col("logged_at").dt.microsecond() == 0,
        "clock": pl.col("since_start_s") == pl.col("since_start_s").round(),
    }
    if evidence not in whole:
        return 0.0
    return STAMP_ERROR if frame.select(whole[evidence].all()).item() else 0.0


def total(values: pl.Series) -> float:
    """The sum as a float: Polars' integers wrap silently."""
    return float(values.cast(pl.Float64).sum())
