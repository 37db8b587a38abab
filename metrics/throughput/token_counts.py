"""Tokens of one step on one GPU, by every count that a run allows.

The first count that is known is used; every other one is compared with it over the totals of the
same steps. Slots, which hold padding, are at least as many as tokens without it; like is only
compared with like.

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
from ..core.print_precision import MAX_UNEXPLAINED_GAP, Digits, digits_of, rounding_share
from ..core.run_arrays import RunArrays
from ..core.run_table import NOT_RANKED
from .closing_figures import CLOSING_IDENTITIES
from .resolved_facts import DEFAULT_OBJECTIVE, NONSTANDARD_OBJECTIVES

COUNT_MISMATCH: Final = "counted otherwise"
"""What a warning says where a rate of the log and ours cannot count the same tokens."""

UNIT_FACTOR_TOLERANCE: Final = 0.05
"""How far from 1,000 a factor of figures with few digits may be for another unit to explain it."""


MAX_RANK_TOKEN_RATIO: Final = 1.5
"""Tokens of ranks, or rates of samples of steps, differ by less; a wrong degree of parallelism or
a wrong world size makes them differ by a factor of 2 at least."""

MIN_COUNTER_DIGITS: Final = 4
"""Digits that a counter has at least (transformers since 5.0); where it shows fewer, it is round by
chance."""

MAX_COUNTER_ROUNDING: Final = MAX_UNEXPLAINED_GAP / 2
"""The share of the tokens between two values of a counter that their last digits may leave open."""

CountBasis = Literal["tokens", "slots", "printed"]


@dataclass(frozen=True, slots=True)
class TokenCount:
    """One way to count the tokens of a step on one GPU.

    basis: `tokens` without padding, `slots` with it, or `printed`: what the log's own rate counts;
    usable: whether our rates may be of it
    """

    name: str
    basis: CountBasis
    tokens: Callable[[], pl.Expr]
    usable: bool = True


@dataclass(frozen=True, slots=True)
class CountComparison:
    """A count beside the one that is used, over the same steps.

    mean, used_mean: tokens of a step on one GPU by it and by the used one; tolerance: the gap that
    the prints' last digits and 1 % allow; cause: why it is beyond that, if that is known; fits:
    what would bring the two together
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
        """mean / ours - 1."""
        return self.other_mean / self.used_mean - 1

    @property
    def contradicts(self) -> bool:
        """Whether no cause is known for a gap that is too wide."""
        return abs(self.gap) > self.tolerance and self.cause is None


def sample_length() -> pl.Expr:
    """Tokens of a sample: as printed, or the full length where samples have no padding."""
    filled = pl.coalesce("packed", pl.lit(value=True)) & _one_sequence()
    return pl.coalesce("sequence_length", pl.when(filled).then("seq_len"))


def _one_sequence() -> pl.Expr:
    """Whether a sample is one sequence of seq_len: a pair of DPO is two, PPO writes prompts on."""
    return pl.coalesce("objective", pl.lit(DEFAULT_OBJECTIVE)) == DEFAULT_OBJECTIVE


def step_samples() -> pl.Expr:
    """Samples of one step over all ranks; lines go first, for a batch may ramp up to its size."""
    consumed = pl.col("new_consumed_samples") / pl.col("new_step")
    whole = pl.col("global_batch_size") * training_steps_per_step()
    whole = pl.when(pl.col("step_unit") == "optimizer_step").then(whole)
    return pl.coalesce("samples", pl.when(consumed > 0).then(consumed), whole)


def training_steps_per_step() -> pl.Expr:
    """Steps of the training in one of the log: unknown where lines are counted one by one."""
    return pl.when(pl.col("steps_counted").fill_null(value=False)).then("log_interval").otherwise(1)


def _over_all_ranks() -> pl.Expr:
    """The sum over all ranks by their number; null where the ranks' own count contradicts it.

    Then the number of ranks is wrong, and what each rank counts is right: packs differ by less.
    """
    mean = pl.col("mean_of_ranks")
    ratio = mean / pl.col("rank_tokens")
    agree = ratio.is_null() | ratio.is_between(1 / MAX_RANK_TOKEN_RATIO, MAX_RANK_TOKEN_RATIO)
    return pl.when(agree).then(mean)


