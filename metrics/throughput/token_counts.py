"""Tokens of one step on one GPU, by every count that a run allows.

The first known count is used; every other count is compared with this one over the totals of the
same steps. Slots include padding, so they are at least as many as tokens without padding; a
comparison is always like with like.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, prod
from typing import Any, Final, Literal

import numpy as np
import polars as pl

from fairmfu.ingest.core.schema import NO_BATCH_CHANGES, TOKEN_SHARING_DEGREES

from ..core.arrays import FloatArray, IntArray
from ..core.intervals import FLOAT_TOLERANCE
from ..core.messages import Message
from ..core.print_precision import MAX_UNEXPLAINED_GAP, Digits, digits_of, rounding_share
from ..core.run_arrays import RunArrays
from .closing_figures import CLOSING_IDENTITIES
from .messages import (
    BATCH_CHANGES,
    COUNTER_TOO_COARSE,
    COUNTS_APART,
    LABEL_TOKENS,
    PARTIAL_SEQUENCES,
    PROCESS_SUM_UNKNOWN,
    RANK_SUM_DOUBTFUL,
    RANK_SUM_UNKNOWN,
    TOKENS_GIVEN,
    TOKENS_UNCOUNTED,
)
from .resolved_facts import DEFAULT_OBJECTIVE, NONSTANDARD_OBJECTIVES

UNIT_FACTOR_TOLERANCE: Final = 0.05
"""Largest relative distance from 1,000 of a factor, from figures with few digits, to be another
unit."""


MAX_RANK_TOKEN_RATIO: Final = 1.5
"""Ratio that tokens of ranks, or rates of steps' samples, stay below. A wrong degree of
parallelism or a wrong world size gives a factor of at least 2."""

MIN_COUNTER_DIGITS: Final = 4
"""Least digits of a counter (transformers since 5.0); a value with fewer is round by chance."""

MAX_COUNTER_ROUNDING: Final = MAX_UNEXPLAINED_GAP / 2
"""Largest rounding error of a difference between two counter values, as a share of the
difference."""

CountBasis = Literal["tokens", "slots", "printed"]


@dataclass(frozen=True, slots=True)
class TokenCount:
    """Count of the tokens of a step on one GPU.

    basis: `tokens` without padding, `slots` with padding, or `printed`: as in the log's own rate
    usable: true if our rates may use this count
    """

    name: str
    basis: CountBasis
    tokens: Callable[[], pl.Expr]
    usable: bool = True


@dataclass(frozen=True, slots=True)
class CountComparison:
    """Comparison of a count with the used count, over the same steps.

    other_mean, used_mean: tokens of a step on one GPU by either count
    tolerance: gap allowed by the last printed digits, plus 1 %
    cause: reason for a larger gap, if known
    fits: value with which the two would agree
    """

    other: TokenCount
    used: TokenCount
    other_mean: float
    used_mean: float
    steps: int
    tolerance: float
    cause: str | None
    fits: str = ""

    @property
    def gap(self) -> float:
        """other_mean / used_mean - 1."""
        return self.other_mean / self.used_mean - 1

    @property
    def contradicts(self) -> bool:
        """True if the gap is too wide and has no known cause."""
        return abs(self.gap) > self.tolerance and self.cause is None


def sample_length() -> pl.Expr:
    """Return the tokens of a sample: as printed, or the full length without padding."""
    filled = pl.coalesce("packed", pl.lit(value=True)) & _one_sequence()
    return pl.coalesce("sequence_length", pl.when(filled).then(_sample_slots()))


def _one_sequence() -> pl.Expr:
    """Return whether a sample is a known number of sequences of seq_len.

    A pair of DPO is two sequences, and PPO extends its prompts: then only a given number counts.
    """
    usual = pl.coalesce("objective", pl.lit(DEFAULT_OBJECTIVE)) == DEFAULT_OBJECTIVE
    return usual | pl.col("sequences_per_sample").is_not_null()


def _sample_slots() -> pl.Expr:
    """Return the slots of a sample: its sequences of seq_len."""
    return pl.col("seq_len") * pl.coalesce("sequences_per_sample", 1)


def step_samples() -> pl.Expr:
    """Return the samples of one step over all ranks.

    Printed samples come first, because a batch may ramp up to its size.
    """
    consumed = pl.col("new_consumed_samples") / pl.col("new_step")
    whole = pl.col("global_batch_size") * training_steps_per_step()
    whole = pl.when(pl.col("step_unit") == "optimizer_step").then(whole)
    return pl.coalesce("samples", pl.when(consumed > 0).then(consumed), whole)


def training_steps_per_step() -> pl.Expr:
    """Return the training steps per logged step; unknown where lines are just counted."""
    return pl.when(pl.col("steps_counted").fill_null(value=False)).then("log_interval").otherwise(1)


def _over_all_ranks() -> pl.Expr:
    """Return the sum over all ranks divided by their number.

    Null if the ranks' own counts contradict the mean. Then the number of ranks is wrong, and the
    count of each rank is right: packs differ by less.
    """
    mean = pl.col("mean_of_ranks")
    ratio = mean / pl.col("rank_tokens")
    agree = ratio.is_null() | ratio.is_between(1 / MAX_RANK_TOKEN_RATIO, MAX_RANK_TOKEN_RATIO)
    return pl.when(agree).then(mean)


def _mean_of_ranks() -> pl.Expr:
    """Return the tokens of one GPU and step, from the sum over all ranks.

    A total since the start, next to a rank's count (XTuner v1's), counts the same tokens.
    """
    grown = pl.when(pl.col("rank_tokens").is_not_null()).then("grown_tokens")
    return pl.coalesce(_total("step_tokens") / pl.col("gpus"), grown)


def _consumed(counter: pl.Expr) -> pl.Expr:
    """Return a counter's growth since the line before, per step and GPU.

    Null where an excerpt skips lines and a line states its own samples: the mean over all steps
    since the line before is not the mean over the timed steps.
    """
    apart = (pl.col("new_step") > pl.col("interval")) & pl.col("samples").is_not_null()
    known = (counter > 0) & ~apart.fill_null(value=False)
    return pl.when(known).then(counter / pl.col("new_step") / pl.col("gpus"))


def _total(printed: str) -> pl.Expr:
    """Return a printed total over all ranks, with each token counted once.

    Null where the total sums over processes, and several processes get the same tokens. If one
    process spreads a model over several GPUs, the GPUs are no ranks and share nothing.
    """
    twice = pl.col("tokens_of_processes") & _given_to_several()
    return pl.when(~twice.fill_null(value=False)).then(_each_once(printed))


def _non_padding() -> pl.Expr:
    """Return tokens without padding per GPU.

    Null where ranks share tokens, and the log does not show whether every rank counts them.
    """
    known = ~has_shared_tokens() | pl.col("tokens_of_ranks")
    return pl.when(known).then(pl.col("non_padding_tokens") / pl.col("gpus"))


def has_shared_tokens() -> pl.Expr:
    """Return whether ranks are known to get tokens that other ranks count, too.

    Also true for parts of a sequence.
    """
    sharing = _given_to_several() | (pl.col("gpus") > pl.col("data_parallel"))
    return sharing.fill_null(value=False)


def _given_to_several() -> pl.Expr:
    """Return whether a sample is known to go to several ranks, whole or in parts."""
    return pl.any_horizontal(pl.col("tensor_parallel") > 1, pl.col("context_parallel") > 1)


def _each_once(printed: str) -> pl.Expr:
    """Return a total over ranks, without tokens counted again by others of a group."""
    groups = pl.col("gpus") / pl.col("data_parallel")
    degrees = (pl.coalesce(name, 1) for name in ("tensor_parallel", "context_parallel"))
    times = pl.coalesce(groups, prod(degrees))
    total = pl.col(printed)
    return pl.when("tokens_of_ranks").then(total / times).otherwise(total)


def with_non_padding(steps: pl.DataFrame) -> pl.DataFrame:
    """Add `non_padding_tokens`: tokens of one step over all ranks, without padding.

    Taken from the counter without padding, minus tokens counted by several ranks, where the log
    shows how the counter is summed. A mean over the steps since the counter's last value. A coarse
    counter is averaged over more lines, until its last digits leave at most MAX_COUNTER_ROUNDING
    open. Null where the counter restarts, and before its first value.
    """
    if steps["consumed_non_padding"].null_count() == steps.height:
        return steps.with_columns(non_padding_tokens=pl.lit(None, pl.Float64))
    steps = steps.with_columns(consumed_non_padding=_each_once("consumed_non_padding"))
    runs = steps.select("step", "consumed_non_padding", "timed", run=pl.col("run_id").rle_id())
    each = (_between(run) for (_,), run in runs.group_by("run", maintain_order=True))
    return steps.with_columns(
        pl.Series("non_padding_tokens", np.concatenate([*each]), nan_to_null=True)
    )


def _between(run: pl.DataFrame) -> FloatArray:
    """Return the tokens of a step on each line of one run; NaN where unclear.

    If some lines have a time, only these count: the step of a line without a time may be a guess.
    """
    steps = run["step"].to_numpy()
    counter = run["consumed_non_padding"].fill_null(np.nan).to_numpy()
    timed = run["timed"].to_numpy() | (not run["timed"].any())
    known = np.flatnonzero(np.isfinite(counter) & (counter >= 0) & timed)
    units, each = np.zeros(len(counter)), np.full(len(counter), np.nan)
    if not len(known):
        return each
    digits = Digits(0, max(MIN_COUNTER_DIGITS, int(digits_of(counter[known]).significant)))
    units[known] = digits.last_places(np.fmax(counter[known], 1.0))
    units[units <= 1] = 0.0  # whole tokens, all of them
    for stretch in np.split(known, np.flatnonzero(np.diff(counter[known]) < 0) + 1):
        knots = _knots(counter[stretch], units[stretch])
        for start, end in pairwise(stretch[knots].tolist()):
            grown = counter[end] - counter[start]
            each[start + 1 : end + 1] = grown / (steps[end] - steps[start])
    return each


def _knots(counter: FloatArray, units: FloatArray) -> IntArray:
    """Return indices between which a counter grows far more than its rounding error.

    Fewer than two if the counter never does. The last knot moves to the last value: the rest after
    the knot is too small on its own.
    """
    knots = [0]
    for place in range(1, len(counter)):
        grown, open_ = counter[place] - counter[knots[-1]], units[[knots[-1], place]].mean()
        if grown > 0 and open_ <= MAX_COUNTER_ROUNDING * grown:
            knots.append(place)
    if len(knots) > 1:
        knots[-1] = len(counter) - 1
    return np.array(knots)


def _consumed_samples() -> pl.Expr:
    return _consumed(pl.col("new_consumed_samples") * pl.col("sample_length"))


def _samples() -> pl.Expr:
    samples = pl.col("samples") * training_steps_per_step()
    return samples * pl.col("sample_length") / pl.col("gpus")


def _filled() -> pl.Expr:
    """Return whether batch sizes count tokens: samples of equal length."""
    micro_step = pl.col("step_unit") == "micro_step"
    filled = pl.when(micro_step).then(pl.col("packed")).otherwise(pl.coalesce("packed", True))
    return filled & _one_sequence()


def _global_batch() -> pl.Expr:
    micro_step = pl.col("step_unit") == "micro_step"
    whole = (
        pl.col("global_batch_size") * training_steps_per_step() * _sample_slots() / pl.col("gpus")
    )
    return pl.when(_filled() & ~micro_step).then(whole)


def _micro_batches() -> pl.Expr:
    """Return the tokens of the local batch per GPU."""
    return pl.when(_filled()).then(_local_samples() * _sample_slots())


def _local_samples() -> pl.Expr:
    """Return the samples of the local batch per GPU.

    A local batch belongs to a data-parallel rank, and the ranks of its model-parallel group share
    the batch. Null if a pipeline's stages share the batch and their number is not known.
    """
    micro_step = pl.col("step_unit") == "micro_step"
    local = pl.col("micro_batch_size") * training_steps_per_step() / _ranks_of_a_batch()
    unsaid = pl.when("accumulation_stated").then(1)
    local *= pl.when(micro_step).then(1).otherwise(pl.coalesce("gradient_accumulation", unsaid))
    stages = pl.coalesce("pipeline_parallel", "gpus")
    known = stages.is_not_null() | pl.col("pipelined").is_null()
    return pl.when(known).then(local)


def _ranks_of_a_batch() -> pl.Expr:
    """Return the GPUs that share the tokens of a local batch."""
    sharing = pl.lit(1)
    for name in TOKEN_SHARING_DEGREES:
        sharing *= pl.coalesce(name, 1)
    return sharing


def _data_parallel_batches() -> pl.Expr:
    """Return the local batches of all data-parallel ranks; null if the batch is known."""
    each = pl.col("micro_batch_size") * pl.col("gradient_accumulation") * _sample_slots()
    whole = each * training_steps_per_step() * pl.col("data_parallel") / pl.col("gpus")
    known = (pl.col("step_unit") != "micro_step") & pl.col("global_batch_size").is_null()
    return pl.when(_filled() & known).then(whole)


def _same_span() -> pl.Expr:
    return pl.col("rate_span") == pl.col("elapsed_reach")


def _rate_times_time() -> pl.Expr:
    return pl.when(_same_span()).then("rated_tokens")


def _samples_times_time() -> pl.Expr:
    rated = pl.col("rated_samples") * pl.col("sample_length") / pl.col("gpus")
    return pl.when(_same_span()).then(rated)


def _mean_tokens() -> pl.Expr:
    """Return the mean tokens of an optimizer step, per GPU and logged step."""
    micro_step = pl.col("step_unit") == "micro_step"
    of_micro_step = 1 / pl.col("gradient_accumulation")
    steps = pl.when(micro_step).then(of_micro_step).otherwise(training_steps_per_step())
    return pl.col("tokens_per_step") * steps / pl.col("gpus")


def _mean_samples() -> pl.Expr:
    """Return the samples of a step times their mean length, per GPU.

    Null for packs of known length: they are full, whatever the mean of the samples in them.
    """
    consumed = pl.col("new_consumed_samples") / pl.col("new_step")
    whole = pl.col("global_batch_size") * training_steps_per_step()
    batch = pl.when(pl.col("step_unit") == "optimizer_step").then(whole)
    printed = pl.col("samples") * training_steps_per_step()
    samples = pl.coalesce(printed, pl.when(consumed > 0).then(consumed), batch)
    each = pl.coalesce(samples / pl.col("gpus"), _local_samples())
    full = pl.col("packed").fill_null(value=False) & pl.col("sample_length").is_not_null()
    return pl.when(~full).then(each * pl.col("mean_sample_length"))


def _said_at_the_end() -> pl.Expr:
    """Return null: no line states this count, see `with_closing_counts`."""
    return pl.lit(None, pl.Float64)


COUNT_QUIRKS: Final = ("tokens_of_ranks", "tokens_of_processes", "accumulation_stated")
"""Quirks (ingest.core.schema.QUIRKS) used by counts; their names are columns of steps."""

TOKEN_COUNTS: Final[dict[str, TokenCount]] = {
    "all_ranks": TokenCount("sum over all ranks", "tokens", _over_all_ranks),
    "ranks": TokenCount("ranks", "tokens", lambda: pl.col("rank_tokens")),
    "non_padding": TokenCount("tokens without padding", "tokens", _non_padding),
    "consumed_tokens": TokenCount("consumed tokens", "printed", lambda: pl.col("grown_tokens")),
    "mean_tokens": TokenCount("mean tokens per step", "tokens", _mean_tokens),
    "mean_samples": TokenCount("samples x mean length", "tokens", _mean_samples),
    "consumed_samples": TokenCount("consumed samples", "slots", _consumed_samples),
    "samples": TokenCount("samples of the step", "slots", _samples),
    "global_batch": TokenCount("global batch", "slots", _global_batch),
    "micro_batches": TokenCount("micro-batches", "slots", _micro_batches),
    "data_parallel_batches": TokenCount(
        "micro-batches of the data-parallel ranks", "slots", _data_parallel_batches, usable=False
    ),
    "stated_all_ranks": TokenCount(
        "sum over all ranks", "tokens", lambda: pl.col("mean_of_ranks"), usable=False
    ),
    "ranks_slots": TokenCount("ranks' slots", "slots", lambda: pl.col("rank_slots"), usable=False),
    "rate": TokenCount("logged rate x time", "printed", _rate_times_time, usable=False),
    "samples_rate": TokenCount(
        "logged samples/s x time", "printed", _samples_times_time, usable=False
    ),
    **{
        key: TokenCount(one.label, "slots", _said_at_the_end, usable=False)
        for key, one in CLOSING_IDENTITIES.items()
    },
}
"""All counts, the best first."""


def with_token_counts(steps: pl.DataFrame) -> pl.DataFrame:
    """Add the counts of TOKEN_COUNTS, and the counts in use.

    Columns: `*_count` for each key of TOKEN_COUNTS; `tokens_per_gpu`, `slots_per_gpu` and
    `counted_by` in use; `sample_length`, the tokens of a sample. In a run with lines counted
    without padding, no line is counted with padding.

    A printed total since the start counts slots, with padding. But next to a count of tokens
    without padding, the total may be of the same tokens: then it counts slots only if it grows
    faster.

    steps: with a column for each of COUNT_QUIRKS
    """
    counted = (
        steps.with_columns(
            sample_length=sample_length(), grown_tokens=_consumed(_total("new_consumed_tokens"))
        )
        .with_columns(mean_of_ranks=_mean_of_ranks())
        .with_columns(**{f"{key}_count": count.tokens() for key, count in TOKEN_COUNTS.items()})
        .with_columns(_possible(pl.col(f"{key}_count").cast(pl.Float64)) for key in TOKEN_COUNTS)
        .drop("grown_tokens", "mean_of_ranks")
    )
    used = [key for key, count in TOKEN_COUNTS.items() if count.usable]
    taken = {key: pl.col(f"{key}_count") for key in used}
    padded = pl.lit(value=False)
    if counted["non_padding_count"].count():
        told = taken["non_padding"].is_not_null().any().over("run_id")
        behind = used[used.index("non_padding") + 1 :]
        padded = _more_than_without_padding()
        taken |= {key: pl.when(~told).then(taken[key]) for key in behind}
    unpadded = pl.col("counted_by").is_in([k for k in used if TOKEN_COUNTS[k].basis == "tokens"])
    slots = [
        pl.when(~unpadded | (TOKEN_COUNTS[key].basis == "slots") | padded).then(f"{key}_count")
        for key in used
        if TOKEN_COUNTS[key].basis != "tokens"
    ]
    return counted.with_columns(
        tokens_per_gpu=pl.coalesce(taken.values()),
        counted_by=pl.coalesce(
            pl.when(count.is_not_null()).then(pl.lit(key)) for key, count in taken.items()
        ),
    ).with_columns(slots_per_gpu=pl.coalesce(_possible(pl.col("rank_slots")), *slots))


def _more_than_without_padding() -> pl.Expr:
    """Return whether a run's total grows faster than the counter without padding."""
    total, ours = pl.col("consumed_tokens_count"), pl.col("non_padding_count")
    whole, without = (pl.when(total + ours >= 0).then(one).sum() for one in (total, ours))
    return (whole > without * (1 + MAX_COUNTER_ROUNDING)).over("run_id")


