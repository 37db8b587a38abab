"""Steps to tokens per second per GPU (TGS): evidence, steady and end-to-end rates.

Every rate is a ratio of sums over windows (metrics.throughput.windows), never a mean of rates. Of
a run's kinds of time evidence, the first in its format's order with enough printed digits counts.

Frames in, frames out; no file is opened here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from math import isinf
from typing import Any, Final, TypedDict, cast

import numpy as np
import polars as pl

from fairmfu.ingest.core.schema import INT, row_dtypes

from ..core.arrays import FloatArray, median_of
from ..core.intervals import SURE_STANDARD_ERRORS, rate_interval, robust_spread, robust_summary
from ..core.messages import Message, MessageRow
from ..core.print_precision import MAX_UNEXPLAINED_GAP
from ..core.run_arrays import RunArrays, median, total
from ..core.run_course import run_course
from ..core.run_table import (
    ImageCounts,
    RateBasisColumns,
    RateColumns,
    RunCourseColumns,
    StepRateColumns,
)
from ..core.run_words import EVIDENCE_LABELS, START_UP
from . import messages
from . import time_evidence as evidences
from . import token_counts as counts
from .document_pairs import document_pairs
from .end_to_end import end_to_end, rate_of_last_line, shows_start
from .few_windows import few_windows_warning
from .image_counts import image_counts
from .outlier_warnings import find_spikes, late_start_warning, spike_columns, spikes_warning
from .pauses import find_pauses
from .resolved_facts import nonstandard_work
from .speed_levels import OTHER_SPEED, drift_columns, speed_doubt, speed_levels
from .step_rates import step_rates
from .time_breakdown import WARM_UP, time_lost
from .unlogged_work import UNLOGGED_WORK
from .warmup import MAX_WARM_UP_SHARE
from .windows import (
    ENGINE_EVIDENCE,
    MAX_STEP_IMBALANCE,
    NON_TRAINING_EVENTS,
    PROFILED_STEPS,
    WALL_CLOCK_EVIDENCE,
    OptimizerStepCount,
    WindowSelection,
    average_window_assumed,
    choose_evidence,
    count_steps,
    count_unknown_tokens,
    disturbances,
    evidence_rounding,
    has_coarse_rates,
    lines_of_windows,
    stamp_error,
    steady_windows,
    steps_covered,
    timed_windows,
    window_after_step_1,
)


class StepColumns(TypedDict):
    """Logged steps of a run."""

    run_id: str
    steps: int
    first_step: int | None
    last_step: int | None


class StepTokenColumns(TypedDict):
    """Tokens per second of all GPUs, and tokens per step of one GPU."""

    tokens_per_second: float | None
    tokens_per_gpu_step: float | None


class LoggedRateColumns(TypedDict):
    """Logged figures, mean lengths, and missing or doubtful facts."""

    logged_tgs: float | None
    logged_tflops: float | None
    logged_mfu: float | None
    logged_tgs_total: float | None
    logged_samples_per_second: float | None
    logged_samples_running: float | None
    attention_ratio: float | None
    document_pairs: list[float] | None
    image_counts: ImageCounts | None
    sequence_length: float | None
    throughput_missing: list[str] | None
    throughput_warnings: list[MessageRow] | None


class RateSummary(
    StepColumns,
    RateColumns,
    StepRateColumns,
    RunCourseColumns,
    StepTokenColumns,
    RateBasisColumns,
    LoggedRateColumns,
):
    """Row of SUMMARY. The order of the base classes is the order of the columns."""


SUMMARY: Final = pl.Schema(row_dtypes(RateSummary))


def summarise(windows: pl.DataFrame, runs: pl.DataFrame, facts: pl.DataFrame) -> pl.DataFrame:
    """Return one row per run of `runs`, by run_id: rates with evidence, as in SUMMARY.

    Rates are tokens per second per GPU; `tokens_per_second` is over all GPUs. `steady_from`: last
    step before the first steady window; `no_interval`: reason for a missing interval; `tgs_median`
    to `tgs_trimmed`: as in metrics.core.intervals.RobustSummary, of the steady windows; `wall_s`
    and `time_lost`: as in metrics.throughput.time_breakdown.time_lost.

    windows: as from metrics.throughput.warmup.mark_warm_up_and_stalls
    runs: as in ingest.core.schema, with the columns of metrics.throughput.end_to_end.launch_clocks
        and closing_figures, if known
    facts: metrics.throughput.resolved_facts.typed_facts
    """
    by_run = RunArrays(windows).by_run()
    lengths = facts.with_columns(sequence_length=pl.lit(None, INT)).select(
        "run_id", sample_length=counts.sample_length()
    )
    known = facts.join(lengths, on="run_id").rows_by_key(
        "run_id", named=True, unique=True, include_key=True
    )
    rows = []
    for run in runs.sort("run_id").iter_rows(named=True):
        row = _summary(run, by_run.get(run["run_id"]), known.get(run["run_id"], {}))
        doubts = [*row["throughput_warnings"]]
        if apart := run.get("results_apart"):
            doubts.append(messages.RESULTS_APART(apart=apart))
        rows.append(row | {"throughput_warnings": [message.row for message in doubts]})
    return pl.DataFrame([{n: row.get(n) for n in SUMMARY} for row in rows], schema=SUMMARY)


def rate_summaries(rates: pl.DataFrame) -> list[RateSummary]:
    """Return the rows of a frame with the columns of SUMMARY."""
    return cast(list[RateSummary], rates.to_dicts())


def _summary(
    run: dict[str, Any], windows: RunArrays | None, facts: dict[str, Any]
) -> dict[str, Any]:
    """Return the columns of SUMMARY for one run; unknown columns may be absent."""
    row: dict[str, Any] = {
        "run_id": run["run_id"],
        "steps": 0,
        "throughput_missing": [],
        "throughput_warnings": [],
    }
    if windows is None:
        return row | _without_steps(run, facts)
    row |= {**_step_columns(windows, facts), **run_course(windows, run)}
    if mixed := facts.get("mixed_writers"):
        return row | {"throughput_warnings": [messages.MIXED_WRITERS(mixed=mixed)]}
    evidence = choose_evidence(windows, run["evidence"])
    row |= end_to_end(windows, evidence, run)
    if row["tgs_end_to_end"] is None and run.get("runtime_s"):
        row |= rate_of_last_line(run, facts)
    if evidence is None:
        row |= _rates_of_steps(windows, run, facts)
        of_samples = _doubts_of_samples(windows, run, facts, row)
        row |= _no_rate(windows, run | row, facts)
        return row | {"throughput_warnings": [*row["throughput_warnings"], *of_samples]}
    steady = steady_windows(windows, evidence)
    updates = OptimizerStepCount.in_windows(windows, evidence, steady.indices)
    if updates is not None and not updates.count:
        return row | {"throughput_warnings": [messages.NO_OPTIMIZER_STEP()]}
    row |= _rate_columns(windows, steady, evidence, run, facts)
    token_doubts = [doubt for doubt in _token_doubts(windows, steady, facts) if doubt is not None]
    kinds = {doubt.kind for doubt in token_doubts}
    is_recounted = messages.BATCH_CHANGES.identifier in kinds  # other batches, not another speed
    doubts = (
        None if is_recounted else speed_doubt(row["levels"], row.get("drift")),
        *_time_warnings(windows, steady, run, evidence, row),
        *token_doubts,
        _unfair(updates),
        _some_micro_steps(windows, steady, evidence, row),
        _other_work(facts),
    )
    return row | {"throughput_warnings": [doubt for doubt in doubts if doubt]}


def _rates_of_steps(
    windows: RunArrays, run: dict[str, Any], facts: dict[str, Any]
) -> dict[str, Any]:
    """Return the columns of a run whose steps have times and no tokens."""
    counted, steps = count_steps(windows), step_rates(windows, run["evidence"], facts)
    evidence = choose_evidence(counted, run["evidence"])
    if evidence is None:
        return {**steps}
    times = time_lost(windows, evidence, run)
    levels, drift = speed_levels(counted, evidence, facts)
    unknown = dict.fromkeys(("tgs", "tgs_low", "tgs_high"))
    steady = steady_windows(counted, evidence)
    sureness = _sureness(counted, steady, evidence)
    return {
        **steps,
        "windows": len(steady.indices),
        **{name: sureness[name] for name in ("interval_freedom", "no_interval")},
        "logged_samples_per_second": _claims(counted, steady)["logged_samples_per_second"],
        "logged_samples_running": run.get("running_samples_per_second"),
        **times,
        "levels": levels and [level | unknown for level in levels],
        **drift_columns(drift),
        "pauses": find_pauses(windows),
    }


def _doubts_of_samples(
    windows: RunArrays, run: dict[str, Any], facts: dict[str, Any], row: Mapping[str, Any]
) -> list[Message]:
    """List doubts about samples/s, the rate of a run whose tokens are unknown.

    They are the doubts about a TGS in which a sample is a token.

    row: with the columns of `_rates_of_steps`
    """
    of_steps = [*_steps_of_bar(windows), *_nan_gradients(windows)]
    if row.get("samples_per_second") is None:
        return of_steps
    samples = row["samples_per_second"] * row["seconds_per_step"]
    counted = windows.with_values(tokens_per_gpu=np.full(windows.height, samples))
    evidence = choose_evidence(counted, run["evidence"])
    if evidence is None:
        return of_steps
    steady = steady_windows(counted, evidence)
    shown = {
        **row,
        **_rates(counted, steady, evidence, run, facts),
        **_sureness(counted, steady, evidence),
        **evidences.summarise_evidence(counted, run, evidence),
        "token_warnings": [],
        "spikes": find_spikes(counted, evidence),
        "tgs_end_to_end": None,
    }
    doubts = (
        speed_doubt(shown["levels"], shown.get("drift")),
        *_time_warnings(counted, steady, run, evidence, shown),
        counts.batch_change_warning(counted, steady.indices, facts),
        _unfair(OptimizerStepCount.in_windows(counted, evidence, steady.indices)),
        _some_micro_steps(counted, steady, evidence, shown),
    )
    return [messages.of_samples(doubt) for doubt in doubts if doubt is not None]


def _without_steps(run: Mapping[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a launch without step lines: at most its last line's rate."""
    if run.get("ends_apart"):
        return {"throughput_warnings": [messages.SEVERAL_LAST_LINES(lines=run["ends_apart"])]}
    if not run.get("end_samples_per_second"):
        return {"throughput_warnings": [messages.NO_STEP()]}
    missing = [name for name in END_RATE_FACTS if not facts.get(name)]
    reason = messages.ONLY_LAST_LINE(rate=_end_rate(run))
    doubts = {"throughput_missing": missing, "throughput_warnings": [reason]}
    return doubts | rate_of_last_line(run, facts)


