"""A run's diagnosis: its outcome, speeds, largest losses of time, and slow ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final

from fairmfu.metrics.compare.missing_rate import explain_missing_rate
from fairmfu.metrics.core.messages import by_gravity
from fairmfu.metrics.core.run_table import (
    MemoryChange,
    MetricsRow,
    SlowRanks,
    SpeedLevel,
    not_null,
    worst_doubt,
)
from fairmfu.metrics.core.run_words import (
    BETWEEN_STEPS,
    DATA_LOADING,
    GROWTH,
    SECONDS_PER_HOUR,
    SLOWER_SPEED,
    UNEXPLAINED,
    place_word,
    steps_of,
)
from fairmfu.metrics.diagnosis.level_change import costliest_change
from fairmfu.metrics.diagnosis.next_steps import next_steps
from fairmfu.metrics.diagnosis.phase_gap import REST, phase_share

from .claims_text import implausible, join_words
from .run_narrative import (
    mostly_slower,
    outcome_sentence,
    phase_label,
    seconds_text,
    step_seconds,
    step_time,
    whole_percent,
)
from .tabular import GIB, count, percent

MIN_LOST_SHARE: Final = 0.02
"""Least share of the wall time for a cause to be named."""
COLLECTIVES, PIPELINE = "collectives", "pipeline"
MIN_COMMUNICATION_SHARE: Final = 0.3
"""Smallest share of a step in collectives and in the pipeline that is named first."""
UNEVEN_WAITS: Final = 0.8
"""Waits for data in a typical step, below this share of those in all steps, are uneven."""
UNEVEN: Final = 1.5
"""Speeds of most windows this far apart are uneven."""
MAX_NAMED: Final = 3
"""Most causes, and changes of speed, that are named."""


def diagnosis(row: MetricsRow) -> list[str]:
    """Return what a reader wants to know of a run first, at most a line each.

    The outcome, the rate, its changes inside the run, its memory if that changed, time outside of
    the step timer, the largest losses of time, waits for data, the ranks that caused them, and
    what to do next.
    """
    changed = row["levels"] or row["drift"] is not None
    speeds = (speed_line, _rate) if changed else (_rate, speed_line)
    parts = (outcome_sentence, *speeds, _memory, _pauses, *_by_size(row), _ranks)
    lines = (part(row) for part in parts)
    told = [f"{'Then' if at else 'Next'}: {step}" for at, step in enumerate(next_steps(row))]
    return [*(line for line in lines if line), *told]


def _by_size(row: MetricsRow) -> Iterable[Callable[[MetricsRow], str]]:
    """Return the lines about lost time, the largest share first."""
    lost = max((cause["share"] for cause in row["time_lost"] or []), default=0.0)
    waits = (row["data_share"] or 0.0) if row["bound"] == "data" else 0.0
    apart = sum(phase_share(row, phase) for phase in (COLLECTIVES, PIPELINE))
    sized = ((lost, _lost), (waits, _waits), (apart, _collectives))
    return [part for _, part in sorted(sized, key=lambda each: -each[0])]


def _rate(row: MetricsRow) -> str:
    """Return the rate with its interval and MFU, or why it is unknown.

    Empty if the log only lacks facts, which a command names.
    """
    tgs, samples, seconds = row["tgs"], row["samples_per_second"], row["seconds_per_step"]
    told = []
    if tgs is not None:
        low, high = row["tgs_low"], row["tgs_high"]
        told.append(f"{count(tgs)} tokens/s/GPU{_ranked_steps(row)}")
        graver, _ = by_gravity(row["warnings"] or [])
        if low is not None and high is not None and not graver:
            told[-1] += f" (95 % interval {count(low)} to {count(high)})"
    elif samples is not None:
        told.append(f"{count(samples)} samples/s over all GPUs")
    by = "exact attention" if row["flops_source"] is None else "by given FLOPs"
    if row["mfu"] is not None:
        told.append(f"MFU {percent(row['mfu'])} ({by}{implausible([row])})")
    elif tgs is not None and row["flops_per_token"] is not None:
        told.append(f"{tgs * row['flops_per_token'] / 1e12:,.3g} TFLOP/s per GPU ({by})")
    if seconds is not None:
        told.append(step_time(row))
    if row["tgs_end_to_end"] is not None and row["levels"]:
        told.append(f"{count(row['tgs_end_to_end'])} tokens/s/GPU end to end")
    if told:
        return f"Rate: {', '.join(told)}.{_refuted(row)}{_spikes(row)}"
    reason, lacks = explain_missing_rate(row)
    return f"Rate: unknown, because {reason}." if reason and not lacks else ""


def _refuted(row: MetricsRow) -> str:
    """Return the doubt because of which the rate is not ranked, in a few words."""
    graver, _ = by_gravity(row["doubts"] or [])
    return f" In doubt: {worst_doubt(graver)}." if graver else ""


def _ranked_steps(row: MetricsRow) -> str:
    """Return the steps that TGS is of, if the run had several speeds."""
    ranked = [steps_of(level) for level in row["levels"] or [] if level["ranked"]]
    return f" in steps {' and '.join(ranked)}" if ranked else ""


def _spikes(row: MetricsRow) -> str:
    """Return the rate by the other treatment of slow windows of unknown cause, if any."""
    slower, faster, tgs = row["tgs_with_spikes"], row["tgs_without_spikes"], row["tgs"]
    if slower is None or faster is None or tgs is None:
        return ""
    counts_them = abs(tgs - slower) < abs(tgs - faster)
    if counts_them:
        return (
            " The rate includes slow time of unknown cause; without that time it is "
            f"{count(faster)} tokens/s/GPU."
        )
    return (
        " The rate leaves out slow time of unknown cause; with that time it is "
        f"{count(slower)} tokens/s/GPU."
    )


def speed_line(row: MetricsRow) -> str:
    """Return how the speed changed inside the run; empty if that was not judged."""
    levels, drift = row["levels"], row["drift"]
    if drift is not None:
        side = "fell" if drift < 0 else "rose"
        return f"Speed: {side} steadily by {percent(abs(drift))} over the run."
    if levels is None:
        return ""
    if not levels:
        uneven = (row["tgs_p95"] or 0.0) > UNEVEN * (row["tgs_p5"] or 1.0)
        return f"Speed: {'uneven, ' * uneven}no lasting change{_range(row)}."
    changes = list(pairwise(levels))
    unit = place_word(row)
    told = ", ".join(
        _change(*pair, unit, is_first=not at) for at, pair in enumerate(changes[:MAX_NAMED])
    )
    more = len(changes) - MAX_NAMED
    rest = f", and {more} more change{'s' * (more > 1)}" if more > 0 else ""
    return f"Speed: {told}{rest}{_end(levels)}.{_cost(levels)}{_cause(levels)}"


def _end(levels: Sequence[SpeedLevel]) -> str:
    """Return the last speed against the first, where several changes hide it."""
    first, last = levels[0]["tgs"], levels[-1]["tgs"]
    if len(levels) == 2 or not first or last is None:  # noqa: PLR2004 - one change says it
        return ""
    side = "below" if last < first else "above"
    return f"; at the end {percent(abs(last / first - 1))} {side} the speed of the start"


def _cause(levels: Sequence[SpeedLevel]) -> str:
    """Return the phase that changed most, in the speed that cost most time.

    Empty if the log times no phases.
    """
    found = costliest_change(levels)
    if found is None or found.phase is None:
        return ""
    before, after = found.before, found.after
    is_rest = found.phase == REST
    what = "The rest of a step, outside all timed phases," if is_rest else phase_label(found.phase)
    way = "rose" if found.new_s > found.old_s else "fell"
    same = join_words([phase_label(phase) for phase in found.unchanged])
    rest = f" Unchanged: {same}." if same else ""
    return (
        f" {what[:1].upper()}{what[1:]} {way} from {step_seconds(found.old_s)} a step (steps "
        f"{steps_of(before)}) to {step_seconds(found.new_s)} (steps {steps_of(after)}).{rest}"
    )


def slow_down(row: MetricsRow) -> tuple[float, str] | None:
    """Return the largest loss of speed inside a run, and its place in words.

    The loss is a share. None if no level is slower than one before it.
    """
    if row["drift"] is not None:
        return (-row["drift"], "steadily over the run") if row["drift"] < 0 else None
    levels = row["levels"] or []
    losses = [(_loss(levels[:at], level), level) for at, level in enumerate(levels) if at]
    loss, level = max(losses, key=lambda one: one[0], default=(0.0, None))
    if level is None or loss <= 0:
        return None
    if level is levels[-1]:
        return loss, f"from {place_word(row)} {level['from_step']:,} on"
    return loss, f"in {place_word(row)}s {steps_of(level)}"


def _loss(before: Sequence[SpeedLevel], level: SpeedLevel) -> float:
    """Return the loss of speed against the fastest of earlier levels, as a share."""
    if level["tgs"] is not None:
        return 1 - level["tgs"] / max(other["tgs"] or 0.0 for other in before)
    fastest = min(not_null(other["seconds_per_step"]) for other in before)
    return 1 - fastest / not_null(level["seconds_per_step"])


def _range(row: MetricsRow) -> str:
    """Return the range of most windows' speeds; empty without tokens."""
    low, high = row["tgs_p5"], row["tgs_p95"]
    if low is None or high is None:
        return ""
    return f"; 90 % of the windows at {count(low)} to {count(high)} tokens/s/GPU"