def _possible(tokens: pl.Expr) -> pl.Expr:
    """Return a count of tokens; null for impossible numbers of a damaged line.

    Examples: 1e400, nan, -5.
    """
    return pl.when(tokens.is_between(0, MAX_STEP_TOKENS)).then(tokens)


MAX_STEP_TOKENS: Final = 2.0**53
"""Most tokens of one step on one GPU: far beyond any run, yet small enough for finite sums."""


def partial_sequence_warning(
    windows: RunArrays, indices: IntArray, facts: Mapping[str, Any]
) -> Message | None:
    """Warn where the printing ranks do not cover whole sequences shared by ranks.

    Such ranks are no sample of all ranks. XTuner v1 cuts a pack into slices, one per sharing rank,
    in rank order; padding is at the end of the pack
    (InternLM/xtuner/xtuner/v1/data_proto/sequence_context.py@00d9f4a split).

    indices: indices of windows
    """
    sharing = facts.get("context_parallel") or 1
    of_ranks = indices[windows.texts("counted_by")[indices] == "ranks"]
    if sharing == 1 or not len(of_ranks):
        return None
    names = ("printing", "first_rank", "last_rank")
    printing, first, last = (windows[name][of_ranks] for name in names)
    whole = (last - first + 1 == printing) & (first % sharing == 0) & (printing % sharing == 0)
    if whole.all():
        return None
    summed = any(map(windows.has_any, ("step_tokens", "consumed_tokens")))
    unsaid = summed and facts.get("gpus") is None
    mend = (
        "fairmfu set RUN gpus=N, to use the sum over all ranks"
        if unsaid
        else "ingest the logs of all ranks"
    )
    return PARTIAL_SEQUENCES(sharing=sharing, mend=mend)