def _mean_of_ranks() -> pl.Expr:
    """Tokens of one GPU and step, from the sum over all ranks.

    A total since the start beside what a rank counts (XTuner v1's) is of the same tokens.
    """
    grown = pl.when(pl.col("rank_tokens").is_not_null()).then("grown_tokens")
    return pl.coalesce(_total("step_tokens") / pl.col("gpus"), grown)


def _consumed(counter: pl.Expr) -> pl.Expr:
    """What a counter since the start grew by since the line before, of one step on one GPU.

    Null where an excerpt leaves lines out, and a line says its own samples: the mean over all steps
    since the line before is not that of the steps that the line times.
    """
    apart = (pl.col("new_step") > pl.col("interval")) & pl.col("samples").is_not_null()
    known = (counter > 0) & ~apart.fill_null(value=False)
    return pl.when(known).then(counter / pl.col("new_step") / pl.col("gpus"))


def _total(printed: str) -> pl.Expr:
    """A printed total over all ranks, with each token once.

    Null where it sums what each process is given, and some of them are given the same tokens. With
    a model that is spread over devices by one process, these are no ranks and share nothing.
    """
    twice = pl.col("tokens_of_processes") & _given_to_several()
    return pl.when(~twice.fill_null(value=False)).then(_each_once(printed))


def _non_padding() -> pl.Expr:
    """Null where ranks share tokens, and whether each of them counts them is not known."""
    known = ~has_shared_tokens() | pl.col("tokens_of_ranks")
    return pl.when(known).then(pl.col("non_padding_tokens") / pl.col("gpus"))


def has_shared_tokens() -> pl.Expr:
    """Whether ranks are known to be given tokens, or parts of a sequence, that others count too."""
    sharing = _given_to_several() | (pl.col("gpus") > pl.col("data_parallel"))
    return sharing.fill_null(value=False)


def _given_to_several() -> pl.Expr:
    """Whether a sample is known to be given to several ranks, whole or in parts."""
    return pl.any_horizontal(pl.col("tensor_parallel") > 1, pl.col("context_parallel") > 1)


def _each_once(printed: str) -> pl.Expr:
    """A total over ranks less what ranks count that others of their group count too."""
    groups = pl.col("gpus") / pl.col("data_parallel")
    degrees = (pl.coalesce(name, 1) for name in ("tensor_parallel", "context_parallel"))
    times = pl.coalesce(groups, prod(degrees))
    total = pl.col(printed)
    return pl.when("tokens_of_ranks").then(total / times).otherwise(total)