def _change(before: SpeedLevel, after: SpeedLevel, unit: str, *, is_first: bool) -> str:
    change = after["change"] or 0.0
    side = "fell" if change < 0 else "rose"
    rates = f"to {level_rate(after, unit)}"
    if is_first:
        of_tokens = "" if after["tgs"] is None else " tokens/s/GPU"
        rates = f"{level_rate(before, unit)} to {level_rate(after, unit)}{of_tokens}"
    near = f" after {' and '.join(after['events'])}" if after["events"] else ""
    place = f"at {unit} {after['from_step']:,}{near}"
    return f"{side} by {percent(abs(change))} {place} ({rates})"


def level_rate(level: SpeedLevel, unit: str) -> str:
    """Return TGS of a level, or its time per step. unit: of the steps, in words."""
    if level["tgs"] is None:
        return f"{seconds_text(not_null(level['seconds_per_step']))} a {unit}"
    return count(level["tgs"])


def _cost(levels: Sequence[SpeedLevel]) -> str:
    """Return the GPU-hours that slower levels cost."""
    lost = sum(level["gpu_hours_lost"] or 0.0 for level in levels)
    return f" All slower steps together cost {lost:.2g} GPU-hours." if lost else ""


def _memory(row: MetricsRow) -> str:
    """Return how the peak memory changed inside the run; empty if it did not."""
    changes = row["memory_changes"] or []
    told = ", ".join(map(_memory_change, changes[:MAX_NAMED]))
    more = len(changes) - MAX_NAMED
    rest = f", and {more} more change{'s' * (more > 1)}" if more > 0 else ""
    if not told:
        return ""
    return f"Memory: the peak {told}{rest}{_hourly(row, changes)}."