def with_closing_counts(
    windows: RunArrays, facts: Mapping[str, Any], closing: Sequence[Mapping[str, Any]]
) -> RunArrays:
    """Add a run's counts from closing figures to its windows, with their errors.

    Figures in samples are compared with batches only. Sums over processes are not used where
    several processes get the same samples.

    closing: the run's list from metrics.throughput.closing_figures
    """
    gpus, step_unit = facts.get("gpus"), windows.value("step_unit")
    if not closing or gpus is None or step_unit != "optimizer_step":
        return windows
    if facts.get("objective") in NONSTANDARD_OBJECTIVES:
        return windows
    padded, unsaid = facts.get("packed") is False, float("nan")
    length = np.where(
        np.isfinite(windows["sequence_length"]),
        windows["sequence_length"],
        unsaid if padded else (facts.get("seq_len") or unsaid),
    )
    batched = np.isin(windows.texts("counted_by"), FULL_BATCH_COUNTS)
    shared = any((facts.get(name) or 1) > 1 for name in ("tensor_parallel", "context_parallel"))
    interval = (facts.get("log_interval") or unsaid) if facts.get("steps_counted") else 1
    columns = {}
    for figure in closing:
        identity = CLOSING_IDENTITIES[figure["identity"]]
        each = length if identity.unit == "samples" else np.ones(windows.height)
        known = batched if identity.unit == "samples" else np.ones(windows.height, np.bool_)
        known = known & (not (shared and identity.over_processes))
        tokens = figure["per_step"] * interval * each / gpus
        columns[f"{identity.key}_count"] = np.where(known, tokens, unsaid)
        columns[f"{identity.key}_error"] = np.full(windows.height, figure["error"])
    return windows.with_values(**columns)