def _step_columns(windows: RunArrays, facts: dict[str, Any]) -> dict[str, Any]:
    """Return columns that need no steady rate: steps, token basis, lengths, data wait."""
    is_counted = any(facts.get(name) for name in UNKNOWN_STEPS)
    return {
        "steps": windows.height,
        "first_step": None if is_counted else windows.value("step"),
        "last_step": None if is_counted else windows.value("step", -1),
        "token_basis": _token_basis(windows, facts),
        "attention_ratio": _weighted(windows, "attention_ratio"),
        "document_pairs": document_pairs(windows, facts),
        "image_counts": image_counts(windows, facts),
        "sequence_length": _weighted(windows, "sequence_length"),
        "data_share": _data_share(windows),
    }


UNKNOWN_STEPS: Final = ("steps_counted", "start_missing")
"""Facts of lines whose steps are only counted, from the first line of what may be an excerpt."""


def _rate_columns(
    windows: RunArrays,
    steady: WindowSelection,
    evidence: str,
    run: dict[str, Any],
    facts: dict[str, Any],
) -> dict[str, Any]:
    """Return the steady rate with its interval, spread, evidence and token counts."""
    times = time_lost(windows, evidence, run)
    levels, drift = speed_levels(windows, evidence, facts)
    spikes = find_spikes(windows, evidence)
    return {
        "spikes": spikes,
        **spike_columns(spikes),
        **_rates(windows, steady, evidence, run, facts),
        **step_rates(windows, run["evidence"], facts),
        **_sureness(windows, steady, evidence),
        **_spread(windows, steady, evidence),
        **times,
        "levels": levels,
        **drift_columns(drift),
        "pauses": find_pauses(windows),
        **_claims(windows, lines_of_windows(windows, evidence, steady)),
        **evidences.summarise_evidence(windows, run, evidence),
        **counts.summarise_counts(windows, facts, run.get("closing") or ()),
        "logged_samples_running": run.get("running_samples_per_second"),
    }