def with_non_padding(steps: pl.DataFrame) -> pl.DataFrame:
    """Adds `non_padding_tokens`: of one step over all ranks, by the counter without padding.

    Of that counter only what others do not count too is left, where it is known how it is summed.
    A mean over the steps since the counter's last value. Where the counter is printed too coarsely
    for that, over so many lines that its last digits leave no more than MAX_COUNTER_ROUNDING open.
    Null where the counter begins anew, and before its first value.
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
    """Tokens of a step on each line of one run; NaN where its counter does not tell.

    Where some lines have a time, only these count: the step of one without may be a guess.
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
    """Whole of a counter between which it grows by much more than its last digits leave open.

    Fewer than two where it never does. The last knot is moved to the last value: too little lies
    between the two to be told by itself.
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
    """Whether batch sizes count tokens: where samples do not vary in length."""
    micro_step = pl.col("step_unit") == "micro_step"
    filled = pl.when(micro_step).then(pl.col("packed")).otherwise(pl.coalesce("packed", True))
    return filled & _one_sequence()


def _global_batch() -> pl.Expr:
    micro_step = pl.col("step_unit") == "micro_step"
    whole = (
        pl.col("global_batch_size") * training_steps_per_step() * pl.col("seq_len") / pl.col("gpus")
    )
    return pl.when(_filled() & ~micro_step).then(whole)


def _micro_batches() -> pl.Expr:
    """A local batch is a data-parallel rank's; the ranks of its model-parallel group share it.

    Null where a pipeline's stages share it, and how many they are is not known.
    """
    micro_step = pl.col("step_unit") == "micro_step"
    sharing = pl.lit(1)
    for name in TOKEN_SHARING_DEGREES:
        sharing *= pl.coalesce(name, 1)
    local = pl.col("micro_batch_size") * training_steps_per_step() * pl.col("seq_len") / sharing
    unsaid = pl.when("accumulation_stated").then(1)
    local *= pl.when(micro_step).then(1).otherwise(pl.coalesce("gradient_accumulation", unsaid))
    stages = pl.coalesce("pipeline_parallel", "gpus")
    known = stages.is_not_null() | pl.col("pipelined").is_null()
    return pl.when(_filled() & known).then(local)


def _data_parallel_batches() -> pl.Expr:
    """The local batches of all data-parallel ranks, where no global batch is known."""
    each = pl.col("micro_batch_size") * pl.col("gradient_accumulation") * pl.col("seq_len")
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


def _said_at_the_end() -> pl.Expr:
    """No line says it: see `with_closing_counts`."""
    return pl.lit(None, pl.Float64)


COUNT_QUIRKS: Final = ("tokens_of_ranks", "tokens_of_processes", "accumulation_stated")
"""Quirks (ingest.core.schema.QUIRKS) that counts depend on, by their names as columns of steps."""

TOKEN_COUNTS: Final[dict[str, TokenCount]] = {
    "all_ranks": TokenCount("sum over all ranks", "tokens", _over_all_ranks),
    "ranks": TokenCount("ranks", "tokens", lambda: pl.col("rank_tokens")),
    "non_padding": TokenCount("tokens without padding", "tokens", _non_padding),
    "consumed_tokens": TokenCount("consumed tokens", "printed", lambda: pl.col("grown_tokens")),
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
"""The counts, the best first."""


def with_token_counts(steps: pl.DataFrame) -> pl.DataFrame:
    """Adds `*_count` for each of TOKEN_COUNTS, `tokens_per_gpu`, `slots_per_gpu` and `counted_by`.

    And `sample_length`: tokens of a sample. steps: with a column for each of COUNT_QUIRKS.

    Lines of a run are not counted with padding where others of it are counted without.

    A total that the log prints since the start counts slots, with padding. Where tokens without
    padding are counted beside it, it may be of the same tokens: then it counts slots only where it
    grows faster than they do.
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
    """Whether the printed total of a run grows faster than the counter without padding."""
    total, ours = pl.col("consumed_tokens_count"), pl.col("non_padding_count")
    whole, without = (pl.when(total + ours >= 0).then(one).sum() for one in (total, ours))
    return (whole > without * (1 + MAX_COUNTER_ROUNDING)).over("run_id")


def _possible(tokens: pl.Expr) -> pl.Expr:
    """A count of tokens; null where a damaged line prints one that is none (1e400, nan, -5)."""
    return pl.when(tokens.is_between(0, MAX_STEP_TOKENS)).then(tokens)


MAX_STEP_TOKENS: Final = 2.0**53
"""The most tokens of one step on one GPU: far beyond any, and small enough for finite sums."""


def partial_sequence_warning(
    windows: RunArrays, indices: IntArray, facts: Mapping[str, Any]
) -> str | None:
    """Why ranks that print are no sample of all: they hold no whole sequence of those they share.

    XTuner v1 cuts a pack into slices, one for each rank that shares it, in their order; padding is
    at its end (InternLM/xtuner/xtuner/v1/data_proto/sequence_context.py@00d9f4a split).
    indices: places of windows
    """
    sharing = facts.get("context_parallel") or 1
    mine = indices[windows.texts("counted_by")[indices] == "ranks"]
    if sharing == 1 or not len(mine):
        return None
    names = ("printing", "first_rank", "last_rank")
    printing, first, last = (windows[name][mine] for name in names)
    whole = (last - first + 1 == printing) & (first % sharing == 0) & (printing % sharing == 0)
    if whole.all():
        return None
    summed = any(map(windows.has_any, ("step_tokens", "consumed_tokens")))
    unsaid = summed and facts.get("gpus") is None
    mend = "--set gpus counts the sum over all ranks" if unsaid else "ingest the logs of all ranks"
    return (
        f"{sharing} ranks share each sequence, the first have more of its tokens, the last the "
        f"padding, and the log has not all of them: TGS is of those that it has; {mend}{NOT_RANKED}"
    )