def compare_counts(windows: RunArrays, facts: Mapping[str, Any]) -> list[CountComparison]:
    """Compare every other count of one run with the used count.

    The first window is left out, except for the stated sum over all ranks.

    windows: of one run; facts: the run's row of metrics.throughput.resolved_facts.typed_facts
    """
    tokens = windows["tokens_per_gpu"]
    later = ~windows.flags("first") & ~np.isnan(tokens)
    if not later.any():
        return []
    by = windows.texts("counted_by")
    often = Counter(by[later].tolist())
    key = min(often, key=lambda name: (-often[name], name))
    counted = later & (by == key)
    found = []
    for other, count in TOKEN_COUNTS.items():
        used, both, other_tokens = key, counted, windows[f"{other}_count"]
        if other == "stated_all_ranks":  # contradicted: compare on any line
            used, both = "ranks", by == "ranks"
        indices = np.flatnonzero(both & np.isfinite(other_tokens))
        if count.name == TOKEN_COUNTS[used].name or not tokens[indices].sum():
            continue
        mean, ours = float(other_tokens[indices].mean()), float(tokens[indices].mean())
        gap = mean / ours - 1
        slack = MAX_UNEXPLAINED_GAP + _rounding(windows, indices, other)
        apart = mean > 0 and abs(gap) > slack  # a count of 0 gets no cause
        cause = _cause(windows, facts, _Gap(used, other, indices, gap)) if apart else None
        found.append(
            CountComparison(
                other=count,
                used=TOKEN_COUNTS[used],
                other_mean=mean,
                used_mean=ours,
                steps=len(indices),
                tolerance=slack,
                cause=cause,
                fits=_what_fits(facts, _Gap(used, other, indices, gap), mean, slack)
                if apart
                else "",
            )
        )
    return found