def _waits(row: MetricsRow) -> str:
    """Return the share of the step time that waits for data, if it is large."""
    if row["bound"] != "data":
        return ""
    share, typical = not_null(row["data_share"]), phase_share(row, "data")
    uneven = 0 < typical < UNEVEN_WAITS * share
    usual = f" ({percent(typical)} of a typical step; the waits are uneven)" if uneven else ""
    return f"Data: {whole_percent(share)} of the time of all steps waits for data{usual}."


def _collectives(row: MetricsRow) -> str:
    """Return the share of a step in collectives and in the pipeline, if it is large."""
    words = {
        COLLECTIVES: "collectives",
        PIPELINE: "sends and receives between pipeline stages",
    }
    shares = {phase: phase_share(row, phase) for phase in words}
    if sum(shares.values()) < MIN_COMMUNICATION_SHARE:
        return ""
    told = [f"{percent(share)} in {words[phase]}" for phase, share in shares.items() if share]
    return f"Communication: a step spends {' and '.join(told)}, including waits for other ranks."


def _hourly(row: MetricsRow, changes: Sequence[MemoryChange]) -> str:
    """Return the growth per hour; empty if it was not seen for an hour."""
    slope, seconds = row["memory_slope"], row["seconds_per_step"]
    if not slope or seconds is None:
        return ""
    hours = (changes[-1]["to_step"] - changes[-1]["from_step"]) * seconds / SECONDS_PER_HOUR
    return f", by {count(slope / GIB)} GiB an hour" if hours >= 1 else ""


def _memory_change(change: MemoryChange) -> str:
    before, after = change["bytes_before"], change["bytes_after"]
    sizes = f"{before / GIB:.1f} to {after / GIB:.1f} GiB"
    if change["kind"] == GROWTH:
        return f"grows steadily from step {change['from_step']:,} to the end ({sizes})"
    side = "rose" if after > before else "fell"
    share = percent(abs(after / before - 1))
    return f"{side} by {share} at step {change['from_step']:,} ({sizes})"


def _pauses(row: MetricsRow) -> str:
    """Return where more time than usual passed outside of the step timer."""
    pauses = row["pauses"] or []
    if not pauses:
        return ""
    shares = [pause["share"] for pause in pauses]
    longer = [pause for pause in pauses if pause["share"] > (min(shares) + max(shares)) / 2]
    seconds = max(pause["seconds_per_step"] for pause in longer)
    steps = [steps_of(pause) for pause in longer[:MAX_NAMED]]
    others = len(longer) - MAX_NAMED
    more = f" and {others} more stretch{'es' * (others > 1)}" if others > 0 else ""
    share = percent(max(pause["share"] for pause in longer))
    return (
        f"Outside the step timer: up to {seconds_text(seconds)} a step ({share} of its time) in "
        f"steps {', '.join(steps)}{more}, by time stamps."
    )