def with_closing_counts(
    windows: RunArrays, facts: Mapping[str, Any], closing: Sequence[Mapping[str, Any]]
) -> RunArrays:
    """The windows of one run with its counts by closing figures, and by how much these may be off.

    closing: its list of metrics.throughput.closing_figures. Samples are held against batches alone;
    sums over processes are of no use where some of them are given the same.
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
        one = CLOSING_IDENTITIES[figure["identity"]]
        each = length if one.unit == "samples" else np.ones(windows.height)
        known = batched if one.unit == "samples" else np.ones(windows.height, np.bool_)
        known = known & (not (shared and one.over_processes))
        tokens = figure["per_step"] * interval * each / gpus
        columns[f"{one.key}_count"] = np.where(known, tokens, unsaid)
        columns[f"{one.key}_error"] = np.full(windows.height, figure["error"])
    return windows.with_values(**columns)


def compare_counts(windows: RunArrays, facts: Mapping[str, Any]) -> list[CountComparison]:
    """Every other count of one run beside the one that is used, the first window left out.

    windows: of one run; facts: its row of metrics.throughput.resolved_facts.typed_facts.
    """
    tokens = windows["tokens_per_gpu"]
    later = ~windows.flags("first") & ~np.isnan(tokens)
    if not later.any():
        return []
    by = windows.texts("counted_by")
    often = Counter(by[later].tolist())
    key = min(often, key=lambda name: (-often[name], name))
    mine = later & (by == key)
    found = []
    for other, count in TOKEN_COUNTS.items():
        used, both, theirs = key, mine, windows[f"{other}_count"]
        if other == "stated_all_ranks":  # where it cannot be right, on any line
            used, both = "ranks", by == "ranks"
        at = np.flatnonzero(both & np.isfinite(theirs))
        if count.name == TOKEN_COUNTS[used].name or not tokens[at].sum():
            continue
        mean, ours = float(theirs[at].mean()), float(tokens[at].mean())
        gap = mean / ours - 1
        slack = MAX_UNEXPLAINED_GAP + _rounding(windows, at, other)
        apart = mean > 0 and abs(gap) > slack  # none at all has no cause
        cause = _cause(windows, facts, _Gap(used, other, at, gap)) if apart else None
        found.append(
            CountComparison(
                other=count,
                used=TOKEN_COUNTS[used],
                other_mean=mean,
                used_mean=ours,
                steps=len(at),
                tolerance=slack,
                cause=cause,
                fits=_what_fits(facts, _Gap(used, other, at, gap), mean, slack) if apart else "",
            )
        )
    return found


def _what_fits(facts: Mapping[str, Any], apart: _Gap, other_mean: float, slack: float) -> str:
    """The batch, or the tokens of a step, by which a count would not contradict the used one."""
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
    """Two counts that are too far apart.

    used, other: keys of TOKEN_COUNTS; at: places of the windows that have both; gap: mean of the
    other over that of the used one, less 1
    """

    used: str
    other: str
    at: IntArray
    gap: float

    @property
    def bases(self) -> tuple[CountBasis, CountBasis]:
        """What the used count and the other one count."""
        return _basis(self.used, self.other), _basis(self.other, self.used)


def _cause(windows: RunArrays, facts: Mapping[str, Any], apart: _Gap) -> str | None:
    """Why two counts differ, as far as the log bears it out."""
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


def _batch_changes(facts: Mapping[str, Any]) -> str | None:
    """How the log shows that steps have other batches than it says; null where they have not."""
    told = facts.get("batch_changes")
    return None if told == NO_BATCH_CHANGES else told


def per_millisecond_cause(ratio: float, tolerance: float = 0.0) -> str | None:
    """BigScience's fork printed samples per ms as samples per second for a while.

    ratio: what counts without the logged rate over what that gives; tolerance: how far this may be
    off beside UNIT_FACTOR_TOLERANCE, as a fraction
    """
    off = abs(ratio / 1000 - 1)
    return (
        "the logged samples/s are samples per ms"
        if off < UNIT_FACTOR_TOLERANCE + tolerance
        else None
    )


def _basis(key: str, beside: str) -> CountBasis:
    """What a count counts; a total beside the counter without padding holds the padding."""
    held = key == "consumed_tokens" and beside == "non_padding"
    return "slots" if held else TOKEN_COUNTS[key].basis


def _padding(apart: _Gap) -> str | None:
    """Slots are more than tokens by the padding that they hold."""
    if set(apart.bases) != {"tokens", "slots"}:
        return None
    padding = apart.gap / (1 + apart.gap) if apart.bases[0] == "tokens" else -apart.gap
    return f"{padding:.1%} of the slots are padding" if padding > 0 else None


def _few_print(windows: RunArrays, facts: Mapping[str, Any], apart: _Gap) -> str | None:
    """Only some ranks print: their packs are a sample of all packs, and hold other tokens."""
    both = {apart.used, apart.other}
    of_ranks = both & {"ranks", "rate"}
    if len(of_ranks) != 1 or "slots" in {TOKEN_COUNTS[key].basis for key in both}:
        return None
    printing, gpus = int(windows["printing"][apart.at[-1]]), facts.get("gpus")
    if (
        gpus is None
        or printing >= gpus
        or not 1 / MAX_RANK_TOKEN_RATIO < 1 + apart.gap < MAX_RANK_TOKEN_RATIO
    ):
        return None
    return f"{printing} of {gpus} ranks print their tokens"


def _ramp_up(windows: RunArrays, facts: Mapping[str, Any], apart: _Gap) -> str | None:
    """Megatron's rampup_batch_size: [first size, increment, samples until the batch is whole]."""
    if apart.other not in FULL_BATCH_COUNTS:
        return None
    said = json.loads(facts.get("megatron_arguments") or "{}").get("rampup_batch_size")
    samples, whole = windows["samples"][apart.at], facts.get("global_batch_size")
    printed = samples[~np.isnan(samples)]
    if not len(printed) or whole is None or said in {None, "None"} or printed.max() > whole:
        return None
    return f"the batch ramps up: {printed.min():.0f} to {printed.max():.0f} of {whole} samples"