def _token_doubts(
    windows: RunArrays, steady: WindowSelection, facts: dict[str, Any]
) -> tuple[Message | None, ...]:
    """Return doubts about the number of tokens in the steady windows."""
    return (
        counts.uncounted_tokens_reason(windows, facts),
        counts.partial_sequence_warning(windows, steady.indices, facts),
        counts.mean_tokens_note(windows, steady.indices, facts),
        counts.label_tokens_warning(windows, steady.indices),
        counts.batch_change_warning(windows, steady.indices, facts),
    )


def _unfair(updates: OptimizerStepCount | None) -> Message | None:
    """Warn where steady windows have more or fewer optimizer steps than their share."""
    if updates is None or updates.is_balanced:
        return None
    side = "high" if updates.count < updates.expected else "low"
    much = "" if updates.excess_share is None else f" by some {abs(updates.excess_share):.1%}"
    return messages.UNFAIR_OPTIMIZER_STEPS(
        count=updates.count,
        expected=updates.expected,
        share="few" if side == "high" else "many",
        side=side,
        much=much,
    )


def _some_micro_steps(
    windows: RunArrays, steady: WindowSelection, evidence: str, row: Mapping[str, Any]
) -> Message | None:
    """Warn where the timed micro-steps may contain any share of optimizer steps.

    With gradients accumulated over ten, every tenth micro-step contains the optimizer step, and all
    of its time. Only the config gives the accumulation, and the micro-steps averaged in a printed
    time.
    """
    every = windows.value("gradient_accumulation")
    if row["borne_out"] or windows.value("step_unit") != "micro_step" or every == 1:
        return None
    timed = total(windows[f"{evidence}_span"][steady.indices])
    passed = steps_covered(windows, evidence, steady.indices)
    if evidence == "elapsed" and average_window_assumed(windows):
        return messages.AVERAGE_WINDOW_UNKNOWN(timed=timed, passed=passed)
    if every is not None or timed >= (1 - MAX_STEP_IMBALANCE) * passed:
        return None
    return messages.ACCUMULATION_UNKNOWN(timed=timed, passed=passed)