def _what_fits(facts: Mapping[str, Any], apart: _Gap, other_mean: float, slack: float) -> str:
    """Return the batch, or the tokens of a step, with which two counts would agree."""
    if apart.used not in FULL_BATCH_COUNTS or apart.other not in BATCH_WITNESSES:
        return ""
    closing = CLOSING_IDENTITIES.get(apart.other)
    if closing is not None and closing.unit == "tokens":
        return f"{other_mean * (facts.get('gpus') or 1):,.0f} tokens a step"
    batch = facts.get("global_batch_size")
    if apart.used != "global_batch" or batch is None:
        return f"a batch {1 + apart.gap:,.3g} times as large"
    fits = batch * (1 + apart.gap)
    single = ceil(fits * (1 - slack)) == floor(fits * (1 + slack))
    near = abs(fits / max(1, round(fits)) - 1) <= MAX_UNEXPLAINED_GAP
    about = "" if single or near else "about "
    return f"global_batch_size={about}{max(1, round(fits))}"


@dataclass(frozen=True, slots=True)
class _Gap:
    """Gap between two counts, too wide to be rounding.

    used, other: keys of TOKEN_COUNTS; indices: windows with both counts; gap: mean of the other
    count over the mean of the used count, less 1
    """

    used: str
    other: str
    indices: IntArray
    gap: float

    @property
    def bases(self) -> tuple[CountBasis, CountBasis]:
        """Bases of the used count and of the other count."""
        return _basis(self.used, self.other), _basis(self.other, self.used)