def _lost(row: MetricsRow) -> str:
    """Return the largest losses of wall time."""
    lost = [cause for cause in row["time_lost"] or [] if cause["share"] >= MIN_LOST_SHARE]
    if not lost:
        return ""
    most = " (most of the run)" if mostly_slower(row) else ""
    told = (
        f"{percent(cause['share'])} ({seconds_text(cause['seconds'])}) {cause['cause']}"
        f"{most if cause['cause'] == SLOWER_SPEED else ''}"
        for cause in lost[:MAX_NAMED]
    )
    return f"Wall time lost: {'; '.join(told)}."


# -- ranks -----------------------------------------------------------------------------------

MAX_NAMED_GROUPS: Final = 2
MAX_NAMED_RANGES: Final = 60
"""Most groups of ranks that are named, and most characters of the ranks of one."""
MAX_NAMED_STEPS: Final = 4
DEEDS: Final = {
    "data": "waited for data",
    "compute": "computed longer",
    "tokens": "had the most tokens",
    "documents": "had the longest documents",
}
"""Words for the delay of late ranks, by their kind."""


def _ranks(row: MetricsRow) -> str:
    """Return the ranks that the others waited for; empty if none are known.

    If a run loses time and only one rank prints, this is said.
    """
    slow = row["slow_ranks"]
    if slow is None:
        return _unnamed(row)
    causes = [late for late in slow if not late["shared"]]
    together = [late for late in slow if late["shared"] and late["share"] >= MIN_LOST_SHARE]
    told = [_culprits(late) for late in causes[:MAX_NAMED_GROUPS]]
    if rest := causes[MAX_NAMED_GROUPS:]:
        hours = sum(late["gpu_hours_lost"] for late in rest)
        told.append(f"{len(rest)} more group{'s' * (len(rest) > 1)} ({hours:.2g} GPU-hours)")
    told += [_together(late, row) for late in together if late["kind"] == "data" or not causes]
    return f"Ranks: {'; '.join(told)}." if told else ""


UNTOLD_CAUSES: Final = (DATA_LOADING, BETWEEN_STEPS, UNEXPLAINED)
"""Causes of lost time that make a reader ask for the rank."""


def _unnamed(row: MetricsRow) -> str:
    """Return that the lines of one rank name no culprit; empty if nobody would ask.

    Asked of a run of several GPUs that loses time to data or an unknown cause.
    """
    several = (row["gpus"] or 1) > 1 and (row["ranks"] or 1) == 1
    lost = [cause for cause in row["time_lost"] or [] if cause["share"] >= MIN_LOST_SHARE]
    if not several or not any(cause["cause"] in UNTOLD_CAUSES for cause in lost):
        return ""
    return "Ranks: cannot be named, because the log has the steps of only one rank."


def _culprits(late: SlowRanks) -> str:
    """Return late ranks with their steps and cost."""
    ranks, node = late["ranks"], late["node"]
    if len(ranks) > MAX_NAMED_RANGES:
        ranks = f"{late['rank_count']:,} ranks"
    if node is not None:
        ranks += f" (node{'s' * (' ' in node)} {node})"
    gpus = round(late["gpu_hours_lost"] * SECONDS_PER_HOUR / late["seconds"])
    return (
        f"{ranks} {_did(late)}, {seconds_text(late['seconds'] / late['steps'])} a step: "
        f"{late['gpu_hours_lost']:.2g} GPU-hours of all {gpus:,} GPUs lost"
    )


def _did(late: SlowRanks) -> str:
    return f"{DEEDS[late['kind']]} in {_steps(late)}"


def deeds(late: SlowRanks) -> str:
    """Return the reason why ranks were late, in words."""
    return f"{DEEDS[late['kind']]}{', all at once' if late['shared'] else ''}"


def _steps(late: SlowRanks) -> str:
    count, steps = late["steps"], [f"{step:,}" for step in late["first_steps"]]
    if late["lasting"]:
        return "most steps"
    if count == 1:
        return f"step {steps[0]}"
    if count <= MAX_NAMED_STEPS:
        return f"steps {', '.join(steps[:-1])} and {steps[-1]}"
    return f"{count:,} steps ({', '.join(steps[:MAX_NAMED_STEPS])}, …)"


def _together(late: SlowRanks, row: MetricsRow) -> str:
    """Return steps in which most ranks were late at once."""
    every = late["rank_count"] == row["ranks"]
    ranks = (
        f"all {late['rank_count']:,}" if every else f"{late['rank_count']:,} of {row['ranks']:,}"
    )
    if late["kind"] == "data":
        return (
            f"{ranks} waited for data at once in {_steps(late)}, "
            f"{seconds_text(late['seconds'] / late['steps'])} a step: shared storage or network"
        )
    return f"{ranks} were slow at once in {_steps(late)}, so their times name no rank"