def _steps_of_bar(windows: RunArrays) -> list[Message]:
    """Return the doubt about steps of a progress bar; empty for other steps."""
    return [messages.STEPS_OF_BAR()] if windows.has_quirk("steps_of_bar") else []


def _other_work(facts: Mapping[str, Any]) -> Message | None:
    """Warn of an objective whose steps do other work than the formula counts."""
    kind = nonstandard_work(facts.get("objective"))
    return None if kind is None else kind("unranked")


def _rates(
    windows: RunArrays,
    steady: WindowSelection,
    evidence: str,
    run: dict[str, Any],
    facts: dict[str, Any],
) -> dict[str, Any]:
    seconds = total(steady.seconds)
    tgs = total(steady.tokens) / seconds
    times = windows[f"{evidence}_time"]
    every = None if np.isnan(times[0]) else total(windows.values(f"{evidence}_time"))
    excluded = ~windows.flags("first")
    excluded[steady.indices] = False
    fell = disturbances(windows, evidence)
    causes = [event for at, events in fell.items() if excluded[at] for event in events]
    anew = evidence == "rate" and windows.flags("begun_anew").any()
    first = START_UP if shows_start(run) else FIRST_LINE
    start = [first] if windows.flags("first").any() else []
    start += [*([WARM_UP] if windows.flags("warming").any() else [])]
    start += [RESTARTED_RATE] if anew else []
    start += [UNLOGGED_WORK] if windows.flags("unlogged").any() else []
    start += [OTHER_SPEED] if windows.flags("off_level").any() else []
    per_step, slots = (
        windows["tokens_per_gpu"][steady.indices],
        windows["slots_per_gpu"][steady.indices],
    )
    filled = total(windows[f"{evidence}_span"][steady.indices] * slots) / seconds
    return {
        "tgs": tgs,
        "tgs_slots": None if np.isnan(slots).any() else filled,
        "tokens_per_second": None if facts.get("gpus") is None else tgs * facts["gpus"],
        "tokens_per_gpu_step": pl.Series(per_step[~np.isnan(per_step)]).mean(),
        "time_basis": evidence,
        "windows": len(steady.indices),
        "excluded_share": max(0.0, 1.0 - seconds / every) if every else None,
        "excluded_causes": [*start, *dict.fromkeys(causes)],
    }