def _curriculum(windows: RunArrays, facts: Mapping[str, Any], apart: _Gap) -> str | None:
    """Samples are cut to lengths that grow up to the full one; a line prints that of its last step.

    Then the used count has as many of a length that is none below the one of the line before, and
    none above its own.
    """
    longest, at = facts.get("seq_len"), apart.at
    if apart.other not in FULL_BATCH_COUNTS or longest is None:
        return None
    last, before = (windows["sequence_length"][places] for places in (at, np.maximum(at - 1, 0)))
    whole = windows[f"{apart.other}_count"][at]
    ours = windows["tokens_per_gpu"][at] * longest
    grew = last[0] < last[-1] <= longest and bool((before <= last).all())
    within = (ours >= whole * before * (1 - MAX_UNEXPLAINED_GAP)) & (
        ours <= whole * last * (1 + MAX_UNEXPLAINED_GAP)
    )
    if not (grew and within.all()):
        return None
    return f"samples grow from {last[0]:.0f} to {last[-1]:.0f} of {longest} tokens"


def _grown(windows: RunArrays, apart: _Gap) -> str | None:
    """A line prints batch and length of its last step, also where one of them grew among its steps.

    Then their mean is no smaller than that of the line before, and no larger than its own.
    """
    if not apart.used.startswith("consumed_") or apart.other not in LAST_STEP_COUNTS:
        return None
    later = apart.at[apart.at > 0]
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


