"""Steps to tokens per second per GPU (TGS): windows, which evidence, steady and end to end.

A window is the span that one logged line speaks of. Every rate is a ratio of sums over windows,
never a mean of rates. Time evidence, in the order that the run's format prefers:

    elapsed   the logged step time, with data loading added back where it leaves it out
    rate      a logged rate over a known window: its time is tokens / rate
    clock     the difference of two times since the training loop began (a progress bar's)
    stamp     the difference of two time stamps

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from typing import Any, Final

import polars as pl

from ingest.schema import FLOAT, INT, TEXT, TEXTS
from metrics.statistics import ratio_interval

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

SUMMARY: Final = pl.Schema(
    {
        "run_id": TEXT,
        "steps": INT,
        "first_step": INT,
        "last_step": INT,
        "tgs": FLOAT,
        "tgs_low": FLOAT,
        "tgs_high": FLOAT,
        "tgs_slots": FLOAT,
        "tgs_end_to_end": FLOAT,
        "tokens_per_second": FLOAT,
        "tokens_per_gpu_step": FLOAT,
        "token_basis": TEXT,
        "time_basis": TEXT,
        "end_to_end_basis": TEXT,
        "excluded_share": FLOAT,
        "excluded_causes": TEXTS,
        "data_share": FLOAT,
        "windows": INT,
        "evidence_gap": FLOAT,
        "logged_tgs": FLOAT,
        "logged_tflops": FLOAT,
        "logged_mfu": FLOAT,
        "logged_tgs_total": FLOAT,
        "attention_ratio": FLOAT,
        "sequence_length": FLOAT,
        "throughput_missing": TEXTS,
        "throughput_warnings": TEXTS,
    }
)


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


RANKS: Final = pl.Schema({"run_id": TEXT, "ranks": INT, "rank_spread": FLOAT})


def rank_spread(steps: pl.DataFrame) -> pl.DataFrame:
    """One row per run: how many ranks print steps, and how far they are apart in time per step.

    `rank_spread` is (slowest - fastest) / median over the ranks of each rank's median step time
    with data loading, or of the inverse of its logged rate where it prints no time; null for one
    rank. The first step, which holds start-up, is left out.
    """
    wall = pl.col("elapsed_s") + pl.col("data_s").fill_null(0.0)
    later = pl.col("step") > pl.col("step").min().over("run_id")
    of_rank = (
        steps.filter(later, pl.col("rank").is_not_null())
        .group_by("run_id", "rank")
        .agg(pl.coalesce(wall, 1.0 / pl.col("logged_tgs")).median().alias("time"))
    )
    spread = (pl.col("time").max() - pl.col("time").min()) / pl.col("time").median()
    return (
        of_rank.group_by("run_id")
        .agg(
            pl.len().cast(pl.Int64).alias("ranks"),
            pl.when(pl.col("time").count() > 1).then(spread).alias("rank_spread"),
        )
        .match_to_schema(RANKS)
    )


def windows(
    steps: pl.DataFrame, runs: pl.DataFrame, facts: pl.DataFrame, events: pl.DataFrame
) -> pl.DataFrame:
    """One row per logged step: its tokens, and its span and time by each kind of evidence.

    steps, runs, events: as in ingest.schema; facts: as metrics.inputs.typed. Adds to `fold_ranks`
    tokens_per_gpu [tokens of one step on one GPU], slots_per_gpu, for each evidence `*_span`
    [steps] and `*_time` [s; null where absent], `spoilers`: what fell into the window, and
    `smeared`: a moving mean that still holds the start-up or spoiler of an earlier line.
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
        .with_columns(_smeared())
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
    shared, printed = _worlds()
    return pl.coalesce(
        pl.when(_alike(shared, printed)).then(shared), "rank_tokens", _samples()
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


def _worlds() -> tuple[pl.Expr, pl.Expr]:
    """Tokens of one GPU and step, from the sum over all ranks and as ranks print them."""
    return pl.col("step_tokens") / pl.col("gpus"), pl.col("rank_tokens")


def _alike(shared: pl.Expr, printed: pl.Expr) -> pl.Expr:
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


def summarise(all_windows: pl.DataFrame, runs: pl.DataFrame, facts: pl.DataFrame) -> pl.DataFrame:
    """One row per run of `runs`, by run_id: its rates with their evidence; columns of SUMMARY.

    Rates are tokens per second per GPU; `tokens_per_second` is over all GPUs.
    """
    by_run = {
        run_id: frame for (run_id,), frame in all_windows.group_by("run_id", maintain_order=True)
    }
    known = {row["run_id"]: row for row in facts.iter_rows(named=True)}
    rows = [
        _summary(run, by_run.get(run["run_id"]), known.get(run["run_id"], {}))
        for run in runs.sort("run_id").iter_rows(named=True)
    ]
    return pl.DataFrame([{n: row.get(n) for n in SUMMARY} for row in rows], schema=SUMMARY)


def _summary(
    run: dict[str, Any], frame: pl.DataFrame | None, facts: dict[str, Any]
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "run_id": run["run_id"],
        "steps": 0,
        "throughput_missing": [],
        "throughput_warnings": [],
    }
    if frame is None:
        row["throughput_warnings"] = ["no training step in this launch"]
        return row
    row |= {
        "steps": frame.height,
        "first_step": frame["step"].min(),
        "last_step": frame["step"].max(),
        "token_basis": _token_basis(frame, facts),
        "attention_ratio": _weighted(frame, "attention_ratio"),
        "sequence_length": _weighted(frame, "sequence_length"),
        "world_unlike": frame.select((~_alike(*_worlds())).any()).item(),
    }
    evidence = next((e for e in run["evidence"] if clean(frame, e)["seconds"].sum() > 0), None)
    if evidence is None:
        row |= _no_rate(frame, run, facts)
        return row
    steady = clean(frame, evidence)
    row |= _rates(frame, steady, evidence, facts)
    row |= _claims(steady)
    row["throughput_warnings"] = _warnings(frame, run, evidence, row)
    return row


def clean(frame: pl.DataFrame, evidence: str) -> pl.DataFrame:
    """The windows of one run that count as steady, with `tokens` and `seconds` on one GPU.

    Without the first, which holds start-up and compilation, without those that an event of
    SPOILERS fell into, and without moving means that reach back to such. What is unexplained
    stays in.
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
        ~pl.col("first"), ~spoiled, pl.col("tokens").is_not_null(), pl.col("seconds").is_not_null()
    )


def _rates(
    frame: pl.DataFrame, steady: pl.DataFrame, evidence: str, facts: dict[str, Any]
) -> dict[str, Any]:
    tokens, seconds = steady["tokens"], steady["seconds"]
    tgs = _total(tokens) / _total(seconds)
    low, high = ratio_interval(tokens.to_numpy(), seconds.to_numpy()) or (None, None)
    every = None if frame[f"{evidence}_time"][0] is None else _total(frame[f"{evidence}_time"])
    excluded = frame.filter(~pl.col("first"), ~pl.col("step").is_in(steady["step"].implode()))
    causes = excluded["spoilers"].explode().drop_nulls().unique(maintain_order=True).to_list()
    per_step = steady["tokens_per_gpu"].mean()
    slots = _total(steady[f"{evidence}_span"] * steady["slots_per_gpu"]) / _total(seconds)
    end_to_end, basis = _end_to_end(frame, evidence)
    return {
        "tgs": tgs,
        "tgs_low": low,
        "tgs_high": high,
        "tgs_slots": slots if steady["slots_per_gpu"].null_count() == 0 else None,
        "tokens_per_second": None if facts.get("gpus") is None else tgs * facts["gpus"],
        "tgs_end_to_end": end_to_end,
        "end_to_end_basis": basis,
        "tokens_per_gpu_step": per_step,
        "time_basis": evidence,
        "windows": steady.height,
        "excluded_share": max(0.0, 1.0 - _total(seconds) / every) if every else None,
        "data_share": _data_share(steady),
        "excluded_causes": ["start-up", *[c for c in causes if c in SPOILERS[evidence]]],
    }


def _data_share(steady: pl.DataFrame) -> float | None:
    """Waiting for data, as a share of the steps' time with it."""
    whole = pl.when("elapsed_excludes_data").then("wall_s").otherwise("elapsed_s").alias("whole")
    timed = steady.select(whole, "data_s").drop_nulls()
    return _total(timed["data_s"]) / (_total(timed["whole"]) or 1.0) if timed.height else None


def _end_to_end(frame: pl.DataFrame, evidence: str) -> tuple[float | None, str | None]:
    """Tokens of the steps behind the first stamped line over the time to the last one."""
    later = frame.filter(pl.col("stamp_time").is_not_null(), ~pl.col("first"))
    if _total(later["stamp_time"]) and later["tokens_per_gpu"].null_count() == 0:
        tokens = _total(later["stamp_span"] * later["tokens_per_gpu"])
        return tokens / _total(later["stamp_time"]), "stamp"
    rest = frame.filter(~pl.col("first"), pl.col(f"{evidence}_time").is_not_null())
    tokens_per_gpu = rest["tokens_per_gpu"]
    if evidence == "rate":
        tokens_per_gpu = tokens_per_gpu.fill_null(1.0)
    span = rest[f"{evidence}_span"]
    if not rest.height or tokens_per_gpu.null_count() or (span != rest["new_step"]).any():
        return None, None
    return _total(span * tokens_per_gpu) / _total(rest[f"{evidence}_time"]), evidence


def _total(values: pl.Series) -> float:
    """The sum as a float: Polars' integers wrap silently."""
    return float(values.cast(pl.Float64).sum())


def _claims(steady: pl.DataFrame) -> dict[str, Any]:
    """The framework's own figures: medians over the steady windows.

    `logged_tgs_total` is a ratio of sums, as ours: tokens over time by the printed rates.
    """
    names = ("logged_tgs", "logged_tflops", "logged_mfu")
    finite = steady.with_columns(pl.when(pl.col(names).is_finite()).then(pl.col(names)))
    rated = finite.filter(pl.col("logged_tgs") > 0)
    seconds = _total(rated["tokens"] / rated["logged_tgs"])
    total = _total(rated["tokens"]) / seconds if seconds else None
    return {name: finite[name].median() for name in names} | {"logged_tgs_total": total}


def _token_basis(frame: pl.DataFrame, facts: dict[str, Any]) -> str:
    """non_padding where ranks count them, packed where samples have no padding, else slots."""
    if frame["rank_tokens"].null_count() < frame.height or (
        frame["step_tokens"].null_count() < frame.height
    ):
        return "non_padding"
    return "packed" if facts.get("packed") else "slots"


def _weighted(frame: pl.DataFrame, name: str) -> float | None:
    """Mean over the steps, weighted by tokens where they are known."""
    known = frame.filter(pl.col(name).is_not_null(), ~pl.col("first"))
    weights = known["tokens_per_gpu"].fill_null(1.0)
    return _total(known[name] * weights) / _total(weights) if known.height else None


def _warnings(
    frame: pl.DataFrame, run: dict[str, Any], evidence: str, row: dict[str, Any]
) -> list[str]:
    warnings = []
    row["evidence_gap"] = gap = _gap_to_stamps(frame, evidence)
    if gap is not None and abs(gap) > _tolerance(frame) and not _explained(run, evidence):
        warnings.append(
            f"time stamps give {gap:+.1%} TGS against the logged {evidence}, "
            f"{_likely_cause(gap)}: not ranked"
        )
    if row["world_unlike"]:
        warnings.append(
            "gpus contradicts the tokens that ranks and steps print: the tokens of ranks are used; "
            "not ranked"
        )
    if evidence == "elapsed" and run["elapsed_excludes_data"] and frame["data_s"].is_null().all():
        warnings.append(
            "the logged step time leaves data loading out, and the log does not say how long that "
            "took: TGS is an upper bound: not ranked"
        )
    if evidence == "rate" and run["rate_covers"] == "step" and run["step_unit"] == "micro_step":
        warnings.append(
            "TGS is from single micro-steps as logged; tokens per step are not known: "
            "--set seq_len, micro_batch_size and packed for the mean over all of them"
        )
    return warnings


def _likely_cause(gap: float) -> str:
    """An integer factor between two counts of tokens is a degree that was not known."""
    for times, word in ((1 + gap, "many"), (1 / (1 + gap) if gap > -1 else 0, "few")):
        whole = round(times)
        if whole > 1 and abs(times / whole - 1) < DISAGREEMENT:
            return (
                f"as if tokens per step were {whole}x too {word} "
                "(tensor_parallel, pipeline_parallel, context_parallel or gradient_accumulation?)"
            )
    return "without a known cause"


def _explained(run: dict[str, Any], evidence: str) -> bool:
    return evidence == "rate" and (run["rate_excludes_data"] or run["rate_covers"] == "step")


def _gap_to_stamps(frame: pl.DataFrame, evidence: str) -> float | None:
    """TGS by stamps over TGS by `evidence`, less 1, over the windows clean under both."""
    if evidence == "stamp":
        return None
    mine, stamps = clean(frame, evidence), clean(frame, "stamp")
    both = mine.join(stamps.select("step", t="tokens", s="seconds"), on="step")
    both = both.filter(pl.col(f"{evidence}_span") == pl.col("stamp_span"))
    if not both["s"].sum() or both["tokens_per_gpu"].null_count():
        return None
    rate = _total(both["tokens"]) / _total(both["seconds"])
    return _total(both["t"]) / _total(both["s"]) / rate - 1


def _tolerance(frame: pl.DataFrame) -> float:
    """The allowed gap, widened by a stamp's resolution of one second where it has no fraction."""
    stamps = frame["logged_at"].drop_nulls()
    whole = bool((stamps.dt.microsecond() == 0).all())
    seconds = _total(frame["stamp_time"]) or 1.0
    return DISAGREEMENT + (2.0 / seconds if whole else 0.0)


PADDED: Final = (
    "samples are padded and the log does not say how many tokens they hold: --set packed=true "
    "counts the padding"
)


def _no_rate(frame: pl.DataFrame, run: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    """Why there is no rate: what is missing, or that no clean window is left."""
    times = ("elapsed", "clock", "stamp")
    timed = any(frame[f"{time}_time"].null_count() < frame.height for time in times)
    needed: tuple[str, ...] = ("seq_len", "gpus", "global_batch_size")
    if run["step_unit"] == "micro_step":
        needed = ("seq_len", "micro_batch_size", "packed")
    missing = [name for name in needed if facts.get(name) is None]
    if facts.get("packed") is False:  # padded samples: a batch holds an unknown number of tokens
        missing.append("packed")
    uncounted = timed and frame["tokens_per_gpu"].is_null().all()
    if uncounted and missing:
        padded = [PADDED] if facts.get("packed") is False else []
        return {"throughput_missing": missing, "throughput_warnings": padded}
    reason = (
        "no clean window: all hold start-up, evaluation, a checkpoint or a profile"
        if frame.height > 1
        else "a single logged step, which holds start-up"
    )
    return {
        "throughput_warnings": [reason if timed or frame.height <= 1 else "no times in the log"]
    }