FIRST_LINE: Final = "the first line"
"""Cause of an excluded window: the first line of a log that does not show a start."""
RESTARTED_RATE: Final = "a rate that begins behind a pause"
"""Cause of an excluded window: its rate began within the window, with a process or an interval."""


def _sureness(windows: RunArrays, steady: WindowSelection, evidence: str) -> dict[str, Any]:
    """Return the interval of the steady rate, or the reason for none."""
    excess, coarse = (
        windows["stall_s"][steady.indices],
        evidence_rounding(windows, steady, evidence),
    )
    found = rate_interval(steady.tokens, steady.seconds, excess, coarse)
    sure, first = found.estimate, steady.indices[0]
    return {
        "tgs_low": None if sure is None else sure.low,
        "tgs_high": None if sure is None else sure.high,
        "interval_freedom": None if sure is None or isinf(sure.freedom) else sure.freedom,
        "effective_windows": found.effective_windows,
        "no_interval": found.no_interval_reason,
        "steady_from": int(windows["step"][first] - int(windows[f"{evidence}_span"][first])),
    }


def _spread(windows: RunArrays, steady: WindowSelection, evidence: str) -> dict[str, Any]:
    """Return the spread of the steady windows; nothing where stamps are too coarse."""
    usual = median(steady.seconds) or 0.0
    if stamp_error(windows, evidence, steady.indices) > MAX_UNEXPLAINED_GAP * usual:
        return {}
    found = robust_summary(steady.tokens, steady.seconds)
    return {} if found is None else {f"tgs_{name}": of for name, of in asdict(found).items()}


def _data_share(windows: RunArrays) -> float | None:
    """Return the wait for data, as a share of the steps' time (wait included).

    Needs no tokens.
    """
    if not windows.has_any("data_s"):
        return None
    clean = steady_windows(count_unknown_tokens(windows), "elapsed")
    waits = windows["data_s"][clean.indices] * windows["elapsed_span"][clean.indices]
    known = ~np.isnan(waits)
    return total(waits[known]) / (total(clean.seconds[known]) or 1.0) if known.any() else None


def _claims(windows: RunArrays, steady: WindowSelection) -> dict[str, Any]:
    """Return the framework's own figures: medians over the steady windows.

    `logged_tgs_total` is a ratio of sums, like ours: tokens over time, by the printed rates.
    """
    names = ("logged_tgs", "logged_tflops", "logged_mfu", "logged_samples_per_second")
    printed = {name: windows[name][steady.indices] for name in names}
    rates = printed["logged_tgs"]
    rated = np.isfinite(rates) & (rates > 0)
    seconds = total(steady.tokens[rated] / rates[rated])
    ratio = total(steady.tokens[rated]) / seconds if seconds else None
    medians = {name: median(values[np.isfinite(values)]) for name, values in printed.items()}
    return medians | {"logged_tgs_total": ratio}


def _token_basis(windows: RunArrays, facts: dict[str, Any]) -> str:
    """Return the basis of the tokens.

    `given` if they are by a mean, `non_padding` if ranks count tokens without padding, `packed` if
    samples have no padding, else `slots`.
    """
    if set(windows.texts("counted_by").tolist()) & set(counts.MEAN_COUNTS):
        return "given"
    if counts.counts_without_padding(windows):
        return "non_padding"
    return "packed" if facts.get("packed") else "slots"