def _cause(windows: RunArrays, facts: Mapping[str, Any], apart: _Gap) -> str | None:
    """Return why two counts differ, if confirmed by the log."""
    said = {apart.other} | ({apart.used} if apart.other in CLOSING_IDENTITIES else set())
    causes = (
        _ramp_up(windows, facts, apart),
        _curriculum(windows, facts, apart),
        _batch_changes(facts) if said & set(FULL_BATCH_COUNTS) else None,
        _grown(windows, apart),
        per_millisecond_cause(1 / (1 + apart.gap)) if apart.other == "samples_rate" else None,
        _few_print(windows, facts, apart),
        _padding(apart),
    )
    return next((cause for cause in causes if cause is not None), None)


def label_tokens_warning(windows: RunArrays, indices: IntArray) -> Message | None:
    """Warn where TGS counts tokens in the loss, unless each position is one.

    Masks and lengths vary from step to step; full batches do not.
    """
    if not windows.has_quirk("tokens_of_labels") or not len(indices):
        return None
    if not (windows.texts("counted_by")[indices] == "all_ranks").any():
        return None
    tokens = windows["step_tokens"][indices]
    least, most = float(np.nanmin(tokens)), float(np.nanmax(tokens))
    return LABEL_TOKENS(least=least, most=most) if least < most else None


def _batch_changes(facts: Mapping[str, Any]) -> str | None:
    """Return how the log shows batches other than the stated one; None if it does not."""
    changes = facts.get("batch_changes")
    return None if changes == NO_BATCH_CHANGES else changes


def per_millisecond_cause(ratio: float, tolerance: float = 0.0) -> str | None:
    """Explain a factor of 1,000: samples per ms, printed as samples per second.

    BigScience's fork printed this for a while.

    ratio: count without the logged rate, over the count from the rate; tolerance: relative error of
        the ratio, added to UNIT_FACTOR_TOLERANCE
    """
    off = abs(ratio / 1000 - 1)
    return (
        "the logged samples/s are samples per ms"
        if off < UNIT_FACTOR_TOLERANCE + tolerance
        else None
    )


def _basis(key: str, beside: str) -> CountBasis:
    """Return the basis of a count.

    A total next to the counter without padding includes padding.
    """
    includes_padding = key == "consumed_tokens" and beside == "non_padding"
    return "slots" if includes_padding else TOKEN_COUNTS[key].basis


def _padding(apart: _Gap) -> str | None:
    """Explain more slots than tokens by the padding in the slots."""
    if set(apart.bases) != {"tokens", "slots"}:
        return None
    padding = apart.gap / (1 + apart.gap) if apart.bases[0] == "tokens" else -apart.gap
    return f"{padding:.1%} of the slots are padding" if padding > 0 else None


def _few_print(windows: RunArrays, facts: Mapping[str, Any], apart: _Gap) -> str | None:
    """Explain a gap by ranks that do not print.

    The printed packs are a sample of all packs, with other tokens.
    """
    both = {apart.used, apart.other}
    of_ranks = both & {"ranks", "rate"}
    if len(of_ranks) != 1 or "slots" in {TOKEN_COUNTS[key].basis for key in both}:
        return None
    printing, gpus = int(windows["printing"][apart.indices[-1]]), facts.get("gpus")
    if (
        gpus is None
        or printing >= gpus
        or not 1 / MAX_RANK_TOKEN_RATIO < 1 + apart.gap < MAX_RANK_TOKEN_RATIO
    ):
        return None
    return f"{printing} of {gpus} ranks print their tokens"


def _ramp_up(windows: RunArrays, facts: Mapping[str, Any], apart: _Gap) -> str | None:
    """Explain a gap by Megatron's rampup_batch_size.

    The argument: [first size, increment, samples until the batch has its full size].
    """
    if apart.other not in FULL_BATCH_COUNTS:
        return None
    ramp_up = json.loads(facts.get("megatron_arguments") or "{}").get("rampup_batch_size")
    samples, whole = windows["samples"][apart.indices], facts.get("global_batch_size")
    printed = samples[~np.isnan(samples)]
    if not len(printed) or whole is None or ramp_up in {None, "None"} or printed.max() > whole:
        return None
    return f"the batch ramps up: {printed.min():.0f} to {printed.max():.0f} of {whole} samples"


def _curriculum(windows: RunArrays, facts: Mapping[str, Any], apart: _Gap) -> str | None:
    """Explain a gap by samples cut to lengths that grow up to the full length.

    A line prints the length of its last step. So the mean length in the used count must lie between
    the lengths of the line before and of this line.
    """
    longest, indices = facts.get("seq_len"), apart.indices
    if apart.other not in FULL_BATCH_COUNTS or longest is None:
        return None
    last, before = (
        windows["sequence_length"][places] for places in (indices, np.maximum(indices - 1, 0))
    )
    whole = windows[f"{apart.other}_count"][indices]
    ours = windows["tokens_per_gpu"][indices] * longest
    grew = last[0] < last[-1] <= longest and bool((before <= last).all())
    within = (ours >= whole * before * (1 - MAX_UNEXPLAINED_GAP)) & (
        ours <= whole * last * (1 + MAX_UNEXPLAINED_GAP)
    )
    if not (grew and within.all()):
        return None
    return f"samples grow from {last[0]:.0f} to {last[-1]:.0f} of {longest} tokens"