FULL_BATCH_COUNTS: Final = ("global_batch", "micro_batches")
"""Counts of the batch at its full size and length."""
CLOSING_NAMES: Final = frozenset(one.label for one in CLOSING_IDENTITIES.values())
BATCH_WITNESSES: Final = ("samples_rate", *CLOSING_IDENTITIES)
"""Counts that figures of speed give, against which a batch is held that was said or given."""
LAST_STEP_COUNTS: Final = ("consumed_samples", "samples", "samples_rate", "rate")
"""Counts that hold the batch, or the length, of a line's last step for all of its steps."""


def summarise_counts(
    windows: RunArrays, facts: Mapping[str, Any], closing: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """How other counts bear out the tokens of a run: token_gap, token_counts, token_warnings.

    `token_gap` is the widest gap to another count, gaps with a known cause left out; null where no
    other count is left. Closing figures, which are of the whole run, are told where they
    contradict.
    """
    every = compare_counts(with_closing_counts(windows, facts, closing), facts)
    found = [one for one in every if one.contradicts or one.other.name not in CLOSING_NAMES]
    plain = [one for one in found if one.cause is None]
    return {
        "token_gap": max((one.gap for one in plain), key=abs, default=None),
        "token_counts": [comparison_text(one) for one in found],
        "token_warnings": [
            told for one in found if (told := count_mismatch_warning(one)) is not None
        ],
    }


TOKEN_TOTAL_COLUMNS: Final = ("step_tokens", "new_consumed_tokens", "non_padding_tokens")
"""Columns of windows: tokens of a step over all ranks, as the lines themselves print them."""
SAMPLE_TOTAL_COLUMNS: Final = ("samples", "new_consumed_samples")
"""Likewise samples of a step. Where lines print these, or a rate of samples over all of the time,
no batch size has to be given."""


def missing_rate_facts(
    windows: RunArrays, run: Mapping[str, Any], facts: Mapping[str, Any]
) -> list[str]:
    """Facts that are to be given for a rate of tokens: as few as do with what its lines print."""
    if facts.get("gpus") is None and any(map(windows.has_any, TOKEN_TOTAL_COLUMNS)):
        return ["gpus"]
    rated = windows.has_any("logged_samples_per_second") and not run["rate_excludes_data"]
    sampled = rated or any(map(windows.has_any, SAMPLE_TOTAL_COLUMNS))
    long = () if windows.has_any("sequence_length") else ("seq_len",)
    needed = (*long, "gpus", *(() if sampled else ("global_batch_size",)))
    if run["step_unit"] == "micro_step":
        needed = ("seq_len", "micro_batch_size", "packed")
    if facts.get("steps_counted"):
        needed = ("log_interval", *needed)
    padded = facts.get("packed") is False and bool(long)
    lacks = [name for name in needed if facts.get(name) is None]
    return [*lacks, "packed"] if padded else lacks


def uncounted_tokens_reason(windows: RunArrays, facts: Mapping[str, Any]) -> str | None:
    """Why a count of tokens that the log prints gives no figure, or no sure one."""
    if not windows.has_any("consumed_non_padding"):
        summed = _summed_twice(windows) or _summed_in_doubt(windows)
        return facts.get("uncounted_tokens") or summed
    if facts.get("gpus") is None or windows.height == 1:
        return None
    if windows.has_any("non_padding_count"):
        return RANK_SUM_DOUBTFUL if _may_share(windows) else None
    return RANK_SUM_UNKNOWN if windows.has_any("non_padding_tokens") else COUNTER_TOO_COARSE


def _may_share(windows: RunArrays) -> bool:
    """Whether ranks may have counted each other's tokens, and no fact says that none are shared."""
    degrees = ("tensor_parallel", "context_parallel")
    unsaid = any(windows.value(name) is None for name in degrees)
    told = windows.value("data_parallel") is not None
    return windows.has_quirk("tokens_of_ranks") and unsaid and not told


_SUMS: Final = (("step_tokens", "stated_all_ranks"), ("new_consumed_tokens", "consumed_tokens"))
"""Columns of sums over ranks that lines print, and the count of TOKEN_COUNTS that is of each."""


def _summed_twice(windows: RunArrays) -> str | None:
    """Why the log's own sum gives no figure."""
    if not windows.has_quirk("tokens_of_processes"):
        return None
    uncounted = any(
        windows.has_any(name) and not windows.has_any(f"{count}_count") for name, count in _SUMS
    )
    ranks = any((windows.value(name) or 1) > 1 for name in ("tensor_parallel", "context_parallel"))
    return PROCESS_SUM_UNKNOWN if uncounted and ranks and windows.value("gpus") else None


def _summed_in_doubt(windows: RunArrays) -> str | None:
    """Why the log's own sum gives no sure figure."""
    counted = any(windows.has_any(name) for name, _ in _SUMS) and windows.value("gpus")
    return RANK_SUM_DOUBTFUL if counted and _may_share(windows) else None


def counts_without_padding(windows: RunArrays) -> bool:
    """Whether lines print tokens without padding that a rate may be of."""
    summed = windows.has_any("step_tokens") and _summed_twice(windows) is None
    return summed or any(map(windows.has_any, ("rank_tokens", "non_padding_count")))


PROCESS_SUM_UNKNOWN: Final = (
    "the log's tokens are summed over all processes, and some of them are given the same ones: how "
    "often each was counted is not known"
)
RANK_SUM_UNKNOWN: Final = (
    "the log's tokens without padding are summed over all ranks, and some of them are given the "
    "same ones: how often each was counted is not known"
)
RANK_SUM_DOUBTFUL: Final = (
    "the log's tokens are summed over all ranks, and those that share a sequence count it each; "
    "how many do it does not say, and TGS may be as many times too high; --set context_parallel "
    f"and tensor_parallel, 1 where none do{NOT_RANKED}"
)
COUNTER_TOO_COARSE: Final = (
    "the log prints its tokens without padding too seldom or too coarsely to count"
)


def comparison_text(comparison: CountComparison) -> str:
    """Both counts, in tokens of a step on one GPU."""
    used, other = (
        f"{comparison.used.name} {comparison.used_mean:,.1f}",
        f"{comparison.other.name} {comparison.other_mean:,.1f}",
    )
    both = f"{used} / {other} tokens per GPU and step"
    return both if comparison.cause is None else f"{both}: {comparison.cause}"


def batch_change_warning(
    windows: RunArrays, indices: IntArray, facts: Mapping[str, Any]
) -> str | None:
    """A warning where steps have other batches than the log says, and these are not known.

    indices: places of the windows that count
    """
    told = _batch_changes(facts)
    unseen = set(windows.texts("counted_by")[indices].tolist()) & set(FULL_BATCH_COUNTS)
    return f"{told}{NOT_RANKED}" if told and unseen else None


def count_mismatch_warning(comparison: CountComparison) -> str | None:
    """A warning where two counts of the same tokens differ; the run is not ranked then."""
    if not comparison.contradicts:
        return None
    told = (
        f"{comparison_text(comparison)}: {comparison.gap:+.1%}, "
        f"{COUNT_MISMATCH} without a known cause"
    )
    fits = f"; {comparison.fits} would fit" if comparison.fits else ""
    return f"{told}{_who_shares(comparison)}{fits}{NOT_RANKED}"


def _who_shares(one: CountComparison) -> str:
    """What to give where a batch is a whole part of the micro-batches of all GPUs."""
    times = one.other_mean / one.used_mean
    shared = (one.used, one.other) == (TOKEN_COUNTS["global_batch"], TOKEN_COUNTS["micro_batches"])
    if not shared or round(times) <= 1 or abs(times / round(times) - 1) > MAX_UNEXPLAINED_GAP:
        return ""
    return (
        f": as if {round(times)} GPUs share each micro-batch; if so, --set tensor_parallel, "
        "pipeline_parallel or context_parallel"
    )


def _rounding(windows: RunArrays, at: IntArray, other: str) -> float:
    """What a count that is a product of two printed figures leaves open, as a fraction.

    Half a unit of the last digit of each; 0 of other counts.
    """
    columns = {"rate": ("logged_tgs", "elapsed_s")}
    columns["samples_rate"] = ("logged_samples_per_second", "elapsed_s")
    if other in CLOSING_IDENTITIES:
        return float(windows[f"{other}_error"][at[0]])
    return sum(rounding_share(windows[name][at]) for name in columns.get(other, ()))