def _weighted(windows: RunArrays, name: str) -> float | None:
    """Return the mean over the steps, weighted by tokens (by 1 where unknown)."""
    values, tokens = windows[name], windows["tokens_per_gpu"]
    known = ~np.isnan(values) & ~windows.flags("first")
    if not known.any():
        return None
    weights = np.where(np.isnan(tokens), 1.0, tokens)[known]
    if not total(weights):  # a rank with nothing but padding
        return None
    return total(values[known] * weights) / total(weights)


def _time_warnings(
    windows: RunArrays,
    steady: WindowSelection,
    run: dict[str, Any],
    evidence: str,
    row: dict[str, Any],
) -> list[Message]:
    """List doubts about the times of the steady rate, doubts of other modules first."""
    spikes = row["spikes"]
    doubts = (
        *_steps_of_bar(windows),
        _without_data(windows, run, evidence),
        _longer_than_stamps(windows, evidence),
        _faster_on_the_whole(row, windows, evidence),
        _long_warm_up(windows, evidence),
        None if spikes is None or spikes.counted else spikes_warning(spikes),
        late_start_warning(windows, steady, evidence),
        _printed_twice(windows, steady, evidence),
        _printed_coarsely(windows, steady, evidence, row),
        _single_micro_steps(run, evidence),
        _out_of_step(windows, steady, evidence),
        _under_a_profiler(windows, steady),
        *_nan_gradients(windows),
        (spikes_warning(spikes) if spikes is not None and spikes.counted else None)
        or few_windows_warning(windows, steady, evidence),
    )
    told = (doubt for doubt in doubts if doubt is not None)
    return [*row["evidence_warnings"], *row["token_warnings"], *told]


def _nan_gradients(windows: RunArrays) -> list[Message]:
    """List the note on gradients that are NaN beside losses that change.

    A loss that stays the same is an outcome.
    """
    is_nan = windows.values("grad_norm").is_nan().fill_null(value=False)
    losses = windows.values("loss").filter(is_nan)
    if losses.filter(losses.is_finite()).n_unique() < MIN_CHANGING_LOSSES:
        return []
    return [messages.NAN_GRADIENTS(count=is_nan.sum(), whole=windows.height)]


MIN_CHANGING_LOSSES: Final = 2
"""Fewest different losses that show a change."""


def _under_a_profiler(windows: RunArrays, steady: WindowSelection) -> Message | None:
    held = windows.has_events([PROFILED_STEPS])[steady.indices]
    if not held.any():
        return None
    return messages.PROFILED_WINDOWS(held=held.sum(), whole=len(held))


def _without_data(windows: RunArrays, run: Mapping[str, Any], evidence: str) -> Message | None:
    if evidence == "elapsed":
        short = run["elapsed_excludes_data"] and not windows.has_any("data_s")
    else:
        short = evidence == "rate" and run["rate_excludes_data"]
    if not short:
        return None
    return messages.TIMES_WITHOUT_DATA(evidence=EVIDENCE_LABELS[evidence])


def _longer_than_stamps(windows: RunArrays, evidence: str) -> Message | None:
    """Warn where printed times exceed the stamps on most lines.

    On most lines, no evaluation before a line can explain the difference (windows).
    """
    longer = windows.flags("smeared") & (windows["new_step"] >= windows["average_window"])
    longer &= ~windows.flags("first") & ~windows.has_events(NON_TRAINING_EVENTS)
    if evidence == "elapsed" or 2 * longer.sum() <= windows.height - 1:
        return None
    return messages.TIMES_ABOVE_STAMPS(longer=longer.sum(), lines=windows.height)


def _faster_on_the_whole(
    row: Mapping[str, Any], windows: RunArrays, evidence: str
) -> Message | None:
    """Warn where end to end is faster than steady and all timed windows.

    The timed windows include a fast start. A small excess over the interval is a doubt.
    """
    behind, whole = ~windows.flags("first"), row["tgs_end_to_end"]
    every = (timed_windows(windows, evidence, among) for among in (behind, np.ones_like(behind)))
    rates = (total(each.tokens) / total(each.seconds) for each in every)
    most = max(row["tgs"], row["tgs_high"] or 0.0, *rates)
    allowed = MAX_END_TO_END_EXCESS if row["tgs_high"] is None else MAX_UNEXPLAINED_GAP
    if whole is None or whole <= most * (1 + allowed):
        return None
    return messages.END_TO_END_FASTER(
        "doubt" if whole <= most * (1 + MAX_END_TO_END_EXCESS) else None,
        whole=whole,
        basis=row["end_to_end_basis"],
        steady=row["tgs"],
        evidence=EVIDENCE_LABELS[evidence],
    )


