"""Actions after a run, for which its log has a reason, the largest gain first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod
from typing import Final

from ..core.messages import Message
from ..core.run_table import MetricsRow, SlowRanks
from ..core.run_words import COMPUTE_PHASES, GROWTH, UNEXPLAINED, steps_of
from . import messages
from .level_change import LevelChange, costliest_change
from .phase_gap import REST, phase_share

MIN_GAIN: Final = 0.05
"""Least share of the wall time that fewer evaluations or checkpoints may win."""
MIN_UNEXPLAINED: Final = 0.02
"""Least share of the wall time in slow steps without a cause."""
MIN_PIPELINE_SHARE: Final = 0.2
"""Least share of a step in communication, for the bubble of a pipeline to be named."""
MIN_MEMORY_STEPS: Final = 100
"""Steps that a snapshot of growing memory needs."""
MIN_WINDOWS, MIN_WALL_S = 10, 60.0
"""Fewer windows or seconds are too short to judge a speed."""
MIN_TFLOPS: Final = 10.0
"""TFLOP/s per GPU below which any GPU with matrix units is hardly used: an NVIDIA T4 has 65."""
MIN_STEP_TOKENS: Final = 4_096
"""Fewer tokens of a step on one GPU are few."""
MAX_STEPS: Final = 3

Gain = tuple[float, Message]
"""Share of the wall time that an action may win; above 1 for a run that failed."""
FAILED: Final = 2.0
CUT: Final = 0.6
GROWING: Final = 0.5
LITTLE_USED: Final = 0.3
"""Gains that are no share of a time: the run ends, or will."""

LOST_CONNECTION: Final = re.compile(
    r"remote process exited|connection (?:closed|reset|refused)|socket timeout|broken pipe|"
    r"watchdog|collective operation timeout",
    re.IGNORECASE,
)
SLURM_JOB: Final = re.compile(r"\b(?:STEP|JOB) (\d+)")
TIME_LIMIT: Final = re.compile(r"time ?limit", re.IGNORECASE)


def next_steps(row: MetricsRow) -> list[Message]:
    """Return at most MAX_STEPS actions about a run; none if nothing stands out."""
    parts = (
        *(_failure, _pipeline, _data, _beside_steps, _slower, _drift, _pauses, _memory),
        *(_ranks, _stalls, _little_used),
    )
    found = [gain for part in parts for gain in part(row)]
    found.sort(key=lambda gain: -gain[0])
    has_ended = any(gain in (FAILED, CUT) for gain, _ in found)  # what to do about that comes first
    short = [] if has_ended else _too_short(row)
    return [*(message for _, message in found), *short][:MAX_STEPS]


def _failure(row: MetricsRow) -> Iterator[Gain]:
    outcome, text = row["outcome"], row["outcome_text"] or ""
    if outcome == "out_of_memory":
        yield FAILED, messages.FIT_MEMORY(levers=", or ".join(_memory_levers(row)))
    elif outcome == "crashed" and LOST_CONNECTION.search(text):
        yield FAILED, messages.FIND_FIRST_RANK()
    elif outcome == "crashed":
        yield FAILED, messages.FIND_CRASH()
    elif outcome == "nan_loss":
        yield FAILED, messages.FIND_NAN()
    elif outcome == "killed" and TIME_LIMIT.search(text):
        yield FAILED, messages.RAISE_TIME_LIMIT()
    elif outcome == "killed" and (job := SLURM_JOB.search(text)):
        yield FAILED, messages.ASK_SLURM(job=job[1])
    elif outcome == "incomplete" and (whole := row["total_steps"]):
        last = row["last_step"]
        if last is None:
            yield CUT, messages.FIND_REST(whole=whole)
        elif last < whole:
            yield CUT, messages.FIND_END(last=last, whole=whole)


def _memory_levers(row: MetricsRow) -> Iterator[str]:
    """Yield what lowers the memory of a run, by its facts."""
    micro, recompute, stage = row["micro_batch_size"], row["recompute"], row["zero_stage"]
    if micro is not None and micro > 1:
        yield f"halve micro_batch_size ({micro}) and double gradient_accumulation"
    if recompute is None:
        yield "turn on activation checkpointing (the log does not say if it is on)"
    elif recompute != "full":
        yield f"checkpoint all activations (recompute is {recompute})"
    if stage is not None and stage < 3:  # noqa: PLR2004 - ZeRO shards all at stage 3
        yield f"raise the ZeRO stage ({stage})"
    elif recompute == "full":
        yield "shard the model over more GPUs"


def _pipeline(row: MetricsRow) -> Iterator[Gain]:
    """Yield more micro-batches if pipeline stages wait for each other.

    A bubble is (p - 1) / (m + p - 1) of a step, of p stages and m micro-batches: 1F1B of Megatron
    (arXiv 2104.04473, section 2.2.1).
    """
    stages, micro = row["pipeline_parallel"], _micro_batches(row)
    waits = phase_share(row, "pipeline") + phase_share(row, "collectives")
    if stages is None or micro is None or stages < 2 or waits < MIN_PIPELINE_SHARE:  # noqa: PLR2004 - one stage is none
        return
    bubble = f"{100 * (stages - 1) / (micro + stages - 1):.0f} %"
    yield waits, messages.FEWER_BUBBLES(stages=stages, micro=micro, bubble=bubble)


def _micro_batches(row: MetricsRow) -> int | None:
    """Return the micro-batches of a step through one pipeline, if known."""
    if row["gradient_accumulation"] is not None:
        return row["gradient_accumulation"]
    degrees = (row["tensor_parallel"], row["pipeline_parallel"], row["context_parallel"])
    shared = prod(degree or 1 for degree in degrees)
    batch, micro, gpus = row["global_batch_size"], row["micro_batch_size"], row["gpus"]
    if batch is None or micro is None or gpus is None or batch * shared % (micro * gpus):
        return None
    return batch * shared // (micro * gpus)


def _data(row: MetricsRow) -> Iterator[Gain]:
    """Yield faster loading of data, unless some ranks alone are late with it."""
    share = row["data_share"]
    late = any(one["kind"] == "data" and not one["shared"] for one in row["slow_ranks"] or [])
    if row["bound"] == "data" and share is not None and share < 1 and not late:
        yield share, messages.LOAD_FASTER(times=1 / (1 - share))


def _beside_steps(row: MetricsRow) -> Iterator[Gain]:
    """Yield fewer evaluations and checkpoints."""
    for cause, kind in (
        ("evaluation", messages.EVALUATE_LESS),
        ("checkpoint", messages.SAVE_LESS),
    ):
        share = sum(r["share"] for r in row["time_lost"] or [] if r["cause"] == cause)
        if share >= MIN_GAIN:
            yield share, kind(share=_percent(share))


NO_TIMERS: Final = ". Turn on phase timers to see the cause"
PLACES: Final = {
    "data": "data loading and storage",
    "forward": "the GPUs (clocks, temperature)",
    "backward": "the GPUs (clocks, temperature)",
    "forward_backward": "the GPUs (clocks, temperature)",
    "collectives": "the network and the slowest rank",
    "pipeline": "the slowest pipeline stage and the network",
    "optimizer": "the optimizer (offloading, its collectives)",
    REST: "the hosts (CPU load, data loading, storage, other jobs)",
}
"""Places to look at, by the phase that takes longer."""


def _slower(row: MetricsRow) -> Iterator[Gain]:
    change = costliest_change(row["levels"] or [])
    if change is None or change.extra_s <= 0 or not row["wall_s"]:
        return
    what, why = _place(change)
    told = messages.LOOK_THERE(what=what, steps=steps_of(change.after), why=why)
    yield change.extra_s / row["wall_s"], told


def _place(change: LevelChange) -> tuple[str, str]:
    """Return the place to look at, and the reason as the end of a sentence."""
    if change.phase is None:
        return (
            "the nodes and other jobs",
            NO_TIMERS,
        )
    if change.phase != REST:
        return PLACES[change.phase], f": {change.phase.replace('_', ' and ')} takes longer there"
    same = [name for name in change.unchanged if name in COMPUTE_PHASES]
    if not same:
        return PLACES[REST], ": the time passes outside all timed phases"
    return PLACES[REST], f": {' and '.join(same)} are as before, so the GPUs are not slower"


def _drift(row: MetricsRow) -> Iterator[Gain]:
    if row["drift"] is not None and row["drift"] < 0:
        experts = ["expert load"] if (row["expert_parallel"] or 1) > 1 else []
        lengths = [] if row["packed"] == "true" else ["sequence lengths"]
        what = ", ".join([*experts, *lengths, "memory", "GPU clocks"])
        yield -row["drift"] / 2, messages.LOOK_AT_DRIFT(what=what)


def _pauses(row: MetricsRow) -> Iterator[Gain]:
    """Yield the stretch with most time outside of the step timer."""
    longest = max(row["pauses"] or [], key=lambda pause: pause["share"], default=None)
    if longest is not None:
        yield longest["share"], messages.LOOK_BETWEEN_STEPS(steps=steps_of(longest))


def _memory(row: MetricsRow) -> Iterator[Gain]:
    if any(change["kind"] == GROWTH for change in row["memory_changes"] or []):
        yield GROWING, messages.RECORD_MEMORY(steps=MIN_MEMORY_STEPS)


CHECKS: Final = {"data": "data loading and storage", "compute": "GPU clocks and temperature"}
UNBALANCED: Final = {"tokens": "the most tokens", "documents": "the longest documents"}
"""Words by the kind of a delay (metrics.core.run_table.SlowRanks)."""


def _ranks(row: MetricsRow) -> Iterator[Gain]:
    for late in row["slow_ranks"] or []:
        if not late["shared"]:
            yield late["share"], _late(late)


def _late(late: SlowRanks) -> Message:
    node = f" (node {late['node']})" if late["node"] else ""
    named = f"rank{'s' * (late['rank_count'] > 1)} {late['ranks']}{node}"
    if late["kind"] in UNBALANCED:
        return messages.BALANCE_RANKS(ranks=named, what=UNBALANCED[late["kind"]])
    return messages.CHECK_RANKS(ranks=named, what=CHECKS[late["kind"]])


def _stalls(row: MetricsRow) -> Iterator[Gain]:
    """Yield the slowest step without a cause, if such steps take much time."""
    share = sum(r["share"] for r in row["time_lost"] or [] if r["cause"] == UNEXPLAINED)
    slow = [one for one in row["slowest_steps"] or [] if one["cause"] == UNEXPLAINED]
    if share < MIN_UNEXPLAINED or not slow:
        return
    several = slow[0]["from_step"] != slow[0]["to_step"]
    steps = f"step{'s' * several} {steps_of(slow[0])}"
    yield share, messages.FIND_STALL(steps=steps, seconds=slow[0]["lost_s"])


def _little_used(row: MetricsRow) -> Iterator[Gain]:
    """Yield a profile if the matmuls of a run use little of any GPU with matrix units."""
    tgs, flops = row["tgs"], row["flops_per_token"]
    if tgs is None or flops is None or row["precision"] in ("fp32", None):
        return
    done, bubbles = tgs * flops / 1e12, bool(list(_pipeline(row)))
    if done >= MIN_TFLOPS or bubbles:
        return
    tokens = row["tokens_per_gpu_step"]
    few = tokens is not None and tokens < MIN_STEP_TOKENS
    batch = f", and {tokens:,.0f} tokens a step on each GPU are few" if few else ""
    yield LITTLE_USED, messages.PROFILE_STEPS(flops=f"{done:.3g}", batch=batch)


def _too_short(row: MetricsRow) -> Iterator[Message]:
    """Yield that a run is too short, if it has a rate that is as short as that."""
    windows, wall_s = row["windows"], row["wall_s"]
    if row["seconds_per_step"] is None or windows is None or wall_s is None:
        return
    if windows < MIN_WINDOWS or wall_s < MIN_WALL_S:
        told = f"{windows:,} window{'s' * (windows != 1)}"
        yield messages.RUN_LONGER(windows=told, seconds=wall_s)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