def _grown(windows: RunArrays, apart: _Gap) -> str | None:
    """Explain a gap by a batch or a length that grew within a line's steps.

    A line prints both as of its last step. So the mean over its steps must lie between the line's
    own values and the values of the line before.
    """
    if not apart.used.startswith("consumed_") or apart.other not in LAST_STEP_COUNTS:
        return None
    later = apart.indices[apart.indices > 0]
    ours, theirs = windows["tokens_per_gpu"][later], windows[f"{apart.other}_count"][later]
    last, before = windows["samples_count"][later], windows["samples_count"][later - 1]
    grew = (before < last).any() and bool((before <= last).all())
    of_last = np.abs(theirs - last) <= MAX_UNEXPLAINED_GAP * last
    within = (ours >= before * (1 - FLOAT_TOLERANCE)) & (ours <= last * (1 + FLOAT_TOLERANCE))
    if not (grew and of_last.all() and within.all()):
        return None
    batches, lengths = windows["samples"], windows["sequence_length"]
    what, sizes, unit = "the batch grows", batches, "samples"
    if batches[later[0] - 1] == batches[later[-1]]:
        what, sizes, unit = "samples grow", lengths, "tokens"
    return (
        f"{what} from {sizes[later - 1].min():.0f} to {sizes[later].max():.0f} {unit}, "
        "and a line prints that of its last step"
    )


MEAN_COUNTS: Final = {"mean_tokens": "tokens_per_step", "mean_samples": "mean_sample_length"}
"""Counts from means of tokens, with their fact: given by a user, or logged before training."""
FULL_BATCH_COUNTS: Final = ("global_batch", "micro_batches")
"""Counts of the batch at its full size and length."""
CLOSING_NAMES: Final = frozenset(one.label for one in CLOSING_IDENTITIES.values())
BATCH_WITNESSES: Final = ("samples_rate", *CLOSING_IDENTITIES)
"""Counts from figures of speed, compared with a stated or given batch."""
LAST_STEP_COUNTS: Final = ("consumed_samples", "samples", "samples_rate", "rate")
"""Counts with the batch, or the length, of a line's last step for all of its steps."""