MAX_END_TO_END_EXCESS: Final = 0.05
"""Largest relative excess of end to end over steady, as with few steps and fast first ones."""


def _long_warm_up(windows: RunArrays, evidence: str) -> Message | None:
    seconds, later = windows[f"{evidence}_time"], ~windows.flags("first")
    warming = windows.flags("warming").copy()
    if (opening := window_after_step_1(windows, evidence)) is not None:
        warming[opening] = False  # counts as start-up
    whole = np.nansum(seconds[later])
    share = np.nansum(seconds[later & warming]) / whole if whole else 0.0
    slow = np.count_nonzero(warming)
    few = slow <= 1 or slow < MIN_WARM_UP_WINDOW_SHARE * np.count_nonzero(later)
    if share <= MAX_WARM_UP_SHARE or few:
        return None
    return messages.LONG_WARM_UP(share=share)


MIN_WARM_UP_WINDOW_SHARE: Final = 1 / 5
"""Least share of slow windows for the warning of a long warm-up. Fewer slow windows, or a single
one, are start-up: a model may be compiled more than once."""


def _printed_twice(windows: RunArrays, steady: WindowSelection, evidence: str) -> Message | None:
    """Warn of steps printed on several lines without a rank.

    Neither rank nor stamp distinguishes steps trained again from copies.
    """
    copies = windows["copies_s"][steady.indices]
    apart_s, elapsed_s = np.nansum(copies), np.nansum(windows["elapsed_s"][steady.indices])
    if evidence != "elapsed" or apart_s <= MAX_UNEXPLAINED_GAP * elapsed_s:
        return None
    return messages.STEPS_PRINTED_TWICE(copies=np.count_nonzero(copies > 0), seconds=apart_s)


def _printed_coarsely(
    windows: RunArrays, steady: WindowSelection, evidence: str, row: Mapping[str, Any]
) -> Message | None:
    """Warn where missing digits leave TGS uncertain, without an interval.

    Only for times and rates known to be whole numbers: other numbers may be round by chance.
    """
    whole = evidence in WALL_CLOCK_EVIDENCE or (
        evidence == "rate" and has_coarse_rates(windows, steady)
    )
    if row["tgs_low"] is not None or not whole:
        return None
    off = evidence_rounding(windows, steady, evidence)
    if off <= MAX_UNEXPLAINED_GAP:
        return None
    unit = "seconds" if evidence in WALL_CLOCK_EVIDENCE else "numbers"
    return messages.COARSE_TIMES(off=off, evidence=EVIDENCE_LABELS[evidence], unit=unit)


def _single_micro_steps(run: Mapping[str, Any], evidence: str) -> Message | None:
    if not (
        evidence == "rate" and run["rate_covers"] == "step" and run["step_unit"] == "micro_step"
    ):
        return None
    return messages.SINGLE_MICRO_STEPS()


def _out_of_step(windows: RunArrays, steady: WindowSelection, evidence: str) -> Message | None:
    """Warn of steps without a rate: before an evaluation between two lines.

    The printed rate restarts after such an evaluation.
    """
    step, span, since = (windows[n][steady.indices] for n in ("step", "rate_span", "interval"))
    begins = windows["rated_from"][steady.indices] == step - span
    untimed = np.where(begins, since - span, 0.0)
    if evidence != "rate" or not untimed.sum():
        return None
    more = _slower_untimed(windows, steady, untimed)
    if more is None:
        return messages.RATE_SKIPS_STEPS(untimed=untimed.sum(), whole=since.sum())
    return messages.SKIPPED_STEPS_DIFFER(
        untimed=untimed.sum(),
        whole=since.sum(),
        seconds=abs(more),
        side="more" if more > 0 else "less",
    )


def _slower_untimed(
    windows: RunArrays, steady: WindowSelection, untimed: FloatArray
) -> float | None:
    """Return the seconds that steps without a rate lose against the steady pace.

    None if stamps do not show a clear difference. Time of a window's stamps beyond its rate is an
    evaluation, and the steps before. Some windows have only the evaluation.

    untimed: number of steps without a rate, of each steady window
    """
    at = steady.indices
    beside = windows.has_events(("checkpoint", "profiler"))[at]
    alone = (windows["restarts"][at] == 1) & ~beside & ~np.isnan(windows["stamp_time"][at])
    pace = total(steady.seconds) / total(windows["rate_span"][at])
    beyond = windows["stamp_time"][at] - steady.seconds - untimed * pace
    aligned = windows["rated_from"][at] == windows["step"][at] - windows["interval"][at]
    both, evaluation = beyond[alone & (untimed > 0)], beyond[alone & aligned]
    if min(len(both), len(evaluation)) < MIN_EVALUATION_WINDOWS:
        return None
    more = median_of(both) - median_of(evaluation)
    error = sum(robust_spread(of) / np.sqrt(len(of)) for of in (both, evaluation))
    whole = more * np.count_nonzero(untimed)
    sure = abs(more) > SURE_STANDARD_ERRORS * error and abs(whole) > MAX_UNEXPLAINED_GAP * total(
        steady.seconds
    )
    return whole if sure else None


MIN_EVALUATION_WINDOWS: Final = 3
"""Windows needed with an evaluation only, and with steps before an evaluation, to measure both
times."""


END_RATE_FACTS: Final = ("seq_len", "gpus", "packed")
"""Facts that convert samples/s to tokens/s per GPU."""


def _no_rate(windows: RunArrays, run: dict[str, Any], facts: dict[str, Any]) -> dict[str, Any]:
    """Return the reason for a missing rate: no clean window, or missing facts.

    run: as in `summarise`, with known facts of the whole run
    """
    unclean = messages.NO_CLEAN_WINDOW if windows.height > 1 else messages.SINGLE_STEP
    times = [kind for kind in (*run["evidence"], ENGINE_EVIDENCE) if kind != "rate"]
    timed = any(windows.has_any(f"{time}_time") for time in times)
    missing = counts.missing_rate_facts(windows, run, facts)
    uncounted = timed and not windows.has_any("tokens_per_gpu")
    other = nonstandard_work(facts.get("objective"))
    if uncounted and choose_evidence(count_steps(windows), run["evidence"]) is None:
        return {"throughput_missing": missing, "throughput_warnings": [unclean()]}
    if uncounted and (other or missing):
        is_padded = facts.get("packed") is False and "packed" in missing
        kind = other or (messages.PADDED_TOKENS_UNKNOWN if is_padded else None)
        reasons = (kind and kind(), counts.uncounted_tokens_reason(windows, facts))
        found = [reason for reason in reasons if reason is not None]
        if other:  # no batch or length gives its tokens
            given = ("tokens_per_step", "gpus")
            missing = [name for name in given if facts.get(name) is None]
        return {"throughput_missing": missing, "throughput_warnings": found}
    if windows.has_any("tokens_per_gpu") and not np.nansum(windows["tokens_per_gpu"]):
        return {"throughput_warnings": [messages.NO_TOKENS()]}
    if not timed and windows.height > 1:
        return {"throughput_warnings": [_untimed(run)]}
    return {"throughput_warnings": [unclean()]}


def _untimed(run: Mapping[str, Any]) -> Message:
    """Describe that a run's steps have no times, and where to find times."""
    if run["engine_s"]:
        engine = run.get("engine_below") or "and that engine's format"
        return messages.ONLY_ENGINE_TIMES(engine=engine)
    elsewhere = run.get("times_elsewhere")
    rate = _end_rate(run)
    if elsewhere and (run["tgs_end_to_end"] or rate):
        return messages.ONLY_TOTAL_TIME(rate=rate, elsewhere=elsewhere)
    return messages.NO_TIMES_HERE(elsewhere=elsewhere) if elsewhere else messages.NO_TIMES()


def _end_rate(run: Mapping[str, Any]) -> str:
    """Return the samples/s of the log's last line in brackets, or ""."""
    rate = run.get("end_samples_per_second")
    return f" ({rate:,.4g} samples/s)" if rate else ""