def summarise_counts(
    windows: RunArrays, facts: Mapping[str, Any], closing: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Return token_gap, token_counts and token_warnings of a run.

    `token_gap` is the widest gap to another count without a known cause; None without such a count.
    Closing figures cover the whole run, and are reported only where they contradict.
    """
    every = compare_counts(with_closing_counts(windows, facts, closing), facts)
    found = [pair for pair in every if pair.contradicts or pair.other.name not in CLOSING_NAMES]
    plain = [pair for pair in found if pair.cause is None]
    return {
        "token_gap": max((pair.gap for pair in plain), key=abs, default=None),
        "token_counts": [comparison_text(pair) for pair in found],
        "token_warnings": [
            warning for pair in found if (warning := count_mismatch_warning(pair)) is not None
        ],
    }


TOKEN_TOTAL_COLUMNS: Final = ("step_tokens", "new_consumed_tokens", "non_padding_tokens")
"""Columns of windows: tokens of a step over all ranks, printed on the lines themselves."""
SAMPLE_TOTAL_COLUMNS: Final = ("samples", "new_consumed_samples")
"""The same for samples of a step. If lines print these, or a rate of samples over all of the
time, no batch size is needed."""


def missing_rate_facts(
    windows: RunArrays, run: Mapping[str, Any], facts: Mapping[str, Any]
) -> list[str]:
    """Return the facts still needed for a rate of tokens.

    As few as possible, given the figures on the lines.
    """
    if facts.get("gpus") is None and any(map(windows.has_any, TOKEN_TOTAL_COLUMNS)):
        return ["gpus"]
    rated = windows.has_any("logged_samples_per_second") and not run["rate_excludes_data"]
    sampled = rated or any(map(windows.has_any, SAMPLE_TOTAL_COLUMNS))
    micro_step, mean = run["step_unit"] == "micro_step", facts.get("mean_sample_length") is not None
    long = () if mean or windows.has_any("sequence_length") else ("seq_len",)
    needed = (*long, "gpus", *(() if sampled else ("global_batch_size",)))
    if micro_step:
        needed = ("micro_batch_size",) if mean else ("seq_len", "micro_batch_size", "packed")
    if facts.get("tokens_per_step") is not None:
        long, needed = (), ("gpus", *(("gradient_accumulation",) if micro_step else ()))
    if facts.get("steps_counted"):
        needed = ("log_interval", *needed)
    padded = facts.get("packed") is False and bool(long)
    lacks = [name for name in needed if facts.get(name) is None]
    return [*lacks, "packed"] if padded else lacks


def uncounted_tokens_reason(windows: RunArrays, facts: Mapping[str, Any]) -> Message | None:
    """Return why a printed token count gives no figure, or an uncertain figure."""
    if not windows.has_any("consumed_non_padding"):
        summed = _summed_twice(windows) or _summed_in_doubt(windows)
        stated = facts.get("uncounted_tokens")
        return TOKENS_UNCOUNTED(reason=stated) if stated else summed
    if facts.get("gpus") is None or windows.height == 1:
        return None
    if windows.has_any("non_padding_count"):
        return RANK_SUM_DOUBTFUL() if _may_share(windows) else None
    return RANK_SUM_UNKNOWN() if windows.has_any("non_padding_tokens") else COUNTER_TOO_COARSE()


def _may_share(windows: RunArrays) -> bool:
    """Return whether ranks may count each other's tokens, as no fact excludes this."""
    degrees = ("tensor_parallel", "context_parallel")
    unsaid = any(windows.value(name) is None for name in degrees)
    stated = windows.value("data_parallel") is not None
    return windows.has_quirk("tokens_of_ranks") and unsaid and not stated


_SUMS: Final = (("step_tokens", "stated_all_ranks"), ("new_consumed_tokens", "consumed_tokens"))
"""Columns of printed sums over ranks, with their count in TOKEN_COUNTS."""


def _summed_twice(windows: RunArrays) -> Message | None:
    """Return why the log's own sum gives no figure."""
    if not windows.has_quirk("tokens_of_processes"):
        return None
    uncounted = any(
        windows.has_any(name) and not windows.has_any(f"{count}_count") for name, count in _SUMS
    )
    ranks = any((windows.value(name) or 1) > 1 for name in ("tensor_parallel", "context_parallel"))
    return PROCESS_SUM_UNKNOWN() if uncounted and ranks and windows.value("gpus") else None


def _summed_in_doubt(windows: RunArrays) -> Message | None:
    """Return why the log's own sum gives no certain figure."""
    counted = any(windows.has_any(name) for name, _ in _SUMS) and windows.value("gpus")
    return RANK_SUM_DOUBTFUL() if counted and _may_share(windows) else None


def counts_without_padding(windows: RunArrays) -> bool:
    """Return whether lines print tokens without padding that a rate may use."""
    summed = windows.has_any("step_tokens") and _summed_twice(windows) is None
    return summed or any(map(windows.has_any, ("rank_tokens", "non_padding_count")))


def comparison_text(comparison: CountComparison) -> str:
    """Return both counts as text, in tokens of a step on one GPU."""
    used, other = (
        f"{comparison.used.name} {comparison.used_mean:,.1f}",
        f"{comparison.other.name} {comparison.other_mean:,.1f}",
    )
    both = f"{used} / {other} tokens per GPU and step"
    return both if comparison.cause is None else f"{both}: {comparison.cause}"


def batch_change_warning(
    windows: RunArrays, indices: IntArray, facts: Mapping[str, Any]
) -> Message | None:
    """Warn where steps have unknown batches other than the stated one.

    indices: indices of the counted windows
    """
    changes = _batch_changes(facts)
    unseen = set(windows.texts("counted_by")[indices].tolist()) & set(FULL_BATCH_COUNTS)
    return BATCH_CHANGES(changes=changes) if changes and unseen else None


def mean_tokens_note(
    windows: RunArrays, indices: IntArray, facts: Mapping[str, Any]
) -> Message | None:
    """Name the mean that counts the tokens of steps.

    indices: indices of the counted windows
    """
    used = set(windows.texts("counted_by")[indices].tolist())
    for key, name in MEAN_COUNTS.items():
        if key in used:
            return TOKENS_GIVEN(fact=name, value=facts[name])
    return None


def count_mismatch_warning(comparison: CountComparison) -> Message | None:
    """Warn where two counts of the same tokens differ; the run is then not ranked."""
    if not comparison.contradicts:
        return None
    fits = (
        f"check batch and length: both counts agree with {comparison.fits}"
        if comparison.fits
        else ""
    )
    return COUNTS_APART(
        counts=comparison_text(comparison),
        gap=abs(comparison.gap),
        shares=_who_shares(comparison),
        fits=fits,
    )


def _who_shares(comparison: CountComparison) -> str:
    """Suggest parallel degrees where all micro-batches are a multiple of the batch."""
    times = comparison.other_mean / comparison.used_mean
    shared = (comparison.used, comparison.other) == (
        TOKEN_COUNTS["global_batch"],
        TOKEN_COUNTS["micro_batches"],
    )
    if not shared or round(times) <= 1 or abs(times / round(times) - 1) > MAX_UNEXPLAINED_GAP:
        return ""
    return (
        f", as if {round(times)} GPUs share each micro-batch (tensor_parallel, pipeline_parallel "
        "or context_parallel?)"
    )


def _rounding(windows: RunArrays, indices: IntArray, other: str) -> float:
    """Return the rounding error of a count, as a fraction.

    Half a unit of the last digit of each of two printed factors. Closing figures have their own
    error; other counts have 0.
    """
    columns = {"rate": ("logged_tgs", "elapsed_s")}
    columns["samples_rate"] = ("logged_samples_per_second", "elapsed_s")
    if other in CLOSING_IDENTITIES:
        return float(windows[f"{other}_error"][indices[0]])
    return sum(rounding_share(windows[name][indices]) for name in columns.get(other, ()))
